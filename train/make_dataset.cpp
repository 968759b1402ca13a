#include "train/make_dataset.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "autograd/inspect/machine.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/bpe/train.h"
#include "data/data_files.h"
#include "data/file.h"
#include "data/tasks.h"
#include "train/memory.h"

namespace ink {
namespace {

// A pipe can be read once.
bool is_pipe(const std::filesystem::path& file) { return !has_file(file); }

// The characters of a text that a tokenizer does not know, up to twenty; none of other data.
std::string unknown_characters(const TrainConfig& config, const Tokenizer& tokenizer) {
  if (config.data.empty() || !config.task().empty()) return "";
  const DataFiles files = data_files(config.data, config.val_data);
  const auto has_pipe = [](const auto& of) { return std::any_of(of.begin(), of.end(), is_pipe); };
  if (files.are_ids || has_pipe(files.train) || has_pipe(files.val)) return "";
  const TextDataset dataset(files.train, nullptr, config.val_fraction, files.val);
  std::string unknown;
  int64_t count = 0;
  for (int64_t id = 0; id < dataset.tokenizer().vocab_size(); ++id) {
    const std::string character = dataset.tokenizer().decode({&id, 1});
    try {
      static_cast<void>(tokenizer.encode(character));
    } catch (const Error&) {
      if (++count <= 20)
        unknown += detail::joined({count > 1 ? ", '" : "'", printable(character, 20), "'"});
    }
  }
  return count > 20 ? detail::joined({unknown, " and ", count - 20, " more"}) : unknown;
}

// Throws if a text has characters that the vocabulary of a run lacks; says which.
void check_vocabulary(const TrainConfig& config, const SavedRun& run, const char* what) {
  const std::string unknown =
      run.tokenizer->name() == "char" ? unknown_characters(config, *run.tokenizer) : "";
  INK_CHECK(unknown.empty(), what, ": the vocabulary of ", run.folder.string(),
            " lacks characters of --data: ", unknown,
            "; take them out of the text, or train from scratch (a run with --tokenizer byte "
            "can go on with any text)");
}

// Calls f(file, part) for what is trained on: of all bytes, the last val_fraction validates, unless
// other files do.
template <class F>
void for_each_training_text(const DataFiles& files, double val_fraction, const F& f) {
  std::vector<TextFile> texts;
  size_t left = 0;
  for (const auto& file : files.train) left += texts.emplace_back(file).view().size();
  if (files.val.empty()) left = static_cast<size_t>(static_cast<double>(left) * (1 - val_fraction));
  for (const TextFile& text : texts) {
    const std::string_view whole = text.view();
    size_t end = std::min(left, whole.size());
    left -= end;
    while (end > 0 && end < whole.size() && (whole[end] & 0xc0) == 0x80) --end;  // in a character
    f(text, whole.substr(0, end));
  }
}

void check_learned_from(const DataFiles& files, const std::string& tokenizer) {
  INK_CHECK(!files.are_ids, "--tokenizer ", tokenizer,
            ": it is learned from texts, and --data holds token ids; leave it out, or name the "
            "file or folder of the tokenizer that made them");
  for (const auto& file : files.train)
    INK_CHECK(!is_pipe(file), "--tokenizer ", tokenizer,
              ": it is learned before the text is trained on, and ", file.string(),
              ", a pipe, can be read once; name a file, or a tokenizer's file");
}

// bpe:N is learned from what is trained on, so that validation says the same of every vocabulary.
std::shared_ptr<const Tokenizer> named_tokenizer(const std::string& name, const DataFiles& files,
                                                 double val_fraction) {
  if (name == "char") return nullptr;  // of the characters found
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (name.rfind("bpe:", 0) == 0) {
    check_learned_from(files, name);
    bpe::Pieces pieces;
    bpe::TrainOptions options;
    options.vocab_size = bpe_vocab_size(name);
    const bpe::Splitter splitter(bpe::named_cuts(options.pattern));
    for_each_training_text(files, val_fraction, [&](const TextFile& text, std::string_view part) {
      bpe::count_pieces(pieces, part, splitter, [&](size_t begin, size_t end) {
        text.release(begin, end);  // what has been read
        return true;
      });
    });
    auto learned =
        with_prefix("--tokenizer " + name, [&] { return bpe::train(std::move(pieces), options); });
    if (learned->vocab_size() < options.vocab_size)
      log_message("--tokenizer ", name, ": has ", learned->vocab_size(),
                  " tokens, because no other pair is met ", options.min_frequency, " times");
    return learned;
  }
  if (const MakeTokenizer learn = tokenizer_learner(name)) {
    check_learned_from(files, name);
    std::string text;
    for_each_training_text(files, val_fraction,
                           [&](const TextFile&, std::string_view part) { text += part; });
    return with_prefix("--tokenizer " + name, [&] {
      std::shared_ptr<const Tokenizer> learned = learn(text);
      INK_CHECK(learned, "what add_tokenizer was given to learn it made none");
      return learned;
    });
  }
  std::error_code error;
  if (status(std::filesystem::path(name), error).type() == std::filesystem::file_type::not_found) {
    std::string learned;
    for (const std::string& own : tokenizer_names()) {
      INK_CHECK(own != name, "--tokenizer: ", name,
                ": it is not learned from a text; name the file that holds one");
      if (tokenizer_learner(own)) learned += own + ", ";
    }
    detail::fail({"--tokenizer: ", printable(name), ": expected char, byte, bpe:N, ", learned,
                  "or a file or folder; there is no such file, and none is downloaded"});
  }
  return with_prefix("--tokenizer", [&] { return load_tokenizer(name); });
}

// The vocabulary of files of ids: the given one, or that in the first meta.pkl beside one of them.
// Throws if another meta.pkl says that its ids mean something else.
std::shared_ptr<const Tokenizer> vocabulary_of_ids(const DataFiles& files,
                                                   std::shared_ptr<const Tokenizer> given) {
  const bool is_given = given != nullptr;
  std::string of = "the model", without;  // without: a file that has no meta.pkl
  std::set<std::filesystem::path> folders;
  for (const auto* part : {&files.train, &files.val})
    for (const auto& file : *part) {
      if (!folders.insert(file.parent_path()).second) continue;
      std::shared_ptr<const Tokenizer> its;
      try {
        its = vocabulary_beside(file);
      } catch (const Error&) {  // a meta.pkl of no characters says nothing against other tokens
        if (!given || given->name() == "char") throw;
      }
      if (!its && without.empty()) without = file.string();
      if (!given && its) given = its, of = file.string();
      INK_CHECK(!its || !given || !given->has_text() || its->to_json() == given->to_json(),
                file.string(), ": the meta.pkl beside it has another vocabulary, of ",
                its->vocab_size(), " (", its->name(), "), than ", of, ", of ", given->vocab_size(),
                " (", given->name(), "); name the text that the ids were made of, or, if it is ",
                "not theirs, take meta.pkl away");
    }
  if (!is_given && given && !without.empty())
    log_message(without, ": no meta.pkl is beside it; its ids are taken for those of ", of);
  return given;
}

// Throws if the ids of these texts do not fit into memory, where the system would end the program
// without a word. The begin of the largest text tells how many ids a byte has.
void check_ids_fit(const DataFiles& files, const Tokenizer* tokenizer) {
  uintmax_t bytes = 0, largest = 0;
  std::filesystem::path file;
  for (const auto* part : {&files.train, &files.val})
    for (const auto& each : *part) {
      const uintmax_t size = is_pipe(each) ? 0 : file_size(each);
      bytes += size;
      if (size > largest) largest = size, file = each;
    }
  if (bytes < static_cast<uintmax_t>(usable_memory()) / 4) return;  // 4 bytes of ids for each one
  const TextFile text(file);
  std::string_view begin = text.view().substr(0, size_t{1} << 16);
  const auto begins_character = [](char c) { return (c & 0xc0) != 0x80; };
  const auto last =
      std::distance(begin.rbegin(), std::find_if(begin.rbegin(), begin.rend(), begins_character));
  if (last < 4 && last + 1 < std::ssize(begin))  // it may be cut
    begin.remove_suffix(static_cast<size_t>(last) + 1);
  const double ids =
      tokenizer == nullptr
          ? static_cast<double>(std::count_if(begin.begin(), begin.end(), begins_character))
          : with_prefix(file.string(),
                        [&] { return static_cast<double>(tokenizer->encode(begin).size()); });
  const int of_id = tokenizer == nullptr || tokenizer->vocab_size() <= 1 << 16 ? 2 : 4;
  const double share = ids / static_cast<double>(begin.size());
  check_memory("--data, as token ids,",
               static_cast<int64_t>(static_cast<double>(bytes) * share) * of_id,
               "inkling prepare writes them to files, which train reads in place");
}

}  // namespace

std::unique_ptr<Dataset> make_other_dataset(TrainConfig config, const SavedRun& run,
                                            const char* what) {
  config.tokenizer = TrainConfig().tokenizer;  // it was said of other data what their ids mean
  try {
    return make_dataset(config, run.tokenizer);
  } catch (const Error&) {
    check_vocabulary(config, run, what);
    throw;
  }
}

std::unique_ptr<Dataset> make_dataset(const TrainConfig& config,
                                      std::shared_ptr<const Tokenizer> tokenizer) {
  const std::string task = config.task();
  if (config.data.empty() || !task.empty()) {
    std::unique_ptr<Dataset> endless;
    if (task.empty()) {
      endless = std::make_unique<FablesDataset>();
    } else {
      endless = std::make_unique<TaskDataset>(task, config.task_digits, config.val_fraction);
    }
    INK_CHECK(!tokenizer || tokenizer->to_json() == endless->tokenizer().to_json(),
              "the vocabulary of ", task.empty() ? "fables" : config.data[0], ", of ",
              endless->tokenizer().vocab_size(), " (char), is not the one of ",
              tokenizer->vocab_size(), " (", tokenizer->name(),
              ") that the model was trained on; name a text with --data");
    return endless;
  }
  const DataFiles files = data_files(config.data, config.val_data);
  if (!files.note.empty()) log_message(files.note);
  if (!tokenizer) tokenizer = named_tokenizer(config.tokenizer, files, config.val_fraction);
  INK_CHECK(config.pack == "across" || files.are_prepared,
            "--pack within: expected prepared data, which know where documents begin; make them "
            "with inkling prepare");
  if (!files.are_ids) {
    check_ids_fit(files, tokenizer.get());
    return std::make_unique<TextDataset>(files.train, tokenizer, config.val_fraction, files.val);
  }
  if (files.are_prepared) {
    PreparedDataset::Options options;
    options.val_fraction = config.val_fraction;
    options.within_documents = config.pack == "within";
    if (!files.val.empty()) options.val_folder = files.val[0].parent_path();
    return std::make_unique<PreparedDataset>(files.train[0].parent_path(), tokenizer, options);
  }
  if (config.tokenizer == "char") tokenizer = vocabulary_of_ids(files, std::move(tokenizer));
  TokenDataset::Options options;
  options.val_fraction = config.val_fraction;
  options.val_files = files.val;
  auto dataset = std::make_unique<TokenDataset>(files.train, tokenizer, options);
  if (!tokenizer)
    log_message("--data: ", files.train[0].string(),
                " holds token ids, and nothing says what they ",
                "mean: samples are ids. Name their vocabulary with --tokenizer FILE or FOLDER "
                "(GPT-2's: encoder.json and vocab.bpe)");
  return dataset;
}

// When a run is resumed, the fingerprints are compared before anything reads the files that it
// names itself.
std::unique_ptr<Dataset> dataset_for(const TrainConfig& config, const std::string& fingerprint,
                                     const std::optional<SavedRun>& saved) {
  if (!saved) return make_dataset(config);
  if (saved->is_start) return make_other_dataset(config, *saved, "--init_from");
  const bool same_kind = config.data.empty() == saved->config.data.empty();
  const bool known = !saved->data.empty() && !fingerprint.empty();
  const bool same = same_kind && (!known || fingerprint == saved->data);
  const bool is_named = config.data != saved->config.data;  // by who resumes the run
  if (!same && is_named && !config.data_changed && !fingerprint.empty())
    check_vocabulary(config, *saved, "resume");
  INK_CHECK(config.data_changed || same, "resume: ", saved->folder.string(), " was trained on ",
            saved->data.empty() ? printable(saved->dataset, 200) : saved->data, ", got ",
            fingerprint.empty() ? "other data" : fingerprint,
            "; name the same text with --data, or go on with --data_changed");
  INK_CHECK(config.data_changed || config.data.empty() ||
                config.val_fraction == saved->config.val_fraction ||
                !data_files(config.data, config.val_data).val.empty(),
            "resume: ", saved->folder.string(), " has val_fraction ", saved->config.val_fraction,
            ", got ", config.val_fraction,
            ", with which it would validate on other text, some of "
            "which it was trained on; leave it out, or go on with --data_changed");
  // If the run has no fingerprint, the vocabulary of the files is compared with the run's.
  if (config.data_changed) return make_other_dataset(config, *saved, "resume");
  return make_dataset(config, known ? saved->tokenizer : nullptr);
}

void check_can_be_saved(const Tokenizer& tokenizer) {
  if (dynamic_cast<const BpeTokenizer*>(&tokenizer)) return;  // large
  const std::string name = tokenizer.name();
  const auto names = tokenizer_names();
  INK_CHECK(std::find(names.begin(), names.end(), name) != names.end(), "Trainer: the tokenizer ",
            name, " could not be read from a checkpoint; call add_tokenizer(\"", name,
            "\", ...) before the trainer is made");
  with_prefix("Trainer: the tokenizer " + name, [&] {
    const std::string json = tokenizer.to_json();
    INK_CHECK(parse_tokenizer(json)->to_json() == json,
              "what its to_json() writes is read as another tokenizer");
  });
}

}  // namespace ink
