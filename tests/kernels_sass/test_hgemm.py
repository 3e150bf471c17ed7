"""Step 9 on the CPU device: right against float64 whatever its parameters and sizes, without a hazard or a race; and
word for word what gemm.sass is, so that what is measured of one is measured of the other."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

import turingas
from kernels_sass import gemm_kernels
from kernels_sass.bench import gemm
from kernels_sass.conv.methods.hgmma import ROOM
from kernels_sass.learn import hgemm
from kernels_sass.learn.hgemm import Tiling
from tests.kernels_sass import test_gemm_kernels
from turingas.errors import AsmError, LaunchError

MOST_LINES = 280
PAGE = Path(turingas.__file__).parents[1] / "docs/tutorial/10-hgemm.md"
CASES = [
    (Tiling(cluster=2, group=8), (264, 256, 72), 2),
    (Tiling(late=0, group=2), (136, 264, 72), 1),
    (Tiling(128, 6, cluster=2, group=1), (264, 136, 136), 2),
    (Tiling(192, 2, cluster=2, late=0), (40, 200, 8), 2),
    (Tiling(64, 8, group=32), (8, 136, 264), 2),
    (Tiling(64, 5, cluster=2, group=4), (264, 136, 392), 4),
]


product = functools.partial(test_gemm_kernels.product, built=hgemm.built)


@pytest.mark.parametrize(("tiling", "sizes", "sms"), CASES)
def test_products(tiling, sizes, sms):
    off, report = product(tiling, *sizes, sms, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert off < hgemm.ROUNDED


@pytest.mark.parametrize("left_out", ["loads", "store"])
def test_what_is_left_out(left_out):
    """To see what the rest takes: no hazard, no race, and no result."""
    off, report = product(Tiling(64, 4, **{left_out: 0}), 136, 72, 200, 2, strict=True, races=True)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    assert not off < 0.5


# ---- beside gemm.sass ------------------------------------------------------------------------------------------------


def lesson(of: gemm_kernels.Tiling) -> Tiling | None:
    """The same parameters, if these have them all."""
    found = {one.name: getattr(of, one.name) for one in fields(Tiling)}
    return Tiling(**found) if gemm_kernels.Tiling(**found) == of else None


BOTH = {name: one for name, of in gemm.VARIANTS.items() if (one := lesson(of))}
VALUES = (64, 128, 192, 256), (2, 5, 8), (1, 2), (1, 32), (0, 1)
EACH = [Tiling(*of) for of in itertools.product(*VALUES)]


def same(one: Tiling) -> bool:
    """The whole cubin, and how it is launched."""
    other = gemm_kernels.Tiling(**asdict(one))
    launches = [(x.options, *(x.blocks(m, n, sms) for m, n, sms in ((8, 8, 1), (1000, 520, 6), (4096, 8192, 132))))
                for x in (one, other)]  # fmt: skip
    return hgemm.built(one).to_bytes() == gemm_kernels.built(other).to_bytes() and launches[0] == launches[1]


@pytest.mark.parametrize("name", BOTH)
def test_the_same_words_as_measured(name):
    assert same(BOTH[name])


@pytest.mark.sample(8)
@pytest.mark.parametrize("tiling", EACH)
def test_the_same_words(tiling):
    assert same(tiling)


def test_what_the_tutorial_shows_is_the_lesson():
    """Each row of its table that is no product of cuBLAS."""
    shown = re.findall(r"^  (\S.*?)  +\d+\.\d \(", PAGE.read_text(), re.M)
    assert len(shown) > 12 and set(shown) <= {*BOTH, gemm.CUBLAS}


def test_the_room_that_the_lesson_tells():
    """So many stages, and no more, or all that a ring may have."""
    told = re.search("There is room for (.*)", hgemm.SOURCE.read_text())[1]
    rooms = [(int(columns), int(stages)) for stages, columns in re.findall(r"(\d+)(?: stages)? of (\d+)", told)]
    assert [columns for columns, _ in rooms] == [256, 128, 64]
    for columns, stages in rooms:
        assert Tiling(columns, stages).shared <= ROOM and (Tiling(columns, stages + 1).shared > ROOM or stages == 8)


def test_its_length():
    assert len(hgemm.SOURCE.read_text().splitlines()) <= MOST_LINES


# ---- findings, and what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOTH)
def test_no_finding(name):
    """But notes on values of the round before, which a predicate says are there, and on waits for stores that are left
    out."""
    notes = ("occupancy", "uninitialised") + ("nothing-pending",) * (not BOTH[name].store)
    found = [one for one in turingas.lint(hgemm.built(BOTH[name])) if one.kind not in notes]
    assert not found, [str(one) for one in found]


WRONG = [{"TILE_N": 100}, {"STAGES": 1}, {"CLUSTER": 4}, {"GROUP": 3}, {"LATE": 2}, {"LOADS": 2}, {"STORE": 2}]


@pytest.mark.parametrize("defines", WRONG)
def test_values_that_do_not_exist(defines):
    with pytest.raises(AsmError, match="there are"):
        turingas.assemble(hgemm.SOURCE.read_text(), "sm_90a", defines, [hgemm.SOURCE.parent])


@pytest.mark.parametrize(("words", "code", "message"), [
    ("8 8 8 -D GROUP=3", 2, "error: GROUP=3: there are 1, 2, 4"), ("8 8", 2, "three numbers for each product, not 2"),
    ("8 8 8 -D TA=1", 2, "LOADS, STORE; some more in kernels_sass.gemm_kernels"),
    ("16 8 70", 1, "error: 16 x 8 x 70: the stride of dimension 0 is 140 bytes"), ("0 8 8", 1, "0 x 8 x 8: dims: 0"),
    ("8 8 8 -D STAGES=8", 1, "hgemm needs 428032 bytes of shared memory"), ("8 8 8 --sms -1", 1, "grid.x is -1"),
    ("8 8 8 --device gpu", 1, "error: there is no device 'gpu'"),
])  # fmt: skip
def test_what_the_command_tells(words, code, message, capsys):
    """No traceback: what stood there for sizes, devices and shared memory."""
    try:
        found = hgemm.main(words.split())
    except SystemExit as ended:
        found = ended.code
    assert found == code and message in (said := capsys.readouterr().err) and "ValueError" not in said, said


def test_the_command(capsys):
    """A name alone is 1; sizes need not be multiples of 8 where no row has so many."""
    assert hgemm.main(["9", "8", "8", "-D", "GROUP", "-D", "STAGES=2"]) == 0
    assert hgemm.main(["136", "72", "72", "-D", "STAGES=3"]) == 0
    assert "136 x 72 x 72: relative L2 error 2." in capsys.readouterr().out


@pytest.mark.parametrize(("define", "message"), [("TA=1", "there is no parameter TA"), ("STAGES=1", "there are 2, 3")])
def test_a_command_that_is_refused(define, message, capsys):
    with pytest.raises(SystemExit):
        hgemm.main(["8", "8", "8", "-D", define])
    assert message in capsys.readouterr().err
    with pytest.raises(LaunchError, match="no parameter TA"):
        Tiling.of({"TA": "1"})
