// A product as people write it for sm_90a: one warp group brings tiles through tensor maps, half of B for both blocks of
// a cluster, another one multiplies them. Compiled by tests/emulate/whole.py, for each kind of product, with
//   PRODUCT  what follows "wgmma.mma_async.sync.aligned."    LAST  what follows the descriptors
//   SUM, COUNT  the type of a register of sums, and how many    SUMS  "%0, %1, ..."    OPERANDS  "+f"(d[0]), ...
//   FROM, TO  the numbers of the descriptors' operands
#define STAGES 3
#define ROW 128             // bytes of K in a stage
#define TILE (64 * ROW)     // of A, and of B
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 opaque[16]; };

__device__ void wait(u32 bar, u32 parity) {
    u32 done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(bar), "r"(parity) : "memory");
}
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256, 1)
product(const __grid_constant__ Map a, const __grid_constant__ Map b, SUM* out, int steps) {
    extern __shared__ __align__(1024) char room[];
    __shared__ __align__(8) u64 bars[2 * STAGES];
    u32 data = __cvta_generic_to_shared(room), full = __cvta_generic_to_shared(bars), empty = full + 8 * STAGES;
    u32 t = threadIdx.x, rank, blocks;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8 * s) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * s), "r"(blocks) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
    if (t < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == 0)
            for (int i = 0; i < steps; i++) {
                u32 s = i % STAGES, bar = full + 8 * s, part = TILE / blocks, at = data + 2 * TILE * s;
                wait(empty + 8 * s, (i / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(2 * TILE) : "memory");
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                             :: "r"(at), "l"(&a), "r"(ROW * i), "r"(64 * blockIdx.x), "r"(bar) : "memory");
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                             " [%0], [%1, {%2, %3}], [%4], %5;"
                             :: "r"(at + TILE + part * rank), "l"(&b), "r"(ROW * i), "r"(64 / blocks * rank), "r"(bar),
                                "h"((short)((1 << blocks) - 1)) : "memory");
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        SUM d[COUNT];
        u32 told;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(told) : "r"(empty), "r"(t % 128 % blocks));
        for (int n = 0; n < COUNT; n++) d[n] = 0;
        for (int i = 0; i < steps; i++) {
            u32 s = i % STAGES, at = data + 2 * TILE * s;
            u64 from = 1ull << 62 | 1024ull >> 4 << 32 | 1 << 16 | at >> 4 & 0x3fff, to = from + (TILE >> 4);
            wait(full + 8 * s, i / STAGES & 1);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int k = 0; k < ROW / 32; k++)
                asm volatile("wgmma.mma_async.sync.aligned." PRODUCT " {" SUMS "}, " FROM ", " TO ", 1" LAST ";"
                             : OPERANDS : "l"(from + 2 * k), "l"(to + 2 * k));
            asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (t % 128 < blocks)
                asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(told + 8 * s) : "memory");
        }
        for (int n = 0; n < COUNT; n++) out[(blockIdx.x * COUNT + n) * 128 + t % 128] = d[n];
    }
    meet();
}
