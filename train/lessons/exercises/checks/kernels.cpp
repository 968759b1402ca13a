#include "train/lessons/exercises/checks/kernels.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <regex>
#include <tuple>

#include "autograd/base/text.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/texts.h"

namespace ink {
namespace {

constexpr size_t kMostShown = 3;  // faults
// A card runs a warp's 32 threads for as long as one of them works.
constexpr int64_t kFewLanes = 4;

// Of what nobody need pay: rows that do not begin with a sector take one more.
bool is_wasteful(const emulator::Traffic& t) {
  if (t.is_shared) return 4 * t.parts > 5 * t.least;
  return t.parts > t.least + t.requests && 2 * t.parts >= 3 * t.least;
}

std::string per_warp(int64_t parts, int64_t requests) {
  TextStream out;
  out << std::fixed << std::setprecision(1)
      << static_cast<double>(parts) / static_cast<double>(requests);
  return out.str();
}

// "line 31 reads a: 4.0 sectors a warp, and 4.0 would do"
std::string sentence(const emulator::Traffic& t) {
  std::string text = "line " + std::to_string(t.line) + (t.writes ? " writes " : " reads ") +
                     t.array + ": " + per_warp(t.parts, t.requests) +
                     (t.is_shared ? " passes" : " sectors") + " for each warp";
  if (t.parts > t.least) text += ", where " + per_warp(t.least, t.requests) + " would do";
  if (!is_wasteful(t)) return text;
  return text + (t.is_shared
                     ? ": a bank conflict. Threads of a warp want different elements of "
                       "one of the 32 banks, which gives one after the other."
                     : ": uncoalesced. Let neighbouring threads take neighbouring elements.");
}

// A fault without its threads and elements: where they differ, it is the same one.
std::string kind_of(const std::string& fault) {
  static const std::regex numbers(R"((thread|block) \d+|\w*\[\d+\])");
  return std::regex_replace(fault, numbers, "");
}

// By line. One missing barrier is many races, of which the first lines say where it belongs.
std::vector<std::string> first_ones(std::vector<std::string> faults) {
  const auto line = [](const std::string& fault) { return std::stoi(fault.substr(5)); };
  std::stable_sort(faults.begin(), faults.end(),
                   [&](const std::string& a, const std::string& b) { return line(a) < line(b); });
  if (faults.size() > kMostShown) {
    const std::string more = std::to_string(faults.size() - kMostShown);
    faults.resize(kMostShown);
    faults.push_back("... and " + more + " more, which may have the same cause.");
  }
  return faults;
}

void merge(std::vector<emulator::Traffic>& all, const std::vector<emulator::Traffic>& more) {
  for (const emulator::Traffic& t : more) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const emulator::Traffic& other) {
      return std::tie(other.line, other.array, other.writes) == std::tie(t.line, t.array, t.writes);
    });
    if (same == all.end()) {
      all.push_back(t);
      continue;
    }
    same->requests += t.requests;
    same->elements += t.elements;
    same->parts += t.parts;
    same->least += t.least;
  }
}

}  // namespace

Tensor KernelRuns::run(Grid blocks, int threads, const Shape& y,
                       const std::vector<std::pair<std::string, Tensor>>& inputs,
                       const std::vector<int64_t>& numbers) {
  const auto argument = [](const std::string& name, const Tensor& x, bool is_input) {
    return KernelArgument{name, const_cast<float*>(x.data<float>()), x.numel(), is_input, 0};
  };
  Tensor result = full(y, std::nan(""), f32);
  Tensors kept;  // until the launch is over
  std::vector<KernelArgument> arguments{argument("y", result, false)};
  for (const auto& [name, x] : inputs) {
    kept.push_back(x.detach().to(f32).contiguous());
    arguments.push_back(argument(name, kept.back(), true));
  }
  for (const int64_t n : numbers) arguments.push_back({"", nullptr, 0, true, static_cast<int>(n)});
  if (blocks.x > 0 && blocks.y > 0) {
    const KernelTrace trace = kernel_.launch(
        {static_cast<int>(blocks.x), static_cast<int>(blocks.y), threads, arguments});
    for (const std::string& fault : trace.faults)
      if (std::none_of(trace_.faults.begin(), trace_.faults.end(),
                       [&](const std::string& known) { return kind_of(known) == kind_of(fault); }))
        trace_.faults.push_back(fault);
    merge(trace_.traffic, trace.traffic);
  }
  return result.to(f64);
}

bool KernelRuns::report(std::ostream& out) {
  std::vector<std::string> wrong = first_ones(trace_.faults), rest;
  for (const auto& [input, most] : enough_) {
    int64_t elements = 0;
    for (const emulator::Traffic& t : trace_.traffic) {
      if (t.array != input || t.writes) continue;
      elements += t.elements;
      if (t.elements < kFewLanes * t.requests)
        wrong.push_back("line " + std::to_string(t.line) + " reads " + input + " in " +
                        per_warp(t.elements, t.requests) +
                        " of the 32 threads of a warp, and the others wait: let each do its part.");
    }
    if (elements > most + most / 4)
      wrong.push_back(input + " is read " + per_warp(elements, most) +
                      " times as often as is needed: many threads read the same elements. Let each "
                      "read its own, and share in shared memory what others need of it.");
  }
  for (const emulator::Traffic& t : trace_.traffic)
    (is_wasteful(t) ? wrong : rest).push_back(sentence(t));
  if (!wrong.empty()) out << "  WRONG  in its accesses to memory\n";
  for (const std::string& text : wrong) out << in_lines(text, "    ");
  if (!rest.empty()) out << "  What a card makes of its accesses:\n";
  for (const std::string& text : rest) out << in_lines(text, "    ");
  trace_ = {};
  enough_.clear();
  return wrong.empty();
}

Task kernel_task(const std::string& function, const std::vector<std::string>& outputs,
                 const CudaKernel& kernel, KernelOp op, Tensor (*library)(const Tensors& x)) {
  const auto inputs_of = [](const Tensors& in) {
    Tensors x;
    for (size_t i = 1; i < in.size(); ++i) x.push_back(in[i].detach().requires_grad_());
    return x;
  };
  const auto runs = std::make_shared<KernelRuns>(kernel);
  Task task;
  task.function = function;
  task.outputs = outputs;
  task.answer = [=](const Tensors& in) -> Tensors {
    const Tensors x = inputs_of(in);
    try {
      const Tensor y = op(*runs, x);
      Tensors result = grad({y}, x, {in[0]});
      result.insert(result.begin(), y.detach());
      return result;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("emulator: ") == std::string::npos) throw;
      throw Error(text.substr(text.find("emulator: ") + 10) +
                  (text.find("threads of a warp") == std::string::npos
                       ? ". All threads of a block must come to the same __syncthreads()"
                       : ". All threads of a warp must come to the same shuffle"));
    }
  };
  task.expected = [library](const Tensors& in) -> Tensors {
    const Tensors x(in.begin() + 1, in.end());
    Tensors result{library(x)};
    for (size_t i = 0; i < x.size(); ++i)
      result.push_back(
          difference([library](const Tensors& moved) { return library(moved); }, x, i, in[0]));
    return result;
  };
  task.afterwards = [runs](std::ostream& out) { return runs->report(out); };
  return task;
}

Mistake kernel_mistake(Tensor (*wrong)(const Tensors& x), const Task& task,
                       const std::string& sentence) {
  // The gradients do not depend on how y is computed, but where a mistake is in y alone.
  return {[wrong, expected = task.expected](const Tensors& in) -> Tensors {
            Tensors result = expected(in);
            result[0] = wrong(Tensors(in.begin() + 1, in.end()));
            return result;
          },
          sentence};
}

}  // namespace ink
