"""Training steps of inkling beside PyTorch's, taking turns on the same cores, and RESULTS.md's tables from them.

    python tests/benchmarks/compare_pytorch.py                     (a python that has PyTorch)
    python tests/benchmarks/compare_pytorch.py --configs baby,char8 --modes eager,compile --rounds 5
    python tests/benchmarks/compare_pytorch.py --device cuda --program build/gpu/inkling --budget 300 --json FILE

Both start from the same weights, see the same batch at every step, clip at 1 and run AdamW. A time is reported only
for a run whose first ten losses are PyTorch's (eager, f32): within 1e-5 of them in f32, 1e-2 in bf16. With dropout the
masks differ, so the gate is the same work without. Each turn is a process of its own. PyTorch's f32 is its best of
eager and compiled; on a processor that is not Intel's, MKL's check for one is answered for it, or it would take a
path half as fast. In a file that has the lines BEGIN and END below, what stands
between them is replaced and the rest kept.

On a GPU PyTorch (its f32 without TF32) takes its turns in one process, for starting one takes longer than a turn; who
was far behind PyTorch's best in the first round takes no others; and --budget SECONDS ends it all in time.
"""

import argparse
import datetime
import json
import os
import platform
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytorch_gpt import CONFIGS, LEARNING_RATE, WARM_UP, is_mode

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = {"baby": 60, "char": 8, "char8": 10, "char8_dropout": 10, "gpt2_64": 10, "gpt2_1024": 8}
GATED = 10  # losses
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2}

RECOMPUTED = {"gpt2_1024"}  # also with the outputs of norms and GELUs computed again, for its memory

# On a GPU: timed steps a turn (the first ten alone, then ten at a time), and PyTorch's modes.
GPU_STEPS = {"baby": 60, "char": 22, "gpt2_b32": 16, "gpt2_b32_50304": 16}
# The likeliest to be the best first, in case the time runs out.
BF16_MODES = ["bf16compile-graph+flash", "bf16compile-graph+cudnn", "bf16graph", "bf16reduce-overhead", "bf16compile", "bf16"]
F32_MODES = ["compile-graph", "graph", "reduce-overhead", "compile", "eager"]
GPU_MODES = {"baby": [*F32_MODES, "bf16compile-graph+flash", "bf16graph"]}
FAR_BEHIND = 1.15  # times the time of PyTorch's best
BEGIN, END = "<!-- compare_pytorch.py writes from here -->", "<!-- to here -->"
MASKS = 5e-2  # how far losses may be apart where only the masks of dropout differ


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--program", type=Path, help="inkling; else as built for the device")
    parser.add_argument("--configs", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--modes", help="PyTorch's (see pytorch_gpt.py); its losses in f32, eager, are always had")
    parser.add_argument("--rounds", type=int, help="turns of each contender")
    parser.add_argument("--steps", default=0, type=int, help="timed steps a turn; 0: by config")
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int)
    parser.add_argument("--budget", default=0, type=float, help="seconds; what has had no turn by then is left out")
    parser.add_argument("--out", type=Path, help="the tables; on the CPU RESULTS.md unless given")
    parser.add_argument("--json", type=Path, help="the numbers")
    options = parser.parse_args()
    options.gpu = options.device == "cuda"
    options.program = options.program or ROOT / ("build/gpu/inkling" if options.gpu else "build/release/inkling")
    usual = "baby,char_dropout,gpt2_b32,gpt2_b32_50304" if options.gpu else "baby,char8,char8_dropout,gpt2_64,gpt2_1024"
    options.configs = (options.configs or usual).split(",")
    if options.modes or not options.gpu:
        options.modes = (options.modes or "eager,compile,bf16,bf16compile").split(",")
    options.rounds = options.rounds or (2 if options.gpu else 3)
    options.out = options.out or (None if options.gpu else HERE / "RESULTS.md")
    for name in options.configs:
        if name not in CONFIGS:
            parser.error(f"there is no {name}; expected some of {', '.join(CONFIGS)}")
    for name in options.modes or []:
        if not is_mode(name):
            parser.error(f"there is no mode {name}; pytorch_gpt.py lists them")
    if not options.program.exists():
        parser.error(f"{options.program} does not exist; build it, or say with --program where it is")
    options.end = time.monotonic() + options.budget if options.budget else float("inf")
    return options


def processor():
    with open("/proc/cpuinfo") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    return fields.get("model name", platform.machine()), fields.get("vendor_id", "")


def unlock_mkl(folder):
    """A library whose answer to MKL's vendor check is "Intel"; None where it is not needed or cannot be built."""
    if processor()[1] in ("GenuineIntel", ""):
        return None
    if not shutil.which("cc"):
        sys.exit("compare_pytorch: needs cc, to build what makes MKL use this processor's instructions")
    source, library = folder / "vendor.c", folder / "vendor.so"
    names = "mkl_serv_intel_cpu_true", "mkl_serv_intel_cpu"
    source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in names))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


class PyTorchServer:
    """pytorch_gpt.py in one process, turn after turn; started again should it die."""

    def __init__(self, environment):
        self.environment, self.process = environment, None

    def run(self, arguments, seconds):
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, HERE / "pytorch_gpt.py", "serve"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, env=self.environment, text=True, **pipes)
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.stop()
            return {"error": "it took too long"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "its process died"}

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def run_program(command, environment, seconds):
    """What it printed as JSON; {"error": ...} if it did not."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": "it took too long"}
    if done.returncode != 0:
        return {"error": done.stderr.strip().split("\n")[-1][:200] or f"it ended with status {done.returncode}"}
    return json.loads(done.stdout.strip() or "{}")


class Contender:
    """One program in one dtype: how it takes a turn, and what its turns measured."""

    def __init__(self, name, dtype, run, read=dict, rounds=None):
        self.name, self.dtype, self.run, self.read, self.rounds = name, dtype, run, read, rounds
        self.turns, self.error, self.failure = [], None, None

    def turn(self, end):
        if self.failure:
            return
        left = end - time.monotonic()
        result = self.run(None if left == float("inf") else left) if left > 0 else {"error": "no time was left"}
        if "error" not in result:
            self.turns.append(self.read(result))
        elif not self.turns or left > 0:
            self.failure = result["error"]

    def check(self, reference):
        """The largest relative distance of the first losses from the reference's."""
        if self.turns:
            pairs = list(zip(self.turns[0]["losses"], reference))[:GATED]
            self.error = max(abs(a - b) / abs(b) for a, b in pairs)

    def median(self):
        return statistics.median(turn["median"] for turn in self.turns)

    def best(self):
        return min(turn["best"] for turn in self.turns)

    def peak(self):
        return max(turn["device_peak"] or turn["process_peak"] for turn in self.turns)

    def numbers(self, tokens):
        found = {"name": self.name, "dtype": self.dtype, "losses_differ_by": self.error, "failure": self.failure}
        if not self.failure and self.turns:
            found |= {"ms_median": self.median(), "ms_best": self.best(), "tokens_per_second": 1e3 * tokens / self.median()}
            found |= {"peak_memory": self.peak(), "turns": len(self.turns)}
        return found


def read_inkling(result):
    step, memory, machine = result["step"], result["memory"], result["machine"]
    on_gpu = result["config"].get("device", "cpu") != "cpu"
    return {
        "median": step["ms_median"],
        "best": step["ms_best"],
        "process_peak": memory["process_peak"],
        "device_peak": memory["allocator_peak"] if on_gpu else 0,
        "losses": result["losses"],
        "kernels": f"inkling {result['inkling']}, {machine['device' if on_gpu else 'gemm']}",
        "memory": memory,
        "start": step["start_ms"],
    }


def bench_command(config, weights, steps, options):
    B, T, L, H, C, V, dropout = CONFIGS[config]
    sizes = {"batch_size": B, "block_size": T, "n_layer": L, "n_head": H, "n_embd": C, "vocab_size": V, "dropout": dropout}
    sizes |= {"learning_rate": LEARNING_RATE, "threads": options.threads, "steps": steps, "profile_steps": 0}
    if options.gpu:
        sizes["device"] = options.device
    pairs = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    return [str(options.program), "bench", "--config", "baby", *pairs, "--weights", str(weights), "--json", "-"]


def dtype_of(mode):
    return "bf16" if mode.startswith("bf16") else "f32"


def contenders(config, weights, options, tools):
    steps = max(options.steps or (GPU_STEPS if options.gpu else STEPS).get(config, GATED), GATED - WARM_UP)
    modes = options.modes or GPU_MODES.get(config, BF16_MODES)
    dtypes = {dtype_of(mode) for mode in modes} | ({"f32", "bf16"} if not options.gpu else set())
    found = []
    for name, dtype, more in ("inkling", "f32", []), ("inkling, bfloat16", "bf16", ["--dtype", "bfloat16"]):
        if dtype in dtypes:
            command = bench_command(config, weights, steps, options) + more
            found.append(Contender(name, dtype, lambda seconds, c=command: run_program(c, tools["ours"], seconds), read_inkling))
    if not options.gpu and config in RECOMPUTED:
        command = bench_command(config, weights, steps, options) + ["--recompute"]
        run = lambda seconds: run_program(command, tools["ours"], seconds)  # noqa: E731
        found.append(Contender("inkling, --recompute", "f32", run, read_inkling, rounds=1))
    for mode in ["eager", *(mode for mode in modes if mode != "eager")]:
        timed, rounds = (steps, None) if dtype_of(mode) in dtypes else (GATED - WARM_UP, 1)  # or for its losses alone
        arguments = [config, mode, str(weights), timed, options.threads, options.device]
        run = lambda seconds, a=arguments: tools["pytorch"](a, seconds)  # noqa: E731
        found.append(Contender(f"PyTorch, {mode}", dtype_of(mode), run, rounds=rounds))
    return found


def measure(config, options, tools, folder, gates, end):
    """All contenders on one config, round by round. gates: by config, how far losses were from PyTorch's."""
    weights = folder / f"{config}.safetensors"
    made = tools["pytorch"](["make", config, str(weights)], None)
    if "error" in made:
        sys.exit(f"compare_pytorch: {config}'s weights: {made['error']}")
    plain = config.removesuffix("_dropout")
    if options.gpu and plain != config and plain not in gates:
        gates[plain] = gate_without_dropout(plain, weights, options, tools, end)
    everyone = contenders(config, weights, options, tools)
    for number in range(options.rounds):
        for contender in everyone:
            if contender.rounds == number or (number > 0 and options.gpu and far_behind(contender, everyone)):
                continue
            contender.turn(end)
            state = contender.failure or f"{contender.turns[-1]['median']:.2f} ms"
            print(f"{config}, round {number + 1} of {options.rounds}: {contender.name}: {state}", flush=True)
        if number == 0:
            gate(config, everyone, gates, options)
    weights.unlink()
    return everyone


def far_behind(contender, everyone):
    best = best_of(everyone, "PyTorch", contender.dtype)
    return contender.name.startswith("PyTorch") and best and contender.turns and contender.median() > FAR_BEHIND * best


def gate_without_dropout(config, weights, options, tools, end):
    """How far inkling's losses are from PyTorch's on a config that is not timed."""
    options = argparse.Namespace(**{**vars(options), "steps": GATED - WARM_UP, "modes": ["eager", "bf16"]})
    everyone = [c for c in contenders(config, weights, options, tools) if c.name != "PyTorch, bf16"]
    for contender in everyone:
        contender.turn(end)
    gate(config, everyone, {}, options)
    return {c.name: c.error for c in everyone if c.error is not None}


def gate(config, everyone, gates, options):
    """Compares losses; contenders that fail take no further turns."""
    reference = next(c for c in everyone if c.name == "PyTorch, eager")
    if not reference.turns and not options.gpu:
        sys.exit(f"compare_pytorch: PyTorch, eager, failed: {reference.failure}")
    if not reference.turns:
        for contender in everyone:
            contender.failure = contender.failure or f"no time is reported: PyTorch, eager, failed: {reference.failure}"
        return
    plain = gates.get(config.removesuffix("_dropout"), {})
    for contender in everyone:
        tolerance = TOLERANCE[contender.dtype]
        if not config.endswith("_dropout"):
            contender.check(reference.turns[0]["losses"])
        elif contender.name in plain:
            contender.error = plain[contender.name]
        elif options.gpu and not contender.name.startswith("inkling"):
            contender.check(reference.turns[0]["losses"])
            tolerance = MASKS
        if not contender.failure and (contender.error is None or contender.error > tolerance):
            text = "not measured without dropout" if contender.error is None else f"losses differ by {contender.error:.1e}"
            contender.failure = f"no time is reported: {text}"
    gates[config] = {c.name: c.error for c in everyone if c.error is not None}


def best_of(everyone, program, dtype):
    usual = [c for c in everyone if not c.name.endswith("--recompute")]
    times = [c.median() for c in usual if c.name.startswith(program) and c.dtype == dtype and c.turns and not c.failure]
    return min(times, default=None)


def table(config, everyone):
    B, T, L, H, C, V, dropout = CONFIGS[config]
    lines = [f"### {config}: B {B}, T {T}, L {L}, H {H}, C {C}, V {V}, dropout {dropout}", ""]
    columns = "ms median", "ms best", "tokens/s", "to PyTorch's best f32", "to its best bf16", "peak memory, MB", "losses differ by"
    lines += ["| | " + " | ".join(columns) + " |", "| --- |" + " --: |" * len(columns)]
    f32, bf16 = (best_of(everyone, "PyTorch", dtype) for dtype in ("f32", "bf16"))
    for c in everyone:
        if c.failure:
            lines.append(f"| {c.name} | {c.failure} |" + " |" * (len(columns) - 1))
            continue
        ratios = " | ".join(f"{c.median() / best:.2f}" if best else "" for best in (f32, bf16))
        times = f"{c.median():.{digits(c)}f} | {c.best():.{digits(c)}f} | {1e3 * B * T / c.median():,.0f}"
        lines.append(f"| {c.name} | {times} | {ratios} | {c.peak() / 1e6:.0f} | {c.error:.1e} |")
    ours, ours_bf16 = (best_of(everyone, "inkling", dtype) for dtype in ("f32", "bf16"))
    if ours and ours_bf16:
        lines += ["", f"inkling's bfloat16 takes {ours_bf16 / ours:.2f} of its f32's time."]
    for c in everyone:
        if c.turns and "memory" in c.turns[0]:
            memory = c.turns[0]["memory"]
            formula, measured = memory["formula"] / 1e6, memory["allocator_peak"] / 1e6
            text = f"formula {formula:.0f} MB, tensors measured {measured:.0f} MB ({100 * (formula / measured - 1):+.1f} %)"
            start = statistics.median(turn["start"] for turn in c.turns)
            lines += ["", f"{c.name}: {text}; first step done {start:.0f} ms after the start of the process."]
    return lines


def digits(contender):
    return 1 if contender.median() >= 10 else 3


def versions(results):
    everyone = [c for contenders_ in results.values() for c in contenders_ if c.turns]
    ours = next((c.turns[0]["kernels"] for c in everyone if c.name.startswith("inkling")), "inkling: no turn")
    theirs = next((c.turns[0] for c in everyone if c.name.startswith("PyTorch")), {"version": "no turn", "kernels": "no turn"})
    return ours, f"PyTorch {theirs['version']}, {theirs['kernels']}"


def report(results, options, mkl):
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    ours, theirs = versions(results)
    unlocked = "; its vendor check is answered \"Intel\"" if mkl else ""
    lines = [
        f"* {datetime.datetime.now():%Y-%m-%d %H:%M}; commit {commit or 'unknown'}",
        f"* {processor()[0]}, {options.threads} threads; {platform.system()} {platform.release()}; load at the end {os.getloadavg()[0]:.1f}",
        f"* {ours}",
        f"* {theirs}{unlocked}; Python {platform.python_version()}",
        f"* `python {shlex.join(['tests/benchmarks/compare_pytorch.py', *sys.argv[1:]])}`: {options.rounds} rounds, contenders taking turns",
        "",
        "A step is forward, backward, clipping and AdamW. Each contender has several turns: \"ms median\" is the median of their medians, and \"ms best\" its fastest step.",
    ]
    for config, everyone in results.items():
        lines += ["", *table(config, everyone)]
    return "\n".join(lines) + "\n"


def write_tables(path, text):
    old = path.read_text() if path.exists() else ""
    before, begin, rest = old.partition(BEGIN)
    if END not in rest:
        head = "# Training steps beside PyTorch\n\n`compare_pytorch.py` writes these tables; its head says how it measures.\n\n"
        before, rest = head, END + "\n"
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}")


def write_json(results, options):
    ours, theirs = versions(results)
    configs = {}
    for config, everyone in results.items():
        B, T, L, H, C, V, dropout = CONFIGS[config]
        sizes = {"B": B, "T": T, "L": L, "H": H, "C": C, "V": V, "dropout": dropout}
        best = {dtype: best_of(everyone, "PyTorch", dtype) for dtype in ("f32", "bf16")}
        configs[config] = {"sizes": sizes, "pytorch_best_ms": best, "contenders": [c.numbers(B * T) for c in everyone]}
    whole = {"device": options.device, "inkling": ours, "pytorch": theirs, "rounds": options.rounds, "configs": configs}
    options.json.write_text(json.dumps(whole, indent=2) + "\n")


def main():
    options = arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for name in [name for name in environment if name.startswith("OPENBLAS_")]:
        del environment[name]
    results, gates = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mkl = None if options.gpu else unlock_mkl(folder)
        theirs = {**environment, **({"LD_PRELOAD": str(mkl)} if mkl else {})}
        server = PyTorchServer(theirs)

        def in_a_process(arguments, seconds):
            command = [sys.executable, HERE / "pytorch_gpt.py", *(["run"] if arguments[0] != "make" else [])]
            return run_program([*command, *map(str, arguments)], theirs, seconds)

        tools = {"ours": environment, "pytorch": server.run if options.gpu else in_a_process}
        for number, config in enumerate(options.configs):
            now = time.monotonic()
            end = now + (options.end - now) / (len(options.configs) - number)  # an equal part of the time that is left
            results[config] = measure(config, options, tools, folder, gates, end)
            text = report(results, options, mkl)  # whole after every config: an interrupted run leaves its part
            if options.out:
                write_tables(options.out, text)
            if options.json:
                write_json(results, options)
        server.stop()
    print(text)


if __name__ == "__main__":
    main()
