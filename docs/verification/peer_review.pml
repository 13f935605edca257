/* PeerReview: one node whose parent sends it contents 0, 1, ..., its witness, and a third party that judges evidence.

   The node, correct or not, attests responses, each with how many contents it says it has received, and marks. A Byzantine one (bad) attests what it
   likes, also after it was asked, signs any piece, with old nonces, false records and false tails, and is silent when it likes. A
   correct one follows the protocol, but its answers may be late; a Byzantine witness shows the third party whatever
   that node ever signed, in any order and part, and forgeries.

   Time goes on in steps of the witness's patience: without progress it suspects the node at the next one, and with progress after DEADLINE
   of them. A Byzantine node also signs pieces that were replayed long ago, with any tail: those are no progress.

   A client got one answer that the node signed, about any content; a correct node answers what it has logged. The client shows it to the
   witness at any time; the nonces after that are made of it. It must be right, and in the log up to such a nonce.

   A piece has one record. A response is 16 * (contents received) + output + 1, where the reference gives number modulo 2;
   a mark is MARK + nonce. Perfect MAC and signature: what is shown as attested is what has that counter, what is signed the node
   has signed. Bounds: CONTENTS of the parent, LOG records of the node, AUDITS.

run  positive -DLOG=4 -DAUDITS=2
run  sanity   -DREACH=audited_twice                          audited_twice
run  sanity   -DREACH=exposed_after_a_right_audit      exposed_after_a_right_audit
run  sanity   -DREACH=suspicion_is_cleared                   suspicion_is_cleared
run  sanity   -DREACH=third_party_replays_all                third_party_replays_all
run  sanity   -DREACH=right_answer_was_compared              right_answer_was_compared
run  mutant   -DNO_NONCE            complete_means_all_was_seen
run  mutant   -DTAIL_UNCHECKED      complete_means_all_was_seen
run  mutant   -DNO_REPLAY           complete_means_right
run  mutant   -DOMISSION_ACCEPTED   complete_means_right
run  mutant   -DUNANSWERED_ACCEPTED complete_means_right
run  mutant   -DNO_MAC              complete_means_all_was_seen
run  mutant   -DPATIENT             wrong_is_exposed_or_suspected
run  mutant   -DOLD_IS_PROGRESS     patience_is_for_progress
run  mutant   -DNO_DEADLINE         audit_ends_in_time
run  mutant   -DOLD_COMPLETES       complete_means_all_was_seen
run  mutant   -DANSWERS_UNSEEN            complete_means_answer_is_right
run  mutant   -DONLY_OUTPUTS_COMPARED     complete_means_answer_is_right
run  mutant   -DEARLIER_NONCES            correct_is_never_exposed
run  mutant   -DNO_SIGNATURE              correct_is_never_exposed
run  mutant   -DGAPS_ACCEPTED             correct_is_never_exposed
run  mutant   -DOLD_IS_A_FAULT            correct_is_never_exposed
*/
#ifndef CONTENTS
#define CONTENTS 2
#endif
#ifndef LOG
#define LOG 4
#endif
#ifndef AUDITS
#define AUDITS 2
#endif
#define DEADLINE 2
#define MARK 100
#define RESPONSE(received, output) (16 * (received) + (output) + 1)
#define IS_MARK(r) ((r) >= MARK)
#define RECEIVED(r) ((r) / 16)
#define OUTPUT(r) (((r) % 16) - 1)
#define RIGHT(r, received) (RECEIVED(r) == (received) + 1 && OUTPUT(r) == (received) % 2)

bit audit_ends_in_time, patience_is_for_progress, complete_means_all_was_seen, complete_means_right, wrong_is_exposed_or_suspected, correct_is_never_exposed, audited_twice,
    exposed_after_a_right_audit, suspicion_is_cleared, third_party_replays_all, complete_means_answer_is_right, right_answer_was_compared;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_audited_twice (completed == 2 && received > 1)
#define goal_exposed_after_a_right_audit (exposed && completed > 0)
#define goal_suspicion_is_cleared cleared
#define goal_third_party_replays_all (third == LOG)
#define goal_right_answer_was_compared (!bad && shown && completed > 0 && audits > shown_in && !outstanding)
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

/* The node. */
bit bad;
byte log[LOG];    /* what its kernel attested with counter i */
byte logged;      /* its counter */
byte said;        /* contents received, as the log says */
byte wrong = LOG; /* the first record that no correct node attests there */

/* The witness. */
byte audits;      /* so many nonces were given: 1, 2, ... */
bit outstanding;  /* the last one */
byte logged_then; /* the node's counter when it was given */
byte audited, received; /* records, and contents by them, that were replayed */
byte completed;
bit exposed, suspected, cleared;
bit progress, led; /* since time went on, as the witness thinks, and a new record was replayed */
byte waited;      /* how often it went on in this audit, before a suspicion */

/* The client. */
byte shown;       /* the answer that it has shown: as a response; */
byte shown_in;    /* and when: after so many nonces */
#ifdef EARLIER_NONCES
#define COVERED (shown && audits >= shown_in)
#else
#define COVERED (shown && audits > shown_in)
#endif
#define ANSWER_IS_RIGHT (RECEIVED(shown) <= received && OUTPUT(shown) == (RECEIVED(shown) - 1) % 2)

/* The third party. */
byte third, third_received;
bit convinced;

#ifdef PATIENT
#define OVERDUE outstanding
#else
#define OVERDUE suspected
#endif

byte r, t, z, k, v; /* for a step */

/* Replays record r after `contents` were received; v: it is wrong. An open content is one that a mark says was received. */
inline replay(contents) {
  v = 0;
#ifndef NO_REPLAY
  if
#ifdef UNANSWERED_ACCEPTED
  :: IS_MARK(r) -> skip
#else
  :: IS_MARK(r) && r >= 2 * MARK -> v = 1 /* says that it received what it has not answered */
  :: IS_MARK(r) && r < 2 * MARK -> skip
#endif
#ifdef OMISSION_ACCEPTED
  :: !IS_MARK(r) && RECEIVED(r) > contents + 1 -> skip
#endif
  :: else ->
     if
     :: RIGHT(r, contents) -> skip
     :: else -> v = 1
     fi
  fi
#endif
}

inline attest() {
  if
  :: IS_MARK(r) && r < 2 * MARK -> skip
  :: !IS_MARK(r) && RIGHT(r, said) -> skip
  :: else ->
     if
     :: wrong == LOG -> wrong = logged
     :: else -> skip
     fi
  fi;
  if
  :: IS_MARK(r) -> skip
  :: else -> said = RECEIVED(r)
  fi;
  log[logged] = r;
  logged++
}

/* The witness takes a piece that the node signed: record r as the one with counter `audited`, k: it is as attested; the log ends at t
   with the mark of nonce z. */
inline take() {
  if
#ifndef NO_NONCE
  :: z != audits -> skip
#endif
#ifndef NO_MAC
  :: !k -> exposed = 1
#endif
  :: else ->
     replay(received);
     if
     :: v -> exposed = 1
     :: else ->
        if
        :: IS_MARK(r) -> skip
        :: else -> received = RECEIVED(r)
        fi;
        audited++;
        progress = 1;
        led = 1;
        if
        :: audited < t -> skip
        :: else ->
           if
#ifndef TAIL_UNCHECKED
           :: r % MARK != z || !IS_MARK(r) -> exposed = 1
#endif
#ifdef ONLY_OUTPUTS_COMPARED
           :: COVERED && RECEIVED(shown) <= received && !ANSWER_IS_RIGHT -> exposed = 1
#elif !defined(ANSWERS_UNSEEN)
           :: COVERED && !ANSWER_IS_RIGHT -> exposed = 1
#endif
           :: else ->
              HOLDS(complete_means_all_was_seen, audited > logged_then);
              HOLDS(complete_means_right, wrong >= audited);
              HOLDS(complete_means_answer_is_right, !(shown && audits > shown_in) || ANSWER_IS_RIGHT);
              outstanding = 0;
              progress = 0;
              led = 0;
              waited = 0;
              completed++;
              if
              :: suspected -> suspected = 0; cleared = 1
              :: else -> skip
              fi
           fi
        fi
     fi
  fi
}

init {
  if
  :: bad = 0
  :: bad = 1
  fi;
  do
  /* the node attests */
  :: bad && logged < LOG -> atomic {
       if
       :: select(k : 1 .. CONTENTS); r = RESPONSE(k, 0)
       :: select(k : 1 .. CONTENTS); r = RESPONSE(k, 1)
       :: audits > 0 -> select(k : 1 .. audits); r = MARK + k
       :: audits > 0 -> select(k : 1 .. audits); r = 2 * MARK + k
       fi;
       attest();
       r = 0; k = 0 }
  :: !bad && logged < LOG && said < CONTENTS -> atomic {
       log[logged] = RESPONSE(said + 1, said % 2);
       logged++;
       said++ }
  :: !bad && logged < LOG && outstanding && (logged == 0 || log[logged - 1] != MARK + audits) && t == 0 -> atomic {
       log[logged] = MARK + audits;
       logged++;
       t = logged /* the tail that it signs */ }

  /* the witness asks, and waits until its patience is over */
  :: !outstanding && audits < AUDITS && !exposed -> atomic {
       audits++;
       outstanding = 1;
       logged_then = logged }
#ifndef PATIENT
  :: outstanding && !suspected && !exposed -> atomic {
       if
#ifdef NO_DEADLINE
       :: progress ->
#else
       :: progress && waited < DEADLINE - 1 ->
#endif
          HOLDS(patience_is_for_progress, led);
          progress = 0;
          waited++
       :: else ->
          suspected = 1;
          progress = 0;
          waited = 0
       fi;
       led = 0;
       HOLDS(audit_ends_in_time, waited < DEADLINE) }
#endif
  /* the node signs again, with the present nonce, what was replayed */
  :: bad && outstanding && !exposed && audited > 0 && !progress -> atomic {
#ifdef OLD_IS_PROGRESS
       progress = 1
#endif
#ifdef OLD_COMPLETES
       HOLDS(complete_means_all_was_seen, audited > logged_then)
#endif
       skip }

  /* the client shows an answer of the node */
  :: !shown && !exposed && audits > 0 && (bad || said > 0) -> atomic {
       if
       :: bad -> select(k : 1 .. CONTENTS); select(v : 0 .. 1); shown = RESPONSE(k, v)
       :: else -> select(k : 1 .. said); shown = RESPONSE(k, (k - 1) % 2)
       fi;
       shown_in = audits;
       k = 0; v = 0 }

  /* the node answers */
  :: outstanding && !exposed && audited < LOG && (bad || t > 0) -> atomic {
       if
       :: bad ->
          if
          :: audited < logged -> r = log[audited]; k = 1
          :: r = RESPONSE(received + 1, received % 2); k = 0
          :: select(z : 1 .. audits); r = MARK + z; k = 0
          fi;
          select(z : 1 .. audits);
          select(t : 1 .. LOG)
       :: else -> r = log[audited]; k = 1; z = audits
       fi;
       take();
       HOLDS(correct_is_never_exposed, bad || !exposed);
       r = 0; k = 0; z = 0; v = 0;
       if
       :: bad || !outstanding -> t = 0
       :: else -> skip
       fi;
       reach() }

  /* a Byzantine witness shows the third party what the node signed, or a forgery */
  :: (!bad || logged == LOG) && logged > 0 && !convinced -> atomic {
       k = 0;
       if
       :: select(z : 0 .. logged - 1); r = log[z]
       :: z = third; r = RESPONSE(third_received + 1, (third_received + 1) % 2); k = 1
       fi;
       if
#ifndef NO_SIGNATURE
       :: k -> skip
#endif
#ifndef GAPS_ACCEPTED
       :: z > third && !k -> skip
#endif
#ifndef OLD_IS_A_FAULT
       :: z < third && !k -> skip
#endif
       :: else ->
          replay(third_received);
          convinced = v;
          third++;
          if
          :: IS_MARK(r) -> skip
          :: else -> third_received = RECEIVED(r)
          fi
       fi;
       HOLDS(correct_is_never_exposed, bad || !convinced);
       r = 0; k = 0; z = 0; v = 0;
       reach() }

  /* the last audit was made, or patience with it is over */
  :: atomic { exposed || (audits == AUDITS && (!outstanding || OVERDUE)) ->
       HOLDS(wrong_is_exposed_or_suspected, wrong >= logged_then || exposed || suspected);
       break }
  od
}
