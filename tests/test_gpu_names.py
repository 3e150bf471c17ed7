"""What tests on a GPU import and ask of our modules is there: they run where there is a GPU alone, and names move."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

OURS = ("turingas", "loader", "kernels_sass", "tests")
FILES = sorted(Path(__file__).parent.joinpath("gpu").glob("*.py"))


def missing(tree: ast.AST) -> list[str]:
    """The names that are not there, of modules of ours."""
    modules: dict[str, ModuleType] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            assert node.module is not None
            for alias in node.names:
                try:
                    module = importlib.import_module(node.module)
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
                    value = getattr(module, alias.name)
                except ImportError as error:
                    found.append(str(error))
                    continue
                if isinstance(value, ModuleType):
                    modules[alias.asname or alias.name] = value
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in OURS:
                    modules[alias.asname or alias.name] = importlib.import_module(alias.name)
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in stored:
            asked = modules.get(node.value.id)
            if asked is not None and not hasattr(asked, node.attr):
                found.append(f"{asked.__name__}.{node.attr}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_names_are_there(file: Path) -> None:
    if "importorskip(\"torch\", reason" in file.read_text():
        pytest.importorskip("torch")
    assert not missing(ast.parse(file.read_text()))


def test_a_name_that_moved_is_seen() -> None:
    text = "import loader\nfrom loader.cuda import Nobody, Buffer\nloader.nothing()\nloader.load(Buffer.of(1))\n"
    assert missing(ast.parse(text)) == ["No module named 'loader.cuda.Nobody'", "loader.nothing"]
