// What flows through a model: ops by module, memory that is kept, statistics by name.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "nn/activation.h"
#include "nn/gpt.h"
#include "nn/llama.h"
#include "nn/multihead_attention.h"
#include "tests/support/error_of.h"
#include "train/flow/flow.h"
#include "train/flow/parameter_parts.h"
#include "train/flow/watch.h"

namespace ink {
namespace {

GPT small_gpt(double dropout = 0) {
  manual_seed(3);
  GPTConfig config;
  config.block_size = 16;
  config.vocab_size = 31;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_embd = 32;
  config.dropout = dropout;
  return GPT(config);
}
Tensor ids() { return randint(0, 31, {3, 16}); }

std::vector<std::string> titles(const Flow& flow) {
  std::vector<std::string> all;
  for (const FlowOp& op : flow.ops()) all.push_back(op.title());
  return all;
}

const ActivationStats& row(const ModelStats& stats, const std::string& name) {
  for (const ActivationStats& one : stats.activations)
    if (one.name == name) return one;
  throw Error("no activation " + name);
}
double deviation(const Tensor& x) { return std(x, {}, 0).item(); }

TEST(Flow, NamesTheModuleOfEveryOp) {
  const GPT model = small_gpt();
  Flow flow(model);
  const Observe observe(flow);
  const Tensor loss = model.loss(ids(), ids());
  const std::vector<std::string> expected = {"wte embedding",
                                             "wpe add",
                                             "h.0.ln_1 layer_norm",
                                             "h.0.attn.c_attn linear",
                                             "h.0.attn causal_attention",
                                             "h.0.attn.c_proj linear",
                                             "h.0.ln_2 add_layer_norm",
                                             "h.0.mlp.c_fc linear",
                                             "h.0.mlp.c_proj gelu_linear",
                                             "h.1.ln_1 add_layer_norm",
                                             "h.1.attn.c_attn linear",
                                             "h.1.attn causal_attention",
                                             "h.1.attn.c_proj linear",
                                             "h.1.ln_2 add_layer_norm",
                                             "h.1.mlp.c_fc linear",
                                             "h.1.mlp.c_proj gelu_linear",
                                             "ln_f add_layer_norm",
                                             "lm_head linear_cross_entropy"};
  EXPECT_EQ(titles(flow), expected);  // the tied weight is wte's, then lm_head's
  // The norm reads the sum of the embeddings, and its weight.
  const FlowOp& norm = flow.ops()[2];
  ASSERT_EQ(norm.inputs.size(), 3u);
  EXPECT_EQ(norm.inputs[0].from, 1);
  EXPECT_EQ(norm.inputs[1].parameter, "h.0.ln_1.weight");
  // Attention reads q, k and v, which are views of one output.
  for (const FlowOp::Input& input : flow.ops()[4].inputs) EXPECT_EQ(input.from, 3);
}

TEST(Flow, WorksForAnyModule) {
  const Sequential net{Linear(2, 8), Tanh(), Linear(8, 8), ReLU(), Linear(8, 1)};
  Flow flow(net);
  {
    const Observe observe(flow);
    const Tensor y = net(ones({4, 2}));
    mean(y * y);
  }
  EXPECT_EQ(titles(flow), (std::vector<std::string>{"0 linear", "tanh", "2 linear", "relu",
                                                    "4 linear", "mul", "mean"}));
  const MultiheadAttention attention(8, 2);
  Flow heads(attention);
  const Observe observe(heads);
  attention(ones({3, 2, 8}));
  EXPECT_EQ(heads.ops().back().title(), "out_proj linear");
  EXPECT_EQ(heads.ops().front().module, "");  // in_proj_weight is its own
}

TEST(Flow, KeptBytesAreThoseInUseAfterForward) {
  const GPT model = small_gpt();
  const Tensor x = ids(), y = ids();
  model.loss(x, y).backward();  // the gradients exist
  Flow flow(model);
  const int64_t before = memory_stats().bytes_in_use;
  {
    const Observe observe(flow);
    const Tensor loss = model.loss(x, y);
    flow.note_kept();
    int64_t kept = 0;
    for (const FlowOp& op : flow.ops()) kept += op.bytes_kept;
    EXPECT_NEAR(static_cast<double>(kept),
                static_cast<double>(memory_stats().bytes_in_use - before), 1000);
    loss.backward();
  }
  EXPECT_EQ(memory_stats().bytes_in_use, before);
  for (const FlowOp& op : flow.ops()) {
    EXPECT_GT(op.forward_ms, 0) << op.title();
    EXPECT_GT(op.backward_ms, 0) << op.title();
  }
  // A residual branch is added and gone; the input of a nonlinearity and its output are kept.
  EXPECT_EQ(flow.ops()[5].bytes_kept, 0) << flow.ops()[5].title();
  EXPECT_EQ(flow.ops()[7].bytes_kept, 2 * block_bytes(flow.ops()[7].bytes))
      << flow.ops()[7].title();
}

TEST(Watch, MeasuresWhatTheModelComputes) {
  GPT model = small_gpt();
  const Tensor x = ids(), y = ids();
  const ModelStats stats = watch(model, [&] { return model.loss(x, y); });
  EXPECT_NEAR(stats.loss, model.loss(x, y).item(), 1e-6);

  Tensor embedded = model.wte(x) + model.wpe.weight.narrow(0, 0, 16);
  embedded.retain_grad();
  const Tensor normed = model.h[0]->ln_1(embedded);
  EXPECT_NEAR(row(stats, "h.0.ln_1").std, deviation(normed), 1e-5);
  EXPECT_NEAR(row(stats, "h.0.ln_1").mean, mean(normed).item(), 1e-5);
  EXPECT_TRUE(std::isnan(row(stats, "h.0.ln_1").saturated));
  auto [sum, branch] = (*model.h[0])(embedded, {}, nullptr);
  std::tie(sum, branch) = (*model.h[1])(sum, branch, nullptr);
  linear_cross_entropy(add_layer_norm(sum, branch, model.ln_f).second, model.lm_head.weight, y)
      .backward();
  EXPECT_NEAR(row(stats, "wpe").grad_std / deviation(embedded.grad()), 1, 1e-3);
  for (const ParameterStats& one : stats.parameters) {
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (name != one.name) continue;
      EXPECT_NEAR(one.norm, norm(parameter).item(), 1e-4 * one.norm) << name;
      EXPECT_NEAR(one.grad_norm, norm(parameter.grad()).item(), 1e-3 * one.grad_norm) << name;
    }
  }
}

TEST(Watch, ChangesNothing) {
  GPT model = small_gpt(0.1);
  model.train();
  const Tensor x = ids(), y = ids();
  context().random = {.seed = 5};
  const double before = model.loss(x, y).item();
  context().random = {.seed = 5};
  const int64_t live = Node::live;
  watch(model, [&] { return model.loss(x, y); });
  EXPECT_EQ(Node::live, live);
  for (const Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(model.loss(x, y).item(), before);  // the same masks
}

TEST(Watch, SaturationIsTheShareOfFlatElements) {
  const Tensor x = tensor({{-9.0, -3.0, -1.0, 0.0, 0.5, 1.0, 4.0, 9.0}}).requires_grad_();
  const auto share = [&](auto layer) {
    const Sequential net{std::move(layer)};
    return watch(net, [&] { return sum(net(x)); }).activations[0].saturated;
  };
  EXPECT_NEAR(share(Tanh()), 4.0 / 8, 1e-6);            // 1 - tanh^2 is 0.0099 at 3, 0.42 at 1
  EXPECT_NEAR(share(ReLU()), 4.0 / 8, 1e-6);            // 0 is flat, too
  EXPECT_NEAR(share(GELU(Gelu::tanh)), 2.0 / 8, 1e-6);  // slope at -3: -0.012
  EXPECT_NEAR(share(SiLU()), 1.0 / 8, 1e-6);            // slope at -3: -0.088
}

TEST(Watch, PrintsTwoTables) {
  const Sequential net{Linear(2, 3), Tanh()};
  std::ostringstream text;
  text << watch(net, [&] { return sum(net(ones({4, 2}))); });
  EXPECT_EQ(text.str().substr(0, text.str().find('\n')),
            "activation   shape   mean    std  saturated  grad std");
  for (const char* expected :
       {"\n0 ", "\ntanh ", "\nparameter  elements", "\n0.weight", "\n0.bias"})
    EXPECT_NE(text.str().find(expected), std::string::npos) << expected << text.str();
  EXPECT_EQ(error_of([&] { watch(net, [&] {
                             return net(ones({4, 2}));
                           }); }),
            "watch: expected a loss of one element, got (4, 3)");
}

std::map<std::string, double> by_name(const ParameterParts& parts,
                                      const std::vector<double>& values) {
  std::map<std::string, double> all;
  for (size_t i = 0; i < parts.size(); ++i) all[parts.name(i)] = values[i];
  return all;
}

TEST(ParameterParts, HeadsMakeUpTheirMatrices) {
  const GPT model = small_gpt();
  const ParameterParts parts(model);
  auto norms = by_name(parts, parts.norms([](const Tensor& p) { return p; }));
  double heads = 0;
  for (const char* head : {"0", "1", "2", "3"})
    heads += std::pow(norms.at(std::string("h.1.attn head ") + head), 2);
  EXPECT_NEAR(heads,
              std::pow(norms.at("h.1.attn.c_attn.weight"), 2) +
                  std::pow(norms.at("h.1.attn.c_proj.weight"), 2),
              1e-5);
  EXPECT_EQ(norms.count("h.0.attn head 4"), 0u);
}

// Also where several heads of queries share one of keys and values.
TEST(ParameterParts, HeadsOfGroupedQueries) {
  LlamaConfig config;
  config.block_size = 16, config.vocab_size = 31;
  config.n_layer = 2, config.n_head = 4, config.n_kv_head = 2, config.n_embd = 32;
  const Llama model(config);
  struct Grouped : CausalSelfAttention {
    explicit Grouped(const GPTConfig& c) : CausalSelfAttention(c, c.n_head / 2) {}
  };
  const Grouped attention(config);
  const auto dead = [](const Module& of, const std::string& name, const std::string& weight,
                       int64_t start) {
    const NoGrad no_grad;
    for (auto& [its, parameter] : of.named_parameters())
      if (its == weight) Tensor(parameter.detach().narrow(0, start, 8)).zero_();
    const ParameterParts parts(of);
    const ParameterParts::Copies before = parts.copies();
    for (auto& [its, parameter] : of.named_parameters())
      if (its == weight) Tensor(parameter.detach().narrow(0, start, 8)).fill_(1);
    const auto changes = parts.changes_since(before);
    std::string changed;
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts.name(i).find(name) == 0 && changes[i].ratio > 0)
        changed += parts.name(i).substr(name.size());
    return changed;
  };
  const std::string layer = "model.layers.1.self_attn";
  EXPECT_EQ(dead(model, layer + " head ", layer + ".q_proj.weight", 8), "1");
  EXPECT_EQ(dead(model, layer + " head ", layer + ".v_proj.weight", 8), "23");
  EXPECT_EQ(dead(attention, "head ", "c_attn.weight", 8), "1");
  EXPECT_EQ(dead(attention, "head ", "c_attn.weight", 32 + 8), "23") << "keys";
  EXPECT_EQ(dead(attention, "head ", "c_attn.weight", 32 + 16), "01") << "values";
}

TEST(ParameterParts, ChangesOfOneHeadAreItsOwn) {
  GPT model = small_gpt();
  const ParameterParts parts(model);
  const ParameterParts::Copies before = parts.copies();
  {
    const NoGrad no_grad;
    model.h[0]->attn->c_attn.weight.narrow(0, 8, 8).mul_(0.99);  // q of head 1
    model.h[1]->mlp->c_fc.weight.mul_(0.9);                      // as weight decay does
    model.wte.weight.neg_();
  }
  const auto changes = parts.changes_since(before);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parts.name(i);
    const auto& [ratio, turned] = changes[i];
    if (name == "h.0.attn head 1" || name == "h.0.attn.c_attn.weight") {
      EXPECT_GT(ratio, 1e-3) << name;
      EXPECT_EQ(turned > 1e-4, name != "h.0.attn head 1");  // its k and v did not
    } else if (name == "h.1.mlp.c_fc.weight") {
      EXPECT_NEAR(ratio, 0.1, 1e-5);
      EXPECT_LT(turned, 1e-6);
    } else if (name == "wte.weight") {
      EXPECT_NEAR(ratio, 2, 1e-5);
    } else if (name.find(".bias") == std::string::npos) {
      EXPECT_EQ(ratio, 0) << name;
    } else {
      EXPECT_TRUE(std::isnan(ratio)) << name;  // biases begin at 0
    }
  }
}

// What is frozen on purpose does not learn, and is no part of what should.
TEST(ParameterParts, FrozenParametersAreNone) {
  GPT model({.block_size = 4, .vocab_size = 5, .n_layer = 1, .n_head = 2, .n_embd = 4});
  const auto has = [&](const std::string& name) {
    const ParameterParts parts(model);
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts.name(i) == name) return true;
    return false;
  };
  EXPECT_TRUE(has("h.0.attn.c_attn.weight") && has("h.0.attn head 1"));
  model.h[0]->attn->c_attn.weight.requires_grad_(false);
  EXPECT_FALSE(has("h.0.attn.c_attn.weight") || has("h.0.attn head 1"));
  EXPECT_TRUE(has("h.0.attn.c_proj.weight"));
}

TEST(ParameterParts, LargePartsAreEstimated) {
  manual_seed(1);
  const Linear layer(3000, 2000, false);
  const ParameterParts parts(layer);
  const double exact = norm(layer.weight).item(),
               estimate = parts.norms([](const Tensor&p) { return p; })[0];
  EXPECT_NEAR(estimate / exact, 1, 0.01);
  EXPECT_LE(parts.copies()[0][0].numel(), 1 << 22);
  EXPECT_EQ(parts.count(0), 6'000'000);
}

}  // namespace
}  // namespace ink
