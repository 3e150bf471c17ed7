"""From coordinates to what a texture instruction gives: the CUDA C++ Programming Guide's "Texture Fetching" in numpy,
and where the guide leaves it open, what an H200 does (``tests/gpu/test_textures.py``).

A texture of N texels in a dimension is looked up at u = x, or u = x N with normalized coordinates, of which 21 bits of
the fraction count, or 22 or 23, by the texture's sizes (``_bits``; measured). Nearest-point: texel floor(u). Linear:
texels i and i + 1 with the weights 1 - a and a, where i and a are the integer part and the fraction of u - 0.5, rounded
to 8 bits. The address mode says what a texel outside of 0 .. N - 1 is.

Measured of filters: the weights of all texels are numbers of 8 bits too, their products rounded one dimension after the
other, ties up. Floats are shifted to the largest exponent, cut off 4 bits below their last bit, summed exactly, and
rounded to their own type, ties away from zero; denormals are 0. The two planes of a volume are shifted each for
itself, and what of one falls behind the last bit of the other is cut off, downwards. Integers are summed as 16-bit
fractions, ties up; the lowest one is below -1, and only a sum is not.

Everything takes lanes as arrays of one dimension, and gives components as (lanes, 4) uint32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turingas.emulate.arrays import Array
from turingas.texture import Bound, Image, Sampler

WEIGHT = 256  # a weight is counted in these parts
BITS = 21  # of the fraction of a normalized coordinate; more of large textures
DEEP = 2300  # texels in z behind which a volume is large
TINY = float(np.finfo(np.float32).tiny)  # a coordinate below is 0
FAR = 2.0**20  # a coordinate that is
DIGITS = {"float16": 11, "float32": 24}
PLANE = 4  # texels that are added up together
EXTRA = 4  # bits of floats below the last one of the largest that count in a sum
NAN = np.uint32(0x7FFFFFFF)

Corner = tuple[int, ...]


def sample(bound: Bound, place: Sequence[Array], layer: Array | None, offsets: Sequence[Array | int]) -> Array:
    """What TEX gives at ``place``, float64 by dimension (innermost first). ``offsets``: texels that are added."""
    image, sampler = _of(bound)
    texels = _values(bound)
    base = _layer(image, layer, len(place[0]))
    if sampler.filter == "point":
        at = [np.floor(u).astype(np.int64) + o for u, o in zip(_scaled(bound, place), offsets)]
        return texels(_index(bound, at, base))
    low, weight = _footprint(bound, place, offsets, True)
    corners = [
        (_index(bound, [n + one for n, one in zip(low, corner)], base), w) for corner, w in _weights(weight).items()
    ]
    memory = bound.memory.view(image.dtype).reshape(-1, image.channels)
    found = np.zeros((len(base), 4), np.uint32)
    for n in range(image.channels):
        given = [(np.where((at < 0) | (w == 0), memory.dtype.type(0), memory[at, n]), w) for at, w in corners]
        sum_ = _sum_floats if memory.dtype.kind == "f" else _sum_integers
        found[:, n] = sum_(given, memory.dtype).view(np.uint32)
    return found


def _weights(parts: list[Array]) -> dict[Corner, Array]:
    """Of each corner of the footprint, of the upper texels' weights in x, y and z."""
    if len(parts) == 1:
        return {(0,): WEIGHT - parts[0], (1,): parts[0]}
    if len(parts) == 2:
        a, b = parts
        both = _product(a, b)
        return {(0, 0): WEIGHT - a - b + both, (1, 0): a - both, (0, 1): b - both, (1, 1): both}
    a, b, c = parts
    found: dict[Corner, Array] = {}
    for z, share in enumerate((WEIGHT - c, c)):
        right = _product(a, share)
        for x, w in enumerate((share - right, right)):
            up = _product(w, b) if x else w - _product(w, WEIGHT - b)
            found[x, 0, z], found[x, 1, z] = w - up, up
    return found


def _product(a: Array, b: Array) -> Array:
    return (a * b + WEIGHT // 2) // WEIGHT


def _sum_floats(given: list[tuple[Array, Array]], dtype: np.dtype[Any]) -> Array:
    """Of texels, 0 where their weight is, and weights: float32."""
    digits = DIGITS[dtype.name]
    values = [(t.astype(np.float64), w) for t, w in given]
    if dtype == np.float32:
        values = [(np.where(abs(t) < TINY, 0.0, t), w) for t, w in values]
    planes = [plane for plane in (values[:PLANE], values[PLANE:]) if plane]
    largest = [np.max([np.where(t == 0, -1100, np.frexp(t)[1]) for t, _ in plane], axis=0) for plane in planes]
    units = [np.ldexp(1.0, np.maximum(exponent - digits - EXTRA, -1000)) for exponent in largest]
    unit = np.max(units, axis=0)
    sums = [sum(np.trunc(t / own) * w for t, w in plane) * (own / unit) for plane, own in zip(planes, units)]
    total = sum(np.floor(one) for one in sums) * unit / WEIGHT
    fraction, exponent = np.frexp(total)
    scale = 2.0**digits
    rounded = np.ldexp(np.copysign(np.floor(abs(fraction) * scale + 0.5), fraction) / scale, exponent)
    wild = sum(t * w for t, w in values)  # infinite, or none
    result = np.where(np.isfinite(wild), rounded, wild).astype(np.float32)
    return np.where(np.isnan(result), NAN, result.view(np.uint32))


def _sum_integers(given: list[tuple[Array, Array]], dtype: np.dtype[Any]) -> Array:
    """The same of integers that are read as floats."""
    top = np.iinfo(dtype).max
    wide = 0xFFFF if dtype.kind == "u" else 0x7FFF
    total = sum(t.astype(np.int64) * w for t, w in given)
    if dtype == np.int8:  # of 127 * 256 parts 0x7FFF are made so: fitted to what a card gave
        fraction = total + (total + (total >> 12 << 4) + 64 >> 7)
    else:
        fraction = (total * (wide // top) + WEIGHT // 2) // WEIGHT
    return np.asarray(np.maximum(fraction, -wide) / np.float64(wide)).astype(np.float32)


def gather(
    bound: Bound, place: Sequence[Array], layer: Array | None, offsets: Sequence[Array | int], component: int
) -> Array:
    """What TLD4 gives: one component of the four texels that would be filtered, from the lower left one of an image
    that has its first row at the top, against the clock."""
    low, _ = _footprint(bound, place, offsets, False)
    image, sampler = _of(bound)
    base = _layer(image, layer, len(place[0]))
    corners = [_index(bound, [low[0] + x, low[1] + y], base) for x, y in ((0, 1), (1, 1), (1, 0), (0, 0))]
    if image.dtype == "int8" and sampler.read == "normalized" and component < image.channels:  # as if filtered
        memory = bound.memory.view(np.int8).reshape(-1, image.channels)[:, component]
        given = [np.where(at < 0, np.int8(0), memory[at]) for at in corners]
        found = [_sum_integers([(t, np.int64(WEIGHT))], memory.dtype).view(np.uint32) for t in given]
        return np.stack(found, axis=1)
    texels = _values(bound)
    return np.stack([texels(at)[:, component] for at in corners], axis=1)


def fetch(bound: Bound, at: Sequence[Array], layer: Array | None) -> Array:
    """What TLD gives: the texel at integers; zero outside, whatever the address mode."""
    image = bound.image
    base = _layer(image, layer, len(at[0]))
    inside = np.ones(len(base), bool)
    for i, n in zip(at, image.sizes):
        inside &= (i >= 0) & (i < n)
    return _values(bound)(np.where(inside, base + _flat(image, at), -1))


def face(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    """Of a direction: the face of a cube, and the place on it, 0 to 1 (the guide's table of cubemaps)."""
    ax, ay, az = abs(x), abs(y), abs(z)
    on_z = (az >= ax) & (az >= ay)  # before y where they are the same, and y before x: measured
    on_y = ~on_z & (ay >= ax)
    on_x = ~on_z & ~on_y
    major = np.where(on_x, x, np.where(on_y, y, z))
    sign = np.where(np.signbit(major), -1.0, 1.0)
    s = np.where(on_x, -sign * z, np.where(on_y, x, sign * x))
    t = np.where(on_y, sign * z, -y)
    number = 2 * np.where(on_x, 0, np.where(on_y, 1, 2)) + (sign < 0)
    m = abs(major)
    return number, (s / m + 1) / 2, (t / m + 1) / 2


def _of(bound: Bound) -> tuple[Image, Sampler]:
    assert bound.sampler is not None
    return bound.image, bound.sampler


def _bits(image: Image, axis: int) -> int:
    """How many bits of the fraction of a normalized coordinate count (an H100)."""
    *_, last = sizes = image.sizes
    if len(sizes) == 3:
        return BITS + (last > DEEP or (axis < 2 and max(sizes[:2]) > 1 << 13))
    most = max(sizes)
    if image.kind == "1D":
        return BITS + (most > 1 << 13) + (most > 1 << 16)
    if most > 1 << 15:
        return BITS + 1 + (most > 1 << 16)
    return BITS + (most > 1 << 13) + (most > 1 << 14)


def _scaled(bound: Bound, place: Sequence[Array]) -> list[Array]:
    """Coordinates as texels, exactly; far outside they are brought near, so that they fit in an integer."""
    image, sampler = _of(bound)
    found = []
    for axis, (x, n, mode) in enumerate(zip(place, image.sizes, sampler.address)):
        x = np.where(abs(x) < TINY, 0.0, x)
        if sampler.normalized or image.cube:
            parts = 2.0 ** _bits(image, axis)
            if mode in ("wrap", "mirror") or image.cube:
                x = np.where(abs(x) < FAR, x, x - 2 * np.floor(x / 2))
            x = np.floor(x * parts) / parts * n
        found.append(np.clip(np.where(np.isnan(x), 0.0, x), -FAR * n, FAR * n))
    return found


def _footprint(
    bound: Bound, place: Sequence[Array], offsets: Sequence[Array | int], clamped: bool
) -> tuple[list[Array], list[Array]]:
    """In each dimension the lower texel and the weight of the upper one, an integer."""
    image, sampler = _of(bound)
    low, weight = [], []
    for u, offset, n, mode in zip(_scaled(bound, place), offsets, image.sizes, sampler.address):
        parts = np.floor((u - 0.5) * WEIGHT + 0.5).astype(np.int64) + WEIGHT * np.asarray(offset)
        if mode == "clamp" and clamped:  # the coordinate is, so that the weight beyond an edge is 0
            parts = np.clip(parts, 0, WEIGHT * (n - 1))
        low.append(parts // WEIGHT)
        weight.append(parts % WEIGHT)
    return low, weight


def _index(bound: Bound, at: Sequence[Array], base: Array) -> Array:
    """Where texels lie, by the address modes; -1: beyond a border."""
    image, sampler = _of(bound)
    inside = np.ones(len(base), bool)
    moved = []
    for i, n, mode in zip(at, image.sizes, sampler.address):
        if mode == "wrap":
            i = i % n
        elif mode == "mirror":
            i = i % (2 * n)
            i = np.where(i < n, i, 2 * n - 1 - i)
        elif mode == "border":
            inside &= (i >= 0) & (i < n)
        moved.append(np.clip(i, 0, n - 1))
    return np.where(inside, base + _flat(image, moved), -1)


def _flat(image: Image, at: Sequence[Array]) -> Array:
    index, stride = np.zeros(len(at[0]), np.int64), 1
    for i, n in zip(at, image.sizes):
        index = index + i * stride
        stride *= n
    return index


def _layer(image: Image, layer: Array | None, count: int) -> Array:
    """The first texel of each lane's layer; a layer too high is the last one."""
    if layer is None:
        return np.zeros(count, np.int64)
    return np.clip(layer, 0, image.layers - 1) * int(np.prod(image.sizes))


def _values(bound: Bound) -> Callable[[Array], Array]:
    """A function from indices of texels (-1: all zero) to their four components, uint32."""
    image, sampler = _of(bound)
    memory = bound.memory.view(image.dtype).reshape(-1, image.channels)

    def values(index: Array) -> Array:
        found = np.zeros((len(index), 4), np.uint32)  # what texels do not have is 0 (measured on an H200)
        found[:, : image.channels] = _converted(memory[index], sampler)
        found[index < 0] = 0
        return found

    return values


def _converted(texels: Array, sampler: Sampler) -> Array:
    """As they come into registers, uint32."""
    if texels.dtype.kind == "f":
        return texels.astype(np.float32).view(np.uint32)
    if sampler.read == "element":
        return texels.astype(np.int32 if texels.dtype.kind == "i" else np.uint32).view(np.uint32)
    scaled = texels.astype(np.float32) / np.float32(np.iinfo(texels.dtype).max)
    return np.maximum(scaled, np.float32(-1)).view(np.uint32)
