// Processes that mpirun started, or srun. Only the C library of Open MPI is used: the one for C++
// was dropped from MPI, and Debian 13 has none.
#include "train/parallel/processes.h"

#ifdef INKLING_MPI

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "autograd/base/check.h"

namespace ink {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<size_t>(length));
  detail::fail({"MPI: ", what, ": ", text});
}

// MPI itself waits without end where processes start and end.
volatile std::sig_atomic_t is_ending = 0;
void tell_of_wait(int) {
  constexpr std::string_view starting =
      "inkling train: waited INKLING_PROCESS_TIMEOUT seconds for all processes to start, and MPI "
      "has not connected them\n";
  constexpr std::string_view ending =
      "inkling train: waited INKLING_PROCESS_TIMEOUT seconds for all processes to end\n";
  const std::string_view text = is_ending != 0 ? ending : starting;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(1);
}

class MpiProcesses : public Processes {
 public:
  MpiProcesses() {
    int given = 0, rank = 0, size = 1;
    watch_wait();
    // Over TCP, Open MPI sends up to 64 kB at once. For more it asks first, and the answer waits
    // until the other one's backward looks at MPI again: a step took half as long again.
    const std::string at_once = std::to_string(kPieceBytes + 4096);  // and what MPI adds to it
    ::setenv("OMPI_MCA_btl_tcp_eager_limit", at_once.c_str(), 0);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "size");
    rank_ = rank, size_ = size;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &roll_call_), "roll call");
    alarm(0);
  }
  ~MpiProcesses() override {
    is_ending = 1;
    watch_wait();
    MPI_Finalize();
    alarm(0);
  }

  Transfer start_send(int64_t to, std::span<const std::byte> bytes) override {
    MPI_Request request{};
    check(MPI_Isend(bytes.data(), count(bytes), MPI_BYTE, static_cast<int>(to), 0, MPI_COMM_WORLD,
                    &request),
          "send");
    return keep(request);
  }
  Transfer start_receive(int64_t from, std::span<std::byte> bytes) override {
    MPI_Request request{};
    check(MPI_Irecv(bytes.data(), count(bytes), MPI_BYTE, static_cast<int>(from), 0, MPI_COMM_WORLD,
                    &request),
          "receive");
    return keep(request);
  }
  bool is_done(Transfer transfer) override {
    int done = 0;
    const auto found = requests_.find(transfer);
    check(MPI_Test(&found->second, &done, MPI_STATUS_IGNORE), "test");
    if (done != 0) requests_.erase(found);
    return done != 0;
  }

  // A process that waits answers to every question. Who asks, waits for that. Once another process
  // ends all, and has said why, nothing is left to say.
  void answer() override {
    int ends = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kEnd, roll_call_, &ends, MPI_STATUS_IGNORE);
    if (ends != 0) {
      die_in(5);
      for (;;) pause();
    }
    for (int asked = 1; asked != 0;) {
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, roll_call_, &asked, &status);
      if (asked == 0) return;
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kQuestion, roll_call_, MPI_STATUS_IGNORE);
      say(status.MPI_SOURCE, kAnswer);
    }
  }
  std::vector<int64_t> silent() override {
    std::vector<int64_t> missing;
    for (int64_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      missing.push_back(other);
      say(static_cast<int>(other), kQuestion);
    }
    for (int tries = 0; tries < 200 && !missing.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      answer();
      MPI_Status status;
      for (int came = 1; came != 0;) {
        MPI_Iprobe(MPI_ANY_SOURCE, kAnswer, roll_call_, &came, &status);
        if (came == 0) break;
        MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kAnswer, roll_call_, MPI_STATUS_IGNORE);
        std::erase(missing, status.MPI_SOURCE);
      }
    }
    return missing;
  }
  // MPI asks the machines of all others, and waits for one that it cannot reach.
  void abort(int code) override {
    die_in(5);
    for (int other = 0; other < static_cast<int>(size_); ++other)
      if (other != rank_) say(other, kEnd);
    links_.reset();
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 protected:
  Transfer start_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                        const std::vector<int>& sizes, const std::vector<int>& starts) override {
    MPI_Request request{};
    check(MPI_Iallgatherv(mine.data(), count(mine), MPI_BYTE, all.data(), sizes.data(),
                          starts.data(), MPI_BYTE, MPI_COMM_WORLD, &request),
          "gather");
    return keep(request);
  }
  Transfer start_broadcast(std::span<std::byte> bytes) override {
    MPI_Request request{};
    check(MPI_Ibcast(bytes.data(), count(bytes), MPI_BYTE, 0, MPI_COMM_WORLD, &request),
          "broadcast");
    return keep(request);
  }

 private:
  static constexpr int kQuestion = 1, kAnswer = 2, kEnd = 3;

  static void watch_wait() {  // the first one to give up speaks for all
    std::signal(SIGALRM, tell_of_wait);
    alarm(static_cast<unsigned>(timeout() + 3 * static_cast<double>(launched_rank() % 20)));
  }
  static void die_in(unsigned seconds) {
    std::signal(SIGALRM, SIG_DFL);
    alarm(seconds);
  }

  template <class Bytes>
  static int count(const Bytes& bytes) {
    INK_CHECK(bytes.size() < size_t{1} << 30, "MPI: expected less than 1 GB at a time, got ",
              bytes.size());
    return static_cast<int>(bytes.size());
  }
  Transfer keep(MPI_Request request) {
    requests_.emplace(++last_, request);
    return last_;
  }
  // An empty message is on its way at once, whether or not the other one lives.
  void say(int to, int tag) {
    MPI_Request request{};
    if (MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, roll_call_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }

  MPI_Comm roll_call_{};
  std::map<Transfer, MPI_Request> requests_;
  Transfer last_ = 0;
};

}  // namespace

std::string processes_engine() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // "Open MPI v4.1.4, package: ..."
  return text.substr(0, text.find(','));
}

std::unique_ptr<Processes> start_engine() { return std::make_unique<MpiProcesses>(); }

}  // namespace ink

#else

namespace ink {

std::string processes_engine() { return ""; }
std::unique_ptr<Processes> start_engine() { return nullptr; }

}  // namespace ink

#endif
