// The scalar formula of each elementwise op, compiled for both devices: one struct and one name in
// a list.
//
// f is written for any arithmetic type T (float for bf16). CPU loops are vectorised by the
// compiler, so formulas are branch-free where that matters and call simd.h, not libm, for exp, log
// and tanh.
#pragma once

#include <cmath>
#include <cstdint>

#include "autograd/dtype.h"
#include "autograd/simd.h"

namespace ink {

// Adding an op: its struct here, its name in the list below, its public function and vjp in
// ops/pointwise.cpp.
#define INK_UNARY_OPS(OP) OP(neg) OP(exp) OP(log) OP(sqrt) OP(rsqrt) OP(tanh)
#define INK_BINARY_OPS(OP) OP(add) OP(sub) OP(mul) OP(div) OP(maximum) OP(minimum)

#define INK_NAME(op) op,
enum class UnaryOp { INK_UNARY_OPS(INK_NAME) };
enum class BinaryOp { INK_BINARY_OPS(INK_NAME) };
#undef INK_NAME

namespace formula {

// clang-format off
struct neg   { template <class T> INK_DEVICE static T f(T x) { return -x; } };
struct exp   { template <class T> INK_DEVICE static T f(T x) { return simd::exp(x); } };
struct log   { template <class T> INK_DEVICE static T f(T x) { return simd::log(x); } };
struct sqrt  { template <class T> INK_DEVICE static T f(T x) { return std::sqrt(x); } };
struct rsqrt { template <class T> INK_DEVICE static T f(T x) { return T(1) / std::sqrt(x); } };
struct tanh  { template <class T> INK_DEVICE static T f(T x) { return simd::tanh(x); } };

struct add { template <class T> INK_DEVICE static T f(T a, T b) { return a + b; } };
struct sub { template <class T> INK_DEVICE static T f(T a, T b) { return a - b; } };
struct mul { template <class T> INK_DEVICE static T f(T a, T b) { return a * b; } };
struct div { template <class T> INK_DEVICE static T f(T a, T b) { return a / b; } };
struct maximum { template <class T> INK_DEVICE static T f(T a, T b) { return a != a || a > b ? a : b; } };
struct minimum { template <class T> INK_DEVICE static T f(T a, T b) { return a != a || a < b ? a : b; } };
// clang-format on

}  // namespace formula
}  // namespace ink
