// The ops of parity cases by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "arguments.h"

namespace ink::parity {

using Outputs = std::vector<Tensor>;
using Call = std::function<Outputs(Arguments&)>;
const std::map<std::string, Call>& ops();

}  // namespace ink::parity
