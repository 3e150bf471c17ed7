// A libcuda.so.1 for cuda-python that does nothing, so that what a call costs beside the driver can be timed without a
// GPU: every function returns CUDA_SUCCESS, memory is the host's, and there is one H200.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef uintptr_t Handle;

static Handle current;

static Result nothing(void) { return 0; }
static Result count(int *n) { *n = 1; return 0; }
static Result version(int *n) { *n = 13000; return 0; }
static Result device(int *handle, int n) { *handle = n; return 0; }
static Result retain(Handle *context, int n) { *context = 0x1000; return 0; }
static Result get(Handle *context) { *context = current; return 0; }
static Result push(Handle context) { current = context; return 0; }
static Result pop(Handle *context) { *context = current; return 0; }
static Result name(char *text, int size, int n) { strncpy(text, "no GPU", size); return 0; }
static Result load(Handle *module, const void *image) { *module = 0x2000; return 0; }
static Result function(Handle *kernel, Handle module, const char *text) { static Handle next = 0x3000; *kernel = next++; return 0; }
static Result allocate(Handle *memory, size_t size) { *memory = (Handle)aligned_alloc(256, (size + 255) & ~(size_t)255); return 0; }
static Result capturing(Handle stream, int *status) { *status = 0; return 0; }
static Result mode(int *found) { *found = 0; return 0; }
static Result text(int error, const char **found) { *found = "CUDA_ERROR_OF_THE_STUB"; return 0; }

// launches that are recorded: nodes of a graph are their numbers from 1 on
static Handle recorded[8], capture;
static size_t number;

static Result stream(Handle *made, unsigned flags) { *made = 0x4000; return 0; }
static Result begin(Handle one, int mode) { capture = one; number = 0; return 0; }
static Result end(Handle one, Handle *graph) { capture = 0; *graph = 0x5000; return 0; }
static Result instantiate(Handle *ready, Handle graph, uint64_t flags) { *ready = 0x6000; return 0; }

static Result launch(const void *config, Handle kernel, void **params, void **extra)
{
    if (capture && number < sizeof recorded / sizeof *recorded)
        recorded[number++] = kernel;
    return 0;
}

static Result nodes(Handle graph, Handle *found, size_t *count)
{
    for (size_t n = 0; found && n < number; n++)
        found[n] = n + 1;
    *count = number;
    return 0;
}

static Result parameters(Handle node, Handle *params)  // CUDA_KERNEL_NODE_PARAMS begins with the kernel
{
    *params = recorded[node - 1];
    return 0;
}

// numbers of CUdevice_attribute and CUfunction_attribute
static Result attribute(int *value, int kind, int n)
{
    *value = kind == 75 ? 9 : kind == 76 ? 0 : kind == 97 ? 232448 : kind == 16 ? 132 : kind == 38 ? 60 << 20 : 1;
    return 0;
}

static Result of_function(int *value, int kind, Handle kernel)
{
    *value = kind == 0 ? 1024 : kind == 4 ? 64 : 0;  // threads of a block, registers
    return 0;
}

static const struct { const char *name; void *function; } TABLE[] = {
    {"cuDeviceGetCount", count}, {"cuDriverGetVersion", version}, {"cuDeviceGet", device},
    {"cuDevicePrimaryCtxRetain", retain}, {"cuCtxGetCurrent", get}, {"cuCtxPushCurrent", push}, {"cuCtxPopCurrent", pop},
    {"cuDeviceGetName", name}, {"cuDeviceGetAttribute", attribute}, {"cuModuleLoadData", load},
    {"cuModuleGetFunction", function}, {"cuFuncGetAttribute", of_function}, {"cuMemAlloc", allocate},
    {"cuStreamCreate", stream}, {"cuStreamBeginCapture", begin}, {"cuStreamEndCapture", end},
    {"cuGraphInstantiate", instantiate}, {"cuGraphInstantiateWithFlags", instantiate}, {"cuLaunchKernelEx", launch},
    {"cuGraphGetNodes", nodes}, {"cuGraphKernelNodeGetParams", parameters}, {"cuStreamIsCapturing", capturing}, {"cuThreadExchangeStreamCaptureMode", mode},
    {"cuGetErrorName", text}, {"cuGetErrorString", text},
};

Result cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    *found = strcmp(name, "cuGetProcAddress") ? (void *)nothing : (void *)cuGetProcAddress_v2;
    for (size_t n = 0; n < sizeof TABLE / sizeof *TABLE; n++)
        if (!strcmp(name, TABLE[n].name))
            *found = TABLE[n].function;
    if (status)
        *status = 0;
    return 0;
}

Result cuGetProcAddress(const char *name, void **found, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, found, version, flags, 0);
}
