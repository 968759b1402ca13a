// What a person's runs may meet: interrupts, other runs in the same folder, data that changed,
// folders and files that are not ours, full disks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/file.h"
#include "tests/support/run_folder.h"
#include "train/checkpoint.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

using Runs = RunFolder;
using Json = nlohmann::json;

TEST_F(Runs, AnOlderRunInTheFolderIsRefusedMovedAsideOrDeleted) {
  ASSERT_EQ(run_shell(train("--out_dir " + path("a"))).code, 0);
  const std::string state = read_file(path("a/ckpt/state.json"));
  expect_error(train("--out_dir " + path("a")), 1,
               path("a") + " holds a finished run of 20 steps, trained on fables");
  expect_error(train("--out_dir " + path("a")), 1,
               "\nTo let it write: " + program_path() + " sample --out_dir " + path("a") + "\n");
  expect_error(train("--out_dir " + path("a")), 1,
               "train --init_from resume --max_iters MORE --out_dir " + path("a") + "\nTo start");
  EXPECT_EQ(read_file(path("a/ckpt/state.json")), state);
  EXPECT_FALSE(fs::exists(path("a/ckpt.prev")) && lines_in("a/metrics.jsonl") == 0);
  // Data that are not there: the old run stays.
  expect_error(train("--overwrite --data none.txt --out_dir " + path("a")), 1, "none.txt");
  EXPECT_EQ(read_file(path("a/ckpt/state.json")), state);
  EXPECT_EQ(run_shell(train("--overwrite --max_iters 3 --out_dir " + path("a"))).code, 0);
  EXPECT_NE(read_file(path("a/ckpt/state.json")), state);
  EXPECT_EQ(lines_in("a/metrics.jsonl"), 2);  // the last report and the sample
  expect_error(train("--overwrite --init_from resume --out_dir " + path("a")), 2, "--overwrite");

  const std::string here = "cd " + path(".") + "; ";
  ASSERT_EQ(run_shell(here + train("")).code, 0);
  const Ran again = run_shell(here + train(""));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(first_line(again.out).substr(0, 67),
            "The run that was in out is in out.1 now: a finished run of 20 steps");
  ASSERT_EQ(run_shell(train("--max_minutes 1e-9 --out_dir " + path("b"))).code, 0);
  expect_error(train("--out_dir " + path("b")), 1,
               path("b") + " holds a run after step 1 of 20, trained on fables");
  expect_error(train("--out_dir " + path("b")), 1,
               "To go on with it: " + program_path() + " train --init_from resume --out_dir ");
  EXPECT_TRUE(fs::exists(path("out.1/ckpt/model.safetensors")));
  EXPECT_TRUE(fs::exists(path("out/ckpt/model.safetensors")));
}

TEST_F(Runs, OneAtATime) {
  const std::string out = path("out");
  const Ran both = run_shell(train_in_background("--max_iters 1000000 --out_dir " + out) +
                             train("--init_from resume --out_dir " + out) +
                             "; code=$?; kill $run; wait $run; exit $code");
  EXPECT_EQ(both.code, 1);
  EXPECT_NE(both.err.find("another run is writing there: process "), std::string::npos) << both.err;
  EXPECT_TRUE(fs::exists(out + "/ckpt"));  // kill saved
}

TEST_F(Runs, ARunThatHasNotSavedYetIsToldFromNone) {
  const std::string out = path("out");
  const Ran early = run_shell(
      train_in_background("--max_iters 1000000 --eval_interval 1000000 --out_dir " + out) +
      "inkling sample --out_dir " + out + "; code=$?; kill $run; wait $run; exit $code");
  EXPECT_EQ(early.code, 1);
  EXPECT_NE(
      early.err.find("out has not saved a checkpoint yet; it does so at its first evaluation"),
      std::string::npos)
      << early.err;
}

// Its folder is that of the name, whatever has become of the one before. It is moved long before
// the first save.
TEST_F(Runs, OneAtATimeAlsoAfterTheFolderWasMoved) {
  const std::string out = path("out");
  const Ran both = run_shell(
      train_in_background("--max_iters 1000000 --eval_interval 4000 --out_dir " + out) + "mv " +
      out + " " + path("moved") + "; until [ -e " + out +
      "/ckpt ] || ! kill -0 $run; do sleep 0.05; done; " +
      train("--init_from resume --out_dir " + out) + "; code=$?; kill $run; wait $run; exit $code");
  EXPECT_EQ(both.code, 1);
  EXPECT_NE(both.err.find("another run is writing there: process "), std::string::npos) << both.err;
}

// kill and a lost connection save, also if they come twice; what the caller ignores stays ignored.
TEST_F(Runs, SignalsSaveAndStop) {
  for (const auto& [name, number] :
       {std::pair{"TERM", SIGTERM}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}}) {
    const std::string signal = name, out = path("out_" + signal);
    const Ran ran = run_shell(
        train_in_background("--max_iters 1000000 --eval_interval 1000000 --out_dir " + out) +
        "for i in $(seq 200); do kill -" + signal + " $run; done 2>/dev/null; wait $run");
    EXPECT_EQ(ran.code, 128 + number) << ran.err;
    EXPECT_TRUE(fs::exists(out + "/ckpt/state.json")) << signal;
  }
  const Ran ignored =
      run_shell(train_in_background(
                    "--max_iters 2000 --eval_interval 1000 --out_dir " + path("nohup"), "nohup") +
                "kill -HUP $run; wait $run");
  EXPECT_EQ(ignored.code, 0) << "it goes on to its end: " << ignored.err;
}

// Also where only the last sample is missing, which a resume writes. Its text is longer than what
// the pipe holds, and so it ends only after the signal, when the rest is read.
TEST_F(Runs, ASignalDuringTheLastSampleIsNoSuccess) {
  const std::string log = path("log"), fifo = path("fifo"), in = " --out_dir " + path("out"),
                    slow = "--max_iters 1 --block_size 8192 --batch_size 1";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_EQ(::fcntl(reader, F_SETPIPE_SZ, 4096), 4096);
  const Ran ran = run_shell(
      "exec 4>" + fifo + " 3<" + fifo + "; \"$INKLING_PROGRAM\" " + train(slow + in).substr(8) +
      " >&4 3<&- 4>&- & run=$!; exec 4>&-; while read -r line <&3 && test \"${line#*model "
      "writes}\" = \"$line\"; do :; done; kill $run; cat <&3 >" +
      log + "; wait $run");
  ::close(reader);
  EXPECT_EQ(ran.code, 128 + SIGTERM) << ran.err << read_file(log);
  EXPECT_NE(read_file(log).find("Interrupted after step 1; saved. To go on: "), std::string::npos);
  EXPECT_FALSE(fs::exists(path("out/samples/step_000001.txt")));
  EXPECT_EQ(run_shell("inkling train --init_from resume" + in).code, 0);
  EXPECT_TRUE(fs::exists(path("out/samples/step_000001.txt")));
}

// What a run did since its last line is logged where it stops, and counted on where it goes on.
TEST_F(Runs, AStopLogsTheLastSteps) {
  const std::string out = " --out_dir " + path("out"), resume = "--init_from resume" + out;
  ASSERT_EQ(run_shell(train("--max_minutes 1e-9" + out)).code, 0);
  EXPECT_EQ(lines_in("out/metrics.jsonl"), 1);
  EXPECT_TRUE(fs::exists(path("out/report.html")));
  ASSERT_EQ(run_shell(train("--max_minutes 1e-9 " + resume)).code, 0);
  ASSERT_EQ(run_shell(train("--max_minutes 0 " + resume)).code, 0);
  std::vector<int64_t> steps;
  double elapsed = 0;
  for (const MetricsStep& line : read_metrics(path("out/metrics.jsonl"))) {
    if (!line.is_training) continue;
    steps.push_back(line.step);
    EXPECT_GE(line.elapsed_s.value(), std::exchange(elapsed, line.elapsed_s.value()));
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 5, 10, 15, 20}));
  const auto report = [&](const std::string& because) {
    std::ofstream(path("out/metrics.jsonl")).close();
    expect_error("inkling report " + path("out"), 1,
                 "the run in " + path("out") + " ended before it logged a line; " + because);
  };
  report("to go on with it: " + program_path() + " train --init_from resume --out_dir ");
  fs::remove_all(path("out/ckpt")), fs::remove_all(path("out/ckpt.prev"));
  fs::remove_all(path("out/best")), fs::remove_all(path("out/best.prev"));
  report("to start anew: " + program_path() + " train --overwrite --n_layer=1 --n_head=2 ");
}

// Checkpoints go on to be saved by the folder's name: so do lines, with those before.
TEST_F(Runs, AFolderThatWasMovedIsMadeAnew) {
  const std::string out = path("out"), log = path("log");
  const auto wait_for = [&](const std::string& file) {
    return "while kill -0 $run && ! test -e " + file + "; do sleep 0.05; done; ";
  };
  const Ran ran = run_shell(
      train_in_background("--max_iters 1000000 --eval_interval 1000000 --out_dir " + out) + "mv " +
      out + " " + path("moved") + "; " + wait_for(out + "/metrics.jsonl") + "kill $run; wait $run");
  EXPECT_EQ(ran.code, 128 + SIGTERM) << ran.err;
  EXPECT_NE(
      ran.err.find(out + "/metrics.jsonl: was deleted, moved or replaced while the run wrote"),
      std::string::npos)
      << ran.err;
  const auto lines = read_metrics(out + "/metrics.jsonl"),
             old = read_metrics(path("moved") + "/metrics.jsonl");
  EXPECT_EQ(lines.at(0).step, 5);
  EXPECT_GT(lines.size(), old.size());
  EXPECT_TRUE(fs::exists(out + "/ckpt/state.json"));
  fs::remove(out + "/metrics.jsonl");
  expect_error("inkling report " + out, 1,
               out +
                   " holds a checkpoint, and no metrics.jsonl, the log that a report shows; name "
                   "the folder of its run, or let it write: " +
                   program_path() + " sample --out_dir " + out);
}

// Only what is known to be gone is written anew: here, the system cannot tell what the name means.
TEST_F(Runs, ALogThatCannotBeLookedUpIsWrittenOn) {
  const std::string out = path("out"), file = out + "/metrics.jsonl", old = path("old");
  const Ran ran = run_shell(
      train_in_background("--max_iters 1000000 --eval_interval 1000000 --out_dir " + out) + "ln " +
      file + " " + old + "; cd " + out + "; ln -s loop loop; ln -s loop link; mv -T link " + file +
      "; before=$(wc -l <" + old + "); while kill -0 $run && test $(wc -l <" + old +
      ") -le $before; do sleep 0.05; done; kill $run; wait $run");
  EXPECT_EQ(ran.code, 128 + SIGTERM) << ran.err;
  EXPECT_EQ(ran.err.find("was deleted"), std::string::npos) << ran.err;
  EXPECT_TRUE(fs::is_symlink(file));
}

TEST_F(Runs, WhoStopsReadingDoesNotStopTheRun) {
  const Ran ran = run_shell(train("--final_eval whole --out_dir " + path("out")) + " | head -1");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(fs::exists(path("out/ckpt/state.json")));
  EXPECT_EQ(lines_in("out/metrics.jsonl"), 7);  // 4 reports, 2 validations, a sample
  EXPECT_EQ(run_shell(train("--final_eval whole --out_dir " + path("none")) + " | true").err, "");
}

// The setting is of a run that goes on, and not of a run with the defaults.
TEST_F(Runs, GoOnWithOtherSettings) {
  std::ofstream(path("a.txt")) << std::string(2000, 'a') + std::string(2000, 'b');
  std::ofstream(path("b.txt")) << std::string(500, 'a') + std::string(500, 'b');
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + " --out_dir " + path("out"))).code, 0);
  const Ran ran = run_shell("inkling train --init_from resume --max_iters 21 --out_dir " +
                            path("out") + " --val_data " + path("b.txt") + " --data_changed");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find(" 1000 to validate on"), std::string::npos) << ran.out;
}

// Losses are compared before and after, because the rows of a step are the same.
TEST_F(Runs, ABatchInPartsIsTheSameBatch) {
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--batch_size 6 --log_interval 20" + out)).code, 0);
  for (const char* more :
       {"40 --batch_size 3 --gradient_accumulation_steps 2", "60 --batch_size 6"})
    ASSERT_EQ(
        run_shell(std::string("inkling train --init_from resume --max_iters ") + more + out).code,
        0);
  std::vector<double> sets;
  for (const MetricsStep& line : read_metrics(path("out/metrics.jsonl")))
    if (line.train_set) sets.push_back(*line.train_set);
  ASSERT_EQ(sets.size(), 3u);
  EXPECT_EQ(sets[0], sets[1]);
  EXPECT_NE(sets[1], sets[2]);
}

// The last thing that a run can say where a file of ids is cut short under it.
TEST_F(Runs, ADataFileThatIsCutShortIsSaid) {
  const std::string ids = path("a.bin"), out = path("out");
  std::ofstream(ids) << std::string(2'000'000, '\1');
  const Ran ran =
      run_shell(train_in_background("--max_iters 1000000 --eval_interval 1000000 --data " + ids +
                                    " --out_dir " + out) +
                ": >" + ids + "; wait $run");
  EXPECT_EQ(ran.code, 128 + SIGBUS) << ran.err;
  EXPECT_NE(ran.err.find("a file of data was cut short while it was read"), std::string::npos)
      << ran.err;
}

TEST_F(Runs, OtherDataAreRefused) {
  std::string text = "What the run was trained on, again and again. ";
  for (int i = 0; i < 5; ++i) text += text;
  std::ofstream(path("a.txt")) << text;
  std::ofstream(path("same.txt")) << text;
  std::ofstream(path("other.txt")) << text + "again";
  const auto resume = [&](const std::string& more) {
    return train("--init_from resume --out_dir " + path("out") + " " + more);
  };
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + " --out_dir " + path("out"))).code, 0);
  expect_error(resume("--data " + path("other.txt")), 1, "--data_changed");
  std::ofstream(path("a.txt")) << text + text;
  expect_error(resume(""), 1, "was trained on 1472 bytes with CRC-64 ");
  EXPECT_EQ(run_shell(resume("--max_iters 30 --data " + path("same.txt"))).code, 0);
  expect_error(resume("--max_iters 40 --val_fraction 0.9 --data " + path("same.txt")), 1,
               "has val_fraction 0.1, got 0.9, with which it would validate on other text");
  EXPECT_EQ(run_shell(resume("--max_iters 35 --data_changed --data " + path("other.txt"))).code, 0);
}

// Losses of different texts are never compared. A text that was moved is the same: its end is what
// validates.
TEST_F(Runs, EvaluationsKnowTheTextOfTheirRun) {
  const std::string here = "cd " + path(".") + "; ", out = " --out_dir " + path("out");
  std::ofstream(path("a.txt")) << std::string(1000, 'a') + std::string(1000, 'b');
  ASSERT_EQ(run_shell(here + train("--data a.txt" + out)).code, 0);
  const Ran own = run_shell(here + "inkling eval" + out);
  EXPECT_EQ(own.code, 0) << own.err;
  const auto loss = [](const Ran& ran) { return ran.out.substr(0, ran.out.find(" tokens of ")); };
  fs::create_directory(path("place"));
  fs::rename(path("a.txt"), path("place/b.txt"));
  const std::string gone =
      "was trained with --data: a.txt: cannot open: No such file or directory"
      "; name its new place: --data PLACE";
  expect_error(here + "inkling eval" + out, 1, "out/best " + gone);
  expect_error(here + train("--init_from resume" + out), 1, "out/ckpt " + gone);
  const Ran moved = run_shell("inkling eval --data " + path("place/b.txt") + out);
  EXPECT_EQ(loss(moved), loss(own)) << moved.err;
  std::ofstream(path("a.txt")) << std::string(1000, 'b') + std::string(1000, 'a');
  expect_error(here + "inkling eval" + out, 1, "out/best was trained on 2000 bytes with CRC-64 ");
  const Ran other = run_shell(here + "inkling eval --data a.txt" + out);
  EXPECT_NE(other.out.find("over 1984 tokens"), std::string::npos) << other.out << other.err;
  // What it validates on is apart: that is to be measured.
  ASSERT_EQ(run_shell(here + train("--data a.txt --val_data place/b.txt --out_dir two")).code, 0);
  const Ran apart = run_shell(here + "inkling eval --out_dir two");
  EXPECT_NE(apart.out.find(" tokens of place/b.txt; trained on a.txt: "), std::string::npos)
      << apart.out << apart.err;
  fs::rename(path("place"), path("moved"));
  expect_error(here + "inkling eval --out_dir two", 1,
               "--val_data: place/b.txt: cannot open: No such file or directory; name what to "
               "measure: --data PLACE");
  expect_error(here + train("--init_from resume --out_dir two"), 1, "place: --val_data PLACE");
  fs::rename(path("moved"), path("place"));
  std::ofstream(path("a.txt")) << std::string(1000, 'b') + std::string(500, 'a');
  const Ran same = run_shell(here + "inkling eval --out_dir two");
  EXPECT_EQ(same.code, 0) << "what it was trained on does not matter: " << same.err;
  std::ofstream(path("place/b.txt")) << std::string(1000, 'b');
  const Ran changed = run_shell(here + "inkling eval --out_dir two");
  EXPECT_EQ(changed.err.find("the same text"), std::string::npos) << changed.err;
  EXPECT_NE(changed.err.find("; name what to measure: --data PLACE\n"), std::string::npos)
      << changed.err;
}

TEST_F(Runs, DataOfAnotherKindAreRefused) {
  std::ofstream(path("a.txt")) << std::string(2000, 'a') + std::string(2000, 'b');
  std::ofstream(path("b.bin")) << std::string(2000, '\1');
  ASSERT_EQ(run_shell(train("--out_dir " + path("out"))).code, 0);
  expect_error(train("--init_from resume --out_dir " + path("out") + " --data " + path("a.txt")), 1,
               "was trained on fables");
  expect_error(
      train("--out_dir " + path("mixed") + " --data " + path("a.txt") + " " + path("b.bin")), 1,
      "expected files of one kind, got " + path("a.txt") + " (text) and " + path("b.bin"));
  EXPECT_FALSE(fs::exists(path("mixed")));
  ASSERT_EQ(run_shell(train("--out_dir " + path("of_a") + " --data " + path("a.txt"))).code, 0);
  expect_error(train("--init_from resume --dataset fables --out_dir " + path("of_a")), 1,
               "name the same text with --data");
}

TEST_F(Runs, NamesOfFilesAreBytes) {
  const std::string name = path("caf\xe9 \xff.txt"), quoted = "'" + name + "'";
  std::ofstream(name) << std::string(2000, 'x') + std::string(2000, 'y');
  ASSERT_EQ(run_shell(train("--data " + quoted + " --out_dir " + path("out"))).code, 0);
  const Ran resumed =
      run_shell(train("--init_from resume --max_iters 25 --out_dir " + path("out")));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(run_shell("inkling eval --out_dir " + path("out")).code, 0);
}

TEST_F(Runs, WhatIsNotOursIsNotTouched) {
  fs::create_directories(path("out/best"));
  std::ofstream(path("out/best/thesis.txt")) << "years of work";
  expect_error(train("--out_dir " + path("out")), 1, "is not a checkpoint of inkling");
  EXPECT_EQ(read_file(path("out/best/thesis.txt")), "years of work");
  EXPECT_FALSE(fs::exists(path("out/metrics.jsonl")));
  fs::create_directories(path("b"));
  std::ofstream(path("b/ckpt")) << "a file";
  expect_error(train("--out_dir " + path("b")), 1, "is not a checkpoint of inkling");
  EXPECT_EQ(read_file(path("b/ckpt")), "a file");
  for (const char* name : {"hf/ckpt", "hf/best"}) {  // Hugging Face's files have the same names
    fs::create_directories(path(name));
    std::ofstream(path(name) + "/config.json") << "{\"model_type\": \"gpt2\"}";
    std::ofstream(path(name) + "/model.safetensors") << name;
  }
  for (const char* more : {"", "--overwrite "})
    expect_error(train(more + ("--out_dir " + path("hf"))), 1, "is not a checkpoint of inkling");
  EXPECT_EQ(read_file(path("hf/best/model.safetensors")), "hf/best");
  EXPECT_EQ(read_file(path("hf/ckpt/model.safetensors")), "hf/ckpt");
  std::ofstream(path("file")) << "x";
  expect_error(train("--out_dir " + path("file")), 1, path("file"));
  // As on a disk that is read-only.
  ASSERT_EQ(run_shell(train("--out_dir " + path("ro"))).code, 0);
  fs::remove(path("ro/.lock"));
  fs::create_directories(path("ro/.lock"));
  fs::create_directories(path("none/.lock"));
  const std::string told = "--out_dir: " + path("ro/.lock") + ": cannot create: ",
                    anew = " --init_from " + path("ro") + " --out_dir ";
  expect_error(train("--init_from resume --out_dir " + path("ro")), 1, told);
  expect_error(train("--init_from resume --out_dir " + path("ro")), 1, anew + "NEW");
  EXPECT_EQ(run_shell(train(anew + path("new"))).code, 0);
  expect_error(train("--out_dir " + path("none")), 1, "; name another folder");
  fs::create_directories(path("c"));
  ASSERT_EQ(mkfifo(path("c/metrics.jsonl").c_str(), 0600), 0);
  expect_error(train("--overwrite --out_dir " + path("c")), 1, "metrics.jsonl");
}

// Jupyter's folder and a person's note do not end a run at its next save, and stay.
TEST_F(Runs, WhatStandsInACheckpointDoesNotEndTheRun) {
  ASSERT_EQ(run_shell(train("--out_dir " + path("out"))).code, 0);
  fs::create_directories(path("out/ckpt/.ipynb_checkpoints"));
  std::ofstream(path("out/ckpt/tok.json")) << "mine";
  const Ran more = run_shell(train("--init_from resume --max_iters 25 --out_dir " + path("out")));
  EXPECT_EQ(more.code, 0) << more.err;
  expect_error(train("--overwrite --out_dir " + path("out")), 1,
               "out/ckpt/tok.json: is in the checkpoint that would be deleted");
  EXPECT_EQ(read_file(path("out/ckpt/tok.json")), "mine");
  EXPECT_TRUE(fs::exists(path("out/ckpt/.ipynb_checkpoints")));
  EXPECT_EQ(run_shell("inkling info --out_dir " + path("out")).code, 0);
}

TEST_F(Runs, ARunIsNotPutIntoTheCheckpointOfAnother) {
  ASSERT_EQ(run_shell(train("--out_dir " + path("out"))).code, 0);
  for (const char* name : {"out/ckpt", "out/ckpt/", "out/best", "out/samples"})
    expect_error(train("--init_from " + path("out") + " --out_dir " + path(name)), 2,
                 "is of the run in " + path("out") + "; name that folder, or another");
  EXPECT_FALSE(fs::exists(path("out/ckpt/metrics.jsonl")));
}

TEST_F(Runs, WhatARunReadsIsNotReplacedOrMovedAside) {
  const std::string in = " --sample_interval 10 --out_dir " + path("out"),
                    sample = path("out/samples/step_000010.txt");
  std::string text = "What the run was trained on, again and again. ";
  for (int i = 0; i < 5; ++i) text += text;
  std::ofstream(path("a.txt")) << text;
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + in)).code, 0);
  std::ofstream(sample) << text;
  for (const std::string& data : {"--data " + sample, "--data " + path("out/samples"),
                                  "--data " + path("a.txt") + " --val_data " + sample})
    expect_error(train(data + " --overwrite" + in), 2,
                 sample + " is in " + path("out") + ", where the run would replace it");
  EXPECT_EQ(read_file(sample), text);
  EXPECT_TRUE(fs::exists(path("out/ckpt")));

  std::ofstream(path("out/a.txt")) << text;  // the folder of its own is the default one here
  const Ran again = run_shell("cd " + path(".") + "; " + train("--data out/a.txt"));
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("--data: out/a.txt is in out, which would be moved aside"),
            std::string::npos)
      << again.err;
  EXPECT_TRUE(fs::exists(path("out/a.txt")));
  EXPECT_EQ(run_shell(train("--overwrite --data " + path("out/a.txt") + in)).code, 0);
}

// The second run is where the first was: on the disk to which the link leads.
TEST_F(Runs, ALinkToADiskStays) {
  fs::create_directories(path("disk/out"));
  fs::create_symlink(path("disk/out"), path("out"));
  const std::string here = "cd " + path(".") + "; ";
  ASSERT_EQ(run_shell(here + train("")).code, 0);
  const Ran again = run_shell(here + train(""));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("The run that was in out is in " + fs::canonical(path("disk")).string() +
                           "/out.1 now"),
            std::string::npos)
      << again.out;
  EXPECT_TRUE(fs::is_symlink(path("out")));
  EXPECT_TRUE(fs::exists(path("disk/out/ckpt")) && fs::exists(path("disk/out.1/ckpt")));
}

// It is read once, so what comes after it needs a file.
TEST_F(Runs, WhatIsPrintedAfterAPipeCanBeTyped) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a') + std::string(3000, 'b');
  const std::string pipe = path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Ran ran = run_shell("cat " + path("a.txt") + " >" + pipe + " & " +
                            train("--final_eval off --data " + pipe + " --out_dir " + path("out")));
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string go_on = " train --init_from resume --out_dir " + path("out"),
                    evaluate = go_on + " --data FILE --final_eval whole\n";
  EXPECT_NE(ran.out.find("to evaluate:" + (" " + program_path()) + evaluate), std::string::npos)
      << ran.out;
  const Ran whole = run_shell("inkling" + go_on + " --final_eval whole --data " + path("a.txt"));
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.out.find("over all "), std::string::npos) << whole.out;
  // Of the two, what was a pipe is named; a shell calls it /dev/fd/63.
  const std::string both = train("--max_minutes 1e-9 --overwrite --out_dir " + path("out")) +
                           " --data ",
                    a = path("a.txt"), fd = " 5<" + a;
  for (const auto& [names, again] : {std::pair{a + " --val_data /dev/fd/5", " --val_data FILE"},
                                     {"/dev/fd/5 --val_data " + a, " --data FILE"}}) {
    const Ran stopped = run_shell(both + names + fd);
    EXPECT_NE(stopped.out.find(go_on + again + "\n"), std::string::npos) << stopped.out;
    expect_error(train("--out_dir " + path("out")), 1, go_on + again + "\n");
    EXPECT_EQ(run_shell("inkling report " + path("out")).code, 0);
    EXPECT_NE(read_file(path("out/report.html")).find(go_on.substr(1) + again + "\""),
              std::string::npos);
    std::ofstream(path("out/metrics.jsonl")).close();
    fs::remove_all(path("out/ckpt")), fs::remove_all(path("out/best"));
    expect_error("inkling report " + path("out"), 1, again + std::string(" "));
  }
}

// What a checkpoint says is read with errors that name the field, and the one before is tried.
// Replaces config and state, as somebody would who can compute checksums.
static void write_checkpoint(const fs::path& folder, const Json& config, const Json& values) {
  const auto checksum = [](const std::string& text) {
    std::ostringstream hex;
    hex << std::hex << std::setw(16) << std::setfill('0') << crc64(std::as_bytes(std::span(text)));
    return hex.str();
  };
  std::ofstream(folder / "config.json") << config.dump(2) + "\n";
  const std::string bytes = read_file((folder / "config.json").string());
  Json state = Json::parse(read_file((folder / "state.json").string()));
  state["files"]["config.json"] = {{"bytes", bytes.size()}, {"crc64", checksum(bytes)}};
  state["state"] = values;
  state.erase("checksum");
  state["checksum"] = checksum(state.dump());
  std::ofstream(folder / "state.json") << state.dump(2) + "\n";
}

TEST_F(Runs, AResumeFinishesASaveThatWasCutShort) {
  ASSERT_EQ(run_shell(train("--out_dir " + path("out"))).code, 0);
  fs::rename(path("out/ckpt"), path("out/ckpt.tmp"));  // killed between the two renames
  const Ran ran = run_shell(train("--init_from resume --out_dir " + path("out")));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("has all its"), std::string::npos) << ran.out;
  EXPECT_TRUE(fs::exists(path("out/ckpt/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("out/ckpt.tmp")));
}

TEST_F(Runs, ACheckpointWhoseFieldsMakeNoSenseIsPassedOver) {
  ASSERT_EQ(run_shell(train("--out_dir " + path("out"))).code, 0);
  const std::string config = path("out/ckpt/config.json"), state = path("out/ckpt/state.json");
  const Json good_config = Json::parse(read_file(config)),
             good_state = Json::parse(read_file(state));
  const auto write = [&](const Json& new_config, const Json& values) {
    write_checkpoint(path("out/ckpt"), new_config, values);
  };
  const auto expect = [&](const std::string& name, const Json& value, const std::string& text) {
    Json changed = good_config, values = good_state["state"];
    Json& of = changed.contains(name) ? changed : values;
    value.is_discarded() ? static_cast<void>(of.erase(name)) : static_cast<void>(of[name] = value);
    write(changed, values);
    const Ran ran = run_shell("inkling info --checkpoint ckpt --out_dir " + path("out"));
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_NE(ran.err.find("is used in place of"), std::string::npos) << name << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << name << "\n" << ran.err;
    EXPECT_EQ(ran.err.find("json.exception"), std::string::npos) << ran.err;
  };
  const Json missing(Json::value_t::discarded);
  expect("vocabulary", missing, "vocabulary is missing");
  expect("vocabulary", 3, "vocabulary: tokenizer: expected");
  expect("start", Json::array(), "config.json: start: expected a text, got []");
  expect("start", "\u00e9", "config.json: start: encode: character");
  expect("n_layer", 1.5, "config: n_layer: expected an integer, got 1.5");
  expect("n_layer", 4e37, "config: n_layer: expected an integer, got 4e+37");
  expect("n_layer", 1000000000, "config: n_layer is 1000000000; expected 1 to 1000");
  expect("n_layer", 900, "has 4512 numbers; expected");
  expect("batch_size", -1, "config: batch_size is -1; expected 1 to 1048576");
  expect("dropout", "\u001b[31m", "config: dropout: expected a number, got ");
  expect("data", {{"hex", "zz"}}, "config: data: expected a list of texts");
  expect("step", -3, "state.json: step: expected an integer from 0 to 1000000000, got -3");
  expect("step", missing, "state.json: step is missing");
  expect("best_val_loss", "low", "state.json: best_val_loss: expected a number or null");
  // Where the run is and on what it runs are not the checkpoint's to say.
  Json elsewhere = good_config;
  elsewhere["out_dir"] = path("elsewhere");
  elsewhere["device"] = "cuda:7";
  write(elsewhere, good_state["state"]);
  const Ran resumed =
      run_shell(train("--init_from resume --max_iters 25 --out_dir " + path("out")));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_FALSE(fs::exists(path("elsewhere")));
  expect_error("inkling info --checkpoint ../out/ckpt --out_dir " + path("out"), 2,
               "--checkpoint is '../out/ckpt'; expected ckpt or best");
}

TEST_F(Runs, ControlCharactersOfACheckpointAreNeverShown) {
  std::ofstream(path("a.txt")) << std::string(2000, 'a') + std::string(2000, 'b');
  const std::string run = train("--data " + path("a.txt") + " --out_dir " + path("out"));
  ASSERT_EQ(run_shell(run).code, 0);
  const fs::path ckpt = path("out/ckpt");
  for (const char* best : {"out/best", "out/best.prev"}) fs::remove_all(path(best));
  const Json good = Json::parse(read_file(ckpt / "config.json")),
             state = Json::parse(read_file(ckpt / "state.json"));
  const std::string controls = "\x1b]0;title\x07\x1b[2J\b\r\x7f\u009b31m" + std::string(1, '\0');
  const auto expect_harmless = [&](const std::string& line) {
    const Ran ran = run_shell(line);
    for (const std::string& text : {ran.out, ran.err})
      for (size_t at = 0; at < text.size(); ++at) {
        const auto byte = static_cast<unsigned char>(text[at]);
        EXPECT_TRUE(byte == '\n' || (byte >= ' ' && byte != 0x7f)) << int{byte} << line << text;
        EXPECT_NE(text.substr(at, 2), "\u009b") << line << text;
      }
    return ran;
  };
  Json config = good, values = state["state"];
  const std::string elsewhere = path("out/" + std::string("x\x1b[31m\x7f"));
  std::ofstream(elsewhere) << read_file(path("a.txt"));
  config["data"] = {elsewhere};

  config["tokenizer"] = controls;
  config[controls] = controls;
  values["dataset"] = values["data"] = controls;
  for (auto& item : values["arithmetic"])
    if (item.is_string()) item = controls;
  for (auto& item : values["arithmetic"]["products"]) item = controls;
  write_checkpoint(ckpt, config, values);
  const std::string in = " --out_dir " + path("out");
  const Ran info = expect_harmless("inkling info --checkpoint ckpt" + in);
  EXPECT_NE(info.out.find("\\x1b]0;title\\x07"), std::string::npos) << info.out << info.err;
  EXPECT_EQ(expect_harmless("inkling eval" + in).code, 1) << "other data";
  EXPECT_NE(expect_harmless("inkling train --init_from resume --print_config" + in)
                .out.find("\\u001b]0;title\\u0007"),
            std::string::npos);
  const std::string more = "inkling train --init_from resume --max_iters 21";
  EXPECT_EQ(expect_harmless(more + in).code, 1);
  EXPECT_EQ(expect_harmless(more + " --data_changed" + in).code, 0);
  expect_harmless(run);
  expect_harmless(train("--max_iters 1 --out_dir \"$(printf '" + path("x") + "\\033[31m\\007')\""));
  for (const auto& item : good.items()) {
    if (!item.value().is_string()) continue;
    config = good;
    config[item.key()] = controls;
    write_checkpoint(ckpt, config, state["state"]);
    expect_harmless("inkling info --checkpoint ckpt" + in);
  }
}

// What follows the last step changes no bit of what is saved.
TEST_F(Runs, TheFinalEvaluationIsChosen) {
  std::string text = "A text whose validation part holds a few windows. ";
  for (int i = 0; i < 6; ++i) text += text;
  std::ofstream(path("a.txt")) << text;
  const auto run = [&](const std::string& name, const std::string& more) {
    const Ran ran = run_shell(train(more + " --out_dir " + path(name)));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.out;
  };
  const auto expect = [](const std::string& out, const std::string& part) {
    EXPECT_NE(out.find(part), std::string::npos) << out;
  };
  const std::string all = "  over all 100000 validation tokens";
  expect(run("whole", "--final_eval whole"), all);
  // What takes seconds is done; this would take a minute.
  std::ofstream large(path("large.txt"));
  for (int i = 0; i < 300'000; ++i)
    large << "a line of a text whose largest part is for validation\n";
  large.close();
  expect(run("sampled",
             "--max_iters 1 --final_eval auto --val_fraction 0.9 --data " + path("large.txt")),
         "  over 1 sampled batch; the whole set would take about ");
  expect(run("seconds", "--final_eval auto --max_iters 0"), all);
  expect(run("seconds", "--init_from resume --eval_iters 0 --final_eval whole"), all);
  expect(run("quick", "--max_iters 200 --eval_iters 20 --final_eval auto --data " + path("a.txt")),
         "  over all 288 ");
  const std::string off = run("off", "--final_eval off");
  expect(off, "no evaluation after the last step (final_eval off); to evaluate: ");
  EXPECT_EQ(off.find("over "), std::string::npos) << off;
  for (const char* file : {"/ckpt/model.safetensors", "/ckpt/optimizer.safetensors"})
    EXPECT_EQ(read_file(path("whole") + file), read_file(path("off") + file)) << file;
  EXPECT_EQ(read_metrics(path("off/metrics.jsonl")).size(), 6u);  // 4 reports, 1 validation, sample
  expect(run("off", "--init_from resume --final_eval whole"), all);
  EXPECT_EQ(read_metrics(path("off/metrics.jsonl")).size(), 7u);
  expect_error(train("--final_eval no --out_dir " + path("no")), 2, "expected auto, whole or off");
}

// At its end a run says which checkpoint the next command takes.
TEST_F(Runs, TheBestCheckpointIsNamed) {
  const auto best = [&](const std::string& more) {
    const std::string out = run_shell(train("--out_dir " + path("out") + " " + more)).out;
    const size_t at = out.find("\nsample takes best (");
    return at == std::string::npos ? out : out.substr(at + 1, out.find(',', at) - at - 1);
  };
  EXPECT_EQ(best("--max_iters 15 --final_eval off"), "sample takes best (step 10");
  // Now the loss rises, and the older process's best stays.
  EXPECT_EQ(best("--init_from resume --max_iters 60 --learning_rate 10 --final_eval off"),
            "sample takes best (step 10");
  fs::remove_all(path("out/metrics.jsonl"));
  EXPECT_EQ(best("--init_from resume --max_iters 60 --final_eval off"),
            "sample takes best (step 10");
}

// The metrics of a resumed run are those of one that was never stopped.
TEST_F(Runs, MetricsGoOn) {
  const auto losses = [&](const std::string& file) {
    return run_shell("sed -E 's/,\"(tokens_per_s|ms|elapsed_s|memory_mb)\":[0-9.e-]*//g' " +
                     path(file))
        .out;
  };
  ASSERT_EQ(run_shell(train("--final_eval whole --max_iters 40 --out_dir " + path("whole"))).code,
            0);
  ASSERT_EQ(
      run_shell(train("--final_eval whole --lr_decay_iters 40 --out_dir " + path("out"))).code, 0);
  std::ofstream(path("out/metrics.jsonl"), std::ios::app)
      << "{\"step\":\"x\"}\n{\"step\":4000000}\n{\"step\":18446744073709551615}\n{\"step\":2";
  const Ran resumed = run_shell(
      train("--final_eval whole --init_from resume --max_iters 40 --out_dir " + path("out")));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("3 lines left out that are not metrics of a step"), std::string::npos)
      << resumed.err;
  const std::string whole = losses("whole/metrics.jsonl"), parts = losses("out/metrics.jsonl");
  EXPECT_EQ(parts.substr(0, parts.find("\"step\":20,\"val_loss\"")),
            whole.substr(0, whole.find("\"step\":20,\"val_loss\"")));
  EXPECT_EQ(parts.substr(parts.find("{\"step\":25")), whole.substr(whole.find("{\"step\":25")));
  // A run that is at its end is evaluated again, and says so once.
  ASSERT_EQ(run_shell(train("--final_eval whole --init_from resume --max_iters 40 --out_dir " +
                            path("out")))
                .code,
            0);
  EXPECT_EQ(losses("out/metrics.jsonl"), parts);
}

// Every sample that was shown is in a file, and metrics.jsonl names it.
TEST_F(Runs, SamplesAreKept) {
  const std::string every_5 = "--sample_interval 5 --out_dir " + path("out");
  const auto samples = [&] { return run_shell("ls " + path("out/samples") + " | xargs").out; };
  const std::string resume = every_5 + " --init_from resume --max_iters ";
  const Ran ran = run_shell(train(every_5));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(samples(), "step_000005.txt step_000010.txt step_000015.txt step_000020.txt\n");
  const std::string last = read_file(path("out/samples/step_000020.txt"));
  EXPECT_GE(last.size(), 32u);
  EXPECT_NE(ran.out.find("--- the model writes:\n" + last + "\n---\n"), std::string::npos);
  std::vector<int64_t> steps;
  for (const MetricsStep& line : read_metrics(path("out/metrics.jsonl")))
    if (!line.sample.empty()) steps.push_back(line.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 10, 15, 20}));
  // The line of step 20 and later files are of a future that the run goes to again.
  std::ofstream(path("out/samples/step_000030.txt")) << "x";
  std::ofstream(path("out/samples/step_000035.txt.tmp")) << "x";
  std::ofstream(path("out/samples/step_9.txt")) << "a user's";
  ASSERT_EQ(run_shell(train(resume + "23")).code, 0);
  EXPECT_EQ(samples(),
            "step_000005.txt step_000010.txt step_000015.txt step_000020.txt step_000023.txt "
            "step_9.txt\n");
  ASSERT_EQ(run_shell(train(resume + "23")).code, 0);  // at its end: shown and told again, once
  EXPECT_EQ(run_shell("grep -c step_000023 " + path("out/metrics.jsonl")).out, "1\n");
  // A new run deletes ours alone.
  ASSERT_EQ(run_shell(train("--overwrite --out_dir " + path("out"))).code, 0);
  EXPECT_EQ(samples(), "step_000020.txt step_9.txt\n");
}

TEST_F(Runs, SamplesMoveAsideWithTheirRunAndAreNotOverAFile) {
  const std::string here = "cd " + path(".") + "; ";
  ASSERT_EQ(run_shell(here + train("")).code, 0);
  ASSERT_EQ(run_shell(here + train("--max_iters 0 --sample_interval 0")).code, 0);
  EXPECT_TRUE(fs::exists(path("out.1/samples/step_000020.txt")));
  EXPECT_FALSE(fs::exists(path("out/samples/step_000020.txt")));
  fs::create_directories(path("a"));
  std::ofstream(path("a/samples")) << "of blood";
  expect_error(train("--overwrite --out_dir " + path("a")), 1, "samples: expected a folder");
  EXPECT_EQ(read_file(path("a/samples")), "of blood");
  EXPECT_FALSE(fs::exists(path("a/metrics.jsonl")));
  // A sample that cannot be written ends the run, whose steps are saved first.
  fs::create_directories(path("b/samples/step_000010.txt"));
  expect_error(train("--eval_interval 7 --sample_interval 10 --out_dir " + path("b")), 1,
               "step_000010.txt");
  EXPECT_NE(run_shell("inkling info --checkpoint ckpt --out_dir " + path("b")).out.find("step 10"),
            std::string::npos);
}

// Times, memory and skipped steps; a run that goes on counts on.
TEST_F(Runs, MetricsTellTimeAndMemory) {
  ASSERT_EQ(run_shell(train("--final_eval whole --out_dir " + path("out"))).code, 0);
  std::ofstream(path("out/metrics.jsonl"), std::ios::app) << "{\"step\":20,\"elapsed_s\":100}\n";
  ASSERT_EQ(run_shell(train("--final_eval whole --init_from resume --max_iters 40 --out_dir " +
                            path("out")))
                .code,
            0);
  double elapsed = 0;
  for (const MetricsStep& line : read_metrics(path("out/metrics.jsonl"))) {
    if (line.train_loss) {
      EXPECT_EQ(line.skipped, 0) << line.step;
      EXPECT_GT(line.memory_mb.value(), 1) << line.step;
    }
    if (!line.train_loss && !line.val_loss) continue;
    EXPECT_EQ(line.elapsed_s > 100, line.step > 20) << line.step;
    EXPECT_GE(line.elapsed_s, elapsed) << line.step;
    elapsed = line.elapsed_s.value();
  }
}

// golden/runs_012299d: after 20 steps. The losses after 30 and 40 are those of the program that
// wrote it.
TEST_F(Runs, OfAnOlderProgramGoOn) {
  fs::copy(fs::path(INKLING_SOURCE_DIR) / "tests/golden/runs_012299d", folder.path(),
           fs::copy_options::recursive);
  const std::string here = "cd " + path(".") + "; ";
  for (const auto& [name, at_30, at_40] :
       {std::tuple{"fables", 2.9008796215, 2.8784031529}, {"text", 2.9158532619, 2.9083005588}}) {
    const std::string of = std::string(" --out_dir ") + name;
    EXPECT_EQ(run_shell(here + "inkling info" + of).code, 0) << name;
    const Ran resumed =
        run_shell(here + "inkling train --init_from resume --max_iters 40 --threads 1 " +
                  "--final_eval whole" + of);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(resumed.err, "inkling: resume: " + std::string(name) +
                               "/ckpt is of an older version and does not say with which units and "
                               "threads it was trained; last bits may differ from here on\n");
    std::ifstream metrics(path(std::string(name) + "/metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(metrics, line);) {
      const Json object = Json::parse(line);
      if (object.contains("val_loss")) losses.push_back(object["val_loss"]);
    }
    ASSERT_EQ(losses.size(), 4u) << name;  // after 10, 20, 30 and 40 steps
    EXPECT_NEAR(losses[2], at_30, 1e-4) << name;
    EXPECT_NEAR(losses[3], at_40, 1e-4) << name;
  }
}

// All bytes that a run leaves, but for those that tell the time.
static std::string bits_of(const fs::path& run) {
  return read_file((run / "ckpt/model.safetensors").string()) +
         read_file((run / "ckpt/optimizer.safetensors").string());
}

// What decides bits belongs to the run: it goes on with the unit, threads and parts with which it
// began, whatever this machine, its environment and its number of threads would choose.
TEST_F(Runs, GoOnWithTheirOwnArithmetic) {
  const std::string bare = "unset OMP_NUM_THREADS INKLING_CPU_CAPABILITY; ";
  std::vector<std::string> units = {"default"};
  for (const char* unit : {"avx2", "avx512", "avx512_bf16", "amx", "neon"})
    if (run_shell("inkling info").out.find(unit + std::string(" ")) != std::string::npos)
      units.push_back(unit);
  for (const std::string& unit : units) {
    const std::string as_it_began =
                          "export OMP_NUM_THREADS=3 INKLING_CPU_CAPABILITY=" + unit + "; ",
                      sizes = "--batch_size 5 --overwrite --out_dir ";
    ASSERT_EQ(run_shell(as_it_began + train(sizes + path("whole"))).code, 0);
    const std::string bits = bits_of(path("whole"));
    for (const char* later : {"", "OMP_NUM_THREADS=1", "OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true"}) {
      if (unit != "default" && *later != 0) continue;
      ASSERT_EQ(run_shell(as_it_began + train("--max_iters 10 " + sizes + path("part"))).code, 0);
      const Ran resumed =
          run_shell(bare + later + " inkling train --init_from resume --max_iters " +
                    "20 --out_dir " + path("part"));
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_EQ(resumed.err, "") << unit << " " << later;
      EXPECT_TRUE(bits_of(path("part")) == bits) << unit << " " << later;
    }
  }
}

// Where they cannot go on like that, or the user wants otherwise, one line says what differs.
TEST_F(Runs, SayWhenTheirArithmeticChanges) {
  const std::string
      run = path("run"),
      resume = "unset INKLING_CPU_CAPABILITY; inkling train --init_from resume --out_dir " + run;
  ASSERT_EQ(
      run_shell("OMP_NUM_THREADS=2 INKLING_CPU_CAPABILITY=default " + train("--out_dir " + run))
          .code,
      0);
  const std::string known = run_program("info --out_dir " + run).out;
  EXPECT_NE(known.find("; threads 2, batch_parts 2\n"), std::string::npos) << known;
  const std::string differ = "inkling: resume: last bits will differ from here on: ";
  fs::copy(run, run + "_of_one", fs::copy_options::recursive);
  const std::string of_one = run_shell(resume + "_of_one --max_iters 21 --batch_size 1").err;
  EXPECT_EQ(of_one.find(differ + "batch_parts 1 (before: 2)\n"), 0U) << of_one;
  EXPECT_EQ(run_shell(resume + " --max_iters 21 --threads 3").err,
            differ + "threads 3 (before: 2)\n");
  const Json saved = Json::parse(read_file(run + "/ckpt/state.json")).at("state");
  EXPECT_EQ(saved.at("arithmetic").at("threads"), 3);
  const Json config = Json::parse(read_file(run + "/ckpt/config.json"));
  const auto expect = [&](const char* field, const Json& value, const std::string& says) {
    Json other = saved;
    other["arithmetic"][field] = value;
    write_checkpoint(run + "/ckpt", config, other);
    const Ran ran = run_shell(resume);
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
  };
  const Json none = {{"float32", "sse9"}, {"bfloat16", "sse9"}, {"float64", "sse9"}};
  expect("products", none, differ + "float32 products by ");
  expect("products", none, " (before: sse9)\n");
  // Only of the products that it computes: Muon's are in bf16.
  Json narrow = saved.at("arithmetic").at("products");
  narrow["bfloat16"] = "sse9";
  const Ran plain = [&] {
    Json other = saved;
    other["arithmetic"]["products"] = narrow;
    write_checkpoint(run + "/ckpt", config, other);
    return run_shell(resume);
  }();
  EXPECT_EQ(plain.err.find("bfloat16"), std::string::npos) << plain.err;
  for (const std::string more : {"--optimizer muon", "--dtype bfloat16"}) {
    const std::string of = path("narrow");
    ASSERT_EQ(run_shell(train(more + " --overwrite --out_dir " + of)).code, 0);
    Json state = Json::parse(read_file(of + "/ckpt/state.json")).at("state");
    const std::string unit = state["arithmetic"]["products"]["bfloat16"];
    state["arithmetic"]["products"]["bfloat16"] = "sse9";
    write_checkpoint(of + "/ckpt", Json::parse(read_file(of + "/ckpt/config.json")), state);
    EXPECT_EQ(run_shell("inkling train --init_from resume --out_dir " + of).err,
              differ + "bfloat16 products by " + unit + " (before: sse9)\n")
        << more;
  }
  expect("kernels", 1000, differ + "kernels of version ");
  expect("built_for", "a \u001b[31mloom", "(before: a \\x1b[31mloom)\n");
  expect("device", "NVIDIA H100", differ + "device cpu (before: NVIDIA H100)\n");
  expect("threads", 0, "state.json: arithmetic: expected threads and batch_parts of 1 or more");
  expect("products", 3, "state.json: arithmetic: products: expected an object, got 3");
}

TEST_F(Runs, NothingThatIsNotFiniteIsSaved) {
  const std::string out = path("out");
  ASSERT_EQ(run_shell(train("--out_dir " + out)).code, 0);
  const std::string state = read_file(out + "/ckpt/state.json");
  expect_error(train("--init_from resume --max_iters 400 --learning_rate 1000 --grad_clip 0 "
                     "--lr_decay_iters 400 --optimizer adamw --log_interval 200 "
                     "--eval_interval 300 --weight_decay 1000 --out_dir " +
                     out),
               1, "not finite");
  EXPECT_EQ(read_file(out + "/ckpt/state.json"), state);
}

TEST_F(Runs, OutputThatCannotBeWrittenIsSaid) {
  ASSERT_EQ(run_shell(train("--final_eval whole --out_dir " + path("out"))).code, 0);
  for (const std::string command : {"info", "eval", "sample --max_new_tokens 5"}) {
    const std::string line = "inkling " + command + " --out_dir " + path("out");
    expect_error(line + " >/dev/full", 1, "standard output: cannot write");
    EXPECT_EQ(run_shell(line + " | true").err, "") << command;
    // Also where the program starts over (set_wait_policy).
    for (const char* environment :
         {"", "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u KMP_BLOCKTIME "})
      EXPECT_EQ(run_shell(std::string(environment) + "\"$INKLING_PROGRAM\" " + command +
                          " --out_dir " + path("out") + " >&-")
                    .code,
                0)
          << environment << command;
  }
  EXPECT_EQ(run_shell(train("--final_eval whole --out_dir " + path("closed") + " >&-")).code, 0);
  EXPECT_EQ(lines_in("closed/metrics.jsonl"), 7);  // and nothing else
}

TEST_F(Runs, FilesMayNotBeLargerThanTheLimit) {
  expect_error("ulimit -f 8; " + train("--n_embd 64 --out_dir " + path("out")), 1,
               "File too large");
  EXPECT_FALSE(fs::exists(path("out/ckpt")));
}

TEST_F(Runs, MemoryThatCannotBeHadIsAnError) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
  // For OpenBLAS, which retries for ever, and for two threads; one needs less than this.
  for (const std::string limit : {"200000", "400000"}) {
    expect_error("export INKLING_CPU_CAPABILITY=default; ulimit -v " + limit + "; " +
                     train("--threads 2 --out_dir " + path("out")),
                 1, "ulimit -v");
  }
  // There is room for the weights, and none for their gradients: nobody begins a pass of these.
  expect_error("ulimit -v 1400000; " +
                   train("--threads 2 --n_layer 12 --n_embd 1024 --out_dir " + path("out")),
               1, "this run needs about 2.4 GB");
  // Of a text there is room for the file, and none for its ids. It takes no room on the disk.
  std::ofstream(path("long.txt")) << "a";
  fs::resize_file(path("long.txt"), 700'000'000);
  expect_error(
      "export INKLING_CPU_CAPABILITY=default OMP_NUM_THREADS=1; ulimit -v 1300000; " +
          train("--tokenizer byte --data " + path("long.txt") + " --out_dir " + path("out")),
      1, "--data, as token ids, needs about 1.4 GB of memory, and this process can have 1.3");
#endif
  expect_error(train("--n_layer 1000 --n_embd 65536 --out_dir " + path("out")), 1,
               "this model needs about ");
  // Nobody waits for a step of these.
  for (const std::string model : {"gpt", "llama"})
    for (const std::string sizes :
         {"--batch_size 1000000 --block_size 1024", "--batch_size 1000 --block_size 1000000"})
      expect_error(train(sizes + " --model " + model + " --out_dir " + path("out")), 1,
                   "this run needs about ");
  EXPECT_FALSE(fs::exists(path("out")));
}

}  // namespace
}  // namespace ink
