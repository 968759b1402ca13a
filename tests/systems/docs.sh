#!/usr/bin/env bash
# usage: tests/systems/docs.sh BUILD
# The reference is made without a warning, of exactly the headers that are installed from BUILD, and
# lists ops with their formulas. A fault in a header's comment is an error.
set -euo pipefail
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

INKLING_BUILD=$work "$checkout/run.sh" docs
page=$work/docs/fused__ops_8h.html
[[ -e $page ]] || fail "there is no page of fused_ops.h"
grep -q 'exp(x - max x) / sum exp(x - max x)' "$page" || fail "softmax has no formula"
grep -q 'basic__ops_8h.html' "$work/docs/index.html" || fail "the first page leads nowhere"

cmake --install "$1" --prefix "$work/prefix" >/dev/null
installed=$(cd "$work/prefix/include/inkling" && find . -name '*.h' -printf '%f\n' | sort)
documented=$(sed -n 's|.*<title>inkling: \(.*/\)\?\([^/]*\.h\) File Reference</title>.*|\2|p' \
  "$work"/docs/*_8h.html | sort)
diff <(echo "$installed") <(echo "$documented") || fail "cmake/Install.cmake and cmake/Doxyfile differ"

mkdir "$work/copy"
cp -r "$checkout"/{run.sh,cmake,autograd,nn,data,train} "$work/copy"
echo '/* never closed' >>"$work/copy/autograd/ops.h"
code=0
out=$(INKLING_BUILD=$work/faulty "$work/copy/run.sh" docs 2>&1) || code=$?
[[ $code == 1 && $out == *'autograd/ops.h:'*'The lines above say where.' ]] ||
  fail "a fault in a comment was no error: exit code $code, $out"

code=0
out=$("$checkout/run.sh" docs html 2>&1) || code=$?
[[ $code == 2 && $out == *"docs takes no options, got 'html'"* ]] || fail "docs html: $code, $out"

# Without doxygen: which package is missing.
mkdir "$work/bin"
for tool in bash dirname readlink realpath; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
code=0
out=$(PATH=$work/bin "$checkout/run.sh" docs 2>&1) || code=$?
[[ $code == 1 && $out == 'doxygen is missing. Install it, for instance by: apt-get install doxygen' ]] ||
  fail "should name the package, got exit code $code, $out"
echo "The reference is whole."
