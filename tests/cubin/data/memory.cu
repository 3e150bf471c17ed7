// Constants, device globals, structures as parameters, dynamic shared memory, named barriers, templates.
struct Mixed {
    int a;
    double d;
    char c[5];
};
__constant__ float factor[64] = {1.5f, 2.5f, 3.5f};
__constant__ int offset[4];
__device__ int count = 7;
__device__ float buffer[100];
__device__ const int table[5] = {1, 2, 3, 4, 5};

extern "C" __global__ void scale(float *a, const Mixed s, char c, short h, int n) {
    __shared__ float t[128];
    t[threadIdx.x] = a[threadIdx.x] * factor[n & 63] + s.d + c + h;
    __syncthreads();
    a[threadIdx.x] = t[127 - threadIdx.x] + offset[n & 3];
}

extern "C" __global__ void __launch_bounds__(128, 2) swap(double *a) {
    extern __shared__ double d[];
    d[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = d[threadIdx.x ^ 1];
    atomicAdd(&count, 1);
    buffer[threadIdx.x] += 1;
}

extern "C" __global__ void barriers() {
    count += table[threadIdx.x % 5];
    asm volatile("bar.sync 5, 64;");
    asm volatile("barrier.sync 3;");
}

template <int N> __global__ void steps(int *a) {
    for (int i = 0; i < N; i++) a[i * threadIdx.x] = i;
}
template __global__ void steps<3>(int *);
template __global__ void steps<4>(int *);
