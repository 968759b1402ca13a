#!/usr/bin/env bash
# usage: tests/systems/processors.sh [--quick] [units] [levels] [threads] [emulated]
# Runs the tests as other processors run them. Without a name of a part, all four:
#   units     the default suite of the release build, with each value of INKLING_CPU_CAPABILITY that this processor has
#   levels    that of the portable build, at each level that this processor has: the rest of it is hidden
#   threads   that of the release build, with 1, 2 and 3 threads
#   emulated  tests of ops, products, attention, random numbers, files, memory and training, by the portable build on
#             processors that qemu emulates (Debian's package qemu-user; it knows neither AVX-512 nor tiles)
# --quick: tests of kernels instead of the suite, by the portable build alone; 1 and 3 threads at two levels; one
# emulated processor.
# RELEASE, PORTABLE: build folders (build/release, build/portable); what they lack is built. JOBS: tests at a time.
# CPUS: what is emulated, of those that `qemu-x86_64 -cpu help` lists. Each run prints a line, and what failed in it; the
# last lines are for the table of README.md. Exit status 1: something failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE INKLING_CPU_CAPABILITY GLIBC_TUNABLES OMP_NUM_THREADS
usage() { sed -n '2,/^set/ { /^set/d; s/^# //p }' "${BASH_SOURCE[0]}"; }

quick='' parts=''
for word; do
  case $word in
    --quick) quick=1 ;;
    units | levels | threads | emulated) parts+=" $word" ;;
    --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
  esac
done
parts=${parts:- units levels threads emulated}
release=$(realpath -m "${RELEASE:-build/release}") portable=$(realpath -m "${PORTABLE:-build/portable}")
jobs=${JOBS:-$(nproc)} work=${TMPDIR:-/tmp}/inkling-processors
mkdir -p "$work"

# What of the default suite --quick runs, and what an emulator runs: programs, with GoogleTest's filter where an emulator,
# which is 20 to 100 times slower, would need many minutes, or reads memory that an earlier test gave back (README.md).
# --quick leaves out what starts programs in environments of its own, whatever this one is.
kernels=(test_gemm_units test_attention test_fused test_index test_matmul test_optimizer test_pointwise test_random
         test_reduce)
emulated=('test_ops:*CoarserDtypes*' 'test_gemm_units:-GemmUnit.TheFastest*:GemmUnit.SlowProducts*' test_matmul
          'test_attention:-Attention.MemoryIs*' test_pointwise test_reduce test_nn test_random test_random_tensor
          test_dropout test_serialize test_checkpoint test_dataset
          'test_memory:-Recompute.*:*TrainingHolds*' test_train)
cpus=(Nehalem Haswell EPYC-Milan max)
if [[ -n $quick ]]; then
  release=$portable cpus=(Nehalem)
  emulated=(test_pointwise test_reduce test_nn test_random test_serialize)
fi
[[ -z ${CPUS:-} ]] || read -ra cpus <<<"$CPUS"

# build FOLDER PRESET [OPTION...]
build() {
  local targets=()
  [[ $parts != ' emulated' ]] || targets=(--target inkling "${emulated[@]%%:*}")
  [[ -z $quick ]] || targets=(--target inkling test_levels "${kernels[@]}" "${emulated[@]%%:*}")
  { { [[ -e $1/build.ninja ]] || cmake --preset "$2" -B "$1" -DINKLING_CUDA=OFF; } && cmake "${@:3}" "$1" &&
    cmake --build "$1" -j "$jobs" "${targets[@]}"; } >"$work/$2.log" 2>&1 || { tail -n 30 "$work/$2.log"; exit 1; }
}

failed=0 rows=()
# report NAME PASSED ALL SECONDS [FAILED...]: a run's line, its row, and what failed
report() {
  printf '%-32s %3d of %3d passed in %d s\n' "${@:1:4}"
  rows+=("$1: $2 of $3")
  [[ $2 == "$3" && $3 != 0 ]] || failed=1
  [[ $# -eq 4 ]] || printf '  FAILED %s\n' "${@:5}"
}

# suite NAME FOLDER [VARIABLE=VALUE...]: the default suite in this environment, or the part of it that --quick takes
suite() {
  local begin=$SECONDS log="$work/${1// /_}.log" choice=() names=() bad all
  if [[ -n $quick ]]; then
    choice=(-R "^($(IFS='|'; echo "${kernels[*]}"))\$")
    export GTEST_FILTER=-GemmUnit.TheEnvironmentNames*:GemmUnit.SlowProducts*:GemmUnit.TheChoiceIs*
  fi
  env "${@:3}" ctest --test-dir "$2" -LE slow "${choice[@]}" -j "$jobs" --timeout 1500 --output-on-failure \
    >"$log" 2>&1 || true
  read -r bad all < <(sed -nE 's/.* ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log") || true
  mapfile -t names < <(sed -nE 's/^\s+[0-9]+ - (\S+ \(.*\)).*/\1/p; s/^\[  FAILED  \] (\S+\.[^ ,]+).*/\1/p' "$log" | sort -u)
  report "$1" $((${all:-0} - ${bad:-0})) "${all:-0}" $((SECONDS - begin)) "${names[@]}"
}

# emulate CPU PROGRAM[:FILTER] QEMU...: one test program; its output is a file of the CPU's folder, and ends in .failed if it fails.
# shellcheck disable=SC2317  # xargs calls it
emulate() {
  local program=${2%%:*} begin=$SECONDS code=0
  local filter=${2#"$program"} log=$work/$1/$program
  filter=${filter#:}
  INKLING_PROGRAM=$work/$1/inkling OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive timeout 3000 "${@:3}" \
    "$portable/tests/$program" --gtest_brief=1 --gtest_filter="${filter:-*}" >"$log" 2>&1 || code=$?
  echo "$program: $((SECONDS - begin)) s" >>"$work/$1/times"
  # A filter that leaves no test is a failure, too.
  if ((code != 0)) || ! grep -q '  PASSED  ] [1-9]' "$log"; then mv "$log" "$log.failed"; fi
}

if [[ $parts == *levels* || $parts == *emulated* || -n $quick ]]; then
  build "$portable" portable -DINKLING_TESTS_BY_ROOM=OFF  # --quick and emulators take a few files
fi
if [[ $parts == *units* || $parts == *threads* ]]; then build "$release" release; fi

# ---- this processor

if [[ $parts == *units* ]]; then
  info=$("$release/inkling" info)
  for unit in amx avx512_bf16 avx512 avx2 neon default; do  # those that the table of units has
    # --quick: levels take the last two.
    [[ -n $quick && $unit =~ ^(avx2|default)$ ]] || ! grep -q "^ *$unit " <<<"$info" ||
      suite "unit $unit" "$release" INKLING_CPU_CAPABILITY=$unit
  done
fi

if [[ $parts == *levels* ]]; then
  levels=$(/lib64/ld-linux-x86-64.so.2 --help | sed -n 's/^ *\(x86-64-v[0-9]\) (supported.*/\1/p')
  if [[ -n $quick ]]; then
    "$portable/tests/test_levels" --gtest_brief=1 >"$work/test_levels.log" 2>&1 || { cat "$work/test_levels.log"; failed=1; }
  fi
  # The loader does not see what is hidden. The unit for products is what such a processor would take.
  hide=GLIBC_TUNABLES=glibc.cpu.hwcaps
  suite "level x86-64, unit default${quick:+, 1 thread}" "$portable" $hide=-AVX2 INKLING_CPU_CAPABILITY=default \
    ${quick:+OMP_NUM_THREADS=1}
  [[ $levels != *v3* ]] || suite "level x86-64-v3, unit avx2${quick:+, 3 threads}" "$portable" $hide=-AVX512F \
    INKLING_CPU_CAPABILITY=avx2 ${quick:+OMP_NUM_THREADS=3}
  [[ $levels != *v4* || -n $quick ]] || suite "level x86-64-v4" "$portable"
fi

if [[ $parts == *threads* && -z $quick ]]; then
  for threads in 1 2 3; do suite "$threads threads" "$release" OMP_NUM_THREADS=$threads; done
fi

# ---- processors that are not there

# on CPU: the tests on this processor. What they run is run by qemu, too: the system starts a program as this processor's.
on() {
  local cpu=$1 folder=$work/$1 begin=$SECONDS lacks line qemu all names=()
  # The emulator says at each start what it lacks of the model; tests read what programs say.
  lacks=$(qemu-x86_64 -cpu "$cpu" /bin/true 2>&1 | sed -n 's/.*feature: CPUID\.[^.]*\.\(\S*\) .*/,-\1/p' | tr -d '\n')
  qemu=(qemu-x86_64 -cpu "$cpu$lacks")
  rm -rf "$folder"
  mkdir -p "$folder"
  # Under qemu a program that starts itself anew to say how threads wait would go on without qemu: it is told before.
  # shellcheck disable=SC2016  # for the script that is written
  printf '#!/bin/sh\nOMP_WAIT_POLICY=passive exec %s -0 "$0" "%s" "$@"\n' "${qemu[*]}" "$portable/inkling" >"$folder/inkling"
  chmod +x "$folder/inkling"
  line=$("$folder/inkling" info | sed -n '1s/.*row kernels for /level /p')
  export -f emulate
  export portable work
  printf '%s\0' "${emulated[@]}" | xargs -0 -P "$jobs" -I '{}' bash -c 'emulate "$@"' emulate "$cpu" '{}' "${qemu[@]}"
  all=${#emulated[@]}
  mapfile -t names < <(cd "$folder" && find . -name '*.failed' -printf '%f\n')
  report "emulated $cpu ($line)" $((all - ${#names[@]})) "$all" $((SECONDS - begin)) "${names[@]%.failed}"
  sed -nE 's/^\[  FAILED  \] (\S+\.[^ ,]+).*/  \1/p' "$folder"/*.failed 2>/dev/null | sort -u || true
}

if [[ $parts == *emulated* ]]; then
  command -v qemu-x86_64 >/dev/null || { echo "There is no qemu-x86_64: install the package qemu-user"; exit 1; }
  for cpu in "${cpus[@]}"; do on "$cpu"; done
fi

# ---- the table's row

processor=$(sed -n '/^model name/ { s/.*: //p; q }' /proc/cpuinfo)
family=$(sed -n '/^cpu family/ { s/.*: //p; q }' /proc/cpuinfo) model=$(sed -n '/^model\s*:/ { s/.*: //p; q }' /proc/cpuinfo)
row=$(printf '; %s' "${rows[@]}")
printf '| %s | %s | %s, family %s, model %s | %s |\n' "$(date +%F)" "$(git describe --always --dirty)" "$processor" \
  "$family" "$model" "${row#; }"
exit $failed
