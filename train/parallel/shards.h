// The optimizer's work, divided among processes: each updates its rows of the weights, and holds
// their moments alone (ZeRO stage 1: Rajbhandari et al. 2020).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "autograd/tensor.h"
#include "train/parallel/processes.h"

namespace ink {

/// What the update of a parameter costs.
struct UpdateCost {
  bool by_rows = true;  ///< may processes divide its rows?
  double element = 1;   ///< of one, beside those of other parameters
};

class Shards {
 public:
  using CostOf = std::function<UpdateCost(const std::string& name, const Tensor& value)>;
  /// parameters: f32 leaves on one device that require grad, in the order in which sums of
  /// gradients travel (sum.h). Each process gets consecutive rows of all of them, of about the same
  /// cost. updated: the same in the optimizer's order. Throws if there are too few for a process.
  Shards(const NamedTensors& parameters, const NamedTensors& updated, Processes& processes,
         const CostOf& cost);

  /// The rows of this process, as leaves on the memory of the parameters, under their names, in the
  /// order of `updated`: what its optimizer updates.
  const NamedTensors& own() const { return own_; }
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// By process, how many elements of the parameters, from the first, it needs the gradients of;
  /// none: of all. starts: of each in the sum of gradients, and the end.
  std::vector<int64_t> ends(const std::vector<int64_t>& starts) const;

  /// Moves the parameters' gradients to own(). Returns the norm of all gradients, f64 (), with the
  /// bits that one process has. All processes call it together, like the three below.
  Tensor take_gradients();
  /// Each process gets the rows that the others have updated.
  void share_values();
  /// Fills `whole`, the state of an optimizer of all parameters, on the CPU, at process 0, from the
  /// states of own()'s optimizers; those of other processes are empty.
  void gather_state(const NamedTensors& own_state, const NamedTensors& whole);
  /// This process's part of such a state.
  NamedTensors own_part(const NamedTensors& whole) const;

 private:
  struct Rows {  // of one parameter
    std::string name;
    Tensor value;
    std::vector<int64_t> cuts;  // process k has rows [cuts[k], cuts[k + 1])
    int64_t row = 1;            // elements

    int64_t begin(int64_t process) const { return cuts[static_cast<size_t>(process)]; }
    int64_t end(int64_t process) const { return cuts[static_cast<size_t>(process) + 1]; }
    /// The rows of a tensor of this shape.
    Tensor of(const Tensor& x, int64_t process) const;
    int64_t owner(int64_t element) const;
  };
  const Rows* find(const std::string& state_name) const;
  std::vector<std::span<std::byte>> values_of(int64_t process);

  Processes& processes_;
  const Device device_;
  std::vector<Rows> all_;        // in the order in which sums travel
  std::vector<size_t> updated_;  // places in all_, in the optimizer's order
  std::vector<Tensor> parameters_;
  NamedTensors own_;
};

}  // namespace ink
