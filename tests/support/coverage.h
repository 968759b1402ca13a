// Which ops entered a graph during the tests, and which of them are gradient-checked by a row of
// train/cases/op_cases.cpp.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"

namespace ink {

/// Notes every (op, dtype, inputs given) that record puts into a graph. A key counts as checked
/// when the row in work, set by test_ops.cpp, is the op's own. "cross_entropy.none" is a row of
/// the op cross_entropy.
class Coverage : public Observer {
 public:
  static Coverage& instance();
  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override;
  /// The row whose checks run now; empty outside of test_ops.
  void enter_row(const std::string& name);
  /// Appends "seen KEY" and "checked KEY" lines to the file that INKLING_COVERAGE names, if any.
  /// op_coverage reads them.
  void write() const;

 private:
  std::string row_;
  std::set<std::string> seen_, checked_;
};

}  // namespace ink
