// Copies behind the back of the threads: cp.async (sm_80), bulk copies and memory barriers (sm_90).
#include <cuda/std/cstdint>
using namespace cuda::std;

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Two stages of cp.async, 16, 8 and 4 bytes; bytes that are not read are zeros.
extern "C" __global__ void cp_async(int* out, const int* in, int tiles) {
    __shared__ __align__(16) int room[2][256];
    int t = threadIdx.x, sum = 0;
    auto fetch = [&](int tile) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&room[tile & 1][4 * t])), "l"(in + 256 * tile + 4 * t));
        asm volatile("cp.async.commit_group;");
    };
    fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) {
            fetch(tile + 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        __syncthreads();
        sum = sum * 3 + room[tile & 1][(t * 37) & 255];
        __syncthreads();
    }
    out[t] = sum;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&room[0][t])), "l"(in + 64 - t));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(&room[1][2 * t])), "l"(in + 2 * t), "r"(t & 1 ? 8 : t & 2 ? 4 : 0));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[64 + t] = room[0][63 - t];
    out[128 + t] = room[1][t];
    out[192 + t] = room[1][64 + t];
}

// A barrier in shared memory: arrive, then test the phase until it is over. Three rounds.
extern "C" __global__ void mbarrier(int* out) {
    __shared__ uint64_t bar;
    __shared__ int room[64];
    int t = threadIdx.x;
    uint32_t at = shared_address(&bar);
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    int v = t;
    for (int round = 0; round < 3; ++round) {
        room[t] = v;
        uint64_t token;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
        int over = 0;
        while (!over)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(at), "l"(token) : "memory");
        v = room[(t + 1) & 63] + room[(t + 17) & 63];
        __syncthreads();
    }
    out[t] = v;
    if (t == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
}

#if __CUDA_ARCH__ >= 900
// One thread starts a bulk copy, all wait for its bytes; then back to global memory the same way.
extern "C" __global__ void bulk(int* out, const int* in) {
    __shared__ __align__(128) int room[256];
    __shared__ uint64_t bar;
    int t = threadIdx.x;
    uint32_t at = shared_address(&bar);
    if (t == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    for (int round = 0; round < 2; ++round) {
        if (t == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(at) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                         ::"r"(shared_address(room)), "l"(in + 256 * (2 * blockIdx.x + round)), "r"(at) : "memory");
        }
        uint32_t over = 0;
        while (!over)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(at), "r"(round & 1) : "memory");
        int a = room[t], b = room[255 - t];
        __syncthreads();
        room[t] = a * 2 + b;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (t == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;"
                         ::"l"(out + 256 * (2 * blockIdx.x + round)), "r"(shared_address(room)) : "memory");
            asm volatile("cp.async.bulk.commit_group;");
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        __syncthreads();
    }
    if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#endif
