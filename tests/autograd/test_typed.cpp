// What a PyTorch user types: small programs as somebody writes them who knows PyTorch and has not
// read our headers.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/loops/rows.h"
#include "nn/activation.h"
#include "nn/add_layer_norm.h"
#include "nn/batch_norm.h"
#include "nn/clip_grad.h"
#include "nn/embedding.h"
#include "nn/gpt.h"
#include "nn/gradcheck_module.h"
#include "nn/group_norm.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/multihead_attention.h"
#include "nn/rms_norm.h"
#include "nn/self_attention.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

using Values = std::vector<double>;

Values values(const Tensor& x) { return x.tolist<double>(); }

// ---- tensors

TEST(Typed, MethodsBesideTheFunctions) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 5.0}});
  EXPECT_EQ(values(x.sum()), values(sum(x)));
  EXPECT_EQ(values(x.mean(0)), (Values{2, 3.5}));
  EXPECT_EQ(values(mean(x, 0)), values(x.mean(0)));
  EXPECT_EQ(values(x.std()), values(ink::std(x)));
  EXPECT_EQ(values(x.var(1)), values(var(x, 1)));
  EXPECT_EQ(values(x.exp()), values(exp(x)));
  EXPECT_EQ(values(x.log().sqrt()), values(sqrt(log(x))));
  EXPECT_EQ(values(x.softmax(-1)), values(softmax(x, -1)));
  EXPECT_EQ(values(x.masked_fill(x > 2, 0)), (Values{1, 2, 0, 0}));
  EXPECT_EQ(values(x.matmul(x)), values(matmul(x, x)));
  EXPECT_EQ(x.max().item(), 5);
  EXPECT_EQ(x.min().item(), 1);
  EXPECT_EQ(values(x.max(1).values), (Values{2, 5}));
  EXPECT_EQ(values(x.argmax(1)), (Values{1, 1}));
  EXPECT_EQ(values(x.cumsum(0)), (Values{1, 2, 4, 7}));
  EXPECT_EQ(values(x.pow(2)), (Values{1, 4, 9, 25}));
  EXPECT_EQ(values(x.clamp(2, 3)), (Values{2, 2, 3, 3}));
}

TEST(Typed, MethodsThatTakeATensorOrANumber) {
  const Tensor x = tensor({{1.0, -2.0}, {3.0, 0.5}}), y = x * 2;
  EXPECT_EQ(values(x.add(1).sub(y).mul(2).div(x)), values((x + 1 - y) * 2 / x));
  EXPECT_EQ(values(x.eq(3)), values(3 == x));
  EXPECT_EQ(values(x.gt(0)), values(0 < x));
  EXPECT_EQ(values(x.le(y)), values(y >= x));
  EXPECT_EQ(values(x.ne(0.5) & x.lt(1) & x.ge(-2)), (Values{0, 1, 0, 0}));
  EXPECT_EQ(values(1 <= x), (Values{1, 0, 1, 0}));
  EXPECT_EQ(values(1 != x), (Values{0, 1, 1, 1}));
  EXPECT_EQ(values(max(x, y)), values(x.max(y)));
  EXPECT_EQ(values(min(x, y)), values(x.min(y)));
  EXPECT_EQ(values(x.log1p().expm1().isnan()), (Values{0, 1, 0, 0}));
  EXPECT_EQ(values(x.sign() + x.trunc() + x.isfinite() + x.isinf()), (Values{3, -2, 5, 2}));
  EXPECT_EQ(values(x.cumprod(1)), (Values{1, -2, 3, 1.5}));
  EXPECT_EQ(values(x[0].dot(x[1])), (Values{2}));
  EXPECT_EQ(values(x.unsqueeze(0).bmm(y.unsqueeze(0))), values(matmul(x, y)));
  EXPECT_EQ(values(x[0].outer(x[1])), (Values{3, 0.5, -6, -1}));
  EXPECT_EQ(values(x.erf() + x.logsumexp(-1)), values(erf(x) + logsumexp(x, -1)));
  EXPECT_EQ(values(x.where(x > 0, 0) + x.where(x > 0, y)), (Values{2, -4, 6, 1}));
  EXPECT_EQ(values(x.clamp(None, 1)), (Values{1, -2, 1, 0.5}));
  EXPECT_EQ(values(x.masked_fill(x < 0, tensor(7.0))), (Values{1, 7, 3, 0.5}));
  EXPECT_EQ(values(x.repeat_interleave(2, 0)[1]), values(x[0]));
  EXPECT_EQ(values(repeat_interleave(x, tensor({2, 0}), 1)), (Values{1, 1, 3, 3}));
  EXPECT_EQ(values(x.unfold(1, 1, 1)), values(x));
  EXPECT_EQ(x.split({1, 1}, 1).size(), 2u);
  EXPECT_EQ(values(x.scatter(1, tensor({{0}, {1}}), 9)), (Values{9, -2, 3, 9}));
  EXPECT_EQ(values(x.scatter_add(1, tensor({{0}, {1}}), ones({2, 1}))), (Values{2, -2, 3, 1.5}));
}

TEST(Typed, IntegersAndBoolsByOperator) {
  Tensor k = arange(4), m = tensor({true, false, true, false});
  EXPECT_EQ(values(5 % (k + 1)), (Values{0, 1, 2, 1}));
  EXPECT_EQ(values(remainder(k, 3)), (Values{0, 1, 2, 0}));
  EXPECT_THROW(k.clone().remainder_(0), Error);
  EXPECT_THROW(k.clone().remainder_(k), Error);
  EXPECT_EQ(values(k & 1), (Values{0, 1, 0, 1}));
  EXPECT_EQ(values((k | 4) ^ 5), (Values{1, 0, 3, 2}));
  k %= 2;
  EXPECT_EQ(values(k), (Values{0, 1, 0, 1}));
  m &= k == 0;
  m |= tensor({false, true, false, false});
  EXPECT_EQ(values(m), (Values{1, 1, 1, 0}));
  EXPECT_EQ(arange(0, 10, 4).tolist<int>(), (std::vector<int>{0, 4, 8}));
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), f32);
  EXPECT_EQ(from_vector(std::vector<int>{1, 2, 3, 4}, {2, 2}).shape(), (Shape{2, 2}));
}

TEST(Typed, NumbersThatDoNotFitAreErrors) {
  const int64_t most = INT64_MAX;
  const uint64_t beyond = 1ull << 63;
  const std::string error = "expected a number that int64 holds, got 9223372036854775808";
  EXPECT_EQ(error_of([&] { tensor(beyond); }), error);
  EXPECT_EQ(error_of([&] { tensor({beyond}); }), error);
  EXPECT_EQ(error_of([&] { tensor(std::vector<uint64_t>{1, beyond}); }), error);
  EXPECT_EQ(error_of([&] { from_vector(std::vector<uint64_t>{beyond}); }), error);
  EXPECT_EQ(from_vector(std::vector<uint64_t>{beyond - 1}).item<int64_t>(), most);
  EXPECT_EQ(tensor(4000000000u).item<uint32_t>(), 4000000000u);

  const auto refused = [](const std::string& value) {
    return "item: " + value + " does not fit into the type that was asked for";
  };
  EXPECT_EQ(error_of([] { tensor(1e10).item<int>(); }), refused("1e+10"));
  EXPECT_EQ(error_of([] { tensor(nan("")).item<int64_t>(); }), refused("nan"));
  EXPECT_EQ(error_of([] { tensor(0x1p63).item<int64_t>(); }), refused("9.22337e+18"));
  EXPECT_EQ(error_of([&] { tensor(most).item<int>(); }), refused("9223372036854775807"));
  EXPECT_EQ(error_of([] { tensor(300).item<uint8_t>(); }), refused("300"));
  EXPECT_EQ(error_of([] { tensor(-129).item<int8_t>(); }), refused("-129"));
  EXPECT_EQ(error_of([] { tensor(-1).item<uint64_t>(); }), refused("-1"));
  EXPECT_EQ(error_of([] {
              tensor({1.0, inf}).tolist<int>();
            }),
            "tolist: inf does not fit into the type that was asked for");
  EXPECT_EQ(tensor(-128.9).item<int8_t>(), -128);
  EXPECT_EQ(tensor(-0.9).item<uint8_t>(), 0);
  EXPECT_EQ(tensor(INT64_MIN).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(tensor(most).item<uint64_t>(), uint64_t{INT64_MAX});
  EXPECT_EQ(tensor({most, -1}).tolist<int64_t>(), (std::vector<int64_t>{most, -1}));
  EXPECT_TRUE(tensor(nan("")).item<bool>());
}

// PyTorch's bits: it rounds the number to bf16, except where it multiplies or divides.
TEST(Typed, NumbersBesideBf16) {
  const Tensor x = tensor({1.5, 2.25, -3.0, 0.7}, bf16);
  const auto in_place = [&](auto f) {
    Tensor y = x.clone();
    f(y);
    return values(y);
  };
  const Values less{1.203125, 1.953125, -3.296875, 0.3984375},
      rest{0.296875, 0.14453125, 0.0078125, 0.09765625};
  EXPECT_EQ(values(x + 0.3), (Values{1.796875, 2.546875, -2.703125, 1}));
  EXPECT_EQ(values(x - 0.3), less);
  EXPECT_EQ(in_place([](Tensor& y) { y -= 0.3; }), less);
  EXPECT_EQ(values(5.3 - x), (Values{3.8125, 3.0625, 8.3125, 4.625}));
  EXPECT_EQ(values(x * 0.3), (Values{0.44921875, 0.67578125, -0.8984375, 0.2099609375}));
  EXPECT_EQ(values(x / 0.3), (Values{5, 7.5, -10, 2.328125}));
  EXPECT_EQ(values(x % 0.3), rest);
  EXPECT_EQ(in_place([](Tensor& y) { y %= 0.3; }), rest);
  EXPECT_EQ(values(pow(1.1, x)), (Values{1.15625, 1.2421875, 0.75, 1.0703125}));
  EXPECT_EQ(values(pow(abs(x), 1.1)), (Values{1.5625, 2.4375, 3.359375, 0.67578125}));
}

TEST(Typed, InPlace) {
  const Tensor x = tensor({0.5, 1.5});
  const auto in_place = [&](Tensor& (Tensor::*f)()) {
    Tensor y = x.clone();
    return values((y.*f)());
  };
  EXPECT_EQ(in_place(&Tensor::ceil_), (Values{1, 2}));
  EXPECT_EQ(in_place(&Tensor::round_), (Values{0, 2}));
  EXPECT_EQ(in_place(&Tensor::trunc_), (Values{0, 1}));
  EXPECT_EQ(in_place(&Tensor::sin_), values(sin(x)));
  EXPECT_EQ(in_place(&Tensor::cos_), values(cos(x)));
  EXPECT_EQ(in_place(&Tensor::rsqrt_), values(rsqrt(x)));
  EXPECT_EQ(in_place(&Tensor::log1p_), values(log1p(x)));
  EXPECT_EQ(in_place(&Tensor::expm1_), values(expm1(x)));
  EXPECT_EQ(in_place(&Tensor::zero_), (Values{0, 0}));
  Tensor w = ones({2, 3}).requires_grad_(), y = w * 1, v = ones({2, 1}).requires_grad_();
  y.scatter_(1, tensor({{0}, {2}}), v * 5).scatter_add_(1, tensor({{1}, {1}}), v);
  EXPECT_EQ(values(y), (Values{5, 2, 1, 1, 2, 5}));
  sum(y).backward();
  EXPECT_EQ(values(w.grad()), (Values{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(values(v.grad()), (Values{6, 6}));
}

TEST(Typed, WhatIsWrittenByIndices) {
  Tensor x = zeros({3, 4});
  const Tensor ids = tensor({2, 0});
  x.index_put_({x.eq(0)}, 1);
  x.index_put_({ids, 1}, 5.0);
  x.index_put_({Slice(), ids}, tensor({{6.0, 7.0}}));
  x.index_put_({1, Slice(2)}, tensor({8.0, 9.0}));
  x.index_put_({Ellipsis, 3}, 1, true);
  EXPECT_EQ(values(x), (Values{7, 5, 6, 2, 7, 1, 8, 10, 7, 5, 6, 2}));
  EXPECT_EQ(values(x.index_put({0}, zeros({4}))[0]), (Values{0, 0, 0, 0}));
  // ids that do not lie side by side: their dimension comes first, as in x[ids, :, ids]
  Tensor cube = zeros({2, 2, 2}).requires_grad_(), y = cube * 1;
  const Tensor value = tensor({{1.0, 2.0}, {3.0, 4.0}}).requires_grad_();
  y.index_put_({tensor({0, 1}), Slice(), tensor({1, 0})}, value);
  EXPECT_EQ(values(y), (Values{0, 1, 0, 2, 3, 0, 4, 0}));
  sum(y * y).backward();
  EXPECT_EQ(values(value.grad()), (Values{2, 4, 6, 8}));
  EXPECT_EQ(error_of([&] {
              x.index_put_({ids}, tensor({1, 2, 3, 4}));
            }),
            "index_put_: expected values of float32, got int64");
  // x[ids] is a copy, which nobody else sees
  const std::string text = error_of([&] { x[x > 5] += 1; });
  EXPECT_EQ(text.substr(0, text.find(',')), "in-place operator: expected a view on the left");
  EXPECT_TRUE(text.ends_with("x.index_put_({ids}, y, true), which adds as often as an id comes"));
  EXPECT_NE(error_of([&] { x.index({ids, 0}) *= 2; }), "(no error)");
  x[0] *= 2;
  EXPECT_EQ(values(x[0]), (Values{14, 10, 12, 4}));
  Tensor w = ones({1}).requires_grad_();
  sum(w).backward();
  w.grad() *= 3;
  EXPECT_EQ(w.grad().item(), 3);
}

TEST(Typed, NumbersThatInt64DoesNotHold) {
  for (const auto& make : std::vector<std::function<Tensor()>>{
           [] { return tensor({1e19}, i64); }, [] { return tensor(NAN, i64); },
           [] { return tensor(std::vector<double>{1e19}, i64); },
           [] { return full({1}, 18446744073709551615ull, i64); },
           [] { return linspace(0, 1e19, 3, i64); }})
    EXPECT_NE(error_of(make), "(no error)");
}

TEST(Typed, Indexing) {
  const Tensor x = arange(12).view({3, 4});
  const int i = 1;
  const size_t j = 2;
  EXPECT_EQ(values(x[i]), (Values{4, 5, 6, 7}));
  EXPECT_EQ(values(x[j]), (Values{8, 9, 10, 11}));
  EXPECT_EQ(values(x[-1]), values(x[2]));
  EXPECT_EQ(x[i][j].item<int>(), 6);
  EXPECT_EQ(x.index({i, j}).item<int>(), 6);
  EXPECT_EQ(values(x[x > 9]), (Values{10, 11}));
  EXPECT_EQ(values(x[Slice(None, 2)]), values(x.narrow(0, 0, 2)));
  EXPECT_EQ(values(x.index({Slice(), Slice(None, None, 2)})), (Values{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(values(x.index({Ellipsis, 0})), (Values{0, 4, 8}));
  EXPECT_EQ(x.index({None, 0}).shape(), (Shape{1, 4}));
  EXPECT_EQ(values(x.index({tensor({0, 2}), tensor({1, 3})})), (Values{1, 11}));
  EXPECT_EQ(values(x.index({Slice(), tensor({3, 0})})), (Values{3, 0, 7, 4, 11, 8}));
  Tensor y = x.clone();
  y.index({0}) = 7;
  y.index_put_({tensor({1, 2}), tensor({0, 0})}, tensor({-1, -2}));
  EXPECT_EQ(values(y), (Values{7, 7, 7, 7, -1, 5, 6, 7, -2, 9, 10, 11}));
  EXPECT_EQ(values(masked_select(x, x % 5 == 0)), (Values{0, 5, 10}));
  EXPECT_EQ(values(nonzero(x > 9)), (Values{2, 2, 2, 3}));
  EXPECT_EQ(values(scatter(zeros({2, 3}), 1, tensor({{2}, {0}}), 1.0)), (Values{0, 0, 1, 1, 0, 0}));
}

TEST(Typed, NumbersOfAnyType) {
  const Tensor x = zeros({2, 3, 4});
  const auto [b, n, d] = x.sizes<3>();
  EXPECT_EQ(b * 100 + n * 10 + d, 234);
  EXPECT_EQ(x.shape()[-1], 4);
  EXPECT_THROW(x.shape()[3], Error);
  EXPECT_THROW(x.shape()[-4], Error);
  EXPECT_EQ(tensor({3}).item<int>(), 3);
  EXPECT_EQ(tensor({3, 4}).tolist<size_t>(), (std::vector<size_t>{3, 4}));
  EXPECT_EQ(from_vector(std::vector<int>{1, 2, 3}, Shape{3}).dtype(), i64);
  EXPECT_EQ(tensor(std::vector<double>{0.5, 2}).dtype(), f32);
  EXPECT_EQ(tensor(std::vector<float>{0.5, 2}).shape(), (Shape{2}));
  EXPECT_EQ(x.to("cpu").device(), cpu_device);
}

TEST(Typed, OpsThatProgramsOfStrangersWanted) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(values(argsort(tensor({3, 1, 2}))), (Values{1, 2, 0}));
  EXPECT_EQ(values(einsum("ij,jk->ik", {x, x})), values(matmul(x, x)));
  // What one operand alone has is summed before the product, which infinities show.
  EXPECT_EQ(values(einsum("ik,j->ij", {tensor({{2.0, -1.0}}), tensor({inf})})), (Values{inf}));
  EXPECT_EQ(values(einsum("j,iik->j", {tensor({-inf}), tensor({{{2.0, -1.0}}})})), (Values{-inf}));
  EXPECT_EQ(values(bmm(x[None], x[None])), values(matmul(x, x)));
  EXPECT_EQ(unbind(x).size(), 2u);
  EXPECT_EQ(values(pad(x[0], {1, 2}, 9)), (Values{9, 1, 2, 9, 9}));
  EXPECT_EQ(values(repeat_interleave(x[0], 2)), (Values{1, 1, 2, 2}));
  EXPECT_EQ(values(linspace(0, 1, 3)), (Values{0, 0.5, 1}));
  EXPECT_EQ(values(diagonal(x)), (Values{1, 4}));
  EXPECT_EQ(values(var_mean(x).second), (Values{2.5}));
  EXPECT_FLOAT_EQ(norm(x).item<float>(), std::sqrt(30.0F));
  EXPECT_EQ(values(norm(x, inf)), (Values{4}));
  EXPECT_EQ(values(cumprod(x, 1)), (Values{1, 2, 3, 12}));
  EXPECT_EQ(eye(2, 3).shape(), (Shape{2, 3}));
  EXPECT_EQ(values(clamp(x, full({2}, 2), full({2}, 3))), (Values{2, 2, 3, 3}));
  EXPECT_EQ(values(square(floor(x / 2))), (Values{0, 1, 1, 4}));
  EXPECT_EQ(values(pow(2.0, x)), (Values{2, 4, 8, 16}));
  EXPECT_EQ(values(x % 2), (Values{1, 0, 1, 0}));
  EXPECT_EQ(values(((x > 1) & (x < 4)) | ~(x > 1)), (Values{1, 1, 1, 0}));
  EXPECT_EQ(values(where(x > 2, 1, 0)), (Values{0, 0, 1, 1}));
  EXPECT_EQ(values(isinf(x / 0)), (Values{1, 1, 1, 1}));
  Tensor y = x.clone();
  y.log_().neg_().exp_();
  EXPECT_TRUE(allclose(y, 1 / x));
  EXPECT_EQ(values(concat({x[0], x[1]})), (Values{1, 2, 3, 4}));
  EXPECT_EQ(randperm(4).numel(), 4);
  EXPECT_EQ(inf, std::numeric_limits<double>::infinity());
}

// A convolution in two lines, with the gradient of each input.
TEST(Typed, ConvolutionIsTwoLines) {
  const auto conv1d = [](const Tensor& x, const Tensor& w) {  // (B, C, T), (O, C, K)
    return einsum("bctk,ock->bot", {unfold(pad(x, {1, 1}), 2, w.size(2), 1), w});
  };
  const Tensor x = randn({2, 3, 5}, f64).requires_grad_(),
               w = randn({4, 3, 3}, f64).requires_grad_();
  EXPECT_EQ(conv1d(x, w).shape(), (Shape{2, 4, 5}));
  EXPECT_TRUE(gradcheck([&](auto&) { return conv1d(x, w); }, {x, w}));
}

TEST(Typed, GradcheckNamesThePlaceThatIsWrong) {
  Tensor hidden = zeros({2, 2, 3}, f64);
  hidden.index({1, 0, 2}).fill_(1);
  const Tensor x = randn({2, 2, 3}, f64).requires_grad_();
  const GradcheckReport report =
      gradcheck([&](auto& in) { return in[0] + hidden * in[0].detach(); }, {x});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.place, "[1, 0, 2]");
  EXPECT_NEAR(report.numeric, 2 * report.analytic, 1e-6);
}

// ---- layers

struct Head : Module {
  Linear query, key;
  std::vector<Linear> rest;
  std::optional<LayerNorm> norm;

  explicit Head(int64_t n) {
    query = Linear(n, 4);
    key = Linear(n, 4);
    for (int i = 0; i < 2; ++i) rest.emplace_back(4, 4);
    norm.emplace(4);
  }
  Tensor operator()(const Tensor& x) const {
    Tensor y = query(x.to(f32)) * key(x);
    for (const Linear& layer : rest) y = layer(y);
    return (*norm)(y);
  }
  INK_FIELDS(query, key, rest, norm)
};

TEST(Typed, LayersThatAreMadeLater) {
  const Head head(3);
  EXPECT_EQ(head.named_parameters().size(), 10u);
  EXPECT_EQ(head.named_parameters()[4].first, "rest.0.weight");
  EXPECT_EQ(head(ones({2, 3})).shape(), (Shape{2, 4}));
  Linear later;
  EXPECT_EQ(error_of([&] { later(ones({2, 3})); }).substr(0, 6), "linear");
  EXPECT_THROW(LayerNorm()(ones({2, 3})), Error);
  EXPECT_THROW(Embedding()(tensor({0})), Error);
  EXPECT_THROW(RMSNorm()(ones({2, 3})), Error);
}

TEST(Typed, ListsOfModules) {
  ModuleList<Head> heads{Head(3), Head(4)};
  EXPECT_EQ(heads.size(), 2u);
  EXPECT_EQ(heads[1].query.in_features, 4);
  EXPECT_EQ(ModuleList<Linear>{Linear(1, 2)}.size(), 1u);
  EXPECT_EQ((Sequential{LeakyReLU(0.2), ELU(), Softplus(), Sigmoid()}.to_string()),
            "Sequential(\n  (0): LeakyReLU(negative_slope=0.2)\n  (1): ELU(alpha=1)\n"
            "  (2): Softplus(beta=1, threshold=20)\n  (3): Sigmoid()\n)");
  std::vector<Linear> made;
  made.emplace_back(2, 3);
  made.emplace_back(3, 4);
  EXPECT_EQ(ModuleList<Linear>(std::move(made)).named_parameters()[2].first, "1.weight");
  EXPECT_EQ(ModuleList<Linear>(3, 4, 5).size(), 3u);
}

TEST(Typed, EmbeddingWithPadding) {
  Embedding table(5, 3, -1);
  EXPECT_EQ(values(table.weight[4]), (Values{0, 0, 0}));
  table(tensor({{0, 4}, {4, 1}})).sum().backward();
  EXPECT_EQ(values(table.weight.grad().sum(1)), (Values{3, 3, 0, 0, 0}));
  EXPECT_EQ(table.extra_repr(), "5, 3, padding_idx=4");
  EXPECT_THROW(Embedding(5, 3, 5), Error);
}

TEST(Typed, LayerNormInAllItsForms) {
  const Tensor x = randn({2, 3, 4}, f64);
  const LayerNorm two({3, 4}), bare(Shape{4}, 1e-5, false), plain(4, false), tight(4, 1e-3);
  EXPECT_EQ(two.weight.shape(), (Shape{3, 4}));
  const Tensor flat = x.flatten(1);
  EXPECT_TRUE(allclose(two(x).flatten(1),
                       (flat - flat.mean(1, true)) / sqrt(var(flat, 1, 0, true) + 1e-5), 1e-6));
  EXPECT_EQ(bare.parameters().size(), 0u);
  EXPECT_TRUE(allclose(bare(x), plain(x), 1e-6));
  EXPECT_EQ(plain.parameters().size(), 1u);
  EXPECT_EQ(tight.eps, 1e-3);
  for (const LayerNorm* norm : {&two, &bare, &plain, &tight}) {
    const auto [sum, normed] = add_layer_norm(x, x.detach(), *norm);
    EXPECT_TRUE(equal(sum, x * 2));
    EXPECT_TRUE(allclose(normed, (*norm)(x * 2), 1e-6));
    EXPECT_TRUE(equal(add_layer_norm(x, {}, *norm).second, (*norm)(x))) << "nothing to add";
  }
  EXPECT_EQ(error_of([&] {
              two(ones({4, 3}));
            }),
            "layer_norm: expected an input of shape (..., normalized_shape) with normalized_shape "
            "(3, 4), got (4, 3)");
  EXPECT_EQ(bare.to_string(), "LayerNorm((4,), eps=1e-05, elementwise_affine=False)");
}

TEST(Typed, GroupNorm) {
  const Tensor x = randn({2, 6, 5}, f64);
  const GroupNorm norm(3, 6);
  const Tensor rows = x.reshape({6, 10});
  const Tensor expected = (rows - rows.mean(1, true)) / sqrt(var(rows, 1, 0, true) + 1e-5);
  EXPECT_TRUE(allclose(norm(x), expected.reshape({2, 6, 5}), 1e-6));
  EXPECT_EQ(norm.to_string(), "GroupNorm(3, 6, eps=1e-05, affine=True)  # 12");
  EXPECT_THROW(GroupNorm(4, 6), Error);
  EXPECT_THROW(norm(randn({2, 5})), Error);
}

TEST(Typed, ClippedGradients) {
  Tensor a = zeros({2}).requires_grad_(), b = zeros({}).requires_grad_();
  const Tensor unused = zeros({3}).requires_grad_();
  const auto fill = [&] {
    a.set_grad(tensor({3.0, 0.0}));
    b.set_grad(tensor(4.0));
  };
  fill();
  EXPECT_EQ(clip_grad_norm_({a, b, unused}, 1.0).item(), 5);
  EXPECT_NEAR(a.grad()[0].item(), 0.6, 1e-6);
  EXPECT_NEAR(b.grad().item(), 0.8, 1e-6);
  EXPECT_FALSE(unused.grad().defined());
  fill();
  clip_grad_norm_({a, b}, 10);  // short enough: untouched
  EXPECT_EQ(b.grad().item(), 4);
  EXPECT_EQ(clip_grad_norm_({a, b}, 2, inf).item(), 4);
  EXPECT_NEAR(a.grad()[0].item(), 1.5, 1e-6);
  fill();
  clip_grad_value_({a, b, unused}, 3.5);
  EXPECT_EQ(values(a.grad()), (Values{3, 0}));
  EXPECT_EQ(b.grad().item(), 3.5);
  EXPECT_EQ(clip_grad_norm_({unused}, 1).item(), 0);
  Tensor half = zeros({3}, bf16).requires_grad_();
  half.set_grad(ones({3}, bf16));
  EXPECT_NEAR(clip_grad_norm_({half}, 10).item(), std::sqrt(3), 1e-6) << "in f32";
}

struct Doubled : GPT {
  using GPT::GPT;
  Tensor features(const Tensor& ids, std::vector<KVCache>* caches = nullptr) const override {
    return GPT::features(ids, caches) * 2;
  }
};

TEST(Typed, GptWithOtherFeatures) {
  const GPTConfig config{.block_size = 8, .vocab_size = 7, .n_layer = 1, .n_head = 2, .n_embd = 8};
  manual_seed(1);
  const GPT plain(config);
  manual_seed(1);
  const Doubled doubled(config);
  const Tensor ids = tensor({{1, 2, 3}});
  EXPECT_TRUE(allclose(doubled(ids), plain(ids) * 2));
  EXPECT_NE(doubled.loss(ids, ids).item(), plain.loss(ids, ids).item());
}

TEST(Typed, GptWhoseFeaturesTakeIdsAlone) {
  struct Constant : GPT {
    using GPT::GPT;
    Tensor features(const Tensor& ids) const override { return GPT::features(ids) * 0; }
  };
  GPTConfig config;
  config.n_layer = 1;
  config.n_head = 1;
  config.n_embd = 4;
  config.block_size = 4;
  config.vocab_size = 11;
  config.dropout = 0;
  Constant model(config);
  model.eval();
  const Tensor ids = zeros({1, 3}, i64);
  EXPECT_NEAR(model.loss(ids, ids).item(), std::log(11), 1e-5);
  GenerateOptions options;
  options.max_new_tokens = 6;  // beyond the context, too
  options.temperature = 0;
  EXPECT_EQ(model.generate(ids, options).tolist<int>(), std::vector<int>(9, 0));
}

TEST(Typed, GradcheckLeavesTheModuleAsItWas) {
  Linear layer(2, 3);
  const Tensor weight = layer.weight;
  const Values before = values(weight);
  sum(layer(ones({1, 2}))).backward();
  const Tensor grad = weight.grad();
  EXPECT_TRUE(gradcheck_module(layer, randn({4, 2})));
  EXPECT_EQ(layer.weight.dtype(), f32);
  EXPECT_EQ(values(weight), before);
  EXPECT_EQ(weight.grad().dtype(), f32);
  EXPECT_EQ(values(weight.grad()), values(grad));
  sum(layer(ones({1, 2}))).backward();  // and it trains on
  EXPECT_EQ(values(weight.grad()), (Values{2, 2, 2, 2, 2, 2}));
  BatchNorm1d norm(3);
  const Values running = values(norm.running_mean);
  EXPECT_TRUE(gradcheck_module(norm, randn({4, 3})));
  EXPECT_EQ(values(norm.running_mean), running);
  EXPECT_EQ(norm.num_batches_tracked.item<int>(), 0);
}

// ---- what is refused, and by what name

TEST(Typed, ErrorsNameTheirOp) {
  const Tensor eight = ones({1, 1, 1, 1, 1, 1, 1, 1}), ids = zeros({1, 1, 1, 1, 1, 1, 1, 1}, i64);
  EXPECT_EQ(error_of([] { eye(-1); }), "eye: expected sizes of 0 or more, got -1 and -1");
  EXPECT_EQ(error_of([] { Linear(-1, 2); }), "Linear: expected sizes of 0 or more, got -1 and 2");
  Tensor integers = ones({2}, i64), leaf = ones({2}).requires_grad_();
  EXPECT_EQ(error_of([&] { uniform_(integers); }),
            "uniform_: expected a floating dtype, got int64");
  EXPECT_TRUE(error_of([&] { uniform_(leaf); }).starts_with("uniform_: a leaf"));
  EXPECT_EQ(error_of([] {
              gather(ones({2, 3}), 1, tensor({1}));
            }),
            "gather: expected ids of as many dimensions as the tensor (2, 3), got (1,)");
  EXPECT_EQ(error_of([] {
              scatter_add(ones({2, 3}), 1, tensor({1}), ones({1}));
            }),
            "scatter_add: expected ids of as many dimensions as the tensor (2, 3), got (1,)");
  const std::string nine = ": the result would have 9 dimensions; a tensor has at most 8";
  EXPECT_EQ(error_of([&] { unsqueeze(eight, 0); }), "unsqueeze" + nine);
  EXPECT_EQ(error_of([&] { stack({eight, eight}); }), "stack" + nine);
  EXPECT_EQ(error_of([&] { eight.index({None}); }), "index" + nine);
  EXPECT_EQ(error_of([&] { ones({2, 2}).index(ids); }), "index" + nine);
  EXPECT_EQ(error_of([&] { embedding(ids, ones({2, 3})); }), "embedding" + nine);
  EXPECT_EQ(error_of([&] { one_hot(ids); }), "one_hot" + nine);
  EXPECT_EQ(error_of([] {
              einsum("ii->i", {ones({1, 3})});
            }),
            "einsum: ii repeats i, of sizes 1 and 3");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(error_of([&] { zeros({most}, boolean); }),
            "zeros: the size in bytes of (9223372036854775807,) bool overflows 64 bits");
  EXPECT_EQ(error_of([&] { zeros({most / 8}, f64); }),
            "zeros: the size in bytes of (1152921504606846975,) float64 overflows 64 bits");
  EXPECT_EQ(error_of([&] {
              repeat_interleave(ones({2}), tensor({most, int64_t{1}}));
            }),
            "repeat_interleave: the sum of the counts overflows 64 bits");
  EXPECT_EQ(error_of([] { sum(ones({}), {0, -1}); }), "sum: dimension 0 is named twice in (0, -1)");
  EXPECT_EQ(chunk(ones({3}), most).size(), 3);
  const Tensor five = ones({1, 1, 1, 1, 1});
  EXPECT_EQ(error_of([&] {
              einsum("abcde,fghij->afbgchdiej", {five, five});
            }),
            "einsum: abcde and fghij name 10 dimensions; two operands may have at most 8");
}

TEST(Typed, ErrorsNameTheirOpAndNotWhatItIsMadeOf) {
  const Tensor ids = zeros({2}, i64), u;
  const auto op = [](const std::function<void()>& f) {
    const std::string text = error_of(f);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(op([] { zeros({-1}); }), "zeros");
  EXPECT_EQ(op([] { ones({2, -3}); }), "ones");
  EXPECT_EQ(op([] { rand({-3}); }), "rand");
  EXPECT_EQ(op([] { randn({2}, i64); }), "randn");
  EXPECT_EQ(op([] { randint(3, {-3}); }), "randint");
  EXPECT_EQ(op([] { randperm(-1); }), "randperm");
  EXPECT_EQ(op([&] { full_like(ids, NAN); }), "full_like");
  EXPECT_EQ(op([&] { rand_like(ids); }), "rand_like");
  EXPECT_EQ(op([] { LayerNorm(-1); }), "LayerNorm");
  EXPECT_EQ(op([] { BatchNorm1d(-1); }), "BatchNorm1d");
  EXPECT_EQ(op([] { Embedding(-1, 2); }), "Embedding");
  EXPECT_EQ(op([] { uniform_(ones({2}).expand({3, 2})); }), "uniform_");
  EXPECT_EQ(op([] { ones({1}).requires_grad_().zero_(); }), "zero_");
  EXPECT_EQ(op([&] { zeros_like(u); }), "zeros_like");
  EXPECT_EQ(op([&] { u.version(); }), "version");
  EXPECT_EQ(op([&] { Tensor(u).retain_grad(); }), "retain_grad");
}

TEST(Typed, RefusedAsInPyTorch) {
  EXPECT_EQ(error_of([] { multinomial(ones({3}), 0); }),
            "multinomial: expected at least one sample, got 0");
  EXPECT_EQ(error_of([] {
              flip(ones({2}), {-1, -1});
            }),
            "flip: dimension 0 is named twice in (-1, -1)");
  EXPECT_EQ(error_of([] { ones({}).flatten(1, 0); }),
            "flatten: dimension 1 is out of range for shape ()");
  EXPECT_EQ(error_of([] { randint_like(zeros({2}, boolean), 0, 5); }),
            "randint_like: expected numbers within [0, 2) for bool, got 0 and 5");
  float memory[4] = {};
  EXPECT_EQ(error_of([&] {
              from_blob(memory, {-2, -2}, f32);
            }),
            "from_blob: expected sizes of 0 or more, got (-2, -2)");
}

TEST(Typed, WhereTakesANumberBeyondTheDtype) {
  EXPECT_EQ(where(tensor({false, true}), ones({2}, bf16), 1e39).tolist(), (Values{inf, 1}));
}

// Conversions that would compile and mean something else; tests/systems/short_errors.sh has more.
TEST(Typed, WhatDoesNotCompile) {
  EXPECT_FALSE((std::is_convertible_v<bool, Shape> || std::is_convertible_v<double, Shape>))
      << "mean(x, true), sum(x, 1.5)";
  EXPECT_FALSE((std::is_convertible_v<bool, NumberOf<double>>)) << "var(x, {1}, true)";
  EXPECT_FALSE((std::is_convertible_v<double, NumberOf<int64_t>>)) << "max(x, 1.5)";
  EXPECT_FALSE((std::is_convertible_v<bool, Index> || std::is_convertible_v<double, Index>));
  EXPECT_FALSE((std::is_convertible_v<const char*, Scalar>));
  EXPECT_TRUE((std::is_convertible_v<int, Shape> && std::is_convertible_v<size_t, Shape> &&
               std::is_convertible_v<int, NumberOf<double>> &&
               std::is_convertible_v<float, NumberOf<double>> &&
               std::is_convertible_v<Parameter, Index> && std::is_convertible_v<bool, Scalar>));
}

// Where options or a default may be meant, {} is not the number 0. What does not compile is in
// tests/systems/short_errors.sh.
TEST(Typed, EmptyBracesAreNoNumber) {
  const Tensor logits = tensor({{1.0, 2.0, 3.0}, {0.0, 1.0, 0.0}}), targets = tensor({0, 1});
  EXPECT_EQ(cross_entropy(logits, targets, {}).item(), cross_entropy(logits, targets).item());
  EXPECT_EQ(ones({1, 3, 1}).squeeze({}).shape(), Shape{3});
  EXPECT_EQ(squeeze(ones({1, 3, 1}), {}).shape(), Shape{3});
}

TEST(Typed, BitwiseAssignmentWritesAView) {
  Tensor x = tensor({{true, true}, {false, true}}), y = arange(3);
  x[0] &= tensor({false, true});
  x.index({1}) |= true;
  EXPECT_EQ(x.tolist(), (Values{0, 1, 1, 1}));
  y[Slice(1)] ^= 3;
  EXPECT_EQ(y.tolist(), (Values{0, 2, 1}));
  EXPECT_THROW(x[tensor({0})] &= true, Error) << "a copy";
  EXPECT_THROW(x &= tensor({2, 2}), Error) << "integers do not fit";
  EXPECT_THROW(x[0] ^= 2, Error);
  EXPECT_EQ((y |= tensor({true, false, true})).tolist(), (Values{1, 2, 1}));
}

// ---- walks

TEST(Typed, GradRunsNoHooksOfOtherLeaves) {
  Tensor x = ones({2}).requires_grad_(), w = ones({2}).requires_grad_();
  int calls = 0;
  w.register_hook([&](const Tensor& g) {
    ++calls;
    return g;
  });
  const Tensor row = x.view({1, 2}), column = w.view({2, 1});
  for (const Tensor& y :
       {x * w, x / w, linear(row, w.view({1, 2})), layer_norm(x, w), matmul(row, column),
        where(x > 0, x, w), maximum(x, w), pow(x, w), mse_loss(x, w)})
    EXPECT_TRUE(grad({sum(y)}, {x})[0].defined());
  EXPECT_EQ(calls, 0);
}

TEST(Typed, FieldsAreNamedWithoutTheSpacesAroundThem) {
  struct Spaced : Module {
    Parameter weight{ones({2})}, bias{ones({2})};
    // clang-format off
    INK_FIELDS(weight , bias)
    // clang-format on
  };
  const Spaced module;
  const NamedTensors named = module.named_parameters();
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0].first + "|" + named[1].first, "weight|bias");
}

// A scalar keeps its digits beside bf16 where it multiplies or divides, as a number does. Those are
// PyTorch's numbers.
TEST(Typed, AScalarIsNotRoundedToBf16WhereItIsAFactor) {
  const Tensor h = tensor({3.0, 5.0, 7.0}).to(bf16), s = tensor(1.0 / 13), t = tensor(0.07);
  const Values scaled{0.23046875, 0.384765625, 0.5390625}, divided{42.75, 71.5, 100};
  for (const DType dtype : {f32, f64}) {
    EXPECT_EQ((h * s.to(dtype)).tolist(), scaled);
    EXPECT_EQ((h / t.to(dtype)).tolist(), divided);
    EXPECT_EQ(h.clone().mul_(s.to(dtype)).tolist(), scaled);
    EXPECT_EQ(h.clone().div_(t.to(dtype)).tolist(), divided);
    EXPECT_EQ((h * s.to(dtype)).dtype(), bf16);
    Tensor x = h.clone().requires_grad_(), y = s.detach().clone().to(dtype).requires_grad_();
    sum(x * y).backward();
    EXPECT_EQ(y.grad().dtype(), dtype);
    EXPECT_EQ(y.grad().item(), 15);
    y.set_grad({});
    sum(x / y).backward();
    EXPECT_EQ(y.grad().dtype(), dtype);
    EXPECT_NEAR(y.grad().item(), -15 * 169, 10);
  }
  EXPECT_EQ((h * (1.0 / 13)).tolist(), scaled);
  Tensor a = zeros({3}).requires_grad_(), b = zeros({2}, bf16).requires_grad_();
  a.set_grad(tensor({12.0, 0.0, 0.0})), b.set_grad(tensor({3.0, 4.0}).to(bf16));
  clip_grad_norm_({a, b}, 1.0);
  EXPECT_EQ(b.grad().tolist(), (Values{0.23046875, 0.30859375}));
}

TEST(Typed, ComparisonsByNameTakeNumbers) {
  using Bools = std::vector<bool>;
  const Tensor x = tensor({1, 2, 3});
  EXPECT_EQ(eq(x, 2).tolist<bool>(), (Bools{false, true, false}));
  EXPECT_EQ(ne(x, 2).tolist<bool>(), (Bools{true, false, true}));
  EXPECT_EQ(lt(x, 2).tolist<bool>(), (Bools{true, false, false}));
  EXPECT_EQ(le(x, 2.5).tolist<bool>(), (Bools{true, true, false}));
  EXPECT_EQ(gt(x, 2).tolist<bool>(), (Bools{false, false, true}));
  EXPECT_EQ(ge(x, 2).tolist<bool>(), (Bools{false, true, true}));
}

TEST(Typed, AHookMayReturnNothing) {
  Tensor x = ones({2}).requires_grad_();
  std::vector<double> seen;
  x.register_hook([&](const Tensor& g) { seen = g.tolist(); });
  sum(3 * x).backward();
  EXPECT_EQ(seen, (std::vector<double>{3, 3}));
  EXPECT_EQ(x.grad().tolist(), (std::vector<double>{3, 3}));
}

TEST(Typed, CheckpointTakesALambdaOfAuto) {
  Tensor x = ones({2}).requires_grad_();
  sum(checkpoint([](const auto& a) { return a * a * 2; }, x)).backward();
  EXPECT_EQ(x.grad().tolist(), (std::vector<double>{4, 4}));
}

TEST(Typed, PrintsAsPythonDoes) {
  testing::internal::CaptureStdout();
  print("x", 1, true, ones({2, 3}).shape(), std::vector<int>{1, 2}, std::vector<double>());
  print();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "x 1 True torch.Size([2, 3]) [1, 2] []\n\n");
}

// An op of one's own that forgets contiguous(), also for its gradient, reads no other memory.
TEST(MapRows, RefusesWhatHasNoRows) {
  const auto twice = [](Tensor& y, const Tensor& x) {
    map_rows(
        "twice",
        [](int64_t n, auto* to, const auto* from) {
          for (int64_t i = 0; i < n; ++i) to[i] = 2 * from[i];
        },
        y, x);
  };
  const Tensor x = arange(6, f32).view({2, 3});
  Tensor y = empty({3, 2});
  EXPECT_EQ(error_of([&] { twice(y, x.transpose(0, 1)); }),
            "twice: expected contiguous rows, got strides (1, 3) of (3, 2); call contiguous() "
            "first");
  EXPECT_EQ(error_of([&] {
              twice(y, ones({}).expand({3, 2}));
            }),
            "twice: expected contiguous rows, got strides (0, 0) of (3, 2); call contiguous() "
            "first");
  EXPECT_EQ(error_of([&] { twice(y, x); }),
            "twice: expected rows of (3, 2), as the result, got (2, 3)");
  Tensor scalar = empty({});
  EXPECT_EQ(error_of([&] { twice(scalar, ones({})); }), "twice: expected rows, got a scalar");
  twice(y, tensor({1, 2}, f32).expand({3, 2}));
  EXPECT_EQ(y.tolist(), std::vector<double>({2, 4, 2, 4, 2, 4})) << "rows may be one";
}

}  // namespace
}  // namespace ink
