// GPTConfig: the settings of a GPT.
#pragma once

#include <cstdint>

#include "autograd/base/check.h"

namespace ink {

/// nanoGPT's names; the defaults are GPT-2 (124M).
struct GPTConfig {
  int64_t block_size = 1024;   // the longest sequence, in tokens
  int64_t vocab_size = 50257;  // ids are 0 .. vocab_size - 1
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_embd = 768;  // the width C; of models with heads, a multiple of n_head
  double dropout = 0;
  bool bias = true;  // in every Linear and LayerNorm, as in GPT-2

  /// Returns itself; throws unless a model can be made of these numbers.
  const GPTConfig& checked() const {
    INK_CHECK(block_size > 0 && vocab_size > 0 && n_layer > 0 && n_head > 0 && n_embd > 0,
              "gpt: expected sizes above 0, got block_size ", block_size, ", vocab_size ",
              vocab_size, ", n_layer ", n_layer, ", n_head ", n_head, ", n_embd ", n_embd);
    INK_CHECK(dropout >= 0 && dropout < 1, "gpt: expected dropout in [0, 1), got ", dropout);
    return *this;
  }
  /// n_embd / n_head; throws if that is not whole.
  int64_t head_width() const {
    INK_CHECK(n_head > 0 && n_embd % n_head == 0,
              "gpt: expected n_embd to be a multiple of n_head, got ", n_embd, " and ", n_head);
    return n_embd / n_head;
  }
};

}  // namespace ink
