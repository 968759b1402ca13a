// Byte-pair encoding: the ids of tiktoken and tokenizers (golden/bpe.json, which parity/bpe.py
// wrote), files of other programs, merges that are learned, and every error.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "autograd/io/crc64.h"
#include "autograd/io/utf8.h"
#include "data/bpe/bpe_tokenizer.h"
#include "data/bpe/train.h"
#include "data/bpe/translation.h"
#include "data/file.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/trainer.h"

namespace ink {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

const json& fixture() {
  static const json all = json::parse(read_file(INKLING_SOURCE_DIR "/tests/golden/bpe.json"));
  return all;
}
std::string text() { return fixture()["text"]; }

json variant(const json& of) {
  json file = fixture()["tokenizer"];
  for (const char* name : {"pre_tokenizer", "normalizer"}) file[name] = of[name];
  file["model"]["ignore_merges"] = of["ignore_merges"];
  return file;
}

std::unique_ptr<BpeTokenizer> plain() {
  return bpe::parse_tokenizer(fixture()["tokenizer"].dump());
}

// Parts of any length, joined.
Ids in_parts(const Tokenizer& tokenizer, const std::string& of, size_t most) {
  std::mt19937 random(7);
  Ids ids;
  for (size_t begin = 0, end = 0; begin < of.size(); begin = end) {
    end = std::min(of.size(), begin + 1 + random() % most);
    const Ids part = tokenizer.encode_part(of, begin, end);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

std::string one_by_one(const Tokenizer& tokenizer, const Ids& ids) {
  std::string all;
  for (const int64_t id : ids) all += tokenizer.decode({&id, 1});
  return all;
}

TEST(Bpe, IdsOfTokenizers) {
  for (const json& of : fixture()["cases"]) {
    const auto tokenizer = bpe::parse_tokenizer(variant(of).dump());
    const Ids ids = tokenizer->encode(text());
    EXPECT_EQ(ids, of["ids"].get<Ids>()) << of["name"];
    EXPECT_EQ(in_parts(*tokenizer, text(), 200), ids) << of["name"];
    if (of["normalizer"].is_null()) {
      EXPECT_EQ(one_by_one(*tokenizer, ids), text()) << of["name"];
    }
    const auto again = bpe::parse_tokenizer(tokenizer->to_json());
    EXPECT_EQ(again->encode(text()), ids) << "written and read: " << of["name"];
    EXPECT_EQ(again->to_json(), tokenizer->to_json());
  }
}

TEST(Bpe, IdsOfTiktoken) {
  const TempFolder folder;
  for (const json& of : fixture()["tiktoken"]) {
    const std::string file = of["name"].get<std::string>() + ".tiktoken";
    folder.write(file, fixture()["tiktoken_file"].get<std::string>());
    const auto tokenizer = bpe::load_tokenizer(folder / file);
    const Ids ids = of["ids"];
    EXPECT_EQ(tokenizer->encode(text()), ids) << file;
    EXPECT_EQ(in_parts(*tokenizer, text(), 200), ids) << file;
    EXPECT_EQ(bpe::parse_tokenizer(tokenizer->to_json())->encode(text()), ids) << file;
  }
}

// The ids of added tokens as tokenizers 0.23.3 gives them.
json with_added(const std::vector<json>& tokens) {
  json file = fixture()["tokenizer"];
  for (json token : tokens) {
    if (!token.contains("id")) token["id"] = 699 + file["added_tokens"].size();
    file["added_tokens"].push_back(token);
  }
  return file;
}

// Late ones ("normalized") are searched for in the composed text, as what they are composed to.
TEST(Bpe, FindsAddedTokensInComposedText) {
  json file = with_added({{{"content", "caf\u00e9"}, {"normalized", true}},
                          {{"content", "\u0301"}, {"normalized", true}},
                          {{"content", "A\u030a"}, {"normalized", true}},
                          {{"content", "e\u0301!"}, {"normalized", false}}});
  file["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = bpe::parse_tokenizer(file.dump());
  EXPECT_EQ(tokenizer->encode("cafe\u0301caf\u00e9"), (Ids{700, 700}));
  EXPECT_EQ(tokenizer->encode("o\u0301\u212b"),
            (Ids{tokenizer->encode("\u00f3")[0], tokenizer->encode("\u00f3")[1], 702}));
  EXPECT_EQ(tokenizer->encode("q\u0301e\u0301!\u00c5"),
            (Ids{tokenizer->encode("q")[0], 701, 703, 702}));
  EXPECT_EQ(in_parts(*tokenizer, "cafe\u0301 cafe\u0301 a", 3),
            tokenizer->encode("cafe\u0301 cafe\u0301 a"));
}

// A special token that is not allowed is ordinary text, in which no other is found.
TEST(Bpe, FindsNoAddedTokenWithinASpecialOne) {
  const auto tokenizer = bpe::parse_tokenizer(
      with_added({{{"content", "x "}, {"special", true}, {"normalized", false}},
                  {{"content", " x"}, {"special", false}, {"normalized", false}},
                  {{"content", "<|end"}, {"special", false}, {"normalized", false}}})
          .dump());
  const Ids x = tokenizer->encode("x");
  EXPECT_EQ(tokenizer->encode("x x"), plain()->encode("x x"));
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), plain()->encode("<|endoftext|>"));
  EXPECT_EQ(tokenizer->encode("<|endof"), [&] {
    Ids ids = plain()->encode("of");
    ids.insert(ids.begin(), 702);
    return ids;
  }());
  EXPECT_EQ(tokenizer->encode("\n x"), (Ids{plain()->encode("\n")[0], 701}));
  EXPECT_EQ(tokenizer->encode_with_special("x x"), (Ids{700, x[0]}));
}

// The vocabularies of Llama 3 and 4 have one name, and Qwen composes texts.
TEST(Bpe, KnowsFilesOfTiktokenByNameAndSize) {
  const TempFolder folder;
  const auto of_size = [&](const std::string& name, int size) {
    folder.write(name, "YQ== 0\nJw== 1\ncw== 2\nYSdz " + std::to_string(size - 1) + "\n");
    return bpe::load_tokenizer(folder / name);
  };
  const auto llama3 = of_size("tokenizer.model", 128000);
  EXPECT_EQ(llama3->encode("a's"), (Ids{0, 1, 2}));
  EXPECT_EQ(llama3->added_token("<|eot_id|>"), 128009);
  const auto llama4 = of_size("tokenizer.model", 200000);
  EXPECT_EQ(llama4->encode("a's"), Ids{199999}) << "cut as by o200k";
  EXPECT_EQ(llama4->added_token("<|eot|>"), 200008);
  EXPECT_EQ(llama4->end_of_text(), 200001);
  EXPECT_NE(error_of([&] {
              of_size("cl100k_base.tiktoken", 100257);
            }).find("expected a vocabulary of that name, got one of 100257 tokens"),
            std::string::npos);
  EXPECT_EQ(of_size("p50k_base.tiktoken", 50281)->end_of_text(), 50256) << "in a gap";
  folder.write("qwen.tiktoken", "ZQ== 0\nzA== 1\ngQ== 2\nww== 3\nqQ== 4\n");
  EXPECT_EQ(load_tokenizer(folder / "qwen.tiktoken")->encode("e\u0301"), (Ids{3, 4}));
}

// tokenizers gives other ids to added tokens that neither the vocabulary has nor follow it.
TEST(Bpe, WritesAddedTokensWithTheirIds) {
  bpe::TrainOptions options;
  options.vocab_size = 300;
  bpe::Pieces pieces;
  bpe::count_pieces(pieces, text(), bpe::Splitter(bpe::named_cuts("gpt2")));
  const json learned = json::parse(bpe::train(pieces, options)->to_json());
  EXPECT_EQ(learned["model"]["vocab"].size(), 300u);
  EXPECT_EQ(learned["model"]["vocab"]["<|endoftext|>"], 0);
  const TempFolder folder;
  folder.write("cl100k.tiktoken", fixture()["tiktoken_file"].get<std::string>());
  const json written = json::parse(load_tokenizer(folder / "cl100k.tiktoken")->to_json());
  EXPECT_EQ(written["model"]["vocab"]["<|endofprompt|>"], 100276);
  const json file = with_added({{{"content", "<|im_start|>"}, {"special", true}}});
  const json again = json::parse(bpe::parse_tokenizer(file.dump())->to_json());
  EXPECT_EQ(again["model"]["vocab"]["<|im_start|>"], 700);
  // Read and written once more, it is the same file: a gap, and letters that stand for no byte.
  folder.write("encoder.json", R"({"a": 0, "b": 1, "ab": 2, "\u01fa": 4, "<|x|>": 5})");
  folder.write("vocab.bpe", "#version: 0.2\na b\n");
  const std::string once = load_tokenizer(folder / "encoder.json")->to_json();
  EXPECT_EQ(bpe::parse_tokenizer(once)->to_json(), once);
}

TEST(Bpe, AddedTokensMayBeTokensOfMerges) {
  const std::string word = [] {
    for (const auto& [token, id] : fixture()["tokenizer"]["model"]["vocab"].items())
      if (token.size() == 3 && std::all_of(token.begin(), token.end(), isalpha)) return token;
    return std::string();
  }();
  const int64_t id = fixture()["tokenizer"]["model"]["vocab"][word];
  for (const bool special : {false, true}) {
    const auto tokenizer = bpe::parse_tokenizer(
        with_added({{{"content", word}, {"id", id}, {"special", special}},
                    {{"content", "a"}, {"id", plain()->encode("a")[0]}, {"special", special}}})
            .dump());
    EXPECT_EQ(tokenizer->encode(word), Ids{id});
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text())), text());
    if (special) {
      EXPECT_EQ(tokenizer->encode(text()), plain()->encode(text()));
    }
  }
  const auto refused = [](const json& token) {
    return error_of([&] { bpe::parse_tokenizer(with_added({token}).dump()); });
  };
  json whisper = with_added({{{"content", "<x>"}, {"id", 701}}});
  whisper["model"]["vocab"][""] = 700;
  EXPECT_EQ(bpe::parse_tokenizer(whisper.dump())->encode("<x>"), Ids{701});
  const int64_t byte = fixture()["tokenizer"]["model"]["vocab"]["\u00e9"];
  EXPECT_NE(refused({{"content", "\u00e9"}, {"id", byte}}).find("and the bytes \"\\xe9\""),
            std::string::npos);
  for (const int64_t gap : {701, 5000})
    EXPECT_NE(refused({{"content", "<x>"}, {"id", gap}})
                  .find("but tokenizers gives it the next one, 700"),
              std::string::npos);
  json gap = with_added({{{"content", "<x>"}, {"id", 700}}});  // tokenizers counts, and gives 699
  gap["model"]["vocab"].erase("\u0100");
  EXPECT_NE(error_of([&] {
              bpe::parse_tokenizer(gap.dump());
            }).find("has the id 700, but tokenizers gives it the next one, 699"),
            std::string::npos);
}

// Pairs of files that are no byte-level BPE as GPT-2's, and load: CLIP's, Qwen2's.
TEST(Bpe, RefusesPairsOfFilesThatAreCutOtherwise) {
  const TempFolder folder;
  const auto error = [&](const char* vocab, const char* merges) {
    folder.write("vocab.json", vocab);
    folder.write("merges.txt", merges);
    return error_of([&] { load_tokenizer(folder.path()); });
  };
  EXPECT_NE(error(R"({"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3})", "a b</w>\n")
                .find("merge 0 is of \"b</w>\", which no merge gives"),
            std::string::npos);
  EXPECT_NE(error(R"({";": 0, "\u010a": 1, ";\u010a": 2})", "; \u010a\n")
                .find("gives \";\\x0a\", which texts that are cut as GPT-2's never have"),
            std::string::npos);
  EXPECT_EQ(error(R"({"'": 0, "v": 1, "'v": 2, "": 3})", "' v\n"), "(no error)")
      << "a part of 've, and Whisper's empty token";
}

// GPT-2's own files, where they are at hand.
TEST(Bpe, Gpt2) {
  const std::filesystem::path folder = INKLING_SOURCE_DIR "/../shared/data/gpt2";
  if (!exists(folder)) GTEST_SKIP() << folder << " is not there";
  const auto tokenizer = bpe::load_tokenizer(folder);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
  EXPECT_EQ(tokenizer->added_token("<|endoftext|>"), 50256);
  EXPECT_EQ(tokenizer->encode("Hello, world!"), (Ids{15496, 11, 995, 0}));
  EXPECT_EQ(tokenizer->encode_with_special("a<|endoftext|>"), (Ids{64, 50256}));
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>").size(), 8u) << "as ordinary text";
}

// NFC of Unicode 9, as tokenizers have it: later marks and compositions stay as they are.
TEST(Bpe, ComposesAsTokenizersDo) {
  for (const json& of : fixture()["cases"]) {
    if (of["normalizer"].is_null()) continue;
    const auto tokenizer = bpe::parse_tokenizer(variant(of).dump());
    for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
             {"e\u0301", "\u00e9"},
             {"q\u0301\u0323", "q\u0323\u0301"},
             {"o\u035c\u07fd", "o\u035c\u07fd"},
             {"e\u07fd\u0301", "e\u07fd\u0301"},
             {"\U00011935\U00011930", "\U00011935\U00011930"},
             {"e\u0301\xff\u0301", "\u00e9\xff\u0301"}})
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(before)), after) << before;
  }
}

// Whatever version PCRE2 is of, and whether its classes are asked for by name or spelled out.
TEST(Bpe, ClassesOfCharactersAreThoseOfTokenizers) {
  const bool newer = bpe::has_newer_unicode();
  const std::string between = "\u0378";  // which is in none
  std::string all = between;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    utf8::append(all, c);
    all += between;
  }
  for (const auto& [name, expected] : fixture()["classes"].items()) {
    for (const bool spells_out : {newer, true}) {
      if (!newer && spells_out && name != "L" && name != "M" && name != "Nd") continue;  // slow
      const bpe::Splitter splitter({{.regex = "\\p{" + name + "}"}}, spells_out);
      uint64_t hash = 0;
      splitter.for_each_piece(all, [&](std::string_view piece) {
        if (piece.find(between) == piece.npos) {
          size_t at = 0;
          hash = hash * 1000003 + utf8::next(piece, at);
        }
      });
      EXPECT_EQ(hex64(hash), expected.get<std::string>())
          << name << (spells_out ? ", spelled out" : "");
    }
  }
}

TEST(Bpe, SpelledOutPatternsCutTheSame) {
  for (const char* name : {"gpt2", "o200k", "qwen2"}) {
    const auto pieces = [&](bool spells_out) {
      std::vector<std::string> all;
      bpe::Splitter(bpe::named_cuts(name), spells_out)
          .for_each_piece(text(), [&](std::string_view piece) { all.emplace_back(piece); });
      return all;
    };
    EXPECT_EQ(pieces(true), pieces(false)) << name;
  }
}

// What is done by hand cuts as PCRE2 does, which runs the same pattern within a group.
TEST(Bpe, PiecesByHandAreThoseOfThePattern) {
  const std::vector<std::string> some = {
      "'s",       "'S",       "'re",       "'Ll",      "'x",       "' ",           "a",    "Zz",
      " ",        "  ",       "\n",        "\r\n",     "\t",       "\v",           "0",    "12",
      "3456",     ".",        "!?",        "\xc3\xa9", "\xc2\xa0", "\xe2\x80\x83", "\x1c", "\x7f",
      "\xc5\xbf", "\xd9\xa3", "'\xc5\xbf", "word",     " word",    " 's",          "\xff"};
  std::mt19937 random(5);
  for (const char* name : {"gpt2", "cl100k", "qwen2"}) {
    auto cuts = bpe::named_cuts(name);
    const bpe::Splitter by_hand(cuts);
    cuts[0].regex = "(?:" + cuts[0].regex + ")";
    const bpe::Splitter by_pattern(cuts);
    for (int i = 0; i < 20000; ++i) {
      std::string of;
      for (size_t parts = random() % 8; parts > 0; --parts) of += some[random() % some.size()];
      const auto pieces = [&](const bpe::Splitter& splitter) {
        std::vector<std::string> all;
        splitter.for_each_piece(of, [&](std::string_view piece) { all.emplace_back(piece); });
        return all;
      };
      ASSERT_EQ(pieces(by_hand), pieces(by_pattern)) << name << ": " << testing::PrintToString(of);
    }
  }
}

TEST(Bpe, AnyBytesComeBack) {
  const auto tokenizer = plain();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (i % 2 ? 256 : 0xc3));
    EXPECT_EQ(one_by_one(*tokenizer, tokenizer->encode(bytes)), bytes);
    EXPECT_EQ(in_parts(*tokenizer, bytes, 9), tokenizer->encode(bytes));
  }
}

// By the definition: the pair of the lowest rank, the leftmost of equals, again and again.
TEST(Bpe, LongPiecesFollowTheDefinition) {
  std::vector<std::string> tokens = {"a", "b", "ab", "aa", "ba", "abab", "aaa"};
  std::vector<bpe::Merge> merges = {{0, 1, 0, 2}, {0, 0, 1, 3}, {1, 0, 2, 4},
                                    {2, 2, 3, 5}, {3, 0, 4, 6}, {0, 3, 5, 6}};
  const bpe::Merges model(tokens, merges, false);
  std::mt19937 random(3);
  for (const size_t size : {1, 2, 7, 30, 48, 49, 100, 1000}) {
    std::string piece(size, 'a');
    for (char& c : piece) c = random() % 3 == 0 ? 'b' : 'a';
    Ids expected;
    for (const char c : piece) expected.push_back(c - 'a');
    for (const bpe::Merge* best = &merges[0]; best != nullptr;) {
      best = nullptr;
      size_t place = 0;
      for (size_t i = 0; i + 1 < expected.size(); ++i)
        for (const bpe::Merge& merge : merges)
          if (expected[i] == merge.left && expected[i + 1] == merge.right &&
              (best == nullptr || merge.rank < best->rank))
            best = &merge, place = i;
      if (best == nullptr) break;
      expected[place] = best->result;
      expected.erase(expected.begin() + static_cast<ptrdiff_t>(place) + 1);
    }
    Ids ids;
    EXPECT_EQ(model.encode(piece, ids), std::string_view::npos);
    EXPECT_EQ(ids, expected) << piece;
  }
}

// Parts without a boundary are looked at once: this would take hours if each looked on to the end.
TEST(Bpe, ALongWordTakesNoLonger) {
  const std::string word(1 << 20, 'a');
  const auto tokenizer = plain();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word)), word);
  EXPECT_EQ(in_parts(*tokenizer, word, 3), tokenizer->encode(word));
}

// Scripts that have few spaces, on one line, have parts, too.
TEST(Bpe, LongLinesHaveParts) {
  const std::vector<std::string> some = {
      "\u6f22", "\u3042", "\u30ab", "\ud55c", "\u3001", "\u3002", "\uff01", "\uff0c", "\u3000",
      "\u0e01", "\u0e34", " ",      "\u3099", "'s",     "a",      "7",      ".",      "\u00a0",
      "\u00e9", "\n",     "\x1c",   "\xe3",   "\x80",   "\u0301", "/",      "  ",     "\u2003"};
  std::mt19937 random(9);
  for (const json& of : fixture()["cases"]) {
    const auto tokenizer = bpe::parse_tokenizer(variant(of).dump());
    for (int i = 0; i < 300; ++i) {
      std::string line;
      for (size_t left = random() % 40; left > 0; --left) line += some[random() % some.size()];
      ASSERT_EQ(in_parts(*tokenizer, line, 9), tokenizer->encode(line))
          << of["name"] << ": " << testing::PrintToString(line);
    }
  }
  for (const std::string sentence :
       {"\u6f22\u5b57\u3002", "\u0e44\u0e17\u0e22 ", "\u00e9t\u00e9 "}) {
    std::string line;
    while (line.size() < 3000) line += sentence;
    EXPECT_FALSE(plain()->encode_part(line, 1000, 2000).empty()) << sentence;
  }
}

TEST(Bpe, LearnsTheMergesOfTokenizers) {
  const std::string of = fixture()["trained_on"];
  bpe::TrainOptions options;
  options.vocab_size = 500;
  bpe::Pieces pieces;
  bpe::count_pieces(pieces, of, bpe::Splitter(bpe::named_cuts("gpt2")));
  const auto tokenizer = bpe::train(pieces, options);
  EXPECT_EQ(json::parse(tokenizer->to_json())["model"]["merges"], fixture()["merges"]);
  EXPECT_EQ(tokenizer->added_token("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(of)), of);
  // It ends where no pair is met twice, or where it is told to.
  bpe::count_pieces(pieces = {}, "abab", bpe::Splitter(bpe::named_cuts("gpt2")));
  EXPECT_EQ(bpe::train(pieces, options)->vocab_size(), 258);
  options.vocab_size = 200;
  EXPECT_EQ(error_of([&] { bpe::train(pieces, options); }),
            "tokenizer: expected a vocab_size of at least 257 (256 bytes and special tokens), got "
            "200");
}

TEST(Bpe, ReadsPairsOfFilesAndFolders) {
  const json model = fixture()["tokenizer"]["model"];
  std::string merges = "#version: 0.2\n";
  for (const json& merge : model["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  const Ids expected = plain()->encode(text());
  const TempFolder folder;
  for (const auto& [vocab_file, merges_file] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    folder.write(vocab_file, model["vocab"].dump());
    folder.write(merges_file, merges);
    for (const char* name : {vocab_file, merges_file, ""})
      EXPECT_EQ(load_tokenizer(folder / name)->encode(text()), expected) << name;
  }
  // All three say the same, as in Qwen2's folder; tokenizer.json has added tokens besides.
  json whole = fixture()["tokenizer"];
  whole["added_tokens"].push_back(
      {{"id", 700}, {"content", "<|im_start|>"}, {"special", true}, {"normalized", false}});
  folder.write("tokenizer.json", whole.dump());
  const auto all = bpe::load_tokenizer(folder.path());
  EXPECT_EQ(all->encode(text()), expected);
  EXPECT_EQ(all->encode_with_special("<|im_start|>"), Ids{700});
  // transformers also takes tokens, and a space before a text, from these.
  const auto beside = [&](const char* file, const json& content) {
    folder.write(file, content.dump());
    const std::string error = error_of([&] { load_tokenizer(folder.path()); });
    std::filesystem::remove(folder / file);
    return error;
  };
  const std::string leave_out = ", which tokenizer.json does not say; to leave it out, name " +
                                (folder / "tokenizer.json").string();
  EXPECT_EQ(beside("added_tokens.json", {{"<|im_start|>", 700}}), "(no error)");
  EXPECT_EQ(
      beside("added_tokens.json", {{"<x>", 701}}),
      (folder / "added_tokens.json").string() + ": the token \"<x>\" has the id 701" + leave_out);
  const auto decoder = [](const char* id) {
    return json{{"added_tokens_decoder", {{id, {{"content", "<|im_start|>"}}}}}};
  };
  EXPECT_EQ(beside("tokenizer_config.json", decoder("700")), "(no error)");
  EXPECT_EQ(beside("tokenizer_config.json", decoder("7")),
            (folder / "tokenizer_config.json").string() +
                ": the token \"<|im_start|>\" has the id 7" + leave_out);
  EXPECT_EQ(beside("tokenizer_config.json", {{"add_prefix_space", true}}),
            (folder / "tokenizer_config.json").string() + ": add_prefix_space is true" + leave_out);
  EXPECT_EQ(beside("tokenizer_config.json", {{"add_prefix_space", false}}), "(no error)");
  json other = fixture()["tokenizer"];
  json& vocab = other["model"]["vocab"];
  std::swap(vocab["a"], vocab["b"]);
  folder.write("tokenizer.json", other.dump());
  EXPECT_NE(error_of([&] { load_tokenizer(folder.path()); }).find("two vocabularies"),
            std::string::npos);
  std::swap(vocab["a"], vocab["b"]);
  other["model"]["merges"].erase(3);
  folder.write("tokenizer.json", other.dump());
  EXPECT_NE(error_of([&] {
              load_tokenizer(folder.path());
            }).find("tokenizer.json and vocab.json are two vocabularies; name the one"),
            std::string::npos);
}

// A token that no merge makes is what its letters stand for; one that prints is a special token.
TEST(Bpe, DecodesTokensThatNoMergeMakes) {
  const TempFolder folder;
  folder.write(
      "vocab.json",
      R"({"a": 0, "\u0120": 1, "\u0120\u0109": 2, "<|end|>": 3, "<|a b|>": 4, "\u00c3\u00a9": 5})");
  folder.write("merges.txt", "#version: 0.2\n");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->decode(Ids{0, 2, 3, 4, 5}), "a \t<|end|><|a b|>\u00e9");
  const auto& bpe = dynamic_cast<const BpeTokenizer&>(*tokenizer);
  EXPECT_EQ(bpe.encode_with_special("a<|end|> <|a b|>"), (Ids{0, 3, 1, 4}));
  EXPECT_EQ(parse_tokenizer(tokenizer->to_json())->decode(Ids{2, 4, 5}), " \t<|a b|>\u00e9");
}

TEST(Bpe, RefusesWhatItDoesNotRead) {
  const auto expect = [](const std::string& place, const json& value, const std::string& error) {
    json file = fixture()["tokenizer"];
    file[json::json_pointer(place)] = value;
    const std::string got = error_of([&] { bpe::parse_tokenizer(file.dump()); });
    EXPECT_NE(got.find(error), std::string::npos) << got;
  };
  expect("/model/type", "Unigram", "model.type is \"Unigram\", which is not read here");
  expect("/model/unk_token", "<unk>", "model.unk_token is \"<unk>\"");
  expect("/model/byte_fallback", true, "model.byte_fallback is true");
  expect("/model/dropout", 0.1, "model.dropout is 0.1");
  expect("/normalizer", {{"type", "Lowercase"}}, "normalizer is {\"type\":\"Lowercase\"}");
  expect("/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer is {\"type\":\"Whitespace\"}");
  expect("/pre_tokenizer/add_prefix_space", true, "pre_tokenizer.add_prefix_space is true");
  expect("/truncation", {{"max_length", 5}}, "truncation is");
  expect("/model/vocab/\u0102", 5, "the id 5 is");
  expect("/model/vocab", json::object(), "expected the vocabulary to be an object");
  expect("/model/merges/0", {"a"}, "merge 0: expected two tokens");
  expect("/model/merges/0", {"zz", "q"}, "has no token \"zz\"");
  expect("/added_tokens/0/lstrip", true, "\"<|endoftext|>\": lstrip is true");
  expect("/added_tokens/0/id", 7, "has the id 7, but the vocabulary has 0");
  const auto pattern = [&](const std::string& regex, const std::string& error) {
    expect("/pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}},
           error);
  };
  pattern("(a", "the pattern \"(a\": missing closing parenthesis");
  pattern("a*", "a match of no characters");
  pattern("\\h+", "\\h, which is not read here");
  pattern("\\v+", "\\v, which is not read here");
  pattern("[a&&b]", "&& within brackets");
  pattern("[^\\P{L}]", "\\P within brackets");
  for (const char* group : {"(?m:", "(?im:", "(?i)", "(?x:", "(?-i:", "(?#", "(?<n>", "(*F)"})
    pattern(std::string(group) + "a)", ", which is not read here");
  for (const char* count : {"a{,2}", "a{1,3}+", "a{2}+", "a{2}?", "\\pC", "\\p{Han}", "\\p{Mn}",
                            "\\101\\0", "\\u0041", "\\Qa\\E"})
    pattern(count, ", which is not read here");

  const TempFolder folder;
  const auto file = [&](const char* name, const std::string& text, const std::string& error) {
    folder.write(name, text);
    const std::string got = error_of([&] { load_tokenizer(folder / name); });
    EXPECT_NE(got.find(error), std::string::npos) << got;
  };
  file("x.tiktoken", "YQ== 0\n", "expected cl100k, o200k, r50k, p50k, gpt2, llama or qwen in it");
  file("gpt2.tiktoken", "YQ== 0\nYg= 1\n", "line 2: expected base64, got \"Yg=\"");
  file("gpt2.tiktoken", "YQ== 99999999\n", "expected a rank below 200000, got 99999999");
  file("gpt2.tiktoken", "YQ== 0\nYg== 0\n", "line 2: the rank 0 comes twice");
  file("gpt2.tiktoken", "YQ== 0\nYQ== 1\n", "the ids 0 and 1 are the same token, \"a\"");
  file("gpt2.tiktoken", "YQ==\n", "line 1: expected a token in base64 and its rank");
  folder.write("merges.txt", "#version: 0.2\n");
  file("vocab.json", R"({"a": 0, "b": 3000000})",
       "expected an id below 262272 for the token \"b\", one of 2, got 3000000");
  folder.write("vocab.json", R"({"a": 0})");
  folder.write("merges.txt", "");
  EXPECT_EQ(error_of([&] { load_tokenizer(folder / "vocab.json"); }).find("merges.txt: the file"),
            folder.path().string().size() + 1)
      << "the name comes once";
  folder.write("merges.txt", "#version: 0.2\n");
  file("vocab.json", R"({"<|endoftext|>": 0})", "the vocabulary has no tokens but added ones");
  file("tokenizer.model", std::string("\x0a\x05\0<unk>", 8), "a model of SentencePiece");
  const auto gaps = [&] {
    folder.write("gpt2.tiktoken", "YQ== 0\nYg== 2\n");
    return load_tokenizer(folder / "gpt2.tiktoken");
  }();
  EXPECT_EQ(error_of([&] { gaps->encode("ab abc"); }),
            "encode: the vocabulary has no token for the byte 0x20 at byte 2");
  EXPECT_EQ(gaps->decode(Ids{0, 1, 2}),
            "a\xef\xbf\xbd"
            "b")
      << "a model may choose any id";
  EXPECT_EQ(error_of([&] { gaps->decode(Ids{50257}); }),
            "decode: id 50257 is outside the vocabulary of 50257");
}

// The signal comes while it reads or learns: it ends soon, and nothing is written. Learning all of
// it would take an hour. The pipe is opened by the program when it watches for signals.
TEST(Bpe, SignalsEndTraining) {
  std::mt19937 random(2);
  std::string letters(2 << 20, ' ');
  for (char& c : letters) c = static_cast<char>(random() % 7 == 0 ? ' ' : 'a' + random() % 26);
  for (const auto& [name, number] : {std::pair{"INT", 2}, {"TERM", 15}, {"HUP", 1}}) {
    const TempFolder folder;
    folder.write("text.txt", letters);
    const Ran ran = run_shell(
        "cd " + folder.path().string() + "; mkfifo pipe; env --default-signal=" + name +
        " \"$INKLING_PROGRAM\" tokenizer train --vocab_size 4000000 --min_frequency 1 --out t.json "
        "pipe text.txt & run=$!; echo some text > pipe; kill -" +
        name + " $run; wait $run; code=$?; ls; exit $code");
    EXPECT_EQ(ran.code, 128 + number) << ran.err;
    EXPECT_EQ(ran.out, "Stopped; nothing was written.\npipe\ntext.txt\n") << name;
  }
}

// 40 MB of 2003 distinct words: each thread maps a megabyte of them at a time, and holds the words.
TEST(Bpe, TrainingTakesTheMemoryOfDistinctWords) {
  const TempFolder folder;
  std::string some;
  for (int i = 0; i < 100000; ++i) some += "word" + std::to_string(i * 37 % 2003) + " ";
  std::ofstream file(folder / "large.txt");
  for (int i = 0; i < 47; ++i) file << some;
  file.close();
  const auto pieces_of = [&] {
    const TextFile text(folder / "large.txt");
    bpe::Pieces pieces;
    bpe::count_pieces(pieces, text.view(), bpe::Splitter(bpe::named_cuts("gpt2")),
                      [&](size_t begin, size_t end) {
                        text.release(begin, end);
                        return true;
                      });
    return pieces;
  };
  EXPECT_EQ(pieces_of().size(), 2006u) << "2003 numbers; word with and without a space; a space";
  bpe::TrainOptions options;
  options.vocab_size = 1000;
  const auto peak = peak_memory_of([&] { bpe::train(pieces_of(), options); });
  if (!peak) GTEST_SKIP() << "the peak is not known here";
  EXPECT_LT(*peak, (3 * omp_get_max_threads() + 4) << 20);
}

TEST(Bpe, IsLearnedFromWhatIsTrainedOn) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 900; ++i) text += "ab cd ef\n";
  const std::string seen = text;
  for (int i = 0; i < 100; ++i) text += "zqzq \u00e9\n";  // the last tenth, in bytes about
  folder.write("text.txt", text);
  folder.write("seen.txt", seen);
  folder.write("val.txt", "zqzq\n");
  TrainConfig config;
  config.data = {(folder / "text.txt").string()};
  config.tokenizer = "bpe:261";
  const auto size_of = [&](const std::string& word) {
    return make_dataset(config)->tokenizer().encode(word).size();
  };
  EXPECT_EQ(size_of("zqzq"), 4u);
  EXPECT_EQ(size_of(" cd"), 1u);
  config.val_fraction = 0.05;
  config.tokenizer = "bpe:265";
  EXPECT_LT(size_of("zqzq"), 4u) << "half of it trains";
  config.data = {(folder / "seen.txt").string()};
  config.val_data = {(folder / "val.txt").string()};
  config.tokenizer = "bpe:261";
  EXPECT_EQ(size_of("zqzq"), 4u);
}

TEST(Bpe, InTheProgram) {
  const TempFolder folder;
  const std::string text_file = (folder / "text.txt").string(),
                    saved = (folder / "t.json").string(), run = (folder / "run").string();
  std::string book;
  for (int i = 0; i < 60; ++i) book += "The cat saw the café by the sea, the dog saw it too.\n";
  folder.write("text.txt", book);
  const Ran learned =
      run_program("tokenizer train --vocab_size 300 --out " + saved + " " + text_file);
  EXPECT_EQ(learned.code, 0) << learned.err;
  EXPECT_NE(learned.out.find("t.json: 2"), std::string::npos) << learned.out;
  folder.write("left.md", "left out");
  const Ran of_folder =
      run_program("tokenizer train --vocab_size 300 --out - " + folder.path().string());
  EXPECT_NE(of_folder.err.find(": 1 text file, text.txt; left out: left.md, t.json"),
            std::string::npos)
      << of_folder.err;
  const Ran encoded = run_program("tokenizer encode --tokenizer " + saved + " " + text_file);
  folder.write("ids", encoded.out);
  const Ran decoded =
      run_program("tokenizer decode --tokenizer " + saved + " < " + (folder / "ids").string());
  EXPECT_EQ(decoded.out, book) << decoded.err;
  EXPECT_EQ(run_program("tokenizer decode --tokenizer byte 104 105").out, "hi");
  EXPECT_EQ(run_program("tokenizer decode --tokenizer byte 104 hi").code, 1);
  EXPECT_NE(run_program("tokenizer decode --tokenizer byte 104,105")
                .err.find("decode: expected ids with spaces between them, got 104,105"),
            std::string::npos);
  const Ran seen =
      run_shell("printf 'The cat caf\\303' | inkling tokenizer show --tokenizer " + saved);
  EXPECT_NE(seen.out.find("\u2423ca"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find("\\xc3"), std::string::npos) << "half a character: " << seen.out;
  EXPECT_NE(seen.out.find(" 12 bytes, "), std::string::npos) << seen.out;
  // Texts are read as training reads them.
  const std::string marked = folder.write("marked.txt", "\xef\xbb\xbfhi").string(),
                    wide = folder.write("wide.txt", std::string("h\0i\0s\0", 6)).string();
  for (const std::string& from : {marked, "< " + marked}) {
    EXPECT_EQ(run_program("tokenizer encode --tokenizer byte " + from).out, "104 105\n") << from;
    const std::string shown = run_program("tokenizer show --tokenizer byte " + from).out;
    EXPECT_NE(shown.find("2 tokens, 2 bytes"), std::string::npos) << shown;
  }
  for (const char* action : {"encode", "show"})
    EXPECT_NE(run_program("tokenizer " + std::string(action) + " --tokenizer byte " + wide)
                  .err.find("wide.txt: expected UTF-8 text, got UTF-16; convert it"),
              std::string::npos);
  for (const char* wrong : {"", "train", "train x.txt", "encode x.txt", "frobnicate",
                            "train --pattern gpt5 --out x.json x.txt", "show x.txt"})
    EXPECT_EQ(run_program(std::string("tokenizer ") + wrong).code, 2) << wrong;
  // A run with a vocabulary of its own, or with a file's, samples and goes on.
  for (const std::string& tokenizer : {std::string("bpe:280"), saved}) {
    const std::string options = " --data " + text_file + " --tokenizer " + tokenizer +
                                " --n_layer 1 --n_head 1 --n_embd 8 --block_size 16 --out_dir " +
                                run + " --eval_interval 2 --overwrite";
    const Ran trained = run_program("train --max_iters 4" + options);
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.out.find("(bpe)"), std::string::npos) << trained.out;
    const Ran sampled =
        run_program("sample --out_dir " + run + " --start 'The café' " + "--max_new_tokens 5");
    EXPECT_EQ(sampled.code, 0) << sampled.err;
    EXPECT_NE(sampled.out.find("The café"), std::string::npos) << sampled.out;
    const Ran resumed = run_program("train --init_from resume --max_iters 6 --out_dir " + run);
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
  for (const std::string size : {"x", "", "256", "1e3", "-4", "99999999999"}) {
    const Ran refused = run_program("train --tokenizer bpe:" + size + " --out_dir " + run +
                                    "2 --data " + text_file);
    EXPECT_EQ(refused.code, 2) << size;
    EXPECT_NE(refused.err.find("tokenizer"), std::string::npos) << refused.err;
  }
  EXPECT_EQ(run_program("tokenizer encode --tokenizer bpe:300 " + text_file).code, 2);
  for (const char* name : {"vocab.json", "byte", "x.tiktoken"})
    EXPECT_EQ(run_program("tokenizer train " + text_file + " --out " + name).code, 2) << name;
}

}  // namespace
}  // namespace ink
