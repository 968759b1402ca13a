#!/usr/bin/env bash
# ./run.sh new: begins an op or a layer. Writes its files, declarations, row and test from a
# template in new/, in which the formula is that of the square: an #error stands wherever the writer
# has to put another one. A template lists every place that an op or a layer of its kind has, as
# parts that begin with one of
#   ==> new file FILE
#   ==> in FILE before REGEX      the last line that matches
#   ==> in FILE among REGEX       lines that match and are sorted
# @op@ stands for the name, @Op@ for the same in PascalCase.
set -euo pipefail
cases=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
checkout=$(dirname "$(dirname "$cases")")
run=${INKLING_RUN:-./run.sh}  # what the user typed

usage() {
  cat <<TEXT
usage: $run new op NAME [--kind rows|elementwise|composed]
       $run new layer NAME

Writes the files, declarations, row and test of an op or a layer. What it computes is left to you:
the build stops at each place that needs your formula. NAME is in snake_case; the layer gated_mlp
is the struct GatedMlp in nn/gated_mlp.h.

  rows          (default) kernels over the last dimension, as autograd/ops/softmax.cpp
  elementwise   one scalar formula: autograd/loops/pointwise.h makes the kernels of both devices
  composed      no kernel: value and gradient are written in public ops

An op outside the library touches no other file: see autograd/ops/README.md.
TEXT
}
misused() {
  printf 'run.sh: %s. Try: %s new --help\n' "$1" "$run" >&2
  exit 2
}

keywords='alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
char16_t char32_t class co_await co_return co_yield compl concept const const_cast consteval
constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq'

# Ends the program if NAME cannot be the name of a new op or layer: $1 stands in code already.
check_name() {
  local word=$1 file taken
  [[ $name =~ ^[a-z][a-z0-9]*(_[a-z0-9]+)*$ ]] ||
    misused "expected a name in snake_case such as soft_sign, got '$name'"
  ((${#name} <= 20)) || misused "expected a name of at most 20 letters, got '$name'"
  [[ " ${keywords//$'\n'/ } " != *" $name "* ]] || misused "'$name' is a keyword of C++"
  for file in "${@:2}"; do
    [[ -e $file ]] || continue
    taken=$(sed 's|//.*||' "$file" | grep -nwm 1 -e "$word" | cut -d : -f 1) || true
    [[ -z $taken ]] || misused "the name '$word' is taken: $file:$taken"
  done
}

# staged FILE: its copy in the work folder, made at the first call.
staged() {
  if [[ ! -e $work/$1 ]]; then
    mkdir -p "$work/$(dirname "$1")"
    cp "$1" "$work/$1"
    edited+=("$1")
  fi
}

# insert TEXT FILE MODE REGEX: puts the text's lines into the staged FILE.
insert() {
  local text=$1 file=$2 first
  staged "$file"
  first=$(MODE=$3 REGEX=$4 LINE=$(head -n 1 "$text") awk '
    $0 ~ ENVIRON["REGEX"] {
      if (ENVIRON["MODE"] == "before") at = NR
      else if ($0 < ENVIRON["LINE"]) at = NR + 1
      else if (!at) at = NR
    }
    END { print at + 0 }' "$work/$file")
  ((first > 0)) || {
    say "run.sh: nothing was written, because $file lacks a line that new/$template.txt expects: $4"
    exit 1
  }
  { head -n "$((first - 1))" "$work/$file"; cat "$text"; tail -n "+$first" "$work/$file"; } \
    >"$work/whole"
  mv "$work/whole" "$work/$file"
}

say() { printf '%s\n' "$*" >&2; }

# Makes the places of the template in the work folder.
stage() {
  local part parts=0 head words
  sed -e "s/@op@/$name/g" -e "s/@Op@/$pascal/g" "$cases/new/$template.txt" |
    awk -v to="$work/part" '/^==> / { ++n } { print >(to n) }'
  while part=$work/part$((++parts)); [[ -e $part ]]; do
    read -ra words <"$part"
    head=$(head -n 1 "$part")
    sed -i 1d "$part"
    if [[ ${words[1]} == new ]]; then
      [[ ! -e ${words[3]} ]] || misused "${words[3]} exists already"
      mkdir -p "$work/$(dirname "${words[3]}")"
      mv "$part" "$work/${words[3]}"
      created+=("${words[3]}")
    else
      insert "$part" "${words[2]}" "${words[3]}" "${head#* "${words[3]}" }"
    fi
  done
}

undo() {
  local file
  for file in "${edited[@]}"; do cp "$work/$file.before" "$file"; done
  for file in "${created[@]}"; do [[ ! -f $file ]] || rm "$file"; done
  say "run.sh: nothing was written, because $1 could not be. The lines above say why."
  exit 1
}

# Puts everything into the checkout, or nothing.
install_staged() {
  local file
  for file in "${edited[@]}"; do cp -p "$file" "$work/$file.before"; done
  for file in "${edited[@]}" "${created[@]}"; do cp "$work/$file" "$file" || undo "$file"; done
}

# Prints each place, with the lines that are new in it.
report() {
  local file
  echo "Written:"
  for file in "${created[@]}"; do echo "  $file:1"; done
  for file in "${edited[@]}"; do
    diff -U 0 "$work/$file.before" "$file" | sed -nE "s|^@@ .* \\+([0-9]+).*|  $file:\\1|p" || true
  done
  echo
  echo "Yours to write; the build stops at each of these lines:"
  grep -n "^#error \"\($name\|$pascal\): " "${created[@]}" "${edited[@]}" |
    sed -E 's/:#error "[^:]*:(.*), then delete.*/:\1/; s/^/  /'
  echo "Say also in the comments what it computes."
  echo
  echo "Then: $run test $name"
  if [[ $what == op ]]; then
    echo "Last: the op's name in the table of autograd/ops/README.md, and a line in CHANGELOG.md"
  else
    echo "Last: the layer's name in the table of nn/README.md, and a line in CHANGELOG.md"
  fi
}

what=${1:-} name=${2:-} template=rows
case $what in
  --help | -h | '') usage; [[ -n $what ]] || exit 2; exit 0 ;;
  op | layer) ;;
  *) misused "new makes an op or a layer, got '$what'" ;;
esac
[[ -n $name ]] || misused "new $what needs a name"
[[ $name != --help ]] || { usage; exit 0; }
case $what:$#:${3:-}:${4:-} in
  op:2:* | op:4:--kind:rows) ;;
  op:4:--kind:elementwise | op:4:--kind:composed) template=$4 ;;
  op:3:--kind=rows: | op:3:--kind=elementwise: | op:3:--kind=composed:) template=${3#--kind=} ;;
  layer:2:*) template=layer ;;
  *) misused "there is no option '${*:3}' of new $what" ;;
esac
cd "$checkout"
pascal=''
for word in ${name//_/ }; do pascal+=${word^}; done
if [[ $what == op ]]; then
  [[ ! -e autograd/ops/$name.cpp ]] || misused "autograd/ops/$name.cpp exists already"
  check_name "$name" autograd/*.h autograd/{base,memory,engine,loops,kernels}/*.h \
    autograd/ops/unary.cpp train/cases/*.h train/cases/op_cases.cpp
else
  check_name "$pascal" autograd/*.h autograd/{base,memory,engine}/*.h nn/*.h \
    train/cases/module_cases.{h,cpp}
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
created=() edited=()
stage
install_staged
report
