"""turingas disassemble."""

from __future__ import annotations

import io
import json

import click

from turingas.cli.files import keep, load, written
from turingas.cli.options import CUBIN, JSON, OUTPUT
from turingas.cli.output import diagnosed


@click.command(short_help="Turn a cubin into source.")
@click.argument("file", type=CUBIN)
@click.option("-o", "--output", type=OUTPUT, default="-", help="Source to write. [default: stdout]")
@JSON
def disassemble(file: str, output: str, as_json: bool) -> None:
    """Turn a cubin into source that assembles to the same code and resources.

    \b
      turingas disassemble kernel.cubin -o kernel.sass
    """
    keep(file, output)
    with diagnosed(file):
        from turingas.disassembler import write_source
        from turingas.info import listing

        cubin = load(file)
        with written(output) as stream:
            if as_json:
                stream.write((json.dumps(listing(cubin), indent=1) + "\n").encode())
                return
            text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="\n")
            write_source(cubin, text)
            text.flush()
            text.detach()
