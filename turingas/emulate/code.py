"""A kernel's code and constants, as the device has placed and relocated them."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable

import numpy as np

from turingas.cubin.model import Kernel
from turingas.emulate.arrays import Array
from turingas.emulate.errors import Place, Unsupported
from turingas.emulate.memory import Global
from turingas.isa.arch import Arch
from turingas.isa.effects import Effects
from turingas.isa.instruction import Imm, Instruction, instruction
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.latency import latencies
from turingas.isa.op import Op
from turingas.isa.table import OPS

WORD = 16

REMEMBERED = 1 << 14  # instructions at their addresses, those of the last launches

Section = tuple[int, Kernel]  # where a section of code begins, and what it holds


@functools.lru_cache(REMEMBERED)
def decoded(isa: Isa, word: int, address: int) -> Instruction | None:
    """The instruction of a word at ``address``; None where no row of the table explains it."""
    return instruction(isa, word, address)


class Code:
    """``words`` are the code of the kernel's section (at address 0, as the addresses in its own tables have it) and of
    the functions' sections behind it; ``banks`` its constant memory; ``memory`` the device's global memory."""

    def __init__(
        self, arch: Arch, memory: Global, kernel: Kernel, sections: list[Section], words: list[int],
        banks: dict[int, Array], local_bytes: int, externals: dict[int, str],
    ) -> None:
        self.arch, self.memory, self.kernel = arch, memory, kernel
        self.sections, self.words, self.banks = sections, words, banks
        self.externals = externals
        self.local_bytes = local_bytes
        self.reserved: dict[str, int] = {}  # symbols of the system's shared memory, for tensor memory
        self.any_order: list[range] = []  # bytes of functions for which the order of columns in MOVM.U4TO8 is no matter
        self.isa = instruction_set(kernel.arch)
        self.instructions: list[Instruction | None] = [decoded(self.isa, w, n * WORD) for n, w in enumerate(words)]
        self.bases = {i.base for i in self.instructions if i is not None}  # what it has at all
        asked = []
        if "USETMAXREG" in self.bases:  # a count in a uniform register may be any
            asked = [i.operands[-1].value if isinstance(i.operands[-1], Imm) else self.arch.max_registers
                     for i in self.instructions if i is not None and i.base == "USETMAXREG"]  # fmt: skip
        self.moves = bool(asked)  # warps give registers up, or ask for more
        # a relocatable kernel declares its own alone; linking it gives it the most of what it calls
        self.registers = max(1, *asked, *(text.registers for _, text in sections))

    def has(self, which: Callable[[Op], bool]) -> bool:
        """Whether it has an instruction of some kind."""
        return any(which(OPS[base]) for base in self.bases)

    @functools.cached_property
    def effects(self) -> list[Effects | None]:
        """What the scoreboard mode has to know of each instruction."""
        rules = latencies(self.arch.name)
        return [None if i is None else Effects(i, rules) for i in self.instructions]

    def place(self, n: int) -> Place:
        """Where instruction ``n`` stands, as people know it."""
        if not 0 <= n < len(self.words):
            return Place(self.kernel.name, n * WORD, "outside the code")
        start, owner = self.sections[bisect.bisect_right(self.sections, n, key=lambda s: s[0]) - 1]
        local = n - start
        file, line = owner.lines[local] if local < len(owner.lines) else ("", 0)
        text = self.isa.decode(self.words[n], local * WORD, plain=True)
        return Place(owner.name, local * WORD, text, file, line)

    # -- constant memory

    def bank(self, number: int) -> Array:
        """The bytes of a constant bank, uint8; an empty one where the kernel has none."""
        found = self.banks.get(number)
        return found if found is not None else np.zeros(0, np.uint8)

    def constant(self, bank: int, offset: int, size: int) -> bytes:
        """``size`` bytes of a bank. Unsupported (the instruction then cannot be run) beyond its end."""
        data = self.bank(bank)
        if not 0 <= offset <= offset + size <= len(data):
            raise Unsupported(f"c[{bank:#x}][{offset:#x}] is out of range: that bank has {len(data)} bytes")
        return bytes(data[offset : offset + size])
