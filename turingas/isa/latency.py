"""How long one instruction must stay behind another: what a control code has to respect.

An instruction either has a fixed latency, and whoever needs its result keeps so many cycles behind it, or a variable
one, and whoever needs it waits on a scoreboard. Which pipe executes an instruction, and which scoreboards it may set,
its Op says (turingas/isa/table/); the cycles stand in latency.csv, each with its source; docs/latency.md says how they
were learned.
"""

from __future__ import annotations

import csv
import functools
import pkgutil
from collections.abc import Callable

from turingas.errors import AsmError
from turingas.isa.arch import Arch, chip
from turingas.isa.arch import arch as facts
from turingas.isa.instruction import Access, Const, Instruction
from turingas.isa.table import OPS

#: Pipes with queues: their results come at no fixed time, and they read registers after issue; but what one of them
#: does, it does in order. (ptxas never lets such a result be read without a wait, on itself or on a later one of its
#: queue, and never overwrites such a source.)
QUEUES = frozenset(["xu", "lsu", "constant", "special", "tex", "copy", "branch"])

NONE = 7  # no scoreboard
#: the unit of simple instructions of the ALU, where it has one (the row of its rate tells)
LIGHT = "alu.light"
#: what reads later than all else, and so may come earlier: "any" does not hold for these
EARLY = frozenset(["wide.c.high", "tensor.c"])
# Cycles of a stall of 0 with the yield flag: NVRTC writes it behind HMMA and IMMA in debug code, where nothing else
# keeps the next instruction from their results, and on ERRBAR. Longer than any fixed latency; how long is not known.
STALL_ZERO = 64

# A barrier, or DEPBAR, holds a warp some cycles after it was issued: what comes sooner runs as if it stood before it.
# This is kept like two registers that BAR and DEPBAR write and that these read: what others can see, or what sees what
# others do.
BARRIER = "BAR"  # its file
AT_BARRIER = (Access(BARRIER, 0, 2, "barrier"),)  # BAR writes the first, DEPBAR the second
# A third one keeps the distances between what a warp group does together: WARPGROUP.ARRIVE and its products write it,
# products and WARPGROUP.DEPBAR read it.
OF_GROUP = (Access(BARRIER, 2, 1, "group"),)
# A fourth one keeps UCGABAR_WAIT behind UCGABAR_ARV.
OF_CLUSTER = (Access(BARRIER, 3, 1, "cluster"),)
#: pipes whose instructions touch what others can see (but for those whose Op is private)
HELD_BACK = frozenset(["lsu", "tex", "copy", "special", "branch"])
#: Pipes that ptxas lets follow BAR at once; all others, UMOV and MUFU too, come when it holds the warp (tests.tools.
#: mine_behind --after BAR). On sm_70, where BAR has a row of its own, all do.
UNHELD = frozenset(["alu", "fma", "half", "tensor", "uniform"])

# The uniform datapath reads its uniform registers some cycles after the issue: who is quick to overwrite them then may
# come before that, and it computes with the new value (rows "war" of latency.csv). This is kept like registers beside
# those, which such a reader writes, and which such a writer reads.
SOURCES = "UR source"  # their file

# What a warp makes of mbarriers is done at no fixed time, and no register tells when: a write scoreboard does. This is
# kept like a register that SYNCS.EXCH writes, and whoever shows mbarriers to others reads. Several may be under way:
# none of them overwrites what the others write.
MADE = "mbarrier"  # its file
OF_MBARRIERS = (Access(MADE, 0, 1, "mbarrier"),)

Kind = Callable[["Latencies", Instruction, Access, int], str]


class Latencies:
    """The rules of one architecture. Get one from ``latencies(arch)``. Cycles count from issue to issue."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.queues = QUEUES | arch.queues
        #: (hazard, file of the register, class of the first instruction, class of the second) -> cycles
        every = rows()
        self.cycles = {
            (row["hazard"], row["file"], row["first"], row["second"]): int(row["cycles"])
            for of in (arch.latency, chip(arch.name))  # a chip's own rows, over those of its line
            for row in every
            if row["arch"] == of
        }
        self.overtaken = {first for hazard, file, first, _ in self.cycles if (hazard, file) == ("war", "UR")}
        self.overtaking = {second for hazard, file, _, second in self.cycles if (hazard, file) == ("war", "UR")}
        self.light = ("issue", "", LIGHT, "") in self.cycles
        self._seen: dict[tuple[object, ...], int] = {}

    # -- what an instruction is

    def reads(self, i: Instruction) -> tuple[Access, ...]:
        """What ``i`` reads: its registers, the barrier that has to hold it back, and the sources of others that it may
        overwrite too early."""
        return i.reads + self.held_back(i) + tuple(sources_of(a) for a in i.writes if self.overtakes(i, a))

    def writes(self, i: Instruction) -> tuple[Access, ...]:
        """What ``i`` writes: its registers, the barrier if it is one that the warp waits at, and those of its sources
        that may be overwritten too early."""
        return i.writes + self.holds_back(i) + tuple(sources_of(a) for a in i.reads if self.is_overtaken(i, a))

    def held_back(self, i: Instruction) -> tuple[Access, ...]:
        """The barrier that has to hold ``i`` back, if any."""
        if OPS[i.base].pipe == "wgmma" or (i.base == "WARPGROUP" and i.mods[0] != "ARRIVE"):
            return OF_GROUP
        held = AT_BARRIER if OPS[i.base].pipe in HELD_BACK and not OPS[i.base].private else ()
        return held + OF_CLUSTER if i.base == "UCGABAR_WAIT" else held

    def holds_back(self, i: Instruction) -> tuple[Access, ...]:
        """What ``i`` writes as a barrier that the warp waits at."""
        if OPS[i.base].pipe == "wgmma" or (i.base == "WARPGROUP" and i.mods[0] == "ARRIVE"):
            return OF_GROUP
        if i.base == "UCGABAR_ARV":
            return OF_CLUSTER
        return (Access(BARRIER, int(i.base == "DEPBAR"), 1, "barrier"),) if holds(i) else ()

    def made(self, i: Instruction) -> tuple[Access, ...]:
        """What ``i`` makes of mbarriers, if only its write scoreboard tells when that is done."""
        return OF_MBARRIERS if not OPS[i.base].makes.isdisjoint(i.mods) else ()

    def shown(self, i: Instruction) -> tuple[Access, ...]:
        """The mbarriers, if ``i`` uses them or lets others use them: what was made of them has to be done."""
        return OF_MBARRIERS if "shows" in OPS[i.base].traits and not self.made(i) else ()

    def ordered(self, i: Instruction) -> tuple[Access, ...]:
        """The mbarriers, if ptxas lets ``i`` wait for what was made of them since CUDA 12.9."""
        return OF_MBARRIERS if "orders" in OPS[i.base].traits else ()

    def overtakes(self, i: Instruction, write: Access) -> bool:
        """Whether this result of ``i`` may come before others have read what it overwrites."""
        return write.file == "UR" and writer(self, i, write, 0) in self.overtaking

    def is_overtaken(self, i: Instruction, read: Access) -> bool:
        """Whether this source of ``i`` may be overwritten before it is read."""
        return read.file == "UR" and reader(self, i, read, 0) in self.overtaken

    def pipe(self, i: Instruction) -> str:
        """The pipe that executes ``i``: see Op."""
        return OPS[i.base].pipe

    def unit(self, i: Instruction) -> str:
        """What of its pipe ``i`` keeps busy for ``issue`` cycles: the pipe, or a unit of its own."""
        op = OPS[i.base]
        return LIGHT if self.light and "light" in op.traits else op.pipe

    def queue(self, i: Instruction) -> str:
        """The queue that ``i`` waits in, or "". Instructions of one queue read their sources and deliver their results
        in order (but for those whose Op says otherwise): when a later one has, this one has too. That holds whatever
        the guards say: what does not run keeps its place in the queue all the same."""
        pipe = OPS[i.base].pipe
        if pipe == "tensor" and self.arch.tensor_distance:
            # ptxas can have it both ways: with scoreboards, or without them and with enough distance. DMMA: always with
            scoreboards = i.base == "DMMA" or i.control.write != NONE or i.control.read != NONE
            return pipe if scoreboards else ""
        if pipe not in self.queues:
            return ""
        return f"{pipe} {i.base}" if "apart" in OPS[i.base].traits else pipe

    def variable(self, i: Instruction, write: Access) -> bool:
        """Whether this result arrives at no fixed time: readers must wait on the write scoreboard of ``i``, or of a
        later instruction of its queue."""
        if write.file in ("B", BARRIER) or "w" not in OPS[i.base].sets:
            return False
        return self.queue(i) != ""

    def in_order(self, i: Instruction) -> bool:
        """Whether the results of ``i`` are there before those of whatever is issued to its queue later. (Each of
        several SYNCS.EXCH has a scoreboard, where anybody waits: so ptxas.)"""
        return OPS[i.base].ordered and not self.made(i)

    def flushes(self, i: Instruction) -> str:
        """The queue whose sources have all been read behind ``i``, or "": a barrier waits for the accesses to memory
        before it (NVRTC 12.9 overwrites the sources of STS behind BAR.SYNC without a scoreboard)."""
        return "lsu" if holds(i) else ""

    def with_read(self, i: Instruction, write: Access) -> bool:
        """Whether this result is there once the read scoreboard of ``i`` is released: ATOM's predicate on sm_90."""
        return self.arch.atom_predicate_early and i.base == "ATOM" and write.file == "P"

    def late(self, i: Instruction, read: Access) -> bool:
        """Whether this source is read after issue: whoever overwrites it must have waited on the read scoreboard of
        ``i``, on its write scoreboard, or on one of a later instruction of its queue (or belong to that queue)."""
        queue = self.queue(i)
        if queue == "" or "r" not in OPS[i.base].sets or holds(i):
            return False
        uniform = queue == "copy" or not OPS[i.base].late.isdisjoint(i.mods)
        return read.file == "R" or (read.file == "UR" and uniform)

    def releases(self, i: Instruction) -> tuple[bool, bool]:
        """Whether it can release a read scoreboard, and a write scoreboard."""
        pipe = OPS[i.base].pipe
        queued = pipe in self.queues | self.arch.releases | {"tensor"}
        read = queued and "r" in OPS[i.base].sets
        if i.base == "BMOV" and self.arch.bmov_reads_early:  # into a barrier it does
            read = any(access.file == "R" for access in i.reads)
        return read, queued and ("w" in OPS[i.base].sets or self.fence(i) == "w")

    def fence(self, i: Instruction) -> str:
        """The scoreboard, "r" or "w", by which ``i`` tells that it is done although no register says so; "": none.
        (MEMBAR.ALL does since sm_90: so ptxas. It waits for CCTL, too, where that empties the cache of LDCU.)"""
        if i.base == "MEMBAR" and not (self.arch.mbarriers and "ALL" in i.mods):
            return ""
        if i.base == "CCTL" and "LDCU" in i.mods:
            return "w"
        return OPS[i.base].fence

    def stall(self, i: Instruction) -> int:
        """Cycles from the issue of ``i`` to that of the next instruction of its warp, at least."""
        return i.control.stall or (STALL_ZERO if i.control.yields else 1)

    def issue(self, i: Instruction) -> int:
        """Cycles for which a warp instruction keeps its unit in one scheduler busy: the next one of the same unit
        comes so much later."""
        unit = self.unit(i)
        cycles = self.cycles.get(("issue", "", unit if unit == LIGHT else rate(i), ""), 1)
        if OPS[i.base].pipe == "wgmma":  # the row is of 8 columns; the shape is 64xNxK
            return cycles * int(_shape(i).split("x")[1]) // 8
        return cycles

    def behind(self, i: Instruction) -> int:
        """Cycles that compilers stall behind ``i`` whatever comes next: behind barriers, branches, fences."""
        if i.base == BARRIER:
            return self.cycles["raw", BARRIER, BARRIER, "any"]
        name = ".".join((i.base, *i.mods[:1])) if i.base == "WARPGROUP" else i.base
        least = self.cycles.get(("behind", "", name, ""), 1)
        return least if i.always else self.cycles.get(("behind", "", name, "guarded"), least)

    def held(self, i: Instruction) -> bool:
        """Whether compilers let ``i`` come only when a barrier before it holds the warp, whatever it may touch."""
        return OPS[i.base].pipe not in UNHELD or ("behind", "", BARRIER, "") in self.cycles

    def longest(self, *hazards: str) -> int:
        """The most cycles that any row of these hazards ("raw", "waw", "war") asks for."""
        return max(cycles for (hazard, *_), cycles in self.cycles.items() if hazard in hazards)

    # -- distances

    def most(self, i: Instruction, write: Access) -> int:
        """The most cycles that anybody has to keep behind a fixed-latency result."""
        key = ("most", i.form, i.name, write)
        found = self._seen.get(key)
        if found is None:
            if write.file == SOURCES:
                rows = [n for (hazard, *_), n in self.cycles.items() if hazard == "war"]
            else:
                kinds = {writer(self, i, write, n) for n in range(write.count)}
                rows = [
                    n for (hazard, file, first, _), n in self.cycles.items()
                    if hazard in ("raw", "waw") and file == write.file and first in kinds
                ]  # fmt: skip
            found = self._seen[key] = max(rows, default=1)
        return found

    def raw(self, producer: Instruction, write: Access, consumer: Instruction, read: Access) -> int:
        """Cycles that a reader must keep behind a fixed-latency producer."""
        if write.file == read.file == SOURCES:
            return self.war(producer, write._replace(file="UR"), consumer, read._replace(file="UR"))
        if accumulates(producer, write, consumer, read):
            return 0
        return self._need("raw", producer, write, writer, consumer, read, reader)

    def waw(self, first: Instruction, write: Access, second: Instruction, write2: Access) -> int:
        """Cycles between two writers of one register, the first of fixed latency."""
        return self._need("waw", first, write, writer, second, write2, writer)

    def war(self, consumer: Instruction, read: Access, second: Instruction, write: Access) -> int:
        """Cycles between a reader of no queue and one that overwrites its sources."""
        return self._need("war", consumer, read, reader, second, write, writer)

    def _need(
        self, hazard: str, i: Instruction, one: Access, kind: Kind, j: Instruction, two: Access, kind2: Kind
    ) -> int:
        """The largest need of the registers that both accesses name; 0 when there are none."""
        key = (hazard, i.form, i.name, one, j.form, j.name, two)
        need = self._seen.get(key)
        if need is None:
            need = 0
            for n in range(max(one.first, two.first), min(one.first + one.count, two.first + two.count)):
                first, second = kind(self, i, one, n - one.first), kind2(self, j, two, n - two.first)
                found = self.cycles.get((hazard, one.file, first, second))
                if found is None and second not in EARLY:
                    found = self.cycles.get((hazard, one.file, first, "any"))
                need = max(need, found or 1)
            if one.file != two.file:
                need = 0
            if len(self._seen) > 500_000:
                self._seen.clear()
            self._seen[key] = need
        return need


def sources_of(access: Access) -> Access:
    """Uniform registers as sources that may be overwritten too early."""
    return access._replace(file=SOURCES)


def holds(i: Instruction) -> bool:
    """Whether a warp waits here: for the others of its block, or (DEPBAR) for what it began itself."""
    return i.base == "DEPBAR" or i.base == "BAR" and "ARV" not in i.mods


def accumulates(i: Instruction, write: Access, j: Instruction, read: Access) -> bool:
    """Whether ``j`` adds to what ``i`` has computed, both products of a warp group: those of one shape that accumulate
    into the same registers come in order (PTX ISA, wgmma.fence), however close they are."""
    if read.what != "c" or OPS[i.base].pipe != "wgmma" or OPS[j.base].pipe != "wgmma":
        return False
    return (write.first, write.count) == (read.first, read.count) and i.mods[:1] == j.mods[:1]


# ---- the classes of latency.csv ----------------------------------------------------------------------------------


def rate(i: Instruction) -> str:
    """The class of an instruction among the rows "issue": its pipe, or of a matrix product its shape and types."""
    pipe = OPS[i.base].pipe
    if i.base in ("IMAD", "IDP"):
        return "imad"
    if "pairs" in OPS[i.base].traits:
        return "pairs"
    if pipe != "tensor":
        return pipe
    shape = _shape(i)
    kinds = ["SP"] * ("SP" in i.mods) + [shape] + ["TF32"] * ("TF32" in i.mods)
    if "S4" in i.mods or "U4" in i.mods:
        kinds.append("S4")
    if (i.base, shape) == ("HMMA", "884"):  # a step of 2 or of 4
        kinds.append(i.mods[1])
    return ".".join([i.base, *kinds])


def _shape(i: Instruction) -> str:
    """Of a matrix product: 16816, 16x8x16, 64x256x16."""
    return next(name for name in i.mods if name[0].isdigit())


def writer(_: Latencies, i: Instruction, write: Access, word: int) -> str:
    """The class of an instruction as the writer of the register ``word`` of ``write``."""
    pipe = OPS[i.base].pipe
    if write.file == BARRIER:
        return pipe if pipe == "wgmma" else i.base
    if i.base == "R2P":
        return "r2p"
    if write.file == "R":
        if pipe == "fma" and write.count == 2:  # IMAD.WIDE: the low word is there earlier
            return ("wide.low", "wide.high")[word]
        if i.base in ("CS2R", "RPCMOV") and write.count == 2:
            return "move64"
        if pipe == "half":
            return half(i)
        if pipe == "tensor":  # by shape and type of the result
            mods = [m for m in i.mods if m != "SP"]
            mods = mods[:2] + [m for m in mods if m == "TF32"] if i.base in ("HMMA", "QMMA") else mods[:1]
            return ".".join([i.base, *mods])
    return pipe


def reader(rules: Latencies, i: Instruction, read: Access, word: int) -> str:
    """The class of an instruction as the reader of the register ``word`` of ``read``."""
    pipe = OPS[i.base].pipe
    if read.file == BARRIER:
        return pipe
    if read.file in ("P", "UP"):
        if pipe == "branch" and read.file == "UP":
            return "branch"
        if read.what == "guard" or i.base in ("VOTE", "VOTEU") or pipe not in ("alu", "fma", "half", "fp64", "uniform"):
            return "guard"
        return pipe
    if read.file == "UR":
        if i.base == "ULDC" or any(isinstance(o, Const) and o.ur is not None for o in i.operands):
            return "constant"
        if pipe in ("uniform", "branch") or i.base == "UMOV":
            return "umove" if i.base == "UMOV" else pipe
        if pipe == "lsu" and read.what == "b" and word and i.base != "SYNCS":  # USTGR.64
            return "queue.high"
        vector = pipe in ("alu", "fma") or (pipe == "half" and half(i) != "half.mma")
        return "vector" if vector else "queue"
    if i.base == "IMAD" and ("WIDE" in i.mods or "HI" in i.mods):
        return ("wide.c.low", "wide.c.high")[word] if read.count == 2 else "wide.ab"
    if pipe == "half":
        return half(i)
    if pipe == "tensor" and read.what == "c":
        return "tensor.c"
    if pipe == "lsu":
        return "address" if read.what == "address" and i.base != "SYNCS" else "data"
    if pipe == "r2ur" and "r2ur" not in rules.queues:
        return "alu"
    return pipe if pipe in ("alu", "fma", "fp64", "tensor") else "queue"


def half(i: Instruction) -> str:
    """HFMA2.MMA (sm_80 and later) runs on the tensor cores; comparisons are done by the ALU."""
    if "MMA" in i.mods:
        return "half.mma"
    return "half" if i.base in ("HADD2", "HMUL2", "HFMA2") else "half.alu"


def rows() -> list[dict[str, str]]:
    """The rows of latency.csv: arch, hazard, file, first, second, cycles, source."""
    data = pkgutil.get_data("turingas.isa", "latency.csv")  # importlib.resources takes longer to import than this
    assert data is not None
    return list(csv.DictReader(data.decode().splitlines()))


@functools.cache
def latencies(arch: str) -> Latencies:
    """The rules of ``arch`` ("sm_75"). AsmError for one that is not known, or that latency.csv says nothing of: that
    nothing has to wait would be a guess."""
    of = facts(arch)
    if not any(row["arch"] == of.latency for row in rows()):
        raise AsmError(
            f"nothing is known of the latencies of {of.name}",
            hint="docs/latency.md tells how rows of latency.csv are learned",
        )
    return Latencies(of)
