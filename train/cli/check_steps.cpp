// A fused op has no counterpart in a composed run, but its output has: the last op of its
// definition computes the same values. So each output of the fused run is looked for among all
// those of the composed run. The first that is not there comes from the op at fault.
//
// Backward is the same the other way round: from the loss to the newest op whose output has the
// right gradient and one of whose inputs has not.
#include "train/cli/check_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/observer.h"
#include "train/flow/flow.h"
#include "train/trainer.h"

namespace ink {
namespace {

// What rounding may do, as a share of the largest element; several times what it does.
constexpr double kF32 = 1e-4, kBf16 = 0.05;
constexpr double kGradients = 3;  // times that: backward adds more of it up
// A gradient below this share of the largest of all parameters is taken for as large: it may be 0
// but for rounding, as a key's is that nothing competes with.
constexpr double kLeastF32 = 1e-3, kLeastBf16 = 0.02;

// The largest difference of two tensors, as a share of the largest element.
struct Difference {
  double share = INFINITY;
  int64_t place = 0;
  double fused = 0, composed = 0;  // there
};

Difference compare(const Tensor& a, const Tensor& b, double least = 1e-30) {
  const Tensor x = a.detach().to(f32).reshape({-1}), y = b.detach().to(f32).reshape({-1});
  // Elements that are equal and infinite, such as masked scores, do not differ.
  const Tensor apart = where(x == y, 0, abs(x - y)), size = where(isfinite(y), abs(y), 0);
  const auto place = argmax(apart).item<int64_t>();
  const double largest = apart.index({place}).item(), scale = max(size).item();
  Difference result{0, place, x.index({place}).item(), y.index({place}).item()};
  if (largest != 0)
    result.share = std::isnan(largest) ? INFINITY : largest / std::max(scale, least);
  return result;
}

// What a step recorded.
struct Maker {
  size_t op, output;
};
struct Recorded {
  std::string name;
  std::vector<Tensor> inputs, outputs;
  std::vector<Tensor> values;  // of the outputs, as they were before the weights changed
  std::vector<Maker> makers;   // of the inputs that are outputs of ops before
};

class Recorder : public Observer {
 public:
  explicit Recorder(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters) weights_.insert(parameter.storage().get());
  }

  std::vector<Recorded> ops;
  std::map<std::string, Tensor> gradients;  // of parameters

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override {
    if (!recorded) return;
    Recorded op{name, inputs, outputs, {}, {}};
    for (const Tensor& y : outputs) op.values.push_back(value_of(y));
    for (const Tensor& x : inputs) {
      const auto found = x.defined() && x.slot() ? makers_.find(x.slot().get()) : makers_.end();
      if (found != makers_.end()) op.makers.push_back(found->second);
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      Tensor y = outputs[k];
      if (!y.slot() || !y.slot()->node) continue;
      y.retain_grad();
      makers_[y.slot().get()] = {ops.size(), k};
    }
    ops.push_back(std::move(op));
  }

 private:
  Tensor value_of(const Tensor& y) const {
    const Unseen unseen;
    return weights_.count(y.storage().get()) > 0 ? y.clone() : y.detach();
  }

  std::set<const Storage*> weights_;
  std::unordered_map<const GradSlot*, Maker> makers_;  // all held by `ops`
};

Recorder run_step(Trainer& trainer) {
  Recorder recorder(trainer.model().parameters());
  std::vector<HookHandle> hooks;
  for (auto [name, parameter] : trainer.model().named_parameters())
    hooks.push_back(
        parameter.register_post_accumulate_grad_hook([&recorder, key = name](const Tensor& p) {
          const Unseen unseen;
          recorder.gradients[key] = p.grad().clone();
        }));
  {
    const Observe observe(recorder);
    trainer.step();
  }
  for (HookHandle& hook : hooks) hook.remove();
  return recorder;
}

// Where two runs part.
struct Parting {
  std::string what;  // "the output of layer_norm"
  Shape shape;
  Difference difference;
};

// The fused and the composed run of a step.
class Comparison {
 public:
  Comparison(const Recorder& fused, const Recorder& composed, const NamedTensors& parameters,
             double tolerance)
      : fused_(fused), composed_(composed), tolerance_(tolerance) {
    for (const Recorded& op : composed_.ops) {
      composed_names_.insert(op.name);
      for (size_t k = 0; k < op.outputs.size(); ++k)
        candidates_[op.outputs[k].numel()].push_back({op.values[k], op.outputs[k].grad()});
    }
    for (const Recorded& op : fused_.ops) values_.push_back(nearest(op, false));
    starts_.clear();
    for (const Recorded& op : fused_.ops) {
      gradients_.push_back(nearest(op, true));
      for (const Tensor& x : op.inputs)
        if (x.defined()) ++uses_[x.slot().get()];
    }
    double most = 0;
    for (const auto& [name, gradient] : composed_.gradients)
      if (gradient.numel() > 0) most = std::max(most, max(abs(gradient)).item());
    const double least = std::max(most * (tolerance == kBf16 ? kLeastBf16 : kLeastF32), 1e-30);
    for (const auto& [name, parameter] : parameters) {
      const auto found = fused_.gradients.find(name);
      if (found == fused_.gradients.end()) continue;
      parameters_.push_back({name, parameter.shape(), parameter.slot().get(),
                             compare(found->second, composed_.gradients.at(name), least)});
    }
  }

  std::optional<Parting> parting() const {
    for (size_t n = 0; n < values_.size(); ++n) {
      for (size_t k = 0; k < values_[n].size(); ++k)
        if (values_[n][k].share > tolerance_)
          return Parting{"the output of " + fused_.ops[n].name, fused_.ops[n].outputs[k].shape(),
                         values_[n][k]};
    }
    const auto worst =
        std::max_element(parameters_.begin(), parameters_.end(),
                         [](auto& a, auto& b) { return a.difference.share < b.difference.share; });
    if (worst == parameters_.end() || !differs(*worst)) return {};
    const std::string op = newest_wrong_backward();
    return Parting{(op.empty() ? "" : "the backward of " + op + ", as seen in ") +
                       "the gradient of " + worst->name,
                   worst->shape, worst->difference};
  }
  double largest_value() const {
    double most = 0;
    for (const auto& outputs : values_)
      for (const Difference& difference : outputs) most = std::max(most, difference.share);
    return most;
  }
  double largest_gradient() const {
    double most = 0;
    for (const Gradient& gradient : parameters_) most = std::max(most, gradient.difference.share);
    return most;
  }

 private:
  struct Gradient {  // of a parameter
    std::string name;
    Shape shape;
    const GradSlot* slot;
    Difference difference;
  };
  struct Value {
    Tensor x, gradient;
  };

  bool differs(const Gradient& gradient) const {
    return gradient.difference.share > kGradients * tolerance_;
  }
  bool gradient_differs(const Maker& maker) const {
    return gradients_[maker.op][maker.output].share > kGradients * tolerance_;
  }
  bool gradients_agree(size_t op) const {
    for (size_t k = 0; k < gradients_[op].size(); ++k)
      if (gradient_differs({op, k})) return false;
    return true;
  }

  // The differences of an op's outputs, or of their gradients. What has none does not differ.
  std::vector<Difference> nearest(const Recorded& op, bool gradient) {
    std::vector<Difference> list(op.outputs.size(), Difference{0});
    for (size_t k = 0; k < list.size(); ++k) {
      const Value value{op.values[k], op.outputs[k].grad()};
      if (value.x.is_floating() && value.x.numel() > 0 && (!gradient || value.gradient.defined()))
        list[k] = nearest(value, gradient);
    }
    return list;
  }
  // From the nearest of the composed run's tensors, or gradients. The first that is very near will
  // do; it is looked for from the last one found. (A gradient may be that of another tensor: what
  // add_layer_norm passes on is in the composed run the gradient of the sum.)
  Difference nearest(const Value& y, bool gradient) {
    Difference best;
    const std::vector<Value>& list = candidates_[y.x.numel()];
    size_t& found = starts_[y.x.numel()];
    const size_t start = found;
    for (size_t k = 0; k < list.size(); ++k) {
      const size_t place = (start + k) % list.size();
      const Value& other = list[place];
      if (gradient && !other.gradient.defined()) continue;
      const Difference difference =
          gradient ? compare(y.gradient, other.gradient) : compare(y.x, other.x);
      if (difference.share >= best.share) continue;
      best = difference;
      found = place;
      if (best.share <= tolerance_ / 100) break;
    }
    return best;
  }

  // "layer_norm (2, 3)": the newest op whose output's gradient agrees and one of whose inputs' does
  // not. One that the composed run has as well, and one of several that share a parameter (wte),
  // are suspected last.
  std::string newest_wrong_backward() const {
    for (const auto& [in_both, most_uses] : {std::pair(false, 1), {true, 1}, {false, 1000}}) {
      for (size_t n = fused_.ops.size(); n-- > 0;) {
        const Recorded& op = fused_.ops[n];
        const bool suspected = (composed_names_.count(op.name) > 0) == in_both;
        if (suspected && gradients_agree(n) && is_wrong(op, most_uses)) return suspects(n);
      }
    }
    return {};
  }
  // The op, and the older ones that take the same tensor with a wrong gradient: it is their sum.
  std::string suspects(size_t n) const {
    const auto said = [](const Recorded& op) {
      return detail::joined({op.name, " ", op.outputs[0].shape()});
    };
    std::string text = said(fused_.ops[n]);
    for (size_t m = n; m-- > 0;)
      if (gradients_agree(m) && share_a_wrong_input(fused_.ops[n], fused_.ops[m]))
        text += " or " + said(fused_.ops[m]);
    return text;
  }
  bool share_a_wrong_input(const Recorded& a, const Recorded& b) const {
    for (const Maker& x : a.makers)
      for (const Maker& y : b.makers)
        if (x.op == y.op && x.output == y.output && gradient_differs(x)) return true;
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const Gradient& gradient) {
      const auto is_it = [&](const Tensor& x) {
        return x.defined() && x.slot().get() == gradient.slot;
      };
      return differs(gradient) && std::any_of(a.inputs.begin(), a.inputs.end(), is_it) &&
             std::any_of(b.inputs.begin(), b.inputs.end(), is_it);
    });
  }
  bool is_wrong(const Recorded& op, int most_uses) const {
    const auto of_parameter = [&](const Tensor& x) {
      return std::any_of(parameters_.begin(), parameters_.end(), [&](const Gradient& gradient) {
        return x.defined() && gradient.slot == x.slot().get() && differs(gradient) &&
               uses_.at(gradient.slot) <= most_uses;
      });
    };
    return std::any_of(op.makers.begin(), op.makers.end(),
                       [&](const Maker& maker) { return gradient_differs(maker); }) ||
           std::any_of(op.inputs.begin(), op.inputs.end(), of_parameter);
  }

  const Recorder &fused_, &composed_;
  const double tolerance_;
  std::set<std::string> composed_names_;                        // of ops
  std::unordered_map<int64_t, std::vector<Value>> candidates_;  // by numel
  std::unordered_map<const GradSlot*, int> uses_;               // as an input
  std::unordered_map<int64_t, size_t> starts_;                  // of the next search, by numel
  // By op and output of the fused run.
  std::vector<std::vector<Difference>> values_, gradients_;
  std::vector<Gradient> parameters_;
};

}  // namespace

bool check_steps(const TrainConfig& config, const std::optional<SavedRun>& saved, int64_t steps,
                 Console& console) {
  TrainConfig definitions = config;
  definitions.composed = true;
  Trainer fused(config, saved, nullptr), composed(definitions, saved, nullptr);
  const double tolerance = config.dtype == "bfloat16" ? kBf16 : kF32;
  const bool narrow = console.columns() < 73;
  console.line(narrow ? fmt::format("{:5} {:>8} {:>10} {:>8} {:>8}\n{:5} {:>8} {:>10} {:>8} {:>8}",
                                    "", "", "composed", "outputs", "grad.", "step", "loss", "loss",
                                    "by", "by")
                      : fmt::format("{:<5} {:>10} {:>14} {:>20} {:>20}", "step", "loss",
                                    "composed loss", "outputs differ by", "gradients by"));
  for (int64_t step = 0; step < steps; ++step) {
    composed.model().load_state_dict(fused.model().state_dict());
    const Recorder first = run_step(fused), second = run_step(composed);
    const NoGrad no_grad;
    const Comparison comparison(first, second, fused.model().named_parameters(), tolerance);
    console.line(fmt::format("{:<5} {:>{}.5f} {:>{}.5f} {:>{}.1e} {:>{}.1e}", fused.steps_done(),
                             fused.progress().loss, narrow ? 8 : 10, composed.progress().loss,
                             narrow ? 10 : 14, comparison.largest_value(), narrow ? 8 : 20,
                             comparison.largest_gradient(), narrow ? 8 : 20));
    const auto parting = comparison.parting();
    if (!parting) continue;
    const Difference& at = parting->difference;
    console.paragraph(fmt::format(
        "They part at {} {}: {:.6g} fused, {:.6g} composed at flat index {}, a difference of "
        "{:.2g} of the largest element",
        parting->what, detail::joined({parting->shape}), at.fused, at.composed, at.place,
        at.share));
    return false;
  }
  console.paragraph(
      fmt::format("Fused ops and their definitions agree. Differences are shares of a tensor's "
                  "largest element; {:.0e} is allowed, {:.0e} for gradients.",
                  tolerance, kGradients * tolerance));
  return true;
}

}  // namespace ink
