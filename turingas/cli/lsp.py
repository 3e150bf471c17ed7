"""turingas lsp."""

from __future__ import annotations

import click

from turingas.cli.options import Sources, sources
from turingas.cli.output import diagnosed
from turingas.errors import LaunchError


@click.command(short_help="A language server, for editors.")
@sources
@click.option("--python", is_flag=True, help="Run inline Python of the sources that are opened.")
def lsp(sources: Sources, python: bool) -> None:
    """A language server on stdin and stdout (LSP): diagnostics of assembler and linter while you type, hover,
    completion, definitions, rename, inlay hints, folding, formatting, code actions.

    Inline Python is not run unless --python, or the editor's setting allowPython, allows it, since you
    may open files that you do not trust. Needs the package pygls.
    """
    with diagnosed("lsp"):
        try:
            from turingas.editor.server import server
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
                raise
            raise LaunchError("the language server needs pygls", "pip install 'pygls>=2'") from None
        from turingas.editor.analysis import Settings

        made = server(Settings(sources.arch, python and sources.python, sources.include, sources.defines))
    made.start_io()  # ends the process, with stdin and stdout closed
