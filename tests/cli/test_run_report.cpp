// The report of a run: what a run writes for it, what it finds, and the page in a browser.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "data/file.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/models.h"
#include "train/report/findings.h"
#include "train/report/probe.h"
#include "train/report/report.h"
#include "train/report/run_data.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string kSmall =
    "--n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4 --eval_iters 2 "
    "--final_eval off --seed 7 ";

Ran train(const fs::path& out_dir, const std::string& options) {
  return run_program("train " + kSmall + "--out_dir " + out_dir.string() + " " + options);
}

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// The object that a page's last call is given.
Json data_of(const std::string& page) {
  const size_t begin = page.rfind("report({") + 7, end = page.rfind(");\n</script>");
  return Json::parse(page.substr(begin, end - begin));
}

TEST(RunReport, WritesThePageOfARun) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 40 --eval_interval 20 --log_interval 5").code, 0);
  const Json data = data_of(read_file(out / kReportFile));
  EXPECT_EQ(data.at("reload_s"), 0);
  const Json run = data.at("runs").at(0);
  EXPECT_EQ(run.at("state"), "finished");
  EXPECT_EQ(run.at("step"), 40);
  EXPECT_EQ(run.at("config").at("n_embd"), 32);
  EXPECT_EQ(run.at("metrics").at("step"), Json::parse("[5,10,15,20,25,30,35,40]"));
  EXPECT_EQ(run.at("metrics").at("train_loss").size(), 8u);
  EXPECT_EQ(run.at("validation").at("step").at(0), 20);
  EXPECT_NE(run.at("model_tree").get<std::string>().find("CausalSelfAttention"), std::string::npos);
  EXPECT_NE(run.at("command").get<std::string>().find("sample --out_dir"), std::string::npos);
  EXPECT_EQ(run.at("samples").size(), 1u);
  const Json probes = run.at("probes");
  EXPECT_EQ(probes.at("step").front(), 1);
  EXPECT_EQ(probes.at("step").back(), 40);
  const size_t count = probes.at("step").size();
  for (const char* name : {"weight_norm", "grad_norm", "update_ratio"}) {
    EXPECT_EQ(probes.at("parameters").at(name).size(), count) << name;
    EXPECT_EQ(probes.at("parameters").at(name).at(0).size(),
              probes.at("parameters").at("name").size());
  }
  // A probability for each token after the first, beside the true one.
  const Json text = probes.at("text");
  EXPECT_EQ(text.at("tokens").size(), 32u);
  for (const auto& list : {text.at("p").at(0), text.at("true")}) {
    EXPECT_TRUE(list.at(0).is_null());
    for (size_t i = 1; i < list.size(); ++i) {
      EXPECT_GT(list.at(i).get<double>(), 0);
      EXPECT_LE(list.at(i).get<double>(), 1);
    }
  }
  // Two layers, two heads, a triangle of 32 x 33 / 2 bytes each.
  EXPECT_EQ(probes.at("attention").at("weights").at(0).get<std::string>().size(),
            (4 * 32 * 33 / 2 + 2) / 3 * 4u);
}

// A task: the share of whole answers that are right is what the model writes itself, and the loss
// comes near the best possible one.
TEST(RunReport, TellsHowManyAnswersAreRight) {
  const TempFolder folder;
  const std::string out = (folder / "run").string();
  const Ran ran = run_program(
      "train --data task:sorting --task_digits 1 --n_layer 2 --n_head 1 --n_embd 32 --block_size "
      "16 "
      "--batch_size 64 --learning_rate 0.004 --max_iters 900 --eval_interval 450 --eval_iters 1 "
      "--sample_interval 0 --out_dir " +
      out);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("data   task:sorting, such as 4=4, vocabulary of 12 (char). A model must"),
            std::string::npos)
      << ran.out;
  const Json run = data_of(read_file(folder / "run" / kReportFile)).at("runs").at(0);
  const Json& validation = run.at("validation");
  EXPECT_GT(validation.at("val_answers").back().get<double>(), 0.99) << ran.out;
  // Half of the characters are certain; the others are digits, or the line end after one.
  const double best = validation.at("best_possible").back(),
               loss = validation.at("val_loss").back();
  EXPECT_NEAR(best, std::log(10) / 4, 0.01);
  EXPECT_LT(loss, 1.03 * best);
  EXPECT_NE(ran.out.find(" % of answers right, "), std::string::npos) << ran.out;
  const Ran text = run_program("report --text " + out);
  EXPECT_NE(text.out.find(" % of answers right after step 450, "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" % of answers right after step 900\n"), std::string::npos) << text.out;
  const Ran eval = run_program("eval --out_dir " + out);
  EXPECT_NE(eval.out.find(" % of answers right over "), std::string::npos) << eval.out << eval.err;
  const Ran sample =
      run_program("sample --temperature 0 --max_new_tokens 2 --start 7= --out_dir " + out);
  EXPECT_EQ(sample.out.rfind("7=7\n", 0), 0u) << sample.out << sample.err;
  const Ran other =
      run_program("train --init_from resume --data task:copy --max_iters 901 --out_dir " + out);
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("was trained on task:sorting, --task_digits 1"), std::string::npos)
      << other.err;
}

TEST(RunReport, ChangesNoBitOfTheRun) {
  const TempFolder folder;
  const fs::path with = folder / "with", without = folder / "without";
  const std::string options = "--max_iters 12 --eval_interval 4 --dropout 0.1 --report ";
  ASSERT_EQ(train(with, options + "on").code, 0);
  ASSERT_EQ(train(without, options + "off").code, 0);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(with / "ckpt" / file), read_file(without / "ckpt" / file)) << file;
  for (const char* file : {kReportFile, kProbesFile, kRunFile}) {
    EXPECT_TRUE(fs::exists(with / file)) << file;
    EXPECT_FALSE(fs::exists(without / file)) << file;
  }
}

TEST(RunReport, AResumedRunMeasuresOn) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 10 --eval_interval 5 --log_interval 5").code, 0);
  const std::string started = Json::parse(read_file(out / kRunFile)).at("started");
  // A step that was measured after the checkpoint, and half of another line.
  std::ofstream(out / kProbesFile, std::ios::app) << "{\"step\":12}\n{\"step\":1";
  ASSERT_EQ(train(out, "--init_from resume --max_iters 20").code, 0);
  std::vector<int64_t> steps;
  for (const Json& line : lines_of(out / kProbesFile)) steps.push_back(line.at("step"));
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 12), 0);
  EXPECT_EQ(steps.back(), 20);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(Json::parse(read_file(out / kRunFile)).at("started"), started);
  EXPECT_EQ(data_of(read_file(out / kReportFile)).at("runs").at(0).at("max_iters"), 20);
}

// The log says where a resumed run has another batch or other data.
TEST(RunReport, LinesSayWhatTheyWereTrainedOn) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  const std::string text = "abcdefgh\n", more = "hgfedcba\n";
  std::string one, two;
  for (int i = 0; i < 200; ++i) one += text, two += more;
  folder.write("one.txt", one), folder.write("two.txt", two);
  const auto go_on = [&](const std::string& options) {
    const Ran ran = train(out, "--log_interval 5 --sample_interval 0 " + options);
    ASSERT_EQ(ran.code, 0) << ran.err;
  };
  go_on("--max_iters 10 --data " + (folder / "one.txt").string());
  go_on("--max_iters 20 --init_from resume");
  EXPECT_EQ(Json::parse(read_file(out / kRunFile)).at("train_tokens"), 1620);
  go_on("--max_iters 30 --init_from resume --data_changed --data " + (folder / "two.txt").string());
  go_on("--max_iters 40 --init_from resume --gradient_accumulation_steps 2");
  std::vector<int64_t> sets;
  for (const Json& line : lines_of(out / kMetricsFile))
    if (line.contains("train_loss")) sets.push_back(line.at("train_set"));
  ASSERT_EQ(sets.size(), 8u);
  for (size_t i = 1; i < 8; ++i) EXPECT_EQ(sets[i] != sets[i - 1], i == 4 || i == 6) << i;
}

// Speeds are compared where these are the same, too.
TEST(RunReport, LinesSayOnWhatTheyWereTrained) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  int steps = 0;
  for (const char* more : {"--threads 1", "--init_from resume", "--init_from resume --threads 2",
                           "--init_from resume --threads 2 --dtype bfloat16"})
    ASSERT_EQ(train(out, "--log_interval 5 --sample_interval 0 --max_iters " +
                             std::to_string(steps += 5) + " " + more)
                  .code,
              0);
  std::vector<int64_t> sets, batches;
  for (const Json& line : lines_of(out / kMetricsFile))
    if (line.contains("train_loss"))
      sets.push_back(line.at("speed_set")), batches.push_back(line.at("train_set"));
  ASSERT_EQ(sets.size(), 4u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(sets[i] == sets[i - 1], i == 1) << i;
    EXPECT_EQ(batches[i], batches[0]);
  }
}

// run.json says with what a run was trained, and how it began.
TEST(RunReport, AResumedRunKeepsWhatItWasTrainedWith) {
  const TempFolder folder;
  const fs::path out = folder / "run", tuned = folder / "tuned";
  ASSERT_EQ(train(out, "--max_iters 10").code, 0);
  const std::string before = read_file(out / kRunFile);
  ASSERT_EQ(train(out, "--init_from resume --learning_rate 0.005 --weight_decay 0.3").code, 0);
  EXPECT_EQ(read_file(out / kRunFile), before) << "no step was trained with these";
  const auto config = [&](const fs::path& of) {
    return Json::parse(read_file(of / kRunFile)).at("config");
  };
  ASSERT_EQ(train(out, "--init_from resume --learning_rate 0.005 --max_iters 12").code, 0);
  EXPECT_EQ(config(out).at("learning_rate"), 0.005);
  EXPECT_EQ(config(out).at("init_from"), "scratch");
  ASSERT_EQ(train(tuned, "--max_iters 4 --init_from " + out.string()).code, 0);
  ASSERT_EQ(train(tuned, "--max_iters 8 --init_from resume").code, 0);
  EXPECT_EQ(config(tuned).at("init_from"), out.string());
}

// Without run.json, the checkpoint knows how far the run was to go.
TEST(RunReport, ARunWithoutReportIsNoFinishedOne) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 1000000 --max_minutes 0.01 --log_interval 1 --report off").code,
            0);
  const Json run = read_run(out);
  EXPECT_EQ(run.at("state"), "stopped");
  EXPECT_EQ(run.at("max_iters"), 1000000);
  const Ran text = run_program("report --text " + out.string());
  EXPECT_NE(text.out.find("\nstopped: step "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" of 1000000; to go on: "), std::string::npos) << text.out;
}

// One that was killed is not saved as far as its log goes, and the end of a run is its sample.
TEST(RunReport, SaysFromWhereARunGoesOn) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 40 --eval_interval 20 --log_interval 5").code, 0);
  const std::string log = read_file(out / "metrics.jsonl");
  ASSERT_EQ(read_run(out).at("state"), "finished");
  std::ofstream(out / "metrics.jsonl") << log.substr(0, log.find("{\"step\":40,\"sample\""));
  EXPECT_EQ(read_run(out).at("state"), "stopped");
  std::ofstream(out / "metrics.jsonl") << log.substr(0, log.find("{\"step\":30"));
  EXPECT_NE(run_program("report --text " + out.string()).out.find("; to go on: "),
            std::string::npos);
  ASSERT_EQ(train(out, "--overwrite --max_iters 100000 --max_minutes 0.01").code, 0);
  std::ofstream(out / "metrics.jsonl", std::ios::app) << "{\"step\":99999,\"train_loss\":1}\n";
  const Ran told = run_program("report --text " + out.string());
  EXPECT_NE(told.out.find("stopped: step 99999 of 100000; to go on after step "), std::string::npos)
      << told.out;
}

// Of one folder name, as runs of two folders may have it.
TEST(RunReport, RunsOfOneNameAreToldApart) {
  const TempFolder folder;
  const std::string a = (folder / "a/run").string(), b = (folder / "b/run").string(),
                    page = (folder / "both.html").string();
  ASSERT_EQ(train(a, "--max_iters 2").code, 0);
  ASSERT_EQ(train(b, "--max_iters 2").code, 0);
  ASSERT_EQ(run_program("report --out " + page + " " + a + " " + b).code, 0);
  const Json runs = data_of(read_file(page)).at("runs");
  EXPECT_EQ(runs.at(0).at("name"), a);
  EXPECT_EQ(runs.at(1).at("name"), b);
}

// A resumed run keeps its number of threads, and says that.
TEST(RunReport, TheMachineIsWhatTheRunUses) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 2 --threads 1").code, 0);
  ASSERT_EQ(train(out, "--max_iters 4 --init_from resume").code, 0);
  const std::string machine = read_run(out).at("machine");
  EXPECT_NE(machine.find(", 1 thread,"), std::string::npos) << machine;
}

TEST(RunReport, WhatIsNotOursIsNotTouched) {
  const TempFolder folder;
  folder.write("report.html", "<h1>My own</h1>");
  const Ran refused = train(folder.path(), "--max_iters 2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("report.html: expected a file that inkling wrote"), std::string::npos)
      << refused.err;
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl"));
  EXPECT_EQ(train(folder.path(), "--max_iters 2 --report off").code, 0);
  EXPECT_EQ(train(folder.path(), "--max_iters 2 --report off --overwrite").code, 0);
  EXPECT_EQ(read_file(folder / "report.html"), "<h1>My own</h1>");
}

TEST(RunReport, OverwriteDeletesTheOldReport) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  ASSERT_EQ(train(out, "--max_iters 4 --eval_interval 2").code, 0);
  ASSERT_EQ(train(out, "--max_iters 2 --overwrite --report off").code, 0);
  for (const char* file : {kReportFile, kProbesFile, kRunFile})
    EXPECT_FALSE(fs::exists(out / file));
}

TEST(RunReport, ARunGoesOnWithoutIt) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  fs::create_directory(out);
  fs::create_symlink("/dev/full", out / "probes.jsonl");
  const Ran refused = train(out, "--max_iters 4");
  EXPECT_EQ(refused.code, 1);  // before anything is written
  fs::remove(out / "probes.jsonl");
  // The page cannot be written, because a folder has the name that it has meanwhile.
  fs::create_directories(out / (std::string(kReportFile) + ".tmp") / "x");
  const Ran ran = train(out, "--max_iters 40 --eval_interval 20");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string word = "No report from here on: ";
  EXPECT_NE(ran.out.find(word), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find(word), ran.out.rfind(word)) << "said once";
  EXPECT_TRUE(fs::exists(out / "ckpt"));
}

TEST(RunReport, ARunWithoutALineHasNone) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  const Ran ran = train(out, "--max_iters 0");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out.find("No report"), std::string::npos) << ran.out;
}

// What a run without a checkpoint is started anew with: its own settings.
TEST(RunReport, ARunThatCannotGoOnIsStartedAnewWithItsSettings) {
  const TempFolder folder;
  const fs::path out = folder / "run";
  const std::string text = folder.write("a b.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  ASSERT_EQ(train(out, "--max_iters 20 --model llama --rope_theta 500 --data '" + text + "'").code,
            0);
  const auto command = [&] {
    EXPECT_EQ(run_program("report " + out.string()).code, 0);
    return data_of(read_file(out / kReportFile)).at("runs").at(0).at("command").get<std::string>();
  };
  for (const char* name : {"ckpt", "ckpt.prev", "best", "best.prev"}) fs::remove_all(out / name);
  std::ofstream(out / kMetricsFile) << "{\"step\":10,\"train_loss\":2}\n";  // as after kill -9
  const Json before = Json::parse(read_file(out / kRunFile)).at("config");
  EXPECT_EQ(run_shell(command() + " --print_config").code, 0) << command();
  const Ran again = run_shell(command());
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Json::parse(read_file(out / kRunFile)).at("config"), before) << command();
}

TEST(RunReport, ForeignFilesAreShownAsFarAsTheyAreWhatTheyShouldBe) {
  const TempFolder folder;
  folder.write("metrics.jsonl",
               "{\"step\":10,\"train_loss\":2.5,\"ms\":null}\n{\"step\":20,"
               "\"train_loss\":2.25}\n");
  for (const char* probes :
       {"", "[]\n", "{\"step\":-1}\n", "{\"step\":\"x\"}\n",
        "{\"step\":5,\"parameters\":[1],\"text\":{\"tokens\":3},\"attention\":{\"weights\":1}}\n",
        "{\"step\":5,\"parameters\":{\"name\":[\"a\"],\"weight_norm\":[1,2]}}\n",
        "{\"step\":5,\"activations\":{\"name\":[\"a\"],\"op\":[3],\"mean\":[\"x\"],\"std\":[],"
        "\"saturated\":[],\"grad_std\":[]}}\n"}) {
    folder.write("probes.jsonl", probes);
    for (const char* run :
         {"{}", "[3]", "{\"config\":3}", "{\"program\":1,\"config\":{\"n_layer\":[]}}",
          "{\"config\":{\"max_iters\":\"x\"},\"memory_mb\":\"y\"}"}) {
      folder.write("run.json", run);
      const Json read = read_run(folder.path());
      EXPECT_EQ(read.at("metrics").at("train_loss"), Json::parse("[2.5,2.25]"));
      EXPECT_NO_THROW(findings_of(read));
      EXPECT_FALSE(read.contains("probes") && read.at("probes").contains("parameters")) << probes;
    }
  }
  EXPECT_NE(error_of([&] { read_run(folder / "none"); }), "");
}

TEST(RunReport, LongRunsArePagesOfTheSameSize) {
  const TempFolder folder;
  std::string metrics;
  for (int step = 1; step <= 200'000; ++step)
    metrics += "{\"step\":" + std::to_string(step) +
               ",\"train_loss\":" + std::to_string(2 + 1.0 / step) + ",\"lr\":0.001,\"ms\":7.25}\n";
  folder.write("metrics.jsonl", metrics);
  const Json run = read_run(folder.path());
  EXPECT_LE(run.at("metrics").at("step").size(), 3000u);
  EXPECT_EQ(run.at("metrics").at("step").back(), 200'000);
  EXPECT_LT(report_page({run}).size(), 1'000'000u);
  EXPECT_EQ(data_of(report_page({read_run(folder.path(), RunState::running)})).at("reload_s"), 10);
}

// Twenty lines of text, learnt by heart: said once while it trains, and on the page.
TEST(RunReport, ARunThatOverfitsIsToldSo) {
  const TempFolder folder;
  std::string text;
  for (unsigned i = 0, random = 1; i < 20 * 40; ++i) {
    random = random * 1664525 + 1013904223;
    text += i % 40 == 39 ? '\n' : static_cast<char>('a' + (random >> 16) % 20);
  }
  const std::string data = "--data " + folder.write("text.txt", text).string() + " ";
  const fs::path out = folder / "run";
  const Ran ran = train(out, data + "--max_iters 400 --eval_interval 100 --learning_rate 0.01");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string word = "fault: the model learns its training text by heart: ";
  EXPECT_NE(ran.out.find(word), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find(word), ran.out.rfind(word)) << "said once";
  const size_t all = ran.out.find("1 fault in all: " + (out / kReportFile).string());
  EXPECT_LT(all, ran.out.find("Trained in")) << ran.out;
  const Ran stopped = train(out, "--init_from resume --max_iters 500 --max_minutes 1e-9");
  EXPECT_LT(stopped.out.find(word), stopped.out.find("Time is up")) << stopped.out;
  const Json run = data_of(read_file(out / kReportFile)).at("runs").at(0);
  EXPECT_EQ(run.at("findings").at(0).at("level"), "fault");
  EXPECT_TRUE(run.at("validation").contains("val_bpb"));
}

// The page is renewed without an evaluation.
TEST(RunReport, ThePageIsRenewedWhileTheRunGoesOn) {
  const TempFolder folder;
  const std::string out = (folder / "run").string(), page = out + "/" + kReportFile;
  const Ran ran = run_shell(
      "inkling train " + kSmall + "--out_dir " + out +
      " --max_iters 100000000 --max_minutes 1 --eval_interval 100000000 >/dev/null & run=$!; " +
      "while kill -0 $run && ! test -e " + page + "; do sleep 0.1; done; cp " + page + " " + out +
      "/first; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do " +
      "sleep 1; cmp -s " + page + " " + out + "/first || break; done; kill -9 $run");
  const Json first = data_of(read_file(out + "/first")), later = data_of(read_file(page));
  EXPECT_EQ(later.at("runs").at(0).at("state"), "running");
  EXPECT_GT(later.at("runs").at(0).at("step"), first.at("runs").at(0).at("step"));
  EXPECT_GE(later.at("written_s").get<int64_t>() - first.at("written_s").get<int64_t>(), 9);
  EXPECT_FALSE(later.at("runs").at(0).contains("command")) << "there is no checkpoint yet";
}

// ---- faults that a report finds

struct StuckHead : GPT {  // head 1 of the second block gets no gradient
  std::vector<HookHandle> hooks;
  explicit StuckHead(const GPTConfig& c) : GPT(c) {
    const int64_t C = c.n_embd, d = C / c.n_head;
    const Tensor rows = ones({3 * C, C}), columns = ones({C, C});
    for (int64_t i = 0; i < 3; ++i) Tensor(rows.narrow(0, i * C + d, d)).zero_();
    Tensor(columns.narrow(1, d, d)).zero_();
    hooks.push_back(h[1]->attn->c_attn.weight.register_hook([=](auto& g) { return g * rows; }));
    hooks.push_back(h[1]->attn->c_proj.weight.register_hook([=](auto& g) { return g * columns; }));
  }
  std::vector<Field> fields() override { return GPT::fields(); }
  size_t object_bytes() const override { return sizeof(*this); }
};

struct Saturated : GPT {
  explicit Saturated(const GPTConfig& c) : GPT(c) {
    const NoGrad no_grad;
    h[0]->mlp->c_fc.bias.fill_(-6);
  }
  std::vector<Field> fields() override { return GPT::fields(); }
  size_t object_bytes() const override { return sizeof(*this); }
};

struct Wide : GPT {  // drawn too large
  explicit Wide(const GPTConfig& c) : GPT(c) {
    const NoGrad no_grad;
    h[1]->mlp->c_fc.weight.mul_(100);
  }
  std::vector<Field> fields() override { return GPT::fields(); }
  size_t object_bytes() const override { return sizeof(*this); }
};

struct Pinned : GPT {  // the queries of head 0 are put back before each step
  Tensor queries;
  explicit Pinned(const GPTConfig& c)
      : GPT(c),
        queries(h[1]->attn->c_attn.weight.detach().narrow(0, 0, c.n_embd / c.n_head).clone()) {}
  Tensor features(const Tensor& ids) const override {
    {
      const NoGrad no_grad;
      Tensor weight = h[1]->attn->c_attn.weight.detach();
      weight.narrow(0, 0, queries.size(0)).copy_(queries);
    }
    return GPT::features(ids);
  }
  bool uses_caches() const override { return false; }
  std::vector<Field> fields() override { return GPT::fields(); }
  size_t object_bytes() const override { return sizeof(*this); }
};

// What stands out in a run of a model, at a learning rate.
std::vector<std::string> found(const std::string& model, double lr, int64_t steps = 300) {
  TrainConfig config;
  config.model = model;
  config.n_embd = 32;
  config.n_head = 2;
  config.block_size = 32;
  config.batch_size = 4;
  config.bias = true;
  config.batch_parts = 1;
  config.learning_rate = lr;
  config.warmup_iters = 50;
  config.max_iters = steps;
  const TempFolder folder;
  config.out_dir = folder.path().string();
  Trainer trainer(config);
  Probe probe(trainer);
  std::ofstream metrics(folder / kMetricsFile), probes(folder / kProbesFile);
  for (int64_t step = 1; step <= steps; ++step) {
    const bool measured = step == 1 || step == 55 || step == steps;
    if (measured) probe.before_step();
    trainer.step();
    if (measured) probes << probe.after_step() << "\n";
    metrics << Json{{"step", step}, {"train_loss", trainer.progress().loss}} << "\n";
  }
  metrics.close(), probes.close();
  folder.write(kRunFile, describe_run(trainer, "inkling").dump());
  std::vector<std::string> texts;
  for (const Json& finding : findings_of(read_run(folder.path())))
    texts.push_back(finding.at("level").get<std::string>() + ": " +
                    finding.at("text").get<std::string>());
  return texts;
}

bool any_has(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](auto& text) { return text.find(part) != std::string::npos; });
}

// As evaluations do.
TEST(RunReport, ReadsTheTextWithTheAverageOfTheWeights) {
  TrainConfig config;
  config.n_layer = config.n_head = 2, config.n_embd = 32;
  config.block_size = 32, config.batch_size = 4, config.max_iters = 20;
  config.learning_rate = 0.01, config.warmup_iters = 0, config.ema = 0.99;
  const TempFolder folder;
  config.out_dir = folder.path().string();
  Trainer trainer(config);
  Probe probe(trainer);
  for (int i = 0; i < 20; ++i) {
    if (i == 19) probe.before_step();
    trainer.step();
  }
  const Json line = probe.after_step();
  const auto p = line.at("text").at("p").back().get<double>();
  const Batch text = trainer.dataset().val_window_batch(0, 1, 32);
  const NoGrad no_grad;
  const Tensor ids = from_vector(text.x, Shape{1, 32});
  const auto last = [&](LanguageModel& model) {
    const Tensor logits = model(ids.narrow(1, 0, 31)).narrow(1, 30, 1);
    return std::exp(-cross_entropy(logits, ids.narrow(1, 31, 1)).item());
  };
  EXPECT_NEAR(p / last(trainer.evaluated_model()), 1, 1e-4);
  EXPECT_GT(std::abs(p / last(trainer.model()) - 1), 1e-2);
  const Tensor weights = trainer.evaluated_model().attention_weights(ids)[0];
  EXPECT_EQ(line.at("attention").at("layers"), 2);
  EXPECT_EQ(weights.size(-1), 32);
}

TEST(Findings, AHealthyRunHasNone) { EXPECT_EQ(found("gpt", 2e-3), std::vector<std::string>{}); }

TEST(Findings, PlantedFaultsAreNamed) {
  add_model<StuckHead>("stuck");
  add_model<Saturated>("saturated");
  add_model<Wide>("wide");
  add_model<Pinned>("pinned");
  const auto stuck = found("stuck", 2e-3);
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0], "fault: these weights do not learn, while similar ones do: h.1.attn head 1");
  EXPECT_TRUE(any_has(found("saturated", 2e-3), "fault: h.0.mlp gelu: 100 % of its outputs"));
  EXPECT_TRUE(any_has(found("wide", 2e-3), "fault: h.1.mlp.c_fc.weight: its norm is "));
  EXPECT_TRUE(
      any_has(found("pinned", 2e-3), "do not learn, while similar ones do: h.1.attn head 0"));
  const auto fast = found("gpt", 0.6);
  EXPECT_TRUE(any_has(fast, "the learning rate is too high (it is 0.6; try 0.2)"))
      << ::testing::PrintToString(fast);
}

// Of the two, that one is named which is not as it was.
TEST(Findings, WeightsThatShrankMakeNoOthersLarge) {
  const Json rows{{0.1, 0.1}, {0.1, 0.1}};
  Json run{{"probes",
            {{"parameters",
              {{"name", {"h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight"}},
               {"count", {64, 64}},
               {"weight_norm", {{1.27, 1.27}, {0.61, 0.00045}}},
               {"turned", rows},
               {"grad_norm", rows}}}}}};
  const Json found = findings_of(run);
  ASSERT_EQ(found.size(), 1u) << found;
  EXPECT_EQ(found[0].at("text"),
            "these weights have shrunk to nothing: h.1.mlp.c_fc.weight; try a lower learning rate "
            "or weight decay");
  run["probes"]["parameters"]["weight_norm"] = {{9.0, 1.0}, {9.0, 1.0}};
  EXPECT_NE(findings_of(run)[0].at("text").get<std::string>().find("drawn too large"),
            std::string::npos);
}

// Neither norms, which do not grow, nor a learning rate that has fallen hide that it was too high.
TEST(Findings, WeightsAreThrownAbout) {
  const auto found = [](double grown, double update, int step = 400) {
    const Json row(4, 0.1);
    const Json run{{"metrics", {{"step", {50, step}}, {"lr", {0.3, 0.003}}}},
                   {"config", {{"n_embd", 32}, {"learning_rate", 0.3}}},
                   {"probes",
                    {{"step", {1, step}},
                     {"parameters",
                      {{"name", {"a.weight", "b.weight", "ln_1.weight", "ln_2.weight"}},
                       {"count", {64, 64, 16, 16}},
                       {"weight_norm", {{0.2, 0.2, 4, 4}, {0.2 * grown, 0.2 * grown, 4, 4}}},
                       {"update_ratio", {row, {update, update, 1e-6, 1e-6}}},
                       {"turned", {row, row}},
                       {"grad_norm", {row, row}}}}}}};
    std::string texts;
    for (const Json& finding : findings_of(run)) texts += finding.at("text").get<std::string>();
    return texts;
  };
  EXPECT_EQ(found(20, 1e-4),
            "half of all weight tensors are at least 20 times as large as at the start: the "
            "learning rate is too high (it is 0.3; try 0.1), or the weight decay too low");
  EXPECT_EQ(found(0.5, 0.002),
            "half of all weight tensors change by at least 20 % of their size in a step at the "
            "highest learning rate: the learning rate is too high (it is 0.3; try 0.1), or the "
            "weight decay too high");
  EXPECT_EQ(found(9, 5e-4), "") << "a healthy run";
  EXPECT_EQ(found(1.1, 0.002, 60), "") << "the first hundred steps";
}

TEST(Findings, ReadTheLosses) {
  const auto run = [](const std::vector<double>& training, const std::vector<double>& validation,
                      double skipped = 0) {
    Json json{{"metrics", {{"train_loss", training}}}, {"validation", {{"val_loss", validation}}}};
    for (size_t i = 0; i < training.size(); ++i) json["metrics"]["step"].push_back(10 * i + 10);
    for (size_t i = 0; i < validation.size(); ++i) json["validation"]["step"].push_back(100 * i);
    json["metrics"]["skipped"] = {skipped};
    std::string text;
    for (const Json& finding : findings_of(json)) text += finding.at("text").get<std::string>();
    return text;
  };
  std::vector<double> falling, rising, level;
  for (int i = 0; i < 100; ++i) {
    falling.push_back(4 * std::exp(-i / 30.0));
    rising.push_back(i < 50 ? falling.back() : 4 * std::exp(-50 / 30.0) + 0.02 * (i - 50));
    level.push_back(i < 20 ? 4 - 0.1 * i : 2);
  }
  EXPECT_EQ(run(falling, {2, 1.5, 1}), "");
  EXPECT_NE(run(rising, {}).find("rises again after step 600;"), std::string::npos)
      << run(rising, {});
  EXPECT_NE(run(level, {}).find("hardly fallen since step 300"), std::string::npos);
  EXPECT_NE(run(falling, {2, 1, 1.5}).find("lowest after step 100 (1.0000)"), std::string::npos);
  EXPECT_NE(run(falling, {}, 3).find("3 steps were skipped"), std::string::npos);
  EXPECT_NE(run(falling, {}, 1).find("1 step was skipped"), std::string::npos);
  // By heart: the one loss falls and the other rises, or the gap is wide.
  const auto by_heart = [](const std::vector<double>& validation, const Json& sets = {},
                           const Json& sampled = {},
                           const std::vector<double>& training = {2.0, 1.5, 1.0, 0.9},
                           double ema = 0, double dropout = 0.1) {
    Json json{{"metrics", {{"train_loss", training}, {"step", {10, 20, 30, 40}}}},
              {"validation", {{"val_loss", validation}}},
              {"config", {{"dropout", dropout}, {"ema", ema}}}};
    for (size_t i = validation.size(); i > 0; --i)
      json["validation"]["step"].push_back(50 - 10 * i);
    if (!sets.is_null()) json["validation"]["val_set"] = sets;
    if (!sampled.is_null()) json["validation"]["sampled_loss"] = sampled;
    return overfitting(json);
  };
  EXPECT_EQ(by_heart({1.6}) + by_heart({1.5, 1.6, 1.4}) + by_heart({1.6, 1.61}), "");
  EXPECT_NE(by_heart({1.5, 1.7}).find("since step 30"), std::string::npos) << by_heart({1.5, 1.7});
  EXPECT_NE(by_heart({1.5, 1.7}).find("--dropout 0.2"), std::string::npos);
  EXPECT_NE(by_heart({3.2}).find("the validation loss 3.2;"), std::string::npos);
  EXPECT_NE(by_heart({3.2}, {}, {}, {2.0, 1.5, 1.0, 0.9}, 0, 0.5).find("; or try a smaller model"),
            std::string::npos);
  EXPECT_EQ(by_heart({9e9}, {}, {}, {4.0, 8.0, 1e3, 1e6}), "") << "it diverges";
  EXPECT_EQ(by_heart({0.5, 1.7}, {1, 2}), "") << "of other validation sets";
  EXPECT_EQ(by_heart({2, 3}, {1, 2}, {}, {2.0, 1.5, 1.0, 2.9}), "") << "1.0 is of the other text";
  EXPECT_EQ(by_heart({1.6, 1.7}, {}, {}, {2.0, 1.9, 1.7, 1.65}), "") << "not above the training's";
  EXPECT_EQ(by_heart({1.6, 1.67}), "") << "one evaluation may be noise";
  EXPECT_NE(by_heart({1.6, 1.65, 1.67}), "") << "two are none";
  EXPECT_EQ(by_heart({3.9, 3.2}, {}, {}, {2.0, 1.5, 1.0, 0.9}, 0.999), "") << "the average lags";
  EXPECT_NE(by_heart({2.0, 3.2}, {}, {}, {2.0, 1.5, 1.0, 0.9}, 0.999), "") << "it rises";
  EXPECT_EQ(by_heart({1.5, 1.7}, {1, 1}, {nullptr, 1.4}), "") << "1.7 is of the whole set";
  EXPECT_NE(by_heart({1.5, 1.5}, {1, 1}, {nullptr, 1.7}), "");
  Json slow{{"metrics", {{"tokens_per_s", std::vector<double>(40, 1000)}}},
            {"validation", {{"val_loss", {2.0}}, {"step", {9}}, {"best_possible", {1.0}}}},
            {"state", "finished"},
            {"step", 9}};
  for (size_t i = 0; i < 40; ++i) slow["metrics"]["step"].push_back(10 * i + 10);
  for (size_t i = 10; i < 20; ++i) slow["metrics"]["tokens_per_s"][i] = 300;
  EXPECT_EQ(findings_of(slow).at(0).at("text"),
            "25 % of the steps went at less than half of the best speed: other programs may have "
            "used the machine");
  EXPECT_EQ(findings_of(slow).at(1).at("text"),
            "after all steps the validation loss is 100 % above the best possible");
  slow["step"] = 12;
  EXPECT_EQ(findings_of(slow).at(1).at("text"),
            "after step 9 the validation loss is 100 % above the best possible");
  slow["step"] = slow["validation"]["step"][0] = 0;
  EXPECT_EQ(findings_of(slow).size(), 1u) << "it was not trained";
}

std::string texts_of(const Json& run) {
  std::string texts;
  for (const Json& finding : findings_of(run))
    texts += finding.at("text").get<std::string>() + "\n";
  return texts;
}

// Text that was not gone through once cannot be known by heart.
TEST(Findings, KnowWhatARunHasSeen) {
  Json run{{"metrics", {{"train_loss", {3.0, 1.5, 1.0, 0.9}}, {"step", {10, 20, 30, 40}}}},
           {"validation", {{"val_loss", {3.2}}, {"step", {40}}}},
           {"train_tokens", 40 * 8 * 2 * 32},
           {"config", {{"batch_size", 8}, {"gradient_accumulation_steps", 2}, {"block_size", 32}}}};
  EXPECT_NE(overfitting(run).find("by heart"), std::string::npos) << overfitting(run);
  run["train_tokens"] = 40 * 8 * 2 * 32 + 1;
  EXPECT_EQ(overfitting(run), "");
  EXPECT_NE(texts_of(run).find("the validation text is of another kind"), std::string::npos)
      << texts_of(run);
  const auto is_hinted = [](const Json& of) {
    return texts_of(of).find("is of another kind") != std::string::npos;
  };
  for (const auto& [start, is_new] :
       {std::pair{"resume", false}, {"a", false}, {"scratch", true}}) {
    run["config"]["init_from"] = start;
    EXPECT_EQ(is_hinted(run), is_new) << start;
  }
  run["metrics"]["train_set"] = {1, 2, 2, 2};  // a batch of another size, but the text may be read
  run["metrics"]["train_loss"] = {3.0, 2.0, 1.0, 0.9};
  EXPECT_FALSE(is_hinted(run)) << texts_of(run);
  run["metrics"]["train_set"] = {2, 2, 2, 2};
  EXPECT_TRUE(is_hinted(run)) << texts_of(run);
  run["train_tokens"] = 0;  // it does not end, or is not known
  EXPECT_NE(overfitting(run), "");
}

TEST(Findings, CallNoLossFallenThatStayed) {
  const Json run{
      {"metrics",
       {{"train_loss", {3.0, 0.8, 0.8, 0.8, 0.799, 0.798}}, {"step", {10, 20, 30, 40, 50, 60}}}},
      {"validation", {{"val_loss", {0.85, 0.88, 0.91}}, {"step", {40, 50, 60}}}}};
  EXPECT_EQ(overfitting(run), "");
  EXPECT_NE(texts_of(run).find("lowest after step 40"), std::string::npos) << texts_of(run);
}

// After a resume with other data or another batch, losses and speeds are not compared with those
// before.
TEST(Findings, CompareWhatIsOfTheSameDataAndBatch) {
  Json run{{"elapsed_s", 100}};
  for (int i = 0; i < 60; ++i) {
    const bool before = i < 30;
    run["metrics"]["step"].push_back(before ? 10 * i : 300 + i);
    run["metrics"]["train_loss"].push_back(before ? 4 - 0.1 * i : 5 - 0.1 * (i - 30));
    run["metrics"]["tokens_per_s"].push_back(before ? 1000 : 300);
  }
  EXPECT_NE(texts_of(run).find("the training loss rises again after step 290;"), std::string::npos)
      << texts_of(run);
  EXPECT_NE(texts_of(run).find("less than half of the best speed"), std::string::npos);
  for (int i = 0; i < 60; ++i) run["metrics"]["train_set"].push_back(i < 30 ? 1 : 2);
  EXPECT_EQ(texts_of(run), "");
  Json moved = run;  // to a slower machine, with the same data
  for (int i = 0; i < 60; ++i) {
    moved["metrics"]["train_set"][i] = 1;
    moved["metrics"]["speed_set"].push_back(i < 30 ? 1 : 2);
  }
  EXPECT_NE(texts_of(moved).find("the training loss rises again"), std::string::npos);
  EXPECT_EQ(texts_of(moved).find("less than half of the best speed"), std::string::npos);
  for (int i = 0; i < 30; ++i) run["metrics"]["train_set"][i] = nullptr;  // of an older version
  EXPECT_NE(texts_of(run).find("the training loss rises again"), std::string::npos);
}

// Two layers: what the one has lost does not make the other large.
TEST(Findings, ADeadTwinMakesNoPartLarge) {
  const Json rows{{0.1, 0.1}, {0.1, 0.1}};
  const Json run{{"probes",
                  {{"parameters",
                    {{"name", {"h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight"}},
                     {"count", {64, 64}},
                     {"weight_norm", {{6.1, 0}, {6.12, 0}}},
                     {"turned", {{0.1, nullptr}, {0.1, nullptr}}},
                     {"grad_norm", {{0.1, 0}, {0.1, 0}}}}}}}};
  EXPECT_EQ(texts_of(run), "hardly any gradient reaches these weights: h.1.mlp.c_fc.weight\n");
}

}  // namespace
}  // namespace ink
