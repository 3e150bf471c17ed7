"""What a method of convolution is to its host, and which methods there are.

A method is two files in methods/: a `.sass` with its kernels, and a class, which is all that the host's side knows of
it and which enters itself with ``enter``. What the kernels of all methods have in common, their names and parameters,
README.md tells.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from turingas.errors import LaunchError
from turingas.isa.arch import ARCHS, NAMES, since

FOLDER = Path(__file__).parent / "methods"
CHANNELS = 8  # of a step
KNOWN = NAMES
AMPERE = tuple(name for name in KNOWN if ARCHS[name] in since("sm_80") - since("sm_100"))  # and later


def ceil_div(a: int, b: int) -> int:
    """How many b cover a."""
    return -(-a // b)


def with_included(source: Path) -> list[Path]:
    """A file, and all that it includes from where it lies, or from FOLDER."""
    found = [source]
    for one in found:  # grows meanwhile
        names = re.findall(r'^\.include "(.+)"', one.read_text(), re.M) if one.suffix == ".sass" else []
        there = [place / name for name in names for place in (one.parent, FOLDER) if (place / name).is_file()]
        found += [path for path in dict.fromkeys(there) if path not in found]
    return found


@dataclass(eq=False)
class Cost:
    """Microseconds on an H200: of a step of 8 channels, and of a job beside its steps; ``again``: of one that begins
    where others have ended, in addition, if each waits for its x anew. They are what fits the times of `turingas bench
    shapes` best: "model" in kernels_sass/results/shapes_sm90.json, under ``name`` (for "nhwc" in
    shapes_sm90_nhwc.json)."""

    name: str
    step: float
    job: float
    again: float = 0.0


@dataclass(frozen=True)
class Main:
    """A main kernel. A block has ``threads`` and ``shared`` bytes of dynamic shared memory, and makes ``filters`` (of
    partial results) x ``tiles``, each of ``rows`` x ``columns`` of y, at most (0: ``Method.tile`` tells). An SM has
    room for ``an_sm`` of them. ``defines``: what the source is assembled with to have this kernel."""

    filters: int
    tiles: int
    rows: int
    columns: int
    an_sm: int
    threads: int
    cost: Cost
    shared: int = 0
    defines: Mapping[str, object] = field(default_factory=dict, hash=False)


class Sizes(Protocol):
    """What a method asks of a Shape, which tells what each is."""

    @property
    def n(self) -> int: ...
    @property
    def c(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def p(self) -> int: ...
    @property
    def q(self) -> int: ...
    @property
    def layout(self) -> str: ...
    @property
    def splits(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, int]: ...
    @property
    def tile(self) -> tuple[int, int]: ...
    @property
    def block(self) -> Main: ...


class Method:
    """A file of kernels, and what a host must know of it. A cubin has one of its main ``kernels``."""

    name: ClassVar[str]  # what Conv2d and `turingas bench` call it
    file: ClassVar[str]  # the kernels, beside the class
    archs: ClassVar[tuple[str, ...]]
    kernels: ClassVar[Mapping[str, Main]]  # the main ones, by name
    order: ClassVar[int]  # place in lists
    general: ClassVar[bool] = False  # takes all sizes; an architecture's default is the last of these in order
    direct: ClassVar[bool] = True  # multiplies as the definition says: 36 products where F(2x2,3x3) takes 16
    early: ClassVar[bool] = True  # kernels may begin before the one before them has ended, and wait for that
    clusters: ClassVar[int] = 1  # blocks that may share channels as one cluster: these write no partial results
    special: ClassVar[bool] = False  # for sm_90 it is assembled for sm_90a, which has HGMMA, and runs where sm_90 runs
    ahead: ClassVar[bool] = False  # it reads U before the kernel ahead, which must not write U, has ended
    persistent: ClassVar[bool] = False  # at most one block an SM, each of which takes tile after tile
    most: ClassVar[float] = math.inf  # channels whose products it may sum up one after another: errors grow with them

    @property
    def path(self) -> Path:
        """Where its kernels lie."""
        return Path(inspect.getfile(type(self))).parent / self.file

    @property
    def files(self) -> list[Path]:
        """The file, and all that it includes from where it lies."""
        return with_included(self.path)

    def kernel(self, name: str) -> Kernel:
        """The main kernel of this name. LaunchError."""
        if name not in self.kernels:
            raise LaunchError(f"{self.file} has no main kernel {name!r}", "it has: " + ", ".join(self.kernels))
        return Kernel(self, name)

    def able(self, shape: Sizes) -> str:
        """Why the shape's kernel cannot do it, "" if it can."""
        return ""

    def suits(self, shape: Sizes) -> bool:
        """Whether it may be faster for a shape than the architecture's default, and so is to be compared with it."""
        return False

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """What its source is assembled with for c channels and k filters, if nobody says otherwise. LaunchError."""
        return {}

    def offered(self, c: int, k: int) -> list[Mapping[str, object]]:
        """The same of all kernels that are to be compared."""
        return [self.defines(c, k)]

    def beside(self, schedule: Mapping[str, object]) -> list[dict[str, object]]:
        """What else its source may be assembled with: for other main kernels, which take the same filters and give the
        same bits, so that the faster one may be launched."""
        return []

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Rows and columns of y in a tile."""
        return shape.block.rows, shape.block.columns

    def grid(self, shape: Sizes, sms: int) -> tuple[int, int, int]:
        """Of the main kernel, on so many SMs."""
        tiles, filters = shape.blocks
        return (min(sms, tiles * filters), 1, 1) if self.persistent else (tiles, filters, 1)

    def shared(self, shape: Sizes, sms: int) -> int:
        """Bytes of dynamic shared memory of a block, on so many SMs."""
        return shape.block.shared

    def steps(self, shape: Sizes) -> float:
        """Of a job, in the time of ``Cost.step``."""
        return shape.steps


class Kernel(NamedTuple):
    """A main kernel: which one of which method. Those of two methods may have the same name."""

    method: Method
    name: str

    @property
    def block(self) -> Main:
        """What a block of it is."""
        return self.method.kernels[self.name]


#: By name, in order.
METHODS: dict[str, Method] = {}

M = TypeVar("M", bound=Method)


def enter(method: M) -> M:
    """The method, which is one of METHODS from now on."""
    METHODS[method.name] = method
    for one in sorted(METHODS.values(), key=lambda one: one.order):
        METHODS[one.name] = METHODS.pop(one.name)
    return method


def kernels() -> list[Kernel]:
    """All main kernels, in the order of their methods."""
    return [Kernel(method, name) for method in METHODS.values() for name in method.kernels]


def usual() -> Kernel:
    """The main kernel that a Shape has unless told otherwise: of the first method for all sizes."""
    return next(Kernel(one, name) for one in METHODS.values() if one.general for name in one.kernels)
