// Cooperative groups within a block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(int* out, const int* in) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto tile = cg::tiled_partition<8>(warp);
    int t = block.thread_rank(), v = in[t], n = block.num_threads();
    out[0 * n + t] = cg::reduce(warp, v, cg::plus<int>());
    out[1 * n + t] = cg::reduce(tile, v, cg::greater<int>());
    out[2 * n + t] = cg::reduce(tile, v, cg::bit_xor<int>());
    out[3 * n + t] = cg::inclusive_scan(tile, v);
    out[4 * n + t] = cg::exclusive_scan(warp, v, cg::plus<int>());
    out[5 * n + t] = tile.shfl_xor(v, 3) + 10000 * tile.meta_group_rank() + 1000000 * tile.thread_rank();
    out[6 * n + t] = warp.match_any(v & 3) ^ tile.ballot(v > 2);
    block.sync();
}

// Groups of whatever threads came this way.
extern "C" __global__ void coalesced(int* out, int* next, const int* in) {
    auto block = cg::this_thread_block();
    int t = block.thread_rank(), v = in[t], n = block.num_threads();
    int r[4] = {-1, -1, -1, -1};
    if (v & 6) {
        auto few = cg::coalesced_threads();
        r[0] = few.thread_rank() + 100 * few.num_threads();
        r[1] = few.shfl(v, few.num_threads() - 1) + few.any(v == 7);
        r[2] = cg::reduce(few, v, cg::plus<int>());
        if (few.thread_rank() == 0) atomicAdd(next, (int)few.num_threads());  // one atomic a group
        auto label = cg::labeled_partition(few, v & 3);
        r[3] = label.num_threads() * 100 + label.thread_rank() + 10000 * cg::binary_partition(few, v & 1).num_threads();
        few.sync();
    }
    for (int j = 0; j < 4; ++j) out[j * n + t] = r[j];
}
