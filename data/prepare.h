// prepare: texts of any size as shards of token ids, which PreparedDataset maps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/token_ids.h"
#include "data/tokenizer.h"

namespace ink {

struct PrepareProgress {
  int64_t file = 0, files = 0;  ///< the one that is read now, and how many there are
  double share = 0;             ///< of the bytes of all files
  int64_t tokens = 0, documents = 0;
};

struct PrepareOptions {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::filesystem::path out_dir;
  /// The field of a JSON object a line that holds a document's text (*.jsonl).
  std::string field = "text";
  /// What stands between two documents in a text; it is left out. Empty: a file is a document.
  std::string separator = "<|endoftext|>";
  /// A shard ends after as many tokens, or up to four million more.
  int64_t shard_tokens = int64_t{1} << 26;
  /// Called now and then. If it returns false, prepare stops, and can be called again to go on.
  std::function<bool(const PrepareProgress&)> progress;
};

struct PreparedShard {
  std::string file;
  int64_t tokens = 0, documents = 0;
  uint64_t crc = 0;  ///< of the whole file
};

/// What is in out_dir/prepared.json.
struct Prepared {
  int64_t tokens = 0, documents = 0, bytes = 0;  ///< bytes: of the documents' text
  int id_bytes = 2;
  std::vector<PreparedShard> shards;
  bool whole = true;       ///< false: `progress` stopped it
  bool was_there = false;  ///< nothing was left to do
};

/// The files of a list of files and folders: of a folder *.txt, *.jsonl and *.ndjson, also packed
/// (.gz, .zst), or, if there are none, all, if they are texts (choose_texts); in the folders in it,
/// too, in the order of their names. What is hidden is left out: .ipynb_checkpoints has copies.
/// Links to folders are not followed. A line says which links and other files are left out, and
/// which files are taken with the names of their fields. Throws if there is none, if a folder holds
/// parts of one text (parts_of, by files or folders), and on token ids, prepared data and folders
/// of runs.
std::vector<std::filesystem::path> files_to_prepare(const std::vector<std::string>& names);

/// Encodes the documents of the files in this order, and writes shard_00000.ids and so on, and last
/// tokenizer.json and prepared.json. After each document comes the tokenizer's end_of_text(), if it
/// has one. The same files, tokenizer and options give the same bytes, whatever the number of
/// threads. A call that was stopped or killed is gone on with by the next one, from its last whole
/// shard. Takes about 100 MB, and the space of one unpacked file in out_dir. Throws if out_dir
/// holds what another call made or another tokenizer.json, or if another process writes there.
Prepared prepare(const std::vector<std::filesystem::path>& files, const PrepareOptions& options);

/// What prepare wrote. Throws if it is not whole or damaged.
Prepared read_prepared(const std::filesystem::path& folder);

/// A shard that is mapped: its ids, and the places in it where documents begin. Throws if it is not
/// of this size, version, byte order and vocabulary (its size and vocabulary_crc).
struct OpenShard {
  TokenIds::Run ids;
  std::span<const uint64_t> documents;
};
OpenShard open_shard(const std::string& name, std::span<const std::byte> bytes,
                     const Prepared& prepared, const PreparedShard& shard, int64_t vocab_size,
                     uint64_t vocabulary);

/// The files of a folder that prepare wrote are named so.
inline constexpr const char* kPreparedFile = "prepared.json";
inline constexpr const char* kPreparingFile = "preparing.json";  // until it has finished

}  // namespace ink
