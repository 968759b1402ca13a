#include "autograd/io/foreign.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "autograd/io/utf8.h"

namespace ink {

std::optional<double> parse_number(const std::string& text) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  char* stopped = nullptr;
  errno = 0;
  const double value = strtod_l(text.c_str(), &stopped, plain);
  const bool whole = !text.empty() && stopped == text.c_str() + text.size() && errno == 0;
  return whole ? std::optional(value) : std::nullopt;
}

int open_file(const std::filesystem::path& file, int flags, const std::filesystem::path& what) {
  const int fd = uninterrupted([&] { return ::open(file.c_str(), flags | O_CLOEXEC, 0666); });
  INK_CHECK(fd >= 0, (what.empty() ? file : what).string(),
            flags & O_CREAT ? ": cannot create: " : ": cannot open: ", std::strerror(errno));
  return fd;
}

static std::string printable(std::string_view text, size_t longest, bool lines) {
  const auto controls = [](char32_t c) {  // the last two: they turn the direction of what follows
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
  };
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t character = utf8::next(text, at);
    std::string piece(text.substr(begin, at - begin));
    if (character == utf8::kInvalid || (controls(character) && !(lines && character == '\n'))) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(text[begin]));
      piece = code;
      at = begin + 1;
    }
    if (shown.size() + piece.size() > longest) return shown + "...";
    shown += piece;
  }
  return shown;
}

std::string printable(std::string_view text) { return printable(text, text.npos, true); }
std::string printable(std::string_view text, size_t longest) {
  return printable(text, longest, false);
}

std::string for_shell(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 ||
           std::string_view("_./+-=:,@%").find(c) != std::string_view::npos;
  };
  std::string quoted = "$'";
  if (printable(word) != word) {  // what is shown as \x09 is read as that
    for (const char c : word) quoted += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    return printable(quoted) + "'";
  }
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string quoted(const nlohmann::json& json) {
  constexpr size_t kLongest = 60;
  if (json.is_structured() && json.size() > kLongest)
    return json.is_array() ? "a long list" : "a large object";
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return printable(text, kLongest);
}

void Problems::add(std::initializer_list<detail::Piece> pieces) {
  if (++count_ <= kShown) lines_ += "\n  " + detail::joined(pieces);
}

std::string Problems::text() const {
  return lines_ + (count_ > kShown ? detail::joined({"\n  and ", count_ - kShown, " more"}) : "");
}

namespace {

// Reads a text to its end without building anything, and refuses JSON that is too deep or has a
// name twice. nlohmann's own parser with a callback is no alternative: it visits all members of an
// object again at the end of each member, so its time is quadratic.
class Examiner : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Examiner(std::vector<std::string>* keys) : keys_(keys) {}

  bool key(string_t& name) override {
    INK_CHECK(open_.back().insert(name).second, "invalid JSON: the name \"", printable(name, 60),
              "\" comes twice");
    if (keys_ != nullptr && open_.size() == 1) keys_->push_back(name);
    return true;
  }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception& error) override {
    INK_CHECK(dynamic_cast<const nlohmann::json::parse_error*>(&error) == nullptr,
              "invalid JSON at byte ", at);
    detail::fail({"invalid JSON: a number is out of range"});
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

 private:
  bool enter() {
    open_.emplace_back();
    INK_CHECK(open_.size() <= kDeepestJson, "invalid JSON: nested more than ", kDeepestJson,
              " deep");
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  std::vector<std::string>* keys_;
  std::vector<std::set<std::string>> open_;  // the names in each object or list that is open
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::vector<std::string>* keys) {
  // The library's parser takes a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  INK_CHECK(zero == text.npos, "invalid JSON at byte ", zero + 1);
  Examiner examiner(keys);
  nlohmann::json::sax_parse(text, &examiner);
  return nlohmann::json::parse(text);
}

// ---- fields

const nlohmann::json& Fields::of(const char* name) const {
  INK_CHECK(object_.is_object(), where_, ": expected an object, got ", quoted(object_));
  INK_CHECK(object_.contains(name), where_, ": ", name, " is missing");
  return object_.at(name);
}

bool Fields::has(const char* name) const { return object_.contains(name); }

std::string Fields::text(const char* name) const {
  const nlohmann::json& value = of(name);
  expect(name, "a text", value.is_string());
  return value.get<std::string>();
}

int64_t Fields::count(const char* name, int64_t most) const {
  const nlohmann::json& value = of(name);
  expect(name, detail::joined({"an integer from 0 to ", most}),
         value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most));
  return value.get<int64_t>();
}

std::optional<double> Fields::number(const char* name) const {
  const nlohmann::json& value = of(name);
  if (value.is_null()) return {};
  expect(name, "a number or null", value.is_number() && std::isfinite(value.get<double>()));
  return value.get<double>();
}

Fields Fields::object(const char* name) const {
  expect(name, "an object", of(name).is_object());
  return {where_ + ": " + name, of(name)};
}

void Fields::expect(const char* name, const std::string& what, bool found) const {
  INK_CHECK(found, where_, ": ", name, ": expected ", what, ", got ", quoted(of(name)));
}

}  // namespace ink
