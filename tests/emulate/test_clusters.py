"""Clusters and cooperative launches on the CPU device: what NVRTC makes of tests/kernels/clusters.cu, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu import clusters, reach
from tests.tools import nvrtc
from turingas import Cubin
from turingas.emulate import DeviceError, launch
from turingas.errors import LaunchError

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
SOURCE = (Path(__file__).parents[1] / "kernels" / "clusters.cu").read_text()


@pytest.fixture(scope="module", params=["sm_90", "sm_100", "sm_120"])
def cubin(request: pytest.FixtureRequest) -> bytes:
    return nvrtc.compile_source(SOURCE, request.param, (), name="clusters.cu")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_sizes_of_shared_memory(arch: str) -> None:
    """What the launch asks for, what is declared with it, and what the system keeps besides."""
    names = ("dynamic_smem_size", "total_smem_size", "aggr_smem_size")
    reads = "".join(f'asm("mov.u32 %0, %%{name};" : "=r"(out[{n}]));' for n, name in enumerate(names))
    body = f"__shared__ unsigned x[256]; x[out[0]] = 1; {reads} out[3] = x[9];"
    source = f'extern "C" __global__ void k(unsigned* out) {{ {body} }}'
    out = np.zeros(4, np.uint32)
    launch(nvrtc.compile_source(source, arch), "k", 1, 1, [out], shared=4096)
    assert out[:3].tolist() == [4096, 5120, 6144]


@pytest.mark.parametrize(
    ("grid", "cluster"), [((6, 4, 2), (3, 2, 1)), ((4, 2, 6), (1, 2, 3)), ((16, 1, 1), (16, 1, 1)), ((5, 3, 1), None)]
)
def test_who_a_block_is(cubin: bytes, grid: tuple[int, ...], cluster: tuple[int, ...] | None) -> None:
    out = np.zeros((grid[2], grid[1], grid[0], 16), np.uint32)
    launch(cubin, "ids", grid, 32, [out], cluster=cluster)
    sizes = cluster or (1, 1, 1)
    for z, y, x in np.ndindex(*out.shape[:3]):
        block = (x, y, z)
        number = [b // c for b, c in zip(block, sizes)]
        inside = [b % c for b, c in zip(block, sizes)]
        rank = inside[0] + sizes[0] * (inside[1] + sizes[1] * inside[2])
        count = int(np.prod(sizes))
        numbers = [g // c for g, c in zip(grid, sizes)]
        expected = [*number, *numbers, *inside, *sizes, rank, count, int(cluster is not None), 32 * count]
        assert out[z, y, x].tolist() == expected


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("strict", [False, True])
def test_a_ring_of_blocks(cubin: bytes, size: int, strict: bool) -> None:
    blocks = 2 * size
    x = np.random.default_rng(size).integers(0, 1000, (blocks, 32), np.uint32)
    out = np.zeros((blocks, 4, 32), np.uint32)
    report = launch(cubin, "ring", blocks, 32, [out, x], cluster=size, strict=strict, races=strict)
    assert not report.hazards and not report.races
    ranks = np.arange(blocks) % size
    following = np.arange(blocks) - ranks + (ranks + 1) % size
    assert (out[:, 0] == np.maximum(x + 7, 500)).all()
    assert (out[:, 1] == x).all(), "its own, which the block before read and wrote back"
    assert (out[:, 2] == (x + 7)[following] + 1000 * (ranks[following])[:, None]).all()
    sums = np.zeros(32)
    sums[:8] = (0.5 * np.arange(32)).reshape(8, 4).sum(axis=1)
    assert (out[:, 3] == sums.astype(np.uint32)).all()


@pytest.mark.parametrize(("gone", "kinds"), [(0, {"RAW"}), (1, set()), (2, set()), (3, {"RAW", "END"})])
def test_races_in_the_memory_of_another_block(gone: int, kinds: set[str]) -> None:
    """The ring without one of its barriers: two of them order a block with itself alone. Without the last one a block
    may end while another uses its memory."""
    before, ring = SOURCE.split("void ring(")
    parts = ring.split("c.sync();", gone + 1)
    source = f"{before}void ring({'c.sync();'.join(parts[:-1])}{parts[-1]}"
    x, out = np.zeros((2, 32), np.uint32), np.zeros((2, 4, 32), np.uint32)
    cubin = nvrtc.compile_source(source, "sm_90", (), name="clusters.cu")
    races = launch(cubin, "ring", 2, 32, [out, x], cluster=2, races=True).races
    assert {race.kind for race in races} == kinds
    if gone == 0:
        assert races[0].memory == "shared memory of block (1, 0, 0)" and races[0].block == (0, 0, 0)
        assert "LD.E" in races[0].second.text and "STS" in races[0].first.text and races[0].address == 0x400


def test_stores_that_an_mbarrier_counts(cubin: bytes) -> None:
    out = np.zeros((4, 128), np.uint32)
    assert not launch(cubin, "asynchronous", 4, 64, [out], cluster=2, races=True).races
    rank = np.arange(4)[:, None] % 2
    assert (out[:, :32] == np.arange(32) + 100 * rank).all()
    assert (out[:, 32:96] == (np.arange(32, 48)[:, None] + np.arange(4)).reshape(-1)).all()
    assert (out[:, 96:].view(np.int32) == np.arange(32) - 16).all()


@pytest.mark.parametrize("gone", [None, "wait(&bars[0], 0);", "wait(&bars[1], 0);"])
def test_sums_of_all_blocks(gone: str | None) -> None:
    """Asynchronous reductions do not race with each other; who reads the sum must know that all of them are over."""
    source = SOURCE if gone is None else SOURCE.replace(gone, "")
    x, out = np.random.default_rng(4).integers(0, 1000, (4, 64), np.uint32), np.zeros(64, np.uint32)
    cubin = nvrtc.compile_source(source, "sm_90", (), name="clusters.cu")
    report = launch(cubin, "gather", 4, 64, [out, x], cluster=4, races=True)
    found = {(race.kind, race.first.text.split()[0], race.second.text.split()[0]) for race in report.races}
    if gone is None:
        assert not found and (out == x.sum(axis=0)[::-1]).all()
    else:
        assert ("RAW", "REDAS.ADD", "LDS") in found


@pytest.mark.parametrize(("size", "mask"), [(2, 3), (4, 0b1010), (4, 0b1111)])
def test_copies_to_several_blocks(cubin: bytes, size: int, mask: int) -> None:
    x = np.random.default_rng(mask).integers(0, 2**32, 64, np.uint32)
    out = np.zeros((2 * size, 3, 64), np.uint32)
    if Cubin.from_bytes(cubin).arch == "sm_120":  # which leaves them to a function of the driver's
        with pytest.raises(DeviceError, match="__cuda_syscall_cp_async_bulk_multicast"):
            launch(cubin, "bulk", 2 * size, 64, [out, x, mask], cluster=size)
        return
    assert not launch(cubin, "bulk", 2 * size, 64, [out, x, mask], cluster=size, races=True).races
    rank = np.arange(2 * size) % size
    assert (out[:, 0] == np.where((mask >> rank & 1)[:, None] == 1, x, 0)).all()
    last = (rank == size - 1)[:, None]
    assert (out[:, 1] == np.where(last, np.arange(64), 0)).all()
    assert (out[:, 2] == np.where(last, 2, 1) * np.arange(64)).all()


TAIL = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) tail(int waits) {
    __shared__ __align__(8) unsigned long long bar;
    unsigned b = __cvta_generic_to_shared(&bar), rank, there, done = 0;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(b));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(b), "r"(rank ^ 1));
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(there) : "memory");
    while (waits && !done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(b) : "memory");
}
"""


@pytest.mark.parametrize("waits", [1, 0])
def test_a_block_that_others_have_yet_to_tell(waits: int) -> None:
    """A block that ends must know of all arrivals at its mbarriers: the tail of CUTLASS' producers waits for them."""
    made = nvrtc.compile_source(TAIL, "sm_90", (), name="tail.cu")
    races = launch(made, "tail", 2, 32, [np.int32(waits)], races=True).races
    assert [race.kind for race in races] == ([] if waits else ["END"])
    assert waits or "a barrier of the cluster" in races[0].remedy and "ARRIVE" in races[0].first.text


def inc(old: Any, limit: Any) -> Any:
    return np.where(old >= limit, 0, old + 1)


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [("add_u32", "u4", np.add), ("min_s64", "i8", np.minimum), ("xor_b64", "u8", np.bitwise_xor),
     ("inc_u32", "u4", inc), ("add_f32", "f4", np.add), ("add_f64", "f8", np.add), ("add_f16", "f2", np.add),
     ("max_f16", "f2", np.maximum)],
)  # fmt: skip
def test_reductions_in_bulk(cubin: bytes, name: str, dtype: str, function: Any) -> None:
    count = {"inc_u32": 512, "add_f16": 256, "max_f16": 256}.get(name, 1024) // np.dtype(dtype).itemsize
    random = np.random.default_rng(1)
    a, b = (random.normal(0, 9, count).astype(dtype) if dtype[0] == "f" else random.integers(0, 40, count).astype(dtype)
            for _ in range(2))  # fmt: skip
    expected = function(a, b).astype(dtype)
    launch(cubin, f"reduce_{name}", 1, 64, [a, b])
    assert (a == expected).all()


@pytest.mark.parametrize("arch", ["sm_70", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_grid_as_a_group(arch: str) -> None:
    cubin = nvrtc.compile_source(_only(SOURCE, "meet"), arch, (), name="meet.cu")
    out, between = np.zeros((2, 7 * 96), np.uint32)
    launch(cubin, "meet", 7, 96, [out, between], cooperative=True, workers=2)
    assert (out == np.roll(3 * np.arange(7 * 96), -2 * 96)).all()
    with pytest.raises(DeviceError, match="trapped"):
        launch(cubin, "meet", 7, 96, [out, between])


def _only(source: str, kernel: str) -> str:
    """The last kernel of the source alone, for architectures without clusters."""
    head = source[: source.index("__device__")]
    return head + source[source.index(f'extern "C" __global__ void {kernel}') :]


def test_what_goes_wrong(cubin: bytes) -> None:
    out = np.zeros(64 * 16, np.uint32)
    for options, match in (
        ({"cluster": 3, "grid": 4}, "grid.x is 4, which clusters of"),
        ({"cluster": (4, 4, 2), "grid": (4, 4, 2)}, "has 32 blocks; the limit is 16"),
        ({"cluster": 0}, "cluster.x is 0"),
        ({"cluster": (2, 2), "grid": (4, 3)}, "grid.y is 3"),
        ({"cluster": 4, "grid": 4, "kernel": "fixed"}, "was compiled for clusters of"),
        ({"grid": 3, "kernel": "fixed"}, "grid.x is 3"),
        ({"grid": 1 << 20, "kernel": "fixed", "cooperative": True}, "all blocks run at once"),
    ):
        given = {"grid": 2, "kernel": "ids", **options}
        with pytest.raises(LaunchError, match=match):
            launch(cubin, given.pop("kernel"), given.pop("grid"), 32, [out], **given)
    launch(cubin, "fixed", 4, 32, [out])
    assert out[:4].tolist() == [2] * 4
    with pytest.raises(DeviceError, match="block 1 of the cluster: it has ended"):
        launch(cubin, "late_peer", 2, 32, [out], cluster=2)
    old = nvrtc.compile_source('extern "C" __global__ void k() {}', "sm_89", (), name="k.cu")
    with pytest.raises(LaunchError, match="sm_89 has no clusters"):
        launch(old, "k", 2, 32, [], cluster=2)


def test_an_address_says_whose_memory_it_is() -> None:
    """Bits 24 and up: without them it is block 0's, which instructions of shared memory do not reach from block 1."""
    made = reach.cubin()
    for name in ("load", "store_matrices", "copy_16", "arrive"):
        assert not isinstance(reach.run((name, 1, 1, 1), "cpu", made), str)
        said = reach.run((name, 1, 0, 0), "cpu", made)
        assert isinstance(said, str) and "in block 0 of the cluster: this instruction reaches its own" in said
        assert "in block 1 of the cluster" in str(reach.run((name, 0, 1, 1), "cpu", made))
    for name in ("bulk_load", "tile_load"):
        assert not isinstance(reach.run((name, 1, 0, 1), "cpu", made), str), "copies reach others"
    said = reach.run(("bulk_copy", 1, 0, 1), "cpu", made)
    assert isinstance(said, str) and "reaches its own block alone" in said, "but read their own"


def test_step_9_as_it_was() -> None:
    """It stored without these bits: an illegal instruction on an H200, an error here."""
    assert clusters.refused("cpu") == clusters.OK


PEEK = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) peek(int* out, int stays) {
    __shared__ int x;
    cg::cluster_group c = cg::this_cluster();
    x = 5;
    c.sync();
    volatile int* there = c.map_shared_rank(&x, c.block_rank() ^ 1);
    if (threadIdx.x == 0) out[blockIdx.x] = *there;
    if (stays) c.sync();
}
"""


@pytest.mark.parametrize("stays", [1, 0])
def test_a_block_that_others_still_read(stays: int) -> None:
    """By strong loads, too, which do not race with strong stores."""
    made, out = nvrtc.compile_source(PEEK, "sm_90", (), name="peek.cu"), np.zeros(2, np.int32)
    races = launch(made, "peek", 2, 32, [out, np.int32(stays)], races=True).races
    assert (out == 5).all() and [race.kind for race in races] == ([] if stays else ["END"])
    assert stays or "STRONG" in races[0].first.text


SPACES = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void spaces(unsigned* out, int first) {
    __shared__ int x;
    int y = first;
    cg::cluster_group c = cg::this_cluster();
    const void* p[4] = {&x, c.map_shared_rank(&x, c.num_blocks() - 1 - c.block_rank()), out, &y};
    x = first;
    c.sync();
    for (int n = 0; n < 4; n++) {
        unsigned own, any, global, local;
        const void* at = p[(n + first) % 4];
        asm volatile("{ .reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(own) : "l"(at));
        asm volatile("{ .reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(any) : "l"(at));
        asm volatile("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(global) : "l"(at));
        asm volatile("{ .reg .pred p; isspacep.local p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(local) : "l"(at));
        out[4 * blockIdx.x + n] = own | any << 1 | global << 2 | local << 3;
    }
    c.sync();
}
"""


@pytest.mark.parametrize("size", [1, 2])
def test_which_memory_an_address_means(size: int) -> None:
    """The window of a cluster's shared memory holds the block's own (PTX ISA, isspacep)."""
    made, out = nvrtc.compile_source(SPACES, "sm_90", (), name="spaces.cu"), np.zeros((2, 4), np.uint32)
    launch(made, "spaces", 2, 1, [out, np.int32(0)], cluster=size)
    assert (out == [3, 2 if size == 2 else 3, 4, 8]).all()
