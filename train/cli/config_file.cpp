#include "train/cli/config_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

class SettingParser {
 public:
  SettingParser(std::string_view text, bool is_python) : text_(text), is_python_(is_python) {}

  std::vector<Setting> settings() {
    const auto is_stray = [](unsigned char c) {
      return c < ' ' && c != '\n' && c != '\r' && c != '\t';
    };
    at_ = static_cast<size_t>(std::find_if(text_.begin(), text_.end(), is_stray) - text_.begin());
    if (!at_end()) fail("expected text, got the byte " + printable(text_.substr(at_, 1), 4));
    at_ = 0;
    std::vector<Setting> list;
    std::set<std::string> names;
    for (skip(true); !at_end(); skip(true)) {
      if (pass_over(list)) continue;
      list.push_back(setting());
      if (!names.insert(list.back().name).second)
        fail(printable(list.back().name, 60) + " comes twice");
    }
    return list;
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  bool is_at(std::string_view any) const { return !at_end() && any.find(text_[at_]) != any.npos; }
  bool take(char wanted) { return is_at({&wanted, 1}) && ++at_ > 0; }

  // Skips spaces and comments, in this line or over line ends, too.
  void skip(bool lines, bool commas = false) {
    while (is_at(" \t\r#") || (lines && is_at("\n")) || (commas && is_at(","))) {
      if (is_at("#")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        ++at_;
      }
    }
  }

  std::string_view until(std::string_view any) {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(any, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }

  // What a Python file has beside settings. Names that it imports are added to the list.
  bool pass_over(std::vector<Setting>& list) {
    for (const std::string_view quotes : {"\"\"\"", "'''"}) {
      if (!text_.substr(at_).starts_with(quotes)) continue;
      const size_t end = text_.find(quotes, at_ + quotes.size());
      check(end != text_.npos, "expected the end of a text in three quotes");
      at_ = end + quotes.size();
      return true;
    }
    const std::string_view rest = text_.substr(at_);
    const bool names = rest.starts_with("from ");
    if (!names && !rest.starts_with("import ")) return false;
    const size_t begin = at_;
    until("(#;\n");
    if (take('(')) {
      until(")");
      check(take(')'), "expected ) at the end of an import");
    }
    const std::string_view line = text_.substr(begin, at_ - begin);
    skip(false);
    check(at_end() || is_at("\n"), kOneALine);
    if (!names) return true;
    check(line.find(" import") != line.npos, "expected from ... import ...");
    for (size_t at = line.find(" import") + 7; at < line.size();) {
      const size_t end = std::min(line.find_first_of(" \t\r\n,()", at), line.size());
      if (end > at) list.push_back({std::string(line.substr(at, end - at)), {}});
      at = end + 1;
    }
    return true;
  }

  Setting setting() {
    check(!is_at("["), "expected name = value; there are no sections");
    Setting setting{std::string(until(" \t\r\n=#[]\"',")), {}};
    skip(false);
    check(!setting.name.empty() && (at_end() || is_at("=\n")), "expected name = value");
    if (!take('=')) return {setting.name, {"true"}};
    skip(false);
    const size_t begin = at_;
    const std::string ends = end_of_list();  // one of them ends the values
    const bool is_list = ends != "\n";
    for (skip(is_list, true); !at_end() && !is_at(ends); skip(is_list, true)) {
      setting.is_bare |= !is_at("\"'");
      setting.values.push_back(value(ends));
    }
    check(!is_list || take(ends[0]),
          ends == ")" ? "expected ) at the end of a list" : "expected ] at the end of a list");
    skip(false);
    check(!is_at(";"), kOneALine);
    check(at_end() || is_at("\n"), "expected the end of the line after a list");
    if (setting.values.empty()) fail(printable(setting.name, 60) + ": expected a value");
    if (!is_list) setting.text = text_.substr(begin, at_ - begin);
    return setting;
  }

  // Takes what begins a list, and returns what ends it; a tuple is one where it begins with a text.
  std::string end_of_list() {
    if (take('[')) return "]";
    const size_t begin = at_;
    if (take('(')) skip(true);
    if (at_ > begin && is_at("\"'")) return ")";
    at_ = begin;
    return "\n";
  }

  std::string value(const std::string& ends) {
    if (is_at("\"") || (is_python_ && is_at("'"))) return json_text();
    if (!take('\'')) {
      const std::string word(until(" \t\r\n,#" + ends));
      check(word.find(';') == word.npos && word != "=", kOneALine);
      const auto count = [&](char bracket) {
        return std::count(word.begin(), word.end(), bracket);
      };
      check(!word.empty() && count('[') == count(']'), "expected a value, got ]");
      return word;
    }
    const std::string text(until("'\n"));
    check(take('\''), "expected ' at the end of a text");
    return text;
  }

  // In double quotes, or in Python's single ones.
  std::string json_text() {
    const char quote = text_[at_++];
    std::string json = "\"";
    while (!at_end() && text_[at_] != quote && text_[at_] != '\n') {
      const bool is_escape = text_[at_] == '\\' && at_ + 1 < text_.size();
      if (is_escape && text_[at_ + 1] == '\'') ++at_;  // JSON has none of it
      if (text_[at_] == '"') json += '\\';
      json += text_[at_++];
      if (is_escape && json.back() == '\\') json += text_[at_++];
    }
    check(take(quote),
          quote == '"' ? "expected \" at the end of a text" : "expected ' at the end of a text");
    try {
      return parse_json(json + '"').get<std::string>();
    } catch (const Error&) {
      fail(is_python_ ? "expected a text with escapes as in JSON; \\ is typed \\\\"
                      : "expected a text as in JSON, or in ''");
    }
  }

  void check(bool holds, const char* what) const {
    if (!holds) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    detail::fail({"line ", 1 + std::count(before.begin(), before.end(), '\n'), ": ", what});
  }

  static constexpr const char* kOneALine = "expected one setting a line";

  std::string_view text_;
  const bool is_python_;
  size_t at_ = 0;
};

// By precedence, as Python has it: sums, products, signs, powers, atoms.
class Calculation {
 public:
  Calculation(std::string_view text, const ValueOf& value_of) : text_(text), value_of_(value_of) {}

  std::optional<double> value() {
    const double result = sum();
    skip();
    const bool ends = at_ == text_.size() || text_[at_] == '#';
    return ok_ && ends && std::isfinite(result) ? std::optional(result) : std::nullopt;
  }

 private:
  void skip() { at_ = std::min(text_.find_first_not_of(" \t\r", at_), text_.size()); }
  bool take(std::string_view wanted) {
    skip();
    const bool is_there = text_.substr(at_).starts_with(wanted);
    if (is_there) at_ += wanted.size();
    return is_there;
  }
  double fail() {
    ok_ = false;
    return 0;
  }

  double sum() {
    if (++depth_ > 100) return fail();
    double x = product();
    while (ok_) {
      if (take("+")) {
        x += product();
      } else if (take("-")) {
        x -= product();
      } else {
        break;
      }
    }
    --depth_;
    return x;
  }
  double product() {
    double x = sign();
    while (ok_) {
      if (take("//")) {
        x = std::floor(x / sign());
      } else if (take("/")) {
        x /= sign();
      } else if (take("%")) {
        const double y = sign();
        x -= y * std::floor(x / y);
      } else if (take("*")) {
        x *= sign();
      } else {
        break;
      }
    }
    return x;
  }
  double sign() {
    if (++depth_ > 100) return fail();
    const double x = take("-") ? -sign() : take("+") ? sign() : power();
    --depth_;
    return x;
  }
  double power() {
    const double x = atom();
    return ok_ && take("**") ? std::pow(x, sign()) : x;
  }
  double atom() {
    if (take("(")) {
      const double x = sum();
      return take(")") ? x : fail();
    }
    skip();
    const auto is_word = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.';
    };
    std::string word;
    while (at_ < text_.size() && (is_word(text_[at_]) || continues_number(word)))
      word += text_[at_++];
    if (word.empty()) return fail();
    if (std::isdigit(static_cast<unsigned char>(word[0])) == 0 && word[0] != '.') {
      const auto named = value_of_(word);
      return named ? *named : fail();
    }
    std::erase(word, '_');
    const std::optional<double> x = plain_number(word);
    return x ? *x : fail();
  }
  // The sign in 1e-3.
  bool continues_number(const std::string& word) const {
    return word.size() > 1 && (word.back() == 'e' || word.back() == 'E') &&
           std::isdigit(static_cast<unsigned char>(word[0])) != 0 &&
           (text_[at_] == '-' || text_[at_] == '+');
  }

  std::string_view text_;
  const ValueOf& value_of_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace

std::optional<double> plain_number(const std::string& text) {
  if (text.find_first_not_of("0123456789+-.eE") != std::string::npos) return {};
  return parse_number(text);
}

std::optional<double> calculated(std::string_view text, const ValueOf& value_of) {
  return Calculation(text, value_of).value();
}

std::vector<Setting> parse_settings(std::string_view text, bool is_python) {
  return SettingParser(text, is_python).settings();
}

}  // namespace ink
