"""A pipeline as people write them for sm_90a: a warp group brings tiles by bulk copies and mbarriers, another one,
to which it has given registers, multiplies them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import turingas
from tests.tools import nvrtc
from turingas.emulate import launch

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")

BLOCKS, STEPS = 2, 5

SOURCE = r"""
#define STAGES 2
typedef unsigned long long u64;
__device__ bool over(unsigned at, unsigned parity) {
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(at), "r"(parity) : "memory");
    return done;
}
extern "C" __global__ void __launch_bounds__(256, 1) k(const char* a, const char* b, float* out, int steps) {
    __shared__ __align__(1024) char room[STAGES][4096];
    __shared__ u64 bars[2 * STAGES];
    unsigned base = __cvta_generic_to_shared(room), bar = __cvta_generic_to_shared(bars), t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(bar + 8 * s) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], 128;" :: "r"(bar + 8 * (STAGES + s)) : "memory");
        }
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (t < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == 0) for (int i = 0; i < steps; i++) {
            int s = i % STAGES;
            while (!over(bar + 8 * (STAGES + s), (i / STAGES & 1) ^ 1)) {}
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;" :: "r"(bar + 8 * s) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];"
                :: "r"(base + 4096 * s), "l"(a + 2048 * (blockIdx.x * steps + i)), "r"(bar + 8 * s) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];"
                :: "r"(base + 4096 * s + 2048), "l"(b + 2048 * i), "r"(bar + 8 * s) : "memory");
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[32];
        for (int n = 0; n < 32; n++) d[n] = 0;
        for (int i = 0; i < steps; i++) {
            int s = i % STAGES;
            while (!over(bar + 8 * s, i / STAGES & 1)) {}
            u64 from = (base + 4096 * s) >> 4 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {ACCUMULATORS}, %32, %33, 1, 1, 1, 0, 0;"
                : OPERANDS : "l"(from), "l"(from + (2048 >> 4)));
            asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(bar + 8 * (STAGES + s)) : "memory");
        }
        for (int n = 0; n < 32; n++) out[(blockIdx.x * 32 + n) * 128 + t - 128] = d[n];
    }
}
"""


@functools.cache
def compiled() -> bytes:
    source = SOURCE.replace("ACCUMULATORS", ", ".join(f"%{n}" for n in range(32)))
    source = source.replace("OPERANDS", ", ".join(f'"+f"(d[{n}])' for n in range(32)))
    return nvrtc.compile_source(source, "sm_90a")


def tiles(matrix: np.ndarray) -> np.ndarray:
    """(rows, k) as tiles of 64 x 16, each as 8 x 8 elements that follow each other."""
    return np.ascontiguousarray(matrix.reshape(-1, 8, 8, STEPS, 2, 8).transpose(0, 3, 1, 4, 2, 5))


def run(cubin: bytes, **options: object) -> tuple[bool, list[str]]:
    """Whether the product is right, and what was found."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (rows, 16 * STEPS)).astype(np.float16) for rows in (64 * BLOCKS, 64))
    out = np.zeros((BLOCKS, 32, 128), np.float32)
    report = launch(cubin, "k", BLOCKS, 256, [tiles(a), tiles(b), out, np.int32(STEPS)], **options)
    n, t = np.arange(32)[:, None], np.arange(128)
    found = np.zeros((BLOCKS, 64, 64))
    found[:, t // 32 * 16 + t % 32 // 4 + n // 2 % 2 * 8, n // 4 * 8 + t % 4 * 2 + n % 2] = out
    kinds = [hazard.kind for hazard in report.hazards] + ["race" for _ in report.races]
    return bool((found == (a.astype(float) @ b.T.astype(float)).reshape(BLOCKS, 64, 64)).all()), kinds


@pytest.mark.parametrize("options", [{}, {"strict": True, "races": True}, {"strict": True, "stale": True}], ids=str)
def test_right(options: dict[str, bool]) -> None:
    assert run(compiled(), **options) == (True, [])


def test_without_the_wait() -> None:
    """ptxas puts one in where there is none, so it is changed in its code: one group may be left."""
    text, wait = turingas.disassemble(turingas.Cubin.from_bytes(compiled())), "WARPGROUP.DEPBAR.LE gsb0, "
    assert text.count(wait + "0x0") == 1
    right, kinds = run(turingas.assemble(text.replace(wait + "0x0", wait + "0x1")).to_bytes(), strict=True)
    assert not right and "raw" in kinds
