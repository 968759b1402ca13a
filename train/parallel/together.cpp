#include "train/parallel/together.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/crc64.h"
#include "autograd/io/log.h"
#include "autograd/memory/storage.h"

namespace ink {
namespace {

Processes alone;
std::unique_ptr<Processes> group;  // null: this process is alone
bool has_met = false;              // was check_same called, or missed?
int working = 0;                   // orders that are being carried out
pid_t first_process = 0;           // of process 0, from the meeting on

// Ends a process without a word, because process 0 says what there is to say.
struct Quiet {};

// The one meeting of all processes before they train: the error of each, or else what must be the
// same. At process 0, throws what is wrong; elsewhere Quiet.
using Values = std::vector<std::pair<std::string, std::string>>;  // by name
void meet(const std::string& error, const Values& what) {
  has_met = true;
  std::string mine(1, error.empty() ? '\0' : '\1');
  const auto put = [&](const std::string& text) {
    mine += std::to_string(text.size()) + " " + text;
  };
  put(error);
  put(processes().name());
  put(std::to_string(::getpid()));
  for (const auto& [name, value] : what) put(name), put(value);
  const auto read = [](const std::string& all) {
    std::vector<std::string> texts;
    for (size_t at = 1; at < all.size();) {
      const size_t space = all.find(' ', at), size = std::stoull(all.substr(at, space - at));
      texts.push_back(all.substr(space + 1, size));
      at = space + 1 + size;
    }
    return texts;
  };
  ++working;
  const std::vector<std::string> all = processes().gather(mine);
  --working;
  const std::vector<std::string> first = read(all[0]);
  first_process = std::stoi(first[2]);
  std::map<std::string, std::string> expected;
  for (size_t k = 3; k + 1 < first.size(); k += 2) expected[first[k]] = first[k + 1];
  std::string wrong;
  for (size_t i = 0; i < all.size() && wrong.empty(); ++i) {
    const std::vector<std::string> texts = read(all[i]);
    if (!texts[0].empty()) wrong = i == 0 ? texts[0] : texts[1] + ": " + texts[0];
    for (size_t k = 3; k + 1 < texts.size() && wrong.empty(); k += 2)
      if (const auto at = expected.find(texts[k]);
          at != expected.end() && at->second != texts[k + 1])
        wrong = detail::joined({texts[1], ": ", texts[k], " is ", texts[k + 1],
                                ", but at process 0 it is ", at->second,
                                "; give all processes the same program, settings and data"});
    if (wrong.empty() && texts.size() != first.size())
      wrong = texts[1] + " was asked to do something else than process 0";
  }
  if (wrong.empty()) return;
  if (!processes().leads()) throw Quiet();
  group.reset();  // the others have ended
  throw Error(wrong);
}

std::string checksum_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  uint64_t crc = 0;
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), std::ssize(piece)), file.gcount() > 0)
    crc = crc64(std::as_bytes(std::span(piece).first(static_cast<size_t>(file.gcount()))), crc);
  return hex64(crc);
}

std::string checksum(const Tensor& x) {
  const Tensor whole = x.to(cpu_device).contiguous();
  const auto size = static_cast<size_t>(size_of(x.dtype()));
  const auto* memory = static_cast<const std::byte*>(whole.array().storage()->data);
  return hex64(crc64({memory + static_cast<size_t>(whole.array().layout().offset) * size,
                      static_cast<size_t>(x.numel()) * size}));
}

// Output of processes but the first would be that of the first once more.
void silence() {
  const int nowhere = ::open("/dev/null", O_WRONLY);
  std::fflush(stdout);
  if (nowhere >= 0) ::dup2(nowhere, STDOUT_FILENO), ::close(nowhere);
  set_log_callback({});
}

// Of srun without a way to connect processes, Open MPI 4 says that it was built wrongly.
bool is_left_alone() {
  const auto has = [](const char* variable) { return std::getenv(variable) != nullptr; };
  return has("SLURM_STEP_NUM_TASKS") && !has("OMPI_COMM_WORLD_SIZE") && !has("PMIX_RANK") &&
         !has("PMI_RANK");
}

void give(Order order) { processes().broadcast(std::as_writable_bytes(std::span(&order, 1))); }

// What is left to do for the others when process 0 ends, and for process 0 when another one does.
void farewell() {
  if (!group) return;
  if (!has_met) meet("", {});  // a command that does not train, such as --help
  if (processes().leads() && working == 0) give(Order::end);
  group.reset();
}

}  // namespace

Processes& processes() { return group ? *group : alone; }

void part_company() {
  if (group) meet("", {});
  group.reset();
}

void check_same(const nlohmann::json& settings, const nlohmann::json& arithmetic,
                const std::string& data, const std::vector<NamedTensors>& tensors) {
  if (processes().size() == 1) return;
  Values what{{"the program's checksum", checksum_of_program()}};
  for (const auto& [name, value] : settings.items())
    if (name != "out_dir") what.emplace_back(name, value.dump());
  for (const auto& [name, value] : arithmetic.items())  // some are settings, too
    what.emplace_back((settings.contains(name) ? "the arithmetic's " : "") + name, value.dump());
  what.emplace_back("the data", data);
  for (const NamedTensors& some : tensors)
    for (const auto& [name, x] : some) what.emplace_back("the checksum of " + name, checksum(x));
  meet("", what);
}

Ordered::Ordered(Order order) {
  ++working;
  if (processes().size() > 1 && processes().leads()) give(order);
}
// After an error the others still wait for this process within the order.
Ordered::~Ordered() {
  if (std::uncaught_exceptions() == 0) --working;
}

Order next_order() {
  Order order = Order::end;
  processes().broadcast(std::as_writable_bytes(std::span(&order, 1)), 30);
  return order;
}

int run_together(const std::function<int()>& f, const std::function<void(const std::string&)>& tell,
                 const std::function<bool()>& is_interrupted) {
  // MPI changes the environment. prterun and its like do not say in it how many processes there
  // are, but MPI knows.
  const int64_t launched = launched_processes(), rank = launched_rank();
  const bool is_known = launched > 0 || std::getenv("PMIX_RANK") == nullptr;
  if (launched <= 1 && (is_known || processes_engine().empty())) return f();
  if (processes_engine().empty()) {
    if (rank > 0) return 0;  // the exit code is that of process 0
    detail::fail({"was started as one of ", launched,
                  " processes, but is built without MPI; build it with -DINKLING_MPI=ON (./run.sh "
                  "build mpi, in build/mpi), or start one process"});
  }
  static_cast<void>(Processes::timeout());  // a wrong one is told before anybody waits
  if (!is_left_alone()) group = start_engine();
  if (!group || (is_known ? group->size() != launched : group->size() <= rank)) {
    group.reset();
    if (rank > 0) return 0;
    detail::fail({"was started as one of ", launched,
                  " processes, but each finds itself alone; start them with mpirun, or with srun "
                  "--mpi=pmix (srun --mpi=list shows what this cluster has)"});
  }
  has_met = false, working = 0;
  const bool leads = group->leads();
  const std::string name = group->name();
  if (!leads) silence();
  group->is_interrupted = is_interrupted;
  if (leads)
    group->tell_interrupted = [&] {
      tell("asked to stop while it waits for other processes, of which one may have ended");
    };
  else if (group->rank() == 1 && launched_local_rank() == 1)  // process 0 is on this machine
    group->tell_interrupted = [&] {
      if (has_met && ::kill(first_process, 0) != 0 && errno == ESRCH)
        tell("process 0 of " + std::to_string(group->size()) + " has ended");
    };
  std::exception_ptr error;
  std::string text;
  try {
    const int code = f();
    farewell();
    return code;
  } catch (const Quiet&) {
    group.reset();
    return 0;  // the exit code is that of process 0
  } catch (const std::exception& caught) {
    error = std::current_exception();
    text = caught.what();
  }
  if (!group) std::rethrow_exception(error);
  try {
    if (!has_met) {
      meet(text.empty() ? "an error" : text, {});
    } else if (!leads || working > 0) {
      tell(name + ": " + text);
      group->abort(1);
    } else {
      give(Order::end);
      tell(name + ": " + text);
      group.reset();
      return 1;
    }
  } catch (const std::exception&) {
    if (group) {  // it does not answer, to which the error would be told
      tell(name + ": " + text);
      group->abort(1);
    }
  } catch (const Quiet&) {
  }
  group.reset();
  if (!leads) return 0;
  std::rethrow_exception(error);
}

}  // namespace ink
