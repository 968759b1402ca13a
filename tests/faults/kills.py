#!/usr/bin/env python3
"""Kills a training at random times, and goes on, until it comes to its end: is anything lost?

    tests/faults/kills.py PROGRAM [--count N] [--seed S]

The result must be that of the run never killed, to the bit. One time in four the program
gets Ctrl-C, a lost connection or SIGTERM shortly before, so that it is killed while it saves. Ends with 1 if anything
was lost.
"""
import argparse
import random
import signal
import subprocess
import sys
import time

from harness import Harness, words_of_error

STEPS = 100


def run_and_kill(harness, dice, whole_time, resumed):
    """True if the run came to its end before it was killed."""
    more = ["--init_from", "resume"] if resumed else ["--overwrite"]
    process = subprocess.Popen(harness.command(*more), stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env=harness.environment())
    time.sleep(dice.uniform(0, whole_time))
    if dice.randrange(4) == 0:
        process.send_signal(dice.choice([signal.SIGINT, signal.SIGHUP, signal.SIGTERM]))
        time.sleep(dice.uniform(0, 0.02))
    process.kill()
    error = process.communicate()[1]
    if process.returncode not in (0, -signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP,
                                  -signal.SIGTERM, 129, 130, 143):
        raise RuntimeError(f"exit code {process.returncode}: {error.strip()}")
    return process.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    kills = ends = lost = 0
    with Harness(options.program, STEPS) as harness:
        begin = time.monotonic()
        expected = harness.whole()
        whole_time = time.monotonic() - begin
        while kills < options.count:
            harness.clear()
            for _ in range(8):  # then it may go on to its end
                kills += 1
                try:
                    if run_and_kill(harness, dice, whole_time / 2, harness.has_checkpoint()):
                        break
                except RuntimeError as error:
                    lost += 1
                    print(error, flush=True)
            ran = harness.finish()
            ends += 1
            why = words_of_error(ran) or (ran.stderr if ran.returncode else None)
            if why is None and harness.result() != expected:
                why = "another result than that of the run never killed"
            if why is not None:
                lost += 1
                print(why, flush=True)
    print(f"{kills} kills at random times of {ends} runs, {lost} at which something was lost")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
