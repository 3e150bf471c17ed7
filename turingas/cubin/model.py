"""What passes between the stages: kernels, what belongs to them, and the cubin that holds them."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from turingas.cubin.elf import Bytes, Elf
from turingas.cubin.nvinfo import Info
from turingas.isa.arch import WORD_BYTES, Arch, arch
from turingas.notebook import table


@dataclass(frozen=True)
class Param:
    """One kernel parameter; ``offset`` counts from the start of the parameters. ``type`` is one of TYPES, a pointer to
    one of them (``f32*``), or "" if nothing is known but the size."""

    offset: int
    size: int
    name: str = ""
    type: str = ""


@dataclass(frozen=True)
class CodeRelocation:
    """What the linker or driver writes into the instruction at ``address``. ``addend`` None: a REL row."""

    address: int
    type: int
    symbol: str
    addend: int | None = None


def packed(words: Iterable[int]) -> bytes:
    """Words as they lie in memory."""
    return b"".join([word.to_bytes(WORD_BYTES, "little") for word in words])


class Code:
    """Instructions, as bytes or as 128-bit words: whichever is asked for is made from the other."""

    def __init__(self, data: Bytes = b"", words: Sequence[int] | None = None) -> None:
        self._data = data
        self._words = None if words is None else list(words)
        self._lowest = b""  # of bytes, which do not change: the two lowest of each word
        self._present: dict[int, list[bytes]] = {}  # these, each once, by opcode
        self._having: dict[frozenset[int], list[int]] = {}  # ``having``, likewise of bytes

    def __reduce__(self) -> tuple[object, ...]:
        return Code, (bytes(self._data) if self._words is None else b"", self._words)  # views do not pickle

    @property
    def words(self) -> list[int]:
        """The instructions. Changing the list changes the code."""
        if self._words is None:
            self._words = list(self)
        return self._words

    @property
    def data(self) -> Bytes:
        """The instructions as they lie in memory."""
        if self._words is None:
            return self._data
        return packed(self._words)

    def __len__(self) -> int:
        return len(self._data) if self._words is None else WORD_BYTES * len(self._words)

    def __getitem__(self, at: int) -> int:
        """One word."""
        if self._words is not None:
            return self._words[at]
        return int.from_bytes(self._data[WORD_BYTES * at : WORD_BYTES * (at + 1)], "little")

    def __iter__(self) -> Iterator[int]:
        """The words one by one, without keeping them here."""
        if self._words is not None:
            return iter(self._words)
        return iter([high << 64 | low for low, high in struct.iter_unpack("<QQ", self._data)])

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each word: those that are asked for text by text need not be made numbers first."""
        return [piece for (piece,) in struct.iter_unpack(f"{WORD_BYTES}s", self.data)]

    def having(self, opcodes: frozenset[int]) -> list[int]:
        """The numbers of the words with one of these opcodes (bits 0 to 11)."""
        if self._words is not None:
            return [at for at, word in enumerate(self._words) if word & 0xFFF in opcodes]
        found = self._having.get(opcodes)
        if found is not None:
            return found
        found = []
        for opcode in self._opcodes() & opcodes:  # of those that are asked for there are few
            for bits in self._present[opcode]:
                at = self._lowest.find(bits)
                while at >= 0:
                    if at % 2 == 0:
                        found.append(at // 2)
                    at = self._lowest.find(bits, at + 1)
        found.sort()
        self._having[opcodes] = found
        return found

    def _opcodes(self) -> Set[int]:
        """Bits 0 to 11 of the words, of bytes."""
        if not self._lowest:
            halves = array("H", bytes(self._data))[:: WORD_BYTES // 2]
            self._lowest = halves.tobytes()
            for half in set(halves):
                bits = half.to_bytes(2, sys.byteorder)
                self._present.setdefault(int.from_bytes(bits, "little") & 0xFFF, []).append(bits)
        return self._present.keys()

    def immediates(self) -> Sequence[int]:
        """Bits 32 to 63 of the words, where immediates stand."""
        quarters = array("I", bytes(self.data))
        if sys.byteorder == "big":
            quarters.byteswap()
        return quarters[1 :: WORD_BYTES // quarters.itemsize]

    def opcodes(self) -> set[int]:
        """Bits 0 to 11 of the words, each once."""
        if self._words is not None:
            return {word & 0xFFF for word in self._words}
        return set(self._opcodes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and (self is other or bytes(self.data) == bytes(other.data))


@dataclass(repr=False)
class Kernel:
    """A kernel, or a function that kernels call (``entry`` False), with a section of its own."""

    name: str
    arch: str
    code: Code = field(default_factory=Code)
    registers: int = 0
    shared_bytes: int = 0  # static, as declared (compilers for sm_90 count 1024 reserved bytes in)
    params: list[Param] = field(default_factory=list)
    barriers: int = 0  # named barriers: highest used + 1
    frame_bytes: int = 0  # local memory that the code itself takes
    stack_bytes: int | None = 0  # with what it calls; None: not said
    max_stack_bytes: int | None = None  # CUDA 11 and relocatable code say it
    entry: bool = True
    bind: int = 1  # 0 local, 1 global, 2 weak
    constants: dict[int, Bytes] = field(default_factory=dict)  # its own banks, without bank 0
    infos: dict[int, list[Info]] = field(default_factory=dict)  # EIATTR code -> what replaces the derived ones
    info_order: list[int] = field(default_factory=list)  # of their codes, when it is not the usual one
    relocations: list[CodeRelocation] = field(default_factory=list)
    shared_align: int = 16
    flags: int = 6  # of its section, without the barriers
    align: int = 128
    link: str | int = ".symtab"  # sh_link of its section, by name; linkers leave others there
    entry_size: int = 0  # of its section, and its address: nothing asks for them, files have them all the same
    address: int = 0
    section_info: int | None = None  # sh_info of its section, when it is not what it should be
    own_section: str | None = None  # the name of its section, when it is not .text.NAME
    symbol: str = ""  # the name of its symbol, when it is not NAME
    attributes: list[Info] = field(default_factory=list)  # all that .nv.info said of it, when it was read
    #: addresses of branches of changed code of which is not known where they lead: the assembler says so
    stranded: list[int] = field(default_factory=list, compare=False)
    #: file and line that each instruction came from: the assembler knows, and a cubin compiled with -lineinfo says
    lines: list[tuple[str, int]] = field(default_factory=list, compare=False)
    #: the author's names of registers (R5 -> lo); and those that no operand has, with register, file and line
    names: dict[str, str] = field(default_factory=dict, compare=False)
    unused: list[tuple[str, str, str, int]] = field(default_factory=list, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: without views of a file."""
        return {**self.__dict__, "constants": {bank: bytes(data) for bank, data in self.constants.items()}}

    def __repr__(self) -> str:
        what = "Kernel" if self.entry else "Kernel (function)"
        return f"<{what} {self.name} of {self.arch}, {len(self.words)} instructions, {self.registers} registers>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html(self.arch, [self])

    @property
    def words(self) -> list[int]:
        """The instructions, one number of 128 bits each."""
        return self.code.words

    @words.setter
    def words(self, words: Sequence[int]) -> None:
        self.code = Code(words=words)

    @property
    def section(self) -> str:
        """The name of the section that holds the code."""
        return ".text." + self.name if self.own_section is None else self.own_section

    @property
    def typed(self) -> bool:
        """Whether the types of its parameters are known, of some at least."""
        return any(param.type for param in self.params)

    @property
    def param_bytes(self) -> int:
        """Size of the parameter area."""
        return max((p.offset + p.size for p in self.params), default=0)

    @property
    def facts(self) -> Arch:
        """Facts of its architecture."""
        return arch(self.arch)


def html(caption: str, kernels: Iterable[Kernel]) -> str:
    """A table of kernels, for notebooks."""
    titles = ("kernel", "instructions", "registers", "shared bytes", "parameters")
    rows = (
        (k.name, len(k.words), k.registers, k.shared_bytes, ", ".join(param.name or "?" for param in k.params))
        for k in kernels
    )
    return table(caption, titles, rows)


@dataclass
class RawSection:
    """A section with its references by name: ``link`` and ``info`` are section names, or plain numbers."""

    name: str
    type: int = 1
    flags: int = 0
    align: int = 1
    entry_size: int = 0
    link: str | int = 0
    info: str | int = 0
    data: Bytes = b""
    size: int = 0  # of its contents, when it has none in the file
    address: int = 0


@dataclass
class RawSymbol:
    """A row of the symbol table; ``section`` is a name, "" (undefined) or one of the SHN_ numbers."""

    name: str
    section: str | int = ""
    value: int = 0
    size: int = 0
    type: int = 0
    bind: int = 0
    other: int = 0


@dataclass
class Constant:
    """A named piece of constant bank 3, that the host can find by its name."""

    name: str
    offset: int
    data: Bytes


@dataclass
class Header:
    """What the ELF header says beyond the architecture."""

    version: int = 129  # of the toolkit, CUDA 12.9 (ABI version 8: always 1)
    flags: int | None = None  # None: as the architecture has it
    type: int = 2  # 1 relocatable, 2 executable
    abi: int = 0x33
    abi_version: int = 7
    segments: int = 2  # program headers of an executable: 0 none, 1 all but the one that loads the headers, 2 all

    @classmethod
    def usual(cls, facts: Arch) -> Header:
        """What the headers of an architecture's cubins say unless told otherwise."""
        return cls(version=1, abi=facts.abi, abi_version=8) if facts.abi != cls.abi else cls()


@dataclass
class Parts:
    """What a cubin holds: kernels, device functions and all else.

    ``sections``, ``dropped`` and ``symbols`` say what is different from what follows from the kernels:
    sections that replace or join the derived ones, derived ones left out, and the whole symbol table.
    """

    arch: str
    texts: list[Kernel] = field(default_factory=list)  # kernels and functions in the order of their sections
    constants: list[Constant] = field(default_factory=list)
    header: Header = None  # type: ignore[assignment]  # None: the architecture's usual one
    sections: list[RawSection] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    symbols: list[RawSymbol] | None = None
    order: list[str] = field(default_factory=list)  # of the sections, when a capsule numbers them in another than ours
    capsule: str = ""  # capsule.digest of the code that the capsule is of
    keep_capsule: bool = False  # whether the capsule stays when the code has changed
    source: bytes | None = field(default=None, repr=False)  # the file it was read from
    elf: Elf | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.header is None:
            self.header = Header.usual(arch(self.arch))

    @property
    def kernels(self) -> list[Kernel]:
        """What the host can launch."""
        return [text for text in self.texts if text.entry]

    @property
    def functions(self) -> list[Kernel]:
        """Device functions that have a section of their own."""
        return [text for text in self.texts if not text.entry]

    def kernel(self, name: str) -> Kernel:
        """The kernel called ``name``; KeyError names those there are."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"no kernel {name!r}; there are: {', '.join(k.name for k in self.kernels)}")
