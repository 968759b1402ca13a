// Datasets: splits, windows, repeatable draws, files, and every error's text.
#include "autograd/io/utf8.h"
#include "data/dataset.h"
#include "data/tasks.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/bpe/train.h"
#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

// "000 001 002 …": a text in which every window tells where it is.
std::string counting_text(int numbers) {
  std::string text;
  for (int i = 0; i < numbers; ++i) {
    std::string digits = std::to_string(i);
    text += std::string(3 - digits.size(), '0') + digits + ' ';
  }
  return text;
}

template <class Id>
std::string raw_bytes(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

std::vector<uint16_t> ids_up_to(int n) {
  std::vector<uint16_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), uint16_t{0});
  return ids;
}

// 200 ids, each its own place: 0..199.
struct Places {
  TempFolder folder;
  TokenDataset data{folder.write("ids.bin", raw_bytes(ids_up_to(200))),
                    std::make_shared<ByteTokenizer>()};
};

TEST(TextDataset, SplitsAsNanoGPT) {
  const TempFolder folder;
  const std::string text = counting_text(26) + "xyz";  // 107 characters: 96 + 11
  const TextDataset data({folder.write("text.txt", text)});
  EXPECT_EQ(data.summary(),
            (folder / "text.txt").string() +
                ": 96 tokens to train on, 11 to validate on, vocabulary of 14 (char)");
  const Batch val = data.val_window_batch(0, 1, 10);
  EXPECT_EQ(data.tokenizer().decode(val.x), text.substr(96, 10));
  EXPECT_EQ(data.tokenizer().decode(val.y), text.substr(97, 10));
  EXPECT_TRUE(val.best_possible.empty());

  // With one window only in the training part, that is what every row is.
  const Batch train = data.train_batch(1, 2, 3, 95);
  EXPECT_EQ(data.tokenizer().decode(train.x),
            text.substr(0, 95) + text.substr(0, 95) + text.substr(0, 95));
  EXPECT_EQ(data.tokenizer().decode(std::span(train.y).first(95)), text.substr(1, 95));
}

TEST(TextDataset, SamplesStartWithALineEndOrAToken) {
  const TempFolder folder;
  const auto start = [&](const char* text, double val_fraction) {
    return TextDataset({folder.write("a.txt", text)}, nullptr, val_fraction).sample_start();
  };
  EXPECT_EQ(start("ba\n", 0.5), "\n");
  EXPECT_EQ(start("bacd", 0.5), "b");
  EXPECT_EQ(start("bacd", 1), "b") << "all of it validates";
}

TEST(TextDataset, JoinsFilesInOrder) {
  const TempFolder folder;
  const auto a = folder.write("a.txt", "once "), b = folder.write("b.txt", "up\n"),
             c = folder.write("c.txt", "on é");
  const TextDataset data({b, a, c}, nullptr, 0.0);
  EXPECT_EQ(data.tokenizer().decode(data.train_batch(0, 0, 1, 11).x), "up\nonce on ");
  EXPECT_EQ(data.tokenizer().decode(data.train_batch(0, 0, 1, 11).y), "p\nonce on é");
  EXPECT_EQ(data.summary(), b.string() +
                                " and 2 more: 12 tokens to train on, 0 to validate on, vocabulary "
                                "of 9 (char)");
}

// Two bytes an id whatever the name, but for .u32.
TEST(TokenDataset, TheNameTellsTheWidth) {
  const TempFolder folder;
  const std::vector<uint16_t> narrow = ids_up_to(40);
  const std::vector<uint32_t> wide(narrow.begin(), narrow.end());
  const auto bytes = std::make_shared<ByteTokenizer>();
  for (const char* name : {"a.u16", "a.bin"}) {
    const TokenDataset data(folder.write(name, raw_bytes(narrow)), bytes);
    EXPECT_NE(data.summary().find(": 36 tokens to train on, 4 to validate on"), std::string::npos)
        << data.summary();
    EXPECT_EQ(data.val_window_batch(0, 1, 3).y, (std::vector<int64_t>{37, 38, 39})) << name;
  }
  const TokenDataset data(folder.write("a.u32", raw_bytes(wide)), bytes);
  EXPECT_NE(data.summary().find(": 36 tokens"), std::string::npos) << data.summary();
  EXPECT_EQ(data.val_window_batch(0, 1, 3).y, (std::vector<int64_t>{37, 38, 39}));
}

TEST(TextDataset, TakesAGivenTokenizer) {
  const TempFolder folder;
  const auto file = folder.write("a.txt", "é\nab");
  const TextDataset data({file}, std::make_shared<ByteTokenizer>(), 0.4);
  EXPECT_EQ(data.train_batch(0, 0, 1, 2).x, (std::vector<int64_t>{0xc3, 0xa9}));
  EXPECT_EQ(data.val_window_batch(0, 1, 1).y, std::vector<int64_t>{'b'});
}

TEST(Batches, ArePureFunctionsOfTheirArguments) {
  const Places places, again;
  const Batch batch = places.data.train_batch(7, 1000, 16, 8);
  EXPECT_EQ(batch.batch_size, 16);
  EXPECT_EQ(batch.block_size, 8);
  places.data.train_batch(7, 1001, 16, 8);
  EXPECT_EQ(places.data.train_batch(7, 1000, 16, 8).x, batch.x);
  EXPECT_EQ(again.data.train_batch(7, 1000, 16, 8).y, batch.y);
  EXPECT_NE(places.data.train_batch(8, 1000, 16, 8).x, batch.x);
  EXPECT_NE(places.data.train_batch(7, 1001, 16, 8).x, batch.x);
  const Batch val = places.data.val_batch(7, 1000, 16, 2);
  EXPECT_EQ(again.data.val_batch(7, 1000, 16, 2).x, val.x);
  EXPECT_NE(again.data.val_batch(7, 1001, 16, 2).x, val.x);
}

// A resumed run must draw what it would have drawn: these numbers never change. They were written
// by SplitMix64 in another language.
TEST(Batches, AreTheSameForEver) {
  const Places places;
  EXPECT_EQ(places.data.train_batch(1337, 0, 6, 1).x,
            (std::vector<int64_t>{28, 34, 64, 128, 70, 139}));
  EXPECT_EQ(places.data.train_batch(1337, 12345, 6, 1).x,
            (std::vector<int64_t>{68, 29, 12, 134, 52, 112}));
  EXPECT_EQ(places.data.val_batch(1337, 0, 6, 1).x,
            (std::vector<int64_t>{193, 196, 186, 183, 187, 198}));
}

TEST(Batches, ARowDoesNotDependOnHowTheStepIsSplit) {
  const Places places;
  const auto rows = [&](int64_t first, int64_t count) {
    return std::pair(places.data.train_batch(3, 5, count, 4, first).x,
                     places.data.val_batch(3, 5, count, 4, first).x);
  };
  const auto [train, val] = rows(0, 12);
  for (const auto& [first, count] : {std::pair(0, 4), std::pair(4, 7), std::pair(11, 1)}) {
    const auto [train_part, val_part] = rows(first, count);
    EXPECT_TRUE(std::equal(train_part.begin(), train_part.end(), train.begin() + first * 4));
    EXPECT_TRUE(std::equal(val_part.begin(), val_part.end(), val.begin() + first * 4));
  }
}

TEST(Batches, TargetsFollowInputsAndStayInTheirPart) {
  const Places places;  // ids are places: 0..179 to train on, 180..199 to validate on
  const Batch train = places.data.train_batch(1, 2, 4000, 5),
              val = places.data.val_batch(1, 2, 400, 5);
  for (const Batch* batch : {&train, &val}) {
    for (size_t i = 0; i < batch->x.size(); ++i) {
      EXPECT_EQ(batch->y[i], batch->x[i] + 1);
      if (i % 5 != 0) {
        EXPECT_EQ(batch->x[i], batch->y[i - 1]);
      }
    }
  }
  EXPECT_EQ(*std::min_element(train.x.begin(), train.x.end()), 0);
  EXPECT_EQ(*std::max_element(train.y.begin(), train.y.end()), 179);
  std::set<int64_t> val_starts;
  for (size_t i = 0; i < val.x.size(); i += 5) val_starts.insert(val.x[i]);
  EXPECT_EQ(val_starts, (std::set<int64_t>{180, 185, 190}));
}

TEST(Batches, EveryPlaceIsDrawnAlikeOften) {
  const Places places;
  std::vector<double> drawn(179);
  for (uint64_t step = 0; step < 1000; ++step) {
    for (const int64_t start : places.data.train_batch(99, step, 179, 1).x)
      ++drawn[static_cast<size_t>(start)];
  }
  double chi2 = 0;
  for (const double count : drawn) chi2 += (count - 1000) * (count - 1000) / 1000;
  // 178 degrees of freedom: mean 178, deviation 18.9.
  EXPECT_NEAR(chi2, 178, 4 * 18.9);
}

TEST(Batches, ValidationWindowsCoverThePartOnce) {
  const Places places;
  EXPECT_EQ(places.data.val_windows(5), 3);  // 19 targets
  EXPECT_EQ(places.data.val_windows(19), 1);
  EXPECT_EQ(places.data.val_windows(1), 19);
  EXPECT_EQ(places.data.val_window_batch(1, 2, 5).x,
            (std::vector<int64_t>{185, 186, 187, 188, 189, 190, 191, 192, 193, 194}));
  EXPECT_EQ(error_of([&] { places.data.val_window_batch(2, 2, 5); }),
            "batch: expected windows in [0, 3), got 2 from window 2");
}

TEST(Batches, RefuseSizesThatCannotBe) {
  const Places places;
  const auto error = [&](uint64_t step, int64_t batch_size, int64_t block_size, int64_t first_row) {
    return error_of([&] { places.data.train_batch(0, step, batch_size, block_size, first_row); });
  };
  EXPECT_EQ(error(0, 0, 1, 0), "batch: expected batch_size >= 1, got 0");
  EXPECT_EQ(error(0, 1, 0, 0), "batch: expected block_size >= 1, got 0");
  EXPECT_EQ(error(0, 1, 1, -1), "batch: expected rows in [0, 2^24), got 1 rows from row -1");
  EXPECT_EQ(error(0, 2, 1, (1 << 24) - 1),
            "batch: expected rows in [0, 2^24), got 2 rows from row 16777215");
  EXPECT_EQ(error(uint64_t{1} << 39, 1, 1, 0),
            "batch: expected a step below 2^39, got 549755813888");
  EXPECT_EQ(error((uint64_t{1} << 39) - 1, 1, 1, (1 << 24) - 1), "(no error)");
}

TEST(TextDataset, SaysThatATextIsTooShort) {
  const TempFolder folder;
  const auto file = folder.write("short.txt", std::string(50, 'x'));
  const TextDataset data({file});
  EXPECT_EQ(error_of([&] { data.train_batch(0, 0, 1, 45); }),
            file.string() +
                ": the training part has 45 tokens, a block of 45 needs 46: give more text, "
                "or a new model a --block_size of 4 or less");
  EXPECT_EQ(error_of([&] { TextDataset({file}, nullptr, 0.6).train_batch(0, 0, 1, 20); }),
            file.string() +
                ": the training part has 20 tokens, a block of 20 needs 21: give more text, a "
                "smaller --val_fraction, or a new model a smaller --block_size");
  EXPECT_EQ(error_of([&] { data.train_batch(0, 0, 1, 44); }), "(no error)");
  const std::string no_val = file.string() +
                             ": the validation part has 5 tokens, a block of 5 needs 6: give "
                             "more text, a larger --val_fraction, or a new model a smaller "
                             "--block_size";
  EXPECT_EQ(error_of([&] { data.val_windows(5); }), no_val);
  EXPECT_EQ(error_of([&] { data.val_batch(0, 0, 1, 5); }), no_val);
  EXPECT_EQ(error_of([&] { data.val_window_batch(0, 1, 5); }), no_val);
  const auto val = folder.write("val.txt", "xxx");
  EXPECT_EQ(error_of([&] { TextDataset({file}, nullptr, 0.1, {val}).val_windows(5); }),
            val.string() +
                ": the validation part has 3 tokens, a block of 5 needs 6: give more "
                "text, or a new model a smaller --block_size");
}

TEST(TextDataset, NamesTheFileThatCannotBeRead) {
  const TempFolder folder;
  const auto good = folder.write("good.txt", "good");
  const auto error = [&](const fs::path& file) {
    return error_of([&] { TextDataset({good, file}); });
  };
  const auto missing = folder / "missing.txt", loop = folder / "loop.txt";
  EXPECT_EQ(error(missing), missing.string() + ": cannot open: No such file or directory");
  EXPECT_EQ(error(folder.path()), folder.path().string() + ": expected a file, got a directory");
  EXPECT_EQ(error(folder.write("empty.txt", "")),
            (folder / "empty.txt").string() + ": the file is empty");
  fs::create_symlink("loop.txt", loop);
  EXPECT_EQ(error(loop), loop.string() + ": cannot open: Too many levels of symbolic links");
  EXPECT_EQ(error_of([] { TextDataset({}); }),
            "text dataset: expected at least one file, got none");
  EXPECT_EQ(error_of([&] { TextDataset({good}, nullptr, 1.5); }),
            good.string() + ": expected val_fraction in [0, 1], got 1.5");
}

TEST(TextDataset, NamesTheFileAndPlaceOfABadCharacter) {
  const TempFolder folder;
  const auto good = folder.write("good.txt", "good\n"), bad = folder.write("bad.txt", "go\xff");
  const auto other = folder.write("other.txt", "go\ndog");
  EXPECT_EQ(error_of([&] {
              TextDataset({good, bad});
            }),
            bad.string() +
                ": encode: invalid UTF-8 at byte 2 (0xff): convert the text to UTF-8 or use the "
                "byte tokenizer");
  const auto packed = folder.write("packed", "KB\2\3\xfe\x9c\xa1\4");
  EXPECT_EQ(error_of([&] { TextDataset({packed}); }),
            packed.string() +
                ": encode: invalid UTF-8 at byte 4 (0xfe): expected a text, got what "
                "is binary or packed");
  const auto tokenizer = std::make_shared<CharTokenizer>(distinct_characters("go\n"));
  EXPECT_EQ(error_of([&] { TextDataset({other}, tokenizer); }),
            other.string() +
                ": encode: character 'd' (U+0064) at line 2, column 1 is not in the vocabulary of "
                "3 characters");
}

// ---- A text is encoded in parts of 64 KB, several at a time

constexpr size_t kPart = 65536;

// What f() returns with each of 1 to 4 threads, which must be the same.
template <class F>
auto with_threads(F&& f) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto result = f();
  for (int n = 2; n <= 4; ++n) {
    omp_set_num_threads(n);
    EXPECT_EQ(f(), result) << n << " threads";
  }
  omp_set_num_threads(threads);
  return result;
}

// The only window over all of a text's `count` ids.
std::vector<int64_t> all_ids(const std::vector<fs::path>& files, size_t count,
                             std::shared_ptr<const Tokenizer> tokenizer = nullptr) {
  const TextDataset data(files, std::move(tokenizer), 0.0);
  EXPECT_NE(data.summary().find(": " + std::to_string(count) + " tokens"), std::string::npos)
      << data.summary();
  Batch batch = data.train_batch(0, 0, 1, static_cast<int64_t>(count) - 1);
  batch.x.push_back(batch.y.back());
  return batch.x;
}

std::string repeated(std::string_view text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST(TextDataset, CutsNoCharacter) {
  const TempFolder folder;
  const std::string text = repeated("é€🦊", 50'000);  // parts end within each of them
  const auto file = folder.write("text.txt", text);
  const CharTokenizer tokenizer(distinct_characters(text));
  EXPECT_EQ(with_threads([&] { return all_ids({file}, 150'000); }), tokenizer.encode(text));
  const auto bytes = std::make_shared<ByteTokenizer>();
  EXPECT_EQ(with_threads([&] { return all_ids({file}, text.size(), bytes); }), bytes->encode(text));
}

TEST(TextDataset, JoinsFilesOfAnyLength) {
  const TempFolder folder;
  std::string all;
  std::vector<fs::path> files;
  for (const size_t length : {size_t{1}, kPart - 1, kPart, size_t{2}, kPart + 1, 3 * kPart}) {
    std::string text = repeated("some é", length / 7 + 1).substr(0, length);
    if (text.back() == '\xc3') text.back() = '!';
    files.push_back(folder.write(std::to_string(length), text));
    all += text;
  }
  const CharTokenizer tokenizer(distinct_characters(all));
  const auto ids = tokenizer.encode(all);
  EXPECT_EQ(with_threads([&] { return all_ids(files, ids.size()); }), ids);
}

// A character does not go on in the next file.
TEST(TextDataset, NamesTheFileThatEndsWithinACharacter) {
  const TempFolder folder;
  const auto first = folder.write("first.txt", std::string(kPart, 'a') + "\xc3"),
             second = folder.write("second.txt", "\xa9");
  const std::string error = first.string() + ": encode: invalid UTF-8 at byte 65536 (0xc3): ";
  EXPECT_EQ(error_of([&] { TextDataset({first, second}); }).substr(0, error.size()), error);
}

TEST(TextDataset, NamesTheFirstBadPlaceOfALongText) {
  const TempFolder folder;
  const auto error = [&](const std::string& text, bool own_characters) {
    const auto file = folder.write("bad.txt", text);
    const auto tokenizer = std::make_shared<CharTokenizer>(distinct_characters("é\nabc"));
    return with_threads([&] {
      const std::string all =
          error_of([&] { TextDataset({file}, own_characters ? nullptr : tokenizer); });
      return all.substr(0, file.string().size()) == file.string()
                 ? all.substr(file.string().size() + 2)
                 : all;
    });
  };
  std::string text = repeated("éaabc\n", 50'000);  // 7 bytes, 6 characters
  text.replace(7 * 28'085 + 4, 1, "X");            // at the end of the third part
  const std::string unknown =
      "encode: character 'X' (U+0058) at line 28086, column 4 is not in the vocabulary of 5 "
      "characters";
  EXPECT_EQ(error(text, false), unknown);
  text.replace(7 * 28'090, 1, "\xff");  // at once in the next part
  EXPECT_EQ(error(text, false), unknown);
  const auto invalid = [](int byte) {
    return "encode: invalid UTF-8 at byte " + std::to_string(byte) +
           " (0xff): convert the text to UTF-8 or use the byte tokenizer";
  };
  EXPECT_EQ(error(text, true), invalid(7 * 28'090));
  text.replace(7 * 28'000, 1, "\xff");
  EXPECT_EQ(error(text, false), invalid(7 * 28'000));
  EXPECT_EQ(error(text, true), invalid(7 * 28'000));
}

// "ab" is one id: text must not be cut within it. This tokenizer says nothing about parts.
class Pairs final : public Tokenizer {
 public:
  std::string name() const override { return "pairs"; }
  int64_t vocab_size() const override { return 257; }
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool pair = text.substr(i, 2) == "ab";
      ids.push_back(pair ? last_ : static_cast<unsigned char>(text[i]));
      i += pair;
    }
    return ids;
  }
  std::string decode(std::span<const int64_t>) const override { return {}; }
  std::string to_json() const override { return {}; }

  int64_t last_ = 256;
};

TEST(TextDataset, EncodesWholeWhatMayNotBeCut) {
  const TempFolder folder;
  const std::string text = "." + repeated("ab", kPart) + "c";
  const auto file = folder.write("text.txt", text);
  const auto tokenizer = std::make_shared<Pairs>();
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(ids.size(), kPart + 2);
  EXPECT_EQ(with_threads([&] { return all_ids({file}, ids.size(), tokenizer); }), ids);
  tokenizer->last_ = 65536 + 'a';
  EXPECT_EQ(error_of([&] { TextDataset({file}, tokenizer); }),
            file.string() + ": encode: expected ids in [0, 257), got 65633");
}

// Ids have 2 bytes up to a vocabulary of 65,536.
TEST(TextDataset, KeepsTheLargestIdOfAnyVocabulary) {
  const TempFolder folder;
  for (const char32_t size : {65'536u, 65'537u}) {
    std::string text;
    for (char32_t i = 0; i < size; ++i) utf8::append(text, i < 0xd800 ? i : i + 0x800);
    const auto ids = all_ids({folder.write("text.txt", text)}, size);
    std::vector<int64_t> expected(size);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(ids, expected);
  }
}

TEST(TextDataset, ReadsWhatCannotBeMapped) {
  const TempFolder folder;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::string text = repeated("in a pipe é\n", 4'000);
  ASSERT_EQ(write(pipe_ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(pipe_ends[1]);
  const auto file = folder.write("file.txt", "a file ü");
  const fs::path in_pipe = "/dev/fd/" + std::to_string(pipe_ends[0]);
  const auto tokenizer = std::make_shared<CharTokenizer>(distinct_characters(text + "a file ü"));
  const auto ids = tokenizer->encode("a file ü" + text);
  EXPECT_EQ(all_ids({file, in_pipe}, ids.size()), ids);
  close(pipe_ends[0]);

  // A regular file of size 0, with text.
  const auto bytes = std::make_shared<ByteTokenizer>();
  EXPECT_EQ(error_of([&] { TextDataset({"/proc/self/status"}, bytes); }), "(no error)");
}

TEST(TextDataset, TakesLittleMemoryBesideItsIds) {
  const TempFolder folder;
  const std::string line = "To be, or not to be: that is the question.\n";  // 43 bytes
  const auto file = folder.write("large.txt", repeated(line, 930'233));     // 40.0 MB
  for (const bool bytes : {false, true}) {
    { const TextDataset first({file}); }  // threads and the allocator have what they keep
    std::optional<TextDataset> data;
    const auto peak = peak_memory_of([&] {
      data.emplace(std::vector{file}, bytes ? std::make_shared<ByteTokenizer>() : nullptr);
    });
    if (!peak) GTEST_SKIP() << "the peak is not known here";
    const int64_t more = *peak - 2 * static_cast<int64_t>(fs::file_size(file));
    EXPECT_LT(more, (omp_get_max_threads() + 3) << 20) << data->summary();
    EXPECT_GT(more, -(4 << 20)) << "the ids are in memory";
  }
}

TEST(TokenDataset, ReadsBothWidthsAndAValidationFile) {
  const TempFolder folder;
  const std::vector<uint32_t> wide(10, 70000), other(8, 69999);
  std::vector<char32_t> many(70001);
  std::iota(many.begin(), many.begin() + 0xd800, U'\0');
  std::iota(many.begin() + 0xd800, many.end(), char32_t{0xe000});
  const auto tokenizer = std::make_shared<CharTokenizer>(many);
  const auto by_name = folder.write("a.u32", raw_bytes(wide)),
             by_flag = folder.write("a.bin", raw_bytes(wide));
  const auto val = folder.write("val.u32", raw_bytes(other));
  EXPECT_EQ(TokenDataset(by_name, tokenizer).train_batch(0, 0, 1, 2).x,
            (std::vector<int64_t>{70000, 70000}));

  TokenDataset::Options options;
  options.bytes_per_id = 4;
  options.val_files = {val};
  const TokenDataset data(by_flag, tokenizer, options);
  EXPECT_EQ(data.summary(), by_flag.string() +
                                ": 10 tokens to train on, 8 to validate on, vocabulary of 70001 "
                                "(char)");
  EXPECT_EQ(data.train_batch(0, 0, 1, 9).y, std::vector<int64_t>(9, 70000));
  EXPECT_EQ(data.val_window_batch(0, 1, 7).x, std::vector<int64_t>(7, 69999));
}

TEST(TokenDataset, NamesTheFileThatCannotBeRead) {
  const TempFolder folder;
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const auto error = [&](const fs::path& file, int bytes_per_id = 0) {
    TokenDataset::Options options;
    options.bytes_per_id = bytes_per_id;
    return error_of([&] { TokenDataset(file, tokenizer, options); });
  };
  const auto missing = folder / "missing.bin", odd = folder.write("odd.bin", "1234567");
  const auto six = folder.write("six.u32", "123456");
  EXPECT_EQ(error(missing), missing.string() + ": cannot open: No such file or directory");
  EXPECT_EQ(error(folder.path()), folder.path().string() + ": expected a file, got a directory");
  EXPECT_EQ(error(folder.write("empty.bin", "")),
            (folder / "empty.bin").string() + ": the file is empty");
  EXPECT_EQ(error("/dev/null"), "/dev/null: expected a file, got a device");
  EXPECT_EQ(error(odd), odd.string() + ": expected ids of 2 bytes each, got 7 bytes");
  EXPECT_EQ(error(six), six.string() + ": expected ids of 4 bytes each, got 6 bytes");
  const auto even = folder.write("even.u32", std::string("1\0002\0003\000", 6));
  EXPECT_EQ(error(even, 2), "(no error)");
  EXPECT_EQ(error(six, 8), six.string() + ": expected ids of 2 or 4 bytes, got 8");
  const TokenDataset unnamed(folder.write("ids.bin", std::string("\5\0\7\1\1\0", 6)), nullptr);
  EXPECT_EQ(unnamed.tokenizer().name(), "ids");
  EXPECT_EQ(unnamed.tokenizer().vocab_size(), 264) << "the largest id and one";
}

// A tar without a mark, a TFRecord or a tail of zeros are ASCII beside them.
TEST(TextDataset, SaysWhereATextHasBytesOfZero) {
  const TempFolder folder;
  std::string said;
  set_log_callback([&](const std::string& text) { said = text; });
  const std::string good = folder.write("good.txt", "a text\n").string(),
                    bad = folder.write("bad.txt", "a text\n" + std::string(9, '\0')).string();
  for (const bool bytes : {false, true}) {
    const auto tokenizer = bytes ? std::make_shared<ByteTokenizer>() : nullptr;
    const TextDataset quiet({good}, tokenizer);
    EXPECT_EQ(said, "");
    const TextDataset told({good, bad}, tokenizer);
    EXPECT_EQ(said.rfind(bad + ": has bytes of 0, ", 0), 0u) << said;
    EXPECT_TRUE(
        said.ends_with(": tr -d '\\0' < " + bad + " > " + (folder / "bad_converted.txt").string()))
        << said;
    said.clear();
  }
  set_log_callback({});
}

// Of Latin-1, a tokenizer of bytes makes ids of half characters.
TEST(TextDataset, SaysWhereATextIsNotUtf8) {
  const TempFolder folder;
  std::string said;
  set_log_callback([&](const std::string& text) { said = text; });
  const std::string good = folder.write("good.txt", "caf\u00e9 \u20ac\n").string(),
                    long_text(size_t{200} << 10, 'a'),
                    bad = folder.write("bad.txt", long_text + "caf\xe9\n").string();
  bpe::Pieces pieces;
  const bpe::Splitter splitter(bpe::named_cuts(bpe::TrainOptions().pattern));
  bpe::count_pieces(pieces, "aaaa caf caf", splitter, [](size_t, size_t) { return true; });
  const std::shared_ptr<const Tokenizer> learned = bpe::train(std::move(pieces), {});
  const TextDataset quiet({good}, learned), of_bytes({bad}, std::make_shared<ByteTokenizer>());
  EXPECT_EQ(said, "");
  const TextDataset told({good, bad}, learned);
  EXPECT_EQ(said, bad +
                      ": has bytes that are not UTF-8, and they are learned as they are; a text "
                      "in Latin-1 is converted by: iconv -f latin1 -t utf-8 " +
                      bad + " > " + (folder / "bad_converted.txt").string());
  set_log_callback({});
}

// Where a run would learn other ids than the file has, and the bytes leave no doubt.
TEST(TokenDataset, SaysWhereIdsAreOfAnotherType) {
  const TempFolder folder;
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> ids, small, swapped, swapped_small, with_an_end;
  std::vector<float> floats;
  for (uint32_t i = 0; i < 2000; ++i) {
    const auto id = static_cast<uint16_t>(i * 7919 % 20'011), letter = uint16_t(1 + id % 65);
    bytes.push_back(static_cast<uint8_t>(letter));
    ids.push_back(id), small.push_back(letter);
    swapped.push_back(__builtin_bswap16(id)), swapped_small.push_back(__builtin_bswap16(letter));
    with_an_end.push_back(i % 10 == 9 ? uint16_t{50256} : letter);
    floats.push_back(letter);
  }
  std::string said;
  set_log_callback([&](const std::string& text) { said = text; });
  const auto told = [&](const std::string& content) {
    said.clear();
    const TokenDataset data(folder.write("train.bin", content), nullptr);
    const size_t at = said.find("sys.argv[1], '");
    return at == std::string::npos ? "" : said.substr(at + 14, said.find('\'', at + 14) - at - 14);
  };
  EXPECT_EQ(told(raw_bytes(bytes)), "uint8") << said;
  EXPECT_EQ(told(raw_bytes(swapped)), ">u2") << said;
  EXPECT_EQ(told(raw_bytes(swapped_small)), ">u2") << said;
  EXPECT_EQ(told(raw_bytes(floats)), "float32") << said;
  for (const auto& right : {ids, small, with_an_end}) {
    EXPECT_EQ(told(raw_bytes(right)), "") << said;
    EXPECT_EQ(said, "");
  }
  std::vector<float> weights;
  for (int i = 0; i < 2000; ++i) weights.push_back(std::sin(static_cast<float>(i)) / 50);
  EXPECT_EQ(told(raw_bytes(weights)), "");
  EXPECT_NE(said.find("the ids fill nearly all of the 16 bits"), std::string::npos) << said;
  set_log_callback({});
}

// As other programs mark what is left out of the loss: -1 and -100.
TEST(TokenDataset, SaysWhereAnIdIsAMark) {
  const TempFolder folder;
  std::string said;
  set_log_callback([&](const std::string& text) { said = text; });
  for (const int mark : {-1, -100}) {
    std::vector<uint16_t> ids(100, 7);
    ids[50] = static_cast<uint16_t>(mark);
    const auto file = folder.write("train.bin", raw_bytes(ids));
    const TokenDataset data(file, nullptr);
    EXPECT_NE(said.find(", which is " + std::to_string(mark) + " with a sign"), std::string::npos);
    std::vector<uint32_t> wide(100, 7);
    wide[50] = static_cast<uint32_t>(mark);
    EXPECT_NE(error_of([&] {
                TokenDataset(folder.write("train.u32", raw_bytes(wide)), nullptr);
              }).find(", which is " + std::to_string(mark) + " with a sign; expected ids of a "),
              std::string::npos);
  }
  const TokenDataset twos(folder.write("train.u32", raw_bytes(std::vector<uint16_t>(200, 49))),
                          nullptr);
  EXPECT_NE(said.find("if its ids have 2 bytes, give the file a name that ends with .bin"),
            std::string::npos);
  set_log_callback({});
}

// Read by twos, half of the ids would be no tokens.
TEST(TokenDataset, SaysWhereIdsLookWider) {
  const TempFolder folder;
  std::vector<uint32_t> wide;
  std::vector<uint16_t> narrow, few;
  for (uint32_t i = 0; i < 400; ++i) {
    wide.push_back(i * 7919 % 128'000);
    narrow.push_back(static_cast<uint16_t>(i % 65));
    few.push_back(static_cast<uint16_t>(i % 4));
  }
  std::string said;
  set_log_callback([&](const std::string& text) { said = text; });
  const auto told = [&](const std::string& name, const std::string& bytes) {
    said.clear();
    const TokenDataset data(folder.write(name, bytes), nullptr);
    return said.find("name that ends with .u32") != std::string::npos    ? 4
           : said.find("'int64').astype('uint32')") != std::string::npos ? 8
                                                                         : 0;
  };
  EXPECT_EQ(told("wide.bin", raw_bytes(wide)), 4);
  EXPECT_EQ(told("wide.u32", raw_bytes(wide)), 0);
  EXPECT_EQ(told("narrow.bin", raw_bytes(narrow)), 0);
  EXPECT_EQ(told("few.bin", raw_bytes(few)), 0);
  for (const char* name : {"widest.bin", "widest.u32"}) {  // NumPy's int64
    EXPECT_EQ(told(name, raw_bytes(std::vector<uint64_t>(wide.begin(), wide.end()))), 8) << said;
    EXPECT_EQ(told(name, raw_bytes(std::vector<uint64_t>(narrow.begin(), narrow.end()))), 8);
  }
  // Each is converted to a file of its own.
  const std::vector<uint64_t> ids(wide.begin(), wide.end());
  for (const auto& [name, converted] : {std::pair{"train.bin", "train.u32"},
                                        {"my val.bin", "my val.u32"},
                                        {"test.u32", "test_converted.u32"}}) {
    EXPECT_EQ(told(name, raw_bytes(ids)), 8);
    const std::string command = ".tofile(sys.argv[2])\" " + for_shell((folder / name).string()) +
                                " " + for_shell((folder / converted).string());
    EXPECT_TRUE(said.ends_with(command)) << said;
  }
  set_log_callback({});
}

// A file is mapped, and may be written while a run reads it.
TEST(TokenDataset, RefusesIdsThatCameLater) {
  const TempFolder folder;
  const std::vector<uint16_t> ids(20, 255), later{256};
  const auto file = folder.write("ids.bin", raw_bytes(ids));
  TokenDataset::Options options;
  options.val_fraction = 0.25;  // 15 + 5
  const TokenDataset data(file, std::make_shared<ByteTokenizer>(), options);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(36) << raw_bytes(later);
  EXPECT_EQ(error_of([&] { data.train_batch(0, 0, 8, 4); }), "(no error)");
  EXPECT_EQ(
      error_of([&] { data.val_window_batch(0, 1, 4); }),
      file.string() + ": token 3 of the validation part is id 256, outside the vocabulary of 256");
}

TEST(FablesDataset, RowsAreStoriesWithTheirFloor) {
  const Fables fables;
  const FablesDataset data;
  EXPECT_EQ(data.tokenizer().vocab_size(), static_cast<int64_t>(fables.alphabet().size()));
  const Batch batch = data.train_batch(5, 3, 2, 150, 9);
  for (int64_t row = 0; row < 2; ++row) {
    // The documented numbering: index = step * 2^24 + row.
    const FableSample sample = fables.sample(5, (3 << 24) + 9 + static_cast<uint64_t>(row), 151);
    const auto at = static_cast<size_t>(row) * 150;
    const auto text_of = [&](const std::vector<int64_t>& ids) {
      return data.tokenizer().decode(std::span(ids).subspan(at, 150));
    };
    EXPECT_EQ(text_of(batch.x), sample.text.substr(0, 150));
    EXPECT_EQ(text_of(batch.y), sample.text.substr(1));
    EXPECT_TRUE(std::equal(sample.best_possible.begin() + 1, sample.best_possible.end(),
                           batch.best_possible.begin() + row * 150));
  }
}

TEST(FablesDataset, FloorIsWhatTheLanguageSaysOfEachTarget) {
  const Fables fables;
  const FablesDataset data;
  const Batch batch = data.train_batch(11, 0, 1, 60);
  std::string prefix = data.tokenizer().decode(std::span(batch.x).first(1));
  for (size_t i = 0; i < 60; ++i) {
    const std::string next = data.tokenizer().decode(std::span(batch.y).subspan(i, 1));
    const double p = fables.next_distribution(prefix)[fables.alphabet().find(next)];
    EXPECT_NEAR(batch.best_possible[i], -std::log(p), 1e-5) << "after " << prefix;
    prefix += next;
  }
}

TEST(FablesDataset, ValidationIsFixedAndApartFromTraining) {
  const FablesDataset data, again;
  EXPECT_EQ(data.val_windows(64), 1563);  // 100,032 targets
  EXPECT_EQ(data.val_windows(1000), 100);
  EXPECT_EQ(data.val_windows(200'000), 1);
  EXPECT_EQ(error_of([&] { data.val_windows(0); }), "batch: expected block_size >= 1, got 0");
  const Batch all = data.val_window_batch(0, 100, 1000);
  EXPECT_EQ(again.val_window_batch(0, 100, 1000).x, all.x);
  EXPECT_EQ(all.best_possible.size(), 100'000u);
  const auto rows = [](const Batch& batch) {
    std::set<std::vector<int64_t>> found;
    for (auto row = batch.x.begin(); row != batch.x.end(); row += batch.block_size)
      found.insert({row, row + batch.block_size});
    return found;
  };
  const auto val = rows(all);
  EXPECT_EQ(val.size(), 100u) << "no window twice";
  for (const auto& row : rows(data.val_batch(1, 2, 50, 1000))) EXPECT_TRUE(val.count(row));
  for (const auto& row : rows(data.train_batch(0, 0, 200, 1000))) EXPECT_FALSE(val.count(row));
}

// ---- tasks

// The right answer, worked out otherwise than the dataset does.
std::string answer_to(const std::string& task, const std::string& question, int64_t size) {
  const std::string q = question.substr(0, question.size() - 1);  // without "="
  const auto number = [&](size_t at) {
    return std::stoll(q.substr(at, static_cast<size_t>(size)));
  };
  const auto wide = [](int64_t x, int64_t width) {
    std::string digits = std::to_string(x);
    while (std::ssize(digits) < width) digits.insert(0, "0");
    return digits;
  };
  if (task == "copy") return q;
  if (task == "reverse") return {q.rbegin(), q.rend()};
  if (task == "addition") return wide(number(0) + number(static_cast<size_t>(size) + 1), size + 1);
  if (task == "modular") {
    const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return {digits[(digits.find(q[0]) + digits.find(q[2])) % static_cast<size_t>(size)]};
  }
  std::string result;
  if (task == "sorting") {
    for (char digit = '0'; digit <= '9'; ++digit)
      result.append(static_cast<size_t>(std::count(q.begin(), q.end(), digit)), digit);
    return result;
  }
  std::string left = q;  // brackets: take out pairs side by side until there is none
  for (size_t at; (at = std::min(left.find("()"), left.find("[]"))) != std::string::npos;)
    left.erase(at, 2);
  for (const char open : left) result.insert(0, 1, open == '(' ? ')' : ']');
  return result;
}

TEST(TaskDataset, AnswersAreRightAndMarked) {
  for (const std::string& task : task_names()) {
    for (const int64_t size : {int64_t{0}, int64_t{2}, int64_t{5}}) {
      const TaskDataset data(task, size, 0.3);
      const int64_t width = size > 0 ? size : task == "addition" ? 3 : task == "modular" ? 61 : 8;
      const Batch batch = data.train_batch(1, 2, 3, 60), val = data.val_window_batch(1, 2, 60);
      for (const Batch* each : {&batch, &val}) {
        for (int64_t row = 0; row < each->batch_size; ++row) {
          const std::span x = std::span(each->x).subspan(static_cast<size_t>(row) * 60, 60);
          const std::string text = data.tokenizer().decode(x);
          for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
               begin = end + 1) {
            const size_t middle = text.find('=', begin) + 1;
            EXPECT_EQ(text.substr(middle, end - middle),
                      answer_to(task, text.substr(begin, middle - begin), width))
                << text;
            for (size_t i = begin; i <= end; ++i) {  // target i - 1 is character i
              if (i == 0) continue;
              const size_t target = static_cast<size_t>(row) * 60 + i - 1;
              EXPECT_EQ(each->answer[target], i < middle ? 0 : i < end ? 1 : 2) << text << i;
              if (i >= middle) {
                EXPECT_EQ(each->best_possible[target], 0);
              }
              EXPECT_EQ(each->y[target] == kIgnored, task == "modular" && i < middle) << i;
            }
          }
          const size_t last = text.rfind('\n') + 1;  // an answer that is cut off has no mark
          for (size_t i = last; i + 1 < 60; ++i)
            EXPECT_EQ(each->answer[static_cast<size_t>(row) * 60 + i] == 2, text[i + 1] == '\n');
        }
      }
    }
  }
}

// All questions of a small size, with the product of their characters' probabilities: these sum
// to 1, and questions are met as often as it says.
TEST(TaskDataset, TheBestPossibleLossIsThatOfTheQuestions) {
  for (const std::string& task : task_names()) {
    if (task == "modular") continue;  // its questions do not count
    const int64_t size = task == "brackets" ? 3 : 1, block = 20;
    const TaskDataset data(task, size);
    std::map<std::string, double> p, met;
    constexpr int kRows = 40'000;
    const Batch batch = data.train_batch(3, 0, kRows, block);
    for (int row = 0; row < kRows; ++row) {
      const auto begin = static_cast<size_t>(row * block), width = static_cast<size_t>(block);
      const std::string text = data.tokenizer().decode(std::span(batch.x).subspan(begin, width));
      // The second question of the row, whose first character is a target.
      const size_t first = text.find('\n') + 1, end = text.find('\n', first);
      ASSERT_NE(end, std::string::npos) << text;
      double loss = 0;
      for (size_t i = first; i <= end; ++i) loss += batch.best_possible[begin + i - 1];
      p[text.substr(first, end - first)] = std::exp(-loss);
      met[text.substr(first, end - first)] += 1;
    }
    double total = 0, rows = 0, chi = 0;
    for (const auto& [text, count] : met) total += p[text], rows += count;
    EXPECT_NEAR(total, 1, 1e-5) << task;
    for (const auto& [text, count] : met)
      chi += std::pow(count - rows * p[text], 2) / (rows * p[text]);
    EXPECT_LT(
        chi, static_cast<double>(met.size()) + 6 * std::sqrt(2.0 * static_cast<double>(met.size())))
        << task;
  }
}

TEST(TaskDataset, ModularQuestionsAreOfOnePart) {
  const TaskDataset data("modular", 7, 0.4);
  std::set<std::string> train, val;
  const auto questions = [&](const Batch& batch, std::set<std::string>& out) {
    const std::string text = data.tokenizer().decode(batch.x);
    for (size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1))
      if (at >= 3) out.insert(text.substr(at - 3, 3));
  };
  questions(data.train_batch(1, 0, 100, 6), train);
  questions(data.val_window_batch(0, 100, 6), val);
  EXPECT_EQ(train.size() + val.size(), 49u);
  for (const std::string& question : val) EXPECT_EQ(train.count(question), 0u) << question;
  EXPECT_GT(val.size(), 10u);
}

TEST(TaskDataset, SaysWhatItIs) {
  EXPECT_EQ(TaskDataset("modular").summary().rfind("task:modular, such as ", 0), 0u);
  EXPECT_NE(TaskDataset("addition", 2).summary().find(", vocabulary of 13 (char). A model must"),
            std::string::npos);
  EXPECT_EQ(error_of([] { TaskDataset("adition"); }),
            "--data task:adition: there is no such task; there are addition, brackets, copy, "
            "modular, reverse, sorting");
  EXPECT_EQ(error_of([] { TaskDataset("modular", 63); }),
            "task:modular: expected a size (--task_digits) of 2 to 62, got 63");
}

// Where all questions are on one side, none would ever be found on the other; and a row that ends
// before the answer has no target.
TEST(TaskDataset, EachPartHasQuestionsAndEachRowAnAnswer) {
  for (const double fraction : {0.0, 1e-9, 1 - 1e-9, 1.0})
    EXPECT_NE(error_of([&] {
                TaskDataset("modular", 5, fraction);
              }).find(" of the 25 questions for validation; expected some to validate on"),
              std::string::npos)
        << fraction;
  const TaskDataset data("modular");
  for (const int64_t block : {1, 3})
    EXPECT_EQ(error_of([&] { data.train_batch(1, 0, 2, block); }),
              "task:modular: a block of " + std::to_string(block) +
                  " holds no answer; expected a --block_size of 4 or more");
  const Batch batch = data.train_batch(1, 0, 100, 4);
  EXPECT_GT(std::count_if(batch.y.begin(), batch.y.end(), [](int64_t id) { return id >= 0; }), 90);
}

TEST(TinyShakespeare, IsAsPublishedAndQuick) {
  const fs::path file = fs::path(INKLING_SOURCE_DIR) / "../shared/data/tinyshakespeare.txt";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
  const auto start = std::chrono::steady_clock::now();
  const TextDataset data({file});
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(data.tokenizer().vocab_size(), 65);
  EXPECT_EQ(data.val_windows(1) + 1, 111540);
  EXPECT_EQ(data.summary(),
            file.string() +
                ": 1003854 tokens to train on, 111540 to validate on, vocabulary of "
                "65 (char)");
  // nanoGPT's val.bin begins so.
  const std::string opening = "?\n\nGREMIO:\nGood morrow, neighbour Baptista.";
  EXPECT_EQ(
      data.tokenizer().decode(data.val_window_batch(0, 1, static_cast<int64_t>(opening.size())).x),
      opening);
  RecordProperty("milliseconds", std::to_string(ms.count()));
  EXPECT_LT(ms.count(), 1000) << "reading and encoding 1.1 MB";
}

}  // namespace
}  // namespace ink
