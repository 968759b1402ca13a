// Event files, which TensorBoard shows: numbers and texts over steps.
//   file     records, one after the other (TFRecord)
//   record   the length of its bytes (8 bytes), a checksum of that, the bytes, a checksum of them
//   bytes    an Event of protobuf (tensorflow/core/util/event.proto)
// Numbers have their lowest byte first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ink {

/// The checksum of RFC 3720, CRC32C: 0xe3069283 for "123456789".
uint32_t crc32c(std::string_view bytes);

struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> scalars;     // by tag; kept as 32-bit numbers
  std::vector<std::pair<std::string, std::string>> texts;  // by tag, as Markdown
};

/// The record that begins a file.
std::string first_event_record(double wall_time);
std::string event_record(const Event& event);

}  // namespace ink
