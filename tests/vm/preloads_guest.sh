#!/usr/bin/env bash
# The part of preloads.sh that runs in the guest.
# Usage: preloads_guest.sh LEAT_RUN FOLDER short|long [PROGRAM]...
# Writes FOLDER/kernel, and FOLDER/results with a line of tab-separated fields for each program and carrier: program, carrier, speed
# (empty when it failed), unit, reason of a failure.
set -euo pipefail

readonly leat_run=$1 folder=$2 size=$3
shift 3
readonly address=10.0.0.1
readonly rsocket=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
scratch=$(mktemp -d)
readonly scratch
port=20000

# How much is done, over what, and how many seconds a server may take until it listens, and a client in all. Those do not judge
# speed: what works ends long before. Under rsocket much does not.
if [[ $size == short ]]; then
  readonly carriers=(tcp leat) limit_seconds=300
  readonly data_bytes=400000 iperf_bytes=4M round_trips=50 requests=50 requests_of_50=200 sockperf_seconds=(1 5 20)
else
  readonly carriers=(tcp leat rsocket) limit_seconds=40
  readonly data_bytes=4000000 iperf_bytes=40M round_trips=200 requests=500 requests_of_50=2000 sockperf_seconds=(3 10)
fi

# What each of the functions of programs starts is a server, in the background, and what it prints is a speed. $run is the carrier's
# command, $carrier its name.

# Whether something listens at $port; does not connect, which a server would see.
listens() {
  local hex
  printf -v hex '%04X' "$port"
  [[ $(</proc/net/tcp) == *":$hex 00000000:0000 0A "* ]] && return
  # What rsocket makes, only RDMA knows of.
  [[ $carrier == rsocket ]] && rdma resource show cm_id 2>/dev/null | grep -q "LISTEN .*:$port "
}

# Runs $@ in the background and waits until it listens.
serve() {
  setsid "${run[@]}" "$@" &>"$scratch/server" <"${input:-/dev/null}" &
  echo $! >"$scratch/pid"
  local pid=$! deadline=$((SECONDS + limit_seconds))
  until listens; do
    kill -0 "$pid" 2>/dev/null || return 1
    ((SECONDS < deadline)) || { echo "the server does not listen" >"$scratch/errors" && return 1; }
    sleep 0.1
  done
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
  client python3 -c 'import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
count = int(sys.argv[3])
start = time.monotonic()
for number in range(count):
    data = number.to_bytes(64, "big")
    connection.sendall(data)
    got = b""
    while len(got) < 64:
        got += connection.recv(64 - len(got))
    assert got == data
print(count / (time.monotonic() - start))' $address "$port" $round_trips
}

# Runs $@ and prints MB/s of $data_bytes bytes. What it prints must be the file $scratch/data.
fetch() {
  local begin=$EPOCHREALTIME end
  client "$@" >"$scratch/got"
  end=$EPOCHREALTIME
  # memccat ends what it prints with a newline.
  cmp -n $data_bytes "$scratch/data" "$scratch/got" &>"$scratch/errors"
  awk -v begin="$begin" -v end="$end" -v bytes=$data_bytes 'BEGIN { print bytes / (end - begin) / 1e6 }'
}

# Prints round trips a second. On a busy machine a second may pass without an answer that sockperf counts: then longer.
measure_sockperf() {
  local seconds speed=""
  for seconds in "${sockperf_seconds[@]}"; do
    speed=$(client sockperf pp --tcp -i $address -p "$port" -t "$seconds" -m 64 --dontwarmup |
      awk '/Summary: Latency is/ { print 1e6 / $(NF - 1) / 2 }') || true
    [[ -z $speed ]] || break
  done
  echo "$speed"
}

sockperf_ping_pong() {
  serve sockperf sr --tcp -i $address -p "$port"
  measure_sockperf
}

sockperf_epoll() {
  printf 'T:%s:%s\nT:%s:%s\n' $address "$port" $address "$((port + 10000))" >"$scratch/feed"
  serve sockperf sr -f "$scratch/feed" -F e
  measure_sockperf
}

iperf3_one_way() {
  serve iperf3 -s -1 -B $address -p "$port"
  client iperf3 -c $address -p "$port" -n $iperf_bytes --json | jq '.end.sum_received.bits_per_second / 8e6'
}

redis_1_client() {
  serve redis-server --bind $address --port "$port" --save '' --protected-mode no
  client redis-benchmark -h $address -p "$port" -c 1 -n $requests -t get --csv | awk -F'"' '/GET/ { print $4 }'
}

redis_50_clients() {
  serve redis-server --bind $address --port "$port" --save '' --protected-mode no
  client redis-benchmark -h $address -p "$port" -c 50 -n $requests_of_50 -t get --csv | awk -F'"' '/GET/ { print $4 }'
}

memcached_copy() {
  serve memcached -l $address -p "$port" -U 0 -u root -t 2 -I 8m
  client memccp --servers=$address:"$port" "$scratch/data"
  fetch memccat --servers=$address:"$port" data
}

nc_pipe() {
  input=$scratch/data serve nc.openbsd -N -l $address "$port"
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
  serve nginx -c "$scratch/nginx.conf" -e "$scratch/nginx.log"
  fetch curl -sS "http://$address:$port/data"
}

python_http() {
  serve python3 -m http.server "$port" --bind $address --directory "$scratch"
  fetch curl -sS "http://$address:$port/data"
}

openssl_curl() {
  (
    cd "$scratch"
    serve openssl s_server -key key.pem -cert certificate.pem -accept "$address:$port" -WWW -quiet
    fetch curl -sS -k --http0.9 "https://$address:$port/data"
  )
}

declare -A units=([sockperf_ping_pong]="round trips/s" [sockperf_epoll]="round trips/s" [redis_1_client]="requests/s"
  [redis_50_clients]="requests/s" [blocking_ping_pong]="round trips/s")
declare -A needs=([blocking_ping_pong]=python3 [sockperf_ping_pong]=sockperf [sockperf_epoll]=sockperf [iperf3_one_way]=iperf3
  [redis_1_client]="redis-server redis-benchmark" [redis_50_clients]="redis-server redis-benchmark"
  [memcached_copy]="memcached memccp memccat" [nc_pipe]=nc.openbsd [socat_fork]=socat [nginx_curl]="nginx curl"
  [python_http]="python3 curl" [openssl_curl]="openssl curl")
programs=(blocking_ping_pong sockperf_ping_pong sockperf_epoll iperf3_one_way redis_1_client redis_50_clients memcached_copy nc_pipe socat_fork
  nginx_curl python_http openssl_curl)
(($# == 0)) || programs=("$@")
# Where nginx is.
PATH=$PATH:/usr/sbin

# Prints the commands of program $1 that are not installed.
missing_of() {
  local command absent=()
  for command in ${needs[$1]-}; do
    command -v "$command" >/dev/null || absent+=("$command")
  done
  echo "${absent[*]}"
}

# Why it failed, if a program said so: its client, or else its server.
reason() {
  local file line
  for file in errors server; do
    line=$({ grep . "$scratch/$file" || true; } | tail -n 1 | tr '\t\r' '  ' | cut -c 1-80)
    [[ -z $line ]] || { echo "$line" && return; }
  done
  echo "no result"
}

# Runs program $1 over carrier $2 and notes what came of it.
measure() {
  local program=$1 carrier=$2 value="" failure="" run=() begin=$SECONDS
  case $carrier in
    leat) run=(env LEAT_LOG_LEVEL=info "LEAT_LOG_FILE=$scratch/log" "$leat_run") ;;
    rsocket) run=(env "LD_PRELOAD=$rsocket") ;;
  esac
  port=$((port + 1))
  rm -f "$scratch"/{got,pid,log}
  : >"$scratch/errors"
  : >"$scratch/server"
  # Where a failure is looked at by the same command, it would not end the function.
  set +e
  (
    set -e
    "$program" >"$scratch/value"
  )
  set -e
  value=$(<"$scratch/value")
  [[ ! -s $scratch/pid ]] || kill -KILL -- "-$(<"$scratch/pid")" 2>/dev/null || true
  if [[ ! $value =~ ^[0-9.]*[1-9][0-9.]*(e[-+]?[0-9]+)?$ ]]; then
    value=""
    failure=$(reason)
    ((SECONDS - begin < limit_seconds)) || failure="took longer than $limit_seconds s"
  elif [[ $carrier == leat ]] && ! grep -q "carried through shared memory" "$scratch/log"; then
    value=""
    failure="leat carried nothing"
  fi
  note "$program" "$carrier" "$value" "$failure"
}

# Notes what came of program $1 over carrier $2: its speed $3, or else the reason $4.
note() {
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${units[$1]:-MB/s}" "$4" >>"$folder/results"
  echo "  $1, $2: ${3:-fails: $4} (after $SECONDS s)" >&2
}

uname -r >"$folder/kernel"
# Python's server asks for it; there is nobody else to answer.
echo "$address leat-vm" >>/etc/hosts
head -c $data_bytes /dev/urandom >"$scratch/data"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/key.pem" -out "$scratch/certificate.pem" \
  -subj /CN=localhost -days 2 &>/dev/null
for program in "${programs[@]}"; do
  missing=$(missing_of "$program")
  if [[ -n $missing && -n ${LEAT_PROGRAMS_SKIP_MISSING-} ]]; then
    echo "  $program: left out, not installed: $missing" >&2
    continue
  fi
  for carrier in "${carriers[@]}"; do
    if [[ -n $missing ]]; then note "$program" "$carrier" "" "not installed: $missing"; else measure "$program" "$carrier"; fi
  done
done
