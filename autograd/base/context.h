// Context: what a thread runs under. One thread-local value, inherited by worker threads by copy
// and restored by checkpoint's recomputation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/base/device.h"
#include "autograd/base/dtype.h"

namespace ink {

class Observer;  // engine/observer.h

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
};

/// Where PyTorch's CPU builds differ, and with them the masks of its dropout. Plain: two outputs of
/// the generator an element; so does PyTorch 2.15, on Intel processors too. Mkl: one output a call,
/// which seeds MKL's own MCG31m1 for all elements; so do older builds with MKL on an Intel
/// processor. The caller picks the one to follow; rule() of tests/golden/imitate_fixtures.py tells
/// which one a PyTorch follows.
enum class BernoulliRule { plain, mkl };

struct Context {
  bool grad_enabled = true;          // record a graph? (NoGrad)
  bool composed = false;             // run fused ops as their definitions? (Composed)
  bool recompute = false;            // compute cheap values again in backward? (Recompute)
  DType autocast = DType::f32;       // what fused ops round f32 operands to (Autocast)
  DType default_dtype = DType::f32;  // of the factories and of floating literals
  Device default_device;
  RandomPosition random;
  uint64_t capture = 0;  // the number of the Replay's capture that is under way; 0: none
  std::optional<BernoulliRule> imitate_torch;  // do as PyTorch does, even where we differ?
  std::vector<Observer*> observers;            // told of every record and every vjp
};

/// The calling thread's context.
Context& context();

/// Gives a variable its value back when it dies, and may give it another one until then.
template <class T>
class Restore {
 public:
  [[nodiscard]] explicit Restore(T& variable) : variable_(variable), saved_(variable) {}
  [[nodiscard]] Restore(T& variable, const T& value) : Restore(variable) { variable = value; }
  ~Restore() { variable_ = saved_; }
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

/// While it lives no graph is recorded, and in-place writes are plain memory.
struct NoGrad : FlagGuard {
  [[nodiscard]] NoGrad() : FlagGuard(&Context::grad_enabled, false) {}
};
/// While it lives graphs are recorded again, inside a NoGrad.
struct EnableGrad : FlagGuard {
  [[nodiscard]] EnableGrad() : FlagGuard(&Context::grad_enabled, true) {}
};
/// While it lives every fused op runs as its definition in basic ops: equal up to rounding.
struct Composed : FlagGuard {
  [[nodiscard]] Composed() : FlagGuard(&Context::composed, true) {}
};
/// While it lives, ops do not keep for backward what gelu, layer_norm or rms_norm gave them:
/// backward computes it again from what those keep anyway. The same bits in less memory, for a few
/// percent of time. Only the forward needs the guard.
struct Recompute : FlagGuard {
  [[nodiscard]] Recompute() : FlagGuard(&Context::recompute, true) {}
};
/// Mixed precision: while it lives, linear, gelu_linear, mlp and linear_cross_entropy round f32
/// operands to bf16, and layer_norm and rms_norm give bf16 for f32. Their sums are f32, and so are
/// gradients of f32 tensors: weights, moments, losses and the residual stream stay f32, what lies
/// between two linear layers is bf16. Every other op computes in the dtypes it is given (f32 + bf16
/// is f32). Only the forward needs the guard. Autocast(f32) switches an outer one off. Micikevicius
/// et al. 2018.
struct Autocast : FieldGuard<DType> {
  [[nodiscard]] explicit Autocast(DType dtype = DType::bf16)
      : FieldGuard(&Context::autocast, dtype) {
    INK_CHECK(dtype == DType::bf16 || dtype == DType::f32,
              "autocast: expected bfloat16 (or float32: none), got ", dtype);
  }
};
/// While it lives we follow PyTorch where we otherwise do better, so that the two can be compared
/// digit by digit: dropout draws its mask from default_generator(), as that build of PyTorch does
/// on a CPU (checkpoint, which runs a section twice, then draws twice), an attention row that may
/// attend to nothing is NaN, and sum and mean of f32 and f64 round as its CPU kernels do in one
/// thread (ops/torch_sum.cpp).
struct ImitateTorch : FieldGuard<std::optional<BernoulliRule>> {
  [[nodiscard]] explicit ImitateTorch(BernoulliRule dropout)
      : FieldGuard(&Context::imitate_torch, dropout) {}
};

inline bool grad_enabled() { return context().grad_enabled; }
inline bool composed() { return context().composed; }
/// What an operand of this dtype is rounded to by the ops that Autocast is about.
inline DType autocast(DType dtype) { return dtype == DType::f32 ? context().autocast : dtype; }

}  // namespace ink
