"""FP32, FP64 and MUFU against exact arithmetic (``ieee.py``), with random bits, edge values and cases near halfway."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from tests.emulate import ieee
from tests.emulate.step import Image, build, decoded, run
from turingas.emulate.build import Unsupported

NAN32, NAN64 = 0x7FFFFFFF, 0xFFF8000000000000
EDGES32 = [
    0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x33800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
    0x40000000, 0x4B000000, 0x7E800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
]  # fmt: skip
EDGES64 = [
    0, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x10000000000001, 0x3CA0000000000000, 0x3FF0000000000000,
    0x3FF0000000000001, 0x43F0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000,
]  # fmt: skip


def bits_of(rng: np.random.Generator, count: int, form: ieee.Format, edges: list[int]) -> np.ndarray:
    """A mixture: any bits, numbers near one, numbers with few digits, edge values; of both signs."""
    width, digits = form
    size = 1 + width + digits
    anything = rng.integers(0, 1 << size, count, dtype=np.uint64)
    bias = (1 << width - 1) - 1
    near = rng.integers(bias - 6, bias + 6, count).astype(np.uint64) << np.uint64(digits)
    near |= rng.integers(0, 1 << digits, count, dtype=np.uint64)
    few = near >> np.uint64(digits - 3) << np.uint64(digits - 3)
    edge = rng.choice(np.array(edges, np.uint64), count)
    kind = rng.integers(0, 4, count)
    mixed = np.choose(kind, [anything, near, few, edge])
    sign = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(size - 1)
    return (mixed | sign) & np.uint64((1 << size) - 1)


def near_halfway(rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """c + a * b that lies so near halfway between two float32 that a double does not see on which side; also with
    sums that are denormal."""
    exponent = rng.integers(1, 240, count).astype(np.int64)
    c = (exponent << 23 | rng.integers(0, 1 << 23, count)).astype(np.uint32).view(np.float32)
    half = np.spacing(c).astype(np.float64) / 2
    tweak = rng.integers(0, 64, (2, count)) * 2.0**-23
    tweak[1, ::2] = tweak[0, ::2]  # then only the square is left, 2^-46 and less
    root = np.exp2(np.floor(np.log2(half) / 2))
    a = (root * (1 + tweak[0])).astype(np.float32)
    b = (half / root * (1 - tweak[1])).astype(np.float32)
    sign = rng.choice(np.array([-1, 1], np.float32), (2, count))
    return a * sign[0], b, c * sign[1]


def operands32(count: int = 32 * 8) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    any_bits = [bits_of(rng, count, ieee.F32, EDGES32).astype(np.uint32) for _ in range(3)]
    halves = [x.view(np.uint32) for x in near_halfway(rng, count)]
    # products that c all but cancels
    a, b = (rng.standard_normal(count).astype(np.float32) for _ in range(2))
    cancel = [x.view(np.uint32) for x in (a, b, -(a * b))]
    # sums that are denormal
    tiny = [(x * np.float32(s)).view(np.uint32) for x, s in ((a, 2.0**-70), (b, 2.0**-70), (a, 2.0**-130))]
    return [np.concatenate(v) for v in zip(any_bits, halves, cancel, tiny)]


def same(got: np.ndarray, expected: list[int], *sources: np.ndarray) -> None:
    wrong = [n for n, (x, y) in enumerate(zip(got.tolist(), expected)) if x != y]
    shown = [([hex(int(s[n])) for s in sources], hex(int(got[n])), hex(expected[n])) for n in wrong[:3]]
    assert not wrong, f"{len(wrong)} wrong: {shown}"


A, B, C = operands32()
MODES = {"": "RN", ".RM": "RM", ".RP": "RP", ".RZ": "RZ"}


@pytest.mark.parametrize("flush", ["", ".FTZ", ".FMZ"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sat", ["", ".SAT"])
def test_ffma(flush: str, mode: str, sat: str) -> None:
    out = run(f"FFMA{flush}{mode}{sat} R3, R0, R1, R2", regs={0: A, 1: B, 2: C})
    ftz = bool(flush)
    sources = [[ieee.flushed(int(v), ieee.F32) if ftz else int(v) for v in x] for x in (A, B, C)]
    expected = [
        ieee.finished(ieee.fma(a, b, c, ieee.F32, MODES[mode], flush == ".FMZ"), ieee.F32, NAN32, ftz, bool(sat))
        for a, b, c in zip(*sources)
    ]
    same(out.r(3), expected, A, B, C)


def test_what_ftz_flushes() -> None:
    """What is below 2^-126 before its exponent ends there, 2^-126 - 2^-150 too (an H200 does so)."""
    a, b = np.uint32(0x3F000000), np.arange(0x00FFFFF0, 0x01000010, dtype=np.uint32)  # 0.5 times 2^-125 and around
    texts = ["FMUL.FTZ R3, R0, R1", "FMUL.FTZ.D2 R3, R1, 1", "FFMA.FTZ R3, R0, R1, RZ", "FFMA.FTZ.SAT R3, R0, R1, RZ"]
    for text in texts:
        out = run(text, regs={0: a, 1: b}).r(3)
        assert (out == np.where(b < 0x01000000, 0, b - 0x00800000)).all(), text
    out = run("FMUL.FTZ.RP R3, R0, R1", regs={0: np.uint32(0x3F7FFFFF), 1: np.uint32(0x00800000)}).r(3)
    assert out[0] == 0  # 2^-126 - 2^-150 needs no rounding
    out = run("FMUL R3, R0, R1", regs={0: a, 1: b}).r(3)
    assert out[15] == 0x00800000  # without it the nearest float32


def test_double_rounding_would_be_seen() -> None:
    """The operands above have cases that a product and sum in double get wrong."""
    with np.errstate(all="ignore"):
        a, b, c = (x.view(np.float32).astype(np.float64) for x in (A, B, C))
        twice = (a * b + c).astype(np.float32)
    right = run("FFMA R3, R0, R1, R2", regs={0: A, 1: B, 2: C}).r(3, np.float32)
    assert np.count_nonzero((twice != right) & (right == right)) > 50


@pytest.mark.parametrize("signs", list(itertools.product(("", "-"), repeat=3)))
@pytest.mark.parametrize("flush", ["", ".FTZ"])
def test_signs_of_ffma(signs: tuple[str, str, str], flush: str) -> None:
    """-a * b + c and its like, where the fast way takes differences instead of negating."""
    a, b, c = signs
    got = run(f"FFMA{flush} R3, {a}R0, {b}R1, {c}R2", regs={0: A, 1: B, 2: C}).r(3)
    flip = [np.uint32(0x80000000 if s else 0) for s in signs]
    plain = run(f"FFMA{flush} R3, R0, R1, R2", regs={0: A ^ flip[0], 1: B ^ flip[1], 2: C ^ flip[2]}).r(3)
    assert (got == plain).all()
    size = np.uint32(0x7FFFFFFF)
    got = run(f"FFMA{flush} R3, {a}|R0|, {b}R1, {c}|R2|", regs={0: A, 1: B, 2: C}).r(3)
    regs = {0: A & size ^ flip[0], 1: B ^ flip[1], 2: C & size ^ flip[2]}
    assert (got == run(f"FFMA{flush} R3, R0, R1, R2", regs=regs).r(3)).all()


@pytest.mark.parametrize("text", ["FFMA R3, R0, 2.5, R2", "FFMA R3, R0, c[0x0][0x8], R2", "FFMA.FTZ R3, R0, 2.5, R2"])
def test_ffma_of_a_constant(text: str) -> None:
    constants = {0: bytes(8) + np.float32(2.5).tobytes()}
    got = run(text, regs={0: A, 2: C}, constants=constants).r(3)
    flush = ".FTZ" if "FTZ" in text else ""
    assert (got == run(f"FFMA{flush} R3, R0, R1, R2", regs={0: A, 1: 2.5, 2: C}).r(3)).all()


def test_ffma_into_its_own_addend_and_under_a_guard() -> None:
    whole = run("FFMA R3, R0, R1, R2", regs={0: A, 1: B, 2: C}).r(3)
    assert (run("FFMA R2, R0, R1, R2", regs={0: A, 1: B, 2: C}).r(2) == whole).all()
    guard = A % 3 == 0
    some = run("@P1 FFMA R2, R0, R1, R2", regs={0: A, 1: B, 2: C}, preds={1: guard}).r(2)
    assert (some == np.where(guard, whole, C)).all()


@pytest.mark.parametrize("flush", ["", ".FTZ"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sat", ["", ".SAT"])
def test_fadd_and_fmul(flush: str, mode: str, sat: str) -> None:
    ftz = bool(flush)
    a, b = ([ieee.flushed(int(v), ieee.F32) if ftz else int(v) for v in x] for x in (A, C))
    one, minus_zero = 0x3F800000, 0x80000000
    got = run(f"FADD{flush}{mode}{sat} R3, R0, R1", regs={0: A, 1: C}).r(3)
    sums = [ieee.fma(x, one, y, ieee.F32, MODES[mode]) for x, y in zip(a, b)]
    same(got, [ieee.finished(r, ieee.F32, NAN32, ftz, bool(sat)) for r in sums], A, C)
    got = run(f"FMUL{flush}{mode}{sat} R3, R0, R1", regs={0: A, 1: C}).r(3)
    products = [
        # the zero that is added has the product's sign, so that it changes nothing
        ieee.fma(x, y, (x ^ y) & minus_zero, ieee.F32, MODES[mode])
        for x, y in zip(a, b)
    ]
    same(got, [ieee.finished(r, ieee.F32, NAN32, ftz, bool(sat)) for r in products], A, C)


@pytest.mark.parametrize("scale", [-3, -2, -1, 1, 2, 3])
def test_fmul_scaled_rounds_once(scale: int) -> None:
    name = f".{'M' if scale > 0 else 'D'}{1 << abs(scale)}"
    got = run(f"FMUL{name} R3, R0, R1", regs={0: A, 1: B}).r(3)
    expected = []
    for a, b in zip(A.tolist(), B.tolist()):
        (sign_a, x), (sign_b, y) = ieee.parts(a, ieee.F32), ieee.parts(b, ieee.F32)
        if isinstance(x, str) or isinstance(y, str) or x * y == 0:
            expected.append(ieee.finished(ieee.fma(a, b, (a ^ b) & 0x80000000, ieee.F32), ieee.F32, NAN32))
        else:
            expected.append(ieee.rounded(sign_a * sign_b * x * y * ieee.Fraction(2) ** scale, ieee.F32))
    same(got, expected, A, B)


def test_fmz() -> None:
    zeros = np.array([0, 0x80000000, 1, 0x80000001] * 8, np.uint32)
    others = np.repeat(np.array([0x7F800000, 0x7FC00000, 0xBF800000, 0], np.uint32), 8)
    assert (run("FMUL.FMZ R3, R0, R1", regs={0: zeros, 1: others}).r(3) == 0).all()
    assert (run("FFMA.FMZ R3, R1, R0, 2", regs={0: zeros, 1: others}).r(3, np.float32) == 2).all()


# ---- choosing and comparing


@pytest.mark.parametrize("nan", ["", ".NAN"])
@pytest.mark.parametrize("flush", ["", ".FTZ"])
@pytest.mark.parametrize("least", [True, False, None])
def test_fmnmx(nan: str, flush: str, least: bool | None) -> None:
    pred = {True: "PT", False: "!PT", None: "P1"}[least]
    which = np.arange(A.size) % 3 == 0
    got = run(f"FMNMX{flush}{nan} R3, R0, -R1, {pred}", "sm_80", regs={0: A, 1: C}, preds={1: which}).r(3)
    expected = []
    for n, (a, b) in enumerate(zip(A.tolist(), (C ^ np.uint32(0x80000000)).tolist())):
        if flush:
            a, b = ieee.flushed(a, ieee.F32), ieee.flushed(b, ieee.F32)
        expected.append(ieee.chosen(a, b, ieee.F32, which[n] if least is None else least, NAN32, bool(nan)))
    same(got, expected, A, C)


def test_zeros_are_ordered() -> None:
    zeros = np.array([0x80000000] * 32, np.uint32)
    assert (run("FMNMX R3, R0, RZ, PT", regs={0: zeros}).r(3) == 0x80000000).all()
    assert (run("FMNMX R3, RZ, R0, PT", regs={0: zeros}).r(3) == 0x80000000).all()
    assert (run("FMNMX R3, R0, RZ, !PT", regs={0: zeros}).r(3) == 0).all()


def test_xorsign() -> None:
    a, b = np.array([3, -3, 2, -2] * 8, np.float32), np.array([-2, -4, 5, 1] * 8, np.float32)
    got = run("FMNMX.XORSIGN R3, |R0|, |R1|, PT", "sm_90", regs={0: a, 1: b}).r(3, np.float32)
    assert got[:4].tolist() == [-2, 3, 2, -1]
    with pytest.raises(Unsupported, match="XORSIGN"):
        run("FMNMX.XORSIGN R3, R0, |R1|, PT", "sm_90")
    got = run("FMNMX.XORSIGN R3, |R0|, 2.5, PT", "sm_90", regs={0: a}).r(3, np.float32)
    assert got[:4].tolist() == [2.5, -2.5, 2, -2]


@functools.cache
def relations(flush: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """All pairs of edge values (but for a few), and how they compare."""
    edges = np.array([e | s for e in EDGES32 for s in (0, 0x80000000)], np.uint32)
    a, b = (x.reshape(-1)[: 32 * 48] for x in np.meshgrid(edges, edges))
    pairs = zip(a.tolist(), b.tolist())
    if flush:
        pairs = ((ieee.flushed(x, ieee.F32), ieee.flushed(y, ieee.F32)) for x, y in pairs)
    return a, b, [ieee.relation(x, y, ieee.F32) for x, y in pairs]


@pytest.mark.parametrize("name", ieee.COMPARISONS)
@pytest.mark.parametrize("flush", ["", ".FTZ"])
def test_comparisons(name: str, flush: str) -> None:
    a, b, found = relations(bool(flush))
    value = np.array([relation in ieee.COMPARISONS[name] for relation in found])
    other = np.arange(a.size) % 2 == 0
    for boolean, combine in (("AND", np.logical_and), ("OR", np.logical_or), ("XOR", np.logical_xor)):
        text = f"FSETP.{name}{flush}.{boolean} P1, P2, R0, R1, !P3"
        out = run(text, regs={0: a, 1: b}, preds={3: other})
        assert (out.p(1) == combine(value, ~other)).all()
        assert (out.p(2) == combine(~value, ~other)).all()
        text = f"FSET.BF.{name}{flush}.{boolean} R3, R0, R1, P3"
        out = run(text, regs={0: a, 1: b}, preds={3: other})
        assert (out.r(3) == np.where(combine(value, other), 0x3F800000, 0)).all()
    assert (run(f"FSETP.{name}{flush}.AND P1, PT, R0, R1, PT", regs={0: a, 1: b}).p(1) == value).all()


def test_fsel_passes_bits() -> None:
    which = np.arange(A.size) % 2 == 0
    assert (run("FSEL R3, R0, R1, P0", regs={0: A, 1: B}, preds={0: which}).r(3) == np.where(which, A, B)).all()
    got = run("FSEL R3, -R0, |R1|, !P0", regs={0: A, 1: B}, preds={0: which}).r(3)
    assert (got == np.where(~which, A ^ np.uint32(0x80000000), B & np.uint32(0x7FFFFFFF))).all()
    got = run("FSEL.FTZ R3, R0, R1, P0", "sm_80", regs={0: A, 1: B}, preds={0: which}).r(3)
    assert got.tolist() == [ieee.flushed(x, ieee.F32) for x in np.where(which, A, B).tolist()]


def test_fswzadd() -> None:
    a, b = np.arange(32, dtype=np.float32), np.arange(100, 132, dtype=np.float32)
    got = run("FSWZADD R3, R0, R1, PPPNNPZP", regs={0: a, 1: b}).r(3, np.float32)
    assert got[:4].tolist() == [100, -100, 100, 103]
    assert got[8:12].tolist() == [116, -100, 100, 111]


def test_division_where_fchk_allows_the_short_way() -> None:
    """The sequence that nvcc writes for a / b: right wherever FCHK says that it is enough."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 32, 32 * 400, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    tight = rng.integers(0, 2, a.size).astype(bool)  # quotients at the edge of the range
    exponent = (a >> np.uint32(23) & np.uint32(255)).astype(np.int64) + rng.choice([-127, -126, 125, 126], a.size)
    edge = (b & np.uint32(0x807FFFFF)) | (np.clip(exponent, 0, 254) << 23).astype(np.uint32)
    b = np.where(tight, edge, b).astype(np.uint32)
    text = """MUFU.RCP R4, R1
        FCHK P0, R0, R1
        FFMA R7, -R1, R4, 1
        FFMA R7, R4, R7, R4
        FFMA R4, R0, R7, RZ
        FFMA R6, -R1, R4, R0
        FFMA R7, R7, R6, R4"""
    out = run(text, regs={0: a, 1: b})
    with np.errstate(all="ignore"):
        quotient = (a.view(np.float32) / b.view(np.float32)).view(np.uint32)
    short = ~out.p(0)
    assert short.mean() > 0.3
    assert (out.r(7) == quotient)[short].all()
    ends = np.array([0, 0x80000000, 1, 0x7F800000, 0x7FC00000, 0x3F800000, 0x7F000000, 0x01000000], np.uint32)
    x, y = (v.reshape(-1) for v in np.meshgrid(ends, ends))
    long = run("FCHK P0, R0, R1", regs={0: x, 1: y}).p(0).reshape(8, 8)
    assert long[:5].all() and long[:, :5].all() and not long[5, 5]


# ---- MUFU


def mufu(name: str, x: np.ndarray, arch: str = "sm_75") -> np.ndarray:
    return run(f"MUFU.{name} R1, R0", arch, regs={0: x}).r(1, np.float32)


def some(low: float, high: float, count: int = 32 * 20) -> np.ndarray:
    return np.random.default_rng(9).uniform(low, high, count).astype(np.float32)


POSITIVE = np.exp2(some(-125, 125)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "x", "function", "relative", "absolute"),
    [
        ("RCP", POSITIVE, lambda v: 1 / v, 2**-23, 0),
        ("RSQ", POSITIVE, lambda v: 1 / math.sqrt(v), 2**-22.9, 0),
        ("SQRT", POSITIVE, math.sqrt, 2**-23, 0),
        ("LG2", POSITIVE, math.log2, 2**-22, 2**-22),
        ("LG2", some(0.5, 2), math.log2, 0, 2**-22),
        ("EX2", some(-125, 127), lambda v: 2.0**v, 2**-22, 0),
        ("SIN", some(-0.5, 0.5), lambda v: math.sin(2 * math.pi * v), 0, 2**-20.9),
        ("COS", some(-0.5, 0.5), lambda v: math.cos(2 * math.pi * v), 0, 2**-20.9),
        ("SIN", some(-9, 9), lambda v: math.sin(2 * math.pi * v), 0, 2**-20.9),
        ("TANH", some(-4, 4), math.tanh, 2**-11, 0),
    ],
)
def test_mufu(name: str, x: np.ndarray, function: object, relative: float, absolute: float) -> None:
    exact = np.array([function(v) for v in x.tolist()])  # type: ignore[operator]
    error = np.abs(mufu(name, x).astype(np.float64) - exact)
    assert (error <= np.abs(exact) * relative + absolute).all()


@pytest.mark.parametrize(
    ("name", "source", "result"),
    [
        ("RCP", 0x00000000, 0x7F800000), ("RCP", 0x80000000, 0xFF800000), ("RCP", 0x7F800000, 0x00000000),
        ("RCP", 0xFF800000, 0x80000000), ("RCP", 0x00000001, 0x7F800000), ("RCP", 0x807FFFFF, 0xFF800000),
        ("RCP", 0x7F7FFFFF, 0x00000000), ("RCP", 0x3F800000, 0x3F800000), ("RCP", 0xFFC00000, NAN32),
        ("RSQ", 0x00000000, 0x7F800000), ("RSQ", 0x80000000, 0xFF800000), ("RSQ", 0x80000001, 0xFF800000),
        ("RSQ", 0x7F800000, 0x00000000), ("RSQ", 0xBF800000, NAN32), ("RSQ", 0x40800000, 0x3F000000),
        ("SQRT", 0x80000000, 0x80000000), ("SQRT", 0x7F800000, 0x7F800000), ("SQRT", 0xFF800000, NAN32),
        ("LG2", 0x00000000, 0xFF800000), ("LG2", 0x80000001, 0xFF800000), ("LG2", 0xBF800000, NAN32),
        ("LG2", 0x7F800000, 0x7F800000), ("LG2", 0x41000000, 0x40400000),
        ("EX2", 0xFF800000, 0x00000000), ("EX2", 0x7F800000, 0x7F800000), ("EX2", 0x00000001, 0x3F800000),
        ("EX2", 0xC2FE0000, 0x00000000), ("EX2", 0xC2FC0000, 0x00800000), ("EX2", 0x41200000, 0x44800000),
        ("SIN", 0x80000000, 0x80000000), ("SIN", 0x3F000000, 0x00000000), ("SIN", 0x3E800000, 0x3F800000),
        ("SIN", 0x7F800000, NAN32), ("COS", 0x00000000, 0x3F800000), ("COS", 0x3F000000, 0xBF800000),
        ("COS", 0x3E800000, 0x80000000), ("COS", 0xFF800000, NAN32),
        ("TANH", 0x80000000, 0x80000000), ("TANH", 0x7F800000, 0x3F800000), ("TANH", 0xFF800000, 0xBF800000),
        ("TANH", 0x00000123, 0x00000123), ("TANH", 0x7FC00000, NAN32),
    ],
)  # fmt: skip
def test_mufu_of_edges(name: str, source: int, result: int) -> None:
    assert hex(run(f"MUFU.{name} R1, R0", regs={0: source}).r(1)[0]) == hex(result)


def test_mufu_of_doubles_is_what_newton_steps_need() -> None:
    """1 / x as nvcc computes it, and the square root: right to the last bit but for a few (rcp.rn's own fix-ups are
    not here), from an estimate of 20 bits."""
    x = np.exp2(np.random.default_rng(2).uniform(-500, 500, 32 * 20)) * np.resize([1, -1], 32 * 20)
    high = (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    estimate = run("MUFU.RCP64H R5, R3", regs={3: high}).r(5).astype(np.uint64) << np.uint64(32)
    assert (np.abs(estimate.view(np.float64) * x - 1) < 2**-19).all()
    text = """MUFU.RCP64H R5, R3
        DFMA R6, -R2, R4, 1
        DFMA R6, R6, R6, R6
        DFMA R6, R4, R6, R4
        DFMA R8, -R2, R6, 1
        DFMA R6, R6, R8, R6"""
    got = run(text, regs={2: x, 4: high + np.uint32(0x300402)}).r64(6, np.float64)
    assert (got == 1 / x).all()
    x = np.abs(x)
    high = (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    estimate = run("MUFU.RSQ64H R5, R3", regs={3: high}).r(5).astype(np.uint64) << np.uint64(32)
    assert (np.abs(estimate.view(np.float64) * np.sqrt(x) - 1) < 2**-19).all()


@pytest.mark.parametrize(
    ("name", "source", "result"),
    [
        ("RCP64H", 0x00000000, 0x7FF00000), ("RCP64H", 0x80000000, 0xFFF00000), ("RCP64H", 0x7FF00000, 0),
        ("RCP64H", 0x80080000, 0xFFF00000), ("RCP64H", 0x7FEFFFFF, 0), ("RCP64H", 0x40000000, 0x3FE00000),
        ("RSQ64H", 0x00000000, 0x7FF00000), ("RSQ64H", 0x40100000, 0x3FE00000), ("RSQ64H", 0xBFF00000, NAN32),
    ],
)  # fmt: skip
def test_mufu_of_doubles_at_edges(name: str, source: int, result: int) -> None:
    assert hex(run(f"MUFU.{name} R1, R0", regs={0: source}).r(1)[0]) == hex(result)


# ---- FP64


def operands64(count: int = 32 * 8) -> list[np.ndarray]:
    rng = np.random.default_rng(6)
    any_bits = [bits_of(rng, count, ieee.F64, EDGES64) for _ in range(3)]
    a, b = (rng.standard_normal(count) for _ in range(2))
    # c cancels the product but for its last bits, or stands beside it by about as much as a double is long
    cancel = [a, b, -(a * b)]
    apart = [a, b, np.ldexp(rng.choice([1.0, 1.5, -1.0], count), rng.integers(-110, 110, count))]
    half = np.ldexp(1 - 2.0**-53 * rng.integers(0, 3, count), -53)
    halfway = [half, 1 + 2.0**-52 * rng.integers(0, 3, count), np.resize([1.0, -1.0, 1 + 2.0**-52], count)]
    small = [a * 2.0**-520, b * 2.0**-520, a * 2.0**-1040]
    rest = [[x.view(np.uint64) for x in v] for v in (cancel, apart, halfway, small)]
    return [np.concatenate(v) for v in zip(any_bits, *rest)]


D, E, F = operands64()


def without_nan(got: np.ndarray) -> np.ndarray:
    """NaNs are looked at elsewhere."""
    return np.where(got << np.uint64(1) > np.uint64(0xFFE << 52), np.uint64(NAN64), got)


@pytest.mark.parametrize("mode", MODES)
def test_fp64(mode: str) -> None:
    a, b, c = D.tolist(), E.tolist(), F.tolist()
    got = run(f"DFMA{mode} R6, R0, R2, R4", regs={0: D, 2: E, 4: F}).r64(6)
    expected = [ieee.fma(x, y, z, ieee.F64, MODES[mode]) for x, y, z in zip(a, b, c)]
    same(without_nan(got), [ieee.finished(r, ieee.F64, NAN64) for r in expected], D, E, F)
    got = run(f"DADD{mode} R6, R0, R2", regs={0: D, 2: F}).r64(6)
    expected = [ieee.fma(x, 0x3FF0000000000000, z, ieee.F64, MODES[mode]) for x, z in zip(a, c)]
    same(without_nan(got), [ieee.finished(r, ieee.F64, NAN64) for r in expected], D, F)
    got = run(f"DMUL{mode} R6, R0, R2", regs={0: D, 2: E}).r64(6)
    expected = [ieee.fma(x, y, (x ^ y) & 1 << 63, ieee.F64, MODES[mode]) for x, y in zip(a, b)]
    same(without_nan(got), [ieee.finished(r, ieee.F64, NAN64) for r in expected], D, E)


def test_dfma_with_ordinary_numbers_only() -> None:
    """The way without any special case."""
    rng = np.random.default_rng(8)
    a, b, c = (rng.standard_normal(320) for _ in range(3))
    got = run("DFMA R6, R0, -R2, |R4|", regs={0: a, 2: b, 4: c}).r64(6)
    bits = ((x.view(np.uint64).tolist()) for x in (a, -b, np.abs(c)))
    same(got, [ieee.fma(x, y, z, ieee.F64) or 0 for x, y, z in zip(*bits)], a, b, c)


def test_nans_of_fp64() -> None:
    first, second = np.uint64(0x7FF0000000000123), np.uint64(0xFFF8000000000456)
    quiet, inf = 0x7FF8000000000123, np.uint64(0x7FF0000000000000)
    one = np.float64(1)

    def one_of(text: str, **regs: np.generic) -> int:
        return int(run(text, regs={int(k[1:]): v for k, v in regs.items()}).r64(6)[0])

    assert one_of("DADD R6, R0, R2", r0=first, r2=one) == quiet
    assert one_of("DADD R6, R2, R0", r0=first, r2=one) == quiet
    assert one_of("DFMA R6, R0, R2, R4", r0=one, r2=first, r4=second) == quiet  # the second source's before the third's
    assert one_of("DFMA R6, R0, R2, R4", r0=first, r2=one, r4=second) == int(second)
    assert one_of("DFMA R6, R0, R2, R4", r0=second, r2=first, r4=one) == quiet
    assert one_of("DFMA R6, R0, R2, R4", r0=second, r2=first, r4=second) == quiet
    assert one_of("DMUL R6, R2, R0", r0=first, r2=second) == quiet
    assert one_of("DMUL R6, R0, R2", r0=first, r2=second) == int(second)
    # "-" and "|x|" leave a NaN alone
    assert one_of("DADD R6, -RZ, -R0", r0=first) == quiet
    assert one_of("DADD R6, -RZ, |R0|", r0=second) == int(second)
    assert one_of("DMUL R6, R0, R2", r0=inf, r2=np.float64(0)) == NAN64
    assert one_of("DADD R6, R0, -R0", r0=inf) == NAN64


@pytest.mark.parametrize("name", ieee.COMPARISONS)
def test_dsetp(name: str) -> None:
    if name in ("F", "T"):  # MIN and MAX stand there
        return
    a, b = D[:1600], F[:1600]
    value = np.array([ieee.relation(x, y, ieee.F64) in ieee.COMPARISONS[name] for x, y in zip(a.tolist(), b.tolist())])
    out = run(f"DSETP.{name}.AND P1, P2, R0, R2, PT", regs={0: a, 2: b})
    assert (out.p(1) == value).all()
    assert (out.p(2) == ~value).all()


def test_predicate_that_is_source_and_result() -> None:
    """Pv takes the last operand as it was, not as Pu leaves it."""
    two = np.array([1, np.nan], np.float64)[np.arange(32) % 2]
    out = run("DSETP.MIN.AND P1, P2, R0, R2, P1", regs={0: two, 2: np.full(32, np.nan)}, preds={1: 1})
    assert out.p(1).tolist() == [True, False] * 16
    assert out.p(2).tolist() == [False, True] * 16


@pytest.mark.parametrize("least", [True, False])
def test_fmin_of_doubles(least: bool) -> None:
    """As nvcc writes fmin and fmax: the predicates choose the bits, and a NaN is made quiet."""
    edges = np.array([e | s for e in EDGES64 + [0x7FF0000000000001] for s in (0, 1 << 63)], np.uint64)
    a, b = (np.resize(x.reshape(-1), 32 * 22) for x in np.meshgrid(edges, edges))
    out = run(f"DSETP.{'MIN' if least else 'MAX'}.AND P1, P2, R0, R2, PT", regs={0: a, 2: b})
    got = np.where(out.p(2), b | np.uint64(1 << 51), np.where(out.p(1), a, b))
    for x, y, r, both in zip(a.tolist(), b.tolist(), got.tolist(), out.p(2).tolist()):
        nans = [ieee.parts(v, ieee.F64)[1] == ieee.NAN for v in (x, y)]
        assert both == all(nans)
        if not both:
            assert r == ieee.chosen(x, y, ieee.F64, least, NAN64), (hex(x), hex(y))


def test_what_is_unknown_is_said() -> None:
    i = decoded("DFMA.RZ R6, R0, R2, R4", "sm_75")[0]
    with pytest.raises(Unsupported, match="DFMA with .NEW"):
        build(i._replace(mods=("RZ", "NEW")), Image("sm_75", {}))
