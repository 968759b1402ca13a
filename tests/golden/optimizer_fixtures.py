"""Writes optimizer.txt: what PyTorch's optimizers make of made-up gradients, for
tests/train/test_optimizer.cpp.

    python optimizer_fixtures.py > optimizer.txt

Three f64 parameters (matrix (3, 4), vector (5), scalar ()) start at cos(k + 1) for element k of all
18 and get, at step s = 1 .. 10, the gradients sin(0.7 k + 1.3 s); the vector gets none at steps 3
and 7. A line is a case, the step, what is listed (the parameters, or a moment of theirs) and its 18
numbers.
"""

import torch

SHAPES = [(3, 4), (5,), ()]
COUNT = 18
STEPS = 10


def adamw(parameters, **options):
    decay = options.pop("decay_matrices", None)
    if decay is None:
        return torch.optim.AdamW(parameters, **options)
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **options)


CASES = {
    "adamw": (lambda p: adamw(p, lr=1e-2), 0),
    "adamw_clip": (lambda p: adamw(p, lr=3e-2, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3), 0.5),
    "adamw_groups": (lambda p: adamw(p, lr=2e-2, decay_matrices=0.5), 1.0),
    "adam": (lambda p: torch.optim.Adam(p), 0),
    "adam_decay": (
        lambda p: torch.optim.Adam(p, lr=3e-2, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3),
        0.5,
    ),
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), 0),
    "sgd_momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2), 0),
    "sgd_nesterov": (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
        1.0,
    ),
}


def split(flat):
    parts = flat.split([torch.Size(s).numel() for s in SHAPES])
    return [part.reshape(s).clone() for part, s in zip(parts, SHAPES)]


def emit(case, step, what, tensors):
    flat = torch.cat([t.detach().reshape(-1) for t in tensors]).tolist()
    print(case, step, what, *(repr(x) for x in flat))


def run(case, make, clip):
    k = torch.arange(COUNT, dtype=torch.float64)
    parameters = [p.requires_grad_() for p in split(torch.cos(k + 1))]
    optimizer = make(parameters)
    for step in range(1, STEPS + 1):
        for i, (p, g) in enumerate(zip(parameters, split(torch.sin(0.7 * k + 1.3 * step)))):
            p.grad = None if i == 1 and step in (3, 7) else g
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if step in (1, STEPS):
            emit(case, step, "value", parameters)
    for moment in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
        if optimizer.state.get(parameters[0], {}).get(moment) is not None:
            emit(case, STEPS, moment, [optimizer.state[p][moment] for p in parameters])


print(f"# PyTorch {torch.__version__}; by optimizer_fixtures.py")
for name, (make_optimizer, max_norm) in CASES.items():
    run(name, make_optimizer, max_norm)
