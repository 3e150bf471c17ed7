"""`turingas bench conv`: convolution in four precisions, every layer of ResNet-50 and the settings of `bench winograd`.

Ours is Conv2d as a network calls it, weights brought into order before, what NCHW costs included. Beside it PyTorch in
the same precision, which in benchmark mode takes the fastest of all engines that cuDNN's heuristics give, in NCHW and
NHWC, and in float32 each algorithm of cuDNN. All take turns, and are compared with float64 first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass.conv import Conv2d
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from loader.bench import contenders, cudnn, measure, results
from loader.bench.bench import SECONDS, Bench, Option
from loader.bench.measure import Contender, Data, gpu_at_hand
from loader.cuda import Buffer, Device, Stream
from loader.reference.problem import Problem, arrange, relative_error
from turingas.errors import LaunchError

LAYOUTS = ("NHWC", "NCHW")
BOUNDS = {"fp32": 2e-6, "tf32": 2e-3, "fp16": 1e-3, "bf16": 6e-3}  # of the relative L2 error, ours
THEIRS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 1e-2}
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
RUNS = 12
WARM = 16  # launches that take the same arrays
WITHOUT = "without one, `turingas bench conv --show` prints the results that are kept"

#: of ResNet-50: rows of x, C, K, size of the filters, stride. What stands there several times stands here once.
RESNET = (
    (224, 3, 64, 7, 2),
    (56, 64, 64, 1, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1),
    (28, 512, 256, 1, 1), (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2), (14, 1024, 256, 1, 1),
    (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1), (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1),
)  # fmt: skip
#: those of 3 x 3 with stride 1, as `bench winograd` has them: with four numbers of images the 16 settings
SQUARE = ((56, 64, 64, 3, 1), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1))
GROUPS = {"1x1": "1 x 1", "stride 2": "3 x 3, stride 2", "start": "7 x 7", "16": "the 16 settings"}


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    groups: tuple[str, ...] = tuple(GROUPS)
    precisions: tuple[str, ...] = tuple(PRECISIONS)
    batches: tuple[int, ...] = (32, 128)
    more: tuple[int, ...] = (32, 64, 96, 128)  # images of the 16 settings
    runs: int = RUNS
    seconds: float = math.inf
    seed: int = 0
    warm: bool = False

    def settings(self) -> dict[str, tuple[str, Problem]]:
        """Group and problem, by name."""
        found = {}
        for layers, batches in ((RESNET, self.batches), (SQUARE, self.more)):
            for h, c, k, r, stride in layers:
                group = "16" if layers is SQUARE else {1: "1x1", 3: "stride 2", 7: "start"}[r]
                for n in batches if group in self.groups else ():
                    p = Problem(n, c, h, h, k, r, r, stride, r // 2)
                    found[f"{c} -> {k}, {r}x{r}/{stride}, {h}x{h}, N={n}"] = group, p
        return found


# ---- arrays of a precision ---------------------------------------------------------------------------------------


def rounded(x: Any, precision: str) -> Any:
    """float32 numbers that the precision has."""
    if precision == "fp16":
        return x.astype(np.float16).astype(np.float32)
    if precision == "bf16":
        bits = x.view(np.uint32)
        return (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)).view("f4")
    return x


def typed(x: Any, dtype: Any) -> Any:
    """float32 numbers as an array; uint16: bfloat16, what it cannot hold cut off."""
    return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if dtype is np.uint16 else x.astype(dtype)


class Typed(Data):
    """Data whose arrays are of a precision; bfloat16 as its bits. Each run takes the same w; ``warm``: and the same x
    and y."""

    def __init__(
        self, problem: Problem, gpu: Device, precision: str, seed: int = 0, given: Any = None, warm: bool = False
    ) -> None:
        super().__init__(problem, gpu, seed, once="w")
        if warm:
            self.copies, self.once = WARM, "xwy"
        self.precision, self.dtype = precision, DTYPES[PRECISIONS[precision].dtype]
        self.host = {name: rounded(x, precision) for name, x in (given or self.host).items()}

    def arrays(self, name: str, layout: str) -> list[Buffer]:
        key, count = (name, layout), self.different(name)
        if key not in self._made:
            axes = "KCRS" if name == "w" else "NCHW"
            if name == "y":
                shape = tuple(self.problem.y_shape[axes.index(letter)] for letter in layout)
                self._made[key] = [Buffer(shape, self.dtype, self.gpu) for _ in range(count)]
            else:
                first = self._first(name, axes, layout)
                others = [Buffer(first.shape, first.dtype, self.gpu) for _ in range(count - 1)]
                for other in others:
                    self.gpu.call("cuMemcpyDtoDAsync", other.address, first.address, first.nbytes, 0)
                self._made[key] = [first, *others]
        return self._made[key] * (self.copies // count)

    def _first(self, name: str, axes: str, layout: str) -> Buffer:
        """On the GPU; PyTorch brings it into another order, for which the host takes seconds."""
        if layout == axes or measure.torch() is None:
            return Buffer.of(typed(arrange(self.host[name], axes, layout), self.dtype), self.gpu)
        given = tensor(self.arrays(name, axes)[0], self.precision).permute(*(axes.index(letter) for letter in layout))
        made = Buffer(tuple(given.shape), self.dtype, self.gpu)
        tensor(made, self.precision).copy_(given)
        self.gpu.synchronize()
        return made

    def error(self, y: Any, layout: str) -> float:
        if measure.torch() is None:
            if self._exact is None:
                self._exact = self._truth()
            found = y.numpy()
            wide = (found.astype(np.uint32) << 16).view(np.float32) if self.dtype is np.uint16 else found
            return relative_error(arrange(wide, layout, "NCHW"), self._exact)
        return super().error(y, layout)

    def _seen(self, buffer: Buffer, layout: str) -> Any:
        return tensor(buffer, self.precision).permute(*(layout.index(axis) for axis in "NCHW"))


class _Int16:
    """A buffer of uint16 as PyTorch takes it, to see it as bfloat16."""

    def __init__(self, buffer: Buffer) -> None:
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, "typestr": "<i2"}


def tensor(buffer: Buffer, precision: str) -> Any:
    """A buffer as PyTorch's tensor, in place."""
    library = measure.torch()
    if precision == "bf16":
        return library.as_tensor(_Int16(buffer), device=str(buffer.gpu)).view(library.bfloat16)
    return library.as_tensor(buffer, device=str(buffer.gpu))


# ---- who takes part ----------------------------------------------------------------------------------------------


class Ours(Contender):
    """``Conv2d``. ``options``: other arguments of it, which stand in the name."""

    group = "ours"

    def __init__(self, precision: str, layout: str, **options: Any) -> None:
        words = ["ours", layout]
        words += [f"{key}={value}" for key, value in {**options, **options.get("schedule", {})}.items()
                  if key != "schedule"]  # fmt: skip
        super().__init__(" ".join(words))
        self.precision, self.layout, self.options, self.bound = precision, layout, options, BOUNDS[precision]
        self.layer: Conv2d | None = None

    def prepare(self, data: Data) -> None:
        p = data.problem
        self.x, self.y = data.arrays("x", self.layout), data.arrays("y", self.layout)
        self.layer = Conv2d(data.arrays("w", "KCRS")[0], None, p.padding, layout=self.layout, stride=p.stride,
                            precision=self.precision, **self.options)  # fmt: skip

    def launch(self, copy: int, stream: Stream) -> None:
        assert self.layer is not None
        self.layer.queue(self.x[copy], self.y[copy], stream.handle)

    def output(self, copy: int) -> Any:
        return self.y[copy]

    def close(self) -> None:
        if self.layer is not None:
            self.layer.close()


class Torch(contenders.Torch):
    """torch.nn.functional.conv2d in benchmark mode, in any of the precisions. It tries all engines that cuDNN's
    heuristics give, where ten are its default."""

    def __init__(self, precision: str, layout: str) -> None:
        super().__init__("fp32", layout)
        self.name, self.precision, self.bound = f"PyTorch {layout}", precision, THEIRS[precision]
        self.group, self.every = "rival", 1

    def _tensor(self, buffer: Buffer, layout: str) -> Any:
        return tensor(buffer, self.precision).permute(*(layout.index(axis) for axis in "NCHW"))

    def _convolve(self, copy: int) -> None:
        found = self.torch.backends.cudnn
        before, found.benchmark_limit = found.benchmark_limit, 0
        try:
            super()._convolve(copy)
        finally:
            found.benchmark_limit = before


class Cudnn(cudnn.Cudnn):
    """An algorithm of cuDNN."""

    group = "rival"


def every(precision: str, p: Problem) -> list[Contender]:
    """All that take part in a setting. Ours: as Conv2d chooses in both layouts; by HGMMA and by Winograd's method where
    there are both."""
    made: list[Contender] = [Ours(precision, layout) for layout in LAYOUTS]
    by_winograd = precision == "fp32" and (p.r, p.stride) == (3, 1)
    if by_winograd:
        made += [Ours(precision, layout, kernel=kernel) for kernel in (hgmma.NAME, "hopper") for layout in LAYOUTS]
    made += [Torch(precision, layout) for layout in LAYOUTS]
    if precision == "fp32":
        made += [Cudnn(name, layout) for layout in cudnn.FORMATS for name in cudnn.ALGORITHMS]
    return made


# ---- the measurement ---------------------------------------------------------------------------------------------


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    if not gpu.runs(hgmma.ARCH):
        raise LaunchError(f"{gpu} ({gpu.name}) is {gpu.arch}; the kernel is for {hgmma.ARCH}", WITHOUT)
    if path is None and dataclasses.replace(asked, seconds=math.inf) == Asked():
        path = results.default_path("conv", gpu.arch)
    facts = results.facts("bench conv", gpu, [*hgmma.FOLDER.glob("hgmma*.sass"), hgmma.PACK, hgmma.PACK_FEW])
    file = results.Results(path, facts, dataclasses.asdict(asked))
    return file.fill(asked.settings(), asked.seconds, tell,
                     lambda _, what, step: setting(what[0], what[1], gpu, asked, step), summary, brief)  # fmt: skip


def join(files: Sequence[Path], path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Files of this command, with other groups or images each, as one, in ``path`` or where results go. LaunchError for
    those of other precisions."""
    found = results.join(several := [results.recorded("conv", file) for file in files])
    for one in several:
        if one["asked"]["precisions"] != found["asked"]["precisions"]:
            raise LaunchError(f"{one['asked']['precisions']} in one file, {found['asked']['precisions']} in all",
                              "join files of the same precisions")  # fmt: skip
    groups = tuple(one for one in GROUPS if one in found["asked"]["groups"])
    precisions, batches, more = (tuple(found["asked"][name]) for name in ("precisions", "batches", "more"))
    asked = Asked(groups, precisions, batches, more)
    there = found["settings"]
    found["asked"]["groups"] = list(asked.groups)
    found["settings"] = {name: there[name] for name in asked.settings() if name in there}
    found["summary"], found["complete"] = summary(there), len(there) == len(asked.settings())
    path = path or results.default_path("conv", found["arch"])
    results.keep(path, found)
    tell(f"written: {path}")
    return found


def setting(
    group: str, p: Problem, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """A layer, in each precision: the rows of ``measure.compare``, ``best`` of ours and ``rival``, milliseconds, and
    ``over``, the rival's time over ours; ``nhwc``, the same of both in NHWC alone."""
    made: results.Json = {"group": group, "problem": dataclasses.asdict(p), "flops": p.flops, "precisions": {}}
    given: Mapping[str, Any] | None = None
    for number, precision in enumerate(asked.precisions):
        step(number / len(asked.precisions))
        with contextlib.ExitStack() as stack:
            data = stack.enter_context(Typed(p, gpu, precision, asked.seed, given, asked.warm))
            if given is None and precision in ("fp32", "tf32"):
                given = data.host  # drawn once
            rows, states = measure.compare(data, every(precision, p), asked.runs, asked.seed)
        found: results.Json = {"rows": rows, "state": states}
        for word, layouts in (("", LAYOUTS), ("nhwc ", ("NHWC",))):
            best, rival = (_least(rows, group, layouts) for group in ("ours", "rival"))
            found |= {f"{word}best": best, f"{word}rival": rival}
            if best and rival:
                found[f"{word}over"] = float(f"{rival['ms'] / best['ms']:.4g}")
        made["precisions"][precision] = found
    return made


def _least(rows: Sequence[results.Json], group: str, layouts: Sequence[str]) -> results.Json | None:
    """The fastest of a group."""
    able = [row for row in rows if row["group"] == group and row["layout"] in layouts and "ms" in row]
    one = min(able, key=lambda row: float(row["ms"]), default=None)
    return one and {"name": one["name"], "ms": one["ms"], "error": one.get("error")}


def summary(settings: results.Json) -> results.Json:
    """By precision and group of layers: their geometric mean over the fastest rival, and the least."""
    over: dict[str, dict[str, list[float]]] = {}
    for entry in settings.values():
        for precision, found in entry["precisions"].items():
            for word in ("", "nhwc "):
                if f"{word}over" in found:
                    names = over.setdefault(precision, {})
                    names.setdefault(f"{word}{entry['group']}", []).append(found[f"{word}over"])
    return {precision: {name: {"layers": len(each), "least": min(each),
                               "mean": round(math.exp(sum(map(math.log, each)) / len(each)), 3)}
                        for name, each in names.items()} for precision, names in over.items()}  # fmt: skip


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    shown = [f"{name} {one.get('over', '-')}x" for name, one in entry["precisions"].items()]
    return ", ".join(shown) + "".join(f"; NOT OK: {line}" for line in _wrong(entry))


def _wrong(entry: results.Json) -> Iterator[str]:
    """Ours without a time, and why."""
    for precision, found in entry["precisions"].items():
        for row in found["rows"]:
            if row["group"] == "ours" and row["status"] != "ok":
                yield f"{precision}: {row['name']}: {row['status']}"


def failures(found: results.Json) -> Iterator[str]:
    """Ours without a time, and why."""
    for name, entry in found["settings"].items():
        for line in _wrong(entry):
            yield f"{name}: {line}"


def show(found: results.Json) -> None:
    """Print a table for each precision, and the summary."""
    console = results.console()
    head = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}" + ", warm L2" * found["asked"].get("warm", False)
    for precision in found["asked"]["precisions"]:
        made = results.table(f"{head}: {precision}", "layer", "best of ours", "ms", "TFLOP/s", "fastest rival",
                             "its ms", "over", "in NHWC", "error", left=["best of ours", "fastest rival"])  # fmt: skip
        for name, entry in found["settings"].items():
            one = entry["precisions"].get(precision, {})
            best, rival = one.get("best"), one.get("rival")
            cells = ["-"] * 8
            if best:
                cells[:3] = [best["name"], f"{best['ms']:.4f}", f"{entry['flops'] / best['ms'] / 1e9:.0f}"]
                cells[7] = f"{best['error']:.1e}"
            if rival:
                cells[3:5] = [rival["name"], f"{rival['ms']:.4f}"]
            cells[5:7] = [f"{one[word]:.2f}" if word in one else "-" for word in ("over", "nhwc over")]
            made.add_row(name, *cells)
        console.print(made)
    for precision, groups in found["summary"].items():
        for name, one in groups.items():
            console.print(f"{precision}, {name}: {one['mean']:.2f}x in the geometric mean of {one['layers']}, "
                          f"{one['least']:.2f}x at least", soft_wrap=True, highlight=False)  # fmt: skip
    for line in failures(found):
        console.print(f"NOT OK {line}", soft_wrap=True, markup=False)


BENCH = Bench(
    "conv", "Convolution in four precisions beside cuDNN and PyTorch.",
    """Conv2d in fp32, tf32, fp16 and bf16: all layers of ResNet-50 with 32 and 128 images, and 3 x 3 with stride 1 with
    32 to 128, beside the fastest of PyTorch in the same precision (benchmark mode, which takes cuDNN's fastest) and in
    fp32 of cuDNN's algorithms. Each result is compared with float64 first.

    Exit code 1: one of ours is wrong or was refused.
    """,
    (
        Option("--group", "groups", f"Layers: {', '.join(GROUPS)}. [default: all]", (*GROUPS, "all"), True, "NAME",
               every=tuple(GROUPS)),
        Option("--precision", "precisions", f"{', '.join(PRECISIONS)}. [default: all]", (*PRECISIONS, "all"), True,
               "NAME", every=tuple(PRECISIONS)),
        Option("--batch", "batches", "Images. [default: 32,128]", "sizes", metavar="N[,N...]"),
        Option("--more", "more", "Images of the 16 settings. [default: 32,64,96,128]", "sizes", metavar="N[,N...]"),
        Option("--warm", "warm", "Each launch takes the same arrays, so that they lie in the L2, if they fit.", bool),
        Option("--runs", "runs", f"Rounds, of which the median is taken. [default: {RUNS}]", int, least=6), SECONDS,
        Option("--join", "join", "Measure nothing: put results of several runs into one file; of settings that several "
               "have, the last file's are taken.", Path, True, "FILE"),
    ),
    lambda given, path, tell: join(given["join"], path, tell) if "join" in given else run(Asked(**given), path, tell),
    show, failures,
)  # fmt: skip
