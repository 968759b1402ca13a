// BpeTokenizer: byte-level byte-pair encoding, with the ids of tiktoken and of tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/merges.h"
#include "data/bpe/splitter.h"
#include "data/tokenizer.h"

namespace ink {

/// A token that a text is searched for before it is cut: <|endoftext|>.
struct AddedToken {
  std::string text;
  int64_t id = 0;
  /// Only a text that may contain special tokens is searched for it.
  bool special = true;
  /// Searched for after those that are not, in the composed text (tokenizers' "normalized").
  bool late = false;
};

/// Text is cut into pieces (Splitter), and byte pairs are merged within each (Merges). Any bytes
/// can be encoded if the vocabulary has all 256 of them, and are decoded to the same bytes, unless
/// the text is brought into Unicode's composed form first (`nfc`, as Qwen2 has it).
class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws if added tokens contradict each other or the vocabulary.
  BpeTokenizer(bpe::Merges merges, bpe::Splitter splitter, std::vector<AddedToken> added = {},
               bool nfc = false);

  std::string name() const override { return "bpe"; }
  /// The largest id and one.
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }

  /// Special tokens are ordinary text: a document cannot smuggle one in. Added tokens that are not
  /// special are found, but not within a special one (tokenizers' encode_special_tokens). Throws on
  /// a byte that the vocabulary lacks, and names it and its place.
  std::vector<int64_t> encode(std::string_view text) const override;
  std::vector<int64_t> encode_part(std::string_view text, size_t begin, size_t end) const override;
  std::vector<int64_t> encode_with_special(std::string_view text) const override;

  /// Throws on an id outside the vocabulary. One that has no token, between those that have, is
  /// U+FFFD: a model may choose it.
  std::string decode(std::span<const int64_t> ids) const override;

  /// A tokenizer.json, which tokenizers loads to the same ids.
  std::string to_json() const override;

  /// That of <|endoftext|>, <|end_of_text|> or </s>.
  int64_t end_of_text() const override;

  /// The id of an added token, such as "<|endoftext|>"; -1 if there is none.
  int64_t added_token(std::string_view text) const;

  /// Does each id that both have stand for the same bytes, and are the merges the same? How texts
  /// are cut, and tokens that no merge makes, may be in one alone: a vocab.json does not have them.
  bool same_ids(const BpeTokenizer& other) const;

 private:
  class Encoder;

  bpe::Merges merges_;
  bpe::Splitter splitter_;
  std::vector<AddedToken> added_;  // the longest first
  // What texts are searched for, by AddedToken::late: in composed texts it is composed, too.
  std::array<std::vector<AddedToken>, 2> sought_;
  bool nfc_;
  bool has_parts_;                       // no added token lies across a boundary of the splitter
  std::vector<std::string_view> bytes_;  // by id; empty: no token
};

namespace bpe {

/// The tokenizer in `path`: a tokenizer.json; vocab.json and merges.txt, or encoder.json and
/// vocab.bpe, side by side (either may be named); a *.tiktoken file, whose name says how texts are
/// cut (cl100k_base.tiktoken); or a folder with one of these. Throws on anything else, and says
/// what is expected.
std::unique_ptr<BpeTokenizer> load_tokenizer(const std::filesystem::path& path);

/// Is this the name of a file that load_tokenizer reads and that is no JSON by itself?
bool is_file_of_others(const std::filesystem::path& file);

/// The tokenizer of a tokenizer.json: a BPE model over bytes. Throws on what is not read here
/// (normalisers but NFC, pre-tokenizers but Split, Digits, ByteLevel and sequences of them, other
/// models), and names it.
std::unique_ptr<BpeTokenizer> parse_tokenizer(std::string_view json);

/// Bytes as GPT-2's files write them: a printable character each, and back. letters(): throws on
/// a character that stands for no byte.
std::string letters_of(std::string_view bytes);
std::string bytes_of(std::string_view letters);

}  // namespace bpe
}  // namespace ink
