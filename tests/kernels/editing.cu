// What holds addresses of code: jump tables, calls, returns, pointers to functions.
#define K extern "C" __global__ void

K sw(int *out, const int *in) {
    int i = threadIdx.x, x = in[i];
    switch (x % 7) {
    case 0: x = x * 3 + 1; break;
    case 1: x ^= 0x55; break;
    case 2: x = x / 3; break;
    case 3: x = __popc(x); break;
    case 4: x = in[x & 31]; break;
    case 5: x = -x; break;
    case 6: x = x * x; break;
    }
    out[i] = x;
}

__device__ __noinline__ int gcd_(int a, int b) { while (b) { int t = a % b; a = b; b = t; } return a; }
__device__ __noinline__ int twice(int a, int b) { return gcd_(a, b) + gcd_(a + 1, b); }
K calls(int *out, const int *in) {
    int i = threadIdx.x;
    out[i] = twice(in[i], 12) * 1000 + gcd_(in[i], 30);
}

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
K recursion(int *out, const int *in) { out[threadIdx.x] = fib(in[threadIdx.x] & 7); }

__device__ __noinline__ int add1(int x) { return x + 1; }
__device__ __noinline__ int mul3(int x) { return x * 3; }
__device__ __noinline__ int neg_(int x) { return -x; }
typedef int (*Fn)(int);
__device__ Fn table[3] = {add1, mul3, neg_};
__constant__ Fn ctable[2] = {mul3, add1};
K pointers(int *out, const int *in) {
    int i = threadIdx.x;
    Fn f = in[i] & 1 ? add1 : mul3;
    out[i] = f(in[i]) + table[i % 3](in[i]) + ctable[i % 2](in[i]);
}

K slow32(float *a, float *b, float *c, float *d, const float *x) {
    int i = threadIdx.x;
    a[i] = sqrtf(x[i]);
    b[i] = x[i] / (x[i] + 1.f);
    c[i] = 1.0f / x[i];
    d[i] = sinf(x[i]);
}

K slow64(double *a, double *b, double *c, const double *x) {
    int i = threadIdx.x;
    a[i] = sqrt(x[i]);
    b[i] = x[i] / (x[i] + 1.0);
    c[i] = 1.0 / x[i];
}

K slowll(long long *a, long long *b, const long long *x) {
    int i = threadIdx.x;
    a[i] = x[i] / x[i + 32];
    b[i] = x[i] % x[i + 32];
}

extern "C" __device__ int printf(const char *, ...);
K prints(int *out, const int *in) {
    int i = threadIdx.x;
    if (in[i] == 12345) printf("%d\n", in[i]);
    out[i] = in[i] + 1;
}
K big(int *out, const int *in) {
    int i = threadIdx.x, x = in[i];
    switch (x) {
    case 0: case 3: x = x * 3 + 1; break;
    case 1: x ^= 0x55; break;
    case 2: case 5: case 9: x = x / 3; break;
    case 4: x = __popc(x); break;
    case 6: x = in[x & 31]; break;
    case 7: x = -x; break;
    case 8: x = x * x; break;
    case 10: x = x % 7; break;
    case 11: x = in[(x + 1) & 31]; break;
    default: x = 77;
    }
    out[i] = x;
}
