"""What C++ makes of a kernel's name, as far as it takes to find ``add<int>`` or ``ns::add`` among mangled names.

Itanium C++ ABI, "Mangling": names with their lengths, N and E around those with a scope, I and E around the arguments
of a template, J and E around those of a pack. Types that stood before may be S_, S0_ and so on: any of these fits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: builtin types, as people write them
TYPES = {
    "void": "v", "bool": "b", "char": "c", "signed char": "a", "unsigned char": "h", "float": "f", "double": "d",
    "short": "s", "int": "i", "long": "l", "long long": "x", "unsigned short": "t", "unsigned int": "j",
    "unsigned": "j", "unsigned long": "m", "unsigned long long": "y", "int8_t": "a", "uint8_t": "h", "int16_t": "s",
    "uint16_t": "t", "int32_t": "i", "uint32_t": "j", "int64_t": "[lx]", "uint64_t": "[my]", "size_t": "[my]",
    "half": "6__half", "nv_bfloat16": "13__nv_bfloat16", "half2": "7__half2", "nv_bfloat162": "14__nv_bfloat162",
}  # fmt: skip
#: words that an integer's name may have in any order, of which int and signed say nothing
INTEGERS = {"int", "signed", "unsigned", "short", "long", "char"}
POINTERS = {"*": "P", "&&": "O", "&": "R"}
#: what may stand on either side of a type, or behind a *, in the order that the letters have
QUALIFIERS = {"__restrict__": "r", "__restrict": "r", "restrict": "r", "volatile": "V", "const": "K"}
POINTER = re.compile(rf"(?P<inner>.+?)\s*(?P<mark>\*|&&|&)(?P<words>(?:\s*\b(?:{'|'.join(QUALIFIERS)})\b)*)")
BEFORE = "S[0-9A-Z]*_"  # a type that stood before
NAME = re.compile(r"[A-Za-z_]\w*")


def those(names: Sequence[str], name: str) -> list[str]:
    """The mangled ones of functions that C++ calls ``name``: with a scope, arguments of a template, or without; none
    if this is no name, or has arguments that are not read here."""
    made = _name(name)
    if made is None:
        return []
    called = re.compile(made)
    return [one for one in names if one.startswith("_Z")
            and any(called.match(one, at) and _begins(one, at) for at in range(len("_Z"), len(one)))]  # fmt: skip


def _begins(mangled: str, at: int) -> bool:
    """Whether a name with its length begins at a place: behind digits only if these end the name before (_GLOBAL__N__7,
    sm90)."""
    if not mangled[at - 1].isdigit():
        return True
    runs = re.finditer("[0-9]+", mangled[: at - 1])  # of digits: perhaps the end of a name, and the length of the next
    return any(at - one.end() == int(one[0][n:]) for one in runs for n in range(len(one[0])))


def _name(name: str) -> str | None:
    base, bracket, arguments = name.partition("<")
    scopes = [part.strip() for part in base.split("::")]
    if not all(map(NAME.fullmatch, scopes)) or bracket and not arguments.rstrip().endswith(">"):
        return None
    made = "".join(f"{len(part)}{part}" for part in scopes)
    if bracket:
        listed = [_argument(one) for one in _split(arguments.rstrip()[:-1])]
        if None in listed:
            return None
        made += f"I{''.join(f'J?{one}' for one in listed)}(?:JE|E)?E"
    return made


def _argument(text: str) -> str | None:
    """A type or a number, as a pattern."""
    text = text.strip()
    if text in ("true", "false"):
        return f"Lb{int(text == 'true')}E"
    if number := re.fullmatch(r"(?:\((.+)\))?(-?)(\d+)[uUlL]*", text):  # (E)1: of an enumeration
        kind = _argument(number[1]) if number[1] else "[a-z]"
        return kind and f"L{kind}{'n' if number[2] else ''}{int(number[3])}E"
    if pointer := POINTER.fullmatch(text):
        inner = _argument(pointer["inner"])
        return inner and _qualified(pointer["words"].split(), POINTERS[pointer["mark"]] + inner)
    outside, bracket, inside = text.partition("<")
    inside, bracket_, behind = inside.rpartition(">")
    ahead, after = (" ".join(word for word in side.split() if word not in QUALIFIERS) for side in (outside, behind))
    made = _type(ahead + bracket + inside + bracket_ + after)
    return made and _qualified([*outside.split(), *behind.split()], made)


def _qualified(words: Sequence[str], made: str) -> str:
    """A type with those of the words that are qualifiers. Without any, one letter is a builtin type, which S_ never
    stands for."""
    letters = "".join(dict.fromkeys(letter for word, letter in QUALIFIERS.items() if word in words))
    if not re.fullmatch(r"\w|\[\w+\]", made):
        made = f"(?:{made}|{BEFORE})"
    return f"(?:{letters}{made}|{BEFORE})" if letters else made


def _type(text: str) -> str | None:
    """A type without qualifiers, as a pattern."""
    if (words := set(text.split())) and words <= INTEGERS:
        silent = {"int"} if "char" in words else {"int", "signed"}
        kept = [word for word in text.split() if word not in silent]
        text = " ".join(sorted(kept, key=lambda word: word not in ("signed", "unsigned"))) or "int"
    if text in TYPES:
        return TYPES[text]
    scoped, *more = text.partition("<")
    own = scoped.rpartition("::")[2].strip()
    inner = _name(own + "".join(more))  # a class: what its scope is may have stood before,
    if inner and more[0]:  # and the template without its arguments (Tag<Tag<int>>), scope and all
        name = f"{len(own)}{own}"
        return rf"(?:(?:N\w*?)?{name}|N?{BEFORE}){inner.removeprefix(name)}E?"
    return inner and rf"(?:N\w*?)?{inner}E?"


def _split(text: str) -> list[str]:
    """At the commas that are in no angle brackets."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
