"""What only a card can answer: ``python -m tests.gpu.ask [WORD ...] [--device cuda:0] [--save FILE.npz]``.

Each question is a process of its own, for a fault takes its process along, and runs the same kernel
(tests/kernels/ask.cu, tiles.cu, test_tiles' OUT, products of wgmma.py) on the card and on the CPU device: a line for
each, "=" where both say the same, "!" where they differ, "?" where the card said nothing, and "-" where the CPU device
refuses and the card does not. FILE gets what was said otherwise, as arrays.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import loader
from loader.cuda import Buffer, CudaError
from tests.emulate import test_tiles, tiles, wgmma
from tests.gpu.apart import apart
from tests.tools import nvrtc
from turingas import assemble
from turingas.emulate import DeviceError
from turingas.errors import LaunchError

SOURCE = Path(__file__).parents[1] / "kernels" / "ask.cu"
Array = np.ndarray[Any, Any]
Said = "dict[str, Array] | str"


@functools.cache
def cubin() -> bytes:
    return nvrtc.compile_source(SOURCE.read_text(), "sm_90a", (), name="ask.cu")


def launched(
    device: str, made: Any, kernel: str, grid: Any, block: int, arguments: Sequence[Any], **options: Any
) -> list[Array]:
    """Arrays among the arguments, as a launch leaves them. A function among these is given the module's place."""
    with loader.load(made, device) as module:
        there: list[Any] = []
        for one in arguments:
            a = one(module) if callable(one) else one
            if isinstance(a, np.ndarray):
                a = a.copy() if device == "cpu" else Buffer.of(a, module.device)
            there.append(a)
        module.kernel(kernel).launch(grid, block, *there, **options)
        module.synchronize()
        return [a if isinstance(a, np.ndarray) else a.numpy() for a in there if isinstance(a, (np.ndarray, Buffer))]


# ---- textures ------------------------------------------------------------------------------------------------------

#: kinds: the array's shape with n texels where the coordinate counts, and what else it needs; @: another size
NEAR: dict[str, tuple[Callable[[int], tuple[int, ...]], dict[str, Any]]] = {
    "1d": (lambda n: (n,), {}), "x": (lambda n: (2, n), {}), "y": (lambda n: (n, 2), {}),
    "z": (lambda n: (n, 2, 2), {}), "volume_x": (lambda n: (2, 2, n), {}), "volume_y": (lambda n: (2, n, 2), {}),
    "layer": (lambda n: (2, n), {"layered": True}), "x@20000": (lambda n: (20000, n), {}),
    "y@40000": (lambda n: (n, 40000), {}), "volume_x@3000": (lambda n: (3000, 2, n), {}),
    "z@9000": (lambda n: (n, 9000, 2), {}),
}  # fmt: skip
WIDTHS = {
    "1d": (2001, 2048, 2049, 3000, 4095, 4096, 4097, 5000, 6000, 7000, 8191, 8192, 8193, 16384, 16385, 32768, 32769,
           50000, 65536, 65537, 100000, 131072),
    "x": (2049, 4097, 8191, 8193, 16383, 16385, 32767, 32769, 65535, 65537, 131071),
    "y": (2049, 4097, 8191, 8193, 16383, 16385, 32767, 32769, 65000),
    "z": (2049, 2299, 2301, 3000, 4095, 4097, 8193, 12000, 16383), "volume_x": (2049, 4095, 4097, 8191, 8193, 16383),
    "volume_y": (2049, 4095, 4097, 8191, 8193, 16383), "layer": (2049, 4097, 8191, 8193, 16385, 32767),
    "x@20000": (101, 9000), "y@40000": (101, 9000), "volume_x@3000": (101, 8191), "z@9000": (101, 2301),
}  # fmt: skip


def texture(array: Array, device: str, _: Any, **options: Any) -> loader.Texture:
    return loader.texture(array, **options, device=device)


def texels(device: str, kind: str, width: int, filter: str = "point") -> dict[str, Array]:
    """The nearest texels, up to 8 steps of 2^-24 beside the borders; ``bits``: how many of the fraction explain it."""
    shape, more = NEAR[kind]
    kernel, _, _ = kind.partition("@")
    axis = {"y": 0, "volume_y": 1, "z": 0}.get(kernel, len(shape(width)) - 1)
    index = np.arange(width, dtype=np.float32).reshape([-1 if n == axis else 1 for n in range(len(shape(width)))])
    array = np.ascontiguousarray(np.broadcast_to(index, shape(width)))
    edges = np.random.default_rng(0).integers(1, width, 512).astype(np.float64) / width
    x = (edges[:, None] + np.arange(-8, 9) * 2.0**-24).astype(np.float32).reshape(-1)
    made = functools.partial(texture, array, device, normalized=True, filter=filter, **more)
    _, out = launched(device, cubin(), "near_" + kernel, -(-len(x) // 256), 256, [made, x, np.zeros_like(x), len(x)])
    exact = x.astype(np.float64)
    bits = [n for n in range(18, 27) if (np.floor(np.floor(exact * 2.0**n) / 2.0**n * width) == out).all()]
    return {"bits": np.array(bits), "out": out}


def cube(device: str) -> dict[str, Array]:
    """Directions of which two or three parts are the same: which face."""
    faces = np.arange(6 * 16, dtype=np.float32).reshape(6, 4, 4)
    p = np.array([p for p in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3) if any(p)], np.float32).T.copy()
    made = functools.partial(texture, faces, device, cube=True, normalized=True)
    n = p.shape[1]
    _, out = launched(device, cubin(), "cube", -(-n // 32), 32, [made, p, np.zeros(n, np.float32), n])
    return {"faces": out // 16, "texels": out}


def halves(device: str, packed: bool, filter: str, dtype: str) -> dict[str, Array]:
    """What a texture gives as FP16."""
    rng = np.random.default_rng(5)
    array = np.ldexp(rng.normal(0, 300, (7, 9, 4)), rng.integers(-30, 12, (7, 9, 4))).astype(np.float32)
    read = "element"
    if dtype != "float32":
        array, read = rng.integers(0, 256, array.shape).astype(np.uint8).view(dtype), "normalized"
    n = 256
    p = rng.uniform(0, 9, (2, n)).astype(np.float32)
    made = functools.partial(texture, array, device, channels=4, filter=filter, read=read)
    out = np.zeros((n, 2), np.uint32) if packed else np.zeros((n, 4), np.uint16)
    kernel = "tex_halves" if packed else "tex_half"
    p, out = launched(device, cubin(), kernel, -(-n // 32), 32, [made, p, out, n])
    return {"out": out.view(np.uint16), "places": p, "array": array}


WORDS = np.array([
    0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x100, 0x101, 0x1FF, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF,
    0x10000, 0x10001, 0x12345678, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFF7F, 0xFFFFFF80,
    0xFFFFFF81, 0xFFFF7FFF, 0xFFFF8000, 0xFFFF8001, 0xFFFFFFFE, 0xFFFFFFFF, 0x3F800000, 0x3F000000, 0x3F801000,
    0x3F803000, 0x3F801001, 0x477FE000, 0x477FF000, 0x477FEFFF, 0x47800000, 0x33800000, 0x33000000, 0x33000001,
    0x38800000, 0x387FFFFF, 0x7F800000, 0x7F800001, 0xFF800000, 0xFFC00000, 0xBF800000, 0xBF000000, 0x3B808081,
    0x437F0000, 0x43800000, 0xC3000000, 0xC3008000, 0x00000400, 0x3C00, 0x3F7F0000, 0x40490FDB, 0xC0490FDB,
    0x4B800000, 0x4B800001,
], np.uint32)  # fmt: skip


def formatted(device: str, dtype: str, channels: int) -> dict[str, Array]:
    """What SUST.P makes of words; rows of 64 texels of ``channels``."""
    words = np.stack([np.roll(WORDS, n) for n in range(4)], axis=1)
    with loader.load(cubin(), device) as module:
        shape = (len(words), channels) if channels > 1 else (len(words),)
        surface = loader.surface(np.zeros(shape, dtype), channels=channels, device=device)
        given = words if device == "cpu" else Buffer.of(words, module.device)
        module.kernel("formatted").launch(len(words) // 32, 32, surface, given)
        module.synchronize()
        return {"stored": surface.numpy().view(f"u{np.dtype(dtype).itemsize}").copy(), "words": words}


# ---- arithmetic and warps ------------------------------------------------------------------------------------------


def out_of_bounds(device: str) -> dict[str, Array]:
    """fma.rn.oob.relu.bf16x2 of all 16 bits in each place, beside 40 pairs of others."""
    every = np.arange(1 << 16, dtype=np.uint16)
    others = [0x3F80, 0x4100, 0xBF80, 0x7F80, 0x7FC0, 0x7FFF, 0x7FF7, 0xFFF7, 0x0000, 0x8000]
    found = []
    for y, z in itertools.product(others, others[::3]):
        one = [every, np.array([y], np.uint16), np.array([z], np.uint16), np.zeros((1 << 16, 3), np.uint16), 1 << 16]
        found.append(launched(device, cubin(), "out_of_bounds", 256, 256, one)[-1])
    return {"out": np.stack(found)}


def turned(device: str) -> dict[str, Array]:
    words = np.random.default_rng(0).integers(0, 1 << 32, 128, np.uint32)
    return {"out": launched(device, cubin(), "turn", 4, 32, [words, np.zeros_like(words)])[-1]}


def elected(device: str) -> dict[str, Array]:
    masks = np.random.default_rng(0).integers(1, 1 << 32, 64, np.uint32)
    masks[:4] = 0xFFFFFFFF, 0x80000000, 1, 0xFFFF0000
    return {"out": launched(device, cubin(), "elect", 64, 32, [masks, np.zeros((64 * 32, 2), np.uint32)])[-1]}


def bank(device: str, cluster: tuple[int, int, int]) -> dict[str, Array]:
    """What the driver writes into bank 0 about clusters: sizes, reciprocals, counts."""
    places = (0x140, *range(0x144, 0x168, 4), 0x188)
    each = (f"LDC R4, c[0x0][{at:#x}];\nSTG.E desc[UR4][R2.64+{4 * n:#x}], R4;\n" for n, at in enumerate(places))
    source = f""".arch sm_90
.kernel bank
.param out 8
S2R R0, SR_TID.X;
ULDC.64 UR4, c[0x0][0x208];
LDC.64 R2, c[0x0][0x210];
{''.join(each)}EXIT;
"""
    grid = tuple(2 * n for n in cluster)
    (out,) = launched(device, assemble(source), "bank", grid, 32, [np.zeros(len(places), np.uint32)], cluster=cluster)
    return {"explicit": out[:1], "sizes": out[1:4], "reciprocals": out[4:7], "clusters": out[7:10], "size": out[10:]}


# ---- copies --------------------------------------------------------------------------------------------------------


def filled(device: str, size: int) -> dict[str, Array]:
    """cp.async of fewer bytes than its size."""
    words = np.random.default_rng(0).integers(0, 1 << 32, 32 * 4 * 4, np.uint32)
    return {"out": launched(device, cubin(), f"zfill{size}", 4, 32, [words, np.zeros_like(words)])[-1]}


def wild(kind: str, count: int, seed: int) -> Array:
    """Any bits: half of them near 1, of the rest many NaNs, infinities, denormals, zeros. As words."""
    rng = np.random.default_rng(seed)
    if kind[0] != "f" and kind != "bf16":
        small, any_ = rng.integers(0, 5, count, np.uint32), rng.integers(0, 1 << 32, count, np.uint32)
        return np.where(rng.integers(0, 2, count) > 0, small, any_).astype(np.uint32)
    bits, exponent = {"f16": (16, 5), "bf16": (16, 8), "f32": (32, 8), "f64": (64, 11)}[kind]
    fraction = bits - 1 - exponent
    n = count * 32 // bits
    choice = rng.integers(0, 8, n)
    near, top = (1 << exponent - 1) - 1 + rng.integers(-9, 9, n), (1 << exponent) - 1
    e = np.select([choice < 4, choice == 4, choice == 5], [near, 0, top], rng.integers(0, top, n)).astype(np.uint64)
    f = rng.integers(0, 1 << fraction, n, np.uint64)
    f = np.where(rng.integers(0, 4, n) == 0, f & np.uint64(3), f)
    made = rng.integers(0, 2, n).astype(np.uint64) << np.uint64(bits - 1) | e << np.uint64(fraction) | f
    return made.astype(f"u{bits // 8}").view(np.uint32).copy()


def reduced(device: str, name: str) -> dict[str, Array]:
    """Bulk reductions of any bits into global memory."""
    kind = name.rpartition("_")[2]
    old, new = wild(kind, 1024, 1), wild(kind, 1024, 2)
    old[512:768] = new[512:768]
    out, _ = launched(device, cubin(), f"bulk_{name}", 1, 128, [old, new])
    return {"out": out, "old": old, "new": new}


def far(device: str, name: str) -> dict[str, Array]:
    """Bulk reductions into the other block's shared memory."""
    given = wild(name.rpartition("_")[2], 2048, 3)
    given[1024:1200] = given[:176]
    return {"out": launched(device, cubin(), f"far_{name}", 2, 128, [np.zeros(2048, np.uint32), given], cluster=2)[0]}


def red(device: str, name: str) -> dict[str, Array]:
    """red.async into the other block's shared memory."""
    given = wild(name.rpartition("_")[2], 1024, 4)
    given[512:600] = given[:88]
    if not name.endswith("64"):
        given = given[:512].copy()
    return {"out": launched(device, cubin(), f"red_{name}", 2, 256, [np.zeros_like(given), given], cluster=2)[0]}


#: by the elements' type: the map's type, and the operations that the driver's words allow
OF_MAPS = {
    "f16": ("float16", ("add", "min", "max")), "bf16": ("bfloat16", ("add", "min", "max")),
    "f32": ("float32", ("add",)), "f32.ftz": ("float32.ftz", ("add",)), "f64": ("float64", ("add",)),
    "s64": ("int64", ("min", "max")), "u32": ("uint32", ("inc", "dec")),
}  # fmt: skip


def reduced_tile(device: str, kind: str, operation: str) -> dict[str, Array]:
    """Reductions through tensor maps of any bits: 16 rows of 256 bytes."""
    plain = kind.partition(".")[0]
    old, new = wild(plain, 1024, 5), wild(plain, 1024, 6)
    dtype = OF_MAPS[kind][0]
    stored = {"bfloat16": "float16", "float32.ftz": "float32"}.get(dtype, dtype)
    with loader.load(cubin(), device) as module:
        room = np.zeros(1024 + 64, np.uint32)
        at = -room.ctypes.data % 256 // 4
        room[at : at + 1024] = old
        whole = room[at : at + 1024].view(stored).reshape(16, -1)
        there = whole if device == "cpu" else Buffer.of(whole, module.device)
        made = loader.tensor_map(there, whole.shape, **({} if dtype == stored else {"dtype": dtype}))
        given = new if device == "cpu" else Buffer.of(new, module.device)
        module.kernel(f"tile_{operation}").launch(1, 128, made, given)
        module.synchronize()
        out = whole if device == "cpu" else there.numpy()
        return {"out": np.ascontiguousarray(out).view(np.uint32).reshape(-1), "old": old, "new": new}


HEARD = [name for name, probe in tiles.PROBES.items() if name.startswith("slices") and not probe.kernel]


def heard(device: str, part: int) -> dict[str, Array]:
    """Of how many bytes an mbarrier hears that interleaved tensors are loaded into; -2: the map is refused. Asked by
    waiting for many bytes, then for fewer: the first wait that ends tells (one for fewer may end on the way). Every
    eighth of the probes."""
    found: dict[str, Array] = {}
    with loader.load(tiles.cubin(), device) as module:
        for name in HEARD[part::8]:
            most = tiles.PROBES[name].nbytes()
            tried = [4 * most, 3 * most, *range(2 * most, 0, -16)]
            if device == "cpu":
                tried = [tiles.PROBES[name].nbytes()]
            answer = -1
            for count in tried:
                try:
                    said = tiles.probed(module, name, sent_there if device != "cpu" else None, count)
                except DeviceError:
                    continue
                except (LaunchError, CudaError) as error:  # the driver refuses the map
                    if isinstance(error, CudaError) and "cuTensorMapEncode" not in str(error):
                        raise
                    answer = -2
                    break
                if said["told"][0]:
                    answer = count
                    break
            found[name] = np.array([answer])
    return found


def sent_there(memory: Array, tensor: Array) -> tuple[Buffer, Any]:
    from tests.gpu.test_tiles import sent

    return sent(memory, tensor)


def first_pixel(device: str, what: int, corners: Any, place: tuple[int, int]) -> dict[str, Array]:
    """A store through an im2col map whose first pixel may lie above or below its box."""
    images = test_tiles.aligned(np.arange(2 * 5 * 7 * 8, dtype=np.uint32).reshape(2, 5, 7, 8))
    tile = np.arange(1000, 1080, dtype=np.uint32).reshape(20, 4)
    made = nvrtc.compile_source(test_tiles.OUT, "sm_90a", [f'-DWHAT="{test_tiles.STORED[what]}"'], name="out.cu")
    with loader.load(made, device) as module:
        there, given = (images, tile) if device == "cpu" else (Buffer.of(a, module.device) for a in (images, tile))
        lower, upper = corners
        of = loader.tensor_map(there, pixels=4, channels=4, lower=lower, upper=upper)
        module.kernel("out").launch(1, 32, of, given, 0, *place, 0, 64, shared=2048)
        module.synchronize()
        return {"images": np.array(images if device == "cpu" else there.numpy())}


# ---- mbarriers -----------------------------------------------------------------------------------------------------

STEPS, PROGRAMS = 24, 256


def programs() -> Array:
    """Random legal lives of mbarriers (PTX ISA: pending counts do not fall below 0, bytes stay in range)."""
    rng = np.random.default_rng(11)
    found = np.zeros((PROGRAMS, STEPS, 2), np.int32)
    for program in found:
        count = int(rng.integers(1, 6))
        pending, missing, given, drops = count, 0, False, 0
        program[0] = 0, count
        for step in program[1:]:
            ways = [2, 6, 6] + [1, 1, 9] * (pending > 0) + [4] * (pending > 1)
            ways += [5] * (pending > 0 and count - drops > 1) + [3, 3] * (missing > 0) + [7, 8] * given
            what = int(rng.choice(ways))
            with_ = 0
            if what in (1, 4, 5):
                with_ = int(rng.integers(1, (pending if what != 4 else pending - 1) + 1))
                with_ = min(with_, count - drops - 1) if what == 5 else with_
                pending, given = pending - with_, True
                drops += with_ if what == 5 else 0
            elif what == 9:
                with_ = int(rng.integers(0, 100))
                pending, missing, given = pending - 1, missing + with_, True
            elif what == 2:
                with_ = int(rng.integers(0, 100))
                missing += with_
            elif what == 3:
                with_ = missing if rng.integers(2) else int(rng.integers(1, missing + 1))
                missing -= with_
            elif what == 6:
                with_ = int(rng.integers(2))
            step[:] = what, with_
            if pending == 0 and missing == 0:
                pending = count - drops
    return found


def lives(device: str) -> dict[str, Array]:
    given = programs()
    out = np.zeros((PROGRAMS, STEPS), np.uint32)
    _, out = launched(device, cubin(), "steps", PROGRAMS, 1, [given.reshape(-1), out, STEPS])
    return {"out": out, "programs": given}


# ---- products ------------------------------------------------------------------------------------------------------

OF_DESCRIPTORS = [
    wgmma.Product(64, ("F16", "F16", "F32"), (128, 128)), wgmma.Product(64, ("F16", "F16", "F32"), (64, 32)),
    wgmma.Product(64, ("F16", "F16", "F32"), (128, 64), (True, True)),
    wgmma.Product(32, ("F16", "F16", "F32"), (0, 0), (True, False)),
    wgmma.Product(32, ("TF32", "TF32", "F32"), (32, 128)), wgmma.Product(32, ("E4M3", "E4M3", "F32"), (None, 128)),
]  # fmt: skip
ASKED = 192


def descriptors(device: str, which: int, what: str) -> dict[str, Array]:
    """``base``: base offsets 0 to 7 with the start moved by 0 to 7 rows of 128 bytes, of B and A. ``any``: random
    starts, offsets, strides and base offsets, within the block's memory."""
    p = OF_DESCRIPTORS[which]
    rng = np.random.default_rng(which)
    x = wgmma.operands(rng, p, ASKED)
    bits = wgmma.BITS[p.kinds[0]]
    codes = wgmma.random_codes(rng, p.kinds[0], (wgmma.ROOM * 8 // bits,))
    image = np.broadcast_to(wgmma.packed(codes, bits).reshape(-1), x.image.shape).copy()
    uniform = x.uniform.copy()
    for n in range(ASKED):
        for word in (0, 2):
            if word == 0 and p.swizzles[0] is None:
                continue
            one = int(uniform[n, word]) | int(uniform[n, word + 1]) << 32
            if what == "base":
                mine = n if (word == 2) == (n < 64 or n >= 128) else 0
                one += (mine % 8) << 3 | (mine // 8 % 8) << 49
            else:
                start, leading, stride = (16 * int(rng.integers(0, m)) for m in (1024, 64, 128))
                one = one & (3 << 62) | start >> 4 | leading >> 4 << 16 | stride >> 4 << 32
                one |= int(rng.integers(0, 8)) << 49 if n % 2 else 0
            uniform[n, word : word + 2] = one & 0xFFFFFFFF, one >> 32
    uniform[:, 4] = 0
    out = np.zeros_like(x.accumulators)
    made = wgmma.cubin(p)
    given = [out, image, x.in_registers, x.accumulators, uniform]
    out, *_ = launched(device, made, "product", ASKED, wgmma.THREADS, given)
    return {"out": out, "uniform": uniform}


# ---- what kernels print --------------------------------------------------------------------------------------------

PRINTED = [
    ("%*d|%.*f|%d", "6, a, 1, f, a"), ("%a", "f"), ("%A", "f"), ("%.3a", "f"),
    ("%-8d|%08d|%+d|% d|%#x|%#o", "a, a, a, a, a, a"), ("%e|%E|%g|%G", "f, f, f, f"),
    ("%i|%u|%o|%x|%X", "-a, -a, a, 255, 255"), ("%c|%5c|%-5c|", "'x', 'y', 'z'"),
    ("%.3s|%8.2s|%s", '"last", "last", ""'), ("%p", "(void*)0x1234"), ("%lu %llu %ld", "5ul, 1ull << 63, -5l"),
    ("%hd %hu", "70000, 70000"), ("%5%|%%", "0"), ("%f %f %f", "0. / 0., 1. / 0., -1. / 0."), ("%.0f %.20f", "f, f"),
    ("%d %d %d %d %d %d %d %d %d", "1, 2, 3, 4, 5, 6, 7, 8, 9"), ("%q", "a"), ("%10.4d|%-10.4d|", "a, a"),
    ("%-*d|%*s|", '-6, a, 5, "ab"'), ("%zu %td %jd", "5ul, 5l, 5l"), ("%n", "a"),
]  # fmt: skip


def printed(device: str, which: int) -> dict[str, Array]:
    """A line of printf, by a process of its own: what the driver prints comes from C."""
    done = subprocess.run([sys.executable, "-m", "tests.gpu.ask", "--print", str(which), "--device", device],
                          capture_output=True, timeout=100)  # fmt: skip
    if done.returncode:
        error = next((line for line in done.stderr.splitlines() if b"rror: " in line), b"an error")
        raise RuntimeError(error.decode(errors="replace"))
    return {"text": np.array([done.stdout.decode(errors="replace")])}


def printing(device: str, which: int) -> None:
    form, given = PRINTED[which]
    source = f'extern "C" __global__ void p(int* r, int a, float f) {{ r[0] = printf("{form}\\n", {given}); }}'
    made = nvrtc.compile_source(source, "sm_90", ())
    (out,) = launched(device, made, "p", 1, 1, [np.zeros(1, np.int32), 7, 2.5])
    import ctypes

    ctypes.CDLL(None).fflush(None)
    print(f"[{out[0]}]", flush=True)


# ---- all -----------------------------------------------------------------------------------------------------------

Question = tuple[str, tuple[Any, ...]]


def questions() -> dict[str, Question]:
    found: dict[str, Question] = {}
    for kind, widths in WIDTHS.items():
        for width in widths:
            found[f"texel bits {kind} {width}"] = "texels", (kind, width)
    for width in (3000, 5000, 40000):
        found[f"linear filter {width}"] = "texels", ("1d", width, "linear")
    found["cube faces"] = "cube", ()
    for packed, filter, dtype in itertools.product((False, True), ("point", "linear"), ("float32", "uint8", "int8")):
        found[f"texture as {'f16x2' if packed else 'f16'}, {filter}, {dtype}"] = "halves", (packed, filter, dtype)
    for dtype in ("int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32"):
        for channels in (1, 2, 4):
            found[f"sust.p {dtype} {channels}"] = "formatted", (dtype, channels)
    found["fma.rn.oob.relu.bf16x2"] = "out_of_bounds", ()
    found["movmatrix"] = "turned", ()
    found["elect.sync"] = "elected", ()
    for cluster in ((1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 5, 1), (1, 1, 6), (7, 1, 1), (2, 3, 1), (8, 1, 1)):
        found[f"bank 0 of cluster {cluster}"] = "bank", (cluster,)
    for size in (4, 8, 16):
        found[f"cp.async zfill {size}"] = "filled", (size,)
    for name in ("add_f16", "min_f16", "max_f16", "add_bf16", "min_bf16", "max_bf16", "add_f32", "add_f64", "inc_u32",
                 "dec_u32", "min_s32", "max_s64", "add_u64"):  # fmt: skip
        found[f"bulk reduction {name}"] = "reduced", (name,)
    for name in ("and_b32", "or_b32", "xor_b32", "add_u32", "inc_u32", "dec_u32", "min_u32", "max_u32", "min_s32",
                 "max_s32", "add_u64"):  # fmt: skip
        found[f"bulk reduction in a cluster {name}"] = "far", (name,)
    for name in ("inc_u32", "dec_u32", "min_s32", "max_u32", "add_u32", "and_b32", "or_b32", "xor_b32", "add_u64"):
        found[f"red.async {name}"] = "red", (name,)
    for kind, (_, operations) in OF_MAPS.items():
        for operation in operations:
            found[f"tensor reduction {kind} {operation}"] = "reduced_tile", (kind, operation)
    for part in range(8):
        found[f"bytes of interleaved loads, part {part}"] = "heard", (part,)
    for what, (name, corners, place) in itertools.product((0, 1), (
        ("above", ((1, 0), (0, 0)), (0, 0)), ("below", ((0, 0), (-2, 0)), (0, 3)),
        ("in the first row", ((1, 0), (0, 0)), (0, 1)), ("in the last row", ((0, 0), (-2, 0)), (0, 2)),
        ("far below", ((0, 0), (0, 0)), (0, 5)),
    )):  # fmt: skip
        found[f"im2col {('store', 'add')[what]}, first pixel {name}"] = "first_pixel", (what, corners, place)
    found["lives of mbarriers"] = "lives", ()
    for which, p in enumerate(OF_DESCRIPTORS):
        for what in ("base", "any"):
            found[f"descriptors {what} {p.text.split()[0]} {p.swizzles} {p.turned}"] = "descriptors", (which, what)
    for which, (form, _) in enumerate(PRINTED):
        found[f"printf {form!r}"] = "printed", (which,)
    return found


def said(question: Question, device: str) -> Any:
    """Arrays, or "!" and the error."""
    name, arguments = question
    try:
        return globals()[name](device, *arguments)
    except DeviceError as error:
        return "! " + str(error).splitlines()[0].split("error: ")[-1]
    except Exception as error:
        return f"! {type(error).__name__}: " + " ".join(str(error).split())


def answers(question: Question, device: str) -> tuple[Any, Any]:
    return said(question, "cpu"), said(question, device)


def short(value: Array) -> str:
    if value.dtype.kind == "U" or value.size <= 4:
        return str(value.tolist())
    return f"{value.shape} {value.reshape(-1)[:3].tolist()} ..."


def verdict(ours: Any, theirs: Any) -> tuple[str, str]:
    """A mark, and words."""
    if isinstance(theirs, str):
        if isinstance(ours, str):
            return "=" if "CUDA_ERROR" in theirs else "?", f"card {theirs[:110]} | CPU {ours[:110]}"
        return ("!" if "CUDA_ERROR" in theirs else "?"), f"card {theirs[:200]} | CPU runs"
    if isinstance(ours, str):
        small = "; ".join(f"{name} {short(value)}" for name, value in theirs.items())
        return "-", f"card {small[:160]} | CPU {ours[:160]}"
    lines, same = [], True
    for name, value in theirs.items():
        mine = ours[name]
        if mine.shape == value.shape and mine.tobytes() == value.tobytes():
            if value.size <= 4:
                lines.append(f"{name} {short(value)}")
            continue
        same = False
        if value.dtype.kind == "U" or mine.shape != value.shape:
            lines.append(f"{name}: card {short(value)} | CPU {short(mine)}")
            continue
        a, b = (np.ascontiguousarray(one).reshape(-1).view(np.uint8).reshape(one.size, -1) for one in (mine, value))
        off = (a != b).any(axis=1)
        at = int(off.argmax())
        show = "{:#x}" if value.dtype.kind in "ui" else "{!r}"
        card, cpu = (show.format(one.reshape(-1)[at].item()) for one in (value, mine))
        lines.append(f"{name}: {int(off.sum())} of {value.size} differ, first at {at}: card {card} | CPU {cpu}")
    return "=" if same else "!", "; ".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.ask", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="questions with one of these in their names; all without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--save", type=Path, help="file (.npz) for what was said otherwise")
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="for one question")
    parser.add_argument("--print", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.print is not None:
        printing(asked.device, asked.print)
        return 0
    if asked.device not in loader.devices():
        parser.error(f"{asked.device} is not there; there are: {', '.join(loader.devices())}")
    wanted = lambda name: not asked.words or any(word in name for word in asked.words)  # noqa: E731
    chosen = {name: question for name, question in questions().items() if wanted(name)}
    for made in (cubin, tiles.cubin):
        made()
    counts: dict[str, int] = {}
    kept: dict[str, Any] = {}
    names = {repr(q): name for name, q in chosen.items()}
    ask = functools.partial(answers, device=asked.device)
    for question, found in apart(ask, list(chosen.values()), asked.at_once, asked.limit):
        name = names[repr(question)]
        ours, theirs = found if isinstance(found, tuple) else ("! not asked", found)
        mark, told = verdict(ours, theirs)
        counts[mark] = counts.get(mark, 0) + 1
        print(f"{mark} {name}: {told}", flush=True)
        for who, one in (("card", theirs), ("cpu", ours)) if mark != "=" else ():
            one = {"error": np.array([one])} if isinstance(one, str) else one
            kept |= {f"{name}/{who}/{key}": value for key, value in one.items()}
    if asked.save:
        np.savez_compressed(asked.save, **kept)
    print(f"{len(chosen)} questions: " + ", ".join(f"{n} {mark}" for mark, n in sorted(counts.items())), flush=True)
    return int("!" in counts)


if __name__ == "__main__":
    os._exit(main())  # which waits for no process that the driver does not let go
