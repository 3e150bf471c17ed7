// What libcu++ and cooperative groups make of barriers, pipelines, locks and clusters: correct kernels, for the detector of races.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
using cuda::thread_scope_block;
#define KERNEL extern "C" __global__ void

KERNEL barrier(int* x) {
    __shared__ cuda::barrier<thread_scope_block> b;
    __shared__ int s[128];
    int t = threadIdx.x;
    if (t == 0) init(&b, 128);
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        s[t] = x[t] + i;
        auto token = b.arrive();
        b.wait(std::move(token));
        int v = s[127 - t];
        b.arrive_and_wait();
        x[t] = v;
    }
}

KERNEL copied(int* out, const int* x) {
    __shared__ cuda::barrier<thread_scope_block> b;
    __shared__ alignas(16) int s[128];
    if (threadIdx.x == 0) init(&b, 128);
    __syncthreads();
    cuda::memcpy_async(cg::this_thread_block(), s, x, cuda::aligned_size_t<16>(512), b);
    b.arrive_and_wait();
    out[threadIdx.x] = s[127 - threadIdx.x];
}

KERNEL pipeline(int* out, const int* x, int steps) {
    constexpr int N = 2;
    __shared__ cuda::pipeline_shared_state<thread_scope_block, N> state;
    __shared__ alignas(16) int s[N][128];
    auto group = cg::this_thread_block();
    auto p = cuda::make_pipeline(group, &state);
    int sum = 0, fetched = 0;
    for (int i = 0; i < steps; i++) {
        for (; fetched < steps && fetched < i + N; fetched++) {
            p.producer_acquire();
            cuda::memcpy_async(group, s[fetched % N], x + fetched * 128, cuda::aligned_size_t<16>(512), p);
            p.producer_commit();
        }
        p.consumer_wait();
        sum += s[i % N][127 - threadIdx.x];
        p.consumer_release();
    }
    out[threadIdx.x] = sum;
}

KERNEL roles(int* out, const int* x, int steps) {
    constexpr int N = 2;
    __shared__ cuda::pipeline_shared_state<thread_scope_block, N> state;
    __shared__ alignas(16) int s[N][64];
    int t = threadIdx.x % 64, sum = 0;
    bool brings = threadIdx.x < 64;
    auto role = brings ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto p = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    for (int i = 0; i < steps; i++) {
        if (brings) {
            p.producer_acquire();
            cuda::memcpy_async(&s[i % N][t], x + i * 64 + t, sizeof(int), p);
            p.producer_commit();
        } else {
            p.consumer_wait();
            sum += s[i % N][63 - t];
            p.consumer_release();
        }
    }
    if (!brings) out[t] = sum;
}

KERNEL prior(int* out, const int* x, int steps) {
    __shared__ alignas(16) int s[2][128];
    auto group = cg::this_thread_block();
    int sum = 0;
    cg::memcpy_async(group, s[0], x, 512);
    for (int i = 0; i < steps; i++) {
        if (i + 1 < steps) {
            cg::memcpy_async(group, s[(i + 1) & 1], x + (i + 1) * 128, 512);
            cg::wait_prior<1>(group);
        } else {
            cg::wait(group);
        }
        sum += s[i & 1][127 - threadIdx.x];
        group.sync();
    }
    out[threadIdx.x] = sum;
}

KERNEL semaphore(int* x) {
    using Lock = cuda::binary_semaphore<thread_scope_block>;
    __shared__ alignas(Lock) char room[sizeof(Lock)];
    __shared__ int s;
    auto& lock = *reinterpret_cast<Lock*>(room);
    if (threadIdx.x == 0) new (room) Lock(1), s = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        lock.acquire();
        s += x[threadIdx.x];
        lock.release();
    }
    __syncthreads();
    x[threadIdx.x] = s;
}

KERNEL latch(int* x) {
    using Latch = cuda::latch<thread_scope_block>;
    __shared__ alignas(Latch) char room[sizeof(Latch)];
    __shared__ int s[128];
    auto& all = *reinterpret_cast<Latch*>(room);
    if (threadIdx.x == 0) new (room) Latch(128);
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];
    all.arrive_and_wait();
    x[threadIdx.x] = s[127 - threadIdx.x];
}

KERNEL flag(int* x) {
    __shared__ int f, s;
    cuda::atomic_ref<int, thread_scope_block> flag(f);
    if (threadIdx.x == 0) f = 0;
    __syncthreads();
    if (threadIdx.x == 0) s = x[127], flag.store(1, cuda::memory_order_release);
    if (threadIdx.x == 64) {
        while (!flag.load(cuda::memory_order_acquire)) {}
        x[1] = s;
    }
}

#if __CUDA_ARCH__ >= 900
KERNEL __cluster_dims__(2, 1, 1) cluster(int* x) {
    __shared__ int s[128];
    auto both = cg::this_cluster();
    int rank = both.block_rank(), t = threadIdx.x;
    s[t] = x[t] + rank;
    both.sync();
    int v = both.map_shared_rank(s, rank ^ 1)[127 - t];
    auto token = both.barrier_arrive();
    both.barrier_wait(std::move(token));
    atomicAdd(both.map_shared_rank(s, 0) + t, v);
    both.sync();
    if (rank == 0) x[t] = s[t];
}
#endif
