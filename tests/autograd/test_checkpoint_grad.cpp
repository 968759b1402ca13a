// checkpoint: the gradients of a plain call, bit for bit, in less memory. And pictures of graphs.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/checkpoint.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/observer.h"

#include <gtest/gtest.h>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/inspect/draw.h"
#include "autograd/inspect/gradcheck.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

Tensor numbers(const Shape& shape, uint64_t state) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63;
  }
  return from_vector(values, shape).to(f32);
}

// Two weights, used by every section; inputs x that the sections share with what follows them.
struct Model {
  Tensor x = numbers({6, 16}, 1).requires_grad_(), w = numbers({16, 16}, 2).requires_grad_(),
         gain = numbers({16}, 3).requires_grad_();

  // One section: shared weights, dropout, a residual.
  Tensor block(const Tensor& h) const {
    return h + dropout(tanh(linear(layer_norm(h, gain), w)), 0.3);
  }
  Tensor plain() const {
    Tensor h = x;
    for (int i = 0; i < 3; ++i) h = block(h);
    return h;
  }
  Tensor checkpointed() const {
    Tensor h = x;
    for (int i = 0; i < 3; ++i) h = checkpoint([this](const Tensor& a) { return block(a); }, h);
    return h;
  }
  Tensor nested() const {
    return checkpoint(
        [this](const Tensor& a) {
          const Tensor h = checkpoint([this](const Tensor& b) { return block(b); }, a);
          return block(checkpoint([this](const Tensor& b) { return block(b); }, h));
        },
        x);
  }
  Inputs leaves() const { return {x, w, gain}; }
};

// Value and leaf gradients of sum(y^2 + y x), which uses x again behind the sections.
std::vector<Values> run(const Model& model, const std::function<Tensor()>& forward,
                        GradStore* store = nullptr) {
  const ContextGuard guard;
  context().random = {.seed = 5};
  for (Tensor leaf : model.leaves()) leaf.set_grad({});
  const Tensor y = forward();
  const Tensor loss = sum(y * y + y * model.x);
  const uint64_t call = context().random.call;
  if (store != nullptr) {
    backward(loss, *store);
  } else {
    loss.backward();
  }
  EXPECT_EQ(context().random.call, call) << "backward moved the random position";
  std::vector<Values> result{y.tolist()};
  for (const Tensor& leaf : model.leaves())
    result.push_back((store ? store->get(leaf) : leaf.grad()).tolist());
  return result;
}

class Checkpoint : public testing::Test {
 protected:
  const Model model_{};
};

TEST_F(Checkpoint, GradientsAreThePlainOnesBitForBit) {
  const auto plain = run(model_, [&] { return model_.plain(); });
  EXPECT_EQ(run(model_, [&] { return model_.checkpointed(); }), plain);
  EXPECT_EQ(run(model_, [&] { return model_.nested(); }), plain);
}

// Draws from the default generator: backward sees the numbers of the value, and moves no generator.
TEST_F(Checkpoint, DrawsAreThoseOfTheValue) {
  const Tensor weights = rand({6, 16});
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> sections = {
      {"randn", [](const Tensor& a) { return a * randn({16}); }},
      {"rand_like", [](const Tensor& a) { return a * rand_like(a); }},
      {"randint", [](const Tensor& a) { return a * randint(1, 9, {16}).to(f32); }},
      {"bernoulli_", [](const Tensor& a) { return a * bernoulli_(empty({16}), 0.5); }},
      {"normal_",
       [](const Tensor& a) {
         return a * normal_(empty({3, 16}))[2];
       }},  // leaves a spare
      {"one normal", [](const Tensor& a) { return a * randn({1}); }},
      {"exponential_", [](const Tensor& a) { return a * exponential_(empty({16})); }},
      {"randperm", [](const Tensor& a) { return a * randperm(16).to(f32); }},
      {"multinomial", [&](const Tensor& a) { return a * multinomial(weights, 16, true).to(f32); }},
      {"dropout and randn", [](const Tensor& a) { return dropout(a, 0.5) * randn({16}); }},
      {"nested",
       [](const Tensor& a) {
         const Tensor h =
             checkpoint([](const Tensor& b) { return b * randn({16}); }, a * rand({16}));
         return h * rand({16});
       }},
  };
  for (const auto& entry : sections) {
    SCOPED_TRACE(entry.first);
    const auto& section = entry.second;
    const auto run_it = [&](bool saving) {
      const ContextGuard guard;
      manual_seed(11);
      const Tensor x = model_.x.detach().clone().requires_grad_();
      const Tensor y = saving ? checkpoint(section, checkpoint(section, x)) : section(section(x));
      const std::vector<uint8_t> state = default_generator().get_state();
      sum(y).backward();
      EXPECT_EQ(default_generator().get_state(), state) << "backward moved the generator";
      return std::vector<Values>{y.tolist(), x.grad().tolist(), rand({3}).tolist()};
    };
    EXPECT_EQ(run_it(true), run_it(false));
  }
}

TEST_F(Checkpoint, DropoutIsThatOfTheValueWhoeverSeedsBetween) {
  const ContextGuard guard;
  const auto section = [](const Tensor& v) { return dropout(v * 1, 0.5); };
  context().random.given_by = RandomPosition::seedings;  // as of a thread that has drawn before
  const Tensor x = ones({64}).requires_grad_(), y = checkpoint(section, x);
  manual_seed(3);
  y.backward(ones({64}));
  EXPECT_EQ(x.grad().tolist(), y.tolist());
}

TEST_F(Checkpoint, DrawsOfTheOldGeneratorAndOfDropoutAsPyTorchs) {
  const auto gradients = [&](bool saving) {
    const ContextGuard guard;
    const ImitateTorch imitate(BernoulliRule::plain);
    Generator own(3);  // gone before backward
    Tensor x = model_.x.detach().clone().requires_grad_(), y;
    {
      const FieldGuard draws(&Context::generator, &own);
      const auto section = [](const Tensor& a) { return dropout(a, 0.5) * randn({16}); };
      y = saving ? checkpoint(section, x) : section(x);
    }
    sum(y).backward();
    return x.grad().tolist();
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST_F(Checkpoint, GradientsGoWhereTheWalkSendsThem) {
  const auto plain = run(model_, [&] { return model_.plain(); });
  GradStore store;
  EXPECT_EQ(run(
                model_, [&] { return model_.nested(); }, &store),
            plain);
  for (const Tensor& leaf : model_.leaves()) EXPECT_FALSE(leaf.grad().defined());
  store.add_to_leaves();
  EXPECT_EQ(model_.w.grad().tolist(), plain[2]);
}

TEST_F(Checkpoint, GradFindsInputsAndCapturedParameters) {
  const ContextGuard guard;
  context().random = {.seed = 5};
  const Grads plain = grad({sum(model_.plain())}, {model_.x, model_.w});
  context().random = {.seed = 5};
  const Grads again = grad({sum(model_.checkpointed())}, {model_.x, model_.w});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(again[i].tolist(), plain[i].tolist());
  EXPECT_FALSE(model_.w.grad().defined());
}

TEST_F(Checkpoint, ParametersNeedNoInputThatRequiresGrad) {
  const Tensor x = model_.x.detach();
  const Tensor y = checkpoint([&](const Tensor& a) { return linear(a, model_.w); }, x);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ(Node::live, 1);
  sum(y).backward();
  EXPECT_EQ(model_.w.grad().tolist(), grad({sum(linear(x, model_.w))}, {model_.w})[0].tolist());
}

TEST_F(Checkpoint, SeveralInputsAndOnesUsedTwice) {
  const auto section = [](const Inputs& x) { return x[0] * x[1] + x[2]; };
  const Tensor constant = ones({6, 16});
  const Tensor y = checkpoint(section, {model_.x, model_.x, constant});
  sum(y).backward();
  EXPECT_EQ(model_.x.grad().tolist(), (model_.x.detach() * 2).tolist());
}

TEST_F(Checkpoint, WithoutGradientsItIsAPlainCall) {
  {
    const NoGrad no_grad;
    EXPECT_FALSE(model_.checkpointed().requires_grad());
  }
  const Tensor y = checkpoint([](const Tensor& a) { return exp(a); }, ones({2}));
  EXPECT_FALSE(y.requires_grad());
  const Tensor same = checkpoint([](const Tensor& a) { return a; }, model_.x);
  sum(same).backward();
  EXPECT_EQ(model_.x.grad().tolist(), Values(96, 1));
}

TEST_F(Checkpoint, RetainedGraphsAreWalkedAgain) {
  const ContextGuard guard;
  context().random = {.seed = 5};
  const Tensor loss = sum(model_.checkpointed());
  loss.backward(ones({}), true);
  const Values once = model_.w.grad().tolist();
  model_.w.grad().zero_();
  loss.backward();
  EXPECT_EQ(model_.w.grad().tolist(), once);
}

struct CountOps : Observer {
  void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
    ++count;
  }
  int count = 0;
};

// Those of the first run may be gone.
TEST_F(Checkpoint, TheSecondRunIsSeenByWhoObservesThen) {
  const Tensor x = randn({3}).requires_grad_();
  CountOps first, second;
  Tensor y;
  {
    const Observe observe(first);
    y = checkpoint([](const Tensor& a) { return exp(sin(a)); }, x);
  }
  EXPECT_EQ(std::exchange(first.count, 0), 2);
  const Observe observe(second);
  y.backward(ones({3}));
  EXPECT_EQ(first.count, 0);
  EXPECT_GE(second.count, 2);
}

TEST_F(Checkpoint, HooksOfParametersSeeTheWholeGradient) {
  Tensor w = model_.w;
  int calls = 0;
  w.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 2;
  });
  const auto hooked = run(model_, [&] { return model_.nested(); });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(run(model_, [&] { return model_.plain(); }), hooked);
}

TEST_F(Checkpoint, SecondDerivatives) {
  const Tensor x = numbers({2, 3}, 4).to(f64).requires_grad_();
  const auto f = [](const Inputs& in) {
    return checkpoint([](const Tensor& a) { return softmax(exp(a)) * a; }, in[0]);
  };
  EXPECT_TRUE(gradcheck(f, {x}));
  EXPECT_TRUE(gradgradcheck(f, {x}));
  const Composed composed;
  EXPECT_TRUE(gradgradcheck(f, {x}));
}

TEST_F(Checkpoint, AnInputWrittenSinceIsRefused) {
  const Tensor x = model_.x.detach();
  const Tensor y = checkpoint(
      [&](const Tensor& a) {
        const NoGrad no_grad;
        Tensor alias = a;
        alias.add_(1);
        const EnableGrad grad;
        return linear(a, model_.w);
      },
      x);
  EXPECT_EQ(error_of([&] { sum(y).backward(); }),
            "the backward of checkpoint: an input, (6, 16) float32, was saved at version " +
                std::to_string(x.version() - 1) + " and has been written since (now version " +
                std::to_string(x.version()) + "); write out of place (x = x + y) or clone() first");
}

TEST_F(Checkpoint, SavesMemory) {
  const Tensor x = ones({64, 256}).requires_grad_(), w = ones({256, 256}).requires_grad_();
  const auto section = [&](const Tensor& a) {
    Tensor h = a;
    for (int i = 0; i < 8; ++i) h = exp(h * 0.001);
    return h;
  };
  const auto peak = [&](bool saving) {
    reset_peak_memory(test_device());
    const int64_t before = memory_stats(test_device()).bytes_in_use;
    Tensor h = x;
    for (int i = 0; i < 8; ++i) h = saving ? checkpoint(section, h) : section(h);
    sum(h).backward();
    Tensor leaf = x;
    leaf.set_grad({});
    return memory_stats(test_device()).peak_bytes_in_use - before;
  };
  const int64_t plain = peak(false), saved = peak(true), one = 64 * 256 * 4;
  EXPECT_GT(plain, 64 * one);        // what each exp of each section computed
  EXPECT_LT(saved, (8 + 20) * one);  // an input for each section, and the inside of one of them
}

TEST_F(Checkpoint, ALongChainIsFreedWithoutRecursion) {
  const Tensor x = ones({1}).requires_grad_();
  Tensor y = x;
  const int64_t sections = by_device(20000, 1000);
  for (int64_t i = 0; i < sections; ++i)
    y = checkpoint([](const Tensor& a) { return a + a * 0; }, y);
  EXPECT_EQ(Node::live, sections);
  y.backward();
  EXPECT_EQ(x.grad().item(), 1);
}

// ---- pictures

TEST(Draw, TextOfASmallGraph) {
  const Tensor x = tensor({1.0, 2.0, 3.0}).requires_grad_(), w = ones({3}).requires_grad_();
  const Tensor e = exp(x), y = sum(e * e * w + tensor({1.0, 1.0, 1.0}));
  EXPECT_EQ(print_graph(y, {{"x", x}}),
            "sum ()\n"
            "  add (3,)\n"
            "    mul (3,)\n"
            "      mul (3,)\n"
            "        [1] exp (3,)\n"
            "          x (3,)\n"
            "        [1] exp, above\n"
            "      leaf (3,)\n");
  EXPECT_EQ(print_graph(x, {{"x", x}}), "x (3,)\n");
  EXPECT_EQ(print_graph(ones({2})), "");
}

TEST(Draw, DotOfASmallGraph) {
  const Tensor x = tensor({1.0, 2.0, 3.0}).requires_grad_();
  EXPECT_EQ(to_dot(sum(softmax(x) * x), {{"x \"quoted\"", x}}),
            "digraph {\n"
            "  rankdir=BT;\n"
            "  y [shape=plaintext];\n"
            "  n0 [label=\"sum\"];\n"
            "  n1 [label=\"mul\"];\n"
            "  n2 [label=\"softmax\"];\n"
            "  n3 [label=\"x \\\"quoted\\\"\", shape=box];\n"
            "  n0 -> y [label=\"()\"];\n"
            "  n1 -> n0 [label=\"(3,)\"];\n"
            "  n2 -> n1 [label=\"(3,)\"];\n"
            "  n3 -> n1 [label=\"(3,)\"];\n"
            "  n3 -> n2 [label=\"(3,)\"];\n"
            "}\n");
}

TEST(Draw, DeepGraphsNeedNoStack) {
  Tensor y = ones({1}).requires_grad_();
  const int64_t nodes = by_device(100000, 10000);
  for (int64_t i = 0; i < nodes; ++i) y = y * y;
  const std::string text = print_graph(y), dot = to_dot(y);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * nodes + 1);
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '\n'), 4 + nodes + 1 + 1 + 2 * nodes);
}

}  // namespace
}  // namespace ink
