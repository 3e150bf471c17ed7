"""Runs that are done once: the CPU device, which looks up what it came to before from the same state and words.

For tests that run one kernel thousands of times, each time with another detail changed. A wave runs in steps: who goes
next is chosen, and runs until somebody else may have to go (``Wave.go``). What a step leaves follows from the *whole*
state of the wave (every register, barrier and byte of memory, who stands where and waits for what) and from the words
that it executes, at their addresses; all bits of both are looked at. Where a state and words meet that have met
before, the next state is known; everything else is really run. So a cubin with another word differs from its
neighbours from the first step on that executes the word, until it comes to a state that some other has been in.

Kernels that read the time are not looked up at all, nor is what runs while asynchronous copies are under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from turingas.emulate import device
from turingas.emulate.machine import Wave

MOST = 1 << 27  # bytes of states that are remembered
OFTEN = 256  # steps after which the budget is looked at
SHORT = 16  # instructions of a step
SPLITS = ("warp", "pc", "mask", "state", "key", "need", "last")
BARS = ("arrived", "true", "total", "result", "kind")
MEETING = ("phase", "arrived", "since", "pending")

Span = tuple[int, list[int]]  # words that were executed, and where the first one stands


class State:
    """One that some run was in: its bits, and what followed."""

    __slots__ = ("arrays", "other", "steps")

    def __init__(self, arrays: bytes, other: tuple[Any, ...]) -> None:
        self.arrays, self.other = arrays, other
        self.steps: list[tuple[list[Span], State, np.ndarray, int, int]] = []

    def after(self, words: list[int]) -> tuple[State, np.ndarray, int, int] | None:
        """The next one in code with these ``words``, what each warp executed until then, and the sums of all."""
        for spans, *rest in self.steps:
            for n, executed in spans:
                if words[n : n + len(executed)] != executed:
                    break
            else:
                return rest  # type: ignore[return-value]
        return None


class Memory:
    """All states, by what does not change during a launch. ``made``: steps that were run, ``found``: looked up."""

    def __init__(self) -> None:
        self.worlds: dict[Any, dict[Any, State]] = {}
        self.size = self.found = self.made = 0

    def world(self, wave: Wave) -> dict[Any, State]:
        """The states of launches like that of ``wave``."""
        image, options = wave.image, wave.options
        banks = tuple((number, bank.tobytes()) for number, bank in sorted(image.banks.items()))
        allocated = tuple((a.base, a.size, a.writeable) for a in image.memory._live)
        facts = image.arch.name, image.registers, image.kernel.registers, image.local_bytes
        outside = tuple(sorted(image.externals.items()))
        return self.worlds.setdefault((facts, banks, allocated, outside, repr(options), wave.ctaid.tobytes()), {})

    def note(self, world: dict[Any, State], wave: Wave) -> State | None:
        """The state that ``wave`` is in; None if it cannot be told."""
        found = _state(wave)
        if found is None:
            return None
        state = world.get(found)
        if state is None:
            self.size += len(found[0])
            if self.size > MOST:
                self.worlds.clear()
                world.clear()
                self.size = len(found[0])
            state = world[found] = State(*found)
        return state


def _arrays(wave: Wave) -> list[np.ndarray]:
    """All that a step may change and that keeps its size."""
    bars, meeting, shared = wave.bars, wave.meeting, wave.shared
    return [
        wave.R, wave.P, wave.UR, wave.UP, wave.barriers, wave.has, wave.pool, wave.alive, wave.yields,
        shared.array, shared.ended, wave.local.words,
        *[getattr(bars, name) for name in BARS], *[getattr(meeting, name) for name in MEETING],
        *[a.plane.views[1] for a in wave.memory._live if a.writeable],
    ]  # fmt: skip


def _state(wave: Wave) -> tuple[bytes, tuple[Any, ...]] | None:
    """The state of a wave; None while operations are under way, whose ends are functions."""
    late = wave.late
    if late.flights or late.open or late.groups or late.sets or late.expected or "tensor" in vars(wave):
        return None
    arrays = _arrays(wave)
    arrays += [np.ascontiguousarray(getattr(wave.splits, name)) for name in SPLITS]
    other = len(wave.splits), wave.turn, wave.patience, wave.moved, tuple(wave.printed), tuple(wave.left.items())
    return b"".join(arrays), other  # type: ignore[arg-type]


def _restore(wave: Wave, state: State) -> None:
    bits, at = np.frombuffer(state.arrays, np.uint8), 0
    for array in _arrays(wave):
        array.reshape(-1).view(np.uint8)[:] = bits[at : at + array.nbytes]
        at += array.nbytes
    count, wave.turn, wave.patience, wave.moved, printed, left = state.other
    for name in SPLITS:
        old = getattr(wave.splits, name)
        size = count * old[:0].dtype.itemsize * int(np.prod(old.shape[1:]))
        setattr(wave.splits, name, bits[at : at + size].copy().view(old.dtype).reshape(count, *old.shape[1:]))
        at += size
    wave.printed, wave.left = list(printed), dict(left)


class Remembering(Wave):
    """A wave that looks up its steps in ``past``."""

    past: Memory
    spans: list[Span] | None = None  # executed in this step; None: not to be told by words

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        if not (self.image.timed or self.image.moves or self.observers):
            with np.errstate(all="ignore"):
                self._follow(stop)
        super().run(stop)  # what is left of it

    def _follow(self, stop: Callable[[], bool]) -> None:
        """To the end, or to where the state can no longer be told."""
        memory, words = self.past, self.image.words
        world = memory.world(self)
        now, true = memory.note(world, self), True  # true: the wave itself is in that state
        while now is not None and now.other[0]:
            known = now.after(words)
            if known is not None:
                now, executed, all_, lanes = known
                true = False
                memory.found += 1
                self.executed += executed
                self.instructions += all_
                self.lane_instructions += lanes
                if memory.found % OFTEN or self.executed.max() <= self.options.budget:
                    continue
                _restore(self, now)
                self._check_budget()
            if not true:
                _restore(self, now)
            self.spans = []
            before = self.executed.copy(), self.instructions, self.lane_instructions
            if not self.go(stop):
                return
            memory.made += 1
            old, now, true = now, memory.note(world, self), True
            if self.spans is not None and now is not None:
                step = self.executed - before[0], self.instructions - before[1], self.lane_instructions - before[2]
                old.steps.append((self.spans, now, *step))
        if now is not None and not true:
            _restore(self, now)

    def _choose(self) -> tuple[Any, int, int]:
        """Short steps where nobody waits to join: of the words of a long one any might be another."""
        chosen, n, limit = super()._choose()
        return chosen, n, min(limit, n + SHORT) if self.alone else limit

    def _straight(self, k: Any, n: int, end: int, *rest: Any) -> None:
        self._executes(n, end)
        super()._straight(k, n, end, *rest)

    def _act(self, k: Any, n: int, act: Any, chosen: Any) -> bool:
        """And a step for each round of a loop."""
        self._executes(n, n + 1)
        together = super()._act(k, n, act, chosen)
        return together and not (self.alone and self.splits.pc[chosen[0]] <= n)

    def _outside(self, *rest: Any) -> None:
        self.spans = None
        super()._outside(*rest)

    def _executes(self, n: int, end: int) -> None:
        if self.spans is not None:
            self.spans.append((n, self.image.words[n:end]))


@contextlib.contextmanager
def remembering(memory: Memory) -> Iterator[None]:
    """What is launched inside, on one thread, looks up what it can."""
    device.Wave = type("Remembered", (Remembering,), {"past": memory})  # type: ignore[misc]
    try:
        yield
    finally:
        device.Wave = Wave  # type: ignore[misc]
