"""Products of a warp group: each form on random operands, against plain matrix products of exact numbers and the sums
of tests/emulate/test_tensor.py; what goes wrong around them; registers that warps give to each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import turingas
from tests.emulate import wgmma
from tests.emulate.test_tensor import FLOATS, core, exact
from tests.gpu.test_warpgroup import WIDTHS
from turingas.emulate import launch
from turingas.emulate.errors import DeviceError

BLOCKS = 2


def values(codes: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of codes."""
    names, where = np.unique(codes, return_inverse=True)
    if kind in FLOATS:
        table = np.array([float(exact(int(code), kind)) for code in names])
    else:
        bits = {"S8": 8, "S32": 32}.get(kind, 0)
        table = names.astype(np.int64) - (names.astype(np.int64) >> bits - 1 << bits if bits else 0)
    return table[where].reshape(codes.shape)


def run(p: wgmma.Product, x: wgmma.Operands, **options: object) -> np.ndarray:
    out = np.zeros_like(x.accumulators)
    args = [out, x.image, x.in_registers, x.accumulators, x.uniform]
    launch(wgmma.cubin(p), "product", len(out), wgmma.THREADS, args, **options)
    return wgmma.from_lanes(p, out)


@pytest.mark.parametrize("p", wgmma.PRODUCTS, ids=lambda p: p.text.replace(" ", "_"))
def test_product(p: wgmma.Product) -> None:
    rng = np.random.default_rng(wgmma.PRODUCTS.index(p))
    x = wgmma.operands(rng, p, BLOCKS)
    got = run(p, x, written=True)
    kind_a, kind_b, kind = p.kinds
    full = np.zeros((BLOCKS, 64, p.k), np.uint32)
    full[x.picks] = x.a.ravel()
    a, b, c = values(full, kind_a), values(x.b, kind_b), values(x.c, kind)
    a[~x.picks] = 0
    a, b = (-m if negative else m for m, negative in zip((a, b), p.negative))
    c = np.where(x.adds[:, None, None], c, 0)
    whole = a @ b + c
    if kind == "S32":
        if p.more:
            whole = np.clip(whole, -(1 << 31), (1 << 31) - 1)
        assert (got == whole.astype(np.int64).astype(np.uint32)).all()
        return
    near = (2.0**-8 if kind_a in ("E4M3", "E5M2") or kind == "F16" else 2.0**-19) * (np.abs(a) @ np.abs(b) + np.abs(c))
    assert (np.abs(values(got, kind) - whole) <= near).all()
    minus_a, minus_b = (n << FLOATS[kind][0] - 1 for n, kind in zip(p.negative, p.kinds))
    for block, row, column in zip(*(rng.integers(0, n, 40) for n in whole.shape)):
        pairs = [
            (int(full[block, row, n]) ^ minus_a, int(x.b[block, n, column]) ^ minus_b)
            for n in range(p.k)
            if x.picks[block, row, n]
        ]
        added = int(x.c[block, row, column]) if x.adds[block] else 0
        assert exact(int(got[block, row, column]), kind) == core("sm_90a", p.kinds, pairs, added), (block, row, column)


def test_what_a_gpu_is_compared_by() -> None:
    """As tests/gpu/test_warpgroup.py does it, with the CPU device in the GPU's place, and one that gets a bit wrong."""
    p = wgmma.Product(8, ("BF16", "BF16", "F32"), (None, 0))

    def same(cubin: bytes, blocks: int, args: list[np.ndarray]) -> None:
        launch(cubin, "product", blocks, wgmma.THREADS, args)

    def other(cubin: bytes, blocks: int, args: list[np.ndarray]) -> None:
        same(cubin, blocks, args)
        args[0][0, 5, 1] ^= 1

    assert wgmma.differ(p, 2, wgmma.any_codes, same) == 0
    assert wgmma.differ(p, 2, wgmma.any_codes, other) == 1


def test_base_offset() -> None:
    """A swizzle whose pattern begins in the middle of a kilobyte."""
    p = wgmma.Product(8, ("F16", "F16", "F32"), (None, 128))
    x = wgmma.operands(np.random.default_rng(5), p, 1)
    expected = run(p, x)
    moved = x.image.copy()
    for at in range(0, 1024, 128):
        moved[0, 384 + at : 512 + at] = x.image[0, at : at + 128]  # the same pieces, three rows on
    x.uniform[0, 2] += 384 >> 4
    x.uniform[0, 3] |= 3 << 49 - 32
    assert (run(p, x._replace(image=moved)) == expected).all()


def test_not_finite() -> None:
    """Infinities and NaN as IEEE has them, NaN the one that tensor cores make."""
    p = wgmma.Product(8, ("F16", "F16", "F32"))
    x = wgmma.operands(np.random.default_rng(6), p, 1)
    c = np.full((1, 64, 8), 0x3F800000, np.uint32)
    c[0, 0], c[0, 1], c[0, 2] = 0x7F800000, 0xFFC00000, 0xFF800000
    got = run(p, x._replace(accumulators=wgmma.to_lanes(p, c)))
    assert (got[0, 0] == 0x7F800000).all() and (got[0, 1] == 0x7FFFFFFF).all() and (got[0, 2] == 0xFF800000).all()
    assert np.isfinite(got[0, 3:].view(np.float32)).all()


# ---- late ------------------------------------------------------------------------------------------------------------

LATE = wgmma.Product(8, ("F16", "F16", "F32"))
WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0;\n"


def late(old: str, new: str, **options: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """The kernel of LATE with a line changed: what it stores, what it should, what C was, and findings."""
    x = wgmma.operands(np.random.default_rng(9), LATE, 2)
    source = LATE.source()
    assert old in source
    cubin = turingas.assemble(source.replace(old, new))
    out = np.zeros_like(x.accumulators)
    args = [out, x.image, x.in_registers, x.accumulators, x.uniform]
    report = launch(cubin, "product", 2, wgmma.THREADS, args, **options)
    kinds = [hazard.kind for hazard in report.hazards]
    return (
        out.view(np.float32),
        wgmma.to_lanes(LATE, run(LATE, x)).view(np.float32),
        x.accumulators.view(np.float32),
        kinds,
    )


def test_a_product_comes_when_it_was_waited_for() -> None:
    out, right, c, _ = late(WAIT, "")
    assert (out == c).all()
    out, right, c, _ = late(WAIT, "WARPGROUP.DEPBAR.LE gsb0, 0x1;\n")
    assert (out == c).all()
    product = LATE.text + ";\n"
    two = product + "IADD3 R12, R12, 0x1, RZ;\n" + product.replace("R24", "R28") + "WARPGROUP.DEPBAR.LE gsb0, 0x1;\n"
    out, right, _, _ = late(product + WAIT, two)
    assert (out == right).all()  # the second one is still under way


def test_a_product_reads_when_it_was_waited_for() -> None:
    out, right, _, _ = late(WAIT, "STS.128 [R6], RZ;\nBAR.SYNC.DEFER_BLOCKING 0x0;\n" + WAIT)
    assert (out != right).any()
    out, right, _, _ = late(WAIT, WAIT + "STS.128 [R6], RZ;\n")
    assert (out == right).all()


@pytest.mark.parametrize("mode", ["strict", "races"])
def test_what_is_done_beside_a_product(mode: str) -> None:
    def found(old: str, new: str) -> list[str]:
        return late(old, new, **{mode: True})[3]

    assert found(WAIT, WAIT) == []
    assert "raw" in found(WAIT, "")
    assert "waw" in found(WAIT, "MOV R25, RZ;\n" + WAIT)
    assert found(WAIT, WAIT + "MOV R25, RZ;\n") == []
    assert found("WARPGROUP.ARRIVE;\n", "") == ["no-arrive"]
    assert found("WARPGROUP.ARRIVE;\n", "WARPGROUP.ARRIVE;\nMOV R24, RZ;\n") == ["no-arrive"]
    in_registers = "HGMMA.64x8x16.F32 R24, R8, gdesc[UR8], R24, UP0, gsb0;\n"
    assert found(LATE.text + ";\n", in_registers + "MOV R9, RZ;\n") == ["war"]


FENCE, BAR, ARRIVE = "FENCE.VIEW.ASYNC.S;\n", "BAR.SYNC.DEFER_BLOCKING 0x0;\n", "WARPGROUP.ARRIVE;\n"


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [(WAIT, WAIT, set()), (FENCE + BAR, BAR + FENCE, set()), (FENCE, "", {"PROXY"}), (BAR, "", {"RAW"}),
     (WAIT, "STS.128 [R6], RZ;\n" + WAIT, {"WAR"}), (WAIT, WAIT + "STS.128 [R6], RZ;\n", set()),
     (WAIT, "", {"END"})],
)  # fmt: skip
def test_what_is_done_to_shared_memory_beside_a_product(old: str, new: str, kinds: set[str]) -> None:
    """A fence may stand on either side of the barrier; a wait tells a warp of what all four have read."""
    x = wgmma.operands(np.random.default_rng(9), LATE, 2)
    source = LATE.source()
    assert old in source
    args = [np.zeros_like(x.accumulators), x.image, x.in_registers, x.accumulators, x.uniform]
    report = launch(turingas.assemble(source.replace(old, new)), "product", 2, wgmma.THREADS, args, races=True)
    assert {race.kind for race in report.races} == kinds
    for race in report.races:
        assert "HGMMA" in race.first.text + race.second.text and race.first.line


# ---- what goes wrong ------------------------------------------------------------------------------------------------

HEAD = """
.arch sm_90a
.kernel k
.shared 4096
S2R R0, SR_TID.X;
UMOV UR8, 0x0;
UMOV UR9, 0x8;
UMOV UR10, 0x0;
UMOV UR11, 0x8;
"""
PRODUCT = "HGMMA.64x8x16.F32 R24, gdesc[UR8], RZ, !UPT, gsb0;\nWARPGROUP.DEPBAR.LE gsb0, 0x0;\n"


def fails(body: str, threads: int = 128) -> DeviceError:
    with pytest.raises(DeviceError) as error:
        launch(turingas.assemble(HEAD + body + "EXIT;\n"), "k", 1, threads, [])
    return error.value


def test_a_product_needs_four_whole_warps() -> None:
    body = "WARPGROUP.ARRIVE;\nISETP.GT.AND P0, PT, R0, {}, PT;\n@P0 " + PRODUCT
    assert "without the other warps" in str(fails(body.format("0x1f")))
    assert "without all lanes" in str(fails(body.format("0x3")))
    some = fails("ISETP.GT.AND P0, PT, R0, 0x1f, PT;\n@P0 EXIT;\nWARPGROUP.ARRIVE;\n" + PRODUCT)
    assert some.kind == "deadlock" and "for the other warps of its warp group" in str(some)
    assert fails("WARPGROUP.ARRIVE;\n" + PRODUCT, 96).kind == "deadlock"


def test_a_product_of_different_descriptors() -> None:
    body = "R2UR UR8, R0;\nWARPGROUP.ARRIVE;\n" + PRODUCT
    assert "different descriptors" in str(fails(body))


@pytest.mark.parametrize("kind", ["HGMMA.SP.REGOFFSET.64x8x32.F32", "IGMMA.SP.REGOFFSET.64x8x64.S8.S8"])
def test_metadata_of_which_nobody_says_where_they_lie(kind: str) -> None:
    assert "REGOFFSET" in str(fails(f"WARPGROUP.ARRIVE;\n{kind} R24, gdesc[UR8], R24, R12, 0x0, gsb0;\n"))


def test_a_matrix_beyond_shared_memory() -> None:
    error = fails("UMOV UR10, 0x1ff;\nWARPGROUP.ARRIVE;\n" + PRODUCT)
    assert error.kind == "out of bounds" and "the matrix of UR10" in str(error)


def test_warps_that_come_at_different_times_meet() -> None:
    """The first warp has a way of its own to the arrival."""
    body = """
ISETP.GT.AND P0, PT, R0, 0x1f, PT;
@P0 BRA there;
NANOSLEEP 0x10;
IADD3 R1, R0, 0x1, RZ;
there:
WARPGROUP.ARRIVE;
"""
    cubin = turingas.assemble(HEAD + body + PRODUCT + "EXIT;\n")
    launch(cubin, "k", 3, 256, [])


# ---- registers that move ---------------------------------------------------------------------------------------------

MOVES = """
.arch sm_90a
.kernel k
.registers 96
.param out 8
S2R R0, SR_TID.X;
ULDC.64 UR4, c[0x0][0x208];
LDC.64 R2, c[0x0][0x210];
IMAD.WIDE.U32 R2, R0, 0x4, R2;
ISETP.GT.AND P0, PT, R0, 0x7f, PT;
@P0 BRA consumer;
NANOSLEEP 0x10;
USETMAXREG.DEALLOC.CTAPOOL {less};
STG.E desc[UR4][R2.64], R0;
EXIT;
consumer:
again:
USETMAXREG.TRY_ALLOC.CTAPOOL UP0, {more};
PLOP3.LUT P0, PT, PT, PT, UP0, 0x40, 0x0;
@P0 BRA again;
MOV R{used}, R0;
STG.E desc[UR4][R2.64], R{used};
EXIT;
"""


def move(less: int = 40, more: int = 152, used: int = 149, **options: object) -> np.ndarray:
    out = np.zeros(256, np.uint32)
    source = MOVES.format(less=hex(less), more=hex(more), used=used)
    launch(turingas.assemble(source), "k", 1, 256, [out], **options)
    return out


def test_registers_move() -> None:
    """A group of warps gives 56 registers a thread to the other, which waits for them."""
    assert (move() == np.arange(256)).all()


def test_what_is_declared_is_rounded_up() -> None:
    """Triton asks for 256 where 255 are declared, before anybody has given any: all have 256."""
    out = np.zeros(256, np.uint32)
    source = MOVES.format(less="0x100", more="0x100", used=253).replace(".registers 96", ".registers 255")
    launch(turingas.assemble(source), "k", 1, 256, [out], budget=50)
    assert (out == np.arange(256)).all()


@pytest.mark.parametrize(
    "numbers, message",
    [
        ((40, 152, 150), "R150 is used, and the warp has 152 registers now, of which it can use R0 to R149"),
        ((104, 152, 149), "has 96 registers and keeps 104"),
        ((40, 88, 60), "has 96 registers and asks for 88"),
    ],
)
def test_registers_that_are_not_there(numbers: tuple[int, int, int], message: str) -> None:
    with pytest.raises(DeviceError, match=message) as error:
        move(*numbers)
    assert error.value.kind == "registers"


def test_registers_that_nobody_gives() -> None:
    with pytest.raises(DeviceError, match="its budget"):
        move(48, budget=5000)


# ---- parts of a warp that do something together ----------------------------------------------------------------------

COLLECTIVE = """
.arch sm_90a
.kernel k
.param out 8
S2R R0, SR_TID.X;
ULDC.64 UR4, c[0x0][0x208];
LDC.64 R2, c[0x0][0x210];
IMAD.WIDE.U32 R2, R0, 0x4, R2;
MOV R4, 0xffffffff;
ISETP.GT.AND P0, PT, R0, 0xf, PT;
@P0 BRA there;
NANOSLEEP 0x10;
IADD3 R6, R0, 0x1, RZ;
there:
WARPSYNC.COLLECTIVE R4, done;
SHFL.BFLY PT, R5, R0, 0x10, 0x1f;
ENDCOLLECTIVE;
done:
STG.E desc[UR4][R2.64], R5;
EXIT;
"""


def test_collective() -> None:
    """The halves of a warp come apart, and exchange their numbers."""
    out = np.zeros(32, np.uint32)
    launch(turingas.assemble(COLLECTIVE), "k", 1, 32, [out])
    assert (out == np.arange(32) ^ 16).all()


def test_collective_of_several() -> None:
    """Lanes with different masks: each group sums for itself, as cg::reduce of a labeled_partition does."""
    source = COLLECTIVE.replace("MOV R4, 0xffffffff;", "LOP3.LUT R7, R0, 0x3, RZ, 0xc0, !PT;\nMATCH.ANY R4, R7;")
    source = source.replace("SHFL.BFLY PT, R5, R0, 0x10, 0x1f;", "REDUX.SUM UR6, R0;\nMOV R5, UR6;")
    out = np.zeros(32, np.uint32)
    launch(turingas.schedule(source, "sm_90a"), "k", 1, 32, [out])
    lanes = np.arange(32)
    assert (out == [lanes[lanes % 4 == n % 4].sum() for n in lanes]).all()


def test_what_a_card_has_seen() -> None:
    """What an H200 made of all of them, and of all widths (tests/gpu/test_warpgroup.py): the same bits. How many there
    are is in docs/emulator.md."""
    found = json.loads((Path(__file__).parent / "products_sm90.json").read_text())["products"]
    assert not any(one["random_codes"] or one["any_codes"] for one in found.values())
    assert {f"{p.text} {p.swizzles}" for p in [*wgmma.PRODUCTS, *WIDTHS]} == set(found)
    assert (len(found), round(sum(one["elements"] for one in found.values()) / 1e6, 1)) == (64, 13.7)
