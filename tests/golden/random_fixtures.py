"""Writes random.txt: what PyTorch draws on a CPU, for tests/autograd/test_random.cpp.

    python random_fixtures.py [libmkl_rt.so] > random.txt

A line is one fixture: what is drawn, its arguments, a hash of the result's bits and, for short
results, the bits themselves. Draws follow one another in one stream until the next `seed`. With
the path of an MKL library (the PyPI package `mkl` holds one) it adds the Bernoulli streams that
PyTorch takes from MKL; without, it leaves them out.
"""

import ctypes
import itertools
import math
import random
import sys

import numpy as np
import torch

SHORT = 24
SIZES = [1, 2, 3, 5, 8, 13, 15, 16, 17, 24, 31, 32, 33, 47, 48, 100, 127, 313, 623, 624, 625, 1000]
DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64}


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words:
        h = (h ^ w) * 0x100000001B3 % 2**64
    return h


def bits(array):
    kind = np.uint32 if array.itemsize == 4 else np.uint64 if array.itemsize == 8 else np.uint8
    return [int(w) for w in array.reshape(-1).view(kind)]


def emit(what, result, libm=False):
    """libm: the doubles come from libm, whose last bit may change; the hash sees them as floats."""
    array = result.detach().contiguous().numpy() if torch.is_tensor(result) else result
    digest = fnv(bits(array.astype(np.float32) if libm else array))
    listed = bits(array) if array.size <= SHORT else []
    print(*what, f"{digest:016x}", len(listed), *(f"{w:x}" for w in listed))


def seed(s):
    torch.manual_seed(s)
    print("seed", s)


def uniform(n, dtype="f32", a=0.0, b=1.0):
    out = torch.empty(n, dtype=DTYPES[dtype]).uniform_(a, b)
    emit(["uniform", dtype, n, a.hex(), b.hex()], out)


def normal(n, dtype="f32", mean=0.0, std=1.0):
    out = torch.empty(n, dtype=DTYPES[dtype]).normal_(mean, std)
    emit(["normal", dtype, n, mean.hex(), std.hex()], out, libm=dtype == "f64")


def exponential(n, dtype="f32", rate=1.0):
    out = torch.empty(n, dtype=DTYPES[dtype]).exponential_(rate)
    emit(["exponential", dtype, n, rate.hex()], out, libm=dtype == "f64")


def randint(n, low, high, dtype="i64"):
    emit(["randint", dtype, n, low, high], torch.randint(low, high, (n,), dtype=DTYPES[dtype]))


def randperm(n):
    emit(["randperm", n], torch.randperm(n))


def bernoulli(n, p):
    """Through a tensor of doubles, which takes the rule of builds without MKL on any processor."""
    probabilities = torch.full((n,), p, dtype=torch.float64)
    emit(["bernoulli", n, p.hex()], torch.empty(n).bernoulli_(probabilities))


def bernoulli_each(n, dtype):
    p = torch.rand(n, dtype=DTYPES[dtype])
    emit(["bernoulli_each", dtype, n], torch.empty(n).bernoulli_(p))


def multinomial(rows, categories, samples, replacement):
    weights = torch.rand(rows, categories)
    emit(["multinomial", rows * samples, rows, categories, samples, int(replacement)],
         torch.multinomial(weights, samples, replacement))


def linear(n_in, n_out, bias):
    layer = torch.nn.Linear(n_in, n_out, bias=bias)
    drawn = torch.cat([p.reshape(-1) for p in layer.parameters()])
    emit(["linear", drawn.numel(), n_in, n_out], drawn)


def embedding(rows, width):
    emit(["embedding", rows * width], torch.nn.Embedding(rows, width).weight)


def state():
    bytes = torch.get_rng_state()
    emit(["state", bytes.numel()], bytes)


def every_size():
    for i, n in enumerate(SIZES):
        seed(1000 + i)
        for dtype in ("f32", "f64"):
            uniform(n, dtype)
            uniform(n, dtype, -1 / math.sqrt(n), 1 / math.sqrt(n))
            normal(n, dtype)
            normal(n, dtype, 0.25, 0.02)
            exponential(n, dtype, 1.5)
            bernoulli_each(n, dtype)
        randint(n, 0, 10)
        randint(n, -5, 2**28 - 5)  # the first range that takes two outputs
        randperm(n)
        bernoulli(n, 0.9)
        state()


def ranges():
    seed(42)
    for low, high in [(0, 1), (0, 2), (-7, 8), (0, 50257), (0, 2**28 - 1), (0, 2**28), (0, 2**32),
                      (-(2**40), 3), (-(2**62), 2**62), (-(2**63), 2**63 - 1)]:
        randint(9, low, high)
    for dtype in ("f32", "f64"):
        randint(20, 0, 10, dtype)
        randint(20, -(2**24), 2**24, dtype)
    for a, b in [(0.0, 0.0), (5.0, 9.0), (-1e-3, 1e-3), (-1e30, 1e30), (0.1, 0.7), (1.0, 1.0000001)]:
        for dtype in ("f32", "f64"):
            uniform(21, dtype, a, b)
    for mean, std in [(0.0, 0.0), (-3.0, 2.5), (1e6, 1e-3), (0.1, 0.7)]:
        for n, dtype in itertools.product((11, 40), ("f32", "f64")):
            normal(n, dtype, mean, std)


def seeds():
    for s in [0, 1, 123, 1337, 2**31, 2**32 - 1, 2**32, 3308764504, 2**63 + 11]:
        seed(s)
        uniform(7)
        normal(3)  # leaves a spare
        state()
        normal(33)
        normal(2)


def layers():
    seed(123)
    for n_in, n_out, bias in [(3, 2, False), (3, 2, True), (1, 1, True), (16, 16, True),
                              (64, 192, False), (100, 27, True), (7, 5, True), (384, 3, True)]:
        linear(n_in, n_out, bias)
    for rows, width in [(6, 3), (1, 1), (50, 17), (27, 32), (3, 5)]:
        embedding(rows, width)
    linear(32, 16, False)


def samples():
    seed(7)
    for n in (2, 5, 27, 65, 300):
        for rows, k in ((1, 1), (3, 1), (2, 2)):
            multinomial(rows, n, k, True)
            multinomial(rows, n, k, False)
        multinomial(2, n, 50, True)


def interleaved():
    """Short draws of all kinds in random order: offsets into the block, spares left over."""
    pick = random.Random(2024)
    for s in range(6):
        seed(s * 77)
        for _ in range(25):
            n = pick.choice([1, 2, 3, 7, 15, 16, 21, 40, 130])
            dtype = pick.choice(["f32", "f64"])
            pick.choice([
                lambda: uniform(n, dtype, -0.5, 0.25),
                lambda: normal(n, dtype, 0.5, 1.5),
                lambda: normal(n % 16, dtype),
                lambda: randint(n, 0, 1000),
                lambda: randint(n, 0, 2**50),
                lambda: randperm(n),
                lambda: bernoulli(n, 0.3),
                lambda: bernoulli_each(n, dtype),
                lambda: exponential(n, dtype),
                lambda: linear(n, 3, True),
            ])()
        state()


def mkl_streams(path):
    mkl = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    mcg31, n = 0x100000, 1000
    for s, p in itertools.product((0, 5, 123, 999), (0.1, 0.5, 0.7, 0.8, 0.9, 1.0)):
        seed(s)
        start = torch.empty(1, dtype=torch.int64).random_(-(2**63), None).item() >> 32 & 0xFFFFFFFF
        out = np.empty(n, dtype=np.int32)
        stream = ctypes.c_void_p()
        assert mkl.vslNewStream(ctypes.byref(stream), mcg31, ctypes.c_uint(start)) == 0
        assert mkl.viRngBernoulli(0, stream, n, out.ctypes.data_as(ctypes.c_void_p),
                                  ctypes.c_double(p)) == 0
        mkl.vslDeleteStream(ctypes.byref(stream))
        emit(["bernoulli_mkl", n, p.hex()], out.astype(np.float32))


if __name__ == "__main__":
    print(f"# PyTorch {torch.__version__}, CPU {torch.backends.cpu.get_cpu_capability()}; by random_fixtures.py")
    every_size()
    ranges()
    seeds()
    layers()
    samples()
    interleaved()
    if len(sys.argv) > 1:
        mkl_streams(sys.argv[1])
