#!/usr/bin/env python3
"""Changes the source in one place at a time, and says which changes no default test notices.

    python3 tests/mutations/mutate.py --count 300              # on the CPU's files
    python3 tests/mutations/mutate.py --count 300 --device cuda  # on cuda/, emulated
    python3 tests/mutations/mutate.py --list --files 'train/*'   # only prints the changes

It works on a copy of the tree (--copy), which it builds once. Each change is drawn by a rule (a
sign, a factor, a term, an index, a dtype, ...), and the same seed draws the same ones. The tests
that are likely to notice run first, then all others, until one fails. What is done already is in
the copy's results-DEVICE.jsonl, and is not done again: stop it with Ctrl-C, and start it anew.
"""

import argparse
import collections
import concurrent.futures
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
EXPLAINED = HERE.with_name("explained.txt")

FILES = {
    # Headers that all files include would be rebuilt with all of them.
    "cpu": ["autograd/*.cpp", "autograd/ops/*.h", "autograd/gemm/*.h", "nn/*", "data/*.cpp",
            "train/*.cpp"],
    "cuda": ["cuda/*.cu", "cuda/*.cuh", "cuda/gemm_choices.cpp"],
}
# Texts for people, measurements of the machine, and what the emulator has no part in.
NOT = ["train/cli/*", "train/cases/*", "train/lessons/*", "autograd/inspect/machine.cpp",
       "autograd/print.cpp", "cuda/emulator/*", "cuda/cublas.cu", "*.md", "*/fables_grammar.cpp"]
# Lines that change speed alone, or say what something is and not what it does.
LINES_NOT = re.compile(r"\b(kGrain|grain|static_assert|reserve|prefetch|using|template|typename|"
                       r"note_work|operator|requires|if constexpr)\b")


# ---- rules: what is looked for, and what takes its place


def swap(*pairs):
    """Each of a pair by the other, between spaces."""
    table = dict(pairs) | {b: a for a, b in pairs}
    tokens = "|".join(re.escape(t) for t in sorted(table, key=len, reverse=True))
    return re.compile(r"(?<= )(?:" + tokens + r")(?= )"), lambda m: table[m.group()]


WORD = r"[A-Za-z_][\w.]*(?:->\w+)*(?:\[\w+\]|\([\w, .]*\))?"
NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?f?"
DTYPES = {"f32": "f64", "f64": "f32", "bf16": "f32", "double": "float", "float": "double",
          "compute_t<T>": "T"}
OTHER_NAME = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "fmin": "fmax",
              "fmax": "fmin", "floor": "ceil", "ceil": "floor"}
RULES = {
    "sign": swap(("+", "-"), ("+=", "-=")),
    "minus": (re.compile(r"(?<=[(,=] )-(?=[\w(])|(?<=[(\[])-(?=[\w(])|(?<=return )-(?=[\w(])"),
              lambda m: ""),
    "factor": swap(("*", "/"), ("*=", "/=")),
    "number": (re.compile(r"\b(?!0\.0f?\b)\d+\.\d+(?:e-?\d+)?f?\b|\b\de-\d+f?\b"),
               lambda m: f"(2 * {m.group()})"),
    "term": (re.compile(rf" [-+*/] (?:{WORD}|{NUMBER})(?=[;,)])"), lambda m: ""),
    "statement": (re.compile(r"(?<=^)[ ]+(?!return|const|auto|break|case|default|delete|using)"
                             r"(?:\+\+|--)?[a-z][\w.>:\[\]-]*(?:\(.*\)| [-+*/|&]?= [^;{]*|\+\+)?;$",
                             re.M), lambda m: " " * 2 + ";"),
    "index": (re.compile(r"(?<=[\[(, ])(?:0|1|2)(?=[\]),;])|\[(\w+)\](?!\()"),
              lambda m: f"[{m.group(1)} + 1]" if m.group(1) else {"0": "1"}.get(m.group(),
                                                                                "0")),
    "dtype": (re.compile(r"(?<=<)(?:double|float|compute_t<T>)(?=>)|(?<=[(, ])(?:f32|f64|bf16)"
                         r"(?=[),; ])"), lambda m: DTYPES[m.group()]),
    "cast": (re.compile(r"\.to\(\w+\)"), lambda m: ""),
    "bound": swap(("<", "<="), (">", ">=")),
    "equal": swap(("==", "!=")),
    "both": swap(("&&", "||")),
    "not": (re.compile(r"(?<=[( ])!(?=[\w(])"), lambda m: ""),
    "truth": (re.compile(r"(?<=[(, =])(?:true|false)(?=[),;])"),
              lambda m: "false" if m.group() == "true" else "true"),
    "extreme": (re.compile(r"\b(?:std::)?(?:" + "|".join(OTHER_NAME) + r")(?=[<(])"),
                lambda m: re.sub(r"\w+$", lambda n: OTHER_NAME[n.group()], m.group())),
    "logical": (re.compile(r"\blogical_(?:and|or)\b"),
                lambda m: "logical_or" if m.group().endswith("and") else "logical_and"),
}

Mutant = collections.namedtuple("Mutant", "file line rule start end new key shown")


def masked(text):
    """The text with blanks for what is no code: comments, strings, directives, checks' words."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text,
                  flags=re.S)
    text = re.sub(r"^ *#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)
    return re.sub(r"^[^\n]*" + LINES_NOT.pattern + r"[^\n]*", blank, text, flags=re.M)


def mutants_of(root, file):
    text = (root / file).read_text()
    code = masked(text)
    for rule, (pattern, replace) in RULES.items():
        for m in pattern.finditer(code):
            new = replace(m)
            start, end = m.span()
            first = text.rfind("\n", 0, start) + 1
            last = text.find("\n", end)
            old_line, new_line = text[first:last], text[first:start] + new + text[end:last]
            at = text.count("\n", 0, start) + 1
            shown = f"{old_line.strip()}  =>  {new_line.strip()}"
            before = text.count(old_line, 0, first)  # tells equal lines of a file apart
            key = hashlib.sha256(f"{file} {rule} {before} {shown}".encode()).hexdigest()[:12]
            yield Mutant(file, at, rule, start, end, new, key, shown)


def draw(root, files, seed):
    """All mutants in a random order in which the rules take turns, and then the files do."""
    dice = random.Random(seed)
    by_rule = collections.defaultdict(lambda: collections.defaultdict(list))
    for file in files:
        for mutant in mutants_of(root, file):
            by_rule[mutant.rule][file].append(mutant)
    queues = []
    for rule in sorted(by_rule):
        lists = list(by_rule[rule].values())
        for one in lists:
            dice.shuffle(one)
        dice.shuffle(lists)
        turns = max(map(len, lists))
        queues.append([one[i] for i in range(turns) for one in lists if i < len(one)])
    while queues:
        for queue in queues:
            yield queue.pop(0)
        queues = [queue for queue in queues if queue]


# ---- the copy, its builds and its tests


def clean_environment():
    return {k: v for k, v in os.environ.items()
            if not k.startswith(("OPENBLAS_", "INKLING_", "GTEST_"))}


def copy_tree(tree):
    """Brings the copy up to date. What has not changed keeps its time, and is not built again."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                           capture_output=True).stdout.decode().split("\0")
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for name in wanted:
        there = tree / name
        if there.exists() and there.read_bytes() == (ROOT / name).read_bytes():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, there)
        shutil.copymode(ROOT / name, there)
    for there in list(tree.rglob("*")):
        if there.is_file() and str(there.relative_to(tree)) not in wanted:
            there.unlink()


def run(command, limit, cpu_limit=None, **kwargs):
    """Its exit status and what it printed; None if it took too long: `limit` seconds, or cpu_limit
    seconds of processors' time, which a busy machine does not use up. Kills all that it started."""
    def limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_limit:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit), int(cpu_limit)))
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True, preexec_fn=limits,
                          **kwargs) as process:
        try:
            said = process.communicate(timeout=limit)[0]
            late = cpu_limit and process.returncode in (-signal.SIGKILL, -signal.SIGXCPU)
            return None if late else process.returncode, said
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


MOST_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
Test = collections.namedtuple("Test", "name program command environment")


class Build:
    def __init__(self, copy, device, jobs):
        self.tree, self.folder, self.jobs = copy / "tree", copy / f"build-{device}", jobs
        self.device, self.environment = device, clean_environment()

    def ninja(self, targets, limit):
        return run(["nice", "ninja", "-C", str(self.folder), f"-j{self.jobs}", *targets], limit,
                   env=self.environment)

    def prepare(self):
        # The emulator as the preset asan has it, on small inputs, but without the sanitizers.
        how = {"cpu": ["-DCMAKE_BUILD_TYPE=Release", "-DINKLING_CUDA=OFF"],
               "cuda": ["-DCMAKE_BUILD_TYPE=Debug", "-DINKLING_CUDA=EMULATED",
                        "-DCMAKE_CXX_FLAGS_DEBUG=-Og"]}
        for command in (["cmake", "-S", str(self.tree), "-B", str(self.folder), "-G", "Ninja",
                         "-DINKLING_TESTS_BY_ROOM=OFF", *how[self.device]],
                        ["nice", "ninja", "-C", str(self.folder), f"-j{self.jobs}"]):
            status, said = run(command, None, env=self.environment)
            if status != 0:
                sys.exit(f"the copy does not build:\n{said[-3000:]}")

    def tests(self):
        """Those that ctest runs by default, and that are programs of ours."""
        said = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.folder, check=True,
                              capture_output=True, env=self.environment).stdout
        found = []
        for test in json.loads(said)["tests"]:
            properties = {p["name"]: p["value"] for p in test["properties"]}
            program = pathlib.Path(test["command"][0])
            if "slow" in properties.get("LABELS", []) or not program.name.startswith("test_"):
                continue
            if not test["name"].startswith(program.name):
                continue  # of a program that is installed
            on_device = "_on_cuda" in test["name"] or program.name.startswith("test_cuda")
            if self.device == "cuda" and not (on_device or program.name == "test_emulator"):
                continue
            extra = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
            extra.pop("INKLING_COVERAGE", None)
            found.append(Test(test["name"], program.name, test["command"],
                              self.environment | extra))
        return found

    def fails(self, test, limit, cpu_limit=None):
        """Why it fails, or nothing."""
        status, said = run([*test.command, "--gtest_brief=1", "--gtest_fail_fast"], limit,
                           cpu_limit, cwd=self.tree, env=test.environment)
        if status == 0:
            return ""
        if status is None:
            return f"{test.name}: took longer than {cpu_limit or limit:.0f} s"
        failed = re.search(r"\[  FAILED  \] (\S+)", said)
        return f"{test.name}: {failed.group(1) if failed else f'exit status {status}'}"


def baseline(build, tests, file):
    """How long each test takes on the unchanged copy, where all of them must pass."""
    print(f"{len(tests)} tests on the unchanged copy ...", flush=True)
    seconds = {}
    for test in tests:
        begin = time.monotonic()
        if why := build.fails(test, 1200):
            sys.exit(f"the unchanged copy fails: {why}")
        seconds[test.name] = time.monotonic() - begin
    file.write_text(json.dumps(seconds, indent=1))
    return seconds


def ranked(tests, mutant, killers, seconds):
    """The likely ones first: what noticed a change of this file before, what has its name, what
    noticed others; then the shortest."""
    stem = pathlib.Path(mutant.file).stem
    words = set(stem.split("_")) | set(pathlib.Path(mutant.file).parent.parts[-1:])
    def place(test):
        named = set(test.program.split("_")[1:])
        return (-killers[mutant.file][test.name], -len(words & named), -killers[""][test.name],
                seconds[test.name])
    return sorted(tests, key=place)


class Hunt:
    def __init__(self, build, tests, seconds, limit, jobs):
        self.build, self.tests, self.seconds = build, tests, seconds
        self.limit, self.jobs = limit, jobs
        self.killers = collections.defaultdict(collections.Counter)
        self.original = {}

    def note(self, file, outcome, why):
        if outcome == "noticed":
            for key in (file, ""):
                self.killers[key][why.split(":")[0]] += 1

    def hash_of(self, program):
        folder = self.build.folder if program == "inkling" else self.build.folder / "tests"
        return hashlib.sha256((folder / program).read_bytes()).hexdigest()

    def is_changed(self, test):
        """Is the code in its program, or in the one that it runs?"""
        sources = (self.build.tree / "tests").glob(f"*/{test.program}.c*")
        runs = any("run_program" in source.read_text() for source in sources)
        return any(self.hash_of(program) != self.original[program]
                   for program in [test.program] + ["inkling"] * runs)

    def try_one(self, mutant):
        """(outcome, why): noticed, unnoticed, same (so is every program), no code, or unknown (the
        time was over)."""
        order = ranked(self.tests, mutant, self.killers, self.seconds)
        path = self.build.tree / mutant.file
        text = path.read_text()
        until = time.monotonic() + self.limit
        left = lambda: max(1.0, until - time.monotonic())
        path.write_text(text[:mutant.start] + mutant.new + text[mutant.end:])
        try:
            ran = 0
            for tests, jobs in ((order[:1], 1), (order[1:4], 1), (order[4:], self.jobs)):
                programs = sorted({test.program for test in tests})
                status, said = self.build.ninja(["inkling", *programs], left())
                if status is None:
                    return "unknown", "its build took too long"
                if status != 0:
                    error = re.search(r"error: [^\n]*", said)
                    return "no code", error.group() if error else said[-200:]
                tests = [test for test in tests if self.is_changed(test)]
                ran += len(tests)
                if why := self.first_failure(tests, jobs, left):
                    return why
            return ("unnoticed", f"by {ran} tests") if ran else ("same", "")
        finally:
            path.write_text(text)

    def first_failure(self, tests, jobs, left):
        def one(test):
            if found:
                return
            own = max(20, 10 * self.seconds[test.name])
            until = min(6 * own, left())
            why = self.build.fails(test, until, 2 * own)
            if why:
                late = "took longer" in why and until < own
                found.append(("unknown", "its tests took too long") if late else
                             ("noticed", why))
        found = []
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, tests))
        return found[0] if found else None


# ---- what came of it


def explanations():
    """key -> why a change that no test notices needs none."""
    if not EXPLAINED.exists():
        return {}
    lines = [line for line in EXPLAINED.read_text().splitlines()
             if line and not line.startswith("#")]
    return {line.split(None, 1)[0]: line.split(None, 1)[1] for line in lines}


def report(results):
    explained = explanations()
    count = collections.Counter(r["outcome"] for r in results)
    known = [r for r in results if r["outcome"] == "unnoticed" and r["key"] in explained]
    open_ones = [r for r in results if r["outcome"] == "unnoticed" and r["key"] not in explained]
    tried = count["noticed"] + count["unnoticed"]
    print(f"\n{tried} changes, {count['noticed']} noticed"
          + (f": {100 * count['noticed'] / tried:.1f} %" if tried else "")
          + f"; {len(known)} explained, {len(open_ones)} open. Besides: {count['same']} change no "
          f"program, {count['no code']} do not compile, {count['unknown']} took too long.")
    by_rule = collections.defaultdict(collections.Counter)
    for r in results:
        by_rule[r["rule"]][r["outcome"]] += 1
    for rule, c in sorted(by_rule.items()):
        if c["noticed"] + c["unnoticed"]:
            print(f"  {rule:<10} {c['noticed']:>4} of {c['noticed'] + c['unnoticed']}")
    for title, some in (("Open", open_ones), ("Too slow to say",
                        [r for r in results if r["outcome"] == "unknown"])):
        for r in some:
            print(f"{title}: {r['key']} {r['file']}:{r['line']} ({r['rule']})\n    {r['shown']}"
                  + (f"\n    {r['why']}" if r["why"] else ""))
    for r in known:
        print(f"Explained: {r['key']} {r['file']}:{r['line']}: {explained[r['key']]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="whose files are changed; cuda's run in the emulator")
    parser.add_argument("--count", type=int, default=20, help="changes that are to be tried, of "
                        "those that compile and change a program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--copy", type=pathlib.Path,
                        default=pathlib.Path("/tmp/inkling-mutations"), help="the copy's folder")
    parser.add_argument("--files", action="append", help="only files like this, such as "
                        "'train/*'; several times for several")
    parser.add_argument("--rule", action="append", choices=sorted(RULES))
    parser.add_argument("--time-limit", type=float, default=900, help="seconds a change may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--again", action="store_true", help="try those anew that nothing noticed")
    parser.add_argument("--list", action="store_true", help="print the changes, try none")
    parser.add_argument("--report", action="store_true", help="print what is known, try none")
    arguments = parser.parse_args()

    copy = arguments.copy.resolve()
    results_file = copy / f"results-{arguments.device}.jsonl"
    lines = results_file.read_text().splitlines() if results_file.exists() else []
    results = list({r["key"]: r for r in map(json.loads, lines)}.values())  # the last of each
    if arguments.report:
        return report(results)

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True,
                             text=True).stdout.split()
    like = lambda name, patterns: any(fnmatch.fnmatch(name, p) for p in patterns)
    files = [name for name in tracked if like(name, FILES[arguments.device])
             and not like(name, NOT) and like(name, arguments.files or ["*"])]
    mutants = [m for m in draw(ROOT, files, arguments.seed)
               if not arguments.rule or m.rule in arguments.rule]
    if arguments.list:
        for m in mutants[:arguments.count]:
            print(f"{m.key} {m.file}:{m.line} ({m.rule})\n    {m.shown}")
        print(f"{len(mutants)} in {len(files)} files")
        return

    (copy / "tree").mkdir(parents=True, exist_ok=True)
    lock = (copy / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{copy} is in use; wait, or give another --copy")
    copy_tree(copy / "tree")
    build = Build(copy, arguments.device, arguments.jobs)
    build.prepare()
    tests = build.tests()
    times = copy / f"times-{arguments.device}.json"
    seconds = json.loads(times.read_text()) if times.exists() else {}
    if set(seconds) != {test.name for test in tests}:
        seconds = baseline(build, tests, times)
    hunt = Hunt(build, tests, seconds, arguments.time_limit, arguments.jobs)
    hunt.original = {name: hunt.hash_of(name)
                     for name in ["inkling", *(test.program for test in tests)]}
    for r in results:
        hunt.note(r["file"], r["outcome"], r["why"])
    done = {r["key"]: r for r in results
            if not (arguments.again and r["outcome"] in ("unnoticed", "unknown"))}
    shown, tried = [], 0
    for mutant in mutants:
        if tried >= arguments.count:
            break
        if mutant.key not in done:
            begin = time.monotonic()
            outcome, why = hunt.try_one(mutant)
            hunt.note(mutant.file, outcome, why)
            done[mutant.key] = {"key": mutant.key, "file": mutant.file, "line": mutant.line,
                                "rule": mutant.rule, "shown": mutant.shown, "outcome": outcome,
                                "why": why, "seconds": round(time.monotonic() - begin, 1)}
            with results_file.open("a") as file:
                file.write(json.dumps(done[mutant.key]) + "\n")
            print(f"{outcome:<9} {done[mutant.key]['seconds']:>6} s  {mutant.file}:{mutant.line} "
                  f"({mutant.rule})  {mutant.shown}\n          {why}", flush=True)
        shown.append(done[mutant.key])
        tried += done[mutant.key]["outcome"] in ("noticed", "unnoticed")
    report(shown)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the copy is put right again
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
