// From an average to attention, and the built-in op
//
// What can a token say about those before it? At first only their average. We write that as a loop,
// then as a matrix, then let the matrix depend on the tokens: that is attention. At the end the
// library's own op must agree with what we made by hand.
#include <cmath>

#include "autograd/fused_ops.h"
#include "autograd/print.h"
#include "autograd/random/generator.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct AverageToAttention : Notebook {
  // ---- 1. Many questions in one row of text

  void step_1() {
    // Plain decimals, also where numbers are far apart in size.
    PrintOptions plain;
    plain.sci_mode = false;
    print_options() = plain;

    // Two rows of four tokens. What follows a token is what a model has to guess, so a row of four
    // asks three questions, with one, two and three tokens to go by.
    manual_seed(538);
    const Tensor data = randint(10, {2, 4}, f32);
    print(data);
    const Tensor inputs = data.narrow(1, 0, 3), targets = data.narrow(1, 1, 3);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t t = 0; t < 3; ++t)
        print(inputs.index({b, Slice({}, t + 1)}), "->", targets.index({b, t}));
    }
  }

  // ---- 2. The average of what came before: a loop
  Tensor x, means;

  void step_2() {
    // Two rows of three tokens, four features each: (B, T, C) = (2, 3, 4).
    x = randint(10, {2, 3, 4}, f32);
    print(x);
    means = zeros({2, 3, 4});
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t t = 0; t < 3; ++t)
        means.index({b, t}) = mean(x.index({b, Slice({}, t + 1)}), {0});
    }
    print(means);
  }

  // ---- 3. The same as one matrix product

  void step_3() {
    // A row of ones adds up; a row divided by its sum averages; zeros above the diagonal keep the
    // future out. One such matrix serves every row of the batch.
    Tensor w = tril(ones({3, 3}));
    w = w / sum(w, {1}, true);
    print(w);
    print(allclose(matmul(w, x), means));
  }

  // ---- 4. Weights that depend on the tokens
  Tensor q, k, v, later, out;

  void step_4() {
    // Now each token chooses whom to listen to: query times key instead of ones. Mind the names:
    // in this road the layer called key makes the queries, and the other way round. A name is only
    // a name, but the order of the draws is fixed by it.
    const Linear key(4, 4), query(4, 4), value(4, 4);
    q = key(x);
    k = query(x);
    v = value(x);
    print(v);

    // The future gets -inf instead of zero, for softmax to make zero of it.
    later = tril(ones({3, 3})) == 0;
    const Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(4);
    const Tensor weights = softmax(masked_fill(scores, later, -inf), -1);
    print(weights);
    out = matmul(weights, v);
    print(out);

    // With q and k the other way round the scores are transposed, and the same tokens look
    // elsewhere: the second token of the first row at itself.
    const Tensor transposed = matmul(k, q.transpose(-2, -1)) / std::sqrt(4);
    print(softmax(masked_fill(transposed, later, -inf), -1));
  }

  // ---- 5. Why scores are scaled

  void step_5() {
    // Softmax sees differences. Ten against three is all or nothing; a quarter of that is a choice.
    const Tensor scores = tensor({0.0, 1.0, 2.0, 3.0, 10.0, -1e4});
    print(softmax(scores, -1));
    print(softmax(scores / 4, -1));
  }

  // ---- 6. The built-in

  void step_6() {
    // One op does all of step 4, without ever holding the matrix of weights.
    const Tensor built_in = scaled_dot_product_attention(q, k, v, {.is_causal = true});
    print(built_in);
    print(allclose(built_in, out, 1e-5, 1e-6));
  }

  // ---- 7. Four heads

  void step_7() {
    // Twelve features, cut into four heads of three.
    x = randint(10, {2, 3, 12}, f32);
    print(x);
    const Linear key(12, 12), query(12, 12), value(12, 12);
    const auto heads = [&](const Linear& layer) {
      return layer(x).view({2, 3, 4, 3}).transpose(1, 2);
    };
    q = heads(key);
    k = heads(query);
    v = heads(value);
    print(q.shape());
    const Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(3);
    const Tensor by_hand = matmul(softmax(masked_fill(scores, later, -inf), -1), v);
    const Tensor built_in = scaled_dot_product_attention(q, k, v, {.is_causal = true});
    print(by_hand);
    print(allclose(by_hand, built_in, 1e-5, 1e-6));

    // Back to (B, T, C): the heads of a token side by side.
    const Tensor joined = by_hand.transpose(1, 2).contiguous().view({2, 3, 12});
    print(joined.shape());
    print(joined);
  }
};

}  // namespace

Lesson average_to_attention() {
  using N = AverageToAttention;
  return lesson<N>("average_to_attention", {&N::step_1, &N::step_2, &N::step_3, &N::step_4,
                                            &N::step_5, &N::step_6, &N::step_7});
}

}  // namespace ink
