// The parts of a model's parameters whose statistics are worth a line.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace ink {

/// Each parameter that requires grad, "h.0.attn.c_attn.weight", and each head of
/// CausalSelfAttention, LlamaAttention and MultiheadAttention, "h.0.attn head 2": its rows of q, k
/// and v (those of its group, where several heads of queries share them), and its columns of the
/// projection behind it. Together they look at some four million elements at most: of larger
/// models, rows at equal distances stand for a part, and norms are estimates. Models with more than
/// 1,024 heads are shown without them.
class ParameterParts {
 public:
  /// What to look at for a parameter, in its shape: itself or its gradient. Undefined: zeros.
  using Pick = std::function<Tensor(const Tensor& parameter)>;

  /// How a part changed, as a share of its norm before; NaN where that was 0.
  struct Change {
    double ratio;   // |new - old| / |old|
    double turned;  // the same of the direction alone, which weight decay does not change; of a
                    // head the least among q, k, v and the projection
  };
  /// The elements of the pieces of each part.
  using Copies = std::vector<std::vector<Tensor>>;

  explicit ParameterParts(const Module& model);

  size_t size() const { return parts_.size(); }
  const std::string& name(size_t i) const { return parts_[i].name; }
  int64_t count(size_t i) const { return parts_[i].count; }  // elements

  /// The Euclidean norm of each part.
  std::vector<double> norms(const Pick& pick) const;
  Copies copies() const;
  std::vector<Change> changes_since(const Copies& copies) const;

 private:
  /// Elements of a parameter: `count` from `start` along dimension `dim`, all of the others.
  struct Piece {
    Tensor parameter;
    int64_t dim = 0, start = 0, count = 0;
  };
  struct Part {
    std::string name;
    int64_t count = 0;
    std::vector<Piece> pieces;
  };

  void add(const std::string& name, std::vector<Piece> pieces);
  void add_heads(Module& module, const std::string& name);
  static int64_t elements_of(const Piece& piece);
  Tensor elements(const Piece& piece, const Pick& pick) const;

  std::vector<Part> parts_;
  int64_t most_ = 0;  // elements of a piece that are looked at
};

}  // namespace ink
