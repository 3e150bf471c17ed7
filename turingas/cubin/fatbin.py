"""Cubins in a library, an executable or an object file: fat binaries, wherever in the file they lie.

A fat binary is a header and a list of entries: cubins, PTX, intermediate code for linking. They are found by their
first bytes, not by a section's name: cuFFT keeps its own in .data, which cuobjdump does not list. The layout was read
off the libraries of CUDA 12 and 13 and compared with what ``cuobjdump -lelf`` lists of them. A payload is plain, LZ4
or, since CUDA 12.8, zstd. Both need a package (``pip install lz4 zstandard``).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from turingas.cubin.elf import Elf
from turingas.cubin.read import architecture
from turingas.errors import CubinError
from turingas.isa.arch import chip

MAGIC = bytes.fromhex("50ed55ba")
HEADER = struct.Struct("<4sHHQ")  # magic, version, bytes of this header, bytes of the entries
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
CUBIN = 2  # kind of an entry
LZ4, ZSTD = 0x2000, 0x8000  # in its flags
LARGEST = 1 << 30  # bytes of one cubin: a damaged size must not take all memory


@dataclass(frozen=True)
class Entry:
    """A cubin in a file, for compute capability ``target`` (90 for sm_90 and sm_90a): ``size`` bytes lie at ``offset``,
    compressed if ``flags`` say so; ``unpacked`` is their number after that."""

    target: int
    flags: int
    offset: int
    size: int
    unpacked: int


def entries(data: bytes | mmap.mmap) -> Iterator[Entry]:
    """The cubins of all fat binaries in ``data``, in their order. What only looks like a header is passed over."""
    at = data.find(MAGIC)
    while at >= 0:
        found, end = _one(data, at)
        yield from found
        at = data.find(MAGIC, end)


def _one(data: bytes | mmap.mmap, start: int) -> tuple[list[Entry], int]:
    """The cubins of the fat binary at ``start``, and where it ends."""
    nothing: tuple[list[Entry], int] = [], start + 4
    if start + HEADER.size > len(data):
        return nothing
    _, version, header, size = HEADER.unpack_from(data, start)
    at, end = start + header, start + header + size
    if version != 1 or header != HEADER.size or end > len(data):
        return nothing
    found = []
    while at < end:
        if at + ENTRY.size > end:
            return nothing
        kind, _, own, space, packed, _, _, _, target, _, _, flags, _, unpacked = ENTRY.unpack_from(data, at)
        if own < ENTRY.size or at + own + space > end or packed > space:
            return nothing
        if kind == CUBIN:
            sizes = (packed, unpacked) if flags & (LZ4 | ZSTD) else (space, space)
            found.append(Entry(target, flags, at + own, *sizes))
        at += own + space
    return found, end


def unpack(data: bytes | mmap.mmap, entry: Entry) -> bytes:
    """The cubin of an entry. CubinError if it is damaged, ModuleNotFoundError if the package that unpacks it
    is not there."""
    packed = data[entry.offset : entry.offset + entry.size]
    if not entry.flags & (LZ4 | ZSTD):
        return bytes(packed)
    if entry.unpacked > LARGEST:
        raise CubinError(f"a cubin of {entry.unpacked} bytes is larger than any", entry.offset)
    try:
        if entry.flags & LZ4:
            unpacked = _package("lz4.block").decompress(packed, uncompressed_size=entry.unpacked)
        else:
            unpacked = _package("zstandard").decompress(packed, max_output_size=entry.unpacked)
    except ImportError:
        raise
    except Exception as error:  # each package has an exception of its own
        raise CubinError(f"a compressed cubin is damaged: {error}", entry.offset) from None
    if len(unpacked) != entry.unpacked:
        raise CubinError(f"a cubin of {entry.unpacked} bytes unpacks to {len(unpacked)}", entry.offset)
    return bytes(unpacked)


def _package(name: str) -> Any:
    """What unpacks; ImportError says how it is installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        why = f"cubins of this file are compressed, and {name} unpacks them: pip install lz4 zstandard"
        raise ModuleNotFoundError(why, name=error.name) from None


def cubins(path: str | os.PathLike[str], archs: Collection[str] = ()) -> Iterator[tuple[int, str, bytes]]:
    """Place among all of them (from 1), architecture ("sm_90a") and bytes of each cubin in the library, executable or
    object file ``path``; with ``archs`` of those alone. One that this package does not know is "sm_100"."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from within(data, archs)


def within(data: bytes | mmap.mmap, archs: Collection[str] = ()) -> Iterator[tuple[int, str, bytes]]:
    """The same of a file's bytes."""
    for number, entry in enumerate(entries(data), 1):
        if archs and f"sm_{entry.target}" not in {chip(arch) for arch in archs}:
            continue
        cubin = unpack(data, entry)
        try:
            arch = architecture(Elf.from_bytes(cubin))
        except CubinError:
            arch = f"sm_{entry.target}"
        if not archs or arch in archs:
            yield number, arch, cubin
