// The folder of shards that prepare writes, read.
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "autograd/base/check.h"
#include "autograd/io/crc64.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "data/prepare.h"
#include "data/shard.h"

namespace ink {
namespace {

using nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 53;

}  // namespace

uint64_t vocabulary_crc(const Tokenizer& tokenizer) {
  const std::string text = tokenizer.to_json();
  return crc64(std::as_bytes(std::span(text)));
}

std::vector<PreparedShard> shards_of(const std::string& where, const json& list) {
  INK_CHECK(list.is_array(), where, ": expected \"shards\" to be a list, got ", quoted(list));
  std::vector<PreparedShard> shards;
  for (const json& each : list) {
    INK_CHECK(each.is_object(), where, ": expected a shard to be an object, got ", quoted(each));
    const Fields fields(where, each);
    PreparedShard shard{fields.text("file"), fields.count("tokens", kMost),
                        fields.count("documents", kMost), 0};
    const std::string crc = fields.text("crc64");
    const auto [end, error] = std::from_chars(crc.data(), crc.data() + crc.size(), shard.crc, 16);
    INK_CHECK(error == std::errc() && end == crc.data() + crc.size(), where,
              ": expected a checksum, got \"", printable(crc, 60), "\"");
    INK_CHECK(shard.file == shard_name(shards.size()), where, ": expected the shard ",
              shard_name(shards.size()), ", got \"", printable(shard.file, 60), "\"");
    shards.push_back(std::move(shard));
  }
  return shards;
}

Prepared parse_prepared(const std::string& where, std::string_view text) {
  const json object = with_prefix(where, [&] { return parse_json(text); });
  INK_CHECK(object.is_object(), where, ": expected an object, got ", quoted(object));
  const Fields fields(where, object);
  INK_CHECK(fields.text("format") == kPreparedFormat, where, ": expected the format \"",
            kPreparedFormat, "\", got \"", printable(fields.text("format"), 60), "\"");
  Prepared prepared;
  prepared.tokens = fields.count("tokens", kMost);
  prepared.documents = fields.count("documents", kMost);
  prepared.bytes = fields.count("bytes", kMost);
  prepared.id_bytes = static_cast<int>(fields.count("id_bytes", 4));
  INK_CHECK(prepared.id_bytes == 2 || prepared.id_bytes == 4, where,
            ": expected ids of 2 or 4 bytes, got ", prepared.id_bytes);
  prepared.shards = shards_of(where, fields.of("shards"));
  int64_t tokens = 0, documents = 0;
  for (const PreparedShard& shard : prepared.shards)
    tokens += shard.tokens, documents += shard.documents;
  INK_CHECK(tokens == prepared.tokens && documents == prepared.documents, where, ": expected ",
            prepared.tokens, " tokens and ", prepared.documents, " documents in the shards, got ",
            tokens, " and ", documents);
  INK_CHECK(tokens > 0, where, ": expected shards with tokens, got none");
  return prepared;
}

Prepared read_prepared(const std::filesystem::path& folder) {
  const auto file = folder / kPreparedFile;
  return parse_prepared(file.string(), read_text(file));
}

OpenShard open_shard(const std::string& name, std::span<const std::byte> bytes,
                     const Prepared& prepared, const PreparedShard& shard, int64_t vocab_size,
                     uint64_t vocabulary) {
  ShardEnd end;
  INK_CHECK(bytes.size() >= sizeof end, name, ": the shard is cut short");
  std::memcpy(&end, bytes.data() + bytes.size() - sizeof end, sizeof end);
  INK_CHECK(std::memcmp(end.magic.data(), ShardEnd().magic.data(), end.magic.size()) == 0, name,
            ": this is no shard of inkling's, or it is cut short");
  const uint32_t order = ShardEnd().byte_order;
  INK_CHECK(end.byte_order == order, name, ": the shard's bytes are in ",
            end.byte_order == __builtin_bswap32(order) ? "the other order; prepare it on a machine "
                                                         "like this one"
                                                       : "no known order; it is damaged");
  INK_CHECK(end.version == ShardEnd().version, name, ": expected version ", ShardEnd().version,
            " of a shard, got ", end.version);
  INK_CHECK(end.vocabulary == vocabulary && end.vocab_size == static_cast<uint64_t>(vocab_size),
            name, ": the shard is of another vocabulary, of ", end.vocab_size,
            " tokens, than the folder's tokenizer.json, of ", vocab_size);
  const auto width = static_cast<size_t>(prepared.id_bytes);
  const auto tokens = static_cast<size_t>(shard.tokens),
             documents = static_cast<size_t>(shard.documents);
  INK_CHECK(end.id_bytes == width && end.tokens == tokens && end.documents == documents, name,
            ": expected ", tokens, " ids of ", width, " bytes and ", documents, " documents, as ",
            kPreparedFile, " says, got ", end.tokens, " of ", end.id_bytes, " and ", end.documents);
  const size_t ids_end = (tokens * width + 7) / 8 * 8;
  INK_CHECK(bytes.size() == ids_end + 8 * documents + sizeof end, name, ": expected ",
            ids_end + 8 * documents + sizeof end, " bytes, got ", bytes.size());
  OpenShard open;
  if (width == 2) {
    open.ids = std::span(reinterpret_cast<const uint16_t*>(bytes.data()), tokens);
  } else {
    open.ids = std::span(reinterpret_cast<const uint32_t*>(bytes.data()), tokens);
  }
  open.documents = {reinterpret_cast<const uint64_t*>(bytes.data() + ids_end), documents};
  for (size_t i = 0; i < documents; ++i)
    INK_CHECK(open.documents[i] < tokens && (i == 0 || open.documents[i - 1] < open.documents[i]),
              name, ": document ", i, " of the shard begins at token ", open.documents[i],
              "; it is damaged");
  return open;
}

}  // namespace ink
