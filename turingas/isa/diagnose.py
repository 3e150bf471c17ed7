"""Why a line cannot be encoded, and what to write instead."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from turingas.errors import EncodeError, UnknownLabel
from turingas.isa import describe, table
from turingas.isa.fields import Enum
from turingas.isa.form import Form
from turingas.isa.forms import Forms

MEANT = 6  # mnemonics that a hint explains


class Line:
    """An instruction as it is written: the whole ``text``, what follows its guard, its mnemonic, its operands."""

    def __init__(self, text: str, rest: str, name: str, parts: list[str]) -> None:
        self.text, self.rest, self.name, self.parts = text, rest, name, parts

    @functools.cached_property
    def places(self) -> list[int]:
        """Where the mnemonic (0) and each operand (1, 2, ...) begin; worked out when an error needs it."""
        at = max(self.text.find(self.rest), 0)
        places = [at]
        cursor = at + len(self.name)
        for part in self.parts:
            found = self.text.find(part, cursor)
            places.append(found if found >= 0 else cursor)
            cursor = places[-1] + len(part)
        return places


class Problem(NamedTuple):
    """Why a line is not an instruction of this form; the one of the highest ``rank`` is told."""

    rank: int
    kind: str  # "operands", "guard", "twice", "values", "tests"; "value": ``message`` tells of the operand ``at``
    form: Form
    at: int = 0
    message: str = ""


def error(forms: Forms, line: Line, problem: Problem | None) -> EncodeError:
    """What to say of a line that is no instruction; ``problem`` is None where no form has its mnemonic."""
    name, parts, places = line.name, line.parts, line.places
    base = name.partition(".")[0]
    if problem is None:
        candidates = forms.named(base)
        return bad_modifier(forms, candidates, name, places[0]) if candidates else unknown(forms, base, places[0])
    form = problem.form
    if problem.kind == "operands":
        return misfit(forms, form, line)
    if problem.kind == "guard":
        return EncodeError(f"{base} is guarded by {form.guard}0 to {form.guard}6", 0)
    if problem.kind == "twice":
        return EncodeError(f"{name} takes one register, written twice", places[len(parts)])
    if problem.kind == "value":
        return value_error(problem.message, base, parts[problem.at], places[1 + problem.at])
    wanted = ", ".join(f"{k} = {v}" for k, v in form.when_text.items() if not callable(v))
    hint = f"{name} needs {wanted}" if wanted and problem.kind == "values" else ""
    return EncodeError(f"{name} does not take these operands", places[0], hint)


def unknown_label(name: str, labels: Mapping[str, int]) -> UnknownLabel:
    return UnknownLabel(f"undefined label {name!r}", 0, nearest(name, labels))


def unknown(forms: Forms, base: str, position: int) -> EncodeError:
    elsewhere = _names(other for other in forms.others() if any(row.base == base for row in other.rows))
    if elsewhere:
        kin = [name for name in table.OPS[base].kin if forms.named(name)]
        hint = f"it exists on {elsewhere}"
        hint += f"; here use {' and '.join(kin)}" if kin else ""
        return EncodeError(f"{forms.name} has no {base}", position, hint)
    if not base:
        return EncodeError("an instruction is missing here", position, ".word takes neither control code nor guard")
    everywhere = {row.base for row in table.ROWS}
    if base.upper() in everywhere:
        hint = "instructions are written in capitals"
    else:
        hint = nearest(base.upper(), everywhere) or meant(forms, base)
    return EncodeError(f"unknown instruction {base!r}", position, hint)


def meant(forms: Forms, word: str) -> str:
    """A hint with the mnemonics that PTX or CUDA C++ call so, or whose line says this word; "" for none."""
    found = describe.meant(word, forms.mnemonics())[:MEANT]
    return "; ".join(f"{name}: {table.OPS[name].does}" for name in found)


def bad_modifier(forms: Forms, candidates: list[Form], name: str, position: int) -> EncodeError:
    base, *given = name.split(".")
    known: dict[str, None] = {}
    for form in candidates:
        for part in form.name:
            texts = [part] if isinstance(part, str) else list(part.values)
            for text in texts:
                known.update(dict.fromkeys("." + t for t in text.split(".")[1:]))
    at = position + len(base)
    for modifier in given:
        if "." + modifier not in known:
            hint = nearest("." + modifier, known) or f"{base} takes " + " ".join(known)
            where = _elsewhere(forms, base, "." + modifier)
            return EncodeError(f"{base} has no modifier .{modifier}", at, where or hint)
        at += len(modifier) + 1
    arranged = sorted(filter(None, (_arrange(form, given) for form in candidates)))
    if arranged and arranged[0][0] == 0:
        return EncodeError(f"the modifiers of {name} are in the wrong order", position, f"write {arranged[0][1]}")
    if arranged:
        return EncodeError(f"{name} lacks a modifier", position, f"it is written {arranged[0][1]}")
    shorter = [".".join([base, *given[:n], *given[n + 1 :]]) for n in range(len(given))]
    for less in shorter:
        if any(form.modifiers(less) for form in candidates):
            dropped = next(m for n, m in enumerate(given) if shorter[n] == less)
            return EncodeError(f"{name} cannot have .{dropped} on {forms.name}", position, f"write {less}")
    orders = dict.fromkeys("".join(p if isinstance(p, str) else _slot(p) for p in f.name) for f in candidates)
    hint = "it is written " + " or ".join(list(orders)[:2])
    return EncodeError(f"the modifiers of {name} do not go together", position, hint)


def _elsewhere(forms: Forms, base: str, modifier: str) -> str:
    def has_it(form: Form) -> bool:
        texts = [text for part in form.name for text in ([part] if isinstance(part, str) else part.values)]
        return any(modifier in re.findall(r"\.\w+", text) for text in texts)

    names = _names(other for other in forms.others() if any(has_it(form) for form in other.named(base)))
    return f"it exists on {names}" if names else ""


def _names(found: Iterable[Forms]) -> str:
    """Architectures; sm_90a only where sm_90 is not one of them."""
    archs = {forms.name: forms.arch for forms in found}
    return ", ".join(name for name, arch in archs.items() if not (name[-1].isalpha() and arch.parent in archs))


def misfit(forms: Forms, form: Form, line: Line) -> EncodeError:
    name, parts, places = line.name, line.parts, line.places
    candidates = [f for f in forms.named(form.base) if f.modifiers(name)]
    unsaid_by = form.lossy(parts)
    if unsaid_by is not None and not any(_prefix(f, parts[: unsaid_by[0] + 1]) for f in candidates):
        n, operand = unsaid_by
        before, unsaid, _ = re.split("[<>]", operand.source, maxsplit=2)
        unsaid = re.sub("UR[abc]", "UR4", unsaid)
        hint = f"nvdisasm leaves it out; write it as {before}{unsaid}{parts[n].removeprefix(before)}, for example"
        what = "which descriptor register is used" if "desc" in unsaid else f"{unsaid}, which the word holds"
        return EncodeError(f"{parts[n]} does not say {what}", places[1 + n], hint)
    # the forms nearest to what is written come first
    written = describe.written(candidates, name, lambda form: _distance(form, parts))
    # the operand that fits no form that agrees with all before it
    alive, n = candidates, 0
    while n < len(parts):
        fitting = [f for f in alive if _prefix(f, parts[: n + 1])]
        if not fitting:
            break
        alive, n = fitting, n + 1
    hint = "it is written " + "; or ".join(written[:6]) + ("; ..." if len(written) > 6 else "")
    if n >= len(parts):
        return EncodeError(f"{name} has too few operands", places[0], hint)
    if any(_prefix(f, [*parts[:n], parts[n].upper()]) for f in alive):
        hint = "registers and names are written in capitals"
    elif meant := _look_alike(alive, parts, n):
        hint = f"did you mean {meant!r}, with a digit?"
    elif close := _close(alive, parts, n):
        hint = close
    elif other := _other_width(alive, parts, n):
        hint = f"did you mean {other!r}? So an address of 64 bits is written on {forms.name}"
    elif all(len(f.operands) <= n for f in alive):
        return EncodeError(f"{name} has too many operands", places[1 + n], hint)
    elif _one_too_many(candidates, parts):
        hint = f"only one source may be a constant, an immediate or a uniform register; {hint}"
    return EncodeError(f"operand {parts[n]!r} does not fit {name}", places[1 + n], hint)


LETTERS = re.compile(r"(?<=[RPB\d])[OoIl]+(?![A-Za-z_])|(?<=\b0x)[OoIl]+|(?<=[\dA-Fa-f])[OoIl]+(?=[\dA-Fa-f])")
DIGITS = str.maketrans("OoIl", "0011")


def digits(text: str) -> str:
    """``RO``, ``Rl2``, ``0xO1`` with the digits that these letters look like: ``R0``, ``R12``, ``0x01``."""
    return LETTERS.sub(lambda found: found[0].translate(DIGITS), text)


def guard_hint(text: str) -> str:
    """What to write instead of ``@PO``."""
    read = digits(text)
    return f"did you mean {read!r}, with a digit?" if read != text else "a guard is @P0 to @P6, @PT, or @!P0 and so on"


def _look_alike(alive: Sequence[Form], parts: Sequence[str], n: int) -> str:
    """Operand ``n`` with digits in place of letters that look like them, if it then fits; else ""."""
    read = digits(parts[n])
    return read if read != parts[n] and any(_prefix(form, [*parts[:n], read]) for form in alive) else ""


def _other_width(alive: Sequence[Form], parts: Sequence[str], n: int) -> str:
    """Operand ``n`` with a descriptor, with .64 behind its register, or without, if it then fits; else ""."""
    address = ADDRESS.fullmatch(parts[n])
    if address is None:
        return ""
    before, wide, after = address.groups()
    others = [f"desc[UR4]{parts[n]}", f"{before}{'' if wide else '.64'}{after}"]
    return next((one for one in others if any(_prefix(form, [*parts[:n], one]) for form in alive)), "")


ADDRESS = re.compile(r"((?:~?desc\[\w+\])?\[R\d+)(\.64)?((?:\+[^\]]*)?\])")
NO_REGISTER = re.compile(r"[-~|]*(?:cx?\[|UR[\dZ]|[+.\d]|INF|QNAN)")  # how such a source begins


def _one_too_many(candidates: Sequence[Form], parts: Sequence[str]) -> bool:
    """Whether the line would do if only one of its sources were no register."""
    others = [k for k, part in enumerate(parts) if NO_REGISTER.match(part)]
    kept = ([part if k == one or k not in others else "R2" for k, part in enumerate(parts)] for one in others)
    return len(others) > 1 and any(_prefix(form, line) for line in kept for form in candidates)


def _distance(form: Form, parts: Sequence[str]) -> tuple[int, int]:
    """How far a form is from what is written: operands of another kind, and how many there are too many or too few."""
    unlike = sum(not operand.matches(part) for operand, part in zip(form.operands, parts))
    return unlike, abs(len(form.operands) - len(parts))


def _close(alive: Sequence[Form], parts: Sequence[str], n: int) -> str:
    """A hint with the name that operand ``n`` may have, where names may stand there (S2R's special registers)."""
    names = [
        text
        for form in alive
        for operand in form.operands[n : n + 1]
        for field in operand.fields
        if isinstance(field, Enum) and len(operand.fields) == 1
        for text in field.values
    ]
    return nearest(parts[n], names)


def _slot(part: Enum) -> str:
    """The choices of a modifier: in ( ) when one of them must be written, in { } when none need be."""
    names = [n for n in part.values if n]
    choices = "|".join(names[:6]) + ("|..." if len(names) > 6 else "")
    if "" in part.values:
        return f"{{{choices}}}" if names else ""
    return f"({choices})" if len(names) > 1 else choices


def _arrange(form: Form, given: Sequence[str]) -> tuple[int, str] | None:
    """The mnemonic of this form with the given modifiers in its order, and how many more it needs; None if it has
    not all of them."""
    left, lacking, text = list(given), 0, form.base
    for n, part in enumerate(form.name):
        names: Iterable[str] = part.values if isinstance(part, Enum) else [part[len(form.base) :] if n == 0 else part]
        if names == [""]:
            continue
        fitting = [name for name in names if name and all(left.count(t) for t in name.split(".")[1:])]
        if fitting:
            best = max(fitting, key=lambda name: name.count("."))
            for token in best.split(".")[1:]:
                if token in left:
                    left.remove(token)
            text += best
        elif "" not in names:
            lacking += 1
            text += _slot(part) if isinstance(part, Enum) else "".join(names)
    return None if left else (lacking, text)


def _prefix(form: Form, parts: Sequence[str]) -> bool:
    """Whether the first operands of a line could be those of this form."""

    def walk(n: int, k: int) -> bool:
        if k == len(parts):
            return True
        if n == len(form.operands):
            return False
        operand = form.operands[n]
        return (operand.matches(parts[k]) and walk(n + 1, k + 1)) or (operand.optional and walk(n + 1, k))

    return walk(0, 0)


def value_error(message: str, base: str, part: str, place: int) -> EncodeError:
    """A value that does not fit: the caret goes to the value itself where the message begins with it."""
    inside = max(part.find(message.split(" ", 1)[0]), 0)
    return EncodeError(message.replace(" bits (", f" bits of {base} (", 1), place + inside)


def nearest(name: str, known: Mapping[str, object] | Sequence[str] | set[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"did you mean {close[0]!r}?" if close else ""
