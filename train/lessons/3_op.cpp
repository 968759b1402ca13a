// An op of your own: three ways to write one
//
// The op is squareplus, a smooth relu: y = (x + sqrt(x^2 + 4)) / 2. Afterwards you can write an op
// with its gradient, make it fast, and check it. Nothing in the library has to change: any program
// that links inkling::autograd can hold this code.
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
    // their input or output until backward. print_graph shows the last op first, and its inputs
    // below it. (square is recorded as pow.)
    print(print_graph(squareplus_composed(x), {{"x", x}}));
  }

  // ---- 2. As one op with a gradient of its own
  //
  // Solved for x, the formula says x = y - 1 / y. So dx/dy = 1 + 1 / y^2, and the derivative that
  // we need is its reciprocal: dy/dx = y^2 / (y^2 + 1). `record` takes a name, the inputs, the
  // output and the vjp. In the code of a vjp, dy is the gradient of the output, and the vjp returns
  // the gradient of each input. It keeps y as a Saved. *y gives the tensor back, or throws if an op
  // such as add_ has written to it since.
  static Tensor squareplus(const Tensor& x) {
    const Tensor y = squareplus_composed(x.detach());  // detached: these ops record nothing
    return record("squareplus", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
      return {dy * square(*y) / (square(*y) + 1)};
    });
  }

  void step_2() {
    // The graph now holds one op, which keeps its output.
    print(print_graph(squareplus(x), {{"x", x}}));

    // This vjp consists of ops that have gradients themselves. So it can be differentiated, and
    // second derivatives need nothing more.
    const auto f = [](const std::vector<Tensor>& in) { return squareplus(in[0]); };
    print("gradient:", gradcheck(f, {x}).ok, "second derivative:", gradgradcheck(f, {x}).ok);
  }

  // ---- 3. As a fused op: one loop forward, one loop backward
  //
  // A fused op does in one loop what several ops do in several. Its loops are called kernels. They
  // compute numbers and know nothing of graphs. for_float calls its function with the C++ type T of
  // the dtype, and parallel_for gives each thread a part of the loop, at least kGrain elements.
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

  // The op calls the kernels and records. The kernels expect elements side by side in memory, so
  // the op makes tensors contiguous first. A kernel records nothing, so its result cannot be
  // differentiated. When second derivatives are asked for, grad_enabled() is true in the vjp, which
  // then uses ops instead of the kernel. INK_CHECK throws this message if its condition is false.
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
    print("equal to squareplus_composed:",
          allclose(fused_squareplus(large), squareplus_composed(large)));

    // The op is checked between two transposes, so that neither x nor dy is contiguous. A kernel
    // that forgets strides is a common mistake.
    const auto f = [](const std::vector<Tensor>& in) { return fused_squareplus(in[0].T()).T(); };
    const Tensor matrix = randn({3, 4}, f64).requires_grad_();
    print("gradient:", gradcheck(f, {matrix}).ok,
          "second derivative:", gradgradcheck(f, {matrix}).ok);

    // To try: leave out the line with grad_enabled, or one contiguous(), and see which check
    // notices. Then write the op y = a b + c of three tensors that broadcast. Its vjp returns three
    // gradients, and sum_to sums each to the shape of its input.
  }
};

}  // namespace

Lesson lesson_3() {
  using N = Lesson3;
  return lesson<N>("3_op", {&N::step_1, &N::step_2, &N::step_3});
}

}  // namespace ink
