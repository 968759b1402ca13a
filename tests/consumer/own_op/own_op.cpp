// unit: each row of x at length 1.   y = x / |x|   dx = (dy - y sum(dy y)) / |x|
#include <cmath>
#include <iostream>
#include <vector>

#include <inkling/autograd/autograd.h>
#include <inkling/autograd/loops/rows.h>

using ink::Array, ink::Grads, ink::Saved, ink::Tensor;

// The kernels. map_rows calls `row` for each row, on all threads; C is float or double, and rows of
// bf16 are converted on the way.
void unit_kernel(Array& y, const Array& x) {
  const auto row = []<class C>(int64_t n, C* b, const C* a) {
    const C length = std::sqrt(ink::sum_of<C>(n, [&](int64_t i) { return a[i] * a[i]; }));
    for (int64_t i = 0; i < n; ++i) b[i] = a[i] / length;
  };
  ink::map_rows("unit", row, y, x);
}

void unit_backward_kernel(Array& dx, const Array& dy, const Array& x) {
  const auto row = []<class C>(int64_t n, C* d, const C* g, const C* a) {
    const C square = ink::sum_of<C>(n, [&](int64_t i) { return a[i] * a[i]; });
    const C share = ink::sum_of<C>(n, [&](int64_t i) { return g[i] * a[i]; }) / square;
    for (int64_t i = 0; i < n; ++i) d[i] = (g[i] - a[i] * share) / std::sqrt(square);
  };
  ink::map_rows("unit_backward", row, dx, dy, x);
}

// The definition: the same in public ops.
Tensor unit_composed(const Tensor& x) { return x / sqrt(sum(x * x, {-1}, true)); }

Tensor unit(const Tensor& input) {
  INK_CHECK(input.dim() > 0 && input.device().is_cpu(),
            "unit: expected a tensor on the CPU with a dimension, got ", input.shape(), " on ",
            input.device());
  if (ink::composed()) return unit_composed(input);
  const Tensor x = input.contiguous();  // the kernels' rows have no gaps
  Tensor y = empty_like(x);
  unit_kernel(y, x);
  return ink::record("unit", {x}, y, [x = Saved::input(x)](const Tensor& dy) -> Grads {
    if (ink::grad_enabled())  // dx will be differentiated, and a kernel's result cannot be
      return ink::differentiate([](const auto& in) { return unit_composed(in[0]); }, {*x}, dy);
    Tensor dx = empty_like(dy);
    unit_backward_kernel(dx, dy.contiguous(), *x);
    return {dx};
  });
}

int main() {
  const Tensor x = ink::randn({3, 5}, ink::f64).requires_grad_();
  const auto op = [](const std::vector<Tensor>& in) { return unit(in[0]); };
  const auto first = ink::gradcheck(op, {x}), second = ink::gradgradcheck(op, {x});
  const bool equal = ink::allclose(unit(x), unit_composed(x));
  std::cout << "gradient: " << first << "\nsecond derivative: " << second
            << "\nequal to its definition: " << (equal ? "yes" : "no") << "\n";
  return first.ok && second.ok && equal ? 0 : 1;
}
