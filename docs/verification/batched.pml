/* Transport batched (docs/transports/batched.md): slots in the receiver's memory, and a bitmap on each side. Equal bits mean a
   free slot, different ones a message. One sender, one receiver, one context, messages of one slot; no bundles, no doorbells.

   The sender fills any free slot by a write, and behind it posts the echo, which flips the slot's bit in its own bitmap when it
   is executed; requests of one side are executed in their order, and late. Each side reads the other's bitmap, one read at a
   time: it shows the bitmap at some time after its post and lands later. Where memory is shared (SHARED) stores and loads take
   the place of all requests. A read that would show what is known, and can show nothing else, is left out. The receiver hands out messages by their places, may hold several, and gives slots back in any
   order.

   Bounds: SLOTS slots, MESSAGES messages.

run  positive -DMESSAGES=6
run  positive -DSLOTS=3 -DMESSAGES=5
run  positive -DSLOTS=3 -DMESSAGES=7 -DSHARED
run  sanity   -DREACH=all_received                   all_received
run  sanity   -DREACH=holds_all_slots                holds_all_slots
run  sanity   -DSLOTS=3 -DREACH=found_out_of_order   found_out_of_order
run  mutant   -DFLIPS_BEFORE_THE_WRITE          what_is_handed_out_is_there
run  mutant   -DSHARED -DFLIPS_BEFORE_THE_WRITE what_is_handed_out_is_there
run  mutant   -DSHARED -DTAKES_SLOTS_UNASKED    a_held_message_stays
run  mutant   -DGIVES_BACK_TOO_EARLY            a_held_message_stays
run  mutant   -DREADS_OVERTAKE                  what_is_handed_out_is_there
run  mutant   -DFINDS_WHAT_IT_HOLDS             nothing_comes_twice
run  mutant   -DHANDS_OUT_BY_SLOT               order_is_kept
run  mutant   -DREADS_ONCE                      nobody_waits_for_ever
*/
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef MESSAGES
#define MESSAGES 4
#endif

bit what_is_handed_out_is_there, a_held_message_stays, nothing_comes_twice, order_is_kept, nobody_waits_for_ever, all_received,
    holds_all_slots, found_out_of_order;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_all_received (received == MESSAGES)
#define goal_holds_all_slots (holding == SLOTS)
#define goal_found_out_of_order waited
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif
#ifdef READS_OVERTAKE
#define READS 2
#else
#define READS 1
#endif

#define BIT(word, k) (((word) >> (k)) & 1)
#define FLIPPED(word, k) ((word) ^ (1 << (k)))

/* --- the sender's memory, and what it knows */
byte filled_bits;   /* its bitmap, which the receiver reads */
byte given_copy;    /* of the receiver's bitmap */
bit under_way[SLOTS];
byte sent;

/* --- the receiver's */
byte slot[SLOTS];   /* the place of the message there, from 1 on; 0: none, which may look like any */
byte given_bits;    /* its bitmap, which the sender reads */
byte filled_copy;
byte held[SLOTS];   /* the message that was handed out from that slot and is not released; 0: none */
bit handed_out[MESSAGES + 1];
byte received, holding;
bit waited;
#ifdef GIVES_BACK_TOO_EARLY
byte late[SLOTS];   /* the same of those that went back, at which it looks once more */
#endif
#define ANY(what) (what(0) || what(1) || (SLOTS == 3 && what(SLOTS - 1)))

byte done;

mtype = { write, echo };
chan requests = [2 * SLOTS] of { mtype, byte, byte };
chan asks_of_sender = [READS] of { bit };   /* the receiver's reads of filled_bits, and their answers */
chan answers_of_sender = [READS] of { byte };
chan asks_of_receiver = [READS] of { bit };
chan answers_of_receiver = [READS] of { byte };
byte reads_of_sender, reads_of_receiver;

active proctype Network() {
  byte k, n;
  mtype what;
  do
#ifndef SHARED
  :: atomic {
       requests?what,k,n ->
       if
       :: what == write -> slot[k] = n
       :: else -> filled_bits = FLIPPED(filled_bits, k); under_way[k] = 0
       fi;
       k = 0; n = 0; what = 0
     }
  :: atomic { asks_of_sender?_ -> answers_of_sender!filled_bits }
  :: atomic { asks_of_receiver?_ -> answers_of_receiver!given_bits }
#endif
  :: done == 2 && empty(requests) && empty(asks_of_sender) && empty(asks_of_receiver) -> break
  od
}

/* Of the answers that are here a side takes the first. With two reads on their way the first may be the older one. */
#ifdef READS_OVERTAKE
#define LANDS(answers, copy) if :: answers?copy :: len(answers) == 2 -> answers?spare; answers?copy; answers!spare fi
#else
#define LANDS(answers, copy) answers?copy
#endif

#ifdef TAKES_SLOTS_UNASKED
#define FREE(k) (!under_way[k])
#else
#define FREE(k) (!under_way[k] && BIT(filled_bits, k) == BIT(given_copy, k))
#endif

#define MAY_SHOW_MORE_GIVEN (given_copy != given_bits || holding != 0)
#define MAY_SHOW_MORE_FILLED (filled_copy != filled_bits || nempty(requests))

active proctype Sender() {
  byte k;
  bit asked;
  do
  :: sent < MESSAGES ->
     if
     :: atomic {
          ANY(FREE) -> select(k : 0 .. SLOTS - 1);
          if
          :: FREE(k) ->
             sent++;
#ifdef SHARED
#ifndef FLIPS_BEFORE_THE_WRITE
             slot[k] = sent;
#endif
             under_way[k] = 1
#else
             under_way[k] = 1;
#ifdef FLIPS_BEFORE_THE_WRITE
             requests!echo,k,0; requests!write,k,sent
#else
             requests!write,k,sent; requests!echo,k,0
#endif
#endif
          :: else -> k = SLOTS
          fi
        };
#ifdef SHARED
        atomic {
          if
          :: k < SLOTS -> filled_bits = FLIPPED(filled_bits, k); under_way[k] = 0
          :: else
          fi
        };
#ifdef FLIPS_BEFORE_THE_WRITE
        if
        :: k < SLOTS -> slot[k] = sent
        :: else
        fi;
#endif
#endif
        k = 0
#ifdef SHARED
     :: atomic { given_copy != given_bits -> given_copy = given_bits }
#else
#ifdef READS_ONCE
     :: atomic { !asked && reads_of_receiver < READS && MAY_SHOW_MORE_GIVEN -> asked = 1; reads_of_receiver++; asks_of_receiver!1 }
#else
     :: atomic { reads_of_receiver < READS && MAY_SHOW_MORE_GIVEN -> reads_of_receiver++; asks_of_receiver!1 }
#endif
     :: atomic { nempty(answers_of_receiver) -> answers_of_receiver?given_copy; reads_of_receiver-- }
#endif
     fi
  :: else -> break
  od;
  done++
}

#define IS_HELD(k) (held[k] != 0)
#define IS_LATE(k) (late[k] != 0)
#ifdef FINDS_WHAT_IT_HOLDS
#define FOUND(k) (BIT(filled_copy, k) != BIT(given_bits, k))
#else
#define FOUND(k) (BIT(filled_copy, k) != BIT(given_bits, k) && held[k] == 0)
#endif
#ifdef HANDS_OUT_BY_SLOT
#define IS_NEXT(k) true
#else
#define IS_NEXT(k) (slot[k] == 0 || slot[k] == received + 1 || handed_out[slot[k]])
#endif

active proctype Receiver() {
  byte k, n, spare;
  do
  :: received < MESSAGES || holding != 0 ->
     if
     :: atomic {
          received < MESSAGES && ANY(FOUND) -> select(k : 0 .. SLOTS - 1);
          if
          :: FOUND(k) && IS_NEXT(k) -> /* the header is read, and the message handed out */
             n = slot[k];
             HOLDS(what_is_handed_out_is_there, n != 0);
             HOLDS(nothing_comes_twice, !handed_out[n]);
             HOLDS(order_is_kept, n == received + 1);
             handed_out[n] = 1;
             received++;
             held[k] = n;
             holding++;
             reach()
          :: FOUND(k) && !IS_NEXT(k) -> waited = (slot[k] != 0); reach(); waited = 0
          :: else
          fi;
          k = 0; n = 0
        }
     :: atomic { /* a look at what it holds, and the slot goes back */
          holding != 0 -> select(k : 0 .. SLOTS - 1);
          if
          :: held[k] != 0 ->
             HOLDS(a_held_message_stays, slot[k] == held[k]);
             holding--;
#ifdef GIVES_BACK_TOO_EARLY
             late[k] = held[k];
#else
             slot[k] = 0;
#endif
             held[k] = 0;
             given_bits = FLIPPED(given_bits, k)
          :: else
          fi;
          k = 0
        }
#ifdef GIVES_BACK_TOO_EARLY
     :: atomic { ANY(IS_LATE) ->
          select(k : 0 .. SLOTS - 1);
          if
          :: IS_LATE(k) -> HOLDS(a_held_message_stays, slot[k] == late[k]); late[k] = 0
          :: else
          fi;
          k = 0
        }
#endif
#ifdef SHARED
     :: atomic { filled_copy != filled_bits -> filled_copy = filled_bits }
#else
     :: atomic { received < MESSAGES && reads_of_sender < READS && MAY_SHOW_MORE_FILLED -> reads_of_sender++; asks_of_sender!1 }
     :: atomic { nempty(answers_of_sender) -> LANDS(answers_of_sender, filled_copy); reads_of_sender-- }
#endif
     fi
  :: else -> break
  od;
  atomic { reach(); done++ }
}

/* At the end, and wherever nobody can go on. */
active proctype Watch() {
  (done == 2 || timeout) -> HOLDS(nobody_waits_for_ever, done == 2)
}
