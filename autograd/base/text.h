// A text in memory as a stream.
#pragma once

#include <locale>
#include <sstream>
#include <string>

namespace ink {

/// Writes and reads numbers in one way, whatever locale the program has set.
struct TextStream : std::stringstream {
  explicit TextStream(const std::string& text = {}) : std::stringstream(text) {
    imbue(std::locale::classic());
  }
};

}  // namespace ink
