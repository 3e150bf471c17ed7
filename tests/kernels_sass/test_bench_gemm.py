"""`turingas bench gemm` without a GPU: what it prints and keeps, with a driver and products that stand for a card's."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from docs import readme
from kernels_sass import gemm_kernels, gemm_plan
from kernels_sass.bench import gemm
from kernels_sass.bench.vary import REFUSED
from kernels_sass.conv.method import with_included
from kernels_sass.conv.parameters import read
from loader.bench import measure, results
from tests.kernels_sass.card import Card, call

OURS = gemm.Ours


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
    assert found["settings"]["64"]["state"].keys() == {"before", "during", "after"}


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


def test_a_warm_run(card, monkeypatch):
    """Each launch takes the same matrices, of which there is one of a kind; all that is written is compared."""
    data = gemm.Square(64, "fp16", gemm.gpu_at_hand(""), 0, warm=True)
    for each in (data.a, data.b, data.bt, data.c):
        assert len(each) == data.copies == gemm.WARM and len(set(map(id, each))) == data.different == 1
    assert len({one.address for one in (data.a[0], data.b[0], data.bt[0], data.c[0])}) == 4
    data.poison()
    assert np.isnan(data.error())
    Product(True, data).launch(None)
    assert data.error() < gemm.BOUNDS["fp16"]
    data.close()
    words = "gemm", "--size", "64", "--runs", "6", "--type", "fp16", "--json", str(card / "gemm.json")
    monkeypatch.setattr(gemm, "Cublas", lambda turned, data, *rest: Product(True, data))
    done = call(*words, "--warm")
    found = results.read(card / "gemm.json")
    assert done.exit_code == 0 and "warm L2: fp16" in done.output and found["asked"]["warm"], done.output
    assert found["settings"]["64"]["copies"] == gemm.WARM
    assert call(*words).exit_code == 0 and not results.read(card / "gemm.json")["asked"]["warm"]


@pytest.mark.parametrize(("kind", "tiling"), [("fp16", "128 x 64"), ("fp32", "3 x FP16, 128 x 64, 8 stages")])
def test_ours_in_a_warm_run(card, monkeypatch, kind, tiling):
    """So many launches of one kernel; of fp32 two, whose parts of A and B lie at the same place each time."""
    monkeypatch.setattr(gemm, "WARM", 3)
    with contextlib.ExitStack() as stack:
        data = gemm.Square(64, kind, gemm.gpu_at_hand(""), 0, warm=True)
        stack.callback(data.close)
        ours = OURS(gemm.VARIANTS[tiling] if kind == "fp16" else gemm.TYPED[kind][tiling], data, stack)
        data.poison()
        ours.launch(data.stream)
        data.stream.synchronize()
        assert data.error() < gemm.BOUNDS[kind]
        several = 1 + (kind == "fp32")
        assert len(ours.launches) == 3 * several and ours.launches[:several] == ours.launches[several : 2 * several]


def test_where_results_go(card, monkeypatch):
    """Of all that is asked for by itself, warm or not; anything else goes nowhere."""
    paths = []
    monkeypatch.setattr(results, "Results", lambda path, *rest: paths.append(path) or pytest.fail("enough"))
    for asked in (gemm.Asked(), gemm.Asked(warm=True), gemm.Asked(seconds=9), gemm.Asked(sizes=(1280,), warm=True)):
        with pytest.raises(pytest.fail.Exception, match="enough"):
            gemm.run(asked, None, print)
    names = [path and path.name for path in paths]
    assert names == ["gemm_sm90.json", "gemm_sm90_warm.json", "gemm_sm90.json", None]


def test_sizes_between():
    """All that are asked for, also where the types that stop at 8192 have none of them."""
    assert [*gemm.Asked(sizes=(1280, 10240), types=("fp16", "tf32")).settings()] == ["1280", "10240", "1280 tf32"]
    assert [*gemm.Asked(sizes=(10240, 12288), types=("bf16",)).settings()] == ["10240 bf16"]


def test_sizes_are_joined(card, monkeypatch):
    """Other sizes become settings of the same file, shown in a table of their own, and count for the least ratio."""
    monkeypatch.setattr(gemm, "SIZES", (64,))
    monkeypatch.setattr(gemm, "Cublas", lambda turned, data, *rest: Product(True, data))
    parts, words = [card / f"{number}.json" for number in range(3)], ("--runs", "6", "--type", "fp16", "--type", "tf32")
    for sizes, part, more in zip(("64", "80,72", "72"), parts, ((), (), ("--warm",))):
        assert call("gemm", "--size", sizes, *words, *more, "--json", str(part)).exit_code == 0
    old = results.read(parts[0])
    del old["asked"]["warm"]  # as files were before there was --warm
    results.keep(parts[0], old)
    joined = [one for part in parts[:2] for one in ("--join", str(part))]
    done = call("gemm", *joined, "--json", str(card / "all.json"))
    found = results.read(card / "all.json")
    assert done.exit_code == 0 and found["complete"], done.output
    assert list(found["settings"]) == ["64", "80", "72", "64 tf32", "80 tf32", "72 tf32"] == list(found["summary"])
    heads = [line.split() for line in done.output.splitlines() if line.split() and set(line) <= set(" 0123456789")]
    assert heads == [["64"], ["72", "80"]] * 2
    assert f"at least, of the fastest cuBLAS: {next(gemm.told(found))}" in done.output
    warm = call("gemm", "--join", str(parts[0]), "--join", str(parts[2]), "--json", str(card / "all.json"))
    assert warm.exit_code == 1 and "warm is True in one run and False in another" in warm.output
    few, every = list(readme.products(found)), list(readme.every_product(found))
    assert [line[2:].split(" |")[0] for line in few[4:-2]] == ["fp16, 64", "tf32, 64"]
    assert [line[2:].split(" |")[0] for line in every[4:-3]] == [
        f"{kind}, {size}" for kind in ("fp16", "tf32") for size in (64, 72, 80)]  # fmt: skip
    assert few[-1] == every[-2] and "fp16, 3 sizes: ours" in few[-1]
    assert every[-1].startswith("Clusters of 2 are ")


def test_the_least():
    """Over all sizes of a type, of the fastest and of gemm; what has no gemm counts for the fastest alone."""
    settings = {"1024": {"size": 1024}, "1280": {"size": 1280}, "1024 bf16": {"size": 1024, "type": "bf16"}}
    told = {"1024": {"over": 1.2, "gemm": 0.9}, "1280": {"over": 0.95}, "1024 bf16": {"over": 1.1, "gemm": 1.1}}
    found = {"settings": settings, "summary": told}
    assert gemm.least(found)["fp16"] == {"over": (0.95, 1280), "gemm": (0.9, 1024)}
    assert list(gemm.told(found)) == ["fp16, 2 sizes: ours 95.0% at 1280, gemm 90.0% at 1024",
                                      "bf16, 1 size: ours 110.0% at 1024, gemm 110.0% at 1024"]  # fmt: skip


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
    small, own = (gemm.VARIANTS[name] for name in ("128 x 64", "as it is"))
    assert gemm.checked({small: "128 x 64"}, "cpu", told.append) == {small: "ok"} and not told
    monkeypatch.setattr(gemm, "PATIENCE", 0.01)
    assert "hangs" in gemm.checked({own: "as it is"}, "cpu", told.append)[own] and told[0].startswith("as it is: hangs")


@pytest.mark.parametrize("kind", ["fp16", "bf16", "tf32", "fp32"])
def test_random_bits(kind):
    x = gemm.as_float(gemm.random_bits(np.random.default_rng(0), 64, kind))
    assert (abs(x) >= 1 / 8).all() and (abs(x) < 2).all() and abs(x.mean()) < 0.05


# ---- values of parameters ----------------------------------------------------------------------------------------


@pytest.fixture
def ours(card, monkeypatch):
    """The kernels really run, on the CPU device; beside them nobody is refused."""
    monkeypatch.setattr(gemm, "Ours", OURS)
    monkeypatch.setattr(gemm, "Cublas", lambda turned, data, *rest: Product(True, data))
    return card / "gemm.json"


def rows_of(path, setting):
    return {row["name"]: row for row in results.read(path)["settings"][setting]["rows"]}


def test_values_of_parameters(ours):
    """In place of the variants: what gemm takes for the sizes, and each value alone."""
    words = "gemm", "--size", "64", "--runs", "6", "--json", str(ours)
    done = call(*words, "--type", "fp16", "--vary", "STAGES=2,8", "--vary", "TILE_N=64,256", "-D", "GROUP=2")
    assert done.exit_code == 0, done.output
    own, rows = gemm_plan.tiles(64, 64, 2), rows_of(ours, "64")
    assert list(rows)[3:] == ["as it is", "STAGES=2", "STAGES=8", "TILE_N=64", "TILE_N=256"] and own.tile_n == 64
    assert rows["as it is"]["defines"] == {**own.defines(), "GROUP": 2}
    assert rows["STAGES=2"]["defines"] == {**own.defines(), "GROUP": 2, "STAGES": 2}
    for name in ("as it is", "STAGES=2", "STAGES=8", "TILE_N=64"):
        assert rows[name]["status"] == "ok" and 0 < rows[name]["error"] < gemm.BOUNDS["fp16"], rows[name]
    assert rows["TILE_N=256"]["status"].startswith(f"{REFUSED}427008 bytes of shared memory, of 232448")
    assert "ms" not in rows["TILE_N=256"] and "defines" not in rows[gemm.CUBLAS]
    assert "TILE_N=256: refused: 427008 bytes of" in done.output and "NOT OK" not in done.output
    shown = call("gemm", "--show", "--json", str(ours))
    assert shown.exit_code == 0 and "STAGES=2" in shown.output


@pytest.mark.parametrize("kind", ["bf16", "tf32", "fp32"])
def test_values_of_parameters_with_other_types(ours, kind):
    """What the source does not make of them is told, too; clusters are tried with fp16 before."""
    done = call("gemm", "--size", "64", "--runs", "6", "--json", str(ours), "--type", kind, "--vary", "LATE=1,0",
                "--vary", "CLUSTER=2", "--vary", "PROMOTE=0,4")  # fmt: skip
    assert done.exit_code == 0, done.output
    rows, wide, split = rows_of(ours, f"64 {kind}"), kind != "bf16", kind == "fp32"
    refused = {"LATE=1": wide, "LATE=0": False, "CLUSTER=2": False, "PROMOTE=0": split, "PROMOTE=4": not split}
    for name, cannot_be in refused.items():
        status, type = rows[name]["status"], rows[name]["defines"]["TYPE"]
        assert status == "ok" or cannot_be and status.startswith(f"{REFUSED}there are LATE=0, TA=0"), rows[name]
        assert status.startswith(REFUSED) == cannot_be and type == kind.upper()


def test_values_that_were_wrong_are_not_timed(ours, monkeypatch):
    """With small and odd sizes in a process of its own, or here: that is a failure."""
    def checked(variants, device, tell):
        assert set(variants.values()) == {"64: as it is", "64: STAGES=2"}
        return {one: "hangs: nothing" if one.stages == 2 else "ok" for one in variants}

    monkeypatch.setattr(gemm, "checked", checked)
    words = "gemm", "--size", "64", "--runs", "6", "--json", str(ours), "--type", "fp16"
    done = call(*words, "--vary", "STAGES=2")
    assert done.exit_code == 1 and "NOT OK 64: STAGES=2: hangs: nothing" in done.output
    assert "ms" not in rows_of(ours, "64")["STAGES=2"] and "ms" in rows_of(ours, "64")["as it is"]


@pytest.mark.parametrize(("words", "message", "hint"), [
    ("--vary COLOUR=1", "has no parameter 'COLOUR'", "it has: TILE_N"),
    ("--vary STAGES=9", "does not take STAGES=9", "it takes: 2, 3, 4, 5, 6, 7, 8"),
    ("--vary BUFFERS=1,two", "does not take BUFFERS=two", "it takes 1, 2, ..."),
    ("-D BUFFERS=0", "does not take BUFFERS=0", "it takes 1, 2, ..."),
    ("-D TYPE=BF16", "TYPE cannot be chosen here", "--type is for that; what can"),
    ("--vary RELU=1", "RELU cannot be chosen here", "it is for other products than these"),
    ("-D STAGES=4 --vary STAGES=3", "STAGES is given by -D and by --vary", "-D is for what does not vary"),
    ("--variant 128x64 --vary STAGES=3", "--variant, and --vary or -D", "a variant is some values"),
])  # fmt: skip
def test_what_is_refused_before_anything_runs(card, words, message, hint):
    done = call("gemm", *(word.replace("128x64", "128 x 64") for word in words.split()), "--json", str(card / "a.json"))
    text = " ".join(done.output.split())
    assert done.exit_code == 1 and message in text and hint in text, done.output
    assert not (card / "a.json").exists()


def test_all_parameters_can_be_given():
    """A tiling has what the source has."""
    there = read(with_included(gemm_kernels.SOURCE))
    assert {name.lower() for name in there} == vars(gemm.Tiling()).keys() and gemm.FIXED.keys() < there.keys()
    assert there["STAGES"].values == tuple(range(2, 9)) and there["TILE_N"].default == gemm.Tiling().tile_n
