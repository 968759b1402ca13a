#include "tests/support/coverage.h"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

namespace ink {

Coverage& Coverage::instance() {
  static Coverage coverage;
  return coverage;
}

void Coverage::op(const char* name, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs, bool recorded) {
  if (!recorded) return;
  std::string key = std::string(name) + " " + name_of(outputs[0].dtype()) + " ";
  // w: an f32 input of a bf16 result. Runs of the same count once: cat takes any number.
  for (const Tensor& input : inputs) {
    const bool wide = input.defined() && input.dtype() == f32 && outputs[0].dtype() == bf16;
    const char given = wide ? 'w' : input.defined() ? 'x' : '-';
    if (key.back() != given) key += given;
  }
  static std::mutex mutex;  // tests record from several threads
  const std::lock_guard lock(mutex);
  seen_.insert(key);
  if (row_ == name) checked_.insert(key);
}

void Coverage::enter_row(const std::string& name) { row_ = name.substr(0, name.find('.')); }

void Coverage::write() const {
  const char* path = std::getenv("INKLING_COVERAGE");
  if (path == nullptr) return;
  std::ofstream file(path);
  for (const std::string& key : seen_) file << "seen " << key << "\n";
  for (const std::string& key : checked_) file << "checked " << key << "\n";
}

}  // namespace ink
