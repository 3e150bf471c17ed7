"""Waits that are shown to be needed for nothing, in any order of the warps, and others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate import late_faults, orders
from tests.tools import nvrtc

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
#: warp 1 waits until warp 0 has been at FIRST; what that is for says LAST
SOURCE = r"""
typedef unsigned long long u64;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(u64* bar, int parity) {
    int done = 0;
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                               : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory"); }
__device__ void arrive(u64* bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(bar)) : "memory"); }
extern "C" __global__ void k(int* out) {
    __shared__ u64 first, second; __shared__ int x[64];
    int t = threadIdx.x, lane = t % 32;
    if (t == 0) for (u64* bar : {&first, &second}) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(bar)));
    __syncthreads();
    if (t < 32) { x[t] = t + 1; __syncwarp(); if (lane == 0) arrive(&first); if (MORE && lane == 0) arrive(&second); }
    else { wait(&first, 0); if (MORE) wait(&second, 0); x[t] = 2 * t; __syncwarp(); }
    out[t] = x[SHARES ? lane : t];
}
"""


def run_of(*options: str) -> late_faults.Run:
    made = nvrtc.compile_source(SOURCE, "sm_90", [f"-D{one}" for one in options])
    return late_faults.plain("k", made, "k", 1, 64, lambda: [np.zeros(64, np.int32)])


def waits(run: late_faults.Run) -> list[tuple[bool, str]]:
    """Of each wait at an mbarrier that the run comes to: whether it is reported when it is gone, in any of some orders;
    why that changes nothing."""
    found = []
    ran = late_faults.look(run, run.cubin, 100_000).ran
    for fault in late_faults.faults(late_faults.decoded(run.cubin, run.kernel), 0):
        if fault.of == "SYNCS" and fault.kind == "wait" and fault.number in ran:
            cubin, said = late_faults.broken(run, fault), ""
            for seed in range(4):
                with orders.order(seed):
                    said += late_faults.look(run, cubin, 100_000).said
            found.append((bool(said), late_faults.unneeded(run, fault, 100_000)))
    return found


def test_a_wait_that_protects_nothing() -> None:
    found = waits(run_of("SHARES=0", "MORE=0"))
    assert found and set(found) == {(False, "not needed")}


def test_a_wait_that_protects_something() -> None:
    found = waits(run_of("SHARES=1", "MORE=0"))
    assert found and set(found) == {(True, "")}


def test_one_of_two_waits_is_not_needed() -> None:
    """Either one alone: the first for what lies before both arrivals, the second tells of that, too."""
    found = waits(run_of("SHARES=1", "MORE=1"))
    assert len(found) >= 2 and set(found) == {(False, "not needed")}


def test_no_wait_is_spared_that_a_kernel_needs() -> None:
    """In rings and multicasts each wait is needed, and the correct kernels hold."""
    names = {"multicast of a tile", "a tile from a tensor", "a ring of tiles", "cluster: bulk"}
    for run in late_faults.runs():
        if run.name in names:
            names.remove(run.name)
            assert late_faults._without(run, run.cubin, 100_000) is not None, run.name
            found = waits(run)
            assert found and set(found) == {(True, "")}, (run.name, found)
        if not names:
            break
    assert not names
