// Direct convolution and im2col + GEMM (paper 002). All arrays are float32: x is N, C, H, W; w is K, C, R, S; y is
// N, K, P, Q. Every image has rows, columns and channels at any size, stride and padding.

struct Sizes {
    int n, c, h, w, k, r, s, stride, padding, p, q;
};

// One thread an output. Grid: any; block: any; threads walk over y with the stride of the grid.
extern "C" __global__ void direct(const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ y,
                                  Sizes z) {
    const unsigned total = (unsigned)z.n * z.k * z.p * z.q;
    const unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        const int column = i % z.q, row = i / z.q % z.p, k = i / z.q / z.p % z.k, n = i / z.q / z.p / z.k;
        const int top = row * z.stride - z.padding, left = column * z.stride - z.padding;
        // the part of the filter that lies on the image
        const int first_a = max(0, -top), last_a = min(z.r, z.h - top);
        const int first_b = max(0, -left), last_b = min(z.s, z.w - left);
        float sum = 0;
        for (int c = 0; c < z.c; c++) {
            const float *image = x + (n * z.c + c) * z.h * z.w;
            const float *filter = w + (k * z.c + c) * z.r * z.s;
            for (int a = first_a; a < last_a; a++)
                for (int b = first_b; b < last_b; b++)
                    sum += image[(top + a) * z.w + left + b] * filter[a * z.s + b];
        }
        y[i] = sum;
    }
}
