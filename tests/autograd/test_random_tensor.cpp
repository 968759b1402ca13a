// Random tensors: PyTorch's numbers in any layout and dtype.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "autograd/random/philox.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

using Values = std::vector<double>;

// A call of everything in a row, as the same calls after torch.manual_seed(7) print it.
TEST(RandomTensor, DrawsPyTorchsNumbersInATurn) {
  manual_seed(7);
  EXPECT_EQ(rand({3}).tolist(),
            (Values{0.5349225401878357, 0.19880318641662598, 0.6592116951942444}));
  EXPECT_EQ(randn({2, 2}).tolist(), (Values{-0.032551974058151245, 1.0110543966293335,
                                            1.7714937925338745, 0.4299081265926361}));
  EXPECT_EQ(randint(5, {6}).tolist(), (Values{1, 3, 2, 2, 0, 1}));
  EXPECT_EQ(randint(-3, 3, {4}, f32).tolist(), (Values{1, 0, -3, -3}));
  EXPECT_EQ(randperm(5).tolist(), (Values{0, 4, 2, 3, 1}));
  EXPECT_EQ(rand({2}, f64).tolist(), (Values{0.7458496408158991, 0.028712886879730393}));
  Tensor x = empty({3}), mask = empty({4});
  EXPECT_EQ(exponential_(x, 2).tolist(),
            (Values{1.1809818744659424, 0.23634494841098785, 0.40213045477867126}));
  EXPECT_EQ(bernoulli_(mask, 0.5).tolist(), (Values{0, 0, 0, 1}));
  EXPECT_EQ(multinomial(tensor({0.1, 0.2, 0.7}), 2).tolist(), (Values{2, 1}));
}

TEST(RandomTensor, LikesAndGeneratorsDrawTheSame) {
  Generator g(7);
  const Tensor other = zeros({3}), matrix = zeros({2, 2}), ids = zeros({6}, i64);
  manual_seed(7);
  EXPECT_EQ(rand_like(other).tolist(), rand({3}, {}, g).tolist());
  EXPECT_EQ(randn_like(matrix).tolist(), randn({2, 2}, {}, g).tolist());
  const Tensor drawn = randint_like(ids, 0, 5);
  EXPECT_EQ(drawn.tolist(), randint(5, {6}, i64, g).tolist());
  EXPECT_EQ(drawn.dtype(), i64);
  EXPECT_EQ(g.get_state(), default_generator().get_state());
}

TEST(RandomTensor, AViewIsFilledInTheOrderOfItsMemory) {
  Generator a(3), b(3);
  Tensor whole = zeros({4, 10}), block = whole.narrow(1, 2, 5).transpose(0, 1),
         plain = empty({4, 5});
  uniform_(block, 1, 2, a);
  EXPECT_EQ(block.T().tolist(), uniform_(plain, 1, 2, b).tolist());
  EXPECT_EQ(whole.select(1, 0).tolist(), (Values{0, 0, 0, 0}));
}

// torch.manual_seed(0); x = torch.zeros(4, 8)[:, :5]; x.normal_(2, .5); x[0], torch.randn(2)
TEST(RandomTensor, NormalNumbersOfAViewAreDrawnOneByOne) {
  Generator g(0);
  Tensor x = zeros({4, 8}).narrow(1, 0, 5), turned = zeros({4, 8}).T();
  EXPECT_EQ(normal_(x, 2, 0.5, g)[0].tolist(),
            (Values{2.770498037338257, 1.853285551071167, 0.9106053113937378, 2.2842156887054443,
                    1.4577388763427734}));
  EXPECT_EQ(randn({2}, f32, g).tolist(), (Values{0.3703935444355011, 1.4565025568008423}));
  manual_seed(0);
  EXPECT_EQ(normal_(turned).T()[0].narrow(0, 0, 2).tolist(),
            (Values{1.5409960746765137, -0.293428897857666}));
}

TEST(RandomTensor, HalfPrecisionIsRoundedSinglePrecision) {
  Generator a(4), b(4);
  Tensor half = empty({50}, bf16), single = empty({50});
  EXPECT_EQ(uniform_(half, -1, 1, a).tolist(), uniform_(single, -1, 1, b).to(bf16).tolist());
}

TEST(RandomTensor, BernoulliDoesNotLookAtTheTypeOfTheResult) {
  Generator a(5), b(5);
  Tensor wide = empty({50}, f64), narrow = empty({50});
  EXPECT_EQ(bernoulli_(wide, 0.3, a).tolist(), bernoulli_(narrow, 0.3, b).tolist());
}

TEST(RandomTensor, SamplesRowByRow) {
  const Tensor weights = tensor({{{0.0, 1.0, 0.0}, {0.0, 0.0, 2.0}}});
  const Tensor ids = multinomial(weights, 4, true);
  EXPECT_EQ(ids.shape(), (Shape{1, 2, 4}));
  EXPECT_EQ(ids.tolist(), (Values{1, 1, 1, 1, 2, 2, 2, 2}));
}

// The number that sample draws for the first row at a step, from the generator that it is made of.
double drawn_at(uint64_t step) {
  const uint64_t bits = Philox::derive(Philox::derive(0, step, 0), 0, 0);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}
int64_t sample_at(uint64_t step, const Tensor& probabilities) {
  const ContextGuard guard;
  context().random = {.step = step};
  return sample(probabilities).item<int64_t>();
}

TEST(RandomTensor, SamplesWhereTheSumPassesTheNumberDrawn) {
  for (uint64_t step = 0; step < 100; ++step) {
    const double u = drawn_at(step), above = u + 0x1p-53;
    EXPECT_EQ(sample_at(step, from_vector(Values{u, 1 - u}).to(f64)), u == 0 ? 0 : 1);
    EXPECT_EQ(sample_at(step, from_vector(Values{above, 1 - above})), 0);
    EXPECT_EQ(sample_at(step, from_vector(Values{u, 0, 0, 1 - u, 0})), 3);
    EXPECT_EQ(sample_at(step, from_vector(Values{0, 0, above, 0, 1 - above})), 2);
    EXPECT_EQ(sample_at(step, tensor({0.0, 0.0, 1.0, 0.0})), 2);
  }
}

TEST(RandomTensor, SamplesTheLastPossibleWhereTheSumFallsShort) {
  uint64_t step = 0;
  while (drawn_at(step) < 0.995) ++step;
  EXPECT_EQ(sample_at(step, tensor({0.5, 0.494, 0.0})), 1);
  EXPECT_EQ(sample_at(step, tensor({0.5, 0.494, 0.0, 0.006})), 3);
}

TEST(RandomTensor, SamplesWhatRoundingLeftAboveOne) {
  EXPECT_EQ(sample_at(0, tensor({0.0, 1.0 + 0x1p-23, 0.0})), 1);
  EXPECT_EQ(sample(softmax(randn({300, 70}) * 20.0).to(bf16)).shape(), (Shape{300, 1}));
}

TEST(RandomTensor, SamplesRowsOfABatchAlikeHoweverItIsSplit) {
  const ContextGuard guard;
  const Tensor p = softmax(randn({6, 50}));
  context().random = {.seed = 5, .step = 2};
  const std::vector<int64_t> whole = sample(p).tolist<int64_t>();
  EXPECT_EQ(context().random.call, 1u);
  EXPECT_NE(sample(p).tolist<int64_t>(), whole) << "the next call draws others";
  context().random = {.seed = 5, .step = 2, .first_row = 4};
  const Tensor part = sample(p.narrow(0, 4, 2));
  EXPECT_EQ(part.shape(), (Shape{2, 1}));
  EXPECT_EQ(part.tolist<int64_t>(), std::vector<int64_t>(whole.end() - 2, whole.end()));
}

TEST(RandomTensor, SampleRefusesWhatIsNoProbability) {
  const std::string error = "sample: the probabilities of row 1 are not finite, or do not sum to 1";
  for (const Values& row : {Values{0, 0, 0}, Values{NAN, 1, 0}, Values{-0.5, 1, 0.5},
                            Values{INFINITY, 0, 0}, Values{1, 1, 1}, Values{0.5, 0.25, 0.125}})
    EXPECT_EQ(error_of([&] { sample(stack({tensor({0.0, 1.0, 0.0}), from_vector(row)})); }), error);
  // 2049 ones are 2^64 + 2^53 in units of 2^-53.
  EXPECT_EQ(error_of([] {
              sample(ones({1, 2049}));
            }),
            "sample: the probabilities of row 0 are not finite, or do not sum to 1");
  EXPECT_EQ(error_of([] { sample(tensor(1.0)); }),
            "sample: expected probabilities (..., V), got a scalar");
  EXPECT_EQ(error_of([] {
              sample(ones({1, 1}, i64));
            }),
            "sample: expected a floating dtype, got int64");
}

TEST(RandomTensor, MultinomialRefusesWhatIsNoWeight) {
  const Tensor bad_second = tensor({{1.0, 1.0}, {1.0, -1.0}});
  const std::string error = error_of([&] { multinomial(bad_second, 1); });
  EXPECT_NE(error, "");
  EXPECT_EQ(error_of([&] { multinomial(bad_second.index({1}), 1); }), error);
  EXPECT_EQ(error_of([] {
              multinomial(zeros({3, 0}), 1);
            }),
            "multinomial: expected at least one category, got (3, 0)");
  EXPECT_EQ(multinomial(zeros({0, 3}), 2).shape(), (Shape{0, 2}));
}

TEST(RandomTensor, EmptyOnesDrawNothing) {
  manual_seed(1);
  const double first = rand({1}).item();
  manual_seed(1);
  EXPECT_EQ(randn({0, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(rand({1}).item(), first);
}

TEST(RandomTensor, FillsRespectGraphs) {
  Tensor leaf = ones({2}).requires_grad_();
  EXPECT_EQ(error_of([&] { normal_(leaf); }),
            "normal_: a leaf that requires grad, (2,), cannot be written in place while a graph is "
            "recorded; do it under NoGrad, or on x.detach()");
  {
    const NoGrad no_grad;
    normal_(leaf);
  }
  EXPECT_TRUE(leaf.requires_grad());
  Tensor computed = leaf * 2.0;
  uniform_(computed);
  EXPECT_EQ(grad({sum(computed)}, {leaf})[0].tolist(), (std::vector<double>{0, 0}));
  EXPECT_EQ(error_of([] { rand({2}, i64); }), "rand: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([] { multinomial(tensor(1.0), 1); }),
            "multinomial: expected weights (..., categories), got a scalar");
}

}  // namespace
}  // namespace ink
