// Tensor's methods that are ops: each calls the function of basic_ops.h that has its name.
#include <algorithm>
#include <functional>
#include <variant>
#include <vector>

#include "autograd/ops.h"

namespace ink {

// ---- its values

template <class To>
std::vector<To> Tensor::tolist() const {
  array("tolist");
  const Tensor x = detach().to(cpu_device).contiguous();
  std::vector<To> values(static_cast<size_t>(numel()));
  for_any(dtype(), [&]<class From>(From) {
    const From* data = x.data<From>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<To>(data[i]);
  });
  return values;
}

template <class To>
To Tensor::item() const {
  array("item");
  INK_CHECK(numel() == 1, "item: expected a tensor with one element, got ", shape());
  return tolist<To>()[0];
}

template std::vector<float> Tensor::tolist() const;
template std::vector<double> Tensor::tolist() const;
template std::vector<int64_t> Tensor::tolist() const;
template std::vector<bool> Tensor::tolist() const;
template float Tensor::item() const;
template double Tensor::item() const;
template int64_t Tensor::item() const;
template bool Tensor::item() const;

Tensor Tensor::contiguous() const { return ink::contiguous(*this); }
Tensor Tensor::clone() const { return ink::clone(*this); }
Tensor Tensor::to(DType dtype) const { return ink::to(*this, dtype); }
Tensor Tensor::to(Device device) const { return ink::to(*this, device); }

// ---- views

Tensor Tensor::view(const Shape& sizes) const { return ink::view(*this, sizes); }
Tensor Tensor::reshape(const Shape& sizes) const { return ink::reshape(*this, sizes); }
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  return ink::transpose(*this, dim0, dim1);
}
Tensor Tensor::permute(const Shape& dims) const { return ink::permute(*this, dims); }
Tensor Tensor::squeeze() const { return ink::squeeze(*this); }
Tensor Tensor::squeeze(int64_t dim) const { return ink::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int64_t dim) const { return ink::unsqueeze(*this, dim); }
Tensor Tensor::expand(const Shape& sizes) const { return ink::expand(*this, sizes); }
Tensor Tensor::select(int64_t dim, int64_t i) const { return ink::select(*this, dim, i); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return ink::narrow(*this, dim, start, length);
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  array("flatten");
  if (dim() == 0) return ink::reshape(*this, {1});
  const int64_t first = wrap_dim("flatten", start_dim, shape()),
                last = wrap_dim("flatten", end_dim, shape());
  INK_CHECK(first <= last, "flatten: dimension ", start_dim, " comes after ", end_dim);
  if (first == last) return *this;
  Shape sizes;
  for (int64_t d = 0; d < dim(); ++d) {
    if (d > first && d <= last) {
      sizes.back() *= shape()[d];
    } else {
      sizes.push_back(shape()[d]);
    }
  }
  return ink::reshape(*this, sizes);
}

Tensor Tensor::index(std::initializer_list<Index> indices) const {
  array("index");
  int64_t consumed = 0, ellipses = 0;
  for (const Index& index : indices) {
    consumed +=
        !std::holds_alternative<NoneType>(index) && !std::holds_alternative<EllipsisType>(index);
    ellipses += std::holds_alternative<EllipsisType>(index);
  }
  INK_CHECK(consumed <= dim(), "index: ", consumed, " indices for ", shape());
  INK_CHECK(ellipses <= 1, "index: only one Ellipsis is possible");
  Tensor y = *this;
  int64_t d = 0;
  for (const Index& index : indices) {
    if (const auto* range = std::get_if<Slice>(&index)) {
      y = ink::slice(y, d, range->start.value_or(0), range->stop.value_or(y.size(d)), range->step);
      ++d;
    } else if (std::holds_alternative<NoneType>(index)) {
      y = ink::unsqueeze(y, d++);
    } else if (std::holds_alternative<EllipsisType>(index)) {
      d += dim() - consumed;
    } else {
      const auto* wide = std::get_if<int64_t>(&index);
      y = ink::select(y, d, wide ? *wide : std::get<int>(index));
    }
  }
  return y.is_same(*this) ? ink::expand(y, shape()) : y;  // a view in any case
}
Tensor Tensor::index(const Tensor& ids) const { return ink::index(*this, ids); }

Tensor Tensor::T() const {
  array("T");
  Shape reversed;
  for (int64_t d = dim() - 1; d >= 0; --d) reversed.push_back(d);
  return ink::permute(*this, reversed);
}

}  // namespace ink
