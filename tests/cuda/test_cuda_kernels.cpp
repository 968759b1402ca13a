// CUDA kernels where the rows of train/cases/op_cases.cpp do not reach: long lines, many equal
// values, NaN, odd addresses. On a GPU, or the emulated one; what the CPU computes is right.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "autograd/kernels/elementwise.h"
#include "autograd/kernels/gemm.h"
#include "autograd/kernels/reduce.h"
#include "autograd/ops.h"
#include "autograd/random/philox.h"
#include "tests/cuda/on_cuda.h"
#include "train/cases/op_cases.h"

#include "cuda/sort.cuh"

namespace ink {
namespace {

constexpr DType all_dtypes[] = {f32, f64, bf16, i64, boolean};

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  std::mt19937_64 random_{42};

  // Whole numbers from -range to range, NaN and infinities among them.
  Tensor with_ties(const Shape& shape, int64_t range, DType dtype) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& v : values) {
      v = static_cast<double>(random_() % static_cast<uint64_t>(2 * range + 1)) -
          static_cast<double>(range);
      if (is_floating(dtype) && random_() % 64 == 0) v = NAN;
      if (is_floating(dtype) && random_() % 64 == 0) v = -INFINITY;
      if (v == 0 && random_() % 2) v = -0.0;
    }
    return from_vector(values, shape).to(dtype);
  }
};

// The same op on both devices gives the same values, within the tolerance.
void agree(const Inputs& inputs, const std::function<Outputs(const Inputs&)>& op,
           double tolerance = 0) {
  Inputs moved;
  for (const Tensor& x : inputs) moved.push_back(x.to(cuda_device));
  expect_close(op(moved), op(inputs), tolerance, "output");
}

TEST_F(CudaKernels, RampsAreTheCpus) {
  for (const DType dtype : {f32, f64, bf16, i64}) {
    SCOPED_TRACE(name_of(dtype));
    const Options gpu(dtype, cuda_device), cpu(dtype, cpu_device);
    for (const int64_t n : {0, 1, 2, 7, 1000})
      expect_close({linspace(-3, 5, n, gpu)}, {linspace(-3, 5, n, cpu)}, 1e-15, "linspace");
    expect_close({arange(7, 1000, 3, gpu), arange(5, -2, -1, gpu)},
                 {arange(7, 1000, 3, cpu), arange(5, -2, -1, cpu)}, 0, "arange");
  }
  const Options gpu(f32, cuda_device), cpu(f32, cpu_device);
  expect_close({arange(0.5, 99, 0.1, gpu)}, {arange(0.5, 99, 0.1, cpu)}, 1e-7, "arange");
}

TEST_F(CudaKernels, PlacesOfMasks) {
  const Tensor x = with_ties({7, 1, 31}, 1, f32), mask = x > 0;
  for (const Tensor& m : {mask, mask.select(0, 3), mask.narrow(0, 0, 0), x == 5, x == x})
    agree({m}, [](const Inputs& in) -> Outputs { return {nonzero(in[0])}; });
  agree({x, mask}, [](const Inputs& in) -> Outputs {
    return {masked_select(in[0], in[1]), index(in[0], {in[1]}),
            index_put(in[0], {in[1]}, zeros({}, in[0].options()))};
  });
}

// ---- sorting

TEST_F(CudaKernels, SortsLongLinesStably) {
  for (const DType dtype : all_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor x = with_ties({3, 5001}, 300, dtype);
    agree({x}, [](const Inputs& in) -> Outputs {
      const auto [a, b] = sort(in[0]);
      const auto [c, d] = sort(in[0], -1, true);
      const auto [e, f] = sort(in[0].T().contiguous(), 0);
      const auto [g, h] = topk(in[0], 7);
      return {a, b, c, d, e, f, g, h};
    });
  }
}

TEST_F(CudaKernels, SortsShortLinesStably) {
  for (const DType dtype : all_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    for (const Shape& shape : {Shape{7, 1}, Shape{133, 5}, Shape{3, 2048}, Shape{2, 1000, 3}})
      agree({with_ties(shape, 9, dtype)}, [](const Inputs& in) -> Outputs {
        const auto [a, b] = sort(in[0]);
        const auto [c, d] = sort(in[0], 0, true);
        const auto [e, f] = sort(in[0], 1, true);
        return {a, b, c, d, e, f};
      });
  }
}

// ---- draws

TEST_F(CudaKernels, SamplesAreTheCpus) {
  const auto drawn = [](const Inputs& in) -> Outputs {
    const ContextGuard guard;
    context().random = {.seed = 3, .step = 1, .first_row = 2};
    return {sample(in[0]), sample(in[0]), sample(in[0])};
  };
  for (const DType dtype : {f32, f64, bf16}) {
    SCOPED_TRACE(name_of(dtype));
    for (const Shape& shape : {Shape{20, 1}, Shape{40, 7}, Shape{2, 5, 33}, Shape{12, 1025},
                               Shape{4, 50257}, Shape{0, 5}})
      agree({softmax(randn(shape, dtype))}, drawn);
  }
}

// All of a row's probability in one place; all but a little; none at its end.
TEST_F(CudaKernels, SamplesOfRowsThatAreMostlyZeros) {
  const auto drawn = [](const Inputs& in) -> Outputs {
    Outputs all;
    for (uint64_t step = 0; step < 8; ++step) {
      const ContextGuard guard;
      context().random = {.step = step};
      all.push_back(sample(in[0]));
    }
    return all;
  };
  for (const int64_t n : {5, 64, 3000}) {
    Tensor one = zeros({n, n > 100 ? 50257 : n}), few = zeros({9, n});
    for (int64_t i = 0; i < n; ++i) one.select(0, i).narrow(0, i * (one.size(1) / n), 1).fill_(1);
    if (n > 100) one = one.narrow(0, n - 20, 20).contiguous();
    few.narrow(1, 0, 1).fill_(0.9);
    few.narrow(1, 3, 2).fill_(0.048);
    agree({one}, drawn);
    agree({few}, drawn);
    EXPECT_EQ(sample(one.to(cuda_device)).view({-1}).tolist(), argmax(one, 1).tolist());
  }
}

// The sum passes the number drawn in f64 by the last bit, or does not.
TEST_F(CudaKernels, SamplesToTheLastBit) {
  for (uint64_t step = 0; step < 20; ++step) {
    const ContextGuard guard;
    const uint64_t bits = Philox::derive(Philox::derive(0, step, 0), 0, 0) >> 11;
    for (const int64_t n : {2, 1500}) {
      for (const uint64_t more : {0, 1}) {
        const double first = static_cast<double>(bits + more) * 0x1p-53;
        std::vector<double> p(static_cast<size_t>(n));
        p[p.size() / 2 - 1] = first;
        p.back() = 1 - first;
        context().random = {.step = step};
        EXPECT_EQ(sample(from_vector(p).to(cuda_device)).item<int64_t>(), more ? n / 2 - 1 : n - 1);
      }
    }
  }
}

// ---- copies and elementwise ops

TEST_F(CudaKernels, CopiesTransposedMatrices) {
  for (const DType dtype : all_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor batch = with_ties({3, 70, 41}, 50, dtype), wide = with_ties({9, 300}, 50, dtype);
    agree({batch, wide}, [](const Inputs& in) -> Outputs {
      Tensor into = zeros({41, 70, 3}, in[0].options());
      Tensor turned = into.permute({2, 1, 0});
      turned.copy_(in[0]);
      return {in[0].permute({0, 2, 1}).contiguous(),
              in[0].T().contiguous(),
              in[0].permute({1, 0, 2}).contiguous(),
              in[0].permute({1, 2, 0}).narrow(1, 3, 17).contiguous(),
              into,
              in[1].T().contiguous(),
              flip(in[1].T(), {0, 1})};
    });
  }
}

// Rows that start at every address, of lengths that packs fit and do not. A row, a column and one
// element that are repeated.
TEST_F(CudaKernels, ElementwiseOpsTakeOddAddresses) {
  for (const DType dtype : {f32, f64, bf16, i64}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor x = with_ties({5, 72}, 50, dtype), row = with_ties({72}, 50, dtype),
                 mask = with_ties({5, 72}, 1, boolean);
    for (const int64_t start : {0, 1, 4, 8}) {
      for (const int64_t n : {64, 63, 7, 1}) {
        SCOPED_TRACE(std::to_string(n) + " from " + std::to_string(start));
        agree({x, row, mask}, [=](const Inputs& in) -> Outputs {
          const Tensor a = in[0].narrow(1, start, n), b = in[1].narrow(0, start, n),
                       m = in[2].narrow(1, start, n), whole = in[0].view({-1}).narrow(0, start, n);
          Tensor changed = in[0].clone();
          changed.narrow(1, start, n).add_(b);
          return {a + b,
                  a * in[0].narrow(1, 3, 1),
                  a - b.narrow(0, 0, 1),
                  where(m, a, b),
                  changed,
                  masked_fill(a, m, 3),
                  whole + b,
                  a < b,
                  neg(whole),
                  abs(a.T()),
                  a.to(f32),
                  a.to(boolean)};
        });
      }
    }
  }
}

// A library reads biases in packs and takes a limited number of matrices at once. Products must
// keep to that, which cuda/emulator/product.cpp checks.
TEST_F(CudaKernels, BiasesAtOddAddresses) {
  const Tensor all = randn({20}), x = randn({3, 4}), w = randn({8, 4});
  for (const DType dtype : {f32, bf16}) {
    for (int64_t first = 0; first < 9; ++first) {
      const auto product = [&](Device device) {
        const Tensor bias = all.to(device).to(dtype).narrow(0, first, 8);
        return linear(x.to(device).to(dtype), w.to(device).to(dtype), bias);
      };
      expect_close({product(cuda_device)}, {product(cpu_device)}, dtype == f32 ? 1e-6 : 1e-2, "y");
    }
  }
}

// gelu and its gradient as epilogues of products, and as kernels behind them.
TEST_F(CudaKernels, GeluWithinAndBehindProducts) {
  const std::vector<std::array<int64_t, 3>> sizes = {{24, 16, 40}, {5, 8, 8}, {7, 3, 9}, {3, 0, 8}};
  for (const char* within : {"0", "1"}) {
    setenv("INKLING_GELU_EPILOGUE", within, 1);
    for (const auto& size : sizes) {
      const int64_t rows = size[0], in = size[1], hidden = size[2];
      for (const DType dtype : {f64, f32, bf16}) {
        for (const bool biased : {false, true}) {
          const Tensor x = randn({rows, in}, dtype), w = randn({hidden, in}, dtype),
                       bias = biased ? randn({hidden}, dtype) : Tensor(),
                       dy = randn({rows, 4}, dtype), v = randn({4, hidden}, dtype);
          const auto passes = [&](Device device) -> Outputs {
            const auto here = [&](const Tensor& t) { return t.defined() ? t.to(device) : t; };
            Tensor h = empty({rows, hidden}, {dtype, device}), y = empty_like(h),
                   dh = empty_like(h);
            if (!kernel::gemm_gelu(y, h, here(x), here(w).T(), here(bias))) {
              kernel::gemm_bias(h, here(x), here(w).T(), here(bias));
              kernel::unary(y, h, UnaryOp::gelu_tanh);
            }
            if (!kernel::gemm_gelu_backward(dh, here(dy), here(v), h)) {
              kernel::gemm(dh, here(dy), here(v), false);
              kernel::unary_backward(dh, dh, h, UnaryOp::gelu_tanh);
            }
            return {h, y, dh};
          };
          const double rounding = dtype == f64 ? 1e-14 : dtype == f32 ? 1e-6 : 1e-2;
          expect_close(passes(cuda_device), passes(cpu_device), rounding, within);
        }
      }
    }
  }
  unsetenv("INKLING_GELU_EPILOGUE");
}

// The gradients of a weight and its bias, from one product and from two launches; added, too.
TEST_F(CudaKernels, RowSumsWithinAndBesideProducts) {
  const bool emulated = describe(cuda_device) == "emulated GPU";  // cuBLASLt may be unable
  for (const char* within : {"0", "1"}) {
    setenv("INKLING_BIAS_EPILOGUE", within, 1);
    for (const DType dtype : {f64, f32, bf16}) {
      for (const DType c_dtype : {dtype, f32}) {
        if (dtype == f64 && c_dtype == f32) continue;
        for (const int64_t first : {0, 3, 4}) {  // where the sums start in memory
          const Tensor dy = randn({24, 8}, dtype), x = randn({24, 16}, dtype),
                       c = randn({8, 16}, c_dtype);
          for (const bool accumulate : {false, true}) {
            const auto run = [&](Device device) -> Outputs {
              Tensor dw = c.to(device).clone(), all = zeros({16}, {c_dtype, device}),
                     db = all.narrow(0, first, 8);
              const Tensor from = dy.to(device), in = x.to(device);
              const bool fused = kernel::gemm_row_sums(dw, db, from.T(), in, accumulate);
              const bool aligned = first * size_of(c_dtype) % 16 == 0;
              const bool may = *within == '1' && dtype != f64 && aligned && !device.is_cpu();
              if (emulated || !may) {
                EXPECT_EQ(fused, may);
              }
              if (fused) return {dw, all};
              kernel::gemm(dw, from.T(), in, accumulate);
              kernel::sum_rows(db, from, false);
              return {dw, all};
            };
            const double rounding = c_dtype == f64 ? 1e-13 : c_dtype == f32 ? 2e-6 : 1e-2;
            expect_close(run(cuda_device), run(cpu_device), rounding, within);
          }
        }
      }
    }
  }
  unsetenv("INKLING_BIAS_EPILOGUE");
}

TEST_F(CudaKernels, ProductsOfManyMatrices) {
  const Tensor a = randn({70'000, 1, 2}), b = randn({70'000, 2, 1});
  agree(
      {a, b}, [](const Inputs& x) { return Outputs{matmul(x[0], x[1])}; }, 1e-6);
}

TEST_F(CudaKernels, ExtremesKnowNan) {
  for (const DType dtype : {f32, f64, bf16}) {
    SCOPED_TRACE(name_of(dtype));
    agree({with_ties({40, 33}, 9, dtype), with_ties({40, 33}, 9, dtype)},
          [](const Inputs& in) -> Outputs {
            const auto [a, b] = max(in[0], 0);
            const auto [c, d] = min(in[0], 1);
            return {maximum(in[0], in[1]),
                    minimum(in[0], in[1]),
                    amax(in[0], {0}),
                    amin(in[0], {1}),
                    max(in[0]),
                    argmax(in[0]),
                    clamp(in[0], -2, 3),
                    a,
                    b,
                    c,
                    d};
          });
  }
}

// ---- reductions, scans

// Long lines are shared by blocks. Sums of whole numbers are exact in any order.
TEST_F(CudaKernels, ReducesLongLines) {
  for (const DType dtype : all_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    std::vector<double> ones(200003, 1);
    ones[70000] = ones[150000] = 0;
    const Tensor x = from_vector(ones).to(dtype);
    agree({x}, [](const Inputs& in) -> Outputs {
      const Tensor odd = in[0].narrow(0, 1, 199999), even = in[0].narrow(0, 0, 199808),
                   matrix = even.view({3122, 64}), narrow = odd.view({-1, 1}).expand({-1, 3});
      Outputs all;
      for (const Tensor& t : {in[0], odd, even, matrix, matrix.T(), narrow, matrix.view({2, -1})}) {
        all.push_back(sum(t));
        all.push_back(argmin(t.dim() == 1 ? t : t.select(0, 0)));
        if (t.dim() == 1) continue;
        for (const int64_t dim : {0, 1}) {
          all.push_back(sum(t, {dim}));
          all.push_back(min(t, dim).indices);
        }
      }
      return all;
    });
  }
}

TEST_F(CudaKernels, VarianceOfLongLines) {
  std::vector<double> values(60000);
  for (double& v : values) v = 1000 + static_cast<double>(random_() % 1000) / 1000;
  const Tensor x = from_vector(values);
  agree(
      {x},
      [](const Inputs& in) -> Outputs {
        const Tensor matrix = in[0].view({1000, 60});
        return {var(in[0]), var(in[0].narrow(0, 1, 59998)), std(matrix, {0}), std(matrix, {1}),
                var(matrix.narrow(1, 0, 1).expand({1000, 7}))};
      },
      1e-10);
}

TEST_F(CudaKernels, RunningSumsOfLongLines) {
  const Tensor x = with_ties({2, 10007}, 3, i64);
  for (const DType dtype : {i64, f32, f64}) {
    agree({x.to(dtype)}, [](const Inputs& in) -> Outputs {
      const Tensor columns = in[0].T().contiguous();
      return {cumsum(in[0], 1),
              cumsum(in[0], 0),
              cumsum(columns, 0),
              cumsum(columns, 1),
              cumsum(in[0].narrow(1, 3, 300), 1),
              cumprod(in[0], 1),
              cumprod(columns, 1),
              cumsum(in[0].narrow(1, 3, 200), 1),
              cumsum(columns.view({-1}), 0)};
    });
  }
}

// ---- ids

// Many elements of few ids, which lie together once they are sorted.
TEST_F(CudaKernels, AddsUpRunsOfEqualIds) {
  const int64_t n = std::getenv("INKLING_TEST_LARGEST") != nullptr ? 1100 : 3000;
  std::vector<int64_t> few(n), same(n, 2), distinct(n);
  for (size_t i = 0; i < few.size(); ++i) {
    few[i] = static_cast<int64_t>(random_() % 4);
    distinct[i] = static_cast<int64_t>(i * 7 % n);
  }
  for (const auto& ids : {few, same, distinct}) {
    for (const DType dtype : {f32, f64, i64}) {
      agree({with_ties({n, 24}, 3, i64).to(dtype), from_vector(ids)},
            [=](const Inputs& in) -> Outputs {
              const Tensor y = zeros({n, 24}, in[0].options()), columns = in[0].T(),
                           rows_ids = in[1].view({n, 1}).expand({n, 24});
              return {scatter_add(y, 0, rows_ids, in[0]),
                      scatter_add(y.T(), 1, rows_ids.T(), columns),
                      scatter_add(y, 0, rows_ids.contiguous(), in[0]),
                      scatter_add(y.select(1, 0), 0, in[1], in[0].select(1, 3)),
                      scatter(y, 0, rows_ids, in[0]),
                      scatter(y.T(), 1, rows_ids.T(), columns),
                      scatter(y.select(1, 0), 0, in[1], in[0].select(1, 3)),
                      index_select(in[0], 0, in[1]),
                      index_select(columns, 1, in[1]),
                      gather(in[0].narrow(1, 1, 16), 0, rows_ids.narrow(1, 0, 16))};
            });
    }
  }
}

// Whether lines fit in shared memory or are sorted. Few ids repeat within a warp, and often.
TEST_F(CudaKernels, ScatterKeepsTheOrderOfIds) {
  for (const auto& [rows, count] :
       {std::pair{3, 700}, {1800, 1000}, {7000, 1500}, {20000, 4000}, {30000, 2000}}) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < 3 * count; ++i)
      places.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(rows)));
    const Tensor ids = from_vector(places).view({3, count});
    for (const DType dtype : {f32, f64, bf16, i64}) {
      const Tensor y = (randn({3, rows}) * 100).to(dtype),
                   source = (randn({3, count}) * 100).to(dtype);
      const auto on = [&](Device device, bool add) {
        const Tensor to = y.to(device), at = ids.to(device), from = source.to(device);
        return (add ? scatter_add(to, 1, at, from) : scatter(to, 1, at, from)).to(Device());
      };
      const auto what = std::to_string(rows) + " " + name_of(dtype);
      EXPECT_TRUE(same_bits(on(cuda_device, false), on(Device(), false))) << what;
      // Sums in bf16 are rounded once here; those of sorted ids have another order.
      const bool sorted = rows * size_of(dtype) > 96 << 10;
      if (dtype == bf16 || (sorted && dtype != i64)) continue;
      EXPECT_TRUE(same_bits(on(cuda_device, true), on(Device(), true))) << what;
    }
  }
}

TEST_F(CudaKernels, SortsIds) {
  for (const int64_t limit : {1, 65, 50257}) {
    for (const int64_t n : {1, 2000, 20000}) {
      std::vector<int64_t> values(static_cast<size_t>(n));
      for (int64_t& v : values) v = static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
      const Tensor ids = from_vector(values);
      const auto [sorted, places] = sort(ids);
      const Options there{i64, cuda_device};
      Tensor found = empty({n}, there), positions = empty({n}, there);
      cuda::sort_ids(found, positions, ids.to(cuda_device), 0, limit);
      EXPECT_EQ(found.tolist<int64_t>(), sorted.tolist<int64_t>());
      EXPECT_EQ(positions.tolist<int64_t>(), places.tolist<int64_t>());
    }
  }
}

}  // namespace
}  // namespace ink
