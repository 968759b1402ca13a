#include "train/cases/module_cases.h"

#include <utility>

#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/gpt.h"
#include "nn/group_norm.h"
#include "nn/multihead_attention.h"
#include "nn/rms_norm.h"
#include "nn/self_attention.h"

namespace ink {
namespace {

// A row for a module. Its parameters are drawn anew, because ones and zeros could hide mistakes.
template <class M>
ModuleCase any_inputs(std::string name, M module, std::vector<Tensor> inputs,
                      std::function<Tensor(const M&, const std::vector<Tensor>&)> forward) {
  auto shared = std::make_shared<M>(std::move(module));
  shared->to(f64);
  {
    const NoGrad no_grad;
    for (Tensor p : shared->parameters()) p.copy_(randn(p.shape(), f64) * 0.3);
  }
  return {std::move(name), shared, std::move(inputs),
          [forward](const Module& m, const std::vector<Tensor>& x) -> Tensor {
            return forward(static_cast<const M&>(m), x);
          }};
}

template <class M>
ModuleCase one_input(std::string name, M module, Tensor input) {
  return any_inputs<M>(std::move(name), std::move(module), {std::move(input)},
                       [](const M& m, const std::vector<Tensor>& x) -> Tensor { return m(x[0]); });
}

Tensor input(const Shape& shape) { return randn(shape, f64); }

GPTConfig small_gpt(bool bias) {
  GPTConfig c;
  c.block_size = 6;
  c.vocab_size = 7;
  c.n_layer = 2;
  c.n_head = 2;
  c.n_embd = 8;
  c.dropout = 0.1;
  c.bias = bias;
  return c;
}

void add_attention(std::vector<ModuleCase>& rows) {
  using Inputs = std::vector<Tensor>;
  const Tensor padding = tensor({{true, false, false, false}, {true, true, true, true}});
  rows.push_back(any_inputs<SelfAttention>("SelfAttention, padded", SelfAttention(4),
                                           {input({2, 4, 4})},
                                           [=](const SelfAttention& m, const Inputs& x) {
                                             return m(x[0], logical_not(padding)).output;
                                           }));
  rows.push_back(any_inputs<ModuleList<SelfAttention>>(
      "ModuleList of heads", ModuleList<SelfAttention>(2, 3, false), {input({2, 4, 3})},
      [](const ModuleList<SelfAttention>& heads, const Inputs& x) {
        return cat({heads[0](x[0]).output, heads[1](x[0]).output}, -1);
      }));
  for (const bool need_weights : {false, true}) {
    rows.push_back(any_inputs<MultiheadAttention>(
        need_weights ? "MultiheadAttention, weights" : "MultiheadAttention, causal",
        MultiheadAttention(8, 2, {.dropout = need_weights ? 0.3 : 0}), {input({5, 2, 8})},
        [=](const MultiheadAttention& m, const Inputs& x) {
          const auto [y, w] = m(x[0], {.is_causal = !need_weights, .need_weights = need_weights});
          return need_weights ? sum(y) + sum(w * w) : y;
        }));
  }
  rows.push_back(any_inputs<MultiheadAttention>(
      "MultiheadAttention, cross, padded",
      MultiheadAttention(4, 2, {.kdim = 3, .vdim = 5, .batch_first = true}),
      {input({2, 3, 4}), input({2, 4, 3}), input({2, 4, 5})},
      [=](const MultiheadAttention& m, const Inputs& x) {
        return m(x[0], x[1], x[2], {.key_padding_mask = padding}).output;
      }));
}

}  // namespace

std::vector<ModuleCase> module_cases() {
  manual_seed(3);
  std::vector<ModuleCase> rows;
  rows.push_back(one_input("Linear", Linear(4, 3), input({2, 5, 4})));
  rows.push_back(one_input("Linear, no bias", Linear(4, 3, false), input({5, 4})));
  rows.push_back(one_input("Embedding", Embedding(5, 3), tensor({{0, 3, 3}, {4, 0, 1}})));
  rows.push_back(one_input("LayerNorm", LayerNorm(6), input({2, 3, 6})));
  rows.push_back(one_input("LayerNorm, no bias", LayerNorm(6, false), input({4, 6})));
  rows.push_back(one_input("LayerNorm, two dimensions", LayerNorm({3, 4}), input({2, 3, 4})));
  rows.push_back(one_input("LayerNorm, no parameters", LayerNorm(6, 1e-5, false), input({4, 6})));
  rows.push_back(one_input("GroupNorm", GroupNorm(2, 4), input({3, 4, 2})));
  rows.push_back(
      one_input("Embedding, padding", Embedding(5, 3, 3), tensor({{0, 1, 2}, {4, 0, 1}})));
  rows.push_back(one_input("RMSNorm", RMSNorm(6), input({2, 3, 6})));
  rows.push_back(one_input("BatchNorm1d", BatchNorm1d(4), input({5, 4})));
  rows.push_back(one_input("Dropout", Dropout(0.3), input({4, 6})));
  rows.push_back(one_input("ReLU", ReLU(), input({4, 6})));
  rows.push_back(one_input("Sigmoid", Sigmoid(), input({4, 6})));
  rows.push_back(one_input("LeakyReLU", LeakyReLU(0.2), input({4, 6})));
  rows.push_back(one_input("ELU", ELU(0.5), input({4, 6})));
  rows.push_back(one_input("Softplus", Softplus(2), input({4, 6})));
  rows.push_back(one_input("Tanh", Tanh(), input({4, 6})));
  rows.push_back(one_input("GELU", GELU(), input({4, 6})));
  rows.push_back(
      one_input("Sequential", Sequential{Linear(4, 5), Tanh(), Linear(5, 2)}, input({3, 4})));
  add_attention(rows);
  for (bool bias : {true, false}) {
    const std::string suffix = bias ? "" : ", no bias";
    rows.push_back(one_input("MLP" + suffix, MLP(small_gpt(bias)), input({2, 3, 8})));
    rows.push_back(one_input("CausalSelfAttention" + suffix, CausalSelfAttention(small_gpt(bias)),
                             input({2, 6, 8})));
    rows.push_back(one_input("CausalSelfAttention, grouped" + suffix,
                             CausalSelfAttention(small_gpt(bias), 1), input({2, 6, 8})));
    rows.push_back(one_input("Block" + suffix, Block(small_gpt(bias)), input({2, 5, 8})));
    rows.push_back(
        one_input("GPT" + suffix, GPT(small_gpt(bias)), tensor({{0, 3, 6, 1}, {2, 2, 5, 4}})));
  }
  ModuleCase loss =
      one_input("GPT::loss", GPT(small_gpt(true)), tensor({{0, 3, 6, 1}, {2, 2, 5, 4}}));
  loss.forward = [](const Module& m, const std::vector<Tensor>& x) {
    return static_cast<const GPT&>(m).loss(x[0], tensor({{3, 6, 1, -100}, {2, 5, 4, 0}}));
  };
  rows.push_back(std::move(loss));
  return rows;
}

GradcheckReport check_module(const ModuleCase& row, GradcheckOptions options, bool second) {
  std::vector<Tensor> leaves, inputs = row.inputs;
  for (const auto& [name, parameter] : row.module->named_parameters()) {
    leaves.push_back(parameter);
    options.names.push_back(name);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating()) continue;
    leaves.push_back(inputs[i].requires_grad_());
    options.names.push_back("input " + std::to_string(i));
  }
  const CheckedFunction f = [&](const std::vector<Tensor>&) -> std::vector<Tensor> {
    return {row.forward(*row.module, inputs)};
  };
  return second ? gradgradcheck(f, leaves, options) : gradcheck(f, leaves, options);
}

}  // namespace ink
