// Tokenizers: text to ids and back. CharTokenizer is the one to copy when you add another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

/// Text to ids in [0, vocab_size) and back. Immutable: any number of threads may share one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Its kind ("char", "byte"): the value of "tokenizer" in its JSON.
  virtual std::string name() const = 0;
  virtual int64_t vocab_size() const = 0;

  /// Throws if something in the text has no id, and says what and where.
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;

  /// The same of a prompt: the text of a special token, such as <|endoftext|>, is that token, where
  /// the tokenizer has it.
  virtual std::vector<int64_t> encode_with_special(std::string_view text) const {
    return encode(text);
  }

  /// The ids of tokens that begin in text[begin, end). The ids of adjacent parts, joined, are those
  /// of `text`. The first part that throws has the error of encode(text). By default the part at 0
  /// has all ids and the others none. Override it, so that large texts are encoded in small parts,
  /// several at a time.
  virtual std::vector<int64_t> encode_part(std::string_view text, size_t begin, size_t end) const;

  /// The bytes of `ids` in order. Decoding one id at a time and joining the pieces gives the same
  /// bytes, so text can be printed as it is written. Throws on an id outside the vocabulary.
  virtual std::string decode(std::span<const int64_t> ids) const = 0;

  /// The id of the token that ends a document; -1 if there is none.
  virtual int64_t end_of_text() const { return -1; }

  /// Does decode give the text that the ids were made of?
  virtual bool has_text() const { return true; }

  /// All that `parse_tokenizer` needs to build an equal tokenizer: a JSON object, in which
  /// "tokenizer" is name().
  virtual std::string to_json() const = 0;
};

/// One id per byte, the byte itself; takes any input.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return 256; }
  std::vector<int64_t> encode(std::string_view text) const override;
  std::vector<int64_t> encode_part(std::string_view text, size_t begin, size_t end) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  std::string to_json() const override;
};

/// One id per character (Unicode code point), in the order of the code points: nanoGPT's
/// `sorted(set(text))`. Text is UTF-8. Errors count lines and columns (in characters) from 1.
class CharTokenizer final : public Tokenizer {
 public:
  /// The vocabulary is the distinct ones of `characters`, in any order; at least one.
  explicit CharTokenizer(std::vector<char32_t> characters);
  /// The vocabulary that `to_json` wrote: valid UTF-8 in the order of the code points. Throws on
  /// another order, or if there are none.
  static std::unique_ptr<CharTokenizer> of_saved(std::string_view characters);

  std::string name() const override { return "char"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  std::vector<int64_t> encode(std::string_view text) const override;
  std::vector<int64_t> encode_part(std::string_view text, size_t begin, size_t end) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  std::string to_json() const override;

 private:
  std::vector<char32_t> characters_;  // by id, ascending
  std::vector<int32_t> ids_;          // by code point; -1: not in the vocabulary
};

/// Ids whose vocabulary nobody knows: their text is the ids themselves, " 15496 11".
class IdTokenizer final : public Tokenizer {
 public:
  explicit IdTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::string name() const override { return "ids"; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  bool has_text() const override { return false; }
  std::string to_json() const override;

 private:
  int64_t vocab_size_;
};

/// A token as pages show it: its text, and each byte that is no UTF-8, such as those of half a
/// character, as \xe2.
std::string token_text(const Tokenizer& tokenizer, int64_t id);

/// The distinct characters of a UTF-8 text, ascending: the vocabulary of a CharTokenizer. Throws on
/// invalid UTF-8 with the offset of the byte.
std::vector<char32_t> distinct_characters(std::string_view text);

/// The same for the characters that begin in text[begin, end).
std::vector<char32_t> distinct_characters(std::string_view text, size_t begin, size_t end);

/// Makes a tokenizer from a text: from what its to_json wrote, or from the texts to train on.
using MakeTokenizer = std::function<std::unique_ptr<Tokenizer>(std::string_view text)>;

/// From now on a tokenizer of your own, whose name() is `name`, can be read again where it was
/// saved: in a run's checkpoint, or in a file. If `learn` is given, TrainConfig::tokenizer, and so
/// --tokenizer, may be `name`, and it is learned from --data. Call it before other threads run.
/// Throws if there is a tokenizer of that name.
void add_tokenizer(const std::string& name, MakeTokenizer parse, MakeTokenizer learn = {});
/// "byte", "char", "ids", and those that were added.
std::vector<std::string> tokenizer_names();
/// What add_tokenizer was given to learn one; empty if there is none.
MakeTokenizer tokenizer_learner(const std::string& name);

/// The tokenizer that `Tokenizer::to_json` wrote, or that of a tokenizer.json (data/bpe). Throws on
/// anything else and says what is wrong.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json);

/// `parse_tokenizer` of a file; or the tokenizer of a run's folder, of a checkpoint in it, or of
/// that one's config.json; of nanoGPT's meta.pkl; or of another program's files or folder
/// (bpe::load_tokenizer). Errors start with the file's name.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace ink
