// A profile as people read it, and as programs do.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autograd/inspect/machine.h"
#include "autograd/inspect/profiler.h"

namespace ink {

/// The share of the roof that `entry` reached: its FLOPs at the machine's rate, or its bytes at the
/// memory's, whichever takes longer, over the time it took. Work on what a cache holds can reach
/// more than 1. 0 where nothing was counted.
double roof_share(const ProfileEntry& entry, const Machine& machine);

/// One line an op: calls and milliseconds a step, forward, backward and other, each with its share
/// of the roof; the megabytes that it read and wrote.
std::vector<std::string> profile_table(const std::vector<ProfileRow>& rows, int64_t steps,
                                       const Machine& machine);

/// The same, an object an op: op, share, and for forward, backward and other calls, ms, bytes,
/// flops (a step) and roof.
nlohmann::ordered_json profile_json(const std::vector<ProfileRow>& rows, int64_t steps,
                                    const Machine& machine);

}  // namespace ink
