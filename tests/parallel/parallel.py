#!/usr/bin/env python3
"""Trains in several processes, as mpirun starts them: is the result that of one process, to the bit?

    tests/parallel/parallel.py PROGRAM [PART...]

PART: same, shards, hidden, wire, resume, differ, dies, hangs, disk, stop, hosts, kills, or kills:100 for so many; all but the
last by default. cuda, or cuda:1 for more: some of that on emulated GPUs, where PROGRAM has them (-DINKLING_CUDA=EMULATED). PROGRAM is built with -DINKLING_MPI=ON. Ends with 1 if anything was wrong.
"""
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from machines import has_namespaces, machines

TRAIN = ("train --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 8 --eval_interval 4 "
         "--eval_iters 3 --log_interval 3 --sample_interval 0 --dropout 0.1 --threads 1 "
         "--lr_decay_iters 12 --max_iters 12 --final_eval whole").split()
# Gradients of some pieces.
LARGER = ("larger", "--n_layer 2 --n_embd 100 --max_iters 4", (3,), 1)
# mpirun reads standard input; as root, and on few cores, it wants to be asked.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
failures = 0


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "OPENBLAS"))}
    return kept | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMP_NUM_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=0"} | more  # Open MPI has some


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120,
                          stdin=subprocess.DEVNULL, env=environment(**more))


def train(*words):
    """TRAIN with further options, which replace those of the same name."""
    kept = [TRAIN[0]]
    for name, value in zip(TRAIN[1::2], TRAIN[2::2]):
        kept += [] if name in words else [name, value]
    return [*kept, *words]


def together(n, *words):
    return [*MPIRUN, "-n", str(n), PROGRAM, *train(*words)]


def differently(n, first, last):
    """n processes, of which the last one has a command of its own. (mpirun has `:` for that, at which 5.0.7 crashes.)"""
    return [*MPIRUN, "-n", str(n), "sh", "-c", f"[ $OMPI_COMM_WORLD_RANK = {n - 1} ] && exec {shlex.join(last)}; exec {shlex.join(first)}"]


def alone(*words):
    return [PROGRAM, *train(*words)]


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def result(out):
    """What a run leaves, but for times and what was asked for."""
    names = ("ckpt/model.safetensors", "ckpt/optimizer.safetensors", "best/model.safetensors")
    lines = [line.split(b'"lr"')[0].split(b'"elapsed_s"')[0]
             for line in read(out, "metrics.jsonl").splitlines()]
    return [read(out, name) for name in names] + lines


def shown(text):
    """The losses that were printed."""
    return [line.split("  lr ")[0].split("  after ")[0].split(", in ")[0] for line in text.splitlines()
            if line.startswith(("step", "validation"))]


def check(name, holds, ran=None):
    global failures
    print(f"{'ok    ' if holds else 'FAILED'} {name}", flush=True)
    if not holds:
        failures += 1
        if ran is not None:
            print(f"exit code {ran.returncode}\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}", flush=True)


def same():
    cases = [("plain", "", (1, 2, 3, 4), 1), ("two parts in each", "", (2,), 2),
             ("accumulation, uneven rows", "--gradient_accumulation_steps 3 --batch_size 7", (2, 4), 1),
             ("bfloat16", "--dtype bfloat16", (2,), 1), ("Llama", "--model llama", (3,), 1),
             ("Muon", "--optimizer muon", (2,), 1), ("an average of the weights", "--ema 0.9", (2,), 1),
             ("two layers, bias, the whole set", "--n_layer 2 --bias true --eval_iters 0", (2,), 1), LARGER]
    same_as_one(cases)


def same_as_one(cases, *many, shared=()):
    """Of n processes of so many parts, which get the options `many`, and of one process."""
    for name, options, sizes, parts in cases:
        for n in sizes:
            with tempfile.TemporaryDirectory() as folder:
                a, b = os.path.join(folder, "one"), os.path.join(folder, "many")
                words = options.split()
                one = run(alone(*words, *shared, "--batch_parts", str(n * parts), "--out_dir", a))
                ran = run(together(n, *words, *shared, *many, "--batch_parts", str(parts), "--out_dir", b))
                check(f"{name}: {n} processes of {parts} parts",
                      one.returncode == ran.returncode == 0 and result(a) == result(b)
                      and shown(one.stdout) == shown(ran.stdout) and not ran.stderr, ran)


def shards():
    """Each process updates its share of the weights."""
    same_as_one([("AdamW, accumulation", "--gradient_accumulation_steps 2 --bias true", (2, 4), 1), LARGER,
                 ("bfloat16", "--dtype bfloat16", (2,), 2), ("Muon, an average", "--optimizer muon --ema 0.9", (3,), 1),
                 ("Lion", "--optimizer lion --learning_rate 1e-3", (2,), 1),
                 ("Llama, Adam, clipped", "--model llama --optimizer adam --grad_clip 0.1", (3,), 1)],
                "--shard_optimizer", "true")
    with tempfile.TemporaryDirectory() as folder:
        whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
        run(alone("--batch_parts", "4", "--out_dir", whole))
        for n, steps, shards in ((2, 4, "true"), (1, 6, "true"), (4, 9, "true"), (2, 12, "false")):
            ran = run(together(n, "--batch_parts", str(4 // n), "--max_iters", str(steps), "--shard_optimizer", shards,
                               *([] if steps == 4 else ["--init_from", "resume"]), "--out_dir", out))
            check(f"goes on in {n} processes", ran.returncode == 0 and "last bits" not in ran.stderr, ran)
        check("the result of one process", result(whole)[:2] == result(out)[:2])


def hidden():
    """Memory, as computed, and what of the travel is hidden."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for shards in ("false", "true"):
            out = os.path.join(folder, shards)
            ran = run(together(2, "--n_layer", "3", "--n_embd", "384", "--max_iters", "4", "--eval_iters", "1",
                               "--final_eval", "off", "--report", "off", "--shard_optimizer", shards, "--out_dir", out))
            check(f"shard_optimizer {shards}", ran.returncode == 0, ran)
            last = [json.loads(line) for line in read(out, "metrics.jsonl").splitlines() if b"memory_mb" in line][-1]
            found[shards] = int(ran.stdout.split("memory  about ")[1].split()[0]), last["memory_mb"]
            check(f"a part of the travel is hidden: {last['wait_ms']:.1f} of {last['travel_ms']:.1f} ms are waited for",
                  0 < last["wait_ms"] < last["travel_ms"])
    computed, measured = (found["false"][i] - found["true"][i] for i in (0, 1))
    # 5.3 million parameters have 43 MB of moments.
    check(f"half of the moments are not held: {computed} MB as computed, {measured:.0f} MB as measured",
          20 <= computed <= 23 and abs(measured - computed) < 6)


def wire():
    """Sums that travel as bfloat16."""
    same_as_one([("plain", "", (4,), 1), LARGER, ("two parts in each", "", (2,), 2),
                 ("accumulation", "--gradient_accumulation_steps 2", (3,), 1)], shared=("--wire_dtype", "bfloat16"))
    same_as_one([("sharded", "--optimizer muon", (2,), 1)], "--shard_optimizer", "true", shared=("--wire_dtype", "bfloat16"))


def resume():
    with tempfile.TemporaryDirectory() as folder:
        whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
        run(alone("--batch_parts", "4", "--out_dir", whole))
        ran = run(together(2, "--batch_parts", "2", "--max_iters", "4", "--out_dir", out))
        check("the first part of a run, in 2 processes", ran.returncode == 0, ran)
        for n, steps in ((3, 7), (1, 9), (4, 12)):
            ran = run(together(n, "--batch_parts", "2", "--max_iters", str(steps), "--init_from",
                               "resume", "--out_dir", out))
            check(f"goes on in {n} processes, and says nothing of other bits",
                  ran.returncode == 0 and "last bits" not in ran.stderr, ran)
        check("the result of one process", result(whole)[:2] == result(out)[:2])
        check("the report says of how many", b'"4 processes, each on ' in read(out, "run.json"))
        ran = run(together(5, "--batch_parts", "2", "--max_iters", "13", "--init_from", "resume",
                           "--out_dir", out))
        check("says once that more processes than parts change bits",
              ran.returncode == 0 and ran.stderr.count("batch_parts 8 (before: 4)") == 1, ran)
    resume_with_threads()


def resume_with_threads():
    """One part of several threads in each process: one process goes on with the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
        wide = ["--threads", "2", "--n_embd", "64", "--block_size", "64"]
        for where, steps in ((whole, "12"), (out, "6")):
            ran = run(together(2, *wide, "--max_iters", steps, "--out_dir", where), OMP_NUM_THREADS="2")
            check("two processes of two threads", ran.returncode == 0 and ", 2 processes of 2 threads;" in ran.stdout, ran)
        ran = run(alone(*wide, "--init_from", "resume", "--out_dir", out))
        check("one process goes on", ran.returncode == 0 and not ran.stderr, ran)
        check("with the same bits", result(whole)[:2] == result(out)[:2])


def differ():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        other = os.path.join(folder, "other")
        with open(other, "wb") as file:
            file.write(read(PROGRAM) + b"\n")
        os.chmod(other, 0o755)
        texts = [os.path.join(folder, name) for name in ("a.txt", "b.txt")]
        for file, word in zip(texts, ("cat", "dog")):
            with open(file, "w") as text:
                text.write(f"a {word} came by.\n" * 400)
        first = [PROGRAM, *TRAIN, "--out_dir", out]

        def fails(name, more, *says, before=first):
            ran = run(differently(3, before, [*more, "--out_dir", out]))
            told = [line for line in ran.stderr.splitlines() if line.startswith("inkling")]
            check(name, ran.returncode == 1 and len(told) == 1 and all(x in told[0] for x in says)
                  and not os.path.exists(os.path.join(out, "ckpt")), ran)

        fails("other settings", [PROGRAM, *TRAIN, "--seed", "2"], "process 2 of 3 on", "seed is 2",
              "process 0 it is 1337")
        fails("another model, with settings of its own", [PROGRAM, *TRAIN, "--model", "llama"], "process 2 of 3 on",
              'model is "llama"', 'process 0 it is "gpt"')
        fails("more layers", [PROGRAM, *train("--n_layer", "2")], "process 2 of 3 on", "n_layer is 2")
        fails("more threads", [PROGRAM, *train("--threads", "2")], "process 2 of 3 on", "threads is 2")
        fails("another program", [other, *TRAIN], "process 2 of 3 on", "the program's checksum")
        fails("other data", [PROGRAM, *TRAIN, "--data", texts[1]], "process 2 of 3 on", "data",
              before=[*first, "--data", texts[0]])
        fails("no data at one", [PROGRAM, *TRAIN, "--data", "none.txt"], "process 2 of 3 on", "none.txt",
              before=[*first, "--data", texts[0]])
        fails("no data at the first", [PROGRAM, *TRAIN, "--data", texts[0]], "none.txt",
              before=[*first, "--data", "none.txt"])
        fails("another command", [PROGRAM, "train", "--print_config"], "process 2 of 3 on", "something else")
        ran = run(together(2, "--no_such_option", "--out_dir", out))
        check("a wrong option is told once", ran.stderr.count("no_such_option") == 1, ran)
        ran = run(together(9, "--out_dir", out))
        check("more processes than rows", ran.returncode == 1 and ran.stderr.count("batch_size of 9") == 1, ran)
        ran = run(together(2, "--out_dir", out), INKLING_PROCESS_TIMEOUT="2m")
        check("a timeout that is no number of seconds", ran.returncode == 1
              and "expected seconds, such as 120, got '2m'" in ran.stderr and not os.path.exists(out), ran)
        for name, job in (("SLURM_PROCID", {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "1", "SLURM_STEPID": "0"}),
                          ("PMI_RANK", {"PMI_SIZE": "2"})):
            each = [run(alone("--out_dir", out), **job, **{name: rank}) for rank in "01"]
            check("processes that nobody connects: one says so", [one.returncode for one in each] == [1, 0]
                  and "started as one of 2 processes, but each" in each[0].stderr and each[0].stderr.count("\n") == 1
                  and not each[1].stderr and not os.path.exists(out), each[0])
        ran = run(alone("--out_dir", out), PMIX_RANK="1")
        check("and another one, if nobody knows of how many", ran.returncode == 0 and not ran.stdout + ran.stderr, ran)
        ran = run(together(2, "--help"))
        check("help is shown once", ran.returncode == 0 and ran.stdout.count("--max_iters") == 1, ran)
        run(alone("--out_dir", out))
        ran = run(differently(3, [*first, "--overwrite"], [other, *TRAIN, "--overwrite", "--out_dir", out]))
        check("a run that did not begin is not gone on with from what was there",
              ran.returncode == 1 and "checksum" in ran.stderr and "to go on" not in ran.stderr, ran)


def ranks(out):
    """By rank, the processes that train in this folder and have not ended."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.fsencode(out) not in read("/proc", pid, "cmdline").split(b"\0"):
                continue
            for entry in read("/proc", pid, "environ").split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(entry.split(b"=")[1])] = int(pid)
        except OSError:
            pass
    return found


class Started:
    """A run that goes on until something ends it."""

    def __init__(self, out, command, **more):
        self.out = out
        # No pipes: what mpirun leaves running would hold them open.
        self.written = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        self.process = subprocess.Popen(command, stdout=self.written[0], stderr=self.written[1],
                                        stdin=subprocess.DEVNULL, env=environment(**more))

    def ends_within(self, seconds, but=()):
        """Do all processes, but those? mpirun of Open MPI 4.1.4 now and then locks itself up after they
        have ended, and waits for minutes for a machine that it cannot reach: then it is killed."""
        deadline = time.monotonic() + seconds

        def some_run():
            return [pid for pid in ranks(self.out).values() if pid not in but]

        while (self.process.poll() is None or some_run()) and time.monotonic() < deadline:
            time.sleep(0.05)
            if self.process.poll() is None and not some_run() and not ranks(self.out):
                deadline = min(deadline, time.monotonic() + 5)
        ended = not some_run()
        for pid in ranks(self.out).values():
            os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            print(f"       mpirun stays although {'all' if ended else 'not all'} processes have ended", flush=True)
            self.process.kill()
        self.returncode = self.process.wait()
        for file in self.written:
            file.seek(0)
        self.stdout, self.stderr = (file.read() for file in self.written)
        return ended


class Long(Started):
    def __init__(self, folder, n, *mpi_options, before=(), evaluations="50", **more):
        out = os.path.join(folder, "out")
        command = together(n, "--max_iters", "1000000", "--eval_interval", evaluations, "--log_interval", "1000",
                           "--out_dir", out)
        command[1:1] = mpi_options
        super().__init__(out, [*before, *command], **more)
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(out, "ckpt", "state.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.ranks = ranks(out)

    def goes_on(self, n):
        return run(together(n, "--init_from", "resume", "--max_iters", "1000000", "--max_minutes", "0.01",
                            "--out_dir", self.out))


def dies():
    for rank in (0, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            long = Long(folder, 3)
            os.kill(long.ranks[rank], signal.SIGKILL)
            check(f"process {rank} dies, and mpirun ends within 10 s and names it",
                  long.ends_within(10) and long.returncode != 0
                  and f"process rank {rank} " in long.stderr, long)
            check("how to go on is said once", long.stderr.count("train --init_from resume --out_dir") == 1
                  and ("process 0 of 3 has ended" in long.stderr) == (rank == 0), long)
            ran = long.goes_on(3)
            check("the run goes on from its last checkpoint", ran.returncode == 0 and "resumed" in ran.stdout, ran)


def hangs():
    for rank in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            long = Long(folder, 3, INKLING_PROCESS_TIMEOUT="2")
            os.kill(long.ranks[rank], signal.SIGSTOP)
            check(f"process {rank} hangs, and the others end within 15 s, name it, and say how to go on",
                  long.ends_within(15, but=[long.ranks[rank]]) and long.returncode != 0
                  and f"no answer from process {rank}\n" in long.stderr and long.stderr.count(": waited") == 1
                  and long.stderr.count("train --init_from resume --out_dir") == 1, long)
            ran = long.goes_on(3)
            check("the run goes on from its last checkpoint", ran.returncode == 0 and "resumed" in ran.stdout, ran)


    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        started = Started(out, together(2, "--out_dir", out), INKLING_PROCESS_TIMEOUT="2")
        deadline = time.monotonic() + 20
        while 1 not in ranks(out) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(ranks(out)[1], signal.SIGSTOP)
        ended = started.ends_within(15)
        check("process 1 hangs while MPI starts: all end within 15 s, and it is said",
              ended and started.returncode != 0 and "waited" in started.stderr, started)
        text, pipe = (os.path.join(folder, name) for name in ("text", "pipe"))
        with open(text, "w") as file:
            file.write("a cat came by.\n" * 400)
        os.mkfifo(pipe)
        command = differently(2, alone("--data", text, "--out_dir", out), alone("--data", pipe, "--out_dir", out))
        started = Started(out, command, INKLING_PROCESS_TIMEOUT="2")
        time.sleep(3)
        check("process 1 hangs at its data: all end within 15 s, and it is named", started.ends_within(15)
              and started.returncode != 0 and "no answer from process 1\n" in started.stderr, started)


def disk():
    """The disk of the process that writes is full: a small one, which only root can make."""
    for shards in ("false", "true"):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            os.mkdir(out)
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", out], capture_output=True).returncode:
                print("left out: no file system can be made here")
                return
            try:
                started = Started(out, together(3, "--max_iters", "1000000", "--shard_optimizer", shards, "--out_dir", out))
                check("a full disk: all processes end within 10 s, its process is named, and how to go on is said",
                      started.ends_within(10) and started.returncode == 1
                      and "process 0 of 3 on" in started.stderr and "No space left on device" in started.stderr
                      and "train --init_from resume --out_dir" in started.stderr, started)
                subprocess.run(["mount", "-o", "remount,size=9m", out], check=True)
                ran = run(together(2, "--init_from", "resume", "--max_iters", "1000000", "--max_minutes", "0.01",
                                   "--out_dir", out))
                check("the last checkpoint stands", ran.returncode == 0 and "resumed" in ran.stdout, ran)
            finally:
                subprocess.run(["umount", "-l", out], check=True)


def stop():
    kills_soon = " 4." not in run(["mpirun", "--version"]).stdout  # Open MPI 5 does, and forgets what is said
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        with tempfile.TemporaryDirectory() as folder:
            # mpirun of Open MPI 4 waits so many seconds before SIGTERM, and as many again before SIGKILL. USR1 it passes on.
            patience = [] if number == signal.SIGUSR1 else ["--mca", "odls_base_sigkill_timeout", "3"]
            long = Long(folder, 3, *patience)
            os.kill(long.process.pid, number)
            check(f"{number.name} saves once and ends", long.ends_within(15)
                  and (long.stdout.count("; saved. To go on") == 1 or (kills_soon and number != signal.SIGUSR1)), long)
            ran = long.goes_on(2)
            check("the run goes on where it stopped", ran.returncode == 0 and "resumed" in ran.stdout, ran)


    with tempfile.TemporaryDirectory() as folder:
        long = Long(folder, 3, evaluations="2000")
        os.kill(long.ranks[2], signal.SIGTERM)
        check("SIGTERM to one process alone saves once and ends, also between evaluations", long.ends_within(15)
              and long.returncode == 128 + signal.SIGTERM and long.stdout.count("; saved. To go on") == 1
              and "000; saved" not in long.stdout and "to go on" not in long.stderr, long)


def hosts():
    if not has_namespaces():
        print("left out: there are no network namespaces here, or they need root")
        return
    with tempfile.TemporaryDirectory() as folder, machines(folder, 3) as (options, before, pull):
        one, many = os.path.join(folder, "one"), os.path.join(folder, "many")
        run(alone("--batch_parts", "3", "--out_dir", one))
        command = together(3, "--out_dir", many)
        command[1:1] = options
        ran = run([*before, *command])
        check("three machines: the bits of one process",
              ran.returncode == 0 and result(one) == result(many), ran)
        long = Long(folder, 3, *options, before=before, INKLING_PROCESS_TIMEOUT="3")
        pull(3)
        # The third machine may wait for the next order, for thirty times as long.
        check("a cable is pulled: the others end, and name the process that does not answer",
              long.ends_within(20, but=[long.ranks[2]]) and "no answer from process 2\n" in long.stderr
              and "--init_from resume" in long.stderr, long)


def kills(count=6):
    """Kills a process at a random time, and goes on, until the run comes to its end."""
    dice = random.Random(count)
    steps = ["--max_iters", "60", "--lr_decay_iters", "60", "--eval_interval", "5"]
    with tempfile.TemporaryDirectory() as folder:
        whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
        one = run(alone(*steps, "--batch_parts", "4", "--out_dir", whole))
        check("the run never disturbed", one.returncode == 0, one)
        killed = 0
        while killed < count:
            subprocess.run(["rm", "-rf", out], check=True)
            ended = False
            while not ended:
                saved = any(os.path.exists(os.path.join(out, "ckpt" + end, "state.json"))
                            for end in ("", ".tmp", ".prev"))
                n, more = (dice.choice((2, 3, 4)), ["--init_from", "resume"]) if saved else (2, ["--overwrite"])
                started = Started(out, together(n, *steps, "--batch_parts", "2", *more, "--out_dir", out))
                if killed < count:
                    time.sleep(dice.uniform(0.2, 0.9))
                    found = list(ranks(out).values())
                    if found:
                        os.kill(dice.choice(found), signal.SIGKILL)
                        killed += 1
                soon = started.ends_within(15)
                ended, told = started.returncode == 0, started.stderr
                check(f"ends soon after kill {killed}" if not ended else "comes to its end",
                      soon and not re.search(r"inkling train: process \d+ of \d+ on", told), started)
                if "inkling" in told and not ended:
                    print(told, flush=True)
            check(f"the result of the run never disturbed, after {killed} kills",
                  result(whole)[:2] == result(out)[:2])


def cuda(whole=0):
    """Emulated GPUs, and a library that stands in for NCCL; whole: minutes under a sanitizer."""
    if "emulated GPU" not in run([PROGRAM, "info"]).stdout:
        print("left out: PROGRAM has no emulated GPU")
        return
    os.environ["INKLING_NCCL"] = os.path.join(os.path.dirname(PROGRAM), "tests", "libnccl_stand_in.so")
    TRAIN[:] = train("--device", "cuda", "--final_eval", "off", "--max_iters", "8", "--eval_interval", "2")
    same_as_one([("bfloat16, an average", "--dtype bfloat16 --ema 0.9", (3,), 1)])
    same_as_one([("sharded moments", "--grad_clip 0.1", (3,), 1)], "--shard_optimizer", "true")
    if whole:
        cuda_whole()
    with tempfile.TemporaryDirectory() as folder:
        def fails(name, says, *words, **more):
            ran = run(together(2, "--overwrite", "--out_dir", os.path.join(folder, "none"), *words), **more)
            check(name, ran.returncode != 0 and says in ran.stderr, ran)

        fails("no NCCL: what to install is said", "several processes on GPUs need NCCL: /none", INKLING_NCCL="/none")
        fails("one GPU for two", "Duplicate GPU detected", INKLING_STAND_IN_DUPLICATE="1")
        fails("a transfer that fails later", " of 2 on ", INKLING_STAND_IN_FAILS="12")


def cuda_whole():
    same_as_one([("AdamW", "", (4,), 1), ("accumulation, two parts", "--gradient_accumulation_steps 2", (2,), 2)])
    same_as_one([("sums in bfloat16", "--optimizer muon", (3,), 1)], shared=("--wire_dtype", "bfloat16"))
    same_as_one([("sharded Muon, an average", "--optimizer muon --ema 0.9", (4,), 1),
                 ("sharded, two parts", "--gradient_accumulation_steps 2", (2,), 2)], "--shard_optimizer", "true")
    # Each tensor that is freed makes its process wait for all of its GPU, and so for transfers under way.
    os.environ["INKLING_CUDA_ALLOCATOR"] = "direct"
    same_as_one([("hosts that wait for their GPUs", "--n_layer 2 --n_embd 360 --block_size 8 --batch_size 4 --max_iters 2 "
                  "--eval_interval 1 --eval_iters 1", (2,), 1)], shared=("--wire_dtype", "bfloat16"))
    del os.environ["INKLING_CUDA_ALLOCATOR"]
    with tempfile.TemporaryDirectory() as folder:
        whole, out = os.path.join(folder, "whole"), os.path.join(folder, "out")
        run(alone("--batch_parts", "4", "--out_dir", whole))
        for n, steps, shards in ((2, 4, "true"), (4, 6, "false"), (2, 7, "true"), (1, 8, "true")):
            ran = run(together(n, "--batch_parts", str(4 // n), "--max_iters", str(steps), "--shard_optimizer", shards,
                               *([] if steps == 4 else ["--init_from", "resume"]), "--out_dir", out))
            check(f"goes on in {n} processes", ran.returncode == 0 and "last bits" not in ran.stderr, ran)
        check("the result of one process", result(whole)[:2] == result(out)[:2])
    hangs()


PROGRAM = os.path.abspath(sys.argv[1])
for part in sys.argv[2:] or ("same", "shards", "hidden", "wire", "resume", "differ", "dies", "hangs", "disk", "stop", "hosts", "kills"):
    name, _, times = part.partition(":")
    globals()[name](*[int(times)] if times else [])
sys.exit(failures > 0)
