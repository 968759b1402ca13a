#include "train/cli/profile_table.h"

#include <algorithm>
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

// "12.345   87 %", or blanks if there were no calls.
std::string cell(const std::string& op, const ProfileEntry& entry, double steps,
                 const Machine& machine) {
  if (entry.calls == 0) return std::string(18, ' ');
  const double roof = roof_share(op, entry, machine);
  return fmt::format("{:>11.3f}{:>7}", 1000 * entry.seconds / steps,
                     roof > 0 ? fmt::format("{:.0f} %", 100 * roof) : "");
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
                                       const Machine& machine) {
  const double total = total_seconds(rows), per = static_cast<double>(steps);
  ProfileRow sum{"all", {}, {}, {}};
  std::vector<std::string> lines{fmt::format(
      "{:<30}{:>6}{:>11}{:>7}{:>11}{:>7}{:>11}{:>7}{:>9}{:>8}", "ms per step, and of the roof",
      "calls", "forward", "", "backward", "", "other", "", "MB", "share")};
  for (const ProfileRow& row : rows) {
    const int64_t calls = row.forward.calls + row.other.calls;
    lines.push_back(fmt::format(
        "{:<30}{:>6.0f}{}{}{}{:>9.1f}{:>6.1f} %", row.name, static_cast<double>(calls) / per,
        cell(row.name, row.forward, per, machine), cell(row.name, row.backward, per, machine),
        cell(row.name, row.other, per, machine), bytes_of(row) / per / 1e6,
        100 * row.seconds() / total));
    for (const auto phase : {&ProfileRow::forward, &ProfileRow::backward, &ProfileRow::other})
      (sum.*phase).seconds += (row.*phase).seconds;
  }
  lines.push_back(fmt::format("{:<30}{:>17.3f}{:>18.3f}{:>18.3f}", sum.name,
                              1000 * sum.forward.seconds / per, 1000 * sum.backward.seconds / per,
                              1000 * sum.other.seconds / per));
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
