// What the checks of kernels are written with (exercises 28 to 31).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/lessons/exercises/exercise.h"

namespace ink {

/// A kernel's launches since the last report, and what they showed.
class KernelRuns {
 public:
  explicit KernelRuns(const CudaKernel& kernel) : kernel_(kernel) {}

  struct Grid {
    int64_t x, y;
  };
  /// kernel(y, inputs..., numbers...) in f32. Returns y, whose elements are NaN until they are
  /// written.
  Tensor run(Grid blocks, int threads, const Shape& y,
             const std::vector<std::pair<std::string, Tensor>>& inputs,
             const std::vector<int64_t>& numbers);
  /// So many elements of an input are enough for a launch, if no thread reads what another one has
  /// brought.
  void enough(const std::string& input, int64_t elements) { enough_[input] += elements; }
  /// Says what is wrong with the accesses, and what a card makes of them. True if nothing is wrong.
  bool report(std::ostream& out);

 private:
  const CudaKernel kernel_;
  KernelTrace trace_;
  std::map<std::string, int64_t> enough_;
};

/// A task of one kernel. From the op that the kernel becomes (inputs: dy, then what it takes) and
/// the same in the library: y and all gradients, compared with differences in f64.
using KernelOp = Tensor (*)(KernelRuns& kernel, const Tensors& x);
Task kernel_task(const std::string& function, const std::vector<std::string>& outputs,
                 const CudaKernel& kernel, KernelOp op, Tensor (*library)(const Tensors& x));
/// A mistake by what it computes.
Mistake kernel_mistake(Tensor (*wrong)(const Tensors& x), const Task& task,
                       const std::string& sentence);

}  // namespace ink
