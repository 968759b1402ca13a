#include "train/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/file.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "inkling checkpoint 1";
constexpr const char *kConfig = "config.json", *kState = "state.json";
constexpr const char *kModel = "model.safetensors", *kOptimizer = "optimizer.safetensors",
                     *kAverage = "ema.safetensors";  // which not every run has

fs::path with_ending(const fs::path& folder, const char* ending) {
  return folder.string() + ending;
}

// Text that is not UTF-8, such as a file name, must not keep a run from being saved.
std::string text_of(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string checksum_of(const std::string& text) {
  return hex64(crc64(std::as_bytes(std::span(text))));
}

// Size and checksum of a file, as state.json has them.
Json fingerprint(const fs::path& file) {
  const MappedFile mapped(file);
  return {{"bytes", mapped.bytes().size()}, {"crc64", hex64(crc64(mapped.bytes()))}};
}

void write_json(const fs::path& file, const Json& json) {
  write_file(file, text_of(json, 2) + "\n");
}

Json read_json(const fs::path& file) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return with_prefix(file.string(), [&] {
    return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  });
}

bool is_there(const fs::path& path) {
  return file_operation([&] { return fs::exists(path); });
}

// state.json without its own checksum. That is the checksum of the rest, as text_of writes it.
Json read_state(const fs::path& folder) {
  const fs::path file = folder / kState;
  Json state = read_json(file);
  const Fields fields(file.string(), state);
  const std::string format = fields.text("format");
  INK_CHECK(format == kFormat, file.string(), ": expected the format \"", kFormat, "\", got \"",
            printable(format, 60), "\"; it is of another program or version");
  const std::string expected = fields.text("checksum");
  state.erase("checksum");
  const std::string got = checksum_of(text_of(state));
  INK_CHECK(got == expected, file.string(), ": expected the checksum \"", printable(expected, 60),
            "\", got \"", got, "\"; the file is damaged");
  fields.object("state");
  const Fields files = fields.object("files");
  for (const char* name : {kConfig, kModel, kOptimizer, kAverage}) {
    if (name == kAverage && !files.has(name)) continue;
    const Fields print = files.object(name);
    print.count("bytes", INT64_MAX), print.text("crc64");
  }
  return state;
}

// The files that a state.json names.
std::vector<std::string> files_of(const Json& state) {
  std::vector<std::string> files{kConfig, kModel, kOptimizer};
  if (state.at("files").contains(kAverage)) files.emplace_back(kAverage);
  return files;
}

void check_file(const fs::path& file, const Json& expected) {
  const Json got = fingerprint(file);
  INK_CHECK(got == expected, file.string(), ": expected ", expected.at("bytes"),
            " bytes with checksum ", expected.at("crc64"), ", got ", got.at("bytes"), " with ",
            got.at("crc64"), "; the file is damaged");
}

LoadedCheckpoint load_folder(const fs::path& folder, Parts parts) {
  const Json state = read_state(folder);
  for (const std::string& file : files_of(state))
    if (parts == Parts::all || file != kOptimizer)
      check_file(folder / file, state.at("files").at(file));
  LoadedCheckpoint loaded;
  loaded.config = read_json(folder / kConfig);
  INK_CHECK(loaded.config.is_object(), (folder / kConfig).string(),
            ": expected a JSON object, got ", quoted(loaded.config));
  loaded.state = state.at("state");
  loaded.model = load(folder / kModel);
  if (parts == Parts::all) loaded.optimizer = load(folder / kOptimizer);
  if (state.at("files").contains(kAverage)) loaded.average = load(folder / kAverage);
  loaded.folder = folder;
  return loaded;
}

// What is in a folder and no file of a save, by name: a note, or what Jupyter and the Finder leave.
std::vector<fs::path> strangers(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    fs::path file = entry.path().filename();
    if (file.extension() == ".tmp") file.replace_extension();
    if (file != kConfig && file != kState && file != kModel && file != kOptimizer &&
        file != kAverage)
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_hidden(const fs::path& path) { return path.filename().string()[0] == '.'; }

// The first that is not hidden; an empty path where there is none.
fs::path visible_stranger(const fs::path& folder) {
  if (!fs::is_directory(folder)) return {};
  for (const fs::path& stranger : strangers(folder))
    if (!is_hidden(stranger)) return stranger;
  return {};
}

// Did a save write the folder? What other programs write under the same names is not ours. A save
// that was cut short leaves any of its files in NAME.tmp. Only beside a state.json of ours may
// something stand that is not hidden: a save keeps it.
bool is_ours(const fs::path& folder) {
  if (fs::is_symlink(folder) || !fs::is_directory(folder)) return false;
  const bool alone = visible_stranger(folder).empty();
  if (!fs::exists(folder / kState)) {
    const bool empty = std::all_of(fs::directory_iterator(folder), {},
                                   [](const auto& entry) { return is_hidden(entry.path()); });
    return alone && (empty || folder.extension() == ".tmp" || fs::exists(folder / kOptimizer));
  }
  try {
    const Json state = read_json(folder / kState);
    return alone ? state.contains("checksum") || state.contains("files")
                 : state.contains("checksum") && state.contains("format");
  } catch (const Error&) {
    return alone;  // damaged
  }
}

// Removes what a save wrote. state.json is the last to go: what is left of a removal that is cut
// short is still ours.
void remove_folder(const fs::path& folder) {
  for (const std::string file : {kConfig, kModel, kOptimizer, kAverage, kState})
    for (const char* ending : {".tmp", ""}) fs::remove_all(folder / (file + ending));
  if (fs::is_directory(folder) && fs::is_empty(folder)) fs::remove(folder);
}

// Moves what no save wrote to the folder that takes the place of this one.
void carry_over(const fs::path& from, const fs::path& to) {
  if (!fs::is_directory(from)) return;
  for (const fs::path& stranger : strangers(from)) {
    fs::path name = to / stranger.filename();
    for (int i = 1; fs::exists(fs::symlink_status(name)); ++i)
      name = to / detail::joined({stranger.filename().string(), ".", i});
    fs::rename(stranger, name);
  }
}

// Was the folder written to its end? Whoever reads it compares the checksums.
bool is_complete(const fs::path& folder) {
  try {
    const Json state = read_state(folder);
    for (const std::string& file : files_of(state))
      if (file_operation([&] { return fs::file_size(folder / file); }) !=
          state["files"][file]["bytes"])
        return false;
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// NAME, NAME.tmp, NAME.prev. NAME.tmp is whole, and then the newest, only when the renaming after
// it was cut short.
std::array<fs::path, 3> candidates(const fs::path& out_dir, const std::string& name) {
  const bool is_name =
      !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
  INK_CHECK(is_name, "checkpoint: expected the name of a folder in ", out_dir.string(), ", got '",
            printable(name), "'");
  const fs::path folder = out_dir / name;
  return {folder, with_ending(folder, ".tmp"), with_ending(folder, ".prev")};
}

}  // namespace

void check_replaceable(const fs::path& out_dir, const std::string& name) {
  for (const fs::path& folder : candidates(out_dir, name)) {
    file_operation([&] {
      if (!fs::exists(fs::symlink_status(folder)) || is_ours(folder)) return;
      const fs::path stranger = fs::is_symlink(folder) ? fs::path() : visible_stranger(folder);
      if (!stranger.empty() && checkpoint_exists(out_dir, name))
        detail::fail({stranger.string(),
                      ": is not of a checkpoint of inkling, and a save would "
                      "replace it; move it away, or choose another out_dir"});
      detail::fail({folder.string(),
                    ": is not a checkpoint of inkling, and a save would replace "
                    "it; move it away, or choose another out_dir"});
    });
  }
}

void check_deletable(const fs::path& out_dir, const std::string& name) {
  check_replaceable(out_dir, name);
  file_operation([&] {
    for (const fs::path& folder : candidates(out_dir, name))
      if (const fs::path stranger = visible_stranger(folder); !stranger.empty())
        detail::fail({stranger.string(),
                      ": is in the checkpoint that would be deleted, and not of it; move it away"});
  });
}

void delete_checkpoint(const fs::path& out_dir, const std::string& name) {
  check_deletable(out_dir, name);
  file_operation([&] {
    for (const fs::path& folder : candidates(out_dir, name)) remove_folder(folder);
  });
}

// The last steps of a save, when NAME.tmp is whole. Its name is on the disk before the oldest
// checkpoint is deleted. What else stood in the older ones stands beside the newest.
static void put_in_place(const fs::path& out_dir, const std::string& name) {
  const auto [folder, fresh, previous] = candidates(out_dir, name);
  carry_over(previous, fresh);
  carry_over(folder, fresh);
  sync_folder(out_dir);
  if (is_there(folder)) {
    remove_folder(previous);
    fs::rename(folder, previous);
  }
  fs::rename(fresh, folder);
  sync_folder(out_dir);
}

void finish_save(const fs::path& out_dir, const std::string& name) {
  check_replaceable(out_dir, name);
  file_operation([&] {
    if (is_complete(candidates(out_dir, name)[1])) put_in_place(out_dir, name);
  });
}

// Returns the checksum of all.
static std::string write_files(const fs::path& fresh, const Checkpoint& checkpoint) {
  write_json(fresh / kConfig, checkpoint.config);
  save(fresh / kModel, checkpoint.model);
  save(fresh / kOptimizer, checkpoint.optimizer);
  std::vector<std::string> files{kConfig, kModel, kOptimizer};
  if (!checkpoint.average.empty()) {
    save(fresh / kAverage, checkpoint.average);
    files.emplace_back(kAverage);
  }
  Json state = {{"format", kFormat}, {"state", checkpoint.state}};
  for (const std::string& file : files) state["files"][file] = fingerprint(fresh / file);
  const std::string checksum = checksum_of(text_of(state));
  state["checksum"] = checksum;
  write_json(fresh / kState, state);  // the last one: without it the folder is not a checkpoint
  return checksum;
}

std::string save_checkpoint(const fs::path& out_dir, const std::string& name,
                            const Checkpoint& checkpoint) {
  const fs::path fresh = candidates(out_dir, name)[1];
  finish_save(out_dir, name);
  file_operation([&] {
    fs::create_directories(out_dir);
    remove_folder(fresh);
    fs::create_directory(fresh);
  });
  std::string checksum;
  try {
    checksum = write_files(fresh, checkpoint);
  } catch (...) {  // for instance, the disk is full
    try {
      remove_folder(fresh);
    } catch (const fs::filesystem_error&) {
    }
    throw;
  }
  file_operation([&] { put_in_place(out_dir, name); });
  return checksum;
}

// Identifies a folder, to notice that another one has replaced it.
static std::pair<ino_t, int64_t> identity(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  return {status.st_ino, int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec};
}

LoadedCheckpoint load_checkpoint(const fs::path& out_dir, const std::string& name, Parts parts,
                                 const std::function<void(const LoadedCheckpoint&)>& use) {
  std::string reasons;
  const auto newest = identity(out_dir / name);
  auto newest_first = candidates(out_dir, name);
  if (is_complete(newest_first[1])) std::swap(newest_first[0], newest_first[1]);
  for (const fs::path& folder : newest_first) {
    const auto before = identity(folder);
    // Another process may save meanwhile. A mixture of two checkpoints must not be used.
    const auto is_replaced = [&] {
      return identity(folder) != before || identity(out_dir / name) != newest;
    };
    if (!is_there(folder)) continue;
    try {
      LoadedCheckpoint loaded = load_folder(folder, parts);
      if (is_replaced()) return load_checkpoint(out_dir, name, parts, use);
      if (use) use(loaded);
      if (folder.filename() != name)
        log_message("load_checkpoint: ", folder.string(), " is used in place of ",
                    (out_dir / name).string(),
                    !reasons.empty()           ? reasons
                    : is_there(out_dir / name) ? ", which is older"
                                               : ", which is missing");
      return loaded;
    } catch (const NotDamaged&) {
      throw;
    } catch (const Error& error) {
      if (is_replaced()) return load_checkpoint(out_dir, name, parts, use);
      reasons += std::string("\n  ") + error.what();
    }
  }
  if (reasons.empty() && has_path(out_dir / kState))
    throw Error("load_checkpoint: " + out_dir.string() +
                " is a checkpoint itself; name the folder that it is in, or no checkpoint in it");
  if (!checkpoint_exists(out_dir, name))
    for (const fs::path& folder : {out_dir / name, out_dir})
      if (const std::string foreign = foreign_weights(folder); !foreign.empty())
        throw Error("load_checkpoint: " + foreign);
  if (reasons.empty())
    throw Error("load_checkpoint: " + (out_dir / name).string() +
                ": there is no such checkpoint; name another --out_dir, or train one");
  throw Error("load_checkpoint: there is no whole checkpoint:" + reasons +
              "\nPut back a copy of the folder, or start anew in another out_dir.");
}

Json checkpoint_state(const fs::path& out_dir, const std::string& name) {
  try {
    const Json state = read_state(candidates(out_dir, name)[0]).at("state");
    return state.is_object() ? state : Json::object();
  } catch (const Error&) {
    return Json::object();
  }
}

std::string checkpoint_checksum(const fs::path& out_dir, const std::string& name) {
  try {
    return checksum_of(text_of(read_state(candidates(out_dir, name)[0])));
  } catch (const std::exception&) {
    return "";
  }
}

bool checkpoint_exists(const fs::path& out_dir, const std::string& name) {
  for (const fs::path& folder : candidates(out_dir, name))
    if (is_there(folder / kState)) return true;
  return false;
}

// Of PyTorch, Hugging Face, llm.c and llama2.c, TensorFlow and Flax, llama.cpp, NumPy.
static bool is_foreign(const fs::path& file) {
  constexpr std::array kEndings{".pt",          ".pth",  ".ckpt",    ".gguf", ".ggml",
                                ".safetensors", ".onnx", ".msgpack", ".h5",   ".npz"};
  const std::string name = file.filename(), ending = file.extension();
  const auto begins = [&](const char* text) { return name.starts_with(text); };
  constexpr std::array kBinaries{"pytorch_model", "gpt2_", "llama", "stories", "model"};
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end() ||
         (ending == ".bin" && std::any_of(kBinaries.begin(), kBinaries.end(), begins));
}

std::string foreign_weights(const fs::path& path) {
  std::error_code ignored;
  fs::path found;
  if (has_file(path)) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    if (has_path(folder / kState) && is_ours(folder))
      return path.string() + " is a file of a checkpoint; name its folder, " +
             for_shell(folder.string());
    if (is_foreign(path)) found = path;
  } else if (has_folder(path) && !is_ours(path)) {
    for (fs::directory_iterator at(path, ignored), end; at != end; at.increment(ignored)) {
      const fs::path& file = at->path();  // the first by name, whatever their order
      if (is_foreign(file) && (found.empty() || file < found)) found = file;
    }
  }
  if (found.empty()) return "";
  return found.string() +
         " holds weights of another program, and only those of inkling's own runs can be read; "
         "name the folder of such a run, or train one";
}

}  // namespace ink
