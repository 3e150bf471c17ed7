"""What inline Python needs to schedule a kernel: settle() works out stall counts and reuse flags, Weave lays
instructions between others. Every source includes this file, so that ARCH and what -D gives are globals here.

A line is written as everywhere, `wait:read:write:yield:*  INSTRUCTION`, with `*` in the place of the stall, or with the
least that it shall be; without a control code it waits for nothing, sets nothing and does not yield. So scoreboards are
the writer's business. Stalls follow from turingas/isa/latency.csv, which the linter uses too.
"""

import functools
import re

from turingas.check.banks import sources
from turingas.isa.arch import arch
from turingas.isa.control import parse
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies
from turingas.source.names import Names

RULES = latencies(ARCH)
SM = RULES.sm
LINE = re.compile(r"(?:(\S+):(\S):(\S):(\S):(\*|[0-9a-f])\s+)?(@!?\w+\s+)?([A-Z]\S*)(?:\s+(.*))?$")
LONGEST = max(cycles for (hazard, *_), cycles in RULES.cycles.items() if hazard in ("raw", "waw"))
BEHIND = {"BAR": 6 if SM >= 80 else 5, "BRA": 5, "EXIT": 5}  # what compilers stall behind these


@functools.cache
def decoded(text, code):
    """The instruction; where a branch goes to does not matter. Whether HMMA sets a scoreboard, which ``code`` says,
    tells if its time is fixed."""
    isa = instruction_set(ARCH)
    return instruction(isa, isa.encode(text, 0, {text.split()[-1]: 0}) | parse(code))


class Op:
    """One line: the parts of its control code, and the decoded instruction ``i``."""

    def __init__(self, line, names):
        found = LINE.match(line)
        if found is None:
            raise ValueError(f"no instruction: {line}")
        wait, read, write, yields, least, guard, self.name, rest = found.groups()
        self.wait = int((wait or "0").replace("-", "0"), 16)
        self.read, self.write, self.yields = read or "-", write or "-", yields or "-"
        self.least = int((least or "*").replace("*", "1"), 16)
        self.guard = guard or ""
        self.operands = (rest or "").split(", ")
        text = f"{names[self.guard]}{self.name} {', '.join(names[o] for o in self.operands)}"
        self.i = decoded(text.strip(), f"--:{self.read}:{self.write}:-:1")
        self.stall = self.least
        # a flag is a letter here and not .reuse, so that sources() tells of the places alone
        self.places = [slot + (n,) for slot, n, _ in sources(self.i)] if self.i.base == "FFMA" else ()
        self.keeps = set()

    def text(self):
        flags = {24: 1, 32: 2, 64: 3}  # place in the word -> operand of FFMA
        operands = list(self.operands)
        for _, place, _ in self.keeps:
            operands[flags[place]] += ".reuse"
        yields = "Y" if self.stall > 11 else self.yields
        wait = f"0x{self.wait:02x}" if self.wait else "--"
        code = f"{wait}:{self.read}:{self.write}:{yields}:{self.stall:x}"
        return f"{code}  {self.guard}{self.name} {', '.join(operands)};"


def parts(lines, names):
    """The lines' instructions as Op, and labels as they are."""
    lines = [line.partition("#")[0].strip().rstrip(";") for line in "\n".join(lines).splitlines()]
    return [line if line.endswith(":") else Op(line, names) for line in lines if line]


def settle(lines, names):
    """The lines with stalls and reuse flags; labels stay as they are."""
    out = parts(lines, names)
    stalls([op for op in out if isinstance(op, Op)])
    flags(out)
    return "\n".join(op.text() if isinstance(op, Op) else op for op in out)


def stalls(ops):
    """The least stalls that keep every result of fixed latency, every pipe, and the setting of every scoreboard."""
    at, before = 0, None
    begun = {}  # register -> (instruction, access, cycle) of who wrote it last
    busy, noted = {}, {}  # pipe, scoreboard -> cycle
    for op in ops:
        i = op.i
        pipe = RULES.pipe(i)
        soonest = at + (max(before.least, BEHIND.get(before.i.base, 1 if before.yields == "-" else 2)) if before else 0)
        soonest = max([soonest, busy.get(pipe, 0)] + [noted.get(sb, 0) for sb in range(6) if op.wait >> sb & 1])
        for hazard, accesses in ((RULES.raw, RULES.reads(i)), (RULES.waw, i.writes)):
            for access in accesses:
                for n in range(access.first, access.first + access.count):
                    if (access.file, n) in begun:
                        first, access_then, cycle = begun[access.file, n]
                        if soonest < cycle + LONGEST:
                            soonest = max(soonest, cycle + hazard(first, access_then, i, access))
        if before:
            before.stall = soonest - at
        at, before = soonest, op
        if pipe in ("fma", "alu"):
            busy[pipe] = at + RULES.issue(i)
        for sb in (op.read, op.write):
            if sb != "-":
                noted[int(sb)] = at + 2
        for write in RULES.writes(i):
            for n in range(write.first, write.first + write.count):
                if RULES.variable(i, write):
                    begun.pop((write.file, n), None)
                else:
                    begun[write.file, n] = i, write, at
    before.stall = max(before.least, BEHIND.get(before.i.base, 1))


def flags(out):
    """Reuse flags where the next reader of that bank and place reads the same register, which nobody writes before."""
    waiting = {}  # (bank, place) -> instruction and register that may stay there
    for op in out:
        if not isinstance(op, Op) or op.i.base == "BRA":
            waiting = {}
            continue
        for slot, n, _ in sources(op.i):
            first, kept = waiting.pop(slot, (None, None))
            if kept == n and first is not None and op.i.base == "FFMA":
                first.keeps.add(slot + (n,))
        if op.yields == "Y":
            waiting = {}
            continue
        for bank, place, n in op.places:
            waiting[bank, place] = op, n
        for write in op.i.writes:
            if write.file == "R":
                written = range(write.first, write.first + write.count)
                waiting = {slot: kept for slot, kept in waiting.items() if kept[1] not in written}


class Weave:
    """A stream of instructions with others between them. Slot n lies behind the n-th part of the stream; each slot
    takes one instruction, which then costs no cycle where FFMA leave every other issue slot free."""

    def __init__(self, stream):
        self.stream, self.slots = stream, {}

    def put(self, ops, first, every=1):
        """``ops`` in order, ``every`` so many slots, from slot ``first``, or in the next free ones. The last one's."""
        slot = first - every
        for op in ops:
            slot += every
            while slot in self.slots:
                slot += 1
            if slot >= len(self.stream):
                raise ValueError(f"no slot is left for {op}")
            self.slots[slot] = op
        return slot

    def lines(self):
        for n, part in enumerate(self.stream):
            yield from part
            if n in self.slots:
                yield self.slots[n]


def cc(*wait, read="-", write="-", yields="-"):
    """A control code that waits for the scoreboards ``wait`` and sets those that are given."""
    mask = f"{sum(1 << sb for sb in wait):02x}" if wait else "--"
    return f"{mask}:{read}:{write}:{yields}:* "


def needs(least):
    """ValueError for an architecture before sm_<least>."""
    if SM < least:
        raise ValueError(f"this is for sm_{least} and later, not for {ARCH}: say --arch sm_90")


def choose(name, default, known):
    """The parameter that -D gives, or the default; ValueError names what it can be, if these are many the first."""
    found = {str(one): one for one in known}.get(str(globals().get(name, default)))
    if found is None:
        some = ", ".join(map(str, list(known)[:12]))
        raise ValueError(f"-D {name}={globals()[name]}: there are {some}{', ...' if len(known) > 12 else ''}")
    return found


SMEM = 1024 if SM >= 90 else 0  # where a block's shared memory begins; the system has what lies before
# The next kernel may begin: it waits as this one does (ACQBULK), ahead of its first load, for the one before it to end.
PREEXIT, ACQBULK = (["PREEXIT"], ["ACQBULK"]) if SM >= 90 else ([], [])
DESCRIPTOR = [f"ULDC.64 UR4, c[0x0][0x{arch(ARCH).global_descriptor:x}]"] if SM >= 80 else []


def memory(pair, offset=0):
    """A global address: the pair of registers from ``pair`` on."""
    if SM >= 80:
        return f"{'' if SM >= 90 else '~'}desc[UR4][{pair}.64+0x{offset:x}]"
    return f"[{pair}+0x{offset:x}]"


def uniform(pair, offset):
    """A global address that all lanes have: the pair of uniform registers from ``pair`` on. sm_80 and later."""
    return f"[{'RZ.U32+' if SM >= 90 else ''}{pair}{f'+{offset:#x}' if offset else ''}]"


def ldg(to, address, size=""):
    return f"LDG.E{size}{'.SYS' if SM < 80 else ''} {to}, {address}"


def stg(address, value, size=""):
    return f"STG.E{size}{'.SYS' if SM < 80 else ''} {address}, {value}"


def inverse(n, b):
    """inv<n>: 2^32 / b, or a little less, for the parameter b. Takes the pair of x0 or y0 or z0, and scoreboard n."""
    low, high = f"{'xyz'[n]}0", f"{'xyz'[n]}1"
    return [
        f"{cc(write=n)} I2F.U32.RP inv{n}, {b}",
        f"{cc(n, write=n)} MUFU.RCP inv{n}, inv{n}",
        f"{cc(n)} IADD3 inv{n}, inv{n}, 0xffffffe, RZ",
        f"{cc(write=n)} F2I.FTZ.U32.TRUNC.NTZ inv{n}, inv{n}",
        f"{cc(n)} IADD3 {low}, RZ, -inv{n}, RZ",
        f"IMAD {low}, {low}, {b}, RZ",  # what is missing of 2^32
        f"IMAD.WIDE.U32 {low}, inv{n}, {low}, RZ",
        f"IADD3 inv{n}, inv{n}, {high}, RZ",
    ]


def quotient(q, r, a, n, b):
    """q, r = divmod(a, b). The inverse is too small by less than 2, so that q is by 1 at most for a < 2^31."""
    return f"""
                    IMAD.WIDE.U32 x0, inv{n}, {a}, RZ
                    MOV {q}, x1
                    IADD3 x0, RZ, -x1, RZ
                    IMAD {r}, x0, {b}, {a}
                    ISETP.GE.U32.AND P0, PT, {r}, {b}, PT
                    @P0 IADD3 {r}, {r}, -{b}, RZ
                    @P0 IADD3 {q}, {q}, 0x1, RZ"""


def table(regs, params):
    """Names for settle(), and the text of the blocks <regs> and <params> that declare them."""
    registers = [line.strip() for line in code(regs) if line.strip()]
    parameters = [one.strip() for line in code(params) for one in line.split(";") if one.strip()]
    names = Names(arch(ARCH))
    for line in registers:
        names.register(line, None)
    for one in parameters:
        names.parameter(one.replace(" ", "").split(","), None)
    return names, "\n".join(["<regs>", *registers, "</regs>", "<params>", *parameters, "</params>", ""])


def code(*parts):
    """The lines of strings, and of what yields strings, without comments."""
    for part in parts:
        if isinstance(part, str):
            yield from (line.partition("#")[0] for line in part.splitlines())
        else:
            yield from code(*part)
