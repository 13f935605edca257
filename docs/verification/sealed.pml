/* Sealed messages: two flows of one sender (two contexts), each with keys of its own, and numbers that are never sent. A record leaves at once, or is kept because X had no room and leaves later as it is; X may send again
   what it has, over a new queue pair.

   The adversary is the network, with all of the receive memory: it keeps every record, gives each flow of the receiver any of
   them, altered or not, at any time and again, and can end X in the sender's name. Perfect cipher: what was not sealed under
   key and number does not open. The programs are correct, but send what they like.

   Bounds: MESSAGES messages of each flow and its end, PAYLOADS payloads.

run  positive -DMESSAGES=2
run  sanity   -DREACH=both_flows_end            both_flows_end
run  sanity   -DREACH=kept_then_taken           kept_then_taken
run  sanity   -DREACH=repeated                  repeated
run  mutant   -DSEALED_AGAIN        a_nonce_seals_once
run  mutant   -DNUMBERS_RESUME      a_nonce_seals_once
run  mutant   -DONE_KEY             a_nonce_seals_once
run  mutant   -DNO_TAG              messages_are_the_senders
run  mutant   -DGAPS_OPEN           messages_are_the_senders
run  mutant   -DKEY_OF_CONNECTION   messages_are_the_senders
run  mutant   -DEND_BELIEVED        an_end_comes_last
run  mutant   -DGOES_ON             nothing_after_a_refusal
*/
#ifndef MESSAGES
#define MESSAGES 2
#endif
#define PAYLOADS 2
#define END 3 /* the payload of an end */
#define NUMBERS (MESSAGES + 1)
#define AT(f, n) ((f) * NUMBERS + (n))
/* Key and number of a record as one index: numbers go on over all keys of a flow. */
#ifdef ONE_KEY
#define NONCE(f, n) AT(0, n)
#else
#define NONCE(f, n) AT(f, n)
#endif

bit a_nonce_seals_once, messages_are_the_senders, an_end_comes_last, nothing_after_a_refusal, both_flows_end, kept_then_taken,
    repeated;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_both_flows_end (told_end[0] && told_end[1])
#define goal_kept_then_taken (was_kept && taken[0] == 2)
#define goal_repeated (again && taken[1] == 1)
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

byte said[2 * NUMBERS];   /* what the sender's program sent as the n-th of a flow; 0: nothing yet */
byte sealed[2 * NUMBERS]; /* what a nonce has sealed; 0: nothing */
bit out[2 * NUMBERS];     /* the network has that record */
byte next[2];             /* number of the sender's next record */
bit kept[2];              /* the last one has not left */
byte taken[2];            /* records that the receiver has opened */
bit told_end[2];
bit over, was_kept, again;

inline seal(f, n, payload) {
  HOLDS(a_nonce_seals_once, sealed[NONCE(f, n)] == 0 || sealed[NONCE(f, n)] == payload);
  sealed[NONCE(f, n)] = payload
}

/* The receiver has opened something as the record whose turn it is. */
inline opened(f, payload) {
  HOLDS(nothing_after_a_refusal, !over);
  HOLDS(messages_are_the_senders, payload == said[AT(f, taken[f])]);
  if
  :: payload == END ->
    told_end[f] = 1;
    HOLDS(an_end_comes_last, said[AT(f, taken[f])] == END)
  :: else -> skip
  fi;
  taken[f]++
}

active proctype sender() {
  byte f, p;
end:
  do
  :: select(f : 0 .. 1);
    select(p : 1 .. PAYLOADS);
    if
    :: atomic { !kept[f] && next[f] < MESSAGES ->
        said[AT(f, next[f])] = p;
        seal(f, next[f], p);
        if
        :: out[AT(f, next[f])] = 1
        :: kept[f] = 1; was_kept = 1
        fi;
        next[f]++ }
    :: atomic { !kept[f] && next[f] == MESSAGES ->
        said[AT(f, next[f])] = END;
        seal(f, next[f], END);
        out[AT(f, next[f])] = 1;
        next[f]++ }
    :: atomic { kept[f] ->
#ifdef SEALED_AGAIN /* another message in its place */
        said[AT(f, next[f] - 1)] = p;
        seal(f, next[f] - 1, p);
#endif
        out[AT(f, next[f] - 1)] = 1;
        kept[f] = 0 }
#ifdef NUMBERS_RESUME /* a new queue pair, for which the last piece is cut otherwise and sealed again */
    :: atomic { next[f] > 0 && out[AT(f, next[f] - 1)] && next[f] <= MESSAGES ->
        seal(f, next[f] - 1, PAYLOADS + 1 - sealed[NONCE(f, next[f] - 1)]) }
#endif
    :: else -> skip
    fi;
    reach()
  :: break
  od
}

active proctype network() {
  byte f, g, n, p;
end:
  do
  :: select(f : 0 .. 1);
    select(g : 0 .. 1);
    select(n : 0 .. MESSAGES);
    select(p : 1 .. END);
    if
#ifndef GOES_ON
    :: over -> skip
#endif
    :: atomic {
#ifndef GOES_ON
        !over &&
#endif
        out[AT(g, n)] && taken[f] < NUMBERS && !told_end[f] -> /* a record, in its turn or not */
        if
#ifdef GAPS_OPEN
        :: g == f && n >= taken[f] -> opened(f, sealed[NONCE(g, n)])
        :: else -> over = 1
#else
#ifdef KEY_OF_CONNECTION /* and numbers of each flow: the records of one open in the other */
        :: n == taken[f] -> opened(f, sealed[NONCE(g, n)])
#else
        :: g == f && n == taken[f] -> opened(f, sealed[NONCE(g, n)])
#endif
        :: else -> over = 1; again = again || n < taken[f]
#endif
        fi }
    :: atomic {
#ifndef GOES_ON
        !over &&
#endif
        taken[f] < NUMBERS && !told_end[f] -> /* bytes that nobody sealed */
#ifdef NO_TAG
        opened(f, p)
#else
        over = 1
#endif
        }
    :: atomic { !over && !told_end[f] -> /* an end of X */
#ifdef END_BELIEVED
        told_end[f] = 1;
        HOLDS(an_end_comes_last, said[AT(f, taken[f])] == END)
#else
        over = 1
#endif
        }
    :: else -> skip
    fi;
    reach()
  :: break
  od
}
