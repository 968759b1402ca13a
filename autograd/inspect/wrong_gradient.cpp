// Which op returns a wrong gradient.
//
// An observer is told of each op when it has run. So the moment before op n is that after op n - 1:
// there the memory of one of n's inputs is moved, and after n its outputs are read. What else might
// have changed n's outputs is looked for: the values of all its inputs have to be the expected
// ones, or else nothing is said of that input. (The function may have computed another input from
// the same memory, outside the graph; or written it in place.)
#include "autograd/inspect/wrong_gradient.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "autograd/basic_ops.h"
#include "autograd/engine/observer.h"
#include "autograd/inspect/values.h"
#include "autograd/random/generator.h"

namespace ink {
namespace {

using detail::checking::Aside, detail::checking::equal, detail::checking::flip,
    detail::checking::in_f32, detail::checking::places, detail::checking::random_values,
    detail::checking::spread, detail::checking::StoragePtr, detail::checking::tensor_like,
    detail::checking::Values, detail::checking::values_of, detail::checking::whole,
    detail::checking::write;
constexpr double kStep = 1e-6;

// The memory of an input: an output of an earlier op, or that of a leaf.
struct Memory {
  std::optional<size_t> op;  // which op made it; none: nobody
  size_t output = 0;
  StoragePtr leaf;
};

// An op of the first run.
struct Op {
  size_t number;  // of those that were recorded
  std::string name;
  std::shared_ptr<Node> node;
  std::vector<Tensor> inputs, outputs;  // whose places in the graph later writes may change
  std::vector<bool> output_has_gradient;
  std::vector<Values> input_values, output_values;
  std::vector<Memory> memories;  // of the inputs
  std::vector<Values> upstream;  // random gradients of the outputs; empty where there is none
  std::vector<Values> dxs;       // what the vjp returned; empty for an input without a gradient
  std::optional<WrongGradient> wrong;

  bool has_gradient(size_t i) const { return node && node->inputs[i]; }
  bool shares(size_t i, size_t j) const {
    return inputs[j].defined() && inputs[j].storage() == inputs[i].storage();
  }
  bool writes(size_t i) const {
    return std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& y) {
      return inputs[i].defined() && y.storage() == inputs[i].storage();
    });
  }
};

// ---- the first run: what ran, and what the vjps say

class FirstRun : public Observer {
 public:
  std::vector<Op> ops;

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override {
    if (!recorded) return;
    Op op{ops.size(), name, nullptr, inputs, outputs, {}, {}, {}, {}, {}, {}, {}};
    for (const Tensor& y : outputs) {
      op.output_has_gradient.push_back(y.slot() != nullptr);
      if (y.slot()) op.node = y.slot()->node;
    }
    op.input_values = values_of(inputs);
    op.output_values = values_of(outputs);
    for (const Tensor& x : inputs) op.memories.push_back(memory_of(x));
    for (size_t i = 0; i < outputs.size(); ++i)
      made_.emplace(outputs[i].storage().get(), Memory{ops.size(), i, nullptr});
    ops.push_back(std::move(op));
  }

 private:
  Memory memory_of(const Tensor& x) const {
    if (!x.defined()) return {};
    const auto found = made_.find(x.storage().get());
    return found == made_.end() ? Memory{{}, 0, x.storage()} : found->second;
  }
  std::unordered_map<const Storage*, Memory> made_;  // all of which `ops` holds
};

// The walk, as a vjp sees it that is called alone.
struct AloneContext : VjpContext {
  AloneContext(const Op& op, Grads sums)
      : op_(op), sums_(std::move(sums)), added_(op.inputs.size()) {}
  bool needs(size_t i) const override { return op_.has_gradient(i); }
  Tensor sum_so_far(size_t i) override {
    if (sums_.empty() || !needs(i)) return {};
    added_[i] = true;
    return sums_[i];
  }
  void continue_from(const Tensor&, const Tensor&) override {
    detail::fail({"check_ops: ", op_.name, " continues the walk by itself"});
  }
  /// The sum that the vjp asked for; undefined if it did not.
  Tensor added(size_t i) const { return added_[i] ? sums_[i] : Tensor(); }

 private:
  const Op& op_;
  const Grads sums_;
  std::vector<bool> added_;
};

Grads spread(const Op& op, const std::vector<Values>& upstream, int64_t stride = 1) {
  Grads dys;
  for (size_t k = 0; k < op.outputs.size(); ++k)
    dys.push_back(op.output_has_gradient[k] ? spread(op.outputs[k], upstream[k], stride)
                                            : Tensor());
  return dys;
}

// dys have another holder, as in a walk that shares them.
std::vector<Values> run_vjp(const Op& op, const Grads& dys, AloneContext& asked) {
  const Aside aside;
  const Restore<Node*> running(Node::running, op.node.get());
  std::vector<Values> dxs = values_of(op.node->vjp(Grads(dys), asked));
  dxs.resize(op.inputs.size());
  for (size_t i = 0; i < dxs.size(); ++i) {
    if (!op.has_gradient(i)) dxs[i].clear();
    if (op.has_gradient(i) && dxs[i].empty()) dxs[i].resize(op.input_values[i].size());
  }
  return dxs;
}

bool is_f64(const Op& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (op.has_gradient(i) && op.inputs[i].dtype() != f64) return false;
  for (size_t k = 0; k < op.outputs.size(); ++k)
    if (op.output_has_gradient[k] && op.outputs[k].dtype() != f64) return false;
  return true;
}

WrongGradient fault_of(const Op& op, size_t i, std::string when = {}) {
  return {.op = op.name,
          .output = op.outputs[0].shape(),
          .input = i,
          .shape = op.inputs[i].defined() ? op.inputs[i].shape() : Shape(),
          .when = std::move(when),
          .error = {},
          .fails_at = {}};
}

// The vjp, with upstream gradients for which `expected` is known to be right. before: the values of
// sums that it may add to.
std::optional<WrongGradient> compare(const Op& op, const Grads& dys,
                                     const std::vector<Values>& expected, const std::string& when,
                                     const std::vector<Values>& before = {}) {
  Grads sums;
  for (size_t i = 0; i < before.size(); ++i)
    sums.push_back(op.has_gradient(i) ? tensor_like(op.inputs[i], before[i]) : Tensor());
  AloneContext asked(op, std::move(sums));
  std::vector<Values> dxs;
  try {
    dxs = run_vjp(op, dys, asked);
  } catch (const std::exception& error) {
    WrongGradient wrong = fault_of(op, 0, when);
    wrong.error = "fails " + when + ": " + error.what();
    return wrong;
  }
  for (size_t i = 0; i < dxs.size(); ++i) {
    const Tensor sum = asked.added(i);
    const Values found = sum.defined() ? values_of(sum) : dxs[i];
    for (size_t e = 0; e < found.size(); ++e) {
      const double right = expected[i][e] + (sum.defined() ? before[i][e] : 0);
      const bool close = std::abs(found[e] - right) <= 1e-9 * (1 + std::abs(right));
      if (close || equal({found[e]}, {right})) continue;
      WrongGradient wrong = fault_of(op, i, when);
      wrong.analytic = found[e], wrong.numeric = right;
      return wrong;
    }
  }
  return {};
}

std::vector<Values> gradients(const Op& op, const std::vector<Values>& upstream) {
  AloneContext asked(op, {});
  return run_vjp(op, spread(op, upstream), asked);
}

// The vjp is wrong if it has written these tensors, which are then put back.
void check_unwritten(Op& op, const char* what, const std::vector<Tensor>& tensors,
                     const std::vector<Values>& before) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || equal(values_of(tensors[i]), before[i])) continue;
    op.wrong = fault_of(op, 0);
    op.wrong->error = detail::joined(
        {"writes ", what, " ", i, ", which others read: write into a clone() of it"});
    const Aside aside;
    tensors[i].detach().copy_(tensor_like(tensors[i], before[i]));
  }
}

// What the vjp returns for random gradients. It must write neither these nor what it saved.
void add_gradients(Op& op, std::mt19937_64& random) {
  for (size_t k = 0; k < op.outputs.size(); ++k)
    op.upstream.push_back(
        op.output_has_gradient[k] ? random_values(op.output_values[k].size(), random) : Values());
  const Grads dys = spread(op, op.upstream);
  const std::vector<Values> inputs = values_of(op.inputs), outputs = values_of(op.outputs);
  AloneContext asked(op, {});
  op.dxs = run_vjp(op, dys, asked);
  check_unwritten(op, "input", op.inputs, inputs);
  check_unwritten(op, "output", op.outputs, outputs);
  check_unwritten(op, "dy", dys, op.upstream);
}

// The vjp once more: with sums that it may add to, with gradients of other layouts, and without
// those of some outputs.
std::optional<WrongGradient> check_calls(const Op& op, std::mt19937_64& random) {
  std::vector<Values> sums;
  for (const Values& dx : op.dxs) sums.push_back(random_values(dx.size(), random));
  if (auto wrong = compare(op, spread(op, op.upstream), op.dxs, "when it is called again"))
    return wrong;
  if (auto wrong = compare(op, spread(op, op.upstream), op.dxs, "where it adds to a sum", sums))
    return wrong;
  if (auto wrong = compare(op, spread(op, op.upstream, 2), op.dxs, "where dy is not contiguous"))
    return wrong;
  std::vector<Values> constant = op.upstream;
  for (Values& u : constant) std::fill(u.begin(), u.end(), 0.75);
  if (auto wrong = compare(op, spread(op, constant, 0), gradients(op, constant),
                           "where dy is expanded, as by sum"))
    return wrong;
  const auto count = std::count(op.output_has_gradient.begin(), op.output_has_gradient.end(), true);
  for (size_t k = 0; k < op.outputs.size() && count > 1; ++k) {
    if (!op.output_has_gradient[k]) continue;
    for (const bool alone : {false, true}) {  // without this one; and with this one alone
      if (alone && count == 2) continue;
      std::vector<Values> upstream = op.upstream;
      Grads dys = spread(op, upstream);
      for (size_t j = 0; j < dys.size(); ++j) {
        if ((j == k) == alone) continue;
        std::fill(upstream[j].begin(), upstream[j].end(), 0.0);
        dys[j] = Tensor();
      }
      const std::string which = alone ? "s of all outputs but " : " of output ";
      if (auto wrong = compare(op, dys, gradients(op, upstream),
                               "where the gradient" + which + std::to_string(k) +
                                   (alone ? " are" : " is") + " undefined, which means zero"))
        return wrong;
    }
  }
  return {};
}

// The vjp while what it may read is another: it must notice (Saved throws), or not read it.
std::optional<WrongGradient> check_watched(const Op& op, std::mt19937_64& random) {
  for (const auto& [what, tensors] :
       {std::pair("input ", &op.inputs), std::pair("output ", &op.outputs)}) {
    for (size_t i = 0; i < tensors->size(); ++i) {
      const Tensor& x = (*tensors)[i];
      if (!x.defined() || (x.dtype() != f64 && x.dtype() != boolean) || x.numel() == 0) continue;
      const bool is_mask = x.dtype() == boolean;
      const StoragePtr memory = x.storage();
      const uint64_t version = memory->version++;
      const Values before = is_mask ? Values() : values_of(whole(memory));
      is_mask ? flip(memory) : write(memory, random_values(before.size(), random));
      auto wrong = compare(op, spread(op, op.upstream), op.dxs, {});
      is_mask ? flip(memory) : write(memory, before);
      memory->version = version;
      if (!wrong || !wrong->error.empty()) continue;
      wrong->error = detail::joined({"reads its ", what, i,
                                     " unwatched, and later writes into it go unnoticed: keep it "
                                     "as Saved"});
      return wrong;
    }
  }
  return {};
}

// ---- further runs: one input of one op is moved

class MovedRun : public Observer {
 public:
  // Moves input i of the op by `step`, element by element of the whole memory, from op number
  // `from` on until the op has run; and reads the outputs of `read`: the same op, or one that takes
  // its output as input `through`.
  MovedRun(const Op& op, size_t i, const Values& step, const Op& read, size_t through, size_t from)
      : op_(op), read_(read), i_(i), through_(through), from_(from), step_(step) {}
  ~MovedRun() override { put_back(); }

  // The outputs' values; none where other inputs have changed, too.
  std::optional<std::vector<Values>> outputs(const std::function<void()>& forward) {
    memory_ = op_.memories[i_].leaf;
    if (from_ == 0) move();
    const Observe observe(*this);
    forward();
    return outputs_;
  }

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override {
    if (!recorded) return;
    const Memory& origin = op_.memories[i_];
    if (origin.op == count_ && origin.output < outputs.size())
      memory_ = outputs[origin.output].storage();
    if (count_ == op_.number)
      as_expected_ = op_.name == name && !before_.empty() && as_expected(op_, inputs);
    if (count_ == read_.number && as_expected_ && read_.name == name &&
        (&read_ == &op_ || as_expected(read_, inputs)))
      outputs_ = values_of(outputs);
    if (count_ == op_.number) put_back();
    if (++count_ == from_) move();
  }

 private:
  void move() {
    if (!memory_ || memory_->bytes != static_cast<int64_t>(step_.size() * sizeof(double))) return;
    before_ = values_of(whole(memory_));
    Values moved = before_;
    for (size_t k = 0; k < moved.size(); ++k) moved[k] += step_[k];
    write(memory_, moved);
  }
  void put_back() {
    if (!before_.empty()) write(memory_, before_);
    before_.clear();
  }
  // Do the inputs have the values of the first run, but for what was moved?
  bool as_expected(const Op& op, const std::vector<Tensor>& inputs) const {
    if (inputs.size() != op.inputs.size()) return false;
    for (size_t j = 0; j < inputs.size(); ++j) {
      Values expected = op.input_values[j];
      if (&op == &op_ && op.shares(i_, j)) {
        const auto at = places(op.inputs[j].layout());
        for (size_t e = 0; e < expected.size(); ++e) expected[e] += step_[at[e]];
      } else if (op.writes(j) || (&op != &op_ && op.shares(through_, j))) {
        continue;
      }
      if (!equal(values_of(inputs[j]), expected)) return false;
    }
    return true;
  }

  const Op &op_, &read_;
  const size_t i_, through_, from_;
  const Values& step_;
  size_t count_ = 0;
  StoragePtr memory_;
  Values before_;
  bool as_expected_ = false;
  std::optional<std::vector<Values>> outputs_;
};

// A derivative along a direction, by gradients and by differences.
struct Derivative {
  double analytic = 0, numeric = 0, tolerance = 1e-10;
  double bend = 0;  // what the differences to the two sides differ by, over all outputs
  double step = kStep, rounding = 0;
  bool strays = false;  // a far smaller step gives another derivative, as for 1 / x at x = 1e-8

  bool differ() const { return !(std::abs(analytic - numeric) <= tolerance); }
  // (A gradient of nan is as wrong as one of 0 where the sides agree.)
  bool at_kink() const {
    const double error = std::abs((std::isnan(analytic) ? 0 : analytic) - numeric);
    return differ() && (strays || !(error > bend));
  }
  // From the gradients of the inputs that share the memory of input i.
  void add_analytic(const Op& op, size_t i, const std::vector<Values>& dxs,
                    const Values& direction) {
    for (size_t j = 0; j < op.inputs.size(); ++j) {
      if (!op.shares(i, j)) continue;
      const auto at = places(op.inputs[j].layout());
      for (size_t e = 0; e < at.size(); ++e) {
        analytic += dxs[j][e] * direction[at[e]];
        tolerance += 1e-7 * std::abs(dxs[j][e] * direction[at[e]]);
      }
    }
  }
  // From the outputs, weighted with their upstream gradient. What is not finite does not move.
  void add_numeric(const Op& op, const std::vector<Values>& above,
                   const std::vector<Values>& below) {
    for (size_t k = 0; k < op.upstream.size(); ++k) {
      for (size_t e = 0; e < op.upstream[k].size(); ++e) {
        const double u = op.upstream[k][e], a = above[k][e], b = below[k][e];
        const double twist = a + b - 2 * op.output_values[k][e];
        if (a != b || std::isfinite(twist)) bend += std::abs(u * twist) / step;
        if (a != b) numeric += u * (a - b) / (2 * step);
        if (std::isfinite(a)) rounding += std::abs(u * a) * 1e-15 / step;
      }
    }
    tolerance += rounding + 1e-5 * std::abs(numeric);
  }
};

class Checker {
 public:
  Checker(const std::function<void()>& forward, uint64_t seed) : forward_(forward), random_(seed) {}

  OpsCheck check(bool by_differences) {
    {
      const ContextGuard guard;
      const Observe observe(first_);
      forward_();
    }
    for (Op& op : first_.ops) {
      result_.ops.insert(op.name);
      if (is_checkable(op)) check_vjp(op);
    }
    for (const Op& op : first_.ops) {
      const std::optional<WrongGradient> wrong =
          by_differences && !op.wrong ? check_op(op) : op.wrong;
      const auto same_op = [&](const WrongGradient& other) { return other.op == op.name; };
      if (wrong && std::none_of(result_.wrong.begin(), result_.wrong.end(), same_op))
        result_.wrong.push_back(*wrong);
    }
    return std::move(result_);
  }

 private:
  static bool is_checkable(const Op& op) { return op.node && op.node->vjp && is_f64(op); }

  // A vjp that fails for plain gradients has failed in the walk, or belongs to no output.
  void check_vjp(Op& op) {
    try {
      add_gradients(op, random_);
    } catch (const std::exception&) {
      op.dxs.clear();
      return;
    }
    if (!op.wrong) op.wrong = check_calls(op, random_);
    if (!op.wrong) op.wrong = check_watched(op, random_);
  }

  std::optional<WrongGradient> check_op(const Op& op) {
    std::optional<WrongGradient> wrong;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.has_gradient(i) || op.inputs[i].numel() == 0) continue;
      const auto found = op.dxs.empty() ? std::nullopt : check_input(op, i, op, op.dxs, i);
      ++(found ? result_.checked : result_.unchecked);
      if (!found) result_.not_checked.insert(op.name);
      if (!found || !found->differ() || wrong) continue;
      const std::string at = detail::joined({op.name, " ", op.outputs[0].shape()});
      if (found->numeric != 0 && !in_f32(op.input_values[i]) &&
          std::all_of(op.output_values.begin(), op.output_values.end(), in_f32)) {
        result_.coarse = at;
        continue;
      }
      if (found->at_kink()) {
        if (result_.kink.empty()) result_.kink = at + ", input " + std::to_string(i);
        continue;
      }
      wrong = fault_of(op, i);
      wrong->analytic = found->analytic, wrong->numeric = found->numeric;
    }
    return wrong;
  }

  // The derivative of what `read` computes from its upstream gradient, by the gradients dxs of the
  // op's inputs and by differences, as input i of the op moves. None: nothing can be said of it.
  std::optional<Derivative> check_input(const Op& op, size_t i, const Op& read,
                                        const std::vector<Values>& dxs, size_t through) {
    for (size_t j = 0; j < op.inputs.size(); ++j)
      if (op.shares(i, j) && !op.has_gradient(j)) return {};  // x * x.detach()
    const auto at = places(op.inputs[i].layout());
    Values direction(static_cast<size_t>(op.inputs[i].storage()->bytes) / sizeof(double));
    const Values noise = random_values(at.size(), random_);
    for (size_t e = 0; e < at.size(); ++e)
      if (std::isfinite(op.input_values[i][e])) direction[at[e]] = noise[e];
    const auto run = [&](double length, size_t start) {
      Values step = direction;
      for (double& s : step) s *= length;
      const ContextGuard guard;
      return MovedRun(op, i, step, read, through, start).outputs(forward_);
    };
    const auto moves = [&](auto& a, auto& b) { return a && b && *a != *b; };
    size_t from = op.number;
    auto above = run(kStep, from), below = run(-kStep, from);
    if (!above || !below) return {};
    if (*above == *below && &read == &op) {  // was the output computed by ops before this one?
      const size_t made = op.memories[i].op ? *op.memories[i].op + 1 : 0;
      auto early = run(kStep, made), late = run(-kStep, made);
      if (moves(early, late)) above = std::move(early), below = std::move(late), from = made;
    }
    Derivative found;
    found.add_analytic(op, i, dxs, direction);
    found.add_numeric(read, *above, *below);
    if (found.differ() && *above != *below) {
      Derivative finer{.step = kStep / 100};
      above = run(finer.step, from), below = run(-finer.step, from);
      if (!above || !below) return found;
      finer.add_numeric(read, *above, *below);
      found.strays = std::abs(found.numeric - finer.numeric) >
                     0.5 * std::abs(found.numeric) + found.tolerance + finer.rounding;
      return found;
    }
    if (found.differ() && &read == &op) {
      const auto joined = check_through(op, i);
      if (!joined && !op.memories[i].op)
        result_.constant = detail::joined({op.name, " ", op.outputs[0].shape()});
      return joined;
    }
    return found;
  }

  // An op that did not look at this input, because what it needs of it was computed together with
  // it (mlp). Then both ops are checked as one, by an input of the one that made it.
  std::optional<Derivative> check_through(const Op& op, size_t i) {
    const Memory& memory = op.memories[i];
    if (!memory.op) return {};
    const Op& maker = first_.ops[*memory.op];
    if (maker.dxs.empty() || maker.outputs[memory.output].layout() != op.inputs[i].layout())
      return {};
    std::vector<Values> upstream;
    for (const Values& u : maker.upstream) upstream.emplace_back(u.size());
    upstream[memory.output] = op.dxs[i];
    AloneContext asked(maker, {});
    const std::vector<Values> dxs = run_vjp(maker, spread(maker, upstream), asked);
    for (size_t j = 0; j < maker.inputs.size(); ++j)
      if (maker.has_gradient(j)) return check_input(maker, j, op, dxs, i);
    return {};
  }

  FirstRun first_;
  const std::function<void()>& forward_;
  std::mt19937_64 random_;
  OpsCheck result_;
};

}  // namespace

OpsCheck check_ops(const std::function<void()>& function, uint64_t seed) {
  const std::function<void()> forward = detail::repeats(function);
  OpsCheck result = Checker(forward, seed).check(true);
  if (result.wrong.empty() || composed()) return result;
  const Composed guard;
  const OpsCheck definitions = Checker(forward, seed).check(true);
  result.definitions = definitions.ops;
  for (WrongGradient& wrong : result.wrong) {
    wrong.definition = definitions.ops.count(wrong.op) > 0 ? WrongGradient::none
                       : definitions.wrong.empty()         ? WrongGradient::passes
                                                           : WrongGradient::fails;
    if (wrong.definition == WrongGradient::fails) wrong.fails_at = definitions.wrong[0].op;
  }
  return result;
}

OpsCheck check_vjps(const std::function<void()>& function, uint64_t seed) {
  return Checker(detail::repeats(function), seed).check(false);
}

std::ostream& operator<<(std::ostream& out, const WrongGradient& wrong) {
  if (!wrong.error.empty())
    return out << detail::joined({wrong.op, " ", wrong.output, ": its vjp ", wrong.error});
  const std::string when = wrong.when.empty() ? "" : " " + wrong.when;
  const char* const beside =
      wrong.when.empty() ? " along a random direction, by differences " : ", expected ";
  out << detail::joined({wrong.op, " ", wrong.output, " returns a wrong gradient for the op's ",
                         "input ", wrong.input, " ", wrong.shape, when, ": ", wrong.analytic,
                         beside, wrong.numeric});
  switch (wrong.definition) {
    case WrongGradient::passes:
      return out << "; its definition passes: its vjp, or a kernel, is wrong";
    case WrongGradient::fails:
      return out << "; its definition fails too, at " << wrong.fails_at << ": the formula is wrong";
    case WrongGradient::none:
      return out
             << "; it is an op without a definition: its vjp, its kernel or its formula is wrong, "
                "or it was given a number that was read from a tensor (item)";
    case WrongGradient::not_known:
      break;
  }
  return out;
}

}  // namespace ink
