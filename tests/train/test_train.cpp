// The trainer and the program: resumed runs bit for bit, refusals in words, exit codes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "autograd/engine/observer.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/test_device.h"
#include "train/trainer.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Folder = TempFolder;

TrainConfig small_config(const fs::path& out_dir) {
  TrainConfig config;
  config.device = test_device_name();
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  config.block_size = 32;
  config.batch_size = 3;
  config.gradient_accumulation_steps = 2;
  config.dropout = 0.1;
  config.max_iters = 60;
  config.warmup_iters = 5;
  config.eval_iters = 2;
  config.out_dir = out_dir.string();
  return config;
}

void expect_same_files(const fs::path& a, const fs::path& b) {
  for (const char* file :
       {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(read_file(a / file), read_file(b / file)) << file;
    EXPECT_FALSE(read_file(a / file).empty()) << file;
  }
}

void expect_resumed_equal(const std::function<void(TrainConfig&)>& change) {
  const Folder folder;
  TrainConfig straight = small_config(folder / "straight");
  change(straight);
  const std::vector<int64_t> stops = test_device().is_cpu() ? std::vector<int64_t>{7, 8, 29, 53, 60}
                                                            : std::vector<int64_t>{1, 2, 7, 11, 12};
  {
    Trainer trainer(straight);
    while (trainer.steps_done() < stops.back()) trainer.step();
    trainer.save("ckpt");
  }
  TrainConfig config = straight;
  config.out_dir = folder / "interrupted";
  for (const int64_t stop : stops) {
    manual_seed(static_cast<uint64_t>(stop));  // what this process drew elsewhere must not matter
    Trainer trainer(config);
    while (trainer.steps_done() < stop) trainer.step();
    if (stop == stops[2]) trainer.evaluate();
    trainer.save("ckpt");
    config.init_from = "resume";
  }
  expect_same_files(folder / "straight/ckpt", folder / "interrupted/ckpt");
  const fs::path average = "ckpt/ema.safetensors";
  EXPECT_EQ(fs::exists(folder / "straight" / average), config.ema > 0);
  if (config.ema > 0) {
    EXPECT_EQ(read_file(folder / "straight" / average),
              read_file(folder / "interrupted" / average));
  }
}
TEST(Trainer, ResumedRunsEqualUninterruptedOnesBitForBit) {
  expect_resumed_equal([](TrainConfig&) {});
}
TEST(Trainer, ResumedRunsEqualUninterruptedOnesWithMuonAndAnAverage) {
  expect_resumed_equal([](TrainConfig& config) {
    config.optimizer = "muon";
    config.schedule_name = "wsd";
    config.ema = 0.9;
  });
}
TEST(Trainer, ResumedRunsEqualUninterruptedOnesWithLion) {
  expect_resumed_equal([](TrainConfig& config) { config.optimizer = "lion"; });
}

// Bytes, of which rows have targets that count nothing: all of every fourth row, some of others.
class AnswersOnly : public Dataset {
 public:
  const Tokenizer& tokenizer() const override { return bytes_; }
  std::string summary() const override { return "answers"; }
  int64_t val_windows(int64_t) const override { return 7; }

 private:
  void fill_train_row(uint64_t, uint64_t number, Row row) const override {
    for (size_t i = 0; i < row.x.size(); ++i) {
      row.x[i] = static_cast<int64_t>((number * 7 + i * i) % 200);
      row.y[i] = number % 4 == 0 || i < number % 4 ? -100 : (row.x[i] * 3) % 200;
    }
  }
  void fill_val_row(int64_t window, Row row) const override {
    fill_train_row(0, static_cast<uint64_t>(window), row);
  }
  ByteTokenizer bytes_;
};

// A run that goes on does not take its next validation loss, whatever it is, for the best.
TEST(Trainer, TheBestLossIsTheLowestAndComesBack) {
  const Folder folder;
  TrainConfig config = small_config(folder / "run");
  {
    Trainer trainer(config, std::make_unique<AnswersOnly>());
    EXPECT_FALSE(trainer.note_validation(std::nan("")));
    EXPECT_TRUE(trainer.note_validation(2.5));
    EXPECT_TRUE(trainer.note_validation(1.5));
    for (const double loss : {1.5, 2.0, 1e300, std::nan("")}) {
      EXPECT_FALSE(trainer.note_validation(loss)) << loss;
      EXPECT_EQ(trainer.best_val_loss(), 1.5) << loss;
    }
    trainer.step();
    trainer.save("ckpt");
  }
  config.init_from = "resume";
  Trainer resumed(config, std::make_unique<AnswersOnly>());
  EXPECT_FALSE(resumed.is_validated()) << "it was saved a step later";
  EXPECT_EQ(resumed.best_val_loss(), 1.5);
  EXPECT_FALSE(resumed.note_validation(1.75));
  EXPECT_TRUE(resumed.note_validation(1.25));
  EXPECT_EQ(load_model(config.out_dir).best_val_loss, 1.5);
}

// Before the first validation there is no best loss, and none is saved.
TEST(Trainer, AnyLossIsTheBestOfARunThatHadNone) {
  const Folder folder;
  TrainConfig config = small_config(folder / "run");
  Trainer(config, std::make_unique<AnswersOnly>()).save("ckpt");
  EXPECT_FALSE(load_model(config.out_dir).best_val_loss.has_value());
  config.init_from = "resume";
  Trainer resumed(config, std::make_unique<AnswersOnly>());
  EXPECT_TRUE(resumed.note_validation(1e6));
}

// Whatever the parts and the micro-batches that the targets are in.
TEST(Trainer, EveryTargetCountsAlike) {
  const ContextGuard guard;
  context().observers.clear();  // one that looks on keeps the trainer to one part
  const Folder folder;
  std::vector<double> losses, norms, evaluated;
  for (const auto& [rows, micro_batches, parts] :
       {std::array{8, 1, 1}, {8, 1, 2}, {8, 1, 4}, {4, 2, 1}, {2, 4, 2}, {1, 8, 1}}) {
    TrainConfig config = small_config(folder / "run");
    config.dropout = 0;
    config.batch_size = rows;
    config.gradient_accumulation_steps = micro_batches;
    config.batch_parts = parts;
    Trainer trainer(config, std::make_unique<AnswersOnly>());
    evaluated.push_back(trainer.evaluate(true).loss);
    trainer.step();
    const Progress progress = trainer.progress();
    losses.push_back(progress.loss);
    norms.push_back(progress.grad_norm);
    EXPECT_EQ(progress.skipped, 0);
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], losses[0], 2e-6) << i;
    EXPECT_NEAR(norms[i], norms[0], 2e-5) << i;
    EXPECT_NEAR(evaluated[i], evaluated[0], 2e-6) << i;
  }
}

TEST(Trainer, EvaluationKeepsToOneThreadWhereSomebodyObservesAndRestoresModes) {
  const Folder folder;
  Trainer trainer(small_config(folder / "run"), std::make_unique<AnswersOnly>());
  auto& model = dynamic_cast<GPT&>(trainer.model());
  model.train();
  model.drop.eval();
  struct Watch : Observer {
    std::set<std::thread::id> threads;
    bool fail = false;
    void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
      threads.insert(std::this_thread::get_id());
      INK_CHECK(!fail, "watch: fails");
    }
  } watch;
  const Observe observe(watch);
  const auto expect_modes = [&] {
    EXPECT_TRUE(model.training && model.h[0]->training);
    EXPECT_FALSE(model.drop.training);
  };
  trainer.evaluate(true);
  EXPECT_EQ(watch.threads.size(), 1u);
  expect_modes();
  watch.fail = true;
  EXPECT_EQ(error_of([&] { trainer.evaluate(true); }), "watch: fails");
  expect_modes();
}

TEST(Trainer, WhoWatchesAnEvaluationLearnsItsShareAndStopsIt) {
  const ContextGuard guard;
  context().observers.clear();
  const Folder folder;
  const Trainer trainer(small_config(folder / "run"), std::make_unique<AnswersOnly>());
  std::mutex mutex;
  std::vector<double> shares;
  const auto watch = [&](double stop_at) {
    shares.clear();
    return trainer.evaluate(true, [&](double done) {
      const std::lock_guard lock(mutex);
      shares.push_back(done);
      return done >= stop_at;
    });
  };
  EXPECT_EQ(watch(2).loss, trainer.evaluate(true).loss);
  EXPECT_EQ(shares.size(), 3u);  // 7 windows by 3
  for (const double share : shares) EXPECT_TRUE(share >= 0 && share < 1) << share;
  EXPECT_FALSE(watch(0).whole);
}

TEST(Trainer, StepsTouchNoRawMemoryAndLeaveNoGraph) {
  const Folder folder;
  Trainer trainer(small_config(folder / "run"));
  trainer.step();
  const int64_t after_first = memory_stats(test_device()).raw_allocations;
  for (int i = 0; i < 30; ++i) trainer.step();
  EXPECT_EQ(memory_stats(test_device()).raw_allocations, after_first);
  EXPECT_EQ(Node::live, 0);
}

TEST(Trainer, MemoryIsFlat) {
  const Folder folder;
  TrainConfig config = small_config(folder / "run");
  config.n_layer = 1;
  config.block_size = 8;
  config.gradient_accumulation_steps = 1;
  Trainer trainer(config);
  for (int i = 0; i < 10; ++i) trainer.step();
  trainer.progress();
  const MemoryStats before = memory_stats(test_device());
  const int64_t steps = by_device(2000, 60);
  while (trainer.steps_done() < steps) {
    trainer.step();
    if (trainer.steps_done() % (steps / 20) == 0) trainer.progress();
  }
  EXPECT_EQ(memory_stats(test_device()).bytes_held, before.bytes_held);
  EXPECT_EQ(memory_stats(test_device()).bytes_in_use, before.bytes_in_use);
}

TEST(Trainer, ComposedTrainsToTheSameLosses) {
  const Folder folder;
  TrainConfig config = small_config(folder / "run");
  std::vector<double> losses[2];
  for (int composed = 0; composed < 2; ++composed) {
    config.composed = composed;
    Trainer trainer(config);
    for (int i = 0; i < 5; ++i) {
      trainer.step();
      losses[composed].push_back(trainer.progress().loss);
    }
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-5 * losses[0][i]);
}

TEST(Trainer, SkipsAndNamesWhatIsNotFinite) {
  const Folder folder;
  TrainConfig config = small_config(folder / "run");
  Trainer trainer(config);
  trainer.step();
  const auto& model = dynamic_cast<const GPT&>(trainer.model());
  {
    const NoGrad no_grad;
    Tensor weight = model.h[1]->mlp->c_fc.weight;
    weight.mul_(std::numeric_limits<double>::infinity());
  }
  const auto before = model.wpe.weight.tolist();
  trainer.step();
  trainer.step();
  const Progress progress = trainer.progress();
  EXPECT_EQ(progress.skipped, 2);
  EXPECT_EQ(trainer.skipped().in_a_row, 2);
  EXPECT_EQ(model.wpe.weight.tolist(), before);
  EXPECT_EQ(trainer.find_non_finite().substr(0, 6), "linear") << trainer.find_non_finite();
}

// ---- the program

std::string small_flags(const Folder& folder, const std::string& out_dir) {
  return "train --n_layer 1 --n-head 2 --n_embd=16 --block-size 32 --batch_size 2 --dropout 0.1 "
         "--max_iters 40 --eval_interval 15 "
         "--eval_iters 1 --log_interval 5 --gradient_accumulation_steps 2 --sample_interval 0 "
         "--final_eval whole "
         "--out_dir " +
         (folder / out_dir).string() + " ";
}

TEST(Program, UsageErrorsNameTheNearest) {
  const Folder folder;
  const auto expect = [&](const std::string& arguments, const std::string& text) {
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.code, 2) << arguments;
    EXPECT_EQ(ran.err.substr(0, ran.err.find('\n')), text) << arguments;
  };
  expect("train --n_layers 2",
         "inkling train: there is no option --n_layers; did you mean --n_layer?");
  expect("train --batch-sise 2",
         "inkling train: there is no option --batch-sise; did you mean --batch_size?");
  expect("trian", "inkling: there is no command trian; did you mean train?");
  expect("train --n_head 3",
         "inkling train: config: n_embd is 128; expected a multiple of n_head, 3");
  expect("train --dropout 1.5", "inkling train: --dropout is 1.5; expected 0 or more and below 1");
  expect("train --batch_size 0", "inkling train: --batch_size is 0; expected 1 to 1048576");
  std::ofstream(folder / "bad.toml") << "n_layr = 3\n";
  const std::string file = (folder / "bad.toml").string();
  expect("train --config " + file,
         "inkling train: " + file + ": there is no setting n_layr; did you mean n_layer?");
}

// A folder as nanoGPT's prepare.py leaves it: ids of "\nab", and their meaning.
TEST(Program, AFolderOfNanoGPTIsTrainedOnAsItStands) {
  const Folder folder;
  const std::string data = (folder / "data").string(),
                    in = " --out_dir " + (folder / "out").string(),
                    train =
                        "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 32 "
                        "--batch_size 2 --eval_iters 1 --final_eval off --max_iters ";
  fs::create_directories(data);
  const auto write_ids = [&](const std::string& name, int count, int kinds) {
    std::ofstream out(data + "/" + name, std::ios::binary);
    for (int i = 0; i < count; ++i) out << static_cast<char>(i % kinds) << '\0';
  };
  write_ids("train.bin", 900, 3);
  write_ids("val.bin", 100, 3);
  std::ofstream(data + "/input.txt") << "no part of it";
  const Ran unknown = run_program(train + "5 --data " + data + in);
  EXPECT_EQ(unknown.code, 0);
  EXPECT_NE(unknown.err.find("nothing says what they mean: samples are ids. Name their vocabulary "
                             "with --tokenizer FILE"),
            std::string::npos)
      << unknown.err;
  std::ofstream(data + "/meta.pkl", std::ios::binary)  // {"stoi": {"\n": 0, "a": 1, "b": 2}}
      << std::string("\x80\x04}\x8c\4stoi}(\x8c\1\nK\0\x8c\1aK\1\x8c\1bK\2us.", 29);
  const Ran ran = run_program(train + "5 --overwrite --data " + data + in);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("/train.bin: 900 tokens to train on, 100 to validate on, vocabulary of 3 "
                         "(char)"),
            std::string::npos)
      << ran.out;
  const Ran sample = run_program("sample --max_new_tokens 5" + in);
  EXPECT_EQ(sample.out.substr(0, 1), "\n") << sample.out << sample.err;
  const Ran evaluated = run_program("eval" + in);
  EXPECT_NE(evaluated.out.find("over 96 tokens of "), std::string::npos) << evaluated.err;
  EXPECT_EQ(evaluated.out, run_program("eval --data " + data + in).out);
  const std::string resume = train + "9 --init_from resume" + in;
  write_ids("val.bin", 100, 2);  // the same number of bytes
  const Ran changed = run_program(resume);
  EXPECT_EQ(changed.code, 1);
  EXPECT_NE(changed.err.find("validated on 200 bytes with CRC-64 "), std::string::npos)
      << changed.err;
  write_ids("val.bin", 100, 3);
  fs::remove(data + "/meta.pkl");  // the checkpoint knows
  EXPECT_EQ(run_program(resume).code, 0);
}

TEST(Program, ConfigFilePlusFlags) {
  const Folder folder;
  std::ofstream(folder / "run.toml") << "n_layer = 3\nlearning_rate = 0.005\nbias = true\n";
  const Ran ran =
      run_program("train --print-config --n_layer 2 --config " + (folder / "run.toml").string());
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("\nn_layer = 2\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\nlearning_rate = 0.005\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\nbias = true\n"), std::string::npos) << ran.out;
  std::ofstream(folder / "printed.toml") << ran.out;  // what it prints, it reads
  EXPECT_EQ(run_program("train --print_config --config " + (folder / "printed.toml").string()).out,
            ran.out);
}

TEST(Program, AConfigFileMayBeAPipe) {
  const Ran ran =
      run_shell("echo max_iters = 3 | inkling train --config /dev/stdin --print_config");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("\nmax_iters = 3\n"), std::string::npos) << ran.out;
}

TEST(Program, ReadsAConfigFileToTheLetter) {
  const Folder folder;
  const auto settings = [&](const std::string& text) {
    std::ofstream(folder / "x.toml") << text;
    return run_program("train --print_config --config " + (folder / "x.toml").string());
  };
  const Ran ran = settings(
      "out_dir = \"run #3\"  # not a comment: #3\n\ndata = [ # two\n  \"a\\u00e9\\n\", 'b\\c\"d'\n"
      "]\r\ntokenizer = \"a\\\\\"\nrecompute\nseed = 7 # last");
  for (const char* line : {"\nout_dir = \"run #3\"\n", "\ndata = [\"aé\\n\",\"b\\\\c\\\"d\"]\n",
                           "\ntokenizer = \"a\\\\\"\n", "\nrecompute = true\n", "\nseed = 7\n"})
    EXPECT_NE(ran.out.find(line), std::string::npos) << line << ran.out << ran.err;
  EXPECT_EQ(settings(ran.out).out, ran.out);  // what it prints, it reads
  const auto expect_error = [&](const std::string& text, const std::string& error) {
    const Ran wrong = settings("# first\n" + text);
    EXPECT_EQ(wrong.code, 2) << text;
    EXPECT_NE(wrong.err.find("x.toml: line " + error), std::string::npos) << wrong.err;
  };
  expect_error("[train]\n", "2: expected name = value");
  expect_error("n_layer 3\n", "2: expected name = value");
  expect_error("n_layer =\n", "2: n_layer: expected a value");
  expect_error("n_layer = 1]\n", "2: expected a value, got ]");
  expect_error("data = [a,\nb\n", "4: expected ] at the end of a list");
  expect_error("out_dir = \"a\nseed = 1\n", "2: expected \" at the end of a text");
  expect_error("out_dir = \"\\q\"\n", "2: expected a text as in JSON, or in ''");
  expect_error("seed = 1\n\nseed = 2\n", "4: seed comes twice");
}

// The command that a text tells the user to type.
std::string told(const std::string& text, const std::string& before) {
  const size_t begin = text.find(before);
  EXPECT_NE(begin, std::string::npos) << text;
  if (begin == std::string::npos) return "false";
  return text.substr(begin + before.size(), text.find('\n', begin) - begin - before.size());
}

TEST(Program, NamesItselfAsItWasCalled) {
  const Folder folder;
  fs::create_symlink(program_path(), folder / "ada's program");
  const std::string called = "\"" + (folder / "ada's program").string() + "\"";
  const Ran unknown = run_shell(called + " train --n_layers 2");
  EXPECT_EQ(unknown.code, 2);
  const std::string quoted = "'" + (folder / "ada'\\''s program").string() + "'";
  EXPECT_EQ(told(unknown.err, "Try: "), quoted + " train --help");
  const Ran help = run_shell(told(unknown.err, "Try: "));
  EXPECT_NE(help.out.find(quoted + " train"), std::string::npos) << help.out;
}

TEST(Program, InterruptedAndResumedEqualsStraight) {
  const Folder folder;
  EXPECT_EQ(run_program(small_flags(folder, "straight")).code, 0);
  const Ran interrupted = run_shell("\"$INKLING_PROGRAM\" " + small_flags(folder, "stopped") +
                                    "& pid=$!; sleep 0.3; kill -INT $pid; wait $pid");
  if (interrupted.code != 0) {  // it may have been faster than the signal
    EXPECT_EQ(interrupted.code, 130);
    const Ran resumed = run_shell(told(interrupted.out, "To go on: "));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
  expect_same_files(folder / "straight/ckpt", folder / "stopped/ckpt");
  int64_t last = 0;
  std::ifstream metrics(folder / "stopped/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_GE(object.at("step").get<int64_t>(), last);
    last = object.at("step").get<int64_t>();
  }
  EXPECT_EQ(last, 40);
}

TEST(Program, TrainsSamplesEvaluatesAndExplains) {
  const Folder folder;
  const Ran trained = run_program(small_flags(folder, "out"));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("best possible"), std::string::npos) << trained.out;
  EXPECT_EQ(run_shell(told(trained.out, "To let it write more: ")).code, 0);
  EXPECT_EQ(trained.out.find('\033'), std::string::npos) << "escape codes outside of a terminal";
  const std::string out_dir = "--out_dir " + (folder / "out").string();
  const Ran sampled =
      run_program("sample " + out_dir + " --num_samples 2 --max_new_tokens 50 --start The");
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  EXPECT_EQ(sampled.out.substr(0, 3), "The");
  EXPECT_EQ(
      sampled.out,
      run_program("sample " + out_dir + " --num_samples 2 --max_new_tokens 50 --start The").out);
  // Each way to choose shows, and at its default it changes nothing.
  const std::string continued = "sample " + out_dir + " --max_new_tokens 60 --start The",
                    plain = run_program(continued).out;
  EXPECT_EQ(run_program(continued + " --top_p 1 --min_p 0 --repetition_penalty 1").out, plain);
  for (const char* option : {" --top_p 0.3", " --min_p 0.5", " --repetition_penalty 3"})
    EXPECT_NE(run_program(continued + option).out, plain) << option;
  EXPECT_EQ(run_program(continued + " --top_p 0").out,
            run_program(continued + " --temperature 0").out);
  const fs::path page = folder / "page.html";
  EXPECT_EQ(run_program("sample " + out_dir + " --attention " + page.string()).code, 0);
  EXPECT_EQ(read_file(page).substr(0, 15), "<!doctype html>");
  const Ran unknown = run_program("sample " + out_dir + " --start 'T#'");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("#"), std::string::npos) << unknown.err;
  EXPECT_EQ(run_program("eval " + out_dir).code, 0);
  EXPECT_NE(run_program("info " + out_dir).out.find("wte"), std::string::npos);
}

TEST(Program, GradcheckSaysWhatItDoesNotSee) {
  const Ran ran = run_program("gradcheck --only softmax");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(
      ran.out.find(" failed\nThis checks f64 on small shapes. The tests also check f32, bf16, "
                   "sizes that are no multiple of a vector, several threads and ties.\n"),
      std::string::npos)
      << ran.out;
}

TEST(Program, NoStepsSaveTheModelAsItStarts) {
  const Folder folder;
  const Ran trained = run_program(
      "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 32 "
      "--max_iters 0 --out_dir " +
      (folder / "out").string());
  EXPECT_EQ(trained.code, 0) << trained.err;
  const Ran sampled = run_program("sample --out_dir " + (folder / "out").string());
  EXPECT_EQ(sampled.code, 0) << sampled.err;
}

TEST(Program, RefusesBadData) {
  const Folder folder;
  const auto error_of = [&](const std::string& arguments) {
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.code, 1) << arguments << ran.err;
    return ran.err;
  };
  const std::string train = "train --overwrite --out_dir " + (folder / "").string() + " --data ";
  std::ofstream(folder / "metrics.jsonl") << "{}\n";  // an earlier run's
  std::ofstream(folder / "short.txt") << "too short";
  EXPECT_NE(error_of(train + (folder / "short.txt").string()).find("block_size"),
            std::string::npos);
  std::ofstream(folder / "scarce.txt") << std::string(1000, 'x');
  EXPECT_NE(error_of(train + (folder / "scarce.txt").string()).find("validation part has 100"),
            std::string::npos);
  EXPECT_NE(error_of(train + (folder / "none.txt").string()).find("none.txt"), std::string::npos);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), "{}\n");
  EXPECT_NE(error_of("train --init_from resume --out_dir " + (folder / "nowhere").string())
                .find("nowhere"),
            std::string::npos);
  EXPECT_NE(error_of("sample --out_dir " + (folder / "nowhere").string()).find("nowhere"),
            std::string::npos);
}

TEST(Program, ADamagedCheckpointFallsBackToTheOneBefore) {
  const Folder folder;
  EXPECT_EQ(run_program(small_flags(folder, "out")).code, 0);
  std::ofstream(folder / "out/ckpt/model.safetensors", std::ios::app) << "damage";
  const Ran sampled = run_program("sample --checkpoint ckpt --max_new_tokens 5 --out_dir " +
                                  (folder / "out").string());
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  EXPECT_NE(sampled.err.find("ckpt.prev"), std::string::npos) << sampled.err;
}

// The optimizer's state is needed by whoever trains on, and by nobody else.
TEST(Program, ARunWithoutItsOptimizerWritesAndDoesNotGoOn) {
  const Folder folder;
  const std::string out = " --out_dir " + (folder / "out").string();
  EXPECT_EQ(run_program(small_flags(folder, "out")).code, 0);
  const auto sampled = [&] {
    return run_program("sample --max_new_tokens 9 --temperature 0" + out);
  };
  const Ran before = sampled();
  std::vector<std::filesystem::path> files;
  for (const char* name : {"ckpt", "ckpt.prev", "best", "best.prev"}) {
    const auto file = folder / "out" / name / "optimizer.safetensors";
    if (!std::filesystem::exists(file)) continue;
    std::filesystem::resize_file(file, 100);
    files.push_back(file);
  }
  for (const char* reason : {"expected", "cannot"}) {
    const Ran after = sampled(), resumed = run_program("train --init_from resume" + out);
    EXPECT_EQ(after.code, 0) << after.err;
    EXPECT_EQ(after.out, before.out);
    EXPECT_EQ(after.err, "");
    EXPECT_EQ(run_program("info" + out).code, 0);
    EXPECT_EQ(resumed.code, 1);
    EXPECT_NE(resumed.err.find("/ckpt/optimizer.safetensors: " + std::string(reason)),
              std::string::npos)
        << resumed.err;
    for (const auto& file : files) std::filesystem::remove(file);
  }
}

TEST(Device, Names) {
  EXPECT_EQ(parse_device("cpu"), cpu_device);
  EXPECT_EQ(parse_device("cuda"), (Device{Device::CUDA, 0}));
  EXPECT_EQ(parse_device("cuda:3").index, 3);
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "cuda1"})
    EXPECT_NE(error_of([&] { parse_device(wrong); }).find("expected cpu, cuda or cuda:N"),
              std::string::npos)
        << wrong;
}

TEST(Device, OneThatIsNotThereIsRefusedInWords) {
  const std::string error = error_of([] { zeros({2}, Device{Device::CUDA, 100}); });
  EXPECT_EQ(error.find("device: cuda:100 is not available: "), 0) << error;
  EXPECT_EQ(run_program("train --device gpu").code, 2);
  const Ran ran = run_program("train --device cuda:100 --out_dir /nonexistent/run");
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.err.find("cuda:100 is not available"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace ink
