#include "train/report/numbers.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/io/utf8.h"

namespace ink {
namespace {

// "1.25" of "1.2500"
std::string without_zeros(std::string text) {
  if (text.find('.') == text.npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string with_separators(std::string text) {
  for (auto at = std::ssize(text.substr(0, text.find('.'))) - 3; at > 0 && text[at - 1] != '-';
       at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string short_number(double x, int digits, bool power) {
  if (x == 0 || x == 1 || !std::isfinite(x)) return fmt::format("{:g}", x);
  const std::string exact = fmt::format("{:.{}e}", x, digits - 1);
  const size_t e = exact.find('e');
  const int exponent = std::stoi(exact.substr(e + 1));
  if (power || exponent >= 6 || exponent < -4) {
    return fmt::format("{}e{}", without_zeros(exact.substr(0, e)), exponent);
  }
  if (exponent >= digits - 1) return with_separators(fmt::format("{:.0f}", x));
  return with_separators(without_zeros(fmt::format("{:.{}f}", x, digits - 1 - exponent)));
}

std::string fixed_number(double x, int decimals) {
  if (std::isnan(x)) return "nan";
  return std::abs(x) < 1e6 ? fmt::format("{:.{}f}", x, decimals)
                           : fmt::format("{:.{}e}", x, decimals);
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  const bool power = std::any_of(ticks.begin(), ticks.end(), [](double tick) {
    return short_number(tick).find('e') != std::string::npos;
  });
  for (int digits = 4;; ++digits) {
    std::vector<std::string> texts;
    for (const double tick : ticks) texts.push_back(short_number(tick, digits, power));
    if (digits > 14 || std::set(texts.begin(), texts.end()).size() == texts.size()) return texts;
  }
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\033') {
      at = std::min(text.find('m', at), text.size() - 1) + 1;
      continue;
    }
    const char32_t character = utf8::next(text, at);
    if (character == utf8::kInvalid) ++at;
    columns += character == utf8::kInvalid
                   ? 1
                   : static_cast<size_t>(utf8proc_charwidth(static_cast<int32_t>(character)));
  }
  return columns;
}

std::string middle_cut(const std::string& text, size_t length) {
  const auto starts = [&](size_t at) { return at >= text.size() || (text[at] & 0xC0) != 0x80; };
  if (text.size() <= length || length < 5) return text;
  size_t begin = (length - 3) / 2, end = text.size() - (length - 3 - begin);
  while (!starts(begin)) --begin;  // no character is cut
  while (!starts(end)) ++end;
  return text.substr(0, begin) + "..." + text.substr(end);
}

std::string above_best(double loss, double best, int decimals) {
  const double share = loss / best - 1;
  return best > 0 && share < 10 ? fmt::format("{:.{}f} %", 100 * share, decimals)
                                : short_number(loss - best) + " nats";
}

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string answers_text(double share) {
  return fmt::format("{:.1f} % of answers right", share < 1 ? std::min(100 * share, 99.9) : 100.0);
}

}  // namespace ink
