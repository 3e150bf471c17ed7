"""What an instruction set remembers is bounded, and threads share one set of it."""

from __future__ import annotations

import gc
import random
import sys
import threading

import pytest

import turingas
from turingas.errors import EncodeError
from turingas.isa import forms, operands
from turingas.isa.encode import Encoder
from turingas.isa.forms import Forms
from turingas.isa.isa import Isa

MANY = 20_000


def entries(isa: Isa) -> int:
    """All entries of all dictionaries, lists and sets that hang on an instruction set, modules and classes aside."""
    seen, left, count = {id(sys.modules)}, [isa], 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (type, type(sys), type(entries))):
            continue
        seen.add(id(one))
        count += len(one) if isinstance(one, (dict, list, set)) else 0
        left += gc.get_referents(one)
    return count


@pytest.fixture
def fresh() -> Isa:
    return Isa(Forms(forms.forms("sm_75").arch))


def test_branches_to_many_labels(fresh):
    """A target says nothing of the form, so its name is not kept as a kind of operand."""
    for n in range(MANY):
        label = f"there_{n}_xyz{'_' * (n % 97)}{chr(71 + n % 19)}"
        fresh.encode(f"BRA {label}", 0, {label: 16 * n})
        fresh.encode(f"BRA P0, {label}", 0, {label: 16 * n})
    assert sum(map(len, fresh.encoder._entries.values())) == 2


def test_mnemonics_that_do_not_exist(fresh):
    def wrong(line: str) -> None:
        with pytest.raises(EncodeError):
            fresh.encode(line)

    wrong("FFMA.BAD R0, R1, R2, R3")
    before = entries(fresh)
    for n in range(MANY // 20):  # each says why, which takes its time
        wrong(f"FFMA.BAD{n} R0, R1, R2, R3")
    for n in range(MANY):  # the part that could remember them
        assert not fresh.forms.reading(f"FFMA.WORSE{n}")
    assert entries(fresh) - before < 3 * MANY // 20  # the texts of operands at most, far below one a name


def test_all_memories_start_anew_when_they_are_full(fresh, monkeypatch):
    """Numbers, offsets, constants and targets, three times as many as a memory holds."""
    monkeypatch.setattr(operands, "MEMO", 1000)
    peak = 0
    for n in range(3000):
        for text in (f"MOV R1, {n:#x}", f"LDG.E.SYS R0, [R2+{n:#x}]", f"BRA {16 * n:#x}"):
            word = fresh.encode(text, 16 * n)
            assert fresh.decode(word, 16 * n)
        if n % 500 == 499:
            peak = max(peak, *(len(memory) for memory in memories(fresh)))
    assert peak == 1000


def memories(isa: Isa) -> list[dict[object, object]]:
    operands = [o for form in isa.all_forms() for o in form.operands]
    texts = [
        texts
        for form in isa.all_forms()
        for plain in (False, True)
        for texts, mask in form.units(plain)
        if isinstance(mask, int)
    ]
    return [*(o.bits for o in operands), *texts, *isa.encoder._entries.values(), isa.decoder.exact_seen]


def test_threads_share_one_set_of_forms():
    """Forms are keys of caches elsewhere: two objects for one row would fill those twice."""
    words = turingas.encode("FFMA R0, R1, R2, R3\nIADD3 R0, R1, 0x1, RZ\nLDG.E.SYS R0, [R2]", "sm_75", "--:-:-:-:2")
    for _ in range(20):
        isa = Isa(Forms(forms.forms("sm_75").arch))
        found: list[list[int]] = []
        start = threading.Barrier(4)

        def look(isa: Isa = isa, found: list[list[int]] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append([*(id(isa.explain(word)) for word in words), *map(id, isa.named("LDG"))])

        threads = [threading.Thread(target=look) for _ in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert len(found) == 4 and all(one == found[0] for one in found)


def test_a_line_is_read_the_same_whatever_was_seen_before():
    """Branches and plain operands of one mnemonic, in any order."""
    rng, lines = random.Random(1), ["CALL.REL.NOINC there", "CALL.REL.NOINC R2 0x40", "CALL.ABS.NOINC there"]
    isa = forms.forms("sm_75")
    for _ in range(20):
        rng.shuffle(lines)
        encoder = Encoder(isa)
        for text in lines:
            try:
                word: object = encoder.encode(text, 0, {"there": 0x100})
            except EncodeError as error:
                word = error.message
            try:
                alone: object = Encoder(isa).encode(text, 0, {"there": 0x100})
            except EncodeError as error:
                alone = error.message
            assert word == alone


SIGNED = [
    ("FADD R0, R1, R2", "FADD R0, -R1.reuse, |R2|"),
    ("ISETP.GE.AND P0, PT, R1, R2, PT", "ISETP.GE.AND P0, PT, R1, R2, !P1"),
    ("STG.E.U8 desc[UR4][R2.64+0x4], R0", "STG.E.U8 ~desc[UR4][R2.64+0x4], R0"),
]


@pytest.mark.parametrize(("one", "other"), SIGNED)
def test_what_was_seen_before_does_not_decide(one, other):
    """Operands that look alike but for signs and reuse flags: none is taken for another."""
    alone = [Isa(Forms(forms.forms("sm_80").arch)).encode(line) for line in (one, other)]
    for lines in ((one, other), (other, one)):
        isa = Isa(Forms(forms.forms("sm_80").arch))
        found = {line: isa.encode(line) for line in lines * 2}
        assert [found[one], found[other]] == alone
