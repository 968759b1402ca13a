// Modules: the walks over their fields, and the layers against PyTorch's numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/gradcheck_module.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Names = std::vector<std::string>;
using Values = std::vector<double>;

Names names_of(const NamedTensors& list) {
  Names names;
  for (const auto& entry : list) names.push_back(entry.first);
  return names;
}

void expect_near(const Tensor& x, const Values& expected, double tolerance) {
  const Values values = x.tolist();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << i;
}

// A learner's own model: a shared layer, a list, a sequence, a tie, a buffer, a missing bias.
struct Net : Module {
  Linear in{3, 4};
  ModuleList<Linear> hidden;
  Sequential tail{LayerNorm(4), ReLU(), Linear(4, 3, false)};
  Parameter scale = full({1}, 2);
  Buffer calls = zeros({}, i64);
  Linear tied{3, 4, false};

  Net() : hidden(2, 4, 4) { tied.weight = in.weight; }

  Tensor operator()(Tensor x) const {
    x = in(x);
    for (const Linear& layer : hidden) x = tanh(layer(x));
    return tail(x) * scale;
  }
  INK_FIELDS(in, hidden, tail, scale, calls, tied)
};

const Names kParameters = {"in.weight",       "in.bias",       "hidden.0.weight", "hidden.0.bias",
                           "hidden.1.weight", "hidden.1.bias", "tail.0.weight",   "tail.0.bias",
                           "tail.2.weight",   "scale"};

TEST(Module, NamesItsFieldsInOrderAndTiedOnesOnce) {
  const Net net;
  EXPECT_EQ(names_of(net.named_parameters()), kParameters);
  EXPECT_EQ(names_of(net.named_buffers()), Names{"calls"});
  Names all = kParameters;
  all.push_back("calls");
  EXPECT_EQ(names_of(net.state_dict()), all);
  EXPECT_EQ(net.parameters().size(), kParameters.size());
  EXPECT_EQ(net.num_parameters(), 12 + 4 + 2 * (16 + 4) + 4 + 4 + 12 + 1);
  for (const Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.requires_grad());
  for (const auto& entry : net.state_dict()) EXPECT_FALSE(entry.second.requires_grad());
}

TEST(Module, ParametersAreLeavesAndCopiesAreTies) {
  const Tensor x = ones({2}).requires_grad_();
  const Parameter same = x, copy = same;
  EXPECT_EQ(same.slot(), x.slot());
  EXPECT_EQ(copy.slot(), x.slot());
  EXPECT_FALSE(Parameter(Tensor()).defined());
  EXPECT_FALSE(Buffer(x).requires_grad());
  Tensor whole = zeros({2, 3});
  Parameter row = whole.select(0, 1);
  init::ones_(row);
  EXPECT_EQ(sum(row).item(), 3);
  EXPECT_EQ(sum(whole).item(), 0) << "a parameter never lives inside another tensor";
  EXPECT_EQ(error_of([] { Parameter ids = zeros({2}, i64); }),
            "requires_grad_: expected a floating dtype, got int64");
}

// x times a table that its constructor computes.
struct Tabled : Module {
  Parameter weight = ones({2});
  UnsavedBuffer table = arange(2, f32);
  Buffer seen = zeros({2});
  std::vector<UnsavedBuffer> more{ones({2}), ones({2})};
  Tensor operator()(const Tensor& x) const { return x * weight * table + more[1]; }
  INK_FIELDS(weight, table, seen, more)
};

TEST(Module, BuffersThatAreNotSavedAreInNoStateDictAndMoveWithTheModule) {
  Tabled layer;
  EXPECT_EQ(names_of(layer.named_buffers()), (Names{"table", "seen", "more.0", "more.1"}));
  EXPECT_EQ(names_of(layer.state_dict()), (Names{"weight", "seen"}));
  layer.table = arange(2, f32) * 3;  // still not saved
  layer.load_state_dict({{"weight", full({2}, 5)}, {"seen", ones({2})}});
  EXPECT_TRUE(equal(layer(ones({2})), tensor({1.0, 16.0})));
  EXPECT_EQ(
      error_of([&] {
        layer.load_state_dict({{"weight", ones({2})}, {"seen", ones({2})}, {"table", ones({2})}});
      }),
      "load_state_dict: the names or shapes do not fit:\n  unexpected: table (2,)");
  EXPECT_TRUE(gradcheck_module(layer, randn({3, 2})));
  layer.to(f64);
  for (const auto& entry : layer.named_buffers()) EXPECT_EQ(entry.second.dtype(), f64);
  layer.to(test_device());
  for (const auto& entry : layer.named_buffers()) EXPECT_EQ(entry.second.device(), test_device());
}

TEST(Module, GradientsReachEveryParameter) {
  Net net;
  sum(net(randn({5, 3}))).backward();
  for (const auto& [name, parameter] : net.named_parameters()) {
    EXPECT_TRUE(parameter.grad().defined()) << name;
  }
  net.zero_grad();
  for (const Tensor& parameter : net.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Net net;
  const auto all_training = [&](bool mode) {
    int modules = 0;
    net.apply([&](Module& module) {
      ++modules;
      EXPECT_EQ(module.training, mode);
    });
    return modules;
  };
  EXPECT_EQ(all_training(true), 10);
  net.eval();
  all_training(false);
  net.train();
  all_training(true);
}

TEST(Module, LoadsWhatAnotherSaved) {
  const TempFolder folder;
  const Net from;
  Net to;
  const Tensor handle = to.parameters()[0];
  save(folder / "net", from.state_dict());
  to.load_state_dict(load(folder / "net"));
  const Tensor x = randn({2, 3});
  EXPECT_EQ(to(x).tolist(), from(x).tolist());
  EXPECT_EQ(handle.tolist(), from.in.weight.tolist()) << "handles stay valid";
  EXPECT_EQ(to.tied.weight.slot(), to.in.weight.slot());

  NamedTensors doubles;
  for (const auto& [name, value] : from.state_dict())
    doubles.emplace_back(name, value.is_floating() ? value.to(f64) : value);
  to.load_state_dict(doubles);
  EXPECT_EQ(to.in.weight.dtype(), f32);
  EXPECT_EQ(to(x).tolist(), from(x).tolist());
}

TEST(Module, TakesMemoryThatNobodyElseCanSee) {
  Linear layer(2, 3, false);
  const auto place = [&](Tensor value) {  // of the weight when it has this value
    NamedTensors state;
    state.emplace_back("weight", std::move(value));
    layer.load_state_dict(std::move(state));
    return layer.weight.data<float>();
  };
  const float* own = layer.weight.data<float>();
  Tensor value = ones({3, 2});
  float* const given = value.mutable_data<float>();
  const NoGrad no_grad;  // views keep no other tensor
  EXPECT_EQ(place(value), own);
  EXPECT_EQ(place(value.detach()), own);
  EXPECT_EQ(place(from_blob(given, {3, 2}, value.options(), [](void*) {})), own);
  for (const auto& view_of : {+[] {
                                return ones({2, 3}).transpose(0, 1);
                              },
                              +[] {
                                return ones({4, 2}).narrow(0, 1, 3);
                              }})
    EXPECT_EQ(place(view_of()), own);  // it alone holds the memory
  EXPECT_EQ(place(std::move(value)), given);
}

TEST(Module, ListsEverythingThatDoesNotFitAndCopiesNothing) {
  Net net;
  const Values before = net.in.bias.tolist();
  NamedTensors state = Net().state_dict();
  state[0].second = zeros({4, 2});   // in.weight
  state[2].first = "hidden.weight";  // hidden.0.weight
  state.pop_back();                  // calls
  EXPECT_EQ(error_of([&] { net.load_state_dict(state); }),
            "load_state_dict: the names or shapes do not fit:\n"
            "  shape: in.weight: expected (4, 3), got (4, 2)\n"
            "  unexpected: hidden.weight (4, 4)\n"
            "  missing: hidden.0.weight (4, 4)\n"
            "  missing: calls ()");
  EXPECT_EQ(net.in.bias.tolist(), before);
}

TEST(Module, ListsValuesThatAreNotThereOrComeTwice) {
  Net net;
  NamedTensors state = Net().state_dict();
  state[0].second = {};  // in.weight
  state.emplace_back("more", Tensor());
  state.emplace_back("in.bias", ones({4}));
  EXPECT_EQ(error_of([&] { net.load_state_dict(state); }),
            "load_state_dict: the names or shapes do not fit:\n"
            "  undefined: in.weight: expected (4, 3)\n"
            "  unexpected: more undefined\n"
            "  twice: in.bias, with other values");
}

TEST(Module, ListsRefuseWhatIsNotThere) {
  ModuleList<Linear> list(2, 3, 4);
  EXPECT_EQ(error_of([&] { list[5]; }), "ModuleList: index 5 is out of range for 2 entries");
  EXPECT_EQ(error_of([&] { std::as_const(list)[2]; }),
            "ModuleList: index 2 is out of range for 2 entries");
  const Sequential steps{Linear(2, 3)};
  EXPECT_EQ(error_of([&] { steps[static_cast<size_t>(-1)]; }),
            "Sequential: index -1 is out of range for 1 entry");
}

TEST(EmbeddingLayer, RefusesAPaddingThatIsNoRow) {
  EXPECT_EQ(error_of([] { Embedding(3, 2, 5); }),
            "Embedding: expected padding_idx to be one of 3 rows, got 5");
  EXPECT_EQ(error_of([] { Embedding(3, 2, -4); }),
            "Embedding: expected padding_idx to be one of 3 rows, got -4");
  EXPECT_EQ(sum(Embedding(3, 2, -3).weight.select(0, 0)).item(), 0);
}

TEST(Module, ListsTenOfManyNamesThatDoNotFit) {
  Net net;
  NamedTensors state = Net().state_dict();
  for (int i = 0; i < 20; ++i) state.emplace_back("x\n\x1b" + std::to_string(i), zeros({}));
  const std::string error = error_of([&] { net.load_state_dict(state); });
  EXPECT_NE(error.find("\n  unexpected: x\\x0a\\x1b9 ()\n  and 10 more"), error.npos) << error;
}

TEST(Module, TiedParametersLoadUnderAnyOfTheirNames) {
  Net net;
  NamedTensors state = Net().state_dict();
  const Tensor weight = state[0].second;
  state[0].first = "tied.weight";
  net.load_state_dict(state);
  EXPECT_EQ(net.in.weight.tolist(), weight.tolist());

  state.emplace_back("in.weight", weight.clone());
  net.load_state_dict(state);
  state.back().second = ones({4, 3});
  EXPECT_EQ(error_of([&] { net.load_state_dict(state); }),
            "load_state_dict: the names or shapes do not fit:\n"
            "  tied: in.weight is tied.weight in this model, and their values differ");
}

TEST(Module, ConvertsItsDType) {
  Net net;
  net.in.bias.requires_grad_(false);
  net.to(f64);
  for (const auto& [name, value] : net.state_dict())
    EXPECT_EQ(value.dtype(), name == "calls" ? i64 : f64) << name;
  EXPECT_EQ(net.tied.weight.slot(), net.in.weight.slot());
  EXPECT_TRUE(net.in.weight.requires_grad());
  EXPECT_FALSE(net.in.bias.requires_grad()) << "frozen stays frozen";
  EXPECT_EQ(net(randn({2, 3}, f64)).dtype(), f64);
  EXPECT_EQ(error_of([&] { net.to(i64); }),
            "to: expected a floating dtype for a module, got int64");
  net.to(cpu_device);
}

// What to(device) does: the memory changes under every handle.
TEST(Module, StoragesSwapUnderTheirHandles) {
  Linear a(2, 2), b(2, 2);
  const Tensor handle = a.weight, row = a.weight.detach().select(0, 1);
  const Values other = b.weight.tolist();
  const uint64_t version = handle.version();
  a.weight.storage()->swap(*b.weight.storage());
  EXPECT_EQ(handle.tolist(), other);
  EXPECT_EQ(row.tolist(), Values(other.begin() + 2, other.end()));
  EXPECT_GT(handle.version(), version);
}

TEST(Module, MovesAndKeepsItsHandles) {
  Net a;
  const Tensor weight = a.in.weight;
  const Tensor x = randn({2, 3});
  const Values y = a(x).tolist();
  a.eval();
  const Net b = std::move(a);
  EXPECT_FALSE(b.training);
  EXPECT_EQ(b.in.weight.slot(), weight.slot());
  EXPECT_EQ(b(x).tolist(), y);
  static_assert(!std::is_copy_constructible_v<Net> && !std::is_copy_assignable_v<Net>);
}

TEST(Module, PrintsItsTree) {
  EXPECT_EQ(Net().to_string(),
            "Net(  # 77\n"
            "  (in): Linear(in_features=3, out_features=4, bias=True)  # 16\n"
            "  (hidden): ModuleList(  # 40\n"
            "    (0-1): 2 x Linear(in_features=4, out_features=4, bias=True)  # 20\n"
            "  )\n"
            "  (tail): Sequential(  # 20\n"
            "    (0): LayerNorm((4,), eps=1e-05)  # 8\n"
            "    (1): ReLU()\n"
            "    (2): Linear(in_features=4, out_features=3, bias=False)  # 12\n"
            "  )\n"
            "  (tied): Linear(in_features=3, out_features=4, bias=False)  # 12\n"
            ")");
  const Sequential layers{
      Embedding(1000, 1234),           Dropout(0.2), GELU(),     GELU(Gelu::tanh), Tanh(),
      LayerNorm(3, 1e-6, true, false), SiLU(),       RMSNorm(4), BatchNorm1d(5)};
  EXPECT_EQ(layers.to_string(),
            "Sequential(  # 1,234,017\n"
            "  (0): Embedding(1000, 1234)  # 1,234,000\n"
            "  (1): Dropout(p=0.2)\n"
            "  (2): GELU(approximate='none')\n"
            "  (3): GELU(approximate='tanh')\n"
            "  (4): Tanh()\n"
            "  (5): LayerNorm((3,), eps=1e-06, bias=False)  # 3\n"
            "  (6): SiLU()\n"
            "  (7): RMSNorm((4,), eps=1e-06)  # 4\n"
            "  (8): BatchNorm1d(5, eps=1e-05, momentum=0.1)  # 10\n"
            ")");
}

TEST(Module, TakesManyFields) {
  struct Many : Module {
    Parameter a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z;
    Many() {
      for (const Field& field : fields()) *field.parameter = zeros({1});
    }
    INK_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z)
  };
  const Names names = names_of(Many().named_parameters());
  EXPECT_EQ(names.size(), 26u);
  EXPECT_EQ(names.front() + names[1] + names.back(), "abz");
}

TEST(Linear, StartsWithPyTorchsNumbers) {
  manual_seed(5);
  const Linear linear(3, 2);
  EXPECT_EQ(linear.weight.tolist(), (Values{0x1.867e84p-2, -0x1.ba1768p-2, 0x1.e1cc3p-2,
                                            0x1.7a4936p-2, 0x1.f0bc64p-2, -0x1.c548a8p-2}));
  EXPECT_EQ(linear.bias.tolist(), (Values{-0x1.8cd3f4p-2, 0x1.1951aep-2}));
  const Embedding table(4, 5);
  const Values start = table.weight.tolist();
  EXPECT_EQ(start[0], 0.2582516372203827);
  EXPECT_EQ(start[19], -1.6391186714172363);
  manual_seed(0);
  double total = 0;
  for (const double w : Linear(49, 1000).weight.tolist()) total += w;
  EXPECT_NEAR(total, 8.041756085224733, 1e-9);
}

// The bounds are computed in f64, whatever the layer is made in.
TEST(Linear, StartsInF64WithTheBitsOfItsBounds) {
  const FieldGuard in_f64(&Context::default_dtype, f64);
  manual_seed(5);
  const Linear linear(3, 200);
  manual_seed(5);
  const double bound = 1 / std::sqrt(3.0);
  const Tensor weight = empty({200, 3}), bias = empty({200});
  init::uniform_(weight, -bound, bound);
  init::uniform_(bias, -bound, bound);
  EXPECT_LE(max(abs(linear.weight.detach() - weight)).item(), 1e-15);
  EXPECT_TRUE(equal(linear.bias.detach(), bias));
}

TEST(Linear, WithoutInputsIsItsBias) {
  const Linear linear(0, 2);
  EXPECT_EQ(linear.weight.shape(), (Shape{2, 0}));
  EXPECT_EQ(linear.bias.tolist(), (Values{0, 0}));
}

TEST(BatchNorm1d, IsPyTorchs) {
  BatchNorm1d norm(3);
  norm.load_state_dict({{"weight", tensor({1.0, 2.0, -1.0})},
                        {"bias", tensor({0.0, 0.5, 1.0})},
                        {"running_mean", zeros({3})},
                        {"running_var", ones({3})},
                        {"num_batches_tracked", zeros({}, i64)}});
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 6.0, 8.0}, {0.0, -1.0, 5.0}, {2.0, 2.0, 2.0}});
  expect_near(norm(x),
              {-0.5070914030075073, 0.2989926338195801, 1.6546530723571777, 1.5212740898132324,
               3.515110969543457, -0.5275237560272217, -1.183213233947754, -2.113096237182617,
               0.7817823886871338, 0.16903042793273926, 0.2989926338195801, 2.0910885334014893},
              1e-6);
  expect_near(norm.running_mean, {0.175, 0.225, 0.45}, 1e-7);
  expect_near(norm.running_var, {1.191666603088379, 1.725000023841858, 1.600000023841858}, 1e-6);
  const Tensor steps = arange(12, f32).view({2, 3, 2});
  expect_near(norm(steps * steps / 10.0),
              {-0.999998927116394, -0.9534873366355896, -1.6137590408325195, -1.3160464763641357,
               2.0826945304870605, 1.8858410120010376, 0.6744177341461182, 1.2790683507919312,
               1.9587913751602173, 2.9710142612457275, 0.24539464712142944, -0.2139304280281067},
              2e-6);
  expect_near(norm.running_var, {1.688833236694336, 3.056833505630493, 4.2270002365112305}, 1e-6);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
  norm.eval();
  expect_near(norm(x),
              {0.4828575551509857, 2.104339361190796, 0.056406229734420776, 2.791339874267578,
               6.679995059967041, -2.3755364418029785, -0.2866365611553192, -1.3274025917053223,
               -0.9163708686828613, 1.2523516416549683, 2.104339361190796, 0.5427947640419006},
              2e-6);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
}

// As in PyTorch: it counts as a batch and has no statistics.
TEST(BatchNorm1d, TakesAnEmptyBatch) {
  for (const Shape& shape : {Shape{0, 3}, Shape{0, 3, 4}, Shape{2, 3, 0}}) {
    BatchNorm1d norm(3);
    Tensor x = zeros(shape).requires_grad_();
    const Tensor y = norm(x);
    EXPECT_EQ(y.shape(), shape);
    sum(y).backward();
    EXPECT_EQ(x.grad().shape(), shape);
    EXPECT_EQ(norm.weight.grad().tolist(), Values(3, 0.0));
    EXPECT_EQ(norm.bias.grad().tolist(), Values(3, 0.0));
    EXPECT_EQ(norm.running_mean.tolist(), Values(3, 0.0));
    EXPECT_EQ(norm.running_var.tolist(), Values(3, 1.0));
    EXPECT_EQ(norm.num_batches_tracked.item(), 1);
  }
}

TEST(BatchNorm1d, RefusesWhatHasNoVariance) {
  BatchNorm1d norm(3);
  EXPECT_EQ(error_of([&] {
              norm(zeros({2, 4}));
            }),
            "batch_norm: expected (N, 3) or (N, 3, L), got (2, 4)");
  EXPECT_EQ(error_of([&] { norm(zeros({3})); }),
            "batch_norm: expected (N, 3) or (N, 3, L), got (3,)");
  EXPECT_EQ(error_of([&] {
              norm(zeros({1, 3}));
            }),
            "batch_norm: expected more than one value per channel in training, got (1, 3)");
  norm.eval();
  EXPECT_EQ(norm(zeros({1, 3})).shape(), (Shape{1, 3}));
}

TEST(DropoutLayer, DropsInTrainingOnly) {
  Dropout drop(0.5);
  const Tensor x = ones({1000});
  double kept = 0;
  for (const double y : drop(x).tolist()) {
    EXPECT_TRUE(y == 0 || y == 2);
    kept += y / 2;
  }
  EXPECT_NEAR(kept, 500, 100);
  drop.eval();
  EXPECT_EQ(drop(x).tolist(), x.tolist());
  EXPECT_EQ(error_of([] { Dropout(1.5); }),
            "dropout: expected a probability between 0 and 1, got 1.5");
}

TEST(Layers, PassTheGradientCheck) {
  Linear linear(3, 4), no_bias(3, 4, false);
  Embedding table(5, 3);
  LayerNorm norm(8), norm_no_bias(8, false);
  RMSNorm rms(8);
  BatchNorm1d batch_norm(3);
  Net net;
  const auto passes = [](const GradcheckReport& report) {
    EXPECT_TRUE(report.ok) << report;
    EXPECT_GT(report.checked, 0);
  };
  passes(gradcheck_module(linear, randn({2, 5, 3})));
  passes(gradcheck_module(no_bias, randn({2, 3})));
  passes(gradcheck_module(table, tensor({{0, 4, 1}, {1, 1, 2}})));
  passes(gradcheck_module(norm, randn({2, 3, 8})));
  passes(gradcheck_module(norm_no_bias, randn({3, 8})));
  passes(gradcheck_module(rms, randn({2, 3, 8})));
  passes(gradcheck_module(batch_norm, randn({6, 3})));
  passes(gradcheck_module(batch_norm, randn({4, 3, 5})));
  batch_norm.eval();
  passes(gradcheck_module(batch_norm, randn({6, 3})));
  passes(gradcheck_module(net, randn({5, 3})));
}

TEST(Activations, PassTheGradientCheck) {
  Sequential smooth{Tanh(), GELU(), GELU(Gelu::tanh), SiLU()};
  EXPECT_TRUE(gradcheck_module(smooth, randn({3, 4})));
  ReLU relu_layer;
  EXPECT_TRUE(gradcheck_module(relu_layer, tensor({{-1.0, 0.5}, {2.0, -0.25}})));
}

// ---- fields of every kind

struct Scaled : Module {
  Parameter scale{ones({2})};
  ModuleList<Linear> layers{1, 2, 2};
  INK_FIELDS(scale, layers)
};
struct Extended : Scaled {
  Parameter shift{zeros({2})};
  std::optional<Linear> proj;
  std::unique_ptr<Linear> gate;
  std::vector<Parameter> rates;
  ParameterList list{ones({1}), ones({3})};
  INK_FIELDS(Scaled, shift, proj, gate, rates, list)
};
struct Twice : Extended {
  INK_FIELDS(Extended)
};

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const auto& entry : module.named_parameters()) names.push_back(entry.first);
  return names;
}

TEST(Module, ExtendsAnotherAndHoldsWhatIsOptional) {
  Twice net;
  std::vector<std::string> names{"scale", "layers.0.weight", "layers.0.bias",
                                 "shift", "list.0",          "list.1"};
  EXPECT_EQ(names_of(net), names);
  net.proj.emplace(2, 3);
  net.gate = std::make_unique<Linear>(2, 1);
  net.rates.emplace_back(ones({4}));
  names = {"scale",       "layers.0.weight", "layers.0.bias", "shift",  "proj.weight", "proj.bias",
           "gate.weight", "gate.bias",       "rates.0",       "list.0", "list.1"};
  EXPECT_EQ(names_of(net), names);
  net.eval();
  EXPECT_FALSE(net.proj->training || net.layers[0].training);
  EXPECT_NE(net.to_string().find("(proj): Linear("), std::string::npos) << net;
  net.to(f64);
  EXPECT_EQ(net.rates[0].dtype(), f64);
  Twice other;
  other.rates.emplace_back(zeros({4}));
  other.proj.emplace(2, 3);
  other.gate = std::make_unique<Linear>(2, 1);
  other.load_state_dict(net.state_dict());
  EXPECT_EQ(other.rates[0].tolist(), (std::vector<double>{1, 1, 1, 1}));
}

TEST(Parameter, IsNeverMadeOfSomethingInAGraph) {
  Parameter p = ones({2});
  EXPECT_EQ(
      error_of([&] { p = p * 2; }),
      "Parameter: expected a tensor that is not in a graph, got (2,) computed by mul; compute "
      "it under NoGrad, or use its detach()");
  EXPECT_EQ(p.tolist(), (std::vector<double>{1, 1}));
  const Tensor constant = ones({2});
  p = constant;
  EXPECT_TRUE(p.requires_grad());
  EXPECT_FALSE(constant.requires_grad());
  const Tensor leaf = ones({2}).requires_grad_();
  p = leaf;
  EXPECT_TRUE(p.is_same(leaf));
}

TEST(Module, HandlesStayValidWhenItIsConverted) {
  Linear layer(2, 2);
  const Tensor weight = layer.parameters()[0];
  sum(layer(ones({1, 2}))).backward();
  layer.to(f64);
  EXPECT_TRUE(weight.is_same(layer.weight));
  EXPECT_EQ(weight.dtype(), f64);
  EXPECT_EQ(weight.grad().dtype(), f64);
  sum(layer(ones({1, 2}, f64))).backward();
  EXPECT_EQ(weight.grad().tolist(), (std::vector<double>{2, 2, 2, 2}));
}

// ---- parameters that were left out of INK_FIELDS

struct Forgetful : Module {
  Parameter kept{ones({2})}, forgotten{ones({1, 2})}, last{ones({3})};
  INK_FIELDS(kept, last)
};
struct Holder : Module {
  Parameter tied, unused;
  Linear layer{2, 2};
  Forgetful inner;
  Holder() { tied = inner.kept; }
  INK_FIELDS(layer, inner)
};

TEST(Module, FindsForgottenParameters) {
  const std::string otherwise =
      "; name it there, or no optimizer would update it, no checkpoint have it, and neither to() "
      "nor eval() reach it";
  const Linear whole(2, 2);
  EXPECT_EQ(whole.parameters().size(), 2u);
  std::vector<Holder> moved(1);
  moved.emplace_back();  // to another place
  EXPECT_EQ(
      error_of([&] { moved[0].parameters(); }),
      "Forgetful: INK_FIELDS lacks a Parameter of shape (1, 2) declared after kept" + otherwise)
      << "what is tied to a field, or undefined, is not forgotten";
  struct ForgetsItsBase : Extended {
    INK_FIELDS(gate)
  };
  EXPECT_EQ(error_of([] { ForgetsItsBase().parameters(); }),
            "ForgetsItsBase: INK_FIELDS lacks a ModuleList declared before all fields, a "
            "ParameterList declared before all fields, a Parameter of shape (2,) declared before "
            "all fields, a Parameter of shape (2,) declared before all fields" +
                otherwise);
  struct ForgetsTwo : Module {
    Linear first{2, 3}, second{3, 2};
    Parameter scale{ones({2})};
    INK_FIELDS(first)
  };
  EXPECT_EQ(error_of([] { ForgetsTwo().zero_grad(); }),
            "ForgetsTwo: INK_FIELDS lacks a Linear declared after first, a Parameter of shape (2,) "
            "declared after first" +
                otherwise);
  struct OnlyModules : Module {
    ModuleList<Linear> layers{1, 2, 2};
    INK_FIELDS(layers)
  };
  struct ForgetsModules : OnlyModules {
    Parameter mine{ones({1})};
    INK_FIELDS(mine)
  };
  EXPECT_NE(error_of([] { ForgetsModules().parameters(); }), "(no error)");
  struct ForgetsDropout : Module {  // eval() would not reach it
    Linear layer{2, 2};
    Sequential drop{Dropout(0.5)};
    INK_FIELDS(layer)
  };
  EXPECT_EQ(error_of([] { ForgetsDropout().parameters(); }),
            "ForgetsDropout: INK_FIELDS lacks a Sequential declared after layer" + otherwise);
  struct Student : Module {
    struct Teacher : Module {
      Linear layer{2, 2};
      Dropout drop;
      INK_FIELDS(layer, drop)
    } teacher;
    Linear layer{2, 2};
    Student() {
      for (Tensor& p : teacher.parameters()) p.requires_grad_(false);
    }
    INK_FIELDS(layer)
  };
  EXPECT_EQ(Student().parameters().size(), 2u) << "a frozen one may be left out";
}

TEST(Module, ListsHaveGapsAndFieldsHaveOneName) {
  struct Gaps : Module {
    std::vector<std::optional<Linear>> some;
    std::vector<std::unique_ptr<Linear>> others;
    std::optional<Parameter> none, one;
    Gaps() : some(3), others(2), one(Parameter(ones({1}))) {
      some[1].emplace(2, 2);
      others[1] = std::make_unique<Linear>(2, 3);
    }
    // clang-format off
    INK_FIELDS(some , others  ,none , one )
    // clang-format on
  };
  std::vector<std::string> names;
  for (const auto& entry : Gaps().named_parameters()) names.push_back(entry.first);
  EXPECT_EQ(names, (std::vector<std::string>{"some.1.weight", "some.1.bias", "others.1.weight",
                                             "others.1.bias", "one"}));
  struct Again : Linear {
    Parameter weight{ones({1})};
    INK_FIELDS(Linear, weight)
  };
  EXPECT_EQ(error_of([] { Again().parameters(); }), "INK_FIELDS: two fields have the name weight");
}

}  // namespace
}  // namespace ink
