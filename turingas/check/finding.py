"""What the linter says of one place in a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from turingas.notebook import table

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, repr=False)
class Finding:
    """One finding. ``severity``: "error" (what the hardware computes may differ from what is written), "warning" (it
    may not be what is meant) or "note". ``line`` is a line of ``file``, 0 where the source is not known; ``address``
    the byte address of the instruction in its kernel, ``text`` how it reads; ``other``, ``other_line`` and
    ``other_text`` the same of a second instruction, None, 0 and "" where only one is concerned. ``hint``: what to
    change."""

    kind: str
    severity: str
    message: str
    kernel: str = ""
    address: int = 0
    text: str = ""
    file: str = ""
    line: int = 0
    other: int | None = None
    other_line: int = 0
    other_text: str = ""
    hint: str = ""

    def __repr__(self) -> str:
        return f"<Finding {self.severity} {self.kind} at {self.kernel}+0x{self.address:04x}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        instructions = [("instruction", f"0x{self.address:04x}: {self.text}" if self.text else "")]
        if self.other is not None:
            instructions.append(("and", f"0x{self.other:04x}: {self.other_text}"))
        source = f"{self.file}:{self.line}" if self.line else self.file
        rows = [("finding", self.message), *instructions, ("source", source), ("hint", self.hint)]
        caption = f"{self.severity}: {self.kernel}+0x{self.address:04x} [{self.kind}]"
        return table(caption, (), [row for row in rows if row[1]])

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        lines = [f"{where}{self.severity}: {self.kernel}+0x{self.address:04x}: {self.message} [{self.kind}]"]
        if self.other is not None:
            source = f"  (line {self.other_line})" if self.other_line else ""
            lines.append(f"    0x{self.other:04x}: {self.other_text}{source}")
        if self.text:
            lines.append(f"    0x{self.address:04x}: {self.text}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)
