"""The cubins of a corpus: files, folders, libraries and wheels of libraries, whose fat binaries may lie anywhere."""

from __future__ import annotations

import hashlib
import mmap
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from turingas.cubin import fatbin
from turingas.isa.arch import NAMES, arch

KNOWN = {int(name.removeprefix("sm_").rstrip("af")) for name in NAMES}


@dataclass(frozen=True)
class Source:
    """A cubin of ``library`` that is read when it is asked for; ``name`` tells it from all others and is the same on
    each machine, for a library in a wheel and one that lies in a folder of the wheel's name. ``target``: 100 of sm_100,
    sm_100a and sm_100f, None where only the cubin says it."""

    library: str
    name: str
    read: Callable[[], bytes]
    target: int | None = None

    def may_be(self, archs: Collection[str]) -> bool:
        """Whether it may be for one of these architectures; without any it may."""
        return not archs or self.target is None or any(arch(name).sm == self.target for name in archs)


def share(text: str) -> float:
    """A number from 0 to 1 that a text always gives: who takes all below 0.1 takes a tenth, always the same."""
    return int.from_bytes(hashlib.sha1(text.encode()).digest()[:4], "big") / 2**32


def sources(paths: Iterable[Path], folder: Path) -> list[Source]:
    """All cubins of ``paths`` for architectures that are known, in an order that is drawn by their names: whoever stops
    on the way has seen a sample of all. Libraries in wheels are written to ``folder``."""
    found = [source for path in paths for source in _sources(path, folder)]
    return sorted(found, key=lambda source: share(source.name))


def _sources(path: Path, folder: Path) -> Iterator[Source]:
    if path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.is_file() and (inner.suffix in (".cubin", ".whl") or ".so" in inner.suffixes):
                yield from _sources(inner, folder)
    elif path.suffix == ".cubin":
        named = path.suffixes[-2:-1]
        if not named or named[0][1:] in NAMES or not named[0].startswith(".sm_"):
            yield Source(path.parent.name, f"{path.parent.name}/{path.name}", path.read_bytes)
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in (name for name in wheel.namelist() if ".so" in Path(name).suffixes):
                library = folder / path.name.partition("-")[0] / Path(name).name
                library.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(name) as packed, library.open("wb") as out:
                    shutil.copyfileobj(packed, out)
                yield from _sources(library, folder)
    else:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        library_name = f"{path.parent.name}/{path.name}"
        for number, entry in enumerate(fatbin.entries(data)):
            if entry.target in KNOWN:
                read = partial(fatbin.unpack, data, entry)
                yield Source(library_name, f"{library_name}#{number}", read, entry.target)
