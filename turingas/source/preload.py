"""``.preload``: constants in uniform registers, where arithmetic takes none (Blackwell; docs/porting.md).

Each word of bank 0 from AT on has a uniform register of its own, so ``c[0x0][0x380]`` is UR80 wherever it stands, and
neighbours lie side by side. LDCU loads those that a kernel names before its first instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from turingas.isa.arch import Arch

AT, FIRST = 0x340, 64  # the address of the word in the first of these registers; what lies before is the driver's
SCOREBOARD = 0
CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
TAKEN = re.compile(r"\bUR(\d+)\b")


def needed(facts: Arch) -> bool:
    """Whether arithmetic of an architecture takes no constants."""
    return "c" not in facts.sources


def preloaded(body: str, facts: Arch) -> str:
    """An instruction with the registers of its constants; ULDC becomes a move. What loads constants stays."""
    if not needed(facts) or "c[0x0]" not in body or re.match(r"(@!?U?P\w+ )?LDCU?\b", body):
        return body
    last = facts.files["UR"].last

    def register(found: re.Match[str]) -> str:
        number = FIRST + (int(found[1], 16) - AT) // 4
        return f"UR{number}" if FIRST <= number < last else found[0]

    return CONSTANT.sub(register, re.sub(r"\bULDC(?=[ .])", "UMOV", body))


def loads(bodies: Iterable[str], wide: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Control codes and instructions that load what instructions name that ``preloaded`` changed, and wait for it;
    ``wide``: registers that are the first of a pair."""
    named = {int(number) for body in bodies for number in TAKEN.findall(body)}
    named |= {first + 1 for first in wide}
    found = sorted(number for number in named if number >= FIRST)
    groups: list[tuple[int, int]] = []  # the first register, and how many
    for number in found:
        if groups and number < sum(groups[-1]):
            continue
        words = next(n for n in (4, 2, 1) if number % n == 0 and all(number + m in named for m in range(n)))
        groups.append((number, words))
    for n, (number, words) in enumerate(groups):
        size = f".{32 * words}" if words > 1 else ""
        stall = 2 if n == len(groups) - 1 else 1
        yield f"--:-:{SCOREBOARD}:-:{stall}", f"LDCU{size} UR{number}, c[0x0][0x{AT + 4 * (number - FIRST):x}]"
    if groups:
        yield f"{1 << SCOREBOARD:02x}:-:-:-:1", "NOP"
