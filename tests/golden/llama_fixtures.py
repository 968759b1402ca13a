"""Makes llama.safetensors: what Hugging Face's models of Llama's kin give in f64, for
tests/nn/test_llama.cpp: log-probabilities, the gradients of the first step, and the losses of twenty
steps of AdamW.

    python tests/golden/llama_fixtures.py      (needs torch, transformers and safetensors)

The metadata hold one line of JSON a model, with our names of its settings. After
manual_seed(seed) each parameter, in the order of the model, is 0.2 randn (1 + 0.2 randn for a
norm), then come the ids (B, T + 1) as randint.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

B, T, STEPS = 2, 12, 20
SIZES = {"block_size": 64, "vocab_size": 17, "n_layer": 2, "n_head": 4, "n_kv_head": 2,
         "n_embd": 16, "intermediate_size": 24}
MODELS = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama_one_kv_head": (LlamaConfig, LlamaForCausalLM, {"n_kv_head": 1, "rope_theta": 500.0}),
    "llama_wide": (LlamaConfig, LlamaForCausalLM,
                   {"n_embd": 24, "n_head": 2, "n_kv_head": 2, "n_layer": 3, "vocab_size": 31}),
    "llama_linear": (LlamaConfig, LlamaForCausalLM,
                     {"tie_word_embeddings": True,
                      "rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "llama_3": (LlamaConfig, LlamaForCausalLM,
                {"n_head": 2, "rope_theta": 50.0,
                 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0,
                                  "original_max_position_embeddings": 32}}),
    "llama_yarn": (LlamaConfig, LlamaForCausalLM,
                   {"n_head": 2, "rope_theta": 50.0,
                    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0,
                                     "beta_slow": 0.2,
                                     "original_max_position_embeddings": 16}}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"attention_bias": True, "rms_norm_eps": 1e-6}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"qk_norm": True, "head_dim": 6, "rms_norm_eps": 1e-6}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 5}),
}


def make(config_type, model_type, s):
    rope = {"rope_type": "default", **s.get("rope_scaling", {}),
            "rope_theta": s.get("rope_theta", 10000.0)}
    extra = {}
    if config_type is not Qwen2Config:  # which always has the biases
        extra["attention_bias"] = False
    if "head_dim" in s:
        extra["head_dim"] = s["head_dim"]
    if config_type is MistralConfig:
        extra["sliding_window"] = s["sliding_window"]
        extra.pop("attention_bias")
    config = config_type(vocab_size=s["vocab_size"], hidden_size=s["n_embd"],
                         intermediate_size=s["intermediate_size"],
                         num_hidden_layers=s["n_layer"], num_attention_heads=s["n_head"],
                         num_key_value_heads=s["n_kv_head"],
                         max_position_embeddings=s["block_size"],
                         rms_norm_eps=s.get("rms_norm_eps", 1e-5), rope_parameters=rope,
                         tie_word_embeddings=s.get("tie_word_embeddings", False),
                         attn_implementation="eager", **extra)
    return model_type(config).double()


def main():
    tensors, lines = {}, []
    for seed, (name, (config_type, model_type, changes)) in enumerate(MODELS.items()):
        settings = {**SIZES, **changes}
        model = make(config_type, model_type, settings)
        torch.manual_seed(seed)
        with torch.no_grad():
            for key, p in model.named_parameters():
                p.copy_(torch.randn(p.shape) * 0.2 + (1.0 if "norm" in key else 0.0))
        ids = torch.randint(settings["vocab_size"], (B, T + 1))
        x, y = ids[:, :-1], ids[:, 1:]

        def loss_of():
            logits = model(x).logits
            return logits, F.cross_entropy(logits.flatten(0, 1), y.flatten())

        logits, loss = loss_of()
        loss.backward()
        tensors[f"{name}/log_probs"] = torch.log_softmax(logits, -1).detach().float().contiguous()
        for key, p in model.named_parameters():
            tensors[f"{name}/grad/{key}"] = p.grad.detach().float().contiguous().clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95),
                                      weight_decay=0.1)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            _, loss = loss_of()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        tensors[f"{name}/losses"] = torch.tensor(losses, dtype=torch.float64)
        lines.append(json.dumps({"name": name, "seed": seed, **settings}))
    out = pathlib.Path(__file__).with_name("llama.safetensors")
    save_file(tensors, out, metadata={"models": "\n".join(lines), "B": str(B), "T": str(T)})


main()
