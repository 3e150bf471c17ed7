"""What times of contenders come to: verdicts of a setting, speed-ups, means; and how the papers put them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from loader.bench import results
from loader.bench.contenders import OPENCNN
from loader.bench.measure import Row

FP32 = ("cudnn", "torch")  # the groups that a speed-up is over


# ---- what comes of it --------------------------------------------------------------------------------------------


def labels(rows: Sequence[Row], source: str) -> list[str]:
    """How our kernels of a source are called: a layout, before it the value of a parameter that makes it a kernel of
    its own, such as "tf32x3 NCHW"."""
    first = f"ours {source} "
    return [row["name"].removeprefix(first) for row in rows if row["name"].startswith(first) and row["part"] == "all"]


def verdict(rows: Sequence[Row], source: str) -> results.Json:
    """Each of ours over the fastest fp32 rival and over openCNN's kernel; None where there is no time."""
    times = {row["name"]: row["ms"] for row in rows if row["status"] == "ok"}
    fp32 = [row for row in rows if row["group"] in FP32 and row["status"] == "ok"]
    rival = min(fp32, key=lambda row: row["ms"], default=None)
    opencnn = next((row["ms"] for row in rows if row["group"] == "opencnn" and row["status"] == "ok"), None)
    made: results.Json = {"rival": rival and rival["name"], "rival_ms": rival and rival["ms"], "opencnn_ms": opencnn}
    made["ours"] = {}
    for label in labels(rows, source):
        ms = times.get(f"ours {source} {label}")
        made["ours"][label] = {
            "ms": ms, "main_ms": times.get(f"ours {source} {label} main"),
            "over_rival": ratio(rival["ms"] if rival else None, ms), "over_opencnn": ratio(opencnn, ms),
        }  # fmt: skip
    return made


def ratio(theirs: float | None, mine: float | None) -> float | None:
    """A speed-up; None without either time."""
    return round(theirs / mine, 3) if theirs and mine else None


#: Groups of ours whose best is told as well: all, and those with the layouts of the rivals.
BEST = {"best": ("CHWN", "NCHW", "NHWC"), "best of NCHW, NHWC": ("NCHW", "NHWC")}


def summary(settings: results.Json, source: str) -> results.Json:
    """Geometric means and the least of the speed-ups over all settings, for each of ours and for the best of each."""
    made: results.Json = {"source": source, "settings": len(settings)}
    names = list(dict.fromkeys(name for entry in settings.values() for name in entry["verdict"]["ours"]))
    for name in (*names, *BEST):
        made[name] = {}
        for kind in ("over_rival", "over_opencnn"):
            found = [one for one in (_speedup(entry, name, kind) for entry in settings.values()) if one]
            if found:
                made[name][kind] = {"mean": round(geometric_mean(found), 3), "least": min(found), "of": len(found)}
    return made


def best(entry: results.Json, name: str = "best") -> str | None:
    """The fastest of ours in a setting, of the layouts that BEST has under the name."""
    mine = {label: one["ms"] for label, one in entry["verdict"]["ours"].items()
            if one["ms"] and label.split()[-1] in BEST[name]}  # fmt: skip
    return min(mine, key=lambda label: mine[label]) if mine else None


def _speedup(entry: results.Json, name: str, kind: str) -> float | None:
    label = best(entry, name) if name in BEST else name
    found: dict[str, float | None] = entry["verdict"]["ours"].get(label, {})
    return found.get(kind)


def geometric_mean(numbers: Iterable[float]) -> float:
    """The n-th root of the product."""
    logarithms = [math.log(one) for one in numbers]
    return math.exp(sum(logarithms) / len(logarithms))


# ---- as the papers have it ---------------------------------------------------------------------------------------

OURS = "the best of ours"  # in the place of a contender's name: the fastest of ours in each setting
YAN = "reference winograd"  # the kernel of Yan, Wang, Chu 2020 in CUDA C++, "Yan et al." in openCNN's papers

#: Title -> whose time the others are divided by, and the others.
TABLES = {
    "Table 6 of Yan, Wang, Chu 2020, here": (
        OURS, ("cuDNN WINOGRAD NCHW", "cuDNN WINOGRAD_NONFUSED NCHW", YAN, f"reference {OPENCNN}")),
    "Tables 3 and 4 of openCNN's papers, here": (
        f"reference {OPENCNN}", ("cuDNN WINOGRAD NCHW", "cuDNN WINOGRAD_NONFUSED NCHW", YAN)),
}  # fmt: skip


def times(entry: results.Json) -> dict[str, float]:
    """Milliseconds of a setting by name; OURS among them."""
    found = {row["name"]: row["ms"] for row in entry["rows"] if row["status"] == "ok"}
    if label := best(entry):
        found[OURS] = entry["verdict"]["ours"][label]["ms"]
    return found


def speedups(found: results.Json, name: str, over: str) -> dict[str, float]:
    """By setting: how many times as fast as ``over`` a contender is, where both have a time."""
    made = {}
    for setting, entry in found["settings"].items():
        there = times(entry)
        if name in there and over in there:
            made[setting] = there[over] / there[name]
    return made


def names(found: results.Json, groups: Sequence[str]) -> list[str]:
    """The contenders of some groups that have a time somewhere, groups in this order. References in half precision are
    among "fp16"."""
    rows = [row for entry in found["settings"].values() for row in entry["rows"]]
    there = [row for row in rows if row["status"] == "ok" and row["part"] == "all"]
    return list(dict.fromkeys(row["name"] for group in groups for row in there if _group(row) == group))


def _group(row: Row) -> str:
    return str(row["group"] if row.get("precision", "fp32") == "fp32" else row["precision"])


def status(found: results.Json, name: str) -> str:
    """Why a contender has no time: the first reason; "not asked for" if it did not take part."""
    rows = [row for entry in found["settings"].values() for row in entry["rows"] if row["name"] == name]
    return next((row["status"] for row in rows if row["status"] != "ok"), "not asked for")


def shorter(name: str) -> str:
    """A contender's name for a table or figure."""
    return {YAN: "Yan 2020 in CUDA C++", f"reference {OPENCNN}": "openCNN's layout"}.get(name, name)


def column(found: results.Json, name: str, key: str) -> list[float | None]:
    """What the row of a contender has in each setting; None where it has no time."""
    rows = [{row["name"]: row for row in entry["rows"]}.get(name, {}) for entry in found["settings"].values()]
    return [row.get(key) if row.get("status") == "ok" else None for row in rows]
