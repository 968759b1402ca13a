// Random programs of views, writes in place, saves and backward give PyTorch's values and
// gradients, or its refusal at the same instruction (parity/programs.py makes them, and says how
// they read).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

using Words = std::vector<std::string>;

Words split_at(const std::string& text, const std::string& mark) {
  Words words;
  size_t start = 0;
  for (size_t at; (at = text.find(mark, start)) != std::string::npos; start = at + mark.size())
    words.push_back(text.substr(start, at - start));
  words.push_back(text.substr(start));
  return words;
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> values;
  if (text.empty()) return values;
  for (const std::string& word : split_at(text, ","))
    values.push_back(std::strtod(word.c_str(), nullptr));
  return values;
}

class Machine {
 public:
  void run(const std::string& line) {
    const Words words = split_at(line, " ");
    const std::string& op = words[0];
    if (op == "grad" || op == "no_grad") {
      grad_ = op == "grad";
      return;
    }
    const FlagGuard guard(&Context::grad_enabled, grad_);
    if (op == "leaf" || op == "const") {
      Shape shape;
      for (double size : numbers(words[1])) shape.push_back(static_cast<int64_t>(size));
      made_.push_back(from_vector(numbers(words[2]), shape).requires_grad_(op == "leaf"));
    } else if (op.back() == '_') {
      write(op, at(words[1]), words);
    } else if (op == "backward") {
      const Tensor x = at(words[1]);
      backward({sum(x * weights(x))}, {}, /*retain_graph=*/true);
    } else if (op == "dgrad") {
      const Tensor x = at(words[1]);
      const Tensor loss = sum(x * x * weights(x));
      made_.push_back(grad({loss}, {at(words[2])}, {}, true, /*create_graph=*/true)[0]);
    } else if (op == "retain") {
      at(words[1]).retain_grad();
    } else {
      made_.push_back(value(op, at(words[1]), words));
    }
  }

  std::vector<double> result(const std::string& name) const {
    const bool gradient = name[0] == 'g';
    const Tensor& x = made_.at(std::stoul(name.substr(gradient)));
    const Tensor g = gradient ? x.grad() : x;
    return g.defined() ? g.tolist() : std::vector<double>();
  }

 private:
  Tensor at(const std::string& word) const { return made_.at(std::stoul(word)); }

  static Tensor weights(const Tensor& x) {
    return (arange(static_cast<double>(x.numel()), f64) + 1).view(x.shape());
  }

  void write(const std::string& op, Tensor x, const Words& words) const {
    const std::string& word = words[2];
    if (op == "put_" || op == "put_acc_") {
      const std::vector<double> ids = numbers(words[3]);
      const std::vector<int64_t> rows(ids.begin(), ids.end());
      x.index_put_({from_vector(rows)}, at(word), /*accumulate=*/op == "put_acc_");
    }
    if (op == "add_") x += at(word);
    if (op == "sub_") x -= at(word);
    if (op == "mul_") x *= at(word);
    if (op == "div_") x /= at(word);
    if (op == "copy_") x.copy_(at(word));
    if (op == "fill_") x.fill_(std::stod(word));
    if (op == "addc_") x += std::stod(word);
    if (op == "mulc_") x *= std::stod(word);
    if (op == "mask_") x.masked_fill_(x.detach().clone() > 0, std::stod(word));
  }

  Tensor value(const std::string& op, const Tensor& x, const Words& words) const {
    const auto number = [&](size_t i) { return std::stoll(words.at(i)); };
    if (op == "add") return x + at(words[2]);
    if (op == "sub") return x - at(words[2]);
    if (op == "mul") return x * at(words[2]);
    if (op == "div") return x / at(words[2]);
    if (op == "mulc") return x * std::stod(words[2]);
    if (op == "addc") return x + std::stod(words[2]);
    if (op == "rdivc") return std::stod(words[2]) / x;
    if (op == "exp") return exp(x * 0.1);
    if (op == "sin") return sin(x);
    if (op == "tanh") return tanh(x);
    if (op == "relu") return relu(x);
    if (op == "square") return pow(x, 2);
    if (op == "sum0") return sum(x, {0});
    if (op == "softmax") return softmax(x);
    if (op == "clone") return x.clone();
    if (op == "same") return x;
    if (op == "select") return x.select(number(2), number(3));
    if (op == "slice") return slice(x, number(2), number(3), x.size(number(2)), number(4));
    if (op == "transpose") return x.transpose(number(2), number(3));
    if (op == "flatten") return x.reshape({x.numel()});
    if (op == "unsqueeze") return x.unsqueeze(number(2));
    if (op == "detach") return x.detach();
    INK_CHECK(op == "expand", "unknown instruction ", op);
    Shape shape = x.shape();
    shape.insert(0, 2);
    return x.expand(shape);
  }

  std::vector<Tensor> made_;
  bool grad_ = true;
};

// What differs from PyTorch; empty: nothing.
std::string difference(const std::string& line) {
  const Words parts = split_at(line, " => ");
  const Words instructions = split_at(parts[0], "; "), outcome = split_at(parts[1], " ");
  Machine machine;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const std::string error = error_of([&] { machine.run(instructions[i]); });
    const bool refused = error != "(no error)";
    const bool expected = outcome[0] == "refused" && std::stoul(outcome[1]) == i;
    if (refused != expected)
      return "instruction " + std::to_string(i) + ", " + instructions[i] + ": " +
             (refused ? error : "PyTorch refuses it");
    if (refused) return {};
  }
  for (size_t i = 1; i < outcome.size(); ++i) {
    const Words entry = split_at(outcome[i], ":");
    const auto expected = numbers(entry[1]), got = machine.result(entry[0]);
    bool same = expected.size() == got.size();
    for (size_t k = 0; same && k < got.size(); ++k)
      same = std::abs(got[k] - expected[k]) <= 1e-9 * (1 + std::abs(expected[k]));
    if (!same) return entry[0] + ": expected " + entry[1] + ", got " + testing::PrintToString(got);
  }
  return {};
}

TEST(Programs, GiveWhatPyTorchGives) {
  const char* given = std::getenv("INKLING_PROGRAMS");
  const std::string path = given ? given : INKLING_SOURCE_DIR "/tests/parity/programs.txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  int programs = 0, wrong = 0;
  for (std::string line; std::getline(file, line); ++programs) {
    const std::string found = difference(line);
    if (!found.empty() && ++wrong <= 10) ADD_FAILURE() << line << "\n  " << found;
  }
  EXPECT_EQ(wrong, 0) << "of " << programs;
  EXPECT_GE(programs, 100);
}

}  // namespace
}  // namespace ink
