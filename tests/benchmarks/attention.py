"""Times inkling's attention beside PyTorch's, taking turns, on the same cores or GPU.

    python tests/benchmarks/attention.py build/release/tests/benchmark_attention [threads]
    python tests/benchmarks/attention.py --device cuda build/gpu/tests/benchmark_ops [--json FILE]

On the CPU: causal, batch 1, 12 heads of T x 64, f32, forward and backward. Each turn is a process of its own: the table
shows the best of the turns' medians, and the peak of memory beyond what was held before the first call.

On a GPU: causal, batch 16, 12 heads of 1024 x 64, bf16, q, k and v side by side in one tensor as a GPT has them, against
each backend of PyTorch's SDPA; synchronised around many calls. Backward is forward and backward less forward. FLOPs are
those of the causal half: two products forward, five backward. Shown is the median of the turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {256: 60, 1024: 12, 4096: 4}  # T: calls a turn
TURNS = 4
GPU_SIZES, SMALL_SIZES = (16, 12, 1024, 64), (1, 2, 64, 32)  # B, H, T, D, as benchmark_ops has them
GPU_TURNS = 3


def status(field):
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(field + ":"))


def torch_turn(T, repeats):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    x = [torch.randn(1, 12, T, 64, requires_grad=True) for _ in range(3)]
    upstream = torch.randn(1, 12, T, 64)
    before = status("VmRSS")
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        y = F.scaled_dot_product_attention(*x, is_causal=True)
        torch.autograd.grad(y, x, upstream)
        times.append((time.perf_counter() - start) * 1e3)
    print(statistics.median(times[2:]), (status("VmHWM") - before) / 1024)


def on_the_cpu(program, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environment.pop(name, None)
    print(f"{threads} threads; load {os.getloadavg()[0]:.1f}")
    print("     T   inkling ms  PyTorch ms  ratio   inkling MiB  PyTorch MiB")
    for T, repeats in SIZES.items():
        commands = [program, str(T), str(repeats)], [sys.executable, __file__, "--torch", str(T), str(repeats)]
        turns = [
            [
                tuple(map(float, subprocess.run(c, env=environment, capture_output=True, check=True, text=True).stdout.split()))
                for c in commands
            ]
            for _ in range(TURNS)
        ]
        (ours, our_memory), (theirs, their_memory) = (map(min, zip(*column)) for column in zip(*turns))
        print(f"{T:6} {ours:12.2f} {theirs:11.2f} {theirs / ours:6.2f} {our_memory:13.1f} {their_memory:12.1f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


# ---- on a GPU


def milliseconds_a_call(call, synchronize, window=20.0):
    """The median of five windows of calls, the device synchronised around each window."""

    def timed(calls):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        return 1e3 * (time.perf_counter() - start) / calls

    timed(3)
    calls = max(1, min(200, int(window / timed(3))))
    return statistics.median(timed(calls) for _ in range(5))


def torch_backends(device, sizes):
    """Prints {backend: [ms forward, ms forward and backward] or the reason why not}."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    B, H, T, D = sizes
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    packed = torch.randn(B, T, 3 * H * D, device=device, dtype=torch.bfloat16)
    x = [part.view(B, T, H, D).transpose(1, 2).detach().requires_grad_() for part in packed.split(H * D, 2)]
    upstream = torch.randn(B, T, H, D, device=device, dtype=torch.bfloat16).transpose(1, 2)

    def forward():
        return F.scaled_dot_product_attention(*x, is_causal=True)

    found = {}
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        try:
            with sdpa_kernel([getattr(SDPBackend, name)]):
                both = lambda: torch.autograd.grad(forward(), x, upstream)  # noqa: E731
                found[name] = [milliseconds_a_call(call, synchronize) for call in (forward, both)]
        except Exception as error:  # of any kind: the other backends can still be had
            found[name] = str(error).split("\n")[0]
    print(json.dumps(found))


def inkling_times(program, device, small):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [program, "--device", device, "--dtype", "bfloat16", "--benchmark_filter=^attention/"]
        command += ["--small"] if small else []
        command += [f"--benchmark_out={out}", "--benchmark_out_format=json"]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except OSError as error:
            return str(error)
        except subprocess.CalledProcessError as error:
            return (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
        rows = json.loads(out.read_text())["benchmarks"]
    failed = [row["error_message"] for row in rows if row.get("error_occurred")]
    return failed[0] if failed else [row["real_time"] / 1e3 for row in rows]


def on_a_gpu(options):
    sizes = SMALL_SIZES if options.small else GPU_SIZES
    B, H, T, D = sizes
    flops = [products * 2 * B * H * (T * (T + 1) / 2) * D for products in (2, 5)]
    turns = {}
    for _ in range(options.turns):
        turns.setdefault("inkling", []).append(inkling_times(options.program, options.device, options.small))
        command = [sys.executable, __file__, "--torch_backends", options.torch_device, *map(str, sizes)]
        done = subprocess.run(command, capture_output=True, text=True)
        theirs = json.loads(done.stdout) if done.returncode == 0 else {"PyTorch": (done.stderr.strip().splitlines() or ["?"])[-1]}
        for name, times in theirs.items():
            turns.setdefault(name, []).append(times)
    rows = {}
    print(f"causal attention, B {B}, {H} heads of {D}, T {T}, bf16")
    print("                       forward ms  TFLOP/s  backward ms  TFLOP/s")
    for name, found in turns.items():
        times = [turn for turn in found if isinstance(turn, list)]
        if len(times) < len(found):
            rows[name] = {"failure": next(turn for turn in found if not isinstance(turn, list))}
            print(f"{name:22} {rows[name]['failure']}")
            continue
        forward = statistics.median(turn[0] for turn in times)
        backward = statistics.median(turn[1] - turn[0] for turn in times)
        rates = [work / ms / 1e9 if ms > 0 else 0 for work, ms in zip(flops, (forward, backward))]
        rows[name] = {"forward_ms": forward, "backward_ms": backward, "forward_tflops": rates[0], "backward_tflops": rates[1]}
        print(f"{name:22} {forward:11.3f} {rates[0]:8.1f} {backward:12.3f} {rates[1]:8.1f}")
    if options.json:
        options.json.write_text(json.dumps({"sizes": dict(zip("BHTD", sizes)), "rows": rows}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="benchmark_attention; on a GPU benchmark_ops")
    parser.add_argument("threads", nargs="?", default="2")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--torch_device", help="where PyTorch runs; the same unless given")
    parser.add_argument("--turns", default=GPU_TURNS, type=int)
    parser.add_argument("--small", action="store_true", help="sizes for an emulated device, to try this")
    parser.add_argument("--json", type=Path, help="the numbers, of a GPU")
    options = parser.parse_args()
    options.torch_device = options.torch_device or options.device
    if options.device == "cpu":
        on_the_cpu(options.program, options.threads)
    else:
        on_a_gpu(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch"]:
        torch_turn(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] == ["--torch_backends"]:
        torch_backends(sys.argv[2], tuple(map(int, sys.argv[3:])))
    else:
        main()
