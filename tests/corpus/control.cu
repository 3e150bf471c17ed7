// Control flow: divergence, switch tables, recursion, pointers to functions, virtual calls, printf, assert, malloc.
#define assert(x) ((x) ? (void)0 : __assertfail(#x, "control.cu", __LINE__, "kernel", 1))
extern "C" __device__ __attribute__((noreturn)) void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);

extern "C" __global__ void dense_switch(int* out, const int* in) {
    int v = in[threadIdx.x], r = 0;
    switch (v) {
        case 0: r = __popc(v + 3); break;
        case 1: r = out[77]; break;
        case 2: out[v] = 9; r = 4; break;
        case 3: r = v * in[9]; break;
        case 4: __threadfence(); r = 8; break;
        case 5: r = atomicAdd(out + 3, 2); break;
        case 6: r = clock(); break;
        case 7: __nanosleep(20); break;
        case 9: r = __ffs(in[3]); break;
        case 10: r = __brev(in[4]); break;
        default: r = -1;
    }
    out[threadIdx.x] = r;
}

extern "C" __global__ void loops(int* out, const int* in, int n, int m) {
    int sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (in[i] == 7) continue;
        if (in[i] < 0) break;
        for (int j = 0; j < m; j++) {
            int v = in[i * m + j];
            if (v == 3) goto done;
            while (v > 10) { v = in[v]; if (v == 99) return; }
            sum += v;
        }
        __syncwarp();
    }
done:
    if (sum > 100) { out[threadIdx.x] = sum; __syncthreads(); out[1] = __syncthreads_count(sum & 1); }
    else if (__any_sync(__activemask(), sum == 3)) __trap();
    do { sum = in[sum & 255]; } while (__all_sync(0xffffffff, sum != 5));
    out[threadIdx.x + 64] = sum + __syncthreads_and(sum) + __syncthreads_or(n);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ int add_them(int a, int b) { return a + b; }
__device__ __noinline__ int ring(int a, int b) { int m[16]; for (int i = 0; i < 16; i++) m[i] = a * i; return m[b & 15]; }
__device__ __noinline__ float4 wide(float4 a, double d, char c) { a.x += d; a.y *= c; return a; }
typedef int (*operation)(int, int);
__device__ operation operations[] = {add_them, ring};

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual void grow(float by) {}
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
    __device__ void grow(float by) override { side += by; }
};
struct Circle : Shape {
    float radius;
    __device__ explicit Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.14159f * radius * radius; }
};

extern "C" __global__ void calls(int* out, operation given, int n) {
    out[threadIdx.x] = fibonacci(n & 15);
    out[64 + threadIdx.x] = operations[threadIdx.x & 1](n, threadIdx.x);
    if (given) out[128 + threadIdx.x] = given(threadIdx.x, n);
    float4 f = wide(make_float4(n, 1, 2, 3), n, n);
    out[192 + threadIdx.x] = f.x + f.y;
}

extern "C" __global__ void objects(float* out, int kind) {
    Shape* shape = kind ? (Shape*)new Square(kind) : (Shape*)new Circle(2);
    shape->grow(1.5f);
    out[threadIdx.x] = shape->area();
    delete shape;
    int* heap = (int*)malloc(kind);
    if (heap) { heap[0] = kind; free(heap); }
    assert(kind != 7);
    printf("thread %d of %f\n", threadIdx.x, out[0]);
}

extern "C" __global__ __launch_bounds__(128, 16) void spills(float* out, const float* in, int k) {
    float v[96];
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = in[i * 128 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; i++) out[i * 128 + threadIdx.x] = v[95 - i] * v[i] + __shfl_sync(~0u, v[(i * 7) % 96], k);
}

extern "C" __global__ void stack(int* out, const int* in, int n) {
    int* room;
    asm volatile("alloca.u64 %0, %1;" : "=l"(room) : "l"((long long)n * 4));  // NVRTC has no alloca()
    short table[64];
    for (int i = 0; i < n; i++) { room[i] = in[i]; table[i & 63] = in[i + 1]; }
    out[threadIdx.x] = room[threadIdx.x % n] + table[threadIdx.x & 63];
}

extern "C" __global__ void bits(int* out, const int* in, int mask, volatile int* flag) {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 24; i++) if (in[threadIdx.x] >> i & 1) sum += in[i * mask]; else out[i] = sum;
    while (*flag != sum) { if (mask & 1) *flag = 5; }  // waits for another thread
    out[threadIdx.x] = sum;
}

extern "C" __global__ void specials(unsigned* out) {
    unsigned v = threadIdx.x + threadIdx.y * 3 + threadIdx.z * 5 + blockIdx.x * 7 + blockIdx.y * 11 + blockIdx.z * 13;
    v += blockDim.x * blockDim.y * blockDim.z + gridDim.x * gridDim.y * gridDim.z + warpSize;
    unsigned lane, sm, warp;
    asm volatile("mov.u32 %0, %%laneid; mov.u32 %1, %%smid; mov.u32 %2, %%warpid;" : "=r"(lane), "=r"(sm), "=r"(warp));
    long long t = clock64();
    out[v] = lane * sm + warp + clock() + (unsigned)t;
    __threadfence_block(); __threadfence_system();
    if (__isGlobal(out) && !__isShared(out) || __isLocal(out) || __isConstant(out)) asm volatile("pmevent 1; brkpt;");
}
