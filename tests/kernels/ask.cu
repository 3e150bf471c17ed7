// What tests/gpu/ask.py asks a card of; each kernel runs on the CPU device, too, or is refused there.
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
struct alignas(64) Map { u64 opaque[16]; };
#define KERNEL extern "C" __global__ void

__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ u32 place() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- textures: one coordinate moves, the others stay
KERNEL near_1d(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex1D<float>(t, x[place()]); }
KERNEL near_x(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex2D<float>(t, x[place()], .5f); }
KERNEL near_y(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex2D<float>(t, .5f, x[place()]); }
KERNEL near_z(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex3D<float>(t, .5f, .5f, x[place()]); }
KERNEL near_volume_x(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex3D<float>(t, x[place()], .5f, .5f); }
KERNEL near_volume_y(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex3D<float>(t, .5f, x[place()], .5f); }
KERNEL near_layer(cudaTextureObject_t t, const float* x, float* out, int n) { if (place() < n) out[place()] = tex1DLayered<float>(t, x[place()], 1); }
KERNEL cube(cudaTextureObject_t t, const float* p, float* out, int n) { int k = place(); if (k < n) out[k] = texCubemap<float>(t, p[k], p[k + n], p[k + 2 * n]); }
KERNEL tex_half(cudaTextureObject_t t, const float* p, u16* out, int n) {
    int k = place(); if (k >= n) return;
    asm volatile("tex.2d.v4.f16.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];" : "=h"(out[4 * k]), "=h"(out[4 * k + 1]),
                 "=h"(out[4 * k + 2]), "=h"(out[4 * k + 3]) : "l"(t), "f"(p[k]), "f"(p[k + n])); }
KERNEL tex_halves(cudaTextureObject_t t, const float* p, u32* out, int n) {
    int k = place(); if (k >= n) return;
    asm volatile("tex.2d.v2.f16x2.f32 {%0, %1}, [%2, {%3, %4}];" : "=r"(out[2 * k]), "=r"(out[2 * k + 1])
                 : "l"(t), "f"(p[k]), "f"(p[k + n])); }
KERNEL formatted(cudaSurfaceObject_t s, const u32* v) {
    asm volatile("sust.p.1d.v4.b32.trap [%0, {%1}], {%2, %3, %4, %5};" :: "l"(s), "r"(place()), "r"(v[4 * place()]),
                 "r"(v[4 * place() + 1]), "r"(v[4 * place() + 2]), "r"(v[4 * place() + 3])); }

// ---- arithmetic
KERNEL out_of_bounds(const u16* a, const u16* b, const u16* c, u16* d, int n) { // d: three for each of a
    int k = place(); if (k >= n) return;
    u32 x = a[k], y = *b, z = *c, r;
#define OOB(at, first, second, third) asm("fma.rn.oob.relu.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(first), "r"(second), "r"(third)); d[3 * k + at] = r;
    OOB(0, x, y, z) OOB(1, y, x, z) OOB(2, y, z, x) }
KERNEL turn(const u32* in, u32* out) { u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(in[place()])); out[place()] = r; }
KERNEL elect(const u32* masks, u32* out) { // the lanes of a mask elect one
    u32 mask = masks[place() / 32], leader = 77, is = 0;
    if (mask >> threadIdx.x % 32 & 1)
        asm volatile("{.reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p;}" : "=r"(leader), "=r"(is) : "r"(mask));
    out[2 * place()] = leader, out[2 * place() + 1] = is; }

// ---- asynchronous
#define ZFILL(size) KERNEL zfill##size(const u32* in, u32* out) { \
    __shared__ __align__(16) u32 tile[32 * 4]; u32 n = place() % (size + 1); \
    for (int k = 0; k < 4; k++) tile[4 * threadIdx.x + k] = 0xABABABAB; \
    asm volatile("cp.async.ca.shared.global [%0], [%1], " #size ", %2;" :: "r"(shared_address(tile + 4 * threadIdx.x)), "l"(in + 4 * place()), "r"(n)); \
    asm volatile("cp.async.wait_all;" ::: "memory"); \
    for (int k = 0; k < 4; k++) out[4 * place() + k] = tile[4 * threadIdx.x + k]; }
ZFILL(4) ZFILL(8) ZFILL(16)

#define BULK(name, what) KERNEL bulk_##name(void* out, const u32* in) { \
    __shared__ __align__(128) u32 tile[1024]; \
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) tile[k] = in[k]; \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads(); if (threadIdx.x) return; \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group" what " [%0], [%1], 4096;" :: "l"(out), "r"(shared_address(tile))); \
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); }
BULK(add_f16, ".add.noftz.f16") BULK(min_f16, ".min.f16") BULK(max_f16, ".max.f16")
BULK(add_bf16, ".add.noftz.bf16") BULK(min_bf16, ".min.bf16") BULK(max_bf16, ".max.bf16")
BULK(add_f32, ".add.f32") BULK(add_f64, ".add.f64")
BULK(inc_u32, ".inc.u32") BULK(dec_u32, ".dec.u32") BULK(min_s32, ".min.s32") BULK(max_s64, ".max.s64") BULK(add_u64, ".add.u64")

// to the shared memory of the other block of a cluster
#define FAR(name, what) KERNEL far_##name(u32* out, const u32* in) { \
    __shared__ __align__(128) u32 tile[1024]; __shared__ __align__(128) u32 mine[1024]; __shared__ u64 bar; u32 rank, far, its; \
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); \
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) tile[k] = in[k], mine[k] = in[k + 1024]; \
    if (threadIdx.x == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(shared_address(&bar)) : "memory"); \
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(shared_address(&bar)), "r"(rank ? 4096 : 0) : "memory"); } \
    asm volatile("fence.proxy.async;" ::: "memory"); \
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); \
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(far) : "r"(shared_address(mine))); \
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(its) : "r"(shared_address(&bar))); \
    if (rank == 0 && threadIdx.x == 0) asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes" what \
        " [%0], [%1], 4096, [%2];" :: "r"(far), "r"(shared_address(tile)), "r"(its) : "memory"); \
    u32 done = 0; while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(shared_address(&bar)) : "memory"); \
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) out[1024 * rank + k] = mine[k]; \
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
FAR(and_b32, ".and.b32") FAR(or_b32, ".or.b32") FAR(xor_b32, ".xor.b32") FAR(add_u32, ".add.u32") FAR(inc_u32, ".inc.u32") FAR(dec_u32, ".dec.u32")
FAR(min_u32, ".min.u32") FAR(max_u32, ".max.u32") FAR(min_s32, ".min.s32") FAR(max_s32, ".max.s32") FAR(add_u64, ".add.u64")

#define RED(name, T, what, c) KERNEL red_##name(T* out, const T* in) { \
    __shared__ __align__(128) T mine[256]; __shared__ u64 bar; u32 rank, far, its; \
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); mine[threadIdx.x] = in[threadIdx.x + 256]; \
    if (threadIdx.x == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(shared_address(&bar)) : "memory"); \
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(shared_address(&bar)), "r"(rank ? 256 * (u32)sizeof(T) : 0) : "memory"); } \
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); \
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(far) : "r"(shared_address(mine + threadIdx.x))); \
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(its) : "r"(shared_address(&bar))); \
    if (rank == 0) asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes" what " [%0], %1, [%2];" \
        :: "r"(far), c(in[threadIdx.x]), "r"(its) : "memory"); \
    u32 done = 0; while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(shared_address(&bar)) : "memory"); \
    out[256 * rank + threadIdx.x] = mine[threadIdx.x]; \
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
RED(inc_u32, u32, ".inc.u32", "r") RED(dec_u32, u32, ".dec.u32", "r") RED(min_s32, u32, ".min.s32", "r") RED(max_u32, u32, ".max.u32", "r")
RED(add_u32, u32, ".add.u32", "r") RED(and_b32, u32, ".and.b32", "r") RED(or_b32, u32, ".or.b32", "r") RED(xor_b32, u32, ".xor.b32", "r")
RED(add_u64, u64, ".add.u64", "l")

// ---- reductions through tensor maps, of any bits
#define TILE(name, what) KERNEL tile_##name(const __grid_constant__ Map map, const u32* in) { \
    __shared__ __align__(128) u32 tile[1024]; \
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) tile[k] = in[k]; \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads(); if (threadIdx.x) return; \
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta" what ".tile.bulk_group [%0, {%1, %1}], [%2];" :: "l"(&map), "r"(0), "r"(shared_address(tile))); \
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); }
TILE(add, ".add") TILE(min, ".min") TILE(max, ".max") TILE(inc, ".inc") TILE(dec, ".dec")

// ---- a program for an mbarrier: each step is an operation and a number; out: what it gives
KERNEL steps(const int* program, u32* out, int n) {
    __shared__ u64 bar; u32 b = shared_address(&bar); u64 state = 0;
    program += 2 * n * blockIdx.x, out += n * blockIdx.x;
    for (int k = 0; k < n; k++) {
        int what = program[2 * k], with = program[2 * k + 1]; u32 r = 0;
        if (what == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(with) : "memory");
        if (what == 1) asm volatile("mbarrier.arrive.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(with) : "memory");
        if (what == 2) asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" :: "r"(b), "r"(with) : "memory");
        if (what == 3) asm volatile("mbarrier.complete_tx.relaxed.cta.shared.b64 [%0], %1;" :: "r"(b), "r"(with) : "memory");
        if (what == 4) asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(with) : "memory");
        if (what == 5) asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(with) : "memory");
        if (what == 6) asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(r) : "r"(b), "r"(with) : "memory");
        if (what == 7) asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(r) : "r"(b), "l"(state) : "memory");
        if (what == 8) asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(r) : "l"(state));
        if (what == 9) asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(with) : "memory");
        out[k] = r;
    } }
