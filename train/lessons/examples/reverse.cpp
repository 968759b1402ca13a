// An encoder and a decoder that reverse strings. Vaswani et al. 2017.
//
// The encoder reads a string as a whole. The decoder writes, letter by letter: it looks back at
// what it wrote (causal attention) and across to what was read (cross attention). It succeeds (exit
// status 0) if 95 % of the strings that it never saw are reversed without a mistake.
#include <inkling/autograd/ops.h>
#include <inkling/nn/embedding.h>
#include <inkling/nn/layer_norm.h>
#include <inkling/nn/linear.h>
#include <inkling/nn/multihead_attention.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/schedule.h>

#include <cstdio>
#include <string>

namespace {

using namespace ink;

constexpr int64_t kLength = 10, kLetters = 26;
constexpr int64_t kBlank = 0, kBegin = kLetters + 1;  // the letters are 1 .. 26

// Strings of 3 to 10 letters (n, 10), with blanks on the left, so that all end at the same place.
Tensor draw(int64_t n) {
  const Tensor letters = randint(1, kLetters + 1, {n, kLength});
  const Tensor blanks = randint(kLength - 2, {n, 1});
  return masked_fill(letters, arange(kLength, i64) < blanks, kBlank);
}

// x + what attention or the two layers of a block make of norm(x).
struct Block : Module {
  LayerNorm norm_1, norm_2, norm_3;
  MultiheadAttention back, across;
  Linear up, down;
  explicit Block(int64_t width)
      : norm_1(width),
        norm_2(width),
        norm_3(width),
        back(width, 4, {.batch_first = true}),
        across(width, 4, {.batch_first = true}),
        up(width, 4 * width),
        down(4 * width, width) {}

  /// read: what the encoder made of the string; undefined in the encoder itself.
  Tensor operator()(Tensor x, const Tensor& read) const {
    x = x + back(norm_1(x), {.is_causal = read.defined()}).output;
    if (read.defined()) x = x + across(norm_2(x), read, read).output;
    return x + down(relu(up(norm_3(x))));
  }
  INK_FIELDS(norm_1, norm_2, norm_3, back, across, up, down)
};

struct Reverser : Module {
  Embedding tokens, places;
  Block encoder, decoder;
  Linear head;
  explicit Reverser(int64_t width)
      : tokens(kBegin + 1, width),
        places(kLength, width),
        encoder(width),
        decoder(width),
        head(width, kBegin + 1) {}

  Tensor embedded(const Tensor& ids) const {
    return tokens(ids) + places.weight.narrow(0, 0, ids.size(1));
  }
  /// Logits (B, T, V) of what comes after the T tokens written so far.
  Tensor operator()(const Tensor& strings, const Tensor& written) const {
    return head(decoder(embedded(written), encoder(embedded(strings), {})));
  }
  /// What it takes for the likeliest, letter by letter: (B, 10).
  Tensor reversed(const Tensor& strings) const {
    const NoGrad no_grad;
    Tensor written = full({strings.size(0), 1}, kBegin, i64);
    for (int64_t i = 0; i < kLength; ++i) {
      const Tensor logits = (*this)(strings, written).select(1, i);
      written = cat({written, argmax(logits, -1, true)}, 1);
    }
    return written.narrow(1, 1, kLength);
  }
  INK_FIELDS(tokens, places, encoder, decoder, head)
};

std::string text_of(const Tensor& ids) {
  std::string text;
  for (const int64_t id : ids.tolist<int64_t>())
    if (id != kBlank) text += static_cast<char>('a' + id - 1);
  return text;
}

}  // namespace

int main(int, char** argv) {
  set_wait_policy(argv);  // threads with nothing to do sleep
  manual_seed(1);
  Reverser model(64);
  const int steps = 250;
  AdamW optimizer(model.named_parameters(), {.grad_clip = 1});
  const Schedule lr = warmup_cosine(3e-3, 1e-5, 50, steps);
  for (int step = 0; step < steps; ++step) {
    const Tensor strings = draw(32), target = flip(strings, {1});
    const Tensor begin = full({32, 1}, kBegin, i64);
    const Tensor written = cat({begin, target.narrow(1, 0, kLength - 1)}, 1);
    const Tensor loss = cross_entropy(model(strings, written), target);
    loss.backward();
    optimizer.set_lr(lr(step));
    optimizer.step();
    optimizer.zero_grad();
    if (step % 50 == 0) std::printf("step %3d  loss %.3f\n", step, loss.item());
  }

  const Tensor strings = draw(500), reversed = model.reversed(strings);
  for (int64_t i = 0; i < 3; ++i)
    std::printf("%s -> %s\n", text_of(strings[i]).c_str(), text_of(reversed[i]).c_str());
  const double right = mean(all(reversed == flip(strings, {1}), {1}).to(f32)).item();
  std::printf("without a mistake: %.1f %% of 500 strings\n", 100 * right);
  return right >= 0.95 ? 0 : 1;
}
