#include "train/cli/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/file.h"

namespace ink {
namespace {

void keep_lines(const std::filesystem::path& file,
                const std::function<bool(const std::string&)>& keep) {
  if (std::filesystem::file_size(file) == 0) return;
  const std::string text = read_file(file);
  std::string kept;
  for_each_line(text, [&](const std::string& line) {
    if (keep(line)) kept += line + "\n";
  });
  if (kept != text) write_file(file, kept);
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& file,
                     const std::function<bool(const std::string&)>& keep)
    : path_(file) {
  const auto status = std::filesystem::status(file);
  INK_CHECK(!exists(status) || is_regular_file(status), file.string(),
            ": expected a regular file; move it away, or choose another --out_dir");
  if (exists(status)) keep_lines(file, keep);
  fd_ = open_file(file, O_WRONLY | O_CREAT | O_APPEND);
}
JsonLines::~JsonLines() { ::close(fd_); }

void JsonLines::write(const nlohmann::ordered_json& object) {
  const std::string line =
      object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t written =
        uninterrupted([&] { return ::write(fd_, line.data() + done, line.size() - done); });
    INK_CHECK(written >= 0, path_.string(), ": cannot write: ", std::strerror(errno));
    done += static_cast<size_t>(written);
  }
}

}  // namespace ink
