#include "autograd/io/log.h"

#include <memory>
#include <mutex>
#include <utility>

#include "autograd/base/context.h"

namespace ink {
namespace {

std::recursive_mutex log_mutex;  // a callback may set another one
std::shared_ptr<LogCallback> log_callback;
bool is_calling = false;

}  // namespace

void set_log_callback(LogCallback callback) {
  const std::lock_guard lock(log_mutex);
  log_callback = callback ? std::make_shared<LogCallback>(std::move(callback)) : nullptr;
}

void detail::log(const std::string& message) {
  const std::lock_guard lock(log_mutex);
  if (!log_callback || is_calling) return;
  const Restore calling(is_calling, true);
  const std::shared_ptr<LogCallback> callback = log_callback;  // it lives until it has returned
  (*callback)(message);
}

}  // namespace ink
