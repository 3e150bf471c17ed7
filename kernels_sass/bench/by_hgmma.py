"""`turingas bench schedule --source hgmma`: the convolutions by HGMMA, by the parameters of their sources.

A layer is ``Conv2d(kernel="hgmma")``. As it is, it chooses one of three sources and all parameters by the sizes. With a
schedule it has the source that the schedule is for; what that does not say is chosen by the sizes. Each row tells all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels_sass.bench.conv import Ours, Typed
from kernels_sass.bench.vary import REFUSED, known
from kernels_sass.conv.implicit import KNOBS, supported
from kernels_sass.conv.method import with_included
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.parameters import Parameter, read
from loader.bench import results
from loader.bench.measure import Contender, Data, Refused
from loader.cuda import Device
from loader.reference.problem import Problem
from turingas.errors import LaunchError

Values = Mapping[str, object]  # of parameters
Several = Mapping[str, tuple[object, ...]]

SPLITS = "CLUSTER"  # of the source: ``splits`` of Conv2d
MOST = 8  # values of a parameter that vary unless asked for: of more, powers of two


@dataclass(frozen=True)
class Tiles:
    """A source. ``anchor``: a schedule that asks for it, and for nothing else."""

    name: str
    path: Path
    anchor: Mapping[str, int]
    layout = "NHWC"
    square = False  # not for filters of 3 x 3 with stride 1 alone
    counted = "TFLOP/s, two operations for each product of a direct convolution, and milliseconds"

    @property
    def files(self) -> list[Path]:
        """The source with what it includes; the others, one of which the layer may have as it is; and what brings x
        into order for them."""
        others = sorted(hgmma.FOLDER.glob("hgmma*.sass"))
        return list(dict.fromkeys([*with_included(self.path), *others, hgmma.PACK, hgmma.PACK_FEW]))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All that the source has."""
        return read(with_included(self.path))

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those that it has, the first one unless asked for."""
        types = self.parameters["TYPE"].values
        found = [name for name, one in hgmma.PRECISIONS.items() if one.type in types]
        return tuple(sorted(found, key=lambda name: types.index(hgmma.PRECISIONS[name].type)))

    def settled(
        self, schedule: Values, vary: Several, gpu: Device, tell: Callable[[str], None]
    ) -> tuple[Values, Several]:
        """What does not vary, and what does: as asked for, or all that the source has. LaunchError for what it has
        not."""
        supported(str(gpu))
        there, able = self.parameters, {*map(str.upper, KNOBS), SPLITS}
        fixed = {name: "the layer decides it" for name in there if name not in able}
        fixed["TYPE"] = "--precision is for that"
        given = known(self.path.name, there, fixed, {name: (value,) for name, value in schedule.items()})
        vary = known(self.path.name, there, fixed, vary) or {
            name: usual(one) for name, one in there.items()
            if name not in fixed and name not in given and one.default is not None}  # fmt: skip
        return {name: value for name, (value,) in given.items()}, vary

    def data(self, problem: Problem, gpu: Device, precision: str, seed: int) -> Data:
        """The arrays."""
        return Typed(problem, gpu, precision, seed)

    def contender(self, precision: str, layout: str, schedule: Values, name: str) -> Contender:
        """The layer with a schedule."""
        return Scheduled(precision, layout, name, {**self.anchor, **schedule} if schedule else {})

    def operations(self, problem: Problem) -> tuple[dict[str, int], int]:
        """What the setting says of them, and what ``tflops`` counts."""
        return {"flops": problem.flops}, problem.flops

    def more(self, problem: Problem, one: Contender, ms: float, gpu: Device, states: results.Json) -> results.Json:
        """Of a row: the source, and its parameters."""
        assert isinstance(one, Scheduled) and one.kernel is not None
        return {"source": hgmma.source_of(one.kernel).name, "defines": hgmma.defines(one.kernel)}


def usual(one: Parameter) -> tuple[object, ...]:
    """Values that vary unless asked for, the default first."""
    few = one.values
    if len(few) > MOST:
        few = tuple(value for value in few if isinstance(value, int) and value.bit_count() == 1)
    return tuple(dict.fromkeys([one.default, *few]))


class Scheduled(Ours):
    """The layer with a schedule. ``kernel``: what comes of it."""

    kernel: hgmma.Kernel | None = None

    def __init__(self, precision: str, layout: str, name: str, schedule: Values) -> None:
        own = {key: value for key, value in schedule.items() if key != SPLITS}
        super().__init__(precision, layout, kernel=hgmma.NAME, schedule=own, splits=schedule.get(SPLITS))
        self.name = name

    def prepare(self, data: Data) -> None:
        try:
            super().prepare(data)
            self.launch(0, data.stream)  # what the sizes do not allow shows at a first call
        except LaunchError as why:
            raise Refused(REFUSED + why.message + (f" ({why.hint})" if why.hint else "")) from why
        assert self.layer is not None and self.layer._implicit is not None
        (plan,) = self.layer._implicit.plans.values()
        self.kernel = plan.kernel


SOURCES = {one.name: one for one in (
    Tiles("hgmma", hgmma.SOURCE, {"GROUP": 1}),
    Tiles("hgmma_wide", hgmma.WIDE_SOURCE, {"TILE_M": hgmma.TILE_M}),
    Tiles("hgmma_window", hgmma.WINDOW, {"WINDOWS": 2}),
)}  # fmt: skip
