/* Transport planned (docs/transports/planned.md): message arrays of one sender at one receiver, whose memory and contexts are
   used again, and the epochs by which the receiver says what it has open. Both sides go through the same plan; the sender may
   be any number of arrays ahead, and merges messages that continue each other. A message is written into memory when it is
   delivered, and only later taken off the completion queue. Epochs are words in the sender's memory, each written by one
   store that arrives later; where processes share memory it is there at once, and wakes a sender that sleeps.

   The plan: array i has context i % 2. Arrays 0, 2 and 3 have memory 0, array 1 has memory 1: array 2 has context and memory of
   array 0, array 3 the context of array 1 and the memory of array 2. The receiver opens an array ahead, while the one before it is
   open, if the memory of the two differs.

   Bounds: ARRAYS arrays (those behind array 3 lie as it does) of MESSAGES messages each, two contexts, two memories.

run  positive -DARRAYS=6
run  positive -DARRAYS=6 -DSHARED
run  sanity   -DREACH=all_received                         all_received
run  sanity   -DREACH=sent_into_an_array_ahead             sent_into_an_array_ahead
run  sanity   -DREACH=sender_is_two_ahead                  sender_is_two_ahead
run  sanity   -DSHARED -DREACH=sender_slept                sender_slept
run  mutant   -DNO_EPOCH                        a_look_finds_its_own_array
run  mutant   -DANY_EPOCH                       a_look_finds_its_own_array
run  mutant   -DCLOSES_EARLY                    only_what_is_due_arrives
run  mutant   -DOPENS_OVER_ANOTHER              a_look_finds_its_own_array
run  mutant   -DTELLS_BEFORE_THE_LAST_LOOK      a_look_finds_its_own_array
run  mutant   -DSLEEPS_WITH_PENDING             nobody_waits_for_ever
run  mutant   -DSHARED -DNO_WAKE                nobody_waits_for_ever
run  mutant   -DSHARED -DWAKES_BEFORE_THE_WORD  nobody_waits_for_ever
run  mutant   -DSHARED -DLOOKS_BEFORE_IT_ARMS   nobody_waits_for_ever
*/
#ifndef ARRAYS
#define ARRAYS 4
#endif
#define MESSAGES 2
#define CONTEXT(i) ((i) % 2)
#define MEMORY(i) ((i) == 1)
#define AT(m, k) ((m) * MESSAGES + (k))
#define NONE 15

bit only_what_is_due_arrives, a_look_finds_its_own_array, nobody_waits_for_ever, all_received, sent_into_an_array_ahead,
    sender_is_two_ahead, sender_slept;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_all_received (done == 2)
#define goal_sent_into_an_array_ahead ahead
#define goal_sender_is_two_ahead (sending > receiving + 1)
#define goal_sender_slept slept
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

/* --- what the receiver has */
byte memory[2 * MESSAGES] = NONE; /* the array whose message lies there */
byte open[2] = NONE;              /* by context: the array that is open */
byte epoch[2];                    /* how often it was opened */
bit arrived[ARRAYS * MESSAGES];
byte receiving, opened;           /* the array that it is at; the first that was never open */

/* --- what the sender has */
byte said[2];                     /* its copies of the epochs, which the receiver writes */
byte sending;
bit armed, event, ahead, slept;

byte done;

/* A write with its immediate: array and index. The receiver learns context and index only; the array is for the checks. */
chan wire = [ARRAYS * MESSAGES] of { byte, byte };
chan completions = [ARRAYS * MESSAGES] of { byte, byte };
chan words = [ARRAYS] of { byte, byte };

/* The network delivers each direction in order, and late. */
active proctype Network() {
  byte i, k;
  do
  :: atomic { wire?i,k -> memory[AT(MEMORY(i), k)] = i; completions!i,k; i = 0; k = 0 }
#ifndef SHARED
  :: atomic { words?i,k -> said[i] = k; i = 0; k = 0 }
#endif
  :: done == 2 && empty(wire) && empty(words) -> break
  od
}

inline wake() {
#ifndef NO_WAKE
  if
  :: armed -> atomic { armed = 0; event = 1 }
  :: else
  fi
#else
  skip
#endif
}

inline tell(i) {
#ifdef SHARED
#ifdef WAKES_BEFORE_THE_WORD
  wake();
  said[CONTEXT(i)] = epoch[CONTEXT(i)]
#else
  said[CONTEXT(i)] = epoch[CONTEXT(i)];
  wake()
#endif
#else
  words!CONTEXT(i),epoch[CONTEXT(i)]
#endif
}

/* Whether array i may be open beside the one that is being received. */
#ifdef OPENS_OVER_ANOTHER
#define MAY_OPEN(i) ((i) < ARRAYS && (i) <= receiving + 1 && ((i) == receiving || CONTEXT(i) != CONTEXT(receiving)))
#else
#define MAY_OPEN(i) ((i) < ARRAYS && (i) <= receiving + 1 && ((i) == receiving || MEMORY(i) != MEMORY(receiving)))
#endif

inline open_those_that_may() {
  do
  :: MAY_OPEN(opened) ->
     open[CONTEXT(opened)] = opened;
     epoch[CONTEXT(opened)]++;
     tell(opened);
     opened++
  :: else -> break
  od
}

inline look(i) {
  k = 0;
  do
  :: k < MESSAGES -> HOLDS(a_look_finds_its_own_array, !arrived[i * MESSAGES + k] || memory[AT(MEMORY(i), k)] == i); k++
  :: else -> break
  od;
  k = 0
}

#define ALL_ARRIVED(i) (arrived[(i) * MESSAGES] && arrived[(i) * MESSAGES + 1])

active proctype Receiver() {
  byte i, k;
  do
  :: receiving < ARRAYS ->
     open_those_that_may();
     do
#ifdef CLOSES_EARLY
     :: arrived[receiving * MESSAGES] || arrived[receiving * MESSAGES + 1] -> break
#else
     :: ALL_ARRIVED(receiving) -> break
#endif
     :: completions?i,k ->
        atomic {
          HOLDS(only_what_is_due_arrives, open[CONTEXT(i)] == i && !arrived[i * MESSAGES + k]);
          arrived[i * MESSAGES + k] = 1;
          if
          :: i > receiving -> ahead = 1
          :: else
          fi;
          reach();
          i = 0; k = 0
        }
     od;
#ifdef TELLS_BEFORE_THE_LAST_LOOK
     /* Without the release fence the word may be there before what was read in the program's order. */
     if
     :: receiving + 1 < ARRAYS && opened == receiving + 1 ->
        open[CONTEXT(opened)] = opened; epoch[CONTEXT(opened)]++; tell(opened); opened++
     :: else
     fi;
#endif
     look(receiving);
     atomic { open[CONTEXT(receiving)] = (open[CONTEXT(receiving)] == receiving -> NONE : open[CONTEXT(receiving)]); receiving++ }
  :: else -> break
  od;
  atomic { done++; reach() }
}

#if defined(NO_EPOCH)
#define MAY_SEND(c) true
#elif defined(ANY_EPOCH)
#define MAY_SEND(c) (said[c] != 0)
#else
#define MAY_SEND(c) (said[c] == own[c])
#endif

inline post() {
  if
  :: pending != NONE -> wire!sending,pending; pending = NONE
  :: else
  fi
}

active proctype Sender() {
  byte own[2];           /* how often each context was opened here */
  byte pending = NONE;   /* a message that is not posted yet */
  byte first;
  do
  :: sending < ARRAYS ->
     own[CONTEXT(sending)]++;
     /* Waits until the peer has it open. */
     do
     :: atomic { MAY_SEND(CONTEXT(sending)) -> reach(); break }
#ifdef SHARED
     :: else ->
        event = 0;
#ifdef LOOKS_BEFORE_IT_ARMS
        if
        :: MAY_SEND(CONTEXT(sending))
        :: else -> armed = 1; atomic { event -> slept = 1; reach() }
        fi
#else
        armed = 1;
        if
        :: MAY_SEND(CONTEXT(sending))
        :: else -> atomic { event -> slept = 1; reach() }
        fi
#endif
#endif
     od;
     /* Both messages, in either order; the first one stays pending until the other does not continue it, or a wait. */
     select(first : 0 .. 1);
     pending = first;
     post();
     pending = 1 - first;
#ifndef SLEEPS_WITH_PENDING
     post();
#endif
     first = 0;
     atomic { sending++; reach() }
  :: else -> break
  od;
  atomic { done++; reach() }
}

/* At the end, and wherever nobody can go on. */
active proctype Watch() {
  (done == 2 || timeout) -> HOLDS(nobody_waits_for_ever, done == 2)
}
