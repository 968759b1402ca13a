#include "train/report/events.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>

namespace ink {
namespace {

template <class Word>
std::string low_first(Word word) {
  std::string bytes;
  for (size_t i = 0; i < sizeof word; ++i) bytes += static_cast<char>(word >> 8 * i & 255);
  return bytes;
}

// A checksum, rotated and moved, because that of bytes which hold their own checksum is weak.
std::string masked_crc(std::string_view bytes) {
  return low_first(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

std::string record(const std::string& bytes) {
  const std::string length = low_first(uint64_t{bytes.size()});
  return length + masked_crc(length) + bytes + masked_crc(bytes);
}

// Seven bits a byte, the lowest first; the highest bit says that more follow.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>(128 | (value & 127));
  return bytes += static_cast<char>(value);
}

// A message of protobuf: fields, each with its number and how it is stored.
struct Message {
  std::string bytes;

  Message& count(uint32_t number, uint64_t value) { return key(number, 0, varint(value)); }
  Message& f64(uint32_t number, double value) {
    return key(number, 1, low_first(std::bit_cast<uint64_t>(value)));
  }
  Message& f32(uint32_t number, float value) {
    return key(number, 5, low_first(std::bit_cast<uint32_t>(value)));
  }
  Message& text(uint32_t number, const std::string& value) {
    return key(number, 2, varint(value.size()) + value);
  }
  Message& message(uint32_t number, const Message& value) { return text(number, value.bytes); }

 private:
  Message& key(uint32_t number, uint32_t stored, const std::string& value) {
    bytes += varint(number << 3 | stored) + value;
    return *this;
  }
};

float as_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return value > kMost ? kInfinity : value < -kMost ? -kInfinity : static_cast<float>(value);
}

// A Summary.Value that the text plugin shows: a tensor of one string.
Message text_value(const std::string& tag, const std::string& text) {
  constexpr uint64_t kString = 7;  // DataType.DT_STRING
  const Message shape = Message().message(2, Message().count(1, 1)),
                plugin = Message().message(1, Message().text(1, "text"));
  const Message tensor = Message().count(1, kString).message(2, shape).text(8, text);
  return Message().text(1, tag).message(8, tensor).message(9, plugin);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> crcs{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
      crcs[byte] = crc;
    }
    return crcs;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 255];
  return ~crc;
}

std::string first_event_record(double wall_time) {
  return record(Message().f64(1, wall_time).text(3, "brain.Event:2").bytes);
}

std::string event_record(const Event& event) {
  Message summary;
  for (const auto& [tag, value] : event.scalars)
    summary.message(1, Message().text(1, tag).f32(2, as_float(value)));
  for (const auto& [tag, text] : event.texts) summary.message(1, text_value(tag, text));
  return record(Message()
                    .f64(1, event.wall_time)
                    .count(2, static_cast<uint64_t>(event.step))
                    .message(5, summary)
                    .bytes);
}

}  // namespace ink
