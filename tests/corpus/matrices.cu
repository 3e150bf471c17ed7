// Matrix products through nvcuda::wmma.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda::wmma;

template <int M, int N, int K, typename In, typename Acc, typename LayoutA, typename LayoutB, typename Mem, typename MemAcc>
__device__ void product(MemAcc* d, const Mem* a, const Mem* b, const MemAcc* c, int lda, layout_t order) {
    fragment<matrix_a, M, N, K, In, LayoutA> fa;
    fragment<matrix_b, M, N, K, In, LayoutB> fb;
    fragment<accumulator, M, N, K, Acc> fc;
    __shared__ Mem room[M * K];
    for (int i = threadIdx.x; i < M * K; i += 32) room[i] = a[i];
    __syncthreads();
    load_matrix_sync(fa, room, K);
    load_matrix_sync(fb, b, lda);
    load_matrix_sync(fc, c, lda, order);
    for (int i = 0; i < 4; i++) { mma_sync(fc, fa, fb, fc); load_matrix_sync(fa, a + i * 256, lda); }
    store_matrix_sync(d, fc, lda, mem_row_major);
}
#define PRODUCT(name, M, N, K, In, Acc, LA, LB, Mem) \
    extern "C" __global__ void name(Acc* d, const Mem* a, const Mem* b, const Acc* c, int lda) { \
        product<M, N, K, In, Acc, LA, LB>(d, a, b, c, lda, mem_col_major); }
PRODUCT(half_float_16, 16, 16, 16, __half, float, row_major, col_major, __half)
PRODUCT(half_half_16, 16, 16, 16, __half, __half, col_major, row_major, __half)
PRODUCT(half_float_32, 32, 8, 16, __half, float, row_major, row_major, __half)
PRODUCT(half_float_8, 8, 32, 16, __half, float, col_major, col_major, __half)
#if __CUDA_ARCH__ >= 720
PRODUCT(signed_bytes, 16, 16, 16, signed char, int, row_major, col_major, signed char)
PRODUCT(unsigned_bytes, 32, 8, 16, unsigned char, int, col_major, row_major, unsigned char)
#endif
#if 0
#endif
#if __CUDA_ARCH__ >= 800
PRODUCT(bfloats, 16, 16, 16, __nv_bfloat16, float, row_major, col_major, __nv_bfloat16)
PRODUCT(tf32s, 16, 16, 8, precision::tf32, float, row_major, col_major, float)
PRODUCT(doubles, 8, 8, 4, double, double, row_major, col_major, double)
#endif
