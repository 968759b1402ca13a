// A file of JSON objects, one a line, to which a run appends.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ink {

/// An object as such a line, without its end. Bytes that are not UTF-8 become U+FFFD.
std::string json_line(const nlohmann::ordered_json& object);

class JsonLines {
 public:
  /// Opens the file, or makes it. Lines of an older run stay if keep(line) says so; the others are
  /// removed all at once or not at all. Throws if it is not a regular file.
  JsonLines(const std::filesystem::path& file, const std::function<bool(const std::string&)>& keep);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  /// Throws if the line cannot be written whole; then nothing of it stays. Where the file is no
  /// longer at its place, because its folder was deleted or moved, it is made anew with all lines,
  /// and a log message says so.
  void write(const nlohmann::ordered_json& object);

 private:
  void find_file();

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace ink
