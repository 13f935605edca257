#!/usr/bin/env bash
# From a fresh Debian 12 to a file sent over leat and a first measurement, in a few minutes.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly root
readonly build=$root/build/release

usage() {
  cat <<'HELP'
Usage: examples/quickstart.sh [FILE]

Installs the packages that building leat needs (Debian 12; needs root or sudo if any is missing), builds leat, sends FILE from
one process to another over RDMA in shared memory and over TCP, compares both copies by SHA-256, and measures ping-pong
latency beside plain TCP. FILE is by default the largest one below /usr/lib. Nothing is installed but Debian packages; the
build is in build/release, copies are removed.
HELP
}

die() {
  echo "quickstart.sh: $*" >&2
  exit 1
}

step() {
  printf '\n== %s\n' "$*"
}

case ${1-} in
  --help | -h) usage && exit ;;
  -*) die "unknown option $1 (see --help)" ;;
esac
(($# <= 1)) || die "one file at most (see --help)"
file=${1-}
if [[ -n $file ]]; then
  [[ -f $file && -r $file ]] || die "$file is not a file that can be read"
  file=$(realpath -- "$file")
fi
cd -- "$root"

work=$(mktemp -d)
receiver=''
clean_up() {
  [[ -z $receiver ]] || kill "$receiver" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

# Runs a command, showing what it prints on a terminal, and otherwise only if it fails.
quietly() {
  if [[ -t 1 ]]; then
    "$@"
  else
    "$@" >"$work/log" 2>&1 || {
      tail -n 40 "$work/log" >&2
      return 1
    }
  fi
}

step "1. Packages that building leat needs (cmake/packages.txt)"
cmake/install-packages.sh build || die "the packages of group build in cmake/packages.txt are needed"
echo "all there"

step "2. Building leat: cmake --preset release, into build/release"
# Tests would need more packages. A later 'cmake --preset release' switches them on again.
quietly cmake --preset release -DLEAT_BUILD_TESTS=OFF || die "configuring failed, see above"
quietly cmake --build "$build" --target leat-bench leat-info send_file || die "building failed, see above"
echo "built"

if [[ -z $file ]]; then
  file=$(find /usr/lib -xdev -type f -readable -printf '%s %p\n' 2>/dev/null |
    awk '$1 > most { most = $1; sub(/^[0-9]+ /, ""); name = $0 } END { print name }')
  [[ -n $file ]] || die "found no file to send, name one: examples/quickstart.sh FILE"
fi
needed_kib=$(($(stat -c %s "$file") / 1024 + 1024))
(($(df --output=avail -k "$work" | tail -n 1) > needed_kib)) || die "no room for a copy of $file in $work; set TMPDIR or name a smaller file"

# Sends the file between two processes, with the URI parameters $1.
send() {
  local tries address=''
  "$build/examples/send_file" --listen --output "$work/copy" --force >"$work/receiver" &
  receiver=$!
  for ((tries = 0; tries < 200; ++tries)); do
    address=$(sed -n 's/^listening at //p' "$work/receiver")
    [[ -z $address ]] || break
    kill -0 "$receiver" 2>/dev/null || die "the receiver could not start, see above"
    sleep 0.05
  done
  [[ -n $address ]] || die "the receiver did not start within 10 s"
  echo "  receiver: send_file --listen --output COPY"
  echo "  sender:   send_file $file '$address?$1'"
  "$build/examples/send_file" "$file" "$address?$1" | sed 's/^/  /' || die "sending failed, see above"
  wait "$receiver" || die "receiving failed, see above"
  receiver=''
  [[ $(sha256sum <"$file") == "$(sha256sum <"$work/copy")" ]] || die "the copy differs from $file"
  echo "  sha256sum of both files agrees"
}

step "3. Sending $file between two processes, over RDMA in shared memory"
send 'device=shm&transport=ring'

step "4. The same over TCP, which leat falls back to where there is no RDMA"
send 'device=tcp&transport=tcp'

# Prints "bytes average" for each size from a table of leat-bench.
latencies() {
  "$build/bench/leat-bench" "$@" -s 8,64,4K,64K >"$work/table" || die "measuring failed, see above"
  awk '$1 ~ /^[0-9]+$/ { print $1, $6 }' "$work/table"
}

step "5. Ping-pong between two processes: half a round trip in microseconds"
latencies pingpong -d shm --transport ring -n 20000 >"$work/leat"
latencies tcp-pingpong -n 5000 >"$work/tcp"
awk 'NR == 1 { print "     bytes    leat ring on shm    blocking TCP    TCP / leat" }
  NR == FNR { leat[$1] = $2; next }
  { printf "  %8d  %18.3f  %14.3f  %12.1f\n", $1, leat[$1], $2, $2 / leat[$1] }' "$work/leat" "$work/tcp"

step "Done"
cat <<'NEXT'
Try next:
  build/release/src/tools/leat-info --check      what leat finds on this machine
  build/release/bench/leat-bench --help          measure more
  examples/ping_pong.cc                          the smallest program, to copy from
NEXT
