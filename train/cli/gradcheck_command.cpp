// inkling gradcheck: every row of train/cases/op_cases.cpp and train/cases/module_cases.cpp against
// central differences. Rows that pass are printed as they end, and those that fail at the end, the
// cause first. What these cannot see, of rows this small and in f64, the last line says;
// tests/autograd/test_ops.cpp takes the same rows in all dtypes and sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/inspect/gradcheck.h"
#include "autograd/memory/device_backend.h"
#include "train/cases/module_cases.h"
#include "train/cases/op_case_inputs.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"

namespace ink {
namespace {

// A row of the table: what its checks found.
struct Line {
  std::string name;
  bool is_module = false;
  int64_t cases = 0, checked = 0;
  GradcheckReport worst;              // of a row that failed, the failure that is furthest off
  std::set<std::string> wrong;        // the ops that return a wrong gradient by themselves
  std::set<std::string> ops;          // of a row that failed: those in its graphs,
  std::set<std::string> definitions;  // and in those of the ops' definitions
  std::string error;

  bool ok() const { return worst.ok && error.empty(); }
  /// "cross_entropy" of "cross_entropy.none"
  std::string own_op() const { return name.substr(0, name.find('.')); }
};

void add(Line& line, const std::function<GradcheckReport()>& check) {
  ++line.cases;
  try {
    const GradcheckReport report = check();
    line.checked += report.checked;
    line.ops.insert(report.ops.ops.begin(), report.ops.ops.end());
    line.definitions.insert(report.ops.definitions.begin(), report.ops.definitions.end());
    for (const WrongGradient& wrong : report.ops.wrong) line.wrong.insert(wrong.op);
    const bool worse = report.worst >= line.worst.worst;
    if (report.ok == line.worst.ok ? worse : !report.ok) line.worst = report;
  } catch (const Error& error) {
    line.error = error.what();
  }
}

bool differentiable_output(const OpCase& row, const Inputs& leaves) {
  const Outputs outputs = row.op(leaves);
  return std::any_of(outputs.begin(), outputs.end(),
                     [](const Tensor& y) { return y.requires_grad(); });
}

void check_op(const OpCase& row, bool second, Line& line) {
  for (const auto& set : row.inputs) {
    if (differentiable(set).empty() || largest(set) == 0 || largest(set) > 10000) continue;
    const Inputs leaves = leaves_of(make_inputs(set), set);
    if (!differentiable_output(row, leaves)) continue;
    add(line, [&] { return gradcheck(row.op, leaves); });
    if (!second || !row.second_derivative || largest(set) > 100) continue;
    add(line, [&] { return gradgradcheck(row.op, leaves, {.rtol = 1e-4, .atol = 1e-6}); });
  }
}

// Those of a row; without `checked` where a row with "FAILED" would not fit.
std::string cells(const std::string& name, const std::string& cases, const std::string& checked,
                  const std::string& error, const std::string& tol) {
  const std::string first = fmt::format("{:<28} {:>6}", name, cases),
                    last = fmt::format("  {:>10}  {:>6}", error, tol);
  return shown_columns() < 73 ? first + last : fmt::format("{} {:>9}{}", first, checked, last);
}

// reports: the op is not the cause of a row before.
void print(const Console& console, const Line& line, const std::set<std::string>& built_on,
           bool reports) {
  const double error = std::abs(line.worst.analytic - line.worst.numeric);
  const std::string row =
      cells(line.name, std::to_string(line.cases), std::to_string(line.checked),
            fmt::format("{:.1e}", error), fmt::format("{:.3f}", line.worst.worst)) +
      fmt::format("  {}{}\n", line.ok() ? console.green("ok") : console.yellow("FAILED"),
                  built_on.empty() ? "" : fmt::format(", built on {}", fmt::join(built_on, ", ")));
  std::cout << filled(row, shown_columns(), 2);
  if (!line.error.empty()) std::cout << "    " << line.error << "\n";
  if (line.worst.ok || !reports) return;
  TextStream lines(detail::joined({line.worst}));
  for (std::string text; std::getline(lines, text);) std::cout << "    " << text << "\n";
}

// The rows that failed. First those whose own op is wrong; then the ones that are built on it,
// because the op is in their graphs. Of several wrong ops the one with the shortest definition
// comes first, because the others may use its kernel, as linear_cross_entropy uses cross_entropy's.
void print_failed(const Console& console, std::vector<Line> failed) {
  std::set<std::string> causes;
  std::map<std::string, size_t> length;  // of the definition, by op
  for (const Line& line : failed) {
    if (line.wrong.count(line.own_op()) > 0) causes.insert(line.own_op());
    const size_t here = line.definitions.size();
    size_t& least = length.emplace(line.own_op(), here).first->second;
    least = std::min(least, here);
  }
  std::stable_sort(failed.begin(), failed.end(), [&](const Line& a, const Line& b) {
    return length[a.own_op()] < length[b.own_op()];
  });
  const auto built_on = [&](const Line& line) {
    std::set<std::string> others = line.wrong;
    if (others.empty())
      std::set_intersection(causes.begin(), causes.end(), line.ops.begin(), line.ops.end(),
                            std::inserter(others, others.end()));
    return others.count(line.own_op()) > 0 ? std::set<std::string>() : others;
  };
  std::string first;
  std::set<std::string> reported;
  for (const bool second : {false, true}) {
    for (const Line& line : failed) {
      const auto others = built_on(line);
      if (others.empty() == second) continue;
      if (first.empty()) first = line.own_op();
      const bool is_new = !line.is_module && reported.insert(line.own_op()).second;
      print(console, line, others, line.is_module || (others.empty() && is_new));
    }
  }
  if (!first.empty() && causes.count(first) > 0)
    std::cout << fmt::format(
        "Begin with {}: what is wrong is in the file of autograd/ops that records \"{}\", or in a "
        "kernel that it calls\n",
        first, first);
}

}  // namespace

int gradcheck_command(const Arguments& arguments) {
  CommandOptions command(
      "gradcheck",
      "Checks the gradients of every op and layer against central differences in f64.");
  bool second = false;
  std::string only, device = "cpu";
  command.flag("--second", second, "second derivatives too");
  command.add("--only", &only, "names that contain this text", {.may_be_empty = true});
  command.add("--device", &device, "cpu, cuda or cuda:N: what computes them",
              {.shows_default = true});
  if (!command.parse(arguments)) return kOk;

  const FieldGuard on_device(&Context::default_device, parsed_device(device));
  const Console console;
  std::cout << filled(cells("op", "cases", "checked", "worst error", "of tol") + "\n",
                      shown_columns(), 2);
  std::vector<Line> failed;
  int64_t shown = 0;
  const auto finish = [&](const Line& line) {
    if (line.cases == 0) return;
    ++shown;
    line.ok() ? print(console, line, {}, false) : failed.push_back(line);
  };
  for (const OpCase& row : op_cases()) {
    if (row.name.find(only) == std::string::npos) continue;
    Line line;
    line.name = row.name;
    check_op(row, second, line);
    finish(line);
  }
  const std::vector<ModuleCase> modules = [&] {
    try {
      return module_cases();
    } catch (const Error&) {  // a layer cannot be made; what was found before is told
      print_failed(console, failed);
      throw;
    }
  }();
  for (const ModuleCase& row : modules) {
    if (row.name.find(only) == std::string::npos) continue;
    Line line;
    line.name = row.name;
    line.is_module = true;
    add(line, [&] { return check_module(row); });
    finish(line);
  }
  print_failed(console, failed);
  std::cout << fmt::format("{} of {} failed\n", failed.size(), shown);
  if (shown == 0) throw UsageError("--only: no op or module is called like '" + only + "'");
  std::cout << filled(
      "This checks f64 on small shapes. The tests also check f32, bf16, sizes that are no "
      "multiple of a vector, several threads and ties.\n",
      shown_columns(), 0);
  return failed.empty() ? kOk : kFailed;
}

}  // namespace ink
