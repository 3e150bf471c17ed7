"""What the author wrote of a control code, where the scheduler fills in the rest."""

from __future__ import annotations

from typing import NamedTuple

from turingas.isa import control

MOST_KEPT = 11  # cycles that a warp can stall without yielding
YIELD = "ptxas"  # how codes yield that nobody says anything of


class Given(NamedTuple):
    """The parts of a control code that are given; None: to be filled in. ``wait`` is a mask, ``read`` and ``write`` are
    scoreboards (7: none)."""

    wait: int | None = None
    read: int | None = None
    write: int | None = None
    yields: bool | None = None
    stall: int | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is to be filled in."""
        return None not in self


NOTHING = Given()
#: stands for what is filled in later
NEUTRAL = 1 << control.STALL | 1 << control.YIELD | control.NONE << control.WRITE | control.NONE << control.READ


def whole(word: int) -> Given:
    """All of the control code of a word."""
    return Given(
        word >> control.WAIT & 63, word >> control.READ & 7, word >> control.WRITE & 7,
        not word >> control.YIELD & 1, word >> control.STALL & 15,
    )  # fmt: skip


def given(text: str) -> Given:
    """``wait:read:write:yield:stall``, some of them ``?`` (of the wait ``??`` too); "" or ``?`` is nothing.
    ControlError for what is no such code."""
    if text in ("", "?"):
        return NOTHING
    parts = text.replace("??", "?", text.startswith("??")).split(":")
    if "?" not in parts or len(parts) != 5:
        bits = control.parse(text)
        parts = []
    else:  # the other parts are read with something that goes with them in the place of each ?
        stall = parts[4]
        keep = "Y" if stall == "?" or not stall.isdecimal() or not 1 <= int(stall) <= MOST_KEPT else "-"
        stand_in = ("--", "-", "-", keep, "1" if parts[3] == "-" else "c")
        whole_text = ":".join(s if part == "?" else part for part, s in zip(parts, stand_in))
        try:
            bits = control.parse(whole_text)
        except control.ControlError as error:  # of the text as it was written
            raise control.ControlError(error.message.replace(whole_text, text), error.hint) from None
    known = [part != "?" for part in parts] or [True] * 5
    return Given(*[value if there else None for value, there in zip(whole(bits), known)])  # type: ignore[arg-type]
