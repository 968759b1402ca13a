"""Makes attention.safetensors: what PyTorch's scaled_dot_product_attention gives, values and all
gradients, over a grid of dtypes, masks and sizes, for tests/autograd/test_attention_parity.cpp.

    python tests/golden/attention_fixtures.py      (needs torch and safetensors)

The metadata list the cases, a line each: dtype B H H_kv T S d dv kind scale seed. Inputs are drawn
after manual_seed(seed): q, k, v, the mask (`mask_of`), the gradient of the output. Results lie one
after the other in one tensor a dtype: out, dq, dk, dv and dbias if there is a bias. One of up to 32
elements is there whole; of a larger one, seen as a matrix (rows, last dimension), its largest
absolute value and its products with two normal vectors, from the right and from the left, drawn
next, so that no element is left out.
"""

import itertools
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

KINDS = [
    "none",
    "upper_left",
    "lower_right",
    "bool_all",
    "bool_scores",
    "bool_keys",
    "bool_queries",
    "bool_upper_left",
    "bias_all",
    "bias_scores",
    "bias_heads",
    "bias_holes",
]
SIZES = [  # T, S
    (1, 1),
    (1, 7),
    (3, 0),
    (4, 4),
    (5, 9),
    (9, 5),
    (16, 16),
    (1, 130),
    (17, 33),
    (64, 64),
    (65, 129),
    (128, 65),
    (130, 130),
]
HEAD_SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128]
DTYPES = {"f32": torch.float32, "f64": torch.float64}


def mask_of(kind, B, H, T, S, dtype):
    """The mask as the options are given it; None where there is none."""
    name = kind.split("_", 1)[-1]
    shape = {"all": (B, H, T, S), "keys": (B, 1, 1, S), "queries": (B, 1, T, 1), "heads": (H, 1, S)}
    shape = shape.get(name, (T, S))
    if kind.startswith("bool"):
        return torch.rand(shape) > 0.3
    if kind.startswith("bias"):
        bias = torch.randn(shape, dtype=dtype)
        return bias.masked_fill(torch.rand(shape) > 0.7, -math.inf) if name == "holes" else bias
    return None


def run(dtype, B, H, H_kv, T, S, d, dv, kind, scale):
    q = torch.randn(B, H, T, d, dtype=dtype, requires_grad=True)
    k = torch.randn(B, H_kv, S, d, dtype=dtype, requires_grad=True)
    v = torch.randn(B, H_kv, S, dv, dtype=dtype, requires_grad=True)
    mask = mask_of(kind, B, H, T, S, dtype)
    leaves = [q, k, v]
    if mask is not None and mask.is_floating_point():
        leaves.append(mask.requires_grad_())
    if kind == "lower_right":
        mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    if kind == "bool_upper_left":
        mask = mask & torch.ones(T, S, dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=kind == "upper_left", scale=scale or None, enable_gqa=True
    )
    upstream = torch.randn(B, H, T, dv, dtype=dtype)
    return [out, *torch.autograd.grad(out, leaves, upstream, materialize_grads=True)]


def sketch(x):
    x = x.detach().double()
    if x.numel() <= 32:
        return [x.reshape(-1)]
    x = x.reshape(-1, x.shape[-1])
    right = x @ torch.randn(x.shape[1], dtype=torch.float64)
    left = torch.randn(x.shape[0], dtype=torch.float64) @ x
    return [x.abs().max().reshape(1), right, left]


def main():
    widths = itertools.cycle(HEAD_SIZES)
    values = {name: [] for name in DTYPES}
    cases = []
    for (name, dtype), kind, (T, S) in itertools.product(DTYPES.items(), KINDS, SIZES):
        d = next(widths)
        dv = d if len(cases) % 3 else next(widths)
        B, H_kv, group = (2, 1 + len(cases) % 2, 1 + len(cases) % 3) if T * S < 1000 else (1, 1, 1 + len(cases) % 2)
        scale = 0.3 if len(cases) % 5 == 0 else 0
        case = (B, H_kv * group, H_kv, T, S, d, dv, kind, scale)
        torch.manual_seed(len(cases))
        for x in run(dtype, *case):
            assert x.isfinite().all()
            values[name] += sketch(x)
        cases.append(" ".join(map(str, (name, *case, len(cases)))))
    tensors = {name: torch.cat(parts).to(DTYPES[name]) for name, parts in values.items()}
    metadata = {"cases": "\n".join(cases), "torch": torch.__version__}
    save_file(tensors, pathlib.Path(__file__).with_name("attention.safetensors"), metadata)
    print(len(cases), "cases,", {name: len(x) for name, x in tensors.items()}, "numbers")


if __name__ == "__main__":
    main()
