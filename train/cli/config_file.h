// Config files, which --config FILE reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ink {

/// One line of a config file.
struct Setting {
  std::string name;
  std::vector<std::string> values;  ///< at least one
};

/// Lines such as
///
///   name = value          # a comment; of a flag, the name alone says true
///   name = [a, "b c", 'd']
///
/// Values are separated by commas or spaces, and a list may have several lines. Text in "" has
/// JSON's escapes; text in '' has none. Throws, naming the line, on anything else, and on a name
/// that occurs twice.
std::vector<Setting> parse_settings(std::string_view text);

}  // namespace ink
