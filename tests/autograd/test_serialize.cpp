// Files of tensors: round trips, what Python writes, and every error's text.
#include "autograd/io/serialize.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/io/atomic_file.h"
#include "nn/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file as it should be on the disk: the header's length, the header, the elements.
std::string file_of(const std::string& header, const std::string& elements = "") {
  const uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + elements;
}

// The error of loading such bytes, without the file's name.
std::string load_error(const std::string& bytes) {
  static const TempFolder folder;
  fs::remove(folder / "x.safetensors");  // writing anew is faster than writing over
  const fs::path file = folder.write("x.safetensors", bytes);
  const std::string error = error_of([&] { load(file); });
  const std::string name = file.string() + ": ";
  return error.rfind(name, 0) == 0 ? error.substr(name.size()) : error;
}

std::string header_error(const std::string& header, const std::string& elements = "") {
  return load_error(file_of(header, elements));
}

TEST(Serialize, ComesBackEqualInTheSameOrder) {
  const TempFolder folder;
  const Tensor x = tensor({{1.5, -2.0, 3.25}, {4.0, -0.0, 1e-30}});
  const NamedTensors saved = {
      {"b.weight", x},        {"mask", tensor({true, false, true})},       {"a.double", x.to(f64)},
      {"half", x.to(bf16)},   {"ids", tensor({{int64_t{1} << 62}, {-7}})}, {"scalar", tensor(2.5)},
      {"none", empty({0, 3})}};
  save(folder / "t.safetensors", saved, {{"step", "12"}, {"text", "\"é\"\n"}});
  Metadata metadata;
  const NamedTensors loaded = load(folder / "t.safetensors", &metadata);
  EXPECT_EQ(metadata, (Metadata{{"step", "12"}, {"text", "\"é\"\n"}}));
  ASSERT_EQ(loaded.size(), saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(loaded[i].first, saved[i].first);
    EXPECT_EQ(loaded[i].second.dtype(), saved[i].second.dtype());
    EXPECT_EQ(loaded[i].second.shape(), saved[i].second.shape());
    EXPECT_EQ(loaded[i].second.tolist(), saved[i].second.tolist());
  }
  EXPECT_EQ(loaded[4].second.tolist<int64_t>()[0], int64_t{1} << 62);
  EXPECT_FALSE(fs::exists(folder / "t.safetensors.tmp"));
}

TEST(Serialize, WritesValuesOfViewsAndLeaves) {
  const TempFolder folder;
  Tensor x = arange(6, f32).view({2, 3}).transpose(0, 1).clone();
  x.requires_grad_();
  save(folder / "x", {{"t", x.transpose(0, 1)}, {"column", x.select(1, 1)}});
  const NamedTensors loaded = load(folder / "x");
  EXPECT_EQ(loaded[0].second.tolist(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(loaded[1].second.tolist(), (std::vector<double>{3, 4, 5}));
  EXPECT_FALSE(loaded[0].second.requires_grad());
}

TEST(Serialize, WritesTheDocumentedBytes) {
  const TempFolder folder;
  save(folder / "x", {{"m", tensor({true})}, {"w", tensor({1.0, 2.0})}}, {{"k", "v"}});
  // Large elements come first, so that each starts at a multiple of its size; the header is padded.
  std::string header =
      R"({"__metadata__":{"k":"v"},"m":{"dtype":"BOOL","shape":[1],"data_offsets":[8,9]},)"
      R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes_of(folder / "x"), file_of(header, std::string("\0\0\x80\x3f\0\0\0\x40\1", 9)));

  save(folder / "empty", {});
  EXPECT_EQ(bytes_of(folder / "empty"), file_of("{}      "));
  EXPECT_TRUE(load(folder / "empty").empty());
}

// The bytes that the package safetensors 0.8 of Python wrote.
TEST(Serialize, ReadsTheDtypesOfOtherPrograms) {
  const TempFolder folder;
  const std::string header =
      R"({"__metadata__":{"format":"np"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("ids":{"dtype":"I32","shape":[4],"data_offsets":[4,20]},)"
      R"("half":{"dtype":"F16","shape":[3,4],"data_offsets":[20,44]},)"
      R"("bytes":{"dtype":"U8","shape":[1,3],"data_offsets":[44,47]}}   )";
  const unsigned char elements[] = {
      0, 0,    0xc0, 0x3f,                                                                 // w
      0, 0,    0,    0x80, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,    0xff, 0xff, 0xff, 0x7f,  // ids
      0, 0,    0,    0x80, 1,    0,    0xff, 3,    0, 4, 0, 0x3c, 0,    0xc0, 0xff, 0x7b,  // half
      0, 0x7c, 0,    0xfc, 0,    0x7e, 0x55, 0x35,                                         //
      0, 1,    0xff};                                                                      // bytes
  const fs::path file = folder.write(
      "x.safetensors", file_of(header, std::string(std::begin(elements), std::end(elements))));
  const NamedTensors loaded = load(file);
  ASSERT_EQ(loaded.size(), 4u);
  EXPECT_EQ(loaded[1].second.dtype(), i64);
  EXPECT_EQ(loaded[1].second.tolist<int64_t>(),
            (std::vector<int64_t>{-2147483648, -1, 0, 2147483647}));
  const Tensor half = loaded[2].second;
  EXPECT_EQ(half.dtype(), f32);
  EXPECT_EQ(half.shape(), (Shape{3, 4}));
  std::vector<double> values = half.tolist();
  EXPECT_TRUE(std::signbit(values[1]));
  EXPECT_TRUE(std::isnan(values[10]));
  values[10] = 0;
  EXPECT_EQ(values, (std::vector<double>{0, -0.0, 0x1p-24, 1023 * 0x1p-24, 0x1p-14, 1, -2, 65504,
                                         inf, -inf, 0, 0.333251953125}));
  EXPECT_EQ(loaded[3].second.dtype(), i64);
  EXPECT_EQ(loaded[3].second.shape(), (Shape{1, 3}));
  EXPECT_EQ(loaded[3].second.tolist<int64_t>(), (std::vector<int64_t>{0, 1, 255}));

  Linear layer(4, 3, false);  // which another program saved in half precision
  layer.load_state_dict({{"weight", half}});
  EXPECT_EQ(layer.weight.dtype(), f32);
  EXPECT_EQ(layer.weight.tolist()[7], 65504);
}

TEST(Serialize, RefusesNamesThatCannotBeSaved) {
  const TempFolder folder;
  const Tensor x = ones({1});
  const auto error = [&](const NamedTensors& tensors) {
    return error_of([&] { save(folder / "x", tensors); });
  };
  EXPECT_EQ(error({{"w", x}, {"w", x}}), "save: the name w comes twice");
  EXPECT_EQ(error({{"__metadata__", x}}), "save: a tensor cannot be named __metadata__");
  EXPECT_EQ(error({{"w", Tensor()}}), "save: w is undefined");
  EXPECT_EQ(error({{"\xff", x}}), "save: names and metadata must be UTF-8");
  EXPECT_FALSE(fs::exists(folder / "x"));
}

TEST(Serialize, NeverLeavesHalfAFile) {
  const TempFolder folder;
  save(folder / "x", {{"w", ones({2})}});
  const std::string before = bytes_of(folder / "x");
  {
    AtomicFile file(folder / "x");
    file.write("half", 4);
    EXPECT_TRUE(fs::exists(folder / "x.tmp"));
  }
  EXPECT_EQ(bytes_of(folder / "x"), before);
  EXPECT_FALSE(fs::exists(folder / "x.tmp"));
  const fs::path nowhere = folder / "none/x";
  EXPECT_EQ(error_of([&] { save(nowhere, {}); }),
            nowhere.string() + ": cannot create: No such file or directory");
}

TEST(Serialize, ReplacesRegularFilesAlone) {
  const TempFolder folder;
  save(folder / "x", {});
  fs::create_symlink("x", folder / "link");
  save(folder / "link", {{"w", ones({2})}});
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(load(folder / "x").size(), 1);

  fs::create_symlink("nothing", folder / "dangling");
  save(folder / "dangling", {{"w", ones({2})}});
  EXPECT_EQ(load(folder / "dangling").size(), 1);

  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDWR);
  save(pipe, {{"w", ones({2})}});
  std::string received(fs::file_size(folder / "x"), ' ');
  EXPECT_EQ(read(reader, received.data(), received.size()), received.size());
  EXPECT_EQ(received, bytes_of(folder / "x"));
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));

  EXPECT_EQ(error_of([&] { save(folder.path(), {}); }),
            folder.path().string() + ": cannot write: it is a folder");
}

// The time of a header grows with its length, not with the square of it.
TEST(Serialize, ManyTensors) {
  const TempFolder folder;
  NamedTensors many;
  for (int i = 0; i < 40000; ++i) many.emplace_back("t" + std::to_string(i), full({1}, i));
  save(folder / "many", many);
  const auto start = std::chrono::steady_clock::now();
  const NamedTensors loaded = load(folder / "many");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(loaded.size(), many.size());
  for (size_t i = 0; i < many.size(); i += 997) {
    EXPECT_EQ(loaded[i].first, many[i].first);  // the file's order
    EXPECT_EQ(loaded[i].second.item(), static_cast<double>(i));
  }
  EXPECT_LT(took.count(), 10);  // 0.2 s; 19 s with the square
}

TEST(Serialize, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(load_error("{}"), "expected a safetensors file, got 2 bytes");
  EXPECT_EQ(load_error("PK\3\4 a zip file, not this"),
            "expected a safetensors file, got one that torch.save writes; in Python, save it by "
            "safetensors.torch.save_file(torch.load(FILE), NEW)");
  EXPECT_EQ(load_error("\x80\2\x8a\nl\xfc\x9c"
                       "F"),
            load_error("PK\3\4 a zip file, not this"));
  EXPECT_EQ(load_error("a text, not this"),
            "expected a safetensors file, got a header of 2318355968635969633 bytes");
  EXPECT_EQ(load_error(file_of("{}").substr(0, 9)),
            "the file is truncated: expected a header of 2 bytes, got 1");
  EXPECT_EQ(header_error("{\"a\": oops}"), "the header: invalid JSON at byte 7");
  EXPECT_EQ(header_error("{} {}"), "the header: invalid JSON at byte 4");
  EXPECT_EQ(header_error({"{}\0junk", 7}), "the header: invalid JSON at byte 3");
  EXPECT_EQ(header_error("[1]"), "expected the header to be a JSON object, got [1]");
  EXPECT_EQ(header_error("{\"a\":" + std::string(100000, '[') + "}"),
            "the header: invalid JSON: nested more than 32 deep");
  const TempFolder folder;
  const fs::path none = folder / "none";
  EXPECT_EQ(error_of([&] { load(none); }),
            none.string() + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { load(folder.path()); }),
            folder.path().string() + ": expected a regular file");
}

TEST(Serialize, SaysWhatIsWrongWithAnEntry) {
  const auto entry = [](const std::string& fields) {
    return header_error("{\"w\":{" + fields + "}}");
  };
  EXPECT_EQ(entry(R"("shape":[],"data_offsets":[0,4])"), "w: \"dtype\" is missing in the header");
  EXPECT_EQ(entry(R"("dtype":"F32","data_offsets":[0,4])"),
            "w: \"shape\" is missing in the header");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[])"), "w: \"data_offsets\" is missing in the header");
  EXPECT_EQ(header_error(R"({"w":3})"), "w: \"dtype\" is missing in the header");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[],"data_offsets":[0,4],"x":1)"),
            "w: unknown keys in the header: "
            R"({"data_offsets":[0,4],"dtype":"F32","shape":[],"x":1})");
  const std::string expected = "w: expected dtype F32, F64, F16, BF16, I64, I32, U8 or BOOL, got ";
  for (const char* name : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"})
    EXPECT_EQ(entry(R"("dtype":")" + std::string(name) + R"(","shape":[],"data_offsets":[0,2])"),
              expected + "\"" + name + "\"; save it from Python as x.to(torch.float32)");
  for (const char* name : {"I8", "I16", "U16", "U32", "U64"})
    EXPECT_EQ(entry(R"("dtype":")" + std::string(name) + R"(","shape":[],"data_offsets":[0,2])"),
              expected + "\"" + name + "\"; save it from Python as x.to(torch.int64)");
  for (const char* name : {"C64", "Q4"})
    EXPECT_EQ(entry(R"("dtype":")" + std::string(name) + R"(","shape":[],"data_offsets":[0,2])"),
              expected + "\"" + name + "\"");
  EXPECT_EQ(entry(R"("dtype":7,"shape":[],"data_offsets":[0,2])"), expected + "7");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
            "w: expected \"shape\" to be a list of sizes, got [-1]");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
            "w: expected \"shape\" to be a list of sizes, got [1.0]");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":2,"data_offsets":[0,4])"),
            "w: expected \"shape\" to be a list of sizes, got 2");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"),
            "w: expected \"shape\" to be a list of sizes, got [9223372036854775808]");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
            "w: expected at most 8 dimensions, got 9");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
            "w: expected \"data_offsets\" to be [begin, end], got [4,0]");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0])"),
            "w: expected \"data_offsets\" to be [begin, end], got [0]");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])"),
            "w: (2, 3) of F32 does not fill its 20 bytes");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
            "w: (4611686018427387904,) of F32 does not fill its 0 bytes");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"),
            "shape: the number of elements of (4611686018427387904, 4) overflows 64 bits");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0])"),
            "shape: the strides of (0, 4611686018427387904, 4) overflow 64 bits");
}

// Names are whatever the file says; an error is a line that a terminal can show.
TEST(Serialize, QuotesForeignNamesOnOneLine) {
  const std::string name = R"("a\n\u001b":{"dtype":"F32","shape":[1],"data_offsets":)";
  EXPECT_EQ(header_error("{" + name + "[2,6]}}", std::string(6, '\0')),
            "a hole of 2 bytes before a\\x0a\\x1b");
  EXPECT_EQ(header_error("{" + name + "[0,8]}}"),
            "a\\x0a\\x1b: (1,) of F32 does not fill its 8 bytes");
  EXPECT_EQ(header_error("{" + name + "[0,4]}," + name + "[4,8]}}"),
            "the header: invalid JSON: the name \"a\\x0a\\x1b\" comes twice");
  EXPECT_EQ(header_error(R"({"__metadata__":{"a\n":1}})"),
            "__metadata__: expected a string for \"a\\n\", got 1");
}

TEST(Serialize, SaysWhatIsWrongBetweenEntries) {
  const auto two = [](const std::string& a, const std::string& b, size_t bytes) {
    return header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + a +
                            R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + b + "}}",
                        std::string(bytes, '\0'));
  };
  EXPECT_EQ(two("[0,4]", "[4,12]", 12), "(no error)");
  EXPECT_EQ(two("[8,12]", "[0,8]", 12), "(no error)");
  EXPECT_EQ(two("[0,4]", "[4,12]", 11),
            "the file is truncated: expected 12 bytes of elements, got 11");
  EXPECT_EQ(two("[0,4]", "[4,12]", 14), "2 bytes are left over after the last tensor");
  EXPECT_EQ(two("[0,4]", "[8,16]", 16), "a hole of 4 bytes before b");
  EXPECT_EQ(two("[0,4]", "[0,8]", 12), "b overlaps another tensor");
  EXPECT_EQ(two("[4,8]", "[0,8]", 8), "a overlaps another tensor");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                         R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})"),
            "the header: invalid JSON: the name \"a\" comes twice");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})"),
            "the header: invalid JSON: the name \"dtype\" comes twice");
  EXPECT_EQ(header_error(R"({"__metadata__":[1]})"),
            "__metadata__: expected an object of strings, got [1]");
  EXPECT_EQ(header_error(R"({"__metadata__":{"step":3}})"),
            "__metadata__: expected a string for \"step\", got 3");
  EXPECT_EQ(header_error(R"({"m":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2"),
            "m: expected 0 or 1 for every BOOL");
}

std::string small_file() {
  const TempFolder folder;
  save(folder / "x", {{"a", ones({3})}, {"m", tensor({true, false})}}, {{"k", "v"}});
  return bytes_of(folder / "x");
}

TEST(Serialize, EveryTruncationIsAnError) {
  const std::string whole = small_file();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(load_error(whole.substr(0, n)), "(no error)") << n << " bytes";
  }
}

// A byte with a flipped bit loads as another value or name, or is an ink::Error, and nothing else.
TEST(Serialize, FlippedBitsAreHarmless) {
  const std::string whole = small_file();
  int refused = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    refused += load_error(bytes) != "(no error)";
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace ink
