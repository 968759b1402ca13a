// A recurrent character model: text, one character after the other
//
// A language model gives every possible next character a probability. This one reads text from left
// to right, and carries what it has read in a vector, its hidden state. Afterwards you know how a
// network handles sequences, what backpropagation through time is, and what it cannot learn well.
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "data/dataset.h"
#include "nn/clip_grad.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"

namespace ink {
namespace {

struct Lesson6 : Notebook {
  // ---- 1. A language that is learnt in seconds
  //
  // Its rules are known, and so is the lowest loss that any model can reach. A word in brackets is
  // a choice, and the name before "=" brings the same choice back later.
  const FablesDataset data{Fables(R"(
story: [girl=girls] the [beast=beasts] saw a [thing=things]. It was [colours]. [end]\n
end: Soon [girl] had the [thing]. | No [thing] for [girl].
girls: Ada | Bela | Cleo | Dora
beasts: ape | bear | cat | dog
things: kite | lamp | pan | rope
colours: blue | green | red
)")};
  const Tokenizer& tokenizer = data.tokenizer();

  void step_1() {
    // The id of a character is its place in the alphabet. A batch holds B windows of T ids in x.
    // y holds the targets: for each id of x, the id that follows it.
    const Batch batch = data.train_batch(1, 0, 1, 60);
    print(tokenizer.decode(batch.x));
    print("alphabet of", tokenizer.vocab_size(), "and the first ids:");
    print(tensor(batch.x).narrow(0, 0, 8), "targets:", tensor(batch.y).narrow(0, 0, 8));
  }

  // ---- 2. The model
  //
  // A new state is computed from the character and the old state: h_t = tanh(wte[id_t] + W h_{t-1}
  // + b). The logits of the next character are a linear function of the state.
  struct RNN : Module {
    Embedding wte;
    Linear recurrent, head;
    RNN(int64_t vocabulary, int64_t n) : wte(vocabulary, n), recurrent(n, n), head(n, vocabulary) {}

    Tensor next(const Tensor& h, const Tensor& ids) const { return tanh(wte(ids) + recurrent(h)); }
    /// The states after each character: ids (B, T) -> T tensors (B, n).
    std::vector<Tensor> states(const Tensor& ids) const {
      std::vector<Tensor> all;
      Tensor h = zeros({ids.size(0), recurrent.in_features});
      for (const Tensor& column : ids.unbind(1)) {
        h = next(h, column);
        all.push_back(h);
      }
      return all;
    }
    Tensor operator()(const Tensor& ids) const { return head(stack(states(ids), 1)); }  // (B, T, V)
    INK_FIELDS(wte, recurrent, head)
  };
  std::unique_ptr<RNN> model;

  void step_2() {
    // The loop is that of lesson 5. backward goes through the T steps of the recurrence, from the
    // last to the first. This is backpropagation through time. To the engine it is a graph like any
    // other.
    context().default_dtype = f64;  // the same digits on every machine
    manual_seed(1);
    model = std::make_unique<RNN>(tokenizer.vocab_size(), 64);
    AdamW optimizer(model->named_parameters(), {.lr = 1e-2});
    const int64_t B = 16, T = 64;
    for (int step = 0; step <= 300; ++step) {
      const Batch batch = data.train_batch(1, step, B, T);
      const Tensor x = from_vector(batch.x, {B, T}), y = from_vector(batch.y, {B, T});
      const Tensor loss = cross_entropy((*model)(x), y);
      optimizer.zero_grad();
      loss.backward();
      clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      if (step % 100 == 0)
        print("step", step, "loss", fixed(loss.item(), 3), "best possible",
              fixed(mean(tensor(batch.best_possible)).item(), 3));
    }
  }

  // ---- 3. It writes

  void step_3() {
    // To write, the model draws a character from its probabilities, reads it, and draws the next.
    // It spells well. But watch the thing that was seen: 20 characters later, another one comes
    // back. The model has forgotten it. So its loss stays above the best possible.
    const NoGrad no_grad;
    std::vector<int64_t> text;
    Tensor h = zeros({1, 64}), ids = tensor(tokenizer.encode("\n"));
    for (int i = 0; i < 180; ++i) {
      h = model->next(h, ids);
      ids = sample(softmax(model->head(h), -1)).view({1});
      text.push_back(ids.item<int64_t>());
    }
    print(tokenizer.decode(text));
  }

  // ---- 4. How far back does it learn?

  void step_4() {
    // Take the gradient of the last character's loss with respect to every state. Each step back
    // multiplies it by W^T and by the derivative of tanh, which is below 1. So it fades, and the
    // model hardly learns what it should remember for long. Printed is how long the gradient still
    // is, relative to that of the last state.
    const Batch batch = data.train_batch(2, 0, 1, 64);
    const std::vector<Tensor> states = model->states(from_vector(batch.x, {1, 64}));
    for (Tensor h : states) h.retain_grad();
    cross_entropy(model->head(states.back()), tensor({batch.y.back()})).backward();
    const double last = norm(states.back().grad()).item();
    for (const size_t k : {0, 4, 16, 48})
      print(k, "characters back:", fixed(norm(states[63 - k].grad()).item() / last, 4));

    // Attention (lesson 7) closes this gap, because it reaches every character in one step.
    //
    // To try: train for 2000 steps. Does the right thing come back? Then replace the recurrence by
    // a GRU, whose gates can pass a state on unchanged, and compare the gradients.
  }
};

}  // namespace

Lesson lesson_6() {
  using N = Lesson6;
  return lesson<N>("6_recurrent", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
