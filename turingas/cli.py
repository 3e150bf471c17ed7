"""The turingas command: parses options, calls the library, prints. Every command imports what it needs when it runs."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click

from turingas.errors import UNNAMED, AsmError, CubinError, LaunchError

INTERRUPTED = 130  # as shells report SIGINT
BROKEN_PIPE = 141  # ... and SIGPIPE
WRONG = 1  # the input is wrong
ELF = b"\x7fELF"  # a cubin begins so


class _Commands(click.Group):
    """A group whose failures are short: a diagnostic and an exit code, no traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            result = super().main(*args, **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            _fail("interrupted", INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)


def _architecture(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """sm_75, or 75."""
    from turingas.isa.arch import NAMES, arch

    try:
        name = arch(value).name
    except AsmError as error:
        raise click.BadParameter(f"{error.message}; known: {', '.join(NAMES)}") from None
    if name not in NAMES:
        raise click.BadParameter(f"{name} has no instruction table; known: {', '.join(NAMES)}")
    return name


def _architectures(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What the shell may complete."""
    from turingas.isa.arch import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def _definitions(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, object]:
    """NAME=VALUE, the value a Python literal or else a string; NAME alone is 1."""
    defines: dict[str, object] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name.isidentifier():
            raise click.BadParameter(f"{name!r} is no name; write NAME=VALUE")
        try:
            defines[name] = ast.literal_eval(text) if equals else 1
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            defines[name] = text
    return defines


_SOURCE = click.Path(exists=True, dir_okay=False, allow_dash=True)
_CUBIN = click.Path(exists=True, dir_okay=False, allow_dash=True)
_OUTPUT = click.Path(dir_okay=False, allow_dash=True)
_ARCH = click.option("--arch", metavar="ARCH", default="sm_75", show_default=True, callback=_architecture,
                     shell_complete=_architectures, help="sm_70 to sm_90a; .arch in the source wins.")  # fmt: skip


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turingas")
def main() -> None:
    """Assembler and disassembler for the machine code (SASS) of NVIDIA GPUs, Volta to Hopper.

    \b
    A first round:
      turingas assemble kernel.sass            writes kernel.cubin
      turingas info kernel.cubin               registers, memory, occupancy
      turingas lint kernel.sass                what the hardware silently gets wrong
      turingas disassemble kernel.cubin        source that assembles to it again
      turingas isa FFMA --arch sm_80           how an instruction is written

    A .cubin is loaded with cuModuleLoad of the CUDA driver API. Exit codes: 0 done, 1 the input is wrong (diagnostics
    on stderr), 2 wrong usage.
    """


@main.command(short_help="Assemble source into a cubin.")
@click.argument("file", type=_SOURCE)
@click.option("-o", "--output", type=_OUTPUT, help="Cubin to write, - for stdout. [default: FILE with .cubin]")
@_ARCH
@click.option("-D", "--define", "defines", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="Variable of the inline Python.")  # fmt: skip
@click.option("-I", "--include", type=click.Path(exists=True), multiple=True,
              help="Folder for .include, or a .py file to run first.")  # fmt: skip
@click.option("--kernel", default="kern", show_default=True, help="Name of the kernel in a file without .kernel.")
@click.option("--default-control", metavar="CODE", help="Control code of the lines that have none.")
@click.option("--no-python", is_flag=True, help="Refuse inline Python: for sources that you do not trust.")
def assemble(
    file: str,
    output: str | None,
    arch: str,
    defines: dict[str, object],
    include: tuple[str, ...],
    kernel: str,
    default_control: str | None,
    no_python: bool,
) -> None:
    """Assemble a source FILE (- for stdin) into a cubin.

    \b
      turingas assemble gemm.sass
      turingas assemble gemm.sass -o gemm90.cubin --arch sm_90 -D TILE=128
    """
    if output is None:
        output = "-" if file == "-" else os.path.splitext(file)[0] + ".cubin"
    _keep(file, output)
    with _diagnosed(file):
        options = {"defines": defines, "kernel": kernel, "default_control": default_control}
        data = _assemble(file, _read(file), arch, include, not no_python, **options).to_bytes()
        with _output(output) as stream:
            stream.write(data)


def _assemble(file: str, source: bytes, arch: str, include: tuple[str, ...], python: bool, **options: Any) -> Any:
    """The Cubin of a source file. Its inline Python may import modules that lie beside it, or in an -I folder."""
    from turingas.assembler import assemble as run
    from turingas.source.lines import decode

    name = "<stdin>" if file == "-" else file
    folders = [path for path in include if os.path.isdir(path)]
    sys.path[:0] = [os.path.dirname(os.path.abspath(file)) if file != "-" else os.getcwd(), *folders]
    return run(decode(source, name), arch, include=include, filename=name, allow_python=python, **options)


def _made(file: str, arch: str, include: tuple[str, ...], python: bool, **options: Any) -> tuple[Any, str]:
    """The Cubin of a file that is one, or else is assembled; and its source, "" of a cubin."""
    data = _read(file)
    if data.startswith(ELF) or file.endswith(".cubin"):
        return _cubin(data), ""
    return _assemble(file, data, arch, include, python, **options), data.decode("utf-8", "surrogateescape")


@main.command(short_help="Turn a cubin into source.")
@click.argument("file", type=_CUBIN)
@click.option("-o", "--output", type=_OUTPUT, default="-", help="Source to write. [default: stdout]")
def disassemble(file: str, output: str) -> None:
    """Turn a cubin into source that assembles to the same code and resources.

    \b
      turingas disassemble kernel.cubin -o kernel.sass
    """
    _keep(file, output)
    with _diagnosed(file):
        from turingas.disassembler import write_source

        cubin = _load(file)
        with _output(output) as stream:
            text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="\n")
            write_source(cubin, text)
            text.flush()
            text.detach()


@main.command(short_help="Take cubins apart and put them together again.")
@click.argument("files", type=_CUBIN, nargs=-1, required=True)
def check(files: tuple[str, ...]) -> int:
    """Disassemble cubins, assemble the text again and report every difference.

    \b
      turingas check *.cubin
    """
    wrong = 0
    for file in files:
        try:
            with _diagnosed(file):
                from turingas.disassembler import check as run

                differences = run(_load(file))
                for difference in differences or ["identical"]:
                    click.echo(f"{file}: {difference}")
                if differences:
                    wrong = WRONG
        except SystemExit as error:
            if error.code != WRONG:
                raise
            wrong = WRONG
    return wrong


@main.command(short_help="What the hardware silently gets wrong, and what costs time.")
@click.argument("files", metavar="FILE...", type=_SOURCE, nargs=-1, required=True)
@_ARCH
@click.option("-D", "--define", "defines", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="Variable of the inline Python.")  # fmt: skip
@click.option("-I", "--include", type=click.Path(exists=True), multiple=True,
              help="Folder for .include, or a .py file to run first.")  # fmt: skip
@click.option("--kernel", metavar="NAME", help="Look at this kernel alone.")
@click.option("--default-control", metavar="CODE", help="Control code of the lines that have none.")
@click.option("--no-python", is_flag=True, help="Refuse inline Python: for sources that you do not trust.")
@click.option("--severity", type=click.Choice(["note", "warning", "error"]), help="Least severity to show.")
@click.option("--loops/--no-loops", default=True, help="Summaries of loops.  [default: loops]")
@click.option("--json", "as_json", is_flag=True, help="SARIF on stdout, for editors and CI.")
def lint(
    files: tuple[str, ...],
    arch: str,
    defines: dict[str, object],
    include: tuple[str, ...],
    kernel: str | None,
    default_control: str | None,
    no_python: bool,
    severity: str | None,
    loops: bool,
    as_json: bool,
) -> int:
    """Check sources (.sass, assembled first) and cubins: hazards, barriers, resources, register banks, addresses.

    Exits with 1 if there is an error or a warning; notes are advice.

    \b
      turingas lint gemm.sass --arch sm_90
      turingas lint *.cubin --severity warning --no-loops
    """
    from turingas.check import command

    reports, wrong = [], 0
    for file in files:
        try:
            with _diagnosed(file):
                options = {"defines": defines, "default_control": default_control}
                cubin, _ = _made(file, arch, include, not no_python, **options)
                report = command.look(cubin, "<stdin>" if file == "-" else file, kernel)
                reports.append(report)
                if not as_json:
                    click.echo(_printable("\n".join(command.lines(report, severity, loops))))
        except SystemExit as error:
            if error.code != WRONG:
                raise
            wrong = WRONG
    if as_json:
        from turingas.check.sarif import sarif

        found = [finding for report in reports for finding in command.at_least(report.findings, severity or "note")]
        with _diagnosed("lint"):
            click.echo(json.dumps(sarif(found), indent=2))
    return WRONG if wrong or command.fails(reports) else 0


def _three(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """One to three numbers: 256, or 16,16."""
    try:
        numbers = tuple(int(part, 0) for part in value.replace("x", ",").split(","))
    except ValueError:
        numbers = ()
    if not 1 <= len(numbers) <= 3:
        raise click.BadParameter(f"{value!r} is not one to three numbers, such as 256 or 16,16")
    return numbers


@main.command(short_help="Run a kernel on the CPU device.")
@click.argument("file", metavar="KERNEL", type=_SOURCE)
@click.argument("args", nargs=-1)
@click.option("--grid", metavar="X[,Y[,Z]]", default="1", callback=_three, show_default=True, help="Blocks.")
@click.option("--block", metavar="X[,Y[,Z]]", default="32", callback=_three, show_default=True,
              help="Threads of a block.")  # fmt: skip
@click.option("--shared", type=click.IntRange(min=0), default=0, help="Bytes of dynamic shared memory.")
@click.option("--kernel", metavar="NAME", help="Which kernel. [default: the only one]")
@click.option("--device", type=click.Choice(["cpu"]), default="cpu", show_default=True, help="Where it runs.")
@click.option("--counters", is_flag=True, help="Print counts beside the instructions.")
@click.option("--strict", is_flag=True, help="Heed stalls and scoreboards: an error where a result is used too early.")
@click.option("--stale", is_flag=True, help="With --strict: use the old value there, as a GPU would.")
@click.option("--races", is_flag=True, help="Find races in shared memory.")
@click.option("--written", is_flag=True, help="An error for reading memory that was never written.")
@click.option("--budget", type=click.IntRange(min=1), help="Instructions that a warp may run. [default: 1000000]")
@click.option("--stack", metavar="BYTES", type=click.IntRange(min=0),
              help="A thread's stack beside the kernel's own frame, for recursion. [default: 1024]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of the arrays that are =random.")  # fmt: skip
@click.option("--save", metavar="N=FILE.npy", multiple=True, help="Write array argument N to a file after the run.")
@click.option("--json", "as_json", is_flag=True, help="All that is printed, as JSON.")
@_ARCH
@click.option("-D", "--define", "defines", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="Variable of the inline Python.")  # fmt: skip
@click.option("-I", "--include", type=click.Path(exists=True), multiple=True,
              help="Folder for .include, or a .py file to run first.")  # fmt: skip
@click.option("--no-python", is_flag=True, help="Refuse inline Python: for sources that you do not trust.")
def run(
    file: str,
    args: tuple[str, ...],
    grid: tuple[int, ...],
    block: tuple[int, ...],
    save: tuple[str, ...],
    as_json: bool,
    seed: int,
    arch: str,
    defines: dict[str, object],
    include: tuple[str, ...],
    no_python: bool,
    device: str,
    **options: Any,
) -> int:
    """Run a KERNEL (.sass, assembled first, or .cubin) without a GPU and show what it did.

    \b
    ARGS, one for each parameter:
      7  0x10  1.5  u8:7           a number; it takes the size of its parameter
      f32[1024]  i32[8,8]          an array of zeros
      f32[64]=random  u32[9]=arange  f32[4]=1.5
      @input.npy                   an array from a file
    \b
      turingas run copy.sass 'f32[1024]=random' 'f32[1024]' 1024 --grid 4 --block 256 --counters
    """
    from turingas import run as command

    if options["stale"] and not options["strict"]:
        raise click.UsageError("--stale goes with --strict")
    with _diagnosed(file):
        cubin, _ = _made(file, arch, include, not no_python, defines=defines)
        show_progress = sys.stderr.isatty() and not as_json
        outcome = command.run(cubin, args, grid, block, save, seed, show_progress, options)
        for path, array in outcome.saved:
            with _output(path) as stream:
                command.save(stream, array)
        click.echo(json.dumps(outcome.json(), indent=2) if as_json else _printable("\n".join(outcome.lines())))
        if outcome.error:
            click.echo(_printable(outcome.error), err=True)
    return WRONG if outcome.failed else 0


def _sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers parted by commas, each at least 1; how many is the option's business."""
    if value is None:
        return None
    numbers = tuple(int(part) if part.strip().isdecimal() else 0 for part in value.split(","))
    wanted = {"shape": (5,), "filters": (1, 2)}.get(param.name or "", range(1, 100))
    if len(numbers) not in wanted or 0 in numbers:
        raise click.BadParameter(f"{value!r}: write {param.metavar}, numbers of at least 1")
    return numbers


def _several(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[object, ...]]:
    """NAME=VALUE,VALUE,..., the values as those of -D."""
    found: dict[str, tuple[object, ...]] = {}
    for value in values:
        name, _, text = value.partition("=")
        if not text:
            raise click.BadParameter(f"{value!r}: write NAME=VALUE,VALUE,...")
        found[name] = tuple(_definitions(ctx, param, (f"{name}={word}",))[name] for word in text.split(","))
    return found


def _paths(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=PATH."""
    if wrong := [value for value in values if not all(value.partition("="))]:
        raise click.BadParameter(f"{wrong[0]!r}: write NAME=PATH")
    return {name: path for name, _, path in (value.partition("=") for value in values)}


@main.command(short_help="Hold a kernel against a reference and float64.")
@click.argument("file", metavar="KERNEL", type=_SOURCE)
@click.argument("args", nargs=-1)
@click.option("--layer", "layers", metavar="NAME", multiple=True,
              type=click.Choice(["Conv2", "Conv3", "Conv4", "Conv5", "all"]),
              help="A 3x3 layer of ResNet: Conv2, Conv3, Conv4, Conv5, or all of them.")  # fmt: skip
@click.option("--batch", "batches", metavar="N[,N...]", default="32", callback=_sizes, show_default=True,
              help="Images, for --layer.")  # fmt: skip
@click.option("--shape", metavar="N,C,H,W,K", callback=_sizes, help="Another convolution: its sizes.")
@click.option("--filter", "filters", metavar="R[,S]", default="3", callback=_sizes, show_default=True,
              help="Rows and columns of the filters, for --shape.")  # fmt: skip
@click.option("--stride", type=click.IntRange(min=1), default=1, show_default=True, help="... its stride.")
@click.option("--padding", type=click.IntRange(min=0), help="... its padding. [default: (R - 1) // 2]")
@click.option("--grid", metavar="X[,Y[,Z]]", help="Blocks: expressions.")
@click.option("--block", metavar="X[,Y[,Z]]", help="Threads of a block.")
@click.option("--shared", metavar="BYTES", help="Dynamic shared memory.")
@click.option("--kernel", metavar="NAME", help="Which kernel. [default: the only one]")
@click.option("--host", type=click.Path(exists=True, dir_okay=False),
              help="Python file that launches it. [default: host.py beside it, if there are no ARGS]")  # fmt: skip
@click.option("--layout", "layouts", metavar="NCHW|CHWN|NHWC", multiple=True,
              help="Layout of x and y, where host.py has several; may be given several times.")  # fmt: skip
@click.option("--reference", metavar="NAME|FILE.cu|none",
              help="What it is held against beside float64. [default for a convolution: direct]")  # fmt: skip
@click.option("--truth", metavar="FILE.py:FUNCTION", help="Gives the outputs in float64, for other kernels.")
@click.option("--tolerance", type=click.FloatRange(min=0), help="Relative L2 error. [default: 1e-6 for f32]")
@click.option("--device", metavar="cpu|cuda[:N]", help="Where it runs. [default: a GPU if there is one]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--strict", is_flag=True, help="On the CPU device: heed stalls and scoreboards.")
@click.option("--races", is_flag=True, help="On the CPU device: find races in shared memory.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@_ARCH
@click.option("-D", "--define", "defines", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="Variable of the inline Python.")  # fmt: skip
@click.option("-I", "--include", type=click.Path(exists=True), multiple=True,
              help="Folder for .include, or a .py file to run first.")  # fmt: skip
@click.option("--no-python", is_flag=True, help="Refuse inline Python: for sources that you do not trust.")
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
    races: bool,
    as_json: bool,
    arch: str,
    defines: dict[str, object],
    include: tuple[str, ...],
    no_python: bool,
    **options: Any,
) -> int:
    """Run a KERNEL (.sass, assembled first, or .cubin) and a reference on the same random inputs, compare both.

    Outputs are poisoned first; exits with 1 if a result is off or an element was not written.

    \b
    A convolution: its sizes by --layer or --shape. ARGS are x, w, y and expressions of N C H W K R S P Q:
      turingas validate conv.sass x:CHWN w y:CHWN N C H W K --grid 'P*Q,ceil_div(K,64)' --block 256 --layer Conv3
    ARGS and options of the launch may stand in the source, in a line '# validate: x w y ...'.

    \b
    Any other kernel: ARGS as for `turingas run`; arrays without a value are outputs.
      turingas validate add.sass 'f32[64]=random' 'f32[64]' 64 --grid 2 --block 32 --reference add.cu
    """
    from loader import validate as command
    from loader.cuda import CudaError
    from turingas.emulate.errors import DeviceError

    words = list(args)
    for name in ("grid", "block", "shared", "kernel"):
        text = options.pop(name)
        words += [f"--{name}", text] if text is not None else []
    options["options"] = {name: True for name, on in (("strict", strict), ("races", races)) if on}
    results = []
    with _diagnosed(file):
        cubin, source = _made(file, arch, include, not no_python, defines=defines)
        asked = command.problems(layers, shape, batches, filters, stride, padding)
        try:
            for result in command.command(cubin, file, source, words, asked, python=not no_python, **options):
                results.append(result)
                if not as_json:
                    click.echo(_printable("\n".join(result.lines())))
        except (DeviceError, CudaError) as error:
            _fail(_printable(str(error)))
    if as_json:
        click.echo(json.dumps([result.json() for result in results], indent=2))
    return 0 if all(result.ok for result in results) else WRONG


_LAYER = click.option("--layer", "layers", metavar="NAME", multiple=True,
                      type=click.Choice(["Conv2", "Conv3", "Conv4", "Conv5", "all"]),
                      help="Conv2, Conv3, Conv4 or Conv5. [default: all]")  # fmt: skip
_BATCH = click.option("--batch", "batches", metavar="N[,N...]", callback=_sizes, help="Images. [default: 32,64,96,128]")
_LAYOUTS = click.Choice(["CHWN", "NCHW", "NHWC"])
_SOURCES = click.Choice(["hopper", "paper", "direct"])
_ONE_SOURCE = click.option("--source", metavar="NAME", type=_SOURCES,
                           help="hopper, paper or direct. [default: the best for the GPU]")  # fmt: skip
_RUNS = click.option("--runs", type=click.IntRange(min=20), help="Of which the median is taken. [default: 24]")
_SECONDS = click.option("--seconds", type=click.FloatRange(min=0),
                        help="Begin no setting that would end later; the same command goes on.")  # fmt: skip
_RESULTS = click.option("--json", "path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
                        help="Where results are kept. [default, for all settings: docs/results/]")  # fmt: skip
_SHOW = click.option("--show", is_flag=True, help="Print what is kept, without a GPU.")
_FIGURES = click.option("--figures", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
                        help="Draw them, as PNG and SVG.")  # fmt: skip


def _bench(name: str, *asked: Any) -> int:
    """What kernels_sass.bench.command does for `bench NAME`. It tells by print, which rich puts above its bar;
    click.echo would write into it."""
    with _diagnosed(f"bench {name}"):
        from kernels_sass.bench import command

        code: int = getattr(command, name)(*asked, print)
        return code


@main.group(short_help="Measure the kernels on the GPU at hand.")
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
@click.option("--source", "sources", metavar="NAME", multiple=True, type=_SOURCES,
              help="hopper (winograd_sm90.sass), paper, direct. [default: the best for the GPU]")  # fmt: skip
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
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
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="A parameter that does not vary.")  # fmt: skip
@click.option("--vary", metavar="NAME=VALUE,...", multiple=True, callback=_several,
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
      turingas bench schedule --figures docs/results
      turingas bench schedule --sweep --layout NCHW --seconds 120
      turingas bench schedule --source paper --vary YIELD=natural,nvcc8,every:4 --layer Conv2 --batch 64
    """
    return _bench("schedule", path, figures, show, asked)


@bench.command(short_help="What Nsight Compute counts in the main kernel.")
@_LAYER
@click.option("--shapes", is_flag=True, help="The layers of `bench shapes`, with 1 and 8 images, in NCHW.")
@click.option("--batch", "batches", metavar="N[,N...]", callback=_sizes, help="Images. [default: 32,128]")
@click.option("--layout", "layouts", metavar="LAYOUT", multiple=True, type=_LAYOUTS, help="[default: CHWN]")
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
              help="A parameter of our kernel's source.")  # fmt: skip
@_RESULTS
@_SHOW
def counters(path: Path | None, show: bool, **asked: Any) -> int:
    """How busy the FMA pipe and the issue slots are, bank conflicts, and bytes from and to memory, by ncu."""
    return _bench("counters", path, show, asked)


@bench.command(short_help="Layers of real networks against the nearest shapes that fit.")
@click.option("--batch", "batches", metavar="N[,N...]", callback=_sizes, help="Images. [default: 1,8,32,100]")
@click.option("--layout", metavar="LAYOUT", type=_LAYOUTS, help="[default: NCHW]")
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
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
              help="Results of `bench winograd`, for the points. [default: those in docs/results/]")  # fmt: skip
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
@click.option("--batch", "batches", metavar="N[,N...]", callback=_sizes, help="Pictures. [default: 32,128,1]")
@click.option("--layout", "layouts", metavar="LAYOUT", multiple=True, type=click.Choice(["NCHW", "NHWC"]),
              help="NCHW or NHWC, which is PyTorch's channels_last. [default: both]")  # fmt: skip
@click.option("--form", "forms", metavar="FORM", multiple=True, type=click.Choice(["plain", "folded", "fused"]),
              help="plain; batch norm folded; ReLU and addition fused too. [default: all three]")  # fmt: skip
@_ONE_SOURCE
@click.option("-D", "--define", "schedule", metavar="NAME[=VALUE]", multiple=True, callback=_definitions,
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
      turingas bench resnet --batch 32,64 --figures docs/results
    """
    return _bench("resnet", path, figures, show, asked)


@bench.command(short_help="This assembler beside what else is installed; needs no GPU.")
@click.option("--arch", "archs", metavar="ARCH", multiple=True, shell_complete=_architectures,
              callback=lambda ctx, param, values: tuple(_architecture(ctx, param, value) for value in values),
              help="sm_70 to sm_90a. [default: sm_75, sm_80, sm_90]")  # fmt: skip
@click.option("--tool", "tools", metavar="NAME=PATH", multiple=True, callback=_paths,
              help="Where nvdisasm, cuobjdump, ptxas is, or the checkout of cuassembler, turingas (that of paper 004).")
@_SECONDS
@_RESULTS
@_FIGURES
@_SHOW
def assembler(path: Path | None, figures: Path | None, show: bool, **asked: Any) -> int:
    """Instructions a second that are assembled and disassembled, within a process and by whole programs.

    \b
      turingas bench assembler --figures docs/results
      turingas bench assembler --arch sm_75 --tool turingas=../turingas --tool cuassembler=../CuAssembler
    """
    return _bench("assembler", path, figures, show, asked)


@main.command(short_help="Resources, occupancy and instructions of a cubin.")
@click.argument("file", type=_CUBIN)
def info(file: str) -> None:
    """Registers, memory, parameters, occupancy and instruction mix of the kernels of a cubin."""
    with _diagnosed(file):
        from turingas.info import describe

        for line in describe(_load(file)):
            click.echo(line)


@main.command(short_help="How instructions are written.")
@click.argument("mnemonic", required=False)
@_ARCH
def isa(mnemonic: str | None, arch: str) -> None:
    """How the instruction MNEMONIC is written, its modifiers and its bits; without one, all mnemonics.

    \b
      turingas isa
      turingas isa LDG --arch sm_90
    """
    with _diagnosed("isa"):
        from turingas.isa.isa import instruction_set

        table = instruction_set(arch)
        if mnemonic is None:
            click.echo("\n".join(table.mnemonics()))
            return
        try:
            click.echo(table.describe(mnemonic))
        except AsmError as error:
            _fail("\n".join([error.message] + ([f"hint: {error.hint}"] if error.hint else [])))


def _fail(message: str, code: int = WRONG) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


@contextmanager
def _diagnosed(file: str) -> Iterator[None]:
    """Print what the library has against the input, and leave with exit code 1."""
    try:
        yield
        sys.stdout.flush()
    except AsmError as error:
        for one in error.errors:
            one.file = file if one.file == UNNAMED else one.file
        shown = [one.show() for one in sorted(error.errors, key=lambda one: (one.file, one.line, one.column))]
        _fail(_printable("\n".join(shown + [f"{len(shown)} errors"] * (len(shown) > 1))))
    except (CubinError, LaunchError) as error:
        _fail(_printable(f"{file}: error: {error}"))
    except MemoryError as error:
        _fail(f"{file}: error: not enough memory: {error}")
    except BrokenPipeError:
        # Whoever read our output is gone. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        _fail(f"{error.filename or file}: error: {error.strerror or error}")


def _printable(text: str) -> str:
    """Text that any terminal takes: what its encoding lacks is escaped."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    with open(file, "rb") as stream:
        return stream.read()


def _load(file: str) -> Any:
    data = _read(file)
    if file.endswith(".sass") and not data.startswith(ELF):
        raise LaunchError("this is no cubin", "`turingas assemble` makes one of a source")
    return _cubin(data)


def _cubin(data: bytes) -> Any:
    from turingas.cubin.cubin import Cubin

    return Cubin.from_bytes(data)


def _keep(file: str, output: str) -> None:
    """The output must not be the input: a slip with -o would destroy the source."""
    if file != "-" and output != "-" and os.path.exists(output) and os.path.samefile(file, output):
        raise click.UsageError(f"{output} is the input")


@contextmanager
def _output(output: str) -> Iterator[BinaryIO]:
    """A stream that becomes ``output`` whole or not at all: a new file takes the place of the old one."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = os.path.realpath(output)
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe
        with open(target, "wb") as stream:
            yield stream
        return
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "No such file or folder", output)
    draft = f"{target}.{os.getpid()}.tmp"
    try:
        with open(draft, "xb") as stream:
            yield stream
        os.replace(draft, target)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
