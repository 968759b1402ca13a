#include "train/flow/watch.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <map>
#include <string_view>

#include "autograd/base/text.h"
#include "autograd/engine/grad_store.h"
#include "autograd/more_ops.h"
#include "train/flow/parameter_parts.h"

namespace ink {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kFlat = 0.03;  // a slope

using Nonlinearity = std::function<Tensor(const Tensor&)>;

// The nonlinearities that can be saturated, by the names of their ops.
const Nonlinearity* nonlinearity(std::string_view op) {
  static const std::map<std::string_view, Nonlinearity> table = {
      {"tanh", [](auto& x) { return tanh(x); }},
      {"sigmoid", [](auto& x) { return sigmoid(x); }},
      {"relu", [](auto& x) { return relu(x); }},
      {"silu", [](auto& x) { return silu(x); }},
      {"elu", [](auto& x) { return elu(x); }},
      {"softplus", [](auto& x) { return softplus(x); }},
      {"gelu", [](auto& x) { return gelu(x); }},
      {"gelu_linear", [](auto& x) { return gelu(x, Gelu::tanh); }}};
  const auto found = table.find(op);
  return found == table.end() ? nullptr : &found->second;
}

// The share of x's elements where f is flat.
double share_saturated(const Nonlinearity& f, const Tensor& x) {
  const EnableGrad with_grad;
  const Tensor leaf = x.detach().to(f32).clone().requires_grad_();
  const Tensor slope = grad({sum(f(leaf))}, {leaf})[0];
  return mean((abs(slope) < kFlat).to(f32)).item();
}

void measure(ActivationStats& stats, const Tensor& y) {
  const auto [variance, center] = var_mean(y.detach().to(f32), {}, 0);
  stats.mean = center.item();
  stats.std = std::sqrt(variance.item());
}

// Measures outputs as they are computed, and their gradients when backward reaches them.
class Watch : public Flow {
 public:
  using Flow::Flow;
  std::vector<ActivationStats> activations;

 private:
  void listed(const FlowOp& op, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& outputs) override {
    const Nonlinearity* f = nonlinearity(op.name);
    if (op.name == "gelu_linear") add_hidden(op, *f, inputs[0]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].numel() <= 1 || !outputs[i].is_floating()) continue;  // such as the loss
      ActivationStats stats = stats_of(op, outputs[i].shape());
      if (outputs.size() > 1) stats.name += " output " + std::to_string(i);
      if (op.name == "add_layer_norm" || op.name == "add_rms_norm")
        stats.name = op.module + (i == 0 ? " residual" : "");
      {
        const Unseen unseen;
        measure(stats, outputs[i]);
        if (f && op.name != "gelu_linear") stats.saturated = share_saturated(*f, inputs[0]);
      }
      activations.push_back(stats);
      hook(outputs[i], activations.size() - 1);
    }
  }

  static ActivationStats stats_of(const FlowOp& op, const Shape& shape) {
    return {op.has_parameters ? op.module : op.title(), op.name, shape, 0, 0, kUnknown, kUnknown};
  }

  // gelu_linear hides the output of its gelu, which belongs to the module around.
  void add_hidden(const FlowOp& op, const Nonlinearity& f, const Tensor& x) {
    ActivationStats stats = stats_of(op, x.shape());
    const size_t dot = op.module.rfind('.');
    stats.name = dot == std::string::npos ? "gelu" : op.module.substr(0, dot) + " gelu";
    stats.op = "gelu";
    const Unseen unseen;
    measure(stats, f(x));
    stats.saturated = share_saturated(f, x);
    activations.push_back(stats);
  }

  void hook(Tensor y, size_t index) {
    y.register_hook([this, index](const Tensor& dy) -> Tensor {
      const Unseen unseen;
      activations[index].grad_std = std::sqrt(var_mean(dy.to(f32), {}, 0).first.item());
      return {};
    });
  }
};

std::string number(double x, int precision = 3) {
  if (std::isnan(x)) return "";
  TextStream text;
  text << std::setprecision(precision) << x;
  return text.str();
}

// Rows of cells in columns: the first one to the left, the others to the right.
void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i)
      line += std::string(2 + widths[i] - row[i].size(), ' ') + row[i];
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
}

}  // namespace

ModelStats watch(const Module& model, const std::function<Tensor()>& loss) {
  const ContextGuard guard;
  const EnableGrad with_grad;
  ModelStats stats;
  Watch watched(model);
  GradStore store;
  {
    const Observe observe(watched);
    const Tensor value = loss();
    INK_CHECK(value.numel() == 1, "watch: expected a loss of one element, got ", value.shape());
    stats.loss = value.item();
    backward(value, store);
  }
  stats.activations = std::move(watched.activations);
  const ParameterParts parts(model);
  const std::vector<double> norms = parts.norms([](const Tensor&p) { return p; }),
                            grads = parts.norms([&](const Tensor&p) { return store.get(p); });
  for (size_t i = 0; i < parts.size(); ++i)
    stats.parameters.push_back({parts.name(i), parts.count(i), norms[i], grads[i]});
  return stats;
}

std::ostream& operator<<(std::ostream& out, const ModelStats& stats) {
  std::vector<std::vector<std::string>> rows = {
      {"activation", "shape", "mean", "std", "saturated", "grad std"}};
  for (const ActivationStats& row : stats.activations) {
    const std::string saturated =
        std::isnan(row.saturated) ? "" : number(std::round(1000 * row.saturated) / 10) + " %";
    rows.push_back({row.name, detail::text(row.shape), number(row.mean, 2), number(row.std),
                    saturated, number(row.grad_std, 2)});
  }
  print_table(out, rows);
  rows = {{"parameter", "elements", "norm", "grad norm"}};
  for (const ParameterStats& row : stats.parameters)
    rows.push_back({row.name, std::to_string(row.count), number(row.norm), number(row.grad_norm)});
  out << "\n";
  print_table(out, rows);
  return out;
}

}  // namespace ink
