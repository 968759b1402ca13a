#!/usr/bin/env bash
# usage: tests/systems/format.sh [BASE]
# How the sources are written: clang-format 14 has nothing to say, no line of C++, CUDA, CMake or
# Markdown is longer than 100 columns, and clang-tidy 14 finds no fault in the files that differ from
# the commit BASE (without one, none is looked at).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
base=${1:-}

mapfile -t sources < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
clang-format-14 --dry-run -Werror "${sources[@]}"

# Tables of numbers, links and program output may be wider; code that a test compares, too.
mapfile -t texts < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' '*.cmake' '*CMakeLists.txt' '*.md' \
  ':!tests/benchmarks/RESULTS.md')
long=$(awk 'FNR == 1 { code = 0 }
  FILENAME ~ /\.md$/ && /^```/ { code = !code }
  FILENAME ~ /\.md$/ && (code || /^\|/ || /https?:/) { next }
  length > 100 { printf "%s:%d: %d columns\n", FILENAME, FNR, length }' "${texts[@]}")
if [[ -n $long ]]; then
  printf '%s\n' "$long" "Lines end at 100 columns."
  exit 1
fi

git rev-parse --quiet --verify "$base^{commit}" >/dev/null || exit 0  # none, or not in this clone
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- 'autograd/*.cpp' 'nn/*.cpp' \
  'data/*.cpp' 'train/*.cpp' 'tests/*.cpp' ':!tests/consumer' ':!tests/*cuda*' ':!tests/*emulator*')
((${#changed[@]} > 0)) || exit 0
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DCMAKE_UNITY_BUILD=OFF -DINKLING_TESTS_BY_ROOM=OFF -DINKLING_CUDA=OFF >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
echo "clang-tidy: ${#changed[@]} files"
printf '%s\0' "${changed[@]}" |
  xargs -0 -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p "$build" 2> >(grep -v 'warnings generated' >&2)
