// The averaging trick, sqrt(d), and normalisation
//
// Three ways to write one average lead to the code of a GPT's attention. Then its loose ends: why
// scores are divided by sqrt(head_dim) (step 3), and two norms written by hand, with the one digit
// in which most hand-written norms differ from the libraries'.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/random/generator.h"
#include "nn/batch_norm.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct TheAveragingTrick : Notebook {
  // ---- 1. The average of the past, three ways
  Tensor lower = tril(ones({8, 8}));

  void step_1() {
    // Four rows of eight tokens, two features each: (B, T, C) = (4, 8, 2).
    manual_seed(1337);
    const Tensor x = randn({4, 8, 2});
    print(x.select(0, 0));

    // A loop: token t gets the mean of tokens 0 .. t.
    Tensor means = zeros({4, 8, 2});
    for (int64_t b = 0; b < 4; ++b) {
      for (int64_t t = 0; t < 8; ++t)
        means.index({b, t}) = mean(x.index({b, Slice({}, t + 1)}), {0});
    }
    print(means.select(0, 0));

    // A product with a lower triangle whose rows sum to 1.
    const Tensor w = lower / sum(lower, {1}, true);
    print(allclose(matmul(w, x), means, 1e-5, 1e-6));

    // Softmax of zeros, with -inf in the future's place. The same weights, but now the zeros can be
    // replaced by something that depends on the tokens.
    const Tensor affinities = masked_fill(zeros({8, 8}), lower == 0, -inf);
    const Tensor weights = softmax(affinities, -1);
    print(weights);
    print(allclose(matmul(weights, x), means, 1e-5, 1e-6));
  }

  // ---- 2. One head of self-attention, its encoder sister, and its cross-attention cousin

  void step_2() {
    // 32 features a token, a head of 16.
    manual_seed(1337);
    const Tensor x = randn({4, 8, 32});
    const Linear query(32, 16, false), key(32, 16, false), value(32, 16, false);
    const Tensor q = query(x), k = key(x), v = value(x);
    const Tensor scores = matmul(q, k.transpose(-2, -1));

    // Without the scale some tokens already put three quarters of their weight on one other.
    const Tensor unscaled = softmax(masked_fill(scores, lower == 0, -inf), -1);
    print(unscaled.select(0, 0));

    // Divided by sqrt(16) they still spread it.
    const Tensor scaled = scores * std::pow(16, -0.5);
    const Tensor weights = softmax(masked_fill(scaled, lower == 0, -inf), -1);
    print(weights.select(0, 0));
    print(matmul(weights, v).shape());

    // Whether the mask or the scale comes first makes no difference: -inf / 4 is -inf.
    print(allclose(softmax(masked_fill(scores, lower == 0, -inf) / 4, -1), weights));

    // An encoder, which reads a text that is all there, drops the mask and nothing else. (Its last
    // row is the last row above: the last token saw everything already.)
    const Tensor encoder = softmax(scaled, -1);
    print(encoder.select(0, 0));

    // Cross-attention takes keys and values from elsewhere, say five tokens of another language.
    // Queries ask there; the output has a row for each query.
    Generator elsewhere(7);
    Tensor other = empty({4, 5, 32});
    normal_(other, 0, 1, elsewhere);
    const Tensor across = matmul(q, key(other).transpose(-2, -1)) * std::pow(16, -0.5);
    const Tensor cross = softmax(across, -1);
    print(cross.shape());
    print(cross.select(0, 0));
    print(matmul(cross, value(other)).shape());
  }

  // ---- 3. Why do we divide by sqrt(d)?

  void step_3() {
    // Let queries and keys be random with variance 1. A score is a sum of d = 16 products, each of
    // variance 1, so its variance is 16. Divided by sqrt(16) = 4, the variance, which goes with the
    // square, is 1 again, whatever d is. In order: q, k, q k^T, q k^T / sqrt(d).
    const Tensor q = randn({4, 8, 16}), k = randn({4, 8, 16});
    const Tensor scores = matmul(q, k.transpose(-2, -1));
    print(var(q));
    print(var(k));
    print(var(scores));
    print(var(scores * std::pow(16, -0.5)));
  }

  // ---- 4. And why variance 1?

  void step_4() {
    // Softmax of numbers near each other is gentle. The same numbers times eight, and it nearly
    // picks the largest: each token would copy one other, and little gradient would reach the rest.
    const Tensor x = tensor({0.1, -0.2, 0.3, -0.2, 0.5});
    print(softmax(x, -1));
    print(softmax(x * 8, -1));
  }

  // ---- 5. Batch normalisation by hand
  //
  // Each column, one feature over the batch, is brought to mean 0 and variance 1. In training by
  // the batch's own statistics, which are also noted in running ones; in evaluation by those.
  struct HandMadeBatchNorm : Module {
    double eps = 1e-5, momentum = 0.1;
    Parameter gamma, beta;
    Buffer running_mean, running_var;

    explicit HandMadeBatchNorm(int64_t n)
        : gamma(ones({n})), beta(zeros({n})), running_mean(zeros({n})), running_var(ones({n})) {}

    Tensor operator()(const Tensor& x) {
      Tensor m = running_mean, v = running_var;
      if (training) {
        m = mean(x, {0});
        v = var(x, {0});  // the sum of squares by n - 1: unbiased
        const NoGrad no_grad;
        running_mean.mul_(1 - momentum).add_(m * momentum);
        running_var.mul_(1 - momentum).add_(v * momentum);
      }
      return gamma * ((x - m) / sqrt(v + eps)) + beta;
    }
    INK_FIELDS(gamma, beta, running_mean, running_var)
  };
  Tensor batch;

  void step_5() {
    const ImitateTorch imitate(BernoulliRule::plain);
    manual_seed(1337);
    HandMadeBatchNorm norm(100);
    batch = randn({32, 100});
    const Tensor y = norm(batch).detach();
    print(y.shape());

    // Column 0 is normal, row 0 need not be. (What rounding leaves of the mean 0 depends on the
    // order in which numbers are added; here that is PyTorch's.)
    const Tensor column = y.select(1, 0), row = y.select(0, 0);
    print(mean(column));
    print(std(column));
    print(mean(row));
    print(std(row));
    print(norm.running_mean.narrow(0, 0, 5));
    print(norm.running_var.narrow(0, 0, 5));

    // The library's layer, as PyTorch's, normalises by the biased variance, the sum of squares by
    // n = 32 itself (and notes the unbiased one). Everything is larger by sqrt(32 / 31).
    const BatchNorm1d library(100);
    const Tensor z = library(batch).detach();
    print(std(z.select(1, 0)));
    print(mean(z.select(0, 0)));
    print(std(z.select(0, 0)));
    print(z.index({0, Slice({}, 5)}));
    print(y.index({0, Slice({}, 5)}));
    print(allclose(z, y * std::sqrt(32.0 / 31), 1e-5, 1e-4));

    // In evaluation: by the running statistics, which one step has hardly moved from 0 and 1.
    norm.eval();
    print(norm(batch).detach().index({0, Slice({}, 5)}));
  }

  // ---- 6. Layer normalisation by hand

  void step_6() {
    const ImitateTorch imitate(BernoulliRule::plain);
    // The same with rows for columns: each token by itself, so there are no running statistics and
    // no difference between training and evaluation. gamma = 1 and beta = 0 are left out.
    const Tensor m = mean(batch, {1}, true), v = var(batch, {1}, 1, true);
    const Tensor y = (batch - m) / sqrt(v + 1e-5);
    print(mean(y.select(1, 0)));
    print(std(y.select(1, 0)));
    print(mean(y.select(0, 0)));
    print(std(y.select(0, 0)));

    // LayerNorm is biased as well: over 100 features that is the third digit.
    const Tensor z = LayerNorm(100)(batch).detach();
    print(std(z.select(0, 0)));
    print(y.index({0, Slice({}, 5)}));
    print(z.index({0, Slice({}, 5)}));

    // By its own, biased measure it has spread 1.
    print(std(z.select(0, 0), {}, 0));
  }
};

}  // namespace

Lesson the_averaging_trick() {
  using N = TheAveragingTrick;
  return lesson<N>("the_averaging_trick",
                   {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5, &N::step_6});
}

}  // namespace ink
