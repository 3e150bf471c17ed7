"""Registers of products of warp groups (HGMMA and its kin), for ``--races`` and ``--strict``: who touches those that a
product has yet to read or write, and products of registers that were written behind the WARPGROUP.ARRIVE (PTX:
``wgmma.fence``) of their warp group."""

from __future__ import annotations

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.code import WORD
from turingas.emulate.cohort import Cohort, Observer, State
from turingas.emulate.report import Report
from turingas.emulate.strict import Hazard
from turingas.isa.instruction import ZEROS, Instruction

NEVER, NOBODY = -2, -1


class Products(Observer):
    """The products of one wave that are under way. ``findings`` has each pair of instructions once."""

    each = True

    def __init__(self, wave: State) -> None:
        self.wave = wave
        registers = (len(wave.R), wave.warps)
        #: for each general register and warp, how many products will write and read it, and the last one that does
        self.open = {what: np.zeros(registers, np.int16) for what in ("write", "read")}
        self.who = np.zeros(registers, np.int32)
        #: the instruction that wrote it since its warp group arrived; NOBODY, or that the group has NEVER arrived
        self.written = np.full(registers, NEVER, np.int32)
        self.findings: list[Hazard] = []
        self._seen: set[tuple[str, int, int]] = set()
        self._touched: dict[int, list[tuple[str, int]]] = {}

    def tell(self, report: Report) -> None:
        report.hazards += [hazard for hazard in self.findings if hazard not in report.hazards]

    def product(self, k: Cohort, i: Instruction) -> None:
        self._count(k.warps if k.mask is None else k.warps[k.mask.any(axis=1)], i, 1)

    def product_over(self, warps: Array, i: Instruction) -> None:
        self._count(warps, i, -1)

    def _count(self, warps: Array, i: Instruction, by: int) -> None:
        for what, register in self._general(i):
            self.open[what][register, warps] += by
            self.who[register, warps] = i.address // WORD

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        if k.mask is not None and not k.mask.any():
            return
        if i.base == "WARPGROUP" and i.mods[0] == "ARRIVE":
            self.written[:, k.rows] = NOBODY
        elif i.op.pipe == "wgmma":
            self._arrived(k, i, n)
        else:
            self._beside(k, i, n)

    def _beside(self, k: Cohort, i: Instruction, n: int) -> None:
        """What an instruction does to registers that a product has yet to write or read."""
        for does, register in self._general(i):
            if does == "write":
                arrived = self.written[register, k.rows] != NEVER
                self.written[register, k.rows] = np.where(arrived, n, NEVER)
            for what in ("write",) if does == "read" else ("write", "read"):
                under_way = self.open[what][register, k.rows] > 0
                if not under_way.any():
                    continue
                row = int(under_way.argmax())
                first = int(self.who[register, k.rows][row])
                kind = "war" if what == "read" else "raw" if does == "read" else "waw"
                done = "read" if does == "read" else "overwritten"
                message = f"R{register} is {done} while {self._name(first)} may still have to {what} it, which"
                self._report(kind, f"{message} WARPGROUP.DEPBAR would tell", k, row, first, n)

    def _arrived(self, k: Cohort, i: Instruction, n: int) -> None:
        """Whether the warp group has arrived since the registers of a product were written, other than by products."""
        for register in dict.fromkeys(register for _, register in self._general(i)):
            written = self.written[register, k.rows]
            if (written == NEVER).any():
                message = f"{i.base} without a WARPGROUP.ARRIVE before it"
                self._report("no-arrive", message, k, int((written == NEVER).argmax()), n, n)
                return
            if (written != NOBODY).any():
                row = int((written != NOBODY).argmax())
                message = f"R{register} is written behind WARPGROUP.ARRIVE, and {i.base} may not see it"
                self._report("no-arrive", message, k, row, int(written[row]), n)

    def _general(self, i: Instruction) -> list[tuple[str, int]]:
        """What an instruction does to each general register: "write" or "read"."""
        found = self._touched.get(i.address)
        if found is None:
            found = self._touched[i.address] = [
                (what, register)
                for what, accesses in (("write", i.writes), ("read", i.reads))
                for a in accesses
                if a.file == "R"
                for register in range(a.first, a.first + a.count)
                if register < ZEROS["R"]
            ]
        return found

    def _name(self, n: int) -> str:
        i = self.wave.image.instructions[n]
        assert i is not None
        return i.base

    def _report(self, kind: str, message: str, k: Cohort, row: int, first: int, second: int) -> None:
        if (key := (kind, first, second)) not in self._seen:
            self._seen.add(key)
            lane = 0 if k.mask is None else int(k.mask[row].argmax())
            block, thread = self.wave.who(int(k.warps[row]), lane)
            place = self.wave.image.place
            self.findings.append(Hazard(kind, message, place(first), place(second), block, thread))
