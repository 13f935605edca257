#!/usr/bin/env bash
# Runs a program, and what it starts, on one core that a busy loop wants too.
set -euo pipefail

if (($# == 0)) || [[ $1 == --help ]]; then
  echo "Usage: tests/crowded.sh PROGRAM [ARGUMENT]..."
  exit 2
fi

# The last core that this process may use, as the first has most interrupts.
cores=$(taskset -cp $$)
cores=${cores##*: }
core=${cores##*[,-]}

# It ends with this script even where that is killed, as ctest does at a timeout.
taskset -c "$core" bash -c "while kill -0 $$ 2>/dev/null; do :; done" &
loop=$!
trap 'kill "$loop"' EXIT
taskset -c "$core" "$@"
