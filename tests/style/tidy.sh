#!/usr/bin/env bash
# Runs clang-tidy over the library and its programs, with what .clang-tidy asks for. Needs the packages of group lint.
# Arguments: where leat was configured (default build/release), then patterns of file names (default: all of src).
#
# What was found clean is not looked at again while nothing has changed that the verdict depends on: the source with all that it
# includes, .clang-tidy, clang-tidy itself. LEAT_TIDY_CACHE names the folder that remembers (default ~/.cache/leat/tidy).
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
root=$PWD
readonly root
readonly build=${1:-build/release}
shift || true
if (($# > 0)); then patterns=("$@"); else patterns=("^$root/src/"); fi
cache=${LEAT_TIDY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/leat/tidy}
export root build cache

if [[ ! -f $build/compile_commands.json ]]; then
  echo "tidy.sh: $build has no compile_commands.json; configure it: cmake --preset release" >&2
  exit 1
fi
mkdir -p "$cache"

# Checks the source $1, which the command $3 compiles in folder $2. Headers are checked where a source includes them.
check() {
  local key
  # Comments stay, for NOLINT; where this checkout is does not matter.
  key=$({
    clang-tidy-14 --version
    cat .clang-tidy
    (cd "$2" && eval "${3% -o *} -E -C $(printf %q "$1")") | sed "s#$root/##g"
  } | sha256sum)
  key=$cache/${key%% *}
  if [[ -e $key ]]; then
    echo "clean as before: ${1#"$root/"}"
    return
  fi
  # clang does not know every warning that gcc is told to keep quiet about. Left out: the count of what is found in other
  # people's headers.
  clang-tidy-14 --quiet -p "$build" --header-filter="^$root/(src|include)/" --extra-arg=-Wno-unknown-warning-option "$1" 2>&1 |
    sed -E '/^[0-9]+ warnings?( and [0-9]+ errors?)? (generated|treated)/d' && echo "clean: ${1#"$root/"}" && touch "$key"
}
export -f check

# Commands are quoted for a shell in the file, and here once more, for check.
jq -r --arg pattern "$(
  IFS='|'
  echo "${patterns[*]}"
)" '.[] | select(.file | test($pattern)) | [.file, .directory, .command | @sh] | join(" ")' "$build/compile_commands.json" |
  sort -u -k1,1 | tr '\n' '\0' |
  xargs -0 -r -P "$(nproc)" -I{} bash -c 'set -euo pipefail; check {}' |
  awk '/^clean as before: / { before++; next } /^clean: / { clean++; next } { print }
    END { printf "clang-tidy: %d sources are clean, and %d were found so before\n", clean, before; exit clean + before == 0 }'
