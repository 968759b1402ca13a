// Three steps of the trainer written out by hand: the model in f64 and basic ops, two micro-batches
// whose targets count alike, clipping, AdamW by its formula, and the schedule. What the trainer
// does is held against that, and not against the trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/memory/storage.h"
#include "autograd/ops.h"
#include "autograd/random/generator.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"
#include "train/trainer.h"

namespace ink {
namespace {

constexpr int64_t kBatch = 2, kBlock = 6, kMicroBatches = 2, kSteps = 3, kWindows = 5;

// Rows that are formulas of their numbers. Some targets count nothing, so that neither rows nor
// micro-batches have equally many.
class Formulas : public Dataset {
 public:
  const Tokenizer& tokenizer() const override { return bytes_; }
  std::string summary() const override { return "formulas"; }
  int64_t val_windows(int64_t) const override { return kWindows; }

  static int64_t x(uint64_t number, uint64_t i) {
    return static_cast<int64_t>((number * 7 + i * i) % 61);
  }
  static int64_t y(uint64_t number, uint64_t i) {
    return (number + i) % 5 == 0 || i < number % 4 ? -100 : (x(number, i) * 3 + 1) % 61;
  }
  static double best_possible(uint64_t number, uint64_t i) {
    return 0.25 * static_cast<double>((number + i * i) % 7);
  }
  // Where the trainer finds row `row` of a step.
  static uint64_t number(int64_t step, int64_t row) {
    return static_cast<uint64_t>(step) << 24 | static_cast<uint64_t>(row);
  }

 private:
  bool knows_best_possible() const override { return true; }
  void fill_train_row(uint64_t, uint64_t number, Row row) const override {
    for (uint64_t i = 0; i < row.x.size(); ++i) {
      row.x[i] = x(number, i);
      row.y[i] = y(number, i);
      row.best_possible[i] = static_cast<float>(best_possible(number, i));
    }
  }
  void fill_val_row(int64_t window, Row row) const override {
    fill_train_row(0, static_cast<uint64_t>(window), row);
  }
  ByteTokenizer bytes_;
};

// A batch as the definitions below read it.
struct Rows {
  explicit Rows(const std::vector<uint64_t>& numbers) {
    std::vector<int64_t> ids, following;
    for (const uint64_t number : numbers) {
      for (uint64_t i = 0; i < kBlock; ++i) {
        ids.push_back(Formulas::x(number, i));
        const int64_t next = Formulas::y(number, i);
        following.push_back(std::max<int64_t>(next, 0));
        counts.push_back(next == -100 ? 0 : 1);
        targets += counts.back();
        best_possible += Formulas::best_possible(number, i);
      }
    }
    x = from_vector(ids).view({std::ssize(numbers), kBlock});
    y = from_vector(following);
  }
  Tensor x, y;                 // (B, T), (B T)
  std::vector<double> counts;  // 1 for each target that counts
  double targets = 0, best_possible = 0;
};

TrainConfig config_of(const TempFolder& folder, double dropout, int64_t parts) {
  TrainConfig config;
  config.device = test_device_name();
  config.out_dir = folder.path().string();
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 8;
  config.block_size = kBlock;
  config.dropout = dropout;
  config.batch_size = kBatch;
  config.gradient_accumulation_steps = kMicroBatches;
  config.batch_parts = parts;
  config.max_iters = 5;
  config.warmup_iters = 1;
  config.learning_rate = 3e-3;
  config.min_lr = 1e-3;
  config.beta1 = 0.8;
  config.beta2 = 0.95;
  config.weight_decay = 0.3;
  config.grad_clip = 2.3;
  config.z_loss = 0.02;
  config.seed = 42;
  return config;
}

// What TrainConfig says, step by step, in f64.
class ByHand {
 public:
  ByHand(const TrainConfig& config, const LanguageModel& model) : config_(config) {
    for (const auto& [name, p] : model.named_parameters()) {
      w_[name] = p.detach().to(f64).clone().requires_grad_();
      m_[name] = v_[name] = zeros(p.shape(), f64);
    }
  }

  void step() {
    std::vector<Rows> batches;
    double targets = 0, best = 0;
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      std::vector<uint64_t> numbers;
      for (int64_t row = 0; row < kBatch; ++row)
        numbers.push_back(Formulas::number(steps_, i * kBatch + row));
      batches.emplace_back(numbers);
      targets += batches.back().targets;
      best += batches.back().best_possible;
    }
    EXPECT_NE(batches[0].targets, batches[1].targets) << "what would not be told apart";
    best_possible = best / (kMicroBatches * kBatch * kBlock);
    std::vector<Tensor> leaves;
    for (const auto& entry : w_) leaves.push_back(entry.second);
    Tensor total = zeros({}, f64);
    for (uint64_t i = 0; i < kMicroBatches; ++i) {
      const ContextGuard guard;
      context().random = {.seed = static_cast<uint64_t>(config_.seed),
                          .step = static_cast<uint64_t>(steps_),
                          .micro_batch = i};
      total = total + summed_loss(batches[i], config_.dropout, config_.z_loss);
    }
    const Tensor mean_loss = total / targets;
    const Grads grads = grad({mean_loss}, leaves);
    loss = mean_loss.item();
    lr = rate(steps_++);
    update(grads);
  }

  // Of all validation windows, without dropout.
  Evaluation evaluate() {
    const NoGrad no_grad;
    std::vector<uint64_t> windows;
    for (uint64_t window = 0; window < kWindows; ++window) windows.push_back(window);
    const Rows rows(windows);
    return {summed_loss(rows, 0, 0).item() / rows.targets, rows.best_possible / (kWindows * kBlock),
            static_cast<int64_t>(rows.targets)};
  }

  const std::map<std::string, Tensor>& parameters() const { return w_; }
  const std::map<std::string, Tensor>& moments(int which) const { return which == 1 ? m_ : v_; }
  double loss = 0, lr = 0, grad_norm = 0, best_possible = 0;  // of the last step

 private:
  double rate(int64_t step) const {
    if (step < 1) return config_.learning_rate * 1 / 2;  // on the way up
    const double done = static_cast<double>(step - 1) / 4;
    return config_.min_lr +
           (config_.learning_rate - config_.min_lr) * (1 + std::cos(std::numbers::pi * done)) / 2;
  }

  void update(const Grads& grads) {
    const NoGrad no_grad;
    double squares = 0;
    for (const Tensor& g : grads) squares += sum(g * g).item();
    grad_norm = std::sqrt(squares);
    const double clip = std::min(1.0, config_.grad_clip / (grad_norm + 1e-6));
    const double b1 = config_.beta1, b2 = config_.beta2, t = static_cast<double>(steps_);
    size_t i = 0;
    for (auto& [name, p] : w_) {
      const Tensor g = grads[i++] * clip;
      m_[name] = m_[name] * b1 + g * (1 - b1);
      v_[name] = v_[name] * b2 + g * g * (1 - b2);
      const Tensor m_hat = m_[name] / (1 - std::pow(b1, t)),
                   v_hat = v_[name] / (1 - std::pow(b2, t));
      const double decay = p.dim() >= 2 ? config_.weight_decay : 0;  // matrices alone
      p = (p * (1 - lr * decay) - m_hat / (sqrt(v_hat) + 1e-8) * lr).detach().requires_grad_();
    }
  }

  // ---- the model: Radford et al. 2019, in nanoGPT's order of draws

  Tensor linear_of(const Tensor& x, const std::string& name) const {
    return matmul(x, w_.at(name + ".weight").transpose(0, 1));
  }
  Tensor norm(const Tensor& x, const std::string& name) const {
    const Tensor centred = x - mean(x, {-1}, true);
    return centred / sqrt(mean(centred * centred, {-1}, true) + 1e-5) * w_.at(name + ".weight");
  }
  Tensor attention(const Tensor& x, const std::string& name, double p) const {
    const int64_t B = x.size(0), C = config_.n_embd, heads = config_.n_head, width = C / heads;
    const Tensor qkv = linear_of(x, name + ".c_attn");
    const auto part = [&](int64_t i) {
      return qkv.narrow(2, i * C, C).reshape({B, kBlock, heads, width}).transpose(1, 2);
    };
    const Tensor at = arange(kBlock, i64), later = at > at.unsqueeze(1);
    const Tensor scores = matmul(part(0), part(1).transpose(2, 3)) / std::sqrt(double(width));
    const Tensor e = masked_fill(exp(scores), later, 0);
    const Tensor y = matmul(dropout(e / sum(e, {-1}, true), p), part(2));
    return dropout(linear_of(y.transpose(1, 2).reshape(x.shape()), name + ".c_proj"), p);
  }
  Tensor mlp(const Tensor& x, const std::string& name, double p) const {
    const Tensor a = linear_of(x, name + ".c_fc");
    const Tensor inner = (a + a * a * a * 0.044715) * std::sqrt(2 / std::numbers::pi);
    return dropout(linear_of(a * (tanh(inner) + 1) * 0.5, name + ".c_proj"), p);
  }
  // The sum of -log p(target) + z log^2 sum exp logits over the targets that count.
  Tensor summed_loss(const Rows& rows, double p, double z) const {
    Tensor x = dropout(w_.at("wte.weight").index(rows.x) + w_.at("wpe.weight"), p);
    for (int64_t i = 0; i < config_.n_layer; ++i) {
      const std::string block = "h." + std::to_string(i) + ".";
      x = x + attention(norm(x, block + "ln_1"), block + "attn", p);
      x = x + mlp(norm(x, block + "ln_2"), block + "mlp", p);
    }
    const Tensor logits = matmul(norm(x, "ln_f"), w_.at("wte.weight").transpose(0, 1));
    const Tensor flat = logits.reshape({rows.y.numel(), logits.size(2)});
    const Tensor chosen = gather(flat, 1, rows.y.unsqueeze(1)).reshape({rows.y.numel()});
    const Tensor lse = log(sum(exp(flat), {1}));
    return sum((lse - chosen + z * lse * lse) * from_vector(rows.counts));
  }

  const TrainConfig config_;
  std::map<std::string, Tensor> w_, m_, v_;
  int64_t steps_ = 0;
};

void expect_close(const Tensor& got, const Tensor& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  EXPECT_LE(max(abs(got.detach().to(f64) - expected.detach())).item(), tolerance) << what;
}

void expect_same_state(Trainer& trainer, const ByHand& hand, const std::string& when) {
  for (const auto& [name, p] : trainer.model().named_parameters())
    expect_close(p, hand.parameters().at(name), 1e-5, when + name);
  for (const auto& [name, state] : trainer.optimizer().state()) {
    const int which = name.starts_with("exp_avg.") ? 1 : name.starts_with("exp_avg_sq.") ? 2 : 0;
    if (which == 0) continue;
    const Tensor& expected = hand.moments(which).at(name.substr(name.find('.') + 1));
    expect_close(state, expected, 1e-5 * max(abs(expected)).item() + 1e-8, when + name);
  }
}

void expect_steps_by_hand(double dropout, int64_t parts) {
  const ContextGuard guard;
  context().observers.clear();  // one that looks on keeps the trainer to one part
  const TempFolder folder;
  Trainer trainer(config_of(folder, dropout, parts), std::make_unique<Formulas>());
  {
    const NoGrad no_grad;  // weights that matter: attention looks somewhere
    for (Tensor p : trainer.model().parameters())
      if (p.dim() >= 2) p.mul_(10);
  }
  ByHand hand(trainer.config(), trainer.model());
  bool clipped = false, whole = false;
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::string when = "step " + std::to_string(step) + ": ";
    trainer.step();
    hand.step();
    const Progress got = trainer.progress();
    EXPECT_NEAR(got.loss, hand.loss, 2e-6 * hand.loss) << when;
    EXPECT_DOUBLE_EQ(got.lr, hand.lr) << when;
    EXPECT_NEAR(got.grad_norm, hand.grad_norm, 1e-5 * hand.grad_norm) << when;
    EXPECT_DOUBLE_EQ(got.best_possible.value(), hand.best_possible) << when;
    EXPECT_EQ(got.tokens, kMicroBatches * kBatch * kBlock);
    expect_same_state(trainer, hand, when);
    (hand.grad_norm > trainer.config().grad_clip ? clipped : whole) = true;
    const Evaluation evaluated = trainer.evaluate(true), expected = hand.evaluate();
    EXPECT_NEAR(evaluated.loss, expected.loss, 2e-6 * expected.loss) << when;
    EXPECT_DOUBLE_EQ(evaluated.best_possible.value(), expected.best_possible.value()) << when;
    EXPECT_EQ(evaluated.tokens, expected.tokens) << when;
    trainer.model().eval();  // as before a sample; the next step drops again
  }
  EXPECT_TRUE(clipped && whole) << "some gradients are clipped, and others not";
}

// A step without a target changes nothing and has no loss; the mean is that of the others.
class Silent : public Dataset {
 public:
  const Tokenizer& tokenizer() const override { return bytes_; }
  std::string summary() const override { return "silent"; }
  int64_t val_windows(int64_t) const override { return kWindows; }

 private:
  void fill_train_row(uint64_t, uint64_t number, Row row) const override {
    for (uint64_t i = 0; i < row.x.size(); ++i) {
      row.x[i] = Formulas::x(number, i);
      row.y[i] = number >> 24 == 1 ? -100 : 7;
    }
  }
  void fill_val_row(int64_t window, Row row) const override {
    fill_train_row(0, static_cast<uint64_t>(window), row);
  }
  ByteTokenizer bytes_;
};

TEST(TrainerSteps, WithoutATargetDoNotCount) {
  const TempFolder folder;
  for (const int64_t parts : {1, 2}) {
    Trainer one_by_one(config_of(folder, 0, parts), std::make_unique<Silent>()),
        trainer(config_of(folder, 0, parts), std::make_unique<Silent>());
    double sum = 0;
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor before = one_by_one.model().parameters()[0].detach().clone();
      one_by_one.step();
      trainer.step();
      const double loss = one_by_one.progress().loss;
      EXPECT_EQ(std::isnan(loss), step == 1);
      EXPECT_EQ(equal(before, one_by_one.model().parameters()[0].detach()), step == 1);
      if (step != 1) sum += loss;
    }
    EXPECT_NEAR(trainer.progress().loss, sum / 2, 1e-6);
    EXPECT_EQ(trainer.skipped().total, 0);
    const Evaluation evaluation = trainer.evaluate();
    EXPECT_DOUBLE_EQ(evaluation.bits_per_byte().value(), evaluation.loss / std::numbers::ln2);
  }
}

// Bytes, of which 7 ends a document.
class Ends : public Tokenizer {
 public:
  std::string name() const override { return bytes_.name(); }
  int64_t vocab_size() const override { return bytes_.vocab_size(); }
  std::vector<int64_t> encode(std::string_view text) const override { return bytes_.encode(text); }
  std::string decode(std::span<const int64_t> ids) const override { return bytes_.decode(ids); }
  std::string to_json() const override { return bytes_.to_json(); }
  int64_t end_of_text() const override { return 7; }

 private:
  ByteTokenizer bytes_;
};
class Documents : public Silent {
 public:
  const Tokenizer& tokenizer() const override { return ends_; }

 private:
  void fill_val_row(int64_t, Row row) const override {
    for (uint64_t i = 0; i < row.x.size(); ++i) row.x[i] = 7, row.y[i] = i % 2 == 0 ? 7 : 8;
  }
  Ends ends_;
};

// The end of a document costs bits, and is no byte of the text.
TEST(TrainerSteps, EndsOfDocumentsAreNoBytes) {
  const TempFolder folder;
  const Trainer trainer(config_of(folder, 0, 1), std::make_unique<Documents>());
  const Evaluation found = trainer.evaluate();
  ASSERT_EQ(found.tokens % 2, 0);
  EXPECT_EQ(found.bytes, found.tokens / 2);
  EXPECT_DOUBLE_EQ(found.bits_per_byte().value(), found.loss / std::numbers::ln2 * 2);
}

TEST(TrainerSteps, AreTheFormulas) { expect_steps_by_hand(0, 1); }

TEST(TrainerSteps, AreTheFormulasInPartsOfABatch) { expect_steps_by_hand(0, 2); }

// Masks are keyed by step, micro-batch and row; evaluation has none.
TEST(TrainerSteps, DropWhatTheirKeysSay) {
  expect_steps_by_hand(0.2, 1);
  expect_steps_by_hand(0.2, 2);
}

// What an exception ended is repeated whole: neither gradients nor sums of it are left.
TEST(TrainerSteps, AreRepeatedAfterAnException) {
  const ContextGuard guard;
  context().observers.clear();
  for (const int64_t parts : {1, 2}) {
    for (const int throws_at : {1, 2}) {
      const TempFolder folder;
      Trainer straight(config_of(folder, 0.2, parts), std::make_unique<Formulas>()),
          stopped(config_of(folder, 0.2, parts), std::make_unique<Formulas>());
      int calls = 0, thrown = 0;
      Tensor first = stopped.model().parameters()[0], same = straight.model().parameters()[0];
      same.register_post_accumulate_grad_hook([](const Tensor&) {});  // sums in the same order
      first.register_post_accumulate_grad_hook([&](const Tensor&) {
        if (++calls == throws_at) throw Error("stop");
      });
      for (int64_t step = 0; step < 2; ++step) straight.step();
      while (stopped.steps_done() < 2) thrown += error_of([&] { stopped.step(); }) == "stop";
      EXPECT_EQ(thrown, 1);
      const auto expected = straight.model().parameters(), got = stopped.model().parameters();
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(equal(got[i].detach(), expected[i].detach())) << parts << " " << throws_at;
      const Progress by_hand = straight.progress(), progress = stopped.progress();
      EXPECT_EQ(progress.loss, by_hand.loss);
      EXPECT_EQ(progress.grad_norm, by_hand.grad_norm);
      EXPECT_EQ(progress.best_possible.value(), by_hand.best_possible.value());
      EXPECT_EQ(progress.tokens, by_hand.tokens);
    }
  }
}

// A caller's gradients and NoGrad are not the step's.
TEST(TrainerSteps, TakeNothingFromTheCaller) {
  const TempFolder folder;
  Trainer expected(config_of(folder, 0, 1), std::make_unique<Formulas>()),
      trainer(config_of(folder, 0, 1), std::make_unique<Formulas>());
  Tensor first = trainer.model().parameters()[0];
  first.set_grad(full_like(first.detach(), 1e3));
  expected.step();
  {
    const NoGrad no_grad;
    trainer.step();
  }
  EXPECT_EQ(trainer.progress().grad_norm, expected.progress().grad_norm);
}

// The mean is that of the steps that count; without any there is none.
TEST(TrainerSteps, ThatAreSkippedDoNotCountInTheLoss) {
  const ContextGuard guard;
  context().observers.clear();
  for (const int64_t parts : {1, 2}) {
    const TempFolder folder;
    Trainer one_by_one(config_of(folder, 0, parts), std::make_unique<Formulas>()),
        trainer(config_of(folder, 0, parts), std::make_unique<Formulas>());
    const auto step = [](Trainer& of, bool spoilt) {
      const NoGrad no_grad;
      Tensor weight = of.model().parameters()[0].detach();
      const Tensor before = weight.clone();
      if (spoilt) weight.fill_(INFINITY);
      of.step();
      if (spoilt) weight.copy_(before);
    };
    double sum = 0;
    for (int64_t i = 0; i < 5; ++i) {
      const bool spoilt = i == 1 || i == 3;
      step(one_by_one, spoilt);
      step(trainer, spoilt);
      const Progress progress = one_by_one.progress();
      EXPECT_EQ(std::isnan(progress.loss), spoilt);
      EXPECT_EQ(progress.best_possible.has_value(), !spoilt);
      if (!spoilt) sum += progress.loss;
    }
    const Progress progress = trainer.progress();
    EXPECT_NEAR(progress.loss, sum / 3, 1e-6);
    EXPECT_EQ(progress.skipped, 2);
    trainer.save("ckpt");  // what was skipped before counts no more
    TrainConfig config = config_of(folder, 0, parts);
    config.init_from = "resume";
    Trainer resumed(config, std::make_unique<Formulas>());
    resumed.step();
    step(trainer, false);
    EXPECT_EQ(resumed.progress().loss, trainer.progress().loss);
  }
}

TEST(TrainerSteps, OfAnotherTrainerAreNotReplaced) {
  const TempFolder folder;
  TrainConfig config = config_of(folder, 0, 1);
  const auto trainer_of = [&] { return Trainer(config, std::make_unique<Formulas>()); };
  Trainer first = trainer_of(), second = trainer_of();
  first.step();
  first.save("ckpt");
  const std::string told = error_of([&] { second.save("ckpt"); });
  EXPECT_EQ(told.rfind("save: " + config.out_dir + "/ckpt: another trainer saved it", 0), 0u)
      << told;
  EXPECT_EQ(error_of([&] { second.save("best"); }), "(no error)");
  first.save("ckpt");  // its own
  config.init_from = "resume";
  Trainer resumed = trainer_of();
  EXPECT_EQ(resumed.steps_done(), 1);
  resumed.step();
  resumed.save("ckpt");
  EXPECT_NE(error_of([&] { first.save("ckpt"); }), "(no error)");  // it has fewer steps
  EXPECT_EQ(trainer_of().steps_done(), 2);
}

// What a program draws between two steps goes on where the checkpoint was made.
TEST(TrainerSteps, TheDefaultGeneratorIsSaved) {
  const TempFolder folder;
  TrainConfig config = config_of(folder, 0, 1);
  Trainer first(config, std::make_unique<Formulas>());
  manual_seed(5);
  randn({3});  // one of a pair is left over
  first.step();
  first.save("ckpt");
  const auto expected = randn({40}).tolist();
  manual_seed(6);
  config.init_from = "resume";
  Trainer resumed(config, std::make_unique<Formulas>());
  EXPECT_EQ(randn({40}).tolist(), expected);
}

// What was measured on another set stays in the checkpoint until it is measured again.
TEST(TrainerSteps, KeepTheBestOfAnotherSet) {
  const TempFolder folder;
  TrainConfig config = config_of(folder, 0, 1);
  const auto trainer_of = [&] { return Trainer(config, std::make_unique<Formulas>()); };
  Trainer first = trainer_of();
  first.step();
  EXPECT_TRUE(first.note_validation(1.5));
  first.save("best");
  first.save("ckpt");
  const nlohmann::json before = checkpoint_state(config.out_dir, "ckpt");
  config.init_from = "resume";
  config.eval_iters = 3;
  for (int turn = 0; turn < 2; ++turn) {
    Trainer resumed = trainer_of();
    EXPECT_TRUE(resumed.best_is_of_another_set());
    resumed.save("ckpt");  // as an interrupt does
    const nlohmann::json now = checkpoint_state(config.out_dir, "ckpt");
    for (const char* name : {"best_val_loss", "best_step", "validation_set"})
      EXPECT_EQ(now.at(name), before.at(name)) << name;
  }
  Trainer stopped = trainer_of();
  stopped.measure_best_again([](double done) { return done > 0; });
  EXPECT_TRUE(stopped.best_is_of_another_set()) << "a part of it is no measurement";
  EXPECT_TRUE(stopped.note_validation(2)) << "whatever the other set said";
  EXPECT_FALSE(stopped.best_is_of_another_set());
  Trainer measured = trainer_of();
  measured.measure_best_again();
  EXPECT_FALSE(measured.best_is_of_another_set());
  measured.save("ckpt");
  EXPECT_NE(checkpoint_state(config.out_dir, "ckpt").at("validation_set"),
            before.at("validation_set"));
}

// A model whose loss has a dimension, and with a mask of minus infinity among its buffers.
struct Masked : LanguageModel {
  Embedding table;
  Linear head;
  Buffer mask;
  explicit Masked(const GPTConfig& c)
      : LanguageModel(c),
        table(c.vocab_size, c.n_embd),
        head(c.n_embd, c.vocab_size),
        mask(triu(full({c.block_size, c.block_size}, -inf), 1)) {}
  Tensor operator()(const Tensor& ids) const override { return head(table(ids)); }
  Tensor loss(const Tensor& ids, const Tensor& targets, Reduction reduction) const override {
    return LanguageModel::loss(ids, targets, reduction).view({1});
  }
  INK_FIELDS(table, head, mask)
};

TEST(TrainerSteps, OfAModelWithAMaskCanBeSaved) {
  static const bool once = (add_model<Masked>("masked"), true);
  static_cast<void>(once);
  const TempFolder folder;
  TrainConfig config = config_of(folder, 0, 1);
  config.model = "masked";
  Trainer trainer(config, std::make_unique<Formulas>());
  trainer.step();
  EXPECT_EQ(trainer.steps_done(), 1);
  EXPECT_EQ(error_of([&] { trainer.save("ckpt"); }), "(no error)");
  config.out_dir += "/average";
  config.ema = 0.5;
  Trainer averaging(config, std::make_unique<Formulas>());
  const auto buffer_of = [](LanguageModel& model) { return model.named_buffers()[0].second; };
  Tensor(buffer_of(averaging.model())).fill_(3);
  EXPECT_TRUE(equal(buffer_of(averaging.evaluated_model()), buffer_of(averaging.model())))
      << "an average of weights has the buffers of now";
  const auto draws = generator_state();
  {
    const Trial trial(trainer.model(), config);
    EXPECT_TRUE(context().observers.empty());
    default_generator().random64();
    Tensor(buffer_of(trainer.model())).fill_(3);
  }
  EXPECT_EQ(max(buffer_of(trainer.model())).item(), 0) << "nothing of a trial stays";
  EXPECT_EQ(generator_state(), draws);
  for (auto& [name, x] : trainer.model().named_buffers()) Tensor(x).fill_(NAN);
  EXPECT_EQ(error_of([&] { trainer.save("ckpt"); }).rfind("save: buffer mask is not finite", 0),
            0u);
}

// ---- the average of weights

void expect_average(Trainer& trainer, std::vector<Tensor>& by_hand, double decay) {
  const NoGrad no_grad;
  const auto weights = trainer.model().parameters(),
             averages = trainer.evaluated_model().parameters();
  for (size_t i = 0; i < weights.size(); ++i) {
    by_hand[i] = by_hand[i] * decay + weights[i].to(f64) * (1 - decay);
    EXPECT_LE(max(abs(averages[i].to(f64) - by_hand[i])).item(), 1e-6);
  }
}

// On a GPU, steps are replayed from the third on. Muon's matrices are averaged like others.
TEST(TrainerSteps, KeepAnAverageOfTheWeights) {
  for (const char* optimizer : {"adamw", "muon"}) {
    const TempFolder folder;
    TrainConfig config = config_of(folder, 0.2, 1);
    config.optimizer = optimizer;
    config.learning_rate = config.min_lr = 0.05;
    config.ema = 0.8;
    Trainer trainer(config, std::make_unique<Formulas>());
    std::vector<Tensor> by_hand;
    for (const Tensor& p : trainer.model().parameters())
      by_hand.push_back(p.detach().to(f64).clone());
    for (int64_t step = 0; step < 5; ++step) {
      trainer.step();
      expect_average(trainer, by_hand, config.ema);
    }
    const double loss = trainer.evaluate(true).loss;
    EXPECT_EQ(loss, evaluate(trainer.evaluated_model(), trainer.dataset(), 0, kBatch, 0).loss);
    EXPECT_NE(loss, evaluate(trainer.model(), trainer.dataset(), 0, kBatch, 0).loss);
    trainer.save("ckpt");
    const FieldGuard on_device(&Context::default_device, parse_device(config.device));
    const auto weights_of = [&](const char* which) {
      std::vector<double> all;
      for (const Tensor& p : load_model(config.out_dir, "ckpt", which).model->parameters())
        for (const double x : p.tolist()) all.push_back(x);
      return all;
    };
    const auto weights_in = [](LanguageModel& model) {
      std::vector<double> all;
      for (const Tensor& p : model.parameters())
        for (const double x : p.tolist()) all.push_back(x);
      return all;
    };
    EXPECT_EQ(weights_of("raw"), weights_in(trainer.model()));
    EXPECT_EQ(weights_of("ema"), weights_in(trainer.evaluated_model()));
    EXPECT_EQ(weights_of(""), weights_of("ema"));
    TrainConfig next = config;  // begins with what was evaluated
    next.init_from = config.out_dir;
    next.out_dir += "/next";
    EXPECT_EQ(weights_in(Trainer(next, std::make_unique<Formulas>()).model()), weights_of("ema"));
    config.ema = 0;
    config.out_dir += "/none";
    Trainer(config, std::make_unique<Formulas>()).save("ckpt");
    EXPECT_NE(error_of([&] {
                load_model(config.out_dir, "ckpt", "ema");
              }).find("has no average of its weights; only a run that was trained with --ema"),
              std::string::npos);
  }
}

// What the estimate calls the model: parameters, the moments that the optimizer has of each, and
// their average.
TEST(TrainerSteps, TheEstimateCountsMomentsAndTheAverage) {
  for (const char* optimizer : {"adamw", "lion", "muon", "sgd"}) {
    const TempFolder folder;
    TrainConfig config = config_of(folder, 0, 1);
    config.optimizer = optimizer;
    config.ema = 0.9;
    Trainer trainer(config, std::make_unique<Formulas>());
    int64_t bytes = 0;
    const auto add = [&](const Tensor& x) { bytes += block_bytes(4 * x.numel()); };
    for (const Tensor& p : trainer.model().parameters()) add(p), add(p);
    for (const auto& [name, state] : trainer.optimizer().state())
      if (name.rfind("step.", 0) != 0 && name != "skipped") add(state);
    EXPECT_EQ(estimate_memory(trainer.model(), config).model, bytes) << optimizer;
  }
}

TEST(TrainerSteps, TheEstimateKnowsBuffersAndWhatIsFrozen) {
  GPTConfig sizes;
  sizes.block_size = 32, sizes.vocab_size = 61, sizes.n_embd = 8;
  Masked model(sizes);
  model.table.weight.requires_grad_(false);
  TrainConfig config;
  config.block_size = sizes.block_size;
  config.batch_size = 1;
  const MemoryEstimate kept = kept_memory(model, config);
  EXPECT_EQ(kept.gradients, block_bytes(4 * 61 * 8) + block_bytes(4 * 61));
  EXPECT_EQ(estimate_memory(model, config).model - kept.model, block_bytes(4 * 32 * 32));
}

// A skipped step leaves the average as it was.
TEST(TrainerSteps, AverageOnlyWhatWasNotSkipped) {
  const std::vector<Tensor> weights{full({3}, 2.0)}, averages{full({3}, 1.0)};
  WeightAverage average(averages, weights, 0.75);
  average.update(zeros({}, boolean));
  EXPECT_EQ(averages[0].tolist(), std::vector<double>(3, 1.0));
  average.update(ones({}, boolean));
  EXPECT_EQ(averages[0].tolist(), std::vector<double>(3, 1.25));
  EXPECT_EQ(error_of([&] { WeightAverage one(averages, weights, 1); }),
            "ema: expected a decay in [0, 1), got 1");
  EXPECT_EQ(error_of([&] { WeightAverage one({ones({2})}, weights, 0.5); }),
            "ema: expected an average of weight 0, (3,) float32, got (2,) float32");
  EXPECT_EQ(error_of([&] { WeightAverage one({ones({3}, f64)}, weights, 0.5); }),
            "ema: expected an average of weight 0, (3,) float32, got (3,) float64");
}

TEST(TrainerSteps, TheAverageKnowsItsMemory) {
  EXPECT_EQ(error_of([] {
              WeightAverage one({ones({3, 2})}, {ones({2, 3}).T()}, 0.5);
            }),
            "ema: weight 0, (3, 2), or its average is a strided view; take a contiguous() copy");
  Linear layer(2, 2), average(2, 2);
  WeightAverage averages(average.parameters(), layer.parameters(), 0.5);
  averages.update(ones({}, boolean));
  layer.to(f64);
  EXPECT_EQ(error_of([&] { averages.update(ones({}, boolean)); }),
            "ema: weight 0 or its average has other memory than when the average was made; "
            "convert a model before that");
  Linear other(2, 2);
  WeightAverage of_other(average.parameters(), other.parameters(), 0.5);
  average.to(f64);
  EXPECT_NE(error_of([&] { of_other.update(ones({}, boolean)); }), "(no error)");
}

}  // namespace
}  // namespace ink
