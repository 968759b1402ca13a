"""Makes autocast.txt, what test_autocast.cpp compares with: PyTorch's mixed precision.

    python tests/golden/autocast_fixtures.py     (needs torch; run by hand, the tests need only the file)

The model, its weights, batches and optimizer are those of gpt.py, its forward pass runs under
torch.autocast("cpu", dtype=torch.bfloat16). A line for each of 20 steps: the loss before its update and
the norm of all gradients before clipping.
"""

import pathlib

import gpt
import torch
import torch.nn.functional as F


def main():
    torch.manual_seed(1337)
    model = gpt.GPT(**gpt.CONFIG)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    options = gpt.OPTIMIZER
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": options["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=options["lr"],
        betas=options["betas"],
    )
    lines = []
    for ids, targets in zip(*gpt.batches()):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["grad_clip"])
        optimizer.step()
        lines.append(f"{loss.item():.6f} {norm.item():.6f}\n")
    pathlib.Path(__file__).with_name("autocast.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
