"""What a listing shows besides the code, all of it in comments, so that it still assembles; and of what it is one."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass

from turingas.cubin.model import Kernel, Parts
from turingas.errors import AsmError
from turingas.isa.arch import WORD_BYTES

DEBUG = (".debug", ".nv_debug")  # how the names of sections of debuggers begin, behind .rel and .rela
AGAIN = 40  # instructions behind which the heads of columns are repeated
MOST_TEXT = 1 << 24  # bytes of a source file that is shown


@dataclass(frozen=True)
class Shown:
    """``kernels``: patterns of names, as a shell has them; none: the whole file. ``source``: lines of CUDA C++ (of a
    file compiled with -lineinfo) or whatever the line table names, with their text where the file is found, ``folders``
    are where to look besides. ``hex``: the words. ``life``: register life ranges. ``debug`` False leaves the sections
    of debuggers out."""

    kernels: tuple[str, ...] = ()
    source: bool = False
    hex: bool = False
    life: bool = False
    debug: bool = True
    folders: tuple[str, ...] = ()
    descriptors: bool = False  # what the code tells of the descriptors of products

    def wants(self, kernel: Kernel) -> bool:
        """Whether the kernel is among those that are shown."""
        return not self.kernels or any(fnmatch.fnmatchcase(kernel.name, pattern) for pattern in self.kernels)

    def choose(self, parts: Parts) -> None:
        """Leave out what is not shown. AsmError if a pattern fits no kernel."""
        for pattern in self.kernels:
            if not fnmatch.filter([text.name for text in parts.texts], pattern):
                names = ", ".join(text.name for text in parts.texts)
                raise AsmError(f"there is no kernel {pattern!r}", hint=f"there are: {names}")
        if self.kernels:
            parts.texts = [text for text in parts.texts if self.wants(text)]
            parts.sections, parts.dropped, parts.symbols, parts.order, parts.capsule = [], [], None, [], ""
        if not self.debug:
            gone = {section.name for section in parts.sections if debugs(section.name)}
            parts.sections = [section for section in parts.sections if section.name not in gone]
            if parts.symbols is not None:
                parts.symbols = [symbol for symbol in parts.symbols if symbol.section not in gone]

    def annotate(self, kernel: Kernel, words: Sequence[int], lines: list[str], before: dict[int, list[str]]) -> None:
        """Put what is asked for behind the lines of the code, and in front of them (address -> lines)."""
        if self.hex:
            for n, word in enumerate(words):
                lines[n] += f" 0x{word:032x}"
        if self.life:
            heads, columns = _life(kernel)
            width = max(map(len, lines), default=0)
            for n, text in enumerate(columns):
                lines[n] = f"{lines[n]:{width}} {text}"
                if n % AGAIN == 0 or WORD_BYTES * n in before:
                    before.setdefault(WORD_BYTES * n, []).extend(f"#{head:>{width + len(head)}}" for head in heads)
        if self.descriptors:
            from turingas.flow.graph import Graph  # a plain listing needs none of it
            from turingas.flow.known import told

            for n, every in told(Graph(kernel)).items():
                before.setdefault(WORD_BYTES * n, []).extend(f"# {of}: {text}" for of, text in every)
        if self.source:
            _sources(kernel, before, self.folders)


PLAIN = Shown()


def debugs(section: str) -> bool:
    """Whether a section is for debuggers alone."""
    return section.removeprefix(".rela").removeprefix(".rel").startswith(DEBUG)


def _life(kernel: Kernel) -> tuple[list[str], list[str]]:
    """Heads of the columns, and the columns of each instruction: of each file of registers how many are taken, and a
    character for each that the kernel uses."""
    from turingas.flow.graph import Graph
    from turingas.flow.live import FILES, Lives
    from turingas.isa.effects import register_of

    lives = Lives(Graph(kernel))
    used = {file: found for file in FILES if (found := lives.used(file))}
    rows = []
    for n in range(len(lives.before)):
        parts = [f"{lives.held(n, file):3} {''.join(lives.mark(n, r) for r in found)}" for file, found in used.items()]
        rows.append("|" + "|".join(parts) + "|")
    heads = []
    for digit in (2, 1, 0):
        parts = []
        for file, found in used.items():
            name = f"{file:>3}" if digit == 0 else "   "
            digits = [str(register_of(r)[1]).rjust(3)[2 - digit] for r in found]
            parts.append(f"{name} {''.join(digits)}")
        head = "|" + "|".join(parts) + "|"
        if digit == 0 or any(one.isdigit() for one in head):
            heads.append(head)
    return heads, rows


def _sources(kernel: Kernel, before: dict[int, list[str]], folders: Sequence[str]) -> None:
    """A comment wherever the source line changes, in front of what else stands there but labels."""
    texts: dict[str, list[str]] = {}
    last = ("", 0)
    for n, place in enumerate(kernel.lines[: len(kernel.code) // WORD_BYTES]):
        if place == last or not place[1]:
            continue
        file, line = last = place
        if file not in texts:
            texts[file] = source_text(file, folders)
        text = texts[file][line - 1].strip() if 0 < line <= len(texts[file]) else ""
        before.setdefault(WORD_BYTES * n, []).append(f"# {file}:{line}{': ' + text if text else ''}")


def source_text(file: str, folders: Sequence[str]) -> list[str]:
    """The lines of a source file: where the line table says that it is, in ``folders``, or here under its name."""
    for path in (file, *(os.path.join(folder, os.path.basename(file)) for folder in (*folders, "."))):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read(MOST_TEXT).splitlines()
        except (OSError, ValueError):
            continue
    return []
