// Checkpoints: what is saved comes back, whatever happens to the process or the files.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/io/log.h"
#include "autograd/more_ops.h"
#include "data/file.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/trainer.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

// A checkpoint that is recognised by its number, wherever one looks.
Checkpoint numbered(int number) {
  return {.config = {{"n_layer", 4}, {"data", "a\"b"}},
          .state = {{"number", number}, {"best_loss", 0.1 * number}, {"generator", "00ff"}},
          .model = {{"wte.weight", full({5, 3}, number)}, {"bias", full({}, number, f64)}},
          .optimizer = {{"exp_avg.bias", full({2}, number)}, {"step", full({}, number, i64)}}};
}

int number_of(const LoadedCheckpoint& loaded) {
  const int number = loaded.state.at("number");
  const Checkpoint expected = numbered(number);
  EXPECT_EQ(loaded.config, expected.config);
  EXPECT_EQ(loaded.state, expected.state);
  const auto expect_same = [](const NamedTensors& got, const NamedTensors& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    const std::map<std::string, Tensor> by_name(got.begin(), got.end());
    for (const auto& [name, x] : wanted) {
      const Tensor& y = by_name.at(name);
      EXPECT_EQ(y.dtype(), x.dtype());
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(y.tolist(), x.tolist());
    }
  };
  expect_same(loaded.model, expected.model);
  expect_same(loaded.optimizer, expected.optimizer);
  return number;
}

struct CheckpointTest : testing::Test {
  // A save waits for the disk a dozen times; memory is there at once.
  static void SetUpTestSuite() {
    if (fs::exists("/dev/shm")) setenv("TMPDIR", "/dev/shm", 0);
  }
  CheckpointTest() {
    set_log_callback([this](const std::string& message) { messages.push_back(message); });
  }
  ~CheckpointTest() override { set_log_callback({}); }

  void save(int number) { save_checkpoint(out.path(), "ckpt", numbered(number)); }
  int load() { return number_of(load_checkpoint(out.path(), "ckpt")); }
  // An error or message, with the path of the temporary folder as OUT.
  std::string plain(std::string text) const {
    const std::string path = out.path().string();
    for (size_t at; (at = text.find(path)) != std::string::npos;)
      text.replace(at, path.size(), "OUT");
    return text;
  }
  std::string load_error() {
    return plain(error_of([&] { load_checkpoint(out.path(), "ckpt"); }));
  }
  void flip_byte(const std::string& file, size_t at) {
    std::string bytes = read_file(out / file);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
    out.write(file, bytes);
  }

  TempFolder out;
  std::vector<std::string> messages;
};

TEST_F(CheckpointTest, ComesBack) {
  EXPECT_FALSE(checkpoint_exists(out.path(), "ckpt"));
  save(1);
  EXPECT_TRUE(checkpoint_exists(out.path(), "ckpt"));
  EXPECT_FALSE(fs::exists(out / "ckpt.tmp"));
  const LoadedCheckpoint loaded = load_checkpoint(out.path(), "ckpt");
  EXPECT_EQ(number_of(loaded), 1);
  EXPECT_EQ(loaded.folder, out / "ckpt");
  save_checkpoint(out.path(), "best", numbered(7));
  save(2);
  save(3);
  EXPECT_EQ(load(), 3);
  EXPECT_EQ(number_of(load_checkpoint(out.path(), "ckpt.prev")), 2);
  EXPECT_EQ(number_of(load_checkpoint(out.path(), "best")), 7);
  EXPECT_TRUE(messages.empty());
}

// A run may have an average, and lose it; a damaged one is a damaged checkpoint.
TEST_F(CheckpointTest, AnAverageComesBack) {
  Checkpoint checkpoint = numbered(1);
  checkpoint.average = {{"bias", full({2}, 0.5)}};
  save_checkpoint(out.path(), "ckpt", checkpoint);
  for (const Parts parts : {Parts::all, Parts::model}) {
    const LoadedCheckpoint loaded = load_checkpoint(out.path(), "ckpt", parts);
    ASSERT_EQ(loaded.average.size(), 1u);
    EXPECT_EQ(loaded.average[0].second.tolist(), (std::vector<double>{0.5, 0.5}));
  }
  save_checkpoint(out.path(), "ckpt", checkpoint);
  flip_byte("ckpt/ema.safetensors", 70);
  EXPECT_EQ(load(), 1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("ckpt/ema.safetensors: expected"), std::string::npos) << messages[0];
  fs::remove(out / "ckpt/ema.safetensors");
  EXPECT_EQ(load(), 1);
  save(2);
  EXPECT_FALSE(fs::exists(out / "ckpt/ema.safetensors"));
  EXPECT_TRUE(load_checkpoint(out.path(), "ckpt").average.empty());
}

// Nothing that is read is a mixture of two, and nothing is called damaged.
TEST_F(CheckpointTest, IsReadWhileAnotherProcessSaves) {
  constexpr int kSaves = 200;
  save(1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      for (int number = 2; number <= kSaves; ++number) save(number);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  for (int last = 1; last < kSaves;) {
    const bool is_over = waitpid(child, nullptr, WNOHANG) != 0;
    const int number = load();
    ASSERT_GE(number, last);
    ASSERT_TRUE(!is_over || number == kSaves) << "the other process failed";
    last = number;
  }
  for (const std::string& message : messages)  // it looked between two renames
    EXPECT_NE(message.find("is used in place of"), std::string::npos) << message;
  for (const std::string& message : messages)
    EXPECT_EQ(message.find("damaged"), std::string::npos) << message;
}

TEST_F(CheckpointTest, SameContentsSameBytes) {
  save_checkpoint(out / "a" / "deeper", "ckpt", numbered(1));
  save_checkpoint(out / "b", "ckpt", numbered(1));
  int files = 0;
  for (const auto& entry : fs::directory_iterator(out / "b" / "ckpt")) {
    EXPECT_EQ(read_file(entry.path()),
              read_file(out / "a" / "deeper" / "ckpt" / entry.path().filename()));
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST_F(CheckpointTest, SavesWhatJsonCannotHold) {
  Checkpoint odd = numbered(1);
  odd.config["data"] = "latin-1: \xe9";
  odd.state["best_loss"] = INFINITY;
  save_checkpoint(out.path(), "ckpt", odd);
  const LoadedCheckpoint loaded = load_checkpoint(out.path(), "ckpt");
  EXPECT_EQ(loaded.config.at("data"), "latin-1: \xef\xbf\xbd");
  EXPECT_TRUE(loaded.state.at("best_loss").is_null());
}

// Every state that a save of number 3 after 1 and 2 passes through: the newest whole one is loaded,
// and the next save works.
TEST_F(CheckpointTest, SurvivesAnInterruptionAnywhere) {
  const auto expect_then_save = [&](int expected) {
    EXPECT_EQ(load(), expected);
    save(4);
    EXPECT_EQ(load(), 4);
    fs::remove_all(out.path());
    save(1);
    save(2);
  };
  const auto write_all_of_3 = [&] {
    save_checkpoint(out / "other", "ckpt", numbered(3));
    fs::rename(out / "other" / "ckpt", out / "ckpt.tmp");
  };
  save(1);
  save(2);
  fs::create_directory(out / "ckpt.tmp");  // nothing in it yet
  expect_then_save(2);
  for (const std::string last :
       {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    write_all_of_3();  // half of a file
    fs::resize_file(out / "ckpt.tmp" / last, fs::file_size(out / "ckpt.tmp" / last) / 2);
    expect_then_save(2);
  }
  EXPECT_TRUE(messages.empty());
  write_all_of_3();
  expect_then_save(3);
  write_all_of_3();  // the old one half removed
  fs::remove(out / "ckpt.prev" / "model.safetensors");
  expect_then_save(3);
  write_all_of_3();  // and all
  fs::remove_all(out / "ckpt.prev");
  expect_then_save(3);
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(plain(messages[0]),
            "load_checkpoint: OUT/ckpt.tmp is used in place of OUT/ckpt, which is older");
  messages.clear();
  write_all_of_3();  // between the two renames
  fs::remove_all(out / "ckpt.prev");
  fs::rename(out / "ckpt", out / "ckpt.prev");
  expect_then_save(3);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(plain(messages[0]),
            "load_checkpoint: OUT/ckpt.tmp is used in place of OUT/ckpt, which is missing");
  fs::remove_all(out / "ckpt");  // the folder lost
  expect_then_save(1);
}

// A process that saves without end, and tells of each save that has returned, is killed at moments
// that nobody chooses. However long all this takes, no save that it told of is lost.
TEST_F(CheckpointTest, SurvivesKills) {
  int newest = 0;
  for (int round = 0; round < 12; ++round) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int number = newest + 1;; ++number) {
          save(number);
          if (write(told[1], &number, sizeof(number)) != sizeof(number)) _exit(1);
        }
      } catch (...) {
        _exit(1);
      }
    }
    close(told[1]);
    const auto hear = [&](int& number) {  // false when it is dead and all is heard
      return read(told[0], &number, sizeof(number)) == sizeof(number);
    };
    int saved = newest;
    while (saved < newest + 2) ASSERT_TRUE(hear(saved)) << "it ended by itself";
    const std::string work(size_t{1} << 17, 'x');  // takes us some way into the next save, or saves
    for (int i = 0; i < round; ++i) EXPECT_NE(crc64(std::as_bytes(std::span(work))), 0u);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    while (hear(saved)) {
    }
    close(told[0]);
    newest = load();
    EXPECT_GE(newest, saved);
    EXPECT_LE(newest, saved + 1) << "of a save that had not begun";
  }
}

TEST_F(CheckpointTest, FallsBackFromAnyDamage) {
  for (const std::string file :
       {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string path = "ckpt/" + file;
    save(1);
    save(2);
    const size_t size = fs::file_size(out / path);
    for (const size_t at : {size_t{10}, size / 2, size - 3}) {
      save(1);
      save(2);
      flip_byte(path, at);
      EXPECT_EQ(load(), 1) << file << " byte " << at;
    }
    save(1);
    save(2);
    fs::resize_file(out / path, size - 1 - (file.ends_with("json")));  // more than the last newline
    EXPECT_EQ(load(), 1) << file << " cut short";
    save(2);
    save(3);
    fs::remove(out / path);
    EXPECT_EQ(load(), 2) << file << " missing";
    save(3);
    save(4);
    out.write(path, "");
    EXPECT_EQ(load(), 3) << file << " empty";
  }
  EXPECT_EQ(messages.size(), 24u);
}

// Whoever wants the model alone does not need the optimizer's file; all others do, as before.
TEST_F(CheckpointTest, TheModelAloneNeedsNoOptimizer) {
  save(1);
  const std::string file = "ckpt/optimizer.safetensors";
  const auto expect_model = [&](const std::string& state_of_file) {
    const LoadedCheckpoint loaded = load_checkpoint(out.path(), "ckpt", Parts::model);
    EXPECT_EQ(loaded.state.at("number"), 1) << state_of_file;
    EXPECT_EQ(loaded.model.at(0).second.tolist(), numbered(1).model.at(0).second.tolist());
    EXPECT_TRUE(loaded.optimizer.empty()) << state_of_file;
  };
  expect_model("whole");
  flip_byte(file, 100);
  expect_model("damaged");
  EXPECT_NE(load_error().find("OUT/" + file + ": expected"), std::string::npos) << load_error();
  fs::remove(out / file);
  expect_model("missing");
  EXPECT_NE(load_error().find("OUT/" + file + ": "), std::string::npos) << load_error();
  EXPECT_TRUE(messages.empty());
  flip_byte("ckpt/model.safetensors", 100);
  EXPECT_NE(error_of([&] {
              load_checkpoint(out.path(), "ckpt", Parts::model);
            }).find("model.safetensors: expected"),
            std::string::npos);
}

TEST_F(CheckpointTest, SaysWhatItFellBackFrom) {
  save(1);
  save(2);
  flip_byte("ckpt/config.json", 10);
  EXPECT_EQ(load(), 1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(plain(messages[0]),
            "load_checkpoint: OUT/ckpt.prev is used in place of OUT/ckpt\n"
            "  OUT/ckpt/config.json: expected 37 bytes with checksum \"6ae8d37c9eb40795\", "
            "got 37 with \"e8b40784e6eee53f\"; the file is damaged");
}

// Killed between the two renames of a save, and once more in the next one: NAME.tmp is the only
// whole checkpoint then, and is put in its place before anything is written.
TEST_F(CheckpointTest, ASaveFinishesTheOneBefore) {
  save(1);
  save(2);
  std::filesystem::rename(out / "ckpt", out / "ckpt.tmp");
  std::filesystem::remove_all(out / "ckpt.prev");
  EXPECT_EQ(load(), 2);
  save(3);
  EXPECT_EQ(load(), 3);
  EXPECT_EQ(number_of(load_checkpoint(out.path(), "ckpt.prev")), 2);
}

// A power cut may leave state.json whole and cut the files that it names.
TEST_F(CheckpointTest, ASaveFinishesNoneThatIsCut) {
  save(1);
  save(2);
  std::filesystem::rename(out / "ckpt", out / "ckpt.tmp");
  std::filesystem::resize_file(out / "ckpt.tmp/model.safetensors", 10);
  finish_save(out.path(), "ckpt");
  EXPECT_TRUE(fs::exists(out / "ckpt.tmp"));
  EXPECT_EQ(load(), 1);
}

// Jupyter and the Finder leave hidden files, and people notes: each save moves them along.
TEST_F(CheckpointTest, KeepsWhatItDidNotWrite) {
  save(1);
  save(2);
  out.write("ckpt/notes.txt", "mine");
  out.write("ckpt/.DS_Store", "of the Finder");
  out.write("ckpt.prev/notes.txt", "older");
  fs::create_directory(out / "ckpt/.ipynb_checkpoints");
  for (const int number : {3, 4, 5}) {
    save(number);
    EXPECT_EQ(load(), number);
    EXPECT_EQ(read_file(out / "ckpt/.DS_Store"), "of the Finder");
    EXPECT_EQ(read_file(out / "ckpt/notes.txt") + read_file(out / "ckpt/notes.txt.1"), "oldermine");
    EXPECT_TRUE(fs::is_directory(out / "ckpt/.ipynb_checkpoints"));
    EXPECT_FALSE(fs::exists(out / "ckpt.prev/.DS_Store"));
  }
  EXPECT_EQ(plain(error_of([&] { delete_checkpoint(out.path(), "ckpt"); })),
            "OUT/ckpt/notes.txt: is in the checkpoint that would be deleted, and not of it; move "
            "it away");
  EXPECT_EQ(load(), 5);
  for (const char* note : {"notes.txt", "notes.txt.1"}) fs::remove(out / "ckpt" / note);
  delete_checkpoint(out.path(), "ckpt");
  EXPECT_EQ(read_file(out / "ckpt/.DS_Store"), "of the Finder");
  save(6);  // there is no state.json that tells that the folder is ours
  EXPECT_EQ(load(), 6);
  EXPECT_EQ(read_file(out / "ckpt/.DS_Store"), "of the Finder");
}

TEST_F(CheckpointTest, ReplacesNoOtherFolder) {
  fs::create_directory(out / "ckpt");
  out.write("ckpt/state.json", "{\"files\": 3}");
  out.write("ckpt/notes.txt", "mine");
  EXPECT_EQ(plain(error_of([&] { save(2); })),
            "OUT/ckpt/notes.txt: is not of a checkpoint of inkling, and a save would replace it; "
            "move it away, or choose another out_dir");
  EXPECT_EQ(read_file(out / "ckpt/notes.txt"), "mine");
}

// Hugging Face's folders have files of the same names.
TEST_F(CheckpointTest, ReplacesNoWeightsOfOtherPrograms) {
  for (const std::string name : {"ckpt", "ckpt.prev"}) {
    fs::create_directories(out / name);
    out.write(name + "/config.json", "{\"architectures\": [\"GPT2LMHeadModel\"]}");
    out.write(name + "/model.safetensors", "weights");
    const auto expect_kept = [&] {
      const std::string error = plain(error_of([&] { save(1); }));
      EXPECT_TRUE(error.starts_with("OUT/" + name + ": is not a checkpoint of inkling")) << error;
      EXPECT_EQ(plain(error_of([&] { delete_checkpoint(out.path(), "ckpt"); })), error);
      EXPECT_EQ(read_file(out / name / "model.safetensors"), "weights");
    };
    expect_kept();
    out.write(name + "/state.json", "{\"epoch\": 3}");
    expect_kept();
    fs::remove_all(out / name);
  }
}

// A removal that was cut short leaves state.json, whatever else is gone.
TEST_F(CheckpointTest, WhatIsLeftOfACheckpointIsReplaced) {
  save(1);
  save(2);
  for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors"}) {
    fs::remove(out / "ckpt.prev" / file);
    save(2);
  }
  delete_checkpoint(out.path(), "ckpt");
  EXPECT_TRUE(fs::is_empty(out.path()));
  fs::create_directory(out / "ckpt.tmp");
  out.write("ckpt.tmp/config.json", "{}");  // of a save that was killed at its second file
  out.write("ckpt.tmp/model.safetensors.tmp", "");
  save(3);
  EXPECT_EQ(load(), 3);
  out.write("ckpt/model.safetensors.tmp", "");
  save(4);
  EXPECT_FALSE(fs::exists(out / "ckpt/model.safetensors.tmp"));
}

TEST_F(CheckpointTest, ExplainsWhyNothingLoads) {
  EXPECT_EQ(load_error(),
            "load_checkpoint: OUT/ckpt: there is no such checkpoint; name another --out_dir, or "
            "train one");
  save(1);
  EXPECT_EQ(error_of([&] { load_checkpoint(out / "ckpt", "ckpt"); }),
            "load_checkpoint: " + (out / "ckpt").string() +
                " is a checkpoint itself; name the folder that it is in, or no checkpoint in it");
  save(2);
  out.write("ckpt/state.json", "{\"format\": \"something else\"}");
  fs::resize_file(out / "ckpt.prev/state.json", 100);
  EXPECT_EQ(load_error(),
            "load_checkpoint: there is no whole checkpoint:\n"
            "  OUT/ckpt/state.json: expected the format \"inkling checkpoint 1\", got \"something "
            "else\"; it is of another program or version\n"
            "  OUT/ckpt.prev/state.json: invalid JSON at byte 101\n"
            "Put back a copy of the folder, or start anew in another out_dir.");
}

TEST(Crc64, HasItsCheckValue) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc64(bytes), 0x995dc9bbdf1939fau);
  EXPECT_EQ(crc64(bytes.subspan(4), crc64(bytes.first(4))), crc64(bytes));
  const std::string longer(1000, 'x');
  const auto all = std::as_bytes(std::span(longer));
  EXPECT_EQ(crc64(all.subspan(333), crc64(all.first(333))), crc64(all));
  EXPECT_EQ(crc64({}), 0u);
}

// ---- new runs from old weights

// --init_from FOLDER: the weights, the tokenizer and the model of that run, and nothing else of it.
// The folder, or the file itself, that somebody downloaded: every command that wants a run says so.
TEST(Weights, OfOtherProgramsAreToldAsSuch) {
  const TempFolder folder;
  for (const std::string name :
       {"model.safetensors", "ckpt.pt", "gpt2_124M.bin", "pytorch_model.bin", "a.gguf"}) {
    const std::string hf = folder / name / "hf", file = hf + "/" + name;
    fs::create_directories(hf);
    folder.write(name + "/hf/config.json", "{\"model_type\": \"gpt2\"}");
    folder.write(name + "/hf/" + name, "weights");
    const std::string told = file + " holds weights of another program, and only those of";
    const auto expect_told = [&](const std::string& words, int code) {
      const Ran ran = run_program(words);
      EXPECT_EQ(ran.code, code) << words;
      EXPECT_NE(ran.err.find(told), std::string::npos) << words << "\n" << ran.err;
    };
    expect_told("sample --out_dir " + hf, 1);
    expect_told("train --init_from " + hf + " --out_dir " + hf + "/new", 2);
    expect_told("train --init_from resume --out_dir " + hf, 1);
    EXPECT_FALSE(fs::exists(hf + "/new"));
    if (name != "ckpt.pt") continue;
    for (const std::string command : {"eval", "info", "look", "draw"})
      expect_told(command + " --out_dir " + hf, 1);
    expect_told("sample --out_dir " + file, 2);
    expect_told("train --init_from " + file + " --out_dir " + hf + "/new", 2);
    fs::rename(hf, folder / name / "ckpt");
    EXPECT_NE(
        run_program("sample --out_dir " + (folder / name).string()).err.find(" holds weights"),
        std::string::npos);
  }
}

TEST(InitFrom, ANewRunBeginsWithTheWeightsOfAnother) {
  const TempFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  std::ofstream(folder / "a.txt") << std::string(2000, 'x') + "some text; and more of it.\n";
  std::ofstream(folder / "b.txt") << std::string(1500, 'o') + "some text;\n";
  std::ofstream(folder / "c.txt") << std::string(1500, 'o') + "é and Z\n";
  const std::string common =
      "train --eval_iters 1 --sample_interval 0 --report off --threads 1 --batch_size 2 ";
  const auto train = [&](const std::string& options) { return run_program(common + options); };
  const auto weights = [&](const char* run) {
    return read_file((folder / run / "ckpt/model.safetensors").string());
  };
  ASSERT_EQ(train("--n_layer 1 --n_head 2 --n_embd 16 --block_size 8 --bias --data " +
                  path("a.txt") + " --max_iters 9 --out_dir " + path("a"))
                .code,
            0);
  fs::remove_all(folder / "a/best");
  const std::string from = "--init_from " + path("a") + " --data " + path("b.txt") + " ";
  const Ran started = train(from + "--max_iters 0 --out_dir " + path("b"));
  EXPECT_EQ(started.code, 0) << started.err;
  EXPECT_TRUE(weights("b") == weights("a"));
  EXPECT_NE(started.out.find("weights  those of " + path("a") + "/ckpt after step 9"),
            std::string::npos)
      << started.out;
  // A checkpoint's own folder will do, and so does an option that agrees.
  EXPECT_EQ(train("--init_from " + path("a") + "/ckpt/ --n_embd=16 --data " + path("b.txt") +
                  " --max_iters 0 --out_dir " + path("c"))
                .code,
            0);
  EXPECT_TRUE(weights("c") == weights("a"));
  // So does the run's own tokenizer, which is named by the run elsewhere.
  const std::string own = "--max_iters 0 --out_dir " + path("d") + " --tokenizer " + path("a");
  EXPECT_EQ(train(from + own).code, 0);
  EXPECT_EQ(train("--init_from resume " + own.substr(0, own.size() - 1) + "d").code, 0);

  // Six steps at once, or with an interruption, after which the other run is no longer needed.
  const std::string more = " --lr_decay_iters 6 --max_iters ";
  ASSERT_EQ(train(from + "--dropout 0.1 --out_dir " + path("straight") + more + "6").code, 0);
  ASSERT_EQ(train(from + "--dropout 0.1 --out_dir " + path("halves") + more + "3").code, 0);
  fs::rename(folder / "a", folder / "moved");
  const Ran resumed = train("--init_from resume --out_dir " + path("halves") + more + "6");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  fs::rename(folder / "moved", folder / "a");
  EXPECT_TRUE(weights("halves") == weights("straight"));
  EXPECT_FALSE(weights("straight") == weights("a"));
  EXPECT_EQ(run_program("sample --max_new_tokens 3 --start some --out_dir " + path("halves")).code,
            0);

  const auto expect_error = [&](const std::string& options, int code, const std::string& text) {
    const Ran ran = train(options + " --out_dir " + path("none"));
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << options << "\n" << ran.err;
    EXPECT_FALSE(fs::exists(folder / "none"));
  };
  expect_error(from + "--n_layer 2", 2, "--n_layer is 2, but " + path("a") + "/ckpt has 1; leave");
  expect_error(from + "--bias=false", 2, "--bias is false");
  expect_error(from + "--tokenizer byte", 2, "--tokenizer is \"byte\"");
  expect_error(
      "--init_from " + path("a") + " --data " + path("c.txt"), 1,
      "lacks characters of --data: 'Z', '\u00e9'; take them out of the text, or train from");
  expect_error("--init_from " + path("a"), 1, "name a text with --data");
  expect_error("--init_from " + path("nowhere"), 2, "there is no run in " + path("nowhere"));
  const Ran same = train("--init_from " + path("a") + " --out_dir " + path("a"));
  EXPECT_EQ(same.code, 2);
  EXPECT_NE(same.err.find("the new run needs a folder of its own"), std::string::npos) << same.err;
  EXPECT_EQ(train("--print_config --init_from " + path("a")).out.find("n_embd = 128"),
            std::string::npos);
}

// A copy of a checkpoint is loaded by its own name, as one within a run is.
TEST(InitFrom, ACheckpointIsNamedItself) {
  const TempFolder folder;
  const std::string run = (folder / "run").string(), copy = (folder / "copy").string();
  const std::string sizes = "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 8 ";
  ASSERT_EQ(run_program(sizes + "--max_iters 0 --sample_interval 0 --out_dir " + run).code, 0);
  fs::copy(run + "/ckpt", copy);
  const auto expect_told = [&](const std::string& words, int code, const std::string& told) {
    const Ran ran = run_program(words);
    EXPECT_EQ(ran.code, code) << words << "\n" << ran.err;
    EXPECT_NE((ran.out + ran.err).find(told), std::string::npos) << words << ran.out << ran.err;
  };
  for (const std::string& itself : {copy, copy + "/", run + "/ckpt"}) {
    expect_told("info --out_dir " + itself, 0, "checkpoint  ");
    expect_told("sample --max_new_tokens 2 --out_dir " + itself, 0, "");
    expect_told("look --out_dir " + itself + " --out " + itself + "/state.json", 2,
                "the run keeps a file");
  }
  EXPECT_EQ(run_shell("cd " + copy + "; inkling info --out_dir .").code, 0);
  expect_told("sample --checkpoint ckpt --out_dir " + copy, 1, "or no checkpoint in it");
  expect_told("train --init_from resume --out_dir " + copy, 1, "move it to FOLDER/ckpt");
  const std::string file = copy + "/model.safetensors",
                    told = file + " is a file of a checkpoint; name its folder, " + copy;
  expect_told("sample --out_dir " + file, 2, told);
  expect_told("train --init_from " + file + " --out_dir " + run + "2", 2, told);
}

TEST(InitFrom, TheTrainerTakesTheModelOfARun) {
  const TempFolder folder;
  TrainConfig config;
  config.n_layer = 1;
  config.n_head = 2;
  config.n_embd = 16;
  config.block_size = 8;
  config.threads = 1;
  config.out_dir = (folder / "first").string();
  Trainer first(config);
  first.step();
  first.save("ckpt");
  config.out_dir = (folder / "second").string();
  config.init_from = (folder / "first").string();
  config.n_layer += 1;  // the model is that run's
  config.seed = 5;
  Trainer second(config);
  EXPECT_EQ(second.steps_done(), 0);
  EXPECT_EQ(second.config().n_layer, config.n_layer - 1);
  const auto expected = first.model().state_dict(), got = second.model().state_dict();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(got[i].second.tolist(), expected[i].second.tolist()) << got[i].first;
  for (const auto& [name, moment] : second.optimizer().state())
    EXPECT_EQ(norm(to(moment, f64)).item(), 0) << name;
}

}  // namespace
}  // namespace ink
