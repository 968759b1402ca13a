// A layer of your own, and a check of its gradients
//
// A layer is a struct: its parameters, a constructor that gives them their first values, a call
// operator, and one line that names its fields. Afterwards you can write any layer, put it into a
// model, save it, and know that its gradients are right.
#include <string>
#include <utility>

#include "nn/gradcheck_module.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson4 : Notebook {
  // ---- 1. The struct
  //
  // The example is a gated residual layer:
  //   y = x + scale * sigmoid(gate(x)) * value(x)
  // "Residual" means that a layer adds to its input. The gate decides for each feature how much is
  // added. A Parameter is a tensor that training changes. Linear is a layer with two of them: a
  // weight and a bias.
  struct GatedResidual : Module {
    Linear gate, value;
    Parameter scale;

    explicit GatedResidual(int64_t n) : gate(n, n), value(n, n), scale(full({n}, 0.1)) {}

    Tensor operator()(const Tensor& x) const { return x + scale * sigmoid(gate(x)) * value(x); }
    INK_FIELDS(gate, value, scale)
  };

  void step_1() {
    // INK_FIELDS lists what the layer holds. This list is enough to print it. The number behind
    // each # counts parameters.
    manual_seed(1);
    const GatedResidual layer(3);
    print(layer.to_string());

    // It also gives the parameters their names, under which optimizers and files know them.
    for (const auto& [name, parameter] : layer.named_parameters())
      print(name, tuple(parameter.shape()));
  }

  // ---- 2. All of its gradients, in one line

  void step_2() {
    // gradcheck_module checks the gradient of every parameter and every input, in f64. Here these
    // are 3 * 3 + 3 elements for each Linear, 3 for scale and 2 * 3 for the input.
    manual_seed(1);
    GatedResidual layer(3);
    const GradcheckReport report = gradcheck_module(layer, randn({2, 3}));
    print("right:", report.ok, "elements:", report.checked);

    // A zero hides mistakes. With scale = 0, the gradients of gate and value are 0, even if their
    // vjp is wrong. So give parameters that start at 0 other values before you check a layer.
    layer.scale.detach().zero_();  // detached: a write into a parameter itself is refused
    sum(layer(randn({2, 3}))).backward();
    print("largest gradient of the gate:", fixed(max(abs(layer.gate.weight.grad())).item(), 1));
  }

  // ---- 3. What if a field is forgotten?
  //
  // This layer has two Linears, but its INK_FIELDS names only one.
  struct Forgetful : Module {
    Linear first, second;
    explicit Forgetful(int64_t n) : first(n, n), second(n, n) {}
    Tensor operator()(const Tensor& x) const { return second(first(x)); }
    INK_FIELDS(first)
  };

  void step_3() {
    // The second one would be neither trained nor saved. So it is an error to ask for the
    // parameters, as an optimizer does.
    const Forgetful layer(2);
    print(message_of([&] { layer.parameters(); }));
  }

  // ---- 4. Layers of layers
  //
  // A ModuleList holds layers of one type. Its constructor takes their number, and then what each
  // of them is made with. LayerNorm gives every row mean 0 and variance 1.
  struct Net : Module {
    ModuleList<GatedResidual> layers;
    LayerNorm norm;
    Linear head;

    Net(int64_t depth, int64_t n) : layers(depth, n), norm(n), head(n, 1) {}

    Tensor operator()(Tensor x) const {
      for (const GatedResidual& layer : layers) x = layer(x);
      return head(norm(x));
    }
    INK_FIELDS(layers, norm, head)
  };

  void step_4() {
    // In the names of parameters, the names of fields are joined with dots.
    manual_seed(1);
    Net net(2, 4);
    print(net.to_string());
    print("first and last:", net.named_parameters().front().first, "and",
          net.named_parameters().back().first);

    // A state_dict is the list of all names and values. A second net starts with other random
    // values. When it loads the state_dict of the first, the two are equal. (save and load, in
    // autograd/io/serialize.h, keep a state_dict in a file.)
    Net other(2, 4);
    const Tensor x = randn({5, 4});
    print("equal before:", equal(other(x), net(x)));
    other.load_state_dict(net.state_dict());
    print("equal after:", equal(other(x), net(x)));

    // To try: add a Dropout of 0.5 to GatedResidual, and see when train() and eval() make a
    // difference. Then tie two weights, layers[1].gate.weight = layers[0].gate.weight, and print
    // num_parameters() before and after.
  }
};

}  // namespace

Lesson lesson_4() {
  using N = Lesson4;
  return lesson<N>("4_layer", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
