// Every row of train/cases/op_cases.cpp through every check that an op must pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "tests/support/op_rows.h"

namespace ink {
namespace {

// The largest difference, relative to the largest expected value; both may be NaN or infinite at
// the same places.
double relative_error(const Tensor& got, const Tensor& expected) {
  EXPECT_EQ(got.shape(), expected.shape());
  const auto a = got.tolist(), b = expected.tolist();
  double error = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
      scale = std::isfinite(b[i]) ? std::max(scale, std::abs(b[i])) : scale;
      continue;
    }
    const double difference = std::abs(a[i] - b[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    scale = std::max(scale, std::abs(b[i]));
  }
  if (scale < 1e-15 && error < 1e-15) return 0;  // zeros, and their rounding errors
  return error == 0 ? 0 : error / scale;
}

void expect_close(const CaseRun& got, const CaseRun& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.outputs.size(), expected.outputs.size()) << what;
  ASSERT_EQ(got.grads.size(), expected.grads.size()) << what;
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    EXPECT_LE(relative_error(got.outputs[i], expected.outputs[i]), tolerance)
        << what << ": output " << i;
  }
  for (size_t i = 0; i < got.grads.size(); ++i) {
    EXPECT_LE(relative_error(got.grads[i], expected.grads[i]), tolerance)
        << what << ": gradient " << i;
  }
}

class Op : public OpRow {};

// Gradients of larger tensors are checked along random directions. Sanitizers need each path once.
int64_t elements_to_check() {
#ifdef __SANITIZE_ADDRESS__
  return 12;
#else
  return by_device(100, 12);
#endif
}

TEST_P(Op, RowHasALargeSet) {
  int64_t n = 0;
  for (const auto& set : row().inputs) n = std::max(n, largest(set));
  EXPECT_GT(n, 100000) << "every row needs a set that passes vector width, tile and thread grain";
}

TEST_P(Op, FusedEqualsComposed) {
  for_each_set([&](const auto& set) {
    const Inputs inputs = make_inputs(set);
    const CaseRun fused = run_case(row(), set, inputs);
    const Composed composed;
    expect_close(fused, run_case(row(), set, inputs), 1e-10, "fused against composed");
  });
}

TEST_P(Op, GradientsMatchDifferences) {
  for_each_set([&](const auto& set) {
    if (differentiable(set).empty()) return;
    const Inputs leaves = leaves_of(make_inputs(set), set);
    {
      const Outputs outputs = row().op(leaves);
      if (std::none_of(outputs.begin(), outputs.end(),
                       [](const Tensor& y) { return y.requires_grad(); })) {
        EXPECT_FALSE(outputs.empty() || outputs[0].is_floating())
            << "a floating output lost its graph";
        return;
      }
    }
    GradcheckOptions options;
    options.max_elements = elements_to_check();
    const GradcheckReport report = gradcheck(row().op, leaves, options);
    EXPECT_TRUE(report.ok) << report;
  });
}

// The same values in other layouts: dimensions in reverse; every second element, from an offset on.
Tensor permuted(const Tensor& x) { return x.dim() < 2 ? x : x.T().contiguous().T(); }
Tensor spaced(const Tensor& x) {
  if (x.dim() == 0) return x;
  Shape wide = x.shape();
  wide.back() = 2 * wide.back() + 1;
  Tensor memory = zeros(wide, x.options());
  Tensor view = memory.index({Ellipsis, Slice(1, {}, 2)});
  view.copy_(x);
  return view;
}
Tensor expanded(const Tensor& x) {
  if (x.dim() == 0 || x.numel() == 0) return x;
  return x.narrow(0, 0, 1).expand(x.shape());
}

TEST_P(Op, SecondDerivativesMatchDifferences) {
  if (!row().second_derivative) return;
  for_each_set([&](const auto& set) {
    if (differentiable(set).empty() || largest(set) > by_device(1000, 100)) return;
    const Inputs leaves = leaves_of(make_inputs(set), set);
    // Not of indices and masks, nor of the mean of nothing, which is NaN.
    const Outputs outputs = row().op(leaves);
    if (std::none_of(outputs.begin(), outputs.end(),
                     [](const Tensor& y) { return y.requires_grad() && !any(isnan(y)).item(); }))
      return;
    GradcheckOptions options;
    options.rtol = 1e-4;
    options.atol = 1e-6;
    options.max_elements = elements_to_check();
    const auto check = [&](const char* how, const CheckedFunction& op) {
      const GradcheckReport report = gradgradcheck(op, leaves, options);
      EXPECT_TRUE(report.ok) << how << ": " << report;
    };
    check("as it is", row().op);
    {
      const Composed composed;
      check("composed", row().op);
    }
    options.max_elements = 12;  // beyond, along random directions
    for (auto layout : {permuted, spaced}) {
      check("in another layout", [&](const Inputs& plain) {
        Inputs inputs;
        for (const Tensor& x : plain) inputs.push_back(layout(x));
        return row().op(inputs);
      });
    }
  });
}

TEST_P(Op, LayoutsDoNotMatter) {
  for_each_set([&](const auto& set) {
    const Inputs inputs = make_inputs(set);
    for (auto layout : {permuted, spaced, expanded}) {
      Inputs strided, plain;
      for (const Tensor& x : inputs) {
        strided.push_back(layout(x));
        plain.push_back(strided.back().clone());
      }
      expect_close(run_case(row(), set, strided), run_case(row(), set, plain), 1e-12, "layout");
    }
  });
}

TEST_P(Op, AliasedInputsSumTheirGradients) {
  for_each_set([&](const auto& set) {
    const auto wanted = differentiable(set);
    if (wanted.size() < 2 || set[wanted[0]].shape != set[wanted[1]].shape ||
        set[wanted[0]].kind != set[wanted[1]].kind)
      return;
    Inputs inputs = make_inputs(set);
    inputs[wanted[1]] = inputs[wanted[0]].clone();
    const CaseRun apart = run_case(row(), set, inputs);
    Inputs leaves = leaves_of(inputs, set);
    leaves[wanted[1]] = leaves[wanted[0]];
    const ContextGuard context_guard;
    const Outputs outputs = row().op(leaves);
    if (outputs.size() != 1 || !outputs[0].requires_grad()) return;
    const Tensor together = grad({sum(outputs[0])}, {leaves[wanted[0]]})[0];
    Inputs separate = leaves_of(inputs, set);
    const Grads parts =
        grad({sum(row().op(separate)[0])}, {separate[wanted[0]], separate[wanted[1]]});
    const auto or_zero = [&](const Tensor& g) {
      return g.defined() ? g : zeros_like(inputs[wanted[0]]);
    };
    EXPECT_LE(relative_error(or_zero(together), or_zero(parts[0]) + or_zero(parts[1])), 1e-12);
  });
}

// Each differentiable input alone: the gradients that a vjp leaves out must not change the others.
TEST_P(Op, NeedsDoNotMatter) {
  for_each_set([&](const auto& set) {
    const auto wanted = differentiable(set);
    if (wanted.size() < 2) return;
    const Inputs inputs = make_inputs(set);
    const CaseRun every = run_case(row(), set, inputs);
    for (size_t k = 0; k < wanted.size(); ++k) {
      auto only = set;
      for (size_t i : wanted) only[i].constant = i != wanted[k];
      const CaseRun one = run_case(row(), only, inputs);
      if (every.grads.empty() || one.grads.empty()) continue;
      EXPECT_LE(relative_error(one.grads[0], every.grads[k]), 1e-12)
          << "input " << wanted[k] << " alone";
    }
  });
}

// The gradients of `wanted` and, where they can be differentiated again, theirs; zeros where
// undefined.
Grads twice(const OpCase& row, const Inputs& leaves, const Grads& wanted) {
  const ContextGuard same_position;
  const auto noise = [](const Tensor& x) {
    return sin(arange(1, x.numel() + 1, x.options()) * 0.7).reshape(x.shape());
  };
  std::vector<Tensor> ys, upstream;
  for (const Tensor& y : row.op(leaves)) {
    if (!y.requires_grad()) continue;
    ys.push_back(y);
    upstream.push_back(noise(y).requires_grad_());
  }
  if (ys.empty()) return {};
  const bool second = row.second_derivative;
  Grads all = grad(ys, wanted, upstream, second, second), again = wanted;
  again.insert(again.end(), upstream.begin(), upstream.end());
  Tensor total = zeros({}, f64);
  for (const Tensor& dx : all)
    if (dx.defined()) total = total + sum(dx * noise(dx));
  Grads found = total.requires_grad() ? grad({total}, again) : Grads(again.size());
  all.insert(all.end(), found.begin(), found.end());
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& of = i < wanted.size() ? wanted[i] : again[i - wanted.size()];
    if (!all[i].defined()) all[i] = zeros_like(of);
  }
  return all;
}

// Each subset of the inputs that require grad, differentiated twice: what an op does not save for
// inputs that need no gradient must change nothing of the others.
TEST_P(Op, AnyInputsMayRequireGrad) {
  for_each_set([&](const auto& set) {
    const auto wanted = differentiable(set);
    if (wanted.size() < 2 || wanted.size() > 6 || largest(set) > by_device(1000, 100)) return;
    const Inputs inputs = make_inputs(set), every = leaves_of(inputs, set);
    for (uint64_t subset = 1; subset + 1 < uint64_t{1} << wanted.size(); ++subset) {
      const auto chosen = static_cast<size_t>(std::popcount(subset));
      if (chosen > 1 && chosen + 1 < wanted.size() && by_device(0, 1)) continue;  // all by the CPU
      auto only = set;
      std::string names;
      Grads of_every, of_some;
      for (size_t k = 0; k < wanted.size(); ++k) {
        only[wanted[k]].constant = (subset >> k & 1) == 0;
        if (!only[wanted[k]].constant) names += " " + std::to_string(wanted[k]);
      }
      const Inputs some = leaves_of(inputs, only);
      for (size_t i : differentiable(only)) {
        of_every.push_back(every[i]);
        of_some.push_back(some[i]);
      }
      SCOPED_TRACE("inputs" + names);
      const Grads expected = twice(row(), every, of_every);
      Grads found;
      ASSERT_NO_THROW(found = twice(row(), some, of_some));
      if (found.empty()) continue;  // no output depends on these
      // Outputs that depend on none of these inputs have no upstream gradient.
      const size_t same = found.size() == expected.size() ? found.size() : 2 * of_some.size();
      for (size_t i = 0; i < same; ++i)
        EXPECT_LE(relative_error(found[i], expected[i]), 1e-9) << "gradient " << i;
    }
  });
}

// A gradient that is added into one that exists already must equal the sum.
TEST_P(Op, GradientsAccumulate) {
  for_each_set([&](const auto& set) {
    const CaseRun once = run_case(row(), set, make_inputs(set));
    if (once.grads.empty()) return;
    const Inputs leaves = leaves_of(make_inputs(set), set);
    for (int round = 0; round < 2; ++round) {
      const ContextGuard context_guard;
      std::vector<Tensor> ys, upstream;
      for (const Tensor& y : row().op(leaves)) {
        if (!y.requires_grad()) continue;
        ys.push_back(y);
        upstream.push_back(ones_like(y));
      }
      backward(ys, upstream);
    }
    const ContextGuard context_guard;
    Tensor total = zeros({}, f64);
    for (const Tensor& y : row().op(leaves)) {
      if (y.requires_grad()) total = total + sum(y);
    }
    std::vector<Tensor> wanted;
    for (size_t i : differentiable(set)) wanted.push_back(leaves[i]);
    const Grads single = grad({total}, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!single[i].defined()) continue;
      EXPECT_LE(relative_error(wanted[i].grad(), single[i] + single[i]), 1e-10) << "gradient " << i;
    }
  });
}

TEST_P(Op, CoarserDtypesAgreeWithF64) {
  for_each_set([&](const auto& set) {
    const Inputs exact = make_inputs(set, DType::bf16);
    Inputs in_f64, in_f32;
    for (const Tensor& x : exact) {
      in_f64.push_back(x.is_floating() ? x.to(f64) : x);
      in_f32.push_back(x.is_floating() ? x.to(f32) : x);
    }
    const CaseRun reference = run_case(row(), set, in_f64);
    expect_close(run_case(row(), set, in_f32), reference, row().f32_tolerance, "float32");
    expect_close(run_case(row(), set, exact), reference, row().bf16_tolerance, "bfloat16");
  });
}

TEST_P(Op, TwiceGivesTheSameBitsInsideItsMemory) {
  for (DType dtype : {f32, f64, bf16}) {
    for_each_set(
        [&](const auto& set) {
          const Inputs inputs = make_inputs(set, dtype);
          const MemoryGuard guard;
          {
            const CaseRun first = run_case(row(), set, inputs),
                          second = run_case(row(), set, inputs);
            for (size_t i = 0; i < first.outputs.size(); ++i)
              EXPECT_TRUE(same_bits(first.outputs[i], second.outputs[i]));
            for (size_t i = 0; i < first.grads.size(); ++i)
              EXPECT_TRUE(same_bits(first.grads[i], second.grads[i]));
          }
          EXPECT_EQ(guard.overwritten(), 0) << "bytes outside a tensor's memory were written";
        },
        true);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Op, testing::Range<size_t>(0, op_cases().size()), OpRow::name);

}  // namespace
}  // namespace ink
