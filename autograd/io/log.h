// Messages for people. The library never prints: they go to one callback.
#pragma once

#include <functional>
#include <string>

#include "autograd/base/check.h"

namespace ink {

using LogCallback = std::function<void(const std::string& message)>;

/// Sets the callback that gets the library's warnings and notes, each one line without a newline.
/// There is one callback for the process, and calls to it never overlap. Without one, or with an
/// empty one, messages are dropped, and so are those of the callback itself.
void set_log_callback(LogCallback callback);

namespace detail {
void log(const std::string& message);
}  // namespace detail

/// Streams the arguments together into one message.
template <class... Args>
void log_message(const Args&... args) {
  detail::log(detail::joined({args...}));
}

}  // namespace ink
