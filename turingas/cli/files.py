"""The files of a command: its input read whole, its output written whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from turingas.errors import LaunchError

ELF = b"\x7fELF"  # a cubin begins so


def read(file: str, size: int = -1) -> bytes:
    """A file's bytes, or its first ``size``."""
    if file == "-":
        return sys.stdin.buffer.read(size)
    with open(file, "rb") as stream:
        return stream.read(size)


def load(file: str) -> Any:
    data = read(file)
    if file.endswith(".sass") and not data.startswith(ELF):
        raise LaunchError("this is not a cubin", "`turingas assemble` makes one from source")
    return as_cubin(data)


def as_cubin(data: bytes) -> Any:
    from turingas.cubin.cubin import Cubin

    return Cubin.from_bytes(data)


def keep(file: str, output: str) -> None:
    """The output must not be the input: a slip with -o would destroy the source."""
    if file != "-" and output != "-" and os.path.exists(output) and os.path.samefile(file, output):
        raise click.UsageError(f"{output} is the input")


@contextmanager
def written(output: str, binary: bool = False) -> Iterator[BinaryIO]:
    """A stream that becomes ``output`` whole or not at all: a new file takes the place of the old one. What is
    ``binary`` is not written to a terminal."""
    if output == "-":
        if binary and terminal():
            raise click.UsageError("a cubin is not for a terminal; write -o FILE")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = os.path.realpath(output)
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe
        with open(target, "wb") as stream:
            yield stream
        return
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "No such file or folder", output)
    draft = f"{target}.{os.getpid()}.tmp"
    try:
        with open(draft, "xb") as stream:
            yield stream
        os.replace(draft, target)
    except BaseException as error:
        if os.path.exists(draft):
            os.unlink(draft)
        if isinstance(error, OSError) and error.filename == draft:
            error.filename = output  # the draft is nobody's business
        raise


def terminal() -> bool:
    """Whether stdout is one."""
    return sys.stdout.isatty()
