#include "train/flow/parameter_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "nn/attention.h"
#include "nn/llama.h"
#include "nn/multihead_attention.h"

namespace ink {
namespace {

constexpr int64_t kMostElements = 1 << 22, kMostHeads = 1024;

double mean_square(const Tensor& x) { return mean(x * x).item(); }

}  // namespace

ParameterParts::ParameterParts(const Module& model) {
  for (const auto& [name, parameter] : model.named_parameters())
    add(name, {{parameter, 0, 0, parameter.dim() > 0 ? parameter.size(0) : 1}});
  const size_t parameters = parts_.size();
  add_heads(const_cast<Module&>(model), "");  // only read here
  if (parts_.size() > parameters + kMostHeads) parts_.resize(parameters);
  int64_t pieces = 0;
  for (const Part& part : parts_) pieces += std::ssize(part.pieces);
  most_ = kMostElements / std::max<int64_t>(pieces, 1);
}

int64_t ParameterParts::elements_of(const Piece& piece) {
  const int64_t length = piece.parameter.dim() > 0 ? piece.parameter.size(piece.dim) : 1;
  return length == 0 ? 0 : piece.parameter.numel() / length * piece.count;
}

void ParameterParts::add(const std::string& name, std::vector<Piece> pieces) {
  if (std::any_of(pieces.begin(), pieces.end(),
                  [](const Piece& piece) { return !piece.parameter.requires_grad(); }))
    return;  // frozen
  Part part{name, 0, std::move(pieces)};
  for (const Piece& piece : part.pieces) part.count += elements_of(piece);
  if (part.count > 0) parts_.push_back(std::move(part));
}

void ParameterParts::add_heads(Module& module, const std::string& name) {
  // Rows from q, k and v on, of as many heads of keys and values as kv_heads.
  struct Rows {
    Tensor weight;
    int64_t start;
  };
  const auto add_all = [&](const Rows& q, const Rows& k, const Rows& v, const Tensor& projection,
                           int64_t heads, int64_t kv_heads) {
    const int64_t d = projection.size(1) / heads;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t group = head * kv_heads / heads;
      add(name + (name.empty() ? "head " : " head ") + std::to_string(head),
          {{q.weight, 0, q.start + head * d, d},
           {k.weight, 0, k.start + group * d, d},
           {v.weight, 0, v.start + group * d, d},
           {projection, 1, head * d, d}});
    }
  };
  const auto add_packed = [&](const Tensor& packed, const Tensor& projection, int64_t heads,
                              int64_t kv_heads) {
    const int64_t E = projection.size(1), kv = E / heads * kv_heads;
    if (packed.size(0) == E + 2 * kv)  // not of a class that packs other things
      add_all({packed, 0}, {packed, E}, {packed, E + kv}, projection, heads, kv_heads);
  };
  if (const auto* causal = dynamic_cast<const CausalSelfAttention*>(&module))
    if (causal->c_attn.weight.defined() && causal->c_proj.weight.defined())
      add_packed(causal->c_attn.weight, causal->c_proj.weight, causal->n_head, causal->n_kv_head);
  if (const auto* many = dynamic_cast<const MultiheadAttention*>(&module))
    if (many->in_proj_weight.defined())
      add_packed(many->in_proj_weight, many->out_proj.weight, many->num_heads, many->num_heads);
  if (const auto* llama = dynamic_cast<const LlamaAttention*>(&module))
    add_all({llama->q_proj.weight, 0}, {llama->k_proj.weight, 0}, {llama->v_proj.weight, 0},
            llama->o_proj.weight, llama->q_proj.out_features / llama->head_dim,
            llama->k_proj.out_features / llama->head_dim);
  for (const Field& field : module.fields())
    if (field.module) add_heads(*field.module, name + (name.empty() ? "" : ".") + field.name);
}

// The elements that stand for a piece, in one dimension.
Tensor ParameterParts::elements(const Piece& piece, const Pick& pick) const {
  Tensor x = pick(piece.parameter);
  if (!x.defined()) x = zeros_like(piece.parameter);
  x = x.detach();
  if (x.dim() > 0) x = x.narrow(piece.dim, piece.start, piece.count);
  const int64_t step = x.dim() > 0 ? std::min((x.numel() + most_ - 1) / most_, x.size(0)) : 1;
  if (step > 1) x = x.index({Slice(0, None, step)});
  return x.reshape({-1});
}

std::vector<double> ParameterParts::norms(const Pick& pick) const {
  const NoGrad no_grad;
  std::vector<double> norms;
  for (const Part& part : parts_) {
    double sum = 0;
    for (const Piece& piece : part.pieces)
      sum += mean_square(elements(piece, pick)) * static_cast<double>(elements_of(piece));
    norms.push_back(std::sqrt(sum));
  }
  return norms;
}

ParameterParts::Copies ParameterParts::copies() const {
  const NoGrad no_grad;
  Copies copies;
  for (const Part& part : parts_) {
    copies.emplace_back();
    for (const Piece& piece : part.pieces)
      copies.back().push_back(elements(piece, [](const Tensor& p) { return p; }).clone());
  }
  return copies;
}

std::vector<ParameterParts::Change> ParameterParts::changes_since(const Copies& copies) const {
  const NoGrad no_grad;
  std::vector<Change> changes;
  for (size_t i = 0; i < parts_.size(); ++i) {
    double before = 0, changed = 0, least = std::numeric_limits<double>::quiet_NaN();
    for (size_t j = 0; j < parts_[i].pieces.size(); ++j) {
      const Piece& piece = parts_[i].pieces[j];
      const Tensor& old = copies[i][j];
      const Tensor change = elements(piece, [](const Tensor& p) { return p; }) - old;
      const double square = mean_square(old), size = static_cast<double>(elements_of(piece));
      before += square * size;
      changed += mean_square(change) * size;
      if (square == 0) continue;
      const double along = mean(change * old).item() / square;
      const double turned = std::sqrt(mean_square(change - along * old) / square);
      if (!(least <= turned)) least = turned;  // or least is NaN
    }
    const double ratio = before > 0 ? std::sqrt(changed / before) : std::nan("");
    changes.push_back({ratio, least});
  }
  return changes;
}

}  // namespace ink
