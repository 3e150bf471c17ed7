"""From a Cubin back to source: what ``turingas.assemble`` makes of it holds the same code, resources and sections."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from operator import add
from typing import TextIO

from turingas import collector
from turingas.assembler.arguments import BINDINGS, SYMBOL_TYPES
from turingas.assembler.assembler import LEPC, assemble, tail, used_barriers
from turingas.cubin import addresses, moved, nvinfo, relocations
from turingas.cubin import elf as e
from turingas.cubin.addresses import Addresses
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.model import Header, Kernel, Parts, RawSection, RawSymbol
from turingas.cubin.nvinfo import BVAL, HVAL, NVAL, Info
from turingas.cubin.split import differences, split
from turingas.cubin.write import AS_LONG_AS_CODE, build, combine
from turingas.errors import AsmError
from turingas.isa.arch import WORD_BYTES, arch
from turingas.isa.isa import instruction_set
from turingas.listing import PLAIN, Shown
from turingas.source.listings import quoted

ROW = 48  # bytes of data a line
NAMES_A_LINE = 4  # of .order
CODE_COLUMN = 55  # where the comment with the address stands
AT_ONCE = 4096  # instructions decoded in one go
WORD_TYPES = {NVAL: "flag", BVAL: "byte", HVAL: "half"}
BIND_NAMES = {number: name for name, number in BINDINGS.items()}
TYPE_NAMES = {number: name for name, number in SYMBOL_TYPES.items()}


@collector.paused()
def disassemble(cubin: Cubin | bytes, shown: Shown = PLAIN) -> str:
    """Source text that assembles to the same code, resources and sections as ``cubin``, as far as ``shown`` shows
    them."""
    return "\n".join([*source_parts(cubin if isinstance(cubin, Cubin) else Cubin.from_bytes(cubin), shown), ""])


def write_source(cubin: Cubin | bytes, out: TextIO, shown: Shown = PLAIN) -> None:
    """The same, written to ``out`` as it is made: large files need not be held as text."""
    for part in source_parts(cubin if isinstance(cubin, Cubin) else Cubin.from_bytes(cubin), shown):
        out.write(part)
        out.write("\n")


def check(cubin: Cubin | bytes) -> list[str]:
    """Take ``cubin`` apart into source and put it together again: what is not the same afterwards, in words."""
    before = cubin if isinstance(cubin, Cubin) else Cubin.from_bytes(cubin)
    original = before.elf or Elf.from_bytes(before.to_bytes())
    try:
        after = assemble(disassemble(before), before.arch, filename="<disassembled>", allow_python=False)
        return differences(original, Elf.from_bytes(build(after).to_bytes()))
    except AsmError as error:
        return [f"does not assemble again: {line}" for one in error.errors for line in str(one.show()).splitlines()[:1]]


def source_parts(cubin: Cubin, shown: Shown = PLAIN) -> Iterator[str]:
    """The source of ``cubin`` in parts of whole lines, without the last one's end."""
    parts = split(cubin)
    if shown != PLAIN:
        shown.choose(parts)
    yield f"# {len(cubin.kernels)} kernels, {len(cubin.functions)} device functions; assemble with: turingas assemble"
    yield f".arch {cubin.arch}"
    yield from _header(parts)
    symbols = combine(parts)[1]
    inside: dict[str | int, set[int]] = {}  # section -> the addresses that its symbols have
    for symbol in symbols:
        inside.setdefault(symbol.section, set()).update((symbol.value, symbol.value + symbol.size))
    functions: dict[str | int, set[int]] = {}  # section -> where functions begin
    starts: dict[str | int, set[str]] = {}  # section -> the symbols that stand for its start
    for symbol in symbols:
        if symbol.type == e.STT_FUNC:
            functions.setdefault(symbol.section, set()).add(symbol.value)
        if not symbol.value:
            starts.setdefault(symbol.section, set()).add(symbol.name)
    labels: dict[str | int, dict[int, str]] = {}
    sizes: dict[str | int, int] = {}
    elsewhere = moved.addresses(parts.sections, symbols, {kernel.section for kernel in parts.texts})
    isa = instruction_set(cubin.arch)
    written: dict[bytes, str] = {}  # words that mean the same everywhere, and their lines
    for kernels in _batches(parts.texts):
        codes = [kernel.code.pieces for kernel in kernels]
        new = list(set().union(*codes).difference(written))
        lines = isa.lines_anywhere([int.from_bytes(word, "little") for word in new])
        written.update([(word, (line + ";").ljust(CODE_COLUMN)) for word, line in zip(new, lines) if line])
        for kernel, words in zip(kernels, codes):
            at = kernel.section
            found = addresses.find(kernel, functions.get(at, ()), starts.get(at, ()))
            labels[at] = _labels(kernel, inside.get(at, set()) | elsewhere[at], found)
            sizes[at] = len(kernel.code)
            yield ""
            yield from _head(kernel, labels[at], found)
            yield "\n".join(_code(kernel, words, written, labels[at], found, shown))
            for bank, data in kernel.constants.items():
                yield f".bank {bank}"
                yield from _bank(bytes(data), found.words if bank == addresses.TABLE_BANK else {}, labels[at])
    if parts.sections or parts.dropped or parts.symbols:
        yield ""
        yield "# What else the file holds"
    if parts.capsule:
        yield f".capsule {parts.capsule}"
    for n in range(0, len(parts.order), NAMES_A_LINE):
        yield " ".join([".order", *map(_key, parts.order[n : n + NAMES_A_LINE])])
    for name in parts.dropped:
        yield f".drop {_key(name)}"
    names = Counter(symbol.name for symbol in symbols)
    for section in parts.sections:
        yield from _section(section, symbols, names)
    for symbol in parts.symbols or ():
        yield _symbol(symbol, labels.get(symbol.section, {}), sizes.get(symbol.section, 0))


def _header(cubin: Parts) -> Iterator[str]:
    usual = replace(Header.usual(arch(cubin.arch)), flags=cubin.texts[0].facts.e_flags if cubin.texts else None)
    fields = [(key, value) for key, value in vars(cubin.header).items() if value != getattr(usual, key)]
    if fields:
        yield ".elf " + " ".join(f"{key}={value:#x}" for key, value in fields if value is not None)


# -- kernels


def _batches(kernels: Iterable[Kernel]) -> Iterator[list[Kernel]]:
    """Kernels one after the other, so many at a time that decoding their instructions together pays."""
    some: list[Kernel] = []
    size = 0
    for kernel in kernels:
        some.append(kernel)
        size += len(kernel.code)
        if size > WORD_BYTES * AT_ONCE:
            yield some
            some, size = [], 0
    yield some


def _head(kernel: Kernel, labels: dict[int, str], found: Addresses) -> Iterator[str]:
    """What stands before the instructions."""
    isa = instruction_set(kernel.arch)
    options = {
        "bind": "" if kernel.bind == e.STB_GLOBAL else BIND_NAMES.get(kernel.bind, str(kernel.bind)),
        "section": "" if kernel.own_section is None else quoted(kernel.own_section),
        "symbol": quoted(kernel.symbol) if kernel.symbol else "",
        "flags": "" if kernel.flags == 6 else f"{kernel.flags:#x}",
        "align": "" if kernel.align == 128 else str(kernel.align),
        "link": "" if kernel.link == ".symtab" else _reference(kernel.link) or "0",
        "entry": str(kernel.entry_size) if kernel.entry_size else "",
        "address": f"{kernel.address:#x}" if kernel.address else "",
        "info": "" if kernel.section_info is None else f"{kernel.section_info:#x}",
    }
    head = ".kernel " if kernel.entry else ".function "
    yield head + " ".join([quoted(kernel.name)] + [f"{key}={value}" for key, value in options.items() if value])
    yield f".registers {kernel.registers}"
    if kernel.shared_bytes:
        yield f".shared {kernel.shared_bytes}" + (f" align={kernel.shared_align}" if kernel.shared_align != 16 else "")
    if kernel.barriers != used_barriers(isa, kernel.code):
        yield f".barriers {kernel.barriers}"
    if kernel.frame_bytes:
        yield f".frame {kernel.frame_bytes}"
    if kernel.stack_bytes != (kernel.frame_bytes if kernel.entry else None):
        yield f".stack {'none' if kernel.stack_bytes is None else kernel.stack_bytes}"
    if kernel.max_stack_bytes is not None:
        yield f".max_stack {kernel.max_stack_bytes}"
    for param in kernel.params:
        called = [param.name] if kernel.typed and param.name else []
        yield " ".join([".param", *called, param.type or str(param.size), f"offset={param.offset:#x}"])
    for code, infos in kernel.infos.items():
        yield from _infos(code, infos, labels)
    if kernel.info_order:
        yield ".infos " + " ".join(nvinfo.NAMES.get(code, f"{code:#x}") for code in kernel.info_order)
    if tail(isa, kernel.facts, kernel.code):
        yield ".tail none"
    yield " ".join([f".layout {len(kernel.code):#x}", *(labels[WORD_BYTES * n] for n in sorted(found.unknown))])


def _labels(kernel: Kernel, marked: set[int], found: Addresses) -> dict[int, str]:
    """A name for every address that something in the cubin refers to; ``marked`` are those of symbols."""
    isa = instruction_set(kernel.arch)
    end = len(kernel.code)
    wanted = marked - {0} | found.held(kernel) | {WORD_BYTES * at for at in found.unknown}
    if found.unknown:  # they lead to where some block begins: all of these places are to stay where they are
        wanted |= {WORD_BYTES * (at + 1) for at in addresses.ends_of_blocks(isa, kernel.code)}
    leading = frozenset(opcode for opcode in kernel.code.opcodes() if not isa.anywhere[opcode])
    for at in kernel.code.having(leading):
        if at not in found.based:
            target = isa.target(kernel.code[at], WORD_BYTES * at)
            if target is not None:
                wanted.add(target)
    for infos in kernel.infos.values():
        for info in infos:
            wanted.update(word for word, is_address in info.marked if is_address)
    lepcs = {WORD_BYTES * at for at in kernel.code.having(isa.opcodes("LEPC"))}
    inside_code = [at for at in sorted(wanted) if 0 <= at < end and at % WORD_BYTES == 0]
    # a number that is counted from an LEPC stays with it, whatever is put in before it
    return {at: f"{LEPC if at in lepcs else ''}L_{at:04x}" for at in inside_code}


def _infos(code: int, infos: list[Info], labels: dict[int, str]) -> Iterator[str]:
    name = nvinfo.NAMES.get(code, f"{code:#04x}")
    if not infos:
        yield f".info {name} absent"
    for info in infos:
        if isinstance(info.value, int):
            yield f".info {name} {WORD_TYPES[info.format]} {info.value:#x}"
        elif len(info.value) % 4:
            yield f".info {name} hex {info.value.hex()}"
        else:
            texts = [labels.get(word, f"{word:#x}") if is_address else f"{word:#x}" for word, is_address in info.marked]
            yield " ".join([".info", name, *texts])


def _code(
    kernel: Kernel, words: list[bytes], written: Mapping[bytes, str], labels: dict[int, str], found: Addresses,
    shown: Shown,
) -> list[str]:  # fmt: skip
    """The instructions, with labels and relocations. ``written``: see ``source_parts``."""
    isa = instruction_set(kernel.arch)
    relocated: dict[int, list[str]] = {}
    for row in kernel.relocations:
        parts = [".reloc", relocations.name(row.type), quoted(row.symbol)]
        if row.addend is not None:
            own = (row.address, row.type) in found.addends
            parts.append(labels[row.addend] if own else f"{row.addend:#x}")
        relocated.setdefault(row.address, []).append(" ".join(parts))
    code = kernel.code
    lines = list(map(written.get, words, repeat("")))
    apart = {n: isa.line(code[n], WORD_BYTES * n, True, labels) for n, line in enumerate(lines) if not line}
    special = {n: isa.lines([code[n]], WORD_BYTES * n)[0] for n in found.based}
    special |= {n: addresses.from_start(special[n]) for n in found.distances}
    special |= {n: addresses.expression(isa, code[n], labels[at]) for n, at in found.immediates.items()}
    for n, text in (apart | special).items():
        lines[n] = (text + ";" if text[0] != "." else text).ljust(CODE_COLUMN)  # an opaque word is no instruction
    comments = _comments(-len(lines) // AT_ONCE * -AT_ONCE)
    lines = list(map(add, lines, comments))
    before = {at: [label + ":"] for at, label in labels.items()}
    for at, rows in relocated.items():
        before.setdefault(at, []).extend(rows)
    if shown != PLAIN:
        shown.annotate(kernel, list(code), lines, before)
    whole: list[str] = []
    done = 0
    for at in sorted(before):
        whole += lines[done : at // WORD_BYTES]
        whole += before[at]
        done = at // WORD_BYTES
    return whole + lines[done:]


@functools.lru_cache(2)
def _comments(count: int) -> list[str]:
    """The comments behind the first instructions of a function: their addresses."""
    return [f" # {WORD_BYTES * n:04x}" for n in range(count)]


# -- sections and symbols


def _section(section: RawSection, symbols: list[RawSymbol], names: Counter[str]) -> Iterator[str]:
    options = {
        "type": f"{section.type:#x}",
        "flags": f"{section.flags:#x}" if section.flags else "",
        "align": str(section.align) if section.align != 1 else "",
        "entry": str(section.entry_size) if section.entry_size else "",
        "link": _reference(section.link),
        "info": _reference(section.info),
        "size": f"{section.size:#x}" if section.size else "",
        "address": f"{section.address:#x}" if section.address else "",
    }
    yield " ".join([".section", _key(section.name)] + [f"{key}={value}" for key, value in options.items() if value])
    if section.type in (e.SHT_REL, e.SHT_RELA):
        rows = e.relocations(e.Section("", section.type, data=section.data))
        if e.pack_relocations(rows, section.type == e.SHT_RELA) == section.data:
            for row in rows:
                known = 0 < row.symbol <= len(symbols) and names[symbols[row.symbol - 1].name] == 1
                symbol = quoted(symbols[row.symbol - 1].name) if known else f"@{row.symbol}"
                line = f".row {row.offset:#x} {relocations.name(row.type)} {symbol}"
                yield line if row.addend is None else f"{line} {row.addend:#x}"
            return
    yield from _data(section.data)


def _symbol(symbol: RawSymbol, labels: dict[int, str], code: int) -> str:
    """The line of a symbol; ``code`` is the size of its section, if that holds instructions, and ``labels`` its."""
    value = f"{symbol.value:#x}" if symbol.value else ""
    size = f"{symbol.size:#x}" if symbol.size else ""
    if code:
        end = symbol.value + symbol.size
        value = labels.get(symbol.value, value) if value else ""
        if size and end == code or symbol.size == AS_LONG_AS_CODE:
            size = "auto"
        elif size and end in labels and (not symbol.value or symbol.value in labels):
            size = f"{labels[end]}-{value}" if value else labels[end]
    options = {
        "section": _reference(symbol.section),
        "value": value,
        "size": size,
        "type": TYPE_NAMES.get(symbol.type, str(symbol.type)) if symbol.type else "",
        "bind": BIND_NAMES.get(symbol.bind, str(symbol.bind)) if symbol.bind else "",
        "other": f"{symbol.other:#x}" if symbol.other else "",
    }
    return " ".join([".symbol", quoted(symbol.name)] + [f"{key}={text}" for key, text in options.items() if text])


def _data(data: e.Bytes) -> Iterator[str]:
    """Bytes as .bytes and .zero lines."""
    raw = bytes(data)
    zeros = 0
    for at in range(0, len(raw), ROW):
        row = raw[at : at + ROW]
        if not any(row):
            zeros += len(row)
            continue
        if zeros:
            yield f".zero {zeros}"
            zeros = 0
        yield f".bytes {row.hex()}"
    if zeros:
        yield f".zero {zeros}"


def _bank(data: bytes, words: dict[int, int], labels: dict[int, str]) -> Iterator[str]:
    """A constant bank: bytes, and the addresses among them (offset -> size) as .long and .quad lines."""
    at = 0
    while at < len(data):
        size = words.get(at, 0)
        end = at
        if not size:
            while end < len(data) and end not in words:
                end += 1
            yield from _data(data[at:end])
        else:
            while words.get(end) == size and end < at + 8 * size:
                end += size
            names = [labels[int.from_bytes(data[n : n + size], "little")] for n in range(at, end, size)]
            yield " ".join([".long" if size == 4 else ".quad", *names])
        at = end


def _key(name: str) -> str:
    base, mark, number = name.partition("\0")
    return quoted(base) + (f"@{number}" if mark else "")


def _reference(value: str | int) -> str:
    if isinstance(value, int):
        return f"{value:#x}" if value else ""
    return _key(value) if value else ""
