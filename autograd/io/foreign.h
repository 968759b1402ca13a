// Input that other programs wrote: files are opened without waiting, JSON is parsed within limits,
// and text is quoted so that it can be shown.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/check.h"

namespace ink {

/// Returns call(), a system call, which is made again if a signal interrupted it.
template <class F>
auto uninterrupted(F&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

/// Opens a file and returns its descriptor, which the caller closes. Errors name the file, or
/// `what` if that is given.
int open_file(const std::filesystem::path& file, int flags, const std::filesystem::path& what = {});

/// Text for a terminal or an error: control characters and bytes that are not UTF-8 as \xNN, line
/// ends as they are.
std::string printable(std::string_view text);
/// The same for a name or value within a text: on one line, and at most `longest` bytes of it.
std::string printable(std::string_view text, size_t longest);

/// A word for the shell, in quotes if it needs them.
std::string for_shell(const std::string& word);
/// The number that this text is, whatever locale the program has set. Nothing if it is none, or if
/// a double cannot hold it.
std::optional<double> parse_number(const std::string& text);

/// JSON as an error quotes it: on one line, of at most 60 bytes.
std::string quoted(const nlohmann::json& json);

/// A list of problems, a line each: the first ten, and how many more there are.
class Problems {
 public:
  void add(std::initializer_list<detail::Piece> pieces);
  bool empty() const { return count_ == 0; }
  /// "\n  PROBLEM\n  PROBLEM"
  std::string text() const;

 private:
  static constexpr size_t kShown = 10;
  std::string lines_;
  size_t count_ = 0;
};

/// Objects and lists may be this deep.
inline constexpr size_t kDeepestJson = 32;

/// Throws if the text is not JSON (and says at which byte), is too deep, or has a key twice. keys:
/// gets those of the outermost object, in the order of the text.
nlohmann::json parse_json(std::string_view text, std::vector<std::string>* keys = nullptr);

/// The fields of an object in a JSON file. Each getter throws, naming file and field, if the field
/// is missing or not as expected. The object must outlive this.
class Fields {
 public:
  Fields(std::string where, const nlohmann::json& object)
      : where_(std::move(where)), object_(object) {}

  bool has(const char* name) const;
  const nlohmann::json& of(const char* name) const;
  std::string text(const char* name) const;
  /// From 0 to `most`.
  int64_t count(const char* name, int64_t most) const;
  /// A finite number, or nothing for null.
  std::optional<double> number(const char* name) const;
  Fields object(const char* name) const;

 private:
  void expect(const char* name, const std::string& what, bool found) const;

  std::string where_;
  const nlohmann::json& object_;
};

}  // namespace ink
