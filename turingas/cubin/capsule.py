"""The capsule: what ptxas keeps of the code before its last step, from sm_100 on ("Mercury"; docs/cubin.md).

Its sections (``.nv.capmerc.*``, ``.nv.merc.*``) repeat what the code and its attributes were. When the code is another
one they are stale, and whoever writes the file leaves them out, unless the cubin says ``keep_capsule``.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable

from turingas.cubin import elf as e
from turingas.cubin.elf import Elf
from turingas.cubin.model import Kernel, Parts
from turingas.errors import AsmError, AsmWarning
from turingas.packages import callers_level

MESSAGE = "the capsule sections (.nv.capmerc, .nv.merc) tell of the code as it was, and are left out"
HINT = "whether a driver wants them is not known (docs/cubin.md); --keep-capsule, or keep_capsule=True, writes them"


def digest(texts: Iterable[Kernel]) -> str:
    """What tells code and resources from others: a capsule repeats both."""
    sums = hashlib.sha256()
    for kernel in texts:
        facts = (kernel.name, kernel.registers, kernel.shared_bytes, kernel.frame_bytes, kernel.barriers,
                 [(param.offset, param.size) for param in kernel.params])  # fmt: skip
        sums.update(repr(facts).encode("utf-8", "surrogateescape"))
        sums.update(kernel.code.data)
    return sums.hexdigest()[:32]


def has(parts: Parts) -> bool:
    """Whether there is a capsule."""
    return any(section.flags & e.SHF_CAPSULE for section in parts.sections)


def symbols(elf: Elf) -> list[tuple[str, str]]:
    """The names of the capsule's own symbols, and of their sections: it numbers the file's names and sections."""
    found = []
    for table in elf.sections:
        if table.type == e.SHT_CAPSULE_SYMBOLS and 0 < table.link < len(elf.sections):
            names = bytes(elf.sections[table.link].data)
            for at, _, _, section, *_ in e.SYMBOL.iter_unpack(table.data[: len(table.data) // 24 * 24]):
                place = elf.sections[section].name if section < len(elf.sections) else str(section)
                found.append((names[at : names.find(b"\0", at)].decode("utf-8", "surrogateescape"), place))
    return found


def drop(parts: Parts) -> None:
    """Leave the capsule out."""
    parts.sections = [raw for raw in parts.sections if not raw.flags & e.SHF_CAPSULE]
    parts.capsule = ""


def of_changed(parts: Parts) -> None:
    """What a cubin that was read and has other code now keeps of its capsule: nothing, with a warning, unless it says
    otherwise."""
    if has(parts) and not parts.keep_capsule:
        drop(parts)
        warnings.warn(AsmWarning(AsmError(MESSAGE, hint=HINT)), stacklevel=callers_level())
