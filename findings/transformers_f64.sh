#!/usr/bin/env bash
# A model of transformers in float64 (.double()) computes its RMSNorm and its rotary angles in
# float32.
#
# Parameters, activations and results have dtype float64, so that the model looks like a reference
# in double precision. But the norm casts its input to float32 ("upcast", written for half precision)
# and back, and the tables of cosines are float32 whatever the dtype. So results are right to seven
# digits, torch.autograd.gradcheck of the model fails, and parity tests in float64 need a tolerance
# for float32. torch.nn.RMSNorm in float64 has no such error.
#
# Seen with torch 2.15.0 and transformers 5.24.0: the norm is off by 2e-7, cosines of 4096 positions by
# 2e-5, gradcheck fails.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.15.0 transformers==5.24.0 numpy 2>"$work/log" ||
  { cat "$work/log"; exit 1; }

cat >"$work/f64.py" <<'PYTHON'
import torch
from torch.func import functional_call
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                     num_attention_heads=2, max_position_embeddings=4096)
model = LlamaForCausalLM(config).double()


def size(error):
    return "below 1e-14" if error < 1e-14 else "1e-8 to 1e-4" if 1e-8 < error < 1e-4 else f"{error}"


norm = model.model.norm
x = torch.randn(8, 16, dtype=torch.float64)
exact = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + norm.variance_epsilon)
plain = torch.nn.RMSNorm(16, eps=norm.variance_epsilon, dtype=torch.float64)
print("LlamaRMSNorm:", norm(x).dtype, "error", size((norm(x) - exact).abs().max().item()))
print("nn.RMSNorm:", plain(x).dtype, "error", size((plain(x) - exact).abs().max().item()))

cos, _ = model.model.rotary_emb(x, torch.arange(4096)[None])
speeds = 10000.0 ** -(torch.arange(0, 8, 2, dtype=torch.float64) / 8)
angles = torch.arange(4096, dtype=torch.float64)[:, None] * speeds
print("cosines:", cos.dtype, "error", size((cos[0, :, :4] - angles.cos()).abs().max().item()))

ids = torch.randint(11, (1, 6))
table = model.model.embed_tokens.weight.detach().clone().requires_grad_()
passes = torch.autograd.gradcheck(
    lambda w: functional_call(model, {"model.embed_tokens.weight": w}, (ids,)).logits, (table,),
    raise_exception=False)
print("gradcheck:", "passes" if passes else "fails")
PYTHON
seen=$("$work/venv/bin/python" "$work/f64.py" 2>/dev/null)
printf '%s\n' "$seen"
expected='LlamaRMSNorm: torch.float64 error 1e-8 to 1e-4
nn.RMSNorm: torch.float64 error below 1e-14
cosines: torch.float64 error 1e-8 to 1e-4
gradcheck: fails'
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
