"""Our kernels as they take part in a comparison, and what their results are dated with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass import conv
from kernels_sass.conv.method import KNOWN, METHODS, Kernel, kernels
from kernels_sass.conv.parameters import variants
from loader.bench import results
from loader.bench.measure import Contender, Data, Refused
from loader.cuda import Buffer, Device, Stream


class Ours(Contender):
    """The kernels of kernels_sass/conv. ``part``: "all", both kernels; "main", the convolution alone, its filters
    transformed before; "filter", the transformation alone. ``variant``, in the name, is the kernel that ``schedule``
    makes of the source. ``way``: splits and main kernel, see conv.Shape; None: those that Conv2d takes if it is
    told the source. Every copy has a U of its own."""

    group, bound = "ours", 2e-6

    def __init__(
        self, source: str, layout: str, part: str = "all", schedule: Mapping[str, object] | None = None,
        name: str = "", variant: Sequence[object] = (), way: tuple[int, Kernel] | None = None,
    ) -> None:  # fmt: skip
        words = ["ours", source, *map(str, variant), layout] + [part] * (part != "all")
        words += [] if way is None else [said(source, *way)]
        super().__init__(name or " ".join(words))
        self.source, self.layout, self.part, self.schedule = source, layout, part, dict(schedule or {})
        self.way = way
        self.u: list[Buffer] = []
        self.partial: Buffer | None = None

    def prepare(self, data: Data) -> None:
        p, gpu = data.problem, data.gpu
        if why := conv.supports(p):
            raise Refused(why)
        shape = conv.Shape.of(p, self.layout)
        every = conv.Kernels.of(conv.arch_of(gpu), self.source, self.schedule).every(shape if self.way else None)
        if self.way is None:
            self.shape = conv.split(shape, str(gpu), tuple(every))
        else:
            self.shape = replace(shape, splits=self.way[0], kernel=self.way[1])
        self.kernels = every[self.shape.kernel]
        method = self.kernels.method
        self.early = method.early and not (method.ahead and self.part == "all")
        self.module, self.sms = self.kernels.load(str(gpu)), conv.sms(str(gpu))
        floats = conv.filter_floats(p.c, p.k)
        self.workspace = 4 * (floats + self.shape.floats)
        if self.shape.floats and self.part != "filter":
            self.partial = Buffer(self.shape.floats, np.float32, gpu).fill(0xFF)
        self.u = [Buffer(floats, np.float32, gpu).fill(0xFF) for _ in range(data.copies)]
        self.x, self.y, self.w = (data.arrays(*what) for what in
                                  (("x", self.layout), ("y", self.layout), ("w", "KCRS")))  # fmt: skip
        if self.part == "main":
            gpu.synchronize()
            for copy in range(data.copies):
                self._filter(copy, data.stream)

    def launch(self, copy: int, stream: Stream) -> None:
        if self.part != "main":
            self._filter(copy, stream)
        if self.part != "filter":
            x, u, y = self.x[copy], self.u[copy], self.y[copy]
            conv.convolve(
                self.module, self.shape, x, u, y,
                sms=self.sms, partial=self.partial or 0, stream=stream.handle, early=self.early,
            )  # fmt: skip

    def _filter(self, copy: int, stream: Stream) -> None:
        sizes, early = (self.shape.c, self.shape.k), self.kernels.method.early
        conv.transform(self.module, self.w[copy], self.u[copy], *sizes, stream=stream.handle, early=early)

    def output(self, copy: int) -> Any:
        return self.y[copy]

    def close(self) -> None:
        for one in (*self.u, *filter(None, [self.partial])):
            one.free()
        self.u.clear()
        self.partial = None


def ours(sources: Sequence[str], layouts: Sequence[str], schedule: Mapping[str, object]) -> list[Contender]:
    """Each kernel of each source in each layout, with and without the filters' transformation, and that alone."""
    made: list[Contender] = []
    for source in sources:
        for variant in variants(METHODS[source], schedule):
            given, values = {**schedule, **variant}, tuple(variant.values())
            parts = [*itertools.product(layouts, ("all", "main")), (layouts[0], "filter")]
            made += [Ours(source, layout, part, given, variant=values) for layout, part in parts]
    return made


def said(source: str, splits: int, kernel: Kernel) -> str:
    """A way of a source's comparison, as results have it."""
    return f"{splits} x {next(name for name, one in named(source).items() if one == kernel)}"


def way_of(source: str, said: str) -> tuple[int, Kernel]:
    """The way that is ``said``."""
    splits, name = said.split(" x ")
    return int(splits), named(source)[name]


def named(source: str) -> dict[str, Kernel]:
    """What main kernels are called in the results of a source: by their names, its own first; with its method's name
    the one that has the name of another before it."""
    found: dict[str, Kernel] = {}
    for one in sorted(kernels(), key=lambda one: one.method.name != source):
        found[one.name if one.name not in found else f"{one.name} of {one.method.name}"] = one
    return found


# ---- what results are dated with ---------------------------------------------------------------------------------


def dated(what: str, gpu: Device, sources: Sequence[str]) -> results.Json:
    """``results.facts`` with the files of these sources."""
    return results.facts(what, gpu, [path for name in sources for path in METHODS[name].files])


def kept_in(name: str, arch: str, source: str) -> Path:
    """``results.default_path``; with a source that is not the best for the card, NAME_sm90_SOURCE.json."""
    return results.default_path(name, arch, _other(arch, source))


def _other(arch: str, source: str) -> str:
    return source if arch in KNOWN and source != conv.choose(arch).name else ""


def kept(name: str, path: Path | None, source: str | None) -> results.Json:
    """``results.recorded``, of a source: of the best for an H200, unless it is named."""
    return results.recorded(name, path, other=_other("sm_90", source) if source else "")
