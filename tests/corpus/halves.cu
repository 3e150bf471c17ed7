// Packed and scalar half and bfloat16 arithmetic, comparison and functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define OUT(value) out[n++ * 64 + threadIdx.x] = (value)
#define OUT1(value) single[n++ * 64 + threadIdx.x] = (value)

template <typename T2, typename T>
__device__ void halves(T2* out, T* single, const T2* in, T2 s) {
    int n = 0;
    T2 a = in[threadIdx.x], b = in[threadIdx.x + 64], c = in[threadIdx.x + 128];
    OUT(__hadd2(a, b)); OUT(__hsub2(a, s)); OUT(__hmul2(a, b)); OUT(__hfma2(a, b, c)); OUT(__hneg2(a)); OUT(__habs2(a));
    OUT(__hadd2_sat(a, b)); OUT(__hmul2_sat(a, s)); OUT(__hfma2_sat(a, b, c)); OUT(__hfma2_relu(a, b, c));
    OUT(__heq2(a, b)); OUT(__hne2(a, b)); OUT(__hle2(a, s)); OUT(__hgt2(a, b)); OUT(__hltu2(a, b)); OUT(__hgeu2(a, b));
    OUT(__hmax2(a, b)); OUT(__hmin2(a, s)); OUT(__hmax2_nan(a, b)); OUT(__hmin2_nan(a, b)); OUT(__hisnan2(a));
    OUT(h2sqrt(a)); OUT(h2rsqrt(a)); OUT(h2rcp(a)); OUT(h2exp(a)); OUT(h2exp2(a)); OUT(h2log(a)); OUT(h2sin(a)); OUT(h2cos(a));
    OUT(h2floor(a)); OUT(h2rint(a)); OUT(__lows2half(a, b)); OUT(__highs2half(a, b)); OUT(__lowhigh(a));
    OUT(__hadd2(__hmul2(a, b), __hneg2(c))); OUT(__hfma2(__hneg2(a), __habs2(b), s)); OUT(__hcmadd(a, b, c));
    T x = in[0].x, y = in[threadIdx.x].y, z = s.x;
    OUT1(x + y); OUT1(x - z); OUT1(x * y); OUT1(__hfma(x, y, z)); OUT1(x / y); OUT1(-x); OUT1(__habs(y)); OUT1(__hmax(x, y));
    OUT1(__hmin_nan(x, z)); OUT1(x < y ? z : x); OUT1(x >= y && y != z ? x : y); OUT1(hsqrt(x)); OUT1(hexp(x)); OUT1(hlog2(x));
    OUT1(hsin(x)); OUT1(hcos(y)); OUT1(hexp10(x)); OUT1(__hisnan(x) ? y : z); OUT1(__hadd_sat(x, y)); OUT1(__hfma_relu(x, y, z));
#if __CUDACC_VER_MAJOR__ >= 12
    unsigned lanes = __heq2_mask(a, b) ^ __hltu2_mask(b, c);
#else
    unsigned lanes = 3;
#endif
    if (__hbeq2(a, b) || __hbgtu2(b, c)) OUT1(__ushort_as(T(x), lanes));
    OUT(__shfl_xor_sync(~0u, a, 3)); OUT1(__shfl_down_sync(~0u, y, 4)); OUT(__ldg(&in[threadIdx.x + 256])); OUT(__ldcs(&in[threadIdx.x + 512]));
}
__device__ __half2 __lows2half(__half2 a, __half2 b) { return __lows2half2(a, b); }
__device__ __half2 __highs2half(__half2 a, __half2 b) { return __highs2half2(a, b); }
__device__ __nv_bfloat162 __lows2half(__nv_bfloat162 a, __nv_bfloat162 b) { return __lows2bfloat162(a, b); }
__device__ __nv_bfloat162 __highs2half(__nv_bfloat162 a, __nv_bfloat162 b) { return __highs2bfloat162(a, b); }
__device__ __half2 __lowhigh(__half2 a) { return __lowhigh2highlow(a); }
__device__ __nv_bfloat162 __lowhigh(__nv_bfloat162 a) { return __lowhigh2highlow(a); }
__device__ __half __ushort_as(__half, unsigned v) { return __ushort_as_half(v); }
__device__ __nv_bfloat16 __ushort_as(__nv_bfloat16, unsigned v) { return __ushort_as_bfloat16(v); }
extern "C" __global__ void half_kernel(__half2* out, __half* single, const __half2* in, __half2 s) { halves(out, single, in, s); }
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloat_kernel(__nv_bfloat162* out, __nv_bfloat16* single, const __nv_bfloat162* in, __nv_bfloat162 s) {
    halves(out, single, in, s);
}
#endif
