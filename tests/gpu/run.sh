#!/usr/bin/env bash
# Device tests, sanitizer, benchmarks and PyTorch side by side, on a machine with an NVIDIA GPU: README.md beside this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
  echo "tests/gpu/run.sh: there is no $python; PYTHON=... names another (one with PyTorch, for what is compared with it)" >&2
  exit 1
fi
exec "$python" tests/gpu/run.py "$@"
