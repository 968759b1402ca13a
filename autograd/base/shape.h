// Shape: the sizes (or strides) of a tensor, at most eight, held in place without an allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <type_traits>
#include <vector>

#include "autograd/base/check.h"

namespace ink {

/// Types that C++ would turn into an integer, and strings. Constructors deleted for these keep the
/// compiler's error short.
template <class T>
concept NotAnInteger =
    std::is_floating_point_v<T> || std::is_same_v<T, bool> || std::is_pointer_v<T>;

class Shape {
 public:
  static constexpr int kMaxDims = 8;

  Shape() = default;
  Shape(int64_t size) { push_back(size); }  // so that one number serves as a list: mean(x, 0)
  template <NotAnInteger T>
  Shape(T) = delete;  // expected sizes or dimensions: {2, 3}, or one integer
  Shape(std::initializer_list<int64_t> sizes) {
    for (int64_t size : sizes) push_back(size);
  }
  Shape(const std::vector<int64_t>& sizes) {
    for (int64_t size : sizes) push_back(size);
  }
  /// `count` entries, each `value`.
  static Shape filled(int64_t count, int64_t value) {
    Shape shape;
    for (int64_t i = 0; i < count; ++i) shape.push_back(value);
    return shape;
  }

  /// The number of entries: the tensor's dimension.
  int64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  bool has(int64_t value) const { return std::find(begin(), end(), value) != end(); }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + count_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + count_; }
  /// Entry i; a negative i counts from the end: x.shape()[-1].
  int64_t operator[](int64_t i) const { return values_[place(i)]; }
  int64_t& operator[](int64_t i) { return values_[place(i)]; }
  int64_t back() const { return values_[static_cast<size_t>(count_ - 1)]; }
  int64_t& back() { return values_[static_cast<size_t>(count_ - 1)]; }

  void push_back(int64_t value) {
    INK_CHECK(count_ < kMaxDims, "shape: a tensor has at most ", kMaxDims, " dimensions");
    values_[static_cast<size_t>(count_++)] = value;
  }
  void insert(int64_t at, int64_t value) {
    push_back(0);
    for (int64_t i = count_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
    (*this)[at] = value;
  }
  void erase(int64_t at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --count_;
  }

  /// The product of all sizes. Throws if it overflows.
  int64_t numel() const {
    int64_t product = 1;
    bool overflow = false;
    for (int64_t size : *this) overflow |= __builtin_mul_overflow(product, size, &product);
    if (has(0)) return 0;
    INK_CHECK(!overflow, "shape: the number of elements of ", *this, " overflows 64 bits");
    return product;
  }

  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  /// Prints as Python prints a tuple: (), (3,), (2, 3).
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);

 private:
  size_t place(int64_t i) const {
    const int64_t from_start = i < 0 ? i + count_ : i;
    if (from_start < 0 || from_start >= count_) [[unlikely]]
      detail::fail({"shape: there is no dimension ", i, " in ", *this});
    return static_cast<size_t>(from_start);
  }

  std::array<int64_t, kMaxDims> values_{};
  int64_t count_ = 0;
};

/// Row-major strides of a contiguous tensor of these sizes, in elements. Throws if one overflows,
/// as it can where there are no elements.
inline Shape contiguous_strides(const Shape& sizes) {
  Shape strides = Shape::filled(sizes.size(), 1);
  bool overflow = false;
  for (int64_t i = sizes.size() - 2; i >= 0; --i) {
    const int64_t size = std::max<int64_t>(sizes[i + 1], 1);
    overflow |= __builtin_mul_overflow(strides[i + 1], size, &strides[i]);
  }
  INK_CHECK(!overflow, "shape: the strides of ", sizes, " overflow 64 bits");
  return strides;
}

/// Where a tensor's elements lie in its storage: element (i0, i1, ...) is at
///   offset + i0 * strides[0] + i1 * strides[1] + ...
/// Offset and strides count elements. A stride of 0 repeats one element (expand); a negative one
/// never occurs.
struct Layout {
  Shape sizes;
  Shape strides;
  int64_t offset = 0;

  bool operator==(const Layout&) const = default;
  /// Do several elements share one place in memory?
  bool repeats() const { return repeated_dim() >= 0; }
  /// A dimension whose stride is no longer than what the dimensions of shorter strides span, so
  /// that elements share a place (expand, unfold); -1 if there is none.
  int64_t repeated_dim() const {
    for (int64_t d = 0; d < sizes.size() && sizes.numel() > 0; ++d) {
      int64_t span = 0;
      for (int64_t i = 0; i < sizes.size(); ++i)
        if (i != d && strides[i] <= strides[d]) span += (sizes[i] - 1) * strides[i];
      if (sizes[d] > 1 && span >= strides[d]) return d;
    }
    return -1;
  }
  bool contiguous() const {
    int64_t expected = 1;
    if (sizes.has(0)) return true;
    for (int64_t i = sizes.size() - 1; i >= 0; --i) {
      if (sizes[i] != 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }
};

/// The index of a dimension; negative ones count from the end. Throws
/// "op: dimension 3 is out of range for (2, 4)".
inline int64_t wrap_dim(const char* op, int64_t dim, const Shape& sizes) {
  const int64_t n = std::max<int64_t>(sizes.size(), 1);
  INK_CHECK(dim >= -n && dim < n, op, ": dimension ", dim, " is out of range for shape ", sizes);
  return dim < 0 ? dim + n : dim;
}

/// Throws if an op's result would have more than kMaxDims dimensions.
inline void check_dims(const char* op, int64_t dims) {
  INK_CHECK(dims <= Shape::kMaxDims, op, ": the result would have ", dims,
            " dimensions; a tensor has at most ", Shape::kMaxDims);
}

/// The shape two shapes broadcast to, as in NumPy. Throws
/// "op: shapes (2, 3) and (4,) do not broadcast".
inline Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  Shape out = Shape::filled(std::max(a.size(), b.size()), 1);
  for (int64_t i = 1; i <= out.size(); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    INK_CHECK(x == y || x == 1 || y == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    out[out.size() - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace ink
