#!/usr/bin/env bash
# Installs the Debian packages that the guest and its tests need; does nothing, and needs no root, when all are there.
set -euo pipefail

readonly packages=(
  # The guest: emulator, kernel modules, initramfs.
  qemu-system-x86 busybox-static kmod cpio
  # RDMA and network devices inside it.
  rdma-core ibverbs-providers iproute2
  # Independent peers to test and measure against, and the tool that reads their JSON.
  ibverbs-utils perftest rdmacm-utils iperf3 jq
)

die() {
  echo "install.sh: $*" >&2
  exit 125
}

# Names of the packages above that are not installed, one a line.
missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# Waits for another apt instead of failing; never asks a question.
apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >&2
}

command -v dpkg-query >/dev/null || die "this needs Debian 12 (dpkg and apt)"
[[ $(dpkg --print-architecture) == amd64 ]] || die "the guest is for amd64 hosts, this one is $(dpkg --print-architecture)"

mapfile -t missing < <(missing_packages)
((${#missing[@]} > 0)) || exit 0
((EUID == 0)) || die "not installed, and only root can: run 'sudo apt-get install ${missing[*]}'"

echo "install.sh: installing ${missing[*]}" >&2
apt update || die "apt-get update failed"
apt install -y --no-install-recommends "${missing[@]}" || die "apt-get install ${missing[*]} failed"
