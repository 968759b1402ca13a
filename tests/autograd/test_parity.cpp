// The ops against PyTorch's answers: values, dtypes, gradients, second gradients, names of nodes,
// printed text, and what is refused (parity/parity.py makes the cases, and says how they read).
//
// INKLING_PARITY=PREFIX runs the cases of other files; failures are then counted, and listed in
// PREFIX.failures.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "autograd/ops.h"
#include "tests/parity/ops.h"

namespace ink {
namespace {

using parity::Arguments;
using parity::Json;
using parity::Outputs;
using Stored = std::map<std::string, Tensor>;

double unit(DType dtype) { return dtype == f64 ? 0x1p-52 : dtype == f32 ? 0x1p-23 : 0x1p-8; }

constexpr const char* at_infinity = " (not finite)";  // ends what is wrong with such an element

/// What is wrong with y, held against what PyTorch gave; "" if nothing is.
std::string difference(const Tensor& y, const Json& expected, const Stored& stored) {
  const Tensor& x = stored.at(expected["t"].get<std::string>());
  std::ostringstream out;
  if (y.dtype() != x.dtype()) out << "dtype " << y.dtype() << " for " << x.dtype();
  if (y.shape() != x.shape()) out << "shape " << y.shape() << " for " << x.shape();
  if (!out.str().empty()) return out.str();
  const auto got = y.tolist(), want = x.tolist();
  const double tolerance = expected["tol"].get<double>(), step = 8 * unit(x.dtype());
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = want[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double allowed = tolerance > 0 ? tolerance + step * std::abs(b) : 0;
    if (std::isfinite(b) && std::abs(a - b) <= allowed) continue;
    const bool both_finite = std::isfinite(a) && std::isfinite(b);
    if (!both_finite && !out.str().empty()) continue;
    out.str("");  // the first that is finite on both sides, if there is one
    out << "element " << i << ": " << a << " for " << b << " (+- " << allowed << ")";
    if (both_finite) break;
    out << at_infinity;
  }
  return out.str();
}

/// The gradients; what nothing depends on is zeros.
std::vector<std::string> differences(const Grads& got, const Json& expected, const Stored& stored) {
  std::vector<std::string> list;
  for (size_t i = 0; i < got.size(); ++i) {
    const Json& want = expected[i];
    Tensor g = got[i];
    if (want.is_null()) {
      if (g.defined() && any(g != 0).item<bool>()) list.push_back("a gradient where none is");
      continue;
    }
    const Tensor& x = stored.at(want["t"].get<std::string>());
    if (!g.defined()) g = zeros_like(x);
    if (std::string why = difference(g, want, stored); !why.empty())
      list.push_back("of input " + std::to_string(i) + ": " + why);
  }
  return list;
}

std::string grad_fn(const Tensor& x) {
  const std::string text = x.to_string(), mark = "grad_fn=<";
  const size_t at = text.find(mark);
  if (at == std::string::npos) return "";
  return text.substr(at + mark.size(), text.find('>', at) - at - mark.size());
}

class Comparison {
 public:
  Comparison(const Json& entry, const Stored& stored) : entry_(entry), stored_(stored) { run(); }

  /// Of each failure its check and its text.
  std::vector<std::pair<std::string, std::string>> failures;

 private:
  void run() {
    const auto op = parity::ops().find(entry_["op"].get<std::string>());
    if (op == parity::ops().end()) return fail("missing", "no such op");
    Arguments arguments(entry_["op"], entry_["args"], stored_);
    manual_seed(entry_["seed"].get<uint64_t>());
    Outputs outputs;
    try {
      outputs = op->second(arguments);
    } catch (const Error& error) {
      if (!entry_.contains("error")) return fail("refused", error.what());
      if (!named_well(error.what())) fail("error_name", error.what());
      return;
    } catch (const std::exception& error) {
      return fail("crash", error.what());
    }
    if (entry_.contains("error"))
      return fail("accepted", "PyTorch: " + entry_["error"].get<std::string>());
    check_outputs(outputs);
    if (!entry_.contains("dy")) return;
    try {
      check_gradients(outputs, arguments.leaves());
    } catch (const std::exception& error) {
      fail("grad", error.what());
    }
  }

  void fail(const std::string& check, const std::string& why) {
    const bool infinite = why.size() > std::strlen(at_infinity) && why.ends_with(at_infinity);
    for (const Json& lifted : entry_.value("lift", Json::array()))
      if (lifted == check || (infinite && lifted == check + "~")) return;
    failures.emplace_back(check, why);
  }

  /// Does the error name its op, or say what PyTorch says?
  bool named_well(const std::string& text) const {
    std::string op = entry_["op"], torch = entry_["error"];
    if (text.rfind(torch, 0) == 0) return true;
    if (op.back() == '_') op.pop_back();
    if (op == "concat") op = "cat";
    if (op == "rsub" || op == "rdiv" || op == "rpow") op.erase(0, 1);
    return text.rfind(op + ":", 0) == 0 || text.rfind(op + "_:", 0) == 0;
  }

  void check_outputs(const Outputs& outputs) {
    const Json& expected = entry_["out"];
    if (outputs.size() != expected.size())
      return fail("value", std::to_string(outputs.size()) + " outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Json& want = expected[i];
      const Tensor& y = outputs[i];
      if (const std::string why = difference(y, want, stored_); !why.empty()) {
        fail("value", why);
        continue;
      }
      const std::string name = want.value("grad_fn", "");
      if (grad_fn(y) != name) fail("grad_fn", '"' + grad_fn(y) + "\" for \"" + name + '"');
      const std::string text = stored_.at(want["t"].get<std::string>()).to_string();
      if (want.contains("text") && text != want["text"].get<std::string>())
        fail("text", text + " for " + want["text"].get<std::string>());
    }
  }

  std::vector<Tensor> stored_list(const char* key) const {
    std::vector<Tensor> list;
    for (const Json& name : entry_[key]) list.push_back(stored_.at(name.get<std::string>()));
    return list;
  }

  void check_gradients(const Outputs& outputs, const std::vector<Tensor>& leaves) {
    std::vector<Tensor> through;
    for (const Tensor& y : outputs)
      if (y.requires_grad()) through.push_back(y);
    std::vector<Tensor> dys = stored_list("dy");
    if (dys.size() != through.size()) return fail("grad", "other outputs require grad");
    for (Tensor& dy : dys) dy = dy.clone().requires_grad_();
    const bool twice = entry_.contains("second");
    const Grads grads = grad(through, leaves, dys, twice, twice);
    for (const std::string& why : differences(grads, entry_["grad"], stored_)) fail("grad", why);
    if (!twice) return;
    Grads again, vs;
    const Grads given = stored_list("v");
    for (size_t i = 0; i < given.size(); ++i) {
      const Tensor& g = grads[entry_["which"][i].get<size_t>()];
      if (!g.defined() || !g.requires_grad()) continue;
      again.push_back(g);
      vs.push_back(given[i]);
    }
    std::vector<Tensor> inputs = leaves;
    inputs.insert(inputs.end(), dys.begin(), dys.end());
    const Grads second = again.empty() ? Grads(inputs.size()) : grad(again, inputs, vs);
    for (const std::string& why : differences(second, entry_["second"], stored_))
      fail("second", why);
  }

  const Json& entry_;
  const Stored& stored_;
};

TEST(Parity, OpsAnswerAsPyTorch) {
  const char* given = std::getenv("INKLING_PARITY");
  const std::string prefix = given ? given : INKLING_SOURCE_DIR "/tests/parity/fixture";
  Stored stored;
  for (auto& [name, x] : load(prefix + ".safetensors")) stored[name] = x;
  std::ifstream cases(prefix + ".jsonl");
  ASSERT_TRUE(cases) << prefix << ".jsonl";
  std::ofstream list;
  if (given) list.open(prefix + ".failures");
  std::map<std::string, int> tally;
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const Json entry = Json::parse(line);
    for (const auto& [check, why] : Comparison(entry, stored).failures) {
      const std::string op = entry["op"];
      ++tally[op + " " + check];
      if (!given) ADD_FAILURE() << op << ", " << check << ": " << why << "\n" << line;
      list << op << ", " << check << ": " << why << "\n    " << line << "\n";
    }
  }
  for (const auto& [what, times] : tally) ADD_FAILURE() << what << ": " << times;
  EXPECT_GT(count, 0);
  std::cout << count << " cases\n";
}

}  // namespace
}  // namespace ink
