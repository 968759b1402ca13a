// Folders of prepared data. The parts of an input replace those of a whole one:
//
//   %% manifest   prepared.json
//   %% tokenizer  tokenizer.json
//   %% shard      the shard's bytes, whose checksum in prepared.json is made to fit
//   %% preparing  preparing.json, from which another prepare goes on
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "autograd/io/crc64.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/prepare.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_files.h"

namespace ink::fuzz {
namespace {

class Folder {
 public:
  Folder() {
    text_ = folder_.write("a.txt", "some text<|endoftext|>and some more of it");
    run(folder_ / "good");
    for (const char* name : {"prepared.json", "tokenizer.json", "shard_00000.ids"})
      good_[name] = read_file(folder_ / "good" / name);
    std::filesystem::create_directory(folder_ / "changed");
    run(folder_ / "stopped", true);
    const auto state = nlohmann::json::parse(read_file(folder_ / "stopped/preparing.json"));
    made_of_ = state.at("made_of"), modified_ = state.at("modified");
  }

  std::filesystem::path changed(std::map<std::string, std::string> parts) const {
    std::string manifest = good_.at("prepared.json");
    if (parts.count("shard") != 0) {
      auto object = nlohmann::json::parse(manifest);
      const std::string& bytes = parts["shard"];
      object["shards"][0]["crc64"] = hex64(crc64(std::as_bytes(std::span(bytes))));
      manifest = object.dump();
    }
    const auto part = [&](const char* name, const std::string& otherwise) {
      return parts.count(name) != 0 ? parts[name] : otherwise;
    };
    folder_.write("changed/prepared.json", part("manifest", manifest));
    folder_.write("changed/tokenizer.json", part("tokenizer", good_.at("tokenizer.json")));
    folder_.write("changed/shard_00000.ids", part("shard", good_.at("shard_00000.ids")));
    return folder_ / "changed";
  }

  // Goes on from a state of these files and options.
  void go_on(const std::string& state, std::string_view input) const {
    const auto stopped = folder_ / "stopped";
    for (const auto& entry : std::filesystem::directory_iterator(stopped))
      std::filesystem::remove(entry.path());
    auto object = nlohmann::json::parse(state, nullptr, false);
    if (object.is_object()) object["made_of"] = made_of_, object["modified"] = modified_;
    folder_.write("stopped/preparing.json", object.is_object() ? object.dump() : state);
    if (!error_of(input, [&] { run(stopped, true); }))
      expect(std::filesystem::exists(stopped / "prepared.json") ||
                 std::filesystem::exists(stopped / "preparing.json"),
             "neither whole nor stopped");
  }

 private:
  // In shards of a token, and stops after the first, or whole.
  void run(const std::filesystem::path& out, bool stops = false) const {
    PrepareOptions options;
    if (stops) options.shard_tokens = 1, options.progress = [](const auto&) { return false; };
    options.tokenizer = std::make_shared<ByteTokenizer>();
    options.out_dir = out;
    prepare({text_}, options);
  }

  TempFolder folder_;
  std::filesystem::path text_;
  std::map<std::string, std::string> good_;
  nlohmann::json made_of_, modified_;
};

}  // namespace

void check_input(std::string_view input) {
  static const Folder folder;
  auto parts = sections_of(input);
  if (parts.count("preparing") != 0) folder.go_on(parts["preparing"], input);
  const auto path = folder.changed(parts);
  for (const bool within : {false, true}) {
    std::unique_ptr<PreparedDataset> data;
    PreparedDataset::Options options;
    options.val_fraction = 0.5;
    options.within_documents = within;
    if (error_of(input, [&] { data = std::make_unique<PreparedDataset>(path, nullptr, options); }))
      return;
    check_text(data->summary(), input);
    error_of(input, [&] { data->train_batch(1, 2, 3, 4); });
    error_of(input, [&] { data->val_window_batch(0, data->val_windows(4), 4); });
  }
}

}  // namespace ink::fuzz
