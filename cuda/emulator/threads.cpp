// The threads of a launch: blocks run one after the other, the threads of a block are fibers. A
// fiber yields where its thread must wait: at a block barrier, or at an operation of the whole
// warp. Until then it runs on, and a thread that never waits needs no switch.
//
// A warp drawn at random runs until all its lanes wait at a block barrier, so that a missing
// barrier shows as a wrong result. Shared memory is filled with NaN before each block. Three things
// that would hang or be undefined on a GPU are errors here: threads of a block that wait at
// different barriers, lanes that take part in different operations, and threads that leave while
// others wait.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
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

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

Position position;

namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = 128 * 1024;

struct Lane {
  enum State : uint8_t { fresh, ready, at_barrier, in_collective, done };
  State state = fresh;
  Collective kind{};
  Where where;
  class Fiber* fiber = nullptr;                  // while it waits
  std::vector<std::array<uintptr_t, 3>> copies;  // to, from, bytes; a group ends with {0, 0, 0}
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
  void* shared = nullptr;
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

std::string place(const Where& where) {
  std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

bool same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

// Releases all lanes of [first, first + count), if they wait for the same. `what` is for errors.
void release(int first, int count, Lane::State state, const char* what) {
  Block& b = block();
  const auto begin = b.lanes.begin() + first, end = begin + count;
  const Lane& one =
      *std::find_if(begin, end, [](const Lane& lane) { return lane.state != Lane::done; });
  for (auto lane = begin; lane != end; ++lane) {
    if (lane->state == state && lane->kind == one.kind && same_place(lane->where, one.where))
      continue;
    b.error = std::make_exception_ptr(ink::Error(
        std::string(b.op) + ": emulator: the threads of a " + what + " part: thread " +
        std::to_string(&one - b.lanes.data()) + " waits at " + place(one.where) + ", thread " +
        std::to_string(lane - b.lanes.begin()) +
        (lane->state == Lane::done ? std::string(" has left") : " at " + place(lane->where))));
    return;
  }
  for (auto lane = begin; lane != end; ++lane) lane->state = Lane::ready;
}

// Runs a warp until each lane is done or waits at a block barrier.
void run_warp(Warp& warp) {
  Block& b = block();
  b.warp = &warp;
  for (;;) {
    for (int i = warp.first; i < warp.first + warp.count && !b.error; ++i) {
      Lane& lane = b.lanes[static_cast<size_t>(i)];
      if (lane.state == Lane::ready) lane.fiber->resume();
    }
    while (warp.next_fresh < warp.count && !b.error) {
      if (b.idle.empty()) {
        b.fibers.push_back(std::make_unique<Fiber>());
        b.idle.push_back(b.fibers.back().get());
      }
      Fiber* fiber = b.idle.back();
      b.idle.pop_back();
      fiber->resume();
    }
    if (b.error) return;
    const auto in_collective = [&](const Lane& lane) { return lane.state == Lane::in_collective; };
    const auto begin = b.lanes.begin() + warp.first;
    if (std::none_of(begin, begin + warp.count, in_collective)) return;
    release(warp.first, warp.count, Lane::in_collective, "warp");
    if (b.error) return;
    ++warp.turn;
  }
}

// When an error stops the launch, unwinds the stacks of lanes that still wait.
void unwind() {
  Block& b = block();
  for (Lane& lane : b.lanes) {
    if (lane.state != Lane::at_barrier && lane.state != Lane::in_collective &&
        lane.state != Lane::ready)
      continue;
    lane.fiber->resume();
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
  for (;;) {
    std::shuffle(order.begin(), order.end(), b.random);
    for (const size_t w : order) {
      run_warp(b.warps[w]);
      if (b.error) return unwind();
    }
    const auto done = [](const Lane& lane) { return lane.state == Lane::done; };
    if (std::all_of(b.lanes.begin(), b.lanes.end(), done)) return;
    release(0, threads, Lane::at_barrier, "block");
    if (b.error) return unwind();
  }
}

}  // namespace

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
  Block& b = block();
  b.lanes[static_cast<size_t>(b.lane)].copies.push_back(
      {reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes});
}

void commit_copies() {
  Block& b = block();
  b.lanes[static_cast<size_t>(b.lane)].copies.push_back({0, 0, 0});
}

void finish_copies(int groups_left) {
  Block& b = block();
  auto& copies = b.lanes[static_cast<size_t>(b.lane)].copies;
  auto groups = std::count_if(copies.begin(), copies.end(), [](auto& c) { return c[0] == 0; });
  auto end = copies.begin();
  for (; groups > groups_left; ++end) {
    const auto [to, from, bytes] = *end;
    void* target = reinterpret_cast<void*>(to);
    if (to == 0) {
      --groups;
    } else if (from == 0) {
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
    const size_t count = size_t{blocks.x} * blocks.y * blocks.z;
    const bool backwards = b.random() % 2;  // no block may wait for another
    for (size_t i = 0; i < count && !b.error; ++i) {
      const size_t n = backwards ? count - 1 - i : i;
      const std::unique_ptr<void, decltype(&std::free)> shared(
          shared_bytes ? std::aligned_alloc(128, (shared_bytes + 127) / 128 * 128) : nullptr,
          &std::free);
      if (shared) std::memset(shared.get(), 0xff, shared_bytes);
      b.shared = shared.get();
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
