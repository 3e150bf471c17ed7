"""From an instruction to the function that runs it: the register of semantics, and how operands become arrays.

A module of ``semantics/`` says what a mnemonic does::

    @semantics("IADD3", "UIADD3")
    def iadd3(i: Instruction, m: Maker) -> Step:
        a, b, c = (m.u32(o) for o in i.operands[3:6])
        put = m.put(i.operands[0])
        ...
        def step(k: Cohort) -> None:
            put(k, a(k) + b(k) + c(k))
        return step

The outer function is called once for each instruction of a kernel and looks at modifiers; ``step`` is called each time
that a cohort of warps comes by, and does nothing but numpy. It never looks at the guard: writes are masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.isa.arch import Arch
from turingas.isa.instruction import Const, Imm, Instruction, Operand, Reg

Step = Callable[[Cohort], None]
Get = Callable[[Cohort], Array]
Put = Callable[[Cohort, Array], None]


#: of cx[UR][...]: only the driver knows what a handle is
BINDLESS = "the emulator has no constant memory behind a handle (cx[UR])"


SEMANTICS: dict[str, Callable[[Instruction, Maker], Step]] = {}


def semantics(*names: str) -> Callable[[Callable[[Instruction, Maker], Step]], Callable[[Instruction, Maker], Step]]:
    """Registers a builder for mnemonics (without modifiers)."""

    def register(build: Callable[[Instruction, Maker], Step]) -> Callable[[Instruction, Maker], Step]:
        for name in names:
            if name in SEMANTICS:
                raise AssertionError(f"{name} has two meanings")
            SEMANTICS[name] = build
        return build

    return register


WIDE = "where the driver writes the corners and halos of such a map (cuTensorMapEncodeIm2colWide) is not known"
#: why instructions ("") and modifiers are refused of which NVIDIA does not say enough
UNTOLD = {
    ("USETSHMSZ", ""): "no compiler is known to make it, and nothing says what it does",
    ("UTMALDG", "W"): WIDE, ("UTMALDG", "W128"): WIDE,
}  # fmt: skip


def only(i: Instruction, *known: str) -> None:
    """Unsupported for a modifier that is not among ``known``."""
    for mod in i.mods:
        if mod not in known:
            raise Unsupported(f"{i.base} with .{mod}{untold(i.base, mod)}")


def untold(base: str, mod: str = "") -> str:
    """Why it is refused, for behind what is; "" where nothing is written of it."""
    why = UNTOLD.get((base, mod))
    return f": {why}" if why else ""


def _bits(value: int, dtype: type = np.uint32) -> Get:
    array: Array = np.full((1, 1), value, dtype)
    return lambda k: array


class Constants(Protocol):
    """What a step is made with, besides its instruction: the architecture and the constants of a kernel."""

    arch: Arch

    def bank(self, number: int) -> Array: ...

    def constant(self, bank: int, offset: int, size: int) -> bytes: ...


class Maker:
    """Makes getters and setters for operands. ``image`` is what the instruction belongs to: constants, architecture."""

    def __init__(self, image: Constants) -> None:
        self.image = image
        self.arch = image.arch

    # -- reading. Every getter returns (n, 32), (n, 1) or (1, 1)

    def raw(self, o: Operand) -> Get:
        """32 bits as they are, uint32; signs and suffixes are not looked at."""
        if isinstance(o, Reg):
            index = o.index
            if o.file == "R":
                return lambda k: k.r(index)
            if o.file == "UR":
                return lambda k: k.ur(index)
        elif isinstance(o, Imm):
            return _bits(o.bits & 0xFFFFFFFF)
        elif isinstance(o, Const):
            return self._constant(o, np.uint32)
        raise Unsupported(f"an operand {o}")

    def u32(self, o: Operand) -> Get:
        """An integer with its ``~`` or ``-``, uint32."""
        get = self.raw(o)
        if getattr(o, "inv", False):
            return lambda k: ~get(k)
        if getattr(o, "neg", False):
            return lambda k: -get(k)
        return get

    def s32(self, o: Operand) -> Get:
        """The same as int32."""
        get = self.u32(o)
        return lambda k: get(k).view(np.int32)

    def f32(self, o: Operand) -> Get:
        """A float with ``|x|`` and ``-``, float32."""
        get = self.raw(o)
        if getattr(o, "abs", False):
            if o.neg:  # type: ignore[union-attr]
                return lambda k: (get(k) | np.uint32(0x80000000)).view(np.float32)
            return lambda k: (get(k) & np.uint32(0x7FFFFFFF)).view(np.float32)
        if getattr(o, "neg", False):
            return lambda k: (get(k) ^ np.uint32(0x80000000)).view(np.float32)
        return lambda k: get(k).view(np.float32)

    def raw64(self, o: Operand) -> Get:
        """64 bits, uint64: a pair of registers, 8 bytes of constants, an immediate (the upper 32 bits of a double; an
        integer is extended by its sign)."""
        if isinstance(o, Reg):
            if o.zero:
                return _bits(0, np.uint64)
            low = self.raw(o)
            high = self.raw(Reg(o.file, o.index + 1))
            return lambda k: low(k).astype(np.uint64) | high(k).astype(np.uint64) << np.uint64(32)
        if isinstance(o, Imm):
            return _bits(o.bits << 32 if o.kind == "f64" else o.value & (1 << 64) - 1, np.uint64)
        if isinstance(o, Const):
            return self._constant(o, np.uint64)
        raise Unsupported(f"an operand {o}")

    def u64(self, o: Operand) -> Get:
        """A 64-bit integer with its ``~`` or ``-``, uint64."""
        get = self.raw64(o)
        if getattr(o, "inv", False):
            return lambda k: ~get(k)
        if getattr(o, "neg", False):
            return lambda k: -get(k)
        return get

    def f64(self, o: Operand) -> Get:
        """A double with ``|x|`` and ``-``, float64."""
        get = self.raw64(o)
        sign = np.uint64(1 << 63)
        if getattr(o, "abs", False):
            if o.neg:  # type: ignore[union-attr]
                return lambda k: (get(k) | sign).view(np.float64)
            return lambda k: (get(k) & ~sign).view(np.float64)
        if getattr(o, "neg", False):
            return lambda k: (get(k) ^ sign).view(np.float64)
        return lambda k: get(k).view(np.float64)

    def pred(self, o: Operand) -> Get:
        """A predicate with its ``!``, bool."""
        assert isinstance(o, Reg), o
        index, inv = o.index, o.inv
        if o.zero:
            always = np.full((1, 1), not inv)
            return lambda k: always
        if o.file == "UP":
            return (lambda k: ~k.up(index)) if inv else (lambda k: k.up(index))
        return (lambda k: ~k.p(index)) if inv else (lambda k: k.p(index))

    def _constant(self, o: Const, dtype: type) -> Get:
        if o.ur is not None:
            raise Unsupported(BINDLESS)
        value = self.image.constant(o.bank, o.offset, np.dtype(dtype).itemsize)
        return _bits(int.from_bytes(value, "little"), dtype)

    # -- writing

    def put(self, o: Operand) -> Put:
        """Writes 32 bits (R, UR) or a bool (P, UP); the zero register swallows what it is given."""
        assert isinstance(o, Reg), o
        index = o.index
        if o.zero:
            return lambda k, value: None
        if o.file == "R":
            return lambda k, value: k.set_r(index, value)
        if o.file == "UR":
            return lambda k, value: k.set_ur(index, value)
        if o.file == "P":
            return lambda k, value: k.set_p(index, value)
        return lambda k, value: k.set_up(index, value)

    def put64(self, o: Operand) -> Put:
        """Writes 64 bits (uint64, int64 or float64) to a pair of registers."""
        assert isinstance(o, Reg), o
        if o.zero:
            return lambda k, value: None
        low, high = self.put(o), self.put(Reg(o.file, o.index + 1))

        def put(k: Cohort, value: Array) -> None:
            bits = value.view(np.uint64)
            low(k, bits.astype(np.uint32))
            high(k, (bits >> np.uint64(32)).astype(np.uint32))

        return put
