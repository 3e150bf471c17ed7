"""Blocks that take over the work of others (CLC), and shared memory that is set to zero, on the CPU device. What is
expected follows from the PTX ISA; the layout of the answer from what ptxas makes of query_cancel. No card was at
hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools import nvrtc
from turingas.emulate import DeviceError, launch

SOURCE = r"""
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Each block does its own work and that of the blocks that it cancels: counts each, and notes who did it
template <bool together, bool fenced> __device__ void steal(unsigned* count, unsigned* by) {
  __shared__ __align__(16) uint4 answer;
  __shared__ __align__(8) unsigned long long bar;
  unsigned first, rank = 0, size = together ? 2 : 1, phase = 0;
  if (together) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  unsigned x = blockIdx.x, y = blockIdx.y, z = blockIdx.z;
  const unsigned me = (z * gridDim.y + y) * gridDim.x + x;
  while (true) {
    if (together) asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 16;" :: "r"(at(&bar)) : "memory");
    }
    if (together) asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 0 && rank == 0) {
      if (together)
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
                     ".multicast::cluster::all.b128 [%0], [%1];"
                     :: "r"(at(&answer)), "r"(at(&bar)) : "memory");
      else
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                     :: "r"(at(&answer)), "r"(at(&bar)) : "memory");
    }
    const unsigned block = (z * gridDim.y + y) * gridDim.x + x;
    if (threadIdx.x == 0) {
      atomicAdd(&count[block], 1);
      by[block] = me;
    }
    unsigned done = 0;
    while (!done)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done) : "r"(at(&bar)), "r"(phase) : "memory");
    phase ^= 1;
    unsigned ok;
    asm volatile("{ .reg .b128 h; .reg .pred p; ld.shared.b128 h, [%4];"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, h; selp.u32 %0, 1, 0, p;"
                 "mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%1, %2, %3, _}, h; }"
                 : "=r"(ok), "=r"(first), "=r"(y), "=r"(z) : "r"(at(&answer)) : "memory");
    if (fenced) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (!ok) break;
    x = first + rank % size;
    if (fenced) __syncthreads();
  }
}

extern "C" __global__ void alone(unsigned* count, unsigned* by) { steal<false, true>(count, by); }
extern "C" __global__ void careless(unsigned* count, unsigned* by) { steal<false, false>(count, by); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) pairs(unsigned* count, unsigned* by) {
  steal<true, true>(count, by);
}

extern "C" __global__ void zeros(unsigned* out, unsigned long long bytes, unsigned offset) {
  __shared__ __align__(16) unsigned words[512];
  for (int n = threadIdx.x; n < 512; n += blockDim.x) words[n] = n + 1;
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("st.bulk.weak.shared::cta [%0], %1, 0;" :: "r"(at(words) + offset), "l"(bytes) : "memory");
  __syncthreads();
  for (int n = threadIdx.x; n < 512; n += blockDim.x) out[n] = words[n];
}
"""


def cubin(arch: str) -> bytes:
    return nvrtc.compile_source(SOURCE, arch)


@pytest.mark.parametrize(("kernel", "grid", "arch"), [
    ("alone", (7, 1, 1), "sm_100a"), ("alone", (3, 5, 2), "sm_120a"), ("alone", (1, 1, 1), "sm_100a"),
    ("pairs", (6, 3, 1), "sm_100a"),
])  # fmt: skip
def test_work_is_taken_over(kernel: str, grid: tuple[int, int, int], arch: str) -> None:
    """Each block's work is done once, the later half of it by those that began first."""
    blocks = grid[0] * grid[1] * grid[2]
    count, by = np.zeros(blocks, np.uint32), np.full(blocks, 1000, np.uint32)
    seen: list[tuple[int, int]] = []
    report = launch(cubin(arch), kernel, grid, 64, [count, by], stale=True, strict=True, races=True,
                    progress=lambda done, of, _: seen.append((done, of)))  # fmt: skip
    assert count.tolist() == [1] * blocks and not report.hazards and not report.races
    assert seen == [(blocks, blocks)]
    if kernel == "alone":
        half = -(-blocks // 2)
        assert (by == np.arange(blocks) % half).all()
    else:  # 10 of the 18 began; who takes over is of the same rank
        assert (by % 2 == np.arange(blocks) % 2).all() and (by < blocks // 2 + 1).all()


def test_an_answer_that_is_overwritten() -> None:
    """Without a barrier the next answer comes while others still read the last one."""
    arrays = [np.zeros(8, np.uint32), np.zeros(8, np.uint32)]
    report = launch(cubin("sm_100a"), "careless", 8, 64, arrays, races=True)
    assert any("UGETNEXTWORKID" in str(race.second) and race.kind == "WAR" for race in report.races)


@pytest.mark.parametrize("arch", ["sm_100a", "sm_120a"])
def test_zeros(arch: str) -> None:
    for nbytes, offset in ((0, 0), (8, 8), (264, 40), (2048, 0)):
        out = np.zeros(512, np.uint32)
        report = launch(cubin(arch), "zeros", 1, 96, [out, np.uint64(nbytes), np.uint32(offset)], races=True)
        wanted = np.arange(512) + 1
        wanted[offset // 4 : (offset + nbytes) // 4] = 0
        assert (out == wanted).all() and not report.races
    with pytest.raises(DeviceError, match="UMEMSETS.*an access of 8 bytes"):
        launch(cubin(arch), "zeros", 1, 96, [out, np.uint64(2048), np.uint32(16)])
