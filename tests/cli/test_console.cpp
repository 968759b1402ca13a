// What `train` shows on a terminal: lines that fit, lines that stay, and what it waits for.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/io/foreign.h"
#include "tests/support/terminal.h"
#include "train/cli/console.h"
#include "train/cli/progress_line.h"
#include "train/cli/waiting.h"
#include "train/report/numbers.h"

namespace ink {
namespace {

const Progress kProgress{.loss = 0.70123,
                         .best_possible = 0.32,
                         .lr = 0.004,
                         .grad_norm = 1.28,
                         .skipped = 0,
                         .tokens = 0};

TEST(Console, ItemsLeaveTheLineWholeAndInOrder) {
  const auto items = progress_items({4500, 5000, 54200, 17.7, 44}, kProgress);
  for (const auto& [columns, line] : std::vector<std::pair<size_t, std::string>>{
           {200,
            "step  4500/5000  loss 0.7012 (best possible 0.3200)  lr 4.0e-03  norm 1.28  "
            "54.2k tokens/s  17.7 ms  0:44 left"},
           {105,
            "step  4500/5000  loss 0.7012 (best possible 0.3200)  lr 4.0e-03  norm 1.28  "
            "54.2k tokens/s  0:44 left"},
           {100,
            "step  4500/5000  loss 0.7012 (best possible 0.3200)  lr 4.0e-03  "
            "54.2k tokens/s  0:44 left"},
           {79, "step  4500/5000  loss 0.7012 (best possible 0.3200)  54.2k tokens/s  0:44 left"},
           {65, "step  4500/5000  loss 0.7012 (best possible 0.3200)  0:44 left"},
           {39, "step  4500/5000  loss 0.7012  0:44 left"},
           {38, "step  4500  loss 0.7012  0:44 left"},
           {33, "step  4500  loss 0.7012"},
           {22, "step  4500"},
           {9, ""}})
    EXPECT_EQ(fitted(items, columns), line) << columns;
  // Hours and many steps leave room for the three at 40 columns, too.
  const auto longest = progress_items({100000, 600000, 54200, 17.7, 359999}, kProgress);
  EXPECT_EQ(fitted(longest, 39), "step 100000  loss 0.7012  99:59:59 left");
}

TEST(Console, EscapeCodesTakeNoColumns) {
  EXPECT_EQ(fitted({{"\033[1mab\033[0m", 0}, {"\033[32mc\xc3\xa9\033[0m", 1}}, 4),
            "\033[1mab\033[0m\033[32mc\xc3\xa9\033[0m");
  EXPECT_EQ(fitted({{"\033[1mab\033[0m", 0}, {"cd", 1}}, 3), "\033[1mab\033[0m");
  EXPECT_EQ(wrapped("\033[1mmodel\033[0m  GPT: 2 layers, 4 heads", 19, 7),
            "\033[1mmodel\033[0m  GPT:\n       2 layers,\n       4 heads");
}

TEST(Console, LinesBreakBetweenItemsFirst) {
  const std::string text = "a bc, def: 1:02, g; ";
  EXPECT_EQ(wrapped(text, 100, 2), text);
  EXPECT_EQ(wrapped(text, 10, 2), "a bc, def:\n  1:02, g;\n  ");
  EXPECT_EQ(wrapped(text, 5, 2), "a bc,\n  def:\n  1:02,\n  g; ");
  EXPECT_EQ(wrapped("one, two three four", 9, 2), "one,\n  two\n  three\n  four");
  EXPECT_EQ(wrapped("", 1, 2), "");
  EXPECT_EQ(wrapped("Done in 0:01. Saved.  All of it", 15, 2),
            "Done in 0:01.\n  Saved.\n  All of it");
}

TEST(Console, ALineStaysAfterATwentiethOrAMinute) {
  KeptLines by_steps(100, 2000);
  int kept = 0;
  for (int64_t step = 110; step <= 2000; step += 10) kept += by_steps.keep(step, 0);
  EXPECT_EQ(kept, 19);
  KeptLines by_time(0, 1000000);
  kept = 0;
  for (int64_t step = 1; step <= 600; ++step) kept += by_time.keep(step, static_cast<double>(step));
  EXPECT_EQ(kept, 10);
  KeptLines tiny(0, 3);
  EXPECT_TRUE(tiny.keep(1, 0) && tiny.keep(2, 0) && tiny.keep(3, 0));
}

// The first checkpoint after a minute, others after ten, whoever saved.
TEST(Console, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(columns_of("\u65e5\u672c\u8a9e"), 6u);
  EXPECT_EQ(columns_of("e\u0301\xff"), 2u);
  EXPECT_EQ(columns_of("\033[32mab\033[0m"), 2u);
  const std::vector<Item> items{{"\u65e5\u672c\u8a9e", 0}, {"123", 1}};
  EXPECT_EQ(fitted(items, 9), "\u65e5\u672c\u8a9e123");
  EXPECT_EQ(fitted(items, 8), "\u65e5\u672c\u8a9e");
}

// They would turn the order of what a terminal shows after them.
TEST(Console, DirectionMarksAreCodes) {
  EXPECT_EQ(printable("a\u202eb\u2069"), "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa9");
  EXPECT_EQ(printable("\u05e9\u200f"), "\u05e9\u200f") << "of a text";
}

TEST(Console, ARunSavesByTime) {
  SaveTimes fresh(false), resumed(true);
  EXPECT_FALSE(fresh.is_due(59));
  EXPECT_TRUE(fresh.is_due(61));
  EXPECT_FALSE(resumed.is_due(61));
  fresh.saved(30);
  EXPECT_FALSE(fresh.is_due(629));
  EXPECT_TRUE(fresh.is_due(631) && resumed.is_due(601));
}

TEST(Console, WhatIsNotANumberHasNoSign) {
  Progress progress;
  progress.loss = progress.grad_norm = -std::nan("");
  const std::string line = fitted(progress_items({}, progress), 200);
  EXPECT_NE(line.find("loss nan"), std::string::npos) << line;
  EXPECT_NE(line.find("norm nan"), std::string::npos) << line;
}

TEST(Console, HugeNumbersAreShort) {
  Progress progress;
  progress.loss = 461168601842738790.5;
  progress.grad_norm = 1e30;
  const std::string line = fitted(progress_items({}, progress), 200);
  EXPECT_NE(line.find("loss 4.6117e+17  "), std::string::npos) << line;
  EXPECT_NE(line.find("norm 1.00e+30  "), std::string::npos) << line;
  EXPECT_EQ(loss_text(999999, 0.5), "loss 999999.0000 (best possible 0.5000)");
}

std::string train(const std::string& more) {
  return "\"$INKLING_PROGRAM\" train --n_layer 1 --n_head 2 --n_embd 16 --block_size 32 "
         "--batch_size 2 --eval_interval 1000 --eval_iters 1 --log_interval 1 --sample_interval 0 "
         "--final_eval off --overwrite " +
         more;
}

TEST(Terminal, LiveLinesFitAndSomeStay) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  const std::string out_dir = folder.path().string();
  for (const unsigned short columns : {40, 80, 120, 0}) {
    const std::string environment = columns == 0 ? "export COLUMNS=60; " : "";
    const auto shown =
        run_on_terminal(environment + train("--max_iters 100 --out_dir " + out_dir), columns);
    int64_t live = 0, kept = 0;
    const size_t width = columns > 0 ? columns : 60;
    for (const Shown& line : shown) {
      EXPECT_TRUE(!line.live || line.text.size() < width) << line.text;
      if (line.text.rfind("step ", 0) != 0 || line.text.find("loss") == std::string::npos) continue;
      EXPECT_LT(line.text.size(), width) << line.text;
      EXPECT_EQ(line.text.substr(line.text.size() - 5), " left") << line.text;
      EXPECT_EQ(line.text.find(" tokens/s") != std::string::npos, width >= 80) << line.text;
      EXPECT_EQ(line.text.find("ms  ") != std::string::npos, width >= 120) << line.text;
      ++(line.live ? live : kept);
    }
    EXPECT_EQ(live + kept, 100) << columns;
    EXPECT_EQ(kept, 20) << columns;
    for (const Shown& line : shown) {  // of the introduction
      const bool fits = line.text.size() < width || line.text.find(out_dir) < 200;
      EXPECT_TRUE(columns != 80 || fits) << line.text;
    }
  }
}

// As in an editor's window, which shows codes as they are. Lines fit there, too.
TEST(Terminal, ADumbOneGetsNoCodes) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  const std::string steps = train("--max_iters 100 --out_dir " + folder.path().string());
  EXPECT_NE(written_to_terminal("TERM=xterm " + steps, 80).find("\r\033[K"), std::string::npos);
  const std::string all = written_to_terminal("TERM=dumb " + steps, 80);
  EXPECT_EQ(all.find('\033'), std::string::npos) << all;
  const size_t at = all.find("\nstep     3/100  loss ");
  ASSERT_NE(at, std::string::npos) << all;
  EXPECT_LT(all.find('\n', at + 1) - at, 82u) << all;
}

TEST(Terminal, TheTableOfGradcheckFits) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  for (const unsigned short columns : {64, 80}) {
    int rows = 0;
    for (const Shown& line :
         run_on_terminal("\"$INKLING_PROGRAM\" gradcheck --only softmax", columns)) {
      const bool is_row = line.text.ends_with(" ok");
      rows += is_row ? 1 : 0;
      EXPECT_TRUE(!is_row || line.text[0] != ' ') << columns << ": " << line.text;
      if (line.text.starts_with("op ")) {
        EXPECT_TRUE(line.text.ends_with("of tol")) << line.text;
        EXPECT_EQ(line.text.find("checked") != std::string::npos, columns == 80) << line.text;
      }
    }
    EXPECT_GT(rows, 1);
  }
}

TEST(Terminal, SaysWhatASecondInterruptWouldDo) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  const auto shown = run_on_terminal(
      "(sleep 1; kill -INT $$) & exec " +
          train("--max_iters 1000000 --max_minutes 1 --out_dir " + (folder / "out").string()),
      120);
  const auto is_told = [&](const std::string& text) {
    return std::any_of(shown.begin(), shown.end(), [&](const Shown& line) {
      return line.text.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(is_told("Ctrl-C again stops at once, unsaved"));
  EXPECT_TRUE(is_told("Interrupted after step"));
}

TEST(Terminal, SaysWhatItWaitsForAndClearsThat) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text =
      "for i in 1 2 3 4 5 6 7 8 9; do echo A text to learn from, quickly.; done";
  const auto shown = run_on_terminal("(sleep 1.2; " + text + "; " + text + ") >" + pipe + " & " +
                                         train("--max_iters 3 --val_fraction 0.4 --data " + pipe +
                                               " --out_dir " + (folder / "out").string()),
                                     40);
  const auto waits = [&](bool live) {
    return std::count_if(shown.begin(), shown.end(), [&](const Shown& line) {
      return line.text.rfind("data and model ... 0:0", 0) == 0 && line.live == live;
    });
  };
  EXPECT_GE(waits(true), 1);
  EXPECT_EQ(waits(false), 0);
  EXPECT_TRUE(std::any_of(shown.begin(), shown.end(), [](const Shown& line) {
    return line.text.rfind("step     3/3  loss", 0) == 0;
  }));
  // A start that is quick shows nothing of this, and neither does a run without a terminal.
  const std::string quick = train("--max_iters 1 --out_dir " + (folder / "out").string());
  for (const Shown& line : run_on_terminal(quick, 80))
    EXPECT_EQ(line.text.find("..."), std::string::npos) << line.text;
  EXPECT_EQ(run_shell(quick).out.find("..."), std::string::npos);
}

// Bits per byte stay longer than the time, and go before the loss.
TEST(Terminal, EvaluationsShowBitsPerByte) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "A text to learn from, quickly.\n";
  const std::string file = folder.write("text.txt", text).string();
  std::string command =
      train("--max_iters 3 --data " + file + " --out_dir " + (folder / "out").string());
  command.replace(command.find("1000"), 4, "2");  // steps between evaluations
  const auto line_of = [&](unsigned short columns) {
    for (const Shown& line : run_on_terminal(command, columns))
      if (line.text.rfind("step     2  validation loss ", 0) == 0) return line.text;
    return std::string();
  };
  const std::string wide = line_of(80), narrow = line_of(60), least = line_of(44);
  EXPECT_NE(wide.find(" bits/byte  after 0:0"), std::string::npos) << wide;
  EXPECT_EQ(narrow.substr(std::max<size_t>(narrow.size(), 10) - 10), " bits/byte") << narrow;
  EXPECT_EQ(least.size(), std::string("step     2  validation loss 3.1234").size()) << least;
  bool at_the_end = false;
  for (const Shown& line : run_on_terminal(command, 44)) {
    at_the_end |= line.text.rfind("Trained in ", 0) == 0;
    const bool is_path = line.text.find('/') != std::string::npos;
    EXPECT_TRUE(!at_the_end || is_path || line.text.size() < 44) << line.text;
  }
  EXPECT_TRUE(at_the_end);
}

TEST(Terminal, ValidationShowsItsShare) {
  const auto shown = [](double done, double done_at, double seconds) {
    return fitted(share_items("validation", done, done_at, seconds), 80);
  };
  EXPECT_EQ(shown(0.31, 6.2, 8), "validation 31 %, 0:12 left");
  EXPECT_EQ(shown(0.31, 6.2, 12), "validation 31 %, 0:08 left");
  EXPECT_EQ(shown(0.31, 6.2, 30), "validation 31 %, 0:00 left");
  EXPECT_EQ(shown(0, 0, 5), "validation 0 %");
}

// A model of bytes that writes any of them, at random.
TEST(Terminal, SamplesAreShownHarmlesslyAndPipedAsTheyAre) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  const std::string out_dir = (folder / "out").string(),
                    text = folder.write("a", std::string(2000, 'a')).string(),
                    sample =
                        "\"$INKLING_PROGRAM\" sample --temperature 1e6 --start é "
                        "--max_new_tokens 3000 --out_dir " +
                        out_dir;
  ASSERT_EQ(
      run_shell(train("--max_iters 1 --tokenizer byte --data " + text + " --out_dir " + out_dir))
          .code,
      0);
  const Ran piped = run_shell(sample);
  ASSERT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out.size(), 2 + 3000 + 1);  // é, the bytes and a line end
  for (const char byte : {'\0', '\033', '\a', '\x7f', '\x9b', '\xff'})
    EXPECT_NE(piped.out.find(byte), std::string::npos) << int{byte};
  std::string expected, shown;
  for (size_t at = 0; at < piped.out.size(); ++at) {  // as printable() has it, but for tabs
    const char byte = piped.out[at];
    if (byte == '\r' && piped.out[at + 1] == '\n') continue;
    expected += byte == '\t' ? "<tab>" : byte == '\n' ? "<end>" : std::string(1, byte);
  }
  expected = printable(expected);
  for (const Shown& line : run_on_terminal(sample, 80)) {
    EXPECT_FALSE(line.live);
    for (const char byte : line.text) shown += byte == '\t' ? "<tab>" : std::string(1, byte);
    shown += "<end>";
  }
  EXPECT_EQ(shown, expected);
}

TEST(Terminal, PipesGetTheBytesOfATextAtOnce) {
  Console console;
  if (console.is_terminal()) GTEST_SKIP() << "the test is of a pipe";
  testing::internal::CaptureStdout();
  for (const std::string piece : {"a\xc3", "\xa9\r", "\n\033[31m", "\xe2\x82"})
    console.write(piece);
  console.line(
      std::string("b\0c\033[31m", 8));  // what is no text of a model is harmless there, too
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "a\xc3\xa9\r\n\033[31m\xe2\x82" + std::string("b\\x00c\\x1b[31m\n"));
}

// ---- the width of help, errors and tables

// Names of a Llama, too, which are long; and its blocks are one row.
TEST(Terminal, ParametersFit) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const TempFolder folder;
  std::string command = train("--max_iters 1 --model llama --out_dir " + (folder / "out").string());
  command.replace(command.find("--n_layer 1"), 11, "--n_layer 2");
  int norms = 0;
  for (const Shown& line : run_on_terminal(command, 44)) {
    const bool is_path = line.text.find('/') != std::string::npos;
    EXPECT_TRUE(is_path || columns_of(line.text) < 44) << line.text;
    norms += line.text.find("layernorm.weight") != std::string::npos;
  }
  EXPECT_EQ(norms, 2);  // input_layernorm and post_attention_layernorm
}

TEST(Terminal, HelpErrorsAndTablesFit) {
  if (!has_terminals()) GTEST_SKIP() << "no terminal can be made here";
  const std::string small = " --n_layer 2 --n_embd 16 --n_head 2 --block_size 8 --batch_size 2";
  for (const unsigned short columns : {44, 60, 80, 120}) {
    for (const std::string& words :
         {std::string("train --help"), std::string("train --print_config"),
          std::string("bench --help"), std::string("help"),
          std::string("train --n_layer 2000000 --out_dir x"), std::string("export"),
          std::string("train --eval_only=True"), "draw" + small, std::string("info"),
          std::string("gradcheck --only softmax"), std::string("lesson"), std::string("exercise"),
          std::string("walkthrough"), "train --check --max_iters 1" + small}) {
      const auto shown = run_on_terminal("\"$INKLING_PROGRAM\" " + words, columns);
      EXPECT_GE(shown.size(), 2u) << words;
      for (const Shown& line : shown) {
        const bool is_path = line.text.find(program_path()) != std::string::npos;
        EXPECT_TRUE(is_path || columns_of(line.text) <= columns) << words << ": " << line.text;
      }
    }
  }
  for (const unsigned short columns : {44, 60}) {
    const auto shown = run_on_terminal(
        "\"$INKLING_PROGRAM\" bench --vocab_size 20 --steps 1 "
        "--profile_steps 1 --scaling" +
            small,
        columns);
    EXPECT_GE(shown.size(), 20u);
    for (const Shown& line : shown) EXPECT_LE(columns_of(line.text), columns) << line.text;
  }
  const TempFolder folder;
  std::string numbers;
  for (int i = 0; i < 4000; ++i) numbers += std::to_string(i * i) + "\n";
  const std::string text = folder.write("a.txt", numbers);
  const auto shown =
      run_on_terminal("\"$INKLING_PROGRAM\" suggest --minutes 0.001 --data " + text, 44);
  ASSERT_GE(shown.size(), 4u);
  for (size_t i = 0; i + 1 < shown.size(); ++i)  // the last one is a command to copy
    EXPECT_LE(columns_of(shown[i].text), 44u) << shown[i].text;
}

}  // namespace
}  // namespace ink
