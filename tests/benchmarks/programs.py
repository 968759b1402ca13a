"""Ordinary small programs in inkling beside PyTorch: no op should be a cliff.

    python tests/benchmarks/programs.py                              (a python that has PyTorch)
    python tests/benchmarks/programs.py --threads 1 --filter 'sum|amax' --write TABLE.md

The table of programs is in programs.cpp. For each row both sides make the same inputs, and their results must agree
before a time is reported. Then they take short turns: one computes while the other waits. A time is the least that a
call took in any turn, because other programs only ever add to it. PyTorch is called as its users do, from Python.
"""

import argparse
import datetime
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_pytorch import ROOT, processor, unlock_mkl


# ---- PyTorch's side: it answers the lines that programs.cpp describes


class PyTorch:
    def __init__(self, device):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch, self.current = torch, None
        self.batch, self.wait = (1000, torch.cuda.synchronize) if device == "cuda" else (50, lambda: None)
        if device == "cuda":
            torch.set_default_tensor_type(torch.cuda.FloatTensor)  # set_default_device costs time in every call
        # Both sides draw the CPU's numbers.
        randn = lambda sizes, **options: torch.randn(sizes, device="cpu", **options).to(device)  # noqa: E731
        randint = lambda *bounds_sizes: torch.randint(*bounds_sizes, device="cpu").to(device)  # noqa: E731
        self.names = {**vars(torch), **vars(torch.nn.functional), "torch": torch}
        self.names |= {
            "floats": lambda *sizes: randn(sizes),
            "halves": lambda *sizes: randn(sizes).bfloat16(),
            "bools": lambda *sizes: randn(sizes) > 0,
            "doubles": lambda *sizes: randn(sizes, dtype=torch.float64),
            "integers": lambda *sizes: randint(-5, 6, sizes),
            "ids": lambda n, *sizes: randint(n, sizes),
            "gradient": lambda y, x: torch.autograd.grad(y.sum(), x)[0],
        }

    def program(self, inputs, expression):
        if (inputs, expression) != self.current:
            self.torch.manual_seed(0)
            names = self.names | eval("dict" + inputs, self.names)
            self.run, self.current = eval("lambda: " + expression, names), (inputs, expression)
        return self.run

    def values(self, *program):
        try:
            result = self.program(*program)().detach().double().flatten()
        except (NotImplementedError, RuntimeError):  # i64 products on a GPU
            return "refused"
        numbers = result[:: len(result) // 1000 + 1].tolist()
        return " ".join(map(repr, [len(result), *numbers]))

    def time(self, *program, seconds):
        run, least, calls = self.program(*program), math.inf, 1
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(calls):
                run()
            self.wait()
            taken = 1e6 * (time.perf_counter() - start)
            least = min(least, taken / calls)
            calls *= 2 if taken < self.batch else 1
        return least

    def serve(self):
        for line in sys.stdin:
            command, *rest = line.rstrip("\n").split("\t")
            if command == "version":
                answer = self.torch.__version__
            elif command == "values":
                answer = self.values(*rest)
            else:
                answer = self.time(*rest[:2], seconds=float(rest[2]))
            print(answer, flush=True)


# ---- turns


class Side:
    """A process that answers a line with a line."""

    def __init__(self, command, environment):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(list(map(str, command)), env=environment, **pipes)

    def ask(self, *words, between=" "):
        self.process.stdin.write(between.join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"programs: the process died when asked: {' '.join(map(str, words))}")
        return line.rstrip("\n")


def agree(ours, theirs):
    """Are the results of one size and nearly the same? Errors count beside the largest number."""
    ours, theirs = ([float(word) for word in text.split()] for text in (ours, theirs))
    finite = [abs(value) for value in theirs[1:] if math.isfinite(value)]
    tolerance = 1e-3 * max(finite, default=0)
    same = lambda a, b: a == b or abs(a - b) <= tolerance or (math.isnan(a) and math.isnan(b))  # noqa: E731
    return len(ours) == len(theirs) and ours[0] == theirs[0] and all(map(same, ours, theirs))


def measure(number, row, ours, theirs, options):
    """Both times in us, or in words why there are none."""
    values = ours.ask("values", number), theirs.ask("values", *row, between="\t")
    if "refused" in values:
        return f"{'inkling' if values[0] == 'refused' else 'PyTorch'} refuses"
    if not agree(*values):
        return "results differ"
    times = [math.inf, math.inf]
    for _ in range(options.turns):
        turn = float(ours.ask("time", number, options.seconds)), float(theirs.ask("time", *row, options.seconds, between="\t"))
        times = list(map(min, times, turn))
    return times


def table(rows, machine):
    lines = [f"* {text}" for text in machine] + ["", "| inputs | program | inkling, us | PyTorch, us | ratio |", "| --- | --- | --: | --: | --: |"]
    by_ratio = lambda row: -math.inf if isinstance(row[1], str) else -row[1][0] / row[1][1]  # noqa: E731
    for (inputs, expression), times in sorted(rows, key=by_ratio):
        program = f"| `{inputs[1:-1]}` | `{expression}` |"
        words = isinstance(times, str)
        lines.append(f"{program} | | {times} |" if words else f"{program} {times[0]:.2f} | {times[1]:.2f} | {times[0] / times[1]:.2f} |")
    return "\n".join(lines).replace("||", "|") + "\n"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/tests/benchmark_programs")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--filter", default="", help="a regular expression, looked for in 'expression; inputs'")
    parser.add_argument("--turns", type=int, default=6, help="of each side, for each row")
    parser.add_argument("--seconds", type=float, default=0.03, help="of a turn")
    parser.add_argument("--write", type=Path, help="the table as Markdown")
    return parser.parse_args()


def main():
    options = arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for name in [name for name in environment if name.startswith("OPENBLAS_")]:
        del environment[name]
    with tempfile.TemporaryDirectory() as folder:
        mkl = unlock_mkl(Path(folder))
        ours = Side([options.program, options.device], environment)
        theirs = Side([sys.executable, __file__, "--serve", options.device], {**environment, **({"LD_PRELOAD": str(mkl)} if mkl else {})})
        machine = [
            f"{datetime.datetime.now():%Y-%m-%d %H:%M}; {processor()[0]}, {options.threads} threads, {options.device}; PyTorch {theirs.ask('version')}, Python {platform.python_version()}",
        ]
        rows = []
        for number in range(int(ours.ask("rows"))):
            row = tuple(ours.ask("show", number).split("\t"))
            if re.search(options.filter, f"{row[1]}; {row[0]}"):
                rows.append((row, measure(number, row, ours, theirs, options)))
        slow = sum(isinstance(times, list) and times[0] > 1.2 * times[1] for _, times in rows)
        wrong = sum(times in ("results differ", "inkling refuses") for _, times in rows)
        machine.append(f"{len(rows)} rows, of which {slow} take more than 1.2 times PyTorch's time and {wrong} are wrong; load at the end {os.getloadavg()[0]:.1f}")
        for side in (ours, theirs):
            side.process.stdin.close()
            side.process.wait()
    text = table(rows, machine)
    if options.write:
        options.write.write_text("# Small programs beside PyTorch\n\n`programs.py` writes this table; its head says how it measures.\n\n" + text)
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        PyTorch(sys.argv[2]).serve()
    else:
        main()
