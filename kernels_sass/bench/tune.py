"""`turingas bench tune`: what `turingas tune` gains on Triton's kernels and on those of loader/reference, on a GPU.

Each kernel is a setting. Triton's are of the kinds that its tutorials teach (triton_kernels.py), each in the best of
its configurations, chosen by Triton's autotuner on the same GPU; those of loader/reference are what NVRTC makes of them
for one layer of ResNet. What is tuned is compared with the very cubin that it was made from, in the same run.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass.bench.verdicts import geometric_mean
from loader import nvrtc
from loader.bench import measure, results
from loader.bench.bench import Bench, Option
from loader.bench.measure import gpu_at_hand
from loader.cuda import Device
from loader.reference import direct, memory_efficient, winograd
from loader.reference.problem import Problem, arrange
from loader.reference.runner import FOLDER, Runner
from loader.tune import command, launches
from loader.tune.judge import Order
from loader.tune.search import Search
from loader.tune.triton import tune_triton
from loader.validate import inputs, layer
from loader.workers import GPUS, Workers
from turingas.errors import LaunchError

TRITON = ("softmax", "layer norm", "matmul", "flash attention", "grouped GEMM")
#: kernel -> what launches it, and the layout of x and y
NVRTC: dict[str, tuple[Callable[..., object], str]] = {
    "direct": (direct.direct, "NCHW"), "tiled": (direct.tiled, "NCHW"), "gemm": (direct.im2col_own, "NCHW"),
    "memory_efficient": (memory_efficient.memory_efficient, "NCHW"), "winograd": (winograd.winograd, "CHWN"),
}  # fmt: skip
LAYER, BATCH = "Conv3", 32
#: What the CPU device runs strictly: one block of the layer may take it a minute, or, where threads walk by the size of
#: the grid, do all of it. No size is a whole number of tiles, and each loop goes round more than twice.
STRICTLY = Problem(1, 24, 10, 10, 72, 3, 3, 1, 1)
SEARCH = 300.0  # seconds for each kernel, at most
PART = 0.55  # of a kernel's time, for the search: the rest is for the proof, and for what is under way at its end,
REST = 12.0  # which take so many seconds at most
WITHOUT = "`turingas tune` itself runs without one, on the CPU device, by a model"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    kernels: tuple[str, ...] = (*TRITON, *NVRTC)
    search: float = SEARCH
    workers: str = GPUS
    seed: int = 0
    seconds: float = math.inf
    keep: str | None = None


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. ``asked.seconds`` are divided among the kernels: each
    has its ``share`` of what is left, so that none is left out."""
    gpu = gpu_at_hand(WITHOUT)
    if path is None and asked == Asked(seconds=asked.seconds, workers=asked.workers, keep=asked.keep):
        path = results.default_path("tune", gpu.arch)
    facts = results.facts("bench tune", gpu, [*FOLDER.glob("*.cu"), Path(__file__).with_name("triton_kernels.py")])
    file = results.Results(path, {**facts, "triton": version()}, dataclasses.asdict(asked))
    end = time.monotonic() + asked.seconds

    def measured(name: str, _: str, step: Callable[[float], None]) -> results.Json:
        left = sum(share(one) for one in set(asked.kernels) - file.settings.keys())
        now = time.monotonic()
        return setting(name, asked, gpu, tell, workers, now + max(0.0, end - now) * share(name) / left)

    with Workers(asked.workers) as workers:  # of all kernels: to start one takes seconds
        return file.fill({name: name for name in asked.kernels}, math.inf, tell, measured, summary, brief)


def join(files: Sequence[Path], path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Files of this command as one, in ``path`` or where results go; a kernel that several have is the last one's."""
    found = results.join([results.recorded("tune", file) for file in files])
    found["settings"] = {name: found["settings"][name] for name in Asked().kernels if name in found["settings"]}
    found["summary"] = summary(found["settings"])
    found["complete"] = not set(Asked().kernels) - found["settings"].keys()
    path = path or results.default_path("tune", found["arch"])
    results.keep(path, found)
    tell(f"written: {path}")
    return found


def share(name: str) -> int:
    """How much of the time a kernel has, beside others: Triton's are compiled and chosen first."""
    return 2 if name in TRITON else 1


def version() -> str:
    """Triton's; "" without it."""
    try:
        return str(importlib.import_module("triton").__version__)
    except ImportError:
        return ""


def setting(
    name: str, asked: Asked, gpu: Device, tell: Callable[[str], None], workers: Workers, until: float = math.inf
) -> results.Json:
    """The results for one kernel, or why there is none. ``until``: when it should be done (``time.monotonic``)."""
    before = measure.state(gpu)
    try:
        of = of_triton if name in TRITON else of_nvrtc
        made = of(name, asked, tell, workers, until)
    except (LaunchError, ImportError) as error:
        return {"status": str(error).splitlines()[0]}
    return {"status": "ok", **made, "state": {"before": before, "after": measure.state(gpu)}}


def begun(asked: Asked, until: float) -> Asked:
    """The same with the seconds that a search may take that begins now."""
    left = until - time.monotonic()
    return dataclasses.replace(asked, search=min(asked.search, max(1.0, PART * left, left - REST)))


# ---- NVRTC -------------------------------------------------------------------------------------------------------


def of_nvrtc(
    name: str, asked: Asked, tell: Callable[[str], None], workers: Workers, until: float = math.inf
) -> results.Json:
    """A kernel of loader/reference, launched as the reference launches it."""
    order = order_of(name, layer(LAYER, BATCH), None, "cuda")
    search = Search.kept(order, asked.seed, asked.keep)
    search.run(workers, None, begun(asked, until).search, tell)
    return command.json(search.proven(workers, 32, tell))


def order_of(name: str, p: Problem, arch: str | None, device: str) -> Order:
    """What is to be tuned: the launch of a kernel as its reference makes it for a problem, and on the CPU device that
    for STRICTLY. ``arch`` None: the GPU's."""
    arch = arch or gpu_at_hand(WITHOUT).arch
    cubin, timed = launched(name, p, arch)
    small, check = launched(name, STRICTLY, arch)
    if small != cubin:
        raise LaunchError(f"{name} is compiled otherwise for {p} than for {STRICTLY}", "name a layer like Conv3")
    return Order(cubin, name, launches.stated(**timed, check=check), f"<{name} of loader/reference>", device)


def launched(name: str, p: Problem, arch: str) -> tuple[bytes, dict[str, Any]]:
    """The cubin, and how its kernel is launched for a problem, as ``launches.stated`` takes it."""
    algorithm, layout = NVRTC[name]
    runner, given = Recorder("cpu", arch), inputs(p, 0)
    shape = dict(zip("NCHW", p.y_shape))
    y = np.empty([shape[axis] for axis in layout], np.float32)
    algorithm(runner, p, arrange(given["x"], "NCHW", layout), given["w"], y)
    cubin, (grid, block), args, shared = runner.launched[name]
    described = [launches.argument(one, f"argument {n}") for n, one in enumerate(args)]
    return cubin, {"arguments": described, "grid": grid, "block": block, "shared": shared}


class Recorder(Runner):
    """Compiles what a reference asks for, and notes the launches instead of making them: ``launched``, by kernel, the
    last one of each."""

    def __init__(self, device: str, arch: str) -> None:
        super().__init__(device, arch)
        self.launched: dict[str, tuple[bytes, tuple[Any, Any], Sequence[Any], int]] = {}

    def module(self, name: str, options: Sequence[str] = ()) -> Any:
        """Something whose kernels' launches are noted."""
        return _Module(self, nvrtc.compile((FOLDER / name).read_text(), self.arch, options, name=name))


@dataclasses.dataclass(frozen=True)
class _Module:
    runner: Recorder
    cubin: bytes

    def kernel(self, name: str) -> _Kernel:
        return _Kernel(self.runner, self.cubin, name)


@dataclasses.dataclass(frozen=True)
class _Kernel:
    runner: Recorder
    cubin: bytes
    name: str

    def launch(self, grid: Any, block: Any, *args: Any, shared: int = 0) -> None:
        self.runner.launched[self.name] = self.cubin, (grid, block), args, shared


# ---- Triton ------------------------------------------------------------------------------------------------------


def of_triton(
    name: str, asked: Asked, tell: Callable[[str], None], workers: Workers, until: float = math.inf
) -> results.Json:
    """A kernel of Triton, in its best configuration."""
    torch = measure.torch()
    if torch is None:
        raise LaunchError("there is no PyTorch that sees a GPU")
    kernels = importlib.import_module("kernels_sass.bench.triton_kernels")
    kernel = kernels.autotuned(name)
    grid, args, constants = kernels.launch(name, torch)
    kernel[grid](*args, **constants)
    torch.cuda.synchronize()
    search = begun(asked, until).search
    made = tune_triton(kernel, grid, args, meta=constants, seconds=search, workers=workers, seed=asked.seed,
                       tell=tell, fresh=True, state=asked.keep)  # fmt: skip
    if made.why:
        raise LaunchError(made.why)
    return {**made.facts, "config": str(kernel.best_config)}


# ---- what comes of it --------------------------------------------------------------------------------------------


def summary(settings: results.Json) -> results.Json:
    """How many times as fast, in the geometric mean, at the least and the most: of Triton's, of NVRTC's, of all."""
    made = {}
    for what, names in (("Triton", TRITON), ("NVRTC", tuple(NVRTC)), ("all", (*TRITON, *NVRTC))):
        gains = [1 / settings[name]["figure"] for name in names if settings.get(name, {}).get("status") == "ok"]
        if gains:
            made[what] = {"mean": round(geometric_mean(gains), 4), "least": round(min(gains), 4),
                          "most": round(max(gains), 4), "kernels": len(gains)}  # fmt: skip
    return made


def brief(entry: results.Json) -> str:
    """A kernel in a line."""
    if entry["status"] != "ok":
        return f"NOT OK: {entry['status']}"
    found = f"{1 / entry['figure']:.4f}x" if entry["gained"] else "nothing faster"
    return f"{entry['original']:.4g} ms, {found}, {entry['tried']} candidates"


def failures(found: results.Json) -> Iterator[str]:
    """Kernels without a figure."""
    for name, entry in found["settings"].items():
        if entry["status"] != "ok":
            yield f"{name}: {entry['status']}"


def show(found: results.Json) -> None:
    """Print a table, and the means."""
    console = results.console()
    title = f"{found['gpu']}, {found['date']}: tuned over the compiler's own"
    made = results.table(title, "kernel", "ms", "times as fast", "candidates", "rounds", "moves", "configuration")
    for name, entry in found["settings"].items():
        if entry["status"] == "ok":
            made.add_row(name, f"{entry['original']:.4g}", f"{1 / entry['figure']:.4f}", str(entry["tried"]),
                         str(entry["rounds"]), str(len(entry["moves"])), entry.get("config", ""))  # fmt: skip
    console.print(made)
    for line in failures(found):
        console.print(f"NOT OK {line}", soft_wrap=True, markup=False)
    for what, one in found["summary"].items():
        words = f"{one['mean']:.4f}x in the mean of {one['kernels']}, {one['least']:.4f}x to {one['most']:.4f}x"
        console.print(f"{what}: {words}", soft_wrap=True, markup=False)


BENCH = Bench(
    "tune", "What `turingas tune` gains on Triton's and NVRTC's kernels.",
    """What a search gains on Triton's kernels in their best configurations, and on those of loader/reference.

    Exit code 1: a kernel could not be tuned.

    \b
      turingas bench tune --search 600 --json tune.json
      turingas bench tune --seconds 280 --workers 12 --json tune.json
      turingas bench tune --kernel matmul --kernel softmax --workers gpus
      turingas bench tune --join one.json --join other.json
    """,
    (
        Option("--kernel", "kernels", "A kernel. [default: all]", (*TRITON, *NVRTC, "all"), True, "NAME",
               every=(*TRITON, *NVRTC)),
        Option("--search", "search", "Seconds for each kernel. [default: 300]", float, least=1),
        Option("--workers", "workers", "A process for each GPU, N processes, or a Dask cluster. [default: gpus]", str,
               metavar="gpus|N|tcp://..."),
        Option("--seconds", "seconds", "Divide this time among the kernels; the same command resumes.", float),
        Option("--keep", "keep", "A folder in which searches are kept, and go on from.", str, metavar="FOLDER"),
        Option("--join", "join", "Measure nothing: put results of several runs, such as one for each GPU, into one "
               "file; of kernels that several have, the last file's are taken.", Path, True, "FILE"),
    ),
    lambda given, path, tell: join(given["join"], path, tell) if "join" in given else run(Asked(**given), path, tell),
    show, failures,
)  # fmt: skip
