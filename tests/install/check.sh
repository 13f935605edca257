#!/usr/bin/env bash
# Uses leat as a stranger would, and fails if that does not work. ctest runs it, see CMakeLists.txt.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly source=$here/../..

if (($# != 3)); then
  echo "Usage: check.sh CHECK BUILD WORK"
  echo "CHECK: install, headers, symbols, find_package, pkg_config, add_subdirectory or without_ib. BUILD: where leat was built."
  echo "WORK: a folder for what the checks make; install comes first. CC and CXX name the compilers."
  exit 2
fi
readonly check=$1 build=$2 work=$3
readonly prefix=$work/prefix
: "${CC:=cc}" "${CXX:=c++}"
export CC CXX

fail() {
  echo "check.sh $check: $*" >&2
  exit 1
}

# Configures the consumer in folder $1 with the options $2..., builds and runs its programs.
run_consumer() {
  local folder=$1 program
  shift
  cmake -S "$here/consumer" -B "$folder" -G Ninja "$@"
  cmake --build "$folder" -j2
  for program in consumer_shared consumer_static consumer_c_shared consumer_c_static planner_shared planner_static; do
    timeout 60 "$folder/$program"
  done
  needs_leat "$folder/consumer_shared" || fail "consumer_shared does not use libleat.so"
  ! needs_leat "$folder/consumer_static" || fail "consumer_static uses libleat.so"
}

# Whether the program $1 loads libleat.so.
needs_leat() {
  readelf -d "$1" | grep -q 'NEEDED.*libleat\.so'
}

# Installs to one place and moves it to another: nothing installed may know where it was, or where it was built.
check_install() {
  local known unit=$prefix/lib/systemd/system/leat-attestd.service
  rm -rf "$prefix" "$work/elsewhere"
  cmake --install "$build" --prefix "$work/elsewhere"
  mv "$work/elsewhere" "$prefix"
  known=$(grep -rIlF --exclude="${unit##*/}" -e "$(realpath "$source")" -e "$work/elsewhere" -e spdlog "$prefix" || true)
  [[ -z $known ]] || fail "these name spdlog or a folder of the build: $known"
  # But systemd's unit names the program, and systemd wants whole paths.
  [[ ! -x $prefix/bin/leat-attestd ]] || grep -q "^ExecStart=$work/elsewhere/bin/leat-attestd " "$unit" \
    || fail "$unit starts no leat-attestd of the prefix: $(grep ExecStart "$unit")"
  [[ $(readelf -d "$prefix"/lib*/libleat.so) =~ libleat\.so\.[0-9]+\.[0-9]+\] ]] || fail "libleat.so has no versioned soname"
  if [[ -x $prefix/bin/leat-info ]]; then "$prefix/bin/leat-info" -v; fi
  if [[ -x $prefix/bin/leat-plan ]]; then "$prefix/bin/leat-plan" "$prefix/share/leat/models/secureml.json"; fi
}

# Every header compiles by itself, without a warning; c.h as C too.
check_headers() {
  local header
  for header in "$prefix"/include/leat/{,*/}*.h; do
    echo "$header"
    "$CXX" -std=c++20 -x c++ -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" - <<<"#include \"$header\""
  done
  "$CC" -std=c99 -D_POSIX_C_SOURCE=200809L -x c -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" \
    - <<<'#include <leat/c.h>'
}

# The shared libraries show leat's own names, and none that are private.
check_symbols() {
  shows_only libleat.so 'leat::version()' 'leat_|((typeinfo|typeinfo name|vtable) for )?leat::(?!detail::|scml::)'
  # What is thrown across libraries is in each of them, and the loader makes it one.
  shows_only libleat_scml.so 'leat::scml::load_model' 'leat::scml::(?!detail::)|(typeinfo|typeinfo name|vtable) for leat::Error@'
}

# The library $1 shows the function $2, and only names that the pattern $3 knows.
shows_only() {
  local shown strange
  shown=$(nm -DC --defined-only "$prefix"/lib*/"$1" | cut -d' ' -f3-)
  grep -qF "$2" <<<"$shown" || fail "$1 does not show $2"
  strange=$(grep -Pv "^(LEAT_[0-9.]+\$|$3)" <<<"$shown" || true)
  [[ -z $strange ]] || fail "$1 shows: $strange"
}

check_find_package() {
  rm -rf "$work/find_package"
  run_consumer "$work/find_package" -DCMAKE_PREFIX_PATH="$prefix"
}

# Kept from one run to the next, because it compiles the library.
check_add_subdirectory() {
  run_consumer "$work/add_subdirectory" -DLEAT_SOURCE="$source"
}

check_pkg_config() {
  local folder=$work/pkg_config flags
  rm -rf "$folder" && mkdir "$folder"
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name leat.pc)")
  export PKG_CONFIG_PATH
  pkg-config --print-errors --exists leat

  read -ra flags <<<"$(pkg-config --cflags --libs leat)"
  "$CXX" -std=c++20 "$here/consumer/consumer.cc" "${flags[@]}" -o "$folder/shared"
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir leat) timeout 60 "$folder/shared"
  needs_leat "$folder/shared" || fail "the shared consumer does not use libleat.so"

  # The linker prefers a shared library; this is how one asks it for the archive.
  read -ra flags <<<"$(pkg-config --static --cflags --libs leat)"
  "$CXX" -std=c++20 "$here/consumer/consumer.cc" "${flags[@]/#-lleat/-l:libleat.a}" -o "$folder/static"
  timeout 60 "$folder/static"
  ! needs_leat "$folder/static" || fail "the static consumer uses libleat.so"
  "$CC" "$here/consumer/consumer.c" "${flags[@]/#-lleat/-l:libleat.a}" -o "$folder/static_c"
  timeout 60 "$folder/static_c"

  read -ra flags <<<"$(pkg-config --cflags --libs leat-scml)"
  "$CXX" -std=c++20 "$here/consumer/planner.cc" "${flags[@]}" -o "$folder/planner"
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir leat) timeout 60 "$folder/planner"
}

# Without rdma-core the library still builds and works, and says what it lacks.
check_without_ib() {
  local folder=$work/without_ib text
  cmake -S "$source" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DLEAT_WITH_IB=OFF \
    -DLEAT_BUILD_TESTS=OFF -DLEAT_BUILD_BENCH=OFF -DLEAT_BUILD_EXAMPLES=OFF
  cmake --build "$folder" -j2 --target leat leat-info  # the rest has nothing to do with it
  ! readelf -d "$folder/src/libleat.so" | grep -E 'NEEDED.*(ibverbs|rdmacm)' || fail "libleat.so still needs rdma-core"
  text=$("$folder/src/tools/leat-info" -d)
  echo "$text"
  [[ $text == *"this build of leat has no ib device"* ]] || fail "leat-info -d does not say that device ib was left out"
}

mkdir -p "$work"
"check_$check"
