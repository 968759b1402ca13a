// Array: memory seen through a layout. Kernels read and write arrays, which know nothing of graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/device.h"
#include "autograd/base/dtype.h"
#include "autograd/base/shape.h"
#include "autograd/memory/storage.h"

namespace ink {

/// Copies share the memory. A default-constructed array is undefined: "not given".
class Array {
 public:
  Array() = default;
  Array(std::shared_ptr<Storage> storage, const Layout& layout, DType dtype)
      : storage_(std::move(storage)), layout_(layout), dtype_(dtype) {}
  /// New contiguous memory, not initialised. Throws "op: ..." for a negative size, or when the size
  /// in bytes overflows 64 bits.
  static Array empty(const Shape& shape, DType dtype, Device device = cpu_device,
                     const char* op = "empty");

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return layout_.sizes; }
  const Shape& strides() const { return layout_.strides; }
  const Layout& layout() const { return layout_; }
  int64_t dim() const { return layout_.sizes.size(); }
  int64_t size(int64_t dim) const;  // negative ones count from the end
  int64_t numel() const { return layout_.sizes.numel(); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device; }
  bool is_contiguous() const { return layout_.contiguous(); }
  bool is_floating() const { return ink::is_floating(dtype_); }

  /// The first element, for reading; throws unless T is the dtype. strides() counts elements.
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>());
    return static_cast<const T*>(storage_->data) + layout_.offset;
  }
  /// The same for writing: the only way to a writable pointer. Counts as a write to everything that
  /// shares the memory.
  template <class T>
  T* mutable_data() {
    check_dtype(dtype_of<T>());
    storage_->version.fetch_add(1, std::memory_order_relaxed);
    return static_cast<T*>(storage_->data) + layout_.offset;
  }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// The same memory in another layout.
  Array seen_as(const Layout& layout) const { return {storage_, layout, dtype_}; }
  /// The same memory with the last two dimensions exchanged.
  Array transposed() const;
  /// The same memory, repeated with strides of 0 where a size is 1 (or missing) and shape's is not.
  Array expanded(const Shape& shape) const;
  /// The same memory with other sizes, the elements in row-major order; none if that needs a copy.
  std::optional<Array> reshaped(const Shape& shape) const;

 private:
  void check_dtype(DType wanted) const {
    INK_CHECK(defined(), "data: the tensor is undefined");
    INK_CHECK(wanted == dtype_, "data: expected ", dtype_, ", the tensor's dtype, got ", wanted);
  }

  std::shared_ptr<Storage> storage_;
  Layout layout_;
  DType dtype_ = DType::f32;
};

using Arrays = std::vector<Array>;

}  // namespace ink
