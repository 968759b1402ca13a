// The threads of a launch: blocks run one after the other, the threads of a block are fibers. A
// fiber yields where its thread must wait: at a block barrier, or at an operation of the whole
// warp. Until then it runs on, and a thread that never waits needs no switch.
//
// A warp drawn at random runs until all its lanes wait at a barrier, so that a missing barrier shows
// as a wrong result. Shared memory is filled with NaN before each block. What would hang or be
// undefined on a GPU is an error here: threads of a block that wait at different barriers, lanes
// that take part in different operations, threads that leave while others wait, and a wait that
// nothing ends.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "cuda/emulator/wgmma.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

Position position;

namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = 128 * 1024;

struct Lane {
  enum State : uint8_t { fresh, ready, at_barrier, at_number, at_phase, in_collective, done };
  State state = fresh;
  Collective kind{};
  Where where;
  class Fiber* fiber = nullptr;                  // while it waits
  std::vector<std::array<uintptr_t, 3>> copies;  // to, from, bytes; a group ends with {0, 0, 0}
  std::vector<std::array<uintptr_t, 3>> done_copies;  // and not published
  int number = 0;                                     // of the barrier at which it waits
  unsigned came = 0;                                  // to which numbers, a bit for each
  const uint64_t* phases = nullptr;                   // the barrier for whose phase it waits
  uint16_t phase = 0;
};

// What a PhaseBarrier's eight bytes hold.
struct Phases {
  uint16_t count, left, phase, mark;  // arrivals of a phase, and those still missing
  static constexpr uint16_t kMark = 0x5b1e;
};
Phases phases_at(const uint64_t* state) { return std::bit_cast<Phases>(*state); }

// A barrier with a number: how many threads have come, of how many.
struct Numbered {
  int came = 0, threads = 0;
};

// A stack on which threads run, one after the other.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  /// The scheduler calls it: goes on with the fiber's lane, or takes new lanes until one waits or
  /// none is left.
  void resume();
  /// Returns to the scheduler until that resumes the fiber.
  void give_way();

  int lane = -1;  // the lane that waits on this stack

 private:
  void loop();
  context::fiber self_, scheduler_;
  const void* stack_ = nullptr;  // lowest address; for the sanitizer
  size_t stack_bytes_ = 0;
  void* fake_ = nullptr;
};

struct Warp {
  int first = 0, count = 0;  // its lanes
  int next_fresh = 0;        // of the block's lanes
  unsigned turn = 0;         // which of the two buffers its next exchange uses
  std::array<std::array<unsigned char, 32 * kSlot>, 2> values;
};

struct Block {
  const std::function<void(void*)>* thread = nullptr;
  const char* op = "";
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  std::vector<uint16_t> copiers;  // 1 + the thread that copies to these 4 bytes, unpublished
  std::array<Numbered, 16> numbered;
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  Warp* warp = nullptr;  // that runs
  int lane = -1;         // that runs
  std::exception_ptr error;
  std::vector<Fiber*> idle;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::mt19937 random{12345};
};

Block& block() {
  static auto* only = new Block;  // one launch at a time
  return *only;
}
Lane& this_lane() { return block().lanes[static_cast<size_t>(block().lane)]; }

#if defined(__SANITIZE_ADDRESS__)
struct {
  void* fake = nullptr;
  const void* stack = nullptr;
  size_t bytes = 0;
} scheduler_stack;
void leave(void** fake, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void arrive(void* fake, const void** stack, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
#endif

Fiber::Fiber() {
  context::fixedsize_stack allocator(kStackBytes);
  const context::stack_context stack = allocator.allocate();
  stack_ = static_cast<const char*>(stack.sp) - stack.size;
  stack_bytes_ = stack.size;
  self_ = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                         allocator, [this](context::fiber&& from) {
                           scheduler_ = std::move(from);
                           loop();
                           return std::move(scheduler_);
                         });
}

Fiber::~Fiber() = default;

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  leave(&scheduler_stack.fake, stack_, stack_bytes_);
#endif
  self_ = std::move(self_).resume();
#if defined(__SANITIZE_ADDRESS__)
  arrive(scheduler_stack.fake, nullptr, nullptr);
#endif
}

void Fiber::give_way() {
#if defined(__SANITIZE_ADDRESS__)
  leave(&fake_, scheduler_stack.stack, scheduler_stack.bytes);
#endif
  scheduler_ = std::move(scheduler_).resume();
#if defined(__SANITIZE_ADDRESS__)
  arrive(fake_, &scheduler_stack.stack, &scheduler_stack.bytes);
#endif
}

void enter(int lane) {
  Block& b = block();
  b.lane = lane;
  const auto width = static_cast<int>(position.block_size.x);
  position.thread = dim3(static_cast<unsigned>(lane % width), 0, 0);
}

void Fiber::loop() {
#if defined(__SANITIZE_ADDRESS__)
  arrive(nullptr, &scheduler_stack.stack, &scheduler_stack.bytes);
#endif
  Block& b = block();
  for (;; give_way()) {
    Warp& warp = *b.warp;
    while (warp.next_fresh < warp.count && !b.error) {
      const int number = warp.first + warp.next_fresh++;
      enter(number);
      b.lanes[static_cast<size_t>(number)].fiber = this;
      try {
        (*b.thread)(b.shared);
        finish_copies(0);
      } catch (const context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        if (!b.error) b.error = std::current_exception();
      }
      b.lanes[static_cast<size_t>(number)].state = Lane::done;
    }
    lane = -1;
    b.idle.push_back(this);
  }
}

// The calling lane waits in `state` until the scheduler finds it ready.
void wait(Lane::State state, Collective kind, Where where) {
  Block& b = block();
  Lane& lane = b.lanes[static_cast<size_t>(b.lane)];
  const int number = b.lane;
  lane.state = state;
  lane.kind = kind;
  lane.where = where;
  Fiber* fiber = lane.fiber;
  fiber->lane = number;
  fiber->give_way();
  enter(number);
  if (b.error) std::rethrow_exception(b.error);
}

// Where a lane waits, and for what.
std::string wait_of(const Lane& lane) {
  if (lane.state == Lane::done) return " has left";
  std::string text = " waits at " + place(lane.where);
  if (lane.state == Lane::at_number) {
    const Numbered& barrier = block().numbered[static_cast<size_t>(lane.number)];
    text += " (barrier " + std::to_string(lane.number) + ", to which " +
            std::to_string(barrier.came) + " of " + std::to_string(barrier.threads) +
            " threads have come)";
  } else if (lane.state == Lane::at_phase) {
    text += " (phase " + std::to_string(lane.phase) + " of the barrier at byte " +
            std::to_string(shared_address(lane.phases) - kSharedStart) +
            " of shared memory, which lacks " + std::to_string(phases_at(lane.phases).left) +
            " arrivals)";
  }
  return text;
}

// Releases all lanes of [first, first + count), if they wait for the same. `what` is for errors.
void release(int first, int count, Lane::State state, const char* what) {
  Block& b = block();
  const auto begin = b.lanes.begin() + first, end = begin + count;
  const auto one = std::find_if(begin, end, [](const Lane& l) { return l.state != Lane::done; });
  const auto other = std::find_if(begin, end, [&](const Lane& l) {
    return l.state != one->state || l.kind != one->kind || !same_place(l.where, one->where);
  });
  if (other == end && one->state == state) {
    for (auto lane = begin; lane != end; ++lane) lane->state = Lane::ready;
    return;
  }
  const auto in_turn = [](auto lane) {
    return lane->state == Lane::at_number || lane->state == Lane::at_phase;
  };
  std::string text = std::string(b.op) + ": emulator: ";
  const auto add = [&](auto lane) {
    text += "thread " + std::to_string(lane - b.lanes.begin()) + wait_of(*lane);
  };
  if (in_turn(one) || (other != end && in_turn(other))) {
    text += "no thread can go on: ";
  } else {
    text += std::string("the threads of a ") + what + " part: ";
  }
  add(one);
  if (other != end) {
    text += ", ";
    add(other);
  }
  b.error = std::make_exception_ptr(ink::Error(text));
}

// Runs a warp until each lane is done or waits at a barrier. Returns whether a lane ran.
bool run_warp(Warp& warp) {
  Block& b = block();
  b.warp = &warp;
  const auto begin = b.lanes.begin() + warp.first, end = begin + warp.count;
  for (bool ran = false;;) {
    bool now = false;
    for (auto lane = begin; lane != end && !b.error; ++lane) {
      if (lane->state == Lane::at_phase && phases_at(lane->phases).phase != lane->phase)
        lane->state = Lane::ready;
      if (lane->state != Lane::ready) continue;
      lane->fiber->resume();
      now = true;
    }
    while (warp.next_fresh < warp.count && !b.error) {
      if (b.idle.empty()) {
        b.fibers.push_back(std::make_unique<Fiber>());
        b.idle.push_back(b.fibers.back().get());
      }
      Fiber* fiber = b.idle.back();
      b.idle.pop_back();
      fiber->resume();
      now = true;
    }
    if (b.error) return true;
    ran |= now;
    if (now) continue;
    const auto find = [&](Lane::State state) {
      return std::find_if(begin, end, [&](const Lane& lane) { return lane.state == state; });
    };
    const auto collective = find(Lane::in_collective);
    if (collective == end || find(Lane::at_phase) != end) return ran;
    const bool others_first = collective->kind == Collective::late && b.random() % 2;
    release(warp.first, warp.count, Lane::in_collective, "warp");
    ++warp.turn;
    if (b.error || others_first) return true;
    ran = true;
  }
}

// When an error stops the launch, unwinds the stacks of lanes that still wait.
void unwind() {
  Block& b = block();
  for (Lane& lane : b.lanes) {
    if (lane.state != Lane::fresh && lane.state != Lane::done) lane.fiber->resume();
  }
}

void run_block(int threads) {
  Block& b = block();
  b.lanes.assign(static_cast<size_t>(threads), Lane());
  b.warps.resize(static_cast<size_t>(threads / 32));
  for (int w = 0; w < threads / 32; ++w) {
    Warp& warp = b.warps[static_cast<size_t>(w)];
    warp.first = 32 * w;
    warp.count = 32;
    warp.next_fresh = 0;
    warp.turn = 0;
  }
  std::vector<size_t> order(b.warps.size());
  for (size_t w = 0; w < order.size(); ++w) order[w] = w;
  b.numbered = {};
  start_block_of_products(threads);
  for (;;) {
    std::shuffle(order.begin(), order.end(), b.random);
    bool ran = false;
    for (const size_t w : order) {
      ran |= run_warp(b.warps[w]);
      if (b.error) return unwind();
    }
    const auto all = [&](Lane::State state) {
      return std::all_of(b.lanes.begin(), b.lanes.end(),
                         [&](const Lane& lane) { return lane.state == state; });
    };
    if (all(Lane::done)) return end_block_of_products();
    if (!ran || all(Lane::at_barrier)) release(0, threads, Lane::at_barrier, "block");
    if (b.error) return unwind();
  }
}

// Counts the calling thread at a barrier with a number. Returns whether that opens it.
bool come(int number, int threads, Where where) {
  Block& b = block();
  const std::array<int, 2> mine{number, threads};
  const auto first =
      from_lane<std::array<int, 2>>(exchange(Collective::sync, &mine, sizeof mine, where), 0);
  const auto refuse = [&](const std::string& why) {
    fail("barrier " + std::to_string(number) + " of " + std::to_string(threads) + " threads, at " +
         place(where) + ": " + why);
  };
  if (mine != first) refuse("lanes of a warp come to different barriers");
  if (number < 1 || number > 15) refuse("expected a number from 1 to 15");
  if (threads <= 0 || threads % 32 != 0 || threads > static_cast<int>(b.lanes.size()))
    refuse("expected threads of whole warps of the block");
  Numbered& barrier = b.numbered[static_cast<size_t>(number)];
  if (barrier.came > 0 && barrier.threads != threads)
    refuse("others came for one of " + std::to_string(barrier.threads));
  const unsigned bit = 1u << number;
  if (this_lane().came & bit) refuse("a thread comes twice before it opens");
  this_lane().came |= bit;
  barrier.threads = threads;
  if (++barrier.came < threads) return false;
  barrier.came = 0;
  for (Lane& lane : b.lanes) {
    lane.came &= ~bit;
    if (lane.state == Lane::at_number && lane.number == number) lane.state = Lane::ready;
  }
  return true;
}

Phases started(const uint64_t* state) {
  shared_address(state);
  const Phases phases = phases_at(state);
  if (phases.mark != Phases::kMark) fail("a PhaseBarrier is used before it is started");
  return phases;
}

// The place in shared memory of `bytes` bytes.
size_t offset(const void* at, size_t bytes) {
  const Block& b = block();
  const size_t offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(b.shared);
  if (b.shared == nullptr || offset >= b.shared_bytes || offset + bytes > b.shared_bytes)
    fail("an address that is not in the block's shared memory, or leaves it");
  return offset;
}

// Notes whose unpublished copy four bytes hold.
void mark(uintptr_t to, size_t bytes, int copier) {
  Block& b = block();
  const size_t first = offset(reinterpret_cast<void*>(to), bytes) / 4;
  std::fill_n(b.copiers.begin() + static_cast<ptrdiff_t>(first), bytes / 4,
              static_cast<uint16_t>(copier));
}

}  // namespace

void fail(const std::string& message) {
  throw ink::Error(std::string(block().op) + ": emulator: " + message);
}

std::string place(const Where& where) {
  std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

bool same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

uint32_t shared_address(const void* pointer) {
  return kSharedStart + static_cast<uint32_t>(offset(pointer, 1));
}

const unsigned char* published(uint32_t address, uint32_t bytes) {
  const Block& b = block();
  const size_t at = address - size_t{kSharedStart};
  if (address < kSharedStart || at + bytes > b.shared_bytes)
    fail("a product reads outside of the block's shared memory");
  for (size_t word = at / 4; word < (at + bytes) / 4; ++word) {
    if (b.copiers[word] != 0)
      fail("a product reads byte " + std::to_string(4 * word) +
           " of shared memory, to which thread " + std::to_string(b.copiers[word] - 1) +
           " copies, without publish_to_products() by that");
  }
  return b.shared + at;
}

void publish_to_products() {
  for (const auto& copy : this_lane().done_copies) mark(copy[0], copy[2], 0);
  this_lane().done_copies.clear();
}

void start_phases(uint64_t* state, unsigned arrivals) {
  shared_address(state);
  if (phases_at(state).mark == Phases::kMark) fail("a PhaseBarrier is started twice");
  if (arrivals == 0 || arrivals > block().lanes.size())
    fail("a PhaseBarrier of " + std::to_string(arrivals) + " arrivals");
  const auto count = static_cast<uint16_t>(arrivals);
  *state = std::bit_cast<uint64_t>(Phases{count, count, 0, Phases::kMark});
}

void arrive(uint64_t* state) {
  Phases phases = started(state);
  if (--phases.left == 0) {
    phases.left = phases.count;
    ++phases.phase;
    for (const Lane& lane : block().lanes) {
      if (lane.state == Lane::at_phase && lane.phases == state &&
          lane.phase != static_cast<uint16_t>(phases.phase - 1))
        fail("two phases end while thread " + std::to_string(&lane - block().lanes.data()) +
             " waits for the first, at " + place(lane.where));
    }
  }
  *state = std::bit_cast<uint64_t>(phases);
}

void wait_for_phase(uint64_t* state, unsigned parity, Where where) {
  const Phases phases = started(state);
  if (parity > 1) fail("a phase of parity " + std::to_string(parity));
  if (phases.phase % 2 != parity) return;
  this_lane().phases = state;
  this_lane().phase = phases.phase;
  wait(Lane::at_phase, Collective::sync, where);
}

void report(int number, int threads, Where where) { come(number, threads, where); }
void meet(int number, int threads, Where where) {
  if (come(number, threads, where)) return;
  this_lane().number = number;
  wait(Lane::at_number, Collective::sync, where);
}

void block_barrier(Where where) { wait(Lane::at_barrier, Collective::sync, where); }

const unsigned char* exchange(Collective kind, const void* value, size_t bytes, Where where) {
  Block& b = block();
  Warp& warp = *b.warp;
  auto& values = warp.values[warp.turn % 2];
  if (bytes > 0)
    std::memcpy(values.data() + static_cast<size_t>(b.lane - warp.first) * kSlot, value, bytes);
  wait(Lane::in_collective, kind, where);
  return values.data();
}

void copy_later(void* to, const void* from, size_t bytes) {
  const std::array<uintptr_t, 3> copy{reinterpret_cast<uintptr_t>(to),
                                      reinterpret_cast<uintptr_t>(from), bytes};
  if (copy[0] % bytes != 0 || copy[1] % bytes != 0)
    fail("a copy of " + std::to_string(bytes) + " bytes that is not aligned to them");
  mark(copy[0], bytes, 1 + block().lane);
  this_lane().copies.push_back(copy);
}

void commit_copies() { this_lane().copies.push_back({0, 0, 0}); }

void finish_copies(int groups_left) {
  auto& copies = this_lane().copies;
  auto groups = std::count_if(copies.begin(), copies.end(), [](auto& c) { return c[0] == 0; });
  auto end = copies.begin();
  for (; groups > groups_left; ++end) {
    const auto [to, from, bytes] = *end;
    void* target = reinterpret_cast<void*>(to);
    if (to == 0) {
      --groups;
      continue;
    }
    mark(to, bytes, 1 + block().lane);
    this_lane().done_copies.push_back(*end);
    if (from == 0) {
      std::memset(target, 0, bytes);
    } else {
      std::memcpy(target, reinterpret_cast<const void*>(from), bytes);
    }
  }
  copies.erase(copies.begin(), end);
}

void launch(const char* op, dim3 blocks, int threads, size_t shared_bytes,
            std::function<void(void*)> thread) {
  on_device([op, blocks, threads, shared_bytes, thread = std::move(thread)] {
    Block& b = block();
    b.thread = &thread;
    b.op = op;
    b.error = nullptr;
    const size_t most = capability() >= 90 ? 227 * 1024 : 163 * 1024;
    if (shared_bytes > most)
      fail(std::to_string(shared_bytes) + " bytes of shared memory; a block may have " +
           std::to_string(most));
    const size_t count = size_t{blocks.x} * blocks.y * blocks.z;
    const bool backwards = b.random() % 2;  // no block may wait for another
    for (size_t i = 0; i < count && !b.error; ++i) {
      const size_t n = backwards ? count - 1 - i : i;
      void* memory = nullptr;
      if (shared_bytes > 0 && posix_memalign(&memory, 1024, shared_bytes) != 0)
        throw std::bad_alloc();
      const std::unique_ptr<void, decltype(&std::free)> shared(memory, &std::free);
      if (shared) std::memset(memory, 0xff, shared_bytes);
      b.shared = static_cast<unsigned char*>(memory);
      b.shared_bytes = shared_bytes;
      b.copiers.assign(shared_bytes / 4 + 1, 0);
      position.grid_size = blocks;
      position.block_size = dim3(static_cast<unsigned>(threads));
      position.block =
          dim3(static_cast<unsigned>(n % blocks.x), static_cast<unsigned>(n / blocks.x % blocks.y),
               static_cast<unsigned>(n / blocks.x / blocks.y));
      run_block(threads);
    }
    if (b.error) std::rethrow_exception(std::exchange(b.error, nullptr));
  });
}

}  // namespace emulator
