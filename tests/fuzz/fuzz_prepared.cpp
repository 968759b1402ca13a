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
#include "tests/temp_files.h"

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
    std::filesystem::create_directory(folder_ / "stopped");
  }

  std::filesystem::path changed(std::map<std::string, std::string> parts) const {
    std::string manifest = good_.at("prepared.json");
    if (parts.count("shard") != 0) {
      auto object = nlohmann::json::parse(manifest);
      const std::string& bytes = parts["shard"];
      char hex[17];
      std::snprintf(hex, sizeof hex, "%016llx",
                    static_cast<unsigned long long>(crc64(std::as_bytes(std::span(bytes)))));
      object["shards"][0]["crc64"] = hex;
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

  // Goes on from a state.
  void go_on(const std::string& state, std::string_view input) const {
    const auto stopped = folder_ / "stopped";
    for (const auto& entry : std::filesystem::directory_iterator(stopped))
      std::filesystem::remove(entry.path());
    folder_.write("stopped/preparing.json", state);
    if (!error_of(input, [&] { run(stopped); }))
      expect(read_file(stopped / "shard_00000.ids") == good_.at("shard_00000.ids"),
             "another shard after going on");
  }

 private:
  void run(const std::filesystem::path& out) const {
    PrepareOptions options;
    options.tokenizer = std::make_shared<ByteTokenizer>();
    options.out_dir = out;
    prepare({text_}, options);
  }

  TempFolder folder_;
  std::filesystem::path text_;
  std::map<std::string, std::string> good_;
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
