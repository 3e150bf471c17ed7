"""The figures of `turingas bench winograd` and `turingas bench schedule`, drawn from their results alone.

One function a figure, which gives None where the results have nothing for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kernels_sass.bench import verdicts
from kernels_sass.bench.verdicts import OURS, YAN, column, names, shorter, speedups
from loader.bench import results
from loader.bench.contenders import OPENCNN
from loader.bench.figures import COLOURS, MOST_BARS, Figures, bars, canvas, heat, legend, named, pyplot, stamp

Json = results.Json

FP32 = (*verdicts.FP32, "opencnn", "references")
CUDNN = ("WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING")  # where there is no room for all of its algorithms


# ---- bench winograd ----------------------------------------------------------------------------------------------


def winograd(found: Json) -> Figures:
    """All figures of `turingas bench winograd`."""
    found = results.in_order(found)
    return named("winograd", found, {name: functools.partial(figure, found) for name, figure in WINOGRAD.items()})


def speedup(found: Json) -> Any:
    """Bars: each of ours over the fastest fp32 rival (Table 6 of Yan, Wang, Chu 2020 as a picture)."""
    settings = list(found["settings"])
    source = found["summary"]["source"]
    rows = {}
    for name in _ours(found):
        label = name.removeprefix(f"ours {source} ")
        rows[label] = [entry["verdict"]["ours"][label]["over_rival"] for entry in found["settings"].values()]
    if not any(value for values in rows.values() for value in values):
        return None
    title = f"Our Winograd kernels ({source}) over the fastest fp32 algorithm of cuDNN and PyTorch (no TF32)"
    figure, axes = canvas(found, title, 12, 4)
    bars(axes, settings, rows)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylabel("times as fast")
    legend(figure, title="ours")
    return figure


def over_all(found: Json) -> Any:
    """Heat map: the fastest of ours over all fp32 algorithms (Figures 12 and 13 of Yan, Wang, Chu 2020)."""
    rows = {shorter(name): speedups(found, OURS, name) for name in names(found, FP32)}
    title = "Figures 12 and 13, here: the fastest of our kernels over every fp32 convolution"
    return heat(found, title, rows, "times as fast; red: ours is slower") if any(rows.values()) else None


def opencnn(found: Json) -> Any:
    """Heat map: the CUDA C++ kernel with openCNN's layout over cuDNN's (Figures 17, 19 of openCNN's papers)."""
    mine = f"reference {OPENCNN}"
    rows = {shorter(name): speedups(found, mine, name) for name in names(found, FP32) if name != mine}
    title = "Figures 17 and 19, here: the CUDA C++ kernel with openCNN's layout over every fp32 convolution"
    return heat(found, title, rows, "times as fast; red: openCNN's layout is slower") if any(rows.values()) else None


def precision(found: Json) -> Any:
    """Heat map: the fastest of ours over what is less accurate, TF32 and FP16."""
    rows = {name: speedups(found, OURS, name) for name in names(found, ("tf32", "fp16"))}
    title = "The fastest of our kernels, with fp32 accuracy, over what is less accurate: TF32 and FP16"
    return heat(found, title, rows, "times as fast; red: ours is slower") if any(rows.values()) else None


def tflops(found: Json) -> Any:
    """Bars: effective TFLOP/s (Figures 15 and 18 of openCNN's papers)."""
    rivals = (f"reference {OPENCNN}", YAN, *(f"cuDNN {name} NCHW" for name in CUDNN))
    rows = {shorter(name): column(found, name, "tflops") for name in (*_ours(found)[: MOST_BARS - 3], *rivals)}
    rows = {name: values for name, values in rows.items() if any(values)}
    if not rows:
        return None
    figure, axes = canvas(found, "Figures 15 and 18, here: effective TFLOP/s, by 2NCHWKRS operations", 13, 4)
    bars(axes, list(found["settings"]), dict(list(rows.items())[:MOST_BARS]))
    axes.set_ylabel("effective TFLOP/s")
    legend(figure)
    return figure


def share(found: Json) -> Any:
    """Bars: the share of the FFMA peak (Figures 10, 11 of Yan, Wang, Chu 2020, by time, not by counters)."""
    rows, parts = {}, {"main kernel": " main", "with the filters' transformation": ""}
    if len(_ours(found)) > MOST_BARS // 2:
        del parts["with the filters' transformation"]
    for name in _ours(found)[:MOST_BARS]:
        for what, part in parts.items():
            values = column(found, name + part, "ffma")
            rows[f"{name.removeprefix('ours ')}, {what}"] = [value and 100 * value for value in values]
    if not any(value for values in rows.values() for value in values):
        return None
    title = "Figures 10 and 11, here: products of F(2x2,3x3) over what the FFMA pipes could do in the time"
    figure, axes = canvas(found, title, 13, 4)
    bars(axes, list(found["settings"]), rows)
    axes.axhline(100, color="black", linewidth=1)
    axes.set_ylabel("% of the FFMA peak")
    legend(figure)
    return figure


def workspace(found: Json) -> Any:
    """Bars: memory beside x, w and y (Figure 14 of Yan, Wang, Chu 2020)."""
    first = dict.fromkeys(name.removesuffix(name.split()[-1]) for name in _ours(found))  # the same in all layouts
    mine = [next(name for name in _ours(found) if name.startswith(one)) for one in first]
    fused = (f"reference {OPENCNN}", "reference winograd_nonfused")
    chosen = [*mine, *(name for name in names(found, ("cudnn",)) if name.endswith("NCHW")), *fused]
    rows = {}
    for name in chosen:
        values = [value and value / 1e6 for value in column(found, name, "workspace")]
        if any(values):
            rows[shorter(name)] = values
    if not rows:
        return None
    figure, axes = canvas(found, "Figure 14, here: workspace, which is memory beside input, filters and output", 13, 4)
    bars(axes, list(found["settings"]), dict(list(rows.items())[:MOST_BARS]))
    axes.set_yscale("log")
    axes.set_ylabel("MB (10^6 bytes)")
    legend(figure)
    return figure


def images(found: Json) -> Any:
    """Lines: effective TFLOP/s over the number of images, a panel for each layer."""
    pairs = [setting.rpartition("N")[::2] for setting in found["settings"]]
    layers = list(dict.fromkeys(layer for layer, _ in pairs))
    if len({batch for _, batch in pairs}) < 2:
        return None
    rivals = (*(f"cuDNN {name} NCHW" for name in CUDNN[1:]), "PyTorch fp32 NCHW", f"reference {OPENCNN}")
    chosen = [*_ours(found)[: MOST_BARS - len(rivals)], *rivals]
    figure, panels = pyplot().subplots(1, len(layers), figsize=(3.1 * len(layers) + 2, 3.6), sharey=True, squeeze=False,
                                       layout="constrained")  # fmt: skip
    for layer, axes in zip(layers, panels[0]):
        for turn, name in enumerate(chosen):
            points = [(int(batch), value) for (one, batch), value in zip(pairs, column(found, name, "tflops"))
                      if one == layer and value]  # fmt: skip
            if points:
                axes.plot(*zip(*sorted(points)), "o-" if name.startswith("ours") else "s--", markersize=4,
                          color=COLOURS[turn % MOST_BARS], label=shorter(name))  # fmt: skip
        axes.set_title(layer, fontsize=10)
        axes.set_xlabel("images")
        axes.grid(alpha=0.4)
    panels[0][0].set_ylabel("effective TFLOP/s")
    handles = {label: one for axes in panels[0] for one, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, fontsize=8, loc="outside right upper")
    figure.suptitle("Effective TFLOP/s by the number of images", fontsize=11, x=0.01, ha="left")
    figure.supxlabel(stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    return figure


def error(found: Json) -> Any:
    """Dots: the relative L2 error of everybody in every setting."""
    groups = ("ours", *FP32, "tf32", "fp16")
    chosen = names(found, groups)
    if not chosen:
        return None
    title = "Relative L2 error against float64, a dot for each setting"
    figure, axes = canvas(found, title, 9, 1.4 + 0.2 * len(chosen))
    for place, name in enumerate(reversed(chosen)):
        values = [value for value in column(found, name, "error") if value]
        axes.plot(values, [place] * len(values), "o", markersize=4, color=COLOURS[0 if name.startswith("ours") else 5])
    axes.set_yticks(range(len(chosen)), [shorter(name) for name in reversed(chosen)], fontsize=8)
    axes.set_xscale("log")
    axes.grid(alpha=0.4)
    return figure


def _ours(found: Json) -> list[str]:
    """Names of ours with a time, of the source that the verdict is on."""
    return [name for name in names(found, ("ours",)) if name.startswith(f"ours {found['summary']['source']} ")]


WINOGRAD: dict[str, Callable[[Json], Any]] = {
    "speedup": speedup, "over_all": over_all, "opencnn": opencnn, "precision": precision, "tflops": tflops,
    "share": share, "workspace": workspace, "images": images, "error": error,
}  # fmt: skip
