"""Data parallel training beside PyTorch's DistributedDataParallel with gloo, over a slow link, in turns.

    python tests/benchmarks/compare_ddp.py --program build/mpi/inkling     (as root; a python that has PyTorch)
    python tests/benchmarks/compare_ddp.py --program build/mpi/inkling --configs char8 --link "tbf rate 1gbit burst 256k latency 50ms"

Two processes of one thread each, in two network namespaces whose link tc slows down. Both start from the same weights
and see the same batch, of which each process takes half; both clip at 1 and run AdamW in f32. Times count only if the
losses are the same within 1e-4. Each turn is a run of its own; shown are the medians of its steps, and the share of
inkling's travel that is hidden behind backward.
"""
import argparse
import array
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytorch_gpt import CONFIGS, LEARNING_RATE, build, read_tensors

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "parallel"))
from machines import has_namespaces, machines  # noqa: E402

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
WARM_UP = 3


def ids_of(config):
    """One window of ids and the id that follows; every row of a batch is this one."""
    T, V = CONFIGS[config][1], CONFIGS[config][5]
    return [i * i * 7919 % (V - 1) for i in range(T)] + [V - 1]


def ddp(config, weights, rank, address, steps):
    """A rank; prints its losses and times."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=2)
    rows = CONFIGS[config][0] // 2
    ids = torch.tensor(ids_of(config)).repeat(rows, 1)
    model = build(config)
    model.load_state_dict(read_tensors(weights))
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99), fused=True)
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    losses, times = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = parallel(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"losses": losses, "times": times}), flush=True)
    dist.destroy_process_group()


def pytorch_turn(config, weights, spaces, steps):
    command = [sys.executable, __file__, "--rank"]
    env = os.environ | {"GLOO_SOCKET_IFNAME": "eth", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([*spaces[rank], *command, json.dumps([config, weights, rank, "10.77.0.1", steps])],
                              env=env, stdout=subprocess.PIPE, text=True) for rank in range(2)]
    return [json.loads(rank.communicate(timeout=900)[0].splitlines()[-1]) for rank in ranks][0]


def inkling_words(config, folder, steps):
    B, T, L, H, C, _, _ = CONFIGS[config]
    ids = os.path.join(folder, "ids.bin")
    with open(ids, "wb") as file:
        array.array("H", ids_of(config)).tofile(file)
    words = {"data": ids, "val_data": ids, "batch_size": B, "block_size": T, "n_layer": L, "n_head": H, "n_embd": C,
             "bias": "true", "dropout": 0, "max_iters": steps, "learning_rate": LEARNING_RATE, "warmup_iters": 0,
             "schedule": "constant", "log_interval": 1, "eval_interval": 1000000, "eval_iters": 1, "report": "off",
             "sample_interval": 0, "final_eval": "off", "out_dir": os.path.join(folder, "out")}
    return ["train", *(str(x) for name, value in words.items() for x in (f"--{name}", value)), "--overwrite"]


def inkling_turn(program, words, options, before, more):
    command = ["mpirun", *options, "--bind-to", "none", "-n", "2", program, *words, *more]
    subprocess.run([*before, *command], check=True, env=os.environ | MPI, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, timeout=900)
    with open(os.path.join(words[words.index("--out_dir") + 1], "metrics.jsonl"), encoding="utf-8") as file:
        steps = [step for step in map(json.loads, file) if "train_loss" in step]
    travel, wait = (sum(step[name] for step in steps[WARM_UP:]) for name in ("travel_ms", "wait_ms"))
    return {"losses": [step["train_loss"] for step in steps], "times": [step["ms"] for step in steps],
            "hidden": 1 - wait / travel}


def compare(config, options):
    WAYS = {"inkling": [], "inkling, sharded": ["--shard_optimizer", "true"],
            "inkling, bfloat16 on the wire": ["--wire_dtype", "bfloat16"]}
    found = {name: [] for name in ["DDP", *WAYS]}
    with tempfile.TemporaryDirectory() as folder, \
            machines(folder, 2, options.link.split()) as (mpi, before, _):
        name = before[3].rpartition("-")[0]
        spaces = [["ip", "netns", "exec", f"{name}-{i}"] for i in (1, 2)]
        first = [options.program, *inkling_words(config, folder, 0)]
        subprocess.run(first, check=True, stdout=subprocess.DEVNULL, env=os.environ | MPI)
        weights = os.path.join(folder, "weights")
        os.rename(os.path.join(folder, "out", "ckpt", "model.safetensors"), weights)
        words = inkling_words(config, folder, options.steps)
        for _ in range(options.rounds):
            found["DDP"].append(pytorch_turn(config, weights, spaces, options.steps))
            for way, more in WAYS.items():
                found[way].append(inkling_turn(options.program, words, mpi, before, more))
    print(f"\n{config}, {options.link}; load {os.getloadavg()[0]:.1f}")
    medians = {way: [statistics.median(turn["times"][WARM_UP:]) for turn in turns] for way, turns in found.items()}
    for way, turns in found.items():
        apart = max(abs(a - b) / b for turn in turns for a, b in zip(turn["losses"], found["DDP"][0]["losses"]))
        limit = 1e-2 if "bfloat16" in way else 1e-4
        text = ", ".join(f"{ms:.1f}" for ms in medians[way]) if apart <= limit else "other losses"
        rate = statistics.median(d / ms for d, ms in zip(medians["DDP"], medians[way]))
        hidden = "".join(f"; {100 * turns[-1]['hidden']:.0f} % hidden" for _ in turns[:1] if "hidden" in turns[0])
        print(f"{way:30} {text} ms; {rate:.2f} times DDP's throughput; losses within {apart:.0e}{hidden}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", help="inkling, built with -DINKLING_MPI=ON")
    parser.add_argument("--configs", default="baby,char8", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--link", default="netem rate 1gbit delay 1ms limit 100000",
                        help="for tc, in both directions; tbf, where the kernel has no netem, adds no delay")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=12, type=int)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return ddp(*json.loads(options.rank))
    if not has_namespaces():
        return "network namespaces are needed, and they need root"
    options.program = os.path.abspath(options.program)
    for config in options.configs.split(","):
        compare(config, options)


sys.exit(main())
