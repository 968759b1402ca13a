#include "data/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "data/formats.h"
#include "data/meta_pkl.h"
#include "data/prepare.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

bool is_token_file(const fs::path& file) {
  return file.extension() == ".bin" || file.extension() == ".u16" || file.extension() == ".u32";
}

bool is_text_file(const fs::path& file) {
  return ::fnmatch("*.txt", file.filename().c_str(), FNM_CASEFOLD) == 0;
}

// It stands for its folder of prepared data.
bool is_prepared(const fs::path& file) { return file.filename() == kPreparedFile; }

// What is in a folder and not hidden, by name.
struct Listed {
  Paths files, others;
};

Listed listed(const fs::path& folder) {
  Listed found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string()[0] == '.') continue;
    std::error_code unknown;
    (entry->is_regular_file(unknown) ? found.files : found.others).push_back(entry->path());
  }
  INK_CHECK(!error, folder.string(), ": ", error.message());
  std::sort(found.files.begin(), found.files.end());
  return found;
}

Paths fitting(const Paths& files, const char* pattern) {
  Paths found;
  for (const fs::path& file : files)
    if (::fnmatch(pattern, file.filename().c_str(), 0) == 0) found.push_back(file);
  return found;
}

// The files of ids that a folder is known to hold. A .u32 may be made of the .bin beside it.
Paths known_ids(const Paths& files, const std::string& part) {
  for (const std::string& name : {part, "*_" + part, "*_" + part + "_*"})
    for (const char* ending : {".u32", ".bin", ".u16"})
      if (Paths found = fitting(files, (name + ending).c_str()); !found.empty()) return found;
  return {};
}

bool fits_any(const fs::path& file, std::initializer_list<const char*> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const char* pattern) {
    return ::fnmatch(pattern, file.filename().c_str(), FNM_CASEFOLD) == 0;
  });
}

// An empty file is nothing to train on, or is of /proc; others tell of the data beside them.
bool is_beside_texts(const fs::path& file) {
  std::error_code unknown;
  return fs::file_size(file, unknown) == 0 ||
         fits_any(file, {"readme", "readme.*", "license", "license.*", "requirements*.txt"});
}

// Why a folder with this file is not one of texts; empty: it may be.
std::string no_text(const fs::path& file) {
  constexpr size_t kBegin = 8000;
  const std::string name = file.string();
  if (fits_any(file, {"*.py", "*.sh", "*.ipynb"}))
    return name + " is a program; if it makes the data, run it first";
  if (is_token_file(file)) return name + " looks like token ids: --data " + for_shell(name);
  if (file.extension() == ".ids")
    return name + " is of data that prepare has not finished; give the same command again";
  try {
    if (TextFile(file).view().substr(0, kBegin).find('\0') == std::string_view::npos) return "";
  } catch (const Error& error) {
    return error.what();
  }
  return name + " is no text";
}

enum DataPart { kNone, kTrain, kVal, kTest };

// Which part of some data this is, by a word of its name, and what is around that word.
std::pair<DataPart, std::string> part_of(const fs::path& file) {
  std::string name = file.filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::pair<DataPart, std::string> found{kNone, ""};
  for (size_t at = 0, end = 0; at < name.size(); at = end + 1) {
    end = std::min(name.find_first_of("-_. ", at), name.size());
    for (const auto& [word, part] : {std::pair{"train", kTrain},
                                     {"val", kVal},
                                     {"valid", kVal},
                                     {"validation", kVal},
                                     {"dev", kVal},
                                     {"eval", kVal},
                                     {"heldout", kVal},
                                     {"holdout", kVal},
                                     {"test", kTest}}) {
      if (name.compare(at, end - at, word) != 0) continue;
      if (found.first != kNone) return {kNone, ""};
      found = {part, name.substr(0, at) + name.substr(end)};
    }
  }
  return found;
}

// The same by the first name on the way from the root to the file that has such a word.
std::pair<DataPart, std::string> part_of(const fs::path& file, const fs::path& root) {
  if (root.empty()) return part_of(file);
  fs::path before;
  for (const fs::path& name : file.lexically_relative(root)) {
    const auto [part, around] = part_of(name);
    if (part != kNone) return {part, (before / around).string()};
    before /= name;
  }
  return {kNone, ""};
}

// Where a folder's texts are not its own, but of folders in it: what to name instead.
std::string said_of_folders(const Paths& others) {
  Paths folders;
  std::error_code unknown;
  for (const fs::path& other : others)
    if (has_folder(other) && !fs::is_empty(other, unknown)) folders.push_back(other);
  if (folders.empty()) return "";
  std::sort(folders.begin(), folders.end());
  const TextParts parts = parts_of(folders);
  const fs::path& train = parts.train.empty() ? folders[0] : parts.train[0];
  return "; files of folders in it are not taken; name the folder: --data " +
         for_shell(train.string()) +
         (parts.val.empty() ? "" : " --val_data " + for_shell(parts.val[0].string())) +
         (parts.train.empty() && folders.size() > 1 ? " and others" : "");
}

// The texts of a folder.
DataFiles texts_of_folder(const fs::path& folder, const Listed& all) {
  auto [texts, left_out, why, some] = choose_texts(all.files, is_text_file);
  left_out.insert(left_out.end(), all.others.begin(), all.others.end());
  std::sort(left_out.begin(), left_out.end());
  const std::string expected =
      detail::joined({folder.string(),
                      ": expected text files in this folder (*.txt, or nothing but UTF-8 texts), "
                      "or token ids in train.bin"});
  if (std::none_of(all.files.begin(), all.files.end(), is_text_file)) check_no_run(folder);
  if (!some.empty()) why += ". To train on some of its files, name them: --data FILE";
  if (some.has_extension())
    why += ", or a pattern, such as " +
           for_shell((folder / ("*" + some.extension().string())).string());
  if (!why.empty()) detail::fail({expected, "; ", why});
  INK_CHECK(!texts.empty(), expected, ", found ", left_out.empty() ? "none" : names_of(left_out),
            said_of_folders(left_out));
  const TextParts parts = parts_of(texts);
  if (!parts.train.empty()) {
    INK_CHECK(parts.others.empty(), folder.string(), ": ", names_of(parts.train),
              " and others seem to be parts of one text, and ", names_of(parts.others),
              " of none; name what to train on, and what to validate on: --data TRAIN --val_data "
              "VAL; or all: --data ",
              for_shell((folder / ("*" + texts[0].extension().string())).string()));
    left_out.insert(left_out.begin(), parts.test.begin(), parts.test.end());
    texts = parts.train;
  }
  DataFiles found{texts, parts.val, false, false, ""};
  found.note = detail::joined({folder.string(), ": ", texts.size(),
                               texts.size() == 1 ? " text file, " : " text files, ",
                               texts.front().filename().string()});
  if (texts.size() > 1) found.note += " to " + texts.back().filename().string();
  if (!parts.val.empty()) found.note += ", and to validate on, " + names_of(parts.val);
  if (!left_out.empty()) found.note += "; left out: " + names_of(left_out);
  if (!parts.train.empty() && parts.val.empty())
    found.note += " (--val_data FILE validates on one)";
  return found;
}

// Which other ids of a folder nothing is done with.
std::string ids_left_out(const fs::path& folder, Paths files, const Paths& trains,
                         const Paths& vals) {
  std::erase_if(files, [&](const fs::path& file) {
    return !is_token_file(file) || std::count(trains.begin(), trains.end(), file) > 0 ||
           std::count(vals.begin(), vals.end(), file) > 0;
  });
  if (files.empty()) return "";
  return detail::joined({folder.string(), ": ", names_of(trains), vals.empty() ? "" : " and ",
                         names_of(vals), "; left out: ", names_of(files),
                         vals.empty() ? " (--val_data FILE validates on one)" : ""});
}

// The files that a folder stands for, and those for validation, if they are apart.
DataFiles files_of_folder(const fs::path& folder) {
  const Listed all = listed(folder);
  const Paths& files = all.files;
  if (std::count(files.begin(), files.end(), folder / kPreparedFile) > 0)
    return {{folder / kPreparedFile}, {}, true, true, ""};
  INK_CHECK(std::count(files.begin(), files.end(), folder / kPreparingFile) == 0, folder.string(),
            ": prepare was stopped in this folder; give it the same command to go on");
  const Paths trains = known_ids(files, "train"), vals = known_ids(files, "val");
  const auto is_numbered = [](const Paths& ids) {
    return !ids.empty() && ::fnmatch("*_*_*", ids[0].filename().c_str(), 0) == 0;
  };
  if (!trains.empty() || !vals.empty()) {
    INK_CHECK(
        (trains.size() == 1 || is_numbered(trains)) && (vals.size() <= 1 || is_numbered(vals)),
        folder.string(),
        ": expected one file of token ids to train on and one to validate on, got ", trains.size(),
        " and ", vals.size(), "; name them: --data TRAIN.bin --val_data VAL.bin");
    return {trains, vals, true, false, ids_left_out(folder, files, trains, vals)};
  }
  return texts_of_folder(folder, all);
}

const char* kind_of(const fs::path& file) {
  return is_prepared(file) ? "prepared data" : is_token_file(file) ? "token ids" : "text";
}

std::string typed(const fs::path& file) {
  return for_shell((is_prepared(file) ? file.parent_path() : file).string());
}

// What cannot be read, or does not go together, is told by its option.
void check_readable(const Paths& files) {
  for (const fs::path& file : files) {
    INK_CHECK(file.extension() != ".ids", file.string(),
              ": this is a shard of prepared data; name the folder that it is in");
    std::error_code unknown;
    if (is_prepared(file) || is_token_file(file)) {
      MappedFile{file};
    } else if (!fs::is_fifo(file, unknown)) {  // a pipe can be read once
      TextFile{file};
    }
  }
  for (const fs::path& file : files)
    INK_CHECK(kind_of(file) == std::string_view(kind_of(files[0])),
              "expected files of one kind, got ", typed(files[0]), " (", kind_of(files[0]),
              ") and ", typed(file), " (", kind_of(file),
              "); inkling prepare makes one folder of many texts");
}

// How a file begins that can be read again; empty if it is packed, or no text.
std::string begin_of(const fs::path& file) {
  constexpr size_t kLongest = 1 << 16;
  if (!has_file(file)) return "";
  try {
    return std::string(TextFile(file).view().substr(0, kLongest));
  } catch (const Error&) {
    return "";
  }
}

// Does a text begin with a line of JSON: '{', an object, or '[', a list of them? 0: neither.
char begins_with_json(const fs::path& file) {
  const std::string text = begin_of(file);
  const size_t first = text.find_first_not_of(" \t\r\n"),
               object = text.find_first_not_of("[ \t\r\n", first),
               name = text.find_first_not_of(" \t", object + 1);
  if (object == text.npos || name == text.npos || text[object] != '{' || text[name] != '"')
    return 0;
  const std::string line = text.substr(object, text.find('\n', object) - object);
  const size_t last = line.rfind('}');
  if (last == line.npos) return 0;
  try {
    parse_json("[" + line.substr(0, last + 1) + "]");
    return text[first];
  } catch (const Error&) {
    return 0;
  }
}

void add_note(std::string& notes, const std::string& note) {
  notes += (notes.empty() || note.empty() ? "" : "; ") + note;
}

// What a list of names stands for. as_val: only what a folder has for validation, if it is apart.
DataFiles files_of(const std::vector<std::string>& names, bool as_val) {
  DataFiles all;
  for (const std::string& name : names) {
    DataFiles found{{name}, {}, false, false, ""};
    if (has_folder(name)) {
      found = files_of_folder(name);
    } else if (name == kPreparedFile) {
      found.train = {fs::path(".") / name};
    } else if (const Paths fit = files_by_pattern(name); !fit.empty()) {
      found.train = fit;
    } else {
      check_is_name(name);
    }
    if (as_val && !found.val.empty()) found.train = std::move(found.val);
    all.train.insert(all.train.end(), found.train.begin(), found.train.end());
    all.val.insert(all.val.end(), found.val.begin(), found.val.end());
    add_note(all.note, found.note);
  }
  check_readable(all.train);
  all.are_prepared = std::any_of(all.train.begin(), all.train.end(), is_prepared);
  all.are_ids = all.are_prepared || std::any_of(all.train.begin(), all.train.end(), is_token_file);
  if (!all.are_ids) add_note(all.note, said_of_fields(all.train));
  if (!all.are_ids) add_note(all.note, said_of_line_ends(all.train));
  return all;
}

// Of train.bin: nothing is done with the val.bin beside it.
std::string said_of_val_beside(const fs::path& train) {
  std::string name = train.filename().string();
  const size_t at = name.rfind("train");
  if (at == std::string::npos) return "";
  const std::string val = (train.parent_path() / name.replace(at, 5, "val")).string();
  if (!has_file(val)) return "";
  return val + " is left out (--val_data " + for_shell(val) + " validates on it)";
}

// Of texts that are named one by one and are parts of one by their names: they are joined.
std::string said_of_joined_parts(const Paths& texts, bool has_val) {
  const TextParts parts = parts_of(texts);
  if (parts.train.empty()) return "";
  const auto typed_all = [](const Paths& files) {
    std::string words;
    for (const fs::path& file : files) words.append(1, ' ').append(typed(file));
    return words;
  };
  Paths kept = parts.val;
  kept.insert(kept.end(), parts.test.begin(), parts.test.end());
  return names_of(parts.train) + " and " + names_of(kept) +
         ", by their names parts of one text, are joined" +
         (has_val || parts.val.empty()
              ? ""
              : "; to keep them apart: --data" + typed_all(parts.train) + typed_all(parts.others) +
                    " --val_data" + typed_all(parts.val));
}

// Does the first line of a text end as Windows ends it? Python reads both as one character.
bool has_two_line_ends(const fs::path& file) {
  const std::string text = begin_of(file);
  return text.substr(0, text.find('\n') + 1).ends_with("\r\n");
}

// Files of ids are joined, unless one is to validate on.
void check_joined(const Paths& files) {
  const auto is_val = [](const fs::path& file) {
    return file.filename().string().find("val") != std::string::npos;
  };
  const auto vals = std::count_if(files.begin(), files.end(), is_val);
  if (!is_prepared(files[0]) && (vals == 0 || vals == std::ssize(files))) return;
  auto val = std::find_if(files.begin(), files.end(), is_val);
  if (val == files.end()) val = files.begin() + 1;
  const fs::path& train = files[val == files.begin() ? 1 : 0];
  const std::string named = "--data " + typed(train) + " --val_data " + typed(*val);
  if (is_prepared(files[0]))
    detail::fail(
        {"--data: expected one folder of prepared data, got ", files.size(),
         "; inkling prepare makes one of all texts. One to validate on is named so: ", named});
  detail::fail({"--data: expected files of token ids to train on, got ", typed(*val),
                ", by its name one to validate on, among ", files.size(),
                "; it is named so: ", named});
}

}  // namespace

TextParts parts_of(const Paths& texts, const fs::path& root) {
  Paths files[4];
  std::vector<std::string> around[4];
  for (const fs::path& file : texts) {
    const auto [part, rest] = part_of(file, root);
    files[part].push_back(file), around[part].push_back(rest);
  }
  const auto has_its = [&](const std::string& rest) {
    return std::count(around[kVal].begin(), around[kVal].end(), rest) > 0 ||
           std::count(around[kTest].begin(), around[kTest].end(), rest) > 0;
  };
  if (files[kTrain].empty() || files[kVal].size() + files[kTest].size() == 0 ||
      (!files[kNone].empty() &&
       std::none_of(around[kTrain].begin(), around[kTrain].end(), has_its)))
    return {};
  return {files[kTrain], files[kVal], files[kTest], files[kNone]};
}

std::string names_of(const Paths& files, const fs::path& root) {
  constexpr size_t kShown = 3;
  std::string names;
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i)
    names += (i > 0 ? ", " : "") +
             (root.empty() ? files[i].filename() : files[i].lexically_relative(root)).string();
  return files.size() <= kShown ? names
                                : detail::joined({names, " and ", files.size() - kShown, " more"});
}

ChosenTexts choose_texts(const Paths& files, bool (*is_called_so)(const fs::path&)) {
  ChosenTexts chosen;
  Paths others;
  for (const fs::path& file : files) {
    Paths& kind = is_called_so(file) ? chosen.texts : others;
    (is_beside_texts(file) ? chosen.left_out : kind).push_back(file);
  }
  if (!chosen.texts.empty()) {
    chosen.left_out.insert(chosen.left_out.end(), others.begin(), others.end());
    std::sort(chosen.left_out.begin(), chosen.left_out.end());
    return chosen;
  }
  for (const fs::path& file : others) {
    const std::string its = no_text(file);
    if (chosen.why.empty()) chosen.why = its;
    if (its.empty() && (chosen.some.empty() || file.has_extension())) chosen.some = file;
  }
  if (chosen.why.empty()) chosen.some.clear(), chosen.texts.swap(others);
  return chosen;
}

std::string said_of_same(const Paths& train, const Paths& val) {
  std::set<fs::path> seen;
  for (const auto* files : {&train, &val})
    for (const fs::path& file : *files) {
      std::error_code unknown;
      const fs::path name = fs::canonical(file, unknown);
      if (unknown || !has_file(name) || seen.insert(name).second) continue;
      return typed(file) + (files == &val ? " is both trained on and validated on: its validation "
                                            "loss says nothing of other text"
                                          : " is named twice, and is read twice");
    }
  return "";
}

std::string said_of_line_ends(const Paths& texts) {
  const auto found = std::find_if(texts.begin(), texts.end(), has_two_line_ends);
  if (found == texts.end()) return "";
  return found->string() +
         ": its lines end with \\r\\n, and both characters are learned; Python reads them as \\n" +
         command_without("\\r", *found);
}

std::string said_of_fields(const Paths& texts) {
  for (const fs::path& file : texts) {
    const bool of_lines = fits_any(file, {"*.jsonl", "*.ndjson"}),
               is_named = fits_any(file, {"*.json", "*.csv", "*.tsv"});
    const char json = of_lines || is_named ? 0 : begins_with_json(file);
    const bool has_lines = of_lines || json == '{';
    if (!of_lines && !is_named && json == 0) continue;
    return file.string() + ": all of it is taken as plain text, names of fields, too" +
           (has_lines ? "; inkling prepare takes the field \"text\" of each line" : "") +
           (has_lines && !of_lines ? " of a *.jsonl" : "");
  }
  return "";
}

void check_is_name(const std::string& name) {
  if (has_path(name)) return;
  const auto fail = [&](const char* why) {
    detail::fail({name, ": there is no such file; ", why});
  };
  if (name == "-")
    fail("train and tokenizer train read standard input as /dev/stdin, and prepare reads files");
  if (name == "fables") fail("the built-in language needs none: train without --data learns it");
  if (name.starts_with("task:")) fail("a task stands alone, as in train --data task:addition");
  if (name.find("://") != name.npos) fail("nothing is fetched: download it, and name its file");
  if (name.find(',') != name.npos) fail("several stand apart, as in a.txt b.txt");
}

void check_no_run(const fs::path& folder) {
  INK_CHECK(!has_path(folder / "metrics.jsonl") || !has_path(folder / "ckpt"), folder.string(),
            ": this is the folder of a run; expected texts. Those that it wrote "
            "are in its folder samples");
}

void check_no_ids(const fs::path& file) {
  INK_CHECK(!is_token_file(file) && file.extension() != ".ids" && !is_prepared(file), file.string(),
            ": expected a text, got token ids, which need no preparation: train --data reads them");
}

Paths files_by_pattern(const fs::path& name) {
  if (name.filename().string().find_first_of("*?") == std::string::npos || has_path(name))
    return {};
  const fs::path folder = name.has_parent_path() ? name.parent_path() : ".";
  if (!has_folder(folder)) check_is_name(name.string());
  Paths found = fitting(listed(folder).files, name.filename().c_str());
  if (found.empty()) check_is_name(name.string());
  INK_CHECK(!found.empty(), name.string(), ": expected files of this pattern, found none");
  return found;
}

Paths ids_of_folder(const fs::path& folder) {
  if (!has_folder(folder)) return {};
  const Paths files = listed(folder).files, vals = known_ids(files, "val");
  Paths ids = known_ids(files, "train");
  ids.insert(ids.end(), vals.begin(), vals.end());
  return ids;
}

DataFiles data_files(const std::vector<std::string>& data, const std::vector<std::string>& val_data,
                     const std::string& option) {
  DataFiles files = with_prefix(option, [&] { return files_of(data, false); });
  if (files.are_ids && files.train.size() > 1) check_joined(files.train);
  if (val_data.empty() && files.val.empty() && files.are_ids)
    add_note(files.note, said_of_val_beside(files.train[0]));
  if (!files.are_ids)
    add_note(files.note,
             said_of_joined_parts(files.train, !val_data.empty() || !files.val.empty()));
  if (val_data.empty()) {
    add_note(files.note, said_of_same(files.train, files.val));
    return files;
  }
  const DataFiles val = with_prefix("--val_data", [&] { return files_of(val_data, true); });
  INK_CHECK(val.are_ids == files.are_ids && val.are_prepared == files.are_prepared &&
                (!val.are_prepared || val.train.size() == 1),
            "--val_data: expected ",
            files.are_prepared ? "one folder of prepared data"
            : files.are_ids    ? "files of token ids"
                               : "text files",
            ", as --data names, got ", val.train[0].string(),
            val.train.size() > 1 ? " and others" : "");
  files.val = val.train;
  add_note(files.note, val.note);
  add_note(files.note, said_of_same(files.train, files.val));
  return files;
}

std::shared_ptr<const Tokenizer> vocabulary_beside(const fs::path& file) {
  const fs::path meta = file.parent_path() / "meta.pkl";
  if (!has_path(meta)) return nullptr;
  return std::make_shared<CharTokenizer>(characters_of_meta(meta));
}

}  // namespace ink
