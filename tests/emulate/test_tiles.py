"""Tensor copies on the CPU device: random geometries against numpy, and what is refused."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader.nvrtc import compile as compiled
from tests.emulate import tiles
from tests.tools import nvrtc
from turingas import tensor_map
from turingas.emulate import DeviceError
from turingas.errors import LaunchError

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
FEW, MANY = range(24), pytest.param(range(24, 1024), marks=pytest.mark.slow)


def kernel(name: str) -> Any:
    return loader.load(tiles.cubin(), "cpu").kernel(name)


@pytest.mark.parametrize("seeds", [FEW, MANY])
def test_loads(seeds: range) -> None:
    module = loader.load(tiles.cubin(), "cpu")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        case = tiles.random_columns(rng) if seed % 3 == 0 else tiles.random_tile(rng)
        tensor = case.tensor(case.whole(rng))
        name, args, options = case.launch("load")
        out = np.zeros(case.nbytes, np.uint8)
        made = loader.tensor_map(tensor, **case.options())
        module.kernel(name).launch(1, 64, made, out, *args, **options, races=True)
        np.testing.assert_array_equal(out, case.loaded(tensor), err_msg=f"{seed}: {case}")


@pytest.mark.parametrize("seeds", [FEW, MANY])
def test_stores_and_reductions(seeds: range) -> None:
    """Also the padding of rows."""
    module = loader.load(tiles.cubin(), "cpu")
    operations = ("store", *tiles.REDUCE)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        operation = operations[seed % len(operations)]
        case = tiles.random_tile(rng, tiles.REDUCE.get(operation, tiles.TYPES), store=True)
        whole = case.whole(rng)
        expected, tile = whole.copy(), case.tile(rng)
        case.stored(expected, tile, operation)
        made = loader.tensor_map(case.tensor(whole), **case.options())
        name, args, options = case.launch(operation)
        module.kernel(name).launch(1, 64, made, tile, *args, **options, races=True)
        np.testing.assert_array_equal(whole, expected, err_msg=f"{seed}: {operation} {case}")


#: what an H200 did (tests/gpu/test_tiles.py)
RECORDED = json.loads((Path(__file__).parent / "tiles_sm90.json").read_text())
DRAWN = random.Random(0).sample(range(RECORDED["geometries"]), 40)


@pytest.mark.parametrize("seeds", [DRAWN, pytest.param(range(RECORDED["geometries"]), marks=pytest.mark.slow)])
def test_as_a_card_did(seeds: Sequence[int]) -> None:
    """All memory, in geometries in which the card left what the model here says."""
    assert not RECORDED["wrong"]
    module = loader.load(tiles.cubin(), "cpu")
    for seed in seeds:
        operation, case, rng = tiles.drawn(seed)
        whole = case.whole(rng)
        made = loader.tensor_map(case.tensor(whole), **case.options())
        name, args, options = case.launch(operation)
        if operation == "load":
            got, wanted = np.zeros(case.nbytes, np.uint8), case.loaded(case.tensor(whole))
            module.kernel(name).launch(1, 64, made, got, *args, **options)
        else:
            got, wanted, tile = whole, whole.copy(), case.tile(rng)
            case.stored(wanted, tile, operation)
            module.kernel(name).launch(1, 64, made, tile, *args, **options)
        np.testing.assert_array_equal(got, wanted, err_msg=f"{seed}: {operation} {case}")


#: the memory of interleaved tensors and of their tiles, an H200's, and an H100's where the name has ``later``
with np.load(Path(__file__).parent / "interleaved_sm90.npz") as memory:
    SLICES = dict(memory)


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", sorted(RECORDED["answers"].keys() & tiles.PROBES.keys()))
def test_as_a_card_answered(name: str) -> None:
    """What no documentation says: the bytes of the map, all memory behind the copy, and of how many bytes the mbarrier
    hears, where that was recorded (of others, of those that come, as the PTX ISA has it)."""
    answer = RECORDED["answers"][name]
    module = loader.load(tiles.cubin(), "cpu")
    if "refused" in answer:
        with pytest.raises((LaunchError, DeviceError)):
            tiles.probed(module, name)
        return
    found = tiles.probed(module, name, heard=answer.get("heard", tiles.PROBES[name].nbytes()))
    assert tiles.digest(found["got"]) == answer["got"]
    assert found["told"][0] == 1 if "told" in found else tiles.PROBES[name].kernel
    written = np.frombuffer(bytes.fromhex(answer["map"]), np.uint32).copy()
    written[[0, 1, 16, 18]] = 0  # the address, and what turingas.tensor_map leaves out
    written[2] &= ~np.uint32(3 << 17)
    assert written.tobytes() == found["map"].tobytes()
    made = tensor_map.unpack(bytes.fromhex(answer["map"]))[1]
    assert made == tensor_map.unpack(found["map"].tobytes())[1]


@pytest.mark.parametrize("name", sorted(SLICES))
def test_slices_as_a_card_left_them(name: str) -> None:
    """Byte by byte: boxes, edges, steps, swizzles, stores, reductions, im2col columns."""
    found = tiles.probed(loader.load(tiles.cubin(), "cpu"), name, heard=tiles.PROBES[name].nbytes())
    assert (found["got"] == SLICES[name]).all()
    assert found["told"][0] == 1 if "told" in found else tiles.PROBES[name].kernel


def test_a_store_beyond_the_end() -> None:
    """A GPU writes whole 16 bytes; where memory ends before, that is an error here."""
    store, tile, at = kernel("store1"), np.ones(8, np.float32), np.zeros(5, np.int32).tobytes()
    whole = np.zeros(8, np.float32)
    store.launch(1, 32, loader.tensor_map(whole[:6], (8,)), tile, at, 32, shared=2048)
    assert whole.all()
    with pytest.raises(DeviceError, match="a write of 16 bytes .* its last 8 bytes are behind the end"):
        store.launch(1, 32, loader.tensor_map(np.zeros(6, np.float32), (8,)), tile, at, 32, shared=2048)


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy at a multiple of 256 bytes."""
    return tiles.Probe(array, (), {}).memory()


@pytest.mark.parametrize(("interleave", "swizzle"), [(16, 0), (16, 32), (16, 128), (32, 32)])
def test_slices(interleave: int, swizzle: int) -> None:
    """Images as NC/8HWC8 has them: a tile of one slice of channels, in numpy's words, there and back."""
    rng, per = np.random.default_rng(swizzle + interleave), interleave // 2
    images = aligned(rng.random((3, 4, 6, 9, per)).astype(np.float16))
    made = loader.tensor_map(images, (2, 1, 3, 8), interleave=interleave, swizzle=swizzle)
    assert made.layout.strides == tuple(reversed(images.strides[:3])) and made.layout.extent == images.nbytes
    padded = np.pad(images, ((0, 2), (0, 0), (0, 3), (0, 8), (0, 0)))
    nbytes = 2 * 3 * 8 * interleave
    for _ in range(5):
        n, c, y, x = (int(rng.integers(0, size)) for size in images.shape[:4])
        at, out = np.array([x, y, c, n, 0], np.int32).tobytes(), np.zeros(nbytes, np.uint8)
        report = kernel("load4").launch(1, 64, made, out, at, 0, 0, 0, nbytes, shared=nbytes + 1024, races=True)
        piece = np.arange(0, nbytes, 16)
        piece ^= piece >> 3 & max(0, swizzle - 16)
        rows = out.reshape(-1, 16)[piece // 16].view(np.float16)
        tile = padded[n : n + 2, c, y : y + 3, x : x + 8]
        assert (rows.reshape(tile.shape) == tile).all() and not report.races
        target = aligned(np.zeros_like(images))
        back = loader.tensor_map(target, (2, 1, 3, 8), interleave=interleave, swizzle=swizzle)
        kernel("store4").launch(1, 64, back, out, at, nbytes, shared=nbytes + 1024, races=True)
        expected = np.zeros_like(images)
        expected[n : n + 2, c, y : y + 3, x : x + 8] = images[n : n + 2, c, y : y + 3, x : x + 8]
        assert (target == expected).all()


def test_columns_of_slices() -> None:
    """A filter's place of NC/8HWC8 images with padding, in numpy's words; what ends the pixels is their dimensions'."""
    rng = np.random.default_rng(3)
    images = aligned(rng.random((2, 4, 6, 9, 8)).astype(np.float16))
    made = loader.tensor_map(images, pixels=2 * 6 * 9, channels=8, lower=(-1, -1), upper=(-1, -1), interleave=16)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    for dx, dy, c in (0, 0, 0), (2, 1, 3):
        at, out = np.array([-1, -1, c, 0, 0], np.int32).tobytes(), np.zeros((2, 6, 9, 8), np.float16)
        load = kernel("columns4")
        load.launch(1, 64, made, out, at, dx, dy, 0, out.nbytes, shared=out.nbytes + 1024, races=True)
        assert (out == padded[:, c, dy : dy + 6, dx : dx + 9]).all()
    with pytest.raises(LaunchError, match="between the lower and the upper corner there are no pixels"):
        loader.tensor_map(images, pixels=4, channels=8, lower=(0, 0), upper=(0, -9), interleave=16)


def test_slices_that_are_not_adjacent() -> None:
    images = np.zeros((2, 2, 9, 9, 8), np.uint16)
    with pytest.raises(LaunchError, match="the slices have a stride of 32 bytes; they must be adjacent"):
        loader.tensor_map(images[:, :, :, ::2], (1, 1, 1, 4), interleave=16)


FOUR_ROWS = """
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
struct Rows { int at[5]; };
extern "C" __global__ void four(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                                Rows a, Rows b, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned t = __cvta_generic_to_shared(tile), m = __cvta_generic_to_shared(&barrier), done = 0;
    if (threadIdx.x) return;
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(m));
    asm volatile("fence.proxy.async;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(m), "r"(bytes));
    asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" :: "r"(t), "l"(&from), "r"(a.at[0]), "r"(a.at[1]),
                 "r"(a.at[2]), "r"(a.at[3]), "r"(a.at[4]), "r"(m) : "memory");
    while (!done) asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                               : "=r"(done) : "r"(m) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
                 "[%1, {%2, %3, %4, %5, %6}], [%0];" :: "r"(t), "l"(&to), "r"(b.at[0]), "r"(b.at[1]),
                 "r"(b.at[2]), "r"(b.at[3]), "r"(b.at[4]) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;");
}
"""


@pytest.mark.parametrize("swizzle", [0, 128])
def test_four_rows(swizzle: int) -> None:
    """sm_100: rows from anywhere, and to anywhere; those outside are 0, and are left alone."""
    module = loader.load(compiled(FOUR_ROWS, "sm_100a", name="four.cu"), "cpu")
    rng = np.random.default_rng(swizzle)
    for _ in range(10):
        source, target = rng.random((20, 40), np.float32), np.zeros((16, 48), np.float32)
        maps = [loader.tensor_map(a, (1, 32), swizzle=swizzle) for a in (source, target)]
        take, put = rng.permutation(np.arange(-2, 22))[:4], rng.permutation(np.arange(-2, 18))[:4]
        left, right = (int(n) for n in rng.integers(-8, 24, 2))
        at = [np.array([x, *rows], np.int32).tobytes() for x, rows in ((left, take), (right, put))]
        module.kernel("four").launch(1, 32, *maps, *at, 4 * 32 * 4, shared=2048)
        expected = np.zeros_like(target)
        for y, to in zip(take.tolist(), put.tolist()):
            for x in range(32):
                inside = 0 <= y < 20 and 0 <= left + x < 40
                if 0 <= to < 16 and 0 <= right + x < 48:
                    expected[to, right + x] = source[y, left + x] if inside else 0
        assert (target == expected).all()
    with pytest.raises(DeviceError, match="takes a map with a box of one row; this one has 4"):
        module.kernel("four").launch(1, 32, loader.tensor_map(source, (4, 32)), maps[1], *at, 512, shared=2048)


@pytest.mark.parametrize("dtype", ["float32.ftz", "tf32", "tf32.ftz"])
def test_elements_that_change(dtype: str) -> None:
    """TF32 is rounded to nearest even, with one NaN; element by element with Python's numbers."""
    wild = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, -(2 - 2.0**-23), 1e-42, -1e-39, np.inf, 0.1]
    tensor = np.resize(np.array([*wild, 2.0**-126, -0.0, 3.4e38, np.nan], np.float32), (8, 32))
    out = np.zeros((8, 32), np.float32)
    at = np.zeros(5, np.int32).tobytes()
    made = loader.tensor_map(tensor, (8, 32), dtype=dtype)
    kernel("load2").launch(1, 64, made, out, at, 0, 0, 0, out.nbytes, shared=out.nbytes + 1024)

    def wanted(x: float) -> float:
        if not dtype.startswith("tf32") or not np.isfinite(x) or x == 0:
            return x
        unit = 2.0 ** (max(np.frexp(x)[1], -125) - 11)
        return float(np.copysign(round(x / unit) * unit, x))  # Python rounds ties to even

    expected = np.array([wanted(float(x)) for x in tensor.flat]).astype(np.float32).reshape(8, 32)
    if dtype.startswith("tf32"):
        expected.view(np.uint32)[np.isnan(expected)] = 0x7FFFE000
    assert (out.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("goals", [0b1, 0b1010, 0b1111])
def test_multicast(goals: int) -> None:
    a = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    out = np.zeros((4, 8, 32), np.float32)
    kernel("multicast").launch(
        4, 32, loader.tensor_map(a, (8, 32)), out, 16, 4, 1024, goals, shared=2048, cluster=4, races=True
    )
    for rank in range(4):
        got = goals >> rank & 1
        assert (out[rank] == a[4:12, 16:48]).all() if got else (out[rank].view(np.uint32) == 0xABCDABCD).all()


PAIRS = """
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
extern "C" __global__ void __cluster_dims__(4, 1, 1) pairs(const __grid_constant__ CUtensorMap map, float* out,
                                                           int many, unsigned leader) {
    __shared__ __align__(128) float tile[32];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned t = __cvta_generic_to_shared(tile), m = __cvta_generic_to_shared(&barrier), rank, hears, done = 0;
    unsigned short goals = 15;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(m));
        asm volatile("fence.proxy.async;");
        if (rank % 2 == leader)
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(m), "r"(2 * 128));
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(hears) : "r"(m), "r"(rank / 2 * 2 + leader));
    if (threadIdx.x == 0 && !many)
        asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" :: "r"(t), "l"(&map), "r"(0), "r"(rank), "r"(hears) : "memory");
    if (threadIdx.x == 0 && many && rank == 0)
        asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                     :: "r"(t), "l"(&map), "r"(0), "r"(5), "r"(hears), "h"(goals) : "memory");
    if (rank % 2 == leader) {
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(m) : "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    out[rank * 32 + threadIdx.x] = tile[threadIdx.x];
}
"""


@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize("many", [0, 1], ids=["alone", "multicast"])
def test_pairs(many: int, leader: int) -> None:
    """sm_100: one block of a pair hears of what both got."""
    module = loader.load(compiled(PAIRS, "sm_100a", name="pairs.cu"), "cpu")
    source, out = np.random.default_rng(3).random((8, 32), np.float32), np.zeros((4, 32), np.float32)
    report = module.kernel("pairs").launch(4, 32, loader.tensor_map(source, (1, 32)), out, many, leader, races=True)
    assert (out == (source[5] if many else source[:4])).all() and not report.races


WRONG = [
    ({"box": (8, 3)}, "a row of the box has 12 bytes; it must be a multiple of 16"),
    ({"box": (8, 64), "swizzle": 128}, "more than the swizzle of 128"),
    ({"box": (8, 512)}, "box: 512 is out of range; it must be 1 to 256"),
    ({"box": (8,)}, "box has 1 numbers; there must be 2"),
    ({"box": (8, 8), "steps": (9, 1)}, "steps: 9 is out of range"),
    ({"box": (8, 8), "swizzle": 16}, "swizzle is 16"),
    ({"box": (8, 8), "fill": "one"}, "fill is 'one'"),
    ({"box": (8, 8), "interleave": 16}, "with interleave=16 the innermost dimension has 4 elements"),
    ({"box": (8, 8), "l2": 32}, "l2 is 32"),
    ({"box": (8, 8), "dtype": "float16"}, "elements of float32 cannot be float16"),
    ({}, "a tensor map needs box"),
    ({"pixels": 4, "channels": 4}, "an im2col map: 2 dimensions; there must be 3 to 5"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_what_the_driver_would_refuse(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        loader.tensor_map(np.zeros((64, 64), np.float32), **options)


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(LaunchError, match="its elements must be adjacent"):
        loader.tensor_map(np.zeros((64, 64), np.float32)[:, ::2], (8, 8))
    with pytest.raises(LaunchError, match="dims: 0 is out of range"):
        loader.tensor_map(np.zeros((0, 64), np.float32), (8, 16))
    with pytest.raises(LaunchError, match="no multiple of 16"):
        loader.tensor_map(np.zeros((64, 63), np.float32), (8, 8))
    with pytest.raises(LaunchError, match="needs a multiple of 16 bytes"):
        loader.tensor_map(np.zeros((64, 64), np.float32)[:, 1:], (8, 8))
    with pytest.raises(LaunchError, match="fill='nan' with elements of int32"):
        loader.tensor_map(np.zeros((64, 64), np.int32), (8, 8), fill="nan")


def test_a_stride_of_nothing() -> None:
    """CUTLASS gives a batch of one the stride 0."""
    a = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    out, at = np.zeros((4, 8, 32), np.float32), np.array([0, 4, 0, 0, 0], np.int32).tobytes()
    made = loader.tensor_map(np.broadcast_to(a, (1, 16, 32)), (4, 8, 32))
    assert made.layout.strides == (128, 0)
    kernel("load3").launch(1, 64, made, out, at, 0, 0, 0, out.nbytes, shared=out.nbytes + 1024)
    assert (out[0] == a[4:12]).all() and not out[1:].any()


def test_what_a_kernel_may_not_do() -> None:
    a, out = np.zeros((8, 8, 8), np.float32), np.zeros(256, np.uint8)
    case = tiles.Case("float32", a.shape, a.shape, (0, 0, 0), 0, "zero", (1, 8, 8), (1, 1, 1))
    made = loader.tensor_map(a, case.box)
    with pytest.raises(DeviceError, match=r"takes a tiled map of 2 dimensions; this one is tiled, of 3"):
        kernel("load2").launch(1, 32, made, out, case.arguments(), 0, 0, 0, 256, shared=2048)
    with pytest.raises(LaunchError, match=r"is a tensor map, but the parameter has 4 bytes"):
        kernel("load3").launch(1, 32, made, out, case.arguments(), made, 0, 0, 256, shared=2048)
    with pytest.raises(DeviceError, match="no tensor map"):
        kernel("load3").launch(1, 32, b"\xff" * 128, out, case.arguments(), 0, 0, 0, 256, shared=2048)
    a.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        kernel("store3").launch(1, 32, loader.tensor_map(a, case.box), out, case.arguments(), 256, shared=2048)


OUT = """
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
extern "C" __global__ void out(const __grid_constant__ CUtensorMap map, const unsigned* in, int c, int w, int h, int n,
                               unsigned bytes) {
    extern __shared__ __align__(1024) unsigned tile[];
    for (unsigned k = threadIdx.x; k < bytes / 4; k += blockDim.x) tile[k] = in[k];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x) return;
    asm volatile("cp" WHAT ".im2col_no_offs.bulk_group [%1, {%2, %3, %4, %5}], [%0];"
                 :: "r"((unsigned)__cvta_generic_to_shared(tile)), "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n));
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
STORED = ".async.bulk.tensor.4d.global.shared::cta", ".reduce.async.bulk.tensor.4d.global.shared::cta.add"


@pytest.mark.parametrize("what", STORED, ids=["store", "add"])
def test_columns_are_stored(what: str) -> None:
    """Into the box of pixels, which must be within the tensor."""
    go = loader.load(nvrtc.compile_source(OUT, "sm_90a", [f'-DWHAT="{what}"'], name="out.cu"), "cpu").kernel("out")
    rng = np.random.default_rng(5)
    images, tile = aligned(rng.integers(0, 9, (2, 5, 7, 8)).astype(np.uint32)), rng.integers(0, 9, (20, 4), np.uint32)
    wanted = images.copy()
    pixels = [(n, y, x) for n in range(2) for y in range(1, 4) for x in range(2, 6)][5:25]
    for row, (n, y, x) in zip(tile, pixels):
        wanted[n, y, x, 4:8] = row + (wanted[n, y, x, 4:8] if "add" in what else 0)
    made = loader.tensor_map(images, pixels=20, channels=4, lower=(1, 2), upper=(-1, -1))
    go.launch(1, 32, made, tile, 4, *pixels[0][::-1], tile.nbytes, shared=2048, races=True)
    assert (images == wanted).all()
    for lower, upper in ((0, -1), (0, 0)), ((0, 0), (1, 0)):
        made = loader.tensor_map(images, pixels=20, channels=4, lower=lower, upper=upper)
        with pytest.raises(DeviceError, match="the box of pixels .* is not within the tensor, which only loads may"):
            go.launch(1, 32, made, tile, 0, 0, 0, 0, tile.nbytes, shared=2048)
    # the first pixel: (lower, upper), (w, h), as an H100 answered for w; None: it ran
    for corners, place, told in (
        (((1, 2), (0, 0)), (0, 1), "first pixel is at 0, outside of its box, 2 to 6"),
        (((0, 0), (0, -2)), (6, 0), "first pixel is at 6, outside of its box, 0 to 4"),
        (((1, 2), (0, 0)), (2, 0), "first pixel is at 0, outside of its box, 1 to 4"),
        (((0, 0), (0, -2)), (4, 0), None),
    ):
        made = loader.tensor_map(images, pixels=4, channels=4, lower=corners[0], upper=corners[1])
        with pytest.raises(DeviceError, match=told) if told else contextlib.nullcontext():
            go.launch(1, 32, made, tile, 0, *place, 0, 64, shared=2048)


@pytest.mark.parametrize(("operation", "start", "message"), [
    ("load", (0, 1), "innermost coordinate, 1, is 4 bytes, which is no multiple of 16"),
    ("store", (0, -2), "innermost coordinate, -2, is -8 bytes"),
    ("store", (-1, 0), "coordinate -1 is negative, which only loads may have"),
    ("add", (0, -4), "coordinate -4 is negative"),
])  # fmt: skip
def test_coordinates_that_an_h200_refuses(operation: str, start: tuple[int, int], message: str) -> None:
    """Illegal instructions there: of 123 random geometries exactly those with such coordinates."""
    a, other = np.zeros((8, 8), np.float32), np.zeros(256, np.uint8)
    case = tiles.Case("float32", a.shape, a.shape, start, 0, "zero", (8, 8), (1, 1))
    made = loader.tensor_map(a, case.box)
    args = (made, other, case.arguments()) + ((0, 0, 0) if operation == "load" else ())
    with pytest.raises(DeviceError, match=message):
        kernel(f"{operation}2").launch(1, 64, *args, 256, shared=2048)
