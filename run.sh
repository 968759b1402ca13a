#!/usr/bin/env bash
# inkling's front door: installs what is missing, builds, and runs. ./run.sh help
set -euo pipefail
shopt -s lastpipe  # the filters below run in this shell, not in a copy of it

checkout=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
name=$0  # what the user typed
[[ $name == */* ]] || name=./$name

# Debian and Ubuntu packages that the build needs.
packages=(g++ cmake ninja-build libopenblas-openmp-dev libfmt-dev nlohmann-json3-dev libpcre2-dev
          libutf8proc-dev zlib1g-dev libzstd-dev libgtest-dev)
mpi_packages=(libopenmpi-dev openmpi-bin)

usage() {
  cat <<TEXT
usage: $name COMMAND [options]

  train [options]      build, then train a GPT on the built-in stories
  train --processes N  the same in N processes on this machine, over Open MPI
  sample [options]     let a trained model write            eval, info, gradcheck: likewise
  report [RUN ...]     what a run logged, as a page; --text, --svg FILE: its loss curve
  look [options]       write a page that shows one forward pass of a trained model, step by step
  draw [options]       show the ops of a training step: what each reads, keeps and takes
  bench [options]      measure a training step on this machine: time, memory, and where they go
  lesson [NAME]        read and run a lesson, such as 0 or 7_gpt; without NAME, list them
  walkthrough [NAME]   the same for the five on attention, with PyTorch's digits
  exercise [NAME]      write functions that are checked: --check, --watch, --hint, --solution;
                       without NAME, list them and what is solved
  tokenizer ACTION     learn a vocabulary from texts; texts to ids and back
  prepare TEXT...      texts of any size as token ids, to train on
  suggest [options]    find sizes to train on a text, for this machine and a time
  seedhunt [options]   find a PyTorch program's seed from numbers it printed
  test [options]       build and run the tests              (options as for ctest)
  test NAME            only what concerns an op, a layer or a test program, such as softmax
  test-asan            the tests under the address and undefined-behaviour sanitizers
  docs                 make the API reference, in build/docs (needs doxygen)
  new op|layer NAME    begin an op or a layer: its files, row and test, with the formula left open
  build [PRESET] [-DNAME=VALUE...]
                       build only: release (default), debug, asan, tsan, portable, emulated, gpu,
                       mpi
  help                 this text                            COMMAND --help: the command's options

Missing Debian or Ubuntu packages are installed first (through sudo unless you are root).
Programs run in the folder you are in. INKLING_BUILD names a folder to build in, instead of
$checkout/build. CXX names the compiler.
TEXT
}

say() { printf '%s\n' "$*" >&2; }

die() {
  clear_line
  say "$@"
  exit 1
}

# progress TEXT MARK: a line that moves on a terminal; elsewhere a plain line where MARK is new.
last_mark=
progress() {
  if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then
    printf '\r\033[K%s' "$1" >&2
  elif [[ $2 != "$last_mark" ]]; then
    last_mark=$2
    say "$1"
  fi
}

clear_line() { [[ ! -t 2 || ${TERM:-dumb} == dumb ]] || printf '\r\033[K' >&2; }

# watch FILTER COMMAND...: gives FILTER each line that the command writes; returns its exit code.
watch() {
  local filter=$1 line interrupted='' codes
  shift
  trap 'interrupted=1' INT
  set +e
  "$@" 2>&1 </dev/null | while IFS= read -r line || [[ -n $line ]]; do "$filter" "$line"; done
  codes=("${PIPESTATUS[@]}")
  set -e
  trap - INT
  clear_line
  [[ -z $interrupted ]] || { say "Stopped. The next run goes on from here."; exit 130; }
  return "${codes[0]}"
}

# ---- packages

apt_line() {
  local percent
  if [[ $1 =~ ^(dl|pm)status:[^\ ]*:([0-9]+)(\.[0-9]+)?: ]]; then
    percent=$((BASH_REMATCH[2] / 2))
    [[ ${BASH_REMATCH[1]} == dl ]] || percent=$((percent + 50))
    [[ -n $listing ]] || progress "Installing: $percent %" $((percent / 10))
  elif [[ $1 == *'Waiting for cache lock'* ]]; then
    progress "Installing: waiting for another program that installs packages" wait
  else
    log+=$1$'\n'
  fi
}

# As apt-get; leaves what it said in $log. Fresh systems update themselves at their first start.
apt_get() {
  local begin=$SECONDS listing=''
  [[ $1 != update ]] || { listing=1; progress "Installing: reading the lists of packages" lists; }
  while log=; ! watch apt_line "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
      apt-get -qq -y -o DPkg::Lock::Timeout=120 -o APT::Status-Fd=1 "$@"; do
    [[ $log == *'E: Could not get lock'* && $((SECONDS - begin)) -lt 120 ]] || return 1
    progress "Installing: waiting for another program that installs packages" wait
    sleep 2
  done
}

# Shows what matters of apt's words, and says what to do.
explain_apt() {
  local package policy
  grep -E '^(E|W|Err|dpkg|sudo)\b' <<<"$log" | tail -n 5 >&2 || tail -n 5 <<<"$log" >&2
  case $log in
    *'No space left'* | *'enough free space'*)
      die "The disk is full. Free about 1 GB, then run this again." ;;
    *'E: Could not get lock'*)
      die "Another program is installing packages. Run this again when it is done." ;;
    *'Could not resolve'* | *'Failed to fetch'* | *'Could not connect'*)
      die "apt cannot fetch packages. Check the network, then run this again." ;;
  esac
  package=$(sed -nE "s/^E: (Unable to locate package |Package ')([^' ]+).*/\2/p" <<<"$log" |
    head -n 1)
  [[ -n $package ]] || die "Installing failed. The lines above say why."
  policy=$(apt-cache policy 2>/dev/null) || true
  [[ $policy != *o=Ubuntu* || $policy == *c=universe* ]] ||
    die "$package is in Ubuntu's part 'universe', which is switched off here. Switch it on" \
        "(sudo add-apt-repository universe), then run this again."
  die "This system has no package $package. inkling needs Debian 12, Ubuntu 22.04 or newer."
}

install_missing() {
  local clang='' package installed missing=() as_root=() log lists by_hand
  if ! command -v apt-get >/dev/null; then
    command -v cmake >/dev/null && command -v ninja >/dev/null && return
    die "run.sh installs packages on Debian and Ubuntu only. Install the packages that correspond" \
        "to these, then run this again: ${packages[*]}"
  fi
  # Clang's OpenMP is a package of its own.
  [[ ${CXX:-} != *clang* ]] || clang=$(major clang_major) || clang=''
  if ((${clang:-0} >= 14)) &&
      ! compiler -fopenmp -fsyntax-only -x c++ - <<<'#include <omp.h>' >/dev/null 2>&1; then
    packages+=("libomp-$clang-dev")
  fi
  # shellcheck disable=SC2016  # dpkg-query fills these in
  installed=$(dpkg-query -W -f=':${db:Status-Status} ${Package}:' "${packages[@]}" 2>&1) || true
  for package in "${packages[@]}"; do
    [[ $installed == *":installed $package:"* ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || die "Packages are missing. Ask root to run: $by_hand"
    as_root=(sudo)
  fi
  say "Installing: ${missing[*]}"
  "${as_root[@]}" true || die "sudo did not let you install packages. Ask root to run: $by_hand"
  apt_get update || true  # what someone else's archive lacks may not matter
  lists=$log
  apt_get install --no-install-recommends "${missing[@]}" || { log=$lists$log; explain_apt; }
}

# ---- building

has_gpu() {
  [[ -e /dev/nvidia0 ]] || compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null ||
    [[ -e /dev/dxg && -e /usr/lib/wsl/lib/libcuda.so.1 ]]
}

builds_cuda() { compgen -G "$folder/CMakeFiles/*/CMakeCUDACompiler.cmake" >/dev/null; }

has_toolkit() { command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; }

# cached NAME: its value in the build folder.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt" 2>/dev/null; }

compiler() {
  local words
  read -ra words <<<"${CXX:-$(command -v c++ || command -v g++ || command -v clang++ || echo c++)}"
  "${words[@]}" "$@"
}

# major GNUC|clang_major: the compiler's version, if it is of that make.
major() { compiler -dM -E -x c++ /dev/null 2>/dev/null | sed -n "s/^#define __$1__ //p"; }

check_tools() {
  local version clang gcc
  version=$(cmake --version | sed -n '1s/.* //p')
  [[ $(printf '3.22\n%s\n' "$version" | sort -V | head -n 1) == 3.22 ]] ||
    die "cmake here is $version. inkling needs 3.22 or newer (Debian 12, Ubuntu 22.04)."
  gcc=$(major GNUC) || die "There is no C++ compiler '${CXX:-c++}'. Name another one in CXX."
  clang=$(major clang_major)
  if [[ -n $clang ]]; then
    ((clang >= 14)) || die "${CXX:-c++} is clang $clang. inkling needs g++ 11, clang 14 or newer:" \
                           "name another compiler in CXX."
  elif ((gcc < 11)); then
    die "${CXX:-c++} is g++ $gcc. inkling needs g++ 11, clang 14 or newer:" \
        "name another compiler in CXX."
  fi
}

# explain WHAT LOG: says what to do after WHAT failed.
explain() {
  local full=''
  # cmake does not say why it could not write.
  full=$(df -Pk "$folder" "${TMPDIR:-/tmp}" | awk 'NR > 1 && $4 < 5000 { print "No space left" }')
  case $2$full in
    *'No space left'*)
      die "The disk of $folder or of ${TMPDIR:-/tmp} is full. Free about 1 GB, or name another" \
          "folder to build in: INKLING_BUILD=FOLDER $name ..." ;;
    *Killed*) die "Memory ran out. Close other programs, then run this again." ;;
  esac
  die "$1 failed. The lines above say why."
}

# Must the build folder be configured with these options?
differs() {
  local option
  [[ $folder/build.ninja -nt $checkout/CMakePresets.json ]] || return 0
  for option; do
    [[ $(cached "${option%%=*}") == "${option#*=}" ]] || return 0
    [[ $option != INKLING_CUDA=AUTO ]] || builds_cuda || ! has_toolkit || return 0
  done
  return 1
}

# configure PRESET [NAME=VALUE...]
configure() {
  local preset=$1 options=("${@:2}") log
  folder=$(realpath -m "${INKLING_BUILD:-$checkout/build}")/$preset
  { mkdir -p "$folder" && [[ -w $folder ]]; } 2>/dev/null ||
    die "run.sh cannot write to $folder. Name another folder to build in:" \
        "INKLING_BUILD=/tmp/inkling $name ..."
  if [[ -e $folder/CMakeCache.txt ]] && { [[ ! $(cached CMAKE_HOME_DIRECTORY) -ef $checkout ]] ||
      [[ -n ${CXX:-} && ! $(cached CMAKE_CXX_COMPILER) -ef $(command -v "${CXX%% *}") ]]; }; then
    # Made for another checkout, or by another compiler.
    rm -rf "$folder"/{CMakeCache.txt,CMakeFiles,build.ninja}
  fi
  if [[ ! -e $folder/build.ninja ]]; then
    check_tools
    # ccache knows nothing of precompiled headers.
    [[ ${options[*]} == *CMAKE_CXX_COMPILER_LAUNCHER=* ]] || ! command -v ccache >/dev/null ||
      options+=(CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
    [[ $preset != release || ${options[*]} == *INKLING_CUDA=* ]] || has_gpu ||
      options+=(INKLING_CUDA=OFF)
  elif ! differs "${options[@]}"; then
    return 0
  fi
  progress "Building: looking for the compiler and libraries" tools
  if ! log=$(cd "$checkout" &&
      cmake --preset "$preset" -B "$folder" "${options[@]/#/-D}" 2>&1); then
    clear_line
    sed -n '/CMake Error/,$p' <<<"$log" >&2
    explain Configuring "$log"
  fi
}

# ninja's status lines begin with @@ and have: steps done, steps in all, the step.
ninja_line() {
  local finished total step mark left='' elapsed=$((SECONDS - begin))
  case $1 in
    '@@ '*)
      read -r _ finished total step <<<"$1"
      [[ $step != Re-* ]] || return 0  # Re-checking globbed directories, Re-running CMake
      if ((elapsed >= 5 && finished > 0)); then
        left=$((elapsed * (total - finished) / finished))
        left=", about $((left / 60)):$(printf %02d $((left % 60))) left"
      fi
      mark=$((10 * finished / total))${left:+ with time}
      progress "Building: $finished of $total$left" "$mark" ;;
    'ninja: Entering directory'* | 'ninja: no work to do.' | '-- '*) ;;
    *)
      clear_line
      say "$1"
      log+=$1$'\n' ;;
  esac
}

# build [TARGET]: says nothing where there is nothing to do.
build() {
  local log='' begin=$SECONDS code=0 lock
  if command -v flock >/dev/null; then  # another terminal may build here, too
    exec {lock}>"$folder/run.lock"
    flock -n "$lock" || { progress "Building: waiting for another run.sh" lock; flock "$lock"; }
  fi
  local -x NINJA_STATUS='@@ %f %t '
  watch ninja_line ninja -C "$folder" "$@" || code=$?
  if [[ $code -ne 0 && $log == *Killed* ]]; then
    say "Memory ran out. Building one file at a time:"
    log='' begin=$SECONDS code=0
    watch ninja_line ninja -C "$folder" -j 1 "$@" || code=$?
  fi
  [[ $code -eq 0 ]] || (explain Building "$log") || exit "$code"
  [[ -z ${lock:-} ]] || exec {lock}>&-
}

# ---- commands

# run_program COMMAND [options]: built in the checkout, run where the user stands.
run_program() {
  local options=() targets=(inkling)
  case $1 in
    train | sample | eval | report | info) ;;
    *) targets+=(inkling_tools) ;;  # the other commands are in a program of their own
  esac
  [[ " $* " != *' --device'[\ =]cuda* ]] || ! has_toolkit || options=(INKLING_CUDA=AUTO)
  install_missing
  configure release "${options[@]}"
  build "${targets[@]}"
  exec -a "$name" "$folder/inkling" "$@"
}

# train_together N [options]: N processes on this machine, which share its cores.
train_together() {
  local cores
  [[ ${1:-} =~ ^[1-9][0-9]{0,3}$ ]] || misused "expected train --processes N, got '${1:-nothing}'"
  packages+=("${mpi_packages[@]}")
  install_missing
  configure mpi
  build inkling
  cores=$(nproc)
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > $1 ? cores / $1 : 1))}
  # Not bound: two threads of a process would get one core.
  local options=(--oversubscribe --bind-to none) process code stopped=''
  [[ $(id -u) -ne 0 ]] || options+=(--allow-run-as-root)
  # What mpirun is asked to stop, it kills a moment later. USR1 it passes on, and waits for the end.
  setsid mpirun "${options[@]}" -n "$1" "$folder/inkling" train "${@:2}" </dev/null &
  process=$!
  trap 'stop_together 130' INT
  trap 'stop_together 143' TERM HUP
  while code=0; wait "$process" || code=$?; kill -0 "$process" 2>/dev/null; do :; done
  exit "${stopped:-$code}"
}

# stop_together CODE: saves; the second time, ends at once.
stop_together() {
  if [[ -z $stopped ]]; then kill -USR1 "$process"; else kill "$process"; fi 2>/dev/null || true
  stopped=$1
}

# run_tests PRESET [options for ctest]
run_tests() {
  install_missing
  configure "$1"
  build
  exec ctest --test-dir "$folder" --output-on-failure -LE slow -j "$(nproc)" "${@:2}"
}

# test_named NAME [options for GoogleTest]: builds and runs the test programs of that name, the
# tests that have it in theirs (softmax as Softmax), and the rows of ops and layers.
test_named() {
  local cases=$checkout/train/cases snake pascal='' op layer word source program tests failed='' i
  local only=() programs=() filters=()
  snake=$(sed -E 's/([A-Z])([A-Z][a-z])/\1_\2/g; s/([a-z0-9])([A-Z])/\1_\2/g; s/.*/\L&/' <<<"$1")
  for word in ${snake//_/ }; do pascal+=${word^}; done
  [[ $snake =~ ^[a-z0-9_]+$ ]] || misused "expected the name of an op, a layer or a test, got '$1'"
  install_missing
  configure release
  build build.ninja  # which then knows of new files
  op="[a-z_.]*$snake"  # of a layer of exactly this name only its op: Scaled, not scaled_dot_...
  ! grep -qi "\"$pascal\"" "$cases/module_cases.cpp" || op="$snake[.\"]"
  ! grep -qE "^ *\\{\"$op" "$cases/op_cases.cpp" ||
    { only+=("$snake"); programs+=(test_ops); filters+=("*_$snake*"); }
  # As it is spelt: RMSNorm for rms_norm.
  layer=$(grep -oiE "\"[A-Za-z]*$pascal" "$cases/module_cases.cpp" | grep -oim 1 "$pascal") &&
    only+=("$layer")
  for source in "$checkout"/tests/*/test_*.cpp; do
    program=${source##*/} program=${program%.cpp}
    grep -q "^build $program: phony" "$folder/build.ninja" || continue  # not in this build
    if [[ ${program}_ == test_*"_${snake}_"* || $program == "test_$snake" ]]; then
      tests='*'
    else
      tests=$(sed -nE "s/^TEST(_[FP])?\((\w*), (\w*)\).*/*\2.\3*/p" "$source" |
        grep -E "($pascal|${layer:-$pascal})([^a-z]|$)" | tr '\n' :) || continue
    fi
    programs+=("$program")
    filters+=("$tests")
  done
  ((${#programs[@]} + ${#only[@]} > 0)) || misused "no op, layer or test has '$1' in its name"
  build ${only:+inkling inkling_tools} "${programs[@]}"
  for word in "${only[@]}"; do
    say "== gradients of $word"
    "$folder/inkling" gradcheck --second --only "$word" || failed=1
  done
  cd "$checkout"
  for i in "${!programs[@]}"; do
    say "== ${programs[i]}"
    "$folder/tests/${programs[i]}" --gtest_brief=1 --gtest_filter="${filters[i]}" "${@:2}" ||
      failed=1
  done
  [[ -z $failed ]] || die "Tests of $1 failed. The lines above say which."
  say "All tests of $1 passed."
  [[ ${programs[*]} == *test_ops* ]] ||
    ! grep -qsE "^[A-Za-z]+ $snake\(" "$checkout"/autograd/{,basic_,fused_,more_}ops.h ||
    say "Its gradients were not checked: train/cases/op_cases.cpp has no row \"$snake\"."
}

# check_once NN FILE: compiles what the reader wrote, and runs it.
check_once() {
  local text
  while text=$(<"$2") && build "exercise_$1" && [[ $(<"$2") != "$text" ]]; do
    # It was saved meanwhile.
    rm -f "$folder/CMakeFiles/exercise_$1.dir/exercises/"*.o "$folder/exercise_$1.o"
  done
  "$folder/exercise_$1" "$2"
}

# check_exercise NAME --check: says what is right in what the reader wrote. With --watch: again
# whenever the file is saved, until all is right. With --device cuda: on a GPU, by nvcc.
check_exercise() {
  local file='' word='' on_card='' watch='' pattern saved now code
  for pattern; do
    case $pattern in
      --check | --device) ;;
      --watch) watch=1 ;;
      --device=cuda | cuda) on_card=_card ;;
      *) [[ -z $word && $pattern != -* ]] || return 0
         word=$pattern ;;
    esac
  done
  [[ -n $word ]] || return 0  # the program says what is wrong
  for pattern in "$word" "*_$word" "${word}_*" "0${word}_*"; do
    [[ -n $file ]] || file=$(compgen -G "$checkout/exercises/$pattern.c[pu]*") || true
  done
  [[ -f $file ]] ||
    { say "run.sh: exercises/ has no '$word' yet. To set it up: $name exercise $word"; exit 2; }
  prepare_exercise "$file"
  word=${file##*/} word=${word%%_*}$on_card
  if [[ -n $on_card ]]; then
    [[ $file == *.cu ]] || misused "--device cuda is for kernels, and ${file##*/} holds none"
    has_toolkit || die "--device cuda needs CUDA's toolkit (nvcc), which is not found here. Leave it" \
                       "out: the emulator needs neither toolkit nor GPU."
    grep -q "exercise_$word" "$folder/build.ninja" ||  # the toolkit came later
      { rm -f "$folder/build.ninja"; configure release; }
  fi
  if [[ -z $watch ]]; then
    check_once "$word" "$file"
    exit
  fi
  while :; do
    saved=$(stat -c '%y %i %s' "$file" 2>/dev/null) code=0 || true
    [[ ! -t 1 || ${TERM:-dumb} == dumb ]] || printf '\033[H\033[2J\033[3J'
    (check_once "$word" "$file") || code=$?
    [[ $code != 0 && $code != 130 ]] || exit "$code"
    say "Save exercises/${file##*/}, and it is checked again. Ctrl-C ends this."
    until now=$(stat -c '%y %i %s' "$file" 2>/dev/null) && [[ $now != "$saved" ]]; do
      sleep 0.3
    done
  done
}

# prepare_exercise FILE: configures for it. Kernels run on the emulator.
prepare_exercise() {
  local options=()
  [[ $1 != *.cu ]] || { packages+=(libboost-context-dev); options=(INKLING_EMULATOR=ON); }
  install_missing
  configure release "${options[@]}"
}

# Those that changed since they were solved.
check_changed() {
  local number file
  [[ -e $checkout/exercises/progress.txt ]] || return 0
  install_missing
  configure release
  build inkling inkling_tools
  for number in $("$folder/inkling" exercise --changed --checkout "$checkout"); do
    printf -v number %02d "$number"
    file=$(compgen -G "$checkout/exercises/${number}_*.c[pu]*")
    prepare_exercise "$file"
    say "${file##*/} changed since it was solved: checking it again"
    (check_once "$number" "$file") >/dev/null || true
  done
}

build_only() {
  local preset=release options=() option
  [[ ${1:--} == -* ]] || { preset=$1; shift; }
  case $preset in
    release | debug | tsan | portable | gpu) ;;
    asan | emulated) packages+=(libboost-context-dev) ;;
    mpi) packages+=("${mpi_packages[@]}") ;;
    *) misused "there is no preset '$preset'" ;;
  esac
  for option; do
    [[ $option == -D?*=* ]] || misused "build takes -DNAME=VALUE, got '$option'"
    options+=("${option#-D}")
  done
  install_missing
  configure "$preset" "${options[@]}"
  build
}

make_docs() {
  local to
  to=$(realpath -m "${INKLING_BUILD:-$checkout/build}")/docs
  command -v doxygen >/dev/null ||
    die "doxygen is missing. Install it, for instance by: apt-get install doxygen"
  mkdir -p "$to"
  cd "$checkout"
  { cat cmake/Doxyfile; echo "OUTPUT_DIRECTORY = \"$to\""; } | doxygen - ||
    die "The reference has faults. The lines above say where."
  say "The reference begins at $to/index.html"
}

# What to type for another program's command: a row of the table, in which {look} is "./run.sh look".
foreign_command() {
  local word=${command%.py} text=''
  word=${word//-/_}
  if [[ $command == *.py && $word =~ ^(train|sample|bench)$ ]]; then
    text="; type {$word}"
  elif [[ $word =~ ^[A-Za-z0-9_]+$ ]]; then
    text=$(sed -nE "s/^ *\\{\"$word\", \"([^\"]*)\"\}.*/; \1/p" \
      "$checkout/train/cli/other_names.cpp" 2>/dev/null) || text=""
  fi
  text=${text//\{/$name }
  printf '%s' "${text//\}/}"
}

misused() {
  say "run.sh: $1. Try: $name help"
  exit 2
}

((BASH_VERSINFO[0] >= 5)) || die "run.sh needs bash 5 or newer."
command=${1:-help}
case $command in
  train)
    for ((at = 2; at <= $#; ++at)); do
      n=$((at + 1))
      [[ ${!at} != --processes ]] || train_together "${!n:-}" "${@:2:at-2}" "${@:at+2}"
      [[ ${!at} != --processes=* ]] || train_together "${!at#*=}" "${@:2:at-2}" "${@:at+1}"
    done
    run_program "$@"
    ;;
  sample | eval | report | look | draw | bench | gradcheck | info | seedhunt | tokenizer | \
    prepare | suggest)
    run_program "$@"
    ;;
  lesson | walkthrough) run_program "$@" --checkout "$checkout" ;;
  exercise)
    [[ ! " $* " =~ ' --'('check '|'watch '|device[\ =]'cuda ') ]] || check_exercise "${@:2}"
    (($# > 1)) || check_changed
    run_program "$@" --checkout "$checkout"
    ;;
  build) build_only "${@:2}" ;;
  test)
    if [[ ${2:--} == -* ]]; then run_tests release "${@:2}"; else test_named "${@:2}"; fi
    ;;
  docs)
    [[ ${2:-} != --help ]] || { usage; exit 0; }
    (($# == 1)) || misused "docs takes no options, got '$2'"
    make_docs
    ;;
  new) INKLING_RUN=$name exec "$BASH" "$checkout/train/cases/new.sh" "${@:2}" ;;
  test-asan)
    packages+=(libboost-context-dev)  # fibers, which emulate a GPU's threads
    run_tests asan "${@:2}"
    ;;
  help | -h | --help) usage ;;
  *) misused "there is no command '$command'$(foreign_command)" ;;
esac
