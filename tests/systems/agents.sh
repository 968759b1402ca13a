#!/usr/bin/env bash
# agents.sh BUILD: AGENTS.md is true. Its commands run, in this build, and the files it names exist.
# shellcheck disable=SC2016  # the page's backticks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1
failures=0
fail() { echo "AGENTS.md: $1"; failures=$((failures + 1)); }

(($(wc -l <AGENTS.md) <= 60)) || fail "is longer than a screen"
commands=0
while IFS= read -r line; do
  command=${line//build\/release/\"$build\"}
  [[ $command != ctest* || -z ${INKLING_IN_CTEST:-} ]] || command+=" -N"  # it runs already
  out=$(bash -c "$command" 2>&1 </dev/null) || fail "this fails: $line"$'\n'"$out"
  [[ $out != *"Total Tests: 0"* && $out != *"Running 0 tests"* ]] || fail "this runs nothing: $line"
  commands=$((commands + 1))
done < <(sed -n '/^```sh$/,/^```$/{/^```/!p}' AGENTS.md)
((commands >= 8)) || fail "has $commands commands, expected 8 or more"

# In code and as links: what has a folder or an ending is a file.
while IFS= read -r file; do
  [[ $file == build/* || -e $file ]] || fail "there is no $file"
done < <({ grep -o '`[A-Za-z_./]*`' AGENTS.md | tr -d '`' | grep '[/.]'
  grep -o '](\([^)]*\))' AGENTS.md | sed 's/](\(.*\))/\1/'; } | sort -u)
exit $((failures > 0))
