#!/usr/bin/env bash
# Whether docs/verification/check.sh ($1) fails as it must, on models made wrong on purpose.
set -euo pipefail

readonly check=${1:?"check_the_check.sh needs the path of check.sh"}
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
failures=0

# A counter up to 3 with one property, one goal and one mutant. $1: its list of runs; $2: what the mutant does.
write_model() {
  cat >"$scratch/model.pml" <<MODEL
/* A model.
$1
*/
bit stays_small, is_three;
#define HOLDS(name, condition) assert(name || (condition))
byte x;
active proctype World() {
  do
  :: x < 3 -> x++
#ifdef MUTANT
  :: $2
#endif
#ifdef UNREACHED
  :: x > 3 -> x = 0
#endif
#ifdef REACH
  :: HOLDS(REACH, x != 3); break
#else
  :: HOLDS(stays_small, x <= 3); break
#endif
  od
}
MODEL
}

# Whether the model gives exit code $1 and says $2; $3 is the name of the case.
expect() {
  local code=0
  "$check" "$scratch/model.pml" >"$scratch/out" 2>&1 || code=$?
  if ((code != $1)) || ! grep -qF -- "$2" "$scratch/out"; then
    echo "FAIL $3: exit code $code, not $1 with \"$2\":"
    cat "$scratch/out"
    failures=$((failures + 1))
  fi
}

positive="run positive" sanity="run sanity -DREACH=is_three is_three" mutant="run mutant -DMUTANT stays_small"
all="$positive"$'\n'"$sanity"$'\n'"$mutant"

write_model "$all" "x = 4"
expect 0 "3 runs, 0 failures" "a right model"
write_model "$all" "x = 3"
expect 1 "nothing is violated, but stays_small must be" "a mutant that passes"
write_model "${all/REACH=is_three/MUTANT}" "x = 3"
expect 1 "nothing is violated, but is_three must be" "a goal that is not reached"
write_model "${all/positive/positive -DMUTANT}" "x = 4"
expect 1 "violated: pan" "a property that does not hold"
write_model "${all/positive/positive -DUNREACHED}" "x = 4"
expect 1 "statements are never reached" "a model with a part that nothing reaches"
write_model "$all" "x = ("
expect 1 "spin or gcc failed" "a model that is not Promela"
write_model "$positive"$'\n'"$sanity" "x = 4"
expect 1 "no mutant violates stays_small" "a property without mutant"

((failures == 0))
