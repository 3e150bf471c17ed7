// Matrix products of CUTLASS, one for each WHICH, as its own host code launches them. Compiled and run by tests/emulate/cutlass.py
// with a stand-in of the CUDA runtime: nothing is computed here.
#include <vector>
#include <cstdio>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/util/packed_stride.hpp>
using namespace cute;

template <class T> T* filled(size_t count, int seed) {
    std::vector<T> host(count);
    unsigned x = seed;
    for (auto& one : host) x = x * 1664525u + 1013904223u, one = T(float(int(x >> 28) - 8));
    T* there;
    cudaMalloc(&there, count * sizeof(T));
    cudaMemcpy(there, host.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    return there;
}

#if SM80
template <class Element, int Stages, class Tile, class Warp, class Shape>
int run(int m, int n, int k) {
    using Gemm = cutlass::gemm::device::Gemm<
        Element, cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor, float, cutlass::layout::RowMajor, float,
        cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, Tile, Warp, Shape,
        cutlass::epilogue::thread::LinearCombination<float, 4, float, float>,
        cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, Stages>;
    Gemm gemm;
    auto *a = filled<Element>(size_t(m) * k, 1), *b = filled<Element>(size_t(n) * k, 2);
    auto *c = filled<float>(size_t(m) * n, 3), *d = filled<float>(size_t(m) * n, 4);
    return int(gemm({{m, n, k}, {a, k}, {b, k}, {c, n}, {d, n}, {1.f, 1.f}}));
}
#else
template <class A, class B, class Tile, class Cluster, class Schedule, class Epilogue, class Scheduler, int Stages = 0,
          class D = cutlass::half_t, class LayoutB = cutlass::layout::ColumnMajor, int AlignA = 16 / sizeof(A),
          class LayoutA = cutlass::layout::RowMajor>
int run(int m, int n, int k, int l = 1) {
    using Arch = cutlass::arch::Sm90;
    using Op = cutlass::arch::OpClassTensorOp;
    using Row = cutlass::layout::RowMajor;
    using Output = typename cutlass::epilogue::collective::CollectiveBuilder<
        Arch, Op, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, D, Row, 16 / sizeof(D),
        D, Row, 16 / sizeof(D), Epilogue>::CollectiveOp;
    using Count = std::conditional_t<Stages != 0, cutlass::gemm::collective::StageCount<Stages>,
        cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Output::SharedStorage))>>;
    using Main = typename cutlass::gemm::collective::CollectiveBuilder<
        Arch, Op, A, LayoutA, AlignA, B, LayoutB, AlignA, float, Tile, Cluster, Count, Schedule>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Main, Output, Scheduler>;
    using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
    auto *a = filled<A>(size_t(m) * k * l, 1);
    auto *b = filled<B>(size_t(n) * k * l, 2);
    auto *c = filled<D>(size_t(m) * n * l, 3), *d = filled<D>(size_t(m) * n * l, 4);
    auto of = [&](auto stride, int rows, int columns) { return cutlass::make_cute_packed_stride(stride, make_shape(rows, columns, l)); };
    typename Gemm::Arguments given{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, l},
        {a, of(typename Kernel::StrideA{}, m, k), b, of(typename Kernel::StrideB{}, n, k)},
        {{1.f, 1.f}, c, of(typename Kernel::StrideC{}, m, n), d, of(typename Kernel::StrideD{}, m, n)}};
    given.hw_info.sm_count = 4;
    Gemm gemm;
    void* room = nullptr;
    if (size_t size = Gemm::get_workspace_size(given)) cudaMalloc(&room, size), cudaMemset(room, 0, size);
    if (auto what = gemm.can_implement(given); what != cutlass::Status::kSuccess) return std::printf("%s\n", cutlassGetStatusString(what)), 2;
    if (auto what = gemm.initialize(given, room); what != cutlass::Status::kSuccess) return std::printf("%s\n", cutlassGetStatusString(what)), 3;
    return int(gemm.run());
}
using F16 = cutlass::half_t;
using E4M3 = cutlass::float_e4m3_t;
using TF32 = cutlass::tfloat32_t;
using namespace cutlass::gemm;
using NoSmem = cutlass::epilogue::NoSmemWarpSpecialized;
using Tma = cutlass::epilogue::TmaWarpSpecialized;
using TmaCooperative = cutlass::epilogue::TmaWarpSpecializedCooperative;
using One = Shape<_1, _1, _1>;
#endif

int main() { return RUN; }
