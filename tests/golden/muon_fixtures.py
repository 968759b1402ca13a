"""Writes muon.txt: what PyTorch's Muon, with AdamW beside it, makes of made-up gradients, for
tests/train/test_optimizer.cpp; and what Lion's published formula does.

    python muon_fixtures.py > muon.txt

The f64 parameters of SHAPES start at cos(k + 1) for element k of all, and get, at step s = 1 .. 5,
the gradients sin(0.37 k^2 + 1.3 s). c_attn is three matrices, which PyTorch gets one by one. Its
Newton-Schulz products run in f64 here, where the tests compare digits. A line is a case, the step
and the numbers of all parameters. The lines "bf16" say how far PyTorch's products in bf16 are from
those in f64, for the matrix sin(0.37 k^2) of the given shape: the norm of the difference, divided
by the norm.
"""

import torch
from torch.optim import _muon

SHAPES = {
    "tall": (6, 4),
    "wide": (4, 6),
    "attn.c_attn.weight": (9, 3),
    "square": (5, 5),
    "wte.weight": (7, 3),
    "bias": (5,),
}
BY_ADAMW = ("wte.weight", "bias")
STEPS = 5


def newton_schulz(x, coefficients, steps, eps):
    """In x's dtype, term by term."""
    a, b, c = coefficients
    if x.size(0) > x.size(1):
        return newton_schulz(x.T, coefficients, steps, eps).T
    x = x / max(x.norm().item(), eps)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + b * (s @ x) + c * (s @ (s @ x))
    return x


def made_up(shape, start=0, shift=0.0):
    n = torch.Size(shape).numel()
    k = torch.arange(start, start + n, dtype=torch.float64)
    return torch.sin(0.37 * k * k + shift).reshape(shape)


def lion(p, g, m, lr, beta1, beta2, decay):
    step = torch.sign(beta1 * m + (1 - beta1) * g)
    return p - lr * (step + decay * p), beta2 * m + (1 - beta2) * g


CASES = {
    "muon": (dict(), 0),
    "muon_plain": (
        dict(lr=0.02, weight_decay=0.3, momentum=0.8, nesterov=False, ns_steps=3,
             ns_coefficients=(2.0, -1.5, 0.5), adjust_lr_fn="match_rms_adamw"),
        0.5,
    ),
    "muon_spectral": (dict(lr=0.01, eps=10.0, adjust_lr_fn="spectral_unclamped"), 0),
}


def start():
    parameters, k = {}, 0
    for name, shape in SHAPES.items():
        n = torch.Size(shape).numel()
        values = torch.cos(torch.arange(k, k + n, dtype=torch.float64) + 1)
        parameters[name] = values.reshape(shape)
        k += n
    return parameters


def emit(case, step, parameters):
    flat = torch.cat([p.detach().reshape(-1) for p in parameters.values()]).tolist()
    print(case, step, *(repr(x) for x in flat))


def gradients(step):
    found, k = {}, 0
    for name, shape in SHAPES.items():
        found[name] = made_up(shape, k, 1.3 * step)
        k += found[name].numel()
    return found


def run(case, options, clip):
    parameters = start()
    pieces = {}
    for name, value in parameters.items():
        rows = 3 if "c_attn" in name else value.size(0)
        pieces[name] = [piece.clone().requires_grad_() for piece in value.split(rows)]
    lr, decay = options.get("lr", 1e-3), options.get("weight_decay", 0.1)
    muon = torch.optim.Muon(
        [p for name in SHAPES if name not in BY_ADAMW for p in pieces[name]], **options
    )
    adamw = torch.optim.AdamW(
        [p for name in BY_ADAMW for p in pieces[name]], lr=lr, weight_decay=decay
    )
    everything = [p for name in SHAPES for p in pieces[name]]
    for step in range(1, STEPS + 1):
        for name, g in gradients(step).items():
            for p, part in zip(pieces[name], g.split(pieces[name][0].size(0))):
                p.grad = part.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_(everything, clip)
        muon.step()
        adamw.step()
        if step in (1, STEPS):
            emit(case, step, {name: torch.cat(list(pieces[name])) for name in SHAPES})


def run_lion():
    parameters = start()
    moments = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for step in range(1, STEPS + 1):
        for name, g in gradients(step).items():
            parameters[name], moments[name] = lion(
                parameters[name], g, moments[name], 0.02, 0.8, 0.95, 0.3
            )
    emit("lion", STEPS, parameters)


print(f"# PyTorch {torch.__version__}; by muon_fixtures.py")
in_bf16 = _muon._zeropower_via_newtonschulz
usual = (3.4445, -4.775, 2.0315)
for shape in [(48, 32), (64, 64), (32, 128)]:
    x = made_up(shape).to(torch.float32)
    exact = newton_schulz(x.to(torch.float64), usual, 5, 1e-7)
    got = in_bf16(x, usual, 5, 1e-7).to(torch.float64)
    print("bf16", *shape, repr(((got - exact).norm() / exact.norm()).item()))
_muon._zeropower_via_newtonschulz = newton_schulz
for name, (chosen, max_norm) in CASES.items():
    run(name, chosen, max_norm)
run_lion()
