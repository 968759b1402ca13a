"""Makes nn.safetensors, what test_attention_modules.cpp compares with: modules of PyTorch.

    python tests/golden/nn_fixtures.py        (needs torch and safetensors; run by hand, the tests need only the file)

mha.CASE.* for each case of MultiheadAttention below: init.NAME, its state after torch.manual_seed(7);
query, key, value and masks where there are any; output, weights; dout, and grad.NAME, the gradients of
parameters and inputs for it. bn.*: x, y of four training steps and two in evaluation, and the statistics after each.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

T, S, B = 5, 7, 3
PADDING = torch.arange(S) >= torch.tensor([[7], [4], [6]])  # (B, S): True is padding
CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)

CASES = {
    "self": dict(keys=None),
    "self_causal": dict(keys=None, attn_mask=CAUSAL),
    "per_head": dict(keys=None, average_attn_weights=False),
    "batch_first": dict(keys=None, batch_first=True),
    "no_bias": dict(keys=None, bias=False),
    "cross": dict(keys=(8, 8)),
    "padded": dict(keys=(8, 8), key_padding_mask=PADDING),
    "widths": dict(keys=(6, 10), key_padding_mask=PADDING),
    "added": dict(keys=(8, 8), attn_mask=torch.linspace(-2, 1, B * 2 * T * S).view(B * 2, T, S)),
}


def attention(name, keys, fixture, batch_first=False, bias=True, **call):
    torch.manual_seed(7)
    kdim, vdim = keys or (8, 8)
    mha = nn.MultiheadAttention(8, 2, bias=bias, kdim=kdim, vdim=vdim, batch_first=batch_first)
    state = {f"init.{n}": p.detach().clone() for n, p in mha.named_parameters()}
    with torch.no_grad():
        for p in mha.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    used = {f"used.{n}": p.detach().clone() for n, p in mha.named_parameters()}
    query = torch.randn((B, T, 8) if batch_first else (T, B, 8), requires_grad=True)
    key, value = query, query
    if keys:
        key = torch.randn(S, B, kdim, requires_grad=True)
        value = torch.randn(S, B, vdim, requires_grad=True)
    output, weights = mha(query, key, value, need_weights=True, **call)
    dout = torch.randn_like(output)
    output.backward(dout)
    tensors = state | used | dict(query=query, output=output, weights=weights, dout=dout)
    tensors |= {f"grad.{n}": p.grad for n, p in mha.named_parameters()} | {"grad.query": query.grad}
    if keys:
        tensors |= {"key": key, "value": value, "grad.key": key.grad, "grad.value": value.grad}
    tensors |= {n: call[n] for n in ("attn_mask", "key_padding_mask") if n in call}
    fixture |= {f"mha.{name}.{n}": t.detach().clone().contiguous() for n, t in tensors.items()}


def batch_norm(fixture):
    torch.manual_seed(8)
    norm = nn.BatchNorm1d(6)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(6)), norm.bias.copy_(torch.randn(6))
    fixture |= {"bn.weight": norm.weight.detach().clone(), "bn.bias": norm.bias.detach().clone()}
    for step in range(6):
        norm.train(step < 4)
        x = torch.randn((9, 6, 5) if step % 2 else (16, 6)) * (step + 1) + step
        x.requires_grad_()
        y = norm(x)
        dy = torch.randn_like(y)
        norm.zero_grad()
        y.backward(dy)
        tensors = dict(x=x, y=y, dy=dy, dx=x.grad, dweight=norm.weight.grad, dbias=norm.bias.grad)
        tensors |= dict(mean=norm.running_mean, var=norm.running_var)
        fixture |= {f"bn.{step}.{n}": t.detach().clone().contiguous() for n, t in tensors.items()}


def main():
    fixture = {}
    for name, case in CASES.items():
        attention(name, fixture=fixture, **case)
    batch_norm(fixture)
    path = pathlib.Path(__file__).with_name("nn.safetensors")
    save_file(fixture, path, {"made_with": f"torch {torch.__version__}"})


if __name__ == "__main__":
    main()
