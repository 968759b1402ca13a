// Runs that go on with other data or settings, that fail, and whose disk fails: what is kept of
// them, and what their user is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "data/file.h"
#include "tests/support/run_folder.h"
#include "train/checkpoint.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

using Resume = RunFolder;
using Json = nlohmann::json;

// What can be gone on from is gone on from, and what cannot be found is told.
TEST_F(Resume, TakesTheBestWhereTheLastIsDamaged) {
  const std::string in = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train(in)).code, 0);
  fs::copy(path("out"), path("copy"), fs::copy_options::recursive);
  for (const char* name : {"ckpt", "ckpt.prev"})
    fs::resize_file(path("out/" + std::string(name) + "/model.safetensors"), 100);
  EXPECT_NE(run_program("train" + in).err.find("To go on with it: "), std::string::npos);
  const Ran ran = run_program("train --init_from resume --max_iters 21" + in);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.err.find("The run goes on from " + path("out/best") + ", which is whole, of step"),
            std::string::npos)
      << ran.err;
  EXPECT_EQ(run_program("sample --max_new_tokens 2 --checkpoint ckpt" + in).err, "");
  fs::resize_file(path("copy/best/model.safetensors"), 100);
  EXPECT_EQ(run_program("train --init_from resume --max_iters 21 --out_dir " + path("copy")).code,
            0);
  for (const char* name : {"ckpt", "ckpt.prev", "best"})
    fs::resize_file(path("copy/" + std::string(name) + "/model.safetensors"), 100);
  expect_error("inkling train --init_from resume --out_dir " + path("copy"), 1,
               "there is no whole checkpoint");
}

TEST_F(Resume, SaysHowToStartWhereThereIsNothing) {
  const std::string none = "inkling train --out_dir " + path("none");
  expect_error(none + " -y 1", 1,
               "resume: there is no folder " + path("none") +
                   "; name another --out_dir, or start a run there without -y 1");
  EXPECT_FALSE(fs::exists(path("none")));
  fs::create_directory(path("none"));
  expect_error(none + " --init_from resume", 1,
               " has no checkpoint to go on from; name another --out_dir, or start a run there "
               "without --init_from resume");
  std::ofstream(path("none/metrics.jsonl")) << "";
  expect_error(none + " --init_from resume", 1, "anew with --overwrite instead of --init_from");
}

// --data_changed does not help where the vocabulary lacks characters: it is not recommended.
TEST_F(Resume, SaysWhichCharactersTheVocabularyLacks) {
  std::string known;
  for (int i = 0; i < 300; ++i) known += "abc abc\n";
  std::ofstream(path("a.txt")) << known;
  std::ofstream(path("b.txt")) << known + "a?\n" + known;
  const std::string out = " --out_dir " + path("out"), other = out + " --data " + path("b.txt");
  ASSERT_EQ(run_shell(train("--max_iters 1 --data " + path("a.txt") + out)).code, 0);
  const std::string lacks = " lacks characters of --data: '?'; take them out";
  for (const char* command : {"train --init_from resume",
                              "train --init_from resume --data_changed --max_iters 2", "eval"})
    expect_error("inkling " + (command + other), 1, lacks);
}

// What follows from sizes follows from those that the run has, not from the defaults.
TEST_F(Resume, CalculatesWithTheSettingsOfTheRun) {
  ASSERT_EQ(run_shell(train("--max_iters 1 --learning_rate 0.01 --out_dir " + path("out"))).code,
            0);
  const auto print = [&](const std::string& options) {
    return run_program("train --print_config " + options);
  };
  const auto expect = [](const Ran& ran, const std::string& said, const std::string& setting) {
    EXPECT_EQ(ran.err, "inkling: taken: " + said + "\n");
    EXPECT_NE(ran.out.find("\n" + setting + "\n"), std::string::npos) << ran.out;
  };
  const std::string out = " --out_dir " + path("out"), resume = "--init_from resume" + out,
                    start = "--init_from " + path("out") + " --out_dir " + path("new");
  expect(print(resume + " -d 128 -q 0.5"),
         "-d as --gradient_accumulation_steps 2, -q as --min_lr 0.005",
         "gradient_accumulation_steps = 2");
  expect(print(start + " -d 1920"), "-d as --gradient_accumulation_steps 10",
         "gradient_accumulation_steps = 10");  // 6 x 32
  EXPECT_NE(print(resume + " -d 96").err.find("a multiple of 64 (batch_size * block_size)"),
            std::string::npos);
  std::ofstream(path("wide.py")) << "block_size = 64\nbatch_size = 3\n";  // 64 is not taken
  const Ran wide = print(start + " -d 192 " + path("wide.py"));
  EXPECT_NE(wide.err.find("-d as --gradient_accumulation_steps 2\n"), std::string::npos)
      << wide.err;
  EXPECT_NE(wide.out.find("\nblock_size = 32\n"), std::string::npos);
}

// Losses of different validation sets are not compared: best is measured again.
TEST_F(Resume, BestIsMeasuredOnWhatTheRunMeasures) {
  std::string easy, hard;
  for (int i = 0; i < 300; ++i) {
    easy += "abcabcabcabcabcabcabc\n";
    hard += std::string(1, "abc"[i * i % 7 % 3]) + "ccbbaabca\n"[i % 10] + "ab"[i * 5 % 11 % 2];
  }
  std::ofstream(path("easy.txt")) << easy;
  std::ofstream(path("hard.txt")) << hard + hard + hard + hard;
  const auto best = [&] { return Json::parse(read_file(path("out/best/state.json")))["state"]; };
  const auto resume = [&](int steps, const std::string& more) {
    const Ran ran = run_program("train --init_from resume --max_iters " + std::to_string(steps) +
                                " --out_dir " + path("out") + " " + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran;
  };
  ASSERT_EQ(run_shell(train("--final_eval whole --max_iters 200 --learning_rate 0.01 --data " +
                            path("easy.txt") + " --out_dir " + path("out")))
                .code,
            0);
  const double low = best()["best_val_loss"];
  EXPECT_LT(low, 0.5);
  EXPECT_EQ(resume(201, "").err, "") << "nothing has changed";
  const Ran changed = resume(202, "--data_changed --data " + path("hard.txt"));
  EXPECT_NE(changed.err.find("is not compared with those from here on"), std::string::npos);
  EXPECT_NE(changed.out.find("best, of step "), std::string::npos) << changed.out;
  EXPECT_GT(best()["best_val_loss"], 2 * low) << "on the hard text";
  EXPECT_EQ(Json::parse(read_file(path("out/ckpt/state.json")))["state"]["best_val_loss"],
            best()["best_val_loss"]);
  EXPECT_NE(run_program("eval --out_dir " + path("out")).out.find("hard.txt"), std::string::npos);
  int steps = 202;
  for (const std::string other : {"--eval_iters 7", "--seed 8", "--batch_size 3",
                                  "--val_fraction 0.3 --data_changed", "--eval_iters 0"}) {
    const std::string set = best()["validation_set"];
    EXPECT_NE(resume(++steps, other).err.find("is not compared"), std::string::npos) << other;
    EXPECT_NE(best()["validation_set"], set) << other;
    EXPECT_EQ(resume(++steps, "").err, "") << "said once, after " << other;
  }
  // That time is not the steps'.
  resume(++steps, "--eval_iters 200");
  std::vector<MetricsStep> lines = read_metrics(path("out/metrics.jsonl"));
  std::erase_if(lines, [](const MetricsStep& line) { return !line.is_training; });
  const MetricsStep &before = lines[lines.size() - 2], &now = lines.back();
  EXPECT_LT(2 * now.ms.value(), 1000 * (now.elapsed_s.value() - before.elapsed_s.value()));
  // Who cannot measure it (it is damaged) forgets it, and says so.
  std::ofstream(path("out/best/model.safetensors")) << "x";
  fs::remove_all(path("out/best.prev"));
  EXPECT_NE(resume(++steps, "--eval_iters 4").err.find("the best checkpoint is forgotten"),
            std::string::npos);
  EXPECT_EQ(run_program("info --out_dir " + path("out")).code, 0);
}

// nanoGPT's habit: the file with which a run began is named again; the model is the checkpoint's.
TEST_F(Resume, TheModelKeepsItsSizesWhateverTheConfigFileSays) {
  const std::string out = " --out_dir " + path("out"), file = path("x.py");
  std::ofstream(file) << "n_layer = 6\nn_embd = 24\nlog_interval = 7\nmodel = 'llama'\n";
  ASSERT_EQ(run_shell(train("--model gpt " + file + out)).code, 0);
  for (const std::string& more :
       {"--init_from=resume" + out, "--init_from " + path("out") + " --out_dir " + path("new")}) {
    const Ran ran = run_shell("inkling train " + file + " --max_iters 25 --eval_iters 1 " + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_NE(ran.err.find("not taken: "), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("n_layer 6"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find(" keeps model \"gpt\", "), std::string::npos) << ran.err;
  }
  expect_error("inkling train --init_from=resume --max_iters 26 --n_layer 6 " + file + out, 2,
               "--n_layer is 6, but " + path("out") + "/ckpt has 1; leave the option out");
}

// No step that was done is lost.
TEST_F(Resume, StepsThatAreDoneStay) {
  const std::string out = " --out_dir " + path("out"), every_5 = "--sample_interval 5";
  ASSERT_EQ(run_shell(train(every_5 + out)).code, 0);
  const auto state = [&] {
    return read_file(path("out/metrics.jsonl")) + run_shell("ls -R " + path("out")).out;
  };
  const std::string before = state();
  expect_error("inkling train --init_from resume --max_iters 10" + out, 2,
               "--max_iters 10: " + path("out") + " has done 20 steps");
  expect_error(
      "inkling train --init_from resume --max_iters 30 --tokenizer byte" + out, 2,
      "--tokenizer is \"byte\", but " + path("out") + "/ckpt has \"char\"; leave the option out");
  for (const std::string setting : {"--n_layer 5", "--optimizer sgd"})
    expect_error("inkling train --init_from resume --max_iters 30 " + setting + out, 2,
                 "; leave the option out");
  EXPECT_EQ(state(), before);
  const std::string saved = read_file(path("out/ckpt/config.json"));
  for (const char* more : {"", " --max_iters 20 --final_eval off", " --learning_rate 0.1"}) {
    const Ran again = run_shell("inkling train --init_from resume" + out + more);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.out.find("has all its 20 steps"), std::string::npos) << again.out;
    EXPECT_EQ(again.out.find("Trained in"), std::string::npos) << again.out;
    EXPECT_EQ(state(), before) << more;
    EXPECT_EQ(read_file(path("out/ckpt/config.json")), saved) << more;
  }
}

// An older version took a block's last matrix for a table: its state is AdamW's.
TEST_F(Resume, AMatrixThatWasATableIsNamed) {
  const std::string out = " --out_dir " + path("out"), name = "h.0.mlp.c_proj.weight";
  ASSERT_EQ(run_shell(train("--optimizer muon" + out)).code, 0);
  Checkpoint saved = load_checkpoint(path("out"), "ckpt");
  const auto found =
      std::find_if(saved.optimizer.begin(), saved.optimizer.end(),
                   [&](const auto& entry) { return entry.first == "momentum_buffer." + name; });
  ASSERT_NE(found, saved.optimizer.end());
  found->first = "exp_avg." + name;
  saved.optimizer.emplace_back("exp_avg_sq." + name, found->second);
  save_checkpoint(path("out"), "ckpt", saved);
  fs::remove_all(path("out/ckpt.prev"));
  expect_error("inkling train --init_from resume --max_iters 30" + out, 1,
               "out/ckpt: Muon: the saved state is not of these parameters:");
  for (const char* what :
       {"missing: momentum_buffer.", "unexpected: exp_avg.", "unexpected: exp_avg_sq."})
    expect_error("inkling train --init_from resume --max_iters 30" + out, 1, what + name);
}

TEST_F(Resume, AChangedLearningRateIsSaid) {
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--warmup_iters 2" + out)).code, 0);
  const auto told = [&](const std::string& more) {
    return run_shell(train("--init_from resume" + out + " " + more)).out;
  };
  const std::string longer = told("--max_iters 40");
  EXPECT_NE(
      longer.find("the learning rate goes on at 2.17e-03, where it was 1.00e-05: its schedule "
                  "has 40 steps instead of 20; --lr_decay_iters 20 keeps it"),
      std::string::npos)
      << longer;
  EXPECT_EQ(told("--max_iters 41 --lr_decay_iters 40").find("goes on at"), std::string::npos);
  const std::string other = told("--max_iters 42 --schedule constant");
  EXPECT_NE(other.find("goes on at"), std::string::npos) << other;
  EXPECT_EQ(other.find("keeps it"), std::string::npos) << "that would not: " << other;
  const Ran anew =
      run_shell(train("--max_iters 60 --init_from " + path("out") + " --out_dir " + path("new")));
  EXPECT_EQ(anew.code, 0) << anew.err;
  EXPECT_EQ(anew.out.find("goes on at"), std::string::npos) << "a run of its own: " << anew.out;
}

// An interruption cut the sample.
TEST_F(Resume, WritesTheSampleThatIsMissing) {
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--sample_interval 10" + out)).code, 0);
  const std::string sample = read_file(path("out/samples/step_000020.txt"));
  std::filesystem::remove(path("out/samples/step_000020.txt"));
  ASSERT_EQ(run_shell("sed -i /step_000020.txt/d " + path("out/metrics.jsonl")).code, 0);
  EXPECT_EQ(run_shell(train("--max_iters 24 --sample_interval 10 --init_from resume" + out)).code,
            0);
  EXPECT_EQ(read_file(path("out/samples/step_000020.txt")), sample);
  const std::string lines = read_file(path("out/metrics.jsonl"));
  EXPECT_NE(lines.find("step_000020.txt"), std::string::npos) << lines;
}

// A full disk had room for the first best checkpoint alone: the run goes on from that.
TEST_F(Resume, GoesOnFromTheBestCheckpointWhereThereIsNoOther) {
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--final_eval whole --eval_interval 20" + out)).code, 0);
  std::filesystem::remove_all(path("out/ckpt"));
  const Ran refused = run_shell(train("--final_eval whole " + out));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("--init_from resume"), std::string::npos) << refused.err;
  const Ran on = run_shell(train("--final_eval whole --max_iters 24 --init_from resume" + out));
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_NE(on.out.find("step    24"), std::string::npos) << on.out;
}

// Both are easily set by the option beside it.
TEST_F(Resume, AnOddLearningRateIsSaid) {
  const auto told = [&](const std::string& more, const std::string& text) {
    return run_shell(train(more + " --overwrite --out_dir " + path("out"))).out.find(text) !=
           std::string::npos;
  };
  const std::string rises = "the learning rate rises to 1.0e-05: --min_lr is above --learning_rate",
                    low =
                        "the learning rate ends at 4.0e-05 and never gets to 4.0e-03: "
                        "--warmup_iters 1999 is the whole run";
  EXPECT_TRUE(told("--learning_rate 1e-6 --warmup_iters 5", rises));
  EXPECT_FALSE(told("--learning_rate 0 --max_iters 3", rises)) << "it is in its warm-up";
  EXPECT_TRUE(told("--learning_rate 0.5 --max_iters 3", "and never gets to 5.0e-01"));
  EXPECT_FALSE(told("--learning_rate 1e-6 --warmup_iters 5 --min_lr -1", rises));
  EXPECT_FALSE(told("--learning_rate 1e-6 --warmup_iters 5 --schedule constant", rises));
  EXPECT_TRUE(told("--warmup_iters 1999", low));
  EXPECT_FALSE(told("--max_iters 200 --warmup_iters 200", "never gets to"));  // but for rounding
  EXPECT_FALSE(told("", "the learning rate"));
}

// 200 batches of nanoGPT's are many times its validation text.
TEST_F(Resume, AnEvaluationOfMoreThanThereIsIsSaid) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a');  // 300 to validate on
  const auto out_of = [&](const std::string& more) {
    return run_shell(train("--data " + path("a.txt") + " --max_iters 2 --overwrite --out_dir " +
                           path("out") + more))
        .out;
  };
  const std::string draws = "an evaluation draws ";
  EXPECT_NE(out_of(" --eval_iters 5").find(draws + "10 windows of validation text, which has 9: "),
            std::string::npos);
  EXPECT_EQ(out_of(" --eval_iters 4").find(draws), std::string::npos);
  EXPECT_EQ(out_of(" --eval_iters 0").find(draws), std::string::npos);
}

// What a run that ends in an error leaves, and what its user is told.
TEST_F(Resume, ARunThatFailsSaysSo) {
  const std::string fails =
                        "--max_iters 600 --learning_rate 1000 --grad_clip 0 --eval_interval 500 ",
                    out = " --out_dir " + path("out");
  const Ran failed = run_shell(train(fails + out));
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(failed.out.find("-nan"), std::string::npos) << failed.out;
  EXPECT_EQ(failed.err.find("checkpoint"), std::string::npos) << "there is none: " << failed.err;
  const auto run_of_page = [&] {
    const std::string page = read_file(path("out/report.html"));
    const size_t begin = page.rfind("report({") + 7, end = page.rfind(");\n</script>");
    const Json data = Json::parse(page.substr(begin, end - begin));
    EXPECT_EQ(data.at("reload_s"), 0);
    return data.at("runs").at(0);
  };
  for (const bool written_again : {false, true}) {
    if (written_again) {  // with a loss that is not finite, which not every processor logs
      std::string log = read_file(path("out/metrics.jsonl"));
      const size_t error = log.rfind("{\"step\"");
      const std::string step = log.substr(error, log.find(',', error) - error);
      log.insert(error, step + ",\"train_loss\":null}\n");
      std::ofstream(path("out/metrics.jsonl")) << log;
      ASSERT_EQ(run_program("report " + path("out")).code, 0);
    }
    const Json run = run_of_page();
    EXPECT_EQ(run.at("state"), "failed");
    EXPECT_EQ(run.at("findings").at(0).at("level"), "fault");
    EXPECT_NE(failed.err.find(run.at("findings").at(0).at("text")), std::string::npos);
    if (failed.err.find("10 steps in a row") != std::string::npos) {
      EXPECT_NE(run.at("findings").dump().find("10 steps were skipped"), std::string::npos) << run;
    }
    if (written_again) {
      EXPECT_TRUE(run.at("metrics").at("train_loss").back().is_null()) << "the line is there";
    }
    EXPECT_EQ(run.at("command").get<std::string>().find("resume"), std::string::npos);
    EXPECT_NE(run.at("command").get<std::string>().find(" --learning_rate=0.004"),
              std::string::npos);
  }
  expect_error("inkling train --init_from resume" + out, 1, "has no checkpoint to go on from");
  const Ran refused = run_shell(train(out));
  EXPECT_NE(refused.err.find("ended before its first checkpoint"), std::string::npos);
  EXPECT_EQ(refused.err.find("resume"), std::string::npos) << refused.err;
  // With a checkpoint, it is mentioned, and goes on.
  EXPECT_EQ(run_shell(train("--overwrite" + out)).code, 0);
  const Ran later = run_shell(train("--init_from resume " + fails + out));
  EXPECT_NE(later.err.find("The last checkpoint in " + path("out") + " is from before"),
            std::string::npos)
      << later.err;
  const std::string lower =
      "train --init_from resume --out_dir " + path("out") + " --learning_rate 0.004";
  EXPECT_NE(run_of_page().at("command").get<std::string>().find(lower), std::string::npos);
  EXPECT_NE(later.err.find("; to go on from the last checkpoint: " + program_path() + " " + lower),
            std::string::npos)
      << later.err;
  // What else fails then does not stand in for the error.
  fs::remove(path("out/run.json"));
  fs::create_symlink("run.json", path("out/run.json"));
  const Ran hidden = run_shell(train("--init_from resume --report off " + fails + out));
  EXPECT_NE(hidden.err.find("The last checkpoint in " + path("out") + " is from before"),
            std::string::npos)
      << hidden.err;
  fs::remove(path("out/run.json"));
  // No finite loss at all: no axis without a curve.
  std::ofstream(path("out/metrics.jsonl")) << "{\"step\":5,\"train_loss\":null}\n";
  EXPECT_EQ(run_program("report --text " + path("out")).out.substr(0, 21),
            "out: no loss to draw\n");
}

// A checkpoint that was saved when the run had diverged leads nowhere. The command has the settings
// of the run, also of one without a report.
TEST_F(Resume, ARunThatIsLostStartsAnew) {
  const std::string diverges = "--max_iters 200 --learning_rate 1000 --grad_clip 0 --report ",
                    out = " --out_dir " + path("out");
  const auto command_after = [](const Ran& failed, const std::string& told) {
    EXPECT_EQ(failed.code, 1);
    const size_t at = failed.err.find("; the loss was too high there; " + told + ": ");
    EXPECT_NE(at, std::string::npos) << failed.err;
    return at == std::string::npos ? "false"
                                   : first_line(failed.err.substr(failed.err.find(": ", at) + 2));
  };
  for (const std::string report : {"on", "off", "on --eval_interval 5"}) {  // the last: no lines
    const std::string again =
        command_after(run_shell(train("--overwrite " + diverges + report + out)), "to start anew");
    EXPECT_NE(again.find(" --n_layer=1 --n_head=2 "), std::string::npos) << again;
    EXPECT_EQ(run_shell(again).code, 0) << again;
  }
  // Good weights are not thrown away.
  ASSERT_EQ(run_shell(train("--overwrite" + out)).code, 0);
  const Ran later =
      run_shell(train("--init_from resume --max_iters 200 --learning_rate 300 "
                      "--warmup_iters 300 --grad_clip 0" +
                      out));
  const std::string anew = command_after(later, "to begin a new run with the best weights");
  EXPECT_NE(anew.find(" --init_from=" + path("out") + " "), std::string::npos) << anew;
  const Ran ran = run_shell("cd " + path(".") + "; " + anew);
  EXPECT_EQ(ran.code, 0) << anew << ran.err;
  EXPECT_TRUE(fs::exists(path("NEW/ckpt")));
  EXPECT_TRUE(fs::exists(path("out/best")));
}

// A log that cannot be written any more: what it would have said is saved with the steps.
TEST_F(Resume, NoLineOfTheLogIsLost) {
  const std::string out = " --out_dir " + path("out");
  const Ran full =
      run_shell("ulimit -f 104; " + train("--max_iters 400 --log_interval 1 --eval_interval 1000 "
                                          "--report off" +
                                          out));
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("metrics.jsonl: cannot write: File too large"), std::string::npos);
  ASSERT_EQ(run_shell("inkling train --init_from resume" + out).code, 0);
  std::vector<int64_t> steps;
  for (const MetricsStep& line : read_metrics(path("out/metrics.jsonl")))
    if (line.is_training) steps.push_back(line.step);
  std::vector<int64_t> all(400);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(steps, all);
}

}  // namespace
}  // namespace ink
