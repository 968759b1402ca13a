#include "autograd/inspect/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "autograd/basic_ops.h"
#include "autograd/inspect/lost_graph.h"
#include "autograd/inspect/values.h"
#include "autograd/random/generator.h"

namespace ink {
namespace {

using Tensors = std::vector<Tensor>;
using detail::checking::random_values, detail::checking::tensor_like, detail::checking::Values,
    detail::checking::values_of;

// A random tensor of the same shape, from the check's own generator, not from the program's.
Tensor noise_like(const Tensor& x, std::mt19937_64& random) {
  return tensor_like(x, random_values(static_cast<size_t>(x.numel()), random));
}

// Every evaluation sees the same context, so that dropout repeats its mask. Other draws repeat
// because f does (detail::repeats).
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

// The derivative of sum(u f(x)) along a direction v of one input, by differences.
struct Slope {
  double central = 0;   // (f(x + eps v) - f(x - eps v)) / (2 eps)
  double below = 0;     // (f(x) - f(x - eps v)) / eps
  double above = 0;     // (f(x + eps v) - f(x)) / eps
  double bend = 0;      // |above - below|, summed over the elements of f
  double rounding = 0;  // of the values of f
  double step = 0;      // the relative error of eps v, by the rounding of x
};

class Difference {
 public:
  Difference(const CheckedFunction& f, const Tensors& inputs, const Tensors& upstream,
             std::vector<Values> center, double eps)
      : f_(f), inputs_(inputs), upstream_(upstream), center_(std::move(center)), eps_(eps) {}

  static void put(Tensor x, const std::vector<double>& values) {
    const NoGrad no_grad;
    x.copy_(from_vector(values, x.shape()).to(x.device()));
  }

  Slope along(Tensor x, const Values& v) const {
    const std::vector<double> before = x.tolist();
    const auto moved_by = [&](double step) {
      std::vector<double> moved = before;
      for (size_t i = 0; i < v.size(); ++i)
        if (v[i] != 0) moved[i] += step * v[i];
      return moved;
    };
    const std::vector<double> moved = moved_by(eps_);
    // Outputs are read before x is put back, because one may share x's memory.
    const auto values_at = [&](const std::vector<double>& values_of_x) {
      put(x, values_of_x);
      auto values = values_of(evaluate(f_, inputs_));
      put(x, before);
      return values;
    };
    Slope slope;
    for (size_t i = 0; i < v.size(); ++i)
      if (eps_ * v[i] != 0)
        slope.step = std::max(slope.step, std::abs((moved[i] - before[i]) / (eps_ * v[i]) - 1));
    const auto above = values_at(moved), below = values_at(moved_by(-eps_));
    for (size_t k = 0; k < above.size(); ++k) {
      if (!upstream_[k].defined()) continue;
      const auto u = upstream_[k].tolist();
      const auto &a = above[k], &b = below[k], &c = center_[k];
      for (size_t i = 0; i < u.size(); ++i) {
        slope.central += a[i] == b[i] ? 0 : u[i] * (a[i] - b[i]) / (2 * eps_);
        slope.above += a[i] == c[i] ? 0 : u[i] * (a[i] - c[i]) / eps_;
        slope.below += b[i] == c[i] ? 0 : u[i] * (c[i] - b[i]) / eps_;
        if (a[i] != c[i] || b[i] != c[i])
          slope.bend += std::abs(u[i] * (a[i] + b[i] - 2 * c[i])) / eps_;
        slope.rounding += std::abs(u[i] * c[i]) * kRounding / eps_;
      }
    }
    return slope;
  }

 private:
  static constexpr double kRounding = std::numeric_limits<double>::epsilon();

  const CheckedFunction& f_;
  const Tensors &inputs_, &upstream_;
  std::vector<Values> center_;  // f(x)
  double eps_;
};

struct Pair {
  std::string place;
  double analytic, numeric;
  std::string doubt = {};
};

// A printed nan has no sign.
double plain(double x) { return std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x; }

// Why differences cannot show that a gradient is wrong; empty if they can.
std::string doubt_of(const Slope& slope, double analytic, double eps) {
  // A gradient of nan is as wrong as one of 0 where the sides agree.
  const double error = std::abs((std::isnan(analytic) ? 0 : analytic) - slope.central);
  const double rounded =
      2 * slope.rounding + 2 * slope.step * std::max(std::abs(analytic), std::abs(slope.central));
  if (error <= rounded)
    return detail::joined({"a step of eps = ", eps,
                           " is lost in rounding beside values so large: "
                           "scale them down, or raise eps"});
  if (error > slope.bend) return {};
  return detail::joined({"differences to the two sides are ", plain(slope.below), " and ",
                         plain(slope.above), ": no derivative there, or none within eps = ", eps,
                         "; check another point"});
}

// Along each element of a small tensor by itself, or along random directions.
std::vector<Pair> check_input(const Difference& difference, const Tensor& x, const Tensor& dx,
                              const GradcheckOptions& options, std::mt19937_64& random) {
  std::vector<Pair> pairs;
  const Values analytic = dx.tolist();
  const bool small = x.numel() <= options.max_elements;
  for (int64_t k = 0; k < (small ? x.numel() : options.directions); ++k) {
    Values v(analytic.size());
    if (small)
      v[static_cast<size_t>(k)] = 1;
    else
      v = random_values(v.size(), random);
    double expected = 0;
    for (size_t i = 0; i < v.size(); ++i)
      if (v[i] != 0) expected += v[i] * analytic[i];
    const Slope slope = difference.along(x, v);
    pairs.push_back({small ? index_text(x, k) : "direction " + std::to_string(k), expected,
                     slope.central, doubt_of(slope, expected, options.eps)});
  }
  return pairs;
}

CheckedInput judge(const std::vector<Pair>& pairs, size_t input, const GradcheckOptions& options) {
  CheckedInput result;
  result.input = input;
  double scale = 0;
  bool doubtful = true;  // everything that failed
  for (const Pair& pair : pairs) scale = std::max(scale, std::abs(pair.numeric));
  for (const Pair& pair : pairs) {
    const double error = std::abs(pair.analytic - pair.numeric);
    const double tolerance =
        options.rtol * std::abs(pair.numeric) + options.atol * std::max(scale, 1e-3);
    const double ratio =
        std::isnan(error) ? std::numeric_limits<double>::infinity() : error / tolerance;
    ++result.checked;
    if (ratio > 1) {
      doubtful &= !pair.doubt.empty();
      if (result.ok) result.doubt = pair.place + ": " + pair.doubt;
      result.ok = false;
    }
    if (ratio < result.worst) continue;
    result.worst = ratio;
    result.place = pair.place;
    result.analytic = plain(pair.analytic);
    result.numeric = plain(pair.numeric);
    result.tolerance = tolerance;
  }
  if (!doubtful) result.doubt.clear();
  return result;
}

void add(GradcheckReport& report, CheckedInput input) {
  const bool ok = report.ok && input.ok;
  const int64_t checked = report.checked + input.checked;
  if (input.checked > 0 && input.worst >= report.worst)
    static_cast<CheckedElements&>(report) = input;
  report.ok = ok;
  report.checked = checked;
  report.inputs.push_back(std::move(input));
}

// A random gradient for each floating output that was computed from the inputs.
Tensors random_upstream(const char* op, const Tensors& outputs, std::mt19937_64& random) {
  Tensors upstream;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& y = outputs[k];
    INK_CHECK(!y.requires_grad() || y.dtype() == f64, op, ": output ", k, " is ", y.dtype(),
              ", too coarse for differences; expected float64: let the function compute in the "
              "dtype of its inputs");
    upstream.push_back(y.requires_grad() ? noise_like(y, random) : Tensor());
  }
  return upstream;
}

// Throws where no output requires grad; says which op left the graph.
void check_graph(const char* op, const CheckedFunction& f, const Tensors& inputs,
                 const Tensors& leaves, const Tensors& outputs) {
  if (std::any_of(outputs.begin(), outputs.end(), [](auto& y) { return y.requires_grad(); }))
    return;
  LostGraph lost(leaves);
  const Observe observe(lost);
  evaluate(f, inputs);
  INK_CHECK(!lost.last().empty(), op,
            ": no output requires grad, and no op has read an input that does");
  detail::fail({op, ": no output requires grad: the function lost its graph at ", lost.last()});
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

// What failed, as far as the ops that ran tell.
void find_cause(const CheckedFunction& f, const Tensors& inputs, const Tensors& leaves,
                const GradcheckOptions& options, GradcheckReport& report) {
  for (uint64_t k = 0; k < 5 && report.ops.wrong.empty(); ++k)  // one direction may hide an error
    report.ops = check_ops([&] { evaluate(f, inputs); }, options.seed + k);
  if (!report.ops.wrong.empty()) return;
  if (!report.ops.coarse.empty()) {
    report.note = report.ops.coarse +
                  " computes in float32, too coarse for differences: let it "
                  "compute in the dtype of its inputs";
    return;
  }
  const CheckedInput* failed = nullptr;
  for (const CheckedInput& input : report.inputs)
    if (!input.ok && (!failed || (!failed->doubt.empty() && input.doubt.empty()))) failed = &input;
  if (!failed->doubt.empty()) {
    report.note = detail::joined({failed->name, " ", failed->shape, " ", failed->doubt});
    if (!report.ops.kink.empty()) report.note += " (at " + report.ops.kink + ")";
    return;
  }
  LostGraph lost(leaves);
  const Observe observe(lost);
  evaluate(f, inputs);
  report.note = "each op that ran is right by itself";
  const char* before = ", or could not be checked by itself: ";
  for (const std::string& name : report.ops.not_checked) {
    report.note += before + name;
    before = ", ";
  }
  report.note += "; ";
  report.note += !report.ops.kink.empty()
                     ? "no derivative at " + report.ops.kink + "; check another point"
                 : !lost.constant().empty() ? "the function leaves its graph at " + lost.constant()
                 : !report.ops.constant.empty()
                     ? report.ops.constant +
                           " does not move with its input, for which its vjp returns a "
                           "gradient: is it piecewise constant, or computed outside?"
                     : "does the function compute something outside the graph?";
}

// Nothing can be said of a function that draws numbers which the check does not repeat.
bool repeats_itself(const CheckedFunction& f, const Tensors& inputs,
                    const std::vector<Values>& before) {
  const auto now = values_of(evaluate(f, inputs));
  return std::equal(now.begin(), now.end(), before.begin(), before.end(), detail::checking::equal);
}

// Sees which nodes live on when all that a function returned is gone, and it has run again: what a
// layer computed last, it may keep to be looked at.
struct Leaks : Observer {
  std::vector<std::weak_ptr<Node>> nodes;
  void op(const char*, const Tensors&, const Tensors& outputs, bool recorded) override {
    if (recorded && outputs[0].slot()) nodes.push_back(outputs[0].slot()->node);
  }
};
std::string leak_of(const CheckedFunction& f, const Tensors& inputs) {
  Leaks leaks;
  {
    const Observe observe(leaks);
    evaluate(f, inputs);
  }
  evaluate(f, inputs);
  for (size_t i = leaks.nodes.size(); i-- > 0;)  // the newest one keeps those that it came from
    if (const auto node = leaks.nodes[i].lock()) return node->name;
  return {};
}

// What each op, and each vjp, gives.
struct Trace : Observer {
  explicit Trace(const Tensors& others) : not_given(others) {}
  const Tensors& not_given;
  bool captures = false;  // does an op read one of these?
  std::vector<std::pair<std::string, std::vector<Values>>> steps;
  void op(const char* name, const Tensors& inputs, const Tensors& outputs, bool recorded) override {
    if (!recorded) return;
    steps.emplace_back(name, values_of(outputs));
    for (const Tensor& x : inputs)
      for (const Tensor& other : not_given)
        captures |= x.defined() && x.storage() == other.storage();
  }
  void after_vjp(const Node& node, const Grads& grads) override {
    steps.emplace_back(std::string("the vjp of ") + node.name, values_of(grads));
  }
};
// The first op or vjp that gives something else where inputs are not contiguous; empty: none, or
// the function refuses such inputs, runs other ops, or reaches inputs by itself.
std::string depends_on_layout(const CheckedFunction& f, const Tensors& inputs,
                              const Tensors& leaves, const Tensors& upstream) {
  const auto run = [&](const Tensors& in, const Tensors& wanted, Trace& trace) {
    const Observe observe(trace);
    Tensors given;
    for (const Tensor& u : upstream) given.push_back(u.defined() ? u.detach().clone() : Tensor());
    analytic_gradients(evaluate(f, in), given, wanted, false);
  };
  const auto close = [](double a, double b) {
    return std::abs(a - b) <= 1e-9 * (1 + std::abs(a)) || detail::checking::equal({a}, {b});
  };
  Tensors spaced = inputs, wanted;
  for (Tensor& x : spaced) {
    if (!x.defined() || !x.requires_grad()) continue;
    x = detail::checking::spread(x, values_of(x), 2).requires_grad_();
    wanted.push_back(x);
  }
  const Tensors none;
  Trace usual(none), other(leaves);
  try {
    run(inputs, leaves, usual);
    run(spaced, wanted, other);
  } catch (const Error&) {
    return {};
  }
  for (size_t i = 0; i < std::min(usual.steps.size(), other.steps.size()); ++i) {
    const auto& [name, values] = usual.steps[i];
    const auto& [other_name, found] = other.steps[i];
    if (other.captures || name != other_name || values.size() != found.size()) return {};
    for (size_t k = 0; k < values.size(); ++k)
      if (!std::equal(values[k].begin(), values[k].end(), found[k].begin(), found[k].end(), close))
        return name;
  }
  return {};
}

// What an op whose gradients are right may do wrong all the same.
std::string other_fault(const CheckedFunction& f, const Tensors& inputs, const Tensors& leaves,
                        const Tensors& upstream) {
  if (const std::string leak = leak_of(f, inputs); !leak.empty())
    return leak +
           " is never freed: its vjp, which it holds, captures its output (keep it as "
           "Saved::output), or the function keeps all that it computes";
  if (const std::string op = depends_on_layout(f, inputs, leaves, upstream); !op.empty())
    return op +
           " gives something else where its input is not contiguous: let it read "
           "x.contiguous()";
  return {};
}

std::string name_of(size_t input, const GradcheckOptions& options) {
  return input < options.names.size() ? options.names[input] : "input " + std::to_string(input);
}

GradcheckReport check(const char* op, const CheckedFunction& f, const Tensors& inputs,
                      const GradcheckOptions& options) {
  const Tensors leaves = checked_leaves(op, inputs);
  std::mt19937_64 random(options.seed);
  Tensors upstream;
  Grads analytic;
  std::vector<Values> center;
  const std::vector<Values> before = values_of(leaves);
  {
    const Tensors outputs = evaluate(f, inputs);
    check_graph(op, f, inputs, leaves, outputs);
    upstream = random_upstream(op, outputs, random);
    center = values_of(outputs);
    Tensors given;  // a vjp may write it, and leaves
    for (const Tensor& u : upstream) given.push_back(u.defined() ? u.detach().clone() : Tensor());
    analytic = analytic_gradients(outputs, given, leaves, false);
  }
  for (size_t k = 0; k < leaves.size(); ++k) Difference::put(leaves[k], before[k]);  // see `given`
  const Difference difference(f, inputs, upstream, center, options.eps);
  GradcheckReport report;
  for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.defined() || !x.requires_grad()) continue;
    const Tensor& dx = analytic[k++];
    CheckedInput input = judge(check_input(difference, x, dx, options, random), i, options);
    input.name = name_of(i, options);
    input.shape = x.shape();
    add(report, std::move(input));
  }
  if (!report.ok && !repeats_itself(f, inputs, center)) {
    report.note =
        "the function gives other values when it is called again: it may change no state, and "
        "draw from default_generator() alone, whose numbers the check repeats";
  } else if (options.finds_ops && report.ok) {
    OpsCheck vjps = check_vjps([&] { evaluate(f, inputs); }, options.seed);
    report.ok = vjps.wrong.empty();
    if (!report.ok) report.ops = std::move(vjps);
    if (report.ok) report.note = other_fault(f, inputs, leaves, upstream);
    report.ok = report.ok && report.note.empty();
  } else if (options.finds_ops) {
    find_cause(f, inputs, leaves, options, report);
  }
  return report;
}

// A fused op has two gradients: that of its kernel, and under create_graph the one that is
// differentiated again. They must be equal.
void compare_gradients(const CheckedFunction& f, const Tensors& inputs, const Tensors& leaves,
                       const Tensors& upstream, const GradcheckOptions& options,
                       GradcheckReport& report) {
  const Grads plain = analytic_gradients(evaluate(f, inputs), upstream, leaves, false),
              recorded = analytic_gradients(evaluate(f, inputs), upstream, leaves, true);
  for (size_t k = 0; k < leaves.size(); ++k) {
    const std::vector<double> expected = plain[k].tolist(), found = recorded[k].tolist();
    std::vector<Pair> pairs;
    for (size_t i = 0; i < found.size(); ++i)
      pairs.push_back({index_text(leaves[k], static_cast<int64_t>(i)), found[i], expected[i], {}});
    const CheckedInput input = judge(pairs, k, options);
    if (input.ok) continue;
    report.ok = false;
    report.note = detail::joined(
        {"under create_graph the gradient of a tensor ", leaves[k].shape(), " is ", input.analytic,
         " at ", input.place, ", without it ", input.numeric,
         ": a vjp returns something else if (grad_enabled()); gradcheck checks what it returns "
         "otherwise"});
  }
}

std::string text_of(const CheckedElements& checked) {
  return detail::joined({checked.place, ": analytic ", checked.analytic, ", numeric ",
                         checked.numeric, ", difference ",
                         std::abs(checked.analytic - checked.numeric), ", tolerance ",
                         checked.tolerance});
}

}  // namespace

GradcheckReport gradcheck(const CheckedFunction& f, const TensorList& inputs,
                          GradcheckOptions options) {
  return check("gradcheck", detail::repeats(f), inputs, options);
}

GradcheckReport gradgradcheck(const CheckedFunction& function, const TensorList& inputs,
                              GradcheckOptions options) {
  const CheckedFunction f = detail::repeats(function);
  const Tensors leaves = checked_leaves("gradgradcheck", inputs);
  std::mt19937_64 random(options.seed + 1);
  const Tensors outputs = evaluate(f, inputs);
  check_graph("gradgradcheck", f, inputs, leaves, outputs);
  Tensors upstream = random_upstream("gradgradcheck", outputs, random);
  Tensors all = inputs;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) names.push_back(name_of(i, options));
  for (size_t k = 0; k < upstream.size(); ++k) {
    if (!upstream[k].defined()) continue;
    all.push_back(upstream[k].requires_grad_());
    names.push_back("the gradient of output " + std::to_string(k));
  }
  options.names = std::move(names);
  GradcheckReport report = check(
      "gradgradcheck",
      [&](const Tensors&) { return analytic_gradients(f(inputs), upstream, leaves, true); }, all,
      options);
  compare_gradients(f, inputs, leaves, upstream, options, report);
  return report;
}

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  out << (report.ok ? "ok: " : "FAILED: ");
  for (const WrongGradient& wrong : report.ops.wrong) out << wrong << "\n";
  if (!report.note.empty()) out << report.note << "\n";
  out << std::to_string(report.checked) << " checked";
  if (report.inputs.empty()) return out;
  out << ", worst at ";
  for (const CheckedInput& input : report.inputs)
    if (input.input == report.input) out << input.name << " " << input.shape << " ";
  out << text_of(report);
  if (report.ok) return out;
  for (const CheckedInput& input : report.inputs) {
    out << "\n  " << (input.ok ? "ok      " : "FAILED  ") << input.name << " " << input.shape;
    if (!input.ok && input.checked > 0) out << ", worst " << text_of(input);
  }
  return out;
}

}  // namespace ink
