"""Source lines with ``*`` for the stall, and back with numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from turingas.isa.arch import arch as architecture
from turingas.isa.control import parse
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set
from turingas.scheduler.reuse import flags
from turingas.scheduler.stalls import stalls
from turingas.scheduler.step import Step
from turingas.source.names import Names
from turingas.source.preload import preloaded

MOST_KEPT = 11  # cycles that a warp can stall without yielding
_LINE = re.compile(r"(?:(\S+):(\S):(\S):(\S):(\*|[0-9a-f])\s+)?(@!?\w+\s+)?([A-Z]\S*)(?:\s+(.*))?$")
_OPERAND = {24: 1, 32: 2, 64: 3}  # place of a source in the word -> operand of an instruction with one destination


class Line(Step):
    """A line ``wait:read:write:yield:*  @guard INSTRUCTION operands``, where ``*``, or the least that it may be, stands
    for the stall. Without a control code it waits for nothing, sets nothing and does not yield. ValueError for what is
    no instruction; EncodeError for one that the architecture lacks. Where a branch goes to does not matter."""

    def __init__(self, line: str, names: Names) -> None:
        found = _LINE.match(line)
        if found is None:
            raise ValueError(f"no instruction: {line}")
        wait, read, write, yields, least, self.guard, self.name, rest = (part or "" for part in found.groups())
        self.operands = rest.split(", ")
        self.code = (read or "-", write or "-", yields or "-")
        text = f"{names[self.guard]}{self.name} {', '.join(names[operand] for operand in self.operands)}".strip()
        super().__init__(
            _decoded(names.arch.name, text, self.code[:2]),
            int(wait.replace("-", "0") or "0", 16),
            None if read in "-" else int(read),
            None if write in "-" else int(write),
            yields not in "-",
            1 if least in "*" else int(least, 16),
        )

    def text(self) -> str:
        """The line with stall and reuse flags."""
        operands = list(self.operands)
        for place in self.keeps:
            register, dot, rest = operands[_OPERAND[place]].partition(".")
            operands[_OPERAND[place]] = f"{register}.reuse{dot}{rest}"
        read, write, yields = self.code
        wait = f"0x{self.wait:02x}" if self.wait else "--"
        code = f"{wait}:{read}:{write}:{'Y' if self.stall > MOST_KEPT else yields}:{self.stall:x}"
        return f"{code}  {self.guard}{self.name} {', '.join(operands)}".rstrip() + ";"


@functools.cache
def _decoded(arch: str, text: str, scoreboards: tuple[str, str]) -> Instruction:
    """The instruction. Whether an HMMA sets a scoreboard tells if its latency is fixed."""
    isa = instruction_set(arch)
    control = parse(f"--:{':'.join(scoreboards)}:-:1")
    text = preloaded(text, architecture(arch))
    i = instruction(isa, isa.encode(text, 0, {text.split()[-1]: 0}) | control)
    assert i is not None  # what the table encodes, it explains
    return i


def parts(lines: Iterable[str], names: Names) -> list[Line | str]:
    """The instructions of the lines as Line, and labels as they are. Comments (#) go."""
    plain = [line.partition("#")[0].strip().rstrip(";") for line in "\n".join(lines).splitlines()]
    return [line if line.endswith(":") else Line(line, names) for line in plain if line]


def settle(lines: Iterable[str], names: Names) -> str:
    """The lines with stalls and reuse flags, for the architecture of ``names``, which stands for their registers and
    constants. Labels stay as they are, and stalls do not look past them: the code is taken as it is written."""
    code = parts(lines, names)
    stalls([line for line in code if isinstance(line, Line)], names.arch.name)
    flags(code)
    return "\n".join(line.text() if isinstance(line, Line) else line for line in code)
