#!/usr/bin/env bash
# usage: tests/systems/short_errors.sh [COMPILER [FLAGS]]
# What must not compile, and how many lines the compiler says about it: at most 14 each on average.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -gt 0 ]] || set -- c++
limit=-fmax-errors=0
[[ $("$1" --version) != *clang* ]] || limit=-ferror-limit=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/wrong.txt" <<'EOF'
x["a"];
x[1.5];
x[true];
x[std::vector<int>{1}];
x.index({1.5});
x.index({Slice("a")});
x.index({Slice(0, 1.5)});
x + "a";
"a" * x;
x / std::vector<float>{1};
x - x.shape();
x == "a";
x += "a";
pow(x, "a");
where(x, "a", x);
masked_fill(x, x, "a");
sum(x, "a");
sum(x, 1.5);
sum(x, 0, 1);
x.sum(0, 1);
x.mean(0, -1);
x.max(0, 1);
x.argmax(0, 1);
var(x, 0, 1, 1);
x.logsumexp(0, 1);
mean(x, true);
x.sum("a");
x.reshape("a");
zeros("a");
var(x, {1}, true);
x.var({1}, true);
tensor("a");
tensor({"a"});
x.item<std::string>();
x.tolist<std::string>();
from_vector(std::vector<std::string>{"a"});
for (const Tensor& row : x) print(row);
if (x > 0) print(x);
norm(x, {});
x.norm({});
norm(x, {1});
x.norm({1});
embedding(x, x, {});
linear_cross_entropy(x, x, x, {});
x.softmx(1);
softmax(x, {});
x.sort({}, true);
x.topk(2, false);
x.argmax(true);
dropout(x, true);
rms_norm(x, x, {});
Dropout(true);
randint(5, 10);
matmul(x);
cat(x, x);
print(std::optional<int>());
add_model<Dropout>("own");
add_optimizer<Dropout>("own");
EOF
{
  printf '#include "%s"\n' autograd/autograd.h nn/dropout.h train/config.h train/models.h \
    train/optimizer.h
  echo 'using namespace ink;'
  sed 's/.*/void f(Tensor x) { & }/; s/ f(/ f_@(/' "$work/wrong.txt" | awk '{ sub("@", NR); print }'
} >"$work/wrong.cpp"
if "$@" -std=c++20 -fopenmp -fsyntax-only -I. $limit "$work/wrong.cpp" 2>"$work/errors.txt"; then
  echo "All of it compiled"
  exit 1
fi
failed=0 number=0
while IFS= read -r line; do
  number=$((number + 1))
  grep -q "wrong.cpp:$((number + 6)):" "$work/errors.txt" ||
    { echo "This compiles: $line"; failed=1; }
done <"$work/wrong.txt"
for sentence in "a model extends LanguageModel or GPT" "an optimizer has a constructor that"; do
  grep -q "error: static.assert.*$sentence" "$work/errors.txt" ||
    { echo "Not said: $sentence"; failed=1; }
done
lines=$(wc -l <"$work/errors.txt")
echo "$lines lines for $number errors"
if ((lines > 14 * number)); then
  cut -c1-160 "$work/errors.txt"
  failed=1
fi
exit "$failed"
