#!/usr/bin/env bash
# Installs the Debian packages of packages.txt that are missing; does nothing, and needs no root, when all are there.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly list=$here/packages.txt

die() {
  echo "install-packages.sh: $*" >&2
  exit 1
}

# Prints the groups of packages.txt on one line.
groups() {
  sed -n 's/^\([a-z]*\):.*/\1/p' "$list" | sort -u | paste -sd' '
}

# Prints the packages of group $1, one a line.
packages_of() {
  sed -n "s/^$1://p" "$list" | xargs -n1
}

# Prints those of the packages given on standard input that are not installed.
missing_of() {
  local package
  while read -r package; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# Runs apt-get as root; waits for another one instead of failing, never asks a question.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@" </dev/null >&2
}

if (($# == 0)) || [[ $1 == -* ]]; then
  echo "Usage: install-packages.sh GROUP..."
  echo "Groups: $(groups). Installs what is missing of their packages, listed in cmake/packages.txt."
  exit $(($# == 0))
fi

for group in "$@"; do
  [[ " $(groups) " == *" $group "* ]] || die "no group is named '$group'; there are: $(groups)"
done
command -v dpkg-query >/dev/null || die "this needs Debian 12 (dpkg and apt); install what $list names by other means"

mapfile -t missing < <(for group in "$@"; do packages_of "$group"; done | sort -u | missing_of)
((${#missing[@]} > 0)) || exit 0

if ((EUID == 0)); then
  as_root=()
elif command -v sudo >/dev/null; then
  # Without a terminal there is nobody to type a password.
  if [[ -t 0 ]]; then as_root=(sudo); else as_root=(sudo -n); fi
else
  die "not installed, and only root can: run 'apt-get install ${missing[*]}' as root"
fi

echo "install-packages.sh: installing ${missing[*]}" >&2
apt update || die "apt-get update failed"
apt install -y --no-install-recommends "${missing[@]}" || die "apt-get install ${missing[*]} failed"
