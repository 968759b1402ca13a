// sum, mean, prod, max, min: the twins of autograd/ops/reduce.cpp.
#include <algorithm>
#include <type_traits>

#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

template <class To, class Far>
struct Store {
  To* y;
  Far divisor;
  __device__ void operator()(int64_t i, Far total) const {
    y[i] = static_cast<To>(total / divisor);
  }
};

// y = x combined by F, divided by `divisor`.
template <class To, class F, class T>
void fold(const char* op, Array& y, const Array& x, T, F, int64_t divisor = 1) {
  using Far = typename F::Far;
  const Store<To, Far> store{y.mutable_data<To>(), static_cast<Far>(divisor)};
  reduce_loop<Fold<F, T>, T>(op, y, x, store);
}

}  // namespace

void reduce(Array& y, const Array& x, ReduceOp op) {
  for_any(x.dtype(), [&]<class T>(T) {
    using To = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;  // of sums
    switch (op) {
      case ReduceOp::sum:
        return fold<To>("sum", y, x, T(), Sum<T>());
      case ReduceOp::sum_of_squares:
        return fold<To>("sum", y, x, T(), SumOfSquares<T>());
      case ReduceOp::mean:
        return fold<To>("mean", y, x, T(), Sum<T>(), x.numel() / std::max<int64_t>(y.numel(), 1));
      case ReduceOp::prod:
        return fold<To>("prod", y, x, T(), Prod<T>());
      case ReduceOp::max:
        return fold<T>("max", y, x, T(), Max<T>());
      case ReduceOp::min:
        return fold<T>("min", y, x, T(), Min<T>());
    }
  });
}

}  // namespace ink::cuda
