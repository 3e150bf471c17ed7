// Copies through tensor maps: a kernel for each rank, mode (tile, im2col), direction and reduction. Compiled by tests/emulate/tiles.py.
struct alignas(64) Map { unsigned long long opaque[16]; };
typedef unsigned long long u64;
typedef unsigned int u32;

__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ void begin(u32 bar, u32 bytes) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ void wait(u32 bar) {
    u32 done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(bar) : "memory");
}

struct At { int c[5]; };

#define C1 "{%2}"
#define C2 "{%2, %3}"
#define C3 "{%2, %3, %4}"
#define C4 "{%2, %3, %4, %5}"
#define C5 "{%2, %3, %4, %5, %6}"
#define O3 ", {%8}"
#define O4 ", {%8, %9}"
#define O5 ", {%8, %9, %10}"
#define ARGUMENTS(to, from, last) "r"(to), "l"(from), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4]), "r"(last)

// what lies in shared memory behind the copy goes to `out`, as it lies there
#define LOAD(name, d, mode, coordinates, offsets)                                                                      \
    extern "C" __global__ void name(const __grid_constant__ Map map, u32* out, At at, int o0, int o1, int o2, u32 bytes) { \
        extern __shared__ __align__(1024) u32 tile[];                                                                  \
        __shared__ alignas(8) u64 bar;                                                                                 \
        u32 b = shared_address(&bar);                                                                                  \
        if (threadIdx.x == 0) {                                                                                        \
            begin(b, bytes);                                                                                           \
            asm volatile("cp.async.bulk.tensor." d ".shared::cluster.global." mode                                     \
                         ".mbarrier::complete_tx::bytes [%0], [%1, " coordinates "], [%7]" offsets ";"                 \
                         ::ARGUMENTS(shared_address(tile), &map, b), "h"((short)o0), "h"((short)o1), "h"((short)o2)    \
                         : "memory");                                                                                  \
        }                                                                                                              \
        __syncthreads();                                                                                               \
        wait(b);                                                                                                       \
        for (u32 n = threadIdx.x; n < bytes / 4; n += blockDim.x) out[n] = tile[n];                                    \
    }

// the tile is `in`
#define STORE(name, operation, d, coordinates)                                                                         \
    extern "C" __global__ void name(const __grid_constant__ Map map, const u32* in, At at, u32 bytes) {                \
        extern __shared__ __align__(1024) u32 tile[];                                                                  \
        for (u32 n = threadIdx.x; n < bytes / 4; n += blockDim.x) tile[n] = in[n];                                     \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                   \
        __syncthreads();                                                                                               \
        if (threadIdx.x == 0) {                                                                                        \
            asm volatile("cp" operation " [%1, " coordinates "], [%0];"                                                  \
                         ::ARGUMENTS(shared_address(tile), &map, 0) : "memory");                                       \
            asm volatile("cp.async.bulk.commit_group;");                                                               \
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");                                                  \
        }                                                                                                              \
    }

#define STORES(n, d, coordinates)                                                                                      \
    STORE(store##n, ".async.bulk.tensor." d ".global.shared::cta.bulk_group", d, coordinates)                          \
    STORE(add##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.add.bulk_group", d, coordinates)                 \
    STORE(min##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.min.bulk_group", d, coordinates)                 \
    STORE(max##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.max.bulk_group", d, coordinates)                 \
    STORE(inc##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.inc.bulk_group", d, coordinates)                 \
    STORE(dec##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.dec.bulk_group", d, coordinates)                 \
    STORE(and##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.and.bulk_group", d, coordinates)                 \
    STORE(or##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.or.bulk_group", d, coordinates)                   \
    STORE(xor##n, ".reduce.async.bulk.tensor." d ".global.shared::cta.xor.bulk_group", d, coordinates)

LOAD(load1, "1d", "tile", C1, "") LOAD(load2, "2d", "tile", C2, "") LOAD(load3, "3d", "tile", C3, "")
LOAD(load4, "4d", "tile", C4, "") LOAD(load5, "5d", "tile", C5, "")
LOAD(columns3, "3d", "im2col", C3, O3) LOAD(columns4, "4d", "im2col", C4, O4) LOAD(columns5, "5d", "im2col", C5, O5)
STORES(1, "1d", C1) STORES(2, "2d", C2) STORES(3, "3d", C3) STORES(4, "4d", C4) STORES(5, "5d", C5)

// Where nothing is documented, what a card does: waits at most `polls` times, and tells all of shared memory and the
// mbarrier's word.
#define PROBE(name, d, mode, coordinates, offsets)                                                                     \
    extern "C" __global__ void name(const __grid_constant__ Map map, u32* out, u32* told, At at, u32 bytes, u32 dump,  \
                                    u32 polls) {                                                                       \
        extern __shared__ __align__(1024) u32 tile[];                                                                  \
        __shared__ alignas(8) u64 bar;                                                                                 \
        u32 b = shared_address(&bar);                                                                                  \
        for (u32 n = threadIdx.x; n < dump / 4; n += blockDim.x) tile[n] = 0xCDCDCDCD;                                 \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                   \
        __syncthreads();                                                                                               \
        if (threadIdx.x == 0) {                                                                                        \
            begin(b, bytes);                                                                                           \
            asm volatile("cp.async.bulk.tensor." d ".shared::cluster.global." mode                                     \
                         ".mbarrier::complete_tx::bytes [%0], [%1, " coordinates "], [%7]" offsets ";"                 \
                         ::ARGUMENTS(shared_address(tile), &map, b), "h"((short)0), "h"((short)0), "h"((short)0)       \
                         : "memory");                                                                                  \
            u32 done = 0;                                                                                              \
            for (; polls && !done; polls--)                                                                            \
                asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"  \
                             : "=r"(done) : "r"(b) : "memory");                                                        \
            u64 word; /* by PTX: C++ sees nobody write bar, and may take it for 0 (so it did in one card's answers) */ \
            asm volatile("ld.shared.b64 %0, [%1];" : "=l"(word) : "r"(b) : "memory");                                  \
            told[0] = done, told[1] = polls, told[2] = (u32)word, told[3] = (u32)(word >> 32);                         \
        }                                                                                                              \
        __syncthreads();                                                                                               \
        for (u32 n = threadIdx.x; n < dump / 4; n += blockDim.x) out[n] = tile[n];                                     \
    }
PROBE(tile_probe2, "2d", "tile", C2, "") PROBE(tile_probe3, "3d", "tile", C3, "") PROBE(tile_probe4, "4d", "tile", C4, "")
PROBE(tile_probe5, "5d", "tile", C5, "")
PROBE(columns_probe3, "3d", "im2col", C3, O3) PROBE(columns_probe4, "4d", "im2col", C4, O4)
PROBE(columns_probe5, "5d", "im2col", C5, O5)

// block 0 of a cluster loads the tile for all of `goals`; each tells what it has
extern "C" __global__ void multicast(const __grid_constant__ Map map, u32* out, int x, int y, u32 bytes, int goals) {
    extern __shared__ __align__(1024) u32 tile[];
    __shared__ alignas(8) u64 bar;
    u32 b = shared_address(&bar), rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) begin(b, goals >> rank & 1 ? bytes : 0);
    for (u32 n = threadIdx.x; n < bytes / 4; n += blockDim.x) tile[n] = 0xABCDABCD;
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (rank == 0 && threadIdx.x == 0)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                     " [%0], [%1, {%2, %3}], [%4], %5;"
                     ::"r"(shared_address(tile)), "l"(&map), "r"(x), "r"(y), "r"(b), "h"((short)goals) : "memory");
    wait(b);
    for (u32 n = threadIdx.x; n < bytes / 4; n += blockDim.x) out[rank * bytes / 4 + n] = tile[n];
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
