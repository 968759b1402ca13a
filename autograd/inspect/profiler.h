// Profiler: time, memory traffic and arithmetic of every op, forward and backward.
//
//   Profiler profiler;
//   const Observe observe(profiler);
//   profiler.start();
//   model.loss(x, y).backward();
//   for (const ProfileRow& row : profiler.rows()) std::cout << row.name << ...;
//
// An op's time is the time since the thread's last event: the op itself, and the little code before
// it. So the times of one thread add up to wall-clock time. Only ops that a graph records have
// rows: those that ran inside others count as part of these, and under NoGrad, or where no input
// requires grad, there are none. Ops that checkpoint runs again count as forward. Without an
// observer nothing here runs, and ops are no slower.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/observer.h"

namespace ink {

/// The work of an op, from its tensors and its formula. Bytes are the least that must be moved:
/// each operand once. A multiplication and an addition are two FLOPs. Only those of matrix
/// products, attention's included, are counted.
struct Work {
  double bytes_read = 0, bytes_written = 0, flops = 0;
  double bytes() const { return bytes_read + bytes_written; }
};

struct ProfileEntry {
  int64_t calls = 0;
  double seconds = 0;
  Work work;
};

/// One op; `other` is work outside graphs (note_work).
struct ProfileRow {
  std::string name;
  ProfileEntry forward, backward, other;
  double seconds() const { return forward.seconds + backward.seconds + other.seconds; }
};

class Profiler : public Observer {
 public:
  /// Starts the clock: what the calling thread did since its last event is not counted.
  void start();
  /// Keeps every event for the trace, too (or stops keeping them): about 100 bytes each.
  void trace(bool on) { tracing_ = on; }
  /// Adds a span to the trace, from start() until now: "step 3".
  void span(const std::string& name);
  /// Groups the trace's events by `scope(node)`, a path such as "h.0.mlp": each part of it is a
  /// span around its events. It is called when the op, or its vjp, has run.
  void group_by(std::function<std::string(const Node& node)> scope) { scope_ = std::move(scope); }

  /// All recorded ops so far, those with the longest times first. "sum gradients" is the walk's own
  /// work.
  std::vector<ProfileRow> rows() const;
  /// Writes the kept events in Chrome's trace format, a JSON array, which Perfetto shows. Times are
  /// in microseconds since the profiler was made. The file appears whole or not at all.
  void save_trace(const std::filesystem::path& file) const;

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override;
  void work(const char* name, const std::vector<Tensor>& read,
            const std::vector<Tensor>& written) override;
  void before_vjp(const Node& node) override;
  void after_vjp(const Node& node, const Grads& input_grads) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Thread {
    int number;
    Clock::time_point last;  // its last event
  };
  struct Event {
    std::string name;
    const char* phase;
    int thread;
    Clock::time_point begin, end;
    Work work;
    std::string scope;
  };

  /// Adds the time since the calling thread's last event to an entry. node: of the op, if it has
  /// one.
  void book(const char* name, ProfileEntry ProfileRow::*phase, const Work& work,
            const Node* node = nullptr);
  Thread& calling_thread();
  std::vector<Event> spans() const;

  mutable std::mutex mutex_;
  const Clock::time_point made_ = Clock::now();
  Clock::time_point start_ = made_;  // when the clock was last started
  Clock::time_point began_ = made_;  // the same, but only by start()
  std::unordered_map<std::thread::id, Thread> threads_;
  std::map<std::string, ProfileRow, std::less<>> rows_;
  std::unordered_map<uint64_t, Work> backward_;  // by Node::order, of nodes not walked yet
  bool tracing_ = false;
  std::vector<Event> events_, steps_;
  std::function<std::string(const Node&)> scope_;
};

}  // namespace ink
