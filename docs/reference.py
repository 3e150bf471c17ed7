"""The site's pages of instructions, from the instruction table: one with every mnemonic of every architecture, each
under one anchor that others can link to, and one with what is new and gone from architecture to architecture."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator

from turingas.isa import compare, describe
from turingas.isa.arch import ARCHS, DISTINCT
from turingas.isa.isa import instruction_set
from turingas.isa.table import async_, control, convert, floating, integer, memory, tensor, texture, tmem, uniform

FAMILIES = {
    "Floating point": floating,
    "Integers and logic": integer,
    "Conversions": convert,
    "Memory": memory,
    "Control, barriers, warps": control,
    "Uniform datapath": uniform,
    "Asynchronous copies, clusters": async_,
    "Tensor cores": tensor,
    "Tensor memory": tmem,
    "Textures and surfaces": texture,
}


def families() -> dict[str, list[str]]:
    """The mnemonics of all architectures by family, each once."""
    left = {name for arch in DISTINCT for name in instruction_set(arch).mnemonics()}
    found = {}
    for title, module in FAMILIES.items():
        names = sorted(left & {row.base for row in module.ROWS})
        left -= set(names)
        found[title] = names
    assert not left, left
    return found


def _plain(text: str) -> str:
    """Text without what Markdown would take for its own."""
    for mark in ("\\", "|", "*", "_", "[", "]"):
        text = text.replace(mark, "\\" + mark)
    return text.replace("<", "&lt;")


def _code(lines: list[str]) -> str:
    """As HTML: a fence would be highlighted, a second for 500 of them. Search has enough in the lines before it."""
    return f"<pre data-search-exclude><code>{html.escape(chr(10).join(lines), quote=False)}</code></pre>"


def _bodies(name: str) -> list[tuple[list[str], list[str]]]:
    """How a mnemonic is written and encoded, the newest first, each with the architectures where it is so."""
    found: dict[tuple[str, ...], list[str]] = {}
    for arch in DISTINCT:
        isa = instruction_set(arch)
        if isa.named(name):
            found.setdefault(tuple(describe.body(isa, name)), []).append(arch)
    return [(list(body), archs) for body, archs in reversed(found.items())]


def _changed(before: list[str], after: list[str]) -> list[str]:
    """The lines of ``before`` that ``after`` has not (-), and the other way round (+)."""
    return [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ") and line[2:].strip()]


def _entry(name: str) -> Iterator[str]:
    bodies = _bodies(name)
    does, *more = describe.head(name, instruction_set(bodies[0][1][0]).example(name))
    yield from (f"### {name}", "", _plain(does), "", *(f"{_plain(line)}\n" for line in more))
    yield from (f"On {', '.join(bodies[0][1])}:", "", _code(bodies[0][0]), "")
    for (after, archs), (before, older) in zip(bodies, bodies[1:]):
        title = f"On {', '.join(older)}: what differs from {archs[0]}"
        yield from (f"<details><summary>{title}</summary>{_code(_changed(after, before))}</details>", "")


def instructions() -> str:
    """The page of all mnemonics."""
    lines = [
        "# Instructions",
        "",
        "All mnemonics of all architectures, from the instruction table; made by `make docs`. `turingas isa",
        "MNEMONIC` prints the same for one architecture; [what is new where](architectures.md) has its own page.",
        "An address like `reference/instructions.html#ffma` stays as it is.",
        "",
        "An instruction is shown as its newest architectures have it; for each older one, what differs from the one",
        "before: lines with `-` it has not, and those with `+` it has instead.",
        "",
        "```text",
        describe.LEGEND,
        "```",
        "",
    ]
    found = families()
    for title, names in found.items():
        lines.append(f"**{title}**: " + " ".join(f"[{name}](#{name.lower()})" for name in names) + "\n")
    for title, names in found.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _entry(name)
    return "\n".join(lines)


def _links(names: list[str]) -> str:
    return " ".join(f"[{name}](instructions.md#{name.lower()})" for name in names)


def architectures() -> str:
    """The page of what differs from one architecture to the next."""
    lines = [
        "# From one architecture to the next",
        "",
        "How each differs from the one it descends from, by the instruction table. `turingas isa --diff sm_80 sm_90`",
        "compares any two, and `turingas isa LDG --diff sm_80 sm_90` shows how one instruction is written and encoded",
        "on both.",
        "",
    ]
    for arch in DISTINCT:
        parent = ARCHS[arch].parent
        count = len(instruction_set(arch).mnemonics())
        lines += [f"## {arch}", "", f"{count} mnemonics" + (f"; compared with {parent}:" if parent else "."), ""]
        if not parent:
            continue
        found = compare.changes(parent, arch)
        groups = {
            "new": [one.mnemonic for one in found if not one.here],
            "gone": [one.mnemonic for one in found if not one.there],
            "written or encoded in other ways": [one.mnemonic for one in found if one.here and one.there],
        }
        lines += [f"* {title}: {_links(names)}" for title, names in groups.items() if names]
        lines += [] if found else ["* the same words"]
        lines.append("")
    return "\n".join(lines)


PAGES = {"reference/instructions.md": instructions, "reference/architectures.md": architectures}
