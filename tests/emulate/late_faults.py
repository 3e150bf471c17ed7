"""Breaks the synchronisation of correct asynchronous kernels, one thing at a time, runs them, and asks ``--races``:
``python -m tests.emulate.late_faults [--verbose]``.

A wait, an arrival, a fence or the end of a group is taken out, a wait is left a group too early, or fewer bytes are
announced to an mbarrier. Only instructions that the run comes to are changed. A fault is reported when there is a race,
or an error of the device (a deadlock, a budget that ends, an mbarrier told what does not fit). Those that are not are
named; among them are waits for what another wait proves too, which do no harm.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulate.test_bulk import RING
from tests.emulate.test_late import BULK
from tests.kernels.cases import CASES
from tests.tools import nvrtc
from turingas import Cubin, api, assemble
from turingas.emulate import DeviceError, launch
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set

ROOT = Path(__file__).parents[2]
BUDGET = 3_000
ARCHS = ("sm_80", "sm_90")


@dataclass(frozen=True)
class Run:
    """A kernel and how it is launched; ``args`` makes new ones each time."""

    name: str
    cubin: bytes
    kernel: str
    grid: int
    block: int
    args: Callable[[], list[Any]]
    shared: int = 0


@dataclass(frozen=True)
class Fault:
    """Instruction ``number`` becomes ``text``."""

    kind: str
    number: int
    text: str


def runs() -> Iterator[Run]:
    """All kernels of the repository that copy asynchronously and run in a moment."""
    for case in CASES:
        if case.source == "async.cu":
            for arch in ARCHS:
                if arch in case.archs:
                    make = lambda case=case: case.build()[0]  # type: ignore[misc] # noqa: E731
                    yield Run(f"{case.name} {arch}", case.cubin(arch), case.kernel, case.grid[0], case.block[0], make)
    words = lambda n: np.arange(n, dtype=np.int32)  # noqa: E731
    zeros = lambda n: np.zeros(n, np.int32)  # noqa: E731
    source = (ROOT / "examples" / "cp_async.sass").read_text()
    yield Run("examples/cp_async.sass", assemble(source).to_bytes(), "cp_async", 1, 128,
              lambda: [zeros(128), words(640), np.int32(5)])  # fmt: skip
    source = (ROOT / "examples" / "bulk.sass").read_text()
    yield Run("examples/bulk.sass", assemble(source).to_bytes(), "bulk", 2, 256, lambda: [zeros(512), words(512)])
    given = ["-DWAITS=1", '-DEXPECTED="1024"', "-DDONE=1"]
    yield Run("bulk copies in and out", nvrtc.compile_source(BULK, "sm_90", given), "k", 1, 256,
              lambda: [words(256), zeros(256)])  # fmt: skip
    # without the two fences that the ring leaves out, it is not correct
    ring = RING.replace('1;" ::"r"(bar + 8 * n));', '1; fence.proxy.async;" ::"r"(bar + 8 * n));')
    ring = ring.replace("buffer[256 + t] = sum;", 'buffer[256 + t] = sum; asm volatile("fence.proxy.async;");')
    assert ring.count("fence.proxy.async") == 2
    yield Run("a ring of tiles", nvrtc.compile_source(ring, "sm_90"), "ring", 2, 128,
              lambda: [words(2 * 5 * 128), zeros(256), np.int32(5)], 1536)  # fmt: skip


def faults(code: list[Instruction | None]) -> Iterator[Fault]:
    """What can be broken."""
    for n, i in enumerate(code):
        if i is None:
            continue
        text = re.sub(r"^@\S+ ", "", i.text())
        if i.base in ("LDGDEPBAR", "UTMACMDFLUSH"):
            yield Fault("commit", n, "NOP")
        elif i.base == "FENCE":
            yield Fault("fence", n, "NOP")
        elif i.base == "DEPBAR":
            yield Fault("wait", n, "NOP")
            if found := re.match(r"DEPBAR\.LE SB\d, (0x\w+)", text):
                more = f"{int(found[1], 16) + 1:#x}"
                yield Fault("group count", n, text[: found.start(1)] + more + text[found.end(1) :])
        elif i.base == "SYNCS" and i.mods[0] == "PHASECHK":
            yield Fault("wait", n, f"PLOP3.LUT {text.split()[1]} PT, PT, PT, PT, 0x80, 0x0")
        elif i.base == "SYNCS" and i.mods[0] == "ARRIVE":
            yield Fault("arrive", n, "NOP")
            if i.mods[-1] == "TRANS64":
                yield Fault("transaction count", n, text.replace("TRANS64", "TRANS64.A1T0"))
        elif i.base == "ATOMS" and "ARRIVE" in i.mods:
            yield Fault("arrive", n, "NOP")


def broken(run: Run, number: int, text: str) -> bytes:
    """The cubin with an instruction replaced, under its guard and control code."""
    cubin = Cubin.from_bytes(run.cubin)
    kernel = next(k for k in cubin.kernels if k.name == run.kernel)
    isa = instruction_set(cubin.arch)
    old = instruction(isa, kernel.words[number], 16 * number)
    assert old is not None
    guard = "" if old.always else f"@{old.guard} "
    (word,) = api.encode(guard + text, arch=cubin.arch, default_control="--:-:-:-:1")
    control = (1 << 128) - (1 << 105)
    words = list(kernel.words)
    words[number] = word & ~control | words[number] & control
    kernel.words = words
    return cubin.to_bytes()


def outcome(run: Run, cubin: bytes) -> tuple[str, list[np.ndarray]]:
    """What is reported, "" for nothing; and the arrays."""
    args = run.args()
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    try:
        report = launch(cubin, run.kernel, run.grid, run.block, args, shared=run.shared, races=True, budget=BUDGET)
    except DeviceError as error:
        return f"error: {error.kind}", arrays
    return "; ".join(f"{race.kind} {race.first.text} / {race.second.text}" for race in report.races), arrays


def main() -> int:
    """Print, for each kind of fault, how many were reported."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbose", action="store_true", help="name each fault and what was reported")
    options = parser.parse_args()
    made, found, false, kernels = Counter[str](), Counter[str](), 0, 0
    for run in runs():
        kernels += 1
        said, truth = outcome(run, run.cubin)
        if said:
            false += 1
            print(f"{run.name}: correct, but {said}")
        cubin = Cubin.from_bytes(run.cubin)
        kernel = next(k for k in cubin.kernels if k.name == run.kernel)
        isa = instruction_set(cubin.arch)
        code = [instruction(isa, word, 16 * n) for n, word in enumerate(kernel.words)]
        args = run.args()
        counters = launch(run.cubin, run.kernel, run.grid, run.block, args, shared=run.shared, counters=True).counters
        assert counters is not None
        for fault in faults(code):
            if not counters.lanes[fault.number]:
                continue
            said, left = outcome(run, broken(run, fault.number, fault.text))
            same = all((a == b).all() for a, b in zip(left, truth))
            made[fault.kind] += 1
            found[fault.kind] += bool(said)
            if options.verbose or not said:
                one = code[fault.number]
                assert one is not None
                where = f"{run.name}+{16 * fault.number:#x} {one.text()}"
                print(f"{where}: {fault.kind}: {said or 'nothing'}; the result is {'the same' if same else 'wrong'}")
    for kind, count in sorted(made.items()):
        print(f"{kind}: {found[kind]} of {count}")
    print(f"all: {found.total()} of {made.total()} faults; {false} of {kernels} correct kernels accused")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
