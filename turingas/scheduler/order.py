"""Instructions of a kernel in another order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from turingas.cubin.model import Kernel
from turingas.cubin.nvinfo import Info
from turingas.isa.arch import WORD_BYTES

#: attributes that list all instructions of some kinds
LISTS = ("COOP_GROUP_INSTR_OFFSETS",)
OPCODE = 0xFFF


def lists(kernel: Kernel, info: Info) -> bool:
    """Whether an attribute lists all instructions of some kinds (warp shuffles, votes): where they go is then told by
    what they are."""
    words = kernel.words
    return info.name in LISTS and info.record == 1 and [*info.words] == _places(words, _kinds(words, info))


def replaced(kernel: Kernel, words: Sequence[int]) -> None:
    """Give a kernel the same instructions in another order, of which nothing else is known: what ``lists`` them
    follows."""
    old = kernel.words
    if any(a & OPCODE != b & OPCODE for a, b in zip(old, words)):
        kernel.attributes = [
            info._replace(value=b"".join(at.to_bytes(4, "little") for at in _places(words, _kinds(old, info))))
            if lists(kernel, info) else info for info in kernel.attributes
        ]  # fmt: skip
    kernel.words = list(words)


def _kinds(words: Sequence[int], info: Info) -> set[int]:
    return {words[at // WORD_BYTES] & OPCODE for at in info.words if at // WORD_BYTES < len(words)}


def _places(words: Iterable[int], kinds: set[int]) -> list[int]:
    return [WORD_BYTES * n for n, word in enumerate(words) if word & OPCODE in kinds]


def put(kernel: Kernel, order: Sequence[int]) -> None:
    """Bring the instructions of a kernel into another order: ``order[n]`` is the number of the one that comes to place
    n. Relocations, source lines and attributes follow their instructions. Branches and what they lead to must keep
    their places, as ``depends`` has it."""
    now = [0] * len(order)
    for place, n in enumerate(order):
        now[n] = place

    def moved(address: int) -> int:
        n = address // WORD_BYTES
        return WORD_BYTES * now[n] if address % WORD_BYTES == 0 and n < len(now) else address

    def followed(info: Info) -> Info:
        size, words = info.record, info.words
        if not size:
            return info
        records = sorted((moved(words[n]), *words[n + 1 : n + size]) for n in range(0, len(words), size))
        return info._replace(value=b"".join(word.to_bytes(4, "little") for record in records for word in record))

    kernel.words = [kernel.words[n] for n in order]
    kernel.relocations[:] = [replace(row, address=moved(row.address)) for row in kernel.relocations]
    kernel.attributes = [followed(info) for info in kernel.attributes]
    kernel.infos = {code: [followed(info) for info in infos] for code, infos in kernel.infos.items()}
    if kernel.lines:  # what the assembler puts behind the code has none
        kernel.lines = [kernel.lines[n] for n in order if n < len(kernel.lines)]
