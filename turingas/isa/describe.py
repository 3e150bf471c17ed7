"""What `turingas isa`, the hints of errors and docs/reference say of an instruction: all of it read off its forms.

Operands are shown as they are written, each place of a general operand once: ``Rd, Ra, Rb|imm|c[][]|URb, Rc``.
``{...}`` may be left out, of ``(.A|.B)`` one must be written.
"""

from __future__ import annotations

import functools
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from turingas.isa import table
from turingas.isa.arch import ARCHS
from turingas.isa.fields import Alone, BitSet, Constant, Enum, Field, Float, Number, Offset, Register, Target
from turingas.isa.form import Form, bits_of
from turingas.isa.forms import Forms, forms
from turingas.isa.operands import Operand, Piece, merged, pieces_of

WIDTH = 116
ALTERNATIVE = re.compile(r"[\w.]+|cx?\[\]\[\]")  # an operand that is short enough to stand beside others
NAMES_SHOWN = 6  # of a modifier, where an instruction is written out
LEGEND = """\
{...} may be left out, of (A|B) one must be written, and | parts what may stand in one place. The number behind is the
opcode, one for each of A|B|...: bits 11:0, and 0x1000 is bit 91; +74 says that bit 74 is set besides. c[][] is constant
memory, c[bank][offset], and cx[][] the same with the bank in a uniform register. Every instruction may have a guard,
@P0 or @!P0 (bits 14:12, ! is bit 15; @UP0 if it is uniform), and has a control code (bits 121:105)."""


# ---- spelling ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)  # asked three times for each form: how it is written, its operands, its modifiers
def _named(form: Form, operand: Operand) -> list[Piece]:
    """The pieces of an operand with (name, field) in place of a field."""

    def find(text: str) -> tuple[str, Field] | None:
        found = form.find(text)
        return (text, found) if found is not None else None

    return merged(pieces_of(operand.source, find))  # type: ignore[arg-type]


def _fields(pieces: Sequence[Piece]) -> Iterator[tuple[str, Field]]:
    for kind, value in pieces:
        if kind == "field":
            yield value
        elif kind != "text":
            yield from _fields(value)


def _short(name: str, place: Field) -> str:
    """What stands for a field where an instruction is written out."""
    if isinstance(place, Register):
        role = re.search(r"(?:U?[RP]|V|B)([a-z])", name)
        return place.prefix + (role[1] if role else "")
    if isinstance(place, Constant):
        return "cx[][]" if place.bindless else "c[][]"
    if isinstance(place, Float):
        return f"bf{-place.size}" if place.size < 0 else f"f{place.size}"
    if isinstance(place, Alone):
        return "offset"
    if isinstance(place, Offset):
        return "+offset"
    if isinstance(place, Target):
        return "target"
    if isinstance(place, BitSet):
        return "set"
    if isinstance(place, Enum):
        return _choice(place)
    plain = re.sub(r"_?[a-z]?\d*$", "", name) if re.search(r"\d|_", name) else name
    if name in ("all", "some"):  # of BAR, or which of a sparse matrix
        return "threads" if place.width == 12 else "sel"
    return {"": "imm", "simm": "imm", "coff": "offset", "dist": "distance", "toff": "offset", "tbank": "bank"}.get(
        plain, plain
    )


def _choice(place: Enum) -> str:
    names = [name for name in place.names.values() if name]
    shown = "|".join(names[:NAMES_SHOWN]) + ("|..." if len(names) > NAMES_SHOWN else "")
    if "" in place.names.values():
        return f"{{{shown}}}" if names else ""
    return shown if len(names) == 1 else f"({shown})"


def _show(pieces: Sequence[Piece]) -> str:
    out = ""
    for n, (kind, value) in enumerate(pieces):
        if kind == "text":
            # a uniform register that is part of the form, one form for each
            out += re.sub(r"(?<=\[)UR(?:\d+|Z)|(?<=\+)UR(?:\d+|Z)", "UR", value)
        elif kind == "field":
            name, place = value
            if isinstance(place, Enum) and n == 1 == len(pieces) - 1 and pieces[0][0] == "field":
                continue  # .H0_H0 of a register; told below
            text = _short(name, place)
            out += text.strip("(){}") if len(pieces) == 1 and isinstance(place, Enum) else text
        elif kind == "group":
            out += f"{{{_show(value)}}}"
        else:
            out += _show(value)
    return out


def _join(operands: Sequence[tuple[str, bool]]) -> str:
    """Operands and whether each may be left out: ``{Pu,} Rd, Ra{, Pp}``."""
    out = ""
    for text, optional in operands:
        if not optional:
            out += (", " if out and not out.endswith(" ") else "") + text
        elif out and not out.endswith(" "):
            out += f"{{, {text}}}"
        else:
            out += f"{{{text},}} "
    return out.rstrip() if not out.endswith(",} ") else out.rstrip().replace(",}", "}")


# ---- forms that are written alike, in one line -----------------------------------------------------------------------


@dataclass
class Way:
    """A way to write an instruction: operands, each with the alternatives for its place, and its forms."""

    name: str
    operands: list[list[str]]
    optional: tuple[bool, ...]
    forms: list[list[Form]] = field(default_factory=list)  # for each alternative
    varied: int | None = None  # the place that has alternatives
    condition: str = ""  # on its operands, for a name that only some words have

    @property
    def tail(self) -> str:
        """The operands as they are written."""
        return _join([("|".join(texts), optional) for texts, optional in zip(self.operands, self.optional)])

    def join(self, other: Way) -> bool:
        """Take in what is written like this but for one operand."""
        if (self.name, self.optional, self.condition) != (other.name, other.optional, other.condition):
            return False
        differ = [n for n, (a, b) in enumerate(zip(self.operands, other.operands)) if b[0] not in a]
        if not differ:
            spot = self.operands[self.varied].index(other.operands[self.varied][0]) if self.varied is not None else 0
            # what has alternatives elsewhere is another way
            if any(a != b for n, (a, b) in enumerate(zip(self.operands, other.operands)) if n != self.varied):
                return False
            self.forms[spot] += other.forms[0]
            return True
        if len(differ) > 1 or self.varied not in (None, differ[0]):
            return False
        place = differ[0]
        if self.optional[place] or not (
            ALTERNATIVE.fullmatch(self.operands[place][0]) and ALTERNATIVE.fullmatch(other.operands[place][0])
        ):
            return False
        self.varied = place
        self.operands[place].append(other.operands[place][0])
        self.forms.append(other.forms[0])
        return True


def ways(candidates: Iterable[Form]) -> list[Way]:
    """How forms are written, those together that differ in the kind of one operand."""
    found: list[Way] = []
    for form in candidates:
        name = "".join(part if isinstance(part, str) else _choice(part) for part in form.name)
        operands = [[_show(_named(form, operand))] for operand in form.operands]
        new = Way(name, operands, tuple(operand.optional for operand in form.operands), [[form]])
        new.condition = _condition(form)
        if not any(way.join(new) for way in found):
            found.append(new)
    return found


def line(way: Way) -> str:
    """How an instruction is written, and its opcodes, in one line."""
    return f"{way.name} {way.tail}".strip() + f"  {_encoding(way)}"


def _condition(form: Form) -> str:
    texts = {
        f", if {_short(name, place)} is {want}": None
        for name, want in form.when_text.items()
        if not callable(want) and (place := form.find(name)) is not None
    }
    return "".join(texts)


def written(candidates: Iterable[Form], name: str, distance: Callable[[Form], tuple[int, ...]]) -> list[str]:
    """How forms are written that all have the mnemonic ``name``, modifiers included; the nearest first."""
    found = [(min(distance(form) for group in way.forms for form in group), way) for way in _ways(tuple(candidates))]
    found.sort(key=operator.itemgetter(0))
    return list(dict.fromkeys(f"{name} {way.tail}".strip() for _, way in found))


@functools.lru_cache(maxsize=500)
def _ways(candidates: tuple[Form, ...]) -> list[Way]:
    return ways(candidates)


# ---- places in the word ----------------------------------------------------------------------------------------------


def _places(place: Field) -> str:
    """``23:16``; the highest bits first where a field is split."""
    return ",".join(f"{p + w - 1}:{p}" if w > 1 else str(p) for p, w in reversed(place.places))


def _ranges(mask: int) -> list[str]:
    out: list[list[int]] = []
    for n in bits_of(mask):
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return [f"{a}" if a == b else f"{b}:{a}" for a, b in out]


def _signs(place: Register | Constant) -> list[str]:
    marks = [("-", place.neg), ("||", place.abs), (place.mark if isinstance(place, Register) else "~", place.inv)]
    if isinstance(place, Register):
        marks.append((".reuse", place.reuse))
    return [f"{mark} {bit}" for mark, bit in marks if bit is not None]


def _detail(place: Field) -> str:
    """Where a field lies, and what is odd about it."""
    if isinstance(place, Constant):
        bank = "uniform register" if place.bindless else "bank"
        unit = "" if place.offset.scale == 1 else f" / {place.offset.scale}"
        return "; ".join([f"{bank} {_places(place.bank)}; offset{unit} {_places(place.offset)}", *_signs(place)])
    if isinstance(place, Register):
        suffix = next(iter(place.suffix.values)) if place.suffix else ""
        zero = place.encode(place.prefix + place.zero + suffix) if place.zero else -1
        inverted = not zero & place.last << place.pos
        return "; ".join([_places(place) + (" inverted" if inverted else ""), *_signs(place)])
    if isinstance(place, Number):
        odd = [f"in units of {place.scale}"] * (place.scale > 1) + ["signed"] * place.signed
        return " ".join([_places(place), *odd])
    if isinstance(place, Target):
        return f"{_places(place)} in units of {place.scale}" + (", from the next instruction" if place.relative else "")
    return _places(place)


def _kind(place: Field) -> str:
    if isinstance(place, Float):
        upper = ", the upper 32 bits" if place.size == 64 else ""
        return f"floating point{upper}"
    if isinstance(place, Alone):
        return "offset"
    return re.sub(r"^an? ", "", place.what)


def _opcode(form: Form) -> str:
    return f"{form.value & 0xFFF | (form.value >> 91 & 1) << 12:#05x}"


def _set(form: Form) -> int:
    return form.value & ~(0xFFF | 1 << 91)


def _encoding(way: Way) -> str:
    """``0x223, 0x423, +74, if Ra is RZ``: opcodes of the alternatives, bits that are set in all words, conditions."""
    texts: list[list[tuple[str, int]]] = []
    for group in way.forms:
        masks: dict[str, list[int]] = {}
        for form in group:
            masks.setdefault(_opcode(form), []).append(_set(form))
        for opcode, sets in masks.items():
            if len(set(sets)) > 4:  # a register that is part of the form
                masks[opcode] = [functools.reduce(operator.and_, sets)]
        texts.append([(opcode, mask) for opcode, sets in masks.items() for mask in dict.fromkeys(sets)])
    common = functools.reduce(operator.and_, (mask for words in texts for _, mask in words))
    codes = [" or ".join(opcode + _plus(mask & ~common) for opcode, mask in words) for words in texts]
    if len(codes) == 1 and " " not in codes[0]:
        return codes[0] + _plus(common) + way.condition
    return ", ".join(codes) + (f", all {_plus(common)}" if common else "") + way.condition


def _plus(mask: int) -> str:
    return "".join("+" + text for text in _ranges(mask))


def _values(place: Enum) -> str:
    pairs = [(value, name) for value, name in place.names.items() if value or name]
    texts: list[str] = []
    numbered = [bool(re.fullmatch(rf"[A-Za-z]+{value}", name)) for value, name in pairs]  # SR138, SR139, ...
    for n, (value, name) in enumerate(pairs):
        if n and numbered[n] and numbered[n - 1] and n + 1 < len(pairs) and numbered[n + 1]:
            if texts[-1] != "...":
                texts.append("...")
        else:
            texts.append(f"{value}\0{name or '(none)'}")
    return ", ".join(texts).replace(", ..., ", " ... ")


def _table(rows: Iterable[tuple[str, ...]], widths: Sequence[int]) -> Iterator[str]:
    """Rows in columns, the last one broken into lines."""
    indent = 2 + sum(width + 2 for width in widths)
    for row in rows:
        head = "  " + "".join(f"{cell:{width}}  " for cell, width in zip(row, widths))
        yield from (line.replace("\0", " ") for line in _wrap(row[-1], head, " " * indent))


def _wrap(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _operands(found: Sequence[Form]) -> list[tuple[str, str, str]]:
    """(what is written, its kind, its bits) of all operands; places that differ from form to form name the opcodes."""
    seen: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    spans: dict[tuple[str, str], dict[int, None]] = {}
    for form in found:
        for operand in form.operands:
            for name, place in _fields(_named(form, operand)):
                if isinstance(place, Enum):
                    continue
                key = _short(name, place).lstrip("+"), _kind(place)
                seen.setdefault(key, {}).setdefault(_detail(place), {})[_opcode(form)] = None
                if place.words > 0:
                    spans.setdefault(key, {})[place.words] = None
                elif place.words < 0 and form.size is not None:
                    spans.setdefault(key, {}).update(dict.fromkeys([1, *form.size.spans.values()]))
    rows = []
    for key, details in seen.items():
        text, kind = key
        wide = sorted(spans.get(key, {}))
        if wide and wide != [1]:
            some = f"{wide[0]} to {wide[-1]}" if len(wide) > 4 else " or ".join(map(str, wide))
            kind = f"{some} {kind}s"
        if len({tuple(opcodes) for opcodes in details.values()}) == 1:
            rows.append((text, kind, ", or ".join(details)))
            continue
        for detail, opcodes in details.items():
            rows.append((text, kind, f"{detail}  (in {' '.join(opcodes)})"))
            text = kind = ""
    return rows


def _modifiers(found: Sequence[Form]) -> list[tuple[str, str]]:
    """(bits, values and names) of all modifiers, those of operands with the operand."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for form in found:
        for part in form.name:
            if isinstance(part, Enum):
                rows[_places(part), _values(part)] = {}
    for form in found:
        for operand in form.operands:
            before = ""
            for name, place in _fields(_named(form, operand)):
                suffix = place if isinstance(place, Enum) else getattr(place, "suffix", None)
                if not isinstance(place, Enum):
                    before = _short(name, place)
                if suffix is not None:
                    rows.setdefault((_places(suffix), _values(suffix)), {})[before] = None
    return [
        (bits, (f"behind {', '.join(behind)}: " if any(behind) else "") + values)
        for (bits, values), behind in rows.items()
    ]


# ---- an instruction --------------------------------------------------------------------------------------------------


def architectures(base: str) -> list[str]:
    """Where there is an instruction of this name."""
    return [name for name in ARCHS if base in forms(name).bases]


def body(forms: Forms, base: str) -> list[str]:
    """The lines that tell how an instruction is written and where its bits lie."""
    found = forms.named(base)
    lines: list[str] = []
    groups: dict[str, list[Way]] = {}
    for way in ways(found):
        groups.setdefault(way.name, []).append(way)
    for name, group in groups.items():
        broken = _wrap(re.sub(r"(?<=[})])(?=[({.])", " ", name), "", "      ")
        lines += [""] * bool(lines) + [re.sub(r"(?<=\S) ", "", line) for line in broken]
        for way in group:
            operands = way.tail or "no operands"
            codes = _encoding(way)
            if len(operands) + len(codes) + 6 > WIDTH:
                lines.append(f"    {operands}")
                operands = ""
            lines.append(f"    {operands:46}  {codes}")
    operand_rows = _operands(found)
    if operand_rows:
        widths = [max(len(row[n]) for row in operand_rows) for n in (0, 1)]
        lines += ["", "operands and their bits", *_table(operand_rows, widths)]
    modifier_rows = _modifiers(found)
    if modifier_rows:
        lines += ["", "modifiers: bits, and what each value writes"]
        lines += _table(modifier_rows, [max(len(row[0]) for row in modifier_rows)])
    return lines


def head(base: str, example: str) -> list[str]:
    """What an instruction does, what PTX and CUDA C++ call it, and a line that uses it."""
    op = table.OPS[base]
    return [op.does, *[f"PTX, CUDA: {op.ptx}"] * bool(op.ptx), *[f"for example: {example}"] * bool(example)]


def meant(word: str, mnemonics: Iterable[str], of_ptx: bool = False) -> list[str]:
    """The mnemonics that are called ``word`` in PTX or CUDA C++ ("shfl.sync"), or whose line says it ("shuffle"), the
    likeliest first."""
    word = word.lower()
    found = []
    for base in mnemonics:
        op = table.OPS[base]
        names = op.ptx.lower().replace(",", "").split()
        ranks = [
            word in names,
            any(name.startswith(word) for name in names),
            any(word in name for name in names),
            not of_ptx and re.search(rf"\b{re.escape(word)}", op.does.lower()) is not None,
        ]
        if any(ranks):
            found.append((ranks.index(True), base))
    if not found and "." in word:
        return meant(word.rpartition(".")[0], mnemonics, True)  # mma.sync.aligned: mma.sync
    return [base for _, base in sorted(found)]


def search(forms: Forms, words: str) -> list[str]:
    """The mnemonics that have every one of ``words``, or what begins so, in their name, in what they do, in what PTX
    and CUDA C++ call them, or in a modifier; those first that say more of them without their modifiers."""
    wanted = words.lower().split()
    found = []
    for base in forms.mnemonics():
        op = table.OPS[base]
        told = f"{base} {op.does} {op.ptx}".lower()
        said = [re.search(rf"(?<![a-z0-9]){re.escape(word)}", told) is not None for word in wanted]
        if not all(said):
            named = _names(forms, base)
            if not all(one or any(word in name for name in named) for one, word in zip(said, wanted)):
                continue
        found.append((-sum(said), base))
    return [base for _, base in sorted(found)] if wanted else []


def _names(forms: Forms, base: str) -> set[str]:
    """The modifiers of a mnemonic, in lower case."""
    parts = {part for form in forms.named(base) for part in form.name if isinstance(part, Enum)}
    return {name.lower() for part in parts for name in part.names.values()}


def describe(forms: Forms, base: str, example: str) -> str:
    """How an instruction (its mnemonic without modifiers) is written, its operands and modifiers and their bits, as
    text."""
    others = [name for name in architectures(base) if name != forms.name]
    title = f"{base} on {forms.name}" + (f" (also on {', '.join(others)})" if others else " (nowhere else)")
    return "\n".join([title, *head(base, example), "", *body(forms, base), "", LEGEND])
