// Config files, which --config FILE reads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

/// One line of a config file.
struct Setting {
  std::string name;
  std::vector<std::string> values;  ///< none: the line imports the name
  std::string text = {};            ///< all of them as written; empty for a list in []
  bool is_bare = false;             ///< is one of them not in quotes?
};

/// Lines such as
///
///   name = value          # a comment; of a flag, the name alone says true
///   name = [a, "b c", 'd']
///
/// Values are separated by commas or spaces, and a list may have several lines; ('a', 'b') is one,
/// too. Text in "" has JSON's escapes, and so has text in '' of Python; in TOML it has none.
/// Imports and texts in three quotes, as nanoGPT's files have them, are passed over; of "from x
/// import y, z" the names are told, without values. Throws, naming the line, on anything else, and
/// on a name that occurs twice.
std::vector<Setting> parse_settings(std::string_view text, bool is_python = false);

/// The number that a text is, in decimal digits; empty if it is none.
std::optional<double> plain_number(const std::string& text);

/// The value of arithmetic as in Python: 5 * 8, learning_rate / 10, 2 ** 10, 600_000. value_of
/// gives the names in it. Empty if the text is anything else.
using ValueOf = std::function<std::optional<double>(const std::string& name)>;
std::optional<double> calculated(std::string_view text, const ValueOf& value_of);

}  // namespace ink
