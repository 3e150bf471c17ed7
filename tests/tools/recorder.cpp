// A stand-in of the CUDA runtime, linked in its place: nothing runs; what a program would launch is written down in the
// folder RECORD_INTO, for the CPU device (tests/tools/recorder.py). There, kernels.txt says how large parameters are.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {
struct Memory { void* at; size_t size; };
std::vector<Memory> memories;
// made when first asked for: functions register themselves before other globals are there
std::map<const void*, std::string>& names() { static std::map<const void*, std::string> found; return found; }
int launches;
uint64_t maps;

std::string path(const std::string& name) { return std::string(std::getenv("RECORD_INTO")) + "/" + name; }

// name -> offset and size of each parameter
const std::map<std::string, std::vector<std::pair<size_t, size_t>>>& sizes() {
    static std::map<std::string, std::vector<std::pair<size_t, size_t>>> found;
    if (found.empty()) {
        std::ifstream file(path("kernels.txt"));
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string name;
            words >> name;
            auto& mine = found[name];
            for (size_t offset, size; words >> offset >> size;) mine.push_back({offset, size});
        }
    }
    return found;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** args, size_t shared, dim3 cluster, bool early) {
    const auto& name = names()[function];
    std::string number = std::to_string(launches++);
    std::ofstream file(path("launch" + number + ".txt"));
    file << name << "\n" << grid.x << " " << grid.y << " " << grid.z << "\n" << block.x << " " << block.y << " " << block.z
         << "\n" << cluster.x << " " << cluster.y << " " << cluster.z << "\n" << shared << " " << early << "\n";
    std::vector<unsigned char> packed;
    size_t n = 0;
    for (auto [offset, size] : sizes().at(name)) {
        packed.resize(std::max(packed.size(), offset + size));
        std::memcpy(packed.data() + offset, args[n++], size);
    }
    for (auto byte : packed) {
        char two[3];
        std::snprintf(two, 3, "%02x", byte);
        file << two;
    }
    file << "\n";
    for (size_t k = 0; k < memories.size(); k++) {
        file << (uint64_t)memories[k].at << " " << memories[k].size << "\n";
        std::ofstream data(path("memory" + number + "." + std::to_string(k)), std::ios::binary);
        data.write((const char*)memories[k].at, memories[k].size);
    }
    return cudaSuccess;
}

// 128 bytes that name the line of maps.txt with what was asked for; the address is where a map has it, and the word
// behind stays free: CUTLASS changes a bit there
CUresult encode(CUtensorMap* to, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    std::ofstream file(path("maps.txt"), std::ios::app);
    file << (int)type << " " << (int)interleave << " " << (int)swizzle << " " << (int)fill << " " << (uint64_t)address << " " << rank;
    for (unsigned n = 0; n < rank; n++) file << " " << dims[n] << " " << (n ? strides[n - 1] : 0) << " " << box[n] << " " << steps[n];
    file << "\n";
    std::memset(to, 0, sizeof *to);
    uint64_t words[16] = {(uint64_t)address, 0, 0x7475726d61707321, maps++};
    std::memcpy(to, words, sizeof words);
    return CUDA_SUCCESS;
}
}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void*) { static void* handle; return &handle; }
void __cudaRegisterFatBinaryEnd(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    names()[function] = name;
}
thread_local struct { dim3 grid, block; size_t shared; void* stream; } configured;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) { configured = {grid, block, shared, stream}; return 0; }
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = configured.grid, *block = configured.block, *shared = configured.shared, *(void**)stream = configured.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) { *kernel = (cudaKernel_t)function; return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
    return launch(kernel, grid, block, args, shared, dim3(0, 0, 0), false);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t) {
    return launch(function, grid, block, args, shared, dim3(0, 0, 0), false);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** args) {
    dim3 cluster(0, 0, 0);
    bool early = false;
    for (unsigned n = 0; n < config->numAttrs; n++) {
        const auto& one = config->attrs[n];
        if (one.id == cudaLaunchAttributeClusterDimension) cluster = dim3(one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z);
        if (one.id == cudaLaunchAttributeProgrammaticStreamSerialization) early = one.val.programmaticStreamSerializationAllowed;
    }
    return launch(function, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, cluster, early);
}
cudaError_t cudaMalloc(void** to, size_t size) {
    *to = std::aligned_alloc(256, (size + 511) / 256 * 256);
    std::memset(*to, 0, size);
    memories.push_back({*to, size});
    return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) { std::memcpy(to, from, size); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t) { std::memcpy(to, from, size); return cudaSuccess; }
cudaError_t cudaMemset(void* to, int value, size_t size) { std::memset(to, value, size); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t) { std::memset(to, value, size); return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "none"; }
cudaError_t cudaDriverGetVersion(int* version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
    *value = what == cudaDevAttrMultiProcessorCount ? 4 : what == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 232448 : what == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) { *blocks = 1; return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) { *clusters = 2; return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status) {
    bool known = !std::strcmp(name, "cuTensorMapEncodeTiled");
    *found = known ? (void*)encode : nullptr;
    if (status) *status = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return known ? cudaSuccess : cudaErrorUnknown;
}
}
