"""The commands that run kernels: run, validate."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turingas.cli.files import written
from turingas.cli.options import (
    HOLDER,
    JSON,
    KEEP_CAPSULE,
    Numbers,
    Sources,
    json_option,
    launching,
    races_option,
    sizes,
    sources,
)  # fmt: skip
from turingas.cli.output import WRONG, diagnosed, fail, printable
from turingas.packages import check

if TYPE_CHECKING:
    from turingas.cubin.pick import Found


@click.command(cls=Numbers, short_help="Run a kernel on the CPU device.")
@click.argument("file", metavar="KERNEL", type=HOLDER)
@click.argument("args", nargs=-1)
@launching
@click.option("--kernel", metavar="NAME", help="Kernel to run, if the file has several; as in C++, too: add<int>.")
@click.option("--device", type=click.Choice(["cpu"]), default="cpu", show_default=True, help="Where it runs.")
@click.option("--counters", is_flag=True, help="Print counts beside the instructions.")
@click.option("--save", metavar="N=FILE.npy", multiple=True, help="Write array argument N to a file after the run.")
@json_option(is_flag=True, help="Print everything as JSON.")
@sources
def run(
    file: str,
    args: tuple[str, ...],
    grid: tuple[int, ...],
    block: tuple[int, ...] | None,
    save: tuple[str, ...],
    as_json: bool,
    seed: int,
    sources: Sources,
    device: str,
    **options: Any,
) -> int:
    """Run a KERNEL without a GPU and show what it did. It is in a .sass (assembled first), a .cubin, a library, object
    or fat binary, or a folder of Triton's cache; --kernel and --arch choose where there are several.

    \b
    ARGS, one per parameter:
      7  0x10  1.5  u8:7           a number, of the size of its parameter
      f32[1024]  i32[8,8]          an array of zeros
      f32[64]=random  u32[9]=arange  f32[4]=1.5
      @input.npy                   an array from a file
    \b
      turingas run copy.sass 'f32[1024]=random' 'f32[1024]' 1024 --grid 4 --block 256 --counters
    """
    from turingas.cli import outcome as command

    with diagnosed(file):
        found = sources.found(file, options["kernel"])
        options["kernel"] = found.kernel or None
        options["shared"] = found.shared or 0 if options["shared"] is None else options["shared"]
        block = block or (found.block or 32,)
        show_progress = sys.stderr.isatty() and not as_json
        args = (*args, *_scratch(found, len(args), grid))
        outcome = command.run(found.cubin, args, grid, block, save, seed, show_progress, options)
        for path, array in outcome.saved:
            with written(path) as stream:
                command.save(stream, array)
        click.echo(json.dumps(outcome.json(), indent=2) if as_json else printable("\n".join(outcome.lines())))
        if outcome.error:
            click.echo(printable(outcome.error), err=True)
    return WRONG if outcome.failed else 0


def _scratch(found: Found, given: int, grid: tuple[int, ...]) -> list[str]:
    """Arguments for the pointers to scratch memory that Triton's kernels have behind those of the function."""
    kernels = [code for code in found.cubin.kernels if found.kernel in ("", code.name)]
    if not found.scratch or len(kernels) != 1 or len(kernels[0].params) - given != len(found.scratch):
        return []
    return [f"u8[{size * math.prod(grid)}]" if size else "0" for size in found.scratch]


@click.command(cls=Numbers, short_help="Compare a kernel with a reference and with float64.")
@click.argument("file", metavar="KERNEL", type=HOLDER)
@click.argument("args", nargs=-1)
@click.option("--layer", "layers", metavar="NAME", multiple=True,
              type=click.Choice(["Conv2", "Conv3", "Conv4", "Conv5", "all"]),
              help="A 3x3 layer of ResNet: Conv2, Conv3, Conv4, Conv5, or all of them.")  # fmt: skip
@click.option("--batch", "batches", metavar="N[,N...]", default="32", callback=sizes, show_default=True,
              help="Images, for --layer.")  # fmt: skip
@click.option("--shape", metavar="N,C,H,W,K", callback=sizes, help="Sizes of any other convolution.")
@click.option("--filter", "filters", metavar="R[,S]", default="3", callback=sizes, show_default=True,
              help="Rows and columns of the filters, for --shape.")  # fmt: skip
@click.option("--stride", type=click.IntRange(min=1), default=1, show_default=True, help="Stride, for --shape.")
@click.option("--padding", type=click.IntRange(min=0), help="Padding, for --shape. [default: (R - 1) // 2]")
@click.option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid, as expressions.")
@click.option("--block", metavar="X[,Y[,Z]]", help="Threads in a block.")
@click.option("--shared", metavar="BYTES", help="Dynamic shared memory.")
@click.option("--kernel", metavar="NAME", help="Kernel to run, if the file has several; as in C++, too: add<int>.")
@click.option("--host", type=click.Path(exists=True, dir_okay=False),
              help="Python file that launches it. [default: host.py beside it, if there are no ARGS]")  # fmt: skip
@click.option("--layout", "layouts", metavar="NCHW|CHWN|NHWC", multiple=True,
              help="Layout of x and y, if host.py has several; can be repeated.")  # fmt: skip
@click.option("--reference", metavar="NAME|FILE.cu|none",
              help="What to compare it with, besides float64. [default for a convolution: direct]")  # fmt: skip
@click.option("--truth", metavar="FILE.py:FUNCTION",
              help="Function that computes the outputs in float64, for other kernels.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0),
              help="Largest relative L2 error allowed. [default: 1e-6 for f32]")  # fmt: skip
@click.option("--device", metavar="cpu|cuda[:N]", help="Where it runs. [default: a GPU if there is one]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--strict", is_flag=True, help="On the CPU device: obey stalls and scoreboards.")
@races_option("On the CPU device: find races in shared memory")
@json_option(is_flag=True, help="Print the table as JSON.")
@sources
def validate(
    file: str,
    args: tuple[str, ...],
    layers: tuple[str, ...],
    batches: tuple[int, ...],
    shape: tuple[int, ...] | None,
    filters: tuple[int, ...],
    stride: int,
    padding: int | None,
    strict: bool,
    races: str | bool,
    as_json: bool,
    sources: Sources,
    **options: Any,
) -> int:
    """Run a KERNEL (as `turingas run` takes it) and a reference on the same random inputs, and compare their results.

    Outputs are filled with NaN first. Exits with 1 if a result is wrong or an element was not written.

    \b
    For a convolution, --layer or --shape gives the sizes. ARGS are x, w, y and expressions of N C H W K R S P Q:
      turingas validate conv.sass x:CHWN w y:CHWN N C H W K --grid 'P*Q,ceil_div(K,64)' --block 256 --layer Conv3
    ARGS and options of the launch can be given in the source, in a line '# validate: x w y ...'.

    \b
    For any other kernel, ARGS are as for `turingas run`; arrays without a value are outputs.
      turingas validate add.sass 'f32[64]=random' 'f32[64]' 64 --grid 2 --block 32 --reference add.cu
    """
    with diagnosed(file):
        check("loader", "kernels_sass")
    from loader import validate as command
    from loader.cuda import CudaError
    from turingas.emulate.errors import DeviceError

    options["options"] = {name: on for name, on in (("strict", strict), ("races", races)) if on}
    results = []
    with diagnosed(file):
        found = sources.found(file, options["kernel"])
        options["kernel"] = found.kernel or None
        for name, beside in (("block", found.block), ("shared", found.shared)):
            if options[name] is None and beside is not None:
                options[name] = str(beside)
        words = list(args)
        for name in ("grid", "block", "shared", "kernel"):
            text = options.pop(name)
            words += [f"--{name}", text] if text is not None else []
        asked = command.problems(layers, shape, batches, filters, stride, padding)
        try:
            made = command.command(found.cubin, file, found.source, words, asked, python=sources.python, **options)
            for result in made:
                results.append(result)
                if not as_json:
                    click.echo(printable("\n".join(result.lines())))
        except (DeviceError, CudaError) as error:
            fail(printable(str(error)))
    if as_json:
        click.echo(json.dumps([result.json() for result in results], indent=2))
    return 0 if all(result.ok for result in results) else WRONG


@click.command(short_help="Search for a faster version of a kernel, by trial.")
@click.argument("file", metavar="CUBIN_OR_SOURCE", type=HOLDER)
@click.option("--bench", metavar="FILE.py", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Says how the kernel is launched: arguments, grid, block, shared, and check.")  # fmt: skip
@click.option("-o", "--output", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path),
              help="Cubin to write. [default: the input's name with .tuned.cubin]")  # fmt: skip
@click.option("--kernel", metavar="NAME", help="Kernel to tune, if the file has several. [default: what FILE.py says]")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="[default: a GPU if there is one]")
@click.option("--workers", metavar="gpus|N|tcp://...", default="gpus", show_default=True,
              help="A process for each GPU, N processes, or a Dask cluster.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Search so long. [default: 60]")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of 16 candidates.")
@click.option("--inputs", type=click.IntRange(min=1), default=32, show_default=True,
              help="Random inputs on which the winner must leave the original's bits.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the search.")
@click.option("--resume", metavar="FILE", type=click.Path(path_type=Path),
              help="Go on with a search that was kept: OUT.search.")  # fmt: skip
@KEEP_CAPSULE
@json_option(metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True), help="Write what was found as JSON.")
@sources
def tune(
    file: str,
    output: Path | None,
    as_json: str | None,
    resume: Path | None,
    sources: Sources,
    bench: Path,
    keep_capsule: bool,
    **asked: Any,
) -> int:
    """Search for a faster version of a kernel, whether it was compiled or written by hand.

    Memory instructions change places with their neighbours, waits, stalls, yields and reuse flags change, where no
    dependence forbids it. The linter looks at each candidate, a GPU times it beside the original, the best ones run in
    the strict mode of the CPU device, and the winner leaves the original's bits on random inputs. Without a GPU the
    figure is that of a simple model.

    \b
      turingas tune matmul.cubin --bench matmul_bench.py --seconds 600
      turingas tune matmul.cubin --bench matmul_bench.py --resume matmul.tuned.cubin.search
    """
    with diagnosed(file):
        check("loader", "kernels_sass")
    from loader.cuda import CudaError
    from loader.tune import command

    out = output or Path("a.tuned.cubin" if file == "-" else Path(file).with_suffix(".tuned.cubin").name)
    with diagnosed(file):
        command.check(out, resume)
        picked = sources.found(file, asked["kernel"])
        asked["kernel"] = picked.kernel or None
        picked.cubin.keep_capsule = keep_capsule
        try:
            state = out.with_name(out.name + ".search")
            found = command.tune(picked.cubin, bench, state=state, resume=resume, show=True, tell=_say, **asked)
        except CudaError as error:
            fail(printable(str(error)))
        with written(str(out)) as stream:
            stream.write(found.cubin.to_bytes())
        if as_json:
            with written(as_json) as stream:
                stream.write((json.dumps(command.json(found), indent=2) + "\n").encode())
    for line in command.lines(found):
        click.echo(printable(line), err=as_json == "-")
    click.echo(f"written: {out}" + ("" if found.gained else ", the original"), err=as_json == "-")
    return 0


def _say(text: str) -> None:
    click.echo(printable(text), err=True)


@click.command(short_help="List the kernels that come with this package.")
@click.option("--copy", "folder", metavar="FOLDER", type=click.Path(path_type=Path),
              help="Copy them to a new folder, with the files that they include.")  # fmt: skip
@JSON
def kernels(folder: Path | None, as_json: bool) -> None:
    """List the kernels of kernels_sass, each with its own description. lint, run and validate take them by name.

    \b
      turingas kernels
      turingas kernels --copy mine
      turingas validate winograd.sass --arch sm_80 --shape 1,8,8,8,64 --device cpu
    """
    from turingas import packages

    with diagnosed(str(folder or "kernels")):
        found = []
        for path in packages.bundled():
            name = path.relative_to(packages.HOME / "kernels_sass").as_posix()
            found.append({"name": path.name, "path": name, "about": packages.about(path)})
        if folder is not None:
            packages.copy(folder)
        if as_json:
            click.echo(json.dumps({"kernels": found, "copied": str(folder) if folder else None}, indent=1))
        else:
            click.echo("\n".join(f"{one['path']:36} {one['about']}" for one in found))
