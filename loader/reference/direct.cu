// Direct convolution, and im2col with a matrix product (the case study). All arrays are float32: x is N, C, H, W; w is
// K, C, R, S; y is N, K, P, Q. Any size, stride and padding. Sums are taken channel by channel, in float32.

struct Sizes {
    int n, c, h, w, k, r, s, stride, padding, p, q;
};

// One thread an output. Threads walk over y by the size of the grid, which may be any.
extern "C" __global__ void direct(const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ y,
                                  Sizes z) {
    const unsigned total = (unsigned)z.n * z.k * z.p * z.q;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        const int column = i % z.q, row = i / z.q % z.p, k = i / z.q / z.p % z.k, n = i / z.q / z.p / z.k;
        const int top = row * z.stride - z.padding, left = column * z.stride - z.padding;
        // the part of the filter that lies on the image
        const int first_a = max(0, -top), last_a = min(z.r, z.h - top);
        const int first_b = max(0, -left), last_b = min(z.s, z.w - left);
        float sum = 0;
        for (int c = 0; c < z.c; c++) {
            const float *image = x + (n * z.c + c) * z.h * z.w;
            const float *filter = w + (k * z.c + c) * z.r * z.s;
            float part = 0;
            for (int a = first_a; a < last_a; a++)
                for (int b = first_b; b < last_b; b++)
                    part += image[(top + a) * z.w + left + b] * filter[a * z.s + b];
            sum += part;
        }
        y[i] = sum;
    }
}

// A block computes a tile of blockDim.y x blockDim.x outputs of one image for FILTERS filters. The filter is taken in
// pieces of piece_r x piece_s; what a piece meets under the tile, halo and padding included, lies in shared memory:
// ((blockDim.y - 1) * stride + piece_r) x ((blockDim.x - 1) * stride + piece_s) elements of one channel.
// Grid: columns of tiles, fastest, times rows of tiles times groups of filters times images, all in x.
#define FILTERS 4

extern "C" __global__ void tiled(const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ y,
                                 Sizes z, int piece_r, int piece_s) {
    extern __shared__ float tile[];
    const int columns = (z.q + blockDim.x - 1) / blockDim.x, rows = (z.p + blockDim.y - 1) / blockDim.y;
    const int groups = (z.k + FILTERS - 1) / FILTERS;
    unsigned place = blockIdx.x;
    const int first_column = place % columns * blockDim.x;
    place /= columns;
    const int first_row = place % rows * blockDim.y;
    place /= rows;
    const int first_k = place % groups * FILTERS, n = place / groups;
    const int tile_h = (blockDim.y - 1) * z.stride + piece_r, tile_w = (blockDim.x - 1) * z.stride + piece_s;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const float *mine = tile + threadIdx.y * z.stride * tile_w + threadIdx.x * z.stride;

    float sum[FILTERS] = {};
    for (int c = 0; c < z.c; c++) {
        const float *image = x + (n * z.c + c) * z.h * z.w;
        float part[FILTERS] = {};
        for (int a0 = 0; a0 < z.r; a0 += piece_r)
            for (int b0 = 0; b0 < z.s; b0 += piece_s) {
                const int top = first_row * z.stride - z.padding + a0;
                const int left = first_column * z.stride - z.padding + b0;
                __syncthreads();  // the piece before is read
                for (int i = thread; i < tile_h * tile_w; i += threads) {
                    const int row = top + i / tile_w, column = left + i % tile_w;
                    const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
                    tile[i] = inside ? image[row * z.w + column] : 0.0f;
                }
                __syncthreads();
                const int last_a = min(piece_r, z.r - a0), last_b = min(piece_s, z.s - b0);
                for (int a = 0; a < last_a; a++)
                    for (int b = 0; b < last_b; b++) {
                        const float value = mine[a * tile_w + b];
#pragma unroll
                        for (int f = 0; f < FILTERS; f++) {
                            const int k = min(first_k + f, z.k - 1);  // the last one again where there is none
                            part[f] += value * w[((k * z.c + c) * z.r + a0 + a) * z.s + b0 + b];
                        }
                    }
            }
#pragma unroll
        for (int f = 0; f < FILTERS; f++) sum[f] += part[f];
    }
    const int row = first_row + threadIdx.y, column = first_column + threadIdx.x;
    if (row < z.p && column < z.q)
        for (int f = 0; f < FILTERS && first_k + f < z.k; f++)
            y[((n * z.k + first_k + f) * z.p + row) * z.q + column] = sum[f];
}

// columns[n][(c, a, b)][(i, j)] = x[first + n][c][i * stride + a - padding][j * stride + b - padding], 0 outside, for
// `images` images. One thread an element; threads walk by the size of the grid.
extern "C" __global__ void im2col(const float *__restrict__ x, float *__restrict__ columns, Sizes z, int first,
                                  int images) {
    const long long total = (long long)images * z.c * z.r * z.s * z.p * z.q;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const int pixel = i % (z.p * z.q);
        const long long line = i / (z.p * z.q);  // (n, c, a, b)
        const int b = line % z.s, a = line / z.s % z.r;
        const int channel = line / (z.s * z.r);  // (n, c)
        const int row = pixel / z.q * z.stride + a - z.padding, column = pixel % z.q * z.stride + b - z.padding;
        const bool inside = row >= 0 && row < z.h && column >= 0 && column < z.w;
        columns[i] = inside ? x[((first * z.c + channel) * z.h + row) * z.w + column] : 0.0f;
    }
}

// Matrix products c[first + i] = a b[i], all row-major: a is m x l, b[i] l x n, c[i] m x n. A block computes SIDE x SIDE
// of one product, DEPTH of l at a time, through shared memory; a thread WIDTH x WIDTH of it, in 4 x 4 pieces 64 apart.
// While it works on one slice, the next is on its way in registers. Grid: tiles along n, along m, products, all in x.
#ifndef SIDE
#define SIDE 128  // or 64
#endif
#define DEPTH 8
#define GEMM_THREADS 256
#define LOADS (SIDE * DEPTH / GEMM_THREADS)
#define WIDTH (SIDE / 16)

extern "C" __global__ void __launch_bounds__(GEMM_THREADS)
gemm(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int m, int n, int l, int first) {
    __shared__ __align__(16) float slice_a[2][DEPTH][SIDE + 4];  // the columns of a; padded: written across
    __shared__ __align__(16) float slice_b[2][DEPTH][SIDE];
    const int across = (n + SIDE - 1) / SIDE, down = (m + SIDE - 1) / SIDE;
    const int left = blockIdx.x % across * SIDE, top = blockIdx.x / across % down * SIDE;
    const int product = blockIdx.x / across / down;
    b += (long long)product * l * n;
    c += (long long)(first + product) * m * n;
    const int t = threadIdx.x;
    const int row = t / 16 * 4, column = t % 16 * 4;

    float next_a[LOADS], next_b[LOADS];
    auto load = [&](int start) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int at = t + i * GEMM_THREADS;
            const int a_row = top + at / DEPTH, a_column = start + at % DEPTH;
            next_a[i] = a_row < m && a_column < l ? a[(long long)a_row * l + a_column] : 0.0f;
            const int b_row = start + at / SIDE, b_column = left + at % SIDE;
            next_b[i] = b_row < l && b_column < n ? b[(long long)b_row * n + b_column] : 0.0f;
        }
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int at = t + i * GEMM_THREADS;
            slice_a[buffer][at % DEPTH][at / DEPTH] = next_a[i];
            slice_b[buffer][at / SIDE][at % SIDE] = next_b[i];
        }
    };

    float sum[WIDTH][WIDTH] = {};
    load(0);
    store(0);
    __syncthreads();
    for (int start = 0, buffer = 0; start < l; start += DEPTH, buffer ^= 1) {
        const bool more = start + DEPTH < l;
        if (more) load(start + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            __align__(16) float u[WIDTH], v[WIDTH];
#pragma unroll
            for (int i = 0; i < WIDTH; i += 4) {
                *(float4 *)&u[i] = *(const float4 *)&slice_a[buffer][d][row + i * 16];
                *(float4 *)&v[i] = *(const float4 *)&slice_b[buffer][d][column + i * 16];
            }
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sum[i][j] += u[i] * v[j];
        }
        if (more) store(buffer ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            const int at_row = top + row + i / 4 * 64 + i % 4, at_column = left + column + j / 4 * 64 + j % 4;
            if (at_row < m && at_column < n) c[(long long)at_row * n + at_column] = sum[i][j];
        }
}
