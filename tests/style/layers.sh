#!/usr/bin/env bash
# Fails if a room includes one above it, rooms or files include each other in a circle, a file is too long to read at once, or a test
# is in no test program. layers_test.sh plants faults and looks whether they are found.
# docs/architecture.md draws the rooms. Argument: where leat was built.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
readonly build=${1:?"layers.sh needs the build folder"}

# What the files of a room may include beside the room's own: rooms (private headers and the public ones that they implement), of a
# room with + only the public ones, and single files.
declare -rA may_include=(
  [base]=""
  [net]="base"
  [verbs]="base"
  [attest]="base net/stream.h" # the attestation kernel
  [transport]="base verbs attest net/stream.h net/tcp.h"
  [handshake]="base net verbs attest transport"
  [channel]="base net verbs attest transport handshake"
  [posix]="base" # headers: TCP as programs see it, over a policy
  [capi]="base net/tcp.h channel posix"
  [trusted]="+base base/clock.h base/fork.h base/log.h base/system_error.h base/wire.h +attest attest/record.h +channel" # libleat_trusted
  [trusted/remote]="base net attest trusted" # for programs, from leat's archive
  [scml]="+base +channel" # libleat_scml
  [preload]="base posix" # of base only headers
  [cli]="+base"
  [attestd]="base attest cli trusted/remote"
  [tools]="base net verbs transport/table.h handshake attest +scml preload cli trusted/remote" # what leat-info lists and checks has no public header
  [adapters]="+base +channel"
  [bench]="base verbs attest attestd cli +channel +trusted +scml +adapters trusted/a2m/file.h" # a bare write to compare with; kernels of leat-bench attest
  [examples]="+base +channel +attest +trusted +scml +capi" # to be copied whole
)

# Which of two folders beside each other in these rooms may include the other; what no folder names is for all.
readonly rooms_of_siblings="transport verbs"
readonly -A sibling_may_include=(
  [transport]="parts" # what all transports do
  [transport/batched]="slots"
  [transport/confirm_each]="slots"
  [transport/planned]="ring"
)

# Files that may include each other in a circle, because they are one subject in several files.
readonly one_subject=(
  # The core's waiting is a template over it, and connections that close are finished beside it.
  "channel/channel_core channel/channel_wait channel/lingerer"
  # A descriptor means an object, and to keep its connection each part of that asks what other descriptors mean.
  "preload/connection preload/descriptors preload/end_state preload/epoll_items preload/epoll_set preload/escapes preload/hidden
   preload/kept_memory preload/listening preload/short_connections preload/waiting"
  # The two sides of one protocol, which share how memory is attached and whom they trust.
  "preload/meeting preload/offering"
)

# Sets `room` to that of a header or source: that of a public header is the one that implements it; none if it is not known.
find_room() {
  case $1 in
    leat/attest/*) room=attest ;;
    leat/trusted/*) room=trusted ;;
    leat/scml/*) room=scml ;;
    leat/adapters/*) room=adapters ;;
    leat/c.h | leat/names.h) room=capi ;;
    leat/channel.h | leat/group.h | leat/leat.h | leat/listener.h | leat/planned.h | leat/poller.h | leat/remote_memory.h | leat/socket.h | leat/wait.h) room=channel ;;
    leat/delivery.h) room=transport ;;
    leat/attest_algorithm.h | leat/cxx20.h | leat/error.h | leat/export.h | leat/held.h | leat/message_array.h | leat/options.h | \
      leat/stats.h | leat/version.h) room=base ;;
    leat/*) room= ;;
    trusted/remote/*) room=trusted/remote ;;
    *) room=${1%%/*} ;;
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
  local from=$1 name=$2 entry room
  find_room "$name"
  [[ $room == "$from" ]] && return
  for entry in ${may_include[$from]}; do
    [[ $entry == "$name" || $entry == "$room" ]] && return
    [[ $name == leat/* && $entry == "+$room" ]] && return
  done
  return 1
}

# Whether $1 in a folder of a room may include $2 in another folder of it.
sibling_allowed() {
  local from=${1%/*} to=${2%/*} entry
  [[ $1 == */*/* && $2 == */*/* && $from != "$to" && ${1%%/*} == "${2%%/*}" && " $rooms_of_siblings " == *" ${1%%/*} "* ]] || return 0
  for entry in ${sibling_may_include[${1%%/*}]-} ${sibling_may_include[$from]-}; do
    [[ $entry == "${to##*/}" ]] && return
  done
  return 1
}

# Sets `folder` to the finest room of a header or source, for which see below: a table stands above the rooms beside it, of which it
# has a row each; what is in their folder stands below them.
find_folder() {
  case $1 in
    leat/*) find_room "$1" && folder=$room ;;
    */table.h | */table.cc) folder=${1%.*} ;;
    *) folder=${1%/*} ;;
  esac
}

# Prints the circles of the graph that stands in the standard input, an arrow "from to" on each line.
circles() {
  sort -u | LC_ALL=C tsort 2>&1 >/dev/null | awk '/contains a loop/ { if (loop != "") print loop; loop = ""; next } { loop = loop " " $2 }
    END { if (loop != "") print loop }'
}

while read -r file; do
  find_room "${file#*/}"
  [[ -n $room ]] || fail "$file: which room implements it? Add it to tests/style/layers.sh"
done < <(find include -name '*.h')

folders=() files=()
while read -r file name; do
  # A room's own folder in src and include; bench and examples are one room each, whose files name each other without it.
  case $file in
    src/* | include/*)
      find_room "${file#*/}"
      ;;
    *)
      room=${file%%/*}
      [[ $name == leat/* || -e src/$name ]] || continue
      ;;
  esac
  # An arrow that is wrong by itself is no part of circles.
  if [[ -z $room ]]; then
    continue # as said above
  elif [[ ! -v may_include[$room] ]]; then
    fail "$file: no room $room, add it to tests/style/layers.sh"
    continue
  elif ! allowed "$room" "$name"; then
    fail "$file includes \"$name\", but $room may include only: ${may_include[$room]:-nothing}"
    continue
  elif ! sibling_allowed "${file#*/}" "$name"; then
    fail "$file includes \"$name\", but ${file%/*} may not: see tests/style/layers.sh"
    continue
  fi
  [[ $file == src/* || $file == include/* ]] || continue
  find_folder "${file#*/}" && from=$folder
  find_folder "$name"
  folders+=("$from $folder")
  files+=("${file#*/} $name")
done < <(includes_below include src bench examples)

# A folder of a room is a room of its own here, and no two include each other, however many others are between them.
while read -r circle; do
  fail "rooms in a circle: $circle"
done < <(printf '%s\n' "${folders[@]}" | circles)

# A header and its source are one, and so are the files of one subject.
declare -A subject_of=()
for subject in "${one_subject[@]}"; do
  for file in $subject; do subject_of[$file]=${subject%% *}; done
done
while read -r circle; do
  fail "files in a circle: $circle"
done < <(for arrow in "${files[@]}"; do
  read -r from to <<<"$arrow"
  from=${from%.*} to=${to%.*}
  echo "${subject_of[$from]-$from} ${subject_of[$to]-$to}"
done | circles)

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
