"""turingas bench: measures the kernels of kernels_sass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from turingas.cli.options import architecture, architectures, definitions, known, paths, several, sizes
from turingas.cli.output import diagnosed

_LAYER = click.option("--layer", "layers", metavar="NAME", multiple=True,
                      type=click.Choice(["Conv2", "Conv3", "Conv4", "Conv5", "all"]),
                      help="Conv2, Conv3, Conv4 or Conv5. [default: all]")  # fmt: skip
_BATCH = click.option("--batch", "batches", metavar="N[,N...]", callback=sizes, help="Images. [default: 32,64,96,128]")
_LAYOUTS = click.Choice(["CHWN", "NCHW", "NHWC"])
_OF = click.Choice(["hopper", "paper", "direct"])
_ONE_SOURCE = click.option("--source", metavar="NAME", type=_OF,
                           help="hopper, paper or direct. [default: the best for the GPU]")  # fmt: skip
_RUNS = click.option("--runs", type=click.IntRange(min=20), help="Of which the median is taken. [default: 24]")
_SECONDS = click.option("--seconds", type=click.FloatRange(min=0),
                        help="Begin no setting that would end later; the same command goes on.")  # fmt: skip
_RESULTS = click.option("--json", "path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
                        help="Where results are kept. [default, for all settings: kernels_sass/results/]")  # fmt: skip
_SHOW = click.option("--show", is_flag=True, help="Print what is kept, without a GPU.")
_FIGURES = click.option("--figures", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
                        help="Draw them, as SVG.")  # fmt: skip


def _bench(name: str, *asked: Any) -> int:
    """What kernels_sass.bench.command does for `bench NAME`. It tells by print, which rich puts above its bar;
    click.echo would write into it."""
    with diagnosed(f"bench {name}"):
        from kernels_sass.bench import command

        code: int = getattr(command, name)(*asked, print)
        return code


@click.group(short_help="Measure the kernels on the GPU at hand.")
def bench() -> None:
    """Measure the kernels of kernels_sass on the GPU at hand, beside what else there is for it.

    \b
      turingas bench winograd        against cuDNN, PyTorch and openCNN's kernel
      turingas bench schedule        the yield flag, the spacing of LDG and STS
      turingas bench counters        what Nsight Compute counts in the main kernel
      turingas bench shapes          layers of real networks against the nearest shapes that fit
      turingas bench smem            LDS and STS by width and lanes: CPI, bytes a cycle
      turingas bench ffma            FFMA by register banks, reuse flags, yields, neighbours
      turingas bench hmma            tensor cores: products a cycle, latencies
      turingas bench roofline        operations and bytes under the ceilings of the card
      turingas bench resnet          a ResNet-50 forward pass by kind of operation
      turingas bench assembler       this assembler, and what else is installed; needs no GPU
    """


@bench.command(short_help="Winograd against cuDNN, PyTorch and openCNN's kernel.")
@_LAYER
@_BATCH
@click.option("--layout", "layouts", metavar="LAYOUT", multiple=True, type=_LAYOUTS,
              help="Of our kernel's x and y: CHWN, NCHW or NHWC. [default: all three]")  # fmt: skip
@click.option("--source", "sources", metavar="NAME", multiple=True, type=_OF,
              help="hopper (winograd_sm90.sass), paper, direct. [default: the best for the GPU]")  # fmt: skip
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
              help="A parameter of our kernel's source.")  # fmt: skip
@click.option("--rivals", metavar="NAME", multiple=True,
              type=click.Choice(["cudnn", "torch", "tf32", "fp16", "opencnn", "references", "all", "none"]),
              help="cudnn, torch, tf32, fp16, opencnn, references, all, none. [default: all]")  # fmt: skip
@_RUNS
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def winograd(path: Path | None, figures: Path | None, show: bool, **asked: Any) -> int:
    """The 16 settings of paper 004: four 3x3 layers of ResNet, four batch sizes.

    Outputs are held against float64 before any time is taken; all take turns in one process.

    \b
      turingas bench winograd
      turingas bench winograd --layer Conv2 --batch 32 --rivals cudnn --rivals opencnn
      turingas bench winograd --show --figures build/figures
    """
    return _bench("winograd", path, figures, show, asked)


@bench.command(short_help="What the schedule of the main kernel costs.")
@_LAYER
@_BATCH
@click.option("--layout", metavar="LAYOUT", type=_LAYOUTS, help="Of x and y. [default: CHWN, with --sweep NCHW]")
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
              help="A parameter that does not vary.")  # fmt: skip
@click.option("--vary", metavar="NAME=VALUE,...", multiple=True, callback=several,
              help="Parameters and values. [default: those of the figures, with --sweep all]")  # fmt: skip
@click.option("--sweep", is_flag=True, help="Search the best schedule for each shape, and keep it for Conv2d.")
@_RUNS
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def schedule(path: Path | None, figures: Path | None, show: bool, **asked: Any) -> int:
    """Figures 7, 8 and 9 of paper 004: the main kernel's time by yield flag and by the spacing of LDG and STS.

    \b
      turingas bench schedule --figures figures
      turingas bench schedule --sweep --layout NCHW --seconds 120
      turingas bench schedule --source paper --vary YIELD=natural,nvcc8,every:4 --layer Conv2 --batch 64
    """
    return _bench("schedule", path, figures, show, asked)


@bench.command(short_help="What Nsight Compute counts in the main kernel.")
@_LAYER
@click.option("--shapes", is_flag=True, help="The layers of `bench shapes`, with 1 and 8 images, in NCHW.")
@click.option("--batch", "batches", metavar="N[,N...]", callback=sizes, help="Images. [default: 32,128]")
@click.option("--layout", "layouts", metavar="LAYOUT", multiple=True, type=_LAYOUTS, help="[default: CHWN]")
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
              help="A parameter of our kernel's source.")  # fmt: skip
@_RESULTS
@_SHOW
def counters(path: Path | None, show: bool, **asked: Any) -> int:
    """How busy the FMA pipe and the issue slots are, bank conflicts, and bytes from and to memory, by ncu."""
    return _bench("counters", path, show, asked)


@bench.command(short_help="Layers of real networks against the nearest shapes that fit.")
@click.option("--batch", "batches", metavar="N[,N...]", callback=sizes, help="Images. [default: 1,8,32,100]")
@click.option("--layout", metavar="LAYOUT", type=_LAYOUTS, help="[default: NCHW]")
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
              help="A parameter of our kernel's source.")  # fmt: skip
@_SECONDS
@_RESULTS
@_SHOW
def shapes(path: Path | None, show: bool, **asked: Any) -> int:
    """How much time a useful operation takes in layers of real networks, over that in the nearest shape with images in
    multiples of 32, channels of 8 and filters of 64."""
    return _bench("shapes", path, show, asked)


def _micro(what: str, short: str, text: str) -> None:
    """The command `bench WHAT` of kernels_sass.micro.micro."""

    @bench.command(what, short_help=short, help=text)
    @_SECONDS
    @_RESULTS
    @_FIGURES
    @_SHOW
    def _(path: Path | None, figures: Path | None, show: bool, seconds: float | None) -> int:
        return _bench(what, path, figures, show, seconds)


_micro("smem", "LDS and STS by width and lanes.",
       "Cycles and bytes a cycle of LDS and STS: 32, 64, 128 bits, whole and half warps, broadcasts, bank conflicts "
       "(Table 1 of paper 000).")  # fmt: skip
_micro("ffma", "FFMA by register banks, reuse flags, yields.",
       "Cycles of FFMA by register banks, reuse flags, yield flags, and with LDS and STS between them; one and two "
       "warps a scheduler.")  # fmt: skip
_micro("hmma", "Tensor cores: products a cycle, latencies.",
       "Cycles of what the tensor cores of the GPU have (HMMA, IMMA, DMMA), one and two warps a scheduler, and the "
       "latency from one product to the next on the same accumulator.")  # fmt: skip


@bench.command(short_help="Operations and bytes under the ceilings of the card.")
@click.option("--winograd", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Results of `bench winograd`, for the points. [default: those that are kept]")  # fmt: skip
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def roofline(
    path: Path | None, winograd: Path | None, figures: Path | None, show: bool, seconds: float | None
) -> int:
    """Figure 2 of paper 004, Figure 16 of papers 000 and 003, and the break-even of section 8.1 of paper 004.

    Ceilings are measured: FFMA, tensor cores, shared memory, L2, DRAM. The kernels' times are of `bench winograd`.
    """
    return _bench("roofline", path, winograd, figures, show, seconds)


@bench.command(short_help="A ResNet-50 forward pass by kind of operation.")
@click.option("--batch", "batches", metavar="N[,N...]", callback=sizes, help="Pictures. [default: 32,128,1]")
@click.option("--layout", "layouts", metavar="LAYOUT", multiple=True, type=click.Choice(["NCHW", "NHWC"]),
              help="NCHW or NHWC, which is PyTorch's channels_last. [default: both]")  # fmt: skip
@click.option("--form", "forms", metavar="FORM", multiple=True, type=click.Choice(["plain", "folded", "fused"]),
              help="plain; batch norm folded; ReLU and addition fused too. [default: all three]")  # fmt: skip
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
              help="A parameter of our kernel's source.")  # fmt: skip
@_RUNS
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def resnet(path: Path | None, figures: Path | None, show: bool, **asked: Any) -> int:
    """ResNet-50 with random weights, by PyTorch in float32 and with our kernels in its 3x3 convolutions of stride 1.

    What each stage makes is held against float64 before any time is taken; all take turns in one process.

    \b
      turingas bench resnet
      turingas bench resnet --batch 32,64 --figures figures
    """
    return _bench("resnet", path, figures, show, asked)


@bench.command(short_help="This assembler beside what else is installed; needs no GPU.")
@click.option("--arch", "archs", metavar="ARCH", multiple=True, shell_complete=architectures,
              callback=lambda ctx, param, values: tuple(architecture(ctx, param, value) for value in values),
              help=f"{known()}. [default: sm_75, sm_80, sm_90]")  # fmt: skip
@click.option("--tool", "tools", metavar="NAME=PATH", multiple=True, callback=paths,
              help="Where nvdisasm, cuobjdump, ptxas is, or the checkout of cuassembler, turingas (that of paper 004).")
@click.argument("library", nargs=-1, type=click.Path(exists=True))
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def assembler(path: Path | None, figures: Path | None, show: bool, **asked: Any) -> int:
    """Instructions a second that are assembled and disassembled, within a process and by whole programs.

    \b
      turingas bench assembler --figures figures
      turingas bench assembler --arch sm_75 --tool turingas=../turingas --tool cuassembler=../CuAssembler
      turingas bench assembler --arch sm_90 cubins/

    LIBRARY: cubins, or folders of them, whose code is handled once in a fresh process; otherwise our CUDA sources.
    """
    return _bench("assembler", path, figures, show, asked)
