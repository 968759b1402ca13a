// Datasets: where batches come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/fables.h"
#include "data/file.h"
#include "data/token_ids.h"
#include "data/tokenizer.h"

namespace ink {

/// A target that is left out of the loss: cross_entropy's default ignore_index.
inline constexpr int64_t kIgnored = -100;

/// (B, T) tokens and the tokens that follow them, row-major: y[b][t] comes right after x[b][t].
struct Batch {
  int64_t batch_size = 0, block_size = 0;  ///< B, T
  std::vector<int64_t> x, y;               ///< B * T ids each
  /// B * T: the exact -log p (nats) of each target given all before it in its row, if the dataset
  /// knows it. The mean is the best possible loss. Otherwise empty.
  std::vector<float> best_possible;
  /// B * T: 1 where a target is of an answer that the row holds whole, 2 where it is the last of
  /// one, else 0. Empty where nothing is asked.
  std::vector<uint8_t> answer = {};
  /// The mean of best_possible; 0 if it is not known.
  double mean_best_possible() const;
};

/// Batches of token windows. Every function is pure: a dataset has no position, and any thread or
/// process can draw any step again.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual const Tokenizer& tokenizer() const = 0;

  /// One line for people: what the dataset is and how large.
  virtual std::string summary() const = 0;

  /// The files that validate, where they are others than those that the summary names; else empty.
  virtual std::string val_name() const { return ""; }

  /// How many tokens there are to train on; 0 where they do not end or are not counted.
  virtual int64_t train_tokens() const { return 0; }

  /// Rows first_row .. first_row + batch_size - 1 of training step `step`. What a row holds depends
  /// on (seed, step, its number) alone, so micro-batches and processes can each draw their part of
  /// a step. Steps are below 2^39, rows of a step below 2^24. Throws if the training part has fewer
  /// than block_size + 1 tokens.
  Batch train_batch(uint64_t seed, uint64_t step, int64_t batch_size, int64_t block_size,
                    int64_t first_row = 0) const;

  /// As train_batch, from the validation part: windows drawn with replacement among val_windows.
  Batch val_batch(uint64_t seed, uint64_t step, int64_t batch_size, int64_t block_size,
                  int64_t first_row = 0) const;

  /// The number of windows of block_size targets in the validation part, side by side from its
  /// start. A remainder shorter than a window is left out. Throws if there is not even one.
  virtual int64_t val_windows(int64_t block_size) const = 0;

  /// Validation windows first .. first + count - 1.
  Batch val_window_batch(int64_t first, int64_t count, int64_t block_size) const;

  /// A text after which a line begins, from which samples start: by default the first token of the
  /// validation part.
  virtual std::string sample_start() const;

 protected:
  /// One row of a batch, to be filled: T inputs, T targets, and, if
  /// knows_best_possible(), T best possible losses.
  struct Row {
    std::span<int64_t> x, y;
    std::span<float> best_possible;
    std::span<uint8_t> answer = {};  // if has_answers()
  };

 private:
  // A dataset of your own defines these and the three functions above.
  virtual bool knows_best_possible() const { return false; }
  virtual bool has_answers() const { return false; }
  /// Training row `number` (step * 2^24 + row; below 2^63) of the stream `seed`.
  virtual void fill_train_row(uint64_t seed, uint64_t number, Row row) const = 0;
  /// Validation window `window`, in [0, val_windows(T)).
  virtual void fill_val_row(int64_t window, Row row) const = 0;

  template <class FillRow>
  Batch fill(int64_t batch_size, int64_t block_size, FillRow&& fill_row) const;
};

/// Windows of two runs of token ids, one to train on and one to validate on. The base of
/// TextDataset, TokenDataset and PreparedDataset.
class WindowDataset : public Dataset {
 public:
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  std::string summary() const override;
  std::string val_name() const override { return val_name_; }
  int64_t train_tokens() const override { return train_.ids.size(); }
  int64_t val_windows(int64_t block_size) const override;
  /// A line end; or, in a vocabulary without one, the first token.
  std::string sample_start() const override;

 protected:
  /// Ids that a derived class keeps in memory, and, if windows lie within documents, where these
  /// begin, ascending.
  struct Part {
    TokenIds ids;
    std::vector<int64_t> documents;
  };

  /// `name` stands before errors and in the summary.
  WindowDataset(std::string name, std::shared_ptr<const Tokenizer> tokenizer)
      : name_(std::move(name)), tokenizer_(std::move(tokenizer)) {}

  /// val_name: where errors name other files for the part that validates.
  void use(Part train, Part val, std::string val_name = "") {
    train_ = std::move(train), val_ = std::move(val), val_name_ = std::move(val_name);
  }
  /// Splits as nanoGPT does: the first floor(size * (1 - val_fraction)) ids train, the rest
  /// validate.
  void use_split(const Part& part, double val_fraction);

  std::string name_;
  std::shared_ptr<const Tokenizer> tokenizer_;

 private:
  void fill_train_row(uint64_t seed, uint64_t number, Row row) const override;
  void fill_val_row(int64_t window, Row row) const override;
  void fill_window(const Part& part, std::string_view name, int64_t start, int64_t end,
                   Row row) const;
  void check_size(const Part& part, std::string_view name, int64_t block_size) const;
  const std::string& files_of(const Part& part) const {
    return &part == &val_ && !val_name_.empty() ? val_name_ : name_;
  }
  // How many windows there are in the documents of the validation part up to each one's end.
  std::shared_ptr<const std::vector<int64_t>> windows_of_documents(int64_t block_size) const;

  Part train_, val_;
  std::string val_name_;
  mutable std::mutex mutex_;
  mutable int64_t counted_for_ = 0;  // the block size of:
  mutable std::shared_ptr<const std::vector<int64_t>> windows_;
};

/// Text files, joined in the order given and tokenised once. They are mapped until the constructor
/// returns, and must not be cut short meanwhile. The dataset takes the memory of the ids (2 bytes
/// each in a vocabulary of at most 65,536, otherwise 4) and about 1 MB for each thread. A byte
/// order mark at a file's beginning is dropped.
class TextDataset final : public WindowDataset {
 public:
  /// Without a tokenizer, makes a CharTokenizer of the characters found. val_fraction is in [0, 1];
  /// at 1 there is nothing to train on. With val_files, these validate, and all of `files` trains.
  /// Throws if a file is missing, unreadable, empty or of a well-known format that is no text, or
  /// contains text that the tokenizer cannot encode.
  explicit TextDataset(const std::vector<std::filesystem::path>& files,
                       std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                       double val_fraction = 0.1,
                       const std::vector<std::filesystem::path>& val_files = {});

 private:
  template <class Id>
  std::vector<size_t> encode(const std::vector<std::filesystem::path>& files,
                             std::vector<TextFile>& texts);

  std::variant<std::vector<uint16_t>, std::vector<uint32_t>> ids_;
};

/// Files of raw little-endian ids (nanoGPT's train.bin), or those that llm.c and modded-nanogpt
/// write, whose header says how wide their ids are. They are mapped, and may be larger than memory.
class TokenDataset final : public WindowDataset {
 public:
  struct Options {
    std::vector<std::filesystem::path> val_files;  ///< none: the last val_fraction of the ids
    double val_fraction = 0.1;                     ///< in [0, 1]
    int bytes_per_id = 0;  ///< 2 or 4; 0: as llm.c's header says, or 4 for *.u32, else 2
  };

  /// The ids of the files are joined in this order. Without a tokenizer it is an IdTokenizer of the
  /// ids found (of GPT-2's or Llama 3's where a header says so). Throws, naming file and place, if
  /// an id is outside the vocabulary. All are read for that, about a second for a GB.
  TokenDataset(const std::vector<std::filesystem::path>& files,
               std::shared_ptr<const Tokenizer> tokenizer, const Options& options);
  TokenDataset(const std::filesystem::path& file, std::shared_ptr<const Tokenizer> tokenizer,
               const Options& options)
      : TokenDataset(std::vector{file}, std::move(tokenizer), options) {}
  TokenDataset(const std::filesystem::path& file, std::shared_ptr<const Tokenizer> tokenizer)
      : TokenDataset(file, std::move(tokenizer), Options()) {}

 private:
  std::vector<MappedFile> files_;
};

/// Shards that `prepare` made (data/prepare.h), which are mapped and may be larger than memory.
class PreparedDataset final : public WindowDataset {
 public:
  struct Options {
    std::filesystem::path val_folder;  ///< empty: the last val_fraction of the ids
    double val_fraction = 0.1;         ///< in [0, 1]
    /// Windows end where a document ends: targets after it are left out of the loss.
    bool within_documents = false;
  };

  /// Throws if the folder is not whole, or if a tokenizer is given that is not the folder's.
  PreparedDataset(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer,
                  const Options& options);

 private:
  Part open(const std::filesystem::path& folder, bool within_documents);

  std::vector<MappedFile> files_;
};

/// Rows of fresh text, which need no file: each is made of two numbers, with its exact best
/// possible loss. The validation part is fixed: the same windows for every training seed, so many
/// targets rounded up to whole windows, at indices that training never uses.
class FreshDataset : public Dataset {
 public:
  int64_t val_windows(int64_t block_size) const final;

 protected:
  explicit FreshDataset(int64_t val_targets) : val_targets_(val_targets) {}

 private:
  bool knows_best_possible() const final { return true; }
  void fill_train_row(uint64_t seed, uint64_t number, Row row) const final;
  void fill_val_row(int64_t window, Row row) const final;
  /// A pure function of its arguments. validates: is it of the validation part?
  virtual void fill_row(uint64_t seed, uint64_t index, bool validates, Row row) const = 0;

  int64_t val_targets_;
};

/// The built-in language (data/fables.h): every row begins with a story, and 100,000 targets
/// validate.
class FablesDataset final : public FreshDataset {
 public:
  explicit FablesDataset(Fables language = Fables());

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  std::string summary() const override;

 private:
  void fill_row(uint64_t seed, uint64_t index, bool validates, Row row) const override;

  Fables language_;
  CharTokenizer tokenizer_;
};

}  // namespace ink
