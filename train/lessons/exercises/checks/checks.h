// What checks are written with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/lessons/exercises/exercise.h"

namespace ink {

/// What a gradient is compared with: that of sum(dy * f(inputs)) with respect to inputs[which],
/// element by element, by central differences in f64.
Tensor difference(const std::function<Tensor(const Tensors&)>& f, Tensors inputs, size_t which,
                  const Tensor& dy);

/// Normal numbers in f64, always the same for one seed.
Tensor noise(uint64_t seed, const Shape& shape);
/// A number as an input of a case.
Tensor scalar(double x);
/// The same values in other memory: the last two dimensions are swapped there, so it is not
/// contiguous.
Tensor transposed_in_memory(const Tensor& x);

std::string to_text(const Shape& shape);

/// All exercises without answers, in their order: what there is to list, and hints.
std::vector<Exercise> exercises();

}  // namespace ink
