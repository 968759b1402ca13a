#include "train/cli/sample_files.h"

#include <charconv>
#include <optional>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/io/atomic_file.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

// The step of one of our files, or of what a killed program left of it.
std::optional<int64_t> step_of(fs::path file) {
  if (file.extension() == ".tmp") file.replace_extension();
  const std::string name = file.filename().string();
  const size_t digits = name.find_first_of("0123456789");
  int64_t step = 0;
  if (digits != std::string::npos)
    std::from_chars(name.data() + digits, name.data() + name.size(), step);
  if (name != fs::path(sample_file(step)).filename()) return {};
  return step;
}

}  // namespace

void check_sample_folder(const fs::path& out_dir) {
  const fs::path folder = out_dir / kSamples;
  INK_CHECK(file_operation([&] {
              return !fs::exists(fs::symlink_status(folder)) || fs::is_directory(folder);
            }),
            folder.string(), ": expected a folder, in which samples are kept; move it away, or ",
            "choose another --out_dir");
}

void save_sample(const fs::path& out_dir, int64_t step, const std::string& text) {
  file_operation([&] { return fs::create_directory(out_dir / kSamples); });
  write_file(out_dir / sample_file(step), text);
}

void remove_samples(const fs::path& out_dir, int64_t first_step) {
  const fs::path folder = out_dir / kSamples;
  file_operation([&] {
    if (!fs::is_directory(folder)) return;
    std::vector<fs::path> ours;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const auto step = step_of(entry.path());
      if (step && *step >= first_step && !entry.is_directory()) ours.push_back(entry.path());
    }
    for (const fs::path& file : ours) fs::remove(file);
    if (!ours.empty() && !fs::is_symlink(folder) && fs::is_empty(folder)) fs::remove(folder);
  });
}

}  // namespace ink
