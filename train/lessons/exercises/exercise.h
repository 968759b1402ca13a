// What an exercise is, and how an answer is checked.
//
// An exercise is one file, NN_name.cpp: the task in a comment, functions to write, and a line that
// hands them to their check. The kept solution stands between the markers ">>>" and "<<<", and the
// reader's copy lacks it. The check, checks/NN_name.cpp, knows what is right and which mistakes are
// typical.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "cuda/emulator/traffic.h"

namespace ink {

/// What a function throws that the reader has not written yet.
struct NotWritten {
  std::string function;
};
#ifdef __CUDACC__
__host__ __device__ inline void todo(const char*) {}  // a kernel cannot throw
#else
[[noreturn]] inline void todo(const char* function) { throw NotWritten{function}; }
#endif

using Tensors = std::vector<Tensor>;
using Ints = std::vector<int64_t>;
/// From the inputs of a case to the outputs of a task.
using Answer = std::function<Tensors(const Tensors& inputs)>;

struct Case {
  std::string name;
  Tensors inputs;
};

/// A wrong answer that many give, and what is wrong with it.
struct Mistake {
  Answer answer;
  std::string sentence;
};

/// A function to write, with its check.
struct Task {
  std::string function;              // its name
  std::vector<std::string> outputs;  // what it returns. Gradients begin with d: "dx"
  Answer answer;                     // the reader's
  Answer expected;                   // gradients by differences
  std::vector<Case> cases;
  std::vector<Mistake> mistakes;
  /// What else is said after the cases, if there is something. True where nothing is wrong.
  std::function<bool(std::ostream&)> afterwards = {};
};

/// Where the library does the same, and what it does otherwise and why.
struct Source {
  std::string file, begins;  // "autograd/ops/softmax.cpp", "void softmax_backward("
  std::string why;
};

struct Exercise {
  std::string name;                // of its file: 05_softmax
  std::string lesson;              // which lesson explains it
  std::vector<std::string> hints;  // three or more, each less of a riddle
  Source library;
  std::vector<Task> tasks;
  std::string extension = ".cpp";  // of its file
  /// Runs once all tasks are right, if there is one. True where it went well.
  std::function<bool(std::ostream&)> finale = {};
  bool is_a_row = false;  // each task uses those before it, so that a wrong one ends the check
};

/// Runs every case, and says line by line what is right and wrong. True if all is right.
bool check(const Exercise& exercise, std::ostream& out);

/// The program that a reader's file becomes: 0 if all is right, else 1. argv[1], if given, is that
/// file, whose progress is noted.
int run_check(char** argv, const std::function<Exercise()>& exercise);

#ifndef INK_EXERCISE
/// The last line of an exercise's file: INK_EXERCISE(softmax_exercise(softmax_backward))
#define INK_EXERCISE(...)                                    \
  int main(int, char** argv) {                               \
    return ink::run_check(argv, [] { return __VA_ARGS__; }); \
  }
#endif

// ---- what the answers' functions take besides tensors

/// A number in a graph (exercise 8): which numbers it was computed from, and with each of them its
/// slope, d this / d input. Numbers are named by their places in the graph.
struct Number {
  std::vector<int> inputs;
  std::vector<double> slopes;
};
using Graph = std::vector<Number>;

/// The settings of AdamW (exercise 12).
struct AdamSettings {
  double lr, beta1, beta2, eps, weight_decay;
};

/// The keys and values of all positions so far (exercise 14); undefined before the first.
struct Cache {
  Tensor k, v;
};

/// Two ids side by side, and the id that takes their place (exercise 16).
struct MergeRule {
  int64_t left, right, result;
};

/// The windows of a text, 0 .. windows - 1, in the order of an epoch (exercise 23).
Ints shuffled(int64_t windows, int64_t seed, int64_t epoch);

/// Numbers that several views share (exercise 25). version: how often they were written.
struct Memory {
  std::vector<double> numbers;
  int64_t version = 0;
};
struct View {
  std::shared_ptr<Memory> memory;
  size_t begin, size;
};
/// What forward kept for backward, and the memory's version then.
struct Kept {
  View view;
  int64_t version;
};

/// What a layer gives to the next one (exercise 26). It is held as long as a copy exists.
struct ChainCost;
class Activation {
 public:
  Activation(double value, ChainCost& cost);
  double value() const { return *value_; }

 private:
  std::shared_ptr<const double> value_;
};
/// Layers one after another, which count what they cost.
struct Chain {
  int layers;
  ChainCost* cost;
  Activation run(int layer, const Activation& input) const;
  /// The gradient of the layer's input, from that of its output.
  double backward(int layer, const Activation& input, double dy) const;
};

/// The sizes of a GPT and its batch (exercise 27).
struct GptSizes {
  double layers, C, V, B, T;
};

/// An array of f32, or a number, with which a kernel is launched (exercises 28 to 31).
struct KernelArgument {
  std::string name;
  float* data;
  int64_t size;
  bool is_input;
  int number;
};
struct KernelLaunch {
  int blocks_x, blocks_y, threads;
  std::vector<KernelArgument> arguments;
};
/// What the emulator saw of a launch: faults, a sentence for each, and what memory was asked for.
struct KernelTrace {
  std::vector<std::string> faults;
  std::vector<emulator::Traffic> traffic;
};
/// A kernel of the reader's, on the emulator or on a card. cuda.h makes it.
struct CudaKernel {
  std::function<KernelTrace(const KernelLaunch& launch)> launch;
  bool on_card = false;
};

// ---- the exercises: each takes the functions that the reader writes

Exercise chain_rule_exercise(double (*derivative)(double x));
Exercise broadcasting_exercise(Tensor (*sum_to_shape)(const Tensor& dy, const Shape& shape));
Exercise matmul_exercise(Grads (*matmul_backward)(const Tensor& dy, const Tensor& a,
                                                  const Tensor& b));
Exercise embedding_exercise(Tensor (*embedding_backward)(const Tensor& dy, const Tensor& ids,
                                                         int64_t rows));
Exercise softmax_exercise(Tensor (*softmax_backward)(const Tensor& dy, const Tensor& y));
Exercise cross_entropy_exercise(Tensor (*forward)(const Tensor& logits, const Tensor& ids),
                                Tensor (*backward)(const Tensor& logits, const Tensor& ids));
Exercise layer_norm_exercise(Tensor (*forward)(const Tensor& x, const Tensor& weight,
                                               const Tensor& bias, double eps),
                             Grads (*backward)(const Tensor& dy, const Tensor& x,
                                               const Tensor& weight, double eps));
Exercise tape_exercise(std::vector<double> (*backward)(const Graph& graph, int loss));
Exercise attention_exercise(Tensor (*attention)(const Tensor& q, const Tensor& k, const Tensor& v));
Exercise attention_backward_exercise(Grads (*backward)(const Tensor& dy, const Tensor& q,
                                                       const Tensor& k, const Tensor& v));
Exercise dropout_exercise(Tensor (*forward)(const Tensor& x, const Tensor& kept, double p,
                                            bool training),
                          Tensor (*backward)(const Tensor& dy, const Tensor& kept, double p,
                                             bool training));
Exercise adamw_exercise(Tensors (*step)(const Tensors& p_m_v, const Tensor& g, int64_t t,
                                        const AdamSettings& s));
Exercise rotary_exercise(Tensor (*rotate)(const Tensor& x, int64_t start));
Exercise cache_exercise(Tensor (*attend)(const Tensor& q, const Tensor& k, const Tensor& v,
                                         Cache& cache));
Exercise merges_exercise(std::pair<int64_t, int64_t> (*next)(const std::vector<int64_t>& ids),
                         std::vector<int64_t> (*merge)(std::vector<int64_t> ids,
                                                       const std::vector<MergeRule>& merges));
Exercise rms_norm_exercise(Tensor (*forward)(const Tensor& x, const Tensor& weight, double eps),
                           Grads (*backward)(const Tensor& dy, const Tensor& x,
                                             const Tensor& weight, double eps));
Exercise swiglu_exercise(Tensor (*forward)(const Tensor& gate, const Tensor& up),
                         Grads (*backward)(const Tensor& dy, const Tensor& gate, const Tensor& up));
Exercise clipping_exercise(Tensors (*clipped)(const Tensors& gradients, double max_norm));
Exercise top_p_exercise(Tensor (*nucleus)(const Tensor& p, double top_p));
Exercise accumulation_exercise(Tensor (*accumulated_loss)(const Tensors& logits,
                                                          const Tensors& targets));
Exercise strides_exercise(Ints (*broadcast_strides)(const Ints& sizes, const Ints& strides,
                                                    const Ints& to),
                          Ints (*addresses)(const Ints& sizes, const Ints& strides,
                                            int64_t offset));
Exercise loader_exercise(Ints (*windows_of)(int64_t step, int64_t batch, int64_t windows,
                                            int64_t seed));
Exercise ranks_exercise(Tensor (*sum_of_ranks)(int64_t here, const Ints& from,
                                               const Tensors& parts));
Exercise versions_exercise(void (*write)(const View& view, size_t i, double x),
                           std::vector<double> (*unpack)(const Kept& kept));
Exercise checkpointing_exercise(double (*gradient)(const Chain& chain, const Activation& x,
                                                   int every));
Exercise flops_exercise(double (*step_flops)(const GptSizes& sizes),
                        double (*linear_bytes)(double rows, double in, double out));
Exercise gpu_add_exercise(const CudaKernel& kernel);
Exercise gpu_softmax_exercise(const CudaKernel& kernel);
Exercise gpu_product_exercise(const CudaKernel& kernel);
Exercise gpu_sum_exercise(const CudaKernel& kernel);

}  // namespace ink
