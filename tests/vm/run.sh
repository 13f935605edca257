#!/usr/bin/env bash
# Runs one command in a QEMU guest that has real kernel RDMA, with the output and the exit code it would have had here.
# shellcheck disable=SC2054  # commas inside array elements are meant
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here

usage() {
  cat <<'HELP'
Usage: run.sh [OPTION]... [--] COMMAND [ARGUMENT]...

Runs COMMAND in a QEMU guest with Debian's kernel and Soft-RoCE (rdma_rxe), so that RDMA code meets a real kernel on a machine
without RDMA hardware. Needs Debian 12 on amd64; installs what is missing when run as root.

  --wan              two devices with a switch between them, instead of one (see below)
  --cpus N           virtual CPUs (default 2)
  --memory MIB       memory of the guest (default 4096)
  --memlock KIB      limit of locked memory for COMMAND, without the right to exceed it (default: unlimited)
  --timeout SECONDS  stop a guest that runs longer (default 300)
  --out DIR          folder that COMMAND can write to (default build/vm/out of this checkout); made if it is missing
  --help             this text

What COMMAND finds in the guest
  devices      rxe0, RoCE v2 on network device va with address 10.0.0.1, GID index 1, path MTU 4096.
               With --wan: rxe0 on va (10.0.0.1) and rxe1 on vb (10.0.0.2), path MTU 1024; TCP and RDMA between the two addresses
               cross a switch with the ports ma (to va) and mb (to vb), which is perfect until COMMAND says otherwise, e.g. for
               20 ms round trip and a short queue:
                 tc qdisc add dev ma root netem delay 10ms limit 100; tc qdisc add dev mb root netem delay 10ms limit 100
  files        the host's, at the same paths, same current folder. Writes are lost with the guest, except those below --out.
  environment  PATH and all LEAT_*, GTEST_*, CTEST_*, ASAN_*, TSAN_*, UBSAN_* variables, except LEAT_VM_*; HOME=/root.
  user         root. Standard input is empty.

Exit code: COMMAND's; 124 when the time was up; 125 when the guest could not be prepared or died.
The guest's CPUs are emulated, also where the host has KVM, so that it runs everywhere and the same: 10 to 20 times slower than
the host. Compare figures of one run only.
LEAT_VM_CACHE names the folder that keeps the kernel and the initramfs (default build/vm of this checkout).

Examples
  run.sh ibv_devinfo
  run.sh sh -c 'ib_send_lat -d rxe0 -x 1 & sleep 1; ib_send_lat -d rxe0 -x 1 10.0.0.1'
  run.sh --wan --out results build/release/bin/my_test --gtest_output=xml:results/my_test.xml
  run.sh --memlock 64 build/release/bin/my_test
HELP
}

die() {
  echo "run.sh: $*" >&2
  exit 125
}

cpus=2 memory_mib=4096 timeout_seconds=300 memlock_kib=unlimited out=$here/../../build/vm/out device_options=()
while (($# > 0)); do
  case $1 in
    --wan) device_options=(--wan) && shift && continue ;;
    --help) usage && exit ;;
    --) shift && break ;;
    --cpus | --memory | --memlock | --timeout)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "$1 needs a positive number, not '${2-}' (see --help)"
      ;;
    --out) [[ -n ${2-} ]] || die "$1 needs a folder (see --help)" ;;
    -*) die "unknown option $1 (see --help)" ;;
    *) break ;;
  esac
  case $1 in
    --cpus) cpus=$2 ;;
    --memory) memory_mib=$2 ;;
    --memlock) memlock_kib=$2 ;;
    --timeout) timeout_seconds=$2 ;;
    --out) out=$2 ;;
  esac
  shift 2
done
(($# > 0)) || die "no command (see --help)"

# Prints the script that the guest runs. Everything is quoted by printf %q, so the guest's bash sees the very words given here.
job_script() {
  local name privileges=()
  [[ $one_output == no ]] || echo 'exec 2>&1'
  echo "$(printf '%q ' "$here/devices.sh" "${device_options[@]}")|| exit 125"
  printf 'cd -- %q || exit 125\n' "$(pwd -P)"
  echo 'export HOME=/root'
  while read -r name; do
    [[ $name =~ ^(PATH$|(LEAT|GTEST|CTEST|ASAN|TSAN|UBSAN)_) && $name != LEAT_VM_* ]] || continue
    printf 'export %s=%q\n' "$name" "${!name}"
  done < <(compgen -e)
  echo "ulimit -l $memlock_kib"
  # The kernel ignores the limit for root, unless it has lost these capabilities.
  [[ $memlock_kib == unlimited ]] || privileges=(setpriv --bounding-set=-ipc_lock,-sys_resource --inh-caps=-ipc_lock,-sys_resource)
  echo "exec $(printf '%q ' "${privileges[@]}" "$@")"
}

[[ $(uname -m) == x86_64 ]] || die "the guest is for amd64 hosts, this one is $(uname -m)"
"$here/../../cmake/install-packages.sh" vm || exit 125
image=$("$here/image.sh")
{ read -r kernel && read -r initramfs; } <<<"$image"

mkdir -p "$out"
out=$(cd "$out" && pwd -P)
job=$(mktemp -d)
# Output and errors that go to one place here share one pipe there, which keeps their order.
one_output=no
[[ ! /dev/fd/1 -ef /dev/fd/2 ]] || one_output=yes
qemu_pid=
trap '[[ -z $qemu_pid ]] || kill "$qemu_pid" 2>/dev/null || true; rm -rf "$job"' EXIT
job_script "$@" >"$job/script"
echo "$out" >"$job/out_path"
touch "$job/stdout" "$job/stderr"

# Prints QEMU's value for sharing the folder $2 under the name $1 (a comma in a path is doubled), with the options $3.
shared() {
  echo "local,mount_tag=$1,path=${2//,/,,},security_model=none,multidevs=remap$3"
}

# -erms,-fsrm: QEMU runs `rep movsb` byte by byte; without it the kernel copies whole words, as real machines store them.
# tsc=reliable: QEMU keeps the counter equal on all CPUs, and reading it costs a tenth of what the kernel would choose otherwise.
qemu=(
  qemu-system-x86_64 -nodefaults -no-reboot -display none -smp "$cpus" -m "$memory_mib" -cpu max,-erms,-fsrm
  -accel tcg,thread=multi
  -kernel "$kernel" -initrd "$initramfs" -append "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable"
  -serial "file:$job/console"
  -virtfs "$(shared host / ,readonly=on)" -virtfs "$(shared job "$job" "")" -virtfs "$(shared out "$out" "")"
)
started=$SECONDS
# In a session of its own: where the kernel shares the cores out among sessions, the guest, which takes longest of all tests, is not held
# back by those beside it.
setsid timeout --kill-after=5 "$timeout_seconds" "${qemu[@]}" </dev/null &>"$job/qemu_log" &
qemu_pid=$!

# Shows the command's output while it grows. Each tail reads to the end once more after QEMU has gone.
tail -c +1 -s 0.1 --pid="$qemu_pid" -f "$job/stdout" &
tails=($!)
tail -c +1 -s 0.1 --pid="$qemu_pid" -f "$job/stderr" >&2 &
tails+=($!)
wait -n "$qemu_pid" "${tails[@]}" || true
# A tail that ends before QEMU has lost its reader; a command run here would then be ended by SIGPIPE.
! kill "$qemu_pid" 2>/dev/null || exit 141
wait "${tails[@]}" || true

[[ ! -s $job/status ]] || exit "$(<"$job/status")"
if ((SECONDS - started >= timeout_seconds)); then
  [[ -e $job/started ]] && state=ended || state="started: booting takes 8 s, and more on a busy host"
  echo "run.sh: stopped after $timeout_seconds s, before the command had $state (raise it with --timeout): $*" >&2
  exit 124
fi
cat "$job/qemu_log" >&2
tail -n 30 "$job/console" >&2 || true
die "the guest died before the command had ended; above is what QEMU and its kernel said"
