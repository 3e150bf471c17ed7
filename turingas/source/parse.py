"""Plain lines -> instructions, labels and directives, with names resolved and spellings brought to nvdisasm's.

A section is what follows a .kernel or .function line; lines before the first one are the default kernel's. Names that
are declared above the first .kernel hold in every section, the others in theirs.

A file with blocks of TuringAs and without .kernel is a TuringAs file. Two texts that elsewhere mean something else, or
are refused as ambiguous, mean there what TuringAs takes them for: wait masks are decimal (`15:-:-:-:4` waits for the
scoreboards 0 to 3), and `CS2R R0, SR_CLOCKLO` reads 32 bits.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from os import PathLike
from typing import NamedTuple

from turingas.errors import AsmError, EncodeError
from turingas.isa import control as control_codes
from turingas.isa.arch import arch as find_arch
from turingas.isa.decode import SEEN
from turingas.isa.isa import instruction_set
from turingas.source.dialect import Dialect, Repair, default_stall
from turingas.source.expand import expand
from turingas.source.lines import Origin, PlainLine, column_in, maker
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
        name = None if in_control or "label" in message else _LOWER.match(self.body, position)
        if name:
            from difflib import get_close_matches

            close = get_close_matches(name[1], self.names.places if self.names else (), 1)
            undeclared = f"is {name[1]} a name? declare it in <regs>, <params> or <consts>"
            if close:
                hint = f"did you mean {close[0]!r}?"
            elif not hint or hint.startswith("it is written"):  # else the encoder knows better
                hint = undeclared
        hint = self._renamed(message, hint)
        return self.origin.error(message, hint, column_in(self.origin.text, f"{self.control} {self.body}", at))

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


_instruction = maker(Instruction)


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


_label, _directive = maker(Label), maker(Directive)
Item = Instruction | Label | Directive


class Parsed(NamedTuple):
    """The items of a source file and the errors of the lines that gave none."""

    items: list[Item]
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
    return _Parser(arch, default_control).parse(lines)


class _Section:
    """The lines from one .kernel or .function to the next, and the names that hold there."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.lines: list[PlainLine] = []
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
        self.items: list[Item] = []
        self.errors: list[AsmError] = []
        self.schedules: list[Directive] = []
        self.constants: list[Directive] = []  # bank 3, which the kernels of a file share
        self.constant_end = 0
        self.blocks = False  # there are blocks of TuringAs
        self.turingas = False  # ... and no .kernel
        #: mnemonics that were seen to be written as nvdisasm does, and whether they may have a branch target
        self.same: dict[str, bool] = {}

    def parse(self, lines: Sequence[PlainLine]) -> Parsed:
        sections = self.sections(lines)
        self.items += self.constants + sections[0].blocks
        self.turingas = self.blocks and len(sections) == 1
        dialect = Dialect(self.arch.orders_by_name, self.turingas)
        for section in sections:
            self.statements(section, dialect)
        self.errors.sort(key=lambda error: error.line)
        return Parsed(self.items, self.errors, True, self.schedules)

    # Blocks and sections

    def sections(self, lines: Sequence[PlainLine]) -> list[_Section]:
        """Split the lines at .kernel and .function, and take the blocks out of them."""
        common = section = _Section(Names(self.arch))
        sections = [common]
        block = ""  # the block that the line is in
        opening: PlainLine | None = None
        for line in lines:
            text = line.text
            if opening is None and "<" not in text and text[0] not in " \t.":
                section.lines.append(line)
            elif opening is not None:
                before, found, after = _closing(text, block)
                self.declare(section, block, line, before)
                if found:
                    opening = None
                    if after.strip():
                        self.errors.append(line.origin.error(f"text after </{block}>", "put it on a line of its own"))
            elif "<" in text and (tag := _BLOCK.match(text)):
                slash, block, rest = tag[1], tag[2].lower(), tag[3]
                self.blocks = True
                if slash or block not in BLOCKS:
                    self.errors.append(_unknown_block(line, slash, block))
                    continue
                before, found, after = _closing(rest, block)
                opening = None if found else line
                self.declare(section, block, line, before)
                if after.strip():
                    self.errors.append(line.origin.error(f"text after </{block}>", "put it on a line of its own"))
            elif (found_name := _DIRECTIVE.match(text)) and found_name[1] in _SECTIONS:
                section = _Section(Names(self.arch, common.names))
                sections.append(section)
                section.lines.append(line)
            else:
                section.lines.append(line)
        if opening is not None:
            self.errors.append(opening.origin.error(f"<{block}> is never closed", f"add </{block}>"))
        for later in sections[1:]:
            if not later.lines[0].text.lstrip().startswith(".function"):
                later.blocks[:0] = common.blocks
        if len(sections) > 1 and all(_DIRECTIVE.match(line.text) for line in common.lines):
            common.blocks = []  # there is no default kernel
        return sections

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
        names = section.names
        resolve = bool(names.meaning or names.memory)
        items = self.items
        head = _HEAD.match
        labels: dict[str, PlainLine] = {}
        turingas = self.turingas
        quick = not (resolve or turingas)
        seen: dict[str, Statement] = self.isa.statements if quick else {}
        lines = section.lines
        texts = [line.text for line in lines]
        plain: list[Statement] = []  # of the lines since the last item
        for at, (text, known) in enumerate(zip(texts, map(seen.get, texts))):
            bare = known is None and (text[-1] == ":" and " " not in text or text[0] == "." and ":" not in text)
            if known is None and quick and not bare:
                known = self.plain(text)
            if known is not None:
                plain.append(known)
                continue
            if plain:
                items += map(_instruction, zip(plain, lines[at - len(plain) : at], repeat(None)))
                plain = []
            line = lines[at]
            statement, _, rest = text.partition(";")
            start = None if bare else head(statement)  # bare: a label or a directive alone
            if start is None:
                self.other(line, section, labels, dialect)
                continue
            control, guard, mnemonic = start.groups()
            if rest and ";" in rest:
                message, column = "two instructions on one line", text.find(";") + 2
                self.errors.append(line.origin.error(message, "write one a line", column))
                continue
            written = mnemonic
            mnemonic, repair = dialect[mnemonic]
            if repair is None and mnemonic == written:
                self.same[mnemonic] = self.isa.forms.leads(mnemonic)
            operands = statement[start.end() :].strip()
            try:
                if operands and (resolve or "[" in operands or "Dim." in operands or "Idx." in operands):
                    operands = ", ".join([names[operand] for operand in operands.split(", ")])
                if guard and guard.lstrip("@!") in names.meaning:
                    names.guards.add(guard.lstrip("@!"))
                    guard = guard.replace(guard.lstrip("@!"), names.meaning[guard.lstrip("@!")])
            except NameProblem as error:
                self.errors.append(problem(error, line))
                continue
            body = _body(guard, mnemonic, operands, repair)
            same = quick and body == _body(guard, written, operands, None)
            if same and repair and not self.isa.forms.leads(mnemonic):
                with contextlib.suppress(EncodeError):  # the next of its like is known to be right as it stands
                    self.isa.needs(body, 0, {})
            if control is None:
                control = self.default_control or ""  # the assembler works it out
            else:
                if control not in control_codes.known:
                    with contextlib.suppress(control_codes.ControlError):  # the assembler tells
                        control_codes.parse(control)
                if control[-1] == "-" and control.count(":") == 4:
                    control = control[:-1] + default_stall(mnemonic)
                if turingas and control[:2].isdecimal() and control[0] != "0":
                    control = f"0x{int(control[:2]):02x}{control[2:]}"
            items.append(Instruction((control, body, None), line, names))
        items += map(_instruction, zip(plain, lines[len(lines) - len(plain) :], repeat(None)))

    def plain(self, text: str) -> Statement | None:
        """A line that needs no more than to be taken apart, as all of a listing: with a control code that was seen
        before, and an instruction whose like was encoded before, for the encoder takes nvdisasm's spelling alone; or a
        mnemonic that was seen to stand as nvdisasm writes it. The former are remembered by their whole text. None for
        other lines, and where names of the source may stand for something."""
        statement, _, rest = text.partition(";")
        control, _, body = statement.partition(" ")
        code = control_codes.known.get(control)
        if code is None or rest and not rest.isspace():
            return None
        body, isa = body.strip(), self.isa
        bits = isa.encoder.known(body)
        if bits is not None and "] [" not in body and ("-" not in body or not _MINUS(body)):
            if len(isa.statements) >= SEEN:
                isa.statements.clear()
            whole = isa.whole(bits, code) if (bits | code) & control_codes.REUSE_MASK else bits | code
            found = isa.statements[text] = control, body, whole
            return found
        mnemonic, _, operands = body.partition(" ")
        if mnemonic[:1] == "@":
            mnemonic, _, operands = operands.partition(" ")
        leads = self.same.get(mnemonic)
        if leads is None or ("[" in operands or "." in operands) and _odd(operands):
            return None
        if bits is None and not leads and "@" not in operands:
            with contextlib.suppress(EncodeError):  # the assembler tells
                bits = isa.needs(body, 0, {})
        return control, body, None if bits is None else isa.whole(bits, code)

    def other(self, line: PlainLine, section: _Section, labels: dict[str, PlainLine], dialect: Dialect) -> None:
        """A line that does not start as an instruction: a label, a directive, or nonsense."""
        text = line.text
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
                self.items.append(_label((name, line)))
            if label.end() == len(text):
                return
            rest = line._replace(text=text[label.end() :])
            if _HEAD.match(rest.text.partition(";")[0]):
                behind = _Section(section.names)
                behind.lines = [rest]
                self.statements(behind, dialect)
            elif rest.text.strip():
                self.errors.append(_nonsense(rest))
            return
        directive = _DIRECTIVE.match(text)
        if directive is None:
            self.errors.append(_nonsense(line))
            return
        arguments = text[directive.end() :].rstrip(" ;")
        args = _ARGUMENT.findall(arguments) if '"' in arguments else arguments.replace(",", " ").split()
        item = _directive((directive[1], tuple(args), line))
        self.items.append(item)
        if item.name == "schedule":
            self.schedules.append(item)
        if directive[1] in _SECTIONS:
            self.items += section.blocks


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
