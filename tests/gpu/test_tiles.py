"""Tensor copies of a GPU against the same numpy as the CPU device's: 2,000 random geometries, and open questions.

TURINGAS_RECORD_TILES names a file for the result. Beside it, with .npz behind the name, goes all that is needed to see
what the card did: of geometries that differ, and of what is not documented (``PROBES``), the 128 bytes of the map as
the driver wrote them, and memory before and after.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
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
from turingas.errors import LaunchError

pytestmark = pytest.mark.gpu
GEOMETRIES = 2000
ARCHS = ("sm_90",)
Arrays = dict[str, np.ndarray[Any, Any]]


class Corner:
    """A corner of an array in a GPU's memory."""

    def __init__(self, whole: Any, shape: tuple[int, ...], host: np.ndarray[Any, Any]) -> None:
        self.whole, self.shape, self.dtype, self.strides = whole, shape, host.dtype, host.strides
        given = whole.__cuda_array_interface__
        self.__cuda_array_interface__ = {**given, "shape": shape, "typestr": host.dtype.str, "strides": host.strides}


def record(found: dict[str, Any], raw: Arrays, gpu: cuda.Device) -> None:
    """Into the files that the environment names, beside what other tests have put there."""
    if not (path := os.environ.get("TURINGAS_RECORD_TILES")):
        return
    file, more = Path(path), Path(path + ".npz")
    before = json.loads(file.read_text()) if file.exists() else kept.facts("tensor maps", gpu, [tiles.SOURCE])
    file.write_text(kept.text({**before, **found}))
    arrays = dict(np.load(more)) if more.exists() else {}
    np.savez_compressed(more, **{**arrays, **raw})  # type: ignore[arg-type]


def copied(module: loader.Module, seed: int) -> tuple[str, tiles.Case, Arrays]:
    """One geometry: its operation; the map, memory before, and what there should be and is afterwards."""
    operation, case, rng = tiles.drawn(seed)
    whole = case.whole(rng)
    there = Buffer.of(whole, module.device)
    made = loader.tensor_map(Corner(there, case.shape, case.tensor(whole)), **case.options())
    name, args, options = case.launch(operation)
    found = {"map": np.frombuffer(made.opaque, np.uint8), "before": whole.copy()}
    if operation == "load":
        out = Buffer.of(np.zeros(case.nbytes, np.uint8), module.device)
        module.kernel(name).launch(1, 64, made, out, *args, **options)
        return operation, case, {**found, "wanted": case.loaded(case.tensor(whole)), "got": out.numpy()}
    tile = case.tile(rng)
    module.kernel(name).launch(1, 64, made, Buffer.of(tile, module.device), *args, **options)
    case.stored(whole, tile, operation)
    return operation, case, {**found, "tile": tile, "wanted": whole, "got": there.numpy()}


def test_geometries(gpu: cuda.Device) -> None:
    module = loader.load(tiles.cubin(), str(gpu))
    wrong: dict[int, Any] = {}
    raw: Arrays = {}
    for seed in range(GEOMETRIES):
        operation, case, found = copied(module, seed)
        off = int((found["wanted"].view(np.uint8) != found["got"].view(np.uint8)).sum())
        if off:
            wrong[seed] = {"operation": operation, "bytes": off, **dataclasses.asdict(case)}
            raw |= {f"{seed}.{name}": array for name, array in found.items()}
    record({"geometries": GEOMETRIES, "wrong": wrong}, raw, gpu)
    assert not wrong, list(wrong.values())[:3]


# ---- open questions ------------------------------------------------------------------------------------------------

FLOATS = np.array([1 + 2.0**-11, -(2 - 2.0**-23), 1e-42, -1e-42, np.inf, -0.0, 3.4028e38, 0.1], np.float32)
NANS = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
MORE = 65536  # bytes that an mbarrier waits for in vain, so that its word tells of how many it has heard
POLLS = 1000


@dataclasses.dataclass
class Probe:
    """``whole``: memory; of its beginning ``shape`` and ``strides`` make the tensor (numpy's order; (): all of it).
    ``start``: where the copy begins, the innermost coordinate first. ``options``: what the map is given."""

    whole: np.ndarray[Any, Any]
    start: tuple[int, ...]
    options: dict[str, Any]
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    store: bool = False

    def tensor(self) -> np.ndarray[Any, Any]:
        if not self.shape:
            return self.whole
        return np.lib.stride_tricks.as_strided(self.whole, self.shape, self.strides)


def _count(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + np.prod(shape)).astype(dtype).reshape(shape)


def _probes() -> dict[str, Probe]:
    found: dict[str, Probe] = {}
    for dtype in ("float32.ftz", "tf32", "tf32.ftz"):
        values = np.resize(np.concatenate([FLOATS, NANS]), (4, 12))
        for fill in ("zero", "nan"):
            found[f"{dtype}.{fill}"] = Probe(values, (0, 1), {"box": (4, 16), "dtype": dtype, "fill": fill})
    bits = np.resize(np.arange(256, dtype=np.uint16) << 8, (4, 16)).view(np.float16)
    found["bfloat16.nan"] = Probe(bits, (0, 1), {"box": (4, 16), "dtype": "bfloat16", "fill": "nan"})
    for swizzle in (32, 64, 128):  # rows shorter than it
        for row in range(16, swizzle, 16):
            array = _count((10, 64), "uint16")
            found[f"short.{swizzle}.{row}"] = Probe(array, (0, 0), {"box": (9, row // 2), "swizzle": swizzle})
    found |= _interleaved()
    for l2 in (64, 128, 256):
        found[f"l2.{l2}"] = Probe(_count((8, 32), "uint16"), (0, 0), {"box": (8, 32), "l2": l2})
    for rank in (3, 4, 5):  # where the fields of an im2col map lie
        space = rank - 2
        plain = {"pixels": 5, "channels": 16, "lower": (0,) * space, "upper": (0,) * space}
        array = _count((2, 3, 4, 5, 32)[5 - rank:], "uint16")
        found[f"im2col.{rank}"] = Probe(array, (0,) * rank, plain)
        for name, value in (("pixels", 9), ("channels", 32), ("lower", (-1,) * space), ("upper", (-1,) * space)):
            found[f"im2col.{rank}.{name}"] = Probe(array, (0,) * rank, {**plain, name: value})
    return found


def _interleaved() -> dict[str, Probe]:
    """Slices of 16 or 32 bytes. An H200 steps through the first dimension of such a map slice by slice, as if its
    elements were slices, and a step of the last but one is its stride, whatever the channels of a slice: what remains
    to be asked is how it counts channels in boxes and sizes. So: dimensions (pixels, ..., channels, images)."""
    found: dict[str, Probe] = {}

    def ask(name: str, slice_: int, dims: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...] = (),
            dtype: str = "uint16", swizzle: int = 0, slices: int = 5, **more: Any) -> None:  # fmt: skip
        whole = _count((2**13 // np.dtype(dtype).itemsize,), "uint16").astype(dtype)
        if dtype == "uint8":  # 16 bits are told apart
            whole = _count((2**12,), "uint16").view(np.uint8)
        strides = [slice_ * dims[0]]
        for n in dims[1:-1]:
            strides.append(strides[-1] * (slices if len(strides) == len(dims) - 2 else n))
        start = start or (0,) * len(dims)
        swizzle = 32 if slice_ == 32 else swizzle
        store = bool(more.pop("store", False))
        options = {"box": box[::-1], "interleave": slice_, "swizzle": swizzle, **more}
        if "pixels" in more:
            del options["box"]
        shape, memory = dims[::-1], (*strides[::-1], whole.itemsize)
        found[f"slices.{slice_}.{name}"] = Probe(whole, start, options, shape, memory, store)

    for slice_ in (16, 32):
        per = slice_ // 2
        dims = (10, 5 * per, 3)
        for channels in (1, per - 1, per, per + 1, 2 * per, 3 * per):
            ask(f"box{channels}", slice_, dims, (8, channels, 2))
        for at in (1, 2, 4, 5, 6, per, 5 * per, -1):
            ask(f"channel{at}", slice_, dims, (8, 2 * per, 2), (0, at, 0))
        for size in (5, 4 * per + 1, 4 * per):  # what ends the channels
            for at in (3, 4):
                ask(f"size{size}.{at}", slice_, (10, size, 3), (8, 3 * per, 1), (0, at, 0))
        for at in (1, 3, -2, 6, 9):
            ask(f"pixel{at}", slice_, dims, (8, 2 * per, 2), (at, 0, 1))
        for wide in (1, 2, 5, 6, 12, 24):
            ask(f"wide{wide}", slice_, dims, (wide, per, 2))
        for dtype, item in (("uint8", 1), ("uint32", 4), ("uint64", 8)):
            n = slice_ // item
            for channels in (n, 2 * n):
                ask(f"{dtype}.{channels}", slice_, (10, 5 * n, 3), (16, channels, 1), dtype=dtype)
        ask("nan", slice_, dims, (8, 3 * per, 2), (6, 3, 2), dtype="float16", fill="nan")
        ask("rank4", slice_, (6, 3, 4 * per, 2), (8, 2, 2 * per, 2), (0, 1, 1, 1), slices=4)
        ask("rank5", slice_, (4, 2, 2, 3 * per, 2), (8, 2, 1, 2 * per, 2), (0, 0, 1, 1, 0), slices=3)
        for n in range(3):
            steps = tuple(2 if m == n else 1 for m in range(3))
            ask(f"step{n}", slice_, dims, (8, 2 * per, 2), steps=steps[::-1])
        ask("columns", slice_, (6, 3, 4 * per, 2), (), slices=4, pixels=5, channels=2 * per, lower=(0, 0), upper=(0, 0))
        ask("store", slice_, dims, (8, 2 * per, 2), (1, 1, 0), store=True)
        ask("store.out", slice_, dims, (8, 3 * per, 2), (6, 3, 2), store=True)
    for swizzle in (32, 64, 128):
        ask(f"swizzle{swizzle}", 16, (10, 40, 3), (8, 16, 2), (1, 1, 0), swizzle=swizzle)
    return found


PROBES = _probes()


def probed(module: loader.Module, name: str, send: Any) -> Arrays:
    """``map`` as the driver wrote it; ``got``: shared memory after a load, with 0xCD where nothing came, or memory
    after a store; ``heard``: bytes that the mbarrier heard of a load."""
    probe = PROBES[name]
    options, tensor = probe.options, probe.tensor()
    whole = send(probe.whole)
    given = tensor if isinstance(whole, np.ndarray) else Corner(whole, tensor.shape, tensor)
    made = loader.tensor_map(given, **options)
    at = np.array([*probe.start, 0, 0, 0, 0][:5], np.int32).tobytes()
    found: Arrays = {"map": np.frombuffer(made.opaque, np.uint8), "array": probe.whole}
    if probe.store:
        tile = np.arange(40001, 40001 + 2048).astype(np.uint16)
        module.kernel(f"store{tensor.ndim}").launch(1, 64, made, send(tile), at, tile.nbytes, shared=tiles.DUMP)
        return {**found, "got": _back(whole)}
    out = send(np.zeros(tiles.DUMP, np.uint8)), send(np.zeros(4, np.uint32))
    kernel = module.kernel(("columns" if "pixels" in options else "tile") + f"_probe{tensor.ndim}")
    kernel.launch(1, 64, made, *out, at, MORE, tiles.DUMP, POLLS, shared=tiles.DUMP + 1024)
    got, told = map(_back, out)
    word = int(told[2]) | int(told[3]) << 32
    heard = np.array([(MORE + (word >> 21)) % 2**21])  # its bits 21 on: minus the bytes that are still to come
    return {**found, "got": got, "told": told, "heard": heard}


def _back(array: Any) -> np.ndarray[Any, Any]:
    return array.numpy() if isinstance(array, Buffer) else array


def main(folder: Path, names: list[str]) -> None:
    """Ask some questions, each answer into a file of its own. What a card ends with a fault ends this process."""
    module = loader.load(tiles.cubin(), "cuda:0")
    for name in names:
        try:
            found = probed(module, name, Buffer.of)
        except (CudaError, LaunchError) as error:
            (folder / f"{name}.txt").write_text(str(error))
            if "cuTensorMapEncode" not in str(error) and isinstance(error, CudaError):
                raise
            continue
        np.savez(folder / f"{name}.npz", **found)  # type: ignore[arg-type]


def test_open_questions(gpu: cuda.Device, tmp_path: Path) -> None:
    """What the card does where nothing is documented: only recorded. That the driver or the card refuses it is an
    answer, too. In processes of their own, since a fault takes the context along."""
    left = list(PROBES)
    while left:
        subprocess.run([sys.executable, "-m", "tests.gpu.test_tiles", str(tmp_path), *left], timeout=300)
        before, left = left, [n for n in left if not list(tmp_path.glob(f"{glob.escape(n)}.[nt]*"))]
        assert len(left) < len(before), f"{left[0]} ends the process without a word"
    answers: dict[str, Any] = {}
    raw: Arrays = {}
    for name in PROBES:
        if (text := tmp_path / f"{name}.txt").exists():
            answers[name] = {"refused": text.read_text()}
            continue
        with np.load(tmp_path / f"{name}.npz") as found:
            numbers = {key: found[key].tolist() for key in ("told", "heard") if key in found}
            answers[name] = {**numbers, "map": found["map"].tobytes().hex()}
            raw |= {f"{name}.got": found["got"], f"{name}.array": found["array"]}
    record({"answers": answers}, raw, gpu)
    assert any("map" in answer for answer in answers.values()), "all are refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
