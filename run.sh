#!/usr/bin/env bash
# inkling's front door: installs what is missing, builds, and runs. ./run.sh help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Debian and Ubuntu packages that the build needs. CUDA kernels are built too where the CUDA toolkit, 12 or newer, is found.
packages=(g++ cmake ninja-build libopenblas-openmp-dev libcli11-dev libfmt-dev nlohmann-json3-dev libgtest-dev)

usage() {
  cat <<'TEXT'
usage: ./run.sh COMMAND [options]

  train [options]      build, then train a GPT on the built-in stories (options as for: build/release/inkling train --help)
  sample [options]     let a trained model write            eval, info, gradcheck: see build/release/inkling --help
  bench [options]      measure a training step on this machine: time, memory, and where they go
  walkthrough [NAME]   read a lesson on attention; without NAME, list them      seedhunt: see build/release/inkling --help
  test                 build and run the tests
  build [preset]       build only: release (default), debug, asan, tsan, portable, emulated, gpu
  test-asan            the tests under the address and undefined-behaviour sanitizers, CUDA kernels emulated
  help                 this text

Missing Debian or Ubuntu packages are installed first (through sudo unless you are root).
TEXT
}

say() { printf '%s\n' "$*" >&2; }

install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    say "run.sh installs packages on Debian and Ubuntu only. On other systems install these yourself, then build with cmake:"
    say "  ${packages[*]}"
    command -v cmake >/dev/null && return 0 || exit 1
  fi
  local missing=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  local root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { say "Missing packages, and neither root nor sudo to install them: ${missing[*]}"; exit 1; }
    root=(sudo)
  fi
  say "Installing: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${root[@]}" apt-get update -qq &&
         "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    say "Installing failed; the messages above say why."
    exit 1
  fi
  rm -f "$log"
}

# build PRESET [target...]: quiet unless there is work or an error.
build() {
  local preset=$1 log
  shift
  local options=()
  command -v ccache >/dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  mkdir -p "build/$preset"
  log=build/$preset/configure.log
  if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    say "Configuring failed; the messages above say why."
    exit 1
  fi
  # Not piped through a filter: ninja rewrites one line on a terminal.
  local plan
  plan=$(ninja -C "build/$preset" -n "$@")
  if grep -q '^\[[1-9]' <<<"$plan"; then
    say "Building ($preset; the first time takes a few minutes) ..."
    cmake --build --preset "$preset" ${1:+--target "$@"} >&2
  fi
}

command=${1:-help}
[[ $# -gt 0 ]] && shift
case $command in
  train | sample | eval | bench | gradcheck | info | walkthrough | seedhunt)
    install_missing
    build release inkling
    exec build/release/inkling "$command" "$@"
    ;;
  build)
    [[ ${1:-} == asan || ${1:-} == emulated ]] && packages+=(libboost-context-dev)
    install_missing
    build "${1:-release}"
    ;;
  test)
    install_missing
    build release
    exec ctest --preset release -j "$(nproc)" "$@"
    ;;
  test-asan)
    packages+=(libboost-context-dev)  # fibers, which emulate a GPU's threads
    install_missing
    build asan
    exec ctest --preset asan -j "$(nproc)" "$@"
    ;;
  help | -h | --help) usage ;;
  *)
    say "run.sh: there is no command '$command'."
    usage >&2
    exit 2
    ;;
esac
