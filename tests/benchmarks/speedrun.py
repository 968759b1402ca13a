"""The record of SPEEDRUN.md beside PyTorch: the same Llama, optimizer, schedule and data, in turns.

    python tests/benchmarks/speedrun.py TEXT                      (a python that has PyTorch; TEXT: tiny Shakespeare)
    python tests/benchmarks/speedrun.py TEXT --hows eager,compile,bf16-eager,bf16-compile --seeds 1,2,3 --out FILE

The record's command is RECORD below. PyTorch trains the same model from weights of its own, on batches of its own of the
same text; its Muon is torch.optim.Muon. Each row has the seconds of the steps, those of everything (start, compiling,
evaluation), and the loss over the whole validation text after the last step.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare_pytorch import ROOT, processor, unlock_mkl
from loss_curve import clean_environment

RECORD = {
    "model": "llama", "tie_word_embeddings": True, "qk_norm": True, "n_layer": 4, "n_head": 4, "n_kv_head": 2,
    "n_embd": 128, "block_size": 64, "batch_size": 12, "max_iters": 1400, "optimizer": "muon", "momentum": 0.9,
    "learning_rate": 4e-3, "min_lr": 4e-4, "warmup_iters": 100, "beta2": 0.99, "dtype": "bfloat16",
}  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/inkling")
    parser.add_argument("--hows", default="eager,compile,bf16-eager,bf16-compile", help="PyTorch's")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=RECORD["max_iters"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="the table")
    options = parser.parse_args()
    for file in options.text, options.program:
        if not file.exists():
            parser.error(f"{file} does not exist")
    return options


def command_of(options, seed, folder):
    settings = {**RECORD, "max_iters": options.steps, "data": options.text, "seed": seed, "out_dir": folder}
    other = {"eval_interval": options.steps, "eval_iters": 1, "final_eval": "whole", "sample_interval": 0, "report": "off"}
    words = [str(options.program), "train"]
    for name, value in {**settings, **other}.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def inkling(options, seed):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(command_of(options, seed, folder), env=clean_environment(options), check=True, text=True, capture_output=True)
        whole = time.perf_counter() - start
        metrics = (Path(folder) / "metrics.jsonl").read_text()
    steps = [float(ms) for ms in re.findall(r'"ms":([\d.]+)', metrics)]
    loss = float(re.findall(r"validation loss ([\d.]+)", done.stdout)[-1])
    return sum(steps) / len(steps) * options.steps / 1000, whole, loss


# ---- PyTorch, in a process of its own


def build(vocabulary):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    C, H, K, L, T = (RECORD[name] for name in ("n_embd", "n_head", "n_kv_head", "n_layer", "block_size"))
    D, width = C // H, (8 * C // 3 + 31) // 32 * 32
    angles = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(0, D, 2) / D)).repeat(1, 2)
    residual = 0.02 / math.sqrt(2 * L)

    def linear(inputs, outputs, std=0.02):
        layer = nn.Linear(inputs, outputs, bias=False)
        nn.init.normal_(layer.weight, 0, std)
        return layer

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = linear(C, C), linear(C, K * D), linear(C, K * D)
            self.o_proj, self.q_norm, self.k_norm = linear(C, C, residual), nn.RMSNorm(D, 1e-5), nn.RMSNorm(D, 1e-5)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def turned(self, x):
            a, b = x.chunk(2, -1)
            return (x * self.cos + torch.cat([-b, a], -1) * self.sin).to(x.dtype)

        def forward(self, x):
            q, k, v = (p(x).unflatten(2, (-1, D)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            q, k = self.turned(self.q_norm(q)), self.turned(self.k_norm(k))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.o_proj(y.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn, self.gate_proj, self.up_proj = Attention(), linear(C, width), linear(C, width)
            self.down_proj = linear(width, C, residual)
            self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(C, 1e-5), nn.RMSNorm(C, 1e-5)

        def forward(self, x):
            x = x + self.self_attn(self.input_layernorm(x))
            y = self.post_attention_layernorm(x)
            return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.norm = nn.ModuleList(Block() for _ in range(L)), nn.RMSNorm(C, 1e-5)
            self.lm_head = linear(C, vocabulary)

        def forward(self, ids, targets):
            x = F.embedding(ids, self.lm_head.weight)
            for block in self.layers:
                x = block(x)
            return F.cross_entropy(self.lm_head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    return Llama()


def pytorch(text, how, steps, threads, seed):
    """Prints the seconds of the steps, and the loss afterwards."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    characters = text.read_text()
    ids = {c: i for i, c in enumerate(sorted(set(characters)))}
    data = torch.tensor([ids[c] for c in characters])
    training, validation = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = build(len(ids))
    lr, weight_decay = RECORD["learning_rate"], 0.1
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and name != "lm_head.weight"]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": [model.lm_head.weight], "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}]
    optimizers = [
        torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, momentum=RECORD["momentum"], adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=lr, betas=(0.9, RECORD["beta2"]), fused=True),
    ]
    run = torch.compile(model) if how.endswith("compile") else model
    B, T, warm_up = RECORD["batch_size"], RECORD["block_size"], RECORD["warmup_iters"]

    def loss_of(f, x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=how.startswith("bf16")):
            return f(x, y)

    def rate(step):
        if step < warm_up:
            return RECORD["learning_rate"] * (step + 1) / (warm_up + 1)
        left = (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))) / 2
        return RECORD["min_lr"] + left * (RECORD["learning_rate"] - RECORD["min_lr"])

    times = []
    for step in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(training) - T, (B, 1)) + torch.arange(T)
        loss_of(run, training[at], training[at + 1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    warm = 5  # steps that compile, and fill caches; they count as the mean of the others
    with torch.no_grad():
        rows = (len(validation) - 1) // T
        x, y = (validation[s : s + rows * T].view(rows, T) for s in (0, 1))
        parts = list(zip(x.split(64), y.split(64)))
        loss = sum(len(a) * loss_of(model, a, b).item() for a, b in parts) / rows
    print(sum(times[warm:]) / (steps - warm) * steps, loss)


def pytorch_run(options, how, seed, library):
    command = [sys.executable, __file__, "--pytorch", str(options.text), how, str(options.steps), str(options.threads), str(seed)]
    preload = {"LD_PRELOAD": str(library)} if library else {}
    start = time.perf_counter()
    out = subprocess.run(command, env=clean_environment(options) | preload, check=True, text=True, capture_output=True).stdout
    steps, loss = map(float, out.split())
    return steps, time.perf_counter() - start, loss


def main():
    if sys.argv[1:2] == ["--pytorch"]:
        text, how, *numbers = sys.argv[2:]
        return pytorch(Path(text), how, *map(int, numbers))
    options = arguments()
    lines = [f"{processor()[0]}, {options.threads} threads, {options.steps} steps", "",
             "| | seed | seconds of the steps | of everything | validation loss |", "| --- | --: | --: | --: | --: |"]  # fmt: skip
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        library = unlock_mkl(Path(folder))
        for seed in map(int, options.seeds.split(",")):
            runs = [("inkling", lambda: inkling(options, seed))]
            for how in options.hows.split(","):
                runs.append((f"PyTorch, {how}", lambda how=how: pytorch_run(options, how, seed, library)))
            for name, run in runs:
                steps, whole, loss = run()
                lines.append(f"| {name} | {seed} | {steps:.1f} | {whole:.1f} | {loss:.4f} |")
                print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
