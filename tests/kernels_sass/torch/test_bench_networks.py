"""`turingas bench networks` with a GPU that is none: PyTorch is real, but for what is CUDA's in it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import time
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from kernels_sass.bench import candidates, networks  # noqa: E402
from kernels_sass.torch import operator  # noqa: E402
from kernels_sass.torch.models import MODELS, random_inputs, random_model  # noqa: E402
from loader.bench import contenders, measure, results  # noqa: E402
from tests.bench import networks as several  # noqa: E402
from tests.kernels_sass import standin_torch  # noqa: E402
from tests.kernels_sass.card import call  # noqa: E402
from tests.kernels_sass.conftest import card, install  # noqa: E402, F401


@pytest.fixture
def small(card, monkeypatch):  # noqa: F811
    """Small networks, on the host; the modes in which some were compiled, which are run as they are."""
    modes = []

    def compile(model, fullgraph, dynamic, **more):
        assert fullgraph and dynamic is False
        modes.append(more.get("mode", more))
        return model

    made = types.ModuleType("torch_on_the_host")
    made.__dict__.update(torch.__dict__ | {"cuda": standin_torch.cuda, "backends": standin_torch.backends,
                                           "compile": compile, "__version__": "0.0"})  # fmt: skip
    for module in (measure, contenders, results, networks):
        monkeypatch.setattr(module, "torch", lambda: made)
    monkeypatch.setattr(networks.Inputs, "place", staticmethod(lambda gpu: "cpu"))
    monkeypatch.setattr(networks, "Asked", functools.partial(networks.Asked, width=8, scale=7))
    real = networks.Network._convolve

    def kept(self, number):
        real(self, number)
        self.y[number] = standin_torch.kept(self.y[number])

    monkeypatch.setattr(networks.Network, "_convolve", kept)
    monkeypatch.setattr(candidates, "compiled", lambda layers, device, until: modes.append(len(layers)))
    return modes


WORDS = ["networks", "--network", "resnet18", "--batch", "2", "--runs", "20"]


def test_networks(small, tmp_path):
    path = tmp_path / "found.json"
    done = call(*WORDS, "--json", str(path), "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["what"] == "bench networks" and found["complete"] and list(found["settings"]) == ["resnet18 N2"]
    entry = found["settings"]["resnet18 N2"]
    rows = {row["name"]: row for row in entry["rows"]}
    assert list(rows) == [f"{name} {layout}" for name in
                          ("PyTorch", "ours", "ours, linear", "PyTorch compile, layout kept", "PyTorch compile",
                           "ours, compile", "PyTorch max-autotune") for layout in ("NCHW", "NHWC")]  # fmt: skip
    kept, best = {"options": {"layout_optimization": False}}, [11 + 1, {"options": candidates.told()}]
    assert small == [kept, kept, *["default"] * 4, *best, *best]
    for name, row in rows.items():
        assert row["status"] == "ok" and row["how"] == "graph" and row["error"] < 1e-5 and row["top1"] == 1, row
        assert row["images_per_second"] == pytest.approx(2e3 / row["ms"], rel=1e-3) and row["largest"] < 1e-4
        assert (row.get("replaced"), row.get("convolutions")) == ((20, 20) if "ours" in name else (None, None))
        linear = "linear" in name, 1
        assert (row.get("linear_replaced"), row.get("linears")) == (linear if "ours" in name else (None, None))
    made = entry["verdict"]
    best = {group: min(row["ms"] for row in rows.values() if row["group"] == group) for group in ("torch", "ours")}
    assert made["over_torch"] == found["summary"]["resnet18 N2"]
    assert made["over_torch"] == pytest.approx(best["torch"] / best["ours"], abs=6e-4)
    assert "20 of 20" in done.output and "100%" in done.output
    assert (tmp_path / "figures" / "networks_sm75_over_torch.svg").read_bytes().startswith(b"<?xml")
    shown = call("networks", "--show", "--json", str(path))
    (fastest,) = [line.split() for line in shown.output.splitlines() if line.startswith("  resnet18 N2")]
    assert shown.exit_code == 0 and fastest == ["resnet18", "N2", *made["ours"].split(), f"{made['ours_ms']:.3f}",
                                                *made["torch"].split(), f"{made['torch_ms']:.3f}",
                                                f"{made['over_torch']:.2f}x"]  # fmt: skip


def test_what_is_no_picture(small, tmp_path, monkeypatch):
    """Latents and a text; nothing is a logit."""
    monkeypatch.setattr(networks, "Asked", functools.partial(networks.Asked, width=32, scale=8))
    path = tmp_path / "found.json"
    done = call("networks", "--network", "unet", "--batch", "1", "--who", "eager", "--who", "ours", "--runs", "20",
                "--json", str(path))  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = json.loads(path.read_text())["settings"]["unet N1"]["rows"]
    assert len(rows) == 4 and all(row["top1"] is None and row["error"] < 1e-5 for row in rows)
    assert [row.get("replaced") for row in rows] == [None, None, 98, 98]


def test_images_of_what_has_no_logits(small, tmp_path, monkeypatch):
    """Some are the same again: float64 computes each once, and all outputs are compared."""
    monkeypatch.setattr(networks, "Asked", functools.partial(networks.Asked, width=32, scale=8))
    monkeypatch.setattr(networks, "DISTINCT", 2)
    monkeypatch.setattr(networks, "CHUNK", 1)
    real, by_float64, made = networks.by_product, [], []

    def counted(library, layer, x):
        by_float64.append(x.shape[0])
        return real(library, layer, x)

    class Kept(networks.Inputs):
        def close(self):
            made.append(self)
            measure.Data.close(self)

    monkeypatch.setattr(networks, "by_product", counted)
    monkeypatch.setattr(networks, "Inputs", Kept)
    path = tmp_path / "found.json"
    words = ["--network", "vae_decoder", "--batch", "5", "--who", "eager NCHW", "--who", "ours NCHW", "--runs", "20"]
    done = call("networks", *words, "--json", str(path))
    assert done.exit_code == 0, done.output
    assert by_float64 == [1] * 2 * 40
    (x,), exact = made[0].inputs, made[0].exact
    assert x.shape[0] == exact.shape[0] == 5 and not torch.equal(x[0], x[1])
    for number in range(5):
        assert torch.equal(x[number], x[number % 2]) and torch.equal(exact[number], exact[number % 2])
    rows = json.loads(path.read_text())["settings"]["vae_decoder N5"]["rows"]
    assert all(row["status"] == "ok" and row["error"] < 1e-5 for row in rows)
    off = exact.clone()
    off[4] += 1  # the last image, which is none of the first two
    assert made[0].error(off, "NCHW") > networks.BOUND


def test_who_is_not_ready_in_time(small, tmp_path, monkeypatch):
    """Is left out, whatever it takes exceptions for; so are those behind it, and the others are measured."""
    real, begun = networks.Network.prepare, []

    def prepare(self, data):
        begun.append(self.name)
        real(self, data)
        while self.name == "PyTorch compile NCHW":
            with contextlib.suppress(Exception):
                time.sleep(60)

    monkeypatch.setattr(networks.Network, "prepare", prepare)
    path = tmp_path / "found.json"
    start = time.monotonic()
    done = call(*WORDS, "--who", "eager", "--who", "ours NCHW", "--who", "compile", "--limit", "5", "--json", str(path))
    assert done.exit_code == 0 and time.monotonic() - start < 50, done.output
    found = json.loads(path.read_text())
    assert found["complete"] and "limit" not in found["asked"]
    why = "not ready 5 s after the first began"
    told = {row["name"]: row["status"] for row in found["settings"]["resnet18 N2"]["rows"]}
    assert told == {"PyTorch NCHW": "ok", "PyTorch NHWC": "ok", "ours NCHW": "ok", "PyTorch compile NCHW": why,
                    "PyTorch compile NHWC": why}  # fmt: skip
    assert begun == list(told)[:-1] and f"PyTorch compile NHWC has no time ({why})" in done.output


def test_what_cannot_be_recorded_has_no_time(small, tmp_path, monkeypatch):
    """Launch by launch Python would be timed; the others are measured."""
    real = networks.Network.record

    def record(self, data):
        if self.name == "ours, compile NHWC":
            raise RuntimeError("no room for a graph\nand more")
        return real(self, data)

    monkeypatch.setattr(networks.Network, "record", record)
    path = tmp_path / "found.json"
    done = call(*WORDS, "--who", "eager NCHW", "--who", "ours, compile NHWC", "--json", str(path))
    told = {row["name"]: row["status"] for row in json.loads(path.read_text())["settings"]["resnet18 N2"]["rows"]}
    assert told == {"PyTorch NCHW": "ok", "ours, compile NHWC": "not recorded in a graph: no room for a graph"}
    assert done.exit_code == 1 and "no room for a graph" in done.output


def test_graphs_share_their_memory(small, tmp_path, monkeypatch):
    """All of a setting, and none of two settings: they are replayed one after the other."""
    real, pools = standin_torch.graph, []

    def graph(graph, pool, **more):
        pools.append(pool)
        return real(graph, **more)

    monkeypatch.setattr(standin_torch.cuda, "graph", graph)
    done = call(*WORDS[:3], "--batch", "1,2", "--who", "eager", "--who", "ours NCHW", "--runs", "20", "--json",
                str(tmp_path / "found.json"))  # fmt: skip
    assert done.exit_code == 0, done.output
    assert pools[0] is not None and pools == [pools[0]] * 3 + [pools[3]] * 3 and pools[0] is not pools[3]


def test_the_longest_settings_are_begun_first(small, tmp_path, monkeypatch):
    """By what they took before; those of which nothing is known before those, and none that would end too late."""
    monkeypatch.setattr(networks, "took", lambda: {"resnet18 N1": 5.0, "resnet18 N2": 7.0, "resnet18 N4": 4000.0})
    path = tmp_path / "found.json"
    words = [*WORDS[:3], "--batch", "1,2,3,4", "--who", "eager NCHW", "--runs", "20", "--workers", "here"]
    done = call(*words, "--seconds", "3000", "--json", str(path))
    found = json.loads(path.read_text())
    assert list(found["settings"]) == [f"resnet18 N{batch}" for batch in (3, 2, 1)] and not found["complete"]
    assert "1 setting is left" in done.output
    assert call(*words, "--json", str(path)).exit_code == 0
    found = json.loads(path.read_text())
    assert list(found["settings"])[-1] == "resnet18 N4" and found["complete"]


def test_a_plan_for_several_gpus(small, tmp_path, monkeypatch):
    """Each setting is taken by one, the longest first, and none that would not end in time; files can be joined."""
    every = several.plan()
    assert set(every) == {f"{name} N{batch}" for name in MODELS for batch in networks.BATCHES} - set(several.LEFT_OUT)
    assert list(every)[0] == "unet N128" and every["unet N128"].who == ("eager NCHW", "ours NCHW")
    again = several.plan(several.COMPILED)[several.COMPILED]
    assert (again.networks, again.batches, len(again.who)) == (("unet",), (128,), 3)
    assert all(several.expected(name) > 0 for name in every)
    tuned = several.plan("unet N32,resnet18 N8 autotuned")
    assert [(name, "max-autotune NHWC" in one.who) for name, one in tuned.items()] == [
        ("unet N32", False), ("resnet18 N8 autotuned", True)]  # fmt: skip
    assert several.expected("resnet18 N8 autotuned") == several.expected("resnet18 N8") + several.TUNING
    monkeypatch.setattr(several, "ESTIMATED", {"resnet18 N1": 1.0, "resnet18 N2": 20.0, "resnet18 N3": 4000.0})
    monkeypatch.setattr(several, "WHO", ("eager NCHW", "ours NCHW"))
    monkeypatch.setattr(several, "Asked", networks.Asked)
    folder, claims = tmp_path / "out", tmp_path / "claims"
    claims.mkdir()
    (claims / "resnet18_N1").mkdir()  # somebody else's
    assert several.main(folder, claims, 3000.0, "resnet18 N1,resnet18 N2,resnet18 N3") == 0
    assert [path.name for path in folder.iterdir()] == ["networks_resnet18_N2.json"]
    assert several.main(folder, claims, 5000.0, "resnet18 N2,resnet18 N3") == 0
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"networks_resnet18_N{batch}.json" for batch in (2, 3)]
    done = call("networks", *(word for path in files for word in ("--join", str(path))), "--json",
                str(tmp_path / "all.json"))  # fmt: skip
    assert done.exit_code == 0 and "resnet18 N3" in json.loads((tmp_path / "all.json").read_text())["settings"]
    monkeypatch.setattr(networks, "setting", lambda *of: fails())
    assert several.main(folder, claims, 100.0, "resnet18 N4") == 1


def fails():
    raise RuntimeError("out of memory")


def test_what_settings_took():
    """The file that comes with the package says it."""
    assert networks.took()["resnet18 N8"] > 0


def test_what_torch_compile_is_told():
    """PyTorch's own refuses options that it does not know."""
    for who in networks.WHO.values():
        if who.compiled:
            assert callable(torch.compile(torch.nn.Identity(), fullgraph=True, **who.compiled))
    with pytest.raises(RuntimeError):
        torch.compile(torch.nn.Identity(), options={"layout_optimisation": False})


def test_candidates_are_compiled_by_threads(monkeypatch):
    """Also where Inductor has processes to compile in; all that the mode says is asked for."""
    from torch._inductor import async_compile, config, list_mode_options

    monkeypatch.setattr(async_compile.AsyncCompile, "_ready_future", types.SimpleNamespace(done=lambda: True))
    with config.patch(compile_threads=4):
        assert async_compile.AsyncCompile.use_process_pool()
        with config.patch(candidates.told()):
            assert config.max_autotune and not async_compile.AsyncCompile.use_process_pool()
    assert list_mode_options(candidates.MODE).items() < candidates.told().items()
    assert callable(torch.compile(torch.nn.Identity(), options=candidates.told()))


def test_torch_compile_knows_all_strides():
    """Those of channels_last, too, where it has compiled the same network in NCHW."""
    seen = []

    def backend(graph, inputs):
        seen.append([one for one in inputs if not isinstance(one, torch.Tensor)])
        return graph

    model, (x,) = random_model("resnet18", 0, 8), random_inputs("resnet18", 1, 0, 7)
    torch._dynamo.reset()
    with torch.no_grad():
        for order in (torch.contiguous_format, torch.channels_last):
            one = copy.deepcopy(model).to(memory_format=order)
            networks.compiled(torch, one, networks.DEFAULT | {"backend": backend})(x.contiguous(memory_format=order))
    assert seen == [[], []]


def test_a_wrong_kernel_has_no_time(small, tmp_path, monkeypatch):
    """Once it is converted: what comes out of the graph is compared again."""
    real, calls = operator.by_torch, []

    def off(x, *more, **options):
        calls.append(x)
        return real(x, *more, **options) * (1 if len(calls) <= 20 else 1.01)  # right while convert compares

    monkeypatch.setattr(operator, "by_torch", off)
    path = tmp_path / "found.json"
    done = call(*WORDS, "--layout", "NCHW", "--who", "eager", "--who", "ours", "--json", str(path))
    assert done.exit_code == 1, done.output
    rows = json.loads(path.read_text())["settings"]["resnet18 N2"]["rows"]
    assert rows[1]["status"].startswith("wrong: a relative L2 error of ") and rows[0]["status"] == "ok"
    assert "resnet18 N2: ours NCHW has no time (wrong: a relative" in done.output


def test_who_in_one_layout(small, tmp_path):
    """Each takes part once, and a row says how long it took until it could be timed."""
    path = tmp_path / "found.json"
    words = ["--who", "eager", "--who", "compile NHWC", "--who", "eager NCHW", "--who", "ours NHWC"]
    done = call(*WORDS, *words, "--json", str(path))
    assert done.exit_code == 0 and small == ["default"], done.output
    rows = json.loads(path.read_text())["settings"]["resnet18 N2"]["rows"]
    assert [row["name"] for row in rows] == ["PyTorch NCHW", "PyTorch NHWC", "ours NHWC", "PyTorch compile NHWC"]
    assert all(0 <= row["ready_s"] < 60 for row in rows)


def test_workers_and_more_images_than_a_chunk(small, tmp_path):
    """The same file, but for the times; all images are compared, though few go through float64 at once."""
    words = [*WORDS[:3], "--batch", "9,2", "--layout", "NCHW", "--who", "eager", "--who", "ours", "--runs", "20"]
    files = tmp_path / "one.json", tmp_path / "other.json"
    for path, more in zip(files, ([], ["--workers", "here"])):
        done = call(*words, *more, "--json", str(path))
        assert done.exit_code == 0 and ("at the same time" in done.output) == bool(more), done.output
    found = [json.loads(path.read_text()) for path in files]
    assert [list(one["settings"]) for one in found] == [["resnet18 N9", "resnet18 N2"]] * 2
    errors = [[(row["name"], row["error"]) for entry in one["settings"].values() for row in entry["rows"]]
              for one in found]  # fmt: skip
    assert errors[0] == errors[1] and found[0]["complete"] and found[1]["complete"]
    assert call(*words, "--workers", "some").exit_code == 1


def test_a_worker_with_another_card(small, tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "work", lambda task: {"gpu": "Another"})
    done = call(*WORDS, "--json", str(tmp_path / "one.json"), "--workers", "here")
    assert done.exit_code == 1 and "resnet18 N2 was measured on a Another" in done.output


@pytest.mark.parametrize("columns", [1 << 30, 1])  # all images at once, or one after the other
@pytest.mark.parametrize("size, stride, padding, dilation", [(1, 1, 0, 1), (1, 2, 0, 1), (1, 1, 1, 1), (3, 2, 1, 1),
                                                             ((5, 2), (1, 3), (2, 0), (2, 1))])  # fmt: skip
def test_convolutions_of_the_truth(size, stride, padding, dilation, columns, monkeypatch):
    """As products they are what PyTorch's are."""
    monkeypatch.setattr(networks, "COLUMNS", columns)
    for bias in (True, False):
        layer = torch.nn.Conv2d(3, 5, size, stride, padding, dilation, bias=bias).double()
        x = torch.randn(3, 3, 12, 11, dtype=torch.float64)
        torch.testing.assert_close(networks.by_product(torch, layer, x), layer(x), rtol=1e-13, atol=1e-13)


def test_names():
    assert tuple(MODELS) == networks.NETWORKS
    assert list(networks.Asked(("a", "b"), (8, 1)).settings()) == ["a N8", "b N8", "a N1", "b N1"]
    assert list(networks.Asked(batches=(1,)).settings()) == [f"{name} N1" for name in networks.NETWORKS]


def test_candidates(monkeypatch):
    """Each different layer once, as it is called; those that cannot be compiled alone are left out."""
    two = (torch.nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
    model = torch.nn.Sequential(*two, torch.nn.Flatten(), torch.nn.Linear(64, 8)).eval()
    x = torch.randn(2, 4, 4, 4).contiguous(memory_format=torch.channels_last)
    found = candidates.layers_of(torch, model, (x,))
    way = (3, 3), (1, 1), (1, 1), (1, 1), 1, False
    assert found == [candidates.Layer("Conv2d", (4, 4, *way), (2, 4, 4, 4), True),
                     candidates.Layer("Linear", (64, 8, True), (2, 64), False)]  # fmt: skip
    done = []
    monkeypatch.setattr(candidates, "ProcessPoolExecutor", functools.partial(Here, done))
    monkeypatch.setenv(candidates.TRITON, "here")
    candidates.compiled(found, "cuda:0")
    assert [(function, layer) for function, layer, *_ in done] == [(candidates.alone, layer) for layer in found]
    assert all(device == "cuda:0" and threads >= 2 and until == math.inf for _, _, device, threads, until in done)


def test_candidates_that_take_too_long(monkeypatch):
    """Their processes end, and so does the wait for them."""
    monkeypatch.setenv(candidates.THREADS, "2")
    layers = [candidates.Layer("Conv2d", (4, 4, (3, 3), (1, 1), (1, 1), (1, 1), 1, False), (1, 4, 4, 4), False)] * 3
    start = time.monotonic()
    candidates.compiled(layers, "cpu", time.time() - 1)
    assert time.monotonic() - start < 30


class Here:
    """In the place of processes: what they would be given."""

    def __init__(self, done, several, context):
        self.done = done
        assert several >= 1 and context.get_start_method() == "spawn"

    def __enter__(self):
        return self

    def __exit__(self, *what):
        pass

    def submit(self, *what):
        self.done.append(what)
        return types.SimpleNamespace(exception=lambda: RuntimeError("cannot be compiled"))
