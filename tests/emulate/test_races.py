"""The race detector: what nothing orders is found, what a barrier orders is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulate.memories import Machine
from tests.tools.nvrtc import compile_source, library_path
from turingas.emulate.device import launch

W4 = np.arange(128, dtype=np.uint32)  # four warps
NOWHERE = np.zeros(4, np.intp)  # the instructions of barriers, which do not matter


def machine(text: str, arch: str = "sm_75", per_block: int = 4, **regs: Any) -> Machine:
    """Four warps; registers by name. R2 is 4 times the thread, R3 the same of the next warp, R4 the thread."""
    values = {2: W4 * 4, 3: (W4 + 32) % 128 * 4, 4: W4, 9: 0, **{int(k[1:]): v for k, v in regs.items()}}
    return Machine(text, arch, warps=4, per_block=per_block, regs=values, races=True)


def kinds(m: Machine) -> list[tuple[str, int, int]]:
    """Kind and both instructions' numbers of all that was found."""
    return [(f.kind, f.first.address // 16, f.second.address // 16) for f in m.wave.observers[0].findings]


def test_own_memory_is_no_race() -> None:
    """Each thread its own word, or each warp its own words."""
    m = machine("STS [R2], R4\nLDS.U R5, [R2]\nLDS.U R6, [R7]\nSTS [R7], R4", R7=(W4 ^ 5) * 4)
    m.run()
    assert kinds(m) == []


def test_read_after_write() -> None:
    """Without a barrier; and with one it is none."""
    m = machine("STS [R2], R4\nLDS.U R5, [R3]")
    m.run()
    assert kinds(m) == [("RAW", 0, 1)]
    race = m.wave.observers[0].findings[0]
    assert race.first.text == "STS [R2], R4" and race.second.text == "LDS.U R5, [R3]"
    assert race.address == 128 and race.threads == ((32, 0, 0), (0, 0, 0)) and race.block == (0, 0, 0)
    assert "read after write at 0x80" in str(race)
    m = machine("STS [R2], R4\nLDS.U R5, [R3]")
    m.one(0)
    m.wave.observers[0].barrier(np.arange(4), np.zeros(4, np.intp), NOWHERE)
    m.one(1)
    assert kinds(m) == []


def test_write_after_read() -> None:
    """The second barrier of a loop forgotten; also when a thread reads what others read."""
    for address in ("R3", "RZ"):
        m = machine(f"LDS.U R5, [{address}]\nSTS [R2], R4")
        m.run()
        assert kinds(m) == [("WAR", 0, 1)]
        m = machine(f"LDS.U R5, [{address}]\nSTS [R2], R4")
        m.one(0)
        m.wave.observers[0].barrier(np.arange(4), np.zeros(4, np.intp), NOWHERE)
        m.one(1)
        assert kinds(m) == []


def test_write_after_write() -> None:
    """Of different values only; each pair once."""
    m = machine("STS [R2], R4\nSTS [R3], R4\nSTS [R3], R4")
    m.run()
    assert kinds(m) == [("WAW", 0, 1)]
    m.one(1)
    m.one(0)
    assert kinds(m) == [("WAW", 0, 1), ("WAW", 1, 0)]
    m = machine("STS [R2], R9\nSTS [R3], R9")
    m.run()
    assert kinds(m) == []


def test_write_after_write_within_one_instruction() -> None:
    """Lanes of one warp, or warps, that write different values to one word."""
    m = machine("STS [RZ], R4")
    m.one(0, slice(0, 1))
    assert kinds(m) == [("WAW", 0, 0)]
    m = machine("STS [RZ], R8", R8=W4 // 32)
    m.one(0, slice(0, 1))
    assert kinds(m) == []
    m.one(0)
    assert kinds(m) == [("WAW", 0, 0)]
    m = machine("STS [RZ], R9")
    m.run()
    assert kinds(m) == []


def test_blocks_do_not_share() -> None:
    """The same addresses in different blocks."""
    m = machine("STS [R8], R4\nLDS.U R5, [R8]\nSTS [R8], R9", per_block=1, R8=W4 % 32 * 4)
    m.run()
    assert kinds(m) == []


def test_a_barrier_orders_only_who_passes_it() -> None:
    """Named barriers of a part of the block, and what follows from two of them."""
    m = machine("STS [R2], R4\nLDS.U R5, [R3]")
    m.one(0)
    m.wave.observers[0].barrier(np.array([0, 1]), np.full(2, 1), NOWHERE[:2])
    m.one(1, slice(0, 1))
    assert kinds(m) == []  # 0 reads of 1
    m.one(1, slice(1, 2))
    assert kinds(m) == [("RAW", 0, 1)]  # 1 reads of 2
    m = machine("STS [R2], R4\nLDS.U R5, [R3]")
    m.one(0)
    m.wave.observers[0].barrier(np.array([2, 3]), np.full(2, 2), NOWHERE[:2])
    m.wave.observers[0].barrier(np.array([1, 3]), np.full(2, 3), NOWHERE[:2])
    m.one(1, slice(1, 2))
    assert kinds(m) == []  # 1 knows of 2 through 3


def test_arriving_without_waiting() -> None:
    """Who waits knows of who arrived; not the other way round."""
    m = machine("STS [R2], R4\nLDS.U R5, [R3]\nSTS [R2], R9")
    m.one(0, slice(1, 2))
    m.wave.observers[0].arrive(np.array([1]), np.zeros(1, np.intp), 0)
    m.wave.observers[0].barrier(np.array([0]), np.zeros(1, np.intp), NOWHERE[:1])
    m.one(1, slice(0, 1))
    assert kinds(m) == []
    m.one(2, slice(1, 2))
    assert kinds(m) == [("WAR", 1, 2)]


def test_mbarriers() -> None:
    """Who looks when the phase is over comes after all who arrived in it."""
    arrive, look = "ATOMS.ARRIVE.64 R6, [R10+URZ]", "LDS R7, [R10+0x4]"

    def bar(text: str) -> Machine:
        m = machine(text, "sm_80", R10=512)
        m.wave.shared.array[128:130] = 0x40000000 - 128, 0x80000000 - 128
        return m

    m = bar(f"STS [R2], R4\n{arrive}\n{look}\nLDS R5, [R3]")
    m.run()
    assert kinds(m) == []
    m = bar(f"STS [R2], R4\n{arrive}\nLDS R5, [R3]")
    m.run()
    assert kinds(m) == [("RAW", 0, 2)]
    m = bar(f"STS [R2], R4\n{arrive}\n{look}\nLDS R5, [R3]")
    m.one(1)  # too early
    for n in (0, 2, 3):
        m.one(n)
    assert kinds(m) == [("RAW", 0, 3)]
    m = bar(f"STS [R2], R4\n{arrive}\n{look}\nLDS R5, [R3]")
    m.one(0)
    m.one(1, slice(0, 3))  # the phase is not over yet
    m.one(2)
    m.one(3)
    assert kinds(m) == [("RAW", 0, 3)]


def test_atomics() -> None:
    """Among themselves they do not race; with loads and stores they do."""
    m = machine("ATOMS.ADD RZ, [RZ], R4\nATOMS.MAX RZ, [RZ], R4")
    m.run()
    assert kinds(m) == []
    m = machine("ATOMS.ADD RZ, [RZ], R4\nLDS.U R5, [RZ]\nSTS [RZ], R9")
    m.run()
    assert ("RAW", 0, 1) in kinds(m) and ("WAW", 0, 2) in kinds(m)
    m = machine("STS [R2], R4\nATOMS.ADD RZ, [RZ], R4")
    m.run()
    assert kinds(m) == [("WAW", 0, 1)]


def test_compare_and_swap_loops() -> None:
    """The load of one is part of an atomic; another load is not."""
    text = "LDS.U R5, [RZ]\nATOMS.CAST.SPIN R6, [RZ], R5, R4"
    m = machine(text)
    m.run()
    m.run()
    assert kinds(m) == []
    m = machine("LDS.U R5, [R9]\nATOMS.CAST.SPIN R6, [RZ], R5, R4")  # another way to write the address
    m.run()
    m.run()
    assert kinds(m) == []
    m = machine("STS [R2], R4\n" + text)
    m.run()
    assert ("RAW", 0, 1) in kinds(m)
    m = machine(text + "\nLDS.U R7, [R9]")
    m.run()
    assert kinds(m) == [("RAW", 1, 2)]


def test_bytes() -> None:
    """Neighbouring bytes of a word are not one place, also when other accesses are wider."""
    m = machine("STS.U8 [R4], R4\nLDS.U.U8 R5, [R4]")
    m.run()
    assert kinds(m) == []
    m = machine("STS.U8 [R8], R4\nLDS.U R5, [R9]", R8=W4 // 32)
    m.run()
    assert kinds(m) == [("WAW", 0, 0), ("RAW", 0, 1)]  # the lanes of a warp write one byte
    m = machine("STS.U8 [R8], R9\nSTS.U16 [R10], R4", R8=W4 // 32, R10=(W4 // 32 ^ 1) & 2)
    m.one(0)
    m.one(1, slice(1, 2))
    assert ("WAW", 0, 1) in kinds(m)


def test_wide_accesses_and_masks() -> None:
    """16 bytes touch four words; lanes that are off touch none."""
    rows = W4 // 32
    m = machine("STS.128 [R8], R12\nLDS.U R5, [R10]", R8=rows * 16, R10=rows * 4 + 12)
    m.run()
    assert kinds(m) == [("RAW", 0, 1)]
    m = machine("STS [R2], R4\nLDS.U R5, [R3]")
    m.run(active=np.zeros((4, 32), bool) | (np.arange(4) < 1)[:, None])
    assert kinds(m) == []


WAITED = ("--:-:0:-:1 LDGDEPBAR", "DEPBAR.LE SB0, 0x0")


@pytest.mark.parametrize("wait, own, other", [(WAITED, False, True), (WAITED[:1], True, True), ((), True, True)])
def test_copies_and_matrices(wait: tuple[str, ...], own: bool, other: bool) -> None:
    """LDGSTS writes, LDSM reads: a warp its own copy behind a wait, that of another behind a barrier besides."""
    rows = (W4 // 32 * 128 + W4 % 8 * 16).astype(np.uint32)
    lines = ["LDGSTS.E.128 [R8], ~desc[UR4][R10.64]", *wait, "LDSM.16.M88 R5, [R9]"]
    m = machine("\n".join(lines), "sm_80", R8=rows, R9=rows)
    memory: Any = m.memory.add(np.arange(64, dtype=np.uint32))
    m.wave.R[10], m.wave.R[11] = memory & 0xFFFFFFFF, memory >> 32
    last = len(lines) - 1
    for n in range(last + 1):
        m.one(n)
    assert kinds(m) == [("RAW", 0, last)] * own
    m.wave.R[9] = np.roll(m.wave.R[9], 1, axis=0)
    m.one(last)
    assert kinds(m) == [("RAW", 0, last)] * other
    remedy = m.wave.observers[0].findings[0].remedy
    assert ("closing its group" if not wait else "a wait for its group") in remedy
    again = machine("\n".join(lines), "sm_80", R8=rows, R9=np.roll(rows, 32))
    again.wave.R[10], again.wave.R[11] = again.memory.add(np.arange(64)) & 0xFFFFFFFF, memory >> 32
    for n in range(last):
        again.one(n)
    again.wave.observers[0].barrier(np.arange(4), np.zeros(4, np.intp), NOWHERE)
    again.one(last)
    assert kinds(again) == [("RAW", 0, last)] * own


# ---- compiled kernels -----------------------------------------------------------------------------------------------

SOURCE = """
extern "C" __global__ void reversed(int* out) {
    __shared__ int s[128];
    s[threadIdx.x] = threadIdx.x;
#ifndef RACE
    __syncthreads();
#endif
    out[threadIdx.x] = s[127 - threadIdx.x];
}

// atomics of all kinds, some of which are compare-and-swap loops
extern "C" __global__ void sums(float* out, float* more, double* wide, unsigned* count, int pick) {
    __shared__ float s[4]; __shared__ double d[4]; __shared__ unsigned c[4]; __shared__ unsigned long long q[4];
    int t = threadIdx.x, k = t & 3;
    if (t < 4) { s[t] = 0; d[t] = 0; c[t] = 0; q[t] = 0; }
    __syncthreads();
    float* p = pick ? s : more;
    atomicAdd(p + k, 1.5f); atomicAdd(&d[k], 0.5); atomicAdd(&c[k], 1u); atomicMax(&q[k], 1ull * t << 33);
    __syncthreads();
    if (t < 4) { out[t] = s[t]; wide[t] = d[t]; count[t] = c[t]; count[4 + t] = q[t] >> 33; }
}
"""


@pytest.mark.skipif(library_path() is None, reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
def test_a_forgotten_barrier(arch: str) -> None:
    """Is found in a compiled kernel, and only there."""
    for options, expected in (((), []), (("-DRACE",), ["RAW"])):
        cubin = compile_source(SOURCE, arch, options)
        report = launch(cubin, "reversed", 2, 128, [np.zeros(128, np.int32)], races=True)
        assert [race.kind for race in report.races] == expected


@pytest.mark.skipif(library_path() is None, reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
def test_loops_that_are_atomics(arch: str) -> None:
    """No false alarm for them, through shared or generic addresses; and the sums are right."""
    for pick in (0, 1):
        out, more, wide = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(4)
        count = np.zeros(8, np.uint32)
        args = [out, more, wide, count, np.int32(pick)]
        report = launch(compile_source(SOURCE, arch), "sums", 1, 256, args, races=True)
        assert report.races == []
        assert (out if pick else more).tolist() == [96.0] * 4 and (more if pick else out).tolist() == [0.0] * 4
        assert wide.tolist() == [32.0] * 4 and count.tolist() == [64] * 4 + [252, 253, 254, 255]


LOCKED = """
extern "C" __global__ void k(int *out)
{
    __shared__ int lock, sum;
    if (threadIdx.x == 0)
        lock = sum = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&lock, 0, 1))
            ;
        __threadfence_block();
        sum += 1;
        BEFORE
        UNLOCK
    }
    __syncthreads();
    *out = sum;
}
"""
FENCE = "__threadfence_block();"


@pytest.mark.skipif(library_path() is None, reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("before", "unlock", "right"), [
    (FENCE, "atomicExch(&lock, 0);", True),
    ("", "atomicExch(&lock, 0);", False),
    (FENCE, "*(volatile int *)&lock = 0;", False),
])  # fmt: skip
def test_locks(arch: str, before: str, unlock: str, right: bool) -> None:
    """An atomic with a fence before it tells the next one; without, or by a plain store, it does not."""
    source = LOCKED.replace("BEFORE", before).replace("UNLOCK", unlock)
    out = np.zeros(1, np.int32)
    for races in (True, "global"):
        found = launch(compile_source(source, arch), "k", 1, 128, [out], races=races).races
        assert out == 4 and (not found if right else "RAW" in {race.kind for race in found})


SEMAPHORE = """
#include <cuda/semaphore>
extern "C" __global__ void k(int *out)
{
    __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
    __shared__ int sum;
    if (threadIdx.x == 0) {
        new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
        sum = 0;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        semaphore.acquire();
        sum = sum * 3 + 1;
        semaphore.release();
    }
    __syncthreads();
    out[threadIdx.x] = sum;
}
"""


@pytest.mark.skipif(library_path() is None, reason="needs NVRTC")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_semaphores(arch: str) -> None:
    """By strong loads and stores of generic addresses, which do not race with each other."""
    out = np.zeros(128, np.int32)
    found = launch(compile_source(SEMAPHORE, arch, ["-std=c++17"]), "k", 1, 128, [out], races=True).races
    assert not found and (out == 40).all()
