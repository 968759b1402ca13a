// Tokenizers: ids, round trips, saved vocabularies, and every error's text.
#include <chrono>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "temp_files.h"

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
      "encode: character U+000D at line 1, column 2 is not in the vocabulary of 5 characters");
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
  const std::string expected = "tokenizer: expected \"tokenizer\" to be \"char\" or \"byte\", got ";
  EXPECT_EQ(error("[1, 2]"), expected + "none");
  EXPECT_EQ(error(R"({"characters": "ab"})"), expected + "none");
  EXPECT_EQ(error(R"({"tokenizer": 3})"), expected + "3");
  EXPECT_EQ(error(R"({"tokenizer": "word"})"), expected + "\"word\"");
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

TEST(SavedTokenizer, NamesTheFile) {
  const TempFolder folder;
  const auto missing = folder / "none.json";
  EXPECT_EQ(error_of([&] { load_tokenizer(missing); }),
            missing.string() + ": cannot open: No such file or directory");
  const auto bad = folder.write("bad.json", "{");
  EXPECT_EQ(error_of([&] { load_tokenizer(bad); }),
            bad.string() + ": tokenizer: invalid JSON at byte 2");
}

}  // namespace
}  // namespace ink
