// Files of token ids. The first four bytes of an input say how the rest is read: the width of an
// id, the validation part in sixteenths, the block size, the vocabulary.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

namespace ink::fuzz {
namespace {

using Ids = std::vector<int64_t>;

// Ids and nothing else: a vocabulary of any size.
class AnyTokenizer final : public Tokenizer {
 public:
  explicit AnyTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}
  std::string name() const override { return "any"; }
  int64_t vocab_size() const override { return vocab_size_; }
  Ids encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int64_t>) const override { return ""; }
  std::string to_json() const override { return "{}"; }

 private:
  int64_t vocab_size_;
};

Ids ids_of(std::string_view bytes, size_t width) {
  Ids ids;
  for (size_t at = 0; at + width <= bytes.size(); at += width) {
    uint64_t id = 0;
    for (size_t i = width; i-- > 0;) id = id << 8 | static_cast<unsigned char>(bytes[at + i]);
    ids.push_back(static_cast<int64_t>(id));
  }
  return ids;
}

// Is row `row` of the batch a window of these ids? Its place, if it is known; -1: anywhere.
void check_row(const Batch& batch, size_t row, const Ids& ids, int64_t place) {
  const auto width = static_cast<size_t>(batch.block_size);
  Ids window(batch.x.begin() + static_cast<ptrdiff_t>(row * width),
             batch.x.begin() + static_cast<ptrdiff_t>((row + 1) * width));
  window.push_back(batch.y[(row + 1) * width - 1]);
  for (size_t i = 0; i < width; ++i)
    expect(batch.y[row * width + i] == window[i + 1], "a target is not the next token");
  const auto from = place < 0 ? ids.begin() : ids.begin() + place;
  const auto found = std::search(from, ids.end(), window.begin(), window.end());
  expect(found != ids.end() && (place < 0 || found == from), "a window that is not in the file");
}

struct Reading {
  size_t width;
  double val_fraction;
  int64_t block_size, vocab_size;
};

void check_parts(const Dataset& dataset, const Ids& ids, const Reading& reading,
                 std::string_view input) {
  const auto cut =
      static_cast<ptrdiff_t>(static_cast<double>(ids.size()) * (1 - reading.val_fraction));
  const Ids train(ids.begin(), ids.begin() + cut), val(ids.begin() + cut, ids.end());
  const int64_t block_size = reading.block_size;
  const auto inside = [&](const Ids& part) {
    return std::all_of(part.begin(), part.end(),
                       [&](int64_t id) { return id < reading.vocab_size; });
  };
  const auto is_long = [&](const Ids& part) { return std::ssize(part) > block_size; };
  Batch batch;
  const auto of_train = error_of(input, [&] { batch = dataset.train_batch(1, 2, 3, block_size); });
  expect(is_long(train) || of_train, "a batch from too few tokens");
  expect(!of_train || !is_long(train) || !inside(train), of_train.value_or(""));
  if (!of_train)
    for (size_t row = 0; row < 3; ++row) check_row(batch, row, train, -1);
  if (!is_long(val)) {
    expect(error_of(input, [&] { dataset.val_windows(block_size); }).has_value(), "windows");
    return;
  }
  const int64_t windows = dataset.val_windows(block_size);
  expect(windows == (std::ssize(val) - 1) / block_size, "another number of windows");
  const auto of_val =
      error_of(input, [&] { batch = dataset.val_window_batch(0, windows, block_size); });
  expect(!of_val || !inside(val), of_val.value_or(""));
  if (of_val) return;
  for (int64_t row = 0; row < windows; ++row)
    check_row(batch, static_cast<size_t>(row), val, row * block_size);
  expect(!error_of(input, [&] { dataset.val_batch(1, 2, 3, block_size); }), "a window alone");
}

}  // namespace

void check_input(std::string_view whole) {
  if (whole.size() < 4) return;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(whole[i]); };
  const Reading reading{byte(0) % 2 == 0 ? size_t{2} : 4, (byte(1) % 17) / 16.0,
                        int64_t{byte(2)} - 1, int64_t{1} << byte(3) % 33};
  const std::string_view input = whole.substr(4);
  static File file;
  file.write(input);
  std::unique_ptr<TokenDataset> dataset;
  const auto error = error_of(input, [&] {
    TokenDataset::Options options;
    options.val_fraction = reading.val_fraction;
    options.bytes_per_id = static_cast<int>(reading.width);
    const auto tokenizer = std::make_shared<AnyTokenizer>(reading.vocab_size);
    dataset = std::make_unique<TokenDataset>(file.path(), tokenizer, options);
  });
  // llm.c's header, if there is one; and other formats.
  const Ids magic = ids_of(input.substr(0, 4), 4);
  const bool has_header = !magic.empty() && magic[0] >= 20240301 && magic[0] <= 20241231;
  if (error && (has_header || error->find("expected token ids, got ") != std::string::npos)) return;
  Ids all = ids_of(input, reading.width);
  if (has_header) all = ids_of(input.substr(1024), magic[0] == 20240801 ? 4 : 2);
  const bool outside =
      std::any_of(all.begin(), all.end(), [&](int64_t id) { return id >= reading.vocab_size; });
  expect(error.has_value() ==
             (input.empty() || outside || (!has_header && input.size() % reading.width > 0)),
         error.value_or("a part of an id, or one outside the vocabulary"));
  if (error) return;
  check_text(dataset->summary(), input);
  if (reading.block_size < 1) {
    expect(error_of(input, [&] { dataset->train_batch(0, 0, 1, reading.block_size); }) &&
               error_of(input, [&] { dataset->val_batch(0, 0, 1, reading.block_size); }),
           "a block of no tokens");
    return;
  }
  check_parts(*dataset, all, reading, input);
}

}  // namespace ink::fuzz
