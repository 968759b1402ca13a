#include "train/report/page.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"

namespace ink {
namespace {

void replace_line(std::string& text, const std::string& line, const std::string& by) {
  const size_t at = text.find(line);
  INK_CHECK(at != std::string::npos, "page: expected the line ", line);
  text.replace(at, line.size(), by);
}

std::string literal(const nlohmann::ordered_json& data) {
  std::string json = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
              text;
  text.reserve(json.size());
  for (const char c : json) c == '<' ? text.append("\\u003c") : text.append(1, c);
  return text;
}

}  // namespace

std::string page(const std::string& name, const std::vector<std::string>& scripts,
                 const nlohmann::ordered_json& data) {
  std::string html = detail::page_text(name + ".html"), script;
  for (const std::string& file : scripts) script += detail::page_text(file + ".js");
  script += name + "(" + literal(data) + ");\n";
  replace_line(html, "<!-- style -->", "<style>\n" + detail::page_text("base.css") + "</style>");
  replace_line(html, "<!-- script -->", "<script>\n" + script + "</script>");
  return html;
}

std::string base64(const std::string& bytes) {
  static const char* const digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace ink
