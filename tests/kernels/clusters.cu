// Clusters of sm_90: ranks, shared memory of other blocks, barriers, mbarriers, bulk copies; and the grid as a group.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned in_block(const void* p, unsigned rank) {
    unsigned to;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at(p)), "r"(rank));
    return to;
}
__device__ void wait(const void* bar, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
}
__device__ void init(const void* bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(bar)), "r"(count));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(const void* bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(bar)), "r"(bytes));
}

#define READ(n, name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(v[n]));
extern "C" __global__ void ids(unsigned* out) {
    unsigned v[16];
    READ(0, "clusterid.x") READ(1, "clusterid.y") READ(2, "clusterid.z")
    READ(3, "nclusterid.x") READ(4, "nclusterid.y") READ(5, "nclusterid.z")
    READ(6, "cluster_ctaid.x") READ(7, "cluster_ctaid.y") READ(8, "cluster_ctaid.z")
    READ(9, "cluster_nctaid.x") READ(10, "cluster_nctaid.y") READ(11, "cluster_nctaid.z")
    READ(12, "cluster_ctarank") READ(13, "cluster_nctarank")
    asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(v[14]));
    v[15] = cg::this_cluster().num_threads();
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (threadIdx.x < 16) out[16 * block + threadIdx.x] = v[threadIdx.x];
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) fixed(unsigned* out) { out[blockIdx.x] = cg::this_cluster().num_blocks(); }

// each block reads what the next one has, adds to it, and writes behind it
extern "C" __global__ void ring(unsigned* out, const unsigned* in) {
    __shared__ unsigned x[64];
    __shared__ float f[32];
    cg::cluster_group c = cg::this_cluster();
    unsigned i = threadIdx.x, next = (c.block_rank() + 1) % c.num_blocks();
    x[i] = in[blockIdx.x * 32 + i];
    f[i] = 0;
    c.sync();
    unsigned* there = c.map_shared_rank(x, next);
    unsigned got = there[i];
    c.sync();
    atomicAdd(&there[i ^ 1], 7u);
    atomicAdd(c.map_shared_rank(f, next) + i / 4, 0.5f * i);
    there[32 + i] = got;
    c.sync();
    unsigned old;
    asm volatile("atom.shared::cluster.max.u32 %0, [%1], %2;" : "=r"(old) : "r"(in_block(x, next) + 4 * i), "r"(500) : "memory");
    c.sync();
    out[(blockIdx.x * 4 + 0) * 32 + i] = x[i];
    out[(blockIdx.x * 4 + 1) * 32 + i] = x[32 + i];
    out[(blockIdx.x * 4 + 2) * 32 + i] = old + 1000 * c.query_shared_rank(there);
    out[(blockIdx.x * 4 + 3) * 32 + i] = (unsigned)f[i];
}

// stores and reductions into the other block, which its mbarrier counts
extern "C" __global__ void asynchronous(unsigned* out) {
    __shared__ __align__(16) unsigned long long bar;
    __shared__ __align__(16) unsigned data[128];
    cg::cluster_group c = cg::this_cluster();
    unsigned i = threadIdx.x, other = c.block_rank() ^ 1;
    data[i] = data[64 + i] = 1000;
    if (i == 0) init(&bar, 2);
    c.sync();
    unsigned to = in_block(data, other), told = in_block(&bar, other);
    if (i == 0) {
        expect(&bar, 32 * 4 + 16 * 16 + 32 * 4);
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(told) : "memory");
    }
    if (i < 32) asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                             :: "r"(to + 4 * i), "r"(i + 100 * other), "r"(told) : "memory");
    else if (i < 48) asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];"
                                  :: "r"(to + 128 + 16 * (i - 32)), "r"(i), "r"(i + 1), "r"(i + 2), "r"(i + 3), "r"(told) : "memory");
    if (i < 32) asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 [%0], %1, [%2];"
                             :: "r"(to + 384 + 4 * i), "r"((int)i - 16), "r"(told) : "memory");
    wait(&bar, 0);
    out[blockIdx.x * 128 + i] = data[i];
    out[blockIdx.x * 128 + 64 + i] = data[64 + i];
    c.sync();
}

// all blocks add up in block 0, which hears of the even ones at one mbarrier and of the odd ones at the other
extern "C" __global__ void gather(unsigned* out, const unsigned* in) {
    __shared__ __align__(16) unsigned long long bars[2];
    __shared__ __align__(16) unsigned sums[64];
    cg::cluster_group c = cg::this_cluster();
    unsigned i = threadIdx.x, rank = c.block_rank();
    sums[i] = 0;
    if (i < 2) init(&bars[i], 1);
    if (i < 2 && rank == 0) expect(&bars[i], c.num_blocks() / 2 * 256);
    c.sync();
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                 :: "r"(in_block(&sums[i], 0)), "r"(in[64 * rank + i]), "r"(in_block(&bars[rank & 1], 0)) : "memory");
    if (rank == 0) {
        wait(&bars[0], 0);
        wait(&bars[1], 0);
        out[i] = sums[63 - i];
    }
    c.sync();
}

// block 0 copies to all blocks at once, and its shared memory to that of the last
extern "C" __global__ void bulk(unsigned* out, const unsigned* in, int mask) {
    __shared__ __align__(16) unsigned data[64], more[64], sums[64];
    __shared__ __align__(8) unsigned long long bar;
    cg::cluster_group c = cg::this_cluster();
    unsigned i = threadIdx.x, rank = c.block_rank(), last = c.num_blocks() - 1;
    data[i] = more[i] = 0;
    sums[i] = i;
    if (i == 0) init(&bar, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    c.sync();
    if (i == 0) expect(&bar, 256 * (mask >> rank & 1) + 512 * (rank == last));
    c.sync();
    if (i == 0 && rank == 0) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;"
                     :: "r"(at(data)), "l"(in), "r"(at(&bar)), "h"((short)mask) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     :: "r"(in_block(more, last)), "r"(at(sums)), "r"(in_block(&bar, last)) : "memory");
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], 256, [%2];"
                     :: "r"(in_block(sums, last)), "r"(at(sums)), "r"(in_block(&bar, last)) : "memory");
    }
    wait(&bar, 0);
    c.sync();
    out[blockIdx.x * 192 + i] = data[i];
    out[blockIdx.x * 192 + 64 + i] = more[i];
    out[blockIdx.x * 192 + 128 + i] = sums[i];
}

extern "C" __global__ void late_peer(unsigned* out) {  // no barrier at the end: the other block may be gone
    __shared__ unsigned x[32];
    cg::cluster_group c = cg::this_cluster();
    x[threadIdx.x] = 1;
    c.sync();
    if (c.block_rank() == 1) return;
    for (int i = 0; i < 300; i++) __nanosleep(1);
    out[threadIdx.x] = c.map_shared_rank(x, 1)[threadIdx.x];
}

// reductions in bulk of global memory
#define REDUCE(name, op, bytes) \
    extern "C" __global__ void reduce_##name(char* out, const char* in) { \
        __shared__ __align__(16) char x[1024]; \
        for (unsigned n = threadIdx.x; n < bytes; n += blockDim.x) x[n] = in[n]; \
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); \
        __syncthreads(); \
        if (threadIdx.x == 0) { \
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." op " [%0], [%1], %2;" :: "l"(out), "r"(at(x)), "r"(bytes) : "memory"); \
            asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); \
        } \
    }
REDUCE(add_u32, "add.u32", 1024)
REDUCE(min_s64, "min.s64", 1024)
REDUCE(xor_b64, "xor.b64", 1024)
REDUCE(inc_u32, "inc.u32", 512)
REDUCE(add_f32, "add.f32", 1024)
REDUCE(add_f64, "add.f64", 1024)
REDUCE(add_f16, "add.noftz.f16", 256)
REDUCE(max_f16, "max.f16", 256)

extern "C" __global__ void meet(unsigned* out, unsigned* between) {
    cg::grid_group g = cg::this_grid();
    unsigned i = g.thread_rank();
    between[i] = 3 * i;
    g.sync();
    unsigned x = between[(i + blockDim.x) % g.size()];
    g.sync();
    between[i] = x;
    g.sync();
    out[i] = between[(i + blockDim.x) % g.size()];
}
