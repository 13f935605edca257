#!/usr/bin/env bash
# Fails where a man page has a -, ^ or ~ that is to be typed as it is, but would be set as a hyphen or an accent: it must be \-, \(ha
# or \(ti. In prose a hyphen stays one. No arguments.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../docs/man"

# Anywhere, in a line of literal text, in front of an option, or in the name of a program.
found=$(grep -nHP '[~^]|^\.([BI]|[BIR][BIR]) .*(?<!\\)-|(?<![\\\w])-\w|(?<!\\)--|\bleat-[a-z]' -- * | grep -v ':\.\\"') || true
if [[ -n $found ]]; then
  echo "$found"
  echo "man.sh: in these lines write \\- for -, \\(ha for ^ and \\(ti for ~"
  exit 1
fi
