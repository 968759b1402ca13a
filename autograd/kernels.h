// The whole CPU/CUDA seam: every kernel, one line each.
//
// A line declares cpu::name, cuda::name and kernel::name; the last looks at its Array arguments
// and calls one of the first two. A kernel computes into given outputs, which have the right shape
// and dtype, and knows nothing of graphs. Outputs come first. An undefined tensor argument means
// "not given". A missing definition is a link error: of cpu::name in this library, of cuda::name
// in the library inkling::cuda, which enters its kernels into twin::name where it is linked.
#pragma once

#include <algorithm>
#include <ostream>
#include <sstream>
#include <type_traits>

#include "autograd/base/context.h"
#include "autograd/base/parallel.h"
#include "autograd/loops/optimizer.h"
#include "autograd/loops/pointwise.h"
#include "autograd/memory/array.h"
#include "autograd/memory/device_backend.h"

namespace ink {

/// Of x's elements along the reduced dimensions; mean divides the sum by their number. Of bools,
/// max and min are any and all.
enum class ReduceOp { sum, mean, prod, max, min };

/// How attention weighs: query i sees keys 0 .. i + diagonal; all if diagonal is their number.
struct AttentionRule {
  double scale;
  int64_t diagonal;
  double dropout_p;
  RandomPosition random;  // of dropout
};

/// q (..., T, d), k (..., S, d), v (..., S, dv); mask: bool, or f32 (f64 for f64), which broadcasts
/// to (..., T, S), or undefined.
struct AttentionInputs {
  Array q, k, v, mask;
  AttentionRule rule;

  /// (..., T, S)
  Shape scores_shape() const {
    Shape shape = q.shape();
    shape.back() = k.size(-2);
    return shape;
  }
};
/// As q, k, v and mask; dmask is contiguous.
struct AttentionGradients {
  Array dq, dk, dv, dmask;
};

/// weight and bias (C), f32, or f64 for f64; rms_norm has no bias.
struct NormParameters {
  Array weight, bias;
  double eps;
};
/// dweight and dbias are added to, and so is dx if `accumulate`; undefined ones are left out.
struct NormGradients {
  Array dx, dweight, dbias;
  bool accumulate;
};

namespace detail {

/// Calls f for each array, or list of arrays, that a kernel's argument holds.
template <class F>
void for_arrays(F&& f, const Array& x) {
  f(x);
}
template <class F>
void for_arrays(F&& f, const Arrays& list) {
  f(list);
}
template <class F, class... Members>
void for_members(F&& f, const Members&... members) {
  (for_arrays(f, members), ...);
}
template <class F>
void for_arrays(F&& f, const OptimizerStep& s) {
  for_members(f, s.lr, s.grad_norm, s.clip, s.finite, s.skipped);
}
template <class F>
void for_arrays(F&& f, const ParameterLists& p) {
  for_members(f, p.values, p.grads, p.rounded, p.counts, p.lr_scale, p.decay);
}
template <class F>
void for_arrays(F&& f, const AttentionInputs& in) {
  for_members(f, in.q, in.k, in.v, in.mask);
}
template <class F>
void for_arrays(F&& f, const AttentionGradients& d) {
  for_members(f, d.dq, d.dk, d.dv, d.dmask);
}
template <class F>
void for_arrays(F&& f, const NormParameters& p) {
  for_members(f, p.weight, p.bias);
}
template <class F>
void for_arrays(F&& f, const NormGradients& d) {
  for_members(f, d.dx, d.dweight, d.dbias);
}
template <class F, class Other>
void for_arrays(F&&, const Other&) {}

/// The device of a kernel's arrays: "softmax: tensors live on cuda:0 and cpu".
struct KernelCheck {
  const char* name;
  bool strided;
  Device device;
  bool found = false;

  void operator()(const Array& x) {
    if (!x.defined()) return;
    INK_CHECK(!found || x.device() == device, name, ": tensors live on ", device, " and ",
              x.device());
    INK_CHECK(strided || x.is_contiguous(), name, ": its kernel needs contiguous tensors, got ",
              x.shape(), " with strides ", x.strides());
    device = x.device();
    found = true;
  }
  void operator()(const Arrays& list) {
    for (const Array& x : list) (*this)(x);
  }
};

/// " (2, 3) float32" for each array among a kernel's arguments,
/// " 148 tensors, the first (768,) float32" for a list.
struct DescribeArrays {
  std::ostream& out;

  void operator()(const Array& x) const {
    if (x.defined()) out << ' ' << x.shape() << ' ' << x.dtype();
  }
  void operator()(const Arrays& list) const {
    out << ' ' << list.size() << (list.size() == 1 ? " tensor" : " tensors");
    const auto first = std::find_if(list.begin(), list.end(), [](auto& x) { return x.defined(); });
    if (first == list.end()) return;
    out << ", the first";
    (*this)(*first);
  }
};

template <class F>
struct Kernel;
template <class Result, class... Args>
struct Kernel<Result(Args...)> {
  const char* name;
  Result (*cpu)(Args...);
  Result (**cuda)(Args...);
  bool strided;

  Result operator()(std::type_identity_t<Args>... args) const {
    KernelCheck check{name, strided, {}};
    (for_arrays(check, args), ...);
    if (check.device.is_cpu()) return cpu(args...);
    backend_of(check.device).enter(check.device);
    INK_CHECK(*cuda != nullptr, name, ": there is no CUDA kernel for it");
    try {
      return (*cuda)(args...);
    } catch (const DeviceError& error) {
      std::ostringstream given;
      (for_arrays(DescribeArrays{given}, args), ...);
      fail<DeviceError>({error.what(), "; given", given.str()});
    }
  }
};

/// The CPU's side of a kernel that only a GPU has: nothing is computed.
template <class... Args>
bool nothing(Args...) {
  return false;
}

}  // namespace detail

#ifndef CUDA_TWIN  // cuda/twins.cpp defines it
#define CUDA_TWIN(name)
#endif
#define DECLARE_KERNEL(Result, name, cpu_kernel, strided, ...)                               \
  namespace cuda {                                                                           \
  Result name(__VA_ARGS__);                                                                  \
  }                                                                                          \
  namespace twin {                                                                           \
  inline std::add_pointer_t<Result(__VA_ARGS__)> name = nullptr;                             \
  }                                                                                          \
  namespace kernel {                                                                         \
  inline constexpr detail::Kernel<Result(__VA_ARGS__)> name{#name, &cpu_kernel, &twin::name, \
                                                            strided};                        \
  }
#define DECLARE_TWO(name, strided, ...) \
  namespace cpu {                       \
  void name(__VA_ARGS__);               \
  }                                     \
  DECLARE_KERNEL(void, name, cpu::name, strided, __VA_ARGS__)
#define KERNEL(name, ...) DECLARE_TWO(name, false, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_STRIDED(name, ...) DECLARE_TWO(name, true, __VA_ARGS__) CUDA_TWIN(name)
#define KERNEL_CPU(name, ...) DECLARE_TWO(name, true, __VA_ARGS__)  // no CUDA twin yet
// Only a GPU has it, and not for every argument: returns whether it has computed anything.
#define KERNEL_CUDA(name, ...) \
  DECLARE_KERNEL(bool, name, detail::nothing, true, __VA_ARGS__) CUDA_TWIN(name)

// clang-format off

// ---- ops/copy.cpp
KERNEL_STRIDED(fill, Array& y, double value)
// y = x, of one shape, in y's dtype.
KERNEL_STRIDED(copy, Array& y, const Array& x)

// ---- ops/tril.cpp
// The lower or upper triangle of the last two dimensions; zeros elsewhere.
KERNEL(triangle, Array& y, const Array& x, int64_t diagonal, bool lower)

// ---- ops/unary.cpp, binary.cpp
// Inputs have y's shape (expanded where they broadcast), and y may be one of them.
KERNEL_STRIDED(unary, Array& y, const Array& x, UnaryOp op)
// v: x or y, as the op's df says.
KERNEL_STRIDED(unary_backward, Array& dx, const Array& dy, const Array& v, UnaryOp op)
// add takes f32 and bf16 side by side, y f32.
KERNEL_STRIDED(binary, Array& y, const Array& a, const Array& b, BinaryOp op)
KERNEL_STRIDED(binary_number, Array& y, const Array& x, double number, BinaryOp op)

// ---- ops/where.cpp: likewise
KERNEL_STRIDED(where, Array& y, const Array& condition, const Array& a, const Array& b)
KERNEL_STRIDED(masked_fill, Array& y, const Array& x, const Array& mask, double value)

// ---- ops/compare.cpp: y is bool
KERNEL_STRIDED(compare, Array& y, const Array& a, const Array& b, CompareOp op)
KERNEL_STRIDED(compare_number, Array& y, const Array& x, double number, CompareOp op)

// ---- ops/reduce.cpp, max_min.cpp, var.cpp: y keeps the reduced dimensions, with size 1
KERNEL_STRIDED(reduce, Array& y, const Array& x, ReduceOp op)
KERNEL_STRIDED(arg_reduce, Array& values, Array& indices, const Array& x, int64_t dim, bool largest)
// root: the standard deviation.
KERNEL_STRIDED(reduce_var, Array& y, const Array& x, double correction, bool root)

// ---- ops/attention/forward.cpp, backward.cpp: out (..., T, dv)
// lse (..., T), f32, or f64 for f64: log of the sum of exp(scores), -inf if a query sees nothing.
KERNEL_STRIDED(attention, Array& out, Array& lse, const AttentionInputs& in)
KERNEL_STRIDED(attention_backward, AttentionGradients d, const Array& dout, const Array& out,
               const Array& lse, const AttentionInputs& in)

// ---- gemm/gemm.cpp (gemm/gemm.h): a (..., m, k) and b (..., k, n), batches of equal shape
// c = alpha a b, or c += alpha a b.
KERNEL_STRIDED(gemm, Array& c, const Array& a, const Array& b, double alpha, bool accumulate)
// c = a b + bias (n) in every row; bias may be undefined.
KERNEL_STRIDED(gemm_bias, Array& c, const Array& a, const Array& b, const Array& bias)

// ---- a GPU's alone (ops/mlp.cpp); gelu is its tanh form; y, h, dh (m, n) of one layout and dtype
// h = a b + bias, y = gelu h.
KERNEL_CUDA(gemm_gelu, Array& y, Array& h, const Array& a, const Array& b, const Array& bias)
// dh = (dy w) gelu'(h).
KERNEL_CUDA(gemm_gelu_backward, Array& dh, const Array& dy, const Array& w, const Array& h)

// ---- ops/linear.cpp: y (n) = the sum of x's rows, or y += it; x (rows, n), any floating dtypes
KERNEL_STRIDED(sum_rows, Array& y, const Array& x, bool accumulate)

// ---- ops/cumsum.cpp, sort.cpp: along `dim`
KERNEL_STRIDED(cumsum, Array& y, const Array& x, int64_t dim)
// Fills values and indices with as many as they have room for.
KERNEL_STRIDED(sort, Array& values, Array& indices, const Array& x, int64_t dim, bool descending)

// ---- ops/index.cpp: ids i64, checked to lie in x's (y's) dimension `dim`
// y and ids have one shape.
KERNEL_STRIDED(gather, Array& y, const Array& x, const Array& ids, int64_t dim, const char* op)
// source and ids have one shape.
KERNEL_STRIDED(scatter_add, Array& y, const Array& source, const Array& ids, int64_t dim,
               const char* op)

// ---- ops/softmax.cpp, log_softmax.cpp: over the last dimension
KERNEL(softmax, Array& y, const Array& x)
KERNEL(softmax_backward, Array& dx, const Array& dy, const Array& y)
KERNEL(log_softmax, Array& y, const Array& x)
KERNEL(log_softmax_backward, Array& dx, const Array& dy, const Array& y)

// ---- ops/layer_norm.cpp, rms_norm.cpp: x (rows, C); y as x, or bf16 for f32
// mean, rstd (rows): f32, or f64 for f64.
KERNEL(layer_norm, Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p)
// sum = x + branch; sum as x, branch as y.
KERNEL(add_layer_norm, Array& sum, Array& y, Array& mean, Array& rstd, const Array& x,
       const Array& branch, const NormParameters& p)
KERNEL(layer_norm_backward, NormGradients d, const Array& dy, const Array& x, const Array& mean,
       const Array& rstd, const Array& weight)
KERNEL(rms_norm, Array& y, Array& rstd, const Array& x, const NormParameters& p)
KERNEL(rms_norm_backward, NormGradients d, const Array& dy, const Array& x, const Array& rstd,
       const Array& weight)

// ---- ops/cross_entropy.cpp
// scale: 1 / the number of targets that count.
KERNEL(target_scale, Array& scale, const Array& targets, int64_t ignore_index)
// loss      one a target, or (): scale times their sum
// dlogits   if defined: scale times the gradient of their sum, as logits, or bf16 for f32; may be
//           logits itself
// scale     1 if undefined
// loss and scale are f32, or f64 for f64.
KERNEL(cross_entropy, Array& loss, Array& dlogits, const Array& logits, const Array& targets,
       const Array& scale, int64_t ignore_index)

// ---- ops/embedding.cpp
KERNEL(embedding, Array& y, const Array& ids, const Array& weight)
// Adds to dweight, which is f32 for bf16.
KERNEL(embedding_backward, Array& dweight, const Array& dy, const Array& ids)

// ---- ops/dropout.cpp: y = x mask
KERNEL(dropout, Array& y, const Array& x, double p, const RandomPosition& at)

// ---- ops/sample.cpp: ids i64 (..., 1) of probabilities (..., V)
KERNEL(sample, Array& ids, const Array& probabilities, const RandomPosition& at)

// ---- loops/optimizer.cpp
// Fills all of step but lr.
KERNEL(gradient_norm, OptimizerStep step, const Arrays& grads, const Array& loss, double max_norm)
// m, v: as the values.
KERNEL(adamw, ParameterLists p, Arrays m, Arrays v, const OptimizerStep& step, double beta1,
       double beta2, double eps)
// buffers: as the values, or empty without momentum.
KERNEL(sgd, ParameterLists p, Arrays buffers, const OptimizerStep& step, double momentum,
       bool nesterov)

// clang-format on

/// x itself if it is contiguous, else a copy that is.
Array contiguous(const Array& x);

#undef CUDA_TWIN
#undef DECLARE_KERNEL
#undef DECLARE_TWO
#undef KERNEL
#undef KERNEL_STRIDED
#undef KERNEL_CPU
#undef KERNEL_CUDA

}  // namespace ink
