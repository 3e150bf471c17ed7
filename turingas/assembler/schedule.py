"""``turingas.schedule``: control codes for a source or a cubin; and the source with the codes in it."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from turingas.assembler.assembler import Assembler, expanded, parsed
from turingas.assembler.directives import Pipelined
from turingas.cubin import capsule, permuted
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.cubin.split import split
from turingas.cubin.write import build, combine
from turingas.errors import AsmError, raise_all
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.given import NOTHING, YIELD, Given, whole
from turingas.isa.isa import Isa, instruction_set
from turingas.scheduler.order import put
from turingas.scheduler.rebank import coded
from turingas.scheduler.reorder import Result as Reordered
from turingas.scheduler.reorder import reorder as reordered
from turingas.source import listings, parse, rotate
from turingas.source.expand import expand
from turingas.source.lines import Origin, PlainLine, decode
from turingas.source.parse import Instruction, place_of_code

ELF = b"\x7fELF"
COMMA = re.compile(r"\s*,\s*(?![^{]*\})")

Schedulable = Cubin | bytes | str | os.PathLike[str]


def schedule(
    source_cubin_bytes_or_path: Schedulable, arch: str | None = None, keep: bool = True, yields: str = YIELD,
    reorder: bool = False, rename: bool = False, pipeline: bool = False,
) -> Cubin:  # fmt: skip
    """The cubin of a source, whose missing control codes are filled in; of a cubin (a Cubin, or the bytes of one), that
    one. ``keep`` False throws away all codes that are there, reuse flags too, and makes them anew.

    A str is the name of a file if there is one of that name, else source. ``arch`` is what source is assembled for
    ("sm_75" if neither says one). ``yields``: ``ptxas``, ``natural`` or ``every:N``. ``reorder``: instructions whose
    codes are filled in may change places within their blocks, too (of a cubin: with ``keep`` False); ``rename``: and
    the registers of what lives within a block, where that makes a better order possible; ``pipeline`` (of a source):
    rounds of loops may overlap. Raises AsmError with all that
    cannot be right, CubinError for a damaged cubin, ValueError for another ``yields``.
    """
    what, name, folders = _read(source_cubin_bytes_or_path)
    if isinstance(what, Cubin):
        return what if keep else again(what, yields, reorder, rename)[0]
    text = parsed(what, arch or "sm_75", None, folders, name, "kern", True, None)
    return Assembler(*text, keep, yields, reorder, rename, pipeline).run()


def _read(what: Schedulable) -> tuple[Cubin | str, str | None, tuple[str, ...]]:
    """A Cubin, or source, its name and the folder that it lies in."""
    if isinstance(what, Cubin):
        return what, None, ()
    name: str | None = None
    folders: tuple[str, ...] = ()
    if isinstance(what, os.PathLike) or (isinstance(what, str) and "\n" not in what and os.path.isfile(what)):
        name, folders = os.fspath(what), (str(Path(what).parent),)
        what = Path(what).read_bytes()
    if isinstance(what, bytes):
        if what.startswith(ELF):
            return Cubin.from_bytes(what), name, folders
        what = decode(what, name or "<source>")
    return what, name, folders


def again(
    cubin: Cubin,
    yields: str = YIELD,
    reorder: bool = False,
    rename: bool = False,
    stay: Mapping[str, Collection[int]] | None = None,
) -> tuple[Cubin, list[str]]:
    """A cubin with all of its control codes made anew, and notes of what could not be told. ``reorder``: instructions
    change places, too, but for those that ``stay``, by the name of their kernel; ``rename``: and registers. AsmError
    where they cannot be made."""
    made = Cubin.from_bytes(cubin.to_bytes())
    made.keep_capsule = cubin.keep_capsule
    parts = split(made) if reorder else made  # with all that names instructions by their addresses
    errors, notes = [], []
    isa = instruction_set(made.arch)
    padding = isa.named("NOP")
    orders: dict[str, Sequence[int]] = {}
    for kernel in parts.texts:
        unknown = [n for n, word in enumerate(kernel.words) if isa.explain(word) is None]
        if unknown:
            at = f"{kernel.name} has a word at {WORD_BYTES * unknown[0]:#06x} that is no instruction that is known"
            errors.append(AsmError(f"{at}: what it needs cannot be told"))
            continue
        fields = [NOTHING] * len(kernel.words)
        for n in range(len(fields) - 1, -1, -1):  # what is fetched ahead behind the code never runs
            if isa.explain(kernel.words[n]) not in padding:
                break
            fields[n] = whole(kernel.words[n])
        if reorder:
            found = _reorder(kernel, fields, rename, (stay or {}).get(kernel.name, ()))
            orders[kernel.section] = found.order
            notes += [f"{kernel.name}, {WORD_BYTES * at:#06x}: {text}" for at, text in found.notes]
        result = coded(kernel, fields, yields, [one == NOTHING for one in fields] if rename else None)
        errors += [
            AsmError(f"{kernel.name}, {WORD_BYTES * at:#06x}: {message}", hint=hint)
            for at, message, hint in result.problems
        ]
        notes += [f"{kernel.name}, {WORD_BYTES * at:#06x}: {text}" for at, text in result.notes]
        kernel.code = Code(words=result.words)
    raise_all(errors)
    if reorder:
        capsule.of_changed(parts)
        lost = permuted.follow(parts.sections, combine(parts)[1], orders)
        notes += [f"{name} tells the lines of the order that was given" for name in lost]
        made = Cubin.from_bytes(build(parts).to_bytes())
    return made, notes


def _reorder(kernel: Kernel, fields: list[Given], rename: bool, stay: Collection[int]) -> Reordered:
    """Bring the instructions of which no code is given, and ``fields``, into a better order; nothing moves across those
    that ``stay``."""
    may = [one == NOTHING and n not in stay for n, one in enumerate(fields)]
    found = reordered(kernel, may, may if rename else None)
    kernel.words = found.words
    put(kernel, found.order)
    fields[:] = [fields[n] for n in found.order]
    return found


# ---- the source with the codes in it -----------------------------------------------------------------------------


def listing(
    source: str,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    filename: str | None = None,
    kernel: str = "kern",
    allow_python: bool = True,
    keep: bool = True,
    yields: str = YIELD,
    reorder: bool = False,
    rename: bool = False,
    pipeline: bool = False,
) -> tuple[str, list[str]]:
    """``source`` with every control code that was filled in, and notes of what could not be told. Comments and names
    stay, and move with their lines. A source with inline Python or .include comes out as what they stand for, a listing
    as source."""
    if listings.is_listing(source):
        source = expanded(source, arch, filename=filename)
    facts, name, lines = parsed(source, arch, defines, include, filename, kernel, allow_python, None)
    assembler = Assembler(facts, name, lines, keep, yields, reorder, rename, pipeline)
    assembler.run()
    isa = instruction_set(facts)
    #: by the line that it was written in: instruction, word, and which draft's how manyth it was
    made: dict[tuple[str, int, int], deque[tuple[Instruction, int, tuple[int, int]]]] = defaultdict(deque)
    for number, draft in enumerate(assembler.drafts):
        order = draft.order or range(len(draft.lines))
        for n, item, word in sorted(zip(order, draft.lines, draft.kernel.words), key=lambda row: row[0]):
            if not isinstance(item, int):
                made[_key(item.origin)].append((item, word, (number, n)))
    expanded_lines, _ = expand(source, filename, defines, include, allow_python, arch)
    plain: Sequence[PlainLine] = expanded_lines
    items = parse.parse(plain, facts).items if "rotate" in source else []
    if any(map(rotate.is_marker, items)):
        plain = rotate.lines(plain, items, rotate.find(items)[0])
    plain = _pipelined(plain, [one for draft in assembler.drafts for one in draft.pipelined])
    in_place = as_written(source, plain)
    texts = source.split("\n") if in_place else []
    rows: dict[tuple[int, int], int] = {}  # where the text of each instruction stands
    fixed = set()  # labels and directives
    for line in plain:
        column = place_of_code(line.text)
        waiting = made.get(_key(line.origin))
        row = line.origin.line - 1 if in_place else len(texts)
        text = line.text
        if column is not None and waiting:
            item, word, which = waiting.popleft()
            rows[which] = row
            if not keep or not item.control or "?" in item.control:
                text = texts[row] if in_place else text
                if which[1] in assembler.drafts[which[0]].renamed:
                    text = f"{text[: column[1]]} {isa.decode(word)};{text.partition(';')[2]}"
                text = _with_code(text, *column, item, word, isa)
                if in_place:
                    texts[row] = text
        elif text.strip():
            fixed.add(row)
        if not in_place:
            texts.append(text.rstrip())
    orders = {n: draft.order for n, draft in enumerate(assembler.drafts) if draft.order}
    texts = _in_order(texts, rows, fixed, orders)
    notes = list(dict.fromkeys(f"{at.origin.file}:{at.origin.line}: {text}" for at, text in assembler.notes))
    return "\n".join(texts) + ("" if in_place else "\n"), notes


def _pipelined(plain: Sequence[PlainLine], loops: Sequence[Pipelined]) -> list[PlainLine]:
    """The lines with the new ones in the place of each loop's old ones."""
    of = {_key(line.origin): loop for loop in loops for line in loop.old}
    found: list[PlainLine] = []
    for line in plain:
        column = place_of_code(line.text)
        loop = of.get(_key(line.origin)) if column else None
        if loop is None or column is None:
            found.append(line)
        elif _key(loop.old[0].origin) == _key(line.origin):
            label = line.text[: column[0]].rstrip()
            found += [line._replace(text=label)] if label else []
            found += loop.new
    return found


def _in_order(
    texts: list[str], rows: Mapping[tuple[int, int], int], fixed: Collection[int], orders: Mapping[int, Sequence[int]]
) -> list[str]:
    """The lines of a source whose instructions have another order now. What stands above an instruction, but for labels
    and directives, moves with it."""
    parts: dict[tuple[int, int], tuple[int, int]] = {}  # the first and the last line that move with an instruction
    above = 0
    for which, row in sorted(rows.items(), key=lambda pair: pair[1]):
        parts[which] = max([above, *[n + 1 for n in range(above, row) if n in fixed]]), row
        above = row + 1
    found: list[str] = []
    above = 0
    for (number, n), (first, last) in parts.items():
        order = orders.get(number)
        start, end = parts[number, order[n] if order else n]
        found += texts[above:first] + texts[start : end + 1]
        above = last + 1
    return found + texts[above:]


def _key(origin: Origin) -> tuple[str, int, int]:
    """What tells the lines of a source apart."""
    return origin.file, origin.line, origin.nth


def as_written(source: str, plain: Sequence[PlainLine]) -> bool:
    """Whether the lines stand in the source as they are: no inline Python, nothing included."""
    raw = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    seen = set()
    for line in plain:
        origin = line.origin
        if origin.parent is not None or origin.nth or origin.line in seen:
            return False
        seen.add(origin.line)
        text = raw[origin.line - 1]
        if any(a != b and a != " " for a, b in zip(line.text, text)) or len(line.text) > len(text):
            return False
    return "<code>" not in source.lower() and ".include" not in source


def _with_code(text: str, start: int, end: int, item: Instruction, word: int, isa: Isa) -> str:
    """A line with the control code of ``word`` at columns ``start`` to ``end``, and with its reuse flags."""
    form = isa.explain(word)
    loose = word & form.loose if form is not None else 0
    code = control.show(word, loose)
    body, stop, rest = text[end:].partition(";")
    body = body.replace(".reuse", "")  # what is kept of them is in the word
    if form is not None and word & control.REUSE_MASK & ~loose:
        body = _flagged(body, item, word, isa)
    body += stop + rest
    return f"{text[:start]}{code}  {body.lstrip()}"


def _flagged(text: str, item: Instruction, word: int, isa: Isa) -> str:
    """Guard, mnemonic and operands, with ``.reuse`` behind the operands that are kept."""
    shown = isa.decode(word)
    kept = [n for n, operand in enumerate(COMMA.split(_operands(shown))) if operand.endswith(".reuse")]
    written = COMMA.split(_operands(text.strip()))
    if len(written) != len(COMMA.split(_operands(shown))):
        return shown  # an older spelling, of which it is not known which operand is which
    flagged = [
        operand + ".reuse" if n in kept and not operand.endswith(".reuse") else operand
        for n, operand in enumerate(written)
    ]
    head = text[: len(text.rstrip()) - len(_operands(text.strip()))]
    return head + ", ".join(flagged)


def _operands(text: str) -> str:
    """What stands behind guard and mnemonic."""
    rest = text.partition(" ")[2].lstrip() if text.startswith("@") else text
    return rest.partition(" ")[2].strip()
