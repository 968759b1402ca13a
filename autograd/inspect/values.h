// The values of f64 tensors, read and written outside of any graph: for the checks of gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"

namespace ink::detail::checking {

using Values = std::vector<double>;
using StoragePtr = std::shared_ptr<Storage>;

// The check's own work is in no graph, and nobody watches it.
struct Aside {
  Aside() {
    context().observers.clear();
    context().grad_enabled = false;
  }
  ContextGuard guard;
};

inline Values values_of(const Tensor& x) {
  const Aside aside;
  return x.defined() ? x.tolist() : Values();
}
inline std::vector<Values> values_of(const std::vector<Tensor>& tensors) {
  std::vector<Values> values;
  for (const Tensor& x : tensors) values.push_back(values_of(x));
  return values;
}
inline bool equal(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}
// Can f32 hold these?
inline bool in_f32(const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double x) { return equal({x}, {static_cast<float>(x)}); });
}
inline Values random_values(size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Values values(count);
  for (double& value : values) value = normal(random);
  return values;
}
inline Tensor tensor_like(const Tensor& x, const Values& values) {
  const Aside aside;
  return from_vector(values, x.shape()).to(x.device());
}

// Where the elements of a layout lie in its memory, in row-major order.
inline std::vector<size_t> places(const Layout& layout) {
  std::vector<size_t> list{static_cast<size_t>(layout.offset)};
  for (int64_t d = 0; d < layout.sizes.size(); ++d) {
    std::vector<size_t> longer;
    for (const size_t place : list) {
      for (int64_t i = 0; i < layout.sizes[d]; ++i)
        longer.push_back(place + static_cast<size_t>(i * layout.strides[d]));
    }
    list = std::move(longer);
  }
  return list;
}
// All of a memory of f64, as a tensor of one dimension.
inline Tensor whole(const StoragePtr& memory) {
  const int64_t count = memory->bytes / static_cast<int64_t>(sizeof(double));
  return Tensor(Array(memory, {{count}, {1}, 0}, f64));
}
// A graph that has saved this memory does not notice.
inline void write(const StoragePtr& memory, const Values& values) {
  const Aside aside;
  const uint64_t version = memory->version;
  Tensor to = whole(memory);
  to.copy_(tensor_like(to, values));
  memory->version = version;
}
// All of a memory of bools becomes its opposite, likewise.
inline void flip(const StoragePtr& memory) {
  const Aside aside;
  const uint64_t version = memory->version;
  Tensor bools(Array(memory, {{memory->bytes}, {1}, 0}, boolean));
  bools.copy_(~bools);
  memory->version = version;
}

// A tensor of x's shape, whose elements lie `stride` apart: 1 is contiguous, 0 expanded. What lies
// between them is nan, so that who reads it is seen.
inline Tensor spread(const Tensor& x, const Values& values, int64_t stride) {
  Layout layout{x.shape(), contiguous_strides(x.shape()), 0};
  for (int64_t& s : layout.strides) s *= stride;
  const Values nans(values.size() * 2 + 1, std::numeric_limits<double>::quiet_NaN());
  Values memory = stride == 1 ? values : nans;
  const auto at = places(layout);
  for (size_t e = 0; e < values.size(); ++e) memory[at[e]] = values[e];
  const Aside aside;
  const Tensor flat = from_vector(memory, {static_cast<int64_t>(memory.size())}).to(x.device());
  return Tensor(Array(flat.storage(), layout, f64));
}

}  // namespace ink::detail::checking
