"""`turingas tune`: the moves of which candidates are made."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from loader.tune.judge import Judge, Order
from tests.kernels.cases import CASES
from tests.loader.tuning import BENCH, SOURCE, kinds_of
from turingas import assemble
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code
from turingas.isa import control
from turingas.scheduler.moves import Moves, hinted, pins, with_hint
from turingas.scheduler.order import LISTS, OPCODE


def test_moves_keep_the_instructions_and_please_the_linter():
    """Of a compiled kernel: no instruction comes or goes, and nearly all candidates are found right by the linter,
    which shares no code with what made them."""
    case = next(case for case in CASES if case.name == "tiles")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    pinned, known = pins(kernel), kinds_of(kernel)
    moves, kinds, wrong = Moves(kernel, pinned), set(), 0
    for seed in range(60):
        made = moves.any(np.random.default_rng(seed))
        assert made is not None
        words, text = made
        if " of " in text:  # a hint
            continue
        now, then = ([word & ~control.MASK for word in some] for some in (words, kernel.words))
        assert sorted(now) == sorted(then) and all(now[n] == then[n] for n in pinned) and words != kernel.words
        wrong += bool(kinds_of(replace(kernel, code=Code(words=words))) - known)
        kinds.add(text.split()[0].strip("0123456789"))
    assert wrong < 12 and {"STG", "wait", "stall", "yield"} < kinds


def two(words=None):
    kernel = assemble(SOURCE).kernel("two")
    if words:
        kernel.words = words
    return Moves(kernel, pins(kernel))


def test_a_load_goes_no_farther_than_its_address():
    moves = two()
    at = {i.base: n for n, i in moves.known.items()}  # the last of each
    address = at["IMAD"] - 1  # of two loads and a store, in this order
    assert at["LDG"] - moves.reach(at["LDG"], up=True) == address + 1
    made, text = moves.shifted(at["LDG"], at["LDG"] - 1)
    assert text.startswith("LDG 1 up") and not kinds_of(two(made).kernel)
    assert moves.reach(at["STG"], up=True) == 0 == moves.reach(at["EXIT"], up=True)  # behind FFMA; the block's end


def test_what_a_relocation_names_stays():
    case = next(case for case in CASES if case.name == "indirect")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    assert {row.address // 16 for row in kernel.relocations} <= pins(kernel)
    exits = {n for n, i in Moves(kernel, pins(kernel)).known.items() if i.base == "EXIT"}
    assert exits and exits <= pins(kernel)  # .nv.info lists them


def test_a_block_in_another_order():
    """With all its codes made anew, other registers now and then, or its own scoreboards: the linter finds nothing, and
    of other blocks codes alone may be others."""
    case = next(case for case in CASES if case.name == "tiles")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    moves, known, kinds, orders = Moves(kernel, pins(kernel)), kinds_of(kernel), set(), 0
    for seed in range(40):
        made = moves.arrange(np.random.default_rng(seed))
        if made is None:
            continue
        words, text = made
        assert not kinds_of(replace(kernel, code=Code(words=words))) - known, text
        start = int(re.search("of (0x[0-9a-f]+)", text)[1], 16) // 16
        block = moves.block[start]
        others = [n for n in range(len(words)) if not block.start <= n < block.end]
        assert not any((words[n] ^ kernel.words[n]) & ~control.MASK for n in others)
        plain = [[word & OPCODE for word in some] for some in (words, kernel.words)]
        assert sorted(plain[0]) == sorted(plain[1])
        orders += plain[0] != plain[1]
        kinds |= {kind for kind in ("its order", "renamed", "its scoreboards", "natural", "every") if kind in text}
    assert orders > 10 and len(kinds) == 5


def test_waits_that_a_compiler_knows_better_are_not_made():
    """In Triton's kernels ptxas knows that the sources of copies were read before a loop; the scheduler would wait for
    them there with the scoreboard of their group, and so for the copies themselves, in each round."""
    source = SOURCE.replace("    LDG.E R4", "    --:-:3:-:2 LDG.E R4").replace("    FMUL R5", "    --:-:-:-:4 FMUL R5")
    with_wait = assemble(source.replace("--:-:-:-:4 FMUL", "08:-:-:-:4 FMUL")).kernel("two")
    n = next(n for n, i in Moves(with_wait, frozenset()).known.items() if i.base == "FMUL")
    moves = two([word & ~(63 << control.WAIT) if m == n else word for m, word in enumerate(with_wait.words)])
    assert any(m == n and "scoreboard 3" in message for m, message in moves.before)
    part, words = range(n, n + 1), list(moves.words)
    lax = list(words)
    lax[n] |= 8 << control.WAIT
    moves._as_lax(lax, part, range(len(words)))
    assert lax == words  # nothing there sets scoreboard 3
    part, lax = range(n - 1, n + 1), list(words)
    lax[n] |= 8 << control.WAIT
    moves._as_lax(lax, part, range(len(words)))
    assert lax[n] >> control.WAIT & 63 == 8


def test_a_block_yields_by_another_rule():
    moves, seen = two(), set()
    for seed in range(20):
        words, text = moves.yielding(np.random.default_rng(seed))
        assert not kinds_of(two(words).kernel), text
        assert [(a ^ b) & ~control.MASK for a, b in zip(words, moves.words)] == [0] * len(words)
        may = [n for n, word in enumerate(words) if 1 <= (word >> control.STALL & 15) <= 11]
        if " natural " in text:
            assert all(words[n] >> control.YIELD & 1 for n in may)
        if " every:4 " in text:
            assert [n for n in may if not words[n] >> control.YIELD & 1] == [n for n in may if n % 4 == 3]
        seen.add(text.split()[1])
    assert {"natural", "every:4", "ptxas"} <= seen


def test_what_is_in_loops_is_drawn_more_often():
    moves = two()
    moves.weight = [1.0] * 10 + [30.0] * (len(moves.words) - 10)
    random = np.random.default_rng(0)
    drawn = [moves._one(random, range(12)) for _ in range(500)]
    assert 0.75 < sum(n >= 10 for n in drawn) / len(drawn) < 0.95 and min(drawn) < 10  # 60 of 70
    assert moves._one(random, []) is None


def test_illegal_codes_are_not_made():
    """A yield with a reuse flag, a stall of 12 that keeps the slot."""
    moves = two()
    for seed in range(200):
        for move in (moves.yields, moves.stall, moves.reuse, moves.wait):
            made = move(np.random.default_rng(seed))
            assert made is None or not any(control.illegal(word) for word in made[0])


def test_hints_of_accesses():
    """All loads, all stores, those of a block, or one; nothing else of a word changes, and what others can see has no
    hint. An architecture that lacks one keeps its words."""
    moves, seen = two(), set()
    texts = [i.text() for i in moves.graph.instructions]
    for seed in range(200):
        made = moves.hint(np.random.default_rng(seed))
        there = [i.text() for i in two(made[0]).graph.instructions]
        assert [text.replace(f".{made[1].split()[0]}", "") for text in there] == texts
        seen.add(made[1])
    lines = ".arch sm_75", ".kernel old", "LDG.E.SYS R4, [R2];", "LDG.E.STRONG.SYS R5, [R2];", "EXIT;"
    old = assemble("\n".join(lines)).kernel("old")
    assert hinted(old, "LDG") == [0]
    for name, text in (("LTC128B", "LDG.E.LTC128B.SYS R4, [R2]"), ("LTC256B", "LDG.E.SYS R4, [R2]")):
        words = with_hint(old, old.words, [0], name)
        assert Moves(replace(old, code=Code(words=words)), frozenset()).known[0].text() == text
    assert {"EF of 2 LDG", "NA of 2 LDG", "EL of 1 LDG", "EF of 1 STG", "LTC128B of 2 LDG", "LTC256B of 1 LDG"} <= seen
    strong = assemble(SOURCE.replace("LDG.E R6", "LDG.E.STRONG.GPU R6").replace("STG.E", "STG.E.EL")).kernel("two")
    assert [len(hinted(strong, base)) for base in ("LDG", "STG")] == [1, 1]
    plain = with_hint(strong, strong.words, hinted(strong, "STG"), "no hint")
    assert [i.text() for i in two(plain).graph.instructions if i.base == "STG"] == ["STG.E desc[UR4][R12.64], R5"]


def shuffles():
    case = next(case for case in CASES if case.name == "shuffles")
    return Judge(Order(case.cubin("sm_90"), case.kernel, BENCH, "bench.py", "cpu"))


def test_lists_of_instructions_follow_them():
    """.nv.info lists all warp shuffles: wherever they go, that is told by what they are."""
    one = shuffles()
    words, _ = one.started("reordered")
    own = one.kernel.words
    assert all(not (words[n] ^ own[n]) & ~control.MASK for n in one.pinned)
    [before] = [info.words for info in one.kernel.attributes if info.name in LISTS]
    [now] = [info.words for info in one.made(words).kernel(one.order.kernel).attributes if info.name in LISTS]
    bases = [i.base for i in one.moves(words).graph.instructions]
    assert now != before and [bases[at // 16] for at in now] == ["SHFL"] * len(before)
    assert not {at // 16 for at in before} & one.pinned


def test_a_list_of_some_instructions_pins_them():
    """Where others of their kind are not in it, nobody could tell which are."""
    one = shuffles()
    one.kernel.attributes = [
        info._replace(value=info.value[4:]) if info.name in LISTS else info for info in one.kernel.attributes
    ]
    [places] = [info.words for info in one.kernel.attributes if info.name in LISTS]
    assert {at // 16 for at in places} <= pins(one.kernel)
