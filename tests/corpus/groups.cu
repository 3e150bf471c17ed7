// Cooperative groups: tiles, coalesced groups, reductions, the grid, clusters.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(int* out, const int* in, float* fs) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto tile = cg::tiled_partition<8>(warp);
    int v = in[block.thread_rank()];
    out[0] = cg::reduce(warp, v, cg::plus<int>()) + cg::reduce(tile, v, cg::greater<int>()) + cg::reduce(warp, v, cg::bit_xor<int>());
    fs[0] = cg::reduce(warp, fs[v], cg::less<float>());
    out[1] = cg::inclusive_scan(tile, v) + cg::exclusive_scan(warp, v, cg::plus<int>()) + tile.shfl_xor(v, 3) + warp.match_any(v) + tile.ballot(v > 2);
    if (v > 3) {
        auto few = cg::coalesced_threads();
        out[2] = few.thread_rank() + few.num_threads() + few.shfl(v, 0) + few.any(v == 7) + cg::reduce(few, v, cg::plus<int>());
        auto label = cg::labeled_partition(few, v & 3);
        out[3] = label.num_threads() + cg::binary_partition(few, v & 1).thread_rank();
        few.sync();
    }
#if __CUDACC_VER_MAJOR__ >= 12
    cg::invoke_one(warp, [&] { out[4] = 5; });
#endif
    block.sync();
}

extern "C" __global__ void whole_grid(int* out, const int* in) {
    auto grid = cg::this_grid();
    out[grid.thread_rank()] = in[grid.thread_rank()];
    grid.sync();
    out[1] = grid.num_threads() + grid.block_rank();
#if __CUDACC_VER_MAJOR__ >= 12
    auto token = grid.barrier_arrive();
    grid.barrier_wait(static_cast<decltype(token)&&>(token));
#endif
}

extern "C" __global__ void copies(int* out, const int4* in, int n) {
    __shared__ int4 room[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, room, in, sizeof(int4) * 128);
    cg::memcpy_async(block, room + 128, in + n, sizeof(int4) * n);
    cg::wait_prior<1>(block);
    out[threadIdx.x] = room[n].x;
    cg::wait(block);
    out[threadIdx.x + 64] = room[threadIdx.x].y;
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) clusters(int* out, const int* in) {
    __shared__ int room[64];
    auto cluster = cg::this_cluster();
    room[threadIdx.x & 63] = in[threadIdx.x];
    cluster.sync();
    int* other = cluster.map_shared_rank(room, cluster.block_rank() ^ 1);
    out[threadIdx.x] = other[threadIdx.x & 31] + cluster.num_blocks() + cluster.query_shared_rank(other);
    atomicAdd(other, 3); other[5] = 7;
    cluster.barrier_arrive(); cluster.barrier_wait();
}
#endif
