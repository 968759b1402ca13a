#include "autograd/io/foreign.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"

namespace ink {

int open_file(const std::filesystem::path& file, int flags) {
  int fd;
  do {
    fd = ::open(file.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  INK_CHECK(fd >= 0, file.string(),
            flags & O_CREAT ? ": cannot create: " : ": cannot open: ", std::strerror(errno));
  return fd;
}

namespace {

// How many bytes the UTF-8 character at text[at] has; 0: it is none, or controls the terminal.
size_t shown_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (text.size() - at < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return lead == 0xc2 && byte(1) < 0xa0 ? 0 : length;  // C1 controls
}

}  // namespace

std::string printable(std::string_view text, size_t longest) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    size_t length = shown_bytes(text, at);
    std::string piece(text.substr(at, length));
    if (length == 0) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(text[at]));
      piece = text[at] == '\n' ? "\n" : code;
      length = 1;
    }
    if (shown.size() + piece.size() > longest) return shown + "...";
    shown += piece;
    at += length;
  }
  return shown;
}

std::string quoted(const nlohmann::json& json) {
  constexpr size_t kLongest = 60;
  if (json.is_structured() && json.size() > kLongest)
    return json.is_array() ? "a long list" : "a large object";
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return printable(text, kLongest);
}

nlohmann::json parse_json(std::string_view text, std::vector<std::string>* keys) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    INK_CHECK(depth < kDeepestJson, "invalid JSON: nested more than ", kDeepestJson, " deep");
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      INK_CHECK(names.back().insert(name).second, "invalid JSON: the name \"", printable(name, 60),
                "\" comes twice");
      if (keys != nullptr && names.size() == 1) keys->push_back(name);
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    detail::fail({"invalid JSON at byte ", error.byte});
  } catch (const Json::exception&) {  // a number beyond double
    detail::fail({"invalid JSON: a number is out of range"});
  }
}

}  // namespace ink
