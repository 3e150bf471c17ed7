// Memory: widths, spaces, atomics, constants, the stack.
#include <cuda/std/cstdint>
using namespace cuda::std;

// Loads and stores of 8 to 128 bits, signed and unsigned.
extern "C" __global__ void widths(uint8_t* b1, int16_t* b2, int* b4, int2* b8, int4* b16, int* extended, const uint8_t* in) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    b1[t] = in[t] + 1;
    b2[t] = reinterpret_cast<const int16_t*>(in)[t] - 1;
    b4[t] = reinterpret_cast<const int*>(in)[t] * 3;
    int2 two = reinterpret_cast<const int2*>(in)[t];
    b8[t] = make_int2(two.y, two.x);
    int4 four = __ldg(reinterpret_cast<const int4*>(in) + t);
    b16[t] = make_int4(four.w, four.z, four.y, four.x);
    extended[2 * t] = reinterpret_cast<const int8_t*>(in)[t];
    extended[2 * t + 1] = reinterpret_cast<const uint16_t*>(in)[t];
}

// The same within shared memory, static and dynamic.
extern "C" __global__ void shared_widths(int* out, const int4* in) {
    extern __shared__ int4 dynamic[];
    __shared__ int16_t small[64];
    int t = threadIdx.x;
    dynamic[t] = in[t];
    small[t] = in[t].x;
    __syncthreads();
    const int8_t* bytes = reinterpret_cast<const int8_t*>(dynamic);
    const int2* pairs = reinterpret_cast<const int2*>(dynamic);
    int4 turned = dynamic[63 - t];
    int2 pair = pairs[(5 * t) & 127];
    out[5 * t] = bytes[7 * t];
    out[5 * t + 1] = turned.x + turned.y + turned.z + turned.w;
    out[5 * t + 2] = pair.x ^ pair.y;
    out[5 * t + 3] = small[(t + 9) & 63];
    out[5 * t + 4] = reinterpret_cast<const uint8_t*>(dynamic)[1023 - t];
}

__constant__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__constant__ double fractions[4] = {0.5, 0.25, 0.125, 1e-3};
__device__ int counter = 5;
__device__ int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};

// Constants by a known and by a varying index; variables of the module; a parameter as large as an array.
struct Big { int values[20]; double scale; };
extern "C" __global__ void constants(double* out, const Big big) {
    int t = threadIdx.x;
    out[t] = table[3] + table[t & 15] * fractions[t & 3] + big.values[(t * 3) % 20] * big.scale + squares[t & 7] + counter;
}

// An array that is indexed by what is not known: local memory. Pointers to it go to a function.
__device__ __noinline__ void rotate(int* a, int n, int by) {
    for (int k = 0; k < by; ++k) {
        int first = a[0];
        for (int i = 0; i + 1 < n; ++i) a[i] = a[i + 1];
        a[n - 1] = first;
    }
}
extern "C" __global__ void stack(int* out, const int* in) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, a[24];
    for (int i = 0; i < 24; ++i) a[i] = i * i + t;
    for (int i = 0; i < 24; ++i) {
        int j = (in[t] + i * 7) % 24, x = a[i];
        a[i] = a[j];
        a[j] = x;
    }
    rotate(a, 5 + t % 19, t % 4);
    int r = 0;
    for (int i = 0; i < 24; ++i) r = r * 31 + a[i];
    out[t] = r;
    double d[6];
    char bytes[12];
    for (int i = 0; i < 6; ++i) d[i] = i * 0.5 + t;
    for (int i = 0; i < 12; ++i) bytes[i] = i * t;
    out[gridDim.x * blockDim.x + t] = (int)(d[in[t] % 6] * 8) + bytes[in[t] % 12];
}

// One pointer, any space.
__device__ __noinline__ int total(const int* p, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += p[i];
    return sum;
}
extern "C" __global__ void generic(int* out, int* isspace, int* in) {
    __shared__ int room[32];
    int t = threadIdx.x, local[8];
    room[t] = in[t] * 2;
    for (int i = 0; i < 8; ++i) local[i] = in[(t + i) & 31];
    __syncthreads();
    int* p = t % 3 == 0 ? room + (t & 15) : t % 3 == 1 ? local : in + (t & 15);
    out[t] = total(p, 8);
    isspace[t] = __isShared(p) | __isGlobal(p) << 1 | __isLocal(p) << 2;
    __syncthreads();
    *p = t;
    atomicAdd(t & 1 ? room + 31 : in + 31, 1);
    __syncthreads();
    out[32 + t] = local[0] + (t == 31 ? in[31] + room[31] : 0);
}

// Atomics whose end does not depend on their order.
extern "C" __global__ void atomics(unsigned* u, int* s, unsigned long long* l, float* f, double* d, unsigned* seen) {
    __shared__ unsigned su[8];
    __shared__ unsigned long long sl[4];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 8) su[threadIdx.x] = threadIdx.x == 3 ? ~0u : 0;
    if (threadIdx.x < 4) sl[threadIdx.x] = 0;
    __syncthreads();
    unsigned hash = t * 2654435761u;
    atomicAdd(&u[0], hash);
    atomicSub(&u[1], t);
    atomicMin(&u[2], hash);
    atomicMax(&u[3], hash);
    atomicAnd(&u[4], ~(1u << (t & 7)));
    atomicOr(&u[5], 1u << (hash & 31));
    atomicXor(&u[6], hash);
    seen[atomicInc(&u[7], 1000)] = 1;
    atomicDec(&u[8], 50);
    atomicMin(&s[0], (int)hash);
    atomicMax(&s[1], (int)hash);
    atomicAdd(&l[0], (unsigned long long)hash << 20);
    atomicMin(&l[1], (unsigned long long)hash << 3);
    atomicMax(reinterpret_cast<long long*>(&l[2]), (long long)(int)hash << 30);
    atomicXor(&l[3], (unsigned long long)hash << 16);
    atomicAdd(f, (float)(t & 15));
    atomicAdd(d, (double)(t & 31) * 0.5);
    unsigned old = u[9], assumed;
    do {  // a product by compare and swap
        assumed = old;
        old = atomicCAS(&u[9], assumed, assumed * 3 + 7);
    } while (old != assumed);
    unsigned long long wide = l[4], expected;
    do {
        expected = wide;
        wide = atomicCAS(&l[4], expected, expected + 3);
    } while (wide != expected);
    atomicAdd(&su[0], hash);
    atomicMax(&su[1], hash);
    atomicOr(&su[2], 1u << (t & 31));
    atomicMin(&su[3], hash);
    atomicXor(&su[4], hash);
    atomicInc(&su[5], 20);
    atomicAdd(&sl[0], (unsigned long long)hash << 8);
    atomicMax(&sl[1], (unsigned long long)hash << 8);
    float* sf = reinterpret_cast<float*>(&su[6]);
    atomicAdd(sf, 0.25f);
    old = su[7];
    do {
        assumed = old;
        old = atomicCAS(&su[7], assumed, assumed + 2);
    } while (old != assumed);
    __syncthreads();
    if (threadIdx.x < 8) u[16 + 8 * blockIdx.x + threadIdx.x] = su[threadIdx.x];
    if (threadIdx.x < 4) l[8 + 4 * blockIdx.x + threadIdx.x] = sl[threadIdx.x];
}

// What atomics return, each lane at an address of its own, and exchanges as a chain.
extern "C" __global__ void returned(int* memory, int* out) {
    int t = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    __shared__ int room[32];
    room[threadIdx.x] = t * 5;
    __syncthreads();
    out[t] = atomicAdd(&memory[t], t);
    out[n + t] = atomicExch(&memory[t], 7 * t);
    out[2 * n + t] = atomicCAS(&memory[t], t & 1 ? 7 * t : -1, 1000 + t);
    out[3 * n + t] = atomicMax(&memory[t], 600);
    out[4 * n + t] = atomicSub(&room[threadIdx.x], 3) + atomicExch(&room[threadIdx.x], 9) + atomicAnd(&room[threadIdx.x], 8);
    out[5 * n + t] = room[threadIdx.x];
}

// Hints and orders change nothing: cached, streaming, last use, volatile, acquire and release.
extern "C" __global__ void hints(int* out, const int* in) {
    int t = threadIdx.x, n = blockDim.x, a, b;
    volatile int* v = out + 4 * n;
    v[t] = in[t];
    out[t] = __ldcg(in + t) + __ldcs(in + t) + __ldca(in + t) + v[t];
    __stcs(out + n + t, __ldlu(const_cast<int*>(in) + t));
    __stwt(out + 2 * n + t, t);
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(out + 3 * n + t), "r"(in[t] ^ 1) : "memory");
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(a) : "l"(out + 3 * n + t) : "memory");
    asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(b) : "l"(out + 3 * n + t) : "memory");
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + t));
    __threadfence_system();
    out[3 * n + t] = a + b;
}

// Shared memory in strides, 32 to 128 bits wide: patterns with known bank conflicts.
template <int STRIDE> __device__ __forceinline__ int strided(volatile int* room, int lane) {
    room[STRIDE * lane] = lane + STRIDE;
    __syncwarp();
    return room[STRIDE * (31 - lane)];
}
template <typename T> __device__ __forceinline__ T wide(int4* room, int lane, int stride) {
    T* at = reinterpret_cast<T*>(room);
    T value = at[(stride * lane) & (4096 / sizeof(T) - 1)];
    __syncwarp();
    at[(stride * lane) & (4096 / sizeof(T) - 1)] = value;
    __syncwarp();
    return value;
}
extern "C" __global__ void conflicts(int* out) {
    __shared__ int4 memory[264];
    int lane = threadIdx.x, sum = 0;
    volatile int* room = reinterpret_cast<int*>(memory);
    sum += strided<1>(room, lane) + strided<2>(room, lane) + strided<3>(room, lane) + strided<4>(room, lane);
    sum += strided<8>(room, lane) + strided<16>(room, lane) + strided<31>(room, lane) + strided<32>(room, lane) + strided<33>(room, lane);
    sum += room[lane / 2] + room[lane & 3] + room[7];
    __syncwarp();
    for (int i = lane; i < 1024; i += 32) room[i] = i;
    __syncwarp();
    for (int stride = 1; stride <= 8; stride *= 2) {
        int2 two = wide<int2>(memory, lane, stride);
        int4 four = wide<int4>(memory, lane, stride);
        sum += two.x + two.y + four.x + four.y + four.z + four.w;
    }
    int2 pair = reinterpret_cast<int2*>(memory)[lane / 4];
    int4 quad = memory[lane / 8];
    atomicAdd(reinterpret_cast<int*>(memory) + 900 + (lane & 7), lane);
    atomicOr(reinterpret_cast<int*>(memory) + 32 * (lane & 15), 1 << 20);
    __syncwarp();
    out[lane] = sum + pair.x + pair.y + quad.x + quad.y + quad.z + quad.w + room[900 + (lane & 7)] + room[32 * (lane & 15)];
}
