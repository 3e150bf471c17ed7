"""turingas diff."""

from __future__ import annotations

import json
from typing import Any

import click

from turingas.cli.files import ELF, as_cubin, read, written
from turingas.cli.listing import coloured
from turingas.cli.options import JSON, KERNEL, OUTPUT, Sources, sources
from turingas.cli.output import WRONG, diagnosed, printable

COLOURS = {"-": "red", "+": "green"}


@click.command(short_help="Show what differs between two cubins or sources.")
@click.argument("a", type=KERNEL)
@click.argument("b", type=KERNEL)
@sources
@click.option("--registers", is_flag=True, help="Ignore which registers are used.")
@click.option("--no-control", is_flag=True, help="Ignore control codes and reuse flags.")
@click.option("--fail-if", "conditions", metavar="WHAT", multiple=True, default=("differs",), show_default=True,
              type=click.Choice(["differs", "slower", "registers", "memory", "findings"]),
              help="Exit with 1 if a function differs; gets slower by the model of loops; takes more registers, or "
              "memory; has new errors or warnings. May be given several times.")  # fmt: skip
@click.option("--context", type=click.IntRange(min=0), default=2, show_default=True,
              help="Instructions to show around what changed.")  # fmt: skip
@click.option("--html", type=OUTPUT, help="Also write a page with both listings side by side.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
              help="Colours; auto: on a terminal, unless NO_COLOR is set.")  # fmt: skip
@JSON
def diff(
    a: str, b: str, sources: Sources, registers: bool, no_control: bool, conditions: tuple[str, ...], context: int,
    html: str | None, color: str, as_json: bool,
) -> int:  # fmt: skip
    """Show what differs between A and B, function by function: resources, cycles of loops, findings, instructions.

    Exits with 0 if they are the same, and 1 if not; with --fail-if, with 1 only if one of these holds.

    \b
      turingas diff before.cubin after.cubin --fail-if slower
      turingas diff gemm.sass gemm.cubin --registers --html diff.html
    """
    with diagnosed(a):
        one = _load(a, sources)
    with diagnosed(b):
        other = _load(b, sources)
        from turingas.compare import diff as compare

        found = compare(one, other, registers, not no_control)
        found.names = a, b
        if html is not None:
            from turingas.diff_page import page

            with written(html) as stream:
                stream.write(page(found).encode("utf-8", "surrogateescape"))
        failures = found.failures(conditions)
        if as_json:
            failed = [{"function": name, "condition": what} for name, what in failures]
            click.echo(json.dumps(found.to_dict() | {"failed": failed}, indent=1))
        else:
            paint = coloured(color, "")
            for line in found.lines(context):
                line = printable(line)
                colour = COLOURS.get(line.lstrip()[:1]) if line[0] in "-+ " else "yellow" if paint else None
                click.echo(click.style(line, fg=colour) if paint and colour else line, color=paint)
            for name, what in failures:
                if what != "differs":
                    click.echo(printable(f"{name}: fails: {what}"), color=paint)
    return WRONG if failures else 0


def _load(file: str, sources: Sources) -> Any:
    data = read(file)
    if data.startswith(ELF) or file.endswith(".cubin"):
        return as_cubin(data)
    return sources.assemble(file, data)
