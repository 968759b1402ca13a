"""Makes gpt.safetensors, what test_golden_gpt.cpp compares with: a small GPT trained by PyTorch.

    python tests/golden/gpt.py        (needs torch and safetensors; run by hand, the tests need only the file)

The model is GPT-2's, initialised and trained as nanoGPT does. The file holds, under our names:

    initial.NAME   the weights after torch.manual_seed(1337)
    grad.NAME      the gradient of the first step, before clipping
    ids, targets   (20, 4, 16): a batch a step
    losses         (20,): the loss of each step, before its update
    norms          (20,): the norm of all gradients, before clipping
    trained.NAME   the weights after the 20 steps
    prompt         (2, 3), and generated (2, 27): 24 more tokens, drawn from torch.manual_seed(11)

and in its metadata the configuration, and the versions it was made with.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

CONFIG = dict(block_size=16, vocab_size=29, n_layer=2, n_head=2, n_embd=32)
STEPS, BATCH = 20, 4
OPTIMIZER = dict(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, grad_clip=1.0)


class Attention(nn.Module):
    def __init__(self, width, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, n_head):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, n_head)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, block_size, vocab_size, n_layer, n_head, n_embd):
        super().__init__()
        self.block_size = block_size
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self.init_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * n_layer))

    @staticmethod
    def init_layer(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, temperature, top_k):
        for _ in range(max_new_tokens):
            logits = self(ids[:, -self.block_size :])[:, -1, :] / temperature
            worst = torch.topk(logits, top_k).values[:, [-1]]
            logits = logits.masked_fill(logits < worst, -math.inf)
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), num_samples=1)], dim=1)
        return ids


def batches():
    """Sequences with something to learn: each id follows from the one before, give or take one."""
    generator = torch.Generator().manual_seed(42)
    shape = (STEPS, BATCH, 1)
    columns = [torch.randint(29, shape, generator=generator)]
    for _ in range(CONFIG["block_size"]):
        noise = torch.randint(2, shape, generator=generator)
        columns.append((3 * columns[-1] + 1 + noise) % 29)
    text = torch.cat(columns, dim=2)
    return text[:, :, :-1].contiguous(), text[:, :, 1:].contiguous()


def named(prefix, tensors):
    return {prefix + name: tensor.detach().clone() for name, tensor in tensors}


def main():
    torch.manual_seed(1337)
    model = GPT(**CONFIG)
    parameters = list(model.named_parameters())  # the tied weight once, as wte.weight
    fixture = named("initial.", parameters)

    decayed = [p for _, p in parameters if p.dim() >= 2]
    others = [p for _, p in parameters if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=OPTIMIZER["lr"],
        betas=OPTIMIZER["betas"],
    )
    ids, targets = batches()
    losses, norms = [], []
    for step in range(STEPS):
        loss = F.cross_entropy(model(ids[step]).flatten(0, 1), targets[step].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            fixture |= named("grad.", ((name, p.grad) for name, p in parameters))
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["grad_clip"]).item())
        optimizer.step()
        losses.append(loss.item())

    fixture |= named("trained.", parameters)
    fixture |= {"ids": ids, "targets": targets}
    fixture |= {"losses": torch.tensor(losses), "norms": torch.tensor(norms)}
    fixture["prompt"] = torch.tensor([[1, 4, 14], [20, 3, 11]])
    torch.manual_seed(11)
    fixture["generated"] = model.generate(fixture["prompt"], 24, temperature=0.8, top_k=5)
    metadata = {
        "config": json.dumps(CONFIG),
        "optimizer": json.dumps(OPTIMIZER),
        "made_with": f"torch {torch.__version__}",
    }
    save_file(fixture, pathlib.Path(__file__).with_name("gpt.safetensors"), metadata)
    print("losses", " ".join(f"{loss:.6f}" for loss in losses))
    print("norms ", " ".join(f"{norm:.4f}" for norm in norms))


if __name__ == "__main__":
    main()
