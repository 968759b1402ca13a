// What stands out in a run: what a person who knows training would notice in its numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ink {

/// What says that a model learns its training text by heart, and what helps; empty if it does not.
/// Losses of different sets are not compared.
std::string overfitting(const nlohmann::ordered_json& run);

/// A list of {"level": "fault", "hint" or "good", "text", "section"}, the worst first, from what
/// read_run() gives. `section` names the part of the page that shows it; "measure" and "name", if
/// they are there, say which of its views and which row. The thresholds, and why they are as they
/// are, stand in findings.cpp.
nlohmann::ordered_json findings_of(const nlohmann::ordered_json& run);

}  // namespace ink
