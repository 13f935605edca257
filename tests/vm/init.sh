#!/bin/busybox sh
# shellcheck shell=dash
# First process of the guest: mounts the host's files, runs the job that run.sh has written, reports its exit code, powers off.
# What it prints goes to the console, which run.sh shows only when the guest fails before the job has ended.
set -eu

/bin/busybox --install -s /bin
trap 'poweroff -f' EXIT

# Mounts the host's folder that is shared under the name $1 at $2, with the 9p options $3.
mount_shared() {
  mkdir -p "$2"
  mount -t 9p -o "trans=virtio,version=9p2000.L,msize=262144,$3" "$1" "$2"
}

mkdir -p /proc /sys /dev /lower /upper /root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
  insmod "$module"
done

# The root is the host's, so the guest runs the programs built there. Writes stay in memory and end with the guest.
mount_shared host /lower cache=loose,ro
mount -t tmpfs upper /upper
mkdir /upper/changed /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changed,workdir=/upper/work root /root
for folder in proc sys dev; do
  mount --bind /$folder /root/$folder
done
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs run /root/run
for name in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
  ln -s "/proc/self/${name#*:}" "/root/dev/${name%:*}"
done
hostname leat-vm

# Two folders are the host's for writing too: the job's own, and the one for results, which has the same path here and there.
mount_shared job /job cache=none
mount_shared out "/root$(cat /job/out_path)" cache=mmap

# The job writes to pipes, as it would under any test runner, and each pump is the one writer of its file on the host.
mkfifo /stdout /stderr
cat /stdout >/job/stdout &
cat /stderr >/job/stderr &

# The control group is there to end what the job leaves running, which would hold the pipes open.
mkdir /cgroup
mount -t cgroup2 cgroup /cgroup
mkdir /cgroup/job
cp /job/script /root/run/leat-vm-job
touch /job/started
status=0
(
  echo 0 >/cgroup/job/cgroup.procs
  exec setsid chroot /root /bin/bash /run/leat-vm-job </dev/null >/stdout 2>/stderr
) || status=$?
echo 1 >/cgroup/job/cgroup.kill
wait
echo "$status" >/job/status
