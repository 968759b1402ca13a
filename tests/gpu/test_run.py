"""What of tests/gpu can be tested without a card: python3 tests/gpu/test_run.py"""

import io
import os
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts  # noqa: E402
import run  # noqa: E402
import summary  # noqa: E402


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def write(self, path, text="", executable=False):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)
        return path


class Libraries(Folder):
    def setUp(self):
        super().setUp()
        self.write("build/inkling", "ELF...libcublasLt.so.77\0...", executable=True)
        for name, value in (("CUDA_FOLDERS", [str(self.folder / "cuda")]), ("missing_libraries", lambda *_: [])):
            patched = mock.patch.object(run, name, value)
            patched.start()
            self.addCleanup(patched.stop)

    def path(self):
        with mock.patch.object(sys, "path", [str(self.folder / "dist-packages")]), mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/mine"}):
            return run.library_path(self.folder / "build").split(":")

    def test_cublas_is_found_though_ldd_does_not_miss_it(self):
        self.write("cuda/libcublasLt.so.77")
        self.assertEqual(self.path(), [str(self.folder / "cuda"), "/mine"])

    def test_cublas_of_a_wheel(self):
        for package in ("cu13", "cublas"):
            library = self.write(f"dist-packages/nvidia/{package}/lib/libcublasLt.so.77")
            self.assertEqual(self.path(), [str(library.parent), "/mine"])
            library.unlink()

    def test_no_cublas(self):
        with self.assertRaises(SystemExit) as error:
            self.path()
        self.assertIn("libcublasLt.so.77 is not in", str(error.exception))

    def test_what_came_with_the_programs_is_first(self):
        self.write("build/lib/libother.so")
        self.write("cuda/libcublasLt.so.77")
        self.assertEqual(self.path()[0], str(self.folder / "build/lib"))


class Archive(Folder):
    def test_is_unpacked_by_any_python(self):
        program = self.write("inkling", executable=True)
        archive = self.folder / "gpu.tar.xz"
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(program, "inkling")
        for scratch in ("new", "old"):
            (self.folder / scratch).mkdir()
        self.assertTrue((run.unpacked(archive, self.folder / "new") / "inkling").exists())
        plain = tarfile.TarFile.extractall

        def of_old(self, path, **filters):
            assert not filters, "extractall() got an unexpected keyword argument"
            plain(self, path)

        data_filter = getattr(tarfile, "data_filter", None)
        if data_filter:
            del tarfile.data_filter
        try:
            with mock.patch.object(tarfile.TarFile, "extractall", of_old):
                self.assertTrue((run.unpacked(archive, self.folder / "old") / "inkling").exists())
        finally:
            if data_filter:
                tarfile.data_filter = data_filter


class Summary(Folder):
    def test_needs_no_git(self):
        with mock.patch.object(summary.subprocess, "run", side_effect=FileNotFoundError):
            summary.write({"device": "none", "small": True, "parts": {}}, self.folder)
        self.assertIn("commit unknown", (self.folder / "summary.md").read_text())


class Programs(Folder):
    def job(self, **more):
        log = io.StringIO()
        made = parts.Job(self.folder, self.folder, self.folder, self.folder, dict(os.environ), log, True, 60)
        made.__dict__.update(more)
        return made, log

    def test_are_told_where_the_program_is(self):
        self.write("tests/test_cuda_x", '#!/bin/sh\necho "program: $INKLING_PROGRAM"\n', executable=True)
        self.write("inkling", "#!/bin/sh\nexit 1\n", executable=True)
        job, log = self.job()
        parts.tests(job)
        self.assertIn(f"program: {self.folder}/inkling\n", log.getvalue())

    def test_are_sanitized_with_a_cudamalloc_a_tensor(self):
        for name in parts.SANITIZED_SMALL:
            self.write(f"tests/{name}", '#!/bin/sh\necho "  Listed"\n', executable=True)
        lines = r'echo "$2 $7 $INKLING_CUDA_ALLOCATOR"; echo "[       OK ] X (1 ms)"; echo "ERROR SUMMARY: 0 errors"; echo "RACECHECK SUMMARY: 0 hazards"'
        tool = self.write("compute-sanitizer", f"#!/bin/sh\n{lines}\n", executable=True)
        job, log = self.job()
        with mock.patch.object(parts, "find_sanitizer", lambda: str(tool)), mock.patch.object(parts, "cpus", lambda: 1):
            parts.sanitizer(job)
        self.assertEqual((job.status, job.note), ("ok", ""))
        self.assertEqual(job.data["tools"]["racecheck"]["tests"], len(parts.SANITIZED_SMALL))
        self.assertEqual(job.data["tools"]["racecheck"]["wanted"], len(parts.SANITIZED_SMALL))
        for name in parts.SANITIZED_SMALL:
            self.assertIn(f"initcheck {self.folder}/tests/{name} direct\n", log.getvalue())


if __name__ == "__main__":
    unittest.main()
