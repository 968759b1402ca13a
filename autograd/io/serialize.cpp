#include "autograd/io/serialize.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

using Json = nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // bytes; the format's own limit

// A dtype of the format that is read: its bytes per element, and what its elements become here.
struct FileDType {
  const char* name;
  int64_t bytes;
  DType dtype;
};
constexpr FileDType kDTypes[] = {
    {"F32", 4, f32},      {"F64", 8, f64}, {"BF16", 2, bf16}, {"I64", 8, i64},  // in DType's order
    {"BOOL", 1, boolean}, {"F16", 2, f32}, {"I32", 4, i64},   {"U8", 1, i64}};

// ---- save

// Large elements first, so that each tensor starts at a multiple of its element's size.
std::vector<size_t> order_in_file(const NamedTensors& tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  return order;
}

int64_t stored_bytes(const Tensor& x) { return x.numel() * size_of(x.dtype()); }

std::string header_of(const NamedTensors& tensors, const std::vector<size_t>& order,
                      const Metadata& metadata) {
  std::vector<int64_t> starts(tensors.size());
  int64_t end = 0;
  for (const size_t i : order) {
    starts[i] = end;
    end += stored_bytes(tensors[i].second);
  }
  std::string text = "{";
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.size() > 1 ? "," : "") + Json(name).dump() + ":" + value;
  };
  try {
    if (!metadata.empty()) add(kMetadata, Json(metadata).dump());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, x] = tensors[i];
      const Json sizes(std::vector<int64_t>(x.shape().begin(), x.shape().end()));
      add(name, detail::joined({"{\"dtype\":\"", kDTypes[static_cast<int>(x.dtype())].name,
                                "\",\"shape\":", sizes.dump(), ",\"data_offsets\":[", starts[i],
                                ",", starts[i] + stored_bytes(x), "]}"}));
    }
    text += "}";
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
  } catch (const Json::exception&) {
    detail::fail({"save: names and metadata must be UTF-8"});
  }
}

void check_names(const NamedTensors& tensors) {
  std::set<std::string> seen;
  for (const auto& [name, x] : tensors) {
    INK_CHECK(name != kMetadata, "save: a tensor cannot be named ", kMetadata);
    INK_CHECK(x.defined(), "save: ", name, " is undefined");
    INK_CHECK(seen.insert(name).second, "save: the name ", name, " comes twice");
  }
}

void write_elements(AtomicFile& out, const Tensor& tensor) {
  const Tensor x = tensor.detach().to(cpu_device).contiguous();
  for_any(x.dtype(),
          [&]<class T>(T) { out.write(x.data<T>(), static_cast<size_t>(stored_bytes(x))); });
}

}  // namespace

void save(const std::filesystem::path& file, const NamedTensors& tensors,
          const Metadata& metadata) {
  check_names(tensors);
  const std::vector<size_t> order = order_in_file(tensors);
  const std::string header = header_of(tensors, order, metadata);
  const uint64_t length = header.size();
  AtomicFile out(file);
  out.write(&length, sizeof length);
  out.write(header.data(), header.size());
  for (const size_t i : order) write_elements(out, tensors[i].second);
  out.commit();
}

// ---- load

namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file)
      : fd_(open_file(file, O_RDONLY | O_NONBLOCK)) {}  // a pipe is refused, not waited for
  ~Reader() { ::close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  uint64_t size() const {
    struct stat status {};
    INK_CHECK(::fstat(fd_, &status) == 0, "cannot read: ", std::strerror(errno));
    INK_CHECK(S_ISREG(status.st_mode), "expected a regular file");
    return static_cast<uint64_t>(status.st_size);
  }

  void read(void* bytes, uint64_t count, uint64_t offset) const {
    char* at = static_cast<char*>(bytes);
    while (count > 0) {
      const ssize_t got =
          uninterrupted([&] { return ::pread(fd_, at, count, static_cast<off_t>(offset)); });
      INK_CHECK(got >= 0, "cannot read: ", std::strerror(errno));
      INK_CHECK(got > 0, "the file became shorter while it was read");
      at += got;
      offset += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
  }

 private:
  int fd_;
};

// What the header says of one tensor; begin and end count bytes from the first element of the file.
struct Entry {
  std::string name, shown;  // as it is, and for errors
  FileDType stored;
  Shape shape;
  uint64_t begin, end;
};

FileDType parse_dtype(const std::string& name, const Json& entry) {
  const std::string text = entry.is_string() ? entry.get<std::string>() : "";
  for (const FileDType& one : kDTypes)
    if (text == one.name) return one;
  const bool is_integer = text.starts_with('I') || text.starts_with('U');
  const bool is_known = is_integer || text.starts_with('F');
  detail::fail({name, ": expected dtype F32, F64, F16, BF16, I64, I32, U8 or BOOL, got ",
                quoted(entry), is_known ? "; save it from Python as x.to(torch." : "",
                !is_known    ? ""
                : is_integer ? "int64)"
                             : "float32)"});
}

std::vector<uint64_t> parse_sizes(const std::string& name, const char* key, const Json& list) {
  const auto is_size = [](const Json& size) {
    return size.is_number_unsigned() && size.get<uint64_t>() <= INT64_MAX;
  };
  INK_CHECK(list.is_array() && std::all_of(list.begin(), list.end(), is_size), name,
            ": expected \"", key, "\" to be a list of sizes, got ", quoted(list));
  return list.get<std::vector<uint64_t>>();
}

Entry parse_entry(const std::string& full_name, const Json& json) {
  const std::string name = printable(full_name, 60);
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    INK_CHECK(json.is_object() && json.contains(key), name, ": \"", key,
              "\" is missing in the header");
  }
  INK_CHECK(json.size() == 3, name, ": unknown keys in the header: ", quoted(json));
  Entry entry{full_name, name, parse_dtype(name, json["dtype"]), {}, 0, 0};
  const auto sizes = parse_sizes(name, "shape", json["shape"]);
  INK_CHECK(sizes.size() <= Shape::kMaxDims, name, ": expected at most ", Shape::kMaxDims,
            " dimensions, got ", sizes.size());
  for (const uint64_t size : sizes) entry.shape.push_back(static_cast<int64_t>(size));
  const auto offsets = parse_sizes(name, "data_offsets", json["data_offsets"]);
  INK_CHECK(offsets.size() == 2 && offsets[0] <= offsets[1], name,
            ": expected \"data_offsets\" to be [begin, end], got ", quoted(json["data_offsets"]));
  entry.begin = offsets[0];
  entry.end = offsets[1];
  int64_t bytes = 0;
  INK_CHECK(!__builtin_mul_overflow(entry.shape.numel(), entry.stored.bytes, &bytes) &&
                static_cast<uint64_t>(bytes) == entry.end - entry.begin,
            name, ": ", entry.shape, " of ", entry.stored.name, " does not fill its ",
            entry.end - entry.begin, " bytes");
  return entry;
}

Metadata parse_metadata(const Json& json) {
  INK_CHECK(json.is_object(), kMetadata, ": expected an object of strings, got ", quoted(json));
  Metadata metadata;
  for (const auto& [key, value] : json.items()) {
    INK_CHECK(value.is_string(), kMetadata, ": expected a string for ", quoted(Json(key)), ", got ",
              quoted(value));
    metadata[key] = value;
  }
  return metadata;
}

// The tensors must fill the file: no holes, no overlaps, nothing missing at its end, nothing after.
void check_places(std::vector<Entry> entries, uint64_t bytes) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    INK_CHECK(entry.begin <= end, "a hole of ", entry.begin - end, " bytes before ", entry.shown);
    INK_CHECK(entry.begin == end, entry.shown, " overlaps another tensor");
    end = entry.end;
  }
  INK_CHECK(end <= bytes, "the file is truncated: expected ", end, " bytes of elements, got ",
            bytes);
  INK_CHECK(end == bytes, bytes - end, " bytes are left over after the last tensor");
}

// IEEE 754's half precision: 1 bit of sign, 5 of the exponent, 10 of the fraction.
float half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                     : exponent < 31
                         ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                     : fraction == 0 ? std::numeric_limits<float>::infinity()
                                     : std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x8000) != 0 ? -size : size;
}

// Elements of a dtype that tensors do not have, each as `as(element)`.
template <class From, class As>
Tensor read_converted(const Reader& in, const Entry& entry, uint64_t data_begin, As as) {
  using To = decltype(as(From{}));
  Tensor x = empty(entry.shape, {entry.stored.dtype, cpu_device});
  std::vector<From> elements(static_cast<size_t>(x.numel()));
  in.read(elements.data(), entry.end - entry.begin, data_begin + entry.begin);
  std::transform(elements.begin(), elements.end(), x.mutable_data<To>(), as);
  return x;
}

Tensor read_tensor(const Reader& in, const Entry& entry, uint64_t data_begin) {
  const std::string_view stored = entry.stored.name;
  const auto widened = [](auto integer) -> int64_t { return integer; };
  if (stored == "F16") return read_converted<uint16_t>(in, entry, data_begin, half_value);
  if (stored == "I32") return read_converted<int32_t>(in, entry, data_begin, widened);
  if (stored == "U8") return read_converted<uint8_t>(in, entry, data_begin, widened);
  const DType dtype = entry.stored.dtype;
  Tensor x = empty(entry.shape, {dtype, cpu_device});
  void* const memory = for_any(dtype, [&]<class T>(T) -> void* { return x.mutable_data<T>(); });
  in.read(memory, entry.end - entry.begin, data_begin + entry.begin);
  if (dtype == boolean) {
    const auto* bytes = static_cast<const unsigned char*>(memory);
    INK_CHECK(std::all_of(bytes, bytes + x.numel(), [](unsigned char b) { return b <= 1; }),
              entry.shown, ": expected 0 or 1 for every BOOL");
  }
  return x;
}

NamedTensors load_from(const Reader& in, Metadata* metadata) {
  const uint64_t size = in.size();
  uint64_t length = 0;
  INK_CHECK(size >= sizeof length, "expected a safetensors file, got ", size, " bytes");
  in.read(&length, sizeof length, 0);
  // A zip archive, or a pickle, as PyTorch wrote before 1.6.
  const bool of_torch = (length & 0xffffffff) == 0x04034b50 || (length & 0xffff) == 0x0280;
  INK_CHECK(length <= kMaxHeader || !of_torch,
            "expected a safetensors file, got one that torch.save writes; in Python, save it by "
            "safetensors.torch.save_file(torch.load(FILE), NEW)");
  INK_CHECK(length <= kMaxHeader, "expected a safetensors file, got a header of ", length,
            " bytes");
  INK_CHECK(length <= size - sizeof length, "the file is truncated: expected a header of ", length,
            " bytes, got ", size - sizeof length);
  std::string text(length, '\0');
  in.read(text.data(), length, sizeof length);

  std::vector<std::string> names;
  const Json header = with_prefix("the header", [&] { return parse_json(text, &names); });
  INK_CHECK(header.is_object(), "expected the header to be a JSON object, got ", quoted(header));
  std::vector<Entry> entries;
  Metadata about;
  for (const std::string& name : names) {
    const Json& json = header[name];
    if (name == kMetadata) {
      about = parse_metadata(json);
    } else {
      entries.push_back(parse_entry(name, json));
    }
  }
  const uint64_t data_begin = sizeof length + length;
  check_places(entries, size - data_begin);

  NamedTensors tensors;
  for (const Entry& entry : entries)
    tensors.emplace_back(entry.name, read_tensor(in, entry, data_begin));
  if (metadata) *metadata = std::move(about);
  return tensors;
}

}  // namespace

NamedTensors load(const std::filesystem::path& file, Metadata* metadata) {
  const Reader in(file);
  return with_prefix(file.string(), [&] { return load_from(in, metadata); });
}

}  // namespace ink
