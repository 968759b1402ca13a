// The head of a language model: cross_entropy(linear(x, W), targets), chunk by chunk of x's rows,
// so that the logits never exist whole.
//   logits = x W^T,   dlogits = (softmax logits - onehot target) dloss
//   dx = dlogits W,   dW = dlogits^T x
// If gradients are wanted, the forward pass, which has each chunk's logits, also computes dx and dW
// for dloss = 1. Backward only scales them. If each row has a loss of its own (Reduction::none),
// backward computes each chunk's logits again. With bf16 operands, to which Autocast rounds f32
// ones, the loss and dW are f32. dlogits is bf16, because it is an operand, too. On a CPU, logits
// are f32. A GPU rounds them to bf16, as the definition does, and writes dlogits over them: a third
// of the bytes that are kept and two thirds of those that are moved.
#include <algorithm>
#include <functional>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/gemm.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/kernels/gemm.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/memory/device_backend.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {
namespace {

// A chunk reads all of W and adds to all of dW, so few rows make slow products: for 50257 classes,
// 64 MB of logits are 320 rows, and chunks of 83 rows take three times as long. Below that bound,
// 1024 rows keep a small head's logits in the cache.
int64_t rows_of_a_chunk(int64_t rows, int64_t classes, Device device) {
  const ChunkLimits limits = chunk_limits(device);
  const int64_t most = limits.elements / std::max<int64_t>(classes, 1) / 64 * 64;
  return std::min(rows, std::clamp<int64_t>(most, 64, limits.rows));
}

// Products of 50257 classes, whose rows start at no multiple of 16 bytes, take a GPU five times as
// long as those of 50264. What a small head would save, the copy of W costs.
int64_t padded_classes(int64_t classes, Device device) {
  const int64_t multiple = classes < 1024 ? 1 : chunk_limits(device).multiple;
  return (classes + multiple - 1) / multiple * multiple;
}

struct Head {
  Array x, weight, targets;  // (N, C), (V or more, C), (N); x and weight of one dtype
  int64_t classes, ignore_index;
  double z_loss;

  /// The dtype of losses and sums over chunks.
  DType dtype() const { return x.dtype() == f64 ? f64 : f32; }
  DType logits_dtype() const { return x.device().is_cpu() ? dtype() : x.dtype(); }
};

struct HeadGrads {
  Tensor dx, dweight;  // undefined if not wanted
};

// W with rows of zeros after it, for classes that the loss never sees.
Array with_padding(const Array& weight) {
  const int64_t V = weight.size(0), padded = padded_classes(V, weight.device());
  if (padded == V) return weight;
  Array all = Array::empty({padded, weight.size(1)}, weight.dtype(), weight.device());
  Array own = part_along(all, 0, 0, V), rest = part_along(all, 0, V, padded - V);
  kernel::copy(own, weight);
  kernel::fill(rest, 0);
  return all;
}

// Calls f(first, rows, logits, dlogits) for each chunk. f fills dlogits, if defined, from logits,
// and the products with dlogits follow. Both may be the same memory.
template <class F>
void for_each_chunk(const Head& head, HeadGrads& grads, F&& f) {
  const int64_t N = head.x.size(0), V = head.classes, padded = head.weight.size(0),
                most = rows_of_a_chunk(N, V, head.x.device());
  for (int64_t first = 0; first < N; first += most) {
    const int64_t rows = std::min(most, N - first);
    const Array x = part_along(head.x, 0, first, rows);
    Array logits = Array::empty({rows, padded}, head.logits_dtype(), x.device());
    kernel::gemm(logits, x, head.weight.transposed(), false);
    Array dlogits, visible;  // visible: dlogits without the padding's
    if (grads.dx.defined() || grads.dweight.defined()) {
      dlogits = x.dtype() == logits.dtype() ? logits
                                            : Array::empty(logits.shape(), x.dtype(), x.device());
      visible = part_along(dlogits, 1, 0, V);
      Array rest = part_along(dlogits, 1, V, padded - V);
      if (padded > V) kernel::fill(rest, 0);
    }
    f(first, rows, part_along(logits, 1, 0, V), visible);
    if (grads.dx.defined()) {
      Array dx = part_along(grads.dx, 0, first, rows);
      kernel::gemm(dx, dlogits, head.weight, false);
    }
    if (grads.dweight.defined()) kernel::gemm(grads.dweight, dlogits.transposed(), x, first > 0);
  }
  if (grads.dweight.defined()) grads.dweight = grads.dweight.narrow(0, 0, V);
}

// Allocates the gradients that are wanted; dW is summed in f32 or f64.
HeadGrads make_grads(const Head& head, bool x_wanted, bool weight_wanted) {
  HeadGrads grads;
  if (x_wanted) grads.dx = empty(head.x.shape(), {head.x.dtype(), head.x.device()});
  if (weight_wanted) {
    const Options options(head.dtype(), head.x.device());
    const bool empty_sum = head.x.size(0) == 0;
    grads.dweight =
        empty_sum ? zeros(head.weight.shape(), options) : empty(head.weight.shape(), options);
  }
  return grads;
}

Tensor linear_cross_entropy_composed(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                     int64_t ignore_index, Reduction reduction, double z_loss) {
  return cross_entropy(linear(x, weight), targets, ignore_index, reduction, z_loss);
}

// The loss of x and W in basic ops.
using Definition = std::function<Tensor(const std::vector<Tensor>&)>;

// Converts the first gradient, which is x's, to the dtype of x's input.
Grads in_dtype(Grads grads, DType dtype) {
  if (grads[0].defined()) grads[0] = to(grads[0], dtype);
  return grads;
}

// mean and sum: the loss, and with it both gradients. x: input in the products' dtype.
Tensor reduced(const Tensor& input, const Tensor& x, const Tensor& weight, const Head& head,
               Reduction reduction, const Definition& definition) {
  const bool record_it = grad_enabled();
  HeadGrads grads =
      make_grads(head, record_it && input.requires_grad(), record_it && weight.requires_grad());
  const Options options(head.dtype(), head.x.device());
  Tensor scale = reduction == Reduction::mean ? empty({}, options) : Tensor();
  if (scale.defined()) kernel::target_scale(scale, head.targets, head.ignore_index);
  Tensor loss = head.x.size(0) == 0 ? zeros({}, options) : empty({}, options);
  for_each_chunk(
      head, grads, [&](int64_t first, int64_t rows, const Array& logits, Array& dlogits) {
        Tensor part = first == 0 ? loss : empty({}, options);
        Array sum = part;
        kernel::cross_entropy(sum, dlogits, logits, part_along(head.targets, 0, first, rows), scale,
                              head.ignore_index, head.z_loss);
        if (first > 0) kernel::binary(loss, loss, sum, BinaryOp::add);
      });
  if (head.x.size(0) == 0 && scale.defined())  // the mean of nothing is NaN
    kernel::binary(loss, loss, scale, BinaryOp::mul);
  const auto vjp = [dx = Saved::input(grads.dx), dw = Saved::input(grads.dweight),
                    x = Saved::input(x), w = Saved::input(weight), definition,
                    shape = input.shape(), x_dtype = input.dtype(),
                    w_dtype = weight.dtype()](const Tensor& dy, VjpContext& g) -> Grads {
    if (grad_enabled()) return in_dtype(differentiate(definition, {*x, *w}, dy), x_dtype);
    const bool one = is_one(dy);
    const auto scaled = [&](const Tensor& d) { return one ? d : d * dy; };
    return {g.needs(0) ? scaled(*dx).to(x_dtype).view(shape) : Tensor(),
            g.needs(1) ? scaled(*dw).to(w_dtype) : Tensor()};
  };
  return record("linear_cross_entropy", {input, weight}, loss, vjp);
}

// none: a loss for each row, each with an upstream gradient of its own.
Tensor unreduced(const Tensor& input, const Tensor& x, const Tensor& weight, const Head& head,
                 const Shape& shape, const Definition& definition) {
  const Options options(head.dtype(), head.x.device());
  Tensor losses = empty({head.x.size(0)}, options);
  HeadGrads nothing;
  for_each_chunk(
      head, nothing, [&](int64_t first, int64_t rows, const Array& logits, Array& dlogits) {
        Array part = part_along(losses, 0, first, rows);
        kernel::cross_entropy(part, dlogits, logits, part_along(head.targets, 0, first, rows),
                              Array(), head.ignore_index, head.z_loss);
      });
  const auto vjp = [x = Saved::input(x), w = Saved::input(weight), head, definition,
                    x_dtype = input.dtype()](const Tensor& dy, VjpContext& g) -> Grads {
    static_cast<void>(*x), static_cast<void>(*w);  // throws if they were overwritten
    if (grad_enabled()) return in_dtype(differentiate(definition, {*x, *w}, dy), x_dtype);
    HeadGrads grads = make_grads(head, g.needs(0), g.needs(1));
    const Tensor dlosses = dy.contiguous().view({-1, 1});
    for_each_chunk(
        head, grads, [&](int64_t first, int64_t rows, const Array& logits, Array& dlogits) {
          Array again = Array::empty({rows}, head.dtype(), logits.device());
          kernel::cross_entropy(again, dlogits, logits, part_along(head.targets, 0, first, rows),
                                Array(), head.ignore_index, head.z_loss);
          Tensor(dlogits).mul_(dlosses.narrow(0, first, rows));
        });
    return {grads.dx.defined() ? grads.dx.to(x_dtype).view((*x).shape()) : Tensor(),
            grads.dweight.defined() ? grads.dweight.to((*w).dtype()) : Tensor()};
  };
  return record("linear_cross_entropy", {input, weight}, Tensor(*losses.array().reshaped(shape)),
                vjp);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets,
                            NumberOf<int64_t> ignore_index, Reduction reduction, double z_loss) {
  check_defined("linear_cross_entropy", input, weight, targets);
  INK_CHECK(weight.dim() == 2 && input.dim() >= 1 && input.size(-1) == weight.size(1),
            "linear_cross_entropy: expected x (..., C) and weight (V, C), got ", input.shape(),
            " and ", weight.shape());
  INK_CHECK(input.is_floating() && autocast(input.dtype()) == autocast(weight.dtype()),
            "linear_cross_entropy: expected one floating dtype, got x ", input.dtype(),
            " and weight ", weight.dtype());
  Shape expected = input.shape();
  expected.erase(input.dim() - 1);
  INK_CHECK(targets.shape() == expected, "linear_cross_entropy: expected targets of shape ",
            expected, " for x ", input.shape(), ", got ", targets.shape());
  check_ids("cross_entropy", "target", targets, weight.size(0), "classes", ignore_index);
  if (composed())
    return linear_cross_entropy_composed(input, weight, targets, ignore_index, reduction, z_loss);
  const DType dtype = autocast(input.dtype());
  const Tensor x = to(input, dtype);
  const Head head{contiguous(as_rows(x)),
                  with_padding(contiguous(cached_cast(weight, dtype))),
                  *contiguous(targets.array()).reshaped({targets.numel()}),
                  weight.size(0),
                  ignore_index,
                  z_loss};
  const Definition definition = [=](const std::vector<Tensor>& xs) {
    return linear_cross_entropy_composed(xs[0], to(xs[1], xs[0].dtype()), targets, ignore_index,
                                         reduction, z_loss);
  };
  return reduction == Reduction::none ? unreduced(input, x, weight, head, expected, definition)
                                      : reduced(input, x, weight, head, reduction, definition);
}

}  // namespace ink
