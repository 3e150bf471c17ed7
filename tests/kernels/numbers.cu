// Arithmetic: integers of all widths, floats and doubles, conversions. One row of results an operation.
#include <cuda_fp16.h>
#include <cuda/std/cstdint>
using namespace cuda::std;
#define ROW(expression) out[row++ * n + i] = (expression)

extern "C" __global__ void integers(int* out, const int* xs, const int* ys, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    int x = xs[i], y = ys[i];
    unsigned u = x, v = y;
    ROW(x + y);
    ROW(x - y);
    ROW(x * y);
    ROW(__mulhi(x, y));
    ROW(__umulhi(u, v));
    ROW(__mul24(x, y));
    ROW(x * 37 + y);
    ROW(min(x, y));
    ROW(max(u, v));
    ROW(abs(x));
    ROW(x & ~y);
    ROW((x ^ y) | (x & 0xff00ff));
    ROW(x << (y & 31));
    ROW(x >> (y & 31));
    ROW(u >> (v & 31));
    ROW(__funnelshift_l(u, v, u & 15));
    ROW(__funnelshift_r(u, v, v));
    ROW(__funnelshift_rc(u, v, 40));
    ROW(__popc(u));
    ROW(__clz(x));
    ROW(__ffs(x));
    ROW(__brev(u));
    ROW(__byte_perm(u, v, 0x2637));
    ROW(__byte_perm(u, v, v & 0x7777));
    ROW(__sad(x, y, 5u));
    ROW(__usad(u, v, 5u));
    ROW(y ? x / y : 0);
    ROW(y ? x % y : 0);
    ROW(v ? u / v : 0);
    ROW(v ? u % v : 0);
    ROW(x / 7);
    ROW(u % 1000);
    ROW(x < y);
    ROW(u < v);
    ROW((x < 0 && y > 3) || (x == y));
    ROW(__vadd2(u, v));
    ROW(__vsub4(u, v));
    ROW(__vmaxs2(u, v));
    ROW(__vabsdiffu4(u, v));
    ROW(__vcmpgtu4(u, v));
    ROW(__dp4a(x, y, 11));
    ROW(__dp4a(u, v, 11u));
    ROW(__dp2a_lo(x, y, 3));
    ROW(__dp2a_hi(u, v, 3u));
    ROW(__hadd(x, y));
    ROW(__rhadd(x, y));
    int r;
    asm("bfe.s32 %0, %1, 5, 11;" : "=r"(r) : "r"(x));
    ROW(r);
    asm("bfi.b32 %0, %1, %2, 9, 7;" : "=r"(r) : "r"(x), "r"(y));
    ROW(r);
    asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(x));
    ROW(r);
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(x), "r"(y), "r"(0x1234567));
    ROW(r);
    asm("add.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    ROW(r);
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(r) : "r"(x & 63), "r"(y & 63));
    ROW(r);
    ROW((int8_t)x * (int8_t)y);
    ROW((int16_t)x >> 3);
    ROW((uint8_t)(x + y));
}

extern "C" __global__ void longs(long long* out, const long long* xs, const long long* ys, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    long long x = xs[i], y = ys[i];
    unsigned long long u = x, v = y;
    ROW(x + y);
    ROW(x - y);
    ROW(x * y);
    ROW(__mul64hi(x, y));
    ROW(__umul64hi(u, v));
    ROW(y ? x / y : 0);
    ROW(y ? x % y : 0);
    ROW(v ? u / v : 0);
    ROW(v ? u % v : 0);
    ROW(x << (y & 63));
    ROW(x >> (y & 63));
    ROW(u >> (y & 63));
    ROW(min(x, y));
    ROW(max(u, v));
    ROW(x < y);
    ROW(u < v);
    ROW(__popcll(u));
    ROW(__clzll(x));
    ROW(__brevll(u));
    ROW(__ffsll(x));
    ROW((long long)(int)x * (int)y);
    ROW((unsigned long long)(unsigned)x * (unsigned)y + v);
    ROW(x / 10);
    ROW(u % 1000000007ull);
    ROW(llabs(x));
}

// Results as bits: signed zeros and NaN count. Every rounding mode.
extern "C" __global__ void floats(unsigned* out, const float* xs, const float* ys, const float* zs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    float x = xs[i], y = ys[i], z = zs[i];
#define BITS(expression) ROW(__float_as_uint(expression))
    BITS(__fadd_rn(x, y));
    BITS(__fadd_rz(x, y));
    BITS(__fadd_ru(x, y));
    BITS(__fadd_rd(x, y));
    BITS(__fmul_rn(x, y));
    BITS(__fmul_rz(x, y));
    BITS(__fmul_ru(x, y));
    BITS(__fmul_rd(x, y));
    BITS(__fmaf_rn(x, y, z));
    BITS(__fmaf_rz(x, y, z));
    BITS(__fmaf_ru(x, y, z));
    BITS(__fmaf_rd(x, y, z));
    BITS(__fdiv_rn(x, y));
    BITS(__fsqrt_rn(x));
    BITS(__frcp_rn(x));
    BITS(fminf(x, y));
    BITS(fmaxf(x, y));
    BITS(__saturatef(x));
    BITS(fabsf(x));
    BITS(-x);
    BITS(rintf(x));
    BITS(floorf(x));
    BITS(ceilf(x));
    BITS(truncf(x));
    BITS(copysignf(x, y));
    ROW(x < y);
    ROW(x >= y);
    ROW(x == y);
    ROW(x != y);
    ROW(isnan(x) | isinf(x) << 1 | signbit(x) << 2);
    float r;
    asm("add.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    BITS(r);
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    BITS(r);
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(z));
    BITS(r);
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(z));
    BITS(r);
}

extern "C" __global__ void doubles(unsigned long long* out, const double* xs, const double* ys, const double* zs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    double x = xs[i], y = ys[i], z = zs[i];
#define LONG(expression) ROW((unsigned long long)__double_as_longlong(expression))
    LONG(__dadd_rn(x, y));
    LONG(__dadd_rz(x, y));
    LONG(__dadd_ru(x, y));
    LONG(__dadd_rd(x, y));
    LONG(__dmul_rn(x, y));
    LONG(__dmul_rz(x, y));
    LONG(__dmul_ru(x, y));
    LONG(__dmul_rd(x, y));
    LONG(__fma_rn(x, y, z));
    LONG(__fma_rz(x, y, z));
    LONG(__fma_ru(x, y, z));
    LONG(__fma_rd(x, y, z));
    LONG(__ddiv_rn(x, y));
    LONG(__dsqrt_rn(x));
    LONG(__drcp_rn(x));
    LONG(fmin(x, y));
    LONG(fmax(x, y));
    LONG(floor(x));
    LONG(rint(x));
    LONG(trunc(x));
    LONG(fabs(x));
    ROW(x < y);
    ROW(x != y);
}

// Between all kinds of numbers.
extern "C" __global__ void conversions(long long* out, const float* xs, const double* ds, const long long* ls, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    float x = xs[i];
    double d = ds[i];
    long long l = ls[i];
    int s = (int)l;
    ROW(__float2int_rn(x));
    ROW(__float2int_rz(x));
    ROW(__float2int_ru(x));
    ROW(__float2int_rd(x));
    ROW(__float2uint_rz(x));
    ROW(__float2ll_rn(x));
    ROW(__float2ull_rz(x));
    ROW(__double2int_rz(d));
    ROW(__double2uint_rn(d));
    ROW(__double2ll_rd(d));
    ROW(__double2ull_ru(d));
    ROW(__float_as_uint(__double2float_rn(d)));
    ROW(__float_as_uint(__double2float_rd(d)));
    ROW(__float_as_uint(__double2float_ru(d)));
    ROW(__double_as_longlong((double)x));
    ROW(__float_as_uint(__int2float_rn(s)));
    ROW(__float_as_uint(__int2float_rz(s)));
    ROW(__float_as_uint(__uint2float_ru((unsigned)s)));
    ROW(__float_as_uint(__ll2float_rn(l)));
    ROW(__float_as_uint(__ull2float_rd((unsigned long long)l)));
    ROW(__double_as_longlong(__int2double_rn(s)));
    ROW(__double_as_longlong(__uint2double_rn((unsigned)s)));
    ROW(__double_as_longlong(__ll2double_rn(l)));
    ROW(__double_as_longlong(__ull2double_rz((unsigned long long)l)));
    ROW((int8_t)l);
    ROW((uint16_t)l);
    ROW(__float_as_uint((float)(int8_t)l));
    ROW(__float_as_uint((float)(uint16_t)l));
    uint32_t b;
    asm("cvt.rzi.sat.u8.f32 %0, %1;" : "=r"(b) : "f"(x));
    ROW(b);
    asm("cvt.rni.sat.s16.f32 %0, %1;" : "=r"(b) : "f"(x));
    ROW((int16_t)b);
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(b) : "r"(s));
    ROW((int8_t)b);
}

// The library's functions: subroutines, branches for special ranges, tables.
extern "C" __global__ void functions(float* out, const float* xs, int n) {
    int i = threadIdx.x, row = 0, exponent;
    if (i >= n) return;
    float x = xs[i], a = fabsf(x) + 0.01f;
    ROW(sinf(x));
    ROW(cosf(x * 100000.f));
    ROW(expf(x));
    ROW(logf(a));
    ROW(powf(a, 0.7f));
    ROW(atan2f(x, 2.f));
    ROW(tanhf(x));
    ROW(erff(x));
    ROW(cbrtf(x));
    ROW(fmodf(x * 50.f, 0.3f));
    ROW(hypotf(x, 3.f));
    ROW(x / a);
    ROW(sqrtf(a));
    ROW(ldexpf(x, 5) + frexpf(a, &exponent) + exponent);
}

extern "C" __global__ void double_functions(double* out, const double* xs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    double x = xs[i], a = fabs(x) + 0.01;
    ROW(sin(x));
    ROW(cos(x * 1e10));
    ROW(exp(x));
    ROW(log(a));
    ROW(pow(a, 1.7));
    ROW(atan(x));
    ROW(sqrt(a));
    ROW(x / a);
    ROW(cbrt(x));
    ROW(fmod(x * 50, 0.3));
    ROW(rsqrt(a));
}

// What becomes of a NaN's payload and sign. Any NaN is right by IEEE 754; the hardware is to be met bit for bit.
extern "C" __global__ void nans(float* out, double* outd, __half* outh, const unsigned* xs, const unsigned* ys, const unsigned long long* ds,
                                const unsigned long long* es, const unsigned short* hs, int n) {
    int i = threadIdx.x, row = 0;
    if (i >= n) return;
    float x = __uint_as_float(xs[i]), y = __uint_as_float(ys[i]), r;
    double d = __longlong_as_double(ds[i]), e = __longlong_as_double(es[i]);
    __half h = __ushort_as_half(hs[i]);
    ROW(__fadd_rn(x, 1.f));
    ROW(__fadd_rn(x, y));
    ROW(__fmul_rn(y, x));
    ROW(__fmaf_rn(1.f, 2.f, x));
    ROW(fminf(x, y));
    ROW(fmaxf(y, x));
    ROW(rintf(x));
    ROW(__double2float_rn(d));
    ROW(__double2float_rz(d));
    ROW(__half2float(h));
    ROW(sqrtf(x));
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    ROW(r);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    ROW(r);
    asm("sin.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    ROW(r);
    row = 0;
#undef ROW
#define ROW(expression) outd[row++ * n + i] = (expression)
    ROW(__dadd_rn(d, 1.0));
    ROW(__dadd_rn(d, e));
    ROW(__dmul_rn(e, d));
    ROW(__fma_rn(d, e, 2.0));
    ROW(__fma_rn(1.0, 2.0, d));
    ROW(__fma_rn(d, 1.5, e));
    ROW(__fma_rn((double)n, d, e));
    ROW(__fma_rn((double)n, e, __longlong_as_double(ds[i] ^ 1)));
    ROW(fmin(d, e));
    ROW(fmax(e, d));
    ROW(rint(d));
    ROW((double)x);
    ROW(sqrt(d));
    ROW(d / e);
    row = 0;
#undef ROW
#define ROW(expression) outh[row++ * n + i] = (expression)
    ROW(__hadd_rn(h, __ushort_as_half(0x3c00)));
    ROW(__hfma(h, h, h));
    ROW(__float2half_rn(x));
    ROW(__float2half_rz(x));
    ROW(hrint(h));
    ROW(__double2half(d));
#undef ROW
}
