#include "train/cli/profile_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ink {
namespace {

double total_seconds(const std::vector<ProfileRow>& rows) {
  double total = 0;
  for (const ProfileRow& row : rows) total += row.seconds();
  return total;
}

double bytes_of(const ProfileRow& row) {
  return row.forward.work.bytes() + row.backward.work.bytes() + row.other.work.bytes();
}

std::string milliseconds(const ProfileEntry& entry, double steps) {
  return entry.calls == 0 ? "" : fmt::format("{:.3f}", 1000 * entry.seconds / steps);
}
std::string roof_text(const std::string& op, const ProfileEntry& entry, const Machine& machine) {
  const double roof = entry.calls == 0 ? 0 : roof_share(op, entry, machine);
  return roof > 0 ? fmt::format("{:.0f} %", 100 * roof) : "";
}

// The columns, with the order in which they are left out; 0: never.
struct TableColumn {
  size_t width;
  int rank;
};
constexpr std::array<TableColumn, 10> kColumns = {
    {{30, 0}, {6, 8}, {11, 0}, {7, 3}, {11, 1}, {7, 4}, {11, 6}, {7, 7}, {9, 9}, {8, 0}}};
using Cells = std::array<std::string, kColumns.size()>;

std::array<size_t, kColumns.size()> widths_within(size_t columns) {
  std::array<size_t, kColumns.size()> widths{};
  size_t total = 0;
  for (size_t i = 0; i < widths.size(); ++i) total += widths[i] = kColumns[i].width;
  for (int rank = 9; rank > 0; --rank)
    for (size_t i = 0; i < widths.size(); ++i)
      if (total > columns && kColumns[i].rank == rank) total -= std::exchange(widths[i], 0);
  if (total > columns) widths[0] -= std::min(total - columns, widths[0] - 10);
  return widths;
}

}  // namespace

double roof_share(std::string_view op, const ProfileEntry& entry, const Machine& machine) {
  if (entry.seconds <= 0) return 0;
  const bool attends = op.find("attention") != std::string_view::npos;
  const double calls = static_cast<double>(entry.calls),
               peak = attends ? machine.attention_flops_per_second : machine.flops_per_second,
               moving = machine.seconds_to_move(entry.work.bytes_read / calls,
                                                entry.work.bytes_written / calls);
  return std::max(entry.work.flops / peak, calls * moving) / entry.seconds;
}

std::vector<std::string> profile_table(const std::vector<ProfileRow>& rows, int64_t steps,
                                       const Machine& machine, size_t columns) {
  const double total = total_seconds(rows), per = static_cast<double>(steps);
  const auto widths = widths_within(columns);
  std::vector<std::string> lines;
  const auto add = [&](const Cells& cells) {
    const size_t name = widths[0] - 1;
    std::string line = fmt::format("{:<{}}", cells[0].substr(0, name), widths[0]);
    for (size_t i = 1; i < cells.size(); ++i)
      if (widths[i] > 0) line += fmt::format("{:>{}}", cells[i], widths[i]);
    lines.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  };
  const bool is_narrow = widths[0] < kColumns[0].width || widths[3] == 0;
  add({is_narrow ? "ms per step" : "ms per step, and of the roof", "calls", "forward", "",
       "backward", "", "other", "", "MB", "share"});
  ProfileRow sum{"all", {}, {}, {}};
  for (const ProfileRow& row : rows) {
    add({row.name,
         fmt::format("{:.0f}", static_cast<double>(row.forward.calls + row.other.calls) / per),
         milliseconds(row.forward, per), roof_text(row.name, row.forward, machine),
         milliseconds(row.backward, per), roof_text(row.name, row.backward, machine),
         milliseconds(row.other, per), roof_text(row.name, row.other, machine),
         fmt::format("{:.1f}", bytes_of(row) / per / 1e6),
         fmt::format("{:.1f} %", 100 * row.seconds() / total)});
    for (const auto phase : {&ProfileRow::forward, &ProfileRow::backward, &ProfileRow::other}) {
      (sum.*phase).seconds += (row.*phase).seconds;
      (sum.*phase).calls = 1;  // so that they are shown
    }
  }
  add({sum.name, "", milliseconds(sum.forward, per), "", milliseconds(sum.backward, per), "",
       milliseconds(sum.other, per), "", "", ""});
  return lines;
}

nlohmann::ordered_json profile_json(const std::vector<ProfileRow>& rows, int64_t steps,
                                    const Machine& machine) {
  const double total = total_seconds(rows), per = static_cast<double>(steps);
  const auto entry_json = [&](const std::string& op, const ProfileEntry& entry) {
    return nlohmann::ordered_json{{"calls", static_cast<double>(entry.calls) / per},
                                  {"ms", 1000 * entry.seconds / per},
                                  {"bytes", entry.work.bytes() / per},
                                  {"flops", entry.work.flops / per},
                                  {"roof", roof_share(op, entry, machine)}};
  };
  auto list = nlohmann::ordered_json::array();
  for (const ProfileRow& row : rows) {
    nlohmann::ordered_json object{{"op", row.name}, {"share", row.seconds() / total}};
    if (row.forward.calls > 0) object["forward"] = entry_json(row.name, row.forward);
    if (row.backward.calls > 0) object["backward"] = entry_json(row.name, row.backward);
    if (row.other.calls > 0) object["other"] = entry_json(row.name, row.other);
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace ink
