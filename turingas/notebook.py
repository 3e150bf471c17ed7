"""Tables that notebooks show in the place of a repr."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """HTML of a table, without a head where it has no ``titles``. Texts are escaped: names in cubins are anything."""
    lines = ["".join(f"<td>{html.escape(str(one))}</td>" for one in row) for row in rows]
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{line}</tr>" for line in [head, *lines] if line)
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"
