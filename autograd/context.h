// Context: what a thread runs under. One thread-local value, inherited by worker threads by copy
// and restored by checkpoint's recomputation.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/device.h"
#include "autograd/dtype.h"

namespace ink {

class Observer;  // graph.h

/// Where a run stands in its random streams: dropout and sampling are pure functions of this and
/// the element's index.
struct RandomPosition {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t micro_batch = 0;
  uint64_t call = 0;       // counts the draws within a step
  uint64_t first_row = 0;  // where dimension 0 of what is drawn for starts in the whole batch, when
                           // the batch is split over threads
};

struct Context {
  bool grad_enabled = true;          // record a graph? (NoGrad)
  bool composed = false;             // run fused ops as their composed twins? (Composed)
  DType default_dtype = DType::f32;  // of the factories and of floating literals
  Device default_device;
  RandomPosition random;
  std::vector<Observer*> observers;  // told of every record and every vjp
};

/// The calling thread's context.
Context& context();

/// Restores the context that was in force at its construction; optionally enters another one.
class ContextGuard {
 public:
  ContextGuard() : saved_(context()) {}
  explicit ContextGuard(const Context& entered) : saved_(context()) { context() = entered; }
  ~ContextGuard() { context() = saved_; }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  Context saved_;
};

/// While it lives one flag of the context has another value.
class FlagGuard {
 public:
  FlagGuard(bool Context::*flag, bool value) : flag_(flag), saved_(context().*flag) {
    context().*flag_ = value;
  }
  ~FlagGuard() { context().*flag_ = saved_; }
  FlagGuard(const FlagGuard&) = delete;
  FlagGuard& operator=(const FlagGuard&) = delete;

 private:
  bool Context::*flag_;
  bool saved_;
};

/// While it lives no graph is recorded, and in-place writes are plain memory.
struct NoGrad : FlagGuard {
  NoGrad() : FlagGuard(&Context::grad_enabled, false) {}
};
/// While it lives graphs are recorded again, inside a NoGrad.
struct EnableGrad : FlagGuard {
  EnableGrad() : FlagGuard(&Context::grad_enabled, true) {}
};
/// While it lives every fused op runs as its composed twin: the same numbers within rounding,
/// written out of basic ops.
struct Composed : FlagGuard {
  Composed() : FlagGuard(&Context::composed, true) {}
};

inline bool grad_enabled() { return context().grad_enabled; }
inline bool composed() { return context().composed; }

}  // namespace ink
