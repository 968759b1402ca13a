#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/io/foreign.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/optimizer.h"
#include "data/registry.h"
#include "train/config.h"

namespace ink {
namespace {

OptimizerStatus fresh_status(Device device) {
  return {.lr = zeros({}, {f64, device}),
          .grad_norm = zeros({}, {f64, device}),
          .clip = ones({}, {f64, device}),
          .finite = ones({}, {boolean, device}),
          .skipped = zeros({2}, {i64, device})};
}

void check_numbers(const char* op, const std::vector<std::pair<const char*, double>>& options) {
  for (const auto& [name, value] : options)
    INK_CHECK(value >= 0 && std::isfinite(value), op, ": expected ", name,
              " to be finite and at least 0, got ", value);
}

}  // namespace

std::vector<ParameterGroup> decay_matrices(const NamedTensors& parameters, double weight_decay) {
  ParameterGroup matrices{.weight_decay = weight_decay}, others{.weight_decay = 0};
  for (const auto& entry : parameters)
    (entry.second.dim() >= 2 ? matrices : others).parameters.push_back(entry);
  return {matrices, others};
}

NamedTensors numbered(const std::vector<Tensor>& parameters) {
  NamedTensors named;
  for (const Tensor& p : parameters) named.emplace_back(std::to_string(named.size()), p);
  return named;
}

Optimizer::Optimizer(const char* name, const std::vector<ParameterGroup>& groups, double lr,
                     double weight_decay, double grad_clip)
    : name_(name), grad_clip_(grad_clip) {
  check_numbers(name, {{"lr", lr}, {"weight_decay", weight_decay}, {"grad_clip", grad_clip}});
  std::vector<double> scales, decays;
  std::map<const TensorImpl*, std::string> seen;
  std::set<std::string> names;
  for (const ParameterGroup& group : groups) {
    const double decay = group.weight_decay.value_or(weight_decay);
    check_numbers(name, {{"lr_scale", group.lr_scale}, {"a group's weight_decay", decay}});
    for (const auto& [label, value] : group.parameters) {
      if (!value.requires_grad()) continue;
      INK_CHECK(value.is_leaf(), name, ": expected leaves, got ", label, ", which was computed by ",
                value.slot()->node->name);
      INK_CHECK(value.is_contiguous(), name, ": ", label, ", ", value.shape(),
                ", is a strided view; make the parameter of its contiguous() copy");
      const auto [first, is_new] = seen.emplace(&value.impl(), label);
      INK_CHECK(is_new, name, ": ", label, " is listed twice, the first time as ", first->second);
      INK_CHECK(names.insert(label).second, name, ": two parameters have the name ", label);
      parameters_.emplace_back(label, value);
      lists_.values.push_back(value);
      scales.push_back(group.lr_scale);
      decays.push_back(decay);
    }
  }
  INK_CHECK(!parameters_.empty(), name, ": expected parameters that require grad, got none");
  const Device device = lists_.values[0].device();
  lists_.lr_scale = from_vector(scales).to(device);
  lists_.decay = from_vector(decays).to(device);
  lists_.counts = zeros({std::ssize(scales)}, {i64, device});
  status_ = fresh_status(device);
  set_lr(lr);
}

Arrays& Optimizer::add_moments(const char* kind) {
  auto arrays = std::make_unique<Arrays>();
  for (const auto& entry : parameters_) arrays->push_back(zeros_like(entry.second));
  moments_.emplace_back(kind, std::move(arrays));
  return *moments_.back().second;
}

OptimizerStep Optimizer::step_arrays() const {
  const auto& [lr, grad_norm, clip, finite, skipped] = status_;
  return {lr, grad_norm, clip, finite, skipped};
}

// Checks all gradients before anything changes.
void Optimizer::check_gradients() const {
  const std::string name = name_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& label = parameters_[i].first;
    const Tensor& p = parameters_[i].second;
    INK_CHECK(p.storage() == lists_.values[i].storage(), name_, ": ", label,
              " has other memory than when the optimizer was made; convert a model before that");
    if (const Tensor g = p.grad(); g.defined())
      with_prefix(name, [&] { p.slot()->check_gradient(label.c_str(), g); });
  }
}

// The bf16 copies of parameters, which linear layers read under Autocast, are updated with them.
void Optimizer::step(const Tensor& loss) {
  const NoGrad no_grad;
  std::vector<Tensor> grads;
  ParameterLists lists = lists_;
  check_gradients();
  for (const auto& entry : parameters_) {
    const Tensor g = entry.second.grad();
    grads.push_back(g.defined() ? g.contiguous() : g);
    lists.grads.push_back(grads.back());
    lists.rounded.push_back(current_cast(entry.second));
  }
  kernel::gradient_norm(step_arrays(), lists.grads, loss.defined() ? loss.contiguous() : loss,
                        grad_clip_);
  note_work("gradient_norm", grads, {});
  update(lists, step_arrays());
  for (size_t i = 0; i < lists.rounded.size(); ++i)
    if (lists.rounded[i].defined()) keep_cast(lists.values[i]);
  note_update(grads);
}

void Optimizer::update_parameter(ParameterUpdate&) {
  detail::fail({name_, ": an optimizer of your own defines update_parameter"});
}

// Writes of a step that is not finite are undone: on the CPU it need not begin, and a device's
// result is not read here.
void Optimizer::update(ParameterLists& parameters, const OptimizerStep& step) {
  const Tensor finite(step.finite), counts(parameters.counts), scales(parameters.lr_scale),
      decays(parameters.decay);
  if (finite.device().is_cpu() && !finite.item<bool>()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters.grads[i].defined()) continue;
    const auto at = static_cast<int64_t>(i);
    ParameterUpdate one;
    one.name = parameters_[i].first;
    one.value = Tensor(parameters.values[i]);
    one.grad = Tensor(parameters.grads[i]);
    if (grad_clip_ > 0) one.grad = one.grad * Tensor(step.clip);
    for (const auto& entry : moments_) one.moments.emplace_back((*entry.second)[i]);
    one.lr = Tensor(step.lr) * scales.select(0, at);
    one.weight_decay = decays.select(0, at);
    one.step = counts.select(0, at) + 1;
    std::vector<Tensor> written = one.moments, before;
    written.insert(written.end(), {one.value, counts.select(0, at)});
    if (!finite.device().is_cpu())
      for (const Tensor& x : written) before.push_back(x.clone());
    update_parameter(one);
    written.back().copy_(one.step);
    for (size_t k = 0; k < before.size(); ++k)
      written[k].copy_(where(finite, written[k], before[k]));
    parameters.rounded[i] = {};  // a linear layer makes it anew
  }
}

void Optimizer::note_update(const std::vector<Tensor>& grads) const {
  if (context().observers.empty()) return;
  std::vector<Tensor> written;
  for (const auto& entry : parameters_) written.push_back(entry.second.detach());
  for (const auto& entry : moments_)
    for (const Array& moment : *entry.second) written.emplace_back(moment);
  std::vector<Tensor> read = written;
  read.insert(read.end(), grads.begin(), grads.end());
  note_work(name_, read, written);
}

void Optimizer::zero_grad() {
  for (auto& entry : parameters_) entry.second.set_grad({});
}

void Optimizer::set_lr(double lr) { kernel::fill(status_.lr, lr); }

NamedTensors Optimizer::state() const {
  NamedTensors all;
  for (const auto& [kind, arrays] : moments_) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      all.emplace_back(std::string(kind) + "." + parameters_[i].first, Tensor((*arrays)[i]));
  }
  for (size_t i = 0; i < parameters_.size(); ++i)
    all.emplace_back("step." + parameters_[i].first,
                     Tensor(lists_.counts).select(0, static_cast<int64_t>(i)));
  all.emplace_back("skipped", status_.skipped);
  return all;
}

void Optimizer::load_state(const NamedTensors& state) {
  std::map<std::string, Tensor> given(state.begin(), state.end());
  std::vector<std::pair<Tensor, Tensor>> copies;
  Problems problems;
  for (const auto& [name, own] : this->state()) {
    const auto node = given.extract(name);
    if (node.empty()) {
      problems.add({"missing: ", name});
    } else if (node.mapped().shape() != own.shape()) {
      problems.add({name, ": expected shape ", own.shape(), ", got ", node.mapped().shape()});
    } else {
      copies.emplace_back(own, node.mapped());
    }
  }
  for (const auto& entry : given) problems.add({"unexpected: ", printable(entry.first, 60)});
  INK_CHECK(problems.empty(), name_,
            ": the saved state is not of these parameters:", problems.text());
  const NoGrad no_grad;
  for (auto& [own, saved] : copies) own.copy_(saved);
}

// ---- AdamW

AdamW::AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options)
    : AdamW("AdamW", groups, options) {}

AdamW::AdamW(const char* name, const std::vector<ParameterGroup>& groups,
             const AdamWOptions& options)
    : Optimizer(name, groups, options.lr, options.weight_decay, options.grad_clip),
      options_(options),
      exp_avg_(add_moments("exp_avg")),
      exp_avg_sq_(add_moments("exp_avg_sq")) {
  check_numbers(name, {{"eps", options.eps}});
  for (const double beta : {options.beta1, options.beta2})
    INK_CHECK(beta >= 0 && beta < 1, name, ": expected betas in [0, 1), got ", beta);
}

void AdamW::update(ParameterLists& parameters, const OptimizerStep& step) {
  kernel::adamw(parameters, exp_avg_, exp_avg_sq_, step, options_.beta1, options_.beta2,
                options_.eps);
}

// ---- Adam

Adam::Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options)
    : AdamW("Adam", groups,
            {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay,
             options.grad_clip}),
      decays_(std::any_of(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
        return group.weight_decay.value_or(options.weight_decay) > 0;
      })) {}

// The kernel multiplies gradients by `clip`, so the decay is divided by it first.
void Adam::update(ParameterLists& parameters, const OptimizerStep& step) {
  if (!decays_) return AdamW::update(parameters, step);
  ParameterLists lists = parameters;
  const Tensor decay = Tensor(parameters.decay) / Tensor(step.clip);
  for (size_t i = 0; i < lists.grads.size(); ++i) {
    if (!lists.grads[i].defined()) continue;
    const Tensor p(lists.values[i]), share = decay.select(0, static_cast<int64_t>(i));
    lists.grads[i] = Tensor(lists.grads[i]) + p * share.to(p.dtype());
  }
  lists.decay = zeros_like(decay);
  AdamW::update(lists, step);
}

// ---- SGD

SGD::SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options)
    : Optimizer("SGD", groups, options.lr, options.weight_decay, options.grad_clip),
      options_(options),
      momentum_buffer_(options.momentum > 0 ? &add_moments("momentum_buffer") : &no_buffer_) {
  check_numbers("SGD", {{"momentum", options.momentum}});
  INK_CHECK(!options.nesterov || options.momentum > 0,
            "SGD: nesterov needs a momentum above 0, got ", options.momentum);
}

void SGD::update(ParameterLists& parameters, const OptimizerStep& step) {
  kernel::sgd(parameters, *momentum_buffer_, step, options_.momentum, options_.nesterov);
}

// ---- by name

static Registry<MakeOptimizer>& optimizers() {
  using Groups = std::vector<ParameterGroup>;
  static Registry<MakeOptimizer> table(
      "optimizer",
      {{"adamw",
        [](const Groups& groups, const TrainConfig& c) {
          return std::make_unique<AdamW>(groups, AdamWOptions{.lr = c.learning_rate,
                                                              .beta1 = c.beta1,
                                                              .beta2 = c.beta2,
                                                              .grad_clip = c.grad_clip});
        }},
       {"sgd", [](const Groups& groups, const TrainConfig& c) {
          return std::make_unique<SGD>(
              groups,
              SGDOptions{.lr = c.learning_rate, .momentum = c.momentum, .grad_clip = c.grad_clip});
        }}});
  return table;
}

void add_optimizer(const std::string& name, MakeOptimizer make) {
  INK_CHECK(make, "add_optimizer: ", name, ": expected what makes the optimizer, got none");
  optimizers().add(name, std::move(make));
}

std::vector<std::string> optimizer_names() { return optimizers().names(); }

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config,
                                          const NamedTensors& parameters) {
  check_limits("optimizer", {.choices = optimizer_names()}, config.optimizer);
  return (*optimizers().find(config.optimizer))(decay_matrices(parameters, config.weight_decay),
                                                config);
}

}  // namespace ink
