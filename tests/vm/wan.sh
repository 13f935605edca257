#!/usr/bin/env bash
# A laboratory of wide-area paths: leat-bench transfer over emulated ones, between two Soft-RoCE devices in one guest.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here

usage() {
  cat <<'HELP'
Usage: wan.sh [OPTION]...

Runs leat-bench transfer in a guest (run.sh --wan) over paths made by netem and tbf, and prints one table:

  far      20 ms, a queue of 100 packets: a raw RDMA write, transport chunked (header, inplace, auto), TCP, gRPC
  loss     the same path, losing 0.1 % and 1 % of the packets at random
  cut      the same path, cut for 3 s in the middle of a transfer
  chunks   three rates and three sizes of chunks, as in Table 2 of FedRDMA
  lora     nine sizes of transfers, as in its Table 3, a 64th of them

  --short            of far, loss and cut what takes a minute or two: for CI
  --repeat N         only loss and cut, N runs of each with small transfers
  --parts A,B        only these parts
  --trip MS          round trip (default 20)
  --rate MBIT        what the narrow place lets through (default 40)
  --queue PACKETS    what waits in front of it at most; more is dropped (default 100)
  --cut SECONDS      length of the cut (default 3)
  --out DIR          keeps NAME.json of each measurement and plots/*/*.svg there
  --build DIR        where bench/leat-bench is (default build/release of this checkout)
  --timeout SECONDS  of the guest (default 900)
  --help             this text

The path is slow because the guest is: its CPUs are emulated, and Soft-RoCE never has more than 128 packets unconfirmed. Chunks
are scaled with it: 16 KiB are as much of this path as the paper's 4 MiB are of 10 Gbit/s. Compare figures of one run only.

Exit code: 0 if every transfer over transport chunked got through with the right digest, however long it took; 1 if one did not;
124 or 125 when the guest failed (see run.sh --help).
HELP
}

die() {
  echo "wan.sh: $*" >&2
  exit 125
}

trip=20 rate=40 queue=100 cut=3 repeat=1 out="" build=$here/../../build/release timeout=900 parts=(far loss cut chunks lora)
while (($# > 0)); do
  case $1 in
    --help) usage && exit ;;
    --short) parts=(short) && shift && continue ;;
    --trip | --rate | --queue | --cut | --repeat | --timeout)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "$1 needs a positive number, not '${2-}' (see --help)"
      ;;
    --parts) [[ ${2-} =~ ^(far|loss|cut|chunks|lora)(,(far|loss|cut|chunks|lora))*$ ]] || die "--parts needs names of parts (see --help)" ;;
    --out | --build) [[ -n ${2-} ]] || die "$1 needs a path (see --help)" ;;
    *) die "unknown option $1 (see --help)" ;;
  esac
  case $1 in
    --trip) trip=$2 ;;
    --rate) rate=$2 ;;
    --queue) queue=$2 ;;
    --cut) cut=$2 ;;
    --repeat) repeat=$2 parts=(repeat) ;;
    --parts) IFS=, read -ra parts <<<"$2" ;;
    --out) out=$2 ;;
    --build) build=$2 ;;
    --timeout) timeout=$2 ;;
  esac
  shift 2
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -n $out ]]; then
  mkdir -p "$out"
  work=$(cd "$out" && pwd -P)
  trap - EXIT
  rm -f "$work"/*.json
fi
mkdir -p "$work/plots"

"$here/run.sh" --wan --timeout "$timeout" --out "$work" -- \
  "$here/wan_guest.sh" "$(realpath -m "$build")/bench/leat-bench" "$work" "$trip" "$rate" "$queue" "$cut" "$repeat" "${parts[@]}"

# The table: a line for each carrier on each path, all cuts of one carrier together.
summary() {
  jq -rn '
    def pad($width): tostring | . + " " * ([$width - length, 0] | max);
    def figure: if . == null then "-" else (. * 100 | round / 100 | tostring) end;
    def median: map(select(. != null)) | sort | if length == 0 then null else .[length / 2 | floor] end;
    [inputs | (input_filename | sub(".*/"; "") | sub("[.]json$"; "") | sub("^cut-.*"; "cut")) as $path
      | .results[] | . + {path: $path}]
    | (["path", "carrier", "bytes", "chunk", "through", "seconds", "MB/s", "resent", "resumes"] | "\(.[0] | pad(16))\(.[1] | pad(9))\(.[2] | pad(10))\(.[3] | pad(9))\(.[4] | pad(9))\(.[5] | pad(9))\(.[6] | pad(8))\(.[7] | pad(9))\(.[8])"),
      (group_by([.path, .bytes, .chunk_bytes])[] | group_by(.carrier)[]
        | "\(.[0].path | pad(16))\(.[0].carrier | pad(9))\(.[0].bytes | pad(10))\(.[0].chunk_bytes // "-" | pad(9))"
          + "\("\(map(.complete) | add)/\(map(.runs) | add)" | pad(9))\(map(.seconds) | median | figure | pad(9))"
          + "\(map(.goodput_mbytes) | median | figure | pad(8))\(map(.resent_packets) | median | pad(9))\(map(.resumes) | add)")' "$work"/*.json
}

summary
jq -r 'select(.ratios.auto_vs_path_rate) | (input_filename | sub(".*/"; "") | sub(".json$"; "")) as $path | .ratios | to_entries[]
  | select(.value) | "\($path)  \(.key): \(.value * 1000 | round / 1000)"' "$work"/*.json

jq -ne '[inputs.results[] | select(.chunk_bytes)] | length > 0 and all(.complete == .runs)' "$work"/*.json >/dev/null || {
  echo "wan.sh: FAILED: not every transfer over transport chunked got through" >&2
  jq -r '.results[] | select(.chunk_bytes and .complete < .runs) | "  \(.carrier), \(.bytes) bytes: \(.errors | unique | join("; "))"' "$work"/*.json >&2
  exit 1
}
