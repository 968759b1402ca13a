// The text of the error that a call throws.
#pragma once

#include <string>

#include "autograd/base/check.h"
#include "autograd/base/context.h"
#include "autograd/memory/device_backend.h"

namespace ink {

/// What f() says when it throws an ink::Error, or the default device when it is waited for then;
/// "(no error)" if neither throws.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
    synchronize(context().default_device);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace ink
