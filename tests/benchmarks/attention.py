"""Times inkling's attention beside PyTorch's, taking turns, on the same cores.

    python tests/benchmarks/attention.py build/tests/benchmark_attention [threads]

Causal, batch 1, 12 heads of T x 64, f32, forward and backward. Each turn is a process of its own:
the table shows the best of the turns' medians, and the peak of memory beyond what was held before
the first call.
"""

import os
import subprocess
import sys

SIZES = {256: 60, 1024: 12, 4096: 4}  # T: calls a turn
TURNS = 4


def status(field):
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(field + ":"))


def torch_turn(T, repeats):
    import statistics
    import time

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


def main():
    program, threads = sys.argv[1], (sys.argv[2:] or ["2"])[0]
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


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch"]:
        torch_turn(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
