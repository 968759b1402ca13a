// The whole CPU/CUDA seam: every kernel, one line each.
//
// A line declares cpu::name, cuda::name and kernel::name; the last looks at its Tensor arguments
// and calls one of the first two. A kernel computes into given outputs, which have the right shape
// and dtype, and knows nothing of graphs. Outputs come first. An undefined tensor argument means
// "not given". A missing definition is a link error: of cpu::name in this library, of cuda::name
// in the library inkling::cuda, which enters its kernels into twin::name where it is linked.
#pragma once

#include <algorithm>
#include <ostream>
#include <sstream>
#include <type_traits>

#include "autograd/device_backend.h"
#include "autograd/optimizer_step.h"
#include "autograd/parallel.h"
#include "autograd/pointwise.h"
#include "autograd/tensor.h"

namespace ink {
namespace detail {

/// The device of a kernel's tensors: "softmax: tensors live on cuda:0 and cpu", "softmax: argument
/// 1 must be contiguous".
struct KernelCheck {
  const char* name;
  bool strided;
  Device device;
  bool found = false;

  void see(const Tensor& x) {
    if (!x.defined()) return;
    INK_CHECK(!found || x.device() == device, name, ": tensors live on ", device, " and ",
              x.device());
    INK_CHECK(strided || x.is_contiguous(), name, ": its kernel needs contiguous tensors, got ",
              x.shape(), " with strides ", x.strides());
    device = x.device();
    found = true;
  }
  void see(const Tensors& list) {
    for (const Tensor& x : list) see(x);
  }
  void see(const OptimizerStep& step) {
    for (const Tensor* x : {&step.lr, &step.grad_norm, &step.clip, &step.finite, &step.skipped})
      see(*x);
  }
  template <class Other>
  void see(const Other&) {}
};

/// " (2, 3) float32" for each tensor among a kernel's arguments, " 148 tensors, the first (768,)
/// float32" for a list.
inline void describe(std::ostream& out, const Tensor& x) {
  if (x.defined()) out << ' ' << x.shape() << ' ' << x.dtype();
}
inline void describe(std::ostream& out, const Tensors& list) {
  out << ' ' << list.size() << (list.size() == 1 ? " tensor" : " tensors");
  const auto first = std::find_if(list.begin(), list.end(), [](auto& x) { return x.defined(); });
  if (first == list.end()) return;
  out << ", the first";
  describe(out, *first);
}
template <class Other>
void describe(std::ostream&, const Other&) {}

template <class F>
struct Kernel;
template <class... Args>
struct Kernel<void(Args...)> {
  const char* name;
  void (*cpu)(Args...);
  void (**cuda)(Args...);
  bool strided;

  void operator()(std::type_identity_t<Args>... args) const {
    KernelCheck check{name, strided, {}};
    (check.see(args), ...);
    if (check.device.is_cpu()) return cpu(args...);
    backend_of(check.device).enter(check.device);
    INK_CHECK(*cuda != nullptr, name, ": there is no CUDA kernel for it");
    try {
      (*cuda)(args...);
    } catch (const DeviceError& error) {
      std::ostringstream given;
      (describe(given, args), ...);
      fail<DeviceError>({error.what(), "; given", given.str()});
    }
  }
};

}  // namespace detail

struct IdRange;  // ops/check_ids.h

/// Of x's elements along the reduced dimensions; mean divides the sum by their number. Of bools,
/// max and min are any and all.
enum class ReduceOp { sum, mean, prod, max, min };

/// How attention weighs: query i sees keys 0 .. i + diagonal, all of them if diagonal is their
/// number.
struct AttentionRule {
  double scale;
  int64_t diagonal;
  double dropout_p;
  RandomPosition random;  // of dropout
};

#ifndef CUDA_TWIN  // cuda/twins.cpp defines it
#define CUDA_TWIN(name)
#endif
#define DECLARE_KERNEL(name, strided, ...)                                                \
  namespace cpu {                                                                         \
  void name(__VA_ARGS__);                                                                 \
  }                                                                                       \
  namespace cuda {                                                                        \
  void name(__VA_ARGS__);                                                                 \
  }                                                                                       \
  namespace twin {                                                                        \
  inline std::add_pointer_t<void(__VA_ARGS__)> name = nullptr;                            \
  }                                                                                       \
  namespace kernel {                                                                      \
  inline constexpr detail::Kernel<void(__VA_ARGS__)> name{#name, &cpu::name, &twin::name, \
                                                          strided};                       \
  }
#define KERNEL(name, ...) DECLARE_KERNEL(name, false, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_STRIDED(name, ...) DECLARE_KERNEL(name, true, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_CPU(name, ...) DECLARE_KERNEL(name, true, __VA_ARGS__)  // no GPU twin yet

// clang-format off
// ops/copy.cpp
KERNEL_STRIDED(fill,              Tensor& y, double value)
KERNEL_STRIDED(copy,              Tensor& y, const Tensor& x)                    // same shape; converts the dtype
// ops/rearrange.cpp; of the last two dimensions
KERNEL(triangle,                  Tensor& y, const Tensor& x, int64_t diagonal, bool lower)
// ops/unary.cpp; inputs have y's shape (expanded where they broadcast), y may be one of them
KERNEL_STRIDED(unary,             Tensor& y, const Tensor& x, UnaryOp op)
KERNEL_STRIDED(unary_backward,    Tensor& dx, const Tensor& dy, const Tensor& v, UnaryOp op)  // v: x or y, as df says
// ops/binary.cpp; likewise; add takes f32 and bf16 side by side, y f32
KERNEL_STRIDED(binary,            Tensor& y, const Tensor& a, const Tensor& b, BinaryOp op)
KERNEL_STRIDED(binary_number,     Tensor& y, const Tensor& x, double number, BinaryOp op)
KERNEL_STRIDED(where,             Tensor& y, const Tensor& condition, const Tensor& a, const Tensor& b)
KERNEL_STRIDED(masked_fill,       Tensor& y, const Tensor& x, const Tensor& mask, double value)
// ops/compare.cpp; y is bool
KERNEL_STRIDED(compare,           Tensor& y, const Tensor& a, const Tensor& b, CompareOp op)
KERNEL_STRIDED(compare_number,    Tensor& y, const Tensor& x, double number, CompareOp op)
// ops/reduce.cpp; y keeps the reduced dimensions, with size 1
KERNEL_STRIDED(reduce,            Tensor& y, const Tensor& x, ReduceOp op)
KERNEL_STRIDED(arg_reduce,        Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool largest)
KERNEL_STRIDED(reduce_var,        Tensor& y, const Tensor& x, double correction, bool root)  // root: std
// ops/attention_forward.cpp, attention_backward.cpp; q, dq (..., T, d), k, dk (..., S, d), v, dv (..., S, dv), out, dout
// (..., T, dv), lse (..., T), -inf for a query that sees nothing, f32, or f64 for f64; mask: bool or lse's dtype, broadcasts to (..., T, S); dmask: as mask, contiguous
KERNEL_STRIDED(attention,         Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
               const AttentionRule& rule)
KERNEL_STRIDED(attention_backward, Tensor& dq, Tensor& dk, Tensor& dv, Tensor& dmask, const Tensor& dout, const Tensor& out,
               const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const AttentionRule& rule)
// gemm.cpp; c = alpha a b, or c += alpha a b: a (..., m, k), b (..., k, n), batches of equal shape (gemm.h)
KERNEL_STRIDED(gemm,              Tensor& c, const Tensor& a, const Tensor& b, double alpha, bool accumulate)
KERNEL_STRIDED(gemm_bias,         Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias)  // c = a b + bias (or undefined), in every row; see gemm.h
// ops/mlp.cpp; gelu is its tanh form; y, h, dh (m, n) of one layout and dtype
KERNEL_STRIDED(gemm_gelu,         Tensor& y, Tensor& h, const Tensor& a, const Tensor& b, const Tensor& bias)  // h = a b + bias, y = gelu h
KERNEL_STRIDED(gemm_gelu_backward, Tensor& dh, const Tensor& dy, const Tensor& w, const Tensor& h)             // dh = (dy w) gelu'(h)
// ops/linear.cpp; x (rows, n), y (n), of any floating dtypes
KERNEL_STRIDED(sum_rows,          Tensor& y, const Tensor& x, bool accumulate)   // y = sum of x's rows, or y += it
// ops/scan.cpp; along `dim`. sort fills values and indices with as many as they have room for
KERNEL_STRIDED(cumsum,            Tensor& y, const Tensor& x, int64_t dim)
KERNEL_STRIDED(sort,              Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending)
// ops/check_ids.cpp; throws where an i64 id is out of range; a GPU leaves that to the kernels that follow the ids, which say whose they are
KERNEL_STRIDED(check_ids,         const Tensor& ids, const IdRange& range)
// ops/index.cpp; ids i64, checked to lie in x's (y's) dimension `dim`
KERNEL_STRIDED(gather,            Tensor& y, const Tensor& x, const Tensor& ids, int64_t dim, const char* op)       // y, ids: one shape
KERNEL_STRIDED(scatter_add,       Tensor& y, const Tensor& source, const Tensor& ids, int64_t dim, const char* op)  // source, ids: one shape
// ops/softmax.cpp; over the last dimension
KERNEL(softmax,                   Tensor& y, const Tensor& x)
KERNEL(softmax_backward,          Tensor& dx, const Tensor& dy, const Tensor& y)
// ops/log_softmax.cpp; over the last dimension
KERNEL(log_softmax,               Tensor& y,  const Tensor& x)
KERNEL(log_softmax_backward,      Tensor& dx, const Tensor& dy, const Tensor& y)
// ops/layer_norm.cpp; x (rows, C); y as x, or bf16 for f32; mean, rstd (rows) and parameters (C) in f32, or f64 for f64;
// adds to dweight and dbias, and to dx if `accumulate`; undefined gradients are left out
KERNEL(layer_norm,                Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps)
KERNEL(add_layer_norm,            Tensor& sum, Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias, double eps)  // sum as x, branch as y
KERNEL(layer_norm_backward,       Tensor& dx, Tensor& dweight, Tensor& dbias, const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, bool accumulate)
// ops/rms_norm.cpp; as layer_norm
KERNEL(rms_norm,                  Tensor& y, Tensor& rstd, const Tensor& x, const Tensor& weight, double eps)
KERNEL(rms_norm_backward,         Tensor& dx, Tensor& dweight, const Tensor& dy, const Tensor& x, const Tensor& rstd, const Tensor& weight, bool accumulate)
// ops/cross_entropy.cpp; scale: 1 / the number of targets that count
KERNEL(target_scale,              Tensor& scale, const Tensor& targets, int64_t ignore_index)
// loss: one a target, or (), scale times their sum; dlogits (if defined): scale times the gradient of their sum, as logits or
// bf16 for f32, may be logits itself; scale: 1 if undefined. loss and scale are f32, or f64 for f64
KERNEL(cross_entropy,             Tensor& loss, Tensor& dlogits, const Tensor& logits, const Tensor& targets, const Tensor& scale, int64_t ignore_index)
// ops/embedding.cpp; adds to dweight, which is f32 for bf16
KERNEL(embedding,                 Tensor& y, const Tensor& ids, const Tensor& weight)
KERNEL(embedding_backward,        Tensor& dweight, const Tensor& dy, const Tensor& ids)
// ops/dropout.cpp; y = x mask
KERNEL(dropout,                   Tensor& y, const Tensor& x, double p, const RandomPosition& at)
// ops/sample.cpp; ids i64 (..., 1) of probabilities (..., V)
KERNEL(sample,                    Tensor& ids, const Tensor& probabilities, const RandomPosition& at)
// ops/optimizer.cpp; lists have one tensor a parameter, and one without a gradient is left alone; lr_scale, decay: f64 (P)
KERNEL(gradient_norm,             OptimizerStep& step, const Tensors& grads, const Tensor& loss, double max_norm)  // all of step but lr
KERNEL(adamw,                     Tensors& p, Tensors& m, Tensors& v, Tensors& rounded, Tensor& counts, const Tensors& grads, const OptimizerStep& step, const Tensor& lr_scale, const Tensor& decay, double beta1, double beta2, double eps)  // rounded: bf16 copies of p, written with them, or undefined
KERNEL(sgd,                       Tensors& p, Tensors& b, Tensors& rounded, Tensor& counts, const Tensors& grads, const OptimizerStep& step, const Tensor& lr_scale, const Tensor& decay, double momentum, bool nesterov)  // b may be empty
// clang-format on

#undef CUDA_TWIN
#undef DECLARE_KERNEL
#undef KERNEL
#undef KERNEL_STRIDED
#undef KERNEL_CPU

}  // namespace ink
