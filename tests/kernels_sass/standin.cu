// A direct convolution with the two kernels, and the parameters, of kernels_sass/winograd. U is [c][k][16], the nine taps
// first. One thread computes four outputs of a tile, for one k after the other.

__device__ int up(int a, int b) { return (a + b - 1) / b * b; }

extern "C" __global__ void filter_transform(const float* w, float* u, int C, int K, int wk, int wc, int wr, int ws)
{
    for (int i = threadIdx.x; i < 64 * 8; i += blockDim.x) {
        int k = blockIdx.x * 64 + i % 64, c = blockIdx.y * 8 + i / 64;
        float* to = u + ((long long)c * up(K, 64) + k) * 16;
        for (int t = 0; t < 16; t++)
            to[t] = c < C && k < K && t < 9 ? w[k * wk + c * wc + t / 3 * wr + t % 3 * ws] : 0;
    }
}

extern "C" __global__ void winograd(
    const float* x, const float* u, float* y, const float* bias, const float* residual,
    int tiles, int N, int C, int H, int W, int K, int P, int Q, int pad, int TH, int TW, int NI,
    int xn, int xc, int xh, int xw, int yn, int yk, int yp, int yq, int relu)
{
    int t = blockIdx.x * 32 + threadIdx.x % 32;
    int n = t / NI / TW / TH * NI + t % NI, p0 = t / NI / TW % TH * 2, q0 = t / NI % TW * 2;
    if (t >= tiles || n >= N)
        return;
    for (int k = blockIdx.y * 64 + threadIdx.x / 32; k < min(K, (int)blockIdx.y * 64 + 64); k += 8)
        for (int p = p0; p < min(P, p0 + 2); p++)
            for (int q = q0; q < min(Q, q0 + 2); q++) {
                float sum = 0;
                for (int c = 0; c < C; c++)
                    for (int tap = 0; tap < 9; tap++) {
                        int h = p + tap / 3 - pad, w = q + tap % 3 - pad;
                        if (h >= 0 && h < H && w >= 0 && w < W)
                            sum += x[n * xn + c * xc + h * xh + w * xw] * u[((long long)c * up(K, 64) + k) * 16 + tap];
                    }
                int at = n * yn + k * yk + p * yp + q * yq;
                sum += (bias ? bias[k] : 0) + (residual ? residual[at] : 0);
                y[at] = relu && sum < 0 ? 0 : sum;
            }
}
