"""A cubin that was read, taken apart: what follows from its kernels, and what else it holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from turingas.cubin import capsule, nvinfo
from turingas.cubin import elf as e
from turingas.cubin.elf import Elf
from turingas.cubin.model import Kernel, Parts, RawSection, RawSymbol
from turingas.cubin.nvinfo import Info
from turingas.cubin.read import describe, read
from turingas.cubin.write import (
    AS_LONG_AS_CODE,
    ORDER_NEW,
    ORDER_OLD,
    Numbers,
    build,
    combine,
    derive,
    derive_symbols,
    derived_infos,
    link,
    relocation_rows,
    tables,
    text_info,
)
from turingas.errors import CubinError

TABLES = (".symtab", ".strtab", ".shstrtab")
WITH_NUMBERS = (e.SHT_CUDA_INFO, e.SHT_CUDA_CALLGRAPH, 0x70000002)  # contents that number symbols


def split(cubin: Parts) -> Parts:
    """The same cubin, with ``sections``, ``dropped``, ``symbols`` and the kernels' ``infos`` filled in.

    Building what comes out gives every section and symbol again. A cubin that was not read comes back as it is.
    """
    if cubin.elf is None:
        return cubin
    sections, symbols = describe(cubin.elf)
    by_name = {section.name: section for section in sections}
    numbers = Numbers(cubin, symbols)
    names = Counter(symbol.name for symbol in symbols)
    texts = [replace(kernel, infos={}, info_order=[]) for kernel in cubin.texts]
    if len({kernel.name for kernel in texts}) < len(texts):
        raise CubinError("two sections of code have the same name")
    plain = Parts(cubin.arch, texts, header=cubin.header)
    for kernel in texts:
        _keep_relocations(kernel, by_name, names, numbers)
        _keep_infos(plain, kernel, by_name, numbers)
        actual = by_name[kernel.section].info
        if actual != text_info(kernel, numbers):
            kernel.section_info = int(actual)
    _keep_sections(plain, sections, symbols)
    final, _ = combine(plain)
    tells = any(section.type in WITH_NUMBERS for section in plain.sections)
    if tells or derive_symbols(plain, {section.name for section in final}) != symbols:
        plain.symbols = symbols
    if ".nv.prototype" in by_name or capsule.has(plain):  # they hold offsets of names
        plain.sections.append(by_name[".strtab"])
    if capsule.has(plain):  # its symbols have numbers of sections
        assert cubin.source is not None
        plain.capsule, plain.keep_capsule = capsule.digest(read(cubin.source).texts), cubin.keep_capsule
        there = [section.name for section in sections]
        if [section.name for section in combine(plain)[0]][1:] != there:
            plain.order = there
    return plain


#: attributes that stand in .nv.info, with the kernel's symbol: they follow from its other facts
OF_ALL = {nvinfo.CODES[name] for name in ("REGCOUNT", "FRAME_SIZE", "MIN_STACK_SIZE", "MAX_STACK_SIZE")}


def rewrite(cubin: Parts) -> bytes:
    """The bytes of a cubin that was read: those of its file, or a new file when its kernels were changed. ValueError
    for a change that the file cannot show."""
    assert cubin.source is not None
    before = read(cubin.source)
    if before.texts == cubin.texts:
        return cubin.source
    before.keep_capsule = cubin.keep_capsule
    parts = split(before)
    sizes = {kernel.section: len(kernel.code) for kernel in before.texts}
    for symbol in parts.symbols or ():
        if symbol.type == e.STT_FUNC and symbol.size == sizes.get(str(symbol.section)):
            symbol.size = AS_LONG_AS_CODE
    old = {kernel.name: kernel for kernel in before.texts}
    new = {kernel.name: kernel for kernel in cubin.texts}
    for kernel in parts.texts:
        if kernel.name not in new:
            raise ValueError(f"kernel {kernel.name} was taken out of a cubin that was read")
        for key, value in vars(new[kernel.name]).items():
            if value == getattr(old[kernel.name], key):
                continue
            if key == "attributes":
                continue
            if key == "relocations" and kernel.relocations != old[kernel.name].relocations:
                raise ValueError(f"{kernel.name}: its relocations are kept as they lie in the file: change the listing")
            setattr(kernel, key, value)
        now, was = _groups(new[kernel.name].attributes), _groups(old[kernel.name].attributes)
        changed = {code: now.get(code, []) for code in {**was, **now} if now.get(code, []) != was.get(code, [])}
        if changed.keys() & OF_ALL:
            raise ValueError(f"{kernel.name}: attributes tell what was read; infos replaces what they say")
        kernel.infos = {**kernel.infos, **changed}  # places in the code that has moved
    capsule.of_changed(parts)
    return build(parts).to_bytes()


def without_capsule(cubin: Parts, warn: bool = True) -> bytes:
    """The bytes of a cubin that will have other code: without what ptxas has left of the code that it has."""
    parts = split(cubin)
    if not capsule.has(parts) or cubin.keep_capsule:
        return build(cubin).to_bytes() if cubin.source is None else rewrite(cubin)
    if warn:
        capsule.of_changed(parts)
    else:
        capsule.drop(parts)
    return build(parts).to_bytes()


def _keep_relocations(
    kernel: Kernel, by_name: dict[str, RawSection], names: Counter[str], numbers: Numbers
) -> None:
    """Leave the relocations to the section's raw form, when the kernel's rows would not make it again."""
    rows = kernel.relocations
    for addends in (False, True):
        section = by_name.get((".rela.text." if addends else ".rel.text.") + kernel.name)
        mine = [row for row in rows if (row.addend is not None) == addends]
        named = all(names[row.symbol] == 1 and row.address < len(kernel.code) for row in mine)
        data = bytes(section.data) if section else b""
        if not named or relocation_rows(mine, addends, numbers) != data or any(r.address % 16 for r in mine):
            kernel.relocations = [row for row in kernel.relocations if (row.addend is not None) != addends]


def _keep_infos(cubin: Parts, kernel: Kernel, by_name: dict[str, RawSection], numbers: Numbers) -> None:
    """Note the attributes that are not the derived ones."""
    section = by_name.get(".nv.info." + kernel.name)
    if section is None:
        return
    actual = _groups(nvinfo.parse(section.data))
    derived = _groups(derived_infos(cubin, kernel, numbers))
    for code in {**derived, **actual}:
        if derived.get(code, []) != actual.get(code, []):
            kernel.infos[code] = actual.get(code, [])
    order = ORDER_NEW if kernel.facts.newer_elf else ORDER_OLD
    rank = {code: at for at, code in enumerate(order)}
    if list(actual) != sorted(actual, key=lambda code: rank.get(code, len(rank))):
        kernel.info_order = list(actual)


def _groups(infos: list[Info]) -> dict[int, list[Info]]:
    groups: dict[int, list[Info]] = {}
    for info in infos:
        groups.setdefault(info.code, []).append(info)
    return groups


def _keep_sections(cubin: Parts, actual: list[RawSection], symbols: list[RawSymbol]) -> None:
    """Note the sections that are not the derived ones, and the derived ones that are not there."""
    built, _ = describe(link(cubin, tables() + derive(cubin), symbols))
    expected = {section.name: section for section in built}
    texts = {kernel.section for kernel in cubin.texts}
    for section in actual:
        if section.name not in texts and section.name not in TABLES and not _same(section, expected.get(section.name)):
            cubin.sections.append(section)
    there = {section.name for section in actual}
    cubin.dropped = [name for name in expected if name not in there and name not in TABLES]


def _same(one: RawSection, other: RawSection | None) -> bool:
    if other is None or bytes(one.data) != other.data:
        return False
    return {**vars(one), "data": None} == {**vars(other), "data": None}


def differences(one: Elf, other: Elf) -> list[str]:
    """What is not the same in two files, in words; order and places of sections do not count."""
    found = []
    heads = [(f.abi, f.abi_version, f.type, f.version, hex(f.flags)) for f in (one, other)]
    if heads[0] != heads[1]:
        found.append(f"header: {heads[0]} became {heads[1]} (ABI, its version, type, toolkit, flags)")
    (sections, symbols), (new_sections, new_symbols) = describe(one), describe(other)
    after = {section.name: section for section in new_sections}
    for section in sections:
        name = section.name.replace("\0", " #")
        new = after.pop(section.name, None)
        if new is None:
            found.append(f"{name}: is gone")
        elif name not in TABLES and not _same(section, new):
            found.append(f"{name}: {_difference(section, new)}")
    found += [f"{name}: is new" for name in after]
    for at, (symbol, again) in enumerate(zip(symbols, new_symbols), 1):
        if symbol != again:
            found.append(f"symbol {at}: {symbol} became {again}")
    if len(symbols) != len(new_symbols):
        found.append(f"{len(symbols)} symbols became {len(new_symbols)}")
    if capsule.symbols(one) != capsule.symbols(other):
        found.append("the symbols of the capsule have other names or sections")
    if _segments(one) != _segments(other):
        found.append(f"program headers: {_segments(one)} became {_segments(other)}")
    return found


def _segments(elf: Elf) -> list[tuple[int, int, list[str]]]:
    """The program headers: type, flags, and the sections that lie in each; "" stands for the headers themselves."""
    loaded = sorted((s.offset, len(s.data), s.name) for s in elf.sections if s.flags & e.SHF_ALLOC and len(s.data))
    loaded.append((elf.segment_at, len(elf.segments) * e.SEGMENT.size, ""))
    result = []
    for row in elf.segments:
        end = row.offset + row.file_size
        inside = sorted(name for at, size, name in loaded if row.offset <= at and at + size <= end)
        result.append((row.type, row.flags, inside))
    return result


def _difference(one: RawSection, other: RawSection) -> str:
    for key in ("type", "flags", "align", "entry_size", "link", "info", "size", "address"):
        if getattr(one, key) != getattr(other, key):
            return f"{key} {getattr(one, key)!r} became {getattr(other, key)!r}"
    before, after = bytes(one.data), bytes(other.data)
    if len(before) != len(after):
        return f"{len(before)} bytes became {len(after)}"
    at = next(at for at, (x, y) in enumerate(zip(before, after)) if x != y)
    return f"byte 0x{at:x}: 0x{before[at]:02x} became 0x{after[at]:02x}"
