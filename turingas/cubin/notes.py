"""The types of parameters in a cubin: a section of our own, since no attribute of NVIDIA's says them.

``.note.turingas`` is an ELF note section (type 7, not loaded) with one note for each kernel that has a typed parameter:
name "TuringAs", type 1, and as its description the kernel's name and then ``NAME:TYPE`` for every parameter in their
order, each ended by a zero byte. Untyped parameters have an empty TYPE. Cubins without types have no such section.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from turingas.cubin.elf import Bytes
from turingas.cubin.model import Kernel
from turingas.parameter_types import type_size

SECTION = ".note.turingas"
OWNER = b"TuringAs\0"
PARAMETERS = 1
HEAD = struct.Struct("<III")  # bytes of the owner, of the description, type


def pack(kernels: Iterable[Kernel]) -> bytes:
    """The contents of the section; empty if no parameter has a type."""
    out = bytearray()
    for kernel in kernels:
        if not any(param.type for param in kernel.params):
            continue
        texts = [kernel.name, *(f"{param.name}:{param.type}" for param in kernel.params)]
        data = b"".join(text.encode("utf-8", "surrogateescape") + b"\0" for text in texts)
        out += HEAD.pack(len(OWNER), len(data), PARAMETERS) + _padded(OWNER) + _padded(data)
    return bytes(out)


def apply(data: Bytes, kernels: Iterable[Kernel]) -> None:
    """Gives the parameters of ``kernels`` the names and types in a section. What does not fit them is passed over."""
    named = {kernel.name: kernel for kernel in kernels}
    raw, at = bytes(data), 0
    while at + HEAD.size <= len(raw):
        owner, size, kind = HEAD.unpack_from(raw, at)
        start = at + HEAD.size + -(-owner // 4) * 4
        at = start + -(-size // 4) * 4
        if raw[start - -(-owner // 4) * 4 :][:owner] != OWNER or kind != PARAMETERS or at > len(raw):
            continue
        name, *texts = raw[start : start + size].decode("utf-8", "surrogateescape").split("\0")[:-1] or [""]
        kernel = named.get(name)
        if kernel is None or len(texts) != len(kernel.params):
            continue
        told = [text.rpartition(":") for text in texts]
        if all(not typed or type_size(typed) == param.size for param, (_, _, typed) in zip(kernel.params, told)):
            kernel.params = [replace(p, name=called, type=typed) for p, (called, _, typed) in zip(kernel.params, told)]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
