"""From parsed lines to a Cubin: instructions are encoded, and what follows from them is worked out."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from turingas import collector
from turingas.assembler import arguments as arg
from turingas.assembler.arguments import Mistake
from turingas.assembler.directives import (
    CODES,
    OFF,
    PIPELINE,
    RENAME,
    REORDER,
    Data,
    Directives,
    Draft,
    DraftLines,
    Pipelined,
)
from turingas.cubin import capsule, moved
from turingas.cubin.addresses import START, evaluate
from turingas.cubin.cubin import Cubin
from turingas.cubin.kinds import other
from turingas.cubin.model import Code, CodeRelocation, Constant, RawSection, packed
from turingas.cubin.moved import Moves
from turingas.cubin.nvinfo import Info
from turingas.cubin.write import Numbers, combine
from turingas.errors import UNNAMED, AsmError, AsmWarning, EncodeError, LaunchError, UnknownLabel, raise_all
from turingas.isa import arch as architectures
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.form import WORD
from turingas.isa.given import NEUTRAL, NOTHING, YIELD, Given, given, whole
from turingas.isa.instruction import Label as Place
from turingas.isa.instruction import Reg, instruction
from turingas.isa.isa import Isa
from turingas.isa.table import OPS
from turingas.packages import callers_level
from turingas.source import listings, parse, preload, rotate
from turingas.source.expand import expand
from turingas.source.lines import PlainLine, Source, decode, places, split_text
from turingas.source.parse import Directive, Instruction, Instructions, Item, Items, Label, Statement

if TYPE_CHECKING:
    from turingas.flow.graph import Graph
    from turingas.scheduler.pipeline import Pipelined as Overlapping

ARCH_LINE = re.compile(r"^[ \t]*\.arch[ \t]+([\w.]+)", re.MULTILINE)
LEPC = "PC"  # begins a label that names the next LEPC, even if other instructions stand between the two
TAKEN = re.compile(r"(?:PC)?L_([0-9a-f]{4,8})")  # a label that the disassembler made
OPCODE = 0xFFF  # the bits that tell instructions apart
UNIT = 8  # registers of a thread: those of a warp are given out in units of 256
CODE_UNIT = 128  # bytes: code ends at a multiple of this


@collector.paused()
def assemble(
    source: str,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    filename: str | None = None,
    kernel: str = "kern",
    allow_python: bool = True,
    default_control: str | None = None,
    keep_capsule: bool = False,
) -> Cubin:
    """The cubin of ``source``. AsmError carries every mistake of it (``errors``).

    ``.arch`` in the source goes before ``arch``. ``kernel`` names the instructions before the first ``.kernel``.
    ``keep_capsule``: what ptxas has left of its code in the cubin that the source was taken from (docs/cubin.md) stays,
    even if the code is another one now.
    """
    if not isinstance(source, str):
        hint = "of a file, open(path).read() or bytes.decode() gives it"
        raise TypeError(f"assemble takes the text of a source, not {type(source).__name__}; {hint}")
    if not kernel:
        raise AsmError("a kernel needs a name", filename or UNNAMED)
    read = parsed(source, arch, defines, include, filename, kernel, allow_python, default_control)
    return Assembler(*read, keep_capsule=keep_capsule).run()


def assemble_file(data: bytes, filename: str, arch: str = "sm_75", **options: Any) -> Cubin:
    """The cubin of a source file's bytes; ``options`` are those of ``assemble``. LaunchError for what is known to be
    another kind of file."""
    what, hint = other(data)
    if what or data.startswith(b"\x7fELF"):
        raise LaunchError(f"this is not source but {what or 'a cubin'}", hint or "`turingas disassemble` reads it")
    return assemble(decode(data, filename), arch, filename=filename, **options)


def parsed(
    source: str,
    arch: str,
    defines: Mapping[str, object] | None,
    include: Sequence[str | PathLike[str]],
    filename: str | None,
    kernel: str,
    allow_python: bool,
    default_control: str | None,
) -> tuple[str, str, parse.Parsed]:
    """What ``Assembler`` takes: architecture, name of the default kernel, parsed lines."""
    if listings.is_listing(source):
        told, items = _of_listing(source, architectures.arch(arch).name, filename or UNNAMED, default_control)
        return told, kernel, items
    found = ARCH_LINE.search(source)
    try:
        facts = architectures.arch(found[1] if found else arch)
    except AsmError as error:
        if not found:
            raise
        line, column = source.count("\n", 0, found.start()) + 1, found.start(1) - found.start() + 1
        text = source[found.start() :].partition("\n")[0]
        raise AsmError(error.message, filename or UNNAMED, line, column, error.hint, text) from None
    read = parse.read(source, filename, facts.name, defines, include, allow_python, default_control)
    if any(map(rotate.is_marker, read.schedules)):
        written = list(read.items)
        rotations, errors = rotate.find(written)
        read = parse.Parsed(rotate.items(written, rotations), read.errors + errors, read.whole)
    return facts.name, kernel, read


def _of_listing(source: str, arch: str, filename: str, default_control: str | None) -> tuple[str, parse.Parsed]:
    """A listing: its architecture, and its lines as source."""
    made = listings.to_source(source, arch, filename)
    if not made.whole:
        hint = "add .param and .shared to what `turingas assemble -E` prints of it; nvdisasm's of whole cubins has them"
        lacks = AsmError("this listing tells neither parameters nor shared memory", filename, hint=hint)
        warnings.warn(AsmWarning(lacks), stacklevel=callers_level())
    place = Source(filename, split_text(source))
    lines = [PlainLine(text, number, place) for number, text in made.lines]
    return made.arch, parse.parse(lines, architectures.arch(made.arch).name, default_control)


def expanded(
    source: str,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    filename: str | None = None,
    allow_python: bool = True,
) -> str:
    """``source`` as the assembler reads it: with what inline Python, includes and expressions stand for, without
    comments; a listing as source. It assembles to the same cubin. Raises AsmError with all mistakes."""
    if listings.is_listing(source):
        return "\n".join([*(text for _, text in listings.to_source(source, arch, filename or UNNAMED).lines), ""])
    found = ARCH_LINE.search(source)
    lines, errors = expand(source, filename, defines, include, allow_python, found[1] if found else arch)
    raise_all(errors)
    head = [] if any(ARCH_LINE.search(line.text) for line in lines) else [f".arch {architectures.arch(arch).name}"]
    return "\n".join([*head, *(line.text.rstrip() for line in lines if line.text.strip()), ""])


class Assembler(Directives):
    """Carries out parsed lines, one after the other. ``keep`` False: control codes that are there are thrown away;
    ``yields``: how those that are filled in yield (``scheduler.codes.yield_rule``); ``reorder``: whether lines without
    a code may change places wherever ``.schedule`` is on; ``rename``: their registers may, too; ``pipeline``: rounds of
    loops may overlap."""

    def __init__(
        self, arch: str, kernel: str, parsed: parse.Parsed, keep: bool = True, yields: str = YIELD,
        reorder: bool = False, rename: bool = False, pipeline: bool = False, keep_capsule: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(arch, kernel)
        self.keep_capsule = self.cubin.keep_capsule = keep_capsule
        self.parsed, self.keep, self.yields, self.rename = parsed, keep, yields, rename
        self.reorder, self.pipeline = reorder or pipeline, pipeline
        self.notes: list[tuple[Instruction, str]] = []  # what the scheduler could not tell

    def run(self) -> Cubin:
        """All items, then the cubin; every mistake is raised at the end, with those of earlier stages."""
        parsed = self.parsed
        self.whole = parsed.whole
        items = parsed.items if isinstance(parsed.items, Items) else Items(parsed.items)
        done = 0
        draft: Draft | None = None  # to which ``shift`` belongs
        shift = 0
        for at, item in items.others:
            try:
                if isinstance(item, Label):
                    if draft is None:
                        draft = self._code()
                        shift = len(draft.lines) - done
                    draft.labels[item.name] = WORD_BYTES * (at + shift)
                    continue
                if done < at:
                    self._instructions(items.instructions, done, at)
                done, draft = at, None
                self._directive(item)
            except Mistake as mistake:
                self._report(item, mistake)
        self._instructions(items.instructions, done, len(items.instructions))
        for draft in self.drafts:
            self._finish(draft)
        self._finish_data()
        self._finish_symbols()
        self._follow()
        self._capsule_of()
        self.errors += parsed.errors
        cubin = self.cubin
        if not (cubin.texts or cubin.sections or cubin.dropped or cubin.symbols or self.errors):
            self.errors.append(AsmError("there are no instructions"))
        self.errors.sort(key=lambda error: (error.file, error.line))
        raise_all(self.errors)
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=callers_level())
        return self.cubin

    def _instructions(self, all_of_them: Instructions, start: int, end: int) -> None:
        """Instructions that follow one another."""
        if start == end:
            return
        try:
            draft = self._code()
        except Mistake as mistake:
            for item in all_of_them[start:end]:
                self._report(item, mistake)
            return
        if draft.waiting:
            self._relocate(draft.address)
        draft.lines.extend(all_of_them, start, end)

    # -- the end

    def _finish(self, draft: Draft) -> None:
        """Encode a kernel and work out what follows from its instructions."""
        kernel, labels = draft.kernel, draft.labels
        if draft.layout:
            _stay_with_lepc(draft)
        if draft.preload is not None and preload.needed(self.facts):
            self._preloaded(draft, draft.preload)
        if self.pipeline or PIPELINE in {what for _, what in draft.switches}:
            self._pipeline(draft)
        code, gaps, used = self._encoded(draft)
        if len(code) < draft.address:
            return
        if draft.waiting:
            self.errors.append(AsmError(f".reloc at the end of {kernel.name} has no instruction"))
        if not draft.lines and self.whole:
            self.errors.append(AsmError(f"kernel {kernel.name} has no instructions"))
        if draft.tail:
            code = Code(bytes(code.data) + packed(tail(self.isa, self.facts, code)))
        for at, text in draft.addends:
            if text not in labels:
                self.errors.append(AsmError(f"undefined label {text!r} of .reloc in {kernel.name}"))
                return
            row = kernel.relocations[at]
            kernel.relocations[at] = CodeRelocation(row.address, row.type, row.symbol, labels[text])
        kernel.code = code
        kernel.lines = places(draft.lines.lines)
        self._resources(draft, used)
        self._schedule_from(draft, gaps)
        names = next(filter(None, draft.lines.names), None)
        if names is not None:
            kernel.unused = names.unused()
            if not draft.renamed and not draft.pipelined:  # else registers do not hold what the author put there
                kernel.names = names.of_registers()
        kernel.stack_bytes = kernel.frame_bytes if kernel.entry else None
        if draft.stack:
            kernel.stack_bytes = draft.stack[0]
        for item, name, values in draft.infos:
            try:
                kind = arg.code(name)
                if draft.layout and name == "INDIRECT_BRANCH_TARGETS":
                    values = _of_branches(draft, values)
                kernel.infos.setdefault(kind, []).extend(arg.attribute(kind, values, labels))
            except Mistake as mistake:
                self._report(item, mistake)

    def _encoded(self, draft: Draft) -> tuple[Code, dict[int, Given], int]:
        """The code of a kernel, too short if there are mistakes; the control codes that are to be filled in, and what
        is given of them; the number of registers."""
        gaps: dict[int, Given] = {}
        statements, labels = draft.lines.statements, draft.labels
        found = [bits for _, _, bits in statements]
        codes, branch = control.known, self.isa.encoder.branch
        for at in [at for at, bits in enumerate(found) if bits is None]:
            text, body, _ = statements[at]
            code = codes.get(text, control.REUSE_MASK)
            if not code & control.REUSE_MASK and (like := branch(body, WORD_BYTES * at, labels)):
                found[at] = like[0] | code
                continue
            try:
                found[at] = self._bits(statements[at], at, labels, gaps)
            except EncodeError as error:
                line = draft.lines[at]  # what inline Python that failed would have declared is no mistake
                if self.whole or not (isinstance(error, UnknownLabel) or line.name_at(error.position)):
                    self.errors.append(line.error(error.message, error.position, error.hint))
            except control.ControlError as error:
                self.errors.append(draft.lines[at].error(error.message, 0, error.hint, in_control=True))
        once = set(found)
        once.discard(None)
        used = functools.reduce(operator.or_, once, 0) >> 128  # bits that tell how many registers (``Isa.needs``)
        word = {bits: (bits & WORD).to_bytes(WORD_BYTES, "little") for bits in once}
        word[None] = b""  # a mistake
        return Code(b"".join(map(word.__getitem__, found))), gaps, max(used, 1).bit_length() - 1

    def _bits(self, statement: Statement, at: int, labels: Mapping[str, int], gaps: dict[int, Given]) -> int:
        """What ``Isa.needs`` gives, with the control code, of instruction number ``at``, which may be a branch."""
        text, body, _ = statement
        if not text or "?" in text:
            gaps[at] = given(text)
            code = NEUTRAL
        else:
            code = control.parse(text)
        immediate = 0
        if "32@" in body or START in body:
            body, immediate = evaluate(body, WORD_BYTES * at, labels)
        bits = self.isa.needs(body, WORD_BYTES * at, labels)
        if (bits | code) & control.REUSE_MASK:
            self.isa.join(bits & WORD, code)
        return bits | code | immediate

    def _preloaded(self, draft: Draft, item: Directive) -> None:
        """Constants become uniform registers, which are loaded ahead of the first instruction."""
        changed: list[str] = []
        wide: set[int] = set()
        for n, line in enumerate(draft.lines):
            if isinstance(line, int):
                continue
            if any(int(number) >= preload.FIRST for number in preload.TAKEN.findall(line.body)
                   if int(number) < self.facts.files["UR"].last):  # fmt: skip
                hint = f"with .preload, constants lie in UR{preload.FIRST} and those behind it"
                self.errors.append(line.error("this register may hold a constant", 0, hint))
            body = preload.preloaded(line.body, self.facts)
            if body == line.body:
                continue
            changed.append(body)
            draft.lines[n] = line._replace(statement=(line.control, body, None))
            with contextlib.suppress(EncodeError):
                i = instruction(self.isa, self.isa.encode(body, WORD_BYTES * n, draft.labels))
                wide |= {one.index for one in i.operands if isinstance(one, Reg) and one.file == "UR" and one.words > 1
                         and not one.write} if i else set()  # fmt: skip
        here = Source(item.origin.file, [item.origin.text], block=item.origin)  # as if the directive generated them
        loads = preload.loads(changed, wide)
        new = [Instruction((code, body, None), PlainLine(body, 1, here)) for code, body in loads]
        draft.lines[:0] = new
        more = WORD_BYTES * len(new)
        draft.labels = {name: at + more for name, at in draft.labels.items()}
        rows = draft.kernel.relocations
        rows[:] = [replace(row, address=row.address + more) for row in rows]
        draft.switches = [(at + len(new) if at else 0, what) for at, what in draft.switches]

    def _pipeline(self, draft: Draft) -> None:
        """Loops of one block become such whose rounds overlap, where that is asked for."""
        from turingas.scheduler import pipeline
        from turingas.scheduler.reorder import bare

        before = len(self.errors)
        code, gaps, used = self._encoded(draft)
        if len(self.errors) > before or len(code) < draft.address:
            del self.errors[before:]  # they are told when it is encoded for good
            return
        words = code.words
        kernel = replace(draft.kernel, code=code, attributes=self._told(draft))
        registers = draft.registers[0] if draft.registers else -(-(used + architectures.SPARE_REGISTERS) // UNIT) * UNIT
        free = [(gaps.get(at) == NOTHING or not self.keep) and not isinstance(line, int)
                for at, line in enumerate(draft.lines)]  # fmt: skip
        asked = {PIPELINE} | ({CODES, REORDER, RENAME} if self.pipeline else set())
        labels = {address // WORD_BYTES for address in draft.labels.values()}
        ways = bare(kernel, words)
        numbered = _numbered(draft, ways.graph)
        for start, end, why in pipeline.loops(ways):  # the last one first: those before keep their places
            first, last = draft.lines[start], draft.lines[end - 1]
            if isinstance(first, int) or isinstance(last, int) or draft.scheduled(start) not in asked:
                continue
            try:
                if why or numbered:
                    raise pipeline.Stays(why or "a branch of the kernel leads to a number, not to a label")
                if len({draft.scheduled(at) for at in range(start, end)}) > 1 or labels & {*range(start + 1, end)}:
                    raise pipeline.Stays("a label or another .schedule stands in it")
                made = pipeline.pipelined(kernel, ways, start, free, min(registers, self.facts.max_registers))
            except pipeline.Stays as reason:
                self.notes.append((first, f"this loop is not pipelined: {reason}"))
                continue
            self.notes.append((first, f"pipelined: {made.note}"))
            _put(draft, start, end, made, last)

    def _told(self, draft: Draft) -> list[Info]:
        """What is said of indirect branches, and where they lead."""
        found: list[Info] = []
        for _, name, values in draft.infos:
            with contextlib.suppress(Mistake):
                found += arg.attribute(arg.code(name), values, draft.labels)
        return found

    def _schedule_from(self, draft: Draft, gaps: dict[int, Given]) -> None:
        """Fill in the control codes that are missing, or (``keep`` False) all of them."""
        kernel, lines = draft.kernel, draft.lines
        if not gaps and self.keep:
            return
        from turingas.scheduler.rebank import coded  # most sources have all their codes

        kernel.attributes += self._told(draft)
        fields = [whole(word) for word in kernel.words]
        for at, line in enumerate(lines):
            if isinstance(line, int):
                continue
            off = draft.scheduled(at) == OFF
            if off and at in gaps:
                hint = "wait:read:write:yield:stall, as in --:-:-:Y:4; or .schedule on"
                self.errors.append(line.error("the control code is missing", 0, hint))
                return
            if at in gaps or not (self.keep or off):
                fields[at] = gaps.get(at, NOTHING) if self.keep else NOTHING
        fields = self._reorder(draft, fields)
        other = [at < len(lines) and field == NOTHING and (draft.scheduled(at) == RENAME or self.rename) for at, field
                 in zip(draft.order or range(len(fields)), fields)]  # fmt: skip
        result = coded(kernel, fields, self.yields, other)
        lines = draft.lines
        differ = [at for at, (old, new) in enumerate(zip(kernel.words, result.words)) if (old ^ new) & ~control.MASK]
        draft.renamed |= {draft.order[at] if draft.order else at for at in differ}
        kernel.attributes.clear()
        kernel.words = result.words
        for at, text in result.notes:
            if at < len(lines) and not isinstance(line := lines[at], int):
                self.notes.append((line, text))
        for at, message, hint in result.problems:
            at = min(at, len(lines) - 1)
            found = lines[at]
            if isinstance(found, int):
                before = sum(isinstance(line, int) for line in lines[:at])
                self.errors.append(draft.numbers[before].error(message, hint))
            else:
                self.errors.append(found.error(message, 0, hint, in_control=not found.control))

    def _reorder(self, draft: Draft, fields: list[Given]) -> list[Given]:
        """Bring the lines without a code into a better order where that is asked for; and ``fields`` likewise."""
        wanted = {REORDER, RENAME, PIPELINE} | ({CODES} if self.reorder else set())
        if not wanted & {what for _, what in draft.switches}:
            return fields
        from turingas.scheduler.order import put
        from turingas.scheduler.reorder import reorder

        lines = draft.lines
        free = [at < len(lines) and fields[at] == NOTHING for at in range(len(fields))]
        may = [one and draft.scheduled(at) in wanted for at, one in enumerate(free)]
        other = [one and (self.rename or draft.scheduled(at) == RENAME) for at, one in enumerate(may)]
        for address in draft.labels.values():
            if address // WORD_BYTES < len(may):
                may[address // WORD_BYTES] = False
        found = reorder(draft.kernel, may, other)
        draft.renamed = {n for n, word in enumerate(draft.kernel.words) if word != found.words[n]}
        draft.kernel.words = found.words
        put(draft.kernel, found.order)
        draft.order = found.order
        draft.lines = DraftLines.of(lines[n] for n in found.order if n < len(lines))
        for at, text in found.notes:
            if at < len(lines) and not isinstance(line := lines[at], int):
                self.notes.append((line, text))
        return [fields[n] for n in found.order]

    def _resources(self, draft: Draft, used: int) -> None:
        kernel = draft.kernel
        opaque = {line & ~control.MASK for line in draft.lines if type(line) is int} if draft.numbers else set()
        used = max([used, *map(self.isa.registers, opaque)])
        least = used_barriers(self.isa, kernel.code)
        kernel.registers = min(used + architectures.SPARE_REGISTERS, self.facts.max_registers)
        kernel.barriers = least if draft.barriers is None else draft.barriers
        if draft.registers is not None:
            count, item = draft.registers
            if count < used:
                more = self.isa.opcodes("USETMAXREG")  # warps may ask for more
                if not kernel.code.having(more):
                    self._report(item, Mistake(f"{kernel.name} uses R{used - 1}: {count} registers are too few",
                                                f".registers {kernel.registers}, or leave it out"))  # fmt: skip
            kernel.registers = count

    def _finish_data(self) -> None:
        for block in self.blocks:
            if not arg.is_relocations(block.owner):  # those name symbols, which have no numbers yet
                self._store(block, self._made(block, block.labels))

    def _made(self, block: Data, labels: dict[str, int]) -> bytes:
        data = bytearray()
        for item, make in block.parts:
            data += self._try(item, make, labels) or b""
        return bytes(data)

    def _store(self, block: Data, data: bytes) -> None:
        if isinstance(block.owner, RawSection):
            block.owner.data = data
        elif isinstance(block.owner, Constant):
            constants = self.cubin.constants
            size = len(block.owner.data)
            if len(data) > size:
                message = f"{len(data)} bytes of values do not fit the {size} bytes of {block.owner.name}"
                self._report(block.parts[-1][0], Mistake(message))
            filled = Constant(block.owner.name, block.owner.offset, data.ljust(size, b"\0"))
            constants[constants.index(block.owner)] = filled
        else:
            kernel, bank = block.owner
            kernel.constants[bank] = data

    def _finish_symbols(self) -> None:
        """Values of symbols, then all that names a symbol or a section."""
        labels = {draft.kernel.section: draft.labels for draft in self.drafts}
        for item, row, value, size in self.symbols:
            known = labels.get(str(row.section), {})
            row.value = self._try(item, arg.place, value, known) or 0
            row.size = self._try(item, arg.place, size, known) or row.size
        if self.symbols:
            self.cubin.symbols = [row for _, row, _, _ in self.symbols]
        sections, symbols = combine(self.cubin)
        names = {section.name for section in sections}
        places = [(item, [row.section]) for item, row, _, _ in self.symbols]
        places += [(item, [raw.link, raw.info]) for item, raw in self.sections]
        places += [(draft.item, [draft.kernel.link]) for draft in self.drafts if draft.item]
        for item, references in places:
            for name in references:
                if isinstance(name, str) and name not in names | {""}:
                    self._report(item, Mistake(f"there is no section {name}", part=name))
        numbers = Numbers(self.cubin, symbols).of_name
        for draft in self.drafts:
            for item, name in draft.references:
                self._try(item, arg.symbol_number, name, numbers)
        for block in self.blocks:
            if arg.is_relocations(block.owner):
                block.owner.data = self._made(block, numbers)

    # -- code that has moved

    def _follow(self) -> None:
        """What was taken from a cubin (.layout) and has other instructions now: what data says of addresses follows,
        and what cannot is warned of."""
        places = {draft.kernel.section: found for draft in self.drafts if (found := _moved(draft))}
        if not places or self.errors:
            return
        for draft in self.drafts:
            if draft.layout and draft.kernel.section in places:
                self._unknown(draft, *draft.layout)
        moves = Moves(places)
        symbols = combine(self.cubin)[1]
        holding: list[str] = []
        for raw, data in moved.follow(self.cubin.sections, symbols, set(places), moves, moves.old):
            if data is None:
                holding.append(raw.name)
            else:
                raw.data = data
        for item, raw in self.sections:
            if raw.name in holding:
                message = f"{raw.name} holds addresses of the code as it was before it was changed"
                self._warn(item, message, "leave the section out, if a debugger is not to read it")

    def _capsule_of(self) -> None:
        """A capsule of other code (.capsule) is left out."""
        cubin = self.cubin
        if self.capsule is None or self.errors or not capsule.has(cubin) or self.keep_capsule:
            return
        if cubin.capsule != capsule.digest(cubin.texts):
            capsule.drop(cubin)
            self._warn(self.capsule, capsule.MESSAGE, capsule.HINT)

    def _unknown(self, draft: Draft, item: Directive, size: int, names: list[str]) -> None:
        """A warning for every branch of moved code of which is not known where it leads."""
        message = f"the code of {draft.kernel.name} has changed, and where this leads is a number that cannot be told"
        hint = "correct the number by hand and take the label out of .layout, or keep all instructions at their places"
        for name in names:
            at = draft.labels.get(name)
            line = draft.lines[at // WORD_BYTES] if at is not None and at < draft.address else item
            if at is not None:
                draft.kernel.stranded.append(at)
            self._warn(item if isinstance(line, int) else line, message, hint)

    def _warn(self, item: Item, message: str, hint: str) -> None:
        what = item.name if isinstance(item, Directive) else item.body if isinstance(item, Instruction) else ""
        self.warnings.append(AsmWarning(item.origin.error_at(message, hint, what)))


def _numbered(draft: Draft, graph: Graph) -> bool:
    """Whether a line leads to a place by its number, so that no instruction can be put in before it."""
    return any(
        isinstance(line, Instruction) and arg.NUMBER.fullmatch(line.body.split()[-1]) is not None
        for n, line in enumerate(draft.lines)
        if (i := graph.instructions[n]) is not None and any(isinstance(o, Place) and o.base is None for o in i.operands)
    )


def _put(draft: Draft, start: int, end: int, made: Overlapping, branch: Instruction) -> None:
    """A loop in the place of another one, which labels, relocations and directives behind it follow."""
    old = [line for line in draft.lines[start:end] if isinstance(line, Instruction)]
    name = next(name for name, at in draft.labels.items() if at == WORD_BYTES * start) + "_rounds"
    while name in draft.labels:
        name += "_"
    body = [old[line.n - start]._replace(statement=("", line.text, None)) for line in made.lines]
    before = [branch._replace(statement=("", text, None)) for text in made.before]
    new = [*before, *body, branch._replace(statement=("", f"{made.back} BRA {name}", None))]
    more = len(new) - len(old)

    def moved(address: int) -> int:
        return address + WORD_BYTES * more if address >= WORD_BYTES * end else address

    rows = draft.kernel.relocations
    rows[:] = [replace(row, address=moved(row.address)) for row in rows]
    draft.lines[start:end] = new
    draft.labels = {label: moved(at) for label, at in draft.labels.items()} | {name: WORD_BYTES * (start + len(before))}
    draft.switches = [(at + more if at >= end else min(at, start), what) for at, what in draft.switches]
    plain = [line.line._replace(text=f"    {line.body};") for line in new]
    plain.insert(len(before), branch.line._replace(text=f"{name}:"))
    draft.pipelined.append(Pipelined(old, plain))


def _stay_with_lepc(draft: Draft) -> None:
    """The labels that the disassembler has given to LEPCs name them still, if something was put in between."""
    for name, at in draft.labels.items():
        if name.startswith(LEPC) and TAKEN.fullmatch(name):
            behind = draft.lines[at // WORD_BYTES :]
            found = (n for n, line in enumerate(behind) if not isinstance(line, int) and "LEPC" in line.body.split())
            draft.labels[name] = at + WORD_BYTES * next(found, 0)


def _of_branches(draft: Draft, values: list[str]) -> list[str]:
    """INDIRECT_BRANCH_TARGETS (branch, 0, number of targets, targets), whose branches are where they are now: something
    may have been put in behind the label that one is named by."""
    found = list(values)
    at = 0
    while at + 2 < len(found):
        start = draft.labels.get(found[at], draft.address) // WORD_BYTES
        behind = (n for n in range(start, len(draft.lines)) if _is_indirect(draft.lines[n]))
        if (n := next(behind, None)) is not None:
            found[at] = f"{WORD_BYTES * n:#x}"
        at += 3 + arg.number(found[at + 2])
    return found


def _is_indirect(line: Instruction | int) -> bool:
    if isinstance(line, int):
        return False
    words = line.body.split()
    mnemonic = words[words[0].startswith("@")] if len(words) > 1 else words[0]
    op = OPS.get(mnemonic.partition(".")[0])
    return op is not None and op.flow == "indirect"


def _moved(draft: Draft) -> dict[int, int]:
    """Where instructions stood when the code was taken from a cubin, and where they are now; empty if that is the same.
    Labels tell: L_01d0 stood at 0x1d0."""
    if draft.layout is None:
        return {}
    size = draft.layout[1]
    places = {int(found[1], 16): at for name, at in draft.labels.items() if (found := TAKEN.fullmatch(name))}
    places |= {0: 0, size: len(draft.kernel.code)}
    same = all(old == new for old, new in places.items()) and draft.address == draft.layout[1]
    return {} if same else places


def used_barriers(isa: Isa, code: Code) -> int:
    """The highest named barrier that the instructions use, and one."""
    found = {code[at] for at in code.having(isa.opcodes("BAR", "B2R"))}
    return max(map(isa.barriers, found), default=0)


def tail(isa: Isa, facts: architectures.Arch, code: Code) -> list[int]:
    """What is missing at the end of ``code``: a branch to itself, and NOPs up to a whole number of 128 bytes.

    Instructions are fetched ahead, so something that does no harm has to follow the last one.
    """
    nop = isa.encode("NOP") | control.parse("--:-:-:Y:0")
    last = len(code) // WORD_BYTES
    while last and code[last - 1] == nop:
        last -= 1
    stays = last > 0 and _stays(isa, code[last - 1], WORD_BYTES * (last - 1))
    end = [] if stays else [_loop(isa, len(code))]
    if not end and not len(code) % CODE_UNIT:
        return []
    size = len(code) + len(end) * WORD_BYTES
    missing = -size % CODE_UNIT + facts.code_padding
    return end + [nop] * (missing // WORD_BYTES)


def _loop(isa: Isa, address: int) -> int:
    return isa.encode(f"BRA {address:#x}", address) | control.parse("--:-:-:Y:0")


def _stays(isa: Isa, word: int, address: int) -> bool:
    """Whether an instruction is an unguarded branch to itself."""
    return word >> 12 & 15 == 7 and isa.target(word, address) == address


