"""What ``convert`` has to tell: rows of layers, the largest difference, memory."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """A layer of the network. ``by``: the name of an entry of the TABLE that took it, or "PyTorch", which goes on with
    it; ``why``: the reason that it is not ours, "" if it is. ``what``: filters, channels, the example's sizes.
    ``kind``: as the table has it. ``folded``: what it does besides. ``ms``: milliseconds by entry, where it was
    tuned."""

    name: str
    what: str
    by: str
    why: str = ""
    folded: tuple[str, ...] = ()
    ms: dict[str, float] = field(default_factory=dict)
    kind: str = "convolution"


@dataclass
class Report:
    """``rows``: all layers of kinds that the table has. ``notes``: what else is to be known, such as what could not be
    traced. ``difference``: the largest of the example's results from the original's, and ``relative``, that over the
    largest number of the original; None where nothing was compared. ``memory``: bytes of prepared "filters", and of
    "weights" with batch norms folded, beside the original's, which stay."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    difference: float | None = None
    relative: float | None = None
    memory: dict[str, int] = field(default_factory=dict)

    @property
    def replaced(self) -> list[Row]:
        """The rows that are ours."""
        return [row for row in self.rows if not row.why]

    @property
    def left(self) -> list[Row]:
        """The others."""
        return [row for row in self.rows if row.why]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        cells = [("layer", "what", "by", "with", "why not ours")]
        cells += [(row.name, row.what, row.by, ", ".join(row.folded) or "-", _why(row)) for row in self.rows]
        widths = [max(len(line[column]) for line in cells) for column in range(5)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in cells]
        lines += self.notes
        lines.append(f"{len(self.replaced)} of {len(self.rows)} layers are ours")
        if self.difference is not None and self.relative is not None:
            lines.append(f"largest difference in the example: {self.difference:.2g}, "
                         f"{self.relative:.1g} of the largest number")  # fmt: skip
        if self.memory:
            sizes = (f"{what} {count / 2**20:.1f} MiB" for what, count in self.memory.items())
            lines.append("memory: " + ", ".join(sizes))
        return "\n".join(lines)


def _why(row: Row) -> str:
    times = ", ".join(f"{name} {ms:.4f} ms" for name, ms in row.ms.items())
    return "; ".join(part for part in (row.why, times) if part)
