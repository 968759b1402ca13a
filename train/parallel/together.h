// A program of several processes: process 0 leads, and the others do what it does.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "train/parallel/processes.h"

namespace ink {

/// The group in which this program trains; of one process where run_together() is not at work.
Processes& processes();

/// Runs f() in the group of the processes that were started together, and then ends the group.
/// Returns what f() returns. Processes but the first have no standard output and no log.
///
/// An error before check_same() is thrown at process 0, whose process it names, and the others end
/// without a word. A later one is told with the process's name: that of process 0 between two
/// orders ends the group, and 1 is returned; any other one ends all processes at once.
/// is_interrupted: did a signal come?
int run_together(const std::function<int()>& f, const std::function<void(const std::string&)>& tell,
                 const std::function<bool()>& is_interrupted);
/// From here on, each process is a group of its own.
void part_company();

/// Throws unless this is the same program in all processes, with the same settings, numbers of
/// `arithmetic`, data and tensors; names the first thing that differs, and whose it is. Process 0
/// throws it; the others end. It is the first thing that processes do together.
void check_same(const nlohmann::json& settings, const nlohmann::json& arithmetic,
                const std::string& data, const std::vector<NamedTensors>& tensors);

/// What process 0 lets all processes do.
enum class Order : uint8_t { end, step, evaluate, evaluate_whole, save };

/// While it lives, the processes of the group work together. Process 0 gives the order; in others,
/// and in a group of one, it does nothing.
class Ordered {
 public:
  explicit Ordered(Order order);
  ~Ordered();
  Ordered(const Ordered&) = delete;
  Ordered& operator=(const Ordered&) = delete;
};
/// Processes but the first: waits for process 0's next order.
Order next_order();

}  // namespace ink
