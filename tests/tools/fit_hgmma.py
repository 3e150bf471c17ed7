"""What HGMMA's convolutions take, and the model by which the fastest is chosen.

    python -m tests.tools.fit_hgmma --measure times.json --seconds 200      # on an H100 or H200
    python -m tests.tools.fit_hgmma times.json [MORE.json ...]              # anywhere, of several cards at once
    python -m tests.tools.fit_hgmma times.json --way tf32:turns:128         # a way's stages, such that choosing is best

The first command times layers in NHWC in each way that ``kernels_sass.conv.methods.hgmma.PRECISIONS`` lists, with each
number of blocks that share the last tiles, and with 128 pixels a tile and those few that make full rounds of tiles. The
second finds the constants of the same model that come nearest to these times (least squares of their logarithms, by
Gauss and Newton), prints them as hgmma.py has them, and says how far off they are, and what is lost by choosing with
them. The third changes what a stage of some ways takes, by up to a tenth, as little as is enough to lose least by
choosing: what comes nearest to all times may choose wrong where two ways are about as fast.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from kernels_sass.bench.conv import RESNET, SQUARE, Ours, Typed
from kernels_sass.conv.implicit_shape import Shape, Source
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import ANY_PIXELS, COSTS, PRECISIONS, WITH_WINDOWS, Costs, Way, Work
from loader.bench import measure, results
from loader.reference.problem import Problem

ROOM = {1: 132, 2: 66, 4: 30, 8: 15}  # clusters that an H100 or H200 runs at once
LARGE = ((224, 64, 64, 3, 1), (112, 64, 128, 3, 1), (112, 128, 128, 3, 1), (56, 256, 256, 3, 1), (28, 512, 512, 3, 1))
LAYERS = [(n, *layer) for layer in (*SQUARE, *RESNET) for n in (32, 128)]
LAYERS += [(n, *layer) for layer in SQUARE for n in (1, 8, 64, 96)] + [(32, *layer) for layer in LARGE]
Row = dict[str, Any]


def problems() -> Iterator[Problem]:
    """Layers: images, rows, C, K, size of the filters, stride."""
    for n, h, c, k, r, stride in LAYERS:
        yield Problem(n, c, h, h, k, r, r, stride, r // 2)


def seen(p: Problem, precision: str) -> tuple[Work, hgmma.Windows | None, tuple[int, int]]:
    """A layer as the model sees it, as windows see it, and its filter."""
    shape = Shape.of(p, "NHWC")
    source = Source.of(shape, PRECISIONS[precision], True)
    return source.work(shape, PRECISIONS[precision]), source.windows(shape), source.filter


def framed(work: Work, windows: hgmma.Windows | None, kind: str) -> Work:
    """With the pixels that are there for a kind of way."""
    return dataclasses.replace(work, pixels=windows.pixels) if windows and kind in WITH_WINDOWS else work


def pixels(work: Work, way: Way) -> list[int]:
    """Of a tile: 128, and the least with which a block makes so many tiles, the best three by what all make then, the
    larger ones of those that are alike."""
    least: dict[int, int] = {}
    for tile_m in way.pixels:
        least.setdefault(work.rounds(way.tile_n, 1, ROOM, tile_m)[0], tile_m)
    best = sorted(least.items(), key=lambda one: (one[0] * one[1], one[0]))[:3]
    return list(dict.fromkeys([hgmma.TILE_M, *(tile_m for _, tile_m in best)]))


def ways(p: Problem, precision: str) -> Iterator[tuple[Way, int, int]]:
    """All that a layer can be made in, blocks that share its last tiles, and pixels of a tile."""
    of = PRECISIONS[precision]
    work, windows, filter = seen(p, precision)
    for way, cluster in itertools.product(of.ways, hgmma.CLUSTERS):
        if way.kind in ANY_PIXELS:
            if cluster == 1 and (windows or way.kind == hgmma.WIDER):
                for tile_m in pixels(framed(work, windows, way.kind), way):
                    if hgmma.of_pixels(of, way, work, windows, filter, tile_m):
                        yield way, 1, tile_m
        elif cluster == 1 or work.each(cluster) >= hgmma.LEAST_STAGES and way.tile_n * cluster <= hgmma.MOST_SENT:
            yield way, cluster, hgmma.TILE_M


def measured(path: Path, seconds: float, precisions: tuple[str, ...]) -> None:
    """Times of all layers, kept after each."""
    gpu = measure.gpu_at_hand("this times layers")
    file = json.loads(path.read_text()) if path.exists() else {**results.facts("fit_hgmma", gpu, []), "rows": []}
    known = {(row["layer"], row["precision"]) for row in file["rows"]}
    end = time.monotonic() + seconds
    for p, precision in itertools.product(problems(), precisions):
        if (str(p), precision) in known or time.monotonic() > end:
            continue
        able = list(ways(p, precision))
        ours = []
        for way, cluster, tile_m in able:
            ours.append(Ours(precision, "NHWC", kernel=hgmma.NAME, schedule=way.schedule(tile_m), splits=cluster))
        with Typed(p, gpu, precision, 0) as data:
            rows, _ = measure.compare(data, ours, 6, 0)
        by_name = {row["name"]: row for row in rows}
        for (way, cluster, tile_m), one in zip(able, ours):
            row = by_name[one.name]
            made = {"layer": str(p), "problem": dataclasses.asdict(p), "precision": precision, "kind": way.kind,
                    "tile_n": way.tile_n, "tile_m": tile_m, "cluster": cluster, "status": row["status"],
                    "us": 1e3 * row["ms"] if "ms" in row else None}  # fmt: skip
            file["rows"].append(made)
        path.write_text(json.dumps(file, indent=1) + "\n")
        print(f"{precision} {p}: {len(able)} ways", flush=True)


def way_of(row: Row) -> Way | None:
    """The way that a row was timed in, if it still is one."""
    able = PRECISIONS[row["precision"]].ways
    return next((one for one in able if (one.kind, one.tile_n) == (row["kind"], row["tile_n"])), None)


class Model:
    """All constants as one vector of logarithms."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.keys = [(row["precision"], way_of(row)) for row in rows]
        self.ways = list(dict.fromkeys(self.keys))
        self.names = [field.name for field in dataclasses.fields(Costs)]
        self.times = np.array([row["us"] for row in rows])
        least: dict[Any, float] = {}
        for row in rows:
            least[row["of"]] = min(row["us"], least.get(row["of"], math.inf))
        self.near = np.array([(least[row["of"]] / row["us"]) ** 2 for row in rows])
        self.works = []
        for row in rows:
            work, windows, _ = seen(Problem(**row["problem"]), row["precision"])
            self.works.append(framed(work, windows, row["kind"]))

    def start(self) -> Any:
        """Those of hgmma.py."""
        found = [getattr(COSTS, name) for name in self.names]
        for _, way in self.ways:
            found += [way.stage, way.column, max(way.still, 1e-3)]
        return np.log(found)

    def read(self, vector: Any) -> tuple[Costs, dict[Any, Way]]:
        """Costs, and ways by what was known of them."""
        values = np.exp(vector)
        costs, rest = Costs(*map(float, values[: len(self.names)])), values[len(self.names) :].reshape(-1, 3)
        return costs, {
            key: dataclasses.replace(key[1], stage=float(a), column=float(b),
                                     still=float(min(c, a, b)) if key[1].kind in ANY_PIXELS else 0)
            for key, (a, b, c) in zip(self.ways, rest)}  # fmt: skip

    def predicted(self, vector: Any) -> Any:
        """Microseconds of each row."""
        costs, known = self.read(vector)
        each = zip(self.works, self.keys, self.rows)
        return np.array([work.time(known[key], row["cluster"], ROOM, costs, row["tile_m"]) for work, key, row in each])

    def free(self, kinds: tuple[str, ...]) -> Any:
        """Which constants are to be found: those of all ways of some kinds; all, without any."""
        found = [not kinds] * len(self.names)
        for _, way in self.ways:
            found += [not kinds or way.kind in kinds] * 2 + [way.kind in (kinds or ANY_PIXELS)]
        return np.array(found)

    def fit(self, kinds: tuple[str, ...], rounds: int = 25) -> Any:
        """Gauss and Newton, a little damped, with differences for derivatives."""
        x, step, free = self.start(), 0.02, self.free(kinds)
        for _ in range(rounds):
            base = np.log(self.predicted(x) / self.times)
            # What is far off counts less (the least sum of distances), and what nobody would choose
            weights = self.near / np.maximum(np.abs(base), 0.03)
            slopes = np.stack([(np.log(self.predicted(x + step * one) / self.times) - base) / step
                               for one in np.eye(len(x))[free]], 1)  # fmt: skip
            scaled = slopes * weights[:, None]
            moved = np.linalg.solve(scaled.T @ slopes + 0.05 * np.eye(free.sum()), -scaled.T @ base)
            x[free] += np.clip(moved, -0.3, 0.3)
        return x


def report(paths: tuple[Path, ...], kinds: tuple[str, ...]) -> None:
    """Constants, how far they are off, and what choosing by them costs."""
    rows = []
    for path in paths:
        file = json.loads(path.read_text())
        rows += [{**row, "of": (file["gpu"], row["precision"], row["layer"])} for row in file["rows"]
                 if row["us"] and way_of(row)]  # fmt: skip
    model = Model(rows)
    fitted = model.fit(kinds)
    costs, known = model.read(fitted)
    print(f"COSTS = {costs}")
    for (precision, _), way in known.items():
        print(f"{precision:5s} Way({way.kind.upper()}, {way.tile_n}, {way.stages}, {way.stage:.3f}, {way.column:.3f}"
              + (f", {way.still:.3f})" if way.still else ")"))
    for name, vector in (("as hgmma.py has them", model.start()), ("fitted", fitted)):
        guess = model.predicted(vector)
        off = np.abs(np.log(guess / model.times))
        lost = []
        for key in dict.fromkeys(row["of"] for row in rows):
            these = [n for n, row in enumerate(rows) if row["of"] == key]
            chosen = min(these, key=lambda n: guess[n])
            lost.append((model.times[chosen] / min(model.times[n] for n in these), key, rows[chosen]))
        lost.sort(key=lambda one: -one[0])
        mean = math.exp(sum(math.log(one[0]) for one in lost) / len(lost))
        print(f"{name}: off by {np.median(off):.1%} in the median, {np.quantile(off, 0.9):.1%} for nine in ten; what "
              f"they choose takes {mean:.3f} times the least in the mean of {len(lost)}, {lost[0][0]:.3f} at most")
        for ratio, key, row in lost[:6]:
            print(f"    {ratio:.3f}  {', '.join(key)}: {row['kind']} {row['tile_n']} x {row['tile_m']} "
                  f"in clusters of {row['cluster']}")


def lost(rows: list[Row], known: dict[tuple[str, str, int], Way]) -> float:
    """What choosing by some ways takes, over the least, in the mean of all layers."""
    by_layer: dict[Any, list[tuple[float, float]]] = {}
    for row in rows:
        work, windows, _ = seen(Problem(**row["problem"]), row["precision"])
        way = known[row["precision"], row["kind"], row["tile_n"]]
        guess = framed(work, windows, way.kind).time(way, row["cluster"], ROOM, COSTS, row["tile_m"])
        by_layer.setdefault((row["precision"], row["layer"]), []).append((guess, row["us"]))
    ratios = [min(those)[1] / min(us for _, us in those) for those in by_layer.values()]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def by_choice(paths: tuple[Path, ...], names: tuple[str, ...]) -> None:
    """The stages of some ways, one after the other, with which least is lost."""
    rows = [row for path in paths for row in json.loads(path.read_text())["rows"] if row["us"] and way_of(row)]
    known = {(precision, way.kind, way.tile_n): way for precision, of in PRECISIONS.items() for way in of.ways}
    print(f"as hgmma.py has them: {lost(rows, known):.4f}")
    for name in names:
        precision, kind, tile_n = name.split(":")
        key = precision, kind, int(tile_n)
        able = [dataclasses.replace(known[key], stage=known[key].stage * (1 + part / 100)) for part in range(-10, 11)]
        own = [row for row in rows if row["precision"] == precision]
        found = min(able, key=lambda one: (round(lost(own, {**known, key: one}), 4), abs(one.stage - known[key].stage)))
        known[key] = found
        print(f"{name}: a stage of {found.stage:.3f}: {lost(rows, known):.4f}")


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--measure", "new", is_flag=True, help="Time layers on the GPU, but for those that the file has.")
@click.option("--seconds", default=math.inf, help="Begin no layer later than that.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(hgmma.KINDS),
              help="Find the constants of these ways alone, for all others are known. [default: all]")
@click.option("--way", "chosen", multiple=True, metavar="PRECISION:KIND:FILTERS", help="Find what its stages take.")
@click.option("--precision", "precisions", multiple=True, type=click.Choice(list(PRECISIONS)),
              help="[default: all but bf16]")
def main(
    paths: tuple[Path, ...], new: bool, seconds: float, kinds: tuple[str, ...], chosen: tuple[str, ...],
    precisions: tuple[str, ...],
) -> None:  # fmt: skip
    if new:
        for path in paths:
            measured(path, seconds, precisions or ("tf32", "fp16", "fp32"))
    elif chosen:
        by_choice(paths, chosen)
    else:
        report(paths, kinds)


if __name__ == "__main__":
    main()
