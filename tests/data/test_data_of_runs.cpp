// What a person gives to runs as data, in the program: what is no such data is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "data/data_files.h"
#include "data/prepare.h"
#include "tests/support/error_of.h"
#include "tests/support/run_folder.h"
#include "train/make_dataset.h"
#include "train/saved_run.h"

namespace ink {
namespace {

using DataOfRuns = RunFolder;

// A clone of nanoGPT, before anybody ran prepare.py.
TEST_F(DataOfRuns, AProgramThatMakesTheDataIsNoData) {
  fs::create_directories(path("data/openwebtext"));
  std::ofstream(path("data/openwebtext/prepare.py")) << std::string(2000, '#') + "\nimport numpy\n";
  std::ofstream(path("data/openwebtext/readme.md")) << std::string(2000, 'x') + "\n";
  const std::string here = "cd " + path(".") + "; ";
  expect_error(here + train("--dataset openwebtext"), 1,
               "data/openwebtext/prepare.py is a program; if it makes the data, run it first");
  fs::remove(path("data/openwebtext/prepare.py"));
  expect_error(here + train("--dataset openwebtext"), 1, "found readme.md");
  EXPECT_FALSE(fs::exists(path("out")));
}

// Ids of one vocabulary say nothing to a model of another.
// What validates tells nothing of itself: a vocabulary is learned from what is trained on.
TEST_F(DataOfRuns, AVocabularyIsLearnedFromWhatIsTrainedOn) {
  const auto repeated = [](const std::string& word, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += word;
    return text;
  };
  TrainConfig config;
  config.tokenizer = "bpe:400";
  config.data = {folder.write("a.txt", repeated("ab ", 50)).string(),
                 folder.write("b.txt", repeated("cd ", 50) + repeated("ef ", 100)).string()};
  config.val_fraction = 0.5;  // all of "ef "
  const auto tokens_of = [&](const char* word) {
    return make_dataset(config)->tokenizer().encode(word).size();
  };
  EXPECT_EQ(tokens_of("cd"), 1u);
  EXPECT_EQ(tokens_of("ef"), 2u);
  config.val_data = {folder.write("c.txt", "a text of its own").string()};
  EXPECT_EQ(tokens_of("ef"), 1u) << "where another file validates, all is trained on";
}

TEST_F(DataOfRuns, AFingerprintIsOfAllFiles) {
  TrainConfig config;
  config.data = {folder.write("a.txt", "one").string(), folder.write("b.txt", "three").string()};
  const std::string before = fingerprint_of(config);
  EXPECT_EQ(before.rfind("8 bytes with CRC-64 ", 0), 0u) << before;
  folder.write("a.txt", "two");
  EXPECT_NE(fingerprint_of(config), before);
}

// Which files the words of a command stand for.
TEST_F(DataOfRuns, WordsStandForFiles) {
  for (const char* name : {"ids/train.bin", "ids/val.bin", "own.bin", "two/a_train.bin",
                           "two/b_train.bin", "texts/train.txt", "texts/val.txt", "one/a.txt"}) {
    fs::create_directories(fs::path(path(name)).parent_path());
    folder.write(name, "some");
  }
  using Paths = std::vector<fs::path>;
  EXPECT_EQ(data_files({path("own.bin")}, {path("ids")}).val, Paths{path("ids/val.bin")});
  EXPECT_EQ(data_files({path("ids")}, {}).val, Paths{path("ids/val.bin")});
  EXPECT_NE(error_of([&] { data_files({path("two")}, {}); }).find("one to validate on, got 2 and"),
            std::string::npos);
  EXPECT_EQ(data_files({path("texts")}, {}).val, Paths{path("texts/val.txt")});
  folder.write("texts/notes.txt", "some");
  EXPECT_NE(error_of([&] { data_files({path("texts")}, {}); }).find("and notes.txt of none"),
            std::string::npos);
  folder.write("one/.a.txt", "hidden");
  const DataFiles one = data_files({path("texts/train.txt")}, {path("one")});
  EXPECT_EQ(one.val, Paths{path("one/a.txt")});
  EXPECT_NE(one.note.find("one: 1 text file, a.txt"), std::string::npos) << one.note;
  EXPECT_TRUE(parts_of({"train.txt", "train_test.txt"}).train.empty()) << "one name of two parts";
}

TEST_F(DataOfRuns, PreparedDataMayValidateOnAnotherFolder) {
  TrainConfig config;
  for (const char* part : {"train", "val"}) {
    PrepareOptions options;
    options.tokenizer = std::make_shared<ByteTokenizer>();
    options.out_dir = path(part);
    prepare({folder.write(std::string(part) + ".txt", std::string(40, part[0]))}, options);
  }
  config.data = {path("train")};
  config.val_data = {path("val")};
  const auto dataset = make_dataset(config);
  EXPECT_EQ(dataset->val_window_batch(0, 1, 39).x, std::vector<int64_t>(39, 'v'));
  EXPECT_EQ(dataset->train_batch(0, 0, 1, 39).x, std::vector<int64_t>(39, 't'));
}

TEST_F(DataOfRuns, ATaskOfAnotherVocabularyIsRefused) {
  const std::string text = path("a.txt"), out = " --out_dir " + path("out"),
                    other = "is not the one of 2 (char) that the model was trained on";
  std::ofstream(text) << std::string(2000, 'a') + std::string(2000, 'b');
  ASSERT_EQ(run_shell(train("--data " + text + out)).code, 0);
  expect_error(
      "inkling eval --data task:addition" + out, 1,
      "inkling eval: the vocabulary of task:addition, of 13 (char), is not the one of 2 (char) ");
  expect_error("inkling eval --data task:addition" + out, 1, other);
  for (const char* data : {"", " --data task:sorting"})
    expect_error(train("--init_from " + path("out") + data + " --out_dir " + path("new")), 1,
                 other);
  ASSERT_EQ(run_shell(train("--data task:copy --out_dir " + path("copy"))).code, 0);
  const Ran same = run_shell("inkling eval --data task:reverse --out_dir " + path("copy"));
  EXPECT_EQ(same.code, 0) << same.err;
}

// As nanoGPT's prepare.py writes characters: ids in train.bin and val.bin, {"stoi": ...} in
// meta.pkl.
static void write_characters(const std::string& folder, const std::string& characters) {
  fs::create_directories(folder);
  const auto open = [&](const char* name) {
    return std::ofstream(folder + "/" + name, std::ios::binary);
  };
  for (const char* name : {"train.bin", "val.bin"}) {
    std::ofstream ids = open(name);
    for (int i = 0; i < 1000; ++i)
      ids << static_cast<char>(i * i % static_cast<int>(characters.size())) << '\0';
  }
  std::ofstream meta = open("meta.pkl");
  meta << "\x80\x04}\x8c\4stoi}(";
  for (size_t i = 0; i < characters.size(); ++i)
    meta << "\x8c\1" << characters[i] << 'K' << static_cast<char>(i);
  meta << "us.";
}

TEST_F(DataOfRuns, IdsOfOtherCharactersAreRefused) {
  write_characters(path("abc"), "abc");
  write_characters(path("same"), "abc");
  write_characters(path("bcd"), "bcd");
  const std::string out = " --out_dir " + path("out"), fresh = " --out_dir " + path("fresh"),
                    other = path("bcd/train.bin") +
                            ": the meta.pkl beside it has another vocabulary, of 3 (char), than ";
  const auto data = [&](const char* name) { return " --data " + path(name); };
  ASSERT_EQ(run_shell(train(data("abc") + out)).code, 0);
  expect_error("inkling eval" + data("bcd") + out, 1, other + "the model, of 3 (char); name the");
  expect_error(train("--init_from " + path("out") + data("bcd") + fresh), 1,
               other + "the model, of 3 (char); name the");
  const std::string resume = "--init_from resume --data_changed --max_iters 30";
  expect_error(train(resume + data("bcd") + out), 1, other + "the model, of 3 (char); name the");
  expect_error(train(data("abc") + "/train.bin --val_data " + path("bcd/val.bin") + fresh), 1,
               "/val.bin: the meta.pkl beside it has another vocabulary, of 3 (char), than " +
                   path("abc/train.bin") + ", of 3 (char)");
  fs::create_directories(path("bare"));
  fs::copy(path("abc/train.bin"), path("bare/train.bin"));
  for (const std::string& both : {path("bare/train.bin ") + path("abc/train.bin"),
                                  path("abc/train.bin ") + path("bare/train.bin")}) {
    const Ran joined = run_shell(train("--data " + both + " --out_dir " + path("joined")));
    EXPECT_EQ(joined.code, 0) << joined.err;
    EXPECT_NE(joined.out.find("vocabulary of 3 (char)"), std::string::npos) << joined.out;
    EXPECT_NE(joined.err.find(path("bare/train.bin") +
                              ": no meta.pkl is beside it; its ids are taken for those of " +
                              path("abc/train.bin")),
              std::string::npos)
        << joined.err;
    fs::remove_all(path("joined"));
  }
  EXPECT_EQ(run_shell("inkling eval" + data("same") + out).code, 0);
  EXPECT_EQ(run_shell(train("--init_from " + path("out") + data("same") + fresh)).code, 0);
  EXPECT_EQ(run_shell(train(resume + data("same") + out)).code, 0);
  expect_error(
      train(data("abc") + " --tokenizer bpe:300 --out_dir " + path("none")), 1,
      "--tokenizer bpe:300: it is learned from texts, and --data holds token ids; leave it "
      "out, or name the file or folder of the tokenizer that made them");
  // What --tokenizer says of these ids counts, and is not said of others.
  const std::string byte = " --out_dir " + path("byte");
  ASSERT_EQ(run_shell(train("--tokenizer byte" + data("abc") + byte)).code, 0);
  EXPECT_EQ(run_shell("inkling eval" + byte).code, 0);
  EXPECT_EQ(run_shell(train("--init_from resume --max_iters 30" + byte)).code, 0);
  expect_error("inkling eval" + data("bcd") + byte, 1, other + "the model, of 256 (byte)");
}

// nanoGPT's sample.py begins with it, and prepare ends each document with it.
TEST_F(DataOfRuns, ASpecialTokenInAPromptIsAToken) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a') + std::string(3000, 'b');
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell("inkling tokenizer train --vocab_size 260 --out " + path("bpe.json") + " " +
                      path("a.txt"))
                .code,
            0);
  ASSERT_EQ(
      run_shell(train("--data " + path("a.txt") + " --tokenizer " + path("bpe.json") + out)).code,
      0);
  const Ran ran = run_shell("inkling sample --max_new_tokens 0 --attention " + path("a.html") +
                            " --start 'a<|endoftext|>b'" + out);
  EXPECT_EQ(ran.out, "a<|endoftext|>b\n") << ran.err;
  EXPECT_NE(ran.err.find("attention over the last 3 tokens"), std::string::npos) << ran.err;
}

// The same letters in a text are no token, as in nanoGPT's prepare.py. prepare makes them one.
TEST_F(DataOfRuns, ASpecialTokenInATextIsSaidToBeNone) {
  const std::string said = path("b.txt") +
                           ": <|endoftext|> in a text is plain text, and not the token that it is "
                           "in a prompt; inkling prepare makes it the token between documents, for "
                           "--data FOLDER\n";
  std::ofstream a(path("a.txt"));
  uint32_t number = 1;
  for (int i = 0; i < 20000; ++i)
    a << static_cast<char>('a' + ((number = number * 1664525 + 1013904223) >> 24) % 26);
  a.close();
  std::ofstream(path("b.txt")) << std::string(65530, 'b') + "<|endoftext|>";  // across parts of it
  const auto told = [&](const std::string& words) {
    const Ran ran = run_shell(train("--data " + path("a.txt") + " " + words + " --max_iters 1 " +
                                    "--overwrite --out_dir " + path("out")));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err.find(said) != std::string::npos;
  };
  EXPECT_TRUE(told(path("b.txt") + " --tokenizer bpe:300"));
  EXPECT_FALSE(told("--tokenizer bpe:300"));
  EXPECT_FALSE(told(path("b.txt")));  // characters have no such token
}

// A folder whose own val.bin validates keeps no share of train.bin.
TEST_F(DataOfRuns, AFractionBesideAValidationFileIsRefused) {
  write_characters(path("abc"), "abc");
  const std::string data = " --data " + path("abc"), out = " --out_dir " + path("out");
  expect_error(train("--val_fraction 0.2" + data + out), 2,
               "--val_fraction does nothing here: " + path("abc/val.bin") +
                   " is what --data validates on; leave it out");
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(run_shell(train("--val_fraction 0.1" + data + out)).code, 0);
  EXPECT_EQ(run_shell(train("--val_fraction 0.2 --data " + path("abc/train.bin") + " --out_dir " +
                            path("more")))
                .code,
            0);
}

// The pairs that training never sees are the run's, also where its task is named.
TEST_F(DataOfRuns, TheOwnTaskKeepsItsQuestions) {
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--data task:modular --task_digits 7 --val_fraction 0.5 --block_size 5 "
                            "--batch_size 64 --max_iters 300" +
                            out))
                .code,
            0);
  const Ran own = run_shell("inkling eval" + out);
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(run_shell("inkling eval --data task:modular" + out).out, own.out);
  expect_error(train("--data task:modular --val_fraction 1e-5 --out_dir " + path("b")), 2,
               "--data task:modular: a --val_fraction of 1e-05 keeps 0 of the");
  EXPECT_FALSE(fs::exists(path("b")));
}

TEST_F(DataOfRuns, PrepareSaysThatASeparatorIsInNoText) {
  std::ofstream(path("a.txt")) << "one|two|three";
  const auto said = [&](const std::string& separator) {
    fs::remove_all(path("p"));
    const Ran ran = run_shell("inkling prepare --tokenizer byte" + separator + " --out_dir " +
                              path("p") + " " + path("a.txt"));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.out.find("in none of the texts") != ran.out.npos;
  };
  EXPECT_TRUE(said(" --separator '||'"));
  EXPECT_FALSE(said(" --separator '|'"));
  EXPECT_FALSE(said(""));
}

TEST_F(DataOfRuns, PreparedDataAreTheirFolder) {
  std::ofstream(path("a.txt")) << std::string(2000, 'a') + std::string(2000, 'b');
  for (const char* data : {"p", "q"})
    ASSERT_EQ(
        run_shell("inkling prepare --tokenizer byte --out_dir " + path(data) + " " + path("a.txt"))
            .code,
        0);
  const std::string out = " --out_dir " + path("out");
  expect_error(train("--data " + path("p") + " " + path("a.txt") + out), 1,
               "--data: expected files of one kind, got " + path("p") + " (prepared data) and " +
                   path("a.txt") + " (text); inkling prepare makes one folder of many texts");
  expect_error(train("--data " + path("p/prepared.json") + " --val_data " + path("a.txt") + out), 1,
               "--val_data: expected one folder of prepared data");
  expect_error(train("--data " + path("p") + " " + path("q") + out), 1,
               "--data " + path("p") + " --val_data " + path("q"));
  const Ran whole = run_shell(train("--data " + path("p") + out));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(run_shell("inkling eval --data " + path("p") + out).out,
            run_shell("inkling eval --data " + path("p/prepared.json") + out).out);
  EXPECT_EQ(run_shell("cd " + path("p") + "; inkling eval --data prepared.json" + out).code, 0);
}

// What cannot be learned on from is told in words that fit the data.
TEST_F(DataOfRuns, WeightsGoOnWithDataOfTheirVocabulary) {
  const std::string text = std::string(2000, 'a') + std::string(2000, 'b');
  std::ofstream(path("a.txt")) << text;
  std::ofstream(path("control.txt")) << text + "\x01";
  std::ofstream(path("ids.bin")) << std::string(2000, '\5');
  ASSERT_EQ(
      run_shell("inkling prepare --tokenizer byte --out_dir " + path("p") + " " + path("a.txt"))
          .code,
      0);
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + " --out_dir " + path("out"))).code, 0);
  const auto goes_on = [&](const char* data) {
    return train("--init_from " + path("out") + " --data " + path(data) + " --out_dir " +
                 path("new"));
  };
  expect_error(goes_on("control.txt"), 1, "lacks characters of --data: '\\x01'; take them out");
  expect_error(goes_on("p"), 1,
               "p: these data were prepared with another tokenizer (byte, 256 tokens) than char of "
               "2; name the text itself, prepare it anew");
  expect_error(goes_on("ids.bin"), 1,
               "is 1285, outside the vocabulary of 2 (char); name its text itself, or");
}

TEST_F(DataOfRuns, WhatPrepareHasNotFinishedIsTold) {
  fs::create_directory(path("half"));
  std::ofstream(path("half/preparing.json")) << "{}";
  expect_error(train("--data " + path("half") + " --out_dir " + path("out")), 1,
               "half: prepare was stopped in this folder; give it the same command to go on");
}

// A run within documents can be measured on a text, which has none.
TEST_F(DataOfRuns, ARunWithinDocumentsMeasuresTexts) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a') + std::string(3000, 'b');
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(
      run_shell("inkling prepare --tokenizer byte --out_dir " + path("p") + " " + path("a.txt"))
          .code,
      0);
  const Ran ran =
      run_shell(train("--data " + path("p") + " --val_data " + path("p") + " --pack within" + out));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Ran measured = run_shell("inkling eval --data " + path("a.txt") + out);
  EXPECT_EQ(measured.code, 0) << measured.err;
}

// It would have to be read twice, to learn a vocabulary and to say which characters one lacks.
TEST_F(DataOfRuns, APipeIsReadOnce) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a') + "\n" + std::string(3000, 'b');
  std::ofstream(path("z.txt")) << "z\r\n" + std::string(3000, 'a');
  const std::string out = " --out_dir " + path("out"), pipe = "cat " + path("z.txt") + " | ";
  expect_error(pipe + train("--data /dev/stdin --tokenizer bpe:260" + out), 1,
               "--tokenizer bpe:260: it is learned before the text is trained on, and /dev/stdin, "
               "a pipe, can be read once; name a file");
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + out)).code, 0);
  expect_error(pipe + "inkling eval --data /dev/stdin" + out, 1, "character 'z' (U+007A) at line");
  const Ran twice = run_shell("inkling eval --data " + path("z.txt") + out);
  EXPECT_NE(twice.err.find("lacks characters of --data: '\\x0d', 'z'"), std::string::npos);
  const std::string note = "its lines end with";
  EXPECT_EQ(twice.err.find(note), twice.err.rfind(note)) << "once: " << twice.err;
}

// What a pipe held is not there any more, and all of another text would be measured.
TEST_F(DataOfRuns, AdviceAfterAPipeDoesNotMeasureWhatWasLearned) {
  std::ofstream(path("p.txt")) << std::string(3000, 'a') + std::string(3000, 'b');
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell("cat " + path("p.txt") + " | " + train("--data /dev/stdin" + out)).code, 0);
  const Ran gone = run_shell("inkling eval" + out + " </dev/null");
  EXPECT_EQ(gone.code, 1);
  EXPECT_NE(gone.err.find("train --init_from resume --data FILE --final_eval whole goes on"),
            std::string::npos)
      << gone.err;
}

// Nothing would be learned of them, and what is saved would name them.
TEST_F(DataOfRuns, AFinishedRunTakesNoOtherData) {
  std::ofstream(path("a.txt")) << std::string(3000, 'a') + std::string(3000, 'b');
  std::ofstream(path("b.txt")) << std::string(3000, 'b') + std::string(3000, 'a');
  const std::string out = " --out_dir " + path("out");
  ASSERT_EQ(run_shell(train("--data " + path("a.txt") + out)).code, 0);
  expect_error("inkling train --init_from resume --data_changed --data " + path("b.txt") + out, 2,
               " has all its 20 steps and would learn nothing of other data");
}

}  // namespace
}  // namespace ink
