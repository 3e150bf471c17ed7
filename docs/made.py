"""What the site has that is not in git: the pages of instructions, all pictures, what runs in the page to try kernels.

A hook of mkdocs (mkdocs.yml names it): `make docs` makes them while it builds. Pages of instructions and figures of
benchmarks take seconds, so they are kept in build/made, under a hash of the files they were made from.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs runs this file by itself

from docs import pictures, reference  # noqa: E402
from loader.bench import figures as drawing  # noqa: E402
from loader.bench import results  # noqa: E402
from turingas import speed_shown  # noqa: E402
from turingas.cli.bench import benches  # noqa: E402

KEPT = ROOT / "build" / "made"
ISA = [ROOT / "docs" / "reference.py", *(ROOT / "turingas" / "isa").glob("**/*.py")]
DRAWERS = [*(ROOT / "kernels_sass").glob("*/*.py"), *(ROOT / "loader" / "bench").glob("*.py"),
           Path(speed_shown.__file__)]  # fmt: skip
MNEMONIC = "reference/instructions.html#"
SHOWN = re.compile(r"\]\((?:\.\./)?(pictures/\w+\.svg)\)")


#: Python for browsers, which `make pyodide` puts there, and what is loaded of it
PYODIDE = ROOT / re.findall(r"^PYODIDE := (\S+)$", (ROOT / "Makefile").read_text(), re.M)[0]
LOADED = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]
#: rooms of turingas that the page does without: they need numpy, or packages for commands
NOT_BUNDLED = {"cli", "emulate", "report", "testing"}
EXAMPLES = [*sorted(ROOT.glob("kernels_sass/learn/*.sass")), *sorted(ROOT.glob("examples/*.sass"))]
INCLUDED = [ROOT / "kernels_sass" / "learn" / name for name in ("outer.py", "ring.py")]  # by examples
log = logging.getLogger("mkdocs.plugins.made")


def kept(sources: Iterable[Path], name: str, make: Callable[[Path], None]) -> str:
    """The text of the file ``name`` that ``make(folder)`` writes; made anew only if one of ``sources`` has changed."""
    key = hashlib.sha256(b"".join(one.read_bytes() for one in sorted(sources))).hexdigest()[:16]
    path = KEPT / key / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path.parent)
    return path.read_text()


def pages() -> dict[str, Callable[[], str]]:
    """The pages of instructions, by their place in the site."""

    def text(place: str, make: Callable[[], str]) -> str:
        name = Path(place).name
        return kept(ISA, name, lambda folder: (folder / name).write_text(make()) and None)

    return {place: lambda place=place, make=make: text(place, make) for place, make in reference.PAGES.items()}


def drawings() -> dict[str, Callable[[], str]]:
    """All pictures that there are, by their place in the site: of control codes, and of the results that are kept."""
    made: dict[str, Callable[[], str]] = {f"pictures/{name}.svg": draw for name, draw in pictures.PICTURES.items()}
    every = benches()
    for path in sorted(results.FOLDER.glob("*.json")):
        found = json.loads(path.read_text())
        name = found.get("what", "").partition(" ")[2].split(" ")[0]  # of "bench NAME"
        bench = every.get(name)
        for name, draw in bench.figures(found).items() if bench and bench.figures else ():
            made.setdefault(f"pictures/{name}.svg", lambda path=path, name=name, draw=draw: drawn(path, name, draw))
    return made


def drawn(path: Path, name: str, draw: Callable[[], Any]) -> str:
    """A figure of the results in ``path``."""
    return kept([path, *DRAWERS], f"{name}.svg", lambda folder: drawing.draw({name: draw}, folder))


def shown() -> set[str]:
    """The pictures that pages show."""
    return {place for page in ROOT.glob("docs/**/*.md") for place in SHOWN.findall(page.read_text())}


def bundle() -> bytes:
    """A zip of what worker.js loads besides Pyodide: turingas, playground.py, and what examples include."""
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "turingas").rglob("*"))
             if path.suffix in (".py", ".csv") and path.relative_to(ROOT).parts[1] not in NOT_BUNDLED}  # fmt: skip
    files["playground.py"] = ROOT / "docs" / "playground.py"
    files.update({f"included/{path.name}": path for path in INCLUDED})
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def tried(pyodide: Path) -> dict[str, bytes | Path]:
    """What the page to try kernels on loads, by its place in the site: contents, or a file. Without the folder
    ``pyodide``, ``engine`` is "" in try.json, and the page says so."""
    there = all((pyodide / name).is_file() for name in LOADED)
    version = json.loads((pyodide / "package.json").read_text())["version"] if there else ""
    files: dict[str, bytes | Path] = {}
    if there:
        files["assets/try/turingas.zip"] = bundle()
        files.update({f"assets/try/pyodide/{name}": pyodide / name for name in LOADED})
    size = sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in files.values())
    examples = {path.stem: path.read_text() for path in EXAMPLES}
    facts = {"engine": version, "bytes": size, "examples": examples}
    return {"assets/try/try.json": json.dumps(facts).encode(), **files}


def on_config(config: Any) -> Any:
    """The navigation has the pages that are made."""
    for entry in config.nav:
        if "Instructions" in entry:
            titles = {place: make().partition("\n")[0].removeprefix("# ") for place, make in pages().items()}
            entry["Instructions"] = [{title: place} for place, title in titles.items()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """What is made stands among the files of docs/."""
    from mkdocs.structure.files import File

    there = drawings()
    for place, make in {**pages(), **{place: there[place] for place in sorted(shown() & set(there))}}.items():
        files.append(File.generated(config, place, content=make()))
    for place, what in tried(PYODIDE).items():
        named = {"abs_src_path": str(what)} if isinstance(what, Path) else {"content": what}
        files.append(File.generated(config, place, **named))
    if not PYODIDE.exists():
        log.info("No Pyodide (`make pyodide`, by npm): nothing runs on the page to try kernels on, and it says so.")
    return files


def on_post_build(config: Any) -> None:
    """Who types LDG means LDG, and not LDGDEPBAR, whose name is rarer: of the mnemonics in the search index the short
    ones come first."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text())
    for entry in index["docs"]:
        if entry["location"].startswith(MNEMONIC):
            entry["boost"] = 100 / len(entry["title"]) ** 2
    path.write_text(json.dumps(index, separators=(",", ":")))
