#!/usr/bin/env bash
# Fails if a file of C or C++ is not as clang-format writes it, or shellcheck finds fault with a script. Needs the packages of
# group lint. With --fix, formats the files.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

# Prints the files with ending $1 that git knows or could be told of, zero-terminated.
files() {
  git ls-files -z --cached --others --exclude-standard -- "$@"
}

# Version 14 is Debian 12's; another one formats differently.
if [[ ${1-} == --fix ]]; then
  files '*.h' '*.cc' '*.c' | xargs -0 clang-format-14 -i
  exit
fi
files '*.h' '*.cc' '*.c' | xargs -0 clang-format-14 --dry-run --Werror
{ files '*.sh' && files .ci/run; } | xargs -0 shellcheck --external-sources
