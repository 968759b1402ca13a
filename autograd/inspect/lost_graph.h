// Where a function leaves its graph: what gradcheck says when backward sees less than was computed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/engine/observer.h"

namespace ink {

/// Watches a function that is run from some leaves. Ops of it that ran on a detached tensor, or
/// under NoGrad, take its values out of the graph; so does a vjp that is to be differentiated and
/// is not written with ops that record.
class LostGraph : public Observer {
 public:
  explicit LostGraph(const std::vector<Tensor>& leaves);

  /// Where values last left the graph; empty if they never did. "mul (2, 3), which has ..."
  const std::string& last() const { return vjp_.empty() ? last_ : vjp_; }
  /// Where values left the graph and came back as a constant of an op; empty if they never did.
  const std::string& constant() const { return vjp_.empty() ? constant_ : vjp_; }

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override;
  void after_vjp(const Node& node, const Grads& input_grads) override;

 private:
  // What is known of a memory: in the graph, or out of it because of an op.
  struct Seen {
    std::shared_ptr<Storage> memory;  // held, so that no other memory has its address
    std::string left_at;              // empty: it is in the graph
  };
  void note(const Tensor& x, const std::string& left_at);

  std::map<const Storage*, Seen> seen_;
  std::string last_, constant_, vjp_;
};

}  // namespace ink
