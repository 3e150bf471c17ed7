"""One cubin out of what tools leave behind: a cubin, a fat binary, an object, library or executable, a folder in which
Triton keeps what it compiled. Which one: by the kernel and the architecture.

Triton writes NAME.json beside NAME.cubin: how many warps a block has, and how much dynamic shared memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from turingas.cubin import fatbin, mangled
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.kinds import EM_CUDA
from turingas.cubin.read import architecture
from turingas.errors import CubinError, LaunchError

ELF = b"\x7fELF"
HOLDERS = (fatbin.MAGIC, b"!<arch>\n")  # how fat binaries and libraries of objects begin
SHOWN = 12  # of what there is to choose from
WARP = 32
Row = tuple[str, str, str]  # architecture, kernel, place


@dataclass(frozen=True)
class Found:
    """A cubin that was picked, the kernel that it was picked for ("": any), and what stands beside it of its launch:
    threads of a block and bytes of dynamic shared memory, None where nothing does. ``scratch``: bytes for
    each block of what Triton's last pointers, which are none of the function's, point to. ``source``: what it was
    assembled from, if it was."""

    cubin: Cubin
    kernel: str = ""
    block: int | None = None
    shared: int | None = None
    scratch: tuple[int, ...] = ()
    source: str = ""


def holds(data: bytes) -> bool:
    """Whether these are the bytes of a file that has cubins in it, and is none itself."""
    if data.startswith(ELF) and len(data) >= 20:
        return data[4:6] == b"\x02\x01" and int.from_bytes(data[18:20], "little") != EM_CUDA
    return data.startswith(HOLDERS)


def pick(
    source: str | os.PathLike[str] | bytes,
    kernel: str | None = None,
    fits: Callable[[str], bool] = lambda arch: True,
    wanted: str = "",
    how: str = "--arch and --kernel choose",
    newest: bool = False,
) -> Found:
    """The cubin in ``source`` (a path or a file's bytes) that has ``kernel`` (its name in the cubin, or in C++) and is
    of an architecture that ``fits``, which ``wanted`` puts in words (" for sm_80").

    LaunchError where there is none, with what there is instead, and where several fit: ``how`` tells what chooses;
    with ``newest``, architectures do not count as several.
    CubinError for a damaged one, ModuleNotFoundError where what unpacks it is not installed.
    """
    what = "these bytes" if isinstance(source, bytes) else f"this {'folder' if os.path.isdir(source) else 'file'}"
    there: list[Row] = []  # other kernels, as far as they are shown
    archs: set[str] = set()  # others
    fitting: dict[bytes, tuple[Cubin, list[str], str]] = {}  # a library may have the same cubin twice
    unread: CubinError | None = None
    for place, arch, data in _cubins(source):
        if not fits(arch):
            archs.add(arch)
            continue
        wrong = kernel is not None and kernel.encode() not in data
        if wrong and len(there) > SHOWN:
            continue  # a large library: no need to read them all
        try:
            cubin = Cubin.from_bytes(data)
        except CubinError as error:
            unread = unread if wrong else unread or error
            there.append((arch, "", place))
            continue
        names = [one.name for one in cubin.kernels]
        chosen = [] if wrong else matching(names, kernel)
        if chosen or not wrong and kernel is None:
            fitting.setdefault(data, (cubin, chosen, place))
        else:
            there += [(arch, name, place) for name in names]
    if any(names for _, names, _ in fitting.values()):  # nvcc links an empty cubin into programs and libraries
        fitting = {data: one for data, one in fitting.items() if one[1]}
    if newest and fitting:
        last = max(cubin.arch for cubin, *_ in fitting.values())
        fitting = {data: one for data, one in fitting.items() if one[0].arch == last}
    if len(fitting) == 1:
        [(cubin, names, place)] = fitting.values()
        if kernel is None or len(names) == 1:
            return Found(cubin, names[0] if kernel is not None else "", *beside(place))
    if fitting:
        rows = [(cubin.arch, name, place) for cubin, names, place in fitting.values() for name in names or [""]]
        asked = f"{len(rows)} kernels are called {kernel}" if kernel is not None else f"{len(fitting)} cubins fit"
        how += ", or one of these paths" if what == "this folder" else ""
        raise LaunchError(f"in {what} {asked}{wanted}", f"{how}:{_listed(rows)}")
    if unread is not None:
        raise unread
    if not there and archs:
        raise LaunchError(f"no cubin{wanted} in {what}", "there are cubins for " + ", ".join(sorted(archs)))
    if not there:
        raise LaunchError(f"no cubin in {what}", "it may hold PTX alone, which the driver compiles")
    raise LaunchError(f"no kernel {kernel!r}{wanted} in {what}", f"there are:{_listed(there)}")


def matching(names: list[str], kernel: str | None) -> list[str]:
    """Those called ``kernel``: all without one, the one of that very name, else those that C++ calls so (``add``,
    ``ns::add``, ``add<int, 4>``)."""
    if kernel is None or kernel in names:
        return names if kernel is None else [kernel]
    return mangled.those(names, kernel)


def beside(place: str) -> tuple[int | None, int | None, tuple[int, ...]]:
    """Threads of a block, dynamic shared memory and scratch memory, as Triton wrote them beside the cubin ``place``."""
    try:
        facts = json.loads(Path(place).with_suffix(".json").read_text())
        scratch = [facts[name] for name in ("global_scratch_size", "profile_scratch_size") if name in facts]
        return WARP * int(facts["num_warps"]), int(facts["shared"]), tuple(map(int, scratch))
    except (OSError, ValueError, KeyError, TypeError):
        return None, None, ()


def _cubins(source: str | os.PathLike[str] | bytes) -> Iterator[tuple[str, str, bytes]]:
    """Place, architecture and bytes of each cubin."""
    if isinstance(source, bytes):
        for number, arch, data in fatbin.within(source):
            yield f"number {number}", arch, data
    elif os.path.isdir(source):
        for path in sorted(Path(source).rglob("*.cubin")):
            data = path.read_bytes()
            try:
                yield str(path), architecture(Elf.from_bytes(data)), data
            except CubinError as error:
                raise CubinError(f"{error.message} ({path})", error.offset) from None
    else:
        for number, arch, data in fatbin.cubins(source):
            yield f"number {number}", arch, data


def _listed(rows: list[Row]) -> str:
    lines = [f"\n  {arch:7} {name}{' ' * bool(name)}({place})" for arch, name, place in rows[:SHOWN]]
    return "".join(lines) + ("\n  ..." if len(rows) > SHOWN else "")
