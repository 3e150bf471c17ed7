"""How commands end and print: exit codes, diagnostics of the library, text that any terminal takes."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from turingas.errors import UNNAMED, AsmError, AsmWarning, CubinError, LaunchError, LaunchWarning

INTERRUPTED = 130  # as shells report SIGINT
BROKEN_PIPE = 141  # ... and SIGPIPE
WRONG = 1  # the input is wrong
SHOWN = 100  # errors that are printed; what is behind them is mostly for the same reason
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a terminal would obey them


def _warn(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning as a line of text, without the Python line that it came from."""
    head = "" if issubclass(category, AsmWarning) else "warning: "
    click.echo(f"{head}{message}", err=True)


class Commands(click.Group):
    """A group whose failures are short: a diagnostic and an exit code, no traceback."""

    def main(self, *args: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", AsmWarning)
                warnings.simplefilter("always", LaunchWarning)
                warnings.showwarning = _warn
                result = super().main(*args, **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            fail("interrupted", INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)


def fail(message: str, code: int = WRONG) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Ctrl-C ends the process as the system does it. For sources: one call of their inline Python may never come back
    to where Python looks for signals, and nothing is written before they are assembled."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def diagnosed(file: str) -> Iterator[None]:
    """Print what the library has against the input, and leave with exit code 1."""
    try:
        yield
        sys.stdout.flush()
    except AsmError as error:
        for one in error.errors:
            one.file = file if one.file == UNNAMED else one.file
        errors = sorted(error.errors, key=lambda one: (one.file, one.line, one.column))
        total = f"{len(errors)} errors" + (f"; the first {SHOWN} are shown" if len(errors) > SHOWN else "")
        fail(printable("\n".join([one.show() for one in errors[:SHOWN]] + [total] * (len(errors) > 1))))
    except (CubinError, LaunchError, ImportError) as error:
        fail(printable(f"{file}: error: {error}"))
    except MemoryError as error:
        fail(f"{file}: error: not enough memory: {error}")
    except BrokenPipeError:
        # Whoever read our output is gone. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        fail(f"{error.filename or file}: error: {error.strerror or error}")


@contextmanager
def warned() -> Iterator[list[dict[str, Any]]]:
    """Collects the warnings of the assembler, for JSON; they are printed as always."""
    found: list[dict[str, Any]] = []
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if isinstance(message, AsmWarning):
            found.append(diagnostic(message.about))
        usual(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield found
    finally:
        warnings.showwarning = usual


def diagnostic(error: AsmError) -> dict[str, Any]:
    """An error or a warning of the assembler, for JSON; line and column count from 1, and 0 is no such place."""
    return {name: getattr(error, name) for name in ("file", "line", "column", "message", "hint", "text")} | {
        "notes": list(error.notes)
    }


def printable(text: str) -> str:
    """Text that any terminal takes: what its encoding lacks, and control characters, are escaped."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    text = CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode(encoding, "backslashreplace").decode(encoding)
