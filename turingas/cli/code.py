"""The commands that read and write code: assemble, schedule, extract, info, isa."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import click

from turingas.cli.files import keep, load, read, written
from turingas.cli.options import (
    ARCH,
    CUBIN,
    EACH_ARCH,
    JSON,
    KEEP_CAPSULE,
    KERNEL,
    OUTPUT,
    SOURCE,
    Sources,
    sources,
    yielding,
)
from turingas.cli.output import diagnosed, diagnostic, ended_at_once, fail, printable, warned
from turingas.errors import AsmError, LaunchError


@click.command(short_help="Assemble source into a cubin.")
@click.argument("file", type=SOURCE)
@click.option("-o", "--output", type=OUTPUT, help="Cubin to write, - for stdout. [default: FILE with .cubin]")
@sources
@click.option("--kernel", default="kern", show_default=True, help="Name of the kernel in a file without .kernel.")
@click.option("--default-control", metavar="CODE", help="Control code for lines that have none.")
@click.option("-E", "--expand", is_flag=True, help="Print the source with inline Python and includes expanded instead.")
@KEEP_CAPSULE
@JSON
def assemble(
    file: str,
    output: str | None,
    sources: Sources,
    kernel: str,
    default_control: str | None,
    expand: bool,
    keep_capsule: bool,
    as_json: bool,
) -> None:
    """Assemble a source FILE (- for stdin) into a cubin.

    Listings of nvdisasm and cuobjdump -sass are read, too. If they have no words in comments (nvdisasm without
    -hex), control codes are filled in.

    \b
      turingas assemble gemm.sass
      turingas assemble gemm.sass -o gemm90.cubin --arch sm_90 -D TILE=128
      turingas assemble -E gemm.sass | less
    """
    if expand and as_json:
        raise click.UsageError("-E prints source, --json prints JSON: choose one")
    if expand:
        with diagnosed(file), written(output or "-") as stream:
            stream.write(sources.expanded(file, read(file)).encode("utf-8", "surrogateescape"))
        return
    if output is None:
        output = "-" if file == "-" else os.path.splitext(file)[0] + ".cubin"
    keep(file, output)
    if as_json and output == "-":
        raise click.UsageError("stdout has room for the cubin or for JSON; write -o FILE")
    found: dict[str, Any] = {"file": file, "output": None, "arch": None, "kernels": [], "errors": []}
    with diagnosed(file), warned() as found["warnings"]:
        try:
            options = {"kernel": kernel, "default_control": default_control, "keep_capsule": keep_capsule}
            cubin = sources.assemble(file, read(file), **options)
            data = cubin.to_bytes()
            with written(output, binary=True) as stream:
                stream.write(data)
            if as_json:
                from turingas.info import resources

                found |= {"output": output, "arch": cubin.arch, "kernels": [resources(one) for one in cubin.kernels]}
        except AsmError as error:
            found["errors"] = [diagnostic(one) for one in error.errors]
            raise
        finally:
            if as_json:
                click.echo(json.dumps(found, indent=1))


@click.command(short_help="Fill in control codes: stalls, yields, scoreboards, reuse flags.")
@click.argument("file", type=KERNEL)
@click.option(
    "-o", "--output", type=OUTPUT, default="-", help="Source to write; NAME.cubin: a cubin. [default: stdout]"
)
@sources
@click.option("--all", "every", is_flag=True, help="Discard all codes that are there, and generate them again.")
@click.option("--yield", "yields", metavar="RULE", default="ptxas", show_default=True, callback=yielding,
              help="When a warp yields to another: ptxas (after arithmetic that stalls for 3 cycles or more, or for 2 "
              "if the warp has kept the slot for 12), natural (where the hardware requires it), every:N.")  # fmt: skip
@click.option("--reorder", is_flag=True, help="Also put instructions whose codes are filled in into a better order.")
@click.option("--rename", is_flag=True,
              help="With --reorder: also give other registers to values that live within a block.")
@click.option("--pipeline", is_flag=True, help="Reorder, and let iterations of loops overlap (of a source).")
@click.option("--explain", is_flag=True, help="List on stderr what could not be worked out, and is waited for.")
@KEEP_CAPSULE
@JSON
def schedule(
    file: str, output: str, sources: Sources, every: bool, yields: str, reorder: bool, rename: bool, pipeline: bool,
    explain: bool, keep_capsule: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print a source FILE with its control codes filled in, as `turingas assemble` does: on lines that have none, and
    wherever a code has a ?.

    Comments and names stay; inline Python and .include are replaced by what they expand to. A code that the author
    wrote is kept; one that cannot be right is an error. With --all every code is generated again, also those of a
    cubin.

    \b
      turingas schedule gemm.sass -o gemm_codes.sass
      turingas schedule kernel.cubin --all -o again.cubin
    """
    from turingas.cli.files import ELF, as_cubin

    keep(file, output)
    with diagnosed(file):
        from turingas.assembler.schedule import again, listing
        from turingas.disassembler import disassemble as taken_apart
        from turingas.source.lines import decode

        data = read(file)
        binary = output.endswith(".cubin")
        if data.startswith(ELF):
            if pipeline:
                raise click.UsageError("--pipeline is for sources; `turingas disassemble` makes one of a cubin")
            if (reorder or rename) and not every:
                what = "--reorder" if reorder else "--rename"
                raise click.UsageError(f"all codes of a cubin are there, and nothing changes: {what} needs --all")
            cubin = as_cubin(data)
            cubin.keep_capsule = keep_capsule
            cubin, notes = again(sources.told(cubin), yields, reorder, rename) if every else (cubin, [])
            made = cubin.to_bytes() if binary else taken_apart(cubin).encode("utf-8", "surrogateescape")
        else:
            name = "<stdin>" if file == "-" else file
            include = (*sources.include, *(() if file == "-" else (os.path.dirname(file) or ".",)))
            with ended_at_once():
                text, notes = listing(
                    decode(data, name), sources.arch, sources.defines, include, name, allow_python=sources.python,
                    keep=not every, yields=yields, reorder=reorder, rename=rename, pipeline=pipeline,
                )  # fmt: skip
            made = text.encode("utf-8")
            if binary:
                made = sources.assemble(file, made, keep_capsule=keep_capsule).to_bytes()
        to_json = as_json and output == "-"
        if not to_json:
            with written(output, binary=binary) as stream:
                stream.write(made)
        if as_json:
            shown = made.decode("utf-8", "replace") if to_json else None
            found = {"file": file, "output": None if to_json else output, "source": shown, "notes": notes}
            click.echo(json.dumps(found, indent=1))
        for note in notes if explain else ():
            click.echo(printable(note), err=True)


@click.command(short_help="Take the cubins out of a library, an executable or an object file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", metavar="FOLDER", default=".", type=click.Path(file_okay=False),
              help="Where to write them; created if it does not exist. [default: the current folder]")  # fmt: skip
@EACH_ARCH
@JSON
def extract(file: str, output: str, archs: tuple[str, ...], as_json: bool) -> None:
    """Write the cubins of FILE to FOLDER, as FILE.NUMBER.ARCH.cubin, and print their names.

    FILE is any file with device code: a library, static or shared, an executable, an object file, a fatbin.

    \b
      turingas extract libcublas.so.12 -o cubins --arch sm_90
    """
    with diagnosed(file):
        from turingas.cubin import fatbin

        number = 0
        found = []
        for number, arch, cubin in fatbin.cubins(file, archs):
            os.makedirs(output, exist_ok=True)
            path = os.path.join(output, f"{os.path.basename(file)}.{number:04}.{arch}.cubin")
            with written(path, binary=True) as stream:
                stream.write(cubin)
            found.append({"path": path, "number": number, "arch": arch, "bytes": len(cubin)})
            if not as_json:
                click.echo(printable(path))
        if not number:
            among = f" for {' or '.join(archs)}" if archs else ""
            raise LaunchError(f"no cubin{among} in this file", "it may hold PTX alone, which the driver compiles")
        if as_json:
            click.echo(json.dumps({"file": file, "cubins": found}, indent=1))


@click.command(short_help="Show resources, occupancy and instructions of a cubin.")
@click.argument("file", type=CUBIN)
@JSON
def info(file: str, as_json: bool) -> None:
    """Show registers, memory, parameters, occupancy and instruction mix of the kernels of a cubin."""
    with diagnosed(file):
        from turingas.info import as_dict, describe

        cubin = load(file)
        text = json.dumps(as_dict(cubin), indent=2) if as_json else printable("\n".join(describe(cubin)))
        click.echo(text)


@click.command(short_help="Show how instructions are written, and their bits.")
@click.argument("mnemonic", required=False)
@ARCH
@click.option("-k", "--search", "words", metavar="WORDS",
              help="Mnemonics with all of these words in description, PTX or CUDA C++ names, or modifiers.")
@click.option("--descriptor", nargs=2, metavar="KIND VALUE",
              help="Decode a descriptor of a matrix product, or a tensor map (KIND tensor-map).")  # fmt: skip
@click.option("--diff", "pair", nargs=2, metavar="ARCH ARCH", help="What differs between two architectures.")
@JSON
def isa(mnemonic: str | None, arch: str, words: str | None, descriptor: tuple[str, str] | None,
        pair: tuple[str, str] | None, as_json: bool) -> None:  # fmt: skip
    """What the instruction MNEMONIC does, how it is written, its modifiers and its bits; without one, all mnemonics.
    A name from PTX or CUDA C++, or any word, finds the mnemonics that it belongs to.

    \b
      turingas isa
      turingas isa LDG --arch sm_90
      turingas isa shfl.sync
      turingas isa -k 'shared atomic' --arch sm_90
      turingas isa --diff sm_90 sm_100
      turingas isa --descriptor UTCHMMA 0x08200010
    """
    with diagnosed("isa"):
        if descriptor:
            _descriptor(*descriptor, as_json)
            return
        if pair:
            _differences(pair, mnemonic, as_json)
            return
        from turingas.isa.descriptors import kinds_of
        from turingas.isa.isa import instruction_set
        from turingas.isa.table import OPS

        table = instruction_set(arch)
        if words is not None and mnemonic is not None:
            raise click.UsageError("a mnemonic, or -k WORDS: choose one")
        if mnemonic is None:
            names = table.mnemonics() if words is None else table.search(words)
            if not names:
                fail(f"no mnemonic of {arch} has {words!r} in what it does or in its modifiers")
            examples = {name: table.example(name) for name in names} if as_json or words is not None else {}
            if as_json:
                found = [{"mnemonic": name, "does": OPS[name].does, "ptx": OPS[name].ptx, "example": examples[name]}
                         for name in names]  # fmt: skip
                click.echo(json.dumps({"arch": arch, "mnemonics": found}, indent=1))
                return
            for name in names:
                op = OPS[name]
                click.echo(f"{name:15} {op.does}" + (f" [{op.ptx}]" if op.ptx else ""))
                if name in examples:
                    click.echo(f"{'':15}   {examples[name]}")
            return
        forms = table.named(mnemonic)
        if as_json and forms:
            rows = [{"text": one.text, "bits": f"0x{one.value:032x}", "fixed": f"0x{one.mask:032x}"} for one in forms]
            click.echo(json.dumps({"arch": arch, "mnemonic": mnemonic, "forms": rows}, indent=2))
            return
        try:
            click.echo(table.describe(mnemonic))
            for kind in kinds_of(mnemonic.upper()) if forms else ():
                click.echo("\n".join([f"\ndescriptor {kind}:", *_fields(kind)]))
        except AsmError as error:
            fail("\n".join([error.message] + ([f"hint: {error.hint}"] if error.hint else [])))


def _fields(kind: str) -> list[str]:
    """The table of a descriptor's fields."""
    from turingas.isa.descriptors import table

    return [f"  {bits:>6}  {name:18} {values}" for bits, name, values in table(kind)]


def _descriptor(kind: str, text: str, as_json: bool) -> None:
    """``isa --descriptor``."""
    from turingas import tensor_map
    from turingas.isa.descriptors import BITS, KINDS, parts

    if kind != "tensor-map" and kind not in KINDS:
        raise click.UsageError(f"no descriptor is called {kind!r}; there are: {', '.join([*KINDS, 'tensor-map'])}")
    try:
        raw = bytes.fromhex(text.removeprefix("0x")) if kind == "tensor-map" else b""
        value = 0 if raw else int(text, 0)
    except ValueError:
        raise click.UsageError(f"{text!r} is no number; 0x08200010 is one") from None
    if kind == "tensor-map":
        if len(raw) != tensor_map.NBYTES:
            raise LaunchError(f"a tensor map has {tensor_map.NBYTES} bytes, not {len(raw)}", "in hexadecimal")
        address, layout = tensor_map.unpack(raw)
        rows = [("address", f"{address:#x}"), *((key, str(one)) for key, one in vars(layout).items())]
    else:
        if not 0 <= value < 1 << BITS[kind]:
            raise LaunchError(f"{text} does not fit the {BITS[kind]} bits of a descriptor {kind}")
        rows = [(field.name, told) for field, told in parts(kind, value)]
    if as_json:
        click.echo(json.dumps({"descriptor": kind, "fields": dict(rows)}, indent=1))
    else:
        click.echo("\n".join(f"{name:18} {told}" for name, told in rows))


def _differences(pair: tuple[str, str], mnemonic: str | None, as_json: bool) -> None:
    """``isa --diff``."""
    from turingas.isa import compare
    from turingas.isa.arch import arch
    from turingas.isa.isa import instruction_set

    first, second = (arch(name).name for name in pair)
    if mnemonic and not any(instruction_set(name).named(mnemonic.upper()) for name in (first, second)):
        fail(f"neither {first} nor {second} has {mnemonic}")
    found = compare.changes(first, second, mnemonic)
    if as_json:
        click.echo(json.dumps({"first": first, "second": second, "changes": [asdict(one) for one in found]}, indent=1))
    else:
        click.echo("\n".join(compare.lines(first, second, found, mnemonic is not None)))
