// Replay: work that runs again and again on the same memory, such as a training step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// On a GPU the host takes longer to launch an op of a small model than the device takes to run it.
/// So the work runs op by op a few times, is then captured, and from then on replayed as a whole (a
/// CUDA graph). On the CPU, or while an observer is listed, it always runs op by op.
///
/// A capture holds the device's part of the work alone: the same kernels on the same memory. So the
/// work reads what changes (a batch, a learning rate) from tensors that were made beforehand. It
/// leaves its results in tensors, reads no results back, and has no other effect. Random masks are
/// the exception: they are drawn for the context's step at each replay.
class Replay {
 public:
  /// written: tensors that the work changes and that outlive it. After each replay these count as
  /// written, so that anything cached from them is stale. The exception is a bf16 copy
  /// (cached_cast) that the work itself keeps current, as an optimizer does. Copies that were
  /// current at the capture are refreshed before each replay.
  Replay(Device device, std::vector<Tensor> written);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Does the work. read: tensors that it reads, which may differ from call to call. If one of
  /// them, or of the written ones, has another address, layout or dtype than at the last call, the
  /// capture is dropped and all begins anew.
  void run(const std::function<void()>& work, const std::vector<Tensor>& read = {});
  /// Has the work been captured?
  bool captured() const { return captured_ != nullptr; }

 private:
  /// What a capture knows of a tensor.
  struct Place {
    const void* memory;
    Layout layout;
    DType dtype;
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places(const std::vector<Tensor>& read) const;
  std::vector<const void*> copies() const;
  void capture(const std::function<void()>& work);
  void forget();
  void before_replay();
  void after_replay();

  Device device_;
  std::vector<Tensor> written_;
  std::vector<Tensor> rounded_;  // those of written_ whose bf16 copy was current at the capture
  std::vector<Tensor> kept_;     // those whose bf16 copy is current after a replay
  std::vector<const void*> copies_;
  std::vector<Place> places_;
  int64_t runs_ = 0;
  bool possible_;
  void* captured_ = nullptr;
};

}  // namespace ink
