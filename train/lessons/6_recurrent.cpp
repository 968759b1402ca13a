// A recurrent character model, and why it forgets
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
  // Stories are made by rules. Here [girl=girls] chooses a girl, and [girl] repeats that choice.
  // [colours] chooses a colour, and [end] one of the two endings. So the probability of every
  // character is known, and with it the best possible loss: the lowest that any model can reach.
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
    // A tokenizer turns text into ids. Here the id of a character is its place in the alphabet. A
    // batch holds B texts of T ids in x. y holds the targets: for each id of x, the one after it.
    const Batch batch =
        data.train_batch(/*seed=*/1, /*step=*/0, /*batch_size=*/1, /*block_size=*/60);
    print(tokenizer.decode(batch.x));
    print("characters in the alphabet:", tokenizer.vocab_size());
    print("first ids:    ", tensor(batch.x)[Slice(None, 8)]);
    print("first targets:", tensor(batch.y)[Slice(None, 8)]);
  }

  // ---- 2. The model
  //
  // A new state is computed from the character that is read and from the old state:
  //   h_t = tanh(wte[id_t] + W h_{t-1} + b)
  // wte is an embedding, a table with a vector for each id. (The name, word token embedding, is
  // GPT-2's.) `recurrent` holds W and b, and `head` gives the logits of the next character. In
  // comments, B texts have T characters each, out of V.
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
    // last to the first. This is backpropagation through time, but to the engine the graph is like
    // any other.
    context().default_dtype = f64;  // the same digits on every machine
    manual_seed(1);
    model = std::make_unique<RNN>(tokenizer.vocab_size(), 64);
    AdamW optimizer(model->named_parameters(), {.lr = 1e-2});
    const int64_t B = 16, T = 64;
    for (int step = 0; step <= 300; ++step) {
      const Batch batch = data.train_batch(/*seed=*/1, step, B, T);
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
    // We draw a character from the model's probabilities, let it read this character, draw the
    // next, and so on. It spells well. But compare the thing that was seen with the thing that is
    // named two sentences later. Often they differ, because the model has forgotten the first one.
    // So its loss stays above the best possible.
    const NoGrad no_grad;
    std::vector<int64_t> text;
    Tensor h = zeros({1, 64}), ids = tensor(tokenizer.encode("\n"));  // "\n" ends a story
    for (int i = 0; i < 180; ++i) {
      h = model->next(h, ids);
      ids = sample(softmax(model->head(h), -1)).view({1});
      text.push_back(ids.item<int64_t>());
    }
    print(tokenizer.decode(text));
  }

  // ---- 4. How far back does it learn?

  void step_4() {
    // Take the loss of the last character alone, and its gradient with respect to every state. Each
    // step back multiplies the gradient by W^T and by the derivative of tanh, which is at most 1.
    // Here it fades, and what fades cannot teach the model to remember. The numbers are the lengths
    // of the gradients, relative to that of the last state.
    const int64_t T = 64;
    const Batch batch = data.train_batch(/*seed=*/2, /*step=*/0, /*batch_size=*/1, T);
    const std::vector<Tensor> states = model->states(from_vector(batch.x, {1, T}));
    for (Tensor h : states) h.retain_grad();  // else only parameters keep their gradients
    cross_entropy(model->head(states.back()), tensor({batch.y.back()})).backward();
    const double last = norm(states.back().grad()).item();
    for (const size_t k : {0, 4, 16, 48})
      print(k, "characters back:", fixed(norm(states[T - 1 - k].grad()).item() / last, 4));

    // Attention (lesson 7) has no such problem, because it reaches every character in one step.
    //
    // To try: train for 2000 steps. Does the right thing come back? Then replace the recurrence by
    // a GRU (gated recurrent unit), which can pass a state on unchanged, and compare the gradients.
  }
};

}  // namespace

Lesson lesson_6() {
  using N = Lesson6;
  return lesson<N>("6_recurrent", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
