// Attention modules and BatchNorm1d against PyTorch's (golden/nn_fixtures.py), caches against
// running it all at once, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autograd/random/generator.h"
#include "nn/batch_norm.h"
#include "nn/gpt.h"
#include "nn/multihead_attention.h"
#include "nn/self_attention.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Group = std::map<std::string, Tensor>;

// The tensors of the fixture whose names begin with a prefix, without it.
Group group(const std::string& prefix) {
  const NamedTensors all = load_golden("nn.safetensors");
  Group found;
  for (const auto& [name, tensor] : all) {
    if (name.rfind(prefix, 0) == 0) found[name.substr(prefix.size())] = tensor;
  }
  EXPECT_FALSE(found.empty()) << prefix;
  return found;
}

void expect_close(const Tensor& a, const Tensor& b, const std::string& what, double rtol = 1e-5) {
  ASSERT_TRUE(a.defined()) << what;
  ASSERT_EQ(a.shape(), b.shape()) << what;
  const double scale = max(abs(b)).item();
  EXPECT_LE(max(abs(a.detach() - b)).item(), rtol * std::max(scale, 1e-3)) << what;
}

struct Case {
  const char* name;
  MultiheadOptions options = {};
  bool is_causal = false, average = true;
};

const Case kCases[] = {{"self"},
                       {"self_causal"},
                       {"self_causal", {}, true},
                       {"per_head", {}, false, false},
                       {"batch_first", {.batch_first = true}},
                       {"no_bias", {.bias = false}},
                       {"cross"},
                       {"padded"},
                       {"widths", {.kdim = 6, .vdim = 10}},
                       {"added"}};

MultiheadAttention as_fixture(const Case& c, const Group& tensors) {
  manual_seed(7);
  MultiheadAttention mha(8, 2, c.options);
  NamedTensors used;
  size_t initial = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name.rfind("used.", 0) == 0) used.emplace_back(name.substr(5), tensor);
    initial += name.rfind("init.", 0) == 0;
  }
  const NamedTensors drawn = mha.named_parameters();
  EXPECT_EQ(drawn.size(), initial) << c.name;
  for (const auto& [name, tensor] : drawn)
    EXPECT_TRUE(equal(tensor.detach(), tensors.at("init." + name))) << c.name << " " << name;
  mha.load_state_dict(used);
  return mha;
}

TEST(MultiheadAttention, IsPyTorchs) {
  for (const Case& c : kCases) {
    for (const bool need_weights : {true, false}) {
      const Group t = group("mha." + std::string(c.name) + ".");
      const MultiheadAttention mha = as_fixture(c, t);
      MultiheadCall call;
      call.need_weights = need_weights;
      call.average_attn_weights = c.average;
      call.is_causal = c.is_causal;
      if (t.count("attn_mask") && !c.is_causal) call.attn_mask = t.at("attn_mask");
      if (t.count("key_padding_mask")) call.key_padding_mask = t.at("key_padding_mask");
      Group inputs;
      for (const char* name : {"query", "key", "value"}) {
        if (t.count(name)) inputs[name] = t.at(name).clone().requires_grad_();
      }
      const Tensor query = inputs["query"];
      const auto [y, weights] =
          t.count("key") ? mha(query, inputs["key"], inputs["value"], call) : mha(query, call);
      expect_close(y, t.at("output"), c.name);
      EXPECT_EQ(weights.defined(), need_weights);
      if (need_weights) expect_close(weights, t.at("weights"), c.name);
      y.backward(t.at("dout"));
      for (const auto& [name, x] : inputs)
        expect_close(x.grad(), t.at("grad." + name), c.name + (" " + name));
      for (const auto& [name, x] : mha.named_parameters())
        expect_close(x.grad(), t.at("grad." + name), c.name + (" " + name));
    }
  }
}

// A loss on the weights has no gradient through what padding holds.
TEST(MultiheadAttention, PaddingNeverMattersToTheWeights) {
  manual_seed(2);
  const MultiheadAttention mha(8, 2, {.batch_first = true});
  const Tensor query = randn({2, 3, 8}), memory = randn({2, 5, 8}), upstream = randn({2, 3, 5}),
               padding = arange(5.0).expand({2, 5}) > 3.0;
  const auto run = [&](double last) {
    Tensor keys = memory.clone();
    if (last != 0) keys.narrow(1, 4, 1).fill_(last);
    const Tensor q = query.clone().requires_grad_();
    keys.requires_grad_();
    const auto [y, weights] =
        mha(q, keys, keys, {.key_padding_mask = padding, .need_weights = true});
    const Grads grads = grad({sum(y) + sum(weights * upstream)}, {q, keys});
    return std::vector<Tensor>{y.detach(), weights.detach(), grads[0], grads[1].narrow(1, 0, 4)};
  };
  const std::vector<Tensor> clean = run(0);
  for (const double last : {double(NAN), double(INFINITY)}) {
    const std::vector<Tensor> got = run(last);
    for (size_t i = 0; i < clean.size(); ++i)
      EXPECT_TRUE(allclose(got[i], clean[i], 1e-6, 1e-7)) << i;
  }
}

TEST(MultiheadAttention, DropsTheWeightsItReturns) {
  manual_seed(1);
  const MultiheadAttention mha(8, 2, {.dropout = 0.5, .batch_first = true});
  const Tensor x = randn({2, 6, 8});
  const RandomPosition at = context().random;
  const auto [with, weights] = mha(x, {.need_weights = true, .average_attn_weights = false});
  context().random = at;
  const Tensor without = mha(x).output;
  EXPECT_TRUE(allclose(with, without, 1e-4, 1e-6));
  const double dropped = sum((weights == 0).to(f32)).item();
  EXPECT_GT(dropped, 36);
  EXPECT_LT(dropped, 108);
}

TEST(MultiheadAttention, DropsNothingInEvaluation) {
  manual_seed(1);
  MultiheadAttention mha(8, 2, {.dropout = 0.5, .batch_first = true});
  const Tensor x = randn({2, 6, 8});
  for (const bool need_weights : {false, true}) {
    const MultiheadCall call{.need_weights = need_weights};
    mha.train();
    const Tensor dropped = mha(x, call).output;
    mha.eval();
    const uint64_t draws = context().random.call;
    const auto [evaluated, weights] = mha(x, call);
    EXPECT_EQ(context().random.call, draws);
    if (need_weights) {
      EXPECT_TRUE(allclose(sum(weights, {-1}), ones({2, 6})));
    }
    EXPECT_FALSE(allclose(dropped, evaluated, 1e-2, 1e-2));
    mha.train();
    mha.options.dropout = 0;
    EXPECT_TRUE(equal(mha(x, call).output, evaluated));
    mha.options.dropout = 0.5;
  }
}

// A query sees what neither mask hides, be they bools, numbers that are added, or one of each.
TEST(MultiheadAttention, TwoMasksHideWhatEitherHides) {
  manual_seed(6);
  const MultiheadAttention mha(8, 2, {.batch_first = true});
  const Tensor x = randn({2, 4, 8});
  const Tensor padding = tensor({{false, false, false, true}, {false, true, false, false}});
  const Tensor at = arange(4, i64), later = at > at.unsqueeze(1);  // (T, S)
  const auto added = [](const Tensor& hidden) {
    return masked_fill(zeros(hidden.shape()), hidden, -std::numeric_limits<double>::infinity());
  };
  const Tensor either =
      logical_or(padding.view({2, 1, 1, 4}).expand({2, 2, 4, 4}), later).reshape({4, 4, 4});
  const auto run = [&](const Tensor& keys, const Tensor& mask) {
    return mha(x, {.key_padding_mask = keys,
                   .attn_mask = mask,
                   .need_weights = true,
                   .average_attn_weights = false});
  };
  EXPECT_GT(min(run({}, {}).weights).item(), 0) << "each sees all, unless it is said";
  const auto expected = run({}, either);
  EXPECT_TRUE(equal(expected.weights.view({4, 4, 4}) == 0, either));
  for (const Tensor& keys : {padding, added(padding)}) {
    for (const Tensor& mask : {later, added(later)}) {
      const auto got = run(keys, mask);
      EXPECT_TRUE(allclose(got.output, expected.output, 1e-5, 1e-6)) << keys << mask;
      EXPECT_TRUE(allclose(got.weights, expected.weights, 1e-5, 1e-6)) << keys << mask;
    }
  }
}

TEST(MultiheadAttention, SaysWhatItExpects) {
  EXPECT_EQ(error_of([] { MultiheadAttention(10, 4); }),
            "multihead_attention: expected embed_dim to be a multiple of num_heads, got 10 and 4");
  const MultiheadAttention mha(4, 2);
  EXPECT_EQ(error_of([&] {
              mha(ones({3, 2, 4}), {.key_padding_mask = ones({3, 2}) > 0});
            }),
            "multihead_attention: expected key_padding_mask (B, S) = (2, 3), got (3, 2)");
  // A mask of Hugging Face's tokenizers, whose sense is the other one.
  const std::string mask =
      " (true: not attended to) or a floating one (added to the scores), got int64; of a mask that "
      "is 1 where to attend, as tokenizers make, pass mask == 0";
  EXPECT_EQ(error_of([&] {
              mha(ones({3, 2, 4}), {.key_padding_mask = ones({2, 3}, i64)});
            }),
            "multihead_attention: expected a bool key_padding_mask" + mask);
  EXPECT_EQ(error_of([&] {
              mha(ones({3, 2, 4}), {.attn_mask = ones({3, 3}, i64)});
            }),
            "multihead_attention: expected a bool attn_mask" + mask);
  EXPECT_EQ(
      error_of([&] {
        mha(ones({3, 2, 4}), {.attn_mask = ones({2, 3, 3}, boolean)});
      }),
      "multihead_attention: expected attn_mask (T, S) or (B num_heads, T, S) = (4, 3, 3), got "
      "(2, 3, 3)");
  const std::string shapes =
      "multihead_attention: expected query, key and value of (T, B, E), (S, B, kdim) and (S, B, "
      "vdim), got ";
  EXPECT_EQ(error_of([&] {
              mha(ones({3, 4}));
            }),
            shapes + "(3, 4), (3, 4) and (3, 4); unsqueeze(1) makes a batch of one");
  const Tensor x = ones({3, 2, 4}), other = ones({3, 1, 4});
  EXPECT_EQ(error_of([&] { mha(x, other, other); }), shapes + "(3, 2, 4), (3, 1, 4) and (3, 1, 4)");
  EXPECT_EQ(error_of([&] {
              mha(x, x, ones({5, 2, 4}));
            }),
            shapes + "(3, 2, 4), (3, 2, 4) and (5, 2, 4)");
}

// ---- caches

// attn(x) in pieces through a cache is attn(x) at once.
template <class Attend>
void expect_cached(const Tensor& x, Attend&& attend) {
  const NoGrad no_grad;
  const Tensor whole = attend(x, nullptr);
  KVCache cache(x.size(1) + 1);
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> parts;
    int64_t start = 0;
    for (const int64_t n : {4, 1, 2, 1}) {
      parts.push_back(attend(x.narrow(1, start, n), &cache));
      start += n;
    }
    EXPECT_EQ(cache.size(), start);
    EXPECT_TRUE(allclose(cat(parts, 1), whole, 1e-5, 1e-6));
    cache.crop(6);  // forget two and say them again
    EXPECT_TRUE(allclose(attend(x.narrow(1, 6, 2), &cache), whole.narrow(1, 6, 2), 1e-5, 1e-6));
    cache.crop(0);
  }
}

TEST(KVCache, InEveryAttention) {
  manual_seed(2);
  const Tensor x = randn({2, 8, 12});
  const SelfAttention one(12);
  expect_cached(x, [&](const Tensor& t, KVCache* c) { return one(t, {}, c).output; });
  const MultiheadAttention many(12, 3, {.batch_first = true});
  expect_cached(x, [&](const Tensor& t, KVCache* c) {
    return many(t, {.is_causal = true, .cache = c}).output;
  });
  GPTConfig config;
  config.n_embd = 12;
  config.n_head = 3;
  const CausalSelfAttention gpts(config);
  expect_cached(x, [&](const Tensor& t, KVCache* c) { return gpts(t, c); });
}

TEST(KVCache, ABatchOfContinuations) {
  KVCache cache(4);
  const NoGrad no_grad;
  const Tensor k = arange(2, f32).view({2, 1, 1}), v = k + 10.0;
  cache.append(k, v);
  cache.select(tensor({1, 1, 0}));
  const auto [keys, values] = cache.append(full({3, 1, 1}, 5), full({3, 1, 1}, 15));
  EXPECT_EQ(keys.tolist(), (std::vector<double>{1, 5, 1, 5, 0, 5}));
  EXPECT_EQ(values.tolist(), (std::vector<double>{11, 15, 11, 15, 10, 15}));
}

TEST(KVCache, ACopyGoesItsOwnWay) {
  const NoGrad no_grad;
  const Tensor one = full({1, 1, 1}, 1), two = full({1, 1, 1}, 2), three = full({1, 1, 1}, 3);
  std::vector<KVCache> caches(2, KVCache(3));
  for (KVCache& cache : caches) cache.append(one, one);
  KVCache branch = caches[0];
  const Tensor first = caches[0].append(two, two).first;
  const Tensor second = branch.append(three, three).first;
  caches[1] = branch;
  caches[1].append(two, two);
  EXPECT_EQ(first.tolist(), (std::vector<double>{1, 2}));
  EXPECT_EQ(second.tolist(), (std::vector<double>{1, 3}));
  EXPECT_EQ(branch.size(), 2);
}

TEST(KVCache, AllocatesOnce) {
  KVCache cache(3);
  const NoGrad no_grad;
  const Tensor row = ones({2, 1, 4});
  const auto storage = cache.append(row, row).first.storage();
  EXPECT_EQ(cache.append(row, row).first.storage(), storage);
  cache.crop(0);
  EXPECT_EQ(cache.append(row, row).first.storage(), storage);
}

TEST(KVCache, SaysWhatItExpects) {
  KVCache cache(3);
  EXPECT_EQ(error_of([&] {
              const Tensor k = ones({1, 1, 2}).requires_grad_();
              cache.append(k, k);
            }),
            "kv_cache: keys and values are written over and cannot be in a graph; use NoGrad");
  KVCache(1).append(ones({1, 1, 2}), ones({1, 1, 2}));  // no graph: allowed
  const NoGrad no_grad;
  const Tensor two = ones({1, 2, 2});
  cache.append(two, two);
  EXPECT_EQ(error_of([&] { cache.append(two, two); }),
            "kv_cache: 2 + 2 tokens are more than its capacity of 3");
  EXPECT_EQ(error_of([&] {
              cache.append(ones({2, 1, 2}), ones({2, 1, 2}));
            }),
            "kv_cache: holds (1, 3, 2) and (1, 3, 2), to which (2, 1, 2) and (2, 1, 2) cannot be "
            "appended");
  EXPECT_EQ(error_of([&] { cache.crop(3); }), "kv_cache: expected to keep 0 to 2 tokens, got 3");
}

TEST(KVCache, GenerationIsTheSameWithout) {
  manual_seed(3);
  GPTConfig config;
  config.block_size = 12;
  config.vocab_size = 31;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  GPT model(config);
  for (const Tensor& p : model.parameters()) init::normal_(p, 0, 0.5);
  const Tensor prompt = randint(31, {2, 3});
  Tensor expected = prompt;
  for (int i = 0; i < 20; ++i) {  // past block_size
    const NoGrad no_grad;
    const int64_t T = expected.size(1), seen = std::min<int64_t>(T, 12);
    const Tensor logits = model(expected.narrow(1, T - seen, seen)).select(1, seen - 1);
    expected = cat({expected, argmax(logits, -1, true)}, 1);
  }
  GenerateOptions options;
  options.max_new_tokens = 20;
  options.temperature = 0;
  EXPECT_TRUE(equal(model.generate(prompt, options), expected));
}

// ---- SelfAttention

TEST(SelfAttention, StepsCanBeReplaced) {
  struct Bidirectional : SelfAttention {
    using SelfAttention::SelfAttention;
    Tensor causal_mask(const Tensor& scores) const override { return scores; }
  };
  manual_seed(4);
  const Bidirectional attn(6);
  const Tensor x = randn({2, 5, 6});
  const auto result = attn(x);
  EXPECT_GT(min(result.weights).item(), 0);
  EXPECT_TRUE(allclose(sum(result.weights, {-1}), ones({2, 5})));
  EXPECT_TRUE(equal(result.key, attn.key(x)));
  EXPECT_TRUE(equal(result.value, attn.value(x)));
  EXPECT_TRUE(equal(result.output, attn.output(matmul(result.weights, result.value))));
}

// Left padding under the causal mask: the first tokens may attend to nothing.
TEST(SelfAttention, RowsThatSeeNothingAreZero) {
  manual_seed(5);
  const SelfAttention attn(4);
  const Tensor x = randn({2, 3, 4}).requires_grad_();
  const Tensor mask = tensor({{0, 0, 1}, {1, 1, 1}});
  const auto result = attn(x, mask);
  EXPECT_EQ(result.weights.select(0, 0).tolist(), (std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
  sum(result.output * randn({2, 3, 4})).backward();
  EXPECT_TRUE(all(isfinite(x.grad())).item() != 0);
  EXPECT_EQ(max(abs(x.grad().index({0, Slice({}, 2)}))).item(), 0);
  const ImitateTorch imitate(BernoulliRule::mkl);
  EXPECT_EQ(sum(isnan(attn(x, mask).weights)).item(), 6);
  EXPECT_EQ(error_of([&] {
              attn(x, ones({3, 2}));
            }),
            "self_attention: expected an attention mask (2, 3), got (3, 2)");
}

// ---- BatchNorm1d

// What lies in padding has no influence: the same numbers and gradients as with zeros there, also
// where the weights are asked for, and for a query that sees nothing.
TEST(MultiheadAttention, PaddingMayHoldNaN) {
  manual_seed(4);
  for (const double dropout : {0.0, 0.4}) {
    const MultiheadAttention attn(8, 2, {.dropout = dropout, .batch_first = true});
    const Tensor x = randn({2, 3, 8}), clean = randn({2, 4, 8});
    Tensor padding = zeros({2, 4}, boolean), nothing = zeros({2, 3, 4}, boolean);
    padding.index({0, Slice(2, None)}).fill_(true);
    padding.index({1, 0}).fill_(true);
    nothing.index({1, 1}).fill_(true);
    const Tensor mask = nothing.unsqueeze(1).expand({2, 2, 3, 4}).reshape({4, 3, 4});
    for (const bool need_weights : {false, true}) {
      const auto run = [&](double filler) {
        const ContextGuard guard;
        context().random = {.seed = 9};
        const Tensor keys = masked_fill(clean, padding.unsqueeze(-1), filler);
        Tensor q = x.clone().requires_grad_();
        const auto result =
            attn(q, keys, keys,
                 {.key_padding_mask = padding, .attn_mask = mask, .need_weights = need_weights});
        sum(result.output * result.output).backward();
        auto all = result.output.tolist<double>();
        for (const Tensor& t : {q.grad(), need_weights ? result.weights : q.grad()}) {
          const auto more = t.tolist<double>();
          all.insert(all.end(), more.begin(), more.end());
        }
        return all;
      };
      const auto expected = run(0);
      for (const double v : expected) ASSERT_TRUE(std::isfinite(v));
      EXPECT_EQ(run(std::nan("")), expected) << dropout << " " << need_weights;
      EXPECT_EQ(run(inf), expected) << dropout << " " << need_weights;
    }
  }
}

TEST(BatchNorm1d, IsPyTorchsOverSixSteps) {
  BatchNorm1d norm(6);
  {
    const NoGrad no_grad;
    norm.weight.copy_(group("bn.").at("weight"));
    norm.bias.copy_(group("bn.").at("bias"));
  }
  for (int step = 0; step < 6; ++step) {
    const std::string what = "bn." + std::to_string(step) + ".";
    const Group t = group(what);
    norm.train(step < 4);
    norm.zero_grad();
    const Tensor x = t.at("x").clone().requires_grad_();
    const Tensor y = norm(x);
    expect_close(y, t.at("y"), what + "y", 2e-6);
    y.backward(t.at("dy"));
    expect_close(x.grad(), t.at("dx"), what + "dx");
    expect_close(norm.weight.grad(), t.at("dweight"), what + "dweight");
    expect_close(norm.bias.grad(), t.at("dbias"), what + "dbias");
    expect_close(norm.running_mean, t.at("mean"), what + "mean", 2e-6);
    expect_close(norm.running_var, t.at("var"), what + "var", 2e-6);
  }
  EXPECT_EQ(norm.num_batches_tracked.item(), 4);
}

// The statistics are those of f64 within the rounding of f32, and the result is rounded once.
TEST(BatchNorm1d, Bf16IsComputedInF32) {
  manual_seed(3);
  for (const Shape& shape : {Shape{500, 4}, Shape{50, 4, 30}}) {
    const Tensor x = (randn(shape) + 100).to(bf16), dy = randn(shape).to(bf16);
    BatchNorm1d narrow(4), wide(4);
    wide.to(f64);
    for (const bool training : {true, false}) {
      narrow.train(training);
      wide.train(training);
      Tensor a = x.clone().requires_grad_(), b = x.to(f64).requires_grad_();
      const Tensor y = narrow(a), exact = wide(b);
      EXPECT_EQ(y.dtype(), bf16);
      EXPECT_LT(amax(abs(y.to(f64) - exact) / (abs(exact) + 1e-2)).item(), 0x1.1p-8);
      const Tensor da = grad({y}, {a}, {dy})[0], db = grad({exact}, {b}, {dy.to(f64)})[0];
      EXPECT_EQ(da.dtype(), bf16);
      EXPECT_LT(amax(abs(da.to(f64) - db)).item(), 0x1p-8 * amax(abs(db)).item());
      expect_close(narrow.running_mean, wide.running_mean, "mean", 1e-6);
      expect_close(narrow.running_var, wide.running_var, "var", 1e-5);
    }
  }
}

TEST(BatchNorm1d, OfEqualNumbersNothingIsLeft) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const double each : {1e-30, 0.1, 3.3e7, 9.7e10, 1.7e18, 1e30, 1e38}) {
      for (const Shape& shape : {Shape{3, 3}, Shape{37, 3}, Shape{9, 3, 4}}) {
        BatchNorm1d norm(3);
        const Tensor y = norm(full(shape, each, dtype));
        EXPECT_TRUE(all(y == 0).item<bool>()) << each << name_of(dtype) << shape;
      }
    }
  }
}

}  // namespace
}  // namespace ink
