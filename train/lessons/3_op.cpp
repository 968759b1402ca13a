// An op of your own: three ways to write one, and how to check it
//
// The op is squareplus, a smooth relu: y = (x + sqrt(x^2 + 4)) / 2. Afterwards you can add ops to
// the library from your own program, with gradients, and make them fast. All functions called here
// are public: any program that links inkling::autograd can hold this code.
#include <cmath>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/inspect/draw.h"
#include "autograd/inspect/gradcheck.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson3 : Notebook {
  // ---- 1. Written in ops that exist
  static Tensor squareplus_composed(const Tensor& x) { return (x + sqrt(square(x) + 4)) / 2; }
  Tensor x = tensor({-1.5, 0.0, 2.0}, f64).requires_grad_();

  void step_1() {
    // The gradient comes for free, because every op in it has one.
    print(squareplus_composed(x).detach());

    // But the graph holds five ops. Each of them reads and writes a whole tensor, and some keep
    // their input or output until backward.
    print(print_graph(squareplus_composed(x), {{"x", x}}));
  }

  // ---- 2. As one op with a gradient of its own
  //
  // The derivative is y^2 / (y^2 + 1), because x = y - 1 / y. `record` takes the name, the inputs,
  // the output and the vjp: a function from dy, the gradient of the output, to the gradients of the
  // inputs. What the vjp needs, it keeps as Saved, which notices if the memory is overwritten.
  static Tensor squareplus(const Tensor& x) {
    const Tensor y = squareplus_composed(x.detach());  // detached: these ops record nothing
    return record("squareplus", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
      return {dy * square(*y) / (square(*y) + 1)};
    });
  }

  void step_2() {
    // The graph now holds one op, which keeps its output.
    print(print_graph(squareplus(x), {{"x", x}}));

    // The vjp is written in public ops, so it can be recorded and differentiated itself. Second
    // derivatives need nothing more.
    const auto f = [](const std::vector<Tensor>& in) { return squareplus(in[0]); };
    print("gradient:", gradcheck(f, {x}).ok, "second derivative:", gradgradcheck(f, {x}).ok);
  }

  // ---- 3. As a fused op: one loop forward, one loop backward
  //
  // A kernel is a loop over numbers that knows nothing of graphs. for_float turns the dtype into a
  // C++ type, and parallel_for gives each thread a part of the loop.
  static void forward_kernel(Tensor& y, const Tensor& x) {
    for_float("squareplus", x.dtype(), [&]<class T>(T) {
      const T* in = x.data<T>();
      T* out = y.mutable_data<T>();
      parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = (in[i] + std::sqrt(in[i] * in[i] + 4)) / 2;
      });
    });
  }
  static void backward_kernel(Tensor& dx, const Tensor& dy, const Tensor& y) {
    for_float("squareplus", y.dtype(), [&]<class T>(T) {
      const T *g = dy.data<T>(), *a = y.data<T>();
      T* out = dx.mutable_data<T>();
      parallel_for(y.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = g[i] * a[i] * a[i] / (a[i] * a[i] + 1);
      });
    });
  }

  // The op calls the kernels and records. The loops expect elements side by side, so the op makes
  // tensors contiguous first. What a kernel computed has no history. So where backward itself will
  // be differentiated, which grad_enabled() tells, the vjp takes public ops instead of the kernel.
  static Tensor fused_squareplus(const Tensor& input) {
    INK_CHECK(!input.device().is_cuda(), "squareplus: expected a tensor on the CPU");
    const Tensor x = input.contiguous();
    Tensor y = empty_like(x);
    forward_kernel(y, x);
    return record("fused_squareplus", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
      if (grad_enabled()) return {dy * square(*y) / (square(*y) + 1)};
      Tensor dx = empty_like(dy);
      backward_kernel(dx, dy.contiguous(), *y);
      return {dx};
    });
  }

  void step_3() {
    manual_seed(1);
    const Tensor large = randn({40, 50}, f64);
    print("equal to the definition:",
          allclose(fused_squareplus(large), squareplus_composed(large)));

    // The check passes it a transpose, because loops over memory are where strides are forgotten.
    const auto f = [](const std::vector<Tensor>& in) { return fused_squareplus(in[0].T()); };
    const Tensor matrix = randn({3, 4}, f64).requires_grad_();
    print("gradient:", gradcheck(f, {matrix}).ok,
          "second derivative:", gradgradcheck(f, {matrix}).ok);

    // To try: leave out the line with grad_enabled, then contiguous(), and see which check notices.
    // Then write the op y = a b + c of three tensors that broadcast. Its vjp returns three
    // gradients, and sum_to brings each back to the shape of its input.
  }
};

}  // namespace

Lesson lesson_3() {
  using N = Lesson3;
  return lesson<N>("3_op", {&N::step_1, &N::step_2, &N::step_3});
}

}  // namespace ink
