#!/usr/bin/env bash
# Runs programs of tests without arguments, one after the other, all of them even if one fails; one that has no test (of those that
# GTEST_FILTER wants) fails. With --list before the programs it only looks whether they have any. Exit code: how many failed.
set -uo pipefail

only_list=
[[ ${1-} != --list ]] || { only_list=yes && shift; }
failed=()
for program in "$@"; do
  name=${program##*/}
  if ! "$program" --gtest_list_tests | grep '^  ' >/dev/null; then
    echo "$name has no test that would run: leave it out, or give it one" >&2
    failed+=("$name")
  elif [[ -z $only_list ]]; then
    printf '\n==== %s (after %d s)\n' "$name" "$SECONDS"
    timeout 1500 "$program" || failed+=("$name")
  fi
done
((${#failed[@]} == 0)) || printf '\n==== failed: %s\n' "${failed[*]}"
exit "${#failed[@]}"
