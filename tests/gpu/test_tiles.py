"""Tensor copies of an H200 against the same numpy as the CPU device's: 2,000 random geometries.

TURINGAS_RECORD_TILES names a file for the result. It has not run on a card yet.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader.bench import results as kept
from loader.cuda import Buffer
from tests.emulate import tiles
from tests.gpu.test_agreement import commit

pytestmark = pytest.mark.gpu
GEOMETRIES = 2000


class Corner:
    """A corner of an array in a GPU's memory."""

    def __init__(self, whole: Any, shape: tuple[int, ...], host: np.ndarray[Any, Any]) -> None:
        self.whole, self.shape, self.dtype, self.strides = whole, shape, host.dtype, host.strides
        given = whole.__cuda_array_interface__
        self.__cuda_array_interface__ = {**given, "shape": shape, "typestr": host.dtype.str, "strides": host.strides}


def differs(module: loader.Module, seed: int) -> str:
    """What is wrong with one geometry; "" if nothing is."""
    rng = np.random.default_rng(seed)
    operations = ("load", "load", "store", *tiles.REDUCE)
    operation = operations[seed % len(operations)]
    if operation == "load":
        case = tiles.random_columns(rng) if seed % 3 == 0 else tiles.random_tile(rng)
    else:
        case = tiles.random_tile(rng, tiles.REDUCE.get(operation, tiles.TYPES), store=True)
    tensor = case.tensor(rng)
    host = np.zeros(case.padded, case.dtype)
    corner = host[tuple(slice(0, n) for n in case.shape)]
    corner[:] = tensor
    whole = Buffer.of(host)
    made = loader.tensor_map(Corner(whole, case.shape, corner), **case.options())
    size = {"shared": case.nbytes + 1024}
    if operation == "load":
        out = Buffer.of(np.zeros(case.nbytes, np.uint8))
        name = f"columns{len(case.shape)}" if case.columns else f"load{len(case.shape)}"
        offsets = [*reversed(case.offsets), 0, 0, 0][:3]
        module.kernel(name).launch(1, 64, made, out, case.arguments(), *offsets, case.nbytes, **size)
        wrong = int((out.numpy() != case.loaded(tensor)).sum())
    else:
        tile = rng.integers(0, 256, case.nbytes, np.uint8)
        if tensor.dtype.kind == "f":
            tile = rng.integers(-64, 65, case.nbytes // case.item).astype(case.dtype).view(np.uint8)
        name = f"{operation}{len(case.shape)}"
        module.kernel(name).launch(1, 64, made, Buffer.of(tile), case.arguments(), case.nbytes, **size)
        case.stored(corner, tile, operation)
        wrong = int((whole.numpy().view(np.uint8) != host.view(np.uint8)).sum())
    return f"{seed}: {operation}, {wrong} bytes differ: {case}" if wrong else ""


def test_geometries() -> None:
    module = loader.load(tiles.cubin(), "cuda:0")
    wrong = [text for seed in range(GEOMETRIES) if (text := differs(module, seed))]
    if path := os.environ.get("TURINGAS_RECORD_TILES"):
        facts = {"date": datetime.date.today().isoformat(), "commit": commit()}
        Path(path).write_text(kept.text({**facts, "geometries": GEOMETRIES, "wrong": wrong}))
    assert not wrong, wrong[:5]
