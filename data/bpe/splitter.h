// Splitter: where a text is cut into pieces before byte pairs are merged within each.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ink::bpe {

/// What becomes of a match and of the text between two matches (tokenizers' names).
enum class Behavior {
  isolated,  ///< both are pieces
  removed,   ///< matches are left out; refused here, because no decoder brings them back
  merged_with_previous,  ///< a match ends the piece before it
  merged_with_next,      ///< a match begins the piece after it
  contiguous,            ///< matches side by side are one piece
};

/// One cut of every piece: a regular expression and what its matches do. `invert`: the text between
/// matches takes the place of matches, and the other way round.
struct Cut {
  std::string regex;
  Behavior behavior = Behavior::isolated;
  bool invert = false;
};

/// How models' texts are cut, by name: "gpt2" (also r50k and p50k), "cl100k" (GPT-4), "o200k"
/// (GPT-4o), "llama3", "qwen2", "smollm2" (each digit by itself). Throws on another name.
std::vector<Cut> named_cuts(std::string_view name);

/// Cuts texts as tiktoken and tokenizers do. Immutable: any number of threads may share one.
/// Letters, numbers, marks and white space are those of Unicode 16, whatever version PCRE2 knows.
class Splitter {
 public:
  /// Throws on a regular expression that PCRE2 refuses, or that PCRE2 and the two programs read
  /// differently (\h, && within brackets).
  explicit Splitter(std::vector<Cut> cuts);
  /// The same. `spells_out`: as with a PCRE2 whose Unicode is newer than 16 (translation.h).
  Splitter(std::vector<Cut> cuts, bool spells_out);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  const std::vector<Cut>& cuts() const { return cuts_; }

  /// Calls f(piece) for each piece of the text, in order; joined, they are the text. Bytes that are
  /// not UTF-8 are pieces of their own.
  void for_each_piece(std::string_view text, const std::function<void(std::string_view)>& f) const;

  /// The first place in [at, limit) where a piece begins, whatever stands before and after: before
  /// a space that no space is before, before a letter of ASCII that begins a line, or before the
  /// punctuation of East Asian letters. The text's end if there is none. For cuts that have no
  /// name: 0 or the end.
  size_t boundary(std::string_view text, size_t at, size_t limit = std::string_view::npos) const;

 private:
  class Pattern;
  class Run;

  std::vector<Cut> cuts_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
  bool is_named_;  // its cuts are known to have boundaries
};

}  // namespace ink::bpe
