// Products on AVX2 and FMA, and on NEON.
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "autograd/base/target.h"
#include "autograd/gemm/units.h"

#if defined(__x86_64__) || defined(__aarch64__)
#ifdef __x86_64__
INK_BEGIN_TARGET("avx2,fma")
#endif  // every ARM of 64 bits has NEON

#include "autograd/gemm/panels.h"

namespace ink {
namespace {

// AVX2 has 16 registers of 32 bytes: 12 for sums. NEON has 32 of 16 bytes: 24 for sums.
#ifdef __x86_64__
constexpr int kBytes = 32, kRows = 6, kVectors = 2;
#else
constexpr int kBytes = 16, kRows = 8, kVectors = 3;
#endif
template <class T>
using Unit = Panels<T, kBytes, kRows, kVectors>;

int64_t scratch_bytes(DType dtype, int64_t m, int64_t n, int64_t k) {
  return dtype == f64 ? Unit<double>::scratch_bytes(m, n, k) : Unit<float>::scratch_bytes(m, n, k);
}

void product(const GemmProduct& p, void* scratch) {
  p.c.dtype == f64 ? Unit<double>::product(p, scratch) : Unit<float>::product(p, scratch);
}

double keep_busy(DType dtype, int64_t rounds) {
  return dtype == f64 ? multiply_adds<double, kBytes>(rounds)
                      : multiply_adds<float, kBytes>(rounds);
}

const GemmUnit* unit(const char* name, const char* title) {
  static const GemmUnit unit{
      name, title, [](DType) { return true; }, nullptr, scratch_bytes, product, nullptr, keep_busy};
  return &unit;
}

}  // namespace

#ifdef __x86_64__
const GemmUnit* avx2_unit() {
  __builtin_cpu_init();
  const bool there = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return there ? unit("avx2", "AVX2") : nullptr;
}
const GemmUnit* neon_unit() { return nullptr; }
#else
const GemmUnit* avx2_unit() { return nullptr; }
const GemmUnit* neon_unit() { return unit("neon", "NEON"); }
#endif

}  // namespace ink

#ifdef __x86_64__
INK_END_TARGET
#endif
#else

namespace ink {

const GemmUnit* avx2_unit() { return nullptr; }
const GemmUnit* neon_unit() { return nullptr; }

}  // namespace ink

#endif
