"""Instructions made ready to run, and kept: a kernel that is launched again, or with a line more, is ready at once.

What an instruction is follows from its word and its address; what runs it, its step, from the constants besides, which
steps hold as numbers. Both are kept for the instructions that were met last.
"""

from __future__ import annotations

from turingas.emulate import flow, semantics
from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker, Step
from turingas.emulate.code import REMEMBERED, Code
from turingas.isa.instruction import ZEROS, Instruction
from turingas.isa.isa import Isa

Held = tuple[int, int, int | None]  # constants that a step holds: their bank, and from where to where (None: its end)


class Ready:
    """An instruction at its address, and what is the same in every kernel that has it there."""

    __slots__ = ("_kept", "flow", "guard", "highest", "instruction", "solo", "stall")

    def __init__(self, i: Instruction, maker: Maker) -> None:
        self.instruction = i
        self.guard = None if i.always else maker.pred(i.guard)
        #: who may run changes here: a run of plain instructions ends before these
        self.flow = flow.FLOW.get(i.base)
        self.stall = max(i.control.stall, 1)
        #: it reads the time, or changes how many registers there are: a run of its own, so that it sees what has passed
        clock = "special" in i.op.traits and ("CLOCK" in i.text() or "TIMER" in i.text())
        self.solo = clock or i.base == "USETMAXREG"
        #: the highest general register that it names; -1: none
        general = (a.first for a in (*i.reads, *i.writes) if a.file == "R" and a.first < ZEROS["R"])
        self.highest = max(general, default=-1)
        self._kept: tuple[Step, list[Held], list[bytes]] | None = None

    def step(self, image: Code) -> Step:
        """What runs it in ``image``. Unsupported names what is missing."""
        kept = self._kept
        if kept is not None and _constants(image, kept[1]) == kept[2]:
            return kept[0]
        notes = _Notes(image)
        made = semantics.build(self.instruction, Maker(notes))
        del notes.image  # a step that is kept must not keep the memory of a launch
        self._kept = made, notes.held, _constants(image, notes.held)
        return made


class _Notes:
    """An image as ``Maker`` asks it; notes which constants were asked for."""

    def __init__(self, image: Code) -> None:
        self.image, self.arch = image, image.arch
        self.held: list[Held] = []

    def bank(self, number: int) -> Array:
        self.held.append((number, 0, None))
        return self.image.bank(number)

    def constant(self, bank: int, offset: int, size: int) -> bytes:
        self.held.append((bank, offset, offset + size))
        return self.image.constant(bank, offset, size)


def _constants(image: Code, held: list[Held]) -> list[bytes]:
    return [image.bank(number)[start:end].tobytes() for number, start, end in held]


_READY: dict[tuple[Isa, str], dict[tuple[int, int], Ready]] = {}


def ready(image: Code, maker: Maker) -> list[Ready | None]:
    """The instructions of ``image``; None where no row of the table explains a word."""
    known = _READY.setdefault((image.isa, image.arch.name), {})
    if len(known) > REMEMBERED:
        known.clear()
    found = list(map(known.get, zip(image.words, range(len(image.words)))))
    if None in found:
        for n, (word, i) in enumerate(zip(image.words, image.instructions)):
            if found[n] is None and i is not None:
                found[n] = known[word, n] = Ready(i, maker)
    return found
