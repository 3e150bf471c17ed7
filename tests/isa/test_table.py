"""The table itself: every architecture's forms build, agree with each other, and read back what they write."""

from __future__ import annotations

import ast
import contextlib
import random
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import turingas
from tests.isa.words import ARCHS, PLAIN, Draw, random_control, sample, words_of
from turingas.errors import AsmError, EncodeError
from turingas.isa import control, table
from turingas.isa.arch import DISTINCT, NAMES
from turingas.isa.encode import Encoder
from turingas.isa.fields import Register, Unprintable
from turingas.isa.form import WORD
from turingas.isa.forms import Forms
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.op import TRAITS
from turingas.isa.table import async_, convert, floating, integer, memory, tensor, texture, tmem, uniform
from turingas.isa.table import control as control_rows


def test_architectures():
    with pytest.raises(AsmError, match="unknown architecture 'sm_61'"):
        instruction_set("sm_61")


@pytest.mark.parametrize("arch", sorted(set(NAMES) - set(DISTINCT)))
def test_variants_of_a_chip_have_its_rows(arch):
    """sm_100a and sm_100f are not tested beside sm_100."""
    assert instruction_set(arch).forms.rows == instruction_set(arch[:-1]).forms.rows


@pytest.mark.parametrize("arch", ARCHS)
def test_forms_build_and_claim_each_bit_once(arch):
    """The constructor asserts that no two fields share a bit; here also: none lies in the control code or the guard."""
    isa = instruction_set(arch)
    found = list(isa.all_forms())
    assert len(found) > 500
    for form in found:
        assert not form.known & (control.MASK & ~control.REUSE_MASK) and not form.known & 0xF000, form.text
        assert form.value >> 128 == 0 and not form.value & form.known, form.text
    assert len({form.base for form in found}) == len(isa.mnemonics()) > 100


@pytest.mark.parametrize("arch", ARCHS)
def test_one_text_one_word(arch):
    """What a form writes, the first form that can read it reads as the same word.

    Two rows with one name and operands of the same kinds would break this for the second of them.
    """
    isa, wrong = instruction_set(arch), []
    reached = set()
    for form, word in sample(arch):
        reached.add(isa.explain(word))
        text = isa.decode(word)
        again = isa.encode(text)
        if again != word & ~(form.loose | control.MASK & ~form.known):
            wrong.append((form.text, text, f"{word:032x}", f"{again:032x}"))
    assert not wrong, f"{len(wrong)} texts come back as another word: {wrong[:5]}"
    rng = Draw(arch)
    rare = [form for form in isa.all_forms() if form not in reached]
    silent = []
    for form in rare:
        if all(isa.explain(word) is not form for word in words_of(isa, form, 200, rng)):
            silent.append(form.text)
    assert not silent, f"rows that nothing reaches: {silent}"


@pytest.mark.sample(5)
@pytest.mark.parametrize("arch", ARCHS)
def test_random_words_round_trip(arch):
    """Every form with random control codes and reuse flags, through the public face: the same words come back."""
    rng, words = random.Random(arch + "control"), []
    for _, word in sample(arch):
        word |= random_control(rng) | (rng.getrandbits(3) << control.REUSE) * (rng.random() < 0.2)
        if control.illegal(word):
            word = word & ~control.MASK | PLAIN | word & control.REUSE_MASK
        words.append(word)
    lines = turingas.decode(words, arch)
    again = turingas.encode("\n".join(lines), arch)
    wrong = [(f"{a:032x}", line, f"{b:032x}") for a, line, b in zip(words, lines, again) if a != b]
    assert not wrong, wrong[:5]
    opaque = [line for line in lines if ".word" in line]
    # only reuse bits that a form has no slot for may leave words opaque
    assert len(opaque) < 0.2 * len(words)
    assert lines == turingas.decode(again, arch)


@pytest.mark.sample(4)
@pytest.mark.parametrize("arch", ARCHS)
def test_words_that_no_row_explains(arch):
    """Noise, and legal words with one bit turned: the text, whatever it is, gives the same word again."""
    rng = random.Random(arch + "noise")
    words = [rng.getrandbits(128) for _ in range(500)]
    words += [word ^ 1 << rng.randrange(128) for _, word in sample(arch)]
    assert turingas.encode("\n".join(turingas.decode(words, arch)), arch) == words


@pytest.mark.parametrize("arch", ARCHS)
def test_alternatives_of_one_opcode_are_told_apart(arch):
    """No word is explained by two forms of the same fixed bits, of which neither has a condition, but that of a
    MUFU.RCP64H with an immediate, which the first of two reads as half of a double."""
    isa, rng, both, compared = instruction_set(arch), Draw(arch + "pairs"), [], 0
    by_opcode = defaultdict(list)
    for form in isa.all_forms():
        if not (form.check_mask or form.tests):
            by_opcode[form.value & 0xFFF, form.mask, form.value].append(form)
    for same in by_opcode.values():
        for first, second in pairwise(same):
            compared += 1
            for form in (first, second):
                both += [(first.text, second.text) for word in words_of(isa, form, 4, rng)
                         if explains(first, word) and explains(second, word)]  # fmt: skip
    assert compared > 40 and {first for first, _ in both} <= {"MUFU{func64} Rd, f64"}, both[:3]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_text_says_its_bits(arch):
    """The decoder does not try whether the encoder reads what it writes: it must, whatever the bits of a part."""
    isa, rng = instruction_set(arch), random.Random(0)
    operands = {operand for form in isa.all_forms() for operand in form.operands if operand.target is None}
    for operand in {operand.sized(words) for operand in operands for words in (1, 2, 4)}:
        few, any_ = rng.getrandbits(128) & rng.getrandbits(128), rng.getrandbits(128)
        for bits in {0, operand.mask, operand.default, few & operand.mask, any_ & operand.mask}:
            with contextlib.suppress(Unprintable):
                assert operand.encode(operand.exact(bits)) == bits & operand.claims, operand.source
    for mnemonic in {form.row: form.mnemonic for form in isa.all_forms()}.values():
        for _ in range(8):
            bits = sum(rng.choice([f.put(v) for v in f.names]) for f in mnemonic.parts if not isinstance(f, str))
            assert bits in mnemonic.read(mnemonic[bits | 0x7000]), mnemonic.base


@pytest.mark.parametrize("arch", ["sm_70", "sm_90a"])
def test_parts_of_an_operand_that_are_remembered(arch):
    """An address with an offset, and a register with signs, are looked up by parts: with what the whole gives, bits or
    an error."""
    isa = instruction_set(arch)
    right = wrong = 0
    for operand in {operand for form in isa.all_forms() for operand in form.operands if operand.target is None}:
        with contextlib.suppress(Unprintable):
            text = operand.exact(operand.default)
            for other in variants(text):
                whole = outcome(operand.encode, other.strip())
                assert outcome(operand.bits.__getitem__, other) == whole, (operand.source, other)
                right, wrong = right + (whole is not None), wrong + (whole is None)
    assert right > 1000 and wrong > 1000


def variants(text):
    """Texts like an operand's, right and wrong."""
    yield text
    for offset in ("0x0", "0x10", "-0x10", "0x7fffff", "0x800000", "0x1000000", "16", "0X10", "0x", "", "R2", "UR4"):
        for sign in ("+", "-", "+-", " + "):
            yield text.replace("]", f"{sign}{offset}]")
            yield text[:-1] + f"{sign}{offset}]"
            yield text[:-1] + f"{sign}0x0+{offset}]"
            yield text[:-1] + f"{sign}{offset}+0x10]"
    for register in re.findall(r"\b[UPRB]+[0-9Z]+", text):
        for other in "R1 R2 R4 R254 R255 R300 RZ R04 UR4 UR62 URZ P0 PT P7 B1".split():
            for signed in "{} -{} |{}| -|{}| ~{} !{} {}.reuse -{}.reuse --{} |{} {}| {}.H0_H0".split():
                yield text.replace(register, signed.format(other))


def outcome(encode, text):
    """The bits of a text; None for an error."""
    try:
        return encode(text) & WORD
    except ValueError:
        return None


def explains(form, word):
    try:
        form.exact((word,), 0, None)
    except (Unprintable, ValueError):
        return False
    return True


@pytest.mark.parametrize("arch", ARCHS)
def test_registers_of_random_words(arch):
    """The register count covers every general register that the text names."""
    isa = instruction_set(arch)
    for form, word in sample(arch)[::4]:
        top = max((word >> f.pos & f.last for o in form.operands for f in o.fields if is_general(f, word)), default=-1)
        assert isa.registers(word) > top, isa.decode(word)


def is_general(field: object, word: int) -> bool:
    return isinstance(field, Register) and field.prefix == "R" and word >> field.pos & field.last != field.last


@pytest.mark.parametrize("arch", ARCHS)
def test_every_mnemonic_is_described(arch):
    isa = instruction_set(arch)
    for base in isa.mnemonics():
        text = isa.describe(base)
        assert text.startswith(f"{base} on {arch}") and "opcode" in text


def test_every_mnemonic_has_an_op():
    """What an instruction is stands once, in the module that has its rows."""
    families = (floating, integer, convert, memory, control_rows, uniform, async_, tensor, texture, tmem)
    for family in families:
        assert set(family.OPS) == {row.base for row in family.ROWS}
    assert len(table.OPS) == sum(len(family.OPS) for family in families)
    for base, op in table.OPS.items():
        assert op.traits <= set(TRAITS) and op.space in ("", "shared", "global", "local", "generic", "constant"), base
        assert set(op.sets) <= set("rw") and set(op.kin) <= set(table.OPS) - {base}, base
        assert all(line.split()[0].partition(".")[0] == base for line in op.examples), base


def test_no_list_of_mnemonics_stands_elsewhere():
    """What instructions have in common is asked of their entries in OPS."""
    apart = {"latency.py", "dialect.py"}  # names of rows; TuringAs's spellings
    for path in (Path(turingas.__file__).parent).rglob("*.py"):
        if path.parent.name == "table" or path.name in apart:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                continue
            names = [one.value for one in node.elts if isinstance(one, ast.Constant) and one.value in table.OPS]
            assert len(names) < 3, f"{path.name}:{node.lineno}: {names}"


@pytest.mark.parametrize("arch", ARCHS)
def test_every_mnemonic_has_an_example(arch):
    """One of its lines is an instruction of this architecture, and reads back as it is written."""
    isa = instruction_set(arch)
    for base in isa.mnemonics():
        line = isa.example(base)
        assert line and isa.decode(isa.encode(line)) == line, base
        assert f"for example: {line}\n" in isa.describe(base)
    assert all(bool(isa.example(base)) == bool(isa.named(base)) for base in ("RTT", "UTMALDG"))  # sm_70, sm_90


@pytest.mark.parametrize(
    "word, found",
    [
        ("shuffle", "SHFL: warp shuffle: reads a register of another lane"),
        ("shfl.sync", "SHFL: "),
        ("shfl.sync.down.b32", "SHFL: "),
        ("__ballot_sync", "VOTE: "),
        ("mma.sync", "BMMA: "),
        ("ld.global", "LDG: "),
        ("ldmatrix", "LDSM: "),
        ("cp.async", "LDGSTS: "),
    ],
)
def test_an_instruction_is_found_by_its_names(word, found):
    with pytest.raises(AsmError, match="is not a mnemonic") as caught:
        instruction_set("sm_80").describe(word)
    assert caught.value.hint.startswith(found)


def test_no_word_finds_what_is_not_there():
    with pytest.raises(AsmError, match="unknown instruction 'XYZZY'") as caught:
        instruction_set("sm_80").describe("xyzzy")
    assert caught.value.hint == ""
    with pytest.raises(AsmError, match="is not a mnemonic") as caught:
        instruction_set("sm_90").describe("tensor map")
    assert "UTMALDG" in caught.value.hint
    with pytest.raises(AsmError, match="unknown instruction"):
        instruction_set("sm_75").describe("tensor map")


@pytest.mark.parametrize("arch", ("sm_75", "sm_90a"))
def test_what_is_remembered_changes_nothing(arch):
    """Lines with operands of other lines: an encoder that has seen much says what one says that has seen nothing."""
    rng, lines = random.Random(arch), defaultdict(list)
    warm, fresh = instruction_set(arch), Forms(instruction_set(arch).forms.arch)
    for _, word in sample(arch):
        name, _, tail = warm.decode(word & ~0xF000 | 0x7000).partition(" ")
        warm.encode(f"{name} {tail}")
        lines[name.partition(".")[0]].append((name, tail.split(", ")))
    for same in lines.values():
        for _ in range(20):
            name, operands = rng.choice(same)
            operands = list(operands)
            operands[rng.randrange(len(operands))] = rng.choice(rng.choice(same)[1])
            text = f"{rng.choice((name, rng.choice(same)[0]))} {', '.join(operands)}"
            assert attempt(warm, text) == attempt(Encoder(fresh), text), text


def attempt(isa: Isa | Encoder, text: str) -> object:
    try:
        return isa.encode(text)
    except EncodeError as error:
        return error.message
