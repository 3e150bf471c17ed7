// Warps: shuffles, votes, matches, and reductions in one instruction.

extern "C" __global__ void shuffles(int* out, const int* in) {
    int t = threadIdx.x, lane = t & 31, v = in[t], r[12];
    r[0] = __shfl_sync(~0u, v, 5);
    r[1] = __shfl_sync(~0u, v, lane * 7 + 3);
    r[2] = __shfl_up_sync(~0u, v, 3);
    r[3] = __shfl_down_sync(~0u, v, 9);
    r[4] = __shfl_xor_sync(~0u, v, 21);
    r[5] = __shfl_sync(~0u, v, 2, 8);
    r[6] = __shfl_up_sync(~0u, v, 1, 4);
    r[7] = __shfl_down_sync(~0u, v, 2, 16);
    r[8] = __shfl_xor_sync(~0u, v, 12, 8);
    r[9] = __shfl_sync(~0u, v, v, 16);
    double d = __shfl_sync(~0u, v * 0.5, (lane + 1) & 31);
    r[10] = (int)(d * 4);
    int hit;
    asm("{ .reg .pred p; shfl.sync.down.b32 %0|p, %1, 6, 0x081f, -1; selp.b32 %0, %0, -7, p; }" : "=r"(hit) : "r"(v));
    r[11] = hit;
    for (int j = 0; j < 12; ++j) out[j * blockDim.x + t] = r[j];
}

extern "C" __global__ void votes(unsigned* out, const int* in) {
    int t = threadIdx.x, lane = t & 31, v = in[t];
    unsigned r[9];
    r[0] = __ballot_sync(~0u, v > 3);
    r[1] = __any_sync(~0u, v == 7) | __all_sync(~0u, v < 100) << 1;
    unsigned mask = __ballot_sync(~0u, v & 1);
    if (v & 1) {
        r[2] = __ballot_sync(mask, v > 3);
        r[3] = __all_sync(mask, v & 1) + 2 * __any_sync(mask, !(v & 1));
    } else {
        r[2] = __ballot_sync(~mask, v > 3);
        r[3] = __all_sync(~mask, v > 2);
    }
    r[4] = __match_any_sync(~0u, v);
    int same;
    r[5] = __match_all_sync(~0u, v, &same);
    r[5] = r[5] * 2 + (same != 0);
    r[6] = __match_all_sync(~0u, v >> 10, &same);
    r[6] = r[6] ^ (same != 0);
    r[7] = __match_any_sync(~0u, (long long)v << 33 | 1);
    r[8] = lane < 9 ? __fns(__match_any_sync(0x1ff, v & 3), 0, 1) : 0;
    for (int j = 0; j < 9; ++j) out[j * blockDim.x + t] = r[j];
}

#if __CUDA_ARCH__ >= 800
// REDUX: a reduction over a warp, or over the part of it that a mask names.
extern "C" __global__ void reductions(unsigned* out, const int* in) {
    int t = threadIdx.x, v = in[t], r[8];
    unsigned low = __ballot_sync(~0u, v & 4), mask = v & 4 ? low : ~low;
    r[0] = __reduce_add_sync(~0u, v);
    r[1] = __reduce_min_sync(~0u, v);
    r[2] = __reduce_max_sync(~0u, v);
    r[3] = __reduce_max_sync(~0u, (unsigned)v);
    r[4] = __reduce_and_sync(~0u, v | 0x70);
    r[5] = __reduce_or_sync(~0u, v);
    r[6] = __reduce_xor_sync(~0u, v);
    if (v & 4) r[7] = __reduce_add_sync(mask, v);
    else r[7] = __reduce_min_sync(mask, v);
    for (int j = 0; j < 8; ++j) out[j * blockDim.x + t] = r[j];
}
#endif
