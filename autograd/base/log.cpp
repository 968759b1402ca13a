#include "autograd/base/log.h"

#include <mutex>
#include <utility>

namespace ink {
namespace {

std::mutex log_mutex;
LogCallback log_callback;

}  // namespace

void set_log_callback(LogCallback callback) {
  const std::lock_guard lock(log_mutex);
  log_callback = std::move(callback);
}

void detail::log(const std::string& message) {
  const std::lock_guard lock(log_mutex);
  if (log_callback) log_callback(message);
}

}  // namespace ink
