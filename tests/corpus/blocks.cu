// Ordinary kernels: a tiled matrix product, a stencil, a histogram, a block scan; loops with uniform indexes.
extern "C" __global__ __launch_bounds__(256) void sgemm(float* c, const float* a, const float* b, int m, int n, int k, float alpha) {
    __shared__ float sa[2][8][128], sb[2][8][128];
    float acc[8][8] = {}, fa[8], fb[8];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    const float* pa = a + blockIdx.y * 128 * k;
    const float* pb = b + blockIdx.x * 128;
    for (int step = 0, buffer = 0; step < k; step += 8, buffer ^= 1) {
        float4 va = *(const float4*)(pa + (threadIdx.x >> 1) * k + step + (threadIdx.x & 1) * 4);
        float4 vb = *(const float4*)(pb + (step + (threadIdx.x >> 5)) * n + (threadIdx.x & 31) * 4);
        sa[buffer][(threadIdx.x & 1) * 4 + 0][threadIdx.x >> 1] = va.x; sa[buffer][(threadIdx.x & 1) * 4 + 1][threadIdx.x >> 1] = va.y;
        sa[buffer][(threadIdx.x & 1) * 4 + 2][threadIdx.x >> 1] = va.z; sa[buffer][(threadIdx.x & 1) * 4 + 3][threadIdx.x >> 1] = va.w;
        *(float4*)&sb[buffer][threadIdx.x >> 5][(threadIdx.x & 31) * 4] = vb;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            *(float4*)fa = *(float4*)&sa[buffer][i][ty * 4]; *(float4*)(fa + 4) = *(float4*)&sa[buffer][i][64 + ty * 4];
            *(float4*)fb = *(float4*)&sb[buffer][i][tx * 4]; *(float4*)(fb + 4) = *(float4*)&sb[buffer][i][64 + tx * 4];
#pragma unroll
            for (int y = 0; y < 8; y++)
#pragma unroll
                for (int x = 0; x < 8; x++) acc[y][x] += fa[y] * fb[x];
        }
    }
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) c[(blockIdx.y * 128 + ty * 8 + y) * n + blockIdx.x * 128 + tx * 8 + x] = alpha * acc[y][x];
}

__constant__ float weights[27];
extern "C" __global__ void stencil(float* out, const float* __restrict__ in, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    for (int z = 1; z < nz - 1; z++) {
        float sum = 0;
        for (int k = 0; k < 27; k++) sum += weights[k] * in[((z + k / 9 - 1) * ny + y + k / 3 % 3 - 1) * nx + x + k % 3 - 1];
        out[(z * ny + y) * nx + x] = sum;
    }
}

extern "C" __global__ void histogram(unsigned* out, const unsigned char* in, int n) {
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1);
    __syncthreads();
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

extern "C" __global__ void scan(long long* out, const long long* in, int n) {
    __shared__ long long sums[32];
    long long v = threadIdx.x < n ? in[threadIdx.x] : 0;
    for (int d = 1; d < 32; d *= 2) { long long u = __shfl_up_sync(~0u, v, d); if ((threadIdx.x & 31) >= d) v += u; }
    if ((threadIdx.x & 31) == 31) sums[threadIdx.x >> 5] = v;
    __syncthreads();
    for (int w = 0; w < (threadIdx.x >> 5); w++) v += sums[w];
    out[threadIdx.x] = v;
}

struct Field { int count; short kind; unsigned char flags[6]; long long offsets[4]; float scale; };
extern "C" __global__ void uniform(int* out, const int* const* pointers, Field field, const Field* fields, int n, int* flags) {
    for (int i = 0; i < n; i++) {
        const int* p = pointers[i];
        int base = field.count * i + fields[blockIdx.x].count, sum = 0;
        for (int j = 0; j < field.count; j += 4)
            if (field.flags[i % 6] & (1 << (j & 7))) sum += p[j + threadIdx.x] * base; else sum -= p[j * field.kind + blockIdx.x];
        if (blockIdx.x * n > 5 && i != field.offsets[i & 3]) out[base + threadIdx.x] = sum;
        out[i] = __popc(n * i) + min(i, field.count) + (n >> (i & 31)) + __clz(base) + (i % n) + __brev(n ^ i) + (int)(i * field.scale);
        if (flags[blockIdx.x]) __syncthreads();
    }
}
