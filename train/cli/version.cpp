#include "train/cli/version.h"

namespace ink {

std::string program_text() {
  const std::string commit = INKLING_COMMIT;
  return "inkling " INKLING_VERSION + (commit.empty() ? "" : ", commit " + commit);
}

}  // namespace ink
