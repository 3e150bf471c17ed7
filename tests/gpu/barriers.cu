// What compute-sanitizer says of named barriers in nvcc's own code: docs/winograd.md, h.
//
//     nvcc -arch=sm_90 -o barriers tests/gpu/barriers.cu && compute-sanitizer --tool racecheck ./barriers KERNEL
//
// KERNEL: "part", "places", "roles" or "block" below, all free of races. Prints how many results are wrong.
#include <cstdio>
#include <cstring>

constexpr int THREADS = 256, HALF = THREADS / 2, TURNS = 6;

// Four warps of eight meet at a barrier of their own, as those that split x do in small.sass; the others leave.
__global__ void part(int *y) {
    __shared__ int a[HALF];
    int t = threadIdx.x;
    if (t < HALF) {
        a[t] = t;
        asm volatile("bar.sync 1, 128;" ::: "memory");
        y[t] = a[HALF - 1 - t];
    }
}

// All eight meet, from two places in the code, as at the end of a window in small.sass.
__global__ void places(int *y) {
    __shared__ int a[THREADS];
    int t = threadIdx.x;
    a[t] = t;
    if (t < HALF) {
        asm volatile("bar.sync 3, 256;" ::: "memory");
        y[t] = a[THREADS - 1 - t];
    } else {
        asm volatile("bar.sync 3, 256;" ::: "memory");
        y[t] = a[THREADS - 1 - t] + 1;
    }
}

// Both together, in turns, as small.sass has them: four warps store, meet, and store again what the other four read
// once all have met.
__global__ void roles(int *y) {
    __shared__ int most[4], a[2][HALF];
    int t = threadIdx.x, sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        if (t < HALF) {
            if (t % 32 == 0) most[t / 32] = turn + t;
            asm volatile("bar.sync 1, 128;" ::: "memory");
            a[turn & 1][t] = most[0] + most[3];
            asm volatile("bar.sync 3, 256;" ::: "memory");
        } else {
            asm volatile("bar.sync 3, 256;" ::: "memory");
            sum += a[turn & 1][t - HALF];
        }
    }
    y[t] = sum;
}

// All eight meet, in one place.
__global__ void block(int *y) {
    __shared__ int a[THREADS];
    int t = threadIdx.x;
    a[t] = t;
    __syncthreads();
    y[t] = a[THREADS - 1 - t];
}

int main(int count, char **words) {
    const char *which = count > 1 ? words[1] : "part";
    int *y, found[THREADS], wrong = 0;
    cudaMalloc(&y, sizeof found);
    cudaMemset(y, 0, sizeof found);
    bool parts = !strcmp(which, "part"), two = !strcmp(which, "places"), sums = !strcmp(which, "roles");
    if (parts) part<<<1, THREADS>>>(y);
    else if (two) places<<<1, THREADS>>>(y);
    else if (sums) roles<<<1, THREADS>>>(y);
    else block<<<1, THREADS>>>(y);
    cudaError_t why = cudaMemcpy(found, y, sizeof found, cudaMemcpyDeviceToHost);
    int n = parts ? HALF : THREADS;
    for (int t = 0; t < n; t++) {
        int wanted = sums ? (t < HALF ? 0 : TURNS * (TURNS - 1) + 96 * TURNS) : n - 1 - t + (two && t >= HALF);
        wrong += found[t] != wanted;
    }
    printf("%s: %s, %d wrong\n", which, cudaGetErrorString(why), wrong);
    return why != cudaSuccess || wrong;
}
