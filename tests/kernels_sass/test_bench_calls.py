"""`turingas bench host` and `bench shapes --random`, on the GPU of card.py, beside a PyTorch that is none either."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import types

import numpy as np
import pytest

from docs import readme
from kernels_sass.bench import calls, host, layers
from loader.bench import contenders, measure
from loader.cuda import Buffer
from loader.reference.problem import Problem, relative_error, truth
from tests.kernels_sass.card import call
from tests.loader.driver import Driver


class Tensor:
    """A Buffer with its axes in some order."""

    dtype, requires_grad = "torch.float32", False

    def __init__(self, inner, axes=None):
        self.inner, self.nbytes, self.axes = inner, inner.nbytes, axes or tuple(range(len(inner.shape)))
        self.shape = tuple(inner.shape[axis] for axis in self.axes)

    def data_ptr(self):
        return self.inner.address

    def get_device(self):
        return self.inner.gpu.number

    def is_contiguous(self):
        return self.axes == tuple(range(len(self.axes)))

    def is_neg(self):
        return False

    is_conj = is_neg

    def new_empty(self, *shape):
        return Tensor(Buffer(shape, np.float32, self.inner.gpu))

    def untyped_storage(self):
        return types.SimpleNamespace(resize_=lambda count: self.inner.free())

    def permute(self, *axes):
        return Tensor(self.inner, tuple(self.axes[axis] for axis in axes))

    def contiguous(self, memory_format):
        return self

    def to(self, device):
        return self

    cpu = contiguous_cpu = lambda self: self

    def numpy(self):
        return self.inner.numpy().transpose(self.axes)

    def fill_(self, value):
        self.inner.copy_from(np.full(self.inner.shape, value, np.float32))

    def add_(self, other):
        return tensor(self.numpy() + other.numpy())


def tensor(array):
    return Tensor(Buffer.of(np.ascontiguousarray(array, np.float32)))


def conv2d(x, w, bias, stride, padding):
    x, w = x.numpy(), w.numpy()
    made = truth(x, w, Problem(*x.shape, w.shape[0], 3, 3, stride, padding))
    return tensor(made if bias is None else made + bias.numpy()[:, None, None])


@pytest.fixture
def torch(card, monkeypatch):
    """PyTorch, as far as it is called."""
    made = types.SimpleNamespace(
        Tensor=Tensor, float32=Tensor.dtype, channels_last=None, no_grad=contextlib.nullcontext,
        is_grad_enabled=lambda: False, empty_like=lambda like: like.new_empty(*like.shape),
        from_numpy=tensor, as_tensor=lambda buffer, device: Tensor(buffer),
        zeros=lambda size, device: tensor(np.zeros(size)),
        nn=types.SimpleNamespace(functional=types.SimpleNamespace(conv2d=conv2d)),
        backends=types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False, allow_tf32=True)),
        cuda=types.SimpleNamespace(current_stream=lambda place: types.SimpleNamespace(cuda_stream=0),
                                   ExternalStream=lambda handle, device: None, empty_cache=lambda: None),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(measure, "torch", lambda: made)
    monkeypatch.setattr(contenders, "torch", lambda: made)
    monkeypatch.setattr(measure.Data, "error", lambda self, y, layout: error(self, y, layout))
    return made


def error(data, y, layout):
    exact = truth(data.host["x"], data.host["w"], data.problem)
    return float(np.linalg.norm(y.numpy() - exact) / np.linalg.norm(exact))


# ---- bench host --------------------------------------------------------------------------------------------------


@pytest.fixture
def short(card, monkeypatch):
    """Few settings, and what is only timed does not run."""
    monkeypatch.setattr(host, "LAYOUTS", ("NHWC", "CHWN"))
    monkeypatch.setattr(host, "EPILOGUES", {"": (), "bias, residual": ("bias", "residual")})
    monkeypatch.setattr(host, "TINY", Problem(1, 9, 1, 2, 4, 3, 3, 1, 1))
    monkeypatch.setattr(host, "BLOCK", 2)
    measured = host.alternate

    def alternate(*given):
        card.run = lambda launch: None
        try:
            return measured(*given)
        finally:
            del card.run

    monkeypatch.setattr(host, "alternate", alternate)


def test_host(torch, short, tmp_path):
    path = tmp_path / "host.json"
    host.run(host.Asked(calls=8), path)
    found = json.loads(path.read_text())
    assert found["complete"] and found["what"] == "bench host" and found["commit"] == "abc" and found["mhz"]
    assert found["host"]["processor"] and found["host"]["python"].count(".") == 2 and found["asked"]["calls"] == 8
    rows = found["settings"]
    assert list(rows) == ["launch", *(f"{layout}, {kernels}{added}" for kernels in ("1 kernel", "2 kernels")
                          for layout in ("NHWC", "CHWN") for added in ("", ", bias, residual"))]  # fmt: skip
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert all(0 < row["low"][way] <= us <= row["high"][way] for row in rows.values() for way, us in row["us"].items())
    assert list(rows["launch"]["us"]) == ["launch, Buffers", "launch, PyTorch", "prepared launch, addresses",
                                          "cuLaunchKernelEx"]  # fmt: skip
    ways = [host.OURS, host.OUT, host.BUFFERS, host.SAME, host.ALONE]
    assert all(list(row["us"]) == ways for name, row in rows.items() if name != "launch")
    us = [row["us"] for name, row in rows.items() if "2 kernels" in name]
    two = found["summary"]["2 kernels"]
    assert two[host.OURS] == [min(one[host.OURS] for one in us), max(one[host.OURS] for one in us)]
    assert two[f"over {host.ALONE}"] == round(max(one[host.OURS] / one[host.ALONE] for one in us), 2)
    shown = call("host", "--show", "--json", str(path))
    assert shown.exit_code == 0 and "CHWN, 2 kernels, bias, residual" in shown.output
    assert "cuLaunchKernelEx" in shown.output and found["host"]["processor"] in " ".join(shown.output.split())


def test_host_settings():
    """By HGMMA where there is that: a kernel in NHWC, elsewhere another that packs x."""
    by_winograd = host.settings(False)
    more = {name: one for name, one in host.settings(True).items() if name not in by_winograd}
    assert len(by_winograd) == 19 and len(more) == 9 and all(one.kernel == "hgmma" for one in more.values())
    assert {one.layout: one.kernels for one in more.values()} == {"NHWC": 1, "NCHW": 2, "CHWN": 2}
    assert more["NCHW, 2 kernels, hgmma, bias"].added == ("bias",)
    linear = host.settings(True, linear=True)
    assert linear.items() - host.settings(True).items() == host.PRODUCTS.items()
    assert host.settings(False, linear=True) == by_winograd


def test_host_of_linear_layers(monkeypatch):
    """The summary, what is shown, and the documentation have them apart; without them as before."""
    def row(*us):
        return {"status": "ok", "us": dict(zip((host.LINEAR, host.FUNCTION, host.GEMM, host.MODULE, host.FUNCTIONAL),
                                               us))}  # fmt: skip

    of_conv = {"status": "ok", "us": dict.fromkeys((host.OURS, host.OUT, host.BUFFERS, host.SAME, host.ALONE), 2.0)}
    settings = {"launch": {"status": "ok", "us": {"launch, Buffers": 5.0}}, "NCHW, 2 kernels": of_conv,
                "Linear, 2 kernels": row(4, 3, 5, 8, 4), "Linear, 3 kernels": row(6, 3.5, 5, 8, 7),
                "Linear, 3 kernels, GELU": {"status": "wrong: Linear", "us": {}}}  # fmt: skip
    summary = host.summary(settings)
    assert summary["Linear"] == {
        "Linear": [4, 6], "linear": [3, 3.5], "gemm, B prepared": [5, 5], "torch.nn.Linear": [8, 8],
        "functional.linear": [4, 7], "Linear over torch.nn.Linear": 0.75, "linear over functional.linear": 0.75,
    }  # fmt: skip
    assert summary["2 kernels"][host.OURS] == [2, 2] and list(summary) == ["launch", "2 kernels", "Linear"]
    found = {"gpu": "G", "date": "D", "commit": "C", "driver": "1", "torch": "2", "settings": settings,
             "summary": summary, "host": {"processor": "P", "python": "3", "cuda-python": "13"}}  # fmt: skip
    lines = []
    monkeypatch.setattr(host.results, "console", lambda: types.SimpleNamespace(print=lines.append))
    host.show(found)
    tables = [(one.title, one.row_count) for one in lines if not isinstance(one, str)]
    assert tables == [("G, D, C; P, Python 3", 1), ("linear layers", 3)]
    assert "Linear, 3 kernels, GELU: wrong: Linear" in lines
    text = list(readme.calls(found))
    assert readme.row("microseconds", "4.0 to 6.0", "3.0 to 3.5", "5.0 to 5.0", "8.0 to 8.0", "4.0 to 7.0") in text
    assert "Linear over torch.nn.Linear, at most 0.75; linear over functional.linear, at most 0.75." in text
    del settings["Linear, 2 kernels"], settings["Linear, 3 kernels"], settings["Linear, 3 kernels, GELU"]
    found["summary"] = host.summary(settings)
    assert list(found["summary"]) == ["launch", "2 kernels"]
    assert not any("inear" in line for line in readme.calls(found))


def test_host_by_hgmma(torch, install):
    """As many kernels as the setting says."""
    driver = install(Driver(gpus=1, major=9, minor=0))
    gpu = measure.gpu_at_hand("")
    for setting in (one for one in host.settings(True).values() if one is not None and one.kernel):
        ways, outputs, exact = host.layers(setting, gpu)
        driver.launches.clear()
        y = outputs[host.OURS](ways[host.OURS]())
        assert len(driver.launches) == setting.kernels and relative_error(y, exact) < 1e-6


def test_host_calls(torch, card, monkeypatch):
    """So many kernels, and so many calls, of each way; in another order each round."""
    monkeypatch.setattr(host, "BLOCK", 3)
    card.run = lambda launch: None
    gpu = measure.gpu_at_hand("")
    for kernels in (1, 2):
        ways, outputs, _ = host.layers(host.Setting("NCHW", kernels, ("bias",)), gpu)
        assert outputs.keys() == ways.keys() - {host.ALONE}
        card.launches.clear()
        ways[host.OURS]()
        assert len(card.launches) == kernels
    order = []
    times = host.alternate({name: lambda name=name: order.append(name) for name in "abc"}, gpu, host.Asked(calls=12))
    assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abc", 4)
    rounds = ["".join(order[n : n + 9 : 3]) for n in range(0, len(order), 9)]
    assert len(rounds) == 5 and len(set(rounds)) > 1 and all(sorted(one) == list("abc") for one in rounds)


def test_host_without_pytorch_and_wrong(card, short, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "LAYOUTS", ("NCHW",))
    monkeypatch.setattr(host, "EPILOGUES", {"": ()})
    monkeypatch.setattr(host, "alternate", lambda ways, *given: {name: [1.0, 2.0] for name in ways})
    path = tmp_path / "host_sm75.json"
    done = call("host")
    assert done.exit_code == 0, done.output
    rows = json.loads(path.read_text())["settings"]
    assert list(rows["NCHW, 1 kernel"]["us"]) == [host.BUFFERS] and "launch, PyTorch" not in rows["launch"]["us"]
    assert call("host", "--show", "--json", str(path)).exit_code == 0
    right = host.truth
    monkeypatch.setattr(host, "truth", lambda x, w, p: right(x, w, p) + 1)
    done = call("host", "--calls", "200", "--json", str(path))
    assert done.exit_code == 1 and "wrong: Conv2d, Buffers, out= has a relative L2 error" in done.output


# ---- bench shapes --random ---------------------------------------------------------------------------------------


def test_layers_that_are_drawn():
    """The same of a seed, within the bounds and up to them; more than a third are small."""
    found = layers.draw(300, 1)
    assert len(found) == 300 and layers.draw(300, 1) == found != layers.draw(300, 2)
    assert list(layers.draw(100, 1)) == list(found)[:100]
    drawn = list(found.values())
    for name, (low, high), near in (("n", (1, 64), 2), ("c", (1, 515), 10), ("k", (1, 515), 10), ("h", (3, 96), 2),
                                    ("w", (3, 96), 2)):  # fmt: skip
        values = [getattr(p, name) for p in drawn]
        assert low <= min(values) <= low + near and high - near <= max(values) <= high
    assert {p.padding for p in drawn} == {0, 1} and {(p.r, p.s, p.stride) for p in drawn} == {(3, 3, 1)}


def test_summary_of_layers():
    rows = {"a": {"status": "ok", "speedup": 4.0}, "b": {"status": "ok", "speedup": 0.9}, "c": {"status": "wrong"},
            "d": {"status": "ok", "speedup": 0.95}, "e": {"status": "ok"}}  # fmt: skip
    mean = round((4 * 0.9 * 0.95) ** (1 / 3), 3)
    assert layers.summary(rows) == {"layers": 5, "wrong": 1, "mean": mean, "least": 0.9, "slower": 1,
                                    "slower of 100": 33.3}  # fmt: skip
    assert layers.summary({"c": {"status": "wrong"}}) == {"layers": 1, "wrong": 1}


class Rival(calls.Caller):
    """Has had the right result all along, or another."""

    group, layout = "torch", "NCHW"

    def __init__(self, off):
        super().__init__(f"rival {off}")
        self.off = off

    def prepare(self, data):
        self.y = data.arrays("y", "NCHW")
        self.exact = (truth(data.host["x"], data.host["w"], data.problem) + self.off).astype(np.float32)
        if self.off > 5:
            raise measure.Refused("not today\nnor tomorrow")

    def call(self, copy):
        self.y[copy].copy_from(self.exact)

    def output(self, copy):
        return self.y[copy]


def test_who_is_timed_no_longer(card, monkeypatch):
    """Rivals that fall behind, and never ours: by their best window, so that one bad window puts nobody out."""
    monkeypatch.setattr(calls, "WINDOWS", 4)
    spent = {"ours": [9] * 5, "good": [2, 1, 1, 1, 1], "near": [1, 1.4, 1.4, 1.4, 9], "slow": [1, 2, 1.4, 1.4, 1.4],
             "off": [2.9, 1.6], "far": [3.1]}  # fmt: skip
    windows = {name: iter(found) for name, found in spent.items()}
    monkeypatch.setattr(calls, "_window", lambda one, *rest: next(windows[one.name]) * calls.CALLS / 1000)
    monkeypatch.setattr(calls, "_checked", lambda one, data: 0.0)

    class Named(calls.Caller):
        def __init__(self, name):
            super().__init__(name)
            self.group = "ours" if name == "ours" else "torch"

    with measure.Data(Problem(1, 2, 3, 3, 2, 3, 3, 1, 1), measure.gpu_at_hand("")) as data:
        rows, _ = calls.compare(data, [Named(name) for name in spent])
    found = {row["name"]: (row["low"], row["us"], row["high"]) for row in rows}
    assert found["far"] == (3.1,) * 3 and found["off"] == (1.6,) * 3  # of one and of two windows the best
    assert found["ours"] == (9.0,) * 3 and found["good"] == (1.0,) * 3 and found["near"][1] == found["slow"][1] == 1.4
    assert all(next(left, None) is None for left in windows.values())  # the others were timed to the end


def test_copies_that_are_checked(card):
    """All of ours; of an algorithm of cuDNN, whose y is there, few."""
    counts = {}

    class Counted(Rival):
        def __init__(self, checked):
            super().__init__(0)
            self.name, self.checked = f"rival {checked}", checked

        def call(self, copy):
            counts.setdefault(self.checked, set()).add(copy)
            super().call(copy)

    with measure.Data(Problem(1, 2, 3, 3, 2, 3, 3, 1, 1), measure.gpu_at_hand("")) as data:
        data.copies = 5
        for checked in (2, 64):
            assert calls._checked(Counted(checked), data) < 1e-6
    assert counts == {2: {0, 1}, 64: set(range(5))}
    assert (calls.Cudnn.checked, calls.PyTorch.checked, calls.Ours.checked) == (2, *[measure.COPIES[1]] * 2)


@pytest.fixture
def small(card, monkeypatch):
    for name in ("IMAGES", "CHANNELS", "SIDES"):
        monkeypatch.setattr(layers, name, (3, 3) if name == "SIDES" else (1, 4))
    monkeypatch.setattr(calls, "WINDOWS", 2)
    monkeypatch.setattr(calls, "CALLS", 2)
    monkeypatch.setattr(calls, "rivals", lambda: [Rival(0), Rival(1), Rival(9)])


@pytest.mark.parametrize("with_torch", [False, True])
def test_random_layers(card, small, with_torch, request, tmp_path):
    if with_torch:
        request.getfixturevalue("torch")
    done = call("shapes", "--random", "3", "--seed", "5", "--layout", "NHWC")
    assert done.exit_code == 0, done.output
    path = tmp_path / "shapes_random_sm75_nhwc.json"
    found = json.loads(path.read_text())
    rows = found["settings"]
    assert list(rows) == list(layers.draw(3, 5)) and found["asked"]["seed"] == 5
    for row in rows.values():
        assert row["status"] == "ok" and row["error"] < 1e-6 and 0 < row["low"] <= row["us"] <= row["high"]
        assert row["rivals"]["rival 1"].startswith("wrong: a relative L2 error") and row["fastest"] == "rival 0"
        assert row["rivals"]["rival 9"] == "not today"
        assert row["speedup"] == float(f"{row['rivals']['rival 0'] / row['us']:.4g}")
        assert {when: one["sm_mhz"] for when, one in row["state"].items()} == dict.fromkeys(
            ("before", "during", "after"), 1000)  # fmt: skip
    assert found["summary"]["layers"] == 3 and found["summary"]["wrong"] == 0
    shown = call("shapes", "--show", "--json", str(path))
    assert shown.exit_code == 0 and f"{found['summary']['mean']:.2f}x in the geometric mean" in shown.output
    assert "3 layers, 0 wrong" in shown.output


def test_a_random_layer_that_is_wrong(card, small, monkeypatch, tmp_path):
    monkeypatch.setattr(calls.Ours, "bound", 0.0)
    done = call("shapes", "--random", "1", "--json", str(tmp_path / "a.json"))
    assert done.exit_code == 1 and "wrong: a relative L2 error" in done.output and "1 layers, 1 wrong" in done.output
    for words in (["--batch", "3"], ["--source", "paper"], ["-D", "YIELD=never"]):
        done = call("shapes", "--random", "1", *words)
        assert done.exit_code == 1 and "--random draws the images too" in done.output


def test_rivals(card):
    """Every algorithm of cuDNN in both layouts, and PyTorch; without them each says so."""
    every = calls.rivals()
    assert len(every) == len({one.name for one in every}) == 2 + 16 and {one.precision for one in every} == {"fp32"}
    with measure.Data(Problem(1, 2, 3, 3, 2, 3, 3, 1, 1), measure.gpu_at_hand("")) as data:
        rows, _ = calls.compare(data, every)
    assert {row["status"] for row in rows} == {"cuDNN is not installed", "PyTorch is not installed, or sees no GPU"}
    assert not any(math.isfinite(row.get("us", math.nan)) for row in rows)
