// Comparisons and logical ops: the twins of autograd/ops/compare.cpp.
// The formulas are in autograd/loops/pointwise.h.
#include "cuda/elementwise.cuh"

namespace ink::cuda {

void compare(Array& y, const Array& a, const Array& b, CompareOp op) {
  visit(op, [&]<class F>(F) {
    for_any(a.dtype(), [&]<class T>(T) { map(name_of(op), y, Formula<F, bool, T, T>(), a, b); });
  });
}

void compare_number(Array& y, const Array& x, double number, CompareOp op) {
  visit(op, [&]<class F>(F) {
    for_any(x.dtype(), [&]<class T>(T) {
      using C = compute_t<T>;
      const C rounded = static_cast<C>(static_cast<T>(static_cast<C>(number)));
      map(name_of(op), y, FormulaOfNumber<F, bool, T>{rounded}, x);
    });
  });
}

}  // namespace ink::cuda
