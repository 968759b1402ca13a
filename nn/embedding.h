// Embedding: a table of vectors, read by ids.
#pragma once

#include <optional>
#include <string>

#include "autograd/more_ops.h"
#include "nn/init.h"
#include "nn/module.h"

namespace ink {

/// ids (...) i64, each in [0, num_embeddings) -> (..., embedding_dim). The table starts as N(0, 1);
/// its row padding_idx (negative: from the end) starts as zeros and gets no gradient.
struct Embedding : Module {
  int64_t num_embeddings = 0, embedding_dim = 0;
  std::optional<int64_t> padding_idx;
  Parameter weight;  // (num_embeddings, embedding_dim)

  Embedding() = default;
  Embedding(int64_t num, int64_t dim, std::optional<int64_t> padding = {})
      : num_embeddings(num),
        embedding_dim(dim),
        padding_idx(padding && *padding < 0 ? *padding + num : padding),
        weight(empty(
            {detail::checked_size("Embedding", num), detail::checked_size("Embedding", dim)})) {
    INK_CHECK(!padding || (-num <= *padding && *padding < num),
              "Embedding: expected padding_idx to be one of ", num, " rows, got ", *padding);
    init::normal_(weight, 0, 1);
    if (padding) init::zeros_(weight.select(0, *padding));
  }

  Tensor operator()(const Tensor& ids) const {
    return padding_idx ? embedding(ids, weight, *padding_idx) : embedding(ids, weight);
  }

  std::string extra_repr() const override {
    const auto padding = padding_idx ? ", padding_idx=" + std::to_string(*padding_idx) : "";
    return std::to_string(num_embeddings) + ", " + std::to_string(embedding_dim) + padding;
  }
  INK_FIELDS(weight)
};

}  // namespace ink
