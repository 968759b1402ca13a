// Optimizers: AdamW, Adam, Lion and SGD (muon.h has Muon), with parameter groups and clipping by
// the global norm. They skip a step whose gradients are not finite.
//
//   AdamW optimizer(decay_matrices(model.named_parameters(), 0.1), {.lr = 1e-3, .grad_clip = 1});
//   for (...) {
//     optimizer.set_lr(schedule(i));
//     loss.backward();
//     optimizer.step(loss);
//     optimizer.zero_grad();
//   }
//
// A step reads nothing back. Whether it was skipped, its gradient norm and the counts are tensors
// (status()) that can be read at any time. The formulas are PyTorch's.
//
// An optimizer of your own says how one parameter changes, in public ops. The rest (groups,
// clipping, skipped steps, saving and resuming, GPUs) is as for these:
//
//   struct Signum : Optimizer {  // Bernstein et al. 2018
//     double momentum;
//     Signum(const std::vector<ParameterGroup>& groups, const TrainConfig& c)
//         : Optimizer("Signum", groups, c.learning_rate, c.weight_decay, c.grad_clip),
//           momentum(c.momentum) {
//       add_moments("momentum_buffer");
//     }
//     void update_parameter(ParameterUpdate& p) override {
//       Tensor& m = p.moments[0];
//       m.copy_(m * momentum + p.grad * (1 - momentum));
//       p.value.mul_(1 - p.lr * p.weight_decay);
//       p.value.sub_(p.lr * sign(m));
//     }
//   };
//   add_optimizer<Signum>("signum");  // TrainConfig::optimizer, so --optimizer, may be "signum"
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/io/serialize.h"
#include "autograd/loops/optimizer.h"
#include "autograd/tensor.h"

namespace ink {

struct TrainConfig;  // config.h

/// Parameters with the same settings.
struct ParameterGroup {
  NamedTensors parameters = {};
  std::optional<double> weight_decay = {};  ///< replaces the optimizer's
  double lr_scale = 1;                      ///< multiplies the learning rate
  /// Replaces the learning rate that the optimizer was made with. set_lr then changes it by the
  /// same factor as that one, as PyTorch's schedulers do.
  std::optional<double> lr = {};
  std::optional<double> beta1 = {}, beta2 = {};  ///< replace those of an optimizer that has betas
  /// Names of embeddings and heads among them: Muon leaves these matrices to AdamW (muon.h).
  std::set<std::string> tables = {};
};

/// nanoGPT's two groups: tensors with two dimensions or more (matrices, embeddings) decay, all
/// others (biases, norms) do not.
std::vector<ParameterGroup> decay_matrices(const NamedTensors& parameters, double weight_decay);

/// The results of the last step, as tensors, so that the host need not read them.
struct OptimizerStatus {
  Tensor lr;         ///< f64 (): learning rate
  Tensor grad_norm;  ///< f64 (): Euclidean norm of all gradients together, before clipping
  Tensor clip;       ///< f64 (): the factor that clips gradients; 1 when they need not be clipped
  Tensor finite;     ///< bool (): were the loss and all gradients finite?
  Tensor skipped;    ///< i64 (2): how many steps were skipped, in all and since the last good one
  Tensor loss_sum;   ///< f32 (): the losses of steps that were not skipped, added; yours to zero
};

/// One parameter in a step, for Optimizer::update_parameter. Numbers are tensors f64 (), so that a
/// device need not wait for the host; beside an f32 tensor they do not change its dtype.
struct ParameterUpdate {
  std::string name;
  Tensor value;                        ///< to be written in place, such as by sub_
  Tensor grad;                         ///< clipped
  std::vector<Tensor> moments;         ///< in the order of add_moments; to be written in place
  Tensor lr;                           ///< f64 (): with the group's lr_scale
  Tensor weight_decay;                 ///< f64 ()
  std::optional<double> beta1, beta2;  ///< the group's, if it has its own
  Tensor step;                         ///< i64 (): its updates so far, with this one: from 1
};

/// Parameters under the names "0", "1", ..., for those of module.parameters(). A prefix, such as
/// "head.", tells those of several modules apart.
NamedTensors numbered(const std::vector<Tensor>& parameters, const std::string& prefix = "");

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient. If a gradient or the loss (any shape; may be left
  /// out) is not finite, the step is skipped: values, moments and step counts stay as they are.
  /// (A GPU takes f64 whose squares overflow, beyond about 1e154, for not finite.)
  /// Gradients are not changed. Throws, and changes nothing, if a gradient's shape, dtype or device
  /// is not the parameter's. norm: f64 (), of the gradients of all processes, where each has some;
  /// left out, it is that of these gradients.
  void step(const Tensor& loss = {}, const Tensor& norm = {});
  /// Every gradient becomes undefined.
  void zero_grad();
  /// Sets the learning rate of the next steps.
  void set_lr(double lr);
  /// More parameters, whose moments and counts begin at zero, such as those of a layer that was
  /// frozen so far. Throws, and adds nothing, as the constructor does.
  virtual void add_group(const ParameterGroup& group);

  /// Learning rate, gradient norm, clip factor, finite flag and counts, as the last step left them.
  const OptimizerStatus& status() const { return status_; }
  /// The parameters it updates, in the order of the groups.
  const NamedTensors& parameters() const { return parameters_; }

  /// All that training changes, to be saved. Handles share the optimizer's memory.
  ///   KIND.NAME   for each parameter. AdamW, Adam: exp_avg, exp_avg_sq and step; Lion: exp_avg
  ///               and step; SGD: momentum_buffer and step; Muon: as SGD or as AdamW
  ///   skipped     the counts of skipped steps
  NamedTensors state() const;
  /// Copies a saved state in. If names are missing or unexpected, or shapes differ, one error lists
  /// them all, and nothing is copied.
  void load_state(const NamedTensors& state);

 protected:
  /// Parameters that do not require grad are left out, and cost no memory. Throws on one that is
  /// listed twice, that is not a leaf, or whose memory is strided; on a name used twice.
  Optimizer(std::string name, const std::vector<ParameterGroup>& groups, double lr,
            double weight_decay, double grad_clip);

  /// Does a parameter of this name have a moment?
  using HasMoment = std::function<bool(const std::string& name, const Tensor& value)>;
  /// A zero tensor beside each parameter, saved as `kind`.NAME; undefined beside those that `has`,
  /// if it is given, denies one.
  Arrays& add_moments(const std::string& kind, HasMoment has = {});

  /// Changes one parameter, which has a gradient, and its moments, under NoGrad. An optimizer of
  /// your own defines it. If the step is not finite, nothing that it writes there stays.
  virtual void update_parameter(ParameterUpdate& parameter);
  /// All of them in one pass, or none if the step is not finite: by default, one by one.
  virtual void update(ParameterLists& parameters, const OptimizerStep& step);

  /// What a parameter's group says, in the order of parameters().
  struct Settings {
    double lr_scale, decay;
    std::optional<double> beta1, beta2;
  };
  const std::vector<Settings>& settings() const { return settings_; }
  const std::string& name() const { return name_; }

 private:
  struct Moments {
    std::string kind;
    HasMoment has;
    std::unique_ptr<Arrays> arrays;

    void add(const NamedTensors& parameters);  // to arrays, one for each
  };
  void add_groups(const std::vector<ParameterGroup>& groups);
  Settings settings_of(const ParameterGroup& group) const;
  void check_gradients() const;
  OptimizerStep step_arrays() const;
  void note_update(const std::vector<Tensor>& grads) const;  // for observers

  std::string name_;
  double lr_, weight_decay_, grad_clip_;  // that it was made with
  NamedTensors parameters_;
  std::vector<Settings> settings_;
  ParameterLists lists_;  // all lists but the gradients, which change from step to step
  OptimizerStatus status_;
  std::vector<Moments> moments_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double grad_clip = 0;  ///< gradients are scaled down to this global norm; 0: never
};

/// Loshchilov and Hutter 2019, with t counting a parameter's updates from 1:
///   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
///   p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
class AdamW : public Optimizer {
 public:
  /// Throws unless lr, eps, weight_decay and grad_clip are >= 0 and both betas lie in [0, 1).
  AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options = {});
  AdamW(std::initializer_list<ParameterGroup> groups, const AdamWOptions& options = {})
      : AdamW(std::vector<ParameterGroup>(groups), options) {}
  AdamW(const NamedTensors& parameters, const AdamWOptions& options = {})
      : AdamW(std::vector<ParameterGroup>{{parameters}}, options) {}
  AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {})
      : AdamW(numbered(parameters), options) {}

 protected:
  /// has: which parameters it updates, all by default.
  AdamW(const char* name, const std::vector<ParameterGroup>& groups, const AdamWOptions& options,
        const HasMoment& has = {});
  void update(ParameterLists& parameters, const OptimizerStep& step) override;

 private:
  AdamWOptions options_;
  Arrays &exp_avg_, &exp_avg_sq_;  // m and v
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip = 0;  ///< as for AdamW
};

/// Kingma and Ba 2015, with L2 decay: g = g + weight_decay p after clipping, and then a step of
/// AdamW without decay.
class Adam : public AdamW {
 public:
  Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options = {});
  Adam(std::initializer_list<ParameterGroup> groups, const AdamOptions& options = {})
      : Adam(std::vector<ParameterGroup>(groups), options) {}
  Adam(const NamedTensors& parameters, const AdamOptions& options = {})
      : Adam(std::vector<ParameterGroup>{{parameters}}, options) {}
  Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {})
      : Adam(numbered(parameters), options) {}

 private:
  void update(ParameterLists& parameters, const OptimizerStep& step) override;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  double grad_clip = 0;  ///< as for AdamW
};

/// Chen et al. 2023. A learning rate 3 to 10 times lower than AdamW's, and a weight decay as many
/// times higher, is about as much.
///   p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g)
///   m = beta2 m + (1 - beta2) g
class Lion : public Optimizer {
 public:
  /// Throws as AdamW does.
  Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options = {});
  Lion(std::initializer_list<ParameterGroup> groups, const LionOptions& options = {})
      : Lion(std::vector<ParameterGroup>(groups), options) {}
  Lion(const NamedTensors& parameters, const LionOptions& options = {})
      : Lion(std::vector<ParameterGroup>{{parameters}}, options) {}
  Lion(const std::vector<Tensor>& parameters, const LionOptions& options = {})
      : Lion(numbered(parameters), options) {}

 private:
  void update_parameter(ParameterUpdate& p) override;

  LionOptions options_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double grad_clip = 0;  ///< as for AdamW
};

/// Sutskever et al. 2013, in PyTorch's form: the learning rate stays outside the momentum.
///   g = g + weight_decay p
///   b = momentum b + g
///   p = p - lr (nesterov ? g + momentum b : b)
class SGD : public Optimizer {
 public:
  /// Throws unless all numbers are >= 0, and if nesterov is set without a momentum.
  SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options = {});
  SGD(std::initializer_list<ParameterGroup> groups, const SGDOptions& options = {})
      : SGD(std::vector<ParameterGroup>(groups), options) {}
  SGD(const NamedTensors& parameters, const SGDOptions& options = {})
      : SGD(std::vector<ParameterGroup>{{parameters}}, options) {}
  SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {})
      : SGD(numbered(parameters), options) {}

 private:
  void update(ParameterLists& parameters, const OptimizerStep& step) override;

  SGDOptions options_;
  Arrays no_buffer_;
  Arrays* momentum_buffer_;  // no_buffer_ without momentum
};

// ---- by name

/// Makes a run's optimizer for these groups.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterGroup>&,
                                                               const TrainConfig&)>;
/// From now on TrainConfig::optimizer, and so --optimizer, may be `name`. Call it before other
/// threads run. Throws if there is an optimizer of that name.
void add_optimizer(const std::string& name, MakeOptimizer make);
/// ... made as an Own(groups, config).
template <class Own>
void add_optimizer(const std::string& name) {
  static_assert(
      std::constructible_from<Own, const std::vector<ParameterGroup>&, const TrainConfig&>,
      "an optimizer has a constructor that takes the groups and a const TrainConfig&");
  add_optimizer(name, [](const std::vector<ParameterGroup>& groups, const TrainConfig& config) {
    return std::make_unique<Own>(groups, config);
  });
}
/// "adam", "adamw", "lion", "muon", "sgd", and those that were added.
std::vector<std::string> optimizer_names();
/// The optimizer that the config names, of nanoGPT's two groups. tables: as in ParameterGroup.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, const NamedTensors& parameters,
                                          const std::set<std::string>& tables = {});

}  // namespace ink
