"""A NOP put in at every place of compiled kernels: ``python -m tests.emulate.editing RESULTS [--share N --seed N]``.

For each place the listing of the kernel with a NOP more is assembled, and the CPU device runs the cubin. It must leave
in memory what the kernel as it was compiled leaves. RESULTS gets a line for each kernel and architecture, and one for
each place that is wrong; what it has already is not done again. --share 3 takes one place in 3,
drawn by --seed.
"""

from __future__ import annotations

import argparse
import bisect
import functools
import hashlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import turingas
from tests.emulate.remembered import Memory, remembering
from tests.kernels.cases import ARCHS, CASES, Case, Near, cubin, difference
from turingas import collector
from turingas.assembler.assembler import Assembler, parsed
from turingas.emulate import launch
from turingas.emulate.errors import DeviceError
from turingas.emulate.report import Report
from turingas.errors import AsmError, AsmWarning, LaunchError
from turingas.source import parse

NOP = "--:-:-:-:5  NOP;"
(MORE,) = parse.read(NOP).items
INSTRUCTION = re.compile(r"# ([0-9a-f]{4,})$")
BUDGET = 200_000  # instructions of a warp: code that runs in circles is stopped
STACK = 256  # bytes, enough for all of them
#: kernels that take long with all of their threads, and fewer that take the same ways: grid, block
FEWER = {
    "atomics": ((1,), (9,)), "bitonic": ((1,), (256,)), "blelloch": ((1,), (32,)), "coalesced": ((1,), (32,)),
    "editing.calls": ((1,), (8,)), "editing.recursion": ((1,), (4,)), "editing.slow32": ((1,), (16,)),
    "fft": ((1,), (32,)), "handshake": ((1,), (64,)), "histogram": ((1,), (96,)), "indirect": ((1,), (6,)),
    "matmul": ((3, 1), (16, 16)), "recursion": ((1,), (6,)), "reduction": ((1,), (192,)), "reductions": ((1,), (32,)),
    "registers": ((1,), (32,)), "spin_lock": ((2,), (2,)), "stack": ((1,), (32,)), "subwarps": ((1,), (32,)),
    "tiles": ((1,), (32,)), "warp_lock": ((2,), (2,)),
}  # fmt: skip
#: kernels in which a thread works on one element alone, and elements that together take all ways
PICKED = {
    "collatz": (0, 84), "divergence": (0, 50, 9, 26), "doubles": (148, 192, 181, 103, 119, 85, 139, 130),
    "floats": (130, 200, 80, 5, 59, 112, 0, 34, 140),
}  # fmt: skip
#: sections that name symbols by number; without them the assembler makes those that the rest needs
NUMBERED = (".nv.info", ".nv.callgraph")
TABLE = {".nv.constant4", ".rel.nv.constant4", ".rela.nv.constant4", ".nv.global", ".nv.global.init"}


@dataclass(frozen=True)
class Subject:
    """A kernel of a source in tests/kernels, and how it is launched. ``build`` makes its arguments, buffers that it
    writes first; ``compared`` says which of these count."""

    name: str
    source: str
    kernel: str
    archs: tuple[str, ...]
    build: Callable[[], list[Any]]
    compared: tuple[bool, ...]
    grid: tuple[int, ...] = (1,)
    block: tuple[int, ...] = (32,)
    shared: int = 0
    near: Near | None = None

    def run(self, data: bytes) -> list[np.ndarray | None]:
        """What a cubin leaves in the buffers; None for one that is not compared."""
        args, _ = self.launched(data)
        return [arg if wanted else None for arg, wanted in zip(args, self.compared)]

    def launched(self, data: bytes) -> tuple[list[Any], Report]:
        """The arguments behind a run of a cubin, and its report."""
        args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in arguments(self)]
        report = launch(data, self.kernel, self.grid, self.block, args, shared=self.shared, budget=BUDGET, stack=STACK,
                        workers=1)  # fmt: skip
        return args, report


@functools.cache
def arguments(subject: Subject) -> list[Any]:
    return subject.build()


def floats(kind: type) -> np.ndarray:
    """32 numbers, those too for which arithmetic has slow paths."""
    info = np.finfo(kind)
    odd = [0, -0.0, np.inf, -np.inf, np.nan, info.tiny, info.tiny / 8, info.max, -info.max, 1e-42, 1e6, 1e30, -1, 3, 9]
    return np.concatenate([np.array(odd, np.float64), np.linspace(0.1, 50, 17)]).astype(kind)


LONGS = np.array([3, -7, 1 << 40, -(1 << 50), 12345678901234, 5, 1 << 62, -1] * 4 + [2, 3, 1 << 33, 77777777777] * 8)
INTS = np.arange(32, dtype=np.int32)
#: the kernels of editing.cu: how many buffers each writes, and what it reads
EDITING = {
    **dict.fromkeys(("sw", "big", "calls", "recursion", "pointers", "prints"), (1, INTS)),
    "slow32": (4, floats(np.float32)),
    "slow64": (3, floats(np.float64)),
    "slowll": (2, LONGS.astype(np.int64)),
}


def subjects() -> Iterator[Subject]:
    """All kernels of tests/kernels."""
    for name, (count, read) in EDITING.items():

        def build(count: int = count, read: np.ndarray = read) -> list[Any]:
            return [*np.zeros((count, 32), read.dtype), read]

        yield Subject("editing." + name, "editing.cu", name, ARCHS, build, (True,) * count)
    for case in CASES:
        yield of_case(case)


def of_case(case: Case) -> Subject:
    """A test kernel."""
    compared = tuple(truth is not None for truth in case.build()[1])
    return Subject(case.name, case.source, case.kernel, case.archs, lambda: case.build()[0], compared,
                   case.grid, case.block, case.shared, case.near)  # fmt: skip


def smaller(subject: Subject) -> Subject:
    """The subject with fewer threads, or with some of its elements, where it takes long."""
    if subject.name in FEWER:
        grid, block = FEWER[subject.name]
        return replace(subject, grid=grid, block=block)
    if subject.name in PICKED:
        chosen = PICKED[subject.name]
        threads = len(chosen) + SPARE
        return replace(subject, build=lambda: picked(subject.build(), chosen), grid=(1,), block=(threads,))
    return subject


SPARE = 1  # threads that have no element


def picked(args: list[Any], chosen: tuple[int, ...]) -> list[Any]:
    """Arguments for some elements alone: their columns of the buffers, and their number."""
    count = next(int(arg) for arg in args if not isinstance(arg, np.ndarray))
    made: list[Any] = []
    for arg in args:
        if not isinstance(arg, np.ndarray):
            made.append(type(arg)(len(chosen)) if arg == count else arg)
        else:
            made.append(np.ascontiguousarray(arg[..., chosen]) if arg.shape[-1] == count else arg)
    return made


WHOLE = list(subjects())
SUBJECTS = [smaller(subject) for subject in WHOLE]


@functools.cache
def listing(source: str, arch: str) -> tuple[str, ...]:
    return tuple(turingas.disassemble(cubin(source, arch)).splitlines())


def alone(lines: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    """A listing without the other kernels and without what belongs to them: short ones are assembled sooner."""
    starts = [n for n, line in enumerate(lines) if line.startswith((".kernel ", ".function ", "# What else"))]
    blocks = [lines[start:end] for start, end in zip([0, *starts], [*starts, len(lines)])]
    others = {block[0].split()[1] for block in blocks if block[0].startswith(".kernel ")} - {kernel}
    kept = [line for block in blocks if block[0].split()[1] not in others for line in block]
    #: a table of the addresses of all variables, those of the CUDA headers too, and the variables that only it names
    table = set() if any("c[0x4]" in line for line in kept) else TABLE
    gone = others | table

    def stays(line: str) -> bool:
        """Of lines in their order: whether one of the rest of the file stays."""
        word, name = line.split()[:2]
        owner = name if word == ".section" else line.partition("section=")[2].split(" ")[0]
        if name in gone or owner in table or owner in NUMBERED or any(owner.endswith("." + other) for other in others):
            gone.add(name)
            return False
        return True

    result, inside = [], True
    for line in kept:
        if line.startswith(".section "):
            inside = stays(line)
        elif line.startswith(".symbol "):
            inside = False
            if stays(line):
                result.append(line)
        if inside:
            result.append(line)
    return tuple(line for line in result if not (line.startswith(".row ") and line.split()[3] in gone))


def places(lines: tuple[str, ...], kernel: str) -> list[int]:
    """The lines before which an instruction can be put in: behind the labels of the next one, before its .reloc."""
    begin = next(n for n, line in enumerate(lines) if line.split()[:2] == [".kernel", kernel])
    found = []
    for n in range(begin + 1, len(lines)):
        if lines[n].startswith((".kernel", ".function", "# What else")):
            break
        if INSTRUCTION.search(lines[n]):
            at = n
            while lines[at - 1].startswith(".reloc"):
                at -= 1
            found.append(at)
    while "NOP;" in lines[found[-1]] and "Y:0" in lines[found[-1]]:
        found.pop()
    return found


def edited(lines: tuple[str, ...], at: int) -> bytes:
    """The cubin of ``lines`` with a NOP before one. No address may be left behind: no warnings."""
    arch, name, numbers, read = taken_apart(lines)
    n = bisect.bisect_right(numbers, at)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = parse.Parsed([*read.items[:n], MORE, *read.items[n:]], [])
        return collector.paused()(Assembler(arch, name, more).run)().to_bytes()


@functools.lru_cache(2)
def taken_apart(lines: tuple[str, ...]) -> tuple[str, str, list[int], parse.Parsed]:
    """What the assembler makes of the text before it carries it out, once for all places; and the number of each
    item's line, from 1. ``test_the_cubin_of_the_whole_text`` holds that the cubins are those of the text."""
    arch, name, read = parsed("\n".join(lines), "sm_75", None, (), None, "kern", False, None)
    assert not read.errors and read.whole
    numbers = [item.line.number if isinstance(item, parse.Instruction) else item.origin.line for item in read.items]
    assert numbers == sorted(numbers)
    return arch, name, numbers, parse.Parsed(list(read.items), [])


def chosen(subject: Subject, arch: str, lines: tuple[str, ...], share: int, seed: int) -> list[int]:
    """One place in ``share`` of a kernel, drawn by a seed."""
    found = places(lines, subject.kernel)
    return [at for nth, at in enumerate(found) if _hash(seed, arch, subject.name, nth) % share == 0]


def _hash(*words: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "little")


@functools.cache
def truth(subject: Subject, arch: str) -> list[np.ndarray | None]:
    """What the kernel leaves as it was compiled."""
    return subject.run(cubin(subject.source, arch))


def wrong(subject: Subject, arch: str, lines: tuple[str, ...], at: int) -> str:
    """What is wrong with the kernel with a NOP before a line; empty if nothing is."""
    try:
        left = subject.run(edited(lines, at))
    except (AsmError, AsmWarning, LaunchError, DeviceError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    for n, (found, expected) in enumerate(zip(left, truth(subject, arch))):
        if found is not None and expected is not None and (problem := difference(found, expected, subject.near, False)):
            return f"buffer {n}: {problem}"
    return ""


def failures(subject: Subject, arch: str, share: int, seed: int) -> tuple[int, list[str]]:
    """How many places were tried, and what is wrong at which."""
    lines = alone(listing(subject.source, arch), subject.kernel)
    tried = chosen(subject, arch, lines, share, seed)
    truth(subject, arch)
    with remembering(Memory()):
        found = [(at, wrong(subject, arch, lines, at)) for at in tried]
    return len(tried), [
        f"{subject.name} {arch} before {lines[at].split('#')[-1].strip()} (seed {seed}): {what}"
        for at, what in found
        if what
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.results.exists():
        done = {
            tuple(line.split()[1:3]) for line in options.results.read_text().splitlines() if line.startswith("done ")
        }
    with options.results.open("a", buffering=1) as out:
        for subject in SUBJECTS:
            for arch in subject.archs:
                if (subject.name, arch) in done:
                    continue
                start = time.process_time()
                count, found = failures(subject, arch, options.share, options.seed)
                out.writelines(f"WRONG {line}\n" for line in found)
                seconds = time.process_time() - start
                out.write(f"done {subject.name} {arch} {count} places, {len(found)} wrong, {seconds:.1f} s\n")
    rows = [line.split() for line in options.results.read_text().splitlines() if line.startswith("done ")]
    print(f"{sum(int(row[3]) for row in rows):,} places of {len({row[1] for row in rows})} kernels, "
          f"{sum(int(row[5]) for row in rows)} wrong, {sum(float(row[7]) for row in rows):,.0f} s")  # fmt: skip
    sys.exit(any(int(row[5]) for row in rows))


if __name__ == "__main__":
    main()
