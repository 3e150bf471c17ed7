"""Writes the times and speeds of README.md and docs/ from kernels_sass/results: ``make readme``. None is typed by hand.

Between ``<!-- NAME: written by `make readme` from FILE -->`` and ``<!-- end of NAME -->`` stands what ``BLOCKS[NAME]``
makes of the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from kernels_sass.bench import conv, gemm, host, networks, pipe
from kernels_sass.bench.tune import TRITON
from loader.bench.figures import stamp

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = "kernels_sass/results/winograd_sm90.json"
BATCHES = (32, 128)  # the smallest and the largest; the means are over all
GOAL = 1.5, 1.1  # of issue 5: in the mean, at least
BOTH = "best of NCHW, NHWC"  # in the summary: what stands beside cuDNN and PyTorch, which take these layouts

FEW = 8  # filters of layers that are told apart

ASSEMBLER = "kernels_sass/results/assembler_cpu.json"
FAULTS = re.compile(r"^\| \.\.\. in figures \|.*\n", re.M)
SPEED = re.compile(r"^\| instructions per second \|.*\n", re.M)
BLOCK = re.compile(r"(<!-- (\w+): written by `make readme` from (\S+) -->\n).*?(<!-- end of \2 -->\n)", re.S)


def times(found: dict[str, Any]) -> Iterator[str]:
    """The tables, and what they come to, of the results of `turingas bench winograd`."""
    groups = maths(found)
    first, *others = groups
    yield f"{found['gpu']}, driver {found['driver']}, cuDNN {found['cudnn']}, PyTorch {found['torch'].split('+')[0]},"
    yield f"{found['date']}, commit {found['commit'][:7]}; milliseconds:"
    yield ""
    heads = ["", *(f"ours, {label}" for label in groups[first]), *(f"ours, {math}, the fastest" for math in others),
             "fastest fp32 of cuDNN and PyTorch", "openCNN's kernel, written anew", "openCNN's own, another day",
             "TF32", "FP16"]  # fmt: skip
    yield row(*heads)
    yield "|---" * len(heads) + "|"
    for name, entry in found["settings"].items():
        if entry["problem"]["n"] in BATCHES:
            yield row(name.replace("N", ", N = "), *cells(name, entry, groups, found["opencnn_recorded"]["ms"]))
    yield ""
    yield row("", "over the fastest fp32 of cuDNN and PyTorch", "over openCNN's kernel, written anew", "largest error")
    yield "|---" * 4 + "|"
    source = found["summary"]["source"]
    for label in (label for labels in groups.values() for label in labels):
        ratios = [found["summary"][label][kind] for kind in ("over_rival", "over_opencnn")]
        yield row(f"ours, {label}", *(f"{one['mean']:.2f}x, {one['least']:.2f}x at least" for one in ratios),
                  f"{largest_error(found, f'ours {source} {label}'):.1e}")  # fmt: skip
    yield ""
    yield f"Means over {len(found['settings'])} settings. Errors: relative L2, against float64; the fastest rival's is"
    yield f"up to {largest_error(found, None):.1e}. {verdict(found, groups)}"


def maths(found: dict[str, Any]) -> dict[str, list[str]]:
    """What ours are called in the file, by how they multiply: "tf32x3 CHWN" is of "tf32x3"."""
    made: dict[str, list[str]] = {}
    for label in dict.fromkeys(label for entry in found["settings"].values() for label in entry["verdict"]["ours"]):
        made.setdefault(label.rpartition(" ")[0], []).append(label)
    return made


def row(*texts: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(texts) + " |"


def cells(name: str, entry: dict[str, Any], groups: dict[str, list[str]], recorded: dict[str, float]) -> Iterator[str]:
    """The cells of a setting."""
    made = entry["verdict"]
    for number, labels in enumerate(groups.values()):
        mine = [made["ours"].get(label, {}).get("ms") for label in labels]
        yield from map(ms, mine) if not number else [ms(min((one for one in mine if one), default=None))]
    yield f"{ms(made['rival_ms'])} {str(made['rival']).removeprefix('cuDNN ')}"
    yield ms(made["opencnn_ms"])
    yield ms(recorded.get(name))
    for precision in ("tf32", "fp16"):
        found = [one["ms"] for one in entry["rows"] if one["group"] == precision and one["status"] == "ok"]
        yield ms(min(found, default=None))


def largest_error(found: dict[str, Any], name: str | None) -> float:
    """Of a row by its name in all settings; None: of the fastest rival of each."""
    return max(float(one["error"]) for entry in found["settings"].values() for one in entry["rows"]
               if one["name"] == (name or entry["verdict"]["rival"]) and "error" in one)  # fmt: skip


def ms(time: float | None) -> str:
    """Milliseconds, or that there are none."""
    return "-" if time is None else f"{time:.3f}"


def verdict(found: dict[str, Any], groups: dict[str, list[str]]) -> str:
    """Who reaches the goal: which of ours alone, and whether the faster of two layouts does in each setting."""

    def reached(one: dict[str, float]) -> bool:
        return one["mean"] >= GOAL[0] and one["least"] >= GOAL[1]

    over = {label: found["summary"][label]["over_rival"] for labels in groups.values() for label in labels}
    kept = [label for label, one in over.items() if reached(one)]
    both = found["summary"].get(BOTH, {}).get("over_rival")
    goal = f"The goal, {GOAL[0]}x over the fastest rival on average and {GOAL[1]}x at least,\nis "
    if len(kept) == len(over):
        return goal + "reached."
    if both and reached(both):
        kept.append(f"the {BOTH} in each setting ({both['mean']:.2f}x, {both['least']:.2f}x at least)")
    return goal + (f"reached only by {' and by '.join(kept)}." if kept else "not reached.")


def speedups(found: dict[str, Any]) -> Iterator[str]:
    """How many times as many images a second: a row for each network, a column for each number of images."""
    every = networks.in_order(found)["settings"].values()
    at = {(one["network"], one["batch"]): one["verdict"]["over_torch"] for one in every}
    batches = sorted({batch for _, batch in at})
    yield row("", *(f"{batch} image{'s' * (batch > 1)}" for batch in batches))
    yield "|---" * (1 + len(batches)) + "|"
    for network in dict.fromkeys(name for name, _ in at):
        over = (at.get((network, batch)) for batch in batches)
        yield row(network, *("-" if one is None else f"{one:.2f}x" for one in over))
    yield ""
    compiled = {f"{networks.shown_as(who)} {layout}" for who, how in networks.WHO.items() if how.compiled
                for layout in networks.LAYOUTS}  # fmt: skip
    if plain := [name for name, entry in found["settings"].items()
                 if not any(one["name"] in compiled for one in entry["rows"] if one["group"] == "torch")]:  # fmt: skip
        yield f"Without `torch.compile`, which was not measured there (N: images): {networks.listed(plain)}."
    yield f"{stamp(found)}."


def whole(found: dict[str, Any]) -> Iterator[str]:
    """The fastest of ours and of PyTorch for each network; what the file does not have, and who was measured where."""
    yield f"{stamp(found)}; milliseconds:"
    yield ""
    heads = ("layers replaced", *(one for who in ("ours", "PyTorch") for one in (who, "images a second", "errors")))
    yield row("", *heads, "ours over PyTorch", "top-1 equal")
    yield "|---" * (3 + len(heads)) + "|"
    def who(name: str) -> str:
        return name.removeprefix("PyTorch ").removeprefix("ours").lstrip(", ")

    for name, entry in networks.in_order(found)["settings"].items():
        made, rows = entry["verdict"], {one["name"]: one for one in entry["rows"]}
        if not (made["ours"] and made["torch"]):
            continue  # `missing` says so
        ours, theirs = rows[made["ours"]], rows[made["torch"]]
        both = (cell for one in (ours, theirs) for cell in (
            f"{one['ms']:.3f}, {who(one['name'])}", f"{one['images_per_second']:,.0f}",
            f"{one['error']:.1e}, {one['largest']:.1e}"))  # fmt: skip
        same = "-" if ours["top1"] is None else f"{100 * ours['top1']:.0f}%"
        yield row(name.replace(" N", ", "), networks.layers_ours(ours), *both,
                  f"{made['over_torch']:.2f}x", same)  # fmt: skip
    yield ""
    yield "Errors: relative L2 error of the output, and the largest difference of one of its numbers, against float64."
    yield from networks.missing(found)
    yield ""
    yield f"{networks.PRESENCE.format(len(found['settings']))}:"
    yield ""
    yield row("", *networks.LAYOUTS)
    yield "|---" * (1 + len(networks.LAYOUTS)) + "|"
    yield from (row(*cells) for cells in networks.presence(found))


def linears(found: dict[str, Any]) -> Iterator[str]:
    """PyTorch's time over ours of linear layers, by rows of x: those with many columns and few filters, and others."""
    yield f"{found['gpu']}, PyTorch {found['torch'].split('+')[0]}: mean (least to most)"
    yield ""
    groups: dict[str, dict[int, list[float]]] = {"2048 columns or more, 1280 filters or fewer": {}, "others": {}}
    for one in found["rows"]:
        mine = groups["others" if one["c"] < 2048 or one["k"] > 1280 else next(iter(groups))]
        mine.setdefault(one["rows"], []).append(one["torch_us"] / one["ours_us"])
    yield row("rows", *groups)
    yield "|---" * (1 + len(groups)) + "|"
    for rows in sorted(set().union(*groups.values())):
        yield row(f"{rows:,}", *(f"{geometric_mean(of[rows]):.2f}x ({min(of[rows]):.2f} to {max(of[rows]):.2f})"
                                 if rows in of else "-" for of in groups.values()))  # fmt: skip


def calls(found: dict[str, Any]) -> Iterator[str]:
    """What a call costs the host: a row for each way, from the cheapest to the dearest setting."""
    of, summary = found["host"], found["summary"]
    counts = [name for name in summary if "kernel" in name]
    yield f"{found['gpu']}, driver {found['driver']}, PyTorch {found['torch'].split('+')[0]}, {of['processor']},"
    yield f"Python {of['python']}, cuda-python {of['cuda-python']}, {found['date']}, commit {found['commit'][:7]};"
    yield "microseconds, from the cheapest to the dearest setting:"
    yield ""
    yield row("", *counts)
    yield "|---" * (1 + len(counts)) + "|"
    for name in (host.OURS, host.OUT, host.BUFFERS, host.SAME, host.ALONE):
        spans = (summary[count][name] for count in counts)
        yield row(name, *(f"{least:.1f} to {most:.1f}" for least, most in spans))
    for name in (host.SAME, host.ALONE):
        yield row(f"Conv2d over {name}, at most", *(f"{summary[count][f'over {name}']:.2f}" for count in counts))
    yield ""
    if linear := summary.get("Linear"):  # of kernels_sass.torch, with bias
        spans = {name: one for name, one in linear.items() if isinstance(one, list)}
        yield row("linear layers", *spans)
        yield "|---" * (1 + len(spans)) + "|"
        yield row("microseconds", *(f"{least:.1f} to {most:.1f}" for least, most in spans.values()))
        yield ""
        yield "; ".join(f"{name}, at most {one:.2f}" for name, one in linear.items() if name not in spans) + "."
        yield ""
    yield f"Launches: {', '.join(f'{name} {us:.2f}' for name, us in summary['launch'].items())}."


def forms(found: dict[str, Any]) -> Iterator[str]:
    """What forms of a launch cost the host: of empty kernels by their parameters, and of the two kernels of a layer."""
    of = found["host"]
    yield f"{found['gpu']}, driver {found['driver']}, {of['processor']}, Python {of['python']}, cuda-python"
    yield f"{of['cuda-python']}, {found['date']}, commit {found['commit'][:7]}; microseconds:"
    yield ""
    empty: dict[str, dict[str, float]] = {}
    for name, (us, _) in found["empty kernels"].items():
        params, _, form = name.partition(": ")
        empty.setdefault(form, {})[params] = us
    params = list(dict.fromkeys(name for one in empty.values() for name in one))
    yield row("an empty kernel, parameters of", *params)
    yield "|---" * (1 + len(params)) + "|"
    for form, one in empty.items():
        yield row(form, *(f"{one[name]:.2f}" if name in one else "-" for name in params))
    yield ""
    yield row("two kernels of a layer by HGMMA, NCHW", "the host", "with the GPU")
    yield "|---|---|---|"
    for name, (us, done) in {**found["the two kernels of a layer"], **found["larger layers"]}.items():
        yield row(name, f"{us:.2f}", f"{done:.2f}")
    if single := found.get("layers of one kernel"):
        yield ""
        yield row("one kernel of a layer by HGMMA, NHWC", "the host", "with the GPU")
        yield "|---|---|---|"
        for name, (us, done) in single.items():
            yield row(name.replace(", NHWC", ""), f"{us:.2f}", f"{done:.2f}")


def drawn(found: dict[str, Any]) -> Iterator[str]:
    """What layers at random came to."""
    asked, made = found["asked"], found["summary"]
    yield f"{stamp(found)}:"
    yield f"{made['layers']} of the {asked['random']} layers of seed {asked['seed']}, {made['wrong']} wrong;"
    yield f"{made['mean']:.2f}x in the geometric mean, {made['least']:.2f}x at least;"
    yield f"below 0.95x in {made['slower']}, which is {made['slower of 100']} of 100."


def products(found: dict[str, Any]) -> Iterator[str]:
    """The fastest of ours beside cuBLAS, for each type and the sizes that `turingas bench gemm` has by itself, and the
    least over all sizes."""
    yield from _products(found, [name for name, entry in found["settings"].items() if entry["size"] in gemm.SIZES])


def every_product(found: dict[str, Any]) -> Iterator[str]:
    """The same of all sizes, and what the lesson's defaults reach."""
    kinds = list(dict.fromkeys(entry["type"] for entry in found["settings"].values()))
    yield from _products(found, sorted(found["settings"], key=lambda name: (
        kinds.index(found["settings"][name]["type"]), found["settings"][name]["size"])), True)  # fmt: skip
    yield together(found)


def together(found: dict[str, Any]) -> str:
    """What clusters of 2 gain with tiles of 192 and 256 columns: of each row with them, its speed over that without."""
    ratios = []
    for entry in found["settings"].values():
        speeds = {one["name"]: one["tflops"] for one in entry["rows"] if "tflops" in one}
        for alone in (gemm.DEFAULTS, "128 x 192", "128 x 256", "3 x FP16, 128 x 192"):
            with_them = (gemm.CLUSTERS if alone == gemm.DEFAULTS else f"{gemm.CLUSTERS}, {alone}",
                         f"{alone}, {gemm.CLUSTERS}")  # fmt: skip
            ratios += [speeds[name] / speeds[alone] for name in with_them if name in speeds and alone in speeds]
    return f"Clusters of 2 are {min(ratios):.2f} to {max(ratios):.2f} times as fast, with tiles of 192 and 256 columns."


def _products(found: dict[str, Any], names: list[str], defaults: bool = False) -> Iterator[str]:
    warm = found["asked"].get("warm", False)
    where = "the same each time, in the L2 if they fit" if warm else "read from memory and not from the L2"
    yield f"{stamp(found)}; TFLOP/s, square matrices, {where}:"
    yield ""
    itself = any("gemm" in one for one in found["summary"].values())
    yield row("", "ours", "cuBLAS", "ours over cuBLAS", *["gemm over cuBLAS"] * itself,
              *['"as it is" over cuBLAS'] * defaults, "error", "cuBLAS's")  # fmt: skip
    yield "|---" * (6 + itself + defaults) + "|"
    for name in names:
        entry = found["settings"][name]
        right = {one["name"]: one for one in entry["rows"]
                 if one["status"] == "ok" and not one["name"].startswith("nothing")}  # fmt: skip
        rival = max((one for who, one in right.items() if who.startswith("cuBLAS")), key=lambda one: one["tflops"])
        ours = max((one for who, one in right.items() if not who.startswith("cuBLAS")), key=lambda one: one["tflops"])
        size, _, kind = name.partition(" ")
        speeds = [f"{one['tflops']:.0f}" for one in (ours, rival)] + [f"{ours['tflops'] / rival['tflops']:.2f}x"]
        if itself:
            speeds.append(f"{found['summary'][name].get('gemm', math.nan):.2f}x")
        if defaults:
            lesson = right.get(gemm.DEFAULTS)
            speeds.append(f"{lesson['tflops'] / rival['tflops']:.2f}x" if lesson else "-")
        yield row(f"{kind or 'fp16'}, {size}", *speeds, *(f"{one['error']:.1e}" for one in (ours, rival)))
    yield ""
    yield f"The least over cuBLAS: {'; '.join(gemm.told(found, '{:.2f}x'))}."


def fitting(found: dict[str, Any]) -> Iterator[str]:
    """How near layers of networks come to shapes that fill their blocks, by the number of images."""
    yield f"{stamp(found)}, {found['asked']['layout']}:"
    yield ""
    yield row("images", "largest ratio", f"with more than {FEW} filters", "layers above 2",
              "of these due to a launch alone", "PyTorch's time over ours, at least", "in the mean")  # fmt: skip
    yield "|---" * 7 + "|"
    for name, one in found["summary"].items():
        if name == "model":
            continue
        n = int(name.removeprefix("N="))
        more = {layer: entry["ratio"] for layer, entry in found["settings"].items()
                if entry["problem"]["n"] == n and entry["problem"]["k"] > FEW}  # fmt: skip
        most = max(more, key=lambda layer: more[layer])
        over = (f"{x:.2f}" for x in one["over_pytorch"]) if "over_pytorch" in one else "--"
        yield row(str(n), f"{one['most']:.2f}", f"{more[most]:.2f} ({most.rpartition(' ')[0]})",
                  f"{one['above_2']} of {one['layers']}", str(one["by_launch"]), *over)  # fmt: skip


#: layers that show what small.sass and fold.sass change: those where one of them is the fastest, and few images
SHOWN = ("VGG conv3_1 N1", "VGG conv5_1 N1", "VGG conv5_1 N8", "ResNet conv2 N1", "ResNet conv4 N1", "GoogLeNet 3b N1",
         "GoogLeNet 3b N8", "SqueezeNet fire4 N1", "DenseNet 1 N1", "DenseNet 1 N8", "DenseNet 2 N1", "DenseNet 2 N8",
         "SD conv_in N1")  # fmt: skip
RECENT = re.compile("small|fold")
WINOGRAD = re.compile("winograd")
#: layers of few channels or filters
DIRECT = "VGG conv1_1", "SD conv_in", "SD conv_out", "VAE conv_out", "ESRGAN conv_last"


def costs(found: dict[str, Any]) -> Iterator[str]:
    """What kernels_sass/conv/cost.py reckons with, and how well it chooses."""
    us = found["summary"]["model"]
    names = [name.removeprefix("step of ") for name in us if name.startswith("step of ")]
    yield f"{stamp(found)}, {found['asked']['layout']}; microseconds:"
    yield ""
    yield row("", "a step", "a job, in addition to its steps", "a job behind another, besides")
    yield "|---" * 4 + "|"
    for name in sorted(names):
        numbers = (us.get(f"{what} of {name}") for what in ("step", "job", "again"))
        yield row(f"`{name}`", *("-" if one is None else f"{one:.2f}" for one in numbers))
    settings = {name: entry for name, entry in found["settings"].items() if entry.get("of")}
    off = {name: entry["ms"] / min(entry["of"].values()) for name, entry in settings.items()}
    best, worst = sum(1 for one in off.values() if one < 1.005), max(off, key=lambda name: off[name])
    yield ""
    yield (f"A launch takes {us['launch']:.2f} us, that of `add_splits` {us['second launch']:.2f} us, and each 2^20 "
           f"elements of y that it sums up {us['2^20 sums']:.2f} us.")  # fmt: skip
    yield (f"Measured times differ from this by {us['mean relative error']:.1%} on average. For {best} of {len(off)} "
           f"layers the fastest choice of those timed was chosen;")  # fmt: skip
    yield f"at worst ({worst}) it takes {off[worst]:.2f}x as long as the fastest."


def chosen(found: dict[str, Any]) -> Iterator[str]:
    """What was chosen for layers of few images, and the fastest without the kernels that are for these."""
    yield f"{stamp(found)}, {found['asked']['layout']}; microseconds:"
    yield ""
    yield row("layer", "images", "chosen", "the fastest without both", "PyTorch", "ratio")
    yield "|---" * 6 + "|"
    for name in SHOWN:
        entry = found["settings"][name]
        p, of = entry["problem"], {way: ms for way, ms in entry["of"].items() if not RECENT.search(way)}
        other = min(of, key=lambda way: of[way])
        yield row(f"{name.rpartition(' ')[0]}, {p['c']} -> {p['k']}", str(p["n"]), way_told(entry["ms"], entry["of"]),
                  way_told(of[other], of), f"{1e3 * entry['pytorch_ms']:.1f}", f"{entry['ratio']:.2f}")  # fmt: skip


def way_told(ms: float, of: dict[str, float]) -> str:
    """How many blocks of which kernel take so long, and how long."""
    splits, kernel = next(way for way, one in of.items() if one == ms).split(" x ")
    return f"{splits} x `{kernel}` {1e3 * ms:.1f}"


def direct(found: dict[str, Any]) -> Iterator[str]:
    """Layers of few channels or filters: the fastest kernels that compute by the definition, and Winograd's."""
    yield f"{stamp(found)}, {found['asked']['layout']}; microseconds:"
    yield ""
    yield row("layer", "images", "without Winograd", "Winograd's", "PyTorch")
    yield "|---" * 5 + "|"
    for layer in DIRECT:
        for n in (1, 32):
            entry = found["settings"][f"{layer} N{n}"]
            p, of = entry["problem"], entry["of"]
            theirs = {way: ms for way, ms in of.items() if WINOGRAD.search(way)}
            mine = {way: ms for way, ms in of.items() if way not in theirs}
            yield row(f"{layer}, {p['c']} -> {p['k']}", str(n), way_told(min(mine.values()), mine) if mine else "-",
                      way_told(min(theirs.values()), theirs), f"{1e3 * entry['pytorch_ms']:.1f}")  # fmt: skip


def layers(found: dict[str, Any]) -> Iterator[str]:
    """Convolutions in each precision beside the fastest of the others, by groups of layers."""
    yield f"{stamp(found)}{', warm L2' * found['asked'].get('warm', False)}:"
    yield ""
    yield row("", "layers", "ours over the fastest rival", "at least", "in NHWC alone", "TFLOP/s, at most",
              "largest error")  # fmt: skip
    yield "|---" * 7 + "|"
    for precision, groups in found["summary"].items():
        for group, what in conv.GROUPS.items():
            if group not in groups:
                continue
            every = [one for one in found["settings"].values() if one["group"] == group]
            best = [one["precisions"][precision]["best"] for one in every]
            fastest = max(one["flops"] / mine["ms"] / 1e9 for one, mine in zip(every, best))
            both, alone = groups[group], groups[f"nhwc {group}"]
            yield row(f"{precision}, {what}", str(both["layers"]), f"{both['mean']:.2f}x", f"{both['least']:.2f}x",
                      f"{alone['mean']:.2f}x", f"{fastest:.0f}", f"{max(x['error'] for x in best):.1e}")  # fmt: skip
    yield from slower(found)


def slower(found: dict[str, Any]) -> Iterator[str]:
    """The layers in which somebody else is faster, from the slowest of ours on; nothing if there is none."""
    behind = sorted(
        (one["rival"]["ms"] / one["best"]["ms"], f"{precision}, {layer}")
        for layer, entry in found["settings"].items() for precision, one in entry["precisions"].items()
        if one["best"] and one["rival"]
    )  # fmt: skip
    if told := [f"{layer} ({over:.2f}x)" for over, layer in behind if over < 0.995]:
        yield ""
        yield f"Below 1.0x: {'; '.join(told)}."


def members(schema: dict[str, Any]) -> Iterator[str]:
    """What a JSON schema describes, a line a member: its place, its type, what it is."""
    for number, one in enumerate(schema.get("oneOf", [schema])):
        yield from [""] * bool(number)
        if told := one.get("description"):
            yield from (told, "")
        yield "| member | type | |"
        yield "|---|---|---|"
        yield from (row(f"`{place}`", kind, told) for place, kind, told in _members(one, ""))


def _members(schema: dict[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    if schema.get("type") == "array":
        yield from _members(schema["items"], f"{place}[]")
    each = schema.get("additionalProperties")
    for name, one in [*schema.get("properties", {}).items(), *([("NAME", each)] if each else [])]:
        here = f"{place}.{name}" if place else name
        kinds = one.get("type", "")
        kind = " or ".join(kinds) if isinstance(kinds, list) else kinds
        words = [one.get("description", ""), f"One of {', '.join(one['enum'])}." if "enum" in one else ""]
        if schema.get("properties") and name not in schema["required"]:
            words.append("May be missing.")
        yield here, kind, " ".join(filter(None, words))
        yield from _members(one, here)


def schedules(found: dict[str, Any]) -> Iterator[str]:
    """What `python -m tests.tools.schedule_libraries` saw: of each architecture, and with which commits."""
    heads = ("", "kernels, of those drawn", "instructions", "... of the largest",
             "issue cycles relative to ptxas's: mean", "... of the worst kernel", "refused",
             "errors and warnings")  # fmt: skip
    yield row(*heads)
    yield "|---" * len(heads) + "|"
    for arch, one in found["archs"].items():
        yield row(arch, f"{one['kernels']:,} of {one['drawn']:,}", f"{one['instructions']:,}", f"{one['largest']:,}",
                  "-" if one["mean"] is None else f"{one['mean']:.3f}", f"{one['worst']:.3f}", str(one["refused"]),
                  str(sum(one["findings"].values())))  # fmt: skip
    asked = " ".join(f"--{name.replace('_', '-')} {one}" for name, value in found["asked"].items() if value
                     for one in (value if isinstance(value, list) else [value]))  # fmt: skip
    commits = (f"{count:,} with commit {commit[:7] or '?'}" for commit, count in found["commits"].items())
    yield ""
    yield f"`{asked}`, {found['date']}: {', '.join(commits)}."


def busy(found: dict[str, Any]) -> Iterator[str]:
    """The tensor pipe's share of cycles in kernels by HGMMA, by what is computed and precision."""
    yield f"{stamp(found)}:"
    yield ""
    yield row("", "settings", "main loop: mean", "least", "whole kernel: mean", "least")
    yield "|---" * 6 + "|"
    for name, one in pipe.summary(found["settings"]).items():
        label = name if name.startswith(pipe.GEMM) else f"Conv2d {name}"
        yield row(label, str(one["settings"]), *(f"{100 * one[word][what]:.1f} %" for word in ("main", "whole")
                                                 for what in ("mean", "least")))  # fmt: skip


def tuned(found: dict[str, Any]) -> Iterator[str]:
    """What `turingas bench tune` gained, by kernel, and the means."""
    heads = ("", "milliseconds", "times as fast", "candidates", "begun from", "moves")
    yield row(*heads)
    yield "|---" * len(heads) + "|"
    for name, entry in found["settings"].items():
        first, *others = entry["moves"] if entry["gained"] else ["-"]
        yield row(f"{'Triton' if name in TRITON else 'NVRTC'}: {name}", f"{entry['original']:.4f}",
                  f"{1 / entry['figure']:.3f}", str(entry["tried"]), first, str(len(others)))  # fmt: skip
    for what, one in found["summary"].items():
        text = f"{what}: mean of {one['kernels']}"
        yield row(f"**{text}**", "", f"**{one['mean']:.3f}**", "", f"{one['least']:.3f} to {one['most']:.3f}", "")
    commits = sorted({entry.get("commit", found["commit"])[:7] for entry in found["settings"].values()})
    gpus = sorted({entry.get("gpu", found["gpu"]) for entry in found["settings"].values()})
    yield ""
    yield f"Triton {found['triton']}, {' and '.join(gpus)}, {found['date']}, commit {', '.join(commits)}."


#: What a block is written by.
BLOCKS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "times": times, "speedups": speedups, "networks": whole, "linear": linears, "host": calls, "random": drawn,
    "members": members, "products": products, "every_product": every_product, "layers": layers, "typed": layers,
    "schedules": schedules,
    "pipe": busy, "tuned": tuned, "forms": forms, "fitting": fitting,
    "costs": costs, "chosen": chosen, "direct": direct,
}  # fmt: skip
DOCUMENTS = [README, *(ROOT / "docs").glob("*.md")]


def table(name: str, path: str) -> str:
    """A whole block as it should be."""
    return "\n".join(line.rstrip() for line in BLOCKS[name](json.loads((ROOT / path).read_text()))) + "\n"


def speed(path: str = ASSEMBLER) -> str:
    """The row that tells how fast code is encoded and decoded: the slowest and the fastest architecture."""
    rates = [entry["within"] for entry in json.loads((ROOT / path).read_text())["settings"].values()]
    spans = {what: sorted(round(one[what]["new lines"] / 1000) for one in rates) for what in ("encode", "decode")}
    told = (f"{span[0]} to {span[-1]} thousand {what}d" for what, span in spans.items())
    ours = f"{', '.join(told)}: [bench assembler](docs/bench-assembler.md#what-was-measured)"
    return row("instructions per second", ours, "`make bench`") + "\n"


def faults(path: str = "tests/check/faults.json") -> str:
    """The row that tells how many faults the linter finds in kernels that were broken at random."""
    found = json.loads((ROOT / path).read_text())
    told = (f"{found['reported']} of {found['faults']} faults injected into {found['kernels']} correct kernels are "
            f"reported, and {found['alarms']} of {found['harmless']} harmless changes ({found['date']})")  # fmt: skip
    command = f"python -m tests.check.faults --tests --count 500 --largest 400 --json {path} tests/cubin/data/*.cubin"
    return row("... in figures", told, f"`{command}`") + "\n"


def written(text: str) -> str:
    """A document with its blocks, and the README's rows, as they should be."""
    text = FAULTS.sub(lambda _: faults(), SPEED.sub(lambda _: speed(), text))
    return BLOCK.sub(lambda found: found[1] + table(found[2], found[3]) + found[4], text)


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(written(document.read_text()))
