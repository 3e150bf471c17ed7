"""``turingas.lint``: all checks over all kernels of a cubin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from turingas import collector
from turingas.check import (  # noqa: F401 (their rules)
    asynchronous,
    banks,
    behind,
    clusters,
    hazards,
    resources,
    returns,
    reuse,
    spills,
    structure,
    uninitialised,
    unused,
    warpgroup,
)
from turingas.check.finding import SEVERITIES, Finding
from turingas.check.named import named
from turingas.check.report import of_kernel
from turingas.check.rules import CHECKS, rule
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph

#: rules that are left out: they follow the lanes of a warp (values.py) by numpy, which a browser's Python may not have
LEFT_OUT: tuple[str, ...] = ()
try:
    from turingas.check import addresses, divergence  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    LEFT_OUT = ("divergent-barrier", "shared-conflict", "uncoalesced")

Lintable = Kernel | Cubin | bytes | str | os.PathLike[str]


def lint(kernel_cubin_bytes_or_path: Lintable, arch: str | None = None) -> list[Finding]:
    """What is wrong, or could be better, in a kernel, a Cubin, the bytes of one, or a file: a cubin, or source
    (``.sass``), which is assembled for ``arch``. In the order of kernels, and of addresses within each. Device
    functions with a section of their own are looked at like kernels.

    Raises AsmError or CubinError for what is neither source nor cubin.
    """
    with collector.paused():
        texts, file = _texts(kernel_cubin_bytes_or_path, arch)
        seen: dict[bytes, list[tuple[Kernel, list[Finding]]]] = {}
        return [finding for text in texts for finding in _once(text, file, seen)]


def _once(kernel: Kernel, file: str, seen: dict[bytes, list[tuple[Kernel, list[Finding]]]]) -> list[Finding]:
    """What ``lint_kernel`` finds. Instances of a template may have the same code: what is found in one of these kernels
    is found in all. ``seen``: code -> kernels, and what was found in each."""
    if kernel.lines or kernel.names or kernel.unused or kernel.stranded:
        return lint_kernel(kernel, file)
    nameless = replace(kernel, name="", attributes=[info for info in kernel.attributes if not info.numbers_symbols])
    twins = seen.setdefault(bytes(kernel.code.data), [])
    for twin, found in twins:
        if twin == nameless:
            return [replace(finding, kernel=kernel.name) for finding in found]
    found = lint_kernel(kernel, file)
    twins.append((nameless, found))
    return found


@rule("left-out", "Rules that cannot be looked at, because numpy is not installed")
def _left_out(graph: Graph) -> Iterator[Finding]:
    """What is not looked for is no finding, and must not look like it."""
    if LEFT_OUT:
        message = f"without numpy these are not looked for: {', '.join(LEFT_OUT)}"
        yield of_kernel(graph, "left-out", "note", message, "install numpy")


def lint_kernel(kernel: Kernel, file: str = "") -> list[Finding]:
    """The findings of every check on one kernel. ``file`` is named where the source lines are not known."""
    return lint_graph(Graph(kernel, file))


def lint_graph(graph: Graph) -> list[Finding]:
    """The findings of every check on a kernel whose graph is there already."""
    found = named([finding for check in CHECKS for finding in check(graph)], graph.kernel.names)
    return sorted(found, key=lambda f: (f.address, SEVERITIES.index(f.severity), f.kind, f.other or 0))


def _texts(what: Lintable, arch: str | None) -> tuple[list[Kernel], str]:
    if isinstance(what, Kernel):
        return [what], ""
    if isinstance(what, Cubin):
        return what.texts, ""
    if isinstance(what, bytes):
        return Cubin.from_bytes(what).texts, ""
    path = Path(what)
    data = path.read_bytes()
    if data[:4] == b"\x7fELF":
        return Cubin.from_bytes(data).texts, str(path)
    from turingas.assembler import assemble

    source = data.decode("utf-8", "surrogateescape")
    return assemble(source, arch or "sm_75", filename=str(path), include=(str(path.parent),)).texts, str(path)
