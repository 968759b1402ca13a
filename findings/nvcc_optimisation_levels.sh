#!/usr/bin/env bash
# nvcc's -O0 to -O3 do not change the PTX that it makes.
#
# nvcc takes -O0, -O1, -O2 and -O3 as a C++ compiler does. But it hands none of them to cicc, which
# turns device code into PTX: PTX of -O0 is that of -O3, to the byte, with the loop unrolled in
# both. So a lower level makes no PTX that is easier to read, and device code no quicker to compile.
# cicc listens to -Xcicc: with -Xcicc -O1 the loop below stays a loop. Of a file with many kernels,
# cicc is most of the compile time.
#
# Seen with nvcc 13.0.88 (the wheels of nvidia-cuda-nvcc, nvidia-nvvm and nvidia-cuda-crt 13.0.88),
# g++ 12, x86-64; no GPU is needed:
#   -O0         PTX as with -O3, 5 fused multiply-adds
#   -O1         PTX as with -O3, 5 fused multiply-adds
#   -O2         PTX as with -O3, 5 fused multiply-adds
#   -O3         PTX as with -O3, 5 fused multiply-adds
#   -Xcicc -O1  PTX of its own, 1 fused multiply-adds
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -q --no-deps --target "$work/packages" nvidia-cuda-nvcc==13.0.88 \
  nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 2>"$work/log" ||
  { cat "$work/log"; exit 1; }
nvcc=$(find "$work/packages" -name nvcc -type f)
chmod +x "$nvcc" "$(find "$work/packages" -name cicc -type f)"

cat >"$work/sum.cu" <<'CUDA'
__global__ void sum_of_squares(float* y, const float* x, int n) {
  float total = 0;
  for (int i = 0; i < n; ++i) total += x[i] * x[i];
  *y = total;
}
CUDA

# ptx OPTION...: the PTX without its comments
ptx() {
  "$nvcc" "$@" -arch=compute_80 -ptx -o "$work/sum.ptx" "$work/sum.cu" && grep -v '^//' "$work/sum.ptx"
}

failed=0
usual=$(ptx -O3)
# expect TEXT OPTION...
expect() {
  local own got
  own=$(ptx "${@:2}")
  got="PTX $([[ $own == "$usual" ]] && echo "as with -O3" || echo "of its own")"
  got+=", $(grep -c 'fma\.' <<<"$own") fused multiply-adds"
  printf '%-11s %s\n' "${*:2}" "$got"
  [[ $got == "$1" ]] || { printf '  expected  %s\n' "$1"; failed=1; }
}
for level in -O0 -O1 -O2 -O3; do expect "PTX as with -O3, 5 fused multiply-adds" "$level"; done
expect "PTX of its own, 1 fused multiply-adds" -Xcicc -O1
exit $failed
