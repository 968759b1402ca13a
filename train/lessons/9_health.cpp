// When a network does not learn: what to look at
//
// A loss that does not fall says that something is wrong, but not what. The deviations of
// activations, gradients and updates say more. Afterwards you can measure them in any model, and
// tell a healthy network from an unhealthy one before it is trained. Most of these checks are in
// Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural
// networks", and in Karpathy's "Building makemore, part 3: Activations & Gradients, BatchNorm".
#include <cmath>
#include <iomanip>
#include <string>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/ops.h"
#include "data/dataset.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "train/flow/parameter_parts.h"
#include "train/flow/watch.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"

namespace ink {
namespace {

struct Lesson9 : Notebook {
  // ---- 1. Weights that are too large
  //
  // The network reads 8 characters of inkling's fables, and predicts the next one, out of V. It has
  // 8 layers. Each is a Linear and a tanh, whose outputs lie between -1 and 1.
  struct Layer : Module {
    Linear linear{64, 64};
    Tensor operator()(const Tensor& x) const { return tanh(linear(x)); }
    INK_FIELDS(linear)
  };
  struct Net : Module {
    Embedding wte;  // 8 numbers for each character
    ModuleList<Layer> layers{8};
    Linear head;
    explicit Net(int64_t V) : wte(V, 8), head(64, V) {}
    Tensor operator()(const Tensor& ids) const {  // (B, 8) -> (B, V)
      Tensor x = wte(ids).view({-1, 64});
      for (const Layer& layer : layers) x = layer(x);
      return head(x);
    }
    INK_FIELDS(wte, layers, head)
  };
  const FablesDataset data;
  const int64_t V = data.tokenizer().vocab_size();

  /// Training never gets to step 1000, so that batch is new to every model.
  template <class Model>
  Tensor loss_of(const Model& model, int64_t step = 1000) const {
    const Batch batch = data.train_batch(/*seed=*/1, step, /*batch_size=*/64, /*block_size=*/8);
    const Tensor x = from_vector(batch.x, {64, 8}), y = from_vector(batch.y, {64, 8});
    return cross_entropy(model(x), y.index({Slice(), -1}));
  }

  // A Linear sums 64 products. If weights have the deviation gain / sqrt(64), then its outputs have
  // about gain times the deviation of its inputs. `drawn` makes a network with such weights.
  Net drawn(double gain) const {
    manual_seed(1);
    Net net(V);
    const auto draw = [&](Linear& linear) {
      init::normal_(linear.weight, 0, gain / std::sqrt(64));
      init::zeros_(linear.bias);
    };
    for (Layer& layer : net.layers) draw(layer.linear);
    draw(net.head);
    return net;
  }

  // watch(model, loss) runs forward and backward once, and measures the outputs of ops, except
  // views and single numbers such as the loss. `health` shows its numbers for the 8 tanh, from the
  // first layer to the last:
  //   std        the standard deviation of the outputs
  //   saturated  the share of outputs where tanh is flat: its slope is below 0.03
  //   grad std   that of the outputs' gradients, over that of the last layer
  std::string health(const Net& net) const {
    const ModelStats stats = watch(net, [&] { return loss_of(net); });
    std::vector<ActivationStats> rows = stats.activations;
    std::erase_if(rows, [](const ActivationStats& row) { return row.op != "tanh"; });
    TextStream text;
    text << "loss " << fixed(stats.loss, 2) << std::setprecision(2) << "\nstd      ";
    for (const ActivationStats& row : rows) text << std::setw(8) << row.std;
    text << "\nsaturated";
    for (const ActivationStats& row : rows)
      text << std::setw(8) << fixed(100 * row.saturated, 0) + " %";
    text << "\ngrad std ";
    for (const ActivationStats& row : rows)
      text << std::setw(8) << row.grad_std / rows.back().grad_std;
    return text.str();
  }

  void step_1() {
    // The first check needs nothing but the loss. A network that knows nothing should give each of
    // the V characters the probability 1 / V. That is guessing, and its loss is log V. A loss far
    // above it means that the network is sure, and wrong.
    context().default_dtype = f64;  // the same digits on every machine
    print("loss of guessing:", fixed(std::log(V), 2));
    print(health(drawn(5)));

    // More than half of the outputs are saturated, and hardly any gradient passes there. Elsewhere
    // gradients pass, and are multiplied by weights that are too large. From the last layer to the
    // first, they become 31 times as large. These are exploding gradients.
  }

  // ---- 2. Weights that are too small

  void step_2() {
    // Now every Linear makes its inputs 0.3 times as large. Near 0, tanh(x) is about x, so
    // nothing is saturated. The loss is that of guessing. Both look healthy.
    print(health(drawn(0.3)));

    // But the outputs shrink from the first layer to the last, until the inputs of the head hardly
    // depend on the text. And the gradients shrink from the last layer to the first. These are
    // vanishing gradients.
  }

  // ---- 3. The right size
  // SGD moves every parameter by lr times its gradient, against it.
  void train(Net& net, double lr, int64_t steps) const {
    SGD optimizer(net.named_parameters(), {.lr = lr});
    for (int64_t step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      loss_of(net, step).backward();
      optimizer.step();
    }
  }

  void step_3() {
    // In between, both nearly keep their size. tanh shrinks what passes it, and a gain of 5/3 makes
    // up for that. (For relu, which sets half of its inputs to 0, it is sqrt(2): He et al. 2015.)
    Net net = drawn(5.0 / 3);
    print(health(net));

    // No tanh follows the head, so its weights are still too large. With weights a tenth as large,
    // the loss is close to that of guessing.
    net.head.weight.detach().mul_(0.1);
    print("loss with a smaller head:", fixed(loss_of(net).item(), 2));

    // A new Linear has a gain of sqrt(1/3) = 0.58, as in PyTorch. In a few layers that does little
    // harm. In eight, the first layer gets a fiftieth of the last layer's gradient.
    manual_seed(1);
    Net as_built(V);
    print(health(as_built));

    // Here are the losses of both and of the network of step 2, after 250 steps of training. Where
    // the gradients shrink 50 times, the network still learns. Where they shrink 5000 times, it
    // does not get far.
    Net small = drawn(0.3);
    for (Net* one : {&net, &as_built, &small}) train(*one, /*lr=*/0.1, /*steps=*/250);
    print("right:", fixed(loss_of(net).item(), 2), "as built:", fixed(loss_of(as_built).item(), 2),
          "too small:", fixed(loss_of(small).item(), 2));
  }

  // ---- 4. How far does a step move the weights?
  //
  // The update ratio of a weight is the length of its change in a step, divided by its own length.
  // ParameterParts measures it for every parameter. `update_ratios` trains for one step, and shows
  // the ratios of the first and of the last layer.
  std::string update_ratios(Net& net, double lr) const {
    const ParameterParts parts(net);
    const ParameterParts::Copies before = parts.copies();
    train(net, lr, /*steps=*/1);
    const std::vector<ParameterParts::Change> changes = parts.changes_since(before);
    std::vector<double> ratios;
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts.name(i).ends_with("linear.weight")) ratios.push_back(changes[i].ratio);
    return "ratios " + fixed(ratios.front(), 6) + " and " + fixed(ratios.back(), 6);
  }

  void step_4() {
    // A ratio of about 0.001 is right: a thousand steps can then change a weight completely. Here
    // are three learning rates, with the loss after 20 more steps. Far below that ratio it stays
    // near that of guessing. Far above it each step destroys what those before have learnt, and the
    // loss rises.
    Net net(V);
    for (const double lr : {0.001, 0.1, 3.0}) {
      net = drawn(5.0 / 3);
      net.head.weight.detach().mul_(0.1);
      const std::string ratios = update_ratios(net, lr);
      train(net, lr, /*steps=*/20);
      print("lr", fixed(lr, 3), ratios + ",", "loss", fixed(loss_of(net).item(), 2));
    }

    // In the last network, tanh is saturated now. Its ratios are small, although the learning rate
    // is still too large. So look at them early.
    print(health(net));
    print(update_ratios(net, 3.0));

    // Now the networks of steps 1 and 2. Where gradients explode, no learning rate suits all
    // layers: one that is right for the last is too large for the first. Where they vanish, the
    // learning rate that was right above hardly moves any layer.
    Net large = drawn(5), small = drawn(0.3);
    print("too large:", update_ratios(large, 0.1));
    print("too small:", update_ratios(small, 0.1));
  }

  // ---- 5. No gradient at all
  //
  // This network has two faults. Its biases are so negative, perhaps after a step that was too
  // large, that every relu gives 0. (These are dead relus.) And the loss depends on one head alone:
  // the other one, `length`, has been forgotten.
  struct TwoHeads : Module {
    Embedding wte;
    Linear hidden{64, 64}, head, length{64, 1};
    explicit TwoHeads(int64_t V) : wte(V, 8), head(64, V) {}
    Tensor operator()(const Tensor& ids) const {
      return head(relu(hidden(wte(ids).view({-1, 64}))));
    }
    INK_FIELDS(wte, hidden, head, length)
  };

  void step_5() {
    // Printed, what watch returns is two tables: of the outputs of ops, and of the parameters. Look
    // for a 0 at the right.
    manual_seed(1);
    TwoHeads net(V);
    net.hidden.bias.detach().fill_(-5);
    const auto loss = [&] { return loss_of(net); };
    TextStream tables;
    tables << watch(net, loss);
    print(tables.str());

    // The lower table names the parameters that do not learn, and the upper one says why. length
    // has no row there, so it did not run. hidden did, but no gradient passes the relu behind it:
    // 100 % of it is saturated. The gradient of head.weight is a product with the outputs of relu,
    // so it is 0, too. Only head.bias learns, and it does not depend on the text.
    //
    // For relu, unlike tanh, half is healthy, because it is flat for every negative input. This is
    // the share when the biases are 0:
    net.hidden.bias.detach().zero_();
    print(fixed(100 * watch(net, loss).activations[2].saturated, 0), "% saturated");

    // `inkling train` measures all this at some steps of every run. Its report, report.html in the
    // folder of the run, shows it, and says what it finds wrong.
    //
    // To try: put a LayerNorm between Linear and tanh, and look at steps 1 and 2 again. Then train
    // with AdamW instead of SGD. Why has a network now the same ratio in all layers, even if its
    // gradients explode?
  }
};

}  // namespace

Lesson lesson_9() {
  using N = Lesson9;
  return lesson<N>("9_health", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
