// From a loop to multi-head attention
//
// Attention answers one question for every word of a sentence: which of the other words matter for
// me here, and how much? We begin with nothing but dot products and end with the multi-head layer
// of a GPT. Six words stand for the sentence, each a vector of three numbers.
#include <cmath>
#include <vector>

#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct AttentionFromScratch : Notebook {
  // ---- 1. One word looks at the others: a loop
  //
  // A row for each word; (6, 3).
  Tensor inputs = tensor({{0.43, 0.15, 0.89},
                          {0.55, 0.87, 0.66},
                          {0.57, 0.85, 0.64},
                          {0.22, 0.58, 0.33},
                          {0.77, 0.25, 0.10},
                          {0.05, 0.80, 0.55}});
  Tensor context;

  void step_1() {
    // The second word asks. A dot product is large where two vectors point the same way, so it
    // serves as a score of how much a word has to do with the one that asks, the query.
    const Tensor query = inputs.select(0, 1);
    Tensor scores = empty({6});
    for (int64_t i = 0; i < 6; ++i) scores.index({i}) = dot(inputs.select(0, i), query);
    print(scores);

    // We want shares of a whole. Dividing by the sum gives them, as long as no score is negative.
    const Tensor by_sum = scores / sum(scores);
    print(by_sum);
    print(sums_to_one(by_sum));

    // Softmax takes exp first. It gives shares whatever the signs, favours the large scores, and
    // has a gradient that behaves.
    const Tensor weights = softmax(scores, 0);
    print(weights);
    print(sums_to_one(weights));

    // What the word takes away is the sum of all words, each as much as its weight says: its
    // context vector.
    context = zeros({3});
    for (int64_t i = 0; i < 6; ++i) context += weights.select(0, i) * inputs.select(0, i);
    print(context);
  }

  // ---- 2. All words at once: two matrix products

  void step_2() {
    // Row i of Q K^T holds the scores of query i, and a weighted sum of rows is a product again. So
    // the loops above are softmax(Q K^T) V, here with Q = K = V = inputs.
    const Tensor weights = softmax(matmul(inputs, inputs.T()), -1);
    print(weights);
    print(sums_to_one(weights));

    // Its second row is what the loop gave.
    const Tensor contexts = matmul(weights, inputs);
    print(contexts);
    print(allclose(contexts.select(0, 1), context));
  }

  // ---- 3. Something to learn: projections

  void step_3() {
    // So far nothing can be trained. Give each word three views of itself, each a matrix times the
    // word: what it looks for (query), what it offers to be found by (key), what it hands over
    // (value). From 3 features to 256. Scores are then sums of 256 products and large; dividing
    // them by sqrt(256) brings them back to where softmax is soft.
    manual_seed(123);
    const Tensor w_query = randn({3, 256}).requires_grad_();
    const Tensor w_key = randn({3, 256}).requires_grad_();
    const Tensor w_value = randn({3, 256}).requires_grad_();
    const Tensor q = matmul(inputs, w_query), k = matmul(inputs, w_key),
                 v = matmul(inputs, w_value);
    print(q.shape());
    const Tensor weights = softmax(matmul(q, k.T()) / std::sqrt(256), -1);
    print(weights.shape());
    print(weights);
    print(sums_to_one(weights));
    print(matmul(weights, v).shape());

    // Linear layers are the same with first values that fit the number of features, and a bias:
    // smaller scores, and so weights that are nearly even.
    const Linear query(3, 256), key(3, 256), value(3, 256);
    const Tensor even = softmax(matmul(query(inputs), key(inputs).T()) / std::sqrt(256), -1);
    print(even);
    print(sums_to_one(even));
    print(matmul(even, value(inputs)).shape());
  }

  // ---- 4. As a class, and two conventions that change the digits
  //
  // The scores here are keys @ queries^T: row i then belongs to key i, and softmax divides among
  // queries. It is the transpose of the usual table before softmax, and so another function after
  // it; most texts have queries @ keys^T. And they are divided by sqrt(256) as above, although
  // there are two features now, not 256. Both are arguments, to be tried.
  struct ParameterAttention : Module {
    Parameter wk = randn({3, 2}), wq = randn({3, 2}), wv = randn({3, 2});

    Tensor operator()(const Tensor& x, bool keys_first = true,
                      double scale = std::sqrt(256)) const {
      const Tensor k = matmul(x, wk), q = matmul(x, wq), v = matmul(x, wv);
      const Tensor scores = keys_first ? matmul(k, q.T()) : matmul(q, k.T());
      return matmul(softmax(scores / scale, -1), v);
    }
    INK_FIELDS(wk, wq, wv)
  };
  ParameterAttention by_parameters;

  void step_4() {
    manual_seed(123);
    by_parameters = ParameterAttention();
    print(by_parameters(inputs));

    // The usual order, queries @ keys^T: the third digit moves, no more, since a scale of 16 leaves
    // all weights near 1/6.
    print(by_parameters(inputs, false));

    // The usual scale, the root of the number of features, sqrt(2): the words begin to differ.
    print(by_parameters(inputs, true, std::sqrt(2)));
  }

  // ---- 5. The same with Linear layers

  struct LinearAttention : Module {
    Linear wk{3, 2, false}, wq{3, 2, false}, wv{3, 2, false};

    Tensor operator()(const Tensor& x) const {
      const Tensor weights = softmax(matmul(wk(x), wq(x).T()) / std::sqrt(256), -1);
      return matmul(weights, wv(x));
    }
    INK_FIELDS(wk, wq, wv)
  };

  void step_5() {
    manual_seed(123);
    const LinearAttention by_layers;
    print(by_layers(inputs));

    // A Linear keeps its weight as (out, in) and multiplies by the transpose. Hand the transposed
    // weights to the class before, and it gives the same.
    {
      const NoGrad no_grad;
      by_parameters.wk.copy_(by_layers.wk.weight.T());
      by_parameters.wq.copy_(by_layers.wq.weight.T());
      by_parameters.wv.copy_(by_layers.wv.weight.T());
    }
    print(allclose(by_parameters(inputs), by_layers(inputs)));
  }

  // ---- 6. No looking ahead: the causal mask, and dropout
  //
  // Who is to guess the next word must not see it. Above the diagonal, where the key comes after
  // the query, scores become -inf, and exp(-inf) is 0: the weights of what may be seen still sum to
  // 1. The mask is a buffer: saved and moved with the module, never trained. Masking before or
  // after scaling is the same, since -inf stays -inf.
  //
  // Dropout zeroes weights at random in training and doubles the others (p = 0.5), so that no word
  // relies on a single other.
  struct CausalHead : Module {
    Linear wk, wq, wv;
    Dropout dropout;
    Buffer mask;
    bool keys_first = false;
    double scale;

    CausalHead(int64_t d_in, int64_t d_out, int64_t length, double p)
        : wk(d_in, d_out, false),
          wq(d_in, d_out, false),
          wv(d_in, d_out, false),
          dropout(p),
          mask(triu(ones({length, length}), 1)),
          scale(std::sqrt(static_cast<double>(d_out))) {}

    Tensor weights(const Tensor& x) const {  // (B, n, n)
      const Tensor k = wk(x), q = wq(x);
      Tensor scores = keys_first ? matmul(k, q.transpose(1, 2)) : matmul(q, k.transpose(1, 2));
      const int64_t n = x.size(1);
      scores.masked_fill_(mask.index({Slice({}, n), Slice({}, n)}) > 0, -inf);
      return softmax(scores / scale, -1);
    }
    Tensor operator()(const Tensor& x) const { return matmul(dropout(weights(x)), wv(x)); }
    INK_FIELDS(wk, wq, wv, dropout, mask)
  };
  Tensor batch = stack({inputs, inputs});

  void step_6() {
    // The sentence twice: a batch of two.
    manual_seed(123);
    print(batch.shape());
    CausalHead head(3, 2, 6, 0.5);
    print(head.mask);
    print(head.weights(batch).select(0, 0));

    // The library draws its dropout by counters, the same numbers on every device. To follow
    // PyTorch we ask for its stream. Even PyTorch has two: this is the one of its builds with MKL
    // on Intel processors; BernoulliRule::plain is that of all others, and drops other weights.
    const ImitateTorch imitate(BernoulliRule::mkl);
    const auto before = default_generator().get_state();
    const Tensor y = head(batch);
    print(y.shape());
    print(y);

    // The weights behind it, of the first sentence. The first word has only itself to look at, and
    // lost that; the fifth lost all five. That makes two rows of zeros.
    default_generator().set_state(before);
    print(head.dropout(head.weights(batch)).select(0, 0));

    // From the same place in the stream, what other builds of PyTorch drop.
    {
      const ImitateTorch other(BernoulliRule::plain);
      default_generator().set_state(before);
      print(head.dropout(head.weights(batch)).select(0, 0));
    }

    // The conventions of step 4, with the same weights dropped as at first.
    head.keys_first = true;
    head.scale = std::sqrt(256);
    default_generator().set_state(before);
    print(head(batch));

    // In evaluation nothing is dropped.
    head.keys_first = false;
    head.scale = std::sqrt(2);
    head.eval();
    print(head(batch).select(0, 0));
  }

  // ---- 7. Several heads: a list

  void step_7() {
    // One softmax can follow one thread. Two heads of 8 features each look for two things at once;
    // their outputs are put side by side.
    const ImitateTorch imitate(BernoulliRule::mkl);
    const ModuleList<CausalHead> heads(2, 3, 8, 6, 0.5);
    const Tensor y = cat({heads[0](batch), heads[1](batch)}, -1);
    print(y.shape());
    print(y.select(0, 0));
  }

  // ---- 8. Several heads in one go
  //
  // The heads need no list: one wide product makes the queries of all of them, and a view cuts its
  // features into heads. With the heads in front, (B, heads, N, head_dim), the matrix products run
  // over all at once. A last layer mixes what the heads found.
  struct MultiHead : Module {
    int64_t heads, head_dim;
    Linear wk, wq, wv, out_proj;
    Dropout dropout;
    Buffer mask;

    MultiHead(int64_t d_in, int64_t d_out, int64_t length, double p, int64_t count)
        : heads(count),
          head_dim(d_out / count),
          wk(d_in, d_out, false),
          wq(d_in, d_out, false),
          wv(d_in, d_out, false),
          out_proj(d_out, d_out),
          dropout(p),
          mask(triu(ones({length, length}), 1)) {
      INK_CHECK(d_out % count == 0,
                "multi_head: expected d_out to be a multiple of the number of heads, got ", d_out,
                " and ", count);
    }

    Tensor split_heads(const Tensor& x) const {
      return x.view({x.size(0), x.size(1), heads, head_dim}).transpose(1, 2);
    }
    Tensor operator()(const Tensor& x) const {
      const Tensor k = split_heads(wk(x)), q = split_heads(wq(x)), v = split_heads(wv(x));
      const int64_t n = x.size(1);
      Tensor scores = matmul(q, k.transpose(2, 3));
      scores.masked_fill_(mask.index({Slice({}, n), Slice({}, n)}) > 0, -inf);
      const Tensor weights = dropout(softmax(scores / std::sqrt(head_dim), -1));
      const Tensor joined = matmul(weights, v).transpose(1, 2);  // (B, n, heads, head_dim)
      return out_proj(joined.contiguous().view({x.size(0), n, heads * head_dim}));
    }
    INK_FIELDS(wk, wq, wv, out_proj, dropout, mask)
  };

  void step_8() {
    // It goes on in the random stream of steps 6 and 7: each dropout so far took one number.
    const ImitateTorch imitate(BernoulliRule::mkl);
    const MultiHead attention(3, 16, 6, 0.5, 2);
    const Tensor y = attention(batch);
    print(y.shape());
    print(y.select(0, 0));

    // 16 features cannot be cut into 3 heads.
    try {
      MultiHead(3, 16, 6, 0.5, 3);
    } catch (const Error& error) {
      print(error.what());
    }
  }
};

}  // namespace

Lesson attention_from_scratch() {
  using N = AttentionFromScratch;
  return lesson<N>("attention_from_scratch", {&N::step_1, &N::step_2, &N::step_3, &N::step_4,
                                              &N::step_5, &N::step_6, &N::step_7, &N::step_8});
}

}  // namespace ink
