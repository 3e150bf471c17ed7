"""Textures: TEX, TLD, TLD4, TXD and TXQ. What they compute: ``emulate.texels``.

Where operands stand, as read from code that NVRTC 12.9 makes of every form of PTX's tex, tld4 and txq: they are one
sequence of registers, layer, coordinates, handle (.B), level (.LL), packed offsets (.AOFFI). Ra has layer and
coordinates, Rb the rest; with .SCR (sm_70, sm_75) Ra has the first two of three or four, or the first of two. TXD has
handle, coordinates and, packed into one register, layer and offsets in Ra, and derivatives in Rb. Without .B the handle
is a word of constant memory or a uniform register: 32 bits, the lower half of a cudaTextureObject_t.

There is one level, so that level and derivatives choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate import texels
from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.memory import BadAccess
from turingas.emulate.semantics.loads import fault
from turingas.isa.instruction import Imm, Instruction, Name, Reg
from turingas.texture import Bound, behind

#: which kinds of texture a dimension reads (compilers read 1D ones as 2D), and how many coordinates it has
KINDS = {
    "1D": (("1D", "linear"), 1), "2D": (("2D", "1D"), 2), "3D": (("3D",), 3), "CUBE": (("CUBE",), 3),
    "ARRAY_1D": (("1D_ARRAY",), 1), "ARRAY_2D": (("2D_ARRAY",), 2), "ARRAY_CUBE": (("CUBE_ARRAY",), 3),
}  # fmt: skip
#: modifiers that change nothing, or only where operands stand
KNOWN = ("SCR", "B", "LL", "LZ", "AOFFI", "CL", "NDV", "NODEP", "EF", "EL", "LU", "EU", "NA")
RGBA = "RGBA"
LAYERS = 0xFFFF  # bits of a layer


class Wrong(Exception):
    """The instruction and what it is given do not fit."""


def handle_of(i: Instruction, m: Maker) -> Get | None:
    """The handle where it stands in constant memory or a uniform register; None: in a general one."""
    named = [o for o in i.operands if isinstance(o, Imm) or (isinstance(o, Reg) and o.file == "UR")]
    if not named:
        return None
    first, *more = named
    if isinstance(first, Imm):
        if len(named) != 2 or "B" in _modifiers(i):
            raise Unsupported(f"a texture and a sampler that are named apart: {i.text()}")
        (slot,) = more
        assert isinstance(slot, Imm)
        value = int.from_bytes(m.image.constant(first.value, 4 * slot.value, 4), "little")
        return lambda k: np.full((1, 1), value, np.uint32)
    if any(isinstance(o, Imm) and o.value for o in more):
        raise Unsupported(f"a texture and a sampler that are named apart: {i.text()}")
    assert isinstance(first, Reg)
    return m.raw(first)


def _component(i: Instruction) -> int:
    """Where among the modifiers of TLD4 its component stands, which may be called B as well."""
    return int("SCR" in i.mods)


def _modifiers(i: Instruction) -> list[str]:
    """All but the component of TLD4."""
    return [mod for n, mod in enumerate(i.mods) if i.base != "TLD4" or n != _component(i)]


def for_each(
    k: Cohort, i: Instruction, handle: Get, what: str, do: Callable[[Bound, Array], None]
) -> None:
    """``do`` for each texture or surface (``what``; "": either) that lanes name: with it, and these lanes, flat."""
    lanes = np.flatnonzero(k.lanes)
    handles = np.broadcast_to(handle(k), (k.count, 32)).reshape(-1)[lanes]
    for number in np.unique(handles).tolist():
        some = lanes[handles == number]
        try:
            bound = behind(number)
            if bound is None or what not in ("", bound.what):
                found = f"is a {bound.what}" if bound is not None else "names nothing that is there"
                raise Wrong(f"the handle {number:#x} {found}; {i.base} needs a {what or 'texture or surface'}")
            do(bound, some)
        except Wrong as why:
            raise fault(k, i, BadAccess("texture", str(why), int(some[0]), number), 32) from None
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None


class Texture:
    """The operands of a texture instruction."""

    def __init__(self, i: Instruction, m: Maker) -> None:
        if any(isinstance(o, Reg) and o.file == "P" and o.write and not o.zero for o in i.operands):
            raise Unsupported(f"the predicate of {i.text()}")
        self.i = i
        registers = [o for o in i.operands if isinstance(o, Reg) and o.file == "R"]
        names = [o.text for o in i.operands if isinstance(o, Name)]
        mask = int(names[-1], 16) if names[-1].startswith("0x") else 15
        second, first, self.a, self.b = (registers + registers[2:])[:4]  # TXQ has no Rb
        #: of each component: its number, and the register that takes it
        self.results = [
            (component, (first if n < 2 else second), n % 2)
            for n, component in enumerate(c for c in range(4) if mask >> c & 1)
        ]
        self.dim = next((name for name in names if name in KINDS), "2D")
        self.kinds, self.coordinates = KINDS[self.dim]
        self.layered = self.dim.startswith("ARRAY")
        named = handle_of(i, m)
        self.where = self._where(named is None)
        self.handle = named or self._register("handle")

    def _where(self, bindless: bool) -> dict[str, int]:
        """Which register holds what."""
        i = self.i
        offsets = ["offsets"] if "AOFFI" in i.mods else []
        handle, place = ["handle"] * bindless, [f"x{n}" for n in range(self.coordinates)]
        if i.base == "TXQ":
            return {name: self.a.index + n for n, name in enumerate([*handle, "level"])}
        if i.base == "TXD":
            packed = ["packed"] if self.layered or offsets else []
            return {name: self.a.index + n for n, name in enumerate([*handle, *place, *packed])}
        place = ["layer"] * self.layered + place
        rest = [*handle, *["level"] * ("LL" in i.mods), *offsets]
        both, split = place + rest, len(place)
        if "SCR" in i.mods:
            split = 2 if len(both) > 2 else 1
        return {
            name: self.a.index + n if n < split else self.b.index + n - split for n, name in enumerate(both)
        }

    def _register(self, name: str) -> Get:
        index = self.where[name]
        return lambda k: k.r(index)

    def get(self, k: Cohort, name: str, lanes: Array) -> Array:
        """A word of these lanes, (lanes,)."""
        return np.broadcast_to(k.r(self.where[name]), (k.count, 32)).reshape(-1)[lanes]

    def check(self, bound: Bound) -> None:
        if bound.image.kind not in self.kinds:
            wanted = " or ".join(self.kinds)
            raise Wrong(f"{self.i.name} reads a texture of kind {wanted}; this one is {bound.image.kind}")

    def layer(self, k: Cohort, lanes: Array) -> Array | None:
        if not self.layered:
            return None
        word = self.get(k, "packed" if "packed" in self.where else "layer", lanes)
        return (word & np.uint32(LAYERS)).astype(np.int64)

    def offsets(self, k: Cohort, lanes: Array) -> list[Array | int]:
        """Texels that are added in each dimension: 4 bits with a sign each; TLD4: 6 bits in a byte."""
        if "AOFFI" not in self.i.mods:
            return [0, 0, 0]
        word = self.get(k, "packed" if "packed" in self.where else "offsets", lanes).astype(np.int64)
        word = word >> 16 if "packed" in self.where else word
        bits, step = (6, 8) if self.i.base == "TLD4" else (4, 4)
        sign = 1 << bits - 1
        return [(word >> step * n & 2 * sign - 1 ^ sign) - sign for n in range(3)]

    def floats(self, k: Cohort, lanes: Array) -> list[Array]:
        words = [self.get(k, f"x{n}", lanes) for n in range(self.coordinates)]
        return [np.ascontiguousarray(word).view(np.float32).astype(np.float64) for word in words]

    def on_face(self, bound: Bound, place: list[Array], layer: Array | None) -> tuple[list[Array], Array | None]:
        """Of a cube: the place on a face, and the layer that it is."""
        if not bound.image.cube:
            return place, layer
        number, s, t = texels.face(*place)
        cube = 0 if layer is None else np.clip(layer, 0, bound.image.layers // 6 - 1)
        return [s, t], 6 * cube + number

    def run(self, k: Cohort, read: Callable[[Bound, Array], Array], what: str = "texture") -> None:
        """Write what ``read`` gives, (lanes, 4), for each texture and its lanes."""
        found = np.zeros((k.count * 32, 4), np.uint32)

        def one(bound: Bound, lanes: Array) -> None:
            if what:
                self.check(bound)
            found[lanes] = read(bound, lanes)

        for_each(k, self.i, self.handle, what, one)
        for component, register, n in self.results:
            if not register.zero:
                k.set_r(register.index + n, np.ascontiguousarray(found[:, component]).reshape(k.count, 32))


@semantics("TEX", "TXD")
def sample(i: Instruction, m: Maker) -> Step:
    """A texel, or what is filtered of several."""
    only(i, *KNOWN)
    t = Texture(i, m)

    def step(k: Cohort) -> None:
        def read(bound: Bound, lanes: Array) -> Array:
            place, layer = t.on_face(bound, t.floats(k, lanes), t.layer(k, lanes))
            return texels.sample(bound, place, layer, t.offsets(k, lanes))

        with np.errstate(all="ignore"):
            t.run(k, read)

    return step


@semantics("TLD4")
def gather(i: Instruction, m: Maker) -> Step:
    """One component of four texels."""
    only(i, *KNOWN, *RGBA)
    t = Texture(i, m)
    component = RGBA.index(i.mods[_component(i)])

    def step(k: Cohort) -> None:
        def read(bound: Bound, lanes: Array) -> Array:
            if bound.image.kind == "1D":
                raise Wrong("TLD4 reads a texture of two dimensions; this one is 1D")
            place, layer = t.on_face(bound, t.floats(k, lanes), t.layer(k, lanes))
            return texels.gather(bound, place, layer, t.offsets(k, lanes), component)

        with np.errstate(all="ignore"):
            t.run(k, read)

    return step


@semantics("TLD")
def fetch(i: Instruction, m: Maker) -> Step:
    """The texel at integers."""
    only(i, *KNOWN)
    t = Texture(i, m)

    def step(k: Cohort) -> None:
        def read(bound: Bound, lanes: Array) -> Array:
            if "LL" in i.mods and t.get(k, "level", lanes).any():
                raise Wrong("a level above 0 of a texture that has one level")
            words = [t.get(k, f"x{n}", lanes).astype(np.int32).astype(np.int64) for n in range(t.coordinates)]
            at = [word + offset for word, offset in zip(words, t.offsets(k, lanes))]
            return texels.fetch(bound, at, t.layer(k, lanes))

        t.run(k, read)

    return step


@semantics("TXQ")
def query(i: Instruction, m: Maker) -> Step:
    """The size of a texture or surface: width, height, depth."""
    only(i, "B", "NODEP")
    if not any(isinstance(o, Name) and o.text == "TEX_HEADER_DIMENSION" for o in i.operands):
        raise Unsupported(f"{i.text()}: only the driver knows what it asks for")
    t = Texture(i, m)

    def step(k: Cohort) -> None:
        def read(bound: Bound, lanes: Array) -> Array:
            if t.get(k, "level", lanes).any():
                raise Wrong("a level above 0 of a texture that has one level")
            sizes = bound.image.sizes
            if any(component >= len(sizes) for component, *_ in t.results):
                raise Wrong(f"{i.name} asks for a dimension that is not there: the kind is {bound.image.kind}")
            return np.broadcast_to(np.array((*sizes, 0, 0, 0)[:4], np.uint32), (len(lanes), 4))

        t.run(k, read, "")

    return step
