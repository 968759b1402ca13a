#include "train/flow/flow.h"

#include <algorithm>
#include <string_view>

#include "autograd/memory/device_backend.h"

namespace ink {
namespace {

std::string parent(const std::string& module) {
  const size_t dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

// The innermost module around both; `a` itself if b is within it.
std::string common(const std::string& a, const std::string& b) {
  std::string around = a;
  while (!around.empty() && around != b && b.rfind(around + ".", 0) != 0) around = parent(around);
  return around;
}

// Does y hold the values of x, perhaps in another layout or dtype?
bool is_same_data(std::string_view name, const Tensor& x, const Tensor& y) {
  if (!x.defined()) return false;
  return x.storage() == y.storage() || name == "to" || name == "contiguous" || name == "clone";
}

}  // namespace

Flow::Flow(const Module& model) {
  name_parameters(model, "");
  start();
}

void Flow::name_parameters(const Module& module, const std::string& prefix) {
  for (const Field& field : const_cast<Module&>(module).fields()) {  // only read here
    if (field.module) name_parameters(*field.module, prefix + field.name + ".");
    if (field.parameter && field.parameter->slot())
      owners_[field.parameter->slot().get()].names.push_back(prefix + field.name);
  }
}

void Flow::start() {
  sources_.clear();
  ops_.clear();
  memory_.clear();
  for (auto& entry : owners_) entry.second.reads = 0;
  in_use_ = memory_stats(context().default_device).bytes_in_use;
  synchronize(context().default_device);
  last_ = Clock::now();
}

double Flow::lap() {
  synchronize(context().default_device);  // a GPU runs asynchronously
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
}

Flow::Source Flow::source(const Tensor& x) const {
  const auto& slot = x.slot();
  if (!slot) return {};
  if (!slot->node) return {-1, owners_.count(slot.get()) ? slot.get() : nullptr};
  const auto found = sources_.find(slot->node->order);
  return found == sources_.end() ? Source{} : found->second;
}

FlowOp::Input Flow::input(const Tensor& x) {
  const Source from = source(x);
  FlowOp::Input input{from.from, "", x.shape()};
  if (from.parameter) {
    Owner& owner = owners_.at(from.parameter);
    input.parameter = owner.names[std::min(owner.reads++, owner.names.size() - 1)];
  }
  return input;
}

void Flow::place(FlowOp& op) const {
  int64_t latest = -1;
  for (const FlowOp::Input& input : op.inputs) {
    latest = std::max(latest, input.from);
    if (input.parameter.empty()) continue;
    const std::string owner = parent(input.parameter);
    op.module = op.has_parameters ? common(op.module, owner) : owner;
    op.has_parameters = true;
  }
  if (op.has_parameters || latest < 0) return;
  const FlowOp& before = ops_[static_cast<size_t>(latest)];
  op.module = before.has_parameters ? parent(before.module) : before.module;
}

void Flow::op(const char* name, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& outputs, bool recorded) {
  if (!recorded || !outputs[0].slot()) return;
  const uint64_t order = outputs[0].slot()->node->order;
  for (const Tensor& x : inputs) {
    if (!is_same_data(name, x, outputs[0])) continue;
    sources_[order] = source(x);
    return;
  }
  FlowOp op;
  op.name = name;
  for (const Tensor& x : inputs)
    if (x.defined()) op.inputs.push_back(input(x));
  for (const Tensor& y : outputs) op.outputs.push_back(y.shape());
  op.dtype = outputs[0].dtype();
  place(op);
  op.forward_ms = lap();
  note_memory(op, outputs);
  sources_[order] = {std::ssize(ops_), nullptr};
  ops_.push_back(op);
  listed(ops_.back(), inputs, outputs);
  last_ = Clock::now();
}

// What is in use since the last event, and is neither an output nor freed, the op keeps for its
// vjp: its bytes_kept so far.
void Flow::note_memory(FlowOp& op, const std::vector<Tensor>& outputs) {
  const int64_t now = memory_stats(context().default_device).bytes_in_use;
  op.bytes_kept = now - in_use_ + forget_freed();
  in_use_ = now;
  for (const Tensor& y : outputs) {
    op.bytes += y.numel() * size_of(y.dtype());
    memory_.push_back({ops_.size(), y.storage(), block_bytes(y.storage()->bytes)});
    op.bytes_kept -= memory_.back().bytes;
  }
  op.bytes_kept = std::max<int64_t>(op.bytes_kept, 0);
}

int64_t Flow::forget_freed() {
  int64_t bytes = 0;
  std::erase_if(memory_, [&](const Memory& memory) {
    const bool freed = memory.storage.expired();
    bytes += freed ? memory.bytes : 0;
    return freed;
  });
  return bytes;
}

void Flow::note_kept() {
  forget_freed();
  for (const Memory& memory : memory_) ops_[memory.op].bytes_kept += memory.bytes;
  lap();
}

void Flow::after_vjp(const Node& node, const Grads&) {
  const double ms = lap();
  const auto found = sources_.find(node.order);
  if (found != sources_.end() && found->second.from >= 0)
    ops_[static_cast<size_t>(found->second.from)].backward_ms += ms;
}

}  // namespace ink
