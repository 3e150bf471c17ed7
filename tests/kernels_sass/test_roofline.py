"""`turingas bench roofline`: operations and bytes as the CPU device counts them, memory.sass, the break-even, the
command."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner

import turingas
from kernels_sass.bench import roofline, winograd, work
from kernels_sass.bench.roofline import Loop, Stream
from kernels_sass.conv.method import METHODS
from loader.reference.problem import Problem
from tests.kernels_sass import harness
from tests.kernels_sass.test_micro import ARCHS, card, findings  # noqa: F401
from turingas.cli import main
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.isa import arch as architectures

RESULTS = roofline.results.FOLDER / "winograd_sm90.json"

# ---- operations and bytes ----------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(("source", "arch", "by"), [
    ("paper", "sm_75", ""), ("hopper", "sm_90", "tf32x3"), ("hopper", "sm_90", "ffma"),
])  # fmt: skip
@pytest.mark.parametrize("sizes", [(32, 16, 5, 6, 64), (32, 8, 4, 3, 128)])
def test_counted(source, arch, by, sizes):
    """FFMA or the products of HMMA, three for each, and bytes that loads and stores of global memory ask for, are those
    of the formula."""
    n, c, h, w, k = sizes
    there = METHODS[source]
    cubin = turingas.assemble(
        there.path.read_text(), arch, {"MATH": by} if by else {}, [there.path.parent], filename=str(there.path)
    )
    main = METHODS[source].kernels["winograd"]
    options = {"block": main.threads, "shared": main.shared, "sms": 132 if METHODS[source].persistent else 0}
    _, (_, report) = harness.convolve(
        cubin, harness.Shape(n, c, h, w, k, layout="CHWN", ni=32), counters=True, **options
    )
    kernel = next(one for one in cubin.kernels if one.name == "winograd")
    texts = turingas.decode(kernel.words, arch, control=False)

    def count(name, what):
        which = [at for at, text in enumerate(texts) if re.match(rf"(@!?U?P\d )?{name}\b", text)]
        return int(getattr(report.counters, what)[which].sum())

    p = Problem(n, c, h, w, k, 3, 3, 1, 1)
    hmma = 16 * 8 * 8 * count("HMMA", "warps")
    assert (count("FFMA", "lanes"), hmma) == ((0, 3 * winograd.ffmas(p)) if by == "tf32x3" else (winograd.ffmas(p), 0))
    counted = work.fused(p)
    additions = counted.operations - 2 * winograd.ffmas(p)
    assert 0 < additions <= count("FADD", "lanes")  # which has bias and residual too
    # Hopper's copies, by one of four warps that come by: of a step's filters, with tf32x3 of a quarter of them
    bulk = (2048 if by == "tf32x3" else 8192) * count("UBLKCP", "warps")
    assert counted.asked == 32 * (count("LDG", "sectors") + count("STG", "sectors")) + bulk
    assert bool(bulk) == (source == "hopper")
    once = 4 * (n * c * h * w + 16 * 8 * math.ceil(c / 8) * 64 * math.ceil(k / 64) + n * k * p.p * p.q)
    assert counted.least == once <= counted.asked


def test_nonfused():
    """Its arrays are cuDNN's workspace, to the byte, in all settings that were measured."""
    settings = json.loads(RESULTS.read_text())["settings"]
    for entry in settings.values():
        row = next(row for row in entry["rows"] if row["name"] == roofline.NONFUSED)
        there = work.NonFused.of(Problem(**entry["problem"]))
        assert there.u + there.v + there.m == row["workspace"]
    assert len(settings) == 16


def test_steps():
    """Section 3.3 of Yan, Wang, Chu 2020: 8 operations a byte with 32 filters a block, 10.67 with 64; a thread's 2."""
    found = {name: row["intensity"] for name, row in work.steps().items()}
    assert found["products, 32 x 32 a block"] == 8
    assert found["products, 64 x 32 a block"] == pytest.approx(10.67, abs=0.01)
    assert found["products, 8 x 8 a thread"] == 2
    assert found["input transform"] == 0.4 and found["output transform"] == 0.3 and found["filters' transform"] == 0.28


@pytest.mark.parametrize(("count", "size", "padding"), [(5, 5, 1), (6, 6, 1), (3, 5, 0), (1, 1, 1), (7, 7, 1)])
def test_rows_inside(count, size, padding):
    wanted = sum(0 <= 2 * tile - padding + row < size for tile in range(-(-count // 2)) for row in range(4))
    assert work.inside(count, size, padding) == wanted


# ---- section 8.1 -------------------------------------------------------------------------------------------------


def test_breakeven_of_the_paper():
    """V100: 15.7 TFLOP/s (Figure 2) and 900 GB/s give the paper's K = 129 (rounded down there)."""
    assert int(roofline.even(15.7e12, 900e9)) == 129
    assert roofline.ratio(roofline.even(1e13, 5e11), 1e13, 5e11) == pytest.approx(1)
    assert roofline.ratio(64, 1e13, 5e11) > 1 > roofline.ratio(1024, 1e13, 5e11)


def test_every_kernel_at_its_roof():
    """Without a limit of bandwidth only the products count: 4/2.25, where tiles are whole."""
    p = Problem(8, 64, 8, 8, 64, 3, 3, 1, 1)
    assert roofline.by_roofs(p, 1e12, 1e30) == pytest.approx(2.25 / 4)
    assert roofline.by_roofs(Problem(8, 64, 6, 6, 64, 3, 3, 1, 1), 1e12, 1e30) == pytest.approx(1)  # half of 8 x 8
    assert roofline.by_roofs(p, 1e12, 1e10) > 1


def test_crossing():
    assert roofline.crossing([(64, 2.0), (128, 1.5), (256, 1.1)]) is None
    assert roofline.crossing([(64, 2.0), (256, 0.5)]) == pytest.approx(128)
    assert roofline.crossing([(64, 1.2), (128, 1.0), (256, 0.5)]) == pytest.approx(128)


# ---- memory.sass -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", ["read", "copy"])
def test_memory(op, arch):
    """Right, also where blocks begin anew; no hazard, no finding; every byte once a round."""
    stream = Stream(op, 1)
    cubin = stream.cubin(arch)
    assert not findings(cubin)
    source = np.random.default_rng(1).integers(0, 2**32, (5, 4096), np.uint32)
    target = np.zeros_like(source)
    report = launch(cubin, None, 2, 256, [source, target, 5, 3], strict=True, counters=True)
    assert not report.hazards and stream.right(source, target)
    target[0, 0] ^= 1
    assert not stream.right(source, target)
    stored = 6 * roofline.PIECE if op == "copy" else 4 * 512
    assert 32 * report.counters.sectors.sum() == 6 * roofline.PIECE + stored


def test_memory_that_does_not_exist():
    with pytest.raises(AsmError, match="there are copy and read"):
        Stream("write", 1).cubin("sm_90")


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(card, monkeypatch):  # noqa: F811
    """One round, and of the tensor cores one."""
    monkeypatch.setattr(roofline, "TIMED", 1)
    monkeypatch.setattr(roofline, "REPEATS", 2)
    monkeypatch.setattr(roofline, "RUNS", 2)
    real = roofline.ceilings
    monkeypatch.setattr(roofline, "ceilings", lambda arch: {
        name: case for name, case in real(arch).items() if name != "HMMA.16816.F32"
    })  # fmt: skip


def call(*words):
    return CliRunner().invoke(main, ["bench", "roofline", *words])


def test_command(quick, tmp_path):
    """Ceilings are measured, kernels come from the file of `bench winograd`, which must be of the same card."""
    path, times = tmp_path / "found.json", tmp_path / "winograd.json"
    recorded = json.loads(RESULTS.read_text())
    times.write_text(json.dumps({**recorded, "gpu": "Fake 0"}))
    done = call("--json", str(path), "--winograd", str(times))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["complete"] and found["what"] == "bench roofline"
    memories = ["shared memory", "L2 read", "DRAM read", "DRAM copy"]
    assert list(found["settings"]) == ["FFMA", "HMMA.1688.F32.TF32", *memories]
    for name, row in found["settings"].items():
        assert row["status"] == "ok" and row["tera"] == pytest.approx(row["work"] / row["ms"] / 1e9, rel=1e-3), name
        assert row["a_cycle"] == pytest.approx(row["work"] / row["ms"] / 1e3 / row["mhz"] / 2, rel=1e-3)
    assert found["settings"]["FFMA"]["work"] == 2 * 512 * 2 * 256  # SMs, FFMA, operations, threads
    assert found["settings"]["shared memory"]["work"] == 2 * 64 * 16 * 256
    points = found["summary"]["points"]["Conv2N32"]
    point = next(points[name] for name in points if name.startswith("ours hopper ") and name.endswith("CHWN main"))
    assert point["tflops"] == pytest.approx(point["operations"] / point["ms"] / 1e9, abs=0.01)
    assert "break-even by the formula of section 8.1: K = " in done.output and "96 images: K = " in done.output
    shown = call("--show", "--json", str(path))
    assert shown.exit_code == 0 and shown.output in done.output
    again = call("--show", "--json", str(path), "--winograd", str(times))
    assert again.exit_code == 0 and again.output == shown.output
    other = call("--show", "--json", str(path), "--winograd", str(RESULTS))
    assert "no kernels stand beside the ceilings: winograd_sm90.json is of NVIDIA H200" in other.output


def test_figures(tmp_path):
    """From the results alone: these are ceilings that were made up."""
    tera = {"FFMA": 64, roofline.TENSOR: 400, "shared memory": 33, "L2 read": 7, "DRAM copy": 4}
    rows = {name: {"status": "ok", "tera": number} for name, number in tera.items()}
    found = {"gpu": "NVIDIA H200", "arch": "sm_90", "driver": "1", "date": "2026-11-22", "commit": "abc", "cudnn": "",
             "torch": "", "settings": rows}  # fmt: skip
    found["summary"] = roofline.placed(found, RESULTS)
    made = roofline.drawing.draw(roofline.figures(found), tmp_path)
    assert [one.name for one in made] == [f"roofline_sm90_{name}.svg" for name in ("steps", "kernels", "breakeven")]
    assert all(one.stat().st_size > 10000 for one in made)


def test_what_is_wrong_is_no_ceiling(quick, monkeypatch, tmp_path):
    monkeypatch.setattr(Stream, "right", lambda *_: False)
    real = roofline.ceilings
    monkeypatch.setattr(roofline, "ceilings", lambda arch: {"FFMA": real(arch)["FFMA"], "DRAM copy": Stream("copy", 1)})
    done = call("--json", str(tmp_path / "found.json"))
    assert done.exit_code == 1 and "NOT OK DRAM copy: wrong" in done.output


def test_ceilings_of_all_architectures():
    for arch in ARCHS:
        found = roofline.ceilings(arch)
        for case in found.values():
            assert (case.case.cubin(arch) if isinstance(case, Loop) else case.cubin(arch)).kernels
        assert len(found) == (6 if "tensor" in architectures.arch(arch).queues else 7), arch  # TF32 came with sm_80
