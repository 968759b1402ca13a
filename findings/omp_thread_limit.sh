#!/usr/bin/env bash
# OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS do not show in omp_get_max_threads().
#
# A program that asks libgomp how many threads a parallel region will have asks
# omp_get_max_threads(), and one that asks whether it is already inside of one asks
# omp_in_parallel(). Under OMP_THREAD_LIMIT=1 the first still says OMP_NUM_THREADS, although each
# team has one thread; and within such a team the second says no. So code that divides its work by
# omp_get_max_threads(), or that starts threads which wait for each other because it is not
# omp_in_parallel(), counts threads that never come. What tells the truth: omp_get_thread_limit(),
# omp_get_max_active_levels(), and omp_get_num_threads() inside the region.
#
# Seen with libgomp as the wheel of scikit-learn 1.5.2 has it, Python 3.11, x86-64:
#   (no limit)               max_threads 2, thread_limit large, max_active_levels large; team of 2, in_parallel 1
#   OMP_THREAD_LIMIT=1       max_threads 2, thread_limit 1, max_active_levels large; team of 1, in_parallel 0
#   OMP_MAX_ACTIVE_LEVELS=0  max_threads 2, thread_limit large, max_active_levels 0; team of 1, in_parallel 0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -q --no-deps --target "$work/packages" scikit-learn==1.5.2 2>"$work/log" ||
  { cat "$work/log"; exit 1; }
library=$(find "$work/packages" -name 'libgomp*.so*' | head -n 1)

cat >"$work/team.py" <<'PYTHON'
import ctypes
import sys

gomp = ctypes.CDLL(sys.argv[1])
seen = []
REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@REGION
def region(_):
    if gomp.omp_get_thread_num() == 0:
        seen.append((gomp.omp_get_num_threads(), gomp.omp_in_parallel()))


def number(n):
    return "large" if n > 1000 else n


gomp.GOMP_parallel(region, None, 0, 0)  # as a compiler calls it for "#pragma omp parallel"
print(f"max_threads {gomp.omp_get_max_threads()}, thread_limit {number(gomp.omp_get_thread_limit())}, "
      f"max_active_levels {number(gomp.omp_get_max_active_levels())}; "
      f"team of {seen[0][0]}, in_parallel {seen[0][1]}")
PYTHON

failed=0
# expect TEXT [VARIABLE=VALUE]
expect() {
  local got
  got=$(env -u OMP_THREAD_LIMIT -u OMP_MAX_ACTIVE_LEVELS -u OMP_DYNAMIC OMP_NUM_THREADS=2 "${@:2}" \
    python3 "$work/team.py" "$library")
  printf '%-24s %s\n' "${2:-(no limit)}" "$got"
  [[ $got == "$1" ]] || { printf '  expected               %s\n' "$1"; failed=1; }
}
expect "max_threads 2, thread_limit large, max_active_levels large; team of 2, in_parallel 1"
expect "max_threads 2, thread_limit 1, max_active_levels large; team of 1, in_parallel 0" OMP_THREAD_LIMIT=1
expect "max_threads 2, thread_limit large, max_active_levels 0; team of 1, in_parallel 0" OMP_MAX_ACTIVE_LEVELS=0
exit $failed
