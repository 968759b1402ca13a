// The format of a shard: the ids, zeros up to a multiple of 8 bytes, 8 bytes for the place of each
// document's beginning, and this end. Numbers are in the
// machine's byte order, which byte_order tells.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare.h"

namespace ink {

struct ShardEnd {
  uint64_t tokens = 0, documents = 0;
  uint64_t vocab_size = 0;
  uint64_t vocabulary = 0;  // vocabulary_crc
  uint32_t id_bytes = 0;
  uint32_t version = 1;
  uint32_t byte_order = 0x01020304;
  uint32_t nothing = 0;
  std::array<char, 8> magic = {'i', 'n', 'k', 's', 'h', 'a', 'r', 'd'};
};
static_assert(sizeof(ShardEnd) == 56);

inline constexpr const char* kPreparedFormat = "inkling prepared 1";

/// Of the tokenizer's JSON.
uint64_t vocabulary_crc(const Tokenizer& tokenizer);
std::string shard_name(size_t number);
/// `where` stands before errors.
std::vector<PreparedShard> shards_of(const std::string& where, const nlohmann::json& list);
/// The text of prepared.json.
Prepared parse_prepared(const std::string& where, std::string_view text);

}  // namespace ink
