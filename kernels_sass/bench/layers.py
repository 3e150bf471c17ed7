"""`turingas bench shapes --random N`: layers drawn at random, the public call beside all that compute them in float32.

Small sizes are drawn somewhat more often than large ones (``SKEW``): more than a third of the layers take an H200 less
than 35 us then, by what conv.cost reckons, so that the time of the host counts too.
"""

from __future__ import annotations

import dataclasses
import math
import random

from kernels_sass.bench import calls
from loader.bench import results
from loader.bench.measure import Data
from loader.cuda import Device
from loader.reference.problem import Problem

IMAGES, CHANNELS, SIDES = (1, 64), (1, 515), (3, 96)  # of N; of C and K; of H and W
SKEW = 1.5  # the exponent of a number from 0 to 1
BEHIND = 0.95  # a speed-up below it is a layer that is slower


def draw(count: int, seed: int) -> dict[str, Problem]:
    """So many layers that differ, by name."""
    made: dict[str, Problem] = {}
    source = random.Random(seed)

    def size(bounds: tuple[int, int]) -> int:
        low, high = bounds
        return low + int((high - low + 1) * source.random() ** SKEW)

    while len(made) < count:
        n, c, k, h, w = (size(bounds) for bounds in (IMAGES, CHANNELS, CHANNELS, SIDES, SIDES))
        pad = source.randrange(2)
        made[f"N{n} C{c} {h}x{w} K{k} pad {pad}"] = Problem(n, c, h, w, k, 3, 3, 1, pad)
    return made


def timed(p: Problem, gpu: Device, layout: str) -> results.Json:
    """The row of a layer: us, low, high and error of our call, ``rivals``: microseconds of the others, or why there are
    none; the ``fastest`` of them, and ``speedup``, its time over ours."""
    with Data(p, gpu, once="w") as data:
        (ours, *others), state = calls.compare(data, [calls.Ours(layout), *calls.rivals()])
    row: results.Json = {"problem": dataclasses.asdict(p)}
    row |= {key: ours[key] for key in ("status", "us", "low", "high", "error") if key in ours}
    row["rivals"] = {one["name"]: one.get("us", one["status"]) for one in others}
    able = {one["name"]: one["us"] for one in others if "us" in one}
    if able and "us" in ours:
        row["fastest"] = min(able, key=lambda name: able[name])
        row["speedup"] = float(f"{able[row['fastest']] / ours['us']:.4g}")
    return row | {"state": state}


def summary(settings: results.Json) -> results.Json:
    """How many layers were wrong, and of those with a speed-up the geometric mean, the least, and how many of 100 are
    slower."""
    over = [row["speedup"] for row in settings.values() if "speedup" in row]
    made: results.Json = {"layers": len(settings), "wrong": sum(row["status"] != "ok" for row in settings.values())}
    if over:
        slower = sum(one < BEHIND for one in over)
        made |= {"mean": round(math.exp(sum(map(math.log, over)) / len(over)), 3), "least": min(over),
                 "slower": slower, "slower of 100": round(100 * slower / len(over), 1)}  # fmt: skip
    return made


def show(found: results.Json) -> None:
    """Print the table, the slowest first."""
    asked = found["asked"]
    what = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}: Conv2d, {asked['layout']}, seed {asked['seed']}"
    made = results.table(what, "layer", "us", "fastest rival", "its us", "speed-up", "error", left=["fastest rival"])
    for name, row in sorted(found["settings"].items(), key=lambda one: float(one[1].get("speedup", 0))):
        if row["status"] != "ok":
            made.add_row(name, row["status"])
            continue
        cells = ["-", "-", "-"]
        if "speedup" in row:
            cells = [row["fastest"], f"{row['rivals'][row['fastest']]:.1f}", f"{row['speedup']:.2f}"]
        made.add_row(name, f"{row['us']:.1f}", *cells, f"{row['error']:.1e}")
    results.console().print(made)
    one = found["summary"]
    text = f"{one['layers']} layers, {one['wrong']} wrong"
    if "mean" in one:
        text += (f"; {one['mean']:.2f}x in the geometric mean, {one['least']:.2f}x at least, below {BEHIND}x in "
                 f"{one['slower']} ({one['slower of 100']:g} of 100)")  # fmt: skip
    results.console().print(text)
