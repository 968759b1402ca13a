// Every option of every command, as its help shows it: what it refuses, and in which words.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/temp_files.h"
#include "train/cli/command_line.h"

namespace ink {
namespace {

struct Said {
  int code;
  std::string out, err;
};

Said run(const std::vector<std::string>& words) {
  std::vector<std::string> all = {"inkling"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// One plain sentence that holds `text`, and where to look.
void expect_refused(const std::vector<std::string>& words, const std::string& text) {
  const Said said = run(words);
  std::string line;
  for (const std::string& word : words) line += word + " ";
  EXPECT_EQ(said.code, kUsage) << line << said.err;
  EXPECT_NE(said.err.find(text), std::string::npos) << line << "\n" << said.err;
  const std::string begin = "inkling " + words[0] + ": ",
                    end = "\nTry: inkling " + words[0] + " --help\n";
  EXPECT_EQ(said.err.substr(0, begin.size()), begin) << said.err;
  ASSERT_GE(said.err.size(), end.size());
  EXPECT_EQ(said.err.substr(said.err.size() - end.size()), end) << said.err;
  EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 2) << said.err;
  for (const char* foreign : {"exception", "std::", "vector::", "CLI", "required"})
    EXPECT_EQ(said.err.find(foreign), std::string::npos) << line << "\n" << said.err;
  EXPECT_LT(said.err.size(), 400u) << said.err;
}

struct Option {
  std::string name, type, range;  // "n_layer", "INT", "1 to 1000"
};

std::vector<Option> options_of(const std::string& command) {
  const Said help = run({command, "--help"});
  EXPECT_EQ(help.code, kOk) << help.err;
  // A long name has its words on the next line.
  const std::string text = std::regex_replace(help.out, std::regex("\n {20,}"), "  ");
  std::vector<Option> options;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (!std::regex_match(line, found,
                          std::regex(R"( +(?:-h,)?--(\w+)(?:,--\w+)?(?: (INT|FLOAT|TEXT))?)"
                                     R"(.*?(?:\[([^\[\]]+)\])?)")))
      continue;
    options.push_back({found[1], found[2], found[3]});
  }
  EXPECT_GE(options.size(), 2u) << help.out;
  return options;
}

const char* const kCommands[] = {"train",     "sample", "eval",   "bench",
                                 "gradcheck", "info",   "lesson", "walkthrough"};

// The least and the most of "1 to 1000", "0 or more and below 1", "above 0 and below 1", and the
// nearest values beyond.
struct Range {
  std::vector<std::string> inside, outside;
};
Range range_of(const Option& option) {
  std::smatch found;
  const bool integer = option.type == "INT";
  const auto beside = [&](const std::string& text, int by) {
    if (integer) return std::to_string(std::stoll(text) + by);
    return detail::joined({std::stod(text) + by * std::max(1e-3, std::abs(std::stod(text)) / 1e3)});
  };
  if (std::regex_match(option.range, found, std::regex(R"((\S+) to (\S+))"))) {
    Range range{{found[1], found[2]}, {beside(found[1], -1)}};
    if (found[2] != std::to_string(INT64_MAX)) range.outside.push_back(beside(found[2], 1));
    return range;
  }
  if (std::regex_match(option.range, found, std::regex(R"((\S+) or more and below (\S+))")))
    return {{found[1], beside(found[2], -1)}, {beside(found[1], -1), found[2]}};
  if (std::regex_match(option.range, found, std::regex(R"(above (\S+) and below (\S+))")))
    return {{beside(found[1], 1), beside(found[2], -1)}, {found[1], found[2]}};
  ADD_FAILURE() << option.name << " has no range that is understood: " << option.range;
  return {};
}

std::string a_value_of(const Option& option) {
  if (option.type != "TEXT") return range_of(option).inside.front();
  return option.range.empty() ? "x" : option.range.substr(0, option.range.find_first_of(", "));
}

TEST(CommandLine, EveryNumberHasARangeAndKeepsToIt) {
  for (const std::string command : kCommands) {
    for (const Option& option : options_of(command)) {
      if (option.type != "INT" && option.type != "FLOAT") continue;
      const std::string name = "--" + option.name;
      for (const std::string& value : range_of(option).outside)
        expect_refused({command, name, value}, name + " is ");
      for (const char* value : {"", "x", "nan", "inf", "-inf", "0x10", "1e", "1 2", "1,5", "--",
                                "1 ", "99999999999999999999999999999999999999999e400"})
        expect_refused({command, name, value}, name + ": expected a");
      if (option.type != "INT") continue;
      for (const char* value :
           {"1.5", "1e1", "4294967296000000000000", "-9223372036854775809", "+1"})
        expect_refused({command, name, value}, name + ": expected an integer");
    }
  }
}

// What is printed is what was given: no number is rounded, clamped or wrapped.
TEST(CommandLine, WhatIsInRangeIsTaken) {
  for (const Option& option : options_of("train")) {
    if (option.type != "INT" && option.type != "FLOAT") continue;
    for (const std::string& value : range_of(option).inside) {
      std::vector<std::string> words = {"train", "--print_config", "--" + option.name, value};
      // Two options hold for each other's product.
      if (option.name == "n_head" || option.name == "n_embd")
        words.insert(words.end(), {option.name == "n_head" ? "--n_embd" : "--n_head",
                                   option.name == "n_head" ? "65536" : "1"});
      if (option.name == "batch_size") words.insert(words.end(), {"--block_size", "1"});
      const Said said = run(words);
      EXPECT_EQ(said.code, kOk) << option.name << " " << value << said.err;
      std::smatch found;
      ASSERT_TRUE(std::regex_search(said.out, found, std::regex("\n" + option.name + " = (\\S+)")))
          << said.out;
      EXPECT_EQ(std::stold(found[1]), std::stold(value)) << option.name;
    }
  }
}

TEST(CommandLine, EveryOptionRefusesWhatItCannotUse) {
  for (const std::string command : kCommands) {
    for (const Option& option : options_of(command)) {
      if (option.name == "help") continue;
      const std::string name = "--" + option.name;
      expect_refused({command, name.substr(0, name.size() - 1) + "qx", "1"}, "there is no option");
      if (option.type.empty() && option.range.empty()) {
        expect_refused({command, name, name}, name + " is given twice");
        expect_refused({command, name + "=2"}, name + ": expected true or false, got '2'");
        expect_refused({command, name, "2"}, "'2'");
        continue;
      }
      expect_refused({command, name}, name + ": expected a value, got none");
      expect_refused({command, name, name}, name + ": expected a value, got " + name);
      if (option.type == "TEXT" && option.name != "start" && option.name != "only")
        expect_refused({command, name, ""}, name + ": expected a value, got an empty one");
      if (option.range.find(" or ") != std::string::npos && option.type == "TEXT")
        expect_refused({command, name, "nosuch"}, "expected " + option.range);
      const std::string good = name + "=" + a_value_of(option);
      expect_refused({command, good, good}, name + " is given twice");
    }
  }
}

TEST(CommandLine, ConfigFilesAreReadAsStrictly) {
  const TempFolder folder;
  const std::string file = (folder / "run.toml").string();
  const auto write = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  };
  for (const auto& [text, error] :
       {std::pair<std::string, std::string>{"[train]\nn_layer = 1\n",
                                            "line 1: expected name = value; there are no sections"},
        {"n_layer = 1\n[other]\nx = 1\n", "line 2: expected name = value; there are no sections"},
        {"train.n_layer = 1\n", "there is no setting train.n_layer"},
        {"n_layer = 1\nn_layer = 2\n", "line 2: n_layer comes twice"},
        {"n_layer = 1\nn-layer = 2\n", "n-layer is given twice"},
        {"n_layer = [1, 2]\n", "n_layer: expected one value, got 2"},
        {"n_layer =\n", "line 1: n_layer: expected a value"},
        {"n_layer = ''\n", "n_layer: expected an integer, 1 to 1000, got ''"},
        {"n_layer = 0\n", "n_layer is 0; expected 1 to 1000"},
        {"n_layer = 1e1\n", "n_layer: expected an integer"},
        {"n_layer 3\n", "line 1: expected name = value"},
        {"n_layr = 3\n", "there is no setting n_layr; did you mean n_layer?"},
        {"bias = maybe\n", "bias: expected true or false, got 'maybe'"},
        {"dtype = float16\n", "dtype is 'float16'; expected float32 or bfloat16"},
        {"config = x\n", "config is not a setting of a file"},
        {"help = true\n", "help is not a setting of a file"},
        {"out_dir = \"\"\n", "out_dir: expected a value, got an empty one"},
        {std::string("n_layer = 1\nseed = \0 3\n", 22),
         "line 2: expected text, got the byte \\x00"},
        {"n_layer = 1\x1b[31m\n", "line 1: expected text, got the byte \\x1b"}}) {
    write(text);
    expect_refused({"train", "--print_config", "--config", file}, file + ": " + error);
  }
  expect_refused({"train", "--config", folder.path().string()}, "expected a file, got a directory");
  expect_refused({"train", "--config", (folder / "none").string()}, "cannot open");
  write("batch-size = 3 # a comment\nbias=true\n\n# another\ndata = [\"a.txt\", \"b.txt\"]\n");
  const Said said = run({"train", "--print_config", "--config", file, "--bias=false"});
  EXPECT_EQ(said.code, kOk) << said.err;
  write("data = ['--seed=3', \"--bias\"]\n");  // names of files, not options
  EXPECT_NE(run({"train", "--print_config", "--config", file})
                .out.find("\ndata = [\"--seed=3\",\"--bias\"]\n"),
            std::string::npos);
  for (const char* line :
       {"\nbatch_size = 3\n", "\nbias = false\n", "\ndata = [\"a.txt\",\"b.txt\"]\n"})
    EXPECT_NE(said.out.find(line), std::string::npos) << line << said.out;
}

// No word is taken apart, and an empty one is not passed over.
TEST(CommandLine, ValuesStayWhatTheyAre) {
  for (const char* word :
       {"",    "[t]", "[a,b]", "[",  "]", "[]",  "{}",  "\"q\"", "'q'", "a,b", "%%",
        "a b", "--",  "-",     "-5", "=", "a=b", "`q`", "\\n",   "#",   "$(x)"}) {
    for (const bool joined : {false, true}) {
      std::string text = "before", own = "before";
      std::vector<std::string> list;
      int64_t number = 0;
      bool flag = false;
      CommandOptions command("other", "Has options of all kinds.");
      command.add("NAME", &own, "its own", {.may_be_empty = true});
      command.add("--text", &text, "a text", {.may_be_empty = true});
      command.add("--list", &list, "texts", {.may_be_empty = true});
      command.add("--number", &number, "a number");
      command.flag("--flag", flag, "a flag");
      const auto option = [&](const std::string& name) {
        return joined ? Arguments{name + "=" + word} : Arguments{name, word};
      };
      Arguments words = option("--text");
      words.insert(words.end(), {"--flag", "--number", "-7"});
      for (const std::string& one : option("--list")) words.push_back(one);
      words.push_back(word);
      words.insert(words.end(), {"--number=8"});
      EXPECT_THROW(command.parse(words), UsageError);
      words.back() = "--flag=true";
      EXPECT_THROW(command.parse(words), UsageError);
      words.pop_back();
      EXPECT_TRUE(command.parse(words)) << word;
      EXPECT_EQ(text, word);
      EXPECT_EQ(list, (std::vector<std::string>{word, word}));
      EXPECT_EQ(number, -7);
      EXPECT_TRUE(flag && command.given("--flag") && command.given("--text"));
      EXPECT_EQ(own, "before");
      if (std::string(word).rfind('-', 0) == 0 && std::string(word).size() > 1) continue;
      EXPECT_TRUE(command.parse({word, "--text="}));
      EXPECT_EQ(own, word);
      EXPECT_EQ(text, "");
      EXPECT_FALSE(command.given("--flag"));
    }
  }
  const auto data_of = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"train", "--print_config"};
    all.insert(all.end(), words.begin(), words.end());
    const Said said = run(all);
    const size_t begin = said.out.find("\ndata = ");
    return said.err + said.out.substr(begin + 1, said.out.find('\n', begin + 1) - begin - 1);
  };
  EXPECT_EQ(data_of({"--data", "[t]", "[a,b]"}), "data = [\"[t]\",\"[a,b]\"]");
  EXPECT_EQ(data_of({"--data=[t]"}), "data = [\"[t]\"]");
  const TempFolder folder;
  for (const std::string line : {"data = ['[t]']", "data = \"[t]\"", "data = [ \"[t]\" ]"})
    EXPECT_EQ(data_of({"--config", folder.write("c", line + "\n").string()}), "data = [\"[t]\"]");
  EXPECT_EQ(data_of({"--config", folder.write("c", "data = a[1].txt, [b]\n").string()}),
            "data = [\"a[1].txt\",\"[b]\"]");
  expect_refused({"gradcheck", "--only", "", "--second", "--device", "x"}, "device: there is none");
  expect_refused({"sample", "--start", "", "--max_new_tokens", "x"}, "--max_new_tokens: expected");
}

TEST(CommandLine, SuggestsByBeginningsAndByOtherPrograms) {
  const auto expect = [](const std::string& command, const std::string& name,
                         const std::string& suggested) {
    expect_refused({command, name, "1"},
                   "there is no option " + name + "; did you mean " + suggested + "?");
  };
  expect("train", "--learn", "--learning_rate");
  expect("train", "--eval", "--eval_interval or --eval_iters");
  expect("train", "--n", "--n_layer, --n_head or --n_embd");
  expect("train", "--lr", "--learning_rate");
  expect("train", "--seq-len", "--block_size");
  expect("train", "--betas", "--beta1 or --beta2");
  expect("train", "--gpu", "--device=cuda");
  expect("train", "--length", "--block_size");
  expect("sample", "--length", "--max_new_tokens");
  expect("sample", "--n", "--num_samples");
  expect("eval", "--file", "--data");
  EXPECT_EQ(run({"eval", "--lr", "1"}).err.substr(0, 38),
            "inkling eval: there is no option --lr\n");
  EXPECT_EQ(suggestion("sam", {"sample", "train"}), "; did you mean sample?");
  EXPECT_EQ(suggestion("lr", {"learning_rate"}), "; did you mean learning_rate?");  // of a file
}

// Each suggestion is an option of a command, with a value that it takes.
TEST(CommandLine, OtherNamesLeadToOptions) {
  std::vector<std::string> names;
  for (const std::string command : kCommands)
    for (const Option& option : options_of(command)) names.push_back(option.name);
  for (const auto& [other, ours] : other_names()) {
    EXPECT_FALSE(ours.empty()) << other;
    for (const std::string& name : ours) {
      const std::string bare = name.substr(0, name.find('='));
      EXPECT_NE(std::count(names.begin(), names.end(), bare), 0) << other << " " << name;
      if (bare == name) continue;
      const TempFolder folder;  // nothing to resume: only that is wrong
      const Said said = run({"train", "--print_config", "--" + name, "--out_dir", folder / "none"});
      EXPECT_NE(said.code, kUsage) << other << said.err;
    }
  }
}

TEST(CommandLine, WordsThatAreNoOptions) {
  expect_refused({"train", "x"}, "expected an option, got 'x'");
  expect_refused({"train", "-x"}, "there is no option -x");
  expect_refused({"walkthrough", "-x"}, "there is no option -x");
  expect_refused({"lesson", "0", "x"}, "expected an option, got 'x'");
  expect_refused({"exercise", "5", "x"}, "expected an option, got 'x'");
  expect_refused({"exercise", "5", "--hints"}, "there is no option --hints");
  expect_refused({"train", "--data", "--out_dir", "X"}, "--data: expected a value, got --out_dir");
  expect_refused({"walkthrough", "the_averaging_trick", "x"}, "expected an option, got 'x'");
  expect_refused({"train", "--profile", "o/ckpt", "--out_dir", "o"}, "--profile: the run keeps");
  EXPECT_EQ(run({"--version"}).code, kOk);
  EXPECT_EQ(run({"help", "eval"}).out, run({"eval", "--help"}).out);
  EXPECT_EQ(run({"--help", "eval"}).out, run({"eval", "--help"}).out);
  EXPECT_EQ(run({"help", "help"}).out, run({"help"}).out);
  for (const char* help : {"help", "--help", "-h"}) {
    const Said said = run({help, "evl"});
    EXPECT_EQ(said.code, kUsage) << help;
    EXPECT_EQ(said.err, run({"evl"}).err) << help;
  }
}

// The error of a value that cannot be used begins with its option, whatever is wrong with it.
TEST(CommandLine, ErrorsOfValuesNameTheirOptions) {
  const TempFolder folder;
  const std::string file = folder.write("file", "text").string(), none = (folder / "none").string(),
                    in_none = none + "/x";
  for (const std::string command : {"sample", "eval", "look", "info"})
    for (const std::string& value : {std::string("/etc"), std::string("x"), file})
      expect_refused({command, "--out_dir", none, "--checkpoint", value},
                     "--checkpoint is '" + value + "'; expected ckpt or best");
  for (const std::string command :
       {"sample", "eval", "look", "gradcheck", "draw", "bench", "train"})
    expect_refused({command, "--device", "tpu"}, "--device: there is none called 'tpu'");
  for (const std::string command : {"train", "draw", "bench"})
    expect_refused({command, "--n_head", "7"}, "n_embd is 128; expected a multiple of n_head, 7");
  for (const std::string command : {"sample", "look"}) {
    expect_refused({command, "--start", "FILE:"},
                   "--start: expected the name of a file after FILE:");
  }
  expect_refused({"train", "--config", none}, "--config: " + none + ": cannot open");
  expect_refused({"train", "--config", "/dev/zero"}, "--config: /dev/zero: expected a file");
  expect_refused({"bench", "--config", "x"}, "--config: there are no sizes called x");
  expect_refused({"gradcheck", "--only", "x y"}, "--only: no op or module is called like 'x y'");
  const auto expect_failed = [&](const std::vector<std::string>& words, const std::string& text) {
    const Said said = run(words);
    EXPECT_EQ(said.code, kFailed) << words[0] << text;
    EXPECT_EQ(said.err.rfind("inkling " + words[0] + ": " + text, 0), 0u) << said.err;
  };
  const std::string out = (folder / "out").string();
  for (const std::string& bad :
       {none, std::string("/dev/zero"), folder.write("empty", "").string()}) {
    expect_failed({"train", "--out_dir", out, "--data", bad}, "--data: " + bad + ": ");
    expect_failed({"draw", "--data", file, bad}, "--data: " + bad + ": ");
    expect_failed({"train", "--out_dir", out, "--data", file, "--val_data", bad},
                  "--val_data: " + bad + ": ");
    expect_failed({"train", "--out_dir", out, "--data", file, "--tokenizer", bad},
                  "--tokenizer: " + bad + ": ");
    expect_failed({"bench", "--compare", bad}, "--compare: " + bad + ": ");
  }
  expect_failed({"train", "--out_dir", file},
                "--out_dir: " + file + ": expected a folder, got a file");
  expect_failed({"train", "--out_dir", file + "/x"}, "--out_dir: " + file + "/x: ");
  expect_failed({"train", "--profile", in_none, "--out_dir", out}, "--profile: " + in_none);
  expect_failed({"sample", "--attention", in_none}, "--attention: " + in_none);
  for (const std::string command : {"look", "draw", "report"})
    expect_failed({command, "--out", in_none}, "--out: " + in_none);
  expect_failed({"report", "--svg", in_none}, "--svg: " + in_none);
  expect_failed({"report", "--csv", folder.path().string()}, "--csv: " + folder.path().string());
  expect_failed({"bench", "--json", in_none}, "--json: " + in_none);
  expect_failed({"bench", "--weights", none}, "--weights: " + none);
  expect_failed({"exercise", "5", "--checkout", none}, "--checkout: " + none);
}

}  // namespace
}  // namespace ink
