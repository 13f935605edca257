#!/usr/bin/env bash
# Runs in the guest before the command: makes the RDMA devices that run.sh --help describes.
set -euo pipefail

# Network devices va and vb, joined like two ports by a cable, va with an address.
add_network() {
  local mtu=$1
  ip link set lo up
  ip link add va mtu "$mtu" type veth peer name vb mtu "$mtu"
  ip addr add 10.0.0.1/24 dev va
  ip link set va up
  ip link set vb up
}

# The same with a switch between them, whose ports are ma and mb. Impairments belong there, in the middle: in a queue of va's own
# packets would still count as its sender's, and both rxe and TCP send less while they have packets lying there.
add_network_with_middle() {
  local mtu=$1 side
  ip link set lo up
  ip link add name switch mtu "$mtu" type bridge
  # It has no business with addresses, and would answer for those of this host.
  ip link set dev switch arp off
  ip link set dev switch up
  for side in a b; do
    ip link add "v$side" mtu "$mtu" type veth peer name "m$side" mtu "$mtu"
    ip link set dev "m$side" master switch
    ip link set dev "m$side" up
    ip link set dev "v$side" up
  done
  ip addr add 10.0.0.1/24 dev va
}

# Both ends are in this one host (rxe works in the initial network namespace only), and Linux would deliver packets between two
# local addresses over lo. These rules ask for the cable before the table of local addresses is looked at.
route_over_cable() {
  local device
  ip addr add 10.0.0.2/24 dev vb
  for device in all va vb; do
    echo 1 >"/proc/sys/net/ipv4/conf/$device/accept_local"
    echo 0 >"/proc/sys/net/ipv4/conf/$device/rp_filter"
  done
  ip rule add pref 100 lookup local
  ip rule del pref 0
  ip rule add pref 10 iif lo to 10.0.0.2 lookup 102
  ip rule add pref 11 iif lo to 10.0.0.1 lookup 101
  ip route add 10.0.0.2 dev va src 10.0.0.1 table 102
  ip route add 10.0.0.1 dev vb src 10.0.0.2 table 101
}

# Adds the RDMA device $1 on the network device $2 and waits until its port is active and GID 1 is the IPv4 address: the kernel
# fills in both a little later.
add_rdma_device() {
  local port=/sys/class/infiniband/$1/ports/1 tries
  rdma link add "$1" type rxe netdev "$2"
  for ((tries = 0; tries < 100; tries++)); do
    if [[ $(<"$port/state") == *ACTIVE && $(<"$port/gids/1") == 0000:0000:0000:0000:0000:ffff:* ]]; then
      return
    fi
    sleep 0.05
  done
  echo "devices.sh: $1 has no active port with an IPv4 GID" >&2
  return 1
}

if [[ ${1-} == --wan ]]; then
  add_network_with_middle 1500
  route_over_cable
  add_rdma_device rxe0 va
  add_rdma_device rxe1 vb
else
  add_network 5000
  add_rdma_device rxe0 va
fi
