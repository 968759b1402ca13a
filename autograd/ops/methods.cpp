// Tensor's methods that are ops. Each calls the function of the same name.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
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

// ---- views

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

Tensor Tensor::to(const char* device) const { return to(parse_device(device)); }
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  return ink::where(condition, *this, other);
}
Tensor Tensor::where(const Tensor& condition, const Scalar& other) const {
  return ink::where(condition, *this, other);
}

// ---- the others hand their arguments on. Their name, and the types of what follows the tensor:

#define CALLS(name, ...)                                    \
  ->decltype(ink::name(*this __VA_OPT__(, ) __VA_ARGS__)) { \
    return ink::name(*this __VA_OPT__(, ) __VA_ARGS__);     \
  }
#define METHOD(name) auto Tensor::name() const CALLS(name)
#define METHOD1(name, A) auto Tensor::name(A a) const CALLS(name, a)
#define METHOD2(name, A, B) auto Tensor::name(A a, B b) const CALLS(name, a, b)
#define METHOD3(name, A, B, C) auto Tensor::name(A a, B b, C c) const CALLS(name, a, b, c)

// clang-format off
METHOD(contiguous) METHOD(clone) METHOD(nonzero) METHOD(trace) METHOD(max) METHOD(min)
METHOD(exp) METHOD(log) METHOD(sqrt) METHOD(rsqrt) METHOD(abs) METHOD(neg) METHOD(sin) METHOD(cos)
METHOD(tanh) METHOD(sigmoid) METHOD(relu) METHOD(square) METHOD(log1p) METHOD(expm1) METHOD(sign)
METHOD(erf) METHOD(isnan) METHOD(isinf) METHOD(isfinite) METHOD(floor) METHOD(ceil) METHOD(round)
METHOD(trunc)

METHOD1(to, DType) METHOD1(to, Device) METHOD1(index, const Tensor&)
METHOD1(view, const Shape&) METHOD1(reshape, const Shape&) METHOD1(permute, const Shape&)
METHOD1(expand, const Shape&) METHOD1(flip, const Shape&) METHOD1(repeat, const Shape&)
METHOD1(squeeze, std::optional<int64_t>) METHOD1(unsqueeze, int64_t) METHOD1(unbind, int64_t)
METHOD1(cumsum, int64_t) METHOD1(cumprod, int64_t)
METHOD1(diag, int64_t) METHOD1(tril, int64_t) METHOD1(triu, int64_t)
METHOD1(softmax, NumberOf<int64_t>) METHOD1(log_softmax, NumberOf<int64_t>)
METHOD1(pow, Scalar) METHOD1(maximum, Scalar) METHOD1(minimum, Scalar)
METHOD1(clamp_min, Scalar) METHOD1(clamp_max, Scalar)
METHOD1(pow, Tensor) METHOD1(maximum, Tensor) METHOD1(minimum, Tensor)
METHOD1(clamp_min, Tensor) METHOD1(clamp_max, Tensor) METHOD1(max, Tensor) METHOD1(min, Tensor)
METHOD1(atan2, Tensor) METHOD1(matmul, Tensor) METHOD1(bmm, Tensor) METHOD1(dot, Tensor)
METHOD1(outer, Tensor) METHOD1(masked_select, Tensor)

METHOD2(sum, const Shape&, Flag) METHOD2(mean, const Shape&, Flag) METHOD2(prod, const Shape&, Flag)
METHOD2(any, const Shape&, Flag) METHOD2(all, const Shape&, Flag) METHOD2(amax, const Shape&, Flag)
METHOD2(amin, const Shape&, Flag) METHOD2(logsumexp, const Shape&, Flag)
METHOD2(max, NumberOf<int64_t>, Flag) METHOD2(min, NumberOf<int64_t>, Flag)
METHOD2(argmax, std::optional<NumberOf<int64_t>>, Flag)
METHOD2(argmin, std::optional<NumberOf<int64_t>>, Flag)
METHOD2(sort, NumberOf<int64_t>, bool) METHOD2(argsort, NumberOf<int64_t>, bool)
METHOD2(transpose, int64_t, int64_t) METHOD2(select, int64_t, int64_t)
METHOD2(split, int64_t, int64_t) METHOD2(split, const std::vector<int64_t>&, int64_t)
METHOD2(chunk, int64_t, int64_t) METHOD2(repeat_interleave, int64_t, std::optional<int64_t>)
METHOD2(gather, int64_t, const Tensor&) METHOD2(index_select, int64_t, const Tensor&)
METHOD2(add, const Tensor&, const Scalar&) METHOD2(add, const Scalar&, const Scalar&)
METHOD2(sub, const Tensor&, const Scalar&) METHOD2(sub, const Scalar&, const Scalar&)
METHOD2(masked_fill, const Tensor&, const Scalar&)
METHOD2(masked_fill, const Tensor&, const Tensor&)
METHOD2(clamp, std::optional<Scalar>, std::optional<Scalar>)
METHOD2(clamp, const Tensor&, const Tensor&) METHOD2(roll, const Shape&, const Shape&)

METHOD3(narrow, int64_t, int64_t, int64_t) METHOD3(unfold, int64_t, int64_t, int64_t)
METHOD3(diagonal, int64_t, int64_t, int64_t) METHOD3(topk, int64_t, NumberOf<int64_t>, bool)
METHOD3(var, const Shape&, NumberOf<double>, Flag)
METHOD3(std, const Shape&, NumberOf<double>, Flag)
METHOD3(norm, NumberOf<double>, const Shape&, Flag)
METHOD3(scatter, int64_t, const Tensor&, const Tensor&)
METHOD3(scatter, int64_t, const Tensor&, const Scalar&)
METHOD3(scatter_add, int64_t, const Tensor&, const Tensor&)
// clang-format on
#undef METHOD3
#undef METHOD2
#undef METHOD1
#undef METHOD
#undef CALLS

}  // namespace ink
