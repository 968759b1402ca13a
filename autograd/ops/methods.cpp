// Tensor's methods that are ops. Each calls the function of the same name.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <variant>
#include <vector>

#include "autograd/more_ops.h"

namespace ink {

// ---- its values

// Throws if an integer type of so many digits, a signed one if that is odd, cannot hold the value.
template <class From>
static void check_holds(const char* op, int digits, From value) {
  bool holds = digits >= 63;
  if constexpr (std::is_same_v<From, int64_t>) {
    const int64_t low = digits % 2 == 0 ? 0 : holds ? INT64_MIN : -(int64_t{1} << digits);
    holds = value >= low && (holds || value < int64_t{1} << digits);
  } else {
    const double number = std::trunc(static_cast<double>(value)),
                 limit = std::ldexp(1, std::min(digits, 63));
    holds = number >= (digits % 2 == 0 ? 0 : -limit) && number < limit;
  }
  INK_CHECK(holds, op, ": ", Scalar(compute_t<From>(value)),
            " does not fit into the type that was asked for");
}

template <class To>
std::vector<To> Tensor::list_as(const char* op, int digits) const {
  array(op);
  const Tensor x = detach().to(cpu_device).contiguous();
  std::vector<To> values(static_cast<size_t>(numel()));
  for_any(dtype(), [&]<class From>(From) {
    const From* data = x.data<From>();
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<To, int64_t>) check_holds(op, digits, data[i]);
      values[i] = static_cast<To>(data[i]);
    }
  });
  return values;
}

template <class To>
To Tensor::item_as(int digits) const {
  array("item");
  INK_CHECK(numel() == 1, "item: expected a tensor with one element, got ", shape());
  return list_as<To>("item", digits)[0];
}

template std::vector<float> Tensor::list_as(const char*, int) const;
template std::vector<double> Tensor::list_as(const char*, int) const;
template std::vector<int64_t> Tensor::list_as(const char*, int) const;
template std::vector<bool> Tensor::list_as(const char*, int) const;
template float Tensor::item_as(int) const;
template double Tensor::item_as(int) const;
template int64_t Tensor::item_as(int) const;
template bool Tensor::item_as(int) const;

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
Tensor Tensor::squeeze(std::optional<int64_t> dim) const { return ink::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int64_t dim) const { return ink::unsqueeze(*this, dim); }
Tensor Tensor::expand(const Shape& sizes) const { return ink::expand(*this, sizes); }
Tensor Tensor::select(int64_t dim, int64_t i) const { return ink::select(*this, dim, i); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return ink::narrow(*this, dim, start, length);
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  array("flatten");
  const int64_t first = wrap_dim("flatten", start_dim, shape()),
                last = wrap_dim("flatten", end_dim, shape());
  if (dim() == 0) return ink::reshape(*this, {1});
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

// Applies all indices but ids and masks to x. Returns that view (x itself if it is all of x), and
// for each of its dimensions the ids or mask that index it, or undefined.
static std::pair<Tensor, std::vector<Tensor>> chosen_by(const char* op, const Tensor& x,
                                                        std::initializer_list<Index> indices) {
  x.array(op);
  int64_t consumed = 0, ellipses = 0;
  for (const Index& index : indices) {
    const auto* ids = std::get_if<Tensor>(&index.value);
    INK_CHECK(!ids || ids->defined(), op, ": index ", &index - indices.begin() + 1,
              " is undefined: it was never given a value");
    const bool takes_none = std::holds_alternative<NoneType>(index.value) ||
                            std::holds_alternative<EllipsisType>(index.value);
    consumed += takes_none ? 0 : ids && ids->dtype() == boolean ? ids->dim() : 1;
    ellipses += std::holds_alternative<EllipsisType>(index.value);
  }
  INK_CHECK(consumed <= x.dim(), op, ": ", consumed, " indices for ", x.shape());
  INK_CHECK(ellipses <= 1, op, ": only one Ellipsis is possible");
  Tensor y = x;
  std::vector<Tensor> chosen;
  int64_t d = 0;
  const auto keep = [&](int64_t dims) {
    d += dims;
    chosen.resize(chosen.size() + static_cast<size_t>(dims));
  };
  for (const Index& index : indices) {
    if (const auto* range = std::get_if<Slice>(&index.value)) {
      const int64_t n = y.shape()[d], start = range->start.value_or(0),
                    stop = range->stop.value_or(n);
      if (start != 0 || stop < n || range->step != 1)
        y = ink::slice(y, d, start, stop, range->step);
      keep(1);
    } else if (std::holds_alternative<NoneType>(index.value)) {
      check_dims(op, y.dim() + 1);
      y = ink::unsqueeze(y, d);
      keep(1);
    } else if (std::holds_alternative<EllipsisType>(index.value)) {
      keep(x.dim() - consumed);
    } else if (const auto* ids = std::get_if<Tensor>(&index.value);
               ids && (ids->dim() > 0 || ids->dtype() != i64)) {
      chosen.push_back(*ids);
      d += ids->dtype() == boolean ? ids->dim() : 1;
    } else {
      const int64_t i = ids ? ids->item<int64_t>() : std::get<int64_t>(index.value);
      const int64_t n = y.shape()[d];
      INK_CHECK(i >= -n && i < n, op, ": ", i, " is out of range for dimension ", d, " of ",
                y.shape());
      y = ink::select(y, d, i);
    }
  }
  if (std::none_of(chosen.begin(), chosen.end(), [](auto& ids) { return ids.defined(); }))
    chosen.clear();
  return {y, chosen};
}

Tensor Tensor::index(std::initializer_list<Index> indices) const {
  const auto [y, ids] = chosen_by("index", *this, indices);
  if (!ids.empty()) return ink::index(y, ids);
  return y.is_same(*this) ? shown_as("alias", ink::expand(y, shape())) : y;  // a view in any case
}
// As PyTorch's x[...] = values, which leaves out leading dimensions of 1 that x[...] has not.
static Tensor without_leading_ones(Tensor values, int64_t dims) {
  while (values.defined() && values.dim() > dims && values.size(0) == 1) values = values.squeeze(0);
  return values;
}
Tensor& Tensor::operator=(const Tensor& value) && {
  return checked_target().copy_(without_leading_ones(value, dim()));
}
Tensor& Tensor::operator=(const Scalar& value) && { return checked_target().fill_(value); }
Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Tensor& given,
                           bool accumulate) {
  auto [y, ids] = chosen_by("index_put_", *this, indices);
  check_defined("index_put_", given);
  int64_t dims = y.dim(), of_ids = 0;
  for (const Tensor& id : ids) {
    if (!id.defined()) continue;
    const bool mask = id.dtype() == boolean;
    dims -= mask ? id.dim() : 1;
    of_ids = std::max(of_ids, mask ? 1 : id.dim());
  }
  const Tensor values = without_leading_ones(given, dims + of_ids);
  INK_CHECK(values.dtype() == dtype(), "index_put_: expected values of ", dtype(), ", got ",
            values.dtype());
  if (!ids.empty()) {
    y.index_put_(ids, values, accumulate);
  } else {
    accumulate ? y.add_(values) : y.copy_(values);
  }
  return *this;
}
Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Scalar& value,
                           bool accumulate) {
  check_in_range("index_put_", value, array("index_put_").dtype(), 1);
  return index_put_(indices, scalar_tensor(value, options()), accumulate);
}
Tensor Tensor::index_put(std::initializer_list<Index> indices, const Tensor& values,
                         bool accumulate) const {
  return clone().index_put_(indices, values, accumulate);
}
Tensor Tensor::index(const Tensor& ids) const { return ink::index(*this, ids); }
Tensor Tensor::operator[](const Index& one) const {
  const auto* range = std::get_if<Slice>(&one.value);
  if (!range) return index({one});
  return ink::slice(*this, 0, range->start.value_or(0), range->stop.value_or(INT64_MAX),
                    range->step);
}

Tensor Tensor::T() const {
  array("T");
  Shape reversed;
  for (int64_t d = dim() - 1; d >= 0; --d) reversed.push_back(d);
  return ink::permute(*this, reversed);
}

// ---- ops

Tensor Tensor::to(const char* device) const { return to(parse_device(device)); }
Tensor Tensor::exp() const { return ink::exp(*this); }
Tensor Tensor::log() const { return ink::log(*this); }
Tensor Tensor::sqrt() const { return ink::sqrt(*this); }
Tensor Tensor::rsqrt() const { return ink::rsqrt(*this); }
Tensor Tensor::abs() const { return ink::abs(*this); }
Tensor Tensor::neg() const { return ink::neg(*this); }
Tensor Tensor::sin() const { return ink::sin(*this); }
Tensor Tensor::cos() const { return ink::cos(*this); }
Tensor Tensor::tanh() const { return ink::tanh(*this); }
Tensor Tensor::sigmoid() const { return ink::sigmoid(*this); }
Tensor Tensor::relu() const { return ink::relu(*this); }
Tensor Tensor::square() const { return ink::square(*this); }
Tensor Tensor::log1p() const { return ink::log1p(*this); }
Tensor Tensor::expm1() const { return ink::expm1(*this); }
Tensor Tensor::sign() const { return ink::sign(*this); }
Tensor Tensor::erf() const { return ink::erf(*this); }
Tensor Tensor::isnan() const { return ink::isnan(*this); }
Tensor Tensor::isinf() const { return ink::isinf(*this); }
Tensor Tensor::isfinite() const { return ink::isfinite(*this); }
Tensor Tensor::trunc() const { return ink::trunc(*this); }
Tensor Tensor::floor() const { return ink::floor(*this); }
Tensor Tensor::ceil() const { return ink::ceil(*this); }
Tensor Tensor::round() const { return ink::round(*this); }
Tensor Tensor::pow(Scalar exponent) const { return ink::pow(*this, exponent); }
Tensor Tensor::pow(Tensor exponent) const { return ink::pow(*this, exponent); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return ink::clamp(*this, min, max);
}
Tensor Tensor::clamp(const Tensor& min, const Tensor& max) const {
  return ink::clamp(*this, min, max);
}
Tensor Tensor::clamp_min(Tensor min) const { return ink::clamp_min(*this, min); }
Tensor Tensor::clamp_min(Scalar min) const { return ink::clamp_min(*this, min); }
Tensor Tensor::clamp_max(Tensor max) const { return ink::clamp_max(*this, max); }
Tensor Tensor::clamp_max(Scalar max) const { return ink::clamp_max(*this, max); }
Tensor Tensor::maximum(Tensor other) const { return ink::maximum(*this, other); }
Tensor Tensor::maximum(Scalar other) const { return ink::maximum(*this, other); }
Tensor Tensor::minimum(Tensor other) const { return ink::minimum(*this, other); }
Tensor Tensor::minimum(Scalar other) const { return ink::minimum(*this, other); }
Tensor Tensor::atan2(Tensor other) const { return ink::atan2(*this, other); }
Tensor Tensor::add(const Tensor& other, const Scalar& alpha) const {
  return ink::add(*this, other, alpha);
}
Tensor Tensor::add(const Scalar& other, const Scalar& alpha) const {
  return ink::add(*this, other, alpha);
}
Tensor Tensor::sub(const Tensor& other, const Scalar& alpha) const {
  return ink::sub(*this, other, alpha);
}
Tensor Tensor::sub(const Scalar& other, const Scalar& alpha) const {
  return ink::sub(*this, other, alpha);
}
Tensor Tensor::masked_fill(const Tensor& mask, const Scalar& value) const {
  return ink::masked_fill(*this, mask, value);
}
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  return ink::masked_fill(*this, mask, value);
}
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  return ink::where(condition, *this, other);
}
Tensor Tensor::where(const Tensor& condition, const Scalar& other) const {
  return ink::where(condition, *this, other);
}
Tensor Tensor::sum(const Shape& dims, Flag keep) const { return ink::sum(*this, dims, keep); }
Tensor Tensor::mean(const Shape& dims, Flag keep) const { return ink::mean(*this, dims, keep); }
Tensor Tensor::prod(const Shape& dims, Flag keep) const { return ink::prod(*this, dims, keep); }
Tensor Tensor::any(const Shape& dims, Flag keep) const { return ink::any(*this, dims, keep); }
Tensor Tensor::all(const Shape& dims, Flag keep) const { return ink::all(*this, dims, keep); }
Tensor Tensor::amax(const Shape& dims, Flag keep) const { return ink::amax(*this, dims, keep); }
Tensor Tensor::amin(const Shape& dims, Flag keep) const { return ink::amin(*this, dims, keep); }
Tensor Tensor::var(const Shape& dims, NumberOf<double> correction, Flag keep) const {
  return ink::var(*this, dims, correction, keep);
}
Tensor Tensor::std(const Shape& dims, NumberOf<double> correction, Flag keep) const {
  return ink::std(*this, dims, correction, keep);
}
Tensor Tensor::logsumexp(const Shape& dims, Flag keep) const {
  return ink::logsumexp(*this, dims, keep);
}
Tensor Tensor::norm(NumberOf<double> p, const Shape& dims, Flag keep) const {
  return ink::norm(*this, p, dims, keep);
}
Tensor Tensor::max() const { return ink::max(*this); }
Tensor Tensor::min() const { return ink::min(*this); }
Tensor Tensor::max(Tensor other) const { return ink::maximum(*this, other); }
Tensor Tensor::min(Tensor other) const { return ink::minimum(*this, other); }
ValuesIndices Tensor::max(NumberOf<int64_t> dim, Flag keep) const {
  return ink::max(*this, dim, keep);
}
ValuesIndices Tensor::min(NumberOf<int64_t> dim, Flag keep) const {
  return ink::min(*this, dim, keep);
}
Tensor Tensor::argmax(std::optional<NumberOf<int64_t>> dim, Flag keep) const {
  return ink::argmax(*this, dim, keep);
}
Tensor Tensor::argmin(std::optional<NumberOf<int64_t>> dim, Flag keep) const {
  return ink::argmin(*this, dim, keep);
}
Tensor Tensor::softmax(NumberOf<int64_t> dim) const { return ink::softmax(*this, dim); }
Tensor Tensor::log_softmax(NumberOf<int64_t> dim) const { return ink::log_softmax(*this, dim); }
Tensor Tensor::cumsum(int64_t dim) const { return ink::cumsum(*this, dim); }
Tensor Tensor::cumprod(int64_t dim) const { return ink::cumprod(*this, dim); }
ValuesIndices Tensor::sort(NumberOf<int64_t> dim, bool descending) const {
  return ink::sort(*this, dim, descending);
}
ValuesIndices Tensor::topk(int64_t k, NumberOf<int64_t> dim, bool largest) const {
  return ink::topk(*this, k, dim, largest);
}
Tensor Tensor::argsort(NumberOf<int64_t> dim, bool descending) const {
  return ink::argsort(*this, dim, descending);
}
Tensor Tensor::matmul(Tensor other) const { return ink::matmul(*this, other); }
Tensor Tensor::bmm(Tensor other) const { return ink::bmm(*this, other); }
Tensor Tensor::dot(Tensor other) const { return ink::dot(*this, other); }
Tensor Tensor::outer(Tensor other) const { return ink::outer(*this, other); }
Tensor Tensor::gather(int64_t dim, const Tensor& ids) const { return ink::gather(*this, dim, ids); }
Tensor Tensor::index_select(int64_t dim, const Tensor& ids) const {
  return ink::index_select(*this, dim, ids);
}
Tensor Tensor::scatter(int64_t dim, const Tensor& ids, const Tensor& source) const {
  return ink::scatter(*this, dim, ids, source);
}
Tensor Tensor::scatter(int64_t dim, const Tensor& ids, const Scalar& value) const {
  return ink::scatter(*this, dim, ids, value);
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& ids, const Tensor& source) const {
  return ink::scatter_add(*this, dim, ids, source);
}
Tensor Tensor::masked_select(Tensor mask) const { return ink::masked_select(*this, mask); }
Tensor Tensor::nonzero() const { return ink::nonzero(*this); }
Tensor Tensor::flip(const Shape& dims) const { return ink::flip(*this, dims); }
Tensor Tensor::roll(const Shape& shifts, const Shape& dims) const {
  return ink::roll(*this, shifts, dims);
}
Tensor Tensor::diag(int64_t diagonal) const { return ink::diag(*this, diagonal); }
Tensor Tensor::trace() const { return ink::trace(*this); }
Tensor Tensor::repeat(const Shape& times) const { return ink::repeat(*this, times); }
Tensor Tensor::repeat_interleave(int64_t times, std::optional<int64_t> dim) const {
  return ink::repeat_interleave(*this, times, dim);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  return ink::unfold(*this, dim, size, step);
}
Tensor Tensor::tril(int64_t diagonal) const { return ink::tril(*this, diagonal); }
Tensor Tensor::triu(int64_t diagonal) const { return ink::triu(*this, diagonal); }
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return ink::diagonal(*this, offset, dim1, dim2);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const {
  return ink::split(*this, size, dim);
}
std::vector<Tensor> Tensor::split(const std::vector<int64_t>& sizes, int64_t dim) const {
  return ink::split(*this, sizes, dim);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  return ink::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::unbind(int64_t dim) const { return ink::unbind(*this, dim); }

}  // namespace ink
