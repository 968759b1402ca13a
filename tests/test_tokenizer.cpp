// Tokenizers: ids, round trips, saved vocabularies, and every error's text.
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

TEST(SavedTokenizer, ComesBackEqual) {
  const TempFolder folder;
  const std::string text = std::string("\0\"\\\n/ aé€🦊", 17);
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
