// A bridge: a GPT without the library, and with it
//
// You may have read a GPT in two hundred lines of Python. Here it is once more in C++: single
// numbers, a tape, a model, Adam and sampling, without anything of the library. Then the library's
// GPT gets the same weights and the same texts, and has the same losses, step by step. Afterwards
// you know for each part which file does it here, and what it gained.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/ops.h"
#include "nn/gpt.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"

namespace ink {
namespace {

struct Lesson12 : Notebook {
  // ---- 1. A text as numbers
  //
  // The texts are names. Each character is a number, its place in the alphabet; the dot, number 0,
  // stands before and after each name, so that the model learns how names begin and end.
  const std::string alphabet = ".abcdefghijklmnopqrstuvwxyz";
  const std::vector<std::string> names = {"ada",  "bela", "cleo",  "dora", "elena", "fay",
                                          "gina", "hana", "ilona", "jana", "kira",  "lena"};

  std::vector<int64_t> ids_of(const std::string& name) const {
    std::vector<int64_t> ids;
    for (const char c : "." + name + ".") ids.push_back(static_cast<int64_t>(alphabet.find(c)));
    return ids;
  }

  void step_1() {
    // Here: CharTokenizer (data/tokenizer.h). What it gained: any characters, byte pairs, files
    // larger than memory, and shards that several processes read.
    print("ada is", tensor(ids_of("ada")));
  }

  // ---- 2. A tape
  //
  // Whatever is computed from numbers is written on a tape, one line for each op.

  // A number on the tape, named by its place. The tape holds for each number what it is, and for up
  // to two inputs where they stand and its slope with respect to each.
  struct Number {
    size_t at;
    friend Number operator+(Number a, Number b) { return put(of(a) + of(b), a, 1, b, 1); }
    friend Number operator-(Number a, Number b) { return put(of(a) - of(b), a, 1, b, -1); }
    friend Number operator*(Number a, Number b) { return put(of(a) * of(b), a, of(b), b, of(a)); }
    friend Number operator*(Number a, double b) { return put(of(a) * b, a, b); }
    friend Number operator+(Number a, double b) { return put(of(a) + b, a, 1); }
  };
  struct Entry {
    double value;
    std::array<size_t, 2> inputs;
    std::array<double, 2> slopes;
  };
  inline static std::vector<Entry> tape;

  static Number put(double value, Number a = {0}, double da = 0, Number b = {0}, double db = 0) {
    tape.push_back({value, {a.at, b.at}, {da, db}});
    return {tape.size() - 1};
  }
  static double of(Number x) { return tape[x.at].value; }

  static Number power(Number a, double p) {
    return put(std::pow(of(a), p), a, p * std::pow(of(a), p - 1));
  }
  static Number exponential(Number a) { return put(std::exp(of(a)), a, std::exp(of(a))); }
  static Number logarithm(Number a) { return put(std::log(of(a)), a, 1 / of(a)); }
  static Number tangent(Number a) {  // tanh
    const double y = std::tanh(of(a));
    return put(y, a, 1 - y * y);
  }

  // The gradient of the last number on the tape with respect to all. Each was put there after its
  // inputs, so backward is one walk from the end.
  static std::vector<double> gradients() {
    std::vector<double> grad(tape.size());
    grad.back() = 1;
    for (size_t i = tape.size(); i-- > 0;)
      for (size_t k = 0; k < 2; ++k) grad[tape[i].inputs[k]] += grad[i] * tape[i].slopes[k];
    return grad;
  }

  void step_2() {
    // Here: an op (autograd/ops/softmax.cpp is the one to copy) works on whole tensors, and records
    // one node for all of their numbers. Instead of slopes, a node has a function that multiplies
    // by them. The engine is autograd/engine/backward.cpp. What it gained: memory is freed as
    // backward passes, gradients of gradients, and errors with names.
    tape.clear();
    const Number x = put(0.5), y = put(2);
    const Number z = tangent(x * y) + x;
    const std::vector<double> grad = gradients();
    print("z =", fixed(of(z), 6), "dx =", fixed(grad[x.at], 6), "dy =", fixed(grad[y.at], 6));
  }

  // ---- 3. A GPT of such numbers

  using Vector = std::vector<Number>;
  using Matrix = std::vector<Vector>;  // rows

  static Number total(const Vector& x) {
    Number sum = x[0];
    for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
    return sum;
  }
  static Number dot(const Vector& a, const Vector& b) {
    Vector products;
    for (size_t i = 0; i < a.size(); ++i) products.push_back(a[i] * b[i]);
    return total(products);
  }
  static Vector times(const Matrix& w, const Vector& x) {
    Vector y;
    for (const Vector& row : w) y.push_back(dot(row, x));
    return y;
  }
  static Vector add(const Vector& a, const Vector& b) {
    Vector y;
    for (size_t i = 0; i < a.size(); ++i) y.push_back(a[i] + b[i]);
    return y;
  }
  static Vector normalised(const Vector& x, const Vector& weight) {
    const double n = static_cast<double>(x.size());
    const Number mean = total(x) * (1 / n);
    Vector centred, y;
    for (const Number& each : x) centred.push_back(each - mean);
    const Number rstd = power(dot(centred, centred) * (1 / n) + 1e-5, -0.5);
    for (size_t i = 0; i < x.size(); ++i) y.push_back(centred[i] * rstd * weight[i]);
    return y;
  }
  static Vector probabilities(const Vector& scores) {  // softmax
    double largest = of(scores[0]);
    for (const Number& s : scores) largest = std::max(largest, of(s));
    Vector e, y;
    for (const Number& s : scores) e.push_back(exponential(s + -largest));
    const Number share = power(total(e), -1);
    for (const Number& each : e) y.push_back(each * share);
    return y;
  }
  static Number smooth_relu(Number x) {  // gelu, with tanh
    const Number inner = (x + power(x, 3) * 0.044715) * std::sqrt(2 / std::acos(-1.0));
    return x * 0.5 * (tangent(inner) + 1);
  }

  static constexpr size_t kWidth = 8, kHeads = 2, kContext = 8;

  struct ScalarBlock {
    Matrix ln_1, qkv, proj, ln_2, fc, out;  // the norms have one row
  };
  struct ScalarGpt {
    Matrix wte, wpe, ln_f;
    std::vector<ScalarBlock> blocks;
  };

  // The logits after the token at `position`. Keys and values of all positions so far are kept.
  struct Memory {
    std::vector<Matrix> keys, values;  // of each block, a row for each position
  };
  static Vector logits(const ScalarGpt& model, size_t token, size_t position, Memory& memory) {
    memory.keys.resize(model.blocks.size());
    memory.values.resize(model.blocks.size());
    Vector x = add(model.wte[token], model.wpe[position]);
    for (size_t b = 0; b < model.blocks.size(); ++b) {
      const ScalarBlock& block = model.blocks[b];
      const Vector qkv = times(block.qkv, normalised(x, block.ln_1[0]));
      const auto part = [&](size_t i) {
        const auto begin = qkv.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
        return Vector(begin, begin + static_cast<std::ptrdiff_t>(kWidth));
      };
      const Vector query = part(0);
      memory.keys[b].push_back(part(1));
      memory.values[b].push_back(part(2));
      Vector mixed;
      constexpr size_t d = kWidth / kHeads;
      for (size_t head = 0; head < kHeads; ++head) {
        const auto of_head = [&](const Vector& whole) {
          const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(head * d);
          return Vector(begin, begin + static_cast<std::ptrdiff_t>(d));
        };
        Vector scores;
        for (const Vector& key : memory.keys[b])
          scores.push_back(dot(of_head(query), of_head(key)) * (1 / std::sqrt(double{d})));
        const Vector weights = probabilities(scores);
        for (size_t i = head * d; i < (head + 1) * d; ++i) {
          Vector column;
          for (const Vector& value : memory.values[b]) column.push_back(value[i]);
          mixed.push_back(dot(weights, column));
        }
      }
      x = add(x, times(block.proj, mixed));
      Vector hidden = times(block.fc, normalised(x, block.ln_2[0]));
      for (Number& h : hidden) h = smooth_relu(h);
      x = add(x, times(block.out, hidden));
    }
    return times(model.wte, normalised(x, model.ln_f[0]));
  }

  // The mean of -log p over the characters that follow.
  static Number loss_of(const ScalarGpt& model, const std::vector<int64_t>& ids) {
    Memory memory;
    Vector losses;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Vector p = probabilities(logits(model, static_cast<size_t>(ids[i]), i, memory));
      losses.push_back(logarithm(p[static_cast<size_t>(ids[i + 1])]) * -1);
    }
    return total(losses) * (1 / static_cast<double>(losses.size()));
  }

  std::unique_ptr<GPT> model;
  ScalarGpt scalars;
  size_t parameters = 0;

  static Matrix rows_of(const Tensor& x) {
    const std::vector<double> values = x.detach().tolist();
    const auto width = static_cast<size_t>(x.size(-1));
    Matrix rows(values.size() / width);
    for (size_t i = 0; i < values.size(); ++i) rows[i / width].push_back(put(values[i]));
    return rows;
  }

  // The library's loss of a name, as a graph.
  Tensor loss_here(const std::string& name) const {
    const std::vector<int64_t> ids = ids_of(name);
    const Tensor all = tensor(ids).unsqueeze(0);
    const int64_t T = std::ssize(ids) - 1;
    return model->loss(all.narrow(1, 0, T), all.narrow(1, 1, T));
  }

  void step_3() {
    // The library draws the weights, and the tape begins with a copy of each. Here: nn/linear.h,
    // nn/layer_norm.h, nn/attention.h and nn/mlp.h are the parts, and nn/gpt.h the model.
    context().default_dtype = f64;
    manual_seed(1);
    GPTConfig config;
    config.block_size = kContext;
    config.vocab_size = std::ssize(alphabet);
    config.n_layer = 1;
    config.n_head = kHeads;
    config.n_embd = kWidth;
    config.bias = false;
    model = std::make_unique<GPT>(config);
    tape.clear();
    scalars.wte = rows_of(model->wte.weight);
    scalars.wpe = rows_of(model->wpe.weight);
    scalars.ln_f = rows_of(model->ln_f.weight);
    scalars.blocks.clear();
    for (const auto& block : model->h)
      scalars.blocks.push_back({rows_of(block->ln_1.weight), rows_of(block->attn->c_attn.weight),
                                rows_of(block->attn->c_proj.weight), rows_of(block->ln_2.weight),
                                rows_of(block->mlp->c_fc.weight),
                                rows_of(block->mlp->c_proj.weight)});
    parameters = tape.size();
    print("parameters: tape", parameters, "library", model->num_parameters());

    // The same name has the same loss and the same gradients.
    const Number loss = loss_of(scalars, ids_of("elena"));
    const size_t numbers = tape.size() - parameters;
    const std::vector<double> grad = gradients();
    const uint64_t before = Node::made;
    const Tensor same = loss_here("elena");
    const uint64_t nodes = Node::made - before;
    same.backward();
    print("loss:      tape", fixed(of(loss), 10), "library", fixed(same.item(), 10));
    const std::vector<double> wte = model->wte.weight.grad().tolist();
    double largest = 0;
    for (size_t i = 0; i < wte.size(); ++i) largest = std::max(largest, std::abs(grad[i] - wte[i]));
    print("gradients of wte are equal within 1e-12:", largest < 1e-12);
    print("the tape recorded", numbers, "numbers, the library", nodes, "nodes");
    tape.resize(parameters);
  }

  // ---- 4. Training, side by side
  //
  // A step takes one name. The library's AdamW without weight decay is Adam.

  // Adam, of the first `count` numbers on the tape: the parameters.
  struct ScalarAdam {
    std::vector<double> m, v;
    int64_t t = 0;
    void step(size_t count, const std::vector<double>& grad, double lr) {
      m.resize(count);
      v.resize(count);
      ++t;
      for (size_t i = 0; i < count; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * grad[i];
        v[i] = 0.95 * v[i] + 0.05 * grad[i] * grad[i];
        const double mean = m[i] / (1 - std::pow(0.9, static_cast<double>(t))),
                     square = v[i] / (1 - std::pow(0.95, static_cast<double>(t)));
        tape[i].value -= lr * mean / (std::sqrt(square) + 1e-8);
      }
    }
  };

  void step_4() {
    // Here: train/optimizer.h, whose step is one pass over all parameters
    // (autograd/loops/optimizer.cpp), and train/trainer.h, whose steps can be stopped and resumed
    // to the same bits.
    AdamW optimizer(model->named_parameters(), {.lr = 0.02, .beta2 = 0.95, .weight_decay = 0});
    ScalarAdam adam;
    double apart = 0;
    for (size_t step = 0; step < 48; ++step) {
      const std::string& name = names[step % names.size()];
      const double loss = of(loss_of(scalars, ids_of(name)));
      adam.step(parameters, gradients(), 0.02);
      tape.resize(parameters);

      const Tensor same = loss_here(name);
      optimizer.zero_grad();
      same.backward();
      optimizer.step();
      apart = std::max(apart, std::abs(loss - same.item()));
      if (step % 12 == 11)
        print("step", step + 1, "loss: tape", fixed(loss, 6), "library", fixed(same.item(), 6));
    }
    print("all 48 are equal within 1e-9:", apart < 1e-9);
  }

  // ---- 5. It writes

  void step_5() {
    // The likeliest character, again and again, until the dot. Here: LanguageModel::generate
    // (nn/language_model.cpp), with temperature, top-k and top-p, a cache for a whole batch, and
    // random numbers that do not depend on threads.
    for (const std::string begin : {"a", "d", "k", "l"}) {
      std::string name = begin;
      Memory memory;
      Vector after = logits(scalars, 0, 0, memory);
      for (size_t i = 1; i < kContext; ++i) {
        after = logits(scalars, alphabet.find(name.back()), i, memory);
        size_t best = 0;
        for (size_t c = 1; c < after.size(); ++c)
          if (of(after[c]) > of(after[best])) best = c;
        if (best == 0) break;
        name += alphabet[best];
      }
      tape.resize(parameters);
      const NoGrad no_grad;
      const GenerateOptions likeliest{.max_new_tokens = 6, .temperature = 0};
      std::vector<int64_t> start = ids_of(begin);
      start.pop_back();
      std::string same;
      for (const int64_t id :
           model->generate(tensor(start).unsqueeze(0), likeliest).tolist<int64_t>())
        same += alphabet[static_cast<size_t>(id)];
      print("tape:", name, "library:", same.substr(1, same.find('.', 1) - 1));
    }

    // What it gained in time: a step on the name "elena" took 0.63 ms on the tape and 0.06 ms in
    // the library. With a width of 64 instead of 8 it was 45 ms and 0.64 ms (one core of a Xeon
    // with AVX-512). The larger a tensor, the more of its numbers share one node and one read of
    // memory. And what is written once for tensors runs on a GPU, in bf16, and in parts of a batch.
    // What it took, in lines: `./run.sh lesson 12` counts those of each part, and of the files that
    // do it in the library.
    //
    // To try: give both of them a second block (n_layer = 2) and compare again. Then change one
    // sign in normalised(), and see at which step you notice.
  }
};

}  // namespace

Lesson lesson_12() {
  using N = Lesson12;
  return lesson<N>("12_bridge", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
