"""The language server behind `turingas lsp`: what analysis.py, show.py and text.py know, in the protocol of editors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from lsprotocol import types as t
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from turingas.editor import show
from turingas.editor.analysis import Analysis, Problem, Settings
from turingas.editor.text import NAME, REGISTER, SECTIONS, Span, Symbol, Text
from turingas.version import __version__

T = TypeVar("T")
PAUSE = 0.3  # seconds after the last key before a source is looked at
SEVERITY = {
    "error": t.DiagnosticSeverity.Error, "warning": t.DiagnosticSeverity.Warning,
    "note": t.DiagnosticSeverity.Information, "hint": t.DiagnosticSeverity.Information,
}  # fmt: skip
KINDS = {
    "mnemonic": t.CompletionItemKind.Function, "modifier": t.CompletionItemKind.EnumMember,
    "register": t.CompletionItemKind.Variable, "parameter": t.CompletionItemKind.Field,
    "constant": t.CompletionItemKind.Constant, "label": t.CompletionItemKind.Reference,
    "special": t.CompletionItemKind.Constant, "directive": t.CompletionItemKind.Keyword,
    "tag": t.CompletionItemKind.Keyword, "kernel": t.CompletionItemKind.Module,
    "function": t.CompletionItemKind.Module,
}  # fmt: skip
SYMBOLS = {
    "register": t.SymbolKind.Variable, "parameter": t.SymbolKind.Field, "constant": t.SymbolKind.Constant,
    "label": t.SymbolKind.Key, "kernel": t.SymbolKind.Function, "function": t.SymbolKind.Function,
}  # fmt: skip


class Server(LanguageServer):
    """``settings`` hold until the editor sends others."""

    def __init__(self, settings: Settings) -> None:
        super().__init__("turingas", f"v{__version__}")
        self.settings = settings
        self.hints = True
        self._kept: dict[str, tuple[object, Analysis]] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        # one thread: the assembler's memories, and warnings, belong to the process
        self._worker = ThreadPoolExecutor(1)

    def analysis(self, document: TextDocument) -> Analysis:
        """What is known of a document as it is; in the worker's thread."""
        key = (document.source, self.settings)
        kept = self._kept.get(document.uri)
        if kept is None or kept[0] != key:
            file = to_fs_path(document.uri) or document.uri
            kept = self._kept[document.uri] = key, Analysis(document.source, file, self.settings)
        return kept[1]

    async def of(self, uri: str, ask: Callable[[Analysis, TextDocument], T]) -> T:
        """``ask(analysis, document)``, while the server goes on to read."""
        document = self.workspace.get_text_document(uri)
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, lambda: ask(self.analysis(document), document)
        )

    def text(self, uri: str) -> tuple[Text, TextDocument]:
        """A document taken apart, without the assembler."""
        document = self.workspace.get_text_document(uri)
        kept = self._kept.get(uri)
        if kept is not None and kept[1].source == document.source:
            return kept[1].text, document
        return Text(document.source, self.settings.arch), document

    def changed(self, uri: str, pause: float = PAUSE) -> None:
        """Look at a document when nothing has changed for a while."""
        if (task := self._waiting.pop(uri, None)) is not None:
            task.cancel()
        self._waiting[uri] = asyncio.ensure_future(self._tell(uri, pause))

    async def _tell(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        version = self.workspace.get_text_document(uri).version
        problems = await self.of(uri, lambda a, document: [_diagnostic(one, document) for one in a.problems])
        if uri in self.workspace.text_documents and self.workspace.get_text_document(uri).version == version:
            self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri, problems, version))
            capabilities = self.client_capabilities.workspace
            if capabilities and capabilities.inlay_hint and capabilities.inlay_hint.refresh_support:
                self.workspace_inlay_hint_refresh(None)

    def closed(self, uri: str) -> None:
        """Forget a document, and what was said of it."""
        if (task := self._waiting.pop(uri, None)) is not None:
            task.cancel()
        self._kept.pop(uri, None)
        self.text_document_publish_diagnostics(t.PublishDiagnosticsParams(uri, []))

    def configure(self, given: Any) -> None:
        """Settings as an editor sends them: {"arch": "sm_90", "allowPython": true, "include": [...], "define": {...},
        "inlayHints": false}, perhaps under "turingas"."""
        if not isinstance(given, dict):
            return
        given = given.get("turingas", given)
        if not isinstance(given, dict):
            return
        now = self.settings
        if isinstance(given.get("arch"), str) and given["arch"]:
            now = replace(now, arch=given["arch"])
        if isinstance(given.get("allowPython"), bool):
            now = replace(now, python=given["allowPython"])
        if isinstance(given.get("include"), list):
            now = replace(now, include=tuple(os.path.expanduser(str(one)) for one in given["include"]))
        if isinstance(given.get("define"), dict):
            now = replace(now, defines=given["define"])
        self.settings = now
        self.hints = given.get("inlayHints", self.hints) is not False


def _range(span: Span, document: TextDocument) -> t.Range:
    lines = document.lines or [""]
    line = min(span.line, len(lines) - 1)
    inside = t.Range(t.Position(line, span.start), t.Position(line, max(span.end, span.start)))
    return document.position_codec.range_to_client_units(lines, inside)


def _at(position: t.Position, document: TextDocument) -> tuple[int, int]:
    found = document.position_codec.position_from_client_units(document.lines, position)
    return found.line, found.character


def _diagnostic(problem: Problem, document: TextDocument) -> t.Diagnostic:
    message = problem.message + (f"\nhint: {problem.hint}" if problem.hint else "")
    related = None
    if problem.other is not None:
        line, text = problem.other
        place = t.Location(document.uri, _range(Span(line, 0, 1 << 16), document))
        related = [t.DiagnosticRelatedInformation(place, text)]
    return t.Diagnostic(
        _range(problem.at, document), message, SEVERITY[problem.severity], problem.kind or None, source="turingas",
        related_information=related,
    )  # fmt: skip


def server(settings: Settings | None = None) -> Server:
    """A server, ready to ``start_io()``."""
    ls = Server(settings or Settings())

    @ls.feature(t.INITIALIZE)
    def initialize(params: t.InitializeParams) -> None:
        ls.configure(params.initialization_options)

    @ls.feature(t.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configuration(params: t.DidChangeConfigurationParams) -> None:
        ls.configure(params.settings)
        for uri in list(ls.workspace.text_documents):
            ls.changed(uri, 0)

    @ls.feature(t.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: t.DidOpenTextDocumentParams) -> None:
        ls.changed(params.text_document.uri, 0)

    @ls.feature(t.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: t.DidChangeTextDocumentParams) -> None:
        ls.changed(params.text_document.uri)

    @ls.feature(t.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: t.DidSaveTextDocumentParams) -> None:
        ls._kept.pop(params.text_document.uri, None)  # what it includes may have changed
        ls.changed(params.text_document.uri, 0)

    @ls.feature(t.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: t.DidCloseTextDocumentParams) -> None:
        ls.closed(params.text_document.uri)

    @ls.feature(t.TEXT_DOCUMENT_HOVER)
    async def hover(params: t.HoverParams) -> t.Hover | None:
        def ask(a: Analysis, document: TextDocument) -> str:
            return show.hover(a, *_at(params.position, document))

        said = await ls.of(params.text_document.uri, ask)
        return t.Hover(t.MarkupContent(t.MarkupKind.Markdown, said)) if said else None

    @ls.feature(t.TEXT_DOCUMENT_COMPLETION, t.CompletionOptions(trigger_characters=[".", "@", "<"]))
    def completion(params: t.CompletionParams) -> list[t.CompletionItem]:
        text, document = ls.text(params.text_document.uri)
        line, column = _at(params.position, document)
        before = text.raw[line][:column] if line < len(text.raw) else ""
        found = []
        start = len(re.sub(r"\w*\Z", "", before))
        for n, one in enumerate(show.choices(text, line, column)):
            dot = one.kind == "directive"
            edit = t.TextEdit(_range(Span(line, start - dot, column), document), one.text)
            found.append(t.CompletionItem(one.text, kind=KINDS[one.kind], detail=one.detail or None, text_edit=edit,
                                          sort_text=f"{n:04d}"))  # fmt: skip
        return found

    @ls.feature(t.TEXT_DOCUMENT_DEFINITION)
    def definition(params: t.DefinitionParams) -> t.Location | None:
        text, document = ls.text(params.text_document.uri)
        symbol = text.symbol(*_at(params.position, document))
        return t.Location(document.uri, _range(symbol.at, document)) if symbol else None

    @ls.feature(t.TEXT_DOCUMENT_REFERENCES)
    def references(params: t.ReferenceParams) -> list[t.Location]:
        text, document = ls.text(params.text_document.uri)
        place = _at(params.position, document)
        if (symbol := text.symbol(*place)) is not None:
            spans = text.places(symbol)
        else:
            spans = text.uses(register) if (register := text.register(*place)) else []
        return [t.Location(document.uri, _range(span, document)) for span in spans]

    def renamed(text: Text, symbol: Symbol | None) -> Symbol:
        if symbol is None:
            raise JsonRpcInvalidParams("there is no name of a register, parameter, constant or label here")
        if symbol.ranged:
            raise JsonRpcInvalidParams(f"{symbol.name} is declared with others, as a range: write it out first")
        if symbol.kind in SECTIONS:
            raise JsonRpcInvalidParams("other programs know a kernel by its name: change it by hand")
        if text.in_python(symbol.name):
            raise JsonRpcInvalidParams(f"{symbol.name} stands in inline Python too: change it by hand")
        return symbol

    @ls.feature(t.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare(params: t.PrepareRenameParams) -> t.Range:
        text, document = ls.text(params.text_document.uri)
        line, column = _at(params.position, document)
        if (symbol := text.symbol(line, column)) is None and (register := text.register(line, column)) is not None:
            return _range(register.at, document)
        symbol = renamed(text, symbol)
        here = [span for span in text.places(symbol) if span.line == line and span.start <= column <= span.end]
        return _range(here[0] if here else symbol.at, document)

    @ls.feature(t.TEXT_DOCUMENT_RENAME, t.RenameOptions(prepare_provider=True))
    def rename(params: t.RenameParams) -> t.WorkspaceEdit:
        text, document = ls.text(params.text_document.uri)
        line, column = _at(params.position, document)
        found, new = text.symbol(line, column), params.new_name
        register = text.register(line, column) if found is None else None
        if register is not None and REGISTER.match(new):
            raise JsonRpcInvalidParams(f"give {register.name} a name, and the name another number in <regs>")
        if register is not None and text.in_python(register.name):
            raise JsonRpcInvalidParams(f"{register.name} stands in inline Python too: change it by hand")
        symbol = register or renamed(text, found)
        if not NAME.match(new) or REGISTER.match(new):
            raise JsonRpcInvalidParams(f"{new!r} is not a valid name: letters, digits and _, and no register's")
        if any(one.name == new for one in text.symbols):
            raise JsonRpcInvalidParams(f"there is a {new} already")
        spans = text.uses(register) if register else text.places(symbol)
        edits = [t.TextEdit(_range(span, document), new) for span in spans]
        if register is not None:
            line, declared = text.declaration(register, new)
            edits.append(t.TextEdit(_range(Span(line, 0, 0), document), declared))
        return t.WorkspaceEdit({document.uri: edits})

    @ls.feature(t.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: t.DocumentSymbolParams) -> list[t.DocumentSymbol]:
        text, document = ls.text(params.text_document.uri)
        return [
            t.DocumentSymbol(one.name, SYMBOLS[one.kind], _range(one.at, document), _range(one.at, document), one.means)
            for one in text.symbols
        ]

    @ls.feature(t.TEXT_DOCUMENT_INLAY_HINT)
    async def hints(params: t.InlayHintParams) -> list[t.InlayHint]:
        def ask(a: Analysis, document: TextDocument) -> list[t.InlayHint]:
            found = []
            for line in range(params.range.start.line, min(params.range.end.line + 1, len(a.text.lines))):
                front, behind = a.beside(line)
                row = a.text.lines[line]
                if front and row.head:
                    start = row.head.start(4) if row.head[4] else row.head.start(6)
                    place = _range(Span(line, start, start), document).start
                    found.append(t.InlayHint(place, front, padding_right=True, tooltip="filled in by the scheduler"))
                if behind:
                    end = len(row.plain.rstrip())
                    place = _range(Span(line, end, end), document).start
                    found.append(t.InlayHint(place, behind, padding_left=True))
            return found

        return await ls.of(params.text_document.uri, ask) if ls.hints else []

    @ls.feature(t.TEXT_DOCUMENT_FOLDING_RANGE)
    def folding(params: t.FoldingRangeParams) -> list[t.FoldingRange]:
        text, _ = ls.text(params.text_document.uri)
        return [t.FoldingRange(first, last) for first, last in text.folds()]

    @ls.feature(t.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: t.DocumentFormattingParams) -> list[t.TextEdit]:
        text, document = ls.text(params.text_document.uri)
        return _edits(enumerate(text.formatted()), text, document)

    @ls.feature(
        t.TEXT_DOCUMENT_CODE_ACTION,
        t.CodeActionOptions([t.CodeActionKind.QuickFix, t.CodeActionKind.RefactorRewrite]),
    )
    async def actions(params: t.CodeActionParams) -> list[t.CodeAction]:
        def ask(a: Analysis, document: TextDocument) -> list[t.CodeAction]:
            return list(_actions(a, document, params))

        return await ls.of(params.text_document.uri, ask)

    return ls


def _edits(rows: Iterable[tuple[int, str]], text: Text, document: TextDocument) -> list[t.TextEdit]:
    """Edits of the lines that differ from what stands there."""
    return [
        t.TextEdit(_range(Span(n, 0, len(text.raw[n])), document), new) for n, new in rows if new != text.raw[n]
    ]


def _actions(a: Analysis, document: TextDocument, params: t.CodeActionParams) -> Iterator[t.CodeAction]:
    first, last = params.range.start.line, params.range.end.line
    kinds = params.context.only or [t.CodeActionKind.QuickFix, t.CodeActionKind.RefactorRewrite]
    for problem in a.problems if t.CodeActionKind.QuickFix in kinds else ():
        if not first <= problem.at.line <= last:
            continue
        told = [_diagnostic(problem, document)]
        if word := a.meant(problem):
            edit = t.TextEdit(_range(problem.at, document), word)
            yield t.CodeAction(f"write {word}", t.CodeActionKind.QuickFix, told, True,
                               edit=t.WorkspaceEdit({document.uri: [edit]}))  # fmt: skip
        if problem.finding is None or problem.severity not in ("error", "warning"):
            continue
        edits, title = a.mended([problem.finding]), f"let the scheduler mend this [{problem.kind}]"
        if not edits:  # perhaps the others stand in its way
            errors = [one for one in a.findings if one.severity == "error"]
            edits, title = a.mended(errors), f"let the scheduler mend all {len(errors)} errors"
        if edits:
            changes = t.WorkspaceEdit({document.uri: _edits(edits, a.text, document)})
            yield t.CodeAction(title, t.CodeActionKind.QuickFix, told, True, edit=changes)
    if not any(kind == "refactor" or kind.startswith("refactor.rewrite") for kind in kinds):
        return
    place, head = a.only(first), a.text.lines[min(first, len(a.text.lines) - 1)].head
    if place is not None and head is not None and not head[2]:
        start = head.start(4) if head[4] else head.start(6)
        code, _ = a.beside(first)
        edit = t.TextEdit(_range(Span(first, start, start), document), f"{code}  ")
        yield t.CodeAction("write the control code that is filled in", t.CodeActionKind.RefactorRewrite,
                           edit=t.WorkspaceEdit({document.uri: [edit]}))  # fmt: skip
    if made := a.rewritten():
        new = made.split("\n")
        if len(new) == len(a.text.raw) and (anew := _edits(enumerate(new), a.text, document)):
            yield t.CodeAction("schedule: every control code of the file anew", t.CodeActionKind.RefactorRewrite,
                               edit=t.WorkspaceEdit({document.uri: anew}))  # fmt: skip
