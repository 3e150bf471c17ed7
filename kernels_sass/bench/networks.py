"""`turingas bench networks`: whole networks, converted to our kernels, beside PyTorch's own ways to run them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import gc
import importlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernels_sass import conv
from kernels_sass.bench import candidates, options
from kernels_sass.bench.ours import dated, kept_in
from kernels_sass.bench.verdicts import ratio
from loader.bench import figures as drawing
from loader.bench import measure, results
from loader.bench.bench import RUNS, SECONDS, Bench, Option
from loader.bench.contenders import Torch, cudnn_settings
from loader.bench.measure import Data, Row, gpu_at_hand, torch
from loader.cuda import Device, Stream
from loader.workers import Workers
from turingas.errors import LaunchError

#: kernels_sass.torch.models has them
NETWORKS = ("resnet18", "resnet34", "resnet50", "wide_resnet50_2", "vgg16", "densenet121", "vit_b_16", "unet",
            "vae_decoder")  # fmt: skip
BATCHES = (1, 8, 32, 128)
LAYOUTS = ("NCHW", "NHWC")


class Who(NamedTuple):
    """How a network is run: ``compiled``: what torch.compile is told; None: it is not asked. ``untimed``: with what
    convert() does not take unasked, linear layers with few rows."""

    ours: bool = False
    compiled: dict[str, Any] | None = None
    untimed: bool = False


DEFAULT = {"mode": "default"}
#: Who takes part, those that are ready last at the end. Inductor brings convolutions into channels_last, whatever the
#: network's layout is, for which cuDNN has slower ones in float32: "layout kept" tells it not to.
WHO = {
    "eager": Who(), "ours": Who(ours=True), "ours, linear": Who(ours=True, untimed=True),
    "compile, layout kept": Who(compiled={"options": {"layout_optimization": False}}),
    "compile": Who(compiled=DEFAULT), "ours, compile": Who(ours=True, compiled=DEFAULT),
    "max-autotune": Who(compiled={"mode": candidates.MODE}),
}  # fmt: skip
#: what can be asked for: one of them, in all layouts or in one
NAMED = (*WHO, *(f"{who} {layout}" for who in WHO for layout in LAYOUTS))
BOUND = 1e-4  # relative L2 error
DISTINCT = 8  # images of what has no logits that differ: more are the same again, and float64 computes each once
CHUNK = 4  # images that go through the network in float64 at once
COLUMNS = 4 << 30  # bytes of a convolution's columns in float64, and room for one image at least
ENOUGH, LEAST = 15.0, 5  # seconds after which the rounds of a setting end, if there were so many
HANGS = 3600.0  # seconds after which a worker is taken for one that hangs
#: kinds of layers in a report of convert(): under which names a row counts those that are ours, and all
COUNTED = {"convolution": ("replaced", "convolutions"), "linear": ("linear_replaced", "linears")}
PRESENCE = "Who was measured, in which of the {} settings; N: images"
WITHOUT = "without one, `turingas bench networks --show` prints results that are kept, and --figures draws them"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for. ``width``, ``scale``: of smaller networks and pictures, None and 1 for those that
    have the name."""

    networks: tuple[str, ...] = NETWORKS
    batches: tuple[int, ...] = BATCHES
    layouts: tuple[str, ...] = LAYOUTS
    who: tuple[str, ...] = tuple(WHO)
    runs: int = measure.RUNS
    seconds: float = math.inf
    limit: float = math.inf
    seed: int = 0
    width: int | None = None
    scale: int = 1
    workers: str = ""  # "": one setting after the other, in this process

    def settings(self) -> dict[str, tuple[str, int]]:
        """A name and a batch size each: all networks with the first size, then with the next."""
        return {f"{name} N{batch}": (name, batch) for batch in self.batches for name in self.networks}


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. ``tell`` is given a line for each setting."""
    gpu = gpu_at_hand(WITHOUT)
    if torch() is None:
        raise LaunchError("PyTorch is not installed, or sees no GPU: the networks are its", WITHOUT)
    method = conv.choose(conv.arch_of(gpu)).name
    if path is None and results.plain(dataclasses.asdict(asked)) == results.plain(dataclasses.asdict(Asked())):
        path = kept_in("networks", gpu.arch, method)
    file = results.Results(path, dated("bench networks", gpu, list(conv.METHODS)), dataclasses.asdict(asked))

    def measured(_: str, what: tuple[str, int], step: Callable[[float], None]) -> results.Json:
        return setting(what[0], what[1], gpu, asked, step)

    if not asked.workers:
        return file.fill(asked.settings(), asked.seconds, tell, measured, summary, brief)

    def there(name: str, made: results.Json) -> results.Json:
        if (card := made.pop("gpu")) != gpu.name:
            raise LaunchError(f"{name} was measured on a {card}", f"all workers need a {gpu.name}, as there is here")
        return made

    with Workers(asked.workers, HANGS) as workers:
        tell(f"{workers}: settings are measured at the same time, the longest first")
        return file.spread(asked.settings(), asked.seconds, tell, workers, work, lambda what: (*what, asked), there,
                           summary, brief, took())  # fmt: skip


def took() -> dict[str, float]:
    """Seconds that settings took when the results were measured that are kept; none are kept in the beginning."""
    with contextlib.suppress(LaunchError):
        return {name: entry["seconds"] for name, entry in results.recorded("networks")["settings"].items()}
    return {}


def work(task: tuple[str, int, Asked]) -> results.Json:
    """``setting``, in a worker."""
    name, batch, asked = task
    gpu = gpu_at_hand(WITHOUT)
    return {**setting(name, batch, gpu, asked), "gpu": gpu.name}


def join(files: Sequence[Path], path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Files of this command as one, in ``path`` or where results go; a setting that several have is the last one's."""
    found = results.join([results.recorded("networks", file) for file in files])
    found["summary"] = summary(found["settings"])
    asked = Asked(tuple(found["asked"]["networks"]), tuple(found["asked"]["batches"]))
    found["complete"] = not asked.settings().keys() - found["settings"].keys()
    path = path or results.default_path("networks", found["arch"])
    results.keep(path, found)
    tell(f"written: {path}")
    return found


# ---- what goes through a network ---------------------------------------------------------------------------------


class Inputs(Data):
    """A network with random parameters and random inputs on the GPU, and what it makes of them in float64."""

    def __init__(self, name: str, batch: int, gpu: Device, asked: Asked) -> None:
        self.gpu, self.stream, self.copies = gpu, Stream(gpu), 1
        self._made, self._exact = {}, None
        self.torch, self.models = torch(), importlib.import_module("kernels_sass.torch.models")
        self.torch._dynamo.reset()  # what was compiled for other settings
        self.model = self.models.random_model(name, asked.seed, asked.width, self.place(gpu))
        self.logits = self.models.MODELS[name].classes
        several = batch if self.logits else min(batch, DISTINCT)
        found = self.models.random_inputs(name, several, asked.seed + 1, asked.scale)
        self.inputs = tuple(one.to(self.place(gpu)) for one in found)
        self._ordered: dict[str, Any] = {}
        self.exact = self._truth()
        if several < batch:
            self.exact, *inputs = (one[self.torch.arange(batch, device=one.device) % several]
                                   for one in (self.exact, *self.inputs))  # fmt: skip
            self.inputs = tuple(inputs)
        self.pool = self.torch.cuda.graph_pool_handle()
        gpu.synchronize()

    @staticmethod
    def place(gpu: Device) -> str:
        """Where networks and inputs are made."""
        return str(gpu)

    def ordered(self, layout: str) -> tuple[Any, tuple[Any, ...]]:
        """The network and its inputs in a layout."""
        if layout == "NCHW":
            return self.model, self.inputs
        if layout not in self._ordered:
            order = self.torch.channels_last
            inputs = tuple(one.contiguous(memory_format=order) if one.dim() == 4 else one for one in self.inputs)
            self._ordered[layout] = copy.deepcopy(self.model).to(memory_format=order), inputs
        found: tuple[Any, tuple[Any, ...]] = self._ordered[layout]
        return found

    def _truth(self) -> Any:
        model, parts = copy.deepcopy(self.model).double(), []
        for module in model.modules():
            if isinstance(module, self.torch.nn.Conv2d):
                module.forward = functools.partial(by_product, self.torch, module)
        with self.torch.no_grad():
            for start in range(0, self.inputs[0].shape[0], CHUNK):
                parts.append(model(*(one[start : start + CHUNK].double() for one in self.inputs)))
        return self.torch.cat(parts)

    def error(self, y: Any, layout: str) -> float:
        """The relative L2 error; NaN if y has one."""
        return float((y.double() - self.exact).norm() / self.exact.norm())

    def largest(self, y: Any) -> float:
        """The largest difference."""
        return float((y.double() - self.exact).abs().max())

    def same(self, y: Any) -> float | None:
        """Of how many images the largest logit is the same; None for what has none."""
        return float((y.argmax(1) == self.exact.argmax(1)).double().mean()) if self.logits else None

    def close(self) -> None:
        """Give all memory back."""
        self.model, self.inputs, self.exact, self._ordered = None, (), None, {}
        gc.collect()  # graphs of torch.fx go round in circles, and hold on to parameters
        super().close()


def by_product(torch: Any, layer: Any, x: Any) -> Any:
    """What a layer of torch.nn.Conv2d with one group makes of x, as a matrix product: in float64 cuBLAS has tensor
    cores, and cuDNN has not."""
    (r, s), stride, dilation, n = layer.kernel_size, layer.stride, layer.dilation, x.shape[0]
    p, q = ((size + 2 * pad - reach * (of - 1) - 1) // step + 1
            for size, of, pad, step, reach in zip(x.shape[2:], (r, s), layer.padding, stride, dilation))  # fmt: skip
    weight = layer.weight.reshape(layer.out_channels, -1)
    at_once, parts = max(1, COLUMNS // (x.element_size() * weight.shape[1] * p * q)), []
    for start in range(0, n, at_once):
        part = x[start : start + at_once]
        if (r, s) == (1, 1) and not any(layer.padding):
            columns = part[:, :, :: stride[0], :: stride[1]].flatten(2)
        else:
            columns = torch.nn.functional.unfold(part, (r, s), dilation, layer.padding, stride)
        parts.append((weight @ columns).reshape(-1, layer.out_channels, p, q))
    y = torch.cat(parts)
    return y if layer.bias is None else y + layer.bias[:, None, None]


# ---- who takes part ----------------------------------------------------------------------------------------------


def shown_as(who: str) -> str:
    """What a row's name says of one of WHO, in front of the layout."""
    return who if WHO[who].ours else f"PyTorch {who}".removesuffix(" eager")


def compiled(torch: Any, model: Any, told: Mapping[str, Any]) -> Any:
    """By torch.compile, for the strides that come. Dynamo knows a network by its code: where it has seen NCHW, it takes
    the strides of channels_last for variable ones. A converted network's code is its own, so it would not be alike."""
    return torch.compile(model, fullgraph=True, dynamic=False, **told)


class Network(Torch):
    """The whole network, by one of WHO, recorded in a CUDA graph as all are. "ready_s" of its row: seconds in which it
    was converted or compiled, recorded and checked."""

    queued = False  # its hundreds of launches would be Python's time

    def __init__(self, who: str, layout: str) -> None:
        super().__init__("fp32", layout)
        self.who, self.name, self.bound = WHO[who], f"{shown_as(who)} {layout}", BOUND
        self.group = "ours" if self.who.ours else "torch"
        self.report: Any = None
        self.checked: Row = {}

    def prepare(self, data: Data) -> None:
        assert isinstance(data, Inputs)
        self.torch, self.data, self.began, self.pool = data.torch, data, time.monotonic(), data.pool
        self.stream = self.torch.cuda.ExternalStream(data.stream.handle, device=str(data.gpu))
        model, self.inputs = data.ordered(self.layout)
        self.y = [None]
        if self.who.ours:
            converted = importlib.import_module("kernels_sass.torch").convert
            with self.torch.cuda.stream(self.stream):
                model, self.report = converted(model, self.inputs, untimed=self.who.untimed)
        options = self.who.compiled
        if options and options.get("mode") == candidates.MODE:
            candidates.compiled(candidates.layers_of(self.torch, model, self.inputs), str(data.gpu), self.until)
            options = {"options": candidates.told()}
        self.forward = model if options is None else compiled(self.torch, model, options)
        data.gpu.synchronize()

    def _convolve(self, number: int) -> None:
        with cudnn_settings(self.torch, False), self.torch.no_grad():
            self.y[number] = self.forward(*self.inputs)

    def output(self, number: int) -> Any:
        y = self.y[number]
        self.checked = {"largest": measure.finite(self.data.largest(y)), "top1": self.data.same(y),
                        "ready_s": round(time.monotonic() - self.began, 1)}  # fmt: skip
        self.torch.cuda.empty_cache()  # what PyTorch keeps for later is nobody else's
        return y

    def close(self) -> None:
        self.y, self.inputs = [], ()
        self.forward = self.data = None  # type: ignore[assignment]


def contenders(asked: Asked) -> list[Network]:
    """All that take part, each once."""
    return [Network(who, layout) for who in WHO for layout in asked.layouts
            if who in asked.who or f"{who} {layout}" in asked.who]  # fmt: skip


# ---- a network with a batch size ---------------------------------------------------------------------------------


def setting(
    name: str, batch: int, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """The results for one."""
    start, every = time.monotonic(), contenders(asked)
    with contextlib.closing(Inputs(name, batch, gpu, asked)) as data:
        given = round(time.monotonic() - start, 1)
        rows, states = measure.compare(data, every, asked.runs, asked.seed, step, ENOUGH, LEAST, asked.limit)
    for one, row in zip(every, rows):
        row |= one.checked
        if one.report is not None:
            for kind, (mine, all_of) in COUNTED.items():
                layers = [line for line in one.report.rows if line.kind == kind]
                row[mine], row[all_of] = sum(not line.why for line in layers), len(layers)
            row["filter_bytes"] = one.report.memory.get("filters", 0)
        if row["status"] == "ok":
            row["images_per_second"] = float(f"{1e3 * batch / row['ms']:.5g}")
    made = {"network": name, "batch": batch, "state": states, "seconds": round(time.monotonic() - start, 1),
            "truth_s": given, "rows": rows}  # fmt: skip
    return {**made, "verdict": verdict(rows)}


def verdict(rows: Sequence[Row]) -> results.Json:
    """The fastest of PyTorch, the fastest of ours, and how many times faster that is."""
    made: results.Json = {}
    for group in ("torch", "ours"):
        mine = [row for row in rows if row["group"] == group and row["status"] == "ok"]
        best = min(mine, key=lambda row: row["ms"], default=None)
        made[group], made[f"{group}_ms"] = best and best["name"], best and best["ms"]
    made["over_torch"] = ratio(made["torch_ms"], made["ours_ms"])
    return made


def summary(settings: results.Json) -> results.Json:
    """By setting: the fastest of ours over the fastest of PyTorch."""
    return {name: entry["verdict"]["over_torch"] for name, entry in settings.items()}


def failures(found: results.Json) -> Iterator[str]:
    """Rows of ours that have no time, and why, though PyTorch has one."""
    for name, entry in found["settings"].items():
        there = any(row["group"] == "torch" and row["status"] == "ok" for row in entry["rows"])
        for row in entry["rows"]:
            if there and row["group"] == "ours" and row["status"] != "ok":
                yield f"{name}: {row['name']}: {row['status']}"


# ---- how it is shown ---------------------------------------------------------------------------------------------


def layers_ours(row: Row) -> str:
    """How many convolutions and linear layers of ours a row has; "-" if it is PyTorch's."""
    if "replaced" not in row:
        return "-"
    linear = f", {row['linear_replaced']} of {row['linears']} linear" if row.get("linears") else ""
    return f"{row['replaced']} of {row['convolutions']}{linear}"


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    made = entry["verdict"]
    texts = [f"{made[group]} {made[f'{group}_ms']:.3f} ms" if made[group] else f"{what}: no time"
             for group, what in (("ours", "ours"), ("torch", "PyTorch"))]  # fmt: skip
    return "; ".join(texts) + (f"; {made['over_torch']:.2f}x" if made["over_torch"] else "")


def in_order(found: results.Json) -> results.Json:
    """The same, network by network and by the number of images."""
    settings = found["settings"]

    def place(name: str) -> tuple[int, int]:
        return _place(settings[name]["network"]), settings[name]["batch"]

    return {**found, "settings": {name: settings[name] for name in sorted(settings, key=place)}}


def _place(network: str) -> int:
    return NETWORKS.index(network) if network in NETWORKS else len(NETWORKS)


def missing(found: results.Json) -> Iterator[str]:
    """Sentences that say which networks and numbers of images the file does not have, and what in it has no time."""
    there = found["settings"]
    if nowhere := [name for name in Asked().settings() if name not in there]:
        yield f"Not measured: {listed(nowhere)}."
    for group in ("ours", "torch"):
        if without := [name for name, entry in there.items() if not entry["verdict"][group]]:
            yield f"No time of {'ours' if group == 'ours' else 'PyTorch'}: {listed(without)}."
    for name, entry in there.items():
        for row in entry["rows"]:
            if row["status"] != "ok":
                yield f"{name}: {row['name']} has no time ({row['status']})."


def presence(found: results.Json) -> Iterator[tuple[str, ...]]:
    """Who was measured where: each of WHO, and in each layout in which of the settings, by the shorter list."""
    took = {name: {row["name"] for row in entry["rows"]} for name, entry in in_order(found)["settings"].items()}
    for who in WHO:
        there = ([name for name in took if f"{shown_as(who)} {layout}" in took[name]] for layout in LAYOUTS)
        yield shown_as(who), *(_where(those, tuple(took)) for those in there)


def _where(those: Sequence[str], of: Sequence[str]) -> str:
    others = [name for name in of if name not in those]
    if not those or not others:
        return "all" if those else "none"
    return listed(those) if len(those) <= len(others) else f"all but {listed(others)}"


def listed(names: Sequence[str]) -> str:
    """Settings, network by network: "unet N1, N8; vgg16 N1"."""
    batches: dict[str, list[int]] = {}
    for name in names:
        network, batch = name.split(" N")
        batches.setdefault(network, []).append(int(batch))
    return "; ".join(f"{network} {', '.join(f'N{batch}' for batch in sorted(batches[network]))}"
                     for network in sorted(batches, key=_place))  # fmt: skip


def show(found: results.Json) -> None:
    """Print a table for each setting, who was measured in which and what has no time, and the speed-ups last."""
    console, found = results.console(), in_order(found)
    for name, entry in found["settings"].items():
        about = {**found, **results.facts_of(found, entry), "settings": {}}
        made = results.table(f"{name}; {drawing.stamp(about)}", "float32, TF32 off", "ms", "images/s", "error",
                             "largest difference", "top-1 equal", "layers ours")  # fmt: skip
        for row in sorted((row for row in entry["rows"] if row["status"] == "ok"), key=lambda row: row["ms"]):
            same = row.get("top1")
            made.add_row(row["name"], f"{row['ms']:.4f}", f"{row['images_per_second']:,.1f}", str(row["error"]),
                         str(row["largest"]), "-" if same is None else f"{100 * same:.0f}%", layers_ours(row))
        console.print(made)
    for name, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] == "ok" and row.get("how") != "graph":
                console.print(f"{name}: {row['name']} is not recorded: {row.get('not recorded')}", markup=False)
    made = results.table(PRESENCE.format(len(found["settings"])), "", *LAYOUTS, left=LAYOUTS)
    for cells in presence(found):
        made.add_row(*cells)
    console.print(made)
    for text in missing(found):
        console.print(text, soft_wrap=True, markup=False)
    made = results.table("The fastest of ours and of PyTorch", "", "ours", "ms", "PyTorch", "ms",
                         "PyTorch's time over ours", left=("ours", "PyTorch"))  # fmt: skip
    for name, entry in found["settings"].items():
        one = entry["verdict"]
        pairs = ((one[group] or "-", f"{one[f'{group}_ms']:.3f}" if one[group] else "-") for group in ("ours", "torch"))
        made.add_row(name, *itertools.chain(*pairs), f"{one['over_torch']:.2f}x" if one["over_torch"] else "-")
    console.print(made)


def figures(found: results.Json) -> drawing.Figures:
    """The fastest of ours over the fastest of PyTorch, by network and batch size."""
    return drawing.named("networks", found, {"over_torch": lambda: bars(found)})


def bars(found: results.Json) -> Any:
    """Groups of bars: a network each, a bar a batch size. None without times."""
    found = in_order(found)
    ratios = {(one["network"], one["batch"]): one["verdict"]["over_torch"] for one in found["settings"].values()}
    networks, batches = dict.fromkeys(name for name, _ in ratios), sorted({batch for _, batch in ratios})
    if not any(ratios.values()):
        return None
    figure, axes = drawing.canvas(found, "Whole networks: images a second over the fastest of PyTorch in float32",
                                  2.5 + 1.2 * len(networks), 4.5)  # fmt: skip
    drawing.bars(axes, list(networks), {f"batch {batch}": [ratios.get((name, batch)) for name in networks]
                                        for batch in batches})  # fmt: skip
    axes.axhline(1, color="#333333", linewidth=0.8)
    axes.set_ylabel("times as many")
    drawing.legend(figure)
    return figure


BENCH = Bench(
    "networks", "Whole networks, converted, beside PyTorch's own ways.",
    """Networks with random weights in float32, TF32 off: PyTorch eager, channels_last, torch.compile and max-autotune,
    and what kernels_sass.torch.convert makes of them; each recorded as a CUDA graph.

    Outputs are compared with float64 before anything is timed; all take turns in one process. Exit code 1: a
    converted network has no time, because it is wrong or was refused.

    \b
      turingas bench networks
      turingas bench networks --network vgg16 --batch 8 --figures figures
      turingas bench networks --workers gpus --seconds 200 --json new.json
      turingas bench networks --join old.json --join new.json
    """,
    (
        Option("--network", "networks", f"{', '.join(NETWORKS)}. [default: all]", (*NETWORKS, "all"), True, "NAME",
               every=NETWORKS),
        options.saying(options.BATCH, "Images. [default: 1,8,32,128]"),
        Option("--layout", "layouts", "NCHW or NHWC, which is PyTorch's channels_last. [default: both]", LAYOUTS, True,
               "LAYOUT"),
        Option("--who", "who", f"{'; '.join(WHO)}; or one of these in one layout, such as \"compile NHWC\". "
               "[default: all]", NAMED, True, "WHO"),
        RUNS, SECONDS,
        Option("--limit", "limit", "Seconds in which the contenders of a setting must be ready; those that are not are "
               "left out. [default: any]", float, metavar="N"),
        Option("--workers", "workers", "Measure several settings at the same time: a process for each GPU, or a Dask "
               "cluster. [default: one after the other]", str, metavar="gpus|N|tcp://..."),
        Option("--join", "join", "Measure nothing: put results of several runs into one file; of settings that several "
               "have, the last file's are taken.", Path, True, "FILE"),
    ),
    lambda given, path, tell: join(given["join"], path, tell) if "join" in given else run(Asked(**given), path, tell),
    show, failures, figures,
)  # fmt: skip
