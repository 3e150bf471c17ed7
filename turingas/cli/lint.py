"""turingas check, turingas lint: many files, each with its findings."""

from __future__ import annotations

import json

import click

from turingas.cli.files import load
from turingas.cli.options import CUBIN, JSON, KERNEL, Sources, sources
from turingas.cli.output import WRONG, diagnosed, printable


@click.command(short_help="Disassemble cubins, assemble them again, and compare.")
@click.argument("files", type=CUBIN, nargs=-1, required=True)
@JSON
def check(files: tuple[str, ...], as_json: bool) -> int:
    """Disassemble cubins, assemble the text again and report every difference.

    \b
      turingas check *.cubin
    """
    wrong, found = 0, []
    for file in files:
        try:
            with diagnosed(file):
                from turingas.disassembler import check as run

                differences = run(load(file))
                found.append({"file": file, "differences": [str(one) for one in differences]})
                for difference in [] if as_json else differences or ["identical"]:
                    click.echo(printable(f"{file}: {difference}"))
                if differences:
                    wrong = WRONG
        except SystemExit as error:
            if error.code != WRONG:
                raise
            wrong = WRONG
    if as_json:
        click.echo(json.dumps(found, indent=2))
    return wrong


@click.command(short_help="Find what the hardware silently gets wrong, and what costs time.")
@click.argument("files", metavar="FILE...", type=KERNEL, nargs=-1, required=True)
@sources
@click.option("--kernel", metavar="NAME", help="Check only this kernel.")
@click.option("--default-control", metavar="CODE", help="Control code for lines that have none.")
@click.option("--severity", type=click.Choice(["note", "warning", "error"]), help="Lowest severity to show.")
@click.option("--loops/--no-loops", default=True, help="Print a summary of each loop.  [default: loops]")
@click.option("--json", "as_json", is_flag=True, help="SARIF on stdout, for editors and CI.")
def lint(
    files: tuple[str, ...],
    sources: Sources,
    kernel: str | None,
    default_control: str | None,
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
            with diagnosed(file):
                cubin, _ = sources.cubin(file, default_control=default_control)
                report = command.look(cubin, "<stdin>" if file == "-" else file, kernel)
                reports.append(report)
                if not as_json:
                    click.echo(printable("\n".join(command.lines(report, severity, loops))))
        except SystemExit as error:
            if error.code != WRONG:
                raise
            wrong = WRONG
    if as_json:
        from turingas.check.sarif import sarif

        found = [finding for report in reports for finding in command.at_least(report.findings, severity or "note")]
        with diagnosed("lint"):
            click.echo(json.dumps(sarif(found), indent=2))
    return WRONG if wrong or command.fails(reports) else 0
