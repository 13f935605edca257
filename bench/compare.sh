#!/usr/bin/env bash
# Measures leat beside UCX, libfabric, plain TCP and the limits of this machine, all in one run.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly root=$here/..

usage() {
  cat <<'HELP'
Usage: bench/compare.sh [OPTION]...

Measures latency (half round trip), bandwidth and message rate between two processes of this machine: leat's transports ring
(on shm) and tcp, UCX, libfabric, plain TCP (blocking, and spinning as the others do), and two limits: a cache line bounced between two cores, and memcpy.
Everything runs pinned to the same two cores and in turn, several times over. What is printed are medians of the runs; latency
is the median within each run, too, but for libfabric, which tells the mean only. Only figures of one run of this script can be
compared with each other. Keep the machine idle.

All receivers wait for whole messages, as they would without looking into them: UCX, libfabric and TCP copy them to the
receiver's buffer, leat hands out a view of where they arrived.

  --json FILE      write the medians and the ratios to FILE, too
  --quick          fewer iterations and repetitions: about two minutes instead of ten
  --cpus A,B       the two cores (default 0,1)
  --bench PROGRAM  leat-bench to use (default build/release/bench/leat-bench)
  --install        install the peers and jq first (Debian packages, needs root or sudo)
  --help           this text

A peer that is not installed or fails is named as missing in the table and in FILE, and ratios to it are null.
HELP
}

die() {
  echo "compare.sh: $*" >&2
  exit 1
}

json='' quick=false cpus=0,1 bench=$root/build/release/bench/leat-bench
while (($# > 0)); do
  case $1 in
    --json) json=${2:?"compare.sh: --json needs a file"} && shift ;;
    --quick) quick=true ;;
    --cpus) cpus=${2:?"compare.sh: --cpus needs two cores, as 0,1"} && shift ;;
    --bench) bench=${2:?"compare.sh: --bench needs a program"} && shift ;;
    --install) "$root/cmake/install-packages.sh" bench ;;
    --help | -h) usage && exit ;;
    *) die "unknown argument $1 (see --help)" ;;
  esac
  shift
done
[[ $cpus =~ ^([0-9]+),([0-9]+)$ ]] || die "--cpus needs two cores, as 0,1, not '$cpus'"
core_a=${BASH_REMATCH[1]} core_b=${BASH_REMATCH[2]}
[[ $core_a != "$core_b" ]] || die "the two processes need a core each, --cpus gave one: $cpus"
for core in "$core_a" "$core_b"; do
  taskset -c "$core" true 2>/dev/null || die "core $core cannot be used here; this process may use $(taskset -cp $$ | sed 's/.*: //')"
done
[[ -x $bench ]] || die "there is no $bench. Build it: cmake --preset release && cmake --build build/release --target leat-bench"
command -v jq >/dev/null || die "jq is missing, which reads the results. Run bench/compare.sh --install, or apt-get install jq"
if [[ -n $json ]]; then
  : >"$json" || die "cannot write $json"
fi

readonly sizes=(8 64 4096 65536 1048576)
if $quick; then repetitions=5 effort=1; else repetitions=9 effort=5; fi

# Prints how many iterations a message size gets.
iterations() {
  case $1 in
    8 | 64) echo $((20000 * effort)) ;;
    4096) echo $((10000 * effort)) ;;
    65536) echo $((2000 * effort)) ;;
    *) echo $((200 * effort)) ;;
  esac
}

work=$(mktemp -d)
servers=() # background processes of run_pair
clean_up() {
  ((${#servers[@]} == 0)) || kill "${servers[@]}" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
samples=$work/samples # lines: system, what, bytes, value; separated by tabs
missing=$work/missing
touch "$samples" "$missing"

record() {
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$samples"
}

# Runs leat-bench with the arguments from $2 on and records its results for the system $1, limits each under its own name.
leat_bench() {
  local system=$1
  shift
  "$bench" "$@" --cpus "$cpus" --json >"$work/result" || die "failed: $bench $* --cpus $cpus --json"
  jq -r --arg system "$system" '.results[]
    | (if .limit then "limit: " + .limit else $system end) as $name | .bytes as $bytes
    | (["latency_us", .t_typical_us], ["bandwidth_gbytes", .bw_average_gbytes], ["msg_rate_million", .msg_rate_million])
    | select(.[1] != null) | [$name, .[0], $bytes, .[1]] | @tsv' "$work/result" >>"$samples"
}

# Measures each size with its own number of iterations, divided by $2.
leat_bench_sizes() {
  local system=$1 divisor=$2 size count
  shift 2
  for size in "${sizes[@]}"; do
    count=$(($(iterations "$size") / divisor))
    leat_bench "$system" "$@" -s "$size" -n $((count < 200 ? 200 : count))
  done
}

# Waits until somebody listens on TCP port $1 of this machine.
wait_for_port() {
  local hex tries
  hex=$(printf ':%04X' "$1")
  for ((tries = 0; tries < 500; ++tries)); do
    ! awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
      /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 0
    sleep 0.01
  done
  return 1
}

next_port=$((20000 + RANDOM % 10000))

# Runs a command that is its own peer: pinned, first as server, then with the server's address as client. $1 and $2: the options by
# which server and client take the port. Leaves the client's output in $work/client. If it fails, says so and names it as missing.
run_pair() {
  local server_option=$1 client_option=$2 port=$((next_port++)) server
  shift 2
  taskset -c "$core_b" timeout 60 "$@" "$server_option" "$port" >"$work/server" 2>&1 &
  server=$!
  servers=("$server")
  if wait_for_port "$port" && taskset -c "$core_a" timeout 60 "$@" "$client_option" "$port" 127.0.0.1 >"$work/client" 2>"$work/errors"; then
    wait "$server" || true
    servers=()
    return 0
  fi
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  servers=()
  cat "$work/server" "$work/errors" >&2 2>/dev/null || true
  echo "failed, so left out from run $repetition on: $* $client_option $port 127.0.0.1" | tee -a "$missing" >&2
  return 1
}

# Columns of ucx_perftest -f: iterations, median, average and overall latency, average and overall MiB/s, then messages a second.
# Its latency is half a round trip, as everybody's here, and has the cost of one clock read a round trip in it, as leat-bench's.
ucx() {
  local system=$1 tls=$2 test=$3 size=$4 count=$5 latency bandwidth rate
  UCX_TLS=$tls run_pair -p -p ucx_perftest -t "$test" -s "$size" -n "$count" -w "$((count / 10))" -f || return 1
  read -r latency bandwidth rate < <(awk '$1 ~ /^[0-9]+$/ && NF == 8 { print $2, $6 * 1048576 / 1e9, $8 / 1e6 }' "$work/client") ||
    die "ucx_perftest $test printed no result"
  if [[ $test == *_lat ]]; then
    record "$system" latency_us "$size" "$latency"
  else
    record "$system" bandwidth_gbytes "$size" "$bandwidth"
    record "$system" msg_rate_million "$size" "$rate"
  fi
}

ucx_sizes() {
  local size
  for size in "${sizes[@]}"; do
    ucx "$1" "$2" tag_lat "$size" "$(iterations "$size")" || return 1
    ucx "$1" "$2" tag_bw "$size" "$(iterations "$size")" || return 1
  done
}

# The seventh column of fi_pingpong is microseconds of one transfer, of which a round trip has two.
libfabric_sizes() {
  local size latency
  for size in "${sizes[@]}"; do
    run_pair -B -P fi_pingpong -p shm -e rdm -S "$size" -I "$(iterations "$size")" || return 1
    latency=$(awk 'NF >= 7 { last = $7 } END { print last }' "$work/client")
    [[ $latency =~ ^[0-9.]+$ ]] || die "fi_pingpong printed no result"
    record "$1" latency_us "$size" "$latency"
  done
}

say() {
  [[ ! -t 2 ]] || printf '\r\033[K%s' "$*" >&2
}

has_ucx=true has_libfabric=true
command -v ucx_perftest >/dev/null || has_ucx=false
command -v fi_pingpong >/dev/null || has_libfabric=false
$has_ucx || echo "UCX: ucx_perftest is not installed (Debian package ucx-utils)" >>"$missing"
$has_libfabric || echo "libfabric: fi_pingpong is not installed (Debian package libfabric-bin)" >>"$missing"

# Everything in turn within each repetition, so that a slow minute of the machine hits all alike.
for ((repetition = 1; repetition <= repetitions; ++repetition)); do
  say() { [[ ! -t 2 ]] || printf '\r\033[Krun %d of %d: %s' "$repetition" "$repetitions" "$1" >&2; }
  say "limits"
  leat_bench limits limits -s "$(IFS=,; echo "${sizes[*]}")" -n $((2000 * effort))
  say "leat ring"
  leat_bench_sizes "leat ring on shm" 1 pingpong -d shm --transport ring
  leat_bench_sizes "leat ring on shm" 1 stream -d shm --transport ring
  say "leat ring, sleeping"
  LEAT_SPIN_US=0 leat_bench "leat ring on shm, sleeping" pingpong -d shm --transport ring -s 64 -n $((1000 * effort))
  if $has_ucx; then
    say "UCX posix"
    ucx_sizes "UCX posix" posix,self || has_ucx=false
  fi
  if $has_ucx; then
    say "UCX sysv+cma"
    ucx_sizes "UCX sysv+cma" sysv,cma,self || has_ucx=false
  fi
  if $has_libfabric; then
    say "libfabric shm"
    libfabric_sizes "libfabric shm" || has_libfabric=false
  fi
  say "leat tcp"
  leat_bench_sizes "leat tcp" 10 pingpong -d tcp --transport tcp
  leat_bench_sizes "leat tcp" 10 stream -d tcp --transport tcp
  say "plain TCP"
  leat_bench_sizes "plain TCP" 10 tcp-pingpong
  leat_bench_sizes "plain TCP" 10 tcp-stream
  leat_bench_sizes "plain TCP, spinning" 10 tcp-pingpong --spin
done
[[ ! -t 2 ]] || printf '\r\033[K' >&2

# The medians as one object, with what the ratios mean beside them.
jq -Rn --rawfile missing "$missing" --arg date "$(date -u +%FT%TZ)" --arg kernel "$(uname -sr)" \
  --arg cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" --arg cpus "$cpus" \
  --argjson cores "$(nproc --all)" --argjson repetitions "$repetitions" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  [inputs | split("\t") | {system: .[0], what: .[1], bytes: (.[2] | tonumber), value: (.[3] | tonumber)}]
  | group_by([.system, .bytes])
  | map({system: .[0].system, bytes: .[0].bytes}
        + (group_by(.what) | map({key: .[0].what, value: map(.value) | median}) | from_entries)) as $results
  | def of($system; $bytes; $what): [$results[] | select(.system == $system and .bytes == $bytes) | .[$what]] | .[0];
  def ratio($a; $b): if $a == null or $b == null then null else $a / $b end;
  def latency($system; $bytes): of($system; $bytes; "latency_us");
  def bandwidth($system; $bytes): of($system; $bytes; "bandwidth_gbytes");
  "leat ring on shm" as $leat | 1048576 as $mib
  | {bench: "compare", date: $date, host: {cpu: $cpu, cores: $cores, kernel: $kernel}, cpus: $cpus, repetitions: $repetitions,
     results: $results,
     missing: ($missing | split("\n") | map(select(. != ""))),
     ratios: {
       shm_8B_vs_ucx_tag_lat: ratio(latency($leat; 8); latency("UCX posix"; 8)),
       shm_8B_vs_cacheline: ratio(latency($leat; 8); latency("limit: cacheline"; 8)),
       shm_64B_vs_ucx_tag_lat: ratio(latency($leat; 64); latency("UCX posix"; 64)),
       shm_1MiB_vs_memcpy: ratio(bandwidth($leat; $mib); bandwidth("limit: memcpy"; $mib)),
       shm_1MiB_vs_ucx_cma: ratio(bandwidth($leat; $mib); bandwidth("UCX sysv+cma"; $mib)),
       shm_64B_vs_tcp: ratio(latency("plain TCP, spinning"; 64); latency($leat; 64)),
       shm_64B_vs_blocking_tcp: ratio(latency("plain TCP"; 64); latency($leat; 64)),
       shm_64B_msg_rate_million: of($leat; 64; "msg_rate_million"),
       sleeping_64B_vs_tcp: ratio(latency("plain TCP"; 64); latency("leat ring on shm, sleeping"; 64))},
     ratio_meaning: {
       shm_8B_vs_ucx_tag_lat: "latency of leat / UCX posix tag_lat, 8 bytes; less is better",
       shm_8B_vs_cacheline: "latency of leat, 8 bytes / one cache line between two cores; 1 is the limit",
       shm_64B_vs_ucx_tag_lat: "latency of leat / UCX posix tag_lat, 64 bytes; less is better",
       shm_1MiB_vs_memcpy: "bandwidth of leat / memcpy to one place, 1 MiB; more is better",
       shm_1MiB_vs_ucx_cma: "bandwidth of leat (received in place) / UCX sysv+cma tag_bw (copied out), 1 MiB; more is better",
       shm_64B_vs_tcp: "latency of TCP / leat, both spin, 64 bytes; more is better",
       shm_64B_vs_blocking_tcp: "latency of TCP that sleeps / leat that spins, 64 bytes: not like with like",
       shm_64B_msg_rate_million: "million messages of 64 bytes a second; more is better",
       sleeping_64B_vs_tcp: "latency of blocking TCP / leat that sleeps at once (LEAT_SPIN_US=0), 64 bytes; more is better"}}
  ' "$samples" >"$work/all"
[[ -z $json ]] || cp "$work/all" "$json"

# Prints the table of the values $2 under the title $1, a row for each system that has any.
print_table() {
  echo "$1"
  printf '  %-28s' system
  printf '%12s' "${sizes[@]}"
  echo
  jq -r --arg what "$2" --argjson sizes "[$(IFS=,; echo "${sizes[*]}")]" '
    .results as $all | $all | map(select(.[$what] != null).system) | unique[] as $system
    | [$system, ($sizes[] as $bytes
        | [$all[] | select(.system == $system and .bytes == $bytes) | .[$what]] | .[0] // "-")] | @tsv' "$work/all" |
    awk -F '\t' '{ printf "  %-28s", $1; for (i = 2; i <= NF; ++i) printf($i == "-" ? "%12s" : "%12.3f", $i); print "" }'
  echo
}

echo "Medians of $repetitions runs on $(jq -r '.host | "\(.cpu), \(.cores) cores, \(.kernel)"' "$work/all"), pinned to cores $cpus"
echo
print_table "Latency: half round trip [us], by message bytes" latency_us
print_table "Bandwidth of one direction [GB/s]" bandwidth_gbytes
print_table "Message rate of one direction [million/s]" msg_rate_million
echo "Ratios"
jq -r '.ratio_meaning as $meaning | .ratios | to_entries[] | [.key, .value // "missing", $meaning[.key]] | @tsv' "$work/all" |
  awk -F '\t' '{ printf "  %-26s", $1; printf($2 == "missing" ? "%10s" : "%10.3f", $2); print "  " $3 }'
sed 's/^/missing: /' "$missing"
