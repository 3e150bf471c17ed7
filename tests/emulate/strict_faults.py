"""Breaks one thing at random in a correct kernel, runs it, and asks the scoreboard mode:
``python -m tests.emulate.strict_faults [--arch sm_75] [--count 50] [--case NAME]``.

As tests/check/faults, but only faults count that change what hardware may compute *in this run*. ``Oracle`` decides: it
has noted which instructions each warp ran, with which lanes, and follows from each of them what it began, one
instruction after the other, until that is settled. It shares with the scoreboard mode the facts of the hardware
(turingas/isa/latency), and nothing else.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.check import faults
from tests.check.faults import At, Fault, Item, Register, Use
from tests.kernels.cases import CASES, Case
from turingas.cubin.cubin import Cubin
from turingas.emulate.cohort import Cohort
from turingas.emulate.device import Device
from turingas.emulate.machine import Image, Wave
from turingas.emulate.splits import bits_of
from turingas.isa import control
from turingas.isa.instruction import instruction
from turingas.isa.latency import SOURCES, latencies

LONGEST = 600  # instructions of a warp that are followed, the first ones
WARPS = 2  # warps of a run, each with another path
ALL = 0xFFFFFFFF

Event = tuple[int, int, int]  # instruction, lanes that came to it, lanes that its guard lets through
Path = tuple[Event, ...]


class Oracle(faults.Oracle):
    """What goes wrong on the paths that warps have taken through ``image``."""

    def __init__(self, image: Image, paths: list[Path]) -> None:
        self.isa, self.lat, self.paths = image.isa, latencies(image.arch.name), paths
        self.code = list(image.instructions)
        self.longest = max(n for (hazard, *_), n in self.lat.cycles.items() if hazard != "issue")
        self.counts = any(i is not None and i.base == "DEPBAR" for i in self.code)
        self.begun: list[tuple[Path, int, Item, set[Use], set[int]]] = []
        for path in paths:
            for start, (n, _, _) in enumerate(path):
                for item in self.items(n):
                    self.begun.append((path, start, item, *self.along(path, start, item)))

    def with_fault(self, n: int, word: int) -> set[Use]:
        """What first goes wrong when instruction ``n`` is ``word``, and does not without that."""
        old = self.code[n]
        self.code[n] = instruction(self.isa, word, 16 * n)
        found = (
            self.along(path, start, item)[0] - uses for path, start, item, uses, passed in self.begun if n in passed
        )
        first = next(filter(None, found), set())
        self.code[n] = old
        return first

    def along(self, path: Path, start: int, item: Item) -> tuple[set[Use], set[int]]:
        """What goes wrong with an item that began at ``path[start]``, and the instructions that it came to."""
        first = self.code[item.start]
        assert first is not None
        uses: set[Use] = set()
        passed = {item.start}
        open_ = {register: whole(register, path[start][2]) for register in item.registers if path[start][2]}
        at = At(item.start, 0, 0, 0, (0,) * 6, item.registers, False, ())
        at = self.step(at, first, self.own(first, item.kind))
        for n, came, ran in path[start + 1 :]:
            if not open_ or item.kind == "fixed" and at.cycles >= self.longest:
                break
            i = self.code[n]
            assert i is not None
            passed.add(n)
            if item.kind != "fixed":
                if at.ready & i.control.wait or (at.ready | at.fresh) & self.waits(i, at):
                    break
                if item.kind == "late" and self.lat.flushes(i) == self.lat.queue(first):
                    break
            accesses = [(write, "war" if item.kind == "late" else "waw", ran) for write in self.lat.writes(i)]
            if item.kind != "late":
                reads = [(read, "raw", came if read.what == "guard" else ran) for read in self.lat.reads(i)]
                accesses = reads + accesses
            for access, kind, lanes in accesses:
                for register in faults.registers(access):
                    if not open_.get(register, 0) & whole(register, lanes):
                        continue
                    if self.too_early(item, first, at, i, register, access, kind):
                        uses.add((item.start, n, kind))
                        del open_[register]
                    elif kind != "raw":
                        open_[register] &= ~whole(register, lanes)
            open_ = {register: lanes for register, lanes in open_.items() if lanes}
            covers = 0
            if item.kind != "fixed" and self.lat.queue(i) == self.lat.queue(first):
                if item.kind in ("late", "early"):
                    covers = self.own(i, "late")
                elif self.lat.in_order(first):
                    covers = self.own(i, "variable")
            at = self.step(at, i, covers)
        return uses, passed


def whole(register: Register, lanes: int) -> int:
    """Lanes as a register has them: a uniform one has one for all."""
    return ALL * bool(lanes) if register[0] in ("UR", "UP", SOURCES) else lanes


@contextmanager
def noted() -> Iterator[tuple[list[Wave], dict[tuple[int, int], list[Event]]]]:
    """Notes what each warp does of the waves that run inside: (wave, warp) -> events."""
    events: dict[tuple[int, int], list[Event]] = {}
    waves: list[Wave] = []
    enter = Wave._enter

    def note(wave: Wave, k: Cohort, n: int) -> None:
        enter(wave, k, n)
        if wave not in waves:
            waves.append(wave)
        came = [ALL] * k.count if k.active is None else bits_of(k.active).tolist()
        ran = bits_of(np.ascontiguousarray(k.lanes)).tolist()
        for warp, *lanes in zip(k.warps.tolist(), came, ran, strict=True):
            events.setdefault((waves.index(wave), warp), []).append((n, *lanes))

    Wave._enter = note  # type: ignore[method-assign]
    try:
        yield waves, events
    finally:
        Wave._enter = enter  # type: ignore[method-assign]


@dataclass
class Result:
    """By kind of fault: those that matter (``real``), and those of them that were reported (``seen``). ``harmless``
    changes, and how many of them were reported; ``wrong`` says what should not be."""

    real: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    harmless: int = 0
    alarms: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {self.seen[kind]} of {self.real[kind]}" for kind in faults.KINDS)
        total = f"{self.seen.total()} of {self.real.total()} faults reported ({kinds})"
        return "\n".join([f"{total}; {self.alarms} of {self.harmless} harmless changes", *self.wrong[:20]])

    def add(self, other: Result) -> None:
        """The results of other kernels."""
        self.real += other.real
        self.seen += other.seen
        self.harmless += other.harmless
        self.alarms += other.alarms


class Broken:
    """A case on one architecture, ready to be run with faults."""

    def __init__(self, case: Case, arch: str) -> None:
        self.case = case
        cubin = Cubin.from_bytes(case.cubin(arch))
        self.args = case.build()[0]
        self.module = Device(arch).load(cubin)
        kernel = self.module.kernel(case.kernel)
        assert self.module.elf is not None
        self.section = next(s for s in self.module.elf.sections if s.name == kernel.section)
        self.data = bytes(self.section.data)
        with noted() as (waves, events):
            self.clean = not self.hazards()
        paths = sorted(dict.fromkeys(map(tuple, events.values())), key=lambda path: -len({n for n, _, _ in path}))
        self.paths = [path[:LONGEST] for path in paths[:WARPS]]
        self.followed = self.paths == paths  # all of them, so that a fault that does not matter there does nowhere
        self.oracle = Oracle(waves[0].image, self.paths)
        self.name = f"{case.name} on {arch}"

    def hazards(self, fault: Fault | None = None) -> list[Any]:
        """What the scoreboard mode finds."""
        data = bytearray(self.data)
        if fault is not None:  # the rest of the word may have to be relocated
            low = int.from_bytes(data[16 * fault.n : 16 * fault.n + 16], "little") & (1 << control.STALL) - 1
            word = fault.word >> control.STALL << control.STALL | low
            data[16 * fault.n : 16 * fault.n + 16] = word.to_bytes(16, "little")
        self.section.data = bytes(data)
        args = [a.copy() if isinstance(a, np.ndarray) else a for a in self.args]
        case = self.case
        return self.module.launch(case.kernel, case.grid, case.block, args, case.shared, strict=True).hazards

    def candidates(self, kind: str) -> list[Fault]:
        """All faults of a kind in instructions that were run."""
        ran = {n for path in self.paths for n, _, _ in path if 16 * n < len(self.data)}
        return [fault for fault in faults.faults(self.oracle.code, kind) if fault.n in ran]


def run(broken: Broken, each: int, dice: random.Random, result: Result) -> None:
    """Up to ``each`` faults of every kind that matter. ValueError for a kernel that is not correct."""
    wrong = [use for *_, uses, _ in broken.oracle.begun for use in uses]
    if wrong or not broken.clean:
        raise ValueError(f"{broken.name} is not correct: {wrong[:3]}")
    for kind in faults.KINDS:
        candidates = broken.candidates(kind)
        dice.shuffle(candidates)
        left, quiet = each, 1
        for fault in candidates[: 10 * each]:
            uses = broken.oracle.with_fault(fault.n, fault.word)
            if uses and left:
                left -= 1
                result.real[kind] += 1
                if broken.hazards(fault):
                    result.seen[kind] += 1
                else:
                    result.wrong.append(f"{broken.name} {16 * fault.n:#x} {fault.what}: {sorted(uses)[:3]}")
            elif quiet and not uses and broken.followed:
                quiet -= 1
                result.harmless += 1
                if found := broken.hazards(fault):
                    result.alarms += 1
                    if {h.kind for h in found} != {"wait-too-soon"}:
                        result.wrong.append(f"{broken.name} {16 * fault.n:#x} {fault.what}: harmless, but {found[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", help="all, if none is named")
    parser.add_argument("--case", action="append", help="all, if none is named")
    parser.add_argument("--each", type=int, default=2, help="faults of each kind and kernel (2)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    total = Result()
    for arch in options.arch or ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"):
        result = Result()
        for case in CASES:
            if arch in case.archs and (not options.case or case.name in options.case):
                try:
                    run(Broken(case, arch), options.each, dice, result)
                except ValueError as error:
                    print(error)
        print(f"{arch}: {result}", flush=True)
        total.add(result)
    print(f"in all: {total}")
    return 0 if total.seen.total() >= 0.99 * total.real.total() else 1


if __name__ == "__main__":
    sys.exit(main())
