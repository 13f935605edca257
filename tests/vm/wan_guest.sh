#!/usr/bin/env bash
# The part of wan.sh that runs in the guest: sets up one path after the other and runs leat-bench transfer over each.
# Usage: wan_guest.sh LEAT_BENCH FOLDER TRIP_MS RATE_MBIT QUEUE_PACKETS CUT_SECONDS REPEAT PART...
# Writes FOLDER/NAME.json for each measurement and FOLDER/plots/NAME/*.svg for some.
set -euo pipefail

readonly leat_bench=$1 folder=$2 trip_ms=$3 rate=$4 queue=$5 cut_seconds=$6 repeat=$7
shift 7
# Of an Ethernet frame around 1024 bytes of RDMA.
readonly frame_bytes=1082
readonly sent_packets=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
export LEAT_LOG_LEVEL=error

# Makes the path in the middle: first far, with a loss of $2 percent each way, then narrow, $1 Mbit/s behind a queue that drops.
path() {
  local port loss=()
  [[ $2 == 0 ]] || loss=(loss "$2%")
  for port in ma mb; do
    tc qdisc del dev $port root 2>/dev/null || true
    tc qdisc add dev $port root handle 1: netem delay "$(awk "BEGIN { print $trip_ms / 2 }")ms" "${loss[@]}" limit 100000
    tc qdisc add dev $port parent 1:1 handle 2: tbf rate "$1mbit" burst 10kb limit $((queue * frame_bytes))
  done
}

# Cuts the cable: everything is lost.
cut() {
  local port
  for port in ma mb; do
    tc qdisc change dev $port root handle 1: netem delay "$(awk "BEGIN { print $trip_ms / 2 }")ms" loss "$1" limit 100000
  done
}

# Runs leat-bench transfer with $2... over the path of $rate Mbit/s and keeps the result as $1. Its exit code counts where wan.sh
# reads the result.
measure() {
  local name=$1
  shift
  echo "  $name: $*" >&2
  "$leat_bench" transfer -d ib --host 10.0.0.2 --json "$@" >"$folder/$name.json" ||
    [[ -s $folder/$name.json ]] || echo "wan_guest.sh: $name gave no result" >&2
}

# The same, cut for $cut_seconds once $2 packets are sent.
measure_with_cut() {
  local name=$1 packets=$2 before now bench
  shift 2
  read -r before <$sent_packets
  now=$before
  measure "$name" "$@" &
  bench=$!
  # Without a command to start, which takes long in the guest.
  while ((now - before < packets)) && kill -0 $bench 2>/dev/null; do
    read -rt 0.02 <&"$never" || true
    read -r now <$sent_packets
  done
  cut 100%
  sleep "$cut_seconds"
  cut 0%
  wait $bench
}

measure_part() {
  local percent one carrier i
  case $1 in
    short)
      path "$rate" 0
      measure far -s 2M --chunk-bytes 16K --carriers inplace,auto --limit 60 --path-rate "$rate"
      for percent in 0.1 1; do
        path "$rate" $percent
        measure loss-$percent -s 1M --chunk-bytes 16K --carriers inplace,auto --limit 60
      done
      path $((rate / 4)) 0
      measure_with_cut cut-auto-1 700 -s 2M --chunk-bytes 16K --carriers auto --limit 90
      ;;
    far)
      path "$rate" 0
      measure far -s 16M --chunk-bytes 16K --limit 90 --path-rate "$rate" --plots "$folder/plots/far"
      ;;
    loss)
      for percent in 0.1 1; do
        path "$rate" $percent
        measure loss-$percent -s 4M --chunk-bytes 16K --carriers header,inplace,auto,tcp,grpc --limit 120
      done
      ;;
    cut)
      path $((rate / 4)) 0
      for carrier in inplace auto; do
        measure_with_cut cut-$carrier-1 2000 -s 4M --chunk-bytes 16K --carriers $carrier --limit 120
      done
      ;;
    repeat)
      for percent in 0.1 1; do
        path "$rate" $percent
        measure loss-$percent -s 1M --chunk-bytes 16K --carriers inplace,auto --limit 120 -r "$repeat"
      done
      path $((rate / 4)) 0
      for carrier in inplace auto; do
        for ((i = 1; i <= repeat; i++)); do
          measure_with_cut cut-$carrier-$i 700 -s 2M --chunk-bytes 16K --carriers $carrier --limit 120
        done
      done
      ;;
    chunks)
      for one in $((rate / 4)) $((rate / 2)) "$rate"; do
        path "$one" 0
        measure chunks-"$one"mbit -s 4M --chunk-bytes 16K,64K,256K --carriers inplace,auto --limit 120 \
          --path-rate "$one" --plots "$folder/plots/chunks-${one}mbit"
      done
      ;;
    lora)
      # Table 3 of FedRDMA has 1.1 to 288 MB; a 64th of that.
      path "$rate" 0
      measure lora -s 18K,36K,72K,144K,288K,576K,1152K,2304K,4608K --chunk-bytes 16K --carriers inplace,auto,tcp,grpc \
        --limit 120 --path-rate "$rate" --plots "$folder/plots/lora"
      ;;
  esac
}

mkfifo /run/never
exec {never}<>/run/never

# TCP would give the network packets of 64 KiB, of which a loss would take all; a far path has none.
for device in va vb; do
  ip link set dev $device gso_max_segs 1
done
for part in "$@"; do
  measure_part "$part"
done
