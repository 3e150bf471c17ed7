"""The page: a template, its style and its script, and the facts as JSON in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib import resources

from turingas.errors import LaunchError
from turingas.report.facts import File, kernel_facts
from turingas.report.roofline import Ceilings
from turingas.version import __version__

SCRIPTS = ("facts.js", "list.js", "loops.js", "source.js", "views.js", "page.js")


def page(files: Sequence[File], title: str = "", ceilings: Ceilings | None = None) -> str:
    """One HTML file that loads nothing, with all kernels of ``files``. ``title``: by default the names of the files;
    ``ceilings``: what the memories of a GPU give, for the roofline of kernels that ran.

    LaunchError without Jinja2, or where there is no kernel.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise LaunchError("the report needs Jinja2", "pip install jinja2") from None
    kernels = [_json(kernel_facts(file, kernel, ceilings)) for file in files for kernel in file.shown]
    if not kernels:
        raise LaunchError("there is no kernel to report on")
    script = "".join(_part(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("turingas.report", "page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    index = [{"name": text.name, "file": file.name, "arch": text.arch} for file in files for text in file.shown]
    return environment.get_template("page.html").render(
        title=_clean(title or ", ".join(dict.fromkeys(os.path.basename(file.name) for file in files))),
        version=__version__, style=Markup(_part("style.css")), script=Markup(script), digest=digest,
        index=Markup(_json(index)), kernels=[Markup(one) for one in kernels],
    )  # fmt: skip


def _part(name: str) -> str:
    return (resources.files("turingas.report") / "page" / name).read_text("utf-8")


def _json(value: object) -> str:
    """JSON that no text in it can end: it stands within a script element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _clean(text: str) -> str:
    """Names may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()
