// Which op returns a wrong gradient: every op that a function runs is checked by itself.
//
//   OpsCheck check = check_ops([&] { return model.loss(x, y); });
//   for (const WrongGradient& wrong : check.wrong) std::cout << wrong << "\n";
//
// gradcheck and gradcheck_module do this when they fail, and otherwise check_vjps. It works for any
// op that entered a graph through record(), yours included.
#pragma once

#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "autograd/engine/graph.h"

namespace ink {

/// An op whose vjp does not return the derivative of what the op computed, throws, or writes or
/// reads what it must not.
struct WrongGradient {
  /// What the op's definition (Composed) does: it passes, so the op's own vjp, or a kernel that it
  /// calls, is wrong; it fails at another op; or the op has none.
  enum Definition { not_known, passes, fails, none };

  std::string op;       // its name, as record knows it
  Shape output;         // of its first output
  size_t input = 0;     // the first of its inputs whose gradient is wrong
  Shape shape;          // of that input
  double analytic = 0;  // that gradient times a random direction,
  double numeric = 0;   // and the same by differences
  std::string when;     // "where it adds to a sum": where alone it is wrong; empty: always
  std::string error;    // what the vjp throws there, or what it must not do
  Definition definition = not_known;
  std::string fails_at;  // the op in its definition that fails
};
std::ostream& operator<<(std::ostream& out, const WrongGradient& wrong);

struct OpsCheck {
  std::vector<WrongGradient> wrong;   // one an op that is wrong, in the order in which they ran
  std::set<std::string> ops;          // the names of all that entered the graph,
  std::set<std::string> definitions;  // and under Composed, where that was run
  int64_t checked = 0;                // inputs of ops
  int64_t unchecked = 0;              // those that could not be moved alone, or are not f64,
  std::set<std::string> not_checked;  // and the names of their ops
  std::string kink;      // the first op that has no derivative where it ran: "relu (2, 3), input 0"
  std::string coarse;    // an op whose values are those of f32, and move in steps
  std::string constant;  // one that returns a gradient for a leaf, and whose values do not move
};

/// Runs `forward` in f64 again and again. Each time it moves one input of one op a little, just
/// before that op runs, and compares the change of the op's outputs with what its vjp says.
/// `forward` must compute the same every time; it always starts in the caller's context, and draws
/// the same numbers from default_generator(). If an op fails, the same is done under Composed,
/// which tells whether the op's definition fails, too. Does what check_vjps does as well.
OpsCheck check_ops(const std::function<void()>& forward, uint64_t seed = 1);
/// Runs `forward` once, and the vjp of each op with upstream gradients as a walk may bring them:
/// sums to add to, gradients that are not contiguous, expanded or undefined. What the vjp returns
/// must be the same. It must write neither dy nor its op's tensors, and read no f64 or bool tensor
/// of these that it has not saved (Saved).
OpsCheck check_vjps(const std::function<void()>& forward, uint64_t seed = 1);

}  // namespace ink
