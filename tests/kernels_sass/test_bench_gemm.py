"""`turingas bench gemm` without a GPU: what it prints and keeps, with a driver and products that stand for a card's."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_sass.bench import gemm
from loader.bench import measure, results
from tests.kernels_sass.card import Card, call


class Product:
    """In the place of both contenders: numpy's product, in the type of C."""

    factor = 1.0

    def __init__(self, which, data, *rest):
        if isinstance(which, bool) and not which:
            raise measure.Refused("nobody has this")
        self.data = data

    def launch(self, stream):
        a, b = (gemm.as_float(x[-1].numpy()) for x in (self.data.a, self.data.b))
        c = np.float32(self.factor) * (a @ b).astype(np.float32)
        rounded = (c.view(np.uint32) + 0x8000 >> 16).astype(np.uint16)
        c = rounded if self.data.kind == "bf16" else c.astype(self.data.c[-1].dtype)
        for one in self.data.c:
            one.copy_from(c)


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    install(Card(gpus=1, major=9, minor=0))
    for module in (measure, results):
        monkeypatch.setattr(module, "torch", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: {"sm_mhz": 1000, "watts": 300})
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(gemm, "Ours", Product)
    monkeypatch.setattr(gemm, "Cublas", Product)
    monkeypatch.setattr(gemm, "Whole", lambda data, *rest: Product(True, data))
    monkeypatch.setattr(gemm, "checked", lambda variants, device, tell: dict.fromkeys(variants, "ok"))
    return tmp_path


def test_a_run(card):
    done = call("gemm", "--size", "64", "--runs", "6", "--json", str(card / "gemm.json"))
    assert done.exit_code == 1 and "nobody has this" in done.output, done.output
    found = results.read(card / "gemm.json")
    assert list(found["settings"]) == ["64", "64 bf16", "64 tf32", "64 fp32"] == list(found["summary"])
    assert found["complete"]
    rows = {row["name"]: row for row in found["settings"]["64"]["rows"]}
    assert rows.keys() == {gemm.CUBLAS, gemm.OTHER, gemm.GEMM, *gemm.VARIANTS}
    assert rows["as it is"]["error"] < 3e-4 and rows["as it is"]["over"] > 0
    assert rows[gemm.GEMM]["error"] < 3e-4 and found["summary"]["64"]["gemm"] > 0
    assert "error" not in rows["nothing loaded"] and "ms" in rows["nothing loaded"]
    assert "over" not in rows["B in rows of N"]
    shown = call("gemm", "--show", "--json", str(card / "gemm.json"))
    assert "as it is" in shown.output and "of the fastest cuBLAS; gemm " in shown.output


def test_what_is_wrong_has_no_time(card, monkeypatch):
    monkeypatch.setattr(Product, "factor", 1.01)
    monkeypatch.setattr(gemm, "Cublas", gemm.Ours)
    found = gemm.run(gemm.Asked(sizes=(64,), variants=("as it is",), types=("fp16",), runs=6), None, lambda text: None)
    row = found["settings"]["64"]["rows"][-1]
    assert row["status"].startswith("wrong: a relative L2 error of 1.0e-02") and "ms" not in row
    assert any("as it is" in line for line in gemm.failures(found))


class Late(Product):
    """Wrong in the first copy alone."""

    def launch(self, stream):
        super().launch(stream)
        self.data.c[0].fill(0)


def test_every_copy_is_compared(card, monkeypatch):
    asked = gemm.Asked(sizes=(8,), variants=("as it is",), types=("fp16",), runs=6)
    monkeypatch.setattr(gemm, "Cublas", Late)
    found = gemm.run(asked, None, lambda text: None)["settings"]["8"]
    assert found["copies"] == 6
    rows = {row["name"]: row for row in found["rows"]}
    assert rows[gemm.CUBLAS]["status"].startswith("wrong: a relative L2 error of 1.0e+00")
    assert "ms" not in rows[gemm.CUBLAS] and "ms" in rows["as it is"] and rows["as it is"]["error"] < 3e-4


@pytest.mark.parametrize("size", [8, 64, 200, 1024])
def test_rows_of_every_tile_are_compared(card, size):
    data = gemm.Square(size, "fp16", gemm.gpu_at_hand(""), 0)
    assert (data.rows // gemm.STRIP == np.arange(-(-size // gemm.STRIP))).all() and data.rows.max() < size
    data.close()


@pytest.mark.parametrize("kind", ["fp16", "tf32", "fp32"])  # numpy has no bfloat16
def test_gemm_itself(monkeypatch, kind):
    """It is called with b in rows of K, in the type that is asked for, and its result is c."""
    random, made = np.random.default_rng(1), []
    a, b = (gemm.random_bits(random, 64, kind) for _ in range(2))
    c = np.zeros_like(a)

    def called(self, product, turned, *rest):
        made.append(turned)
        product(a, np.ascontiguousarray(b.T), c)

    monkeypatch.setattr(gemm.Called, "__init__", called)
    gemm.Whole(type("Data", (), {"kind": kind}), None, None)
    exact = gemm.as_float(a) @ gemm.as_float(b)
    assert made == [True]
    assert np.linalg.norm(gemm.as_float(c) - exact) < gemm.BOUNDS[kind] * np.linalg.norm(exact)


def test_checked(monkeypatch):
    """A process each: what does not answer, and what is wrong, is told."""
    told = []
    monkeypatch.setattr(gemm, "CHECKED", ("8", "8", "8"))
    assert gemm.checked(["128 x 64"], "cpu", told.append) == {"128 x 64": "ok"} and not told
    monkeypatch.setattr(gemm, "PATIENCE", 0.01)
    assert "hangs" in gemm.checked(["as it is"], "cpu", told.append)["as it is"] and "hangs" in told[0]


@pytest.mark.parametrize("kind", ["fp16", "bf16", "tf32", "fp32"])
def test_random_bits(kind):
    x = gemm.as_float(gemm.random_bits(np.random.default_rng(0), 64, kind))
    assert (abs(x) >= 1 / 8).all() and (abs(x) < 2).all() and abs(x.mean()) < 0.05
