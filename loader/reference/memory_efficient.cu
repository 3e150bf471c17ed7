// Memory-efficient direct convolution (Chen et al. 2017): x[N][C][H][W] * w[K][C][R][S] -> y[N][K][P][Q], float32 sums.
//
// Compiled once for each configuration; memory_efficient.py defines these macros and says which of them fit together:
//   SINGLE                    1: the kernel for one input channel (section 3); 0: the general one (section 4)
//   HALF                      0: pixels are float; 1: pixels (and, in the general kernel, filters) are half
//   UNIT                      n of the paper: how many neighbouring values a thread reads, writes and computes as one
//   FILTER_R, FILTER_S        filter's height and width
//   STRIDE
//   TILE_H, TILE_W            H and W of the paper: outputs of a block
//   WIDE_LOADS, WIDE_STORES   1: rows of x (of y) are whole units
//   LEAD                      pixels between a tile row's first unit and its first pixel; 0 unless WIDE_LOADS
// for the kernel for one channel
//   FILTER_VALUES             values of filters that a launch takes
// and for the general kernel
//   TILE_K, TILE_C            F_TB filters of a block; C_SH channels in shared memory at a time
//   THREAD_Q, THREAD_K        W_T pixels and F_T filters of a thread
//   CHUNK_R, CHUNK_S          rows and columns of the filter in shared memory at a time: all, but for large filters

#if HALF
using Data = unsigned short;  // the bits of a half

__device__ __forceinline__ float value(Data bits) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(bits));
    return result;
}
#else
using Data = float;

__device__ __forceinline__ float value(Data number) { return number; }
#endif

template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT) Group {
    T item[COUNT];
};
using Unit = Group<Data, UNIT>;                    // what goes between shared memory and registers at once
using Piece = Group<Data, WIDE_LOADS ? UNIT : 1>;  // what goes from global to shared memory at once
constexpr int PIECE = WIDE_LOADS ? UNIT : 1;

__host__ __device__ constexpr int up(int number, int by) { return (number + by - 1) / by; }

// Arrays in shared memory begin at 16 bytes and end there: three floats that a thread wants of an aligned 16 bytes, the
// compiler reads as four.
constexpr int WIDEST = 16;
__host__ __device__ constexpr int whole(int number, int size) { return up(number * size, WIDEST) * WIDEST / size; }

struct Shape {
    int c, h, w, k, p, q, padding;
};

// The piece of x's plane that begins at (row, column); zero outside.
__device__ __forceinline__ Piece pixels(const Data* plane, const Shape& shape, int row, int column) {
    Piece piece = {};
    if (row >= 0 && row < shape.h && column >= 0 && column < shape.w)
        piece = *reinterpret_cast<const Piece*>(plane + (long long)row * shape.w + column);
    return piece;
}

// COUNT units of shared memory, without the LEAD pixels before the first one that is used.
template <int COUNT>
__device__ __forceinline__ void read_row(float (&row)[COUNT], const Data* from) {
    const Unit* units = reinterpret_cast<const Unit*>(from);
#pragma unroll
    for (int u = 0; u < up(LEAD + COUNT, UNIT); ++u) {
        Unit unit = units[u];
#pragma unroll
        for (int j = 0; j < UNIT; ++j) {
            int place = u * UNIT + j - LEAD;
            if (place >= 0 && place < COUNT) row[place] = value(unit.item[j]);
        }
    }
}

// COUNT neighbouring outputs of one row, `room` of which are inside y.
template <int COUNT>
__device__ __forceinline__ void write_row(float* to, const float (&row)[COUNT], int room) {
#if WIDE_STORES
#pragma unroll
    for (int u = 0; u < COUNT; u += UNIT) {
        if (u >= room) break;
        Group<float, UNIT> unit;
#pragma unroll
        for (int j = 0; j < UNIT; ++j) unit.item[j] = row[u + j];
        *reinterpret_cast<Group<float, UNIT>*>(to + u) = unit;
    }
#else
#pragma unroll
    for (int u = 0; u < COUNT; ++u)
        if (u < room) to[u] = row[u];
#endif
}

#if SINGLE

// Algorithm 1. Block: TILE_W / UNIT threads, each computes UNIT neighbouring outputs in each of TILE_H rows, for all
// filters. Grid: tiles of y (across, then down, then over the images).
//
// FILTER_R rows of x are in shared memory. Each row is read from global memory once and from shared memory once: it
// stays in the thread's registers until the window has moved past it.

constexpr int THREADS = TILE_W / UNIT;
constexpr int SPAN = (UNIT - 1) * STRIDE + FILTER_S;  // pixels of a row that a thread's outputs need
constexpr int PITCH = (TILE_W - UNIT) * STRIDE + up(LEAD + SPAN, UNIT) * UNIT;
constexpr int NEW = STRIDE < FILTER_R ? STRIDE : FILTER_R;  // rows that enter the window with each output row
constexpr int KEPT = FILTER_R - NEW;
constexpr int ROW_PIECES = PITCH / PIECE;
constexpr int PIECES = whole(FILTER_R * ROW_PIECES, sizeof(Piece));
constexpr int LOADS = up(NEW * ROW_PIECES, THREADS);

struct Filters {  // a kernel parameter lives in constant memory
    float value[FILTER_VALUES];
};

// count filters of `filters` go to y's channels first, first + 1, ...
extern "C" __global__ void __launch_bounds__(THREADS)
memory_efficient_single(const Data* x, float* y, const __grid_constant__ Shape shape, int first, int count,
                        const __grid_constant__ Filters filters) {
    __shared__ alignas(WIDEST) Piece tile[PIECES];
    const int thread = threadIdx.x;
    const int across = up(shape.q, TILE_W), down = up(shape.p, TILE_H);
    const int q0 = blockIdx.x % across * TILE_W, p0 = blockIdx.x / across % down * TILE_H;
    const int image = blockIdx.x / across / down;
    const int left = q0 * STRIDE - shape.padding - LEAD, top = p0 * STRIDE - shape.padding;
    const int rows = min(TILE_H, shape.p - p0);
    const int q = q0 + thread * UNIT;
    x += (long long)image * shape.h * shape.w;
    y += ((long long)image * shape.k + first) * shape.p * shape.q + (long long)p0 * shape.q + q;
    const Data* own = reinterpret_cast<const Data*>(tile) + thread * UNIT * STRIDE;

    for (int e = thread; e < PIECES; e += THREADS)
        tile[e] = pixels(x, shape, top + e / ROW_PIECES, left + e % ROW_PIECES * PIECE);
    __syncthreads();
    float window[FILTER_R][SPAN];
#pragma unroll
    for (int r = 0; r < KEPT; ++r) read_row(window[r + NEW], own + r * PITCH);

#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
        Piece next[LOADS];
        const bool more = row + 1 < rows;
        if (more) {
            const int from = top + (row + 1) * STRIDE + KEPT;
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                int e = thread + i * THREADS;
                if (e < NEW * ROW_PIECES)
                    next[i] = pixels(x, shape, from + e / ROW_PIECES, left + e % ROW_PIECES * PIECE);
            }
        }
#pragma unroll
        for (int r = 0; r < FILTER_R; ++r) {  // the window moves down
            if (r >= KEPT) {
                read_row(window[r], own + r * PITCH);
            } else {
#pragma unroll
                for (int s = 0; s < SPAN; ++s) window[r][s] = window[r + NEW][s];
            }
        }
#pragma unroll 1
        for (int f = 0; f < count; ++f) {
            float sum[UNIT] = {};
#pragma unroll
            for (int r = 0; r < FILTER_R; ++r)
#pragma unroll
                for (int s = 0; s < FILTER_S; ++s) {
                    float weight = filters.value[(f * FILTER_R + r) * FILTER_S + s];
#pragma unroll
                    for (int j = 0; j < UNIT; ++j) sum[j] += weight * window[r][j * STRIDE + s];
                }
            write_row(y + ((long long)f * shape.p + row) * shape.q, sum, shape.q - q);
        }
        __syncthreads();
        if (more) {
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                int e = thread + i * THREADS;
                if (e < NEW * ROW_PIECES) tile[KEPT * ROW_PIECES + e] = next[i];
            }
        }
        __syncthreads();
    }
}

#else

// Algorithm 2. Block: TILE_K / THREAD_K threads along the filters times TILE_H * TILE_W / THREAD_Q along the outputs. A
// thread computes THREAD_Q neighbouring outputs of one row for THREAD_K filters, which are THREAD_K / UNIT units: the
// threads of a warp read neighbouring units of filters, and the same pixels. Grid: groups of TILE_K filters, then tiles
// of y (across, then down, then over the images).
//
// A step takes TILE_C channels and CHUNK_R * CHUNK_S places of the filter through shared memory, while the next step's
// pixels and filters are on their way to registers.

constexpr int THREADS_K = TILE_K / THREAD_K;
constexpr int THREADS = THREADS_K * (TILE_H * TILE_W / THREAD_Q);
constexpr int SPAN = (THREAD_Q - 1) * STRIDE + CHUNK_S;  // pixels of a row that a thread's outputs need
constexpr int ROWS = (TILE_H - 1) * STRIDE + CHUNK_R;
constexpr int PITCH = (TILE_W - THREAD_Q) * STRIDE + up(LEAD + SPAN, UNIT) * UNIT;
constexpr int ROW_PIECES = PITCH / PIECE;
constexpr int PIECES = whole(TILE_C * ROWS * ROW_PIECES, sizeof(Piece));
constexpr int PLACES = TILE_C * CHUNK_R * CHUNK_S;
constexpr int FILTER_PITCH = TILE_K + UNIT;  // the padding of Fig. 6: filters are transposed on their way in
constexpr int FILTER_DATA = whole(PLACES * FILTER_PITCH, sizeof(Data));
constexpr int LOADS = up(PIECES, THREADS), FILTER_LOADS = up(PLACES * TILE_K, THREADS);
constexpr int CHUNKS_R = up(FILTER_R, CHUNK_R), CHUNKS_S = up(FILTER_S, CHUNK_S);

struct Step {
    int c, r, s;  // the first channel, and the first row and column of the filter

    __device__ __forceinline__ explicit Step(int number)
        : c(number / (CHUNKS_R * CHUNKS_S) * TILE_C),
          r(number / CHUNKS_S % CHUNKS_R * CHUNK_R),
          s(number % CHUNKS_S * CHUNK_S) {}
};

__device__ __forceinline__ void load_pixels(Piece (&next)[LOADS], const Data* x, const Shape& shape, int top, int left,
                                            Step step) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int e = threadIdx.x + i * THREADS;
        const int c = step.c + e / (ROWS * ROW_PIECES);
        const int row = top + step.r + e / ROW_PIECES % ROWS, column = left + step.s + e % ROW_PIECES * PIECE;
        next[i] = {};
        if (e < PIECES && c < shape.c) next[i] = pixels(x + (long long)c * shape.h * shape.w, shape, row, column);
    }
}

__device__ __forceinline__ void store_pixels(Piece* tile, const Piece (&next)[LOADS]) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        const int e = threadIdx.x + i * THREADS;
        if (e < PIECES) tile[e] = next[i];
    }
}

__device__ __forceinline__ void load_filters(Data (&next)[FILTER_LOADS], const Data* w, const Shape& shape, int k0,
                                             Step step) {
#pragma unroll
    for (int i = 0; i < FILTER_LOADS; ++i) {
        const int e = threadIdx.x + i * THREADS, place = e % PLACES;
        const int k = k0 + e / PLACES, c = step.c + place / (CHUNK_R * CHUNK_S);
        const int r = step.r + place / CHUNK_S % CHUNK_R, s = step.s + place % CHUNK_S;
        next[i] = 0;
        if (e < PLACES * TILE_K && k < shape.k && c < shape.c && r < FILTER_R && s < FILTER_S)
            next[i] = w[(((long long)k * shape.c + c) * FILTER_R + r) * FILTER_S + s];
    }
}

__device__ __forceinline__ void store_filters(Data* filters, const Data (&next)[FILTER_LOADS]) {
#pragma unroll
    for (int i = 0; i < FILTER_LOADS; ++i) {
        const int e = threadIdx.x + i * THREADS;
        if (e < PLACES * TILE_K) filters[e % PLACES * FILTER_PITCH + e / PLACES] = next[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
memory_efficient(const Data* x, const Data* w, float* y, const __grid_constant__ Shape shape) {
    __shared__ alignas(WIDEST) Piece tile[PIECES];
    __shared__ alignas(WIDEST) Data filters[FILTER_DATA];
    const int groups = up(shape.k, TILE_K), across = up(shape.q, TILE_W), down = up(shape.p, TILE_H);
    const int k0 = blockIdx.x % groups * TILE_K, block = blockIdx.x / groups;
    const int q0 = block % across * TILE_W, p0 = block / across % down * TILE_H, image = block / across / down;
    const int left = q0 * STRIDE - shape.padding - LEAD, top = p0 * STRIDE - shape.padding;
    const int of_filters = threadIdx.x % THREADS_K, of_outputs = threadIdx.x / THREADS_K;
    const int row = of_outputs / (TILE_W / THREAD_Q), column = of_outputs % (TILE_W / THREAD_Q) * THREAD_Q;
    const Data* own_pixels = reinterpret_cast<const Data*>(tile) + row * STRIDE * PITCH + column * STRIDE;
    const Data* own_filters = filters + of_filters * UNIT;
    x += (long long)image * shape.c * shape.h * shape.w;

    float sum[THREAD_K][THREAD_Q] = {};
    Piece next_pixels[LOADS];
    Data next_filters[FILTER_LOADS];
    load_pixels(next_pixels, x, shape, top, left, Step(0));
    load_filters(next_filters, w, shape, k0, Step(0));
    store_pixels(tile, next_pixels);
    store_filters(filters, next_filters);
    __syncthreads();

    const int steps = up(shape.c, TILE_C) * CHUNKS_R * CHUNKS_S;
#pragma unroll 1
    for (int number = 0; number < steps; ++number) {
        const bool more = number + 1 < steps;
        if (more) {
            load_pixels(next_pixels, x, shape, top, left, Step(number + 1));
            load_filters(next_filters, w, shape, k0, Step(number + 1));
        }
#pragma unroll 1
        for (int c = 0; c < TILE_C; ++c)
#pragma unroll 1
            for (int r = 0; r < CHUNK_R; ++r) {
                float pixel[SPAN];
                read_row(pixel, own_pixels + (c * ROWS + r) * PITCH);
#pragma unroll
                for (int s = 0; s < CHUNK_S; ++s) {
                    float filter[THREAD_K];
                    const Data* from = own_filters + ((c * CHUNK_R + r) * CHUNK_S + s) * FILTER_PITCH;
#pragma unroll
                    for (int k = 0; k < THREAD_K; k += UNIT) {
                        Unit unit = *reinterpret_cast<const Unit*>(from + k * THREADS_K);
#pragma unroll
                        for (int j = 0; j < UNIT; ++j) filter[k + j] = value(unit.item[j]);
                    }
#pragma unroll
                    for (int k = 0; k < THREAD_K; ++k)
#pragma unroll
                        for (int q = 0; q < THREAD_Q; ++q) sum[k][q] += filter[k] * pixel[q * STRIDE + s];
                }
            }
        __syncthreads();
        if (more) {
            store_pixels(tile, next_pixels);
            store_filters(filters, next_filters);
        }
        __syncthreads();
    }

    const int p = p0 + row, q = q0 + column;
    if (p >= shape.p) return;
#pragma unroll
    for (int i = 0; i < THREAD_K; ++i) {
        const int k = k0 + (i / UNIT * THREADS_K + of_filters) * UNIT + i % UNIT;
        if (k < shape.k)
            write_row(y + (((long long)image * shape.k + k) * shape.p + p) * shape.q + q, sum[i], shape.q - q);
    }
}

#endif
