#include "data/bpe/train.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <queue>
#include <span>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "data/bpe/pair_map.h"

namespace ink::bpe {
namespace {

// A pair that may be merged in some words. Several may be of one pair: of the words in which it
// came up first, and of those where it did later.
struct Candidate {
  int64_t count;
  uint64_t pair;
  std::vector<uint32_t> words;
  bool operator<(const Candidate& other) const {  // the heap's top is its largest
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Training {
 public:
  Training(Pieces pieces, const TrainOptions& options) : options_(options) {
    for (const std::string& special : options.special_tokens) {
      added_.push_back({.text = special, .id = static_cast<int64_t>(tokens_.size())});
      tokens_.emplace_back();
    }
    // The bytes, in the order of the letters that stand for them.
    std::array<std::pair<std::string, char>, 256> bytes;
    for (int i = 0; i < 256; ++i) {
      const char byte = static_cast<char>(i);
      bytes[static_cast<size_t>(i)] = {letters_of({&byte, 1}), byte};
    }
    std::sort(bytes.begin(), bytes.end());  // UTF-8 sorts as code points do
    std::array<int32_t, 256> id_of_byte{};
    for (const auto& [letter, byte] : bytes) {
      id_of_byte[static_cast<unsigned char>(byte)] = add(std::string(1, byte));
    }
    INK_CHECK(options.vocab_size >= static_cast<int64_t>(tokens_.size()),
              "tokenizer: expected a vocab_size of at least ", tokens_.size(),
              " (256 bytes and special tokens), got ", options.vocab_size);
    const size_t distinct = pieces.size();
    while (!pieces.empty()) {  // each is freed once its ids are there
      const auto taken = pieces.extract(pieces.begin());
      const std::string& piece = taken.key();
      const auto begin = static_cast<uint32_t>(ids_.size());
      for (const char byte : piece) ids_.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
      words_.push_back(
          {.count = taken.mapped(), .begin = begin, .size = static_cast<uint32_t>(piece.size())});
    }
    INK_CHECK(ids_.size() < ~uint32_t{0}, "tokenizer: ", distinct,
              " distinct pieces of text take too much memory; train on a part of the texts");
  }

  std::unique_ptr<BpeTokenizer> run() {
    for (uint32_t i = 0; i < words_.size(); ++i) {
      const auto word = ids_of(words_[i]);
      for (size_t at = 1; at < word.size(); ++at)
        change(word[at - 1], word[at], words_[i].count, i);
    }
    push_changed();
    while (static_cast<int64_t>(tokens_.size()) < options_.vocab_size && !heap_.empty()) {
      Candidate top = std::move(const_cast<Candidate&>(heap_.top()));  // moved, then removed
      heap_.pop();
      if (const int64_t count = *counts_.find(top.pair); top.count != count) {
        top.count = count;
        heap_.push(std::move(top));
        continue;
      }
      if (top.count < std::max<int64_t>(options_.min_frequency, 1)) break;
      merge(top);
      if (options_.progress && !options_.progress(static_cast<int64_t>(tokens_.size()))) break;
    }
    return std::make_unique<BpeTokenizer>(Merges(std::move(tokens_), merges_, false),
                                          Splitter(named_cuts(options_.pattern)),
                                          std::move(added_));
  }

 private:
  struct Word {
    int64_t count;
    uint32_t begin, size;  // in ids_
  };

  std::span<int32_t> ids_of(const Word& word) {
    return std::span(ids_).subspan(word.begin, word.size);
  }

  // The id of a token, which may have come up before, from other parts.
  int32_t add(const std::string& token) {
    const auto [found, is_new] = ids_by_token_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  void change(int32_t left, int32_t right, int64_t by, uint32_t word) {
    const uint64_t pair = pair_of(left, right);
    counts_[pair] += by;
    if (by <= 0) return;
    uint32_t& place = places_[pair];  // 1 and more: in this round
    if (place <= round_begin_) {
      changed_.push_back({.count = 0, .pair = pair, .words = {}});
      place = round_begin_ + static_cast<uint32_t>(changed_.size());
    }
    auto& words = changed_[place - round_begin_ - 1].words;
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void push_changed() {
    for (Candidate& each : changed_) {
      each.count = *counts_.find(each.pair);
      if (each.count > 0) heap_.push(std::move(each));
    }
    round_begin_ += static_cast<uint32_t>(changed_.size());
    changed_.clear();
  }

  // The count of the merged pair itself stays, as in tokenizers: it matters where a token comes up
  // again from other parts.
  void merge(const Candidate& top) {
    const int32_t left = left_of(top.pair), right = right_of(top.pair);
    const int32_t result =
        add(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.push_back({.left = left,
                       .right = right,
                       .rank = static_cast<int32_t>(merges_.size()),
                       .result = result});
    for (const uint32_t i : top.words) {
      Word& word = words_[i];
      const auto ids = ids_of(word);
      uint32_t size = 0;
      for (uint32_t at = 0; at < word.size; ++at) {
        if (ids[at] != left || at + 1 == word.size || ids[at + 1] != right) {
          ids[size++] = ids[at];
          continue;
        }
        if (size > 0) {
          change(ids[size - 1], left, -word.count, i);
          change(ids[size - 1], result, word.count, i);
        }
        ++at;
        if (at + 1 < word.size) {
          change(right, ids[at + 1], -word.count, i);
          change(result, ids[at + 1], word.count, i);
        }
        ids[size++] = result;
      }
      word.size = size;
    }
    push_changed();
  }

  const TrainOptions& options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_by_token_;
  std::vector<AddedToken> added_;
  std::vector<Merge> merges_;
  std::vector<int32_t> ids_;  // of all words
  std::vector<Word> words_;
  PairMap<int64_t> counts_;
  PairMap<uint32_t> places_;
  std::vector<Candidate> changed_;  // pairs that became more frequent in this round
  uint32_t round_begin_ = 0;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

void count_pieces(Pieces& pieces, std::string_view text, const Splitter& splitter,
                  const std::function<bool(size_t, size_t)>& read) {
  constexpr int64_t kPart = int64_t{1} << 20;
  std::mutex mutex;
  const auto size = static_cast<int64_t>(text.size());
  parallel_for((size + kPart - 1) / kPart, 1, [&](int64_t first, int64_t last) {
    Pieces found;
    std::string piece_text;  // its memory stays
    const auto boundary = [&](int64_t part) {
      return splitter.boundary(text, static_cast<size_t>(std::min(part * kPart, size)));
    };
    for (size_t begin = boundary(first), end = begin; first < last; begin = end) {
      if (++first * kPart > static_cast<int64_t>(end))
        end = boundary(first);  // else it is this one
      if (begin == end) continue;
      // One character more, because the pattern looks ahead.
      const size_t more = std::min(end + 1, text.size());
      splitter.for_each_piece(text.substr(begin, more - begin), [&](std::string_view piece) {
        if (piece.data() >= text.data() + end) return;
        ++found[piece_text.assign(piece)];
      });
      if (read && !read(begin, end)) break;
    }
    const std::lock_guard lock(mutex);
    pieces.merge(found);  // those that are new move; the others stay
    for (const auto& [piece, count] : found) pieces[piece] += count;
  });
}

std::unique_ptr<BpeTokenizer> train(Pieces pieces, const TrainOptions& options) {
  return Training(std::move(pieces), options).run();
}

}  // namespace ink::bpe
