"""Makes walkthroughs/NAME.txt, what the programs of train/lessons must print: the same steps, taken by PyTorch.

    python tests/golden/walkthroughs.py        (needs torch; run by hand, the tests need only the files)

Dropout is that of PyTorch's builds with MKL on Intel processors, whatever this processor is: MklDropout.

A line "step N" begins a step; what one call prints begins with "> " and goes on with "| ".
"""

import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Notebook:
    def __init__(self):
        self.lines, self.count = [], 0

    def step(self):
        self.count += 1
        self.lines.append(f"step {self.count}")

    def print(self, *what):
        text = " ".join(str(x) for x in what).split("\n")
        self.lines += ["> " + text[0]] + ["| " + line for line in text[1:]]


INPUTS = torch.tensor(
    [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]
)


def sums_to_one(weights):
    sums = weights.sum(-1)
    return torch.allclose(sums, torch.ones_like(sums))


class MklDropout(nn.Module):
    """One output of the generator seeds MKL's MCG31m1, which then decides on every element."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    @staticmethod
    def random32():
        state = torch.get_rng_state().numpy()
        left = int(state[8:12].view(np.int32)[0])  # 1 + how many outputs of the block are unread
        bits = np.random.MT19937()
        key = state[24 : 24 + 624 * 8].view(np.uint64).astype(np.uint32)
        bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 625 - left}}
        low24 = torch.rand(1).item() * 2**24  # draws the same output
        word = int(bits.random_raw())
        assert word & 0xFFFFFF == low24
        return word

    def forward(self, x):
        if not self.training:
            return x
        modulus = 2**31 - 1
        state, kept = self.random32() % modulus or 1, []
        for _ in range(x.numel()):
            kept.append(np.float32(state) * np.float32(2.0**-31) < np.float32(1 - self.p))
            state = state * 1132489760 % modulus
        return x * (torch.tensor(kept, dtype=x.dtype).view(x.shape) / (1 - self.p))


# ---- 1. attention_from_scratch


def attend(q, k, v, scale):
    return torch.softmax(q @ k.transpose(-2, -1) / scale, dim=-1) @ v


class ParameterAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wk, self.wq, self.wv = (nn.Parameter(torch.randn(3, 2)) for _ in range(3))

    def forward(self, x, keys_first=True, scale=math.sqrt(256)):
        k, q, v = x @ self.wk, x @ self.wq, x @ self.wv
        return attend(k, q, v, scale) if keys_first else attend(q, k, v, scale)


class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wk, self.wq, self.wv = (nn.Linear(3, 2, bias=False) for _ in range(3))

    def forward(self, x):
        return attend(self.wk(x), self.wq(x), self.wv(x), math.sqrt(256))


class CausalHead(nn.Module):
    def __init__(self, d_in, d_out, length, p):
        super().__init__()
        self.wk, self.wq, self.wv = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.dropout = MklDropout(p)
        self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

    def weights(self, x, keys_first=False, scale=None):
        k, q = self.wk(x), self.wq(x)
        scores = k @ q.transpose(1, 2) if keys_first else q @ k.transpose(1, 2)
        n = x.shape[1]
        scores.masked_fill_(self.mask.bool()[:n, :n], -torch.inf)
        return torch.softmax(scores / (scale or math.sqrt(k.shape[-1])), dim=-1)

    def forward(self, x, **convention):
        return self.dropout(self.weights(x, **convention)) @ self.wv(x)


class MultiHead(nn.Module):
    def __init__(self, d_in, d_out, length, p, heads):
        super().__init__()
        self.heads, self.width = heads, d_out // heads
        self.wk, self.wq, self.wv = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = MklDropout(p)
        self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.width).transpose(1, 2)

    def forward(self, x):
        k, q, v = self.split(self.wk(x)), self.split(self.wq(x)), self.split(self.wv(x))
        n = x.shape[1]
        scores = (q @ k.transpose(2, 3)).masked_fill(self.mask.bool()[:n, :n], -torch.inf)
        weights = self.dropout(torch.softmax(scores / math.sqrt(self.width), dim=-1))
        y = (weights @ v).transpose(1, 2)
        return self.out_proj(y.contiguous().view(x.shape[0], n, -1))


def attention_from_scratch(nb):
    nb.step()
    query = INPUTS[1]
    scores = torch.stack([torch.dot(x, query) for x in INPUTS])
    nb.print(scores)
    by_sum = scores / scores.sum()
    nb.print(by_sum), nb.print(sums_to_one(by_sum))
    weights = torch.softmax(scores, dim=0)
    nb.print(weights), nb.print(sums_to_one(weights))
    context = torch.zeros(3)
    for i in range(6):
        context += weights[i] * INPUTS[i]
    nb.print(context)

    nb.step()
    weights = torch.softmax(INPUTS @ INPUTS.T, dim=-1)
    nb.print(weights), nb.print(sums_to_one(weights))
    contexts = weights @ INPUTS
    nb.print(contexts), nb.print(torch.allclose(contexts[1], context))

    nb.step()
    torch.manual_seed(123)
    wq, wk, wv = (nn.Parameter(torch.randn(3, 256)) for _ in range(3))
    q, k, v = INPUTS @ wq, INPUTS @ wk, INPUTS @ wv
    nb.print(q.shape)
    weights = torch.softmax(q @ k.T / math.sqrt(256), dim=-1)
    nb.print(weights.shape), nb.print(weights), nb.print(sums_to_one(weights)), nb.print((weights @ v).shape)
    wq, wk, wv = (nn.Linear(3, 256) for _ in range(3))
    weights = torch.softmax(wq(INPUTS) @ wk(INPUTS).T / math.sqrt(256), dim=-1)
    nb.print(weights), nb.print(sums_to_one(weights)), nb.print((weights @ wv(INPUTS)).shape)

    nb.step()
    torch.manual_seed(123)
    by_parameters = ParameterAttention()
    nb.print(by_parameters(INPUTS))
    nb.print(by_parameters(INPUTS, keys_first=False))
    nb.print(by_parameters(INPUTS, scale=math.sqrt(2)))

    nb.step()
    torch.manual_seed(123)
    by_layers = LinearAttention()
    nb.print(by_layers(INPUTS))
    with torch.no_grad():
        for name in ("wk", "wq", "wv"):
            getattr(by_parameters, name).copy_(getattr(by_layers, name).weight.T)
    nb.print(torch.allclose(by_parameters(INPUTS), by_layers(INPUTS)))

    nb.step()
    torch.manual_seed(123)
    batch = torch.stack((INPUTS, INPUTS))
    nb.print(batch.shape)
    head = CausalHead(3, 2, 6, 0.5)
    nb.print(head.mask)
    nb.print(head.weights(batch)[0])
    state = torch.get_rng_state()
    y = head(batch)
    nb.print(y.shape), nb.print(y)
    torch.set_rng_state(state)
    nb.print(head.dropout(head.weights(batch))[0])
    torch.set_rng_state(state)
    plain = torch.empty(2, 6, 6, dtype=torch.float64).bernoulli_(0.5)  # doubles: without MKL everywhere
    nb.print((head.weights(batch) * (plain.float() / 0.5))[0])
    torch.set_rng_state(state)
    nb.print(head(batch, keys_first=True, scale=math.sqrt(256)))
    head.eval()
    nb.print(head(batch)[0])

    nb.step()
    heads = [CausalHead(3, 8, 6, 0.5) for _ in range(2)]
    y = torch.cat([h(batch) for h in heads], dim=-1)
    nb.print(y.shape), nb.print(y[0])

    nb.step()
    y = MultiHead(3, 16, 6, 0.5, 2)(batch)
    nb.print(y.shape), nb.print(y[0])
    nb.print("multi_head: expected d_out to be a multiple of the number of heads, got 16 and 3")


# ---- 2. self_attention_sentence


def self_attention_sentence(nb):
    nb.step()
    sentence = "Life is short eat dessert first"
    vocabulary = {word: i for i, word in enumerate(sorted(sentence.split()))}
    nb.print(vocabulary)
    ids = torch.tensor([vocabulary[word] for word in sentence.split()])
    nb.print(ids)

    nb.step()
    torch.manual_seed(123)
    x = nn.Embedding(50000, 3)(ids).detach()
    nb.print(x), nb.print(x.shape)

    nb.step()
    torch.manual_seed(123)
    wq, wk, wv = (nn.Parameter(torch.rand(3, n)) for n in (2, 2, 4))
    query = x[1] @ wq
    keys, values = x @ wk, x @ wv
    nb.print(query.shape), nb.print(keys.shape), nb.print(values.shape)
    nb.print(query), nb.print(keys), nb.print(values)
    nb.print(query.dot(keys[4]))
    scores = query @ keys.T
    nb.print(scores)

    nb.step()
    weights = torch.softmax(scores / math.sqrt(2), dim=0)
    nb.print(weights), nb.print(sums_to_one(weights)), nb.print(weights.argmax())
    nb.print(torch.softmax(scores, dim=0))
    nb.print(weights @ values)


# ---- 3. padding_and_cache


class SelfAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, z, attention_mask=None, past=None, zero_rows=False):
        q, k, v = self.query(z), self.key(z), self.value(z)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        logits = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        later = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(k.shape[1] - q.shape[1] + 1)
        logits = logits.masked_fill(later, -torch.inf)
        if attention_mask is not None:
            logits = logits.masked_fill(attention_mask.logical_not().unsqueeze(1), -torch.inf)
        weights = torch.softmax(logits, -1)
        if zero_rows:
            weights = weights.masked_fill((logits == -torch.inf).all(-1, keepdim=True), 0.0)
        return self.output(weights @ v), weights, k, v


def padding_and_cache(nb):
    nb.step()
    torch.manual_seed(3308764504)
    z = torch.rand(2, 8, 16)
    query, key, value = (nn.Linear(16, 16) for _ in range(3))
    q, k, v = query(z), key(z), value(z)
    logits = q @ k.transpose(1, 2) / math.sqrt(16)
    later = torch.triu(torch.ones(8, 8), diagonal=1).bool()
    logits = logits.masked_fill(later, -torch.inf)
    nb.print(logits[0])

    nb.step()
    weights = torch.softmax(logits, dim=-1)
    nb.print(weights[0]), nb.print(sums_to_one(weights)), nb.print((weights @ v).shape)

    nb.step()
    ids = torch.tensor([2, 2, 2, 2, 2, 2, 1, 13264, 5509])
    mask = torch.tensor([[int(i >= pads) for i in range(9)] for pads in (6, 4, 0)])
    nb.print(ids), nb.print(mask)
    logits = torch.rand(3, 9, 9)
    nb.print(logits[0])
    padded = logits.masked_fill((mask == 0).unsqueeze(1), -torch.inf)
    nb.print(padded[0])
    nb.print(torch.softmax(padded, dim=-1)[0])

    nb.step()
    z_padded = torch.rand(3, 9, 16)
    attention = SelfAttention(16)
    output, weights, k, v = attention(z_padded, mask, zero_rows=True)
    nb.print(output.shape), nb.print(weights.shape), nb.print(k.shape), nb.print(v.shape)
    nb.print(weights[0])
    nb.print(attention(z_padded, mask)[1][0])
    nb.print("tensor(True)")

    nb.step()
    k_old, k_new = key(z[:, :4]), key(z[:, 4:5])
    k = torch.cat([k_old, k_new], dim=1)
    nb.print(k_old.shape), nb.print(k.shape)
    scores = (query(z[:, 4:5]) @ k.transpose(1, 2) / math.sqrt(16)).detach()
    later = torch.triu(torch.ones(5, 5), diagonal=1).bool().expand(2, 5, 5)
    nb.print(scores.shape), nb.print(later.shape)
    try:
        scores.masked_fill_(later, -torch.inf)
    except RuntimeError as error:
        nb.print(error)
    nb.print(scores.masked_fill_(later[:, -1:], -torch.inf))

    for built_in in (False, True):
        nb.step()
        if not built_in:
            z_old, z_new = torch.rand(2, 4, 16), torch.rand(2, 1, 16)
        attention = SelfAttention(16)
        with torch.no_grad():
            _, _, k, v = attention(z_old)
            cached = attention(z_new, past=(k, v))[0]
            whole = attention(torch.cat([z_old, z_new], 1))[0]
        nb.print(cached)
        if not built_in:
            nb.print(whole[:, -1:])
        nb.print((cached - whole[:, -1:]).abs().max() <= 3e-8)


# ---- 4. average_to_attention


def average_to_attention(nb):
    nb.step()
    torch.set_printoptions(sci_mode=False)
    torch.manual_seed(538)
    data = torch.randint(10, (2, 4)).float()
    nb.print(data)
    inputs, targets = data[:, :-1], data[:, 1:]
    for b in range(2):
        for t in range(3):
            nb.print(inputs[b, : t + 1], "->", targets[b, t])

    nb.step()
    x = torch.randint(10, (2, 3, 4)).float()
    nb.print(x)
    means = torch.zeros(2, 3, 4)
    for b in range(2):
        for t in range(3):
            means[b, t] = x[b, : t + 1].mean(0)
    nb.print(means)

    nb.step()
    w = torch.tril(torch.ones(3, 3))
    w = w / w.sum(1, keepdim=True)
    nb.print(w), nb.print(torch.allclose(w @ x, means))

    nb.step()
    key, query, value = (nn.Linear(4, 4) for _ in range(3))
    q, k, v = key(x), query(x), value(x)
    nb.print(v)
    later = torch.tril(torch.ones(3, 3)) == 0
    scores = (q @ k.transpose(-2, -1) / math.sqrt(4)).masked_fill(later, -torch.inf)
    weights = F.softmax(scores, dim=-1)
    nb.print(weights)
    out = weights @ v
    nb.print(out)
    other = F.softmax((k @ q.transpose(-2, -1) / math.sqrt(4)).masked_fill(later, -torch.inf), dim=-1)
    nb.print(other)

    nb.step()
    scores = torch.tensor([0, 1, 2, 3, 10, -1e4])
    nb.print(torch.softmax(scores, dim=-1)), nb.print(torch.softmax(scores / 4, dim=-1))

    nb.step()
    built_in = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    nb.print(built_in), nb.print(torch.allclose(built_in, out, atol=1e-6))

    nb.step()
    x = torch.randint(10, (2, 3, 12)).float()
    nb.print(x)
    key, query, value = (nn.Linear(12, 12) for _ in range(3))
    q, k, v = (layer(x).view(2, 3, 4, 3).transpose(1, 2) for layer in (key, query, value))
    nb.print(q.shape)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(3)).masked_fill(later, -torch.inf)
    by_hand = F.softmax(scores, dim=-1) @ v
    built_in = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    nb.print(by_hand), nb.print(torch.allclose(by_hand, built_in, atol=1e-6))
    joined = by_hand.transpose(1, 2).contiguous().view(2, 3, 12)
    nb.print(joined.shape), nb.print(joined)


# ---- 5. the_averaging_trick


class BatchNorm:
    def __init__(self, n, eps=1e-5, momentum=0.1):
        self.eps, self.momentum, self.training = eps, momentum, True
        self.gamma, self.beta = torch.ones(n), torch.zeros(n)
        self.running_mean, self.running_var = torch.zeros(n), torch.ones(n)

    def __call__(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.mean(0), x.var(0)
            m = self.momentum
            self.running_mean = (1 - m) * self.running_mean + m * mean
            self.running_var = (1 - m) * self.running_var + m * var
        return self.gamma * ((x - mean) / torch.sqrt(var + self.eps)) + self.beta


def the_averaging_trick(nb):
    nb.step()
    torch.manual_seed(1337)
    x = torch.randn(4, 8, 2)
    nb.print(x[0])
    means = torch.zeros(4, 8, 2)
    for b in range(4):
        for t in range(8):
            means[b, t] = x[b, : t + 1].mean(0)
    nb.print(means[0])
    ones = torch.tril(torch.ones(8, 8))
    w = ones / ones.sum(1, keepdim=True)
    nb.print(torch.allclose(w @ x, means, atol=1e-6))
    w = torch.softmax(torch.zeros(8, 8).masked_fill(ones == 0, -torch.inf), dim=-1)
    nb.print(w), nb.print(torch.allclose(w @ x, means, atol=1e-6))

    nb.step()
    torch.manual_seed(1337)
    x = torch.randn(4, 8, 32)
    query, key, value = (nn.Linear(32, 16, bias=False) for _ in range(3))
    q, k, v = query(x), key(x), value(x)
    scores = q @ k.transpose(-2, -1)
    later = torch.tril(torch.ones(8, 8)) == 0
    unscaled = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    nb.print(unscaled[0])
    weights = torch.softmax((scores * 16**-0.5).masked_fill(later, -torch.inf), dim=-1)
    nb.print(weights[0]), nb.print((weights @ v).shape)
    masked_first = torch.softmax(scores.masked_fill(later, -torch.inf) / 4, dim=-1)
    nb.print(torch.allclose(masked_first, weights))
    encoder = torch.softmax(scores * 16**-0.5, dim=-1)
    nb.print(encoder[0])
    other = torch.randn(4, 5, 32, generator=torch.Generator().manual_seed(7))
    cross = torch.softmax(q @ key(other).transpose(-2, -1) * 16**-0.5, dim=-1)
    nb.print(cross.shape), nb.print(cross[0]), nb.print((cross @ value(other)).shape)

    nb.step()
    q, k = torch.randn(4, 8, 16), torch.randn(4, 8, 16)
    scores = q @ k.transpose(-2, -1)
    nb.print(q.var()), nb.print(k.var()), nb.print(scores.var()), nb.print((scores * 16**-0.5).var())

    nb.step()
    x = torch.tensor([0.1, -0.2, 0.3, -0.2, 0.5])
    nb.print(torch.softmax(x, dim=-1)), nb.print(torch.softmax(x * 8, dim=-1))

    nb.step()
    torch.manual_seed(1337)
    norm = BatchNorm(100)
    x = torch.randn(32, 100)
    y = norm(x)
    nb.print(y.shape)
    nb.print(y[:, 0].mean()), nb.print(y[:, 0].std())
    nb.print(y[0].mean()), nb.print(y[0].std())
    nb.print(norm.running_mean[:5]), nb.print(norm.running_var[:5])
    theirs = nn.BatchNorm1d(100)
    z = theirs(x).detach()
    nb.print(z[:, 0].std()), nb.print(z[0].mean()), nb.print(z[0].std())
    nb.print(z[0, :5]), nb.print(y[0, :5])
    nb.print(torch.allclose(z, y * math.sqrt(32 / 31), atol=1e-4))
    norm.training = False
    nb.print(norm(x)[0, :5])

    nb.step()
    y = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True) + 1e-5)
    nb.print(y[:, 0].mean()), nb.print(y[:, 0].std())
    nb.print(y[0].mean()), nb.print(y[0].std())
    z = nn.LayerNorm(100)(x).detach()
    nb.print(z[0].std()), nb.print(y[0, :5]), nb.print(z[0, :5])
    nb.print(z[0].std(unbiased=False))


def main():
    folder = pathlib.Path(__file__).with_name("walkthroughs")
    for walk in (attention_from_scratch, self_attention_sentence, padding_and_cache, average_to_attention, the_averaging_trick):
        nb = Notebook()
        torch.set_printoptions(profile="default")
        torch.set_printoptions(sci_mode=None)
        walk(nb)
        (folder / f"{walk.__name__}.txt").write_text("\n".join(nb.lines) + "\n")


if __name__ == "__main__":
    main()
