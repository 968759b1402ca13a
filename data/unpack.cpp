#include "data/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

std::string first_bytes(const fs::path& file) {
  std::string bytes(4, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(bytes.data(), 4);
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}
bool is_gzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }
bool is_zstd(std::string_view bytes) {  // or begins with a frame to skip, as those of pzstd do
  return bytes == "\x28\xb5\x2f\xfd" || (bytes.size() == 4 && bytes.substr(1) == "\x2a\x4d\x18");
}

constexpr size_t kBuffer = size_t{1} << 18;

void write(std::ofstream& out, const fs::path& to, const char* bytes, size_t count) {
  out.write(bytes, static_cast<std::streamsize>(count));
  INK_CHECK(out.good(), to.string(), ": cannot write; is the disk full?");
}

void unpack_gzip(const fs::path& file, std::ofstream& out, const fs::path& to) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  INK_CHECK(in, file.string(), ": cannot open");
  std::vector<char> buffer(kBuffer);
  int got;
  while ((got = gzread(in.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0)
    write(out, to, buffer.data(), static_cast<size_t>(got));
  int error = Z_OK;
  gzerror(in.get(), &error);
  INK_CHECK(got == 0 && error == Z_OK, file.string(),
            ": the data compressed by gzip are damaged or cut short");
}

void unpack_zstd(const fs::path& file, std::ofstream& out, const fs::path& to) {
  std::ifstream in(file, std::ios::binary);
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                        ZSTD_freeDStream);
  INK_CHECK(stream, file.string(), ": not enough memory to unpack it");
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, 31);  // files of zstd --long=31
  std::vector<char> packed(kBuffer), buffer(kBuffer);
  size_t left = 0;  // 0 at the end of a frame
  while (in.read(packed.data(), kBuffer), in.gcount() > 0) {
    ZSTD_inBuffer from{packed.data(), static_cast<size_t>(in.gcount()), 0};
    bool is_full = false;  // then there may be more without more input
    while (from.pos < from.size || is_full) {
      ZSTD_outBuffer into{buffer.data(), buffer.size(), 0};
      left = ZSTD_decompressStream(stream.get(), &into, &from);
      INK_CHECK(ZSTD_isError(left) == 0, file.string(),
                ": the data compressed by zstd are damaged (", ZSTD_getErrorName(left), ")");
      write(out, to, buffer.data(), into.pos);
      is_full = into.pos == into.size;
      if (left == 0 && from.pos == from.size) break;
    }
  }
  INK_CHECK(!in.bad(), file.string(), ": cannot read");
  INK_CHECK(left == 0, file.string(), ": the data compressed by zstd are cut short");
}

}  // namespace

bool is_packed(const fs::path& file) {
  const std::string bytes = first_bytes(file);
  return is_gzip(bytes) || is_zstd(bytes);
}

void unpack(const fs::path& file, const fs::path& to) {
  const std::string bytes = first_bytes(file);
  std::ofstream out(to, std::ios::binary | std::ios::trunc);
  INK_CHECK(out.good(), to.string(), ": cannot write");
  try {
    is_gzip(bytes) ? unpack_gzip(file, out, to) : unpack_zstd(file, out, to);
    out.close();
    INK_CHECK(out.good(), to.string(), ": cannot write; is the disk full?");
  } catch (...) {
    std::error_code ignored;
    fs::remove(to, ignored);
    throw;
  }
}

}  // namespace ink
