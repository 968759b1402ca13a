// Messages for people. The library never prints: what is worth saying goes to one callback.
#pragma once

#include <functional>
#include <sstream>
#include <string>

namespace ink {

using LogCallback = std::function<void(const std::string& message)>;

/// Who gets the library's warnings and notes, one line each without its end; until set, they are
/// dropped. One for the process; calls to it never overlap. An empty callback drops them again.
void set_log_callback(LogCallback callback);

namespace detail {
void log(const std::string& message);
}  // namespace detail

/// Streams the arguments together into one message.
template <class... Args>
void log_message(const Args&... args) {
  std::ostringstream text;
  (text << ... << args);
  detail::log(text.str());
}

}  // namespace ink
