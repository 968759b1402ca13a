// Files packed by gzip or zstd.
#pragma once

#include <filesystem>

namespace ink {

/// Is the file packed, by its first bytes?
bool is_packed(const std::filesystem::path& file);

/// Unpacks a file of gzip or zstd (any number of them, one after another) into a new file. Throws,
/// naming the file, if it is damaged or cut short.
void unpack(const std::filesystem::path& file, const std::filesystem::path& to);

}  // namespace ink
