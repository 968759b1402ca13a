#include "data/bpe/tiktoken.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/file.h"

namespace ink::bpe {
namespace {

using std::filesystem::path;

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  const size_t end = text.find_last_not_of('=') + 1;
  for (const char c : text.substr(0, end)) {
    const size_t digit = kDigits.find(c);
    INK_CHECK(digit != std::string_view::npos, "expected base64, got ", shown(text));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  INK_CHECK(text.size() % 4 == 0 && text.size() - end <= 2 && !bytes.empty() &&
                (bits & ((1u << count) - 1)) == 0,
            "expected base64, got ", shown(text));
  return bytes;
}

struct KnownFile {
  const char* part_of_name;
  size_t tokens;  // at most; it may be made smaller
  const char* cuts;
  std::vector<AddedToken> added;
  bool nfc = false;
};

std::vector<AddedToken> numbered(int64_t first, const std::vector<std::string>& texts) {
  std::vector<AddedToken> added;
  for (const std::string& text : texts) added.push_back({.text = text, .id = first++});
  return added;
}

// What a *.tiktoken file does not say. Those of Llama 3 and 4 are called tokenizer.model.
std::vector<KnownFile> known_files() {
  std::vector<std::string> llama = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|reserved_special_token_2|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>"};
  for (int i = 3; llama.size() < 256; ++i)
    llama.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
  const std::vector<AddedToken> llama4 = numbered(
      200000, {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>",
               "<|fim_suffix|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"});
  return {
      {"cl100k",
       100256,
       "cl100k",
       {{.text = "<|endoftext|>", .id = 100257},
        {.text = "<|fim_prefix|>", .id = 100258},
        {.text = "<|fim_middle|>", .id = 100259},
        {.text = "<|fim_suffix|>", .id = 100260},
        {.text = "<|endofprompt|>", .id = 100276}}},
      {"o200k",
       199998,
       "o200k",
       {{.text = "<|endoftext|>", .id = 199999}, {.text = "<|endofprompt|>", .id = 200018}}},
      {"r50k", 50256, "gpt2", numbered(50256, {"<|endoftext|>"})},
      {"p50k", 50281, "gpt2", numbered(50256, {"<|endoftext|>"})},
      {"gpt2", 50256, "gpt2", numbered(50256, {"<|endoftext|>"})},
      {"llama", 128000, "llama3", numbered(128000, llama)},
      {"llama", 200000, "o200k", llama4},
      {"tokenizer.model", 128000, "llama3", numbered(128000, llama)},
      {"tokenizer.model", 200000, "o200k", llama4},
      {"qwen", 151643, "qwen2", numbered(151643, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}),
       true},
  };
}

}  // namespace

std::unique_ptr<BpeTokenizer> read_tiktoken(const path& file, const std::string& text) {
  std::string name = file.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static const std::vector<KnownFile> all = known_files();
  const auto is_named = [&](const KnownFile& each) {
    return name.find(each.part_of_name) != std::string::npos;
  };
  INK_CHECK(std::any_of(all.begin(), all.end(), is_named),
            "such a file does not say how texts are cut, its name does: expected cl100k, o200k, "
            "r50k, p50k, gpt2, llama or qwen in it");
  constexpr size_t kMostRanks = 200'000;  // Llama 4's
  std::vector<std::string> tokens;
  size_t line_number = 0;
  for_each_line(text, [&](const std::string& line) {
    ++line_number;
    if (line.empty()) return;
    with_prefix("line " + std::to_string(line_number), [&] {
      const size_t space = line.find(' ');
      const std::string rank = space == std::string::npos ? "" : line.substr(space + 1);
      INK_CHECK(!rank.empty() && rank.size() <= 8 &&
                    rank.find_first_not_of("0123456789") == std::string::npos,
                "expected a token in base64 and its rank, got ", shown(line));
      const size_t id = std::stoul(rank);
      INK_CHECK(id < kMostRanks, "expected a rank below ", kMostRanks, ", got ", id);
      if (id >= tokens.size()) tokens.resize(id + 1);
      INK_CHECK(tokens[id].empty(), "the rank ", id, " comes twice");
      tokens[id] = from_base64(std::string_view(line).substr(0, space));
    });
  });
  const auto known = std::find_if(all.begin(), all.end(), [&](const KnownFile& each) {
    return is_named(each) && tokens.size() <= each.tokens;
  });
  INK_CHECK(known != all.end(), "expected a vocabulary of that name, got one of ", tokens.size(),
            " tokens, which is larger");
  std::vector<AddedToken> added;
  std::copy_if(known->added.begin(), known->added.end(), std::back_inserter(added),
               [&](const AddedToken& each) {  // p50k has a gap for it
                 const auto at = static_cast<size_t>(each.id);
                 return at >= tokens.size() || tokens[at].empty();
               });
  return std::make_unique<BpeTokenizer>(Merges::by_id(std::move(tokens)),
                                        Splitter(named_cuts(known->cuts)), std::move(added),
                                        known->nfc);
}

}  // namespace ink::bpe
