// Normal numbers, with PyTorch's bits.
//
// Both schemes are Box and Muller's: from uniforms u and v, sqrt(-2 ln u) cos(2 pi v) and
// sqrt(-2 ln u) sin(2 pi v) are two independent normals. For floats, PyTorch evaluates them in
// eight AVX2 lanes, with the single-precision polynomials of Stephen Moshier's Cephes library in
// the vector form of Julien Pommier's sse_mathfun. Their last bits differ from libm's. Here one
// lane is a plain function, every FMA that PyTorch's compiler made is written out, and this file is
// compiled without contraction. So the bits are the same on any processor. For doubles PyTorch
// calls libm, and so does this file.
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/random/generator.h"
#include "autograd/random/with_fma.h"

namespace ink {
namespace {

constexpr int kBlock = 16;  // PyTorch transforms 16 uniforms at a time: 8 for u, then 8 for v
constexpr int kLanes = kBlock / 2;

#define INK_INLINE inline __attribute__((always_inline))

/// The polynomial in x with these coefficients, the highest power's first: one FMA for each term.
template <class... Floats>
INK_INLINE float horner(float x, float first, Floats... rest) {
  ((first = std::fma(first, x, rest)), ...);
  return first;
}

/// ln x for normal x > 0: x = 2^e (1 + m) with sqrt(1/2) <= 1 + m < sqrt(2), and a polynomial in m.
INK_INLINE float lane_log(float x) {
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // their sum is ln 2
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float half_to_one = std::bit_cast<float>((bits & 0x007FFFFF) | 0x3F000000);
  const bool small = half_to_one < 0.707106781186547524f;
  const float e = static_cast<float>(static_cast<int>(bits >> 23) - 126 - (small ? 1 : 0));
  const float m = (half_to_one - 1.0f) + (small ? half_to_one : 0.0f);
  const float m2 = m * m;
  const float series = horner(m, 7.0376836292E-2f, -1.1514610310E-1f, 1.1676998740E-1f,
                              -1.2420140846E-1f, 1.4249322787E-1f, -1.6668057665E-1f,
                              2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f);
  float tail = std::fma(series * m, m2, e * kLn2Low);
  tail = std::fma(m2, -0.5f, tail);
  return std::fma(e, kLn2High, m + tail);
}

struct SinCos {
  float sin, cos;
};

/// sin x and cos x for 0 <= x < 8192: the distance r to the nearest even multiple j of pi/4, whose
/// low bits say which polynomial is which and with which sign.
INK_INLINE SinCos lane_sincos(float x) {
  const int j = (static_cast<int>(x * 1.27323954473516f) + 1) & ~1;  // 4 / pi
  const float multiple = static_cast<float>(j);
  float r = std::fma(multiple, -0.78515625f, x);  // pi / 4 in three parts
  r = std::fma(multiple, -2.4187564849853515625e-4f, r);
  r = std::fma(multiple, -3.77489497744594108e-8f, r);
  const float r2 = r * r;
  const float sin_series = horner(r2, -1.9515295891E-4f, 8.3321608736E-3f, -1.6666654611E-1f);
  const float cos_series =
      horner(r2, 2.443315711809948E-5f, -1.388731625493765E-3f, 4.166664568298827E-2f);
  const float sin_r = std::fma(sin_series * r2, r, r);
  const float cos_r = std::fma(cos_series * r2, r2, -(r2 * 0.5f)) + 1.0f;
  const bool swapped = (j & 2) != 0;
  const uint32_t sin_sign = static_cast<uint32_t>(j & 4) << 29;
  const uint32_t cos_sign = static_cast<uint32_t>(~(j - 2) & 4) << 29;
  const auto negate_if = [](float y, uint32_t sign) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(y) ^ sign);
  };
  return {negate_if(swapped ? cos_r : sin_r, sin_sign),
          negate_if(swapped ? sin_r : cos_r, cos_sign)};
}

/// 16 uniforms in [0, 1) become 16 normals, in place.
INK_WITH_FMA void transform_block(float* x, float mean, float std) {
  constexpr float kTwoPi = static_cast<float>(2 * std::numbers::pi);
  for (int i = 0; i < kLanes; ++i) {
    const float radius = std::sqrt(-2.0f * lane_log(1.0f - x[i]));
    const SinCos angle = lane_sincos(kTwoPi * x[i + kLanes]);
    x[i] = std::fma(radius * angle.cos, std, mean);
    x[i + kLanes] = std::fma(radius * angle.sin, std, mean);
  }
}

void transform_block(double* x, double mean, double std) {
  for (int i = 0; i < kLanes; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - x[i]));
    const double angle = 2 * std::numbers::pi * x[i + kLanes];
    x[i] = std::fma(radius * std::cos(angle), std, mean);
    x[i + kLanes] = std::fma(radius * std::sin(angle), std, mean);
  }
}

void draw_uniform(float* out, int64_t n, Generator& g) {
  for (float* const end = out + n; out < end;) {
    const auto bits = g.take(end - out);
    for (const uint32_t word : bits) *out++ = static_cast<float>(word & 0xFFFFFF) * 0x1p-24f;
  }
}

void draw_uniform(double* out, int64_t n, Generator& g) {
  for (int64_t i = 0; i < n; ++i) out[i] = g.uniform53();
}

}  // namespace

double Generator::normal() {
  if (spare_normal_) {
    const double spare = *spare_normal_;
    spare_normal_.reset();
    return spare;
  }
  const double u1 = uniform53(), u2 = uniform53();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double angle = 2.0 * std::numbers::pi * u1;
  spare_normal_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

template <class T>
void normal_(T* out, int64_t n, double mean, double std, Generator& g) {
  INK_CHECK(std >= 0.0, "normal_: expected std >= 0, got ", std);
  const std::lock_guard lock(g.mutex());
  if (n < kBlock) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(std::fma(g.normal(), std, mean));
    return;
  }
  const T mu = static_cast<T>(mean), sigma = static_cast<T>(std);
  draw_uniform(out, n, g);
  parallel_for(n / kBlock, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) transform_block(out + i * kBlock, mu, sigma);
  });
  if (n % kBlock != 0) {
    T* const last = out + n - kBlock;
    draw_uniform(last, kBlock, g);
    transform_block(last, mu, sigma);
  }
}
template void normal_(float*, int64_t, double, double, Generator&);
template void normal_(double*, int64_t, double, double, Generator&);

}  // namespace ink
