"""The exceptions of this package, and how a diagnostic is shown."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 200  # characters of a source line that a diagnostic shows
UNNAMED = "<source>"  # a file of which nothing is known
RAISED = "inline Python: "  # how messages begin of what it raises


def shortened(text: str, most: int = 500) -> str:
    """``text`` without its middle if it is longer than ``most``: a message may quote anything."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


class AsmError(Exception):
    """Source text that cannot be assembled exactly.

    ``line`` and ``column`` count from 1; 0 means that there is no such place.
    ``errors`` holds every diagnostic of the file (this one first), so one raise reports them all.
    """

    def __init__(
        self,
        message: str,
        file: str = UNNAMED,
        line: int = 0,
        column: int = 0,
        hint: str = "",
        text: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.hint = hint
        self.text = text  # the source line that the caret points into
        self.notes = tuple(notes)  # already formatted: where a generated line came from
        self.errors: list[AsmError] = [self]

    @property
    def plain(self) -> str:
        """The message; of a ValueError that inline Python raises, as sources do for values that they do not take, its
        text alone."""
        return self.message.removeprefix(f"{RAISED}ValueError: ")

    def __reduce__(self) -> tuple[object, ...]:
        args = (self.message, self.file, self.line, self.column, self.hint, self.text, self.notes)
        return (AsmError, args, {"errors": self.errors} if len(self.errors) > 1 else None)

    def __str__(self) -> str:
        return "\n".join(error.show() for error in self.errors)

    def show(self, severity: str = "error") -> str:
        """This diagnostic alone: place and message, the source line with a caret, notes, hint."""
        place = ":".join([self.file] + [str(n) for n in (self.line, self.column) if n])
        lines = [f"{place}: {severity}: {shortened(self.message)}"]
        if self.text and self.line:
            gutter = f"{self.line:5d} | "
            text, column = _cut(self.text.expandtabs(1).rstrip(), self.column)
            lines.append(gutter + text)
            if column:
                lines.append(" " * (len(gutter) - 2) + "| " + " " * (column - 1) + "^")
        lines += self.notes
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class AsmWarning(UserWarning):
    """Source text that was assembled, and in which something is probably wrong. ``about`` says what, and where."""

    def __init__(self, about: AsmError) -> None:
        super().__init__(about)  # so that it can be made again from its args, as pickle does
        self.about = about

    def __str__(self) -> str:
        return self.about.show("warning")


def _cut(text: str, column: int) -> tuple[str, int]:
    """A line with what is far from ``column`` (from 1) left out, and where the column is in it."""
    if len(text) <= WIDEST:
        return text, column
    start = max(min(column - WIDEST // 2, len(text) - WIDEST), 0)
    before, behind = "..." * (start > 0), "..." * (start + WIDEST < len(text))
    return before + text[start : start + WIDEST] + behind, column and column - start + len(before)


def raise_all(errors: Sequence[AsmError]) -> None:
    """Raise one AsmError that carries all of ``errors``; do nothing when there is none."""
    if errors:
        first = errors[0]
        first.errors = list(errors)
        raise first


class EncodeError(ValueError):
    """An instruction that has no exact encoding. ``position`` is the offset in its text, from 0."""

    def __init__(self, message: str, position: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.position, self.hint = message, position, hint


class UnknownLabel(EncodeError):
    """A branch to a label that is nowhere."""


class CubinError(Exception):
    """Bytes that are no cubin this package can read. ``offset`` is the place in the file, in bytes; None: there is no
    file."""

    def __init__(self, message: str, offset: int | None = 0) -> None:
        super().__init__(message if offset is None else f"offset 0x{offset:x}: {message}")
        self.message = message
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.offset)


class LaunchWarning(UserWarning):
    """A launch that does something other than its arguments suggest."""


class LaunchError(ValueError):
    """A launch that no device would take: arguments, grid, block, shared memory, architecture. ``hint`` helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return self.message + (f"\nhint: {self.hint}" if self.hint else "")
