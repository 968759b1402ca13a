// benchmark_programs: ordinary small programs, each as inkling's and as PyTorch's. programs.py runs
// both in turns.
//
// `benchmark_programs [DEVICE]` (cpu unless given) reads lines, and answers each with one:
//   rows               a number: how many rows the table has
//   show ROW           PyTorch's inputs and expression, with a tab between them
//   values ROW         how many elements the result has, and up to 1000 of them
//   time ROW SECONDS   the least microseconds a call took, in batches of calls
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/base/parallel.h"

namespace {

using namespace ink;

using Program = std::function<Tensor()>;
struct Row {
  std::string inputs, expression;
  std::function<Program()> make;
};

// ---- what inputs are made of. programs.py has the same names.

Tensor floats(auto... sizes) { return randn({sizes...}, f32); }
Tensor doubles(auto... sizes) { return randn({sizes...}, f64); }
Tensor halves(auto... sizes) { return to(randn({sizes...}, f32), bf16); }
Tensor bools(auto... sizes) { return randn({sizes...}, f32) > 0; }
Tensor integers(auto... sizes) { return randint(-5, 6, {sizes...}); }
Tensor ids(int64_t n, auto... sizes) { return randint(n, {sizes...}); }
Tensor gradient(const Tensor& y, const Tensor& x) { return grad({sum(y)}, {x})[0]; }

// ---- the table
// ROW((inputs), expression) is a row whose text both languages read alike. ROW2 has PyTorch's text
// apart. ROW_X and ROW_X2 are programs of one x, which are repeated with each of several inputs.

#define PLAIN(...) __VA_ARGS__
#define ROW2(inputs, text, ...)                                                      \
  Row {                                                                              \
#inputs, text, [] { return [PLAIN inputs]() -> Tensor { return __VA_ARGS__; }; } \
  }
#define ROW(inputs, ...) ROW2(inputs, #__VA_ARGS__, __VA_ARGS__)

struct OfX {
  std::string text;
  Tensor (*run)(const Tensor& x);
};
#define ROW_X2(text, ...)                                       \
  OfX {                                                         \
    text, [](const Tensor& x) -> Tensor { return __VA_ARGS__; } \
  }
#define ROW_X(...) ROW_X2(#__VA_ARGS__, __VA_ARGS__)

struct Input {
  std::string text;
  Tensor (*make)();
};
#define INPUT(...)                                       \
  Input {                                                \
#__VA_ARGS__, []() -> Tensor { return __VA_ARGS__; } \
  }

void add(std::vector<Row>& rows, const std::vector<Input>& inputs,
         const std::vector<OfX>& programs) {
  for (const Input& input : inputs) {
    for (const OfX& of_x : programs) {
      const auto make = [input, of_x]() -> Program {
        return [x = input.make(), run = of_x.run] { return run(x); };
      };
      rows.push_back({"(x = " + input.text + ")", of_x.text, make});
    }
  }
}

const std::vector<OfX> kElementwise = {ROW_X(x.sin()),
                                       ROW_X(x.cos()),
                                       ROW_X(x.exp()),
                                       ROW_X(x.expm1()),
                                       ROW_X(x.tanh()),
                                       ROW_X(x.sigmoid()),
                                       ROW_X(x.erf()),
                                       ROW_X(x.relu()),
                                       ROW_X(x.abs()),
                                       ROW_X(x.neg()),
                                       ROW_X(x.square()),
                                       ROW_X(x.sign()),
                                       ROW_X(x.floor()),
                                       ROW_X(x.round()),
                                       ROW_X(x.isnan()),
                                       ROW_X(x.clamp(-1, 1)),
                                       ROW_X(x.pow(2)),
                                       ROW_X(x.pow(3)),
                                       ROW_X(silu(x)),
                                       ROW_X(gelu(x)),
                                       ROW_X2("gelu(x, approximate='tanh')", gelu(x, Gelu::tanh)),
                                       ROW_X(softplus(x)),
                                       ROW_X(leaky_relu(x)),
                                       ROW_X(elu(x)),
                                       ROW_X(x * 2),
                                       ROW_X(x / 3),
                                       ROW_X(x % 2),
                                       ROW_X(x + x),
                                       ROW_X(1 + x * x),
                                       ROW_X(x / x),
                                       ROW_X(maximum(x, x)),
                                       ROW_X(x > 0),
                                       ROW_X(x.clone()),
                                       ROW_X(x.masked_fill(x > 0, 0)),
                                       ROW_X(where(x > 0, x, 0))};
const std::vector<OfX> kOfPositive = {
    ROW_X(x.log()),    ROW_X(x.log1p()),  ROW_X(x.sqrt()), ROW_X(x.rsqrt()),
    ROW_X(x.pow(0.5)), ROW_X(x.pow(1.7)), ROW_X(x.pow(x)), ROW_X2("2 ** x", pow(2, x))};
const std::vector<OfX> kReductions = {ROW_X(x.sum()),
                                      ROW_X2("x.sum(0)", x.sum({0})),
                                      ROW_X2("x.sum(1)", x.sum({1})),
                                      ROW_X(x.prod()),
                                      ROW_X2("x.prod(0)", x.prod({0})),
                                      ROW_X2("x.prod(1)", x.prod({1})),
                                      ROW_X(x.amax()),
                                      ROW_X2("x.amax(0)", x.amax({0})),
                                      ROW_X2("x.amin(1)", x.amin({1})),
                                      ROW_X(x.max()),
                                      ROW_X(x.max(0).values),
                                      ROW_X(x.max(1).values),
                                      ROW_X(x.min(1).indices),
                                      ROW_X(x.argmax()),
                                      ROW_X(x.argmax(0)),
                                      ROW_X(x.argmin(1)),
                                      ROW_X(x.any()),
                                      ROW_X2("x.all(0)", x.all({0})),
                                      ROW_X2("x.any(1)", x.any({1})),
                                      ROW_X(x.cumsum(0)),
                                      ROW_X(x.cumsum(1))};
const std::vector<OfX> kFloatReductions = {ROW_X(x.mean()),
                                           ROW_X2("x.mean(0)", x.mean({0})),
                                           ROW_X2("x.mean(1)", x.mean({1})),
                                           ROW_X(x.var()),
                                           ROW_X2("x.var(0)", x.var({0})),
                                           ROW_X2("x.std(1)", x.std({1})),
                                           ROW_X(x.norm()),
                                           ROW_X2("x.norm(2, 0)", x.norm(2, {0})),
                                           ROW_X2("x.norm(1, 1)", x.norm(1, {1})),
                                           ROW_X2("x.logsumexp(0)", x.logsumexp({0})),
                                           ROW_X2("x.logsumexp(1)", x.logsumexp({1})),
                                           ROW_X(x.softmax(0)),
                                           ROW_X(x.softmax(1)),
                                           ROW_X(x.log_softmax(1))};
const std::vector<OfX> kMoves = {ROW_X2("x.T.contiguous()", x.T().contiguous()),
                                 ROW_X2("x.T + x", x.T() + x),
                                 ROW_X2("cat([x, x], 0)", cat({x, x}, 0)),
                                 ROW_X2("cat([x, x], 1)", cat({x, x}, 1)),
                                 ROW_X2("stack([x, x], 1)", stack({x, x}, 1)),
                                 ROW_X2("x.flip([1])", x.flip({1})),
                                 ROW_X2("x.repeat(2, 2)", x.repeat({2, 2})),
                                 ROW_X2("pad(x, (1, 2, 3, 4))", pad(x, {1, 2, 3, 4})),
                                 ROW_X(x.repeat_interleave(3, 0)),
                                 ROW_X(x.repeat_interleave(3, 1)),
                                 ROW_X(x.diagonal().clone()),
                                 ROW_X(x.unfold(1, 8, 4).contiguous()),
                                 ROW_X2("(x * 0.1 + 1).cumprod(1)", (x * 0.1 + 1).cumprod(1)),
                                 ROW_X(x.tril()),
                                 ROW_X(x.triu(1)),
                                 ROW_X2("x.split(10, 1)[3] * 2", x.split(10, 1)[3] * 2),
                                 ROW_X(x.sort().values),
                                 ROW_X(x.sort(0).values),
                                 ROW_X(x.topk(10).values),
                                 ROW_X(x.topk(1).values),
                                 ROW_X(x.topk(50, 0).values)};

// The next cell of an LSTM, for x (B, n), h and c (B, m), w (4m, n), u (4m, m), b (4m).
Tensor lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w,
                 const Tensor& u, const Tensor& b) {
  const std::vector<Tensor> gates = chunk(linear(x, w, b) + linear(h, u, b), 4, 1);
  const Tensor next = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
  return sigmoid(gates[3]) * tanh(next);
}

const std::vector<Row> kOthers = {
    // broadcasts and reductions of other layouts
    ROW((x = floats(1000, 1000), y = floats(1000)), x + y),
    ROW((x = floats(1000, 1000), y = floats(1000, 1)), x.mul(y)),
    ROW((x = floats(100, 100), y = floats(100)), x - y),
    ROW((x = floats(100, 1), y = floats(100)), x / y),
    ROW((x = floats(1000, 1000), y = floats(1000, 1000).transpose(0, 1)), x + y),
    ROW2((x = floats(500, 16)), "(x[:, None] - x[None]).square().sum(2)",
         (x.unsqueeze(1) - x.unsqueeze(0)).square().sum({2})),
    ROW2((x = floats(500, 2)), "(x[:, None] - x[None]).norm(2, 2)",
         (x.unsqueeze(1) - x.unsqueeze(0)).norm(2, {2})),
    ROW2((x = floats(500)), "(x[:, None] - x[None]).abs()",
         (x.unsqueeze(1) - x.unsqueeze(0)).abs()),
    ROW2((x = floats(32, 64, 128)), "x.sum(1)", x.sum({1})),
    ROW2((x = floats(32, 64, 128)), "x.sum((0, 2))", x.sum({0, 2})),
    ROW2((x = floats(50, 40, 30)), "x.sum((0, 2))", x.sum({0, 2})),
    ROW2((x = doubles(64, 24, 32)), "x.mean((0, 2))", x.mean({0, 2})),
    ROW2((x = floats(32, 64, 128)), "x.mean((0, 1))", x.mean({0, 1})),
    ROW2((x = floats(32, 64, 128)), "x.amax(2)", x.amax({2})),
    ROW((x = floats(32, 64, 128)), x.max(1).values),
    ROW2((x = floats(1000, 1000).transpose(0, 1)), "x.sum(1)", x.sum({1})),
    ROW2((x = floats(1000, 1)), "x.expand(1000, 1000).sum(1)", x.expand({1000, 1000}).sum({1})),
    ROW2((x = floats(100000, 3)), "x.sum(1)", x.sum({1})),
    ROW2((x = floats(100000, 3)), "x.sum(0)", x.sum({0})),
    ROW((x = floats(100000, 3)), x.max(1).values),
    ROW2((x = floats(3, 100000)), "x.sum(0)", x.sum({0})),
    ROW((x = floats(64, 1, 64), y = floats(1, 64, 64)), x.mul(y)),
    ROW((x = floats(32, 100, 100), y = floats(100)), x + y),
    ROW((x = floats(100000, 3), y = floats(3)), x.mul(y)),
    ROW((x = floats(3000, 20), y = floats(3000, 1)), x - y),
    ROW((x = doubles(3000, 20), y = doubles(20)), x - y),
    ROW2((x = integers(7500, 8)), "cat([x, x], 1)", cat({x, x}, 1)),
    ROW((x = floats(375, 20, 8)), x.transpose(0, 1).contiguous()),
    ROW((x = floats(300, 300).narrow(1, 10, 200)), x.square()),
    ROW((x = bools(1000, 1000)), x ^ x),
    ROW((x = bools(1000, 1000)), logical_not(x)),
    ROW((x = halves(1000, 1000)), x + x),
    ROW((x = halves(1000, 1000)), gelu(x)),
    ROW((x = halves(300, 300)), x.softmax(1)),
    ROW2((x = floats(64, 64, 64)), "x.sum(-1)", x.sum({-1})),
    ROW2((x = floats(64, 64, 64)), "x.amax((0, 2))", x.amax({0, 2})),
    ROW2((x = floats(50000, 2, 3)), "x.sum(1)", x.sum({1})),
    ROW2((x = floats(50000, 2, 3)), "x.amax(1)", x.amax({1})),
    ROW((x = floats(50000, 2, 3)), x.max(1).values),
    ROW((x = floats(50000, 2, 3)), x.softmax(1)),
    ROW((x = floats(8, 1000, 20)), x.softmax(0)),
    ROW((x = floats(1000, 30)), x.softmax(1)),
    ROW((x = floats(1000, 30)), x.log_softmax(1)),
    ROW2((x = floats(8, 64, 4, 32)), "x.permute(0, 2, 1, 3).sum(-1)",
         x.permute({0, 2, 1, 3}).sum({-1})),
    ROW2((x = floats(8, 64, 4, 32)), "x.permute(0, 2, 1, 3).contiguous()",
         x.permute({0, 2, 1, 3}).contiguous()),
    ROW((x = doubles(20, 1, 30), y = doubles(20, 30)), x + y),
    ROW((x = halves(20, 1, 40), y = halves(20, 40)), x + y),
    ROW((x = bools(24, 20, 100).narrow(2, 0, 50)), logical_not(x)),
    ROW2((x = floats(7, 5000)), "x.logsumexp(0)", x.logsumexp({0})),
    ROW2((x = floats(5000, 7)), "x.logsumexp(1)", x.logsumexp({1})),
    ROW2((x = floats(300, 300).transpose(0, 1)), "x.flip([0])", x.flip({0})),
    ROW((x = floats(3)), x.sum()),
    ROW((x = floats(3)), x.sin()),
    ROW((x = floats(3)), x + x),

    // products
    ROW((x = floats(16, 16), y = floats(16, 16)), matmul(x, y)),
    ROW((x = floats(64, 64), y = floats(64, 64)), matmul(x, y)),
    ROW((x = floats(256, 256), y = floats(256, 256)), matmul(x, y)),
    ROW((x = floats(1024, 1024), y = floats(1024, 1024)), matmul(x, y)),
    ROW((x = doubles(64, 64), y = doubles(64, 64)), matmul(x, y)),
    ROW((x = doubles(512, 512), y = doubles(512, 512)), matmul(x, y)),
    ROW((x = integers(64, 64), y = integers(64, 64)), matmul(x, y)),
    ROW((x = integers(256, 256), y = integers(256, 256)), matmul(x, y)),
    ROW((x = floats(256, 256).transpose(0, 1), y = floats(256, 256)), matmul(x, y)),
    ROW((x = floats(256, 256), y = floats(256, 256).transpose(0, 1)), matmul(x, y)),
    ROW2((x = floats(1, 256), y = floats(256, 256)), "matmul(x.expand(256, 256), y)",
         matmul(x.expand({256, 256}), y)),
    ROW2((x = floats(256, 512), y = floats(256, 256)), "matmul(x[:, ::2], y)",
         matmul(x.index({Slice(), Slice(None, None, 2)}), y)),
    ROW((x = floats(1000, 10), y = floats(10, 10)), matmul(x, y)),
    ROW((x = floats(10, 1000), y = floats(1000, 10)), matmul(x, y)),
    ROW((x = floats(100, 100), y = floats(100)), matmul(x, y)),
    ROW((x = floats(1000, 1000), y = floats(1000)), matmul(x, y)),
    ROW((x = floats(100), y = floats(100, 100)), matmul(x, y)),
    ROW((x = floats(1000), y = floats(1000, 1000)), matmul(x, y)),
    ROW((x = doubles(1000, 1000), y = doubles(1000)), matmul(x, y)),
    ROW((x = floats(1000, 1000).transpose(0, 1), y = floats(1000)), matmul(x, y)),
    ROW((x = floats(1000), y = floats(1000)), x.dot(y)),
    ROW((x = floats(4000000), y = floats(4000000)), x.dot(y)),
    ROW((x = doubles(1000), y = doubles(1000)), x.dot(y)),
    ROW((x = floats(1000), y = floats(1000)), x.outer(y)),
    ROW((x = floats(100, 16, 16), y = floats(100, 16, 16)), bmm(x, y)),
    ROW((x = floats(1000, 4, 4), y = floats(1000, 4, 4)), bmm(x, y)),
    ROW((x = floats(16, 64, 64), y = floats(16, 64, 64)), bmm(x, y)),
    ROW((x = doubles(100, 16, 16), y = doubles(100, 16, 16)), bmm(x, y)),
    ROW((x = floats(10000, 2, 2), y = floats(10000, 2, 2)), bmm(x, y)),
    ROW((x = floats(1000, 3, 3), y = floats(1000, 3, 3)), bmm(x, y.transpose(1, 2))),
    ROW((x = floats(1000, 1, 64), y = floats(1000, 64, 64)), bmm(x, y.transpose(1, 2))),
    ROW((x = floats(1000, 3), y = floats(3, 1000)), matmul(x, y)),
    ROW((x = doubles(1000, 1000), y = doubles(1000, 3)), matmul(x, y)),
    ROW((x = integers(1000, 3), y = integers(3, 1000)), matmul(x, y)),
    ROW((x = floats(3, 1000), y = floats(1000, 1000)), linear(x, y)),
    ROW((x = floats(5, 512), y = floats(512, 512)), linear(x, y)),
    ROW((x = floats(32, 64), y = floats(128, 64), b = floats(128)), linear(x, y, b)),
    ROW2((x = floats(10, 20, 30), y = floats(10, 30, 40)), "einsum('bij,bjk->bik', x, y)",
         einsum("bij,bjk->bik", {x, y})),

    // ids
    ROW((x = floats(1000, 100), i = ids(100, 1000, 100)), x.gather(1, i)),
    ROW((x = floats(1000, 100), i = ids(1000, 1000, 100)), x.gather(0, i)),
    ROW((x = floats(1000, 100), i = ids(100, 1000, 1)), x.gather(1, i)),
    ROW((x = floats(1000, 100), i = ids(100, 1000, 100), y = floats(1000, 100)),
        x.scatter_add(1, i, y)),
    ROW((x = floats(1000, 100), i = ids(1000, 1000, 100), y = floats(1000, 100)),
        x.scatter_add(0, i, y)),
    ROW((x = floats(1000), i = ids(1000, 100000), y = floats(100000)), x.scatter_add(0, i, y)),
    ROW((x = floats(1000, 100), i = ids(100, 1000, 1)), x.scatter(1, i, 1)),
    ROW((x = floats(1000, 100), i = ids(100, 1000, 100), y = floats(1000, 100)),
        x.scatter(1, i, y)),
    ROW((x = floats(1000, 100), i = ids(1000, 1000, 100), y = floats(1000, 100)),
        x.scatter(0, i, y)),
    ROW((x = floats(10000, 64), i = ids(10000, 1000)), x.index_select(0, i)),
    ROW((x = floats(64, 10000), i = ids(10000, 1000)), x.index_select(1, i)),
    ROW2((x = floats(10000, 64), i = ids(10000, 1000)), "x[i]", x[i]),
    ROW2((x = floats(1000, 1000), i = ids(1000, 1000)), "x[i, i]",
         index(x, std::vector<Tensor>{i, i})),
    ROW2((x = floats(1000, 1000)), "x[x > 0]", x[x > 0]),
    ROW((x = floats(1000, 1000)), x.nonzero()),
    ROW2((x = floats(1000, 100), i = ids(1000, 500), y = floats(500, 100)),
         "x.index_put((i,), y, accumulate=True)", x.index_put({i}, y, true)),
    ROW2((x = floats(1000, 100), i = ids(1000, 500), y = floats(500, 100)), "x.index_put((i,), y)",
         x.index_put({i}, y)),
    ROW((x = floats(1000, 100)), x.masked_select(x > 0)),
    ROW2((x = floats(1000, 100)), "x.index_put((x > 0,), torch.tensor(0.))",
         x.index_put({x > 0}, tensor(0.0))),
    ROW((i = ids(1000, 64, 32), w = floats(1000, 64)), embedding(i, w)),
    ROW((i = ids(1000, 64, 32), w = floats(1000, 64).requires_grad_()),
        gradient(embedding(i, w), w)),
    ROW((i = ids(100, 1000)), one_hot(i, 100)),
    ROW((x = doubles(100000)), x.argsort()),
    ROW((x = floats(100000)), x.sort().values),
    ROW((x = floats(1000000)), x.topk(100).values),
    ROW((x = integers(1000, 100)), x.sort().values),
    ROW((x = integers(300000)), x.sort().values),
    ROW((x = floats(64, 64)), x.sort().values),
    ROW((x = doubles(1000, 1000)), x.topk(5).values),
    ROW((x = floats(10000, 10)), x.sort().values),
    ROW((x = doubles(100, 100)), x.sort().values),
    ROW((x = floats(1000, 20, 8)), x.max(1).values),
    ROW((x = floats(100000, 10)), x.argmax(-1)),
    ROW((x = doubles(300, 300)), x.repeat_interleave(3, 1)),
    ROW((x = doubles(300, 300)), x.unfold(0, 5, 5).contiguous()),
    ROW2((x = floats(16, 3, 32, 32)), "x.permute(0, 2, 3, 1).contiguous()",
         x.permute({0, 2, 3, 1}).contiguous()),
    ROW((x = floats(1000, 16), i = ids(1000, 5000)), x.index_select(0, i)),

    // comparisons and losses
    ROW((x = floats(1000, 1000), y = floats(1000, 1000)), isclose(x, y)),
    ROW((x = floats(1000, 1000)), x.isfinite()),
    ROW((x = floats(1000, 1000)), logical_not(x > 0)),
    ROW((x = floats(1000, 1000), y = floats(1000, 1000)), logical_and(x > 0, y > 0)),
    ROW((x = floats(1000, 1000), y = floats(1000, 1)), maximum(x, y)),
    ROW((x = floats(1000, 1000), y = floats(1000, 1)), x < y),
    ROW((x = floats(1000, 1000)), x.ceil()),
    ROW((x = floats(1000, 1000)), x.trunc()),
    ROW((x = floats(1000, 100), y = floats(1000, 100)), mse_loss(x, y)),
    ROW((x = floats(1000, 100), y = floats(1000, 100)), l1_loss(x, y)),
    ROW((x = floats(1000, 100), y = floats(1000, 100)), atan2(x, y)),
    ROW((x = floats(1000, 100), y = floats(1000, 100)), smooth_l1_loss(x, y)),
    ROW((x = floats(1000, 100), y = floats(1000, 100)), binary_cross_entropy_with_logits(x, y)),
    ROW((x = floats(1000, 100), i = ids(100, 1000)), nll_loss(x, i)),
    ROW2((x = floats(1000, 100), y = floats(1000, 100).abs()), "kl_div(x, y, reduction='sum')",
         kl_div(x, y, Reduction::sum)),
    ROW((x = floats(1000, 100).requires_grad_(), y = floats(1000, 100)),
        gradient(l1_loss(x, y), x)),
    ROW((x = floats(1000, 100).requires_grad_(), y = floats(1000, 100)),
        gradient(smooth_l1_loss(x, y), x)),
    ROW((x = floats(1000, 100).requires_grad_(), y = floats(1000, 100)),
        gradient(binary_cross_entropy_with_logits(x, y), x)),
    ROW((x = floats(32, 64, 100)), group_norm(x, 8)),
    ROW((x = floats(32, 64, 100).requires_grad_()), gradient(group_norm(x, 8) * x, x)),
    ROW((x = floats(1000, 100).requires_grad_(), i = ids(100, 1000, 100), y = floats(1000, 100)),
        gradient(x.scatter(1, i, y), x)),
    ROW((x = floats(1000, 100).requires_grad_(), i = ids(100, 1000, 100)),
        gradient(x.gather(1, i), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.amax(1), x)",
         gradient(x.amax({1}), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.prod(1), x)",
         gradient(x.prod({1}), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.norm(2, 1), x)",
         gradient(x.norm(2, {1}), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.sort().values.square(), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.log_softmax(1).square(), x)),
    ROW((x = floats(1000, 100).requires_grad_(), y = floats(1000, 1)), gradient(x / y, x)),
    ROW((x = floats(1000, 100), y = floats(1000, 1).requires_grad_()), gradient(x* y, y)),
    ROW((x = floats(1000, 100), y = floats(100).requires_grad_()), gradient(x* y, y)),
    ROW((x = floats(1000, 100).abs().requires_grad_()), gradient(x.pow(1.7), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(where(x > 0, x * 2, x), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(cat([x, x], 1).square(), x)",
         gradient(cat({x, x}, 1).square(), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x[:, 1:] - x[:, :-1], x)",
         gradient(x.index({Slice(), Slice(1, None)}) - x.index({Slice(), Slice(None, -1)}), x)),

    // new tensors
    ROW((n = 1000), arange(n)),
    ROW((n = 1000000), arange(n)),
    ROW((n = 1000000), arange(0.0, n, 0.5)),
    ROW((n = 1000000), linspace(0, 1, n)),
    ROW2((n = 1000000), "zeros(n)", zeros({n})),
    ROW2((n = 1000000), "full((n,), 2.5)", full({n}, 2.5)),
    ROW2((n = 1000000), "rand(n)", rand({n})),
    ROW2((n = 1000000), "randn(n)", randn({n})),
    ROW2((n = 1000000), "randint(100, (n,))", randint(100, {n})),
    ROW2((x = floats(1000000)), "x.clone().uniform_(0, 1)", uniform_(x.clone(), 0, 1)),
    ROW2((x = floats(1000000)), "x.clone().normal_(0, 1)", normal_(x.clone(), 0, 1)),
    ROW2((x = floats(1000000)), "x.clone().exponential_(1)", exponential_(x.clone(), 1)),
    ROW2((x = floats(1000000)), "x.clone().bernoulli_(0.3)", bernoulli_(x.clone(), 0.3)),
    ROW2((x = floats(100, 100).abs()), "multinomial(x, 1)", multinomial(x, 1)),
    ROW((n = 1000), eye(n)),
    ROW((n = 100000), randperm(n)),

    // forward and backward
    ROW2((x = floats(100, 100).requires_grad_()), "gradient(x.T @ x, x)",
         gradient(matmul(x.T(), x), x)),
    ROW2((x = floats(1000, 1000).requires_grad_()), "gradient(x.T @ x, x)",
         gradient(matmul(x.T(), x), x)),
    ROW((w = floats(64, 64).requires_grad_(), y = floats(100, 64, 10)), gradient(matmul(w, y), w)),
    ROW((w = floats(16, 16), y = floats(1000, 16, 8).requires_grad_()), gradient(matmul(w, y), y)),
    ROW((x = floats(100, 100).requires_grad_()), gradient(x.sin() * x, x)),
    ROW((x = floats(1000, 1000).requires_grad_()), gradient(x.tanh() * x, x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.softmax(1).square(), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.logsumexp(1), x)",
         gradient(x.logsumexp({1}), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.var(1), x)",
         gradient(x.var({1}), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.max(1).values, x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.cumsum(1), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.cumprod(1), x)),
    ROW2((x = floats(1000, 100).requires_grad_()), "gradient(x.expand(3, -1, -1), x)",
         gradient(x.expand({3, -1, -1}), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.unfold(1, 3, 1), x)),
    ROW((x = floats(1000, 100).requires_grad_()), gradient(x.prod(), x)),
    ROW2((x = halves(1000, 100).requires_grad_()), "gradient(x[5].square(), x)",
         gradient(x.select(0, 5).square(), x)),
    ROW((x = doubles(1000, 100).requires_grad_()), gradient(gelu(x), x)),
    ROW2((x = floats(500, 16).requires_grad_()), "gradient((x[:, None] - x[None]).square(), x)",
         gradient((x.unsqueeze(1) - x.unsqueeze(0)).square(), x)),
    ROW2((x = floats(500, 2)), "cross_entropy(x, (x[:, 0] > 0).long())",
         cross_entropy(x, to(x.select(1, 0) > 0, DType::i64))),
    ROW((x = floats(1000, 100).requires_grad_(), i = ids(100, 1000)),
        gradient(cross_entropy(x, i), x)),
    ROW2((x = floats(64, 256), w = floats(256), b = floats(256)), "layer_norm(x, (256,), w, b)",
         layer_norm(x, w, b)),
    ROW2((x = floats(64, 256).requires_grad_(), w = floats(256), b = floats(256)),
         "gradient(layer_norm(x, (256,), w, b).square(), x)",
         gradient(layer_norm(x, w, b).square(), x)),
    ROW2((x = floats(64, 256), w = floats(256)), "rms_norm(x, (256,), w, 1e-6)", rms_norm(x, w)),
    ROW((x = floats(32, 20), w = floats(64, 20).requires_grad_(), b = floats(64),
         v = floats(1, 64)),
        gradient(linear(linear(x, w, b).tanh(), v).square(), w)),
    ROW((x = floats(256, 64), w = floats(256, 64).requires_grad_(), b = floats(256),
         v = floats(10, 256), i = ids(10, 256)),
        gradient(cross_entropy(linear(linear(x, w, b).relu(), v), i), w)),
    ROW2((x = floats(32, 64), h = floats(32, 64), c = floats(32, 64), w = floats(256, 64),
          b = floats(256)),
         "lstm_cell(x, (h, c), w, w, b, b)[0]", lstm_cell(x, h, c, w, w, b)),
    ROW2((x = floats(32, 64), h = floats(32, 64), c = floats(32, 64),
          w = floats(256, 64).requires_grad_(), b = floats(256)),
         "gradient(lstm_cell(x, (h, c), w, w, b, b)[0], w)",
         gradient(lstm_cell(x, h, c, w, w, b), w)),
    ROW((q = floats(8, 4, 32, 16)), scaled_dot_product_attention(q, q, q)),
    ROW((q = floats(8, 4, 32, 16).requires_grad_()),
        gradient(scaled_dot_product_attention(q, q, q), q)),
    ROW2((q = floats(8, 4, 32, 16).requires_grad_()),
         "gradient((q @ q.transpose(2, 3)).softmax(3) @ q, q)",
         gradient(matmul(matmul(q, q.transpose(2, 3)).softmax(3), q), q)),
    ROW2((x = floats(1000), y = floats(1000)), "mse_loss(x, y)", mse_loss(x, y)),
};

std::vector<Row> table() {
  std::vector<Row> rows;
  add(rows,
      {INPUT(floats(16384)), INPUT(floats(4000000)), INPUT(doubles(16384)),
       INPUT(floats(300, 300).transpose(0, 1))},
      kElementwise);
  add(rows, {INPUT(floats(16384).abs()), INPUT(floats(4000000).abs()), INPUT(doubles(16384).abs())},
      kOfPositive);
  const std::vector<Input> floating = {INPUT(floats(100, 100)), INPUT(floats(2000, 2000)),
                                       INPUT(doubles(100, 100)), INPUT(doubles(1000, 1000))};
  add(rows, floating, kReductions);
  add(rows, floating, kFloatReductions);
  add(rows, {INPUT(integers(100, 100)), INPUT(integers(1000, 1000))}, kReductions);
  add(rows, {INPUT(floats(100, 100)), INPUT(floats(1000, 1000))}, kMoves);
  rows.insert(rows.end(), kOthers.begin(), kOthers.end());
  return rows;
}

// ---- answers

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double least_time(const Program& run, double seconds) {
  const Device device = context().default_device;
  const double batch = device.is_cpu() ? 50 : 1000;  // us, beside which waiting for it is short
  double least = std::numeric_limits<double>::infinity();
  int64_t calls = 1;
  for (const auto begin = Clock::now(); microseconds(begin) < 1e6 * seconds;) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) run();
    synchronize(device);
    const double time = microseconds(start);
    least = std::min(least, time / static_cast<double>(calls));
    if (time < batch) calls *= 2;
  }
  return least;
}

void print_values(const Program& program) {
  std::vector<double> values;
  try {
    values = program().detach().tolist();
  } catch (const Error&) {  // a row that the device does not have
    std::cout << "refused" << std::endl;
    return;
  }
  std::cout << values.size();
  const size_t step = values.size() / 1000 + 1;
  for (size_t i = 0; i < values.size(); i += step) std::cout << " " << values[i];
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  set_wait_policy(argv);
  if (argc > 1) context().default_device = parse_device(argv[1]);
  const std::vector<Row> rows = table();
  size_t current = rows.size();  // the row of `program`
  Program program;
  for (std::string command; std::cin >> command;) {
    if (command == "rows") {
      std::cout << rows.size() << std::endl;
      continue;
    }
    size_t row = 0;
    std::cin >> row;
    if (command == "show") {
      std::cout << rows.at(row).inputs << "\t" << rows.at(row).expression << std::endl;
      continue;
    }
    if (row != std::exchange(current, row)) {
      manual_seed(0);
      program = rows.at(row).make();
    }
    if (command == "values") {
      print_values(program);
    } else {
      double seconds = 0;
      std::cin >> seconds;
      std::cout << least_time(program, seconds) << std::endl;
    }
  }
}
