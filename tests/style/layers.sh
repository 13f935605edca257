#!/usr/bin/env bash
# Fails if a room includes one above it, a file is too long to read at once, or a test is in no test program.
# docs/architecture.md draws the rooms. Argument: where leat was built.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
readonly build=${1:?"layers.sh needs the build folder"}

# What the files of a room may include beside the room's own: rooms (private headers and the public ones that they implement), of a
# room with + only the public ones, and single files.
declare -rA may_include=(
  [base]="leat/attest/algorithm.h" # values of a setting
  [net]="base"
  [verbs]="base"
  [attest]="base net/stream.h" # the attestation kernel
  [transport]="base verbs attest net/stream.h net/tcp.h"
  [handshake]="base net verbs attest transport"
  [channel]="base net verbs attest transport handshake"
  [posix]="base" # headers: TCP as programs see it, over a policy
  [capi]="base net/tcp.h channel posix"
  [trusted]="+base base/clock.h base/log.h base/system_error.h base/wire.h +attest attest/record.h +channel" # libleat_trusted
  [trusted/remote]="base net attest trusted" # for programs, from leat's archive
  [scml]="+base +channel" # libleat_scml
  [preload]="base posix" # of base only headers
  [cli]="+base"
  [attestd]="base attest cli trusted/remote"
  [tools]="base net verbs transport/table.h handshake attest +scml preload cli trusted/remote" # what leat-info lists and checks has no public header
  [adapters]="+base +channel"
  [bench]="base verbs attest attestd cli +channel +trusted +scml trusted/a2m/file.h" # a bare write to compare with; kernels of leat-bench attest
  [examples]="+base +channel +attest +trusted +scml +capi" # to be copied whole
)

# The room of a header or source: that of a public header is the one that implements it.
room_of() {
  case $1 in
    leat/attest/*) echo attest ;;
    leat/trusted/*) echo trusted ;;
    leat/scml/*) echo scml ;;
    leat/adapters/*) echo adapters ;;
    leat/c.h | leat/names.h) echo capi ;;
    leat/channel.h | leat/group.h | leat/leat.h | leat/listener.h | leat/planned.h | leat/remote_memory.h | leat/socket.h | leat/wait.h) echo channel ;;
    leat/*) echo base ;;
    trusted/remote/*) echo trusted/remote ;;
    *) echo "${1%%/*}" ;;
  esac
}
readonly max_lines_header=220 max_lines_source=500

failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}

# Prints "file name" for each #include "name" below the folders $@.
includes_below() {
  grep -rHoP --include='*.h' --include='*.cc' --include='*.c' '^\s*#\s*include\s*["<]\K(leat/|.*")[^">]*' "$@" | sed 's/"$//; s/:/ /' || true
}

# Whether a file of the room $1 may include $2.
allowed() {
  local room=$1 name=$2 other entry
  other=$(room_of "$name")
  [[ $other == "$room" ]] && return
  for entry in ${may_include[$room]}; do
    [[ $entry == "$name" || $entry == "$other" ]] && return
    [[ $name == leat/* && $entry == "+$other" ]] && return
  done
  return 1
}

while read -r file name; do
  # A room's own folder in src and include; bench and examples are one room each, whose files name each other without it.
  case $file in
    src/* | include/*) room=$(room_of "${file#*/}") ;;
    *)
      room=${file%%/*}
      [[ $name == leat/* || -e src/$name ]] || continue
      ;;
  esac
  if [[ ! -v may_include[$room] ]]; then
    fail "$file: no room $room, add it to tests/style/layers.sh"
  elif ! allowed "$room" "$name"; then
    fail "$file includes \"$name\", but $room may include only: ${may_include[$room]}"
  fi
done < <(includes_below include src bench examples)

while read -r lines file; do
  case $file in
    *.h) ((lines <= max_lines_header)) || fail "$file: $lines lines, a header has at most $max_lines_header" ;;
    *) ((lines <= max_lines_source)) || fail "$file: $lines lines, a source has at most $max_lines_source" ;;
  esac
done < <(find include src \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -exec wc -l {} + | grep -v ' total$')

while read -r file; do
  grep -qF "/$file\"" "$build"/tests/CMakeFiles/*_tests.dir/Unity/*.cxx || fail "$file: no test program has it"
done < <(find tests -name '*_test.cc')

if ((failures > 0)); then
  echo "layers.sh: $failures failures"
  exit 1
fi
