// The report of one run, or of several side by side.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ink {

constexpr const char* kReportFile = "report.html";
constexpr const char* kReportMark = "<!-- a report of inkling -->";  // near its beginning

/// The page, in one file that needs no network. runs: read_run(), with "command" and "command_note"
/// of whoever calls. It reloads itself while a run is going on.
std::string report_page(std::vector<nlohmann::ordered_json> runs);

/// The loss curve in characters, `columns` wide, and what stands out.
std::string report_text(const nlohmann::ordered_json& run, int columns = 80);

}  // namespace ink
