// Self-attention: causal mask, padding, KV cache
//
// What a language model in service does with attention: sentences of different lengths in one
// batch, and one new token at a time without computing the old ones again.
//
// The run that this follows had set no seed. But every run has one of 2^32, and
//   inkling seedhunt --skip 1078 --rand 0.1245,0.6143,0.4404
// finds it from three of the numbers that it printed (those of step 3).
#include <cmath>
#include <vector>

#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/self_attention.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct PaddingAndCache : Notebook {
  // ---- 1. Logits that do not see the future
  Tensor z, logits, v;
  Linear query{16, 16}, key{16, 16}, value{16, 16};

  void step_1() {
    // Two sentences of eight tokens, 16 features each.
    manual_seed(3308764504);
    z = rand({2, 8, 16});
    query = Linear(16, 16);
    key = Linear(16, 16);
    value = Linear(16, 16);
    const Tensor q = query(z), k = key(z);
    v = value(z);

    // Query i against key j, scaled by the root of the number of features; -inf where j > i.
    logits = matmul(q, k.transpose(1, 2)) / std::sqrt(16);
    logits.masked_fill_(triu(ones({8, 8}), 1) > 0, -inf);
    print(logits.select(0, 0));
  }

  // ---- 2. From logits to weights

  void step_2() {
    // Softmax along the keys. The first token has itself only, the last all eight.
    const Tensor weights = softmax(logits, -1);
    print(weights.select(0, 0));
    print(sums_to_one(weights));
    print(matmul(weights, v).shape());
  }

  // ---- 3. Sentences of different lengths: padding
  Tensor mask;

  void step_3() {
    // Three sentences share a batch of nine columns; the short ones are filled up on the left with
    // id 2. Here are the ids of the first.
    const Tensor ids = tensor({2, 2, 2, 2, 2, 2, 1, 13264, 5509});
    print(ids);

    // The attention mask says what is real: six, four and no pads.
    std::vector<Tensor> rows;
    for (const int64_t pads : {6, 4, 0}) rows.push_back((arange(9) >= pads).to(i64));
    mask = stack(rows);
    print(mask);

    // Nobody shall listen to a pad: the columns of padded keys become -inf, for every query. (B, 9)
    // serves all rows of (B, 9, 9) as (B, 1, 9).
    logits = rand({3, 9, 9});
    print(logits.select(0, 0));
    const Tensor padded = masked_fill(logits, (mask == 0).unsqueeze(1), -inf);
    print(padded.select(0, 0));
    print(softmax(padded, -1).select(0, 0));
  }

  // ---- 4. A module of steps, and rows that see nothing

  void step_4() {
    // SelfAttention does all this, each step in a function that a derived module may replace
    // (nn/self_attention.h), and returns what it came by.
    Tensor z_padded = rand({3, 9, 16});
    const SelfAttention attention(16);
    const auto result = attention(z_padded, mask);
    print(result.output.shape());
    print(result.weights.shape());
    print(result.key.shape());
    print(result.value.shape());

    // Pads on the left and a causal mask leave the first six tokens of the first sentence nothing
    // at all to look at. No weights sum to 1 then; they are zeros.
    print(result.weights.select(0, 0));

    // The notebook got NaN there, 0/0, and so do we if asked to imitate.
    {
      const ImitateTorch imitate(BernoulliRule::mkl);
      print(attention(z_padded, mask).weights.select(0, 0));
    }

    // NaN is not harmless: one backward pass and it is in every parameter. Zeros stay zeros.
    z_padded.requires_grad_();
    sum(attention(z_padded, mask).output).backward();
    print(all(isfinite(z_padded.grad())));
  }

  // ---- 5. One token more: the cache by hand

  void step_5() {
    // When a fifth token comes, keys and values of the first four are what they were, as no token
    // sees a later one. Keep them, and put the new row behind, on dimension 1.
    const Tensor k_old = key(z.narrow(1, 0, 4)), k_new = key(z.narrow(1, 4, 1));
    const Tensor k = cat({k_old, k_new}, 1);
    print(k_old.shape());
    print(k.shape());

    // One query, five keys. The mask of five queries does not fit:
    Tensor scores = matmul(query(z.narrow(1, 4, 1)), k.transpose(1, 2)) / std::sqrt(16);
    scores = scores.detach();
    const Tensor later = (triu(ones({5, 5}), 1) > 0).expand({2, 5, 5});
    print(scores.shape());
    print(later.shape());
    try {
      scores.masked_fill_(later, -inf);
    } catch (const Error& error) {
      print(error.what());
    }

    // What fits is its last row: that query's. It hides nothing, the newest token sees all.
    scores.masked_fill_(later.narrow(1, 4, 1), -inf);
    print(scores);
  }

  // ---- 6. The new token's output, with the cache and without
  Tensor z_old, z_new;

  void step_6() {
    // Four tokens, then a fifth, in a module whose steps we call ourselves.
    const NoGrad no_grad;
    z_old = rand({2, 4, 16});
    z_new = rand({2, 1, 16});
    const SelfAttention attention(16);
    const auto old = attention(z_old);
    const auto fresh = attention.projections(z_new);
    const Tensor k = cat({old.key, fresh.k}, 1), values = cat({old.value, fresh.v}, 1);
    const Tensor scores = attention.causal_mask(attention.logits(fresh.q, k));
    const Tensor cached = attention.mix(attention.weights(scores), values);
    print(cached);

    // Without the cache: all five tokens again, to use the last row only.
    const Tensor whole = attention(cat({z_old, z_new}, 1)).output.narrow(1, 4, 1);
    print(whole);
    print(max(abs(cached - whole)) <= 3e-8);
  }

  // ---- 7. The cache as a part of the module

  void step_7() {
    // KVCache reserves its memory once and writes each new row behind the last, in place; every
    // attention of the library takes one. The same tokens again, in a new module.
    const NoGrad no_grad;
    const SelfAttention attention(16);
    KVCache cache(5);
    attention(z_old, {}, &cache);
    const Tensor cached = attention(z_new, {}, &cache).output;
    print(cached);
    const Tensor whole = attention(cat({z_old, z_new}, 1)).output.narrow(1, 4, 1);
    print(max(abs(cached - whole)) <= 3e-8);
  }
};

}  // namespace

Lesson padding_and_cache() {
  using N = PaddingAndCache;
  return lesson<N>("padding_and_cache", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5,
                                         &N::step_6, &N::step_7});
}

}  // namespace ink
