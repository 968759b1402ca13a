// ImitateTorch against PyTorch's numbers (golden/imitate.txt, made by golden/imitate_fixtures.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

using Values = std::vector<double>;

// The lines of the fixture that begin with `kind`, in order; each is consumed by next().
class Fixture {
 public:
  explicit Fixture(const std::string& kind) {
    std::ifstream file(INKLING_SOURCE_DIR "/tests/golden/imitate.txt");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(kind + " ", 0) == 0) lines_.push_back(line);
      if (line == "rule mkl") rule = BernoulliRule::mkl;
    }
  }
  bool done() const { return at_ == lines_.size(); }

  BernoulliRule rule = BernoulliRule::plain;  // of the PyTorch that made it
  uint64_t seed = 0;
  double p = 0;
  int64_t n = 0;
  std::string listed;
  /// The values of the next line, which must list `what`.
  Values next(const std::string& what) {
    std::istringstream in(lines_.at(at_++));
    std::string kind;
    in >> kind >> seed >> p >> n >> listed;
    EXPECT_EQ(listed, what);
    Values values;
    for (std::string word; in >> word;) values.push_back(std::stod(word));
    return values;
  }
  /// Reads the next line's case without consuming it.
  void peek() {
    const size_t at = at_;
    std::istringstream in(lines_.at(at));
    std::string kind;
    in >> kind >> seed >> p >> n >> listed;
  }

 private:
  std::vector<std::string> lines_;
  size_t at_ = 0;
};

void expect_equal(const Values& got, const Values& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
        << what << " at " << i << ": " << got[i] << ", expected " << expected[i];
  }
}

TEST(ImitateTorch, DropoutDrawsPyTorchsMasks) {
  Fixture fixture("dropout");
  const ImitateTorch guard(fixture.rule);
  int cases = 0;
  for (; !fixture.done(); ++cases) {
    fixture.peek();
    manual_seed(fixture.seed);
    const Tensor x = randn({fixture.n}).requires_grad_();
    const Tensor y = dropout(x, fixture.p), z = dropout(x.detach().to(f64), fixture.p);
    y.backward(arange(static_cast<double>(fixture.n), f32));
    const Tensor next = rand({1});
    expect_equal(y.tolist(), fixture.next("y"), "y");
    expect_equal(x.grad().tolist(), fixture.next("dx"), "dx");
    expect_equal(z.tolist(), fixture.next("z"), "z");
    expect_equal(next.tolist(), fixture.next("next"), "the number after the masks");
  }
  EXPECT_EQ(cases, 6);
}

// Numbers are drawn in the order of memory; in row-major order where elements share a place.
TEST(ImitateTorch, DropoutDrawsInTheOrderOfMemory) {
  const ImitateTorch guard(BernoulliRule::plain);
  const auto dropped = [](const Tensor& x) {
    manual_seed(3);
    return dropout(x, 0.5);
  };
  const Tensor x = randn({3, 4, 5}), repeated = expand(randn({4, 1}), {4, 5}),
               repeated_columns = expand(randn({5}), {4, 5});
  EXPECT_EQ(dropped(x.permute({2, 0, 1})).tolist(), dropped(x).permute({2, 0, 1}).tolist());
  for (const Tensor& t : {repeated, repeated_columns})
    EXPECT_EQ(dropped(t).tolist(), dropped(t.clone().contiguous()).tolist());
}

TEST(ImitateTorch, BothRulesAreBernoullis) {
  for (const BernoulliRule rule : {BernoulliRule::plain, BernoulliRule::mkl}) {
    manual_seed(3);
    Tensor kept = empty({50});
    bernoulli_(kept, 0.7, default_generator(), rule);
    manual_seed(3);
    const ImitateTorch guard(rule);
    EXPECT_EQ(dropout(ones({50}), 0.3).tolist(), (kept / 0.7).tolist());
  }
}

void expect_near(const Values& got, const Values& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(std::abs(got[i] - expected[i]) <= 1e-6 * std::max(1.0, std::abs(expected[i])) ||
                (std::isnan(got[i]) && std::isnan(expected[i])))
        << what << " at " << i << ": " << got[i] << ", expected " << expected[i];
  }
}

TEST(ImitateTorch, AttentionDropsTheSameWeightsAndIsNanWhereNothingMayBeSeen) {
  const Tensor allowed = tensor({{{true, true, true, false}}, {{false, false, false, false}}});
  const auto run = [&](Tensor& x, auto&& f) {
    manual_seed(6);
    x = randn({2, 4, 3}).requires_grad_();
    return f(AttentionOptions{.attn_mask = allowed, .dropout_p = 0.3});
  };
  Fixture fixture("attention");
  Tensor x;
  {
    const ImitateTorch guard(fixture.rule);
    const Tensor weights = run(x, [&](const auto& o) { return attention_weights(x, x, o); });
    expect_near(weights.tolist(), fixture.next("weights"), "weights");
    const Tensor out =
        run(x, [&](const auto& o) { return scaled_dot_product_attention(x, x, x, o); });
    sum(out).backward();
    expect_near(out.tolist(), fixture.next("out"), "out");
    expect_near(x.grad().tolist(), fixture.next("dx"), "dx");
  }
  const Tensor out =
      run(x, [&](const auto& o) { return scaled_dot_product_attention(x, x, x, o); });
  sum(out).backward();
  EXPECT_EQ(out.narrow(0, 1, 1).tolist(), Values(12, 0));
  EXPECT_EQ(x.grad().narrow(0, 1, 1).tolist(), Values(12, 0));
}

// "4x9x50", 'x': 4, 9, 50.
Shape split(const std::string& text, char at) {
  Shape numbers;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, at);) numbers.push_back(std::stoll(word));
  return numbers;
}

TEST(ImitateTorch, SumsRoundAsPyTorchs) {
  Fixture fixture("sum");
  int cases = 0, ours_differ = 0;
  for (; !fixture.done(); ++cases) {
    fixture.peek();
    const std::string what = fixture.listed;  // sizes and dimensions: 4x9x50:0,2
    const Shape shape = split(what.substr(0, what.find(':')), 'x');
    const Shape dims = split(what.substr(what.find(':') + 1), ',');
    manual_seed(fixture.seed);
    const Tensor x = randn(shape), thirds = x.to(f64) / 3;
    const auto run = [&] {
      Values all;
      for (const Tensor& y :
           {sum(x, dims), mean(x, dims), sum(thirds, dims), mean(thirds, dims, true)}) {
        const Values values = y.tolist();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const Values ours = run(), expected = fixture.next(what);
    const ImitateTorch guard(BernoulliRule::plain);
    expect_equal(run(), expected, what);
    ours_differ += ours != expected;
  }
  EXPECT_EQ(cases, 19);
  EXPECT_GT(ours_differ, 0);
}

TEST(ImitateTorch, SumsOfViewsAndOfNothing) {
  const ImitateTorch guard(BernoulliRule::plain);
  const Tensor x = arange(24, f32).reshape({2, 3, 4});  // whole numbers: exact in any order
  EXPECT_EQ(sum(x.transpose(0, 2), {0}).tolist(), (Values{6, 54, 22, 70, 38, 86}));
  EXPECT_EQ(mean(x.narrow(2, 1, 2), {0, 2}).tolist(), (Values{7.5, 11.5, 15.5}));
  EXPECT_EQ(sum(x.narrow(0, 1, 1), {0}).tolist(), x.narrow(0, 1, 1).tolist());
  EXPECT_EQ(sum(ones({3}).expand({5, 2, 3}), {0, 1}).tolist(), Values(3, 10));
  EXPECT_EQ(sum(tensor(2.5)).tolist(), Values{2.5});
  EXPECT_EQ(sum(empty({0, 2}), {0}).tolist(), Values(2, 0));
  EXPECT_EQ(sum(empty({0, 2}), {1}).numel(), 0);
  EXPECT_TRUE(std::isnan(mean(empty({0})).item<double>()));
  EXPECT_EQ(sum(x.to(bf16)).tolist(), Values{276});
}

TEST(ImitateTorch, EndsWithItsScope) {
  { const ImitateTorch guard(BernoulliRule::mkl); }
  EXPECT_FALSE(context().imitate_torch);
  context().random = {.seed = 5};
  const Tensor y = dropout(ones({20}), 0.5);
  context().random = {.seed = 5};
  manual_seed(5);
  EXPECT_EQ(dropout(ones({20}), 0.5).tolist(), y.tolist());
}

}  // namespace
}  // namespace ink
