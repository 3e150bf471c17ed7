"""turingas bench: a command for each ``Bench`` (loader.bench.bench) that a module has, found when it is asked for."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from turingas.cli.options import architecture, architectures, definitions, paths, several, sizes
from turingas.cli.output import diagnosed
from turingas.packages import check

#: packages and modules with benches: a module that makes some names them in BENCH or BENCHES
PLACES = ["kernels_sass.bench", "kernels_sass.micro", "turingas.speed"]
NAMED = re.compile(r"^BENCH(?:ES)? = ", re.MULTILINE)


def _archs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(architecture(ctx, param, value) for value in values)


#: what reads the text of an option, by the kind that the bench says
READ: dict[str, Any] = {"sizes": sizes, "definitions": definitions, "values": several, "paths": paths,
                        "architectures": _archs}  # fmt: skip


class Benches(click.Group):
    """Looks for benches when one of its commands is wanted, and imports only those modules that have its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(benches())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = benches(name).get(name)
        return None if found is None else command(found)


def benches(name: str = "") -> dict[str, Any]:
    """All ``Bench`` that there are, by name; those at least of the modules in whose text a ``name`` stands in quotes.
    Modules without any are not imported: they may want PyTorch or Triton."""
    quoted = re.compile(f"[\"']{re.escape(name)}[\"']" if name else "")
    found = {}
    for module, text in _sources(*PLACES).items():
        if quoted.search(text):
            made: Any = importlib.import_module(module)
            found.update({one.name: one for one in getattr(made, "BENCHES", None) or [made.BENCH]})
    return found


@functools.cache
def _sources(*places: str) -> dict[str, str]:
    """The texts of modules that have benches."""
    with diagnosed("bench"):
        check("loader", "kernels_sass")
    found = {}
    for place in places:
        spec = find_spec(place)
        folders = spec.submodule_search_locations if spec else None
        below = [f"{place}.{one.name}" for one in pkgutil.iter_modules(folders)] if folders is not None else []
        for module in below or [place]:
            file = getattr(find_spec(module), "origin", None)
            text = Path(file).read_text("utf-8") if file else ""
            if NAMED.search(text):
                found[module] = text
    return found


def command(bench: Any) -> click.Command:
    """The command of a ``loader.bench.bench.Bench``."""
    params: list[click.Parameter] = [parameter(option) for option in bench.options]
    kept = click.Path(dir_okay=False, path_type=Path)
    where = "Where to keep the results. [default, for all settings: kernels_sass/results/ of a checkout, else here]"
    params.append(click.Option(["--json", "path"], metavar="FILE", type=kept, help=where))
    if bench.figures:
        folder = click.Path(file_okay=False, path_type=Path)
        params.append(click.Option(["--figures"], metavar="FOLDER", type=folder, help="Draw the figures, as SVG."))
    params.append(click.Option(["--show"], is_flag=True, help="Print the results that are kept; needs no GPU."))

    def run(path: Path | None, show: bool, figures: Path | None = None, **asked: Any) -> int:
        with diagnosed(f"bench {bench.name}"):  # it tells by print, which rich puts above its bar
            code: int = bench.command(asked, path, figures, show, print)
            return code

    return click.Command(bench.name, callback=run, params=params, help=bench.help, short_help=bench.short)


def parameter(option: Any) -> click.Parameter:
    """An option of a bench as click has it; a name without dashes is of arguments, which are files or folders."""
    if option.names[0] != "-":
        return click.Argument([option.to], nargs=-1, metavar=option.names, type=click.Path(exists=True))
    kind, more = option.kind, {"multiple": option.many, "help": option.help, "metavar": option.metavar or None}
    if kind is bool:
        return click.Option([*option.names.split(), option.to], is_flag=True, help=option.help)
    if isinstance(kind, tuple):
        more["type"] = click.Choice(kind)
    elif kind is Path:
        more["type"] = click.Path(exists=True, dir_okay=False, path_type=Path)
    elif kind is int:
        more["type"] = click.IntRange(min=int(option.least))
    elif kind is float:
        more["type"] = click.FloatRange(min=option.least)
    elif kind is not str:
        more |= {"callback": READ[kind]} | ({"shell_complete": architectures} if kind == "architectures" else {})
    return click.Option([*option.names.split(), option.to], **more)


@click.command(cls=Benches, short_help="Measure the kernels on this machine's GPU.")
def bench() -> None:
    """Measure the kernels of kernels_sass on this machine's GPU, beside the other libraries that are installed."""
