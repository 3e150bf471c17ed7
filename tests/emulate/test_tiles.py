"""Tensor copies on the CPU device: random geometries against numpy, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loader
from tests.emulate import tiles
from tests.tools import nvrtc
from turingas.emulate import DeviceError
from turingas.errors import LaunchError

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
FEW, MANY = range(40), pytest.param(range(40, 2040), marks=pytest.mark.slow)


def kernel(name: str) -> Any:
    return loader.load(tiles.cubin(), "cpu").kernel(name)


@pytest.mark.parametrize("seeds", [FEW, MANY])
def test_loads(seeds: range) -> None:
    module = loader.load(tiles.cubin(), "cpu")
    for seed in seeds:
        rng = np.random.default_rng(seed)
        case = tiles.random_columns(rng) if seed % 3 == 0 else tiles.random_tile(rng)
        tensor = case.tensor(rng)
        made, out = loader.tensor_map(tensor, **case.options()), np.zeros(case.nbytes, np.uint8)
        name = f"columns{len(case.shape)}" if case.columns else f"load{len(case.shape)}"
        offsets = [*reversed(case.offsets), 0, 0, 0][:3]
        module.kernel(name).launch(
            1, 64, made, out, case.arguments(), *offsets, case.nbytes, shared=case.nbytes + 1024, races=True
        )
        np.testing.assert_array_equal(out, case.loaded(tensor), err_msg=f"{seed}: {case}")


@pytest.mark.parametrize("seeds", [FEW, MANY])
def test_stores_and_reductions(seeds: range) -> None:
    module = loader.load(tiles.cubin(), "cpu")
    operations = ("store", *tiles.REDUCE)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        operation = operations[seed % len(operations)]
        case = tiles.random_tile(rng, tiles.REDUCE.get(operation, tiles.TYPES), store=True)
        tensor = case.tensor(rng)
        whole = tensor if tensor.base is None else tensor.base
        expected, before = tensor.copy(), whole.copy()
        tile = rng.integers(0, 256, case.nbytes, np.uint8)
        if tensor.dtype.kind == "f":
            tile = rng.integers(-64, 65, case.nbytes // case.item).astype(case.dtype).view(np.uint8)
        made = loader.tensor_map(tensor, **case.options())
        case.stored(expected, tile, operation)
        module.kernel(f"{operation}{len(case.shape)}").launch(
            1, 64, made, tile, case.arguments(), case.nbytes, shared=case.nbytes + 1024, races=True
        )
        np.testing.assert_array_equal(tensor, expected, err_msg=f"{seed}: {operation} {case}")
        tensor[:] = 0
        np.copyto(before.view(case.dtype)[tuple(slice(0, n) for n in case.shape)], 0)
        np.testing.assert_array_equal(whole, before, err_msg="bytes outside of the tensor")


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


WRONG = [
    ({"box": (8, 3)}, "a row of the box has 12 bytes; it must be a multiple of 16"),
    ({"box": (8, 64), "swizzle": 128}, "more than the swizzle of 128"),
    ({"box": (8, 512)}, "box: 512 is out of range; it must be 1 to 256"),
    ({"box": (8,)}, "box has 1 numbers; there must be 2"),
    ({"box": (8, 8), "steps": (9, 1)}, "steps: 9 is out of range"),
    ({"box": (8, 8), "swizzle": 16}, "swizzle is 16"),
    ({"box": (8, 8), "fill": "one"}, "fill is 'one'"),
    ({"box": (8, 8), "interleave": 16}, "with interleave: 2 dimensions; there must be 3 to 5"),
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
    with pytest.raises(LaunchError, match="no multiple of 16"):
        loader.tensor_map(np.zeros((64, 63), np.float32), (8, 8))
    with pytest.raises(LaunchError, match="needs a multiple of 16 bytes"):
        loader.tensor_map(np.zeros((64, 64), np.float32)[:, 1:], (8, 8))
    with pytest.raises(LaunchError, match="fill='nan' with elements of int32"):
        loader.tensor_map(np.zeros((64, 64), np.int32), (8, 8), fill="nan")


def test_what_a_kernel_may_not_do() -> None:
    a, out = np.zeros((8, 8, 8), np.float32), np.zeros(256, np.uint8)
    case = tiles.Case("float32", a.shape, a.shape, (0, 0, 0), 0, "zero", (1, 8, 8), (1, 1, 1))
    made = loader.tensor_map(a, case.box)
    with pytest.raises(DeviceError, match=r"takes a tiled map of 2 dimensions; this one is tiled, of 3"):
        kernel("load2").launch(1, 32, made, out, case.arguments(), 0, 0, 0, 256, shared=2048)
    with pytest.raises(LaunchError, match=r"is a tensor map, but the parameter has 8 bytes"):
        kernel("load3").launch(1, 32, made, made, case.arguments(), 0, 0, 0, 256, shared=2048)
    with pytest.raises(DeviceError, match="no tensor map"):
        kernel("load3").launch(1, 32, b"\xff" * 128, out, case.arguments(), 0, 0, 0, 256, shared=2048)
    a.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        kernel("store3").launch(1, 32, loader.tensor_map(a, case.box), out, case.arguments(), 256, shared=2048)
