"""Which numbers in a function are addresses of its own code: return addresses before a CALL, bases of indirect
branches, jump tables, and what relocations add to the function's symbol.

Nothing marks such a number, so it is told from its use. A CALL does not say where it returns to: the caller puts the
address behind it into a register, as an immediate, ``MOV R20, 0x180``. So an immediate is a return address if it is
the address behind a CALL and reaches that CALL in a register. Code for sm_70 to sm_89 that calls the driver (printf,
malloc) takes the difference of two addresses, its own by LEPC and the one to return to. An indirect branch adds a
register to the start of the function, and the register comes from a table in constant bank 2; .nv.info has the
targets (INDIRECT_BRANCH_TARGETS). Where none of this explains a branch, ``unknown`` says so.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from turingas.cubin import relocations
from turingas.cubin.model import Code, CodeRelocation, Kernel
from turingas.errors import UnknownLabel
from turingas.isa.arch import WORD_BYTES
from turingas.isa.instruction import Const, Imm, Instruction, Label, Mem, Reg, instruction
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.table import OPS

OPCODE = 0xFFF
TABLE_BANK = 2  # of constants: compilers put jump tables there, and the addresses of functions that are pointed to
#: mnemonics behind which control may go on elsewhere, and LEPC, from which addresses are counted
FLOW = (*(base for base, op in OPS.items() if op.flow), "LEPC")
#: those of them that lead to, or make, an address that is not in the instruction: code without them needs no search
ELSEWHERE = (*(base for base, op in OPS.items() if op.flow in ("indirect", "call")), "RET", "LEPC")
MOVES = frozenset(["copy", "sum", "product"])  # Op.traits of what compilers write for a constant or a copy
RETURN = ("R", 20)  # where the ABI has the return address
PATIENCE = 4096  # instructions that are looked at between an immediate and its CALL
CONST_RANGE = re.compile(r"\.const_opt\.(\d+)\.(\d+)$")  # of a symbol: the bytes of bank 2 that a branch's table takes

NO_RETURN = "where its return address comes from"

Key = tuple[str, int]  # a register


@dataclass
class Addresses:
    """What was found. Instructions are counted from 0, addresses are bytes from the start of the function."""

    immediates: dict[int, int] = field(default_factory=dict)  # instruction -> the address that is its immediate
    based: set[int] = field(default_factory=set)  # instructions that lead to a register and the start of the function
    distances: set[int] = field(default_factory=set)  # those of them that say how far away the start is
    addends: set[tuple[int, int]] = field(default_factory=set)  # address and kind of relocations by an address
    words: dict[int, int] = field(default_factory=dict)  # offset in bank 2 -> the size of an address that stands there
    unknown: dict[int, str] = field(default_factory=dict)  # instruction -> what is not known of it

    def held(self, kernel: Kernel) -> set[int]:
        """All addresses that numbers of ``kernel`` hold."""
        found = set(self.immediates.values())
        found |= {row.addend for row in kernel.relocations if row.addend and (row.address, row.type) in self.addends}
        data = bytes(kernel.constants.get(TABLE_BANK, b""))
        return found | {int.from_bytes(data[at : at + size], "little") for at, size in self.words.items()}


def branch_tables(kernel: Kernel) -> dict[int, list[int]]:
    """The targets of indirect branches as .nv.info says them: instruction -> addresses."""
    found: dict[int, list[int]] = {}
    for info in [*kernel.attributes, *(i for infos in kernel.infos.values() for i in infos)]:
        if info.name == "INDIRECT_BRANCH_TARGETS":
            words, at = info.words, 0
            while at + 2 < len(words):  # branch, 0, number of targets, targets
                found.setdefault(words[at] // WORD_BYTES, []).extend(words[at + 3 : at + 3 + words[at + 2]])
                at += 3 + words[at + 2]
    return found


def find(kernel: Kernel, functions: Iterable[int] = (), names: Iterable[str] = ()) -> Addresses:
    """The addresses in the code of ``kernel``. ``functions``: where functions begin in its section; ``names``: the
    symbols that stand for its start."""
    return _Search(kernel, set(functions), set(names) | {kernel.symbol or kernel.name, kernel.section}).found


class _Search:
    def __init__(self, kernel: Kernel, functions: set[int], names: set[str]) -> None:
        self.kernel, self.words, self.functions = kernel, kernel.code, functions
        self.isa = instruction_set(kernel.arch)
        self.end = len(self.words)  # in bytes
        self.count = self.end // WORD_BYTES
        self.found = Addresses()
        self.flow: dict[int, Instruction] = {}
        self.branches: set[int] = set()  # to a place that they name: they are looked at when one comes by
        if kernel.code.having(self.isa.opcodes(*ELSEWHERE)):
            elsewhere, branch = self.isa.opcodes(*ELSEWHERE), self.isa.decoder.branch
            for n in kernel.code.having(self.isa.opcodes(*FLOW)):
                if self.words[n] & OPCODE not in elsewhere and branch(self.words[n]):
                    self.branches.add(n)
                elif i := self._at(n):
                    self.flow[n] = i
        self.targets = branch_tables(kernel)
        self._relocated(names)
        calls = [n for n, i in self.flow.items() if i.base == "CALL"]
        if calls:
            self._calls(calls)
        self._branches()
        self._returns(bool(calls))
        for n in [n for n in self.found.immediates if "32@" not in expression(self.isa, self.words[n], "")]:
            self.found.unknown[n] = "how its immediate is to be written as a label"
            del self.found.immediates[n]

    def _at(self, n: int) -> Instruction | None:
        return instruction(self.isa, self.words[n], WORD_BYTES * n)

    def _flow(self, n: int) -> Instruction | None:
        """Instruction ``n`` if control may go on elsewhere behind it."""
        return self._at(n) if n in self.branches else self.flow.get(n)

    # -- relocations

    def _relocated(self, names: set[str]) -> None:
        self.by_relocation: dict[int, list[CodeRelocation]] = defaultdict(list)
        for row in self.kernel.relocations:
            self.by_relocation[row.address // WORD_BYTES].append(row)
            if row.symbol not in names:
                continue
            if row.addend is None:
                value = _immediate(self.words[row.address // WORD_BYTES])
                if "_LO_" in relocations.name(row.type) and self._is_address(value):
                    self.found.immediates[row.address // WORD_BYTES] = value
            elif self._is_address(row.addend):
                self.found.addends.add((row.address, row.type))

    def _is_address(self, value: int) -> bool:
        return 0 < value < self.end and value % WORD_BYTES == 0

    # -- calls

    def _calls(self, calls: list[int]) -> None:
        lepcs = {n: i for n, i in self.flow.items() if i.base == "LEPC" and not _label(i)}
        self.leads = {(w.file, w.first) for i in lepcs.values() for w in i.writes if w.file == "R"}
        behind = {WORD_BYTES * (n + 1): n for n in calls}
        own = {WORD_BYTES * n: n for n in lepcs}
        reaching: dict[int, list[tuple[int, frozenset[Key]]]] = defaultdict(list)
        subtracted: dict[int, list[int]] = defaultdict(list)
        either = {*behind, *own}
        for n in [n for n, value in enumerate(self.kernel.code.immediates()) if value in either]:
            value, i = _immediate(self.words[n]), self._at(n)
            if i is None or not _is_move(i) or n in self.by_relocation:
                continue
            if value in behind and (holders := self._reach(n, i, behind[value])):
                reaching[behind[value]].append((n, holders))
            if value in own and self._reach(n, i, None):
                subtracted[own[value]].append(n)
        told = {row.addend for row in self.kernel.relocations if (row.address, row.type) in self.found.addends}
        told |= set(self.found.immediates.values())
        told |= {label.address for i in self.flow.values() if i.base == "LEPC" and (label := _label(i))}
        for call in calls:
            chosen = self._choose(call, reaching[call])
            for n in chosen:
                self.found.immediates[n] = WORD_BYTES * (call + 1)
            if not chosen and WORD_BYTES * (call + 1) not in told and self._may_return(call):
                self.found.unknown[call] = NO_RETURN
        for n in lepcs:
            for use in subtracted[n]:
                self.found.immediates[use] = WORD_BYTES * n
            if not subtracted[n]:
                self.found.unknown[n] = "what is made of its address"

    def _reach(self, start: int, i: Instruction, call: int | None) -> frozenset[Key] | None:
        """The registers that hold the immediate of instruction ``start`` at ``call``, if it comes so far; or at a RET,
        for a function that is called from one place alone gets its return address from nobody. With ``call`` None:
        whether the immediate is subtracted from what LEPC gives."""
        first = frozenset((w.file, w.first) for w in i.writes if w.file in ("R", "UR"))
        stack = [(n, first) for n in self._next(start)]
        seen: set[tuple[int, frozenset[Key]]] = set()
        result: frozenset[Key] | None = None
        while stack and len(seen) < PATIENCE:
            n, holders = stack.pop()
            if (n, holders) in seen or n >= self.count:
                continue
            seen.add((n, holders))
            at = self.flow.get(n) or self._at(n)
            if n == call or at is not None and at.base == "RET" and _base(at) in holders:
                result = holders if result is None else result & holders
                continue
            if at is not None:
                after = self._step(at, holders)
                if after is None:
                    if call is None:
                        return holders
                    after = holders
                holders = after
            if holders:
                stack += [(m, holders) for m in self._next(n)]
        return result or None

    def _step(self, i: Instruction, holders: frozenset[Key]) -> frozenset[Key] | None:
        """The registers that hold the value behind ``i``; None if it subtracts the value from an address of LEPC."""
        written = [(w.file, w.first + k) for w in i.writes for k in range(w.count)]
        sources = [o for o in i.operands if isinstance(o, Reg) and not o.write and o.file in ("R", "UR")]
        held = [o for o in sources if (o.file, o.index) in holders]
        joined: set[Key] = set()
        adds = "sum" in i.op.traits and "X" not in i.mods
        if held and adds and any((o.file, o.index) in self.leads for o in sources):
            if all(o.neg for o in held):
                return None
            joined = set(written[:1])
        elif held and _is_copy(i):
            joined = set(written[:1])
        return holders - set(written) | joined if i.always else holders | joined

    def _next(self, n: int) -> list[int]:
        i = self._flow(n)
        if i is None or i.base in ("CALL", "LEPC"):
            return [n + 1]
        after = [n + 1] if not i.always or not i.guard_decides else []
        if i.op.flow == "jump" and (label := _label(i)) and label.base is None:
            after.append(label.address // WORD_BYTES)
        if _indirect(i):
            after += [t // WORD_BYTES for t in self.targets.get(n, ())]
        return [m for m in after if 0 <= m < self.count]

    def _may_return(self, call: int) -> bool:
        """Whether the function that ``call`` leads to has a RET. Compilers leave loops by a CALL that is but a jump."""
        label = _label(self.flow[call])
        if label is None or label.base is not None or call in self.by_relocation:
            return True
        behind = self._flow(call + 1)
        if behind and behind.base == "BRA" and behind.always and label.address == WORD_BYTES * (call + 2):
            return False
        stack, seen = [label.address // WORD_BYTES], set[int]()
        while stack:
            n = stack.pop()
            while n not in seen and 0 <= n < self.count:
                seen.add(n)
                i = self._flow(n)
                if i is not None:
                    if i.base == "RET":
                        return True
                    stack += self._next(n)
                    break
                n += 1
        return False

    def _choose(self, call: int, found: list[tuple[int, frozenset[Key]]]) -> list[int]:
        """The immediates that are the return address of a CALL; none if it cannot be told."""
        if not found:
            return []
        if frozenset.intersection(*(holders for _, holders in found)):
            return [n for n, _ in found]
        key = self._return_register(call)  # another number happens to be the same: the function tells
        return [n for n, holders in found if key in holders]

    def _return_register(self, call: int) -> Key:
        """The register that the function which ``call`` leads to returns by."""
        label = _label(self.flow[call])
        if label is None or label.base is not None:
            return RETURN
        start = label.address // WORD_BYTES
        end = next((n for n in range(start, self.count) if n in self.flow and self.flow[n].base == "RET"), None)
        key = _base(self.flow[end]) if end is not None else None
        if end is None or key is None:
            return RETURN
        for n in range(end - 1, start - 1, -1):
            i = self._at(n)
            if i is not None and any((w.file, w.first) <= key < (w.file, w.first + w.count) for w in i.writes):
                source = [o for o in i.operands if isinstance(o, Reg) and not o.write and o.file == "R" and not o.zero]
                if not _is_copy(i):
                    return RETURN
                key = (source[0].file, source[0].index)
        return key

    # -- indirect branches

    def _branches(self) -> None:
        starts = sorted(start for n, i in self.flow.items() if _indirect(i) and (start := self._table(n, i)) >= 0)
        for n, i in self.flow.items():
            label = _label(i)
            if label is None or label.base is None:
                continue
            self.found.based.add(n)
            if label.relative and label.address:
                self.found.unknown[n] = f"what is added to {label.address:#x}"
            elif _indirect(i):
                if label.relative:
                    self.found.distances.add(n)
                if not self._follow_table(self._table(n, i), starts, set(self.targets.get(n, ()))):
                    self.found.unknown[n] = "where it leads to"
            elif i.base == "CALL" and label.relative and not self._pointed():
                self.found.unknown[n] = "which functions it leads to"

    def _table(self, n: int, i: Instruction) -> int:
        """Where in bank 2 the table of an indirect branch begins; -1 if that is not seen."""
        key = _base(i)
        for m in range(n - 1, max(n - 64, -1), -1):
            load = self._at(m)
            if load is None or key not in {(w.file, w.first) for w in load.writes}:
                continue
            ranges = [found for row in self.by_relocation[m] if (found := CONST_RANGE.search(row.symbol))]
            if ranges:
                return int(ranges[0][1])
            if load.op.space == "constant":
                for o in load.operands:
                    if isinstance(o, (Const, Mem)) and o.bank == TABLE_BANK:
                        return o.offset + (self._added(m, o) if o.offset < 0 else 0)
            source = [o for o in load.operands if isinstance(o, Reg) and not o.write and not o.zero and o.file != "P"]
            if not _is_copy(load) or len(source) != 1:
                return -1
            key = (source[0].file, source[0].index)
        return -1

    def _added(self, n: int, where: Const | Mem) -> int:
        """What is added to the register of an address: NVSHMEM's code for sm_120 adds 0x8000, and takes it off again
        in the LDC."""
        base = getattr(where, "base", None) or where.ur
        for m in range(n - 1, max(n - 8, -1), -1):
            i = self._at(m)
            if base is None or i is None or (base.file, base.index) not in {(w.file, w.first) for w in i.writes}:
                continue
            numbers = [o.value for o in i.operands if isinstance(o, Imm)]
            if "sum" in i.op.traits and len(numbers) == 1 and all(not o.neg for o in _sources(i)):
                return int(numbers[0])
            break
        return 0

    def _follow_table(self, start: int, starts: list[int], targets: set[int]) -> bool:
        """Whether the table at ``start`` holds ``targets`` and nothing else; its words are noted."""
        data = bytes(self.kernel.constants.get(TABLE_BANK, b""))
        if start < 0 or not targets:
            return False
        end = min([other for other in starts if other > start] + [len(data) // 4 * 4])
        seen: dict[int, int] = {}
        for at in range(start, end, 4):
            value = int.from_bytes(data[at : at + 4], "little")
            if value not in targets:
                break
            seen[at] = value
        if set(seen.values()) != targets:
            return False
        self.found.words.update(dict.fromkeys(seen, 4))
        return True

    def _pointed(self) -> bool:
        """Whether bank 2 begins with the addresses of functions: 1 for the null pointer, then one after the other."""
        data = bytes(self.kernel.constants.get(TABLE_BANK, b""))
        quads = struct.unpack_from(f"<{len(data) // 8}Q", data)
        if not quads or quads[0] != 1:
            return False
        at = 1
        while at < len(quads) and quads[at] in self.functions:
            self.found.words[8 * at] = 8
            at += 1
        return at > 1

    def _returns(self, calls: bool) -> None:
        """A kernel that calls nothing has nothing to return to: its RET is a jump to somewhere."""
        for n, i in self.flow.items():
            if i.base == "RET" and self.kernel.entry and not calls:
                self.found.unknown[n] = "where it leads to"


# -- instructions


def ends_of_blocks(isa: Isa, code: Code) -> list[int]:
    """The numbers of the words behind which control may go on elsewhere."""
    return code.having(isa.opcodes(*FLOW))


def _immediate(word: int) -> int:
    """The 32 bits where immediates stand."""
    return word >> 32 & 0xFFFFFFFF


def _indirect(i: Instruction) -> bool:
    """Whether it is a branch to an address in a register."""
    return i.op.flow == "indirect"


def _label(i: Instruction) -> Label | None:
    return next((o for o in i.operands if isinstance(o, Label)), None)


def _base(i: Instruction) -> Key | None:
    """The register that an indirect branch adds."""
    label = _label(i)
    return (label.base.file, label.base.index) if label and label.base else None


def _sources(i: Instruction) -> Iterator[Reg]:
    return (o for o in i.operands if isinstance(o, Reg) and not o.write and o.file in ("R", "UR") and not o.zero)


def _is_move(i: Instruction) -> bool:
    """Whether a register becomes the immediate of ``i``: MOV, or arithmetic with RZ."""
    return bool(i.op.traits & MOVES) and any(isinstance(o, Imm) for o in i.operands) and not any(_sources(i))


def _is_copy(i: Instruction) -> bool:
    """Whether a register becomes another one: MOV, or arithmetic with RZ."""
    plain = not any(isinstance(o, (Const, Mem)) for o in i.operands)
    sources = list(_sources(i))
    return bool(i.op.traits & MOVES) and plain and len(sources) == 1 and not sources[0].neg


# -- in the text of an instruction

NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
EXPRESSION = re.compile(r"32@(lo|hi)\(([^()]*)\)")
START = "START"  # stands for the first instruction of a function: what indirect branches count from
FROM_START = re.compile(rf"^((?:@\S+ )?(?:BRXU?)\b.*\bU?R\d+) {START}$")
ZEROS = {"HFMA2": "0, 0"}  # how an immediate of 0 is written


def expression(isa: Isa, word: int, label: str) -> str:
    """The text of ``word``, with control code, with 32@lo(label) in place of its immediate, if the immediate can be
    told from the rest."""
    text: str = isa.lines([word & ~(0xFFFFFFFF << 32)])[0]
    zero = next((zero for base, zero in ZEROS.items() if base in text), "0x0")
    return text.replace(zero, f"32@lo({label})") if text.count(zero) == 1 else text


def from_start(text: str) -> str:
    """The text of an indirect branch with START in place of the distance to it."""
    return text.rpartition(" ")[0] + " " + START


def evaluate(body: str, address: int, labels: Mapping[str, int]) -> tuple[str, int]:
    """An instruction without expressions of labels, and what is to be set in the bits of its immediate."""
    if "32@" in body and (found := EXPRESSION.search(body)):
        base = next((base for base in ZEROS if re.search(rf"(^|\s){base}\b", body)), "")
        value = _value(found[2].strip(), labels)
        part = value & 0xFFFFFFFF if found[1] == "lo" else value >> 32
        return body[: found.start()] + ZEROS.get(base, "0x0") + body[found.end() :], part << 32
    if START in body and START not in labels and (branch := FROM_START.match(body)):
        return f"{branch[1]} {-(address + WORD_BYTES):#x}", 0
    return body, 0


def _value(text: str, labels: Mapping[str, int]) -> int:
    """LABEL, a number, or a difference of two."""
    parts = [part.strip() for part in text.split("-")]
    for part in parts:
        if part not in labels and not NUMBER.fullmatch(part):
            raise UnknownLabel(f"undefined label {part!r}")
    found = [labels[part] if part in labels else int(part, 0) for part in parts]
    return found[0] - sum(found[1:])
