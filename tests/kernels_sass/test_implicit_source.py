"""The sources of layers by HGMMA: what they let begin early, what the linter finds, what they refuse."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import turingas
from kernels_sass import gemm_kernels
from kernels_sass.conv import Conv2d, implicit_plan
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from kernels_sass.learn import hgemm
from loader.cpu import CpuKernel
from tests.kernels_sass.implicit import lint, rounded
from tests.tools.fit_hgmma import ROOM as AT_ONCE
from turingas.errors import AsmError
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set

GLOBAL = {"LDG", "STG", "UTMALDG", "UTMASTG"}


EARLY = [
    ("tf32", {"splits": 2}, (1, 36, 6, 6, 36, 3, 3)),
    ("fp16", {"schedule": {"TILE_N": 64, "PINGPONG": 1}}, (1, 40, 12, 12, 40, 3, 3)),
    ("tf32", {"schedule": {"TILE_M": 72}}, (1, 36, 12, 6, 36, 3, 3)),
    ("bf16", {"schedule": {"WINDOWS": 2, "KEEP": 1}}, (1, 40, 6, 6, 40, 3, 3)),
]


@pytest.mark.parametrize("word", ["ACQBULK", "NOP"])
@pytest.mark.parametrize(("precision", "options", "sizes"), EARLY)
def test_launches_that_begin_early(monkeypatch, precision, options, sizes, word):
    """They wait for the one before ahead of what they read of it and write over: a layer's y is its next x, and its x
    becomes y. Where nothing waits, the CPU device tells."""
    found, launch = [], CpuKernel.launch

    def watched(self, *args, **options):
        assert options["early"]
        report = launch(self, *args, **options, races="global")
        found.append({str(race.kind) for race in report.races})
        return report

    def built(tiling):
        source, defines = hgmma.source_of(tiling), hgmma.defines(tiling)
        text = source.read_text()
        assert text.count("ACQBULK;") == 2  # those who load, and those who store
        return turingas.assemble(text.replace("ACQBULK;", f"{word};"), hgmma.ARCH, defines, [hgmma.FOLDER])

    monkeypatch.setattr(CpuKernel, "launch", watched)
    monkeypatch.setattr(implicit_plan, "sms", lambda device: 2)
    monkeypatch.setattr(hgmma, "built", built)
    n, c, h, w, k, r, s = sizes
    random = np.random.default_rng(5)
    x = rounded(random.standard_normal((n, h, w, c), np.float32), precision)
    weight = rounded(random.standard_normal((k, c, r, s), np.float32), precision)
    with Conv2d(weight, None, 1, layout="NHWC", device="cpu", precision=precision, **options) as layer:
        y = layer(x)
        layer(y, out=x)
    assert found[0] == set()
    assert found[1] == (set() if word == "ACQBULK" else {"RAW", "WAR"})


@pytest.mark.parametrize("made", [
    hgmma.Tiling("TF32", 128, 6, bias=1, residual=1, pingpong=1, cluster=2), hgmma.Tiling("FP32", 64, 8, direct=1),
    hgmma.Wide("F16", 72, 4, residual=1), hgmma.Windowed("BF16", 64, "3x3", 9, 248, 3, keep=1, bias=1), None, "few",
])  # fmt: skip
def test_no_memory_before_acqbulk(made):
    """A kernel lets the next one begin, and each role of its warps waits for the one before it."""
    packs = {None: lambda: hgmma.packing(4, 8, True), "few": lambda: hgmma.packing_few(2, 3, 4, 2)}
    cubin = packs[made]() if made in packs else hgmma.built(made)
    words, table = cubin.kernels[0].words, instruction_set(hgmma.ARCH)
    names = [instruction(table, word, 16 * n).base for n, word in enumerate(words)]
    assert names.index("PREEXIT") < names.index("ACQBULK" if made == "few" else "BAR")
    starts = [0] + [n for n, name in enumerate(names) if name == "USETMAXREG"] + [len(names)]
    touch = [names[first:last] for first, last in zip(starts, starts[1:]) if GLOBAL & set(names[first:last])]
    assert len(touch) == (1 if made in packs else 2)
    for role in touch:
        assert not GLOBAL & set(role[: role.index("ACQBULK")])


@pytest.mark.parametrize("more", [{"bias": 1, "residual": 1, "relu": 1}, {"direct": 1, "residual": 1}])
def test_no_finding(more):
    fp32 = PRECISIONS["fp32"]
    assert not lint(hgmma.built(hgmma.tiling(fp32, hgmma.Work(100000, 64, 9), AT_ONCE, **more)))


def test_no_finding_in_those_that_share_tiles_or_have_windows():
    for tiling in (hgmma.Tiling("FP32", 64, 8, cluster=4, direct=1, bias=1),
                   hgmma.Tiling("TF32", 128, 6, cluster=2, direct=1, residual=1, pingpong=1),
                   hgmma.Windowed("F16", 64, "3x3", 9, 248, 3, keep=1, bias=1, residual=1, relu=1),
                   hgmma.Windowed("BF16", 64, "4x4", 16, 600, 3, keep=1, bias=1, tile_m=248, row=32),
                   hgmma.Windowed("TF32", 128, "2x2", 6, 200, 2, row=64),
                   hgmma.Windowed("TF32", 128, "3x3", 7, 192, 2, bias=1, residual=1, relu=1),
                   hgmma.Wide("TF32", 256, 4), hgmma.Wide("F16", 72, 6, bias=1, residual=1, relu=1),
                   hgmma.Wide("BF16", 144, 6, bias=1)):  # fmt: skip
        assert not lint(hgmma.built(tiling)), tiling


@pytest.mark.parametrize("tiling", [
    hgmma.Tiling("F16", 192, 3, group=4, bias=1, residual=1), hgmma.Tiling("BF16", 256, 2, buffers=2, group=8),
    hgmma.Tiling("TF32", 192, 4, buffers=2, direct=1, pairs=1), hgmma.Tiling("F16", 64, 7, group=32, pingpong=1),
    hgmma.Tiling("FP32", 128, 5, buffers=2, group=2), hgmma.Tiling("F16", 128, 4, cluster=8, group=16),
])  # fmt: skip
def test_no_finding_whatever_the_parameters(tiling):
    assert not lint(hgmma.built(tiling))


def test_no_finding_in_what_packs():
    for item, channels, rows in itertools.product((4, 2), (32, 8, 4), (False, True)):
        assert not lint(hgmma.packing(item, channels, rows)), (item, channels, rows)
    for of in ((2, 3, 4, 2), (4, 13, 16, 1), (2, 16, 16, 1), (2, 1, 2, 2), (2, 2, 4, 4), (4, 4, 4, 1), (4, 1, 2, 4)):
        assert not lint(hgmma.packing_few(*of)), of


@pytest.mark.slow
@pytest.mark.parametrize("name", PRECISIONS)
def test_no_finding_in_any(name):
    precision = PRECISIONS[name]
    for way in precision.plain:
        plain = hgmma.Tiling(precision.type, way.tile_n, way.stages, pingpong=way.schedule()["PINGPONG"])
        for cluster in (2, 8 if way.tile_n < 256 else 4):
            assert not lint(hgmma.built(replace(plain, cluster=cluster)))
        for direct, pairs in ((0, 1), (1, 0), (1, 1)):
            made = replace(plain, direct=direct, pairs=pairs, bias=1, residual=1, relu=1)
            assert not lint(hgmma.built(made))


#: What has a code of its own: mbarriers are initialised, a cluster meets, registers change hands, bytes are announced;
#: stores by tensor copies.
CODED = {"SYNCS.EXCH.64", "FENCE.VIEW.ASYNC.S", "NOP", "UCGABAR_ARV", "UCGABAR_WAIT", "USETMAXREG.DEALLOC.CTAPOOL",
         "SYNCS.ARRIVE.TRANS64", "STS.64", "STSM.16.M88.4", "UIADD3", "MEMBAR.ALL.CTA", "ELECT",
         "UTMASTG.{DIMENSIONS}", "UTMASTG.2D", "UTMACMDFLUSH", "BSYNC"}  # fmt: skip


@pytest.mark.parametrize("source", [
    hgemm.SOURCE, hgemm.SOURCE.with_name("ring.py"), gemm_kernels.SOURCE, gemm_kernels.HALVES, gemm_kernels.PARTIAL,
    hgmma.PACK, hgmma.PACK_FEW, *sorted(hgmma.FOLDER.glob("hgmma*")),
], ids=lambda path: path.name)  # fmt: skip
def test_codes_are_left_to_the_scheduler(source):
    """Those of main loops as well, but for the few above."""
    coded = re.findall(r"(?:0x)?[-0-9a-f]{2}:[-0-9]:[-0-9]:[-Y]:[0-9a-f]\s+(?:@!?\w+ )?([^\s;]+)", source.read_text())
    assert set(coded) <= CODED, set(coded) - CODED


@pytest.mark.parametrize(("defines", "message"), [
    ({"TYPE": "FP32", "TILE_N": 256}, "TILE_N=128 and 64 and at least 4 STAGES with TYPE=FP32"),
    ({"TYPE": "FP32", "STAGES": 3}, "at least 4 STAGES with TYPE=FP32"), ({"TILE_N": 100}, "there are 128, 256"),
    ({"TILE_N": 256, "CLUSTER": 8}, "no room for the sums that 8 blocks send"),
    ({"CLUSTER": 3}, "there are 1, 2, 4, 8"),
    ({"TYPE": "FP32", "PINGPONG": 1}, "PINGPONG=1 is for TILE_N=128 and 64, and not with TYPE=FP32"),
    ({"TILE_N": 256, "PINGPONG": 1}, "there are no registers for more sums"),
])  # fmt: skip
def test_values_that_do_not_exist(defines, message):
    with pytest.raises(AsmError, match=message):
        turingas.assemble(hgmma.SOURCE.read_text(), "sm_90a", defines, [hgmma.FOLDER])


@pytest.mark.parametrize(("defines", "message"), [
    ({"KEEP": 1, "STAGES": 5}, "KEEP=1: STAGES=5 are not all places of FILTER=3x3"),
    ({"STAGES": 33}, "there are mbarriers for 32"),
])  # fmt: skip
def test_values_that_windows_do_not_have(defines, message):
    with pytest.raises(AsmError, match=message):
        turingas.assemble(hgmma.WINDOW.read_text(), "sm_90a", defines, [hgmma.FOLDER])


@pytest.mark.parametrize("of", [(2, 5, 4, 1), (2, 9, 16, 2), (4, 3, 3, 1), (2, 3, 16, 3)])
def test_pixels_that_are_not_few(of):
    """More channels than there is room for, too many elements, and sizes of a pixel that are not stored at once."""
    with pytest.raises(AsmError, match="a pixel of y has at most 16 elements of x, in 8, 16, 32 or 64 bytes"):
        hgmma.packing_few(*of)
