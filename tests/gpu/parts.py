"""The parts of run.py. Each is given a Job: it runs programs within its time, and notes in job.data what it found, in
job.status "ok", "failed", "cut short" (by time) or "skipped", and in job.note, in words, why it is not ok."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LOGGED = 100_000  # characters of a program's output


@dataclass
class Done:
    code: int
    text: str
    in_time: bool


class Job:
    lock = threading.Lock()

    def __init__(self, root, build, tools, scratch, environment, log, small, budget):
        self.root, self.build, self.tools, self.scratch = root, build, tools, scratch
        self.environment, self.log, self.small, self.budget = environment, log, small, budget
        self.end = time.monotonic() + budget
        self.status, self.note, self.data = "ok", "", {}

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def run(self, command, more=None, seconds=None):
        """A program of ours, until the part's time is up at the latest. more: further variables of its environment."""
        command = [str(part) for part in command]
        environment = {**self.environment, **(more or {})}
        start = time.monotonic()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        try:
            process = subprocess.Popen(command, env=environment, cwd=self.root, start_new_session=True, **pipes)
        except OSError as error:
            return self.noted(command, start, Done(127, str(error), True))
        in_time = True
        try:
            output, _ = process.communicate(timeout=min(self.left(), seconds or self.left()))
        except subprocess.TimeoutExpired:
            in_time = False
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
            output, _ = process.communicate()
        return self.noted(command, start, Done(process.returncode, output.decode(errors="replace"), in_time))

    def noted(self, command, start, done):
        text = done.text if len(done.text) < LOGGED else done.text[: LOGGED // 2] + "\n...\n" + done.text[-LOGGED // 2 :]
        how = f"status {done.code}" if done.in_time else "stopped: out of time"
        with Job.lock:
            self.log.write(f"\n$ {' '.join(command)}\n{text}\n[{how}, {time.monotonic() - start:.1f} s]\n")
            self.log.flush()
        return done

    def run_python(self, *arguments):
        """PyTorch must not see the library path of our programs, which job.tools start with it."""
        return self.run([sys.executable, *arguments], more={"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")})

    def worse(self, status, note):
        order = ["ok", "skipped", "cut short", "failed"]
        if order.index(status) > order.index(self.status):
            self.status = status
        self.note = f"{self.note}; {note}" if self.note else note


def last_line(text):
    """What a program said last, but for its advice."""
    lines = [line for line in text.strip().split("\n") if not line.startswith("Try:")]
    return (lines or [""])[-1][:300]


def cpus():
    return len(os.sched_getaffinity(0))


def together(job, tasks, most=1000):
    """Each task is the arguments of job.run, so many at once; what became of them, in order."""
    with ThreadPoolExecutor(max_workers=max(1, min(most, len(tasks)))) as pool:
        return list(pool.map(lambda task: job.run(*task), tasks))


# ---- tests: test_cuda*


SMALL_TESTS = "*_softmax*:*Large*:*Mix*"
PRODUCTS = "test_gemm_units"  # the CPU's, with which the device's results are compared
SUITE = "test_cuda_suite"  # tests of the CPU, run on the device
# Programs that ask for the CPU, and processes that fork, which may not use CUDA afterwards.
NOT_ON_A_DEVICE = "Program.*:*.SurvivesKills:*.IsReadWhileAnotherProcessSaves"
ALONE = "CudaMemory.CachedBlocksMakeRoomForOthers"  # it takes all memory, which those beside it would miss
ON_EVERY_MACHINE = "Device.*"  # tests of words and errors, which need no device, but the folders they were built in


def tests(job):
    there = [*(job.build / "tests").glob("test_cuda*"), *(job.build / "tests").glob(PRODUCTS)]
    programs = [path for path in sorted(there) if path.is_file() and os.access(path, os.X_OK)]
    if not programs:
        raise FileNotFoundError(f"there is no test_cuda* in {job.build}/tests")
    tasks, outputs = [], []
    for program in programs:
        shards = max(1, min(8, cpus() // 2)) if program.name in ("test_cuda", SUITE) else 1
        for shard in range(shards):
            output = job.scratch / f"{program.name}_{shard}.json"
            chosen = f"{SMALL_TESTS if job.small else '*'}:-{ON_EVERY_MACHINE}:{ALONE}"
            chosen += f":{NOT_ON_A_DEVICE}" if program.name == SUITE else ""
            more = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard), "GTEST_OUTPUT": f"json:{output}"}
            more |= {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
            more |= {"INKLING_TEST_LARGEST": "1000"} if job.small else {}
            more |= {"INKLING_PROGRAM": str(job.build / "inkling"), "INKLING_SOURCE_DIR": str(job.root)}  # not where it was built
            more |= {"INKLING_TEST_DEVICE": "cuda"} if program.name == SUITE else {}
            more |= {"INKLING_WGMMA": "1"} if program.name == "test_cuda_attention" else {}  # with dropout, too
            tasks.append(([program, f"--gtest_filter={chosen}"], more))
            outputs.append((program.name, output))
    runs = curve_tasks(job)
    all_done = together(job, tasks + list(runs.values()))
    tests_done, curves_done = all_done[: len(tasks)], all_done[len(tasks) :]
    if not job.small:
        outputs.append(("test_cuda_memory", job.scratch / "alone.json"))
        more = {"GTEST_OUTPUT": f"json:{job.scratch}/alone.json", "OMP_NUM_THREADS": "2"}
        tests_done.append(job.run([job.build / "tests/test_cuda_memory", f"--gtest_filter={ALONE}"], more))
    found = job.data["programs"] = {}
    for (name, output), done in zip(outputs, tests_done):
        add_test_results(found.setdefault(name, {"passed": 0, "skipped": [], "failed": [], "ended": []}), output, done)
    for name, result in found.items():
        if result["failed"]:
            job.worse("failed", f"{name}: {len(result['failed'])} failed")
        for end in result["ended"]:
            job.worse("cut short" if end.startswith("out of time") else "failed", f"{name}: {end}")
    compare_curves(job, dict(zip(runs, curves_done)))


def add_test_results(result, output, done):
    """From gtest's JSON; from what it printed if it did not live to write that."""
    if output.exists():
        for suite in json.loads(output.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                full = f"{suite['name']}.{test['name']}"
                if test.get("failures"):
                    result["failed"].append(full)
                elif test.get("result") == "SKIPPED":
                    result["skipped"].append(full)
                elif test.get("result") == "COMPLETED":
                    result["passed"] += 1
        return
    result["passed"] += done.text.count("[       OK ]")
    result["failed"] += re.findall(r"^\[  FAILED  \] (\S+)", done.text, re.M)
    begun = re.findall(r"^\[ RUN      \] (\S+)", done.text, re.M)
    within = f" in {begun[-1]}" if begun else ""
    result["ended"].append(f"out of time{within}" if not done.in_time else f"ended with status {done.code}{within}")


# Losses of whole runs: by the device and dtype they ran on.
CURVES = {"cuda float32": 500, "cuda bfloat16": 500, "cpu float32": 100}


def curve_tasks(job):
    tasks = {}
    for run, steps in CURVES.items():
        device, dtype = run.split()
        options = {"device": device, "dtype": dtype, "max_iters": 2 if job.small else steps, "lr_decay_iters": 500}
        options |= {"learning_rate": 1e-3, "log_interval": 1, "eval_interval": 500, "eval_iters": 1, "final_eval": "off", "sample_interval": 0}
        options |= {key: SMALL_BENCH[key] for key in ("batch_size", "block_size", "n_layer", "n_head", "n_embd")} if job.small else {}
        pairs = [part for option, value in options.items() for part in (f"--{option}", value)]
        tasks[run] = ([job.build / "inkling", "train", *pairs, "--out_dir", job.scratch / run.replace(" ", "_")],)
    return tasks


def compare_curves(job, all_done):
    """How far losses are apart: each step's on GPU and CPU, and the means of ten steps in bf16 and f32."""
    losses = {}
    for run, done in all_done.items():
        if done.code != 0:
            return job.worse("failed" if done.in_time else "cut short", f"train, {run}: {last_line(done.text)}")
        lines = (job.scratch / run.replace(" ", "_") / "metrics.jsonl").read_text().splitlines()
        losses[run] = [entry["train_loss"] for entry in map(json.loads, lines) if "train_loss" in entry]
    means = {run: [sum(all_[i : i + 10]) / len(all_[i : i + 10]) for i in range(0, len(all_), 10)] for run, all_ in losses.items()}

    def apart(a, b):
        return max(abs(x - y) / abs(y) for x, y in zip(a, b))

    curves = job.data["curves"] = {
        "cpu": {"losses": len(losses["cpu float32"]), "apart": apart(losses["cuda float32"], losses["cpu float32"]), "most": 1e-4},
        "bf16": {"losses": len(losses["cuda bfloat16"]), "apart": apart(means["cuda bfloat16"], means["cuda float32"]), "most": 1e-2},
    }
    for name, curve in curves.items():
        if curve["apart"] > curve["most"]:
            job.worse("failed", f"losses against {name} differ by {curve['apart']:.1e}")


# ---- sanitizer


TOOLS = {
    "memcheck": r"ERROR SUMMARY: (\d+) error",
    "racecheck": r"RACECHECK SUMMARY: (\d+) hazard",
    "initcheck": r"ERROR SUMMARY: (\d+) error",
    "synccheck": r"ERROR SUMMARY: (\d+) error",
}
# Values, gradients and layouts of every row (differences would launch a thousand times as many kernels), and of the
# kernels that rows do not reach: tensor cores, long lines, odd addresses, draws.
SANITIZED = {
    "test_cuda": "*",
    SUITE: "Rows/Op.LayoutsDoNotMatter*",
    "test_cuda_attention": "*.Causal:*.DropsWhatTheCpuDrops:*.Masked:*.FewQueries:*.ReadsAndWritesPackedHeadsInPlace",
    "test_cuda_mma": "*",
    "test_cuda_rows": "*SpecialValues*:*KeepsSmallDeviations*:*AddsGradients*",
    "test_cuda_kernels": "*OddAddresses*:*SortsShortLines*:*SamplesAreTheCpus*:*RunningSums*:*AddsUpRuns*:*Biases*",
}
SANITIZED_SMALL = {"test_cuda": SMALL_TESTS, "test_cuda_mma": "*Loads*"}


def find_sanitizer():
    places = ["/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer"]
    places += sorted(map(str, Path("/opt").glob("nvidia/*/compute-sanitizer")))
    return shutil.which("compute-sanitizer") or next((place for place in places if os.access(place, os.X_OK)), None)


def sanitizer(job):
    tool_program = find_sanitizer()
    if tool_program is None:
        return job.worse("skipped", "there is no compute-sanitizer on this machine")
    runs, wanted = [], 0  # the command and its environment
    for name, chosen in (SANITIZED_SMALL if job.small else SANITIZED).items():
        command = [job.build / "tests" / name, f"--gtest_filter={chosen}"]
        if not command[0].exists():
            job.worse("cut short", f"there is no {name}")
            continue
        wanted += sum(line.startswith("  ") for line in job.run([*command, "--gtest_list_tests"]).text.split("\n"))
        shards = max(1, min(4, cpus() // 4)) if name in ("test_cuda", SUITE) else 1
        for shard in range(shards):
            more = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard), "INKLING_TEST_LARGEST": "1000"}
            more |= {"INKLING_TEST_DEVICE": "cuda"} if name == SUITE else {}
            more |= {"INKLING_WGMMA": "1"} if name == "test_cuda_attention" else {}
            # Every tensor is a cudaMalloc of its own, so that the tools see where it ends.
            runs.append((command, more | {"OMP_NUM_THREADS": "1", "INKLING_CUDA_ALLOCATOR": "direct"}))
    prefixes = {tool: [tool_program, "--tool", tool, "--error-exitcode", "77", "--print-limit", "20"] for tool in TOOLS}
    tasks = {(tool, i): ([*prefix, *command], more) for i, (command, more) in enumerate(runs) for tool, prefix in prefixes.items()}
    all_done = dict(zip(tasks, together(job, list(tasks.values()), cpus())))
    found = job.data["tools"] = {}
    for tool, pattern in TOOLS.items():
        result = found[tool] = sanitizer_result([all_done[tool, i] for i in range(len(runs))], pattern, wanted)
        if result["findings"] or not result["summaries_found"]:
            job.worse("failed", f"{tool}: {result['findings']} findings, exit codes {result['codes']}")
        elif any(code not in (0, 77, -9) for code in result["codes"]):
            job.worse("failed", f"{tool}: exit codes {result['codes']}")
        if not result["in_time"]:
            job.worse("cut short", f"{tool}: {result['tests']} of {wanted} tests in time")


def sanitizer_result(all_done, pattern, wanted):
    findings = 0
    for done in all_done:
        counts = [int(count) for count in re.findall(pattern, done.text)]
        # Without its summary: the first lines of findings.
        findings += sum(counts) if counts else len(re.findall(r"^=+ (?:Invalid|Error:|Uninitialized|Barrier|Program hit)", done.text, re.M))
    return {
        "findings": findings,
        "codes": sorted({done.code for done in all_done}),
        "tests": sum(len(re.findall(r"^\[ +(?:OK|FAILED|SKIPPED) +\] .* ms\)$", done.text, re.M)) for done in all_done),
        "wanted": wanted,
        "in_time": all(done.in_time for done in all_done),
        "summaries_found": all(re.search(pattern, done.text) for done in all_done if done.in_time),
        "first": [line for done in all_done for line in done.text.split("\n") if re.match(r"=+ (?:Invalid|Error:|Unini|Barr)", line)][:5],
    }


# ---- bench: a training step


GPT2 = {"config": "gpt2_1024", "dtype": "bfloat16", "steps": 16, "batch_size": 32}
BENCHES = {  # the first ten steps are timed alone, the others ten at a time
    "baby f32": {"config": "baby", "steps": 60},
    "baby bf16": {"config": "baby", "steps": 60, "dtype": "bfloat16"},
    "char bf16": {"config": "char", "steps": 22, "dtype": "bfloat16", "dropout": 0.2},
    "gpt2 bf16 B32 V50257": GPT2,
    "gpt2 bf16 B32 V50304": {**GPT2, "vocab_size": 50304},
    "gpt2 bf16 B64 V50304": {**GPT2, "vocab_size": 50304, "batch_size": 64},
    "gpt2 bf16 B64 V50304, recompute": {**GPT2, "vocab_size": 50304, "batch_size": 64, "recompute": "true"},
    "gpt2 bf16 B32 V50304, products timed": {**GPT2, "vocab_size": 50304},
    "gpt2 bf16 B32 V50304, bias sums apart": {**GPT2, "vocab_size": 50304},
    "gpt2 bf16 B32 V50304, gelu apart": {**GPT2, "vocab_size": 50304},
    "gpt2 bf16 B32 V50304, attention as before Hopper": {**GPT2, "vocab_size": 50304},
    "char bf16, attention by warpgroups": {"config": "char", "steps": 22, "dtype": "bfloat16", "dropout": 0.2},
    "char f32": {"config": "char", "steps": 22},
    "char f32, TF32": {"config": "char", "steps": 22},
}
SMALL_BENCH = {"batch_size": 1, "block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 16, "vocab_size": 65, "steps": 1}


def bench_environment(job, name):
    settings = {
        "products timed": {"INKLING_GEMM_TUNE": str(job.scratch / "products.txt")},
        "gelu apart": {"INKLING_GELU_EPILOGUE": "0"},
        "bias sums apart": {"INKLING_BIAS_EPILOGUE": "0"},
        "attention as before Hopper": {"INKLING_WGMMA": "0"},
        "attention by warpgroups": {"INKLING_WGMMA": "1"},
        "TF32": {"INKLING_TF32": "1"},
    }
    return settings.get(name.rpartition(", ")[2], {})


def bench(job):
    rows = job.data["rows"] = {}
    for name, options in BENCHES.items():
        output = job.scratch / "bench.json"
        output.unlink(missing_ok=True)
        all_options = {**options, **(SMALL_BENCH if job.small else {}), "device": "cuda", "profile_steps": 3, "json": output}
        pairs = [part for option, value in all_options.items() for part in (f"--{option}", value)]
        done = job.run([job.build / "inkling", "bench", *pairs], more=bench_environment(job, name))
        if done.code != 0 or not output.exists():
            rows[name] = {"failure": last_line(done.text) if done.in_time else "out of time"}
            job.worse("failed" if done.in_time else "cut short", f"{name}: {rows[name]['failure']}")
            continue
        result = json.loads(output.read_text())
        step, memory = result["step"], result["memory"]
        utilisation = re.search(r"^MFU\s+([\d.]+) %.*?the (\d+) TFLOP/s", done.text, re.M)
        rows[name] = {
            **{key: step[key] for key in ("ms_median", "ms_best", "tokens_per_second", "flops_per_second", "of_peak")},
            "mfu": float(utilisation.group(1)) / 100 if utilisation else None,
            "datasheet_tflops": float(utilisation.group(2)) if utilisation else None,
            **{key: memory[key] for key in ("allocator_peak", "allocator_held", "formula")},
            "losses": result["losses"],
            "ops": result["ops"],
        }


# ---- kernels: tests/benchmarks/ops.cpp


KERNELS = {
    "bfloat16": "^(gpt/(char|gpt2_1024)|attention|masked|large|vocabulary|sampling)/",
    "float32": "^(gpt/baby|large|vocabulary|sampling|op)/",
}
SMALL_KERNELS = {"bfloat16": "^(gpt/baby/linear|attention|masked|large/softmax)", "float32": "^(large/copy|op/softmax)"}


def kernels(job):
    rows = job.data["rows"] = {}
    for dtype, chosen in (SMALL_KERNELS if job.small else KERNELS).items():
        output = job.scratch / f"kernels_{dtype}.json"
        command = [job.build / "tests/benchmark_ops", "--device", "cuda", "--dtype", dtype, f"--benchmark_filter={chosen}"]
        command += ["--small"] if job.small else []
        left = job.left()
        share = left * 0.6 if dtype == "bfloat16" else left
        done = job.run([*command, f"--benchmark_out={output}", "--benchmark_out_format=json"], seconds=share)
        if not output.exists():
            job.worse(*(("failed", f"{dtype}: {last_line(done.text)}") if done.in_time else ("cut short", f"{dtype}: out of time")))
            continue
        results = whole_rows(output.read_text())
        job.data[f"machine {dtype}"] = {key: results["context"].get(key) for key in ("flops_per_second", "bytes_per_second")}
        for row in results["benchmarks"]:
            rows[f"{row['name'].removesuffix('/manual_time').removesuffix('/iterations:1')} {dtype}"] = kernel_row(row)
        if done.code != 0 or not done.in_time:
            how = "out of time" if not done.in_time else last_line(done.text)
            job.worse("cut short" if not done.in_time else "failed", f"{dtype}: {how}")
    failed = [name for name, row in rows.items() if "failure" in row]
    if failed:
        job.worse("failed", f"{len(failed)} of {len(rows)} rows failed, the first: {failed[0]}: {rows[failed[0]]['failure']}")


def whole_rows(text):
    """Google Benchmark's JSON, of which the end may be missing."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        begun = text.rfind("},\n    {")
        return json.loads(text[: begun + 1] + "]}") if begun >= 0 else {"context": {}, "benchmarks": []}


def kernel_row(row):
    if row.get("error_occurred"):
        return {"failure": row["error_message"][:200]}
    return {"us": row["real_time"], "flops": row.get("FLOP/s"), "bytes": row.get("bytes/s"), "of_roof": row.get("of_roof")}


# ---- beside PyTorch


def without_pytorch(job):
    done = job.run_python("-c", "import torch")
    if done.code != 0:
        job.worse("skipped", f"{sys.executable}: {last_line(done.text)}")
    return done.code != 0


def attention(job):
    if without_pytorch(job):
        return
    output = job.scratch / "attention.json"
    small = ["--small", "--turns", "1"] if job.small else []
    script = job.root / "tests/benchmarks/attention.py"
    done = job.run_python(script, "--device", "cuda", job.tools / "benchmark_ops", *small, "--json", output)
    if not output.exists():
        return job.worse("failed" if done.in_time else "cut short", last_line(done.text) if done.in_time else "out of time")
    job.data.update(json.loads(output.read_text()))
    ours = job.data["rows"].get("inkling", {})
    if "failure" in ours:
        job.worse("failed", f"inkling: {ours['failure']}")
    if all("failure" in row for name, row in job.data["rows"].items() if name != "inkling"):
        job.worse("failed", "no backend of PyTorch gave a time")


# Not compared: draws, for which a GPU of PyTorch has other numbers than its CPU and inkling, and writes of several values
# to one place, where PyTorch takes any.
NOT_COMPARED = r"rand|uniform_|normal_|exponential_|bernoulli_|multinomial|\.scatter\(|index_put\(\(i,\), y\)"


def programs(job):
    """Small programs: no op should be a cliff."""
    if without_pytorch(job):
        return
    output = job.scratch / "programs.md"
    options = ["--device", "cuda", "--program", job.tools / "benchmark_programs", "--turns", 2, "--seconds", 0.01]
    options += ["--filter", r"x\.sum" if job.small else f"^(?!.*({NOT_COMPARED}))"]
    done = job.run_python(job.root / "tests/benchmarks/programs.py", *options, "--write", output)
    if not output.exists():
        return job.worse("failed" if done.in_time else "cut short", last_line(done.text) if done.in_time else "out of time")
    job.data["table"] = output.read_text()
    for words in ("results differ", "inkling refuses"):
        if words in job.data["table"]:
            job.worse("failed", f"a program or more: {words}")


def pytorch(job):
    if without_pytorch(job):
        return
    output, tables = job.scratch / "pytorch.json", job.scratch / "pytorch.md"
    small = ["--configs", "tiny", "--steps", "8", "--rounds", "1"] if job.small else []
    budget = ["--budget", f"{max(1, job.left() - 10):.0f}"]
    files = ["--json", output, "--out", tables]
    script = job.root / "tests/benchmarks/compare_pytorch.py"
    done = job.run_python(script, "--device", "cuda", "--program", job.tools / "inkling", *small, *budget, *files)
    if done.code != 0 or not done.in_time:
        job.worse("failed" if done.in_time else "cut short", last_line(done.text) if done.in_time else "out of time")
    if not output.exists():
        return
    job.data.update(json.loads(output.read_text()))
    job.data["tables"] = tables.read_text()
    for config, result in job.data["configs"].items():
        rows = result["contenders"]
        failed = [row for row in rows if row["name"].startswith("inkling") and row["failure"]]
        theirs = [row for row in rows if row["name"].startswith("PyTorch")]
        if all(row["failure"] for row in theirs):
            failed += theirs[:1]
        for row in failed:
            late = row["failure"] == "no time was left"
            job.worse("cut short" if late else "failed", f"{config}: {row['name']}: {row['failure']}")
