#!/usr/bin/env bash
# Uses leat as a stranger would, and fails if that does not work. ctest runs it, see CMakeLists.txt.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly source=$here/../..

if (($# != 3)); then
  echo "Usage: check.sh CHECK BUILD WORK"
  echo "CHECK: install, headers, symbols, examples, find_package, pkg_config, names or add_subdirectory. BUILD: where leat was built."
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
  local folder=$1 program text
  local programs=(consumer_shared consumer_static consumer_c_shared consumer_c_static planner_shared planner_static names)
  shift
  cmake -S "$here/consumer" -B "$folder" -G Ninja "$@"
  cmake --build "$folder" -j2 --target "${programs[@]}"
  for program in "${programs[@]}"; do
    timeout 60 "$folder/$program"
  done
  ! text=$(cmake --build "$folder" --target broken 2>&1) || fail "a program links in which one file was compiled without leat::names"
  [[ $text == *__wrap_* ]] || fail "the linker says something else: $text"
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
  # ... and runs it as a user whom sysusers.d makes, whom clients expect by this name.
  [[ ! -x $prefix/bin/leat-attestd ]] \
    || { grep -qx "User=leat-attestd" "$unit" && grep -q "^u leat-attestd " "$prefix/lib/sysusers.d/leat-attestd.conf"; } \
    || fail "$unit runs as another user than sysusers.d makes"
  [[ $(readelf -d "$prefix"/lib*/libleat.so) =~ libleat\.so\.[0-9]+\.[0-9]+\] ]] || fail "libleat.so has no versioned soname"
  if [[ -x $prefix/bin/leat-info ]]; then "$prefix/bin/leat-info" -v; fi
  if [[ -x $prefix/bin/leat-plan ]]; then "$prefix/bin/leat-plan" "$prefix/share/leat/models/secureml.json"; fi
}

# Every header compiles by itself, without a warning; c.h as any C since C90, and as any C++.
check_headers() {
  local header text
  for header in "$prefix"/include/leat/{,*/}*.h; do
    [[ $header != */names.h ]] || continue
    echo "$header"
    "$CXX" -std=c++20 -x c++ -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I "$prefix/include" - <<<"#include \"$header\""
    [[ $header != */c.h && $header != */export.h ]] || continue
    # Without C++20 one sentence says so, and what follows from that is not told.
    text=$("$CXX" -std=c++17 -x c++ -fsyntax-only -I "$prefix/include" - <<<"#include \"$header\"" 2>&1) \
      && fail "$header compiles without C++20"
    [[ $text == *"need C++20"* ]] || fail "$header does not say that it needs C++20: $text"
    (($(grep -c 'error:' <<<"$text") <= 2)) || fail "$header says more than that it needs C++20: $text"
  done
  for standard in c90 c99 c11; do
    "$CC" -std=$standard -D_POSIX_C_SOURCE=200809L -x c -fsyntax-only -Wall -Wextra -pedantic-errors -Werror -I "$prefix/include" \
      - <<<'#include <leat/c.h>'
    "$CC" -std=$standard -D_GNU_SOURCE -x c -fsyntax-only -Wall -Wextra -pedantic-errors -Werror -I "$prefix/include" \
      -include leat/names.h - <<<'#include <poll.h>'
  done
  for standard in c++98 c++11 c++17 c++20; do
    "$CXX" -std=$standard -x c++ -fsyntax-only -Wall -Wextra -pedantic-errors -Werror -I "$prefix/include" - <<<'#include <leat/c.h>'
  done
  ! text=$("$CXX" -x c++ -fsyntax-only -I "$prefix/include" -include leat/names.h - <<<'' 2>&1) || fail "names.h compiles as C++"
  [[ $text == *"is for C"* ]] || fail "names.h does not say that it is for C: $text"
}

# The shared libraries show leat's own names, and none that are private.
check_symbols() {
  shows_only libleat.so 'leat::version()' 'leat_|((typeinfo|typeinfo name|vtable) for )?leat::(?!detail::(?!log\(|system_error[(\[]|ForkGeneration::)|scml::)'
  # What is thrown across libraries is in each of them, and the loader makes it one.
  shows_only libleat_trusted.so 'leat::trusted::Client' '((typeinfo|typeinfo name|vtable) for )?leat::trusted::(?!detail::)|(typeinfo|typeinfo name|vtable) for leat::Error@'
  shows_only libleat_scml.so 'leat::scml::load_model' 'leat::scml::(?!detail::)|(typeinfo|typeinfo name|vtable) for leat::Error@'
}

# The library $1 shows the function $2, and only names that the pattern $3 knows.
shows_only() {
  local shown strange
  shown=$(nm -DC --defined-only "$prefix"/lib*/"$1" | cut -d' ' -f3-)
  grep -qF "$2" <<<"$shown" || fail "$1 does not show $2"
  strange=$(grep -Pv "^(LEAT_[0-9.]+\$|$3)" <<<"$shown" || true)
  [[ -z $strange ]] || fail "$1 shows: $strange"
  # What lies inside of functions or of a class's private parts; and GNU_UNIQUE symbols, with which dlclose() does nothing.
  strange=$(grep -E '\{lambda|::State(::|@|$)|::Key(::|@|$)' <<<"$shown" || true)
  [[ -z $strange ]] || fail "$1 shows its inside: $strange"
  strange=$(nm -DC --defined-only "$prefix"/lib*/"$1" | grep ' u ' || true)
  [[ -z $strange ]] || fail "$1 shows what can never be unloaded: $strange"
}

# What is to be copied from is installed, and compiles where it lies.
check_examples() {
  local docs=$prefix/share/doc/leat file
  for file in README.md CHANGELOG.md docs/README.md docs/sockets.md docs/integration.md docs/transports/README.md docs/performance/cores.md; do
    [[ -s $docs/$file ]] || fail "$docs/$file is not installed"
  done
  local files=(ping_pong.cc echo_server.cc server_epoll.cc server_poller.cc gather.cc group.cc local_processes.cc send_file.cc
    trusted/{a2m,chain,counter}.cc)
  if "$CXX" -E -x c++ - <<<'#include <boost/asio.hpp>' >/dev/null 2>&1; then files+=(server_asio.cc); fi
  for file in "${files[@]}"; do
    "$CXX" -std=c++20 -fsyntax-only -I "$prefix/include" -I "$docs/examples" "$docs/examples/$file"
  done
  "$docs/examples/trusted/provisioned.sh" --help >/dev/null || fail "examples/trusted/provisioned.sh does not run where it is installed"
  for file in echo_client.c tcp_echo.c; do "$CC" -fsyntax-only -I "$prefix/include" "$docs/examples/$file"; done
}

# A C program becomes leat's by names in all of its files, or it does not link.
check_names() {
  local folder=$work/names flags text
  rm -rf "$folder" && mkdir "$folder"
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name leat.pc)")
  export PKG_CONFIG_PATH
  read -ra flags <<<"$(pkg-config --cflags leat-names)"
  read -ra libraries <<<"$(pkg-config --libs leat-names)"
  for level in -O0 "-O2 -D_FORTIFY_SOURCE=2"; do
    # shellcheck disable=SC2086  # several words
    "$CC" $level -Wall -Wextra -Werror -D_GNU_SOURCE "${flags[@]}" "$here"/consumer/names_{main,wait}.c "${libraries[@]}" -o "$folder/names"
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir leat) timeout 60 "$folder/names"
    # shellcheck disable=SC2086
    "$CC" $level -c "$here/consumer/names_wait.c" -o "$folder/forgotten.o"
    # shellcheck disable=SC2086
    ! text=$("$CC" $level -D_GNU_SOURCE "${flags[@]}" "$here/consumer/names_main.c" "$folder/forgotten.o" "${libraries[@]}" \
      -o "$folder/broken" 2>&1) || fail "a program links in which one file was compiled without leat/names.h"
    [[ $text == *__wrap_* ]] || fail "the linker says something else: $text"
  done
}

check_find_package() {
  rm -rf "$work/find_package"
  run_consumer "$work/find_package" -DCMAKE_PREFIX_PATH="$prefix"
}

# As a part of another project, which builds what it uses, without rdma-core. Each file is compiled by itself, with the warnings that
# the presets, which unite files, leave out. Kept from one run to the next, because it compiles the libraries.
check_add_subdirectory() {
  local folder=$work/add_subdirectory text
  run_consumer "$folder" -DLEAT_SOURCE="$source" -DLEAT_WITH_IB=OFF -DLEAT_WERROR=ON -DLEAT_BUILD_TOOLS=OFF
  # It still works, and says what it lacks.
  ! readelf -d "$folder/leat/src/libleat.so" | grep -E 'NEEDED.*(ibverbs|rdmacm)' || fail "libleat.so still needs rdma-core"
  cmake -DLEAT_BUILD_TOOLS=ON "$folder"
  cmake --build "$folder" -j2 --target leat-info leat_trusted
  text=$("$folder/leat/src/tools/leat-info" -d)
  echo "$text"
  [[ $text == *"this build of leat has no ib device"* ]] || fail "leat-info -d does not say that device ib was left out"
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

mkdir -p "$work"
"check_$check"
