// Files of tensors. An input that begins with '{' is a header, up to the end of its line, and the
// elements: its length is put in front here. Any other is a file as it is.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/io/serialize.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_files.h"

namespace ink::fuzz {
namespace {

using Json = nlohmann::json;

std::string file_of(std::string_view input) {
  if (input.empty() || input[0] != '{') return std::string(input);
  const size_t end = std::min(input.find('\n'), input.size());
  const uint64_t length = end;
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += input.substr(0, end);
  if (end < input.size()) file += input.substr(end + 1);
  return file;
}

std::string bytes_of(const Tensor& x) {
  return for_any(x.dtype(), [&]<class T>(T) {
    return std::string(reinterpret_cast<const char*>(x.data<T>()),
                       static_cast<size_t>(x.numel()) * sizeof(T));
  });
}

// What the format's definition says of a file, read once more.
void check_against_header(const std::string& file, const NamedTensors& tensors) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const Json header = Json::parse(file.substr(sizeof length, length));
  const std::string data = file.substr(sizeof length + length);
  expect(header.size() == tensors.size() + header.contains("__metadata__"), "tensors are missing");
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const auto& [name, x] : tensors) {
    const Json& entry = header.at(name);
    const uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    places.emplace_back(begin, end);
    expect(begin <= end && end <= data.size(), name + " lies outside");
    const std::string dtype = entry.at("dtype");
    if (dtype == "F16" || dtype == "I32" || dtype == "U8") {  // become f32 and i64
      const uint64_t bytes = dtype == "F16" ? 2 : dtype == "I32" ? 4 : 1;
      expect(static_cast<uint64_t>(x.numel()) * bytes == end - begin, name + " has another size");
    } else {
      expect(bytes_of(x) == data.substr(begin, end - begin), name + " has other elements");
    }
    expect(entry.at("shape") == std::vector<int64_t>(x.shape().begin(), x.shape().end()),
           name + " has another shape");
  }
  std::sort(places.begin(), places.end());
  uint64_t last = 0;
  for (const auto& [begin, end] : places) expect(begin == std::exchange(last, end), "overlaps");
  expect(last == data.size(), "bytes that no tensor has");
}

void check_comes_back(const NamedTensors& tensors, const Metadata& metadata) {
  static const TempFolder folder;
  const auto file = folder / "again";
  save(file, tensors, metadata);
  Metadata metadata_again;
  const NamedTensors again = load(file, &metadata_again);
  expect(metadata == metadata_again, "other metadata come back");
  expect(tensors.size() == again.size(), "another number of tensors comes back");
  for (size_t i = 0; i < again.size(); ++i) {
    const auto& [name, x] = tensors[i];
    const auto& [name_again, y] = again[i];
    expect(name == name_again && x.dtype() == y.dtype() && x.shape() == y.shape() &&
               bytes_of(x) == bytes_of(y),
           name + " comes back as something else");
  }
}

}  // namespace

void check_input(std::string_view input) {
  const std::string text = file_of(input);
  static File file;
  file.write(text);
  NamedTensors tensors;
  Metadata metadata;
  if (error_of(text, [&] { tensors = load(file.path(), &metadata); })) return;
  check_against_header(text, tensors);
  check_comes_back(tensors, metadata);
}

}  // namespace ink::fuzz
