// RotaryEmbedding: positions as angles, for queries and keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/module.h"

namespace ink {

/// How angles change for sequences that are longer than those a model was trained on; Hugging
/// Face's rope_parameters.
struct RopeScaling {
  /// "default": as they are. "linear": all are divided by factor (Chen et al. 2023). "llama3":
  /// those of pairs that turn slowly are (Llama 3.1). "yarn": likewise, and queries and keys grow
  /// by attention_factor (Peng et al. 2023).
  std::string rope_type = "default";
  double factor = 1;
  int64_t original_max_position_embeddings = 0;      // llama3, yarn: the length in training
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double attention_factor = 0;                       // yarn; 0: 0.1 log(factor) + 1
};

/// Angles in radians by which each pair of a head of size `dim` turns from one position to the
/// next: dim / 2 of them, theta^(-2 k / dim), scaled. Rounded to f32 as in transformers, so that
/// angles at far positions are those with which its models were trained.
std::vector<float> rope_frequencies(int64_t dim, double theta, const RopeScaling& scaling = {});

/// Turns x (..., T, dim), rows of which stand at positions start, start + 1, ...: ink::rotary with
/// tables for `positions` positions. Su et al. 2021.
struct RotaryEmbedding : Module {
  bool interleaved = false;  // pairs are neighbours (GPT-J), and not dim / 2 apart (Llama)
  UnsavedBuffer cos, sin;    // (positions, dim / 2)

  RotaryEmbedding() = default;
  RotaryEmbedding(int64_t dim, int64_t positions, double theta = 10000,
                  const RopeScaling& scaling = {}, bool interleaved = false);

  Tensor operator()(const Tensor& x, int64_t start = 0) const {
    INK_CHECK(start + x.size(-2) <= cos.size(0), "rotary: position ", start + x.size(-2) - 1,
              " is beyond the ", cos.size(0), " that the tables have");
    const auto rows = [&](const Tensor& table) { return table.narrow(0, start, x.size(-2)); };
    return rotary(x, rows(cos), rows(sin), interleaved);
  }

  INK_FIELDS(cos, sin)
};

}  // namespace ink
