#include "autograd/base/context.h"

namespace ink {

Context& context() {
  thread_local Context current;
  return current;
}

}  // namespace ink
