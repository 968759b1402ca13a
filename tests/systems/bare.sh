#!/usr/bin/env bash
# The README's two commands on a system that has nothing but git, as a newcomer sees them.
# shellcheck disable=SC2317  # it takes exec for the end
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/systems/bare.sh SUITE [options] [-- options for train]

  SUITE              a suite of Debian or Ubuntu: bookworm, trixie, jammy, noble, ...
  --user             as a user who has sudo without a password; otherwise as root
  --path FOLDER      the checkout's folder within the home folder       (ink)
  --cxx CXX          the compiler                                       (the system's c++)
  --packages "A B"   install these first
  --only train|test  leave the other out
  --offline          without a network: a run that must fail, and say why
  --work FOLDER      keeps bare systems and logs                        (/var/tmp/inkling-bare)

It makes the bare system once with debootstrap, and copies it for each run. It clones HEAD of this
checkout there. It checks exit codes, that nothing warns, and that a second run has nothing to do.
MIRROR names the archive's address. Ubuntu's suites need it, and on Debian Ubuntu's package
ubuntu-keyring. Needs root and the network.
TEXT
}

usage_error() { echo "bare.sh: $1" >&2; usage >&2; exit 2; }
say() { printf '%s: %s\n' "$suite" "$*"; }

checkout=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
suite='' user=root path=ink cxx='' packages='' only='' offline='' work=/var/tmp/inkling-bare
all=("$@")
while [[ $# -gt 0 ]]; do
  case $1 in
    --user) user=newcomer ;;
    --offline) offline=1 ;;
    --path | --cxx | --packages | --only | --work)
      [[ $# -ge 2 ]] || usage_error "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift ;;
    --help | -h) usage; exit ;;
    --) shift; break ;;
    -*) usage_error "there is no option $1" ;;
    *) suite=$1 ;;
  esac
  shift
done
[[ -n $suite ]] || usage_error "SUITE is missing"
# In a mount namespace of its own, which takes its mounts along when it ends.
[[ -n ${INKLING_BARE:-} ]] || INKLING_BARE=1 exec unshare --mount "$0" "${all[@]}"

mkdir -p "$work"
work=$(realpath "$work") root=$work/$suite-run log=$work/$suite

make_system() {
  local options=(--variant=minbase '--include=ca-certificates,git') like=sid script=''
  [[ ${MIRROR:-} != *ubuntu* ]] ||
    { like=jammy; options+=('--components=main,universe'); }  # what Ubuntu's installers switch on
  [[ -e /usr/share/debootstrap/scripts/$suite ]] || script=/usr/share/debootstrap/scripts/$like  # a newer suite
  say "making a bare system"
  rm -rf "$work/$suite.part"
  # shellcheck disable=SC2086  # no script: no argument
  debootstrap "${options[@]}" "$suite" "$work/$suite.part" "${MIRROR:-}" $script >"$log.log" ||
    { say "debootstrap failed, see $log.log"; exit 1; }
  mv "$work/$suite.part" "$work/$suite"
}

# inside USER COMMAND: on the bare system, without a terminal.
inside() {
  local by=() home=/root
  [[ $1 == root ]] || by=(--userspec="$1") home=/home/$1
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" ${cxx:+CXX="$cxx"} \
    ${offline:+unshare --net} chroot "${by[@]}" "$root" bash -c "cd && $2" </dev/null 2>&1
}

prepare() {
  local offline=''
  [[ -d $work/$suite ]] || make_system
  rm -rf --one-file-system "$root"
  cp -a "$work/$suite" "$root"
  cat /etc/resolv.conf >"$root/etc/resolv.conf"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  if [[ $user != root ]]; then
    inside root "useradd -m -s /bin/bash $user"
    packages+=' sudo'
    mkdir -p "$root/etc/sudoers.d"
    echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
  fi
  [[ -z $packages ]] ||
    inside root "apt-get -qq update && apt-get -qq -y install $packages" >"$log.log"
  git -C "$checkout" bundle create -q "$root/srv/ink" HEAD
  inside "$user" "git clone -q /srv/ink '$path'" >"$log.log"
}

# first PATTERN FILE: seconds before the first line that matches.
first() { grep -m1 -E -- "$1" "$2" | cut -d' ' -f1 || true; }

failed=0
# check CONDITION NAME [PATTERN]: a failure names the log, and shows what of it matches.
check() {
  if eval "$1"; then return; fi
  failed=1
  say "FAILED: $1, see $log-$2.log"
  [[ -z ${3:-} ]] || grep -iE -m 9 -- "$3" "$log-$2.log" || true
}

# run NAME ARGUMENTS: one command of run.sh; each line is logged with seconds since the start.
run() {
  local begin=$EPOCHREALTIME line code file=$log-$1.log
  set +e
  inside "$user" "'$path/run.sh' $2" | while IFS= read -r line; do
    printf '%.1f %s\n' "$(bc <<<"$EPOCHREALTIME - $begin")" "$line"
  done >"$file"
  code=${PIPESTATUS[0]}
  set -e
  say "run.sh $2: exit $code, first line after $(first . "$file") s, building from" \
      "$(first ' Building' "$file") s, last line after $(tail -n1 "$file" | cut -d' ' -f1) s"
  return "$code"
}

has() { grep -qiE -- "$1" "$log-$2.log"; }

prepare
if [[ -n $offline ]]; then
  check '! run offline info' offline
  tail -n 1 "$log-offline.log"
elif [[ $only != test ]]; then
  check "run train 'train $*'" train 'error|failed'
  check '! has "warning" train' train warning
  check "run again 'train --max_iters 1 --out_dir again'" again 'error|failed'
  check '! has " (Installing|Building)" again' again 'Installing|Building'
fi
if [[ -z $offline && $only != train ]]; then
  check 'run test test' test '\(Failed\)|\(Timeout\)|FAILED|error:'
  check '! has "warning" test' test warning
fi
[[ -n $offline ]] || inside root 'c++ --version | head -n 1; cmake --version | head -n 1'
exit $failed
