// The threads of a launch: blocks run one after the other, the threads of a block are fibers. A
// fiber yields where its thread must wait: at a block barrier, or at an operation of the whole
// warp. Until then it runs on, and a thread that never waits needs no switch.
//
// A warp drawn at random runs until all its lanes wait at barriers, so that a missing barrier shows
// as a wrong result. Shared memory is filled with NaN before each block. What would hang or be
// undefined on a GPU is an error here: waits that nothing ends, threads of a block that wait at
// different __syncthreads(), and lanes that take part in different operations.
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
  enum State : uint8_t { fresh, ready, at_barrier, at_phase, in_collective, done };
  State state = fresh;
  Collective kind{};
  Where where;
  class Fiber* fiber = nullptr;                  // while it waits
  std::vector<std::array<uintptr_t, 3>> copies;  // to, from, bytes; a group ends with {0, 0, 0}
  ptrdiff_t copied = 0;                          // of these, how many are complete
  const uint64_t* phases = nullptr;              // of the barrier for whose phase it waits
  std::string barrier;                           // its name
};

/// A barrier with phases, in 8 bytes. left: arrivals that the present phase lacks.
struct Phases {
  uint16_t count = 0, left = 0, parity = 0, mark = kMark;
  static constexpr uint16_t kMark = 0x5b1e;  // unlike fresh shared memory
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
  std::vector<uint16_t> copiers;  // of each 4 bytes: 1 + the thread whose unpublished copy they are
  std::array<uint64_t, 16> barriers;  // with numbers
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

struct {
  void* fake = nullptr;
  const void* stack = nullptr;
  size_t bytes = 0;
} scheduler_stack;
#if defined(__SANITIZE_ADDRESS__)
void leave(void** fake, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void enter(void* fake, const void** stack, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
#else
void leave(void**, const void*, size_t) {}
void enter(void*, const void**, size_t*) {}
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
  leave(&scheduler_stack.fake, stack_, stack_bytes_);
  self_ = std::move(self_).resume();
  enter(scheduler_stack.fake, nullptr, nullptr);
}

void Fiber::give_way() {
  leave(&fake_, scheduler_stack.stack, scheduler_stack.bytes);
  scheduler_ = std::move(scheduler_).resume();
  enter(fake_, &scheduler_stack.stack, &scheduler_stack.bytes);
}

void enter(int lane) {
  Block& b = block();
  b.lane = lane;
  const auto width = static_cast<int>(position.block_size.x);
  position.thread = dim3(static_cast<unsigned>(lane % width), 0, 0);
}

void Fiber::loop() {
  enter(nullptr, &scheduler_stack.stack, &scheduler_stack.bytes);
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
  Lane& lane = this_lane();
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

bool same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string about(const Lane& lane) {
  std::string text = "thread " + std::to_string(&lane - block().lanes.data());
  if (lane.state == Lane::done) return text + " has left";
  text += " waits at " + place(lane.where);
  if (lane.state != Lane::at_phase) return text;
  const auto phases = std::bit_cast<Phases>(*lane.phases);
  return text + " (" + lane.barrier + " lacks " + std::to_string(phases.left) + " of " +
         std::to_string(phases.count) + " arrivals)";
}

// Releases all lanes of [first, first + count), if they wait for the same. `what` is for errors.
void release(int first, int count, Lane::State state, const char* what) {
  Block& b = block();
  const auto begin = b.lanes.begin() + first, end = begin + count;
  const Lane& one =
      *std::find_if(begin, end, [](const Lane& lane) { return lane.state != Lane::done; });
  const auto other = std::find_if(begin, end, [&](const Lane& lane) {
    return lane.state != one.state || lane.kind != one.kind || !same_place(lane.where, one.where);
  });
  if (other == end && one.state == state) {
    for (auto lane = begin; lane != end; ++lane) lane->state = Lane::ready;
    return;
  }
  const bool part = one.state == state && other->state != Lane::at_phase;
  b.error = std::make_exception_ptr(ink::Error(
      std::string(b.op) + ": emulator: " +
      (part ? std::string("the threads of a ") + what + " part: " : "a wait never ends: ") +
      about(one) + (other == end ? "" : ", " + about(*other))));
}

// Runs a warp until each lane is done or waits at a barrier. Returns whether a lane ran.
bool run_warp(Warp& warp) {
  Block& b = block();
  b.warp = &warp;
  const auto begin = b.lanes.begin() + warp.first, end = begin + warp.count;
  for (bool ran = false;;) {
    const auto any = [&](Lane::State state) {
      return std::any_of(begin, end, [&](const Lane& lane) { return lane.state == state; });
    };
    while (any(Lane::ready) || any(Lane::fresh)) {
      ran = true;
      for (auto lane = begin; lane != end && !b.error; ++lane)
        if (lane->state == Lane::ready) lane->fiber->resume();
      while (warp.next_fresh < warp.count && !b.error) {
        if (b.idle.empty()) {
          b.fibers.push_back(std::make_unique<Fiber>());
          b.idle.push_back(b.fibers.back().get());
        }
        Fiber* fiber = b.idle.back();
        b.idle.pop_back();
        fiber->resume();
      }
      if (b.error) return true;
    }
    if (!any(Lane::in_collective) || any(Lane::at_phase)) return ran;
    release(warp.first, warp.count, Lane::in_collective, "warp");
    if (b.error) return true;
    ++warp.turn;
    if (begin->kind == Collective::late && b.random() % 2) return true;
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
  b.barriers.fill(std::bit_cast<uint64_t>(Phases{}));
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

// The place of `bytes` bytes in shared memory.
size_t offset(const void* at, size_t bytes) {
  const Block& b = block();
  const size_t from = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(b.shared);
  if (from >= b.shared_bytes || from + bytes > b.shared_bytes)
    fail("an address that is not in the block's shared memory, or leaves it");
  return from;
}

// Notes whose unpublished copy some bytes are.
void mark(uintptr_t to, size_t bytes, int copier) {
  const size_t first = offset(reinterpret_cast<void*>(to), bytes) / 4;
  std::fill_n(&block().copiers[first], bytes / 4, static_cast<uint16_t>(copier));
}

Phases started(const uint64_t* state) {
  const auto phases = std::bit_cast<Phases>(*state);
  if (phases.mark != Phases::kMark) fail("a PhaseBarrier is used before it is started");
  return phases;
}

void wait_for_end(const uint64_t* state, const std::string& barrier, Where where) {
  Lane& lane = this_lane();
  lane.phases = state;
  lane.barrier = barrier;
  wait(Lane::at_phase, Collective::sync, where);
  lane.phases = nullptr;
}

// Arrives at a barrier with a number. Returns whether its phase has ended.
bool come(int number, int threads, Where where) {
  const std::array<int, 2> mine{number, threads};
  const unsigned char* all = exchange(Collective::sync, &mine, sizeof mine, where);
  uint64_t& state = block().barriers[static_cast<size_t>(number) % 16];
  auto phases = std::bit_cast<Phases>(state);
  if (phases.left == phases.count) phases.left = phases.count = static_cast<uint16_t>(threads);
  if (number < 1 || number > 15 || threads <= 0 || threads % 32 != 0 || threads != phases.count ||
      mine != from_lane<std::array<int, 2>>(all, 0))
    fail("barrier " + std::to_string(number) + " of " + std::to_string(threads) + " threads, at " +
         place(where) + ": expected a number from 1 to 15, and whole warps, as all others");
  state = std::bit_cast<uint64_t>(phases);
  arrive(&state);
  return std::bit_cast<Phases>(state).parity != phases.parity;
}

}  // namespace

void fail(const std::string& message) {
  throw ink::Error(std::string(block().op) + ": emulator: " + message);
}

std::string place(const Where& where) {
  std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

uint32_t shared_address(const void* pointer) {
  return kSharedStart + static_cast<uint32_t>(offset(pointer, 1));
}

const unsigned char* published(uint32_t address) {
  const Block& b = block();
  const unsigned char* at = b.shared + address - kSharedStart;
  const size_t first = offset(at, 16) / 4;
  for (size_t word = first; word < first + 4; ++word)
    if (const int copier = b.copiers[word])
      fail("a product reads byte " + std::to_string(4 * word) +
           " of shared memory, to which thread " + std::to_string(copier - 1) +
           " copies, and has not published the copy");
  return at;
}

void publish_to_products() {
  Lane& lane = this_lane();
  const auto first = lane.copies.begin();
  for (auto copy = first; copy != first + lane.copied; ++copy)
    if ((*copy)[0] != 0) mark((*copy)[0], (*copy)[2], 0);
  lane.copies.erase(first, first + std::exchange(lane.copied, 0));
}

void start_phases(uint64_t* state, unsigned arrivals) {
  offset(state, sizeof *state);
  if (std::bit_cast<Phases>(*state).mark == Phases::kMark) fail("a PhaseBarrier is started twice");
  if (arrivals == 0 || arrivals > block().lanes.size()) fail("a PhaseBarrier of no possible count");
  const auto count = static_cast<uint16_t>(arrivals);
  *state = std::bit_cast<uint64_t>(Phases{count, count});
}

void arrive(uint64_t* state) {
  Phases phases = started(state);
  if (--phases.left == 0) {
    phases = {phases.count, phases.count, static_cast<uint16_t>(1 - phases.parity)};
    for (Lane& lane : block().lanes) {
      if (lane.phases != state) continue;
      if (lane.state == Lane::ready)
        fail("two phases end before a thread that waits for one goes on");
      lane.state = Lane::ready;
    }
  }
  *state = std::bit_cast<uint64_t>(phases);
}

void wait_for_phase(uint64_t* state, unsigned parity, Where where) {
  const Phases phases = started(state);
  if (parity > 1) fail("a parity of " + std::to_string(parity));
  if (phases.parity != parity) return;
  wait_for_end(state, "the barrier at byte " + std::to_string(offset(state, 8)), where);
}

void report(int number, int threads, Where where) { come(number, threads, where); }
void meet(int number, int threads, Where where) {
  if (come(number, threads, where)) return;
  wait_for_end(&block().barriers[static_cast<size_t>(number)], "barrier " + std::to_string(number),
               where);
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
  if ((copy[0] | copy[1]) % bytes != 0)
    fail("a copy of " + std::to_string(bytes) + " bytes that is not aligned to them");
  mark(copy[0], bytes, 1 + block().lane);
  this_lane().copies.push_back(copy);
}

void commit_copies() { this_lane().copies.push_back({0, 0, 0}); }

void finish_copies(int groups_left) {
  Lane& lane = this_lane();
  const auto first = lane.copies.begin() + lane.copied;
  auto groups = std::count_if(first, lane.copies.end(), [](auto& c) { return c[0] == 0; });
  for (; groups > groups_left; ++lane.copied) {
    const auto [to, from, bytes] = lane.copies[static_cast<size_t>(lane.copied)];
    void* target = reinterpret_cast<void*>(to);
    if (to == 0) {
      --groups;
    } else if (from == 0) {
      std::memset(target, 0, bytes);
    } else {
      std::memcpy(target, reinterpret_cast<const void*>(from), bytes);
    }
  }
}

void launch(const char* op, dim3 blocks, int threads, size_t shared_bytes,
            std::function<void(void*)> thread) {
  on_device([op, blocks, threads, shared_bytes, thread = std::move(thread)] {
    Block& b = block();
    b.thread = &thread;
    b.op = op;
    b.error = nullptr;
    if (const size_t most = capability() >= 90 ? 227 * 1024 : 163 * 1024; shared_bytes > most)
      fail(std::to_string(shared_bytes) + " bytes of shared memory; a block may have " +
           std::to_string(most));
    const size_t count = size_t{blocks.x} * blocks.y * blocks.z;
    const bool backwards = b.random() % 2;  // no block may wait for another
    for (size_t i = 0; i < count && !b.error; ++i) {
      const size_t n = backwards ? count - 1 - i : i;
      void* memory = nullptr;
      if (posix_memalign(&memory, 1024, shared_bytes) != 0) throw std::bad_alloc();
      const std::unique_ptr<void, decltype(&std::free)> shared(memory, &std::free);
      b.shared = static_cast<unsigned char*>(std::memset(memory, 0xff, shared_bytes));
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
