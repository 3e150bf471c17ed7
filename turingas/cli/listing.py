"""turingas disassemble."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING

import click

from turingas.cli.files import keep, load, terminal, written
from turingas.cli.options import CUBIN, JSON, OUTPUT
from turingas.cli.output import diagnosed
from turingas.errors import LaunchError

if TYPE_CHECKING:
    from turingas.cubin.cubin import Cubin
    from turingas.listing import Shown


@click.command(short_help="Turn a cubin into source.")
@click.argument("file", type=CUBIN)
@click.option("-o", "--output", type=OUTPUT, default="-", help="Source to write. [default: stdout]")
@click.option("--kernel", "kernels", metavar="NAME", multiple=True,
              help="Only this kernel or function; a pattern such as '*gemm*'; may be given several times.")  # fmt: skip
@click.option("--source", is_flag=True, help="Comments with the lines that code was compiled from (-lineinfo).")
@click.option("-I", "--include", "folders", type=click.Path(exists=True, file_okay=False), multiple=True,
              help="With --source: a folder to look for its files in.")  # fmt: skip
@click.option("--hex", "hexadecimal", is_flag=True, help="Comments with the 128-bit words.")
@click.option("--life", is_flag=True, help="Comments with life ranges of registers, in columns.")
@click.option("--descriptors", is_flag=True,
              help="Comments with what the code shows of the descriptors of matrix products.")  # fmt: skip
@click.option("--no-debug", is_flag=True, help="Leave out debug sections.")
@click.option("--cfg", type=click.Choice(["dot", "svg"]), help="Instead: the control-flow graph, as DOT or SVG.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
              help="Colours; auto: on a terminal, if Pygments is installed and NO_COLOR is not set.")  # fmt: skip
@JSON
def disassemble(
    file: str, output: str, kernels: tuple[str, ...], source: bool, folders: tuple[str, ...], hexadecimal: bool,
    life: bool, descriptors: bool, no_debug: bool, cfg: str | None, color: str, as_json: bool,
) -> None:  # fmt: skip
    """Turn a cubin into source that assembles to the same code and resources; --kernel and --no-debug leave parts out.

    In the columns of --life, ^ writes a register, v reads it, x does both, and : means that it is live.

    \b
      turingas disassemble kernel.cubin -o kernel.sass
      turingas disassemble kernel.cubin --kernel '*gemm*' --source --life
      turingas disassemble kernel.cubin --cfg svg -o kernel.svg
    """
    keep(file, output)
    with diagnosed(file):
        from turingas.disassembler import write_source
        from turingas.info import listing
        from turingas.listing import Shown

        shown = Shown(kernels, source, hexadecimal, life, not no_debug, folders, descriptors)
        cubin = load(file)
        with written(output) as stream:
            if as_json:
                stream.write((json.dumps(listing(cubin, shown), indent=1) + "\n").encode())
                return
            if cfg:
                stream.write(picture(cubin, shown, cfg).encode())
                return
            if output == "-" and coloured(color):
                stream.write(painted(cubin, shown).encode("utf-8", "surrogateescape"))
                return
            text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="\n")
            write_source(cubin, text, shown)
            text.flush()
            text.detach()


def picture(cubin: Cubin, shown: Shown, kind: str) -> str:
    """The control-flow graphs of the kernels that are shown. An SVG has one."""
    from turingas.flow import draw
    from turingas.flow.graph import Graph

    wanted = [text for text in cubin.texts if shown.wants(text)]
    if kind == "svg" and len(wanted) != 1:
        names = ", ".join(text.name for text in wanted or cubin.texts)
        raise LaunchError(f"an SVG shows one kernel, and there are {len(wanted)}", f"choose with --kernel: {names}")
    return "".join(draw.svg(Graph(text)) if kind == "svg" else draw.dot(Graph(text)) for text in wanted)


def coloured(color: str, needs: str = "pygments") -> bool:
    """Whether stdout gets colours. LaunchError where they are asked for and Pygments, which they need, is not there."""
    if color == "never" or color == "auto" and (not terminal() or "NO_COLOR" in os.environ):
        return False
    if not needs:
        return True
    try:
        import pygments  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        if color == "always":
            raise LaunchError("colours need Pygments", "pip install pygments") from None
        return False
    return True


def painted(cubin: Cubin, shown: Shown) -> str:
    """The listing with colours for a terminal."""
    from pygments import highlight
    from pygments.formatters import TerminalFormatter  # type: ignore[import-untyped]

    from turingas.disassembler import disassemble
    from turingas.source.lexer import SassLexer

    return str(highlight(disassemble(cubin, shown), SassLexer(stripnl=False), TerminalFormatter()))
