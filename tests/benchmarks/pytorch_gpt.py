"""A GPT's training step in PyTorch, with the names and numbers of nn/gpt.h: what inkling is held against.

    pytorch_gpt.py make CONFIG FILE                               draws weights and a batch, into a safetensors file
    pytorch_gpt.py run CONFIG MODE FILE STEPS THREADS [DEVICE]    trains on it; prints one JSON object
    pytorch_gpt.py serve                                          reads lists of run's arguments, or of make's with "make"
                                                                  before, a line each, as JSON; answers each with a line

CONFIG is one of CONFIGS below. MODE is one of HOWS; bf16 before it: under autocast (bf16 alone: eager); +NAME after it:
attention by that backend of ATTENTION. DEVICE is cpu or cuda. compare_pytorch.py runs it.
"""

import contextlib
import ctypes
import gc
import json
import os
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
    "char_dropout": (64, 256, 6, 6, 384, 65, 0.2),
    "gpt2_b32": (32, 1024, 12, 12, 768, 50257, 0.0),
    "gpt2_b32_50304": (32, 1024, 12, 12, 768, 50304, 0.0),  # padded to a multiple of 64
    "tiny": (2, 16, 2, 2, 32, 65, 0.0),  # to try the scripts
    "tiny_dropout": (2, 16, 2, 2, 32, 65, 0.2),
}
# graph: the whole step captured by hand into one CUDA graph, of the model as it is or compiled.
HOWS = ("eager", "compile", "reduce-overhead", "graph", "compile-graph")
ATTENTION = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
WARM_UP = 2  # steps before the timed ones, as inkling's
# As inkling's bench: so many steps are timed one by one, and their losses read; then, on a GPU, ten at a time.
SINGLE, TOGETHER = 12, 10
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


def is_mode(mode):
    how, _, attention = mode.partition("+")
    return (how.removeprefix("bf16") or "eager") in HOWS and attention in ("", *ATTENTION)


class Training:
    """The model with its optimizer and batch on a device, and a step of it in the way that MODE says."""

    def __init__(self, torch, config, mode, file, device):
        how, _, attention = mode.partition("+")
        self.torch, self.device, self.narrow = torch, device, how.startswith("bf16")
        how = how.removeprefix("bf16") or "eager"
        self.captures, self.graph = how.endswith("graph"), None
        if self.captures and device != "cuda":
            raise ValueError(f"{mode} needs a GPU")
        backends = torch.nn.attention.SDPBackend
        self.attention = [getattr(backends, ATTENTION[attention])] if attention else []
        tensors = read_tensors(file)
        self.x, self.y = (tensors.pop(name).to(device) for name in ("x", "y"))
        model = build(config)
        model.load_state_dict(tensors)
        model.to(device)
        self.parameters = list(model.parameters())
        matrices = [p for p in self.parameters if p.dim() > 1]
        others = [p for p in self.parameters if p.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        options = {"fused": True, "capturable": self.captures}
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99), **options)
        self.loss_of = model
        if how.startswith("compile"):
            self.loss_of = torch.compile(model)
        elif how == "reduce-overhead":
            self.loss_of = torch.compile(model, mode=how)

    def step_as_it_is(self):
        torch = self.torch
        with contextlib.ExitStack() as stack:
            if self.narrow:
                stack.enter_context(torch.autocast(self.device, torch.bfloat16))
            if self.attention:
                stack.enter_context(torch.nn.attention.sdpa_kernel(self.attention))
            loss = self.loss_of(self.x, self.y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss.detach()

    def step(self):
        """The loss, which is to be read before the next step."""
        if not self.graph:
            return self.step_as_it_is()
        self.graph.replay()
        return self.loss

    def warm_up(self, steps):
        """The losses of the first steps, after which nothing is left to be prepared."""
        if not self.captures:
            return [self.step().item() for _ in range(steps)]
        cuda = self.torch.cuda
        side = cuda.Stream()  # as capturing wants its warm-up
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            losses = [self.step().item() for _ in range(steps)]
        cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)  # captured gradients have memory of their own
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.loss = self.step_as_it_is()
        self.graph = graph
        return losses


def run(config, mode, file, steps, threads, device="cpu"):
    import torch

    torch.set_num_threads(threads)
    on_gpu = device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no GPU")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    held = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.cuda.reset_peak_memory_stats()
    training = Training(torch, config, mode, file, device)
    losses, times = training.warm_up(WARM_UP), []
    while len(times) < steps:
        in_a_row = TOGETHER if on_gpu and WARM_UP + len(times) >= SINGLE else 1
        synchronize()
        start = time.perf_counter()
        for _ in range(in_a_row):
            loss = training.step()
        synchronize()
        times.append(1e3 * (time.perf_counter() - start) / in_a_row)
        if in_a_row == 1:
            losses.append(loss.item())
    return {
        "median": statistics.median(times),
        "best": min(times),
        "process_peak": process_peak(),
        "device_peak": torch.cuda.max_memory_allocated() - held if on_gpu else 0,
        "losses": losses,
        "version": torch.__version__,
        "kernels": gpu_text(torch) if on_gpu else kernels(torch),
    }


def gpu_text(torch):
    return f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}; {torch.cuda.get_device_name()}"


def serve():
    """Turn after turn in one process: to import PyTorch and to start CUDA takes longer than a turn."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    for line in sys.stdin:
        try:
            arguments = json.loads(line)
            answer = make(*arguments[1:]) if arguments[0] == "make" else run(*arguments)
        except Exception as error:  # of any kind: the next turn may do
            answer = {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
        import torch

        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(json.dumps(answer or {}), file=answers)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:4])
    elif sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(run(*sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6]), *sys.argv[7:8])))
