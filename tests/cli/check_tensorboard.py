#!/usr/bin/env python3
"""Checks by hand what `inkling report --tensorboard` writes, with the package tensorboard:

    pip install tensorboard
    python tests/cli/check_tensorboard.py build/release/inkling

Trains a tiny model, writes its events while it goes on and when it has ended, and reads them as
TensorBoard does: each number of metrics.jsonl once, at its step and its time; the samples as text.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

TRAIN = ("train --n_layer 1 --n_head 1 --n_embd 16 --block_size 16 --batch_size 2 --eval_iters 1 "
         "--eval_interval 10 --log_interval 5 --sample_interval 20 --final_eval off").split()


def tag_of(field, part):
    return f"{part}/{field.removeprefix(part + '_')}"


def expected(run):
    """By tag: [(step, value)]."""
    points = {}
    for line in map(json.loads, open(run / "metrics.jsonl")):
        part = "val" if "val_loss" in line else "train"
        for field, value in line.items():
            if field not in ("step", "val_set", "train_set", "speed_set") and isinstance(value, (int, float)):
                points.setdefault(tag_of(field, part), []).append((line["step"], value))
    return points


def opened(board):
    return EventAccumulator(str(board), size_guidance={"scalars": 0, "tensors": 0})


def check(events, run):
    events.Reload()
    points = expected(run)
    assert sorted(events.Tags()["scalars"]) == sorted(points), events.Tags()
    for tag, values in points.items():
        read = events.Scalars(tag)
        assert [point.step for point in read] == [step for step, _ in values], tag
        for point, (_, value) in zip(read, values):
            assert abs(point.value - value) <= 1e-6 * abs(value), (tag, point, value)
        times = [point.wall_time for point in read]
        assert times == sorted(times) and times[0] > 1.7e9, tag
    texts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("samples")]
    samples = sorted((run / "samples").iterdir())
    assert len(texts) == len(samples), texts
    for text, sample in zip(texts, samples):
        if sample.read_text().isprintable():
            assert text.replace("    ", "").strip() == sample.read_text().replace("    ", "").strip()


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())

    def inkling(*arguments):
        subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        one, other, board, many = (folder / name for name in ("one", "other", "board", "many"))
        inkling(*TRAIN, "--out_dir", one, "--max_iters", 40)
        inkling("report", one, "--tensorboard", board)
        watching = opened(board)
        check(watching, one)
        for steps in (None, 80):  # as before, so that no point is doubled; and further
            if steps:
                inkling(*TRAIN, "--out_dir", one, "--init_from", "resume", "--max_iters", steps)
            inkling("report", one, "--tensorboard", board)
            check(watching, one)
            check(opened(board), one)
        inkling(*TRAIN, "--out_dir", other, "--max_iters", 20)
        inkling("report", one, other, "--tensorboard", many)
        assert sorted(EventMultiplexer().AddRunsFromDirectory(str(many)).Runs()) == ["one", "other"]
        check(opened(many / "one"), one)
        check(opened(many / "other"), other)
    print("passed")


if __name__ == "__main__":
    main()
