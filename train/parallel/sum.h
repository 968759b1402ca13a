// Gradients of all parts of a batch, added in the order of the parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/tensor.h"
#include "train/parallel/processes.h"

namespace ink {

/// How sums of gradients travel between processes.
struct SumOptions {
  /// f32; or bf16: sums are rounded to it after each part, and travel so.
  DType wire = f32;
  /// By process, rising: of how many elements, from the first, it needs the sum; all if empty.
  std::vector<int64_t> ends = {};
};

/// Adds, in the order of the processes, what each of them adds to `sum`, f32 (N), and leaves the
/// result in the `sum` of each, as far as it needs it. add(begin, end) adds this process's share to
/// the elements [begin, end), which are asked for in order; at process 0 it gives them their first
/// values. With a wire of bf16, it leaves numbers that bf16 holds.
///
/// Pieces of `sum` go up from process to process, and the result goes down again, while later
/// pieces go up. So each process sends and receives N numbers in each direction, as in the usual
/// ring, but the order of the additions is from left to right, as one process has it.
class OrderedSum {
 public:
  using Add = std::function<void(int64_t begin, int64_t end)>;
  OrderedSum(Processes& processes, Tensor& sum, Add add, const SumOptions& options = {});
  /// Does what can be done now, if elements [0, ready) may be added to; `moved` becomes true if
  /// that was anything. Is the result here?
  bool advance(int64_t ready, bool& moved);
  /// Waits for the result; all elements are ready.
  void finish();

 private:
  using Transfers = std::vector<Processes::Transfer>;
  std::span<std::byte> bytes_of(int64_t piece);
  void convert(int64_t piece, bool goes);
  void pass_down();

  Processes& processes_;
  Tensor& sum_;
  const Device device_;
  const int64_t piece_;  // elements
  Tensor wire_;          // bf16 (N); undefined if f32 travels
  const Add add_;
  const int64_t size_, pieces_;
  const bool is_first_, is_last_;
  int64_t wanted_ = 0, wanted_below_ = 0;  // pieces of the result
  // Each counts pieces: those to which this process has added, whose memory is free for the
  // result, and which are results.
  int64_t added_ = 0, free_ = 0, results_ = 0;
  int64_t sent_down_ = 0;  // of down_, those that have arrived
  Transfers from_below_, up_, from_above_, down_;
};

/// Where each leaf begins in a sum of the gradients of all, and the end.
std::vector<int64_t> starts_in_sum(const std::vector<Tensor>& leaves);

/// Adds the gradients of all processes' parts to the leaves, f32 on one device, in the order of
/// processes and parts, as one process with all these parts would.
class GradientSum {
 public:
  /// A process's gradients of a leaf, in the order of its parts; undefined ones are nothing.
  using Own = std::function<std::vector<Tensor>(size_t leaf)>;
  GradientSum(Processes& processes, std::vector<Tensor> leaves, Own own, const SumOptions& options);
  /// This leaf's own gradients are complete, which may travel while others are still computed.
  void complete(size_t leaf);
  /// Waits for the sums, and adds them to the leaves. losses: by batch, those of the parts, numbers
  /// (); afterwards those of all processes, in that order.
  void finish(std::vector<std::vector<Tensor>>& losses);

 private:
  void add(int64_t begin, int64_t end);

  Processes& processes_;
  const std::vector<Tensor> leaves_;
  const std::vector<int64_t> starts_;
  const Own own_;
  const DType wire_;
  std::vector<bool> complete_;
  size_t first_ = 0;  // that is not complete
  double start_ = 0;  // when the first ones were, by seconds_now()
  Tensor sum_;
  OrderedSum travel_;
};

}  // namespace ink
