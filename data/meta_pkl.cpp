#include "data/meta_pkl.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/file.h"

namespace ink {
namespace {

struct Value {
  enum Kind { number, text, dict, mark } kind = number;
  uint64_t of_number = 0;
  std::string of_text = {};
  std::vector<Value> items = {};  // of a dict: key, value, key, value
};

// Runs a pickle (protocol 2 or newer), whose instructions put values on a stack.
class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : bytes_(bytes) {}

  Value value() {
    for (char code; (code = take(1)[0]) != '.';) step(code);
    return pop();
  }

 private:
  void step(char code) {
    switch (code) {
      case '\x80':  // PROTO
        return static_cast<void>(take(1));
      case '\x95':  // FRAME
        return static_cast<void>(take(8));
      case '}':
        return push({Value::dict});
      case '(':
        return push({Value::mark});
      case 'K':
        return push({Value::number, integer(1)});
      case 'M':
        return push({Value::number, integer(2)});
      case 'J':
        return push({Value::number, integer(4)});
      case '\x8c':  // SHORT_BINUNICODE
        return push({Value::text, 0, std::string(take(integer(1)))});
      case 'X':
        return push({Value::text, 0, std::string(take(integer(4)))});
      case '\x94':  // MEMOIZE
        return memo_.push_back(top());
      case 'q':  // BINPUT; Python numbers them from 0 on
        return put(integer(1));
      case 'r':
        return put(integer(4));
      case 'h':
        return get(integer(1));
      case 'j':
        return get(integer(4));
      case 's':
        return set_items(2);
      case 'u':
        return set_items(0);
      default:
        fail();
    }
  }

  std::string_view take(size_t count) {
    if (count > bytes_.size()) fail();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  uint64_t integer(size_t count) {
    const std::string_view bytes = take(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  void push(Value value) { stack_.push_back(std::move(value)); }
  Value& top() {
    if (stack_.empty()) fail();
    return stack_.back();
  }
  Value pop() {
    Value value = std::move(top());
    stack_.pop_back();
    return value;
  }
  void put(size_t at) {
    if (at != memo_.size()) fail();
    memo_.push_back(top());
  }
  void get(size_t at) {
    if (at >= memo_.size() || memo_[at].kind == Value::dict) fail();
    push(memo_[at]);
  }
  // The last `count` values, or those since the mark, become items of the dict before them.
  void set_items(size_t count) {
    std::vector<Value> items;
    while (count == 0 ? top().kind != Value::mark : items.size() < count) items.push_back(pop());
    if (count == 0) pop();
    Value& dict = top();
    if (dict.kind != Value::dict || items.size() % 2 != 0) fail();
    dict.items.insert(dict.items.end(), items.rbegin(), items.rend());
  }
  [[noreturn]] static void fail() {
    detail::fail(
        {"expected the vocabulary of characters that nanoGPT's prepare.py writes, got "
         "another pickle; name what the ids mean, such as --tokenizer tokenizer.json"});
  }

  std::string_view bytes_;
  std::vector<Value> stack_, memo_;
};

constexpr const char* kInstead = "; train on the text itself, such as --data input.txt";

std::vector<char32_t> characters_of(const Value& meta) {
  const Value* stoi = nullptr;  // ids by character
  for (size_t i = 0; i + 1 < meta.items.size(); i += 2)
    if (meta.items[i].of_text == "stoi") stoi = &meta.items[i + 1];
  INK_CHECK(stoi != nullptr && !stoi->items.empty(), "expected ids by character in \"stoi\"",
            kInstead);
  std::vector<char32_t> characters(stoi->items.size() / 2, utf8::kInvalid);
  for (size_t i = 0; i < stoi->items.size(); i += 2) {
    const std::string& text = stoi->items[i].of_text;
    const uint64_t id = stoi->items[i + 1].of_number;
    size_t end = 0;
    const char32_t character = text.empty() ? utf8::kInvalid : utf8::next(text, end);
    INK_CHECK(character != utf8::kInvalid && end == text.size() && id < characters.size(),
              "expected one character and an id below ", characters.size(), " for each, got \"",
              printable(text, 20), "\" and ", id, kInstead);
    characters[id] = character;
  }
  INK_CHECK(std::adjacent_find(characters.begin(), characters.end(), std::greater_equal<>()) ==
                characters.end(),
            "expected ids in the order of the characters, as those of --tokenizer char are",
            kInstead);
  return characters;
}

}  // namespace

std::vector<char32_t> characters_of_meta(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  return with_prefix(file.string(), [&] { return characters_of(Unpickler(bytes).value()); });
}

}  // namespace ink
