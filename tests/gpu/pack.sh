#!/usr/bin/env bash
# tests/gpu/pack.sh [BUILD]: what run.sh needs of build/gpu, small enough to be carried, as BUILD.tar.xz: the programs
# without their symbols, and the libraries that not every system has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/gpu}
build=${build%/}
if [[ ! -x $build/inkling ]]; then
  echo "tests/gpu/pack.sh: there is no $build/inkling; build it with: cmake --preset gpu && cmake --build --preset gpu" >&2
  exit 1
fi
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
mkdir -p "$packed/tests" "$packed/lib"
for program in inkling tests/benchmark_ops tests/benchmark_programs tests/test_gemm_units $(cd "$build" && ls tests/test_cuda* | grep -v '\.'); do
  [[ -x $build/$program ]] || { echo "tests/gpu/pack.sh: leaving out $program, which was not built" >&2; continue; }
  strip -o "$packed/$program" "$build/$program"
  # The system's own stay behind, and so do CUDA's.
  ldd "$build/$program" |
    awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread|libstdc[+][+]|libgcc_s|libcuda.*|libcublas.*|libnv.*)[.]so/ {print $3}' |
    xargs -r cp -Lnt "$packed/lib"
done
# Much is the same in all programs: the window of the compression must span several of them.
tar -C "$packed" -c . | xz -T1 --lzma2=preset=1,dict=256MiB >"$build.tar.xz"
du -h "$build.tar.xz"
