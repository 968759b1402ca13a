// Tokenizers: ids, round trips, saved vocabularies, and every error's text. Data files: what they
// are known by, folders, and what nanoGPT and llm.c write.
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/data_files.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/formats.h"
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

using Ids = std::vector<int64_t>;

CharTokenizer char_tokenizer(std::string_view text) {
  return CharTokenizer(distinct_characters(text));
}

std::string decode_one_by_one(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int64_t id : ids) text += tokenizer.decode(Ids{id});
  return text;
}

TEST(CharTokenizer, NumbersCharactersByCodePoint) {
  const CharTokenizer tokenizer = char_tokenizer("hello world");
  EXPECT_EQ(tokenizer.vocab_size(), 8);  // " dehlorw"
  EXPECT_EQ(tokenizer.encode("hold"), (Ids{3, 5, 4, 1}));
  EXPECT_EQ(tokenizer.decode(Ids{7, 5, 6, 1}), "word");
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(CharTokenizer, OneIdPerCodePointOfAnyLength) {
  // The first and last code point of each length, and around the surrogates.
  const std::string text = "\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff" +
                           std::string(1, '\0') + "naïve 🦊";
  const CharTokenizer tokenizer = char_tokenizer(text);
  const Ids ids = tokenizer.encode(text);
  EXPECT_EQ(ids.size(), 17u);
  EXPECT_EQ(ids[9], 0) << "U+0000 comes first";
  EXPECT_EQ(ids[8], tokenizer.vocab_size() - 1) << "U+10FFFF comes last";
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(decode_one_by_one(tokenizer, ids), text);
}

TEST(CharTokenizer, RefusesEveryIllFormedSequence) {
  const std::pair<std::string, std::string> cases[] = {
      {"\x80", "(0x80)"},              // a continuation byte alone
      {"\xc3", "(0xc3)"},              // the text ends within a character
      {"\xe2\x82", "(0xe2)"},          //
      {"\xc3(", "(0xc3)"},             // a lead byte without its continuation
      {"\xc0\xaf", "(0xc0)"},          // overlong forms of '/', of U+07FF, of U+FFFF
      {"\xe0\x9f\xbf", "(0xe0)"},      //
      {"\xf0\x8f\xbf\xbf", "(0xf0)"},  //
      {"\xed\xa0\x80", "(0xed)"},      // a surrogate
      {"\xf4\x90\x80\x80", "(0xf4)"},  // beyond U+10FFFF
      {"\xff", "(0xff)"},
  };
  for (const auto& [ill, shown] : cases) {
    const std::string& bytes = ill;
    const std::string expected = "encode: invalid UTF-8 at byte 4 " +
                                 shown.substr(0, shown.size() - 1) +
                                 "): convert the text to UTF-8 or use the byte tokenizer";
    EXPECT_EQ(error_of([&] { distinct_characters("é\nx" + bytes); }), expected);
    EXPECT_EQ(error_of([&] { char_tokenizer("é\nx").encode("é\nx" + bytes); }), expected);
  }
}

TEST(CharTokenizer, NamesAnUnknownCharacterAndItsPlace) {
  const CharTokenizer tokenizer = char_tokenizer("ab é\n");
  EXPECT_EQ(error_of([&] { tokenizer.encode("z"); }),
            "encode: character 'z' (U+007A) at line 1, column 1 is not in the vocabulary of 5 "
            "characters");
  EXPECT_EQ(error_of([&] { tokenizer.encode("ab\n\néa b🦊"); }),
            "encode: character '🦊' (U+1F98A) at line 3, column 5 is not in the vocabulary of 5 "
            "characters");
  EXPECT_EQ(
      error_of([&] { tokenizer.encode("a\r\n"); }),
      "encode: character U+000D at line 1, column 2 is not in the vocabulary of 5 characters; "
      "Python leaves it out of a text's lines, and so does tr -d '\\r'");
  EXPECT_EQ(error_of([&] { tokenizer.encode("a\\nb"); }),
            "encode: character '\\' (U+005C) at line 1, column 2 is not in the vocabulary of 5 "
            "characters; in a shell, the end of a line is $'\\n'");
}

struct InParts {
  Ids ids;
  std::set<char32_t> characters;
  std::string encode_error, characters_error;
  bool operator==(const InParts&) const = default;
};

// What becomes of a text that is cut at these places. The first error counts.
InParts in_parts(const Tokenizer& tokenizer, std::string_view text,
                 const std::vector<size_t>& cuts) {
  Ids ids;
  std::set<char32_t> characters;
  const auto for_parts = [&](auto&& f) {
    return error_of([&] {
      for (size_t i = 0; i + 1 < cuts.size(); ++i) f(cuts[i], cuts[i + 1]);
    });
  };
  const std::string encode_error = for_parts([&](size_t begin, size_t end) {
    const Ids part = tokenizer.encode_part(text, begin, end);
    ids.insert(ids.end(), part.begin(), part.end());
  });
  const std::string characters_error = for_parts([&](size_t begin, size_t end) {
    const auto part = distinct_characters(text, begin, end);
    characters.insert(part.begin(), part.end());
  });
  if (encode_error != "(no error)") ids.clear();
  if (characters_error != "(no error)") characters.clear();
  return {ids, characters, encode_error, characters_error};
}

TEST(CharTokenizer, EncodesPartsAsTheWholeWhereverTextIsCut) {
  const CharTokenizer tokenizer = char_tokenizer("a\né€🦊");
  const std::string good[] = {"a", "\n", "é", "€", "🦊"},
                    bad[] = {"z", "ü", "\xff", "\x82", "\xc3", "\xe2\x82", "\xf0\x9f\xa6"};
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += random() % 16 == 0 ? bad[random() % 7] : good[random() % 5];
    const auto whole = in_parts(tokenizer, text, {0, text.size()});
    EXPECT_EQ(whole.encode_error, error_of([&] { EXPECT_EQ(tokenizer.encode(text), whole.ids); }));
    EXPECT_EQ(whole.characters_error, error_of([&] { distinct_characters(text); }));
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(in_parts(tokenizer, text, {0, cut, text.size()}), whole) << text << " at " << cut;
      EXPECT_EQ(in_parts(tokenizer, text, {0, cut / 2, cut, text.size()}), whole) << text;
    }
  }
}

// A part may hold an error that comes after another part's: its column must be countable then, too.
TEST(CharTokenizer, CountsColumnsAcrossInvalidBytes) {
  const CharTokenizer tokenizer = char_tokenizer("ab");
  EXPECT_EQ(error_of([&] { tokenizer.encode_part("a\xff\xff\x62z", 3, 5); }),
            "encode: character 'z' (U+007A) at line 1, column 5 is not in the vocabulary of 2 "
            "characters");
}

// There are 1.1 million code points; a short text must not cost a look at each of them.
TEST(CharTokenizer, DistinctCharactersOfAShortTextAreQuick) {
  const auto start = std::chrono::steady_clock::now();
  for (int repeat = 0; repeat < 1000; ++repeat) distinct_characters("a🦊");
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  EXPECT_LT(ms.count(), 200);  // 1.1 s if it does
}

TEST(CharTokenizer, RefusesIdsAndVocabulariesThatCannotBe) {
  const CharTokenizer tokenizer = char_tokenizer("ab");
  EXPECT_EQ(error_of([&] {
              tokenizer.decode(Ids{0, 2});
            }),
            "decode: id 2 is outside the vocabulary of 2");
  EXPECT_EQ(error_of([&] { tokenizer.decode(Ids{-1}); }),
            "decode: id -1 is outside the vocabulary of 2");
  EXPECT_EQ(error_of([] { CharTokenizer({}); }),
            "char tokenizer: expected at least one character, got none");
  EXPECT_EQ(error_of([] {
              CharTokenizer({U'a', 0xd800});
            }),
            "char tokenizer: expected a code point, got U+D800");
  EXPECT_EQ(error_of([] {
              CharTokenizer({U'a', 0x110000});
            }),
            "char tokenizer: expected a code point, got U+110000");
}

TEST(ByteTokenizer, TakesAnyBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.encode("a\xff\n"), (Ids{97, 255, 10}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  EXPECT_EQ(decode_one_by_one(tokenizer, tokenizer.encode("é🦊")), "é🦊");
  EXPECT_EQ(error_of([&] { tokenizer.decode(Ids{256}); }),
            "decode: id 256 is outside the vocabulary of 256");
}

TEST(ByteTokenizer, EncodesParts) {
  EXPECT_EQ(ByteTokenizer().encode_part("éa", 1, 3), (Ids{0xa9, 'a'}));
  EXPECT_EQ(ByteTokenizer().encode_part("éa", 3, 3), Ids{});
}

// One whose ids of a whole are not those of its parts says nothing about parts.
TEST(Tokenizer, EncodesAllInTheFirstPartByDefault) {
  class Length final : public Tokenizer {
   public:
    std::string name() const override { return "length"; }
    int64_t vocab_size() const override { return 100; }
    Ids encode(std::string_view text) const override { return {static_cast<int64_t>(text.size())}; }
    std::string decode(std::span<const int64_t>) const override { return {}; }
    std::string to_json() const override { return {}; }
  };
  EXPECT_EQ(Length().encode_part("abc", 0, 1), Ids{3});
  EXPECT_EQ(Length().encode_part("abc", 1, 3), Ids{});
}

TEST(SavedTokenizer, ComesBackEqual) {
  const TempFolder folder;
  const std::string text = std::string("\0\"\\\n/ aé€🦊", 16);
  const CharTokenizer saved = char_tokenizer(text);
  const auto loaded = load_tokenizer(folder.write("tokenizer.json", saved.to_json()));
  EXPECT_EQ(loaded->name(), "char");
  EXPECT_EQ(loaded->vocab_size(), saved.vocab_size());
  EXPECT_EQ(loaded->encode(text), saved.encode(text));
  EXPECT_EQ(loaded->to_json(), saved.to_json());

  EXPECT_EQ(char_tokenizer("ba\n").to_json(), R"({"characters":"\nab","tokenizer":"char"})");
  EXPECT_EQ(parse_tokenizer(ByteTokenizer().to_json())->name(), "byte");
}

TEST(SavedTokenizer, SaysWhatIsWrong) {
  const auto error = [](std::string_view json) { return error_of([&] { parse_tokenizer(json); }); };
  EXPECT_EQ(error("{\"tokenizer\": oops}"), "tokenizer: invalid JSON at byte 15");
  EXPECT_EQ(error("[1e999]"), "tokenizer: invalid JSON: a number is out of range");
  const std::string expected =
      "tokenizer: expected \"tokenizer\" to be \"char\", \"byte\" or \"ids\", or \"model\" as "
      "in a tokenizer.json, got ";
  EXPECT_EQ(error("[1, 2]"), expected + "none");
  EXPECT_EQ(error(R"({"characters": "ab"})"), expected + "none");
  EXPECT_EQ(error(R"({"tokenizer": 3})"), expected + "3");
  EXPECT_EQ(error(R"({"tokenizer": "word"})"),
            expected + "\"word\"; a program adds its own by add_tokenizer");
  EXPECT_EQ(error(R"({"tokenizer": "char"})"),
            "tokenizer: expected \"characters\", a string of the vocabulary, got none");
  EXPECT_EQ(error(R"({"tokenizer": "char", "characters": ["a"]})"),
            "tokenizer: expected \"characters\", a string of the vocabulary, got array");
  EXPECT_EQ(error(R"({"tokenizer": "char", "characters": ""})"),
            "tokenizer: expected at least one of \"characters\", got an empty string");
  EXPECT_EQ(
      error(R"({"tokenizer": "char", "characters": "acb"})"),
      "tokenizer: expected \"characters\" in the order of their code points, got 'b' (U+0062) "
      "after 'c' (U+0063)");
  EXPECT_EQ(
      error(R"({"tokenizer": "char", "characters": "abb"})"),
      "tokenizer: expected \"characters\" in the order of their code points, got 'b' (U+0062) "
      "after 'b' (U+0062)");
}

std::string raw(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(SavedTokenizer, NamesTheFile) {
  const TempFolder folder;
  const auto missing = folder / "none.json";
  EXPECT_EQ(error_of([&] { load_tokenizer(missing); }),
            missing.string() + ": cannot open: No such file or directory");
  const auto bad = folder.write("bad.json", "{");
  EXPECT_EQ(error_of([&] { load_tokenizer(bad); }),
            bad.string() + ": tokenizer: invalid JSON at byte 2");
  for (const auto& [name, bytes, what] : std::vector<std::array<std::string, 3>>{
           {"a.model", "minbpe v1\n\n0\n", "a model of minbpe"},
           {"tokenizer.bin", raw("1b00000000000000050000003c756e6b3e"),
            "a file of another kind"}}) {
    const auto other = folder.write(name, bytes);
    const std::string error = error_of([&] { load_tokenizer(other); });
    EXPECT_EQ(error.rfind(other.string() + ": expected a tokenizer.json, got " + what, 0), 0u)
        << error;
  }
}

TEST(SavedTokenizer, OfARun) {
  const TempFolder folder;
  const std::string saved = char_tokenizer("ab").to_json();
  std::filesystem::create_directories(folder / "run/ckpt");
  folder.write("run/ckpt/config.json", R"({"model": "gpt", "vocabulary": )" + saved + "}");
  folder.write("run/ckpt/state.json", "{}");
  for (const char* name : {"run", "run/ckpt", "run/ckpt/config.json"})
    EXPECT_EQ(load_tokenizer(folder / name)->to_json(), saved) << name;
  for (const char* name : {"best", "ckpt.prev"}) {  // which a run may have alone
    const auto run = folder / "of" / name;
    std::filesystem::create_directories(run);
    std::filesystem::copy(folder / "run/ckpt", run);
    EXPECT_EQ(load_tokenizer(folder / "of")->to_json(), saved) << name;
    std::filesystem::remove_all(folder / "of");
  }
  const auto other = folder.write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(error_of([&] { load_tokenizer(other); }),
            other.string() +
                ": expected the config.json of a run, with its \"vocabulary\", got another; name "
                "the folder that it is in, or a tokenizer.json");
}

// ---- data files

using Paths = std::vector<std::filesystem::path>;

// ASCII in units of `width` bytes, with the low byte first or last.
std::string units(std::string_view text, size_t width, bool low_first) {
  std::string bytes;
  for (const char c : text) {
    std::string unit(width, '\0');
    unit[low_first ? 0 : width - 1] = c;
    bytes += unit;
  }
  return bytes;
}

TEST(DataFiles, WellKnownFormatsAreNamed) {
  const TempFolder folder;
  const std::string tar = std::string(257, 'a') + "ustar";
  for (const auto& [bytes, name] : std::vector<std::pair<std::string, std::string>>{
           {raw("1f8b0800"), "gzip; unpack it: gunzip --keep "},
           {raw("504b0304140000"), "a ZIP archive"},
           {raw("28b52ffd24"), "zstd; unpack it: unzstd "},
           {raw("fd377a585a00"), "xz; unpack it: unxz --keep "},
           {"BZh91AY&SY", "bzip2; unpack it: bunzip2 --keep "},
           {raw("377abcaf271c0004"), "a 7z archive"},
           {tar, "a tar archive; unpack it: tar xf "},
           {"%PDF-1.7\n", "a PDF; convert it: pdftotext "},
           {raw("504152311504"), "a Parquet file; convert it: python3 -c "},
           {raw("934e554d50590100"), "an array of NumPy; "},
           {raw("80047d94"), "a pickle of Python; it holds no text"},
           {raw("800263"), "a pickle of Python or PyTorch"},
           {raw("5800000000000000") + "{\"wte\":", "weights in a safetensors file"},
           {"GGUF" + raw("03000000"), "weights in a GGUF file"},
           {raw("c8d7340102000000"), "a tokenizer of llm.c; it decodes ids, but has no merges"},
           {raw("c6d7340103000000"), "weights or another file of llm.c; it holds no text"},
           {raw("88d8340101000000"), "token ids of llm.c; --data reads them, if they are called"},
           {raw("a1d9340107000000"), "token ids of llm.c"},
           {raw("0a0e0a053c756e6b3e15"), "a vocabulary of SentencePiece; it is not read here"},
           {"LZIP" + raw("010c"), "lzip; unpack it: lzip --decompress --keep "},
           {raw("789c4b4c4a0600024d0127"), "data compressed by zlib"},
           {raw("78014b4c4a0100"), "data compressed by zlib"},
           {raw("785e4b4c4a060000024d"), "data compressed by zlib"},
           {raw("5f2a4d1804000000"), "zstd; unpack it: unzstd "},
           {raw("02214c18"), "lz4; unpack it: unlz4 "},
           {"PK" + raw("0708504b0304"), "a ZIP archive"},
           {raw("ffffffff7801000010000000"), "an Arrow stream (as Hugging Face's save_to_disk"},
           {std::string(60, 'a') + "BOOKMOBI", "a book for Kindle; convert it: ebook-convert "},
           {"!<arch>\ndebian-binary", "an archive (as .deb and .a are); unpack it: ar x "},
           {"RIFF" + raw("24080000") + "WAVEfmt ", "sound"},
           {"ID3" + raw("0400000000"), "sound"},
           {raw("00000020") + "ftypisom", "a film or sound"},
           {"BM" + raw("3600000000000000"), "a picture"},
           {"MZ" + raw("9000030000"), "a program"},
           {"Obj" + raw("0104"), "an Avro file"},
           {"version https://git-lfs.github.com/spec/v1\noid", "Git LFS; get that file: git lfs"},
           {raw("fffe") + units("ab", 2, true), "UTF-16; convert it: iconv -f UTF-16 -t UTF-8 "},
           {raw("feff") + units("ab", 2, false), "UTF-16; convert it: iconv -f UTF-16 -t UTF-8 "},
           {raw("fffe0000") + units("ab", 4, true), "UTF-32; convert it: iconv -f UTF-32 -t "},
           {raw("0000feff") + units("ab", 4, false), "UTF-32; convert it: iconv -f UTF-32 -t "},
           {units("abc", 2, true), "UTF-16; convert it: iconv -f UTF-16LE -t UTF-8 "},
           {units("abc", 2, false), "UTF-16; convert it: iconv -f UTF-16BE -t UTF-8 "},
           {units("ab", 4, true), "UTF-32; convert it: iconv -f UTF-32LE -t UTF-8 "},
           {units("ab", 4, false), "UTF-32; convert it: iconv -f UTF-32BE -t UTF-8 "}}) {
    const std::string file = folder.write("a b", bytes).string();
    const std::string error =
        error_of([&] { TextDataset({file}, std::make_shared<ByteTokenizer>()); });
    EXPECT_EQ(error.rfind(file + ": expected UTF-8 text, got ", 0), 0u) << error;
    EXPECT_NE(error.find(name), std::string::npos) << error;
    if (error.find("it:") != std::string::npos) {
      EXPECT_NE(error.find("'" + file + "'"), std::string::npos) << error;
    }
    EXPECT_EQ(error_of([&] { load_tokenizer(file); }), error);
  }
  // Texts that begin nearly so.
  for (const std::string text : {"PK is short",
                                 "BZh",
                                 "BZh9 1AY&SY",
                                 "ustar",
                                 "GIF",
                                 "PAR1 is one",
                                 "GGUF is a format",
                                 "%PD",
                                 "version 1",
                                 "MZ",
                                 "MZa is",
                                 "BM is one",
                                 "ID3 tags",
                                 "Obj",
                                 "RIFF is a format",
                                 "xar!",
                                 "]",
                                 "7z",
                                 "a\0b",
                                 "x^2 + y^2",
                                 "x\u0680\u0680",
                                 "*M"})
    EXPECT_EQ(error_of([&] { TextDataset({folder.write("a", text)}); }), "(no error)") << text;
}

TEST(DataFiles, AByteOrderMarkIsNoToken) {
  const TempFolder folder;
  const std::string mark = "\xef\xbb\xbf";
  const auto a = folder.write("a", mark + "abc\n"), b = folder.write("b", mark + "cd" + mark);
  for (const bool bytes : {false, true}) {
    const TextDataset data({a, b}, bytes ? std::make_shared<ByteTokenizer>() : nullptr, 1);
    const int64_t windows = data.val_windows(1);
    EXPECT_EQ(data.tokenizer().decode(data.val_window_batch(0, windows, 1).x),
              bytes ? "abc\ncd\xef\xbb" : "abc\ncd");  // the mark at its end is a character
    EXPECT_EQ(data.tokenizer().vocab_size(), bytes ? 256 : 6);
  }
  EXPECT_EQ(error_of([&] { TextDataset({folder.write("c", mark)}); }),
            (folder / "c").string() + ": the file is empty");
  EXPECT_EQ(load_tokenizer(folder.write("d", mark + R"({"tokenizer": "byte"})"))->name(), "byte");
}

TEST(DataFiles, ValidationFilesValidateAndAllElseTrains) {
  const TempFolder folder;
  const Paths train{folder.write("a", "aab"), folder.write("b", "ba")},
      val{folder.write("c", "ca"), folder.write("d", "d")};
  const TextDataset data(train, nullptr, 0.5, val);
  EXPECT_NE(data.summary().find(": 5 tokens to train on, 3 to validate on, vocabulary of 4"),
            std::string::npos)
      << data.summary();
  EXPECT_EQ(data.tokenizer().decode(data.train_batch(0, 0, 1, 4).x), "aabb");
  EXPECT_EQ(data.tokenizer().decode(data.val_window_batch(0, 1, 2).y), "ad");
}

TEST(DataFiles, SamplesStartALine) {
  const TempFolder folder;
  const auto start = [&](const std::string& text, bool bytes) {
    return TextDataset({folder.write("a", text)},
                       bytes ? std::make_shared<ByteTokenizer>() : nullptr)
        .sample_start();
  };
  EXPECT_EQ(start("One\nTwo\nThree\n", false), "\n");
  EXPECT_EQ(start("One, two, three, four", false), "O");  // no line end in the vocabulary
  EXPECT_EQ(start("One, two, three, four", true), "\n");
  EXPECT_EQ(start("\xc3\xa9", false), "\xc3\xa9");
  const std::string fable = FablesDataset().sample_start();
  EXPECT_TRUE(fable.size() == 1 && fable[0] >= 'A' && fable[0] <= 'Z') << fable;
}

// The names of data_files, without the folder.
std::string files_of(const std::vector<std::string>& data,
                     const std::vector<std::string>& val_data = {}) {
  std::string names;
  const std::string error = error_of([&] {
    const DataFiles files = data_files(data, val_data);
    for (const auto& file : files.train) names += file.filename().string() + " ";
    names += "|";
    for (const auto& file : files.val) names += " " + file.filename().string();
    if (files.are_ids) names += " ids";
    if (!files.note.empty()) names += "; " + files.note.substr(files.note.find(": ") + 2);
  });
  return error == "(no error)" ? names : error;
}

TEST(DataFiles, AFolderStandsForItsFiles) {
  const TempFolder folder;
  const std::string all = folder.path().string();
  const std::string expected = "--data: " + all +
                               ": expected text files in this folder (*.txt, or nothing but UTF-8 "
                               "texts), or token ids in train.bin";
  EXPECT_EQ(files_of({all}), expected + ", found none");
  folder.write("README.md", "what is here");
  folder.write("requirements.txt", "numpy");
  folder.write("empty", "");
  folder.write(".hidden", "x");
  std::filesystem::create_directory(folder / "sub");
  EXPECT_EQ(files_of({all}), expected + ", found README.md, empty, requirements.txt and 1 more");
  const std::string b = folder.write("b.md", "b").string();
  folder.write("a", "a");
  EXPECT_EQ(files_of({all}),
            "a b.md |; 2 text files, a to b.md; left out: README.md, empty, "
            "requirements.txt and 1 more");
  // What a folder of texts does not hold: data to be made, or in a form that is not read.
  for (const auto& [name, bytes, why] : std::vector<std::array<std::string, 3>>{
           {"prepare.py", "import numpy", " is a program; if it makes the data, run it first"},
           {"c.parquet", raw("504152311500"), ": expected UTF-8 text, got a Parquet file; convert"},
           {"tokens.u32", "abcd", " looks like token ids: --data " + all + "/tokens.u32"},
           {"train.npy", raw("934e554d50590100"), ": expected UTF-8 text, got an array of NumPy"},
           {"shard_00000.ids", "abcd", " is of data that prepare has not finished; give the same"},
           {"c.gz", raw("1f8b08"), ": expected UTF-8 text, got data compressed by gzip; unpack"},
           {"d.db", std::string("x\0y", 3), " is no text"}}) {
    const auto other = folder.write(name, bytes);
    const std::string error = files_of({all});
    EXPECT_EQ(error.rfind(expected + "; " + other.string() + why, 0), 0u) << error;
    EXPECT_NE(error.find("or a pattern, such as '" + all + "/*.md'"), std::string::npos) << error;
    EXPECT_EQ(files_of({all + "/*.md"}), "README.md b.md |");
    std::filesystem::remove(other);
  }
  folder.write("c.gz", raw("1f8b08"));
  const std::string z = folder.write("z.txt", "z").string();
  folder.write("empty.txt", "");
  EXPECT_EQ(files_of({all}),
            "z.txt |; 1 text file, z.txt; left out: README.md, a, b.md and 5 more");
  folder.write("y.txt", raw("1f8b08"));
  EXPECT_NE(files_of({all}).find("y.txt: expected UTF-8 text, got"), std::string::npos);
  EXPECT_EQ(files_of({z, b}, {b}),
            "z.txt b.md | b.md; its validation loss says nothing of other text");
  const std::string val = folder.write("my_val.bin", "abab").string(),
                    train = folder.write("my_train.bin", "abab").string();
  EXPECT_EQ(files_of({all}), "my_train.bin | my_val.bin ids");
  EXPECT_EQ(data_files({train}, {}).note,
            val + " is left out (--val_data " + val + " validates on it)");
  folder.write("val.bin", "abab");
  folder.write("train.bin", "abab");
  EXPECT_EQ(files_of({all}),
            "train.bin | val.bin ids; train.bin and val.bin; left out: "
            "my_train.bin, my_val.bin");
  EXPECT_EQ(files_of({all + "/train.bin"}, {all + "/val.bin"}), "train.bin | val.bin ids");
  const std::string three = (folder / "three").string();
  std::filesystem::create_directory(three);
  for (const char* name : {"three/train.bin", "three/valid.bin", "three/test.bin"})
    folder.write(name, "abab");
  EXPECT_EQ(files_of({three}),
            "train.bin | ids; train.bin; left out: test.bin, valid.bin "
            "(--val_data FILE validates on one)");
  EXPECT_EQ(files_of({train}, {all}).rfind("my_train.bin | val.bin ids", 0), 0u);
  EXPECT_EQ(files_of({all}, {val}).rfind("train.bin | my_val.bin ids", 0), 0u);
  const std::string joined = "--data: expected files of token ids to train on, got " + val +
                             ", by its name one to validate on, among 2; it is named so: --data " +
                             train + " --val_data " + val;
  EXPECT_EQ(files_of({train, val}), joined);
  EXPECT_EQ(files_of({val, train}), joined);
  EXPECT_EQ(files_of({z}, {val}), "--val_data: expected text files, as --data names, got " + val);
  EXPECT_EQ(files_of({val}, {z}),
            "--val_data: expected files of token ids, as --data names, got " + z);
  const std::string kinds = "--data: expected files of one kind, got ";
  EXPECT_EQ(files_of({z, all}), kinds + z + " (text) and " + all +
                                    "/train.bin (token ids); inkling prepare makes one folder of "
                                    "many texts");
  EXPECT_EQ(files_of({all + "/*r*i*.*"}).rfind(kinds, 0), 0u) << files_of({all + "/*r*i*.*"});
  std::filesystem::create_directory(folder / "more");
  const std::string more = folder.write("more/train.bin", "abab").string();
  folder.write("more/val.bin", "abab");
  EXPECT_EQ(files_of({all + "/more", all}).rfind("train.bin train.bin | val.bin val.bin ids", 0),
            0u);
  EXPECT_EQ(files_of({all, more}).rfind("train.bin train.bin | val.bin ids", 0), 0u);
  std::filesystem::remove(folder / "train.bin");
  std::filesystem::remove(folder / "val.bin");
  folder.write("other_train.bin", "abab");
  EXPECT_EQ(files_of({all}), "--data: " + all +
                                 ": expected one file of token ids to train on and one to validate "
                                 "on, got 2 and 1; name them: --data TRAIN.bin --val_data VAL.bin");
  const std::string wide = (folder / "wide").string();
  std::filesystem::create_directory(wide);
  folder.write("wide/train.u32", "abcdabcd");
  folder.write("wide/val.u32", "abcd");
  EXPECT_EQ(files_of({wide}), "train.u32 | val.u32 ids");
  folder.write("wide/train.bin", "abcdefgh");  // of which train.u32 was made
  EXPECT_EQ(files_of({wide}),
            "train.u32 | val.u32 ids; train.u32 and val.u32; left out: train.bin");
  const std::string arrays = (folder / "arrays").string();
  std::filesystem::create_directory(arrays);
  folder.write("arrays/train.npy", raw("934e554d50590100"));
  EXPECT_EQ(files_of({arrays}).find("or a pattern"), std::string::npos) << files_of({arrays});
  EXPECT_TRUE(files_of({arrays}).ends_with(".astype('uint32').tofile(sys.argv[2])\" " + arrays +
                                           "/train.npy " + arrays + "/train.u32"))
      << files_of({arrays});
  const std::string wide_text = folder.write("a.u16.txt", raw("fffe6100")).string();
  EXPECT_TRUE(files_of({wide_text}).ends_with(" > " + all + "/a.u16_converted.txt"));
  const std::string loud = (folder / "loud").string();
  std::filesystem::create_directory(loud);
  folder.write("loud/A.TXT", "a");
  folder.write("loud/b.bin", "abab");
  EXPECT_EQ(files_of({loud}), "A.TXT |; 1 text file, A.TXT; left out: b.bin");
  const std::string a_run = (folder / "run").string();
  std::filesystem::create_directories(a_run + "/ckpt");
  folder.write("run/metrics.jsonl", "{}");
  EXPECT_EQ(files_of({a_run}), "--data: " + a_run +
                                   ": this is the folder of a run; expected texts. Those that it "
                                   "wrote are in its folder samples");
  EXPECT_EQ(files_of({z}, {"/dev/zero"}), "--val_data: /dev/zero: expected a file, got a device");
  EXPECT_EQ(files_of({"fables"}),
            "--data: fables: there is no such file; the built-in language needs none: train "
            "without --data learns it");
  std::filesystem::create_directory(folder / "a,b");
  folder.write("a,b/c.txt", "a");
  EXPECT_EQ(files_of({(folder / "a,b/*.txt").string()}), "c.txt |");
  EXPECT_EQ(files_of({(folder / "a,b/?,*.txt").string()}),
            "--data: " + (folder / "a,b/?,*.txt").string() +
                ": there is no such file; several stand apart, as in a.txt b.txt");
  EXPECT_EQ(files_of({"s://x/*.txt"}),
            "--data: s://x/*.txt: there is no such file; nothing is fetched: download it, and name "
            "its file");
  EXPECT_EQ(files_of({folder / "none"}),
            "--data: " + (folder / "none").string() + ": cannot open: No such file or directory");
}

// As PyTorch's wikitext-2 and TinyStories come.
TEST(DataFiles, TextsOfAFolderStandApartByTheirNames) {
  const TempFolder folder;
  const auto got = [&](const std::vector<std::string>& names) {
    std::filesystem::create_directory(folder / "d");
    for (const std::string& name : names) folder.write("d/" + name, "some text");
    const std::string files = files_of({(folder / "d").string()});
    std::filesystem::remove_all(folder / "d");
    return files;
  };
  EXPECT_EQ(got({"train.txt", "dev.txt"}).find("train.txt | dev.txt; "), 0u);
  EXPECT_EQ(got({"train.txt", "valid.txt", "test.txt", "README.md"}),
            "train.txt | valid.txt; 1 text file, train.txt, and to validate on, valid.txt; left "
            "out: test.txt, README.md");
  EXPECT_EQ(got({"wiki.train.tokens", "wiki.test.tokens"}),
            "wiki.train.tokens |; 1 text file, wiki.train.tokens; left out: wiki.test.tokens "
            "(--val_data FILE validates on one)");
  for (const char* val : {"TinyStoriesV2-GPT4-valid.txt", "Tiny_VAL.txt", "a validation 2.txt"}) {
    const std::string files = got({"TinyStoriesV2-GPT4-train.txt", val});
    EXPECT_EQ(files.find("TinyStoriesV2-GPT4-train.txt | " + std::string(val) + ";"), 0u) << files;
  }
  EXPECT_EQ(got({"train.1.txt", "train.2.txt", "val.txt"}).find("train.1.txt train.2.txt | val.t"),
            0u);
  // A word that merely holds one of these says nothing, nor does one without its counterpart.
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"training_manual.txt", "valley.txt"},
                                             {"medieval.txt", "train.txt"},
                                             {"test.txt", "valid.txt"},
                                             {"train.txt", "train_test.txt"},
                                             {"a_story.txt", "how_to_train.txt", "the_test.txt"}}) {
    std::string all;
    for (const std::string& name : names) all += name + " ";
    EXPECT_EQ(got(names).find(all + "|; "), 0u) << got(names);
  }
  EXPECT_EQ(got({"notes.txt", "train.txt", "val.txt"}),
            "--data: " + (folder / "d").string() +
                ": train.txt and others seem to be parts of one text, and notes.txt of none; name "
                "what to train on, and what to validate on: --data TRAIN --val_data VAL; or all: "
                "--data '" +
                (folder / "d").string() + "/*.txt'");
}

TEST(DataFiles, PartsThatAreNamedOneByOneAreSaidToBeJoined) {
  const TempFolder folder;
  const std::string train = folder.write("a train.txt", "a").string(),
                    valid = folder.write("a valid.txt", "b").string(),
                    test = folder.write("a test.txt", "c").string();
  const std::string joined = ", by their names parts of one text, are joined";
  EXPECT_EQ(data_files({train, valid}, {}).note, "a train.txt and a valid.txt" + joined +
                                                     "; to keep them apart: --data '" + train +
                                                     "' --val_data '" + valid + "'");
  EXPECT_EQ(data_files({train, test}, {}).note, "a train.txt and a test.txt" + joined);
  EXPECT_EQ(data_files({train, test}, {valid}).note, "a train.txt and a test.txt" + joined);
  EXPECT_EQ(data_files({train}, {valid}).note, "");
  EXPECT_EQ(data_files({valid, test}, {}).note, "");
}

// A loss on what is trained on says nothing, unless somebody wants just that.
TEST(DataFiles, WhatIsNamedTwiceIsSaid) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "d");
  const std::string a = folder.write("d/a.txt", "a").string(),
                    valid = folder.write("d/valid.txt", "b").string(),
                    all = (folder / "d/*.txt").string();
  const std::string both =
      " is both trained on and validated on: its validation loss says nothing "
      "of other text";
  EXPECT_EQ(data_files({all}, {valid}).note, valid + both);
  EXPECT_EQ(data_files({a}, {(folder / "d/../d/a.txt").string()}).note,
            (folder / "d/../d/a.txt").string() + both);
  EXPECT_EQ(data_files({a, valid, a}, {}).note, a + " is named twice, and is read twice");
  EXPECT_EQ(data_files({a}, {valid}).note, "");
}

// Python, and so nanoGPT, reads them as one character.
TEST(DataFiles, LineEndsOfWindowsAreSaid) {
  const TempFolder folder;
  const std::string a = folder.write("a.txt", "a\r\nb\r\n").string(),
                    b = folder.write("b.txt", "a\nb\r\n").string(),
                    said = a +
                           ": its lines end with \\r\\n, and both characters are learned; Python "
                           "reads them as \\n; to leave \\r out: tr -d '\\r' < " +
                           a + " > " + (folder / "a_converted.txt").string();
  EXPECT_EQ(data_files({b, a}, {}).note, said);
  EXPECT_EQ(data_files({b}, {a}).note, said);
  EXPECT_EQ(data_files({b}, {}).note, "");
}

// As people unpack wikitext. prepare takes what lies in such folders.
TEST(DataFiles, TextsOfFoldersInAFolderAreAskedFor) {
  const TempFolder folder;
  for (const char* name : {"wiki/train", "wiki/valid", "books/a b", "books/c"})
    std::filesystem::create_directories(folder / name);
  folder.write("wiki/train/a.txt", "a");
  folder.write("wiki/valid/a.txt", "a");
  folder.write("books/a b/a.txt", "a");
  folder.write("books/c/a.txt", "a");
  const std::string wiki = (folder / "wiki").string(), books = (folder / "books").string(),
                    instead = "; files of folders in it are not taken; name the folder: --data ";
  EXPECT_TRUE(files_of({wiki}).ends_with(", found train, valid" + instead + wiki +
                                         "/train --val_data " + wiki + "/valid"))
      << files_of({wiki});
  EXPECT_TRUE(
      files_of({books}).ends_with(", found a b, c" + instead + "'" + books + "/a b' and others"))
      << files_of({books});
}

// Somebody may expect that only the texts in such a file are learned.
TEST(DataFiles, TextsWithFieldsAreSaidToBeTakenWhole) {
  const TempFolder folder;
  const std::string plain = folder.write("a.txt", "a").string(),
                    whole = ": all of it is taken as plain text, names of fields, too";
  EXPECT_EQ(data_files({plain}, {}).note, "");
  for (const char* name : {"b.json", "b.csv", "b.jsonl"}) {
    const std::string file = folder.write(name, R"({"text": "x"})").string();
    const std::string prepare = "; inkling prepare takes the field \"text\" of each line",
                      note = file + whole + (file.ends_with("jsonl") ? prepare : "");
    EXPECT_EQ(data_files({plain, file}, {}).note, note);
    EXPECT_EQ(data_files({plain}, {file}).note, note);
  }
  const auto of_text = [&](const std::string& text) {
    return data_files({plain, folder.write("lines.txt", text).string()}, {}).note;
  };
  const std::string note = (folder / "lines.txt").string() + whole;
  for (const char* lines : {"{\"text\": \"x\"}\n{}\n", "{ \"text\": \"x\"}\n", "\n {\"a\": 1}"})
    EXPECT_EQ(of_text(lines),
              note + "; inkling prepare takes the field \"text\" of each line of a *.jsonl");
  for (const char* list :
       {"[{\"text\": \"x\"}]", "[{\"a\": 1}, {\"a\": 2}]\n", "[\n  { \"a\": 1 },\n  {}\n]\n"})
    EXPECT_EQ(of_text(list), note);
  for (const char* text : {"{\"he said\"}\n", "{\"Quoted,\" he said\n{}", "[a] {\"b\"",
                           "[1]\n{\"a\"", "[[", "{ a }", "{"})
    EXPECT_EQ(of_text(text), "") << text;
}

// As Python's pickle writes {"vocab_size": 4, "itos": ..., "stoi": ...} of "\nabé".
TEST(DataFiles, MetaPklGivesTheCharactersOfNanoGPT) {
  const TempFolder folder;
  const auto train = folder.write("train.bin", "abab");
  EXPECT_EQ(vocabulary_beside(train), nullptr);
  for (const char* meta : {"80027d710028580a000000766f6361625f73697a6571014b04580400000069746f73710"
                           "27d7103284b0058010000"
                           "000a71044b0158010000006171054b0258010000006271064b035802000000c3a971077"
                           "5580400000073746f6971"
                           "087d71092868044b0068054b0168064b0268074b0375752e",
                           "80049553000000000000007d94288c0a766f6361625f73697a65944b048c0469746f739"
                           "47d94284b008c010a944b"
                           "018c0161944b028c0162944b038c02c3a994758c0473746f69947d942868044b0068054"
                           "b0168064b0268074b0375"
                           "752e"}) {
    const std::string bytes = raw(meta);
    folder.write("meta.pkl", bytes);
    EXPECT_EQ(vocabulary_beside(train)->to_json(), char_tokenizer("\nab\xc3\xa9").to_json());
    EXPECT_EQ(load_tokenizer(folder / "meta.pkl")->to_json(),
              char_tokenizer("\nab\xc3\xa9").to_json());
    for (size_t size = 0; size < bytes.size(); ++size) {  // cut short
      folder.write("meta.pkl", bytes.substr(0, size));
      EXPECT_NE(error_of([&] { vocabulary_beside(train); }), "(no error)") << size;
    }
    for (size_t at = 0; at < bytes.size(); ++at) {  // damaged: an ink::Error or another vocabulary
      std::string damaged = bytes;
      damaged[at] ^= 0x41;
      folder.write("meta.pkl", damaged);
      error_of([&] { vocabulary_beside(train); });
    }
  }
  const std::string file = (folder / "meta.pkl").string(),
                    instead = "; train on the text itself, such as --data input.txt";
  for (const auto& [meta, error] : std::vector<std::pair<std::string, std::string>>{
           // calls os.system
           {"8004952b000000000000008c05706f736978948c0673797374656d9493948c10746f756368202f746d702f"
            "70"
            "776e656494859452942e",
            "expected the vocabulary of characters that nanoGPT's prepare.py writes, got another "
            "pickle; name what the ids mean, such as --tokenizer tokenizer.json"},
           // {"stoi": {"b": 0, "a": 1}}, {"stoi": {"ab": 0}}, {}
           {"8004951b000000000000007d948c0473746f69947d94288c0162944b008c0161944b0175732e",
            "expected ids in the order of the characters, as those of --tokenizer char are" +
                instead},
           {"80049515000000000000007d948c0473746f69947d948c026162944b0073732e",
            "expected one character and an id below 1 for each, got \"ab\" and 0" + instead},
           {"80047d2e", "expected ids by character in \"stoi\"" + instead}}) {
    folder.write("meta.pkl", raw(meta));
    EXPECT_EQ(error_of([&] { vocabulary_beside(train); }), file + ": " + error);
  }
}

// Not every file called .bin holds ids.
TEST(DataFiles, OtherBytesThanTokenIdsAreNamed) {
  const TempFolder folder;
  const auto bytes = std::make_shared<ByteTokenizer>();
  std::string prose;
  while (prose.size() < 9000) prose += "Prose, of several lines\n\tand \u00e9, \u4e2d.\r\n";
  // 64 wide, 172 within, 5 layers, 8 heads, 4 of keys, 512 tokens, 512 places; the embedding.
  const std::string sizes = raw("40000000ac0000000500000008000000040000000002000000020000"),
                    llama2 = sizes + std::string(size_t{4} * 64 * 512, '<');
  for (const auto& [content, error] : std::vector<std::pair<std::string, std::string>>{
           {raw("1f8b0800000000000203cb48"), "got data compressed by gzip; unpack it: gunzip"},
           {raw("1f8b08085b0c9d640003612e"), "got data compressed by gzip; unpack it: gunzip"},
           {raw("80025d71002858"), "got a pickle of Python; NumPy writes ids alone: array.astype"},
           {raw("80049514000000000000005d94284b01"), "got a pickle of Python; NumPy"},
           {raw("80028a0a6cfc9c46f9"), "got a pickle of PyTorch"},
           {llama2, "got weights of llama2.c; it holds no text"},
           {"24ka" + raw("01000000") + llama2, "got weights of llama2.c"},
           {prose, "got text; name a text otherwise, such as a.txt"},
           {prose.substr(0, 130), "got text; "},
           {R"({"ids": [)" + std::string(4097, '1'), "got text; "}}) {
    const auto file = folder.write("a.bin", content);
    const std::string got = error_of([&] { TokenDataset(file, bytes); });
    EXPECT_EQ(got.rfind(file.string() + ": expected token ids, " + error, 0), 0u) << got;
  }
  const auto wide = std::make_shared<IdTokenizer>(1 << 16);  // ids that begin nearly so
  for (const std::string& ids :
       {raw("1f8b0900"), raw("80049500"), raw("800263720000"), sizes, prose.substr(0, 40),
        prose.substr(0, 400) + raw("0100") + prose.substr(0, 400)})
    EXPECT_EQ(error_of([&] { TokenDataset(folder.write("a.bin", ids), wide); }), "(no error)");
  // Ids of a small alphabet, and those of 4 bytes, may go together as such sizes do.
  const std::string few = raw("02000000030000000100000001000000010000000400000002000000");
  std::string rest;
  for (int i = 0; i < 64 * 512; ++i) rest += raw("07000000");
  for (const auto& file : {folder.write("a.bin", few + rest), folder.write("a.u32", sizes + rest)})
    EXPECT_EQ(error_of([&] { TokenDataset(file, wide); }), "(no error)");
}

TEST(Formats, OnlyWhatIsAFileIsToBeConverted) {
  const TempFolder folder;
  const std::string a = folder.write("a.bin", "a");
  EXPECT_EQ(command_without("\\r", a),
            "; to leave \\r out: tr -d '\\r' < " + a + " > " + (folder / "a.txt").string());
  for (const char* pipe : {"/dev/stdin", "/dev/fd/0", "/proc/self/fd"})
    EXPECT_EQ(command_without("\\0", pipe), "");
}

// By its kind, or by a name that is another file in each process: /dev/shm holds files, too.
TEST(File, IsReadOnce) {
  const TempFolder folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& once : {pipe, std::string("/dev/null"), std::string("/dev/stdin"),
                                  std::string("/dev/fd/63"), std::string("/proc/self/fd/63")})
    EXPECT_TRUE(is_read_once(once)) << once;
  for (const std::string& again : {folder.write("a.txt", "a").string(), (folder / "none").string(),
                                   std::string("/dev/shm"), std::string("/dev/shm/none.txt")})
    EXPECT_FALSE(is_read_once(again)) << again;
}

template <class Id>
std::string llm_file(const std::vector<Id>& ids, int32_t magic, int32_t version, int32_t count) {
  std::array<int32_t, 256> header{magic, version, count};
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
  return bytes + std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

TEST(DataFiles, LlmCsTokenIdsAreReadByTheirHeader) {
  const TempFolder folder;
  const std::vector<uint16_t> narrow{1, 2, 3, 4, 255, 6};
  const std::vector<uint32_t> wide(narrow.begin(), narrow.end());
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  for (const char* name : {"a.bin", "a.u16", "a.u32"}) {
    for (const auto& bytes : {llm_file(narrow, 20240520, 1, 6), llm_file(wide, 20240801, 7, 6)}) {
      const TokenDataset data(folder.write(name, bytes), tokenizer, {{}, 1, 0});
      EXPECT_EQ(data.val_windows(1), 5);
      EXPECT_EQ(data.val_window_batch(0, 1, 5).y, (Ids{2, 3, 4, 255, 6}));
    }
  }
  const std::string file = (folder / "b.bin").string();
  const auto error = [&](const std::string& bytes) {
    folder.write("b.bin", bytes);
    return error_of([&] { TokenDataset(file, tokenizer); });
  };
  EXPECT_EQ(error(llm_file(narrow, 20240520, 2, 6)),
            file + ": expected version 1 of llm.c's token ids, got 2");
  EXPECT_EQ(error(llm_file(wide, 20240801, 1, 6)),
            file + ": expected version 7 of llm.c's token ids, got 1");
  EXPECT_EQ(error(llm_file(narrow, 20240520, 1, 7)),
            file + ": expected 1038 bytes for the 7 token ids of llm.c's header, got 1036");
  EXPECT_EQ(error(llm_file(narrow, 20240520, 1, -1)).rfind(file + ": expected 8589935614 bytes", 0),
            0u);
  EXPECT_EQ(error(llm_file(narrow, 20240520, 1, 6).substr(0, 10)),
            file + ": expected 1036 bytes for the 6 token ids of llm.c's header, got 10");
  EXPECT_EQ(error(llm_file(narrow, 20240520, 1, 6).substr(0, 500)),
            file + ": expected 1036 bytes for the 6 token ids of llm.c's header, got 500");
  EXPECT_EQ(error(llm_file(std::vector<uint16_t>{}, 20240520, 1, 0)),
            file + ": the file has no token ids");
  for (const uint32_t kind : {20240520u, 20240801u})
    EXPECT_NE(error(llm_file(narrow, static_cast<int32_t>(__builtin_bswap32(kind)), 1, 6))
                  .find("in the other order"),
              std::string::npos);
  for (const int32_t other : {20240326, 20240327, 20240328, 20240522})
    EXPECT_NE(error(llm_file(narrow, other, 1, 6))
                  .find("expected token ids, got a file of llm.c with the magic number " +
                        std::to_string(other)),
              std::string::npos);
  EXPECT_EQ(error(raw("504b0304140000")).rfind(file + ": expected token ids, got a ZIP archive", 0),
            0u);
}

// Every one, at the start, whichever part it is in.
TEST(DataFiles, AnIdOutsideTheVocabularyIsFoundAtOnce) {
  const TempFolder folder;
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  std::vector<uint16_t> ids(200'000, 255);
  const auto write = [&](const char* name, bool header) {
    std::string bytes = header ? llm_file(ids, 20240520, 1, 200'000) : llm_file(ids, 0, 0, 0);
    return folder.write(name, header ? bytes : bytes.substr(1024));
  };
  const auto good = write("good.bin", false);
  for (const size_t at : {size_t{0}, size_t{65'536}, size_t{199'999}}) {
    ids[at] = 256;
    for (const bool header : {false, true}) {
      const auto file = write("bad.bin", header);
      const std::string error =
          file.string() + ": the token id at byte " + std::to_string(2 * at + (header ? 1024 : 0)) +
          " is 256, outside the vocabulary of 256 (byte); name its text "
          "itself, or, for a new model, the tokenizer that made the file with --tokenizer";
      EXPECT_EQ(error_of([&] { TokenDataset(file, tokenizer); }), error);
      EXPECT_EQ(error_of([&] { TokenDataset(good, tokenizer, {{file}, 0.1, 0}); }), error);
    }
    ids[at] = 255;
  }
}

}  // namespace
}  // namespace ink
