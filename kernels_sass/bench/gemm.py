"""`turingas bench gemm`: kernels_sass/gemm.sass beside cuBLAS, what its parameters bring, and kernels_sass.gemm. With
--vary the source as gemm takes it for the sizes, and each value of some parameters alone."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

import loader
from kernels_sass import gemm_kernels, gemm_plan
from kernels_sass.bench import options
from kernels_sass.bench.vary import REFUSED, alone, apart, impossible, known, label, refused
from kernels_sass.conv.method import with_included
from kernels_sass.conv.methods.hgmma import ROOM
from kernels_sass.conv.parameters import read
from kernels_sass.gemm import gemm
from kernels_sass.gemm_kernels import SPARE, Tiling
from kernels_sass.learn.hgemm import Array
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench, Option
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer, Device, Graph, Stream
from turingas.errors import AsmError, LaunchError

SIZES = (1024, 2048, 4096, 8192, 16384)
#: By name: what differs from the source's defaults. The ablations at the end leave something out: what is left then is
#: the time that the rest takes, and the product is not looked at.
VARIANTS: dict[str, Tiling] = {
    "128 x 128, 2 stages": Tiling(128, 2, group=1, late=0),  # the steps of the tutorial
    "128 x 128, 6 stages": Tiling(128, 6, group=1, late=0),
    "128 x 256, 4 stages": Tiling(group=1, late=0),
    "... in panels": Tiling(late=0),
    "as it is": Tiling(),  # and stores late
    "panels of 8": Tiling(group=8),
    "3 stages": Tiling(stages=3),
    "128 x 192": Tiling(192),
    "128 x 128": Tiling(128, 6),
    "128 x 64": Tiling(64, 8),
    "B in rows of N": Tiling(tb=1),
    "clusters of 2": Tiling(cluster=2, group=8),
    "clusters of 2, compiled in": Tiling(cluster=2, group=8, compiled=1),
    "clusters of 2, each loads all": Tiling(cluster=2, group=8, multicast=0),
    "clusters of 2, 128 x 192": Tiling(192, cluster=2, group=8),
    "clusters of 2, 128 x 128": Tiling(128, 6, cluster=2, group=8),
    "clusters of 2, 128 x 64": Tiling(64, 8, cluster=2, group=8),
    "nothing loaded": Tiling(loads=0),
    "nothing stored": Tiling(store=0),
}
#: Of other types, by the setting's name: sizes are those of SIZES up to 8192.
TYPED: dict[str, dict[str, Tiling]] = {
    "bf16": {"128 x 256": Tiling(type="BF16"), "128 x 256, clusters of 2": Tiling(type="BF16", cluster=2)},
    "tf32": {
        "128 x 256": Tiling(type="TF32", late=0),
        "128 x 256, clusters of 2": Tiling(type="TF32", late=0, cluster=2),
    },
    "fp32": {
        "3 x FP16, 128 x 192": Tiling(192, type="FP32", late=0, promote=2),
        "3 x FP16, 128 x 192, summed less": Tiling(192, type="FP32", late=0, promote=4),
        "3 x FP16, 128 x 192, clusters of 2": Tiling(192, type="FP32", late=0, promote=2, cluster=2),
        "3 x FP16, 128 x 128, 6 stages": Tiling(128, 6, type="FP32", late=0, promote=2),
        "3 x FP16, 128 x 64, 8 stages": Tiling(64, 8, type="FP32", late=0, promote=2),
    },
}  # fmt: skip
DEFAULTS = "as it is"  # of VARIANTS: those of the source
#: Parameters that do not vary here, and why.
FIXED = {"TYPE": "--type is for that", "TA": "A lies in rows of K"} | dict.fromkeys(
    ("BIAS", "RELU", "GELU", "BATCHED", "SHARED_K"), "it is for other products than these")  # fmt: skip
CLUSTERS = "clusters of 2"  # of VARIANTS: must be right before other types try it in this process
BOUNDS = {"fp16": 3e-4, "bf16": 3e-3, "tf32": 2e-3, "fp32": 2e-6}  # of the relative L2 error
CUBLAS, OTHER = "cuBLAS", "cuBLAS, B in rows of N"  # the second is for what takes B so
GEMM = "gemm"  # as one calls it
CHECKED = ("8", "8", "8", "136", "264", "72", "1000", "1992", "4104")
PATIENCE = 30  # seconds for a variant to do these; who needs more hangs
AT_ONCE = 6
STRIP = 64  # rows of a product, of which one is compared with float64: a warp group's share of a tile, at least
RUNS = 20
LONG = 0.06  # seconds a contender has in a round of which there are fewer
LEAST = {"over": "ours", "gemm": "gemm"}  # what ``least`` gives, as it is shown
WARM = 16  # launches that take the same arrays
MOST_COLUMNS = 8  # sizes in a table

WITHOUT = (
    "without one, `turingas bench gemm --show` prints the results that are kept, and `python -m "
    "kernels_sass.learn.hgemm 300 520 200` runs the kernel on the CPU device"
)


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    sizes: tuple[int, ...] = SIZES
    variants: tuple[str, ...] = tuple(VARIANTS)
    types: tuple[str, ...] = ("fp16", *TYPED)
    schedule: Mapping[str, object] = field(default_factory=dict)  # parameters that do not vary
    vary: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    runs: int = RUNS
    seconds: float = math.inf
    seed: int = 0
    warm: bool = False

    def settings(self) -> dict[str, tuple[int, str]]:
        """Size and type, by name."""
        found = {str(size): (size, "fp16") for size in self.sizes if "fp16" in self.types}
        few = [size for size in self.sizes if size <= 8192] or self.sizes[:1]
        return found | {f"{size} {kind}": (size, kind) for kind in TYPED if kind in self.types for size in few}

    @property
    def varied(self) -> bool:
        """Whether not what is listed above is timed, but what gemm takes, and values of parameters."""
        return bool(self.schedule or self.vary)

    def tilings(self, size: int, kind: str, sms: int) -> dict[str, Tiling]:
        """Ours, on so many multiprocessors."""
        if self.varied:
            own = with_values(gemm_plan.tiles(size, size, sms, kind), self.schedule)
            return {name: with_values(own, one) for name, one in alone(self.vary).items()}
        return {name: VARIANTS[name] for name in self.variants} if kind == "fp16" else TYPED[kind]


def with_values(tiling: Tiling, values: Mapping[str, object]) -> Tiling:
    """The tiling with values of the source's parameters."""
    given: dict[str, Any] = {name.lower(): value for name, value in values.items()}
    return replace(tiling, **given)


def settled(asked: Asked) -> Asked:
    """With values as the source has them. LaunchError for what it has not."""
    if not asked.varied:
        return asked
    if asked.variants != Asked().variants:
        raise LaunchError("--variant, and --vary or -D", "a variant is some values: name these with -D")
    apart(asked.schedule, asked.vary)
    there = read(with_included(gemm_kernels.SOURCE))
    given = known(gemm_kernels.SOURCE.name, there, FIXED, {name: (value,) for name, value in asked.schedule.items()})
    vary = known(gemm_kernels.SOURCE.name, there, FIXED, asked.vary)
    for name, values in [*given.items(), *vary.items()]:  # values of BUFFERS depend on the tile: none are listed
        wrong = () if there[name].values else [one for one in values if not (isinstance(one, int) and one > 0)]
        if wrong:
            raise LaunchError(f"{gemm_kernels.SOURCE.name} does not take {label(name, wrong[0])}", "it takes 1, 2, ...")
    return replace(asked, schedule={name: value for name, (value,) in given.items()}, vary=vary)


def refusal(tiling: Tiling) -> str:
    """Why there is no such kernel; "" if there is."""
    if tiling.shared > ROOM:
        return f"{REFUSED}{tiling.shared} bytes of shared memory, of {ROOM} (fewer STAGES, or a smaller TILE_N)"
    try:
        gemm_kernels.built(tiling)
    except AsmError as error:
        return f"{REFUSED}{error.plain}"
    return ""


def random_bits(random: np.random.Generator, size: int, kind: str) -> Array:
    """Square, of float16, bfloat16 (as uint16), or float32: random signs and fractions, exponents of 1/8 to 2."""
    if kind in ("tf32", "fp32"):
        bits = random.integers(0, 1 << 32, (size, size), np.uint32)
        return np.asarray(bits & 0x807FFFFF | (124 << 23) + (bits >> 5 & 3 << 23)).view(np.float32)
    bits16 = random.integers(0, 1 << 16, (size, size), np.uint16)
    if kind == "bf16":
        return np.asarray(bits16 & 0x807F | (124 << 7) + (bits16 & 3 << 7))
    return np.asarray(bits16 & 0x83FF | (12 << 10) + (bits16 & 3 << 10)).view(np.float16)


def as_float(array: Array) -> Array:
    """float64."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


class Square:
    """Random square matrices, ``copies`` times on a GPU: more than its L2 holds, taken in turn. ``warm``: the same ones
    each time, which stay there if they fit."""

    def __init__(self, size: int, kind: str, gpu: Device, seed: int, warm: bool = False) -> None:
        self.size, self.kind, self.gpu = size, kind, gpu
        self.stream = Stream(gpu)
        random = np.random.default_rng(seed)
        a, b = (random_bits(random, size, kind) for _ in range(2))
        wanted = max(1, math.ceil(measure.ROTATION * gpu.attribute("L2_CACHE_SIZE") / (3 * a.nbytes)))
        #: ``different``: how many of the copies are arrays of their own
        self.copies, self.different = (WARM, 1) if warm else (wanted, wanted)
        turned, again = np.ascontiguousarray(b.T), self.copies // self.different
        self.a, self.b, self.bt = ([Buffer.of(x, gpu) for _ in range(self.different)] * again for x in (a, b, turned))
        self.c = [Buffer(a.shape, a.dtype, gpu) for _ in range(self.different)] * again
        strips = np.arange(0, size, STRIP)
        self.rows = random.integers(strips, np.minimum(strips + STRIP, size))
        self.exact = as_float(a[self.rows]) @ as_float(b)
        gpu.synchronize()

    def poison(self) -> None:
        """Make every element of every C a NaN."""
        for c in self.c[: self.different]:
            c.fill(0xFF)
        self.gpu.synchronize()

    def error(self) -> float:
        """Relative L2 of some rows against float64, of the worst copy: a kernel that begins before the one ahead of it
        has ended may be wrong in some alone. NaN if there is one."""
        found = (as_float(c.numpy()[self.rows]) for c in self.c[: self.different])
        return float(np.max([np.linalg.norm(one - self.exact) for one in found]) / np.linalg.norm(self.exact))

    def close(self) -> None:
        """Give all memory back."""
        for each in (self.a, self.b, self.bt, self.c):
            for buffer in each[: self.different]:
                buffer.free()
        self.stream.close()


class Ours:
    """A variant on all copies, recorded in a graph. Of fp32 also what makes parts of A and B."""

    def __init__(self, tiling: Tiling, data: Square, stack: contextlib.ExitStack) -> None:
        module = stack.enter_context(loader.load(gemm_kernels.built(tiling), str(data.gpu)))
        sms = data.gpu.attribute("MULTIPROCESSOR_COUNT")
        dtype = "bfloat16" if data.kind == "bf16" else None
        launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        for a, b, c in zip(data.a[: data.different], data.b if tiling.tb else data.bt, data.c):
            x, y, scales = a, b, list[Buffer]()
            if tiling.promote:
                one = gemm_kernels.Halved(data.size, data.size, True)
                what = gemm_kernels.Halving(one, one)
                halver = stack.enter_context(loader.load(gemm_kernels.halving(*what.of), str(data.gpu)))
                x, y = (stack.enter_context(Buffer((data.size, one.row), np.float16, data.gpu)) for _ in range(2))
                scales += (stack.enter_context(Buffer((data.size + SPARE,), np.float32, data.gpu)) for _ in "AB")
                launches.append((halver, what.arguments(a, x, scales[0], b, y, scales[1]), {"early": True}))
            sizes = data.size, data.size, data.size
            given, options = gemm_kernels.arguments(tiling, x, y, c, sizes, sms, scales=scales, dtype=dtype)
            launches.append((module, given, {**options, "early": True}))
        launches *= data.copies // data.different  # parts of the same matrices lie at the same place

        def queue(stream: Stream) -> None:
            for one, given, options in launches:
                one.kernel().launch(*given, **options, stream=stream)

        queue(data.stream)
        data.stream.synchronize()
        self.launches = launches  # the tensor maps live here
        self.graph = Graph(queue, data.gpu)

    def launch(self, stream: Stream) -> None:
        """Queue all copies."""
        self.graph.launch(stream)


class Called:
    """A product of PyTorch's tensors on all copies, recorded in a graph: of a, b (``turned``: in rows of K) and c."""

    def __init__(
        self, product: Callable[[Any, Any, Any], object], turned: bool, data: Square, torch: Any,
        stack: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        if torch is None:
            raise measure.Refused("it takes PyTorch, which is not installed or sees no GPU")
        self.torch, self.stream = torch, torch.cuda.ExternalStream(data.stream.handle, device=str(data.gpu))

        def tensor(buffer: Buffer) -> Any:
            if data.kind != "bf16":
                return torch.as_tensor(buffer, device=str(data.gpu))
            return torch.as_tensor(Int16(buffer), device=str(data.gpu)).view(torch.bfloat16)

        copies = [tuple(map(tensor, one)) for one in zip(data.a, data.bt if turned else data.b, data.c)]

        def queue() -> None:
            for one in copies:
                product(*one)

        with torch.cuda.stream(self.stream):
            queue()
        data.stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            queue()
        stack.callback(self.graph.reset)

    def launch(self, stream: Stream) -> None:
        """Queue all copies."""
        with self.torch.cuda.stream(self.stream):
            self.graph.replay()


class Cublas(Called):
    """torch.matmul, sums in float32."""

    def __init__(self, turned: bool, data: Square, torch: Any, stack: contextlib.ExitStack) -> None:
        settings = None if torch is None else torch.backends.cuda.matmul
        if settings is not None:
            settings.allow_fp16_reduced_precision_reduction = settings.allow_bf16_reduced_precision_reduction = False
            settings.allow_tf32 = data.kind == "tf32"
        super().__init__(lambda a, b, c: torch.matmul(a, b.t() if turned else b, out=c), turned, data, torch, stack)
        if settings is not None:
            settings.allow_tf32 = False


class Whole(Called):
    """kernels_sass.gemm, which chooses tiles by the sizes; of fp32 it makes parts of A and B, too."""

    def __init__(self, data: Square, torch: Any, stack: contextlib.ExitStack) -> None:
        def product(a: Any, b: Any, c: Any) -> object:
            return gemm(a, b, c, transpose_b=True, precision=data.kind)

        super().__init__(product, True, data, torch, stack)


class Int16:
    """A buffer of uint16 as PyTorch takes it, to see it as bfloat16."""

    def __init__(self, buffer: Buffer) -> None:
        self.__cuda_array_interface__ = {**buffer.__cuda_array_interface__, "typestr": "<i2"}


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file."""
    gpu, asked = gpu_at_hand(WITHOUT), settled(asked)
    if path is None and replace(asked, seconds=math.inf) == Asked(warm=asked.warm):
        path = kept_in(gpu.arch, asked.warm)
    facts = results.facts("bench gemm", gpu, [*gemm_kernels.TEXTS, gemm_kernels.HALVES])
    file = results.Results(path, facts, asdict(asked))
    tried: dict[Tiling, str] = {}
    for size, kind in asked.settings().values():
        for name, tiling in asked.tilings(size, kind, gpu.attribute("MULTIPROCESSOR_COUNT")).items():
            if kind == "fp16" and not (asked.varied and refusal(tiling)):
                tried.setdefault(tiling, f"{size}: {name}" if asked.varied else name)
            elif kind != "fp16" and tiling.cluster > 1:
                tried.setdefault(VARIANTS[CLUSTERS], CLUSTERS)
    states = checked(tried, str(gpu), tell)
    return file.fill(
        asked.settings(), asked.seconds, tell,
        lambda _, what, step: setting(what[0], what[1], gpu, asked, states, step), summary, brief,
    )  # fmt: skip


def kept_in(arch: str, warm: bool) -> Path:
    """Where results of all settings go."""
    return results.default_path("gemm", arch, "warm" if warm else "")


def join(files: Sequence[Path], path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Files of this command, with other sizes or types each, as one, in ``path`` or where results go. LaunchError for
    those of the L2 and those of memory together."""
    several = [results.recorded("gemm", file) for file in files]
    for one in several:
        one["asked"].setdefault("warm", False)  # there were no others
    found = results.join(several)
    sizes, variants, types = (tuple(found["asked"][name]) for name in ("sizes", "variants", "types"))
    wanted, there = Asked(sizes, variants, types).settings(), found["settings"]
    found["settings"] = {name: there[name] for name in (*wanted, *there) if name in there}
    found["summary"], found["complete"] = summary(found["settings"]), wanted.keys() <= there.keys()
    path = path or kept_in(found["arch"], found["asked"]["warm"])
    results.keep(path, found)
    tell(f"written: {path}")
    return found


def checked(variants: Mapping[Tiling, str], device: str, tell: Callable[[str], None]) -> dict[Tiling, str]:
    """Each variant, of which the name is told, with small and odd sizes, in a process of its own, which may hang or
    break the context: "ok", or what went wrong. (Not those that leave something out, which are wrong.)"""

    def one(tiling: Tiling) -> str:
        defines = (f"-D{key}={value}" for key, value in replace(tiling, loads=1, store=1).defines().items())
        command = [sys.executable, "-m", "kernels_sass.gemm_kernels", *CHECKED, "--device", device, *defines]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return f"hangs: nothing after {PATIENCE} s"
        if done.returncode:
            return "wrong: " + "; ".join([*done.stdout.splitlines(), *done.stderr.splitlines()[-3:]])
        return "ok"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(variants, pool.map(one, variants)))
    for tiling, status in found.items():
        if status != "ok":
            tell(f"{variants[tiling]}: {status}")
    return found


def ready(row: results.Json, make: Callable[[], Any], data: Square, wrong: bool) -> Any:
    """What is timed, recorded and compared with float64; None if there is nothing to time, and the row says why.
    ``wrong``: something is left out, so no product comes of it."""
    if row["status"] != "ok":
        return None
    try:
        replay = make()
        data.poison()
        replay.launch(data.stream)
        data.stream.synchronize()
    except (measure.Refused, LaunchError, RuntimeError) as why:
        if getattr(why, "lost", False):
            raise
        row["status"] = measure.reason(why)
        return None
    if not wrong:
        error = data.error()
        row["error"] = float(f"{error:.3g}") if math.isfinite(error) else str(error)
        if not error < BOUNDS[data.kind]:
            row["status"] = f"wrong: a relative L2 error of {error:.1e} against float64"
            return None
    return replay


def setting(
    size: int, kind: str, gpu: Device, asked: Asked, states: Mapping[Tiling, str],
    step: Callable[[float], None] = lambda part: None,
) -> results.Json:  # fmt: skip
    """The results for one size and type. ``tflops`` counts 2 M N K; ``over``: the speed, of cuBLAS's with the same
    matrices."""
    ours = asked.tilings(size, kind, gpu.attribute("MULTIPROCESSOR_COUNT"))
    rows: dict[str, results.Json] = {}
    with contextlib.ExitStack() as stack:
        data = Square(size, kind, gpu, asked.seed, asked.warm)
        stack.callback(data.close)
        makers: dict[str, Callable[[], Any]] = {
            CUBLAS: functools.partial(Cublas, True, data, measure.torch(), stack),
            OTHER: functools.partial(Cublas, False, data, measure.torch(), stack),
            GEMM: functools.partial(Whole, data, measure.torch(), stack),
            **{name: functools.partial(Ours, tiling, data, stack) for name, tiling in ours.items()},
        }
        replays = {}
        for name, make in makers.items():
            status = states.get(ours[name], "ok") if name in ours and kind == "fp16" else "ok"
            if kind != "fp16" and name in ours and ours[name].cluster > 1 and states[VARIANTS[CLUSTERS]] != "ok":
                status = f"{CLUSTERS} are not right in fp16"
            row: results.Json = {"name": name, "status": status}
            if asked.varied and name in ours:
                row |= {"status": refusal(ours[name]) or status, "defines": ours[name].defines()}
            rows[name] = row
            replay = ready(row, make, data, name in ours and not (ours[name].loads and ours[name].store))
            if replay is not None:
                replays[name] = replay
        before = measure.state(gpu)
        seconds = 2 * size**3 / 600e12 * data.copies
        runs = max(6, min(asked.runs, math.ceil(asked.runs * LONG / seconds / 10)))
        times, during = measure.alternate(data, replays, runs, asked.seed, None, step)
        for name, each in times.items():
            low, middle, high = quantiles(each, n=4, method="inclusive")
            rows[name] |= {"ms": round(middle, 6), "low": round(low, 6), "high": round(high, 6),
                           "least": round(min(each), 6), "runs": len(each),
                           "tflops": float(f"{2 * size**3 / middle / 1e9:.4g}")}  # fmt: skip
        for name, row in rows.items():
            rival = rows[OTHER if name in ours and ours[name].tb else CUBLAS]
            if "ms" in row and "ms" in rival:
                row["over"] = round(rival["ms"] / row["ms"], 4)
        state = {"before": before, "during": during, "after": measure.state(gpu)}
    return {"size": size, "type": kind, "copies": data.copies, "state": state, "rows": list(rows.values())}


# ---- how it is shown ---------------------------------------------------------------------------------------------


def whole(row: Mapping[str, Any]) -> bool:
    """Whether this is a product of ours, and nothing was left out."""
    return row["name"] not in (CUBLAS, OTHER) and "error" in row and "tflops" in row


def summary(settings: results.Json) -> results.Json:
    """For each setting the fastest of ours, of the fastest of cuBLAS; ``gemm``: of the same, kernels_sass.gemm."""
    found: results.Json = {}
    for name, entry in settings.items():
        best = max(filter(whole, entry["rows"]), key=lambda row: float(row["tflops"]), default=None)
        fastest = max((row.get("tflops", 0) for row in entry["rows"] if row["name"] in (CUBLAS, OTHER)), default=0)
        if best is not None and fastest:
            found[name] = {"best": best["name"], "tflops": best["tflops"], "over": round(best["tflops"] / fastest, 4)}
            for row in filter(whole, entry["rows"]):
                if row["name"] == GEMM:
                    found[name]["gemm"] = round(row["tflops"] / fastest, 4)
    return found


def least(found: results.Json) -> dict[str, dict[str, tuple[float, int]]]:
    """By type, over all its sizes: the least ratio to the fastest of cuBLAS, and its size, of the fastest of ours
    ("over") and of kernels_sass.gemm ("gemm")."""
    made: dict[str, dict[str, tuple[float, int]]] = {}
    for name, one in found["summary"].items():
        entry = found["settings"][name]
        of = made.setdefault(entry.get("type", "fp16"), {})
        for word in ("over", "gemm"):
            if word in one:
                of[word] = min(of.get(word, (math.inf, 0)), (one[word], entry["size"]))
    return made


def told(found: results.Json, form: str = "{:.1%}") -> Iterator[str]:
    """``least`` in words, a line for each type."""
    counts = collections.Counter(found["settings"][name].get("type", "fp16") for name in found["summary"])
    for kind, of in least(found).items():
        ratios = (f"{who} {form.format(of[word][0])} at {of[word][1]}" for word, who in LEAST.items() if word in of)
        yield f"{kind}, {counts[kind]} size{'s' * (counts[kind] > 1)}: {', '.join(ratios)}"


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    state = entry["state"]["during"]
    shown = ", ".join(f"{row['name']} {row['tflops']:.0f}" for row in entry["rows"] if "tflops" in row)
    wrong = "".join(f"; {'' if refused(row) else 'NOT OK: '}{row['name']}: {row['status'][:40]}"
                    for row in entry["rows"] if row["status"] != "ok")  # fmt: skip
    return f"TFLOP/s at {state.get('sm_mhz', '?')} MHz, {state.get('watts', '?')} W: {shown}{wrong}"


def _table(title: str, entries: Sequence[results.Json]) -> Any:
    """Settings of a type side by side."""
    made = results.table(title, "", *(str(entry["size"]) for entry in entries), min_width=len(title) + 2)
    by_size = [{row["name"]: row for row in entry["rows"]} for entry in entries]
    for name in dict.fromkeys(name for rows in by_size for name in rows):
        cells = (rows.get(name, {}) for rows in by_size)
        made.add_row(name, *(f"{row['tflops']:.1f} ({row['over']:.3f})" if "over" in row else "-" for row in cells))
    return made


def show(found: results.Json) -> None:
    """Print a row for each variant, a column for each size, SIZES first, and the summary."""
    console = results.console()
    kinds = list(dict.fromkeys(entry.get("type", "fp16") for entry in found["settings"].values()))
    warm = ", warm L2" * found["asked"].get("warm", False)
    for kind, usual in itertools.product(kinds, (True, False)):
        every = [entry for entry in found["settings"].values() if entry.get("type", "fp16") == kind]
        every = sorted((one for one in every if (one["size"] in SIZES) == usual), key=lambda one: int(one["size"]))
        for first in range(0, len(every), MOST_COLUMNS):
            title = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}{warm}: {kind}, TFLOP/s (of cuBLAS)"
            console.print(_table(title, every[first : first + MOST_COLUMNS]))
    for name, entry in found["settings"].items():
        state = entry["state"]["during"]
        console.print(f"{name}: {state.get('sm_mhz', '?')} MHz, {state.get('watts', '?')} W", highlight=False)
    for line in [*impossible(found), *(f"NOT OK {line}" for line in failures(found))]:
        console.print(line, soft_wrap=True, markup=False)
    for name, one in found["summary"].items():
        itself = f"; gemm {one['gemm']:.1%}" if "gemm" in one else ""
        best = f"{one['best']}, {one['tflops']} TFLOP/s, {one['over']:.1%} of the fastest cuBLAS{itself}"
        console.print(f"{name}: {best}", soft_wrap=True, markup=False)
    for line in told(found):
        console.print(f"at least, of the fastest cuBLAS: {line}", soft_wrap=True, markup=False)


def failures(found: results.Json) -> Iterator[str]:
    """Variants that have no time and should, and why."""
    for name, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] != "ok" and not refused(row):
                yield f"{name}: {row['name']}: {row['status']}"


BENCH = Bench(
    "gemm", "The matrix product by HGMMA beside cuBLAS.",
    """The matrix product by HGMMA (kernels_sass/gemm.sass, which step 10 of the tutorial explains): sums in float32,
    square matrices, by its parameters, as kernels_sass.gemm calls it, and beside cuBLAS (torch.matmul), all in turns.

    --vary takes each value of a parameter alone, in place of the variants; the others are those that gemm takes for the
    sizes ("as it is"), or -D. Values that cannot be with them are told, and no failure.

    Each variant is compared with float64 first, of fp16 in a process of its own for small and odd sizes. Exit code 1:
    one is wrong.

    \b
      turingas bench gemm
      turingas bench gemm --size 8192 --variant "as it is" --variant "clusters of 2"
      turingas bench gemm --size 4096 --type fp16 --vary STAGES=3,4 --vary GROUP=4,8,16
      turingas bench gemm --size 1280,1536,3072 --json between.json
    """,
    (
        Option("--size", "sizes", "Rows and columns. [default: 1024,2048,4096,8192,16384]", "sizes",
               metavar="N[,N...]"),
        Option("--variant", "variants", f"{'; '.join(VARIANTS)}. [default: all]", (*VARIANTS, "all"), True, "NAME",
               every=tuple(VARIANTS)),
        Option("--type", "types", f"fp16, {', '.join(TYPED)}. [default: all]", ("fp16", *TYPED, "all"), True, "NAME",
               every=("fp16", *TYPED)),
        Option("--vary", "vary", "Parameters of the source and values, in place of the variants.", "values", True,
               "NAME=VALUE,..."),
        options.saying(options.DEFINE, "A parameter that does not vary."),
        Option("--warm", "warm", "Each launch takes the same matrices, so that they lie in the L2, if they fit.", bool),
        Option("--runs", "runs", f"Rounds, of which the median is taken. [default: {RUNS}]", int, least=6), SECONDS,
        Option("--join", "join", "Measure nothing: put results of several runs into one file; of settings that several "
               "have, the last file's are taken.", Path, True, "FILE"),
    ),
    lambda given, path, tell: join(given["join"], path, tell) if "join" in given else run(Asked(**given), path, tell),
    show, failures, None, lambda given, path: results.recorded("gemm", path, other="warm" if given.get("warm") else ""),
    ("warm",),
)  # fmt: skip
