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


def _count(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + np.prod(shape)).astype(dtype).reshape(shape)


def _probes() -> dict[str, tuple[np.ndarray[Any, Any], tuple[int, ...], dict[str, Any]]]:
    """An array, where the copy starts (innermost first), and what the map is given."""
    found: dict[str, Any] = {}
    for dtype in ("float32.ftz", "tf32", "tf32.ftz"):
        values = np.resize(np.concatenate([FLOATS, NANS]), (4, 12))
        for fill in ("zero", "nan"):
            found[f"{dtype}.{fill}"] = values, (0, 1), {"box": (4, 16), "dtype": dtype, "fill": fill}
    bits = np.resize(np.arange(256, dtype=np.uint16) << 8, (4, 16)).view(np.float16)
    found["bfloat16.nan"] = bits, (0, 1), {"box": (4, 16), "dtype": "bfloat16", "fill": "nan"}
    for swizzle in (32, 64, 128):  # rows shorter than it
        for row in range(16, swizzle, 16):
            array = _count((10, 64), "uint16")
            found[f"short.{swizzle}.{row}"] = array, (0, 0), {"box": (9, row // 2), "swizzle": swizzle}
    for interleave, swizzles in ((16, (0, 32, 64, 128)), (32, (32,))):
        for swizzle in swizzles:
            for rank in (3, 4, 5):
                shape = (2, 3, 2, 4, interleave // 2)[-rank:]
                for inner in (interleave // 2, interleave, 4):
                    box = (*(2, 2, 2, 3)[1 - rank:], inner)
                    name = f"interleave.{interleave}.{swizzle}.{rank}.{inner}"
                    options = {"box": box, "interleave": interleave, "swizzle": swizzle}
                    found[name] = _count(shape, "uint16"), (0,) * rank, options
                    found[name + ".second"] = _count(shape, "uint16"), (0, *(1,) * (rank - 1)), options
    for l2 in (64, 128, 256):
        found[f"l2.{l2}"] = _count((8, 32), "uint16"), (0, 0), {"box": (8, 32), "l2": l2}
    for rank in (3, 4, 5):  # where the fields of an im2col map lie
        space = rank - 2
        plain = {"pixels": 5, "channels": 16, "lower": (0,) * space, "upper": (0,) * space}
        array = _count((2, 3, 4, 5, 32)[5 - rank:], "uint16")
        found[f"im2col.{rank}"] = array, (0,) * rank, plain
        for name, value in (("pixels", 9), ("channels", 32), ("lower", (-1,) * space), ("upper", (-1,) * space)):
            found[f"im2col.{rank}.{name}"] = array, (0,) * rank, {**plain, name: value}
    return found


PROBES = _probes()


def probed(module: loader.Module, name: str, send: Any, polls: int = 1_000_000) -> Arrays:
    """``map`` as the driver wrote it; ``got``: shared memory after the copy, with 0xCD where nothing came; ``told``:
    whether the mbarrier heard of all bytes of the box, polls that were left then, and its word."""
    array, start, options = PROBES[name]
    made = loader.tensor_map(send(array), **options)
    inner = options.get("channels") or options["box"][-1]
    outer = options.get("pixels") or int(np.prod(options["box"][:-1]))
    at = np.array([*start, 0, 0, 0, 0][:5], np.int32).tobytes()
    out = send(np.zeros(tiles.DUMP, np.uint8)), send(np.zeros(4, np.uint32))
    kernel = module.kernel(("columns" if "pixels" in options else "tile") + f"_probe{array.ndim}")
    nbytes = inner * outer * array.itemsize
    kernel.launch(1, 64, made, *out, at, nbytes, tiles.DUMP, polls, shared=tiles.DUMP + 1024)
    got, told = (b.numpy() if isinstance(b, Buffer) else b for b in out)
    return {"map": np.frombuffer(made.opaque, np.uint8), "array": array, "got": got, "told": told}


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
            answers[name] = {"told": found["told"].tolist(), "map": found["map"].tobytes().hex()}
            raw |= {f"{name}.got": found["got"], f"{name}.array": found["array"]}
    record({"answers": answers}, raw, gpu)
    assert any("told" in answer for answer in answers.values()), "all are refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
