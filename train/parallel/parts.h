// Parts of a batch side by side: on threads that share one model, and in several processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/tensor.h"
#include "train/parallel/processes.h"
#include "train/parallel/sum.h"

namespace ink {

/// The loss of rows [first, first + count) of a batch, as a graph. The losses of parts add up to
/// that of the batch: a sum over rows, not a mean.
using PartLoss = std::function<Tensor(int64_t first, int64_t count)>;

/// Runs forward and backward of a batch of `rows` rows in `parts` parts, which threads share. Adds
/// the gradients of `scale` (a number (), or undefined: 1) times the batch's loss to the leaves.
/// Returns the loss, not scaled and outside any graph. For a mean over targets, take the sum as the
/// loss and 1 divided by the number of targets as the scale; then it does not matter which part a
/// target is in.
///
/// With several parts, each runs on one thread. Threads then wait for each other once a step
/// instead of at every op, and each works in its own cache. The price is a set of gradients for
/// each part. They are summed in order afterwards, and hooks of leaves see the sums. While
/// observers are listed, the parts run one after another. With several parts, the bits depend on
/// their number and not on the number of threads. The first exception of a part is rethrown in the
/// caller.
///
/// Random masks are those of the whole batch. For that, dimension 0 of a masked tensor must hold
/// the part's rows, each once or several times; other sizes are refused. (A dimension 0 that means
/// something else, but is a multiple of the part's rows, is not noticed.) What draws from
/// default_generator(), such as randn_like, gets other numbers in each part, which depend on that
/// generator and the part's first row, and not on threads. ImitateTorch is refused, because it
/// draws in order.
Tensor backward_in_parts(int64_t rows, int64_t parts, const Tensor& scale, const PartLoss& loss);

/// The same for several batches, of which each part sums its gradients first. Each process of a
/// group takes consecutive parts, and n processes with p parts each give the bits of one process
/// with n p parts. threads: for the ops of a part; with more than one, a process runs its parts one
/// after another. leaves: those of the model, in the order in which their sums travel; f32 where
/// there are several processes, or a wire of bf16.
///
/// If a process has one part of one batch, its gradients travel while backward still runs.
class BatchParts {
 public:
  BatchParts(int64_t parts, Processes& processes, int64_t threads = 1,
             std::vector<Tensor> leaves = {}, SumOptions sum = {});
  /// last: does add_to_leaves() follow?
  void backward(int64_t rows, const Tensor& scale, const PartLoss& loss, bool last = false);
  /// Adds the sums of gradients to the leaves, and returns the sum of the losses.
  Tensor add_to_leaves();

 private:
  bool travels() const { return processes_.size() > 1 || (sum_options_.wire != f32 && parts_ > 1); }
  bool may_start() const;
  void start(const Tensor& loss);

  const int64_t parts_, threads_;
  Processes& processes_;
  const int64_t begin_, end_;  // of this process's parts
  const std::vector<Tensor> leaves_;
  const SumOptions sum_options_;
  std::vector<GradStore> stores_;            // of its parts; none if one part is all there is
  std::vector<std::vector<Tensor>> losses_;  // by batch; of its parts, and then of all
  std::vector<Tensor> started_;              // by leaf, the gradients that travel already
  std::unique_ptr<GradientSum> travel_;
};

}  // namespace ink
