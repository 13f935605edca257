#!/usr/bin/env bash
# Runs clang-tidy over the library and its programs, with what .clang-tidy asks for. Needs the packages of groups build and lint.
# Arguments: patterns of rooms, folders of src with _ for / (default: all of them), for example transport_ring or ^preload.
#
# The files of a room are looked at as one, because nine tenths of the time go to headers. What was found clean is not looked at
# again while nothing has changed that the verdict depends on: the sources with all that they include, .clang-tidy, clang-tidy
# itself. LEAT_TIDY_CACHE names the folder that remembers (default ~/.cache/leat/tidy).
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
root=$PWD
readonly root
readonly build=$root/build/tidy
if (($# > 0)); then patterns=("$@"); else patterns=(.); fi
cache=${LEAT_TIDY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/leat/tidy}
export root build cache

# Nothing is built there.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_UNITY_BUILD=ON -DLEAT_CCACHE=OFF -DLEAT_BUILD_{TESTS,BENCH,EXAMPLES}=OFF >/dev/null
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
    echo "clean as before: $1"
    return
  fi
  # A room is a file that includes its files. clang does not know every warning that gcc is told to keep quiet about. Left out: the
  # count of what is found in other people's headers.
  clang-tidy-14 --quiet -p "$build" --checks=-bugprone-suspicious-include --header-filter="^$root/(src|include)/" --extra-arg=-Wno-unknown-warning-option "$1" 2>&1 |
    sed -E '/^[0-9]+ warnings?( and [0-9]+ errors?)? (generated|treated)/d' && echo "clean: $1" && touch "$key"
}
export -f check

# Commands are quoted for a shell in the file, and here once more, for check. The parts of libleat_preload are in it.
jq -r --arg pattern "$(
  IFS='|'
  echo "${patterns[*]}"
)" '.[] | select(.file | contains("/src/") and (contains("/leat_preload_parts.dir/") | not))
  | select(.file | sub(".*/(unity_|src/)"; "") | gsub("/"; "_") | test($pattern))
  | [.file, .directory, .command | @sh] | join(" ")' "$build/compile_commands.json" |
  sort -u -k1,1 | tr '\n' '\0' |
  xargs -0 -r -P "$(nproc)" -I{} bash -c 'set -euo pipefail; check {}' |
  awk '/^clean as before: / { before++; next } /^clean: / { clean++; next } { print }
    END { printf "clang-tidy: %d rooms are clean, and %d were found so before\n", clean, before; exit clean + before == 0 }'
