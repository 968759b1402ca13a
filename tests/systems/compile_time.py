#!/usr/bin/env python3
"""How much processor time the build takes, against what compile_time.txt records.

    python3 tests/systems/compile_time.py report LOG BUILD [--record]

prints seconds of the library, the program and the tests, the five dearest files and the program's
size. It fails if one of them is more than TOLERANCE above the recorded figure. --record writes the
figures anew: do that in the commit that raises or lowers them, and say there why. LOG, which is
there already, is written by a build from nothing, in which this script runs compiler and linker:

    : >LOG; watch="python3;$PWD/tests/systems/compile_time.py;run;LOG"  # with its whole path
    ./run.sh build release -DINKLING_CUDA=OFF -DCMAKE_CXX_COMPILER_LAUNCHER="$watch" \\
      -DCMAKE_CXX_LINKER_LAUNCHER="$watch"

Figures are in units of a reference, which is compiled anew beside every fifteenth file: another
machine, or other load on this one, slows both alike.
"""
import fcntl
import os
import re
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDED = os.path.join(HERE, "compile_time.txt")
# On a busy machine one file's time varies by a fifth, and a sum over many by a few per cent.
# Processors differ by some more, because -march=native chooses what is compiled: the figures are of
# one processor so far.
TOLERANCE = 0.25
EVERY = 15
REFERENCE = """
#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
std::map<std::string, std::vector<std::function<double(double)>>> table;
std::unordered_map<std::string, std::vector<double>> numbers;
int main() {
  std::ostringstream out;
  for (auto& [name, functions] : table)
    for (auto& f : functions) out << name << f(1.0);
  for (auto& [name, list] : numbers) std::stable_sort(list.begin(), list.end());
  return static_cast<int>(out.str().size());
}
"""
GROUPS = ("library", "program", "tests")
LIBRARY = re.compile(r"CMakeFiles/inkling_(autograd|autograd_plain|data|nn|train|cuda)\.dir/|"
                     r"^libinkling_(autograd|data|nn|train|cuda)\.so")


def measured(command, **options):
    """(exit status, seconds of the processor)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, **options).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, sum(getattr(after, name) - getattr(before, name)
                       for name in ("ru_utime", "ru_stime"))


def run(log, command):
    """Runs the compiler or the linker, and notes what it took if there is a LOG."""
    status, seconds = measured(command)
    if status != 0 or "-o" not in command or not os.path.exists(log):
        return status
    with open(log, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        refer = len(file.readlines()) % EVERY == 0
        file.write(f"{seconds:.3f} {command[command.index('-o') + 1]}\n")
    if refer:
        failed, seconds = measured([command[0], "-std=c++20", "-O2", "-x", "c++", "-c", "-",
                                    "-o", os.devnull], input=REFERENCE.encode())
        if failed == 0:
            with open(log, "a") as file:
                file.write(f"{seconds:.3f} reference\n")
    return status


def group_of(output, folder):
    path = os.path.relpath(os.path.join(folder, output), folder)
    return "tests" if path.startswith("tests/") else "library" if LIBRARY.search(path) else "program"


def short(output):
    return re.sub(r"CMakeFiles/(\w+)\.dir/", r"\1: ", output).removesuffix(".o")


def report(log, folder, record):
    files, references = {}, []
    for line in open(log):
        seconds, output = line.split(maxsplit=1)
        if output.strip() == "reference":
            references.append(float(seconds))
        else:
            files[output.strip()] = float(seconds)  # the last time that it was compiled
    if not references:
        sys.exit(f"{log}: holds no reference; build from nothing")
    unit = sum(references) / len(references)
    figures = {group: sum(seconds for output, seconds in files.items()
                          if group_of(output, folder) == group) / unit for group in GROUPS}
    if not all(figures.values()):
        sys.exit(f"{log}: expected files of {', '.join(GROUPS)}; build from nothing")
    figures["size"] = os.path.getsize(os.path.join(folder, "inkling")) / 1e6
    print(f"{len(files)} files and programs; the reference took {unit:.2f} s, {min(references):.2f} "
          f"to {max(references):.2f} in {len(references)} times")
    recorded = {}
    if os.path.exists(RECORDED):
        for line in open(RECORDED):
            if not line.startswith("#"):
                name, figure = line.split()
                recorded[name] = float(figure)
    faults = []
    for name, figure in figures.items():
        said = f"{figure * unit:7.1f} s {figure:7.1f} times the reference" if name in GROUPS \
            else f"{figure:7.2f} MB"
        known = recorded.get(name)
        print(f"{name:9} {said}" + (f", {known:g} recorded" if known else ""))
        if known and figure > (1 + TOLERANCE) * known:
            faults.append(f"{name}: {figure:.2f} is more than {1 + TOLERANCE:.2f} times what "
                          f"compile_time.txt records: compile less, or record it "
                          f"(compile_time.py report --record) and say why in the commit")
    for output in sorted(files, key=files.get)[:-6:-1]:
        print(f"  {files[output]:6.1f} s {short(output)}")
    if record:
        with open(RECORDED, "w") as file:
            file.write("# Processor time of the release build (CPU only, with tests), in units of the reference\n"
                       "# compile, and the program's size: tests/systems/compile_time.py\n")
            for name, figure in figures.items():
                file.write(f"{name} {figure:.{2 if name == 'size' else 1}f}\n")
        faults = []
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "run":
        return run(sys.argv[2], sys.argv[3:])
    if len(sys.argv) in (4, 5) and sys.argv[1] == "report" and sys.argv[4:] in ([], ["--record"]):
        return report(sys.argv[2], sys.argv[3], len(sys.argv) == 5)
    print(__doc__)
    return 2


sys.exit(main())
