"""Random textures and surfaces, what the CUDA C++ Programming Guide says that reading them gives, and kernels for it.

The model here is written from the guide's formulas ("Texture Fetching"), and what a card was seen to do where these are
silent, texel by texel in Python's numbers. It shares nothing with the device's.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import loader
from loader import nvrtc

COUNT = 96  # places that a case reads
#: kinds of texture: the function that reads one, its coordinates, and how the array and its arguments look
READERS = {
    "1D": "tex1D<T>(t, x)", "2D": "tex2D<T>(t, x, y)", "3D": "tex3D<T>(t, x, y, z)",
    "1D_ARRAY": "tex1DLayered<T>(t, x, l)", "2D_ARRAY": "tex2DLayered<T>(t, x, y, l)",
    "CUBE": "texCubemap<T>(t, x, y, z)", "CUBE_ARRAY": "texCubemapLayered<T>(t, x, y, z, l)",
    "1D_lod": "tex1DLod<T>(t, x, 3.f)", "2D_lod": "tex2DLod<T>(t, x, y, 3.f)", "3D_lod": "tex3DLod<T>(t, x, y, z, 3.f)",
    "1D_ARRAY_lod": "tex1DLayeredLod<T>(t, x, l, 3.f)", "2D_ARRAY_lod": "tex2DLayeredLod<T>(t, x, y, l, 3.f)",
    "1D_grad": "tex1DGrad<T>(t, x, .1f, .2f)", "2D_grad": "tex2DGrad<T>(t, x, y, float2{.1f, .2f}, float2{.3f, .4f})",
    "1D_ARRAY_grad": "tex1DLayeredGrad<T>(t, x, l, .1f, .2f)",
    "2D_ARRAY_grad": "tex2DLayeredGrad<T>(t, x, y, l, float2{.1f, .2f}, float2{.3f, .4f})",
    "linear": "tex1Dfetch<T>(t, l)",
    **{f"2D_gather{c}": f"tex2Dgather<T>(t, x, y, {c})" for c in range(4)},
}  # fmt: skip
FETCHES = """
#define READ(name, T, call) extern "C" __global__ void name(cudaTextureObject_t t, const float* p, const int* layers, \\
                                                            T* out, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; \\
    float x = p[i], y = p[i + n], z = p[i + 2 * n]; int l = layers[i]; out[i] = call; }
"""
SURFACES = """
#define BOTH(name, T, MODE, read, write) \\
extern "C" __global__ void read_##name(cudaSurfaceObject_t s, const int* p, T* out, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; \\
    int x = p[i] * (int)sizeof(T), y = p[i + n], z = p[i + 2 * n]; T v; read; out[i] = v; } \\
extern "C" __global__ void write_##name(cudaSurfaceObject_t s, const int* p, const T* in, int n) { \\
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; \\
    int x = p[i] * (int)sizeof(T), y = p[i + n], z = p[i + 2 * n]; T v = in[i]; write; }
"""
SURFACE_PLACES = {"1D": "x", "2D": "x, y", "3D": "x, y, z", "1DLayered": "x, y", "2DLayered": "x, y, z",
                  "Cubemap": "x, y, z", "CubemapLayered": "x, y, z"}  # fmt: skip
SURFACE_KINDS = {"1D": "1D", "2D": "2D", "3D": "3D", "1D_ARRAY": "1DLayered", "2D_ARRAY": "2DLayered",
                 "CUBE": "Cubemap", "CUBE_ARRAY": "CubemapLayered"}  # fmt: skip
ELEMENTS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
MODES = {"clamp": "Clamp", "zero": "Zero"}


def source() -> str:
    """Kernels for all readers, as floats (..._f) and integers (..._u), and for all surfaces and sizes."""
    text = FETCHES + SURFACES
    for name, call in READERS.items():
        for suffix, kind in (("f", "float4"), ("u", "uint4")):
            text += f"READ(tex_{name}_{suffix}, {kind}, ({call.replace('<T>', f'<{kind}>')}))\n"
    for (kind, place), (size, element), (name, mode) in itertools.product(
        SURFACE_PLACES.items(), ELEMENTS.items(), MODES.items()
    ):
        end = f"s, {place}, cudaBoundaryMode{mode}"
        read, write = f"surf{kind}read(&v, {end})", f"surf{kind}write(v, {end})"
        text += f"BOTH({kind}_{size}_{name}, {element}, {mode}, ({read}), ({write}))\n"
    return text


def cubin(arch: str) -> bytes:
    return nvrtc.compile(source(), arch, name="textures.cu")


# ---- a random texture -------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A texture and the places at which it is read. ``places``: (3, COUNT) floats; ``layers``: integers."""

    kind: str
    reader: str
    array: np.ndarray[Any, Any] = dataclasses.field(repr=False)
    channels: int
    filter: str
    address: tuple[str, ...]  # of x, y, z
    normalized: bool
    read: str
    places: np.ndarray[Any, Any] = dataclasses.field(repr=False)
    layers: np.ndarray[Any, Any] = dataclasses.field(repr=False)

    def options(self) -> dict[str, Any]:
        dims = len(self.sizes())
        return {
            "filter": self.filter, "address": tuple(reversed(self.address[:dims])), "normalized": self.normalized,
            "read": self.read, "channels": self.channels, "layered": self.kind.endswith("ARRAY"),
            "cube": self.kind.startswith("CUBE"), "linear": self.kind == "linear",
        }  # fmt: skip

    def sizes(self) -> list[int]:
        """Of x, y, z."""
        shape = self.array.shape[: -1 if self.channels > 1 else None]
        layered = self.kind.endswith("ARRAY") or self.kind == "CUBE"
        return list(reversed(shape[layered:]))

    def floats(self) -> bool:
        return self.array.dtype.kind == "f" or self.read == "normalized"

    def kernel(self) -> str:
        return f"tex_{self.reader}_{'f' if self.floats() else 'u'}"

    def run(self, module: loader.Module, texture: loader.Texture, array: Any = np.array, back: Any = np.asarray) -> Any:
        """What the device gives, (places, 4) uint32."""
        count = self.layers.size
        out = array(np.zeros((count, 4), np.uint32))
        places, layers = array(self.places), array(self.layers)
        module.kernel(self.kernel()).launch(-(-count // 32), 32, texture, places, layers, out, count)
        return back(out)

    # -- the guide

    def wanted(self) -> np.ndarray[Any, Any]:
        """What the guide says, (COUNT, 4): float32 as its bits, or integers."""
        made = np.zeros((COUNT, 4), np.uint32)
        for n in range(COUNT):
            values = self._read([float(v) for v in self.places[:, n]], int(self.layers[n]))
            kind = np.float32 if self.floats() else np.int64
            made[n] = np.array(values, kind).astype(np.float32).view(np.uint32) if self.floats() else [
                v & 0xFFFFFFFF for v in values
            ]
        return made

    def _read(self, place: list[float], layer: int) -> list[Any]:
        sizes = self.sizes()
        if self.kind == "linear":
            return self._texel(None, [layer]) if 0 <= layer < sizes[0] else self._fill([0] * self.channels)
        chosen: int | None = None
        if self.kind.startswith("CUBE"):
            face, place = cube_face(*place)
            cubes = self.array.shape[0] // 6
            chosen = face + (6 * last(layer, cubes) if self.kind == "CUBE_ARRAY" else 0)
        elif self.kind.endswith("ARRAY"):
            chosen = last(layer, self.array.shape[0])
        scaled: list[Fraction] = []
        for x, n in zip(place, sizes):
            bits = 21 if n <= 1 << 13 else 22
            whole = self.normalized or self.kind.startswith("CUBE")
            x = 0.0 if abs(x) < 2.0**-126 else x
            scaled.append(Fraction(math.floor(Fraction(x) * 2**bits), 2**bits) * n if whole else Fraction(x))
        if "gather" in self.reader:
            component = int(self.reader[-1])
            low = [split(u)[0] for u in scaled]
            corners = [(0, 1), (1, 1), (1, 0), (0, 0)]
            found = [self._at(chosen, [low[0] + x, low[1] + y])[component] for x, y in corners]
            if self.array.dtype == np.int8 and self.read == "normalized":  # seen on a card: 16 bits, as if filtered
                found = [float(np.float32(math.floor(v * 32767 + 0.5) / 32767)) for v in found]
            return found
        if self.filter == "point":
            return self._at(chosen, [math.floor(u) for u in scaled])
        total = [0.0] * 4
        parts = []
        for u, n, mode in zip(scaled, sizes, self.address):
            if mode == "clamp":
                u = min(max(u, Fraction(1, 2)), n - Fraction(1, 2))
            parts.append(split(u))
        for corner, share in shares([a for _, a in parts]).items():
            texel = self._at(chosen, [i + up for up, (i, _) in zip(corner, parts)])
            total = [t + share * v / 256 for t, v in zip(total, texel)]
        return [max(t, -1.0) for t in total] if self.read == "normalized" else total

    def _at(self, layer: int | None, at: list[int]) -> list[Any]:
        """A texel by the address modes."""
        moved = []
        for i, n, mode in zip(at, self.sizes(), self.address):
            if mode == "border" and not 0 <= i < n:
                return self._fill([0] * self.channels)
            if mode == "wrap":
                i = i - n * (i // n)
            if mode == "mirror":
                period = i // n
                i = i - n * period
                i = n - 1 - i if period % 2 else i
            moved.append(min(max(i, 0), n - 1))
        return self._texel(layer, moved)

    def _texel(self, layer: int | None, at: list[int]) -> list[Any]:
        index = (() if layer is None else (layer,)) + tuple(reversed(at))
        found = np.atleast_1d(self.array[index])
        if self.read == "normalized":
            limit = np.iinfo(self.array.dtype).max
            lowest = -2.0 if self.filter == "linear" else -1.0  # the sum is not below -1, a texel may be
            return self._fill([max(float(np.float32(int(v) / limit)), lowest) for v in found])
        return self._fill([float(v) if self.array.dtype.kind == "f" else int(v) for v in found])

    def _fill(self, values: list[Any]) -> list[Any]:
        return [*values, 0, 0, 0][:4]


def last(layer: int, layers: int) -> int:
    """The layer that is read: compilers take the number as unsigned, and one too high is the last."""
    return min(layer & 0xFFFFFFFF, layers - 1)


def split(u: Fraction) -> tuple[int, int]:
    """The lower texel and the weight of the upper one, in 256ths."""
    return divmod(math.floor((u - Fraction(1, 2)) * 256 + Fraction(1, 2)), 256)


def shares(weights: list[int]) -> dict[tuple[int, ...], int]:
    """In 256ths of each texel of the footprint: a share is parted between two, and what goes to one of them is rounded,
    ties up. In x and y: the upper row's share of the right column. In three dimensions: layers, then the right column,
    then the texel that is further from the middle of x."""

    def part(share: int, weight: int) -> int:
        return math.floor(Fraction(share * weight, 256) + Fraction(1, 2))

    if len(weights) == 1:
        return {(0,): 256 - weights[0], (1,): weights[0]}
    if len(weights) == 2:
        x, y = weights
        corner = part(x, y)
        return {(1, 1): corner, (1, 0): x - corner, (0, 1): y - corner, (0, 0): 256 - x - y + corner}
    x, y, z = weights
    found = {}
    for k, depth in ((0, 256 - z), (1, z)):
        right = part(depth, x)
        found[1, 1, k] = part(right, y)
        found[1, 0, k] = right - found[1, 1, k]
        found[0, 0, k] = part(depth - right, 256 - y)
        found[0, 1, k] = depth - right - found[0, 0, k]
    return found


def cube_face(x: float, y: float, z: float) -> tuple[int, list[float]]:
    """The guide's table of cubemaps: face, s, t, with the coordinates that compilers have divided by the largest."""
    m = max(abs(x), abs(y), abs(z))
    x, y, z = (float(np.float32(v) * np.float32(np.float32(1) / np.float32(m))) for v in (x, y, z))
    if abs(z) >= abs(y) and abs(z) >= abs(x):
        face, m, s, t = (4, z, x, -y) if z >= 0 else (5, -z, -x, -y)
    elif abs(y) >= abs(x):
        face, m, s, t = (2, y, x, z) if y >= 0 else (3, -y, x, -z)
    else:
        face, m, s, t = (0, x, -z, -y) if x >= 0 else (1, -x, z, -y)
    return face, [(s / m + 1) / 2, (t / m + 1) / 2]


INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32")
SHAPES = {"1D": 1, "2D": 2, "3D": 3, "1D_ARRAY": 1, "2D_ARRAY": 2, "CUBE": 2, "CUBE_ARRAY": 2, "linear": 1}


def random_case(rng: np.random.Generator, filter: str | None = None, edges: bool = True) -> Case:
    """``edges``: also places just beside and on the edges of texels, and far outside."""
    reader = str(rng.choice(list(READERS)))
    kind = reader.partition("_lod")[0].partition("_grad")[0].partition("_gather")[0]
    gather = "gather" in reader
    filter = "point" if kind == "linear" or gather else filter or str(rng.choice(["point", "linear"]))
    dtype = str(rng.choice(["float32", "float16", *INTEGERS]))
    short = dtype in INTEGERS[:4]
    read = "normalized" if short and (filter == "linear" or rng.random() < 0.5) else "element"
    if filter == "linear" and read == "element" and dtype in INTEGERS:
        dtype = "float32"
    channels = 4 if gather else int(rng.choice([1, 2, 4]))
    sizes = [int(n) for n in rng.integers(1, 12, SHAPES[kind])]
    if kind.startswith("CUBE"):
        sizes = [sizes[0]] * 2
    layers = {"CUBE": 6, "CUBE_ARRAY": 6 * int(rng.integers(1, 4))}.get(kind) or (
        int(rng.integers(1, 5)) if kind.endswith("ARRAY") else 0
    )
    shape = ([layers] if layers else []) + sizes[::-1] + ([channels] if channels > 1 else [])
    array = random_texels(rng, shape, dtype)
    normalized = bool(rng.random() < 0.5) and kind != "linear"
    modes = ["clamp", "border", *(["wrap", "mirror"] if normalized else [])]
    if kind.startswith("CUBE") or kind == "linear":
        modes = ["clamp"]
    address = tuple(str(rng.choice(modes)) for _ in range(3))
    places = np.zeros((3, COUNT), np.float32)
    scale = [1.0] * 3 if normalized else [*sizes, 1, 1][:3]
    for n in range(3):
        if kind.startswith("CUBE"):
            places[n] = rng.uniform(-3, 3, COUNT)
            continue
        places[n] = rng.uniform(-1.5, 2.5, COUNT) * scale[n]
        if edges:
            size = [*sizes, 1, 1][n]
            on = rng.integers(-2 * size, 3 * size, COUNT) / size * scale[n]
            places[n, COUNT // 2 :: 4] = on[COUNT // 2 :: 4]
            places[n, COUNT // 2 + 1 :: 4] = np.nextafter(on.astype(np.float32), np.float32(-9e9))[COUNT // 2 + 1 :: 4]
            places[n, -1] = rng.choice([3e9, -3e9, 1e30])
    numbers = rng.integers(-2, max(layers, 1) + 3, COUNT).astype(np.int32)
    if kind == "linear":
        numbers = rng.integers(-3, sizes[0] + 3, COUNT).astype(np.int32)
    return Case(kind, reader, array, channels, filter, address, normalized, read, places, numbers)


def random_texels(rng: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


# ---- what the guide leaves open ----------------------------------------------------------------------------------

#: what an H200 gave (``main`` draws it from the records of tests/gpu/test_textures.py). For each probe some places, by
#: their numbers, and the first component; ``random``: filter, case, place, component and word of random cases
CARD = Path(__file__).with_name("textures_sm90.npz")
STORED = Path(__file__).with_name("surfaces_sm90.npz")  # ``words``, and what SUST.P makes of them in types of texels
FILTERS, RANDOM, SOME = ("point", "linear"), 600, 800


def random_cases(filter: str) -> list[Case]:
    """Those that the card was given."""
    rng = np.random.default_rng(FILTERS.index(filter))
    return [random_case(rng, filter, edges=False) for _ in range(RANDOM)]


def main(arrays: str, records: list[str]) -> None:
    """Draws ``CARD`` from a record's .npz, and the words of random cases that records (.json) say; without records
    those that it has stay."""
    rng, found = np.random.default_rng(0), {}
    with np.load(arrays) as all_:
        for name in probes() | questions():
            card = all_[name + ".card"][:, 0]
            off = np.flatnonzero(card != all_[name + ".ours"][:, 0])[: SOME // 2]  # where the device was wrong then
            drawn = rng.choice(len(card), min(SOME, len(card)), replace=False)
            found[name + ".places"] = chosen = np.union1d(off, drawn).astype(np.uint32)
            found[name + ".card"] = card[chosen]
    words: list[Any] = []
    if not records:
        words = np.load(CARD)["random"].tolist()
    for number, filter in enumerate(FILTERS):
        cases = random_cases(filter)
        for text in (text for record in records for text in json.loads(Path(record).read_text())[filter]["first"]):
            kind, place, component, word = WORD.match(text).groups()  # type: ignore[union-attr]
            at = np.array(json.loads(place), np.float32)[:, None]
            hits = ((n, (case.places == at).all(axis=0)) for n, case in enumerate(cases) if repr(case) == kind)
            case, lane = next((n, int(hit.argmax())) for n, hit in hits if hit.any())
            words.append((number, case, lane, int(component), int(word, 16)))
    np.savez_compressed(CARD, **found, random=np.array(words, np.uint32))  # type: ignore[arg-type]


WORD = re.compile(r"(Case\(.*\)): \d+ words; place (\[.*?\]), layer -?\d+, component (\d): 0x([0-9a-f]+), ours")


def _probe(reader: str, array: Any, places: list[Any], **more: Any) -> Case:
    """Linear filtering of one channel, clamped, unless ``more`` says otherwise."""
    count = len(places[0])
    where = np.zeros((3, count), np.float32)
    for n, place in enumerate(places):
        where[n] = place
    layers = more.pop("layers", np.zeros(count)).astype(np.int32)
    options: dict[str, Any] = {"channels": 1, "filter": "linear", "address": ("clamp",) * 3, "normalized": False,
                               "read": "element", **more}  # fmt: skip
    kind = reader.partition("_lod")[0].partition("_gather")[0]
    return Case(kind, reader, array, places=where, layers=layers, **options)


def questions() -> dict[str, Case]:
    """Of how many bits of coordinates each address mode takes notice, at each size (places where 22 and 21 bits give
    other weights); what the lowest of int16 is; denormal coordinates."""
    found: dict[str, Case] = {}
    parts = np.arange(1, 1 << 22, 2)
    for n in (6, 7, 100, 1000, 40000):
        above = parts * n * 256 % (1 << 22) - (1 << 21)
        at = np.resize(parts[(above > 0) & (above < n * 256)], 400) / 2.0**22
        steps = (np.arange(n) % 2).astype(np.float32)
        for mode in ("clamp", "border", "wrap", "mirror"):
            options: dict[str, Any] = {"address": (mode,) * 3, "normalized": True}
            found[f"bits_{mode}_{n}"] = _probe("1D", steps, [np.concatenate([at, -at, at + 1])], **options)
    low = np.array([-32768, -32767, 32767, -32768, 0], np.int16)
    found["low_int16"] = _probe("1D", low, [0.5 + np.arange(1024) / 256], read="normalized")
    tiny = np.array([-1e-45, -1e-38, -1e-30, -1e-10, -1e-7, 1e-45])
    for filter in FILTERS:
        for mode in ("clamp", "border"):
            found[f"tiny_{mode}_{filter}"] = _probe("1D", np.arange(1, 9, dtype=np.float32), [tiny],
                                                    address=(mode,) * 3, filter=filter)  # fmt: skip
    return found


def probes() -> dict[str, Case]:
    """Textures and places that show how weights and sums are rounded, where texels begin, and what is at odd places."""
    rng = np.random.default_rng(3)
    found: dict[str, Case] = {}

    def add(name: str, *args: Any, **more: Any) -> None:
        found[name] = _probe(*args, **more)

    fine = np.arange(8192)
    for n in (8, 7, 4096, 40000):
        steps = (np.arange(n) % 2).astype(np.float32)
        add(f"weight_{n}", "1D", steps, [n // 2 + 0.5 + fine / 4096])
        add(f"weight_normalized_{n}", "1D", steps, [(n // 2 + 0.5 + fine / 4096) / n], normalized=True)
    edges = np.concatenate([n + np.arange(-128, 129) / 16384 for n in (1, 2, 3, 5)])
    numbers = np.arange(8, dtype=np.float32)
    add("edge", "1D", numbers, [edges], filter="point")
    add("edge_7", "1D", numbers[:7], [edges / 7], filter="point", normalized=True)
    add("edge_8", "1D", numbers, [edges / 8], filter="point", normalized=True)
    grid = np.arange(64, dtype=np.float32).reshape(8, 8)
    add("edge_gather", "2D_gather0", np.stack([grid] * 4, -1), [edges + 0.5, edges * 0 + 2.2], channels=4,
        filter="point")  # fmt: skip
    eighth = np.arange(256) / 256
    texels = rng.standard_normal(256).astype(np.float32)
    line = np.concatenate([n + 0.5 + eighth for n in range(0, 250, 5)])
    add("sum_1D", "1D", texels, [line])
    add("sum_1D_float16", "1D", texels.astype(np.float16), [line])
    for dtype in ("uint8", "int8", "uint16", "int16"):
        add(f"sum_1D_{dtype}", "1D", random_texels(rng, [256], dtype), [line], read="normalized")
        add(f"all_{dtype}", "1D", np.arange(1 << 16 if dtype[-1] == "6" else 256).astype(dtype),
            [np.arange(1 << 16 if dtype[-1] == "6" else 256) + 0.5], read="normalized", filter="point")  # fmt: skip
    plane, space = rng.standard_normal((32, 32)).astype(np.float32), rng.standard_normal((8, 8, 8)).astype(np.float32)
    for dtype in ("float32", "float16"):
        places = [rng.integers(0, 32 * 256, 1 << 14) / 256 + 0.5 for _ in range(2)]
        add(f"sum_2D_{dtype}", "2D", plane.astype(dtype), places)
        places = [rng.integers(0, 8 * 256, 1 << 14) / 256 + 0.5 for _ in range(3)]
        add(f"sum_3D_{dtype}", "3D", space.astype(dtype), places)
    add("sum_2D_uint8", "2D", random_texels(rng, [32, 32], "uint8"),
        [rng.integers(0, 32 * 256, 1 << 14) / 256 + 0.5 for _ in range(2)], read="normalized")  # fmt: skip
    odd = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1e9, -1e9, 1e-42, -1e-42, -0.0, 0.0, 2.0**24, 2.0**31])
    for mode in ("clamp", "border", "wrap", "mirror"):
        for filter in ("point", "linear"):
            add(f"odd_{mode}_{filter}", "1D", numbers + 1, [odd], address=(mode,) * 3, filter=filter, normalized=True)
    wild = np.array([np.inf, 1, np.nan, 2, 1e-42, 3e38, -3e38, -np.inf], np.float32)
    add("wild_linear", "1D", wild, [np.arange(64) / 8])
    add("wild_point", "1D", wild, [np.arange(8) + 0.5], filter="point")
    add("wild_point_float16", "1D", np.arange(1 << 16, dtype=np.uint16).view(np.float16), [np.arange(1 << 16) + 0.5],
        filter="point")  # fmt: skip
    kinds = ("float32", "element"), ("int32", "element"), ("uint8", "normalized"), ("uint8", "element")
    for channels in (1, 2):
        for dtype, read in kinds:
            add(f"missing_{channels}_{dtype}_{read}", "1D", np.full((4, channels), 5, dtype).squeeze(), [[1.5, 9.0]],
                channels=channels, read=read, filter="point", address=("border",) * 3)  # fmt: skip
    add("layers", "1D_ARRAY", np.arange(4, dtype=np.float32).reshape(4, 1), [np.zeros(16)], filter="point",
        layers=np.arange(16) - 4)  # fmt: skip
    around = np.linspace(0, 2 * np.pi, 1 << 12)
    faces = rng.standard_normal((6, 4, 4)).astype(np.float32)
    add("cube", "CUBE", faces, [np.cos(around), np.sin(around), np.sin(7 * around)], layers=np.zeros(1 << 12))
    add("cube_point", "CUBE", faces, [np.cos(around), np.sin(around), np.sin(7 * around)], filter="point")
    return found


# ---- a random surface ---------------------------------------------------------------------------------------------


@dataclass
class SurfaceCase:
    """A surface and the places that are read, or written: texels in x, y and z or layer, (3, COUNT)."""

    kind: str
    array: np.ndarray[Any, Any] = dataclasses.field(repr=False)
    channels: int
    mode: str
    places: np.ndarray[Any, Any] = dataclasses.field(repr=False)
    data: np.ndarray[Any, Any] = dataclasses.field(repr=False)

    def options(self) -> dict[str, Any]:
        return {"channels": self.channels, "layered": self.kind.endswith("ARRAY"), "cube": self.kind.startswith("CUBE")}

    def name(self) -> str:
        return f"{SURFACE_KINDS[self.kind]}_{self.array.dtype.itemsize * self.channels}_{self.mode}"

    def texels(self) -> np.ndarray[Any, Any]:
        """Bytes of each texel, in a shape of its dimensions and layers."""
        flat = self.array.reshape(-1).view(np.uint8)
        shape = self.array.shape[: -1 if self.channels > 1 else None]
        return flat.reshape(*shape, -1)

    def indices(self) -> list[tuple[int, ...] | None]:
        """Of each place; None: it is ignored."""
        shape = self.texels().shape[:-1]
        found: list[tuple[int, ...] | None] = []
        for place in self.places.T.tolist():
            at = tuple(reversed(place[: len(shape)]))
            layered = self.kind.startswith("CUBE") or self.kind.endswith("ARRAY")
            given = ((at[0] & 0xFFFFFFFF,) if layered else at[:1]) + at[1:]
            near = tuple(min(max(i, 0), n - 1) for i, n in zip(given, shape))
            found.append(near if self.mode == "clamp" or near == at else None)
        return found

    def read(self) -> np.ndarray[Any, Any]:
        texels = self.texels()
        return np.stack([np.zeros(texels.shape[-1], np.uint8) if at is None else texels[at] for at in self.indices()])

    def written(self) -> np.ndarray[Any, Any]:
        """The array when all is written. No place stands twice, but clamped ones: those are written with one value."""
        texels = self.texels().copy()
        for at, value in zip(self.indices(), self.data):
            if at is not None:
                texels[at] = value
        return texels.reshape(-1).view(self.array.dtype).reshape(self.array.shape)


def random_surface(rng: np.random.Generator) -> SurfaceCase:
    kind = str(rng.choice(list(SURFACE_KINDS)))
    dtype = str(rng.choice(["float32", "float16", *INTEGERS]))
    channels = int(rng.choice([1, 2, 4]))
    dims = SHAPES[kind]
    sizes = [int(n) for n in rng.integers(1, 9, dims)]
    if kind.startswith("CUBE"):
        sizes = [sizes[0]] * 2
    layers = {"CUBE": 6, "CUBE_ARRAY": 12}.get(kind) or (int(rng.integers(1, 5)) if kind.endswith("ARRAY") else 0)
    shape = ([layers] if layers else []) + sizes[::-1]
    array = random_texels(rng, shape + ([channels] if channels > 1 else []), dtype)
    limits = [*reversed(shape), 1, 1][:3]
    places = np.stack([rng.integers(-2, n + 3, COUNT) for n in limits]).astype(np.int32)
    mode = str(rng.choice(list(MODES)))
    case = SurfaceCase(kind, array, channels, mode, places, np.zeros(0))
    size = array.dtype.itemsize * channels
    values = rng.integers(0, 256, (COUNT, size), np.uint8)
    first: dict[Any, int] = {}
    case.data = np.stack([values[first.setdefault(at, n)] for n, at in enumerate(case.indices())])
    return case


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
