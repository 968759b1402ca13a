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
#include <boost/config.hpp>
#undef BOOST_NO_CXX17_STD_INVOKE  // which Boost 1.74 says of libc++, and then takes std::result_of
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
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

constexpr size_t kStackBytes = 512 * 1024;  // g++ 12 gives the frame of a softmax over 130 kB
constexpr int kLanes = 32;

struct Copy {
  void* to;  // null at the end of a group
  const void* from;
  size_t bytes;
};

struct Lane {
  enum State : uint8_t { fresh, ready, at_barrier, at_phase, in_collective, done };
  State state = fresh;
  Collective kind{};
  Where where;
  class Fiber* fiber = nullptr;          // while it waits
  std::vector<Copy> copies;              // that are not published
  ptrdiff_t copied = 0;                  // of these, how many are complete
  const PhaseBarrier* phases = nullptr;  // at which it waits
};

// A stack on which threads run, one after the other.
class Fiber {
 public:
  Fiber();
  /// The scheduler calls it: goes on with the fiber's lane, or takes new lanes until one waits or
  /// none is left.
  void resume();
  /// Returns to the scheduler until that resumes the fiber.
  void give_way();

 private:
  void loop();
  context::fiber self_, scheduler_;
  const void* stack_ = nullptr;  // lowest address; for the sanitizer
  size_t stack_bytes_ = 0;
  void* fake_ = nullptr;
};

struct Warp {
  int first = 0;       // of its lanes
  int next_fresh = 0;  // of its lanes, from the first on
  unsigned turn = 0;   // which of the two buffers its next exchange uses
  unsigned syncs = 0;  // of its __syncwarp, how many are over
  std::array<std::array<unsigned char, 32 * kSlot>, 2> values;
};

struct Block {
  const std::function<void(void*)>* thread = nullptr;
  const char* op = "";
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  std::vector<int> copiers;  // of each 16 bytes: 1 + the thread whose unpublished copy they hold
  std::array<PhaseBarrier, 16> named;  // by number
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  Warp* warp = nullptr;    // that runs
  int lane = -1;           // that runs
  unsigned barriers = 0;   // of its __syncthreads, how many are over
  bool backwards = false;  // do a warp's lanes run from the last to the first?
  std::exception_ptr error;
  std::vector<Fiber*> idle;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::mt19937 random{12345};
};

Block& block = *new Block;  // one launch at a time
Lane& this_lane() { return block.lanes[static_cast<size_t>(block.lane)]; }
int in_turn(int lane) { return block.backwards ? kLanes - 1 - lane : lane; }

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
  block.lane = lane;
  const auto width = static_cast<int>(position.block_size.x);
  position.thread = dim3(static_cast<unsigned>(lane % width), 0, 0);
}

void Fiber::loop() {
  enter(nullptr, &scheduler_stack.stack, &scheduler_stack.bytes);
  for (;; give_way()) {
    Warp& warp = *block.warp;
    while (warp.next_fresh < kLanes && !block.error) {
      const int number = warp.first + in_turn(warp.next_fresh++);
      enter(number);
      block.lanes[static_cast<size_t>(number)].fiber = this;
      try {
        (*block.thread)(block.shared);
        finish_copies(0);
      } catch (const context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        if (!block.error) block.error = std::current_exception();
      }
      block.lanes[static_cast<size_t>(number)].state = Lane::done;
    }
    block.idle.push_back(this);
  }
}

Fiber* idle_fiber() {
  if (block.idle.empty()) {
    block.fibers.push_back(std::make_unique<Fiber>());
    return block.fibers.back().get();
  }
  Fiber* fiber = block.idle.back();
  block.idle.pop_back();
  return fiber;
}

// The calling lane waits in `state` until the scheduler finds it ready.
void wait(Lane::State state, Collective kind, Where where, const PhaseBarrier* phases = nullptr) {
  Lane& lane = this_lane();
  const int number = block.lane;
  lane.state = state;
  lane.kind = kind;
  lane.where = where;
  lane.phases = phases;
  lane.fiber->give_way();
  enter(number);
  lane.phases = nullptr;
  if (block.error) std::rethrow_exception(block.error);
}

std::string name_of(const PhaseBarrier* barrier) {
  for (size_t i = 0; i < block.named.size(); ++i)
    if (barrier == &block.named[i]) return "barrier " + std::to_string(i);
  return "the barrier at byte " + std::to_string(shared_address(barrier, sizeof *barrier));
}

std::string about(const Lane& lane) {
  std::string text = "thread " + std::to_string(&lane - block.lanes.data());
  if (lane.state == Lane::done) return text + " has left";
  text += " waits at " + place(lane.where);
  if (lane.state != Lane::at_phase) return text;
  return text + " (" + name_of(lane.phases) + " lacks " + std::to_string(lane.phases->left) +
         " of " + std::to_string(lane.phases->count) + " arrivals)";
}

// Releases all lanes of [first, first + count), if they wait for the same. `what` is for errors.
void release(int first, int count, Lane::State state, const char* what) {
  const auto begin = block.lanes.begin() + first, end = begin + count;
  const Lane& one =
      *std::find_if(begin, end, [](const Lane& lane) { return lane.state != Lane::done; });
  const auto other = std::find_if(begin, end, [&](const Lane& lane) {
    return lane.state != one.state || lane.kind != one.kind || lane.phases != one.phases ||
           lane.where.line != one.where.line ||
           (lane.where.file != one.where.file && std::strcmp(lane.where.file, one.where.file) != 0);
  });
  if (other == end && one.state == state) {
    for (auto lane = begin; lane != end; ++lane) lane->state = Lane::ready;
    return;
  }
  const bool part = one.state == state && other->state != Lane::at_phase;
  block.error = std::make_exception_ptr(ink::Error(
      in_launch() +
      (part ? std::string("the threads of a ") + what + " part: " : "a wait never ends: ") +
      about(one) + (other == end ? "" : ", " + about(*other))));
}

// Runs a warp until each lane is done or waits at a barrier. Returns whether a lane ran.
bool run_warp(Warp& warp) {
  block.warp = &warp;
  const auto begin = block.lanes.begin() + warp.first, end = begin + kLanes;
  const auto any = [&](Lane::State state) {
    return std::any_of(begin, end, [&](const Lane& lane) { return lane.state == state; });
  };
  for (bool ran = false;;) {
    bool now = false;
    const bool in_order = begin->kind >= Collective::product;  // whose lane 0 works for all
    for (int i = 0; i < kLanes && !block.error; ++i) {
      const auto lane = begin + (in_order ? i : in_turn(i));
      if (lane->state != Lane::ready && lane->state != Lane::fresh) continue;
      (lane->state == Lane::ready ? lane->fiber : idle_fiber())->resume();
      now = ran = true;
    }
    if (now && !block.error) continue;
    if (block.error || !any(Lane::in_collective) || any(Lane::at_phase)) return ran;
    release(warp.first, kLanes, Lane::in_collective, "warp");
    ++warp.turn;
    warp.syncs += begin->kind == Collective::sync;
    if (block.error || (begin->kind == Collective::late && block.random() % 2)) return true;
  }
}

void run_block(int threads) {
  block.lanes.assign(static_cast<size_t>(threads), Lane());
  block.warps.assign(static_cast<size_t>(threads / kLanes), Warp());
  for (size_t w = 0; w < block.warps.size(); ++w)
    block.warps[w].first = static_cast<int>(w) * kLanes;
  block.named.fill({});
  block.barriers = 0;
  const auto all = [&](Lane::State state) {
    return std::all_of(block.lanes.begin(), block.lanes.end(),
                       [&](const Lane& lane) { return lane.state == state; });
  };
  std::vector<size_t> order(block.warps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  while (!block.error && !all(Lane::done)) {
    std::shuffle(order.begin(), order.end(), block.random);
    bool ran = false;
    for (const size_t w : order) ran |= block.error || run_warp(block.warps[w]);
    if (ran && !all(Lane::at_barrier)) continue;
    release(0, threads, Lane::at_barrier, "block");
    ++block.barriers;
  }
  for (Lane& lane : block.lanes)  // unwinds the stacks of lanes that still wait
    if (lane.state != Lane::fresh && lane.state != Lane::done) lane.fiber->resume();
  end_block_of_products(block.error != nullptr);
}

// 1 + the thread whose unpublished copy is at an address, or 0.
int& copier(const void* to, size_t bytes) { return block.copiers[shared_address(to, bytes) / 16]; }

void check_started(const PhaseBarrier& phases) {
  INK_CHECK(phases.mark == PhaseBarrier::kMark, in_launch(), "a PhaseBarrier that was not started");
}

void arrive_at(PhaseBarrier& phases) {
  if (--phases.left > 0) return;
  phases.left = phases.count;
  phases.parity ^= 1;
  for (Lane& lane : block.lanes) {
    if (lane.phases != &phases) continue;
    INK_CHECK(lane.state == Lane::at_phase, in_launch(), "two phases of ", name_of(&phases),
              " end before a thread that waits for one goes on");
    lane.state = Lane::ready;
  }
}

}  // namespace

std::string in_launch() { return std::string(block.op) + ": emulator: "; }

std::string place(const Where& where) {
  std::string file = where.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line);
}

uint32_t shared_address(const void* pointer, size_t bytes) {
  const size_t at =
      reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(block.shared);
  INK_CHECK(at < block.shared_bytes && at + bytes <= block.shared_bytes, in_launch(),
            "an address that is not in the block's shared memory, or leaves it");
  return static_cast<uint32_t>(at);
}

const unsigned char* published(uint32_t address) {
  const unsigned char* at = block.shared + address;
  const int by = copier(at, 16);
  INK_CHECK(by == 0, in_launch(), "a product reads byte ", address,
            " of shared memory, to which thread ", by - 1,
            " copies, and has not published the copy");
  return at;
}

void publish_to_products() {
  Lane& lane = this_lane();
  const auto first = lane.copies.begin(), end = first + std::exchange(lane.copied, 0);
  for (auto copy = first; copy != end; ++copy)
    if (copy->to != nullptr) copier(copy->to, copy->bytes) = 0;
  lane.copies.erase(first, end);
}

void PhaseBarrier::start(unsigned arrivals) {
  shared_address(this, sizeof *this);
  INK_CHECK(mark != kMark, in_launch(), "a PhaseBarrier is started twice");
  count = left = static_cast<uint16_t>(arrivals);
  INK_CHECK(count > 0 && count == arrivals, in_launch(), "a PhaseBarrier of ", arrivals);
  parity = 0;
  mark = kMark;
}
void PhaseBarrier::arrive() {
  check_started(*this);
  arrive_at(*this);
}
bool PhaseBarrier::ended(unsigned of_parity) const {
  INK_CHECK(of_parity <= 1, in_launch(), "a phase of parity ", of_parity);
  check_started(*this);
  return parity != of_parity;
}
void PhaseBarrier::wait(unsigned of_parity, Where where) {
  if (!ended(of_parity)) emulator::wait(Lane::at_phase, Collective::sync, where, this);
}

void report(int number, int threads, Where where, bool stay) {
  std::array<int, 2> mine{number, threads};
  const unsigned char* all = exchange(Collective::sync, &mine, sizeof mine, where);
  PhaseBarrier& phases = block.named[static_cast<size_t>(number) % 16];
  if (phases.left == phases.count) phases.left = phases.count = static_cast<uint16_t>(threads);
  INK_CHECK(number > 0 && number < 16 && threads > 0 && threads % kLanes == 0 &&
                threads == phases.count && mine == from_lane<decltype(mine)>(all, 0),
            in_launch(), "barrier ", number, " of ", threads, " threads, at ", place(where),
            ": expected a number from 1 to 15, and whole warps, as all others");
  const uint16_t parity = phases.parity;
  arrive_at(phases);
  if (stay && phases.parity == parity) wait(Lane::at_phase, Collective::sync, where, &phases);
}

void block_barrier(Where where) { wait(Lane::at_barrier, Collective::sync, where); }

const unsigned char* exchange(Collective kind, const void* value, size_t bytes, Where where) {
  Warp& warp = *block.warp;
  auto& values = warp.values[warp.turn % 2];
  if (bytes > 0)
    std::memcpy(values.data() + static_cast<size_t>(block.lane - warp.first) * kSlot, value, bytes);
  wait(Lane::in_collective, kind, where);
  return values.data();
}

void copy_later(void* to, const void* from, size_t bytes) {
  INK_CHECK((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes == 0,
            in_launch(), "a copy of ", bytes, " bytes that is not aligned to them");
  copier(to, bytes) = 1 + block.lane;
  this_lane().copies.push_back({to, from, bytes});
}

void end_copies() { this_lane().copies.push_back({nullptr, nullptr, 0}); }

void finish_copies(int groups_left) {
  Lane& lane = this_lane();
  const auto first = lane.copies.begin() + lane.copied;
  auto groups = std::count_if(first, lane.copies.end(), [](auto& c) { return c.to == nullptr; });
  for (auto copy = first; groups > groups_left; ++copy, ++lane.copied) {
    if (copy->to == nullptr) {
      --groups;
    } else if (copy->from == nullptr) {
      std::memset(copy->to, 0, copy->bytes);
    } else {
      std::memcpy(copy->to, copy->from, copy->bytes);
    }
  }
}

// INKLING_EMULATED_CAPABILITY in the environment. Programs have code for those below 12.0.
int capability() {
  const char* set = std::getenv("INKLING_EMULATED_CAPABILITY");
  return set != nullptr ? std::atoi(set) : 90;
}

Moment moment() {
  const dim3 at = position.block, grid = position.grid_size;
  return {static_cast<unsigned>(block.lane), (at.z * grid.y + at.y) * grid.x + at.x, block.barriers,
          block.warp->syncs};
}

void run_blocks(const char* op, dim3 blocks, int threads, size_t shared_bytes,
                const std::function<void(void*)>& thread) {
  block.thread = &thread;
  block.op = op;
  block.error = nullptr;
  const size_t count = size_t{blocks.x} * blocks.y * blocks.z;
  block.backwards = block.random() % 2;  // no block may wait for another
  for (size_t i = 0; i < count && !block.error; ++i) {
    const size_t n = block.backwards ? count - 1 - i : i;
    void* memory = nullptr;
    if (posix_memalign(&memory, 1024, shared_bytes + 1) != 0) throw std::bad_alloc();
    const std::unique_ptr<void, decltype(&std::free)> shared(memory, &std::free);
    block.shared = static_cast<unsigned char*>(std::memset(memory, 0xff, shared_bytes));
    block.shared_bytes = shared_bytes;
    block.copiers.assign(shared_bytes / 16 + 1, 0);
    position.grid_size = blocks;
    position.block_size = dim3(static_cast<unsigned>(threads));
    position.block =
        dim3(static_cast<unsigned>(n % blocks.x), static_cast<unsigned>(n / blocks.x % blocks.y),
             static_cast<unsigned>(n / blocks.x / blocks.y));
    run_block(threads);
  }
  if (block.error) std::rethrow_exception(std::exchange(block.error, nullptr));
}

}  // namespace emulator
