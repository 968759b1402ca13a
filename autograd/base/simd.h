// Vector math: exp, log, tanh and erf as branch-free formulas that the compiler turns into vector
// code inside a loop. Floats are within 2 ulp of the exact value, with IEEE infinities, NaN and
// (for exp and log) denormals kept; doubles are libm's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"

namespace ink::simd {

/// Adding it to a float rounds that to an integer, which the lowest bits of the sum then hold.
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23

/// e^r, r = x - n ln 2, for |r| <= ln 2 / 2, by its Taylor series to r^7 (next term below 6e-9).
INK_DEVICE inline float exp_remainder(float x, float n) {
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  return p * (r * r) + r + 1.0f;
}

// The integer n in a float that was rounded by adding kRound, and 2^n. Both are modulo 2^32. For
// NaN and infinity they mean nothing, and the caller picks the result.
INK_DEVICE inline uint32_t power_of(float rounded) {
  return std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(kRound);
}
INK_DEVICE inline float two_to(uint32_t n) { return std::bit_cast<float>((n + 127) << 23); }

///   e^x = 2^n e^r,  x = n ln 2 + r
/// 2^n is applied in two factors, so that denormal results are rounded once.
INK_DEVICE inline float exp(float x) {
  const float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float rounded = clamped * 1.44269504f + kRound;
  const uint32_t power = power_of(rounded);
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(power) >> 1);
  return exp_remainder(clamped, rounded - kRound) * two_to(half) * two_to(power - half);
}

/// e^x for x <= 0, in two thirds of the time. Values below e^-87, about 1e-38, are 0. For softmax,
/// whose largest argument is 0.
INK_DEVICE inline float exp_nonpositive(float x) {
  const float rounded = x * 1.44269504f + kRound;
  const float y = exp_remainder(x, rounded - kRound) * two_to(power_of(rounded));
  return x < -87.0f ? 0.0f : y;
}

///   log x = e ln 2 + log m,  x = 2^e m,  m in [sqrt(1/2), sqrt(2))
///   log m = 2 atanh s,  s = (m - 1) / (m + 1),  by its series to s^9
INK_DEVICE inline float log(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const uint32_t bits = std::bit_cast<uint32_t>(denormal ? x * 8388608.0f : x);
  const auto shifted = static_cast<int32_t>(bits - 0x3f3504f3);  // sqrt(1/2)
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
  const float near = a + a * z * p;
  const float far = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return std::copysign(a < 0.625f ? near : far, x);
}

/// Odd polynomial near 0, 1 - exp(-R(|x|)) with R a polynomial elsewhere; both minimax fits of our
/// own (relative errors 2e-8 and 2e-9).
INK_DEVICE inline float erf(float x) {
  const float a = std::fabs(x), z = x * x, b = a > 4.0f ? 4.0f : a;
  float p = -5.86208127e-4f;
  p = p * z + 4.96750658e-3f;
  p = p * z - 2.67488640e-2f;
  p = p * z + 1.12813207e-1f;
  p = p * z - 3.76124459e-1f;
  p = p * z + 1.28379142e-1f;
  const float near = a + a * p;
  float r = -2.03676566e-4f;
  r = r * b + 3.11785252e-3f;
  r = r * b - 2.25190483e-2f;
  r = r * b + 1.04525918e-1f;
  r = r * b + 6.36518950e-1f;
  r = r * b + 1.12806100f;
  r = r * b + 1.04526549e-4f;
  const float far = 1.0f - exp(-r);
  return std::copysign(a < 0.9f ? near : far, x);
}

INK_DEVICE inline double exp(double x) { return std::exp(x); }
INK_DEVICE inline double exp_nonpositive(double x) { return std::exp(x); }
INK_DEVICE inline double log(double x) { return std::log(x); }
INK_DEVICE inline double tanh(double x) { return std::tanh(x); }
INK_DEVICE inline double erf(double x) { return std::erf(x); }

}  // namespace ink::simd
