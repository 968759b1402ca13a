#include <algorithm>
#include <chrono>
#include <iomanip>

#include "autograd/inspect/profiler.h"
#include "nn/gpt.h"
#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace flops_check {

using Flops = double (*)(const GptSizes&);
using Bytes = double (*)(double, double, double);

GptSizes sizes_of(const Tensor& x) {
  const std::vector<double> s = x.tolist();
  return {s[0], s[1], s[2], s[3], s[4]};
}
Answer of_sizes(Flops f) {
  return [f](const Tensors& in) -> Tensors { return {scalar(f(sizes_of(in[0])))}; };
}

// What the profiler counts in a step of the library's GPT.
Tensors counted(const Tensors& in) {
  const ContextGuard guard;
  context().default_dtype = f32;
  const GptSizes s = sizes_of(in[0]);
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  GPTConfig config;
  config.n_layer = whole(s.layers);
  config.n_embd = whole(s.C);
  config.n_head = 2;
  config.vocab_size = whole(s.V);
  config.block_size = whole(s.T);
  const GPT model(config);
  const Tensor ids = zeros({whole(s.B), whole(s.T)}, i64);
  Profiler profiler;
  const Observe observe(profiler);
  model.loss(ids, ids).backward();
  double flops = 0;
  for (const ProfileRow& row : profiler.rows())
    flops += row.forward.work.flops + row.backward.work.flops;
  return {scalar(flops)};
}

struct How {
  double product = 2, linear = 3, attention = 7, head = 1, mlp = 8;
  bool causal = true;
};
Answer by(const How& how) {
  return [how](const Tensors& in) -> Tensors {
    const GptSizes s = sizes_of(in[0]);
    const double rows = s.B * s.T, pairs = how.causal ? rows * (s.T + 1) / 2 : rows * s.T,
                 linear = s.layers * rows * s.C * s.C * (4 + how.mlp) + how.head * rows * s.C * s.V;
    return {scalar(how.product * (how.linear * linear + how.attention * s.layers * s.C * pairs))};
  };
}
Answer bytes_by(double products, double size, double x, double w, double y) {
  return [=](const Tensors& in) -> Tensors {
    const double rows = in[0].item(), width = in[1].item(), out = in[2].item();
    return {scalar(products * size * (x * rows * width + w * width * out + y * rows * out))};
  };
}

// A layer as it was predicted, and as it is here.
bool measure(Bytes linear_bytes, std::ostream& out) {
  const ContextGuard guard;
  context().default_dtype = f32;
  out << "\nA linear layer on this machine, forward and backward:\n"
      << "   rows    in   out   FLOPs/byte   GFLOP/s     GB/s\n";
  struct Sizes {
    int64_t rows, in, out;
  };
  for (const auto& [rows, in, width] : {Sizes{1, 512, 512}, {16, 512, 512}, {1024, 512, 512}}) {
    Generator generator(1);
    Tensor x = randn({rows, in}, f32, generator), w = randn({width, in}, f32, generator);
    x.requires_grad_();
    w.requires_grad_();
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      sum(linear(x, w)).backward();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      x.set_grad({});
      w.set_grad({});
    }
    const double flops = 6 * static_cast<double>(rows * in * width),
                 bytes = linear_bytes(static_cast<double>(rows), static_cast<double>(in),
                                      static_cast<double>(width));
    out << std::fixed << std::right << std::setprecision(1) << std::setw(7) << rows << std::setw(6)
        << in << std::setw(6) << width << std::setw(13) << flops / bytes << std::setw(10)
        << flops / best / 1e9 << std::setw(9) << bytes / best / 1e9 << "\n";
  }
  out << std::defaultfloat << std::setprecision(6)
      << "With few rows it waits for memory (or for the start of a kernel), with many for "
         "arithmetic.\n";
  return true;
}

Case of(const std::string& name, const GptSizes& s) {
  return {name, {tensor({s.layers, s.C, s.V, s.B, s.T}, f64)}};
}
Case of(const std::string& name, double rows, double in, double out) {
  return {name, {scalar(rows), scalar(in), scalar(out)}};
}

}  // namespace flops_check

Exercise flops_exercise(flops_check::Flops step_flops, flops_check::Bytes linear_bytes) {
  using namespace flops_check;
  return {
      "27_flops",
      "lesson 8",
      {"Count the numbers in all weights of a block first. Each takes part in one multiplication "
       "and one addition for each row.",
       "A block's weights are 12 C C numbers, the head's C V. Forward takes 2 FLOPs for each and "
       "each of B T rows, backward twice that.",
       "Linear layers: 6 B T (12 layers C C + C V). Attention: layers (2 + 5) 2 C B T (T + 1) / 2. "
       "linear_bytes: three products, each with the same three matrices: 3 * 4 * (rows in + in out "
       "+ rows out)."},
      {"autograd/inspect/profiler.cpp", "Flops flops_of(",
       "The profiler counts while a model runs, op by op, so it is right for models of any shape; "
       "the check compared you with it. inkling bench divides it by the time, and by what the "
       "machine can do at most."},
      {{"step_flops",
        {"flops"},
        of_sizes(step_flops),
        counted,
        {of("a small GPT", {2, 16, 20, 2, 8}), of("one layer", {1, 8, 10, 1, 4}),
         of("a long text", {1, 8, 16, 1, 32}), of("a large vocabulary", {1, 8, 200, 2, 4}),
         of("one position", {2, 16, 20, 3, 1})},
        {{by({.linear = 1, .attention = 2}),
          "This is the forward alone. Backward has two products for each of a linear layer."},
         {by({.product = 1}), "A multiplication and an addition are two FLOPs: this counts one."},
         {by({.linear = 2, .attention = 7}),
          "Backward of a linear layer has two products, dx and dW. This counts one."},
         {by({.attention = 0}), "The products of attention are missing."},
         {by({.causal = false}),
          "Each query is paired with all T keys. It sees itself and those before: T (T + 1) / 2."},
         {by({.attention = 6}), "Backward of attention computes P again: five products, not four."},
         {by({.head = 0}), "The head is missing: C -> V, a product as large as several blocks'."},
         {by({.mlp = 4}), "The MLP has two layers, C -> 4 C and 4 C -> C."}}},
       {"linear_bytes",
        {"bytes"},
        answer(linear_bytes),
        bytes_by(3, 4, 1, 1, 1),
        {of("a square layer", 8, 4, 4), of("a single row", 1, 16, 8), of("many rows", 1000, 4, 6)},
        {{bytes_by(1, 4, 1, 1, 1), "This is the forward alone. Backward has two products more."},
         {bytes_by(3, 1, 1, 1, 1), "This counts numbers. One of f32 has 4 bytes."},
         {bytes_by(3, 4, 0, 1, 0), "This counts the weights alone. x and y are read and written."},
         {bytes_by(3, 4, 1, 0, 1), "The weights are missing: in out numbers, in each product."},
         {bytes_by(2, 4, 1, 1, 1), "Backward has two products, dx and dW. This counts one."}}}},
      ".cpp",
      [linear_bytes](std::ostream& out) { return measure(linear_bytes, out); }};
}

}  // namespace ink
