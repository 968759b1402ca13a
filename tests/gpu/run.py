"""What run.sh starts: the parts that were asked for, one after the other, each in its share of the time.

    tests/gpu/run.sh [--build DIR] [--out DIR] [--seconds N] [--small] [part...]

Writes OUT/summary.md, OUT/summary.json and OUT/log.txt, anew after every part. Exit status: 0 if all parts went well,
1 if one did not (the others are run all the same) or if there is no GPU, 2 for wrong arguments.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import parts
import summary

ROOT = Path(__file__).resolve().parent.parent.parent
# What it runs and its share of the time; what a part leaves over goes to those after it.
PARTS = {
    "tests": (parts.tests, 60),
    "sanitizer": (parts.sanitizer, 110),
    "bench": (parts.bench, 65),
    "kernels": (parts.kernels, 50),
    "attention": (parts.attention, 40),
    "programs": (parts.programs, 90),
    "pytorch": (parts.pytorch, 205),
}
CUDA_FOLDERS = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/cuda/targets/x86_64-linux/lib"]


def fail(text):
    sys.exit(f"tests/gpu/run.sh: {text}")  # status 1


def arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="Everything of inkling that waits for a GPU.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all of them unless named")
    parser.add_argument("--build", type=Path, help="what `cmake --preset gpu` built, or pack.sh's archive of it (build/gpu)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "build/gpu_results")))
    parser.add_argument("--seconds", type=float, default=530, help="for all parts together")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try these scripts on the emulated build")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"there is no part {name}; expected some of {', '.join(PARTS)}")  # status 2
    options.parts = options.parts or list(PARTS)
    if not options.build:
        folder, archive = ROOT / "build/gpu", ROOT / "build/gpu.tar.xz"
        options.build = archive if archive.exists() and not (folder / "inkling").exists() else folder
    return options


def unpacked(build, scratch):
    """The folder with the programs."""
    if build.is_file():
        with tarfile.open(build) as archive:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.10.12 and 3.11.4
            archive.extractall(scratch / "build", **safely)
        build = scratch / "build"
    if not (build / "inkling").exists():
        fail(f"there is no {build}/inkling; build it elsewhere (cmake --preset gpu && cmake --build --preset gpu), bring it along")
    return build.resolve()


def missing_libraries(program, environment):
    done = subprocess.run(["ldd", program], env=environment, capture_output=True, text=True)
    return re.findall(r"^\s*(\S+) => not found", done.stdout, re.M)


def loaded_libraries(program):
    """What a program opens by name when it first needs it, which ldd cannot know: cuBLASLt."""
    return sorted({name.decode() for name in re.findall(rb"libcublasLt\.so\.\d+", program.read_bytes())})


def can_be_loaded(name):
    return subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{name}')"], capture_output=True).returncode == 0


def package_folders():
    """Where PyTorch's wheels put CUDA's libraries: nvidia/cu13/lib, nvidia/cublas/lib."""
    return [folder for place in sys.path if place for folder in sorted(Path(place).glob("nvidia/*/lib"))]


def library_path(build):
    """LD_LIBRARY_PATH for the programs: what came with them, and CUDA's libcublasLt where it is found."""
    folders = [build / "lib", *map(Path, CUDA_FOLDERS), *sorted(Path("/usr/local").glob("cuda-*/lib64")), *package_folders()]
    loaded = loaded_libraries(build / "inkling")
    used = [build / "lib"] if (build / "lib").exists() else []
    for name in [*missing_libraries(build / "inkling", dict(os.environ)), *loaded]:
        found = next((folder for folder in folders if (folder / name).exists()), None)
        if found is None and name in loaded and can_be_loaded(name):
            continue
        if found is None:
            fail(f"{name} is not in {', '.join(map(str, folders))}; LD_LIBRARY_PATH may name its folder")
        used.append(found)
    inherited = [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]
    return ":".join([*dict.fromkeys(map(str, used)), *inherited])


def wrappers(build, path, scratch):
    """Scripts that start our programs with their library path, which must not reach PyTorch."""
    folder = scratch / "bin"
    folder.mkdir()
    for name in ("inkling", "tests/benchmark_ops", "tests/benchmark_programs"):
        script = folder / Path(name).name
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{path}" exec "{build / name}" "$@"\n')
        script.chmod(0o755)
    return folder


def describe_device(job):
    """Ends it all unless there is a GPU that inkling can use."""
    sizes = [part for option, value in parts.SMALL_BENCH.items() for part in (f"--{option}", value)]
    done = job.run([job.build / "inkling", "bench", "--device", "cuda", *sizes, "--profile_steps", 0], seconds=120)
    refused = re.search(r"device: .* is not available: .*", done.text)
    if refused:
        fail(refused.group(0))
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    asked = job.run(query, seconds=20) if shutil.which("nvidia-smi") else None
    if asked and asked.code == 0:
        return asked.text.strip().split("\n")[0]
    shown = re.search(r"^machine\s+(.*?);", done.text, re.M)
    return shown.group(1) if shown else "a device that does not say its name"


def run_part(name, job):
    start = time.monotonic()
    try:
        PARTS[name][0](job)
    except Exception as error:  # of any kind: the other parts are still to be run
        job.status, job.note = "failed", f"{type(error).__name__}: {error}"
    found = {"status": job.status, "note": job.note, "seconds": time.monotonic() - start, "budget": job.budget, **job.data}
    print(f"{name}: {job.status} after {found['seconds']:.0f} s of {job.budget:.0f}{'; ' + job.note if job.note else ''}", flush=True)
    return found


def main():
    options = arguments()
    end = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, open(options.out / "log.txt", "w") as log:
        scratch = Path(name)
        build = unpacked(options.build, scratch)
        path = library_path(build)
        tools = wrappers(build, path, scratch)
        environment = {**os.environ, "LD_LIBRARY_PATH": path} if path else dict(os.environ)

        def job(budget):
            return parts.Job(ROOT, build, tools, scratch, environment, log, options.small, budget)

        results = {"device": describe_device(job(180)), "small": options.small, "parts": {}}
        print(f"device: {results['device']}", flush=True)
        for position, part in enumerate(options.parts):
            shares = [PARTS[later][1] for later in options.parts[position:]]
            budget = (end - time.monotonic()) * shares[0] / sum(shares)
            results["parts"][part] = run_part(part, job(budget))
            summary.write(results, options.out)
    print(f"\nwritten: {options.out}/summary.md, summary.json, log.txt")
    return 0 if all(part["status"] == "ok" for part in results["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
