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

// Members one after the other, as of files that were joined, and zeros that fill a block. (gzread()
// takes anything else for the end.)
void unpack_gzip(const fs::path& file, std::ofstream& out, const fs::path& to) {
  std::ifstream in(file, std::ios::binary);
  z_stream stream{};
  INK_CHECK(inflateInit2(&stream, 15 + 16) == Z_OK, file.string(),
            ": not enough memory to unpack it");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, inflateEnd);
  std::vector<char> packed(kBuffer), buffer(kBuffer);
  bool is_within = true;  // a member
  while (in.read(packed.data(), kBuffer), in.gcount() > 0) {
    stream.next_in = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_in = static_cast<uInt>(in.gcount());
    while (stream.avail_in > 0) {
      if (!is_within && *stream.next_in == 0) {
        ++stream.next_in, --stream.avail_in;
        continue;
      }
      is_within = true;
      int result = Z_OK;
      do {
        stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
        stream.avail_out = static_cast<uInt>(buffer.size());
        result = inflate(&stream, Z_NO_FLUSH);
        INK_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, file.string(),
                  ": the data compressed by gzip are damaged or cut short");
        write(out, to, buffer.data(), buffer.size() - stream.avail_out);
      } while (result != Z_STREAM_END && stream.avail_out == 0);
      if (result != Z_STREAM_END) continue;
      inflateReset(&stream);
      is_within = false;
    }
  }
  INK_CHECK(!in.bad(), file.string(), ": cannot read");
  INK_CHECK(!is_within, file.string(), ": the data compressed by gzip are damaged or cut short");
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
