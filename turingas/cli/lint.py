"""turingas check, turingas lint: many files, each with its findings."""

from __future__ import annotations

import functools
import json
from typing import Any

import click

from turingas.cli.files import ELF, as_cubin, load, read, written
from turingas.cli.many import ANYTHING, JOBS, Job, bar, each, jobs
from turingas.cli.options import JSON, Sources, json_option, sources
from turingas.cli.output import WRONG, diagnosed, printable
from turingas.errors import LaunchError


@click.command(short_help="Disassemble cubins, assemble them again, and compare.")
@click.argument("files", type=ANYTHING, nargs=-1, required=True)
@JOBS
@JSON
def check(files: tuple[str, ...], jobs: int, as_json: bool) -> int:
    """Disassemble cubins, assemble the text again and report every difference.

    Of folders and libraries, all cubins are checked.

    \b
      turingas check *.cubin
      turingas check -j 8 libcublas.so.12
    """
    found: list[dict[str, Any]] = []
    codes = {0}
    with diagnosed("check"), bar("check", files) as tell:
        for outcome in each(_jobs(files, checked=True), _check, jobs):
            tell(outcome.job.name)
            click.echo(outcome.said, err=True, nl=False)
            codes.add(outcome.code or (WRONG if outcome.result else 0))
            if outcome.result is None:
                continue
            found.append({"file": outcome.job.name, "differences": outcome.result})
            for difference in [] if as_json else outcome.result or ["identical"]:
                click.echo(printable(f"{outcome.job.name}: {difference}"))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    return max(codes)


def _jobs(files: tuple[str, ...], archs: tuple[str, ...] = (), checked: bool = False) -> Any:
    with diagnosed(files[0]):
        for job in jobs(files, archs):
            if not checked or not job.path.endswith(".sass") or job.path in files:
                yield job


def _check(job: Job) -> list[str]:
    from turingas.disassembler import check as run

    return [str(one) for one in run(load(job.path) if job.data is None else as_cubin(job.data))]


@click.command(short_help="Find what the hardware silently gets wrong, and what costs time.")
@click.argument("files", metavar="FILE...", type=ANYTHING, nargs=-1, required=True)
@sources
@click.option("--kernel", metavar="NAME", help="Check only this kernel.")
@click.option("--default-control", metavar="CODE", help="Control code for lines that have none.")
@click.option("--severity", type=click.Choice(["note", "warning", "error"]), help="Lowest severity to show.")
@click.option("--loops/--no-loops", default=True, help="Print a summary of each loop.  [default: loops]")
@click.option("--fix", is_flag=True, help="Correct wrong stalls and waits in sources, by the scheduler.")
@JOBS
@json_option(is_flag=True, help="SARIF on stdout, for editors and CI.")
def lint(
    files: tuple[str, ...], sources: Sources, kernel: str | None, default_control: str | None, severity: str | None,
    loops: bool, fix: bool, jobs: int, as_json: bool,
) -> int:  # fmt: skip
    """Check sources (.sass, assembled first) and cubins: hazards, barriers, resources, register banks, addresses.

    Folders stand for all cubins, sources and libraries in them; libraries, executables and object files for
    their cubins. Exits with 1 if there is an error or a warning; notes are advice.

    \b
      turingas lint gemm.sass --arch sm_90
      turingas lint *.cubin --severity warning --no-loops
      turingas lint -j 8 libcublas.so.12 --arch sm_90 --severity warning
    """
    from turingas.check import command

    reports = []
    codes = {0}
    work = functools.partial(_lint, sources=sources, kernel=kernel, default_control=default_control, fix=fix)
    archs = (sources.arch,) if sources.given else ()
    with diagnosed("lint"), bar("lint", files) as tell:
        for outcome in each(_jobs(files, archs), work, jobs):
            tell(outcome.job.name)
            click.echo(outcome.said, err=True, nl=False)
            codes.add(outcome.code)
            if outcome.result is None:
                continue
            reports.append(outcome.result)
            if not as_json:
                click.echo(printable("\n".join(command.lines(outcome.result, severity, loops))))
    if as_json:
        from turingas.check.sarif import sarif

        found = [finding for report in reports for finding in command.at_least(report.findings, severity or "note")]
        with diagnosed("lint"):
            click.echo(json.dumps(sarif(found), indent=2))
    return max(codes) or (WRONG if command.fails(reports) else 0)


def _lint(job: Job, sources: Sources, kernel: str | None, default_control: str | None, fix: bool) -> Any:
    from turingas.check import command

    if job.data is not None:
        return command.look(as_cubin(job.data), job.name, kernel)
    if fix:
        _fix(job, sources)
    return command.look(sources.cubin(job.path, default_control=default_control)[0], job.name, kernel)


def _fix(job: Job, sources: Sources) -> None:
    """Mend a source file in its place; it is written whole, or not at all."""
    from turingas.check.fix import fix
    from turingas.source.lines import decode

    data = read(job.path)
    if job.path == "-" or data.startswith(ELF):
        hint = "`turingas schedule --all` makes all codes of a cubin anew; it prints what comes on stdin"
        raise LaunchError("--fix mends source files", hint)
    made = fix(decode(data, job.path), sources.arch, sources.defines, sources.include, job.path, sources.python)
    if made.fixed:
        mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
        with written(job.path) as stream:
            stream.write(mark + made.text.encode())
    if made.fixed or made.left:
        left = f", {len(made.left)} are left" if made.left else ""
        click.echo(f"{job.name}: mended: {len(made.fixed)} findings{left}", err=True)
