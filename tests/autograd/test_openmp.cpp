// Every OpenMP setting of a user or of a host program: nothing hangs, and the bits are those of the
// number of threads that was asked for. Each program has a time limit.
#include <gtest/gtest.h>
#include <link.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/units.h"
#include "data/file.h"
#include "tests/support/run_program.h"

namespace ink {
namespace {

// A product and its sums, whose bits depend on how they are cut into parts.
std::vector<float> work() {
  Generator generator(3);
  const Tensor x = randn({300, 260}, f32, generator), w = randn({260, 310}, f32, generator);
  const Tensor y = softmax(matmul(x, w)), total = cat({sum(y, {0}), sum(x * 3, {0})});
  return total.tolist<float>();
}

std::vector<float> work_in(int64_t parts) {
  const FieldGuard threads(&Context::threads, parts);
  return work();
}

// A host program's settings, put back afterwards.
struct Settings {
  int threads = omp_get_max_threads(), levels = omp_get_max_active_levels(),
      dynamic = omp_get_dynamic();
  ~Settings() {
    omp_set_num_threads(threads);
    omp_set_max_active_levels(levels);
    omp_set_dynamic(dynamic);
  }
};

// Calls f once for each unit of this processor.
template <class F>
void with_each_unit(const F& f) {
  for (const GemmUnit* unit : gemm_units()) {
    const FieldGuard first(&Context::first_unit, unit);
    SCOPED_TRACE(unit->name);
    f();
  }
}

TEST(OpenMP, ThePartsAreThoseOfTheContext) {
  with_each_unit([] {
    const std::vector<float> in_three = work_in(3);
    const Settings settings;
    for (const int threads : {1, 2, 3, 4}) {
      omp_set_num_threads(threads);
      EXPECT_EQ(max_threads(), threads);
      EXPECT_EQ(work(), work_in(threads));
      EXPECT_EQ(work_in(3), in_three) << threads;
    }
    omp_set_dynamic(1);
    EXPECT_EQ(work_in(3), in_three);
    omp_set_max_active_levels(0);
    EXPECT_EQ(max_threads(), 1);
    EXPECT_EQ(work(), work_in(1));
    EXPECT_EQ(work_in(3), in_three);
  });
}

TEST(OpenMP, PartsRunWholeOnATeamThatIsTooSmall) {
  const Settings settings;
  omp_set_num_threads(2);
  const FieldGuard threads(&Context::threads, int64_t{5});
  std::vector<int64_t> begins(100, -1), inside(100, -1);
  parallel_for(100, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      begins[static_cast<size_t>(i)] = begin;
      inside[static_cast<size_t>(i)] = max_threads();
    }
  });
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(begins[static_cast<size_t>(i)], i / 20 * 20);
    EXPECT_EQ(inside[static_cast<size_t>(i)], 1) << "a part takes no threads";
  }
  EXPECT_EQ(max_threads(), 5);
}

TEST(OpenMP, InsideARegionOfTheHost) {
  with_each_unit([] {
    const std::vector<float> alone = work_in(1);
    std::vector<std::vector<float>> results(2);
    const Context caller = context();
#pragma omp parallel num_threads(2)
    {
      const ContextGuard guard(caller);
      results[static_cast<size_t>(omp_get_thread_num())] = work();
    }
    for (const auto& result : results) {
      if (&result == &results[0] || !result.empty()) {
        EXPECT_EQ(result, alone);
      }
    }
  });
}

TEST(OpenMP, OnThreadsOfTheUser) {
  with_each_unit([] {
    const std::vector<float> expected = work_in(2);
    std::vector<std::vector<float>> results(4);
    std::vector<std::thread> threads;
    const Context caller = context();
    for (auto& result : results)
      threads.emplace_back([&] {
        const ContextGuard guard(caller);
        result = work_in(2);
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& result : results) EXPECT_EQ(result, expected);
  });
}

// OpenMP's threads are not in a forked process. Its parts run on the one thread that is.
TEST(OpenMP, AForkedProcessMultiplies) {
  with_each_unit([] {
    const std::vector<float> expected = work_in(2);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const bool same = work_in(2) == expected && work_in(1).size() == expected.size();
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        alarm(60);
        _exit(work_in(2) == expected ? 0 : 1);
      }
      int status = 0;
      waitpid(grandchild, &status, 0);
      _exit(same && status == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(work_in(2), expected) << "the parent has its threads";
  });
}

// ---- the program

const char* const kEnvironments[] = {"OMP_THREAD_LIMIT=1",
                                     "OMP_MAX_ACTIVE_LEVELS=0",
                                     "OMP_DYNAMIC=true",
                                     "OMP_THREAD_LIMIT=2 OMP_NUM_THREADS=4",
                                     "OMP_MAX_ACTIVE_LEVELS=3 OMP_NESTED=true",
                                     "OMP_PROC_BIND=true OMP_PLACES=threads",
                                     "OMP_SCHEDULE=dynamic,1 OMP_WAIT_POLICY=active",
                                     "OMP_NUM_THREADS=2,2",
                                     "GOMP_SPINCOUNT=infinity OMP_NUM_THREADS=3"};

// Every command ends, with OpenBLAS and with the best unit, and trains the same bits.
TEST(OpenMP, ProgramsEndWhateverTheEnvironmentSays) {
  const TempFolder folder;
  const std::string run = (folder / "run").string();
  const std::string train =
      " timeout 100 \"$INKLING_PROGRAM\" train --n_embd 32 --n_layer 1 --max_iters 3 --threads 2"
      " --eval_iters 1 --report off --overwrite --out_dir " +
      run;
  for (const std::string unit : {"default", ""}) {
    const std::string units = unit.empty() ? "unset INKLING_CPU_CAPABILITY; "
                                           : "export INKLING_CPU_CAPABILITY=" + unit + "; ";
    ASSERT_EQ(run_shell(units + train).code, 0);
    const std::string bits = read_file(run + "/ckpt/model.safetensors");
    for (const std::string environment : kEnvironments) {
      const Ran info = run_shell(units + environment + " timeout 100 \"$INKLING_PROGRAM\" info");
      EXPECT_EQ(info.code, 0) << environment << info.err;
      const Ran trained = run_shell(units + environment + train);
      EXPECT_EQ(trained.code, 0) << environment << trained.err;
      EXPECT_TRUE(read_file(run + "/ckpt/model.safetensors") == bits) << environment;
    }
  }
}

TEST(OpenMP, ProgramsEndWithLimitedMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
#endif
  for (const char* environment : {"OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_NUM_THREADS=2"}) {
    for (const GemmUnit* unit : gemm_units()) {
      const Ran ran =
          run_shell("ulimit -v 8000000; export INKLING_CPU_CAPABILITY=" + std::string(unit->name) +
                    "; " + environment +
                    " timeout 100 \"$INKLING_PROGRAM\" bench --n_layer 1 --n_embd 32 --steps 1");
      EXPECT_EQ(ran.code, 0) << unit->name << " " << environment << ran.err;
    }
  }
}

// A run says how many threads it has.
TEST(OpenMP, InfoSaysHowManyThreadsThereAre) {
  const auto says = [](const std::string& environment) {
    const std::string out = run_shell(environment + " timeout 100 \"$INKLING_PROGRAM\" info").out;
    const size_t at = out.find(", ") + 2;
    return out.substr(at, out.find(',', at) - at);
  };
  EXPECT_EQ(says("OMP_NUM_THREADS=3"), "3 threads");
  EXPECT_EQ(says("OMP_NUM_THREADS=3 OMP_THREAD_LIMIT=2"), "2 threads");
  EXPECT_EQ(says("OMP_NUM_THREADS=3 OMP_THREAD_LIMIT=1"), "1 thread");
  EXPECT_EQ(says("OMP_NUM_THREADS=3 OMP_MAX_ACTIVE_LEVELS=0"), "1 thread");
  EXPECT_EQ(says("env -u OMP_WAIT_POLICY OMP_NUM_THREADS=3"), "3 threads") << "started over";
}

// What the system started is then the loader, and not the program.
TEST(OpenMP, ProgramsStartedThroughTheLoader) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers start programs over in a way of their own";
#endif
  std::string loader;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_INTERP)
            *static_cast<std::string*>(found) =
                reinterpret_cast<const char*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        return 1;  // the first one is this program
      },
      &loader);
  if (loader.empty()) GTEST_SKIP() << "a static program has none";
  const TempFolder folder;
  const std::string start =
      "unset OMP_WAIT_POLICY GOMP_SPINCOUNT KMP_BLOCKTIME; cd \"$(dirname "
      "\"$INKLING_PROGRAM\")\"; timeout 100 " +
      loader + " ";
  for (const std::string how :
       {"./inkling", "--library-path /nowhere ./inkling", "--argv0 other ./inkling"}) {
    const Ran info = run_shell(start + how + " info");
    EXPECT_EQ(info.code, 0) << info.err;
    const Ran tools = run_shell(start + how + " gradcheck --only softmax");  // inkling-tools
    EXPECT_EQ(tools.code, 0) << tools.err;
    EXPECT_NE(tools.out.find("softmax"), std::string::npos);
    const Ran help = run_shell(start + how + " help bench more words");
    EXPECT_EQ(help.code, 0) << help.err;
  }
}

// Not with those of the system, where main has changed its own.
TEST(OpenMP, ProgramsStartOverWithTheWordsOfArgv) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers start programs over in a way of their own";
#endif
  const TempFolder folder;
  const std::string file = (folder / "out").string();
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) unsetenv(name);
    std::string words[] = {"other", "--gtest_list_tests", "--gtest_filter=OpenMP.*WordsOfArgv"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    if (std::freopen(file.c_str(), "w", stdout) == nullptr) _exit(4);
    set_wait_policy(argv);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_NE(read_text(file).find("OpenMP.\n  ProgramsStartOverWithTheWordsOfArgv\n"),
            std::string::npos)
      << read_text(file);
}

}  // namespace
}  // namespace ink
