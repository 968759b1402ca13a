// What checks are written with.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "train/lessons/exercises/exercise.h"

namespace ink {

/// What a gradient is compared with: that of sum(dy * f(inputs)) with respect to inputs[which],
/// element by element, by central differences in f64.
Tensor difference(const std::function<Tensor(const Tensors&)>& f, Tensors inputs, size_t which,
                  const Tensor& dy);

/// The gradients of f's one output with respect to in[1], ..., in[count], where in[0] is dy.
Answer gradients(const Answer& f, size_t count);

namespace detail {

template <class T>
T argument(const Tensor& x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(x.item());
  } else if constexpr (std::is_same_v<T, Ints>) {
    return x.tolist<int64_t>();
  } else if constexpr (std::is_same_v<T, Tensors>) {
    return unbind(x);
  } else if constexpr (std::is_same_v<T, Shape>) {
    return x.shape();
  } else {
    return x;
  }
}

inline Tensors outputs(const Tensor& y) { return {y}; }
inline Tensors outputs(const Tensors& y) { return y; }
inline Tensors outputs(const Ints& y) { return {from_vector(y, {std::ssize(y)})}; }
inline Tensors outputs(double y) { return {tensor(y, f64)}; }

template <class R, class... A>
Answer answer(const std::function<R(A...)>& f, size_t first) {
  return [=](const Tensors& in) {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return outputs(f(argument<std::decay_t<A>>(in[first + i])...));
    }
    (std::index_sequence_for<A...>());
  };
}

}  // namespace detail

/// What f gives for in[first], in[first + 1], ...: a scalar as a number, a vector as Ints, the rows
/// of a tensor as Tensors, and its shape as Shape, where f takes these.
template <class F>
Answer answer(F f, size_t first = 0) {
  return detail::answer(std::function(f), first);
}

/// Normal numbers in f64, always the same for one seed.
Tensor noise(uint64_t seed, const Shape& shape);
/// A number, and a list, as inputs of a case.
Tensor scalar(double x);
Tensor list(const Ints& x);
/// A case of noise in these shapes, from seed 1 on.
Case noise_case(const std::string& name, const std::vector<Shape>& shapes);
/// The same values in other memory: the last two dimensions are swapped there, so it is not
/// contiguous.
Tensor transposed_in_memory(const Tensor& x);

/// All exercises without answers, in their order: what there is to list, and hints.
std::vector<Exercise> exercises();

}  // namespace ink
