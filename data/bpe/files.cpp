// Reading and writing the files of other tokenizers.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/bpe/bpe_tokenizer.h"
#include "data/bpe/tiktoken.h"
#include "data/file.h"

namespace ink::bpe {
namespace {

using nlohmann::json;
using std::filesystem::path;

// ---- The byte letters

// A byte that prints is its own letter; the other 68 take U+0100 and the following, in order.
struct Letters {
  std::array<char32_t, 256> of_byte;
  std::array<int, 512> byte_of;  // -1: none

  Letters() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints =
          (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte <= 0xff && byte != 0xad);
      of_byte[byte] = prints ? byte : next++;
      byte_of[of_byte[byte]] = static_cast<int>(byte);
    }
  }
};
const Letters& letters() {
  static const Letters all;
  return all;
}

std::optional<std::string> try_bytes_of(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const char32_t letter = utf8::next(text, at);
    const int byte = letter < letters().byte_of.size() ? letters().byte_of[letter] : -1;
    if (byte < 0) return {};
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// ---- A vocabulary as JSON, and merges in letters

struct Vocabulary {
  std::vector<std::string> tokens;               // bytes by id
  std::vector<AddedToken> others;                // whose text is not in byte letters
  std::unordered_map<std::string, int32_t> ids;  // by text in letters
};

Vocabulary read_vocabulary(const json& object) {
  INK_CHECK(object.is_object() && !object.empty(),
            "tokenizer: expected the vocabulary to be an object of tokens and their ids, got ",
            quoted(object));
  Vocabulary vocabulary;
  const int64_t most = most_ids(object.size());
  for (const auto& [text, id] : object.items()) {
    INK_CHECK(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < most,
              "tokenizer: expected an id below ", most, " for the token ", shown(text), ", one of ",
              object.size(), ", got ", quoted(id));
    const auto at = id.get<size_t>();
    if (at >= vocabulary.tokens.size()) vocabulary.tokens.resize(at + 1);
    vocabulary.ids.emplace(text, static_cast<int32_t>(at));
    if (text.empty()) continue;  // Whisper's 50256: no text becomes it
    const auto bytes = try_bytes_of(text);
    if (!bytes) {
      vocabulary.others.push_back({.text = text, .id = static_cast<int64_t>(at)});
    } else {
      INK_CHECK(vocabulary.tokens[at].empty(), "tokenizer: the id ", at, " is ",
                shown(letters_of(vocabulary.tokens[at])), " and ", shown(text));
      vocabulary.tokens[at] = *bytes;
    }
  }
  return vocabulary;
}

Merge read_merge(const Vocabulary& vocabulary, const std::string& left, const std::string& right,
                 size_t rank) {
  const auto id = [&](const std::string& text) {
    const auto found = vocabulary.ids.find(text);
    INK_CHECK(found != vocabulary.ids.end(), "tokenizer: merge ", rank, ", ", shown(left), " and ",
              shown(right), ": the vocabulary has no token ", shown(text));
    return found->second;
  };
  return {.left = id(left),
          .right = id(right),
          .rank = static_cast<int32_t>(rank),
          .result = id(left + right)};
}

Merge read_merge(const Vocabulary& vocabulary, const std::string& line, size_t rank) {
  const size_t space = line.find(' ');
  INK_CHECK(space != std::string::npos && space > 0 && space + 1 < line.size() &&
                line.find(' ', space + 1) == std::string::npos,
            "tokenizer: merge ", rank, ": expected two tokens with a space between, got ",
            shown(line));
  return read_merge(vocabulary, line.substr(0, space), line.substr(space + 1), rank);
}

// ---- tokenizer.json

[[noreturn]] void refuse_field(const std::string& what, const json& value) {
  detail::fail({"tokenizer: ", what, " is ", quoted(value), ", which is not read here"});
}

// A field of what should be an object; null if there is none.
const json& field(const json& object, const char* name) {
  static const json none;
  const auto found = object.find(name);  // the end of anything but an object
  return found == object.end() ? none : *found;
}

// Fields that must be absent, or have one of these values.
void expect_field(const std::string& where, const json& object, const char* name,
                  std::initializer_list<json> values) {
  const json& value = field(object, name);
  if (!value.is_null() && std::find(values.begin(), values.end(), value) == values.end())
    refuse_field(where + name, value);
}

std::string type_of(const json& part) {
  const json& type = field(part, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

bool read_normalizer(const json& normalizer) {
  if (normalizer.is_null()) return false;
  if (type_of(normalizer) == "NFC") return true;
  const json& parts = field(normalizer, "normalizers");
  if (type_of(normalizer) != "Sequence" || !parts.is_array() || parts.size() > 1)
    refuse_field("normalizer", normalizer);
  return !parts.empty() && read_normalizer(parts[0]);
}

constexpr const char* kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};  // as in Behavior

Behavior behavior_of(const json& name) {
  const auto* found = std::find(std::begin(kBehaviors), std::end(kBehaviors), name);
  if (found == std::end(kBehaviors)) refuse_field("pre_tokenizer.behavior", name);
  return static_cast<Behavior>(found - std::begin(kBehaviors));
}

std::string literal(const std::string& text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view(R"(\^$.[]|()?*+{}-#/)").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

// Appends the cuts of a pre-tokenizer. Returns whether bytes are letters from there on.
bool read_cuts(const json& part, std::vector<Cut>& cuts) {
  const std::string type = type_of(part);
  if (type == "Sequence") {
    const json& parts = field(part, "pretokenizers");
    if (!parts.is_array()) refuse_field("pre_tokenizer", part);
    bool letters = false;
    for (const json& each : parts) {
      if (letters) refuse_field("what follows ByteLevel in pre_tokenizer", each);
      letters = read_cuts(each, cuts);
    }
    return letters;
  }
  if (type == "ByteLevel") {
    expect_field("pre_tokenizer.", part, "add_prefix_space", {false});
    const json& use_regex = field(part, "use_regex");
    if (use_regex.is_null() || use_regex == true) cuts.push_back(named_cuts("gpt2")[0]);
    return true;
  }
  if (type == "Digits") {
    const bool each = field(part, "individual_digits") == true;
    cuts.push_back({.regex = named_cuts("smollm2")[0].regex,
                    .behavior = each ? Behavior::isolated : Behavior::contiguous});
    return false;
  }
  if (type != "Split") refuse_field("pre_tokenizer", part);
  const json& pattern = field(part, "pattern");
  const json &regex = field(pattern, "Regex"), &text = field(pattern, "String");
  if (regex.is_string() == text.is_string()) refuse_field("pre_tokenizer.pattern", pattern);
  cuts.push_back({.regex = regex.is_string() ? regex.get<std::string>() : literal(text),
                  .behavior = behavior_of(field(part, "behavior")),
                  .invert = field(part, "invert") == true});
  return false;
}

AddedToken read_added(const json& token) {
  INK_CHECK(token.is_object() && field(token, "id").is_number_integer() &&
                field(token, "content").is_string(),
            "tokenizer: expected an added token to have an id and a content, got ", quoted(token));
  AddedToken added{.text = token["content"], .id = token["id"]};
  for (const char* name : {"single_word", "lstrip", "rstrip"})
    expect_field("the added token " + shown(added.text) + ": ", token, name, {false});
  added.special = field(token, "special") == true;
  const json& normalized = field(token, "normalized");
  added.late = normalized.is_null() ? !added.special : normalized == true;
  return added;
}

// By id: is it a byte, or what a merge gives?
std::vector<bool> reachable(const Vocabulary& vocabulary, const std::vector<Merge>& merges) {
  std::vector<bool> all;
  for (const std::string& token : vocabulary.tokens) all.push_back(token.size() == 1);
  for (const Merge& merge : merges) all[static_cast<size_t>(merge.result)] = true;
  return all;
}

// tokenizers takes the ids of added tokens from the vocabulary. To those that it lacks it gives the
// ids that follow, whatever the file says.
std::vector<AddedToken> read_all_added(const json& list, const std::vector<Merge>& merges,
                                       Vocabulary& vocabulary) {
  if (!list.is_null() && !list.is_array()) refuse_field("added_tokens", list);
  const std::vector<bool> is_reachable = reachable(vocabulary, merges);
  std::vector<AddedToken> added;
  auto next = static_cast<int64_t>(vocabulary.ids.size());
  for (const json& object : list) {
    added.push_back(read_added(object));
    const AddedToken& token = added.back();
    // Its text may also be in the vocabulary, as text or in byte letters.
    const auto found = vocabulary.ids.find(token.text);
    if (found == vocabulary.ids.end()) {
      INK_CHECK(token.id == next, "tokenizer: the added token ", shown(token.text), " has the id ",
                token.id, ", but tokenizers gives it the next one, ", next,
                ", unless the vocabulary has it");
      next = std::max(next, token.id + 1);
      continue;
    }
    next = std::max<int64_t>(next, found->second + 1);
    const auto at = static_cast<size_t>(found->second);
    INK_CHECK(found->second == token.id, "tokenizer: the added token ", shown(token.text),
              " has the id ", token.id, ", but the vocabulary has ", at);
    std::erase_if(vocabulary.others,
                  [&](const AddedToken& each) { return each.text == token.text; });
    if (vocabulary.tokens[at] == token.text) continue;  // merges may give it, too
    INK_CHECK(!is_reachable[at], "tokenizer: the id ", at, " is the added token ",
              shown(token.text), " and the bytes ", shown(vocabulary.tokens[at]),
              ", whose letters are the same");
    vocabulary.tokens[at].clear();
  }
  return added;
}

// Tokens that neither bytes nor merges give, such as <|endoftext|>: a text is not cut into them.
// One that does not print, or is not ASCII, is in letters, and stands for the bytes.
void take_unreachable(Vocabulary& vocabulary, const std::vector<Merge>& merges,
                      std::vector<AddedToken>& added) {
  const std::vector<bool> is_reachable = reachable(vocabulary, merges);
  for (const Merge& merge : merges)
    for (const int32_t part : {merge.left, merge.right})
      INK_CHECK(is_reachable[static_cast<size_t>(part)], "tokenizer: merge ", merge.rank, " is of ",
                shown(letters_of(vocabulary.tokens[static_cast<size_t>(part)])),
                ", which no merge gives: expected merges that begin with bytes (those of CLIP, "
                "with ends of words, are not read here)");
  for (size_t id = 0; id < is_reachable.size(); ++id) {
    std::string& token = vocabulary.tokens[id];
    if (is_reachable[id] || token.empty() || letters_of(token) != token) continue;
    added.push_back({.text = std::exchange(token, ""), .id = static_cast<int64_t>(id)});
  }
}

// Pairs of files do not say how texts are cut. As GPT-2 does, unless a merge goes across its cuts:
// Qwen2's do. (Of 've it could merge 'v, which is two pieces when alone.)
void check_cut(const Splitter& splitter, const Vocabulary& vocabulary,
               const std::vector<Merge>& merges) {
  for (const Merge& merge : merges) {
    const std::string& token = vocabulary.tokens[static_cast<size_t>(merge.result)];
    size_t pieces = 0;
    splitter.for_each_piece(token, [&](std::string_view) { ++pieces; });
    bool is_text = true;
    for (size_t at = 0; at < token.size() && is_text;)
      is_text = utf8::next(token, at) != utf8::kInvalid;
    INK_CHECK(pieces == 1 || token[0] == '\'' || !is_text, "tokenizer: merge ", merge.rank,
              " gives ", shown(token),
              ", which texts that are cut as GPT-2's never have in one piece, and these files do "
              "not say how they are cut: expected their tokenizer.json");
  }
}

std::unique_ptr<BpeTokenizer> from_vocabulary(Vocabulary vocabulary,
                                              const std::vector<Merge>& merges, bool alone) {
  std::vector<AddedToken> added = std::move(vocabulary.others);
  Splitter splitter(named_cuts("gpt2"));
  take_unreachable(vocabulary, merges, added);
  if (alone) check_cut(splitter, vocabulary, merges);
  return std::make_unique<BpeTokenizer>(Merges(std::move(vocabulary.tokens), merges, false),
                                        std::move(splitter), std::move(added));
}

std::unique_ptr<BpeTokenizer> from_object(const json& file) {
  for (const char* name : {"truncation", "padding"}) expect_field("", file, name, {});
  const json& model = field(file, "model");
  INK_CHECK(model.is_object(), "tokenizer: expected \"model\", an object, got ", quoted(model));
  // Old files have no type; only BPE has merges.
  const std::string type = type_of(model);
  if (type != "BPE" && !(type.empty() && model.contains("merges")))
    refuse_field("model.type", field(model, "type"));
  for (const char* name : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    expect_field("model.", model, name, {""});
  for (const char* name : {"fuse_unk", "byte_fallback"})
    expect_field("model.", model, name, {false});
  expect_field("model.", model, "dropout", {0.0});
  std::vector<Cut> cuts;
  if (!read_cuts(field(file, "pre_tokenizer"), cuts))
    refuse_field("pre_tokenizer without ByteLevel", field(file, "pre_tokenizer"));

  Vocabulary vocabulary = read_vocabulary(field(model, "vocab"));
  const json& list = field(model, "merges");
  INK_CHECK(list.is_array(), "tokenizer: expected \"merges\", a list, got ", quoted(list));
  std::vector<Merge> merges;
  for (const json& merge : list) {
    const size_t rank = merges.size();
    if (merge.is_string()) {
      merges.push_back(read_merge(vocabulary, merge.get<std::string>(), rank));
    } else {
      INK_CHECK(
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          "tokenizer: merge ", rank, ": expected two tokens, got ", quoted(merge));
      merges.push_back(read_merge(vocabulary, merge[0], merge[1], rank));
    }
  }

  std::vector<AddedToken> added = read_all_added(field(file, "added_tokens"), merges, vocabulary);
  INK_CHECK(vocabulary.others.empty(), "tokenizer: the token ", shown(vocabulary.others[0].text),
            " is neither an added token nor written in byte letters, as ByteLevel's are");
  return std::make_unique<BpeTokenizer>(
      Merges(std::move(vocabulary.tokens), merges, field(model, "ignore_merges") == true),
      Splitter(std::move(cuts)), std::move(added), read_normalizer(field(file, "normalizer")));
}

// ---- Pairs of files, and folders

constexpr std::pair<const char*, const char*> kPairs[] = {{"vocab.json", "merges.txt"},
                                                          {"encoder.json", "vocab.bpe"}};

std::unique_ptr<BpeTokenizer> read_pair(const path& vocab_file, const path& merges_file,
                                        bool alone) {
  const std::string vocab_text = read_text(vocab_file), merges_text = read_text(merges_file);
  Vocabulary vocabulary = with_prefix(vocab_file.string(), [&] {
    const json object = with_prefix("tokenizer", [&] { return parse_json(vocab_text); });
    return read_vocabulary(object);
  });
  return with_prefix(merges_file.string(), [&] {
    std::vector<Merge> merges;
    for_each_line(merges_text, [&](std::string line) {
      while (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty() || line.rfind("#version", 0) == 0) return;
      merges.push_back(read_merge(vocabulary, line, merges.size()));
    });
    return from_vocabulary(std::move(vocabulary), merges, alone);
  });
}

// `alone`: there is no other file that says how texts are cut.
std::unique_ptr<BpeTokenizer> read_one(const path& file, bool alone = true) {
  for (const auto& [vocab, merges] : kPairs)
    if (file.filename() == vocab || file.filename() == merges)
      return read_pair(file.parent_path() / vocab, file.parent_path() / merges, alone);
  const std::string text = read_text(file);
  return with_prefix(file.string(), [&] {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') return bpe::parse_tokenizer(text);
    INK_CHECK(text.find('\0') == std::string::npos,
              "expected a tokenizer.json or a file of tiktoken's, got binary data (a model of "
              "SentencePiece is not read here)");
    return read_tiktoken(file, text);
  });
}

// What transformers takes from the files beside those with the vocabulary.
void check_beside(const path& folder, const path& chosen, const BpeTokenizer& tokenizer) {
  const auto content = [&](const path& file) {
    if (!exists(file)) return json();
    return with_prefix(file.string(), [&] { return parse_json(read_text(file)); });
  };
  const auto expect = [&](bool holds, const path& file, const std::string& what) {
    INK_CHECK(holds, file.string(), ": ", what, ", which ", chosen.filename().string(),
              " does not say; to leave it out, name ", chosen.string());
  };
  const auto expect_token = [&](const path& file, const std::string& token, const std::string& id) {
    const std::vector<int64_t> ids = tokenizer.encode_with_special(token);
    expect(token.empty() || (ids.size() == 1 && std::to_string(ids[0]) == id), file,
           "the token " + shown(token) + " has the id " + printable(id, 20));
  };
  const path added_file = folder / "added_tokens.json",
             config_file = folder / "tokenizer_config.json";
  const json added = content(added_file), config = content(config_file);
  if (added.is_object())
    for (const auto& [token, id] : added.items()) expect_token(added_file, token, id.dump());
  const json& decoder = field(config, "added_tokens_decoder");
  if (decoder.is_object())
    for (const auto& [id, token] : decoder.items())
      if (field(token, "content").is_string()) expect_token(config_file, token["content"], id);
  expect(field(config, "add_prefix_space") != true ||
             field(config, "tokenizer_class") == "PreTrainedTokenizerFast",
         config_file, "add_prefix_space is true");
}

// The first of these says the most. The others must agree: people copy one over the other.
std::unique_ptr<BpeTokenizer> read_folder(const path& folder) {
  std::vector<path> found;
  if (exists(folder / "tokenizer.json")) found.push_back(folder / "tokenizer.json");
  for (const auto& [vocab, merges] : kPairs)
    if (exists(folder / vocab) && exists(folder / merges)) found.push_back(folder / vocab);
  std::vector<path> others;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".tiktoken" || entry.path().filename() == "tokenizer.model")
      others.push_back(entry.path());
  std::sort(others.begin(), others.end());
  found.insert(found.end(), others.begin(), others.end());
  INK_CHECK(!found.empty(), folder.string(),
            ": expected a tokenizer.json, vocab.json and merges.txt, encoder.json and vocab.bpe, "
            "or a *.tiktoken file in this folder");
  std::unique_ptr<BpeTokenizer> result = read_one(found[0]);
  for (size_t i = 1; i < found.size(); ++i) {
    const auto other = read_one(found[i], false);
    INK_CHECK(other->same_ids(*result), folder.string(), ": ", found[0].filename().string(),
              " and ", found[i].filename().string(),
              " are two vocabularies; name the one that you mean");
  }
  check_beside(folder, found[0], *result);
  return result;
}

}  // namespace

std::string letters_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    utf8::append(text, letters().of_byte[static_cast<unsigned char>(byte)]);
  return text;
}

std::string bytes_of(std::string_view text) {
  const auto bytes = try_bytes_of(text);
  INK_CHECK(bytes, "tokenizer: ", shown(text), " is not written in byte letters");
  return *bytes;
}

bool is_file_of_others(const path& file) {
  return file.extension() == ".tiktoken" || file.filename() == "tokenizer.model" ||
         std::any_of(std::begin(kPairs), std::end(kPairs), [&](const auto& pair) {
           return file.filename() == pair.first || file.filename() == pair.second;
         });
}

std::unique_ptr<BpeTokenizer> parse_tokenizer(std::string_view text) {
  return from_object(with_prefix("tokenizer", [&] { return parse_json(text); }));
}

std::unique_ptr<BpeTokenizer> load_tokenizer(const path& file) {
  return is_directory(file) ? read_folder(file) : read_one(file);
}

}  // namespace ink::bpe

namespace ink {

std::string BpeTokenizer::to_json() const {
  using nlohmann::json;
  json vocab = json::object(), list = json::array(), added = json::array(), cuts = json::array();
  const std::vector<std::string>& tokens = merges_.tokens();
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) vocab[bpe::letters_of(tokens[id])] = id;
  for (const bpe::Merge& merge : merges_.merges())
    list.push_back({bpe::letters_of(tokens[static_cast<size_t>(merge.left)]),
                    bpe::letters_of(tokens[static_cast<size_t>(merge.right)])});
  std::vector<AddedToken> in_order = added_;
  std::sort(in_order.begin(), in_order.end(), [](auto& a, auto& b) { return a.id < b.id; });
  for (const AddedToken& token : in_order) {
    vocab[token.text] = token.id;  // from where tokenizers takes it
    json one = json::parse(R"({"single_word": false, "lstrip": false, "rstrip": false})");
    one.update({{"id", token.id},
                {"content", token.text},
                {"normalized", token.late},
                {"special", token.special}});
    added.push_back(std::move(one));
  }
  for (const bpe::Cut& cut : splitter_.cuts())
    cuts.push_back({{"type", "Split"},
                    {"pattern", {{"Regex", cut.regex}}},
                    {"behavior", bpe::kBehaviors[static_cast<size_t>(cut.behavior)]},
                    {"invert", cut.invert}});
  json all = json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "post_processor": null,
    "pre_tokenizer": {"type": "Sequence"},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false}
  })");
  cuts.push_back(all["decoder"]);
  cuts.back().update({{"add_prefix_space", false}, {"use_regex", false}});
  all["added_tokens"] = std::move(added);
  all["normalizer"] = nfc_ ? json{{"type", "NFC"}} : json();
  all["pre_tokenizer"]["pretokenizers"] = std::move(cuts);
  all["model"].update(
      {{"ignore_merges", merges_.whole_first()}, {"vocab", vocab}, {"merges", list}});
  return all.dump();
}

}  // namespace ink
