// One row per layer. test_modules and `inkling gradcheck` check it in f64, with all its parameters
// and inputs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "nn/module.h"

namespace ink {

struct ModuleCase {
  std::string name;
  std::shared_ptr<Module> module;  // in f64
  std::vector<Tensor> inputs;      // f64 ones are differentiated too
  std::function<Tensor(const Module&, const std::vector<Tensor>&)> forward;  // of the inputs
};

/// All rows; module_cases.cpp.
std::vector<ModuleCase> module_cases();
/// gradcheck, or gradgradcheck, over the row's parameters and floating inputs.
GradcheckReport check_module(const ModuleCase& row, GradcheckOptions options = {},
                             bool second = false);

}  // namespace ink
