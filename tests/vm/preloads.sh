#!/usr/bin/env bash
# Unmodified programs over TCP, under leat-run and under rsocket's preload library, on Soft-RoCE in one guest.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here

usage() {
  cat <<'HELP'
Usage: preloads.sh [--short] [--json FILE] [--build DIR] [--programs A,B] [--timeout SECONDS]

Runs programs in a guest (run.sh), client and server at the address of rxe0, three times: over TCP, both under leat-run, both under
librspreload.so of librdmacm, which carries them by RDMA on rxe0. What comes out must be what went in. Prints a line for each program:
its speed over TCP, and the ratios to that under leat-run (tcp = 1; above 1 is faster) and under rsocket, or why it failed. Under
leat-run it also fails if its connections were not carried.

  --short            not under rsocket, where most programs fail after long waits, and with a tenth of the work: for CI
  --json FILE        also write {"bench":"vm-preloads","host":{},"results":[],"ratios":{}}
  --build DIR        where src/tools/leat-run is (default build/release of this checkout)
  --programs A,B     only these (see preloads_guest.sh for all)
  --timeout SECONDS  of the guest (default 900)
  --help             this text

A program that is not installed is installed or else fails; with LEAT_PROGRAMS_SKIP_MISSING=1 it is left out.

The guest's CPUs are emulated: compare figures of one run only. Exit code: 0 if every program worked under leat-run; 1 if one did
not; 77 if all were left out; 124 or 125 when the guest failed (see run.sh --help).
HELP
}

die() {
  echo "preloads.sh: $*" >&2
  exit 125
}

size=long json="" build=$here/../../build/release programs="" timeout=900
while (($# > 0)); do
  case $1 in
    --help) usage && exit ;;
    --short) size=short && shift && continue ;;
    --json | --build | --programs) [[ -n ${2-} ]] || die "$1 needs a value (see --help)" ;;
    --timeout) [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "$1 needs a positive number, not '${2-}' (see --help)" ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
  case $1 in
    --json) json=$2 ;;
    --build) build=$2 ;;
    --programs) programs=${2//,/ } ;;
    --timeout) timeout=$2 ;;
  esac
  shift 2
done
[[ -x $build/src/tools/leat-run ]] || die "not built: $build/src/tools/leat-run"
[[ -n ${LEAT_PROGRAMS_SKIP_MISSING-} ]] || "$here/../../cmake/install-packages.sh" programs || exit 125

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086  # several words
"$here/run.sh" --cpus 2 --timeout "$timeout" --out "$work" -- \
  "$here/preloads_guest.sh" "$(realpath -m "$build")/src/tools/leat-run" "$work" "$size" $programs
[[ -s $work/results ]] || exit 77

# A line of preloads_guest.sh: program, carrier, speed, unit, reason of a failure.
result=$(jq -Rn --arg guest_kernel "$(<"$work/kernel")" '
  [inputs / "\t" | {program: .[0], carrier: .[1], speed: (.[2] | if . == "" then null else tonumber end), unit: .[3],
                    failure: (if .[4] == "" then null else .[4] end)}] as $results
  | {bench: "vm-preloads",
     host: {guest_cpus: 2, guest_kernel: $guest_kernel, guest_accelerator: "tcg"},
     $results,
     ratios: ($results | group_by(.program) | map((map({key: .carrier, value: .speed}) | from_entries) as $speed
       | {key: .[0].program, value: {
           leat_vs_tcp: (if $speed.leat and $speed.tcp then $speed.leat / $speed.tcp else null end),
           rsocket_vs_tcp: (if $speed.rsocket and $speed.tcp then $speed.rsocket / $speed.tcp else null end)}})
       | from_entries)}' "$work/results")
[[ -z $json ]] || echo "$result" >"$json"

jq -r '
  def pad($width): tostring | . + " " * ([$width - length, 0] | max);
  def digits: . * 100 | round / 100;
  def cell: if . == null then "-" elif .failure then "fails: \(.failure)" else .ratio | digits | tostring end;
  .results as $results
  | ("\("program" | pad(26))\("TCP" | pad(22))\("leat-run" | pad(12))rsocket"),
    ($results | map(.program) | unique_by(.) as $names | [$results[].program] | reduce .[] as $name ([]; if index($name) then . else . + [$name] end)
     | .[] as $name
     | ($results | map(select(.program == $name) | {key: .carrier, value: .}) | from_entries) as $of
     | (if $of.tcp.failure then "fails: \($of.tcp.failure)" else "\($of.tcp.speed | digits) \($of.tcp.unit)" end) as $tcp
     | ($of | map_values(. + {ratio: (if .speed and $of.tcp.speed then .speed / $of.tcp.speed else 0 end)})) as $ratio
     | "\($name | pad(26))\($tcp | pad(22))\($ratio.leat | cell | pad(12))\($ratio.rsocket | cell)")' <<<"$result"
jq -e 'all(.results[] | select(.carrier == "leat"); .failure == null)' <<<"$result" >/dev/null
