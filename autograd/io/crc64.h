// Checksums of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ink {

/// CRC-64/XZ (ECMA-182, reflected); pass the result of one piece on to the next.
uint64_t crc64(std::span<const std::byte> bytes, uint64_t crc = 0);

/// 16 digits.
std::string hex64(uint64_t number);

}  // namespace ink
