// The kernels that every course on GPUs begins with. What a kernel writes comes first among its parameters.

__device__ __forceinline__ int warp() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) >> 5; }

// c (rows x cols) = a (rows x inner) b (inner x cols), through tiles of 16 x 16 in shared memory.
extern "C" __global__ void matmul(float* c, const float* a, const float* b, int rows, int inner, int cols) {
    __shared__ float left[16][17], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < inner; k += 16) {
        left[y][x] = row < rows && k + x < inner ? a[row * inner + k + x] : 0.f;
        right[y][x] = k + y < inner && col < cols ? b[(k + y) * cols + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum = __fmaf_rn(left[y][i], right[i][x], sum);
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = sum;
}

// Sum and maximum of integers over the grid, sums of floats in each block in a fixed order.
extern "C" __global__ void reduction(unsigned* total, int* most, float* parts, const int* in, const float* floats, int n) {
    __shared__ int sums[32];
    __shared__ float floatsums[32];
    int sum = 0, top = -2147483647 - 1, lane = threadIdx.x & 31;
    float f = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
        top = max(top, in[i]);
        f += floats[i];
    }
    for (int d = 16; d; d >>= 1) {
        sum += __shfl_down_sync(~0u, sum, d);
        top = max(top, __shfl_xor_sync(~0u, top, d));
        f += __shfl_xor_sync(~0u, f, d);
    }
    if (lane == 0) {
        sums[warp()] = sum;
        floatsums[warp()] = f;
        atomicMax(most, top);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int warps = blockDim.x >> 5;
        sum = lane < warps ? sums[lane] : 0;
        f = lane < warps ? floatsums[lane] : 0;
        for (int d = 16; d; d >>= 1) {
            sum += __shfl_xor_sync(~0u, sum, d);
            f += __shfl_xor_sync(~0u, f, d);
        }
        if (lane == 0) {
            atomicAdd(total, (unsigned)sum);
            parts[blockIdx.x] = f;
        }
    }
}

// Inclusive scan of the whole array. Each block waits for the one before it: state holds 1 << 32 | sum when it is done.
extern "C" __global__ void scan(int* out, unsigned long long* state, unsigned* ticket, const int* in, int n) {
    __shared__ int room[2][256];
    __shared__ unsigned number, before;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1u);  // blocks go in the order in which they start
    __syncthreads();
    int i = number * 256 + threadIdx.x, t = threadIdx.x, from = 0;
    room[0][t] = i < n ? in[i] : 0;
    for (int d = 1; d < 256; d <<= 1) {
        __syncthreads();
        room[from ^ 1][t] = room[from][t] + (t >= d ? room[from][t - d] : 0);
        from ^= 1;
    }
    __syncthreads();
    if (t == 0) {
        volatile unsigned long long* seen = state;
        unsigned long long value = 1ull << 32;
        if (number) while (!((value = seen[number - 1]) >> 32)) {}
        before = (unsigned)value;
        unsigned sum = (unsigned)value + (unsigned)room[from][255];
        __threadfence();
        seen[number] = 1ull << 32 | sum;
    }
    __syncthreads();
    if (i < n) out[i] = room[from][t] + before;
}

// Exclusive scan of 2 * blockDim.x elements by the tree of Blelloch, in dynamic shared memory.
extern "C" __global__ void blelloch(int* out, const int* in) {
    extern __shared__ int tree[];
    int t = threadIdx.x, n = 2 * blockDim.x, step = 1, base = blockIdx.x * n;
    tree[2 * t] = in[base + 2 * t];
    tree[2 * t + 1] = in[base + 2 * t + 1];
    for (int d = n >> 1; d > 0; d >>= 1, step <<= 1) {
        __syncthreads();
        if (t < d) tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
    }
    if (t == 0) tree[n - 1] = 0;
    for (int d = 1; d < n; d <<= 1) {
        step >>= 1;
        __syncthreads();
        if (t < d) {
            int a = step * (2 * t + 1) - 1, b = step * (2 * t + 2) - 1, left = tree[a];
            tree[a] = tree[b];
            tree[b] += left;
        }
    }
    __syncthreads();
    out[base + 2 * t] = tree[2 * t];
    out[base + 2 * t + 1] = tree[2 * t + 1];
}

// Counts of bytes, first in shared memory, then added up in global memory.
extern "C" __global__ void histogram(unsigned* counts, const unsigned char* in, int n) {
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (mine[i]) atomicAdd(&counts[i], mine[i]);
}

// Sorts 512 keys and their values a block.
extern "C" __global__ void bitonic(unsigned* keys, unsigned* values) {
    __shared__ unsigned k[512], v[512];
    unsigned t = threadIdx.x, base = blockIdx.x * 512;
    for (unsigned i = t; i < 512; i += 256) {
        k[i] = keys[base + i];
        v[i] = values[base + i];
    }
    for (unsigned size = 2; size <= 512; size <<= 1)
        for (unsigned stride = size >> 1; stride; stride >>= 1) {
            __syncthreads();
            unsigned a = 2 * t - (t & (stride - 1)), b = a + stride;
            bool up = !(a & size);
            if ((k[a] > k[b]) == up) {
                unsigned x = k[a], y = v[a];
                k[a] = k[b];
                v[a] = v[b];
                k[b] = x;
                v[b] = y;
            }
        }
    __syncthreads();
    for (unsigned i = t; i < 512; i += 256) {
        keys[base + i] = k[i];
        values[base + i] = v[i];
    }
}

// Five-point stencil on an image, tiles of 16 x 8 with a halo of one; outside of the image is 0.
extern "C" __global__ void stencil(float* out, const float* in, int width, int height) {
    __shared__ float tile[10][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    auto at = [&](int i, int j) { return i >= 0 && j >= 0 && i < width && j < height ? in[j * width + i] : 0.f; };
    tile[ty][tx] = at(x, y);
    if (tx == 1) tile[ty][0] = at(x - 1, y);
    if (tx == 16) tile[ty][17] = at(x + 1, y);
    if (ty == 1) tile[0][tx] = at(x, y - 1);
    if (ty == 8) tile[9][tx] = at(x, y + 1);
    __syncthreads();
    if (x >= width || y >= height) return;
    float around = __fadd_rn(__fadd_rn(tile[ty - 1][tx], tile[ty + 1][tx]), __fadd_rn(tile[ty][tx - 1], tile[ty][tx + 1]));
    out[y * width + x] = __fmaf_rn(-4.f, tile[ty][tx], around);
}

// The transpose of a matrix, 32 x 8 threads a tile of 32 x 32; PAD 1 avoids the bank conflicts of PAD 0.
template <int PAD> __device__ void transposed(float* out, const float* in, int rows, int cols) {
    __shared__ float tile[32][32 + PAD];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose(float* out, const float* in, int rows, int cols) { transposed<0>(out, in, rows, cols); }
extern "C" __global__ void transpose_padded(float* out, const float* in, int rows, int cols) { transposed<1>(out, in, rows, cols); }

// Complex FFT of 256 points a block, radix 2, decimation in time; roots holds exp(-2 pi i k / 256).
extern "C" __global__ void fft(float2* data, const float2* roots) {
    __shared__ float2 z[256];
    int t = threadIdx.x;
    for (int i = t; i < 256; i += 128) z[__brev(i) >> 24] = data[blockIdx.x * 256 + i];
    for (int half = 1; half < 256; half <<= 1) {
        __syncthreads();
        int k = t & (half - 1), a = 2 * t - k, b = a + half;
        float2 w = roots[k * (128 / half)], u = z[a], v = z[b];
        float re = v.x * w.x - v.y * w.y, im = v.x * w.y + v.y * w.x;
        z[a] = make_float2(u.x + re, u.y + im);
        z[b] = make_float2(u.x - re, u.y - im);
    }
    __syncthreads();
    for (int i = t; i < 256; i += 128) data[blockIdx.x * 256 + i] = z[i];
}

// Every place of a pattern in a text: the naive search, with an early way out.
extern "C" __global__ void search(int* places, int* count, const char* text, int n, const char* pattern, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool same = i + m <= n;
    for (int j = 0; same && j < m; ++j)
        if (text[i + j] != pattern[j]) {
            same = false;
            break;
        }
    places[i] = same;
    if (same) atomicAdd(count, 1);
}

__constant__ int skip_constant[4] = {3, 1, 4, 1};

// Horspool's search: each thread takes a stretch of the text and leaps by the table of skips.
extern "C" __global__ void horspool(int* places, const unsigned char* text, int n, const unsigned char* pattern, int m, int stretch) {
    __shared__ unsigned char skip[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        int s = m;
        for (int j = 0; j < m - 1; ++j)
            if (pattern[j] == i) s = m - 1 - j;
        skip[i] = s;
    }
    __syncthreads();
    int at = (blockIdx.x * blockDim.x + threadIdx.x) * stretch, end = min(at + stretch, n - m + 1);
    while (at < end) {
        int j = m - 1;
        while (j >= 0 && text[at + j] == pattern[j]) --j;
        if (j < 0) places[at] = 1 + skip_constant[at & 3];
        at += skip[text[at + m - 1]];
    }
}
