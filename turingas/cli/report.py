"""turingas report."""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from turingas.cli.files import keep, written
from turingas.cli.options import HOLDER, OUTPUT, Sources, launching, sources
from turingas.cli.output import WRONG, diagnosed, printable
from turingas.errors import LaunchError

if TYPE_CHECKING:
    from turingas.cubin.pick import Found
    from turingas.report.facts import File, Run
    from turingas.report.roofline import Ceilings


@click.command(short_help="Make a page to look at kernels in a browser.")
@click.argument("files", metavar="FILE...", type=HOLDER, nargs=-1, required=True)
@click.option("-o", "--output", type=OUTPUT, help="Page to write, - for stdout. [default: the first FILE with .html]")
@click.option("--kernel", "kernels", metavar="NAME", multiple=True,
              help="Only this kernel or function; a pattern such as '*gemm*'; may be given several times.")  # fmt: skip
@click.option("--run", "args", metavar="'ARGS'", help="Run it on the CPU device, too, with these arguments.")
@launching
@sources
def report(
    files: tuple[str, ...], output: str | None, kernels: tuple[str, ...], args: str | None, grid: tuple[int, ...],
    block: tuple[int, ...] | None, seed: int, sources: Sources, **options: Any,
) -> int:  # fmt: skip
    """Make one page with all kernels in the FILEs (sources, cubins, libraries), a single file that needs no network:
    listing with control codes, source lines, scoreboards, life ranges and findings; loops cycle by cycle; control flow;
    registers in use; with --run, counters and the roofline.

    ARGS are the arguments of `turingas run`, quoted as one word; --grid and the options below it belong to that run.
    Only one kernel runs; --kernel chooses it. Source lines are read from the files that the line table names, or from
    files of those names in a folder given by -I.

    \b
      turingas report gemm.cubin -o gemm.html
      turingas report copy.sass --run "f32[1024]=random f32[1024]" --grid 8 --block 128
    """
    if output is None:
        output = os.path.splitext(os.path.basename(files[0].rstrip("/")))[0] + ".html" if files[0] != "-" else "-"
    for file in files:
        keep(file, output)
    if args is not None and len(files) > 1:
        raise click.UsageError("--run is for one FILE")
    found, code = [], 0
    for file in files:
        with diagnosed(file):
            read = sources.found(file, _exact(kernels))
            run = None
            if args is not None:
                run = _run(read, kernels, shlex.split(args), grid, block, seed, options)
                code = WRONG if run.error else code
            found.append(_file(file, read, kernels, sources.include, run))
    with diagnosed(files[0]):
        from turingas.report.page import page

        text = page(found, ceilings=_ceilings(found[0].cubin.arch) if args is not None else None)
        with written(output) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))
    return code


def _exact(patterns: tuple[str, ...]) -> str | None:
    """The one name that is asked for, by which one cubin of several is chosen."""
    return patterns[0] if len(patterns) == 1 and not set(patterns[0]) & set("*?[") else None


def _file(file: str, read: Found, patterns: tuple[str, ...], folders: tuple[str, ...], run: Run | None) -> File:
    from turingas.report.facts import File

    name = "<stdin>" if file == "-" else file
    texts = read.cubin.texts
    if run is not None and not patterns:
        patterns = (run.report.kernel.name,)
    wanted = tuple(dict.fromkeys((*patterns, *([read.kernel] if read.kernel else ()))))
    shown = [text for text in texts if not wanted or any(fnmatch.fnmatchcase(text.name, one) for one in wanted)]
    if not shown:
        raise LaunchError(f"there is no kernel {' or '.join(wanted)}", f"there are: {', '.join(t.name for t in texts)}")
    runs = {} if run is None else {run.report.kernel.name: run}
    return File(name, read.cubin, shown, runs, (*folders, os.path.dirname(file) or "."), read.source)


def _run(
    read: Found, patterns: tuple[str, ...], words: list[str], grid: tuple[int, ...], block: tuple[int, ...] | None,
    seed: int, options: dict[str, Any],
) -> Run:  # fmt: skip
    """Launch the kernel, with counters."""
    from turingas.cli import outcome
    from turingas.report.facts import Run

    names = [kernel.name for kernel in read.cubin.kernels if any(fnmatch.fnmatchcase(kernel.name, p) for p in patterns)]
    options = {**options, "kernel": read.kernel or (names[0] if len(names) == 1 else None), "counters": True}
    options["shared"] = read.shared or 0 if options["shared"] is None else options["shared"]
    block = block or (read.block or 32,)
    came = outcome.run(read.cubin, words, grid, block, [], seed, False, options)
    given = f"{shlex.join(words)} --grid {','.join(map(str, grid))} --block {','.join(map(str, block))}"
    lines = [] if came.error else list(outcome.results(came.args, came.before))
    if came.error:
        click.echo(printable(came.error), err=True)
    return Run(came.report, given, [outcome.summary(came.report), *lines], came.error)


def _ceilings(arch: str) -> Ceilings | None:
    """What `turingas bench roofline` measured on a GPU of this generation, where it has."""
    from turingas.packages import check
    from turingas.report.roofline import Ceilings

    check("loader")
    from loader.bench import results

    path = results.FOLDER / f"roofline_{arch.replace('_', '').rstrip('af')}.json"
    return Ceilings.of(json.loads(path.read_text())) if path.is_file() else None
