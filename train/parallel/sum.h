// Gradients of all parts of a batch, added in the order of the parts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/tensor.h"
#include "train/parallel/processes.h"

namespace ink {

/// Adds, in the order of the processes, what each of them adds to `sum`, f32 (N), and leaves the
/// result in the `sum` of each. add(begin, end) adds this process's share to the elements
/// [begin, end), which are asked for in order; at process 0 it gives them their first values.
///
/// Pieces of `sum` go up from process to process, and the result goes down again, while later
/// pieces go up. So each process sends and receives N numbers in each direction, as in the usual
/// ring, but the order of the additions is from left to right, as one process has it.
void sum_in_order(Processes& processes, Tensor& sum,
                  const std::function<void(int64_t begin, int64_t end)>& add);

/// Adds the gradients of all processes' stores to the leaves, f32 on the CPU, in the order of
/// processes and stores, as one process with all these stores would; empties the stores. losses:
/// by batch, those of the stores, numbers (); afterwards those of all processes, in that order.
void sum_gradients(Processes& processes, const std::vector<Tensor>& leaves,
                   std::vector<GradStore>& stores, std::vector<std::vector<Tensor>>& losses);

}  // namespace ink
