"""pytorch_gpt.py's training step in JAX, compiled whole.

    jax_gpt.py CONFIG FILE STEPS        trains on what `pytorch_gpt.py make` wrote; prints one JSON object

No dropout. compare_pytorch.py runs it where jax and optax can be imported.
"""

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pytorch_gpt import CONFIGS, LEARNING_RATE, WARM_UP, process_peak


def read_tensors(file):
    tensors = {}
    with open(file, "rb") as source:
        header = json.loads(source.read(int.from_bytes(source.read(8), "little")))
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
            flat = np.frombuffer(source.read(end - begin), dtype)
            tensors[name] = jnp.asarray(flat.reshape(entry["shape"]).astype(np.int32 if dtype == np.int64 else dtype))
    return tensors


def loss_of(parameters, x, y, config):
    _, T, L, H, C, _, _ = CONFIGS[config]

    def linear(x, name):
        return x @ parameters[name + ".weight"].T + parameters[name + ".bias"]

    def layer_norm(x, name):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        xhat = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
        return xhat * parameters[name + ".weight"] + parameters[name + ".bias"]

    def attention(x, name):
        q, k, v = (part.reshape(*x.shape[:2], H, C // H) for part in jnp.split(linear(x, name + ".c_attn"), 3, -1))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return linear(mixed.reshape(x.shape), name + ".c_proj")

    def mlp(x, name):
        return linear(jax.nn.gelu(linear(x, name + ".c_fc"), approximate=True), name + ".c_proj")

    stream = parameters["wte.weight"][x] + parameters["wpe.weight"]
    for i in range(L):
        stream = stream + attention(layer_norm(stream, f"h.{i}.ln_1"), f"h.{i}.attn")
        stream = stream + mlp(layer_norm(stream, f"h.{i}.ln_2"), f"h.{i}.mlp")
    logits = layer_norm(stream, "ln_f") @ parameters["wte.weight"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def main():
    config, file, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    parameters = read_tensors(file)
    x, y = parameters.pop("x"), parameters.pop("y")
    decays = {name: value.ndim > 1 for name, value in parameters.items()}
    adamw = optax.adamw(LEARNING_RATE, 0.9, 0.99, weight_decay=0.1, mask=decays)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), adamw)
    state = optimizer.init(parameters)

    def step(parameters, state):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y, config)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    times, losses = [], []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        parameters, state, loss = step(parameters, state)
        jax.block_until_ready((parameters, state, loss))
        times.append(1e3 * (time.perf_counter() - start))
        losses.append(float(loss))
    timed = times[WARM_UP:]
    result = {"median": statistics.median(timed), "best": min(timed), "process_peak": process_peak(), "losses": losses}
    print(json.dumps({**result, "version": jax.__version__}))


if __name__ == "__main__":
    main()
