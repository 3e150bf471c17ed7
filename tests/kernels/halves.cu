// Half precision, two at a time and alone; bfloat16 from sm_80 on.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define ROW(expression) out[row++ * n + i] = (expression)
#define PAIR(expression) \
    { \
        auto pair = (expression); \
        ROW(*reinterpret_cast<unsigned*>(&pair)); \
    }
#define ALONE(expression) \
    { \
        auto alone = (expression); \
        ROW(*reinterpret_cast<unsigned short*>(&alone)); \
    }

extern "C" __global__ void halves(unsigned* out, const __half2* xs, const __half2* ys, const __half2* zs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    __half2 x = xs[i], y = ys[i], z = zs[i];
    PAIR(__hadd2_rn(x, y));
    PAIR(__hsub2(x, y));
    PAIR(__hmul2_rn(x, y));
    PAIR(__hfma2(x, y, z));
    PAIR(__hfma2_sat(x, y, z));
    PAIR(__hadd2_sat(x, y));
    PAIR(__hneg2(x));
    PAIR(__habs2(x));
    PAIR(__hlt2(x, y));
    PAIR(__heq2(x, y));
    PAIR(__hmax2(x, y));
    PAIR(__hmin2(x, y));
    PAIR(__lowhigh2highlow(x));
    PAIR(__halves2half2(__low2half(x), __high2half(y)));
    PAIR(__hfma2(__low2half2(x), __high2half2(y), z));
    ALONE(__hadd_rn(__low2half(x), __high2half(y)));
    ALONE(__hmul_rn(__high2half(x), __low2half(y)));
    ALONE(__hfma(__low2half(x), __low2half(y), __high2half(z)));
    ROW(__hgt(__low2half(x), __low2half(y)) | __hbne2(x, y) << 1 | __hisnan(__high2half(x)) << 2);
    ROW(__float_as_uint(__half2float(__high2half(x))));
    ALONE(__float2half_rn(__half2float(__low2half(x)) * 1.001f));
    ALONE(__float2half_rz(__half2float(__low2half(x)) * 1.001f));
    PAIR(__floats2half2_rn(__low2float(x) * 0.999f, __high2float(y)));
    ROW(__half2int_rn(__low2half(x)));
    ROW(__half2short_rz(__high2half(y)));
    ALONE(__int2half_rn(i * 1000 - 3333));
    ALONE(hfloor(__low2half(x)));
    ALONE(hrint(__high2half(x)));
}

// Roots and divisions of halves go through the multi-function unit, but round to the right half.
extern "C" __global__ void half_functions(__half* out, const __half* xs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    __half x = xs[i];
    ROW(hsqrt(x));
    ROW(hrcp(x));
    ROW(__hdiv(__float2half(3.f), x));
    ROW(hrsqrt(x));
    ROW(hexp2(x));
    ROW(hlog2(x));
    ROW(hsin(x));
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloats(unsigned* out, const __nv_bfloat162* xs, const __nv_bfloat162* ys, const __nv_bfloat162* zs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    __nv_bfloat162 x = xs[i], y = ys[i], z = zs[i];
    PAIR(__hfma2(x, y, z));
    PAIR(__hadd2_rn(x, y));
    PAIR(__hmul2_rn(x, y));
    PAIR(__hmax2(x, y));
    PAIR(__hmin2(x, y));
    PAIR(__hneg2(x));
    PAIR(__habs2(x));
    PAIR(__hlt2(x, y));
    PAIR(__floats2bfloat162_rn(__low2float(x) * 1.001f, __high2float(y) * 0.999f));
    ALONE(__float2bfloat16_rz(__low2float(x) * 1.001f));
    ALONE(__hfma(__low2bfloat16(x), __high2bfloat16(y), __low2bfloat16(z)));
    ROW(__float_as_uint(__bfloat162float(__high2bfloat16(x))));
    ROW(__hgt(__low2bfloat16(x), __low2bfloat16(y)));
}
#endif
