// Exercises: their kept solutions pass, their holes are seen, and typical mistakes are named.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// Each file's last line registers the exercise with its solution here, where a reader's becomes a
// program.
#define INK_JOINED(a, b) a##b
#define INK_NAMED(line) INK_JOINED(kept_, line)
#define INK_EXERCISE(...) \
  const bool INK_NAMED(__COUNTER__) = (kept().push_back([] { return __VA_ARGS__; }), true);

#ifdef INKLING_HAS_EMULATOR  // with which kernels run here
#include "train/lessons/exercises/cuda.h"
#endif
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/texts.h"

namespace {

std::vector<std::function<ink::Exercise()>>& kept() {
  static std::vector<std::function<ink::Exercise()>> list;
  return list;
}

}  // namespace

// In their order.
#include "train/lessons/exercises/01_chain_rule.cpp"
#include "train/lessons/exercises/02_broadcasting.cpp"
#include "train/lessons/exercises/03_matmul.cpp"
#include "train/lessons/exercises/04_embedding.cpp"
#include "train/lessons/exercises/05_softmax.cpp"
#include "train/lessons/exercises/06_cross_entropy.cpp"
#include "train/lessons/exercises/07_layer_norm.cpp"
#include "train/lessons/exercises/08_tape.cpp"
#include "train/lessons/exercises/09_attention.cpp"
#include "train/lessons/exercises/10_attention_backward.cpp"
#include "train/lessons/exercises/11_dropout.cpp"
#include "train/lessons/exercises/12_adamw.cpp"
#include "train/lessons/exercises/13_rotary.cpp"
#include "train/lessons/exercises/14_cache.cpp"
#include "train/lessons/exercises/15_gpt.cpp"
#include "train/lessons/exercises/16_merges.cpp"
#include "train/lessons/exercises/17_rms_norm.cpp"
#include "train/lessons/exercises/18_swiglu.cpp"
#include "train/lessons/exercises/19_clipping.cpp"
#include "train/lessons/exercises/20_top_p.cpp"
#include "train/lessons/exercises/21_accumulation.cpp"
#include "train/lessons/exercises/22_strides.cpp"
#include "train/lessons/exercises/23_loader.cpp"
#include "train/lessons/exercises/24_ranks.cpp"
#include "train/lessons/exercises/25_versions.cpp"
#include "train/lessons/exercises/26_checkpointing.cpp"
#include "train/lessons/exercises/27_flops.cpp"
#ifdef INKLING_HAS_EMULATOR
#include "tests/cli/faulty_kernels.inc"
#include "train/lessons/exercises/28_gpu_add.cu"
#include "train/lessons/exercises/29_gpu_softmax.cu"
#include "train/lessons/exercises/30_gpu_product.cu"
#include "train/lessons/exercises/31_gpu_sum.cu"
#endif

namespace ink {
namespace {

struct Checked {
  bool right;
  std::string text;
};

Checked checked(const Exercise& exercise) {
  std::ostringstream out;
  const bool right = check(exercise, out);
  return {right, out.str()};
}

TEST(Exercises, KeptSolutionsAreRight) {
#ifdef INKLING_HAS_EMULATOR
  ASSERT_EQ(kept().size(), exercises().size());
#endif
  for (size_t i = 0; i < kept().size(); ++i) {
    const Exercise exercise = kept()[i]();
    EXPECT_EQ(exercise.name, exercises()[i].name);
    const Checked result = checked(exercise);
    EXPECT_TRUE(result.right) << result.text;
    EXPECT_EQ(result.text.find("WRONG"), std::string::npos) << result.text;
    EXPECT_NE(result.text.find("  right  "), std::string::npos) << result.text;
  }
}

// What f gives, computed once for each case.
Answer remembered(const Answer& f) {
  return [f, known = std::make_shared<std::map<const Tensors*, Tensors>>()](const Tensors& in) {
    if (!known->count(&in)) known->emplace(&in, f(in));
    return known->at(&in);
  };
}

// Each is named by its own sentence, and by no other.
TEST(Exercises, MistakesAreNamed) {
  for (const auto& make : kept()) {
    Exercise exercise = make();
    size_t mistakes = 0;
    std::set<std::string> sentences;
    exercise.finale = {};
    for (size_t p = 0; p < exercise.tasks.size(); ++p) {
      Exercise one = exercise;
      one.tasks = {exercise.tasks[p]};
      Task& task = one.tasks[0];
      task.expected = remembered(task.expected);
      for (Mistake& mistake : task.mistakes) mistake.answer = remembered(mistake.answer);
      for (const Mistake& wrong : task.mistakes) {
        ++mistakes;
        EXPECT_TRUE(sentences.insert(task.function + wrong.sentence).second) << wrong.sentence;
        task.answer = wrong.answer;
        const Checked result = checked(one);
        EXPECT_FALSE(result.right) << result.text;
        for (const Mistake& other : task.mistakes)
          EXPECT_EQ(result.text.find("  " + other.sentence + "\n") != std::string::npos,
                    other.sentence == wrong.sentence)
              << exercise.name << ": " << wrong.sentence << "\n"
              << other.sentence << "\n"
              << result.text;
      }
    }
    EXPECT_GE(mistakes, 3u) << exercise.name;
  }
}

TEST(Exercises, HolesAndErrorsAreSaid) {
  Exercise exercise = kept()[4]();
  Task& task = exercise.tasks[0];
  task.answer = [](const Tensors&) -> Tensors { todo("softmax_backward"); };
  const Checked hole = checked(exercise);
  EXPECT_FALSE(hole.right);
  EXPECT_NE(
      hole.text.find("  softmax_backward is not written yet: its todo() still stands there\n"),
      std::string::npos);
  EXPECT_EQ(hole.text.find("WRONG"), std::string::npos) << hole.text;

  task.answer = [](const Tensors& in) -> Tensors { return {matmul(in[0], zeros({99, 2}))}; };
  const Checked throws = checked(exercise);
  EXPECT_FALSE(throws.right);
  EXPECT_NE(throws.text.find("it throws: matmul: "), std::string::npos) << throws.text;

  task.answer = [](const Tensors& in) -> Tensors { return {in[0].sum()}; };
  EXPECT_NE(checked(exercise).text.find("dx has the shape (), expected (3, 4)"), std::string::npos)
      << checked(exercise).text;

  const Answer right = kept()[4]().tasks[0].answer;
  task.answer = [right](const Tensors& in) -> Tensors {
    const Tensors result = right(in);
    Tensor dy = in[0];
    dy.add_(1);
    return result;
  };
  const Checked changed = checked(exercise);
  EXPECT_FALSE(changed.right);
  EXPECT_NE(changed.text.find("it changes its inputs"), std::string::npos) << changed.text;

  const Checked in_place =
      checked(adamw_exercise([](const Tensors& p_m_v, const Tensor&, int64_t, const AdamSettings&) {
        Tensor(p_m_v[0]).mul_(2);
        return p_m_v;
      }));
  EXPECT_NE(in_place.text.find("it changes its inputs"), std::string::npos) << in_place.text;
}

// The worst element, with both numbers.
TEST(Exercises, TheWorstElementIsNamed) {
  Exercise exercise = kept()[4]();
  Task& task = exercise.tasks[0];
  task.cases.resize(1);
  const Answer right = task.answer;
  task.answer = [right](const Tensors& in) -> Tensors {
    const Tensor dx = right(in)[0].clone();
    dx.select(0, 2).select(0, 1).fill_(7);
    return {dx};
  };
  const Checked result = checked(exercise);
  EXPECT_NE(result.text.find("WRONG  a matrix"), std::string::npos) << result.text;
  EXPECT_NE(result.text.find("dx[2, 1]: yours 7, by differences "), std::string::npos)
      << result.text;
}

#ifndef __SANITIZE_ADDRESS__  // which has a word of its own on it
std::vector<double> recursive(const Graph& graph, int loss) {
  std::vector<double> grad(graph.size());
  const std::function<void(int, double)> hand = [&](int number, double g) {
    grad[number] += g;
    for (size_t i = 0; i < graph[number].inputs.size(); ++i)
      hand(graph[number].inputs[i], g * graph[number].slopes[i]);
  };
  hand(loss, 1);
  return grad;
}

TEST(ExercisesDeathTest, ARecursionThatIsTooDeepIsExplained) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // GTEST_FLAG_SET is newer than 1.11
  char program[] = "exercise";
  char* arguments[] = {program, nullptr};
  setenv("OMP_WAIT_POLICY", "passive", 1);
  EXPECT_EXIT(
      {
        dup2(2, 1);
        std::exit(run_check(arguments, [] { return tape_exercise(recursive); }));
      },
      testing::ExitedWithCode(1), "ran out of stack");
}
#endif

// ---- texts

TEST(Exercises, TheFileHasAHoleAndNoSolution) {
  for (const Exercise& exercise : exercises()) {
    const std::string source = exercise_source(exercise.name), file = with_holes(source);
    const std::string number = std::to_string(std::stoi(exercise.name.substr(0, 2)));
    EXPECT_EQ(title_of(source).rfind("Exercise " + number + ": ", 0), 0u) << title_of(source);
    size_t holes = 0;
    for (size_t at = file.find("todo(\""); at != std::string::npos;
         at = file.find("todo(\"", at + 1))
      ++holes;
    EXPECT_EQ(holes, exercise.tasks.size()) << exercise.name;
    for (const Task& task : exercise.tasks) {
      EXPECT_NE(file.find("  // Your part.\n  todo(\"" + task.function + "\");\n}\n"),
                std::string::npos)
          << file;
      EXPECT_NE(solution_of(source).find(" " + task.function + "("), std::string::npos);
    }
    EXPECT_EQ(file.find("// >>>"), std::string::npos) << file;
    EXPECT_EQ(file.find("// <<<"), std::string::npos) << file;
    const std::string solution = solution_of(source);
    EXPECT_EQ(solution.find(">>>"), std::string::npos);
    EXPECT_EQ(solution.find("INK_EXERCISE"), std::string::npos);
    EXPECT_LT(std::count(file.begin(), file.end(), '\n'), 70) << exercise.name;  // a page
    EXPECT_FALSE(exercise.lesson.empty());
    EXPECT_GE(exercise.hints.size(), 3u) << exercise.name;
    for (const std::string& hint : exercise.hints) EXPECT_GT(hint.size(), 40u) << exercise.name;
  }
}

TEST(Exercises, TheLibrarysOwnSourceIsFound) {
  for (const Exercise& exercise : exercises()) {
    std::ifstream in(std::string(INKLING_SOURCE_DIR) + "/" + exercise.library.file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string definition = definition_in(text, exercise.library.begins);
    EXPECT_NE(definition.find(exercise.library.begins), std::string::npos) << exercise.name;
    EXPECT_EQ(definition.back(), '\n');
    EXPECT_GT(exercise.library.why.size(), 80u) << exercise.name;
  }
}

// ---- the program, and a reader's road from the hole to the solution

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in\n" << text;
}

TEST(Exercises, InTheProgram) {
  const TempFolder folder;
  const std::string at = " --checkout " + folder.path().string();
  const std::filesystem::path file = folder / "exercises/05_softmax.cpp";

  EXPECT_EQ(run_program("exercise 5" + at).code, 0);
  EXPECT_EQ(text_of(file), with_holes(exercise_source("05_softmax")));
  const Ran list = run_program("exercise" + at);
  expect_in("   5  softmax             the gradient of softmax                      begun\n",
            list.out);
  expect_in("  15  gpt                 a GPT of your own parts                      open\n",
            list.out);
  expect_in("   1  chain_rule          the chain rule, by hand                      open <-\n",
            list.out);

  folder.write("exercises/05_softmax.cpp", "mine");
  for (const std::string name : {"5", "05", "softmax", "05_softmax"})
    expect_in("05_softmax.cpp is there already", run_program("exercise " + name + at).out);
  EXPECT_EQ(text_of(file), "mine");

  const std::vector<std::string> hints = exercises()[4].hints;
  for (size_t i = 0; i < hints.size() + 2; ++i) {  // each time one more
    const Ran hint = run_program("exercise softmax --hint" + at);
    for (size_t k = 0; k < hints.size(); ++k)
      EXPECT_EQ(hint.out.find(in_lines(std::to_string(k + 1) + " of 3: " + hints[k])) !=
                    std::string::npos,
                k <= i)
          << i << k << hint.out;
    EXPECT_EQ(hint.out.find("return y"), std::string::npos);
    EXPECT_EQ(hint.out.find("--solution") != std::string::npos, i + 1 >= hints.size()) << hint.out;
  }
  EXPECT_EQ(text_of(file), "mine");
  const Ran solution = run_program("exercise 5 --solution --checkout " INKLING_SOURCE_DIR);
  expect_in("  return y * (dy - sum(dy * y, {-1}, /*keepdim=*/true));\n", solution.out);
  expect_in("autograd/ops/softmax.cpp", solution.out);
  expect_in("void softmax_backward(Array& dx", solution.out);

  for (const std::string wrong : {"99", "softmin", "5 --check", "5 --watch", "--hint"})
    EXPECT_EQ(run_program("exercise " + wrong + at).code, 2) << wrong;
  expect_in("did you mean softmax?", run_program("exercise softmix" + at).err);
}

// Compiles a reader's file as run.sh's `ninja exercise_NN` does, but one in a folder of the test's,
// and runs it.
Ran compiled_and_run(const TempFolder& folder, const std::string& name,
                     const std::string& extension = ".cpp") {
  const std::string build = std::filesystem::path(program_path()).parent_path().string();
  const std::string target = "exercise_" + name.substr(0, 2), here = folder.path().string();
  const std::string file = "exercises/" + name + extension;
  const std::string edits = "s|" INKLING_SOURCE_DIR "/" + file + "|" + here + "/" + file + "|g; " +
                            "s|CMakeFiles/" + target + ".dir/" + file + "|" + here + "/object|g; " +
                            "s|-o " + target + " |-o " + here + "/answer |";
  return run_shell("cd " + build + " && ninja -t commands " + target + " | grep " + target +
                   " | sed '" + edits + "' >" + here + "/commands && sh -e " + here +
                   "/commands && " + here + "/answer " + here + "/" + file);
}

TEST(Exercises, FromTheHoleToTheSolution) {
  const TempFolder folder;
  if (!exists(std::filesystem::path(program_path()).parent_path() / "build.ninja"))
    GTEST_SKIP() << "not built by ninja here";
  ASSERT_EQ(run_program("exercise 5 --checkout " + folder.path().string()).code, 0);
  const Ran hole = compiled_and_run(folder, "05_softmax");
  EXPECT_EQ(hole.code, 1) << hole.err;
  expect_in("softmax_backward is not written yet", hole.out);
  expect_in("./run.sh exercise 5 --hint", hole.out);

  folder.write("exercises/05_softmax.cpp", exercise_source("05_softmax"));
  const Ran right = compiled_and_run(folder, "05_softmax");
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  expect_in("  right  -inf under a mask", right.out);
  expect_in("All is right.", right.out);
  expect_in("In the library: autograd/ops/softmax.cpp", right.out);
}

#ifdef INKLING_HAS_EMULATOR
TEST(Exercises, AKernelFromTheHoleToTheSolution) {
  const TempFolder folder;
  if (!exists(std::filesystem::path(program_path()).parent_path() / "build.ninja"))
    GTEST_SKIP() << "not built by ninja here";
  ASSERT_EQ(run_program("exercise gpu_add --checkout " + folder.path().string()).code, 0);
  const Ran hole = compiled_and_run(folder, "28_gpu_add", ".cu");
  EXPECT_EQ(hole.code, 1) << hole.err;
  expect_in("gpu_add is not written yet", hole.out);

  // Without its guard, in the line of the reader's file.
  std::string source = exercise_source("28_gpu_add");
  const size_t guard = source.find("if (i < n) ");
  const auto line = 1 + std::count(source.begin(), source.begin() + static_cast<long>(guard), '\n');
  source.erase(guard, std::string("if (i < n) ").size());
  folder.write("exercises/28_gpu_add.cu", source);
  const Ran wrong = compiled_and_run(folder, "28_gpu_add", ".cu");
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  expect_in("line " + std::to_string(line) + ": out of bounds: thread ", wrong.out);

  source.insert(guard, "__shared__ float part[8];");
  folder.write("exercises/28_gpu_add.cu", source);
  const Ran plain = compiled_and_run(folder, "28_gpu_add", ".cu");
  EXPECT_EQ(plain.code, 1) << plain.err;
  expect_in("line " + std::to_string(line) + ": an array in shared memory", plain.out);

  folder.write("exercises/28_gpu_add.cu", exercise_source("28_gpu_add"));
  const Ran right = compiled_and_run(folder, "28_gpu_add", ".cu");
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  expect_in("sectors for each warp", right.out);
  expect_in("In the library: cuda/elementwise.cuh", right.out);
}

// ---- faults of kernels

// The line of faulty_kernels.inc that ends in "// mark".
std::string marked(const std::string& mark) {
  std::ifstream in(INKLING_SOURCE_DIR "/tests/cli/faulty_kernels.inc");
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string end = "// " + mark;
    if (line.size() > end.size() && line.substr(line.size() - end.size()) == end)
      return std::to_string(number);
  }
  ADD_FAILURE() << "no line is marked " << mark;
  return "?";
}

void expect_fault(const Exercise& exercise, const std::string& mark, const std::string& text) {
  const Checked result = checked(exercise);
  EXPECT_FALSE(result.right) << mark;
  std::string joined;  // in one line
  std::istringstream words(result.text);
  for (std::string word; words >> word;) joined += word + " ";
  expect_in("line " + marked(mark) + text, joined);
}

template <Fault kFault>
Exercise faulty_add() {
  return gpu_add_exercise(cuda_kernel(bad_add<kFault>));
}
template <Fault kFault>
Exercise faulty_softmax() {
  return gpu_softmax_exercise(cuda_kernel(bad_softmax<kFault>));
}
template <Fault kFault>
Exercise faulty_product() {
  return gpu_product_exercise(cuda_kernel(bad_product<kFault>));
}
template <Fault kFault>
Exercise faulty_sum() {
  return gpu_sum_exercise(cuda_kernel(bad_sum<kFault>));
}

TEST(Exercises, RacesAreNamedWithTheirLines) {
  expect_fault(faulty_add<Fault::race>(), "add: race", ": a race: thread ");
  expect_fault(faulty_softmax<Fault::race>(), "softmax: race",
               ": a race: thread 0 reads [32] of the array of line " + marked("softmax: array"));
  expect_fault(faulty_product<Fault::race>(), "product: race", ": a race: thread ");
  expect_fault(faulty_sum<Fault::race>(), "sum: race", ": a race: thread ");
  expect_fault(faulty_sum<Fault::blocks>(), "sum: blocks", ": a race: thread 0 of block ");
}

// The first lines say what to do; each kind of fault is said once.
TEST(Exercises, OfManyRacesTheFirstAreNamed) {
  const std::string text = checked(faulty_softmax<Fault::barriers>()).text,
                    race = "line " + marked("softmax: no barriers") + ": a race: ";
  EXPECT_LT(text.find(race), text.find(" more, which may have the same cause.")) << text;
  int races = 0;
  for (size_t at = text.find(": a race: "); at != std::string::npos;
       at = text.find(": a race: ", at + 1))
    ++races;
  EXPECT_EQ(races, 3) << text;

  const std::string once = checked(faulty_sum<Fault::race>()).text;
  const size_t first = once.find(": a race: ");
  EXPECT_NE(first, std::string::npos) << once;
  EXPECT_EQ(once.find(": a race: ", first + 1), std::string::npos) << once;
}

TEST(Exercises, APlainSharedArrayIsNamed) {
  EXPECT_EQ(plain_shared_array("// __shared__ float part[64];\n__shared__ shared<float, 64> a;\n"),
            0u);
  EXPECT_EQ(plain_shared_array("\n  __shared__ float part[64];\n"), 2u);
}

TEST(Exercises, BarriersThatNotAllReachAreNamedWithTheirLines) {
  const auto expect_parted = [](const Exercise& exercise, const std::string& mark) {
    const Checked result = checked(exercise);
    EXPECT_FALSE(result.right) << mark;
    expect_in("waits at faulty_kernels.inc:" + marked(mark), result.text);
    expect_in("All threads of a block must come to the same __syncthreads()", result.text);
  };
  expect_parted(faulty_add<Fault::barrier>(), "add: barrier");
  expect_parted(faulty_softmax<Fault::barrier>(), "softmax: barrier");
  expect_parted(faulty_product<Fault::barrier>(), "product: barrier");
  expect_parted(faulty_sum<Fault::barrier>(), "sum: barrier");

  const std::string shuffle = checked(faulty_sum<Fault::shuffle>()).text;
  expect_in("waits at faulty_kernels.inc:" + marked("sum: shuffle"), shuffle);
  expect_in("All threads of a warp must come to the same shuffle", shuffle);
}

TEST(Exercises, AccessesOutOfBoundsAreNamedWithTheirLines) {
  expect_fault(faulty_add<Fault::bounds>(), "add: bounds", ": out of bounds: thread ");
  expect_fault(faulty_softmax<Fault::bounds>(), "softmax: bounds",
               ": out of bounds: thread 32 of block 0 reads [64] of the array of line ");
  expect_fault(faulty_product<Fault::bounds>(), "product: bounds", ": out of bounds: thread ");
  expect_fault(faulty_sum<Fault::bounds>(), "sum: bounds", ": out of bounds: thread ");
}

TEST(Exercises, WhatACardWouldBeSlowAtIsNamedWithItsLine) {
  expect_fault(faulty_softmax<Fault::banks>(), "softmax: banks",
               " writes the array of line " + marked("softmax: array") +
                   ": 32.0 passes for each warp, where 1.0 would do: a bank conflict.");
  expect_fault(faulty_product<Fault::banks>(), "product: banks",
               " writes the array of line " + marked("product: array") +
                   ": 8.0 passes for each warp, where 1.0 would do: a bank conflict.");
  expect_fault(faulty_sum<Fault::banks>(), "sum: banks", " reads the array of line ");

  expect_fault(faulty_add<Fault::strided>(), "add: strided", " reads a: ");
  expect_fault(faulty_softmax<Fault::strided>(), "softmax: strided", " reads x: ");
  expect_fault(faulty_product<Fault::strided>(), "product: strided", " reads a: ");
  EXPECT_NE(checked(faulty_add<Fault::strided>()).text.find("uncoalesced"), std::string::npos);

  expect_fault(faulty_add<Fault::one_thread>(), "add: one thread",
               " reads a in 1.0 of the 32 threads of a warp, and the others wait");
  expect_fault(faulty_softmax<Fault::one_thread>(), "softmax: one thread", " reads x in 1.0 of");
  expect_fault(faulty_sum<Fault::one_thread>(), "sum: one thread", " reads x in 1.0 of");
  expect_in("a is read ", checked(faulty_add<Fault::everything>()).text);
  const Checked all_read_all = checked(faulty_softmax<Fault::everything>());
  EXPECT_FALSE(all_read_all.right);
  expect_in("x is read ", all_read_all.text);

  // Right, but without tiles.
  const Checked naive = checked(faulty_product<Fault::no_tiles>());
  EXPECT_FALSE(naive.right);
  expect_in("a is read ", naive.text);
}

// As kernels, not as what they compute.
TEST(Exercises, MistakesOfKernelsAreNamed) {
  const auto names = [](const Exercise& exercise, size_t mistake) {
    const Checked result = checked(exercise);
    EXPECT_FALSE(result.right);
    expect_in("  " + exercise.tasks[0].mistakes[mistake].sentence + "\n", result.text);
  };
  names(faulty_add<Fault::mistake>(), 0);
  names(faulty_softmax<Fault::mistake>(), 1);
  names(faulty_product<Fault::mistake>(), 1);
  names(faulty_sum<Fault::mistake>(), 3);
}

TEST(Exercises, ReadingWhatNobodyWroteIsNamed) {
  expect_fault(faulty_add<Fault::unwritten>(), "add: unwritten",
               ": thread 0 of block 0 reads y[0], which nobody has written.");
}

// ---- what a card makes of a warp's accesses (the rules and their sources: traffic.h)

emulator::Addresses lanes(const std::function<int64_t(int64_t)>& address) {
  emulator::Addresses all;
  for (size_t lane = 0; lane < all.size(); ++lane) all[lane] = address(static_cast<int64_t>(lane));
  return all;
}

// The examples of the Best Practices Guide, Coalesced Access to Global Memory.
TEST(Exercises, SectorsAreThoseOfNvidiasRules) {
  const auto sectors = [](int bytes, const std::function<int64_t(int64_t)>& address) {
    return emulator::sectors_of(lanes(address), bytes);
  };
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4 * t; }), 4);         // neighbours: 128 bytes
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4 * (31 - t); }), 4);  // in any order
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4 * (t ^ 1); }), 4);
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4 * t + 16; }), 5);  // misaligned: one more
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4 * t + 32; }), 4);
  EXPECT_EQ(sectors(4, [](int64_t t) { return 8 * t; }), 8);    // a stride of 2: half is wasted
  EXPECT_EQ(sectors(4, [](int64_t t) { return 32 * t; }), 32);  // the worst case
  EXPECT_EQ(sectors(4, [](int64_t t) { return 4096 * t; }), 32);
  EXPECT_EQ(sectors(4, [](int64_t) { return 400; }), 1);                   // a broadcast
  EXPECT_EQ(sectors(4, [](int64_t t) { return t < 8 ? 4 * t : -1; }), 1);  // lanes apart
  EXPECT_EQ(sectors(8, [](int64_t t) { return 8 * t; }), 8);
  EXPECT_EQ(sectors(16, [](int64_t t) { return 16 * t; }), 16);
  EXPECT_EQ(sectors(2, [](int64_t t) { return 2 * t; }), 2);
  EXPECT_EQ(sectors(4, [](int64_t) { return -1; }), 0);
}

// The examples of the Programming Guide, Shared Memory (strided accesses, and irregular ones).
TEST(Exercises, BankConflictsAreThoseOfNvidiasRules) {
  const auto passes = [](int bytes, const std::function<int64_t(int64_t)>& address) {
    return emulator::passes_of(lanes(address), bytes);
  };
  EXPECT_EQ(passes(4, [](int64_t t) { return 4 * t; }), 1);
  EXPECT_EQ(passes(4, [](int64_t t) { return 8 * t; }), 2);   // a stride of two words
  EXPECT_EQ(passes(4, [](int64_t t) { return 12 * t; }), 1);  // of three: no conflict
  EXPECT_EQ(passes(4, [](int64_t t) { return 128 * t; }), 32);
  EXPECT_EQ(passes(4, [](int64_t t) { return 132 * t; }), 1);           // a column of rows of 33
  EXPECT_EQ(passes(4, [](int64_t t) { return 4 * (t * 7 % 32); }), 1);  // a permutation
  EXPECT_EQ(passes(4, [](int64_t) { return 20; }), 1);                  // a broadcast is free
  EXPECT_EQ(passes(4, [](int64_t t) { return t % 2 ? 20 : 20 + 128; }), 2);  // two words of a bank
  EXPECT_EQ(passes(1, [](int64_t t) { return t; }), 1);                      // bytes of one word
  EXPECT_EQ(passes(8, [](int64_t t) { return 8 * t; }), 2);                  // by halves
  EXPECT_EQ(passes(16, [](int64_t t) { return 16 * t; }), 4);                // by quarters
  EXPECT_EQ(passes(8, [](int64_t t) { return 16 * t; }), 4);
  EXPECT_EQ(passes(4, [](int64_t t) { return t < 4 ? 128 * t : -1; }), 4);
}
#endif

// ---- what was solved

// Checks a reader's file as the program that it becomes does.
Ran checked_file(const TempFolder& folder, const Exercise& exercise) {
  const std::string file = (folder / ("exercises/" + exercise.name + ".cpp")).string();
  std::string program = "answer", argument = file;
  char* arguments[] = {program.data(), argument.data(), nullptr};
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  setenv("OMP_WAIT_POLICY", "passive", 1);
  const int code = run_check(arguments, [&] { return exercise; });
  std::cout.rdbuf(before);
  return {code, out.str(), ""};
}

std::string state_in(const std::string& list, const std::string& name) {
  const size_t at = list.find("  " + name + " "), begin = at + 2 + 20 + 45;
  return list.substr(begin, list.find('\n', at) - begin);
}

TEST(Exercises, WhatIsSolvedIsKnownUntilTheFileChanges) {
  const TempFolder folder;
  const std::string at = " --checkout " + folder.path().string();
  const std::filesystem::path progress = folder / "exercises/progress.txt";
  const auto list = [&] { return run_program("exercise" + at).out; };
  const auto changed = [&] { return run_program("exercise --changed" + at).out; };
  // The library's file, in which the line is found.
  create_directories(folder / "autograd/loops");
  create_directories(folder / "exercises");
  folder.write("autograd/loops/pointwise.h", "\n\n  struct sin {\n");
  folder.write("exercises/01_chain_rule.cpp", "one");
  folder.write("exercises/05_softmax.cpp", "five");
  const Exercise first = kept()[0](), fifth = kept()[4]();

  Ran ran = checked_file(folder, first);
  EXPECT_EQ(ran.code, 0) << ran.out;
  expect_in("In the library: autograd/loops/pointwise.h:3\n" + in_lines(first.library.why, "  "),
            ran.out);
  expect_in(
      "\n1 of " + std::to_string(exercises().size()) + " are solved. Next: ./run.sh exercise 2\n",
      ran.out);
  EXPECT_EQ(checked_file(folder, fifth).code, 0);
  EXPECT_EQ(state_in(list(), "chain_rule"), "solved");
  EXPECT_EQ(state_in(list(), "softmax"), "solved");
  EXPECT_EQ(state_in(list(), "broadcasting"), "open <-");
  expect_in("2 of " + std::to_string(exercises().size()) + " are solved. To begin the next: ",
            list());
  EXPECT_EQ(changed(), "");
  EXPECT_EQ(text_of(folder / "exercises/05_softmax.cpp"), "five");

  // A changed file is no longer solved, and is to be checked again until that was done.
  folder.write("exercises/05_softmax.cpp", "five, changed");
  EXPECT_EQ(state_in(list(), "softmax"), "changed");
  EXPECT_EQ(changed(), "5\n");
  Exercise wrong = fifth;
  wrong.tasks[0].answer = wrong.tasks[0].mistakes[0].answer;
  EXPECT_EQ(checked_file(folder, wrong).code, 1);
  EXPECT_EQ(state_in(list(), "softmax"), "begun");
  EXPECT_EQ(changed(), "");
  folder.write("exercises/05_softmax.cpp", "five");  // as it was
  EXPECT_EQ(state_in(list(), "softmax"), "solved");

  // One small file. What was written to it by hand, or cut short, is left alone.
  const std::string kept_lines = text_of(progress);
  EXPECT_EQ(std::count(kept_lines.begin(), kept_lines.end(), '\n'), 3) << kept_lines;
  EXPECT_EQ(checked_file(folder, fifth).code, 0);
  EXPECT_EQ(text_of(progress), kept_lines);
  folder.write("exercises/progress.txt", kept_lines + "right 02");
  folder.write("exercises/02_broadcasting.cpp", "two");
  EXPECT_EQ(checked_file(folder, kept()[1]()).code, 0);
  EXPECT_EQ(state_in(list(), "broadcasting"), "solved");
  EXPECT_EQ(text_of(progress).rfind(kept_lines + "right 02\n", 0), 0u);

  // Where it cannot be written, that is said, and the answer is as right as before.
  remove(progress);
  create_directory(progress);
  const Ran unwritten = checked_file(folder, fifth);
  EXPECT_EQ(unwritten.code, 0) << unwritten.out;
  expect_in("exercises/progress.txt cannot be written", unwritten.out);
  expect_in("exercises/progress.txt cannot be written", run_program("exercise 5 --hint" + at).out);
  EXPECT_EQ(state_in(list(), "softmax"), "begun");
}

}  // namespace
}  // namespace ink
