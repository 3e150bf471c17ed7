"""Runs the linter over libraries of compiled code: ``python -m tests.tools.lint_libraries PATH ...``.

A path is a cubin, a shared library or a wheel of one (cuobjdump takes the cubins out), or a folder of these. Code that
ships and works should have no error and no warning; what has one is named, with the first examples of its kind.
``--share`` looks at part of the kernels, picked by a hash of their code, so that two runs pick the same ones.
``--check SHARE`` also takes that part of the files apart and puts them together again, as ``turingas check`` does.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tools.nvrtc import package_folders
from turingas.check.finding import Finding
from turingas.check.lint import lint_kernel
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.disassembler import check
from turingas.errors import AsmError, CubinError
from turingas.isa.arch import NAMES

EXAMPLES = 3  # of each kind


def cuobjdump() -> str:
    """The program that takes cubins out of a library (pip install nvidia-cuda-cuobjdump)."""
    places = [folder / "bin" / "cuobjdump" for folder in package_folders("cu13")]
    found = next((str(place) for place in places if place.is_file()), None) or shutil.which("cuobjdump")
    if found is None:
        raise SystemExit("cuobjdump is not installed: pip install nvidia-cuda-cuobjdump")
    return found


def cubins(path: Path) -> Iterator[tuple[str, bytes]]:
    """The cubins of a path for architectures that are known, each with a name."""
    if path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.is_file() and (inner.suffix in (".cubin", ".whl") or ".so" in inner.suffixes):
                yield from cubins(inner)
    elif path.suffix == ".cubin":
        if path.suffixes[-2:-1] == [] or path.suffixes[-2][1:] in NAMES or not path.suffixes[-2].startswith(".sm_"):
            yield path.name, path.read_bytes()
    else:
        with tempfile.TemporaryDirectory() as folder:
            if path.suffix == ".whl":
                with zipfile.ZipFile(path) as wheel:
                    for name in (name for name in wheel.namelist() if ".so" in Path(name).suffixes):
                        yield from cubins(Path(wheel.extract(name, folder)))
            else:
                command = [cuobjdump(), "-xelf", "all", str(path.resolve())]
                subprocess.run(command, cwd=folder, check=False, capture_output=True)
                yield from cubins(Path(folder))


def digest(kernel: Kernel) -> bytes:
    """What tells two kernels apart: their architecture and their code."""
    return hashlib.sha1(kernel.arch.encode() + bytes(kernel.code.data)).digest()


class Totals:
    """What was looked at, and what was found."""

    def __init__(self) -> None:
        self.files = self.kernels = self.instructions = self.checked = 0
        self.seconds = 0.0
        self.found: Counter[tuple[str, str]] = Counter()  # severity and kind
        self.kernels_with: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], list[str]] = {}
        self.unread: list[str] = []
        self.different: list[str] = []  # what `turingas check` says, a line a file
        self.by_arch: Counter[str] = Counter()

    def add(self, name: str, kernel: Kernel, findings: Iterable[Finding], seconds: float) -> None:
        """One kernel of the file ``name``."""
        self.kernels += 1
        self.instructions += len(kernel.words)
        self.by_arch[kernel.arch] += len(kernel.words)
        self.seconds += seconds
        told = set()
        for f in findings:
            key = f.severity, f.kind
            self.found[key] += 1
            told.add(key)
            if f.severity != "note" and len(examples := self.examples.setdefault(key, [])) < EXAMPLES:
                examples.append(f"{name}: {kernel.arch}: {f}")
        self.kernels_with.update(told)

    def __str__(self) -> str:
        rate = self.instructions / self.seconds if self.seconds else 0
        lines = [f"{self.files:,} cubins, {self.kernels:,} kernels, {self.instructions:,} instructions "
                 f"({rate:,.0f} a second)"]  # fmt: skip
        lines += [", ".join(f"{arch} {count:,}" for arch, count in sorted(self.by_arch.items()))]
        for severity in ("error", "warning"):
            found = {key: count for key, count in self.found.items() if key[0] == severity}
            lines.append(f"{severity}s: {sum(found.values()):,}")
            for key, count in sorted(found.items(), key=lambda item: -item[1]):
                lines.append(f"  {key[1]:20} {count:7,} in {self.kernels_with[key]:,} kernels")
        if self.checked:
            lines.append(f"taken apart and put together again: {self.checked:,} files, {len(self.different):,} differ")
        lines += [f"not the same: {what}" for what in self.different]
        lines += [f"cannot be read: {what}" for what in self.unread[:10]]
        for texts in self.examples.values():
            lines += texts
        return "\n".join(lines)


def picked(sha1: bytes, share: float) -> bool:
    """Whether what has this hash is among the part that is looked at."""
    return int.from_bytes(sha1[:4], "big") < share * 2**32


def look(
    paths: Iterable[Path], share: float, largest: int, seen: set[bytes], archs: set[str], to_check: float = 0.0
) -> Totals:
    """Lints kernels of all ``paths``, each once, at most ``largest`` instructions long; takes apart ``to_check`` of the
    files, 0 to 1, and puts them together again."""
    totals = Totals()
    for path in paths:
        for name, data in cubins(path):
            try:
                cubin = Cubin.from_bytes(data)
            except (AsmError, CubinError) as error:
                totals.unread.append(f"{name}: {error}")
                continue
            totals.files += 1
            if picked(hashlib.sha1(data).digest(), to_check) and (not archs or cubin.arch in archs):
                totals.checked += 1
                if differences := check(cubin):
                    totals.different.append(f"{name}: {differences[0]} ({len(differences)} in all)")
            for kernel in cubin.texts:
                key = digest(kernel)
                if key in seen or not picked(key, share) or len(kernel.code) > 16 * largest:
                    continue
                if archs and kernel.arch not in archs:
                    continue
                seen.add(key)
                start = time.process_time()
                findings = lint_kernel(kernel)
                totals.add(name, kernel, findings, time.process_time() - start)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--share", type=float, default=1.0, help="of the kernels, 0 to 1")
    parser.add_argument("--largest", type=int, default=1 << 20, help="instructions of a kernel")
    parser.add_argument("--check", type=float, default=0.0, metavar="SHARE", help="of the files, 0 to 1")
    parser.add_argument("--arch", action="append", default=[])
    options = parser.parse_args()
    totals = look(options.paths, options.share, options.largest, set(), set(options.arch), options.check)
    print(totals)
    return int(bool(totals.different) or any(severity != "note" for severity, _ in totals.found))


if __name__ == "__main__":
    sys.exit(main())
