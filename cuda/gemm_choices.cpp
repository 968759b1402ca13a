#include "cuda/gemm_choices.h"

#include <fstream>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/log.h"

namespace ink::cuda {
namespace {

constexpr char kTitle[] = "inkling: algorithms of products, ";

// "product: word word ...", the words in hexadecimal.
std::optional<std::pair<std::string, GemmChoices::Algorithm>> parse(const std::string& line) {
  const size_t colon = line.rfind(": ");
  if (colon == std::string::npos || colon == 0) return {};
  TextStream words(line.substr(colon + 2));
  GemmChoices::Algorithm algorithm;
  for (uint64_t& word : algorithm) words >> std::hex >> word;
  if (words.fail() || words.peek() != TextStream::traits_type::eof()) return {};
  return std::pair(line.substr(0, colon), algorithm);
}

}  // namespace

GemmChoices::GemmChoices(std::filesystem::path file, std::string machine)
    : file_(std::move(file)), machine_(std::move(machine)) {
  read();
}

void GemmChoices::read() {
  std::ifstream in(file_);
  std::string line;
  if (!std::getline(in, line)) return;
  if (line != kTitle + machine_)
    return log_message(file_.string(), ": of another machine, and made anew for ", machine_);
  for (int number = 2; std::getline(in, line); ++number) {
    const auto choice = parse(line);
    if (!choice) {
      known_.clear();
      return log_message(file_.string(), ": line ", number, " is not understood; made anew");
    }
    known_.insert(*choice);
  }
}

std::optional<GemmChoices::Algorithm> GemmChoices::find(const std::string& product) const {
  const auto known = known_.find(product);
  if (known == known_.end()) return {};
  return known->second;
}

void GemmChoices::keep(const std::string& product, const Algorithm& algorithm) {
  INK_CHECK(product.find('\n') == std::string::npos, "a product's description is one line");
  known_[product] = algorithm;
  TextStream text;
  text << kTitle << machine_ << '\n' << std::hex;
  for (const auto& [name, words] : known_) {
    text << name << ':';
    for (const uint64_t word : words) text << ' ' << word;
    text << '\n';
  }
  AtomicFile out(file_);
  out.write(text.str().data(), text.str().size());
  out.commit();
}

}  // namespace ink::cuda
