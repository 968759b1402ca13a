// Sums of rows, the gradient of a bias: the twin of autograd/ops/linear.cpp.
#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

template <class To>
struct StoreOrAdd {
  To* y;
  bool accumulate;
  __device__ void operator()(int64_t i, double total) const {
    const double before = accumulate ? static_cast<double>(static_cast<compute_t<To>>(y[i])) : 0;
    y[i] = static_cast<To>(static_cast<compute_t<To>>(before + total));
  }
};

}  // namespace

void sum_rows(Array& y, const Array& x, bool accumulate) {
  const Array one_row = y.seen_as({{1, y.size(0)}, {0, y.strides()[0]}, y.layout().offset});
  for_float("sum_rows", x.dtype(), [&]<class T>(T) {
    for_float("sum_rows", y.dtype(), [&]<class To>(To) {
      const StoreOrAdd<To> store{y.mutable_data<To>(), accumulate};
      reduce_loop<Fold<Sum<T>, T>, T>("sum_rows", one_row, x, store);
    });
  });
}

}  // namespace ink::cuda
