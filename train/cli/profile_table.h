// A profile as a table for people, and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/inspect/machine.h"
#include "autograd/inspect/profiler.h"

namespace ink {

/// The share of the roofline that the op reached. This is the least time of its FLOPs on the unit
/// that it runs on, or of its bytes through the caches, whichever is longer, divided by its
/// measured time. 0 if no FLOPs or bytes were counted.
double roof_share(std::string_view op, const ProfileEntry& entry, const Machine& machine);

/// One line per op: calls and milliseconds per step, forward, backward and other, each with its
/// share of the roofline; and the megabytes that the op read and wrote. Where a line has more than
/// `columns`, columns are left out: megabytes, calls, other, the shares of the roofline, backward.
std::vector<std::string> profile_table(const std::vector<ProfileRow>& rows, int64_t steps,
                                       const Machine& machine, size_t columns = std::string::npos);

/// The same, one object per op: op, share, and for forward, backward and other: calls, ms, bytes,
/// flops (per step) and roof.
nlohmann::ordered_json profile_json(const std::vector<ProfileRow>& rows, int64_t steps,
                                    const Machine& machine);

}  // namespace ink
