#include "train/cli/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/file.h"

namespace ink {
namespace {

constexpr size_t kPiece = size_t{8} << 20;  // bytes that are written at once

void keep_lines(const std::filesystem::path& file,
                const std::function<bool(const std::string&)>& keep) {
  if (std::filesystem::file_size(file) == 0) return;
  const TextFile mapped(file);
  const std::string_view text = mapped.view();
  std::vector<std::string_view> kept;  // as few pieces as there are, whole lines each
  size_t size = 0;
  for_each_line_of(mapped, [&](std::string_view rest, const std::string& line) {
    if (!keep(line)) return;
    const std::string_view piece = rest.substr(0, line.size() + 1);
    const bool joins = !kept.empty() && kept.back().end() == piece.begin();
    if (!joins) kept.push_back(rest.substr(0, 0));
    kept.back() = std::string_view(kept.back().data(), kept.back().size() + piece.size());
    size += piece.size();
  });
  if (size == text.size() && text.back() == '\n') return;
  AtomicFile rest(file);
  for (std::string_view piece : kept) {
    for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), kPiece))) {
      rest.write(piece.data(), std::min(piece.size(), kPiece));
      mapped.release(static_cast<size_t>(piece.data() - text.data()), text.size());
    }
  }
  if (!kept.empty() && kept.back().back() != '\n') rest.write("\n", 1);
  rest.commit();
}

}  // namespace

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonLines::JsonLines(const std::filesystem::path& file,
                     const std::function<bool(const std::string&)>& keep)
    : path_(file) {
  const auto status = std::filesystem::status(file);
  INK_CHECK(!exists(status) || is_regular_file(status), file.string(),
            ": expected a regular file; move it away, or choose another --out_dir");
  if (exists(status)) keep_lines(file, keep);
  fd_ = open_file(file, O_RDWR | O_CREAT | O_APPEND);
}
JsonLines::~JsonLines() { ::close(fd_); }

// Checkpoints go to the folder of this name, whatever has become of the one before; so do lines.
void JsonLines::find_file() {
  struct stat own {
  }, named{};
  const bool is_there = ::stat(path_.c_str(), &named) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) return;  // it may be there all the same
  if (is_there && ::fstat(fd_, &own) == 0 && own.st_dev == named.st_dev &&
      own.st_ino == named.st_ino)
    return;
  INK_CHECK(!is_there || S_ISREG(named.st_mode), path_.string(),
            ": expected the file that the run has written so far, found something else");
  file_operation([&] { std::filesystem::create_directories(path_.parent_path()); });
  if (!is_there) {
    AtomicFile anew(path_);
    std::string piece(kPiece, '\0');
    for (off_t at = 0;;) {
      const ssize_t got =
          uninterrupted([&] { return ::pread(fd_, piece.data(), piece.size(), at); });
      INK_CHECK(got >= 0, path_.string(), ": cannot read: ", std::strerror(errno));
      if (got == 0) break;
      anew.write(piece.data(), static_cast<size_t>(got));
      at += got;
    }
    anew.commit();
  }
  ::close(std::exchange(fd_, open_file(path_, O_RDWR | O_CREAT | O_APPEND)));
  log_message(path_.string(), ": was deleted, moved or replaced while the run wrote to it; ",
              is_there ? "lines go to the file that is there now" : "it is written anew");
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  const std::string line = json_line(object) + "\n";
  find_file();
  const off_t end = ::lseek(fd_, 0, SEEK_END);
  const auto append = [&] {
    for (size_t done = 0; done < line.size();) {
      const ssize_t written =
          uninterrupted([&] { return ::write(fd_, line.data() + done, line.size() - done); });
      if (written < 0) return false;
      done += static_cast<size_t>(written);
    }
    return true;
  };
  // Once more, because a disk may fail for a moment. No part of the line stays.
  for (const bool again : {true, false}) {
    if (append()) return;
    const int reason = errno;
    const bool cleared = uninterrupted([&] { return ::ftruncate(fd_, end); }) == 0;
    INK_CHECK(again && cleared, path_.string(), ": cannot write: ", std::strerror(reason));
  }
}

}  // namespace ink
