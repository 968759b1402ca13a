// Row kernels of the CUDA backend against the CPU's, over rows of every length that is treated in a
// way of its own: in single elements or 16 bytes at a time, by a warp or a block, kept in registers
// or read again.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/random/generator.h"
#include "tests/cuda/on_cuda.h"

namespace ink {
namespace {

/// Random numbers (rows, n) of a dtype, on the CPU.
Tensor random(const Shape& shape, DType dtype) { return randn(shape).to(dtype); }

/// A contiguous copy on a device that starts one element off the allocator's alignment.
Tensor off_by_one(const Tensor& x, Device device) {
  Tensor room = empty({x.numel() + 1}, {x.dtype(), device});
  Tensor place = room.narrow(0, 1, x.numel()).view(x.shape());
  place.copy_(x.to(device));
  return place;
}

using Tensors = std::vector<Tensor>;

struct RowOp {
  const char* name;
  /// Given x, dy (rows, n) of one dtype, two parameters (n) in the dtype they have, and targets.
  std::function<Tensors(const Tensors&)> run;
};

Tensor f32_at_least(const Tensor& x) { return x.dtype() == f64 ? x : x.to(f32); }

// Values, mean and rstd of a norm, and its gradients: dx added to what x holds, or not wanted; also
// without a bias, and with dx in dy's dtype.
Tensors layer_norm_passes(const Tensors& in, DType y_dtype) {
  const Tensor &x = in[0], &dy = in[1], &w = in[2], &b = in[3];
  Tensor y = empty(x.shape(), {y_dtype, x.device()});
  Tensor mean = empty({x.size(0)}, w.options()), rstd = empty_like(mean);
  kernel::layer_norm(y, mean, rstd, x, {w, b, 1e-5});
  const Tensor upstream = dy.to(y_dtype);
  Tensor dx = x.clone(), fresh = empty_like(x), none, plain = empty_like(y), narrow = empty_like(y);
  Tensor dw = b.clone(), db = w.clone(), dw_alone = w.clone();
  kernel::layer_norm(plain, mean, rstd, x, {w, none, 1e-5});
  kernel::layer_norm_backward({dx, dw, db, true}, upstream, x, mean, rstd, w);
  kernel::layer_norm_backward({fresh, none, none, false, narrow}, upstream, x, mean, rstd, w);
  kernel::layer_norm_backward({none, dw_alone, none, false}, upstream, x, mean, rstd, w);
  return {y, mean, rstd, dx, fresh, dw, db, dw_alone, plain, narrow};
}
// x + dy, its norm, mean and rstd; also with dropout of dy, and of the gradient.
Tensors add_norm_pass(const Tensors& in, DType y_dtype, bool centred) {
  const Tensor &x = in[0], branch = in[1].to(y_dtype), &w = in[2], &b = in[3];
  Tensor sum = empty_like(x), y = empty_like(branch);
  Tensor rstd = empty({x.size(0)}, w.options()), mean = centred ? empty_like(rstd) : Tensor(), none;
  kernel::add_norm(sum, y, mean, rstd, x, branch, {w, centred ? b : none, 1e-5});
  const BranchDropout drop{0.3, {.seed = 5, .step = 2, .call = 1, .first_row = 1}};
  Tensor dropped = empty_like(x), dx = empty_like(x), dbranch = empty_like(branch);
  kernel::add_norm(dropped, y, mean, rstd, x, branch, {w, centred ? b : none, 1e-5, drop});
  const NormGradients d{dx, none, none, false, dbranch, drop};
  kernel::layer_norm_backward(d, branch, sum, mean, rstd, w);
  if (!centred) return {sum, y, rstd, dropped, dx, dbranch};
  return {sum, y, mean, rstd, dropped, dx, dbranch};
}
Tensors rms_norm_passes(const Tensors& in, DType y_dtype) {
  const Tensor &x = in[0], &dy = in[1], &w = in[2];
  Tensor y = empty(x.shape(), {y_dtype, x.device()}), rstd = empty({x.size(0)}, w.options());
  Tensor no_mean;
  kernel::layer_norm(y, no_mean, rstd, x, {w, {}, 1e-5});
  const Tensor upstream = dy.to(y_dtype);
  Tensor dx = x.clone(), fresh = empty_like(x), none, dw = in[3].clone();
  kernel::layer_norm_backward({dx, dw, {}, true}, upstream, x, no_mean, rstd, w);
  kernel::layer_norm_backward({fresh, none, {}, false}, upstream, x, no_mean, rstd, w);
  return {y, rstd, dx, fresh, dw};
}

// Losses and their scaled sum, with gradients of a dtype, of the logits' own in their place.
Tensors cross_entropy_passes(const Tensors& in) {
  const Tensor &logits = in[0], &targets = in[4];
  const Options options = in[2].options();
  Tensor losses = empty({logits.size(0)}, options), loss = empty({}, options), none;
  Tensor scale = empty({}, options), d = empty_like(logits);
  kernel::target_scale(scale, targets, 1);
  kernel::cross_entropy(losses, none, logits, targets, scale, 1, 0);
  kernel::cross_entropy(loss, d, logits, targets, scale, 1, 0);
  Tensor both = logits.clone(), again = empty({}, options);
  kernel::cross_entropy(again, both, both, targets, none, 1, 0);
  return {scale, losses, loss, d, again, both};
}

Tensors softmax_passes(const Tensors& in) {
  Tensor y = empty_like(in[0]), dx = empty_like(y);
  kernel::softmax(y, in[0]);
  kernel::softmax_backward(dx, in[1], y);
  return {y, dx};
}
Tensors log_softmax_passes(const Tensors& in) {
  Tensor y = empty_like(in[0]), dx = empty_like(y);
  kernel::log_softmax(y, in[0]);
  kernel::log_softmax_backward(dx, in[1], y);
  return {y, dx};
}

const std::vector<RowOp>& row_ops() {
  static const std::vector<RowOp> ops = {
      {"softmax", softmax_passes},
      {"log_softmax", log_softmax_passes},
      {"layer_norm", [](const Tensors& in) { return layer_norm_passes(in, in[0].dtype()); }},
      {"add_layer_norm", [](const Tensors& in) { return add_norm_pass(in, in[0].dtype(), true); }},
      {"add_rms_norm", [](const Tensors& in) { return add_norm_pass(in, in[0].dtype(), false); }},
      {"rms_norm", [](const Tensors& in) { return rms_norm_passes(in, in[0].dtype()); }},
      {"cross_entropy", cross_entropy_passes},
  };
  return ops;
}
// f32 in, bf16 out.
const std::vector<RowOp>& mixed_ops() {
  static const std::vector<RowOp> ops = {
      {"layer_norm", [](const Tensors& in) { return layer_norm_passes(in, bf16); }},
      {"add_layer_norm", [](const Tensors& in) { return add_norm_pass(in, bf16, true); }},
      {"add_rms_norm", [](const Tensors& in) { return add_norm_pass(in, bf16, false); }},
      {"rms_norm", [](const Tensors& in) { return rms_norm_passes(in, bf16); }},
  };
  return ops;
}

class CudaRows : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    // Where all take too long: a length of each plan of rows, and one that is no whole pack.
    constexpr int64_t kFew[] = {1, 64, 100, 768, 1031, 2500, 9001, 33001, 50257};
    if (std::getenv("INKLING_TEST_LARGEST") != nullptr &&
        std::find(std::begin(kFew), std::end(kFew), GetParam()) == std::end(kFew))
      GTEST_SKIP() << "left out by INKLING_TEST_LARGEST";
    manual_seed(GetParam());
  }
  // More rows than the blocks of a backward pass take at once, where that is cheap.
  Tensors inputs(DType dtype) const {
    const int64_t n = GetParam(), rows = n <= 2048 ? 75 : n <= 8192 ? 11 : 3;
    const auto parameter = [&] { return f32_at_least(random({n}, dtype)); };
    return {random({rows, n}, dtype), random({rows, n}, dtype), parameter(), parameter(),
            randint(n, {rows})};
  }
  static void check(const std::vector<RowOp>& ops, const Tensors& on_cpu, const Tensors& on_gpu,
                    double tolerance) {
    for (const RowOp& op : ops) {
      SCOPED_TRACE(op.name);
      expect_close(op.run(on_gpu), op.run(on_cpu), tolerance, "result");
    }
  }
  static Tensors moved(const Tensors& list) {
    Tensors on_gpu;
    for (const Tensor& x : list) on_gpu.push_back(x.to(cuda_device));
    return on_gpu;
  }
};

TEST_P(CudaRows, AgreeWithTheCpu) {
  for (const auto& [dtype, tolerance] :
       {std::pair(f64, 1e-10), std::pair(f32, 1e-5), std::pair(bf16, 0.01)}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensors in = inputs(dtype);
    check(row_ops(), in, moved(in), tolerance);
  }
}

TEST_P(CudaRows, MixedDtypesAgreeWithTheCpu) {
  const Tensors in = inputs(f32);
  check(mixed_ops(), in, moved(in), 0.01);
}

TEST_P(CudaRows, AlignmentDoesNotMatter) {
  for (const DType dtype : {f32, bf16}) {
    const Tensors in = inputs(dtype);
    Tensors shifted;
    for (const Tensor& x : in) shifted.push_back(off_by_one(x, cuda_device));
    // Means of three rows may be hardly larger than the rounding errors of their sums.
    check(row_ops(), in, shifted, dtype == f32 ? 5e-5 : 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, CudaRows,
                         testing::Values(1, 3, 64, 65, 100, 512, 768, 770, 1024, 1025, 1031, 1100,
                                         1600, 2048, 2500, 8191, 8192, 8200, 9001, 33000, 33001,
                                         50257));

// Beyond what a block keeps of a row in registers and in shared memory.
TEST(CudaCrossEntropy, RowsOfAnyLength) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int64_t n : {57344, 57345, 60003}) {
    for (const DType dtype : {f32, bf16}) {
      SCOPED_TRACE(name_of(dtype) + std::to_string(n));
      const Tensors in{random({2, n}, dtype), {}, random({n}, f32), {}, randint(n, {2})};
      Tensors on_gpu;
      for (const Tensor& x : in) on_gpu.push_back(x.defined() ? x.to(cuda_device) : x);
      expect_close(cross_entropy_passes(on_gpu), cross_entropy_passes(in),
                   dtype == f32 ? 1e-5 : 0.01, "result");
    }
  }
}

// A GPU computes more classes than there are, so that rows of logits start where products want.
TEST(CudaLinearCrossEntropy, PaddedClassesChangeNothing) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int64_t V : {1024, 1025, 1031}) {
    for (const DType dtype : {f32, bf16}) {
      for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
        SCOPED_TRACE(name_of(dtype) + std::to_string(V));
        const Tensor x = to(randn({6, 16}), dtype), weight = to(randn({V, 16}), dtype),
                     targets = tensor({int64_t{0}, V - 1, V - 2, int64_t{-100}, int64_t{7}, V - 1});
        const auto on = [&](Device device) -> Tensors {
          Tensor a = x.to(device).detach().requires_grad_(),
                 w = weight.to(device).detach().requires_grad_();
          const Tensor loss = linear_cross_entropy(a, w, targets.to(device), -100, reduction);
          const Tensors grads = grad({sum(loss * loss)}, {a, w});
          return {loss.detach(), grads[0], grads[1]};
        };
        expect_close(on(cuda_device), on(cpu_device), dtype == f32 ? 1e-5 : 0.01, "result");
      }
    }
  }
  const Tensor x = randn({2, 16}).to(cuda_device), weight = randn({1025, 16}).to(cuda_device);
  EXPECT_THROW(linear_cross_entropy(x, weight, tensor({3, 1025}).to(cuda_device)).item(), Error);
}

// Under Autocast the logits are bf16, and their gradient is written over them: 2 bytes a logit.
TEST(CudaLinearCrossEntropy, LogitsAndTheirGradientAreOneMemory) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const int64_t rows = 256, V = 2048;
  const Tensor x = randn({rows, 16}).to(cuda_device).requires_grad_(),
               w = randn({V, 16}).to(cuda_device).requires_grad_(),
               targets = randint(0, V, {rows}).to(cuda_device);
  const Autocast guard;
  const int64_t before = memory_stats(cuda_device).bytes_in_use;
  reset_peak_memory(cuda_device);
  const Tensor loss = linear_cross_entropy(x, w, targets);
  const int64_t others = 300'000;  // gradients, bf16 copies, losses by row
  EXPECT_LT(memory_stats(cuda_device).peak_bytes_in_use - before, 2 * rows * V + others);
  EXPECT_EQ(loss.dtype(), f32);
}

// -inf is a mask; NaN, +inf and a row of nothing but -inf make the row NaN. On every path.
TEST(CudaSoftmax, SpecialValuesAreTheCpus) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int64_t n : {5, 64, 1100, 1101, 33000, 33001}) {
    Tensor x = randn({6, n});
    float* v = x.mutable_data<float>();
    for (int64_t i = 0; i < n; ++i) {
      if (i < 2 * n / 3) v[i] = -INFINITY;
      v[n + i] = -INFINITY;
      v[2 * n + i] = std::numeric_limits<float>::lowest();
      v[5 * n + i] *= 1e30f;
    }
    v[3 * n + 1] = NAN;
    v[4 * n + n - 1] = INFINITY;
    const Tensors in = {x, randn({6, n}), ones({n}), ones({n}),
                        from_vector(std::vector<int64_t>{4, 0, 2, 0, 2, 0})};
    Tensors on_gpu;
    for (const Tensor& t : in) on_gpu.push_back(t.to(cuda_device));
    for (const RowOp& op : row_ops()) {
      if (std::string(op.name).find("norm") != std::string::npos) continue;
      SCOPED_TRACE(op.name + (" of " + std::to_string(n)));
      expect_close(op.run(on_gpu), op.run(in), 1e-5, "result");
    }
  }
}

// Where the mean is much larger than the deviation, the variance must not drown in rounding.
TEST(CudaLayerNorm, KeepsSmallDeviations) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int64_t n : {100, 2000}) {
    const Tensor x = (randn({5, n}) * 0.01 + 1000).to(cuda_device), w = ones({n}, x.options());
    const Tensor b = zeros({n}, x.options());
    Tensor y = empty_like(x), mean = empty({5}, x.options()), rstd = empty_like(mean);
    kernel::layer_norm(y, mean, rstd, x, {w, b, 0});
    Tensor expected = empty({5, n}, f64), m = empty({5}, f64), r = empty({5}, f64);
    kernel::layer_norm(expected, m, r, x.to(cpu_device).to(f64),
                       {ones({n}, f64), zeros({n}, f64), 0});
    const auto got = rstd.tolist(), right = r.tolist();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / right[i], 1, 1e-3);
  }
}

// Tables of few rows and many, with ids by chance, all alike, and alike in long runs. The second
// time, blocks may run in another order.
TEST(CudaEmbedding, AddsGradientsOfAnyNumberOfIds) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  manual_seed(1);
  for (const auto& [rows, count] : {std::pair(65, 5000), std::pair(1, 3000), std::pair(3, 64),
                                    std::pair(7, 33), std::pair(1000, 100), std::pair(2, 1)}) {
    for (const int64_t n : {1, 6, 128, 772}) {
      if (n * count > 400'000 && std::getenv("INKLING_TEST_LARGEST") != nullptr)
        continue;  // seconds
      for (const DType dtype : {f64, f32, bf16}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(count) + " ids, " +
                     std::to_string(n) + " columns of " + name_of(dtype));
        const Tensor ids = randint(rows, {count}), dy = random({count, n}, dtype);
        Tensor expected = f32_at_least(random({rows, n}, dtype));
        Tensor got = expected.to(cuda_device), again = got.clone();
        kernel::embedding_backward(got, dy.to(cuda_device), ids.to(cuda_device));
        kernel::embedding_backward(again, dy.to(cuda_device), ids.to(cuda_device));
        kernel::embedding_backward(expected, dy, ids);
        expect_close({got}, {expected}, dtype == f64 ? 1e-13 : 1e-5, "gradient");
        EXPECT_TRUE(equal(got, again)) << "the bits of a second run";
      }
    }
  }
}

}  // namespace
}  // namespace ink
