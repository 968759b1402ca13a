#include "data/formats.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/file.h"

namespace ink {
namespace {

using namespace std::string_view_literals;

// A format, how its files begin, and what to type to have text, in which @ is the file, % a text of
// it, and & its ids.
struct Format {
  std::array<std::string_view, 7> begins;  // each of them, where '?' is any byte; empty: no more
  const char *name, *instead;
  size_t at = 0;  // where these bytes are
};

constexpr const char* kWrite = "write its text to a file, and name that";
constexpr const char* kNoText = "it holds no text";
constexpr const char* kTofile = "NumPy writes ids alone: array.astype('uint32').tofile('NAME.u32')";
constexpr const char* kGunzip = "unpack it: gunzip --keep @";

constexpr Format kLlama2{{"24ka?\0\0\0"sv}, "weights of llama2.c", kNoText};

// In text, "x^2" may come first.
constexpr Format kZlib{
    {"\x78\1"sv, "\x78\x5e"sv, "\x78\x9c"sv, "\x78\xda"sv}, "data compressed by zlib", kWrite};

constexpr Format kFormats[] = {
    {{"\x1f\x8b"sv}, "data compressed by gzip", kGunzip},
    {{"\x1f\x9d"sv}, "data compressed by compress", "unpack it: uncompress @"},
    {{"PK\3\4"sv, "PK\5\6"sv, "PK\7\10"sv},
     "a ZIP archive (as .docx, .epub, .npz and PyTorch's .pt are)",
     "unpack it: unzip @"},
    {{"\x28\xb5\x2f\xfd"sv, "?\x2a\x4d\x18??\0\0"sv},
     "data compressed by zstd",
     "unpack it: unzstd @"},
    {{"\xfd\x37zXZ\0"sv}, "data compressed by xz", "unpack it: unxz --keep @"},
    {{"BZh?1AY&SY"sv}, "data compressed by bzip2", "unpack it: bunzip2 --keep @"},
    {{"\x04\x22\x4d\x18"sv, "\x02\x21\x4c\x18"sv}, "data compressed by lz4", "unpack it: unlz4 @"},
    {{"\x5d\0\0?"sv}, "data compressed by lzma", "unpack it: unlzma --keep @"},
    {{"LZIP\1"sv}, "data compressed by lzip", "unpack it: lzip --decompress --keep @"},
    {{"\x89LZO\0\r\n"sv}, "data compressed by lzop", "unpack it: lzop --decompress @"},
    {{"\xff\6\0\0sNaPpY"sv}, "data compressed by Snappy", kWrite},
    {{"MSCF\0\0\0\0"sv}, "a cabinet archive", "unpack it: cabextract @"},
    {{"!<arch>\n"sv}, "an archive (as .deb and .a are)", "unpack it: ar x @"},
    {{"7z\xbc\xaf\x27\x1c"sv}, "a 7z archive", "unpack it: 7z x @"},
    {{"Rar!\x1a\x07"sv}, "a RAR archive", "unpack it: unrar x @"},
    {{"ustar"sv}, "a tar archive", "unpack it: tar xf @", 257},
    {{"%PDF-"sv}, "a PDF", "convert it: pdftotext @"},
    {{"{\\rtf"sv}, "RTF", "convert it: pandoc --to plain --output % @"},
    {{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv},
     "a file of Microsoft Office",
     "convert it: soffice --convert-to txt @"},
    {{"PAR1\x15"sv},
     "a Parquet file",
     "convert it: python3 -c \"import pandas, sys; "
     "print(*pandas.read_parquet(sys.argv[1])['text'], sep='<|endoftext|>')\" @ > %"},
    {{"ARROW1\0\0"sv}, "an Arrow file", kWrite},
    {{"\xff\xff\xff\xff??\0\0"sv},
     "an Arrow stream (as Hugging Face's save_to_disk writes)",
     "convert it: python3 -c \"import pyarrow, sys; "
     "print(*pyarrow.ipc.open_stream(open(sys.argv[1], "
     "'rb')).read_all()['text'].to_pylist(), sep='<|endoftext|>')\" @ > %"},
    {{"\x93NUMPY"sv},
     "an array of NumPy",
     "if these are token ids, convert it: python3 -c \"import numpy, sys; "
     "numpy.load(sys.argv[1]).astype('uint32').tofile(sys.argv[2])\" @ &"},
    {{"\0\0\0\0{\""sv}, "weights in a safetensors file", kNoText, 4},
    {{"GGUF?\0\0\0"sv}, "weights in a GGUF file", kNoText},
    kLlama2,
    {{"\x89HDF\r\n\x1a\n"sv}, "an HDF5 file", kWrite},
    {{"SQLite format 3\0"sv}, "an SQLite database", kWrite},
    {{"Obj\1"sv}, "an Avro file", kWrite},
    {{"\x80\2"sv}, "a pickle of Python or PyTorch", kNoText},
    {{"\x80\3"sv, "\x80\4"sv, "\x80\5"sv}, "a pickle of Python", kNoText},
    {{"\n?\n\5<unk>"sv},
     "a vocabulary of SentencePiece",
     "it is not read here, and neither is its tokenizer.json; byte-level BPE is, as GPT-2, Llama 3 "
     "and Qwen have it"},
    {{"\x89PNG\r\n\x1a\n"sv, "\xff\xd8\xff"sv, "GIF8?a"sv, "RIFF????WEBP"sv, "MM\0\x2a"sv,
      "II\x2a\0"sv, "BM????\0\0\0\0"sv},
     "a picture",
     kNoText},
    {{"BOOKMOBI"sv}, "a book for Kindle", "convert it: ebook-convert @ %", 60},
    {{"AT&TFORM"sv}, "a DjVu document", "convert it: djvutxt @ %"},
    {{"RIFF????WAVE"sv, "ID3?\0"sv, "\xff\xfb"sv, "fLaC\0\0\0"sv}, "sound", kNoText},
    {{"OggS\0"sv}, "sound or a film", kNoText},
    {{"RIFF????AVI "sv, "\x1a\x45\xdf\xa3"sv}, "a film", kNoText},
    {{"ftyp"sv}, "a film or sound", kNoText, 4},
    {{"\x7f\x45LF"sv, "MZ?\0"sv, "\xca\xfe\xba\xbe"sv, "\xcf\xfa\xed\xfe"sv, "\0asm"sv},
     "a program",
     kNoText},
    {{"version https://git-lfs.github.com/spec/"sv},
     "a pointer to a file in Git LFS",
     "get that file: git lfs pull"},
    {{"\xff\xfe\0\0"sv, "\0\0\xfe\xff"sv}, "UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 @ > %"},
    {{"\xff\xfe"sv, "\xfe\xff"sv}, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 @ > %"}};

// They begin with a number from 20240326 on, the day on which their kind was made.
constexpr Format kOfLlmC[] = {
    {{"\xc8\xd7\x34\1"sv},
     "a tokenizer of llm.c",
     "it decodes ids, but has no merges to encode a text with; name a "
     "tokenizer.json of the same model, or its vocab.json and merges.txt"},
    {{"\x88\xd8\x34\1"sv, "\xa1\xd9\x34\1"sv},
     "token ids of llm.c",
     "--data reads them, if they are called .bin"},
    {{"?\xd7\x34\1"sv, "?\xd8\x34\1"sv, "?\xd9\x34\1"sv},
     "weights or another file of llm.c",
     kNoText}};

// What tells those of a few bytes from token ids.
constexpr Format kNoIds[] = {
    {{"\x1f\x8b\b\0"sv, "\x1f\x8b\b\b"sv}, "data compressed by gzip", kGunzip},
    {{"\x80\2?q\0"sv, "\x80\3?q\0"sv, "\x80\4\x95?????\0\0\0"sv, "\x80\5\x95?????\0\0\0"sv},
     "a pickle of Python",
     kTofile},
    {{"\x80\2\x8a\nl\xfc\x9c\x46"sv}, "a pickle of PyTorch", kTofile}};

// Text without a byte order mark: in each unit, the bytes where there is a '0' are zero, and one
// other at least is not.
constexpr Format kUnits[] = {{{"x000"sv}, "UTF-32", "convert it: iconv -f UTF-32LE -t UTF-8 @ > %"},
                             {{"000x"sv}, "UTF-32", "convert it: iconv -f UTF-32BE -t UTF-8 @ > %"},
                             {{"x0"sv}, "UTF-16", "convert it: iconv -f UTF-16LE -t UTF-8 @ > %"},
                             {{"0x"sv}, "UTF-16", "convert it: iconv -f UTF-16BE -t UTF-8 @ > %"}};

// Does a file begin as the format does, with bytes of its own that are at least so many?
bool begins(std::string_view bytes, const Format& format, size_t fewest = 0) {
  const auto alike = [](char expected, char byte) { return expected == '?' || expected == byte; };
  return std::any_of(format.begins.begin(), format.begins.end(), [&](std::string_view begin) {
    return !begin.empty() && begin.size() >= fewest && bytes.size() >= format.at + begin.size() &&
           std::equal(begin.begin(), begin.end(), bytes.begin() + format.at, alike);
  });
}

bool is_of_units(std::string_view bytes, const Format& format) {
  const std::string_view zeros = format.begins[0];
  const size_t unit = zeros.size(), size = std::min<size_t>(bytes.size(), 64) / unit * unit;
  for (size_t i = 0; i < size; ++i)
    if ((bytes[i] == '\0') != (zeros[i % unit] == '0')) return false;
  return size >= 4;
}

// llama2.c's first files begin with seven sizes, which go together, and then have the embedding.
bool is_of_llama2(std::string_view bytes) {
  std::array<int32_t, 7> sizes{};
  if (bytes.size() < sizeof sizes) return false;
  std::memcpy(sizes.data(), bytes.data(), sizeof sizes);
  const auto [width, hidden, layers, heads, kv_heads, vocab, block] = sizes;
  if (std::min({layers, kv_heads, block}) < 1 || heads < kv_heads || width < std::max(heads, 16))
    return false;
  return hidden > width && layers < 1000 && width % heads == 0 && heads % kv_heads == 0 &&
         std::abs(int64_t{vocab}) >= 256 &&
         std::ssize(bytes.substr(sizeof sizes)) / 4 / width >= std::abs(int64_t{vocab});
}

// Are the first bytes, at most so many, text without controls but those of lines?
bool is_readable(std::string_view bytes, size_t most) {
  constexpr size_t kLongest = 4;  // bytes of a character, which may be cut
  const std::string_view begin = bytes.substr(0, most);
  for (size_t at = 0; at + kLongest <= begin.size();) {
    const char32_t character = utf8::next(begin, at);
    if (character == utf8::kInvalid || character == 0x7f ||
        (character < ' ' && character != '\t' && character != '\n' && character != '\r'))
      return false;
  }
  return true;
}

void check(const std::filesystem::path& file, const char* expected, bool found,
           const Format& format) {
  if (!found) return;
  std::string instead;
  for (const char c : std::string_view(format.instead))
    instead += c == '@'   ? for_shell(file.string())
               : c == '%' ? converted_name(file, ".txt")
               : c == '&' ? converted_name(file, ".u32")
                          : std::string(1, c);
  detail::fail({file.string(), ": expected ", expected, ", got ", format.name, "; ", instead});
}

}  // namespace

void check_is_text(const std::filesystem::path& file, std::string_view bytes) {
  for (const Format& format : kFormats) check(file, "UTF-8 text", begins(bytes, format), format);
  for (const Format& format : kOfLlmC) check(file, "UTF-8 text", begins(bytes, format), format);
  check(file, "UTF-8 text", is_of_llama2(bytes), kLlama2);
  check(file, "UTF-8 text", begins(bytes, kZlib) && !is_readable(bytes, 64), kZlib);
  for (const Format& units : kUnits) check(file, "UTF-8 text", is_of_units(bytes, units), units);
}

void check_is_ids(const std::filesystem::path& file, std::string_view bytes) {
  for (const Format& format : kFormats) check(file, "token ids", begins(bytes, format, 4), format);
  for (const Format& format : kNoIds) check(file, "token ids", begins(bytes, format), format);
  check(file, "token ids", file.extension() == ".bin" && is_of_llama2(bytes), kLlama2);
  // Ids of 2 bytes are no text for long.
  INK_CHECK(bytes.size() < 128 || !is_readable(bytes, 4096), file.string(),
            ": expected token ids, got text; name a text otherwise, such as ",
            for_shell(file.stem().string() + ".txt"));
}

std::string converted_name(const std::filesystem::path& file, const char* extension) {
  std::filesystem::path name = file;
  if (has_path(name.replace_extension(extension)))
    name.replace_filename(file.stem().string() + "_converted" + extension);
  return for_shell(name.string());
}

std::string command_without(const std::string& byte, const std::filesystem::path& text) {
  if (is_read_once(text) || !has_file(text)) return "";
  return "; to leave " + byte + " out: tr -d '" + byte + "' < " + for_shell(text.string()) + " > " +
         converted_name(text, ".txt");
}

bool has_other_bytes(std::string_view text, size_t begin, size_t end) {
  for (size_t at = utf8::boundary(text, begin); at < end;)
    if (utf8::next(text, at) == utf8::kInvalid) return true;
  return false;
}

std::string said_of_other_bytes(const std::filesystem::path& file) {
  std::string text =
      file.string() + ": has bytes that are not UTF-8, and they are learned as they are";
  if (!is_read_once(file) && has_file(file))
    text += "; a text in Latin-1 is converted by: iconv -f latin1 -t utf-8 " +
            for_shell(file.string()) + " > " + converted_name(file, ".txt");
  return text;
}

size_t byte_order_mark(std::string_view text) {
  return text.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
}

}  // namespace ink
