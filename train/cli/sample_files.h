// samples/ in out_dir: the text of every sample that a run has shown. Ours are the files
// step_NUMBER.txt; nothing else in the folder is touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ink {

/// Throws if out_dir holds something of that name that is not a folder.
void check_sample_folder(const std::filesystem::path& out_dir);

/// Writes out_dir/sample_file(step), whole or not at all. Throws if it cannot.
void save_sample(const std::filesystem::path& out_dir, int64_t step, const std::string& text);

/// Deletes the samples from `first_step` on, and the folder if that leaves it empty.
void remove_samples(const std::filesystem::path& out_dir, int64_t first_step);

}  // namespace ink
