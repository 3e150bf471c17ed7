"""Launches of CUDA programs on the CPU device: a program is linked with a stand-in of the CUDA runtime (recorder.cpp),
runs without computing anything, and what it would have launched is written down, with memory as it was then. Needs
nvcc.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turingas import Cubin
from turingas.cubin import fatbin
from turingas.emulate import Device
from turingas.tensor_map import FILLS, INTERLEAVES, NBYTES, SWIZZLES, Layout

STAND_IN = Path(__file__).with_name("recorder.cpp")
MARK = 0x7475726D61707321  # of the 128 bytes that stand for a tensor map; the word behind it is its number
#: CUtensorMapDataType
TYPES = ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16",
         "float32.ftz", "tf32", "tf32.ftz")  # fmt: skip


def nvcc() -> str | None:
    return shutil.which("nvcc")


def build(source: Path, target: Path, arch: str, options: Sequence[str]) -> Path:
    """The program, unless it is newer than its source."""
    compiler = nvcc()
    assert compiler, "nvcc is not here"
    if not target.exists() or target.stat().st_mtime < max(source.stat().st_mtime, STAND_IN.stat().st_mtime):
        command = [compiler, "-std=c++17", f"-arch={arch}", "-cudart", "none", "-w", *options]
        subprocess.run([*command, str(source), str(STAND_IN), "-o", str(target)], check=True, capture_output=True)
    return target


@dataclass(frozen=True)
class Launch:
    """One launch of a program: ``params`` as they lie in constant memory, ``memories`` with where they lay."""

    cubin: bytes
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared: int
    params: bytes
    memories: tuple[tuple[int, bytes], ...]
    maps: tuple[tuple[int, Layout], ...]

    def go(self, cubin: bytes, **options: Any) -> list[np.ndarray[Any, Any]]:
        """Runs it on a CPU device of its own, with ``cubin`` in the place of its own. The memories as they are then."""
        made = Cubin.from_bytes(cubin)
        device = Device(made.arch)
        arrays = [np.frombuffer(data, np.uint8).copy() for _, data in self.memories]
        bases = [device.memory.add(array, f"memory {n}") for n, array in enumerate(arrays)]
        if any(self.cluster):
            options["cluster"] = self.cluster
        module = device.load(made)
        params = self._placed(bases)
        sizes = [(one.offset, one.size) for one in module.kernel(self.kernel).params]
        args = [params[offset : offset + size] for offset, size in sizes]
        module.launch(self.kernel, self.grid, self.block, args, self.shared, **options)
        return arrays

    def _placed(self, bases: list[int]) -> bytes:
        """The parameters with pointers and tensor maps of this device."""

        def moved(address: int) -> int:
            for (base, data), now in zip(self.memories, bases):
                if base <= address <= base + len(data):
                    return now + address - base
            return address

        words = list(struct.unpack(f"<{len(self.params) // 8}Q", self.params[: len(self.params) // 8 * 8]))
        words = [moved(word) for word in words]
        for n, word in enumerate(words):
            if word == MARK:
                address, layout = self.maps[words[n + 1]]
                words[n - 2 : n - 2 + NBYTES // 8] = struct.unpack("<16Q", layout.pack(moved(address)))
        return struct.pack(f"<{len(words)}Q", *words) + self.params[len(words) * 8 :]


def launches(program: Path, folder: Path) -> list[Launch]:
    """What the program launches; ``folder`` is for its notes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cubins = [data for _, _, data in fatbin.cubins(program)]
    kernels = {kernel.name: (data, kernel) for data in cubins for kernel in Cubin.from_bytes(data).kernels}
    rows = (
        " ".join([name, *(f"{one.offset} {one.size}" for one in kernel.params)])
        for name, (_, kernel) in kernels.items()
    )
    (folder / "kernels.txt").write_text("\n".join(rows) + "\n")
    given = {**os.environ, "RECORD_INTO": str(folder)}
    done = subprocess.run([str(program)], env=given, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {done.stdout}{done.stderr}")
    maps = tuple(_map(line) for line in _lines(folder / "maps.txt"))
    return [_launch(folder, n, kernels, maps) for n in range(len(list(folder.glob("launch*.txt"))))]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _map(line: str) -> tuple[int, Layout]:
    kind, interleave, swizzle, fill, address, rank, *rest = map(int, line.split())
    rows = np.array(rest, np.int64).reshape(rank, 4)
    dims, strides, box, steps = (tuple(map(int, column)) for column in rows.T)
    given = INTERLEAVES[interleave], SWIZZLES[swizzle], FILLS[fill]
    return address, Layout(TYPES[kind], dims, strides[1:], box, steps, *given)


def _launch(folder: Path, n: int, kernels: dict[str, Any], maps: Any) -> Launch:
    name, *shapes, last, params, _ = (*_lines(folder / f"launch{n}.txt")[:6], "")
    grid, block, cluster = (tuple(map(int, line.split())) for line in shapes)
    rows = _lines(folder / f"launch{n}.txt")[6:]
    memories = tuple(
        (int(row.split()[0]), (folder / f"memory{n}.{k}").read_bytes()) for k, row in enumerate(rows)
    )
    return Launch(
        kernels[name][0], name, grid, block, cluster, int(last.split()[0]), bytes.fromhex(params), memories, maps
    )


@functools.cache
def of(program: Path, folder: Path) -> tuple[Launch, ...]:
    return tuple(launches(program, folder))
