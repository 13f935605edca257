/* Remote attestation and provisioning: a vendor, two genuine devices, and an adversary in the style of Dolev and Yao who is the
   network and the operator of all devices. It boots any device with the right controller or any other program, boots devices of
   its own, relays and keeps every quote, opens TLS connections as itself, and may in the end learn the hardware key of device 0.

   Each boot makes a controller key of its own and is known by it: what a key has signed only its holder can have made. TLS is a
   channel between two keys; whom each side lets in is what the model checks. The adversary holds the keys of all boots that do
   not run the right controller on a genuine device.
   Session s of the vendor asks for device s % 2, has nonce s + 1, and secrets and an epoch of its own, once.

   Bounds: SESSIONS sessions, BOOTS boots.

run  positive -DSESSIONS=2 -DBOOTS=3
run  positive -DSESSIONS=2 -DBOOTS=2 -DLEAK
run  sanity   -DREACH=all_enabled                       all_enabled
run  sanity   -DREACH=rebooted_and_attested             rebooted_and_attested
run  sanity   -DLEAK -DREACH=leak_breaks_later_sessions leak_breaks_later_sessions
run  mutant   -DNO_NONCE          quote_is_fresh
run  mutant   -DNO_HARDWARE_KEY   sensitive_information_stays_secret
run  mutant   -DNO_MEASUREMENT    sensitive_information_stays_secret
run  mutant   -DNO_DEVICE_ID      initialization_is_attested
run  mutant   -DNO_KEY_PIN        sensitive_information_stays_secret
run  mutant   -DNO_VENDOR_PIN     device_agrees_with_vendor
run  mutant   -DNO_DONE_CHECK     initialization_is_attested
run  mutant   -DSESSIONS=3 -DBOOTS=2 -DSECRETS_TWICE   fresh_information_is_not_reused
run  mutant   -DRESEND            fresh_information_is_not_reused
run  mutant   -DNO_BARRIER        nobody_attests_before_all_are_done
*/
#ifndef SESSIONS
#define SESSIONS 2
#endif
#ifndef BOOTS
#define BOOTS 3
#endif
#define QUOTE(b, n) ((b) * (SESSIONS + 1) + (n))
#define TARGET(s) ((s) % 2)
#define FAKE 2              /* hardware of the adversary's */
#define CLONE 3             /* the same, but it signs with the leaked key of device 0 */
#define FOREIGN (SESSIONS + 1) /* secrets that are not the vendor's */
#define HONEST(b) (hardware[b] < FAKE && right_image[b])

bit initialization_is_attested, sensitive_information_stays_secret, fresh_information_is_not_reused, quote_is_fresh,
    device_agrees_with_vendor, nobody_attests_before_all_are_done, all_enabled, rebooted_and_attested,
    leak_breaks_later_sessions;
#define HOLDS(name, condition) assert(name || (condition))

#define goal_all_enabled (attesting[0] && attesting[1])
#define goal_rebooted_and_attested (boots == BOOTS && hardware[0] == hardware[BOOTS - 1] && attesting[BOOTS - 1])
#define goal_leak_breaks_later_sessions known[0]
#define GOAL(name) goal_##name
#define REACHED(name) GOAL(name)
#ifdef REACH
#define reach() HOLDS(REACH, !REACHED(REACH))
#else
#define reach() skip
#endif

/* What a check is when a mutant leaves it out. */
#ifdef NO_NONCE
#define NONCE_IS_MINE true
#else
#define NONCE_IS_MINE (n == s + 1)
#endif
#ifdef NO_HARDWARE_KEY
#define HARDWARE_KEY_IS_GENUINE true
#else
#define HARDWARE_KEY_IS_GENUINE (hardware[b] != FAKE)
#endif
#ifdef NO_DEVICE_ID
#define DEVICE_IS_THE_ONE true
#else
#define DEVICE_IS_THE_ONE (hardware[b] == TARGET(s) || hardware[b] == FAKE || (hardware[b] == CLONE && TARGET(s) == 0))
#endif
#ifdef NO_MEASUREMENT
#define MEASUREMENT_IS_ALLOWED true
#else
#define MEASUREMENT_IS_ALLOWED (right_image[b] || hardware[b] >= FAKE) /* who holds the key signs any measurement */
#endif
#ifdef SECRETS_TWICE
#define HAS_NO_SECRETS true
#else
#define HAS_NO_SECRETS (secrets[b] == 0)
#endif
#ifdef NO_DONE_CHECK
#define DONE_CAME true
#else
#define DONE_CAME (done[with[s]] && secrets[with[s]] == s + 1)
#endif

/* The vendor's sessions. */
#define idle 0
#define asked 1
#define verified 2
#define provisioned 3
#define ready 4
byte state[SESSIONS];
byte with[SESSIONS];   /* the boot whose controller key the quote named */
byte given[SESSIONS];  /* how many boots have got its secrets */
bit known[SESSIONS];   /* the adversary has its secrets */
bit after_leak[SESSIONS];
bit leaked;

/* Boots. */
byte boots;
byte hardware[BOOTS];
bit right_image[BOOTS];
byte secrets[BOOTS];   /* of which session + 1 */
byte times[BOOTS];     /* how often it has taken secrets */
bit done[BOOTS], attesting[BOOTS];
bit quote[BOOTS * (SESSIONS + 1)];
byte b, n, s, i;

inline check_vendor() {
  d_step {
    i = 0;
    do
    :: i < SESSIONS ->
       HOLDS(sensitive_information_stays_secret, !known[i] || after_leak[i]);
       HOLDS(fresh_information_is_not_reused, given[i] <= 1);
       if
       :: state[i] == ready && !after_leak[i] ->
          HOLDS(quote_is_fresh, quote[QUOTE(with[i], i + 1)]);
          HOLDS(initialization_is_attested, HONEST(with[i]) && hardware[with[i]] == TARGET(i) && done[with[i]] && secrets[with[i]] == i + 1)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
}

inline take_secrets(boot, session) {
  secrets[boot] = session;
  times[boot]++;
  HOLDS(fresh_information_is_not_reused, times[boot] <= 1 || !HONEST(boot))
}

active proctype World() {
  do
  :: atomic { /* the adversary starts a device */
       boots < BOOTS ->
#ifdef LEAK
       select(n : 0 .. 3);
#else
       select(n : 0 .. 2);
#endif
       select(i : 0 .. 1);
       if
       :: n != CLONE || leaked -> hardware[boots] = n; right_image[boots] = i; boots++
       :: else
       fi;
       n = 0; i = 0
     }
#ifdef LEAK
  :: atomic { !leaked -> leaked = 1 }
#endif
  :: atomic { /* 1: the vendor sends a nonce, for all to see */
       select(s : 0 .. SESSIONS - 1);
       if
       :: state[s] == idle -> state[s] = asked
       :: else
       fi;
       s = 0
     }
  :: atomic { /* 2, 3: a controller answers whoever asks: strangers must not use up its boot */
       boots > 0 -> select(b : 0 .. boots - 1);
       select(s : 0 .. SESSIONS - 1);
       if
       :: state[s] != idle -> quote[QUOTE(b, s + 1)] = 1
       :: else
       fi;
       b = 0; s = 0
     }
  :: atomic { /* 4, 5: the vendor gets some quote and checks it */
       boots > 0 -> select(b : 0 .. boots - 1);
       select(s : 0 .. SESSIONS - 1);
       select(n : 1 .. SESSIONS);
       if
       :: state[s] == asked && quote[QUOTE(b, n)] && NONCE_IS_MINE && HARDWARE_KEY_IS_GENUINE && DEVICE_IS_THE_ONE && MEASUREMENT_IS_ALLOWED ->
          state[s] = verified; with[s] = b; after_leak[s] = leaked
       :: else
       fi;
       b = 0; s = 0; n = 0
     }
  :: atomic { /* 6, 7, 8: TLS, then the secrets */
       boots > 0 -> select(s : 0 .. SESSIONS - 1);
#ifdef NO_KEY_PIN
       select(b : 0 .. boots - 1);
#else
       b = with[s];
#endif
       if
       :: state[s] == verified && HAS_NO_SECRETS ->
          state[s] = provisioned;
          given[s]++;
          take_secrets(b, s + 1);
          known[s] = !HONEST(b)
       :: else
       fi;
       check_vendor();
       reach();
       b = 0; s = 0
     }
#ifdef NO_VENDOR_PIN
  :: atomic { /* the adversary opens a TLS connection to a controller with a key of its own */
       boots > 0 -> select(b : 0 .. boots - 1);
       if
       :: HAS_NO_SECRETS -> take_secrets(b, FOREIGN)
       :: else
       fi;
       b = 0
     }
#endif
#ifdef RESEND
  :: atomic { /* the device was restarted: the vendor begins again, with the same secrets and epoch */
       select(s : 0 .. SESSIONS - 1);
       if
       :: state[s] == provisioned -> state[s] = asked
       :: else
       fi;
       s = 0
     }
#endif
  :: atomic { /* 9: the device is done */
       boots > 0 -> select(b : 0 .. boots - 1);
       if
       :: secrets[b] != 0 && HONEST(b) ->
          done[b] = 1;
          HOLDS(device_agrees_with_vendor, secrets[b] <= SESSIONS && state[secrets[b] - 1] >= 1 && given[secrets[b] - 1] == 1)
       :: else
       fi;
       b = 0
     }
  :: atomic { /* 10: so is the vendor */
       select(s : 0 .. SESSIONS - 1);
       if
       :: state[s] == provisioned && DONE_CAME -> state[s] = ready
       :: else
       fi;
       check_vendor();
       s = 0
     }
  :: atomic { /* 11: the vendor enables a device */
       select(s : 0 .. SESSIONS - 1);
       i = 0;
       do
       :: i < SESSIONS && state[i] == ready -> i++
       :: else -> break
       od;
#ifdef NO_BARRIER
       if
       :: state[s] == ready -> attesting[with[s]] = 1; HOLDS(nobody_attests_before_all_are_done, i == SESSIONS)
#else
       if
       :: i == SESSIONS -> attesting[with[s]] = 1; HOLDS(nobody_attests_before_all_are_done, state[0] == ready && state[SESSIONS - 1] == ready)
#endif
       :: else
       fi;
       reach();
       i = 0; s = 0
     }
  :: break
  od
}
