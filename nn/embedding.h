// Embedding: a table of vectors, read by ids.
#pragma once

#include <string>

#include "autograd/fused_ops.h"
#include "nn/init.h"
#include "nn/module.h"

namespace ink {

/// ids (...) i64, each in [0, num_embeddings) -> (..., embedding_dim). The table starts as N(0, 1).
struct Embedding : Module {
  int64_t num_embeddings, embedding_dim;
  Parameter weight;  // (num_embeddings, embedding_dim)

  Embedding(int64_t num, int64_t dim)
      : num_embeddings(num), embedding_dim(dim), weight(randn({num, dim})) {}

  Tensor operator()(const Tensor& ids) const { return embedding(ids, weight); }

  std::string extra_repr() const override {
    return std::to_string(num_embeddings) + ", " + std::to_string(embedding_dim);
  }
  INK_FIELDS(weight)
};

}  // namespace ink
