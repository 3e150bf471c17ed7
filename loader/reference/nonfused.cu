// Winograd's F(4x4,3x3) in four steps through global memory (Yan, Wang, Chu 2020, section 8.1). All arrays are float32: x is
// N, C, H, W; w is K, C, 3, 3; y is N, K, P, Q. A tile is 4 x 4 outputs of one image, made from 6 x 6 inputs; tiles are
// counted along rows, then down, then by image. Of each tile and each filter there are 36 numbers:
//
//     U = B' d B for each channel and tile    36, C, T     one thread each
//     V = G g G' for each filter and channel  36, C, K     one thread each
//     M = sum over C of V U                   36, K, T     36 matrix products
//     y = A' M A for each filter and tile                  one thread each
//
// C, K and T are filled up with zeros to whole blocks of the product: padded_c, padded_k, padded_t.
// The points of interpolation are 0, 1, -1, 2, -2 and infinity.

struct Sizes {
    int n, c, h, w, k, padding, p, q, tiles_x, tiles_y, padded_c, padded_k, padded_t;
};

// B' of six values, in place.
__device__ __forceinline__ void input(float &a, float &b, float &c, float &d, float &e, float &f) {
    const float even = e - 4 * c, odd = d - 4 * b, even2 = e - c, odd2 = 2 * (d - b);
    a = 4 * a - 5 * c + e;
    f = 4 * b - 5 * d + f;
    b = even + odd;
    c = even - odd;
    d = even2 + odd2;
    e = even2 - odd2;
}

// A' of six values: four remain.
__device__ __forceinline__ void output(float &a, float &b, float &c, float &d, const float e, const float f) {
    const float sum = b + c, difference = b - c, sum2 = d + e, difference2 = d - e;
    a = a + sum + sum2;
    b = difference + 2 * difference2;
    c = sum + 4 * sum2;
    d = difference + 8 * difference2 + f;
}

// G of three values: six come of them.
__device__ __forceinline__ void filter(const float a, const float b, const float c, float *to, int step) {
    const float ends = (a + c) * (1.f / 6), ends4 = a * (1.f / 24) + c * (1.f / 6);
    to[0] = a * .25f;
    to[step] = -ends - b * (1.f / 6);
    to[2 * step] = -ends + b * (1.f / 6);
    to[3 * step] = ends4 + b * (1.f / 12);
    to[4 * step] = ends4 - b * (1.f / 12);
    to[5 * step] = c;
}

extern "C" __global__ void nonfused_input(const float *__restrict__ x, float *__restrict__ u, Sizes z) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long plane = (long long)z.padded_c * z.padded_t;
    if (i >= plane) return;
    const int tile = i % z.padded_t, c = i / z.padded_t;
    const int column = tile % z.tiles_x * 4 - z.padding, row = tile / z.tiles_x % z.tiles_y * 4 - z.padding;
    const int n = tile / z.tiles_x / z.tiles_y;
    const bool real = c < z.c && n < z.n;
    const float *image = x + ((long long)n * z.c + c) * z.h * z.w;
    float d[6][6];
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = 0; b < 6; b++) {
            const int at_row = row + a, at_column = column + b;
            const bool inside = real && at_row >= 0 && at_row < z.h && at_column >= 0 && at_column < z.w;
            d[a][b] = inside ? image[at_row * z.w + at_column] : 0;
        }
#pragma unroll
    for (int a = 0; a < 6; a++) input(d[a][0], d[a][1], d[a][2], d[a][3], d[a][4], d[a][5]);
#pragma unroll
    for (int b = 0; b < 6; b++) input(d[0][b], d[1][b], d[2][b], d[3][b], d[4][b], d[5][b]);
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = 0; b < 6; b++) u[(a * 6 + b) * plane + i] = d[a][b];
}

extern "C" __global__ void nonfused_filter(const float *__restrict__ w, float *__restrict__ v, Sizes z) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long plane = (long long)z.padded_c * z.padded_k;
    if (i >= plane) return;
    const int k = i % z.padded_k, c = i / z.padded_k;
    const bool real = c < z.c && k < z.k;
    const float *from = w + ((long long)k * z.c + c) * 9;
    float g[9], rows[6][3], all[6][6];
#pragma unroll
    for (int a = 0; a < 9; a++) g[a] = real ? from[a] : 0;
#pragma unroll
    for (int b = 0; b < 3; b++) filter(g[b], g[3 + b], g[6 + b], &rows[0][b], 3);
#pragma unroll
    for (int a = 0; a < 6; a++) filter(rows[a][0], rows[a][1], rows[a][2], all[a], 1);
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = 0; b < 6; b++) v[(a * 6 + b) * plane + i] = all[a][b];
}

// A block makes 64 rows (k) x 128 columns (tiles) of one of the 36 products with 128 threads, 8 x 8 each: two groups of
// four columns, 64 apart, and two of four rows, 32 apart, so that shared memory is read without conflicts. Two buffers:
// while one is worked on, the next 8 channels come. Grid: columns, rows, point.
#define ROWS 64
#define COLUMNS 128
#define DEPTH 8

extern "C" __global__ void __launch_bounds__(128) nonfused_product(const float *__restrict__ v,
                                                                   const float *__restrict__ u, float *__restrict__ m,
                                                                   Sizes z) {
    __shared__ float4 rows[2][DEPTH][ROWS / 4], columns[2][DEPTH][COLUMNS / 4];
    const int thread = threadIdx.x, point = blockIdx.z;
    const int x = thread % 16, y = thread / 16;  // of the thread's 8 x 8
    // what it loads: one float4 of v and two of u for every 8 channels
    const float *from_v = v + (long long)point * z.padded_c * z.padded_k + blockIdx.y * ROWS;
    const float *from_u = u + (long long)point * z.padded_c * z.padded_t + (long long)blockIdx.x * COLUMNS;
    from_v += (long long)(thread / 16) * z.padded_k + thread % 16 * 4;
    from_u += (long long)(thread / 32) * z.padded_t + thread % 32 * 4;
    const long long step_v = (long long)DEPTH * z.padded_k, half_u = 4LL * z.padded_t, step_u = 2 * half_u;

    rows[0][thread / 16][thread % 16] = *(const float4 *)from_v;
    columns[0][thread / 32][thread % 32] = *(const float4 *)from_u;
    columns[0][thread / 32 + 4][thread % 32] = *(const float4 *)(from_u + half_u);
    __syncthreads();

    float sum[8][8] = {};
    int now = 0;
    for (int c = DEPTH; c <= z.padded_c; c += DEPTH) {
        const bool more = c < z.padded_c;
        float4 next_v, next_u, next_u4;
        if (more) {
            from_v += step_v;
            from_u += step_u;
            next_v = *(const float4 *)from_v;
            next_u = *(const float4 *)from_u;
            next_u4 = *(const float4 *)(from_u + half_u);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float a[8], b[8];
            *(float4 *)a = rows[now][d][y];
            *(float4 *)(a + 4) = rows[now][d][y + 8];
            *(float4 *)b = columns[now][d][x];
            *(float4 *)(b + 4) = columns[now][d][x + 16];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += a[i] * b[j];
        }
        now ^= 1;
        if (more) {
            rows[now][thread / 16][thread % 16] = next_v;
            columns[now][thread / 32][thread % 32] = next_u;
            columns[now][thread / 32 + 4][thread % 32] = next_u4;
        }
        __syncthreads();
    }
    float *to = m + ((long long)point * z.padded_k + blockIdx.y * ROWS) * z.padded_t + (long long)blockIdx.x * COLUMNS;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int row = y * 4 + i % 4 + i / 4 * 32;
        *(float4 *)(to + (long long)row * z.padded_t + x * 4) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        *(float4 *)(to + (long long)row * z.padded_t + x * 4 + 64) =
            make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}

extern "C" __global__ void nonfused_output(const float *__restrict__ m, float *__restrict__ y, Sizes z) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int tiles = z.n * z.tiles_x * z.tiles_y;
    if (i >= (long long)z.k * tiles) return;
    const int tile = i % tiles, k = i / tiles;
    const int column = tile % z.tiles_x * 4, row = tile / z.tiles_x % z.tiles_y * 4, n = tile / z.tiles_x / z.tiles_y;
    float s[6][6];
#pragma unroll
    for (int a = 0; a < 6; a++)
#pragma unroll
        for (int b = 0; b < 6; b++) s[a][b] = m[((long long)(a * 6 + b) * z.padded_k + k) * z.padded_t + tile];
#pragma unroll
    for (int b = 0; b < 6; b++) output(s[0][b], s[1][b], s[2][b], s[3][b], s[4][b], s[5][b]);
    float *to = y + ((long long)n * z.k + k) * z.p * z.q;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        output(s[a][0], s[a][1], s[a][2], s[a][3], s[a][4], s[a][5]);
#pragma unroll
        for (int b = 0; b < 4; b++)
            if (row + a < z.p && column + b < z.q) to[(row + a) * z.q + column + b] = s[a][b];
    }
}
