"""Runs the Python of <code> blocks and {expressions}: one namespace a file, bounded steps and text.

Every loop, comprehension and function of the inline Python gets a call of ``_tick`` at its start, which counts. That
needs no signal, no thread and no tracing, so it works anywhere and costs little. It bounds accidents (endless loops,
endless output); it is no sandbox: ``allow_python=False`` is for sources that one does not trust.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from turingas.errors import RAISED, AsmError
from turingas.forks import freed
from turingas.source.lines import Origin

MAX_STEPS = 3_000_000  # rounds of loops and calls of functions in the inline Python of one source file
SHOWN = 40  # characters of a value in a hint
MAX_GENERATED = 16 << 20  # characters of text generated for one source file: about 300,000 instructions


_IMPORTS = freed(threading.RLock())  # sys.path and sys.modules belong to the whole process
_NEVER_HIDDEN = {*sys.stdlib_module_names, "turingas", "loader", "kernels_sass"}


@contextmanager
def importing(folders: Sequence[Path]) -> Iterator[None]:
    """Modules in ``folders`` can be imported, and are forgotten afterwards: the next source may have others of the same
    names. For the time they also hide modules of those names that the process has from elsewhere."""
    places = [str(folder.resolve()) for folder in folders if folder.is_dir()]
    theirs = {entry.partition(".")[0] for place in places for entry in os.listdir(place)} - _NEVER_HIDDEN

    def own(name: str) -> bool:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        return any(os.path.realpath(file).startswith(place + os.sep) for place in places)

    with _IMPORTS:
        path, before = sys.path[:], {name.partition(".")[0] for name in sys.modules}
        hidden = {top for top in theirs & before if not own(top)}
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in hidden}
        sys.path[:0] = places
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path[:] = path
            new = {top for top in theirs if top in hidden or top not in before and own(top)}
            for name in list(sys.modules):
                if name.partition(".")[0] in new:
                    del sys.modules[name]
            sys.modules.update(kept)


def _set(statement: ast.stmt) -> dict[str, ast.AST]:
    """The names that a statement sets, whatever happens, each with its place."""
    targets: list[ast.expr] = []
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name: statement}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name.partition(".")[0]: alias for alias in statement.names}
        case ast.Assign():
            targets = list(statement.targets)
        case ast.AnnAssign(value=ast.expr()):
            targets = [statement.target]
    found = dict[str, ast.AST]()
    while targets:
        match targets.pop():
            case ast.Name() as one:
                found[one.id] = one
            case ast.Tuple() | ast.List() as several:
                targets += several.elts
            case ast.Starred() as one:
                targets.append(one.value)
    return found


def _looked_at(statement: ast.stmt, name: str) -> bool:
    """Whether a statement may read a name, or sets it here or there: it stands in a text, too: globals().get("N")."""
    places = _set(statement).values()
    for node in ast.walk(statement):
        match node:
            case ast.Name() if node.id == name and node not in places:
                return True
            case ast.Constant(value=str(text)) if re.search(rf"\b{name}\b", text):
                return True
            case ast.Global() if name in node.names:
                return True
            case ast.keyword() | ast.arg() if node.arg == name:
                return True
    return False


class _Exhausted(BaseException):
    """The step or text limit is reached. No Exception: `except Exception` in the block must not swallow it."""


class _Ticking(ast.NodeTransformer):
    """Puts a call of ``_tick`` at the start of whatever may run without end."""

    def _body(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_tick_call(node)), node))
        return node

    visit_While = visit_For = visit_AsyncFor = visit_FunctionDef = visit_AsyncFunctionDef = _body

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        node.body = ast.copy_location(ast.BoolOp(ast.And(), [_tick_call(node), node.body]), node)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.ifs.insert(0, _tick_call(node.target))
        return node


def _tick_call(place: Any) -> ast.expr:
    name = ast.copy_location(ast.Name("_tick", ast.Load()), place)
    return ast.copy_location(ast.Call(name, [], []), place)


def _compile(text: str, file: str, mode: str, line: int = 1) -> CodeType:
    """Code that ticks, with its lines numbered from ``line``."""
    tree = _Ticking().visit(ast.parse(text, file, mode))
    ast.increment_lineno(tree, line - 1)
    code: CodeType = compile(tree, file, mode)
    return code


def _complain(*values: object, **options: Any) -> None:
    """print() of inline Python: to stderr, because stdout may be the cubin."""
    options.setdefault("file", sys.stderr)
    print(*values, **options)


class Python:
    """The namespace that the inline Python of one source file shares, as in TuringAs."""

    def __init__(self, defines: Mapping[str, object], allowed: bool, given: Sequence[str] = ()) -> None:
        """``given``: those of ``defines`` that somebody asked for."""
        self.allowed = allowed
        self.names: dict[str, Any] = {"__name__": "sass", "print": _complain, **defines, "_tick": self._tick}
        self.sources: dict[str, list[str]] = {}  # file -> its lines, for the diagnostics
        self.texts: list[str] = []  # of the blocks that ran
        self.overwritten: list[AsmError] = []  # defines that the source sets before it looks at them
        self._unread = [name for name in given if name.isidentifier()]
        self._steps = MAX_STEPS
        self._room = MAX_GENERATED
        self._expressions: dict[str, CodeType] = {}

    def run(self, code: str, first: Origin, line: int, opening: Origin | None = None) -> None:
        """Execute a block of statements whose first line is line ``line`` of ``first.file``."""
        self._permit(opening or first, "inline Python")
        dedented = textwrap.dedent(code) if code.lstrip("\n")[:1].isspace() else code
        margin = len(code) - len(code.lstrip("\n ")) if dedented != code else 0
        try:
            compiled = _compile(dedented, first.file, "exec", line)
        except SyntaxError as error:
            number = (error.lineno or 1) + line - 1
            at = Origin(first.file, number, self._line(first.file, number), 0, first.parent)
            column = (error.offset or 0) + (margin if error.offset else 0)
            raise at.error(f"inline Python: {error.msg}", column=min(column, len(at.text) + 1)) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise first.error(f"inline Python: {type(error).__name__}: {error}") from None
        self.texts.append(code)
        if any(name in dedented for name in self._unread):
            self._find_overwritten(dedented, first, line)
        self._guarded(lambda: exec(compiled, self.names), first, block=True)

    def _find_overwritten(self, code: str, first: Origin, line: int) -> None:
        for statement in ast.parse(code).body:
            for name in self._unread[:]:
                node: Any = _set(statement).get(name)
                if _looked_at(statement, name):
                    self._unread.remove(name)
                elif node is not None:
                    self._unread.remove(name)
                    number, value = node.lineno + line - 1, "..."
                    if isinstance(statement, ast.Assign) and len(ast.unparse(statement.value)) < SHOWN:
                        value = ast.unparse(statement.value) if node in statement.targets else value
                    at = Origin(first.file, number, self._line(first.file, number), 0, first.parent)
                    said = f"{name} is defined, but the source sets it here without a look at that"
                    hint = f'{name} = globals().get("{name}", {value}) takes what is defined'
                    self.overwritten.append(at.error_at(said, hint, name))

    def read(self) -> str:
        """All Python that there was."""
        return "\n".join([*self.texts, *self._expressions])

    def block(self, code: str, opening: Origin) -> str:
        """The text that a <code> block leaves in ``out_``. The block's first line follows its tag."""
        self.names["out_"] = ""
        self.run(code, opening, opening.line)
        out = self.names.get("out_", "")
        if not isinstance(out, str):
            hint = r"out_ = '\n'.join(out)" if isinstance(out, (list, tuple)) else "out_ = str(...)"
            raise opening.error(f"out_ must be a string; it is of type {type(out).__name__}", hint)
        self._take(len(out), opening)
        return out

    def value(self, expression: str, origin: Origin, column: int) -> str:
        """The text of an {expression}."""
        self._permit(origin, "an inline expression", column)
        compiled = self._expressions.get(expression)
        if compiled is None:
            try:
                compiled = _compile(expression.strip(), "<expression>", "eval")
            except SyntaxError as error:
                raise origin.error(f"inline Python: {error.msg}", column=column) from None
            except (ValueError, RecursionError, MemoryError) as error:
                raise origin.error(f"inline Python: {type(error).__name__}: {error}", column=column) from None
            self._expressions[expression] = compiled
        code = compiled
        text: str = self._guarded(lambda: str(eval(code, self.names)), origin, column=column)
        self._take(len(text), origin)
        return text

    def _permit(self, origin: Origin, what: str, column: int = 0) -> None:
        if not self.allowed:
            hint = "assemble it without --no-python (allow_python=True) if you trust the source"
            raise origin.error(f"{what} is refused", hint, column)

    def _take(self, size: int, origin: Origin) -> None:
        self._room -= size
        if self._room < 0:
            raise origin.error(f"more than {MAX_GENERATED >> 20} MiB of text generated", "is there an endless loop?")

    def _line(self, file: str, line: int) -> str:
        lines = self.sources.get(file, ())
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _guarded(self, action: Callable[[], Any], origin: Origin, block: bool = False, column: int = 0) -> Any:
        """Run ``action`` and turn what it raises into an AsmError at the line that raised it."""
        try:
            return action()
        except KeyboardInterrupt:
            raise
        except (Exception, SystemExit, _Exhausted) as error:
            raise self._explain(error, origin, block, column) from None

    def _tick(self) -> bool:
        self._steps -= 1
        if self._steps < 0:
            raise _Exhausted(f"inline Python ran more than {MAX_STEPS:,} steps")
        out = self.names.get("out_")
        if type(out) is str and len(out) > MAX_GENERATED:
            raise _Exhausted(f"more than {MAX_GENERATED >> 20} MiB of text in out_")
        return True

    def _explain(self, error: BaseException, origin: Origin, block: bool, column: int) -> AsmError:
        """The error at the innermost line that belongs to the source; the calls that led there as notes."""
        places = []
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename in self.sources:
                places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name))
            trace = trace.tb_next
        try:
            said = " ".join(str(error).split())[:300]
        except Exception:
            said = ""
        exhausted = isinstance(error, _Exhausted)
        message = said if exhausted else f"{RAISED}{type(error).__name__}" + (f": {said}" if said else "")
        hint = "is there an endless loop?" if exhausted else ""
        at = origin
        if block and places:
            file, line, _ = places.pop()
            at = Origin(file, line, self._line(file, line), 0, origin.parent if file == origin.file else None)
            column = 0
        result = at.error(message, hint, column)
        shown = places[-6:] if len(places) > 6 else places  # a deep recursion would fill the screen
        for file, line, function in reversed(shown):
            where = "" if function == "<module>" else f" in {function}"
            called = f"note: called from {file}:{line}{where}:" if block else f"note: in {file}:{line}{where}:"
            result.notes += (called, f"{line:5d} | {self._line(file, line)}")
        return result
