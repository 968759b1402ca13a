#!/usr/bin/env bash
# What run.sh says and does, among programs that pretend: needs no network, root, or compiler.
# shellcheck disable=SC2016,SC2028  # the pretenders' texts are theirs to expand
set -euo pipefail
# A job in the background ignores Ctrl-C, and so would all that it starts; one case sends it.
[[ -n ${INTERRUPTIBLE:-} ]] ||
  INTERRUPTIBLE=1 exec env --default-signal=INT "$BASH" "${BASH_SOURCE[0]}" "$@"
source_folder=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin checkout="$work/my föllder/ink" user="$work/user's folder"
mkdir -p "$bin" "$checkout" "$user"
cp "$source_folder"/{run.sh,CMakePresets.json} "$checkout"
export calls=$work/calls bash locked=$work/locked  # calls: what the pretenders were asked
bash=$(command -v bash)
for tool in awk bash cat chmod dirname env grep head ln mkdir nproc readlink realpath rm sed setsid \
            sort stat tail tr; do
  ln -s "$(command -v $tool)" "$bin/$tool"
done

# fake NAME: a program whose text is read here.
fake() {
  { printf '#!%s\necho "%s $*" >>"$calls"\n' "$bash" "$1"; cat; } >"$bin/$1"
  chmod +x "$bin/$1"
}
fake id <<<'echo "${ID:-0}"'
fake sleep <<<''
fake df <<<'printf "head\n/dev/a 9 9 ${FREE:-9999999} 9%% /\n"'
fake sudo <<<'[[ -z ${SUDO_SAYS:-} ]] || { echo "$SUDO_SAYS" >&2; exit 1; }; "$@"'
fake dpkg-query <<<'for p; do echo ":${MISSING:+not-}installed $p:"; done'
fake apt-cache <<<'echo "${POLICY:-o=Debian}"'
fake apt-get <<'END'
[[ " $* " == *" install "* ]] || exit 0
if [[ -n ${LOCKED:-} && ! -e $locked ]]; then
  echo >"$locked"
  echo "E: Could not get lock /var/lib/apt/lists/lock"
  exit 100
fi
for percent in 0 4.5 55 100; do echo "dlstatus:1:$percent:Retrieving"; done
for percent in 0.5 21.2 22.2 100; do echo "pmstatus:libc6:amd64:$percent:Unpacking"; done
[[ -z ${APT_SAYS:-} ]] || { printf 'Reading lists\n%s\n' "$APT_SAYS"; exit 100; }
END
fake c++ <<<'echo "#define __GNUC__ ${GCC:-11}"'
fake clang++ <<<'[[ $* != *-fopenmp* || -z ${NO_OMP:-} ]] || exit 1
  printf "#define __GNUC__ 4\n#define __clang_major__ ${CLANG:-14}\n"'
fake cmake <<'END'
[[ $1 != --version ]] || { echo "cmake version ${CMAKE:-3.22.1}"; exit; }
[[ -z ${CMAKE_SAYS:-} ]] || { printf -- '-- chatter\nCMake Error: %s\n' "$CMAKE_SAYS"; exit 1; }
{
  echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD"
  echo "CMAKE_CXX_COMPILER:FILEPATH=$(type -P "${CXX:-c++}")"
  for option in "${@:5}"; do option=${option#-D}; echo "${option%%=*}:STRING=${option#*=}"; done
} >"$4/CMakeCache.txt"
printf 'build %s: phony\n' test_ops test_fused test_bpe >"$4/build.ninja"
mkdir -p "$4/CMakeFiles/3"
[[ $* != *INKLING_CUDA=AUTO* ]] || echo >"$4/CMakeFiles/3/CMakeCUDACompiler.cmake"
END
fake ninja <<'END'
ln -sf "$bash" "$2/inkling"
mkdir -p "$2/tests"
for program in test_ops test_fused test_bpe; do
  printf '#!%s\necho "%s in $PWD $*"\nexit ${TEST_CODE:-0}\n' "$bash" $program >"$2/tests/$program"
  chmod +x "$2/tests/$program"
done
ln -sf "${calls%/*}/answer" "$2/exercise_05"
echo "ninja: Entering directory \`$2'"
case ${NINJA_SAYS:-} in
  '') printf '@@ 0 1 Re-checking globbed directories...\nninja: no work to do.\n' ;;
  steps) for ((i = 1; i <= 40; ++i)); do echo "@@ $i 40 Building CXX object x.o"; done ;;
  forever)
    trap 'echo "ninja: build stopped: interrupted by user."; echo stopped >>"$calls"; exit 2' INT
    echo ready >>"$calls"
    while :; do echo "@@ 1 2 Building CXX object x.o"; done ;;
  *) printf '@@ 1 2 Building CXX object x.o\n%s\n' "$NINJA_SAYS" ;;
esac
exit "${NINJA_CODE:-0}"
END
fake mpirun <<<'echo "with $OMP_NUM_THREADS threads: $*"'
fake ctest <<<'echo "ctest in $PWD"'
# A reader's answer to an exercise.
printf '#!%s\necho "checked by ${0##*/}"\n' "$bash" >"$work/answer"
chmod +x "$work/answer"
# The program is bash, and its command a script: says where it stands and how it was called.
echo 'echo "in $PWD as $(tr "\0" "|" </proc/$$/cmdline)"' | tee "$user/train" "$user/exercise" >"$user/sample"

echo 'echo "gradients $*"' >"$user/gradcheck"
# What `test NAME` looks at.
mkdir -p "$checkout"/{tests/autograd,train/cases,train/cli}
cp "$source_folder"/train/cli/other_names.cpp "$checkout/train/cli"
printf '      {"soft_max", one()},\n' >"$checkout/train/cases/op_cases.cpp"
printf '  one_input("%s", ...)\n' SoftMax2d RMSNorm >"$checkout/train/cases/module_cases.cpp"
printf 'TEST(Fused, SoftMaxIsRight) {\nTEST(Fused, SoftMaximum) {\nTEST_P(SoftMax, Sums) {\n' \
  >"$checkout/tests/autograd/test_fused.cpp"
for program in ops bpe cuda; do echo 'TEST(A, B) {' >"$checkout/tests/autograd/test_$program.cpp"; done

failures=0
fail() { printf 'FAILED %s: %s\n%s\n' "$case_name" "$1" "$out"; failures=$((failures + 1)); }
# run NAME [VARIABLE=VALUE...] -- ARGUMENTS: sets out and code.
run() {
  local settings=()
  case_name=$1
  shift
  while [[ $1 != -- ]]; do settings+=("$1"); shift; done
  : >"$calls"
  code=0
  out=$(cd "$user" && env -i PATH="$bin" calls="$calls" bash="$bash" locked="$locked" \
    "${settings[@]}" "../my föllder/ink/run.sh" "${@:2}" 2>&1) || code=$?
}
afresh() { rm -rf "$checkout/build" "$work/elsewhere"; }
expect() { [[ $code == "$1" ]] || fail "exit code $code, not $1"; has "${@:2}"; }
has() { local text; for text; do [[ $out == *"$text"* ]] || fail "should say: $text"; done; }
lacks() { [[ $out != *"$1"* ]] || fail "should not say: $1"; }
called() { grep -q -- "$1" "$calls" || fail "should have called: $1"; }
not_called() { ! grep -q -- "$1" "$calls" || fail "should not have called: $1"; }
last_line() { [[ ${out##*$'\n'} == "$1" ]] || fail "should end with: $1"; }

# ---- commands
run usage -- fly; expect 2; last_line \
  "run.sh: there is no command 'fly'. Try: ../my föllder/ink/run.sh help"
run usage -- fine-tune; expect 2; last_line "run.sh: there is no command 'fine-tune'; type ../my \
föllder/ink/run.sh train --init_from FOLDER --data FILE --out_dir NEW. Try: ../my föllder/ink/run.sh help"
run usage -- train.py; expect 2 "type ../my föllder/ink/run.sh train."
run usage -- build nonsense; expect 2 "no preset 'nonsense'"
run usage -- build debug -Werror; expect 2 "-DNAME=VALUE, got '-Werror'"; not_called ^cmake
run help -- help; expect 0 'test-asan'

# ---- exercises
run 'no exercise' -- exercise 5 --check; expect 2
last_line "run.sh: exercises/ has no '5' yet. To set it up: ../my föllder/ink/run.sh exercise 5"
not_called ^ninja
mkdir "$checkout/exercises"
echo >"$checkout/exercises/05_softmax.cpp"
for exercise in 5 05 softmax 05_softmax; do
  run "exercise $exercise" -- exercise "$exercise" --check; expect 0 "checked by exercise_05"
  called '^ninja .* exercise_05$'
done
run 'check first' -- exercise --check 5; expect 0 "checked by exercise_05"
run 'set up' -- exercise 5
expect 0 "as ../my föllder/ink/run.sh|exercise|5|--checkout|$checkout|"
# Each time the file is saved, until all is right: the second time.
printf '#!%s\necho "answer of $1"\n[[ -e $calls.wrong ]] || { echo >"$calls.wrong"; exit 1; }\n' \
  "$bash" >"$work/answer"
fake sleep <<<'echo "// saved" >>"$file"'
run watch file="$checkout/exercises/05_softmax.cpp" -- exercise 5 --watch
expect 0 "answer of $checkout/exercises/05_softmax.cpp" "Save exercises/05_softmax.cpp, and it is"
[[ $(grep -c exercise_05 "$calls") == 2 && $(grep -c . "$checkout/exercises/05_softmax.cpp") == 1 ]] ||
  fail "should have checked twice, after one change"
run 'no exercise' -- exercise 6 --watch; expect 2
fake sleep <<<''
# The list checks those again that changed since they were solved.
mv "$user/exercise" "$user/list"
echo '[[ $1 == --changed ]] && echo 5 || echo listed' >"$user/exercise"
run 'nothing solved' -- exercise; expect 0 listed; lacks "checking it again"
echo >"$checkout/exercises/progress.txt"
run 'a changed file' -- exercise; expect 0 "05_softmax.cpp changed since it was solved" listed
called '^ninja .* exercise_05$'; lacks "answer of"
mv "$user/list" "$user/exercise"
rm -r "$checkout/exercises"

# ---- installing
install='apt-get update && apt-get install --no-install-recommends g++ cmake ninja-build'
run 'no sudo' MISSING=1 ID=7 SUDO_SAYS=x -- train; expect 1 "Ask root to run: $install"
mv "$bin/sudo" "$bin/no-sudo"
run 'neither root nor sudo' MISSING=1 ID=7 -- train; expect 1
[[ $out == "Packages are missing. Ask root to run: $install"* ]] || fail 'one sentence'
not_called ^apt-get
mv "$bin/no-sudo" "$bin/sudo"
run 'a password' MISSING=1 ID=7 SUDO_SAYS='sudo: a password is required' -- train
expect 1 'sudo: a password is required' "sudo did not let you install packages. Ask root to run:"
not_called ^apt-get
run offline MISSING=1 APT_SAYS="E: Failed to fetch http://x  Could not resolve 'x'" -- train
expect 1 'E: Failed to fetch'; lacks 'Reading lists'
last_line 'apt cannot fetch packages. Check the network, then run this again.'
run 'old system' MISSING=1 APT_SAYS='E: Unable to locate package libfmt-dev' -- train
expect 1 'has no package libfmt-dev. inkling needs Debian 12, Ubuntu 22.04 or newer.'
run universe MISSING=1 POLICY='o=Ubuntu,c=main' -- train; expect 0
run universe MISSING=1 POLICY='o=Ubuntu,c=main' \
  APT_SAYS="E: Package 'libfmt-dev' has no installation candidate" -- train
expect 1 "libfmt-dev is in Ubuntu's part 'universe'" 'sudo add-apt-repository universe'
run 'no space' MISSING=1 APT_SAYS='dpkg: error: failed to write (No space left on device)' -- train
expect 1 'dpkg: error'; last_line 'The disk is full. Free about 1 GB, then run this again.'
not_called ^cmake
afresh
run lock MISSING=1 LOCKED=1 ID=7 -- train
expect 0 'waiting for another program'; called 'sudo env .*DPkg::Lock::Timeout=120'
run progress MISSING=1 -- train
has 'Installing: g++' $'Installing: 0 %\nInstalling: 27 %\nInstalling: 50 %\nInstalling: 60 %'
lacks '61 %'; has 'Installing: 100 %'

# ---- several processes
run 'without a number' -- train --processes; expect 2 "expected train --processes N, got 'nothing'"
run 'no number' -- train --processes two; expect 2 "expected train --processes N, got 'two'"
run processes -- train --processes 2 --seed 3
has '--bind-to none' "--allow-run-as-root -n 2 $checkout/build/mpi/inkling train --seed 3"
has "with $(($(nproc) > 2 ? $(nproc) / 2 : 1)) threads"
called '^dpkg-query .*openmpi-bin'
run 'processes after other options' -- train --seed 3 --processes 2 --bias
has "-n 2 $checkout/build/mpi/inkling train --seed 3 --bias"
run 'processes with =' -- train --seed 3 --processes=2 --bias
expect 0 "train --seed 3 --bias"; has "-n 2 "
run 'at the end, without a number' -- train --seed 3 --processes
expect 2 "expected train --processes N, got 'nothing'"
run 'as a user, with threads' ID=7 OMP_NUM_THREADS=5 -- train --processes 3; expect 0 'with 5 threads'
lacks allow-run-as-root
not_called '^ninja .* inkling_tools'

# ---- other systems
mv "$bin/apt-get" "$bin/no-apt"
afresh; run 'not Debian' -- train; expect 0
mv "$bin/cmake" "$bin/no-cmake"
run 'not Debian, no cmake' -- train; expect 1 'on Debian and Ubuntu only. Install the packages that'
mv "$bin/no-apt" "$bin/apt-get"; mv "$bin/no-cmake" "$bin/cmake"

# ---- compilers
afresh
run 'old cmake' CMAKE=3.9.6 -- train; expect 1 'cmake here is 3.9.6. inkling needs 3.22'
run 'old g++' GCC=10 -- train; expect 1 'c++ is g++ 10. inkling needs g++ 11, clang 14 or newer'
run 'old clang' CXX=clang++ CLANG=13 NO_OMP=1 MISSING=1 -- train
expect 1 'clang++ is clang 13'; lacks libomp
run 'no compiler' CXX=g++-99 -- train; expect 1 "There is no C++ compiler 'g++-99'."
not_called '^cmake --preset'
run 'new clang' CXX=clang++ GCC=10 -- train; expect 0
run 'clang without OpenMP' CXX=clang++ CLANG=17 NO_OMP=1 MISSING=1 -- train
expect 0 'libgtest-dev libomp-17-dev'
run 'clang with OpenMP' CXX=clang++ CLANG=17 MISSING=1 -- train; lacks libomp
run 'another compiler' CXX=c++ -- train; expect 0; called '^cmake --preset'

# ---- configuring
afresh
run errors CMAKE_SAYS='no fmt' -- train; expect 1 'CMake Error: no fmt'; lacks chatter
last_line 'Configuring failed. The lines above say why.'
run 'full disk' CMAKE_SAYS='no words' FREE=7 -- train; expect 1 'no words'; last_line \
  "The disk of $checkout/build/release or of /tmp is full. Free about 1 GB, or name another folder$(
  ) to build in: INKLING_BUILD=FOLDER ../my föllder/ink/run.sh ..."
run fresh -- train; expect 0; called '^cmake --preset release .*-DINKLING_CUDA=OFF'
run again -- train; not_called ^cmake; called '^ninja -C .*/release inkling$'
[[ $out == "in $user as ../my föllder/ink/run.sh|train|" ]] ||
  fail 'the program alone should speak, in the folder of the user'
run 'a tool' -- lesson; called '^ninja -C .*/release inkling inkling_tools$'
run options -- build release -DINKLING_WERROR=ON; expect 0
called '-DINKLING_WERROR=ON'
run options -- build release -DINKLING_WERROR=ON; not_called ^cmake; [[ -z $out ]] || fail silence
run 'keeps its options' -- test; expect 0 "ctest in $user"; not_called ^cmake
run 'options of ctest' -- test -R x; expect 0; called '^ctest .*-R x'
run 'an op' -- test soft_max; expect 0 'gradients --second --only soft_max' \
  'gradients --second --only SoftMax' 'test_fused in' \
  "test_ops in $checkout --gtest_brief=1 --gtest_filter=*_soft_max*" \
  '--gtest_filter=*Fused.SoftMaxIsRight*:*SoftMax.Sums*:'
called '^ninja -C .*/release inkling inkling_tools test_ops test_fused$'
lacks SoftMaximum; lacks test_bpe; not_called ^ctest
run 'a layer' -- test SoftMax --gtest_repeat=2; expect 0 'only SoftMax' 'repeat=2'
for spelt in RMSNorm rms_norm; do run 'a layer' -- test $spelt; expect 0 'only RMSNorm'; done
run 'a program' -- test bpe; expect 0 "test_bpe in $checkout --gtest_brief=1 --gtest_filter=*"
called '^ninja -C .*/release test_bpe$'; lacks gradients
lacks 'no row'
mkdir "$checkout/autograd"; echo 'Tensor fused(const Tensor& x);' >"$checkout/autograd/ops.h"
run 'an op without a row' -- test fused; expect 0
last_line 'Its gradients were not checked: train/cases/op_cases.cpp has no row "fused".'
run 'a failing test' TEST_CODE=1 -- test bpe
expect 1; last_line 'Tests of bpe failed. The lines above say which.'
run 'no such name' -- test nonsense; expect 2 "no op, layer or test has 'nonsense' in its name"
run 'not in this build' -- test cuda; expect 2 "no op, layer or test has 'cuda' in its name"
afresh; run fresh -- train
fake nvcc <<<''
run 'a toolkit' -- train; not_called ^cmake
run 'a toolkit' -- sample --device cuda:0; called 'cmake .*-DINKLING_CUDA=AUTO'
rm "$bin/nvcc"
sleep 0.01; echo >>"$checkout/CMakePresets.json"
run 'new presets' -- train; called '^cmake --preset'
sed -i 's|^CMAKE_HOME_DIRECTORY.*|CMAKE_HOME_DIRECTORY:INTERNAL=/gone|' \
  "$checkout/build/release/CMakeCache.txt"
run moved -- train; expect 0; called '^cmake --preset'
afresh; echo >"$checkout/build"  # root may write anywhere, but not into a file
run 'read-only' -- train; expect 1 'cannot write to' 'INKLING_BUILD=/tmp/inkling ../my föllder/ink'
run 'read-only' INKLING_BUILD=../elsewhere -- train; expect 0
called "cmake --preset release -B $work/elsewhere/release"

# ---- building
afresh
run steps NINJA_SAYS=steps -- train
has 'Building: 1 of 40' 'Building: 4 of 40' 'Building: 40 of 40'; lacks 'Building: 5 of'
run warnings NINJA_SAYS='x.cpp:1: warning: odd' -- build; expect 0 'x.cpp:1: warning: odd'
run errors NINJA_SAYS='x.cpp:1: error: odd' NINJA_CODE=3 -- build
expect 3 'error: odd'; last_line 'Building failed. The lines above say why.'
run 'no space' NINJA_SAYS='fatal error: No space left on device' NINJA_CODE=1 -- build
expect 1 "The disk of $checkout/build/release or of /tmp is full."
run memory NINJA_SAYS='fatal error: Killed signal terminated program cc1plus' NINJA_CODE=1 -- build
expect 1 'Memory ran out. Building one file at a time:' 'Memory ran out. Close other programs'
called '^ninja .* -j 1'

set -m  # a process group of its own, which Ctrl-C reaches as a whole
: >"$calls"
env PATH="$bin" NINJA_SAYS=forever "$checkout/run.sh" build >"$work/out" 2>&1 &
for _ in {1..600}; do grep -q ready "$calls" && break; sleep 0.1; done
kill -INT -- -$!
code=0; wait $! || code=$?
case_name=Ctrl-C out=$(cat "$work/out")
expect 130; called stopped; last_line 'Stopped. The next run goes on from here.'

fake mpirun <<<'trap "echo saved; exit 138" USR1; trap "echo ended; exit 1" TERM
  [[ $OMP_NUM_THREADS == 1 ]] || trap "" USR1; echo ready >>"$calls"; while :; do :; done'
for keys in 1 2; do  # mpirun passes USR1 on; SIGINT would let it kill what saves
  : >"$calls"
  env PATH="$bin" OMP_NUM_THREADS=$keys "$checkout/run.sh" train --processes 2 >"$work/out" 2>&1 &
  for _ in {1..600}; do grep -q ready "$calls" && break; sleep 0.1; done
  for ((i = 0; i < keys; ++i)); do kill -INT -- -$!; sleep 0.5; done
  code=0; wait $! || code=$?
  case_name="Ctrl-C in several processes, $keys" out=$(cat "$work/out")
  expect 130; last_line "$([[ $keys == 1 ]] && echo saved || echo ended)"
done

if script -qec true /dev/null </dev/null >/dev/null 2>&1; then  # a bare system may have no terminals
  settings=(PATH="$bin" TERM=xterm SHELL=/bin/sh NINJA_SAYS=steps run="$checkout/run.sh")
  case_name=terminal script=$(command -v script)
  out=$(env "${settings[@]}" "$script" -qec '"$run" build' /dev/null </dev/null) || true
  has $'\r\e[KBuilding: 5 of 40' $'40 of 40\r\e[K'
fi
((failures == 0)) && echo "run.sh says what it should."
