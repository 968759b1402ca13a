#!/usr/bin/env bash
# The normaliser NFC of tokenizers knows the marks of Unicode 9, and none that came later.
#
# NFC sorts the marks after a letter by their combining class. A mark that is newer than Unicode 9
# (2016) counts as a letter for tokenizers, so marks before and after it stay where they are.
# Python and utf8proc sort them. tokenizer.json says "NFC" and no version, so a model that was
# trained with it (Qwen's, for example) has seen other ids than another implementation gives.
#
# Seen with tokenizers 0.23.3, for q, U+0301 (class 230) and a mark of class 220:
#   U+0323, Unicode 1.1     sorted by both
#   U+1DF9, Unicode 10      sorted by Python, left by tokenizers
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q tokenizers==0.23.3 2>"$work/log" || { cat "$work/log"; exit 1; }

cat >"$work/sort.py" <<'PYTHON'
import unicodedata

from tokenizers.normalizers import NFC

for mark in ("\u0323", "\u1df9"):
    text = "q\u0301" + mark
    is_sorted = "q" + mark + "\u0301"
    for name, normalised in (("Python", unicodedata.normalize("NFC", text)), ("tokenizers", NFC().normalize_str(text))):
        print(f"U+{ord(mark):04X} {name}: {'sorted' if normalised == is_sorted else 'left' if normalised == text else 'other'}")
PYTHON
seen=$("$work/venv/bin/python" "$work/sort.py")
printf '%s\n' "$seen"
expected='U+0323 Python: sorted
U+0323 tokenizers: sorted
U+1DF9 Python: sorted
U+1DF9 tokenizers: left'
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
