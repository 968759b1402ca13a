// Optimizers: AdamW, Adam and SGD, with parameter groups and clipping by the global norm. They skip
// a step whose gradients are not finite.
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
// clipping, skipped steps, saving and resuming, GPUs) is as for these two:
//
//   struct Lion : Optimizer {  // Chen et al. 2023
//     double beta1, beta2;
//     Lion(const std::vector<ParameterGroup>& groups, const TrainConfig& c)
//         : Optimizer("Lion", groups, c.learning_rate, c.weight_decay, c.grad_clip),
//           beta1(c.beta1), beta2(c.beta2) { add_moments("exp_avg"); }
//     void update_parameter(ParameterUpdate& p) override {
//       Tensor& m = p.moments[0];
//       p.value.mul_(1 - p.lr * p.weight_decay);
//       p.value.sub_(p.lr * sign(m * beta1 + p.grad * (1 - beta1)));
//       m.copy_(m * beta2 + p.grad * (1 - beta2));
//     }
//   };
//   add_optimizer<Lion>("lion");  // TrainConfig::optimizer, and so --optimizer, may be "lion"
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  double lr_scale = 1;                      ///< multiplies the optimizer's learning rate
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
};

/// One parameter in a step, for Optimizer::update_parameter. Numbers are tensors f64 (), so that a
/// device need not wait for the host; beside an f32 tensor they do not change its dtype.
struct ParameterUpdate {
  std::string name;
  Tensor value;                 ///< to be written in place, such as by sub_
  Tensor grad;                  ///< clipped
  std::vector<Tensor> moments;  ///< in the order of add_moments; to be written in place
  Tensor lr;                    ///< f64 (): with the group's lr_scale
  Tensor weight_decay;          ///< f64 ()
  Tensor step;                  ///< i64 (): its updates so far, with this one: from 1
};

/// Parameters under the names "0", "1", ..., for those of module.parameters().
NamedTensors numbered(const std::vector<Tensor>& parameters);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient. If a gradient or the loss (any shape; may be left
  /// out) is not finite, the step is skipped: values, moments and step counts stay as they are.
  /// Gradients are not changed. Throws, and changes nothing, if a gradient's shape, dtype or device
  /// is not the parameter's.
  void step(const Tensor& loss = {});
  /// Every gradient becomes undefined.
  void zero_grad();
  /// Sets the learning rate of the next steps.
  void set_lr(double lr);

  /// Learning rate, gradient norm, clip factor, finite flag and counts, as the last step left them.
  const OptimizerStatus& status() const { return status_; }
  /// The parameters it updates, in the order of the groups.
  const NamedTensors& parameters() const { return parameters_; }

  /// All that training changes, to be saved. Handles share the optimizer's memory.
  ///   KIND.NAME   for each parameter. AdamW, Adam: exp_avg, exp_avg_sq and step; SGD:
  ///               momentum_buffer and step
  ///   skipped     the counts of skipped steps
  NamedTensors state() const;
  /// Copies a saved state in. If names are missing or unexpected, or shapes differ, one error lists
  /// them all, and nothing is copied.
  void load_state(const NamedTensors& state);

 protected:
  /// Parameters that do not require grad are left out. Throws on one that is listed twice, that is
  /// not a leaf, or whose memory is strided; on a name used twice.
  Optimizer(const char* name, const std::vector<ParameterGroup>& groups, double lr,
            double weight_decay, double grad_clip);

  /// A zero tensor beside each parameter, saved as `kind`.NAME.
  Arrays& add_moments(const char* kind);

  /// Changes one parameter, which has a gradient, and its moments, under NoGrad. An optimizer of
  /// your own defines it. If the step is not finite, nothing that it writes there stays.
  virtual void update_parameter(ParameterUpdate& parameter);

 private:
  /// All of them in one pass, or none if the step is not finite: by default, one by one.
  virtual void update(ParameterLists& parameters, const OptimizerStep& step);
  void check_gradients() const;
  OptimizerStep step_arrays() const;
  void note_update(const std::vector<Tensor>& grads) const;  // for observers

  const char* name_;
  double grad_clip_;
  NamedTensors parameters_;
  ParameterLists lists_;  // all lists but the gradients, which change from step to step
  OptimizerStatus status_;
  std::vector<std::pair<const char*, std::unique_ptr<Arrays>>> moments_;
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
  AdamW(const NamedTensors& parameters, const AdamWOptions& options = {})
      : AdamW(std::vector<ParameterGroup>{{parameters}}, options) {}
  AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {})
      : AdamW(numbered(parameters), options) {}

 protected:
  AdamW(const char* name, const std::vector<ParameterGroup>& groups, const AdamWOptions& options);
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
  Adam(const NamedTensors& parameters, const AdamOptions& options = {})
      : Adam(std::vector<ParameterGroup>{{parameters}}, options) {}
  Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {})
      : Adam(numbered(parameters), options) {}

 private:
  void update(ParameterLists& parameters, const OptimizerStep& step) override;

  bool decays_;  // does any group?
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
  add_optimizer(name, [](const std::vector<ParameterGroup>& groups, const TrainConfig& config) {
    return std::make_unique<Own>(groups, config);
  });
}
/// "adamw", "sgd", and those that were added.
std::vector<std::string> optimizer_names();
/// The optimizer that the config names, of nanoGPT's two groups.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config,
                                          const NamedTensors& parameters);

}  // namespace ink
