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
#include "train/muon.h"

namespace ink {
namespace {

OptimizerStatus fresh_status(Device device) {
  return {.lr = zeros({}, {f64, device}),
          .grad_norm = zeros({}, {f64, device}),
          .clip = ones({}, {f64, device}),
          .finite = ones({}, {boolean, device}),
          .skipped = zeros({2}, {i64, device}),
          .loss_sum = zeros({}, {f32, device})};
}

void check_numbers(const std::string& op,
                   const std::vector<std::pair<const char*, double>>& options) {
  for (const auto& [name, value] : options)
    INK_CHECK(value >= 0 && std::isfinite(value), op, ": expected ", name,
              " to be finite and at least 0, got ", value);
}

void check_beta(const std::string& op, double beta) {
  INK_CHECK(beta >= 0 && beta < 1, op, ": expected betas in [0, 1), got ", beta);
}

// Throws if update_parameter assigned another tensor instead of writing to `own`.
void check_in_place(const std::string& op, const std::string& what, const Tensor& now,
                    const Tensor& own) {
  INK_CHECK(!own.defined() || (now.defined() && now.storage() == own.storage()), op,
            ": update_parameter gave ", what,
            " another tensor, which would be lost; write to it in place, as by copy_ or sub_");
}

}  // namespace

std::vector<ParameterGroup> decay_matrices(const NamedTensors& parameters, double weight_decay) {
  ParameterGroup matrices{.weight_decay = weight_decay}, others{.weight_decay = 0};
  for (const auto& entry : parameters)
    (entry.second.dim() >= 2 ? matrices : others).parameters.push_back(entry);
  return {matrices, others};
}

NamedTensors numbered(const std::vector<Tensor>& parameters, const std::string& prefix) {
  NamedTensors named;
  for (const Tensor& p : parameters) named.emplace_back(prefix + std::to_string(named.size()), p);
  return named;
}

Optimizer::Optimizer(std::string name, const std::vector<ParameterGroup>& groups, double lr,
                     double weight_decay, double grad_clip)
    : name_(std::move(name)), lr_(lr), weight_decay_(weight_decay), grad_clip_(grad_clip) {
  check_numbers(name_, {{"lr", lr}, {"weight_decay", weight_decay}, {"grad_clip", grad_clip}});
  add_groups(groups);
  INK_CHECK(!parameters_.empty(), name_,
            ": expected parameters that require grad, got none (those of a module are in its "
            "INK_FIELDS)");
  status_ = fresh_status(lists_.values[0].device());
  set_lr(lr);
}

void Optimizer::add_group(const ParameterGroup& group) { add_groups({group}); }

Optimizer::Settings Optimizer::settings_of(const ParameterGroup& group) const {
  const double decay = group.weight_decay.value_or(weight_decay_), lr = group.lr.value_or(lr_);
  check_numbers(
      name_,
      {{"lr_scale", group.lr_scale}, {"a group's weight_decay", decay}, {"a group's lr", lr}});
  INK_CHECK(lr == lr_ || lr_ > 0, name_, ": a group's lr is ", lr,
            ", which set_lr scales with the ", "optimizer's; expected that to be above 0, got 0");
  for (const auto& beta : {group.beta1, group.beta2}) check_beta(name_, beta.value_or(0));
  return {lr == lr_ ? group.lr_scale : group.lr_scale * lr / lr_, decay, group.beta1, group.beta2};
}

// Checks all groups before anything changes.
void Optimizer::add_groups(const std::vector<ParameterGroup>& groups) {
  std::map<const TensorImpl*, std::string> seen;
  std::set<std::string> names;
  for (const auto& [label, value] : parameters_) seen[&value.impl()] = *names.insert(label).first;
  NamedTensors added;
  std::vector<Settings> settings = settings_;
  for (const ParameterGroup& group : groups) {
    const Settings of_group = settings_of(group);
    for (const auto& [label, value] : group.parameters) {
      if (!value.requires_grad()) continue;
      INK_CHECK(value.is_leaf(), name_, ": expected leaves, got ", label,
                ", which was computed by ", value.slot()->node->name);
      INK_CHECK(value.is_contiguous(), name_, ": ", label, ", ", value.shape(),
                ", is a strided view; make the parameter of its contiguous() copy");
      const auto [first, is_new] = seen.emplace(&value.impl(), label);
      INK_CHECK(is_new, name_, ": ", label, " is listed twice, the first time as ", first->second);
      INK_CHECK(names.insert(label).second, name_, ": two parameters have the name ", label,
                "; put a prefix before those of one module: numbered(parameters, \"head.\")");
      added.emplace_back(label, value);
      settings.push_back(of_group);
    }
  }
  if (added.empty()) return;
  const NoGrad no_grad;
  const Device device = added[0].second.device();
  Tensor counts = zeros({std::ssize(settings)}, {i64, device});
  if (lists_.counts.defined())
    counts.narrow(0, 0, std::ssize(settings_)).copy_(Tensor(lists_.counts));
  std::vector<double> scales, decays;
  for (const Settings& of : settings) scales.push_back(of.lr_scale), decays.push_back(of.decay);
  for (Moments& moments : moments_) moments.add(added);
  for (const auto& entry : added) lists_.values.push_back(entry.second);
  parameters_.insert(parameters_.end(), added.begin(), added.end());
  settings_ = std::move(settings);
  lists_.lr_scale = from_vector(scales).to(device);
  lists_.decay = from_vector(decays).to(device);
  lists_.counts = counts;
}

void Optimizer::Moments::add(const NamedTensors& parameters) {
  for (const auto& [name, value] : parameters)
    arrays->push_back(!has || has(name, value) ? Array(zeros_like(value)) : Array());
}

Arrays& Optimizer::add_moments(const std::string& kind, HasMoment has) {
  std::set<std::string> names{"step"};
  for (const Moments& moments : moments_) names.insert(moments.kind);
  INK_CHECK(names.insert(kind).second, name_, ": add_moments: the name ", kind,
            " is taken; choose another");
  moments_.push_back({kind, std::move(has), std::make_unique<Arrays>()});
  moments_.back().add(parameters_);
  return *moments_.back().arrays;
}

OptimizerStep Optimizer::step_arrays() const {
  const auto& [lr, grad_norm, clip, finite, skipped, loss_sum] = status_;
  return {lr, grad_norm, clip, finite, skipped, loss_sum};
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
void Optimizer::step(const Tensor& loss, const Tensor& norm) {
  const NoGrad no_grad;
  std::vector<Tensor> grads;
  ParameterLists lists = lists_;
  INK_CHECK(!loss.defined() || loss.is_floating(), name_, ": expected a floating loss, got ",
            loss.dtype());
  check_gradients();
  for (const auto& entry : parameters_) {
    Tensor p = entry.second;
    // Basic ops leave some gradients transposed. A copy takes the gradient's place, so that memory
    // never holds all of them twice.
    if (p.grad().defined() && !p.grad().is_contiguous()) p.set_grad(p.grad().contiguous());
    grads.push_back(p.grad());
    lists.grads.push_back(grads.back());
    lists.rounded.push_back(current_cast(p));
  }
  const Arrays all = norm.defined() ? Arrays{norm} : lists.grads;
  kernel::gradient_norm(step_arrays(), all, loss.defined() ? loss.contiguous() : loss, grad_clip_);
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
    // A copy: what is written there is no gradient of the model.
    one.grad = grad_clip_ > 0 ? one.grad * Tensor(step.clip) : one.grad.clone();
    for (const Moments& moments : moments_) one.moments.emplace_back((*moments.arrays)[i]);
    one.lr = Tensor(step.lr) * scales.select(0, at);
    one.weight_decay = decays.select(0, at);
    one.beta1 = settings_[i].beta1, one.beta2 = settings_[i].beta2;
    one.step = counts.select(0, at) + 1;
    std::vector<Tensor> written = one.moments, before;
    written.insert(written.end(), {one.value, counts.select(0, at)});
    if (!finite.device().is_cpu())
      for (const Tensor& x : written) before.push_back(x.defined() ? x.clone() : x);
    const size_t moments = moments_.size();
    update_parameter(one);
    INK_CHECK(moments_.size() == moments, name_,
              ": expected all add_moments in the constructor, got ", moments_.back().kind,
              " in a step");
    one.moments.resize(moments);
    for (size_t k = 0; k < moments; ++k)
      check_in_place(name_, "moment " + moments_[k].kind + " of " + parameters_[i].first,
                     one.moments[k], written[k]);
    check_in_place(name_, parameters_[i].first, one.value, written[moments]);
    written.back().copy_(one.step);
    for (size_t k = 0; k < before.size(); ++k)
      if (before[k].defined()) written[k].copy_(where(finite, written[k], before[k]));
    parameters.rounded[i] = {};  // a linear layer makes it anew
  }
}

void Optimizer::note_update(const std::vector<Tensor>& grads) const {
  if (context().observers.empty()) return;
  std::vector<Tensor> written;
  for (const auto& entry : parameters_) written.push_back(entry.second.detach());
  for (const Moments& moments : moments_)
    for (const Array& moment : *moments.arrays)
      if (moment.defined()) written.emplace_back(moment);
  std::vector<Tensor> read = written;
  read.insert(read.end(), grads.begin(), grads.end());
  note_work(name_.c_str(), read, written);
}

void Optimizer::zero_grad() {
  for (auto& entry : parameters_) entry.second.set_grad({});
}

void Optimizer::set_lr(double lr) {
  check_numbers(name_, {{"lr", lr}});
  kernel::fill(status_.lr, lr);
}

NamedTensors Optimizer::state() const {
  NamedTensors all;
  for (const Moments& moments : moments_) {
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const Array& moment = (*moments.arrays)[i]; moment.defined())
        all.emplace_back(moments.kind + "." + parameters_[i].first, Tensor(moment));
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
             const AdamWOptions& options, const HasMoment& has)
    : Optimizer(name, groups, options.lr, options.weight_decay, options.grad_clip),
      options_(options),
      exp_avg_(add_moments("exp_avg", has)),
      exp_avg_sq_(add_moments("exp_avg_sq", has)) {
  check_numbers(name, {{"eps", options.eps}});
  for (const double beta : {options.beta1, options.beta2}) check_beta(name, beta);
}

// One pass for each pair of betas, in which the gradients of other parameters are left out: what
// has no gradient does not change.
void AdamW::update(ParameterLists& parameters, const OptimizerStep& step) {
  const auto betas_of = [&](size_t i) {
    const Settings& own = settings()[i];
    return std::pair(own.beta1.value_or(options_.beta1), own.beta2.value_or(options_.beta2));
  };
  std::set<std::pair<double, double>> all;
  for (size_t i = 0; i < parameters.grads.size(); ++i) all.insert(betas_of(i));
  if (all.size() == 1)
    return kernel::adamw(parameters, exp_avg_, exp_avg_sq_, step, all.begin()->first,
                         all.begin()->second, options_.eps);
  for (const auto& betas : all) {
    ParameterLists some = parameters;
    for (size_t i = 0; i < some.grads.size(); ++i)
      if (betas_of(i) != betas) some.grads[i] = {};
    kernel::adamw(some, exp_avg_, exp_avg_sq_, step, betas.first, betas.second, options_.eps);
  }
}

// ---- Adam

Adam::Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options)
    : AdamW("Adam", groups,
            {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay,
             options.grad_clip}) {}

// The decay is added to clipped gradients, so that the kernel has none to clip.
void Adam::update(ParameterLists& parameters, const OptimizerStep& step) {
  if (std::none_of(settings().begin(), settings().end(), [](auto& of) { return of.decay > 0; }))
    return AdamW::update(parameters, step);
  ParameterLists lists = parameters;
  OptimizerStep clipped = step;
  clipped.clip = ones({}, Tensor(step.clip).options());
  const Tensor decay(parameters.decay);
  for (size_t i = 0; i < lists.grads.size(); ++i) {
    if (!lists.grads[i].defined()) continue;
    const Tensor p(lists.values[i]), share = decay.select(0, static_cast<int64_t>(i));
    const Tensor g = Tensor(lists.grads[i]) * Tensor(step.clip);  // f64 if g has no dimensions
    lists.grads[i] = g.to(p.dtype()) + p * share.to(p.dtype());
  }
  lists.decay = zeros_like(decay);
  AdamW::update(lists, clipped);
}

// ---- Lion

Lion::Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options)
    : Optimizer("Lion", groups, options.lr, options.weight_decay, options.grad_clip),
      options_(options) {
  for (const double beta : {options.beta1, options.beta2}) check_beta("Lion", beta);
  add_moments("exp_avg");
}

void Lion::update_parameter(ParameterUpdate& p) {
  const double beta1 = p.beta1.value_or(options_.beta1), beta2 = p.beta2.value_or(options_.beta2);
  Tensor& m = p.moments[0];
  p.value.mul_(1 - p.lr * p.weight_decay);
  p.value.sub_(p.lr * sign(m * beta1 + p.grad * (1 - beta1)));
  m.copy_(m * beta2 + p.grad * (1 - beta2));
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

using Groups = std::vector<ParameterGroup>;

// One with the options that a config gives to any optimizer with betas.
template <class Own, class Options>
static std::unique_ptr<Optimizer> with_betas(const Groups& groups, const TrainConfig& c) {
  Options options;
  options.lr = c.learning_rate;
  options.beta1 = c.beta1;
  options.beta2 = c.beta2;
  options.grad_clip = c.grad_clip;
  return std::make_unique<Own>(groups, options);
}

static Registry<MakeOptimizer>& optimizers() {
  static Registry<MakeOptimizer> table(
      "optimizer",
      {{"adamw", with_betas<AdamW, AdamWOptions>},
       {"adam", with_betas<Adam, AdamOptions>},
       {"lion", with_betas<Lion, LionOptions>},
       {"muon",
        [](const Groups& groups, const TrainConfig& c) {
          return std::make_unique<Muon>(groups, MuonOptions{.lr = c.learning_rate,
                                                            .momentum = c.momentum,
                                                            .adjust_lr = AdjustLr::match_rms_adamw,
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

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, const NamedTensors& parameters,
                                          const std::set<std::string>& tables) {
  check_limits("optimizer", {.choices = optimizer_names()}, config.optimizer);
  auto groups = decay_matrices(parameters, config.weight_decay);
  groups[0].tables = tables;
  std::unique_ptr<Optimizer> optimizer = (*optimizers().find(config.optimizer))(groups, config);
  INK_CHECK(optimizer, "make_optimizer: what add_optimizer was given for ", config.optimizer,
            " made none");
  return optimizer;
}

}  // namespace ink
