"""Write docs/reference/ARCH.md: every instruction of an architecture, from the instruction table.

python -m docs.reference          # all pages; tests/test_docs.py holds that the committed ones are up to date
"""

from __future__ import annotations

from pathlib import Path

from turingas.isa import describe
from turingas.isa.arch import NAMES
from turingas.isa.isa import Isa, instruction_set
from turingas.isa.meaning import meaning
from turingas.isa.table import async_, control, convert, floating, integer, memory, tensor, texture, uniform

FOLDER = Path(__file__).parent / "reference"
FAMILIES = {
    "Floating point": floating,
    "Integers and logic": integer,
    "Conversions": convert,
    "Memory": memory,
    "Control, barriers, warps": control,
    "Uniform datapath": uniform,
    "Asynchronous copies, clusters": async_,
    "Tensor cores": tensor,
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


def page(arch: str) -> str:
    """The text of docs/reference/ARCH.md."""
    isa = instruction_set(arch)
    lines = [
        f"# Instructions of {arch}",
        "",
        "Made from the instruction table by `make reference`; `turingas isa MNEMONIC` prints the same.",
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
            if meaning(name):
                lines += [meaning(name).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;"), ""]
            lines += ["```text", *describe.body(isa, name), "```", ""]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """All pages, by their place."""
    return {FOLDER / f"{arch}.md": page(arch) for arch in NAMES}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
