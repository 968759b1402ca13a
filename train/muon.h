// Muon: matrices get orthogonal updates, and everything else is updated by AdamW, in one optimizer.
//
//   Muon optimizer(decay_matrices(model.named_parameters(), 0.1),
//                  {.lr = 1e-3, .adjust_lr = AdjustLr::match_rms_adamw});
//
// Which parameters are matrices: those with two dimensions but embeddings and heads, which are
//   1. the weights of Embedding modules, and what is tied to them;
//   2. what a part of its name says: lm_head, embed_tokens, wte, wpe (matrix_parts);
//   3. what has a side of the vocabulary's size, and is the model's last matrix or stands outside
//      of a list of blocks (h.0, layers.3).
// matrix_parts knows 2 by itself. 1 and 3 are table_names of a model, which a Trainer hands over.
// Other rules are a function of yours (MuonOptions::parts).
//
// In a run (--optimizer muon), both kinds have one learning rate, by AdjustLr::match_rms_adamw.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "nn/module.h"
#include "train/optimizer.h"

namespace ink {

/// The rows of each matrix that is packed in a parameter, one below the other: {rows} for one
/// matrix, {} for what is none.
using MatrixParts = std::function<std::vector<int64_t>(const std::string& name, const Shape&)>;

/// By the parts of a name, such as h.0.attn.c_attn.weight:
///   c_attn, in_proj, qkv, ...     queries, keys and values: {cols, k, k} of (cols + 2 k, cols)
///   gate_up, gate_up_proj         halves
///   wte, wpe, *embed*, *head      {}, as for what has other than two dimensions
///   anything else                 {rows}
std::vector<int64_t> matrix_parts(const std::string& name, const Shape& shape);

/// The names of a model's embeddings and heads (1 and 3 above), for ParameterGroup::tables.
std::set<std::string> table_names(const Module& model, int64_t vocab_size);

/// What the learning rate of a matrix (rows, cols) is multiplied by.
enum class AdjustLr {
  original,            ///< sqrt(max(1, rows / cols)): Jordan et al.
  match_rms_adamw,     ///< 0.2 sqrt(max(rows, cols)): AdamW's rate serves both (Liu et al. 2025)
  spectral_unclamped,  ///< sqrt(rows / cols): Bernstein
};

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};  ///< a, b, c
  double eps = 1e-7;                                                  ///< least norm to divide by
  int ns_steps = 5;
  AdjustLr adjust_lr = AdjustLr::original;
  DType ns_dtype = bf16;  ///< of the Newton-Schulz products
  // of AdamW
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adamw_eps = 1e-8;
  double grad_clip = 0;  ///< as for AdamW: one norm of all gradients
  MatrixParts parts = matrix_parts;
};

/// Jordan et al. 2024, in PyTorch's form. For each matrix of gradient g:
///   m = momentum m + (1 - momentum) g
///   u = nesterov ? momentum m + (1 - momentum) g : m
///   p = p (1 - lr weight_decay) - lr adjust_lr orthogonal(u)
/// Newton-Schulz steps make it orthogonal, with products in bf16, by this processor's unit.
class Muon : public AdamW {
 public:
  /// Throws as AdamW does, unless momentum lies in [0, 1) and ns_steps in 1 to 99, and if `parts`
  /// are not all of a parameter's rows.
  Muon(const std::vector<ParameterGroup>& groups, const MuonOptions& options = {});
  Muon(std::initializer_list<ParameterGroup> groups, const MuonOptions& options = {})
      : Muon(std::vector<ParameterGroup>(groups), options) {}
  Muon(const NamedTensors& parameters, const MuonOptions& options = {})
      : Muon(std::vector<ParameterGroup>{{parameters}}, options) {}
  Muon(const std::vector<Tensor>& parameters, const MuonOptions& options = {})
      : Muon(numbered(parameters), options) {}

  void add_group(const ParameterGroup& group) override;

 private:
  struct Rule;    // says which parameters are matrices
  struct Piece {  // a matrix: rows of a parameter
    size_t parameter;
    int64_t first, rows, cols;
    DType dtype;
    Tensor of(const Array& x) const { return Tensor(x).narrow(0, first, rows); }
    std::tuple<int64_t, int64_t, DType> shape() const { return {rows, cols, dtype}; }
    int64_t work() const { return rows * cols * std::min(rows, cols); }
  };
  Muon(const std::vector<ParameterGroup>& groups, const MuonOptions& options,
       const std::shared_ptr<Rule>& rule);
  void find_pieces();
  void update(ParameterLists& parameters, const OptimizerStep& step) override;
  struct Batch {  // pieces of one shape, side by side
    size_t begin, end;
  };
  void update_batch(const ParameterLists& all, const OptimizerStep& step, const Tensor& clip,
                    const Batch& batch);

  MuonOptions options_;
  std::shared_ptr<Rule> rule_;
  Arrays& momentum_buffer_;
  std::vector<Piece> pieces_;
  Tensor one_, counts_, minus_, none_, scales_, decays_;  // what kernels ask for, of each piece
};

/// Newton-Schulz steps towards the nearest orthogonal matrix of each of x (n, rows, cols):
/// x = (a I + b A + c A^2) x, where A = x x^T, from x / max(norm, eps). Operands of products have
/// the dtype `products`. Between the steps x has it, too, but f32 with bf16, and so has the result:
/// in bf16, rounding errors in directions that x lacks would grow to 0.5, and here to 0.01
/// (findings/torch_muon_rank.sh). After 5 steps with the usual coefficients, singular values that
/// were not tiny lie between 0.7 and 1.2. a > 0. On a GPU a matrix whose squared norm overflows
/// gives 0, as in PyTorch.
Tensor orthogonal(const Tensor& x, const std::array<double, 3>& coefficients, int steps, double eps,
                  DType products = bf16);

}  // namespace ink
