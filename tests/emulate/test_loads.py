"""Loads, stores, copies: sizes, address forms and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulate.memories import Machine
from turingas.emulate.build import Unsupported
from turingas.emulate.errors import DeviceError
from turingas.emulate.memory import LOCAL_WINDOW, SHARED_WINDOW, Global

LANE = np.arange(32)
RNG = np.random.default_rng(3)
BYTES = RNG.integers(0, 256, 4096, np.uint8)


def wide(base: int, step: int = 0) -> Any:
    """An address for each lane, uint64."""
    return np.uint64(base) + LANE.astype(np.uint64) * np.uint64(step)


def filled(warps: int = 1) -> tuple[Global, int]:
    """Global memory with BYTES."""
    memory = Global()
    return memory, memory.add(BYTES.copy(), "bytes")


# ---- sizes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(".U8", "u1"), (".S8", "i1"), (".U16", "<u2"), (".S16", "<i2"), ("", "<u4"), (".64", "<u8"), (".128", None)],
)
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_load_sizes(space: str, size: str, dtype: str | None) -> None:
    """Every size from every memory, smaller ones extended."""
    nbytes = np.dtype(dtype).itemsize if dtype else 16
    memory, base = filled()
    text = {"global": f"LDG.E{size}.SYS R4, [R2]", "generic": f"LD.E{size}.SYS R4, [R2]"}.get(
        space, f"LDS.U{size} R4, [R2]" if space == "shared" else f"LDL{size} R4, [R2]"
    )
    start = base if space in ("global", "generic") else 0
    machine = Machine(text, regs={2: wide(start, nbytes)}, memory=memory, shared=1024, local=1024)
    machine.wave.shared.array[:] = BYTES[:1024].view(np.uint32)
    machine.wave.local.words[:] = BYTES[:1024].view(np.uint32)[:, None, None]
    out = machine.run()
    if dtype is None:
        got = np.stack([out.r(4 + j) for j in range(4)], axis=-1).reshape(-1)
        assert np.array_equal(got, BYTES[:512].view(np.uint32))
    elif nbytes == 8:
        assert np.array_equal(out.r64(4), BYTES[:256].view(np.uint64))
    else:
        expected = BYTES[: 32 * nbytes].view(dtype).astype(np.int64)
        assert np.array_equal(out.r(4, np.int32), expected.astype(np.uint32).view(np.int32))


@pytest.mark.parametrize(("size", "nbytes"), [(".U8", 1), (".U16", 2), ("", 4), (".64", 8), (".128", 16)])
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_store_sizes(space: str, size: str, nbytes: int) -> None:
    """Every size to every memory."""
    memory = Global()
    array = np.zeros(1024, np.uint8)
    base = memory.add(array)
    text = {
        "global": f"STG.E{size}.SYS [R2], R4",
        "generic": f"ST.E{size}.SYS [R2], R4",
        "shared": f"STS{size} [R2], R4",
        "local": f"STL{size} [R2], R4",
    }[space]
    words = RNG.integers(0, 1 << 32, (32, 4), np.uint32)
    start = base if space in ("global", "generic") else 0
    regs: dict[int, Any] = {2: wide(start, nbytes), **{4 + j: words[:, j].copy() for j in range(4)}}
    machine = Machine(text, regs=regs, memory=memory, local=1024)
    machine.run()
    expected = np.ascontiguousarray(words).view(np.uint8)[:, :nbytes].reshape(-1)
    if space == "local":
        for lane in range(32):
            own = np.ascontiguousarray(machine.wave.local.words[:, 0, lane]).view(np.uint8)
            assert np.array_equal(own[lane * nbytes :][:nbytes], expected[lane * nbytes :][:nbytes])
            assert own.astype(bool).sum() <= nbytes
        return
    got = machine.wave.shared.array.view(np.uint8) if space == "shared" else array
    assert np.array_equal(got[: 32 * nbytes], expected) and not got[32 * nbytes :].any()


def test_rz_stores_zeros_and_swallows_loads() -> None:
    """RZ, wide too."""
    memory, base = filled()
    machine = Machine("STG.E.128.SYS [R2], RZ\nLDG.E.64.SYS RZ, [R2]", regs={2: wide(base, 16)}, memory=memory)
    machine.run()
    assert not memory.view(base)[:512].any() and memory.view(base)[512:].any()


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "text", "regs", "uregs", "at"),
    [
        ("sm_70", "LDG.E.SYS R9, [R2+0x10]", {2: "base"}, {}, lambda x: x * 0 + 16),
        ("sm_75", "LDG.E.SYS R9, [R2+-0x8]", {2: "base+lane*4+64"}, {}, lambda x: x * 4 + 56),
        ("sm_75", "LDG.E.SYS R9, [UR4+0x8]", {}, {4: "base"}, lambda x: x * 0 + 8),
        ("sm_75", "LDG.E.SYS R9, [R2.U32+UR4+0x8]", {2: "lane*4"}, {4: "base"}, lambda x: x * 4 + 8),
        ("sm_75", "LDG.E.SYS R9, [R2.64+UR4]", {2: "wide lane*4"}, {4: "base"}, lambda x: x * 4),
        ("sm_86", "LDG.E R9, ~desc[UR4][R2.64+0x20]", {2: "base+lane*4"}, {4: "junk"}, lambda x: x * 4 + 32),
        ("sm_86", "LDG.E R9, desc[UR4][R2.64+0x20]", {2: "base+lane*4"}, {4: "junk"}, lambda x: x * 4 + 32),
        ("sm_90", "LDG.E R9, desc[UR4][R2.64+-0x20]", {2: "base+lane*4+32"}, {4: "junk"}, lambda x: x * 4),
        ("sm_90", "LDG.E R9, [R2.U32+UR4]", {2: "lane*4"}, {4: "base"}, lambda x: x * 4),
    ],
)
def test_global_addresses(arch: str, text: str, regs: dict[int, str], uregs: dict[int, str], at: Any) -> None:
    """All forms; the descriptor adds nothing, a pair of uniform registers is 64 bits."""
    memory, base = filled()
    values: dict[str, Any] = {
        "base": np.uint64(base), "base+lane*4": wide(base, 4), "base+lane*4+64": wide(base + 64, 4),
        "base+lane*4+32": wide(base + 32, 4), "lane*4": (LANE * 4).astype(np.uint32), "wide lane*4": wide(0, 4),
        "junk": np.uint64(0x123456789ABCDEF0),
    }  # fmt: skip
    machine = Machine(
        text,
        arch,
        regs={n: values[v] for n, v in regs.items()},
        uregs={n: values[v] for n, v in uregs.items()},
        memory=memory,
    )
    assert np.array_equal(machine.run().r(9), BYTES.view(np.uint32)[at(LANE) // 4])


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("LDS.U R9, [R2]", lambda x: x * 4),
        ("LDS.U R9, [R2+0x10]", lambda x: x * 4 + 16),
        ("LDS.U R9, [R2.X4+0x10]", lambda x: x * 16 + 16),
        ("LDS.U R9, [R2.X4+UR4+0x10]", lambda x: x * 16 + 16 + 64),
        ("LDS.U R9, [R2.X8+UR4+-0x40]", lambda x: x * 32),
        ("LDS.U R9, [R2+UR4]", lambda x: x * 4 + 64),
        ("LDS.U R9, [UR4+0x8]", lambda x: x * 0 + 72),
        ("LDS.U R9, [0x20]", lambda x: x * 0 + 32),
        ("LDS.U R9, [RZ]", lambda x: x * 0),
    ],
)
def test_shared_addresses(text: str, at: Any) -> None:
    """All forms."""
    offsets = np.tile(LANE * 4, 2).astype(np.uint32)
    machine = Machine(text, warps=2, per_block=1, regs={2: offsets}, uregs={4: 64}, shared=2048)
    machine.wave.shared.array[:] = BYTES.view(np.uint32)
    got = machine.run().r(9).reshape(2, 32)
    assert np.array_equal(got[0], BYTES[:2048].view(np.uint32)[at(LANE) // 4])
    assert np.array_equal(got[1], BYTES[2048:].view(np.uint32)[at(LANE) // 4])


def test_generic_windows() -> None:
    """One LD of lanes in global, shared and local memory; one ST to all three; QSPC tells them apart."""
    memory, base = filled()
    at = wide(base, 4)
    at[10:20] = (SHARED_WINDOW << 32) + LANE[10:20] * 4
    at[20:] = (LOCAL_WINDOW << 32) + 16
    text = """LD.E.SYS R4, [R2]
    QSPC.E.S P0, RZ, [R2]
    QSPC.E.L P1, RZ, [R2]
    QSPC.E.G P2, RZ, [R2]
    ST.E.SYS [R2+0x40], R5"""
    machine = Machine(text, regs={2: at, 5: LANE.astype(np.uint32) + 1}, memory=memory)
    machine.wave.shared.array[:] = 1000 + np.arange(256)
    machine.wave.local.words[4] = 77
    out = machine.run()
    expected = BYTES[:128].view(np.uint32).copy()
    expected[10:20] = 1000 + LANE[10:20]
    expected[20:] = 77
    assert np.array_equal(out.r(4), expected)
    assert np.array_equal(out.p(0), (LANE >= 10) & (LANE < 20))
    assert np.array_equal(out.p(1), LANE >= 20) and np.array_equal(out.p(2), LANE < 10)
    assert memory.view(base)[64:104].view(np.uint32).tolist() == list(range(1, 11))
    assert machine.wave.shared.array[26:36].tolist() == list(range(11, 21))
    assert machine.wave.local.words[20, 0].tolist() == [0] * 20 + list(range(21, 33))


def test_a_generic_store_with_one_wrong_lane_does_nothing() -> None:
    """Not in the other memories either."""
    memory, base = filled()
    at = wide(base, 4)
    at[10:] = (SHARED_WINDOW << 32) + LANE[10:] * 4
    at[31] = (LOCAL_WINDOW << 32) + 0x10000
    machine = Machine("ST.E.SYS [R2], R5", regs={2: at, 5: 1}, memory=memory)
    with pytest.raises(DeviceError) as caught:
        machine.run()
    assert caught.value.kind == "out of bounds" and caught.value.thread == (31, 0, 0)
    assert np.array_equal(memory.view(base), BYTES) and not machine.wave.shared.array.any()


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_errors_name_instruction_and_thread() -> None:
    """The first lane that may not."""
    memory, base = filled()
    at = wide(base, 4)
    at[7] = base + 4096
    machine = Machine("LDG.E.SYS R4, [R2]", warps=2, regs={2: np.tile(at, 2)}, memory=memory)
    with pytest.raises(DeviceError) as caught:
        machine.run()
    error = caught.value
    assert error.kind == "out of bounds" and error.thread == (7, 0, 0) and error.address == base + 4096
    assert error.place is not None and error.place.text == "LDG.E.SYS R4, [R2]"
    assert "'bytes' (4096 bytes" in str(error)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("LDG.E.64.SYS R4, [UR4+0x4]", "misaligned"),
        ("LDS.U.128 R4, [UR6+0x8]", "misaligned"),
        ("STS [UR6+0x1000], R4", "out of bounds"),
        ("STL.64 [UR6+0x100], R4", "out of bounds"),
        ("LDL R4, [UR6+0x2]", "misaligned"),
    ],
)
def test_uniform_addresses_fail_in_the_first_active_lane(text: str, kind: str) -> None:
    """A warp with one address; inactive lanes are not to blame, and warps without a lane not at all."""
    memory, base = filled()
    machine = Machine(text, warps=2, uregs={4: np.uint64(base), 6: 0}, memory=memory)
    active = np.zeros((2, 32), bool)
    active[1, 5:9] = True
    with pytest.raises(DeviceError) as caught:
        machine.run(active)
    assert caught.value.kind == kind and caught.value.thread == (37, 0, 0)


def test_lanes_that_are_off_are_left_alone() -> None:
    """By a guard: they keep their register and may hold any address."""
    memory, base = filled()
    at = np.where(LANE % 2, wide(base, 4), np.uint64(3))
    machine = Machine("@P0 LDG.E.SYS R4, [R2]", regs={2: at, 4: 9}, preds={0: LANE % 2}, memory=memory)
    assert np.array_equal(machine.run().r(4), np.where(LANE % 2, BYTES[:128].view(np.uint32), 9))


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        ("sm_80", "LDG.E R4, desc[UR4][R2.64], !P3"),
        ("sm_75", "LDG.E.SYS P1, R4, [R2]"),
        ("sm_80", "LDC.IL R4, c[0x1][R3]"),
    ],
)
def test_what_nobody_has_explained_is_refused(arch: str, text: str) -> None:
    """Not passed over."""
    with pytest.raises(Unsupported):
        Machine(text, arch).run()


# ---- constants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "dtype"), [(".U8", "u1"), (".S8", "i1"), (".U16", "<u2"), (".S16", "<i2"), ("", "<u4"), (".64", "<u8")]
)
@pytest.mark.parametrize("form", ["LDC{} R4, c[0x3][R2+0x20]", "LDC{} R4, c[0x3][0x20]", "ULDC{} UR4, c[0x3][0x20]"])
def test_constants(form: str, size: str, dtype: str) -> None:
    """Every size, by register or not."""
    nbytes = np.dtype(dtype).itemsize
    index = (LANE * nbytes).astype(np.uint32)
    out = Machine(form.format(size), regs={2: index}, constants={3: BYTES[:512].tobytes()}).run()
    data = BYTES[32 : 32 + 32 * nbytes].view(dtype)
    if "[R2" not in form:
        data = np.repeat(data[:1], 32)
    if form[0] == "U":
        got, data = (out.ur64(4) if nbytes == 8 else out.ur(4)), data[:1]
    else:
        got = out.r64(4) if nbytes == 8 else out.r(4)
    assert np.array_equal(got, data if nbytes == 8 else data.astype(np.int64).astype(np.uint32))


def test_constants_beyond_the_end() -> None:
    """Of the bank, for lanes that count."""
    index = (LANE * 4).astype(np.uint32)
    constants = {3: bytes(100)}
    with pytest.raises(DeviceError, match="the bank has 100 bytes") as caught:
        Machine("LDC R4, c[0x3][R2]", regs={2: index}, constants=constants).run()
    assert caught.value.thread == (25, 0, 0)
    Machine("@P0 LDC R4, c[0x3][R2]", regs={2: index}, constants=constants, preds={0: LANE < 25}).run()
    with pytest.raises(DeviceError, match="not aligned to 4"):
        Machine("LDC R4, c[0x3][R2+0x2]", regs={2: index}, constants=constants).run()


# ---- copies ---------------------------------------------------------------------------------------------------------


def copied(text: str, offset: Any = 0, arch: str = "sm_80", **more: Any) -> Any:
    """Shared memory (lanes, bytes of 16) after an LDGSTS of 16 bytes a lane."""
    memory, base = filled()
    regs = {2: wide(base, 16) + np.asarray(offset, np.uint64), 6: (LANE * 16).astype(np.uint32)}
    machine = Machine(text, arch, regs=regs, memory=memory, **more)
    machine.wave.shared.array[:] = 0xFFFFFFFF
    machine.run()
    return machine.wave.shared.array.view(np.uint8)[:512].reshape(32, 16)


def test_copy() -> None:
    """From global to shared memory."""
    assert np.array_equal(copied("LDGSTS.E.BYPASS.128 [R6], ~desc[UR4][R2.64]"), BYTES[:512].reshape(32, 16))
    got = copied("LDGSTS.E.64 [R6+0x8], ~desc[UR4][R2.64+0x8]")
    assert np.array_equal(got[:, 8:], BYTES[:512].reshape(32, 16)[:, 8:]) and (got[:, :8] == 255).all()
    got = copied("LDGSTS.E [R6+UR4], desc[UR5][R2.64]", arch="sm_90", uregs={4: 4})
    assert np.array_equal(got[:, 4:8], BYTES[:512].reshape(32, 16)[:, :4])


@pytest.mark.parametrize("missing", [LANE % 16, LANE % 4 * 4, LANE * 0])
def test_copy_of_fewer_bytes(missing: Any) -> None:
    """The low bits of the address say how many bytes at the end are zeros and not read."""
    got = copied("LDGSTS.E.BYPASS.128.ZFILL [R6], ~desc[UR4][R2.64]", missing)
    valid = np.arange(16) < 16 - missing[:, None]
    assert np.array_equal(got, np.where(valid, BYTES[:512].reshape(32, 16), 0))


def test_copy_reads_no_more_than_it_says() -> None:
    """The last bytes of an array that ends within 16 bytes."""
    memory = Global()
    base = memory.add(np.full(20, 5, np.uint8))
    text = "LDGSTS.E.128.ZFILL [R6], ~desc[UR4][R2.64]"
    machine = Machine(text, "sm_80", regs={2: np.uint64(base + 16 + 12), 6: 0}, memory=memory)
    machine.run()
    assert machine.wave.shared.array[:4].tolist() == [0x05050505, 0, 0, 0]
    with pytest.raises(DeviceError, match="the source"):
        Machine(text, "sm_80", regs={2: np.uint64(base + 16 + 8), 6: 0}, memory=memory).run()
    with pytest.raises(DeviceError, match="the destination"):
        Machine(text, "sm_80", regs={2: np.uint64(base), 6: 0x10000}, memory=memory).run()


@pytest.mark.parametrize("zfill", ["", ".ZFILL"])
def test_copy_under_a_predicate(zfill: str) -> None:
    """Where it is false zeros are written, and nothing is read."""
    offset = np.where(LANE < 9, 0, 1 << 40)
    got = copied(f"LDGSTS.E.128{zfill} [R6], ~desc[UR4][R2.64], P2", offset, preds={2: LANE < 9})
    assert np.array_equal(got[:9], BYTES[:144].reshape(9, 16)) and not got[9:].any()
    got = copied(f"@!P3 LDGSTS.E.128{zfill} [R6], ~desc[UR4][R2.64], !P2", preds={2: LANE >= 0, 3: LANE < 9})
    assert (got[:9] == 255).all() and not got[9:].any()


# ---- matrices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("turn", [False, True])
def test_load_and_store_matrices(count: int, turn: bool) -> None:
    """As the PTX ISA draws the fragments: lane l holds elements 2 (l % 4) and the next of row l / 4."""
    kind = f".16.{'MT88' if turn else 'M88'}{'' if count == 1 else f'.{count}'}"
    order = np.random.default_rng(count).permutation(32)  # rows lie anywhere
    at = (order * 16).astype(np.uint32)
    at[8 * count :] = 0xFFFFFFFF  # addresses that do not count
    machine = Machine(f"LDSM{kind} R4, [R2]\nSTSM{kind} [R2+0x200], R4", "sm_90", regs={2: at}, shared=1024)
    halves = BYTES[:1024].copy().view(np.uint16)
    machine.wave.shared.array[:] = halves.view(np.uint32)
    out = machine.run()
    for j in range(count):
        matrix = halves.reshape(-1, 8)[order[8 * j : 8 * j + 8]]
        if turn:
            matrix = matrix.T
        fragment = out.r(4 + j).view(np.uint16).reshape(32, 2)
        for lane in range(32):
            assert fragment[lane].tolist() == matrix[lane // 4, 2 * (lane % 4) :][:2].tolist()
    rows = machine.wave.shared.array[128:].view(np.uint16).reshape(-1, 8)
    for row in order[: 8 * count]:
        assert np.array_equal(rows[row], halves.reshape(-1, 8)[row])


def test_matrix_rows_are_aligned() -> None:
    """To 16 bytes."""
    with pytest.raises(DeviceError, match="not aligned to 16") as caught:
        Machine("LDSM.16.M88.2 R4, [R2]", regs={2: np.where(LANE == 12, 8, 0).astype(np.uint32)}).run()
    assert caught.value.thread == (12, 0, 0)


# ---- fences ---------------------------------------------------------------------------------------------------------


def test_fences_do_nothing() -> None:
    """And are known."""
    Machine("MEMBAR.SC.GPU\nERRBAR\nCCTL.IVALL", "sm_75").run()
    Machine("LDGDEPBAR\nMEMBAR.ALL.CTA", "sm_80").run()
    Machine("FENCE.VIEW.ASYNC.S", "sm_90").run()
