"""The control code: bits 105 to 125 of every word, in both directions.

Two spellings are read: TuringAs's ``wait:read:write:yield:stall`` (``01:-:2:Y:4``; the one that is printed) and
CuAssembler's ``B0-----:R-:W2:Y:S04``. Positions and meaning: Yan, Wang, Chu 2020 section 5.1.4; which combinations
exist was probed with nvdisasm (it refuses the others).

* wait: a mask of the scoreboards 0 to 5 to wait for; two hexadecimal digits or ``--``. TuringAs read the digits as
  decimal, maxas as hexadecimal. From 10 on the two differ, so only a mask that cannot be misread is accepted:
  hexadecimal written with ``0x`` or with a leading zero or a letter (``0x12``, ``0a``, ``3f``); ``10`` to ``39`` are
  refused with both readings as a hint.
* read, write: the scoreboard (0 to 5) that this instruction releases, or ``-``.
* yield: ``-`` keeps the issue slot (bit 109 set), ``Y`` prefers another warp (bit clear).
* stall: cycles before the next instruction of this warp, 0 to 15: one hexadecimal digit, as in TuringAs and maxas
  (two decimal ones are read too). ``-`` goes with 1 to 11, ``Y`` with all of them; reuse flags not with 0.
* A sixth part, ``:abcd``, sets reuse bits that the operands cannot show. NVIDIA's compiler leaves such bits on
  instructions without reuse slots (LDG, BRA, ...); they mean nothing, but they are bits of the word.
"""

from __future__ import annotations

import contextlib
import functools
import re

MASK = ((1 << 21) - 1) << 105
STALL, YIELD, WRITE, READ, WAIT, REUSE = 105, 109, 110, 113, 116, 122
REUSE_MASK = 15 << REUSE  # the fourth, d, is seen on sparse IMMA alone; nvdisasm never prints it
NONE = 7
NO_BOARD = 6  # a control code has room for it, but there is no such scoreboard

TURINGAS = re.compile(
    r"(?P<wait>--|-|(?:0[xX])?[0-9a-fA-F]{1,2}):(?P<read>[-\d]):(?P<write>[-\d]):(?P<yield>[-Yy]):"
    r"(?P<stall>\d{1,2}|[a-fA-F])(?::(?P<reuse>a?b?c?d?))?"
)
CUASSEMBLER = re.compile(
    r"\[?B(?P<wait>[-0-5]{6}):R(?P<read>[-\d]):W(?P<write>[-\d]):(?P<yield>[-Yy]):S(?P<stall>\d{1,2})\]?"
)
#: A text that looks like a control code, right or wrong: what a line may begin with.
LIKE = re.compile(r"\[?[^\s:\[\]@]{1,7}:[^\s:]{1,3}:[^\s:]{1,3}:[^\s:]?:[^\s:]{1,4}(?::[^\s:]*)?(?=\s|$)")


class ControlError(ValueError):
    """A control code that is malformed or that the hardware does not have; ``hint`` says what to write."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


_WAITS = ["--"] + [f"{wait:02x}" if wait < 10 or wait % 16 > 9 else f"0x{wait:02x}" for wait in range(1, 64)]
_BOARDS = "0123456-"
#: of the five parts that ``show`` writes: text -> bits
_PARTS: list[dict[str, int]] = [
    {text: wait << WAIT for wait, text in enumerate(_WAITS)},
    *({text: board << place for board, text in enumerate(_BOARDS) if board != NO_BOARD} for place in (READ, WRITE)),
    {"-": 1 << YIELD, "Y": 0},
    {f"{stall:x}": stall << STALL for stall in range(16)},
]

FORM = "write wait:read:write:yield:stall, for example 01:-:2:Y:4, or B0-----:R-:W2:Y:S04"


def _wait(text: str) -> int:
    if text.strip("-") == "":
        return 0
    if text.isdecimal() and len(text) == 2 and text[0] != "0":
        decimal, hexadecimal = int(text), int(text, 16)
        readings = [f"0x{v:02x}" for v in (decimal, hexadecimal) if v < 64] or ["a mask of 6 bits, 0x00 to 0x3f"]
        raise ControlError(
            f"wait mask {text} is ambiguous: TuringAs (2020) reads {decimal}, maxas reads {hexadecimal}",
            "write " + " or ".join(dict.fromkeys(readings)),
        )
    value = int(text, 16)
    if value > 63:
        raise ControlError(f"wait mask {text} is out of range", "it has 6 bits, one a scoreboard: 00 to 0x3f")
    return value


def _scoreboard(text: str, role: str) -> int:
    if text == "-":
        return NONE
    if text not in "012345":
        raise ControlError(f"{role} scoreboard {text} is out of range", "scoreboards are 0 to 5, or - for none")
    return int(text)


#: every control code seen so far
known: dict[str, int] = {}


def parse(text: str) -> int:
    """The control bits at their place in the word. ControlError for text that is no control code."""
    bits = known.get(text)
    if bits is None:
        if len(known) > 100_000:
            known.clear()
        bits = known[text] = _parse(text)
    return bits


def parsed(text: str) -> int | None:
    """The same; None of what is no control code: a label, or a mistake."""
    bits = known.get(text)
    if bits is None and ":" in text[:-1]:
        with contextlib.suppress(ControlError):
            return parse(text)
    return bits


def _parse(text: str) -> int:
    parts = text.split(":")
    if len(parts) == len(_PARTS):  # as ``show`` writes it, nearly always
        with contextlib.suppress(KeyError):
            bits = sum([of[part] for of, part in zip(_PARTS, parts)])
            if not illegal(bits):
                return bits
    match = TURINGAS.fullmatch(text)
    if match:
        wait = _wait(match["wait"])
    else:
        match = CUASSEMBLER.fullmatch(text)
        if not match:
            raise ControlError(f"{text!r} is not a control code", FORM)
        wait = 0
        for place, digit in enumerate(match["wait"]):
            if digit != "-" and int(digit) != place:
                raise ControlError(f"scoreboard {digit} is in the place of {place}", "for example B01--4-")
            wait |= (digit != "-") << place
    stall_text = match["stall"]
    stall = int(stall_text) if stall_text.isdecimal() else int(stall_text, 16)
    if stall > 15:
        raise ControlError(f"stall {stall} is out of range", "a warp stalls for 0 to 15 cycles")
    keep = match["yield"] == "-"
    bits = (
        stall << STALL
        | keep << YIELD
        | _scoreboard(match["write"], "write") << WRITE
        | _scoreboard(match["read"], "read") << READ
        | wait << WAIT
    )
    extra = match["reuse"] if "reuse" in match.re.groupindex else None
    for letter in extra or "":
        bits |= 1 << REUSE + "abcd".index(letter)
    problem = illegal(bits)
    if problem:
        raise ControlError(*problem)
    return bits


def illegal(word: int) -> tuple[str, str] | None:
    """Why the hardware has no such combination of yield, stall and reuse (message, hint), or None."""
    return _illegal(word & (15 << STALL | 1 << YIELD | REUSE_MASK))


@functools.cache
def _illegal(word: int) -> tuple[str, str] | None:
    stall = word >> STALL & 15
    if word >> YIELD & 1:
        if stall == 0:
            return "stall 0 needs yield Y", "write Y:0, or a stall of 1 to 11 with -"
        if stall > 11:
            return f"stall {stall} needs yield Y", "a kept issue slot (-) goes with a stall of 1 to 11"
    elif word & REUSE_MASK:
        if stall == 0:
            return "stall 0 cannot keep a register for reuse", "take .reuse away, or stall for a cycle or more"
        if word >> REUSE & 6 == 6:
            return "a yielding instruction cannot reuse both b and c", "write -, or take one .reuse away"
    return None


_shown: dict[int, str] = {}


def show(word: int, reuse: int = 0) -> str:
    """``wait:read:write:yield:stall`` of a word; ``reuse`` holds the reuse bits that its operands do not show."""
    key = (word & MASK & ~REUSE_MASK) | reuse
    text = _shown.get(key)
    if text is None:
        wait, read, write = word >> WAIT & 63, word >> READ & 7, word >> WRITE & 7
        if read == 6 or write == 6:
            raise ValueError("scoreboard 6 does not exist")
        kept = "-" if word >> YIELD & 1 else "Y"
        text = f"{_WAITS[wait]}:{_BOARDS[read]}:{_BOARDS[write]}:{kept}:{word >> STALL & 15:x}"
        if reuse:
            text += ":" + "".join(letter for n, letter in enumerate("abcd") if reuse >> REUSE + n & 1)
        if len(_shown) > 100_000:
            _shown.clear()
        _shown[key] = text
    return text
