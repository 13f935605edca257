/* Chain replication: a head, a middle and a tail, of which any one or two lie, a client, and the end of the epoch.

   The client has two requests. Each record executes one, whose output is how many were executed; a record is its request, + WRONG if the
   output that it says is wrong. The head attests what it orders, the others what they executed, each on its one group session. A liar
   attests records of anything, also of a request that nobody made, as often as it likes, shows them to whom it likes, answers the
   client whatever it likes, and accuses anybody with any record. The network delivers what was attested to anyone at any time,
   also again. The client believes what all nodes said.

   At some time the configuration service seals the epoch. That comes late, to each correct node at a time of its own: until then it goes on,
   then it stops, and reports what it executed. A correct node may fail; started again, it has lost what it executed, and says so. A
   liar says that too, or reports any beginning of the head's records that is right, or lies and is exposed, or never reports. LIARS
   nodes lie, and fewer than all lie or fail. The service takes the longest of the histories that it has when all nodes have reported, are
   exposed or have lost theirs, or when more nodes have reported than can still lie; how long that takes it does not count.

   Perfect MAC and signatures: what is delivered as attested is what the kernel attested under that counter; a request that the client
   did not sign is known as such. Bounds: R records.

run  positive -DR=2
run  positive -DR=2 -DLIARS=1
run  sanity   -DREACH=both_believed                both_believed
run  sanity   -DREACH=liar_exposed                 liar_exposed
run  sanity   -DREACH=sealed_with_all              sealed_with_all
run  sanity   -DREACH=one_lies_and_one_is_silent -DLIARS=1   one_lies_and_one_is_silent
run  mutant   -DPREDECESSOR_ONLY    replicas_agree
run  mutant   -DNO_COUNTER          replicas_agree
run  mutant   -DTAIL_IS_BELIEVED    believed_was_executed
run  mutant   -DREPETITIONS -DEXCEPT=executed_once  answers_agree
run  mutant   -DREPETITIONS         executed_once
run  mutant   -DNO_SIGNATURE        executed_was_signed
run  mutant   -DOUTPUT_UNCHECKED    wrong_output_is_not_executed
run  mutant   -DEVIDENCE_BELIEVED   correct_is_not_exposed
run  mutant   -DGOES_ON             believed_is_kept
run  mutant   -DANY_HISTORY         believed_is_kept
run  mutant   -DPATIENCE_ENDS       believed_is_kept
run  mutant   -DLIARS=1 -DAS_MANY_AS_LIE            believed_is_kept
run  mutant   -DLIARS=1 -DLOST_IS_NOTHING_EXECUTED  believed_is_kept
*/
#ifndef R
#define R 2
#endif
#ifndef LIARS
#define LIARS 2 /* at most */
#endif
#define N 3
#define FORGED 3 /* requests 1 and 2 are the client's */
#define WRONG 10
#define LIES(node) ((liars >> (node)) & 1)

bit replicas_agree, believed_was_executed, answers_agree, executed_once, executed_was_signed, wrong_output_is_not_executed,
    correct_is_not_exposed, believed_is_kept, both_believed, liar_exposed, sealed_with_all, one_lies_and_one_is_silent;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_both_believed (believed[1] > 0 && believed[2] > 0)
#define goal_liar_exposed exposed
#define goal_sealed_with_all (settled && goal_both_believed && start == R)
#define goal_one_lies_and_one_is_silent (settled && quiet && liars && goal_both_believed)
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

byte liars;         /* a bit for each node */
byte stream[N * R]; /* what node i attested with counter c: [i * R + c] */
byte next[N];       /* its counter */
byte log[N * R];    /* what a correct node executed, */
byte length[N];
bit stopped[N];     /* and whether it does so no more, because it has seen a lie */
bit told[N * R];    /* whether it has answered the client */
byte believed[3];   /* by the client, of a request: the output */
bit exposed;
/* The end of the epoch. */
bit sealed;
bit reported[N];    /* the correct node has stopped, and its report has come */
bit failed[N];      /* the correct node has failed */
bit settled, quiet;  /* the next epoch begins; and a node had said nothing until then */
byte start;         /* how many records it begins with */

#ifdef NO_COUNTER
#define NEXT true
#else
#define NEXT (c == length[i])
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
#ifdef GOES_ON
#define OPEN (!failed[i])
#else
#define OPEN (!failed[i] && !reported[i])
#endif
/* m nodes have reported, k are exposed, o have lost what they executed, the others are silent. */
#ifdef PATIENCE_ENDS
#define ENOUGH (m > 0)
#elif defined(AS_MANY_AS_LIE)
#define ENOUGH (m > 0 && (m + k + o == N || m + k >= LIARS))
#elif defined(LOST_IS_NOTHING_EXECUTED)
#define ENOUGH (m + o > 0 && (m + k + o == N || m + o + k > LIARS))
#else
#define ENOUGH (m > 0 && (m + k + o == N || m + k > LIARS))
#endif

byte i, c, j, q, o, v, m, k;
bit wrong, again, good;

inline clear() { i = 0; c = 0; j = 0; q = 0; o = 0; v = 0; m = 0; k = 0; wrong = 0; again = 0; good = 0 }

/* What record v is after the first `count` that node `who` executed, or that the head attested: sets wrong, again, q. */
#define THE_HEADS N
inline look_at(who, count) {
  q = v % WRONG;
  wrong = v >= WRONG;
  again = 0;
  j = 0;
  do
  :: j < count -> again = again || (who == THE_HEADS -> stream[j] % WRONG : log[(who % N) * R + j]) == q; j++
  :: else -> break
  od;
  j = 0
}

/* Correct node i executes v as its next, and tells the client if `good`. */
inline execute() {
  HOLDS(executed_was_signed, q < FORGED);
  HOLDS(executed_once, !again);
  HOLDS(wrong_output_is_not_executed, !wrong);
  log[i * R + length[i]] = q;
  told[i * R + length[i]] = good;
  length[i]++;
  do
  :: j < N ->
     HOLDS(replicas_agree, LIES(j) || length[j] < length[i] || log[j * R + length[i] - 1] == q);
     j++
  :: else -> break
  od
}

active proctype World() {
#ifdef EXCEPT
  EXCEPT = 1; /* a property that is not checked, for a mutant that violates two */
#endif
#if LIARS == 2
  select(liars : 1 .. 6);
#else
  if
  :: liars = 1
  :: liars = 2
  :: liars = 4
  fi;
#endif
  do
  :: atomic { /* a liar has its kernel attest something as its next record */
       select(i : 0 .. 2);
       select(q : 1 .. 3);
       if
       :: LIES(i) && next[i] < R ->
          if
          :: stream[i * R + next[i]] = q
          :: stream[i * R + next[i]] = q + WRONG
          fi;
          next[i]++
       :: else
       fi;
       clear()
     }
  :: atomic { /* the correct head orders a request that it has not had */
       select(v : 1 .. 2);
       if
       :: !LIES(0) && next[0] < R && OPEN ->
          look_at(0, length[0]);
          if
          :: !again ->
             stream[next[0]] = q;
             next[0]++;
             good = 1;
             execute()
          :: else
          fi
       :: else
       fi;
       clear()
     }
  :: atomic { /* records with counter c of all nodes before it come to the correct node i */
       select(i : 1 .. 2);
       select(c : 0 .. R - 1);
       good = 1;
       do
       :: j < i -> good = good && stream[j * R + c] != 0; j++
       :: else -> break
       od;
       if
       :: good && !LIES(i) && !stopped[i] && OPEN && NEXT && length[i] < R ->
#ifdef PREDECESSOR_ONLY
          v = stream[(i - 1) * R + c];
#else
          v = stream[c];
#endif
          look_at(i, length[i]);
          if
          :: SIGNED && NEW && RIGHT ->
#ifndef PREDECESSOR_ONLY
             j = 1; /* the others must have executed the same */
             do
             :: j < i -> good = good && stream[j * R + c] == v; j++
             :: else -> break
             od;
             j = 0;
#endif
             execute();
             if
             :: good -> stream[i * R + next[i]] = v; next[i]++
             :: else -> stopped[i] = 1; exposed = 1; reach()
             fi
          :: else -> stopped[i] = 1; exposed = 1; reach()
          fi
       :: else
       fi;
       clear()
     }
  :: atomic { /* a liar accuses node i with its record c; who judges replays the head's records before */
       select(i : 0 .. 2);
       select(c : 0 .. R - 1);
       if
       :: !LIES(i) && c < next[i] && c < next[0] ->
          v = stream[i * R + c];
          look_at(THE_HEADS, c);
          good = true;
          do
          :: j < c -> good = good && stream[j] < FORGED; j++ /* else it is the head who lied */
          :: else -> break
          od;
#ifdef EVIDENCE_BELIEVED
          HOLDS(correct_is_not_exposed, false)
#else
          HOLDS(correct_is_not_exposed, !good || (i == 0 && q < FORGED && !again && !wrong) || (i > 0 && v == stream[c]))
#endif
       :: else
       fi;
       clear()
     }
  :: atomic { /* the client looks whether all nodes gave the output o to its request q */
       select(q : 1 .. 2);
       select(o : 1 .. R);
       good = 1;
       again = 1; /* all correct nodes executed it so */
       do
       :: i < N ->
          if
          :: LIES(i) || (told[i * R + o - 1] && log[i * R + o - 1] == q)
          :: else ->
#ifdef TAIL_IS_BELIEVED
             good = good && i < N - 1;
#else
             good = 0;
#endif
             again = 0
          fi;
          i++
       :: else -> break
       od;
       if
       :: good ->
          HOLDS(believed_was_executed, again);
          HOLDS(answers_agree, believed[q] == 0 || believed[q] == o);
          believed[q] = o;
          HOLDS(believed_is_kept, !settled || (o <= start && stream[o - 1] == q));
          reach()
       :: else
       fi;
       clear()
     }
  :: atomic { !sealed -> sealed = 1 }
  :: atomic { /* the seal comes to the correct node i, and its report to the service */
       select(i : 0 .. 2);
       if
       :: sealed && !settled && !LIES(i) && !failed[i] -> reported[i] = 1
       :: else
       fi;
       clear()
     }
  :: atomic { /* the correct node i fails, before it has reported; a correct one is left */
       select(i : 0 .. 2);
       do
       :: j < N ->
          if
          :: LIES(j) || failed[j] || j == i -> m++
          :: else
          fi;
          j++
       :: else -> break
       od;
       if
       :: m < N && !LIES(i) && !reported[i] && !settled -> failed[i] = 1
       :: else
       fi;
       clear()
     }
  :: atomic { /* the service has heard enough: what the liars did is chosen now */
       if
       :: sealed && !settled ->
          do
          :: i < N ->
             if
             :: LIES(i) -> m++; v = 1 /* reports */
             :: LIES(i) -> k++        /* lies, and is exposed */
             :: LIES(i) || failed[i] -> o++
             :: LIES(i) || failed[i] -> quiet = 1
             :: reported[i] -> m++; c = (c > length[i] -> c : length[i])
             :: !LIES(i) && !failed[i] && !reported[i] -> quiet = 1
             fi;
             i++
          :: else -> break
          od;
          i = 0;
          if
          :: v -> /* any right beginning of the head's records */
             select(q : 0 .. R);
             good = q <= next[0];
             o = o + 16 * q;
             do
             :: i < o / 16 && good ->
                v = stream[i];
                look_at(THE_HEADS, i);
                good = q < FORGED && !again && !wrong;
                i++
             :: else -> break
             od;
             c = (good && o / 16 > c -> o / 16 : c);
             o = o % 16
          :: else -> good = 1
          fi;
#ifdef ANY_HISTORY
          select(c : 0 .. R);
#endif
          if
          :: good && ENOUGH ->
             settled = 1;
             start = c;
             HOLDS(believed_is_kept, believed[1] <= start && believed[2] <= start);
             reach()
          :: else -> quiet = 0
          fi
       :: else
       fi;
       clear()
     }
  :: break
  od
}
