"""The instructions of a block, wherever it stands.

Compilers make one kernel in many versions, and more than half of a library's blocks are there already, word for word.
What follows from the words of a block alone is worked out once for all of them: by functions of a Stretch that remember
(``functools.lru_cache``). They count instructions from its start.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from turingas.isa.effects import Effects, distances
from turingas.isa.instruction import Instruction
from turingas.isa.latency import latencies

REMEMBERED = 1 << 14  # stretches of an architecture, and what is known of them


class Stretch:
    """``instructions`` are those of the first such block that was seen: its addresses, and its labels."""

    def __init__(self, arch: str, instructions: Sequence[Instruction | None]) -> None:
        self.arch, self.instructions = arch, instructions

    @functools.cached_property
    def effects(self) -> list[Effects | None]:
        """What each instruction means for those behind it. AsmError where the latencies are not known."""
        return distances(latencies(self.arch)).all(self.instructions)

    @functools.cached_property
    def touched(self) -> int:
        """The registers that they read and write, as bits."""
        masks = [this.read | this.written for this in self.effects if this is not None]
        return functools.reduce(operator.or_, masks, 0)

    @functools.cached_property
    def mnemonics(self) -> dict[str, list[int]]:
        """Mnemonic, without modifiers -> its instructions."""
        found: dict[str, list[int]] = {}
        for n, i in enumerate(self.instructions):
            if i is not None:
                found.setdefault(i.base, []).append(n)
        return found


@functools.cache
def stretches(arch: str) -> dict[tuple[int, ...], Stretch]:
    """Words -> the stretch that they are."""
    return {}


def stretch(arch: str, words: tuple[int, ...], instructions: Sequence[Instruction | None]) -> Stretch:
    """The stretch of these words, which ``instructions`` explain."""
    known = stretches(arch)
    found = known.get(words)
    if found is None:
        if len(known) >= REMEMBERED:
            known.clear()
        found = known[words] = Stretch(arch, instructions)
    return found
