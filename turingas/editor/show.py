"""What is told of a place in a source: hover texts (Markdown) and what may be written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from turingas.assembler.directives import DIRECTIVES
from turingas.editor.analysis import Analysis, Place, sequence
from turingas.editor.text import REGISTER, Symbol, Text
from turingas.errors import AsmError
from turingas.isa import control, describe
from turingas.isa.effects import FIRST
from turingas.isa.fields import Enum
from turingas.isa.form import Form
from turingas.isa.instruction import Access
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.latency import latencies
from turingas.isa.table import OPS

SPECIAL = re.compile(r"SR_\w+(?:\.[XYZ])?|SRZ")
LONGEST = 60  # lines of forms and bits in a hover
TAGS = ("code", "regs", "params", "consts", "smem")


class Choice(NamedTuple):
    """Something that may be written: ``kind`` is mnemonic, modifier, register, parameter, constant, label, special,
    directive or tag."""

    text: str
    kind: str
    detail: str = ""


def _isa(text: Text) -> Isa | None:
    try:
        return instruction_set(text.arch)
    except AsmError:
        return None


# ---- hover -----------------------------------------------------------------------------------------------------------


def hover(a: Analysis, line: int, column: int) -> str:
    """What is told of the word at a place; "" of nothing."""
    row = a.text.lines[line] if line < len(a.text.lines) else None
    if row is None or row.kind == "python":
        return ""
    head = row.head
    if head and head[2] and head.start(2) <= column <= head.end(2):
        return _control(a, line, head[2])
    if head and head.start(6) <= column <= head.end(6):
        return _mnemonic(a, line, head[6])
    symbol = a.text.symbol(line, column)
    if symbol is not None:
        return _symbol(a, symbol)
    found = a.text.word(line, column)
    if found and REGISTER.match(found[0]):
        return f"`{found[0]}`" + _life(a, found[0], row.section)
    return ""


def _control(a: Analysis, line: int, text: str) -> str:
    try:
        bits = control.parse(text)
    except control.ControlError as error:
        if "?" not in text:
            return f"{error.message}  \n{error.hint}"
        place = a.only(line)
        if place is None:
            return "the scheduler fills in each ?"
        bits, text = place.word, f"{text} → {control.show(place.word)}"
    said = [f"`{text}`"]
    waits = [n for n in range(6) if bits >> control.WAIT & 1 << n]
    if waits:
        said.append("waits for " + ("scoreboard " if len(waits) == 1 else "scoreboards ") + sequence(waits))
    if (read := bits >> control.READ & 7) != control.NONE:
        said.append(f"releases scoreboard {read} when it has read its sources")
    if (write := bits >> control.WRITE & 7) != control.NONE:
        said.append(f"releases scoreboard {write} when its results are there")
    said.append("keeps the issue slot" if bits >> control.YIELD & 1 else "lets another warp go first")
    stall = bits >> control.STALL & 15
    said.append(f"the next instruction of the warp comes after {stall} cycle{'s' * (stall != 1)}")
    if code := a.scheduled.get(line):
        said.append(f"the scheduler would write `{code}`")
    return "  \n".join(said)


def _mnemonic(a: Analysis, line: int, written: str) -> str:
    isa, base = _isa(a.text), written.partition(".")[0]
    if isa is None or base not in OPS or not isa.named(base):
        return ""
    does, *more = describe.head(base, isa.example(base))
    said = [f"**{written}**: {does}", *more[:1]]
    place = a.only(line)
    if place is not None:
        said += _here(place)
    body = describe.body(isa.forms, base)
    body = body[:LONGEST] + [f"... `turingas isa {base} --arch {isa.name}` tells the rest"] * (len(body) > LONGEST)
    return "  \n".join(said) + "\n\n```text\n" + "\n".join(body) + "\n```"


def _here(place: Place) -> Iterator[str]:
    """Of one instruction: pipe, latency, word."""
    i = place.instruction
    if i is None:
        return
    yield f"`{i.text()}`"
    try:
        rules = latencies(place.graph.kernel.arch)
    except AsmError:
        rules = None
    if rules is not None:
        told = [f"pipe {rules.pipe(i)}, busy for {rules.issue(i)} cycle{'s' * (rules.issue(i) != 1)}"]
        for write in i.writes:
            if rules.variable(i, write):
                told.append(f"{_registers(write)} at no fixed time: readers wait for its write scoreboard")
            elif write.file in FIRST:
                told.append(f"{_registers(write)} is there for everybody after {rules.most(i, write)} cycles")
        yield "; ".join(told)
    address = 16 * place.n
    low, high = place.word & (1 << 64) - 1, place.word >> 64
    yield f"at `{address:#06x}`, bits 63:0 `{low:#018x}`, 127:64 `{high:#018x}`"


def _registers(access: Access) -> str:
    first = f"{access.file}{access.first}"
    return first if access.count < 2 else f"{first}-{access.file}{access.first + access.count - 1}"


def _symbol(a: Analysis, symbol: Symbol) -> str:
    uses = len([span for span in a.text.places(symbol) if span != symbol.at])
    counted = f"{uses} use{'s' * (uses != 1)}"
    if symbol.kind == "register":
        return f"`{symbol.name}` is `{symbol.means}`, declared in line {symbol.at.line + 1}; {counted}" + _life(
            a, symbol.means, symbol.section
        )
    if symbol.kind in ("parameter", "constant"):
        return f"`{symbol.name}`: {symbol.kind}, `{symbol.means}`; {counted}"
    if symbol.kind == "label":
        return f"label `{symbol.name}`, line {symbol.at.line + 1}; {counted}"
    return f"{symbol.kind} `{symbol.name}`"


def _life(a: Analysis, register: str, section: int) -> str:
    """Where a register is written and read, by lines of the section (0: of all)."""
    found = REGISTER.match(register)
    if found is None:
        return ""
    bit = 1 << FIRST[found[1]] + int(found[2])
    written: list[int] = []
    read: list[int] = []
    alive: list[int] = []
    for line, places in a.at.items():
        if section and a.text.lines[line].section != section:
            continue
        for place in places:
            lives = a.lives.get(id(place.graph))
            if lives is None:
                continue
            written += [line + 1] * bool(lives.written[place.n] & bit)
            read += [line + 1] * bool(lives.read[place.n] & bit)
            alive += [line + 1] * bool((lives.before[place.n] | lives.after[place.n] | lives.written[place.n]) & bit)
    if not (written or read):
        return ""
    said = [f"{what} in line{'s' * (len(set(lines)) > 1)} {sequence(lines)}"
            for what, lines in (("written", written), ("read", read)) if lines]  # fmt: skip
    return "  \n" + ", ".join(said) + (f"  \nholds a value in lines {sequence(alive)}" if alive else "")


# ---- completion ------------------------------------------------------------------------------------------------------


def choices(text: Text, line: int, column: int) -> list[Choice]:
    """What may be written at a place."""
    isa = _isa(text)
    if isa is None or line >= len(text.raw):
        return []
    before, kind = text.raw[line][:column], text.lines[line].kind
    if kind == "python" or re.search(r"#|//", before):
        return []
    if re.match(r"\s*\.\w*\Z", before):
        return [Choice(f".{name}", "directive") for name in (*DIRECTIVES, "include")]
    if re.match(r"\s*</?\w*\Z", before):
        return [Choice(name, "tag") for name in TAGS]
    if kind in ("block", "tag"):
        return []
    if re.match(r"\s*\.arch\s+\w*\Z", before):
        return [Choice(name, "special") for name in describe.architectures("NOP")]
    statement = re.sub(r"^\s*[A-Za-z_.$][\w.$]*\s*:(?!\S*:)", "", before)
    statement = re.sub(r"^\s*[^\s:;]*:[^\s:;]*:[^\s;]*\s+", "", statement).lstrip()
    guard = re.match(r"@!?(\w*)\Z", statement)
    if guard:
        return _registers_of(text, line, ("P", "UP"))
    statement = re.sub(r"^@\S+\s+", "", statement)
    mnemonic = re.match(r"([A-Za-z]\w*)?((?:\.\w*)*)\Z", statement)
    if mnemonic:
        base, modifiers = mnemonic[1] or "", mnemonic[2]
        if modifiers:
            used = set(modifiers.split(".")[1:-1])
            return [Choice(name, "modifier", base) for name in modifiers_of(isa, base) if name not in used]
        return [Choice(name, "mnemonic", OPS[name].does) for name in isa.mnemonics()]
    base = re.split(r"[.\s]", statement)[0]
    found = _registers_of(text, line, ("R", "UR", "P", "UP"))
    found += [Choice(one.name, one.kind, one.means) for one in text.visible(line) if one.kind not in ("register",)]
    if re.fullmatch("C?S2U?R", base):
        built_in = [f"{what}.{axis}" for what in ("threadIdx", "blockIdx") for axis in "xyz"]
        found += [Choice(name, "special") for name in (*built_in, *specials(isa, base))]
    return found


def _registers_of(text: Text, line: int, files: tuple[str, ...]) -> list[Choice]:
    """The names of registers of these files that may be used in a line, and numbers that stand in the source."""
    named = [one for one in text.visible(line) if one.kind == "register"]
    found = [Choice(one.name, "register", one.means) for one in named if _file(one.means) in files]
    if not named:
        words = {word for row in text.lines if row.head for word in re.findall(r"\bU?[RP]\d+\b", row.plain)}
        in_order = sorted(words, key=lambda word: (_file(word), int(re.sub(r"\D", "", word))))
        found += [Choice(word, "register") for word in in_order if _file(word) in files]
    ends = {"R": "RZ", "UR": "URZ", "P": "PT", "UP": "UPT"}
    return found + [Choice(ends[file], "register", "always " + ("true" if "P" in file else "0")) for file in files]


def _file(register: str) -> str:
    return register.rstrip("0123456789")


def modifiers_of(isa: Isa, base: str) -> list[str]:
    """What may stand behind the dots of a mnemonic."""
    found: dict[str, None] = {}
    for form in isa.forms.named(base) if base in isa.forms.bases else ():
        for part in form.name:
            texts = part.names.values() if isinstance(part, Enum) else [part]
            for text in texts:
                found.update(dict.fromkeys(word for word in text.split(".") if word))
    return [word for word in found if word != base]


def specials(isa: Isa, base: str) -> list[str]:
    """The special registers that a mnemonic reads."""
    found: dict[str, None] = {}
    for form in isa.forms.named(base):
        for place in _fields(form):
            if isinstance(place, Enum):
                found.update(dict.fromkeys(name for name in place.names.values() if SPECIAL.fullmatch(name)))
    return list(found)


def _fields(form: Form) -> Iterator[object]:
    for operand in form.operands:
        yield from operand.fields
