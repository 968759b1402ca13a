// An LSTM that reads and writes text, character by character. Hochreiter and Schmidhuber 1997.
//
// Beside its state it carries cells, which gates keep unchanged for as long as they are needed. So
// it remembers what a plain recurrent network forgets within some ten characters: who saw what. It
// succeeds (exit status 0) if its loss is within 30 % of the best possible. A model that remembers
// neither has twice the best possible loss.
#include <inkling/autograd/ops.h>
#include <inkling/data/dataset.h>
#include <inkling/nn/embedding.h>
#include <inkling/nn/linear.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/schedule.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace ink;

// The text: a word in brackets is a choice, and the name before "=" brings the same choice back.
const char* const kLanguage = R"(
story: [girl=girls] saw a [thing=things]. [girl] took the [thing].\n
girls: Ada | Bela | Cleo | Dora
things: kite | lamp | pan | rope
)";

struct LSTM : Module {
  int64_t n;         // cells
  Embedding wte;     // what each character adds to the gates
  Linear recurrent;  // what the state adds
  Linear head;       // state -> logits of the next character

  LSTM(int64_t vocabulary, int64_t cells)
      : n(cells),
        wte(vocabulary, 4 * cells),
        recurrent(cells, 4 * cells),
        head(cells, vocabulary) {}

  struct State {
    Tensor h, c;  // (B, n) each
  };
  State start(int64_t rows) const { return {zeros({rows, n}), zeros({rows, n})}; }

  /// c = forget c + input g,   h = output tanh(c). x (B, 4 n): the characters' part of the gates.
  State next(const State& state, const Tensor& x) const {
    const std::vector<Tensor> gates = chunk(x + recurrent(state.h), 4, 1);
    const Tensor input = sigmoid(gates[0]), forget = sigmoid(gates[1] + 1.0);
    const Tensor c = forget * state.c + input * tanh(gates[2]);
    return {sigmoid(gates[3]) * tanh(c), c};
  }
  /// Logits (B, T, V) of ids (B, T).
  Tensor operator()(const Tensor& ids) const {
    State state = start(ids.size(0));
    std::vector<Tensor> states;
    for (const Tensor& x : unbind(wte(ids), 1)) {
      state = next(state, x);
      states.push_back(state.h);
    }
    return head(stack(states, 1));
  }
  INK_FIELDS(wte, recurrent, head)
};

Tensor loss_of(const LSTM& model, const Batch& batch) {
  const Shape shape{batch.batch_size, batch.block_size};
  return cross_entropy(model(from_vector(batch.x, shape)), from_vector(batch.y, shape));
}

std::string written_by(const LSTM& model, const Tokenizer& tokenizer, int64_t length) {
  const NoGrad no_grad;
  std::vector<int64_t> text = tokenizer.encode("\n");
  LSTM::State state = model.start(1);
  for (int64_t i = 0; i < length; ++i) {
    state = model.next(state, model.wte(tensor({text.back()}, i64)));
    text.push_back(multinomial(softmax(model.head(state.h)), 1).item<int64_t>());
  }
  return tokenizer.decode(text);
}

}  // namespace

int main(int, char** argv) {
  set_wait_policy(argv);  // threads with nothing to do sleep
  manual_seed(1);
  const FablesDataset data{Fables(kLanguage)};
  LSTM model(data.tokenizer().vocab_size(), 64);

  const int steps = 700;
  AdamW optimizer(model.named_parameters(), {.grad_clip = 1});
  const Schedule lr = warmup_cosine(2e-2, 1e-3, 10, steps);
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = loss_of(model, data.train_batch(1, static_cast<uint64_t>(step), 16, 64));
    loss.backward();
    optimizer.set_lr(lr(step));
    optimizer.step();
    optimizer.zero_grad();
    if (step % 175 == 0) std::printf("step %3d  loss %.3f\n", step, loss.item());
  }

  const NoGrad no_grad;
  const Batch batch = data.val_batch(1, 0, 64, 64);
  const double loss = loss_of(model, batch).item();
  const double best = mean(tensor(batch.best_possible)).item();
  std::printf("%s\n", written_by(model, data.tokenizer(), 150).c_str());
  std::printf("loss %.3f, best possible %.3f: %+.1f %%\n", loss, best, 100 * (loss / best - 1));
  return loss < 1.3 * best ? 0 : 1;
}
