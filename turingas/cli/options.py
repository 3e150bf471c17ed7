"""Options that several commands have, each written once, and what turns their text into values."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from turingas.cli.files import ELF, as_cubin, read
from turingas.cli.output import ended_at_once
from turingas.errors import AsmError, LaunchError

SOURCE = click.Path(exists=True, dir_okay=False, allow_dash=True)


class Bundled(click.Path):
    """A source or cubin; the name of a kernel that comes with the package (`turingas kernels`) where no file has it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.path.exists(value) and value != "-":
            from turingas.packages import bundled

            value = next((str(path) for path in bundled() if path.name == value), value)
        return super().convert(value, param, ctx)


KERNEL = Bundled(exists=True, dir_okay=False, allow_dash=True)
HOLDER = Bundled(exists=True, allow_dash=True)  # a folder, too
CUBIN = click.Path(exists=True, dir_okay=False, allow_dash=True)
OUTPUT = click.Path(dir_okay=False, allow_dash=True)


def architecture(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """sm_75, or 75."""
    from turingas.isa.arch import arch

    try:
        return arch(value).name
    except AsmError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}") from None


def architectures(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What the shell may complete."""
    from turingas.isa.arch import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def yielding(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """A rule for yields."""
    from turingas.scheduler.codes import yield_rule

    try:
        yield_rule(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def definitions(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, object]:
    """NAME=VALUE, the value a Python literal or else a string; NAME alone is 1."""
    defines: dict[str, object] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name.isidentifier():
            raise click.BadParameter(f"{name!r} is not a valid name; write NAME=VALUE")
        try:
            defines[name] = ast.literal_eval(text) if equals else 1
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            defines[name] = text
    return defines


def known() -> str:
    """The first and the last architecture, for help texts."""
    from turingas.isa.arch import SPAN

    return SPAN


def json_option(*names: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--json as a command words it, and --json-schema, which prints what it promises: schemas/COMMAND.json."""

    def schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(SCHEMAS.joinpath(f"{ctx.info_name}.json").read_text("utf-8"), nl=False)
            ctx.exit()

    described = click.option("--json-schema", is_flag=True, is_eager=True, expose_value=False, callback=schema,
                             help="Print the schema of that JSON.")  # fmt: skip
    return lambda command: click.option("--json", "as_json", *names, **more)(described(command))


SCHEMAS = Path(__file__).parent / "schemas"
KEEP_CAPSULE = click.option("--keep-capsule", is_flag=True, help="Keep what ptxas has left of its code in a cubin "
                            "(.nv.capmerc, .nv.merc), even if the code has changed.")  # fmt: skip
JSON = json_option(is_flag=True, help="Print JSON, for programs.")
ARCH = click.option("--arch", metavar="ARCH", default="sm_75", show_default=True, callback=architecture,
                    shell_complete=architectures, help=f"{known()}; .arch in the source wins.")  # fmt: skip
EACH_ARCH = click.option(
    "--arch", "archs", metavar="ARCH", multiple=True, shell_complete=architectures,
    callback=lambda ctx, param, values: tuple(architecture(ctx, param, one) for one in values),
    help="Only for this architecture; may be given several times.",
)  # fmt: skip
DEFINE = click.option("-D", "--define", "defines", metavar="NAME[=VALUE]", multiple=True, callback=definitions,
                      help="Define a variable for the inline Python.")  # fmt: skip
INCLUDE = click.option("-I", "--include", type=click.Path(exists=True), multiple=True,
                       help="Folder for .include, or a .py file to run first.")  # fmt: skip
NO_PYTHON = click.option("--no-python", is_flag=True, help="Refuse inline Python: for sources that you do not trust.")


@dataclass(frozen=True)
class Sources:
    """How a command reads its input: what --arch, -D, -I and --no-python say."""

    arch: str
    defines: dict[str, object]
    include: tuple[str, ...]
    python: bool
    given: bool = False  # whether --arch was

    def assemble(self, file: str, source: bytes, **options: Any) -> Any:
        """The Cubin of a source file. LaunchError for what is known to be another kind of file."""
        from turingas.assembler.assembler import assemble_file

        name = "<stdin>" if file == "-" else file
        options = {"defines": self.defines, "include": self.include, "allow_python": self.python, **options}
        with ended_at_once():
            return assemble_file(source, name, self.arch, **options)

    def expanded(self, file: str, source: bytes) -> str:
        """A source file with what its inline Python and includes stand for."""
        from turingas.assembler.assembler import expanded
        from turingas.source.lines import decode

        name = "<stdin>" if file == "-" else file
        with ended_at_once():
            text = decode(source, name)
            return expanded(text, self.arch, self.defines, self.include, name, self.python)

    def told(self, cubin: Any) -> Any:
        """A cubin that was read; LaunchError when --arch asks for another architecture than it is of."""
        if self.given and self.arch != cubin.arch:
            raise LaunchError(f"the cubin is for {cubin.arch}, not for {self.arch}", "leave --arch out")
        return cubin

    def found(self, file: str, kernel: str | None) -> Any:
        """The ``turingas.cubin.pick.Found`` of a file that is a cubin or source, or of one (a library, an object, a fat
        binary) or a folder that has several; --arch then chooses among them."""
        from turingas.cubin.pick import Found, beside, holds, pick

        if os.path.isdir(file) or file != "-" and holds(read(file, 20)):
            given = click.get_current_context().get_parameter_source("arch") == ParameterSource.COMMANDLINE
            wanted = f" for {self.arch}" if given else ""
            return pick(file, kernel, lambda arch: not given or arch == self.arch, wanted)
        cubin, source = self.cubin(file)
        return Found(cubin, kernel or "", *beside(file), source)

    def cubin(self, file: str, **options: Any) -> tuple[Any, str]:
        """The Cubin of a file that is one, or else is assembled; and its source, "" of a cubin."""
        data = read(file)
        if data.startswith(ELF) or file.endswith(".cubin"):
            return self.told(as_cubin(data)), ""
        return self.assemble(file, data, **options), data.decode("utf-8", "surrogateescape")


def sources(command: Callable[..., Any]) -> Callable[..., Any]:
    """--arch, -D, -I and --no-python; the command gets them as one ``Sources``, called ``sources``."""

    @functools.wraps(command)
    def run(arch: str, defines: dict[str, object], include: tuple[str, ...], no_python: bool, **rest: Any) -> Any:
        given = click.get_current_context().get_parameter_source("arch") == ParameterSource.COMMANDLINE
        return command(sources=Sources(arch, defines, include, not no_python, given), **rest)

    return ARCH(DEFINE(INCLUDE(NO_PYTHON(run))))


def three(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """One to three numbers: 256, or 16,16."""
    if value is None:
        return None
    try:
        numbers = tuple(int(part, 0) for part in value.replace("x", ",").split(","))
    except ValueError:
        numbers = ()
    if not 1 <= len(numbers) <= 3:
        raise click.BadParameter(f"{value!r} is not one to three numbers, such as 256 or 16,16")
    return numbers


def launching(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a kernel is launched on the CPU device, and what is looked at meanwhile."""
    for option in reversed(LAUNCH):
        command = option(command)
    return command


class Modes(click.Option):
    """An option that takes the next word only if that is one of its choices: else it is a flag, as it once was. What
    stands behind "=" is its value in any case."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)

        def match(name: str, value: str | None, state: Any, then: Any = parser._match_long_opt) -> None:
            if name in self.opts and value is not None:
                self.type.convert(value, self, ctx)
            then(name, value, state)

        parser._match_long_opt = match
        known = self.type.choices if isinstance(self.type, click.Choice) else ()
        for name in self.opts:
            option = parser._long_opt[name]

            def process(value: Any, state: Any, then: Any = option.process) -> None:
                if isinstance(value, str) and value not in known:
                    state.rargs.insert(0, value)
                    value = self.flag_value
                then(value, state)

            option.process = process


def races_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--races [shared|global]; its value is False where it is not given."""
    return click.option("--races", cls=Modes, is_flag=False, flag_value="shared", metavar="[global]",
                        type=click.Choice(["shared", "global"]), callback=lambda ctx, param, value: value or False,
                        help=f"{about}; with --races global, also in global memory.")  # fmt: skip


LAUNCH = (
    click.option("--grid", metavar="X[,Y[,Z]]", default="1", callback=three, show_default=True,
                 help="Blocks in the grid."),
    click.option("--block", metavar="X[,Y[,Z]]", callback=three,
                 help="Threads in a block. [default: from Triton's metadata, else 32]"),
    click.option("--shared", type=click.IntRange(min=0),
                 help="Bytes of dynamic shared memory. [default: from Triton's metadata, else 0]"),
    click.option("--cluster", metavar="X[,Y[,Z]]", callback=three, help="Blocks in a cluster."),
    click.option("--cooperative", is_flag=True, help="All blocks run at once, and may wait for each other."),
    click.option("--strict", is_flag=True, help="Obey stalls and scoreboards: using a result too early is an error."),
    click.option("--stale", is_flag=True, help="Poison what copies may still write; with --strict, use old values."),
    races_option("Find races in shared memory"),
    click.option("--written", is_flag=True, help="Reading uninitialised memory is an error."),
    click.option("--budget", type=click.IntRange(min=1),
                 help="Most instructions that a warp may run. [default: 1000000]"),
    click.option("--stack", metavar="BYTES", type=click.IntRange(min=0),
                 help="Stack of each thread, besides the kernel's own frame, for recursion. [default: 1024]"),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Seed of the arrays that are =random."),
)  # fmt: skip


def sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers parted by commas, each at least 1; how many is the option's business."""
    if value is None:
        return None
    numbers = tuple(int(part) if part.strip().isdecimal() else 0 for part in value.split(","))
    wanted = {"shape": (5,), "filters": (1, 2)}.get(param.name or "", range(1, 100))
    if len(numbers) not in wanted or 0 in numbers:
        raise click.BadParameter(f"{value!r}: write {param.metavar}, numbers of at least 1")
    return numbers


def several(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[object, ...]]:
    """NAME=VALUE,VALUE,..., the values as those of -D."""
    found: dict[str, tuple[object, ...]] = {}
    for value in values:
        name, _, text = value.partition("=")
        if not text:
            raise click.BadParameter(f"{value!r}: write NAME=VALUE,VALUE,...")
        found[name] = tuple(definitions(ctx, param, (f"{name}={word}",))[name] for word in text.split(","))
    return found


def paths(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=PATH."""
    if wrong := [value for value in values if not all(value.partition("="))]:
        raise click.BadParameter(f"{wrong[0]!r}: write NAME=PATH")
    return {name: path for name, _, path in (value.partition("=") for value in values)}


class Numbers(click.Command):
    """A command among whose arguments may be negative numbers, which look like options."""

    NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.I)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {name for p in self.params if isinstance(p, click.Option) and p.is_flag for name in p.opts}
        for at, word in enumerate(args):
            before = args[at - 1] if at else ""
            taken = before.startswith("-") and before not in flags and "=" not in before  # the value of an option
            if self.NEGATIVE.match(word) and not taken and "--" not in args[:at]:
                args[at] = "\0" + word
        rest = super().parse_args(ctx, args)
        ctx.params["args"] = tuple(word.removeprefix("\0") for word in ctx.params.get("args", ()))
        return rest
