"""Memory that is full of NaN before anybody writes it, for what compute-sanitizer's initcheck cannot see.

initcheck does not see what tensor copies (UTMASTG) store: of results that are complete and right it says that they were
never written. With memory that holds something from the beginning it is silent about these, and about what a kernel
reads too early as well; that makes NaN of a result instead, which no comparison lets through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from loader.cuda import Buffer


@contextmanager
def poisoned() -> Iterator[None]:
    """Every Buffer that is made meanwhile, those of the kernels between each other, too."""
    made = Buffer.__init__

    def full(self: Buffer, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        if self.nbytes:
            self.fill(0xFF)

    with patch.object(Buffer, "__init__", full):
        yield
