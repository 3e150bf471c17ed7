// Kernels whose blocks talk through global memory. ``fault`` (0: none) takes away what orders them: see test_global_races.
#ifdef TOGETHER
#include <cooperative_groups.h>
#endif

enum { NONE, NO_FENCE, SMALL_FENCE, NO_ACQUIRE, SMALL_ACQUIRE, SMALL_ATOMIC, PLAIN };

__device__ void release(int fault) // before a flag is set
{
    if (fault == SMALL_FENCE)
        __threadfence_block();
    else if (fault != NO_FENCE)
        __threadfence();
}

__device__ void acquire(int fault) // behind its being read
{
    if (fault == SMALL_ACQUIRE)
        __threadfence_block();
    else if (fault != NO_ACQUIRE)
        __threadfence();
}

__device__ int add(int *p, int fault)
{
    if (fault == PLAIN)
        return (*p)++;
    return fault == SMALL_ATOMIC ? atomicAdd_block(p, 1) : atomicAdd(p, 1);
}

__device__ void set(int *p, int value, int fault)
{
    if (fault == PLAIN)
        *p = value;
    else
        *(volatile int *)p = value;
}

__device__ int get(int *p)
{
    return *(volatile int *)p;
}

// the last block adds up the sums of all
extern "C" __global__ void last_block(const int *in, int *out, int *part, int *ticket, int fault)
{
    __shared__ int sum;
    __shared__ bool last;
    int t = threadIdx.x;
    if (t == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + t]);
    __syncthreads();
    if (t == 0) {
        part[blockIdx.x] = sum;
        release(fault);
        last = add(ticket, fault) == gridDim.x - 1;
        acquire(fault);
    }
    __syncthreads();
    if (last && t == 0) {
        int all = 0;
        for (int n = 0; n < gridDim.x; n++)
            all += part[n];
        *out = all;
    }
}

// prefix sums in one pass: each block looks back at the sums of those before it
extern "C" __global__ void look_back(const int *in, int *out, int *sums, int *flags, int fault)
{
    __shared__ int before;
    int t = threadIdx.x, b = blockIdx.x, n = blockDim.x, *upto = sums + gridDim.x;
    if (t == 0) {
        int mine = 0, sum = 0;
        for (int i = 0; i < n; i++)
            mine += in[b * n + i];
        sums[b] = mine;
        release(fault);
        set(flags + b, 1, fault);
        for (int at = b - 1; at >= 0; at--) {
            int state;
            while ((state = get(flags + at)) == 0)
                ;
            acquire(fault);
            sum += state == 2 ? upto[at] : sums[at];
            if (state == 2)
                break;
        }
        upto[b] = sum + mine;
        release(fault);
        set(flags + b, 2, fault);
        before = sum;
    }
    __syncthreads();
    int all = before;
    for (int i = 0; i <= t; i++)
        all += in[b * n + i];
    out[b * n + t] = all;
}

// stream-K: all threads of a block leave their part of a tile; the block before waits for it and adds it
extern "C" __global__ void fix_up(const int *in, int *out, int *part, int *flags, int fault)
{
    int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;
    int mine = in[b * n + t];
    if (b & 1) {
        part[b * n + t] = mine;
        release(fault);
        __syncthreads();
        if (t == 0)
            set(flags + b, 1, fault);
        return;
    }
    if (t == 0) {
        while (get(flags + b + 1) == 0)
            ;
        acquire(fault);
    }
    __syncthreads();
    out[b * n + t] = mine + part[(b + 1) * n + t];
}

#ifdef TOGETHER
// each thread reads its neighbour in another block, twice
extern "C" __global__ void together(int *out, int fault)
{
    auto grid = cooperative_groups::this_grid();
    auto block = cooperative_groups::this_thread_block();
    int all = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x, other = (t + blockDim.x) % all;
    for (int round = 0; round < 2; round++) {
        out[t] += 1;
        fault ? block.sync() : grid.sync();
        int its = out[other];
        fault ? block.sync() : grid.sync();
        out[t] += its;
    }
}
#endif

// each warp adds to what a lock protects
extern "C" __global__ void locked(int *lock, int *sum, int fault)
{
    if (threadIdx.x % 32)
        return;
    while ((fault == SMALL_ATOMIC ? atomicCAS_block(lock, 0, 1) : atomicCAS(lock, 0, 1)) != 0)
        ;
    acquire(fault);
    *sum += threadIdx.x / 32 + 1;
    release(fault);
    if (fault == PLAIN)
        *lock = 0;
    else
        atomicExch(lock, 0);
}

extern "C" __global__ void histogram(const int *in, int *counts, int fault)
{
    add(counts + (in[blockIdx.x * blockDim.x + threadIdx.x] & 7), fault);
}

#if __CUDA_ARCH__ >= 900
// reads what the launch before may still be writing
extern "C" __global__ void dependent(const int *in, int *out, int fault)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (!fault)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    out[t] = in[(t + 1) % (gridDim.x * blockDim.x)] + 1;
    asm volatile("griddepcontrol.launch_dependents;");
}

// one block copies 128 bytes out in bulk, and the other reads them
extern "C" __global__ void bulk_out(int *out, int *room, int *flag, int fault)
{
    __shared__ __align__(128) int shared[32];
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        shared[t] = t;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (t == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128; cp.async.bulk.commit_group;" ::"l"(room),
                         "r"((unsigned)__cvta_generic_to_shared(shared)) : "memory");
            if (fault)
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            else
                asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flag) : "memory");
        }
    } else {
        int there = 0;
        while (!there)
            asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
        out[t] = room[t];
    }
}

// one block writes 128 bytes, and the other copies them in, in bulk
extern "C" __global__ void bulk_in(int *out, int *room, int *flag, int fault)
{
    __shared__ __align__(128) int shared[32];
    __shared__ unsigned long long bar;
    unsigned at = __cvta_generic_to_shared(&bar);
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        room[t] = t;
        if (fault == 2)
            asm volatile("fence.proxy.async.global;" ::: "memory");
        __syncwarp();
        __threadfence();
        if (t == 0)
            set(flag, 1, NONE);
    } else {
        if (t == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
            while (!get(flag))
                ;
            __threadfence();
            if (fault == 0)
                asm volatile("fence.proxy.async;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(at) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(
                             (unsigned)__cvta_generic_to_shared(shared)), "l"(room), "r"(at) : "memory");
        }
        __syncwarp();
        unsigned over = 0;
        while (!over)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(at) : "memory");
        out[t] = shared[t];
    }
}
#endif
