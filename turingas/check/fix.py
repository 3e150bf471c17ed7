"""`turingas lint --fix`: stalls and waits that are wrong are left to the scheduler, all else stays as it is written.

What is left to it grows until the linter is content: of each finding the stall or the wait, and scoreboards where there
are none; then the control codes from the first instruction to the second; then those of the whole source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

from turingas.assembler import assemble
from turingas.assembler.schedule import as_written, listing
from turingas.check.finding import Finding
from turingas.check.lint import lint
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.isa import instruction_set
from turingas.source.expand import expand
from turingas.source.parse import place_of_code

WAIT, READ, WRITE, YIELD, STALL = range(5)  # the parts of a control code
ALL = frozenset(range(5))
#: by kind of finding: which parts of the codes of its first and its second instruction are left to the scheduler
FIRST = {
    "raw-stall": {STALL, YIELD}, "waw-stall": {STALL, YIELD}, "war-stall": {STALL, YIELD},
    "barrier-stall": {STALL, YIELD}, "wait-too-soon": {STALL, YIELD}, "no-scoreboard": {READ, WRITE},
}  # fmt: skip
SECOND = {"raw": {WAIT}, "waw": {WAIT}, "war": {WAIT}, "no-scoreboard": {WAIT}}
ROUNDS = 4  # of each way to leave things to the scheduler: what was hidden behind a mistake comes to light


@dataclass
class Fixed:
    """``text``: the source as it is now; ``fixed`` and ``left``: what was found in it before and is gone, or not."""

    text: str
    fixed: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)


def fixable(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are about stalls and waits, and have a line."""
    return [one for one in findings if one.kind in (*FIRST, *SECOND) and one.line]


def fix(
    source: str,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    filename: str | None = None,
    allow_python: bool = True,
) -> Fixed:
    """``source`` with the stalls and waits mended that the linter finds wrong. No instruction changes.

    Raises AsmError for what does not assemble, and for source with inline Python or includes: the lines that it makes
    stand nowhere to be mended."""

    def assembled(text: str) -> Cubin:
        return assemble(text, arch, defines, include, filename, allow_python=allow_python)

    before = assembled(source)
    wrong = fixable(lint(before))
    if not wrong:
        return Fixed(source)
    plain, _ = expand(source, filename, defines, include, allow_python, before.arch)
    if not as_written(source, plain):
        hint = "`turingas schedule` prints what they stand for, with codes that are made anew"
        raise AsmError("a source with inline Python or includes is not mended", filename or "", hint=hint)
    text, left = source, wrong
    for free in (_parts, _between, _everything):
        for _ in range(ROUNDS):
            if not left:
                break
            try:
                asked = _ask(text, _columns(text, filename, before.arch), free(left, assembled(text)))
                tried, _ = listing(asked, arch, defines, include, filename)
                after = assembled(tried)
            except AsmError:
                break  # what the author gave does not go with any code: more is left to the scheduler
            now = fixable(lint(after))
            if not _same_code(before, after) or len(now) > len(left) or tried == text:
                break
            text, left = tried, now
    places = {(one.kind, one.kernel, one.address, one.other) for one in left}
    gone = [one for one in wrong if (one.kind, one.kernel, one.address, one.other) not in places]
    return Fixed(text, gone, left)


Free = dict[int, frozenset[int]]  # line -> parts of its code


def _parts(findings: Sequence[Finding], cubin: Cubin) -> Free:
    """What each finding is about."""
    found: Free = {}
    for one in findings:
        first, second = one.other_line or one.line, one.line
        found[first] = found.get(first, frozenset()) | FIRST.get(one.kind, frozenset())
        found[second] = found.get(second, frozenset()) | SECOND.get(one.kind, frozenset())
    return found


def _between(findings: Sequence[Finding], cubin: Cubin) -> Free:
    """The codes of both instructions, and of all between them."""
    found: Free = {}
    for one in findings:
        lines = next(text.lines for text in cubin.texts if text.name == one.kernel)
        ends = sorted((one.address // WORD_BYTES, (one.address if one.other is None else one.other) // WORD_BYTES))
        found.update({line: ALL for _, line in lines[ends[0] : ends[1] + 1]})
    return found


def _everything(findings: Sequence[Finding], cubin: Cubin) -> Free:
    """All codes, but for those of what fills a kernel up: with others it would be filled up once more."""
    found: Free = {}
    for text in cubin.texts:
        decode, end = instruction_set(text.arch).decode, len(text.lines)
        while end and decode(text.words[end - 1]).startswith(("NOP", "BRA")):
            end -= 1
        found.update({line: ALL for _, line in text.lines[:end]})
    return found


def _columns(text: str, filename: str | None, arch: str) -> dict[int, tuple[int, int]]:
    plain, _ = expand(text, filename, arch=arch)
    return {line.origin.line: column for line in plain if (column := place_of_code(line.text))}


def _ask(text: str, columns: Mapping[int, tuple[int, int]], free: Free) -> str:
    """The source with ? for what is left to the scheduler."""
    lines = text.split("\n")
    for number, parts in free.items():
        if number not in columns or not parts:
            continue
        start, end = columns[number]
        line = lines[number - 1]
        code = line[start:end].split(":")
        if len(code) < 5 or parts == ALL or not control.TURINGAS.fullmatch(line[start:end]):
            mended = "?:?:?:?:?" if len(code) >= 5 else ""
        else:
            mended = ":".join("?" if n in parts else part for n, part in enumerate(code[:5]))
        lines[number - 1] = line[:start] + mended + line[end:]
    return "\n".join(lines)


def _same_code(one: Cubin, other: Cubin) -> bool:
    """Whether nothing but control codes and reuse flags has changed."""
    keep = ~(control.MASK | control.REUSE_MASK)
    ones, others = ([[word & keep for word in text.words] for text in cubin.texts] for cubin in (one, other))
    return ones == others
