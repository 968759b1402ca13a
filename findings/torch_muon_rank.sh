#!/usr/bin/env bash
# torch: of a gradient of rank 1, torch.optim.Muon makes an update most of which is rounding noise.
#
# Muon replaces the singular values of a gradient by about 1, by five Newton-Schulz steps. In exact
# arithmetic a singular value of 0 stays 0, so that an update has the rank of its gradient. Torch
# keeps the iterated matrix in bfloat16, whatever the dtype of the parameter. Each step multiplies
# small singular values by 3.4445, all five by 485, and with them what the first roundings left. So
# a gradient of rank 1 (a linear layer's, of one token; n tokens give rank n) becomes an update of
# full rank, with more than half of its squared norm outside of the gradient's direction: 0.54, 0.67
# and 0.72 for the matrices below. The same steps in float32, or with operands alone rounded to
# bfloat16, leave less than a thousandth there. Who compares a Muon of his own with torch's, element
# by element, compares noise where gradients lack rank.
#
# Seen with torch 2.15.0 on the CPU.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.15.0 numpy 2>"$work/log" || { cat "$work/log"; exit 1; }

cat >"$work/rank.py" <<'PYTHON'
import torch


def of_torch(gradient, dtype):
    p = torch.nn.Parameter(torch.zeros_like(gradient, dtype=dtype))
    muon = torch.optim.Muon([p], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False)
    p.grad = gradient.to(dtype)
    muon.step()
    return -p.detach()


def of_steps(gradient, round_operands):
    rounded = (lambda t: t.bfloat16().float()) if round_operands else (lambda t: t)
    x = gradient / gradient.norm()
    for _ in range(5):
        r = rounded(x)
        a = rounded(r @ r.T)
        x = 3.4445 * x + rounded(-4.7750 * a + 2.0315 * (a @ a)) @ r
    return x


def outside(update, u, v):  # the share of the squared norm
    update, u, v = update.double(), u.double() / u.double().norm(), v.double() / v.double().norm()
    along = u @ update @ v
    return float(1 - along**2 / update.square().sum())


for n in 64, 256, 768:
    u, v = torch.sin(torch.arange(n) + 1.0), torch.cos(3 * torch.arange(n) + 0.5)
    gradient = torch.outer(u, v)
    for dtype in torch.float32, torch.float64:
        share = outside(of_torch(gradient, dtype), u, v)
        print(f"{n}: torch, {dtype}:", "over a half" if share > 0.5 else share)
    for name, round_operands in ("float32", False), ("operands in bfloat16", True):
        share = outside(of_steps(gradient, round_operands), u, v)
        print(f"{n}: {name}:", "under a thousandth" if share < 1e-3 else share)
PYTHON
seen=$("$work/venv/bin/python" "$work/rank.py" 2>/dev/null)
printf '%s\n' "$seen"
expected=$(for n in 64 256 768; do
  printf '%s\n' "$n: torch, torch.float32: over a half" "$n: torch, torch.float64: over a half" \
    "$n: float32: under a thousandth" "$n: operands in bfloat16: under a thousandth"
done)
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
