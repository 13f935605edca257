/* The BFT counter: a leader and two followers, f = 1, of which one lies: the leader, or with -DFOLLOWER_LIES follower 1.

   A lying leader attests requests of the client, a request that it made up, and outputs that are wrong, in any order and as
   often as it likes, on the one group session, and answers the client whatever it likes. The network, and whoever forwards,
   delivers any record that was attested to anyone at any time, also again. A lying follower answers the client whatever it likes
   and accuses the leader with any record. Each record executes one request, whose output is how many were executed.
   The client has two requests, and believes an output that QUORUM replicas give.

   Perfect MAC and signatures: what is delivered as attested is what the kernel attested under that counter; a request that the client
   did not sign is known as such. Bounds: M records.

run  positive -DM=5
run  positive -DM=5 -DFOLLOWER_LIES
run  sanity   -DREACH=both_believed                both_believed
run  sanity   -DFOLLOWER_LIES -DREACH=both_believed both_believed
run  sanity   -DREACH=leader_exposed               leader_exposed
run  mutant   -DPAIRWISE            replicas_agree
run  mutant   -DNO_COUNTER          replicas_agree
run  mutant   -DQUORUM=1            believed_was_executed
run  mutant   -DREPETITIONS -DEXCEPT=executed_once  answers_agree
run  mutant   -DREPETITIONS         executed_once
run  mutant   -DNO_SIGNATURE        executed_was_signed
run  mutant   -DOUTPUT_UNCHECKED    wrong_output_is_exposed
run  mutant   -DFOLLOWER_LIES -DEVIDENCE_BELIEVED  correct_is_not_exposed
*/
#ifndef M
#define M 3
#endif
#ifndef QUORUM
#define QUORUM 2
#endif
#define FORGED 3 /* requests 1 and 2 are the client's */
#define WRONG 10 /* a record is its request, + WRONG if its output is wrong */

bit replicas_agree, believed_was_executed, answers_agree, executed_once, executed_was_signed, wrong_output_is_exposed,
    correct_is_not_exposed, both_believed, leader_exposed;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_both_believed (believed[1] > 0 && believed[2] > 0)
#define goal_leader_exposed (exposed[0] && exposed[1])
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

typedef Stream { byte record[M]; byte length };
#ifdef PAIRWISE
Stream stream[2]; /* a counter for each follower */
#define STREAM stream[f]
#else
Stream stream[1];
#define STREAM stream[0]
#endif
typedef Log { byte request[M]; byte length };
Log log[2];        /* what the followers executed */
bit exposed[2];    /* whether follower f has found the leader to lie */
byte believed[3];  /* by the client, of a request: the output */

#ifdef NO_COUNTER
#define NEXT true
#else
#define NEXT (c == log[f].length)
#endif
#ifdef NO_SIGNATURE
#define SIGNED true
#else
#define SIGNED (q < FORGED)
#endif
#ifdef REPETITIONS
#define NEW true
#else
#define NEW (!again)
#endif
#ifdef OUTPUT_UNCHECKED
#define RIGHT true
#else
#define RIGHT (!wrong)
#endif
#ifdef FOLLOWER_LIES
#define LAST_FOLLOWER 0 /* who is correct */
#else
#define LAST_FOLLOWER 1
#endif

byte f, c, i, q, o, votes;
bit wrong, again;

inline clear() { f = 0; c = 0; i = 0; q = 0; o = 0; votes = 0; wrong = 0; again = 0 }

active proctype World() {
#ifdef EXCEPT
  EXCEPT = 1; /* a property that is not checked, for a mutant that violates two */
#endif
  do
  :: atomic { /* the leader has its kernel attest something as its next record */
       select(f : 0 .. LAST_FOLLOWER);
       if
       :: STREAM.length < M ->
#ifdef FOLLOWER_LIES
          select(q : 1 .. 2); /* what it has not ordered before, with the right output */
          again = (STREAM.length > 0 && STREAM.record[0] == q) || STREAM.length > 1;
          if
          :: !again -> STREAM.record[STREAM.length] = q; STREAM.length++
          :: else
          fi
#else
          select(q : 1 .. FORGED);
          if
          :: STREAM.record[STREAM.length] = q
          :: STREAM.record[STREAM.length] = q + WRONG
          fi;
          STREAM.length++
#endif
       :: else
       fi;
       clear()
     }
  :: atomic { /* record c comes to follower f: from the leader, or forwarded, or again */
       select(f : 0 .. LAST_FOLLOWER);
       select(c : 0 .. M - 1);
       if
       :: c < STREAM.length && log[f].length < M && !exposed[f] && NEXT ->
          q = STREAM.record[c] % WRONG;
          wrong = STREAM.record[c] >= WRONG;
          do
          :: i < log[f].length -> again = again || log[f].request[i] == q; i++
          :: else -> break
          od;
#ifdef FOLLOWER_LIES
          HOLDS(correct_is_not_exposed, SIGNED && NEW && RIGHT);
#endif
          if
          :: SIGNED && NEW && RIGHT ->
             HOLDS(executed_was_signed, q < FORGED);
             HOLDS(executed_once, !again);
             HOLDS(wrong_output_is_exposed, !wrong);
             log[f].request[log[f].length] = q;
             log[f].length++;
             i = log[f].length - 1;
             HOLDS(replicas_agree, i >= log[1 - f].length || log[1 - f].request[i] == q)
#ifndef FOLLOWER_LIES
          :: else ->
             exposed[f] = 1;
             reach()
#endif
          fi
       :: else
       fi;
       clear()
     }
#ifdef FOLLOWER_LIES
  :: atomic { /* follower 1 accuses the leader, with its record c; follower 0 judges by what comes before */
       select(c : 0 .. M - 1);
       if
       :: c < stream[0].length && !exposed[0] ->
          q = stream[0].record[c] % WRONG;
          wrong = stream[0].record[c] >= WRONG;
          do
          :: i < c -> again = again || stream[0].record[i] % WRONG == q; i++
          :: else -> break
          od;
#ifdef EVIDENCE_BELIEVED
          exposed[0] = 1;
#else
          exposed[0] = wrong || again || q >= FORGED;
#endif
          HOLDS(correct_is_not_exposed, !exposed[0])
       :: else
       fi;
       clear()
     }
#endif
  :: atomic { /* the client looks at the answers to request q that give the output o */
       select(q : 1 .. 2);
       select(o : 1 .. M);
       votes = 1; /* the liar's */
#ifdef FOLLOWER_LIES
       if
       :: o <= stream[0].length && stream[0].record[o - 1] == q -> votes++ /* the leader's */
       :: else
       fi;
#endif
       f = 0;
       do
       :: f <= LAST_FOLLOWER ->
          if
          :: o <= log[f].length && log[f].request[o - 1] == q -> votes++; again = 1
          :: else
          fi;
          f++
       :: else -> break
       od;
#ifdef FOLLOWER_LIES
       again = votes > 1;
#endif
       if
       :: votes >= QUORUM ->
          HOLDS(believed_was_executed, again);
          HOLDS(answers_agree, believed[q] == 0 || believed[q] == o);
          believed[q] = o;
          reach()
       :: else
       fi;
       clear()
     }
  :: break
  od
}
