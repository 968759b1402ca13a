"""What `inkling suggest` proposes beside a grid of settings, by bits per byte of validation text.

    python tests/benchmarks/suggest.py TEXT ... --minutes 2           (each run of the grid takes so long)
    python tests/benchmarks/suggest.py TEXT --minutes 0.3 --sizes 2x64,4x128 --vocabularies 256,1024
    python tests/benchmarks/suggest.py TEXT --minutes 1 --threads 1 --around     (one setting changed at a time)

For each text: `suggest` is asked, and every size of the grid is trained with every vocabulary, each for as many steps
as two threads do in that time. A run's time is counted, not waited for: the CPU time of a step in one thread, shared by
--threads. So other programs on the machine hardly change the results, only how long the script takes. `suggest` is asked
for as many more minutes as the steps that it measured took longer.
"""

import argparse
import json
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCH = 1024  # tokens a step
HEADS = {64: 2, 96: 3, 128: 4, 192: 6, 256: 8, 384: 6, 512: 8}
STEPS = 100  # timed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/inkling")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of the machine whose time is counted")
    parser.add_argument("--sizes", default="2x64,3x96,4x128,4x192,6x256")
    parser.add_argument("--vocabularies", default="256,512,1024,4096")
    parser.add_argument("--rates", default="1", help="multiples of the learning rate 0.3 / n_embd")
    parser.add_argument("--dropout", type=float, default=0, help="of the grid")
    parser.add_argument("--around", action="store_true", help="no grid: the suggestion with one setting changed")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, help="lines of JSON, one a run")
    return parser.parse_args()


def words(settings):
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


def seconds_a_step(options, text, tokenizer, settings, known={}):
    """CPU seconds of a step, by which a longer run differs from a short one, shared by --threads."""
    key = (text, tokenizer, *words(settings))
    if key not in known:
        seconds = []
        for steps in (20, 20 + STEPS):
            before = cpu_seconds()
            train(options, text, tokenizer, settings, {"max_iters": steps, "eval_interval": 10 * steps, "final_eval": "off"})
            seconds.append(cpu_seconds() - before)
        known[key] = (seconds[1] - seconds[0]) / STEPS / options.threads
    return known[key]


def sizes_of(size, dtype):
    layers, width = map(int, size.split("x"))
    block = 64 if width < 192 else 128 if width < 384 else 256
    return {"n_layer": layers, "n_head": HEADS[width], "n_embd": width, "block_size": block,
            "batch_size": BATCH // block, "dtype": dtype}


def train(options, text, tokenizer, settings, others):
    """Bits per byte of the validation part, or of 150 batches of it: after the last step, and the lowest."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "train", "--data", text, "--tokenizer", tokenizer, *words(settings),
                   *words({"eval_iters": 150, **others}),
                   "--threads", 1, "--sample_interval", 0, "--report", "off",
                   "--out_dir", folder]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    found = [line["val_bpb"] for line in lines if "val_bpb" in line]
    return (found[-1], min(found)) if found else None


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def asked(options, text, minutes):
    command = [options.program, "suggest", "--data", text, "--minutes", minutes, "--threads", 1]
    out = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^ *(\d+) x (\d+) +\S+ +(\d+) +([\d.]+)([kM]?)", out, re.M)
    return out, {f"{layers}x{width}": (int(vocabulary), BATCH / float(rate) / {"": 1, "k": 1e3, "M": 1e6}[unit])
                 for layers, width, vocabulary, rate, unit in rows}


def suggestion(options, text):
    out, rows = asked(options, text, options.minutes)
    size, (vocabulary, seconds) = list(rows.items())[min(2, len(rows) - 1)]
    dtype = "bfloat16" if "--dtype bfloat16" in out else "float32"
    slower = seconds / seconds_a_step(options, text, f"bpe:{vocabulary}", sizes_of(size, dtype))
    out, _ = asked(options, text, options.minutes * slower)
    given = shlex.split(out.strip().splitlines()[-1])
    values = {name[2:]: value for name, value in zip(given, given[1:]) if name.startswith("--")}
    expected = float(re.search(r"expect about ([\d.]+)", out).group(1))
    return values, expected


def grid(options):
    for size in options.sizes.split(","):
        for vocabulary in options.vocabularies.split(","):
            settings = sizes_of(size, options.dtype)
            name = "byte" if vocabulary == "256" else f"bpe:{vocabulary}"
            for rate in map(float, options.rates.split(",")):
                yield size, name, settings, rate * 0.3 / settings["n_embd"], options.dropout


def around(options, plan):
    """The suggestion with another size, vocabulary, learning rate, context or dropout."""
    _, tokenizer, settings, rate, dropout = plan
    known = list(map(lambda size: sizes_of(size, options.dtype), options.sizes.split(",")))
    at = [size["n_embd"] for size in known].index(settings["n_embd"])
    for size in known[max(at - 1, 0):at + 2]:
        if size["n_embd"] != settings["n_embd"]:
            yield f"{size['n_layer']}x{size['n_embd']}", tokenizer, size, 0.3 / size["n_embd"], dropout
    vocabulary = int(tokenizer[4:])
    yield "bytes", "byte", settings, rate, dropout
    for factor in (2, 4):
        yield f"vocabulary x {factor}", f"bpe:{factor * vocabulary}", settings, rate, dropout
    for factor in (0.5, 2):
        yield f"rate x {factor}", tokenizer, settings, factor * rate, dropout
    block = 2 * settings["block_size"]
    yield "context x 2", tokenizer, {**settings, "block_size": block, "batch_size": BATCH // block}, rate, dropout
    if dropout > 0:
        yield "no dropout", tokenizer, settings, rate, 0


def main():
    options = arguments()
    log = options.out.open("a") if options.out else sys.stderr
    time = 0.9 * 60 * options.minutes
    for text in options.texts:
        results = []
        values, expected = suggestion(options, text)
        print(f"{text.name}, {text.stat().st_size} bytes, {options.minutes} minutes: suggest", values, expected, flush=True)
        sizes = {name: int(values[name]) for name in ("n_layer", "n_head", "n_embd", "block_size", "batch_size")}
        suggested = ("suggest", values["tokenizer"], {**sizes, "dtype": options.dtype}, float(values["learning_rate"]),
                     float(values.get("dropout", 0)))
        others = around(options, suggested) if options.around else grid(options)
        for name, tokenizer, settings, rate, dropout in [suggested, *others]:
            steps = max(int(time / seconds_a_step(options, text, tokenizer, settings)), 20)
            if name == "suggest":  # it may propose fewer than there is time for
                steps = min(steps, int(values["max_iters"]))
            others = {"learning_rate": f"{rate:.2g}", "max_iters": steps, "warmup_iters": min(steps // 20, 100),
                      "eval_interval": max(steps // 10, 1), "dropout": dropout, "final_eval": "whole"}
            before = cpu_seconds()
            last, lowest = train(options, text, tokenizer, settings, others)
            results.append((last, name, tokenizer, rate))
            print(json.dumps({"text": text.name, "minutes": options.minutes, "name": name, "tokenizer": tokenizer,
                              **settings, **others, "bpb": last, "lowest": lowest,
                              "cpu_seconds": round(cpu_seconds() - before, 1)}), file=log, flush=True)
        best = min(results)
        print(f"  best {best}; suggest {results[0][0]:.4f}, {100 * (results[0][0] / best[0] - 1):+.1f} %; "
              f"it expected {expected}", flush=True)


if __name__ == "__main__":
    main()
