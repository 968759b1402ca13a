// The ops of a run, drawn by the modules of the model: as text, and as a picture by Graphviz.
//
//   #  module, op               reads  output         kept  forward ms  backward ms
//      h.1                                         2.9 MB       0.912        1.814
//   9    ln_1 add_layer_norm    4, 8  2 (6, 160, 128)  ...
#pragma once

#include <string>
#include <vector>

#include "train/flow/flow.h"

namespace ink {

struct DrawOptions {
  /// Draws every block. Otherwise blocks that repeat the one before them are a line together.
  bool all = false;
  /// Draws this module alone ("h.1"), with the ops outside that it reads; empty: the whole.
  std::string module = {};
  /// The table's width. What does not fit is left out: the columns reads, output and kept, in this
  /// order, and the ends of long names.
  size_t columns = 106;
};

/// The ops as an indented table, with sums for each module. Ops are numbered
/// from 1 in the order in which they ran, and `reads` says which ones' outputs an op reads; inputs
/// that do not require grad are left out.
std::string print_flow(const std::vector<FlowOp>& ops, const DrawOptions& options = {});

/// The same for Graphviz: `dot -Tsvg` draws it. Modules are frames, ops boxes. Arrows carry the
/// shapes that their readers see.
std::string flow_to_dot(const std::vector<FlowOp>& ops, const DrawOptions& options = {});

}  // namespace ink
