// Vector math: exp, log and tanh as branch-free formulas that the compiler turns into vector code
// inside a loop. Floats are within 2 ulp of the exact value, with IEEE infinities, NaN and (for exp
// and log) denormals kept; doubles are libm's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "autograd/dtype.h"

namespace ink::simd {

/// 2^n r for the polynomial part below; in two steps, so that results among the denormals come out
/// right.
INK_DEVICE inline float scale_by_power_of_two(float r, int32_t n) {
  const int32_t half = n >> 1;
  return r * std::bit_cast<float>((half + 127) << 23) *
         std::bit_cast<float>((n - half + 127) << 23);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n e^r, e^r by its Taylor series to r^7 (next term
/// below 6e-9).
INK_DEVICE inline float exp(float x) {
  const float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float n = std::nearbyint(clamped * 1.44269504f);
  const float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  const float y = scale_by_power_of_two(p, static_cast<int32_t>(n));
  return x != x ? x : y;
}

/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh s, s = (m - 1) / (m + 1), by its
/// series to s^9.
INK_DEVICE inline float log(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const int32_t bits = std::bit_cast<int32_t>(denormal ? x * 8388608.0f : x);
  const int32_t shifted = bits - 0x3f3504f3;  // sqrt(1/2)
  const float e = static_cast<float>((shifted >> 23) - (denormal ? 23 : 0));
  const float m = std::bit_cast<float>((shifted & 0x007fffff) + 0x3f3504f3);
  const float f = m - 1.0f, s = f / (m + 1.0f), z = s * s;
  float p = 0.222222222f;
  p = p * z + 0.285714286f;
  p = p * z + 0.4f;
  p = p * z + 0.666666667f;
  const float half_f2 = 0.5f * f * f;  // 2 s = f - s f, which keeps the leading term exact
  const float y = e * 0.693359375f + (f - (half_f2 - (s * (half_f2 + p * z) - e * 2.12194440e-4f)));
  const float infinity = std::numeric_limits<float>::infinity();
  const float special = x == 0.0f  ? -infinity
                        : x < 0.0f ? std::numeric_limits<float>::quiet_NaN()
                                   : x;
  return x > 0.0f && x < infinity ? y : special;
}

/// Odd polynomial near 0 (Cephes' coefficients), 1 - 2 / (e^2x + 1) elsewhere.
INK_DEVICE inline float tanh(float x) {
  const float a = std::fabs(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = x + x * z * p;
  const float far = std::copysign(1.0f - 2.0f / (exp(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far;
}

INK_DEVICE inline double exp(double x) { return std::exp(x); }
INK_DEVICE inline double log(double x) { return std::log(x); }
INK_DEVICE inline double tanh(double x) { return std::tanh(x); }

}  // namespace ink::simd
