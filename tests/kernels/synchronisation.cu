// Small kernels that synchronise in all ways, and what may be wrong with each: FAULT, 0 for nothing. What the detector of
// races says of them is in tests/emulate/test_synchronisation.py.
typedef unsigned long long u64;
typedef unsigned u32;
#define IS(n) (FAULT == n)
#define NOT(n) (FAULT != n)
#define KERNEL extern "C" __global__ void

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(const u64* bar, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory"); }
__device__ void inval(const u64* bar) { asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at(bar)) : "memory"); }
__device__ void inited() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void expect(const u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ void arrive(const u64* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory"); }
#if __CUDA_ARCH__ >= 900
#define TEST "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"
#else
#define TEST "mbarrier.test_wait.parity.shared::cta.b64"
#endif
__device__ u32 test(const u64* bar, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; " TEST " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
    return done;
}
__device__ void wait(const u64* bar, u32 parity) { while (!test(bar, parity)) {} }
__device__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 there(const void* p, u32 block) {
    u32 r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at(p)), "r"(block));
    return r;
}
__device__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ void meet() { cluster_arrive(), cluster_wait(); }
__device__ void to_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ void copy_in(void* to, const void* from, u32 bytes, const u64* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(bar)) : "memory");
}
__device__ void copy_out(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(at(from)), "r"(bytes) : "memory");
}
__device__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ void left() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
template <int N> __device__ void read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
__device__ void named(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ void named_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }

// Both warps arrive in each round. 1: before the one before is over. 2 (right): a barrier tells of that. 3: one of them does not
// wait. 4 (right): nobody looks. 5: more come than are counted. 6: fewer.
KERNEL rounds(u32* out, int steps) {
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, IS(5) ? 1 : IS(6) ? 3 : 2);
    __syncthreads();
    for (int i = 0; i < steps; i++) {
        if (t % 32 == 0) arrive(&bar);
        if (IS(2)) __syncthreads();
        else if (NOT(1) && NOT(4) && !(IS(3) && t < 32)) wait(&bar, i & 1);
    }
    if (IS(1) || IS(2)) wait(&bar, steps - 1 & 1);
    out[t] = t;
}

// The same by what mbarrier.arrive returns. 1: that of the round before.
KERNEL tokens(u32* out, int steps) {
    __shared__ u64 bar;
    __shared__ u32 s[64];
    int t = threadIdx.x;
    if (t == 0) init(&bar, 64);
    __syncthreads();
    u64 before = 0;
    for (int i = 0; i < steps; i++) {
        u64 token;
        u32 done = 0;
        s[t] = t + i;
        for (int two = 0; two < 2; two++, done = 0) {
            asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(at(&bar)) : "memory");
            u64 mine = IS(1) && i + two > 1 ? before : token;
            while (!done)
                asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                             : "=r"(done) : "r"(at(&bar)), "l"(mine) : "memory");
            before = token;
            if (!two) out[t] = s[63 - t];
        }
    }
}

// A warp takes its leave. 1: it comes once more. 2: it only stays away.
KERNEL dropped(u32* out, int steps) {
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 2);
    __syncthreads();
    if (t >= 32) {
        if (t == 32 && NOT(2)) asm volatile("{ .reg .b64 s; mbarrier.arrive_drop.shared::cta.b64 s, [%0]; }" ::"r"(at(&bar)) : "memory");
        if (t == 32 && (IS(1) || IS(2))) arrive(&bar);
    }
    else
        for (int i = 0; i < steps; i++) {
            if (t == 0) arrive(&bar);
            wait(&bar, i & 1);
        }
    out[t] = t;
}

#if __CUDA_ARCH__ >= 900
// 1: no fence. 2 (right): one by the thread that copies. 3: no barrier. 4: the fence comes too soon. 5: one warp fences.
KERNEL store_out(u32* out) {
    __shared__ __align__(128) u32 s[128];
    int t = threadIdx.x;
    if (IS(4)) to_async();
    s[t] = t * 3;
    if (IS(0) || IS(3) || (IS(5) && t < 32)) to_async();
    if (NOT(3)) __syncthreads();
    if (IS(2) && t == 0) to_async();
    if (t == 0) copy_out(out, s, 512), commit(), read<0>();
}

// The source is written again. 1: no wait. 2: the others do not know of it. 3: a group too many may be left. 4: no group. 5: no
// wait at the end.
KERNEL source_again(u32* out) {
    __shared__ __align__(128) u32 s[128];
    int t = threadIdx.x;
    for (int i = 0; i < 3; i++) {
        s[t] = t * 3 + i;
        to_async();
        __syncthreads();
        if (t == 0) {
            copy_out(out + i * 128, s, 512);
            if (NOT(4)) commit();
            if (IS(3)) read<1>();
            else if (NOT(1) && (NOT(5) || i < 2)) read<0>();
        }
        if (NOT(2)) __syncthreads();
    }
}

// 1: the wrong parity of full, 2: of empty. 3: none waits for empty. 4: none gives back. 5: fewer bytes, 6: more. 7: the other
// stage. 8: given back before it was read. 9: one of two warps may give back for both. 10: the mbarriers may not be there yet.
// 11: nobody looks whether the test of full has succeeded.
KERNEL ring(u32* out, const u32* in, int steps) {
    __shared__ __align__(128) u32 s[2][64];
    __shared__ u64 full[2], empty[2];
    int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, IS(9) ? 1 : 2);
        inited();
    }
    if (NOT(10)) __syncthreads();
    if (t >= 64) {
        for (int i = 0; t == 64 && i < steps; i++) {
            int b = i & 1;
            if (NOT(3)) wait(empty + b, (i >> 1 & 1) ^ NOT(2));
            expect(full + b, IS(5) ? 240 : IS(6) ? 272 : 256);
            copy_in(s[b], in + i * 64, 256, full + b);
        }
        return;
    }
    u32 sum = 0;
    for (int i = 0; i < steps; i++) {
        int b = i & 1;
        if (IS(11)) test(full + b, i >> 1 & 1);
        else wait(full + b, (i >> 1 & 1) ^ IS(1));
        if (IS(8) && t % 32 == 0) arrive(empty + b);
        if (IS(8)) __syncwarp();
        sum += s[b ^ IS(7)][63 - t];
        __syncwarp();
        if (NOT(4) && NOT(8) && t % 32 == 0) arrive(empty + b);
    }
    out[t] = sum;
}

// An mbarrier is made anew. 1: while others may still look at the old one. 2: they may look before it is made.
KERNEL anew(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    u32 sum = 0;
    for (int r = 0; r < 2; r++) {
        if (t == 0) {
            if (r) inval(&bar);
            init(&bar, 1), inited();
        }
        if (NOT(2)) __syncthreads();
        if (t == 0) expect(&bar, 256), copy_in(s, in + 64 * r, 256, &bar);
        wait(&bar, 0);
        sum += s[t];
        if (NOT(1)) __syncthreads();
    }
    out[t] = sum;
}

// Something else comes into its place. 1: while others may still look at it.
KERNEL instead(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 1), inited();
    __syncthreads();
    if (t == 0) expect(&bar, 256), copy_in(s, in, 256, &bar);
    wait(&bar, 0);
    if (NOT(1)) __syncthreads();
    if (t == 63) inval(&bar), *(u32*)&bar = 7;
    __syncthreads();
    out[t] = s[t] + *(u32*)&bar;
}

// 1: a block may end while the other one reads. 2: read before it is written. 3: the barrier does not tell what was written.
// 4: none waits at the end.
KERNEL __cluster_dims__(2, 1, 1) peer(u32* out) {
    __shared__ u32 s[64];
    int t = threadIdx.x;
    u32 r = rank(), v;
    s[t] = t + 100 * r;
    if (IS(3)) cluster_arrive_relaxed(), cluster_wait();
    else if (NOT(2)) meet();
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(there(s, r ^ 1) + 4 * t) : "memory");
    out[r * 64 + t] = v;
    if (IS(4)) cluster_arrive();
    else if (NOT(1)) meet();
}

// 1: the mbarrier may not be there yet. 2 (right): the barrier tells of mbarriers without a release. 3: the arrival does not tell
// what was written.
KERNEL __cluster_dims__(2, 1, 1) told(u32* out) {
    __shared__ u64 bar;
    __shared__ u32 s[32];
    int t = threadIdx.x;
    u32 r = rank();
    if (t == 0) init(&bar, 32), inited();
    __syncthreads();
    if (IS(2)) cluster_arrive_relaxed(), cluster_wait();
    else if (NOT(1)) meet();
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there(s, r ^ 1) + 4 * t), "r"(t + r) : "memory");
    if (IS(3)) asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(&bar, r ^ 1)) : "memory");
    else asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(&bar, r ^ 1)) : "memory");
    wait(&bar, 0);
    out[r * 32 + t] = s[t];
    meet();
}

// 1: both halves count for one barrier. 2: it counts more than come. 3: the wrong warps meet.
KERNEL halves(u32* out) {
    __shared__ u32 s[128];
    int t = threadIdx.x;
    s[t] = t;
    named(IS(1) ? 1 : IS(3) ? 1 + t / 32 % 2 : 1 + t / 64, IS(2) ? 96 : 64);
    out[t] = s[t ^ 63];
}

// 1: nobody says that the place is free.
KERNEL handed_on(u32* out, int steps) {
    __shared__ u32 s[32];
    int t = threadIdx.x % 32, w = threadIdx.x / 32;
    for (int i = 0; i < steps; i++)
        if (w == 0) {
            if (NOT(1)) named(2, 64);
            s[t] = i * 32 + t;
            named_arrive(1, 64);
        } else {
            if (NOT(1)) named_arrive(2, 64);
            named(1, 64);
            out[i * 32 + t] = s[31 - t];
        }
}

// 1: the mbarrier is not told of the copy, but at once. 2: nobody waits. 3: it counts the copies in addition.
KERNEL copy_tells(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 64);
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(s + t)), "l"(in + t) : "memory");
    if (IS(1)) arrive(&bar);
    else if (IS(3)) asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(at(&bar)) : "memory");
    else asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(&bar)) : "memory");
    if (NOT(2)) wait(&bar, 0);
    out[t] = s[63 - t];
}

// 1: groups are not closed. 2: one too many may be left. 3: who has not copied does not wait.
KERNEL copy_groups(u32* out, const u32* in, int steps) {
    __shared__ __align__(128) u32 s[3][64];
    int t = threadIdx.x;
    u32 sum = 0;
    for (int i = 0; i < 2; i++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;" ::"r"(at(&s[i][t])), "l"(in + 64 * i + t) : "memory");
    for (int i = 0; i < steps; i++) {
        if (IS(2)) asm volatile("cp.async.wait_group 2;" ::: "memory");
        else asm volatile("cp.async.wait_group 1;" ::: "memory");
        if (NOT(3)) __syncthreads();
        if (i + 2 < steps)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(&s[(i + 2) % 3][t])), "l"(in + 64 * (i + 2) + t) : "memory");
        if (NOT(1)) asm volatile("cp.async.commit_group;" ::: "memory");
        sum += s[i % 3][63 - t];
    }
    out[t] = sum;
}

// A copy over what threads have read. 1: over what they have written, without a fence. 2: they may still read. 3 (right): written,
// with a fence.
KERNEL over(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 1), inited();
    if (IS(1) || IS(3)) s[t] = t;
    if (IS(3)) to_async();
    __syncthreads();
    if (IS(0) || IS(2)) out[t] = ((volatile u32*)s)[t ^ 33];
    if (NOT(2)) __syncthreads();
    if (t == 0) expect(&bar, 256), copy_in(s, in, 256, &bar);
    wait(&bar, 0);
    out[t] = s[t];
}

// 1: a barrier of nobody. 2: of a warp only.
KERNEL one_waits(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 1), inited(), expect(&bar, 256), copy_in(s, in, 256, &bar), wait(&bar, 0);
    if (IS(2)) __syncwarp();
    else if (NOT(1)) __syncthreads();
    out[t] = s[t];
}

// What was copied out is read. 1: when it has been read there. 2: at any time.
KERNEL back(u32* out, u32* room) {
    __shared__ __align__(128) u32 s[64];
    int t = threadIdx.x;
    s[t] = t;
    to_async();
    __syncthreads();
    if (t == 0) {
        copy_out(room, s, 256), commit();
        if (IS(1)) read<0>();
        else if (NOT(2)) left<0>();
    }
    __syncthreads();
    out[t] = room[t];
}

// What threads have written to global memory is copied in. 1: no fence. 2: no barrier.
KERNEL from_global(u32* out, u32* room) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    room[t] = 5 * t;
    if (NOT(1)) to_async();
    if (t == 0) init(&bar, 1), inited();
    if (NOT(2)) __syncthreads();
    if (t == 0) expect(&bar, 256), copy_in(s, room, 256, &bar);
    if (IS(2)) __syncthreads();
    wait(&bar, 0);
    out[t] = s[t];
}

// 1: nobody waits. 2: for half of the bytes.
KERNEL __cluster_dims__(2, 1, 1) stored(u32* out) {
    __shared__ u64 bar;
    __shared__ u32 s[32];
    int t = threadIdx.x;
    u32 r = rank();
    if (t == 0) init(&bar, 1), inited(), expect(&bar, IS(2) ? 64 : 128);
    meet();
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 ::"r"(there(s, r ^ 1) + 4 * t), "r"(t + 9 * r), "r"(there(&bar, r ^ 1)) : "memory");
    if (NOT(1)) wait(&bar, 0);
    out[r * 32 + t] = s[t];
}

// A copy into the other block's memory. 1: nobody waits. 2: its source is written again. 3: no fence. 4: its block may end.
KERNEL __cluster_dims__(2, 1, 1) pushed(u32* out) {
    __shared__ __align__(128) u32 s[64], d[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    u32 r = rank();
    if (t == 0) init(&bar, 1), inited(), expect(&bar, 256);
    s[t] = 5 * t + r;
    if (NOT(3)) to_async();
    meet();
    if (t == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     ::"r"(there(d, r ^ 1)), "r"(at(s)), "r"(there(&bar, r ^ 1)) : "memory");
    if (IS(2)) __syncthreads(), s[t] = 1;
    if (NOT(1)) wait(&bar, 0);
    out[r * 64 + t] = d[t];
    if (NOT(4)) meet();
}

// Each block brings half of each tile for both. 1: it is given back to its own block alone. 2: nobody waits for that. 3: one of two
// blocks may give back for both. 4: a block may end while the other one tells it.
KERNEL __cluster_dims__(2, 1, 1) multicast(u32* out, const u32* in, int steps) {
    __shared__ __align__(128) u32 s[2][128];
    __shared__ u64 full[2], empty[2];
    int t = threadIdx.x;
    u32 r = rank();
    if (t == 0) {
        for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, IS(1) || IS(3) ? 1 : 2);
        inited();
    }
    meet();
    for (int i = 0; t == 32 && i < steps; i++) {
        int b = i & 1;
        if (NOT(2)) wait(empty + b, i >> 1 & 1 ^ 1);
        expect(full + b, 512);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;"
                     ::"r"(at(s[b] + 64 * r)), "l"(in + i * 64 + 32 * r), "r"(at(full + b)), "h"((short)3) : "memory");
    }
    u32 sum = 0;
    for (int i = 0; t < 32 && i < steps; i++) {
        int b = i & 1;
        wait(full + b, i >> 1 & 1);
        for (int k = 0; k < 4; k++) sum += s[b][32 * k + t];
        __syncwarp();
        if (IS(1) && t == 0) arrive(empty + b);
        else if (NOT(1) && t < 2)
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(empty + b, t)) : "memory");
    }
    if (t < 32) out[32 * r + t] = sum;
    __syncwarp();
    if (NOT(4)) meet();
}

// By stmatrix and ldmatrix. 1: no fence before the copy. 2: no barrier between warps. 3: the source is written again.
KERNEL matrices(u32* out) {
    __shared__ __align__(128) u32 s[512];
    int t = threadIdx.x, mine = t / 32 * 128, lane = t % 32 * 16;
    u32 a, b, c, d;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(at(s + mine) + lane), "r"(t) : "memory");
    if (NOT(1)) to_async();
    if (NOT(2)) __syncthreads();
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at(s + (mine ^ 128)) + lane) : "memory");
    if (IS(2)) __syncthreads();
    if (t == 0) copy_out(out, s, 2048), commit();
    if (NOT(3)) read<0>();
    __syncthreads();
    s[t] = a + b + c + d;
    if (IS(3)) read<0>();
}

// 1: what a product reads was written without a fence. 2: and without a barrier. 3: it is written again before the product is over.
KERNEL warpgroup(float* out) {
    __shared__ __align__(1024) u32 a[2048], b[256];
    int t = threadIdx.x;
    for (int i = t; i < 2048; i += 128) a[i] = 0x3C003C00;
    for (int i = t; i < 256; i += 128) b[i] = 0x3C003C00;
    if (NOT(1)) to_async();
    if (NOT(2)) __syncthreads();
    float d[4] = {};
    auto matrix = [](const void* p) { return (u64)((at(p) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; };
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(matrix(a)), "l"(matrix(b)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (IS(3)) a[t] = 1;
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) out[i * 128 + t] = d[i];
}

// One asks, the other answers. 1: who asks does not wait for the answer. 2: the other one waits for every other question. 3: it
// waits for the next one, too. 4 (right): it looks now and then until the question has come.
KERNEL answers(u32* out, int steps) {
    __shared__ u64 ask, answer;
    int t = threadIdx.x;
    if (t == 0) init(&ask, 1), init(&answer, 1);
    __syncthreads();
    for (int i = 0; i < steps; i++)
        if (t < 32) {
            if (t == 0) arrive(&ask);
            if (NOT(1)) wait(&answer, i & 1);
        } else {
            if (IS(4)) for (u32 done = 0; !done; __nanosleep(20)) done = test(&ask, i & 1);
            else if (NOT(2) || i % 2 == 0) wait(&ask, i & 1);
            if (IS(3)) wait(&ask, i & 1 ^ 1);
            if (t == 32) arrive(&answer);
        }
    out[t] = t;
}

// Bytes are announced without an arrival. 1: behind the arrival of this thread. 2: nobody knows whether before the last one. 3
// (right): a barrier is between. 4 (right): the copy begins before. 5: the mbarrier waits for the next tile with the first one.
KERNEL announced(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[2][64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    auto more = [&] { asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 256;" ::"r"(at(&bar)) : "memory"); };
    if (t == 0) init(&bar, 2), inited();
    __syncthreads();
    if (t == 0) {
        if (IS(1)) arrive(&bar);
        if (IS(4)) copy_in(s[0], in, 256, &bar);
        more();
        if (NOT(4)) copy_in(s[0], in, 256, &bar);
        if (NOT(1) && NOT(2) && NOT(3)) arrive(&bar);
    }
    if (IS(3)) __syncthreads();
    if (t == 32) arrive(&bar);
    if (t == 33 && (IS(2) || IS(3))) arrive(&bar);
    if (IS(5) && t == 0) expect(&bar, 256), copy_in(s[1], in + 64, 256, &bar);
    wait(&bar, 0);
    if (NOT(5) && t == 0) expect(&bar, 256), copy_in(s[1], in + 64, 256, &bar);
    if (t == 32) arrive(&bar);
    wait(&bar, 1);
    out[t] = s[0][t] + s[1][t];
}

// A second copy for one mbarrier. 1: begun when the first one may be under way, and announced when it is over. 2: announced then,
// too.
KERNEL again(u32* out, const u32* in) {
    __shared__ __align__(128) u32 s[2][64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) {
        init(&bar, 1), inited();
        expect(&bar, 256), copy_in(s[0], in, 256, &bar);
        if (IS(1) || IS(2)) copy_in(s[1], in + 64, 256, &bar);
        if (NOT(2)) wait(&bar, 0);
        expect(&bar, 256);
        if (IS(0)) copy_in(s[1], in + 64, 256, &bar);
        wait(&bar, 1);
    }
    __syncthreads();
    out[t] = s[0][t] + s[1][t];
}

// Each block arrives at its own mbarrier and at the other one's. 1: first at that one. 2: it does not wait. 3 (right): .relaxed.
KERNEL __cluster_dims__(2, 1, 1) rounds_of_two(u32* out, int steps) {
    __shared__ u64 bar;
    int t = threadIdx.x;
    u32 r = rank();
    if (t == 0) init(&bar, 2), inited();
    meet();
    for (int i = 0; i < steps; i++) {
        for (u32 n = 0; t == 0 && n < 2; n++) {
            u32 place = there(&bar, r ^ n ^ IS(1));
            if (IS(3)) asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory");
            else asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory");
        }
        if (NOT(2)) wait(&bar, i & 1);
    }
    if (IS(2)) wait(&bar, steps - 1 & 1);
    out[32 * r + t] = t;
    meet();
}

// A thread takes the mbarrier away. 1: while others may look at it. 2: and it is used.
KERNEL taken(u32* out) {
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 2), inited();
    __syncthreads();
    if (t % 32 == 0) arrive(&bar);
    wait(&bar, 0);
    if (NOT(1)) __syncthreads();
    if (t == 0) inval(&bar);
    if (IS(2)) {
        __syncthreads();
        if (t % 32 == 0) arrive(&bar);
        wait(&bar, 1);
    }
    out[t] = t;
}

// One block stores into the other one's memory. 1: before that has read what was there. 2: it is told so too early.
KERNEL __cluster_dims__(2, 1, 1) stored_in_turn(u32* out, int steps) {
    __shared__ u64 full, empty;
    __shared__ u32 s[32];
    int t = threadIdx.x;
    u32 r = rank(), sum = 0;
    auto give_back = [&] {
        __syncwarp();
        if (t == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(&empty, 0)) : "memory");
        __syncwarp();
    };
    if (t == 0) init(&full, 1), init(&empty, 1), inited();
    meet();
    for (int i = 0; i < steps; i++)
        if (r == 0) {
            if (NOT(1)) wait(&empty, i & 1 ^ 1);
            __syncwarp();
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                         ::"r"(there(s, 1) + 4 * t), "r"(t + i), "r"(there(&full, 1)) : "memory");
        } else {
            if (t == 0) expect(&full, 128);
            wait(&full, i & 1);
            if (IS(2)) give_back();
            sum += s[31 - t];
            if (NOT(2)) give_back();
        }
    out[32 * r + t] = sum;
    meet();
}

// A ring by cp.async. 1: none waits for empty. 2: the mbarrier hears of the copies before.
KERNEL ring_of_copies(u32* out, const u32* in, int steps) {
    __shared__ __align__(128) u32 s[2][64];
    __shared__ u64 full[2], empty[2];
    int t = threadIdx.x;
    u32 sum = 0;
    if (t == 0) for (int i = 0; i < 2; i++) init(full + i, 64), init(empty + i, 64);
    __syncthreads();
    for (int i = 0; i < steps; i++) {
        int b = i & 1;
        if (t < 64) {
            wait(full + b, i >> 1 & 1);
            sum += s[b][63 - t];
            arrive(empty + b);
            continue;
        }
        auto tell = [&] { asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at(full + b)) : "memory"); };
        if (NOT(1)) wait(empty + b, i >> 1 & 1 ^ 1);
        if (IS(2)) tell();
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(s[b] + t - 64)), "l"(in + 64 * i + t - 64) : "memory");
        if (NOT(2)) tell();
    }
    if (t < 64) out[t] = sum;
}

// Two warps bring tiles in turn, and two read, of which one gives back. 1: these do not meet. 2: the others do not meet. 3: each of
// them waits for its own turns alone. 4: nobody looks at what the test of full says.
KERNEL turns(u32* out, const u32* in, int steps) {
    __shared__ __align__(128) u32 s[64];
    __shared__ u64 full, empty;
    int t = threadIdx.x;
    u32 sum = 0;
    if (t == 0) init(&full, 1), init(&empty, 1), inited();
    __syncthreads();
    for (int i = 0; i < steps; i++)
        if (t >= 64) {
            bool mine = t / 32 % 2 == i % 2;
            if (NOT(3) || mine) wait(&empty, i & 1 ^ 1);
            if (NOT(2) && NOT(3)) named(2, 64);
            if (mine && t % 32 == 0) expect(&full, 256), copy_in(s, in + 64 * i, 256, &full);
        } else {
            if (IS(4)) test(&full, i & 1);
            else wait(&full, i & 1);
            sum += s[63 - t];
            if (NOT(1)) named(1, 64);
            if (t == 0) arrive(&empty);
        }
    if (t < 64) out[t] = sum;
}
#endif
