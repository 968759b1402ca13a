#!/usr/bin/env bash
# usage: tests/fuzz/fuzz.sh NAME [--inputs N] [OPTION...]
# Runs fuzz_NAME under the address and undefined-behaviour sanitizers: with clang++ and libFuzzer,
# which looks for inputs that reach new code, or, where there is no clang++, with g++ and driver.cpp.
# Builds in build/fuzz (INKLING_FUZZ_BUILD: another folder). Inputs that reach new code are kept in
# its corpus/NAME, and failing ones beside them. N is 2000000 by default; further options are
# libFuzzer's or driver.cpp's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
name=${1:?which one of $(cd tests/fuzz/seeds && printf '%s ' */ | tr -d /)}
shift
inputs=2000000
if [[ ${1:-} == --inputs ]]; then
  inputs=$2
  shift 2
fi
seeds=$PWD/tests/fuzz/seeds
build=${INKLING_FUZZ_BUILD:-$PWD/build/fuzz}

mkdir -p "$build"
compiler=g++ libfuzzer=OFF sanitizers=address,undefined
probe='#include <omp.h>
extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'
if clang++ -x c++ -fopenmp -fsanitize=fuzzer - -o "$build/probe" <<<"$probe" 2>/dev/null; then
  compiler=clang++ libfuzzer=ON sanitizers=fuzzer-no-link,$sanitizers
fi
flags="-O1 -g1 -fno-omit-frame-pointer -fsanitize=$sanitizers -fno-sanitize-recover=all"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DINKLING_CUDA=OFF \
  -DCMAKE_CXX_COMPILER=$compiler -DCMAKE_CXX_FLAGS_DEBUG="$flags" \
  -DINKLING_LIBFUZZER=$libfuzzer >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target "fuzz_$name"

export OMP_NUM_THREADS=1
corpus=$build/corpus/$name
mkdir -p "$corpus"
cd "$build/corpus"
if [[ $libfuzzer == ON ]]; then
  exec "$build/tests/fuzz/fuzz_$name" -runs="$inputs" -max_len=1024 -timeout=20 \
    -malloc_limit_mb=64 -rss_limit_mb=4096 -dict="$seeds/$name.words" -artifact_prefix="$name-" \
    "$@" "$corpus" "$seeds/$name"
fi
exec "$build/tests/fuzz/fuzz_$name" --inputs "$inputs" --words "$seeds/$name.words" "$@" \
  "$seeds/$name"
