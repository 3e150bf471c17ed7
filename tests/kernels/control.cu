// Control flow: switches, calls, recursion, divergence, locks, barriers.

// Dense cases with different work: a jump table (BRX). Neighbouring lanes take different ways.
extern "C" __global__ void switches(int* out, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = in[i], r = i;
    switch (v) {
        case 0: r = v + 17; break;
        case 1: r *= 3; break;
        case 2: r = __popc(i) + 5;  // falls through
        case 3: r ^= 0x55; break;
        case 4: for (int j = 0; j < (i & 7); ++j) r = r * 5 + j; break;
        case 5: r = -r; break;
        case 6: r = __clz(i); break;
        case 7: return;
        case 8: r = i / 3; break;
        case 9: r = __brev(i); break;
        case 10: r = i << (i & 3); break;
        case 11: r = __ffs(i); break;
        default: r = -1;
    }
    out[i] = r;
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }

// Each lane recurses to a depth of its own.
extern "C" __global__ void recursion(int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, r = 0;
    if (i % 3 == 0) r = fibonacci(i % 9);
    else if (i % 3 == 1) r = ackermann(i % 3, i % 5);
    else r = 100 + even(i % 11);
    out[i] = r;
}

__device__ __noinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __noinline__ float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ __noinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __noinline__ float apply_twice(float (*f)(float, float), float a, float b) { return f(f(a, b), b); }
__device__ float (*const operations[])(float, float) = {add, subtract, times};

struct Shape {
    int size;
    __device__ Shape(int size) : size(size) {}
    __device__ virtual int area() const = 0;
};
struct Square : Shape {
    __device__ Square(int size) : Shape(size) {}
    __device__ __noinline__ int area() const override { return size * size; }
};
struct Strip : Shape {
    __device__ Strip(int size) : Shape(size) {}
    __device__ __noinline__ int area() const override { return 10 * size; }
};

// Function pointers from a table and virtual functions: every lane may call another function.
extern "C" __global__ void indirect(float* out, int* areas, const int* which, const float* a, const float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float (*f)(float, float) = operations[which[i] % 3];
    float r = f(a[i], b[i]);
    if (which[i] & 4) r = apply_twice(f, r, b[i]);
    out[i] = r;
    Square square(i);
    Strip strip(i);
    const Shape* shape = which[i] & 1 ? static_cast<const Shape*>(&square) : &strip;
    areas[i] = shape->area();
}

// Nested loops and conditions, break, continue and early return, different in every lane.
extern "C" __global__ void divergence(int* out, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], r = 0;
    for (int a = 0; a < (x & 15); ++a) {
        if ((a ^ x) % 5 == 0) continue;
        for (int b = a;; ++b) {
            if (b > 12 || (b * x) % 7 == 3) break;
            if ((b & x) == 9) {
                r += 1000;
                if (r > 5000) {
                    out[i] = -r;
                    return;
                }
            } else if (b & 1) {
                r += b;
            } else {
                int y = x;
                do {
                    y = y & 1 ? 3 * y + 1 : y >> 1;
                    ++r;
                } while (y > 40 && r % 11);
            }
        }
        if (x & 256) {
            if (x & 512) r ^= a;
            else r += 2 * a;
        } else {
            while (r % 3) ++r;
        }
    }
    out[i] = r;
}

// Steps of Collatz's sequence: warps whose lanes leave a loop one after the other.
extern "C" __global__ void collatz(int* steps, const unsigned* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = in[i];
    int count = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x / 2;
        ++count;
    }
    steps[i] = count;
}

// Halves of warps that work apart and talk to each other: __syncwarp with a mask orders their shared memory.
extern "C" __global__ void subwarps(int* out) {
    __shared__ volatile int room[64];
    int t = threadIdx.x, lane = t & 31;
    room[t] = 3 * t;
    __syncwarp();
    if (lane < 12) {
        int v = room[(t & 32) + (lane + 1) % 12];
        __syncwarp(0x00000fff);
        room[t] = v + 1;
        __syncwarp(0x00000fff);
        out[t] = room[(t & 32) + (lane + 5) % 12];
    } else if (lane & 1) {
        unsigned mask = 0xaaaaa000u;
        int v = __shfl_sync(mask, lane * lane, 13);
        out[t] = v + __popc(__ballot_sync(mask, lane > 20));
    } else {
        unsigned mask = __activemask();
        for (int k = 0; k < lane; ++k) room[t] = room[t] + k;
        out[t] = room[t] + (mask != 0);
    }
    __syncwarp();
    out[t + 64] = room[t ^ 1];
}

// A lock that every thread of a warp takes in turn: it ends only where threads of a warp have program counters of their own.
extern "C" __global__ void warp_lock(int* counter, int* lock) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int*)counter = *(volatile int*)counter * 3 % 1001 + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// The same written the way that deadlocks without independent threads: the spin is a loop of its own.
extern "C" __global__ void spin_lock(int* counter, int* lock, int* order) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    int turn = *(volatile int*)counter;
    *(volatile int*)counter = turn + 1;
    __threadfence();
    atomicExch(lock, 0);
    order[turn] = 1;
}

// Lane 0 waits for lane 31 of its own warp, and block 0 for the last block.
extern "C" __global__ void handshake(int* out, int* flags) {
    volatile int* seen = flags;
    int lane = threadIdx.x & 31, last = gridDim.x - 1;
    __shared__ volatile int local;
    if (threadIdx.x == 0) local = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        while (local == 0) {}
        out[blockIdx.x] = local + 1;
    } else if (threadIdx.x == 31) {
        local = 41 + blockIdx.x;
    }
    if (blockIdx.x == 0 && lane == 5) {
        while (seen[0] == 0) {}
        out[gridDim.x] = seen[0];
    }
    if (blockIdx.x == last && threadIdx.x == 7) {
        __threadfence();
        seen[0] = 77;
    }
}

// Named barriers: producers arrive, consumers wait; and the whole block counts by bar.red.
extern "C" __global__ void barriers(int* out) {
    __shared__ int room[128];
    int t = threadIdx.x, w = t >> 5;  // 4 warps: 0 and 1 produce, 2 and 3 consume
    if (w < 2) {
        for (int k = 0; k < 3; ++k) {
            room[t + 64 * (k & 1)] = 100 * k + t;
            __threadfence_block();
            asm volatile("bar.arrive 1, 128;" ::: "memory");
            asm volatile("bar.sync 2, 128;" ::: "memory");
        }
    } else {
        for (int k = 0; k < 3; ++k) {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[64 * k + t - 64] = room[t - 64 + 64 * (k & 1)] + room[(t - 64) / 2 + 64 * (k & 1)];
            asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
    if (w == 1 || w == 2) asm volatile("bar.sync 3, 64;" ::: "memory");
    int odd = __syncthreads_count(t & 1), all = __syncthreads_and(t < 128), any = __syncthreads_or(t == 200);
    out[192 + t] = 1000 * odd + 10 * (all != 0) + (any != 0);
}

// Loops without a block-wide exit: warps leave early, the rest still meet at the barrier.
extern "C" __global__ void early_exit(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (threadIdx.x >= 96) return;  // a whole warp
    if (threadIdx.x % 5 == 4) {     // lanes of every warp
        out[threadIdx.x] = -1;
        return;
    }
    atomicAdd(&sum, threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = sum;
}

// Every thread writes where it is: grids and blocks of one to three dimensions.
extern "C" __global__ void places(unsigned* out) {
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned lane, size;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, WARP_SZ;" : "=r"(size));
    unsigned* mine = out + 4 * (block * threads + thread);
    mine[0] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
    mine[1] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16;
    mine[2] = lane | size << 8;
    mine[3] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
}

// Special registers and clocks. What a device may choose is only checked for sense.
extern "C" __global__ void registers(unsigned* out, int* sane) {
    extern __shared__ int dynamic[];
    unsigned eq, le, lt, ge, gt, dyn, total, warpid, nwarpid, smid, nsmid;
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dyn));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warpid));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nwarpid));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsmid));
    int t = threadIdx.x;
    dynamic[t] = 3 * t;
    __syncthreads();
    long long from = clock64();
    clock_t start = clock();
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    int work = dynamic[t];
    for (int i = 0; i < 20; ++i) work = work * 7 + dynamic[(work + i) & 63];
    clock_t stop = clock();
    long long to = clock64();
    out[6 * t] = eq;
    out[6 * t + 1] = le;
    out[6 * t + 2] = lt;
    out[6 * t + 3] = ge;
    out[6 * t + 4] = gt;
    out[6 * t + 5] = dyn;
    sane[2 * t] = work;
    sane[2 * t + 1] = (to > from) | (unsigned(stop - start) < 1u << 30) << 1 | (total >= dyn) << 2 | (warpid < nwarpid) << 3 |
                      (smid < nsmid) << 4;
}
