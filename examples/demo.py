"""`make demo`: a picture through two layers of Winograd convolution in SASS, on a GPU or else on the CPU device.

The first layer blurs, sharpens, embosses and finds edges, the second makes drawings of what the first one found. Every
number is held against the same layers in CUDA C++, compiled by NVRTC, and against float64.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import loader
from kernels_sass import conv
from kernels_sass.conv import Conv2d
from loader import timing
from loader.cuda import Buffer, CudaError, device_named
from loader.nvrtc import NvrtcError
from loader.reference import conv2d
from loader.reference.problem import check, truth
from loader.validate import Result, Sides, judge
from turingas.cli import main as turingas
from turingas.errors import LaunchError

Array = np.ndarray[Any, Any]

OUTPUT = Path("build/demo/demo.png")
SPEED = "speed.json"  # beside it
REFERENCE = "winograd"  # of loader.reference: F(2x2,3x3) too, in CUDA C++
SIDE = {"cpu": 320, "cuda": 1024}  # rows or columns of the picture, at most
LEAST = 4

# ---- filters -----------------------------------------------------------------------------------------------------

ONE = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
BLUR = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])

COLOURS = "red", "green", "blue"
BRIGHTNESS = {"red": 0.30, "green": 0.59, "blue": 0.11}
#: ReLU leaves no negative numbers, so each kind of edge has two filters.
EDGES = {"edges right": SOBEL, "edges left": -SOBEL, "edges down": SOBEL.T, "edges up": -SOBEL.T}

#: Each output channel of a layer: its name, and the filter for each input channel that it looks at.
Filters = Mapping[str, Mapping[str, Array]]

FIRST: Filters = {
    **{f"blur {c}": {c: BLUR} for c in COLOURS},
    **{f"sharpen {c}": {c: SHARPEN} for c in COLOURS},
    **{f"emboss {c}": {c: EMBOSS} for c in COLOURS},
    **{name: {c: share * taps for c, share in BRIGHTNESS.items()} for name, taps in EDGES.items()},
}
SECOND: Filters = {
    "edges": dict.fromkeys(EDGES, 0.5 * ONE),
    "sketch": dict.fromkeys(EDGES, -0.7 * ONE),
    **{f"cartoon {c}": {f"blur {c}": 1.1 * BLUR, **dict.fromkeys(EDGES, -0.4 * ONE)} for c in COLOURS},
}
BIAS = {"sketch": 1.0}  # what is not an edge is paper

#: The panels: title, and the channels that are shown: of colours, or one in grey.
PANELS = {
    "the picture": COLOURS,
    **{f"layer 1: {name}": tuple(f"{name} {c}" for c in COLOURS) for name in ("blur", "sharpen", "emboss")},
    "layer 1: edges right": ("edges right",),
    "layer 2: edges": ("edges",),
    "layer 2: sketch": ("sketch",),
    "layer 2: cartoon": tuple(f"cartoon {c}" for c in COLOURS),
}


def weights(inputs: Sequence[str], filters: Filters) -> tuple[Array, Array]:
    """A layer's filters as K, C, 3, 3 and its bias as K, float32, of ``inputs`` channels by name."""
    weight = np.zeros((len(filters), len(inputs), 3, 3), np.float32)
    for k, taps in enumerate(filters.values()):
        for name, values in taps.items():
            weight[k, inputs.index(name)] = values
    return weight, np.array([BIAS.get(name, 0.0) for name in filters], np.float32)


# ---- one layer, three times --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A layer that has run: its sizes in words, its result, how it compares, and milliseconds on a GPU."""

    name: str
    y: Array
    result: Result
    milliseconds: float | None = None


def ours(x: Array, weight: Array, bias: Array, device: str, arch: str) -> tuple[Array, float | None]:
    """The layer in SASS: y, and on a GPU the milliseconds that it took there."""
    with Conv2d(weight, bias, padding=1, activation="relu", device=device, arch=arch) as layer:
        y = layer(x)
        if device == "cpu":
            return y, None
        source, target = Buffer.of(x, device), Buffer(y.shape, np.float32, device)
        return y, timing.measure(lambda: layer(source, out=target), device=device).median


def converted(x: Array, device: str) -> tuple[Array, Any, float | None]:
    """Both layers as a network of PyTorch, converted to our kernels: what comes out, convert's report, and on a GPU the
    milliseconds."""
    import torch

    from kernels_sass.torch import convert

    layers = list[Any]()
    for inputs, filters in ((COLOURS, FIRST), (tuple(FIRST), SECOND)):
        weight, bias = (torch.from_numpy(one) for one in weights(inputs, filters))
        layers += [torch.nn.Conv2d(len(inputs), len(filters), 3, padding=1), torch.nn.ReLU()]
        layers[-2].weight.data, layers[-2].bias.data = weight, bias
    picture = torch.from_numpy(x).to(device)
    network, report = convert(torch.nn.Sequential(*layers).eval().to(device), picture)
    with torch.no_grad():
        y = network(picture).cpu().numpy()
        if device == "cpu":
            return y, report, None
        return y, report, timing.measure(lambda: network(picture), device=device).median


def theirs(x: Array, weight: Array, bias: Array, device: str) -> Array:
    """The same in CUDA C++. NvrtcError where there is no compiler."""
    y: Array = conv2d(x, weight, REFERENCE, padding=1, device=device)
    return (y + bias[:, None, None]).clip(min=0)


def exact(x: Array, weight: Array, bias: Array) -> Array:
    """The same in float64."""
    return (truth(x, weight, check(x, weight, padding=1)) + bias[:, None, None]).clip(min=0)


# ---- pictures ----------------------------------------------------------------------------------------------------


def sample() -> Path:
    """A picture that comes with matplotlib: Grace Hopper, photographed for the US Navy, public domain."""
    from matplotlib import cbook

    return Path(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)))


def read(path: Path, side: int) -> Array:
    """A picture as 1, 3, H, W, 0 to 1, made smaller until neither H nor W is above ``side``. ClickException."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            small = ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise click.ClickException(f"{path} is not a picture that can be read: {error}") from None
    small.thumbnail((side, side))
    if min(small.size) < LEAST:
        raise click.ClickException(f"{path} has {small.width} x {small.height} pixels; at least {LEAST} x {LEAST}")
    return np.ascontiguousarray(np.asarray(small, np.float32).transpose(2, 0, 1)[None] / 255)


def draw(channels: Mapping[str, Array], title: str, path: Path) -> None:
    """All PANELS in one picture."""
    from matplotlib.figure import Figure

    height, width = channels["red"].shape
    columns = len(PANELS) // 2
    size = 10, min(10 / columns * 2 * height / width, 20) + 0.9
    figure = Figure(figsize=size, layout="constrained")
    for axes, (name, shown) in zip(figure.subplots(2, columns).flat, PANELS.items()):
        axes.imshow(np.clip(np.stack([channels[one] for one in shown], -1), 0, 1), cmap="gray", vmin=0, vmax=1)
        axes.set_title(name, fontsize=10)
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


# ---- the command -------------------------------------------------------------------------------------------------


def place(device: str | None, arch: str | None) -> tuple[str, str, str]:
    """Where it runs, for which architecture it is assembled, and why there, in words. LaunchError."""
    why = "the first GPU there is"
    if device is None:
        device = next(reversed(loader.devices()[:2]))
        if device == "cpu":
            why = "there is no GPU"
        else:
            try:
                conv.arch_of(device_named(device))
            except LaunchError as error:
                device, why = "cpu", error.message
    else:
        why = "as asked"
    return device, arch or (conv.CPU_ARCH if device == "cpu" else conv.arch_of(device_named(device))), why


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("picture", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=OUTPUT, show_default=True,
              help="The picture to draw, .png or .jpg.")  # fmt: skip
@click.option("--side", type=click.IntRange(min=LEAST, max=4096),
              help=f"Rows or columns, at most. [default: {SIDE['cpu']}, on a GPU {SIDE['cuda']}]")  # fmt: skip
@click.option("--device", help="cpu, cuda:0 ... [default: a GPU if there is one]")
@click.option("--arch", help="What is assembled, such as sm_90 for the kernel of Hopper. [default: the GPU's; sm_75]")
def main(picture: Path | None, output: Path, side: int | None, device: str | None, arch: str | None) -> None:
    """Run a PICTURE, or one that comes with it, through two layers of Winograd convolution in SASS."""
    try:
        sys.exit(demo(picture, output, side, device, arch))
    except (LaunchError, CudaError) as error:
        raise click.ClickException(str(error)) from None


def demo(picture: Path | None, output: Path, side: int | None, device: str | None, arch: str | None) -> int:
    """What the command does: 0, or 1 if a result is wrong."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)

    @contextmanager
    def step(name: str) -> Iterator[list[str]]:
        """Says what is being done, then in a line what came of it, as the block tells, and the time."""
        told, start = list[str](), time.perf_counter()
        with console.status(f"{name} ..."):
            yield told
        console.print(f"{name:10}{told[0]:74} {time.perf_counter() - start:5.1f} s", markup=False)

    device, arch, why = place(device, arch)
    where = "the CPU device" if device == "cpu" else f"{device}, {device_named(device).name}"
    console.print(f"\nA picture through Winograd convolution in SASS, on {where}: {why}.\n")
    path = picture or sample()
    x = read(path, side or SIDE[device.partition(":")[0]])

    with step("assemble") as told:
        kernels = conv.Kernels.of(arch)
        count = sum(len(kernel.words) for kernel in kernels.cubin.kernels)
        most = max(kernel.registers for kernel in kernels.cubin.kernels)
        told.append(f"{kernels.method.file} for {arch}: {count} instructions, {most} registers")

    first, channels, layers, missing = x, dict(zip(COLOURS, x[0])), list[Layer](), ""
    for number, filters in enumerate((FIRST, SECOND), start=1):
        inputs = list(FIRST) if layers else list(COLOURS)
        weight, bias = weights(inputs, filters)
        name = f"layer {number}"
        with step(name) as told:
            y, milliseconds = ours(x, weight, bias, device, arch)
            told.append(f"{len(inputs)} x {x.shape[2]} x {x.shape[3]}, {len(filters)} filters of 3 x 3, bias, ReLU")
        with step("compare") as told:
            try:
                expected = None if missing else theirs(x, weight, bias, device)
            except NvrtcError as error:
                expected, missing = None, error.message
            sides = Sides("y", y, expected, exact(x, weight, bias))
            result = judge(name, "SASS", "CUDA C++", [sides], None)
            told.append("float64" if missing else "the same in CUDA C++, compiled by NVRTC; the same in float64")
        layers.append(Layer(name, y, result, milliseconds))
        channels |= dict(zip(filters, y[0]))
        x = y

    if device != "cpu" and importlib.util.find_spec("torch"):
        with step("convert") as told:
            y, report, milliseconds = converted(first, device)
            result = judge("converted", "SASS", "CUDA C++", [replace(sides, found=y)], None)
            layers.append(Layer("both, converted", y, result, milliseconds))
            channels |= dict(zip(SECOND, y[0]))  # the picture that is drawn comes out of a network of PyTorch
            told.append(f"both as a network of PyTorch: {len(report.replaced)} of {len(report.rows)} layers are ours")

    with step("draw") as told:
        draw(channels, f"{path.name}: Winograd convolution in SASS ({kernels.method.file}, {arch}) on {where}", output)
        told.append(str(output))
    console.print(table(layers))
    if missing:
        console.print(f"Not compared with CUDA C++: {missing}\n", markup=False)
    for wrong in (text for layer in layers for text in layer.result.wrong):
        console.print(f"mismatch: {wrong}", markup=False)

    fast = True
    if device != "cpu":
        speed = output.parent / SPEED
        with console.status("a layer of ResNet, beside what is installed here ..."):
            fast = benchmark(speed)
        console.print(fastest(speed) if fast else f"turingas bench winograd failed: {speed.with_suffix('.txt')}")
    console.print(what_next(device))
    return 0 if fast and all(layer.result.ok for layer in layers) else 1


def table(layers: Sequence[Layer]) -> Any:
    """How all layers compare, as a table of rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD)
    made.add_column("")
    for layer in layers:
        made.add_column(layer.name, justify="right")
    for rows in zip(*(layer.result.rows for layer in layers)):
        made.add_row(f"{rows[0].name} - {rows[0].against}, relative L2", *(f"{row.relative:.1e}" for row in rows))
    made.add_row("... one element, at most", *(f"{layer.result.rows[-1].max_abs:.1e}" for layer in layers))
    made.add_row("", *("match" if layer.result.ok else "MISMATCH" for layer in layers))
    if all(layer.milliseconds is not None for layer in layers):
        made.add_row("time on the GPU", *(f"{layer.milliseconds:.4f} ms" for layer in layers))
    return made


def benchmark(path: Path) -> bool:
    """A layer of ResNet, timed on the GPU beside what else is installed there, by `turingas bench winograd`. Its tables
    go to a text file beside ``path``."""
    with path.with_suffix(".txt").open("w") as text, redirect_stdout(text):
        try:
            turingas(["bench", "winograd", "--layer", "Conv3", "--batch", "32", "--json", str(path)])
        except SystemExit as done:
            return not done.code
    return True


#: The groups of `turingas bench winograd` that the demo shows.
GROUPS = {"ours": "ours", "cudnn": "cuDNN", "torch": "PyTorch, TF32 off", "opencnn": "CUDA C++ as openCNN's"}


def fastest(path: Path) -> Any:
    """The fastest of each kind, as a table of rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    ((_, entry),) = json.loads(path.read_text())["settings"].items()
    made = Table(box=SIMPLE_HEAD, title="Conv3 of ResNet, 32 pictures: the fastest of each, in float32",
                 caption=f"all of them: {path.with_suffix('.txt')}")  # fmt: skip
    for column in ("", "", "milliseconds", "error"):
        made.add_column(column, justify="right" if column else "left")
    for group, what in GROUPS.items():
        rows = [r for r in entry["rows"] if (r["group"], r["part"], r["status"]) == (group, "all", "ok")]
        if rows:
            best = min(rows, key=lambda row: float(row["ms"]))
            made.add_row(what, best["name"], f"{best['ms']:.4f}", f"{best['error']:.1e}")
    return made


def what_next(device: str) -> str:
    """What to try next."""
    program, source = ".venv/bin/turingas", "kernels_sass/conv/methods/winograd.sass"
    tries = {
        "make demo PICTURE=mine.jpg": "a picture of your own",
        f"{program} lint {source}": "what the main loop costs, cycle by cycle",
        f"{program} lint {source} -D YIELD=nvcc8": "... with another schedule",
    }
    if device == "cpu":
        tries[f"{program} bench winograd --show"] = "16 settings against cuDNN and PyTorch, on an H200"
    else:
        tries["make cudnn"] = "16 settings against cuDNN, on this GPU"
    width = max(map(len, tries))
    lines = [f"  {command:{width}}  {what}" for command, what in tries.items()]
    return "\n".join(["[bold]Next[/bold]", *lines, "  README.md: a first kernel in twenty lines\n"])


if __name__ == "__main__":
    main()
