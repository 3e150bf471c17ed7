// Compiled with --use_fast_math: MUFU, flushed denormals, approximate division.

// Gravity: accelerations of n bodies (x, y, z, mass), tiles of blockDim.x bodies in shared memory.
extern "C" __global__ void nbody(float4* out, const float4* bodies, int n) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float ax = 0, ay = 0, az = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        __syncthreads();
        if (base + threadIdx.x < n) tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
        int end = min(n - base, (int)blockDim.x);
        for (int j = 0; j < end; ++j) {
            float4 b = tile[j];
            float dx = b.x - me.x, dy = b.y - me.y, dz = b.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float s = b.w * inverse * inverse * inverse;
            ax += dx * s;
            ay += dy * s;
            az += dz * s;
        }
    }
    if (i < n) out[i] = make_float4(ax, ay, az, 0);
}

// One row for each function of the multi-function unit.
extern "C" __global__ void mufu(float* out, const float* in, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float x = in[i], positive = fabsf(x) + 0.001f;
    out[0 * n + i] = __sinf(x);
    out[1 * n + i] = __cosf(x);
    out[2 * n + i] = __expf(x);
    out[3 * n + i] = __log2f(positive);
    out[4 * n + i] = rsqrtf(positive);
    out[5 * n + i] = sqrtf(positive);
    out[6 * n + i] = 1.f / x;
    out[7 * n + i] = __fdividef(3.f, x);
    out[8 * n + i] = __powf(positive, 1.5f);
    out[9 * n + i] = exp2f(x);
}

#if __CUDA_ARCH__ >= 750
extern "C" __global__ void mufu_tanh(float* out, const float* in, int n) {
    int i = threadIdx.x;
    if (i < n) asm("tanh.approx.f32 %0, %1;" : "=f"(out[i]) : "f"(in[i]));
}
#endif

// What the unit makes of special values is exact: infinities, zeros, denormals (flushed), NaN. Powers of two, too.
extern "C" __global__ void mufu_special(unsigned* out, const float* in, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    float r[6];
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r[0]) : "f"(in[i]));
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r[1]) : "f"(in[i]));
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r[2]) : "f"(in[i]));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r[3]) : "f"(in[i]));
    asm("sin.approx.ftz.f32 %0, %1;" : "=f"(r[4]) : "f"(in[i] * 0.f));
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r[5]) : "f"(in[i]));
    for (int j = 0; j < 6; ++j) out[j * n + i] = __float_as_uint(r[j]);
}
