#!/usr/bin/env bash
# The part of compare.sh that runs in the guest: measures all peers in turn, round after round, with the same pinning.
# Usage: compare_guest.sh LEAT_BENCH ROUNDS FOLDER
# Writes FOLDER/kernel, and FOLDER/results with a line of tab-separated fields for each measurement: peer, bytes, metric, value (empty
# when it failed), reason of a failure.
set -euo pipefail

readonly leat_bench=$1 rounds=$2 folder=$3
readonly limit_seconds=30
errors=$(mktemp)
port=20000

# Runs the command $2... as server on CPU 1, and with the words $1 added as client on CPU 0, and prints what the client prints.
# A client that cannot connect yet ends at once, so it is tried again for some seconds. Each pair has a port of its own.
pair() {
  local address=$1 server output tries status=1
  shift
  timeout "$limit_seconds" taskset -c 1 "$@" &>/dev/null &
  server=$!
  for ((tries = 0; tries < 10 && status != 0; tries++)); do
    sleep 0.3
    status=0
    # shellcheck disable=SC2086  # the address may be two words
    output=$(timeout "$limit_seconds" taskset -c 0 "$@" $address 2>"$errors") || status=$?
  done
  kill "$server" 2>/dev/null || true
  wait "$server" || true
  echo "$output"
  return "$status"
}

# Half round trip in us of perftest's program $1 with messages of $2 bytes.
perftest_latency() {
  pair 10.0.0.1 "$1" -d rxe0 -x 1 -F -p "$port" -s "$2" -n 2000 | awk -v bytes="$2" '$1 == bytes { print $5 }'
}

# Half round trip in us of $1 bytes. The last column of rstream is the time of one transfer in one direction.
rsocket_latency() {
  pair "-s 10.0.0.1" rstream -p "$port" -S "$1" -C 1 -I 2000 | awk 'END { print $NF }'
}

# GB/s of $2 messages of $1 bytes in one direction, then as many in the other.
rsocket_bandwidth() {
  pair "-s 10.0.0.1" rstream -p "$port" -S "$1" -C "$2" -I 1 | awk -v bytes="$1" '$NF > 0 { gbytes = bytes / $NF / 1000 } END { print gbytes }'
}

# Value of the field $1 for messages of $3 bytes that leat-bench's benchmark $2 gives after $4 of them. It starts and places its
# own peer, so it gets both CPUs. Its waits spin without end, as those of its peers do (rstream tries again and again).
leat() {
  [[ -x $leat_bench ]] || { echo "not built: $leat_bench" >"$errors" && return 1; }
  timeout "$limit_seconds" taskset -c 0,1 "$leat_bench" "$2" -d ib:rxe0 --transport ring --spin-us inf -s "$3" -n "$4" --json 2>"$errors" |
    jq --arg field "$1" --argjson bytes "$3" '.results[] | select(.bytes == $bytes) | .[$field]' 2>>"$errors"
}

# Runs $4... and notes the number it prints as metric $3 of the peer $1 at $2 bytes, or why there is none.
measure() {
  local peer=$1 bytes=$2 metric=$3 value reason="" status=0
  shift 3
  : >"$errors"
  port=$((port + 1))
  value=$("$@") || status=$?
  if ((status != 0)) || [[ ! $value =~ ^[0-9.]+(e[-+]?[0-9]+)?$ ]]; then
    value="" reason=$(tail -n 1 "$errors" | tr '\t' ' ')
    reason=${reason:-no result (exit code $status)}
  fi
  printf '%s\t%s\t%s\t%s\t%s\n' "$peer" "$bytes" "$metric" "$value" "$reason" >>"$folder/results"
  echo "  $peer $bytes B: ${value:-missing, $reason}" >&2
}

uname -r >"$folder/kernel"
for ((round = 1; round <= rounds; round++)); do
  echo "round $round of $rounds" >&2
  measure leat 64 t_typical_us leat t_typical_us pingpong 64 2000
  measure ib_send_lat 64 t_typical_us perftest_latency ib_send_lat 64
  measure ib_write_lat 64 t_typical_us perftest_latency ib_write_lat 64
  measure rsocket 64 t_typical_us rsocket_latency 64
  measure leat 65536 bw_average_gbytes leat bw_average_gbytes stream 65536 500
  measure rsocket 65536 bw_average_gbytes rsocket_bandwidth 65536 500
  measure leat 1048576 bw_average_gbytes leat bw_average_gbytes stream 1048576 50
  measure rsocket 1048576 bw_average_gbytes rsocket_bandwidth 1048576 50
done
