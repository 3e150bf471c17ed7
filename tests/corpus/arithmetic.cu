// Every rounding, saturation and comparison intrinsic of the plain types.
#define OUT(value) out[n++ * 64 + threadIdx.x] = (value)

extern "C" __global__ void floats(float* out, const float* in, float s, int k) {
    int n = 0;
    float a = in[threadIdx.x], b = in[threadIdx.x + 64], c = in[threadIdx.x + 128];
    OUT(__fadd_rn(a, b)); OUT(__fadd_rz(a, b)); OUT(__fadd_ru(a, -b)); OUT(__fadd_rd(fabsf(a), b));
    OUT(__fmul_rn(a, b)); OUT(__fmul_rz(a, s)); OUT(__fmul_ru(a, -b)); OUT(__fmul_rd(a, 3.7f));
    OUT(__fmaf_rn(a, b, c)); OUT(__fmaf_rz(a, s, c)); OUT(__fmaf_ru(a, b, -s)); OUT(__fmaf_rd(-a, b, 1.25f));
    OUT(__fdiv_rn(a, b)); OUT(__fdiv_rz(a, b)); OUT(__fdiv_ru(a, s)); OUT(__fdiv_rd(1.0f, b)); OUT(__fdividef(a, b));
    OUT(__frcp_rn(a)); OUT(__frcp_rz(a)); OUT(__frcp_ru(a)); OUT(__frcp_rd(a));
    OUT(__fsqrt_rn(a)); OUT(__fsqrt_rz(a)); OUT(__fsqrt_ru(a)); OUT(__fsqrt_rd(a)); OUT(__frsqrt_rn(a));
    OUT(__saturatef(a + b)); OUT(__saturatef(a * b)); OUT(__saturatef(fmaf(a, b, c)));
    OUT(fminf(a, b)); OUT(fmaxf(a, s)); OUT(fminf(fmaxf(a, b), c)); OUT(fmaxf(fminf(-a, fabsf(b)), 2.0f));
    OUT(__sinf(a)); OUT(__cosf(a)); OUT(__expf(a)); OUT(__logf(a)); OUT(__log2f(a)); OUT(__powf(a, b)); OUT(__tanf(a));
    OUT(rsqrtf(a)); OUT(sqrtf(a)); OUT(exp2f(a)); OUT(log2f(b)); OUT(tanhf(a)); OUT(truncf(a)); OUT(rintf(a));
    OUT(floorf(a)); OUT(ceilf(a)); OUT(roundf(a)); OUT(copysignf(a, b)); OUT(fabsf(a)); OUT(fdimf(a, b)); OUT(fmodf(a, b));
    OUT(a < b ? c : s); OUT(a >= b && b != c || !(c > s) ? a : b); OUT(isnan(a) ? 1.0f : b); OUT(isinf(b) ? c : a);
    OUT(isfinite(c) ? a : 0.0f); OUT(signbit(a) ? b : c); OUT((a != a) ^ (b < c) ? s : 2.5f);
    OUT(__int_as_float(__float_as_int(a) & 0x7fffff)); OUT(ldexpf(a, k)); OUT(sinf(a)); OUT(powf(a, b)); OUT(erff(a));
    OUT(lgammaf(a)); OUT(cbrtf(a)); OUT(normcdff(a)); OUT(j0f(a)); OUT(atan2f(a, b)); OUT(logbf(a)); OUT(nextafterf(a, b));
}

extern "C" __global__ void doubles(double* out, const double* in, double s) {
    int n = 0;
    double a = in[threadIdx.x], b = in[threadIdx.x + 64], c = in[threadIdx.x + 128];
    OUT(__dadd_rn(a, b)); OUT(__dadd_rz(a, s)); OUT(__dadd_ru(-a, b)); OUT(__dadd_rd(a, 3.5));
    OUT(__dmul_rn(a, b)); OUT(__dmul_rz(a, s)); OUT(__dmul_ru(a, -b)); OUT(__dmul_rd(a, 3.5));
    OUT(__fma_rn(a, b, c)); OUT(__fma_rz(a, b, s)); OUT(__fma_ru(a, s, c)); OUT(__fma_rd(-a, b, 1.5));
    OUT(__ddiv_rn(a, b)); OUT(__drcp_rn(a)); OUT(__drcp_ru(a)); OUT(__dsqrt_rn(a)); OUT(__dsqrt_rz(a)); OUT(rsqrt(a));
    OUT(fmin(a, b)); OUT(fmax(a, s)); OUT(fabs(a)); OUT(-a); OUT(floor(a)); OUT(ceil(a)); OUT(trunc(a)); OUT(rint(a));
    OUT(a < b ? c : s); OUT(a >= b && b != c || !(c > s) ? a : b); OUT(isnan(a) ? 1.0 : b); OUT(isinf(b) ? c : a);
    OUT(exp(a)); OUT(log(a)); OUT(sin(a)); OUT(pow(a, b)); OUT(tgamma(a)); OUT(erfc(a)); OUT(fmod(a, b)); OUT(hypot(a, b));
}

template <typename T>
__device__ void integers(T* out, const T* in, T s) {
    int n = 0;
    T a = in[threadIdx.x], b = in[threadIdx.x + 64], c = in[threadIdx.x + 128];
    OUT(a + b); OUT(a - b); OUT(a * b); OUT(a * b + c); OUT(a / b); OUT(a % b); OUT(a / 7); OUT(a % 10); OUT(a + b + c);
    OUT(a - s - c); OUT(-a - b + 5); OUT(a * 12345 + s); OUT(a << 3); OUT(a >> 5); OUT(a << (b & 31)); OUT(a >> (s & 31));
    OUT(a & b); OUT(a | s); OUT(a ^ 0x5a); OUT(~a); OUT((a & b) | (~a & c)); OUT(a ^ b ^ c); OUT((a | b) & ~c); OUT(a & 0xff);
    OUT(a < b ? c : s); OUT(a <= s && b != c ? a : b); OUT(a == 5 || b > c ? a : 77); OUT(min(a, b)); OUT(max(a, s));
    OUT(min(max(a, T(3)), T(100))); OUT(a + (b << 4)); OUT((a << 2) + s); OUT((a >> 8) & 15); OUT(!a); OUT(a < 0 ? -a : a);
}
extern "C" __global__ void signed_words(int* out, const int* in, int s) { integers(out, in, s); }
extern "C" __global__ void unsigned_words(unsigned* out, const unsigned* in, unsigned s) { integers(out, in, s); }
extern "C" __global__ void signed_longs(long long* out, const long long* in, long long s) { integers(out, in, s); }
extern "C" __global__ void unsigned_longs(unsigned long long* out, const unsigned long long* in, unsigned long long s) { integers(out, in, s); }
extern "C" __global__ void signed_shorts(short* out, const short* in, short s) { integers<short>(out, in, s); }
extern "C" __global__ void unsigned_bytes(unsigned char* out, const unsigned char* in, unsigned char s) { integers<unsigned char>(out, in, s); }

extern "C" __global__ void intrinsics(unsigned* out, const unsigned* in, const unsigned long long* wide, unsigned s) {
    int n = 0;
    unsigned a = in[threadIdx.x], b = in[threadIdx.x + 64], c = in[threadIdx.x + 128];
    unsigned long long w = wide[threadIdx.x], v = wide[threadIdx.x + 64];
    OUT(__popc(a)); OUT(__popcll(w)); OUT(__clz(a)); OUT(__clzll(w)); OUT(__ffs(a)); OUT(__ffsll(w)); OUT(__brev(a));
    OUT((unsigned)__brevll(w)); OUT(__byte_perm(a, b, 0x5140)); OUT(__byte_perm(a, b, c)); OUT(__byte_perm(a, s, 0x3210));
    OUT(__umulhi(a, b)); OUT(__mulhi(a, s)); OUT((unsigned)__umul64hi(w, v)); OUT((unsigned)__mul64hi(w, v)); OUT(__umul24(a, b));
    OUT(__mul24(a, b)); OUT(__sad(a, b, c)); OUT(__usad(a, b, c)); OUT(__hadd(a, b)); OUT(__rhadd(a, b)); OUT(__uhadd(a, b));
    OUT(__urhadd(a, b)); OUT(__funnelshift_l(a, b, c)); OUT(__funnelshift_r(a, b, c)); OUT(__funnelshift_lc(a, b, c));
    OUT(__funnelshift_rc(a, b, 7)); OUT(__vadd2(a, b)); OUT(__vadd4(a, b)); OUT(__vaddss2(a, b)); OUT(__vaddus4(a, b)); OUT(__vsub4(a, b));
    OUT(__vabs2(a)); OUT(__vabs4(a)); OUT(__vabsdiffs4(a, b)); OUT(__vabsdiffu2(a, b)); OUT(__vavgs2(a, b)); OUT(__vavgu4(a, b));
    OUT(__vcmpeq4(a, b)); OUT(__vcmpgts2(a, b)); OUT(__vcmpleu4(a, b)); OUT(__vmaxs2(a, b)); OUT(__vmaxu4(a, b)); OUT(__vmins4(a, b));
    OUT(__vseteq2(a, b)); OUT(__vsads4(a, b)); OUT(__vsadu2(a, b)); OUT(__vneg2(a)); OUT(__vnegss4(a)); OUT(__vabsss2(a));
#if __CUDACC_VER_MAJOR__ >= 12  // the DPX functions and others that CUDA 11 takes from headers
    OUT(__dp4a((int)a, (int)b, (int)c)); OUT(__dp4a(a, b, c)); OUT(__dp2a_lo((int)a, (int)b, (int)c)); OUT(__dp2a_hi(a, b, c)); 
    OUT(__viaddmax_s32(a, b, c)); OUT(__viaddmin_u32(a, b, c)); OUT(__viaddmax_s32_relu(a, b, c)); OUT(__viaddmin_s16x2(a, b, c));
    OUT(__viaddmax_u16x2(a, b, c)); OUT(__viaddmax_s16x2_relu(a, b, c)); OUT(__vimax3_s32(a, b, c)); OUT(__vimin3_u32(a, b, c));
    OUT(__vimax3_s16x2(a, b, c)); OUT(__vimin3_u16x2(a, b, c)); OUT(__vimax3_s32_relu(a, b, c)); OUT(__vimin3_s16x2_relu(a, b, c));
    OUT(__vimax_s32_relu(a, b)); OUT(__vimin_s16x2_relu(a, b)); OUT(__vimax_s16x2_relu(a, s));
    bool p, q;
    OUT(__vibmax_s32(a, b, &p)); OUT(p); OUT(__vibmin_u32(a, b, &p)); OUT(p); OUT(__vibmax_s16x2(a, b, &p, &q)); OUT(p + 2 * q);
    OUT(__vibmin_u16x2(a, b, &p, &q)); OUT(p + 2 * q);
#endif
    OUT(a + b < a); OUT((w + v) >> 32); OUT((w * v) >> 32);
}
