// Conversions between all types, in all roundings.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <typename To, typename From>
__global__ void convert(To* out, const From* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (To)in[i];
}
#define TO(From) \
    template __global__ void convert(signed char*, const From*, int); template __global__ void convert(unsigned char*, const From*, int); \
    template __global__ void convert(short*, const From*, int); template __global__ void convert(unsigned short*, const From*, int); \
    template __global__ void convert(int*, const From*, int); template __global__ void convert(unsigned*, const From*, int); \
    template __global__ void convert(long long*, const From*, int); template __global__ void convert(unsigned long long*, const From*, int); \
    template __global__ void convert(float*, const From*, int); template __global__ void convert(double*, const From*, int);
TO(signed char) TO(unsigned char) TO(short) TO(unsigned short) TO(int) TO(unsigned) TO(long long) TO(unsigned long long)
TO(float) TO(double)
#if __CUDACC_VER_MAJOR__ >= 12
TO(__half) TO(__nv_bfloat16)
#endif

#define OUT(value) out[n++ * 64 + threadIdx.x] = (long long)(value)
extern "C" __global__ void roundings(long long* out, const float* fs, const double* ds, const int* is, const long long* ls) {
    int n = 0;
    float f = fs[threadIdx.x];
    double d = ds[threadIdx.x];
    int i = is[threadIdx.x];
    long long l = ls[threadIdx.x];
    OUT(__float2int_rn(f)); OUT(__float2int_rz(f)); OUT(__float2int_ru(f)); OUT(__float2int_rd(f)); OUT(__float2uint_rn(f));
    OUT(__float2uint_ru(f)); OUT(__float2ll_rn(f)); OUT(__float2ll_rd(f)); OUT(__float2ull_ru(f)); OUT(__double2int_rn(d));
    OUT(__double2int_ru(d)); OUT(__double2uint_rd(d)); OUT(__double2ll_rn(d)); OUT(__double2ull_ru(d)); OUT(__double2hiint(d));
    OUT(__float_as_int(__int2float_rn(i))); OUT(__float_as_int(__int2float_rz(i))); OUT(__float_as_int(__int2float_ru(i)));
    OUT(__float_as_int(__uint2float_rd(i))); OUT(__float_as_int(__ll2float_rn(l))); OUT(__float_as_int(__ull2float_ru(l)));
    OUT(__double_as_longlong(__int2double_rn(i))); OUT(__double_as_longlong(__ll2double_rz(l))); OUT(__double_as_longlong(__ull2double_rd(l)));
    OUT(__float_as_int(__double2float_rn(d))); OUT(__float_as_int(__double2float_rz(d))); OUT(__float_as_int(__double2float_ru(d)));
    __half h = __float2half_rn(f), g = __float2half_ru(f);
    OUT(__half_as_short(__float2half_rz(f))); OUT(__half_as_short(__float2half_rd(f))); OUT(__half_as_short(__double2half(d)));
    OUT(__half2int_rn(h)); OUT(__half2int_ru(g)); OUT(__half2uint_rd(h)); OUT(__half2ll_rz(h)); OUT(__half2short_rn(g));
    OUT(__half_as_short(__int2half_rn(i))); OUT(__half_as_short(__uint2half_rz(i))); OUT(__half_as_short(__ll2half_ru(l)));
    OUT(__half_as_short(hfloor(h))); OUT(__half_as_short(hceil(h))); OUT(__half_as_short(hrint(g))); OUT(__half_as_short(htrunc(g)));
#if __CUDACC_VER_MAJOR__ >= 12
    __nv_bfloat16 b = __float2bfloat16_rn(f), e = __float2bfloat16_ru(f);
    OUT(__bfloat16_as_short(__float2bfloat16_rz(f))); OUT(__bfloat16_as_short(__double2bfloat16(d))); OUT(__bfloat162int_rn(b));
    OUT(__bfloat162uint_ru(e)); OUT(__bfloat162ll_rd(b)); OUT(__bfloat16_as_short(__int2bfloat16_rn(i)));
    OUT(__bfloat16_as_short(__ll2bfloat16_ru(l))); OUT(__bfloat16_as_short(hfloor(b))); OUT(__bfloat16_as_short(hrint(e)));
    OUT(__bfloat16_as_short(__high2bfloat16(__floats2bfloat162_rn(f, (float)d))));
#endif
    OUT(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E4M3)); OUT(__nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E5M2));
    OUT(__nv_cvt_float2_to_fp8x2(make_float2(f, (float)d), __NV_SATFINITE, __NV_E4M3));
    OUT(__nv_cvt_halfraw_to_fp8(h, __NV_NOSAT, __NV_E5M2)); OUT(__half2float(__half(__nv_cvt_fp8_to_halfraw(i, __NV_E4M3))));
    OUT(__half2float(__low2half(__half2(__nv_cvt_fp8x2_to_halfraw2(i, __NV_E5M2)))));
    OUT(__half_as_short(__low2half(__floats2half2_rn(f, (float)d))));
}
