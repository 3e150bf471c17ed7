"""Surfaces: SULD, SUST, SURED and SUATOM.

[Ra] are x, y and z or the layer, one register each (of a cube the layer is the face). x counts bytes (.BA), or texels.
.D moves bytes as they are, .P the components of a texel. Outside of the surface .TRAP is an error, .IGN reads zero and
writes nothing, and without either the nearest texel is taken: cudaBoundaryModeTrap, Zero and Clamp, as read from code
that NVRTC 12.9 makes of surf2Dread, surf2Dwrite and PTX's sust.p and sured.
"""

from __future__ import annotations

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.memory import BadAccess, Plane, Spots
from turingas.emulate.semantics.atomics import Atomic
from turingas.emulate.semantics.loads import SIGNED, sources
from turingas.emulate.semantics.textures import Wrong, for_each, handle_of
from turingas.isa.instruction import Instruction, Mem, Reg
from turingas.texture import Bound

CUBES = ("CUBE", "CUBE_ARRAY")
#: the kinds of surface that a dimension means, and the registers of its place
KINDS = {
    "1D": (("1D",), 1), "2D": (("2D",), 2), "3D": (("3D",), 3), "1D_ARRAY": (("1D_ARRAY",), 2),
    "2D_ARRAY": (("2D_ARRAY", *CUBES), 3),
}  # fmt: skip
COMPONENTS = {"R": 1, "RG": 2}


class Surface:
    """The operands of a surface instruction."""

    def __init__(self, i: Instruction, m: Maker) -> None:
        self.i = i
        self.dim = next((mod for mod in i.mods if mod in KINDS), "")
        if not self.dim:
            raise Unsupported(f"{i.text()}: surfaces over linear memory")
        if any(isinstance(o, Reg) and o.file == "P" and o.write and not o.zero for o in i.operands):
            raise Unsupported(f"the predicate of {i.text()}")
        at = next(n for n, o in enumerate(i.operands) if isinstance(o, Mem))
        mem = i.operands[at]
        assert isinstance(mem, Mem) and mem.base is not None
        self.at = mem.base.index
        before = [o for o in i.operands[:at] if isinstance(o, Reg) and o.file == "R"]
        behind = [o for o in i.operands[at + 1 :] if isinstance(o, Reg) and o.file == "R"]
        named = handle_of(i, m)
        self.handle: Get = named or m.raw(behind.pop())
        self.target = before[0] if before else None
        self.source = behind[0] if behind else None
        self.formatted = "P" in i.mods
        self.components = next((n for mod, n in COMPONENTS.items() if mod in i.mods), 4)

    def bytes_of(self, bound: Bound) -> int:
        """What a lane moves."""
        if not self.formatted:
            return self.i.nbytes
        return bound.image.texel

    def spots(self, k: Cohort, bound: Bound, lanes: Array, nbytes: int) -> tuple[Array, Array]:
        """Which items of ``nbytes`` these lanes mean, and which are inside."""
        image = bound.image
        kinds, count = KINDS[self.dim]
        if image.kind not in kinds:
            raise Wrong(f"{self.i.name} is for a surface of kind {' or '.join(kinds)}; this one is {image.kind}")
        words = [np.broadcast_to(k.r(self.at + n), (k.count, 32)).reshape(-1)[lanes] for n in range(count)]
        place = [word.astype(np.int32).astype(np.int64) for word in words]
        if "BA" not in self.i.mods:
            place[0] = place[0] * image.texel
        if (bad := place[0] % nbytes != 0).any():
            lane = int(lanes[bad.argmax()])
            x = int(place[0][bad.argmax()])
            message = f"byte {x} of a row: not aligned to the {nbytes} bytes that are moved"
            raise BadAccess("misaligned", message, lane, x)
        place[0] = place[0] // nbytes
        sizes = [image.sizes[0] * image.texel // nbytes, *image.sizes[1:]]
        sizes += [image.layers] if image.layers else []
        inside = np.ones(len(lanes), bool)
        index, stride = np.zeros(len(lanes), np.int64), 1
        if image.layers:  # without a sign: the nearest layer to -1 is the last one (measured on an H200)
            place[-1] = place[-1] & 0xFFFFFFFF
        for n, (at, size) in enumerate(zip(place, sizes)):
            good = (at >= 0) & (at < size)
            if "TRAP" in self.i.mods and not good.all():
                lane, value = int(lanes[good.argmin()]), int(at[good.argmin()])
                if not n:
                    value, size = value * nbytes, size * nbytes
                axis = "layer" if image.layers and n == len(sizes) - 1 else "xyz"[n] + (" (bytes)" if not n else "")
                message = f"outside of the surface: {axis} is {value}, and it has {size}"
                raise BadAccess("out of bounds", message, lane, value & 0xFFFFFFFF)
            inside &= good
            index = index + np.clip(at, 0, size - 1) * stride
            stride *= size
        return index, inside if "IGN" in self.i.mods else np.ones(len(lanes), bool)


def _lanes(k: Cohort, index: Array, some: Array, lanes: Array) -> tuple[Array, Array]:
    """Indices as (n, 32), and the mask of ``lanes`` (of which ``some`` count)."""
    full, mask = np.zeros(k.count * 32, np.int64), np.zeros(k.count * 32, bool)
    full[lanes], mask[lanes] = index, some
    return full.reshape(k.count, 32), mask.reshape(k.count, 32)


def _component(word: Array, dtype: str) -> Array:
    """What .P stores of a register: integers are clamped, float32 is rounded to FP16 towards zero (an H100)."""
    if dtype[-2:] == "32":
        return word
    if dtype == "float16":
        number = word.view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            near = number.astype(np.float16)
        bits = near.view(np.uint16)
        return (bits - (abs(near.astype(np.float64)) > abs(number))).astype(np.uint32)
    limits, wide = np.iinfo(dtype), word.view(np.int32) if dtype[0] == "i" else word
    return np.clip(wide, limits.min, limits.max).astype(np.int64).astype(np.uint32)


@semantics("SULD")
def load(i: Instruction, m: Maker) -> Step:
    """Loads from a surface."""
    s = Surface(i, m)
    if s.formatted:
        raise Unsupported(f"{i.text()}: formatted loads")
    assert s.target is not None
    nbytes, target = i.nbytes, s.target
    signed = next((SIGNED[mod] for mod in i.mods if mod in SIGNED), None)

    def step(k: Cohort) -> None:
        found = np.zeros((max(1, nbytes // 4), k.count * 32), np.uint32)

        def one(bound: Bound, lanes: Array) -> None:
            index, inside = s.spots(k, bound, lanes, nbytes)
            for row, word in zip(found, Plane(bound.memory).load(nbytes, index)):
                row[lanes] = np.where(inside, word, np.uint32(0))

        for_each(k, i, s.handle, "surface", one)
        if signed is not None:
            found[0] = found[0].astype(signed).astype(np.int32).view(np.uint32)
        for n, row in enumerate(found):
            if not target.zero:
                k.set_r(target.index + n, row.reshape(k.count, 32))

    return step


@semantics("SUST")
def store(i: Instruction, m: Maker) -> Step:
    """Stores to a surface."""
    s = Surface(i, m)
    assert s.source is not None
    values = sources(s.source, 4 * s.components if s.formatted else i.nbytes)

    def step(k: Cohort) -> None:
        words = [np.broadcast_to(value(k), (k.count, 32)).reshape(-1) for value in values]

        def one(bound: Bound, lanes: Array) -> None:
            nbytes = s.bytes_of(bound)
            index, inside = s.spots(k, bound, lanes, nbytes)
            plane, given = Plane(bound.memory), [word[lanes][inside] for word in words]
            if not s.formatted:
                plane.store(nbytes, index[inside], given)
                return
            for n, word in enumerate(given[: bound.image.channels]):
                plane.store(nbytes // bound.image.channels, index[inside] * bound.image.channels + n,
                            [_component(word, bound.image.dtype)])  # fmt: skip

        for_each(k, i, s.handle, "surface", one)

    return step


@semantics("SURED", "SUATOM")
def atomic(i: Instruction, m: Maker) -> Step:
    """An atomic operation on a surface."""
    s = Surface(i, m)
    assert s.source is not None
    registers = [s.source]
    if "CAS" in i.mods:  # what is compared stands in front of what is written
        wide = 2 if "64" in i.mods or "U64" in i.mods else 1
        registers.append(Reg("R", s.source.index + wide))
    what = Atomic(i, registers, s.target)

    def step(k: Cohort) -> None:
        results, operands = what.blank(k), what.operands(k)

        def one(bound: Bound, lanes: Array) -> None:
            index, inside = s.spots(k, bound, lanes, what.nbytes)
            index, mask = _lanes(k, index, inside, lanes)
            what.run([Spots(Plane(bound.memory), index, mask, None)], operands, results)

        with k.wave.memory.lock:
            for_each(k, i, s.handle, "surface", one)
        what.put(k, results)

    return step
