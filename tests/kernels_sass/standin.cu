// A direct convolution with the kernels, and the parameters, of kernels_sass/conv. U is [c][k][16], the nine taps
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
    int xn, int xc, int xh, int xw, int yn, int yk, int yp, int yq, int relu, int job_steps, int splits)
{
    int first = blockIdx.y % splits * job_steps * 8, last = min(C, first + job_steps * 8);
    int filter = blockIdx.y / splits * 64 - blockIdx.y * 64, filters = up(K, 64) / splits;
    int t = blockIdx.x * 32 + threadIdx.x % 32;
    int n = t / NI / TW / TH * NI + t % NI, p0 = t / NI / TW % TH * 2, q0 = t / NI % TW * 2;
    if (t >= tiles || n >= N)
        return;
    for (int k = blockIdx.y * 64 + threadIdx.x / 32; k < min(K, (int)blockIdx.y * 64 + 64); k += 8)
        for (int p = p0; p < min(P, p0 + 2); p++)
            for (int q = q0; q < min(Q, q0 + 2); q++) {
                float sum = 0;
                for (int c = first; c < last; c++)
                    for (int tap = 0; tap < 9; tap++) {
                        int h = p + tap / 3 - pad, w = q + tap % 3 - pad;
                        if (h >= 0 && h < H && w >= 0 && w < W)
                            sum += x[n * xn + c * xc + h * xh + w * xw] * u[((long long)c * filters + k + filter) * 16 + tap];
                    }
                int at = n * yn + k * yk + p * yp + q * yq;
                sum += (bias ? bias[k] : 0) + (residual ? residual[at] : 0);
                y[at] = relu && sum < 0 ? 0 : sum;
            }
}

__device__ void add(
    const float* parts, float* y, const float* bias, const float* residual, int e, int K, int inner, int splits, int relu)
{
    int k = e / inner % K;
    long long row = (long long)(e / inner / K * up(K, 64) + k / 64 * 64) * splits + k % 64;
    float sum = 0;
    for (int z = 0; z < splits; z++)
        sum += parts[(row + 64 * z) * inner + e % inner];
    sum += (bias ? bias[k] : 0) + (residual ? residual[e] : 0);
    y[e] = relu && sum < 0 ? 0 : sum;
}

extern "C" __global__ void add_splits(
    const float* parts, float* y, const float* bias, const float* residual, int count, int K, int inner, int splits, int relu)
{
    int e = blockIdx.x * 256 + threadIdx.x;
    if (e < count)
        add(parts, y, bias, residual, e, K, inner, splits, relu);
}

extern "C" __global__ void add_splits4(
    const float* parts, float* y, const float* bias, const float* residual, int count, int K, int inner, int splits, int relu)
{
    int e = blockIdx.x * 1024 + threadIdx.x * 4;
    for (int n = e; n < e + 4; n++)
        if (n < count)
            add(parts, y, bias, residual, n, K, inner, splits, relu);
}
