"""A small training, run as a person would, and what it leaves."""
import errno
import hashlib
import json
import os
import shutil
import subprocess
import tempfile

TRAIN = ("train --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 2 --eval_interval 4 "
         "--eval_iters 1 --log_interval 3 --sample_interval 0 --dropout 0.1 --threads 1 "
         "--lr_decay_iters 12 --final_eval whole").split()
STEPS, HALF = 12, 6
FILES = ["config.json", "model.safetensors", "optimizer.safetensors", "state.json"]


class Harness:
    def __init__(self, program, steps=STEPS):
        self.program, self.steps = os.path.abspath(program), steps
        self.folder = tempfile.mkdtemp(prefix="inkling-faults-")
        self.out = os.path.join(self.folder, "out")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def environment(self, more=None):
        return {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")} | (more or {})

    def command(self, *more, steps=None):
        return [self.program, *TRAIN, "--max_iters", str(steps or self.steps), "--out_dir", self.out,
                *more]

    def run(self, *more, steps=None, environment=None):
        return subprocess.run(self.command(*more, steps=steps), capture_output=True, text=True,
                              errors="replace", env=self.environment(environment), timeout=300)

    def whole(self, *more, steps=None):
        """A run that nobody disturbs."""
        ran = self.run(*more, steps=steps)
        if ran.returncode != 0:
            raise SystemExit(f"the run itself fails: {ran.stderr}")
        return self.result()

    def has_checkpoint(self):
        return any(os.path.exists(os.path.join(self.out, name, "state.json"))
                   for name in ("ckpt", "ckpt.tmp", "ckpt.prev"))

    def result(self):
        """What a finished run leaves, but for times."""
        digest = hashlib.sha256()
        for name in ("ckpt/model.safetensors", "ckpt/optimizer.safetensors", "ckpt/state.json",
                     "best/model.safetensors"):
            with open(os.path.join(self.out, name), "rb") as file:
                digest.update(file.read())
        with open(os.path.join(self.out, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        losses = [(line["step"], line["val_loss"]) for line in lines if "val_loss" in line]
        return digest.hexdigest(), str(losses)

    def finish(self):
        """Goes on as a person would: resumes where there is a checkpoint."""
        return self.run(*(["--init_from", "resume"] if self.has_checkpoint() else ["--overwrite"]))

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def put(self, saved):
        """A folder saved before, as the run's."""
        self.clear()
        shutil.copytree(saved, self.out)

    def keep(self, name):
        saved = os.path.join(self.folder, name)
        shutil.copytree(self.out, saved)
        return saved


def number_of(kind):
    return getattr(errno, kind, kind)


def words_of_error(ran):
    """What is wrong with how a run that failed says so; None if nothing is."""
    if ran.returncode not in (0, 1, 130, 143):
        return f"exit code {ran.returncode}: {ran.stderr.strip()}"
    lines = ran.stderr.strip().split("\n")
    if ran.returncode == 1 and (len(lines) > 4 or "exception" in ran.stderr):
        return f"more than an error and a note: {ran.stderr.strip()}"
    return None
