#!/usr/bin/env bash
# Runs clang-tidy over the library and its programs, with what .clang-tidy asks for. Needs the packages of group lint.
# Arguments: where leat was configured (default build/release), then patterns of file names (default: all of src).
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
root=$PWD
readonly root
readonly build=${1:-build/release}
shift || true
if (($# > 0)); then patterns=("$@"); else patterns=("^$root/src/"); fi

if [[ ! -f $build/compile_commands.json ]]; then
  echo "tidy.sh: $build has no compile_commands.json; configure it: cmake --preset release" >&2
  exit 1
fi

# Headers are checked where a source includes them. clang does not know every warning that gcc is told to keep quiet about.
# Left out of the output: the command lines, colours, and the count of what is found in other people's headers.
run-clang-tidy-14 -quiet -p "$build" -j "$(nproc)" -header-filter "^$root/(src|include)/" \
  -extra-arg=-Wno-unknown-warning-option "${patterns[@]}" 2>&1 |
  sed -E -e 's/\x1b\[[0-9;]*m//g' -e '/^clang-tidy-14 /d' -e '/^[0-9]+ warnings?( and [0-9]+ errors?)? (generated|treated)/d'
