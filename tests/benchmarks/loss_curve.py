"""nanoGPT's large setting, trained by inkling and by PyTorch from the same weights: losses and tokens/s, side by side.

    python tests/benchmarks/loss_curve.py TEXT                  (a python that has PyTorch; TEXT: tiny Shakespeare)
    python tests/benchmarks/loss_curve.py TEXT --steps 300 --dtypes float32,bfloat16 --out FILE

6 layers, 6 heads, 384 wide, block 256, batch 64, dropout 0.2; warm-up 100, learning rate 1e-3 to 1e-4 by cosine over
5000 steps, AdamW (0.9, 0.99), weight decay 0.1, clip at 1. inkling starts, saves its weights and trains; PyTorch
(eager: with dropout its compiled steps take longer on a CPU) loads them and trains on batches of its own of the same text,
so that dropout's masks and batches differ; two --seeds show how far these alone move its losses. The table holds the mean training loss of every 25 steps, and the loss over the
whole validation text before and after.
"""

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_pytorch import ROOT, processor, unlock_mkl
from pytorch_gpt import CONFIGS, build, read_tensors

CONFIG = "char_dropout"
WINDOW = 25  # steps
LR, MIN_LR, WARM_UP, DECAY = 1e-3, 1e-4, 100, 5000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/inkling")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--dtypes", default="float32,bfloat16", help="inkling's, in turn")
    parser.add_argument("--pytorch", default="float32", help="PyTorch's")
    parser.add_argument("--seeds", default="1337", help="of PyTorch's batches and masks; it trains once with each")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="the table")
    options = parser.parse_args()
    for file in options.text, options.program:
        if not file.exists():
            parser.error(f"{file} does not exist")
    return options


# ---- inkling


def train(options, out_dir, steps, dtype):
    """What it wrote to metrics.jsonl."""
    B, T, L, H, C, _, dropout = CONFIGS[CONFIG]
    sizes = {"batch_size": B, "block_size": T, "n_layer": L, "n_head": H, "n_embd": C, "dropout": dropout, "dtype": dtype}
    run = {"max_iters": steps, "lr_decay_iters": DECAY, "learning_rate": LR, "min_lr": MIN_LR, "warmup_iters": WARM_UP}
    other = {"log_interval": 1, "eval_interval": max(steps, 1), "sample_interval": 0, "final_eval": "whole", "threads": options.threads, "out_dir": out_dir}
    pairs = [part for name, value in {**sizes, **run, **other}.items() for part in (f"--{name}", str(value))]
    command = [options.program, "train", "--data", options.text, "--bias", *pairs]
    subprocess.run(command, env=clean_environment(options), check=True, stdout=subprocess.DEVNULL)
    with open(out_dir / "metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def clean_environment(options):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    return {**kept, "OMP_NUM_THREADS": str(options.threads)}


def inkling_curve(options, folder, dtype):
    metrics = train(options, folder / dtype, options.steps, dtype)
    losses = {entry["step"]: entry for entry in metrics if "train_loss" in entry}
    return {
        "name": f"inkling, {dtype}",
        "losses": [losses[step]["train_loss"] for step in sorted(losses)],
        "ms": statistics.median(entry["ms"] for entry in losses.values()),
        "val": [entry["val_loss"] for entry in metrics if "val_loss" in entry][-1],
    }


# ---- PyTorch, in a process of its own


def learning_rate(step):
    if step < WARM_UP:
        return LR * (step + 1) / (WARM_UP + 1)
    done = (step - WARM_UP) / (DECAY - WARM_UP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * done)) * (LR - MIN_LR)


def pytorch_curve(text, weights, steps, dtype, threads, seed):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    B, T, *_ = CONFIGS[CONFIG]
    characters = text.read_text()
    ids = {c: i for i, c in enumerate(sorted(set(characters)))}
    data = torch.tensor([ids[c] for c in characters])
    training, validation = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = build(CONFIG)
    model.load_state_dict(read_tensors(weights))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), fused=True)

    def loss_of(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            return model(x, y)

    def validate():
        model.eval()
        with torch.no_grad():
            rows = (len(validation) - 1) // T
            x, y = (validation[s : s + rows * T].view(rows, T) for s in (0, 1))
            sums = [len(part) * loss_of(part, y[i : i + len(part)]).item() for i, part in chunks(x, 16)]
        model.train()
        return sum(sums) / rows

    before, losses, times = validate(), [], []
    for step in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(training) - T, (B,))
        x, y = (torch.stack([training[i + s : i + s + T] for i in at]) for s in (0, 1))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = loss_of(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        times.append(1e3 * (time.perf_counter() - start))
        if (step + 1) % WINDOW == 0:
            print(f"PyTorch {torch.__version__}, step {step + 1}: {losses[-1]:.4f}, {times[-1]:.0f} ms", file=sys.stderr, flush=True)
    name = f"PyTorch {torch.__version__.split('+')[0]}, {dtype}, seed {seed}"
    return {"name": name, "losses": losses, "ms": statistics.median(times), "before": before, "val": validate()}


def chunks(x, size):
    return [(i, x[i : i + size]) for i in range(0, len(x), size)]


# ---- both


def table(curves, before, options):
    B, T, L, H, C, V, dropout = CONFIGS[CONFIG]
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    lines = [f"## The large setting: B {B}, T {T}, L {L}, H {H}, C {C}, V {V}, dropout {dropout}, on tiny Shakespeare", ""]
    lines += [f"`{' '.join(['loss_curve.py', *sys.argv[1:]])}`, {datetime.datetime.now():%Y-%m-%d %H:%M}, commit {commit}, {processor()[0]},"]
    lines += [f"{options.threads} threads. Same weights at the start, batches and dropout of each program's own.", ""]
    lines += ["| | " + " | ".join(curve["name"] for curve in curves) + " |", "| --- |" + " --: |" * len(curves)]
    lines.append("| tokens/s | " + " | ".join(f"{1e3 * B * T / curve['ms']:,.0f}" for curve in curves) + " |")
    lines.append("| ms a step, median | " + " | ".join(f"{curve['ms']:.0f}" for curve in curves) + " |")
    lines.append(f"| validation loss before | {' | '.join(f'{loss:.4f}' for loss in before)} |")
    for first in range(0, options.steps, WINDOW):
        means = [statistics.mean(curve["losses"][first : first + WINDOW]) for curve in curves]
        last = min(first + WINDOW, options.steps)
        lines.append(f"| training loss, steps {first + 1} to {last} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    lines.append("| validation loss after | " + " | ".join(f"{curve['val']:.4f}" for curve in curves) + " |")
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = [entry["val_loss"] for entry in train(options, folder / "start", 0, "float32") if "val_loss" in entry][-1]
        curves = []
        for dtype in filter(None, options.dtypes.split(",")):
            curves.append(inkling_curve(options, folder, dtype))
            print(f"{curves[-1]['name']}: {curves[-1]['ms']:.0f} ms a step", file=sys.stderr, flush=True)
        library = unlock_mkl(folder)
        environment = {**clean_environment(options), **({"LD_PRELOAD": str(library)} if library else {})}
        weights = folder / "start/ckpt/model.safetensors"
        given = [str(options.text), str(weights), str(options.steps), options.pytorch, str(options.threads)]
        before = [start] * len(curves)
        for seed in filter(None, options.seeds.split(",")):
            command = [sys.executable, __file__, "--in-pytorch", *given, seed]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            curves.append(json.loads(done.stdout))
            before.append(curves[-1]["before"])
        text = table(curves, before, options)
    if options.out:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-pytorch"]:
        text, weights, steps, dtype, threads, seed = sys.argv[2:]
        print(json.dumps(pytorch_curve(Path(text), Path(weights), int(steps), dtype, int(threads), int(seed))))
    else:
        main()
