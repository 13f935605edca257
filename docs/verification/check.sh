#!/usr/bin/env bash
# Runs the model checker spin over the models beside this script: all runs that a model's first comment lists.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

usage() {
  cat <<'HELP'
Usage: docs/verification/check.sh [--list] [MODEL]...

Runs every run listed at the start of MODEL.pml (default: of all models here) and says what came of each; fails if one of
them is not as it must be, or if a property is violated by no mutant. Needs spin and gcc (Debian: apt-get install spin gcc).

  positive   the whole state space is searched and no property is violated, and every statement of the model is reached
  sanity     the goal, a property that says "this is never reached", IS violated: so that the positive runs are not empty
  mutant     with one check of the design left out the named property, and no other before it, is violated
  live       no fair execution violates the property in linear temporal logic
  dead       a mutant of such a run: the property is violated

  --list     the runs, without running them

A MODEL with a slash is a file, one without a model beside this script.
HELP
}

# Prints the runs of model $1: kind, options..., property.
runs_of() {
  sed -n '/\*\//q; s/^run  *//p' "$1"
}

# Builds pan of model $1 with the remaining arguments as spin's options, in the current folder, which is empty.
# Left alone, spin would leave an older pan in place when it fails.
build() {
  local model=$1 kind=$2
  shift 2
  # Only the large search pays for a slow compilation.
  local flags=(-DSAFETY -O0)
  [[ $kind != positive ]] || flags=(-DSAFETY -O2)
  [[ $kind != live && $kind != dead ]] || flags=(-DNFAIR=3 -O0)
  spin -a "$@" "$model" >spin.out 2>&1 || return 1
  gcc -w -DMEMLIM=1024 "${flags[@]}" -o pan pan.c >gcc.out 2>&1
}

# Says why the output pan.out is not what a run of kind $1 with property $2 must give; nothing if it is.
complaint() {
  local kind=$1 property=$2 errors
  grep -qE 'max search depth too small|out of memory|reached -DMEMLIM' pan.out && echo "the search was cut short" && return
  errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out)
  [[ -n $errors ]] || { echo "pan gave no result" && return; }
  case $kind in
    positive)
      ((errors == 0)) || { echo "violated: $(grep -m1 violated pan.out)" && return; }
      if grep -E '^\s+\([1-9][0-9]* of [0-9]+ states\)' pan.out >/dev/null; then
        echo "statements are never reached: $(grep -E '^\s.*:[0-9]+, state' pan.out | head -3 | tr -s '\t\n' ' ')"
      fi
      ;;
    live) ((errors == 0)) || echo "violated: $(grep -m1 -E 'violated|acceptance' pan.out)" ;;
    sanity | mutant)
      ((errors > 0)) || { echo "nothing is violated, but $property must be" && return; }
      grep -qE "assertion violated \(\(?$property\|\|" pan.out || echo "violated is not $property: $(grep -m1 violated pan.out)"
      ;;
    dead) ((errors > 0)) && grep -q 'acceptance cycle' pan.out || echo "$property is not violated" ;;
    *) echo "no kind of run is named $kind" ;;
  esac
}

# Runs run "$2..." of model $1; prints one line.
run() {
  local model=$1 kind=$2 options=() property="" word start problem search=(-m2000000)
  shift 2
  for word; do
    if [[ $word == -D* ]]; then options+=("$word"); else property=$word; fi
  done
  # What ends at the first violation needs less memory, which takes longer to clear than such a search.
  [[ $kind == sanity || $kind == mutant ]] && search=(-m200000 -w20)
  [[ $kind == live || $kind == dead ]] && search+=(-A -a -f) # -A: without assertions, which other runs check
  start=$(date +%s%N)
  if ! build "$model" "$kind" "${options[@]}"; then
    problem="spin or gcc failed: $(cat spin.out gcc.out 2>/dev/null | head -3)"
  else
    ./pan "${search[@]}" >pan.out 2>&1 || true
    problem=$(complaint "$kind" "$property")
  fi
  printf '%-4s %-18s %-8s %-50s %10s states %6s ms%s\n' "$([[ -z $problem ]] && echo ok || echo FAIL)" \
    "$(basename "$model" .pml)" "$kind" "${options[*]}${property:+ -> $property}" \
    "$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out 2>/dev/null | head -1)" \
    "$((($(date +%s%N) - start) / 1000000))" "${problem:+  $problem}"
  [[ -z $problem ]]
}

list=false models=()
while (($# > 0)); do
  case $1 in
    --help) usage && exit ;;
    --list) list=true ;;
    -*) usage >&2 && exit 2 ;;
    *) if [[ $1 == */* ]]; then models+=("$(realpath -- "$1")"); else models+=("$here/${1%.pml}.pml"); fi ;;
  esac
  shift
done
((${#models[@]} > 0)) || models=("$here"/*.pml)

for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "check.sh: $tool is not installed (Debian: apt-get install spin gcc)" >&2 && exit 1; }
done
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

failures=0 count=0
for model in "${models[@]}"; do
  [[ -f $model ]] || { echo "check.sh: there is no model $model" >&2 && exit 2; }
  for kind in positive sanity mutant; do
    runs_of "$model" | grep -qE "^$kind( |$)" || { echo "FAIL $model lists no run of kind $kind" && failures=$((failures + 1)); }
  done
  while read -r property; do
    runs_of "$model" | grep -q "^mutant .* $property$" || { echo "FAIL $model: no mutant violates $property" && failures=$((failures + 1)); }
  done < <(grep -oP 'HOLDS\(\K[a-z_0-9]{5,}' "$model" | grep -vx name | sort -u)
  while read -r kind rest; do
    count=$((count + 1))
    if $list; then
      echo "$(basename "$model" .pml) $kind $rest"
      continue
    fi
    rm -rf -- "$scratch/run" && mkdir "$scratch/run" && cd "$scratch/run"
    # shellcheck disable=SC2086 # options are words
    run "$model" "$kind" $rest || failures=$((failures + 1))
  done < <(runs_of "$model")
done
$list || echo "check.sh: $count runs, $failures failures, $SECONDS s"
((failures == 0))
