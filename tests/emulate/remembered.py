"""Arithmetic that is done once: the CPU device, which looks up what instructions made of the same registers before.

For tests that run one kernel thousands of times, each time with another detail changed. What instructions of arithmetic
leave follows from the registers that they read, and from shared and local memory where they are small and read or
written; all bits of these are looked at, and whoever finds something else than ever before is computed. Global memory,
control flow, and what an instruction says of its own place are never looked up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from turingas.emulate.cohort import Cohort
from turingas.emulate.machine import Wave
from turingas.isa.instruction import ZEROS, Instruction

PIPES = {"fma", "alu", "half", "fp64", "xu", "tensor", "uniform", "umove"}
#: what reads more than its registers, or differs by its place; and copies, which are as quick themselves
OTHERS = {"special", "place", "lanes", "asks"}
FILES = ("R", "P", "UR", "UP")
SMALL = {"LDS": "shared", "STS": "shared", "LDL": "local", "STL": "local"}
FEW = 1 << 14  # bytes of a memory that is looked at
MOST = 1 << 28  # bytes that are remembered

Span = tuple[str, slice]  # some registers of a file


def _is_arithmetic(i: Instruction | None, memories: tuple[str, ...]) -> bool:
    if i is None or SMALL.get(i.base) in memories:
        return i is not None
    return (
        i.op.pipe in PIPES and not i.op.traits & OTHERS and not (i.op.space or i.op.opaque or i.shape.located)
        and not (i.op.reads or i.op.writes) and all(a.file in FILES for a in (*i.reads, *i.writes))
    )  # fmt: skip


def _bytes(wave: Wave, memory: str) -> np.ndarray:
    """All of the wave's shared or local memory."""
    plane = wave.shared.plane if memory == "shared" else wave.local.plane
    return plane.views[1]


class Stretch:
    """Instructions of arithmetic behind each other: which registers they read before they write them, and write."""

    def __init__(self, code: list[Instruction]) -> None:
        read: set[tuple[str, int]] = set()
        written: set[tuple[str, int]] = set()
        for i in code:
            read |= _registers(i.reads) - (written if i.always else set())
            written |= _registers(i.writes)
        guarded = not all(i.always for i in code)
        self.reads, self.writes = _spans(read | written if guarded else read), _spans(written)
        self.both = _spans(read | written)
        self.looks = sorted({SMALL[i.base] for i in code if i.base in SMALL})
        self.stores = sorted({SMALL[i.base] for i in code if i.base in ("STS", "STL")})
        self.known: dict[bytes, list[np.ndarray]] = {}


def _registers(accesses: Any) -> set[tuple[str, int]]:
    return {(a.file, n) for a in accesses for n in range(a.first, a.first + a.count) if n != ZEROS[a.file]}


def _spans(registers: set[tuple[str, int]]) -> list[Span]:
    found: list[Span] = []
    for file, n in sorted(registers):
        if found and found[-1][0] == file and found[-1][1].stop == n:
            found[-1] = file, slice(found[-1][1].start, n + 1)
        else:
            found.append((file, slice(n, n + 1)))
    return found


class Memory:
    """What was computed, by the constants of the launch and the words of a stretch."""

    def __init__(self) -> None:
        self.plans: dict[Any, list[tuple[int, int, Stretch | None]]] = {}
        self.stretches: dict[Any, Stretch] = {}
        self.banks: bytes = b""
        self.size = self.found = self.made = 0

    def plan(
        self, words: tuple[int, ...], code: list[Any], small: tuple[str, ...]
    ) -> list[tuple[int, int, Stretch | None]]:
        """A run of plain instructions, in stretches of arithmetic and of others."""
        parts: list[tuple[int, int, Stretch | None]] = []
        at = 0
        while at < len(code):
            kind, end = _is_arithmetic(code[at], small), at + 1
            while end < len(code) and _is_arithmetic(code[end], small) == kind:
                end += 1
            stretch = None
            if kind:
                key = self.banks, words[at:end]
                stretch = self.stretches.get(key)
                if stretch is None:
                    stretch = self.stretches[key] = Stretch(code[at:end])
            parts.append((at, end, stretch))
            at = end
        return parts

    def straight(self, wave: Wave, k: Cohort, n: int, end: int, steps: list[Any], guards: list[Any]) -> None:
        image = wave.image
        if image.settled or image.moves or wave.stepwise:
            PLAIN(wave, k, n, end, steps, guards)
            return
        words = tuple(image.words[n:end])
        small = tuple(name for name in ("shared", "local") if _bytes(wave, name).size <= FEW)
        parts = self.plans.get((words, small))
        if parts is None:
            parts = self.plans[words, small] = self.plan(words, image.instructions[n:end], small)
        for start, stop, stretch in parts:
            if stretch is None:
                PLAIN(wave, k, n + start, n + stop, steps, guards)
                continue
            rows, active = k.rows, k.active
            spans = stretch.reads if active is None else stretch.both
            pieces = [getattr(wave, file)[which][:, rows].tobytes() for file, which in spans]
            pieces.append(b"" if active is None else active.tobytes())
            pieces.append(k.count.to_bytes(4, "little"))
            if stretch.looks:  # which of the memory is whose
                pieces += [_bytes(wave, name).tobytes() for name in stretch.looks]
                pieces.append(k.warps.tobytes())
            key = b"".join(pieces)
            left = stretch.known.get(key)
            if left is not None:
                for (file, which), values in zip(stretch.writes, left):
                    getattr(wave, file)[which][:, rows] = values
                for name, values in zip(stretch.stores, left[len(stretch.writes) :]):
                    _bytes(wave, name)[:] = values
                wave._tick(k, n + start, n + stop)
                self.found += 1
                continue
            PLAIN(wave, k, n + start, n + stop, steps, guards)
            stretch.known[key] = left = [getattr(wave, file)[which][:, rows].copy() for file, which in stretch.writes]
            left += [_bytes(wave, name).copy() for name in stretch.stores]
            self.made += 1
            self.size += len(key) + sum(array.nbytes for array in left)
            if self.size > MOST:
                self.forget()

    def forget(self) -> None:
        self.stretches.clear()
        self.plans.clear()
        self.size = 0

    def constants(self, banks: dict[int, np.ndarray]) -> None:
        """A launch with these constants begins."""
        now = b"".join(number.to_bytes(1, "little") + bank.tobytes() for number, bank in sorted(banks.items()))
        if now != self.banks:
            self.plans.clear()  # they hold the stretches of other constants
            self.banks = now


PLAIN = Wave._straight


@contextlib.contextmanager
def remembering(memory: Memory) -> Iterator[None]:
    """What is launched inside, on one thread, looks up arithmetic."""

    def straight(wave: Wave, *rest: Any) -> None:
        memory.straight(wave, *rest)

    def run(wave: Wave, *rest: Any) -> None:
        memory.constants(wave.image.banks)
        RUN(wave, *rest)

    Wave._straight, Wave.run = straight, run  # type: ignore[method-assign]
    try:
        yield
    finally:
        Wave._straight, Wave.run = PLAIN, RUN  # type: ignore[method-assign]


RUN = Wave.run
