#!/usr/bin/env python3
"""Makes each call that works on a run's files fail, or kills the program there: is anything lost?

    tests/faults/faults.py PROGRAM PRELOAD [--kinds kill,ENOSPC,...] [--every N] [--seed S]

trains a small model, with PRELOAD (preload.cpp) counting its calls; once from scratch, and once
resumed in the middle. Then, for every call (or one of N, from a random one on): the run with that
call failing, and once more to its end. The result must be that of the run that nobody disturbed,
to the bit, and after the first save there must always be a checkpoint. Kinds: kill; an error such
as ENOSPC; full, where the disk stays full from then on; short, where a write takes only a part.
Ends with 1 if anything was lost.
"""
import argparse
import os
import random
import subprocess
import sys

from harness import HALF, Harness, number_of, words_of_error

KINDS = "kill,ENOSPC,EIO,EINTR,full,short"


def disturb(harness, more, kind, at, preload, expected, must_have):
    """What is wrong after call number `at` failed; None if nothing is."""
    environment = {"LD_PRELOAD": preload, "FAULTS_UNDER": harness.out, "FAULTS_AT": str(at),
                   "FAULTS_KIND": str(number_of(kind))}
    ran = harness.run(*more, environment=environment)
    if kind in ("EINTR", "short") and ran.returncode != 0:
        return f"it ended the run: {ran.stderr.strip()}"
    if kind != "kill" and (why := words_of_error(ran)):
        return why
    if must_have and not harness.has_checkpoint():
        return "no checkpoint is left"
    if ran.returncode != 0:
        finished = harness.finish()
        if finished.returncode != 0:
            return f"does not go on: {finished.stderr.strip()}"
    if harness.result() != expected:
        return "another result than that of the run that nobody disturbed"
    return None


def count_calls(harness, more, preload):
    file = os.path.join(harness.folder, "count")
    environment = {"LD_PRELOAD": preload, "FAULTS_UNDER": harness.out, "FAULTS_COUNT": file}
    ran = harness.run(*more, environment=environment)
    if ran.returncode != 0:
        sys.exit(f"the run itself fails: {ran.stderr}")
    with open(file) as text:
        calls, first_save = map(int, text.read().split())
    return calls, first_save


def without_locks(harness, preload):
    """What is wrong where the file system has no locks."""
    for error in ("ENOSYS", "EOPNOTSUPP", "ENOLCK"):
        environment = {"LD_PRELOAD": preload, "FAULTS_UNDER": harness.out,
                       "FAULTS_LOCK": str(number_of(error))}
        prepare = [harness.program, "prepare", "--tokenizer", "byte", "--out_dir", harness.out,
                   __file__]
        for command in (harness.command(), prepare):
            harness.clear()
            ran = subprocess.run(command, capture_output=True, text=True,
                                 env=harness.environment(environment))
            if ran.returncode != 0 or "this file system has no locks" not in ran.stderr:
                return f"{command[1]} with {error}: {ran.returncode}: {ran.stderr.strip()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("preload")
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    preload = os.path.abspath(options.preload)
    dice = random.Random(options.seed)
    lost = tried = 0
    with Harness(options.program) as harness:
        if (why := without_locks(harness, preload)) is not None:
            sys.exit(why)
        harness.clear()
        harness.whole(steps=HALF)
        half = harness.keep("half")
        for begin, more in ((None, []), (half, ["--init_from", "resume"])):
            start = (lambda: harness.put(begin)) if begin else harness.clear
            start()
            calls, first_save = count_calls(harness, more, preload)
            expected = harness.result()
            for kind in options.kinds.split(","):
                for at in range(dice.randrange(options.every), calls, options.every):
                    start()
                    tried += 1
                    must_have = begin is not None or at > first_save
                    why = disturb(harness, more, kind, at, preload, expected, must_have)
                    if why is not None:
                        lost += 1
                        how = "resumed" if begin else "from scratch"
                        print(f"{kind} at call {at} of {calls}, {how}: {why}", flush=True)
    print(f"{tried} faults, {lost} at which something was lost")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
