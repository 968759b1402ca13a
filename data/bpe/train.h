// A vocabulary of one's own: merges learned from texts (Sennrich et al. 2016, arXiv 1508.07909).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe/bpe_tokenizer.h"

namespace ink::bpe {

struct TrainOptions {
  /// Of special tokens, the 256 bytes and merges. Fewer if the text has no more pairs.
  int64_t vocab_size = 1024;
  /// A pair that is met less often is not merged.
  int64_t min_frequency = 2;
  /// They have the first ids.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  /// How texts are cut (named_cuts).
  std::string pattern = "gpt2";
  /// Called after each merge with the tokens there are. If it returns false, training ends there.
  std::function<bool(int64_t tokens)> progress;
};

/// The distinct pieces of texts, and how often each is met.
using Pieces = std::unordered_map<std::string, int64_t>;

/// Adds the pieces of a text, by as many threads as there are. Takes the memory of the distinct
/// pieces. read(begin, end) is called when a part of the text has been read, by any thread; if it
/// returns false, counting ends early.
void count_pieces(Pieces& pieces, std::string_view text, const Splitter& splitter,
                  const std::function<bool(size_t, size_t)>& read = {});

/// The merges that tokenizers' ByteLevelBPETokenizer learns from the same pieces, in the same order
/// (0.23.3): the most frequent pair, of equal ones that of the smallest ids. Throws if vocab_size
/// leaves no room for the bytes and special tokens.
std::unique_ptr<BpeTokenizer> train(Pieces pieces, const TrainOptions& options);

}  // namespace ink::bpe
