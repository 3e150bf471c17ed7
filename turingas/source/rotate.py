"""Loops that are rotated: what their first lines do for this round, they do for the next one at the end of each.

::

    loop:                               LDG ...
        LDG ...                     loop:
    .schedule rotate       becomes      FFMA ...
        FFMA ...                        @P0 LDG ...
    @P0 BRA loop;                   @P0 BRA loop;

The lines between the label and ``.schedule rotate`` run as often as before, and in the same order: once before the
loop, and then under the guard of the branch back. So they stand in one block with the rest of the round before, and can
be laid between its instructions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from turingas.errors import AsmError
from turingas.isa.table import OPS
from turingas.source.lines import Origin, PlainLine
from turingas.source.parse import Directive, Instruction, Item, Label, place_of_code

BACK = re.compile(r"@(!?P\d+) BRA(?:\.\w+)* (\S+)$")
GUARD = re.compile(r"(@\S+)\s+BRA\b")


class Rotation(NamedTuple):
    """Places among the items: the label, ``.schedule rotate``, the branch back, which is guarded by ``guard``."""

    label: int
    marker: int
    back: int
    guard: str


def is_marker(item: Item) -> bool:
    """Whether it is ``.schedule rotate``."""
    return isinstance(item, Directive) and item.name == "schedule" and item.args == ("rotate",)


def find(items: Sequence[Item]) -> tuple[list[Rotation], list[AsmError]]:
    """The loops that are to be rotated, and what is wrong with those that cannot be."""
    found, errors = [], []
    for at, item in enumerate(items):
        if is_marker(item):
            try:
                found.append(_rotation(items, at))
            except AsmError as error:
                errors.append(error)
    return found, errors


def _rotation(items: Sequence[Item], marker: int) -> Rotation:
    here = items[marker]
    assert isinstance(here, Directive)
    label = marker - 1
    while label >= 0 and isinstance(items[label], Instruction):
        label -= 1
    start = items[label] if label >= 0 else None
    if not isinstance(start, Label) or label == marker - 1:
        raise here.error("there is no loop here to rotate", "it stands in a loop, behind the lines for the next round")
    back = marker + 1
    while back < len(items) and (isinstance(items[back], Directive) or not _ends(items[back], start.name)):
        back += 1
    branch = items[back] if back < len(items) else None
    if not isinstance(branch, Instruction):
        hint = f"a loop that is rotated is one block: from {start.name} to @P BRA {start.name}, with no label between"
        raise here.error("the branch back to the start of the loop is not found", hint)
    match = BACK.match(branch.body)
    if match is None:
        raise branch.error("a loop is rotated only if the branch back is guarded by a predicate", 0, "@P0 BRA loop")
    others = (i for n, i in enumerate(items) if n != back and isinstance(i, Instruction))
    if any(start.name in i.body.replace(",", " ").split() for i in others):
        raise start.error(f"something else leads to {start.name}, too: the loop cannot be rotated")
    _check(items[label + 1 : marker], match[1].lstrip("!"))
    return Rotation(label, marker, back, match[1])


def _ends(item: Item, name: str) -> bool:
    """Whether the loop cannot go on behind ``item``: the branch back, another label."""
    return isinstance(item, Label) or isinstance(item, Instruction) and item.body.split()[-1] == name


def _check(head: Sequence[Item], guard: str) -> None:
    for item in head:
        assert isinstance(item, Instruction)
        words = re.findall(r"[A-Za-z_]\w*", item.body)
        if item.body.startswith("@"):
            raise item.error("this line has a guard of its own, and cannot have that of the branch back, too")
        op = OPS.get(words[0])
        if op is None or op.pipe == "branch":
            raise item.error(f"{words[0]} cannot be moved to the end of the round before")
        if guard in words or "PR" in words:
            raise item.error(f"this line touches {guard}, by which it is to be guarded")


def items(found: Sequence[Item], rotations: Sequence[Rotation]) -> list[Item]:
    """The items with their loops rotated."""
    made: list[Item] = list(found)
    for label, marker, back, guard in reversed(rotations):
        head = [item for item in made[label + 1 : marker] if isinstance(item, Instruction)]
        again = [i._replace(statement=(i.control, f"@{guard} {i.body}", None)) for i in head]
        made[label : back + 1] = [*head, made[label], *made[marker + 1 : back], *again, made[back]]
    return [item for item in made if not is_marker(item)]


def lines(plain: Sequence[PlainLine], found: Sequence[Item], rotations: Sequence[Rotation]) -> list[PlainLine]:
    """The lines of the items with their loops rotated."""
    made = list(plain)
    for label, marker, back, _ in reversed(rotations):
        place = {_key(line.origin): n for n, line in enumerate(made)}
        first, middle, last = (place[_key(found[n].origin)] for n in (label, marker, back))
        head = made[first + 1 : middle]
        guard = GUARD.search(made[last].text)
        assert guard is not None
        again = [line._replace(text=_guarded(line.text, guard[1])) for line in head]
        made[first : last + 1] = [*head, made[first], *made[middle + 1 : last], *again, made[last]]
    return made


def _guarded(text: str, guard: str) -> str:
    column = place_of_code(text)
    if column is None:
        return text
    start, end = column
    return f"{text[:end]}{'  ' if end > start else ''}{guard} {text[end:].lstrip()}"


def _key(origin: Origin) -> tuple[str, int, int]:
    return origin.file, origin.line, origin.nth
