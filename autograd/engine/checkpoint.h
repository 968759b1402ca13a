// Activation checkpointing: less memory for more time.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// Returns fn(inputs). The graph keeps the inputs alone, and backward runs fn once more when it
/// gets there. Chen et al. 2016, "Training deep nets with sublinear memory cost". Gradients are bit
/// for bit those of a plain call, random numbers included: the second run has the context and the
/// random position of the first, draws from default_generator() what the first drew, and leaves the
/// generator as it is. (Draws from a generator that fn names itself are others. So are they, as in
/// PyTorch, if another thread draws from the same generator meanwhile: threads that checkpoint and
/// draw set context().generator to one of their own.) Sections may nest,
/// and fn may use parameters that it captures. fn must compute the same both times, and must not
/// write to its inputs (backward throws if it did). What fn counts is counted twice: the running
/// statistics of BatchNorm move at the forward and again at the backward, as in PyTorch.
///
///   x = checkpoint([&](const Tensor& x) { return block(x); }, x);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input);
namespace detail {
Tensor checkpoint_of(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                     const std::vector<Tensor>& inputs);
}  // namespace detail
/// The same for fn(const std::vector<Tensor>&). (What takes a tensor is not asked for a vector: the
/// body of a lambda of `auto` might not compile.)
template <class F>
requires(!std::is_invocable_v<F&, const Tensor&>) Tensor
    checkpoint(F fn, const std::vector<Tensor>& inputs) {
  return detail::checkpoint_of(fn, inputs);
}

}  // namespace ink
