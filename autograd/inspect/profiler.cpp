#include "autograd/inspect/profiler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "autograd/base/text.h"
#include "autograd/io/atomic_file.h"
#include "autograd/memory/device_backend.h"

namespace ink {
namespace {

// The bytes of the memory behind x; an expanded dimension does not add to them.
double bytes_of(const Tensor& x) {
  if (!x.defined()) return 0;
  int64_t bytes = size_of(x.dtype());
  for (int64_t d = 0; d < x.dim(); ++d) bytes *= x.strides()[d] == 0 ? 1 : x.shape()[d];
  return static_cast<double>(bytes);
}
double bytes_of(const std::vector<Tensor>& tensors) {
  double total = 0;
  for (const Tensor& x : tensors) total += bytes_of(x);
  return total;
}

bool is_view_of(const Tensor& y, const std::vector<Tensor>& inputs) {
  return y.is_view() && std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) {
           return x.defined() && x.storage() == y.storage();
         });
}

// Did this vjp allocate the gradient's memory? If so, nobody but these gradients holds it.
bool is_new(const Tensor& dx, const Grads& all) {
  return dx.storage().use_count() ==
         std::count_if(all.begin(), all.end(), [&](const Tensor& other) {
           return other.defined() && other.storage() == dx.storage();
         });
}

double wanted(const Tensor& x) { return x.defined() && x.requires_grad() ? 1 : 0; }
double length(const Tensor& x, int64_t dim) { return static_cast<double>(x.size(dim)); }
double numel_of(const Tensor& x) { return static_cast<double>(x.numel()); }

// FLOPs of an op's matrix products, forward and (for the gradients that are wanted) backward.
struct Flops {
  double forward = 0, backward = 0;
};

// Counts only pairs of a query and a key that have a weight (under the causal mask, if S >= T).
// Forward has two products. Backward has five, because it computes the scores again.
Flops attention_flops(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const double T = length(q, -2), S = length(k, -2), d = length(q, -1), dv = length(v, -1);
  const double visible = causal && S >= T ? S - (T - 1) / 2 : S;
  const double pairs = numel_of(q) / std::max(d, 1.0) * visible;
  return {2 * pairs * (d + dv), 2 * pairs * (3 * d + 2 * dv)};
}

Flops flops_of(std::string_view name, const std::vector<Tensor>& inputs, const Tensor& y) {
  if (name == "matmul") {
    const double product = 2 * numel_of(y) * length(inputs[0], -1);
    return {product, product * (wanted(inputs[0]) + wanted(inputs[1]))};
  }
  // x (..., in), weight (out, in), and ops that are fused to such a product.
  if (name.substr(0, 6) == "linear" || name == "gelu_linear") {
    const double product = 2 * numel_of(inputs[0]) * length(inputs[1], 0);
    const double gradients = product * (wanted(inputs[0]) + wanted(inputs[1]));
    if (name == "linear_cross_entropy") return {product + gradients, 0};  // all of it in forward
    return {product, gradients};
  }
  if (name == "scaled_dot_product_attention" || name == "causal_attention")
    return attention_flops(inputs[0], inputs[1], inputs[2], name == "causal_attention");
  return {};
}

Work forward_work(std::string_view name, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs) {
  Work work;
  for (const Tensor& y : outputs) work.bytes_written += is_view_of(y, inputs) ? 0 : bytes_of(y);
  if (work.bytes_written == 0) return work;
  // An embedding reads only the rows that it returns.
  work.bytes_read = name == "embedding" ? work.bytes_written : bytes_of(inputs);
  work.flops = flops_of(name, inputs, outputs[0]).forward;
  return work;
}

}  // namespace

void Profiler::start() {
  synchronize(context().default_device);
  const std::lock_guard lock(mutex_);
  start_ = began_ = Clock::now();
  backward_.clear();
}

Profiler::Thread& Profiler::calling_thread() {
  const Thread next{static_cast<int>(threads_.size()), {}};
  return threads_.try_emplace(std::this_thread::get_id(), next).first->second;
}

void Profiler::book(const char* name, ProfileEntry ProfileRow::*phase, const Work& work,
                    const Node* node) {
  synchronize(context().default_device);  // a GPU runs asynchronously
  const Clock::time_point now = Clock::now();
  Thread& thread = calling_thread();
  const Clock::time_point begin = std::max(thread.last, start_);
  thread.last = now;
  auto row = rows_.find(std::string_view(name));
  if (row == rows_.end()) row = rows_.emplace(name, ProfileRow{name, {}, {}, {}}).first;
  ProfileEntry& sum = row->second.*phase;
  ++sum.calls;
  sum.seconds += std::chrono::duration<double>(now - begin).count();
  sum.work.bytes_read += work.bytes_read;
  sum.work.bytes_written += work.bytes_written;
  sum.work.flops += work.flops;
  const char* label = phase == &ProfileRow::forward    ? "forward"
                      : phase == &ProfileRow::backward ? "backward"
                                                       : "other";
  if (!tracing_) return;
  const std::string scope = node != nullptr && scope_ ? scope_(*node) : "";
  events_.push_back({name, label, thread.number, begin, now, work, scope});
}

void Profiler::span(const std::string& name) {
  synchronize(context().default_device);
  const std::lock_guard lock(mutex_);
  steps_.push_back({name, "step", calling_thread().number, began_, Clock::now(), {}, ""});
}

// The parts of "h.0.mlp": h.0 and h.0.mlp. A number belongs to the list before it.
static std::vector<std::string> around(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size() && at != std::string::npos;) {
    at = path.find('.', at + 1);
    const bool numbered = at != std::string::npos && path[at + 1] >= '0' && path[at + 1] <= '9';
    if (!numbered) parts.push_back(path.substr(0, at));
  }
  return parts;
}

// The spans of modules, those around others first. Ops of no module (views) do not end one, and
// what is outside of graphs does.
std::vector<Profiler::Event> Profiler::spans() const {
  std::vector<Event> all = steps_;
  std::map<int, std::vector<size_t>> open;  // by thread: places in `all`, the outermost first
  std::map<int, const char*> phases;
  for (const Event& event : events_) {
    std::vector<size_t>& stack = open[event.thread];
    const bool same = std::exchange(phases[event.thread], event.phase) == event.phase;
    const bool inside = same && std::string_view(event.phase) != "other";
    std::vector<std::string> parts = around(event.scope);
    if (!inside) stack.clear();
    if (inside && parts.empty())
      for (const size_t i : stack) parts.push_back(all[i].name);
    size_t kept = 0;
    while (kept < stack.size() && kept < parts.size() && all[stack[kept]].name == parts[kept])
      ++kept;
    stack.resize(kept);
    for (size_t i = kept; i < parts.size(); ++i) {
      stack.push_back(all.size());
      all.push_back({parts[i], "module", event.thread, event.begin, event.end, {}, ""});
    }
    for (const size_t i : stack) all[i].end = event.end;
  }
  return all;
}

void Profiler::op(const char* name, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs, bool recorded) {
  if (!recorded) return;
  const std::lock_guard lock(mutex_);
  const Work forward = forward_work(name, inputs, outputs);
  // Backward reads what forward read, and the gradient of what forward wrote. Its writes are known
  // only when it has run.
  const Work backward{forward.bytes(), 0, flops_of(name, inputs, outputs[0]).backward};
  for (const Tensor& y : outputs) {
    if (y.slot() && y.slot()->node) backward_[y.slot()->node->order] = backward;
  }
  book(name, &ProfileRow::forward, forward,
       outputs[0].slot() ? outputs[0].slot()->node.get() : nullptr);
}

void Profiler::work(const char* name, const std::vector<Tensor>& read,
                    const std::vector<Tensor>& written) {
  const std::lock_guard lock(mutex_);
  book(name, &ProfileRow::other, {bytes_of(read), bytes_of(written), 0});
  start_ = Clock::now();  // other threads were waiting until now
}

void Profiler::before_vjp(const Node& node) {
  const std::lock_guard lock(mutex_);
  book("sum gradients", &ProfileRow::backward, {}, &node);
}

void Profiler::after_vjp(const Node& node, const Grads& input_grads) {
  const std::lock_guard lock(mutex_);
  Work work;
  if (const auto entry = backward_.extract(node.order)) work = entry.mapped();
  // A basic op may pass dy on unchanged, and linear_cross_entropy has its gradients from forward.
  const bool head = std::string_view(node.name) == "linear_cross_entropy";
  for (const Tensor& dx : input_grads) {
    if (dx.defined() && !head && is_new(dx, input_grads)) work.bytes_written += bytes_of(dx);
  }
  if (work.bytes_written == 0) work.bytes_read = 0;
  // An embedding's backward writes only the rows that were looked up.
  if (std::string_view(node.name) == "embedding") work.bytes_written = work.bytes_read;
  book(node.name, &ProfileRow::backward, work, &node);
}

std::vector<ProfileRow> Profiler::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<ProfileRow> rows;
  for (const auto& entry : rows_) rows.push_back(entry.second);
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.seconds() > b.seconds();
  });
  return rows;
}

void Profiler::save_trace(const std::filesystem::path& file) const {
  const std::lock_guard lock(mutex_);
  const auto microseconds = [](Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  TextStream json;
  json.precision(15);
  json << "[";
  for (const auto& entry : threads_) {
    const int number = entry.second.number;
    json << R"({"name":"thread_name","ph":"M","pid":1,"tid":)" << number
         << R"(,"args":{"name":"thread )" << number << "\"}},\n";
  }
  std::vector<Event> all = spans();
  all.insert(all.end(), events_.begin(), events_.end());
  for (const Event& event : all) {
    const std::string name =
        nlohmann::json(event.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    json << R"({"name":)" << name << R"(,"cat":")" << event.phase << R"(","ph":"X","pid":1,"tid":)"
         << event.thread << R"(,"ts":)" << microseconds(event.begin - made_) << R"(,"dur":)"
         << microseconds(event.end - event.begin) << R"(,"args":{"bytes_read":)"
         << event.work.bytes_read << R"(,"bytes_written":)" << event.work.bytes_written
         << R"(,"flops":)" << event.work.flops << "}},\n";
  }
  json << R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"inkling"}}])"
       << "\n";
  write_file(file, json.str());
}

}  // namespace ink
