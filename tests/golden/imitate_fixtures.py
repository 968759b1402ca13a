"""Writes imitate.txt: what PyTorch's dropout, softmax attention, sum and mean give from a seed, for
tests/autograd/test_imitate_torch.cpp.

    python imitate_fixtures.py > imitate.txt

Sums of one thread are the same on any processor with AVX2. The first line is the rule by which
this PyTorch draws masks, as BernoulliRule knows it. The others are a case (seed, p, number of
elements), what is listed and its values, as hexadecimal floats.
"""

import torch
import torch.nn.functional as F


def rule():
    torch.manual_seed(0)
    numbers = torch.rand(11)
    torch.manual_seed(0)
    torch.empty(5).bernoulli_(0.5)
    return {float(numbers[10]): "plain", float(numbers[1]): "mkl"}[float(torch.rand(1))]


print("rule", rule())


def emit(case, what, tensor):
    print(*case, what, *(float(x).hex() for x in tensor.detach().reshape(-1)))


# Two dropouts of randn(n) in a row, the gradient of the first, and a number drawn afterwards.
for seed, p, n in [(0, 0.5, 1), (1, 0.5, 40), (2, 0.1, 7), (3, 0.9, 33), (4, 1.0, 5), (5, 0.2, 0)]:
    torch.manual_seed(seed)
    x = torch.randn(n, requires_grad=True)
    y = F.dropout(x, p)
    z = F.dropout(x.detach().double(), p)
    y.backward(torch.arange(float(n)))
    case = ("dropout", seed, p, n)
    for what, tensor in (("y", y), ("dx", x.grad), ("z", z), ("next", torch.rand(1))):
        emit(case, what, tensor)

# Attention written out, as a module that returns its weights computes it: x (2, 4, 3) attends to
# itself; key 3 is padding everywhere, and all keys are for the second batch.
torch.manual_seed(6)
x = torch.randn(2, 4, 3, requires_grad=True)
allowed = torch.tensor([[True, True, True, False], [False] * 4])[:, None, :]
scores = (x @ x.transpose(1, 2) / 3**0.5).masked_fill(~allowed, -torch.inf)
weights = F.dropout(scores.softmax(-1), 0.3)
out = weights @ x
out.sum().backward()
for what, tensor in (("weights", weights), ("out", out), ("dx", x.grad)):
    emit(("attention", 6, 0.3, 24), what, tensor)

# randn summed over some dimensions: the sums and the means of it, and of a third of it in doubles.
torch.set_num_threads(1)
cases = [((n,), (0,)) for n in (1, 7, 15, 31, 100, 1000, 4099, 100003)]
sizes = (5, 70), (70, 5), (33, 100)
cases += [((m, n), (d,)) for m, n in sizes for d in (0, 1)] + [((600000, 4), (0,))]
cases += [((4, 9, 50), (1,)), ((4, 9, 50), (0, 2)), ((40, 3, 2), (0, 2)), ((7, 30, 3), (1, 2))]
for seed, (shape, dims) in enumerate(cases):
    torch.manual_seed(seed)
    x = torch.randn(shape)
    fs = (torch.sum, torch.mean)
    parts = [f(y, dims).double().reshape(-1) for y in (x, x.double() / 3) for f in fs]
    what = "x".join(map(str, shape)) + ":" + ",".join(map(str, dims))
    emit(("sum", seed, 0, x.numel()), what, torch.cat(parts))
