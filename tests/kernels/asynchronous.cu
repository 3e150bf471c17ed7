// Kernels as people write them for sm_90a, each with several asynchronous ways at once. Compiled by
// tests/emulate/asynchronous.py.
#include <cuda_fp16.h>
typedef unsigned long long u64;
typedef unsigned u32;
struct alignas(64) Map { u64 opaque[16]; };

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(const u64* bar, u32 count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory"); }
__device__ void inited() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void expect(const u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ void wait(const u64* bar, u32 parity) {
    u32 done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory");
}
__device__ u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ u32 there(const void* p, u32 block) {
    u32 r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at(p)), "r"(block));
    return r;
}
__device__ void meet() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ void to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void tile(const void* to, const Map* map, const u64* bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(at(to)), "l"(map), "r"(at(bar)), "r"(x), "r"(y) : "memory");
}
// K-major, or turned, in 128 bytes that are swizzled
__device__ u64 matrix(const void* p) { return (u64)((at(p) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; }
#define EIGHT(n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]), "+f"(d[n + 6]), "+f"(d[n + 7])
#define SUMS "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define ORDERED asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define LEFT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
__device__ void multiply(float* d, u64 a, u64 b, u32 adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SUMS
                 ", %32, %33, p, 1, 1, 0, 0; }" : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24) : "l"(a), "l"(b), "r"(adds));
}
__device__ void weigh(float* d, const u32* a, u64 b) {  // b: MN-major
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " SUMS ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// C = A B^T: a warp group brings tiles, half of B for both blocks of the cluster, two multiply, a product under way while
// the stage before is given back to both blocks; C goes out through a tensor map.
#define STAGES 3
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
product(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c, int steps) {
    extern __shared__ __align__(1024) char room[];
    __shared__ u64 full[STAGES], empty[STAGES];
    char *as = room, *bs = as + STAGES * 16384, *cs = bs + STAGES * 8192;
    int t = threadIdx.x, group = t / 128, m = blockIdx.x * 128, n = blockIdx.y * 64;
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) init(full + s, 1), init(empty + s, 4);
        inited();
    }
    meet();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t) return;
        int half = rank() * 32;
        for (int i = 0; i < steps; i++) {
            int s = i % STAGES;
            wait(empty + s, i / STAGES & 1 ^ 1);
            expect(full + s, 24576);
            tile(as + s * 16384, &a, full + s, i * 64, m);
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                         "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(at(bs + s * 8192 + half * 128)), "l"(&b), "r"(at(full + s)),
                         "r"(i * 64), "r"(n + half), "h"((short)3) : "memory");
        }
        wait(empty + (steps - 1) % STAGES, (steps - 1) / STAGES & 1);  // else the other block may still arrive here
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[32] = {};
    int w = group - 1, l = t % 128, warp = l / 32, lane = l % 32;
    auto give = [&](int i) {
        if (i >= 0 && l < 2)
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                         ::"r"(there(empty + i % STAGES, l)) : "memory");
    };
    for (int i = 0; i < steps; i++) {
        int s = i % STAGES;
        wait(full + s, i / STAGES & 1);
        ORDERED;
        for (int k = 0; k < 4; k++) multiply(d, matrix(as + s * 16384 + w * 8192) + 2 * k, matrix(bs + s * 8192) + 2 * k, i + k);
        COMMIT;
        LEFT(1);
        give(i - 1);
    }
    LEFT(0);
    give(steps - 1);
    for (int q = 0; q < 4; q++) {
        __half2 h[4];
        for (int e = 0; e < 4; e++) h[e] = __floats2half2_rn(d[q * 8 + e * 2], d[q * 8 + e * 2 + 1]);
        int row = warp * 16 + lane % 16, piece = q * 2 + lane / 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(at(cs + w * 8192) + row * 128 + ((piece ^ row & 7) << 4)), "r"(*(u32*)&h[0]), "r"(*(u32*)&h[1]),
                       "r"(*(u32*)&h[2]), "r"(*(u32*)&h[3]) : "memory");
    }
    to_async();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + w) : "memory");
    if (l == 0)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1]; cp.async.bulk.commit_group; "
                     "cp.async.bulk.wait_group 0;" ::"l"(&c), "r"(at(cs + w * 8192)), "r"(n), "r"(m + w * 64) : "memory");
}

// Attention of 64 queries a block: a warp brings keys and values, a warp group multiplies; weights stay in registers.
extern "C" __global__ void __launch_bounds__(160)
attention(const __grid_constant__ Map mq, const __grid_constant__ Map mk, const __grid_constant__ Map mv, float* out, int keys, float scale) {
    extern __shared__ __align__(1024) char room[];
    __shared__ u64 full[2], empty[2], first;
    char *q = room, *ks = q + 8192, *vs = ks + 2 * 8192;
    int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < 2; s++) init(full + s, 1), init(empty + s, 4);
        init(&first, 1);
        inited();
    }
    __syncthreads();
    if (t >= 128) {
        if (t > 128) return;
        expect(&first, 8192);
        tile(q, &mq, &first, 0, blockIdx.x * 64);
        for (int i = 0; i < keys / 64; i++) {
            int s = i & 1;
            wait(empty + s, i >> 1 & 1 ^ 1);
            expect(full + s, 16384);
            tile(ks + 8192 * s, &mk, full + s, 0, i * 64);
            tile(vs + 8192 * s, &mv, full + s, 0, i * 64);
        }
        return;
    }
    float o[32] = {}, most[2] = {-1e30f, -1e30f}, sum[2] = {};
    wait(&first, 0);
    for (int i = 0; i < keys / 64; i++) {
        int s = i & 1;
        wait(full + s, i >> 1 & 1);
        float d[32] = {};
        ORDERED;
        for (int n = 0; n < 4; n++) multiply(d, matrix(q) + 2 * n, matrix(ks + 8192 * s) + 2 * n, n);
        COMMIT;
        LEFT(0);
        u32 p[16];
        for (int h = 0; h < 2; h++) {
            float m = most[h];
            for (int n = 0; n < 16; n++) m = fmaxf(m, d[n / 2 * 4 + h * 2 + n % 2] * scale);
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
            m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
            float less = exp2f(most[h] - m);
            most[h] = m, sum[h] *= less;
            for (int n = 0; n < 8; n++) {
                float x = exp2f(d[n * 4 + h * 2] * scale - m), y = exp2f(d[n * 4 + h * 2 + 1] * scale - m);
                __half2 both = __floats2half2_rn(x, y);
                sum[h] += x + y, p[n * 2 + h] = *(u32*)&both, o[n * 4 + h * 2] *= less, o[n * 4 + h * 2 + 1] *= less;
            }
        }
        ORDERED;
        for (int n = 0; n < 4; n++) weigh(o, p + 4 * n, matrix(vs + 8192 * s) + 128 * n);
        COMMIT;
        LEFT(0);
        if (t % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(empty + s)) : "memory");
    }
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        int row = blockIdx.x * 64 + t / 32 * 16 + t % 32 / 4 + 8 * h;
        for (int n = 0; n < 16; n++) out[row * 64 + n / 2 * 8 + t % 4 * 2 + n % 2] = o[n / 2 * 4 + h * 2 + n % 2] / sum[h];
    }
}

// A convolution, 3 x 3 and 64 channels, as a product of im2col columns, 64 pixels and 32 filters a block; mma.sync
extern "C" __global__ void __launch_bounds__(128)
convolution(const __grid_constant__ Map in, const __grid_constant__ Map filters, float* out, int height, int width, int pixels, int count) {
    __shared__ __align__(1024) __half a[2][64 * 64], b[2][32 * 64];
    __shared__ u64 full[2];
    int t = threadIdx.x, warp = t / 32, lane = t % 32, first = blockIdx.x * 64;
    int n = first / (height * width), y = first / width % height, x = first % width;
    if (t == 0) init(full, 1), init(full + 1, 1), inited();
    __syncthreads();
    auto fetch = [&](int i) {
        int s = i & 1;
        expect(full + s, 8192 + 4096);
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(at(a[s])), "l"(&in), "r"(at(full + s)), "r"(0),
                     "r"(x - 1), "r"(y - 1), "r"(n), "h"((short)(i % 3)), "h"((short)(i / 3)) : "memory");
        tile(b[s], &filters, full + s, i * 64, blockIdx.y * 32);
    };
    float c[4][4] = {};
    if (t == 0) fetch(0), fetch(1);
    for (int i = 0; i < 9; i++) {
        wait(full + (i & 1), i >> 1 & 1);
        for (int k = 0; k < 4; k++) {
            u32 f[4], g[4][2];
            int row = warp * 16 + lane % 16, col = k * 2 + lane / 16;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                         : "r"(at(a[i & 1]) + row * 128 + ((col ^ row & 7) << 4)) : "memory");
            for (int m = 0; m < 2; m++) {
                row = m * 16 + lane % 8 + lane / 16 * 8, col = k * 2 + lane / 8 % 2;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(g[2 * m][0]), "=r"(g[2 * m][1]), "=r"(g[2 * m + 1][0]), "=r"(g[2 * m + 1][1])
                             : "r"(at(b[i & 1]) + row * 128 + ((col ^ row & 7) << 4)) : "memory");
            }
            for (int m = 0; m < 4; m++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(c[m][0]), "+f"(c[m][1]), "+f"(c[m][2]), "+f"(c[m][3])
                             : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(g[m][0]), "r"(g[m][1]));
        }
        __syncthreads();
        if (t == 0 && i + 2 < 9) fetch(i + 2);
    }
    for (int m = 0; m < 16; m++) {
        int pixel = first + warp * 16 + lane / 4 + m % 4 / 2 * 8, filter = blockIdx.y * 32 + m / 4 * 8 + lane % 4 * 2 + m % 2;
        if (pixel < pixels) out[pixel * count + filter] = c[m / 4][m % 4];
    }
}

// Rows go round the four blocks of a cluster by bulk copies, each adds to them; then words go on by st.async, and counts of
// them to all blocks by red.async.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(64) ring(const int4* in, int4* out, u32* counts, int rounds) {
    __shared__ __align__(128) int4 mine[2][64];
    __shared__ __align__(128) int words[64];
    __shared__ u32 bins[16];
    __shared__ u64 full[2], told, counted;
    int t = threadIdx.x;
    u32 next = (rank() + 1) % 4;
    if (t == 0) init(full, 1), init(full + 1, 1), init(&told, 1), init(&counted, 1), inited(), expect(&counted, 4 * 64 * 4);
    if (t < 16) bins[t] = 0;
    mine[0][t] = in[blockIdx.x * 64 + t];
    to_async();
    meet();
    for (int r = 0; r < rounds; r++) {
        int from = r & 1, to = from ^ 1;
        if (t == 0) {
            expect(full + to, 1024);
            asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                         ::"r"(there(mine[to], next)), "r"(at(mine[from])), "r"(there(full + to, next)) : "memory");
        }
        wait(full + to, r >> 1 & 1);
        mine[to][t].x += 1;
        to_async();
        meet();  // all have what the next round overwrites
    }
    if (t == 0) expect(&told, 256);
    int4 last = mine[rounds & 1][t];
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 ::"r"(there(words + t, next)), "r"(last.y * 3), "r"(there(&told, next)) : "memory");
    for (u32 to = 0; to < 4; to++)
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                     ::"r"(there(bins + last.z % 16, to)), "r"(1), "r"(there(&counted, to)) : "memory");
    wait(&told, 0);
    wait(&counted, 0);
    last.w = words[t];
    out[blockIdx.x * 64 + t] = last;
    if (t < 16) counts[blockIdx.x * 16 + t] = bins[t];
}
