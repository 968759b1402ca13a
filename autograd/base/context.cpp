#include "autograd/base/context.h"

namespace ink {

Context& context() {
  thread_local Context current;
  thread_local RandomPosition& at = current.random = RandomPosition::next();  // the thread's own
  if (at.given_by != 0 && at.given_by != RandomPosition::seedings) at = RandomPosition::next();
  return current;
}

}  // namespace ink
