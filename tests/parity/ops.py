"""The ops that are held against PyTorch: how PyTorch calls each, and how its arguments are drawn.

OPS[name] is an Op. Its parameters have PyTorch's names and order, so that the samples of op_db can be
bound to them; the runner (test_parity.cpp) reads them from the case by these names. `draw` makes one
random set of arguments; what it leaves out takes its default.
"""
import math
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F

FLOATS = [torch.float64, torch.float32, torch.bfloat16]
NUMBERS = [0, 1, 2, 3, -1, 0.5, -0.5, 2.0, 0.1, 1e-3, -2, 7, 0.3, 5.3, 1.1]
EXTREMES = [math.inf, -math.inf, math.nan, 1e19, -1e19, 1e39, 1e300, 2**53 + 1, -(2**62), 0.0, -0.0]


@dataclass
class Op:
    params: str  # "input dim keepdim"
    call: Callable
    draw: Callable
    op_db: list = field(default_factory=list)  # names there; default: our own
    random: bool = False  # draws random numbers: the same seed is set for both
    grad: bool = True
    shown: str = None  # the name of its grad_fn, where PyTorch is asked for something else
    sums: float = 0.0  # how large the numbers are whose sums are its values
    exact: bool = False  # of tensors of one dtype, its values have PyTorch's bits


class Draw:
    """Draws arguments; `rng` is a random.Random."""

    def __init__(self, rng, edges=0.35):
        self.rng = rng
        self.edges = rng.random() < edges  # whether this case goes to the edges

    def chance(self, p):
        return self.rng.random() < p

    def rare(self, p=0.15):
        """Something that only edge cases have."""
        return self.edges and self.chance(p)

    def dtype(self, kinds="fff"):
        pool = {"f": FLOATS, "i": [torch.int64], "b": [torch.bool]}
        return self.rng.choice(pool[self.rng.choice(kinds)])

    def size(self):
        return 0 if self.rare(0.1) else self.rng.choice([1, 2, 2, 3, 3, 4, 5])

    def shape(self, low=0, high=4):
        sizes = [self.size() for _ in range(self.rng.randint(low, high))]
        if sizes and math.prod(sizes) < 60 and self.chance(0.08):  # beyond a vector register, with a rest
            sizes[self.rng.randrange(len(sizes))] = self.rng.choice([8, 9, 16, 17, 33, 67])
        return tuple(sizes)

    def values(self, shape, dtype, low=-3.0, high=3.0):
        n = math.prod(shape)
        if dtype == torch.bool:
            return torch.tensor([self.chance(0.5) for _ in range(n)], dtype=dtype).reshape(shape)
        if dtype == torch.int64:
            big = self.rare(0.1)
            made = [self.rng.randint(-(2**62), 2**62) if big and self.chance(0.3)
                    else self.rng.randint(math.ceil(low), math.floor(high)) for _ in range(n)]
            return torch.tensor(made, dtype=dtype).reshape(shape)
        ties, odd = self.chance(0.25), self.rare(0.25)
        scale = self.rng.choice([1e-20, 1e-4, 30, 1e4]) if self.rare(0.15) and low < 0 else 1.0
        made = []
        for _ in range(n):
            v = float(self.rng.randint(math.ceil(low), math.floor(high))) if ties else self.rng.uniform(low, high)
            v *= scale
            if odd and self.chance(0.2):
                v = self.rng.choice([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-30, 1e30])
            made.append(v)
        return torch.tensor(made, dtype=torch.float64).to(dtype).reshape(shape)

    def tensor(self, shape=None, dtype=None, kinds="fff", low=-3.0, high=3.0, grad=True):
        """Values in a random layout; floating ones mostly require grad."""
        shape = self.shape() if shape is None else tuple(shape)
        dtype = self.dtype(kinds) if dtype is None else dtype
        wants = grad and dtype.is_floating_point and self.chance(0.85)
        kind, n = self.rng.random(), len(shape)
        if n == 0 or kind < 0.6:
            x = self.values(shape, dtype, low, high)
        elif kind < 0.8:
            order = list(range(n))
            self.rng.shuffle(order)
            x = self.values([shape[i] for i in order], dtype, low, high).permute(
                [order.index(i) for i in range(n)])
        elif kind < 0.93:
            d = self.rng.randrange(n)
            wide = [s * 2 + 1 if i == d else s for i, s in enumerate(shape)]
            x = self.values(wide, dtype, low, high).narrow(d, 1, shape[d] * 2)[
                (slice(None),) * d + (slice(None, None, 2),)]
        else:
            d = self.rng.randrange(n)
            x = self.values([1 if i == d else s for i, s in enumerate(shape)], dtype, low, high).expand(shape)
        return x.detach().requires_grad_(wants)

    def broadcast(self, shape):
        """A shape that broadcasts with `shape`, rarely one that does not."""
        sizes = [1 if self.chance(0.2) else s for s in shape][self.rng.choice([0, 0, 0, 1]) if shape else 0:]
        if sizes and self.rare(0.1):
            sizes[self.rng.randrange(len(sizes))] += 1
        return () if self.chance(0.08) else tuple(sizes)

    def pair(self, kinds="fffffib", low=-3.0, high=3.0, mixed=0.25):
        shape = self.shape()
        dtype = self.dtype(kinds)
        other = self.dtype(kinds) if self.chance(mixed) else dtype
        shapes = [shape, self.broadcast(shape)]
        if self.chance(0.3):
            shapes.reverse()
        return (self.tensor(shapes[0], dtype, low=low, high=high),
                self.tensor(shapes[1], other, low=low, high=high))

    def dim(self, x, extra=0):
        n = (x if isinstance(x, int) else x.dim()) + extra
        if self.rare(0.08):
            return self.rng.choice([n, -n - 1])
        return self.rng.randint(-n, n - 1) if n else self.rng.choice([0, -1])

    def dims(self, x):
        if self.chance(0.2) or x.dim() == 0:
            return None if self.chance(0.7) or x.dim() else [0]
        dims = self.rng.sample(range(x.dim()), self.rng.randint(1, x.dim()))
        dims = [d - x.dim() if self.chance(0.3) else d for d in dims]
        if self.rare(0.05):
            dims.append(dims[0])
        return dims

    def number(self):
        return self.rng.choice(EXTREMES) if self.rare(0.3) else self.rng.choice(NUMBERS)

    def flag(self):
        return self.chance(0.5)

    def ids(self, shape, n, negative=False):
        """Ids below n; n may be 0 if there are none to draw."""
        count = math.prod(shape)
        low = -n if negative else 0
        made = [self.rng.randint(low, max(n - 1, low)) for _ in range(count)]
        if made and self.rare(0.1):
            made[self.rng.randrange(count)] = self.rng.choice([n, -n - 1])
        return torch.tensor(made, dtype=torch.int64).reshape(shape)


OPS = {}


def op(names, params, draw, call=None, op_db=None, **options):
    for name in names.split():
        function = call or getattr(F, name, None) or getattr(torch, name)
        OPS[name] = Op(params, function, draw, [name, "nn.functional." + name] if op_db is None else op_db, **options)


def named(**arguments):
    return {k: v for k, v in arguments.items() if v is not None}


# ---- elementwise

def two(kinds="fffffib", low=-3.0, high=3.0, numbers=True):
    def draw(d):
        a, b = d.pair(kinds, low, high)
        if numbers and d.chance(0.3):
            b = d.number()
        return {"input": a, "other": b}
    return draw


def with_alpha(d):
    arguments = two()(d)
    if d.chance(0.4):
        arguments["alpha"] = d.rng.choice([2, -1, 0.5, 1.0, 3, 0])
    return arguments


op("add sub", "input other alpha", with_alpha)
op("mul div", "input other", two())
op("atan2", "input other", two(numbers=False))
op("remainder", "input other", two("ffffi"))
op("maximum minimum", "input other", two(numbers=False))
op("eq ne lt le gt ge", "input other", two(), grad=False)
op("logical_and logical_or logical_xor", "input other", two(numbers=False), grad=False)
op("bitwise_and bitwise_or bitwise_xor", "input other", two("iibb", numbers=False), grad=False)
op("bitwise_not", "input", lambda d: {"input": d.tensor(kinds="ib")}, grad=False)
op("rsub", "input other", lambda d: {"input": d.tensor(kinds="fffib"), "other": d.number()},
   call=lambda input, other: other - input)
op("rdiv", "input other", lambda d: {"input": d.tensor(kinds="fffib"), "other": d.number()},
   call=lambda input, other: other / input, op_db=["__rdiv__"])
op("rpow", "self exponent", lambda d: {"self": d.number(), "exponent": d.tensor(kinds="ffffi")},
   call=lambda self, exponent: torch.pow(self, exponent), op_db=[])


def power(d):
    a, b = d.pair("ffffi", -2.0, 3.0)
    if d.chance(0.5):
        b = d.rng.choice([0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.0, 0.0])
    return {"input": a, "exponent": b}


op("pow", "input exponent", power)
op("neg abs sign relu square", "input", lambda d: {"input": d.tensor(kinds="ffffib")})
op("exp sqrt rsqrt sin cos tanh sigmoid erf log1p expm1", "input", lambda d: {"input": d.tensor(kinds="ffffib")})
op("log", "input", lambda d: {"input": d.tensor(kinds="ffffib", low=-0.5)})
op("reciprocal", "input", lambda d: {"input": d.tensor(kinds="ffffib")}, call=lambda input: 1.0 / input)
op("floor ceil trunc", "input", lambda d: {"input": d.tensor(kinds="ffffi")})
op("round", "input", lambda d: {"input": d.tensor(kinds="ffffi")})
op("silu", "input", lambda d: {"input": d.tensor()})
op("gelu", "input approximate", lambda d: {"input": d.tensor(), "approximate": d.rng.choice(["none", "tanh"])})
op("softplus", "input beta threshold",
   lambda d: {"input": d.tensor(low=-30, high=30), "beta": d.rng.choice([1, 2.0, 0.5]), "threshold": d.rng.choice([20, 3])})
op("leaky_relu", "input negative_slope", lambda d: {"input": d.tensor(), "negative_slope": d.rng.choice([0.01, 0.2, 0])})
op("elu", "input alpha", lambda d: {"input": d.tensor(), "alpha": d.rng.choice([1.0, 0.5])})
op("isnan isinf isfinite logical_not", "input", lambda d: {"input": d.tensor(kinds="fffib")}, grad=False)


def clamp(d):
    x = d.tensor(kinds="ffffi")
    if d.chance(0.3):
        bounds = {n: d.tensor(d.broadcast(x.shape), d.dtype("fffi") if d.chance(0.2) else x.dtype)
                  for n in ("min", "max") if d.chance(0.7)}
    else:
        bounds = {n: d.number() for n in ("min", "max") if d.chance(0.7)}
    return {"input": x, **bounds}


def bound(name):
    def draw(d):
        x = d.tensor(kinds="ffffi")
        return {"input": x, name: d.number() if d.chance(0.5) else d.tensor(d.broadcast(x.shape), x.dtype)}
    return draw


op("clamp", "input min max", clamp, op_db=["clamp"])
op("clamp_min", "input min", bound("min"))
op("clamp_max", "input max", bound("max"))


def where(d):
    a, b = d.pair(mixed=0.3)
    c = d.tensor(d.broadcast(a.shape), torch.bool)
    if d.chance(0.2):
        b = d.number()
    if d.chance(0.1):
        a = d.number()
    return {"condition": c, "input": a, "other": b}


op("where", "condition input other", where, call=lambda condition, input, other: torch.where(condition, input, other))


def masked_fill(d):
    x = d.tensor(kinds="ffffib")
    return {"input": x, "mask": d.tensor(d.broadcast(x.shape), torch.bool), "value": d.number()}


op("masked_fill", "input mask value", masked_fill)
op("isclose", "input other rtol atol equal_nan",
   lambda d: dict(zip(("input", "other"), d.pair(mixed=0)), equal_nan=d.flag()), grad=False)

# ---- reductions


def over_dims(kinds="ffffib", low=-3.0):
    def draw(d):
        x = d.tensor(kinds=kinds, low=low)
        return named(input=x, dim=d.dims(x) if d.chance(0.8) else None, keepdim=d.flag())
    return draw


def reduced(function):
    """A function that takes keepdim only beside dim."""
    def call(input, dim=None, keepdim=False):
        if dim is None:
            return function(input, list(range(input.dim())), keepdim=True) if keepdim else function(input)
        return function(input, dim, keepdim=keepdim)
    return call


op("sum", "input dim keepdim", over_dims(), call=reduced(torch.sum))
op("mean", "input dim keepdim", over_dims("fffi"), call=reduced(torch.mean))
op("any all", "input dim keepdim", over_dims(), grad=False)
OPS["any"].call, OPS["all"].call = reduced(torch.any), reduced(torch.all)
op("amax amin", "input dim keepdim", over_dims(), call=None)
op("logsumexp", "input dim keepdim",
   lambda d: (lambda x: {"input": x, "dim": d.dims(x) or list(range(x.dim())), "keepdim": d.flag()})(d.tensor(kinds="ffffi")))


def prod(d):
    x = d.tensor(kinds="ffffib")
    return {"input": x} if d.chance(0.4) else {"input": x, "dim": d.dim(x), "keepdim": d.flag()}


op("prod", "input dim keepdim", prod)


def var(d):
    x = d.tensor()
    arguments = named(input=x, dim=d.dims(x) if d.chance(0.7) else None, keepdim=d.flag())
    if d.chance(0.5):
        arguments["correction"] = d.rng.choice([0, 1, 2, 0.5, 3, 5])
    return arguments


op("var std var_mean", "input dim correction keepdim", var)


def extreme(d):
    x = d.tensor(kinds="ffffib")
    return {"input": x} if d.chance(0.3) else {"input": x, "dim": d.dim(x), "keepdim": d.flag()}


op("max min", "input dim keepdim", extreme, op_db=[])
OPS["max"].op_db, OPS["min"].op_db = ["max"], ["min"]  # of one tensor: see parity.bound
op("argmax argmin", "input dim keepdim", extreme, grad=False)
op("cumsum cumprod", "input dim", lambda d: (lambda x: {"input": x, "dim": d.dim(x)})(d.tensor(kinds="fffi")))


def sorting(d):
    x = d.tensor(kinds="fffib")
    return {"input": x, "dim": d.dim(x), "descending": d.flag()}


op("sort", "input dim descending", sorting, shown="SortBackward0",
   call=lambda input, dim=-1, descending=False: torch.sort(input, dim=dim, descending=descending, stable=True))
op("argsort", "input dim descending", sorting, grad=False,
   call=lambda input, dim=-1, descending=False: torch.argsort(input, dim=dim, descending=descending, stable=True))


def topk(d):
    shape = d.shape()
    n = math.prod(shape)
    values = d.rng.sample(range(-n, n + 1), n)  # no ties: which of them comes is not defined
    x = torch.tensor(values, dtype=torch.float64).to(d.dtype("fffi")).reshape(shape)
    if x.dtype.is_floating_point:
        x.requires_grad_(True)
    dim = d.dim(x)
    size = x.shape[dim] if x.dim() and -x.dim() <= dim < x.dim() else 1
    return {"input": x, "k": d.rng.randint(0, size) + (1 if d.rare(0.1) else 0), "dim": dim, "largest": d.flag()}


op("topk", "input k dim largest", topk)
op("norm", "input p dim keepdim",
   lambda d: named(input=(x := d.tensor()), p=d.rng.choice([2, 1, 2.0, math.inf, -math.inf, 0, 3, 0.5]),
                   dim=d.dims(x) if d.chance(0.6) else None, keepdim=d.flag()),
   call=lambda input, p=2, dim=None, keepdim=False: torch.linalg.vector_norm(input, p, dim=dim, keepdim=keepdim),
   op_db=["linalg.vector_norm"])

# ---- views and copies


def reshape(d):
    x = d.tensor(kinds="fffib")
    left, sizes = x.numel(), []
    while left > 1 and len(sizes) < 4:
        f = d.rng.choice([f for f in range(1, left + 1) if left % f == 0])
        sizes.append(f)
        left //= f
    if left != 1 or d.chance(0.1):
        sizes.append(left)
    if sizes and d.chance(0.3):
        sizes[d.rng.randrange(len(sizes))] = -1
    if d.rare(0.1):
        sizes.append(2)
    return {"input": x, "shape": sizes}


op("view", "input shape", reshape, call=lambda input, shape: input.view(shape))
op("reshape", "input shape", reshape)
op("flatten", "input start_dim end_dim",
   lambda d: (lambda x: {"input": x, "start_dim": d.dim(x), "end_dim": d.dim(x)})(d.tensor(kinds="fffib")))
op("transpose", "input dim0 dim1",
   lambda d: (lambda x: {"input": x, "dim0": d.dim(x), "dim1": d.dim(x)})(d.tensor(kinds="fffib")))


def permute(d):
    x = d.tensor(kinds="fffib")
    dims = d.rng.sample(range(x.dim()), x.dim())
    if dims and d.rare(0.1):
        dims[0] = d.dim(x)
    return {"input": x, "dims": [i - x.dim() if d.chance(0.3) and i >= 0 else i for i in dims]}


op("permute", "input dims", permute)
op("squeeze", "input dim", lambda d: (lambda x: named(input=x, dim=d.dim(x) if d.chance(0.6) else None))(d.tensor(kinds="fffib")))
op("unsqueeze", "input dim", lambda d: (lambda x: {"input": x, "dim": d.dim(x, 1)})(d.tensor(kinds="fffib")))


def expand(d):
    shape = d.shape()
    x = d.tensor(d.broadcast(shape), kinds="fffib")
    extra = len(shape) - x.dim()
    return {"input": x, "size": [-1 if i >= extra and d.chance(0.2) else s for i, s in enumerate(shape)]}


op("expand", "input size", expand, call=lambda input, size: input.expand(size))


def along(d, low=0):
    x = d.tensor(d.shape(low), kinds="fffib")
    dim = d.dim(x)
    inside = x.dim() > 0 and -x.dim() <= dim < x.dim()
    return x, dim, x.shape[dim] if inside else 1


def select(d):
    x, dim, n = along(d)
    return {"input": x, "dim": dim, "index": d.rng.randint(-n - d.rare(), max(n - 1 + d.rare(), 0))}


op("select", "input dim index", select)


def narrow(d):
    x, dim, n = along(d)
    start = d.rng.randint(-n, n)
    return {"input": x, "dim": dim, "start": start,
            "length": d.rng.randint(0, max(n - (start if start >= 0 else start + n), 0)) + d.rare(0.1)}


op("narrow", "input dim start length", narrow)


def split(d):
    x, dim, n = along(d)
    if d.chance(0.5):
        return {"tensor": x, "split_size_or_sections": d.rng.randint(1, max(n, 1)) - d.rare(0.1), "dim": dim}
    sizes = []
    while sum(sizes) < n:
        sizes.append(d.rng.randint(0, n - sum(sizes)))
    return {"tensor": x, "split_size_or_sections": sizes + ([1] if d.rare(0.1) else []), "dim": dim}


op("split", "tensor split_size_or_sections dim", split, op_db=["split", "split_with_sizes"])
op("chunk", "input chunks dim", lambda d: (lambda a: {"input": a[0], "chunks": d.rng.randint(1, 4) - d.rare(0.1), "dim": a[1]})(along(d)))
op("unbind", "input dim", lambda d: (lambda a: {"input": a[0], "dim": a[1]})(along(d)))
op("diagonal", "input offset dim1 dim2",
   lambda d: (lambda x: {"input": x, "offset": d.rng.randint(-2, 2), "dim1": d.dim(x), "dim2": d.dim(x)})(d.tensor(d.shape(1), kinds="fffib")))
op("contiguous", "input", lambda d: {"input": d.tensor(kinds="fffib")}, call=lambda input: input.contiguous())
op("clone", "input", lambda d: {"input": d.tensor(kinds="fffib")})
op("to", "input dtype", lambda d: {"input": d.tensor(kinds="fffib"), "dtype": str(d.dtype("fffib"))[6:]},
   call=lambda input, dtype: input.to(getattr(torch, dtype)), op_db=[])


def cat(d):
    shape = d.shape(0 if d.rare() else 1)
    dim = d.dim(len(shape))
    dtype = d.dtype("ffffib")
    tensors = []
    for _ in range(d.rng.randint(1, 4)):
        sizes = list(shape)
        if sizes and -len(sizes) <= dim < len(sizes):
            sizes[dim] = d.rng.randint(0, 3)
        if d.rare(0.15):
            sizes = [0]
        elif sizes and d.rare(0.05):
            sizes[0] += 1
        tensors.append(d.tensor(sizes, d.dtype("fffib") if d.chance(0.1) else dtype))
    return {"tensors": tensors, "dim": dim}


op("cat concat", "tensors dim", cat)


def stack(d):
    x = d.tensor(kinds="fffib")
    tensors = [x] + [d.tensor(x.shape, d.dtype("fffib") if d.chance(0.1) else x.dtype) for _ in range(d.rng.randint(0, 2))]
    return {"tensors": tensors, "dim": d.dim(x, 1)}


op("stack", "tensors dim", stack)
op("repeat", "input repeats",
   lambda d: (lambda x: {"input": x, "repeats": [d.rng.randint(0 if d.rare() else 1, 3) for _ in range(x.dim() + d.rng.choice([0, 0, 1]) - d.rare(0.1))]})(
       d.tensor(kinds="fffib", shape=d.shape(0, 3))), call=lambda input, repeats: input.repeat(repeats))
op("repeat_interleave", "input repeats dim",
   lambda d: (lambda x: named(input=x, repeats=d.rng.randint(0, 3), dim=d.dim(x) if d.chance(0.7) else None))(d.tensor(kinds="fffib")))
op("flip", "input dims", lambda d: (lambda x: {"input": x, "dims": d.dims(x) or []})(d.tensor(kinds="fffib")))


def roll(d):
    x = d.tensor(kinds="fffib")
    if d.chance(0.3):
        return {"input": x, "shifts": d.rng.randint(-7, 7)}
    dims = [d.dim(x) if x.numel() else -1 for _ in range(d.rng.randint(1, 3))]
    return {"input": x, "shifts": [d.rng.randint(-7, 7) for _ in range(len(dims) + d.rare(0.1))], "dims": dims}


op("roll", "input shifts dims", roll)
op("diag", "input diagonal",
   lambda d: {"input": d.tensor(d.shape(0 if d.rare() else 1, 2), kinds="fffib"), "diagonal": d.rng.randint(-3, 3)})
op("trace", "input", lambda d: {"input": d.tensor(d.shape(0, 3) if d.rare() else (d.size(), d.size()), kinds="fffi")})
op("tril triu", "input diagonal",
   lambda d: {"input": d.tensor(d.shape(1 if d.rare() else 2), kinds="fffib"), "diagonal": d.rng.randint(-3, 3)})


def pad(d):
    x = d.tensor(kinds="ffffi", shape=d.shape(1))
    n = d.rng.randint(1, x.dim())
    low = -1 if d.rare() else 0
    return {"input": x, "pad": [d.rng.randint(low, 2) for _ in range(2 * n)], "value": d.rng.choice([0, 1.5, -1])}


op("pad", "input pad value", pad, call=lambda input, pad, value=0: F.pad(input, pad, "constant", value),
   op_db=["constant_pad_nd"])
op("unfold", "input dimension size step",
   lambda d: (lambda a: {"input": a[0], "dimension": a[1], "size": d.rng.randint(0, max(a[2], 1)), "step": d.rng.randint(1, 3)})(along(d)),
   call=lambda input, dimension, size, step: input.unfold(dimension, size, step), op_db=["unfold"])

# ---- products


def matmul(d):
    n, k, m = d.size(), d.size(), d.size()
    batch = d.shape(0, 2)
    a, b = (d.broadcast(batch) + (n, k), d.broadcast(batch) + (k, m))
    kind = d.rng.random()
    if kind < 0.2:
        a = (k,)
    elif kind < 0.3:
        a = (n, k)
    if 0.15 < kind < 0.25 or kind > 0.85:
        b = (k,)
    elif kind > 0.7:
        b = (k, m)
    if d.rare(0.1):
        b = b[:-1] + (b[-1] + 1,) if d.chance(0.5) else (b[0] + 1,) + b[1:]
    dtype = d.dtype("fffffi")
    return {"input": d.tensor(a, dtype), "other": d.tensor(b, d.dtype() if d.rare(0.1) else dtype)}


op("matmul", "input other", matmul, op_db=["matmul", "mm", "mv", "__rmatmul__"])
op("bmm", "input mat2",
   lambda d: (lambda b, n, k, m, t: {"input": d.tensor((b, n, k), t), "mat2": d.tensor((b + d.rare(0.1), k, m), t)})(
       d.size(), d.size(), d.size(), d.size(), d.dtype()))


def vectors(d):
    n, t = d.size(), d.dtype("ffffi")
    return {"input": d.tensor((n,), t), "other": d.tensor((n + d.rare(0.1),), t)}


op("dot", "input other", vectors, call=lambda input, other: torch.dot(input, other))
op("outer", "input vec2", lambda d: (lambda t: {"input": d.tensor((d.size(),), t), "vec2": d.tensor((d.size(),), t)})(d.dtype("ffffi")))
EINSUMS = ["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "bhid,bhjd->bhij", "ij,ij->i", "...i,i->...",
           "ij,kj->ik", "ii", "i,i", "abc->cab", "ij,jk,kl->il", "...ij,...jk->...ik"]


def einsum(d):
    equation = d.rng.choice(EINSUMS)
    sizes = {c: d.rng.randint(1, 4) for c in "abcdhijkl"}
    dtype = d.dtype()
    operands = []
    for term in equation.split("->")[0].split(","):
        shape = (2,) if term.startswith("...") else ()
        operands.append(d.tensor(shape + tuple(sizes[c] for c in term.strip(".")), dtype))
    return {"equation": equation, "operands": operands}


op("einsum", "equation operands", einsum, call=lambda equation, operands: torch.einsum(equation, *operands))

# ---- ids


def gather(d):
    x, dim, n = along(d)
    shape = [d.rng.randint(0 if d.rare() else 1, max(s, 1)) if i != dim % max(x.dim(), 1) else d.size() for i, s in enumerate(x.shape)]
    if shape and d.rare(0.05):
        shape = shape[:-1]
    return {"input": x, "dim": dim, "index": d.ids(shape, n)}


op("gather", "input dim index", gather)


def scatter(d):
    arguments = gather(d)
    x, index = arguments["input"], arguments["index"]
    shape = [s + (d.rng.randint(0, 2) if d.rare(0.3) else 0) for s in index.shape]
    # Where two ids are one, scatter keeps either; it is drawn without such.
    return {**arguments, "src": d.tensor(shape, x.dtype)}


op("scatter_add", "input dim index src", scatter)


def scatter_once(d):
    x, dim, n = along(d, 1)
    if x.dim() == 0 or not -x.dim() <= dim < x.dim():
        return {"input": x, "dim": dim, "index": d.ids((1,) * x.dim(), n), "src": d.tensor((1,) * x.dim(), x.dtype)}
    shape = [d.rng.randint(1, s) if s else 0 for s in x.shape]
    order = torch.argsort(torch.rand([n if i == dim % x.dim() else s for i, s in enumerate(shape)]), dim)
    index = order.narrow(dim, 0, shape[dim]).contiguous()
    source = d.number() if d.chance(0.3) else d.tensor(shape, x.dtype)
    return {"input": x, "dim": dim, "index": index, "src": source}


op("scatter", "input dim index src", scatter_once,
   call=lambda input, dim, index, src: torch.scatter(input, dim, index, src), op_db=[])
op("index_select", "input dim index",
   lambda d: (lambda a: {"input": a[0], "dim": a[1], "index": d.ids(() if d.rare(0.15) else (d.rng.randint(0, 4),), a[2])})(along(d)))


def index(d):
    x = d.tensor(d.shape(1), kinds="fffib")
    parts, left = [], list(x.shape)
    for n in range(d.rng.randint(1, x.dim())):
        kind = d.rng.random()
        if not left:
            break
        size = left.pop(0)
        if kind < 0.25:
            parts.append(d.rng.randint(-size, size - 1) if size else 0)
        elif kind < 0.5:
            ends = [None if d.chance(0.3) else d.rng.randint(-size - 1, size + 1) for _ in range(2)]
            parts.append(slice(*ends, d.rng.choice([None, 1, 2])))
        elif kind < 0.6:
            left.insert(0, size)
            parts.append(None)
        elif kind < 0.7 and Ellipsis not in [p for p in parts if not isinstance(p, torch.Tensor)]:
            left = left[1:] if len(left) > 1 else left
            left.insert(0, size)
            parts.append(Ellipsis)
            break
        elif kind < 0.85:
            shape = d.rng.choice([(2,), (3,), (2, 2), ()])
            shape = d.rng.choice([(2,), (1,)]) if any(isinstance(p, torch.Tensor) for p in parts) else shape
            parts.append(d.ids(shape, size, negative=True))
        else:
            parts.append(d.tensor((size,), torch.bool))
    return {"input": x, "indices": parts}


op("index", "input indices", index, call=lambda input, indices: input[tuple(indices)], op_db=["__getitem__"])


def index_put(d):
    x = d.tensor(d.shape(1), kinds="fffib")
    n = d.rng.randint(1, x.dim())
    shape = d.rng.choice([(2,), (3,), (2, 2)])
    accumulate = d.flag()
    ids = [d.ids(shape, s, negative=True) for s in x.shape[:n]]
    if d.chance(0.3):
        ids = [d.tensor(x.shape[:n], torch.bool)]
    try:
        target = x.detach()[tuple(ids)].shape
    except (IndexError, RuntimeError):
        target = shape
    if not accumulate and ids[0].dtype != torch.bool:  # where ids come twice, any of the values may stay
        value = d.tensor((), x.dtype)
    else:
        value = d.tensor(d.broadcast(target), x.dtype)
    return {"input": x, "indices": ids, "values": value, "accumulate": accumulate}


op("index_put", "input indices values accumulate", index_put,
   call=lambda input, indices, values, accumulate=False: torch.index_put(input, tuple(indices), values, accumulate))
op("masked_select", "input mask",
   lambda d: (lambda x: {"input": x, "mask": d.tensor(d.broadcast(x.shape), torch.bool)})(d.tensor(kinds="fffib")))
op("nonzero", "input", lambda d: {"input": d.tensor(kinds="fffib")}, grad=False)
op("one_hot", "input num_classes",
   lambda d: (lambda n: {"input": d.ids(d.shape(), n), "num_classes": d.rng.choice([n, n, n + 2, -1])})(d.rng.randint(1, 5)), grad=False)
op("embedding", "input weight padding_idx",
   lambda d: (lambda v: named(input=d.ids(d.shape(0, 3), v), weight=d.tensor((v, d.size())),
                              padding_idx=d.rng.randint(-v, v - 1 + d.rare(0.1)) if d.chance(0.3) else None))(d.rng.randint(1, 5)))

# ---- fused


def linear(d):
    n, m, t = d.size(), d.size(), d.dtype()
    shape = d.shape(0, 3)
    weight = (n,) if d.rare(0.1) else (m, n)
    bias = None if d.chance(0.4) else d.tensor(() if d.rare(0.1) else (m,) if len(weight) == 2 else (), t)
    return named(input=d.tensor(shape + (n + d.rare(0.1),), t), weight=d.tensor(weight, t), bias=bias)


op("linear", "input weight bias", linear)
op("softmax log_softmax", "input dim", lambda d: (lambda x: {"input": x, "dim": d.dim(x)})(d.tensor()))


def norm_arguments(d, bias=True):
    x = d.tensor(d.shape(1))
    k = d.rng.choice([1, 1, 1, min(2, x.dim())])
    shape = list(x.shape[-k:])
    if d.rare(0.1):
        shape[0] += 1
    arguments = {"input": x, "normalized_shape": shape}
    if d.chance(0.7):
        arguments["weight"] = d.tensor(shape, x.dtype)
    if bias and d.chance(0.6):
        arguments["bias"] = d.tensor(shape, x.dtype)
    if d.chance(0.3):
        arguments["eps"] = d.rng.choice([1e-5, 1e-3, 0.1])
    return arguments


op("layer_norm", "input normalized_shape weight bias eps", norm_arguments)
op("rms_norm", "input normalized_shape weight eps", lambda d: {"eps": 1e-6, **norm_arguments(d, False)})


def group_norm(d):
    groups, per = d.rng.randint(1, 3), d.rng.randint(1, 3)
    c = groups * per + d.rare(0.1)
    x = d.tensor((d.rng.randint(1, 3), c) + d.shape(0, 2))
    return named(input=x, num_groups=groups, weight=d.tensor((c,), x.dtype) if d.flag() else None,
                 bias=d.tensor((c,), x.dtype) if d.flag() else None)


op("group_norm", "input num_groups weight bias eps", group_norm)
REDUCTIONS = ["mean", "sum", "none"]


def cross_entropy(d):
    c, batch = d.rng.randint(1, 6), d.shape(0, 1)
    extra = d.shape(0, 2) if batch else ()
    t = d.dtype()
    target = d.ids(batch + extra, c)
    if target.numel() and d.chance(0.3):
        target.view(-1)[d.rng.randrange(target.numel())] = -100
    return named(input=d.tensor(batch + (c,) + extra, t), target=target,
                 weight=d.tensor((c,), t, low=0.0, grad=False) if d.chance(0.3) else None,
                 reduction=d.rng.choice(REDUCTIONS), label_smoothing=d.rng.choice([0.1, 0.5]) if d.chance(0.3) else None)


op("cross_entropy", "input target weight reduction ignore_index label_smoothing", cross_entropy)
op("nll_loss", "input target weight reduction ignore_index", lambda d: {k: v for k, v in cross_entropy(d).items() if k != "label_smoothing"})


def pair_loss(low=-3.0, high=3.0, mixed=0.15):
    def draw(d):
        a, b = d.pair("f", mixed=mixed)
        if not d.rare(0.3):
            b = d.tensor(a.shape, b.dtype, low=low, high=high)
        return {"input": a, "target": b, "reduction": d.rng.choice(REDUCTIONS)}
    return draw


op("mse_loss l1_loss", "input target reduction", pair_loss())
op("smooth_l1_loss", "input target reduction beta", lambda d: {**pair_loss()(d), "beta": d.rng.choice([1.0, 0.5, 0.0])})
op("binary_cross_entropy_with_logits", "input target reduction", pair_loss(0.0, 1.0, 0))


def probabilities(d):
    arguments = pair_loss(0.0, 1.0, 0)(d)
    shape, dtype = arguments["input"].shape, arguments["input"].dtype
    low = -0.2 if d.rare(0.1) else 0.0
    return {**arguments, "input": d.tensor(shape, dtype, low=low, high=1.0)}


op("binary_cross_entropy", "input target reduction", probabilities)
op("kl_div", "input target reduction log_target",
   lambda d: {**pair_loss(0.0, 1.0)(d), "reduction": d.rng.choice(REDUCTIONS), "log_target": d.flag()})


def attention(d):
    batch = d.shape(0, 2)
    t, s, e, v = (d.rng.randint(1, 5) for _ in range(4))
    dtype = d.dtype()
    arguments = {"query": d.tensor(batch + (t, e), dtype), "key": d.tensor(batch + (s, e), dtype), "value": d.tensor(batch + (s, v), dtype)}
    kind = d.rng.random()
    if kind < 0.3:
        arguments["is_causal"] = True
    elif kind < 0.5:
        mask = d.tensor(d.broadcast(batch) + (t, s), torch.bool)
        mask[..., 0] = True  # a query that sees nothing differs on purpose
        arguments["attn_mask"] = mask
    elif kind < 0.65:
        arguments["attn_mask"] = d.tensor((t, s), dtype)
    if d.chance(0.2):
        arguments["scale"] = d.rng.choice([0.5, 1.0])
    return arguments


op("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale", attention)

# ---- factories and random values


def numbers_of(d, names):
    return {n: d.number() for n in names}


TYPE = ["float64", "float32", "bfloat16", "int64"]


def typed(function):
    return lambda dtype=None, **arguments: function(**arguments, dtype=getattr(torch, dtype) if dtype else None)


op("full", "size fill_value dtype", lambda d: {"size": d.shape(), "fill_value": d.number(), "dtype": d.rng.choice(TYPE + ["bool"])},
   call=typed(torch.full), grad=False)
op("arange", "start end step dtype",
   lambda d: {"start": d.rng.choice([0, 1, -2, 0.5, -0.9]), "end": d.rng.choice([3, 5, 0, 2.1, 7.5, -1]),
              "step": d.rng.choice([1, 2, 0.5, 0.3, -1, -0.5]), "dtype": d.rng.choice(TYPE)},
   call=lambda start, end, step, dtype: torch.arange(start, end, step, dtype=getattr(torch, dtype)), grad=False)
op("linspace", "start end steps dtype",
   lambda d: {"start": d.rng.choice([0, 1, -2, 0.5]), "end": d.rng.choice([3, 5, 0, 2.1]), "steps": d.rng.randint(0, 9), "dtype": d.rng.choice(TYPE)},
   call=lambda start, end, steps, dtype: torch.linspace(start, end, steps, dtype=getattr(torch, dtype)), grad=False)
op("eye", "n m dtype", lambda d: named(n=d.rng.randint(-1 if d.rare() else 0, 4), m=d.rng.randint(0, 4) if d.flag() else None, dtype=d.rng.choice(TYPE)),
   call=lambda n, m=None, dtype=None: torch.eye(n, n if m is None else m, dtype=getattr(torch, dtype)), grad=False)
MADE = lambda d: {"size": d.rng.choice([d.shape(), (17,), (40,), (3, 16)]), "dtype": d.rng.choice(TYPE[:3])}
op("rand randn", "size dtype", MADE, random=True, grad=False, op_db=[])
for name in ("rand", "randn"):
    OPS[name].call = typed(getattr(torch, name))
op("randint", "low high size dtype",
   lambda d: {"low": d.rng.choice([0, -5, 2**30]), "high": d.rng.choice([1, 10, 2**31, 2**40]), "size": d.shape(), "dtype": d.rng.choice(TYPE)},
   random=True, grad=False, call=typed(torch.randint), op_db=[])
op("randperm", "n", lambda d: {"n": d.rng.randint(0, 20)}, random=True, grad=False, call=lambda n: torch.randperm(n), op_db=[])
op("multinomial", "input num_samples replacement",
   lambda d: (lambda n: {"input": d.tensor(d.shape(0, 1)[:1] + (n,), d.dtype(), low=0.01, grad=False).nan_to_num(1, 1, 1).clamp(min=0.01), "num_samples": d.rng.randint(1 - d.rare(0.1), n), "replacement": d.flag()})(
       d.rng.randint(1, 6)), random=True, grad=False, op_db=[])

op("dropout", "input p training", lambda d: {"input": d.tensor(), "p": d.rng.choice([0.0, 0.1, 0.5, 1.0]), "training": d.chance(0.9)},
   random=True, op_db=[])

# ---- in place: the input's value afterwards


def in_place(name, params, draw):
    def call(input, **arguments):
        if name == "index_put_":
            arguments["indices"] = tuple(arguments["indices"])
        return getattr(input, name)(*arguments.values())
    OPS[name] = Op(params, call, draw, [])


for name in ("add_", "sub_", "mul_", "div_"):
    in_place(name, "input other", two())
in_place("remainder_", "input other", two("ffffi"))
in_place("copy_", "input other", lambda d: dict(zip(("input", "other"), d.pair(mixed=0.5))))
in_place("fill_", "input value", lambda d: {"input": d.tensor(kinds="fffib"), "value": d.number()})
in_place("masked_fill_", "input mask value", masked_fill)
in_place("index_put_", "input indices values accumulate", index_put)
in_place("uniform_", "input", lambda d: {"input": d.tensor(d.rng.choice([d.shape(), (17,), (40,)]))})
in_place("normal_", "input", lambda d: {"input": d.tensor(d.rng.choice([d.shape(), (17,), (40,)]))})
OPS["uniform_"].random = OPS["normal_"].random = True
for name in ("exp", "sqrt", "neg", "abs", "tanh", "sigmoid", "relu", "log", "clamp", "floor", "square", "pow"):
    base = OPS[name]
    OPS[name + "_"] = Op(base.params, lambda input, name=name + "_", **arguments: getattr(input, name)(**arguments), base.draw, [])

for name in ("sum mean prod var std var_mean norm cumsum matmul bmm dot einsum linear logsumexp softmax log_softmax layer_norm "
             "rms_norm group_norm scaled_dot_product_attention kl_div").split():
    OPS[name].sums = 1.0
for name in "add add_ sub sub_ mul mul_ div div_ rsub rdiv remainder remainder_ clamp maximum minimum masked_fill where".split():
    OPS[name].exact = True
