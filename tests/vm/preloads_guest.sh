#!/usr/bin/env bash
# The part of preloads.sh that runs in the guest.
# Usage: preloads_guest.sh LEAT_RUN FOLDER [PROGRAM]...
# Writes FOLDER/kernel, and FOLDER/results with a line of tab-separated fields for each program and carrier: program, carrier, speed
# (empty when it failed), unit, reason of a failure.
set -euo pipefail

readonly leat_run=$1 folder=$2
shift 2
readonly address=10.0.0.1
readonly limit_seconds=40
readonly rsocket=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
scratch=$(mktemp -d)
readonly scratch
port=20000

# What each of the functions below starts is a server, in the background, and what it prints is a speed. $run is the carrier's
# command; a function is called again, with another port, if it fails soon, because a server needs a while until it listens.

serve() {
  setsid "${run[@]}" "$@" &>"$scratch/server" </dev/null &
  echo $! >"$scratch/pid"
  sleep 1.5
}

client() {
  timeout "$limit_seconds" "${run[@]}" "$@" 2>"$scratch/errors"
}

# A program that only sends and receives, blocking; prints round trips a second.
blocking_ping_pong() {
  serve python3 -c 'import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection, _ = listener.accept()
    while data := connection.recv(64):
        connection.sendall(data)' $address "$port"
  sleep 4
  client python3 -c 'import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
start = time.monotonic()
for number in range(200):
    data = number.to_bytes(64, "big")
    connection.sendall(data)
    got = b""
    while len(got) < 64:
        got += connection.recv(64 - len(got))
    assert got == data
print(200 / (time.monotonic() - start))' $address "$port"
}

# Runs $@ and prints MB/s of $bytes bytes. What it prints must be the file $scratch/data.
fetch() {
  local begin=$EPOCHREALTIME end
  client "$@" >"$scratch/got"
  end=$EPOCHREALTIME
  # memccat ends what it prints with a newline.
  cmp -n "$(stat -c %s "$scratch/data")" "$scratch/data" "$scratch/got" &>"$scratch/errors"
  awk -v begin="$begin" -v end="$end" -v bytes="$(stat -c %s "$scratch/data")" 'BEGIN { print bytes / (end - begin) / 1e6 }'
}

sockperf_ping_pong() {
  serve sockperf sr --tcp -i $address -p "$port"
  client sockperf pp --tcp -i $address -p "$port" -t 3 -m 64 --dontwarmup | awk '/Summary: Latency is/ { print 1e6 / $(NF - 1) / 2 }'
}

sockperf_epoll() {
  printf 'T:%s:%s\nT:%s:%s\n' $address "$port" $address "$((port + 10000))" >"$scratch/feed"
  serve sockperf sr -f "$scratch/feed" -F e
  client sockperf pp --tcp -i $address -p "$port" -t 3 -m 64 --dontwarmup | awk '/Summary: Latency is/ { print 1e6 / $(NF - 1) / 2 }'
}

iperf3_one_way() {
  serve iperf3 -s -1 -B $address -p "$port"
  client iperf3 -c $address -p "$port" -n 40M --json | jq '.end.sum_received.bits_per_second / 8e6'
}

redis_1_client() {
  serve redis-server --bind $address --port "$port" --save '' --protected-mode no
  client redis-benchmark -h $address -p "$port" -c 1 -n 500 -t get --csv | awk -F'"' '/GET/ { print $4 }'
}

redis_50_clients() {
  serve redis-server --bind $address --port "$port" --save '' --protected-mode no
  client redis-benchmark -h $address -p "$port" -c 50 -n 2000 -t get --csv | awk -F'"' '/GET/ { print $4 }'
}

memcached_copy() {
  serve memcached -l $address -p "$port" -U 0 -u root -t 2 -I 8m
  client memccp --servers=$address:"$port" "$scratch/data"
  fetch memccat --servers=$address:"$port" data
}

nc_pipe() {
  setsid "${run[@]}" nc.openbsd -N -l $address "$port" <"$scratch/data" &>"$scratch/server" &
  echo $! >"$scratch/pid"
  sleep 1.5
  fetch nc.openbsd -d $address "$port"
}

socat_fork() {
  serve socat "TCP-LISTEN:$port,bind=$address,reuseaddr,fork" "OPEN:$scratch/data"
  fetch socat -u "TCP:$address:$port" -
}

nginx_curl() {
  cat >"$scratch/nginx.conf" <<CONFIGURATION
user root;
daemon off;
worker_processes 2;
pid $scratch/nginx.pid;
error_log $scratch/nginx.log;
events { worker_connections 512; }
http {
  access_log off;
  sendfile on;
  server { listen $address:$port; root $scratch; }
}
CONFIGURATION
  serve /usr/sbin/nginx -c "$scratch/nginx.conf" -e "$scratch/nginx.log"
  fetch curl -sS --max-time 20 "http://$address:$port/data"
}

python_http() {
  serve python3 -m http.server "$port" --bind $address --directory "$scratch"
  sleep 8
  fetch curl -sS --max-time 20 "http://$address:$port/data"
}

openssl_curl() {
  (
    cd "$scratch"
    serve openssl s_server -key key.pem -cert certificate.pem -accept "$address:$port" -WWW -quiet
    fetch curl -sS -k --http0.9 --max-time 20 "https://$address:$port/data"
  )
}

declare -A units=([sockperf_ping_pong]="round trips/s" [sockperf_epoll]="round trips/s" [redis_1_client]="requests/s"
  [redis_50_clients]="requests/s" [blocking_ping_pong]="round trips/s")
programs=(blocking_ping_pong sockperf_ping_pong sockperf_epoll iperf3_one_way redis_1_client redis_50_clients memcached_copy nc_pipe socat_fork
  nginx_curl python_http openssl_curl)
(($# == 0)) || programs=("$@")

# Runs program $1 over carrier $2 and notes what came of it.
measure() {
  local program=$1 carrier=$2 value="" reason="" tries run=()
  case $carrier in
    leat) run=("$leat_run") ;;
    rsocket) run=(env "LD_PRELOAD=$rsocket") ;;
  esac
  for ((tries = 0; tries < 2; tries++)); do
    port=$((port + 1))
    : >"$scratch/errors"
    rm -f "$scratch/got" "$scratch/pid"
    local begin=$SECONDS
    # Where a failure is looked at by the same command, it would not end the function.
    set +e
    (
      set -e
      "$program" >"$scratch/value"
    )
    set -e
    value=$(<"$scratch/value")
    [[ ! -s $scratch/pid ]] || kill -KILL -- "-$(<"$scratch/pid")" 2>/dev/null || true
    [[ ! $value =~ ^[0-9.]*[1-9][0-9.]*(e[-+]?[0-9]+)?$ ]] || break
    reason=$({ grep . "$scratch/errors" || true; } | tail -n 1 | tr '\t\r' '  ' | cut -c 1-80)
    value=""
    ((SECONDS - begin < limit_seconds)) || { reason="took longer than $limit_seconds s" && break; }
  done
  [[ -n $value ]] && reason="" || reason=${reason:-no result}
  printf '%s\t%s\t%s\t%s\t%s\n' "$program" "$carrier" "$value" "${units[$program]:-MB/s}" "$reason" >>"$folder/results"
  echo "  $program, $carrier: ${value:-fails: $reason}" >&2
}

uname -r >"$folder/kernel"
head -c 4000000 /dev/urandom >"$scratch/data"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/key.pem" -out "$scratch/certificate.pem" \
  -subj /CN=localhost -days 2 &>/dev/null
for program in "${programs[@]}"; do
  for carrier in tcp leat rsocket; do
    measure "$program" "$carrier"
  done
done
