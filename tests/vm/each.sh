#!/usr/bin/env bash
# Runs programs without arguments, one after the other, all of them even if one fails. Exit code: how many failed.
set -uo pipefail

failed=()
for program in "$@"; do
  printf '\n==== %s\n' "${program##*/}"
  "$program" || failed+=("${program##*/}")
done
((${#failed[@]} == 0)) || printf '\n==== failed: %s\n' "${failed[*]}"
exit "${#failed[@]}"
