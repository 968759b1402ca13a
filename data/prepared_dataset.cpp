#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/io/crc64.h"
#include "autograd/io/foreign.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/shard.h"

namespace ink {

PreparedDataset::PreparedDataset(const std::filesystem::path& folder,
                                 std::shared_ptr<const Tokenizer> tokenizer, const Options& options)
    : WindowDataset(folder.string(), std::move(tokenizer)) {
  const bool within = options.within_documents;
  Part train = open(folder, within);
  if (options.val_folder.empty()) {
    use_split(train, options.val_fraction);
  } else {
    use(std::move(train), open(options.val_folder, within), options.val_folder.string());
  }
}

namespace {

// Of all bytes of the shards, several at a time.
void check_bytes(const std::vector<std::string>& names,
                 const std::vector<std::span<const std::byte>>& bytes,
                 const std::vector<PreparedShard>& shards) {
  parallel_for(std::ssize(shards), 1, [&](int64_t from, int64_t to) {
    for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i) {
      constexpr size_t kPart = size_t{1} << 20;
      uint64_t crc = 0;
      for (size_t at = 0; at < bytes[i].size(); at += kPart) {
        const size_t end = std::min(at + kPart, bytes[i].size());
        crc = crc64(bytes[i].subspan(at, end - at), crc);
        release_mapped(bytes[i], at, end);
      }
      INK_CHECK(crc == shards[i].crc, names[i], ": the shard's checksum is not the one in ",
                kPreparedFile, "; it is damaged");
    }
  });
}

}  // namespace

WindowDataset::Part PreparedDataset::open(const std::filesystem::path& folder,
                                          bool within_documents) {
  const Prepared prepared = read_prepared(folder);
  const std::shared_ptr<const Tokenizer> its = load_tokenizer(folder / "tokenizer.json");
  const uint64_t vocabulary = vocabulary_crc(*its);
  INK_CHECK(!tokenizer_ || tokenizer_->to_json() == its->to_json(), folder.string(),
            ": these data were prepared with another tokenizer (", its->name(), ", ",
            its->vocab_size(), " tokens) than ", tokenizer_->name(), " of ",
            tokenizer_->vocab_size(),
            "; name the text itself, prepare it anew, or leave out --tokenizer, if it is given");
  if (!tokenizer_) tokenizer_ = its;
  Part part;
  std::vector<std::string> names;
  std::vector<std::span<const std::byte>> bytes;
  for (const PreparedShard& shard : prepared.shards) {
    files_.emplace_back(folder / shard.file);
    names.push_back((folder / shard.file).string());
    bytes.push_back(files_.back().bytes());
    const OpenShard open =
        open_shard(names.back(), bytes.back(), prepared, shard, its->vocab_size(), vocabulary);
    const int64_t begin = part.ids.size();
    if (within_documents)
      for (const uint64_t place : open.documents)
        part.documents.push_back(begin + static_cast<int64_t>(place));
    part.ids.add(open.ids, true);
  }
  INK_CHECK(!within_documents || (!part.documents.empty() && part.documents[0] == 0),
            folder.string(), ": no document begins at the first token; the folder is damaged");
  check_bytes(names, bytes, prepared.shards);
  return part;
}

}  // namespace ink
