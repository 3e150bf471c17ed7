"""Warp-wide instructions against loops over lanes that follow the PTX ISA, and special registers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate import step
from turingas.emulate import memory
from turingas.emulate.build import Unsupported
from turingas.emulate.cohort import Cohort

RNG = np.random.default_rng(7)
VALUES = RNG.integers(0, 1 << 32, 64, np.uint32)  # two warps
SOME = RNG.random(64) < 0.6
SOME[[0, 40]] = True
FEW = np.isin(np.arange(64), [3, 7, 30, 33, 63])


def shuffle(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane that is read, and whether it is in range: shfl.sync of the PTX ISA, word by word."""
    bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
    max_lane = (lane & segmask) | (cval & ~segmask & 31)
    min_lane = lane & segmask
    match mode:
        case "UP":
            j = lane - bval
            good = j >= max_lane
        case "DOWN":
            j = lane + bval
            good = j <= max_lane
        case "BFLY":
            j = lane ^ bval
            good = j <= max_lane
        case _:
            j = min_lane | (bval & ~segmask & 31)
            good = j <= max_lane
    return (j if good else lane), good


CLAMPS = [0x1F, 0x0, 0x1C1F, 0x1800, 0x181F, 0x1E1F, 0x1F1F, 0x0F0F, 0x1007]


@pytest.mark.parametrize("mode", ["IDX", "UP", "DOWN", "BFLY"])
@pytest.mark.parametrize("c", CLAMPS)
def test_shuffle_by_immediates(mode: str, c: int) -> None:
    for b in (0, 1, 3, 8, 16, 31):
        out = step.run(f"SHFL.{mode} P1, R2, R0, {b:#x}, {c:#x}", regs={0: VALUES})
        expected = [shuffle(mode, n % 32, b, c) for n in range(64)]
        assert out.r(2).tolist() == [VALUES[n // 32 * 32 + j] for n, (j, _) in enumerate(expected)]
        assert out.p(1).tolist() == [good for _, good in expected]


@pytest.mark.parametrize("mode", ["IDX", "UP", "DOWN", "BFLY"])
def test_shuffle_by_registers_with_inactive_lanes(mode: str) -> None:
    b = RNG.integers(0, 1 << 32, 64, np.uint32)
    c = RNG.choice(np.array(CLAMPS, np.uint32), 64)
    out = step.run(f"SHFL.{mode} P1, R2, R0, R1, R4", regs={0: VALUES, 1: b, 4: c, 2: 9}, active=SOME)
    for n in range(64):
        j, good = shuffle(mode, n % 32, int(b[n]), int(c[n]))
        at = n // 32 * 32 + j
        if SOME[n]:  # an inactive lane gives 0, as an H200 does
            assert out.r(2)[n] == (VALUES[at] if SOME[at] else 0) and out.p(1)[n] == good
        else:
            assert out.r(2)[n] == 9 and not out.p(1)[n]


def test_shuffle_of_mixed_operands() -> None:
    out = step.run("SHFL.BFLY P1, R2, R0, R1, 0x1f\nSHFL.UP PT, R3, R0, 0x2, R4", regs={0: VALUES, 1: 5, 4: 0x1800})
    assert out.r(2).tolist() == [VALUES[n ^ 5] for n in range(64)]
    assert out.r(3).tolist() == [VALUES[n - 2 if n % 8 >= 2 else n] for n in range(64)]


def test_shuffle_onto_itself() -> None:
    out = step.run("SHFL.IDX PT, R0, R0, 0x4, 0x1f", regs={0: VALUES})
    assert out.r(0).tolist() == [VALUES[n // 32 * 32 + 4] for n in range(64)]


def test_shuffle_with_no_lane_does_nothing() -> None:
    """Compilers begin sm_70 kernels with it."""
    step.run("@!PT SHFL.IDX PT, RZ, RZ, RZ, RZ", arch="sm_70")


# ---- votes -----------------------------------------------------------------------------------------------------------


def groups(active: np.ndarray) -> list[list[int]]:
    """The lanes of each warp that take part, by thread."""
    return [[n for n in range(32 * w, 32 * w + 32) if active[n]] for w in range(2)]


@pytest.mark.parametrize("says", [np.zeros(64, bool), np.ones(64, bool), SOME, FEW, ~SOME])
@pytest.mark.parametrize("active", [np.ones(64, bool), SOME, FEW])
def test_votes(says: np.ndarray, active: np.ndarray) -> None:
    text = "VOTE.ALL R1, P1, P0\nVOTE.ANY R2, P2, P0\nVOTE.EQ R3, P3, P0\nVOTE.ANY R4, PT, !P0"
    out = step.run(text, preds={0: says}, active=active)
    for lanes in groups(active):
        yes = [bool(says[n]) for n in lanes]
        for n in lanes:
            assert [out.p(1)[n], out.p(2)[n], out.p(3)[n]] == [all(yes), any(yes), len(set(yes)) == 1]
            mask = sum(1 << at % 32 for at in lanes if says[at])
            assert [out.r(1)[n], out.r(2)[n], out.r(3)[n]] == [mask] * 3
            assert out.r(4)[n] == sum(1 << at % 32 for at in lanes) - mask


def test_a_vote_counts_lanes_after_its_guard() -> None:
    out = step.run("@P0 VOTE.ANY R2, P1, PT", preds={0: SOME}, regs={2: 5})
    for warp, lanes in enumerate(groups(SOME)):
        mask = sum(1 << n % 32 for n in lanes)
        assert out.r(2)[32 * warp : 32 * warp + 32].tolist() == [mask if SOME[32 * warp + n] else 5 for n in range(32)]


def test_vote_to_uniform_registers() -> None:
    out = step.run("VOTEU.ANY UR4, UP1, P0\nVOTEU.ALL UR5, UP2, P0", preds={0: FEW}, active=SOME | FEW)
    masks = [sum(1 << n % 32 for n in lanes) for lanes in groups(FEW)]
    assert out.ur(4).tolist() == out.ur(5).tolist() == masks
    assert out.up(1).tolist() == [True, True] and out.up(2).tolist() == [False, False]


def test_a_warp_without_lanes_keeps_its_uniform_registers() -> None:
    first = np.arange(64) < 32
    out = step.run("VOTEU.ANY UR4, UP1, PT", regs={0: VALUES}, uregs={4: 77}, active=first)
    assert out.ur(4).tolist() == [0xFFFFFFFF, 77]


@pytest.mark.parametrize("active", [np.ones(64, bool), SOME])
def test_match_any(active: np.ndarray) -> None:
    value = RNG.integers(0, 4, 64, np.uint32)
    wide = value.astype(np.uint64) << np.uint64(32) | (VALUES & 1)
    out = step.run("MATCH.ANY R2, R0\nMATCH.ANY.U64 R3, R4", regs={0: value, 4: wide}, active=active)
    for lanes in groups(active):
        for n in lanes:
            assert out.r(2)[n] == sum(1 << at % 32 for at in lanes if value[at] == value[n])
            assert out.r(3)[n] == sum(1 << at % 32 for at in lanes if wide[at] == wide[n])


def test_match_all() -> None:
    value = np.where(SOME, 6, VALUES).astype(np.uint32)
    value[32:] = VALUES[32:]
    out = step.run("MATCH.ALL P1, R2, R0", regs={0: value}, active=SOME)
    same, different = groups(SOME)
    assert all(out.p(1)[same]) and set(out.r(2)[same].tolist()) == {sum(1 << n for n in same)}
    assert not any(out.p(1)[different]) and set(out.r(2)[different].tolist()) == {0}
    wide = np.full(64, 5 << 40, np.uint64)
    wide[40] += np.uint64(1 << 41)
    out = step.run("MATCH.ALL.U64 P1, R2, R4", regs={4: wide})
    assert out.p(1).tolist() == [True] * 32 + [False] * 32


REDUCE = {
    "": lambda v: int(np.bitwise_and.reduce(v)),
    ".OR": lambda v: int(np.bitwise_or.reduce(v)),
    ".XOR": lambda v: int(np.bitwise_xor.reduce(v)),
    ".SUM": lambda v: sum(map(int, v)) & 0xFFFFFFFF,
    ".SUM.S32": lambda v: sum(map(int, v)) & 0xFFFFFFFF,
    ".MIN": lambda v: min(map(int, v)),
    ".MAX": lambda v: max(map(int, v)),
    ".MIN.S32": lambda v: min(map(int, v.view(np.int32))) & 0xFFFFFFFF,
    ".MAX.S32": lambda v: max(map(int, v.view(np.int32))) & 0xFFFFFFFF,
}


@pytest.mark.parametrize("kind", REDUCE)
@pytest.mark.parametrize("active", [np.ones(64, bool), SOME, FEW])
def test_redux(kind: str, active: np.ndarray) -> None:
    out = step.run(f"REDUX{kind} UR4, R0", arch="sm_80", regs={0: VALUES}, active=active)
    assert out.ur(4).tolist() == [REDUCE[kind](VALUES[lanes]) for lanes in groups(active)]
    small = VALUES & np.uint32(0x0FFFFFFF)  # all positive: what inactive lanes add must not show
    for values in (small, small | np.uint32(0xF0000000)):
        out = step.run(f"REDUX{kind} UR4, R0", arch="sm_80", regs={0: values}, active=active)
        assert out.ur(4).tolist() == [REDUCE[kind](values[lanes]) for lanes in groups(active)]


def test_elect() -> None:
    out = step.run("ELECT P1, UR4, PT\nELECT P2, UR5, P0", arch="sm_90", preds={0: FEW}, active=SOME | FEW)
    leaders = [lanes[0] for lanes in groups(SOME | FEW)]
    assert np.flatnonzero(out.p(1)).tolist() == leaders and out.ur(4).tolist() == [n % 32 for n in leaders]
    leaders = [lanes[0] for lanes in groups(FEW)]
    assert np.flatnonzero(out.p(2)).tolist() == leaders and out.ur(5).tolist() == [n % 32 for n in leaders]
    out = step.run("ELECT P1, UR4, UR6\nELECT P2, UR5, ~UR7", "sm_90", {0: VALUES}, uregs={6: 0xF0, 7: 0xFF})
    assert out.ur(4).tolist() == [4, 4] and out.ur(5).tolist() == [8, 8]
    assert np.flatnonzero(out.p(1)).tolist() == [4, 36] and np.flatnonzero(out.p(2)).tolist() == [8, 40]


def test_one_lane_after_the_other_goes_uniform() -> None:
    """R2UR's predicate: who must come again, in the loop that ptxas writes around an address that lanes differ in."""
    value = np.repeat([5, 9, 5, 5], 16).astype(np.uint32)
    out = step.run("R2UR P1, UR4, R0", arch="sm_80", regs={0: value}, active=SOME)
    assert out.ur(4).tolist() == [5, 5]
    assert out.p(1).tolist() == (SOME & (value == 9)).tolist()


# ---- special registers -----------------------------------------------------------------------------------------------

BLOCK = (8, 3, 3)  # 72 threads: three warps a block


def special(text: str, arch: str = "sm_75") -> step.Result:
    """Runs one instruction in the four warps of a wave: block (5, 6, 7), then the first warp of block (6, 6, 7)."""
    image = step.Image(arch, {})
    wave = step.Wave(4, image)
    wave.block = BLOCK
    thread = np.concatenate([np.arange(96), np.arange(32)])
    wave.tid = np.stack([thread % 8, thread // 8 % 3, thread // 24]).astype(np.uint32).reshape(3, 4, 32)
    wave.ctaid = np.array([[5, 5, 5, 6], [6] * 4, [7] * 4], np.uint32)[:, :, None]
    wave.clock = np.array([3, 1 << 32, (5 << 32) + 9, 0], np.int64)[:, None]
    wave.shared = memory.Shared(2, 2048)
    wave.rank = np.zeros((4, 1), np.uint32)  # no cluster: each block is the first of its own
    k = Cohort(wave, slice(None), 4, None)  # type: ignore[arg-type]
    for i in step.decoded(text, arch):
        step.build(i, image)(k)
    return step.Result(wave)


def test_thread_and_block() -> None:
    out = special("S2R R0, SR_TID.X\nS2R R1, SR_TID.Y\nS2R R2, SR_TID.Z\nS2R R3, SR_TID\nS2R R4, SR_LANEID")
    for n in range(128):
        thread = n if n < 96 else n - 96
        x, y, z = thread % 8, thread // 8 % 3, thread // 24
        assert [out.r(r)[n] for r in range(5)] == [x, y, z, x | y << 16 | z << 26, n % 32]
    out = special("S2R R0, SR_CTAID.X\nS2R R1, SR_CTAID.Y\nS2R R2, SR_CTAID.Z\nS2UR UR4, SR_CTAID.X")
    assert out.r(0).tolist() == [5] * 96 + [6] * 32
    assert set(out.r(1).tolist()) == {6} and set(out.r(2).tolist()) == {7}
    assert out.ur(4).tolist() == [5, 5, 5, 6]


def test_masks_of_lanes() -> None:
    names = ("EQ", "LT", "LE", "GT", "GE")
    out = special("\n".join(f"S2R R{r}, SR_{name}MASK" for r, name in enumerate(names)))
    for n in range(32):
        expected = [[n], range(n), range(n + 1), range(n + 1, 32), range(n, 32)]
        assert [out.r(r)[n] for r in range(5)] == [sum(1 << lane for lane in lanes) for lanes in expected]


def test_clock() -> None:
    out = special("CS2R R0, SR_CLOCKLO\nCS2R.32 R2, SR_CLOCKLO\nCS2R.32 R3, SR_CLOCKHI\nCS2R R4, SR_GLOBALTIMERLO")
    clocks = [3, 1 << 32, (5 << 32) + 9, 0]
    assert out.r64(0)[::32].tolist() == out.r64(4)[::32].tolist() == clocks
    assert out.r(2)[::32].tolist() == [c & 0xFFFFFFFF for c in clocks]
    assert out.r(3)[::32].tolist() == [c >> 32 for c in clocks]


def test_zero() -> None:
    out = step.run("CS2R R2, SRZ\nS2R R0, SRZ", regs={0: VALUES, 2: VALUES, 3: VALUES})
    assert not out.r(0).any() and not out.r(2).any() and not out.r(3).any()


def test_where_it_runs() -> None:
    out = special("S2R R0, SR_VIRTID\nS2R R1, SR_VIRTUALSMID\nS2R R2, SR_VIRTCFG\nS2R R3, SR_SMEMSZ")
    assert (out.r(0)[::32] >> 8 & 127).tolist() == [0, 1, 2, 0]  # as compiled code takes %warpid out of it
    assert not out.r(1).any() and set((out.r(2) >> 8 & 255).tolist()) == {32}
    assert set(out.r(3).tolist()) == {2048}
    out = special("S2R R0, SR_SWINHI\nS2R R1, SR_LWINHI\nS2UR UR4, SR_CgaCtaId", "sm_90")
    assert set(out.r(0).tolist()) == {memory.SHARED_WINDOW} and set(out.r(1).tolist()) == {memory.LOCAL_WINDOW}
    assert out.ur(4).tolist() == [0] * 4


@pytest.mark.parametrize("text", ["S2R R0, SR_PRIM_TYPE", "CS2R R0, SR_LTMASK", "CS2R.32 R0, SR_ESR_PC"])
def test_unknown_registers_are_named(text: str) -> None:
    with pytest.raises(Unsupported, match=text.rpartition(" ")[2]):
        special(text)
