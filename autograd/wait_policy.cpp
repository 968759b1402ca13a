// How threads wait. OpenMP reads this when it is loaded, so the program starts over.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "autograd/base/context.h"

namespace ink {

void set_wait_policy(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;
  }
  // Before argv, the words of a loader that was asked to run the program (ld.so PROGRAM ...): it is
  // then the exe.
  std::ifstream file("/proc/self/cmdline");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  file.close();  // or the program would start over with it in the place of a closed descriptor
  std::vector<const char*> words;
  const std::string name = program_invocation_name;
  for (size_t at = 0; at < text.size() && &text[at] != name; at = text.find('\0', at) + 1)
    words.push_back(&text[at]);
  if (!words.empty() && std::string(words.back()) == "--argv0") return;  // the program's is unknown
  do words.push_back(*argv);
  while (*argv++);
  setenv("GOMP_SPINCOUNT", "1000", 1);
  setenv("KMP_BLOCKTIME", "1", 1);                                  // ms
  execv("/proc/self/exe", const_cast<char* const*>(words.data()));  // returns only if it fails
}

}  // namespace ink
