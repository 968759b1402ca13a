"""Writes print.txt: tensors as PyTorch prints them, for tests/autograd/test_print.cpp.

    python print_fixtures.py > print.txt

A fixture is `case` and the tensor: dtype, whether it is a leaf that requires grad, dim and sizes,
its elements (`values`, or `iota` and a factor for 0, factor, 2 factor, ...). What is printed
follows, `| ` before each line. `options` and `default`, the default dtype, hold until the next.
"""

import random

import torch

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.bool: "bool",
}
f32, f64, bf16, i64, boolean = NAMES
inf, nan = float("inf"), float("nan")


def emit(what, x):
    print(what)
    for line in str(x).split("\n"):
        print("|", line)


def case(values, shape=None, dtype=f32, grad=False):
    x = torch.tensor(values, dtype=dtype)
    x = (x if shape is None else x.reshape(shape)).requires_grad_(grad)
    listed = values if isinstance(values, list) else [values]
    words = [repr(int(v) if dtype == boolean else v) for v in listed]
    dims = [x.dim(), *x.shape]
    emit(" ".join(map(str, ["case", NAMES[dtype], int(grad), *dims, "values", *words])), x)


def iota(*shape, factor=1, dtype=i64):
    n = torch.Size(shape).numel()
    x = (torch.arange(n, dtype=f64) * factor).to(dtype).reshape(shape)
    emit(" ".join(map(str, ["case", NAMES[dtype], 0, len(shape), *shape, "iota", factor])), x)


def options(precision=4, threshold=1000, edgeitems=3, linewidth=80, sci_mode=None):
    torch.set_printoptions(precision, threshold, edgeitems, linewidth, None, sci_mode)
    mode = -1 if sci_mode is None else int(sci_mode)
    print("options", precision, threshold, edgeitems, linewidth, mode)


def default(dtype):
    torch.set_default_dtype(dtype)
    print("default", NAMES[dtype])


rng = random.Random(1)


def draw(n, low=-2.0, high=2.0):
    return [round(rng.uniform(low, high), 6) for _ in range(n)]


def scalars_and_vectors():
    for value in [0.0, -0.0, 1.0, 3.14159265, -2.5, 1e-5, 1e10, 123456.78, inf, -inf, nan, 0.5]:
        case(value)
    case(7, dtype=i64), case(True, dtype=boolean), case(1.5, dtype=bf16), case(1.5, dtype=f64)
    case([1.0, 2.0, 3.0]), case([1.0, -2.0, 30.0]), case([0.0, 0.0]), case([-0.0, 1.0])
    case([0.1, 0.25, -0.125]), case([0.1, 100.0]), case([0.1, 100.1]), case([1.0, 1000.0])
    case([1.0, 1001.0]), case([1e8, 1e7]), case([1.00000008e8, 2e8]), case([1e-4, 1e-3])
    case([0.99e-4, 1e-3]), case([1e-30, 1e30]), case([5e-324, 1e308], dtype=f64)
    case([nan, 1.0, inf, -inf]), case([nan, 1.5, inf, -inf]), case([nan, 1e-6, inf, -inf, 0.0])
    case([nan, inf]), case([-inf, 0.0]), case([0.0, -1.25]), case([2.5e-5, 0.125, 0.375])
    case([9.99999, 99.99996]), case([0.00005, 0.99995])
    case([1, -20, 300], dtype=i64), case([2**63 - 1, -(2**63)], dtype=i64)
    case([2**53 + 1], dtype=i64), case([True, False], dtype=boolean)
    case([True, True], dtype=boolean), case(draw(5), dtype=bf16), case(draw(5), dtype=f64)
    case([1e20, 1.0], dtype=bf16), case([256.0, 3.0], dtype=bf16)


def shapes():
    case(draw(6), (2, 3)), case(draw(12), (2, 2, 3)), case(draw(16), (2, 2, 2, 2))
    case(draw(8), (1, 2, 1, 2, 2)), case([1.0], (1, 1, 1)), case(draw(30)), case(draw(40), (2, 20))
    case([0.0] * 60), case([1.0] * 40, (2, 20)), case(draw(24, -1e6, 1e6), (2, 12))
    case([True, False, True] * 8, (2, 12), boolean), case([nan, 1.0, -2.0, inf], (2, 2))
    iota(30), iota(100), iota(3, 40), iota(2, 2, 30), iota(24, factor=0.5, dtype=f32)
    for shape in [(0,), (0, 3), (2, 0, 4)]:
        for dtype in [f32, i64, boolean, bf16]:
            iota(*shape, dtype=dtype)


def summaries():
    iota(1000, dtype=boolean)
    iota(1001), iota(1001, factor=0.5, dtype=f32), iota(40, 40), iota(2, 600), iota(600, 2)
    iota(11, 10, 11), iota(2, 3, 300), iota(300, 1, 7), iota(7, 1, 7, 30), iota(5, 6, 6, 6)
    iota(40, 40, factor=0.001, dtype=f64), iota(1001, dtype=bf16), iota(1, 2000, dtype=f32)


def suffixes():
    case(draw(3), grad=True), case(1.0, grad=True), case(draw(4), (2, 2), f64, True)
    for n in range(6, 10):
        case(draw(n), grad=True), case(draw(n), dtype=bf16, grad=True)
    case([1.5] * 5, dtype=f64, grad=True), case([10.5] * 5, dtype=f64, grad=True)
    case([100.5] * 5, dtype=f64, grad=True), case([10.5] * 4, dtype=f64, grad=True)
    case([], (0, 3), f64, True)
    for dtype in [f64, bf16]:
        default(dtype)
        for other in [f32, f64, bf16]:
            case([1.5, 2.0], dtype=other), case([], (0, 2), other)
        case([1, 2], dtype=i64), case([], dtype=i64), case([True], dtype=boolean)
    default(f32)


def with_options():
    options(precision=2), case(draw(6), (2, 3)), case([1e-6, 1.0]), case(draw(20))
    options(precision=0), case([0.5, 1.5, 2.5]), case([1e-6, 1.0]), case([1.0, 2.0])
    options(precision=10), case(draw(3)), case(draw(4), (2, 2), f64)
    options(threshold=5), iota(6), iota(7), iota(2, 3), iota(7, 7), case(draw(9))
    options(threshold=5, edgeitems=1), iota(6), iota(3, 3, 3), iota(2, 2, 2)
    case([1e9, 1.0, 1.0, 5.0, 1e9, 3.0])
    case([1.5, 1e9, 1.0, 5.0, 1e9, 3.0])
    options(threshold=5, edgeitems=0), iota(6), iota(3, 3), iota(4), iota(2, 0)
    options(threshold=10, edgeitems=10), iota(30), iota(15), iota(30, 2)
    options(linewidth=40), case(draw(12)), case(draw(5), grad=True), iota(2, 20)
    options(linewidth=5), iota(4), case(draw(4), (2, 2), f64)
    options(sci_mode=True), case(draw(4), (2, 2)), case([1.0, 20.0]), case([0.0, nan])
    case([0.0, 1.0, nan, -inf])
    options(sci_mode=False), case([1e-6, 1.0]), case([1e10, 0.5]), case([1e300, 1.0], dtype=f64)
    options()


scalars_and_vectors()
shapes()
summaries()
suffixes()
with_options()
