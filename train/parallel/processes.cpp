#include "train/parallel/processes.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "autograd/base/check.h"
#include "train/parallel/nccl.h"

namespace ink {
namespace {

// A whole number in the environment; 0 if there is none.
int64_t number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::max<int64_t>(0, std::strtol(text, nullptr, 10));
}

std::string host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown machine";
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Processes::timeout() {
  const char* text = std::getenv("INKLING_PROCESS_TIMEOUT");
  if (text == nullptr || *text == '\0') return 120;
  char* end = nullptr;
  const int64_t seconds = std::strtol(text, &end, 10);
  INK_CHECK(*end == '\0' && seconds > 0 && seconds < 10'000'000,
            "INKLING_PROCESS_TIMEOUT: expected seconds, such as 120, got '", text, "'");
  return static_cast<double>(seconds);
}

std::string Processes::name() const {
  return detail::joined({"process ", rank_, " of ", size_, " on ", host()});
}

// In a group of one, nothing is sent to anybody.
Processes::Transfer Processes::start_send(int64_t to, std::span<const std::byte>) {
  detail::fail({"processes: there is no process ", to, " to send to"});
}
Processes::Transfer Processes::start_receive(int64_t from, std::span<std::byte>) {
  detail::fail({"processes: there is no process ", from, " to receive from"});
}
Processes::Transfer Processes::start_gather(std::span<const std::byte> mine,
                                            std::span<std::byte> all, const std::vector<int>&,
                                            const std::vector<int>&) {
  std::copy(mine.begin(), mine.end(), all.begin());
  return 0;
}
Processes::Transfer Processes::start_broadcast(std::span<std::byte>) { return 0; }
bool Processes::is_done(Transfer) { return true; }
std::vector<int64_t> Processes::silent() { return {}; }
void Processes::abort(int code) { std::_Exit(code); }

void Processes::connect(Device device) {
  if (size_ > 1 && device.is_cuda() && !links_) links_ = connect_over_nccl(*this, device);
}
Processes::Transfer Processes::start_send(int64_t to, std::span<std::byte> bytes, Device device) {
  return device.is_cpu() ? start_send(to, bytes) : links_->start(to, bytes, true);
}
Processes::Transfer Processes::start_receive(int64_t from, std::span<std::byte> bytes,
                                             Device device) {
  return device.is_cpu() ? start_receive(from, bytes) : links_->start(from, bytes, false);
}
bool Processes::is_done(Transfer transfer, Device device) {
  return device.is_cpu() ? is_done(transfer) : links_->is_done(transfer);
}

// Yields at first, because a process may share its core with the one that it waits for; then it
// sleeps.
void Processes::wait(const std::function<bool(bool& moved)>& try_once, double patience) {
  double last = seconds_now();
  for (int64_t tries = 0;; ++tries) {
    bool moved = false;
    if (try_once(moved)) return;
    if (moved) {
      last = seconds_now(), tries = 0;
      continue;
    }
    if (tries < 2000) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(tries < 10000 ? 20 : 500));
    if (tries % 16 != 0) continue;
    answer();
    if (tell_interrupted && is_interrupted && seconds_now() - last > 0.3 && is_interrupted())
      std::exchange(tell_interrupted, {})();
    // One after the other, so that the first one to give up speaks for all.
    const double limit =
        patience * timeout() + 0.5 * static_cast<double>(std::min<int64_t>(rank_, 20));
    if (seconds_now() - last < limit) continue;
    std::string names;
    for (const int64_t rank : silent()) names += (names.empty() ? "" : ", ") + std::to_string(rank);
    detail::fail({"waited ", static_cast<int64_t>(limit), " s for other processes; ",
                  names.empty() ? "all of them still answer: one is slow (set "
                                  "INKLING_PROCESS_TIMEOUT to more seconds)"
                                : "no answer from process " + names});
  }
}

std::vector<std::string> Processes::gather(const std::string& mine) {
  const auto count = static_cast<size_t>(size_);
  std::vector<int64_t> lengths(count);
  std::vector<int> sizes(count, sizeof(int64_t)), starts(count);
  const auto collect = [&](std::span<const std::byte> bytes, std::span<std::byte> all) {
    for (size_t i = 1; i < count; ++i) starts[i] = starts[i - 1] + sizes[i - 1];
    const Transfer transfer = start_gather(bytes, all, sizes, starts);
    wait([&](bool&) { return is_done(transfer); });
  };
  const int64_t length = std::ssize(mine);
  collect(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)));
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    sizes[i] = static_cast<int>(lengths[i]);
    total += lengths[i];
  }
  INK_CHECK(total < int64_t{1} << 30, "processes: expected less than 1 GB to gather, got ", total);
  std::string all(static_cast<size_t>(total), '\0');
  collect(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> each(count);
  for (size_t i = 0; i < count; ++i)
    each[i] = all.substr(static_cast<size_t>(starts[i]), static_cast<size_t>(sizes[i]));
  return each;
}

void Processes::broadcast(std::span<std::byte> bytes, double patience) {
  const Transfer transfer = start_broadcast(bytes);
  wait([&](bool&) { return is_done(transfer); }, patience);
}

int64_t launched_processes() {
  // Slurm's own number is that of the step that srun started; SLURM_NTASKS is also there without.
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const int64_t size = number(variable); size > 0) return size;
  return 0;
}

int64_t launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "PMIX_RANK"})
    if (std::getenv(variable) != nullptr) return number(variable);
  return 0;
}

int64_t launched_local_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (std::getenv(variable) != nullptr) return number(variable);
  return 0;
}

int64_t processes_on_these_cores() {
  int64_t here =
      std::max<int64_t>({1, number("OMPI_COMM_WORLD_LOCAL_SIZE"), number("MPI_LOCALNRANKS")});
  int64_t all = sysconf(_SC_NPROCESSORS_ONLN);
  // Slurm names its tasks on this machine, and may give them fewer cores without binding any.
  if (const char* tasks = std::getenv("SLURM_GTIDS"); tasks != nullptr) {
    here = std::max(here, 1 + std::count(tasks, tasks + std::strlen(tasks), ','));
    if (const int64_t given = number("SLURM_CPUS_ON_NODE"); given > 0) all = std::min(all, given);
  }
  cpu_set_t allowed;
  if (all < 1 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return std::max<int64_t>(1, (here * CPU_COUNT(&allowed) + all - 1) / all);
}

}  // namespace ink
