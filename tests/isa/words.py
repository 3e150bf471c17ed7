"""Random words of the table's forms: legal ones, spread over every field, the special values among them."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Iterator

from turingas.isa import control
from turingas.isa.arch import DISTINCT
from turingas.isa.fields import Enum, Field, Register
from turingas.isa.form import Form
from turingas.isa.isa import Isa, instruction_set

#: the chips beside B200's and GeForce's differ in a few rows: they are tested where TURINGAS_ALL_ARCHS is set
BESIDE = () if os.environ.get("TURINGAS_ALL_ARCHS") else ("sm_103", "sm_110", "sm_121")
ARCHS = tuple(name for name in DISTINCT if name not in BESIDE)
#: keeps the issue slot, stalls one cycle, no scoreboards: legal with every reuse flag
PLAIN = 1 << control.YIELD | 1 << control.STALL | control.NONE << control.READ | control.NONE << control.WRITE


class Draw(random.Random):
    """Random numbers; the values of one modifier come in turn, so that all of them are seen soon."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.turns: dict[Enum, Iterator[int]] = {}

    def value(self, enum: Enum) -> int:
        turn = self.turns.get(enum)
        if turn is None:
            values = list(enum.names)
            self.shuffle(values)
            turn = self.turns[enum] = itertools.cycle(values)
        return enum.put(next(turn))


def random_word(form: Form, rng: Draw) -> int:
    """Return a word of this form with control bits 0. It may still hold what has no text: ask ``isa.explain``."""
    word = form.value | 0x7000
    if rng.random() < 0.3:
        word = form.value | rng.randrange(16) << 12
    for part in form.name:
        if isinstance(part, Enum):
            word |= rng.value(part)
    for field in dict.fromkeys(f for operand in form.operands for f in operand.fields):
        word |= random_value(field, form, word, rng)
    for field, wanted in form.tests:
        choices = [n for n in (0, 1, 2, 1 << rng.randrange(32), (1 << field.width) - 1, field.get(word)) if wanted(n)]
        word = word & ~field.mask | field.put(rng.choice(choices or [0]))
    word = word & ~form.check_mask | form.check_value
    return word & ~(control.MASK & ~form.known)


def random_value(field: Field, form: Form, word: int, rng: Draw) -> int:
    """Return random bits of one field, at their place."""
    noise = rng.getrandbits(128) & rng.choice((field.mask, rng.getrandbits(128) & field.mask))
    if isinstance(field, Register):
        words = field.words if field.words >= 0 else form.size.span(word) if form.size else 1
        step = 4 if words > 2 else max(words, 1)
        index = rng.randrange(0, max(field.count - words + 1, 1), step) if rng.random() < 0.8 else field.last
        signs = noise if rng.random() < 0.4 else 0
        return signs & field.mask & ~(field.last << field.pos) | index << field.pos
    if isinstance(field, Enum):
        return rng.value(field)
    if field.default is not None and rng.random() < 0.3:
        return field.default
    return noise


def words_of(isa: Isa, form: Form, count: int, rng: Draw, tries: int = 40) -> Iterator[int]:
    """Yield ``count`` random words that the table explains, by this form unless an alias row stands before it."""
    found = 0
    for _ in range(count * tries):
        word = random_word(form, rng)
        if isa.explain(word) is not None:
            yield word
            found += 1
            if found == count:
                return


def random_control(rng: random.Random) -> int:
    """Return legal control bits (without reuse)."""
    scoreboards = (control.NONE, 0, 1, 2, 3, 4, 5)
    keep = rng.random() < 0.5
    return (
        (rng.randint(1, 11) if keep else rng.randrange(16)) << control.STALL
        | keep << control.YIELD
        | rng.choice(scoreboards) << control.READ
        | rng.choice(scoreboards) << control.WRITE
        | rng.getrandbits(6) << control.WAIT
    )


@functools.lru_cache(maxsize=2)
def sample(arch: str, each: int = 4) -> list[tuple[Form, int]]:
    """Return ``each`` random words of every form of arch, control bits 0; the same ones in every run."""
    rng = Draw(arch)
    isa = instruction_set(arch)
    return [(form, word) for form in isa.all_forms() for word in words_of(isa, form, each, rng)]
