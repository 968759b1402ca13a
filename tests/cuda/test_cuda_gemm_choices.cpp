// The file in which a GPU's choice of algorithms is kept. Needs no GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

#include "autograd/io/log.h"
#include "cuda/gemm_choices.h"

namespace ink::cuda {
namespace {

class CudaGemmChoices : public testing::Test {
 protected:
  CudaGemmChoices() {
    set_log_callback([this](const std::string& line) { logged_.push_back(line); });
  }
  ~CudaGemmChoices() override { set_log_callback({}); }

  std::string text() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const TempFolder folder_;
  const std::filesystem::path file_ = folder_ / "choices.txt";
  std::vector<std::string> logged_;
  const GemmChoices::Algorithm first_{1, 2, 3, 4, 5, 6, 7, ~uint64_t{0}}, second_{0x1f};
};

TEST_F(CudaGemmChoices, AreThereInTheNextRun) {
  {
    GemmChoices choices(file_, "H200, 13.2");
    EXPECT_FALSE(choices.find("(2, 3) x (3, 4): bias"));
    choices.keep("(2, 3) x (3, 4): bias", first_);
    choices.keep("(1, 1) x (1, 1)", second_);
    EXPECT_EQ(choices.find("(2, 3) x (3, 4): bias"), first_);
  }
  EXPECT_EQ(text(),
            "inkling: algorithms of products, H200, 13.2\n"
            "(1, 1) x (1, 1): 1f 0 0 0 0 0 0 0\n"
            "(2, 3) x (3, 4): bias: 1 2 3 4 5 6 7 ffffffffffffffff\n");
  const GemmChoices choices(file_, "H200, 13.2");
  EXPECT_EQ(choices.find("(2, 3) x (3, 4): bias"), first_);
  EXPECT_EQ(choices.find("(1, 1) x (1, 1)"), second_);
  EXPECT_FALSE(choices.find("(2, 3) x (3, 4)"));
  EXPECT_TRUE(logged_.empty());
  EXPECT_FALSE(std::filesystem::exists(file_.string() + ".tmp"));
}

TEST_F(CudaGemmChoices, OfAnotherMachineAreMadeAnew) {
  GemmChoices(file_, "H200, 13.2").keep("a", first_);
  const std::string before = text();
  GemmChoices other(file_, "H200, 13.3");
  EXPECT_FALSE(other.find("a"));
  EXPECT_EQ(logged_, std::vector<std::string>{
                         file_.string() + ": of another machine, and made anew for H200, 13.3"});
  EXPECT_EQ(text(), before) << "it stays until there is something to write";
  other.keep("b", second_);
  EXPECT_EQ(text(), "inkling: algorithms of products, H200, 13.3\nb: 1f 0 0 0 0 0 0 0\n");
}

TEST_F(CudaGemmChoices, ThatAreNotUnderstoodAreMadeAnew) {
  const std::string title = "inkling: algorithms of products, H200\na: 1 2 3 4 5 6 7 8\n";
  for (const char* line :
       {"b: 1 2 3 4 5 6 7", "b: 1 2 3 4 5 6 7 8 9", "b 1 2 3 4 5 6 7 8", "b: 1 2 3 4 5 6 7 8x",
        ": 1 2 3 4 5 6 7 8", "b: 1 2 3 4 5 6 7 10000000000000000", ""}) {
    SCOPED_TRACE(line);
    logged_.clear();
    folder_.write("choices.txt", title + line + "\n");
    EXPECT_FALSE(GemmChoices(file_, "H200").find("a"));
    EXPECT_EQ(logged_,
              std::vector<std::string>{file_.string() + ": line 3 is not understood; made anew"});
  }
}

TEST_F(CudaGemmChoices, SayWhereTheyCannotBeKept) {
  const std::filesystem::path nowhere = folder_ / "no/such/folder";
  EXPECT_EQ(error_of([&] { GemmChoices(nowhere, "H200").keep("a", first_); }),
            nowhere.string() + ": cannot create: No such file or directory");
}

}  // namespace
}  // namespace ink::cuda
