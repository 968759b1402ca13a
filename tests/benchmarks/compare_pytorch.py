"""Training steps of inkling beside PyTorch's, taking turns on the same cores, and RESULTS.md from them.

    python tests/benchmarks/compare_pytorch.py                     (a python that has PyTorch)
    python tests/benchmarks/compare_pytorch.py --configs baby,char8 --modes eager,compile --rounds 5

Both start from the same weights, see the same batch at every step, clip at 1 and run AdamW. A time is reported only
for a run whose first ten losses are PyTorch's (eager, f32): within 1e-5 of them in f32, 1e-2 in bf16. With dropout the
masks differ, so the gate is the same work without. Each turn is a process of its own. PyTorch's f32 is its best of
eager and compiled; on a processor that is not Intel's, MKL's check for one is answered for it, or it would take a
path half as fast. JAX takes part where it can be imported.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pytorch_gpt import CONFIGS, LEARNING_RATE, WARM_UP

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = {"baby": 60, "char": 8, "char8": 10, "char8_dropout": 10, "gpt2_64": 10, "gpt2_1024": 8}
GATED = 10  # losses
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=ROOT / "build/release/inkling", type=Path)
    parser.add_argument("--configs", default="baby,char8,char8_dropout,gpt2_64,gpt2_1024", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--modes", default="eager,compile,bf16,bf16compile", help="PyTorch's; eager is always run")
    parser.add_argument("--jax", default=sys.executable, help="a python; if it has jax and optax, JAX takes part")
    parser.add_argument("--rounds", default=3, type=int, help="turns of each contender")
    parser.add_argument("--steps", default=0, type=int, help="timed steps a turn; 0: by config")
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int)
    parser.add_argument("--out", default=HERE / "RESULTS.md", type=Path)
    options = parser.parse_args()
    options.configs, options.modes = options.configs.split(","), options.modes.split(",")
    for given, known in (options.configs, CONFIGS), (options.modes, ("eager", "compile", "bf16", "bf16compile")):
        for name in given:
            if name not in known:
                parser.error(f"there is no {name}; expected some of {', '.join(known)}")
    if not options.program.exists():
        parser.error(f"{options.program} does not exist; build it, or say with --program where it is")
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


class Contender:
    """One program in one dtype: how it is started, and what its turns measured."""

    def __init__(self, name, dtype, command, environment, read):
        self.name, self.dtype, self.command, self.environment, self.read = name, dtype, command, environment, read
        self.turns, self.error, self.failure = [], None, None

    def turn(self):
        if self.failure:
            return
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            self.failure = (done.stderr.strip().split("\n") or ["?"])[-1][:200]
            return
        self.turns.append(self.read(json.loads(done.stdout.strip())))

    def check(self, reference):
        """The largest relative distance of the first losses from the reference's."""
        if self.turns:
            pairs = list(zip(self.turns[0]["losses"], reference))[:GATED]
            self.error = max(abs(a - b) / abs(b) for a, b in pairs)

    def passes(self):
        return self.error is not None and self.error <= TOLERANCE[self.dtype]

    def median(self):
        return statistics.median(turn["median"] for turn in self.turns)

    def best(self):
        return min(turn["best"] for turn in self.turns)

    def peak(self):
        return max(turn["process_peak"] for turn in self.turns)


def read_inkling(result):
    step, memory = result["step"], result["memory"]
    return {
        "median": step["ms_median"],
        "best": step["ms_best"],
        "process_peak": memory["process_peak"],
        "losses": result["losses"],
        "kernels": f"inkling {result['inkling']}, {result['machine']['gemm']}",
        "memory": memory,
    }


def contenders(config, weights, options, environment, mkl):
    steps = max(options.steps or STEPS[config], GATED - WARM_UP)
    dropout = CONFIGS[config][-1]
    bench = [options.program, "bench", "--config", config.split("_dropout")[0], "--dropout", dropout, "--weights", weights]
    bench += ["--steps", steps, "--profile_steps", 0, "--threads", options.threads, "--json", "-"]
    bench += ["--learning_rate", LEARNING_RATE]
    bench = [str(part) for part in bench]
    found = [Contender("inkling", "f32", bench, environment, read_inkling)]
    if "--dtype" in subprocess.run([options.program, "bench", "--help"], capture_output=True, text=True).stdout:
        found.append(Contender("inkling, bfloat16", "bf16", bench + ["--dtype", "bfloat16"], environment, read_inkling))
    theirs = {**environment, **({"LD_PRELOAD": str(mkl)} if mkl else {})}
    modes = options.modes if "eager" in options.modes else ["eager", *options.modes]
    for mode in modes:
        command = [sys.executable, HERE / "pytorch_gpt.py", "run", config, mode, weights, steps, options.threads]
        dtype = "bf16" if "bf16" in mode else "f32"
        found.append(Contender(f"PyTorch, {mode}", dtype, [str(part) for part in command], theirs, dict))
    if not dropout and subprocess.run([options.jax, "-c", "import jax, optax"], capture_output=True).returncode == 0:
        command = [options.jax, HERE / "jax_gpt.py", config, weights, steps]
        found.append(Contender("JAX", "f32", [str(part) for part in command], environment, dict))
    return found


def measure(config, options, environment, mkl, folder, gates):
    """All contenders on one config, round by round. gates: by config, the contenders that passed without dropout."""
    weights = folder / f"{config}.safetensors"
    subprocess.run([sys.executable, HERE / "pytorch_gpt.py", "make", config, weights], check=True, env=environment)
    everyone = contenders(config, weights, options, environment, mkl)
    for number in range(options.rounds):
        for contender in everyone:
            contender.turn()
            state = contender.failure or f"{contender.turns[-1]['median']:.1f} ms"
            print(f"{config}, round {number + 1} of {options.rounds}: {contender.name}: {state}", flush=True)
        if number == 0:
            gate(config, everyone, gates)
    weights.unlink()
    return everyone


def gate(config, everyone, gates):
    """Compares losses; contenders that fail take no further turns."""
    reference = next(c for c in everyone if c.name == "PyTorch, eager")
    if not reference.turns:
        sys.exit(f"compare_pytorch: PyTorch, eager, failed: {reference.failure}")
    for contender in everyone:
        if config.endswith("_dropout"):
            plain = gates.get(config.removesuffix("_dropout"), {})
            contender.error = plain.get(contender.name)
        else:
            contender.check(reference.turns[0]["losses"])
        if not contender.failure and not contender.passes():
            text = "not measured without dropout" if contender.error is None else f"losses differ by {contender.error:.1e}"
            contender.failure = f"no time is reported: {text}"
    gates[config] = {c.name: c.error for c in everyone if c.error is not None}


def best_of(everyone, program, dtype):
    times = [c.median() for c in everyone if c.name.startswith(program) and c.dtype == dtype and not c.failure]
    return min(times, default=None)


def table(config, everyone):
    B, T, L, H, C, V, dropout = CONFIGS[config]
    lines = [f"## {config}: B {B}, T {T}, L {L}, H {H}, C {C}, V {V}, dropout {dropout}", ""]
    lines.append("| | ms median | ms best | to PyTorch's best f32 | to its best bf16 | peak memory, MB | losses differ by |")
    lines.append("| --- | --: | --: | --: | --: | --: | --: |")
    f32, bf16 = (best_of(everyone, "PyTorch", dtype) for dtype in ("f32", "bf16"))
    for c in everyone:
        if c.failure:
            lines.append(f"| {c.name} | {c.failure} | | | | | |")
            continue
        ratios = " | ".join(f"{c.median() / time:.2f}" if time else "" for time in (f32, bf16))
        lines.append(f"| {c.name} | {c.median():.1f} | {c.best():.1f} | {ratios} | {c.peak() / 1e6:.0f} | {c.error:.1e} |")
    ours, ours_bf16 = (best_of(everyone, "inkling", dtype) for dtype in ("f32", "bf16"))
    if ours and ours_bf16:
        lines += ["", f"inkling's bfloat16 takes {ours_bf16 / ours:.2f} of its f32's time."]
    for c in everyone:
        if c.turns and "memory" in c.turns[0]:
            memory = c.turns[0]["memory"]
            formula, measured = memory["formula"] / 1e6, memory["allocator_peak"] / 1e6
            text = f"formula {formula:.0f} MB, tensors measured {measured:.0f} MB ({100 * (formula / measured - 1):+.1f} %)"
            lines += ["", f"Memory of {c.name}: {text}."]
    return lines


def versions(results):
    everyone = [c for contenders_ in results.values() for c in contenders_ if c.turns]
    ours = next(c.turns[0]["kernels"] for c in everyone if c.name.startswith("inkling"))
    theirs = next(c.turns[0] for c in everyone if c.name.startswith("PyTorch"))
    jax = next((f"; JAX {c.turns[0]['version']}" for c in everyone if c.name == "JAX"), "")
    return ours, f"PyTorch {theirs['version']}, {theirs['kernels']}{jax}"


def report(results, options, mkl):
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    ours, theirs = versions(results)
    unlocked = "; its vendor check is answered \"Intel\"" if mkl else ""
    lines = ["# Training steps beside PyTorch", "", "Written by `compare_pytorch.py`, whose head says how it measures.", ""]
    lines += [
        f"* {datetime.datetime.now():%Y-%m-%d %H:%M}; commit {commit or 'unknown'}",
        f"* {processor()[0]}, {options.threads} threads; {platform.system()} {platform.release()}; load at the end {os.getloadavg()[0]:.1f}",
        f"* {ours}",
        f"* {theirs}{unlocked}; Python {platform.python_version()}",
        f"* `python {shlex.join(['tests/benchmarks/compare_pytorch.py', *sys.argv[1:]])}`: {options.rounds} rounds, contenders taking turns",
        "",
        "Forward, backward, clipping and AdamW. Of a contender's turns: the median of their medians, and the best step.",
    ]
    for config, everyone in results.items():
        lines += ["", *table(config, everyone)]
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for name in [name for name in environment if name.startswith("OPENBLAS_")]:
        del environment[name]
    results, gates = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mkl = unlock_mkl(folder)
        for config in options.configs:
            results[config] = measure(config, options, environment, mkl, folder, gates)
            text = report(results, options, mkl)  # whole after every config: an interrupted run leaves its part
            options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
