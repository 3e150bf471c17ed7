// What reaches the shared memory of which block of a cluster of two: one kernel for each instruction, which block
// `acting` runs with an address whose upper byte names block `to` (and for the mbarrier of a copy, block `told`).
// Compiled by tests/gpu/reach.py.
typedef unsigned u32;
typedef unsigned long long u64;
struct alignas(64) Map { u64 opaque[16]; };

__device__ u32 offset_of(const void* p) { return (u32)__cvta_generic_to_shared(p) & 0xffffff; }
__device__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// 128 words and an mbarrier, which waits for 40 arrivals, or for one and BYTES
struct Data { u32 x[128]; u64 bar; };

__device__ void begin(Data& d, u32 bytes) {
    u32 i = threadIdx.x, bar = (u32)__cvta_generic_to_shared(&d.bar);
    for (u32 n = i; n < 128; n += 32) d.x[n] = 0x1000 * (rank() + 1) + n;
    if (i == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(bytes ? 1 : 40) : "memory");
        if (bytes) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meet();
}

// for so long, if it comes at all
__device__ void wait(Data& d) {
    u32 done = 0;
    for (u32 n = 0; n < 50 && !done; n++) {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"((u32)__cvta_generic_to_shared(&d.bar)) : "memory");
        if (!done) __nanosleep(1000);
    }
}

__device__ void show(Data& d, u32* out, u32 r) {
    meet();
    u32 i = threadIdx.x, *to = out + 192 * blockIdx.x;
    for (u32 n = i; n < 128; n += 32) to[n] = d.x[n];
    if (i < 2) to[128 + i] = (u32)(d.bar >> 32 * i);
    to[160 + i] = r;
    meet();
}

// v: what is stored; a: 16 bytes for each thread; f: the first of them; b: the mbarrier; g: 16 bytes of `in` for each
#define KERNEL(name, bytes, ...)                                                                                       \
    extern "C" __global__ void name(u32* out, u32* in, u32 acting, u32 to, u32 told) {                                 \
        __shared__ __align__(128) Data d;                                                                              \
        begin(d, bytes);                                                                                               \
        u32 i = threadIdx.x, r = 0, v = 0x777000 + i, f = offset_of(d.x) | to << 24, a = f + 16 * i;                   \
        u32 b = offset_of(&d.bar) | told << 24, *g = in + 4 * i;                                                       \
        if (rank() == acting) { __VA_ARGS__; }                                                                         \
        if (bytes) wait(d);                                                                                            \
        show(d, out, r + 0 * (v + a + b) + (g == 0));                                                                  \
    }
#define LOAD(name, text) KERNEL(name, 0, asm volatile(text " %0, [%1];" : "=r"(r) : "r"(a) : "memory"))
#define STORE(name, text) KERNEL(name, 0, asm volatile(text " [%0], %1;" :: "r"(a), "r"(v) : "memory"))
#define ATOM(name, text) KERNEL(name, 0, asm volatile(text " %0, [%1], %2;" : "=r"(r) : "r"(a), "r"(v) : "memory"))

LOAD(load, "ld.volatile.shared.u32")
STORE(store, "st.volatile.shared.u32")
KERNEL(load_bytes, 0, { unsigned short h; asm volatile("ld.volatile.shared.u8 %0, [%1];" : "=h"(h) : "r"(a) : "memory"); r = h; })
KERNEL(load_4, 0, u32 y; u32 z; u32 w; asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
       : "=r"(r), "=r"(y), "=r"(z), "=r"(w) : "r"(a) : "memory"); r += y + z + w)
KERNEL(store_4, 0, asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %1, %1, %1};" :: "r"(a), "r"(v) : "memory"))
ATOM(atomic_add, "atom.shared.add.u32")
ATOM(atomic_exchange, "atom.shared.exch.b32")
STORE(reduce_add, "red.shared.add.u32")
KERNEL(compare_and_swap, 0, asm volatile("atom.shared.cas.b32 %0, [%1], %2, %3;" : "=r"(r) : "r"(a), "r"(0x1004), "r"(v) : "memory"))
KERNEL(load_matrix, 0, asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(a) : "memory"))
KERNEL(load_matrices, 0, u32 y; u32 z; u32 w; asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
       : "=r"(r), "=r"(y), "=r"(z), "=r"(w) : "r"(a) : "memory"); r += y + z + w)
KERNEL(store_matrix, 0, asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(a), "r"(v) : "memory"))
KERNEL(store_matrices, 0, asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" :: "r"(a), "r"(v) : "memory"))
KERNEL(copy_4, 0, asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;" :: "r"(a), "l"(g) : "memory"))
KERNEL(copy_16, 0, asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.wait_all;" :: "r"(a), "l"(g) : "memory"))
KERNEL(arrive_behind_copies, 0, asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(b) : "memory"))
KERNEL(make_mbarrier, 0, if (i == 0) asm volatile("mbarrier.init.shared.b64 [%0], 7;" :: "r"(b) : "memory"))
KERNEL(test_mbarrier, 0, asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 2, p; }"
       : "=r"(r) : "r"(b) : "memory"))
KERNEL(try_mbarrier, 0, asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 1; selp.u32 %0, 1, 2, p; }"
       : "=r"(r) : "r"(b) : "memory"))
KERNEL(arrive, 0, u64 s; asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(s) : "r"(b) : "memory"))
KERNEL(expect, 0, asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 64;" :: "r"(b) : "memory"))
KERNEL(arrive_in_cluster, 0, asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(b) : "memory"))
KERNEL(expect_in_cluster, 0, asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 64;" :: "r"(b) : "memory"))
KERNEL(bulk_load, 128, if (i == 0) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
       :: "r"(f), "l"(in), "r"(b) : "memory"))
KERNEL(bulk_store, 0, if (i == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128; cp.async.bulk.commit_group;"
       " cp.async.bulk.wait_group 0;" :: "l"(in), "r"(f) : "memory"))
KERNEL(bulk_reduce, 0, if (i == 0) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 128; cp.async.bulk.commit_group;"
       " cp.async.bulk.wait_group 0;" :: "l"(in), "r"(f) : "memory"))
// from where the address says into the second half of block `told`
KERNEL(bulk_copy, 128, if (i == 0) asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
       :: "r"((offset_of(d.x) + 256) | told << 24), "r"(f), "r"(b) : "memory"))

#define TILED(name, bytes, ...)                                                                                        \
    extern "C" __global__ void name(const __grid_constant__ Map map, u32* out, u32 acting, u32 to, u32 told) {         \
        __shared__ __align__(128) Data d;                                                                              \
        begin(d, bytes);                                                                                               \
        u32 f = offset_of(d.x) | to << 24, b = offset_of(&d.bar) | told << 24;                                         \
        if (rank() == acting && threadIdx.x == 0) { __VA_ARGS__; }                                                     \
        if (bytes) wait(d);                                                                                            \
        show(d, out, 0 * (f + b));                                                                                     \
    }
TILED(tile_load, 128, asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
      :: "r"(f), "l"(&map), "r"(0), "r"(b) : "memory"))
TILED(tile_store, 0, asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%1, {%2, %2}], [%0]; cp.async.bulk.commit_group;"
      " cp.async.bulk.wait_group 0;" :: "r"(f), "l"(&map), "r"(0) : "memory"))
