#!/usr/bin/env python3
"""Damages the files of a run at random, and resumes it: is anything lost, or wrong unseen?

    tests/faults/corruptions.py PROGRAM [--count N] [--seed S]

Of a run with a last checkpoint and the one before, one is damaged: bits, pieces, lengths, names.
The run must go on from the other one, and its result must be that of the run that nobody
disturbed, to the bit. Where both are damaged, one plain error must say so. Ends with 1 if not.
"""
import argparse
import os
import random
import shutil
import sys

from harness import FILES, HALF, Harness, words_of_error


def damage_bytes(dice, path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at, length = dice.randrange(len(data)), dice.choice([1, 2, 8, 64, 512])
    kind = dice.choice(["bit", "zeros", "noise", "cut", "longer", "moved", "without", "empty"])
    if kind == "bit":
        data[at] ^= 1 << dice.randrange(8)
    elif kind == "zeros":
        data[at:at + length] = bytes(len(data[at:at + length]))
    elif kind == "noise":
        data[at:at + length] = dice.randbytes(len(data[at:at + length]))
    elif kind == "cut":
        del data[at:]
    elif kind == "longer":
        data += dice.randbytes(length)
    elif kind == "moved":
        data = data[at:] + data[:at]
    elif kind == "without":
        del data[at:at + length]
    else:
        data.clear()
    with open(path, "wb") as file:
        file.write(data)
    return kind


def damage(dice, folder, other):
    """Says what it did."""
    name = dice.choice(FILES)
    path = os.path.join(folder, name)
    kind = dice.randrange(10)
    if kind == 0:
        os.remove(path)
        return f"{name} is gone"
    if kind == 1:
        os.remove(path)
        os.mkdir(path)
        return f"{name} is a folder"
    if kind == 2 and other:
        shutil.copyfile(os.path.join(other, name), path)
        return f"{name} is that of the other checkpoint"
    if kind == 3:
        os.remove(path)
        os.mkfifo(path)
        return f"{name} is a pipe"
    return f"{name}: {damage_bytes(dice, path)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    wrong = 0
    with Harness(options.program) as harness:
        harness.whole(steps=HALF)
        half = harness.keep("half")
        expected = harness.whole("--init_from", "resume")
        for _ in range(options.count):
            harness.put(half)
            last, before = (os.path.join(harness.out, name) for name in ("ckpt", "ckpt.prev"))
            which = dice.choice(["last", "before", "both"])
            told = damage(dice, last, before) if which != "before" else ""
            told += " " + damage(dice, before, None) if which != "last" else ""
            ran = harness.run("--init_from", "resume")
            why = words_of_error(ran)
            if why is None and ran.returncode != 0 and which != "both":
                why = ran.stderr.strip()
            # Some damage is harmless (zeros over zeros): then the run goes on from both.
            if why is None and ran.returncode == 0 and harness.result()[0] != expected[0]:
                why = "another result than that of the run that nobody disturbed"
            if why is not None:
                wrong += 1
                print(f"{which}: {told}: {why}", flush=True)
    print(f"{options.count} corruptions, {wrong} with which something was lost or wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
