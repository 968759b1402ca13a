// Models, tokenizers and optimizers of one's own (tests/consumer/own_parts.h), in the trainer and
// in the program's commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "autograd/io/log.h"
#include "autograd/more_ops.h"
#include "nn/gpt.h"
#include "nn/llama.h"
#include "nn/rms_norm.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "train/checkpoint.h"
#include "train/cli/command_line.h"
#include "train/llama_settings.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/trainer.h"

#include "tests/consumer/own_parts.h"  // after what it uses

namespace ink {
namespace {

using namespace own;

GPTConfig tiny() {
  return {.block_size = 6, .vocab_size = 7, .n_layer = 2, .n_head = 2, .n_embd = 8};
}

std::string without_space(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

// The code of these READMEs is compiled.
TEST(OwnParts, AreThoseOfTheReadmes) {
  const auto read = [](const std::string& file) {
    std::ifstream in(std::string(INKLING_SOURCE_DIR "/") + file);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  std::string code;
  for (const char* file : {"tests/nn/test_gpt_variants.cpp", "tests/consumer/own_parts.h"})
    code += without_space(read(file));
  int blocks = 0;
  for (const char* file : {"nn/README.md", "train/README.md", "data/README.md"}) {
    const std::string readme = read(file);
    for (size_t at = 0; (at = readme.find("```cpp\n", at)) != std::string::npos; ++blocks) {
      const size_t start = at + 7;
      at = readme.find("```", start);
      const std::string block = readme.substr(start, at - start);
      if (block.rfind("#include", 0) == 0) continue;  // the whole of a program
      EXPECT_NE(code.find(without_space(block)), std::string::npos) << file << block;
    }
  }
  EXPECT_EQ(blocks, 10);
  std::string header = read("train/optimizer.h");  // whose comment has one of them
  header = header.substr(header.find("//   struct Signum"));
  header.erase(header.find("//   add_optimizer"));
  for (size_t at = 0; (at = header.find("\n//")) != std::string::npos;) header.erase(at, 3);
  EXPECT_NE(code.find(without_space(header.substr(2))), std::string::npos) << header;
}

void add_own_parts() {
  static const bool once = (add_all(), true);
  static_cast<void>(once);
}

// The program with the parts: "CODE: what it prints".
std::string run_own(std::vector<std::string> words) {
  add_own_parts();
  words.insert(words.begin(), "inkling");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
  const std::string out = testing::internal::GetCapturedStdout();
  return std::to_string(code) + ": " + testing::internal::GetCapturedStderr() + out;
}

std::string book() {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += i % 7 ? " the" : " once";
    text += i % 3 ? " cat" : " dog";
  }
  return text;
}

struct OwnRun : testing::TestWithParam<const char*> {
  TempFolder folder;
  const std::string file = folder.write("book.txt", book()), run = folder / "run";
};
INSTANTIATE_TEST_SUITE_P(All, OwnRun,
                         testing::Values("rms", "mixture", "recurrent", "chain", "llama"));

TEST_P(OwnRun, EveryCommandWorks) {
  const std::string name = GetParam();
  const auto works = [&](std::vector<std::string> words) {
    const std::string got = run_own(std::move(words));
    EXPECT_EQ(got.substr(0, 2), "0:") << got;
    return got;
  };
  const std::vector<std::string> sizes{
      "--model", name,       "--data", file,       "--tokenizer", "word",         "--n_layer",
      "1",       "--n_head", "2",      "--n_embd", "24",          "--block_size", "12"};
  std::vector<std::string> train{
      "train", "--out_dir",       run,    "--optimizer",  "signum", "--max_iters",
      "6",     "--eval_interval", "3",    "--eval_iters", "1",      "--sample_interval",
      "3",     "--learning_rate", "1e-3", "--schedule",   "root"};
  train.insert(train.end(), sizes.begin(), sizes.end());
  works(train);
  works({"train", "--out_dir", run, "--init_from", "resume", "--max_iters", "8"});
  EXPECT_NE(works({"sample", "--out_dir", run, "--max_new_tokens", "20"}).find(" the"),
            std::string::npos);
  works({"eval", "--out_dir", run});
  works({"info", "--out_dir", run});
  works({"report", run});
  works({"draw", "--out_dir", run});
  EXPECT_NE(run_own({"draw", "--out_dir", run, "--n_kv_head", "1"})
                .find("--out_dir names a model: --n_kv_head cannot change it"),
            std::string::npos);
  works({"look", "--out_dir", run, "--out", folder / "look.html"});
  const std::string attention = run_own({"sample", "--out_dir", run, "--max_new_tokens", "4",
                                         "--attention", folder / "attention.html"});
  if (name == "recurrent" || name == "chain")
    EXPECT_NE(attention.find("attention_weights: this model shows none"), std::string::npos);
  else
    EXPECT_EQ(attention.substr(0, 2), "0:") << attention;
}

// With caches, and beyond block_size.
TEST_P(OwnRun, ACachedStepIsTheWholePass) {
  add_own_parts();
  manual_seed(3);
  const auto model = make_model(GetParam(), tiny());
  model->eval();
  const NoGrad no_grad;
  Tensor ids = randint(7, {2, 3});
  DecodeCache cache = model->make_cache();
  for (int64_t fresh = 3; ids.size(1) <= 6; fresh = 1) {
    const Tensor last = ids.narrow(1, ids.size(1) - fresh, fresh);
    const Tensor step = model->next_logits(last, model->uses_caches() ? &cache : nullptr);
    EXPECT_TRUE(allclose(step, (*model)(ids).select(1, -1), 1e-5, 1e-5)) << ids.size(1);
    if (!model->uses_caches()) break;
    cache.size = ids.size(1);
    ids = cat({ids, argmax(step, -1, true)}, 1);
  }
  EXPECT_EQ(model->generate(ids, {.max_new_tokens = 9}).size(1), ids.size(1) + 9);
}

TEST_P(OwnRun, PassesTheGradientCheck) {
  add_own_parts();
  manual_seed(5);
  const auto model = make_model(GetParam(), tiny());
  model->to(f64);
  {
    const NoGrad no_grad;  // gradients of small weights are as small as rounding errors
    for (Tensor& parameter : model->parameters()) parameter.mul_(3);
  }
  const Tensor ids = randint(7, {2, 5});
  GradcheckOptions options;
  options.max_elements = 0;  // along random directions
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const auto report = gradcheck([&](const auto&) { return model->loss(ids, ids, reduction); },
                                  model->parameters(), options);
    EXPECT_TRUE(report.ok) << report;
  }
}

TEST_P(OwnRun, ItsMemoryIsMeasured) {
  add_own_parts();
  TrainConfig config;
  config.n_layer = 2, config.n_embd = 64, config.block_size = 64, config.batch_size = 8;
  config.batch_parts = 1;
  const auto model = make_model(GetParam(), config.gpt(50));
  const MemoryEstimate estimate = estimate_memory(*model, config);
  const Tensor ids = zeros({8, 64}, i64);
  const int64_t before = memory_stats().bytes_in_use;
  reset_peak_memory();
  model->loss(ids, ids).backward();
  const auto measured = static_cast<double>(memory_stats().peak_bytes_in_use - before),
             got = static_cast<double>(estimate.gradients + estimate.activations);
  EXPECT_NEAR(got / measured, 1, 0.03);
}

// Of the peak of a run's steps, on one thread.
double estimated_share(TrainConfig config) {
  add_own_parts();
  const TempFolder folder;
  config.out_dir = folder / "run";
  config.threads = 1;
  const ContextGuard guard;
  context().observers.clear();  // the tests' own, with which a batch has one part
  const int64_t before = memory_stats().bytes_in_use;
  Trainer trainer(config);
  reset_peak_memory();
  for (int i = 0; i < 2; ++i) trainer.step();
  const int64_t ids = 2 * 8 * config.batch_size * config.block_size;
  return static_cast<double>(trainer.memory().total() + ids) /
         static_cast<double>(memory_stats().peak_bytes_in_use - before);
}

// The loss of a part of a batch is a sum, whose gradient is scaled: a softmax more.
TEST(OwnParts, TheEstimateKnowsPartsOfABatch) {
  TrainConfig config;
  config.model = "chain";
  config.block_size = 512;
  config.batch_size = 8;
  for (const int64_t parts : {1, 2, 4}) {
    config.batch_parts = parts;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << parts;
  }
}

// Gradients of a part wait for those of others, and those of a micro-batch for the next.
TEST(OwnParts, TheEstimateKnowsWhatWaits) {
  TrainConfig config;
  config.n_layer = 1;
  config.n_embd = 256;
  config.block_size = config.batch_size = 32;
  for (const int64_t parts : {1, 4}) {
    config.batch_parts = parts;
    config.gradient_accumulation_steps = 2;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << parts;
  }
}

// Weights are kept in bfloat16, too, where products are in it.
TEST(OwnParts, TheEstimateKnowsCopiesOfWeights) {
  TrainConfig config;
  config.n_layer = 2;
  config.n_embd = 256;
  config.block_size = config.batch_size = 16;
  config.batch_parts = 1;
  config.dtype = "bfloat16";
  for (const char* model : {"gpt", "llama"}) {
    config.model = model;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << model;
  }
}

// Where a batch is small, what an update computes is the most.
TEST(OwnParts, TheEstimateKnowsUpdates) {
  TrainConfig config;
  config.n_layer = 1;
  config.n_embd = 512;
  config.block_size = config.batch_size = 4;
  config.batch_parts = 1;
  for (const char* optimizer : {"adamw", "adam", "lion", "signum", "sgd"}) {
    config.optimizer = optimizer;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << optimizer;
  }
  config.optimizer = "muon";
  for (const int64_t n_embd : {176, 512}) {
    config.n_embd = n_embd;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << n_embd;
  }
  config.composed = true;  // leaves gradients transposed
  for (const char* optimizer : {"adamw", "muon", "sgd"}) {
    config.optimizer = optimizer;
    EXPECT_NEAR(estimated_share(config), 1, 0.03) << optimizer;
  }
}

struct Forgetful : Recurrent {  // each token is its first one
  using Recurrent::Recurrent;
  Tensor next_logits(const Tensor& ids, DecodeCache*) const override {
    return Recurrent::next_logits(ids, nullptr);
  }
};

struct Cacheless : Recurrent {
  using Recurrent::Recurrent;
  Tensor next_logits(const Tensor& ids, DecodeCache* cache) const override {
    return LanguageModel::next_logits(ids, cache);
  }
};

struct Foreseeing : Recurrent {  // reads the text from its end
  using Recurrent::Recurrent;
  Tensor operator()(const Tensor& ids) const override {
    return Recurrent::operator()(ids.flip({1})).flip({1});
  }
  bool uses_caches() const override { return false; }
};

// What is wrong with its sampling is told before the first step, and it trains.
TEST(OwnParts, ACacheThatIsWrongIsTold) {
  add_own_parts();
  add_model<Forgetful>("forgetful");
  add_model<Cacheless>("cacheless");
  add_model<Foreseeing>("foreseeing");
  const TempFolder folder;
  TrainConfig config;
  config.out_dir = folder / "out";
  config.block_size = 16;
  std::string told;
  set_log_callback([&](const std::string& message) { told += message; });
  const auto said_of = [&](const char* name) {
    told.clear();
    config.model = name;
    Trainer(config).step();
    return told;
  };
  EXPECT_EQ(said_of("forgetful")
                .rfind("model forgetful will write other samples than it should, "
                       "or none: token by token, its logits after 4 tokens differ "
                       "by ",
                       0),
            0u)
      << told;
  EXPECT_EQ(said_of("cacheless"),
            "model cacheless will write other samples than it should, or none: next_logits: a "
            "model with uses_caches() overrides it, and this one does not");
  EXPECT_EQ(said_of("foreseeing")
                .rfind("model foreseeing will write other samples than it should, or none: "
                       "without later tokens, its logits after 3 tokens differ by ",
                       0),
            0u)
      << told;
  for (const char* name : {"gpt", "llama", "recurrent", "rms", "mixture", "chain"})
    EXPECT_EQ(said_of(name), "") << name;
  set_log_callback({});
}

TEST(OwnSchedule, IsFoundByItsName) {
  add_own_parts();
  TrainConfig config;
  config.schedule_name = "root";
  config.learning_rate = 1;
  config.warmup_iters = 3;
  EXPECT_DOUBLE_EQ(config.schedule()(1), 0.5);
  EXPECT_DOUBLE_EQ(config.schedule()(15), 0.5);
  EXPECT_EQ(
      error_of([] { add_schedule("root", [](const TrainConfig&) { return constant_lr(1); }); }),
      "add_schedule: the name root is taken; choose another");
  EXPECT_EQ(error_of([] { add_schedule("none", nullptr); }),
            "add_schedule: none: expected what makes the schedule, got none");
}

// ---- settings of a model

struct FactoredConfig : GPTConfig {
  int64_t rank = 4;
  double scale = 1;
  bool starts_small = false;
  FactoredConfig checked() const {
    GPTConfig::checked();
    INK_CHECK(rank <= n_embd, "factored: expected a rank of n_embd or less, got ", rank);
    return *this;
  }
};
template <class F>
void for_each_setting(FactoredConfig& c, F&& f) {
  f("rank", c.rank, "factored: of its table", Limits{1, 100});
  f("scale", c.scale, "factored: of logits", Limits{.above = 0, .below = 10});
  f("starts_small", c.starts_small, "factored: its first table is small", Limits{});
}
struct Factored : LanguageModel {
  Embedding first;
  Linear second;
  double scale;
  explicit Factored(const FactoredConfig& c)
      : LanguageModel(c),
        first(c.vocab_size, c.rank),
        second(c.rank, c.vocab_size),
        scale(c.scale) {
    const NoGrad no_grad;
    if (c.starts_small) first.weight.mul_(1e-3);
  }
  Tensor operator()(const Tensor& ids) const override { return scale * second(first(ids)); }
  INK_FIELDS(first, second)
};
void add_factored() {
  static const bool once = (add_model<Factored, FactoredConfig>("factored"), true);
  static_cast<void>(once);
}

std::vector<std::string> small_run(const std::string& folder, std::vector<std::string> more) {
  std::vector<std::string> words{
      "train", "--out_dir",   folder, "--n_layer",    "1",  "--n_embd",
      "16",    "--n_head",    "4",    "--block_size", "8",  "--batch_size",
      "2",     "--max_iters", "2",    "--eval_iters", "1",  "--sample_interval",
      "0",     "--report",    "off",  "--final_eval", "off"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(ModelSettings, AreOptionsAndPartOfTheRun) {
  add_factored();
  const TempFolder folder;
  const std::string run = folder / "run";
  const std::string got =
      run_own(small_run(run, {"--model", "factored", "--rank", "3", "--starts_small"}));
  ASSERT_EQ(got.substr(0, 2), "0:") << got;
  const LoadedModel loaded = load_model(run);
  EXPECT_EQ(loaded.model->state_dict()[0].second.size(1), 3);
  const nlohmann::json saved = to_json(loaded.config);
  EXPECT_EQ(saved.at("rank"), 3);
  EXPECT_EQ(saved.at("scale"), 1.0);
  EXPECT_EQ(saved.at("starts_small"), true);
  EXPECT_FALSE(saved.contains("n_kv_head"));
  EXPECT_FALSE(to_json(TrainConfig()).contains("rank"));
  const auto goes_on = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"train", "--out_dir", run, "--init_from", "resume", "--max_iters", "3"});
    return run_own(more);
  };
  EXPECT_NE(goes_on({"--rank", "4"}).find("--rank is 4, but"), std::string::npos);
  EXPECT_EQ(goes_on({}).substr(0, 2), "0:");
  const std::string tuned = run_own({"train", "--init_from", run, "--out_dir", folder / "tuned",
                                     "--max_iters", "1", "--rank", "3"});
  EXPECT_EQ(tuned.substr(0, 2), "0:") << tuned;
  EXPECT_EQ(to_json(load_model(folder / "tuned").config).at("rank"), 3);
  const std::string other =
      run_own({"train", "--init_from", run, "--out_dir", folder / "other", "--rank", "5"});
  EXPECT_EQ(other.substr(0, 2), "2:");
  EXPECT_NE(other.find("--rank is 5, but"), std::string::npos) << other;
}

// llm.c's sizes are called d12, and so on.
TEST(OwnParts, MayBeNamedAsOtherProgramsNameTheirs) {
  add_model<GPT>("deep");
  EXPECT_EQ(run_own({"train", "--print_config", "--model", "deep"}).substr(0, 2), "0:");
  EXPECT_NE(run_own({"train", "--model", "d12"}).find("type sizes one by one"), std::string::npos);
}

// Of each of them: the run is made, saved with what was asked, and turns as the layer does.
TEST(ModelSettings, RopeScalingIsASettingOfARun) {
  const TempFolder folder;
  const std::vector<std::vector<std::string>> all{
      {"linear", "--rope_factor", "4"},
      {"llama3", "--rope_factor", "8", "--original_max_position_embeddings", "8",
       "--low_freq_factor", "0.5", "--high_freq_factor", "2"},
      {"yarn", "--rope_factor", "2", "--original_max_position_embeddings", "8", "--beta_fast", "4",
       "--beta_slow", "0.5", "--attention_factor", "1.5"}};
  for (std::vector<std::string> options : all) {
    const std::string run = folder / options[0];
    options.insert(options.begin(), {"--model", "llama", "--rope_scaling"});
    const std::string got = run_own(small_run(run, options));
    EXPECT_EQ(got.substr(0, 2), "0:") << got;
    const LoadedModel loaded = load_model(run);
    const nlohmann::json saved = to_json(loaded.config);
    RopeScaling scaling;
    scaling.rope_type = saved.at("rope_scaling");
    scaling.factor = saved.at("rope_factor");
    scaling.original_max_position_embeddings = saved.at("original_max_position_embeddings");
    scaling.low_freq_factor = saved.at("low_freq_factor");
    scaling.high_freq_factor = saved.at("high_freq_factor");
    scaling.beta_fast = saved.at("beta_fast");
    scaling.beta_slow = saved.at("beta_slow");
    scaling.attention_factor = saved.at("attention_factor");
    EXPECT_EQ(scaling.rope_type, options[3]);
    for (size_t i = 4; i + 1 < options.size(); i += 2)
      EXPECT_EQ(saved.at(options[i].substr(2)).get<double>(), std::stod(options[i + 1]));
    const auto& model = dynamic_cast<const Llama&>(*loaded.model);
    const int64_t dim = loaded.config.n_embd / loaded.config.n_head;
    const RotaryEmbedding expected(dim, loaded.config.block_size, 10000, scaling),
        plain(dim, loaded.config.block_size);
    EXPECT_TRUE(equal(model.model.rotary_emb.cos, expected.cos) &&
                equal(model.model.rotary_emb.sin, expected.sin));
    EXPECT_FALSE(equal(model.model.rotary_emb.sin, plain.sin));
  }
}

// A width of heads apart from the model's, as Qwen3 has it, and what else a Llama's config has.
TEST(ModelSettings, AreAllOfALlamas) {
  const TempFolder folder;
  const auto words = small_run(folder / "run", {"--model", "llama", "--head_dim", "10",
                                                "--rms_norm_eps", "1e-6", "--rope_interleaved"});
  const std::string got = run_own(words);
  EXPECT_EQ(got.substr(0, 2), "0:") << got;
  const LoadedModel loaded = load_model(folder / "run");
  const LlamaConfig& config = dynamic_cast<const Llama&>(*loaded.model).llama_config;
  EXPECT_EQ(config.head_dim, 10);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_TRUE(config.rope_interleaved);
  TrainConfig odd;
  odd.model = "llama", odd.n_embd = 30;
  EXPECT_EQ(error_of([&] { odd.check(); }),
            "config: n_embd is 30; expected a multiple of n_head, 4");
  odd.setting("head_dim") = int64_t{8};
  odd.check();
}

// What extends Llama has its settings, and may have more.
struct HalvedConfig : LlamaConfig {
  double share = 0.5;
};
template <class F>
void for_each_setting(HalvedConfig& c, F&& f) {
  for_each_setting(static_cast<LlamaConfig&>(c), f);
  f("share", c.share, "halved: of its loss", Limits{0, 1});
}
struct Halved : Llama {
  double share;
  explicit Halved(const HalvedConfig& c) : Llama(c), share(c.share) {}
  INK_FIELDS(Llama)
};
TEST(ModelSettings, OfALlamaAreThoseOfWhatExtendsIt) {
  add_model<Halved, HalvedConfig>("halved");
  TrainConfig config;
  config.model = "halved";
  config.setting("n_kv_head") = int64_t{2};
  config.setting("share") = 0.25;
  const auto model = make_model("halved", config.gpt(9), config.model_settings);
  const auto& halved = dynamic_cast<const Halved&>(*model);
  EXPECT_EQ(halved.llama_config.n_kv_head, 2);
  EXPECT_EQ(halved.share, 0.25);
  config.setting("n_kv_head") = int64_t{3};
  EXPECT_EQ(error_of([&] { config.check(); }),
            "config: llama: expected n_head to be a multiple of n_kv_head, got 4 and 3");
}

TEST(ModelSettings, AreRefusedInWords) {
  add_factored();
  const TempFolder folder;
  const auto expect = [&](const std::vector<std::string>& options, const std::string& text) {
    const std::string got = run_own(small_run(folder / "run", options));
    EXPECT_EQ(got.substr(0, 2), "2:") << got;
    EXPECT_NE(got.find(text), std::string::npos) << got;
    EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  };
  expect({"--model", "factored", "--rank", "200"}, "--rank is 200; expected 1 to 100");
  expect({"--model", "factored", "--rank", "17"},
         "factored: expected a rank of n_embd or less, got 17");
  expect({"--rank", "2"}, "rank is no setting of model gpt");
  expect({"--model", "llama", "--rank", "2"}, "rank is no setting of model llama");
  expect({"--model", "factored", "--n_kv_head", "2"}, "n_kv_head is no setting of model factored");
  expect({"--model", "llama", "--n_kv_heads", "2"}, "did you mean --n_kv_head?");
  expect({"--model", "llama", "--n_kv_head", "3"},
         "n_head to be a multiple of n_kv_head, got 4 and 3");
  expect({"--model", "llama", "--bias"}, "expected bias to be false");
  expect({"--model", "llama", "--rope_scaling", "ntk"}, "--rope_scaling is 'ntk'; expected");
  expect({"--model", "llama", "--rope_scaling", "yarn", "--rope_factor", "2"},
         "yarn needs original_max_position_embeddings");
  expect({"--model", "llama", "--rope_factor", "0.5"}, "--rope_factor is 0.5; expected 1");
  expect({"--rope_scaling", "linear"}, "rope_scaling is no setting of model gpt");
  expect({"--model", "lama"}, "did you mean llama?");
  expect({"--model", "llama", "--head_dim", "3"}, "expected an even head_dim, got 3");
  expect({"--optimizer", "Mun"}, "did you mean muon?");
  TrainConfig config;
  EXPECT_EQ(error_of([&] { config.setting("rnak"); }), "config: no model has a setting rnak");
}

struct SameName : FactoredConfig {};
template <class F>
void for_each_setting(SameName& c, F&& f) {
  f("n_kv_head", c.rank, "another one", Limits{});
}
struct NameOfAField : FactoredConfig {};
template <class F>
void for_each_setting(NameOfAField& c, F&& f) {
  f("seed", c.rank, "another one", Limits{});
}
struct AnyName : FactoredConfig {
  static inline std::string name;
};
template <class F>
void for_each_setting(AnyName& c, F&& f) {
  f(AnyName::name.c_str(), c.rank, "another one", Limits{});
}
TEST(ModelSettings, HaveNamesOfTheirOwn) {
  for (const char* name : {"vocabulary", "start", "", "a b", "a-b", "--a", "a=b"}) {
    AnyName::name = name;
    EXPECT_NE(error_of([] { add_model<Factored, AnyName>("any"); }).find("add_model: any: "),
              std::string::npos);
  }
  EXPECT_NE(error_of([] {
              add_model<Factored, SameName>("same");
            }).find("its setting n_kv_head has another type or default"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              add_model<Factored, NameOfAField>("seed");
            }).find("its setting seed has the name of one that it or every run has"),
            std::string::npos);
}

// A mean over tokens, so that it does not matter how a batch is cut.
struct Restrained : LanguageModel {
  Embedding table;
  explicit Restrained(const GPTConfig& c) : LanguageModel(c), table(c.vocab_size, c.vocab_size) {}
  Tensor operator()(const Tensor& ids) const override {
    const Tensor logits = table(ids);
    if (training) add_auxiliary_loss(mean(square(logsumexp(logits, {-1}))));  // z-loss
    return logits;
  }
  INK_FIELDS(table)
};

TEST(AuxiliaryLoss, IsRightInPartsAndMicroBatches) {
  add_model<Restrained>("restrained");
  const TempFolder folder;
  TrainConfig config;
  config.out_dir = folder / "out";
  config.model = "restrained";
  config.optimizer = "sgd";
  config.momentum = 0;
  config.block_size = 16;
  const auto run = [&](int64_t batch_size, int64_t parts, int64_t micro_batches) {
    config.batch_size = batch_size, config.batch_parts = parts;
    config.gradient_accumulation_steps = micro_batches;
    Trainer trainer(config);
    for (int i = 0; i < 4; ++i) trainer.step();
    return std::pair(trainer.progress().loss, trainer.model().parameters()[0].detach().clone());
  };
  const auto [loss, weight] = run(6, 1, 1);
  for (const auto& [rows, parts, micro] : {std::array{6, 3, 1}, {3, 1, 2}, {2, 2, 3}}) {
    const auto [other, moved] = run(rows, parts, micro);
    EXPECT_NEAR(other, loss, 1e-4);
    EXPECT_TRUE(allclose(moved, weight, 1e-4, 1e-6));
  }
  // It is a part of the loss in training, and not of an evaluation.
  Restrained model(tiny());
  const Tensor ids = randint(7, {2, 6}), logits = model.table(ids);
  const double plain = cross_entropy(logits, ids).item(),
               term = mean(square(logsumexp(logits, {-1}))).item();
  EXPECT_NEAR(model.loss(ids, ids).item(), plain + term, 1e-5);
  EXPECT_NEAR(model.loss(ids, ids, Reduction::sum).item(), 12 * (plain + term), 1e-4);
  model.eval();
  EXPECT_NEAR(model.loss(ids, ids).item(), plain, 1e-6);
}

// A term that is added to a sum as it is counts less in parts.
struct Careless : Restrained {
  using Restrained::Restrained;
  Tensor loss(const Tensor& ids, const Tensor& targets, Reduction reduction) const override {
    const Tensor logits = table(ids);
    return cross_entropy(logits, targets, -100, reduction) + 0.01 * mean(square(logits));
  }
};

struct WithoutZLoss : Restrained {
  using Restrained::Restrained;
  Tensor loss(const Tensor& ids, const Tensor& targets, Reduction reduction) const override {
    return cross_entropy(table(ids), targets, -100, reduction);
  }
};

struct OneForEach : Restrained {
  using Restrained::Restrained;
  Tensor loss(const Tensor& ids, const Tensor& targets, Reduction) const override {
    return cross_entropy(table(ids), targets, -100, Reduction::none);
  }
};

TEST(AuxiliaryLoss, IsCheckedWhereALossIsOverridden) {
  add_model<Careless>("careless");
  const TempFolder folder;
  TrainConfig config;
  config.out_dir = folder / "out";
  config.model = "careless";
  config.block_size = 16;
  const std::string told = error_of([&] { Trainer trainer(config); });
  EXPECT_EQ(told.rfind("Trainer: expected the loss of model careless with Reduction::sum to be its "
                       "mean times the number of targets, ",
                       0),
            0u)
      << told;
  add_model<WithoutZLoss>("without_z");
  config.model = "without_z";
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }), "(no error)");
  config.z_loss = 1e-4;
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "Trainer: z_loss is 0.0001, but the loss of model without_z does not use it; hand "
            "`training ? z_loss : 0` to cross_entropy there");
  add_model<OneForEach>("one_for_each");
  config.model = "one_for_each";
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "Trainer: expected the loss of model one_for_each to be one number, got (1, 16)");
}

TEST(AuxiliaryLoss, ReachesTheRouterOfAMixture) {
  manual_seed(1);
  GPT model(tiny(), make_mlp<Experts>);
  const Tensor ids = randint(7, {2, 6});
  const auto router_gradient = [&] {
    model.zero_grad();
    model.loss(ids, ids).backward();
    return dynamic_cast<Experts&>(*model.h[0]->mlp).router.weight.grad().clone();
  };
  const Tensor with = router_gradient();
  model.eval();
  EXPECT_GT(max(abs(with - router_gradient())).item(), 1e-6);
}

// Blocks of one's own beside an empty h.
struct Hollow : GPT {
  RmsBlock block;
  bool remembers;
  explicit Hollow(const GPTConfig& c, bool features_know_caches = true)
      : GPT(c), block(c), remembers(features_know_caches) {
    h = {};
  }
  Tensor features(const Tensor& ids) const override { return features(ids, nullptr); }
  Tensor features(const Tensor& ids, std::vector<KVCache>* caches) const override {
    KVCache* cache = caches && remembers ? &caches->at(0) : nullptr;
    const auto [x, branch] = block(embedded(ids, cache ? cache->size() : 0), {}, cache);
    return last_norm(x, branch);
  }
  bool uses_caches() const override { return true; }
  INK_FIELDS(GPT, block)
};

TEST(OwnParts, AnEmptyHIsNoCrash) {
  manual_seed(2);
  const Hollow model(tiny());
  const Tensor ids = randint(7, {1, 2});
  GenerateOptions options{.max_new_tokens = 9, .temperature = 0};
  const Tensor text = model.generate(ids, options);
  EXPECT_EQ(text.size(1), 11);
  EXPECT_EQ(text.narrow(1, 2, 1).item<int64_t>(),
            argmax(model(ids).select(1, -1), -1).item<int64_t>());
  EXPECT_EQ(error_of([&] { model.attention_weights(ids); }),
            "attention_weights: this model shows none; override it in a model that has them");
  Hollow forgets(tiny(), false);
  forgets.load_state_dict(model.state_dict());
  EXPECT_TRUE(equal(forgets.generate(ids, options), text));
}

struct Blind : Block {  // without attention
  LayerNorm norm;
  MLP feed_forward;
  explicit Blind(const GPTConfig& c) : norm(c.n_embd), feed_forward(c) {}
  std::pair<Tensor, Branch> operator()(Tensor x, const Branch& branch, KVCache*) const override {
    x = branch.added_to(x);
    return {x, feed_forward.branch(norm(x))};
  }
  INK_FIELDS(norm, feed_forward)
};

TEST(OwnParts, ABlockMayHaveNoCache) {
  const GPT blind(tiny(), make_block<Blind>);
  const Tensor ids = randint(7, {1, 2});
  const GenerateOptions options{.max_new_tokens = 3, .temperature = 0};
  const Tensor text = blind.generate(ids, options);
  EXPECT_EQ(text.select(1, -1).item<int64_t>(),
            argmax(blind(text.narrow(1, 0, 4)).select(1, -1), -1).item<int64_t>());
  EXPECT_EQ(error_of([&] { blind.attention_weights(ids); }),
            "attention_weights: a block of this model shows none; override "
            "Block::attention_weights");
  int made = 0;
  const GPT both(tiny(), [&](const GPTConfig& c) {
    return made++ == 0 ? make_block<Block>(c) : make_block<Blind>(c);
  });
  EXPECT_EQ(error_of([&] { both.generate(ids, options); }),
            "generate: block 1 did not append to its cache, and others did; a model with such "
            "blocks keeps a state of its own (next_logits), or says no to uses_caches()");
}

TEST(Grouped, IsAttentionWithRepeatedKeysAndValues) {
  manual_seed(4);
  const Grouped attn({.block_size = 6, .vocab_size = 7, .n_layer = 1, .n_head = 4, .n_embd = 8});
  EXPECT_EQ(attn.c_attn.weight.shape(), (Shape{16, 8}));
  const Tensor x = randn({2, 5, 8});
  const auto qkv = split(attn.c_attn(x), std::vector<int64_t>{8, 4, 4}, 2);
  const auto heads = [&](const Tensor& t) {
    return t.view({2, 5, t.size(2) / 2, 2}).transpose(1, 2);
  };
  const Tensor twice = tensor({0, 0, 1, 1}, i64);
  const Tensor k = index_select(heads(qkv[1]), 1, twice), v = index_select(heads(qkv[2]), 1, twice);
  const Tensor mixed = scaled_dot_product_attention(heads(qkv[0]), k, v, {.is_causal = true});
  EXPECT_TRUE(allclose(attn(x), attn.c_proj(mixed.transpose(1, 2).reshape({2, 5, 8})), 1e-5, 1e-6));
  EXPECT_EQ(attn.weights(x).shape(), (Shape{2, 4, 5, 5}));
  EXPECT_EQ(error_of([] { CausalSelfAttention(tiny(), 3); }),
            "attention: expected n_head to be a multiple of n_kv_head, got 2 and 3");
}

// ---- what is refused, and how it is said

TrainConfig small_run(const TempFolder& folder) {
  TrainConfig config;
  config.n_layer = 1, config.n_head = 2, config.n_embd = 16, config.block_size = 16;
  config.batch_size = 2;
  config.out_dir = folder / "run";
  return config;
}

TEST(OwnParts, ARunOfAnotherProgramIsNotDamaged) {
  add_own_parts();
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  Trainer(config).save("ckpt");
  const auto with = [&](const char* field, const char* value) {
    Checkpoint saved = load_checkpoint(config.out_dir, "ckpt");
    (field == std::string("tokenizer") ? saved.config["vocabulary"] : saved.config)[field] = value;
    save_checkpoint(folder / field, "ckpt", saved);
    return (folder / field).string();
  };
  std::string out = with("model", "other");
  const std::string told = error_of([&] { load_model(out); });
  EXPECT_EQ(told.rfind(out + "/ckpt/config.json: model is other, and this program has ", 0), 0u)
      << told;
  EXPECT_NE(told.find("; the program that trained the run adds it by add_model"),
            std::string::npos);
  out = with("tokenizer", "other");
  EXPECT_EQ(error_of([&] { load_model(out); }),
            out +
                "/ckpt/config.json: tokenizer is other, and this program has byte, char, ids or "
                "word; the program that trained the run adds it by add_tokenizer");
  config.out_dir = with("optimizer", "other");
  config.init_from = "resume";
  EXPECT_EQ(load_model(config.out_dir).step, 0);  // who does not train can do without
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            config.out_dir +
                "/ckpt/config.json: optimizer is other, and this program has adam, adamw, "
                "lion, muon, sgd or signum; the program that trained the run adds it by "
                "add_optimizer");
  config.out_dir = folder / "run";
  config.out_dir = with("schedule", "other");
  EXPECT_EQ(load_model(config.out_dir).step, 0);
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            config.out_dir +
                "/ckpt/config.json: schedule is other, and this program has constant, cosine, "
                "linear, root or wsd; the program that trained the run adds it by add_schedule");
}

struct Nameless final : Tokenizer {  // that nobody has added
  std::string name() const override { return "nameless"; }
  int64_t vocab_size() const override { return 256; }
  std::vector<int64_t> encode(std::string_view text) const override {
    return ByteTokenizer().encode(text);
  }
  std::string decode(std::span<const int64_t> ids) const override {
    return ByteTokenizer().decode(ids);
  }
  std::string to_json() const override { return R"({"tokenizer": "nameless"})"; }
};

TEST(OwnParts, ATokenizerThatCannotBeReadAgainIsRefused) {
  const TempFolder folder;
  const TrainConfig config = small_run(folder);
  const auto dataset = [&] {
    return std::make_unique<TextDataset>(std::vector{folder.write("book.txt", book())},
                                         std::make_shared<Nameless>());
  };
  EXPECT_EQ(error_of([&] { Trainer trainer(config, dataset()); }),
            "Trainer: the tokenizer nameless could not be read from a checkpoint; call "
            "add_tokenizer(\"nameless\", ...) before the trainer is made");
  add_tokenizer("nameless", [](std::string_view) { return std::make_unique<ByteTokenizer>(); });
  EXPECT_EQ(error_of([&] { Trainer trainer(config, dataset()); }),
            "Trainer: the tokenizer nameless: what its to_json() writes is read as another "
            "tokenizer");
}

// The caller's dataset has the tokenizer, which the config does not name.
TEST(OwnParts, ACallersTokenizerIsSavedAndResumed) {
  add_own_parts();
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  config.batch_parts = 2;
  const auto trained = [&](const char* name, std::vector<int64_t> stops) {
    config.out_dir = folder / name;
    config.init_from = "scratch";
    for (const int64_t steps : stops) {
      Trainer trainer(config, std::make_unique<TextDataset>(
                                  std::vector{folder.write("book.txt", book())},
                                  std::shared_ptr<const Tokenizer>(WordTokenizer::learn(book()))));
      while (trainer.steps_done() < steps) trainer.step();
      trainer.save("ckpt");
      config.init_from = "resume";
    }
    return load_model(config.out_dir);
  };
  const LoadedModel whole = trained("whole", {6}), parts = trained("parts", {2, 6});
  EXPECT_EQ(parts.tokenizer->name(), "word");
  const NamedTensors a = whole.model->state_dict(), b = parts.model->state_dict();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(equal(a[i].second, b[i].second)) << a[i].first;
}

TEST(OwnParts, ANewTrainerDoesNotReplaceARun) {
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  Trainer(config).save("best");
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "Trainer: out_dir " + config.out_dir +
                " holds a run, which a new one would replace; "
                "go on with it by init_from = \"resume\", or choose another out_dir");
}

struct Plain : Module {
  Linear first{2, 2};
  INK_FIELDS(first)
};
struct Longer : Plain {
  Linear second{2, 2};
};
struct Holder : Module {
  Longer member;
  ModuleList<Longer> list{1};
  INK_FIELDS(member, list)
};

TEST(OwnParts, AFieldWithoutINK_FIELDSIsFound) {
  const char* expected =
      "Longer: INK_FIELDS lacks a Linear declared after first; name it there, or no optimizer "
      "would update it, no checkpoint have it, and neither to() nor eval() reach it";
  EXPECT_EQ(error_of([] { Holder().parameters(); }), expected);
  EXPECT_EQ(error_of([] { ModuleList<Longer>(2).parameters(); }), expected);
  EXPECT_EQ(error_of([] {
              ModuleList<std::unique_ptr<Longer>> list;
              list.push_back(std::make_unique<Longer>());
              list.parameters();
            }),
            expected);
}

struct Windowed : CausalSelfAttention {  // a member that is no field
  int64_t window = 2;
  using CausalSelfAttention::CausalSelfAttention;
  void prepare_scores(Tensor& q, Tensor& k, AttentionOptions& options, int64_t) const override {
    const Tensor j = arange(k.size(2), i64), i = arange(q.size(2), i64).unsqueeze(1);
    options.attn_mask = j + static_cast<double>(window) > i;
  }
  INK_FIELDS(CausalSelfAttention)
};

TEST(OwnParts, AMemberMayBeNoField) {
  const GPT model(tiny(), make_attention<Windowed>), plain(tiny());
  EXPECT_EQ(model.num_parameters(), plain.num_parameters());
  const Tensor weights = model.attention_weights(zeros({1, 4}, i64))[0];
  EXPECT_EQ(weights.select(0, 0).select(0, 3).select(0, 1).item(), 0);
}

TEST(OwnParts, ASampleNeedsNoStart) {
  const GPT model({.block_size = 8, .vocab_size = 300, .n_layer = 1, .n_head = 1, .n_embd = 8});
  const auto first = [&](const Tokenizer& tokenizer) {
    std::string text;
    const auto ids = write_sample(model, tokenizer, "", {.max_new_tokens = 0},
                                  [&](const std::string& piece) { text += piece; });
    EXPECT_EQ(ids.size(), 1u);
    return text;
  };
  EXPECT_EQ(first(ByteTokenizer()), "\n");
  EXPECT_EQ(first(CharTokenizer({U'b', U'a'})), "a");
}

// Ids up to a round number have no text: they are never written, and shown as numbers.
TEST(OwnParts, AModelMayHaveMoreIdsThanItsTokenizer) {
  add_own_parts();
  add_model("padded", [](GPTConfig c) {
    c.vocab_size = 64;
    return std::make_unique<GPT>(c);
  });
  const TempFolder folder;
  auto words = small_run(folder / "run", {"--model", "padded"});
  const std::string trained = run_own(words);
  EXPECT_EQ(trained.substr(0, 2), "0:") << trained;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"sample", "--max_new_tokens", "50", "--temperature", "100"},
        {"look", "--out", folder / "look.html"}}) {
    words = command;
    words.insert(words.end(), {"--out_dir", folder / "run"});
    const std::string got = run_own(words);
    EXPECT_EQ(got.substr(0, 2), "0:") << got;
  }
}

// A program that has changed since it saved.
struct Growing : LanguageModel {
  static inline int64_t more = 0;
  Embedding table;
  explicit Growing(const GPTConfig& c)
      : LanguageModel(c), table(c.vocab_size, c.vocab_size + more) {}
  Tensor operator()(const Tensor& ids) const override {
    return table(ids).narrow(2, 0, config.vocab_size);
  }
  INK_FIELDS(table)
};

TEST(OwnParts, AModelThatHasChangedNamesTheCheckpoint) {
  add_model<Growing>("growing");
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  config.model = "growing";
  Trainer(config).save("ckpt");
  Growing::more = 1;
  const std::string expected =
      config.out_dir + "/ckpt: load_state_dict: the names or shapes do not fit:\n  shape: table";
  EXPECT_EQ(error_of([&] { load_model(config.out_dir); }).rfind(expected, 0), 0u);
  config.init_from = "resume";
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }).rfind(expected, 0), 0u);
  Growing::more = 0;
}

// What is not ink::Error, such as std::out_of_range, is as good an answer of a user's tokenizer.
struct Letters : Tokenizer {
  std::map<char, int64_t> ids{{'a', 0}, {'b', 1}};
  std::string name() const override { return "letters"; }
  int64_t vocab_size() const override { return 2; }
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> all;
    for (const char c : text) all.push_back(ids.at(c));
    return all;
  }
  std::string decode(std::span<const int64_t> list) const override {
    std::string text;
    for (const int64_t id : list) text += id == 0 ? 'a' : 'b';
    return text;
  }
  std::string to_json() const override { return R"({"tokenizer": "letters"})"; }
};

TEST(OwnParts, ATokenizersErrorsMayBeAnyExceptions) {
  static std::function<std::unique_ptr<Tokenizer>()> parse, learn;
  add_tokenizer(
      "letters", [](std::string_view) { return parse(); },
      [](std::string_view) { return learn(); });
  parse = learn = [] { return std::make_unique<Letters>(); };
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  config.data = {folder.write("ab.txt", std::string(300, 'a') + "b")};
  config.tokenizer = "letters";
  Trainer trainer(config);
  EXPECT_EQ(trainer.sample_start(), "a");  // there is no line end
  std::string text;
  write_sample(trainer.model(), Letters(), "", {.max_new_tokens = 0},
               [&](const std::string& piece) { text += piece; });
  EXPECT_EQ(text, "a");
  trainer.save("ckpt");
  parse = []() -> std::unique_ptr<Tokenizer> { throw std::out_of_range("no words"); };
  EXPECT_EQ(error_of([&] { load_model(config.out_dir); }),
            config.out_dir + "/ckpt/config.json: vocabulary: tokenizer letters: no words");
  const auto read = [] { return error_of([] { parse_tokenizer(R"({"tokenizer": "letters"})"); }); };
  EXPECT_EQ(read(), "tokenizer letters: no words");
  parse = [] { return nullptr; };
  EXPECT_EQ(read(), "tokenizer letters: what add_tokenizer was given to read it made none");
  learn = [] { return nullptr; };
  EXPECT_EQ(error_of([&] { make_dataset(config); }),
            "--tokenizer letters: what add_tokenizer was given to learn it made none");
}

TEST(OwnParts, AModelWithoutBlocksShowsNone) {
  const std::string told = run_own(
      {"draw", "--what", "block", "--model", "recurrent", "--n_embd", "16", "--block_size", "8"});
  EXPECT_EQ(told.rfind("1: inkling draw: recurrent has no blocks; leave out --what block", 0), 0u)
      << told;
}

TEST(OwnParts, AModelWithoutHeadsHasAnyWidth) {
  const std::string told =
      run_own({"draw", "--model", "recurrent", "--n_embd", "18", "--block_size", "8"});
  EXPECT_EQ(told.rfind("0:", 0), 0u) << told;
}

// ---- optimizers

// AdamW as a user would write it.
struct OwnAdamW : Optimizer {
  OwnAdamW(const std::vector<ParameterGroup>& groups, double clip)
      : Optimizer("OwnAdamW", groups, 1e-2, 0.1, clip) {
    add_moments("m"), add_moments("v");
  }
  void update_parameter(ParameterUpdate& p) override {
    Tensor &m = p.moments[0], &v = p.moments[1];
    m.copy_(m * 0.9 + p.grad * 0.1);
    v.copy_(v * 0.99 + square(p.grad) * 0.01);
    const Tensor t = p.step.to(f64);
    p.value.mul_(1 - p.lr * p.weight_decay);
    p.value.sub_(p.lr * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.99, t))) + 1e-8));
  }
};

TEST(OwnOptimizer, IsAsTheLibrarysOwn) {
  const auto run = [](auto make) {
    manual_seed(1);
    Tensor a = randn({3, 4}).requires_grad_(), b = randn({4}).requires_grad_();
    std::vector<ParameterGroup> groups{{{{"a", a}}, {}, 0.5}, {{{"b", b}}, 0.0}};
    const auto optimizer = make(groups);
    for (int i = 0; i < 6; ++i) {
      Tensor loss = sum(square(matmul(a, b)));
      if (i == 2) loss = loss * INFINITY;  // a step that is skipped
      loss.backward();
      optimizer->step(loss);
      optimizer->zero_grad();
    }
    NamedTensors state = optimizer->state();
    state.insert(state.end(), {{"a", a.detach()}, {"b", b.detach()}});
    return state;
  };
  const NamedTensors expected = run([](const auto& groups) -> std::unique_ptr<Optimizer> {
    return std::make_unique<AdamW>(
        groups, AdamWOptions{.lr = 1e-2, .beta2 = 0.99, .weight_decay = 0.1, .grad_clip = 1});
  });
  const NamedTensors got = run([](const auto& groups) -> std::unique_ptr<Optimizer> {
    return std::make_unique<OwnAdamW>(groups, 1);
  });
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(allclose(got[i].second.to(f64), expected[i].second.to(f64), 1e-5, 1e-7))
        << expected[i].first;
}

// Also where a linear layer reads a rounded copy of its weight.
TEST(OwnOptimizer, TrainsInBf16AsTheLibrarysOwn) {
  add_optimizer("own_adamw", [](const auto& groups, const TrainConfig& c) {
    return std::make_unique<OwnAdamW>(groups, c.grad_clip);
  });
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  config.dtype = "bfloat16";
  config.learning_rate = config.min_lr = 1e-2;
  config.warmup_iters = 0;
  const auto losses = [&](const char* optimizer) {
    config.optimizer = optimizer;
    Trainer trainer(config);
    std::vector<double> all;
    for (int i = 0; i < 8; ++i) {
      trainer.step();
      all.push_back(trainer.progress().loss);
    }
    return all;
  };
  const std::vector<double> expected = losses("adamw"), got = losses("own_adamw");
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.01 * expected[i]) << i;
  EXPECT_LT(got.back(), 0.9 * got[0]);
}

struct Lacking : Optimizer {
  explicit Lacking(const NamedTensors& p) : Optimizer("Lacking", {{p}}, 1, 0, 0) {}
};

TEST(OwnOptimizer, SaysWhatIsWrong) {
  add_own_parts();
  EXPECT_EQ(error_of([] { add_optimizer<Signum>("adamw"); }),
            "add_optimizer: the name adamw is taken; choose another");
  EXPECT_EQ(error_of([] { add_tokenizer("byte", WordTokenizer::parse); }),
            "add_tokenizer: the name byte is taken; choose another");
  Tensor p = ones({2}).requires_grad_();
  sum(p).backward();
  Lacking lacking({{"p", p}});
  EXPECT_EQ(error_of([&] { lacking.step(); }),
            "Lacking: an optimizer of your own defines update_parameter");
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  add_optimizer("none", [](const auto&, const TrainConfig&) { return nullptr; });
  config.optimizer = "none";
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "make_optimizer: what add_optimizer was given for none made none");
}

// SGD with momentum whose update is one of several mistakes.
struct Mistaken : Optimizer {
  using Mistake = void (*)(Mistaken&, ParameterUpdate&);
  Mistake mistake;
  Mistaken(const NamedTensors& p, Mistake m) : Optimizer("Mistaken", {{p}}, 1, 0, 0), mistake(m) {
    add_moments("m");
  }
  void update_parameter(ParameterUpdate& p) override { mistake(*this, p); }
  using Optimizer::add_moments;
};

// What is not written in place would be lost in silence.
TEST(OwnOptimizer, WritesInPlace) {
  Tensor w = ones({2}).requires_grad_();
  sum(w).backward();
  const auto error = [&](Mistaken::Mistake mistake) {
    Mistaken optimizer({{"w", w}}, mistake);
    return error_of([&] { optimizer.step(); });
  };
  EXPECT_EQ(error([](Mistaken&, ParameterUpdate& p) { p.value = p.value - p.grad; }),
            "Mistaken: update_parameter gave w another tensor, which would be lost; write to it in "
            "place, as by copy_ or sub_");
  const std::string moment =
      "Mistaken: update_parameter gave moment m of w another tensor, which would be lost; write to "
      "it in place, as by copy_ or sub_";
  EXPECT_EQ(error([](Mistaken&, ParameterUpdate& p) { p.moments[0] = p.grad; }), moment);
  EXPECT_EQ(error([](Mistaken&, ParameterUpdate& p) { p.moments.clear(); }), moment);
  EXPECT_EQ(error([](Mistaken&, ParameterUpdate& p) { p.moments[0] = Tensor(); }), moment);
  EXPECT_EQ(error([](Mistaken&, ParameterUpdate& p) {
              Tensor& m = p.moments[0];
              m += p.grad;
              p.value -= m;
            }),
            "(no error)");
  EXPECT_TRUE(equal(w, zeros({2})));
}

// Names may be made while the program runs, and what is written to p.grad is not the model's.
TEST(OwnOptimizer, KeepsItsNamesAndTheGradients) {
  struct Named : Optimizer {
    explicit Named(const NamedTensors& p) : Optimizer(text("Named"), {{p}}, 0.1, 0, 0) {
      for (const char* moment : {"1", "2"}) add_moments(text(moment));
    }
    static std::string text(const std::string& end) {
      return "a name that is longer than any string keeps in itself: " + end;
    }
    void update_parameter(ParameterUpdate& p) override { p.grad.mul_(p.lr); }
  };
  Tensor w = ones({2}).requires_grad_();
  sum(w).backward();
  Named optimizer({{"w", w}});
  optimizer.step();
  EXPECT_EQ(w.grad().tolist(), std::vector<double>({1, 1}));
  EXPECT_EQ(optimizer.state()[0].first, Named::text("1") + ".w");
}

// A checkpoint could not have them, or not be read again.
TEST(OwnOptimizer, HasMomentsFromTheStartAndOfDifferentNames) {
  Tensor w = ones({2}).requires_grad_();
  sum(w).backward();
  Mistaken late({{"w", w}}, [](Mistaken& self, ParameterUpdate&) { self.add_moments("late"); });
  EXPECT_EQ(error_of([&] { late.step(); }),
            "Mistaken: expected all add_moments in the constructor, got late in a step");
  Mistaken twice({{"w", w}}, [](Mistaken&, ParameterUpdate&) {});
  EXPECT_EQ(error_of([&] { twice.add_moments("m"); }),
            "Mistaken: add_moments: the name m is taken; choose another");
  EXPECT_EQ(error_of([&] { twice.add_moments("step"); }),
            "Mistaken: add_moments: the name step is taken; choose another");
}

TEST(OwnParts, ATokenizerThatIsNotThereIsNamed) {
  add_own_parts();
  add_tokenizer("read", WordTokenizer::parse);
  const TempFolder folder;
  TrainConfig config = small_run(folder);
  config.data = {folder.write("book.txt", book())};
  const auto error = [&](const std::string& tokenizer) {
    config.tokenizer = tokenizer;
    return error_of([&] { make_dataset(config); });
  };
  EXPECT_EQ(error("read"),
            "--tokenizer: read: it is not learned from a text; name the file that holds one");
  const std::string told = error("none");
  EXPECT_EQ(told.rfind("--tokenizer: none: expected char, byte, bpe:N, ", 0), 0u) << told;
  EXPECT_NE(told.find(", word, or a file or folder; there is no such file"), std::string::npos)
      << told;
  const std::string file = folder.write("other.json", R"({"tokenizer": "other"})");
  EXPECT_EQ(error(file),
            "--tokenizer: " + file +
                ": tokenizer: expected \"tokenizer\" to be \"char\", \"byte\" or \"ids\", or "
                "\"model\" as in a tokenizer.json, got \"other\"; a program adds its own by "
                "add_tokenizer");
}

}  // namespace
}  // namespace ink
