"""Textures and surfaces on the CPU device, against the programming guide's formulas."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import loader
from loader import nvrtc
from tests.emulate import textures
from tests.gpu import ask
from turingas.emulate import DeviceError
from turingas.errors import LaunchError

SLOW = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_100")
ARCHS = ["sm_90", *(pytest.param(arch, marks=pytest.mark.slow) for arch in SLOW)]


@pytest.fixture(scope="module", params=ARCHS)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def module(arch: str) -> loader.Module:
    return loader.load(textures.cubin(arch), "cpu")


def differences(case: textures.Case, got: np.ndarray[Any, Any]) -> str:
    """Of what is filtered: more than the rounding of a sum in the type of the texels, or in 16 bits."""
    wanted = case.wanted()
    if case.floats():
        a, b = got.view(np.float32), wanted.view(np.float32)
        step = {"float32": 2.0**-22, "float16": 2.0**-9}.get(case.array.dtype.name, 2.0**-14)
        bad = ~np.isclose(a, b, rtol=step, atol=step) if case.filter == "linear" else a != b
    else:
        bad = got != wanted
    at = np.argwhere(bad)
    return f"{len(at)} differ: {case}: at {at[0]}, place {case.places[:, at[0][0]]}" if len(at) else ""


def test_textures(module: loader.Module) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        case = textures.random_case(rng)
        got = case.run(module, loader.texture(case.array, **case.options()))
        assert not differences(case, got)


def test_as_a_card_does(module: loader.Module) -> None:
    """What an H200 gave where the guide leaves something open (tests/gpu/test_textures.py): the same bits."""
    recorded = np.load(textures.CARD)
    for name, case in (textures.probes() | textures.questions()).items():
        chosen, wanted = recorded[name + ".places"], recorded[name + ".card"]
        case.places, case.layers = np.ascontiguousarray(case.places[:, chosen]), case.layers[chosen]
        got = case.run(module, loader.texture(case.array, **case.options()))[:, 0]
        off = got != wanted
        assert not off.any(), (name, off.sum(), case.places[:, off.argmax()])


def test_random_places_as_a_card_does(module: loader.Module) -> None:
    """Words of random textures that an earlier model had wrong."""
    words = np.load(textures.CARD)["random"].tolist()
    cases = [textures.random_cases(filter) for filter in textures.FILTERS]
    for filter, n, lane, component, word in words:
        case = cases[filter][n]
        case = dataclasses.replace(case, places=case.places[:, [lane]].copy(), layers=case.layers[[lane]])
        got = case.run(module, loader.texture(case.array, **case.options()))
        assert got[0, component] == word, (case, case.places[:, 0])


NEAR = r"""
extern "C" __global__ void near(cudaTextureObject_t texture, const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1D<float>(texture, x[i]);
}
"""
#: of widths: by how many of 8,704 coordinates near borders of texels an H100 read others than 21 bits of the fraction
#: name, and the texels at the first places where it did
BITS: dict[int, tuple[int, dict[int, int]]] = {
    1000: (0, {}),
    2000: (0, {}),
    2049: (0, {}),
    4097: (0, {}),
    8191: (0, {}),
    8193: (912, {10: 6969, 45: 4188, 79: 2522}),
    16385: (980, {11: 13937, 25: 10436, 60: 4421}),
    30000: (1064, {8: 25518, 44: 15334, 78: 9235}),
    65537: (1544, {26: 41744, 27: 41744, 43: 33498}),
    100000: (1594, {60: 26979, 61: 26979, 111: 7524}),
}


@pytest.mark.parametrize("width", BITS)
def test_bits_of_coordinates_as_a_card_counts(width: int) -> None:
    """The nearest of 1,000 to 30,000 texels, up to 8 steps of 2^-24 beside their borders."""
    edges = np.random.default_rng(0).integers(1, width, 512).astype(np.float64) / width
    x = (edges[:, None] + np.arange(-8, 9) * 2.0**-24).astype(np.float32).reshape(-1)
    texture = loader.texture(np.arange(width, dtype=np.float32), normalized=True, filter="point")
    out = np.zeros_like(x)
    kernel = loader.load(nvrtc.compile(NEAR, "sm_90"), "cpu").kernel("near")
    kernel.launch(-(-len(x) // 256), 256, texture, x, out, len(x))
    differ, texels = BITS[width]
    assert (out != np.floor(np.floor(x.astype(np.float64) * 2.0**21) / 2.0**21 * width)).sum() == differ
    assert {n: int(out[n]) for n in texels} == texels


#: of coordinates in a texture of several dimensions, outermost first: how many bits an H100 counts
SEVERAL = [
    ("x", (2, 8191), 21), ("x", (2, 8193), 22), ("x", (1, 12000), 22), ("x", (3, 16385), 23), ("y", (30001, 2), 23),
    ("x", (2, 33000), 22), ("y", (65000, 2), 22), ("x", (2, 131071), 23), ("x", (9000, 101), 22),
    ("x", (20000, 101), 23), ("y", (101, 9000), 22), ("y", (101, 20000), 23), ("y", (101, 40000), 22),
    ("layer", (2, 8193), 22), ("layer", (30, 20000), 23), ("z", (2299, 2, 2), 21), ("z", (2301, 2, 2), 22),
    ("z", (101, 2, 12000), 21), ("z", (101, 9000, 2), 21), ("volume_x", (2, 2, 8191), 21),
    ("volume_x", (2, 2, 8193), 22), ("volume_x", (5000, 2, 101), 22), ("volume_y", (3000, 101, 2), 22),
    ("volume_y", (2, 16383, 2), 22),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "bits"), SEVERAL, ids=str)
def test_bits_by_all_sizes(kind: str, shape: tuple[int, ...], bits: int) -> None:
    """How many count of one coordinate depends on the others' sizes, too."""
    axis = {"y": len(shape) - 2, "volume_y": 1, "z": 0}.get(kind, len(shape) - 1)
    width = shape[axis]
    other = lambda n: tuple(n if k == axis else size for k, size in enumerate(shape))  # noqa: E731
    more = {"layered": True} if kind == "layer" else {}
    with patch.dict(ask.NEAR, {kind: (other, more)}):
        assert ask.texels("cpu", kind, width)["bits"].tolist() == [bits]


def test_surfaces(module: loader.Module) -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        case = textures.random_surface(rng)
        surface = loader.surface(case.array, **case.options())
        out = np.zeros((textures.COUNT, case.data.shape[1]), np.uint8)
        module.kernel("read_" + case.name()).launch(3, 32, surface, case.places, out, textures.COUNT)
        assert (out == case.read()).all(), case
        module.kernel("write_" + case.name()).launch(3, 32, surface, case.places, case.data, textures.COUNT)
        assert surface.numpy().tobytes() == case.written().tobytes(), case


# ---- every form that PTX has --------------------------------------------------------------------------------------

#: geometries of PTX: coordinates as floats and as integers, offsets, and the sizes: z or layers, y, x
FORMS: dict[str, tuple[str, str, str, tuple[int, int, int]]] = {
    "1d": ("2.5", "2", "1", (1, 1, 6)),
    "2d": ("2.5 1.5", "2 1", "1 -1", (1, 5, 6)),
    "3d": ("2.5 1.5 1.5 0.0", "2 1 1 0", "1 -1 1 0", (4, 5, 6)),
    "a1d": ("1 2.5", "1 2", "1", (3, 1, 6)),
    "a2d": ("1 2.5 1.5 0.0", "1 2 1 0", "1 -1", (3, 5, 6)),
}
WHOLE, SHIFTED = (1, 1, 2), (2, 0, 3)  # z (or layer), y and x of the texel, without and with offsets


def ptx_forms() -> dict[str, tuple[str, str, bool]]:
    """Of each: an instruction, its geometry, whether it has offsets."""
    found = {}
    for geometry, (floats, integers, offsets, _) in FORMS.items():
        f = ", ".join(word if "." not in word else hex_float(word) for word in floats.split())
        i, o = ", ".join(integers.split()), ", ".join(offsets.split())
        one = {
            "tex": f"tex.{geometry}.v4.f32.f32 OUT, [%4, {{{f}}}]",
            "level": f"tex.level.{geometry}.v4.f32.f32 OUT, [%4, {{{f}}}], {hex_float('3')}",
            "fetch": f"tex.{geometry}.v4.f32.s32 OUT, [%4, {{{i}}}]",
            "fetch_level": f"tex.level.{geometry}.v4.f32.s32 OUT, [%4, {{{i}}}], 0",
        }
        derivative = {"1d": "{D}", "a1d": "{D}", "2d": "{D, D}", "a2d": "{D, D}"}.get(geometry, "")
        if derivative:
            given = derivative.replace("D", hex_float("9"))
            one["grad"] = f"tex.grad.{geometry}.v4.f32.f32 OUT, [%4, {{{f}}}], {given}, {given}"
        if geometry in ("2d", "a2d"):
            one["gather"] = f"tld4.r.{geometry}.v4.f32.f32 OUT, [%4, {{{f}}}]"
        for name, text in one.items():
            found[f"{name}_{geometry}"] = text, geometry, False
            found[f"{name}_offset_{geometry}"] = f"{text}, {{{o}}}", geometry, True
    return found


def hex_float(text: str) -> str:
    return "0f" + np.float32(text).tobytes()[::-1].hex()


def test_every_form(arch: str) -> None:
    """With the handle as a parameter, and in memory."""
    source = ""
    for name, (text, _, _) in ptx_forms().items():
        for more, kind, handle in (("p", "cudaTextureObject_t", "t"), ("m", "cudaTextureObject_t*", "t[threadIdx.x]")):
            written = text.replace("OUT", "{%0, %1, %2, %3}")
            source += (
                f'extern "C" __global__ void {name}_{more}({kind} t, float4* o) {{ float4 v; asm volatile("{written};" '
                f': "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"({handle})); o[threadIdx.x] = v; }}\n'
            )
    module = loader.load(nvrtc.compile(source, arch), "cpu")
    for name, (_, geometry, shifted) in ptx_forms().items():
        sizes = FORMS[geometry][3]
        texels = np.arange(1, 1 + np.prod(sizes), dtype=np.float32).reshape(sizes)
        array = texels.squeeze()
        pair = [loader.texture(array * scale, layered=geometry[0] == "a") for scale in (1, 10)]
        z, y, x = SHIFTED if shifted else WHOLE
        z = WHOLE[0] if geometry[0] == "a" else z  # a layer has no offset
        z, y, x = (at if size > 1 else 0 for at, size in zip((z, y, x), sizes))
        wanted = np.array([texels[z, y, x], 0, 0, 0])
        if name.startswith("gather"):
            corners = ((0, 1), (1, 1), (1, 0), (0, 0))
            wanted = np.array([texels[z, y + up, x + right] for right, up in corners])
        out = np.zeros((1, 4), np.float32)
        module.kernel(name + "_p").launch(1, 1, pair[0], out)
        assert (out == wanted).all(), (name, out, wanted)
        out = np.zeros((32, 4), np.float32)
        handles = np.array([pair[n % 2].handle for n in range(32)], np.uint64)
        module.kernel(name + "_m").launch(1, 32, handles, out)
        assert (out[::2] == wanted).all() and (out[1::2] == wanted * 10).all(), (name, out, wanted)


SURFACE_SOURCE = """
extern "C" __global__ void reduce(cudaSurfaceObject_t s, int y) {
    int x = threadIdx.x % 3;
    asm volatile("sured.b.add.2d.u32.trap [%0, {%1, %2}], %3;" :: "l"(s), "r"(4 * x), "r"(y), "r"(2));
    asm volatile("sured.p.max.2d.b32.trap [%0, {%1, %2}], %3;" :: "l"(s), "r"(3), "r"(y), "r"((int)threadIdx.x)); }
extern "C" __global__ void formatted(cudaSurfaceObject_t s) {
    asm volatile("sust.p.1d.v4.b32.zero [%0, {%1}], {%2, %3, %4, %5};"
                 :: "l"(s), "r"((int)threadIdx.x - 1), "r"(1), "r"(2), "r"(3), "r"(4)); }
extern "C" __global__ void stored(cudaSurfaceObject_t s, const uint4* v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("sust.p.1d.v4.b32.trap [%0, {%1}], {%2, %3, %4, %5};"
                 :: "l"(s), "r"(i), "r"(v[i].x), "r"(v[i].y), "r"(v[i].z), "r"(v[i].w)); }
extern "C" __global__ void trap(cudaSurfaceObject_t s, float* o) {
    surf2Dread(o + threadIdx.x, s, threadIdx.x * 4, 1); }
extern "C" __global__ void odd(cudaSurfaceObject_t s, float* o) { surf2Dread(o, s, 2, 1); }
extern "C" __global__ void sizes(cudaTextureObject_t* t, unsigned* o) { unsigned w, h;
    asm("txq.width.b32 %0, [%1];" : "=r"(w) : "l"(t[threadIdx.x]));
    asm("txq.height.b32 %0, [%1];" : "=r"(h) : "l"(t[threadIdx.x]));
    o[2 * threadIdx.x] = w; o[2 * threadIdx.x + 1] = h; }
"""


def test_surface_operations(arch: str) -> None:
    module = loader.load(nvrtc.compile(SURFACE_SOURCE, arch), "cpu")
    surface = loader.surface(np.zeros((2, 4), np.uint32))
    module.kernel("reduce").launch(1, 32, surface, 1)
    assert surface.numpy().tolist() == [[0] * 4, [22, 22, 20, 31]]
    four = loader.surface(np.zeros((3, 4), np.int32), channels=4)
    module.kernel("formatted").launch(1, 32, four)
    assert four.numpy().tolist() == [[1, 2, 3, 4]] * 3
    with np.load(textures.STORED) as known:  # as an H100 stores words: clamped, or rounded towards zero
        words = np.ascontiguousarray(known["words"])
        for dtype in ("int8", "uint8", "int16", "uint16", "float16"):
            for channels in (4, 2):
                surface_of = loader.surface(np.zeros((len(words), channels), dtype), channels=channels)
                module.kernel("stored").launch(2, 32, surface_of, words)
                assert (surface_of.numpy().view(known[dtype].dtype) == known[dtype][:, :channels]).all(), dtype
    out = np.zeros(32, np.float32)
    words = r"(?s)outside of the surface: x \(bytes\) is 16, and it has 16.*thread \(4, 0, 0\)"
    with pytest.raises(DeviceError, match=words):
        module.kernel("trap").launch(1, 32, surface, out)
    with pytest.raises(DeviceError, match="byte 2 of a row: not aligned to the 4 bytes"):
        module.kernel("odd").launch(1, 1, surface, out)
    texture, found = loader.texture(np.zeros((7, 9), np.uint8)), np.zeros((2, 2), np.uint32)
    module.kernel("sizes").launch(1, 2, np.array([texture.handle, surface.handle], np.uint64), found)
    assert found.tolist() == [[9, 7], [4, 2]]


# ---- what goes wrong ----------------------------------------------------------------------------------------------


def test_wrong_handles(module: loader.Module) -> None:
    texture, surface = loader.texture(np.zeros((2, 2, 2), np.float32)), loader.surface(np.zeros((2, 2), np.float32))
    zeros, out = np.zeros(3, np.float32), np.zeros((1, 4), np.float32)
    layers = np.zeros(1, np.int32)
    gone = loader.texture(np.zeros(4, np.float32)).handle
    for given, words in (
        (0, "the handle 0x0 names nothing that is there; TEX needs a texture"),
        (gone, "names nothing that is there"),
        (surface, "is a surface; TEX needs a texture"),
        (texture, "reads a texture of kind 2D or 1D; this one is 3D"),
    ):
        with pytest.raises(DeviceError, match=words):
            module.kernel("tex_2D_f").launch(1, 1, given, zeros, layers, out, 1)
    with pytest.raises(DeviceError, match="is a texture; SULD needs a surface"):
        module.kernel("read_2D_4_zero").launch(1, 1, texture, np.zeros(3, np.int32), out, 1)
    with pytest.raises(LaunchError, match="is a texture, but the parameter has 4 bytes"):
        module.kernel("tex_2D_f").launch(1, 1, texture, zeros, layers, out, texture)


FLOATS = np.zeros((6, 4, 4), np.float32)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"array": 3}, "a texture of a int, which is no array"),
    ({"array": np.zeros(4)}, "a texture of float64"),
    ({"channels": 3}, "the last dimension must be its 3 channels"),
    ({"array": np.zeros((4, 3), np.float32), "channels": 3}, "a texture of 3 channels"),
    ({"array": np.zeros((1, 2, 3, 4), np.float32)}, "an image has 1 to 3 dimensions; an array .* has 4 there"),
    ({"array": np.zeros(0, np.float32)}, "with a size of 0"),
    ({"array": np.zeros(131073, np.uint8)}, "a texture of kind 1D with a size of 131073; it must be 1 to 131072"),
    ({"array": FLOATS[:5], "cube": True}, "a cube has 6 faces, not 5"),
    ({"array": FLOATS[:, :3], "cube": True}, "six faces, as high as wide"),
    ({"array": FLOATS[0], "linear": True}, "linear memory has 1 dimension"),
    ({"filter": "cubic"}, "filter is 'cubic'; it must be one of 'point', 'linear'"),
    ({"read": "float"}, "read is 'float'"),
    ({"read": "normalized"}, "is for integers of 8 and 16 bits, not for float32"),
    ({"address": "repeat"}, "address is 'repeat'"),
    ({"address": "wrap"}, "address='wrap' is for normalized coordinates"),
    ({"address": ["clamp"]}, "address has 1 modes, and the texture 3 dimensions"),
    ({"array": np.zeros(4, np.int32), "filter": "linear"}, "filter='linear' of int32: what is read must be floats"),
    ({"array": np.zeros(4, np.float32), "filter": "linear", "linear": True}, "linear memory cannot be filtered"),
]


@pytest.mark.parametrize("change, message", REFUSED, ids=itertools.count())
def test_what_no_device_takes(change: dict[str, Any], message: str) -> None:
    options = {"array": FLOATS, **change}
    with pytest.raises(LaunchError, match=message):
        loader.texture(options.pop("array"), **options)


def test_texels_are_a_copy() -> None:
    array = np.zeros((2, 3), np.float32)
    surface = loader.surface(array)
    surface.copy_from(array + 1)
    assert surface.numpy().min() == 1 and not array.any()
    with pytest.raises(LaunchError, match=r"the array is float32\[3, 2\], the texels float32\[2, 3\]"):
        surface.copy_from(array.T)
