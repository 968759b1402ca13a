#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iomanip>
#include <iterator>
#include <optional>
#include <type_traits>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/formats.h"
#include "data/prepare.h"
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
  if (has_answers()) batch.answer.resize(count);
  for (int64_t row = 0; row < batch_size; ++row) {
    const size_t start = static_cast<size_t>(row) * width;
    const auto part = [&](auto& values) { return std::span(values).subspan(start, width); };
    fill_row(row, Row{part(batch.x), part(batch.y),
                      knows_best_possible() ? part(batch.best_possible) : std::span<float>(),
                      has_answers() ? part(batch.answer) : std::span<uint8_t>()});
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

std::string WindowDataset::summary() const {
  const int64_t train = train_.ids.size();
  TextStream text;
  text << printable(name_) << ": ";
  if (train > 0) text << train << " tokens to train on, ";
  text << val_.ids.size() << (train > 0 ? "" : " tokens") << " to validate on, vocabulary of "
       << tokenizer_->vocab_size() << " (" << tokenizer_->name() << ")";
  return text.str();
}

void WindowDataset::use_split(const Part& part, double val_fraction) {
  INK_CHECK(val_fraction >= 0 && val_fraction <= 1, name_,
            ": expected val_fraction in [0, 1], got ", val_fraction);
  const int64_t size = part.ids.size(),
                cut = static_cast<int64_t>(static_cast<double>(size) * (1 - val_fraction));
  Part train{part.ids.part(0, cut), {}}, val{part.ids.part(cut, size), {}};
  for (const int64_t begin : part.documents) {
    if (begin < cut) train.documents.push_back(begin);
    if (begin > cut && val.documents.empty()) val.documents.push_back(0);
    if (begin >= cut) val.documents.push_back(begin - cut);
  }
  if (!part.documents.empty() && val.documents.empty()) val.documents.push_back(0);
  use(std::move(train), std::move(val));
}

std::string WindowDataset::sample_start() const {
  try {
    if (!tokenizer_->encode("\n").empty()) return "\n";
  } catch (const std::exception&) {  // it has no line end
  }
  int64_t id = 0;
  (train_.ids.size() > 0 ? train_ : val_).ids.read(0, {&id, 1});
  return tokenizer_->decode({&id, 1});
}

void WindowDataset::check_size(const Part& part, std::string_view name, int64_t block_size) const {
  INK_CHECK(block_size >= 1, "batch: expected block_size >= 1, got ", block_size);
  const int64_t size = part.ids.size();
  if (!part.documents.empty()) {
    INK_CHECK(size > std::ssize(part.documents), files_of(part), ": the ", name,
              " part has no document of two tokens");
    return;
  }
  const bool is_split = val_name_.empty() && train_.ids.size() > 0;
  // Where no fraction leaves enough for both parts, a block that both of them hold is named.
  const int64_t most = std::min(train_.ids.size(), val_.ids.size()) - 1;
  const bool names_block =
      is_split && most > 0 && (train_.ids.size() + val_.ids.size()) / 2 <= block_size;
  INK_CHECK(size > block_size, files_of(part), ": the ", name, " part has ", size,
            size == 1 ? " token, a block of " : " tokens, a block of ", block_size, " needs ",
            static_cast<uint64_t>(block_size) + 1, ": give more text, ",
            !is_split || names_block ? ""
            : &part == &val_         ? "a larger --val_fraction, "
                                     : "a smaller --val_fraction, ",
            "or a new model a ",
            names_block ? detail::joined({"--block_size of ", most, " or less"})
                        : "smaller --block_size");
}

namespace {

// The end of the document that begins at documents[i].
int64_t end_of(const std::vector<int64_t>& documents, size_t i, int64_t size) {
  return i + 1 < documents.size() ? documents[i + 1] : size;
}

}  // namespace

std::shared_ptr<const std::vector<int64_t>> WindowDataset::windows_of_documents(
    int64_t block_size) const {
  const std::lock_guard lock(mutex_);
  if (counted_for_ == block_size) return windows_;
  auto counted = std::make_shared<std::vector<int64_t>>();
  int64_t windows = 0;
  for (size_t i = 0; i < val_.documents.size(); ++i) {
    const int64_t targets = end_of(val_.documents, i, val_.ids.size()) - val_.documents[i] - 1;
    counted->push_back(windows += (targets + block_size - 1) / block_size);
  }
  counted_for_ = block_size;
  return windows_ = std::move(counted);
}

int64_t WindowDataset::val_windows(int64_t block_size) const {
  check_size(val_, "validation", block_size);
  if (!val_.documents.empty()) return windows_of_documents(block_size)->back();
  return (val_.ids.size() - 1) / block_size;
}

// Within documents: the window begins at a place of the document in which a random token lies, so
// that it is as full as it can be.
void WindowDataset::fill_train_row(uint64_t seed, uint64_t number, Row row) const {
  const auto block_size = static_cast<int64_t>(row.x.size());
  check_size(train_, "training", block_size);
  const int64_t size = train_.ids.size();
  if (train_.documents.empty()) {
    const int64_t start = random_below(size - block_size, seed, number);
    return fill_window(train_, "training", start, start + block_size + 1, row);
  }
  while (true) {
    const int64_t at = random_below(size, seed, number);
    const auto next = std::upper_bound(train_.documents.begin(), train_.documents.end(), at);
    const int64_t begin = next[-1], end = next == train_.documents.end() ? size : *next;
    if (end - begin >= 2) {
      const int64_t start = std::clamp(at, begin, std::max(begin, end - block_size - 1));
      return fill_window(train_, "training", start, std::min(end, start + block_size + 1), row);
    }
    number = splitmix::mix(number) >> 1;  // a document of one token has no target
  }
}

void WindowDataset::fill_val_row(int64_t window, Row row) const {
  const auto block_size = static_cast<int64_t>(row.x.size());
  int64_t start = window * block_size, end = start + block_size + 1;
  if (!val_.documents.empty()) {
    const auto counts = windows_of_documents(block_size);
    const auto i = static_cast<size_t>(std::upper_bound(counts->begin(), counts->end(), window) -
                                       counts->begin());
    start = val_.documents[i] + (window - (i == 0 ? 0 : (*counts)[i - 1])) * block_size;
    end = std::min(start + block_size + 1, end_of(val_.documents, i, val_.ids.size()));
  }
  fill_window(val_, "validation", start, end, row);
}

// Ids [start, end); targets that are missing are left out of the loss.
void WindowDataset::fill_window(const Part& part, std::string_view name, int64_t start, int64_t end,
                                Row row) const {
  std::vector<int64_t> window(static_cast<size_t>(end - start));
  part.ids.read(start, window);
  const auto largest = std::max_element(window.begin(), window.end());
  INK_CHECK(*largest < tokenizer_->vocab_size(), files_of(part), ": token ",
            start + (largest - window.begin()), " of the ", name, " part is id ", *largest,
            ", outside the vocabulary of ", tokenizer_->vocab_size());
  std::fill(std::copy(window.begin(), window.end() - 1, row.x.begin()), row.x.end(), 0);
  std::fill(std::copy(window.begin() + 1, window.end(), row.y.begin()), row.y.end(), kIgnored);
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
  const TokenIds all = std::visit([](const auto& ids) { return TokenIds(std::span(ids)); }, ids_);
  if (val_files.empty()) {
    use_split({all, {}}, val_fraction);
    return;
  }
  const auto cut = static_cast<int64_t>(ends[train_files.size() - 1]);
  use({all.part(0, cut), {}}, {all.part(cut, all.size()), {}}, name_of(val_files));
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
  const int64_t end_id = tokenizer_->end_of_text();
  const std::string end_token = end_id < 0 ? "" : tokenizer_->decode({&end_id, 1});
  const bool takes_any = tokenizer_->name() == "byte";  // whoever names it knows
  std::string with_token, with_zeros, with_others;      // the first file that has such bytes
  for (size_t i = 0; i < texts.size(); ++i) {
    const TextFile& text = texts[i];
    std::atomic<bool> has_token = false, has_zeros = false, has_others = false;
    const auto work = [&](size_t begin, size_t end) {
      const auto look_for = [&](std::string_view what, std::atomic<bool>& found) {
        if (what.empty() || found) return;  // it may begin here and go on behind
        const std::string_view part = text.view().substr(begin, end - begin + what.size() - 1);
        if (part.find(what) != std::string_view::npos) found = true;
      };
      look_for(end_token, has_token);
      look_for(std::string_view("\0", 1), has_zeros);
      if (!takes_any && !has_others && has_other_bytes(text.view(), begin, end)) has_others = true;
      return narrow<Id>(tokenizer_->encode_part(text.view(), begin, end), tokenizer_->vocab_size());
    };
    const auto join = [&](const std::vector<Id>& part) {
      ids.insert(ids.end(), part.begin(), part.end());
    };
    with_prefix(files[i].string(), [&] { in_parts(text, work, join); });
    if (has_token && with_token.empty()) with_token = files[i].string();
    if (has_zeros && with_zeros.empty()) with_zeros = files[i].string();
    if (has_others && with_others.empty()) with_others = files[i].string();
    texts[i] = {};
    ends.push_back(ids.size());
  }
  if (!with_others.empty()) log_message(said_of_other_bytes(with_others));
  if (!with_zeros.empty())
    log_message(with_zeros,
                ": has bytes of 0, which no text has, and they are learned; it is of "
                "another format, or was filled up",
                command_without("\\0", with_zeros));
  if (!with_token.empty() && tokenizer_->encode(end_token) != std::vector{end_id})
    log_message(
        with_token, ": ", end_token,
        " in a text is plain text, and not the token that it is in a prompt; inkling prepare",
        end_token == PrepareOptions().separator ? "" : " --separator " + for_shell(end_token),
        " makes it the token between documents, for --data FOLDER");
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
  LlmHeader header;  // of a file that is cut, what there is
  if (bytes.size() < sizeof header.magic) return 0;
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  const uint32_t swapped = __builtin_bswap32(header.magic);
  INK_CHECK(swapped != LlmHeader::kGpt2 && swapped != LlmHeader::kLlama3, name,
            ": the bytes of llm.c's token ids are in the other order; write them on a machine like "
            "this one");
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

// A run of ids in a mapped file, and what a header says of its vocabulary.
struct IdsOfFile {
  std::string name;
  std::span<const std::byte> bytes;
  size_t begin;
  TokenIds::Run run;
  int64_t vocab_size;  // 0: unknown

  size_t id_bytes() const {
    return std::visit([](auto ids) { return sizeof ids[0]; }, run);
  }
};

IdsOfFile ids_of_file(const std::filesystem::path& path, std::span<const std::byte> bytes,
                      int bytes_per_id) {
  const std::string name = path.string();
  check_is_ids(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const size_t by_header = width_by_header(name, bytes),
               by_name = path.extension() == ".u32" ? 4 : 2;
  const size_t width = by_header > 0       ? by_header
                       : bytes_per_id == 0 ? by_name
                                           : static_cast<size_t>(bytes_per_id);
  INK_CHECK(width == 2 || width == 4, name, ": expected ids of 2 or 4 bytes, got ", bytes_per_id);
  INK_CHECK(bytes.size() % width == 0, name, ": expected ids of ", width, " bytes each, got ",
            bytes.size(), " bytes");
  const size_t begin = by_header > 0 ? LlmHeader::kBytes : 0;
  IdsOfFile file{name, bytes, begin, {}, by_header == 0 ? 0 : by_header == 2 ? 50257 : 128256};
  const auto run = [&](auto id) {
    using Id = decltype(id);
    return std::span<const Id>{reinterpret_cast<const Id*>(bytes.data() + begin),
                               (bytes.size() - begin) / sizeof(Id)};
  };
  if (width == 2) file.run = run(uint16_t{});
  if (width == 4) file.run = run(uint32_t{});
  return file;
}

// How many bytes an id seems to have, if these are more than it is read with: then every second of
// such halves is nearly 0. Otherwise 0.
size_t wider_width(const IdsOfFile& file) {
  constexpr size_t kFewest = 256, kMost = 8192, kNearlyZero = 4;  // bytes, bytes, an id
  if (file.begin > 0 || file.bytes.size() < kFewest) return 0;
  for (const size_t width : {size_t{8}, size_t{4}}) {
    if (width <= file.id_bytes() || file.bytes.size() % width != 0) continue;
    size_t low = 0, high = 0;  // the largest of each half
    for (size_t at = 0; at + width <= std::min(file.bytes.size(), kMost); at += 2) {
      uint16_t word = 0;
      std::memcpy(&word, file.bytes.data() + at, sizeof word);
      size_t& largest = at % width < width / 2 ? low : high;
      largest = std::max<size_t>(largest, word);
    }
    if (high < kNearlyZero && low >= kNearlyZero) return width;
  }
  return 0;
}

// What ids of 2 bytes seem to be instead, and NumPy's name for it. Of such ids, half have a low
// byte of 128 or more, if most have a high one.
struct Seeming {
  const char *what, *dtype;  // dtype: nullptr if nothing can be converted
};
std::optional<Seeming> other_type(const IdsOfFile& file) {
  constexpr size_t kFewest = 256, kMost = 8192, kNearlyZero = 4;
  if (file.begin > 0 || file.id_bytes() != 2 || file.bytes.size() < kFewest) return {};
  const auto byte = [&](size_t at) { return std::to_integer<size_t>(file.bytes[at]); };
  size_t low = 0, high = 0, with_high = 0, ids = 0, first_of_two = 0, upper_half = 0;
  for (size_t at = 0; at + 2 <= std::min(file.bytes.size(), kMost); at += 2, ++ids) {
    low = std::max(low, byte(at)), high = std::max(high, byte(at + 1));
    with_high += byte(at + 1) > 0, upper_half += byte(at + 1) >= 128;
    if (at % 4 == 0) first_of_two = std::max(first_of_two, byte(at) + byte(at + 1));
  }
  if (first_of_two == 0 && high >= kNearlyZero)
    return {{"every second id is 0, as if they were float32", "float32"}};
  if (4 * upper_half > ids && low >= 128 && high >= 0xfe)
    return {
        {"the ids fill nearly all of the 16 bits, as the bytes of weights do, or packed data; "
         "expected token ids, of which most are small",
         nullptr}};
  if (2 * with_high < ids || low >= 128 || high < kNearlyZero) return {};
  if (low < kNearlyZero || high >= 128)
    return {{"their bytes seem to be in the other order", ">u2"}};
  return {{"all bytes are small, as if each were an id", "uint8"}};
}

void say_if_of_another_type(const IdsOfFile& file) {
  const auto convert = [&](const char* dtype) {
    if (dtype == nullptr) return std::string();
    return detail::joined(
        {"; if so, convert it: python3 -c \"import numpy, sys; numpy.fromfile(sys.argv[1], '",
         dtype, "').astype('uint32').tofile(sys.argv[2])\" ", for_shell(file.name), " ",
         converted_name(file.name, ".u32")});
  };
  if (const size_t width = wider_width(file))
    log_message(
        file.name, ": every second id is nearly 0, as if ids had ", width, " bytes",
        width == 4 ? "; if so, give the file a name that ends with .u32" : convert("int64"));
  else if (const auto other = other_type(file))
    log_message(file.name, ": ", other->what, convert(other->dtype));
}

int64_t largest_id(const IdsOfFile& file) {
  return std::visit(
      [&](auto ids) {
        std::atomic<int64_t> largest = -1;
        parallel_for(std::ssize(ids), int64_t{1} << 16, [&](int64_t from, int64_t to) {
          constexpr int64_t kPart = int64_t{1} << 20;
          for (; from < to; from += kPart) {
            const auto some = ids.subspan(static_cast<size_t>(from),
                                          static_cast<size_t>(std::min(kPart, to - from)));
            int64_t here = 0;
            for (const auto id : some) here = std::max(here, static_cast<int64_t>(id));
            for (int64_t now = largest; now < here && !largest.compare_exchange_weak(now, here);)
              continue;
            const size_t begin = file.begin + static_cast<size_t>(from) * sizeof some[0];
            release_mapped(file.bytes, begin, begin + some.size_bytes());
          }
        });
        return largest.load();
      },
      file.run);
}

// Ids of -1 and -100, with which other programs mark what is left out of the loss, are large where
// they are read without a sign.
void check_no_mark(const IdsOfFile& file, int64_t largest) {
  const int64_t values = int64_t{1} << (8 * file.id_bytes());
  if (file.id_bytes() == 4 && largest >= int64_t{1} << 20 && largest < values / 2)
    log_message(file.name, ": its largest token id is ", largest,
                "; if its ids have 2 bytes, give the file a name that ends with .bin");
  if (file.id_bytes() == 2 ? largest != values - 1 && largest != values - 100
                           : largest < values / 2)
    return;
  const std::string found = detail::joined({file.name, ": its largest token id is ", largest,
                                            ", which is ", largest - values, " with a sign"});
  if (file.id_bytes() == 2) return log_message(found, "; no id is left out of the loss");
  detail::fail({found, "; expected ids of a vocabulary: no id is left out of the loss"});
}

void fail_outside(const IdsOfFile& file, const Tokenizer& tokenizer) {
  std::visit(
      [&](auto ids) {
        const auto wrong = std::find_if(ids.begin(), ids.end(), [&](auto id) {
          return static_cast<int64_t>(id) >= tokenizer.vocab_size();
        });
        detail::fail({file.name, ": the token id at byte ",
                      file.begin + sizeof ids[0] * static_cast<size_t>(wrong - ids.begin()), " is ",
                      *wrong, ", outside the vocabulary of ", tokenizer.vocab_size(), " (",
                      tokenizer.name(),
                      "); name its text itself, or, for a new model, the tokenizer that made the "
                      "file with --tokenizer"});
      },
      file.run);
}

}  // namespace

TokenDataset::TokenDataset(const std::vector<std::filesystem::path>& files,
                           std::shared_ptr<const Tokenizer> tokenizer, const Options& options)
    : WindowDataset(name_of(files), std::move(tokenizer)) {
  std::vector<IdsOfFile> opened;
  TokenIds train, val;
  int64_t vocab_size = 0;
  std::vector<int64_t> largest;
  for (const auto* part : {&files, &options.val_files}) {
    for (const auto& file : *part) {
      files_.emplace_back(file);
      opened.push_back(ids_of_file(file, files_.back().bytes(), options.bytes_per_id));
      (part == &files ? train : val).add(opened.back().run, true);
      if (options.bytes_per_id == 0) say_if_of_another_type(opened.back());
      largest.push_back(largest_id(opened.back()));
      if (!tokenizer_) check_no_mark(opened.back(), largest.back());
      vocab_size = std::max({vocab_size, opened.back().vocab_size, largest.back() + 1});
    }
  }
  if (!tokenizer_) tokenizer_ = std::make_shared<IdTokenizer>(vocab_size);
  for (size_t i = 0; i < opened.size(); ++i)
    if (largest[i] >= tokenizer_->vocab_size()) fail_outside(opened[i], *tokenizer_);
  if (options.val_files.empty()) {
    use_split({train, {}}, options.val_fraction);
  } else {
    use({train, {}}, {val, {}}, name_of(options.val_files));
  }
}

// ---- FreshDataset, FablesDataset

int64_t FreshDataset::val_windows(int64_t block_size) const {
  INK_CHECK(block_size >= 1, "batch: expected block_size >= 1, got ", block_size);
  return (val_targets_ - 1) / block_size + 1;
}

void FreshDataset::fill_train_row(uint64_t seed, uint64_t number, Row row) const {
  fill_row(seed, number, false, row);
}

void FreshDataset::fill_val_row(int64_t window, Row row) const {
  fill_row(0, kValStream | static_cast<uint64_t>(window), true, row);
}

FablesDataset::FablesDataset(Fables language)
    : FreshDataset(100'000),
      language_(std::move(language)),
      tokenizer_(distinct_characters(language_.alphabet())) {}

std::string FablesDataset::summary() const {
  TextStream text;
  text << "fables: " << std::setprecision(2) << language_.count()
       << " stories told by rules, vocabulary of " << tokenizer_.vocab_size() << " ("
       << tokenizer_.name() << ")";
  return text.str();
}

void FablesDataset::fill_row(uint64_t seed, uint64_t index, bool, Row row) const {
  const auto length = static_cast<int64_t>(row.x.size()) + 1;
  const FableSample sample = language_.sample(seed, index, length);
  const std::vector<int64_t> ids = tokenizer_.encode(sample.text);
  std::copy(ids.begin(), ids.end() - 1, row.x.begin());
  std::copy(ids.begin() + 1, ids.end(), row.y.begin());
  std::copy(sample.best_possible.begin() + 1, sample.best_possible.end(),
            row.best_possible.begin());
}

}  // namespace ink
