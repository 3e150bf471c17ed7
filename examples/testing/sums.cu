// A kernel of a project, in CUDA C++: the sum of each block's numbers.
extern "C" __global__ void sums(float *out, const float *x, int n)
{
    __shared__ float part[128];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < n ? x[at] : 0.0f;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}
