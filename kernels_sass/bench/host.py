"""`turingas bench host`: what a queued call costs the host: of Conv2d, Linear and the loader, beside PyTorch and the
driver.

The layer is so small that the GPU waits for the host. All ways of a setting take turns, in blocks of calls between
which the GPU is waited for; the time is the wall clock's, from the first call of a block to the last one's return.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass import conv
from kernels_sass.bench import calls, options
from kernels_sass.bench.ours import dated
from kernels_sass.conv import Conv2d
from kernels_sass.conv.methods import hgmma
from loader import Given
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench, Option
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer, Device
from loader.cuda.prepared import Area, configuration
from loader.reference.problem import Problem, arrange, relative_error, truth

TINY = Problem(1, 16, 4, 4, 16, 3, 3, 1, 1)
LAYOUTS = tuple(reversed(options.LAYOUTS))
EPILOGUES = {"": (), "bias": ("bias",), "bias, residual": ("bias", "residual")}
BLOCK = 100  # calls between two waits, fewer than the driver queues before it waits itself
BOUND = 1e-5  # of the relative error; PyTorch's too
OURS, OUT, BUFFERS = "Conv2d", "Conv2d, out=", "Conv2d, Buffers, out="
SAME, ALONE = "PyTorch", "PyTorch, convolution alone"
LINEAR, FUNCTION, GEMM = "Linear", "linear", "gemm, B prepared"
MODULE, FUNCTIONAL = "torch.nn.Linear", "functional.linear"
EMPTY = ".kernel empty\n<params>\na, 8\nb, 8\nn, 4\n</params>\n--:-:-:-:5 EXIT;\n"
WITHOUT = "without one, `turingas bench host --show` prints the results that are kept"

Ways = dict[str, Callable[[], Any]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for: calls of each way, and the seed of their order."""

    calls: int = 2000
    seed: int = 0
    seconds: float = math.inf


@dataclasses.dataclass(frozen=True)
class Setting:
    """A layer: its layout, how many kernels a call of it queues, what is added, and the kernel that is asked for: None,
    then it is one of Winograd's."""

    layout: str
    kernels: int
    added: tuple[str, ...]
    kernel: str | None = None


@dataclasses.dataclass(frozen=True)
class Product:
    """A linear layer: the shape of x, how many numbers it makes of a row, and the activation behind it."""

    x: tuple[int, ...]
    k: int
    activation: str = "none"


#: two kernels: parts of x and the product; three where blocks share a row
PRODUCTS = {
    "Linear, 2 kernels": Product((4, 64), 64), "Linear, 2 kernels, x of 3 dimensions": Product((2, 2, 64), 64),
    "Linear, 2 kernels, ReLU": Product((4, 64), 64, "relu"), "Linear, 2 kernels, GELU": Product((4, 64), 64, "gelu"),
    "Linear, 3 kernels": Product((4, 4096), 64), "Linear, 3 kernels, GELU": Product((4, 4096), 64, "gelu"),
}  # fmt: skip


def settings(by_products: bool, linear: bool = False) -> dict[str, Setting | Product | None]:
    """By name; None: launches of the loader. ``by_products``: with layers by HGMMA too, of which a second kernel brings
    x into order where channels are not innermost; ``linear``: and with linear layers, which are by HGMMA alone."""
    made: dict[str, Setting | Product | None] = {"launch": None, **(PRODUCTS if by_products and linear else {})}
    every = [(layout, kernels, None) for kernels in (1, 2) for layout in LAYOUTS]
    for layout, kernels, kernel in every + [(one, 1 + (one != "NHWC"), hgmma.NAME) for one in LAYOUTS if by_products]:
        for name, added in EPILOGUES.items():
            words = [layout, f"{kernels} kernel" + "s" * (kernels > 1), *filter(None, [kernel, name])]
            made[", ".join(words)] = Setting(layout, kernels, added, kernel)
    return made


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    if path is None and asked == Asked(seconds=asked.seconds):
        path = results.default_path("host", gpu.arch)
    facts = dated("bench host", gpu, [conv.choose(conv.arch_of(gpu)).name]) | {"host": host()}
    file = results.Results(path, facts, dataclasses.asdict(asked))

    def measured(_: str, setting: Setting | Product | None, step: Callable[[float], None]) -> results.Json:
        with calls.inference(gpu):
            if isinstance(setting, Product):
                ways, outputs, exact = linears(setting, str(gpu))
            else:
                ways, outputs, exact = launches(gpu) if setting is None else layers(setting, gpu)
            row: results.Json = {"status": "ok", "us": {}, "low": {}, "high": {}}
            for name, way in ways.items():
                error = relative_error(outputs[name](way()), exact) if name in outputs else 0.0
                if not error <= BOUND:
                    row["status"] = f"wrong: {name} has a relative L2 error of {error:.1e} against float64"
                    return row
            for name, times in alternate(ways, gpu, asked, step).items():
                low, middle, high = (round(us, 2) for us in statistics.quantiles(times, n=4, method="inclusive"))
                row["us"][name], row["low"][name], row["high"][name] = middle, low, high
            return row | {"state": measure.state(gpu)}

    wanted = settings(gpu.runs(hgmma.ARCH), measure.torch() is not None)
    return file.fill(wanted, asked.seconds, tell, measured, summary, lambda row: _brief(row))


def host() -> results.Json:
    """The processor and the Python that the time is spent in."""
    found = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found["processor"] = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    try:
        found["cuda-python"] = importlib.metadata.version("cuda-bindings")
    except importlib.metadata.PackageNotFoundError:
        found["cuda-python"] = ""
    return found


# ---- what is called ----------------------------------------------------------------------------------------------


def launches(gpu: Device) -> tuple[Ways, Mapping[str, Any], Any]:
    """Of an empty kernel with two arrays and a number, and of the driver's function alone."""
    kernel: Any = loader.load(turingas.assemble(EMPTY, arch=conv.arch_of(gpu)), str(gpu)).kernel()
    a, b = Buffer(64, np.float32, gpu), Buffer(64, np.float32, gpu)
    queue, area = kernel.module.queue([kernel.prepare(1, 32, Given(0), Given(1), 5)]), Area(kernel.params, 20)
    config, driver = configuration(gpu, (1, 1, 1, 32, 1, 1, 0)), gpu.driver
    ways: Ways = {"launch, Buffers": lambda: kernel.launch(1, 32, a, b, 5)}
    if library := measure.torch():
        x, y = library.zeros(64, device=str(gpu)), library.zeros(64, device=str(gpu))
        ways["launch, PyTorch"] = lambda: kernel.launch(1, 32, x, y, 5)
    ways["prepared launch, addresses"] = lambda: queue(0, a.address, b.address)
    ways["cuLaunchKernelEx"] = lambda: driver.cuLaunchKernelEx(config, kernel.handle, area.table, 0)
    return ways, {}, None


def layers(setting: Setting, gpu: Device) -> tuple[Ways, Mapping[str, Any], Any]:
    """Calls of a layer; of PyTorch the same with its operators, and the convolution without anything added. And what
    makes a numpy array of each one's output, and what it should be, as N, K, P, Q."""
    random, layout, p = np.random.default_rng(0), setting.layout, TINY
    x, w, bias, residual = (random.standard_normal(shape, np.float32)
                            for shape in (p.x_shape, p.w_shape, (p.k,), p.y_shape))  # fmt: skip
    exact = truth(x, w, p)
    exact = exact + bias[:, None, None] if "bias" in setting.added else exact
    exact = exact + residual if "residual" in setting.added else exact
    added = "residual" in setting.added

    def laid(array: Any) -> Buffer:
        return Buffer.of(arrange(array, "NCHW", layout), gpu)

    splits = setting.kernels if setting.kernel is None else None
    layer = Conv2d(w, bias if "bias" in setting.added else None, layout=layout, device=str(gpu), kernel=setting.kernel,
                   splits=splits)  # fmt: skip
    here, more, out = laid(x), laid(residual) if added else None, laid(residual)
    ways: Ways = {BUFFERS: lambda: layer(here, more, out)}
    outputs: dict[str, Any] = {BUFFERS: lambda y: arrange(y.numpy(), layout, "NCHW")}
    if library := measure.torch():
        device, conv2d = str(gpu), library.nn.functional.conv2d
        axes = [layout.index(axis) for axis in "NCHW"]
        tx, tout = (library.as_tensor(one, device=device) for one in (here, out))
        tmore = None if more is None else library.as_tensor(more, device=device)
        ways = {OURS: lambda: layer(tx, tmore), OUT: lambda: layer(tx, tmore, tout), **ways}
        outputs[OURS] = outputs[OUT] = lambda y: y.permute(*axes).cpu().numpy()
        if layout == "CHWN":  # not one of PyTorch's: it has contiguous tensors then
            px, pmore = (library.from_numpy(one).to(device) for one in (x, residual))
        else:
            px, pmore = tx.permute(*axes), None if tmore is None else tmore.permute(*axes)
        pw = library.from_numpy(w).to(device)
        pb = library.from_numpy(bias).to(device) if "bias" in setting.added else None
        if layout == "NHWC":
            pw = pw.contiguous(memory_format=library.channels_last)
        if added:
            ways[SAME] = lambda: conv2d(px, pw, pb, 1, 1).add_(pmore)
        else:
            ways[SAME] = lambda: conv2d(px, pw, pb, 1, 1)
        outputs[SAME] = lambda y: y.cpu().numpy()
        ways[ALONE] = lambda: conv2d(px, pw, None, 1, 1)
    return ways, outputs, exact


def linears(setting: Product, device: str) -> tuple[Ways, Mapping[str, Any], Any]:
    """Calls of a linear layer with bias, on PyTorch's tensors, and of PyTorch's own with the activation behind it. As
    ``layers`` gives them."""
    import torch

    from kernels_sass.gemm import gemm, prepare
    from kernels_sass.torch import Linear, linear
    from kernels_sass.torch.product import ACTIVATIONS

    random, c, k, name = np.random.default_rng(0), setting.x[-1], setting.k, setting.activation
    x, w, bias = (torch.from_numpy(random.standard_normal(shape, np.float32)) for shape in (setting.x, (k, c), (k,)))
    functional, act = torch.nn.functional.linear, ACTIVATIONS[name]
    exact = act(functional(x.double(), w.double(), bias.double())).numpy()
    x, w, bias = (one.to(device) for one in (x, w, bias))
    ours, theirs = Linear(c, k, device="meta", activation=name), torch.nn.Linear(c, k, device="meta")
    for layer in (ours, theirs):
        layer.weight, layer.bias = (torch.nn.Parameter(one, False) for one in (w, bias))
    weight, added, made, plain = ours.weight, ours.bias, prepare(w, transpose_b=True), name == "none"
    ways: Ways = {
        LINEAR: lambda: ours(x),
        FUNCTION: lambda: linear(x, weight, added, name),
        GEMM: lambda: gemm(x, made, bias=added, activation=None if plain else name),
        MODULE: (lambda: theirs(x)) if plain else lambda: act(theirs(x)),
        FUNCTIONAL: (lambda: functional(x, weight, added)) if plain else lambda: act(functional(x, weight, added)),
    }
    return ways, dict.fromkeys(ways, lambda y: y.cpu().numpy()), exact


# ---- the time ----------------------------------------------------------------------------------------------------


def alternate(
    ways: Ways, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> dict[str, list[float]]:
    """Microseconds a call, of each block of calls; in each round all take turns in another order."""
    random, names = np.random.default_rng(asked.seed), list(ways)
    times: dict[str, list[float]] = {name: [] for name in names}
    rounds = max(2, asked.calls // BLOCK)
    for number in range(-1, rounds):  # one to warm up
        for turn in random.permutation(len(names)):
            way = ways[names[turn]]
            gpu.synchronize()
            start = time.perf_counter()
            for _ in range(BLOCK):
                way()
            spent = time.perf_counter() - start
            if number >= 0:
                times[names[turn]].append(1e6 * spent / BLOCK)
        step((number + 1) / rounds)
    gpu.synchronize()
    return times


def summary(found: results.Json) -> results.Json:
    """By the number of kernels: the range of our calls and of PyTorch's, and the largest ratio of ours to the same by
    PyTorch, and to its convolution alone. And the loader's launches."""
    made: results.Json = {}
    if (row := found.get("launch")) and row["status"] == "ok":
        made["launch"] = row["us"]
    for kernels in ("1 kernel", "2 kernels"):
        rows = [row["us"] for name, row in found.items()
                if kernels in name and name not in PRODUCTS and row["status"] == "ok"]  # fmt: skip
        both = [row for row in rows if OURS in row]
        of = made[kernels] = {name: [min(row[name] for row in rows), max(row[name] for row in rows)]
                              for name in (rows[0] if rows else ())}  # fmt: skip
        for name in (SAME, ALONE) if both else ():
            of[f"over {name}"] = round(max(row[OURS] / row[name] for row in both), 2)
    if rows := [row["us"] for name, row in found.items() if name in PRODUCTS and row["status"] == "ok"]:
        made["Linear"] = {name: [min(row[name] for row in rows), max(row[name] for row in rows)] for name in rows[0]}
        for ours, theirs in ((LINEAR, MODULE), (FUNCTION, FUNCTIONAL)):
            made["Linear"][f"{ours} over {theirs}"] = round(max(row[ours] / row[theirs] for row in rows), 2)
    return {name: one for name, one in made.items() if one}


def _brief(row: results.Json) -> str:
    return ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items()) or str(row["status"])


def failures(found: results.Json) -> list[str]:
    return [f"{name}: {row['status']}" for name, row in found["settings"].items() if row["status"] != "ok"]


def show(found: results.Json) -> None:
    """Print the table."""
    of = found["host"]
    what = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}; {of['processor']}, Python {of['python']}"
    names = (OURS, OUT, BUFFERS, SAME, ALONE)
    made = results.table(what, "microseconds a call", *names, f"{OURS} / {ALONE}", caption="medians of wall clock")
    for name, row in found["settings"].items():
        if name in PRODUCTS or name == "launch" and row["status"] == "ok":
            continue
        us = row["us"]
        ratio = f"{us[OURS] / us[ALONE]:.2f}" if OURS in us else "-"
        cells = [f"{us[one]:.1f}" if one in us else "-" for one in names]
        made.add_row(name, *cells, ratio)
    results.console().print(made)
    if linear := {name: row["us"] for name, row in found["settings"].items() if name in PRODUCTS}:
        names = (LINEAR, FUNCTION, GEMM, MODULE, FUNCTIONAL)
        made = results.table("linear layers", "microseconds a call", *names, f"{LINEAR} / {MODULE}")
        for name, us in linear.items():
            cells = [f"{us[one]:.1f}" if one in us else "-" for one in names]
            made.add_row(name, *cells, f"{us[LINEAR] / us[MODULE]:.2f}" if us else "-")
        results.console().print(made)
    for told in failures(found):
        results.console().print(told)
    for name, one in found["summary"].items():
        each = (f"{key} {us:.2f}" if not isinstance(us, list) else f"{key} {us[0]:.1f} to {us[1]:.1f}"
                for key, us in one.items())  # fmt: skip
        results.console().print(f"{name}: {', '.join(each)}")


BENCH = Bench(
    "host", "What a queued call costs the host.",
    """What a queued call of a tiny layer costs the host: Conv2d on tensors and Buffers, with one kernel and two, in
    every layout, with bias and residual, beside PyTorch; on Hopper Linear of kernels_sass.torch beside PyTorch's; and
    launches of the loader beside the driver's function.

    Exit code 1: a result was wrong.
    """,
    (
        Option("--calls", "calls", "Calls of each kind. [default: 2000]", int, least=2 * BLOCK),
        Option("--seed", "seed", "Seed of the order in which they take turns. [default: 0]", int),
        SECONDS,
    ),
    lambda given, path, tell: run(Asked(**given), path, tell), show, failures,
)  # fmt: skip
