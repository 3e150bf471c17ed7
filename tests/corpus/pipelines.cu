// Asynchronous copies, barriers in shared memory, libcu++ atomics of every order and scope.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

extern "C" __global__ void primitives(float4* out, const float4* in, int n) {
    __shared__ float4 room[512];
    for (int i = 0; i < n; i++) {
        __pipeline_memcpy_async(&room[threadIdx.x], &in[threadIdx.x + i * 128], 16);
        __pipeline_memcpy_async((char*)&room[threadIdx.x + 128], (const char*)&in[i], 8, 3);
        __pipeline_memcpy_async((char*)&room[threadIdx.x + 256], (const char*)&in[i + 7], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        out[i * 128 + threadIdx.x] = room[(threadIdx.x + n) & 511];
    }
}

extern "C" __global__ void barriers(int* out, const int* in, int n) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int room[256];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(room + threadIdx.x, in + threadIdx.x, 4, bar);
    auto token = bar.arrive();
    out[0] = n;
    bar.wait(static_cast<decltype(token)&&>(token));
    out[threadIdx.x] = room[n];
    bar.arrive_and_wait();
    bar.arrive_and_drop();
}

extern "C" __global__ void stages(int* out, const int* in, int n) {
    __shared__ int room[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto group = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(group, &state);
    for (int i = 0; i < n; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(group, room[i & 1], in + i * 128, cuda::aligned_size_t<16>(512), pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        out[i * 128 + threadIdx.x] = room[i & 1][threadIdx.x ^ 1];
        pipe.consumer_release();
    }
}

template <typename T, cuda::thread_scope S>
__device__ void orders(T* p, T* out, T v) {
    cuda::atomic_ref<T, S> r(*p);
    out[0] = r.load(cuda::memory_order_relaxed) + r.load(cuda::memory_order_acquire) + r.load();
    r.store(v, cuda::memory_order_relaxed); r.store(v, cuda::memory_order_release); r.store(v);
    out[1] = r.fetch_add(v, cuda::memory_order_relaxed) + r.fetch_add(v, cuda::memory_order_acq_rel) + r.fetch_or(v);
    out[2] = r.exchange(v, cuda::memory_order_acquire); r.fetch_and(v, cuda::memory_order_release); r.fetch_max(v);
    r.compare_exchange_strong(v, 5, cuda::memory_order_acq_rel, cuda::memory_order_relaxed); out[3] = v;
    cuda::atomic_thread_fence(cuda::memory_order_acquire, S); cuda::atomic_thread_fence(cuda::memory_order_seq_cst, S);
}
extern "C" __global__ void scopes(int* p, long long* q, int* out, long long* wide, int v) {
    __shared__ int room[4];
    room[threadIdx.x & 3] = v;
    orders<int, cuda::thread_scope_block>(p, out, v); orders<int, cuda::thread_scope_device>(p + 1, out + 4, v);
    orders<int, cuda::thread_scope_system>(p + 2, out + 8, v); orders<long long, cuda::thread_scope_device>(q, wide, v);
    orders<long long, cuda::thread_scope_system>(q + 1, wide + 4, v); orders<int, cuda::thread_scope_block>(room, out + 12, v);
    out[99] = room[1];
}
