"""From parsed lines to a Cubin: kernels are gathered, instructions encoded, directives carried out.

The directives are documented in docs/language.md; ``_DIRECTIVES`` at the end lists them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

from turingas.cubin import elf as e
from turingas.cubin import nvinfo, relocations
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import WORD_BYTES, Code, CodeRelocation, Constant, Kernel, Param, RawSection, RawSymbol
from turingas.cubin.nvinfo import BVAL, HVAL, NVAL, SVAL, Info
from turingas.cubin.write import AS_LONG_AS_CODE, LARGEST_ALIGN, Numbers, combine, tables
from turingas.errors import AsmError, EncodeError, UnknownLabel, raise_all
from turingas.isa import arch as architectures
from turingas.isa import control
from turingas.isa.isa import Isa, instruction_set
from turingas.source import parse
from turingas.source.parse import Directive, Instruction, Item, Label

ARCH_LINE = re.compile(r"^[ \t]*\.arch[ \t]+([\w.]+)", re.MULTILINE)
NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)")
LONGEST_NUMBER = 42  # characters
HEADER_BITS = {"version": 32, "flags": 32, "type": 16, "abi": 8, "abi_version": 8}
BINDINGS = {"local": e.STB_LOCAL, "global": e.STB_GLOBAL, "weak": e.STB_WEAK}
SYMBOL_TYPES = {"notype": e.STT_NOTYPE, "object": e.STT_OBJECT, "func": e.STT_FUNC, "section": e.STT_SECTION}
LARGEST_DATA = 1 << 28  # bytes that one directive may ask for
OPCODE = 0xFFF  # the bits that tell instructions apart
CODE_UNIT = 128  # bytes: code ends at a multiple of this
SPARE_REGISTERS = 2  # Volta and later need two registers beyond the highest that is named
NATURAL_ALIGN = 8  # bytes: parameters and constants lie as CUDA C++ would put them
SHARED_NOTE = "more than 48 KB is asked for at launch: declare 0 here and pass the size as dynamic shared memory"


def assemble(
    source: str,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    filename: str | None = None,
    kernel: str = "kern",
    allow_python: bool = True,
    default_control: str | None = None,
) -> Cubin:
    """The cubin of ``source``. AsmError carries every mistake of it (``errors``).

    ``.arch`` in the source goes before ``arch``. ``kernel`` names the instructions before the first ``.kernel``.
    """
    found = ARCH_LINE.search(source)
    facts = architectures.arch(found[1] if found else arch)
    parsed = parse.read(source, filename, facts.name, defines, include, allow_python, default_control)
    return Assembler(facts.name, kernel).run(parsed)


P = ParamSpec("P")
T = TypeVar("T")


class _Mistake(Exception):
    """A directive that cannot be carried out; becomes an AsmError at its line."""

    def __init__(self, message: str, hint: str = "", part: str = "") -> None:
        super().__init__(message)
        self.message, self.hint, self.part = message, hint, part


@dataclass
class _Draft:
    """A kernel being gathered."""

    kernel: Kernel
    lines: list[Instruction | int] = field(default_factory=list)  # .word gives a number
    labels: dict[str, int] = field(default_factory=dict)
    registers: tuple[int, Any] | None = None  # as the source says, and where
    barriers: int | None = None
    tail: bool = True
    waiting: list[tuple[int, str, int | None]] = field(default_factory=list)  # .reloc for the next instruction
    references: list[tuple[Directive, str]] = field(default_factory=list)  # the symbols that .reloc names
    infos: list[tuple[Any, str, list[str]]] = field(default_factory=list)
    stack: tuple[int | None, ...] = ()  # what .stack says

    @property
    def address(self) -> int:
        return WORD_BYTES * len(self.lines)


@dataclass
class _Data:
    """Bytes being gathered for a constant bank, a constant or a section."""

    owner: Any
    parts: list[tuple[Any, Callable[[dict[str, int]], bytes]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, item: Any, size: int, make: Callable[[dict[str, int]], bytes]) -> None:
        if self.size + size > LARGEST_DATA:
            raise _Mistake(f"more than {LARGEST_DATA} bytes of data")
        self.size += size
        self.parts.append((item, make))


class Assembler:
    """Carries out parsed lines, one after the other."""

    def __init__(self, arch: str, kernel: str) -> None:
        self.facts = architectures.arch(arch)
        self.isa = instruction_set(arch)
        self.default_name = kernel
        self.cubin = Cubin(arch)
        self.errors: list[AsmError] = []
        self.drafts: list[_Draft] = []
        self.draft: _Draft | None = None
        self.whole = True  # False: inline Python failed, which may have held labels and instructions
        self.data: _Data | None = None
        self.blocks: list[_Data] = []
        self.symbols: list[tuple[Directive, RawSymbol, str]] = []
        self.sections: list[tuple[Directive, RawSection]] = []

    def run(self, parsed: parse.Parsed) -> Cubin:
        """All items, then the cubin; every mistake is raised at the end, with those of earlier stages."""
        self.whole = parsed.whole
        for item in parsed.items:
            try:
                if isinstance(item, Instruction):
                    self._code().lines.append(item)
                    self._relocate()
                elif isinstance(item, Label):
                    draft = self._code()
                    draft.labels[item.name] = draft.address
                else:
                    self._directive(item)
            except _Mistake as mistake:
                self._report(item, mistake)
        for draft in self.drafts:
            self._finish(draft)
        self._finish_data()
        self._finish_symbols()
        self.errors += parsed.errors
        if not self.cubin.texts and not self.cubin.sections and not self.errors:
            self.errors.append(AsmError("there are no instructions"))
        self.errors.sort(key=lambda error: (error.file, error.line))
        raise_all(self.errors)
        return self.cubin

    # -- gathering

    def _code(self) -> _Draft:
        """The kernel that a line of code belongs to."""
        if self.draft is None:
            if self.drafts or self.data is not None and isinstance(self.data.owner, RawSection):
                raise _Mistake("this instruction is in no kernel", "begin one with .kernel NAME")
            self._begin(self.default_name, True)
        assert self.draft is not None
        return self.draft

    def _begin(self, name: str, entry: bool) -> Kernel:
        if any(draft.kernel.name == name for draft in self.drafts):
            raise _Mistake(f"kernel {name} is defined twice", part=name)
        kernel = Kernel(name, self.facts.name, entry=entry)
        if not entry:
            kernel.stack_bytes = None
        self.draft = _Draft(kernel)
        self.drafts.append(self.draft)
        self.cubin.texts.append(kernel)
        self.data = None
        return kernel

    def _relocate(self) -> None:
        draft = self._code()
        for kind, symbol, addend in draft.waiting:
            draft.kernel.relocations.append(
                CodeRelocation(draft.address - WORD_BYTES, kind, symbol, addend)
            )
        draft.waiting.clear()

    def _directive(self, item: Directive) -> None:
        action = _DIRECTIVES.get(item.name)
        if action is None:
            near = get_close_matches(item.name, _DIRECTIVES, 1)
            raise _Mistake(f"unknown directive .{item.name}", f"did you mean .{near[0]}?" if near else "")
        args, options = _split(item.args)
        action(self, item, args, options)

    # -- directives

    def _arch(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        facts = architectures.arch(_one(args, "an architecture, sm_75 for instance"))
        if facts.name != self.facts.name:
            raise _Mistake(f".arch {facts.name} comes after .arch {self.facts.name}", "one architecture a file")

    def _elf(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, list(vars(self.cubin.header)))
        fields = {key: _number(text, HEADER_BITS[key]) for key, text in options.items()}
        self.cubin.header = replace(self.cubin.header, **fields)

    def _kernel(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._start(args, options, True)

    def _function(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._start(args, options, False)

    def _start(self, args: list[str], options: dict[str, str], entry: bool) -> None:
        self._known(options, ("bind", "section", "symbol", "flags", "align", "info"))
        kernel = self._begin(_name(_one(args, "a name")), entry)
        kernel.bind = _choice(options.get("bind", "global"), BINDINGS, 4)
        kernel.own_section = _name(options["section"]) if "section" in options else None
        kernel.symbol = _name(options.get("symbol", ""))
        kernel.flags = _number(options.get("flags", "6"), 64)
        kernel.align = _align(options.get("align", "128"))
        if "info" in options:
            kernel.section_info = _number(options["info"], 32)

    def _registers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        count = _number(_one(args, "a number of registers"))
        if not 0 <= count <= 255:
            raise _Mistake(f"a thread has at most 255 registers, not {count}", part=args[0])
        self._code().registers = (count, item)

    def _shared(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = _number(_one(args, "a size in bytes"))
        if size < 0 or size > max(self.facts.shared_static + 1024, self.facts.shared_optin):
            raise _Mistake(f"{size} bytes of shared memory are more than {self.facts.name} has", SHARED_NOTE, args[0])
        self._known(options, ("align",))
        self._code().kernel.shared_bytes = size
        self._code().kernel.shared_align = _align(options.get("align", "16"))

    def _barriers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        count = _number(_one(args, "a number of barriers"))
        if not 0 <= count <= self.facts.max_barriers:
            raise _Mistake(f"there are {self.facts.max_barriers} barriers, not {count}", part=args[0])
        self._code().barriers = count

    def _frame(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.frame_bytes = _number(_one(args, "a size in bytes"), 32)

    def _stack(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        text = _one(args, "a size in bytes, or none")
        self._code().stack = (None if text == "none" else _number(text, 32),)

    def _max_stack(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.max_stack_bytes = _number(_one(args, "a size in bytes"), 32)

    def _param(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("offset",))
        if len(args) not in (1, 2):
            raise _Mistake("write .param [NAME] SIZE [offset=N]")
        params, name = self._code().kernel.params, args[:-1]
        size, end = _size(args[-1]), self._code().kernel.param_bytes
        align = max(min(size & -size, NATURAL_ALIGN), 1)
        offset = _size(options["offset"]) if "offset" in options else -(-end // align) * align
        if offset < end:
            raise _Mistake(f"the parameter at {offset} begins inside the one before it, which ends at {end}")
        if size < 1 or offset + size > self.facts.max_params:
            raise _Mistake(f"parameters take 1 to {self.facts.max_params} bytes on {self.facts.name}", part=args[-1])
        base = self.facts.params_at(offset + size)
        if base != self.facts.param_base and (name or any(param.name for param in params)):
            hint = "their names stand for other places; write c[0x0][...] and leave the names out"
            raise _Mistake(f"more than 4096 bytes of parameters begin at {base:#x} on {self.facts.name}", hint)
        params.append(Param(offset, size, "".join(name)))

    def _info(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if not args:
            raise _Mistake("write .info ATTRIBUTE VALUES")
        self._code().infos.append((item, args[0], args[1:]))

    def _infos(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.info_order = [_code(name) for name in args]

    def _reloc(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if len(args) not in (2, 3):
            raise _Mistake("write .reloc TYPE SYMBOL [ADDEND]")
        addend = _number(args[2]) if len(args) == 3 else None
        self._code().waiting.append((_relocation(args[0]), _name(args[1]), addend))
        self._code().references.append((item, _name(args[1])))

    def _tail(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        _choice(_one(args, "none"), {"none": 0})
        self._code().tail = False

    def _word(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().lines.append(_number(_one(args, "a number of 128 bits"), 128))
        self._relocate()

    def _bank(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        bank = _number(_one(args, "the number of a constant bank"))
        if not 1 <= bank <= 31:
            raise _Mistake(f"constant bank {bank} cannot be filled", "bank 0 holds the parameters", args[0])
        draft = self._code()
        if bank in draft.kernel.constants:
            raise _Mistake(f"constant bank {bank} is filled twice")
        draft.kernel.constants[bank] = b""
        self._block((draft.kernel, bank), draft.labels)

    def _constant(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("offset", "align"))
        if len(args) != 2:
            raise _Mistake("write .constant NAME SIZE [offset=N], and its value in the lines below")
        size = _size(args[1])
        end = max((c.offset + len(c.data) for c in self.cubin.constants), default=0)
        align = max(_size(options.get("align", "0")) or min(size & -size, NATURAL_ALIGN), 1)
        offset = _size(options["offset"]) if "offset" in options else -(-end // align) * align
        if size < 1 or offset + size > 1 << 16:
            raise _Mistake("the constants take more than 64 KB" if size else "a constant has at least one byte")
        if any(c.name == args[0] for c in self.cubin.constants):
            raise _Mistake(f"constant {args[0]} is defined twice", part=args[0])
        if offset < end:
            raise _Mistake(f"the constant at {offset} begins inside the one before it, which ends at {end}")
        self.cubin.constants.append(Constant(_name(args[0]), offset, bytes(size)))
        self._block(self.cubin.constants[-1])

    def _section(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("type", "flags", "align", "entry", "link", "info", "size", "address"))
        raw = RawSection(_key(_one(args, "a name")))
        for key, attribute in (("type", "type"), ("flags", "flags"), ("entry", "entry_size"),
                               ("size", "size"), ("address", "address")):  # fmt: skip
            if key in options:
                setattr(raw, attribute, _number(options[key], 32 if key == "type" else 64))
        raw.align = _align(options.get("align", "1"))
        raw.link, raw.info = _reference(options.get("link", "0")), _reference(options.get("info", "0"))
        if any(section.name == raw.name for section in self.cubin.sections):
            raise _Mistake(f"section {raw.name} is defined twice", part=args[0])
        self.cubin.sections.append(raw)
        self.sections.append((item, raw))
        self.draft = None
        self._block(raw)

    def _drop(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        key = _key(_one(args, "the name of a section"))
        if any(key == section.name for section in tables()) or any(d.kernel.section == key for d in self.drafts):
            raise _Mistake(f"a cubin needs {key}", part=args[0])
        self.cubin.dropped.append(key)

    def _symbol(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("section", "value", "size", "type", "bind", "other"))
        row = RawSymbol(_name(_one(args, "a name")), _reference(options.get("section", "")))
        row.type = _choice(options.get("type", "notype"), SYMBOL_TYPES, 4)
        row.bind = _choice(options.get("bind", "local"), BINDINGS, 4)
        row.other = _number(options.get("other", "0"), 8)
        row.size = AS_LONG_AS_CODE if options.get("size") == "auto" else _size(options.get("size", "0"))
        self.symbols.append((item, row, options.get("value", "0")))

    # -- data

    def _block(self, owner: Any, labels: dict[str, int] | None = None) -> None:
        self.data = _Data(owner, labels={} if labels is None else labels)
        self.blocks.append(self.data)

    def _gather(self, item: Any, size: int, make: Callable[[dict[str, int]], bytes]) -> None:
        if self.data is None:
            raise _Mistake("this data belongs to nothing", "it follows .constant, .bank or .section")
        self.data.add(item, size, make)

    def _bytes(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        try:
            data = bytes.fromhex("".join(args))
        except ValueError:
            raise _Mistake("these are no bytes in hexadecimal", "two digits a byte: .bytes 00ff10") from None
        self._gather(item, len(data), lambda labels: data)

    def _zero(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = _size(_one(args, "a number of bytes"))
        self._gather(item, size, lambda labels: bytes(size))

    def _integers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = {"byte": 1, "half": 2, "long": 4, "quad": 8}[item.name]

        def make(labels: dict[str, int]) -> bytes:
            return b"".join(_integer(text, size, labels) for text in args)

        self._gather(item, size * len(args), make)

    def _floats(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        code, size = {"float": ("<f", 4), "double": ("<d", 8)}[item.name]
        try:
            data = b"".join(struct.pack(code, float(text)) for text in args)
        except (ValueError, OverflowError) as error:
            raise _Mistake(f"{error}", part="") from None
        self._gather(item, size * len(args), lambda labels: data)

    def _row(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        """One row of a relocation section: OFFSET TYPE SYMBOL [ADDEND]."""
        if len(args) not in (3, 4):
            raise _Mistake("write .row OFFSET TYPE SYMBOL [ADDEND]")
        addends = len(args) == 4
        row = (_size(args[0]), _relocation(args[1]), _name(args[2]), _number(args[3]) if addends else None)

        def make(numbers: dict[str, int]) -> bytes:
            symbol = _symbol_number(row[2], numbers)
            return e.pack_relocations([e.Relocation(row[0], row[1], symbol, row[3])], addends)

        self._gather(item, 24 if addends else 16, make)

    # -- the end

    def _finish(self, draft: _Draft) -> None:
        """Encode a kernel and work out what follows from its instructions."""
        kernel, labels = draft.kernel, draft.labels
        encode, join, parse_control = self.isa.encode, self.isa.join, control.parse
        words: list[int] = []
        for at, line in enumerate(draft.lines):
            if isinstance(line, int):
                words.append(line)
                continue
            try:
                code = parse_control(line.control)
                words.append(join(encode(line.body, WORD_BYTES * at, labels), code))
            except EncodeError as error:
                if self.whole or not isinstance(error, UnknownLabel):
                    self.errors.append(line.error(error.message, error.position, error.hint))
            except control.ControlError as error:
                self.errors.append(line.error(error.message, 0, error.hint, in_control=True))
        if len(words) < len(draft.lines):
            return
        if draft.waiting:
            self.errors.append(AsmError(f".reloc at the end of {kernel.name} has no instruction"))
        if not words and self.whole:
            self.errors.append(AsmError(f"kernel {kernel.name} has no instructions"))
        if draft.tail:
            words += tail(self.isa, self.facts, words)
        kernel.code = Code(words=words)
        places = [None if isinstance(line, int) else line.origin for line in draft.lines]
        kernel.lines = [("", 0) if origin is None else (origin.file, origin.line) for origin in places]
        self._resources(draft, words)
        kernel.stack_bytes = kernel.frame_bytes if kernel.entry else None
        if draft.stack:
            kernel.stack_bytes = draft.stack[0]
        for item, name, values in draft.infos:
            try:
                code = _code(name)
                kernel.infos.setdefault(code, []).extend(_attribute(code, values, labels))
            except _Mistake as mistake:
                self._report(item, mistake)

    def _resources(self, draft: _Draft, words: list[int]) -> None:
        kernel = draft.kernel
        distinct = {word & ~control.MASK for word in words}
        used = max(map(self.isa.registers, distinct), default=0)
        least = used_barriers(self.isa, words)
        kernel.registers = min(used + SPARE_REGISTERS, self.facts.max_registers)
        kernel.barriers = least if draft.barriers is None else draft.barriers
        if draft.registers is not None:
            count, item = draft.registers
            if count < used:
                more = {form.value & OPCODE for form in self.isa.named("USETMAXREG")}  # warps may ask for more
                if not any(word & OPCODE in more for word in distinct):
                    self._report(item, _Mistake(f"{kernel.name} uses R{used - 1}: {count} registers are too few",
                                                f".registers {kernel.registers}, or leave it out"))  # fmt: skip
            kernel.registers = count

    def _finish_data(self) -> None:
        for block in self.blocks:
            if not _is_relocations(block.owner):  # those name symbols, which have no numbers yet
                self._store(block, self._made(block, block.labels))

    def _made(self, block: _Data, labels: dict[str, int]) -> bytes:
        data = bytearray()
        for item, make in block.parts:
            data += self._try(item, make, labels) or b""
        return bytes(data)

    def _store(self, block: _Data, data: bytes) -> None:
        if isinstance(block.owner, RawSection):
            block.owner.data = data
        elif isinstance(block.owner, Constant):
            constants = self.cubin.constants
            size = len(block.owner.data)
            if len(data) > size:
                message = f"{len(data)} bytes of values do not fit the {size} bytes of {block.owner.name}"
                self._report(block.parts[-1][0], _Mistake(message))
            filled = Constant(block.owner.name, block.owner.offset, data.ljust(size, b"\0"))
            constants[constants.index(block.owner)] = filled
        else:
            kernel, bank = block.owner
            kernel.constants[bank] = data

    def _finish_symbols(self) -> None:
        """Values of symbols, then all that names a symbol or a section."""
        labels = {draft.kernel.section: draft.labels for draft in self.drafts}
        for item, row, value in self.symbols:
            known = labels.get(str(row.section), {})
            self._try(item, _set_value, row, value, known)
        if self.symbols:
            self.cubin.symbols = [row for _, row, _ in self.symbols]
        sections, symbols = combine(self.cubin)
        names = {section.name for section in sections}
        places = [(item, [row.section]) for item, row, _ in self.symbols]
        places += [(item, [raw.link, raw.info]) for item, raw in self.sections]
        for item, references in places:
            for name in references:
                if isinstance(name, str) and name not in names | {""}:
                    self._report(item, _Mistake(f"there is no section {name}", part=name))
        numbers = Numbers(self.cubin, symbols).of_name
        for draft in self.drafts:
            for item, name in draft.references:
                self._try(item, _symbol_number, name, numbers)
        for block in self.blocks:
            if _is_relocations(block.owner):
                block.owner.data = self._made(block, numbers)

    # -- mistakes

    def _known(self, options: Mapping[str, str], names: Any) -> None:
        for key in options:
            if key not in names:
                raise _Mistake(f"unknown option {key}=", "known: " + " ".join(names), key)

    def _try(self, item: Item, action: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
        try:
            return action(*args, **options)
        except _Mistake as mistake:
            self._report(item, mistake)
            return None

    def _report(self, item: Item, mistake: _Mistake) -> None:
        self.errors.append(item.origin.error_at(mistake.message, mistake.hint, mistake.part))


def used_barriers(isa: Isa, words: Iterable[int]) -> int:
    """The highest named barrier that the instructions use, and one."""
    opcodes = {form.value & OPCODE for name in ("BAR", "UBAR", "B2R") for form in isa.named(name)}
    return max((isa.barriers(word) for word in {word for word in words if word & OPCODE in opcodes}), default=0)


def tail(isa: Isa, facts: architectures.Arch, words: list[int]) -> list[int]:
    """What is missing at the end of ``words``: a branch to itself, and NOPs up to a whole number of 128 bytes.

    Instructions are fetched ahead, so something that does no harm has to follow the last one.
    """
    nop = isa.encode("NOP") | control.parse("--:-:-:Y:0")
    last = len(words)
    while last and words[last - 1] == nop:
        last -= 1
    stays = last > 0 and _stays(isa, words[last - 1], WORD_BYTES * (last - 1))
    end = [] if stays else [_loop(isa, WORD_BYTES * len(words))]
    if not end and not len(words) * WORD_BYTES % CODE_UNIT:
        return []
    size = (len(words) + len(end)) * WORD_BYTES
    missing = -size % CODE_UNIT + facts.code_padding
    return end + [nop] * (missing // WORD_BYTES)


def _loop(isa: Isa, address: int) -> int:
    return isa.encode(f"BRA {address:#x}", address) | control.parse("--:-:-:Y:0")


def _stays(isa: Isa, word: int, address: int) -> bool:
    """Whether an instruction is an unguarded branch to itself."""
    return word >> 12 & 15 == 7 and isa.target(word, address) == address


# -- arguments


def _split(args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words of a directive: plain ones, and KEY=VALUE."""
    plain = [word for word in args if "=" not in word]
    return plain, dict(word.split("=", 1) for word in args if "=" in word)


def _one(args: list[str], what: str) -> str:
    if len(args) != 1:
        raise _Mistake(f"this directive takes {what}")
    return args[0]


def _number(text: str, bits: int = 0) -> int:
    """A number; with ``bits``, one that is not negative and fits them."""
    if not NUMBER.fullmatch(text) or len(text) > LONGEST_NUMBER:
        raise _Mistake(f"{text!r} is no number", part=text)
    value = int(text, 16) if "x" in text.lower() else int(text)
    if bits and not 0 <= value < 1 << bits:
        raise _Mistake(f"{text} does not fit {bits} bits", part=text)
    return value


def _size(text: str) -> int:
    return _number(text, 64)


def _align(text: str) -> int:
    value = _number(text)
    if not 0 <= value <= LARGEST_ALIGN:
        raise _Mistake(f"{text} is no alignment", f"at most {LARGEST_ALIGN}", text)
    return value


def _relocation(text: str) -> int:
    """The number of a kind of relocation."""
    if text.isdigit():
        return _number(text, 32)
    if text not in relocations.NUMBERS:
        raise _Mistake(f"unknown kind of relocation {text}", "R_CUDA_ABS32_LO_32 for instance", text)
    return relocations.number(text)


def _set_value(row: RawSymbol, text: str, labels: Mapping[str, int]) -> None:
    row.value = labels[text] if text in labels else _size(text)


def _symbol_number(name: str, numbers: Mapping[str, int]) -> int:
    """The number of a symbol, or the one that "@12" gives."""
    if name not in numbers and not name.startswith("@"):
        raise _Mistake(f"the symbol {name!r} is not defined", "define it with .symbol", name)
    return numbers[name] if name in numbers else _number(name[1:], 32)


def _is_relocations(owner: object) -> bool:
    return isinstance(owner, RawSection) and owner.type in (e.SHT_REL, e.SHT_RELA)


def _choice(text: str, known: Mapping[str, int], bits: int = 0) -> int:
    if text in known:
        return known[text]
    if text.isdigit() and bits:
        return _number(text, bits)
    raise _Mistake(f"{text!r} is none of {', '.join(known)}", part=text)


def _name(text: str) -> str:
    """A name as it is written: %23 stands for #, - alone for no name."""
    return "" if text == "-" else unquote(text, errors="surrogateescape")


def _key(text: str) -> str:
    """The name of a section; NAME@2 is the second of that name."""
    name, mark, number = text.partition("@")
    return _name(name) + (f"\0{number}" if mark else "")


def _reference(text: str) -> str | int:
    return _number(text, 32) if NUMBER.fullmatch(text) else _key(text)


def _code(name: str) -> int:
    code = nvinfo.CODES.get(name.removeprefix("EIATTR_"))
    if code is None and not NUMBER.fullmatch(name):
        raise _Mistake(f"unknown attribute {name}", part=name)
    return _number(name, 8) if code is None else code


def _integer(text: str, size: int, labels: Mapping[str, int]) -> bytes:
    value = labels[text] if text in labels else _number(text)
    try:
        return value.to_bytes(size, "little", signed=value < 0)
    except OverflowError:
        raise _Mistake(f"{text} does not fit {8 * size} bits", part=text) from None


def _attribute(code: int, values: list[str], labels: Mapping[str, int]) -> list[Info]:
    """What ``.info`` gives an attribute: words, or one of the marked forms."""
    small = {"flag": NVAL, "byte": BVAL, "half": HVAL}
    if values and values[0] in small:
        if len(values) > 2:
            raise _Mistake(f"write {values[0]} and one number")
        return [Info(small[values[0]], code, _number(values[1], 16) if len(values) > 1 else 0)]
    if values == ["absent"]:
        return []
    try:
        data = bytes.fromhex("".join(values[1:])) if values[:1] == ["hex"] else None
    except ValueError:
        raise _Mistake("these are no bytes in hexadecimal") from None
    if data is None:
        data = b"".join(_integer(text, 4, labels) for text in values)
    if len(data) >= 1 << 16:
        raise _Mistake("an attribute has less than 64 KB")
    return [Info(SVAL, code, data)]


_DIRECTIVES: dict[str, Callable[[Assembler, Any, list[str], dict[str, str]], None]] = {
    "arch": Assembler._arch,
    "elf": Assembler._elf,
    "kernel": Assembler._kernel,
    "function": Assembler._function,
    "registers": Assembler._registers,
    "shared": Assembler._shared,
    "barriers": Assembler._barriers,
    "frame": Assembler._frame,
    "stack": Assembler._stack,
    "max_stack": Assembler._max_stack,
    "param": Assembler._param,
    "info": Assembler._info,
    "infos": Assembler._infos,
    "reloc": Assembler._reloc,
    "tail": Assembler._tail,
    "word": Assembler._word,
    "bank": Assembler._bank,
    "constant": Assembler._constant,
    "section": Assembler._section,
    "drop": Assembler._drop,
    "symbol": Assembler._symbol,
    "bytes": Assembler._bytes,
    "zero": Assembler._zero,
    "byte": Assembler._integers,
    "half": Assembler._integers,
    "long": Assembler._integers,
    "quad": Assembler._integers,
    "float": Assembler._floats,
    "double": Assembler._floats,
    "row": Assembler._row,
}
