"""The Winograd kernels on a GPU: right on the settings of Yan, Wang, Chu 2020 and on random shapes, in every layout,
with every epilogue and schedule, on the caller's stream. compute-sanitizer watches both kernels.

    python -m tests.gpu.test_winograd [NAME=VALUE] [KERNEL ...]    # small layers in all layouts, for compute-sanitizer
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import loader
import turingas
from kernels_sass.conv import Conv2d, code, cost, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.method import METHODS
from kernels_sass.conv.methods import few
from kernels_sass.conv.methods.nhwc import THIN
from kernels_sass.conv.parameters import parameters, variants
from loader import cuda
from loader.cuda import Buffer
from loader.reference.problem import Problem, arrange, relative_error, truth
from loader.validate import LAYERS, layer
from tests.gpu.sanitizer import TOOLS, sanitizer
from turingas.cli import main
from turingas.errors import LaunchError

pytestmark = pytest.mark.gpu

BATCHES = (32, 64, 96, 128)
LAYOUTS = ("CHWN", "NCHW", "NHWC")
BOUND = 1e-6  # relative L2 error against float64
SHAPES = 150  # random ones for each kernel

APART = "nhwc", "few", "small", "fold"  # of few channels or filters, for few images: tested apart
CLUSTERS = APART[2:]
#: Each kernel that a source is, with FFMA or on tensor cores: what Conv2d takes.
KERNELS: dict[str, dict[str, Any]] = {
    " ".join([name, *map(str, one.values())]): {"kernel": name, "schedule": one}
    for name, there in METHODS.items()
    for one in variants(there, {})
    if name not in APART
}
FEW: dict[str, dict[str, Any]] = {name: {"kernel": name, "schedule": {}} for name in APART}


@pytest.fixture(scope="module")
def torch(gpu: cuda.Device) -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return found


@pytest.fixture(params=list(KERNELS))
def source(request: pytest.FixtureRequest, gpu: cuda.Device) -> str:
    name: str = request.param
    try:
        code.choose(code.arch_of(gpu), KERNELS[name]["kernel"])
    except LaunchError as why:
        pytest.skip(str(why))  # Hopper's kernel on another card
    return name


def exact(torch: Any, x: Any, w: Any, pad: int) -> Any:
    """The convolution in float64, N, K, P, Q."""
    return torch.nn.functional.conv2d(x.double(), w.double(), padding=pad)


def to(tensor: Any, layout: str) -> Any:
    """N, C, H, W -> the layout, contiguous."""
    return tensor.permute(*("NCHW".index(axis) for axis in layout)).contiguous()


def back(tensor: Any, layout: str) -> Any:
    return tensor.permute(*(layout.index(axis) for axis in "NCHW"))


def error(found: Any, wanted: Any) -> float:
    """NaN where something was not written."""
    return float((found.double() - wanted).norm() / wanted.norm())


def nan(torch: Any, shape: tuple[int, ...]) -> Any:
    return torch.full(shape, float("nan"), device="cuda")


# ---- right on all layers -----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _setting(torch: Any, name: str) -> tuple[Any, Any, Any]:
    """x, w and the float64 result at the largest batch: smaller ones are its first images."""
    p = layer(name, max(BATCHES))
    random = torch.Generator("cuda").manual_seed(5)
    x, w = (torch.randn(shape, device="cuda", generator=random) for shape in (p.x_shape, p.w_shape))
    wanted = exact(torch, x, w, 1)
    first = truth(x[:1].cpu().numpy(), w.cpu().numpy(), layer(name, 1))
    assert relative_error(wanted[:1].cpu().numpy(), first) < 1e-12  # PyTorch's float64 is one
    return x, w, wanted


@pytest.mark.parametrize(("name", "n"), list(itertools.product(LAYERS, BATCHES)))
def test_setting(name: str, n: int, source: str, torch: Any) -> None:
    x, w, wanted = _setting(torch, name)
    for layout in LAYOUTS:
        with Conv2d(w, layout=layout, **KERNELS[source]) as conv:
            given = to(x[:n], layout)
            out = nan(torch, sizes.shape_of(tuple(given.shape), w.shape[0], 1, layout).y_shape)
            conv(given, out=out)
            off = error(back(out, layout), wanted[:n])
            print(f"{name}N{n:<3} {source:<13} {layout} {off:.1e}")
            assert off <= BOUND, layout


def random_shape(random: np.random.Generator) -> tuple[sizes.Shape, str]:
    """Mostly small and awkward; some with several blocks of each kind."""
    n, c, k = (int(random.choice([1, 2, 3, int(random.integers(1, 70)), 32, 64])) for _ in range(3))
    k = int(random.choice([k, int(random.integers(1, 200))]))
    h, w = (int(random.integers(1, 40)) for _ in range(2))
    pad = int(random.integers(0, 2)) if min(h, w) > 2 else 1
    layout = str(random.choice(LAYOUTS))
    return sizes.Shape(n, c, h, w, k, pad, layout), layout


def test_random_shapes(source: str, torch: Any) -> None:
    random, generator = np.random.default_rng(11), torch.Generator("cuda").manual_seed(6)

    def made(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", generator=generator)

    wrong = []
    for _ in range(SHAPES):
        shape, layout = random_shape(random)
        x, w, b = made(shape.n, shape.c, shape.h, shape.w), made(shape.k, shape.c, 3, 3), made(shape.k)
        wanted = exact(torch, x, w, shape.pad) + b.double()[:, None, None]
        out = nan(torch, shape.y_shape)
        with Conv2d(w, b, shape.pad, layout=layout, **KERNELS[source]) as conv:
            conv(to(x, layout), out=out)
            torch.cuda.synchronize()
        # a sum of few taps may come out far smaller than what the method adds and takes away again
        scale = max(float(wanted.norm()), math.sqrt(9 * shape.c * wanted.numel()))
        off = float((back(out, layout).double() - wanted).norm()) / scale
        if not off <= BOUND:
            wrong.append(f"{shape}: {off:.1e}")
    assert not wrong, "\n".join(wrong)


def test_real_layers_that_fill_no_block(source: str, torch: Any) -> None:
    """The first layer of a network, a stack that doubles its channels, a large odd image."""
    for n, c, size, k in ((8, 3, 224, 64), (5, 96, 55, 200), (1, 64, 301, 72), (33, 130, 7, 70)):
        x, w = torch.randn(n, c, size, size, device="cuda"), torch.randn(k, c, 3, 3, device="cuda")
        wanted = exact(torch, x, w, 1)
        for layout in LAYOUTS:
            with Conv2d(w, layout=layout, **KERNELS[source]) as conv:
                off = error(back(conv(to(x, layout)), layout), wanted)
            assert off <= BOUND, (n, c, size, k, layout)


# ---- epilogue and schedules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epilogues(layout: str, source: str, torch: Any) -> None:
    x, w = torch.randn(33, 24, 13, 10, device="cuda"), torch.randn(80, 24, 3, 3, device="cuda")
    bias, residual = torch.randn(80, device="cuda"), torch.randn(33, 80, 13, 10, device="cuda") * 20
    plain = exact(torch, x, w, 1)
    for b, r, relu in itertools.product((None, bias), (None, residual), (None, "relu")):
        wanted = plain + (0 if b is None else b.double()[:, None, None]) + (0 if r is None else r.double())
        wanted = wanted.relu() if relu else wanted
        given = None if r is None else to(r, layout)
        with Conv2d(w, b, activation=relu, layout=layout, **KERNELS[source]) as conv:
            y = conv(to(x, layout), given)
            assert error(back(y, layout), wanted) <= BOUND, (b is None, r is None, relu)
            if given is not None:  # in place
                conv(to(x, layout), given, out=given)
                assert (given == y).all()
            torch.cuda.synchronize()


SCHEDULES = {
    "YIELD": ("natural", "nvcc8", "cudnn7", "every:3"),
    "LDG_INTERLEAVE": (2, 4, 8),
    "STS_INTERLEAVE": (2, 4, 6),
    "OUTPUT": ("paper", "sts64", "compact"),
    "FILTERS": (32,),
    "HMMA_STALL": (4, 8),
    "FADD_STALL": (2, 4),
    "LANES": ("paper", "tiles", "filters"),
    "LDS_FIRST": (3, 16),
    "LDS_INTERLEAVE": (8,),
    "CHECK": (4, 5),
}
ALONE = {"tf32x3": {"FILTERS", "HMMA_STALL", "FADD_STALL"}, "ffma": {"LANES", "LDS_FIRST", "LDS_INTERLEAVE", "CHECK"}}


def test_every_schedule(source: str, torch: Any) -> None:
    """What the source has of the paper's parameters, and of its own; at least the yield flag."""
    x, w = torch.randn(40, 40, 9, 10, device="cuda"), torch.randn(130, 40, 3, 3, device="cuda")
    kernel, own = KERNELS[source]["kernel"], KERNELS[source]["schedule"]
    wanted, known = exact(torch, x, w, 1), set(parameters(METHODS[kernel]))
    for other in set(ALONE) - set(own.values()):
        known -= ALONE[other]
    tried = [{name: value} for name in SCHEDULES if name in known for value in SCHEDULES[name]]
    if kernel == "direct":  # which has FILTERS alone
        tried = list(blocks(source))
    for one in tried:
        with Conv2d(w, kernel=kernel, schedule={**own, **one}) as conv:
            assert error(conv(x), wanted) <= BOUND, one
            torch.cuda.synchronize()
    assert len(tried) >= (2 if kernel == "direct" else 4), known


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_that_share_channels(layout: str, source: str, torch: Any) -> None:
    """As many as there can be, with every epilogue, on the caller's stream and in a graph; and what is chosen."""
    for n, c, size, k in ((2, 512, 7, 130), (1, 120, 14, 32), (3, 72, 9, 33)):
        x, w = torch.randn(n, c, size, size, device="cuda"), torch.randn(k, c, 3, 3, device="cuda")
        bias, residual = torch.randn(k, device="cuda"), torch.randn(n, k, size, size, device="cuda") * 20
        wanted = (exact(torch, x, w, 1) + bias.double()[:, None, None] + residual.double()).relu()
        method = METHODS[KERNELS[source]["kernel"]]
        ways = cost.ways(sizes.Shape(n, c, size, size, k), [method.kernel(next(iter(method.kernels)))])
        for way, schedule in itertools.product([None, *ways], blocks(source)):
            kernel = {**KERNELS[source], "schedule": {**KERNELS[source]["schedule"], **schedule}}
            with Conv2d(w, bias, 1, "relu", layout, splits=way and way.splits, **kernel) as conv:
                given = to(residual, layout).clone()
                y = conv(to(x, layout), given)
                assert error(back(y, layout), wanted) <= BOUND, (way, schedule)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    conv(to(x, layout), given, out=given)
                graph.replay()
                torch.cuda.synchronize()
                assert (given == y).all(), (way, schedule)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_few_channels_and_few_filters(layout: str, torch: Any, gpu: cuda.Device) -> None:
    """What Conv2d takes by itself where a kernel without Winograd's method may be faster: some of it is."""
    taken = set()
    for n, c, size, k in ((8, 3, 128, 64), (8, 1, 100, 70), (4, 7, 33, 30), (32, 96, 64, 4), (3, 320, 24, 3),
                          (9, 40, 61, 8), (2, 512, 64, 8)):  # fmt: skip
        x, w = torch.randn(n, c, size, size + 3, device="cuda"), torch.randn(k, c, 3, 3, device="cuda")
        bias, residual = torch.randn(k, device="cuda"), torch.randn(n, k, size, size + 3, device="cuda") * 5
        wanted = (exact(torch, x, w, 1) + bias.double()[:, None, None] + residual.double()).relu()
        with Conv2d(w, bias, 1, "relu", layout) as conv:
            given, added = to(x, layout), to(residual, layout)
            y = conv(given, added)
            assert error(back(y, layout), wanted) <= BOUND, (n, c, size, k)
            assert conv(given, added, out=added) is added and torch.equal(added, y)
            able_here = tuple(conv._places[0].kernels)
            plans = [plan for plan in conv._plans.values() if not plan.beside]
            parts = [part for plan in plans for _, part in plan.shape.parts()]
            taken |= {cost.split(part, str(gpu), able_here).kernel.name for part in parts}
    of = {"NHWC": {"nhwc3", "nhwc1", "few4"}, "NCHW": {"direct8"}, "CHWN": {"direct8", "direct4"}}
    able = {"NHWC": ("nhwc", "few", *CLUSTERS), "NCHW": ("direct", "few", *CLUSTERS), "CHWN": ("direct",)}
    there = {kernel for kernel in taken if not kernel.startswith(("winograd", "add_splits"))}
    assert all(kernel.startswith(able[layout]) for kernel in there)
    assert there >= of[layout] if code.arch_of(gpu) in METHODS["hopper"].archs else not there


@pytest.mark.parametrize("channels", THIN)
def test_few_channels_in_nhwc(channels: int, torch: Any, gpu: cuda.Device) -> None:
    """By name: odd sizes and large ones, with every epilogue, always with the same bits."""
    if code.arch_of(gpu) not in METHODS["nhwc"].archs:
        pytest.skip(f"nhwc.sass is not for {gpu.arch}")
    for n, h, w, k, pad in ((3, 35, 67, 70, 1), (1, 3, 3, 33, 0), (8, 224, 224, 64, 1), (2, 18, 33, 320, 0)):
        x, weight = torch.randn(n, channels, h, w, device="cuda"), torch.randn(k, channels, 3, 3, device="cuda")
        plain = exact(torch, x, weight, pad)
        bias, residual = torch.randn(k, device="cuda"), torch.randn(plain.shape, device="cuda") * 3
        given, added = to(x, "NHWC"), to(residual, "NHWC")
        for b, r, relu in itertools.product((None, bias), (None, residual), (False, True)):
            wanted = plain + (0 if b is None else b.double()[:, None, None]) + (0 if r is None else r.double())
            with Conv2d(weight, b, pad, "relu" if relu else None, "NHWC", kernel="nhwc") as conv:
                out = nan(torch, tuple(added.shape))
                y = conv(given, None if r is None else added, out=out)
                assert error(back(y, "NHWC"), wanted.relu() if relu else wanted) <= BOUND, (n, h, w, k, b, r, relu)
                first = y.clone()
                for _ in range(50):
                    conv(given, None if r is None else added, out=out)
                assert torch.equal(out, first)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_blocks(layout: str, torch: Any, gpu: cuda.Device) -> None:
    """By name: all kernels, with each number of blocks in a cluster, odd sizes and large ones, always with the same
    bits, behind each other in a stream."""
    if code.arch_of(gpu) not in METHODS["small"].archs:
        pytest.skip(f"small.sass is not for {gpu.arch}")
    kinds = [(method, name, of) for method in CLUSTERS for name, of in METHODS[method].kernels.items()]
    for method, name, of in kinds:
        fold = method == "fold"
        channels = (4, 5, 3) if fold else (80, 512, 24)
        sizes = (3, channels[0], 35, 67, 70, 1), (1, channels[1], 14, 14, 512, 1), (2, channels[2], 9, 8, 5, 0)
        for (n, c, h, w, k, pad), splits in itertools.product(sizes, (1,) if fold else (1, 2, 4, 8)):
            if -(-c // 8) % splits or -(-c // 16) < splits:
                continue
            x, weight = torch.randn(n, c, h, w, device="cuda"), torch.randn(k, c, 3, 3, device="cuda")
            plain = exact(torch, x, weight, pad)
            bias, residual = torch.randn(k, device="cuda"), torch.randn(plain.shape, device="cuda") * 3
            given, added = to(x, layout), to(residual, layout)
            for b, r, relu in ((None, None, False), (bias, residual, True)):
                wanted = plain + (0 if b is None else b.double()[:, None, None]) + (0 if r is None else r.double())
                kernel = {"kernel": method, "schedule": dict(of.defines), "splits": splits}
                with Conv2d(weight, b, pad, "relu" if relu else None, layout, **kernel) as conv:
                    out = nan(torch, tuple(added.shape))
                    y = conv(given, None if r is None else added, out=out)
                    assert error(back(y, layout), wanted.relu() if relu else wanted) <= BOUND / 2, (name, n, c, splits)
                    first = y.clone()
                    for _ in range(20):
                        conv(given, None if r is None else added, out=out)
                    assert torch.equal(out, first)


@pytest.mark.parametrize("filters", range(1, 9))
def test_few_filters(filters: int, torch: Any, gpu: cuda.Device) -> None:
    """By name: odd sizes and large ones, in all layouts, with every epilogue, always with the same bits."""
    if code.arch_of(gpu) not in METHODS["few"].archs:
        pytest.skip(f"few.sass is not for {gpu.arch}")
    sizes = (3, 13, 35, 67, 1, 1), (1, 1, 9, 8, 0, 1), (32, 64, 128, 128, 1, 1), (2, 96, 18, 33, 0, 4)
    for n, c, h, w, pad, splits in sizes:
        x, weight = torch.randn(n, c, h, w, device="cuda"), torch.randn(filters, c, 3, 3, device="cuda")
        plain = exact(torch, x, weight, pad)
        bias, residual = torch.randn(filters, device="cuda"), torch.randn(plain.shape, device="cuda") * 3
        for layout, b, r, relu in itertools.product(LAYOUTS, (None, bias), (None, residual), (False, True)):
            wanted = plain + (0 if b is None else b.double()[:, None, None]) + (0 if r is None else r.double())
            given, added = to(x, layout), to(residual, layout)
            kernel = {"kernel": "few", "splits": splits}
            with Conv2d(weight, b, pad, "relu" if relu else None, layout, **kernel) as conv:
                out = nan(torch, tuple(added.shape))
                y = conv(given, None if r is None else added, out=out)
                assert error(back(y, layout), wanted.relu() if relu else wanted) <= BOUND, (n, c, h, layout, relu)
                first = y.clone()
                for _ in range(20):
                    conv(given, None if r is None else added, out=out)
                assert torch.equal(out, first)


def test_depbar_holds_after_four_cycles(torch: Any, gpu: cuda.Device) -> None:
    """What docs/latency.md says of it: few.sass is right if its DEPBARs stall 4 cycles, and not with 1, 2 or 3."""
    if gpu.arch != "sm_90":
        pytest.skip(f"nobody has looked at {gpu.arch} yet")
    text = turingas.disassemble(code.Kernels.of("sm_90", "few", {"FILTERS": 4}).cubin)
    wrong, stream = dict.fromkeys((1, 2, 3, 4), 0), torch.cuda.current_stream()
    x, w = torch.randn(8, 320, 64, 64, device="cuda"), torch.randn(4, 320, 3, 3, device="cuda")
    u = torch.empty(sizes.filter_floats(320, 4), device="cuda")
    shape = sizes.Shape(8, 320, 64, 64, 4, kernel=METHODS["few"].kernel("few4"))
    wanted = exact(torch, x, w, 1)
    for stall in wrong:
        changed, count = re.subn(r"(?m)(:\S:)4(  DEPBAR\.LE)", rf"\g<1>{stall}\2", text)
        assert count > 3
        module = loader.load(turingas.assemble(changed, "sm_90"), "cuda:0")
        launch.transform(module, w, u, 320, 4, stream=stream)
        for _ in range(40):
            y = nan(torch, shape.y_shape)
            launch.convolve(module, shape, x, u, y, stream=stream)
            torch.cuda.synchronize()
            wrong[stall] += not error(y, wanted) <= BOUND
    print(f"DEPBAR, stall: wrong of 40 runs: {wrong}")
    assert wrong[4] == 0 and wrong[1] and wrong[2] and wrong[3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_times(layout: str, source: str, torch: Any) -> None:
    """What depends on how warps meet shows, or hangs, in one launch of thousands: many steps in each block of a full
    GPU, and many jobs of one step, always with the same bits."""
    for n, c, size, k in ((66, 256, 16, 64), (40, 8, 28, 96)):
        x, w = to(torch.randn(n, c, size, size, device="cuda"), layout), torch.randn(k, c, 3, 3, device="cuda")
        for schedule in blocks(source):
            kernel = {**KERNELS[source], "schedule": {**KERNELS[source]["schedule"], **schedule}}
            with Conv2d(w, layout=layout, splits=1, **kernel) as conv:
                first, y = conv(x).clone(), conv(x).clone()
                assert error(back(first, layout), exact(torch, back(x, layout), w, 1)) <= BOUND
                for _ in range(10):
                    for _ in range(100):
                        conv(x, out=y)
                    assert torch.equal(y, first), schedule
                    y.zero_()


def test_kernels_that_begin_before_others_have_ended(source: str, torch: Any) -> None:
    """A chain in which each kernel needs what the one before it wrote, and overwrites what an earlier one read: ours
    among themselves and between PyTorch's, some of which share channels, on a stream and in a graph."""
    layers = [Conv2d(torch.randn(64, 64, 3, 3, device="cuda") / 24, activation="relu", splits=n, **KERNELS[source])
              for n in (1, 4, 2, 8)]  # fmt: skip
    given = torch.randn(2, 64, 14, 14, device="cuda")
    a, b = given.clone(), torch.empty_like(given)

    def chain(slow: bool) -> None:
        nonlocal a, b
        for n in range(24):
            layers[n % 4](a, residual=a, out=b)
            if slow:
                torch.cuda.synchronize()
            if n % 5 == 4:
                b.mul_(0.5)
            a, b = b, a

    chain(True)
    wanted = a.clone()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    for _ in range(50):
        a.copy_(given)
        chain(False)
        assert torch.equal(a, wanted)
    with torch.cuda.stream(stream):
        a.copy_(given)
        chain(False)
        stream.synchronize()
        assert torch.equal(a, wanted)
    with torch.cuda.graph(graph):
        a.copy_(given)
        chain(False)
    for _ in range(50):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(a, wanted)


# ---- numbers -----------------------------------------------------------------------------------------------------


def test_integers_are_exact(source: str, torch: Any) -> None:
    """Where all sums have a place in 24 bits."""
    random = torch.Generator("cuda").manual_seed(7)
    x = torch.randint(-200, 201, (2, 16, 9, 8), device="cuda", generator=random).float()
    w = torch.randint(-20, 21, (70, 16, 3, 3), device="cuda", generator=random).float()
    with Conv2d(w, **KERNELS[source]) as conv:
        assert (conv(x).double() == exact(torch, x, w, 1)).all()


def test_powers_of_two_change_no_digit(source: str, torch: Any) -> None:
    random = torch.Generator("cuda").manual_seed(8)
    x, w = (torch.randn(shape, device="cuda", generator=random) for shape in ((2, 24, 9, 8), (70, 24, 3, 3)))
    with Conv2d(w, **KERNELS[source]) as conv:
        y = conv(x).double()
        for power in (60, -80):
            assert (conv(x * 2.0**power).double() == y * 2.0**power).all(), power
    with Conv2d(w * 2.0**50, **KERNELS[source]) as conv:
        assert (conv(x * 2.0**50).double() == y * 2.0**100).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number(value: float, source: str, torch: Any) -> None:
    """Of x: the outputs that see it are none, tiles that do not are as before. Of a filter: all its outputs."""
    x, w = torch.randn(1, 9, 8, 8, device="cuda"), torch.randn(3, 9, 3, 3, device="cuda")
    with Conv2d(w, **KERNELS[source]) as conv:
        before = conv(x)
        spoiled = x.clone()
        spoiled[0, 4, 2, 3] = value
        y = conv(spoiled)
    assert not y[:, :, 1:4, 2:5].isfinite().any()
    assert (y == before)[:, :, 4:].all() and (y == before)[:, :, :, 6:].all()
    for r, s in ((0, 0), (0, 1), (1, 1)):
        spoiled = w.clone()
        spoiled[1, 4, r, s] = value
        with Conv2d(spoiled, **KERNELS[source]) as conv:
            y = conv(x)
        assert not y[:, 1].isfinite().any() and (y == before)[:, ::2].all()


# ---- the caller's stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_on_a_side_stream(layout: str, source: str, torch: Any) -> None:
    """x is written on the stream just before, y read just after; the default stream is not waited for."""
    x, w = torch.randn(16, 32, 14, 14, device="cuda"), torch.randn(64, 32, 3, 3, device="cuda")
    wanted = exact(torch, x, w, 1)
    with Conv2d(w, layout=layout, **KERNELS[source]) as conv:
        given, held = to(x, layout), torch.zeros_like(to(x, layout))
        conv(given)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            held.copy_(given)
            y = conv(held)
            held.zero_()
            total = y.double()
        assert not side.query()  # the call did not wait
        side.synchronize()
        assert error(back(total, layout), wanted) <= BOUND


def test_torch_graph(source: str, torch: Any) -> None:
    x, w = torch.randn(8, 16, 12, 12, device="cuda"), torch.randn(64, 16, 3, 3, device="cuda")
    with Conv2d(w, **KERNELS[source]) as conv:
        out = conv(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            conv(x, out=out)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert error(out, exact(torch, x, w, 1)) <= BOUND


def test_cupy_on_a_side_stream(source: str, gpu: cuda.Device) -> None:
    cupy = pytest.importorskip("cupy")
    random = np.random.default_rng(3)
    x, w = random.standard_normal((5, 20, 9, 9), np.float32), random.standard_normal((33, 20, 3, 3), np.float32)
    bias = random.standard_normal(33, np.float32)
    wanted = truth(x, w, Problem(5, 20, 9, 9, 33, 3, 3, 1, 1)) + bias[:, None, None]
    with cupy.cuda.Stream(non_blocking=True) as stream:
        conv, given = Conv2d(cupy.asarray(w), cupy.asarray(bias), **KERNELS[source]), cupy.asarray(x)
        y = conv(given)
        given.fill(0)
        assert isinstance(y, cupy.ndarray)
        stream.synchronize()
        assert relative_error(cupy.asnumpy(y), wanted) <= BOUND


def test_numpy_and_buffers(source: str, gpu: cuda.Device) -> None:
    for device in ("cuda:0", None):
        check(Problem(3, 9, 6, 7, 67, 3, 3, 1, 1), source, "NHWC", device)


def test_the_source_that_is_chosen(gpu: cuda.Device) -> None:
    chosen = code.choose(code.arch_of(gpu))
    assert chosen is (METHODS["hopper"] if gpu.arch == "sm_90" else METHODS["paper"])


# ---- compute-sanitizer -------------------------------------------------------------------------------------------

#: And how many blocks share the channels of a job.
SMALL = ((Problem(3, 9, 6, 7, 67, 3, 3, 1, 1), 1), (Problem(34, 24, 5, 5, 128, 3, 3, 1, 0), 1),
         (Problem(3, 30, 4, 6, 68, 3, 3, 1, 1), 4))  # fmt: skip
NARROW: dict[str, Any] = {"FILTERS": 32}


def check(
    p: Problem, source: str, layout: str, device: str | None = "cuda:0", splits: int | None = None, **schedule: Any
) -> None:
    """A layer with bias, residual and ReLU: numpy arrays for a layer on a GPU, Buffers where device is None."""
    random = np.random.default_rng(9)
    shapes = p.x_shape, p.w_shape, (p.k,), p.y_shape
    x, w, bias, residual = (random.standard_normal(shape, np.float32) for shape in shapes)
    wanted = np.maximum(0, truth(x, w, p) + bias[:, None, None] + residual)
    given = [arrange(one, "NCHW", layout) for one in (x, residual)]
    own = (KERNELS | FEW)[source]
    kernel = {**own, "schedule": {**own["schedule"], **schedule}, "splits": splits}
    with Conv2d(w, bias, p.padding, "relu", layout, device, **kernel) as conv:
        y = conv(*given) if device else conv(*map(Buffer.of, given)).numpy()
    off = relative_error(arrange(y, layout, "NCHW"), wanted)
    print(f"{source} {layout} N={p.n} {off:.1e}")
    assert off <= BOUND, (source, layout, p)


def small(sources: list[str]) -> None:
    """Layers that fill no block, in all layouts. ``sources``: names of KERNELS and FEW."""
    for filters, layout in itertools.product(few.FEW, LAYOUTS) if "few" in sources else ():
        check(Problem(2, 32, 19, 17, filters, 3, 3, 1, 1), "few", layout, splits=4 if filters == 4 else 1)
    clusters = [(name, one.defines) for name in CLUSTERS if name in sources for one in METHODS[name].kernels.values()]
    for (name, given), layout in itertools.product(clusters, LAYOUTS):
        p = Problem(2, 4 if name == "fold" else 96, 11, 17, 67, 3, 3, 1, 1)
        check(p, name, layout, splits=1 if name == "fold" or layout == "CHWN" else 4, **given)
    for channels in THIN if "nhwc" in sources else ():
        check(Problem(2, channels, 19, 37, 67, 3, 3, 1, channels % 2), "nhwc", "NHWC")
    others = [name for name in sources if name in KERNELS]
    for name, layout, (p, splits) in itertools.product(others, LAYOUTS, SMALL):
        for schedule in blocks(name):
            check(p, name, layout, splits=splits, **schedule)


def blocks(source: str) -> tuple[dict[str, Any], ...]:
    """Schedules for each number of filters that a block of the kernel can have."""
    if source == "direct":
        return {"FILTERS": 8}, {"FILTERS": 4}
    return ({"FILTERS": 64}, NARROW) if "tf32x3" in source else ({},)


#: What tools need to know: docs/winograd.md, h. Parameters of the sources that have them.
TOLD = {"racecheck": ["ARRIVE=lanes", "MEET=mbarriers"], "synccheck": ["MEET=mbarriers"]}


@pytest.fixture(scope="module")
def sanitizers(gpu: cuda.Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """compute-sanitizer with each tool, all at once; what they print goes to files."""
    found = sanitizer()
    folder, running = tmp_path_factory.mktemp("sanitizer"), {}
    for tool in TOOLS:
        command = [found, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tests.gpu.test_winograd"]
        with (folder / tool).open("w") as output:
            words = [*command, *TOLD.get(tool, ()), *available(gpu)]
            done = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        running[tool] = (done, folder / tool)
    yield running
    for done, _ in running.values():
        if done.poll() is None:
            done.kill()


def available(gpu: cuda.Device) -> list[str]:
    """The kernels that this GPU runs."""
    arch = code.arch_of(gpu)
    of = {name: METHODS[one["kernel"]] for name, one in (KERNELS | FEW).items()}
    return [name for name, one in of.items() if arch in one.archs]


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer(tool: str, sanitizers: dict[str, Any], gpu: cuda.Device) -> None:
    done, path = sanitizers[tool]
    code, printed = done.wait(timeout=300), path.read_text()
    assert code == 0, printed[-6000:]
    lines = printed.splitlines()
    for source in available(gpu):
        own = {"nhwc": len(THIN), "few": len(few.FEW) * len(LAYOUTS),
               **{name: len(METHODS[name].kernels) * len(LAYOUTS) for name in CLUSTERS}}  # fmt: skip
        wanted = own[source] if source in own else len(LAYOUTS) * len(SMALL) * len(blocks(source))
        assert sum(line.startswith(f"{source} ") for line in lines) == wanted
    assert "SUMMARY: 0 " in printed, printed[-6000:]  # errors, or hazards


# ---- turingas bench ----------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_bench(torch: Any, tmp_path: Path) -> None:
    """One setting: everybody that can be measured is, in a graph (but cuBLAS); float32 is float32, and TF32 is not."""
    path = tmp_path / "found.json"
    words = ["winograd", "--layer", "Conv5", "--batch", "32", "--runs", "20", "--json", str(path)]
    done = CliRunner().invoke(main, ["bench", *words])
    print(done.output)
    assert done.exit_code == 0, done.output
    entry = json.loads(path.read_text())["settings"]["Conv5N32"]
    rows = {row["name"]: row for row in entry["rows"]}
    assert {name for name, row in rows.items() if row.get("how", "graph") != "graph"} <= {"reference im2col"}
    for layout in ("NCHW", "NHWC"):
        assert rows[f"PyTorch fp32 {layout}"]["error"] < 2e-5 < 1e-4 < rows[f"PyTorch tf32 {layout}"]["error"] < 1e-3
        assert rows[f"PyTorch fp16 {layout}"]["error"] < 2e-3
    assert rows["cuDNN WINOGRAD_NONFUSED NCHW"]["status"] == "ok"
    refused = {name for name, row in rows.items() if name.startswith(("ours ", "reference ")) and row["status"] != "ok"}
    assert all(name.startswith("reference memory_efficient_single") for name in refused)  # for one channel
    assert entry["verdict"]["rival"].startswith(("cuDNN ", "PyTorch fp32 "))
    assert entry["state"]["during"]["sm_mhz"] > 500


if __name__ == "__main__":
    kernels = [word for word in sys.argv[1:] if "=" not in word] or available(cuda.device(0))
    for name, value in (word.split("=") for word in sys.argv[1:] if "=" in word):
        for one in ((KERNELS | FEW)[kernel] for kernel in kernels):
            if name in parameters(METHODS[one["kernel"]]):
                one["schedule"] = {**one["schedule"], name: value}
    small(kernels)
