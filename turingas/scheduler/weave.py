"""Instructions laid between those of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Weave:
    """A stream of instructions with others between them. Slot n lies behind the n-th part of the stream; each slot
    takes one instruction, which then costs no cycle where FFMAs leave every other issue slot free."""

    def __init__(self, stream: Sequence[Iterable[str]]) -> None:
        self.stream = stream
        self.slots: dict[int, str] = {}

    def put(self, lines: Iterable[str], first: int, every: int = 1) -> int:
        """Put ``lines`` in order, ``every`` so many slots from slot ``first`` on, or in the next free ones. The slot of
        the last one. ValueError when none is left."""
        slot = first - every
        for line in lines:
            slot += every
            while slot in self.slots:
                slot += 1
            if slot >= len(self.stream):
                raise ValueError(f"no slot is left for {line}")
            self.slots[slot] = line
        return slot

    def lines(self) -> Iterator[str]:
        """All lines, in order."""
        for n, part in enumerate(self.stream):
            yield from part
            if n in self.slots:
                yield self.slots[n]
