"""Writes tails.txt: activations and losses in both tails, with 50 digits, for
tests/autograd/test_pointwise.cpp.

    python tails_fixtures.py > tails.txt

A line is a function, x, the value there and the derivative. Each x has eight bits, so that bf16
holds it. Functions of a probability get x in (0, 1).
"""

from mpmath import cosh, erf, erfc, exp, expm1, log, log1p, mp, mpf, nstr, pi, sqrt, tanh

mp.dps = 50


def logistic(x):
    return 1 / (1 + exp(-x)) if x > 0 else exp(x) / (1 + exp(x))


def soft(x):
    return x + log1p(exp(-x)) if x > 0 else log1p(exp(x))


def cdf(x):
    return erfc(-x / sqrt(2)) / 2


def u(x):  # of gelu's tanh form: (1 + tanh u) / 2 = logistic(2 u)
    return sqrt(2 / pi) * (x + mpf("0.044715") * x**3)


def gelu_tanh(x):
    return x * logistic(2 * u(x))


def gelu_tanh_slope(x):
    slope = 2 * sqrt(2 / pi) * (1 + 3 * mpf("0.044715") * x**2)
    return logistic(2 * u(x)) + x * logistic(2 * u(x)) * logistic(-2 * u(x)) * slope


def of_logits(t):  # binary cross entropy of a logit
    return (
        lambda x: (1 - t) * soft(x) + t * soft(-x),
        lambda x: (1 - t) * logistic(x) - t * logistic(-x),
    )


def of_three(x):  # the cross entropy of logits (x, 0, 0) with class 0
    return soft(log(mpf(2)) - x)


REAL = {
    "sigmoid": (logistic, lambda x: logistic(x) * logistic(-x)),
    "silu": (lambda x: x * logistic(x), lambda x: logistic(x) * (1 + x * logistic(-x))),
    "softplus": (soft, logistic),
    "elu": (lambda x: x if x > 0 else expm1(x), lambda x: mpf(1) if x > 0 else exp(x)),
    "tanh": (tanh, lambda x: 1 / cosh(x) ** 2),
    "erf": (erf, lambda x: 2 / sqrt(pi) * exp(-x * x)),
    "expm1": (expm1, exp),
    "gelu_erf": (
        lambda x: x * cdf(x),
        lambda x: cdf(x) + x * exp(-x * x / 2) / sqrt(2 * pi),
    ),
    "gelu_tanh": (gelu_tanh, gelu_tanh_slope),
    "logits_0": of_logits(mpf(0)),
    "logits_1": of_logits(mpf(1)),
    "logits_quarter": of_logits(mpf(1) / 4),
    "classes_right": (of_three, lambda x: -logistic(log(mpf(2)) - x)),
    "classes_wrong": (  # the cross entropy of logits (x, 0, 0) with class 1
        lambda x: of_three(x) + x,
        lambda x: logistic(x - log(mpf(2))),
    ),
    "smooth_l1": (
        lambda x: x * x / 2 if abs(x) < 1 else abs(x) - mpf(1) / 2,
        lambda x: x if abs(x) < 1 else mpf(1 if x > 0 else -1),
    ),
    "mse": (lambda x: x * x, lambda x: 2 * x),
}
PROBABILITY = {
    "p_0": (lambda p: -log1p(-p), lambda p: 1 / (1 - p)),
    "p_1": (lambda p: -log(p), lambda p: -1 / p),
    "kl": (lambda p: p * (log(p) + 3), lambda p: log(p) + 4),  # of p in exp(-3)
}


def rounded(x):  # to eight bits
    scale = mpf(2) ** (7 - mp.floor(log(abs(x), 2)))
    return mp.nint(x * scale) / scale


def main():
    points = []
    k = mpf("0.0007")
    while k < 690:
        points += [rounded(k), -rounded(k)]
        k *= mpf("1.4")
    points += [s * mpf(m) / 4 for m in range(13, 60, 3) for s in (1, -1)]
    probabilities = [mpf(2) ** -k for k in (1, 2, 5, 10, 20, 30)]
    probabilities += [1 - mpf(2) ** -k for k in (3, 7)]
    for functions, at in ((REAL, points), (PROBABILITY, probabilities)):
        for name, (f, df) in functions.items():
            for x in sorted(set(at)):
                print(name, nstr(x, 18), nstr(f(x), 18), nstr(df(x), 18))


main()
