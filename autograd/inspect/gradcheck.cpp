#include "autograd/inspect/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "autograd/basic_ops.h"

namespace ink {
namespace {

using Tensors = std::vector<Tensor>;

// A random tensor of the same shape, from the check's own generator, not from the program's.
Tensor noise_like(const Tensor& x, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(x.numel()));
  for (double& value : values) value = normal(random);
  return from_vector(values, x.shape()).to(x.device());
}

// Every evaluation sees the same context, so that dropout repeats its mask.
Tensors evaluate(const CheckedFunction& f, const Tensors& inputs) {
  const ContextGuard guard;
  return f(inputs);
}

std::string index_text(const Tensor& x, int64_t i) {
  std::string text = "]";
  for (int64_t d = x.dim() - 1; d >= 0; --d) {
    text = (d ? ", " : "") + std::to_string(i % x.shape()[d]) + text;
    i /= x.shape()[d];
  }
  return "[" + text;
}

// A central difference, where v moves elements of one input:
//   sum of u (f(x + eps v) - f(x - eps v)) / (2 eps)
// move(values, step) adds step v to x's values, in row-major order.
class Difference {
 public:
  Difference(const CheckedFunction& f, const Tensors& inputs, const Tensors& upstream, double eps)
      : f_(f), inputs_(inputs), upstream_(upstream), eps_(eps) {}

  template <class Move>
  double along(Tensor x, Move move) const {
    const std::vector<double> before = x.tolist();
    // Outputs are read before x is put back, because one may share x's memory.
    const auto values_at = [&](double step) {
      std::vector<double> moved = before;
      move(moved, step);
      put(x, moved);
      std::vector<std::vector<double>> values;
      for (const Tensor& y : evaluate(f_, inputs_)) values.push_back(y.tolist());
      put(x, before);
      return values;
    };
    const auto above = values_at(eps_), below = values_at(-eps_);
    double total = 0;
    for (size_t k = 0; k < above.size(); ++k) {
      if (!upstream_[k].defined()) continue;
      const auto u = upstream_[k].tolist();
      const auto &a = above[k], &b = below[k];
      for (size_t i = 0; i < u.size(); ++i) total += a[i] == b[i] ? 0 : u[i] * (a[i] - b[i]);
    }
    return total / (2 * eps_);
  }

 private:
  static void put(Tensor& x, const std::vector<double>& values) {
    const NoGrad no_grad;
    x.copy_(from_vector(values, x.shape()).to(x.device()));
  }

  const CheckedFunction& f_;
  const Tensors &inputs_, &upstream_;
  double eps_;
};

struct Pair {
  std::string place;
  double analytic, numeric;
};

std::vector<Pair> check_elements(const Difference& difference, const Tensor& x, const Tensor& dx) {
  std::vector<Pair> pairs;
  const auto analytic = dx.tolist();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto place = static_cast<size_t>(i);
    const double numeric = difference.along(
        x, [&](std::vector<double>& values, double step) { values[place] += step; });
    pairs.push_back({index_text(x, i), analytic[static_cast<size_t>(i)], numeric});
  }
  return pairs;
}

std::vector<Pair> check_directions(const Difference& difference, const Tensor& x, const Tensor& dx,
                                   int count, std::mt19937_64& random) {
  std::vector<Pair> pairs;
  const auto analytic = dx.tolist();
  for (int k = 0; k < count; ++k) {
    const auto v = noise_like(x, random).tolist();
    double expected = 0;
    for (size_t i = 0; i < v.size(); ++i) expected += v[i] * analytic[i];
    const double numeric = difference.along(x, [&](std::vector<double>& values, double step) {
      for (size_t i = 0; i < v.size(); ++i) values[i] += step * v[i];
    });
    pairs.push_back({"direction " + std::to_string(k), expected, numeric});
  }
  return pairs;
}

void judge(const std::vector<Pair>& pairs, size_t input, const GradcheckOptions& options,
           GradcheckReport& report) {
  double scale = 0;
  for (const Pair& pair : pairs) scale = std::max(scale, std::abs(pair.numeric));
  for (const Pair& pair : pairs) {
    const double error = std::abs(pair.analytic - pair.numeric);
    const double tolerance =
        options.rtol * std::abs(pair.numeric) + options.atol * std::max(scale, 1e-3);
    const double ratio =
        std::isnan(error) ? std::numeric_limits<double>::infinity() : error / tolerance;
    ++report.checked;
    if (ratio > 1) report.ok = false;
    if (ratio >= report.worst) {
      report = {report.ok,     ratio,        input,     pair.place,
                pair.analytic, pair.numeric, tolerance, report.checked};
    }
  }
}

// A random gradient for each floating output that was computed from the inputs.
Tensors random_upstream(const Tensors& outputs, std::mt19937_64& random) {
  Tensors upstream;
  for (const Tensor& y : outputs)
    upstream.push_back(y.requires_grad() ? noise_like(y, random) : Tensor());
  return upstream;
}

// The pairs (output, upstream) that have a gradient, for ink::grad.
Grads analytic_gradients(const Tensors& outputs, const Tensors& upstream, const Tensors& wanted,
                         bool create_graph) {
  Tensors ys, us;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!upstream[k].defined()) continue;
    ys.push_back(outputs[k]);
    us.push_back(upstream[k]);
  }
  INK_CHECK(!ys.empty(), "gradcheck: no output requires grad: the function lost its graph");
  Grads grads = grad(ys, wanted, us, create_graph, create_graph);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) grads[i] = zeros_like(wanted[i]);
  }
  return grads;
}

Tensors checked_leaves(const char* op, const Tensors& inputs) {
  Tensors leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.defined() || !x.requires_grad()) continue;
    INK_CHECK(x.dtype() == f64, op, ": input ", i, " is ", x.dtype(),
              ", too coarse for differences; make it float64: x.to(f64), "
              "module.to(f64)");
    INK_CHECK(x.is_leaf(), op, ": input ", i, " was computed by ", x.slot()->node->name,
              "; pass x.detach().requires_grad_()");
    leaves.push_back(x);
  }
  INK_CHECK(!leaves.empty(), op, ": no input requires grad");
  return leaves;
}

}  // namespace

GradcheckReport gradcheck(const CheckedFunction& f, const Tensors& inputs,
                          GradcheckOptions options) {
  const Tensors leaves = checked_leaves("gradcheck", inputs);
  std::mt19937_64 random(options.seed);
  Tensors upstream;
  Grads analytic;
  {
    const Tensors outputs = evaluate(f, inputs);
    upstream = random_upstream(outputs, random);
    analytic = analytic_gradients(outputs, upstream, leaves, false);
  }
  const Difference difference(f, inputs, upstream, options.eps);
  GradcheckReport report;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& x = leaves[i];
    const bool small = x.numel() <= options.max_elements;
    judge(small ? check_elements(difference, x, analytic[i])
                : check_directions(difference, x, analytic[i], options.directions, random),
          i, options, report);
  }
  return report;
}

GradcheckReport gradgradcheck(const CheckedFunction& f, const Tensors& inputs,
                              GradcheckOptions options) {
  const Tensors leaves = checked_leaves("gradgradcheck", inputs);
  std::mt19937_64 random(options.seed + 1);
  Tensors upstream = random_upstream(evaluate(f, inputs), random);
  Tensors all = leaves;
  for (Tensor& u : upstream) {
    if (u.defined()) all.push_back(u.requires_grad_());
  }
  return gradcheck(
      [&](const Tensors&) { return analytic_gradients(f(inputs), upstream, leaves, true); }, all,
      options);
}

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  return out << (report.ok ? "ok" : "FAILED") << ": " << report.checked
             << " checked, worst at input " << report.input << " " << report.place << ": analytic "
             << report.analytic << ", numeric " << report.numeric << ", difference "
             << std::abs(report.analytic - report.numeric) << ", tolerance " << report.tolerance;
}

}  // namespace ink
