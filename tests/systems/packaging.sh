#!/usr/bin/env bash
# usage: tests/systems/packaging.sh [WORK]
# inkling as a part of other projects (tests/consumer): add_subdirectory with shared libraries, Debug, assertions and
# make; FetchContent with static ones; an installed and moved one of shared libraries. Neither may need fmt,
# build or install the program, choose the build type, or write to inkling's sources. CMAKE names another cmake.
set -euo pipefail
cmake=${CMAKE:-cmake}
work=${1:-$(mktemp -d)}
mkdir -p "$work"
work=$(realpath "$work")
source="$work/inkling's source"  # a path that a script may stumble over
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

failed() {
  printf '%s: %s\n' "$title" "$1"
  exit 1
}

# project TITLE FOLDER [options for cmake]: configures, builds and tests the consumer in WORK/FOLDER.
project() {
  title=$1 folder=$work/$2
  printf '%s\n' "$title"
  rm -rf "$folder"
  {
    $cmake -S "$source/tests/consumer" -B "$folder" "${@:3}" &&
    $cmake --build "$folder" -j "$(nproc)" &&
    (cd "$folder" && "${cmake%cmake}ctest" -C Debug --output-on-failure)
  } >"$work/log" 2>&1 || { tail -n 30 "$work/log"; failed "see $work/log"; }
  ! grep -E 'CMake (Deprecation )?Warning|warning:' "$work/log" || failed "warnings, see $work/log"
}

# Nothing of inkling's own program may be built or installed.
library_alone() {
  ! find "$folder" -type f -perm -u+x \( -name inkling -o -name 'test_*' \) | grep . || failed "the program was built"
  $cmake --install "$folder" --prefix "$folder/installed" >/dev/null
  [[ ! -d $folder/installed ]] || failed "it installs $(find "$folder/installed" -type f | head -n 3)"
}

rm -rf "$source"
mkdir -p "$source"
git archive HEAD | tar -x -C "$source"
listing=$(find "$source" | sort)
without=(--no-warn-unused-cli -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DINKLING_CUDA=OFF)

make=()
! command -v make >/dev/null || make=(-G "Unix Makefiles")
project "add_subdirectory: shared, Debug, assertions, ${make[1]:-the default generator}" shared "${make[@]}" "${without[@]}" \
  -DINKLING_SOURCE="$source" -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS
library_alone
[[ -e $folder/inkling/libinkling_autograd.so ]] || failed "BUILD_SHARED_LIBS=ON was ignored"

project "FetchContent: static, no build type" fetched -G Ninja "${without[@]}" -DINKLING_SOURCE="$source" -DINKLING_FETCH=ON
library_alone
grep -q '^CMAKE_BUILD_TYPE:STRING=$' "$folder/CMakeCache.txt" || failed "a build type was chosen for it"
grep -q ' -O3 .*inkling' "$folder/build.ninja" || failed "inkling would be compiled without optimisation"

title="add_subdirectory: with nvcc, if there is one" folder=$work/with_nvcc
printf '%s\n' "$title"
$cmake -S "$source/tests/consumer" -B "$folder" -G Ninja -DINKLING_SOURCE="$source" >"$work/log" 2>&1 ||
  failed "see $work/log"
! grep -q '^build inkling/all: .*cuda' "$folder/build.ninja" || failed "kernels for GPUs are built for those who link none"

title="installed: shared" folder=$work/library
printf '%s\n' "$title"
{
  $cmake -S "$source" -B "$folder" -G Ninja "${without[@]}" -DBUILD_SHARED_LIBS=ON -DINKLING_PROGRAM=OFF -DINKLING_TESTS=OFF &&
  $cmake --build "$folder" && $cmake --install "$folder" --prefix "$work/first"
} >"$work/log" 2>&1 || { tail -n 30 "$work/log"; failed "see $work/log"; }
rm -rf "$work/moved"
mv "$work/first" "$work/moved"
project "find_package: the same, moved" package -G Ninja -DCMAKE_PREFIX_PATH="$work/moved"

[[ $(find "$source" | sort) == "$listing" ]] || failed "something was written to the sources"
echo "All of it works."
