// Every option of every command, as its help shows it: what it refuses, and in which words.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/file.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/other_names.h"
#include "train/models.h"
#include "train/parallel/processes.h"

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
                          std::regex(R"( +(?:-h, )?--(\w+)(?:,--\w+)?(?: (INT|FLOAT|TEXT))?)"
                                     R"(.*?(?:\[([^\[\]]+)\])?)")))
      continue;
    options.push_back({found[1], found[2], found[3]});
  }
  EXPECT_GE(options.size(), 2u) << help.out;
  return options;
}

const char* const kCommands[] = {"train", "sample", "eval",        "bench",  "gradcheck",
                                 "info",  "lesson", "walkthrough", "suggest"};

// The least and the most of "1 to 1000", "0 to below 1", "above 0 and below 1", "above 0 to 1",
// "0 or more", and the nearest values beyond.
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
  const auto is = [&](const char* form) {
    return std::regex_match(option.range, found, std::regex(form));
  };
  if (is(R"((\S+) or more)")) return {{found[1], "1000000"}, {beside(found[1], -1)}};
  if (is(R"((\S+) to below (\S+))"))
    return {{found[1], beside(found[2], -1)}, {beside(found[1], -1), found[2]}};
  if (is(R"(above (\S+) to (\S+))"))
    return {{beside(found[1], 1), found[2]}, {found[1], beside(found[2], 1)}};
  if (is(R"((\S+) to (\S+))"))
    return {{found[1], found[2]}, {beside(found[1], -1), beside(found[2], 1)}};
  if (is(R"(above (\S+) and below (\S+))"))
    return {{beside(found[1], 1), beside(found[2], -1)}, {found[1], found[2]}};
  if (is(R"(above (\S+))")) return {{beside(found[1], 1), "1000"}, {found[1]}};
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

// Also what the help calls "1 or more" has an end, which the error names.
TEST(CommandLine, LargeLimitsHoldToo) {
  const TrainConfig config;
  for_each_field(
      config, []<class Field>(const char* name, const Field&, const char*, const Limits& limits) {
        if (!std::is_same_v<Field, int64_t> || limits.most < 1e6 || limits.most > 1e15) return;
        const std::string most = std::to_string(static_cast<int64_t>(limits.most));
        expect_refused({"train", std::string("--") + name, most + "0"}, " to " + most);
      });
}

// As other programs write them: --bias, --bias true, --bias=False, --bias 0, --no-bias.
TEST(CommandLine, FlagsMayHaveAValue) {
  int flags = 0;
  for (const Option& option : options_of("train")) {
    if (!option.type.empty() || option.name == "help") continue;
    if (option.name == "shard_optimizer") continue;  // of several processes
    const std::string name = "--" + option.name,
                      model = has_setting("llama", option.name) ? "llama" : "gpt";
    const auto printed = [&](std::vector<std::string> words) {
      words.insert(words.begin(), {"train", "--model", model});
      if (option.name != "print_config") words.emplace_back("--print_config");
      const Said said = run(words);
      EXPECT_EQ(said.code, kOk) << said.err;
      return said.out;
    };
    if (option.name == "print_config" ||
        printed({}).find("\n" + option.name + " = ") == std::string::npos) {
      printed({name, "1"});  // no setting of a run
      continue;
    }
    ++flags;
    const std::string yes = "\n" + option.name + " = true\n",
                      no = "\n" + option.name + " = false\n";
    for (const std::string word : {"true", "True", "TRUE", "1"}) {
      EXPECT_NE(printed({name, word}).find(yes), std::string::npos) << name << " " << word;
      EXPECT_NE(printed({name + "=" + word}).find(yes), std::string::npos) << name << "=" << word;
    }
    for (const std::string word : {"false", "False", "FALSE", "0"}) {
      EXPECT_NE(printed({name, word}).find(no), std::string::npos) << name << " " << word;
      EXPECT_NE(printed({name + "=" + word}).find(no), std::string::npos) << name << "=" << word;
    }
    for (const std::string& denied : {"--no-" + option.name, "--no_" + option.name}) {
      EXPECT_NE(printed({denied}).find(no), std::string::npos) << denied;
      expect_refused({"train", denied + "=true"}, ": expected no value, got 'true'");
      expect_refused({"train", name, denied}, "is given twice");
    }
  }
  EXPECT_GE(flags, 3);
  expect_refused({"train", "--no-n_layer"}, "there is no option --no-n_layer");
}

// What is printed is what was given: no number is rounded, clamped or wrapped.
TEST(CommandLine, WhatIsInRangeIsTaken) {
  for (const Option& option : options_of("train")) {
    if (option.type != "INT" && option.type != "FLOAT") continue;
    // Settings of a scaling of positions hold for each other.
    if (std::regex_match(option.name, std::regex("beta_.*|original_.*|.*(freq|attention)_factor")))
      continue;
    for (const std::string& value : range_of(option).inside) {
      std::vector<std::string> words = {"train", "--print_config", "--" + option.name, value};
      // Two options hold for each other's product.
      if (option.name == "n_head" || option.name == "n_embd")
        words.insert(words.end(), {option.name == "n_head" ? "--n_embd" : "--n_head",
                                   option.name == "n_head" ? "65536" : "1"});
      if (has_setting("llama", option.name)) words.insert(words.end(), {"--model", "llama"});
      if (option.name == "n_kv_head")
        words.insert(words.end(), {"--n_head", "1024", "--n_embd", "65536"});
      if (option.name == "batch_size") words.insert(words.end(), {"--block_size", "1"});
      if (option.name == "task_digits" || option.name == "val_fraction")
        words.insert(words.end(), {"--data", "task:modular"});
      if (option.name == "rope_factor")
        words.insert(words.end(), {"--rope_scaling", "yarn", "--attention_factor", "2",
                                   "--original_max_position_embeddings", "8"});
      if (option.name == "momentum") words.insert(words.end(), {"--optimizer", "muon"});
      if (option.name == "decay_fraction") words.insert(words.end(), {"--schedule", "wsd"});
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
  for (const char* tuple : {"('a.txt', \"b.txt\")", "(\n 'a.txt', # one\n 'b.txt',\n)"}) {
    write(std::string("data = ") + tuple + " # of Python\nn_layer = (1 + 2) * 2\n");
    const std::string printed = run({"train", "--print_config", "--config", file}).out;
    EXPECT_NE(printed.find("\ndata = [\"a.txt\",\"b.txt\"]\n"), std::string::npos) << tuple;
    EXPECT_NE(printed.find("\nn_layer = 6\n"), std::string::npos) << tuple;
  }
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
  expect("train", "--n", "--n_layer, --n_head, --n_embd or --n_kv_head");
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
  expect("train", "--test_data", "--val_data");
  expect("train", "--head", "--n_head");
  expect("train", "--gqa", "--n_kv_head");
  expect("train", "--remat", "--recompute");
  for (const auto& [name, suggested] : {std::pair{"validation_data", "--val_data"},
                                        {"dev_data", "--val_data"},
                                        {"max_lr", "--learning_rate"},
                                        {"muon_lr", "--learning_rate"},
                                        {"kv_head", "--n_kv_head"},
                                        {"attention_heads", "--n_head"},
                                        {"emb", "--n_embd"},
                                        {"tokenizer_model", "--tokenizer"},
                                        {"load_model", "--init_from or --out_dir"},
                                        {"save_model", "--out_dir"},
                                        {"steps_per_report", "--log_interval"},
                                        {"decay", "--weight_decay or --decay_fraction"},
                                        {"my_seed", "--seed"},
                                        {"peak_lr", "--learning_rate"},
                                        {"ckpt_every", "--eval_interval"},
                                        {"resume_training", "--init_from=resume"}})
    expect("train", std::string("--") + name, suggested);
  for (const char* name : {"--my_model", "--my_data", "--min_iters"})  // no option means that
    expect_refused({"train", name, "1"}, std::string("there is no option ") + name + "\n");
  expect("sample", "-p", "--start");
  expect("eval", "--test_data", "--data");
  for (const auto& [command, name, text] :
       {std::tuple{"train", "--act", "; the GPT's MLP has GELU"},
        {"train", "--beams", "; there is no beam search"},
        {"train", "--compile_model", "; kernels are compiled"},
        {"train", "--max_chars", "; all of a text is read"},
        {"sample", "--stop", "; a sample has --max_new_tokens"},
        {"train", "--moe", "; there is no mixture of experts"},
        {"report", "--port", "; there is no server"},
        {"bench", "--out_dir", "\n"},
        {"train", "--tensorboard", "; inkling report FOLDER --tensorboard DIR writes"},
        {"train", "--report_to", "; inkling report FOLDER --tensorboard DIR writes"}})
    expect_refused({command, name, "1"}, std::string("there is no option ") + name + text);
  EXPECT_NE(run({"tensorboard", "out"}).err.find("report FOLDER --tensorboard DIR"),
            std::string::npos);
  EXPECT_EQ(suggestion("sam", {"sample", "train"}), "; did you mean sample?");
  EXPECT_EQ(suggestion("lr", {"learning_rate"}), "; did you mean learning_rate?");  // of a file
  EXPECT_EQ(suggestion("my_device", {"data", "device"}, "--"), "; did you mean --device?");
}

// ---- names of other programs

// What is typed: each name of a row with its value.
std::vector<std::string> foreign_texts(const OtherName& row) {
  std::vector<std::string> texts;
  const std::string value = row.value;
  std::istringstream names(row.names);
  for (std::string name; names >> name;) {
    const bool is_short = name[0] == '-';
    texts.push_back((is_short ? "" : "--") + name +
                    (value.empty() || value == "*" ? "" : (is_short ? " " : "=") + value));
  }
  return texts;
}
// "a = 1, b = 2" -> "a", "b"; "a b=c" -> "a", "b"
std::vector<std::string> ours_of(const OtherName& row) {
  std::vector<std::string> ours;
  std::string text = row.text;
  if (row.answer == Answer::sets) text = std::regex_replace(text, std::regex(" = [^,]*,?"), " ");
  std::istringstream names(text);
  for (std::string name; names >> name;) ours.push_back(name.substr(0, name.find('=')));
  return ours;
}
void expect_typed(const std::string& text) {
  const std::regex in_braces(R"(\{([\w-]+)[^{}]*\})");
  EXPECT_EQ(std::count(text.begin(), text.end(), '{'),
            std::distance(std::sregex_iterator(text.begin(), text.end(), in_braces), {}))
      << text;
  for (std::sregex_iterator at(text.begin(), text.end(), in_braces), end; at != end; ++at)
    EXPECT_EQ(run({(*at)[1], (*at)[1] == "--version" ? "" : "--help"}).code, kOk) << text;
}

// Each row leads to options, with values that they take, or to commands.
TEST(OtherNames, LeadToOptionsAndCommands) {
  std::vector<std::string> names;
  for (const std::string command : kCommands)
    for (const Option& option : options_of(command)) names.push_back(option.name);
  for (const OtherProgram& program : other_programs()) {
    for (const OtherName& row : program.names) {
      expect_typed(row.text);
      if (row.answer == Answer::left_out || row.answer == Answer::told) continue;
      EXPECT_FALSE(ours_of(row).empty()) << row.names;
      for (const std::string& name : ours_of(row))
        EXPECT_NE(std::count(names.begin(), names.end(), name), 0) << row.names << " " << name;
      if (row.answer != Answer::like || std::string(row.text).find('=') == std::string::npos)
        continue;
      const TempFolder folder;  // nothing to resume: only that is wrong
      const Said said = run(
          {"train", "--print_config", std::string("--") + row.text, "--out_dir", folder / "none"});
      EXPECT_NE(said.code, kUsage) << row.names << said.err;
    }
  }
  for (const OtherCommand& row : other_commands()) {
    expect_typed(row.text);
    const Said said = run({row.name});
    EXPECT_EQ(said.code, kUsage);
    EXPECT_EQ(said.err, "inkling: there is no command " + std::string(row.name) + "; " +
                            with_typed(row.text, "inkling ") + "\nTry: inkling --help\n");
  }
}

TEST(OtherNames, TextsThatPythonWouldFormatAreRefused) {
  const TempFolder folder;
  for (const char* text : {"f'out-{1}'", "rb\"x\"", "F'x' # name"}) {
    const std::string file = folder.write("x.py", "out_dir = " + std::string(text) + "\n");
    const Said said = run({"train", file, "--print_config"});
    EXPECT_EQ(said.code, kUsage) << text;
    EXPECT_NE(said.err.find("out_dir: expected a plain text, got "), std::string::npos) << said.err;
  }
  const std::string file =
      folder.write("x.py", "out_dir = 'f'\nwandb_run_name = f'gpt-{seed}' # left out\n");
  const Said said = run({"train", file, "--print_config"});
  EXPECT_NE(said.out.find("\nout_dir = \"f\"\n"), std::string::npos) << said.err;
}

// None is no name of a folder, and neither is another word without quotes.
TEST(OtherNames, WordsOfPythonAreNoTexts) {
  const TempFolder folder;
  const std::string all =
      "out_dir = None # as if it were not there\nblock_size=None\nbias = True\n";
  const Said said = run({"train", folder.write("x.py", all).string(), "--print_config"});
  EXPECT_NE(said.out.find("\nout_dir = \"out\"\n"), std::string::npos) << said.out << said.err;
  EXPECT_NE(said.err.find("left out: out_dir, block_size (None: the default)"), std::string::npos)
      << said.err;
  expect_refused({"train", folder.write("x.py", "outdirr = None").string()}, "there is no setting");
  for (const char* line : {"out_dir = dataset", "data = [a.txt]", "data = ('a', b)", "out_dir = 5"})
    expect_refused({"train", folder.write("x.py", line).string()},
                   ": expected a text in quotes, got ");
  for (const char* line : {"out_dir = dataset", "out_dir = 'None'"})
    EXPECT_EQ(run({"train", "--config", folder.write("x", line).string(), "--print_config"}).code,
              kOk);
}

// What the command line says counts, whatever a file says that is taken nowhere here.
TEST(OtherNames, TheCommandLineOverridesAFile) {
  const TempFolder folder;
  const std::string file = folder.write("x.py",
                                        "device = 'mps'\ndtype = 'float16'\ninit_from = 'gpt2'\n"
                                        "eval_only = True\ndecay_lr = False\n");
  EXPECT_EQ(run({"train", file, "--print_config"}).code, kUsage);
  const Said said = run({"train", file, "--device=cpu", "--dtype=bfloat16", "--init_from=scratch",
                         "--eval_only=False", "--decay_lr=True", "--print_config"});
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_NE(said.out.find("\nmin_lr = 1e-05\n"), std::string::npos) << said.out;
}

// nanoGPT's finetuning: constant, with the warm-up that is typed.
TEST(OtherNames, ALineSaysWhatIsTaken) {
  const TempFolder folder;
  const std::string file = folder.write("x.py", "decay_lr = False\nlearning_rate = 3e-5\n");
  EXPECT_EQ(run({"train", file, "--print_config"}).err,
            "inkling: taken: decay_lr as --schedule constant --warmup_iters 0\n");
  const Said warm = run({"train", file, "--print_config", "--warmup_iters=10"});
  EXPECT_EQ(warm.err, "inkling: taken: decay_lr as --schedule constant\n");
  EXPECT_NE(warm.out.find("\nwarmup_iters = 10\n"), std::string::npos);
  EXPECT_NE(warm.out.find("\nschedule = \"constant\"\n"), std::string::npos);
  for (const char* command : {"eval", "sample", "bench"})
    expect_refused({command, file},
                   std::string("; ") + command + " reads no config file: type its");
}

TEST(OtherNames, ThePageHasTheSameRows) {
  std::ifstream in(INKLING_SOURCE_DIR "/train/COMING_FROM.md");
  const std::string page = std::regex_replace(std::string(std::istreambuf_iterator<char>(in), {}),
                                              std::regex("\\s+"), " ");
  const auto code = [](const std::string& text) { return "`" + text + "`"; };
  const auto typed_text = [](const std::string& text) {
    return std::regex_replace(text, std::regex(R"(\{([^}]*)\})"), "`./run.sh $1`");
  };
  const auto expect_list = [&](const std::string& name,
                               const std::vector<std::pair<std::string, std::string>>& rows) {
    std::string expected = "### " + name;  // names with the same answer are one line
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto same = [&](const auto& row) { return row.second == rows[i].second; };
      const auto begin = rows.begin() + static_cast<int64_t>(i);
      if (std::any_of(rows.begin(), begin, same)) continue;
      std::string names;
      for (auto at = begin; at != rows.end(); ++at)
        if (same(*at)) names += (names.empty() ? "" : ", ") + at->first;
      expected += " * " + names + ": " + rows[i].second;
    }
    EXPECT_NE(page.find(expected + " #"), std::string::npos) << expected;
  };
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OtherProgram& program : other_programs()) {
    rows.clear();
    for (const OtherName& row : program.names) {
      std::string answer = typed_text(row.text);
      if (row.answer == Answer::left_out) answer = "left out (" + answer + ")";
      if (row.answer == Answer::sets) answer = code(answer);
      if (row.answer == Answer::same || row.answer == Answer::like) {
        answer = row.answer == Answer::like ? "see " : "";
        std::istringstream ours(row.text);
        for (std::string name, before; ours >> name; before = " and ")
          answer += before + code("--" + name);
      }
      for (const std::string& text : foreign_texts(row)) rows.emplace_back(code(text), answer);
    }
    expect_list(program.name, rows);
  }
  rows.clear();
  for (const OtherCommand& row : other_commands())
    rows.emplace_back(code(row.name), typed_text(row.text));
  expect_list("Commands", rows);
}

// "name = value" of each line of --print_config that differs from the default.
std::vector<std::string> settings_of(std::vector<std::string> words) {
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      if (line.rfind("# ", 0) != 0) lines.push_back(line);
    return lines;
  };
  words.insert(words.begin(), {"train", "--print_config"});
  const Said said = run(words);
  EXPECT_EQ(said.code, kOk) << said.err;
  const std::vector<std::string> before = lines_of(run({"train", "--print_config"}).out);
  std::vector<std::string> changed;
  for (const std::string& line : lines_of(said.out))
    if (std::count(before.begin(), before.end(), line) == 0) changed.push_back(line);
  std::sort(changed.begin(), changed.end());
  return changed;
}

using Settings = std::vector<std::string>;

TEST(OtherNames, NanoGptsCommandLinesAreTaken) {
  EXPECT_EQ(settings_of({"--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=1",
                         "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4",
                         "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000",
                         "--dropout=0.0", "--wandb_log=True", "--wandb_project", "p",
                         "--eval_only=False", "--bias=True", "--backend=gloo"}),
            (Settings{"batch_size = 12", "bias = true", "block_size = 64", "log_interval = 1",
                      "lr_decay_iters = 2000", "max_iters = 2000", "n_layer = 4"}));
  const Said said =
      run({"train", "--print_config", "--compile=False", "--wandb_log=False", "--wandb_project=x"});
  EXPECT_EQ(said.err,
            "inkling: left out: --compile (kernels are compiled when the program is built)\n"
            "inkling: left out: --wandb_log, --wandb_project (metrics.jsonl and report.html in "
            "out_dir hold what a run logs)\n");
  EXPECT_EQ(settings_of({"--decay_lr=False", "--learning_rate=1e-3", "--min_lr=1e-4"}),
            (Settings{"learning_rate = 0.001", "min_lr = 0.0001", "schedule = \"constant\"",
                      "warmup_iters = 0"}));
  for (const char* denied : {"--decay_lr=False", "--decay_lr=0", "--no-decay_lr"})
    EXPECT_EQ(settings_of({denied}), (Settings{"schedule = \"constant\"", "warmup_iters = 0"}))
        << denied;
  EXPECT_EQ(settings_of({"--no-compile", "--no_wandb_log", "--decay_lr", "1", "--bias", "1"}),
            Settings{"bias = true"});
  expect_refused({"train", "--no-compile=1"}, "--no_compile: expected no value, got '1'");
  EXPECT_EQ(settings_of({"--decay_lr=True", "--bias", "False", "--recompute", "True"}),
            Settings{"recompute = true"});
  expect_refused({"train", "--eval_only=True"},
                 "there is no option --eval_only; to evaluate a run, type inkling eval --out_dir ");
  expect_refused({"train", "--eval_only"}, "type inkling eval");
  expect_refused({"train", "--dataset=shakespeare_char"}, "your own use --data FILE");
  const TempFolder folder;  // in which nanoGPT's data/prose stands
  const auto here = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "data/prose");
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(settings_of({"--dataset=prose"}),
            (Settings{"data = [\"data/prose\"]", "dataset = \"prose\""}));
  EXPECT_EQ(settings_of({"--dataset=prose", "--data", "x.txt"}),
            (Settings{"data = [\"x.txt\"]", "dataset = \"prose\""}));
  expect_refused({"train", "--init_from=gpt2-xl"}, "--init_from is 'gpt2-xl': GPT-2's weights");
  std::filesystem::create_directory("gpt2-mine");  // may be a run's
  expect_refused({"train", "--init_from=gpt2-mine"}, "there is no run in gpt2-mine");
  std::filesystem::current_path(here);
  expect_refused({"train", "--device=mps"}, "--device cpu");
  expect_refused({"sample", "--compile=False", "--init_from=resume", "--dtype", "float32", "--x"},
                 "there is no option --x");
  for (const auto& [command, name] : {std::pair{"eval", "--eval_only=True"},
                                      {"eval", "--do_eval"},
                                      {"sample", "--sample_only"},
                                      {"sample", "--inference_only=1"},
                                      {"bench", "--overfit_single_batch"},
                                      {"look", "--write_tensors"},
                                      {"eval", "--init_from=resume"}})  // which it does by itself
    expect_refused({command, name, "--x"}, "there is no option --x");
  for (const char* flag : {"--do_eval", "--compile"})  // takes no word that is no truth value
    expect_refused({"eval", flag, "out2"}, "expected an option, got 'out2'");
  expect_refused({"eval", "--do_eval", "True", "--compile", "0", "--dtype", "float32", "--x"},
                 "there is no option --x");
  expect_refused({"train", "--dry_run"}, "type inkling train --check");
  expect_refused({"train", "--trainer.max_iters=3"}, "did you mean --max_iters?");
  expect_refused({"train", "--train.micro_batch_size", "3"}, "did you mean --batch_size?");
}

TEST(OtherNames, NanoGptsConfigFilesAreTaken) {
  const TempFolder folder;
  const std::string file = folder
                               .write("mine.py", R"("""What this file
is for = nothing"""
import time
from os import path
# trains something small

out_dir = 'out-mine'
eval_interval = 25 * 10 # keep it small
log_interval = 10 # = not much
always_save_checkpoint = False
wandb_log = False # override it
wandb_project = "mine"
wandb_run_name = 'ft-' + str(time.time())
dataset = 'mine'
gradient_accumulation_steps = 5 * 8 // (2**2)
batch_size = 1_2
block_size = 64 # a short context
dropout = 0.2
learning_rate = 1e-3 # high
max_iters = 5_000
lr_decay_iters = max_iters
min_lr = learning_rate / 10
beta2 = 1 - 1e-2
warmup_iters = 100
bias=True
decay_lr = True

# device = 'cpu'
# compile = False
)")
                               .string();
  const Settings expected{"batch_size = 12",        "bias = true",
                          "block_size = 64",        "data = [\"input.txt\"]",
                          "dataset = \"mine\"",     "dropout = 0.2",
                          "eval_interval = 250",    "gradient_accumulation_steps = 10",
                          "learning_rate = 0.001",  "log_interval = 10",
                          "lr_decay_iters = 5000",  "min_lr = 0.0001",
                          "out_dir = \"out-mine\"", "warmup_iters = 100"};
  EXPECT_EQ(settings_of({file, "--data", "input.txt"}), expected);
  EXPECT_EQ(settings_of({"--data", "input.txt", file}), expected);
  EXPECT_EQ(settings_of({"--config", file, "--data", "input.txt"}), expected);
  EXPECT_EQ(settings_of({file, "--data=input.txt", "--beta2=0.5", "--batch_size=12"}).front(),
            "batch_size = 12");
  const auto refused = [&](const std::string& text, const std::string& error) {
    expect_refused({"train", folder.write("x.py", text).string()}, "x.py: " + error);
  };
  // Python has escapes in both kinds of quotes, TOML in one.
  const std::string escapes = "out_dir = 'a\\\\b\\'c\"'\n";
  EXPECT_EQ(settings_of({folder.write("e.py", escapes).string()}),
            Settings{R"(out_dir = "a\\b'c\"")"});
  EXPECT_EQ(settings_of({folder.write("e.toml", "out_dir = 'a\\b'\n").string()}),
            Settings{R"(out_dir = "a\\b")"});
  refused("out_dir = 'C:\\data'\n", "line 1: expected a text with escapes as in JSON");
  for (const char* line : {"from base import *", "from base import (seed,\n  max_iters)"})
    refused(line, std::string(line[17] == '*' ? "*" : "seed") + " is imported from another file");
  for (const char* line : {"import os, sys; max_iters = 9", "compile = False; max_iters = 9",
                           "from os import (path); seed = 2", "compile = max_iters = 9",
                           "data = ['a']; seed = 3", "compile = 'x'; seed = 3"})
    refused(line, "line 1: expected one setting a line");
  refused("from os\n", "line 1: expected from ... import ...");
  refused("eval_only = True\n", "there is no setting eval_only; to evaluate");
  refused("n_layer = ten * 2\n", "n_layer: expected one value, got 3");
  refused("n_layer = 5 / 2\n", "n_layer: expected an integer, 1 to 1000, got '2.5'");
  refused("n_layer = 1 / 0\n", "n_layer: expected one value");
  refused("n_layer = (((1)\n", "n_layer: expected an integer");
  refused("n_layer = " + std::string(5000, '(') + "1\n", "n_layer: expected an integer");
  refused("\"\"\"\nseed = 1\n", "line 1: expected the end of a text in three quotes");
  refused("init_from = 'gpt2'\n", "init_from is 'gpt2': GPT-2's weights");
  refused("if True:\n  n_layer = 3\n", "line 1: expected name = value");
  expect_refused({"train", file, file}, "--config is given twice");
  expect_refused({"train", "config/none.py"}, "config/none.py: cannot open");
  expect_refused({"train", folder.write("input.txt", "a text").string()},
                 "; to read this text, say --data before it");
  expect_refused({"sample", file}, "expected an option, got '");
}

// As strictly as the options' own names, and with the same arithmetic.
TEST(OtherNames, LlmcsNamesAreTakenFromAFile) {
  const TempFolder folder;
  const std::string file =
      folder.write("x.py",
                   "num_iterations = 10 * 100\ninput_bin = ['a.bin', 'b.bin']\n"
                   "sequence_length = 32\nbatch_size = 4\n"
                   "total_batch_size = 2 * 4 * 32\n"
                   "lr_decay_iters = max_iters // 2\n");
  EXPECT_EQ(
      settings_of({file}),
      (Settings{"batch_size = 4", "block_size = 32", "data = [\"a.bin\",\"b.bin\"]",
                "gradient_accumulation_steps = 2", "lr_decay_iters = 500", "max_iters = 1000"}));
  EXPECT_NE(run({"train", "--print_config", file}).err.find("input_bin as --data a.bin b.bin, "),
            std::string::npos);
  // Of a batch that no steps make up, where the command line says how many there are.
  const std::string odd = folder.write("odd.py", "total_batch_size = 1000\n");
  EXPECT_EQ(settings_of({odd, "--gradient_accumulation_steps=3"}),
            Settings{"gradient_accumulation_steps = 3"});
  for (const auto& [line, error] :
       {std::pair{"output_dir = f'runs/{seed}'", "output_dir: expected a plain text, got f'runs/"},
        {"num_iterations = ten * 2", "num_iterations: expected one value, got 3"},
        {"output_dir = ['a', 'b']", "output_dir: expected one value, got 2"},
        {"decay_lr = False or True", "decay_lr: expected one value, got 3"}})
    expect_refused({"train", "--print_config", folder.write("x.py", line).string()}, error);
}

TEST(OtherNames, LlmcsCommandLinesAreTaken) {
  EXPECT_EQ(
      settings_of({"-i",  "a.bin", "-j",  "b.bin",  "-o",   "out", "-y", "0",  "-b",
                   "4",   "-t",    "64",  "-d",     "2048", "-r",  "1",  "-z", "1",
                   "-c",  "0.2",   "-l",  "0.0006", "-q",   "0.5", "-u", "70", "-n",
                   "500", "-v",    "250", "-s",     "1000", "-h",  "0",  "-x", "400",
                   "-g",  "144",   "-a",  "0",      "-m",   "30"}),
      (Settings{"batch_size = 4", "block_size = 64", "data = [\"a.bin\"]", "eval_interval = 250",
                "eval_iters = 30", "gradient_accumulation_steps = 8", "learning_rate = 0.0006",
                "max_iters = 400", "min_lr = 0.0003", "recompute = true", "sample_interval = 1000",
                "val_data = [\"b.bin\"]", "warmup_iters = 70", "weight_decay = 0.2"}));
  EXPECT_EQ(
      settings_of({"--input_bin", "a.bin", "--num_iterations=20", "--val_loss_every", "5",
                   "--sequence_length", "32", "--learning_rate_decay_frac", "0",
                   "--total_batch_size=960", "--batch_size", "3", "--flash", "1",
                   "--overfit_single_batch=0"}),
      (Settings{"batch_size = 3", "block_size = 32", "data = [\"a.bin\"]", "eval_interval = 5",
                "gradient_accumulation_steps = 10", "max_iters = 20", "min_lr = 0.0"}));
  EXPECT_EQ(run({"train", "--print_config", "-k", "constant"}).err,
            "inkling: taken: -k as --schedule constant --warmup_iters 0\n");
  const Said first_start = run({"train", "--print_config", "-y", "1", "-o", "no/such/folder"});
  EXPECT_NE(first_start.err.find("a run there without -y 1"), std::string::npos) << first_start.err;
  EXPECT_EQ(run({"train", "--print_config", "--num_iterations", "20", "-q", "0.5"}).err,
            "inkling: taken: --num_iterations as --max_iters 20, -q as --min_lr 0.002\n");
  expect_refused({"train", "-e", "d12"}, "--n_layer 12");
  expect_refused({"train", "-h", "1"}, "HellaSwag");
  expect_refused({"train", "-d", "1000", "-b", "3"},
                 "-d (--gradient_accumulation_steps): expected a multiple of 480 (batch_size * "
                 "block_size), got '1000'");
  expect_refused({"train", "-d", "x"}, "-d (--gradient_accumulation_steps): expected an integer");
  expect_refused({"train", "-x", "-1"}, "-x (--max_iters) is -1; expected 0 to");
  EXPECT_EQ(settings_of({"-d", "-1", "-b", "3"}), Settings{"batch_size = 3"});  // llm.c's default
  expect_refused({"train", "-x"}, "-x: expected a value, got none");
  expect_refused({"train", "-i", "--bias"}, "-i: expected a value, got none");
  expect_refused({"train", "-y"}, "-y: expected 0 or 1, got none");
  expect_refused({"train", "-y", "2"}, "-y: expected 0 or 1, got '2'");
  expect_refused({"train", "-d"}, "-d: expected a value, got none");
  expect_refused({"train", "--decay_lr"}, "--decay_lr: expected true or false, got none");
  expect_refused({"train", "--num_iterations"}, "--num_iterations: expected a value, got none");
  expect_refused({"train", "--max_iters", "3", "--num_iterations", "4"}, "is given twice");
  expect_refused({"train", "-b", "4", "-t", "32", "-d", "1024", "--gradient_accumulation_steps=3"},
                 "--gradient_accumulation_steps is given twice: -d is the same");
  expect_refused({"train", "--min_lr=1e-5", "-q", "0.1"},
                 "-q is given twice: --min_lr is the same");
  expect_refused({"train", "--per_device_train_batch_size", "4"}, "did you mean --batch_size?");
  expect_refused({"train", "--num_train_epochs=3"}, "did you mean --max_iters?");
  expect_refused({"eval", "-b", "4"}, "there is no option -b\n");
  // What is left out of train, and why, is nothing that other commands have.
  for (const char* name : {"-n", "-g"})
    expect_refused({"sample", name, "20"},
                   std::string("there is no option ") + name + "; did you mean --max_new_tokens?");
  for (const auto& [command, name] : {std::pair{"look", "-n"},
                                      {"eval", "-n"},
                                      {"gradcheck", "-n"},
                                      {"sample", "-k"},
                                      {"sample", "--wandb_log"},
                                      {"sample", "--decay_lr"},
                                      {"gradcheck", "--compile"},
                                      {"eval", "-y"},
                                      {"eval", "-d"}})
    expect_refused({command, name, "1"}, std::string("there is no option ") + name + "\n");
  EXPECT_EQ(run({"train", "-h"}).out, run({"train", "--help"}).out);
}

// ---- the width of a terminal

struct Columns {
  explicit Columns(const std::string& columns) { setenv("COLUMNS", columns.c_str(), 1); }
  ~Columns() { unsetenv("COLUMNS"); }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;
};

TEST(Help, FitsTheWidth) {
  for (const size_t columns : {44, 60, 80, 120}) {
    const Columns width(std::to_string(columns));
    std::vector<std::vector<std::string>> all{{"--help"}};
    for (const char* command :
         {"train", "sample", "eval", "bench", "draw", "look", "report", "gradcheck", "info",
          "lesson", "exercise", "walkthrough", "tokenizer", "prepare", "suggest"})
      all.push_back({command, "--help"});
    for (const char* action : {"train", "encode", "decode", "show"})
      all.push_back({"tokenizer", action, "--help"});
    for (const std::vector<std::string>& command : all) {
      const Said help = run(command);
      EXPECT_FALSE(help.out.empty());
      std::istringstream lines(help.out);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), columns) << command[0] << ": " << line;
    }
  }
  const Columns unknown("");
  const auto squeezed = [](const std::string& text) {
    return std::regex_replace(text, std::regex("\\s+"), " ");
  };
  const std::string piped = run({"train", "--help"}).out;
  {
    const Columns width("44");
    EXPECT_EQ(squeezed(run({"train", "--help"}).out), squeezed(piped));  // every word is there
  }
  size_t longest = 0;
  std::istringstream lines(piped);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 80u);
  EXPECT_GE(longest, 75u);
  size_t at = 0;  // groups, and what is common first in each
  for (const char* text :
       {"\nData:\n  --data TEXT", "\nModel:\n  --n_layer ", "\nTraining:\n  --max_iters ",
        "\nOutput:\n  --out_dir ", "\nMachine:\n  --device ", "\nOptions:\n  --config "}) {
    const size_t found = piped.find(text, at);
    ASSERT_NE(found, std::string::npos) << text << piped;
    at = found;
  }
  EXPECT_EQ(piped.find("00000"), std::string::npos) << "a range that nobody reads";
}

TEST(Help, FilledLines) {
  EXPECT_EQ(filled("a bb ccc [1 to 9] d", 8, 2), "a bb ccc\n  [1 to 9]\n  d");
  EXPECT_EQ(filled("  two  words", 80, 4), "  two  words");
  EXPECT_EQ(filled("abcdefgh ij", 4, 1), "abcdefgh\n ij");
  EXPECT_EQ(filled("a b\nc d\n", 3, 2), "a b\nc d\n");
  EXPECT_EQ(filled("a [b c\nd] e", 3, 0), "a\n[b\nc\nd]\ne");  // no bracket of one line
  EXPECT_EQ(filled("é é é é", 3, 0), "é é\né é");              // characters, not bytes
  EXPECT_EQ(filled("", 10, 0), "");
  EXPECT_EQ(filled("    (a): b c\nd e", 10, 1), "    (a): b\n      c\nd e") << "a tree";
}

// A line of a command that is broken is another command.
TEST(Help, CommandsAreNotBroken) {
  const std::string go_on = typed("train --overwrite --data 'a b.txt' --out_dir c");
  EXPECT_EQ(filled("To go on: " + go_on + "; or not at all", 12, 2),
            "To go on:\n  " + go_on + ";\n  or not at\n  all");
  EXPECT_EQ(wrapped("a b. To go on: " + go_on, 12, 2), "a b.\n  To go on:\n  " + go_on);
  EXPECT_EQ(filled("in " + typed("info") + " (it is short)", 12, 2),
            "in\n  " + typed("info") + "\n  (it is\n  short)");
  EXPECT_EQ(filled("usage: " + typed("x TEXT..."), 12, 2),
            "usage:\n  " + typed("x") + "\n  TEXT...");
}

TEST(CommandLine, WordsThatAreNoOptions) {
  expect_refused({"train", "x"}, "expected an option, got 'x'");
  expect_refused({"train", "-X"}, "there is no option -X");
  expect_refused({"walkthrough", "-x"}, "there is no option -x");
  expect_refused({"lesson", "0", "x"}, "expected an option, got 'x'");
  expect_refused({"exercise", "5", "x"}, "expected an option, got 'x'");
  expect_refused({"exercise", "5", "--hints"}, "there is no option --hints");
  for (const std::string name : {"--eval_iters", "--batch_size", "--split"})
    expect_refused({"eval", name, "3"}, "there is no option " + name + "; eval measures all ");
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

// What people type out of habit is answered by what to type here.
TEST(CommandLine, HabitsAreAnswered) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "abc"), yaml = folder.write("a.yaml", "a: 1");
  std::filesystem::create_directories(folder / "run/ckpt");
  const std::string run_folder = folder / "run";
  for (const std::string command : {"sample", "eval", "info"})
    expect_refused({command, run_folder}, "; to name this run, say --out_dir before it");
  for (const std::string command : {"train", "eval", "suggest"})
    expect_refused({command, text}, "; to read this text, say --data before it");
  expect_refused({"train", yaml}, "; a config file has lines NAME = VALUE");
  expect_refused({"sample", "Once upon"}, "; to continue a text, say --start before it");
  for (const char* word : {"yes", "off"})
    expect_refused({"train", "--bias", word},
                   "--bias: expected true or false, got '" + std::string(word));
  for (const char* dash : {"\u2014", "\u2013\u2013", "\u2212"}) {
    const std::string option = std::string(dash) + "max_iters";
    expect_refused({"train", option, "3"},
                   option + ": its dash is one of documents; type --max_iters");
    expect_refused({"train", "--data", text, option, "3"}, "type --max_iters");
  }
  EXPECT_EQ(option_typed("--out_dir", "--x"), "--out_dir=--x");
  EXPECT_EQ(option_typed("--out_dir", "a b"), "--out_dir 'a b'");
  for (const std::string name : {"caf\xe9", "a\tb'\\x41", "\x1b[1m\nb"})  // printed, and typed
    EXPECT_EQ(run_shell("bash -c '. /dev/stdin' <<'EOF'\nprintf %s " + printable(for_shell(name)) +
                        "\nEOF\n:")
                  .out,
              name);
  expect_refused({"sample", "--start", "Once", "upon"}, "a text of several words stands in quotes");
  expect_refused({"report", "--out_dir", "x"}, "need no name: inkling report FOLDER");
  expect_refused({"suggest", "--hours", "1"}, "did you mean --minutes?");
  expect_refused({"train", "--temperature", "1"}, "type inkling sample --start TEXT");
  expect_refused({"train", "--train_files", "x"}, "did you mean --data?");
  expect_refused({"train", "--val_bin=x"}, "did you mean --val_data?");
  expect_refused({"train", "--cooldown_frac=0.4"}, "did you mean --lr_decay_iters?");
  expect_refused({"train", "--MAX_ITERS", "2"}, "did you mean --max_iters?");
  EXPECT_NE(run({"TRAIN"}).err.find("did you mean train?"), std::string::npos);
  expect_refused({"train", "--data", text, "-max_iters", "2"}, "there is no option -max_iters");
  expect_refused({"train", "--data", "-b", "2"}, "--data: expected a value, got -b");
  const Said said = run({"train", "--data", text, "-b", "4", "--print_config"});
  EXPECT_NE(said.out.find("\nbatch_size = 4\n"), std::string::npos) << said.err;
  EXPECT_NE(run({"tokenizer", "encode", "--tokenizer", "byte", "hello"})
                .err.find("there is no file hello; a text itself comes from a pipe"),
            std::string::npos);
  EXPECT_EQ(run({"tokenizer"}).code, kUsage);
  EXPECT_EQ(run({"tokenizer", "--help"}).code, kOk);
}

// "-" is standard output wherever an option names a file, or is refused; no file is called so.
TEST(CommandLine, ADashIsStandardOutputOrRefused) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "a rose is a rose is a rose");
  const Said json =
      run({"tokenizer", "train", text, "--vocab_size", "260", "--min_frequency=0", "--out", "-"});
  EXPECT_EQ(json.code, kOk) << json.err;
  EXPECT_EQ(json.out.substr(0, 1) + json.out.substr(json.out.find_last_not_of('\n'), 1), "{}");
  expect_refused({"sample", "--attention", "-"}, "--attention: standard output has");
  const std::string out_dir = folder / "out";
  expect_refused({"train", "--profile", "-", "--out_dir", out_dir}, "--profile: standard output");
  EXPECT_FALSE(std::filesystem::exists(out_dir));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

// An option that would do nothing is refused, and nothing is written; a default may be said.
TEST(CommandLine, OptionsThatDoNothingAreRefused) {
  const TempFolder folder;
  const std::string out = folder / "out", text = folder.write("a.txt", "abc");
  const auto refused = [&](std::vector<std::string> words, const std::string& name) {
    words.insert(words.begin(), {"train", "--out_dir", out});
    expect_refused(words, "--" + name + " does nothing here: ");
    words.push_back("--print_config");
    expect_refused(words, "--" + name + " does nothing here: ");
  };
  for (const auto& [name, value] : {std::pair{"tokenizer", "byte"},
                                    {"tokenizer", "b.json"},
                                    {"pack", "within"},
                                    {"task_digits", "5"},
                                    {"val_fraction", "0.2"}})
    refused({std::string("--") + name, value}, name);
  refused({"--data", "task:addition", "--tokenizer", "byte"}, "tokenizer");
  refused({"--data", "task:addition", "--val_data", text}, "val_data");
  refused({"--data", "task:addition", "--val_fraction", "0.2"}, "val_fraction");
  refused({"--data", text, "--task_digits", "3"}, "task_digits");
  refused({"--data", text, "--val_data", text, "--val_fraction", "0.2"}, "val_fraction");
  refused({"--config", folder.write("x.py", "tokenizer = 'byte'\n")}, "tokenizer");
  expect_refused({"draw", "--tokenizer", "byte"}, "--tokenizer does nothing here: ");
  refused({"--momentum", "0.8"}, "momentum");
  refused({"--optimizer", "sgd", "--beta1", "0.8"}, "beta1");
  refused({"--optimizer", "sgd", "--beta2", "0.8"}, "beta2");
  refused({"--decay_fraction", "0.5"}, "decay_fraction");
  if (launched_processes() == 0) refused({"--shard_optimizer", "true"}, "shard_optimizer");
  if (launched_processes() == 0)
    refused({"--wire_dtype", "bfloat16", "--batch_parts", "1"}, "wire_dtype");
  refused({"--model", "llama", "--rope_factor", "4"}, "rope_factor");
  refused({"--model", "llama", "--rope_scaling", "linear"}, "rope_scaling");
  refused(
      {"--model", "llama", "--rope_scaling", "linear", "--rope_factor", "2", "--beta_slow", "2"},
      "beta_slow");
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(settings_of({"--tokenizer", "char", "--val_fraction=0.1", "--task_digits=0"}),
            Settings{});
  EXPECT_EQ(settings_of({"--data", "task:modular", "--val_fraction", "0.6", "--task_digits=5"}),
            (Settings{"data = [\"task:modular\"]", "task_digits = 5", "val_fraction = 0.6"}));
  EXPECT_EQ(settings_of({"--optimizer", "muon", "--momentum", "0.8", "--beta1", "0.8"}),
            (Settings{"beta1 = 0.8", "momentum = 0.8", "optimizer = \"muon\""}));
  const std::string several = folder.write("y.py", "momentum = 0.8\n");
  EXPECT_EQ(settings_of({"--config", several}), Settings{"momentum = 0.8"})
      << "a config file may hold settings for several runs";
  EXPECT_EQ(settings_of({"--wire_dtype", "bfloat16"}), Settings{"wire_dtype = \"bfloat16\""});
  EXPECT_EQ(run_shell("OMPI_COMM_WORLD_SIZE=1 inkling train --print_config --shard_optimizer true "
                      "--wire_dtype bfloat16 --batch_parts 1")
                .code,
            0)
      << "of however many processes mpirun starts";
  for (const char* name : {"--task_digits", "--pack", "--shard_optimizer"})
    expect_refused({"bench", name, "1"}, std::string("there is no option ") + name);
}

// What a command reads, or what a person wrote, is not replaced by what it writes.
TEST(CommandLine, InputsAreNotReplaced) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", std::string(3000, 'a') + std::string(3000, 'b')),
                    out = folder / "out", other = (folder / "." / "a.txt").string(),
                    line = "{\"step\":10,\"train_loss\":2.5}\n";
  std::filesystem::create_directories(folder / "run");
  const std::string run_folder = folder / "run", metrics = folder.write("run/metrics.jsonl", line);
  const std::vector<std::string> train{"train", "--out_dir", out, "--profile", other, "--data"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string reads = ": the command reads ", keeps = ": the run keeps a file";
  expect_refused(with(train, {text}), "--profile" + reads);
  expect_refused(with(train, {folder.path()}), "--profile" + reads);
  expect_refused(with(train, {metrics, "--val_data", text}), "--profile" + reads);
  expect_refused(with(train, {metrics, "--tokenizer", text}), "--profile" + reads);
  expect_refused({"tokenizer", "train", "--out", other, text}, "--out" + reads);
  expect_refused({"bench", "--compare", text, text, "--json", other}, "--json" + reads);
  expect_refused({"draw", "--data", text, "--out", other}, "--out" + reads);
  expect_refused({"look", "--start", "FILE:" + text, "--out", other}, "--out" + reads);
  expect_refused({"sample", "--start", "FILE:" + text, "--attention", other},
                 "--attention" + reads);
  for (const char* option : {"--csv", "--svg", "--out"})
    expect_refused({"report", run_folder, option, metrics}, option + keeps);
  for (const char* command : {"look", "sample"}) {
    const std::string option = command == std::string("look") ? "--out" : "--attention";
    expect_refused({command, "--out_dir", run_folder, option, run_folder + "/ckpt/state.json"},
                   option + keeps);
  }
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(read_file(text).size(), 6000u);
  EXPECT_EQ(read_file(metrics), line);
  const std::string page = folder.write("run/report.html", "my own page");
  const Said refused = run({"report", run_folder});
  EXPECT_EQ(refused.code, kFailed);
  EXPECT_NE(refused.err.find(page + ": expected a file that inkling wrote"), std::string::npos);
  EXPECT_EQ(read_file(page), "my own page");
  EXPECT_EQ(run({"report", run_folder, "--out", page}).code, kOk);  // by its name
  EXPECT_EQ(run({"report", run_folder}).code, kOk);
}

TEST(CommandLine, WithoutARunThereIsNothingToReport) {
  const TempFolder folder;
  for (const std::string& none : {folder.path().string(), (folder / "none").string()}) {
    const Said said = run({"report", none});
    EXPECT_EQ(said.code, kFailed);
    EXPECT_EQ(said.err, "inkling report: there is no run in " + none + ", which has no " +
                            "metrics.jsonl; to make one: inkling train --out_dir " + none + "\n");
  }
}

TEST(CommandLine, PicturesAreSvg) {
  const TempFolder folder;
  for (const char* name : {"a.png", "a.svg.png", "a.html"}) {
    const std::string file = folder / name;
    expect_refused({"draw", "--out", file}, "--out: expected a name that ends with .svg");
    expect_refused({"report", folder.path(), "--svg", file},
                   "--svg: expected a name that ends with .svg");
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST(CommandLine, AVocabularySmallerThanAskedForIsExplained) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a rose is a rose is a rose\n";
  const std::string file = folder.write("a.txt", text), json = folder / "a.json";
  const Said said = run({"tokenizer", "train", "--vocab_size", "2000", "--out", json, file});
  EXPECT_NE(said.out.find("Fewer than --vocab_size 2000: no other pair of tokens is met 2 times"),
            std::string::npos)
      << said.out;
  const Said trained = run({"train", "--max_iters", "0", "--final_eval", "off", "--block_size", "8",
                            "--n_layer", "1", "--report", "off", "--data", file, "--tokenizer",
                            "bpe:2000", "--out_dir", folder / "out"});
  EXPECT_EQ(trained.code, kOk) << trained.err;
  EXPECT_NE(trained.err.find("tokens, because no other pair is met 2 times"), std::string::npos)
      << trained.err;
  EXPECT_EQ(
      run({"tokenizer", "train", "--vocab_size", "258", "--out", json, file}).out.find("Fewer"),
      std::string::npos);
}

// mpirun starts a program that knows nothing of others as often as it is asked: each would train
// alone, in the same folder.
TEST(CommandLine, SeveralProcessesNeedAnEngine) {
  if (!processes_engine().empty()) GTEST_SKIP() << "this build has one";
  const TempFolder folder;
  const auto started = [&](int rank) {
    return run_shell("export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=" + std::to_string(rank) +
                     "; inkling train --max_iters 1 --out_dir " + (folder / "out").string());
  };
  const Ran first = started(0), second = started(1);
  EXPECT_EQ(first.code, 1);
  EXPECT_EQ(first.err,
            "inkling train: was started as one of 2 processes, but is built without MPI; build it "
            "with -DINKLING_MPI=ON (./run.sh build mpi, in build/mpi), or start one process\n");
  EXPECT_EQ(second.out + second.err, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// Help needs no threads; and no more than the option says are started.
TEST(CommandLine, ThreadsAreCountedOnceTheOptionIsKnown) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves terabytes";
#endif
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_max < rlim_t{262144} * 1024)
    GTEST_SKIP() << "no more stack may be asked for";
  const auto limited = [](const std::string& command) {
    return run_shell("export OMP_NUM_THREADS=64; ulimit -s 262144; ulimit -v 6000000; inkling " +
                     command);
  };
  EXPECT_EQ(limited("train --help").code, 0);
  EXPECT_NE(limited("eval --out_dir none --threads 1").err.find("no such checkpoint"),
            std::string::npos);
  EXPECT_NE(limited("eval --out_dir none").err.find(" of 64 (OMP_NUM_THREADS); choose fewer"),
            std::string::npos);
}

// Words that no file is called by.
TEST(CommandLine, NamesThatAreNoFilesAreAnswered) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "abc");
  for (const auto& [name, answer] :
       {std::pair{"-", "train and tokenizer train read standard input as /dev/stdin, and prepare"},
        {"https://x.org/a.txt", "nothing is fetched: download it"},
        {"a.txt,b.txt", "several stand apart, as in a.txt b.txt"},
        {"task:", "a task stands alone, as in train --data task:addition"},
        {"task:addition", "a task stands alone"}}) {
    const std::string said = std::string(name) + ": there is no such file; " + answer;
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"train", "--out_dir", folder / "out", "--data", text, name},
          {"train", "--out_dir", folder / "out", "--data", text, "--val_data", name},
          {"tokenizer", "train", "--vocab_size", "300", "--out", folder / "x.json", name},
          {"prepare", "--tokenizer", "byte", "--out_dir", folder / "out", name}}) {
      const Said refused = run(words);
      EXPECT_EQ(refused.code, kFailed) << words[0];
      EXPECT_NE(refused.err.find(said), std::string::npos) << refused.err;
    }
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
  for (const std::string command : {"sample", "eval", "look", "info", "draw"})
    for (const std::string& value : {file, std::string("/dev/null")})
      expect_refused({command, "--out_dir", value},
                     "--out_dir: expected a folder, " + value + " is none");
  expect_refused({"prepare", file, "--out_dir", file},
                 "--out_dir: expected a folder, " + file + " is none");
  expect_refused({"report", file}, "run: expected a folder, " + file + " is none");
  for (const std::string command :
       {"sample", "eval", "look", "gradcheck", "draw", "bench", "train"})
    expect_refused({command, "--device", "tpu"}, "--device: there is none called 'tpu'");
  for (const std::string command : {"train", "draw", "bench"})
    expect_refused({command, "--n_head", "7"}, "n_embd is 128; expected a multiple of n_head, 7");
  for (const std::string command : {"sample", "look"}) {
    expect_refused({command, "--start", "FILE:"},
                   "--start: expected the name of a file after FILE:");
    expect_refused({command, "--start", "FILE:-"}, "--start: standard input is FILE:/dev/stdin");
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
  const std::string link = folder / "link";
  std::filesystem::create_symlink(none, link);
  expect_failed({"train", "--out_dir", link},
                "--out_dir: " + link + ": expected a folder, got a link to nothing");
  for (const std::string command : {"sample", "eval", "prepare"})
    expect_refused({command, "--out_dir", link, command == "prepare" ? file : "--threads=1"},
                   "--out_dir: expected a folder, " + link + " is none");
  EXPECT_NE(run({"look", "--start", "", "--out_dir", none}).err.find("there is no such checkpoint"),
            std::string::npos);
  expect_failed({"train", "--out_dir", file + "/x"}, "--out_dir: " + file + "/x: ");
  expect_failed({"train", "--profile", in_none, "--out_dir", out}, "--profile: " + in_none);
  expect_failed({"sample", "--attention", in_none}, "--attention: " + in_none);
  for (const std::string command : {"look", "draw", "report"})
    expect_failed({command, "--out", in_none}, "--out: " + in_none);
  expect_failed({"report", "--svg", in_none}, "--svg: " + in_none);
  expect_failed({"report", "--csv", folder.path().string()}, "--csv: " + folder.path().string());
  expect_failed({"bench", "--json", in_none}, "--json: " + in_none);
  expect_failed({"bench", "--weights", none}, "--weights: " + none);
  expect_failed({"tokenizer", "train", "--vocab_size", "300", "--out", out, none},
                "text: " + none + ": cannot open");
  expect_failed({"exercise", "5", "--checkout", none}, "--checkout: " + none);
}

// Another model on the sizes of a Llama does not have its heads of keys, and nobody asked for them.
TEST(CommandLine, BenchHasAnotherModelOfTheSameSizes) {
  const Said said =
      run({"bench", "--config", "llama8", "--model", "gpt", "--n_layer", "1", "--n_embd", "12",
           "--block_size", "4", "--batch_size", "1", "--steps", "1", "--profile_steps", "0"});
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_NE(said.out.find("gpt: B 1, T 4"), std::string::npos) << said.out;
  expect_refused({"bench", "--config", "llama8", "--model", "gpt", "--n_kv_head", "3"},
                 "n_kv_head is no setting of model gpt");
}

// A model of one's own may have a setting of the name of an option that only one command has.
TEST(CommandLine, TwoOptionsOfOneNameAreRefused) {
  CommandOptions command("bench", "Has two.");
  int64_t steps = 0;
  command.add("--steps", &steps, "of the command");
  command.add("--steps", &steps, "of a model");
  EXPECT_EQ(error_of([&] {
              command.parse({"--steps", "3"});
            }),
            "two options are called --steps; give the setting of your model another name");
}

// A model of one's own may have a setting that is on: the help says so, and how to turn it off.
TEST(CommandLine, TheHelpShowsFlagsThatAreOn) {
  CommandOptions command("train", "Has two flags.");
  bool gated = true, tied = false;
  command.flag("--gated", gated, "a gate");
  command.flag("--tied", tied, "one table");
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(command.parse({"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(help.find("--gated=true "), std::string::npos) << help;
  EXPECT_NE(help.find("--tied  "), std::string::npos) << help;
  EXPECT_TRUE(command.parse({"--gated=false"}));
  EXPECT_FALSE(gated);
}

}  // namespace
}  // namespace ink
