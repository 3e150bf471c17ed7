// Tensor cores: wmma, mma.sync of every kind that an architecture has, ldmatrix.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cuda/std/cstdint>
using namespace cuda::std;
using namespace nvcuda;

// d = a b + c, 16 x 16 x 16, one warp a block.
template <typename Sum> __device__ void wmma_product(Sum* d, const __half* a, const __half* b, const Sum* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Sum> fc;
    int at = blockIdx.x * 256;
    wmma::load_matrix_sync(fa, a + at, 16);
    wmma::load_matrix_sync(fb, b + at, 16);
    wmma::load_matrix_sync(fc, c + at, 16, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d + at, fc, 16, wmma::mem_row_major);
}
extern "C" __global__ void wmma_float(float* d, const __half* a, const __half* b, const float* c) { wmma_product(d, a, b, c); }
extern "C" __global__ void wmma_half(__half* d, const __half* a, const __half* b, const __half* c) { wmma_product(d, a, b, c); }

// d = a b, 8 x 32 x 16 in a layout of columns, a and b through shared memory.
extern "C" __global__ void wmma_columns(float* d, const __half* a, const __half* b) {
    __shared__ __half sa[8 * 16], sb[16 * 32];
    for (int i = threadIdx.x; i < 128; i += 32) sa[i] = a[i];
    for (int i = threadIdx.x; i < 512; i += 32) sb[i] = b[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 8, 32, 16, __half, wmma::col_major> fa;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> fc;
    wmma::load_matrix_sync(fa, sa, 8);
    wmma::load_matrix_sync(fb, sb, 32);
    wmma::fill_fragment(fc, 1.f);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2.f;
    wmma::store_matrix_sync(d, fc, 8, wmma::mem_col_major);
}

#if __CUDA_ARCH__ >= 750
// int8: a (16 x 16, rows) b (16 x 16, columns) + c.
extern "C" __global__ void wmma_int8(int* d, const int8_t* a, const int8_t* b, const int* c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> fc;
    wmma::load_matrix_sync(fa, reinterpret_cast<const signed char*>(a), 16);
    wmma::load_matrix_sync(fb, reinterpret_cast<const signed char*>(b), 16);
    wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

// m16n8k8 of halves: the fragments straight from memory, each lane its own part.
extern "C" __global__ void mma_1688(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    int t = threadIdx.x;
    float r[4];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
                 : "r"(a[2 * t]), "r"(a[2 * t + 1]), "r"(b[t]), "f"(c[4 * t]), "f"(c[4 * t + 1]), "f"(c[4 * t + 2]), "f"(c[4 * t + 3]));
    for (int j = 0; j < 4; ++j) d[4 * t + j] = r[j];
}

// m8n8k16 of bytes (row.col), saturating.
extern "C" __global__ void mma_bytes(int* d, const uint32_t* a, const uint32_t* b, const int* c) {
    int t = threadIdx.x, r[2];
    asm volatile("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(a[t]), "r"(b[t]), "r"(c[2 * t]), "r"(c[2 * t + 1]));
    d[2 * t] = r[0];
    d[2 * t + 1] = r[1];
}

// ldmatrix: 1, 2 and 4 matrices of 8 x 8 halves, plain and transposed; every lane gives the address of a row.
extern "C" __global__ void ldmatrix(uint32_t* out, const uint16_t* in) {
    __shared__ __align__(16) uint16_t room[4 * 64];
    int t = threadIdx.x;
    for (int i = t; i < 256; i += 32) room[i] = in[i];
    __syncwarp();
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(room + 8 * ((t * 5 + 3) & 31)));
    uint32_t r[12];
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[1]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[2]), "=r"(r[3]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[8]), "=r"(r[9]), "=r"(r[10]), "=r"(r[11]) : "r"(at));
    for (int j = 0; j < 12; ++j) out[12 * t + j] = r[j];
}
#endif

#if __CUDA_ARCH__ >= 800
// m16n8k16 of halves and of bfloat16, m16n8k8 of TF32: a (4 registers), b (2), sums in place.
extern "C" __global__ void mma_16816(float* d, const uint32_t* a, const uint32_t* b) {
    int t = threadIdx.x;
    float r[4] = {d[4 * t], d[4 * t + 1], d[4 * t + 2], d[4 * t + 3]};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
                 : "r"(a[4 * t]), "r"(a[4 * t + 1]), "r"(a[4 * t + 2]), "r"(a[4 * t + 3]), "r"(b[2 * t]), "r"(b[2 * t + 1]));
    for (int j = 0; j < 4; ++j) d[4 * t + j] = r[j];
}
extern "C" __global__ void mma_bf16(float* d, const uint32_t* a, const uint32_t* b) {
    int t = threadIdx.x;
    float r[4] = {d[4 * t], d[4 * t + 1], d[4 * t + 2], d[4 * t + 3]};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
                 : "r"(a[4 * t]), "r"(a[4 * t + 1]), "r"(a[4 * t + 2]), "r"(a[4 * t + 3]), "r"(b[2 * t]), "r"(b[2 * t + 1]));
    for (int j = 0; j < 4; ++j) d[4 * t + j] = r[j];
}
extern "C" __global__ void mma_tf32(float* d, const uint32_t* a, const uint32_t* b) {
    int t = threadIdx.x;
    float r[4] = {d[4 * t], d[4 * t + 1], d[4 * t + 2], d[4 * t + 3]};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
                 : "r"(a[4 * t]), "r"(a[4 * t + 1]), "r"(a[4 * t + 2]), "r"(a[4 * t + 3]), "r"(b[2 * t]), "r"(b[2 * t + 1]));
    for (int j = 0; j < 4; ++j) d[4 * t + j] = r[j];
}
// m16n8k32 of bytes.
extern "C" __global__ void mma_16832(int* d, const uint32_t* a, const uint32_t* b) {
    int t = threadIdx.x, r[4] = {d[4 * t], d[4 * t + 1], d[4 * t + 2], d[4 * t + 3]};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
                 : "r"(a[4 * t]), "r"(a[4 * t + 1]), "r"(a[4 * t + 2]), "r"(a[4 * t + 3]), "r"(b[2 * t]), "r"(b[2 * t + 1]));
    for (int j = 0; j < 4; ++j) d[4 * t + j] = r[j];
}
// m8n8k4 of doubles: one element of a and b a lane.
extern "C" __global__ void mma_double(double* d, const double* a, const double* b) {
    int t = threadIdx.x;
    double r0 = d[2 * t], r1 = d[2 * t + 1];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(r0), "+d"(r1) : "d"(a[t]), "d"(b[t]));
    d[2 * t] = r0;
    d[2 * t + 1] = r1;
}
#endif

// A matrix product as a library has it: 32 x 32 of C a block of 4 warps, tiles in shared memory, wmma.
extern "C" __global__ void tensor_matmul(float* c, const __half* a, const __half* b, int n, int inner) {
    __shared__ __half sa[32][24], sb[16][40];
    int w = threadIdx.x >> 5, y = (w >> 1) * 16, x = (w & 1) * 16, row = blockIdx.y * 32, col = blockIdx.x * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.f);
    for (int k = 0; k < inner; k += 16) {
        for (int i = threadIdx.x; i < 512; i += 128) {
            sa[i >> 4][i & 15] = a[(row + (i >> 4)) * inner + k + (i & 15)];
            sb[i >> 5][i & 31] = b[(k + (i >> 5)) * n + col + (i & 31)];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
        wmma::load_matrix_sync(fa, &sa[y][0], 24);
        wmma::load_matrix_sync(fb, &sb[0][x], 40);
        wmma::mma_sync(sum, fa, fb, sum);
        __syncthreads();
    }
    wmma::store_matrix_sync(c + (row + y) * n + col + x, sum, n, wmma::mem_row_major);
}
