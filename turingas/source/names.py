"""Names of registers, parameters and constants: the <regs>, <params>, <consts> and <smem> blocks of TuringAs.

A name stands for its register or constant wherever it occurs in an operand: `tid` -> `R2`, `input[1]` ->
`c[0x0][0x164]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from turingas.errors import AsmError
from turingas.isa.arch import Arch
from turingas.parameter_types import TYPES, type_size
from turingas.source.lines import PlainLine

BLOCKS = ("regs", "params", "consts", "smem")

DIGITS = "0123456789"
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_NAME_RANGE = re.compile(r"([A-Za-z_]\w*?)<([0-9]+)-([0-9]+)>(\w*)\Z")
_REGISTERS = re.compile(r"(UR|UP|R|P)?([0-9]+)(?:-([0-9]+))?\Z")
_WORD = re.compile(r"[A-Za-z_]\w*")
_HARDWARE = re.compile(r"(U?R([0-9]+|Z)|U?P[0-7T]|PR|UPR|SRZ|SR_\w*)\Z")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+\Z|[0-9]+\Z")

# An identifier in an operand, perhaps with an index. Not the `X` of `.X`, nor the `c` of `c[0x0][0x160]`.
_USE = re.compile(r"(?<![\w.`$(])(?<!32@)([A-Za-z_]\w*)(?!\w)(?!\[[^\[\]]*\]\[)(?:\[([0-9]+)\])?")
_MINUS = re.compile(r"(?<=\w)-(?=[0-9])")
_BUILTIN = re.compile(r"\b(?:blockDim|gridDim|threadIdx|blockIdx)\.[xyz]\b")


class NameProblem(Exception):
    """A name is used as it cannot be. ``what`` is the text to point at."""

    def __init__(self, message: str, what: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.what = what
        self.hint = hint


class Names(dict[str, str]):
    """Operand as written -> operand with its names replaced: each text is resolved once, then looked up.

    The names live in ``meaning`` (name -> its text) and ``memory`` (name -> bank, offset, bytes).
    """

    def __init__(self, arch: Arch, base: Names | None = None) -> None:
        super().__init__()
        self.arch = arch
        self.meaning: dict[str, str] = dict(base.meaning) if base is not None else {}
        self.memory: dict[str, tuple[int, int, int]] = dict(base.memory) if base is not None else {}
        self.places: dict[str, PlainLine] = dict(base.places) if base is not None else {}
        self.guards: set[str] = set()  # names that stand as guards
        self.inherited = frozenset(self.places)  # other sections may use them
        self.param_end: int = base.param_end if base is not None else 0  # bytes of parameters so far

    def __missing__(self, operand: str) -> str:
        text = _BUILTIN.sub(self._builtin, operand) if "Dim." in operand or "Idx." in operand else operand
        text = _USE.sub(self._use, text)
        if "[" in text:  # [R2 - 0x10] is [R2+-0x10], as nvdisasm has it
            text = _MINUS.sub("+-", text.replace(" ", ""))
        self[operand] = text
        return text

    def _builtin(self, match: re.Match[str]) -> str:
        kind, _, axis = match[0].partition(".")
        if kind in ("threadIdx", "blockIdx"):
            return ("SR_TID." if kind == "threadIdx" else "SR_CTAID.") + axis.upper()
        base = self.arch.block_dim if kind == "blockDim" else self.arch.grid_dim
        return f"c[0x0][0x{base + 4 * 'xyz'.index(axis):x}]"

    def _use(self, match: re.Match[str]) -> str:
        name, index = match[1], match[2]
        plain = self.meaning.get(name)
        if plain is not None:
            if index is not None:
                raise NameProblem(f"{name} is a register and cannot be indexed", match[0], "give each register a name")
            return plain
        memory = self.memory.get(name)
        if memory is None:
            return match[0]
        bank, offset, size = memory
        word = int(index or "0")
        if 4 * word > size:  # one word past the end passes, as in TuringAs: published files read it
            raise NameProblem(f"{match[0]} is out of range: {name} has {size} bytes", match[0])
        return f"c[0x{bank:x}][0x{offset + 4 * word:x}]"

    def declare(self, name: str, line: PlainLine) -> None:
        """Check that ``name`` may be given a meaning by ``line``."""
        if not _NAME.match(name):
            raise NameProblem(f"{name!r} is not a valid name", name, "letters, digits and _, no digit first")
        if _HARDWARE.match(name):
            raise NameProblem(f"{name} is a name of the hardware's", name, "choose another name")
        if name in self.places:
            first = self.places[name].origin
            raise NameProblem(f"duplicate name {name}", name, f"first declared at {first.file}:{first.line}")
        self.places[name] = line

    def of_registers(self) -> dict[str, str]:
        """The name of each register that has one; of several, all that are used, with / between them."""
        found: dict[str, list[str]] = {}
        for name, register in self.meaning.items():
            found.setdefault(register, []).append(name)
        used = self._used()
        return {register: "/".join([n for n in names if n in used] or names) for register, names in found.items()}

    def unused(self) -> list[tuple[str, str, str, int]]:
        """The names that no operand has, with their registers and the file and the line that declares them; of a range
        (a<0-7>) none, if one of it is used."""
        used = self._used()
        ranges = {(line.place, name.rstrip(DIGITS)) for name, line in self.places.items() if name in used}
        return [
            (name, self.meaning[name], *line.place)
            for name, line in self.places.items()
            if name in self.meaning and name not in used and name not in self.inherited
            and not (name[-1] in DIGITS and (line.place, name.rstrip(DIGITS)) in ranges)
        ]  # fmt: skip

    def _used(self) -> set[str]:
        return {word for operand in self for word in _WORD.findall(operand)} | self.guards

    def register(self, text: str, line: PlainLine) -> None:
        """One line of a <regs> block: `0-3, 7 : a<0-3>, b`, or `8-20 ~ x, y` when some may stay without a name."""
        parts = re.split("([:~])", re.sub(r"\s+", "", text))
        if len(parts) != 3:
            raise NameProblem("a line of <regs> is `registers : names`", "", "as in 0-3, 7 : a<0-3>, b")
        numbers, mark, written = parts
        registers = [one for item in numbers.split(",") if item for one in _registers(item, self.arch)]
        names = [one for item in written.split(",") if item for one in _names(item)]
        if len(registers) < len(names) or (mark == ":" and len(registers) > len(names)):
            counts = f"{len(registers)} registers for {len(names)} names"
            raise NameProblem(counts, "", "write ~ instead of : if registers may stay without a name")
        for name, register in zip(names, registers, strict=False):
            self.declare(name, line)
            self.meaning[name] = register

    def parameter(self, parts: list[str], line: PlainLine) -> int:
        """A kernel parameter: name, bytes and perhaps an alignment. Returns its offset among the parameters.

        As in TuringAs there are no gaps unless an alignment asks for one. It counts from the start of the bank, as
        nvcc's does: tensor maps must lie at multiples of 64 bytes, and the first parameter may not.
        """
        name, size, align = _sized(parts, typed=True)
        self.declare(name, line)
        offset = self.param_end + -(self.arch.param_base + self.param_end) % align
        self.memory[name] = (0, self.arch.param_base + offset, size)
        self.param_end = offset + size
        return offset

    def constant(self, parts: list[str], line: PlainLine, end: int) -> int:
        """A constant of bank 3, of which ``end`` bytes are taken: name, bytes and perhaps an alignment. Its offset."""
        name, size, align = _sized(parts)
        self.declare(name, line)
        offset = end + -end % align
        self.memory[name] = (3, offset, size)
        return offset


def _registers(item: str, arch: Arch) -> Iterable[str]:
    match = _REGISTERS.match(item)
    if match is None:
        raise NameProblem(f"{item!r} is not a register number", item, "as in 4, or 0-3 for a range, or UR4, or P0")
    kind = match[1] or "R"
    first = int(match[2])
    last = int(match[3]) if match[3] else first
    if last < first:
        raise NameProblem(f"the range {item} runs backwards", item)
    most = arch.files[kind].count - 1
    if last > most:
        raise NameProblem(f"{kind}{last} is out of range", item, f"the last one is {kind}{most}")
    return [f"{kind}{number}" for number in range(first, last + 1)]


def _names(item: str) -> Iterable[str]:
    match = _NAME_RANGE.match(item)
    if match is None:
        return [item]
    first, last = int(match[2]), int(match[3])
    if last < first or last - first > 255:
        raise NameProblem(f"the range {item} is empty or too long", item)
    return [f"{match[1]}{number}{match[4]}" for number in range(first, last + 1)]


def _sized(parts: list[str], typed: bool = False) -> tuple[str, int, int]:
    """Name, bytes and alignment. With ``typed`` a type may stand for the bytes: it is aligned as in CUDA C++."""
    if len(parts) not in (2, 3):
        raise NameProblem("this takes `name, bytes`", parts[0] if parts else "", "as in input, 8")
    if typed and (known := type_size(parts[1])):
        return parts[0], known, _alignment(parts[2]) if len(parts) > 2 else known
    if typed and not _NUMBER.match(parts[1]):
        message = f"{parts[1]!r} is neither a number of bytes nor a type"
        raise NameProblem(message, parts[1], f"types: {', '.join(TYPES)}, and pointers: f32*")
    sizes = [number(text) for text in parts[1:]]
    size = sizes[0]
    if size == 0 or size % 4:
        raise NameProblem(f"{parts[0]} has {size} bytes, which is not a multiple of 4", parts[1])
    return parts[0], size, _alignment(parts[2]) if len(parts) > 2 else 1


def _alignment(text: str) -> int:
    align = number(text)
    if align not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise NameProblem(f"{align} is not a valid alignment", text, "a power of two up to 128")
    return align


def number(text: str) -> int:
    """A count of bytes, decimal or hexadecimal."""
    if not _NUMBER.match(text) or len(text) > 12:
        raise NameProblem(f"{text!r} is not a number of bytes", text)
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def words(text: str, size: int) -> list[str]:
    """The initial 32-bit words of a constant of ``size`` bytes, as written."""
    values = [value.strip() for value in text.split(",")]
    for value in values:
        if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10})", value):
            raise NameProblem(f"{value!r} is not a 32-bit word", value, "as in 1, -2, 0x3f800000")
    if 4 * len(values) > size:
        raise NameProblem(f"{len(values)} words do not fit {size} bytes", "")
    return values


def problem(error: NameProblem, line: PlainLine) -> AsmError:
    """The diagnostic of ``error`` in ``line``."""
    return line.origin.error_at(error.message, error.hint, error.what)
