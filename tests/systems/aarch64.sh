#!/usr/bin/env bash
# usage: tests/systems/aarch64.sh [WORK]
# Cross-compiles for ARM and runs tests of ops, attention, random numbers, files and training under qemu: the portable
# build on a Cortex-A53, which has ARMv8.0 and nothing newer, and one for a processor of 2019 (as -mcpu=native would be
# there). Needs Debian or Ubuntu packages: g++-aarch64-linux-gnu qemu-user-static debootstrap, and the network once.
# SUITE: this system's release, MIRROR: its package server; ONLY=portable or ONLY=neoverse leaves the other out; TESTS: which.
set -euo pipefail
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(realpath -m "${1:-${TMPDIR:-/tmp}/inkling-aarch64}")
# shellcheck source=/dev/null
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
tests=${TESTS:-'^test_(ops_.|attention|attention_parity|gemm_units|random|random_tensor|serialize|dataset|checkpoint|dropout|matmul|nn|train)$'}
root=$work/root lib=$work/root/usr/lib/aarch64-linux-gnu
mkdir -p "$work"

# Libraries for ARM: unpacked, not installed. Headers of C and C++ are the cross compiler's own.
if [[ ! -e $lib/openblas-openmp/libopenblas.so ]]; then
  echo "Fetching libraries for ARM ($suite)"
  debootstrap --arch=arm64 --variant=minbase --download-only \
    --include=libopenblas-openmp-dev,libfmt-dev,nlohmann-json3-dev,libpcre2-dev,libutf8proc-dev,zlib1g-dev,libzstd-dev,libgtest-dev,libgomp1 \
    "$suite" "$work/packages" ${MIRROR:+"$MIRROR"} >"$work/fetch.log" 2>&1 || { tail -n 5 "$work/fetch.log"; exit 1; }
  for package in "$work"/packages/var/cache/apt/archives/*.deb; do
    case ${package##*/} in
      libc6-dev* | linux-libc-dev* | libstdc++-*-dev* | libgcc-*-dev* | libcrypt-dev*) ;;
      *) dpkg-deb -x "$package" "$root" ;;
    esac
  done
fi

# check NAME CPU [options for cmake]
check() {
  local build=$work/$1 qemu=(qemu-aarch64-static -cpu "$2" -L "$root" -E "LD_LIBRARY_PATH=$lib/openblas-openmp:$lib")
  echo "$1, run on a $2"
  cmake -S "$checkout" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_LIBRARY_ARCHITECTURE=aarch64-linux-gnu \
    -DCMAKE_FIND_ROOT_PATH="$root" -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY \
    -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$lib" -DINKLING_CUDA=OFF -DINKLING_WERROR=ON \
    -DCMAKE_CROSSCOMPILING_EMULATOR="$(IFS=';'; echo "${qemu[*]}")" "${@:3}" >"$work/$1.log" 2>&1 ||
    { tail -n 20 "$work/$1.log"; exit 1; }
  ninja -C "$build" >>"$work/$1.log" 2>&1 || { grep -A5 -m 3 -E 'error|warning' "$work/$1.log"; exit 1; }
  # The program that tests run, under the name that it was called by. Under qemu it cannot start itself anew, so it is told how to wait.
  # shellcheck disable=SC2016  # for the script that is written
  printf '#!/bin/sh\nOMP_WAIT_POLICY=passive exec %s -0 "$0" "%s" "$@"\n' "$(printf "'%s' " "${qemu[@]}")" "$build/inkling" >"$build/inkling.sh"
  chmod +x "$build/inkling.sh"
  "$build/inkling.sh" info
  INKLING_PROGRAM=$build/inkling.sh ctest --test-dir "$build" -R "$tests" -j "$(nproc)" --timeout 3000 --output-on-failure
}

[[ ${ONLY:-portable} != portable ]] || check portable cortex-a53 -DINKLING_NATIVE=OFF
[[ ${ONLY:-neoverse} != neoverse ]] || check neoverse neoverse-n1 -DCMAKE_CXX_FLAGS=-mcpu=neoverse-n1
