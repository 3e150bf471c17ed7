"""The site's page reference/ARCH.md: every instruction of an architecture, from the instruction table."""

from __future__ import annotations

import html

from turingas.isa import describe
from turingas.isa.isa import Isa, instruction_set
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


def families(isa: Isa) -> dict[str, list[str]]:
    """The mnemonics of an architecture by family, each once."""
    left = set(isa.mnemonics())
    found = {}
    for title, module in FAMILIES.items():
        names = sorted(left & {row.base for row in module.ROWS})
        left -= set(names)
        if names:
            found[title] = names
    assert not left, left
    return found


def _plain(text: str) -> str:
    """Text without what Markdown would take for its own."""
    for mark in ("\\", "|", "*", "_", "[", "]"):
        text = text.replace(mark, "\\" + mark)
    return text.replace("<", "&lt;")


def page(arch: str) -> str:
    """Its text."""
    isa = instruction_set(arch)
    lines = [
        f"# Instructions of {arch}",
        "",
        "Made from the instruction table by `make docs`; `turingas isa MNEMONIC` prints the same.",
        "",
        "```text",
        describe.LEGEND,
        "```",
        "",
    ]
    for title, names in families(isa).items():
        lines.append(f"**{title}**: " + " ".join(f"[{name}](#{name.lower()})" for name in names) + "\n")
    for title, names in families(isa).items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### {name}", ""]
            does, *more = describe.head(name, isa.example(name))
            lines += [_plain(does), "", *(f"{_plain(line)}\n" for line in more)]
            body = html.escape("\n".join(describe.body(isa, name)), quote=False)
            lines += [f"<pre><code>{body}</code></pre>", ""]  # a fence would be highlighted: a second for 1,300 of them
    return "\n".join(lines)
