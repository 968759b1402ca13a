// Tensor: an array, with an optional place in a graph. Copies of a handle are the same tensor.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/memory/array.h"

namespace ink {

class Tensor;
class Generator;
namespace detail {
/// argument: its number, from 1; 0 stands for the tensor that a method was called on.
[[noreturn]] void fail_undefined(const char* op, int argument);
/// What numbers of type T are read as: T itself if tensors have such elements, else i64 or f64.
template <class T>
using widest_t = std::conditional_t<std::is_same_v<T, bool> || std::is_same_v<T, float> ||
                                        std::is_same_v<T, int64_t>,
                                    T, std::conditional_t<std::is_integral_v<T>, int64_t, double>>;
}  // namespace detail
struct GradSlot;

/// dtype and device of a new tensor; what is not given comes from the context. zeros({2, 3}, f64)
struct Options {
  Options() : dtype(context().default_dtype), device(context().default_device) {}
  Options(DType type) : dtype(type), device(context().default_device) {}
  Options(Device where) : dtype(context().default_dtype), device(where) {}
  Options(DType type, Device where) : dtype(type), device(where) {}
  DType dtype;
  Device device;
};

/// An entry of Tensor::index, as between Python's brackets.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice() = default;  // ":"
  explicit Slice(std::optional<int64_t> first, std::optional<int64_t> last = {}, int64_t by = 1)
      : start(first), stop(last), step(by) {}
  template <class... T>
  requires(NotAnInteger<T> || ...) explicit Slice(T...) = delete;  // expected integers or None
};
struct NoneType {
  template <class T>
  operator std::optional<T>() const {
    return {};  // Slice(None, 2), clamp(x, None, 1)
  }
};
struct EllipsisType {};
inline constexpr NoneType None{};  // a new dimension of size 1
inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr EllipsisType Ellipsis{};  // as many ":" as are missing
class Index;
struct ValuesIndices;

/// A bool, but no number: the 1 of sum(x, 0, 1) may be meant as a dimension.
struct Flag {
  Flag(std::same_as<bool> auto on) : value(on) {}
  operator bool() const { return value; }
  bool value;
};

/// A number, but not {}, which would be 0, and no bool, because keepdim comes later.
template <class T>
struct NumberOf {
  template <class N>
  requires(std::is_integral_v<N> || (std::is_floating_point_v<N> && std::is_floating_point_v<T>))
      NumberOf(N number)
      : value(static_cast<T>(number)) {}
  NumberOf(bool) = delete;  // expected a number; keepdim comes after it
  operator T() const { return value; }
  T value;
};

/// What all handles of one tensor share.
struct TensorImpl {
  explicit TensorImpl(Array memory) : array(std::move(memory)) {
    live.fetch_add(1, std::memory_order_relaxed);
  }
  ~TensorImpl() { live.fetch_sub(1, std::memory_order_relaxed); }
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;

  Array array;
  std::shared_ptr<GradSlot> slot;  // its place in the graph; null: a constant

  // For views and writes (engine/writes.cpp):
  uint64_t moves = 0;                // how often a recorded write replaced `slot`
  bool is_view = false;              // made by a view op
  bool is_of_module = false;         // a parameter or buffer: shared by all who call the module
  std::shared_ptr<TensorImpl> base;  // the tensor whose memory a view sees; never a view itself
  std::weak_ptr<TensorImpl> not_followed;  // the same for a view taken under NoGrad: it has no base
  std::atomic<uint64_t> base_moves{0};     // base->moves when `slot` was derived from base
  static std::atomic<int64_t> live;        // implementations that exist now
};

/// Removes a hook. Until then a hook lives as long as the tensor's place in the graph: a hook of an
/// intermediate result is called even if the tensor itself is gone.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(const std::shared_ptr<GradSlot>& slot, uint64_t number)
      : slot_(slot), number_(number) {}
  void remove();

 private:
  std::weak_ptr<GradSlot> slot_;
  uint64_t number_ = 0;
};

/// A counted handle. Copies of it are the same tensor: the same memory and the same place in the
/// graph. A default-constructed one is undefined: "no tensor here".
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  /// Makes the variable mean another tensor; no memory is written.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// A view that was just taken is written: x.index({0}) = y. Leading dimensions of 1 that the view
  /// has not are left out, as in PyTorch. Throws for any other temporary.
  Tensor& operator=(const Tensor& value) &&;
  Tensor& operator=(const Scalar& value) &&;
  /// A constant on an array's memory; undefined if the array is.
  explicit Tensor(Array array);

  // ---- what it is. All but defined(), is_same() and is_view() throw if it is undefined.
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return array("shape").shape(); }
  const Shape& strides() const { return array("strides").strides(); }
  const Layout& layout() const { return array("layout").layout(); }
  int64_t dim() const { return array("dim").dim(); }
  int64_t size(int64_t dim) const { return array("size").size(dim); }
  int64_t numel() const { return array("numel").numel(); }
  DType dtype() const { return array("dtype").dtype(); }
  Device device() const { return array("device").device(); }
  Options options() const { return {array("options").dtype(), device()}; }
  bool is_contiguous() const { return array("is_contiguous").is_contiguous(); }
  bool is_floating() const { return array("is_floating").is_floating(); }
  /// The same tensor, not one that is merely equal?
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  /// Made by a view op, and not made a leaf since: shares the memory of what it was taken from.
  bool is_view() const { return impl_ && impl_->is_view; }

  // ---- its memory (memory/array.h)
  template <class T>
  const T* data() const {
    return array("data").data<T>();
  }
  /// A pointer that is kept and written through later: call bump_version() after each such write.
  template <class T>
  T* mutable_data() {
    return impl("mutable_data").array.mutable_data<T>();
  }
  const std::shared_ptr<Storage>& storage() const { return array("storage").storage(); }
  /// The number of writes so far to the memory.
  uint64_t version() const {
    return array("version").storage()->version.load(std::memory_order_relaxed);
  }
  /// Says that the memory was written through a pointer. What was saved for backward and what was
  /// cached from it then count as out of date.
  void bump_version() {
    array("bump_version").storage()->version.fetch_add(1, std::memory_order_relaxed);
  }
  /// What kernels take, where an undefined one means "not given".
  operator const Array&() const { return impl_ ? impl_->array : not_given(); }
  operator Array&() { return impl_ ? impl_->array : not_given(); }
  /// The same for a tensor that must be defined; the error names `method`.
  const Array& array(const char* method = "array") const { return impl(method).array; }

  // ---- its values
  /// The one element of a tensor that has one, as any number T. Fractions are cut for integers.
  /// Throws if an integer type cannot hold it.
  template <class T = double>
  requires(std::is_arithmetic_v<T>) T item()
  const { return static_cast<T>(item_as<detail::widest_t<T>>(std::numeric_limits<T>::digits)); }
  /// All elements in row-major order, converted to any number T as by item.
  template <class T = double>
  requires(std::is_arithmetic_v<T>) std::vector<T> tolist()
  const {
    using Wide = detail::widest_t<T>;
    if constexpr (std::is_same_v<T, Wide>) return list_as<T>("tolist", 63);
    std::vector<T> values;
    const auto wide = list_as<Wide>("tolist", std::numeric_limits<T>::digits);
    for (Wide value : wide) values.push_back(static_cast<T>(value));
    return values;
  }
  /// The sizes, of which there must be N: auto [b, t, c] = x.sizes<3>();
  template <size_t N>
  std::array<int64_t, N> sizes() const {
    INK_CHECK(array("sizes").dim() == int64_t{N}, "sizes: expected ", N, " dimensions, got ",
              shape());
    std::array<int64_t, N> sizes;
    std::copy(shape().begin(), shape().end(), sizes.begin());
    return sizes;
  }
  /// The text that PyTorch prints.
  std::string to_string() const;

  // ---- views: the same memory seen otherwise (basic_ops.h)
  Tensor view(const Shape& shape) const;  // one size may be -1; throws when a copy would be needed
  Tensor reshape(const Shape& shape) const;  // a view where possible, a copy otherwise
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor permute(const Shape& dims) const;
  Tensor squeeze(std::optional<int64_t> dim = {}) const, unsqueeze(int64_t dim) const;
  Tensor expand(const Shape& shape) const;  // -1 keeps a size
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor T() const;  // all dimensions reversed
  /// As x[0, 1:-1, None, ...] in Python: x.index({0, Slice(1, -1), None, Ellipsis}), a view. Among
  /// the indices may be tensors, i64 ids or bool masks, as in NumPy; the result is then a copy.
  Tensor index(std::initializer_list<Index> indices) const;
  /// Rows by a tensor of ids, shape ids.shape + x.shape[1:], or by a bool mask.
  Tensor index(const Tensor& ids) const;
  void begin() const = delete;  // for (const Tensor& row : x.unbind())
  void end() const = delete;
  /// One index: x[0], x[Slice(1, 3)], x[mask].
  Tensor operator[](const Index& index) const;

  // ---- copies
  Tensor contiguous() const, clone() const;  // contiguous: itself if it is
  Tensor to(DType dtype) const, to(Device device) const;
  Tensor to(const char* device) const;  // "cpu", "cuda", "cuda:1"

  // ---- ops as methods: each is the function of its name (basic_ops.h, fused_ops.h, ops.h)
  Tensor exp() const, log() const, sqrt() const, rsqrt() const, abs() const, neg() const;
  Tensor sin() const, cos() const, tanh() const, sigmoid() const, relu() const, square() const;
  Tensor log1p() const, expm1() const, sign() const, erf() const, isnan() const, isinf() const;
  Tensor isfinite() const, floor() const, ceil() const, round() const, trunc() const;
  Tensor pow(Scalar exponent) const, pow(Tensor exponent) const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor clamp(const Tensor& min, const Tensor& max) const;
  Tensor clamp_min(Tensor min) const, clamp_min(Scalar min) const;
  Tensor clamp_max(Tensor max) const, clamp_max(Scalar max) const;
  Tensor maximum(Tensor other) const, maximum(Scalar other) const;
  Tensor minimum(Tensor other) const, minimum(Scalar other) const;
  Tensor atan2(Tensor other) const;
  Tensor masked_fill(const Tensor& mask, const Scalar& value) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, const Scalar& other) const;
  Tensor add(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor add(const Scalar& other, const Scalar& alpha = 1) const;
  Tensor sub(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor sub(const Scalar& other, const Scalar& alpha = 1) const;
  // with another tensor or a number
  Tensor mul(const auto& other) const { return *this * other; }
  Tensor div(const auto& other) const { return *this / other; }
  Tensor remainder(const auto& other) const { return *this % other; }
  Tensor eq(const auto& other) const { return *this == other; }
  Tensor ne(const auto& other) const { return *this != other; }
  Tensor lt(const auto& other) const { return *this < other; }
  Tensor le(const auto& other) const { return *this <= other; }
  Tensor gt(const auto& other) const { return *this > other; }
  Tensor ge(const auto& other) const { return *this >= other; }
  Tensor sum(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor mean(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor prod(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor any(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor all(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor amax(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor amin(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor var(const Shape& dims = {}, NumberOf<double> correction = 1, Flag keepdim = false) const;
  Tensor std(const Shape& dims = {}, NumberOf<double> correction = 1, Flag keepdim = false) const;
  Tensor logsumexp(const Shape& dims, Flag keepdim = false) const;
  Tensor norm(NumberOf<double> p = 2, const Shape& dims = {}, Flag keepdim = false) const;
  Tensor norm(std::initializer_list<int64_t>) const = delete;  // expected p before the dims
  Tensor max() const, min() const;
  ValuesIndices max(NumberOf<int64_t> dim, Flag keepdim = false) const;
  ValuesIndices min(NumberOf<int64_t> dim, Flag keepdim = false) const;
  Tensor argmax(std::optional<NumberOf<int64_t>> dim = {}, Flag keepdim = false) const;
  Tensor argmin(std::optional<NumberOf<int64_t>> dim = {}, Flag keepdim = false) const;
  Tensor softmax(NumberOf<int64_t> dim) const, log_softmax(NumberOf<int64_t> dim) const;
  Tensor cumsum(int64_t dim) const, cumprod(int64_t dim) const;
  ValuesIndices sort(NumberOf<int64_t> dim = -1, bool descending = false) const;
  ValuesIndices topk(int64_t k, NumberOf<int64_t> dim = -1, bool largest = true) const;
  Tensor argsort(NumberOf<int64_t> dim = -1, bool descending = false) const;
  Tensor matmul(Tensor other) const, bmm(Tensor other) const, dot(Tensor other) const;
  Tensor outer(Tensor other) const, max(Tensor other) const, min(Tensor other) const;
  Tensor gather(int64_t dim, const Tensor& ids) const;
  Tensor index_select(int64_t dim, const Tensor& ids) const;
  Tensor scatter(int64_t dim, const Tensor& ids, const Tensor& source) const;
  Tensor scatter(int64_t dim, const Tensor& ids, const Scalar& value) const;
  Tensor scatter_add(int64_t dim, const Tensor& ids, const Tensor& source) const;
  Tensor index_put(std::initializer_list<Index> indices, const Tensor& values,
                   bool accumulate = false) const;
  Tensor masked_select(Tensor mask) const, nonzero() const;
  Tensor flip(const Shape& dims) const;
  Tensor roll(const Shape& shifts, const Shape& dims = {}) const;
  Tensor repeat(const Shape& times) const;
  Tensor repeat_interleave(int64_t times, std::optional<int64_t> dim = {}) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor tril(int64_t diagonal = 0) const, triu(int64_t diagonal = 0) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor diag(int64_t diagonal = 0) const, trace() const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
  std::vector<Tensor> split(const std::vector<int64_t>& sizes, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const, unbind(int64_t dim = 0) const;

  // ---- writes in place. Rules for graphs: see engine/README.md, "In-place ops".
  Tensor& copy_(const Tensor& source);
  Tensor& add_(const Tensor& other, const Scalar& alpha = 1);
  Tensor& sub_(const Tensor& other, const Scalar& alpha = 1);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& add_(const Scalar& value, const Scalar& alpha = 1);
  Tensor& sub_(const Scalar& value, const Scalar& alpha = 1);
  Tensor &mul_(Scalar value), &div_(Scalar value), &fill_(Scalar value), &zero_();
  Tensor &remainder_(Tensor other), &remainder_(Scalar value);
  // The same as operators, with a tensor or a number. x[ids] += y throws: it would write a copy.
  Tensor& operator+=(const auto& other) & { return add_(other); }
  Tensor& operator-=(const auto& other) & { return sub_(other); }
  Tensor& operator*=(const auto& other) & { return mul_(other); }
  Tensor& operator/=(const auto& other) & { return div_(other); }
  Tensor& operator%=(const auto& other) & { return remainder_(other); }
  Tensor& operator+=(const auto& other) && { return seen_by_others().add_(other); }
  Tensor& operator-=(const auto& other) && { return seen_by_others().sub_(other); }
  Tensor& operator*=(const auto& other) && { return seen_by_others().mul_(other); }
  Tensor& operator/=(const auto& other) && { return seen_by_others().div_(other); }
  Tensor& operator%=(const auto& other) && { return seen_by_others().remainder_(other); }
  Tensor& masked_fill_(const Tensor& mask, const Scalar& value);
  // x = exp(x) and so on, into x's memory
  Tensor &exp_(), &log_(), &sqrt_(), &neg_(), &abs_(), &tanh_(), &sigmoid_(), &relu_(), &square_();
  Tensor &rsqrt_(), &sin_(), &cos_(), &log1p_(), &expm1_(), &floor_(), &ceil_(), &round_();
  Tensor &trunc_(), &atan2_(Tensor other);
  Tensor &pow_(Scalar exponent), &pow_(Tensor exponent);
  Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max = {});
  Tensor& clamp_(const Tensor& min, const Tensor& max);
  Tensor &clamp_min_(Tensor min), &clamp_min_(Scalar min);
  Tensor &clamp_max_(Tensor max), &clamp_max_(Scalar max);
  /// x[indices] = values, or += with accumulate. Indices are those of index(), ids and masks among
  /// them those of index_put in ops.h: x.index_put_({mask}, 0). Values may have leading dimensions
  /// of 1 too many.
  Tensor& index_put_(std::initializer_list<Index> indices, const Tensor& values,
                     bool accumulate = false);
  Tensor& index_put_(std::initializer_list<Index> indices, const Scalar& value,
                     bool accumulate = false);
  Tensor& index_put_(const std::vector<Tensor>& ids, const Tensor& values, bool accumulate = false);
  Tensor& scatter_(int64_t dim, const Tensor& ids, const Tensor& source);
  Tensor& scatter_(int64_t dim, const Tensor& ids, const Scalar& value);
  Tensor& scatter_add_(int64_t dim, const Tensor& ids, const Tensor& source);

  // ---- autograd (engine/graph.h)
  bool requires_grad() const, is_leaf() const;
  /// Makes a leaf whose gradient is collected (or not). A view that becomes a leaf keeps its memory
  /// but is no longer a view. Floating dtypes only.
  Tensor& requires_grad_(bool value = true);
  /// The gradient that backward left here; undefined if none.
  Tensor grad() const;
  void set_grad(const Tensor& grad);  // takes the tensor itself: later walks add to it
  /// Makes backward keep this tensor's gradient in grad() although it is not a leaf. After a write
  /// in place, grad() is the gradient of the new value.
  Tensor& retain_grad();
  /// The hook is called once in each walk that computes this gradient, when it is complete. It
  /// returns the gradient to use instead, or Tensor(), or nothing. After a write in place it still
  /// gets the gradient of the old value. A hook that captures its own tensor keeps it alive for
  /// ever, because the tensor's place in the graph holds the hook: remove() it, or capture a
  /// detach(). The first hook of a leaf, of this kind or the next, is not called in a walk that has
  /// begun before.
  HookHandle register_hook(std::function<Tensor(const Tensor&)> hook);
  template <class F>
  requires std::is_void_v<std::invoke_result_t<F&, const Tensor&>> HookHandle
  register_hook(F hook) {
    return register_hook([hook](const Tensor& g) mutable { return hook(g), Tensor(); });
  }
  /// The hook is called with a leaf as soon as backward() has updated its grad, while the walk goes
  /// on. (If several threads take parts of a batch, then after the parts' gradients are summed.)
  HookHandle register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook);
  /// Another tensor on the same memory, outside any graph.
  Tensor detach() const;
  /// Adds d self / d leaf to every leaf's grad. Unless self has one element, pass its gradient,
  /// which is cast to self's dtype.
  /// Several threads may do so at once into one model, each with a graph of its own. With
  /// create_graph a leaf's grad holds the graph, and the graph the leaf: both live until the grad
  /// is reset (zero_grad, or set_grad({})). ink::grad() makes no such circle.
  void backward() const;
  void backward(const Tensor& gradient, bool retain_graph = false, bool create_graph = false) const;

  // ---- for ops and the engine
  /// Its place in the graph, null for a constant. A view whose base was written derives it again.
  const std::shared_ptr<GradSlot>& slot() const {
    const bool current = !impl_ || !impl_->base || impl_->base_moves == impl_->base->moves;
    return current ? place() : derive_again();
  }
  void set_slot(std::shared_ptr<GradSlot> slot) { impl("set_slot").slot = std::move(slot); }
  /// A view in another layout, outside any graph. View ops call this, then record the result.
  Tensor alias(const Layout& layout) const;
  /// Is this the only handle of the only tensor on its memory, and does it fill that memory?
  bool alone() const;
  TensorImpl& impl(const char* method = "impl") const {
    if (!impl_) [[unlikely]]
      detail::fail_undefined(method, 0);
    return *impl_;
  }
  const std::shared_ptr<TensorImpl>& shared_impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  template <class T>
  T item_as(int digits) const;  // of the type that was asked for
  template <class T>
  std::vector<T> list_as(const char* op, int digits) const;
  static Array& not_given();
  Tensor &checked_target(), &seen_by_others();
  const std::shared_ptr<GradSlot>& place() const;
  const std::shared_ptr<GradSlot>& derive_again() const;

  std::shared_ptr<TensorImpl> impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// One of the indices between brackets: any integer, Slice, None, Ellipsis, or a tensor.
class Index {
 public:
  template <class Integer>
  requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) Index(Integer i)
      : value(static_cast<int64_t>(i)) {}
  template <class T>
  requires((!std::is_integral_v<T> && !std::is_convertible_v<const T&, Tensor>) ||
           std::is_same_v<T, bool>) Index(const T&)
  = delete;  // expected an integer, Slice, None, Ellipsis, or a tensor of ids or bools
  Index(Slice slice) : value(slice) {}
  Index(NoneType none) : value(none) {}
  Index(EllipsisType dots) : value(dots) {}
  Index(Tensor ids) : value(std::move(ids)) {}
  std::variant<int64_t, Slice, NoneType, EllipsisType, Tensor> value;
};

/// Ops begin with this check: it throws "op: argument 2 is undefined ..." if one is.
template <class... Tensors>
void check_defined(const char* op, const Tensors&... arguments) {
  int number = 0;
  ((++number, arguments.defined() ? void() : detail::fail_undefined(op, number)), ...);
}

// ---- factories

namespace detail {
/// Nested braces of numbers: {{1, 2}, {3, 4}}. The kind of the widest number decides the dtype.
struct Nested {
  template <class T>
  requires(!std::is_arithmetic_v<T>) Nested(const T&)
  = delete;  // expected numbers
  template <class Number>
  requires(std::is_arithmetic_v<Number>) Nested(Number number)
      : kind(std::is_same_v<Number, bool> ? 0
             : std::is_integral_v<Number> ? 1
                                          : 2),
        floats{static_cast<double>(number)},
        integers{std::is_integral_v<Number> ? Scalar(number).integer
                                            : static_cast<int64_t>(number)} {}
  Nested(std::initializer_list<Nested> list);
  int kind = 0;  // 0 bool, 1 integer, 2 floating
  Shape shape;
  std::vector<double> floats;
  std::vector<int64_t> integers;
};
}  // namespace detail

/// From nested braces: tensor({{1.0, 2.0}, {3.0, 4.0}}). Integers give i64, booleans bool, others
/// the default dtype.
Tensor tensor(const detail::Nested& values);
Tensor tensor(const detail::Nested& values, Options options);
namespace detail {
template <class T>  // float, double, int64_t, bool
Tensor from_vector_of(const std::vector<T>& values, const std::optional<Shape>& shape);
}  // namespace detail
/// From a vector, row-major; the default shape is (n,).
template <class T>
Tensor from_vector(const std::vector<T>& values, std::optional<Shape> shape = {}) {
  static_assert(std::is_arithmetic_v<T>, "from_vector takes numbers");
  using Wide = detail::widest_t<T>;
  if constexpr (std::is_same_v<T, Wide>) {
    return detail::from_vector_of(values, shape);
  } else {
    for (const T value : values) Scalar{value};  // throws if int64 cannot hold it
    return detail::from_vector_of(std::vector<Wide>(values.begin(), values.end()), shape);
  }
}
template <class T>
Tensor from_vector(const std::vector<T>& values, std::initializer_list<int64_t> shape) {
  return from_vector(values, std::optional<Shape>(shape));
}
/// The same with one dimension; floating numbers get the default dtype, as in PyTorch.
template <class T>
Tensor tensor(const std::vector<T>& values) {
  const Tensor x = from_vector(values);
  return x.is_floating() ? x.to(context().default_dtype) : x;
}
template <class T>
Tensor tensor(const std::vector<T>& values, Options options) {
  for (size_t i = 0; options.dtype == i64 && i < values.size(); ++i)
    check_in_range("tensor", Scalar(T(values[i])), i64);
  return from_vector(values).to(options.dtype).to(options.device);
}
/// On the caller's memory, without a copy; `deleter` runs when the last tensor on it dies.
Tensor from_blob(
    void* memory, const Shape& shape, Options options, Storage::Deleter deleter = [](void*) {});

Tensor empty(const Shape& shape, Options options = {});  // uninitialised
/// Of the default dtype unless told otherwise, also for 1 and true: full({2}, 1, i64).
Tensor full(const Shape& shape, const Scalar& value, Options options = {});
Tensor scalar_tensor(const Scalar& value, Options options = {});  // ()
Tensor zeros(const Shape& shape, Options options = {});
Tensor ones(const Shape& shape, Options options = {});
/// start, start + step, ... up to but without end. The dtype, if not given, is i64, or the default
/// dtype if one of the numbers is floating.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, Options options);
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1);
Tensor arange(const Scalar& start, const Scalar& end, Options options);
Tensor arange(const Scalar& end, Options options);
Tensor arange(const Scalar& end);
Tensor eye(int64_t n, Options options = {});
Tensor eye(int64_t n, int64_t m, Options options = {});  // (n, m)
/// steps values from start to end, both included, equally far apart: (steps,).
Tensor linspace(double start, double end, int64_t steps, Options options = {});

Tensor empty_like(const Tensor& other);  // contiguous, same shape, dtype and device
Tensor full_like(const Tensor& other, const Scalar& value);
Tensor zeros_like(const Tensor& other);
Tensor ones_like(const Tensor& other);

// Random factories draw the numbers of PyTorch's CPU generator, seed by seed (random/generator.h).
class Generator;
Generator& default_generator();
/// Uniform in [0, 1).
Tensor rand(const Shape& shape, Options options = {}, Generator& g = default_generator());
/// Normal, with mean 0 and variance 1.
Tensor randn(const Shape& shape, Options options = {}, Generator& g = default_generator());
/// Integers in [low, high); low is 0 if not given.
Tensor randint(int64_t low, int64_t high, const Shape& shape, Options options = DType::i64,
               Generator& g = default_generator());
Tensor randint(int64_t high, const Shape& shape, Options options = DType::i64,
               Generator& g = default_generator());
Tensor randint(int64_t, std::integral auto) = delete;            // expected a size, in braces
Tensor randperm(int64_t n, Generator& g = default_generator());  // a random order of 0 .. n-1
Tensor rand_like(const Tensor& other, Generator& g = default_generator());
Tensor randn_like(const Tensor& other, Generator& g = default_generator());
Tensor randint_like(const Tensor& other, int64_t low, int64_t high,
                    Generator& g = default_generator());

}  // namespace ink
