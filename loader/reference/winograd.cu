// Fused Winograd convolution F(2x2,3x3) in single precision: Yan, Wang, Chu 2020 (sections 3 and 4), and the layouts of the
// output transform of the papers on openCNN. Stride 1, filters 3x3, any padding, any shape.
//
//   input  x (C,H,W,N)    filter w (C,3,3,K)    transformed filter u (C',4,4,K')    output y (K,P,Q,N)
//
// C' and K' are C and K rounded up to 8 and 64; what is beyond C and K is zero. A tile is 4x4 of the input and 2x2 of
// the output; tiles are numbered (row, column, image), the image last, so that 32 neighbours read and write
// contiguously. A block of 256 threads makes 64 filters x 32 tiles; grid: tiles / 32 * K' / 64, those of the same tiles
// together.
//
// OUTPUT says how the 16 products of a tile, which 8 warps hold, come together for the output transform.

#define BASELINE 0       // Yan, Wang, Chu 2020: STS.128 of half the lanes, rows of 32 tiles and 8 of padding; LDS.32, STG.32
#define STS64 1          // openCNN, figure 7: STS.64 of all lanes, rows of 2x16 and 4 of padding; LDS.32, STG.64
#define STS64_COMPACT 2  // openCNN, figure 8: the same with rows turned instead of padded; two buffers, one barrier a round
#define LDS64 3          // openCNN, figure 13: as STS64, read with LDS.64 (two lanes of a half-warp share each bank)
#ifndef OUTPUT
#define OUTPUT BASELINE
#endif

constexpr int BK = 64, BN = 32, BC = 8;             // filters, tiles and channels that a block takes at a time
constexpr int FILTER = 16 * BC * BK;                // floats of the buffers in shared memory: (16, BC, BK)
constexpr int INPUT = 16 * BC * BN;                 // (16, BC, BN)
constexpr int ROWS = 16, ROUNDS = BK / ROWS;        // the output transform takes 16 filters a round
constexpr int ROW = OUTPUT == BASELINE ? 40 : OUTPUT == STS64_COMPACT ? 32 : 36;  // floats from row to row
constexpr int ROUND = 16 * ROWS * ROW;              // floats of a round
constexpr int SHARED = OUTPUT == STS64_COMPACT ? 2 * ROUND : FILTER + INPUT;      // 48 KB, or 64 KB
static_assert(ROUND <= SHARED, "a round fits into shared memory");

// (K,3,3) filters as they are kept elsewhere, (K,C,3,3), to (C,3,3,K). One thread an element of the result.
extern "C" __global__ void winograd_crsk(const float* kcrs, float* crsk, int C, int K) {
    const long long i = blockIdx.x * 256ll + threadIdx.x, ckrs = i / K;
    if (i < 9ll * C * K) crsk[i] = kcrs[(i % K) * 9ll * C + ckrs];
}

// u = G w G^T. Grid C' / 8 * K' / 64, 256 threads: a warp takes a channel, a thread two filters.
extern "C" __global__ void __launch_bounds__(256) winograd_filter(const float* w, float* u, int C, int K) {
    const unsigned blocks = (K + BK - 1) / BK;
    const int c = blockIdx.x / blocks * BC + (threadIdx.x >> 5);
    const long long columns = blocks * BK;
    for (int half = 0; half < 2; ++half) {
        const int k = blockIdx.x % blocks * BK + half * 32 + (threadIdx.x & 31);
        const bool inside = c < C && k < K;
        float g[3][3], t[4][3];
        for (int i = 0; i < 9; ++i) g[i / 3][i % 3] = inside ? w[(9ll * c + i) * K + k] : 0.f;
        for (int s = 0; s < 3; ++s) {
            t[0][s] = g[0][s];
            t[1][s] = 0.5f * (g[0][s] + g[2][s] + g[1][s]);
            t[2][s] = 0.5f * (g[0][s] + g[2][s] - g[1][s]);
            t[3][s] = g[2][s];
        }
        float* const to = u + 16ll * c * columns + k;
        for (int r = 0; r < 4; ++r) {
            to[(4 * r + 0) * columns] = t[r][0];
            to[(4 * r + 1) * columns] = 0.5f * (t[r][0] + t[r][2] + t[r][1]);
            to[(4 * r + 2) * columns] = 0.5f * (t[r][0] + t[r][2] - t[r][1]);
            to[(4 * r + 3) * columns] = t[r][2];
        }
    }
}

// Row i of a 4x4 tile; bit 4*i+j of mask says whether its element in column j is inside the image.
__device__ __forceinline__ void load_row(float (&d)[16], int i, const float* x, unsigned mask, unsigned row,
                                         unsigned column) {
    const float* from = x + (unsigned long long)row * i;
#pragma unroll
    for (int j = 0; j < 4; ++j, from += column) {
        d[4 * i + j] = 0.f;
        if (mask >> (4 * i + j) & 1) d[4 * i + j] = *from;
    }
}

// B^T d B: 32 additions.
__device__ __forceinline__ void transform_input(float (&d)[16]) {
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
        const int step = pass ? 1 : 4, line = pass ? 4 : 1;  // down the columns, then along the rows
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float* const v = d + i * line;
            const float a = v[0], b = v[step], c = v[2 * step], e = v[3 * step];
            v[0] = a - c;
            v[step] = b + c;
            v[2 * step] = c - b;
            v[3 * step] = b - e;
        }
    }
}

// A^T m A: 24 additions.
__device__ __forceinline__ void transform_output(const float (&m)[16], float (&o)[4]) {
    float t[8];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        t[j] = m[j] + m[4 + j] + m[8 + j];
        t[4 + j] = m[4 + j] - m[8 + j] - m[12 + j];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        o[2 * i] = t[4 * i] + t[4 * i + 1] + t[4 * i + 2];
        o[2 * i + 1] = t[4 * i + 1] - t[4 * i + 2] - t[4 * i + 3];
    }
}

// Where a tile's 2x2 outputs begin in a filter's (P,Q,N), and which of the four there are.
struct Place {
    long long offset;
    bool here, below, right;
};

__device__ __forceinline__ Place place(unsigned tile, int N, int P, int Q) {
    const unsigned across = (Q + 1) / 2, down = (P + 1) / 2;
    const unsigned image = tile % N, column = tile / N % across, row = tile / N / across;
    return {(2ll * row * Q + 2 * column) * N + image, row < down, 2 * row + 1 < P, 2 * column + 1 < Q};
}

__device__ __forceinline__ void store(float* y, Place at, const float (&o)[4], int N, int Q) {
    if (!at.here) return;
    float* const to = y + at.offset;
    float* const below = to + (long long)Q * N;
    to[0] = o[0];
    if (at.right) to[N] = o[1];
    if (at.below) below[0] = o[2];
    if (at.below && at.right) below[N] = o[3];
}

// The same for two images of one place.
__device__ __forceinline__ void store_two(float* y, Place at, const float (&o)[4], const float (&next)[4], int N,
                                          int Q) {
    if (!at.here) return;
    float* const to = y + at.offset;
    float* const below = to + (long long)Q * N;
    *reinterpret_cast<float2*>(to) = make_float2(o[0], next[0]);
    if (at.right) *reinterpret_cast<float2*>(to + N) = make_float2(o[1], next[1]);
    if (at.below) *reinterpret_cast<float2*>(below) = make_float2(o[2], next[2]);
    if (at.below && at.right) *reinterpret_cast<float2*>(below + N) = make_float2(o[3], next[3]);
}

extern "C" __global__ void __launch_bounds__(256, 1)
winograd(const float* __restrict__ x, const float* __restrict__ u, float* __restrict__ y, int N, int C, int H, int W,
         int K, int padding) {
    extern __shared__ float4 shared4[];
    float* const shared = reinterpret_cast<float*>(shared4);
    float* const filters = shared;          // (16, BC, BK)
    float* const inputs = shared + FILTER;  // (16, BC, BN)

    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int P = H + 2 * padding - 2, Q = W + 2 * padding - 2;
    const unsigned blocks = (K + BK - 1) / BK, first_k = blockIdx.x % blocks * BK, first = blockIdx.x / blocks * BN;

    // This thread's tile of the input: image and place are its lane's, the channel is its warp's.
    const unsigned across = (Q + 1) / 2, tile = first + lane;
    const int top = tile / N / across * 2 - padding, left = tile / N % across * 2 - padding;
    const unsigned pitch = W * N;
    const long long plane = (long long)H * pitch;
    unsigned inside = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int h = top + i / 4, w = left + i % 4;
        if (h >= 0 && h < H && w >= 0 && w < W && top < P) inside |= 1u << i;
    }
    const float* from_x = x + warp * plane + (long long)top * pitch + (long long)left * N + tile % N;

    // This thread's part of the filters: for each of the 8 channels 4 neighbours of one of the 16 elements.
    const unsigned columns = blocks * BK;  // less than 2^25
    const float* from_u = u + (threadIdx.x >> 4) * columns + first_k + (threadIdx.x & 15) * 4;
    float* const to_filters = filters + (threadIdx.x >> 4) * (BC * BK) + (threadIdx.x & 15) * 4;
    float* const to_inputs = inputs + warp * BN + lane;

    // Figure 3 of Yan, Wang, Chu 2020: where a lane's filters and tiles begin; 4 there and 4 half a row farther.
    const int my_filter = (lane & 15) / 2 * 4, my_tile = (lane & 1) * 4 + lane / 16 * 8;
    const float* const read_filters = filters + 2 * warp * (BC * BK) + my_filter;
    const float* const read_inputs = inputs + 2 * warp * (BC * BN) + my_tile;

    float d[16];              // the tile to come
    float4 f[BC];             // the filters to come
    float sum[2][8][8] = {};  // two elements of the tiles: 8 filters x 8 tiles
    float a[2][2][8], b[2][2][8];  // filters and tiles of this channel and the next

#pragma unroll
    for (int i = 0; i < 4; ++i) load_row(d, i, from_x, warp < C ? inside : 0, pitch, N);
#pragma unroll
    for (int c = 0; c < BC; ++c) f[c] = *reinterpret_cast<const float4*>(from_u + 16 * c * columns);

    for (int channel = 0; channel < C; channel += BC) {
        transform_input(d);
        if (channel) __syncthreads();
#pragma unroll
        for (int e = 0; e < 16; ++e) to_inputs[e * (BC * BN)] = d[e];
#pragma unroll
        for (int c = 0; c < BC; ++c) *reinterpret_cast<float4*>(to_filters + c * BK) = f[c];
        __syncthreads();

        auto fetch = [&](int c) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float4 p = *reinterpret_cast<const float4*>(read_filters + (e * BC + c) * BK + half * 32);
                    const float4 q = *reinterpret_cast<const float4*>(read_inputs + (e * BC + c) * BN + half * 16);
                    float* const to_a = a[c & 1][e] + 4 * half;
                    float* const to_b = b[c & 1][e] + 4 * half;
                    to_a[0] = p.x, to_a[1] = p.y, to_a[2] = p.z, to_a[3] = p.w;
                    to_b[0] = q.x, to_b[1] = q.y, to_b[2] = q.z, to_b[3] = q.w;
                }
        };
        fetch(0);
        from_x += BC * plane;
        from_u += channel + BC < C ? BC * 16 * columns : 0;  // after the last channels nothing new is read, or used
        const unsigned mask = channel + BC + warp < C ? inside : 0;
#pragma unroll
        for (int c = 0; c < BC; ++c) {
            if (c + 1 < BC) fetch(c + 1);
            if (c < 4) load_row(d, c, from_x, mask, pitch, N);
            f[c] = *reinterpret_cast<const float4*>(from_u + 16 * c * columns);
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int i = 0; i < 8; ++i)
#pragma unroll
                    for (int j = 0; j < 8; ++j) sum[e][i][j] += a[c & 1][e][i] * b[c & 1][e][j];
        }
    }

    // The output transform, in four rounds of 16 filters. A round's buffer: (16 elements, ROWS or 2 x ROWS / 2, ROW).
    const long long size = (long long)P * Q * N;
    const int some = K - first_k;  // filters from here on
    float* const out = y + first_k * size;
    const int group = (lane & 15) / 2;     // 8 groups of 4 filters, and as many 32 filters farther

#if OUTPUT == BASELINE
    const Place at = place(tile, N, P, Q);
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {  // filters from 16 * round on: four groups, half of the lanes
        const int far = round / 2;                  // 0: the nearer 32 filters, 1: the farther
        __syncthreads();
        if (group / 4 == round % 2) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const float* const v = sum[e][4 * far + i] + 4 * half;
                        float* const to = shared + ((2 * warp + e) * ROWS + i * 4 + group % 4) * ROW + my_tile;
                        *reinterpret_cast<float4*>(to + 16 * half) = make_float4(v[0], v[1], v[2], v[3]);
                    }
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // a warp takes a row, all tiles of one filter, and then another
            const int row = half * 8 + warp, k = 16 * round + row % 4 * 4 + row / 4;
            float m[16], o[4];
#pragma unroll
            for (int e = 0; e < 16; ++e) m[e] = shared[(e * ROWS + row) * ROW + lane];
            transform_output(m, o);
            if (k < some) store(out + k * size, at, o, N, Q);
        }
    }
#else
    // Each lane stores two of its four filters in a round, two tiles at a time: the float4 of four tiles is parted into
    // two float2, in an upper and a lower matrix. A row of either: 16 cells of 8 bytes, 8 for a filter of the groups 0
    // to 3, 8 for the one four groups farther. Tile 4 * cell + t of a filter is in the upper matrix for
    // t = 0, 2 (STS64: a lane that reads one float of either then holds two neighbours) or t = 0, 1 (LDS64).
    constexpr bool WIDE = OUTPUT == LDS64, TURNED = OUTPUT == STS64_COMPACT;
    constexpr int LOWER = ROWS / 2 * ROW;  // floats from the upper to the lower matrix
    auto transpose = [&](int round, float* buffer) {
        const int far = round / 2, pair = round % 2 * 2, line = group % 4;
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float* const v = sum[e][4 * far + pair + i] + 4 * half;
                    int cell = group / 4 * 8 + my_tile / 4 + half * 4;
                    if (TURNED) cell = (cell + 2 * line) % 16;
                    float* const to = buffer + ((2 * warp + e) * ROWS + i * 4 + line) * ROW + 2 * cell;
                    *reinterpret_cast<float2*>(to) = WIDE ? make_float2(v[0], v[1]) : make_float2(v[0], v[2]);
                    *reinterpret_cast<float2*>(to + LOWER) = WIDE ? make_float2(v[2], v[3]) : make_float2(v[1], v[3]);
                }
    };
    // A warp transforms one row of both matrices: a half-warp a filter, a lane two neighbouring tiles.
    const int line = warp % 4, side = lane / 16, mine = lane % 16;
    const Place at = place(first + 2 * mine, N, P, Q), next = place(first + 2 * mine + 1, N, P, Q);
    auto transform = [&](int round, const float* buffer) {
        const int k = round / 2 * 32 + (line + 4 * side) * 4 + round % 2 * 2 + warp / 4;
        int cell = side * 8 + mine / 2;
        if (TURNED) cell = (cell + 2 * line) % 16;
        const float* const from = buffer + warp * ROW + 2 * cell + (WIDE ? mine % 2 * LOWER : mine % 2);
        float m[2][16], o[2][4];
#pragma unroll
        for (int e = 0; e < 16; ++e) {
            if (WIDE) {
                const float2 v = *reinterpret_cast<const float2*>(from + e * ROWS * ROW);
                m[0][e] = v.x, m[1][e] = v.y;
            } else {
                m[0][e] = from[e * ROWS * ROW];
                m[1][e] = from[e * ROWS * ROW + LOWER];
            }
        }
        transform_output(m[0], o[0]);
        transform_output(m[1], o[1]);
        if (k >= some) return;
        if (N % 2 == 0) {  // both are of one place, and a float2 is aligned
            store_two(out + k * size, at, o[0], o[1], N, Q);
        } else {
            store(out + k * size, at, o[0], N, Q);
            store(out + k * size, next, o[1], N, Q);
        }
    };
    __syncthreads();
    if (TURNED) {  // while one buffer is transformed the other is filled
        transpose(0, shared);
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            __syncthreads();
            if (round + 1 < ROUNDS) transpose(round + 1, shared + (round + 1) % 2 * ROUND);
            transform(round, shared + round % 2 * ROUND);
        }
    } else {
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            if (round) __syncthreads();
            transpose(round, shared);
            __syncthreads();
            transform(round, shared);
        }
    }
#endif
}
