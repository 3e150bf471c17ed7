"""What is different between the instructions of two architectures: ``turingas isa --diff``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turingas.isa import describe
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.table import OPS


@dataclass(frozen=True)
class Change:
    """A mnemonic that the two architectures do not share as it is. ``gone`` and ``new``: how it is written, with its
    opcodes, on the first alone and on the second alone; where ``here`` does not have it at all, all of ``there``."""

    mnemonic: str
    does: str
    here: bool  # whether the first has it
    there: bool  # and the second
    gone: tuple[str, ...]
    new: tuple[str, ...]


def changes(first: str, second: str, mnemonic: str | None = None) -> list[Change]:
    """All of them in alphabetical order, or that of one mnemonic. AsmError for an unknown architecture."""
    here, there = instruction_set(first), instruction_set(second)
    names = [mnemonic.upper()] if mnemonic else sorted(set(here.mnemonics()) | set(there.mnemonics()))
    found = []
    for name in names:
        one, other = _written(here, name), _written(there, name)
        gone, new = tuple(line for line in one if line not in other), tuple(line for line in other if line not in one)
        if gone or new:
            found.append(Change(name, OPS[name].does, bool(one), bool(other), gone, new))
    return found


def _written(isa: Isa, name: str) -> dict[str, None]:
    """How a mnemonic is written: a line for each way, ``FADD{.FTZ} Rd, Ra, Rb  0x221``."""
    return dict.fromkeys(describe.line(way) for way in describe.ways(isa.named(name)))


def lines(first: str, second: str, found: list[Change], ways: bool) -> Iterator[str]:
    """The same as text: what has gone, what has come, and what is written or encoded in another way; ``ways``: how."""
    gone = [change for change in found if not change.there]
    come = [change for change in found if not change.here]
    for title, some in ((f"{first} has, {second} has not", gone), (f"{second} has, {first} has not", come)):
        if some:
            yield f"{title}: {len(some)}"
            yield from (f"  {change.mnemonic:15} {change.does}" for change in some)
            yield ""
    both = [change for change in found if change.here and change.there]
    if both and not ways:
        yield f"written or encoded in other ways: {len(both)} (`isa MNEMONIC --diff {first} {second}` tells how)"
        yield from (f"  {change.mnemonic:15} {change.does}" for change in both)
    for change in both if ways else ():
        yield f"{change.mnemonic}: {change.does}"
        yield from (f"  - {line}" for line in change.gone)
        yield from (f"  + {line}" for line in change.new)
    if not found:
        yield f"the same on {first} and {second}"
