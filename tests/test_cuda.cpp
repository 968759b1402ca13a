// Every row of op_cases.cpp on a CUDA device, against the CPU: values, gradients, layouts, bits.
// Runs where there is a device: a GPU, or the emulated one.
#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "tests/coverage.h"
#include "tests/on_cuda.h"
#include "tests/op_case_inputs.h"

namespace ink {
namespace {

Inputs on_device(const Inputs& inputs) {
  Inputs moved;
  for (const Tensor& x : inputs) moved.push_back(x.to(cuda_device));
  return moved;
}

/// INKLING_TEST_LARGEST in the environment: sets of larger inputs are left out, where a sanitizer
/// would take too long over them.
int64_t largest_tested() {
  const char* most = std::getenv("INKLING_TEST_LARGEST");
  return most == nullptr ? std::numeric_limits<int64_t>::max() : std::stoll(most);
}

class CudaOp : public testing::TestWithParam<size_t> {
 protected:
  const OpCase& row() const { return op_cases()[GetParam()]; }
  void for_each_set(const std::function<void(const std::vector<In>&)>& check) const {
    for (const auto& set : row().inputs) {
      if (largest(set) > largest_tested()) continue;
      std::ostringstream text;
      for (const In& in : set) text << in.shape << " ";
      SCOPED_TRACE(text.str());
      check(set);
      if (HasFatalFailure()) return;
    }
  }
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    Coverage::instance().enter_row(row().name);
  }
  void TearDown() override {
    Coverage::instance().enter_row("");
    EXPECT_EQ(Node::live, 0) << "a graph outlived its test";
    if (cuda_device_count() > 0) empty_cache(cuda_device);
  }
  CaseRun run_on_cuda(const std::vector<In>& set, const Inputs& inputs) const {
    const OnCuda guard;
    return run_case(row(), set, on_device(inputs));
  }
};

TEST_P(CudaOp, AgreesWithTheCpu) {
  for (const auto& [dtype, tolerance] :
       {std::pair(f64, 1e-10), std::pair(f32, 1e-5), std::pair(bf16, 0.0)}) {
    for_each_set([&, type = dtype, most = tolerance](const auto& set) {
      SCOPED_TRACE(name_of(type));
      const Inputs inputs = make_inputs(set, type);
      const CaseRun cpu = run_case(row(), set, inputs), gpu = run_on_cuda(set, inputs);
      const double allowed = type == bf16  ? row().bf16_tolerance
                             : type == f32 ? std::max(most, row().f32_tolerance)
                                           : most;
      expect_close(gpu.outputs, cpu.outputs, allowed, "output");
      if (!HasFatalFailure()) expect_close(gpu.grads, cpu.grads, allowed, "gradient");
    });
  }
}

TEST_P(CudaOp, GradientsMatchDifferences) {
  for_each_set([&](const auto& set) {
    if (differentiable(set).empty() || largest(set) == 0 || largest(set) > 1000) return;
    const OnCuda guard;
    const Inputs leaves = leaves_of(on_device(make_inputs(set)), set);
    const Outputs outputs = row().op(leaves);
    if (std::none_of(outputs.begin(), outputs.end(),
                     [](const Tensor& y) { return y.requires_grad(); }))
      return;
    const GradcheckReport report = gradcheck(row().op, leaves);
    EXPECT_TRUE(report.ok) << report;
  });
}

Tensor permuted(const Tensor& x) { return x.dim() < 2 ? x : x.T().contiguous().T(); }
Tensor spaced(const Tensor& x) {
  if (x.dim() == 0) return x;
  Shape wide = x.shape();
  wide.back() = 2 * wide.back() + 1;
  Tensor view = zeros(wide, x.options()).index({Ellipsis, Slice(1, {}, 2)});
  view.copy_(x);
  return view;
}
Tensor expanded(const Tensor& x) {
  return x.dim() == 0 || x.numel() == 0 ? x : x.narrow(0, 0, 1).expand(x.shape());
}

TEST_P(CudaOp, LayoutsDoNotMatter) {
  for_each_set([&](const auto& set) {
    if (largest(set) > 1000) return;
    const OnCuda guard;
    const Inputs inputs = on_device(make_inputs(set));
    for (auto layout : {permuted, spaced, expanded}) {
      Inputs strided, plain;
      for (const Tensor& x : inputs) {
        strided.push_back(layout(x));
        plain.push_back(strided.back().clone());
      }
      const CaseRun a = run_case(row(), set, strided), b = run_case(row(), set, plain);
      expect_close(a.outputs, b.outputs, 1e-12, "output");
      expect_close(a.grads, b.grads, 1e-12, "gradient");
    }
  });
}

TEST_P(CudaOp, TwiceGivesTheSameBits) {
  for_each_set([&](const auto& set) {
    const Inputs inputs = make_inputs(set, f32);
    const CaseRun first = run_on_cuda(set, inputs), second = run_on_cuda(set, inputs);
    for (size_t i = 0; i < first.outputs.size(); ++i)
      EXPECT_TRUE(same_bits(first.outputs[i], second.outputs[i]));
    for (size_t i = 0; i < first.grads.size(); ++i)
      EXPECT_TRUE(same_bits(first.grads[i], second.grads[i]));
  });
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = op_cases()[info.param].name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return std::to_string(info.index) + "_" + name;
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaOp, testing::Range<size_t>(0, op_cases().size()), test_name);

}  // namespace
}  // namespace ink
