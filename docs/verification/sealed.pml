/* Sealed messages: two flows of one sender (two contexts), each with keys of its own, and numbers that are never sent. A record leaves at once, or is kept because X had no room and leaves later as it is; X may send again
   what it has, over a new queue pair. A key of a flow serves for KEY_RECORDS records; sender and receiver change to the next
   one by themselves, each by its own count.

   The adversary is the network, with all of the receive memory: it keeps every record, gives each flow of the receiver any of
   them, altered or not, at any time and again, and can end X in the sender's name. Perfect cipher: what was not sealed under
   key and number does not open. The programs are correct, but send what they like.

   Bounds: MESSAGES messages of each flow and its end, PAYLOADS payloads, KEY_RECORDS records for a key.

run  positive -DMESSAGES=2
run  sanity   -DREACH=both_flows_end            both_flows_end
run  sanity   -DREACH=kept_then_taken           kept_then_taken
run  sanity   -DREACH=repeated                  repeated
run  sanity   -DREACH=repeated_of_an_old_key    repeated_of_an_old_key
run  mutant   -DSEALED_AGAIN        a_nonce_seals_once
run  mutant   -DNUMBERS_RESUME      a_nonce_seals_once
run  mutant   -DONE_KEY             a_nonce_seals_once
run  mutant   -DKEY_KEPT            a_nonce_seals_once
run  mutant   -DSENDER_KEEPS_KEY    the_next_record_opens
run  mutant   -DRECEIVER_KEEPS_KEY  the_next_record_opens
run  mutant   -DNO_TAG              messages_are_the_senders
run  mutant   -DGAPS_OPEN           messages_are_the_senders
run  mutant   -DKEY_OF_CONNECTION   messages_are_the_senders
run  mutant   -DOLD_KEYS_OPEN       messages_are_the_senders
run  mutant   -DEND_BELIEVED        an_end_comes_last
run  mutant   -DGOES_ON             nothing_after_a_refusal
*/
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef KEY_RECORDS
#define KEY_RECORDS 2
#endif
#define PAYLOADS 2
#define END 3 /* the payload of an end */
#define NUMBERS (MESSAGES + 1)
#define KEYS (NUMBERS / KEY_RECORDS + 1)
#define AT(f, n) ((f) * NUMBERS + (n))
/* The number in the nonce of the n-th record: numbers go on over all keys of a flow. */
#if defined(KEY_KEPT) || defined(OLD_KEYS_OPEN) /* they begin again where a key should change */
#define NUMBER(n) ((n) % KEY_RECORDS)
#else
#define NUMBER(n) (n)
#endif
#if defined(KEY_KEPT) || defined(SENDER_KEEPS_KEY)
#define SENDER_CHANGES 0
#else
#define SENDER_CHANGES 1
#endif
#if defined(KEY_KEPT) || defined(RECEIVER_KEEPS_KEY)
#define RECEIVER_CHANGES 0
#else
#define RECEIVER_CHANGES 1
#endif
/* Key and number of a record as one index. */
#ifdef ONE_KEY
#define FLOW(f) 0
#else
#define FLOW(f) (f)
#endif
#define NONCE(f, n) ((FLOW(f) * KEYS + under[AT(f, n)]) * NUMBERS + NUMBER(n))
/* Whether the receiver's key and number open the n-th record of flow f. */
#ifdef OLD_KEYS_OPEN /* the receiver keeps the keys that it has had */
#define OPENS(f, n) (under[AT(f, n)] <= opens_with[f] && NUMBER(n) == NUMBER(taken[f]))
#else
#define OPENS(f, n) (under[AT(f, n)] == opens_with[f] && NUMBER(n) == NUMBER(taken[f]))
#endif

bit a_nonce_seals_once, the_next_record_opens, messages_are_the_senders, an_end_comes_last, nothing_after_a_refusal,
    both_flows_end, kept_then_taken, repeated, repeated_of_an_old_key;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_both_flows_end (told_end[0] && told_end[1])
#define goal_kept_then_taken (was_kept && taken[0] == 2)
#define goal_repeated (again && taken[1] == 1)
#define goal_repeated_of_an_old_key again_old
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

byte said[2 * NUMBERS];          /* what the sender's program sent as the n-th of a flow; 0: nothing yet */
byte under[2 * NUMBERS];         /* the key that sealed it, counted from 0 in its flow */
byte sealed[2 * KEYS * NUMBERS]; /* what a nonce has sealed; 0: nothing */
bit out[2 * NUMBERS];            /* the network has that record */
byte next[2];                    /* number of the sender's next record */
byte seals_with[2];              /* its key */
bit kept[2];                     /* the last one has not left */
byte taken[2];                   /* records that the receiver has opened */
byte opens_with[2];              /* its key */
bit told_end[2];
bit over, was_kept, again, again_old;

/* A side has done with a record of its flow, and its next one may need the next key. */
inline count(counted, key, changes) {
  counted++;
  if
  :: changes && counted % KEY_RECORDS == 0 -> key++
  :: else -> skip
  fi
}

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
  count(taken[f], opens_with[f], RECEIVER_CHANGES)
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
        under[AT(f, next[f])] = seals_with[f];
        seal(f, next[f], p);
        if
        :: out[AT(f, next[f])] = 1
        :: kept[f] = 1; was_kept = 1
        fi;
        count(next[f], seals_with[f], SENDER_CHANGES) }
    :: atomic { !kept[f] && next[f] == MESSAGES ->
        said[AT(f, next[f])] = END;
        under[AT(f, next[f])] = seals_with[f];
        seal(f, next[f], END);
        out[AT(f, next[f])] = 1;
        count(next[f], seals_with[f], SENDER_CHANGES) }
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
        HOLDS(the_next_record_opens, g != f || n != taken[f] || OPENS(g, n));
        if
#ifdef GAPS_OPEN
        :: g == f && n >= taken[f] -> opened(f, sealed[NONCE(g, n)])
        :: else -> over = 1
#else
#ifdef KEY_OF_CONNECTION /* and numbers of each flow: the records of one open in the other */
        :: n == taken[f] -> opened(f, sealed[NONCE(g, n)])
#else
        :: g == f && OPENS(g, n) -> opened(f, sealed[NONCE(g, n)])
#endif
        :: else ->
          over = 1;
          again = again || n < taken[f];
          again_old = again_old || (g == f && n < taken[f] && under[AT(g, n)] < opens_with[f])
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
