"""Runs a few instructions of straight code on given registers, without the rest of the emulator.

::

    out = run("IADD3 R2, R0, R1, RZ", regs={0: a, 1: b})
    out.r(2)  # uint32, one value a thread
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import turingas
from tests.tools import nvdisasm, nvrtc
from turingas.emulate import semantics as emulator
from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker, Step
from turingas.emulate.cohort import Cohort
from turingas.emulate.late import Late
from turingas.isa import arch as arches
from turingas.isa.instruction import Instruction, Mem, Reg, instruction
from turingas.isa.isa import instruction_set

CONTROL = "00:-:-:-:1"
Values = Any  # a number for all threads, or one value a thread: 32 of them, or a multiple of 32


class Image:
    """What ``Maker`` asks of a kernel: its architecture and its constants (``constants``: bytes by bank)."""

    def __init__(self, arch: str, constants: Mapping[int, bytes]) -> None:
        self.arch = arches.arch(arch)
        self.constants = constants

    def constant(self, bank: int, offset: int, size: int) -> bytes:
        """The bytes; those that nobody gave are an error."""
        found = self.constants[bank][offset : offset + size]
        assert len(found) == size, f"c[{bank:#x}][{offset:#x}] is not given"
        return found


class Wave:
    """Registers of ``warps`` warps, and nothing else."""

    def __init__(self, warps: int, image: Image) -> None:
        self.warps, self.image = warps, image
        self.R = np.zeros((256, warps, 32), np.uint32)
        self.P = np.zeros((8, warps, 32), bool)
        self.P[7] = True
        self.UR = np.zeros((64, warps, 1), np.uint32)
        self.UP = np.zeros((8, warps, 1), bool)
        self.UP[7] = True
        self.block_of = np.zeros(warps, np.intp)
        self.observers: list[Any] = []
        self.late = Late(warps, np.zeros(0, np.uint64))
        self.options = types.SimpleNamespace(stale=False)


class Result:
    """The registers afterwards: flat arrays, one value a thread (uniform ones: one a warp)."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave

    def r(self, index: int, dtype: Any = np.uint32) -> Array:
        """A general register; its bits as ``dtype`` (of 16 bits: two values a thread)."""
        return self.wave.R[index].reshape(-1).view(dtype)

    def r64(self, index: int, dtype: Any = np.uint64) -> Array:
        """A pair of general registers."""
        low, high = self.r(index).astype(np.uint64), self.r(index + 1).astype(np.uint64)
        return (low | high << np.uint64(32)).view(dtype)

    def p(self, index: int) -> Array:
        """A predicate."""
        return self.wave.P[index].reshape(-1)

    def ur(self, index: int, dtype: Any = np.uint32) -> Array:
        """A uniform register."""
        return self.wave.UR[index].reshape(-1).view(dtype)

    def ur64(self, index: int, dtype: Any = np.uint64) -> Array:
        """A pair of uniform registers."""
        low, high = self.ur(index).astype(np.uint64), self.ur(index + 1).astype(np.uint64)
        return (low | high << np.uint64(32)).view(dtype)

    def up(self, index: int) -> Array:
        """A uniform predicate."""
        return self.wave.UP[index].reshape(-1)


def decoded(text: str, arch: str) -> list[Instruction]:
    """The instructions of some lines; a line may have a control code, none matters."""
    found = []
    for n, word in enumerate(turingas.encode(text, arch=arch, default_control=CONTROL)):
        one = instruction(instruction_set(arch), word, 16 * n)
        assert one is not None, text
        found.append(one)
    return found


def build(i: Instruction, image: Image) -> Step:
    """The step of an instruction, as the emulator builds it."""
    return emulator.build(i, Maker(image))  # type: ignore[arg-type]


def run(
    text: str | Sequence[Instruction | tuple[int, Values]],
    arch: str = "sm_75",
    regs: Mapping[int, Values] = {},
    preds: Mapping[int, Values] = {},
    uregs: Mapping[int, Values] = {},
    upreds: Mapping[int, Values] = {},
    constants: Mapping[int, bytes] = {},
    active: Values = None,
) -> Result:
    """Runs the instructions in order, each under its guard.

    Between instructions there may be pairs of a general register and its value, in place of a load. A value of 64 bits
    goes to a pair of registers; one of 16 bits is two halves a register where there are 64 of them.
    ``active``: the threads that take part, bool.
    """
    image = Image(arch, constants)
    program = decoded(text, arch) if isinstance(text, str) else text
    loads = [i[1] for i in program if not isinstance(i, Instruction)]
    many = [np.asarray(v) for v in [*regs.values(), *preds.values(), *loads]]
    wave = Wave(max([1, *(v.size // 32 for v in many)]), image)
    for index, value in regs.items():
        _fill(wave.R, index, value)
    for index, value in uregs.items():
        _fill(wave.UR, index, value)
    for file, values in ((wave.P, preds), (wave.UP, upreds)):
        for index, value in values.items():
            file[index] = np.broadcast_to(np.asarray(value, bool), file[index].size).reshape(file[index].shape)
    every = None if active is None else np.broadcast_to(active, wave.P[7].size).reshape(-1, 32)
    k = Cohort(wave, slice(None), wave.warps, every)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        for i in program:
            if not isinstance(i, Instruction):
                _fill(wave.R, *i)
            else:
                _guard(k, i)
                build(i, image)(k)
    return Result(wave)


@functools.cache
def compiled(source: str, arch: str) -> dict[str, list[Instruction]]:
    """CUDA C++ as instructions by kernel."""
    if nvrtc.library_path() is None:
        pytest.skip("NVRTC is not installed")
    found = {}
    for name, words in nvdisasm.code(nvrtc.compile_source(source, arch)):
        code = [instruction(instruction_set(arch), word, 16 * n) for n, word in enumerate(words)]
        assert None not in code, name
        found[name] = [i for i in code if i is not None]
    return found


def straight(source: str, kernel: str, arch: str, inputs: Sequence[Array], dtype: Any) -> Array:
    """Runs ptxas's code of a kernel without branches that reads in[t], in[t + 32], ... and writes one value.

    Its loads are replaced by ``inputs`` (one value a thread each), its store by the result, of ``dtype``.
    """
    body: list[Instruction | tuple[int, Values]] = []
    for i in compiled(source, arch)[kernel]:
        registers = [o for o in i.operands if isinstance(o, Reg)]
        if i.base == "LDG":
            offset = next(o.offset for o in i.operands if isinstance(o, Mem))
            target = next(o.index for o in registers if o.file == "R")
            body.append((target, inputs[offset // (32 * inputs[0].dtype.itemsize)]))
        elif i.base == "STG":
            out = run(body, arch, constants=dict.fromkeys(range(5), bytes(0x400)))
            get = out.r64 if np.dtype(dtype).itemsize == 8 else out.r
            return get(next(o.index for o in registers), dtype)
        elif i.base not in ("S2R", "LDC", "ULDC"):
            body.append(i)
    raise AssertionError("no store")


def _fill(file: Array, index: int, value: Values) -> None:
    """Writes one value a thread, or one for all, to a register or a pair."""
    if isinstance(value, int):
        value = np.uint32(value & 0xFFFFFFFF)
    elif isinstance(value, float):
        value = np.float32(value)
    value = np.asarray(value)
    words = np.atleast_1d(value).view(np.uint32).reshape(-1, max(1, value.dtype.itemsize // 4))
    for n in range(words.shape[1]):
        file[index + n] = np.broadcast_to(words[:, n], file[index].size).reshape(file[index].shape)


def _guard(k: Cohort, i: Instruction) -> None:
    k.mask = k.active
    if i.always:
        return
    value = k.full(k.up(i.guard.index) if i.guard.file == "UP" else k.p(i.guard.index)) != i.guard.inv
    k.mask = value if k.active is None else value & k.active
