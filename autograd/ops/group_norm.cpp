// Norms made of layer_norm: over several dimensions, and over groups of channels.
#include "autograd/autocast.h"
#include "autograd/more_ops.h"

namespace ink {

Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_defined("layer_norm", x);
  const int64_t rest = x.dim() - shape.size();
  bool fits = !shape.empty() && rest >= 0;
  for (int64_t d = 0; fits && d < shape.size(); ++d) fits = x.size(rest + d) == shape[d];
  INK_CHECK(fits, "layer_norm: expected an input of shape (..., normalized_shape) with ",
            "normalized_shape ", shape, ", got ", x.shape());
  for (const Tensor* p : {&weight, &bias})
    INK_CHECK(!p->defined() || p->shape() == shape,
              "layer_norm: expected weight and bias of shape ", shape, ", got ", p->shape());
  if (shape.size() == 1) return layer_norm(x, weight, bias, eps);
  Shape rows = {shape.numel()};
  for (int64_t d = 0; d < rest; ++d) rows.insert(d, x.size(d));
  const auto flat = [](const Tensor& p) { return p.defined() ? p.flatten() : Tensor(); };
  const Tensor y = layer_norm(reshape(x, rows), flat(weight), flat(bias), eps);
  return shown_as("native_layer_norm", reshape(y, x.shape()));
}

// Each group of channels is a row of a layer_norm without weight and bias, which follow by channel.
Tensor group_norm(const Tensor& input, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_defined("group_norm", input);
  INK_CHECK(input.dim() >= 2 && input.is_floating(),
            "group_norm: expected a floating input (N, C, ...), got ", input.dtype(), " ",
            input.shape());
  const int64_t N = input.size(0), C = input.size(1);
  INK_CHECK(groups > 0 && C % groups == 0, "group_norm: ", C, " channels do not make ", groups,
            " groups of one size");
  // PyTorch's condition: of several samples, a group may have one value.
  INK_CHECK(N == 0 || (input.numel() > 0 && (N > 1 || input.numel() > groups)),
            "group_norm: expected more than one value in a group, got ", input.shape());
  Shape channels = Shape::filled(input.dim() - 1, 1);  // (C, 1, ...), to broadcast with x
  channels[0] = C;
  Tensor y = input.dtype() == bf16 ? input.to(f32) : input;  // rounded once, at the end
  const Tensor rows = reshape(y, {N * groups, N > 0 ? input.numel() / (N * groups) : 0});
  const Autocast off(f32);  // under which layer_norm would give bf16
  y = reshape(layer_norm(rows, Tensor(), Tensor(), eps), input.shape());
  const auto of_channels = [&](const Tensor& p) {
    INK_CHECK(p.shape() == Shape{C}, "group_norm: expected weight and bias of shape ", Shape{C},
              ", got ", p.shape());
    return reshape(p.to(y.dtype()), channels);
  };
  if (weight.defined()) y = y * of_channels(weight);
  if (bias.defined()) y = y + of_channels(bias);
  return shown_as("native_group_norm", y.to(input.dtype()));
}

}  // namespace ink
