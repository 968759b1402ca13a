#!/usr/bin/env bash
# torch: one seed gives other normal numbers to a tensor of 16 elements or more than to a view of it
# that is not contiguous, and other ones at the end of a longer tensor.
#
# Contiguous memory of 16 elements or more is filled in blocks of 16: a block's uniform numbers are
# drawn first, and element i is made of those at i and i + 8. If the size is no multiple of 16, the
# last 16 elements are drawn again, so that they replace some that were there. Any other tensor gets
# its numbers in the order of its memory, as they are drawn. So init.normal_(weight.t()) gives another
# model than init.normal_(weight), a packed weight that is filled part by part may differ from one that
# is filled whole, and randn(33) begins with 17 of randn(32)'s numbers, not with 32. uniform_ has no
# such blocks. A port that draws "PyTorch's numbers" in order is right up to 15 elements.
#
# Seen with torch 2.15.0 on the CPU.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q torch==2.15.0 numpy 2>"$work/log" || { cat "$work/log"; exit 1; }

cat >"$work/normal.py" <<'PYTHON'
import torch


def drawn(tensor, fill):
    torch.manual_seed(0)
    return getattr(tensor, fill)().clone()


for fill in ("normal_", "uniform_"):
    for n in (15, 16, 100):
        whole = drawn(torch.empty(n), fill)
        every_second = drawn(torch.empty(2 * n)[::2], fill)
        print(f"{fill} {n}: every second element gets",
              "the same numbers" if torch.equal(whole, every_second) else "other numbers")
    whole, transposed = drawn(torch.empty(8, 4), fill), drawn(torch.empty(8, 4).t(), fill)
    print(f"{fill} (8, 4): its memory, as that of a transpose, gets",
          "the same numbers" if torch.equal(whole, transposed.t()) else "other numbers")
    shorter, longer = drawn(torch.empty(32), fill), drawn(torch.empty(33), fill)
    print(f"{fill} 33: begins with {int((shorter == longer[:32]).sum())} of the 32 numbers of 32")
PYTHON
seen=$("$work/venv/bin/python" "$work/normal.py" 2>/dev/null)
printf '%s\n' "$seen"
expected='normal_ 15: every second element gets the same numbers
normal_ 16: every second element gets other numbers
normal_ 100: every second element gets other numbers
normal_ (8, 4): its memory, as that of a transpose, gets other numbers
normal_ 33: begins with 17 of the 32 numbers of 32
uniform_ 15: every second element gets the same numbers
uniform_ 16: every second element gets the same numbers
uniform_ 100: every second element gets the same numbers
uniform_ (8, 4): its memory, as that of a transpose, gets the same numbers
uniform_ 33: begins with 32 of the 32 numbers of 32'
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
