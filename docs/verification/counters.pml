/* Counters and group sessions. Device 0 belongs to a Byzantine sender and owns a group session with one key and ONE counter
   stream; devices 1 and 2 are its members, and their hosts are correct: they take protocol messages from the group session
   only, in the order of its counter, and nothing else. Beside it each pair 0-1 and 0-2 has a pairwise session.

   The adversary is the host of device 0 and the network: it attests any payload on any session, gives any record to whom it
   likes, or to one member only, asks the members' devices to attest on the group session, and attests on after the end of the
   counter. A record once attested can always be forwarded, so that a member that missed it catches up.
   Member 2 also judges evidence: it verifies statelessly what somebody shows as having been said by the sender.

   Perfect MAC as in channel.pml. Bounds: counters 0 .. LIMIT - 1 of each session, PAYLOADS payloads.

run  positive -DLIMIT=4 -DPAYLOADS=2
run  sanity   -DLIMIT=3 -DREACH=both_have_all                    both_have_all
run  sanity   -DLIMIT=3 -DREACH=one_waits_for_a_forwarder        one_waits_for_a_forwarder
run  sanity   -DLIMIT=2 -DREACH=counter_is_exhausted             counter_is_exhausted
run  sanity   -DLIMIT=2 -DREACH=evidence_is_accepted             evidence_is_accepted
run  mutant   -DPAIRWISE_ACCEPTED     no_equivocation
run  mutant   -DCOUNTER_PER_MEMBER    one_counter_one_payload
run  mutant   -DGAPS_ACCEPTED         no_equivocation
run  mutant   -DWRAPS                 one_counter_one_payload
run  mutant   -DMEMBERS_ATTEST        verified_message_is_authentic
run  mutant   -DEVIDENCE_WITHOUT_MAC  evidence_is_transferable
run  mutant   -DSTATELESS_ADVANCES    stateless_changes_nothing
*/
#ifndef LIMIT
#define LIMIT 3
#endif
#ifndef PAYLOADS
#define PAYLOADS 2
#endif
#define GROUP 0 /* sessions: the group, and the pairwise ones named as their member */
#define AT(s, c) ((s) * LIMIT + (c))
#define LOG(m, i) (((m) - 1) * LIMIT + (i))

bit no_equivocation, one_counter_one_payload, verified_message_is_authentic, evidence_is_transferable,
    stateless_changes_nothing, both_have_all, one_waits_for_a_forwarder, counter_is_exhausted, evidence_is_accepted;
#define HOLDS(name, condition) assert(name || (condition))
#define goal_both_have_all (taken[1] == LIMIT && taken[2] == LIMIT)
#define goal_one_waits_for_a_forwarder (taken[1] == LIMIT && taken[2] == 0)
#define goal_counter_is_exhausted exhausted
#define goal_evidence_is_accepted shown
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

byte attested[3 * LIMIT];  /* payload that device 0 attested on session s with counter c; 0: none */
byte by_member[LIMIT];     /* payload that a member's device attested on the group session; 0: none */
byte send_counter[3];
byte receive_counter[3];   /* of member m in the group session */
byte delivered[2 * LIMIT]; /* the i-th protocol message that member m has taken; 0: none */
byte taken[3];             /* how many */
bit exhausted, shown;
byte i;
#ifdef GAPS_ACCEPTED
#define NEXT(counter, expected) (counter >= expected)
#else
#define NEXT(counter, expected) (counter == expected)
#endif

/* Device 0 attests payload p on session s. */
inline attest(s, p) {
  d_step {
    if
    :: send_counter[s] < LIMIT ->
       HOLDS(one_counter_one_payload, attested[AT(s, send_counter[s])] == 0 || attested[AT(s, send_counter[s])] == p);
       attested[AT(s, send_counter[s])] = p;
       send_counter[s]++
    :: else ->
#ifdef WRAPS
       send_counter[s] = 0;
#else
       exhausted = 1; /* for ever: no key has two first records */
#endif
       skip
    fi
  }
}

/* Member m has verified a record of session s in order and its protocol takes the payload. */
inline take(member, session, counter, payload) {
  HOLDS(verified_message_is_authentic, attested[AT(session, counter)] == payload);
  delivered[LOG(member, taken[member])] = payload;
  taken[member]++;
  i = 0;
  do
  :: i < LIMIT ->
     HOLDS(no_equivocation, delivered[LOG(1, i)] == 0 || delivered[LOG(2, i)] == 0 || delivered[LOG(1, i)] == delivered[LOG(2, i)]);
     i++
  :: else -> break
  od;
  i = 0
}

active proctype Adversary() {
  byte s, m, c, p;
  do
  :: atomic { /* the sender's host */
       select(s : 0 .. 2);
       select(p : 1 .. PAYLOADS);
#ifdef COUNTER_PER_MEMBER
       if
       :: s == GROUP && send_counter[GROUP] > 0 -> send_counter[GROUP]-- /* the stream of another member starts over */
       :: else
       fi;
#endif
       attest(s, p);
       reach();
       s = 0; p = 0
     }
  :: atomic { /* a record of the group reaches a member, straight or from a forwarder */
       select(m : 1 .. 2);
       select(c : 0 .. LIMIT - 1);
       select(p : 1 .. PAYLOADS);
       d_step {
         if
         :: taken[m] < LIMIT && attested[AT(GROUP, c)] == p && NEXT(c, receive_counter[m]) -> receive_counter[m] = c + 1; take(m, GROUP, c, p)
         :: else
         fi
       };
       reach();
       m = 0; c = 0; p = 0
     }
#ifdef PAIRWISE_ACCEPTED
  :: atomic { /* a record of the member's pairwise session, which it must refuse for protocol messages */
       select(m : 1 .. 2);
       c = taken[m];
       if
       :: c < LIMIT && attested[AT(m, c)] != 0 -> d_step { take(m, m, c, attested[AT(m, c)]) }
       :: else
       fi;
       m = 0; c = 0
     }
#endif
#ifdef MEMBERS_ATTEST
  :: atomic { /* a member's device attests on the group session, and the other does not look at whose record it is */
       select(p : 1 .. PAYLOADS);
       c = receive_counter[2];
       if
       :: c < LIMIT && taken[2] < LIMIT -> by_member[c] = p; d_step { receive_counter[2]++; take(2, GROUP, c, p) }
       :: else
       fi;
       c = 0; p = 0
     }
#endif
  :: atomic { /* somebody shows a record as evidence; device 2 verifies it statelessly */
       select(c : 0 .. LIMIT - 1);
       select(p : 1 .. PAYLOADS);
       m = receive_counter[2];
       if
#ifdef EVIDENCE_WITHOUT_MAC
       :: true ->
#else
       :: attested[AT(GROUP, c)] == p ->
#endif
          HOLDS(evidence_is_transferable, attested[AT(GROUP, c)] == p);
#ifdef STATELESS_ADVANCES
          receive_counter[2]++;
#endif
          shown = 1;
          reach();
          shown = 0
       :: else
       fi;
       HOLDS(stateless_changes_nothing, receive_counter[2] == m);
       m = 0; c = 0; p = 0
     }
  :: break
  od
}
