"""What goes wrong while a kernel runs on the CPU device, and where."""

from __future__ import annotations

from dataclasses import dataclass

from turingas.emulate.report import Report


@dataclass(frozen=True)
class Place:
    """Where in a kernel: its name, the address in its section, the instruction and, where known, its source line."""

    kernel: str
    address: int
    text: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        source = f"{self.file}:{self.line}: " if self.line else ""
        return f"{source}{self.kernel}+0x{self.address:04x}: {self.text}"


class DeviceError(Exception):
    """A kernel did what it must not: ``kind`` is a word for it ("out of bounds", "misaligned", "deadlock", ...).

    ``block`` and ``thread`` are (x, y, z) of the first thread that did; ``address`` is the memory address, if there is
    one, ``place`` the instruction, ``other`` a second one that takes part. ``report`` is what the launch had come to.
    """

    report: Report | None = None

    def __init__(
        self,
        kind: str,
        message: str,
        place: Place | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        address: int | None = None,
        other: Place | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.place = kind, message, place
        self.block, self.thread, self.address, self.other = block, thread, address, other

    def __reduce__(self) -> tuple[object, ...]:
        args = self.kind, self.message, self.place, self.block, self.thread, self.address, self.other
        return type(self), args, {"report": self.report}

    def __str__(self) -> str:
        text = f"{self.place}: error: " if self.place else "error: "
        text += self.message
        if self.block is not None:
            text += f"\n  block {self.block}, thread {self.thread}"
        if self.other is not None:
            text += f"\n  the other instruction: {self.other}"
        return text


class Unsupported(Exception):
    """The emulator has no semantics for an instruction, or for a modifier of it; the message says which."""
