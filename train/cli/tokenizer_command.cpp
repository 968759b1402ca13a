// inkling tokenizer: a vocabulary of one's own, and texts as ids and back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/bpe/train.h"
#include "data/data_files.h"
#include "data/file.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/out_folder.h"

namespace ink {
namespace {

std::string standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

int train_tokenizer(const Arguments& arguments) {
  CommandOptions command("tokenizer train",
                         "Learns a byte-pair vocabulary from texts, with the merges that "
                         "tokenizers' ByteLevelBPETokenizer learns, and writes a tokenizer.json.");
  bpe::TrainOptions options;
  std::vector<std::string> texts;
  std::string out;
  command.add("text", &texts, "text files, or folders of them");
  command.add("--vocab_size", &options.vocab_size,
              "tokens: <|endoftext|>, the 256 bytes, and merges",
              {.shows_default = true, .limits = {257, 1 << 24}});
  command.add("--min_frequency", &options.min_frequency, "merge no pair that is met less often",
              {.shows_default = true, .limits = {0, 0x1p53}});
  command.add("--pattern", &options.pattern,
              "how texts are cut: gpt2, cl100k, o200k, llama3, qwen2 or smollm2",
              {.shows_default = true});
  command.add("--out", &out, "the file to write");
  if (!command.parse(arguments)) return kOk;
  if (texts.empty()) throw UsageError("tokenizer train: expected text files, got none");
  if (out.empty()) throw UsageError("tokenizer train: expected --out FILE.json");
  check_writable("--out", out);
  const bpe::Splitter splitter = [&] {
    try {
      return bpe::Splitter(bpe::named_cuts(options.pattern));
    } catch (const Error& error) {
      throw UsageError(std::string("--pattern: ") + error.what());
    }
  }();
  const DataFiles files = data_files(texts, {});
  if (files.are_ids) throw UsageError(files.train[0].string() + ": expected text, got token ids");
  Console console;
  bpe::Pieces pieces;
  for (const auto& file : files.train) {
    console.live({{fmt::format("reading {}", printable(file.string(), 60)), 0}});
    bpe::count_pieces(pieces, TextFile(file).view(), splitter);
  }
  options.progress = [&](int64_t tokens) {
    if (tokens % 256 == 0)
      console.live({{fmt::format("{} of {} tokens", tokens, options.vocab_size), 0}});
    return true;
  };
  const auto tokenizer = bpe::train(pieces, options);
  write_file(out, tokenizer->to_json());
  console.line(fmt::format("{}: {} tokens, of {} distinct pieces of text", out,
                           tokenizer->vocab_size(), pieces.size()));
  return kOk;
}

int encode_text(const Arguments& arguments) {
  CommandOptions command("tokenizer encode",
                         "Prints the ids of a text, or of what it reads from a pipe.");
  std::string tokenizer, file;
  command.add("text", &file, "a text file; without it, standard input");
  command.add("--tokenizer", &tokenizer, "a tokenizer's file or folder");
  if (!command.parse(arguments)) return kOk;
  if (tokenizer.empty()) throw UsageError("tokenizer encode: expected --tokenizer FILE or FOLDER");
  const auto loaded = load_tokenizer(tokenizer);
  const std::string text = file.empty() ? standard_input() : read_file(file);
  std::string line;
  for (const int64_t id : loaded->encode(text)) line += std::to_string(id) + " ";
  if (!line.empty()) line.back() = '\n';
  std::cout << line;
  return kOk;
}

int decode_ids(const Arguments& arguments) {
  CommandOptions command("tokenizer decode", "Prints the text of ids that it reads from a pipe.");
  std::string tokenizer;
  command.add("--tokenizer", &tokenizer, "a tokenizer's file or folder");
  if (!command.parse(arguments)) return kOk;
  if (tokenizer.empty()) throw UsageError("tokenizer decode: expected --tokenizer FILE or FOLDER");
  const auto loaded = load_tokenizer(tokenizer);
  std::vector<int64_t> ids;
  for (std::string word; std::cin >> word;) {
    INK_CHECK(word.size() <= 9 && word.find_first_not_of("0123456789") == std::string::npos,
              "decode: expected ids, got ", printable(word, 60));
    ids.push_back(std::stoll(word));
  }
  std::cout << loaded->decode(ids);
  return kOk;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  const std::string action = arguments.empty() ? "--help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (action == "train") return train_tokenizer(rest);
  if (action == "encode") return encode_text(rest);
  if (action == "decode") return decode_ids(rest);
  if (action != "--help" && action != "-h")
    throw UsageError("tokenizer: expected train, encode or decode, got '" + printable(action, 60) +
                     "'");
  std::cout << "usage: inkling tokenizer train --vocab_size N --out FILE.json TEXT...\n"
               "       inkling tokenizer encode --tokenizer FILE [TEXT]\n"
               "       inkling tokenizer decode --tokenizer FILE\n"
               "COMMAND --help: its options\n";
  return kOk;
}

}  // namespace ink
