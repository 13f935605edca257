/* An attested channel: two devices with one session, a key and a counter for each direction, epochs, and an adversary who owns
   both hosts and the network: it lets devices attest any payload, delivers, drops, delays, repeats, swaps and alters any record,
   restarts devices, and asks for stateless verification of anything.

   Perfect MAC: a record (epoch, device, counter, payload) verifies exactly if a device has attested it. What the adversary cannot
   do is forge a MAC or look into a device.

   Bounds: ATTESTS counters for each direction and epoch, PAYLOADS payloads, EPOCHS epochs.

run  positive -DATTESTS=4 -DPAYLOADS=2
run  positive -DATTESTS=2 -DPAYLOADS=2 -DEPOCHS=2
run  sanity   -DATTESTS=3 -DREACH=all_accepted                   all_accepted
run  sanity   -DATTESTS=2 -DEPOCHS=2 -DREACH=accepted_in_epoch_1 accepted_in_epoch_1
run  mutant   -DNO_MAC                    verified_message_is_authentic
run  mutant   -DNO_DIRECTION              verified_message_is_authentic
run  mutant   -DNO_COUNTER                no_double_messages
run  mutant   -DNO_GAP_CHECK              no_lost_messages
run  mutant   -DANY_ORDER                 no_message_reordering
run  mutant   -DSTATELESS_DELIVERS        no_double_messages
run  mutant   -DCOUNT_FAILURES            bad_input_changes_nothing
run  mutant   -DEPOCHS=2 -DRESTART_KEEPS_KEY  one_counter_one_payload
run  mutant   -DEPOCHS=2 -DNO_EPOCH           verified_message_is_authentic
run  live     -DATTESTS=2 -DLIVE
run  dead     -DATTESTS=2 -DLIVE -DCOUNT_FAILURES   retransmission_arrives
*/
#ifndef ATTESTS
#define ATTESTS 3
#endif
#ifndef PAYLOADS
#define PAYLOADS 2
#endif
#ifndef EPOCHS
#define EPOCHS 1
#endif
#define AT(e, d, c) ((e) * 2 * ATTESTS + (d) * ATTESTS + (c))

/* Names of properties and goals: constants 0, so that a violated assertion says whose it is. */
bit verified_message_is_authentic, no_lost_messages, no_message_reordering, no_double_messages, bad_input_changes_nothing,
    one_counter_one_payload, all_accepted, accepted_in_epoch_1;
#define HOLDS(name, condition) assert(name || (condition))

byte attested[EPOCHS * 2 * ATTESTS];  /* payload that device d attested with counter c in epoch e, 0: none */
bit accepted[EPOCHS * 2 * ATTESTS];   /* its peer has accepted that */
byte send_counter[2], receive_counter[2];
byte epoch[2];                        /* epoch of the key that device d holds */
bit keyless[2];                       /* restarted, and not provisioned since */
byte epochs_given;                    /* the vendor gives each epoch once */
byte k;
bit good;

inline attest(d, p) {
  d_step {
    HOLDS(one_counter_one_payload, attested[AT(epoch[d], d, send_counter[d])] == 0);
    attested[AT(epoch[d], d, send_counter[d])] = p;
    send_counter[d]++
  }
}

/* Device r is given the record (e, d, c, p) for ordered verification. */
inline deliver(r, e, d, c, p) {
  d_step {
#ifdef NO_MAC
    good = true;
#else
    good = (attested[AT(e, d, c)] == p);
#endif
#ifndef NO_DIRECTION
    good = good && (d == 1 - r);
#endif
#ifndef NO_EPOCH
    good = good && (e == epoch[r]);
#endif
#if defined(NO_GAP_CHECK)
    good = good && (c >= receive_counter[r]);
#elif defined(ANY_ORDER)
    good = good && !accepted[AT(e, d, c)];
#elif !defined(NO_COUNTER)
    good = good && (c == receive_counter[r]);
#endif
    if
    :: good -> accept(r, e, d, c, p); receive_counter[r] = c + 1
    :: else ->
       k = receive_counter[r];
#ifdef COUNT_FAILURES
       if
       :: receive_counter[r] < ATTESTS -> receive_counter[r]++
       :: else
       fi;
#endif
       HOLDS(bad_input_changes_nothing, receive_counter[r] == k);
       k = 0
    fi;
    good = false
  }
}

inline accept(r, e, d, c, p) {
  HOLDS(verified_message_is_authentic, d == 1 - r && e == epoch[r] && attested[AT(e, d, c)] == p);
#ifdef ANY_ORDER
  /* The property of reordering by itself: nothing accepted before was sent after. */
  k = c + 1;
  do
  :: k < ATTESTS -> HOLDS(no_message_reordering, !accepted[AT(e, d, k)]); k++
  :: else -> break
  od;
#else
  HOLDS(no_double_messages, !accepted[AT(e, d, c)]);
  k = 0;
  do
  :: k < c -> HOLDS(no_lost_messages, accepted[AT(e, d, k)]); k++
  :: else -> break
  od;
  k = c + 1;
  do
  :: k < ATTESTS -> HOLDS(no_message_reordering, !accepted[AT(e, d, k)]); k++
  :: else -> break
  od;
#endif
  k = 0;
  accepted[AT(e, d, c)] = 1
}

#ifdef REACH
#define reach() HOLDS(REACH, !(accepted[AT(EPOCHS - 1, 0, ATTESTS - 1)] && accepted[AT(EPOCHS - 1, 1, ATTESTS - 1)]))
#else
#define reach() skip
#endif

active proctype Adversary() {
  byte d, c, p, e, r;
  do
  :: atomic {
       select(d : 0 .. 1);
       select(p : 1 .. PAYLOADS);
       if
       :: !keyless[d] && send_counter[d] < ATTESTS -> attest(d, p)
       :: else
       fi;
       d = 0; p = 0
     }
  :: atomic {
       select(r : 0 .. 1);
       select(e : 0 .. EPOCHS - 1);
       select(d : 0 .. 1);
       select(c : 0 .. ATTESTS - 1);
       select(p : 1 .. PAYLOADS);
       if
       :: !keyless[r] -> deliver(r, e, d, c, p); reach()
       :: else
       fi;
       r = 0; e = 0; d = 0; c = 0; p = 0
     }
#ifdef STATELESS_DELIVERS
  :: atomic {
       select(c : 0 .. ATTESTS - 1);
       if
       :: attested[AT(0, 0, c)] != 0 -> d_step { accept(1, 0, 0, c, attested[AT(0, 0, c)]) }
       :: else
       fi;
       c = 0
     }
#endif
#if EPOCHS > 1
  /* A restart forgets counters, and keys with them. */
  :: atomic {
       select(d : 0 .. 1);
       send_counter[d] = 0;
       receive_counter[d] = 0;
#ifndef RESTART_KEEPS_KEY
       keyless[d] = 1;
#endif
       d = 0
     }
  /* The vendor attests both devices again and gives them an epoch that was never used. */
  :: atomic {
       epochs_given < EPOCHS - 1 -> epochs_given++;
       d_step {
         d = 0;
         do
         :: d < 2 -> keyless[d] = 0; epoch[d] = epochs_given; send_counter[d] = 0; receive_counter[d] = 0; d++
         :: else -> break
         od;
         d = 0
       }
     }
#endif
#ifndef LIVE
  :: break
#endif
  od
}

#ifdef LIVE
/* An honest sender of device 0 that repeats its first record until device 1 has accepted it: with a network that lets through
   what is repeated for ever, it arrives, whatever the adversary sends between. */
active proctype Retransmitter() {
  attested[AT(0, 0, 0)] != 0;
  do
  :: atomic { !accepted[AT(0, 0, 0)] -> deliver(1, 0, 0, 0, attested[AT(0, 0, 0)]) }
  :: accepted[AT(0, 0, 0)] -> break
  od
}
ltl retransmission_arrives { [] ((attested[AT(0, 0, 0)] != 0) -> <> accepted[AT(0, 0, 0)]) }
#endif
