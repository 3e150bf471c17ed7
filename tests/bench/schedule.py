"""How fast kernels are with control codes that nobody wrote: ``python -m tests.bench.schedule [--json FILE]``.

On a GPU: kernels of ours that were scheduled by hand (step 8 of kernels_sass/learn, convolutions), and those of
tests/kernels. A launch of these takes less than a microsecond on top of what launching takes, which comes in steps of
0.1 of 1.6 microseconds: so their grid is repeated along a dimension that they do not look at, until a launch takes
``LONG``, and ``LAUNCHES`` of them are one graph. What is told is the time for one grid, of a full GPU. All variants of
a kernel are given the same memory: what many blocks write to a few addresses takes as long as the part of the L2 that
these lie in. Its own codes are loaded and timed twice (``once more``), which tells what is chance. Each is measured
with its own codes and with codes made anew: by each rule for yields, and our own once without regard for how
often a pipe can begin an instruction (``unpaced``), and once with the codes of the main loop as they are and all others
anew (``outside``). All take turns; the median of the rounds counts. What is measured when it is interrupted is kept.
Step 8 stands beside ``sgemm_plain.sass``, which computes the same in a straightforward order and without codes: as it
is written (``plain``), with its instructions in a better order (``reordered``), and with one set of operand registers,
of which renaming makes two (``renamed``). ``--static`` needs no GPU: it tells the cycles that the control codes of
their main loops add up to.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import loader
import turingas
from kernels_sass.conv import code
from kernels_sass.conv.conv2d import Conv2d
from kernels_sass.learn.measure import built
from loader import timing
from loader.bench import results
from loader.cuda import Buffer, CudaError, Stream, device_named
from loader.cuda import Graph as Recorded
from tests.kernels.cases import CASES
from turingas.assembler.schedule import again
from turingas.check.loops import summary
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code
from turingas.errors import AsmError, LaunchError, raise_all
from turingas.flow.graph import Graph
from turingas.isa.arch import WORD_BYTES
from turingas.isa.arch import arch as facts
from turingas.isa.given import NOTHING, whole
from turingas.scheduler.codes import codes
from turingas.scheduler.needs import Needs

RULES = ("ptxas", "natural", "every:4", "every:8")
OWN, AGAIN, UNPACED, OUTSIDE = "as it is", "once more", "unpaced", "outside"
VARIANTS = (OWN, *RULES)
OURS = (UNPACED, OUTSIDE)  # of our own kernels, besides
PLAIN, REORDERED, RENAMED = WRITTEN = "plain", "reordered", "renamed"  # step 8 written straightforwardly
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90")
ROUNDS = 5
PRODUCT = 4096
LAYERS = {  # N, C, H, W, K; layout and method
    "conv 3x3 NHWC": ((32, 128, 28, 28, 128), "NHWC", "hopper"),
    "conv 3x3 CHWN": ((32, 256, 14, 14, 256), "CHWN", "hopper"),
    "conv 3x3 yan2020": ((32, 128, 28, 28, 128), "CHWN", "paper"),
    "conv 3x3 direct": ((32, 4, 56, 56, 64), "NCHW", "direct"),
}
#: they count on memory as it was before their first launch
SPIN = ("scan", "warp_lock", "spin_lock", "handshake", "atomics")
LAUNCHES = 10  # of a small kernel, in a graph
LONG = 0.1  # milliseconds that a launch of it takes, if that many blocks can be
MOST_BLOCKS = 65535  # along y or z


def made(cubin: Cubin, variant: str) -> Cubin:
    """A cubin with the codes of a variant."""
    if variant in (OWN, AGAIN):
        return cubin
    if variant == UNPACED:
        with mock.patch.object(Needs, "paces", lambda self, least: []):
            return again(cubin)[0]
    if variant == OUTSIDE:
        return outside(cubin)
    return again(cubin, variant)[0]


def outside(cubin: Cubin) -> Cubin:
    """A cubin with the codes of each kernel's main loop, which is the one with most arithmetic, and all others anew."""
    cubin = Cubin.from_bytes(cubin.to_bytes())
    for kernel in cubin.texts:
        fields = [NOTHING] * len(kernel.words)
        loops = summary(Graph(kernel))
        if loops:
            main = max(loops, key=lambda loop: loop.share * loop.instructions)
            inside = slice(main.start // WORD_BYTES, main.end // WORD_BYTES)
            fields[inside] = map(whole, kernel.words[inside])
        found = codes(kernel, fields)
        raise_all([AsmError(f"{kernel.name}, instruction {one.n}: {one.message}") for one in found.problems])
        kernel.code = Code(words=found.words)
    return cubin


@functools.cache
def sgemm_of(arch: str, variant: str) -> Cubin:
    """Step 8 in a variant."""
    if variant not in WRITTEN:
        return made(built("08_sgemm", arch), variant)
    path = Path(__file__).with_name("sgemm_plain.sass")
    source = path.read_text()
    if variant == PLAIN:
        source = source.replace(".schedule re", "# .schedule re").replace(".schedule ro", "# .schedule ro")
    if variant == RENAMED:
        source = source.replace(".schedule reorder", ".schedule rename")
    return turingas.assemble(source, arch, {"SETS": 1} if variant == RENAMED else None, filename=str(path))


def static(
    archs: Sequence[str] = ARCHS, variants: Sequence[str] = (OWN, *WRITTEN)
) -> Iterator[tuple[str, str, float, float]]:
    """Architecture, variant, and for 8 k of the main loop of step 8: its instructions, and the cycles that its control
    codes and bank conflicts add up to."""
    for arch in archs:
        for variant in variants:
            cubin = sgemm_of(arch, variant)
            [loop] = [loop for loop in summary(Graph(cubin.texts[0])) if loop.math == "FFMA"]
            steps = loop.pipes["fma"] // 512
            yield arch, variant, loop.instructions / steps, loop.alone / steps


def sgemm(name: str, variant: str, device: str) -> Iterator[Callable[[], float]]:
    """What times step 8 once, in milliseconds."""
    n = PRODUCT
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    cubin = sgemm_of(device_named(device).arch, variant)
    with loader.load(cubin, device) as module, Buffer.of(a, device) as da, Buffer.of(b, device) as db:
        with Buffer((n, n), np.float32, device) as dc:
            kernel = module.kernel("sgemm")

            def launch() -> None:
                kernel.launch((n // 128, n // 128), 256, da, db, dc, n, n, n)

            yield lambda: timing.measure(launch, device=device).median


def layer(name: str, variant: str, device: str) -> Iterator[Callable[[], float]]:
    """The same for a convolution."""
    (n, c, h, w, k), layout, method = LAYERS[name]
    random = np.random.default_rng(2)
    shape = {"NCHW": (n, c, h, w), "NHWC": (n, h, w, c), "CHWN": (c, h, w, n)}[layout]
    x = random.standard_normal(shape, dtype=np.float32)
    weight = random.standard_normal((k, c, 3, 3), dtype=np.float32)
    plain = code.assemble
    code.Kernels._made.clear()
    with mock.patch.object(code, "assemble", lambda *args: made(plain(*args), variant)):
        with (
            Conv2d(weight, layout=layout, device=device, kernel=method, schedule={}) as conv,
            Buffer.of(x, device) as dx,
        ):
            conv(dx)
            yield lambda: timing.measure(lambda: conv(dx), device=device).median


def unseen(cubin: Cubin, kernel: str) -> int | None:
    """A dimension of the grid, 1 or 2, that a kernel does not look at, nor any function beside it: neither at a block's
    place nor at its size."""
    size = facts(cubin.arch).grid_dim
    others = {one.name for one in cubin.kernels} - {kernel}
    code = [one for one in cubin.texts if one.name not in others]
    texts = [i.text() for one in code for i in Graph(one).instructions if i is not None]
    for axis, name in ((2, "Z"), (1, "Y")):
        told = f"SR_CTAID.{name}", f"SR_NCTAID.{name}", f"c[0x0][{size + 4 * axis:#x}]"
        if not any(one in text for text in texts for one in told):
            return axis
    return None


def repeated(grid: Sequence[int], axis: int, times: int) -> tuple[int, ...]:
    """A grid that many times along a dimension."""
    whole_grid = [*grid, 1, 1][:3]
    whole_grid[axis] *= times
    return tuple(whole_grid)


@functools.cache
def times_of(name: str, device: str) -> int:
    """How many grids of a test kernel one launch takes: as many as take ``LONG``."""
    [case] = [case for case in CASES if case.name == name]
    axis = unseen(Cubin.from_bytes(case.cubin(device_named(device).arch)), case.kernel)
    if axis is None:
        return 1
    times, most = 1, MOST_BLOCKS // [*case.grid, 1, 1][axis]
    while times < most:
        with contextlib.contextmanager(_launched)(name, OWN, device, times) as timer:
            took = timer() * times
        if took >= LONG:
            break
        times = min(most, times * max(2, math.ceil(LONG / took)))
    return times


def small(name: str, variant: str, device: str) -> Iterator[Callable[[], float]]:
    """The same for a test kernel."""
    return _launched(name, variant, device, times_of(name, device))


@functools.lru_cache(maxsize=1)
def given_of(name: str, device: str) -> list[Any]:
    """The arguments of a test kernel, its arrays on the GPU."""
    [case] = [case for case in CASES if case.name == name]
    return [Buffer.of(a, device) if isinstance(a, np.ndarray) else a for a in case.build()[0]]


def _launched(name: str, variant: str, device: str, times: int) -> Iterator[Callable[[], float]]:
    [case] = [case for case in CASES if case.name == name]
    cubin = Cubin.from_bytes(small_cubin((name, variant, device_named(device).arch)))
    axis, given = unseen(cubin, case.kernel), given_of(name, device)
    grid = case.grid if axis is None else repeated(case.grid, axis, times)
    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(loader.load(cubin, device)).kernel(case.kernel)

        def launches(stream: Stream) -> None:
            for _ in range(LAUNCHES):
                kernel.launch(grid, case.block, *given, shared=case.shared, stream=stream)

        with Stream(device_named(device)) as stream:
            launches(stream)  # what is loaded at a first launch is so before it is recorded
            stream.synchronize()
        graph = stack.enter_context(Recorded(launches, device))
        yield lambda: timing.measure(graph.launch, device=device, runs=5, flush=False).median / LAUNCHES / times


Asked = tuple[str, str, str]  # a test kernel, variant and architecture
_SMALL: dict[Asked, bytes] = {}


def small_cubin(asked: Asked) -> bytes:
    """The cubin of a test kernel in a variant."""
    if asked not in _SMALL:
        name, variant, arch = asked
        [case] = [case for case in CASES if case.name == name]
        _SMALL[asked] = made(Cubin.from_bytes(case.cubin(arch)), variant).to_bytes()
    return _SMALL[asked]


def _tried(asked: Asked) -> bytes | None:
    """The same; None where the scheduler refuses: ``measure`` asks once more, and says why."""
    try:
        return small_cubin(asked)
    except AsmError:
        return None


def prepare(names: Sequence[str], arch: str) -> None:
    """Make all of ``small_cubin`` at once, in as many processes as there are cores: it takes longer than the timing."""
    wanted = [(name, variant, arch) for name in names for variant in (*VARIANTS, AGAIN)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.map(_tried, wanted, chunksize=len(VARIANTS) + 1)
        _SMALL.update((asked, data) for asked, data in zip(wanted, found) if data is not None)


def measure(device: str, names: list[str]) -> dict[str, dict[str, float]]:
    """Name -> variant -> milliseconds. What is refused is told, and left out."""
    found: dict[str, dict[str, float]] = {}
    for name in names:
        make = sgemm if name == "sgemm" else layer if name in LAYERS else small
        with contextlib.ExitStack() as stack:
            try:
                ours = OURS if make is not small else (AGAIN,)
                variants = (*VARIANTS, *ours, *(WRITTEN if name == "sgemm" else ()))
                timers = {v: stack.enter_context(contextlib.contextmanager(make)(name, v, device)) for v in variants}
                rounds = [{v: timer() for v, timer in timers.items()} for _ in range(ROUNDS)]
            except KeyboardInterrupt:
                print("interrupted")
                break
            except (AsmError, LaunchError, CudaError) as error:
                print(f"{name}: {error}")
                if isinstance(error, CudaError) and error.lost:  # nothing runs there any more
                    break
                continue
        found[name] = {v: statistics.median([one[v] for one in rounds]) for v in timers}
        own = found[name][OWN]
        print(f"{name:24} {own:9.5f} ms" + "".join(f"  {v} {t / own:6.3f}" for v, t in found[name].items()), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--kernels", default="all", help="small: those of tests/kernels; large: ours; or a name")
    parser.add_argument("--static", action="store_true", help="cycles of the main loop of step 8, by its control codes")
    asked = parser.parse_args()
    if asked.static:
        print(f"{'8 k of SGEMM':20} {'instructions':>12} {'cycles':>7}")
        for arch, variant, instructions, cycles in static():
            print(f"{arch} {variant:14} {instructions:12.1f} {cycles:7.1f}")
        return 0
    gpu = device_named(asked.device)
    large = ["sgemm", *LAYERS]
    few = [case.name for case in CASES if gpu.arch in case.archs and case.name not in SPIN]
    names = {"all": large + few, "large": large, "small": few}.get(asked.kernels, [asked.kernels])
    if len(names) > 1:
        prepare([name for name in names if name in few], gpu.arch)
    found = measure(asked.device, names)
    for kind, members in (("ours", large), ("test kernels", few)):
        there = [found[name] for name in members if name in found]
        for v in (*VARIANTS[1:], *(OURS if kind == "ours" else (AGAIN,))) if there else ():
            mean = math.exp(statistics.fmean(math.log(one[v] / one[OWN]) for one in there))
            worst = max((one[v] / one[OWN], name) for name, one in found.items() if name in members)
            print(f"{kind}: {v:10} {mean:.4f} of the time, at most {worst[0]:.3f} ({worst[1]})")
    if asked.json:
        times = {name: times_of(name, asked.device) for name in found if name in few}
        asked.json.write_text(results.text({**results.facts("schedule", gpu, ()), "grids": times, "ms": found}))
    return int(len(found) < len(names))


if __name__ == "__main__":
    raise SystemExit(main())
