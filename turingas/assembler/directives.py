"""What the lines of a source say: kernels with their instructions and labels, data, sections and symbols.

The directives are documented in docs/language.md; ``DIRECTIVES`` at the end lists them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NamedTuple, ParamSpec, TypeVar

from turingas.assembler import arguments as arg
from turingas.assembler.arguments import Mistake
from turingas.cubin import elf as e
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import CodeRelocation, Constant, Kernel, Param, RawSection, RawSymbol
from turingas.cubin.write import AS_LONG_AS_CODE, tables
from turingas.errors import AsmError, AsmWarning
from turingas.isa import arch as architectures
from turingas.isa.arch import WORD_BYTES
from turingas.isa.isa import instruction_set
from turingas.parameter_types import type_size
from turingas.source.lines import PlainLine, Source
from turingas.source.parse import Directive, Instruction, Instructions, Item

HEADER_BITS = {"version": 32, "flags": 32, "type": 16, "abi": 8, "abi_version": 8, "segments": 2}
LARGEST_DATA = 1 << 28  # bytes that one directive may ask for
NATURAL_ALIGN = 8  # bytes: parameters and constants lie as CUDA C++ would put them
SHARED_NOTE = "more than 48 KB is asked for at launch: declare 0 here and pass the size as dynamic shared memory"

#: what .schedule says: every line must have its control code; codes are filled in; lines change places, too; registers;
#: rounds of loops overlap
SCHEDULE = ("off", "on", "reorder", "rename", "pipeline")
OFF, CODES, REORDER, RENAME, PIPELINE = range(len(SCHEDULE))

OPAQUE = ".word"  # in the place of a control code
NOWHERE = PlainLine("", 0, Source("", []))  # the line of an instruction that has none

P = ParamSpec("P")
T = TypeVar("T")


class Pipelined(NamedTuple):
    """A loop whose rounds overlap: the lines of its body, and those that came in their place, a label among them."""

    old: list[Instruction]
    new: list[PlainLine]


class DraftLines(Instructions):
    """The instructions of a kernel. A number stands for an opaque one (.word)."""

    def row(self, values: tuple[Any, ...]) -> Instruction | int:
        found: Instruction | int = values[0][2] if values[0][0] == OPAQUE else super().row(values)
        return found

    def append(self, row: Any) -> None:
        super().append(((OPAQUE, "", row), NOWHERE, None) if isinstance(row, int) else row)


@dataclass
class Draft:
    """A kernel being gathered."""

    kernel: Kernel
    item: Directive | None = None  # that began it
    lines: DraftLines = field(default_factory=DraftLines)
    numbers: list[Directive] = field(default_factory=list)  # the .word, in their order, which stays
    labels: dict[str, int] = field(default_factory=dict)
    registers: tuple[int, Any] | None = None  # as the source says, and where
    barriers: int | None = None
    tail: bool = True
    waiting: list[tuple[int, str, str | None]] = field(default_factory=list)  # .reloc for the next instruction
    addends: list[tuple[int, str]] = field(default_factory=list)  # relocations to which a label is added
    layout: tuple[Directive, int, list[str]] | None = None  # where it was taken from, its size there, what is not known
    references: list[tuple[Directive, str]] = field(default_factory=list)  # the symbols that .reloc names
    infos: list[tuple[Any, str, list[str]]] = field(default_factory=list)
    stack: tuple[int | None, ...] = ()  # what .stack says
    #: .schedule: from which line on, and what is done there: an index of SCHEDULE
    switches: list[tuple[int, int]] = field(default_factory=lambda: [(0, CODES)])
    order: list[int] = field(default_factory=list)  # which line came to each place, if they have another order now
    renamed: set[int] = field(default_factory=set)  # lines whose registers are others now, by their old places
    pipelined: list[Pipelined] = field(default_factory=list)
    preload: Directive | None = None  # constants go to uniform registers, where arithmetic takes none

    @property
    def address(self) -> int:
        return WORD_BYTES * len(self.lines)

    def scheduled(self, at: int) -> int:
        """What .schedule says of line ``at``."""
        return self.switches[bisect_right(self.switches, (at, len(SCHEDULE))) - 1][1]


@dataclass
class Data:
    """Bytes being gathered for a constant bank, a constant or a section."""

    owner: Any
    parts: list[tuple[Any, Callable[[dict[str, int]], bytes]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, item: Any, size: int, make: Callable[[dict[str, int]], bytes]) -> None:
        if self.size + size > LARGEST_DATA:
            raise Mistake(f"more than {LARGEST_DATA} bytes of data")
        self.size += size
        self.parts.append((item, make))


class Directives:
    """What the lines of a source say, gathered: each directive is a method."""

    def __init__(self, arch: str, kernel: str) -> None:
        self.facts = architectures.arch(arch)
        self.isa = instruction_set(arch)
        self.default_name = kernel
        self.scheduled = CODES  # .schedule before any kernel
        self.cubin = Cubin(arch)
        self.errors: list[AsmError] = []
        self.warnings: list[AsmWarning] = []
        self.drafts: list[Draft] = []
        self.draft: Draft | None = None
        self.whole = True  # False: inline Python failed, which may have held labels and instructions
        self.data: Data | None = None
        self.blocks: list[Data] = []
        self.symbols: list[tuple[Directive, RawSymbol, str, str]] = []
        self.sections: list[tuple[Directive, RawSection]] = []
        self.capsule: Directive | None = None

    # -- gathering

    def _code(self) -> Draft:
        """The kernel that a line of code belongs to."""
        if self.draft is None:
            if self.drafts or self.data is not None and isinstance(self.data.owner, RawSection):
                raise Mistake("this instruction is in no kernel", "begin one with .kernel NAME")
            self._begin(self.default_name, True)
        assert self.draft is not None
        return self.draft

    def _begin(self, name: str, entry: bool) -> Kernel:
        if any(draft.kernel.name == name for draft in self.drafts):
            raise Mistake(f"duplicate kernel {name}", part=name)
        kernel = Kernel(name, self.facts.name, entry=entry)
        if not entry:
            kernel.stack_bytes = None
        self.draft = Draft(kernel, switches=[(0, self.scheduled)])
        self.drafts.append(self.draft)
        self.cubin.texts.append(kernel)
        self.data = None
        return kernel

    def _relocate(self, address: int) -> None:
        """What .reloc said belongs to the instruction at ``address``."""
        draft = self._code()
        rows = draft.kernel.relocations
        for kind, symbol, addend in draft.waiting:
            if addend is not None and not arg.NUMBER.fullmatch(addend):
                draft.addends.append((len(rows), addend))
                addend = "0"
            number = None if addend is None else arg.number(addend)
            rows.append(CodeRelocation(address, kind, symbol, number))
        draft.waiting.clear()

    def _directive(self, item: Directive) -> None:
        action = DIRECTIVES.get(item.name)
        if action is None:
            near = get_close_matches(item.name, DIRECTIVES, 1)
            raise Mistake(f"unknown directive .{item.name}", f"did you mean .{near[0]}?" if near else "")
        args, options = arg.split(item.args)
        action(self, item, args, options)

    # -- directives

    def _arch(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        facts = architectures.arch(arg.one(args, "an architecture, sm_75 for instance"))
        if facts.name != self.facts.name:
            raise Mistake(f".arch {facts.name} comes after .arch {self.facts.name}", "one architecture a file")

    def _elf(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, list(vars(self.cubin.header)))
        fields = {key: arg.number(text, HEADER_BITS[key]) for key, text in options.items()}
        self.cubin.header = replace(self.cubin.header, **fields)

    def _kernel(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._start(item, args, options, True)

    def _function(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._start(item, args, options, False)

    def _start(self, item: Directive, args: list[str], options: dict[str, str], entry: bool) -> None:
        self._known(options, ("bind", "section", "symbol", "flags", "align", "link", "entry", "address", "info"))
        kernel = self._begin(arg.name(arg.one(args, "a name")), entry)
        kernel.bind = arg.choice(options.get("bind", "global"), arg.BINDINGS, 4)
        kernel.own_section = arg.name(options["section"]) if "section" in options else None
        kernel.symbol = arg.name(options.get("symbol", ""))
        kernel.flags = arg.number(options.get("flags", "6"), 64)
        kernel.align = arg.align(options.get("align", "128"))
        kernel.link = arg.reference(options.get("link", ".symtab"))
        kernel.entry_size = arg.number(options.get("entry", "0"), 64)
        kernel.address = arg.number(options.get("address", "0"), 64)
        self.drafts[-1].item = item
        if "info" in options:
            kernel.section_info = arg.number(options["info"], 32)

    def _registers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        count = arg.number(arg.one(args, "a number of registers"))
        if not 0 <= count <= 255:
            raise Mistake(f"a thread has at most 255 registers, not {count}", part=args[0])
        self._code().registers = (count, item)

    def _shared(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = arg.number(arg.one(args, "a size in bytes"))
        if size < 0 or size > max(self.facts.shared_static + 1024, self.facts.shared_optin):
            wrong = "out of range" if size < 0 else f"more than {self.facts.name} has"
            raise Mistake(f"{size} bytes of shared memory are {wrong}", SHARED_NOTE if size > 0 else "", args[0])
        self._known(options, ("align",))
        self._code().kernel.shared_bytes = size
        self._code().kernel.shared_align = arg.align(options.get("align", "16"))

    def _barriers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        count = arg.number(arg.one(args, "a number of barriers"))
        if not 0 <= count <= self.facts.max_barriers:
            raise Mistake(f"there are {self.facts.max_barriers} barriers, not {count}", part=args[0])
        self._code().barriers = count

    def _frame(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.frame_bytes = arg.number(arg.one(args, "a size in bytes"), 32)

    def _stack(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        text = arg.one(args, "a size in bytes, or none")
        self._code().stack = (None if text == "none" else arg.number(text, 32),)

    def _max_stack(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.max_stack_bytes = arg.number(arg.one(args, "a size in bytes"), 32)

    def _param(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("offset",))
        if len(args) not in (1, 2):
            raise Mistake("write .param [NAME] SIZE|TYPE [offset=N]")
        params, name = self._code().kernel.params, args[:-1]
        known, end = type_size(args[-1]), params[-1].offset + params[-1].size if params else 0
        size = arg.size(args[-1]) if known is None else known
        align = max(min(size & -size, NATURAL_ALIGN), 1)
        offset = arg.size(options["offset"]) if "offset" in options else -(-end // align) * align
        if offset < end:
            raise Mistake(f"the parameter at {offset} begins inside the one before it, which ends at {end}")
        if size < 1 or offset + size > self.facts.max_params:
            raise Mistake(f"parameters take 1 to {self.facts.max_params} bytes on {self.facts.name}", part=args[-1])
        base = self.facts.params_at(offset + size)
        if base != self.facts.param_base and (name or any(param.name for param in params)):
            hint = "their names stand for other places; write c[0x0][...] and leave the names out"
            raise Mistake(f"more than 4096 bytes of parameters begin at {base:#x} on {self.facts.name}", hint)
        params.append(Param(offset, size, "".join(name), args[-1] if known else ""))

    def _info(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if not args:
            raise Mistake("write .info ATTRIBUTE VALUES")
        self._code().infos.append((item, args[0], args[1:]))

    def _infos(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._code().kernel.info_order = [arg.code(name) for name in args]

    def _reloc(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if len(args) not in (2, 3):
            raise Mistake("write .reloc TYPE SYMBOL [ADDEND]")
        draft, symbol = self._code(), arg.name(args[1])
        draft.waiting.append((arg.relocation(args[0]), symbol, args[2] if len(args) == 3 else None))
        draft.references.append((item, symbol))

    def _layout(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if not args:
            raise Mistake("write .layout SIZE [LABEL ...]")
        self._code().layout = (item, arg.number(args[0], 32), args[1:])

    def _preload(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        if args or options:
            raise Mistake(".preload takes no arguments")
        self._code().preload = item

    def _tail(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        arg.choice(arg.one(args, "none"), {"none": 0})
        self._code().tail = False

    def _schedule(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        known = {name: n for n, name in enumerate(SCHEDULE)}
        what = arg.choice(arg.one(args, "off, on, reorder, rename, pipeline or rotate"), known)
        if self.draft is None:
            self.scheduled = what
        else:
            self.draft.switches.append((len(self.draft.lines), what))

    def _word(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        draft = self._code()
        number = arg.number(arg.one(args, "a number of 128 bits"), 128)
        self._relocate(draft.address)
        draft.lines.append(number)
        draft.numbers.append(item)

    def _bank(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        bank = arg.number(arg.one(args, "the number of a constant bank"))
        if not 1 <= bank <= 31:
            raise Mistake(f"constant bank {bank} cannot be filled", "bank 0 holds the parameters", args[0])
        draft = self._code()
        if bank in draft.kernel.constants:
            raise Mistake(f"duplicate contents of constant bank {bank}")
        draft.kernel.constants[bank] = b""
        self._block((draft.kernel, bank), draft.labels)

    def _constant(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("offset", "align"))
        if len(args) != 2:
            raise Mistake("write .constant NAME SIZE [offset=N], and its value in the lines below")
        size = arg.size(args[1])
        end = max((c.offset + len(c.data) for c in self.cubin.constants), default=0)
        align = max(arg.size(options.get("align", "0")) or min(size & -size, NATURAL_ALIGN), 1)
        offset = arg.size(options["offset"]) if "offset" in options else -(-end // align) * align
        if size < 1 or offset + size > 1 << 16:
            raise Mistake("the constants take more than 64 KB" if size else "a constant has at least one byte")
        if any(c.name == args[0] for c in self.cubin.constants):
            raise Mistake(f"duplicate constant {args[0]}", part=args[0])
        if offset < end:
            raise Mistake(f"the constant at {offset} begins inside the one before it, which ends at {end}")
        self.cubin.constants.append(Constant(arg.name(args[0]), offset, bytes(size)))
        self._block(self.cubin.constants[-1])

    def _section(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("type", "flags", "align", "entry", "link", "info", "size", "address"))
        raw = RawSection(arg.key(arg.one(args, "a name")))
        for key, attribute in (("type", "type"), ("flags", "flags"), ("entry", "entry_size"),
                               ("size", "size"), ("address", "address")):  # fmt: skip
            if key in options:
                setattr(raw, attribute, arg.number(options[key], 32 if key == "type" else 64))
        raw.align = arg.align(options.get("align", "1"))
        raw.link, raw.info = arg.reference(options.get("link", "0")), arg.reference(options.get("info", "0"))
        if any(section.name == raw.name for section in self.cubin.sections):
            raise Mistake(f"duplicate section {raw.name}", part=args[0])
        self.cubin.sections.append(raw)
        self.sections.append((item, raw))
        self.draft = None
        self._block(raw)

    def _drop(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        key = arg.key(arg.one(args, "the name of a section"))
        if any(key == section.name for section in tables()) or any(d.kernel.section == key for d in self.drafts):
            raise Mistake(f"a cubin needs {key}", part=args[0])
        self.cubin.dropped.append(key)

    def _capsule(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self.cubin.capsule = arg.one(args, "what `turingas disassemble` printed")
        self.capsule = item

    def _order(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self.cubin.order += map(arg.key, args)

    def _symbol(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        self._known(options, ("section", "value", "size", "type", "bind", "other"))
        row = RawSymbol(arg.name(arg.one(args, "a name")), arg.reference(options.get("section", "")))
        row.type = arg.choice(options.get("type", "notype"), arg.SYMBOL_TYPES, 4)
        row.bind = arg.choice(options.get("bind", "local"), arg.BINDINGS, 4)
        row.other = arg.number(options.get("other", "0"), 8)
        size = options.get("size", "0")
        row.size = AS_LONG_AS_CODE if size == "auto" else 0
        self.symbols.append((item, row, options.get("value", "0"), "0" if size == "auto" else size))

    # -- data

    def _block(self, owner: Any, labels: dict[str, int] | None = None) -> None:
        self.data = Data(owner, labels={} if labels is None else labels)
        self.blocks.append(self.data)

    def _gather(self, item: Any, size: int, make: Callable[[dict[str, int]], bytes]) -> None:
        if self.data is None:
            raise Mistake("this data belongs to nothing", "it follows .constant, .bank or .section")
        self.data.add(item, size, make)

    def _bytes(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        try:
            data = bytes.fromhex("".join(args))
        except ValueError:
            raise Mistake("these are not hexadecimal bytes", "two digits a byte: .bytes 00ff10") from None
        self._gather(item, len(data), lambda labels: data)

    def _zero(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = arg.size(arg.one(args, "a number of bytes"))
        self._gather(item, size, lambda labels: bytes(size))

    def _integers(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        size = {"byte": 1, "half": 2, "long": 4, "quad": 8}[item.name]

        def make(labels: dict[str, int]) -> bytes:
            return b"".join(arg.integer(text, size, labels) for text in args)

        self._gather(item, size * len(args), make)

    def _floats(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        code, size = {"float": ("<f", 4), "double": ("<d", 8)}[item.name]
        try:
            data = b"".join(struct.pack(code, float(text)) for text in args)
        except (ValueError, OverflowError) as error:
            raise Mistake(f"{error}", part="") from None
        self._gather(item, size * len(args), lambda labels: data)

    def _row(self, item: Directive, args: list[str], options: dict[str, str]) -> None:
        """One row of a relocation section: OFFSET TYPE SYMBOL [ADDEND]."""
        if len(args) not in (3, 4):
            raise Mistake("write .row OFFSET TYPE SYMBOL [ADDEND]")
        addends = len(args) == 4
        row = (arg.size(args[0]), arg.relocation(args[1]), arg.name(args[2]), arg.number(args[3]) if addends else None)

        def make(numbers: dict[str, int]) -> bytes:
            symbol = arg.symbol_number(row[2], numbers)
            return e.pack_relocations([e.Relocation(row[0], row[1], symbol, row[3])], addends)

        self._gather(item, 24 if addends else 16, make)

    # -- mistakes

    def _known(self, options: Mapping[str, str], names: Any) -> None:
        for key in options:
            if key not in names:
                raise Mistake(f"unknown option {key}=", "known: " + " ".join(names), key)

    def _try(self, item: Item, action: Callable[P, T], *args: P.args, **options: P.kwargs) -> T | None:
        try:
            return action(*args, **options)
        except Mistake as mistake:
            self._report(item, mistake)
            return None

    def _report(self, item: Item, mistake: Mistake) -> None:
        self.errors.append(item.origin.error_at(mistake.message, mistake.hint, mistake.part))


DIRECTIVES: dict[str, Callable[[Directives, Any, list[str], dict[str, str]], None]] = {
    "arch": Directives._arch,
    "elf": Directives._elf,
    "kernel": Directives._kernel,
    "function": Directives._function,
    "registers": Directives._registers,
    "shared": Directives._shared,
    "barriers": Directives._barriers,
    "frame": Directives._frame,
    "stack": Directives._stack,
    "max_stack": Directives._max_stack,
    "param": Directives._param,
    "info": Directives._info,
    "infos": Directives._infos,
    "reloc": Directives._reloc,
    "layout": Directives._layout,
    "preload": Directives._preload,
    "tail": Directives._tail,
    "schedule": Directives._schedule,
    "word": Directives._word,
    "bank": Directives._bank,
    "constant": Directives._constant,
    "section": Directives._section,
    "drop": Directives._drop,
    "capsule": Directives._capsule,
    "order": Directives._order,
    "symbol": Directives._symbol,
    "bytes": Directives._bytes,
    "zero": Directives._zero,
    "byte": Directives._integers,
    "half": Directives._integers,
    "long": Directives._integers,
    "quad": Directives._integers,
    "float": Directives._floats,
    "double": Directives._floats,
    "row": Directives._row,
}
