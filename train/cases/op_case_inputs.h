// The inputs of the rows of op_cases.cpp.
#pragma once

#include <vector>

#include "train/cases/op_cases.h"

namespace ink {

/// The inputs of a row's set in a floating dtype, the same ones every time. If `dtype` is coarser
/// than f64, values are those of bf16, so that the same set in f64 holds the same numbers.
Inputs make_inputs(const std::vector<In>& set, DType dtype = DType::f64);
/// The positions of those that are differentiated.
std::vector<size_t> differentiable(const std::vector<In>& set);
/// New leaves with the values of `inputs`; those of `set` that are differentiated require grad.
Inputs leaves_of(const Inputs& inputs, const std::vector<In>& set);
/// Number of elements of the largest input.
int64_t largest(const std::vector<In>& set);

/// The op's outputs and, from a fixed upstream gradient, the gradients of its differentiable inputs
/// (zeros where undefined).
struct CaseRun {
  Outputs outputs;
  Grads grads;
};
CaseRun run_case(const OpCase& row, const std::vector<In>& set, const Inputs& inputs);

}  // namespace ink
