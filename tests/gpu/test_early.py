"""Launches that may begin before the one before has ended (programmatic dependent launch) on a GPU: they do, and what
they find when they have waited is all there."""

from __future__ import annotations

import numpy as np
import pytest

import loader
from loader import cuda
from loader.cuda import Buffer
from tests.tools.nvrtc import compile_source

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
ARCHS = ("sm_90",)
BLOCKS, THREADS = 8, 128
SOURCE = """
typedef unsigned long long u64;
__device__ u64 now() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
// writes late; when its last block has is in times[0]
extern "C" __global__ void first(unsigned* data, u64* times, unsigned n, u64 nanoseconds) {
    asm volatile("griddepcontrol.launch_dependents;");
    for (u64 begin = now(); now() - begin < nanoseconds;) {}
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = 3 * n + i;
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&times[0], now());
}
// when its first block begins is in times[1]
extern "C" __global__ void second(unsigned* out, const unsigned* data, u64* times) {
    if (threadIdx.x == 0) atomicMin(&times[1], now());
    asm volatile("griddepcontrol.wait;" ::: "memory");
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * data[gridDim.x * blockDim.x - 1 - i] + 1;
}
"""


@pytest.mark.parametrize("early", [False, True])
def test_a_launch_that_begins_early(early: bool, gpu: cuda.Device) -> None:
    cubin = compile_source(SOURCE, "sm_90", (), name="early.cu")
    none = np.zeros(BLOCKS * THREADS, np.uint32)
    with loader.load(cubin, str(gpu)) as module:
        first, second = module.kernel("first"), module.kernel("second")
        for n in range(20):
            data, out, last = (Buffer.of(none, str(gpu)) for _ in range(3))
            times, others = (Buffer.of(np.array([0, 2**64 - 1], np.uint64), str(gpu)) for _ in range(2))
            module.synchronize()
            first.launch(BLOCKS, THREADS, data, times, n, 500_000)
            second.launch(BLOCKS, THREADS, out, data, times, early=early)
            second.launch(BLOCKS, THREADS, last, out, others, early=early)
            module.synchronize()
            wanted = 2 * (3 * n + np.arange(none.size, dtype=np.uint32))[::-1] + 1
            assert (out.numpy() == wanted).all() and (last.numpy() == 2 * wanted[::-1] + 1).all()
            ended, began = (int(t) for t in times.numpy())
            assert (began < ended) == early, f"round {n}: began {began - ended} ns after the end"
