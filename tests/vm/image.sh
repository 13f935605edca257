#!/usr/bin/env bash
# Makes the guest's kernel and initramfs, or finds those made before, and prints their two paths.
# They are cached in build/vm of this checkout, or in $LEAT_VM_CACHE; remove that folder to get a newer kernel.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly cache=${LEAT_VM_CACHE:-$here/../../build/vm}

# Loaded at boot with all they depend on. The guest cannot load more on demand: its root is the host's, without these modules.
readonly modules=(
  virtio_pci 9pnet_virtio 9p overlay                  # the host's files
  crc32_generic crc32_pclmul rdma_rxe                 # Soft-RoCE; without crc32_generic no rxe device can be added
  ib_uverbs ib_umad rdma_cm rdma_ucm                  # its interfaces for programs
  veth bridge sch_netem sch_tbf                       # the network below it, and its impairments
)

die() {
  echo "image.sh: $*" >&2
  exit 125
}

# The package with Debian's current kernel: whatever linux-image-amd64 depends on.
kernel_package() {
  apt-cache show --no-all-versions linux-image-amd64 2>/dev/null | sed -n 's/^Depends: \([^ ,]*\).*/\1/p'
}

# Downloads the kernel package into the current folder.
download_kernel() {
  local package
  package=$(kernel_package)
  [[ -n $package ]] && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2
}

# Unpacks Debian's kernel to cache/kernel. Package lists may be absent or too old, so a failure is tried again after an update.
# This and the next function replace what an interrupted run has left, and give the result its name only when it is complete.
fetch_kernel() {
  echo "image.sh: fetching Debian's kernel (once, into $PWD)" >&2
  rm -rf kernel.new
  mkdir kernel.new
  (
    cd kernel.new
    download_kernel || { apt-get -qq update >&2 && download_kernel; } || die "cannot download the kernel: try 'apt-get update' as root"
    dpkg -x ./*.deb .
    rm ./*.deb
    depmod -b . "$(basename lib/modules/*)"
  )
  mv kernel.new kernel
}

# Packs busybox, init.sh and the modules, numbered in the order to load them, into the file $2 for the kernel version $1.
pack_initramfs() {
  local version=$1 file=$2 tree=initramfs.new number=100 action module
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,modules}
  cp /bin/busybox "$tree/bin/"
  install -m 755 "$here/init.sh" "$tree/init"
  while read -r action module; do
    [[ $action == insmod ]] || continue
    cp "$module" "$tree/modules/$((number++))-$(basename "$module")"
  done < <(modprobe -d kernel -S "$version" --show-depends --all "${modules[@]}" | awk '!seen[$2]++')
  (cd "$tree" && find . | cpio -o -H newc -R 0:0 --quiet) >"$file.new"
  rm -r "$tree"
  mv "$file.new" "$file"
}

mkdir -p "$cache"
cd "$cache"
exec {lock}>lock
flock "$lock"
[[ -d kernel ]] || fetch_kernel

# The name holds a digest of all inputs, so that a guest starting now keeps its file when another checkout packs a different one.
version=$(basename kernel/lib/modules/*)
digest=$({ echo "$version"; cat "$here/init.sh" "$here/image.sh" /bin/busybox; } | sha256sum)
initramfs=initramfs-${digest:0:16}.cpio
[[ -f $initramfs ]] || pack_initramfs "$version" "$initramfs"

echo "$PWD/kernel/boot/vmlinuz-$version"
echo "$PWD/$initramfs"
