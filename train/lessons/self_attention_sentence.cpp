// Self-attention on a sentence
//
// One sentence all the way: from words to ids, from ids to vectors, and from the vectors to what
// one word makes of the others. Small enough to check every number by hand.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/embedding.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct SelfAttentionSentence : Notebook {
  // ---- 1. Words to numbers
  Tensor ids;

  void step_1() {
    // A vocabulary gives each word a number, here its place among the sorted words. (A map is
    // sorted by itself; capitals come first.)
    const std::string sentence = "Life is short eat dessert first";
    std::map<std::string, int64_t> vocabulary;
    TextStream in(sentence);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    for (const std::string& word : words) vocabulary[word] = 0;
    int64_t count = 0;
    for (auto& [word, id] : vocabulary) id = count++;
    print(vocabulary);

    std::vector<int64_t> numbers;
    for (const std::string& word : words) numbers.push_back(vocabulary[word]);
    ids = from_vector(numbers);
    print(ids);
  }

  // ---- 2. Numbers to vectors
  Tensor x;

  void step_2() {
    // An embedding is a table with a row for every id, here room for 50,000 of them; looking up is
    // all it does. The rows start as normal random numbers and would be trained; we only look, so
    // we detach.
    manual_seed(123);
    const Embedding table(50000, 3);
    x = table(ids).detach();
    print(x);
    print(x.shape());
  }

  // ---- 3. Queries, keys and values
  Tensor scores, values;

  void step_3() {
    // Queries and keys meet in dot products, so they have the same size, 2. Values are what is
    // handed over; they may have any size, here 4.
    manual_seed(123);
    const Tensor w_query = rand({3, 2}).requires_grad_();
    const Tensor w_key = rand({3, 2}).requires_grad_();
    const Tensor w_value = rand({3, 4}).requires_grad_();

    // The second word, "is", asks all six.
    const Tensor query = matmul(x.select(0, 1), w_query);
    const Tensor keys = matmul(x, w_key);
    values = matmul(x, w_value);
    print(query.shape());
    print(keys.shape());
    print(values.shape());
    print(query);
    print(keys);
    print(values);

    // Its score with the fifth word, and with all of them.
    print(dot(query, keys.select(0, 4)));
    scores = matmul(query, keys.T());
    print(scores);
  }

  // ---- 4. Scores to weights to a context

  void step_4() {
    // A dot product of d random numbers varies like sqrt(d); dividing by sqrt(2) keeps softmax as
    // soft whatever the size of the keys. The word looks mostly at itself.
    const Tensor weights = softmax(scores / std::sqrt(2), 0);
    print(weights);
    print(sums_to_one(weights));
    print(argmax(weights));

    // Without the scale it would hardly look at anything else.
    print(softmax(scores, 0));

    // And what it takes away: four numbers, as wide as the values.
    print(matmul(weights, values));
  }
};

}  // namespace

Lesson self_attention_sentence() {
  using N = SelfAttentionSentence;
  return lesson<N>("self_attention_sentence", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
