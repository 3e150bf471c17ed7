"""Tensor copies of a GPU against the same numpy as the CPU device's: 2,000 random geometries, and open questions.

TURINGAS_RECORD_TILES names a file for the result; what it has is kept. Beside it, with .npz behind the name, goes all
that is needed to see what the card did: of geometries that differ, and of what is not documented (``PROBES``), the 128
bytes of the map as the driver wrote them, and memory before and after.
"""

from __future__ import annotations

import dataclasses
import glob
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader import cuda
from loader.bench import results as kept
from loader.cuda import Buffer, CudaError
from tests.emulate import tiles
from tests.gpu.keep import keep
from turingas.errors import LaunchError

pytestmark = pytest.mark.gpu
GEOMETRIES = 2000
PARTS = 10  # that processes may share
ARCHS = ("sm_90",)
Arrays = dict[str, np.ndarray[Any, Any]]


class Corner:
    """A corner of an array in a GPU's memory."""

    def __init__(self, whole: Any, shape: tuple[int, ...], host: np.ndarray[Any, Any]) -> None:
        self.whole, self.shape, self.dtype, self.strides = whole, shape, host.dtype, host.strides
        given = whole.__cuda_array_interface__
        self.__cuda_array_interface__ = {**given, "shape": shape, "typestr": host.dtype.str, "strides": host.strides}


def record(found: dict[str, Any], raw: Arrays, gpu: cuda.Device) -> None:
    keep("TURINGAS_RECORD_TILES", lambda: kept.facts("tensor maps", gpu, [tiles.SOURCE]), found, raw)


class Room:
    """Memory that all copies use, one after the other: to allocate takes longer than a copy."""

    def __init__(self, module: loader.Module, nbytes: int = 1 << 20) -> None:
        self.module, self.whole = module, Buffer(nbytes, np.uint8, module.device)
        self.used = 0

    def of(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A copy of an array, behind those of before."""
        assert self.used + array.nbytes <= self.whole.nbytes
        place = self.whole.address + self.used
        self.used += -(-array.nbytes // 256) * 256
        return Buffer.view(place, array.shape, array.dtype, self.module.device, self.module).copy_from(array)


def copied(room: Room, seed: int) -> tuple[str, tiles.Case, Arrays]:
    """One geometry: its operation; the map, memory before, and what there should be and is afterwards."""
    room.used, module = 0, room.module
    operation, case, rng = tiles.drawn(seed)
    whole = case.whole(rng)
    there = room.of(whole)
    made = loader.tensor_map(Corner(there, case.shape, case.tensor(whole)), **case.options())
    name, args, options = case.launch(operation)
    found = {"map": np.frombuffer(made.opaque, np.uint8), "before": whole.copy()}
    if operation == "load":
        out = room.of(np.zeros(case.nbytes, np.uint8))
        module.kernel(name).launch(1, 64, made, out, *args, **options)
        return operation, case, {**found, "wanted": case.loaded(case.tensor(whole)), "got": out.numpy()}
    tile = case.tile(rng)
    module.kernel(name).launch(1, 64, made, room.of(tile), *args, **options)
    case.stored(whole, tile, operation)
    return operation, case, {**found, "tile": tile, "wanted": whole, "got": there.numpy()}


@pytest.mark.parametrize("part", range(PARTS))
def test_geometries(part: int, gpu: cuda.Device) -> None:
    wrong: dict[str, Any] = {}
    raw: Arrays = {}
    with loader.load(tiles.cubin(), str(gpu)) as module:
        room = Room(module)
        for seed in range(part, GEOMETRIES, PARTS):
            operation, case, found = copied(room, seed)
            off = int((found["wanted"].view(np.uint8) != found["got"].view(np.uint8)).sum())
            if off:
                wrong[str(seed)] = {"operation": operation, "bytes": off, **dataclasses.asdict(case)}
                raw |= {f"{seed}.{name}": array for name, array in found.items()}
        room.whole.free()
    record({"geometries": GEOMETRIES, "parts": {str(part): "ran"}, "wrong": wrong}, raw, gpu)
    assert not wrong, list(wrong.values())[:3]


# ---- open questions ------------------------------------------------------------------------------------------------


def sent(memory: np.ndarray[Any, Any], tensor: np.ndarray[Any, Any]) -> tuple[Buffer, Any]:
    there = Buffer.of(memory)
    return there, Corner(there, tensor.shape, tensor)


def main(folder: Path, names: list[str]) -> None:
    """Ask some questions, each answer into a file of its own. What a card ends with a fault ends this process."""
    module = loader.load(tiles.cubin(), "cuda:0")
    for name in names:
        try:
            found = tiles.probed(module, name, sent)
        except (CudaError, LaunchError) as error:
            (folder / f"{name}.txt").write_text(str(error).partition("\n")[0])
            if "cuTensorMapEncode" not in str(error) and isinstance(error, CudaError):
                raise
            continue
        np.savez(folder / f"{name}.npz", **found)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", range(PARTS))
def test_open_questions(part: int, gpu: cuda.Device, tmp_path: Path) -> None:
    """What the card does where nothing is documented; tests/emulate/test_tiles.py holds the CPU device against what is
    recorded. That the driver or the card refuses it is an answer, too. In processes of their own, since a fault takes
    the context along."""
    asked = left = list(tiles.PROBES)[part::PARTS]
    while left:
        subprocess.run([sys.executable, "-m", "tests.gpu.test_tiles", str(tmp_path), *left], timeout=60)
        before, left = left, [n for n in left if not list(tmp_path.glob(f"{glob.escape(n)}.[nt]*"))]
        assert len(left) < len(before), f"{left[0]} ends the process without a word"
    answers: dict[str, Any] = {}
    raw: Arrays = {}
    for name in asked:
        if (text := tmp_path / f"{name}.txt").exists():
            answers[name] = {"refused": text.read_text()}
            continue
        with np.load(tmp_path / f"{name}.npz") as found:
            answers[name] = tiles.answer(found)
            raw[name] = found["got"]
    record({"answers": answers}, raw, gpu)
    assert any("map" in answer for answer in answers.values()), "all are refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
