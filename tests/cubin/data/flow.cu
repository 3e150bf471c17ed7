// Recursion, function pointers, jump tables, printf and malloc, slow paths of division and square root.
extern "C" int printf(const char *, ...);
extern "C" void *malloc(size_t);
extern "C" void free(void *);
__device__ __noinline__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
__device__ __noinline__ float helper(float x, float *y) {
    y[1] = x;
    return x * 3.0f + y[0];
}
__device__ __noinline__ float other(float x, float *y) { return x - y[0]; }
typedef float (*Function)(float, float *);
__device__ Function functions[2] = {helper, other};

extern "C" __global__ void recursion(int *a) { a[0] = factorial(a[1]); }

extern "C" __global__ void call(float *a) {
    float b[10];
    for (int i = 0; i < 10; i++) b[i] = a[i];
    a[0] = helper(a[3], b + (int)a[5]);
}

extern "C" __global__ void pointer(float *a, int i) { a[0] = functions[i](a[1], a + 2); }

extern "C" __global__ void print(int x) { printf("%d %f\n", x, (double)x * 1.5); }

extern "C" __global__ void heap(int **p) {
    p[0] = (int *)malloc(100);
    free(p[1]);
}

extern "C" __global__ void slow(double *a, double *b, long long *c) {
    a[0] /= b[0];
    c[0] /= c[1];
    a[1] = sqrt(b[1]);
}

extern "C" __global__ void jump(int *a, int n) {
    int v = a[1];
    switch (n) {
    case 0: v *= 3; a[5] = 1; break;
    case 1: v ^= 77; a[6] = v; break;
    case 2: v += a[3]; break;
    case 3: v -= a[9]; __syncthreads(); break;
    case 4: v /= 3; break;
    case 5: v %= 7; break;
    case 6: v <<= a[2]; break;
    case 7: v = __popc(v); break;
    case 8: v = __brev(v); a[9] = v; break;
    case 9: atomicAdd(a + 7, v); break;
    default: v = 0;
    }
    a[0] = v;
}
