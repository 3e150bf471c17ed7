"""``--races global``: kernels whose blocks talk through global memory have no finding, and each has one that names both
sides where a fence is missing or too small, an atomic is the block's alone, or a plain access takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from tests.tools import nvrtc
from turingas.emulate.report import Report
from turingas.errors import LaunchError

SOURCE = Path(__file__).with_name("global_races.cu")
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_90")
BLOCKS, THREADS = 4, 64
NO_FENCE, SMALL_FENCE, NO_ACQUIRE, SMALL_ACQUIRE, SMALL_ATOMIC, PLAIN = range(1, 7)
FLAGS = (NO_FENCE, SMALL_FENCE, NO_ACQUIRE, SMALL_ACQUIRE, PLAIN)

needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


def some(blocks: int) -> np.ndarray:
    return np.arange(blocks * THREADS, dtype=np.int32) % 7


Made = Callable[[int], list[np.ndarray]]
#: arrays for so many blocks, and the faults that the kernel can have
KERNELS: dict[str, tuple[Made, tuple[int, ...]]] = {
    "last_block": (lambda n: [some(n), zeros(1), zeros(n), zeros(1)], (*FLAGS, SMALL_ATOMIC)),
    "look_back": (lambda n: [some(n), zeros(n * THREADS), zeros(2 * n), zeros(n)], FLAGS),
    "fix_up": (lambda n: [some(n), zeros(n * THREADS), zeros(n * THREADS), zeros(n)], FLAGS),
    "together": (lambda n: [zeros(n * THREADS)], (NO_FENCE,)),
    "locked": (lambda n: [zeros(1), zeros(1)], (*FLAGS, SMALL_ATOMIC)),
    "histogram": (lambda n: [some(n), zeros(8)], (SMALL_ATOMIC, PLAIN)),
}


def compiled(arch: str, *defined: str) -> Any:
    return loader.load(nvrtc.compile_source(SOURCE.read_text(), arch, defined, SOURCE.name), "cpu")


def run(
    kernel: str, arch: str, fault: int = 0, blocks: int = BLOCKS, **options: Any
) -> tuple[Report, list[np.ndarray]]:
    args, together = KERNELS[kernel][0](blocks), kernel == "together"
    module = compiled(arch, *["-DTOGETHER"] * together)  # with a header that takes long to compile
    given = {"races": "global", "cooperative": together, **options}
    return module.kernel(kernel).launch(blocks, THREADS, *args, np.int32(fault), **given), args


@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "arch"), [(k, arch) for k in KERNELS for arch in (ARCHS if k != "together" else ("sm_75", "sm_90"))]
)
def test_what_is_ordered_is_no_race(kernel: str, arch: str) -> None:
    report, args = run(kernel, arch)
    assert report.races == []
    x = some(BLOCKS)
    if kernel == "last_block":
        assert args[1] == x.sum()
    elif kernel == "look_back":
        assert (args[1] == np.cumsum(x)).all()
    elif kernel == "histogram":
        assert (args[1] == np.bincount(x, minlength=8)).all()


@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "fault", "arch"),
    [(kernel, fault, ARCHS[fault % len(ARCHS)]) for kernel, (_, faults) in KERNELS.items() for fault in faults],
)
def test_what_is_missing_is_named(kernel: str, fault: int, arch: str) -> None:
    report, _ = run(kernel, arch, fault, budget=100_000)
    assert report.races
    for race in report.races:
        assert race.first.text and race.second.text and race.nbytes
        assert "of global memory, 'argument" in str(race)
    said = " ".join(race.remedy for race in report.races)
    near = all(race.block == race.home for race in report.races)  # of one block: other things order them
    if fault in (NO_ACQUIRE, SMALL_ACQUIRE):
        assert near or "CCTL.IVALL (__threadfence)" in said
    elif fault in (SMALL_ATOMIC, PLAIN):
        assert near or "strong" in said
    else:
        assert near or "a fence of the GPU's scope" in said


@needs_nvrtc
def test_over_waves() -> None:
    """Blocks of one wave talk to those of the ones before."""
    report, (x, out, *_) = run("look_back", "sm_80", blocks=70)  # 4480 threads, of which 4096 are a wave
    assert report.races == [] and (out == np.cumsum(x)).all()
    report, _ = run("last_block", "sm_80", NO_FENCE, blocks=70)
    assert {race.home != race.block for race in report.races} == {True}


@needs_nvrtc
@pytest.mark.parametrize(
    ("kernel", "fault", "found"),
    [
        ("bulk_out", 0, None), ("bulk_out", 1, ("RAW", "wait for its group")),
        ("bulk_in", 0, None), ("bulk_in", 1, ("PROXY", "FENCE.VIEW.ASYNC.G")), ("bulk_in", 2, None),
    ],
)  # fmt: skip
def test_copies_in_bulk(kernel: str, fault: int, found: tuple[str, str] | None) -> None:
    out = zeros(32)
    report = compiled("sm_90").kernel(kernel).launch(2, 32, out, zeros(32), zeros(1), np.int32(fault), races="global")
    if found is None:
        assert report.races == [] and (out == np.arange(32)).all()
    else:
        (race,) = report.races
        assert race.kind == found[0] and found[1] in race.remedy


@needs_nvrtc
@pytest.mark.parametrize(("early", "fault", "found"), [(True, 0, []), (True, 1, ["RAW", "WAR"]), (False, 1, [])])
def test_launches_that_begin_early(early: bool, fault: int, found: list[str]) -> None:
    """Wait for the one before, before they touch its memory."""
    kernel = compiled("sm_90").kernel("dependent")
    a, b = some(2), zeros(2 * THREADS)
    assert kernel.launch(2, THREADS, a, b, np.int32(0), early=early, races="global").races == []
    races = kernel.launch(2, THREADS, b, a, np.int32(fault), early=early, races="global").races
    assert sorted(race.kind for race in races) == found
    assert all("griddepcontrol.wait" in race.remedy and race.first.text for race in races)
    assert (a == np.roll(np.roll(some(2), -1) + 1, -1) + 1).all()


CONSTANT = """
extern "C" __global__ void k(int *a)
{
    int x, t = threadIdx.x;
    a[t] = t;
    __syncthreads();
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(x) : "l"(a + (*(volatile int *)(a + t) ^ 1)));
    a[t + 32] = x;
}
"""


@needs_nvrtc
def test_the_read_only_path() -> None:
    """Is not for what the kernel writes, ordered or not."""
    kernel = loader.load(nvrtc.compile_source(CONSTANT, "sm_80"), "cpu").kernel("k")
    report = kernel.launch(1, 32, zeros(64), races="global")
    (race,) = report.races
    assert race.kind == "CONSTANT" and "__ldg" in race.remedy


@needs_nvrtc
def test_shared_memory_alone_stays_as_it_was() -> None:
    for races in (True, "shared"):
        assert run("last_block", "sm_80", NO_FENCE, races=races)[0].races == []
    with pytest.raises(LaunchError, match="'global'"):
        run("last_block", "sm_80", races="local")


MAPS = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void k(const __grid_constant__ Map like, Map* maps, float* const* from, float* out, int fault) {
    __shared__ __align__(128) Map mine;
    __shared__ __align__(128) float tile[32];
    __shared__ __align__(8) unsigned long long bar;
    unsigned m = __cvta_generic_to_shared(&mine), b = __cvta_generic_to_shared(&bar), done = 0;
    Map* map = maps + blockIdx.x;
    if (threadIdx.x < 16) mine.words[threadIdx.x] = like.words[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) {
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;"
                     :: "r"(m), "l"(from[blockIdx.x]) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(b) : "memory");
    }
    __syncwarp();
    if (threadIdx.x < 32) {
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                     "[%0], [%1], 128;" :: "l"(map), "r"(m) : "memory");
        if (fault != 1)
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
    }
    if (fault != 2) __syncthreads();
    if (threadIdx.x == 32) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" :: "r"(b) : "memory");
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2}], [%3];"
                     :: "r"((unsigned)__cvta_generic_to_shared(tile)), "l"(map), "r"(0), "r"(b) : "memory");
    }
    __syncthreads();
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(b) : "memory");
    if (threadIdx.x < 32) out[32 * blockIdx.x + threadIdx.x] = tile[threadIdx.x];
}
"""


@needs_nvrtc
@pytest.mark.parametrize(("fault", "kinds"), [(0, set()), (1, {"MAP"}), (2, {"RAW"})])
def test_maps_that_a_kernel_makes(fault: int, kinds: set[str]) -> None:
    """They are read through a proxy of their own, which must be told that they are new; by another warp, too."""
    module = loader.load(nvrtc.compile_source(MAPS, "sm_90a", (), "maps.cu"), "cpu")
    like, out = loader.tensor_map(np.zeros(32, np.float32), (32,)), np.zeros((2, 32), np.float32)
    room = np.zeros(48, np.uint64)
    maps = room[-room.ctypes.data % 64 // 8 :][:32]
    rows = np.arange(64, dtype=np.float32).reshape(2, 32)
    pointers = np.array([module._module.device.memory.add(row, "row") for row in rows], np.uint64)
    report = module.kernel("k").launch(2, 64, like, maps, pointers, out, np.int32(fault), races="global")
    found = {race.kind for race in report.races if "UTMALDG" in race.second.text}
    assert found == kinds and (fault == 2 or (out == rows).all())
    assert fault or not report.races
