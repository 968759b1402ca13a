#!/usr/bin/env bash
# usage: tests/systems/new.sh CXX [OPTION...]
# `run.sh new` in a copy of the sources: it refuses names that are taken or are none, and then
# writes nothing. What it writes of each kind compiles but for the lines that wait for a formula.
# With one, the op or layer passes its own test, and the gradients of its row are right, second
# derivatives included. OPTIONS are what the compiler needs: flags, and the libraries at the end.
set -euo pipefail
for word; do  # CMake 3.31 leaves empty ones
  shift
  [[ -z $word ]] || set -- "$@" "$word"
done
checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

mkdir -p "$work/copy/tests"/{autograd,nn}
cp -r "$checkout"/{run.sh,autograd,nn,train} "$work/copy"
cp -r "$work/copy" "$work/untouched"
cd "$work/copy"
new() { code=0; out=$(./run.sh new "$@" 2>&1) || code=$?; }
# refused CODE TEXT ARGUMENTS...
refused() {
  new "${@:3}"
  [[ $code == "$1" && $out == *"$2"* ]] || fail "new ${*:3}: exit code $code, $out"
  diff -r "$work/untouched" . || fail "new ${*:3} wrote something"
}
refused 2 "usage:"
refused 2 "an op or a layer, got 'model'" model gpt
refused 2 "new op needs a name" op
refused 2 "there is no option '--kind columns'" op soft_sign --kind columns
refused 2 "there is no option '--kind rows'" layer soft_sign --kind rows
for bad in SoftSign soft-sign 2d soft__sign _x x_ '' 'a b' '../x'; do
  refused 2 '' op "$bad"
done
refused 2 "at most 20 letters" op a_name_of_more_letters
refused 2 "'template' is a keyword of C++" op template
refused 2 "'co_await' is a keyword of C++" layer co_await
refused 2 "autograd/ops/softmax.cpp exists already" op softmax
refused 2 "the name 'exp' is taken: autograd/basic_ops.h:" op exp
refused 2 "the name 'gelu_tanh' is taken: autograd/loops/pointwise.h:" op gelu_tanh
refused 2 "the name 'big' is taken: train/cases/op_cases.cpp:" op big
refused 2 "the name 'LayerNorm' is taken: nn/" layer layer_norm

# Everything or nothing: a file without its anchor; a file that cannot be written.
sed -i '/clang-format on/d' {.,../untouched}/train/cases/op_cases.cpp
refused 1 "nothing was written, because train/cases/op_cases.cpp lacks a line" op soft_sign
cp "$checkout/train/cases/op_cases.cpp" train/cases
cp "$checkout/train/cases/op_cases.cpp" ../untouched/train/cases
for at in . ../untouched; do rmdir "$at/tests/autograd"; echo >"$at/tests/autograd"; done
refused 1 "nothing was written, because tests/autograd/test_soft_sign.cpp could not be" op soft_sign
for at in . ../untouched; do rm "$at/tests/autograd"; mkdir "$at/tests/autograd"; done

# One op of each kind, and a layer.
holes=''
for arguments in 'op times_sum' 'op cube --kind elementwise' 'op cubed --kind=composed' \
                 'layer bent'; do
  read -ra words <<<"$arguments"
  new "${words[@]}"
  [[ $code == 0 && $out == *"Then: ./run.sh test ${words[1]}"$'\n'* ]] || fail "new $arguments: $out"
  holes+=$(sed -nE 's/^  ([^ ]*:[0-9]+): .*/\1/p' <<<"$out")$'\n'
  while read -r place; do
    [[ -n $(sed -n "${place##*:}p" "${place%:*}") ]] || fail "new $arguments names $place"
  done < <(sed -nE 's/^  ([^ ]*:[0-9]+)$/\1/p' <<<"$out")
done
rm -r ../untouched
cp -r . ../untouched
refused 2 "autograd/ops/cubed.cpp exists already" op cubed
refused 2 "the name 'cube' is taken" op cube
refused 2 "the name 'Bent' is taken: nn/bent.h:" layer bent

# All in one file, which compiles fastest.
cat >all.cpp <<'END'
#include "autograd/ops/times_sum.cpp"
#include "autograd/ops/unary.cpp"
#include "autograd/ops/cubed.cpp"
#include "autograd/inspect/gradcheck.h"
#include "tests/nn/test_bent_layer.cpp"
#include "tests/autograd/test_cube.cpp"
#include "tests/autograd/test_cubed.cpp"
#include "tests/autograd/test_times_sum.cpp"
#include "train/cases/module_cases.cpp"
#include "train/cases/op_cases.cpp"

namespace ink {

TEST(New, RowsAreRight) {
  int found = 0;
  for (const OpCase& row : op_cases()) {
    if (row.name != "times_sum" && row.name != "cube" && row.name != "cubed") continue;
    ++found;
    const Tensor x = randn({4, 3}, f64).requires_grad_();
    const auto f = [&](const Inputs& in) { return row.op({in[0].T()}); };
    EXPECT_TRUE(gradcheck(f, {x}).ok) << row.name;
    EXPECT_TRUE(gradgradcheck(f, {x}).ok) << row.name;
    const Tensor fused = row.op({x})[0];
    const Composed composed;
    EXPECT_TRUE(allclose(fused, row.op({x})[0])) << row.name;
  }
  for (const ModuleCase& row : module_cases()) {
    if (row.name == "Bent") found += check_module(row).ok;
  }
  EXPECT_EQ(found, 4);
}

// KERNEL_CPU, which the kernels are declared by.
TEST(New, KernelsRefuseGaps) {
  Tensor y = empty({3, 4});
  try {
    kernel::times_sum(y, randn({4, 3}).T());
    FAIL() << "took a transpose";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("times_sum: its kernel needs contiguous tensors"), 0u);
  }
}

}  // namespace ink
END
compiler=("$1" -std=c++20 -I. -Wall -Wextra -Wshadow -Wno-unknown-pragmas)
errors=$("${compiler[@]}" -fsyntax-only "${@:2}" all.cpp 2>&1 | grep -E ':[0-9]+: (error|warning):') ||
  true
[[ $(grep -c . <<<"$errors") == "$(grep -c . <<<"$holes")" ]] || fail "$errors"$'\n'"for $holes"
while read -r hole; do
  [[ -z $hole ]] || grep -q "$hole:[0-9]*: error: " <<<"$errors" ||
    fail "the build does not stop at $hole"
done <<<"$holes"

# The formulas: x sum x over rows, x^3, and a layer with tanh.
total='const C total = sum_of<C>(n, [\&](int64_t i) { return a[i]; });'
dot='const C dot = sum_of<C>(n, [\&](int64_t i) { return a[i] * g[i]; });'
sed -i -e "s/#error.*write y (.*/$total/; s/#error.*write dx.*/$total $dot/" \
  -e 's/= a\[i\] \* a\[i\]/= a[i] * total/; s/2 \* a\[i\] \* g\[i\]/g[i] * total + dot/' \
  -e 's/return x \* x;/return x * sum(x, {-1}, true);/' autograd/ops/times_sum.cpp
sed -i 's/1.0, 4.0, 16.0}, {1.0, 0.25, 9.0/7.0, 14.0, 28.0}, {-2.5, 1.25, 7.5/' \
  tests/autograd/test_times_sum.cpp
sed -i '/^struct cube/,/^}/{s/x \* x/x * x * x/;s/T(2) \* x/T(3) * x * x/}' \
  autograd/loops/pointwise.h
sed -i 's/return 2 \* v \* dy/return 3 * v * v * dy/' autograd/ops/unary.cpp
sed -i 's/= x \* x;/= x * x * x;/; s/{2 \* \*x/{3 * *x * *x/' autograd/ops/cubed.cpp
sed -i 's/{1.0, 0.0, 0.25, 4.0}/{-1.0, 0.0, 0.125, 8.0}/' tests/autograd/test_cube{,d}.cpp
sed -i 's/proj(x) \* scale/tanh(proj(x)) * scale/' nn/bent.h
while IFS=: read -r file _; do [[ -z $file ]] || sed -i '/^#error/d' "$file"; done <<<"$holes"
# The rows before the new ones have been read above.
sed -i '/^      \/\/ ---- pointwise/,/"gelu.tanh"/d' train/cases/op_cases.cpp
"${compiler[@]}" -Wno-unused-function -Wno-unused-variable all.cpp "${@:2}" -o all || fail "what new wrote does not compile"
OMP_NUM_THREADS=2 ./all --gtest_brief=1
echo "What new writes is whole."
