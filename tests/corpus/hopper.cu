// sm_90: the tensor memory accelerator, warpgroup products, mbarriers, as a kernel of a matrix library uses them.
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ bool try_wait(unsigned bar, unsigned parity) {
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    return done;
}
__device__ bool elect() {
    unsigned p;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
    return p;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) bulk(const __grid_constant__ long long map[16], float* out, const float* in, int n) {
    extern __shared__ __align__(1024) char room[];
    __shared__ __align__(8) unsigned long long bars[4];
    unsigned base = shared_address(room), bar = shared_address(bars);
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
        for (int i = 0; i < 4; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar + 8 * i), "r"(i + 1));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (threadIdx.x < 32) {
#if __CUDA_ARCH_FEAT_SM90_ALL
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        for (int i = 0; i < n; i++) {
            if (elect()) {
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(16384));
                asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                    :: "r"(base + i * 4096), "l"(map), "r"(i * 64), "r"(blockIdx.x), "r"(bar) : "memory");
                asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;"
                    :: "r"(base + 8192), "l"(map), "r"(i * 64), "r"(blockIdx.x), "r"(n), "r"(bar + 8), "h"((short)3) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :: "r"(base + 12288), "l"(in + i * 64), "r"(256), "r"(bar + 16) : "memory");
            }
            while (!try_wait(bar + 24, i & 1)) {}
        }
    } else {
#if __CUDA_ARCH_FEAT_SM90_ALL
        float d[32];
        for (int i = 0; i < 32; i++) d[i] = 0;
        for (int i = 0; i < n; i++) {
            while (!try_wait(bar, i & 1)) {}
            unsigned long long da = ((base & 0x3ffff) >> 4) | (1ull << 62) | ((unsigned long long)i << 32), db = da + 512;
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
                " %32, %33, p, 1, 1, 0, 0; }"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
                  "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                  "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                : "l"(da), "l"(db), "r"(i));
            asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar + 24) : "memory");
        }
        for (int i = 0; i < 32; i++) out[i * 128 + threadIdx.x] = d[i];
#endif
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync 1, 128;" ::: "memory");
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" :: "l"(map), "r"(n), "r"(blockIdx.x), "r"(base) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(out), "r"(base), "r"(n) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
        asm volatile("griddepcontrol.launch_dependents;");
    }
}
#else
extern "C" __global__ void bulk(int* out) { out[threadIdx.x] = 0; }
#endif
