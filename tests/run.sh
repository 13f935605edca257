#!/usr/bin/env bash
# Installs what is missing, builds leat in every way that its tests need, and runs all of them in one ctest. The output
# ends with ctest's summary, how long each stage took, and what the tests that failed said.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'HELP'
Usage: tests/run.sh [--preset NAME]... [--quick] [--no-vm] [CTEST_ARGUMENT]...

  --preset NAME   build and test only this preset of CMakePresets.json; may be repeated (default: release, asan, tsan)
  --quick         only release, without the guest, the tests of the installation and the real programs under leat-run
  --no-vm         without the guest: device ib is then compiled, but not tested
  --help          this text

Everything else goes to ctest, for example:
  tests/run.sh --quick -R Ring       the tests with Ring in their name
  tests/run.sh --preset tsan -L '^transport$'

Tests of a build with sanitizers are named asan.* and tsan.*; those in the guest vm.*; those of the installation install.*.
Loops of many iterations run half of them; LEAT_TEST_SCALE=1 runs all.
Needs Debian 12. Missing packages are installed as root or with sudo. Everything lands in build/.
HELP
}

presets=() excluded=() skipped=()
while (($# > 0)); do
  case $1 in
    --preset) presets+=("${2:?"run.sh: --preset needs a name"}") && shift ;;
    --quick) presets=(release) excluded=(vm install programs) skipped=("--quick: sanitizers, guest, installation, real programs") ;;
    --no-vm) excluded+=(vm) && skipped+=("--no-vm: device ib in the guest (vm.*)") ;;
    --help) usage && exit ;;
    *) break ;;
  esac
  shift
done
if ((${#presets[@]} == 0)); then
  presets=(release asan tsan)
elif ((${#skipped[@]} == 0)); then
  skipped=("--preset: every other preset")
fi
[[ -n ${LEAT_TEST_IB-} ]] || skipped+=("device ib on this machine: LEAT_TEST_IB does not name one")
ctest_options=()
for label in "${excluded[@]}"; do
  ctest_options+=(--label-exclude "^$label\$")
done

# Begins a stage: prints a headline that stands out from the output of tools, and remembers how long the stage before took.
stages=() stage="" began=0
headline() {
  [[ -z $stage ]] || stages+=("$stage $((SECONDS - began)) s")
  stage=$1 began=$SECONDS
  printf '\n==== %s (after %d s)\n' "$*" "$SECONDS"
}

printf '\n==== %s\n' "tests/run.sh: presets ${presets[*]}, $(nproc) jobs; guest: $([[ " ${excluded[*]} " == *" vm "* ]] && echo no || echo yes)"
printf 'skipped: %s\n' "${skipped[@]}"

# Prints a few lines of each test that failed, from ctest's log: a long output is read from its end.
what_failed() {
  awk '
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; count = more = 0; last = "" }
    /: Failure$|\[  FAILED  \] .*[(]|^==== failed|[Ee]rror: |Sanitizer: / { more = 5 }
    more > 0 && count < 30 { lines[count++] = $0; --more }
    /^<end of output>$/ { end = last }
    { last = $0 }
    /^Test Failed[.]$/ {
      if (count == 0) lines[count++] = end
      for (i = 0; i < count; ++i) print name ": " lines[i]
    }
  ' build/tests/Testing/Temporary/LastTest.log
}

packages=(build test)
for group in vm programs; do
  [[ " ${excluded[*]} " == *" $group "* ]] || packages+=("$group")
done
headline "packages"
cmake/install-packages.sh "${packages[@]}"

mkdir -p build/tests
: >build/tests/CTestTestfile.cmake
for preset in "${presets[@]}"; do
  headline "build $preset"
  options=()
  # Sanitizers make gcc warn of what is not so.
  [[ $preset == [at]san ]] || options+=(-DLEAT_WERROR=ON)
  cmake --preset "$preset" "${options[@]}"
  cmake --build --preset "$preset" --parallel "$(nproc)"
  echo "subdirs(\"$PWD/build/$preset\")" >>build/tests/CTestTestfile.cmake
done

headline "test"
export LEAT_TEST_SCALE=${LEAT_TEST_SCALE-0.5}
failed=
# One more than processors: many tests sleep most of their time. Two more took as long.
ctest --test-dir build/tests --parallel "$(($(nproc) + 1))" --output-on-failure --no-tests=error --no-label-summary \
  "${ctest_options[@]}" "$@" || failed=yes
headline "how long each stage took"
printf '%s\n' "${stages[@]}"
[[ -n $failed ]] || exit 0
headline "what failed"
what_failed
exit 1
