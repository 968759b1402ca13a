// Context: the settings of a thread, such as grad mode and default dtype. It is one thread-local
// value. Worker threads get a copy of it, and checkpoint restores it when it runs a section again.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/base/device.h"
#include "autograd/base/dtype.h"

namespace ink {

class Observer;                      // engine/observer.h
class Generator;                     // random/generator.h
struct GemmUnit;                     // gemm/units.h
enum class BernoulliRule : uint8_t;  // random/generator.h

/// Where a run stands in its random streams: dropout and sampling are pure functions of this and
/// the element's index.
struct RandomPosition {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t micro_batch = 0;
  uint64_t call = 0;  // counts the draws within a step
  /// The row of the whole batch at which this part of it starts, when threads share the batch.
  uint64_t first_row = 0;
  uint64_t rows = 0;  // of this part; 0: it is the whole batch
  /// The call of manual_seed that gave the thread this position; 0: the thread set it by itself.
  uint64_t given_by = 0;
  static std::atomic<uint64_t> seedings;  // the calls of manual_seed, counted from 1
  /// That of the next thread that sets none (random/generator.cpp).
  static RandomPosition next();
};

struct Context {
  bool grad_enabled = true;          // record a graph? (NoGrad)
  bool composed = false;             // run fused ops as their definitions? (Composed)
  bool recompute = false;            // compute cheap values again in backward? (Recompute)
  bool strict = false;               // compute each row as if it stood alone? (Strict)
  bool skip_init = false;            // give parameters no first values? (init::Skip)
  DType autocast = DType::f32;       // what fused ops round f32 operands to (autocast.h)
  DType default_dtype = DType::f32;  // of the factories and of floating literals
  Device default_device;
  RandomPosition random;
  Generator* generator = nullptr;        // default_generator(); null: the process's
  int64_t threads = 0;                   // max_threads(); 0: as many as OpenMP has
  const GemmUnit* first_unit = nullptr;  // of those that multiply; null: the environment says
  uint64_t capture = 0;  // the number of the capture that a Replay is making; 0: none
  std::optional<BernoulliRule> imitate_torch;  // do as PyTorch does, even where we differ?
  std::vector<Observer*> observers;            // called for every record and every vjp
};

/// The calling thread's context.
Context& context();

/// Restores a variable's value when it dies; may give the variable another value until then. The
/// value is moved away and back, so that who is going through a list goes on.
template <class T>
class Restore {
 public:
  [[nodiscard]] explicit Restore(T& variable) : variable_(variable), saved_(variable) {}
  [[nodiscard]] Restore(T& x, T now) : variable_(x), saved_(std::exchange(x, std::move(now))) {}
  ~Restore() { variable_ = std::move(saved_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T saved_;
};

/// Restores the calling thread's context; optionally enters another one.
struct ContextGuard : Restore<Context> {
  [[nodiscard]] ContextGuard() : Restore(context()) {}
  [[nodiscard]] explicit ContextGuard(const Context& entered) : Restore(context(), entered) {}
};

/// While it lives one field of the context has another value.
template <class T>
struct FieldGuard : Restore<T> {
  [[nodiscard]] FieldGuard(T Context::*field, T value) : Restore<T>(context().*field, value) {}
};
using FlagGuard = FieldGuard<bool>;
/// While it lives, the flag has this value.
template <bool Context::*flag, bool value>
struct SetFlag : FlagGuard {
  [[nodiscard]] SetFlag() : FlagGuard(flag, value) {}
};

/// While it lives no graph is recorded, and in-place writes are plain memory.
using NoGrad = SetFlag<&Context::grad_enabled, false>;
/// While it lives graphs are recorded again, inside a NoGrad.
using EnableGrad = SetFlag<&Context::grad_enabled, true>;
/// While it lives every fused op runs as its definition in basic ops: equal up to rounding.
using Composed = SetFlag<&Context::composed, true>;
/// While it lives, ops do not save the outputs of gelu, layer_norm and rms_norm for backward, which
/// computes them again from what those ops save anyway. The bits are the same; it takes less memory
/// and a few percent more time. Only the forward needs the guard.
using Recompute = SetFlag<&Context::recompute, true>;
/// While it lives, the CPU computes each row of a product and each query of attention (without a
/// mask and dropout) as if it stood alone. So a row's bits do not depend on how many there are:
/// tokens one by one through a cache give those of the whole text at once, in any batch. A product
/// of many rows takes as long as so many products of one. A GPU takes no notice.
using Strict = SetFlag<&Context::strict, true>;

/// Makes threads that wait for work sleep after about 0.1 ms. Call it in the first line of main:
/// OpenMP reads its environment when it is loaded, so this sets GOMP_SPINCOUNT (libgomp) and
/// KMP_BLOCKTIME (libomp) and starts the program over with the words of argv, which takes 3 ms.
/// Without it threads spin for 20 ms or more, and steps take many times as long when another
/// program wants a core. It does nothing if the environment says how to wait: OMP_WAIT_POLICY,
/// GOMP_SPINCOUNT or KMP_BLOCKTIME. (wait_policy.cpp)
void set_wait_policy(char** argv);

inline bool grad_enabled() { return context().grad_enabled; }
inline bool composed() { return context().composed; }

}  // namespace ink
