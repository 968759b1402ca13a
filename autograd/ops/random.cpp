// Random numbers in tensors: the factories of tensor.h, and the fills of random/generator.h.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"
#include "autograd/random/generator.h"
#include "autograd/tensor.h"

namespace ink {
namespace {

// Overwrites x with what draw(pointer, n) writes: directly if x's memory allows it, else through a
// contiguous CPU tensor.
template <class Draw>
Tensor fill_from(const char* op, Tensor x, Draw&& draw) {
  check_defined(op, x);
  INK_CHECK(!x.layout().repeats(), op, ": several elements of ", x.shape(),
            " lie in one place (it was expanded or unfolded); clone() it first");
  const bool recorded = detail::check_write(op, x, false);
  Tensor to = x.detach().permute(by_stride(x));  // in which order PyTorch draws
  const bool direct = to.is_contiguous() && x.device().is_cpu() && x.dtype() != bf16;
  Tensor drawn = direct ? to : empty(to.shape(), {x.dtype() == bf16 ? f32 : x.dtype(), cpu_device});
  for_float(op, drawn.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, bfloat16>) draw(drawn.mutable_data<T>(), drawn.numel());
  });
  if (!direct) to.copy_(drawn.to(x.device()));
  if (recorded) detail::record_fill(op, x);
  return x;
}

// New memory for uniform or normal numbers.
Tensor floats(const char* op, const Shape& shape, const Options& options) {
  INK_CHECK(is_floating(options.dtype), op, ": expected a floating dtype, got ", options.dtype);
  return Tensor(Array::empty(shape, options.dtype, options.device, op));
}
Tensor floats_like(const char* op, const Tensor& other) {
  check_defined(op, other);
  return floats(op, other.shape(), other.options());
}

}  // namespace

// The excluded bound stays excluded even if bf16 rounds a number up to it.
Tensor uniform_(Tensor x, double from, double to, Generator& g) {
  return fill_from("uniform_", x, [&](auto* out, int64_t n) {
    uniform_(out, n, from, to, g);
    if (x.dtype() != bf16) return;
    const bfloat16 excluded(static_cast<float>(to));
    std::replace_if(
        out, out + n,
        [&](auto y) {
          return static_cast<float>(bfloat16(static_cast<float>(y))) ==
                 static_cast<float>(excluded);
        },
        from);
  });
}

// PyTorch draws one by one unless x is contiguous. It fills bf16 block by block: the last 16 follow
// the last whole block, not all elements.
Tensor normal_(Tensor x, double mean, double std, Generator& g) {
  return fill_from("normal_", x, [&](auto* out, int64_t n) {
    if (!x.is_contiguous()) {
      for (int64_t i = 0; i < n; ++i) normal_(out + i, 1, mean, std, g);
      return;
    }
    const int64_t whole = x.dtype() == bf16 && n > 16 ? n - n % 16 : n;
    normal_(out, whole, mean, std, g);
    if (whole < n) normal_(out + n - 16, 16, mean, std, g);
  });
}

Tensor exponential_(Tensor x, double lambda, Generator& g) {
  return fill_from("exponential_", x,
                   [&](auto* out, int64_t n) { exponential_(out, n, lambda, g); });
}

Tensor bernoulli_(Tensor x, double p, Generator& g, BernoulliRule rule) {
  fill_from("bernoulli_", x, [&]<class T>(T* out, int64_t n) {
    if constexpr (std::is_same_v<T, float>) {
      bernoulli_(out, n, p, g, rule);
    } else {  // PyTorch's rule does not depend on the dtype of the result
      std::vector<float> drawn(static_cast<size_t>(n));
      bernoulli_(drawn.data(), n, p, g, rule);
      std::copy(drawn.begin(), drawn.end(), out);
    }
  });
  return x.requires_grad() && !x.is_leaf() ? shown_as("bernoulli.2", x) : x;
}

Tensor rand(const Shape& shape, Options options, Generator& g) {
  return uniform_(floats("rand", shape, options), 0, 1, g);
}
Tensor randn(const Shape& shape, Options options, Generator& g) {
  return normal_(floats("randn", shape, options), 0, 1, g);
}
Tensor rand_like(const Tensor& other, Generator& g) {
  return uniform_(floats_like("rand_like", other), 0, 1, g);
}
Tensor randn_like(const Tensor& other, Generator& g) {
  return normal_(floats_like("randn_like", other), 0, 1, g);
}

// If the dtype rounds a bound out of the range, PyTorch moves it back: high to the next number
// below, low to the next above.
static void move_into_range(DType dtype, int64_t& low, int64_t& high) {
  if (!is_floating(dtype)) return;
  const int digits = dtype == f64 ? 53 : dtype == f32 ? 24 : 8;
  const auto rounded = [&](int64_t i) {
    return dtype == f64   ? static_cast<double>(i)
           : dtype == f32 ? static_cast<float>(i)
                          : static_cast<float>(bfloat16(static_cast<float>(i)));
  };
  const auto unit = [&](int64_t i) {  // of the last digit
    const int exponent = std::ilogb(std::abs(static_cast<long double>(i)));
    return int64_t{1} << std::max(exponent - digits + 1, 0);
  };
  if (const double top = rounded(high - 1); top >= static_cast<double>(high))
    high = static_cast<int64_t>(top - static_cast<double>(unit(high - 1)));
  if (const double bottom = rounded(low + 1); bottom < static_cast<double>(low))
    low = static_cast<int64_t>(bottom + static_cast<double>(unit(low + 1)));
}

static Tensor drawn_integers(const char* op, int64_t low, int64_t high, const Shape& shape,
                             Options options, Generator& g) {
  INK_CHECK(low < high, op, ": expected low < high, got ", low, " and ", high);
  INK_CHECK(options.dtype != boolean || (low >= 0 && high <= 2), op,
            ": expected numbers within [0, 2) for bool, got ", low, " and ", high);
  move_into_range(options.dtype, low, high);
  Tensor x(Array::empty(shape, i64, cpu_device, op));
  randint_(x.mutable_data<int64_t>(), x.numel(), low, high, g);
  return x.to(options.dtype).to(options.device);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, Options options, Generator& g) {
  return drawn_integers("randint", low, high, shape, options, g);
}
Tensor randint(int64_t high, const Shape& shape, Options options, Generator& g) {
  return randint(0, high, shape, options, g);
}

Tensor randint_like(const Tensor& other, int64_t low, int64_t high, Generator& g) {
  check_defined("randint_like", other);
  return drawn_integers("randint_like", low, high, other.shape(), other.options(), g);
}

Tensor randperm(int64_t n, Generator& g) {
  Tensor x(Array::empty({n}, i64, cpu_device, "randperm"));
  randperm_(x.mutable_data<int64_t>(), n, g);
  return x.to(context().default_device);
}

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, Generator& g) {
  check_defined("multinomial", weights);
  INK_CHECK(weights.dim() >= 1, "multinomial: expected weights (..., categories), got a scalar");
  INK_CHECK(weights.is_floating(), "multinomial: expected floating weights, got ", weights.dtype());
  INK_CHECK(samples > 0, "multinomial: expected at least one sample, got ", samples);
  const Tensor w =
      weights.detach().to(cpu_device).to(weights.dtype() == f64 ? f64 : f32).contiguous();
  INK_CHECK(w.size(-1) > 0, "multinomial: expected at least one category, got ", w.shape());
  const int64_t categories = w.size(-1), rows = w.numel() / categories;
  Shape shape = w.shape();
  shape.back() = samples;
  Tensor ids = empty(shape, {i64, cpu_device});
  for_float("multinomial", w.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, bfloat16>)
      multinomial_(ids.mutable_data<int64_t>(), w.data<T>(), rows, categories, samples, replacement,
                   g);
  });
  return ids.to(weights.device());
}

}  // namespace ink
