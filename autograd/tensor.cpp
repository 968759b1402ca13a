#include "autograd/tensor.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "autograd/engine/graph.h"
#include "autograd/kernels/copy.h"

namespace ink {

// ---- the handle

std::atomic<int64_t> TensorImpl::live{0};

Tensor::Tensor(Array array)
    : impl_(array.defined() ? std::make_shared<TensorImpl>(std::move(array)) : nullptr) {}

Array& Tensor::not_given() {
  thread_local Array none;
  return none;
}

void detail::fail_undefined(const char* op, int argument) {
  const std::string which = argument == 0 ? "the tensor" : "argument " + std::to_string(argument);
  fail({op, ": ", which,
        " is undefined: it was never given a value, or it is the gradient of a tensor that no "
        "backward has reached"});
}

bool Tensor::alone() const {
  const Array& x = array("alone");
  return impl_.use_count() == 1 && x.storage().use_count() == 1 && x.layout().offset == 0 &&
         x.is_contiguous() && x.numel() * size_of(x.dtype()) == x.storage()->bytes;
}

// ---- its autograd methods. Views and writes are in engine/writes.cpp.

const std::shared_ptr<GradSlot>& Tensor::place() const {
  static const std::shared_ptr<GradSlot> none;
  return impl_ ? impl_->slot : none;
}

bool Tensor::requires_grad() const {
  const GradSlot* at = slot().get();
  return at != nullptr && at->requires_grad;
}
bool Tensor::is_leaf() const { return !slot() || !slot()->node; }
Tensor Tensor::grad() const { return slot() ? slot()->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) {
  impl("set_grad");
  INK_CHECK(slot(), "set_grad: the tensor does not require grad");
  INK_CHECK(!grad.is_same(*this), "set_grad: a tensor cannot be its own gradient; clone() it");
  if (grad.defined()) slot()->check_gradient("set_grad", grad);
  slot()->grad = grad;
}

Tensor& Tensor::requires_grad_(bool value) {
  array("requires_grad_");
  INK_CHECK(!value || is_floating(), "requires_grad_: expected a floating dtype, got ", dtype());
  INK_CHECK(value || is_leaf(),
            "requires_grad_: only a leaf's flag can be set; this tensor was computed by ",
            slot()->node->name);
  if (!is_leaf()) return *this;
  if (!slot() && value) {
    impl_->slot = std::make_shared<GradSlot>(impl_->array);
    // A later write to what it was a view of must not take the leaf's place in the graph.
    impl_->base = nullptr;
    impl_->is_view = false;
    impl_->not_followed.reset();
  }
  if (slot()) slot()->requires_grad = value;
  return *this;
}

Tensor& Tensor::retain_grad() {
  impl("retain_grad");
  INK_CHECK(requires_grad(), "retain_grad: the tensor does not require grad");
  slot()->retain_grad = true;
  return *this;
}

Tensor Tensor::detach() const { return Tensor(array("detach")); }

void Tensor::backward() const { ink::backward({*this}); }
void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  ink::backward({*this}, {gradient}, retain_graph, create_graph);
}

// ---- factories

Tensor empty(const Shape& shape, Options options) {
  return Tensor(Array::empty(shape, options.dtype, options.device));
}
static Tensor filled(const char* op, const Shape& shape, const Scalar& value, Options options) {
  check_in_range(op, value, options.dtype, shape.numel());
  Tensor x(Array::empty(shape, options.dtype, options.device, op));
  if (options.dtype == i64 && !value.exact()) {  // the kernel takes a double
    const Tensor number = from_vector<int64_t>({value.integer}).to(options.device);
    kernel::copy(x, number.array().expanded(shape));
  } else {
    kernel::fill(x, value.value);
  }
  return x;
}
Tensor full(const Shape& shape, const Scalar& value, Options options) {
  return filled("full", shape, value, options);
}
Tensor scalar_tensor(const Scalar& value, Options options) {
  return filled("scalar_tensor", {}, value, options);
}
Tensor zeros(const Shape& shape, Options options) { return filled("zeros", shape, 0, options); }
Tensor ones(const Shape& shape, Options options) { return filled("ones", shape, 1, options); }
Tensor empty_like(const Tensor& other) {
  check_defined("empty_like", other);
  return empty(other.shape(), other.options());
}

static Tensor filled_like(const char* op, const Tensor& other, const Scalar& value) {
  check_defined(op, other);
  return filled(op, other.shape(), value, other.options());
}
Tensor full_like(const Tensor& other, const Scalar& value) {
  return filled_like("full_like", other, value);
}
Tensor zeros_like(const Tensor& other) { return filled_like("zeros_like", other, 0); }
Tensor ones_like(const Tensor& other) { return filled_like("ones_like", other, 1); }

Tensor from_blob(void* memory, const Shape& shape, Options options, Storage::Deleter deleter) {
  INK_CHECK(deleter, "from_blob: expected a deleter");
  for (int64_t size : shape)
    INK_CHECK(size >= 0, "from_blob: expected sizes of 0 or more, got ", shape);
  const int64_t bytes = shape.numel() * size_of(options.dtype);
  return Tensor(Array(std::make_shared<Storage>(memory, bytes, options.device, std::move(deleter)),
                      {shape, contiguous_strides(shape), 0}, options.dtype));
}

template <class T>
Tensor detail::from_vector_of(const std::vector<T>& values, const std::optional<Shape>& shape) {
  const Shape sizes = shape.value_or(Shape{static_cast<int64_t>(values.size())});
  INK_CHECK(sizes.numel() == static_cast<int64_t>(values.size()), "from_vector: ", values.size(),
            " values for shape ", sizes);
  Tensor x = empty(sizes, {dtype_of<T>(), cpu_device});
  std::copy(values.begin(), values.end(), x.mutable_data<T>());
  return x.to(context().default_device);
}
template Tensor detail::from_vector_of(const std::vector<float>&, const std::optional<Shape>&);
template Tensor detail::from_vector_of(const std::vector<double>&, const std::optional<Shape>&);
template Tensor detail::from_vector_of(const std::vector<int64_t>&, const std::optional<Shape>&);
template Tensor detail::from_vector_of(const std::vector<bool>&, const std::optional<Shape>&);

detail::Nested::Nested(std::initializer_list<Nested> list)
    : shape{static_cast<int64_t>(list.size())} {
  if (list.size() == 0) kind = 2;
  for (const Nested& entry : list) {
    INK_CHECK(entry.shape == list.begin()->shape,
              "tensor: the lists are ragged: ", list.begin()->shape, " beside ", entry.shape);
    kind = std::max(kind, entry.kind);
    floats.insert(floats.end(), entry.floats.begin(), entry.floats.end());
    integers.insert(integers.end(), entry.integers.begin(), entry.integers.end());
  }
  if (list.size() > 0)
    for (int64_t size : list.begin()->shape) shape.push_back(size);
}

Tensor tensor(const detail::Nested& values) {
  return tensor(values, values.kind == 2 ? Options() : values.kind == 1 ? i64 : boolean);
}

Tensor tensor(const detail::Nested& values, Options options) {
  if (options.dtype == i64 && values.kind == 2)
    for (const double value : values.floats) check_in_range("tensor", value, i64);
  Tensor x = empty(values.shape, {options.dtype, cpu_device});
  for_any(options.dtype, [&]<class T>(T) {
    T* out = x.mutable_data<T>();
    if constexpr (std::is_same_v<T, int64_t>) {
      std::copy(values.integers.begin(), values.integers.end(), out);
    } else {
      std::transform(values.floats.begin(), values.floats.end(), out,
                     [](double v) { return static_cast<T>(v); });
    }
  });
  return x.to(options.device);
}

}  // namespace ink
