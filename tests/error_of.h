// The text of the error that a call throws.
#pragma once

#include <string>

#include "autograd/check.h"

namespace ink {

/// What f() says when it throws an ink::Error; "(no error)" if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace ink
