#!/usr/bin/env bash
# tokenizers learns other merges from a file than from the same text in memory.
#
# ByteLevelBPETokenizer.train(files) feeds the trainer line by line, each with its end, and the
# pattern that cuts texts sees one line at a time. So two line ends side by side are never a piece
# of text, and no merge of them is learned. train_from_iterator([text]) feeds the whole text, and
# learns it. Encoding sees the whole text either way: a vocabulary learned from files spends two
# tokens where one would do. Who compares another implementation with tokenizers has to say which.
#
# Seen with tokenizers 0.23.3:
#   train(files)            no merge of line ends; "one\n\n\ntwo" has 5 tokens
#   train_from_iterator     a merge of line ends;  "one\n\n\ntwo" has 4 tokens
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q tokenizers==0.23.3 2>"$work/log" || { cat "$work/log"; exit 1; }

cat >"$work/learn.py" <<'PYTHON'
import json
import sys

from tokenizers import ByteLevelBPETokenizer

text = "one\n\n\ntwo\n\n\nthree\n\n\nfour\n\n\n" * 50
with open(sys.argv[1], "w", newline="") as file:
    file.write(text)
of_file, of_text = ByteLevelBPETokenizer(), ByteLevelBPETokenizer()
of_file.train([sys.argv[1]], vocab_size=300, show_progress=False)
of_text.train_from_iterator([text], vocab_size=300, show_progress=False)
LINE_END = "\u010a"  # the letter that stands for the byte 10
for name, tokenizer in (("train(files)", of_file), ("train_from_iterator", of_text)):
    merges = json.loads(tokenizer._tokenizer.to_str())["model"]["merges"]
    of_ends = sum(LINE_END in left and LINE_END in right for left, right in merges)
    print(f"{name}: {of_ends} merges of line ends, {len(tokenizer.encode('one' + 3 * chr(10) + 'two').ids)} tokens")
PYTHON
seen=$("$work/venv/bin/python" "$work/learn.py" "$work/text.txt")
printf '%s\n' "$seen"
expected='train(files): 0 merges of line ends, 5 tokens
train_from_iterator: 1 merges of line ends, 4 tokens'
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
