"""A GPT's training step in PyTorch, with the names and numbers of nn/gpt.h: what inkling is held against.

    pytorch_gpt.py make CONFIG FILE                      draws weights and a batch, into a safetensors file
    pytorch_gpt.py run CONFIG MODE FILE STEPS THREADS    trains on it; prints one JSON object

MODE is eager, compile, bf16 or bf16compile. compare_pytorch.py runs it; CONFIG is one of CONFIGS below.
"""

import contextlib
import ctypes
import json
import statistics
import sys
import time

# B, T, L, H, C, V, dropout: as `inkling bench --config` has them.
CONFIGS = {
    "baby": (12, 64, 4, 4, 128, 65, 0.0),
    "char": (64, 256, 6, 6, 384, 65, 0.0),
    "char8": (8, 256, 6, 6, 384, 65, 0.0),
    "char8_dropout": (8, 256, 6, 6, 384, 65, 0.2),
    "gpt2_64": (4, 64, 12, 12, 768, 50257, 0.0),
    "gpt2_1024": (4, 1024, 12, 12, 768, 50257, 0.0),
}
WARM_UP = 2  # steps before the timed ones, as inkling's
# Low, for the sake of the gate: at 1e-3 from the first step on, losses leap, and rounding errors grow in ten steps to
# 1e-4 of the loss; PyTorch's in f32 against itself in f64, that is. Time does not depend on it.
LEARNING_RATE = 1e-4


def build(config):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    _, T, L, H, C, V, dropout = CONFIGS[config]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)

        def forward(self, x):
            q, k, v = (part.unflatten(2, (H, C // H)).transpose(1, 2) for part in self.c_attn(x).split(C, 2))
            p = dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
            return F.dropout(self.c_proj(y.transpose(1, 2).flatten(2)), dropout, self.training)

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc, self.c_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x):
            return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), dropout, self.training)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(C), Attention(), nn.LayerNorm(C), MLP()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.h = nn.ModuleList(Block() for _ in range(L))
            self.ln_f = nn.LayerNorm(C)

        def forward(self, ids, targets):
            x = self.wte(ids) + self.wpe.weight
            x = F.dropout(x, dropout, self.training)
            for block in self.h:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)  # the head's weight is the table's
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return GPT()


# ---- safetensors: the header's length, the header, the elements


def write_tensors(file, tensors):
    names = {"torch.float32": "F32", "torch.int64": "I64"}
    header, at = {}, 0
    for name, x in tensors.items():
        size = x.numel() * x.element_size()
        header[name] = {"dtype": names[str(x.dtype)], "shape": list(x.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            x = x.detach().contiguous()
            out.write(ctypes.string_at(x.data_ptr(), x.numel() * x.element_size()))


def read_tensors(file):
    import torch

    dtypes = {"F32": torch.float32, "I64": torch.int64}
    tensors = {}
    with open(file, "rb") as source:
        header = json.loads(source.read(int.from_bytes(source.read(8), "little")))
        for name, entry in header.items():  # in the order of their offsets, as written
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(source.read(end - begin)), dtype=dtypes[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


# ---- the two commands


def make(config, file):
    import torch

    torch.manual_seed(1337)
    B, T, L, *_, V, _ = CONFIGS[config]
    model = build(config)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            residual = name.endswith("c_proj.weight")
            torch.nn.init.normal_(p, 0, 0.02 / ((2 * L) ** 0.5 if residual else 1))
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    batch = {"x": torch.randint(V, (B, T)), "y": torch.randint(V, (B, T))}
    write_tensors(file, {**model.state_dict(), **batch})


def process_peak():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))


def kernels(torch):
    """What PyTorch was built with, and which instructions it uses."""
    shown = torch.__config__.show()
    blas = next((part.strip() for part in shown.split("\n") if "Math Kernel Library" in part), "no MKL")
    return f"{blas.lstrip('- ')}; CPU capability {torch.backends.cpu.get_cpu_capability()}"


def run(config, mode, file, steps, threads):
    import torch

    torch.set_num_threads(threads)
    tensors = read_tensors(file)
    x, y = tensors.pop("x"), tensors.pop("y")
    model = build(config)
    model.load_state_dict(tensors)
    del tensors
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99), fused=True)
    loss_of = torch.compile(model) if "compile" in mode else model
    narrow = "bf16" in mode
    times, losses = [], []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = loss_of(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
        losses.append(loss.item())
    timed = times[WARM_UP:]
    result = {
        "median": statistics.median(timed),
        "best": min(timed),
        "process_peak": process_peak(),
        "losses": losses,
        "version": torch.__version__,
        "kernels": kernels(torch),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:4])
    else:
        run(*sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6]))
