// Pages for a browser: each one is a file without any address in it. Their sources are in page/.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ink {

/// page("report", {"base", "charts", ..., "report"}, data): report.html with base.css and with the
/// scripts, which end with the call report(DATA). Nothing in the data can end the script. Bytes
/// that are not UTF-8 become U+FFFD, and numbers that are not finite become null.
std::string page(const std::string& name, const std::vector<std::string>& scripts,
                 const nlohmann::ordered_json& data);

/// Bytes as text for the data of a page.
std::string base64(const std::string& bytes);

namespace detail {
/// A file of page/, by its name.
std::string page_text(const std::string& file);
}  // namespace detail
}  // namespace ink
