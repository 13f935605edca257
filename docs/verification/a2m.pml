/* Attested append-only memory: one log and its MANIFEST, each a session of one kernel, on a Byzantine host; one client.

   The host attests what it likes, in any order: contexts and ends in the log, truncations and ends in the MANIFEST.
   It keeps all that was ever attested and shows any of it, says of any index that it is assigned, forgotten or not there,
   and shows an old MANIFEST or an old end. The client asks for the bounds with a fresh nonce, reads the MANIFEST to the end that
   answers the nonce, and then judges lookups. The heads of truncations are 1 and 2; the half of a truncation that is in the log
   concerns only who asked for it, and is left out.

   Perfect MAC: what is shown as attested is what the kernel attested under that index of that log.
   Bounds: LOG and MAN entries, ROUNDS challenges.

run  positive -DLOG=4 -DMAN=4 -DROUNDS=2
run  sanity   -DREACH=accepts_above_a_head             accepts_above_a_head
run  sanity   -DREACH=learns_twice                     learns_twice
run  mutant   -DNO_NONCE          bounds_are_fresh
run  mutant   -DNO_NONCE_OF_LOG   tail_is_fresh
run  mutant   -DGAPS_ACCEPTED     bounds_are_fresh
run  mutant   -DHEAD_UNCHECKED    accepted_is_not_forgotten
run  mutant   -DTAIL_UNCHECKED    accepted_is_below_the_tail
run  mutant   -DOTHER_INDEX       accepted_is_of_that_index
run  mutant   -DNO_MAC            accepted_is_attested
run  mutant   -DHEAD_LOWERED      head_never_goes_down
run  mutant   -DSTATUS_BELIEVED   nothing_is_denied
*/
#ifndef LOG
#define LOG 4
#endif
#ifndef MAN
#define MAN 4
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define CONTEXT 1
#define FORGED 2
#define END 10      /* END + nonce */
#define TRUNCATE 20 /* TRUNCATE + head */

bit bounds_are_fresh, tail_is_fresh, accepted_is_not_forgotten, accepted_is_below_the_tail, accepted_is_of_that_index,
    accepted_is_attested, head_never_goes_down, nothing_is_denied, accepts_above_a_head, learns_twice;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_accepts_above_a_head (accepted && head > 0)
#define goal_learns_twice (learnt == 2 && head > 0)
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

byte log[LOG];  /* what the kernel attested with index i; 0: nothing yet */
byte man[MAN];
byte logs, mans; /* the kernel's counters */

byte nonce;               /* of the challenge that is outstanding; 0: none */
byte logs_then, mans_then; /* the counters when it was given */
byte head, tail;          /* as the client has learnt them */
byte learnt;              /* how often */
bit accepted;

#ifdef NO_NONCE
#define ANSWERS (log[j] == END + nonce && man[k] > 0)
#elif defined(NO_NONCE_OF_LOG)
#define ANSWERS (log[j] > 0 && man[k] == END + nonce)
#else
#define ANSWERS (log[j] == END + nonce && man[k] == END + nonce)
#endif
#ifdef NO_MAC
#define ATTESTED true
#else
#define ATTESTED (h == log[k])
#endif
#ifdef OTHER_INDEX
#define THAT_INDEX true
#else
#define THAT_INDEX (j == k)
#endif
#ifdef HEAD_UNCHECKED
#define NOT_FORGOTTEN true
#else
#define NOT_FORGOTTEN (j >= head)
#endif
#ifdef TAIL_UNCHECKED
#define BELOW_TAIL true
#else
#define BELOW_TAIL (j < tail)
#endif
#ifdef STATUS_BELIEVED
#define DENIABLE true
#else
#define DENIABLE (j < head || j >= tail)
#endif
#ifdef HEAD_LOWERED
#define LOWERS(a, b) false
#else
#define LOWERS(a, b) (a < b)
#endif

byte i, j, k, h, seen;
bit bad;

active proctype Host() {
  do
  :: atomic { logs < LOG -> /* whatever the host wants attested in the log */
       if
       :: log[logs] = CONTEXT
       :: nonce > 0 -> log[logs] = END + nonce
       fi;
       logs++
     }
  :: atomic { mans < MAN -> /* or in the MANIFEST */
       if
       :: man[mans] = TRUNCATE + 1
       :: man[mans] = TRUNCATE + 2
       :: nonce > 0 -> man[mans] = END + nonce
       fi;
       mans++
     }
  :: atomic { nonce == 0 && learnt < ROUNDS -> /* the client asks */
       nonce = learnt + 1;
       logs_then = logs;
       mans_then = mans
     }
  :: atomic { nonce > 0 -> /* the host shows entry j of the log and k of the MANIFEST as the ends */
       select(j : 0 .. LOG - 1);
       select(k : 0 .. MAN - 1);
       if
       :: ANSWERS ->
          d_step { /* reads the MANIFEST's entries before that end; a gap, or a head that goes down, and it learns nothing */
#ifdef GAPS_ACCEPTED
            h = 0;
#else
            h = k;
#endif
            i = 0;
            do
            :: i < h && man[i] > TRUNCATE ->
               bad = bad || LOWERS(man[i] - TRUNCATE, seen);
               seen = man[i] - TRUNCATE;
               i++
            :: i < h && man[i] < TRUNCATE -> i++
            :: i >= h -> break
            od;
            i = 0
          }
          if
          :: !bad ->
             HOLDS(bounds_are_fresh, h >= mans_then); /* all that the MANIFEST had when the client asked */
             HOLDS(head_never_goes_down, seen >= head);
             HOLDS(tail_is_fresh, j >= logs_then);
             head = seen; tail = j + 1; nonce = 0; learnt++;
             reach()
          :: else
          fi
       :: else
       fi;
       j = 0; k = 0; h = 0; seen = 0; bad = 0
     }
  :: atomic { learnt > 0 -> /* the host answers a lookup of j with what it has, or made up, of index k */
       select(j : 0 .. LOG - 1);
       select(k : 0 .. LOG - 1);
       if
       :: h = FORGED
       :: log[k] > 0 -> h = log[k]
       fi;
       if
       :: ATTESTED && THAT_INDEX && NOT_FORGOTTEN && BELOW_TAIL ->
          HOLDS(accepted_is_attested, h == log[k]);
          HOLDS(accepted_is_of_that_index, j == k);
          HOLDS(accepted_is_not_forgotten, j >= head);
          HOLDS(accepted_is_below_the_tail, j < tail);
          accepted = 1;
          reach();
          accepted = 0
       :: else
       fi;
       j = 0; k = 0; h = 0
     }
  :: atomic { learnt > 0 -> /* or says that j is forgotten or not there */
       select(j : 0 .. LOG - 1);
       if
       :: DENIABLE ->
          HOLDS(nothing_is_denied, j < head || j >= tail)
       :: else
       fi;
       j = 0
     }
  :: break
  od
}
