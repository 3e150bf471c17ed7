"""Plain lines -> instructions, labels and directives, with names resolved and spellings brought to nvdisasm's.

A section is what follows a .kernel or .function line; lines before the first one are the default kernel's. Names that
are declared above the first .kernel hold in every section, the others in theirs.

A file with blocks of TuringAs and without .kernel is a TuringAs file. Two texts that elsewhere mean something else, or
are refused as ambiguous, mean there what TuringAs takes them for: wait masks are decimal (`15:-:-:-:4` waits for the
scoreboards 0 to 3), and `CS2R R0, SR_CLOCKLO` reads 32 bits.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, overload

from turingas.errors import AsmError, EncodeError
from turingas.isa import control as control_codes
from turingas.isa.arch import arch as find_arch
from turingas.isa.decode import SEEN
from turingas.isa.isa import instruction_set
from turingas.source.dialect import Dialect, Repair, default_stall
from turingas.source.expand import expand
from turingas.source.lines import Columns, Lines, Origin, PlainLine, column_in, maker
from turingas.source.names import BLOCKS, NameProblem, Names, number, problem, words

# Control code (two or more colons inside one word), guard, mnemonic. What follows are the operands.
_HEAD = re.compile(r"\s*(?:([^\s:;]*:[^\s:;]*:[^\s;]*)\s+)?(?:(@\S+)\s+)?([A-Za-z]\w*(?:\.\w+)*)(?=\s|$)")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*)\s*:(?!:)")
_DIRECTIVE = re.compile(r"\s*\.([A-Za-z_]\w*)(?=[\s;,]|$)")
_ARGUMENT = re.compile(r'"(?:\\.|[^"\\])*"|[^\s,"]+')
_BLOCK = re.compile(r"\s*<\s*(/?)\s*(\w*)\s*>(.*)", re.S)
_LOWER = re.compile(r"[-!~|]*([A-Za-z_]*[a-z]\w*)\b(?!\[)")  # a name of the source, not one of the hardware's
_MINUS = re.compile(r"\w-\d").search
_SECTIONS = ("kernel", "function")


#: What a line says: the control code, which may have ? in its fields, or be missing (""); guard, mnemonic and operands
#: in nvdisasm's spelling, without ';'; and with the control code what ``Isa.needs`` gives for it, if it means the same
#: everywhere and that was seen at once. A plain tuple, for most lines of a library are new ones.
Statement = tuple[str, str, int | None]


class Instruction(NamedTuple):
    """One instruction. ``names``: those that are declared where it stands, None where none are looked up."""

    statement: Statement
    line: PlainLine
    names: Names | None = None

    @property
    def control(self) -> str:
        return self.statement[0]

    @property
    def body(self) -> str:
        return self.statement[1]

    @property
    def origin(self) -> Origin:
        return self.line.origin

    def error(self, message: str, position: int = 0, hint: str = "", in_control: bool = False) -> AsmError:
        """A diagnostic at ``position`` of ``body`` (or of ``control``), shown at the column that it was written at."""
        at = position if in_control else position + len(self.control) + 1
        name = None if in_control or "label" in message else self.name_at(position)
        if name:
            from difflib import get_close_matches

            close = get_close_matches(name, self.names.places if self.names else (), 1)
            undeclared = f"is {name} a name? declare it in <regs>, <params> or <consts>"
            if close:
                hint = f"did you mean {close[0]!r}?"
            elif not hint or hint.startswith("it is written"):  # else the encoder knows better
                hint = undeclared
        hint = self._renamed(message, hint)
        return self.origin.error(message, hint, column_in(self.origin.text, f"{self.control} {self.body}", at))

    def name_at(self, position: int) -> str:
        """The name in small letters at ``position`` of ``body``, which none is declared as; "" if there is none."""
        found = _LOWER.match(self.body, position)
        return found[1] if found else ""

    def _renamed(self, message: str, hint: str) -> str:
        """The hint, and under which other name the message speaks of the mnemonic that stands in the line."""
        words = [word for word in self.body.split() if word[0] != "@"][:1]
        if not words or words[0] not in message or words[0] in self.origin.text:
            return hint
        base = words[0].partition(".")[0]
        written = re.search(rf"\b{base}[.\w]*", self.origin.text)
        said = f"{written[0]} stands for {words[0]} here" if written else ""
        return "; ".join(filter(None, (hint, said)))

    def __repr__(self) -> str:
        return f"Instruction({self.control!r}, {self.body!r})"


class Label(NamedTuple):
    """`name:`"""

    name: str
    line: PlainLine

    @property
    def origin(self) -> Origin:
        return self.line.origin

    def error(self, message: str, hint: str = "") -> AsmError:
        """A diagnostic at the label."""
        return self.origin.error_at(message, hint, self.name)


class Directive(NamedTuple):
    """`.name args`, or what a block of TuringAs stands for. Quoted arguments keep their quotes."""

    name: str
    args: tuple[str, ...]
    line: PlainLine

    @property
    def origin(self) -> Origin:
        return self.line.origin

    def error(self, message: str, hint: str = "", at: str = "") -> AsmError:
        """A diagnostic at the argument ``at``, or at the directive."""
        return self.origin.error_at(message, hint, at or self.name)


_line, _label, _directive = maker(PlainLine), maker(Label), maker(Directive)
Item = Instruction | Label | Directive


class Instructions(Columns[Instruction]):
    """Instructions that follow one another."""

    kind = Instruction
    statements = property(lambda self: self.columns[0])
    lines = property(lambda self: self.columns[1])
    names = property(lambda self: self.columns[2])

    def __init__(self, *columns: Any) -> None:
        super().__init__(*(columns or ([], Lines(), [])))


class Items(Sequence[Item]):
    """What the lines of a source say: its instructions, and labels and directives, each with how many instructions
    stand before it."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.instructions = Instructions()
        self.others: list[tuple[int, Label | Directive]] = []
        for item in items:
            if isinstance(item, Instruction):
                self.instructions.append(item)
            else:
                self.others.append((len(self.instructions), item))

    def __len__(self) -> int:
        return len(self.instructions) + len(self.others)

    def __iter__(self) -> Iterator[Item]:
        rows, done = iter(self.instructions), 0
        for at, item in self.others:
            yield from itertools.islice(rows, at - done)
            yield item
            done = at
        yield from rows

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> list[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | list[Item]:
        return list(self)[at]


class Parsed(NamedTuple):
    """The items of a source file and the errors of the lines that gave none."""

    items: Sequence[Item]
    errors: list[AsmError]
    whole: bool = True  # False when inline Python or an include failed: what they would have defined is missing
    schedules: Sequence[Directive] = ()  # those of the items that are .schedule


def read(
    source: str,
    filename: str | None = None,
    arch: str = "sm_75",
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | PathLike[str]] = (),
    allow_python: bool = True,
    default_control: str | None = None,
) -> Parsed:
    """Source text -> items, and everything that is wrong with it."""
    lines, errors = expand(source, filename, defines, include, allow_python, arch)
    parsed = parse(lines, arch, default_control)
    return Parsed(parsed.items, errors + parsed.errors, not errors, parsed.schedules)


def parse(lines: Sequence[PlainLine], arch: str = "sm_75", default_control: str | None = None) -> Parsed:
    """Plain lines -> items."""
    return _Parser(arch, default_control).parse(Lines.of(lines))


class _Section:
    """The lines from one .kernel or .function to the next, and the names that hold there."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.lines = Lines()
        self.blocks: list[Directive] = []  # what its <params> and <smem> stand for
        self.shared: PlainLine | None = None


class _Parser:
    def __init__(self, arch: str, default_control: str | None) -> None:
        self.arch, self.isa = find_arch(arch), instruction_set(arch)
        self.default_control = default_control
        if default_control is not None:
            try:
                control_codes.parse(default_control)
            except control_codes.ControlError as error:
                raise AsmError(f"default control code: {error.message}", hint=error.hint) from None
        self.items = Items()
        self.errors: list[AsmError] = []
        self.schedules: list[Directive] = []
        self.constants: list[Directive] = []  # bank 3, which the kernels of a file share
        self.constant_end = 0
        self.blocks = False  # there are blocks of TuringAs
        self.turingas = False  # ... and no .kernel
        #: mnemonics that were seen to be written as nvdisasm does, and whether they may have a branch target
        self.same: dict[str, bool] = {}

    def parse(self, lines: Lines) -> Parsed:
        sections = self.sections(lines)
        self.add(self.constants + sections[0].blocks)
        self.turingas = self.blocks and len(sections) == 1
        dialect = Dialect(self.arch.orders_by_name, self.turingas)
        for section in sections:
            self.statements(section, dialect)
        self.errors.sort(key=lambda error: error.line)
        return Parsed(self.items, self.errors, True, self.schedules)

    # Blocks and sections

    def sections(self, lines: Lines) -> list[_Section]:
        """Split the lines at .kernel and .function, and take the blocks out of them."""
        common = section = _Section(Names(self.arch))
        sections = [common]
        block = ""  # the block that the line is in
        opening: PlainLine | None = None
        texts, done = lines.texts, 0
        for at in [at for at, text in enumerate(texts) if text[0] in " \t." or "<" in text]:
            text = texts[at]
            if opening is not None:
                for line in lines[done : at + 1]:  # only the last may end the block
                    opening = self.closing(section, block, line, opening)
                done = at + 1
            elif "<" in text and (tag := _BLOCK.match(text)):
                section.lines.extend(lines, done, at)
                done = at + 1
                slash, block = tag[1], tag[2].lower()
                self.blocks = True
                if slash or block not in BLOCKS:
                    self.errors.append(_unknown_block(lines[at], slash, block))
                    continue
                opening = self.closing(section, block, lines[at], lines[at], tag[3])
            elif (found_name := _DIRECTIVE.match(text)) and found_name[1] in _SECTIONS:
                section.lines.extend(lines, done, at)
                done = at
                section = _Section(Names(self.arch, common.names))
                sections.append(section)
        if opening is None:
            section.lines.extend(lines, done)
        else:
            for line in lines[done:]:
                self.declare(section, block, line, line.text)
            self.errors.append(opening.origin.error(f"<{block}> is never closed", f"add </{block}>"))
        for later in sections[1:]:
            if not later.lines.texts[0].lstrip().startswith(".function"):
                later.blocks[:0] = common.blocks
        if len(sections) > 1 and all(map(_DIRECTIVE.match, common.lines.texts)):
            common.blocks = []  # there is no default kernel
        return sections

    def closing(
        self, section: _Section, block: str, line: PlainLine, opening: PlainLine | None, text: str | None = None
    ) -> PlainLine | None:
        """A line of a block, or the rest of one. None if the block ends there, else ``opening``."""
        before, found, after = _closing(line.text if text is None else text, block)
        self.declare(section, block, line, before)
        if after.strip():
            self.errors.append(line.origin.error(f"text after </{block}>", "put it on a line of its own"))
        return None if found else opening

    def declare(self, section: _Section, block: str, line: PlainLine, text: str) -> None:
        """One line of a block."""
        text = text.strip()
        if not text:
            return
        names = section.names
        try:
            if block == "regs":
                names.register(text, line)
            elif block == "params":
                parts = [part.strip() for part in text.split(",")]
                offset = names.parameter(parts, line)
                section.blocks.append(Directive("param", (*parts[:2], f"offset={offset}"), line))
            elif block == "consts":
                declared, equals, values = text.partition("=")
                parts = [part.strip() for part in declared.split(",")]
                offset = names.constant(parts, line, self.constant_end)
                self.constant_end = offset + number(parts[1])
                self.constants.append(Directive("constant", (*parts[:2], f"offset={offset}"), line))
                if equals:
                    self.constants.append(Directive("long", tuple(words(values, number(parts[1]))), line))
            else:
                if section.shared is not None:
                    raise NameProblem("duplicate <smem>", "", f"first at line {section.shared.origin.line}")
                number(text)
                section.shared = line
                section.blocks.append(Directive("shared", (text,), line))
        except NameProblem as error:
            self.errors.append(problem(error, line))

    # Statements

    def statements(self, section: _Section, dialect: Dialect) -> None:
        """Append the items of a section's lines."""
        names, lines = section.names, section.lines
        texts = lines.texts
        labels: dict[str, PlainLine] = {}
        known: list[Statement | None] = [None] * len(lines)
        if not (names.meaning or names.memory or self.turingas):
            known = list(map(self.isa.statements.get, texts))
            told = self.told(dict.fromkeys([text for text, seen in zip(texts, known) if seen is None]), dialect)
            known = list(map(told.get, texts, known))
        whose: list[Names | None] = [None] * len(lines)
        behind = len(self.items.instructions)  # all that stand before the line, once ``at`` is added
        numbers, sources = lines.numbers, lines.sources
        for at in [at for at, statement in enumerate(known) if statement is None]:
            line = _line((texts[at], numbers[at], sources[at]))
            start = None if _bare(line.text) else _HEAD.match(line.text.partition(";")[0])
            if start is None:
                found = self.other(line, section, labels, behind + at)
                if found is None:
                    behind -= 1
                    continue
                line, start = found
                texts[at] = line.text
            try:
                statement = self.statement(line.text, start, names, dialect)
                if statement is None:
                    message, column = "two instructions on one line", line.text.find(";") + 2
                    self.errors.append(line.origin.error(message, "write one a line", column))
            except NameProblem as error:
                statement = None
                self.errors.append(problem(error, line))
            if statement is None:
                behind -= 1
            known[at], whose[at] = statement, names
        made = Instructions(known, lines, whose)
        self.items.instructions.extend(made.compress(known) if None in known else made)

    def add(self, items: Iterable[Directive]) -> None:
        """Append directives."""
        at = len(self.items.instructions)
        self.items.others += [(at, item) for item in items]

    def told(self, texts: Iterable[str], dialect: Dialect) -> dict[str, Statement]:
        """What lines say where no names are declared, those of them that begin as an instruction: each text once,
        however often it stands in the source.

        Most need no more than to be taken apart, as all of a listing: they have a control code that was seen before,
        and an instruction whose like was encoded before, for the encoder takes nvdisasm's spelling alone. These are
        remembered by their whole text. So do those with a mnemonic that was seen to stand as nvdisasm writes it."""
        isa, names = self.isa, Names(self.arch)
        found: dict[str, Statement] = {}
        plain: dict[str, Statement] = {}
        codes, encoded = control_codes.known, isa.encoder.known
        for text in texts:
            head, _, rest = text.partition(";")
            control, _, body = head.partition("  ")  # as ``decode`` writes it
            code = codes.get(control)
            if code is not None and (not rest or rest.isspace()):
                bits = encoded(body)
                if bits is not None and "] [" not in body and ("-" not in body or not _MINUS(body)):
                    whole = bits | code
                    plain[text] = control, body, isa.whole(bits, code) if whole & control_codes.REUSE_MASK else whole
                    continue
                mnemonic, operands = _mnemonic(body)
                leads = self.same.get(mnemonic)
                if leads is not None and not (("[" in operands or "." in operands) and _odd(operands)):
                    found[text] = (control, body, None) if leads else self.encoded(control, body)
                    continue
            if not _bare(text) and (start := _HEAD.match(head)):
                statement = self.statement(text, start, names, dialect)
                if statement is not None:
                    found[text] = self.encoded(statement[0], statement[1])
        if len(isa.statements) + len(plain) > SEEN:
            isa.statements.clear()
        if len(plain) <= SEEN:
            isa.statements.update(plain)
        found.update(plain)
        return found

    def statement(self, text: str, start: re.Match[str], names: Names, dialect: Dialect) -> Statement | None:
        """What a line says that begins as an instruction (``start``: by ``_HEAD``); None if there are two. NameProblem
        where names are used as they cannot be."""
        statement, _, rest = text.partition(";")
        control, guard, mnemonic = start.groups()
        if rest and ";" in rest:
            return None
        written = mnemonic
        mnemonic, repair = dialect[mnemonic]
        if repair is None and mnemonic == written:
            self.same[mnemonic] = self.isa.forms.leads(mnemonic)
        operands = statement[start.end() :].strip()
        resolve = names.meaning or names.memory
        if operands and (resolve or "[" in operands or "Dim." in operands or "Idx." in operands):
            operands = ", ".join([names[operand] for operand in operands.split(", ")])
        if guard and guard.lstrip("@!") in names.meaning:
            names.guards.add(guard.lstrip("@!"))
            guard = guard.replace(guard.lstrip("@!"), names.meaning[guard.lstrip("@!")])
        body = _body(guard, mnemonic, operands, repair)
        if control is None:
            return self.default_control or "", body, None  # the assembler works it out
        if control not in control_codes.known:
            with contextlib.suppress(control_codes.ControlError):  # the assembler tells
                control_codes.parse(control)
        if control[-1] == "-" and control.count(":") == 4:
            control = control[:-1] + default_stall(mnemonic)
        if self.turingas and control[:2].isdecimal() and control[0] != "0":
            control = f"0x{int(control[:2]):02x}{control[2:]}"
        return control, body, None

    def encoded(self, control: str, body: str) -> Statement:
        """The statement of a control code and an instruction, with what they encode to if that is the same everywhere.
        What its operands look like is known from now on."""
        mnemonic, operands = _mnemonic(body)
        if control in control_codes.known and "@" not in operands and not self.isa.forms.leads(mnemonic):
            with contextlib.suppress(EncodeError):  # the assembler tells
                return control, body, self.isa.whole(self.isa.needs(body, 0, {}), control_codes.known[control])
        return control, body, None

    def other(
        self, line: PlainLine, section: _Section, labels: dict[str, PlainLine], at: int
    ) -> tuple[PlainLine, re.Match[str]] | None:
        """A line that does not start as an instruction: a label, a directive, or nonsense; ``at`` instructions stand
        before it. The instruction that follows a label, as a line of its own, and how it starts."""
        text, others = line.text, self.items.others
        label = _LABEL.match(text) if ":" in text else None
        if label:
            name = label[1]
            if name in labels:
                first = "first at {}:{}".format(*labels[name].place)
                self.errors.append(line.origin.error_at(f"duplicate label {name!r}", first, name))
            elif name in section.names.places:
                message = f"{name} names a label and a register or constant"
                self.errors.append(line.origin.error_at(message, "rename one of them", name))
            else:
                labels[name] = line
                others.append((at, _label((name, line))))
            if label.end() == len(text):
                return None
            rest = line._replace(text=text[label.end() :])
            if start := _HEAD.match(rest.text.partition(";")[0]):
                return rest, start
            if rest.text.strip():
                self.errors.append(_nonsense(rest))
            return None
        directive = _DIRECTIVE.match(text)
        if directive is None:
            self.errors.append(_nonsense(line))
            return None
        arguments = text[directive.end() :].rstrip(" ;")
        args = _ARGUMENT.findall(arguments) if '"' in arguments else arguments.replace(",", " ").split()
        item = _directive((directive[1], tuple(args), line))
        others.append((at, item))
        if item.name == "schedule":
            self.schedules.append(item)
        if item.name in _SECTIONS:
            others += [(at, block) for block in section.blocks]
        return None


def _bare(text: str) -> bool:
    """Whether a line is a label or a directive alone, at the first glance."""
    return text[-1] == ":" and " " not in text or text[0] == "." and ":" not in text


def place_of_code(text: str) -> tuple[int, int] | None:
    """Where the control code of a plain line stands or is missing, first column and end; None if the line holds no
    instruction."""
    start = 0
    while label := _LABEL.match(text, start):
        start = label.end()
    found = _HEAD.match(text[start:].partition(";")[0])
    if found is None:
        return None
    first = next(n for n in (1, 2, 3) if found[n])
    return start + found.start(first), start + (found.end(1) if first == 1 else found.start(first))


def _mnemonic(body: str) -> tuple[str, str]:
    """Mnemonic and operands of an instruction, without its guard."""
    mnemonic, _, operands = body.partition(" ")
    if mnemonic[:1] == "@":
        mnemonic, _, operands = operands.partition(" ")
    return mnemonic, operands


def _odd(operands: str) -> bool:
    """Whether operands may be written otherwise than nvdisasm does."""
    if "Dim." in operands or "Idx." in operands:
        return True
    if "[" not in operands:
        return False
    return operands.count(" ") != operands.count(", ") or ("-" in operands and _MINUS(operands) is not None)


def _body(guard: str | None, mnemonic: str, operands: str, repair: Repair | None) -> str:
    if repair is not None and operands:
        body = repair(mnemonic, operands.split(", "))
    else:
        body = f"{mnemonic} {operands}" if operands else mnemonic
    return f"{guard} {body}" if guard else body


def _closing(text: str, block: str) -> tuple[str, str, str]:
    """What stands before and after </block> in a line, and the tag itself if it is there."""
    if "<" in text:
        parts = re.split(rf"(</\s*{block}\s*>)", text, maxsplit=1, flags=re.I)
        if len(parts) == 3:
            return parts[0], parts[1], parts[2]
    return text, "", ""


def _unknown_block(line: PlainLine, slash: str, block: str) -> AsmError:
    known = ("code", *BLOCKS)
    if slash and block in known:
        return line.origin.error(f"</{block}> closes nothing", f"<{block}> must come first, at the start of a line")
    from difflib import get_close_matches

    near = get_close_matches(block, known, 1)
    blocks = ", ".join(f"<{name}>" for name in known)
    hint = f"did you mean <{slash}{near[0]}>?" if near else f"the blocks are {blocks}"
    return line.origin.error_at(f"there is no block <{slash}{block}>", hint, block)


def _nonsense(line: PlainLine) -> AsmError:
    text = line.text.strip()
    column = len(line.text) - len(line.text.lstrip()) + 1
    column = column_in(line.origin.text, line.text, column - 1)
    if re.match(r"[^\s:;]*:[^\s:;]*:[^\s;]*\s*;?\Z", text):
        return line.origin.error("a control code without an instruction", column=column)
    hint = "a line is a label `name:`, a directive `.name`, or `control  instruction;`"
    return line.origin.error("this is neither an instruction, nor a label, nor a directive", hint, column)
