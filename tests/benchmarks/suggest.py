"""What `inkling suggest` proposes beside a grid of settings, by bits per byte of validation text.

    python tests/benchmarks/suggest.py TEXT ... --minutes 2           (each run of the grid takes so long)
    python tests/benchmarks/suggest.py TEXT --minutes 0.3 --sizes 2x64,4x128 --vocabularies 256,1024

For each text: `suggest` is asked, and every size of the grid is trained with every vocabulary, each for as many steps
as two threads do in that time. A run's time is counted, not waited for: the shortest step in one thread, by `bench`,
shared by --threads. So other programs on the machine hardly change the results, only how long the script takes. `suggest` is
asked for as many more minutes as the steps that it measured took longer.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCH = 1024  # tokens a step
HEADS = {64: 2, 96: 3, 128: 4, 192: 6, 256: 8, 384: 6, 512: 8}
STEPS = 60  # timed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/inkling")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of the machine whose time is counted")
    parser.add_argument("--sizes", default="2x64,3x96,4x128,4x192,6x256")
    parser.add_argument("--vocabularies", default="256,512,1024,4096")
    parser.add_argument("--rates", default="1", help="multiples of the learning rate 0.3 / n_embd")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, help="lines of JSON, one a run")
    return parser.parse_args()


def words(settings):
    return [part for name, value in settings.items() for part in (f"--{name}", str(value))]


def seconds_a_step(options, settings, vocabulary, known={}):
    key = (vocabulary, *words(settings))
    if key not in known:
        bench = [options.program, "bench", "--config", "baby", "--profile_steps", 0, "--threads", 1, "--vocab_size",
                 vocabulary, *words(settings), "--steps", STEPS]
        out = subprocess.run(list(map(str, bench)), check=True, capture_output=True, text=True).stdout
        known[key] = float(re.search(r"([\d.]+) best of", out).group(1)) / 1000 / options.threads
    return known[key]


def sizes_of(size, dtype):
    layers, width = map(int, size.split("x"))
    block = 64 if width < 192 else 128 if width < 384 else 256
    return {"n_layer": layers, "n_head": HEADS[width], "n_embd": width, "block_size": block,
            "batch_size": BATCH // block, "dtype": dtype}


def train(options, text, tokenizer, settings, others):
    """Bits per byte of the validation part, or of 150 batches of it: after the last step, and the lowest."""
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "train", "--data", text, "--tokenizer", tokenizer, *words(settings), *words(others),
                   "--threads", 1, "--sample_interval", 0, "--report", "off", "--eval_iters", 150,
                   "--out_dir", folder]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    found = [line["val_bpb"] for line in lines if "val_bpb" in line]
    return found[-1], min(found)


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
    slower = seconds / seconds_a_step(options, sizes_of(size, dtype), vocabulary)
    out, _ = asked(options, text, options.minutes * slower)
    given = shlex.split(out.strip().splitlines()[-1])
    values = {name[2:]: value for name, value in zip(given, given[1:]) if name.startswith("--")}
    expected = float(re.search(r"expect about ([\d.]+)", out).group(1))
    return values, expected


def main():
    options = arguments()
    log = options.out.open("a") if options.out else sys.stderr
    time = 0.9 * 60 * options.minutes
    for text in options.texts:
        results = []
        values, expected = suggestion(options, text)
        print(f"{text.name}, {text.stat().st_size} bytes, {options.minutes} minutes: suggest", values, expected, flush=True)
        sizes = {name: values[name] for name in ("n_layer", "n_head", "n_embd", "block_size", "batch_size")}
        plans = [("suggest", values["tokenizer"], {**sizes, "dtype": options.dtype}, float(values["learning_rate"]))]
        for size in options.sizes.split(","):
            for vocabulary in options.vocabularies.split(","):
                settings = sizes_of(size, options.dtype)
                name = "byte" if vocabulary == "256" else f"bpe:{vocabulary}"
                for rate in map(float, options.rates.split(",")):
                    plans.append((size, name, settings, rate * 0.3 / settings["n_embd"]))
        for size, tokenizer, settings, rate in plans:
            vocabulary = 256 if tokenizer == "byte" else int(tokenizer[4:])
            steps = max(int(time / seconds_a_step(options, settings, vocabulary)), 20)
            others = {"learning_rate": f"{rate:.2g}", "max_iters": steps, "warmup_iters": min(steps // 20, 100),
                      "eval_interval": steps, "dropout": values.get("dropout", 0) if size == "suggest" else 0}
            last, lowest = train(options, text, tokenizer, settings, others)
            results.append((last, size, tokenizer, rate))
            print(json.dumps({"text": text.name, "minutes": options.minutes, "size": size, "tokenizer": tokenizer,
                              **settings, **others, "bpb": last, "lowest": lowest}), file=log, flush=True)
        best = min(results)
        print(f"  best {best}; suggest {results[0][0]:.4f}, {100 * (results[0][0] / best[0] - 1):+.1f} %; "
              f"it expected {expected}", flush=True)


if __name__ == "__main__":
    main()
