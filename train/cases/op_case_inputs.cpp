#include "train/cases/op_case_inputs.h"

#include <algorithm>
#include <random>

namespace ink {
namespace {

Tensor make_input(const In& in, DType dtype, std::mt19937_64& random) {
  std::vector<double> values(static_cast<size_t>(in.shape.numel()));
  const auto fill = [&](auto distribution) {
    for (double& value : values) value = distribution(random);
  };
  switch (in.kind) {
    case In::normal:
      fill(std::normal_distribution<double>());
      break;
    case In::positive:
      fill(std::uniform_real_distribution<double>(0.5, 2));
      break;
    case In::mask:
      fill([](auto& r) { return static_cast<double>(r() >> 63); });
      break;
    case In::ids:
      fill([&](auto& r) { return static_cast<double>(r() % static_cast<uint64_t>(in.limit)); });
      break;
    case In::spread:
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = (static_cast<double>(i / 2) + 0.5) * (i % 2 ? -0.01 : 0.01);
      std::shuffle(values.begin(), values.end(), random);
  }
  Tensor x = from_vector(values, in.shape);
  if (in.kind == In::mask) return x.to(DType::boolean);
  if (in.kind == In::ids) return x.to(DType::i64);
  return dtype == DType::f64 ? x : x.to(DType::bf16).to(dtype);
}

}  // namespace

Inputs make_inputs(const std::vector<In>& set, DType dtype) {
  std::mt19937_64 random(42);
  Inputs inputs;
  for (const In& in : set) inputs.push_back(make_input(in, dtype, random));
  return inputs;
}

std::vector<size_t> differentiable(const std::vector<In>& set) {
  std::vector<size_t> found;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i].kind != In::mask && set[i].kind != In::ids && !set[i].constant) found.push_back(i);
  }
  return found;
}

Inputs leaves_of(const Inputs& inputs, const std::vector<In>& set) {
  Inputs leaves;
  for (const Tensor& x : inputs) leaves.push_back(x.detach());
  for (size_t i : differentiable(set)) leaves[i].requires_grad_();
  return leaves;
}

int64_t largest(const std::vector<In>& set) {
  int64_t n = 0;
  for (const In& in : set) n = std::max(n, in.shape.numel());
  return n;
}

CaseRun run_case(const OpCase& row, const std::vector<In>& set, const Inputs& inputs) {
  const ContextGuard context_guard;  // the same random position every time
  const Inputs leaves = leaves_of(inputs, set);
  CaseRun run{row.op(leaves), {}};
  std::vector<Tensor> ys, upstream, wanted;
  std::mt19937_64 random(7);
  for (const Tensor& y : run.outputs) {
    if (!y.requires_grad()) continue;
    ys.push_back(y);
    upstream.push_back(
        make_input({y.shape()}, y.dtype() == DType::f64 ? DType::bf16 : y.dtype(), random)
            .to(y.dtype())
            .to(y.device()));
  }
  for (size_t i : differentiable(set)) wanted.push_back(leaves[i]);
  if (!ys.empty()) run.grads = grad(ys, wanted, upstream);
  for (size_t i = 0; i < run.grads.size(); ++i) {
    if (!run.grads[i].defined()) run.grads[i] = zeros_like(wanted[i]);
  }
  for (Tensor& y : run.outputs) y = y.detach();
  return run;
}

}  // namespace ink
