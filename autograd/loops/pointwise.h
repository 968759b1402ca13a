// The scalar formula of each elementwise op, for both devices: one struct and one name in a list.
//
// f is written for any arithmetic type T of its domain (float for bf16). Where df is given, the
// gradient takes one pass: df(dy, v) is dy f'(x), v being x or y as the comment beside it says. CPU
// loops are vectorised by the compiler, so formulas are branch-free where that matters and call
// loops/simd.h, not libm. A formula of libm may name another one, Vector, for such loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"
#include "autograd/loops/simd.h"

namespace ink {

// Adding an op: its struct below, its name in a list, its public function and vjp in ops/unary.cpp,
// ops/binary.cpp or ops/compare.cpp.
// clang-format off
#define INK_UNARY_OPS(OP) \
  OP(neg) OP(abs) OP(sign) OP(relu) OP(exp) OP(log) OP(sqrt) OP(rsqrt) OP(sin) OP(cos) OP(tanh) \
  OP(sigmoid) OP(silu) OP(erf) OP(gelu_erf) OP(gelu_tanh) OP(log1p) OP(expm1) OP(floor) OP(ceil) \
  OP(trunc) OP(round) OP(pow3) OP(bitwise_not)
#define INK_BINARY_OPS(OP) \
  OP(add) OP(sub) OP(rsub) OP(mul) OP(div) OP(rdiv) OP(pow) OP(rpow) OP(maximum) OP(minimum) \
  OP(remainder) OP(atan2) OP(swiglu) OP(leaky_relu) OP(elu) OP(softplus) OP(smooth_l1) \
  OP(bitwise_and) OP(bitwise_or) OP(bitwise_xor)
#define INK_COMPARE_OPS(OP) \
  OP(eq) OP(ne) OP(lt) OP(le) OP(gt) OP(ge) OP(logical_and) OP(logical_or) OP(logical_xor)
// clang-format on

#define INK_VALUE(op) op,
#define INK_NAME(op) #op,
#define INK_ENUM(Enum, OPS)                          \
  enum class Enum { OPS(INK_VALUE) };                \
  inline const char* name_of(Enum op) {              \
    constexpr const char* names[] = {OPS(INK_NAME)}; \
    return names[static_cast<int>(op)];              \
  }
INK_ENUM(UnaryOp, INK_UNARY_OPS)
INK_ENUM(BinaryOp, INK_BINARY_OPS)
INK_ENUM(CompareOp, INK_COMPARE_OPS)
#undef INK_ENUM
#undef INK_NAME
#undef INK_VALUE

namespace formula {

// The dtypes besides floats on which a formula is defined.
struct OnFloats {
  static constexpr bool integers = false;
};
struct OnNumbers {
  static constexpr bool integers = true;
};
struct OnIntegers : OnNumbers {};
struct OnBools {};  // elements that are not 0 count as true

// 1 / (1 + e^-x) and 1 minus that, which keeps its digits where x is large.
template <class T>
struct Logistic {
  T value, rest;
  INK_DEVICE explicit Logistic(T x) {
    const T e = simd::exp(-x);
    value = T(1) / (T(1) + e);
    rest = x > 5 ? e * value : T(1) - value;
  }
};

// Phi(x), the normal distribution function, and its density. With fits of our own, for floats
//   Phi(-|x|) = e^(-|x| r(|x|)) / 2,  where x < -3: e^(-x^2 / 2) q(1 / x^2) / -x
// with minimax r (an error of 9e-9 in Phi) and q (1e-7 of it), which is less work than erf, and
// exact near 0; for doubles
//   Phi(-|x|) = e^(-x^2 / 2) p(t) / (|x| + 5),  t = (|x| - 5) / (|x| + 5)
// with p of an error of 6e-17 of it. (As in: Shepherd and Laframboise, Chebyshev approximation of
// (1 + 2x) exp(x^2) erfc x, 1981.) A tail needs its exponent in two parts, since e^v multiplies the
// rounding of one by v. Loops over blocks without tails use the formulas without (kFar false):
// above kTail both give the same bits.
template <class T, bool kFar = true>
struct Normal {
  static constexpr T kTail = -3;
  T x, high, low = 0;  // -x^2 / 2 = high + low
  bool far = false;
  INK_DEVICE explicit Normal(T at) : x(at), high(T(-0.5) * x * x) {
    if constexpr (kFar) far = x < kTail;
    if constexpr (kFar) low = far ? simd::lost_by(T(-0.5) * x, x, high) : T(0);
  }
  INK_DEVICE T density() const { return T(0.39894228040143268) * exp(high); }
  INK_DEVICE T cdf() const {
    const T tail = cdf_below(std::fabs(x));
    return x < 0 ? tail : T(1) - tail;
  }

 private:
  INK_DEVICE T exp(T v) const {
    if constexpr (kFar) return simd::exp_of_sum(v, low);
    return simd::exp_nonpositive(v);
  }
  INK_DEVICE float cdf_below(float a) const {
    a = a > 14 ? 14 : a;
    const float r = simd::polynomial(a, a * a, 2.010057277e-6f, -2.782340582e-5f, 1.315077342e-4f,
                                     8.912753416e-5f, -4.888636218e-3f, 3.638264977e-2f,
                                     0.3183004304f, 0.7978851553f);
    return (far ? far_factor(a) : 0.5f) * exp(far ? high : -a * r);
  }
  INK_DEVICE static float far_factor(float a) {
    const float t = 1 / a, z = t * t;
    return t * simd::polynomial(z, z * z, 186.091507f, -101.868027f, 27.2333832f, -5.47576571f,
                                1.18679225f, -0.398847491f, 0.398941964f);
  }
  INK_DEVICE double cdf_below(double a) const {
    a = a > 40 ? 40 : a;
    const double share = 1 / (a + 5), t = (a - 5) * share;
    const double p =
        simd::polynomial(t, t * t, -1.80732120781460442e-10, 1.68910576651537816e-9,
                         7.66723610720265294e-9, -9.14450208128917316e-9, -6.58488684007974027e-8,
                         4.2091833338869143e-8, 4.32983703741560923e-7, -3.36512204349906969e-7,
                         -2.76914578228227769e-6, 3.98087128566697258e-6, 1.6681160364586646e-5,
                         -4.97628103779030359e-5, -5.9375713816471311e-5, 5.44899065037323022e-4,
                         -7.97869400739248738e-4, -2.99337677064926821e-3, 2.07950668000914593e-2,
                         -6.91186387062946855e-2, 0.165020366170375021, -0.313533156671305158,
                         0.495305615969976576, -0.665382502890056737, 0.769193049750062974);
    return p * share * exp(high);
  }
};

// The gate by which gelu_tanh multiplies x, and the gate's derivative:
//   gate = (1 + tanh(v / 2)) / 2 = 1 / (1 + e^-v),  v = 2 sqrt(2/pi) (x + 0.044715 x^3)
// Computed from e^-|v|, which neither overflows nor cancels.
template <class T, bool kFar = true>
struct GeluGate {
  static constexpr T kTail = -4;
  T value, slope;
  INK_DEVICE explicit GeluGate(T x) {
    const T z = x * x, v = x * (T(1.5957691216057308) + T(0.071354816272600248) * z);
    const T e = decay(x, z, v), share = T(1) / (T(1) + e);
    value = v < 0 ? e * share : share;
    const T finite = T(1e6) < z ? T(1e6) : z;  // z may overflow, where e is 0
    slope = e * share * share * (T(1.5957691216057308) + T(0.21406444881780074) * finite);
  }

 private:
  INK_DEVICE static T decay(T x, T z, T v) {  // e^-|v|
    if constexpr (kFar && !std::is_same_v<T, double>) {
      // v = x (w + rest). a has few bits, so that the difference to w is exact.
      const T a = T(0x1.98845p+0), b = T(0x1.2444f2p-4), bz = b * z, w = bz + a, far = x * w;
      const T rest = a - w + bz + simd::lost_by(b, z, bz) + b * simd::lost_by(x, x, z) +
                     (T(0x1.49b16ap-29) * z + T(0x1.9ea1b2p-23));
      const bool is_far = x < kTail;
      return simd::exp_of_sum(is_far ? far : -std::fabs(v),
                              is_far ? simd::lost_by(x, w, far) + x * rest : T(0));
    } else {
      return simd::exp_nonpositive(-std::fabs(v));
    }
  }
};

// a^b for b >= 0 by squaring; for b < 0 the fraction rounds to 0 unless a is 1 or -1.
INK_DEVICE inline int64_t integer_pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t y = 1, base = static_cast<uint64_t>(a);  // unsigned: overflow wraps
  for (; b > 0; b >>= 1, base *= base) {
    if (b & 1) y *= base;
  }
  return static_cast<int64_t>(y);
}

// clang-format off
struct neg : OnNumbers {
  template <class T> INK_DEVICE static T f(T x) { return -x; }
};
struct sign : OnNumbers {
  template <class T> INK_DEVICE static T f(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : T(0); }
};
struct abs : OnNumbers {
  template <class T> INK_DEVICE static T f(T x) {
    if constexpr (std::is_integral_v<T>) { return x < 0 ? -x : x; } else { return std::fabs(x); }
  }
  template <class T> INK_DEVICE static T df(T dy, T x) { return dy * sign::f(x); }
};
struct relu : OnNumbers {
  template <class T> INK_DEVICE static T f(T x) { return x < 0 ? T(0) : x; }
  template <class T> INK_DEVICE static T df(T dy, T y) { return y <= 0 ? T(0) : dy; }
};
struct vector_exp {
  static constexpr bool kPartial = true;  // it is right where it fits
  template <class T> static bool fits(T x) {
    return std::fabs(x) <= simd::Format<T>::kMostNormalExp;
  }
  template <class T> INK_DEVICE static T f(T x) { return simd::exp_normal(x); }
};
struct exp : OnFloats {
  using Vector = vector_exp;
  template <class T> INK_DEVICE static T f(T x) { return simd::exp(x); }
};
struct vector_log {
  static constexpr bool kPartial = true;
  template <class T> static bool fits(T x) {
    return x >= std::numeric_limits<T>::min() && x <= std::numeric_limits<T>::max();
  }
  template <class T> INK_DEVICE static T f(T x) { return simd::log_normal(x); }
};
struct log : OnFloats {
  using Vector = vector_log;
  template <class T> INK_DEVICE static T f(T x) { return simd::log(x); }
};
struct sqrt : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return std::sqrt(x); }
  template <class T> INK_DEVICE static T df(T dy, T y) { return dy / (T(2) * y); }
};
struct rsqrt : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return T(1) / std::sqrt(x); }
  template <class T> INK_DEVICE static T df(T dy, T y) { return T(-0.5) * dy * (y * y * y); }
};
struct vector_sin {
  static constexpr bool kPartial = true;
  template <class T> static bool fits(T x) { return std::fabs(x) <= T(simd::kMostAngle); }
  template <class T> INK_DEVICE static T f(T x) { return simd::sin(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) { return dy * simd::cos(x); }
};
struct vector_cos {
  static constexpr bool kPartial = true;
  template <class T> static bool fits(T x) { return vector_sin::fits(x); }
  template <class T> INK_DEVICE static T f(T x) { return simd::cos(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) { return -dy * simd::sin(x); }
};
struct sin : OnFloats {
  using Vector = vector_sin;
  template <class T> INK_DEVICE static T f(T x) { return std::sin(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) { return dy * std::cos(x); }
};
struct cos : OnFloats {
  using Vector = vector_cos;
  template <class T> INK_DEVICE static T f(T x) { return std::cos(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) { return -dy * std::sin(x); }
};
struct tanh : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return simd::tanh(x); }
  template <class T> INK_DEVICE static T df(T dy, T y) { return dy * (T(1) - y * y); }
};
struct sigmoid : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return Logistic<T>(x).value; }
  template <class T> INK_DEVICE static T df(T dy, T y) { return dy * (T(1) - y) * y; }
};
struct silu : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return x / (T(1) + simd::exp(-x)); }
  template <class T> INK_DEVICE static T df(T dy, T x) {
    const Logistic<T> s(x);
    return dy * s.value * (T(1) + x * s.rest);
  }
};
struct erf : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return simd::erf(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) {
    const T high = -x * x;
    return dy * T(1.1283791670955126) * simd::exp_of_sum(high, simd::lost_by(-x, x, high));
  }
};
template <bool kFar>
struct any_gelu_erf : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return x * Normal<T, kFar>(x).cdf(); }
  template <class T> INK_DEVICE static T df(T dy, T x) {
    const Normal<T, kFar> at(x);
    return dy * (at.cdf() + x * at.density());
  }
  template <class T> static bool fits(T x) { return !(x < Normal<T>::kTail); }
};
template <bool kFar>
struct any_gelu_tanh : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return x * GeluGate<T, kFar>(x).value; }
  template <class T> INK_DEVICE static T df(T dy, T x) {
    const GeluGate<T, kFar> gate(x);
    return dy * (gate.value + x * gate.slope);
  }
  template <class T> static bool fits(T x) { return !(x < GeluGate<T>::kTail); }
};
struct vector_gelu_erf : any_gelu_erf<false> { static constexpr bool kPartial = true; };
struct vector_gelu_tanh : any_gelu_tanh<false> { static constexpr bool kPartial = true; };
struct gelu_erf : any_gelu_erf<true> { using Vector = vector_gelu_erf; };
struct gelu_tanh : any_gelu_tanh<true> { using Vector = vector_gelu_tanh; };

struct log1p : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return simd::log1p(x); }
  template <class T> INK_DEVICE static T df(T dy, T x) { return dy / (x + T(1)); }
};
struct expm1 : OnFloats {
  template <class T> INK_DEVICE static T f(T x) { return simd::expm1(x); }
  template <class T> INK_DEVICE static T df(T dy, T y) { return dy * (y + T(1)); }
};
// The four ways to round leave integers as they are.
#define INK_ROUNDING(name, function) \
  struct name : OnNumbers { \
    template <class T> INK_DEVICE static T f(T x) { \
      if constexpr (std::is_integral_v<T>) { return x; } else { return std::function(x); } \
    } \
  };
INK_ROUNDING(floor, floor)
INK_ROUNDING(ceil, ceil)
INK_ROUNDING(trunc, trunc)
INK_ROUNDING(round, nearbyint)  // halves to even
#undef INK_ROUNDING
struct pow3 : OnNumbers { template <class T> INK_DEVICE static T f(T x) { return x * x * x; } };
struct bitwise_not : OnIntegers { INK_DEVICE static int64_t f(int64_t x) { return ~x; } };

struct add  : OnNumbers { template <class T> INK_DEVICE static T f(T a, T b) { return a + b; } };
struct sub  : OnNumbers { template <class T> INK_DEVICE static T f(T a, T b) { return a - b; } };
// A formula with a and b exchanged names the other one, Exchanged, which CPU loops compute instead.
struct rsub : OnNumbers {
  using Exchanged = sub;
  template <class T> INK_DEVICE static T f(T a, T b) { return b - a; }
};
struct mul  : OnNumbers { template <class T> INK_DEVICE static T f(T a, T b) { return a * b; } };
struct div  : OnFloats { template <class T> INK_DEVICE static T f(T a, T b) { return a / b; } };
struct rdiv : OnFloats {
  using Exchanged = div;
  template <class T> INK_DEVICE static T f(T a, T b) { return b / a; }
};
struct vector_pow {
  template <class T> INK_DEVICE static T f(T a, T b) { return simd::pow(a, b); }
};
struct pow  : OnNumbers {
  using Vector = vector_pow;
  template <class T> INK_DEVICE static T f(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return integer_pow(a, b);
    } else {
      return std::pow(a, b);
    }
  }
};
struct rpow : OnNumbers {
  using Exchanged = pow;
  template <class T> INK_DEVICE static T f(T a, T b) { return pow::f(b, a); }
};
// The rest of a division whose quotient is a double's integer, which makes the rest exact.
struct vector_remainder {
  static constexpr bool kPartial = true;
  template <class T> static bool fits(T a, T b) {
    constexpr T most = sizeof(T) == 4 ? 0x1p28 : 0x1p50;
    return std::fabs(a) < std::fabs(b) * most && std::fabs(b) <= std::numeric_limits<T>::max();
  }
  template <class T> static T f(T a, T b) {
    const double p = a, q = b, n = std::floor(p / q);  // the quotient, or one more by rounding
    const double rest = sizeof(T) == 4 ? p - n * q : std::fma(-n, q, p);
    const double whole = rest != 0 && (rest < 0) != (q < 0) ? rest + q : rest;
    return whole == 0 ? std::copysign(T(0), a) : static_cast<T>(whole);
  }
};
// The remainder has b's sign, as in Python.
struct remainder : OnNumbers {
  using Vector = vector_remainder;
  template <class T> INK_DEVICE static T f(T a, T b) {
    T rest;
    if constexpr (std::is_integral_v<T>) {
      rest = b == 0 || b == -1 ? 0 : a % b;
    } else {
      rest = std::fmod(a, b);
    }
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
struct swiglu : OnFloats {
  template <class T> INK_DEVICE static T f(T gate, T up) { return silu::f(gate) * up; }
};
struct atan2 : OnFloats {
  template <class T> INK_DEVICE static T f(T a, T b) { return simd::atan2(a, b); }
};
struct leaky_relu : OnFloats {
  template <class T> INK_DEVICE static T f(T x, T slope) { return x > 0 ? x : slope * x; }
};
struct elu : OnFloats {
  template <class T> INK_DEVICE static T f(T x, T alpha) {
    return x > 0 ? x : alpha * simd::expm1(x);
  }
};
struct softplus : OnFloats {
  template <class T> INK_DEVICE static T f(T x, T threshold) {
    const T soft = simd::log1p(simd::exp(x));
    return x > threshold ? x : soft;
  }
};
struct smooth_l1 : OnFloats {
  template <class T> INK_DEVICE static T f(T d, T beta) {
    const T distance = std::fabs(d), far = distance - T(0.5) * beta;
    return distance < beta ? T(0.5) * d * d / beta : far;
  }
};
struct bitwise_and : OnIntegers {
  INK_DEVICE static int64_t f(int64_t a, int64_t b) { return a & b; }
};
struct bitwise_or : OnIntegers {
  INK_DEVICE static int64_t f(int64_t a, int64_t b) { return a | b; }
};
struct bitwise_xor : OnIntegers {
  INK_DEVICE static int64_t f(int64_t a, int64_t b) { return a ^ b; }
};
struct maximum : OnNumbers {
  template <class T> INK_DEVICE static T f(T a, T b) { return a != a || a > b ? a : b; }
};
struct minimum : OnNumbers {
  template <class T> INK_DEVICE static T f(T a, T b) { return a != a || a < b ? a : b; }
};

struct clamp : OnNumbers {  // bounds that are numbers
  template <class T> INK_DEVICE static T f(T x, T low, T high) {
    const T y = x < low ? low : x;
    return y > high ? high : y;
  }
};

struct eq { template <class T> INK_DEVICE static bool f(T a, T b) { return a == b; } };
struct ne { template <class T> INK_DEVICE static bool f(T a, T b) { return a != b; } };
struct lt { template <class T> INK_DEVICE static bool f(T a, T b) { return a < b; } };
struct le { template <class T> INK_DEVICE static bool f(T a, T b) { return a <= b; } };
// a > b is b < a: no loop of their own is compiled for gt and ge.
struct gt {
  using Exchanged = lt;
  template <class T> INK_DEVICE static bool f(T a, T b) { return a > b; }
};
struct ge {
  using Exchanged = le;
  template <class T> INK_DEVICE static bool f(T a, T b) { return a >= b; }
};
struct logical_and : OnBools {
  template <class T> INK_DEVICE static bool f(T a, T b) { return (a != T(0)) & (b != T(0)); }
};
struct logical_or : OnBools {
  template <class T> INK_DEVICE static bool f(T a, T b) { return (a != T(0)) | (b != T(0)); }
};
struct logical_xor : OnBools {
  template <class T> INK_DEVICE static bool f(T a, T b) { return (a != T(0)) != (b != T(0)); }
};
// clang-format on

// The formula that CPU loops over numbers of type T compute: F::Vector for floats, if there is one.
template <class F, class T>
struct InLoops {
  using type = F;
};
template <class F, class T>
requires(std::is_floating_point_v<T>&& requires { typename F::Vector; }) struct InLoops<F, T> {
  using type = typename F::Vector;
};

}  // namespace formula

/// Calls body(F{}) with the formula of an op: visit(op, [&]<class F>(F) { ... F::f(x) ... }).
#define INK_CASE(name) \
  case Op::name:       \
    return body(formula::name{});
template <class Body>
void visit(UnaryOp op, Body&& body) {
  using Op = UnaryOp;
  switch (op) { INK_UNARY_OPS(INK_CASE) }
}
template <class Body>
void visit(BinaryOp op, Body&& body) {
  using Op = BinaryOp;
  switch (op) { INK_BINARY_OPS(INK_CASE) }
}
template <class Body>
void visit(CompareOp op, Body&& body) {
  using Op = CompareOp;
  switch (op) { INK_COMPARE_OPS(INK_CASE) }
}
#undef INK_CASE

/// Calls body(T{}) with the element type of a dtype on which F is defined. Throws for other dtypes.
template <class F, class Body>
void for_domain(const char* op, DType dtype, Body&& body) {
  if constexpr (F::integers) {
    if (dtype == DType::i64) return body(int64_t{});
  }
  if constexpr (std::is_base_of_v<formula::OnIntegers, F>) {
    detail::fail({op, ": expected int64 or bool, got ", name_of(dtype)});
  } else {
    INK_CHECK(is_floating(dtype), op, ": expected ",
              F::integers ? "a floating dtype or int64" : "a floating dtype", ", got ", dtype);
    for_float(op, dtype, body);
  }
}

}  // namespace ink
