// inkling gradcheck: every row of train/cases/op_cases.cpp and train/cases/module_cases.cpp against
// central differences. What these cannot see, of rows this small and in f64, the last line says;
// tests/test_ops.cpp takes the same rows in all dtypes and sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "autograd/inspect/gradcheck.h"
#include "autograd/memory/device_backend.h"
#include "train/cases/module_cases.h"
#include "train/cases/op_case_inputs.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"

namespace ink {
namespace {

struct Line {
  int64_t cases = 0, checked = 0;
  GradcheckReport worst;
  std::string error;
  bool ok() const { return worst.ok && error.empty(); }
};

void add(Line& line, const std::function<GradcheckReport()>& check) {
  ++line.cases;
  try {
    const GradcheckReport report = check();
    line.checked += report.checked;
    if (!report.ok || report.worst >= line.worst.worst) line.worst = report;
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

bool print(const Console& console, const std::string& name, const Line& line) {
  if (line.cases == 0) return true;
  const double error = std::abs(line.worst.analytic - line.worst.numeric);
  std::cout << fmt::format("{:<28} {:>6} {:>9}  {:>10.1e}  {:>6.3f}  {}\n", name, line.cases,
                           line.checked, error, line.worst.worst,
                           line.ok() ? console.green("ok") : console.yellow("FAILED"));
  if (!line.error.empty()) std::cout << "    " << line.error << "\n";
  if (!line.worst.ok) std::cout << "    " << line.worst << "\n";
  return line.ok();
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
  std::cout << fmt::format("{:<28} {:>6} {:>9}  {:>10}  {:>6}\n", "op", "cases", "checked",
                           "worst error", "of tol");
  int64_t failed = 0, shown = 0;
  for (const OpCase& row : op_cases()) {
    if (row.name.find(only) == std::string::npos) continue;
    Line line;
    check_op(row, second, line);
    failed += !print(console, row.name, line);
    shown += line.cases > 0;
  }
  for (const ModuleCase& row : module_cases()) {
    if (row.name.find(only) == std::string::npos) continue;
    Line line;
    add(line, [&] { return check_module(row); });
    failed += !print(console, row.name, line);
    ++shown;
  }
  std::cout << fmt::format("{} of {} failed\n", failed, shown);
  if (shown == 0) throw UsageError("no op or module is called like '" + only + "'");
  std::cout << "Not seen: f32, bf16, tails of vectors, threads' parts, later chunks and ties, "
               "which the tests look at.\n";
  return failed == 0 ? kOk : kFailed;
}

}  // namespace ink
