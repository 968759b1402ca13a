// meta.pkl, in which nanoGPT's prepare.py keeps the vocabulary of characters.
#pragma once

#include <filesystem>
#include <vector>

namespace ink {

/// The characters of meta.pkl by id. Of pickle's instructions it knows those that build a dict of
/// numbers, texts and dicts, and none that could run or load anything. Throws, naming the file, on
/// any other, and if the ids are not those of a CharTokenizer.
std::vector<char32_t> characters_of_meta(const std::filesystem::path& file);

}  // namespace ink
