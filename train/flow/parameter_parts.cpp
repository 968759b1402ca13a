#include "train/flow/parameter_parts.h"

#include <algorithm>
#include <cmath>

#include "nn/attention.h"
#include "nn/multihead_attention.h"

namespace ink {
namespace {

constexpr int64_t kMostElements = 1 << 16;

double root_mean_square(const Tensor& x) { return std::sqrt(mean(x * x).item()); }

}  // namespace

ParameterParts::ParameterParts(const Module& model) {
  for (const auto& [name, parameter] : model.named_parameters())
    add(name, {{parameter, 0, 0, parameter.dim() > 0 ? parameter.size(0) : 1}});
  add_heads(const_cast<Module&>(model), "");  // only read here
}

void ParameterParts::add(const std::string& name, std::vector<Piece> pieces) {
  Part part{name, 0, std::move(pieces)};
  for (const Piece& piece : part.pieces) {
    const int64_t length = piece.parameter.dim() > 0 ? piece.parameter.size(piece.dim) : 1;
    part.count += length == 0 ? 0 : piece.parameter.numel() / length * piece.count;
  }
  if (part.count > 0) parts_.push_back(std::move(part));
}

void ParameterParts::add_heads(Module& module, const std::string& name) {
  const auto add_all = [&](const Tensor& packed, const Tensor& projection, int64_t heads) {
    const int64_t E = projection.size(1), d = E / heads;
    for (int64_t head = 0; head < heads; ++head)
      add(name + (name.empty() ? "head " : " head ") + std::to_string(head),
          {{packed, 0, head * d, d},
           {packed, 0, E + head * d, d},
           {packed, 0, 2 * E + head * d, d},
           {projection, 1, head * d, d}});
  };
  if (const auto* causal = dynamic_cast<const CausalSelfAttention*>(&module))
    add_all(causal->c_attn.weight, causal->c_proj.weight, causal->n_head);
  if (const auto* many = dynamic_cast<const MultiheadAttention*>(&module))
    if (many->in_proj_weight.defined())
      add_all(many->in_proj_weight, many->out_proj.weight, many->num_heads);
  for (const Field& field : module.fields())
    if (field.module) add_heads(*field.module, name + (name.empty() ? "" : ".") + field.name);
}

// The elements that stand for a part, in one dimension.
Tensor ParameterParts::elements(const Part& part, const Pick& pick) {
  std::vector<Tensor> all;
  for (const Piece& piece : part.pieces) {
    Tensor x = pick(piece.parameter);
    if (!x.defined()) x = zeros_like(piece.parameter);
    x = x.detach();
    if (x.dim() > 0) x = x.narrow(piece.dim, piece.start, piece.count);
    const int64_t step = x.dim() > 0 ? std::min(x.numel() / kMostElements, x.size(0)) : 1;
    if (step > 1) x = x.index({Slice(0, None, step)});
    all.push_back(x.reshape({-1}));
  }
  return all.size() == 1 ? all[0] : cat(all);
}

std::vector<double> ParameterParts::norms(const Pick& pick) const {
  const NoGrad no_grad;
  std::vector<double> norms;
  for (const Part& part : parts_)
    norms.push_back(root_mean_square(elements(part, pick)) *
                    std::sqrt(static_cast<double>(part.count)));
  return norms;
}

std::vector<Tensor> ParameterParts::copies() const {
  const NoGrad no_grad;
  std::vector<Tensor> copies;
  for (const Part& part : parts_)
    copies.push_back(elements(part, [](const Tensor& p) { return p; }).clone());
  return copies;
}

std::vector<ParameterParts::Change> ParameterParts::changes_since(
    const std::vector<Tensor>& copies) const {
  const NoGrad no_grad;
  std::vector<Change> changes;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Tensor& old = copies[i];
    const Tensor change = elements(parts_[i], [](const Tensor& p) { return p; }) - old;
    const double before = root_mean_square(old), along = mean(change * old).item();
    const double size = root_mean_square(change) / before, shrunk = along / (before * before);
    const bool known = before > 0;
    changes.push_back({known ? size : std::nan(""),
                       known ? root_mean_square(change - shrunk * old) / before : std::nan("")});
  }
  return changes;
}

}  // namespace ink
