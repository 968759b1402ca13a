// Vector math: elementary functions as branch-free formulas that the compiler turns into vector
// code inside a loop. Results are within 2 ulp of the exact value (tests/autograd/test_simd.cpp
// measures them), with IEEE infinities, NaN, denormals and signs of zero kept, except where a
// comment says otherwise. Coefficients are minimax fits of our own, with their error, or those of a
// series.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "autograd/base/device_function.h"

namespace ink::simd {

// ---- parts

/// What the formulas know of a float and of a double.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kFraction = 23, kBias = 127;
  static constexpr float kLn2 = 0.693359375f, kLn2Rest = -2.12194440e-4f;
  static constexpr float kLeastExp = -104, kMostExp = 89, kMostNormalExp = 87;
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kFraction = 52, kBias = 1023;
  static constexpr double kLn2 = 0x1.62e42fefa38p-1, kLn2Rest = 0x1.ef35793c7673p-45;
  static constexpr double kLeastExp = -746, kMostExp = 710, kMostNormalExp = 708;
};
template <class T>
using Bits = typename Format<T>::Bits;

template <class T>
INK_DEVICE constexpr Bits<T> bits_of(T x) {
  return std::bit_cast<Bits<T>>(x);
}

/// A polynomial in x, given x2 = x^2 and the coefficients, the highest first. Even and odd powers
/// are summed apart, because in one sum each step would wait for the last:
///   (a x + b) x + c = b x + (a x^2 + c)
template <class T>
INK_DEVICE inline T polynomial(T x, T, T a, T b) {
  return a * x + b;
}
template <class T, class... Lower>
INK_DEVICE inline T polynomial(T x, T x2, T a, T b, T c, Lower... lower) {
  return polynomial(x, x2, b, a * x2 + c, lower...);
}

/// The same in one sum, which takes longer, but rounds less where the coefficients alternate.
template <class T>
INK_DEVICE inline T horner(T, T a) {
  return a;
}
template <class T, class... Lower>
INK_DEVICE inline T horner(T x, T a, T b, Lower... lower) {
  return horner(x, a * x + b, lower...);
}

/// x rounded to an integer, as a number and as bits: 1.5 * 2^kFraction is added, and the lowest
/// bits of the sum then hold it. For |x| < 2^(kFraction - 1).
template <class T>
struct Rounded {
  static constexpr T kRound = T(Bits<T>{3} << (Format<T>::kFraction - 1));
  T sum;
  INK_DEVICE explicit Rounded(T x) : sum(x + kRound) {}
  INK_DEVICE T number() const { return sum - kRound; }
  INK_DEVICE Bits<T> bits() const { return bits_of(sum) - bits_of(kRound); }
};

// Powers of 2. The exponent is modulo 2^32 or 2^64. For NaN and infinity it means nothing, and the
// caller picks the result.
template <class T>
INK_DEVICE inline T two_to(Bits<T> n) {
  return std::bit_cast<T>((n + Format<T>::kBias) << Format<T>::kFraction);
}
template <class T>
INK_DEVICE inline Bits<T> half_of(Bits<T> n) {  // rounded down. AVX2 shifts no signed 64 bits.
  constexpr Bits<T> offset = 4096;
  return (n + offset) / 2 - offset / 2;
}
/// y 2^n in two factors, so that denormal results are rounded once and 2^n may overflow.
template <class T>
INK_DEVICE inline T scaled(T y, Bits<T> n) {
  const Bits<T> half = half_of<T>(n);
  return y * two_to<T>(half) * two_to<T>(n - half);
}

// ---- exp, expm1, tanh

/// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2: fits. e^r has a relative error of 3e-9 for floats, and
/// e^r - 1 one of 3e-17 for doubles.
INK_DEVICE inline float exp_tail(float r) {
  return polynomial(r, r * r, 1.38139834e-3f, 8.36873334e-3f, 4.16683991e-2f, 0.1666652062f,
                    0.4999999342f);
}
INK_DEVICE inline double exp_tail(double r) {
  return polynomial(r, r * r, 2.51106774872983263e-8, 2.76206290067223967e-7,
                    2.75572406767753546e-6, 2.48015204682076178e-5, 1.98412698879040242e-4,
                    1.38888889171548628e-3, 8.33333333332198709e-3, 4.16666666666284188e-2,
                    0.166666666666666739, 0.5);
}
template <class T>
INK_DEVICE inline T expm1_near(T r) {
  return exp_tail(r) * (r * r) + r;
}

/// r = x - n ln 2. The first product is exact.
template <class T>
INK_DEVICE inline T without_powers(T x, T n) {
  return x - n * Format<T>::kLn2 - n * Format<T>::kLn2Rest;
}
template <class T>
INK_DEVICE inline Rounded<T> powers_in(T x) {
  return Rounded<T>(x * T(1.4426950408889634));  // 1 / ln 2
}

/// y = e^x, or the limit where x is too large for a finite result that is not 0.
template <class T>
INK_DEVICE inline T or_limit_of_exp(T x, T y, T least, T limit) {
  const T finite = x < least ? limit : y;
  return x > Format<T>::kMostExp ? std::numeric_limits<T>::infinity() : finite;
}

///   e^x = 2^n e^r,  x = n ln 2 + r
template <class T>
INK_DEVICE inline T exp(T x) {
  const Rounded<T> n = powers_in(x);
  const T y = scaled(expm1_near(without_powers(x, n.number())) + T(1), n.bits());
  return or_limit_of_exp(x, y, Format<T>::kLeastExp, T(0));
}

/// e^x in half the time, for x whose e^x and e^-x are normal numbers: |x| <= kMostNormalExp.
template <class T>
INK_DEVICE inline T exp_normal(T x) {
  const Rounded<T> n = powers_in(x);
  const T scale = two_to<T>(n.bits());
  return expm1_near(without_powers(x, n.number())) * scale + scale;
}

/// e^x for x <= 0. Denormal values, below about 1e-38 or 1e-308, are 0. For softmax, whose largest
/// argument is 0.
template <class T>
INK_DEVICE inline T exp_nonpositive(T x) {
  return x < -Format<T>::kMostNormalExp ? T(0) : exp_normal(x);
}

/// a b - p, what the product p = a b has lost by rounding.
template <class T>
INK_DEVICE inline T lost_by(T a, T b, T p) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
  return std::fma(a, b, -p);
#else  // by products of halves, which are exact (Dekker 1971)
  constexpr Bits<T> mask = ~Bits<T>{0} << (Format<T>::kFraction / 2 + 1);
  const T a1 = std::bit_cast<T>(bits_of(a) & mask), b1 = std::bit_cast<T>(bits_of(b) & mask),
          a2 = a - a1, b2 = b - b1;
  return a1 * b1 - p + a1 * b2 + a2 * b1 + a2 * b2;
#endif
}

/// e^(x + rest) for x <= 0, an argument with more digits than a T has. Denormal values, too.
template <class T>
INK_DEVICE inline T exp_of_sum(T x, T rest) {
  constexpr Bits<T> up = 64;
  const Rounded<T> n = powers_in(x);
  const T scale = two_to<T>(n.bits() + up);
  const T y = expm1_near(without_powers(x, n.number()) + rest) * scale + scale;
  return x < Format<T>::kLeastExp ? T(0) : y * two_to<T>(-up);
}

///   e^x - 1 = 2^n (e^r - 1 + 1 - 2^-n)
template <class T>
INK_DEVICE inline T expm1(T x) {
  const Rounded<T> n = powers_in(x);
  const T r = without_powers(x, n.number());
  const Bits<T> half = half_of<T>(n.bits()), rest = n.bits() - half;
  const T scale = two_to<T>(half), leading = scale - two_to<T>(-rest) + scale * r;
  const T y = (leading + scale * (exp_tail(r) * (r * r))) * two_to<T>(rest);
  return std::copysign(or_limit_of_exp(x, y, T(-50), T(-1)), x);
}

///   tanh x = t / (t + 2),  t = e^2x - 1 = 2^n (e^r - 1) + 2^n - 1,  x > 0
/// Up to 3 ulp.
template <class T>
INK_DEVICE inline T tanh(T x) {
  const T twice = T(2) * std::fabs(x), bounded = T(40) < twice ? T(40) : twice;
  const Rounded<T> n = powers_in(bounded);
  const T scale = two_to<T>(n.bits());
  const T t = scale * expm1_near(without_powers(bounded, n.number())) + (scale - T(1));
  return std::copysign(t / (t + T(2)), x);
}

// ---- log, log1p

/// log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)): a fit; log(1 + f) has a relative error of
/// 6e-9.
INK_DEVICE inline float log_rest(float f) {
  const float z = f * f;
  const float tail =
      polynomial(f, z, -7.634499184e-2f, 0.1276157811f, -0.1316018189f, 0.1420175782f,
                 -0.1662335738f, 0.2000122688f, -0.2500082103f, 0.3333333171f);
  return z * (f * tail - 0.5f);
}
/// By log(1 + f) = 2 atanh s,  s = f / (2 + f). The polynomial, (2 atanh s - 2 s) / s^3 in z = s^2,
/// is a fit; atanh s has a relative error of 2e-18.
INK_DEVICE inline double log_rest(double f) {
  const double s = f / (2 + f), z = s * s;
  const double tail = polynomial(z, z * z, 0.147564275991372714, 0.153182390475971588,
                                 0.181833891431464357, 0.22222202224696447, 0.285714287031613004,
                                 0.399999999996143967, 0.666666666666669868);
  const double half_square = 0.5 * f * f;
  return s * (half_square + tail * z) - half_square;  // 2 s = f - s f
}

/// x = 2^e m,  m in [sqrt(1/2), sqrt(2)),  x positive, normal and finite
template <class T>
struct Split {
  static constexpr Bits<T> kImplicit = Bits<T>{1} << Format<T>::kFraction;
  static constexpr T kLarge = T(kImplicit);
  T e, m;
  INK_DEVICE explicit Split(T x) {
    constexpr Bits<T> least = bits_of(T(0.70710678118654752));
    const Bits<T> shifted = bits_of(x) + (bits_of(T(1)) - least);
    e = std::bit_cast<T>((shifted >> Format<T>::kFraction) + bits_of(kLarge)) -
        (kLarge + T(Format<T>::kBias));
    m = std::bit_cast<T>((shifted & (kImplicit - 1)) + least);
  }
  /// x may be denormal, too.
  INK_DEVICE static Split of_positive(T x) {
    const bool denormal = x < std::numeric_limits<T>::min();
    Split split(x * (denormal ? kLarge : T(1)));
    split.e -= denormal ? T(Format<T>::kFraction) : T(0);
    return split;
  }
};

///   log x = e ln 2 + log m,  log m = f + ...,  f = m - 1
template <class T>
INK_DEVICE inline T log_of(Split<T> split) {
  const T f = split.m - T(1);  // exact
  return split.e * Format<T>::kLn2 + (f + (log_rest(f) + split.e * Format<T>::kLn2Rest));
}
template <class T>
INK_DEVICE inline T log_positive(T x) {
  return log_of(Split<T>::of_positive(x));
}
template <class T>
INK_DEVICE inline T log_normal(T x) {
  return log_of(Split<T>(x));
}

/// y = log x, or the limit where x is not positive and finite: -infinity, NaN or x.
template <class T>
INK_DEVICE inline T or_limit_of_log(T x, T y) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T positive = x < infinity ? y : x;
  const T other = x == T(0) ? -infinity : std::numeric_limits<T>::quiet_NaN();
  return x > T(0) ? positive : other;
}

template <class T>
INK_DEVICE inline T log(T x) {
  return or_limit_of_log(x, log_positive(x));
}

///   log(1 + x) = log u + (1 + x - u) / u,  u = 1 + x rounded
template <class T>
INK_DEVICE inline T log1p(T x) {
  const T u = T(1) + x;
  return std::copysign(or_limit_of_log(u, log_positive(u) + (x - (u - T(1))) / u), x);
}

/// Below this sum of e^(x_i - max x), one term is 1, and the sum has lost digits of the others.
template <class T>
inline constexpr T kOneTerm = T(1.25);
/// The log of total = 1 + others, of that with the most digits.
template <class T>
INK_DEVICE inline T log_of_sum(T total, T others) {
  return total < kOneTerm<T> ? log1p(others) : log(total);
}

// ---- erf

// Near 0: erf(x) = x + x p(x^2). Elsewhere: erf(x) = 1 - e^-r(|x|). The relative errors of the fits
// are 2e-8 and 2e-9 for floats, 4e-17 and 3e-18 for doubles.
INK_DEVICE inline float erf_near(float z) {
  return polynomial(z, z * z, -5.86208127e-4f, 4.96750658e-3f, -2.67488640e-2f, 1.12813207e-1f,
                    -3.76124459e-1f, 1.28379142e-1f);
}
INK_DEVICE inline float erf_exponent(float a) {
  a = a > 4.0f ? 4.0f : a;
  return polynomial(a, a * a, -2.03676566e-4f, 3.11785252e-3f, -2.25190483e-2f, 1.04525918e-1f,
                    6.36518950e-1f, 1.12806100f, 1.04526549e-4f);
}
INK_DEVICE inline double erf_near(double z) {
  return polynomial(z, z * z, 1.02700726930198402e-8, -1.55496448444982877e-7,
                    1.63763775023995461e-6, -1.49199834909230374e-5, 1.20550907900510475e-4,
                    -8.54832035185559992e-4, 5.22397751062338181e-3, -2.68661706335885079e-2,
                    0.112837916708955687, -0.376126389031825535, 0.128379167095512534);
}
INK_DEVICE inline double erf_exponent(double a) {
  a = a > 5.95 ? 5.95 : a;
  return polynomial(a, a * a, -1.36811564142395887e-12, 6.1153800121096095e-11,
                    -1.28004466688780492e-9, 1.66584598307993437e-8, -1.50743251363470858e-7,
                    1.00270959154091489e-6, -5.03184648232801574e-6, 1.90594584327598484e-5,
                    -5.2303272522070265e-5, 8.68808638189332279e-5, 1.48625922351534138e-5,
                    -5.97887365243442923e-4, 1.71956128134385691e-3, -2.36446776515975312e-4,
                    -1.91080871721702059e-2, 0.102762229576396342, 0.636623291762120468,
                    1.12837844551891697, 6.79083767475503798e-8);
}

template <class T>
INK_DEVICE inline T erf(T x) {
  const T a = std::fabs(x), near = a + a * erf_near(a * a);
  const T far = T(1) - exp_nonpositive(-erf_exponent(a));
  return std::copysign(a < T(0.9) ? near : far, x);
}

// ---- atan2

/// (atan t - t) / t^3, s = t^2 and t in [0, 1]: fits; atan t has relative errors of 3e-9 for
/// floats, 5e-18 for doubles.
INK_DEVICE inline float atan_tail(float s) {
  return horner(s, -0.00179359922f, 0.0109145003f, -0.0311776378f, 0.0579573697f, -0.0840343615f,
                0.109521805f, -0.142642406f, 0.199985482f, -0.333332991f);
}
INK_DEVICE inline double atan_tail(double s) {
  return horner(s, 1.322497195222181e-05, -0.00015215981231760494, 0.0008313169092660193,
                -0.0028849042934757005, 0.007196475440028037, -0.013900520794182133,
                0.021984811840719987, -0.029903825228451253, 0.036641890546303804,
                -0.042191780042903027, 0.04722321881999347, -0.052535184665654, 0.058805277992609,
                -0.0666640405597232, 0.07692279839265652, -0.09090907003009237, 0.11111111007028726,
                -0.14285714282575268, 0.19999999999951465, -0.3333333333333307);
}

///   atan2(y, x) = k pi / 2 +- atan t,  t = min(|x|, |y|) / max(|x|, |y|)
template <class T>
INK_DEVICE inline T atan2(T y, T x) {
  constexpr T kQuarter = T(1.5707963267948966);  // pi / 2, and what it lacks
  constexpr T kRest = std::is_same_v<T, float> ? T(-4.37113883e-8) : T(6.123233995736766e-17);
  const T a = std::fabs(y), b = std::fabs(x);
  const bool steep = a > b, left = std::copysign(T(1), x) < T(0);
  const T least = steep ? b : a, most = steep ? a : b;
  const T t = least == most ? T(least > T(0)) : least / most;  // two may be 0 or infinite
  const T s = t * t, atan = t + t * (s * atan_tail(s));
  const T k = steep ? T(1) : left ? T(2) : T(0);
  return std::copysign(k * kQuarter + (k * kRest + (steep == left ? atan : -atan)), y);
}

// ---- sin, cos

/// Up to here sin and cos are right.
inline constexpr double kMostAngle = 0x1p20;

/// x = n pi / 2 + r,  |r| <= pi / 4, by doubles. All but the last part of pi / 2 have 33 bits, so
/// that their products with n are exact.
struct LongAngle {
  uint64_t n;
  double r;
  INK_DEVICE explicit LongAngle(float x) : LongAngle(Rounded<double>(x * kTurns)) {
    r = x - k * 0x1.921fb544p+0 - k * 0x1.0b4611a626331p-34;
  }
  INK_DEVICE explicit LongAngle(double x) : LongAngle(Rounded<double>(x * kTurns)) {
    const double first = x - k * 0x1.921fb544p+0, second = k * 0x1.0b4611a6p-34;
    r = first - second;
    r += first - r - second - k * 0x1.3198a2ep-69 - k * 0x1.b839a252049c1p-104;
  }

 private:
  static constexpr double kTurns = 0.63661977236758134;  // 2 / pi
  double k;
  INK_DEVICE explicit LongAngle(Rounded<double> turns) : n(turns.bits()), k(turns.number()) {}
};
/// The same faster: a fused multiply-add rounds no product. The first difference is exact, because
/// it is a multiple of an ulp of pi / 2. n is rounded from a T, so that for floats |r| may be 0.85
/// where x is near kMostAngle.
template <class T>
struct FusedAngle {
  Bits<T> n;
  T r;
  INK_DEVICE explicit FusedAngle(T x) {
    const Rounded<T> turns(x * T(0.63661977236758134));
    n = turns.bits();
    r = reduced(x, turns.number());
  }

 private:
  INK_DEVICE static float reduced(float x, float k) {
    const float first = std::fma(-k, 0x1.921fb6p+0f, x),
                second = std::fma(k, 0x1.777a5cp-25f, first);
    return std::fma(k, 0x1.ee59dap-50f, second);
  }
  INK_DEVICE static double reduced(double x, double k) {
    const double first = std::fma(-k, 0x1.921fb54442d18p+0, x),
                 second = std::fma(-k, 0x1.1a62633145c07p-54, first);
    return std::fma(k, 0x1.f1976b7ed8fbcp-110, second);
  }
};
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
template <class T>
using Angle = FusedAngle<T>;
#else
template <class T>
using Angle = LongAngle;
#endif

/// (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4, z = r^2: fits; sin r and cos r have relative
/// errors of 4e-9 for floats, 4e-18 for doubles.
INK_DEVICE inline float sin_tail(float z) {
  return polynomial(z, z * z, -1.952023445e-4f, 8.33220517e-3f, -0.1666665552f);
}
INK_DEVICE inline float cos_tail(float z) {
  return polynomial(z, z * z, 2.446102703e-5f, -1.388759339e-3f, 4.166665233e-2f);
}
INK_DEVICE inline double sin_tail(double z) {
  return polynomial(z, z * z, 1.58987559352751154e-10, -2.50507955877229153e-8,
                    2.75573139622823627e-6, -1.98412698307128519e-4, 8.33333333332378369e-3,
                    -0.166666666666666392);
}
INK_DEVICE inline double cos_tail(double z) {
  return polynomial(z, z * z, -1.13688460821545899e-11, 2.08759107171997689e-9,
                    -2.75573158140355043e-7, 2.4801587294872756e-5, -1.3888888888883368e-3,
                    4.16666666666666569e-2);
}

/// sin(n pi / 2 + r)
template <class T>
INK_DEVICE inline T sin_of(T r, Bits<T> n) {
  const T z = r * r, sine = r + r * z * sin_tail(z);
  const T cosine = T(1) - (T(0.5) * z - z * z * cos_tail(z));
  const Bits<T> odd = -(n & 1), negative = (n & 2) << (8 * sizeof(T) - 2);
  return std::bit_cast<T>(((bits_of(cosine) & odd) | (bits_of(sine) & ~odd)) ^ negative);
}

// For |x| <= kMostAngle.
template <class T>
INK_DEVICE inline T sin(T x) {
  const Angle<T> angle(x);
  const T y = sin_of(static_cast<T>(angle.r), static_cast<Bits<T>>(angle.n));
  return x == T(0) ? x : y;
}
template <class T>
INK_DEVICE inline T cos(T x) {
  const Angle<T> angle(x);
  return sin_of(static_cast<T>(angle.r), static_cast<Bits<T>>(angle.n + 1));
}

// ---- pow

/// y = |a|^b with the sign of a^b, and with the special values of IEEE.
template <class T>
INK_DEVICE inline T signed_power(T y, T a, T b) {
  const auto is_integer = [](T x) {  // x >= 0
    constexpr T large = T(Bits<T>{1} << Format<T>::kFraction);
    return (x >= large) | ((x + large) - large == x);
  };
  const T magnitude = std::fabs(b);
  const bool integer = is_integer(magnitude), odd = integer & !is_integer(T(0.5) * magnitude);
  const bool one = (b == T(0)) | (std::fabs(a) == T(1));
  const T absolute = one ? T(1) : y, with_sign = odd ? std::copysign(absolute, a) : absolute;
  const bool undefined = (a < T(0)) & (a >= std::numeric_limits<T>::lowest()) & !integer;
  return undefined ? std::numeric_limits<T>::quiet_NaN() : with_sign;
}

INK_DEVICE inline float pow(float a, float b) {
  const double y = exp(static_cast<double>(b) * log(std::fabs(static_cast<double>(a))));
  return signed_power(static_cast<float>(y), a, b);
}

/// The upper half of x's digits. A product of two halves is exact.
INK_DEVICE inline double upper(double x) {
  return std::bit_cast<double>(bits_of(x) & ~((uint64_t{1} << 27) - 1));
}

/// log x in two parts, whose sum has a relative error of 2^-64; 0 < x < infinity.
///   log m = s v,  v = 2 + z (2 / 3 + z q(z)),  z = s^2
/// Products are of halves, hence exact, wherever their error would count.
struct LongLog {
  double high, low;
  INK_DEVICE explicit LongLog(double x) {
    const auto split = Split<double>::of_positive(x);
    const double f = split.m - 1, g = split.m + 1, s = f / g, z = s * s;
    const double g1 = upper(g), g2 = split.m - (g1 - 1);
    const double s1 = upper(s), s2 = (f - s1 * g1 - s1 * g2) / g;
    const double square = s1 * s1, z1 = upper(square), z2 = square - z1 + s2 * (s1 + s);
    const double q = polynomial(z, z * z, 0.131947186778949385, 0.132570038711919923,
                                0.153867486688093553, 0.181817845735810383, 0.222222225172868441,
                                0.285714285701164833, 0.400000000000022141);
    const double third1 = 0x1.555555p-1, third2 = 0x1.5555555555555p-27;
    const double w1 = third1 * z1, w2 = third1 * z2 + third2 * z + z * z * q;
    const double v = 2 + (w1 + w2), v1 = upper(v), v2 = w1 - (v1 - 2) + w2;
    const double powers = split.e * Format<double>::kLn2, m1 = s1 * v1;
    high = powers + m1;
    low = m1 - (high - powers) + (split.e * Format<double>::kLn2Rest + (s1 * v2 + s2 * v));
  }
};

INK_DEVICE inline double pow(double a, double b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double base = std::fabs(a);
  const LongLog log(base);
  const double l1 = upper(log.high + log.low), l2 = log.high - l1 + log.low, b1 = upper(b);
  const double x1 = b1 * l1, x2 = b1 * l2 + (b - b1) * (l1 + l2);
  const double bounded = x1 < -746 ? -746 : x1 > 710 ? 710 : x1;
  const Rounded<double> n = powers_in(bounded);
  const double r = without_powers(bounded, n.number()) + (bounded == x1 ? x2 : 0);
  const double y = scaled(expm1_near(r) + 1, n.bits());
  const bool finite = (base > 0) & (base < infinity) & (std::fabs(b) < infinity);
  const bool nan = (base != base) | (b != b);
  const double limit = nan ? a + b : (base > 1) == (b > 0) ? infinity : 0;
  return signed_power(finite ? y : limit, a, b);
}

}  // namespace ink::simd
