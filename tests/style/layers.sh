#!/usr/bin/env bash
# Fails if a layer includes one above it, a file is too long to read at once, or a test is in no test program.
# docs/architecture.md draws the layers. Argument: where leat was built.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
readonly build=${1:?"layers.sh needs the build folder"}

# Which folders of src/, besides leat's public headers (leat/) and a folder's own, the files of a folder may include.
declare -rA may_include=(
  [include]=""
  [src/base]=""
  [src/verbs]="base"
  [src/conn]="base verbs"
  [src/proto]="base" # pure: no I/O
  [src/trusted]="base conn" # the attestation kernel: of conn the bytes of numbers (wire.h)
  [src/attestd]="base conn tools trusted" # the kernel's own process; of tools what its arguments may be
  [src/systems]="base conn" # on leat's public headers; of conn the bytes of numbers (wire.h)
  [src/transport]="base verbs conn proto trusted"
  [src/socket]="base verbs conn proto trusted transport"
  [src/preload]="base" # a library of its own, of base only headers
  [src/scml]="" # a library of its own on leat's public headers
  [src/tools]="base verbs conn transport trusted preload" # what leat-info lists and checks has no public header
  [bench]="tools verbs trusted attestd" # the bare write that leat-bench planned compares with; the kernels of leat-bench attest
  [examples]="tools" # the progress bar
)
readonly max_lines_header=220 max_lines_source=500

failures=0
fail() {
  echo "$*"
  failures=$((failures + 1))
}

# Prints "file: name" for each #include "name" below folder $1.
includes_below() {
  grep -rHoP --include='*.h' --include='*.cc' --include='*.c' '^\s*#\s*include\s*"\K[^"]+' "$1" | sed 's/:/: /' || true
}

# Whether $2 may be included in the folder $1.
allowed() {
  local folder=$1 name=$2 layer=${2%%/*}
  # No slash: a file beside the one that includes it, which src and include spell with their folder.
  [[ $name != */* ]] && { [[ $folder != src/* && $folder != include ]]; return; }
  [[ $layer == leat || src/$layer == "$folder" || " ${may_include[$folder]} " == *" $layer "* ]]
}

for folder in include src/* bench examples; do
  [[ -d $folder ]] || continue
  if [[ ! -v may_include[$folder] ]]; then
    fail "$folder: no layer, add it to tests/style/layers.sh"
    continue
  fi
  while read -r file name; do
    allowed "$folder" "$name" || fail "$file includes \"$name\", but $folder may include only: leat ${may_include[$folder]}"
  done < <(includes_below "$folder")
done

while read -r lines file; do
  case $file in
    *.h) ((lines <= max_lines_header)) || fail "$file: $lines lines, a header has at most $max_lines_header" ;;
    *) ((lines <= max_lines_source)) || fail "$file: $lines lines, a source has at most $max_lines_source" ;;
  esac
done < <(find include src \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -exec wc -l {} + | grep -v ' total$')

while read -r file; do
  name=$(basename "$file" .cc)
  grep -q "[/\"]$name\[" "$build/tests/CTestTestfile.cmake" || fail "$file: ctest does not run it"
done < <(find tests -name '*_test.cc')

if ((failures > 0)); then
  echo "layers.sh: $failures failures"
  exit 1
fi
