// Loads and stores of every space, width and cache operator, atomics of every type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__constant__ int table[256] = {1, 2, 3};
__constant__ double factors[16] = {0.5, 0.25};
__device__ int counter = 5;
typedef unsigned long long ulonglong;
__device__ float4 state[32];

template <typename T>
__device__ void cached(T* out, const T* in) {
    int i = threadIdx.x;
    out[i] = __ldg(in + i);
    __stwb(out + i + 64, __ldca(in + i + 64)); __stcg(out + i + 128, __ldcg(in + i + 128));
    __stcs(out + i + 192, __ldcs(in + i + 192)); __stwt(out + i + 256, __ldlu(in + i + 256)); out[i + 320] = __ldcv(in + i + 320);
}
#define CACHED(T) extern "C" __global__ void cached_##T(T* out, const T* in) { cached(out, in); }
CACHED(char) CACHED(short) CACHED(int) CACHED(int2) CACHED(int4) CACHED(float) CACHED(float2) CACHED(float4) CACHED(double)
CACHED(double2) CACHED(char4) CACHED(uchar2)

extern "C" __global__ void spaces(char* out, const char* in, int n, int m) {
    __shared__ int words[256];
    __shared__ double2 pairs[32];
    extern __shared__ short dynamic[];
    char local[40];
    for (int i = 0; i < 40; i++) local[i] = in[i * n];
    words[threadIdx.x] = ((const int*)in)[threadIdx.x];
    pairs[threadIdx.x & 31] = ((const double2*)in)[threadIdx.x];
    dynamic[threadIdx.x] = ((const short*)in)[m];
    __syncthreads();
    char* any = n > 3 ? (char*)words : n < -3 ? local : out;  // a generic address
    any[m] = local[m]; ((short*)any)[m + 3] = dynamic[n]; ((int*)any)[m + 4] = words[n + threadIdx.x]; ((double2*)any)[9] = pairs[n];
    out[n] = any[n]; ((int*)out)[7] = ((int*)any)[n] + table[threadIdx.x] + table[n] + table[5] + counter;
    ((double*)out)[n] = factors[n] * factors[3] + ((volatile double*)any)[2];
    ((volatile int*)out)[3] = ((volatile int*)in)[5]; ((volatile int*)words)[n] = ((volatile int*)words)[m];
    state[threadIdx.x & 31] = make_float4(n, m, any[0], table[m & 255]);
    memcpy(out + 64, in + m, 48); memset(out + 128, n, 32);
}

template <typename T>
__device__ void atomics(T* p, T* out, T v) {
    int n = 0;
#define A(value) out[n++ * 64 + threadIdx.x] = (value)
    A(atomicAdd(p, v)); A(atomicExch(p + 1, v)); A(atomicMin(p + 2, v)); A(atomicMax(p + 3, v)); A(atomicAnd(p + 4, v));
    A(atomicOr(p + 5, v)); A(atomicXor(p + 6, v)); A(atomicCAS(p + 7, v, T(3))); A(atomicAdd_system(p + 8, v)); A(atomicCAS_block(p + 9, v, T(5)));
    atomicAdd(p + 10, v); atomicMin(p + 11, v); atomicOr(p + 12, v); atomicMax_block(p + 13, v); atomicXor_system(p + 14, v);
}
#define ATOMICS(T, name)                                                                                     \
    extern "C" __global__ void atomics_##name(T* p, T* out, T v) {                                    \
        __shared__ T room[32];                                                                                \
        room[threadIdx.x & 31] = v; __syncthreads();                                                          \
        atomics<T>(p + threadIdx.x, out, v); atomics<T>(room, out + 4096, v);                                 \
        atomics<T>(v ? room : p, out, v); atomics<T>(p, out, T(1));                                           \
        out[0] = room[5];                                                                                     \
    }
ATOMICS(int, int) ATOMICS(unsigned, unsigned) ATOMICS(ulonglong, ulonglong)

extern "C" __global__ void float_atomics(float* f, double* d, __half2* h, __nv_bfloat162* b, unsigned* u, float4* v) {
    __shared__ float room[8]; __shared__ double wide[8]; __shared__ __half2 halves[8]; __shared__ unsigned words[8];
    room[threadIdx.x & 7] = 0; wide[threadIdx.x & 7] = 0; words[threadIdx.x & 7] = 0; halves[threadIdx.x & 7] = h[9]; __syncthreads();
    f[8] = atomicAdd(f, 1.5f); atomicAdd(f + 1, f[3]); atomicAdd(room + 1, f[4]); f[9] = atomicAdd(room, f[5]); f[10] = atomicExch(f + 3, 2.0f);
    d[8] = atomicAdd(d, 1.5); atomicAdd(d + 1, d[3]); atomicAdd(wide + 1, d[4]); d[9] = atomicAdd(wide, d[5]);
    h[8] = atomicAdd(h, h[3]); atomicAdd(h + 1, h[2]); atomicAdd(halves + 1, h[4]); h[10] = atomicAdd(halves, h[5]); atomicAdd((__half*)h, __half(3));
    b[8] = atomicAdd(b, b[3]); atomicAdd(b + 1, b[2]);
    u[8] = atomicInc(u, 7); u[9] = atomicDec(u + 1, 9); atomicInc(words, 8); u[10] = atomicDec(words + 1, u[3]);
    ((unsigned short*)u)[99] = atomicCAS((unsigned short*)u + 3, (unsigned short)5, (unsigned short)6);
    f[11] = room[0]; d[11] = wide[0]; h[11] = halves[0]; u[11] = words[0];
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
    atomicAdd((float2*)f, make_float2(1, f[2])); v[3] = atomicAdd(v, v[2]);
#endif
}

extern "C" __global__ void warps(int* out, const int* in, long long* wide) {
    int v = in[threadIdx.x], n = 0, all;
#define W(value) out[n++ * 64 + threadIdx.x] = (value)
    W(__shfl_sync(~0u, v, 3)); W(__shfl_sync(~0u, v, v, 8)); W(__shfl_up_sync(~0u, v, 1)); W(__shfl_down_sync(0xffff, v, 2, 16));
    W(__shfl_xor_sync(~0u, v, v)); W(__ballot_sync(~0u, v > 3)); W(__any_sync(~0u, v == 5)); W(__all_sync(v, v != 6));
    W(__match_any_sync(~0u, v)); W(__match_all_sync(~0u, v, &all)); W(all); W(__match_any_sync(~0u, wide[threadIdx.x])); W(__activemask());
    wide[5] = __shfl_xor_sync(~0u, wide[threadIdx.x], 16);
#if __CUDA_ARCH__ >= 800
    W(__reduce_add_sync(~0u, v)); W(__reduce_min_sync(~0u, v)); W(__reduce_max_sync(~0u, (unsigned)v)); W(__reduce_and_sync(~0u, v));
    W(__reduce_or_sync(v, v)); W(__reduce_xor_sync(~0u, v));
#endif
    W(__fns(v, 3, 2)); __syncwarp(); __syncwarp(0xff);
}
