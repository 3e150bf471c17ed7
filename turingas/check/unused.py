"""Names of registers that nothing uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.isa.effects import FIRST

REGISTER = re.compile(r"(U?[RP])(\d+)")


@rule("unused-name", "A name that the source declares and never uses")
def check(graph: Graph) -> Iterator[Finding]:
    """A note for each line of <regs> with such names."""
    kernel = graph.kernel
    if not kernel.unused:
        return
    touched = graph.touched
    places: dict[tuple[str, int], list[str]] = {}
    for name, register, file, line in kernel.unused:
        known = REGISTER.fullmatch(register)
        if known and not touched >> FIRST[known[1]] + int(known[2]) & 1:  # or it is a part of another
            places.setdefault((file, line), []).append(name)
    for (file, line), names in places.items():
        what = f"{names[0]} is declared and never used" if len(names) == 1 else f"never used: {', '.join(names)}"
        hint = "take it out, or is another name meant somewhere?"
        yield Finding("unused-name", "note", what, kernel.name, 0, "", file, line, hint=hint)
