// Optimizers against PyTorch's numbers (golden/optimizer.txt and muon.txt, made by
// golden/optimizer_fixtures.py and muon_fixtures.py), groups, skipped steps, saved state, the
// warning, and schedules.
#include "autograd/engine/grad_store.h"
#include "train/optimizer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/io/log.h"
#include "nn/gpt.h"
#include "nn/linear.h"
#include "nn/llama.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"
#include "train/config.h"
#include "train/muon.h"
#include "train/schedule.h"

namespace ink {
namespace {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>;

// Some parameters and their gradients, as golden/optimizer_fixtures.py makes them.
struct Problem {
  explicit Problem(DType dtype = f64) {
    int64_t k = 0;
    for (const Shape& shape : {Shape{3, 4}, Shape{5}, Shape{}}) {
      std::vector<double> start;
      for (int64_t i = 0; i < shape.numel(); ++i) start.push_back(std::cos(k++ + 1));
      Tensor p = from_vector(start, shape).to(dtype);
      parameters.emplace_back(std::string(1, "abc"[parameters.size()]), p.requires_grad_());
    }
  }

  void set_grads(int64_t step) {
    int64_t k = 0;
    for (auto& [name, p] : parameters) {
      std::vector<double> g;
      for (int64_t i = 0; i < p.numel(); ++i)
        g.push_back(std::sin(0.7 * static_cast<double>(k++) + 1.3 * static_cast<double>(step)));
      const bool none = name == "b" && (step == 3 || step == 7);
      p.set_grad(none ? Tensor() : from_vector(g, p.shape()).to(p.dtype()));
    }
  }

  static std::vector<double> joined(const NamedTensors& list) {
    std::vector<double> all;
    for (const auto& entry : list) {
      const std::vector<double> values = entry.second.tolist();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<double> values() const { return joined(parameters); }

  NamedTensors parameters;
};

// The saved tensors of one kind, in order.
NamedTensors of_kind(const Optimizer& optimizer, const std::string& kind) {
  NamedTensors found;
  for (const auto& entry : optimizer.state())
    if (entry.first.starts_with(kind + ".")) found.push_back(entry);
  return found;
}

MakeOptimizer maker(const std::string& name) {
  if (name == "adamw")
    return [](const auto& p) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 1e-2}); };
  if (name == "adamw_clip")
    return [](const auto& p) {
      return std::make_unique<AdamW>(p, AdamWOptions{.lr = 3e-2,
                                                     .beta1 = 0.8,
                                                     .beta2 = 0.95,
                                                     .eps = 1e-3,
                                                     .weight_decay = 0.3,
                                                     .grad_clip = 0.5});
    };
  if (name == "adamw_groups")
    return [](const auto& p) {
      return std::make_unique<AdamW>(decay_matrices(p, 0.5),
                                     AdamWOptions{.lr = 2e-2, .grad_clip = 1});
    };
  if (name == "adam") return [](const auto& p) { return std::make_unique<Adam>(p); };
  if (name == "adam_decay")
    return [](const auto& p) {
      return std::make_unique<Adam>(p, AdamOptions{.lr = 3e-2,
                                                   .beta1 = 0.8,
                                                   .beta2 = 0.95,
                                                   .eps = 1e-3,
                                                   .weight_decay = 0.3,
                                                   .grad_clip = 0.5});
    };
  if (name == "sgd")
    return [](const auto& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1}); };
  if (name == "sgd_momentum")
    return [](const auto& p) {
      return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2});
    };
  return [](const auto& p) {
    return std::make_unique<SGD>(
        p, SGDOptions{
               .lr = 0.05, .momentum = 0.8, .nesterov = true, .weight_decay = 0.1, .grad_clip = 1});
  };
}

// Replays every case of the golden file in one dtype.
void expect_torch_numbers(DType dtype, double tolerance) {
  std::ifstream file(golden("optimizer.txt"));
  std::string line, running;
  std::getline(file, line);
  std::unique_ptr<Problem> problem;
  std::unique_ptr<Optimizer> optimizer;
  int64_t done = 0, lines = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, what;
    int64_t step = 0;
    words >> name >> step >> what;
    if (name != running) {
      optimizer = nullptr;
      problem = std::make_unique<Problem>(dtype);
      optimizer = maker(name)(problem->parameters);
      running = name;
      done = 0;
    }
    while (done < step) {
      problem->set_grads(++done);
      optimizer->step();
    }
    const std::vector<double> got =
        what == "value" ? problem->values() : Problem::joined(of_kind(*optimizer, what));
    ASSERT_EQ(got.size(), 18u) << line;
    for (const double value : got) {
      double expected = 0;
      words >> expected;
      EXPECT_NEAR(value, expected, tolerance) << name << " step " << step << " " << what;
    }
    ++lines;
  }
  EXPECT_EQ(lines, 28);
}

// As in PyTorch: the parameters of a module, which then have numbers for names.
template <class O>
void expect_numbered(const std::string& moment) {
  manual_seed(2);
  Linear named(3, 2), numbered(3, 2);
  numbered.load_state_dict(named.state_dict());
  O by_name(named.named_parameters(), {.lr = 0.1}), by_number(numbered.parameters(), {.lr = 0.1});
  for (Linear* layer : {&named, &numbered}) sum(square((*layer)(ones({4, 3})))).backward();
  by_name.step();
  by_number.step();
  EXPECT_EQ(named.weight.tolist(), numbered.weight.tolist());
  EXPECT_EQ(by_number.parameters()[1].first, "1");
  EXPECT_EQ(by_number.state()[0].first, moment + ".0");
  O two({named.weight, named.bias}), one({named.weight}, {.lr = 1});
  EXPECT_EQ(two.parameters().size(), 2u);
  EXPECT_EQ(one.parameters().size(), 1u);
}
TEST(Optimizers, TakeTheParametersOfAModule) {
  expect_numbered<AdamW>("exp_avg");
  expect_numbered<Adam>("exp_avg");
  expect_numbered<SGD>("step");
}

TEST(Optimizer, HasTorchNumbers) { expect_torch_numbers(f64, 1e-13); }
TEST(Optimizer, HasTorchNumbersInFloat) { expect_torch_numbers(f32, 1e-6); }
TEST(Optimizer, HasTorchNumbersInBfloat16) { expect_torch_numbers(bf16, 0.05); }

// A group's decay is its own, and a step that is not finite changes nothing.
TEST(Optimizer, AdamAddsTheDecayToTheGradient) {
  Tensor a = full({2}, 3.0, f64).requires_grad_(), b = full({2}, 3.0, f64).requires_grad_();
  Adam optimizer(std::vector<ParameterGroup>{{{{"a", a}}, 0.5}, {{{"b", b}}, 0}}, {.lr = 0.1});
  for (Tensor* p : {&a, &b}) p->set_grad(full({2}, -1.5, f64));
  optimizer.step(full({}, NAN));
  EXPECT_EQ(a.tolist(), (std::vector<double>{3, 3}));
  optimizer.step();
  EXPECT_EQ(a.tolist(), (std::vector<double>{3, 3})) << "its decay and its gradient cancel";
  EXPECT_NEAR(b.tolist()[0], 3.1, 1e-8);
  EXPECT_EQ(a.grad().tolist(), (std::vector<double>{-1.5, -1.5})) << "gradients are not changed";
  EXPECT_EQ(error_of([&] {
              Adam one({{"a", a}}, {.beta1 = 1});
            }),
            "Adam: expected betas in [0, 1), got 1");
}

TEST(Optimizer, CountsUpdatesOfEachParameter) {
  Problem problem;
  AdamW optimizer(problem.parameters);
  for (int64_t step = 1; step <= 10; ++step) {
    problem.set_grads(step);
    optimizer.step();
  }
  EXPECT_EQ(Problem::joined(of_kind(optimizer, "step")), (std::vector<double>{10, 8, 10}));
}

TEST(Optimizer, ReportsNormAndClip) {
  Tensor a = zeros({2, 2}).requires_grad_(), b = zeros({1}).requires_grad_();
  SGD optimizer({{"a", a}, {"b", b}}, {.lr = 1, .grad_clip = 1});
  a.set_grad(full({2, 2}, 2.0));
  b.set_grad(full({1}, 3.0));
  optimizer.step();
  EXPECT_DOUBLE_EQ(optimizer.status().grad_norm.item(), 5);
  EXPECT_DOUBLE_EQ(optimizer.status().clip.item(), 1 / (5 + 1e-6));
  EXPECT_FLOAT_EQ(b.item<float>(), -0.6f);
  b.set_grad(full({1}, 0.25));
  a.set_grad({});
  optimizer.step();
  EXPECT_EQ(optimizer.status().grad_norm.item(), 0.25);
  EXPECT_EQ(optimizer.status().clip.item(), 1);
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined() || b.grad().defined());
}

TEST(Optimizer, TakesStridedGradients) {
  Problem plain, strided;
  AdamW first(plain.parameters), second(strided.parameters);
  plain.set_grads(1);
  strided.set_grads(1);
  Tensor& a = strided.parameters[0].second;
  a.set_grad(a.grad().T().contiguous().T());
  ASSERT_FALSE(a.grad().is_contiguous());
  first.step();
  second.step();
  EXPECT_EQ(plain.values(), strided.values());
}

TEST(Optimizer, ScalesTheLearningRateOfAGroup) {
  Tensor slow = ones({2}).requires_grad_(), fast = ones({2}).requires_grad_();
  const std::vector<ParameterGroup> groups = {{{{"slow", slow}}}, {{{"fast", fast}}, {}, 10}};
  SGD optimizer(groups, {.lr = 0.5});
  optimizer.set_lr(0.01);
  slow.set_grad(ones({2}));
  fast.set_grad(ones({2}));
  optimizer.step();
  EXPECT_FLOAT_EQ(static_cast<float>(slow.tolist()[0]), 0.99f);
  EXPECT_FLOAT_EQ(static_cast<float>(fast.tolist()[0]), 0.9f);
}

// What linear layers read of f32 parameters under Autocast: of two that lie in one memory at odd
// addresses, one that has no gradient, and beside others of other dtypes.
TEST(Optimizer, RoundsWhatItWrites) {
  for (const std::string name : {"adamw_groups", "sgd_nesterov"}) {
    const Tensor memory = randn({4000});
    NamedTensors parameters;
    const auto add = [&](const char* label, Tensor p) {
      parameters.emplace_back(label, p.requires_grad_());
    };
    add("first", memory.narrow(0, 3, 1001));
    add("second", memory.narrow(0, 1005, 2990).view({1495, 2}));
    add("alone", randn({40000}));
    add("ungraded", randn({7}));
    add("narrow", randn({9}, bf16));
    add("wide", randn({9}, f64));
    add("never read so", randn({5}));
    const std::set<std::string> read{"first", "second", "alone", "ungraded"};
    const auto optimizer = maker(name)(parameters);
    const auto copies = [&] {
      std::vector<Tensor> found{Tensor(cached_cast(memory, bf16))};  // of which two are parts
      for (const auto& [label, p] : parameters)
        if (read.count(label)) found.emplace_back(cached_cast(p, bf16));
      return found;
    };
    const auto expect_current = [&] {
      for (const auto& [label, p] : parameters) {
        ASSERT_EQ(current_cast(p).defined(), read.count(label) == 1) << label;
        if (read.count(label)) {
          EXPECT_TRUE(same_bits(Tensor(current_cast(p)), p.detach().to(bf16))) << label;
        }
      }
    };
    const auto before = copies();
    for (const double loss : {1.0, double(NAN), 1.0}) {
      for (auto& [label, p] : parameters)
        if (label != "ungraded") p.set_grad(randn(p.shape(), p.dtype()));
      const std::vector<double> old = parameters[2].second.tolist();
      optimizer->step(full({}, loss));
      EXPECT_EQ(parameters[2].second.tolist() == old, std::isnan(loss));
      expect_current();
    }
    const auto after = copies();
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].storage(), before[i].storage());
    const NoGrad no_grad;
    parameters[0].second.fill_(1);
    EXPECT_FALSE(current_cast(parameters[1].second).defined()) << "it may have been written, too";
    optimizer->step(ones({}));
    EXPECT_FALSE(current_cast(parameters[1].second).defined()) << "nor is it then";
    copies();
    expect_current();
  }
}

TEST(Optimizer, SkipsWhatIsNotFinite) {
  for (const std::string name : {"adamw_groups", "sgd_nesterov"}) {
    Problem problem;
    const auto optimizer = maker(name)(problem.parameters);
    problem.set_grads(1);
    optimizer->step(ones({}));
    const auto before = problem.values(), state = Problem::joined(optimizer->state());
    const auto skip = [&](const Tensor& loss, double in_gradient) {
      problem.set_grads(2);
      Tensor g = problem.parameters[1].second.grad();
      g.view({-1}).select(0, 4).fill_(in_gradient);
      optimizer->step(loss);
      EXPECT_FALSE(optimizer->status().finite.item<bool>());
      EXPECT_EQ(problem.values(), before);
    };
    skip({}, std::nan(""));
    skip(ones({}), -INFINITY);
    skip(full({}, NAN), 1);
    for (int64_t i = 0; i < 3; ++i) {  // of the losses of micro-batches, any one
      Tensor losses = ones({3});
      losses.select(0, i).fill_(INFINITY);
      skip(losses, 1);
    }
    EXPECT_EQ(optimizer->status().skipped.tolist<int64_t>(), (std::vector<int64_t>{6, 6}));
    auto now = Problem::joined(optimizer->state());
    std::fill_n(now.end() - 2, 2, 0.0);  // all but the skipped counts
    EXPECT_EQ(now, state);
    problem.set_grads(2);
    optimizer->step(ones({}));
    EXPECT_TRUE(optimizer->status().finite.item<bool>());
    EXPECT_EQ(optimizer->status().skipped.tolist<int64_t>(), (std::vector<int64_t>{6, 0}));
    EXPECT_NE(problem.values(), before);
    optimizer->step(full({3}, 0.5));
    EXPECT_EQ(optimizer->status().loss_sum.item(), 1 + 1 + 1.5) << "of the three good steps";
  }
}

TEST(Optimizer, LargeGradientsAreFinite) {
  Tensor a = zeros({3}).requires_grad_();
  SGD optimizer(NamedTensors{{"a", a}}, {.lr = 1, .grad_clip = 1});
  a.set_grad(full({3}, 3e38));  // squares overflow a float
  optimizer.step();
  EXPECT_TRUE(optimizer.status().finite.item<bool>());
  EXPECT_NEAR(a.tolist()[0], -1 / std::sqrt(3.0), 1e-6);
}

// Beside such doubles, floats count with what they are.
TEST(Optimizer, LargeDoublesBesideFloats) {
  const FieldGuard on_cpu(&Context::default_device, cpu_device);
  Tensor a = zeros({1}).requires_grad_(), b = zeros({1}, f64).requires_grad_();
  SGD optimizer(NamedTensors{{"a", a}, {"b", b}}, {.lr = 1, .grad_clip = 1});
  a.set_grad(ones({1}));
  b.set_grad(full({1}, 1e160, f64));
  optimizer.step();
  EXPECT_NEAR(optimizer.status().grad_norm.item() / 1e160, 1, 1e-12);
  EXPECT_NEAR(b.item(), -1, 1e-12);
}

// Of f64 the squares overflow, too. A GPU skips such a step.
TEST(Optimizer, LargeDoublesAreFinite) {
  const FieldGuard on_cpu(&Context::default_device, cpu_device);
  Tensor a = zeros({4}, f64).requires_grad_();
  SGD optimizer(NamedTensors{{"a", a}}, {.lr = 1, .grad_clip = 1});
  a.set_grad(full({4}, 1e155, f64));
  optimizer.step(full({}, 1e160, f64));
  EXPECT_NEAR(optimizer.status().grad_norm.item() / 2e155, 1, 1e-12);
  EXPECT_NEAR(a.tolist()[0], -0.5, 1e-12);
  a.set_grad(full({4}, 1e308, f64));
  optimizer.step();
  EXPECT_TRUE(optimizer.status().finite.item<bool>());
  for (const double bad : {inf, -inf, std::nan("")}) {
    optimizer.step(full({}, bad, f64));
    EXPECT_FALSE(optimizer.status().finite.item<bool>());
  }
}

// What is clipped is the gradient without the decay, which stays as large as the weight.
TEST(Optimizer, AdamClipsLargeGradientsBesideADecay) {
  Tensor a = ones({2}).requires_grad_();
  Adam optimizer(NamedTensors{{"a", a}}, {.lr = 0.1, .weight_decay = 0.5, .grad_clip = 1});
  a.set_grad(full({2}, 3e38));
  optimizer.step();
  EXPECT_NEAR(a.tolist()[0], 0.9, 1e-6);
}

TEST(Optimizer, RefusesALossOfIntegers) {
  Tensor a = ones({2}).requires_grad_();
  a.set_grad(ones({2}));
  AdamW optimizer(NamedTensors{{"a", a}});
  EXPECT_EQ(error_of([&] { optimizer.step(tensor(3)); }),
            "AdamW: expected a floating loss, got int64");
  EXPECT_EQ(a.tolist()[0], 1);
}

// Several tensors, some larger than a thread's grain, give the same bits on any number of threads.
TEST(Optimizer, SameBitsOnAnyNumberOfThreads) {
  const auto run = [](int threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    NamedTensors parameters;
    for (const int64_t n : {3, 70001, 1, 0, 16384, 257 * 193}) {
      std::vector<float> start(static_cast<size_t>(n)), g(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        start[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
        g[static_cast<size_t>(i)] = std::cos(static_cast<float>(3 * i + n));
      }
      Tensor p = from_vector(start).requires_grad_();
      p.set_grad(from_vector(g));
      parameters.emplace_back(std::to_string(n), p);
    }
    AdamW optimizer(parameters, {.lr = 0.1, .grad_clip = 1});
    optimizer.step();
    optimizer.step();
    omp_set_num_threads(before);
    auto result = Problem::joined(parameters);
    result.push_back(optimizer.status().grad_norm.item());
    return result;
  };
  const auto expected = run(1);
  EXPECT_EQ(run(2), expected);
  EXPECT_EQ(run(5), expected);
}

TEST(Optimizer, ContinuesFromSavedState) {
  for (const std::string name : {"adamw_clip", "sgd_momentum"}) {
    Problem straight, resumed;
    const auto first = maker(name)(straight.parameters);
    for (int64_t step = 1; step <= 5; ++step) {
      straight.set_grads(step);
      first->step();
    }
    for (size_t i = 0; i < 3; ++i)
      resumed.parameters[i].second =
          straight.parameters[i].second.detach().clone().requires_grad_();
    const auto second = maker(name)(resumed.parameters);
    second->load_state(first->state());
    for (int64_t step = 6; step <= 10; ++step) {
      straight.set_grads(step);
      first->step();
      resumed.set_grads(step);
      second->step();
    }
    EXPECT_EQ(straight.values(), resumed.values());
  }
}

TEST(Optimizer, RefusesForeignState) {
  Problem problem;
  AdamW optimizer(problem.parameters);
  problem.set_grads(1);
  optimizer.step();
  const auto before = Problem::joined(optimizer.state());
  NamedTensors state = optimizer.state();
  state[0].second = zeros({4, 3}, f64);
  state[1].first = "exp_avg.d";
  EXPECT_EQ(error_of([&] { optimizer.load_state(state); }),
            "AdamW: the saved state is not of these parameters:\n"
            "  exp_avg.a: expected shape (3, 4), got (4, 3)\n"
            "  missing: exp_avg.b\n"
            "  unexpected: exp_avg.d");
  EXPECT_EQ(Problem::joined(optimizer.state()), before);
}

TEST(Optimizer, NamesWhatIsWrongWithItsParameters) {
  Tensor w = zeros({2, 3}).requires_grad_();
  const auto error = [](const NamedTensors& list, AdamWOptions options = {}) {
    return error_of([&] { AdamW optimizer(list, options); });
  };
  EXPECT_EQ(error({{"a", w}, {"b", w}}), "AdamW: b is listed twice, the first time as a");
  EXPECT_EQ(error({{"a", w}, {"a", zeros({1}).requires_grad_()}}),
            "AdamW: two parameters have the name a; put a prefix before those of one module: "
            "numbered(parameters, \"head.\")");
  Tensor v = zeros({2}).requires_grad_();
  const SGD two({{numbered({w}, "body.")}, {.parameters = numbered({v}, "head."), .lr = 0.5}},
                {.lr = 0.1});
  AdamW with_w(NamedTensors{{"a", w}});
  EXPECT_EQ(error_of([&] { with_w.set_lr(NAN); }),
            "AdamW: expected lr to be finite and at least 0, got nan");
  EXPECT_EQ(error({{"a", w * w}}), "AdamW: expected leaves, got a, which was computed by mul");
  EXPECT_EQ(error({{"a", zeros({2, 3}).T().requires_grad_()}}),
            "AdamW: a, (3, 2), is a strided view; make the parameter of its contiguous() copy");
  EXPECT_EQ(error({{"a", zeros({1})}}),
            "AdamW: expected parameters that require grad, got none (those of a module are in its "
            "INK_FIELDS)");
  EXPECT_EQ(error({{"a", w}}, {.lr = -1}),
            "AdamW: expected lr to be finite and at least 0, got -1");
  EXPECT_EQ(error({{"a", w}}, {.beta2 = 1}), "AdamW: expected betas in [0, 1), got 1");
  EXPECT_EQ(error_of([&] {
              SGD optimizer(NamedTensors{{"a", w}}, {.nesterov = true});
            }),
            "SGD: nesterov needs a momentum above 0, got 0");
}

TEST(Optimizer, ChecksEverythingBeforeItChangesAnything) {
  Linear layer(2, 2);
  AdamW optimizer(layer.named_parameters());
  sum(layer(ones({1, 2}))).backward();
  const Tensor weight = layer.weight;
  std::ostringstream on;
  on << " on " << context().default_device;
  layer.bias.slot()->grad = ones({2}, f64);  // which no walk and no set_grad would leave there
  const auto before = weight.tolist();
  EXPECT_EQ(error_of([&] { optimizer.step(); }), "AdamW: bias: expected a gradient of float32" +
                                                     on.str() + ", as the tensor, got float64" +
                                                     on.str());
  EXPECT_EQ(weight.tolist(), before);
  layer.bias.set_grad({});
  layer.to(f64);
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "AdamW: weight has other memory than when the optimizer was made; convert a model "
            "before that");
}

TEST(Optimizer, StepsAllocateNothing) {
  Problem problem;
  AdamW optimizer(problem.parameters);
  problem.set_grads(1);
  optimizer.step();
  const MemoryStats before = memory_stats();
  reset_peak_memory();
  for (int i = 0; i < 10; ++i) {
    optimizer.set_lr(0.1 * i);
    optimizer.step();
  }
  EXPECT_EQ(memory_stats().raw_allocations, before.raw_allocations);
  EXPECT_EQ(memory_stats().peak_bytes_in_use, before.bytes_in_use);
}

// ---- Muon and Lion

// The parameters of golden/muon_fixtures.py and their gradients.
struct Matrices {
  explicit Matrices(DType dtype = f64) {
    double k = 1;
    const std::vector<std::pair<const char*, Shape>> shapes = {
        {"tall", {6, 4}},   {"wide", {4, 6}},       {"attn.c_attn.weight", {9, 3}},
        {"square", {5, 5}}, {"wte.weight", {7, 3}}, {"bias", {5}}};
    for (const auto& [name, shape] : shapes) {
      std::vector<double> start;
      for (int64_t i = 0; i < shape.numel(); ++i) start.push_back(std::cos(k++));
      parameters.emplace_back(name, from_vector(start, shape).to(dtype).requires_grad_());
    }
  }
  static Tensor made_up(const Shape& shape, double start = 0, double shift = 0) {
    std::vector<double> values;
    for (int64_t i = 0; i < shape.numel(); ++i, ++start)
      values.push_back(std::sin(0.37 * start * start + shift));
    return from_vector(values, shape);
  }
  void set_grads(int64_t step) {
    int64_t k = 0;
    for (auto& [name, p] : parameters) {
      p.set_grad(made_up(p.shape(), static_cast<double>(k), 1.3 * static_cast<double>(step))
                     .to(p.dtype()));
      k += p.numel();
    }
  }
  void run(Optimizer& optimizer, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      set_grads(step);
      optimizer.step(ones({}));
    }
  }
  std::vector<double> values() const { return Problem::joined(parameters); }

  NamedTensors parameters;
};

MuonOptions muon_options(const std::string& name, DType dtype) {
  MuonOptions options{.ns_dtype = dtype};
  if (name == "muon_plain")
    options = {.lr = 0.02,
               .weight_decay = 0.3,
               .momentum = 0.8,
               .nesterov = false,
               .ns_coefficients = {2, -1.5, 0.5},
               .ns_steps = 3,
               .adjust_lr = AdjustLr::match_rms_adamw,
               .ns_dtype = dtype,
               .grad_clip = 0.5};
  if (name == "muon_spectral")
    options = {.lr = 0.01, .eps = 10, .adjust_lr = AdjustLr::spectral_unclamped, .ns_dtype = dtype};
  return options;
}

// Calls f(words of the line) for each line of the golden file that begins so.
void for_golden_lines(const std::string& prefix, const std::function<void(std::istream&)>& f) {
  std::ifstream file(golden("muon.txt"));
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(prefix, 0) != 0) continue;
    std::istringstream words(line);
    f(words);
    ++lines;
  }
  EXPECT_GT(lines, 0) << prefix;
}

void expect_muon_numbers(DType dtype, DType ns_dtype, double tolerance) {
  for_golden_lines("muon", [&](std::istream& words) {
    std::string name;
    int64_t last = 0;
    words >> name >> last;
    Matrices matrices(dtype);
    Muon optimizer(matrices.parameters, muon_options(name, ns_dtype));
    matrices.run(optimizer, 1, last);
    for (const double value : matrices.values()) {
      double expected = 0;
      words >> expected;
      ASSERT_NEAR(value, expected, tolerance) << name << " step " << last;
    }
  });
}
TEST(Muon, HasTorchNumbers) { expect_muon_numbers(f64, f64, 1e-13); }
TEST(Muon, HasTorchNumbersInFloat) { expect_muon_numbers(f32, f32, 2e-6); }
TEST(Muon, HasTorchNumbersWithinTheRoundingOfItsProducts) { expect_muon_numbers(f32, bf16, 2e-3); }

TEST(Muon, IsAsNearAsTorchWithProductsInBfloat16) {
  for_golden_lines("bf16", [&](std::istream& words) {
    std::string name;
    Shape shape{0, 0};
    double of_torch = 0;
    words >> name >> shape[0] >> shape[1] >> of_torch;
    const MuonOptions o;
    const Tensor x = Matrices::made_up(shape).unsqueeze(0);
    const auto made = [&](DType dtype) {
      return orthogonal(x, o.ns_coefficients, o.ns_steps, o.eps, dtype).to(f64);
    };
    const Tensor exact = made(f64), error = made(bf16) - exact;
    const double got = std::sqrt(sum(square(error)).item() / sum(square(exact)).item());
    EXPECT_LT(got, 1.25 * of_torch) << shape;
  });
}

// A gradient of rank 1: what rounding leaves in other directions grows 485 times in five steps, and
// torch's update is mostly that (findings/torch_muon_rank.sh).
TEST(Muon, OfOneTokenMovesOneDirection) {
  for (const int64_t n : {64, 300}) {
    const Tensor u = sin(arange(n).to(f64) + 1).unsqueeze(1),
                 v = cos(3 * arange(n).to(f64) + 0.5).unsqueeze(0);
    for (const auto& [dtype, most] : {std::pair(bf16, 1e-3), std::pair(f32, 1e-6)}) {
      const MuonOptions o;
      const Tensor x = matmul(u, v).to(f32).unsqueeze(0);
      const Tensor y = orthogonal(x, o.ns_coefficients, o.ns_steps, o.eps, dtype).to(f64)[0];
      const double along = (matmul(matmul(u.transpose(0, 1), y), v.transpose(0, 1))).item(),
                   squares = sum(square(u)).item() * sum(square(v)).item();
      EXPECT_LT(1 - along * along / squares / sum(square(y)).item(), most) << n << " " << dtype;
    }
  }
}

TEST(Lion, IsItsFormula) {
  for_golden_lines("lion", [&](std::istream& words) {
    std::string name;
    int64_t last = 0;
    words >> name >> last;
    Matrices matrices;
    Lion optimizer(matrices.parameters,
                   {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
    matrices.run(optimizer, 1, last);
    for (const double value : matrices.values()) {
      double expected = 0;
      words >> expected;
      ASSERT_NEAR(value, expected, 1e-13);
    }
  });
}

TEST(Muon, OrthogonalIsNearlySo) {
  for (const double size : {1e-5, 1.0, 1e12}) {
    const Tensor x = Matrices::made_up({2, 40, 24}).mul(size);
    const Tensor y = orthogonal(x, MuonOptions().ns_coefficients, 5, 1e-7);
    const Tensor squares = matmul(y.transpose(1, 2), y);
    const Tensor lengths = diagonal(squares, 0, 1, 2);
    EXPECT_GT(min(lengths).item(), 0.4) << size;
    EXPECT_LT(max(lengths).item(), 1.6) << size;
  }
  const Tensor none = orthogonal(zeros({1, 3, 3}, bf16), MuonOptions().ns_coefficients, 5, 1e-7);
  EXPECT_EQ(none.tolist(), std::vector<double>(9, 0.0));
}

// Their squares overflow; beside them lies a matrix whose squares do not.
TEST(Muon, OrthogonalOfHugeMatricesIsThatOfAnySize) {
  const auto coefficients = MuonOptions().ns_coefficients;
  for (const auto& [dtype, products, sizes] :
       {std::tuple(f32, bf16, std::vector<double>{0x1p60, 0x1p63, 0x1p100, 0x1p127}),
        std::tuple(f32, f32, std::vector<double>{0x1p64, 0x1p127}),
        std::tuple(f64, f64, std::vector<double>{0x1p512, 0x1p1023})}) {
    const Tensor x = Matrices::made_up({2, 7, 5}).to(dtype);
    Tensor expected = orthogonal(x, coefficients, 5, 1e-7, products);
    if (!x.device().is_cpu()) expected.select(0, 0).zero_();  // as in PyTorch
    for (const double size : sizes) {
      const Tensor factors = tensor({{{size}}, {{1.0}}}, {dtype});
      EXPECT_TRUE(same_bits(orthogonal(x * factors, coefficients, 5, 1e-7, products), expected))
          << products << " " << size;
    }
  }
}

TEST(Muon, LargeGradientsLeaveWeightsFinite) {
  const auto updated = [](double size) {
    Tensor p = ones({3, 4}).requires_grad_();
    Muon optimizer(std::vector<Tensor>{p}, {.lr = 0.1});
    p.set_grad(Matrices::made_up({3, 4}).to(f32) * size);
    optimizer.step();
    return p.tolist();
  };
  EXPECT_EQ(updated(0x1p70), updated(ones({}).device().is_cpu() ? 1 : 0));
  EXPECT_EQ(updated(0), std::vector<double>(12, double{0.99f}));
}

// Products are cut into blocks of rows there.
TEST(Muon, OrthogonalOfLargeMatricesIsItsFormula) {
  using Coefficients = std::array<double, 3>;
  for (const auto& [shape, coefficients] :
       {std::pair(Shape{2, 130, 200}, MuonOptions().ns_coefficients),
        {Shape{2, 200, 130}, MuonOptions().ns_coefficients},
        {Shape{1, 97, 96}, Coefficients{1.5, -0.5, 0}},
        {Shape{1, 97, 96}, Coefficients{1.5, -0.5, -0.1}}}) {
    const auto [a, b, c] = coefficients;
    const Tensor x = Matrices::made_up(shape);
    Tensor y = x / sqrt(sum(square(x), {1, 2}, true));
    for (int step = 0; step < 3; ++step) {
      const Tensor A = matmul(y, y.transpose(1, 2));
      y = a * y + matmul(b * A + c * matmul(A, A), y);
    }
    EXPECT_LT(max(abs(orthogonal(x, coefficients, 3, 1e-7, f64) - y)).item(), 1e-12) << shape;
  }
}

TEST(Muon, ContinuesFromSavedStateAndSkipsWhatIsNotFinite) {
  Matrices straight(f32), resumed(f32);
  Muon first(straight.parameters);
  straight.run(first, 1, 3);
  const auto before = straight.values(), state = Problem::joined(first.state());
  straight.set_grads(4);
  first.step(full({}, NAN));
  EXPECT_EQ(straight.values(), before);
  auto now = Problem::joined(first.state());
  EXPECT_EQ(now.size(), state.size());
  std::fill_n(now.end() - 2, 2, 0.0);  // all but the skipped counts
  EXPECT_EQ(now, state);
  Muon second(resumed.parameters);
  {
    const NoGrad no_grad;
    for (size_t i = 0; i < resumed.parameters.size(); ++i)
      resumed.parameters[i].second.copy_(straight.parameters[i].second);
  }
  second.load_state(first.state());
  straight.run(first, 4, 6);
  resumed.run(second, 4, 6);
  EXPECT_EQ(straight.values(), resumed.values());
  EXPECT_EQ(Problem::joined(of_kind(second, "step")), std::vector<double>(6, 6));
}

TEST(Muon, LeavesAloneWhatHasNoGradient) {
  std::vector<double> alone;
  for (const int64_t threads : {1, 8}) {  // 8 share a batch
    const FieldGuard guard(&Context::threads, threads);
    std::vector<Tensor> p;
    for (int i = 0; i < 3; ++i) p.push_back(Matrices::made_up({4, 3}, i).requires_grad_());
    Muon optimizer(p, {.ns_dtype = f64});
    for (const size_t i : {0, 2}) p[i].set_grad(Matrices::made_up({4, 3}, 7));
    optimizer.step();
    EXPECT_EQ(p[1].tolist(), Matrices::made_up({4, 3}, 1).tolist());
    const auto others = cat({p[0].detach(), p[2].detach()}).tolist();
    if (threads == 1) alone = others;
    EXPECT_EQ(others, alone);
  }
}

// A matrix has one moment and everything else two.
TEST(Muon, KeepsOneMomentForAMatrix) {
  Matrices matrices;
  Muon optimizer(matrices.parameters);
  std::vector<std::string> names;
  for (const auto& entry : optimizer.state()) names.push_back(entry.first);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "exp_avg.wte.weight", "exp_avg.bias", "exp_avg_sq.wte.weight",
                       "exp_avg_sq.bias", "momentum_buffer.tall", "momentum_buffer.wide",
                       "momentum_buffer.attn.c_attn.weight", "momentum_buffer.square", "step.tall",
                       "step.wide", "step.attn.c_attn.weight", "step.square", "step.wte.weight",
                       "step.bias", "skipped"}));
}

// Bf16 copies that linear layers read are written with the matrices.
TEST(Muon, RoundsWhatItWrites) {
  Matrices matrices(f32);
  Muon optimizer(matrices.parameters);
  for (const auto& entry : matrices.parameters) cached_cast(entry.second, bf16);
  matrices.run(optimizer, 1, 2);
  for (const auto& [name, p] : matrices.parameters) {
    ASSERT_TRUE(current_cast(p).defined()) << name;
    EXPECT_TRUE(same_bits(Tensor(current_cast(p)), p.detach().to(bf16))) << name;
  }
}

TEST(Muon, KnowsMatricesByTheirNames) {
  const auto parts = [](const std::string& name, const Shape& shape) {
    return matrix_parts(name, shape);
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(parts("h.0.attn.c_attn.weight", {12, 4}), (Rows{4, 4, 4}));
  EXPECT_EQ(parts("h.0.attn.c_attn.weight", {8, 4}), (Rows{4, 2, 2}));  // grouped queries
  EXPECT_EQ(parts("h.0.attn.c_attn.weight", {4, 4}), (Rows{4}));
  EXPECT_EQ(parts("self_attn.in_proj_weight", {12, 4}), (Rows{4, 4, 4}));
  EXPECT_EQ(parts("layers.1.mlp.gate_up_proj.weight", {16, 4}), (Rows{8, 8}));
  EXPECT_EQ(parts("layers.1.self_attn.q_proj.weight", {4, 4}), (Rows{4}));
  for (const char* name : {"wte.weight", "transformer.wpe.weight", "model.embed_tokens.weight",
                           "lm_head.weight", "head.weight", "pos_embedding"})
    EXPECT_EQ(parts(name, {12, 4}), Rows{}) << name;
  EXPECT_EQ(parts("h.0.ln_1.weight", {4}), Rows{});
  EXPECT_EQ(parts("conv.weight", {4, 4, 3, 3}), Rows{});
}

struct Stranger : Module {  // whose names say nothing
  Embedding a;
  Linear b, c, e;
  ModuleList<Linear> d;
  Stranger() : a(7, 4), b(4, 4), c(4, 7), e(7, 4) { d.push_back(Linear(4, 7)); }
  INK_FIELDS(a, b, e, d, c)
};
struct Numbered : Module {
  Sequential net{Linear(4, 5), Linear(5, 7)};
  INK_FIELDS(net)
};

TEST(Muon, KnowsTablesOfAModel) {
  using Names = std::set<std::string>;
  GPTConfig config;
  config.vocab_size = 16;
  config.block_size = 8;
  config.n_layer = 1;
  config.n_head = 2;
  config.n_embd = 16;  // as the vocabulary: only what stands outside of blocks is meant
  EXPECT_EQ(table_names(GPT(config), 16), (Names{"wte.weight", "wpe.weight"}));
  config.vocab_size = 11;
  EXPECT_EQ(table_names(GPT(config), 11), (Names{"wte.weight", "wpe.weight"}));
  EXPECT_EQ(table_names(Stranger(), 7), (Names{"a.weight", "c.weight", "e.weight"}));
  EXPECT_EQ(table_names(Numbered(), 7), Names{"net.1.weight"});
  EXPECT_EQ(table_names(Numbered(), 4), Names{}) << "it is not the last";
}

TEST(Muon, NamesWhatIsWrong) {
  Matrices matrices;
  const auto error = [&](MuonOptions options) {
    return error_of([&] { Muon optimizer(matrices.parameters, options); });
  };
  EXPECT_EQ(error({.momentum = 1}), "Muon: expected a momentum in [0, 1), got 1");
  EXPECT_EQ(error({.ns_steps = 0}), "Muon: expected ns_steps to be 1 to 99, got 0");
  EXPECT_EQ(error({.eps = 0}), "Muon: expected eps to be above 0, got 0");
  EXPECT_EQ(error({.lr = -1}), "Muon: expected lr to be finite and at least 0, got -1");
  EXPECT_EQ(
      error({.parts = [](const std::string&, const Shape&) { return std::vector<int64_t>{2}; }}),
      "Muon: tall, (6, 4), is no pile of matrices with 2 rows in all");
}

// ---- groups

// Groups with rates and betas of their own are as two optimizers.
TEST(Groups, HaveRatesAndBetasOfTheirOwn) {
  for (const std::string name : {"adamw", "adam", "lion", "muon"}) {
    Matrices together, apart;
    NamedTensors first(together.parameters.begin(), together.parameters.begin() + 2),
        second(together.parameters.begin() + 2, together.parameters.end());
    const std::vector<ParameterGroup> groups = {
        {.parameters = first, .weight_decay = 0.1},
        {.parameters = second, .weight_decay = 0.2, .lr = 0.03, .beta1 = 0.5, .beta2 = 0.7}};
    const auto make = [&](const std::vector<ParameterGroup>& of, double lr, double beta1,
                          double beta2) -> std::unique_ptr<Optimizer> {
      if (name == "adamw")
        return std::make_unique<AdamW>(of, AdamWOptions{.lr = lr, .beta1 = beta1, .beta2 = beta2});
      if (name == "adam")
        return std::make_unique<Adam>(of, AdamOptions{.lr = lr, .beta1 = beta1, .beta2 = beta2});
      if (name == "lion")
        return std::make_unique<Lion>(of, LionOptions{.lr = lr, .beta1 = beta1, .beta2 = beta2});
      return std::make_unique<Muon>(
          of, MuonOptions{.lr = lr, .ns_dtype = f64, .beta1 = beta1, .beta2 = beta2});
    };
    const auto one = make(groups, 0.01, 0.9, 0.99);
    const NamedTensors &p = apart.parameters, a(p.begin(), p.begin() + 2),
                       b(p.begin() + 2, p.end());
    const auto two = make({{.parameters = a, .weight_decay = 0.1}}, 0.01, 0.9, 0.99),
               three = make({{.parameters = b, .weight_decay = 0.2}}, 0.03, 0.5, 0.7);
    for (int64_t step = 1; step <= 4; ++step) {
      const double factor = step > 2 ? 0.5 : 1;  // as a schedule does
      one->set_lr(0.01 * factor), two->set_lr(0.01 * factor), three->set_lr(0.03 * factor);
      together.set_grads(step), apart.set_grads(step);
      one->step(), two->step(), three->step();
    }
    const auto got = together.values(), expected = apart.values();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-14) << name;
  }
}

// Braces within braces are groups, of whatever they hold.
TEST(Groups, AreGivenInBraces) {
  const Tensor w = ones({2, 2}).requires_grad_(), b = ones({2}).requires_grad_();
  const NamedTensors named{{"w", w}}, others{{"b", b}};
  for (const Tensor& x : {w, b}) Tensor(x).set_grad(ones_like(x));
  AdamW adamw({{named}}, {.lr = 0.1});
  Adam adam({{named}});
  Lion lion({{named}, {others, 0.0}});
  Muon muon({{named}}, {.lr = 0.1});
  SGD sgd({{.parameters = named}, {.parameters = others, .lr_scale = 2}}, {.lr = 0.5});
  EXPECT_EQ(lion.state().size(), 5u);  // a moment and a count of each, and what was skipped
  sgd.step();
  EXPECT_EQ(w.tolist(), (std::vector<double>(4, 0.5)));
  EXPECT_EQ(b.tolist(), (std::vector<double>(2, 0)));
  EXPECT_EQ(AdamW({{"w", w}, {"b", b}}).state().size(), 7u) << "names and parameters";
}

TEST(Groups, AreAddedAfterwards) {
  for (const std::string name : {"adamw", "sgd_momentum", "muon"}) {
    Matrices early, late;
    const auto make = [&](const NamedTensors& p) -> std::unique_ptr<Optimizer> {
      if (name == "muon") return std::make_unique<Muon>(p, MuonOptions{.ns_dtype = f64});
      return maker(name)(p);
    };
    const auto at_once = make(early.parameters);
    const NamedTensors &p = late.parameters, a(p.begin(), p.begin() + 2), b(p.begin() + 2, p.end());
    const auto grown = make(a);
    for (int64_t step = 1; step <= 2; ++step) {  // the others have no gradient meanwhile
      early.set_grads(step), late.set_grads(step);
      for (size_t i = 2; i < early.parameters.size(); ++i) early.parameters[i].second.set_grad({});
      at_once->step(), grown->step();
    }
    grown->add_group({b});
    EXPECT_NE(error_of([&] { grown->add_group({b}); }).find("attn.c_attn.weight is listed twice"),
              std::string::npos);
    early.run(*at_once, 3, 5);
    late.run(*grown, 3, 5);
    EXPECT_EQ(early.values(), late.values()) << name;
    EXPECT_EQ(Problem::joined(grown->state()), Problem::joined(at_once->state())) << name;
  }
}

TEST(Groups, NameTheirTablesAlsoAfterwards) {
  Matrices matrices;
  Muon optimizer(NamedTensors{matrices.parameters[0]});
  optimizer.add_group({.parameters = {matrices.parameters[1]}, .tables = {"wide"}});
  EXPECT_EQ(of_kind(optimizer, "momentum_buffer").size(), 1u);
  EXPECT_EQ(of_kind(optimizer, "exp_avg").size(), 1u);
}

TEST(Groups, LeaveFrozenParametersWithoutMoments) {
  Matrices matrices;
  matrices.parameters[0].second.requires_grad_(false);
  const auto before = matrices.parameters[0].second.tolist();
  AdamW optimizer(matrices.parameters);
  for (auto& [name, p] : matrices.parameters)
    if (p.requires_grad()) p.set_grad(ones_like(p));
  optimizer.step();
  EXPECT_EQ(matrices.parameters[0].second.tolist(), before);
  for (const auto& entry : optimizer.state()) EXPECT_FALSE(entry.first.ends_with(".tall"));
  matrices.parameters[0].second.requires_grad_();
  optimizer.add_group({{matrices.parameters[0]}});
  EXPECT_EQ(of_kind(optimizer, "exp_avg").size(), 6u);
}

TEST(Groups, NameWhatIsWrong) {
  Tensor w = zeros({2}).requires_grad_();
  const auto error = [&](const ParameterGroup& group, double lr = 1) {
    return error_of([&] { AdamW optimizer(std::vector<ParameterGroup>{group}, {.lr = lr}); });
  };
  EXPECT_EQ(error({.parameters = {{"w", w}}, .lr = -1}),
            "AdamW: expected a group's lr to be finite and at least 0, got -1");
  EXPECT_EQ(error({.parameters = {{"w", w}}, .lr = 1}, 0),
            "AdamW: a group's lr is 1, which set_lr scales with the optimizer's; expected that to "
            "be above 0, got 0");
  EXPECT_EQ(error({.parameters = {{"w", w}}, .beta1 = 1}),
            "AdamW: expected betas in [0, 1), got 1");
}

// ---- schedules

TEST(Schedule, WarmsUpAndFollowsACosine) {
  const Schedule lr = warmup_cosine(1e-3, 1e-4, 100, 2000);
  EXPECT_DOUBLE_EQ(lr(0), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(lr(99), 1e-3 * 100 / 101);
  EXPECT_DOUBLE_EQ(lr(100), 1e-3);
  EXPECT_DOUBLE_EQ(lr(1050), 5.5e-4);
  EXPECT_DOUBLE_EQ(lr(575), 1e-4 + 0.5 * (1 + std::sqrt(0.5)) * 9e-4);
  EXPECT_DOUBLE_EQ(lr(2000), 1e-4);
  EXPECT_DOUBLE_EQ(lr(1000000), 1e-4);
  EXPECT_DOUBLE_EQ(warmup_cosine(1, 0.1, 10, 10)(9), 10.0 / 11);
  EXPECT_DOUBLE_EQ(warmup_cosine(1, 0.1, 10, 10)(10), 0.1);
  EXPECT_DOUBLE_EQ(constant_lr(0.3)(12345), 0.3);
}

TEST(Schedule, FallsAlongALineOrAtTheEndOrNever) {
  const Schedule linear = warmup_linear(1e-3, 1e-4, 100, 2000);
  EXPECT_DOUBLE_EQ(linear(99), 1e-3 * 100 / 101);
  EXPECT_DOUBLE_EQ(linear(100), 1e-3);
  EXPECT_DOUBLE_EQ(linear(1050), 5.5e-4);
  EXPECT_DOUBLE_EQ(linear(2000), 1e-4);
  const Schedule wsd = warmup_stable_decay(1e-3, 1e-4, 100, 2000, 0.2);
  EXPECT_DOUBLE_EQ(wsd(0), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(wsd(100), 1e-3);
  EXPECT_DOUBLE_EQ(wsd(1600), 1e-3);
  EXPECT_DOUBLE_EQ(wsd(1800), 5.5e-4);
  EXPECT_DOUBLE_EQ(wsd(2000), 1e-4);
  EXPECT_DOUBLE_EQ(wsd(1000000), 1e-4);
  EXPECT_DOUBLE_EQ(warmup_stable_decay(1, 0, 10, 20, 0)(19), 1);
  EXPECT_DOUBLE_EQ(warmup_stable_decay(1, 0, 10, 20, 1)(15), 0.5);  // not before the warm-up ends
  EXPECT_DOUBLE_EQ(warmup_stable_decay(1, 0, 0, 100, 0.29)(72), 28.0 / 29);  // of 29 steps
  EXPECT_DOUBLE_EQ(warmup_constant(0.5, 10)(0), 0.5 / 11);
  EXPECT_DOUBLE_EQ(warmup_constant(0.5, 10)(1000), 0.5);
  TrainConfig config;
  config.max_iters = 100;
  config.warmup_iters = 10;
  config.min_lr = 0;
  config.learning_rate = 1;
  const auto at = [&](const char* name, int64_t step) {
    config.schedule_name = name;
    return config.schedule()(step);
  };
  EXPECT_DOUBLE_EQ(at("cosine", 55), 0.5);
  EXPECT_DOUBLE_EQ(at("linear", 55), 0.5);
  EXPECT_DOUBLE_EQ(at("wsd", 90), 0.5);
  EXPECT_DOUBLE_EQ(at("constant", 90), 1);
}

}  // namespace
}  // namespace ink
