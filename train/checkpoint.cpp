#include "train/checkpoint.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "autograd/base/check.h"
#include "autograd/base/log.h"
#include "autograd/io/atomic_file.h"
#include "data/file.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "inkling checkpoint 1";
constexpr const char *kConfig = "config.json", *kState = "state.json";
constexpr const char *kModel = "model.safetensors", *kOptimizer = "optimizer.safetensors";

fs::path with_ending(const fs::path& folder, const char* ending) {
  return folder.string() + ending;
}

// table[k][b]: what byte b does to the checksum when k more bytes follow it.
using CrcTable = std::array<std::array<uint64_t, 256>, 8>;
constexpr CrcTable kCrcTable = [] {
  CrcTable table{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xC96C5795D7870F42 : 0);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 255];
  return table;
}();

std::string hex(uint64_t number) {
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << number;
  return text.str();
}

// Text that is not UTF-8 (a file name, perhaps) must not keep a run from being saved.
std::string text_of(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string checksum_of(const std::string& text) {
  return hex(crc64(std::as_bytes(std::span(text))));
}

// Size and checksum of a file, as state.json has them.
Json fingerprint(const fs::path& file) {
  const MappedFile mapped(file);
  return {{"bytes", mapped.bytes().size()}, {"crc64", hex(crc64(mapped.bytes()))}};
}

void write_json(const fs::path& file, const Json& json) {
  const std::string text = text_of(json, 2) + "\n";
  AtomicFile out(file);
  out.write(text.data(), text.size());
  out.commit();
}

Json read_json(const fs::path& file) {
  try {
    return Json::parse(read_file(file));
  } catch (const Json::parse_error& error) {
    throw Error(file.string() + ": expected JSON, but it is damaged at byte " +
                std::to_string(error.byte));
  }
}

// f() of the standard library's file functions, with their exceptions as ink::Error.
template <class F>
auto file_operation(F&& f) {
  try {
    return f();
  } catch (const fs::filesystem_error& error) {
    throw Error("checkpoint: " + std::string(error.what()));
  }
}

bool is_there(const fs::path& path) {
  return file_operation([&] { return fs::exists(path); });
}

// state.json without its own checksum, which is of the rest as text_of writes it.
Json read_state(const fs::path& folder) {
  const fs::path file = folder / kState;
  Json state = read_json(file);
  const std::string format =
      state.is_object() && state.contains("format") ? text_of(state["format"]) : "none";
  INK_CHECK(format == text_of(kFormat), file.string(), ": expected the format ", text_of(kFormat),
            ", got ", format, "; it is of another program or version");
  const std::string expected = text_of(state["checksum"]);
  state.erase("checksum");
  const std::string got = text_of(checksum_of(text_of(state)));
  INK_CHECK(got == expected, file.string(), ": expected the checksum ", expected, ", got ", got,
            "; the file is damaged");
  return state;
}

void check_file(const fs::path& file, const Json& expected) {
  const Json got = fingerprint(file);
  INK_CHECK(got == expected, file.string(), ": expected ", expected.at("bytes"),
            " bytes with checksum ", expected.at("crc64"), ", got ", got.at("bytes"), " with ",
            got.at("crc64"), "; the file is damaged");
}

LoadedCheckpoint load_folder(const fs::path& folder) {
  const Json state = read_state(folder);
  for (const char* file : {kConfig, kModel, kOptimizer})
    check_file(folder / file, state.at("files").at(file));
  LoadedCheckpoint loaded;
  loaded.config = read_json(folder / kConfig);
  loaded.state = state.at("state");
  loaded.model = load(folder / kModel);
  loaded.optimizer = load(folder / kOptimizer);
  loaded.folder = folder;
  return loaded;
}

// Newest first: NAME.tmp is whole only when the renaming after it was cut short.
std::array<fs::path, 3> candidates(const fs::path& out_dir, const std::string& name) {
  const fs::path folder = out_dir / name;
  return {folder, with_ending(folder, ".tmp"), with_ending(folder, ".prev")};
}

}  // namespace

uint64_t crc64(std::span<const std::byte> bytes, uint64_t crc) {
  crc = ~crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes at a time: their tables are independent
    uint64_t word, next = 0;
    std::memcpy(&word, &bytes[i], sizeof word);  // little-endian, as the files are
    word ^= crc;
    for (size_t k = 0; k < 8; ++k) next ^= kCrcTable[7 - k][word >> (8 * k) & 255];
    crc = next;
  }
  for (; i < bytes.size(); ++i)
    crc = (crc >> 8) ^ kCrcTable[0][(crc & 255) ^ static_cast<uint64_t>(bytes[i])];
  return ~crc;
}

void save_checkpoint(const fs::path& out_dir, const std::string& name,
                     const Checkpoint& checkpoint) {
  const auto folders = candidates(out_dir, name);
  const fs::path &folder = folders[0], &fresh = folders[1], &previous = folders[2];
  file_operation([&] {
    fs::create_directories(out_dir);
    fs::remove_all(fresh);
    fs::create_directory(fresh);
  });
  write_json(fresh / kConfig, checkpoint.config);
  save(fresh / kModel, checkpoint.model);
  save(fresh / kOptimizer, checkpoint.optimizer);
  Json state = {{"format", kFormat}, {"state", checkpoint.state}};
  for (const char* file : {kConfig, kModel, kOptimizer})
    state["files"][file] = fingerprint(fresh / file);
  state["checksum"] = checksum_of(text_of(state));
  write_json(fresh / kState, state);  // the last one: without it the folder is not a checkpoint
  file_operation([&] {
    if (is_there(folder)) {
      fs::remove_all(previous);
      fs::rename(folder, previous);
    }
    fs::rename(fresh, folder);
  });
  sync_folder(out_dir);
}

LoadedCheckpoint load_checkpoint(const fs::path& out_dir, const std::string& name) {
  std::string reasons;
  for (const fs::path& folder : candidates(out_dir, name)) {
    if (!is_there(folder)) continue;
    try {
      LoadedCheckpoint loaded = load_folder(folder);
      if (folder.filename() != name)
        log_message("load_checkpoint: ", folder.string(), " is used in place of ",
                    (out_dir / name).string(), reasons.empty() ? ", which is missing" : reasons);
      return loaded;
    } catch (const Error& error) {
      reasons += std::string("\n  ") + error.what();
    }
  }
  if (reasons.empty()) reasons = "\n  " + (out_dir / name).string() + ": no such folder";
  throw Error("load_checkpoint: there is no whole checkpoint:" + reasons +
              "\nPut back a copy of the folder, or start anew in another out_dir.");
}

bool checkpoint_exists(const fs::path& out_dir, const std::string& name) {
  for (const fs::path& folder : candidates(out_dir, name))
    if (is_there(folder / kState)) return true;
  return false;
}

}  // namespace ink
