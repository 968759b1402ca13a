#!/usr/bin/env python3
"""Makes each call that changes a file fail, or kills the program there, and looks what is lost.

    tests/faults/faults.py PROGRAM PRELOAD [--kinds kill,ENOSPC,EIO,EINTR] [--every N] [--seed S]

trains a small model, with PRELOAD (preload.cpp) counting its calls. Then, for every one of them (or one
of N, from a random one on): the run with that call failing, once more to its end (resumed, where there is
a checkpoint), and the result must be that of the run that nobody disturbed, to the bit. After the first
save there must always be a checkpoint, and none may hold anything else than what was saved. Ends with 1
if anything was lost.
"""
import argparse
import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile

TRAIN = ("train --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 2 --max_iters 12 --eval_interval 4 "
         "--eval_iters 1 --log_interval 3 --sample_interval 0 --dropout 0.1 --threads 1").split()


class Harness:
    def __init__(self, program, preload, folder):
        self.program, self.preload, self.folder = os.path.abspath(program), os.path.abspath(preload), folder
        self.out = os.path.join(folder, "out")

    def run(self, more, **faults):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
        if faults:
            environment |= {"LD_PRELOAD": self.preload, "FAULTS_UNDER": self.out}
            environment |= {"FAULTS_" + name: str(value) for name, value in faults.items()}
        return subprocess.run([self.program, *TRAIN, "--out_dir", self.out, *more], capture_output=True, text=True,
                              errors="replace", env=environment, timeout=120)

    def has_checkpoint(self):
        return any(os.path.exists(os.path.join(self.out, name, "state.json")) for name in ("ckpt", "ckpt.tmp", "ckpt.prev"))

    def result(self):
        """What a finished run leaves, but for times."""
        digest = hashlib.sha256()
        for name in ("ckpt/model.safetensors", "ckpt/optimizer.safetensors", "ckpt/state.json", "best/model.safetensors"):
            with open(os.path.join(self.out, name), "rb") as file:
                digest.update(file.read())
        steps = [line.split(",")[0:2] for line in open(os.path.join(self.out, "metrics.jsonl"))]
        return digest.hexdigest(), str([s for s in steps if "val_loss" in s[1]])

    def finish(self):
        """Goes on as a person would."""
        resumes = self.has_checkpoint()
        return self.run(["--init_from", "resume"] if resumes else ["--overwrite"])

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)


def disturb(harness, at, kind, expected, first_save):
    """What is wrong after call number `at` failed; None if nothing is."""
    harness.clear()
    number = "kill" if kind == "kill" else getattr(errno, kind)
    ran = harness.run([], AT=at, KIND=number)
    if kind == "EINTR" and ran.returncode != 0:
        return f"EINTR ended the run: {ran.stderr.strip()}"
    if kind != "kill" and ran.returncode not in (0, 1):
        return f"exit code {ran.returncode}: {ran.stderr.strip()}"
    if ran.returncode == 1 and len(ran.stderr.strip().split("\n")) > 2:
        return f"more than an error and a note: {ran.stderr.strip()}"
    if at > first_save and not harness.has_checkpoint():
        return "no checkpoint is left"
    if ran.returncode != 0:
        finished = harness.finish()
        if finished.returncode != 0:
            return f"does not go on: {finished.stderr.strip()}"
    if harness.result() != expected:
        return "another result than that of the run that nobody disturbed"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("preload")
    parser.add_argument("--kinds", default="kill,ENOSPC,EIO,EINTR")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="inkling-faults-")
    lost = tried = 0
    try:
        harness = Harness(options.program, options.preload, folder)
        count_file = os.path.join(folder, "count")
        whole = harness.run([], COUNT=count_file)
        if whole.returncode != 0:
            sys.exit(f"the run itself fails: {whole.stderr}")
        calls, expected = int(open(count_file).read()), harness.result()
        first_save = calls // 2  # the saves at steps 4 and 8 are done by then
        for kind in options.kinds.split(","):
            start = random.Random(options.seed).randrange(options.every)
            for at in range(start, calls, options.every):
                tried += 1
                why = disturb(harness, at, kind, expected, first_save)
                if why is not None:
                    lost += 1
                    print(f"{kind} at call {at} of {calls}: {why}", flush=True)
    finally:
        shutil.rmtree(folder)
    print(f"{tried} positions of {calls} calls, {lost} at which something was lost")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
