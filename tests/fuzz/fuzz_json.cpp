// JSON, and the fields of an object. parse_json must take what nlohmann-json's own parser takes
// within the limits, which are counted apart here, and nothing else.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/io/foreign.h"
#include "tests/fuzz/fuzz.h"

namespace ink::fuzz {
namespace {

using Json = nlohmann::json;

size_t names_in(const Json& json) {
  size_t names = json.is_object() ? json.size() : 0;
  if (json.is_structured())
    for (const Json& item : json) names += names_in(item);
  return names;
}

// Does the text keep to the limits? `top`: the names of the outermost object, as they come.
bool is_within_limits(std::string_view text, std::vector<std::string>& top) {
  if (!Json::accept(text) || text.find('\0') != std::string::npos) return false;
  size_t names = 0;
  int deepest = 0;
  const auto count = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::key) {
      ++names;
      if (depth == 1) top.push_back(value.get<std::string>());
    }
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start)
      deepest = std::max(deepest, depth + 1);
    return true;
  };
  const Json json = Json::parse(text, count);
  return deepest <= static_cast<int>(kDeepestJson) && names == names_in(json);
}

void check_quoted(const Json& json, std::string_view input) {
  const std::string text = quoted(json);
  check_text(text, input);
  expect(text.size() <= 63, "a long quotation: " + text);
}

void check_printable(std::string_view input) {
  const std::string text = printable(input, 100);
  check_text(text, input, Lines::many);
  expect(text.size() <= 103, "longer than it may be: " + text);
  expect(printable(text) == text, "printable changes what is printable: " + text);
}

// Each getter must throw where the value is something else, and give it where it is not.
void check_fields(const Json& json, std::string_view input) {
  const Fields fields("file", json);
  for (const char* name : {"text", "count", "number", "object", "step"}) {
    const bool there = json.is_object() && json.contains(name);
    const Json value = there ? json[name] : Json();
    const auto expect_same = [&](bool sound, const auto& get, const char* what) {
      expect(sound == !error_of(input, get), std::string(what) + " of " + value.dump());
    };
    expect(fields.has(name) == there, "has");
    expect_same(
        there, [&] { fields.of(name); }, "of");
    expect_same(
        value.is_string(), [&] { fields.text(name); }, "text");
    expect_same(
        value.is_object(), [&] { fields.object(name); }, "object");
    expect_same(
        there && (value.is_null() || value.is_number()), [&] { fields.number(name); }, "number");
    for (const int64_t most : {int64_t{0}, int64_t{1'000'000'000}, INT64_MAX}) {
      const bool sound =
          value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
      expect_same(
          sound, [&] { fields.count(name, most); }, "count");
    }
  }
}

}  // namespace

void check_input(std::string_view input) {
  check_printable(input);
  nlohmann::json json;
  std::vector<std::string> keys, top;
  const auto error = error_of(input, [&] { json = parse_json(input, &keys); });
  expect(!error == is_within_limits(input, top), error ? *error : "it is no sound JSON");
  if (error) return;
  if (json.is_object()) expect(keys == top, "other names than in the text");
  expect(parse_json(json.dump()) == json, "it does not come back");
  check_quoted(json, input);
  if (json.is_structured())
    for (const auto& item : json) check_quoted(item, input);
  check_fields(json, input);
}

}  // namespace ink::fuzz
