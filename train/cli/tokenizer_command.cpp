// inkling tokenizer: a vocabulary of one's own, and texts as ids and back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/bpe/train.h"
#include "data/data_files.h"
#include "data/file.h"
#include "data/formats.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/out_folder.h"
#include "train/cli/signals.h"
#include "train/cli/waiting.h"
#include "train/report/numbers.h"

namespace ink {
namespace {

// Of a file, or of standard input where none is named, as training reads it.
std::string text_of(const std::string& file) {
  if (file.empty()) {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    return text.substr(byte_order_mark(text));
  }
  INK_CHECK(has_path(file), "text: there is no file ", printable(file, 60),
            "; a text itself comes from a pipe");
  return read_text(file);
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
              {.shows_default = true, .limits = {257, bpe::kMostTokens}});
  command.add("--min_frequency", &options.min_frequency, "merge no pair that is met less often",
              {.shows_default = true, .limits = {0, 0x1p53}});
  command.add("--pattern", &options.pattern,
              "how texts are cut: gpt2, cl100k, o200k, llama3, qwen2 or smollm2",
              {.shows_default = true});
  command.add("--out", &out, "the file to write");
  if (!command.parse(arguments)) return kOk;
  if (texts.empty()) throw UsageError("tokenizer train: expected text files, got none");
  if (out.empty()) throw UsageError("tokenizer train: expected --out FILE.json");
  const std::filesystem::path name = out;
  if (bpe::is_file_of_others(name) || name == "byte" || name == "char")
    throw UsageError("--out: " + printable(out, 200) +
                     " means something else where a tokenizer is named; write tokenizer.json");
  check_writable("--out", out);
  const bpe::Splitter splitter =
      as_usage("--pattern: ", [&] { return bpe::Splitter(bpe::named_cuts(options.pattern)); });
  const DataFiles files = data_files(texts, {}, "text");
  check_not_read("--out", out, files.train);
  if (files.are_ids) throw UsageError(files.train[0].string() + ": expected text, got token ids");
  if (!files.note.empty()) log_message(files.note);
  Console console;
  watch_signals();
  bpe::Pieces pieces;
  for (const auto& file : files.train) {
    const Waiting waiting(console, "reading " + printable(file.string(), 60));
    const TextFile text(file);
    bpe::count_pieces(pieces, text.view(), splitter, [&](size_t begin, size_t end) {
      text.release(begin, end);
      return !is_interrupted();
    });
  }
  auto shown = std::chrono::steady_clock::now();
  options.progress = [&](int64_t tokens) {
    if (console.has_live_line() && seconds_since(shown) > 0.2) {
      console.live({{fmt::format("{} of {} tokens", tokens, options.vocab_size), 0}});
      shown = std::chrono::steady_clock::now();
    }
    return !is_interrupted();
  };
  const size_t distinct = pieces.size();
  const auto tokenizer = is_interrupted() ? nullptr : bpe::train(std::move(pieces), options);
  if (is_interrupted()) {
    console.line("Stopped; nothing was written.");
    return kSignal + noted_signal();
  }
  write_output("--out", out, tokenizer->to_json());
  if (is_stdout(out)) return kOk;
  console.paragraph(fmt::format("{}: {} tokens, of {} distinct pieces of text", out,
                                tokenizer->vocab_size(), distinct));
  if (tokenizer->vocab_size() < options.vocab_size)
    console.paragraph(fmt::format(
        "Fewer than --vocab_size {}: no other pair of tokens is met {} times (--min_frequency)",
        options.vocab_size, options.min_frequency));
  return kOk;
}

// Cells of a token and its id, one above the other, as wide as the terminal or a page.
class TokenRows {
 public:
  explicit TokenRows(Console& console)
      : console_(console), columns_(console.is_terminal() ? console.columns() : 99) {}

  void add(const std::string& token, int64_t id, bool ends_line) {
    const std::string number = std::to_string(id);
    const size_t width = std::max(columns_of(token), number.size());
    if (used_ > 0 && used_ + 1 + width > columns_) flush();
    const auto padded = [&](const std::string& text) {
      return text + std::string(width - columns_of(text) + 1, ' ');
    };
    const std::string colour[] = {console_.green(token), console_.yellow(token)};
    tokens_ += colour[count_++ % 2] + padded(token).substr(token.size());
    ids_ += padded(number);
    used_ += width + 1;
    if (ends_line) flush();
  }
  void flush() {
    if (used_ == 0) return;
    console_.line(tokens_);
    console_.line(console_.dim(ids_));
    tokens_.clear(), ids_.clear();
    used_ = 0;
  }

 private:
  Console& console_;
  size_t columns_, used_ = 0, count_ = 0;
  std::string tokens_, ids_;
};

// Spaces, line ends and tabs as characters that can be seen.
std::string visible(std::string text) {
  const std::pair<char, const char*> marks[] = {
      {' ', "\u2423"}, {'\n', "\u21b5"}, {'\t', "\u21e5"}, {'\r', "\u240d"}};
  for (const auto& [character, mark] : marks)
    for (size_t at = 0; (at = text.find(character, at)) != std::string::npos;)
      text.replace(at, 1, mark);
  return printable(text);
}

int show_text(const Arguments& arguments) {
  CommandOptions command(
      "tokenizer show",
      "Shows the tokens of a text, each above its id, and how many bytes a token has on average.");
  std::string tokenizer, file;
  command.add("text", &file, "a text file; without it, standard input");
  command.add("--tokenizer", &tokenizer, "byte, or a tokenizer's file or folder, also of a run");
  if (!command.parse(arguments)) return kOk;
  const auto loaded = tokenizer_to_encode("tokenizer show", tokenizer);
  const std::string text = text_of(file);
  const std::vector<int64_t> ids = loaded->encode(text);
  Console console;
  TokenRows rows(console);
  for (const int64_t id : ids) {
    const std::string token = token_text(*loaded, id);
    rows.add(visible(token), id, token.find('\n') != std::string::npos);
  }
  rows.flush();
  const double bytes = static_cast<double>(text.size()), count = static_cast<double>(ids.size());
  console.line(fmt::format("{} tokens, {} bytes, {:.2f} bytes a token", ids.size(), text.size(),
                           count > 0 ? bytes / count : 0));
  return kOk;
}

int encode_text(const Arguments& arguments) {
  CommandOptions command("tokenizer encode",
                         "Prints the ids of a text, or of what it reads from a pipe.");
  std::string tokenizer, file;
  command.add("text", &file, "a text file; without it, standard input");
  command.add("--tokenizer", &tokenizer, "byte, or a tokenizer's file or folder, also of a run");
  if (!command.parse(arguments)) return kOk;
  const auto loaded = tokenizer_to_encode("tokenizer encode", tokenizer);
  std::string line;
  for (const int64_t id : loaded->encode(text_of(file))) line += std::to_string(id) + " ";
  if (!line.empty()) line.back() = '\n';
  std::cout << line;
  return kOk;
}

int decode_ids(const Arguments& arguments) {
  CommandOptions command("tokenizer decode",
                         "Prints the text of ids, or of those that it reads from a pipe.");
  std::string tokenizer;
  Arguments ids;
  command.add("id", &ids, "ids; without any, standard input");
  command.add("--tokenizer", &tokenizer, "byte, or a tokenizer's file or folder, also of a run");
  if (!command.parse(arguments)) return kOk;
  const auto loaded = tokenizer_to_encode("tokenizer decode", tokenizer);
  const auto write = [&](const std::string& word) {
    INK_CHECK(word.size() <= 9 && word.find_first_not_of("0123456789") == std::string::npos,
              "decode: expected ids with spaces between them, got ", printable(word, 60));
    const int64_t id = std::stoll(word);
    std::cout << loaded->decode({&id, 1});
  };
  for (const std::string& word : ids) write(word);
  if (!ids.empty()) return kOk;
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  for (std::string word; std::cin >> word;) {
    write(word);
    // As they come: what stands behind the last one so far is a space or the end of a line.
    if (std::cin.rdbuf()->in_avail() <= 1) std::cout.flush();
  }
  return kOk;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  const std::string action = arguments.empty() ? "--help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (action == "train") return train_tokenizer(rest);
  if (action == "encode") return encode_text(rest);
  if (action == "decode") return decode_ids(rest);
  if (action == "show") return show_text(rest);
  if (action != "--help" && action != "-h")
    throw UsageError("tokenizer: expected train, encode, decode or show, got '" +
                     printable(action, 60) + "'");
  std::string all;
  for (const char* usage :
       {"train --vocab_size N --out FILE.json TEXT...", "encode --tokenizer FILE [TEXT.txt]",
        "decode --tokenizer FILE [ID...]", "show --tokenizer FILE [TEXT.txt]"})
    all += filled((all.empty() ? "usage: " : "       ") + typed("tokenizer ") + usage,
                  help_columns(), 9) +
           "\n";
  (arguments.empty() ? std::cerr : std::cout) << all << "COMMAND --help: its options\n";
  return arguments.empty() ? kUsage : kOk;
}

}  // namespace ink
