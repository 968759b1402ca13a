// The GPT: shapes, ties, causality, generation, errors, and the gradients of its parts.
#include "autograd/ops.h"
#include "nn/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "autograd/random/generator.h"
#include "nn/gradcheck_module.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Ids = std::vector<int64_t>;

GPTConfig tiny() {
  GPTConfig config;
  config.block_size = 6;
  config.vocab_size = 7;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 8;
  return config;
}

Tensor ids_of(int64_t rows, int64_t length) { return randint(7, {rows, length}); }

TEST(GPT, HasGPT2sNames) {
  const GPT model(tiny());
  std::vector<std::string> names;
  for (const auto& entry : model.state_dict()) names.push_back(entry.first);
  EXPECT_EQ(names, (std::vector<std::string>{"wte.weight",
                                             "wpe.weight",
                                             "h.0.ln_1.weight",
                                             "h.0.ln_1.bias",
                                             "h.0.attn.c_attn.weight",
                                             "h.0.attn.c_attn.bias",
                                             "h.0.attn.c_proj.weight",
                                             "h.0.attn.c_proj.bias",
                                             "h.0.ln_2.weight",
                                             "h.0.ln_2.bias",
                                             "h.0.mlp.c_fc.weight",
                                             "h.0.mlp.c_fc.bias",
                                             "h.0.mlp.c_proj.weight",
                                             "h.0.mlp.c_proj.bias",
                                             "h.1.ln_1.weight",
                                             "h.1.ln_1.bias",
                                             "h.1.attn.c_attn.weight",
                                             "h.1.attn.c_attn.bias",
                                             "h.1.attn.c_proj.weight",
                                             "h.1.attn.c_proj.bias",
                                             "h.1.ln_2.weight",
                                             "h.1.ln_2.bias",
                                             "h.1.mlp.c_fc.weight",
                                             "h.1.mlp.c_fc.bias",
                                             "h.1.mlp.c_proj.weight",
                                             "h.1.mlp.c_proj.bias",
                                             "ln_f.weight",
                                             "ln_f.bias"}));
  EXPECT_EQ(model.lm_head.weight.slot(), model.wte.weight.slot());
  GPTConfig lean = tiny();
  lean.bias = false;
  for (const auto& entry : GPT(lean).state_dict())
    EXPECT_EQ(entry.first.find("bias"), std::string::npos) << entry.first;
}

TEST(GPT, CountsTheParametersOfGPT2) {
  GPTConfig c;  // with one block of its twelve and one token of its 50257, to be quick
  c.n_layer = 1;
  c.vocab_size = 1;
  const GPT model(c);
  const int64_t block = model.h[0]->num_parameters();
  EXPECT_EQ(model.num_parameters() + 11 * block + 50256 * 768, 124439808);
}

TEST(GPT, PrintsItsTree) {
  EXPECT_EQ(GPT(tiny()).to_string(),
            "GPT(  # 1,864\n"
            "  (wte): Embedding(7, 8)  # 56\n"
            "  (wpe): Embedding(6, 8)  # 48\n"
            "  (drop): Dropout(p=0)\n"
            "  (h): ModuleList(  # 1,744\n"
            "    (0-1): 2 x Block(  # 872\n"
            "      (ln_1): LayerNorm((8,), eps=1e-05)  # 16\n"
            "      (attn): CausalSelfAttention(  # 288\n"
            "        (c_attn): Linear(in_features=8, out_features=24, bias=True)  # 216\n"
            "        (c_proj): Linear(in_features=8, out_features=8, bias=True)  # 72\n"
            "        (resid_dropout): Dropout(p=0)\n"
            "      )\n"
            "      (ln_2): LayerNorm((8,), eps=1e-05)  # 16\n"
            "      (mlp): MLP(  # 552\n"
            "        (c_fc): Linear(in_features=8, out_features=32, bias=True)  # 288\n"
            "        (gelu): GELU(approximate='tanh')\n"
            "        (c_proj): Linear(in_features=32, out_features=8, bias=True)  # 264\n"
            "        (drop): Dropout(p=0)\n"
            "      )\n"
            "    )\n"
            "  )\n"
            "  (ln_f): LayerNorm((8,), eps=1e-05)  # 16\n"
            "  (lm_head): Linear(in_features=8, out_features=7, bias=False)  # 56\n"
            ")");
}

TEST(GPT, StartsAsGPT2Does) {
  GPTConfig c = tiny();
  c.n_embd = 128;
  c.n_layer = 8;
  const GPT model(c);
  const auto spread = [](const Tensor& x) { return std(x).item(); };
  EXPECT_NEAR(spread(model.wte.weight), 0.02, 0.001);
  EXPECT_NEAR(spread(model.h[7]->attn->c_attn.weight), 0.02, 0.001);
  EXPECT_NEAR(spread(model.h[7]->attn->c_proj.weight), 0.02 / 4, 0.0002);
  EXPECT_NEAR(spread(model.h[7]->mlp->c_proj.weight), 0.02 / 4, 0.0002);
  EXPECT_EQ(max(abs(model.h[7]->mlp->c_fc.bias)).item(), 0);
  // An untrained model knows nothing: its loss is near that of guessing.
  EXPECT_NEAR(model.loss(ids_of(8, 6), ids_of(8, 6)).item(), std::log(7.0), 0.3);
}

// Nothing is drawn for parameters that are loaded anyway, and the values loaded are not copied.
TEST(GPT, IsMadeToBeLoaded) {
  const GPT first(tiny());
  NamedTensors state;
  std::vector<const float*> given, taken;
  for (const auto& [name, value] : first.state_dict()) {
    state.emplace_back(name, value.clone());
    given.push_back(state.back().second.data<float>());
  }
  manual_seed(5);
  const Tensor drawn = rand({2});
  manual_seed(5);
  const auto loaded = [] {
    const init::Skip skip;
    return GPT(tiny());
  };
  GPT second = loaded();
  EXPECT_TRUE(same_bits(rand({2}), drawn));
  EXPECT_TRUE(same_bits(second.ln_f.weight, ones({8})))
      << "nothing was drawn, so it has its values";
  second.load_state_dict(std::move(state));
  for (const auto& entry : second.state_dict()) taken.push_back(entry.second.data<float>());
  EXPECT_EQ(taken, given);
  const Tensor ids = ids_of(2, 6);
  EXPECT_TRUE(same_bits(second(ids), first(ids)));
}

TEST(GPT, LossIsThatOfItsLogits) {
  const GPT model(tiny());
  const Tensor ids = ids_of(3, 6), targets = ids_of(3, 6);
  const Tensor logits = model(ids);
  EXPECT_EQ(logits.shape(), (Shape{3, 6, 7}));
  EXPECT_NEAR(model.loss(ids, targets).item(), cross_entropy(logits, targets).item(), 1e-6);
  EXPECT_EQ(model(ids_of(2, 1)).shape(), (Shape{2, 1, 7}));
}

TEST(GPT, NoPositionSeesTheFuture) {
  const GPT model(tiny());
  Tensor ids = ids_of(1, 6);
  const Tensor before = model(ids);
  ids.select(1, 4).fill_((ids.select(1, 4).item<int64_t>() + 1) % 7);
  const Tensor after = model(ids);
  const auto rows = [](const Tensor& x, int64_t from, int64_t count) {
    return x.narrow(1, from, count).tolist();
  };
  EXPECT_EQ(rows(before, 0, 4), rows(after, 0, 4));
  EXPECT_NE(rows(before, 4, 1), rows(after, 4, 1));
  EXPECT_NE(rows(before, 5, 1), rows(after, 5, 1));
}

TEST(GPT, DefinitionsGiveTheSame) {
  GPT model(tiny());
  model.to(f64);
  const Tensor ids = ids_of(3, 6), targets = ids_of(3, 6);
  const auto run = [&] {
    model.zero_grad();
    const Tensor loss = model.loss(ids, targets);
    loss.backward();
    std::vector<double> all = loss.tolist();
    for (const Tensor& parameter : model.parameters()) {
      const auto grad = parameter.grad().tolist();
      all.insert(all.end(), grad.begin(), grad.end());
    }
    return all;
  };
  const auto fused = run();
  const Composed composed;
  const auto plain = run();
  ASSERT_EQ(fused.size(), plain.size());
  for (size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(fused[i], plain[i], 1e-12) << i;
}

TEST(GPT, SaysWhatItCannotDo) {
  const GPT model(tiny());
  EXPECT_EQ(error_of([&] { model(ids_of(2, 7)); }),
            "gpt: a sequence of 7 tokens is longer than block_size 6");
  EXPECT_EQ(error_of([&] { model(zeros({3}, i64)); }),
            "gpt: expected ids (B, T), at least one, got (3,)");
  EXPECT_EQ(error_of([&] {
              model(zeros({1, 0}, i64));
            }),
            "gpt: expected ids (B, T), at least one, got (1, 0)");
  GPTConfig c = tiny();
  c.n_head = 3;
  EXPECT_EQ(error_of([&] { GPT{c}; }),
            "gpt: expected n_embd to be a multiple of n_head, got 8 and 3");
  c.n_head = 0;
  EXPECT_EQ(error_of([&] { GPT{c}; }),
            "gpt: expected sizes above 0, got block_size 6, vocab_size 7, n_layer 2, n_head 0, "
            "n_embd 8");
  c = tiny();
  c.dropout = 1;
  EXPECT_EQ(error_of([&] { GPT{c}; }), "gpt: expected dropout in [0, 1), got 1");
}

// ---- generate

TEST(Generate, ContinuesEveryRowAndTellsEachToken) {
  const GPT model(tiny());
  const Tensor prompt = ids_of(2, 3);
  GenerateOptions options;
  options.max_new_tokens = 9;  // past block_size
  std::vector<Ids> told;
  options.on_token = [&](const Ids& next) { told.push_back(next); };
  const Tensor text = model.generate(prompt, options);
  EXPECT_EQ(text.shape(), (Shape{2, 12}));
  EXPECT_FALSE(text.requires_grad());
  EXPECT_EQ(text.narrow(1, 0, 3).tolist(), prompt.tolist());
  ASSERT_EQ(told.size(), 9u);
  for (int64_t i = 0; i < 9; ++i)
    EXPECT_EQ(told[static_cast<size_t>(i)], text.select(1, 3 + i).tolist<int64_t>());
}

// next_logits in a loop of one's own: a cache counts by itself.
TEST(Generate, LogitsInPiecesAreThoseOfTheWhole) {
  const NoGrad no_grad;
  manual_seed(2);
  GPT model({.block_size = 12, .vocab_size = 9, .n_layer = 2, .n_head = 2, .n_embd = 8});
  const Tensor ids = randint(9, {2, 12}), whole = model(ids);
  for (const int64_t piece : {1, 3, 12}) {
    DecodeCache cache = model.make_cache();
    for (int64_t start = 0; start < 12; start += piece)
      EXPECT_TRUE(allclose(model.next_logits(ids.narrow(1, start, piece), &cache),
                           whole.select(1, start + piece - 1), 1e-4, 1e-5))
          << piece << ' ' << start;
  }
}

TEST(Generate, IsAFunctionOfTheRandomPosition) {
  const GPT model(tiny());
  const Tensor prompt = ids_of(1, 1);
  const auto draw = [&](uint64_t seed) {
    const ContextGuard restored;
    context().random = {seed};
    GenerateOptions options;
    options.max_new_tokens = by_device(40, 10);
    return model.generate(prompt, options).tolist();
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Generate, TheLikeliestTokenAtTemperatureZeroOrTopOne) {
  const GPT model(tiny());
  const Tensor prompt = ids_of(2, 2);
  GenerateOptions options;
  options.max_new_tokens = 5;
  options.temperature = 0;
  const Tensor greedy = model.generate(prompt, options);
  const Tensor first = argmax(model(prompt).select(1, 1), -1);
  EXPECT_EQ(greedy.select(1, 2).tolist(), first.tolist());
  options.temperature = 1;
  options.top_k = 1;
  EXPECT_EQ(model.generate(prompt, options).tolist(), greedy.tolist());
}

// A model that ignores its input and gives these logits.
GPT constant_model(const std::vector<float>& logits) {
  GPTConfig c = tiny();
  c.n_layer = 1;
  GPT model(c);
  const NoGrad no_grad;
  model.ln_f.weight.zero_();
  model.ln_f.bias.zero_();
  model.ln_f.bias.select(0, 0).fill_(1);
  model.wte.weight.zero_();
  model.wte.weight.select(1, 0).copy_(from_vector(logits));
  return model;
}

TEST(Generate, DrawsInProportion) {
  const std::vector<float> logits = {0, 1, -1, 2, -100, 0.5f, 1.5f};
  const GPT model = constant_model(logits);
  GenerateOptions options;
  options.max_new_tokens = 1;
  options.temperature = 0.5;
  options.top_k = 4;  // 1, 3, 5, 6
  const int64_t rows = by_device(20000, 500);
  std::vector<double> share(7);
  for (const int64_t id :
       model.generate(zeros({rows, 1}, i64), options).select(1, 1).tolist<int64_t>())
    share[static_cast<size_t>(id)] += 1.0 / static_cast<double>(rows);
  double total = 0;
  for (const int i : {1, 3, 5, 6}) total += std::exp(2.0 * logits[static_cast<size_t>(i)]);
  for (const int i : {0, 2, 4}) EXPECT_EQ(share[static_cast<size_t>(i)], 0);
  for (const size_t i : {1u, 3u, 5u, 6u}) {
    const double p = std::exp(2.0 * logits[i]) / total;
    EXPECT_NEAR(share[i], p, 5 * std::sqrt(p * (1 - p) / static_cast<double>(rows)));
  }
}

// One row by the definitions, written out: penalty, temperature, top_k, top_p, min_p.
std::vector<double> scores_by_definition(std::vector<double> scores, const Ids& context,
                                         const GenerateOptions& options) {
  for (const int64_t id : std::set<int64_t>(context.begin(), context.end())) {
    double& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * options.repetition_penalty : score / options.repetition_penalty;
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto leave_out = [&](size_t rank) { scores[order[rank]] = -INFINITY; };
  const auto probability = [&](size_t rank) {
    double total = 0;
    for (const double score : scores) total += std::exp(score);
    return std::exp(scores[order[rank]]) / total;
  };
  for (double& score : scores) score /= options.temperature;
  for (size_t rank = 0; rank < scores.size(); ++rank)
    if (options.top_k > 0 && rank >= static_cast<size_t>(options.top_k)) leave_out(rank);
  std::vector<double> p;
  for (size_t rank = 0; rank < scores.size(); ++rank) p.push_back(probability(rank));
  double before = 0;  // of those that are likelier
  for (size_t rank = 0; rank < scores.size(); before += p[rank++])
    if (rank > 0 && options.top_p < 1 && before >= options.top_p) leave_out(rank);
  p.clear();
  for (size_t rank = 0; rank < scores.size(); ++rank) p.push_back(probability(rank));
  for (size_t rank = 0; rank < scores.size(); ++rank)
    if (p[rank] < options.min_p * p[0]) leave_out(rank);
  return scores;
}

TEST(Generate, ScoresAreThoseOfTheDefinitions) {
  const int64_t V = 40;
  int left_out = 0;
  for (int round = 0; round < 200; ++round) {
    const Tensor logits = randn({3, V}) * 3, context = randint(V, {3, 9});
    GenerateOptions options;
    options.temperature = round % 3 == 0 ? 1 : 0.3 + rand({}).item();
    options.top_k = round % 4 == 0 ? 1 + round % 50 : 0;
    options.top_p = round % 5 == 0 ? 1 : rand({}).item();
    options.min_p = round % 2 == 0 ? 0 : 0.2 * rand({}).item();
    options.repetition_penalty = round % 7 == 0 ? 1 : 0.5 + rand({}).item();
    const Tensor scores = next_token_scores(logits, context, options);
    for (int64_t row = 0; row < 3; ++row) {
      const auto expected = scores_by_definition(logits[row].tolist(),
                                                 context.select(0, row).tolist<int64_t>(), options);
      const auto got = scores[row].tolist();
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::isinf(expected[i])) {
          EXPECT_EQ(got[i], expected[i]) << round << " " << i;
          ++left_out;
        } else {
          EXPECT_NEAR(got[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << round << " " << i;
        }
      }
    }
  }
  EXPECT_GT(left_out, 1000);
}

TEST(Generate, ScoresAtTheirLimits) {
  const Tensor logits = tensor({{2.0, 1.0, 2.0, -1.0}}), context = zeros({1, 1}, i64);
  const auto kept = [&](const GenerateOptions& options) {
    std::vector<int> ids;
    const auto scores = next_token_scores(logits, context, options).tolist();
    for (int i = 0; i < 4; ++i)
      if (std::isfinite(scores[static_cast<size_t>(i)])) ids.push_back(i);
    return ids;
  };
  using Kept = std::vector<int>;
  EXPECT_EQ(kept({}), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 0}), Kept{0});  // one of two that are equal, and so it is the smallest
  EXPECT_EQ(kept({.top_p = 1e-9}), Kept{0});
  EXPECT_EQ(kept({.top_p = 0.5}), (Kept{0, 2}));
  EXPECT_EQ(kept({.top_p = 0.99}), (Kept{0, 1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 1}), (Kept{0, 2}));
  EXPECT_EQ(kept({.min_p = 0.3}), (Kept{0, 1, 2}));
  EXPECT_EQ(kept({.min_p = 1, .repetition_penalty = 1.5}), Kept{2});
  EXPECT_EQ(kept({.top_k = 3, .top_p = 0.9}), (Kept{0, 1, 2}));
  // Without them, the bits of the quotient alone.
  EXPECT_EQ(next_token_scores(logits, context, {.temperature = 0.7}).tolist(),
            (logits / 0.7).tolist());
}

TEST(Generate, ThePenaltyHoldsForTheContextAndAtTemperatureZero) {
  const GPT model = constant_model({0, 1, -1, 2, -3, 0.5f, 1.5f});
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.temperature = 0;
  options.repetition_penalty = 1000;
  EXPECT_EQ(model.generate(zeros({1, 1}, i64), options).tolist<int64_t>(),
            (Ids{0, 3, 6, 1, 5, 3, 3}));
}

TEST(Generate, SaysWhatItCannotDo) {
  GPTConfig c = tiny();
  c.dropout = 0.1;
  GPT model(c);
  const auto error = [&](const Tensor& ids, const GenerateOptions& options) {
    return error_of([&] { model.generate(ids, options); });
  };
  EXPECT_EQ(error(ids_of(1, 1), {}),
            "generate: the model is in training mode and would drop; call eval() first");
  model.eval();
  EXPECT_EQ(error(ids_of(1, 1), {.max_new_tokens = 2}), "(no error)");
  EXPECT_EQ(error(zeros({1, 0}, i64), {}),
            "generate: expected ids (B, T) with at least one token, got (1, 0)");
  EXPECT_EQ(error(zeros({4}, i64), {}),
            "generate: expected ids (B, T) with at least one token, got (4,)");
  GenerateOptions options;
  options.temperature = -1;
  EXPECT_EQ(error(ids_of(1, 1), options), "generate: expected a temperature of 0 or more, got -1");
  options = {};
  options.top_k = -1;
  EXPECT_EQ(error(ids_of(1, 1), options),
            "generate: expected max_new_tokens and top_k of 0 or more, got 100 and -1");
  EXPECT_EQ(error(ids_of(1, 1), {.top_p = 1.5}),
            "generate: expected top_p and min_p of 0 to 1, got 1.5 and 0");
  EXPECT_EQ(error(ids_of(1, 1), {.min_p = -0.5}),
            "generate: expected top_p and min_p of 0 to 1, got 1 and -0.5");
  for (const double penalty : {0.0, -1.0, double{NAN}, double{INFINITY}})
    EXPECT_NE(error(ids_of(1, 1), {.repetition_penalty = penalty})
                  .find("generate: expected a repetition_penalty above 0, got "),
              std::string::npos);
  const GPT broken = constant_model({NAN, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(error_of([&] { broken.generate(ids_of(1, 1)); }),
            "sample: the probabilities of row 0 are not finite, or do not sum to 1");
}

// ---- gradients

TEST(GPT, PassesTheGradientCheckPartByPart) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "there, test_modules checks them all";
  const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report.ok) << report; };
  GPTConfig c = tiny();
  MLP mlp(c);
  passes(gradcheck_module(mlp, randn({2, 3, 8})));
  CausalSelfAttention attn(c);
  passes(gradcheck_module(attn, randn({2, 5, 8})));
  Block block(c);
  passes(gradcheck_module(block, randn({2, 4, 8})));
  c.bias = false;
  Block lean(c);
  passes(gradcheck_module(lean, randn({2, 4, 8})));
}

TEST(GPT, PassesTheGradientCheckWhole) {
  GPT model(tiny());
  model.to(f64);
  // Larger weights than the initial ones, so that no gradient is lost among the others.
  for (Tensor& parameter : model.parameters()) init::normal_(parameter, 0, 0.3);
  const Tensor ids = ids_of(2, 6), targets = ids_of(2, 6);
  GradcheckOptions options;
  options.max_elements = 0;  // along random directions: the parts were checked element by element
  options.directions = static_cast<int>(by_device(options.directions, 1));
  const auto passes = [&](const auto& f) {
    const GradcheckReport report = gradcheck(f, model.parameters(), options);
    EXPECT_TRUE(report.ok) << report;
    EXPECT_EQ(report.checked, 28 * options.directions);
  };
  passes([&](const auto&) { return model(ids.narrow(1, 0, 5)); });
  passes([&](const auto&) { return model.loss(ids, targets); });
}

TEST(GPT, AttentionDropsWeightsAndItsResultInTraining) {
  const ContextGuard guard;
  manual_seed(3);
  GPTConfig c = tiny();
  c.dropout = 0.4;
  CausalSelfAttention attn(c);
  const Tensor x = randn({2, 6, 8});
  context().random = {.seed = 5};
  const Tensor y = attn(x);
  context().random = {.seed = 5};
  std::vector<Tensor> qkv = split(attn.c_attn(x), 8, 2);
  for (Tensor& t : qkv) t = t.view({2, 6, 2, 4}).transpose(1, 2);
  const Tensor weights = dropout(attention_weights(qkv[0], qkv[1], {.is_causal = true}), 0.4);
  const Tensor mixed = matmul(weights, qkv[2]).transpose(1, 2).reshape({2, 6, 8});
  EXPECT_TRUE(allclose(y, dropout(attn.c_proj(mixed), 0.4), 1e-5, 1e-6));
  attn.eval();
  const uint64_t call = context().random.call;
  EXPECT_FALSE(allclose(attn(x), y));
  EXPECT_EQ(context().random.call, call);
}

}  // namespace
}  // namespace ink
