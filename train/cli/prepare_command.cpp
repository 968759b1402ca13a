// inkling prepare: texts as shards of token ids.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "autograd/io/foreign.h"
#include "data/data_files.h"
#include "data/prepare.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/out_folder.h"
#include "train/cli/signals.h"

namespace ink {
namespace {

std::string summary(const Prepared& prepared) {
  return fmt::format("{} tokens, {} document{}, {} bytes of text",
                     count_text(static_cast<double>(prepared.tokens)),
                     count_text(static_cast<double>(prepared.documents)),
                     prepared.documents == 1 ? "" : "s",
                     count_text(static_cast<double>(prepared.bytes)));
}

}  // namespace

int prepare_command(const Arguments& arguments) {
  CommandOptions command("prepare",
                         "Encodes texts of any size, several at a time, into shards that train "
                         "--data maps. A call that was stopped goes on where it was.");
  std::vector<std::string> names;
  std::string tokenizer, out_dir;
  PrepareOptions options;
  command.add("text", &names,
              "files of text, or of JSON a line (*.jsonl), also packed (.gz, .zst), or folders");
  command.add("--tokenizer", &tokenizer, "byte, or a tokenizer's file or folder, also of a run");
  command.add("--out_dir", &out_dir, "the folder to write");
  command.add("--field", &options.field, "of JSON: the field that holds a document's text",
              {.shows_default = true});
  command.add("--separator", &options.separator,
              "what stands between the documents of a text; empty: a file is one",
              {.shows_default = true, .may_be_empty = true});
  command.add("--shard_tokens", &options.shard_tokens, "a shard ends after as many tokens",
              {.shows_default = true, .limits = {1, 0x1p40}});
  if (!command.parse(arguments)) return kOk;
  if (names.empty()) throw UsageError("prepare: expected files of text or folders, got none");
  if (out_dir.empty()) throw UsageError("prepare: expected --out_dir FOLDER");
  check_folder("--out_dir", out_dir);
  if (holds_run(out_dir))
    throw UsageError("--out_dir: " + printable(out_dir) +
                     " holds a run; name another folder for the ids");
  if (const auto ids = ids_of_folder(out_dir); !ids.empty())
    throw UsageError("--out_dir: " + printable(out_dir) + " holds " + names_of(ids) +
                     ", in whose place --data would take the prepared data; name another folder");
  options.tokenizer = tokenizer_to_encode("prepare", tokenizer);
  options.out_dir = out_dir;
  const auto files = files_to_prepare(names);
  Console console;
  watch_signals();
  const auto start = std::chrono::steady_clock::now();
  double shown = console.has_live_line() ? 0 : 10, first = -1;
  options.progress = [&](const PrepareProgress& now) {
    if (is_interrupted()) return false;
    const double seconds = seconds_since(start);
    if (first < 0) first = now.share;  // what an earlier call did
    if (seconds < shown) return true;
    shown = seconds + (console.has_live_line() ? 0.2 : 10);
    const double done = now.share - first, left = done > 0 ? seconds * (1 - now.share) / done : 0;
    console.live({{fmt::format("{:.0f} %", 100 * now.share), 0},
                  {fmt::format("  {} tokens", count_text(static_cast<double>(now.tokens))), 1},
                  {fmt::format("  file {} of {}", now.file + 1, now.files), 2},
                  {done > 0 ? "  " + clock_text(left) + " left" : "", 1}});
    return true;
  };
  const Prepared prepared = prepare(files, options);
  console.clear_live();
  if (!prepared.whole) {
    console.line(
        fmt::format("Stopped after {}. The same command goes on from the last whole shard.",
                    summary(prepared)));
    return kSignal + noted_signal();
  }
  const double seconds = seconds_since(start);
  console.line(fmt::format(
      "{}: {}{}", printable(out_dir), summary(prepared),
      prepared.was_there ? ", already prepared" : fmt::format(" in {}", clock_text(seconds))));
  if (prepared.documents > 1 && options.tokenizer->end_of_text() < 0)
    console.paragraph(
        "This tokenizer has no token for the end of a document: one follows the other without a "
        "mark. train --pack within keeps its windows within documents.");
  if (command.given("--separator") && !options.separator.empty() &&
      prepared.documents <= std::ssize(files))
    console.paragraph("What --separator names is in none of the texts: each is one document.");
  console.line("Train on them: " + typed("train ") + option_typed("--data", out_dir));
  return kOk;
}

}  // namespace ink
