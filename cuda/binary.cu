// Elementwise ops of two tensors, or a tensor and a number: the twins of autograd/ops/binary.cpp.
// The formulas are in autograd/loops/pointwise.h.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

// Adds f32 and bf16 without a conversion, such as the residual stream and a bf16 branch.
struct AddMixed {
  __device__ float operator()(float wide, bfloat16 narrow) const {
    return wide + static_cast<float>(narrow);
  }
};

// A scalar beside bf16 keeps its digits where it is a factor().
struct ByFactor {
  bool divides;
  __device__ bfloat16 operator()(bfloat16 x, float factor) const {
    const auto wide = static_cast<float>(x);
    return static_cast<bfloat16>(divides ? wide / factor : wide * factor);
  }
};

}  // namespace

void binary(Array& y, const Array& a, const Array& b, BinaryOp op) {
  if (op == BinaryOp::add && a.dtype() == f32 && b.dtype() == bf16)
    return map("add", y, AddMixed(), a, b);
  if (op == BinaryOp::add && a.dtype() == bf16 && b.dtype() == f32)
    return map("add", y, AddMixed(), b, a);
  if ((op == BinaryOp::mul || op == BinaryOp::div) && a.dtype() == bf16 && b.dtype() == f32)
    return map(name_of(op), y, ByFactor{op == BinaryOp::div}, a, b);
  visit(op, [&]<class F>(F) {
    for_domain<F>(name_of(op), a.dtype(),
                  [&]<class T>(T) { map(name_of(op), y, Formula<F, T, T, T>(), a, b); });
  });
}

void binary_number(Array& y, const Array& x, double number, BinaryOp op) {
  visit(op, [&]<class F>(F) {
    for_domain<F>(name_of(op), x.dtype(), [&]<class T>(T) {
      map(name_of(op), y, FormulaOfNumber<F, T, T>{static_cast<compute_t<T>>(number)}, x);
    });
  });
}

}  // namespace ink::cuda
