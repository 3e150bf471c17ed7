"""Schedules that a sweep found, which Conv2d reads from a file. The kernels are standin.cu, changed by parameters."""

from __future__ import annotations

import json

import pytest

from kernels_sass.conv import code, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from loader import cuda, nvrtc
from loader.cuda import Buffer
from loader.reference.problem import relative_error
from tests.kernels_sass.card import STANDIN
from tests.kernels_sass.cases import Case, error
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


@pytest.fixture
def kept(driver, monkeypatch, tmp_path):
    """The file of schedules, which is not there yet. With YIELD the stand-in's outputs are larger by 1, with OUTPUT its
    filters are other ones."""
    changes = {"YIELD": ("sum += (bias", "sum += 1 + (bias"), "OUTPUT": ("t < 9 ? w", "t < 9 ? 1 + w"),
               "LANES": ("k += 8", "k += 4 + 4 * (k >= 0)")}  # fmt: skip

    def assemble(source, arch, schedule):
        text = STANDIN.read_text()
        for name in schedule:
            if name not in changes:
                raise LaunchError(f"{source.file} has no parameter {name!r}")
            assert changes[name][0] in text
            text = text.replace(*changes[name])
        return Cubin.from_bytes(nvrtc.compile(text, arch, [], name="standin.cu"))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(Kernels, "_made", {})
    file = tmp_path / "deep" / "schedules.json"
    monkeypatch.setattr(tuned, "path", lambda: file)
    return file


CASE = Case(2, 2, 5, 4, 3)


def keep(schedule, card="cuda:0", n=2, **facts):
    p = CASE.problem
    shape = sizes.Shape(n, p.c, p.h, p.w, p.k, p.padding, CASE.layout)
    gpu = cuda.device_named(card)
    tuned.keep(gpu, Kernels.of(code.arch_of(gpu)), shape, schedule, **facts)


def used(case=CASE, card="cuda:0", **more):
    """How much more than the convolution a layer gives: 1 with YIELD."""
    with case.conv(**more) as conv:
        y = conv(Buffer.of(case.x, card)).numpy() - case.y()
    assert y.std() < 1e-5
    return round(float(y.mean()))


def test_without_schedules_that_were_found(kept):
    assert used() == 0 and not kept.exists()


def test_a_schedule_that_was_found(kept):
    keep({"YIELD": "nvcc8"}, ms=1.5)
    found = json.loads(kept.read_text())["found"]
    ((key, entries),) = found.items()
    assert key.startswith("Fake 0, CUDA 12.9, paper, ") and entries == {
        "NCHW,2,2,5,4,3,1": {"schedule": {"YIELD": "nvcc8"}, "ms": 1.5}
    }
    assert used() == 1 and used(device="cuda:0") == 1
    assert used(schedule={}) == 0 and used(schedule={"LANES": 1}) == 0  # what is asked for is what one gets
    for other in (Case(3, 2, 5, 4, 3), Case(2, 2, 5, 4, 3, pad=0), Case(2, 2, 5, 4, 3, layout="NHWC")):
        assert used(other) == 0
    assert used(card="cuda:1") == 0  # another card
    conv = CASE.conv(device="cpu")
    assert error(conv(CASE.x), CASE.y()) < 1e-6
    keep({"YIELD": "cudnn7"}, n=3)
    assert used(Case(3, 2, 5, 4, 3)) == used() == 1
    keep({})
    assert used() == 0 and used(Case(3, 2, 5, 4, 3)) == 1
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_all_kernels_are_loaded_before_the_first_call(kept, driver):
    """So that a call may be captured in a graph."""
    keep({"YIELD": "nvcc8"})
    conv, x = CASE.conv(device="cuda:0"), Buffer.of(CASE.x)
    loaded = driver.calls["cuModuleLoadData"]
    assert loaded >= 2
    conv(x)
    assert driver.calls["cuModuleLoadData"] == loaded


def test_schedules_that_are_stale(kept, monkeypatch):
    keep({"YIELD": "nvcc8"})
    keep({"YIELD": "nvcc8"}, "cuda:1")
    monkeypatch.setattr(Kernels, "_made", {})
    assembled = code.assemble
    monkeypatch.setattr(code, "assemble", lambda source, arch, given: assembled(source, arch, {"LANES": 1, **given}))
    assert used() == 0  # the source is another one since
    keep({"YIELD": "cudnn7"}, n=3)
    found = json.loads(kept.read_text())["found"]
    assert sorted(key[:6] for key in found) == ["Fake 0", "Fake 1"]  # the old one of this card is gone
    assert [list(entries) for key, entries in found.items() if key.startswith("Fake 0")] == [["NCHW,3,2,5,4,3,1"]]


@pytest.mark.parametrize(("text", "why"), [
    ("", "Expecting value"),
    ('{"format": 1, "fou', "Unterminated"),
    ("[]", "not of format 1"),
    ('{"format": 2, "found": {}}', "not of format 1"),
    ('{"format": 1, "found": {"KEY": 3}}', "'': 3 is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"SHAPE": {"schedule": [1]}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"SHAPE": {"schedule": {"YIELD": [1]}}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"NCHW,2,2,5": {"schedule": {"YIELD": "nvcc8"}}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"HWCN,2,2,5,4,3,1": {"schedule": {}}}}}', "is not a schedule"),
    (b"\xff\xfe", "codec can't decode"),
])  # fmt: skip
def test_a_broken_file_of_schedules(kept, text, why):
    gpu = cuda.device_named("cuda:0")
    kept.parent.mkdir()
    text = text if isinstance(text, bytes) else text.encode()
    key = tuned.key(gpu, Kernels.of(code.arch_of(gpu)))
    kept.write_bytes(text.replace(b"KEY", key.encode()).replace(b"SHAPE", b"NCHW,2,2,5,4,3,1"))
    with pytest.warns(RuntimeWarning, match=r"schedules\.json is ignored: .*" + why):
        assert used() == 0
    with pytest.warns(RuntimeWarning, match="is ignored"):
        keep({"YIELD": "nvcc8"})
    assert used() == 1


def test_schedules_that_the_source_does_not_take(kept):
    keep({"COLOUR": 1})
    with pytest.warns(RuntimeWarning, match=r"\{'COLOUR': 1\} is ignored: .*has no parameter 'COLOUR'"):
        assert used() == 0
    keep({"YIELD": "nvcc8", "OUTPUT": 1})  # the filters would have to be transformed again
    assert used() == 0


def test_a_schedule_changes_no_bit():
    """What Conv2d takes from the file changes when something is computed, and not what. But MATH does."""
    case = Case(2, 9, 4, 3, 65)
    for arch, kernel, math, schedule in (
        ("sm_75", "paper", {}, {"YIELD": "cudnn7", "LDG_INTERLEAVE": 2, "STS_INTERLEAVE": 2, "OUTPUT": "compact"}),
        ("sm_90", "hopper", {}, {"YIELD": "nvcc8", "HMMA_STALL": 4, "FADD_STALL": 2, "LDG_INTERLEAVE": 8,
                                 "STS_INTERLEAVE": 6}),
        ("sm_90", "hopper", {"MATH": "ffma"}, {"YIELD": "nvcc8", "LANES": "paper", "LDS_FIRST": 3, "LDS_INTERLEAVE": 8,
                                               "CHECK": 4, "LDG_INTERLEAVE": 8, "STS_INTERLEAVE": 6}),
    ):  # fmt: skip
        own, other = (
            case.conv(arch=arch, kernel=kernel, schedule={**math, **one})(case.x) for one in ({}, schedule)
        )
        assert own.tobytes() == other.tobytes()
    ffma, default = (case.conv(arch="sm_90", schedule=one)(case.x) for one in ({"MATH": "ffma"}, {}))
    assert ffma.tobytes() != default.tobytes() and relative_error(default, ffma) < 1e-6
