"""How long one instruction must stay behind another: what a control code has to respect.

An instruction either has a fixed latency, and whoever needs its result keeps so many cycles behind it, or a variable
one, and whoever needs it waits on a scoreboard. Which instructions belong to which pipe stands here (``PIPES``); the
cycles stand in latency.csv, each with its source; docs/latency.md says how they were learned.
"""

from __future__ import annotations

import csv
import functools
from importlib import resources

from turingas.isa.instruction import Access, Instruction

#: mnemonics by the pipe that executes them
PIPES = {
    "fma": "FFMA FADD FMUL FSWZADD IMAD IDP",
    "alu": "FSEL FMNMX FSET FSETP MOV SEL IABS IADD3 LEA LOP3 PLOP3 SHF SGXT BMSK PRMT ISETP IMNMX VIMNMX VIMNMX3"
    " VIADDMNMX VIADD VABSDIFF VABSDIFF4 I2FP F2FP F2IP I2I I2IP P2R R2P CS2R VOTE ELECT LEPC RPCMOV GETLMEMBASE",
    "half": "HADD2 HMUL2 HFMA2 HMNMX2 VHMNMX HSET2 HSETP2",
    "fp64": "DFMA DADD DMUL DSETP CLMAD",
    "xu": "MUFU F2F FRND F2I I2F POPC FLO BREV FCHK",
    "tensor": "HMMA IMMA BMMA DMMA QMMA HGMMA IGMMA QGMMA BGMMA",
    "lsu": "LD LDG LDS LDL LDSM LDGMC LDTRAM ST STG STS STL STSM STAS LDGSTS ATOM ATOMG ATOMS RED REDG REDAS SHFL"
    " MATCH REDUX QSPC MOVM CCTL CCTLL CCTLT MEMBAR ERRBAR CGAERRBAR FENCE LDGDEPBAR DEPBAR ARRIVES SYNCS SETLMEMBASE",
    "constant": "LDC",
    "special": "S2R S2UR B2R R2B BAR R2UR SETCTAID",
    "tex": "TEX TLD TLD4 TMML TXD TXQ FOOTPRINT SULD SUST SURED SUATOM SUQUERY PIXLD",
    "uniform": "USEL UIADD3 UIMAD ULEA UCLEA ULOP3 USHF UPRMT USGXT UBMSK UFLO UBREV UPOPC UF2FP UISETP UPLOP3 UP2UR"
    " UR2UP ULEPC",
    "umove": "UMOV ULDC VOTEU",  # uniform registers, but not through the uniform arithmetic unit
    "copy": "UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH USETMAXREG USETSHMSZ"
    " UCGABAR_ARV UCGABAR_WAIT",
    "branch": "BRA BRX BRXU JMP JMX JMXU CALL RET WARPSYNC EXIT KILL RTT BPT BSSY BSYNC BREAK YIELD ENDCOLLECTIVE BMOV"
    " NANOSLEEP NOP PMTRIG PREEXIT ACQBULK WARPGROUP WARPGROUPSET",
}
PIPE_OF = {name: pipe for pipe, names in PIPES.items() for name in names.split()}

#: pipes whose results arrive at no fixed time, and whose sources are read after issue
VARIABLE = {"xu", "lsu", "constant", "special", "tex", "copy", "branch", "tensor"}

# Probed with nvdisasm, which refuses such words:
NO_WRITE = set(
    "BAR BRA BREAK BRX BSSY BSYNC CALL CCTL DEPBAR EXIT MEMBAR NANOSLEEP RED REDG RET ST STG STL STS WARPSYNC"
    " YIELD".split()
)
NO_READ = set("BRA BREAK BRX BSSY BSYNC CALL CCTL DEPBAR EXIT NANOSLEEP RET WARPSYNC YIELD".split())


class Latencies:
    """The rules of one architecture. Get one from ``latencies(arch)``."""

    def __init__(self, name: str) -> None:
        self.arch = name
        self.sm = int(name.removeprefix("sm_").rstrip("a"))
        self.cycles: dict[tuple[str, str, str, str], int] = {}
        for row in _rows():
            if row["arch"] == f"sm_{self.sm}":
                self.cycles[row["hazard"], row["file"], row["first"], row["second"]] = int(row["cycles"])
        self.variable_pipes = set(VARIABLE)
        if self.sm in (75, 86, 89):
            self.variable_pipes.add("fp64")
        if self.sm >= 80:
            self.variable_pipes.discard("tensor")

    # -- what an instruction is

    def pipe(self, i: Instruction) -> str:
        """The pipe that executes ``i``: a key of PIPES."""
        return PIPE_OF[i.base]

    def variable(self, i: Instruction, write: Access) -> bool:
        """Whether this result arrives at no fixed time: readers must wait on the write scoreboard of ``i``."""
        if write.file == "B" or i.base in NO_WRITE:
            return False
        if i.base == "R2UR":
            return self.sm < 80
        if i.base in ("HGMMA", "IGMMA", "QGMMA", "BGMMA"):
            return False
        if self.sm >= 80 and i.base == "DMMA":
            return True
        return PIPE_OF[i.base] in self.variable_pipes

    def late(self, i: Instruction, read: Access) -> bool:
        """Whether this source is read after issue: whoever overwrites it must have waited on the read scoreboard of
        ``i``, or on its write scoreboard."""
        if read.file in ("P", "UP", "B") or i.base in NO_READ:
            return False
        return PIPE_OF[i.base] in self.variable_pipes

    def releases(self, i: Instruction) -> tuple[bool, bool]:
        """Whether it can release a read scoreboard, and a write scoreboard."""
        variable = PIPE_OF[i.base] in self.variable_pipes
        read = variable and i.base not in NO_READ and not (i.base == "BMOV" and self.sm <= 75)
        return read, variable and i.base not in NO_WRITE

    def issue(self, i: Instruction) -> int:
        """Cycles for which a warp instruction occupies its pipe in one scheduler."""
        pipe = PIPE_OF[i.base]
        return self.cycles.get(("issue", "", pipe, ""), 1)

    # -- distances, from issue to issue

    def raw(self, producer: Instruction, write: Access, consumer: Instruction, read: Access) -> int:
        """Cycles that a reader must keep behind a fixed-latency producer."""
        return self._need("raw", producer, write, _writer, consumer, read, _reader)

    def waw(self, first: Instruction, write: Access, second: Instruction, write2: Access) -> int:
        """Cycles between two writers of one register, the first of fixed latency."""
        return self._need("waw", first, write, _writer, second, write2, _writer)

    def war(self, reader: Instruction, read: Access, writer: Instruction, write: Access) -> int:
        """Cycles between a reader that takes its sources at issue and one that overwrites them."""
        return self._need("war", reader, read, _reader, writer, write, _writer)

    def _need(self, hazard, i, one, kind, j, two, kind2):  # type: ignore[no-untyped-def]
        need = 0
        for n in range(max(one.first, two.first), min(one.first + one.count, two.first + two.count)):
            first, second = kind(i, one, n - one.first), kind2(j, two, n - two.first)
            found = self.cycles.get((hazard, one.file, first, second))
            if found is None:
                found = self.cycles.get((hazard, one.file, first, "any"), 1)
            need = max(need, found)
        return need


def _writer(i: Instruction, write: Access, word: int) -> str:
    pipe = PIPE_OF[i.base]
    if pipe == "fma" and write.file == "R" and write.count == 2:
        return ("wide.low", "wide.high")[word]
    if i.base == "CS2R" and write.count == 2:
        return "move64"
    return pipe


def _reader(i: Instruction, read: Access, word: int) -> str:
    pipe = PIPE_OF[i.base]
    if read.what == "guard":
        return "branch.guard" if pipe == "branch" else "guard"
    if read.file == "P" and i.base == "VOTE":
        return "guard"
    if i.base == "IMAD" and "WIDE" in i.mods and read.file == "R":
        return ("wide.c.low", "wide.c.high")[word] if read.count == 2 else "wide.ab"
    return pipe


def _rows() -> list[dict[str, str]]:
    return list(csv.DictReader((resources.files("turingas.isa") / "latency.csv").read_text().splitlines()))


@functools.cache
def latencies(arch: str) -> Latencies:
    """The rules of ``arch`` ("sm_75")."""
    return Latencies(arch)
