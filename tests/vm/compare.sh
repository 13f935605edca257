#!/usr/bin/env bash
# Compares leat with other RDMA programs on Soft-RoCE, all in one guest.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly rounds=3

usage() {
  cat <<'HELP'
Usage: compare.sh [--json FILE] [--build DIR]

Measures leat-bench (transport ring), ib_send_lat, ib_write_lat and rsocket (rstream) on the device rxe0 of one guest with two CPUs
(run.sh), one end pinned to each, in three interleaved rounds; leat-bench must place its two ends itself. All ends spin without end. leat and
perftest receive in place, rsocket copies to the caller's buffer, and none reads the bytes. Prints the medians and these ratios of leat to
its peers:

  rxe_64B_vs_ib_send_lat, rxe_64B_vs_ib_write_lat, rxe_64B_vs_rsocket   half round trip of 64 bytes: below 1, leat is faster
  rxe_64KiB_vs_rsocket, rxe_1MiB_vs_rsocket                            throughput: above 1, leat is faster

  --json FILE   also write {"bench":"vm-compare","host":{},"results":[],"ratios":{}}; what is missing has a reason and a null ratio
  --build DIR   where bench/leat-bench is (default build/release of this checkout)
  --help        this text

A peer that is missing or fails in any round is named as missing. Exit code: 0 when all was measured, 1 when something is missing,
124 or 125 when the guest failed (see run.sh --help).
HELP
}

die() {
  echo "compare.sh: $*" >&2
  exit 125
}

json="" build=$here/../../build/release
while (($# > 0)); do
  case $1 in
    --help) usage && exit ;;
    --json | --build) [[ -n ${2-} ]] || die "$1 needs a path (see --help)" ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
  case $1 in
    --json) json=$2 ;;
    --build) build=$2 ;;
  esac
  shift 2
done

# Turns the lines of compare_guest.sh into the result object.
summary() {
  local cpu
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  jq -Rn --arg cpu "$cpu" --arg guest_kernel "$(<"$work/kernel")" '
    def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
    def result:
      (map(select(.value != "").value | tonumber)) as $values
      | (map(select(.value == "").reason) | first) as $missing
      | {peer: .[0].peer, bytes: .[0].bytes, (.[0].metric): (if $missing then null else $values | median end), rounds: $values}
        + if $missing then {$missing} else {} end;
    [inputs / "\t" | {peer: .[0], bytes: (.[1] | tonumber), metric: .[2], value: .[3], reason: .[4]}]
    | group_by([.bytes, .peer]) | map(result) as $results
    | def value($peer; $bytes): $results[] | select(.peer == $peer and .bytes == $bytes) | .t_typical_us // .bw_average_gbytes;
      def ratio($peer; $bytes): [value("leat"; $bytes), value($peer; $bytes)] | if all then .[0] / .[1] else null end;
    {
      bench: "vm-compare",
      host: {cpu: $cpu, guest_cpus: 2, guest_kernel: $guest_kernel, guest_accelerator: "tcg"},
      results: $results,
      ratios: {
        rxe_64B_vs_ib_send_lat: ratio("ib_send_lat"; 64),
        rxe_64B_vs_ib_write_lat: ratio("ib_write_lat"; 64),
        rxe_64B_vs_rsocket: ratio("rsocket"; 64),
        rxe_64KiB_vs_rsocket: ratio("rsocket"; 65536),
        rxe_1MiB_vs_rsocket: ratio("rsocket"; 1048576)
      }
    }' "$work/results"
}

# Prints the result object on standard input for people.
table() {
  jq -r '
    def pad($width): tostring | . + " " * ([$width - length, 0] | max);
    def digits: . * 1000 | round / 1000;
    (.results[] | "\(.peer | pad(14))\(.bytes | pad(10))"
      + if .missing then "missing: \(.missing)"
        elif .t_typical_us then "\(.t_typical_us | digits) us"
        else "\(.bw_average_gbytes | digits) GB/s" end),
    "",
    (.ratios | to_entries[] | "\(.key | pad(24))\(if .value then .value | digits else "missing" end)")'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/run.sh" --cpus 2 --timeout 1200 --out "$work" -- \
  "$here/compare_guest.sh" "$(realpath -m "$build")/bench/leat-bench" "$rounds" "$work"

result=$(summary)
[[ -z $json ]] || echo "$result" >"$json"
table <<<"$result"
jq -e 'all(.results[]; .missing | not)' <<<"$result" >/dev/null
