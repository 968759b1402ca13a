#!/usr/bin/env bash
# usage: tests/systems/syntax.sh [COMPILER [FLAGS]]     by default clang++-14 -stdlib=libc++
# Every source file through another compiler, or another standard library: syntax and warnings alone, so nothing need be
# linked. Units for matrix products that this processor lacks are among them. Exit status 0: no error and no warning.
# JOBS: how many at a time. TESTS=OFF leaves the tests out.
# TOGETHER=ON: files are joined and headers precompiled, as in a build, which takes half as long. Without, what a file
# forgets to include is found, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -gt 0 ]] || set -- clang++-14 -stdlib=libc++
compiler=$1 flags=${*:2}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
alone=(-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_UNITY_BUILD=OFF)
[[ ${TOGETHER:-OFF} == OFF ]] || alone=()
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE=Release \
  "${alone[@]}" -DINKLING_CUDA=OFF -DINKLING_TESTS="${TESTS:-ON}" -DINKLING_TESTS_BY_ROOM=OFF -DINKLING_WERROR=ON >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
# Units that this processor lacks: their guard goes before headers are precompiled.
sed -i 's/ -DINKLING_THIS_MACHINE\>//' "$build"/{compile_commands.json,build.ninja}
sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | sed '/_texts\.cpp\|exercise_[0-9]\|check_headers\|cmake_pch\.hxx\.cxx/d; s/\\\(.\)/\1/g; s/ -o [^ ]* -c / -fsyntax-only /' >"$build/commands"
if [[ ${TOGETHER:-OFF} == ON ]]; then
  ninja -C "$build" -t targets all | sed -n 's/^\(.*\(\.pch\|_texts\.cpp\)\):.*/\1/p' | xargs ninja -C "$build" >"$build/log" ||
    { cat "$build/log"; exit 1; }
fi
# Tests share what they include most, compiled once. (The library's files stand alone.)
if [[ $compiler == *clang* && ${TESTS:-ON} == ON ]]; then
  test=$(grep -m 1 '/tests/autograd/test_attention\.cpp$' "$build/commands" | sed 's/ -fsyntax-only .*//')
  printf '#include %s\n' '<gtest/gtest.h>' '"autograd/autograd.h"' |
    (cd "$build" && sh -c "$test -x c++-header -o gtest.pch -")
  sed -i "/\/test_\(ops\|simd\)\.cpp$/! s| -fsyntax-only \(/[^ ]*/tests/[a-z]*/test_[^ ]*\)$| -include-pch gtest.pch&|" \
    "$build/commands"
fi
echo "$compiler $flags: $(wc -l <"$build/commands") files"
tr '\n' '\0' <"$build/commands" | (cd "$build" && xargs -0 -P "${JOBS:-$(nproc)}" -n 1 sh -c)
