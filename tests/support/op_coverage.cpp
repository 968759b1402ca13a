// op_coverage FOLDER: reads what all test programs noted and fails if some (op, dtype, inputs
// given) entered a graph anywhere in the suite without being checked by the op's own row in
// train/cases/op_cases.cpp. Ops that tests make up are named test_*.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: op_coverage FOLDER\n";
    return 2;
  }
  std::set<std::string> seen, checked;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path());
    for (std::string kind, key; file >> kind && std::getline(file >> std::ws, key);) {
      if (key.rfind("test_", 0) != 0) (kind == "checked" ? checked : seen).insert(key);
    }
  }
  int missing = 0;
  for (const std::string& key : seen) {
    if (checked.count(key) == 0)
      std::cout << "not gradient-checked by a row of its own: " << key << (++missing, "\n");
  }
  std::cout << seen.size() << " (op, dtype, inputs) recorded by the suite, " << missing
            << " of them unchecked\n";
  if (missing > 0) std::cout << "Add a row of the op's name to train/cases/op_cases.cpp.\n";
  if (checked.empty()) std::cout << "nothing was checked: did test_ops run?\n";
  return missing > 0 || checked.empty();
}
