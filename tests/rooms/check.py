#!/usr/bin/env python3
"""Checks every #include against rooms.txt, and counts the lines of each room.

Fails when a file includes one that its room may not include, when a file belongs to no room, when a
room names one below it, or when the core has grown by more than 2 % over core_lines. --update writes
core_lines anew: do that in the commit that grows the core, and say there why.

Fails also when a kernel's CUDA definition does not stand in the file named like its CPU one, when a
kernel takes more than eight arguments, and when autograd/ or ops/ hold too many files. And when a
file outside tests/ writes or reads numbers as the program's locale says.
"""
import os
import re
import subprocess
import sys

SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".inc")
GROWTH = 1.02
MOST_FILES = {"autograd": 20, "autograd/ops": 50}
MOST_ARGUMENTS = 8


class Room:
    def __init__(self, name, is_core, paths, sees):
        self.name, self.is_core, self.paths, self.sees = name, is_core, paths, sees
        self.files = self.lines = 0


def read_rooms(file):
    """The rooms in order, and the recorded lines of the core."""
    rooms, core_lines = [], None
    for number, line in enumerate(open(file), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("core_lines"):
            core_lines = int(line.split("=")[1])
            continue
        match = re.fullmatch(r"(core\s+)?(\w+)\s*=\s*([^:]*):(.*)", line)
        if not match:
            sys.exit(f"{file}:{number}: expected 'room = files : rooms', got '{line}'")
        above = [room.name for room in rooms]
        sees = above if match[4].split() == ["all"] else match[4].split()
        for name in sees:
            if name not in above:
                sys.exit(f"{file}:{number}: {match[2]} may include only rooms above it, got {name}")
        rooms.append(Room(match[2], bool(match[1]), match[3].split(), set(sees)))
    return rooms, core_lines


def room_of(path, rooms):
    """The room that names the path most closely; None if none does."""
    best, length = None, -1
    for room in rooms:
        for prefix in room.paths:
            fits = path.startswith(prefix) if prefix.endswith("/") else path == prefix
            if fits and len(prefix) > length:
                best, length = room, len(prefix)
    return best


def code_lines(text):
    """Lines that are neither empty nor comment."""
    return sum(1 for line in text.split("\n") if line.strip() and not line.strip().startswith("//"))


def definitions(files, folders):
    """By kernel: the files in `folders` that define a function of its name at the start of a line."""
    found = {}
    for path in files:
        if not path.startswith(folders) or not path.endswith((".cpp", ".cu")):
            continue
        for match in re.finditer(r"^(?:void|bool) (\w+)\(", open(path).read(), re.M):
            found.setdefault(match[1], set()).add(os.path.splitext(os.path.basename(path))[0])
    return found


def kernel_faults(files):
    """What is wrong with the kernels that autograd/kernels/ declares."""
    cpu = definitions(files, ("autograd/ops/", "autograd/gemm/", "autograd/loops/"))
    cuda = definitions(files, ("cuda/",))
    count = 0
    for path in files:
        if not path.startswith("autograd/kernels/") or path.endswith("kernel.h"):
            continue
        for kind, name, rest in re.findall(r"^(KERNEL\w*)\((\w+),(.*?)\)$", open(path).read(), re.M | re.S):
            count += 1
            if rest.count(",") + 1 > MOST_ARGUMENTS:
                yield f"{path}: {name} takes more than {MOST_ARGUMENTS} arguments; give it a struct"
            if kind in ("KERNEL", "KERNEL_STRIDED") and not cpu.get(name, set()) & cuda.get(name, set()):
                yield (f"{path}: {name} is defined in {sorted(cpu.get(name, []))} for the CPU and in "
                       f"{sorted(cuda.get(name, []))} for CUDA; expected one file name: write the "
                       "twin in cuda/, or declare the kernel with KERNEL_CPU")
    if count == 0:
        yield "autograd/kernels/: found no kernels"


def locale_faults(files):
    """Streams and functions of C that follow a locale. Examples are programs of their own."""
    pattern = re.compile(r"std::[io]?stringstream|std::sto(?:f|d|ld)\b|\bstrto(?:f|d|ld)\(|"
                         r"printf\([^;]*%[-+ #0-9.*]*[aefgAEFG]")
    for path in files:
        if path.startswith(("tests/", "train/lessons/examples/")) or path == "autograd/base/text.h":
            continue
        for match in pattern.finditer(open(path).read()):
            yield (f"{path}: {match[0][:40]} follows the program's locale; take TextStream, fmt, "
                   "detail::joined or parse_number")


def folder_faults():
    for folder, most in MOST_FILES.items():
        count = sum(os.path.isfile(os.path.join(folder, name)) and name != "README.md"
                    for name in os.listdir(folder))
        print(f"{folder}: {count} files, at most {most}")
        if count > most:
            yield f"{folder}: {count} files, expected at most {most}; find a room for some"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    os.chdir(root)
    table = os.path.join(here, "rooms.txt")
    rooms, recorded = read_rooms(table)
    files = [f for f in find_files() if f.endswith(SUFFIXES)]
    faults = []
    for path in files:
        room = room_of(path, rooms)
        if room is None:
            faults.append(f"{path}: belongs to no room of rooms.txt")
            continue
        text = open(path).read()
        room.files += 1
        room.lines += code_lines(text)
        for number, line in enumerate(text.split("\n"), 1):
            include = re.match(r'\s*#\s*include\s*(["<])(?:inkling/)?([^">]+)', line)
            if not include:
                continue
            target = include[2]
            if include[1] == '"' and not os.path.exists(target):  # beside the file that includes it
                target = os.path.normpath(os.path.join(os.path.dirname(path), target))
            other = room_of(target, rooms)
            if other is None or other is room or other.name in room.sees:
                continue
            faults.append(f"{path}:{number}: {room.name} may not include {target} ({other.name})")
    faults += kernel_faults(files)
    faults += locale_faults(files)
    faults += folder_faults()
    core = sum(room.lines for room in rooms if room.is_core)
    for room in rooms:
        print(f"{room.name:10} {room.files:4} files {room.lines:6} lines{'  core' * room.is_core}")
    print(f"{'core':10} {'':10} {core:6} lines, {recorded} recorded")
    if "--update" in sys.argv:
        text = re.sub(r"core_lines = \d+", f"core_lines = {core}", open(table).read())
        open(table, "w").write(text)
    elif core > GROWTH * recorded:
        faults.append(f"the core has grown from {recorded} to {core} lines: make it smaller, or record "
                      "it (check.py --update) and say why in the commit")
    print(f"{len(faults)} faults")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


def find_files():
    for folder in ("autograd", "cuda", "data", "nn", "train", "tests"):
        for where, _, names in os.walk(folder):
            for name in names:
                yield os.path.join(where, name)


main()
