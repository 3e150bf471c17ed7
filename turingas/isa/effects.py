"""What one instruction means for those behind it: which registers it reads and writes, how its results arrive, which
scoreboards it waits for and sets. The linter and the CPU device's scoreboard mode keep their books with this; distances
and pipes are in turingas/isa/latency.
"""

from __future__ import annotations

import functools

from turingas.isa.instruction import Access, Imm, Instruction, Name
from turingas.isa.latency import BARRIER, NONE, SOURCES, Latencies

# A register of any file has one number: R 0 to 255, then as many UR, P, UP and B, what a barrier "writes", and the UR
# once more as sources that are read late.
FIRST = {"R": 0, "UR": 256, "P": 512, "UP": 520, "B": 528, BARRIER: 544, SOURCES: 546}
FILES = sorted(((first, file) for file, first in FIRST.items()), reverse=True)
SCOREBOARDS = 6  # a control code has room for 7, which is none, and for 6, which there is not
SOONEST = 2  # cycles from setting a scoreboard to the first instruction that can wait for it (docs/control-codes.md)

# Roles of what an instruction has begun: results of fixed and of variable latency, sources that it has still to read,
# results that come with the sources.
FIXED, VARIABLE, LATE, WITH_SOURCES = 0, 1, 2, 3


@functools.cache
def register_of(number: int) -> tuple[str, int]:
    """The file of a register and its index there."""
    return next((file, number - first) for first, file in FILES if number >= first)


def register_name(number: int) -> str:
    """R5, UR4, P0 ..."""
    file, index = register_of(number)
    return f"{file}{index}"


PREDICATES = 7  # of a file, without the one that is always true


def literal(register: int, inv: bool) -> int:
    """The number of a predicate that is true, or with ``inv`` false: P0 is 0, !P0 1, P1 2 ... UP0 14."""
    number = register - FIRST["P"]
    return 2 * (number if number <= PREDICATES else number - 1) + inv


def too_early(hazard: str, register: int, i: Instruction, passed: int, need: int) -> tuple[str, str]:
    """Kind and message of a finding: ``i`` reads ("raw") or overwrites ("waw") a register only ``passed`` cycles behind
    the fixed-latency instruction that writes it, where ``need`` are needed. (Barriers and sources that are read late
    are kept as registers, too.)"""
    cycles = "1 cycle" if passed == 1 else f"{passed} cycles"
    if FIRST[BARRIER] <= register < FIRST[SOURCES]:
        who, rest = [("a barrier", "the others are there"), ("DEPBAR", "what it waits for")][register - FIRST[BARRIER]]
        held = f"{i.base} comes {cycles} behind {who}, which holds the warp only after {need}"
        return "barrier-stall", f"{held}: it may run before {rest}"
    if register >= FIRST[SOURCES]:
        return "war-stall", (
            f"UR{register - FIRST[SOURCES]} is overwritten {cycles} behind an instruction that reads it late, and may "
            f"compute with the new value; they need {need}"
        )
    what = "read" if hazard == "raw" else "overwritten"
    return f"{hazard}-stall", f"{register_name(register)} is {what} {cycles} after it is written; that takes {need}"


def _numbers(access: Access) -> range:
    first = FIRST[access.file] + access.first
    return range(first, first + access.count)


class Effects:
    """One instruction. ``wait``: scoreboards that its control code waits for; ``waits``: those that the instruction
    itself does, which looks later; ``depbar``: (scoreboard, how many settings may be left of it). ``reads``: register
    -> access; ``writes``: register -> access and role; ``late``: registers that it reads late, without those that it
    writes too, for which its result stands. ``clears``: both literals of the predicates that it writes, as a mask.
    ``sets``: its scoreboards; ``missing``: those that it names and that there are not; ``releases``: role -> the
    scoreboards that tell when it is done, as a mask."""

    __slots__ = (
        "clears", "depbar", "flushes", "guard", "i", "in_order", "late", "missing", "queue", "reads", "releases",
        "sets", "stall", "wait", "waits", "writes",
    )  # fmt: skip

    def __init__(self, i: Instruction, lat: Latencies) -> None:
        self.i = i
        self.wait = [sb for sb in range(SCOREBOARDS) if i.control.wait >> sb & 1]
        self.waits: list[int] = []  # by the instruction itself, which looks later than a control code
        self.stall = lat.stall(i)
        self.guard = None if i.guard.zero else (FIRST[i.guard.file] + i.guard.index, i.guard.inv)
        self.queue = lat.queue(i)
        self.in_order = lat.in_order(i)
        self.flushes = lat.flushes(i)
        self.reads: dict[int, Access] = {}
        late: set[int] = set()
        for read in lat.reads(i):
            is_late = lat.late(i, read)
            for register in _numbers(read):
                self.reads.setdefault(register, read)  # the place that comes first needs the most cycles
                if is_late:
                    late.add(register)
        self.writes: dict[int, tuple[Access, int]] = {}
        for write in lat.writes(i):
            role = FIXED
            if lat.variable(i, write):
                role = WITH_SOURCES if lat.with_read(i, write) else VARIABLE
            for register in _numbers(write):
                self.writes[register] = (write, role)
        self.late = tuple(sorted(late.difference(self.writes)))
        predicates = (n for n in self.writes if FIRST["P"] <= n < FIRST["B"] and n % 8 != PREDICATES)
        self.clears = sum(3 << literal(n, False) for n in predicates)
        control = i.control
        written, read_by = (1 << sb if sb < SCOREBOARDS else 0 for sb in (control.write, control.read))
        # role -> the scoreboards of its own that tell that it is done, as a mask
        self.releases = {VARIABLE: written, LATE: written | read_by, WITH_SOURCES: written | read_by}
        named = {sb for sb in (control.write, control.read) if sb != NONE}
        self.depbar: tuple[int, int] | None = None
        if i.base == "DEPBAR":
            self._depbar(i)
            named.update(sb for sb in (*self.waits, *(self.depbar or ())[:1]) if sb >= SCOREBOARDS)
            self.waits = [sb for sb in self.waits if sb < SCOREBOARDS]
            if self.depbar is not None and self.depbar[0] >= SCOREBOARDS:
                self.depbar = None
        self.sets = sorted(sb for sb in named if sb < SCOREBOARDS)
        self.missing = sorted(sb for sb in named if sb >= SCOREBOARDS)

    def _depbar(self, i: Instruction) -> None:
        """DEPBAR.LE SB0, 0x1, {3, 2} waits for SB2 and SB3, and until one is left of SB0."""
        for operand in i.operands:
            if isinstance(operand, Name) and operand.text.startswith("SB"):
                self.depbar = (int(operand.text[2:]), 0)
            elif isinstance(operand, Imm) and operand.kind == "set":
                self.waits += [sb for sb in range(6) if operand.bits >> sb & 1]
            elif isinstance(operand, Imm) and self.depbar is not None:
                self.depbar = (self.depbar[0], operand.value)
        if self.depbar is not None and self.depbar[1] == 0:
            self.waits.append(self.depbar[0])
            self.depbar = None
