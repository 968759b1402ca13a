// Processes that train one model together: an engine moves bytes between them, and we add.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/base/device.h"

namespace ink {

/// Bytes of a piece of gradients or weights that travels between CPUs: engines may need to know.
inline constexpr size_t kPieceBytes = 1 << 18;

/// How a GPU's memory travels to and from the neighbours of a process (nccl.h).
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  virtual size_t start(int64_t peer, std::span<std::byte> bytes, bool sends) = 0;
  virtual bool is_done(size_t transfer) = 0;
};

/// A group of processes, of which this one is number rank() of size(). This class is a group of
/// one; an engine (mpi.cpp) overrides what moves bytes. All processes of a group call gather and
/// broadcast in the same order. Only the thread that started the group calls any of it.
///
/// Nothing waits for ever: who has waited as long as timeout() throws an error that names the
/// processes that no longer answer.
class Processes {
 public:
  Processes() = default;
  virtual ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  bool leads() const { return rank_ == 0; }

  /// What each process gives, by rank; all get all of it.
  std::vector<std::string> gather(const std::string& mine);
  /// The share of `all` that is this process's work: consecutive ones.
  std::pair<int64_t, int64_t> share(int64_t all) const {
    return {all * rank_ / size_, all * (rank_ + 1) / size_};
  }
  /// Fills the shares of the others. False if not `whole`, what this process has, or another's.
  template <class T>
  bool gather_shares(std::vector<T>& all, bool whole) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto [begin, end] = share(std::ssize(all));
    auto* bytes = reinterpret_cast<char*>(all.data());
    std::string mine(1, static_cast<char>(whole));
    mine.append(bytes + begin * sizeof(T), static_cast<size_t>(end - begin) * sizeof(T));
    for (const std::string& one : gather(mine)) {
      whole = whole && one[0] != 0;
      bytes = std::copy(one.begin() + 1, one.end(), bytes);
    }
    return whole;
  }
  /// Bytes of process 0, which overwrite those of the others. As many in each. patience: how many
  /// times timeout() to wait.
  void broadcast(std::span<std::byte> bytes, double patience = 1);
  /// Returns when all processes are here.
  void barrier() { gather(""); }

  /// Seconds in which gradients and weights travelled, and those of them in which this process did
  /// nothing else: the rest was hidden behind its backward.
  struct Times {
    double travel = 0, wait = 0;
  };
  Times times;

  /// Bytes on their way; they must stay where they are until is_done().
  using Transfer = size_t;
  virtual Transfer start_send(int64_t to, std::span<const std::byte> bytes);
  /// Those that process `from` sent, in the order in which it did.
  virtual Transfer start_receive(int64_t from, std::span<std::byte> bytes);
  /// Forgets the transfer when it returns true.
  virtual bool is_done(Transfer transfer);
  /// The same for memory of any device. That of a GPU travels over NCCL, to and from the processes
  /// rank() - 1 and rank() + 1, and is sent when all that the device was given before is done.
  Transfer start_send(int64_t to, std::span<std::byte> bytes, Device device);
  Transfer start_receive(int64_t from, std::span<std::byte> bytes, Device device);
  bool is_done(Transfer transfer, Device device);
  /// All processes of the group call it at the same time, before such memory travels.
  void connect(Device device);

  /// Calls try_once until it returns true, and sleeps in between. try_once says in `moved` whether
  /// anything happened, from which timeout() counts.
  void wait(const std::function<bool(bool& moved)>& try_once, double patience = 1);

  /// Seconds: INKLING_PROCESS_TIMEOUT, or else 120.
  static double timeout();
  /// "process 2 of 4 on node1".
  std::string name() const;
  /// Called once when a wait that is_interrupted() takes long: a signal came, and what was waited
  /// for may never come.
  std::function<bool()> is_interrupted;
  std::function<void()> tell_interrupted;
  /// Did a signal come to any of the processes before the sums of the last step were complete?
  bool is_asked_to_stop = false;

  /// The processes that have not said yet that they wait, too, which takes up to two seconds.
  virtual std::vector<int64_t> silent();
  /// Lets others know that this process waits.
  virtual void answer() {}
  /// Ends this process and all others, now.
  [[noreturn]] virtual void abort(int code);

 protected:
  virtual Transfer start_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                const std::vector<int>& sizes, const std::vector<int>& starts);
  virtual Transfer start_broadcast(std::span<std::byte> bytes);

  int64_t rank_ = 0, size_ = 1;
  std::unique_ptr<DeviceLinks> links_;  // null until connect()
};

/// Seconds on a clock that nobody sets.
double seconds_now();
/// With how many processes mpirun or srun started this one, and its number; 0 if they did not.
int64_t launched_processes();
int64_t launched_rank();
/// Its number among those on its machine.
int64_t launched_local_rank();
/// How many of them share the cores that this one may use.
int64_t processes_on_these_cores();
/// The engine: "Open MPI 4.1.4"; empty if the program was built without one.
std::string processes_engine();
/// The group of processes that were started together by that engine; null without one.
std::unique_ptr<Processes> start_engine();

}  // namespace ink
