#include "autograd/io/crc64.h"

#include <array>
#include <cstring>

namespace ink {

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

std::string hex64(uint64_t number) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
  return digits;
}

}  // namespace ink
