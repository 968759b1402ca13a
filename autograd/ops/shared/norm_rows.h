// What the backward kernels of layer_norm and rms_norm share.
#pragma once

#include <optional>

#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"

namespace ink {

/// The rows of a norm's dx, computed in C: not wanted, to write, or to add to.
template <class C>
class NormRowsOut {
 public:
  explicit NormRowsOut(NormGradients& d) {
    if (!d.dx.defined()) return;
    out_.emplace(d.dx);
    if (d.accumulate) so_far_.emplace(d.dx);
  }

  /// Runs loop(write), in which write(i) puts slope(i) into the row, or adds it.
  template <class Loop, class Slope>
  void write(int64_t row, C* buffer, const Loop& loop, const Slope& slope) const {
    if (!out_) return loop([](int64_t) {});
    C* to = out_->row(row, buffer);
    if (so_far_) {
      so_far_->row(row, buffer);
      loop([&](int64_t i) { to[i] += slope(i); });
    } else {
      loop([&](int64_t i) { to[i] = slope(i); });
    }
    out_->store(row, to);
  }

 private:
  std::optional<RowsOut<C>> out_;
  std::optional<RowsIn<C>> so_far_;
};

}  // namespace ink
