"""gemm.sass on the CPU device: right against float64 whatever its parameters and sizes, without a hazard or a race."""

from __future__ import annotations

import re

import numpy as np
import pytest

import loader
import turingas
from kernels_sass import gemm_kernels
from kernels_sass.bench import gemm
from kernels_sass.gemm_kernels import Tiling
from kernels_sass.learn import hgemm
from loader.reference.problem import relative_error
from tests.kernels_sass.implicit import BOUNDS, rounded, wide
from turingas.errors import AsmError

CASES = [
    (Tiling(cluster=2, group=8), (264, 256, 72), 2),
    (Tiling(cluster=1, late=0, group=2), (136, 264, 72), 1),
    (Tiling(tile_n=128, stages=6, cluster=2, ta=1, tb=1), (264, 136, 136), 2),
    (Tiling(tile_n=192, stages=2, cluster=2), (40, 200, 8), 2),
    (Tiling(tile_n=64, stages=8, cluster=1, ta=1), (8, 136, 264), 2),
    (Tiling(tile_n=64, stages=5, cluster=2, multicast=0, group=4), (264, 136, 392), 4),
    (Tiling(tile_n=64, stages=7, cluster=2, compiled=1, group=32), (136, 264, 72), 2),
]


def product(tiling, m, n, k, sms, built=gemm_kernels.built, **options):
    """The error, and the report; ``built``: of the production kernel, or of the lesson."""
    a, b, c, exact = hgemm.matrices(tiling, m, n, k)
    with loader.load(built(tiling), "cpu") as module:
        report = hgemm.multiply(module, tiling, a, b, c, sms, **options)
    return hgemm.error(c, exact), report


@pytest.mark.parametrize(("tiling", "sizes", "sms"), CASES)
def test_products(tiling, sizes, sms):
    off, report = product(tiling, *sizes, sms, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert off < hgemm.ROUNDED


TYPES = [
    (Tiling(64, 6, type="BF16"), (136, 72, 200)),
    (Tiling(64, 3, type="BF16", late=0, cluster=2), (136, 136, 72)),
    (Tiling(128, 4, type="TF32", late=0), (136, 72, 100)),
    (Tiling(64, 5, type="TF32", late=0, cluster=2, multicast=0), (136, 72, 36)),
]


@pytest.mark.parametrize(("tiling", "sizes"), TYPES)
def test_types(tiling, sizes):
    (m, n, k), random = sizes, np.random.default_rng(1)
    kind, dtype = ("bf16", "bfloat16") if tiling.type == "BF16" else ("tf32", None)
    a, bt = (rounded(random.standard_normal(shape, np.float32), kind) for shape in ((m, k), (n, k)))
    c = np.full((m, n), 0xFFFF if dtype else np.nan, a.dtype)
    given, more = gemm_kernels.arguments(tiling, a, bt, c, sms=2, dtype=dtype)
    report = loader.load(gemm_kernels.built(tiling), "cpu").kernel().launch(*given, **more, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert relative_error(wide(c), wide(a) @ wide(bt).T) < BOUNDS[kind]


@pytest.mark.parametrize("left_out", ["loads", "store"])
def test_what_is_left_out(left_out):
    """To see what the rest takes: no hazard, no race, and no result."""
    off, report = product(Tiling(64, 4, **{left_out: 0}), 136, 72, 200, 2, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert not off < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", gemm.VARIANTS)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (1000, 776, 200), (392, 1032, 456)])
def test_all_variants(name, sizes):
    tiling = gemm.VARIANTS[name]
    off, report = product(tiling, *sizes, 6, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert off < hgemm.ROUNDED or not (tiling.loads and tiling.store)


EVERY = gemm.VARIANTS | {f"{kind}, {name}": one for kind, of in gemm.TYPED.items() for name, one in of.items()}


@pytest.mark.parametrize("name", EVERY)
def test_no_finding(name):
    """But notes on values of the round before, which a predicate says are there, and on waits of some lanes alone
    (fp32) and of stores that are left out."""
    notes = ("occupancy", "uninitialised") + ("nothing-pending",) * (not EVERY[name].store or name.startswith("fp32"))
    found = [one for one in turingas.lint(gemm_kernels.built(EVERY[name])) if one.kind not in notes]
    assert not found, [str(one) for one in found]


WRONG = [{"TILE_N": 100}, {"STAGES": 1}, {"BUFFERS": 3}, {"CLUSTER": 4}, {"TILE_N": 192, "TB": 1, "CLUSTER": 2}]


@pytest.mark.parametrize("defines", WRONG)
def test_values_that_do_not_exist(defines):
    with pytest.raises(AsmError, match="there are"):
        turingas.assemble(gemm_kernels.SOURCE.read_text(), "sm_90a", defines, [gemm_kernels.SOURCE.parent])


def test_the_command(capsys):
    """As bench gemm runs it: with all parameters."""
    defines = (f"-D{key}={value}" for key, value in Tiling(stages=3, ta=1, tb=1).defines().items())
    assert gemm_kernels.main(["136", "72", "72", *defines]) == 0
    assert "136 x 72 x 72: relative L2 error 2." in capsys.readouterr().out


@pytest.mark.parametrize("define", ["TYPE=BF16", "BIAS=1", "RELU=1", "GELU=2", "BATCHED=1"])
def test_products_that_the_command_does_not_do(define, capsys):
    """They were called wrong, or a traceback."""
    with pytest.raises(SystemExit):
        gemm_kernels.main(["8", "8", "8", "-D", define])
    assert f"{define.partition('=')[0]} is not for it\nhint: kernels_sass.gemm has all" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        gemm_kernels.main(["8", "8", "8", "-D", "COLOUR=1"])
    assert "some more in" not in capsys.readouterr().err


def test_what_results_name():
    """The source, and what it includes."""
    included = re.findall(r'^\.include "(.+)"', gemm_kernels.SOURCE.read_text(), re.M)
    assert [path.name for path in gemm_kernels.TEXTS] == ["gemm.sass", *(name.rpartition("/")[2] for name in included)]
    assert all(path.is_file() for path in gemm_kernels.TEXTS)
