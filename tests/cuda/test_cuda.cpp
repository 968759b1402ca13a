// Every row of train/cases/op_cases.cpp on a CUDA device, against the CPU. Runs where there is a
// device: a GPU, or the emulated one. What else must hold there: test_ops, with
// INKLING_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/cuda/on_cuda.h"
#include "tests/support/op_rows.h"

namespace ink {
namespace {

Inputs on_device(const Inputs& inputs) {
  Inputs moved;
  for (const Tensor& x : inputs) moved.push_back(x.to(cuda_device));
  return moved;
}

class CudaOp : public OpRow {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    OpRow::SetUp();
  }
  void TearDown() override {
    OpRow::TearDown();
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

INSTANTIATE_TEST_SUITE_P(Rows, CudaOp, testing::Range<size_t>(0, op_cases().size()), OpRow::name);

}  // namespace
}  // namespace ink
