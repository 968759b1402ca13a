// Replay: work that is done again and again on the same memory, such as a training step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// On a GPU each op of a small model takes the host longer to ask for than the device to do. So the
/// work is done as it is a few times, then captured, and from then on replayed as a whole (a CUDA
/// graph). On the CPU, or while an observer looks on, it is done as it is every time.
///
/// What is captured is the work on the device alone: the same kernels on the same memory. The work
/// must therefore read what changes from tensors that were made before and are written in between
/// (a batch, a learning rate), leave its results in tensors, have no other effect, and not read
/// them. Random masks are the exception: they are drawn for the context's step at each replay.
class Replay {
 public:
  /// written: tensors that the work changes and that outlive it. They count as written after every
  /// replay, so that what was computed of them is not taken for current; but for their bf16 copies
  /// (cached_cast) where the work keeps these current itself, as an optimizer does. Copies that are
  /// current when the work is captured are made so before each replay.
  Replay(Device device, std::vector<Tensor> written);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Does the work. read: tensors that it reads and that may be others at another time. Where they,
  /// or what is written, have another shape or lie elsewhere than when the work was captured, the
  /// capture is forgotten, and all begins anew.
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
  std::vector<Tensor> rounded_;  // of those written: what the capture reads the copy of
  std::vector<Tensor> kept_;     // and what it leaves with a current one
  std::vector<const void*> copies_;
  std::vector<Place> places_;
  int64_t runs_ = 0;
  bool possible_;
  void* captured_ = nullptr;
};

}  // namespace ink
