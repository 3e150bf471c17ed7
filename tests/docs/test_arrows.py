"""docs/architecture.md says which room may import which, and no two modules import each other, however late."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
# what is still to be mended
LEFT_CLIMBING: list[str] = []
LEFT_CIRCLES: list[str] = []
PACKAGES = ("turingas", "loader", "kernels_sass")


def modules(root=ROOT, packages=PACKAGES):
    """Name of each module -> its syntax tree."""
    found = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def imports(trees):
    """Module -> the modules that it imports anywhere: in functions, for types alone, and through import_module."""
    found = {}
    for name, tree in trees.items():
        to = set()
        dynamic = any("import_module" in (getattr(n, "attr", ""), getattr(n, "id", "")) for n in ast.walk(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                to.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: a relative import"
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    to.add(below if below in trees else node.module)
            elif dynamic and isinstance(node, ast.Constant) and node.value in trees and "." in node.value:
                to.add(node.value)
            elif dynamic and isinstance(node, ast.JoinedStr) and "__name__" in ast.unparse(node):
                to.update(other for other in trees if other.startswith(f"{name}."))
        found[name] = {other for other in to if other in trees and other != name}
    return found


def circles(arrows):
    """Groups of modules that can all be reached from each other."""
    reach = {}
    for start in arrows:
        seen, todo = set(), [start]
        while todo:
            for other in arrows[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        reach[start] = seen
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in arrows if a in reach[a]}


def line():
    """The levels of the page, the lowest first: lists of rooms."""
    found = re.search(r"```text\n(errors.*? < cli.*?)```", PAGE.read_text(), re.S)
    return [level.split(", ") for level in " ".join(found[1].split()).split(" < ")]


def room(module, rooms):
    """``turingas.isa.arch`` belongs to isa, ``loader.cuda`` to loader, turingas/__init__.py to turingas."""
    package, *rest = module.split(".")
    if package != "turingas":
        return package
    own = rest[0] if rest else "turingas"
    return {"__main__": "cli"}.get(own, own)


def climbing(arrows, levels):
    """Imports that go to the right, or to another room of the same level."""
    height = {name: n for n, level in enumerate(levels) for name in level}
    for name, to in sorted(arrows.items()):
        for other in sorted(to):
            here, there = room(name, height), room(other, height)
            if here != there and height[here] <= height[there]:
                yield f"{name} -> {other}"


@pytest.fixture(scope="module")
def arrows():
    return imports(modules())


def test_each_room_stands_on_the_line_once(arrows):
    rooms = [name for level in line() for name in level]
    assert sorted(rooms) == sorted({room(name, rooms) for name in arrows})


def test_imports_go_to_the_left(arrows):
    assert list(climbing(arrows, line())) == LEFT_CLIMBING


def test_there_is_no_circle(arrows):
    assert sorted(min(circle) for circle in circles(arrows)) == LEFT_CIRCLES


@pytest.mark.parametrize("text", [
    "import {other}", "def f():\n    from pack import b", "if TYPE_CHECKING:\n    from pack.b import x",
    "import importlib\nimportlib.import_module('pack.b')",
])  # fmt: skip
def test_what_would_be_found(tmp_path, text):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("")
    (tmp_path / "pack/a.py").write_text(text.format(other="pack.b"))
    (tmp_path / "pack/b.py").write_text("from pack.a import f\n")
    found = imports(modules(tmp_path, ("pack",)))
    assert circles(found) == {frozenset({"pack.a", "pack.b"})}


def test_what_would_climb():
    levels = [["errors"], ["isa"], ["check", "emulate"], ["loader"]]
    found = {
        "turingas.isa.forms": {"turingas.errors", "turingas.check.lint"}, "turingas.errors": set(),
        "turingas.check.lint": {"turingas.emulate.device", "turingas.isa.forms"}, "loader.cuda": {"turingas.isa.forms"},
    }  # fmt: skip
    assert list(climbing(found, levels)) == [
        "turingas.check.lint -> turingas.emulate.device", "turingas.isa.forms -> turingas.check.lint",
    ]  # fmt: skip


def test_the_loader_does_not_load_the_emulator():
    """Who has a GPU does not wait for it; who asks for the CPU device gets it then."""
    code = "import sys, loader; print(sorted(m for m in sys.modules if m.startswith('turingas.emulate')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout == "[]\n"
