"""Runs a few instructions of straight code on registers and memories, without the rest of the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.emulate import step
from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import DeviceError, Place
from turingas.emulate.late import Late
from turingas.emulate.memory import Global, Local, Shared
from turingas.emulate.races import Races
from turingas.isa.instruction import Instruction


class Image(step.Image):
    """With constant banks as arrays, and places of instructions."""

    def __init__(self, arch: str, constants: Mapping[int, bytes], instructions: Sequence[Instruction]) -> None:
        super().__init__(arch, constants)
        self.instructions = instructions

    def bank(self, number: int) -> Array:
        """The bytes of a bank."""
        return np.frombuffer(self.constants.get(number, b""), np.uint8)

    def place(self, n: int) -> Place:
        """An instruction by its number."""
        return Place("test", 16 * n, self.instructions[n].text())


class Wave(step.Wave):
    """Registers and memories of ``warps`` warps in blocks of ``per_block``."""

    def __init__(self, warps: int, image: Image, per_block: int, memory: Global, shared: int, local: int) -> None:
        super().__init__(warps, image)
        self.block_of = np.arange(warps, dtype=np.intp) // per_block
        self.memory = memory
        self.shared = Shared(-(-warps // per_block), shared)
        self.local = Local(warps, local)
        self.late = Late(warps, self.shared.plane.views[8], self.observers)
        self.alive = np.ones((warps, 32), bool)
        self.cohort: Any = None

    def who(self, warp: int, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread of a lane."""
        block = int(self.block_of[warp])
        return (block, 0, 0), (int(warp - np.searchsorted(self.block_of, block)) * 32 + lane, 0, 0)

    def fault(
        self, i: Instruction, kind: str, message: str, row: int, lane: int, address: int | None = None
    ) -> DeviceError:
        """As that of the machine."""
        block, thread = self.who(int(self.cohort.warps[row]), lane)
        return DeviceError(kind, message, self.image.place(i.address // 16), block, thread, address)  # type: ignore[attr-defined]


class Machine:
    """Some instructions, and the state that they run on. ``run`` runs them all, ``one`` a single one on some warps."""

    def __init__(
        self,
        text: str,
        arch: str = "sm_75",
        warps: int = 1,
        per_block: int = 0,
        regs: Mapping[int, Any] = {},
        uregs: Mapping[int, Any] = {},
        preds: Mapping[int, Any] = {},
        constants: Mapping[int, bytes] = {},
        memory: Global | None = None,
        shared: int = 1024,
        local: int = 256,
        races: bool = False,
    ) -> None:
        self.instructions = step.decoded(text, arch)
        self.image = Image(arch, constants, self.instructions)
        self.memory = memory or Global()
        self.wave = Wave(warps, self.image, per_block or warps, self.memory, shared, local)
        for index, value in regs.items():
            step._fill(self.wave.R, index, value)
        for index, value in uregs.items():
            step._fill(self.wave.UR, index, value)
        for index, value in preds.items():
            self.wave.P[index] = np.broadcast_to(np.asarray(value, bool), (warps, 32))
        if races:
            self.wave.observers.append(Races(self.wave))  # type: ignore[arg-type]

    def one(self, n: int, rows: Any = slice(None), active: Array | None = None) -> None:
        """Instruction ``n`` on the warps ``rows``; ``active`` (n, 32) are the lanes."""
        count = len(np.arange(self.wave.warps)[rows])
        k = Cohort(self.wave, rows, count, active)  # type: ignore[arg-type]
        self.wave.cohort = k
        i = self.instructions[n]
        with np.errstate(all="ignore"):
            step._guard(k, i)
            if k.mask is None or k.mask.any():
                step.build(i, self.image)(k)

    def run(self, active: Array | None = None) -> step.Result:
        """All of them, on all warps."""
        for n in range(len(self.instructions)):
            self.one(n, active=active)
        self.wave.late.finish()
        return step.Result(self.wave)
