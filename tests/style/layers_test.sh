#!/usr/bin/env bash
# Plants faults in a copy of the sources, one at a time, and fails unless layers.sh finds each. No arguments.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tests"
cp -r include src bench examples "$work"
cp -r tests/style "$work/tests"

check() { "$work/tests/style/layers.sh" "$work"; }

failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}

# plant FILE TEXT EXPECTED...: with TEXT behind FILE, which may be new, the check fails and says each EXPECTED.
plant() {
  local file=$work/$1 kept=$work/kept said expected
  rm -f "$kept"
  if [[ -e $file ]]; then cp "$file" "$kept"; fi
  printf '%s\n' "$2" >>"$file"
  if said=$(check); then
    fail "not found: $2 in $1"
  else
    for expected in "${@:3}"; do
      [[ $said == *"$expected"* ]] || fail "$2 in $1: the check says nothing of '$expected', but: $said"
    done
  fi
  if [[ -e $kept ]]; then mv "$kept" "$file"; else rm "$file"; fi
}

check || fail "the sources themselves have faults"

plant src/verbs/shm/device.cc '#include "transport/transport.h"' 'src/verbs/shm/device.cc includes "transport/transport.h", but verbs may'
plant src/base/log.cc '#include "leat/channel.h"' 'base may include only'
plant src/trusted/parts/serve.cc '#include "net/tcp.h"' 'trusted may include only'
plant include/leat/new.h '' 'include/leat/new.h: which room implements it?'
plant src/transport/tcp/tcp.cc '#include "transport/ring/places.h"' 'transport/tcp may not'
plant src/transport/parts/requests.cc '#include "transport/slots/slots.h"' 'transport/parts may not'
plant src/transport/slots/slots.h '#include "transport/batched/parts.h"' 'transport/slots may not'
plant src/verbs/ib/device.cc '#include "verbs/shm/region.h"' 'verbs/ib may not'
plant src/transport/ring/ring.cc '#include "transport/table.h"' 'rooms in a circle:' transport/ring transport/table
plant src/channel/channel_core.cc '#include "channel/group/core.h"' 'rooms in a circle:' channel/group
plant src/trusted/parts/history.cc '#include "trusted/chain/start.h"' 'rooms in a circle:' trusted/parts trusted/chain
plant src/base/quote.cc '#include "base/settings.h"' 'files in a circle:' base/quote base/settings
plant src/preload/real.cc '#include "preload/descriptors.h"' 'files in a circle:' preload/real
plant src/net/large.h "$(yes | head -300)" 'a header has at most'

if ((failures > 0)); then
  echo "layers_test.sh: $failures failures"
  exit 1
fi
