#include "data/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "data/meta_pkl.h"
#include "data/prepare.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

bool is_token_file(const fs::path& file) {
  return file.extension() == ".bin" || file.extension() == ".u16" || file.extension() == ".u32";
}

// The files of a folder that are not hidden, by name; others: gets what is no file.
Paths files_in(const fs::path& folder, size_t& others) {
  Paths files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string()[0] == '.') continue;
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) {
      files.push_back(entry->path());
    } else {
      ++others;
    }
  }
  INK_CHECK(!error, folder.string(), ": ", error.message());
  std::sort(files.begin(), files.end());
  return files;
}

Paths fitting(const Paths& files, const char* pattern) {
  Paths found;
  for (const fs::path& file : files)
    if (::fnmatch(pattern, file.filename().c_str(), 0) == 0) found.push_back(file);
  return found;
}

// The files of ids that a folder is known to hold.
Paths known_ids(const Paths& files, const std::string& part) {
  for (const std::string& pattern : {part + ".bin", "*_" + part + ".bin", "*_" + part + "_*.bin"})
    if (Paths found = fitting(files, pattern.c_str()); !found.empty()) return found;
  return {};
}

bool holds_text(const fs::path& file) {
  constexpr size_t kBegin = 8000;
  try {
    return TextFile(file).view().substr(0, kBegin).find('\0') == std::string_view::npos;
  } catch (const Error&) {
    return false;
  }
}

// The files that a folder stands for, and those for validation, if they are apart.
DataFiles files_of_folder(const fs::path& folder) {
  DataFiles found;
  size_t others = 0;
  const Paths files = files_in(folder, others);
  if (std::count(files.begin(), files.end(), folder / kPreparedFile) > 0)
    return {{folder / kPreparedFile}, {}, true, true, ""};
  const Paths trains = known_ids(files, "train"), vals = known_ids(files, "val");
  const auto is_numbered = [](const Paths& ids) {
    return !ids.empty() && ::fnmatch("*_*_*.bin", ids[0].filename().c_str(), 0) == 0;
  };
  if (!trains.empty() || !vals.empty()) {
    INK_CHECK(
        (trains.size() == 1 || is_numbered(trains)) && (vals.size() <= 1 || is_numbered(vals)),
        folder.string(),
        ": expected one file of token ids to train on and one to validate on, got ", trains.size(),
        " and ", vals.size(), "; name them: --data TRAIN.bin --val_data VAL.bin");
    return {trains, vals, true, false, ""};
  }
  Paths texts = files;  // an empty one is nothing to train on, or is of /proc
  std::erase_if(texts, [](const fs::path& file) {
    std::error_code unknown;
    return fs::file_size(file, unknown) == 0;
  });
  found.train = fitting(texts, "*.txt");
  if (found.train.empty())
    std::copy_if(texts.begin(), texts.end(), std::back_inserter(found.train), holds_text);
  others += files.size() - found.train.size();
  INK_CHECK(!found.train.empty(), folder.string(),
            ": expected text files in this folder (*.txt, or others of UTF-8 text), or token ids "
            "in train.bin, found none; other names: ",
            others);
  const size_t count = found.train.size();
  found.note =
      detail::joined({folder.string(), ": ", count, count == 1 ? " text file, " : " text files, ",
                      found.train.front().filename().string()});
  if (count > 1) found.note += " to " + found.train.back().filename().string();
  if (others > 0) found.note += detail::joined({"; other names, left out: ", others});
  return found;
}

// What a name with * or ? stands for, unless a file is called so.
Paths files_by_pattern(const fs::path& name) {
  std::error_code unknown;
  if (name.filename().string().find_first_of("*?") == std::string::npos ||
      fs::exists(name, unknown))
    return {};
  const fs::path folder = name.has_parent_path() ? name.parent_path() : ".";
  size_t others = 0;
  Paths found = fitting(files_in(folder, others), name.filename().c_str());
  INK_CHECK(!found.empty(), name.string(), ": expected files of this pattern, found none");
  return found;
}

// What a list of names stands for. as_val: only what a folder has for validation, if it is apart.
DataFiles files_of(const std::vector<std::string>& names, bool as_val) {
  DataFiles all;
  for (const std::string& name : names) {
    DataFiles found{{name}, {}, is_token_file(name), false, ""};
    std::error_code unknown;
    const bool is_folder = fs::is_directory(name, unknown);
    INK_CHECK(is_folder || fs::path(name).extension() != ".ids", name,
              ": this is a shard of prepared data; name the folder that it is in");
    if (is_folder) found = files_of_folder(name);
    if (const Paths fit = files_by_pattern(name); !fit.empty())
      found = {fit, {}, is_token_file(fit[0]), false, ""};
    if (as_val && !found.val.empty()) found.train = std::move(found.val);
    for (const fs::path& file : found.train) {  // what cannot be read is told by its option
      if (found.are_ids) {
        MappedFile{file};
      } else if (!fs::is_fifo(file, unknown)) {  // a pipe can be read once
        TextFile{file};
      }
    }
    all.train.insert(all.train.end(), found.train.begin(), found.train.end());
    if (!as_val) all.val = found.val;
    all.are_ids = all.are_ids || found.are_ids;
    all.are_prepared = all.are_prepared || found.are_prepared;
    all.note += (all.note.empty() || found.note.empty() ? "" : "; ") + found.note;
  }
  return all;
}

// Files of ids are joined, unless they are of different kinds or one is to validate on.
void check_joined(const Paths& files, bool are_prepared) {
  const auto is_val = [](const fs::path& file) {
    return file.filename().string().find("val") != std::string::npos;
  };
  const auto vals = std::count_if(files.begin(), files.end(), is_val);
  if (!are_prepared && std::all_of(files.begin(), files.end(), is_token_file) &&
      (vals == 0 || vals == std::ssize(files)))
    return;
  auto val = std::find_if(files.begin(), files.end(), is_val);
  if (val == files.end()) val = files.begin() + 1;
  const fs::path& train = files[val == files.begin() ? 1 : 0];
  detail::fail({"--data: a file of token ids cannot be joined with others; got ", files.size(),
                " files. One to validate on is named so: --data ", for_shell(train.string()),
                " --val_data ", for_shell(val->string())});
}

}  // namespace

DataFiles data_files(const std::vector<std::string>& data, const std::vector<std::string>& val_data,
                     const std::string& option) {
  DataFiles files = with_prefix(option, [&] { return files_of(data, false); });
  if (files.are_ids && files.train.size() > 1) check_joined(files.train, files.are_prepared);
  if (val_data.empty()) return files;
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
  if (!val.note.empty()) files.note += (files.note.empty() ? "" : "; ") + val.note;
  return files;
}

std::shared_ptr<const Tokenizer> vocabulary_beside(const fs::path& file) {
  const fs::path meta = file.parent_path() / "meta.pkl";
  std::error_code unknown;
  if (!fs::exists(meta, unknown)) return nullptr;
  return std::make_shared<CharTokenizer>(characters_of_meta(meta));
}

}  // namespace ink
