"""Atomics against doing them lane after lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.emulate.memories import Machine
from turingas.emulate.build import Unsupported
from turingas.emulate.errors import DeviceError
from turingas.emulate.memory import LOCAL_WINDOW, SHARED_WINDOW, Global

LANE = np.arange(32)
U64 = (1 << 64) - 1

INTEGERS: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda a, b: a + b,
    "MIN": min,
    "MAX": max,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "EXCH": lambda a, b: b,
    "INC": lambda a, b: 0 if a >= b else a + 1,
    "DEC": lambda a, b: b if a == 0 or a > b else a - 1,
}
TYPES = {"": np.uint32, ".S32": np.int32, ".64": np.uint64, ".S64": np.int64}
# how many lanes meet: none; two or three; all on few places; all on one
SPREADS = {"alone": 128, "pairs": 40, "few": 3, "one": 1}


def sequential(memory: Any, index: Any, values: Any, function: Callable[[int, int], int]) -> Any:
    """Old values, and memory is updated."""
    old = np.empty(len(index), memory.dtype)
    mask = (1 << 8 * memory.itemsize) - 1
    for n, (at, value) in enumerate(zip(index.tolist(), values.tolist())):
        old[n] = memory[at]
        new = function(int(memory[at]), value) & mask
        memory[at] = np.array([new], f"u{memory.itemsize}").view(memory.dtype)[0]
    return old


def places(spread: str, rng: Any, count: int = 128) -> Any:
    """Indices for count lanes."""
    return rng.permutation(count) if spread == "alone" else rng.integers(0, SPREADS[spread], count)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", TYPES)
def test_integers_in_global_memory(name: str, kind: str, spread: str) -> None:
    """Old values and memory, with 4 warps, some lanes off; RED the same without old values."""
    if name in ("INC", "DEC") and kind:
        return
    dtype = TYPES[kind]
    words = np.dtype(dtype).itemsize // 4
    rng = np.random.default_rng(len(name) * 7 + len(kind))
    start = rng.integers(0, 1 << 63, 128).astype(dtype)
    values = rng.integers(0, 1 << 63, 128).astype(dtype)
    if name in ("INC", "DEC"):
        start, values = start % 5, values % 7
    index = places(spread, rng)
    active = rng.random(128) < 0.8
    expected = start.copy()
    old = sequential(expected, index[active], values[active], INTEGERS[name])
    for text in (f"ATOMG.E.{name}{kind}.STRONG.GPU PT, R8, [R2], R4", f"RED.E.{name}{kind}.STRONG.GPU [R2], R4"):
        if text.startswith("RED") and name == "EXCH":
            continue
        memory, array = Global(), start.copy()
        base = memory.add(array)
        at = np.uint64(base) + index.astype(np.uint64) * np.uint64(4 * words)
        machine = Machine(text, "sm_75", warps=4, regs={2: at, 4: values}, memory=memory)
        out = machine.run(active.reshape(4, 32))
        assert np.array_equal(array, expected)
        if text.startswith("ATOMG"):
            got = out.r64(8, dtype) if words == 2 else out.r(8, dtype)
            assert np.array_equal(got[active], old) and not got[~active].any()


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("name", "kind"), [("ADD", ""), ("MAX", ".S32"), ("INC", ""), ("EXCH", ".64"), ("AND", "")])
@pytest.mark.parametrize("target", ["R8", "RZ"])
def test_integers_in_shared_memory(name: str, kind: str, spread: str, target: str) -> None:
    """Two blocks, each with its own memory."""
    dtype = TYPES[kind]
    words = np.dtype(dtype).itemsize // 4
    rng = np.random.default_rng(5)
    index = places(spread, rng)
    values = rng.integers(0, 100, 128).astype(dtype)
    at = (index * 4 * words).astype(np.uint32)
    machine = Machine(
        f"ATOMS.{name}{kind} {target}, [R2], R4", warps=4, per_block=2, regs={2: at, 4: values}, shared=128 * 4 * words
    )
    start = rng.integers(0, 100, machine.wave.shared.array.size).astype(np.uint32)
    machine.wave.shared.array[:] = start
    out = machine.run()
    expected = start.view(dtype)
    size = len(expected) // 2
    old = sequential(expected, index + np.repeat([0, size], 64), values, INTEGERS[name])
    assert np.array_equal(machine.wave.shared.array.view(dtype), expected)
    if target == "R8":
        assert np.array_equal(out.r64(8, dtype) if words == 2 else out.r(8, dtype), old)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("width", ["", ".64"])
def test_compare_and_swap(spread: str, width: str) -> None:
    """Old values; CAST tells whether it was done."""
    dtype = TYPES[width]
    words = np.dtype(dtype).itemsize // 4
    for seed in range(4):
        rng = np.random.default_rng(seed)
        index = places(spread, rng)
        compare, new = (rng.integers(0, 3, 128).astype(dtype) for _ in range(2))
        start = rng.integers(0, 3, 128).astype(dtype)
        expected, old, done = start.copy(), np.empty(128, dtype), np.empty(128, dtype)
        for n, at in enumerate(index):
            old[n] = expected[at]
            done[n] = expected[at] == compare[n]
            if done[n]:
                expected[at] = new[n]
        regs = {2: (index * 4 * words).astype(np.uint32), 4: compare, 6: new}
        for name, result in (("CAS", old), ("CAST.SPIN", done)):
            machine = Machine(f"ATOMS.{name}{width} R8, [R2], R4, R6", warps=4, regs=regs, shared=512 * words)
            machine.wave.shared.array[:] = start.view(np.uint32)
            out = machine.run()
            assert np.array_equal(machine.wave.shared.array.view(dtype), expected)
            assert np.array_equal(out.r64(8) if words == 2 else out.r(8), result)


def test_one_lock_many_lanes() -> None:
    """The first lane takes it."""
    out = Machine("ATOMS.CAS R8, [RZ], RZ, R4", warps=2, regs={4: np.arange(1, 65, dtype=np.uint32)}).run()
    assert out.r(8).tolist() == [0] + [1] * 63


@pytest.mark.parametrize("spread", SPREADS)
def test_float_add(spread: str) -> None:
    """Rounded after each lane, in order."""
    rng = np.random.default_rng(2)
    index = places(spread, rng)
    for kind, dtype in ((".F32.FTZ.RN", np.float32), (".F64.RN", np.float64)):
        start, values = rng.normal(size=128).astype(dtype), (rng.normal(size=128) * 100).astype(dtype)
        expected, old = start.copy(), np.empty(128, dtype)
        for n, at in enumerate(index):
            old[n] = expected[at]
            expected[at] += values[n]
        memory, array = Global(), start.copy()
        at64 = np.uint64(memory.add(array)) + index.astype(np.uint64) * np.uint64(array.itemsize)
        text = f"ATOMG.E.ADD{kind}.STRONG.GPU PT, R8, [R2], R4"
        out = Machine(text, "sm_75", warps=4, regs={2: at64, 4: values}, memory=memory).run()
        assert np.array_equal(array, expected)
        assert np.array_equal(out.r(8, dtype) if dtype == np.float32 else out.r64(8, dtype), old)


@pytest.mark.parametrize(("arch", "kind", "flushes"), [("sm_75", ".F32.FTZ.RN", True), ("sm_90", ".F32.RN", False)])
@pytest.mark.parametrize("lanes", [1, 32])
def test_denormals_and_nan(arch: str, kind: str, flushes: bool, lanes: int) -> None:
    """FTZ flushes memory, operand and result; a NaN is the hardware's."""
    tiny, memory = np.float32(1e-40), Global()
    array = np.array([tiny, 1.5e-38, np.inf, 0], np.float32)
    base = memory.add(array)
    values = np.zeros(32, np.float32)
    index = np.full(32, 3)
    index[:3], values[:3] = [0, 1, 2], [tiny, -1.4e-38, -np.inf]
    name = "RED" if arch == "sm_75" else "REDG"
    at = np.uint64(base) + index.astype(np.uint64) * np.uint64(4)
    Machine(f"{name}.E.ADD{kind}.STRONG.GPU [R2], R4", arch, regs={2: at, 4: values}, memory=memory).run(
        (LANE < max(lanes, 3)).reshape(1, 32)
    )
    exact = np.array([tiny + tiny, np.float32(1.5e-38) + np.float32(-1.4e-38)], np.float32)
    assert np.array_equal(array[:2], [0, 0] if flushes else exact)
    assert array[2:3].view(np.uint32)[0] == 0x7FFFFFFF


def one_lane(text: str, memory: Any, operand: Any) -> Any:
    """What one atomic of one lane leaves in memory, as an unsigned number."""
    place, array = Global(), np.array([memory])
    machine = Machine(text, "sm_90", regs={2: np.uint64(place.add(array)), 4: operand}, memory=place)
    machine.run((LANE < 1).reshape(1, 32))
    return int(array[0])


def test_nans_of_double_sums() -> None:
    """They stay as they are, the operand's before the one in memory; an H200 does so."""
    text = "REDG.E.ADD.F64.RN.STRONG.GPU desc[UR4][R2.64], R4"
    signaling, quiet, one = (np.uint64(n) for n in (0xFFF0000000000123, 0x7FF8000000000456, 0x3FF0000000000000))
    assert one_lane(text, signaling, one) == signaling
    assert one_lane(text, one, signaling) == signaling
    assert one_lane(text, quiet, signaling) == signaling
    assert one_lane(text, signaling, quiet) == quiet


def test_zeros_of_half_minima() -> None:
    """-0 is less than +0; an H200 does so."""
    for a, b in ((0x80000000, 0x00008000), (0x00008000, 0x80000000)):
        for kind in ("F16x2", "BF16x2"):
            text = f"REDG.E.{{}}.{kind}.RN.STRONG.GPU desc[UR4][R2.64], R4"
            assert one_lane(text.format("MIN"), np.uint32(a), np.uint32(b)) == 0x80008000
            assert one_lane(text.format("MAX"), np.uint32(a), np.uint32(b)) == 0


def test_halves() -> None:
    """Two sums a word, each rounded on its own."""
    rng = np.random.default_rng(0)
    start, values = rng.normal(size=4).astype(np.float16), (rng.normal(size=64) * 9).astype(np.float16)
    expected = start.copy()
    for n in range(32):
        at = n % 2 * 2
        expected[at : at + 2] += values[2 * n : 2 * n + 2]
    memory, array = Global(), start.copy()
    at64 = np.uint64(memory.add(array)) + (LANE % 2 * 4).astype(np.uint64)
    regs = {2: at64, 4: values.view(np.uint32)}
    text = "RED.E.ADD.F16x2.RN.STRONG.GPU [R2], R4"
    Machine(text, "sm_75", regs=regs, memory=memory).run()
    assert np.array_equal(array, expected)


def test_bfloats() -> None:
    """The same for bfloat16, with ties to even: 256 + 1 is 256, 258 + 1 is 260."""

    def packed(low: float, high: float) -> int:
        low_bits, high_bits = np.array([low, high], np.float32).view(np.uint32)
        return int(low_bits >> 16 | high_bits & 0xFFFF0000)

    memory, array = Global(), np.array([packed(256, 258)], np.uint32)
    base = memory.add(array)
    text = "REDG.E.ADD.BF16x2.RN.STRONG.GPU desc[UR4][R2.64], R4"
    machine = Machine(text, "sm_90", regs={2: np.uint64(base), 4: packed(1, 1)}, memory=memory)
    machine.run((LANE < 1).reshape(1, 32))
    assert array[0] == packed(256, 260)


def test_vectors() -> None:
    """Four floats a lane (sm_90)."""
    memory, array = Global(), np.arange(4, dtype=np.float32)
    base = memory.add(array)
    text = "ATOMG.E.ADD.F32x4.RN.STRONG.GPU PT, R8, desc[UR4][R2.64], R4"
    regs: dict[int, Any] = {2: np.uint64(base), **{4 + j: float(10 * j) for j in range(4)}}
    out = Machine(text, "sm_90", regs=regs, memory=memory).run((LANE < 2).reshape(1, 32))
    assert array.tolist() == [0, 21, 42, 63]
    assert [out.r(8 + j, np.float32)[1] for j in range(4)] == [0, 11, 22, 33]


# ---- generic addresses ----------------------------------------------------------------------------------------------


def mixed() -> tuple[Global, Any, Any]:
    """Lanes below 16 in global, the others in shared memory."""
    memory, array = Global(), np.zeros(16, np.uint32)
    at = np.uint64(memory.add(array)) + (LANE % 16 * 4).astype(np.uint64)
    at[16:] = (SHARED_WINDOW << 32) + LANE[16:] * 4
    return memory, array, at


def test_generic_integers() -> None:
    """Work in global and in shared memory."""
    memory, array, at = mixed()
    machine = Machine("ATOM.E.ADD.STRONG.GPU PT, R8, [R2], R4", regs={2: at, 4: 5}, memory=memory)
    machine.run()
    assert array.tolist() == [5] * 16 and machine.wave.shared.array[16:32].tolist() == [5] * 16


def test_generic_floats_say_whether_they_were_done() -> None:
    """Not in shared memory, where the code behind does it in another way."""
    memory, array, at = mixed()
    regs: dict[int, Any] = {2: at, 4: 5.0, 8: 7}
    machine = Machine("ATOM.E.ADD.F32.FTZ.RN.STRONG.GPU P0, R8, [R2], R4", regs=regs, memory=memory)
    out = machine.run()
    assert np.array_equal(out.p(0), LANE < 16)
    assert array.view(np.float32).tolist() == [5.0] * 16 and not machine.wave.shared.array.any()
    assert out.r(8).tolist() == [0] * 16 + [7] * 16


def test_local_memory_has_no_atomics() -> None:
    """An error, where nothing asks."""
    at = np.full(32, LOCAL_WINDOW << 32, np.uint64)
    with pytest.raises(DeviceError, match="local memory"):
        Machine("ATOM.E.ADD.STRONG.GPU PT, R8, [R2], R4", regs={2: at, 4: 5}).run()


# ---- the rest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_popc_inc(arch: str) -> None:
    """Adds one for each lane; what it would return nobody has seen."""
    machine = Machine("ATOMS.POPC.INC.32 RZ, [R2+URZ]", arch, regs={2: (LANE % 2 * 4).astype(np.uint32)})
    machine.run((LANE < 21).reshape(1, 32))
    assert machine.wave.shared.array[:2].tolist() == [11, 10]
    with pytest.raises(Unsupported):
        Machine("ATOMS.POPC.INC.32 R4, [R2+URZ]", arch).run()


def test_mbarrier() -> None:
    """A barrier for 77: the 77th arrival begins the next phase, and the state is as it was but for bit 63."""
    machine = Machine("ATOMS.ARRIVE.64 R4, [R2+URZ]\nARRIVES.LDGSTSBAR.64 [UR4]", "sm_80", regs={2: 0}, warps=3)
    state = machine.wave.shared.array.view(np.uint64)
    start = 0x7FFFFFB3_3FFFFFB3  # what mbarrier.init stores for 77, in code of ptxas 12.9
    state[0] = start
    machine.one(0, slice(0, 2))
    assert state[0] == start + (64 << 32)
    machine.one(1, slice(2, 3), (LANE < 12).reshape(1, 32))
    assert state[0] == start + (64 << 32)  # its copies may not be done
    machine.wave.late.flush(0)
    assert state[0] == start + (76 << 32)
    machine.one(0, slice(2, 3), (LANE < 1).reshape(1, 32))
    assert state[0] == start | 1 << 63
    result = machine.wave.R[5, 2, 0]
    assert result == 0x7FFFFFFF  # the old one, in the old phase


def test_errors_and_nothing_half_done() -> None:
    """One wrong lane, and no lane is done."""
    memory, array = Global(), np.zeros(16, np.uint32)
    at = np.uint64(memory.add(array, "sums")) + (LANE * 4).astype(np.uint64)
    with pytest.raises(DeviceError, match="'sums'") as caught:
        Machine("RED.E.ADD.STRONG.GPU [R2], R4", regs={2: at, 4: 5}, memory=memory).run()
    assert caught.value.thread == (16, 0, 0) and not array.any()
    machine = Machine("ATOMS.ADD R8, [R2+0x2], R4", regs={2: 0, 4: 5})
    with pytest.raises(DeviceError, match="not aligned"):
        machine.run()
    array.flags.writeable = False
    fixed = memory.add(array)
    with pytest.raises(DeviceError, match="read-only"):
        Machine("RED.E.ADD.STRONG.GPU [R2], R4", regs={2: np.uint64(fixed), 4: 5}, memory=memory).run()


def test_atomics_read() -> None:
    """Memory that was never written, when that is watched."""
    memory = Global(track_writes=True)
    base = memory.add(64)
    machine = Machine("RED.E.ADD.STRONG.GPU [R2], R4", regs={2: np.uint64(base), 4: 5}, memory=memory)
    with pytest.raises(DeviceError, match="never written"):
        machine.run()
    memory.store(np.full((1, 1), base, np.uint64), 4, [np.zeros((1, 1), np.uint32)])
    machine.run()
    assert memory.view(base).view(np.uint32)[0] == 160


@pytest.mark.parametrize("spread", SPREADS)
def test_16_bytes(spread: str) -> None:
    """Exchange, and compare and swap, of 128 bits (sm_90); they are bits, also where they look like NaN."""
    rng = np.random.default_rng(0)
    index = places(spread, rng)
    for name in ("EXCH", "CAS"):
        start = rng.integers(0, 2, (128, 4)).astype(np.uint32) * np.uint32(0xFFFFFFFF)
        start[:, 1:] = 0xFFFFFFFF
        compare, new = start[rng.permutation(128)], rng.integers(0, 1 << 32, (128, 4), np.uint32)
        expected, old = start.copy(), np.empty((128, 4), np.uint32)
        for n, at in enumerate(index):
            old[n] = expected[at]
            if name == "EXCH" or (expected[at] == compare[n]).all():
                expected[at] = new[n]
        memory, array = Global(), start.copy()
        at64 = np.uint64(memory.add(array)) + index.astype(np.uint64) * np.uint64(16)
        first, second = (new, compare) if name == "EXCH" else (compare, new)
        regs: dict[int, Any] = {2: at64}
        for j in range(4):
            regs[4 + j], regs[12 + j] = first[:, j].copy(), second[:, j].copy()
        text = {
            "EXCH": "ATOMG.E.EXCH.128.STRONG.GPU PT, R8, desc[UR4][R2.64], R4",
            "CAS": "ATOMG.E.CAS.128.STRONG.GPU PT, R8, [R2], R4, R12",
        }[name]
        out = Machine(text, "sm_90", warps=4, regs=regs, memory=memory).run()
        assert np.array_equal(array, expected)
        assert np.array_equal(np.stack([out.r(8 + j) for j in range(4)], axis=-1), old)


def test_what_is_missing_is_refused() -> None:
    """By name."""
    with pytest.raises(Unsupported, match="SAFEADD"):
        Machine("ATOMG.E.SAFEADD.STRONG.GPU PT, R8, desc[UR4][R2.64], R4", "sm_90").run()
