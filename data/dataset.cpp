#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iomanip>
#include <iterator>
#include <type_traits>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "data/formats.h"
#include "data/splitmix.h"

namespace ink {
namespace {

constexpr int kRowBits = 24;  // row number = step * 2^kRowBits + row
constexpr int64_t kMaxRows = int64_t{1} << kRowBits;
constexpr uint64_t kMaxSteps = uint64_t{1} << (63 - kRowBits);
constexpr uint64_t kValStream = uint64_t{1} << 63;  // no training row has this bit

// Element `number` of the random stream `seed`, in [0, n): SplitMix64 with random access.
int64_t random_below(int64_t n, uint64_t seed, uint64_t number) {
  using namespace splitmix;
  const uint64_t bits = mix(mix(seed + kGamma) + number * kGamma);
  return static_cast<int64_t>(below(static_cast<uint64_t>(n), bits));
}

uint64_t row_number(uint64_t step, int64_t first_row, int64_t row) {
  return step << kRowBits | static_cast<uint64_t>(first_row + row);
}

void check_rows(uint64_t step, int64_t batch_size, int64_t first_row) {
  INK_CHECK(step < kMaxSteps, "batch: expected a step below 2^", 63 - kRowBits, ", got ", step);
  INK_CHECK(first_row >= 0 && batch_size <= kMaxRows && first_row <= kMaxRows - batch_size,
            "batch: expected rows in [0, 2^", kRowBits, "), got ", batch_size, " rows from row ",
            first_row);
}

}  // namespace

double Batch::mean_best_possible() const {
  double total = 0;
  for (const float value : best_possible) total += value;
  return best_possible.empty() ? 0 : total / static_cast<double>(best_possible.size());
}

template <class FillRow>
Batch Dataset::fill(int64_t batch_size, int64_t block_size, FillRow&& fill_row) const {
  INK_CHECK(batch_size >= 1, "batch: expected batch_size >= 1, got ", batch_size);
  INK_CHECK(block_size >= 1, "batch: expected block_size >= 1, got ", block_size);
  Batch batch{batch_size, block_size, {}, {}, {}};
  const auto width = static_cast<size_t>(block_size);
  const size_t count = static_cast<size_t>(batch_size) * width;
  batch.x.resize(count);
  batch.y.resize(count);
  if (knows_best_possible()) batch.best_possible.resize(count);
  for (int64_t row = 0; row < batch_size; ++row) {
    const size_t start = static_cast<size_t>(row) * width;
    const auto part = [&](auto& values) { return std::span(values).subspan(start, width); };
    fill_row(row, Row{part(batch.x), part(batch.y),
                      knows_best_possible() ? part(batch.best_possible) : std::span<float>()});
  }
  return batch;
}

Batch Dataset::train_batch(uint64_t seed, uint64_t step, int64_t batch_size, int64_t block_size,
                           int64_t first_row) const {
  check_rows(step, batch_size, first_row);
  return fill(batch_size, block_size, [&](int64_t row, Row out) {
    fill_train_row(seed, row_number(step, first_row, row), out);
  });
}

Batch Dataset::val_batch(uint64_t seed, uint64_t step, int64_t batch_size, int64_t block_size,
                         int64_t first_row) const {
  check_rows(step, batch_size, first_row);
  const int64_t windows = val_windows(block_size);
  return fill(batch_size, block_size, [&](int64_t row, Row out) {
    const uint64_t number = kValStream | row_number(step, first_row, row);
    fill_val_row(random_below(windows, seed, number), out);
  });
}

Batch Dataset::val_window_batch(int64_t first, int64_t count, int64_t block_size) const {
  const int64_t windows = val_windows(block_size);
  INK_CHECK(first >= 0 && count <= windows && first <= windows - count,
            "batch: expected windows in [0, ", windows, "), got ", count, " from window ", first);
  return fill(count, block_size, [&](int64_t row, Row out) { fill_val_row(first + row, out); });
}

std::string Dataset::sample_start() const {
  return tokenizer().decode(val_window_batch(0, 1, 1).x);
}

// ---- WindowDataset

namespace {

template <class Ids>
int64_t size_of(const Ids& ids) {
  return std::visit([](auto span) { return static_cast<int64_t>(span.size()); }, ids);
}

}  // namespace

std::string WindowDataset::summary() const {
  TextStream text;
  text << printable(name_) << ": ";
  if (size_of(train_) > 0) text << size_of(train_) << " tokens to train on, ";
  text << size_of(val_) << (size_of(train_) > 0 ? "" : " tokens")
       << " to validate on, vocabulary of " << tokenizer_->vocab_size() << " ("
       << tokenizer_->name() << ")";
  return text.str();
}

void WindowDataset::use_split(Ids ids, double val_fraction) {
  INK_CHECK(val_fraction >= 0 && val_fraction <= 1, name_,
            ": expected val_fraction in [0, 1], got ", val_fraction);
  std::visit(
      [&](auto span) {
        const auto cut = static_cast<size_t>(static_cast<double>(span.size()) * (1 - val_fraction));
        use(span.first(cut), span.subspan(cut));
      },
      ids);
}

std::string WindowDataset::sample_start() const {
  try {
    if (!tokenizer_->encode("\n").empty()) return "\n";
  } catch (const Error&) {  // it has no line end
  }
  const auto first = [](const auto& ids) { return static_cast<int64_t>(ids.front()); };
  const int64_t id = std::visit(first, size_of(train_) > 0 ? train_ : val_);
  return tokenizer_->decode({&id, 1});
}

int64_t WindowDataset::checked_size(const Ids& ids, std::string_view part,
                                    int64_t block_size) const {
  INK_CHECK(block_size >= 1, "batch: expected block_size >= 1, got ", block_size);
  const int64_t size = size_of(ids);
  INK_CHECK(size > block_size, name_, ": the ", part, " part has ", size, " tokens, a block of ",
            block_size, " needs ", static_cast<uint64_t>(block_size) + 1,
            ": give more text or a smaller --block_size");
  return size;
}

int64_t WindowDataset::val_windows(int64_t block_size) const {
  return (checked_size(val_, "validation", block_size) - 1) / block_size;
}

void WindowDataset::fill_train_row(uint64_t seed, uint64_t number, Row row) const {
  const auto block_size = static_cast<int64_t>(row.x.size());
  const int64_t places = checked_size(train_, "training", block_size) - block_size;
  fill_window(train_, "training", random_below(places, seed, number), row);
}

void WindowDataset::fill_val_row(int64_t window, Row row) const {
  fill_window(val_, "validation", window * static_cast<int64_t>(row.x.size()), row);
}

void WindowDataset::fill_window(const Ids& ids, std::string_view part, int64_t start,
                                Row row) const {
  const int64_t vocab_size = tokenizer_->vocab_size();
  std::visit(
      [&](auto all) {
        const auto window = all.subspan(static_cast<size_t>(start), row.x.size() + 1);
        const auto largest = std::max_element(window.begin(), window.end());
        INK_CHECK(*largest < vocab_size, name_, ": token ", start + (largest - window.begin()),
                  " of the ", part, " part is id ", *largest, ", outside the vocabulary of ",
                  vocab_size);
        std::copy(window.begin(), window.end() - 1, row.x.begin());
        std::copy(window.begin() + 1, window.end(), row.y.begin());
      },
      ids);
}

// ---- TextDataset

namespace {

std::string name_of(const std::vector<std::filesystem::path>& files) {
  INK_CHECK(!files.empty(), "text dataset: expected at least one file, got none");
  const std::string first = files.front().string();
  return files.size() == 1 ? first : first + " and " + std::to_string(files.size() - 1) + " more";
}

// Calls work(begin, end) for small parts of a text, one on each thread at a time, and join() with
// each result in the order of the parts. The first error in this order is thrown.
template <class Work, class Join>
void in_parts(const TextFile& text, Work&& work, Join&& join) {
  constexpr size_t kPart = size_t{64} << 10;  // its ids take 0.5 MB as int64_t
  const size_t size = text.view().size(), threads = static_cast<size_t>(max_threads());
  std::vector<std::invoke_result_t<Work, size_t, size_t>> results(threads);
  std::vector<std::exception_ptr> errors(threads);
  for (size_t start = 0; start < size; start += threads * kPart) {
    const size_t stop = std::min(size, start + threads * kPart);
    const size_t parts = (stop - start - 1) / kPart + 1;
    parallel_for(static_cast<int64_t>(parts), 1, [&](int64_t from, int64_t to) {
      for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
        const size_t begin = start + i * kPart;
        try {
          results[i] = work(begin, std::min(stop, begin + kPart));
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    });
    for (size_t i = 0; i < parts; ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      join(std::exchange(results[i], {}));
    }
    text.release(start, stop);
  }
}

std::vector<char32_t> distinct_characters_of(const TextFile& text) {
  using Characters = std::vector<char32_t>;
  Characters all;
  in_parts(
      text, [&](size_t begin, size_t end) { return distinct_characters(text.view(), begin, end); },
      [&](const Characters& found) {
        Characters both;
        std::set_union(all.begin(), all.end(), found.begin(), found.end(),
                       std::back_inserter(both));
        all = std::move(both);
      });
  return all;
}

template <class Id>
std::vector<Id> narrow(const std::vector<int64_t>& ids, int64_t vocab_size) {
  const auto outside = [=](int64_t id) { return id < 0 || id >= vocab_size; };
  const auto wrong = std::find_if(ids.begin(), ids.end(), outside);
  INK_CHECK(wrong == ids.end(), "encode: expected ids in [0, ", vocab_size, "), got ", *wrong);
  return {ids.begin(), ids.end()};
}

}  // namespace

TextDataset::TextDataset(const std::vector<std::filesystem::path>& train_files,
                         std::shared_ptr<const Tokenizer> tokenizer, double val_fraction,
                         const std::vector<std::filesystem::path>& val_files)
    : WindowDataset(name_of(train_files), std::move(tokenizer)) {
  std::vector<std::filesystem::path> files = train_files;
  files.insert(files.end(), val_files.begin(), val_files.end());
  std::vector<TextFile> texts;
  for (const auto& file : files) texts.emplace_back(file);
  if (!tokenizer_) {
    std::vector<char32_t> characters;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto found =
          with_prefix(files[i].string(), [&] { return distinct_characters_of(texts[i]); });
      characters.insert(characters.end(), found.begin(), found.end());
    }
    tokenizer_ = std::make_shared<CharTokenizer>(std::move(characters));
  }
  const bool narrow = tokenizer_->vocab_size() <= int64_t{1} << 16;
  const std::vector<size_t> ends =
      narrow ? encode<uint16_t>(files, texts) : encode<uint32_t>(files, texts);
  const auto use_ids = [&](const auto& ids) {
    if (val_files.empty()) return use_split(std::span(ids), val_fraction);
    const size_t cut = ends[train_files.size() - 1];
    use(std::span(ids).first(cut), std::span(ids).subspan(cut));
  };
  std::visit(use_ids, ids_);
}

// Returns where the ids of each file end.
template <class Id>
std::vector<size_t> TextDataset::encode(const std::vector<std::filesystem::path>& files,
                                        std::vector<TextFile>& texts) {
  std::vector<size_t> ends;
  auto& ids = ids_.emplace<std::vector<Id>>();
  size_t bytes = 0;
  for (const TextFile& text : texts) bytes += text.view().size();
  ids.reserve(bytes);  // enough for one id per byte; pages that are not written take no memory
  for (size_t i = 0; i < texts.size(); ++i) {
    const TextFile& text = texts[i];
    const auto work = [&](size_t begin, size_t end) {
      return narrow<Id>(tokenizer_->encode_part(text.view(), begin, end), tokenizer_->vocab_size());
    };
    const auto join = [&](const std::vector<Id>& part) {
      ids.insert(ids.end(), part.begin(), part.end());
    };
    with_prefix(files[i].string(), [&] { in_parts(text, work, join); });
    texts[i] = {};
    ends.push_back(ids.size());
  }
  return ends;
}

// ---- TokenDataset

namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place");

// llm.c's files begin with 256 int32: what the file is (a date), its version, the number of ids.
struct LlmHeader {
  static constexpr size_t kBytes = 1024;
  static constexpr uint32_t kGpt2 = 20240520, kLlama3 = 20240801;
  uint32_t magic = 0, version = 0, count = 0;
};

// Returns the ids' width, or 0 if llm.c did not write this file.
size_t width_by_header(const std::string& name, std::span<const std::byte> bytes) {
  LlmHeader header;
  if (bytes.size() < sizeof header) return 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic < 20240301 || header.magic > 20241231) return 0;
  const bool wide = header.magic == LlmHeader::kLlama3;
  INK_CHECK(wide || header.magic == LlmHeader::kGpt2, name, ": expected token ids, got a file of ",
            "llm.c with the magic number ", header.magic,
            ", which has weights or another content; its token ids have ", LlmHeader::kGpt2, " or ",
            LlmHeader::kLlama3);
  const uint32_t version = wide ? 7 : 1;
  INK_CHECK(header.version == version, name, ": expected version ", version,
            " of llm.c's token ids, got ", header.version);
  const size_t width = wide ? 4 : 2, expected = LlmHeader::kBytes + width * header.count;
  INK_CHECK(bytes.size() == expected, name, ": expected ", expected, " bytes for the ",
            header.count, " token ids of llm.c's header, got ", bytes.size());
  INK_CHECK(header.count > 0, name, ": the file has no token ids");
  return width;
}

template <class Id>
std::span<const Id> checked_ids(const std::string& name, std::span<const std::byte> bytes,
                                size_t begin, const Tokenizer& tokenizer) {
  const std::span<const Id> ids{reinterpret_cast<const Id*>(bytes.data() + begin),
                                (bytes.size() - begin) / sizeof(Id)};
  const int64_t vocab_size = tokenizer.vocab_size();
  const auto outside = [=](Id id) { return static_cast<int64_t>(id) >= vocab_size; };
  std::atomic<bool> all_inside = true;
  parallel_for(std::ssize(ids), int64_t{1} << 16, [&](int64_t from, int64_t to) {
    Id largest = 0;
    for (int64_t i = from; i < to; ++i) largest = std::max(largest, ids[static_cast<size_t>(i)]);
    if (outside(largest)) all_inside = false;
  });
  if (all_inside) return ids;
  const auto wrong = std::find_if(ids.begin(), ids.end(), outside);
  detail::fail({name, ": the token id at byte ",
                begin + sizeof(Id) * static_cast<size_t>(wrong - ids.begin()), " is ", *wrong,
                ", outside the vocabulary of ", vocab_size, " (", tokenizer.name(),
                "); name the tokenizer that made the file with --tokenizer, or train on its text"});
}

}  // namespace

TokenDataset::TokenDataset(const std::filesystem::path& file,
                           std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : WindowDataset(file.string(), std::move(tokenizer)), file_(file) {
  INK_CHECK(tokenizer_, name_, ": expected a tokenizer, got none");
  const auto ids_of = [&](const std::filesystem::path& path, const MappedFile& mapped) -> Ids {
    const auto bytes = mapped.bytes();
    const std::string name = path.string();
    check_is_ids(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const size_t by_header = width_by_header(name, bytes),
                 by_name = path.extension() == ".u32" ? 4 : 2;
    const size_t width = by_header > 0               ? by_header
                         : options.bytes_per_id == 0 ? by_name
                                                     : static_cast<size_t>(options.bytes_per_id);
    INK_CHECK(width == 2 || width == 4, name, ": expected ids of 2 or 4 bytes, got ",
              options.bytes_per_id);
    INK_CHECK(bytes.size() % width == 0, name, ": expected ids of ", width, " bytes each, got ",
              bytes.size(), " bytes");
    const size_t begin = by_header > 0 ? LlmHeader::kBytes : 0;
    if (width == 2) return checked_ids<uint16_t>(name, bytes, begin, *tokenizer_);
    return checked_ids<uint32_t>(name, bytes, begin, *tokenizer_);
  };
  if (options.val_file.empty()) {
    use_split(ids_of(file, file_), options.val_fraction);
  } else {
    val_file_ = MappedFile(options.val_file);
    use(ids_of(file, file_), ids_of(options.val_file, val_file_));
  }
}

// ---- FablesDataset

FablesDataset::FablesDataset(Fables language)
    : language_(std::move(language)), tokenizer_(distinct_characters(language_.alphabet())) {}

std::string FablesDataset::summary() const {
  TextStream text;
  text << "fables: " << std::setprecision(2) << language_.count()
       << " stories told by rules, vocabulary of " << tokenizer_.vocab_size() << " ("
       << tokenizer_.name() << ")";
  return text.str();
}

int64_t FablesDataset::val_windows(int64_t block_size) const {
  constexpr int64_t kTargets = 100'000;
  INK_CHECK(block_size >= 1, "batch: expected block_size >= 1, got ", block_size);
  return (kTargets - 1) / block_size + 1;
}

void FablesDataset::fill_train_row(uint64_t seed, uint64_t number, Row row) const {
  fill_row(seed, number, row);
}

void FablesDataset::fill_val_row(int64_t window, Row row) const {
  fill_row(0, kValStream | static_cast<uint64_t>(window), row);
}

void FablesDataset::fill_row(uint64_t seed, uint64_t index, Row row) const {
  const auto length = static_cast<int64_t>(row.x.size()) + 1;
  const FableSample sample = language_.sample(seed, index, length);
  const std::vector<int64_t> ids = tokenizer_.encode(sample.text);
  std::copy(ids.begin(), ids.end() - 1, row.x.begin());
  std::copy(ids.begin() + 1, ids.end(), row.y.begin());
  std::copy(sample.best_possible.begin() + 1, sample.best_possible.end(),
            row.best_possible.begin());
}

}  // namespace ink
