"""The kernels that teach: right against float64 on every architecture, and what their texts claim, counted."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import turingas
from kernels_sass.learn import measure
from kernels_sass.micro.loops import elapsed
from turingas.check import loops
from turingas.cli import main
from turingas.emulate import launch
from turingas.errors import AsmError, LaunchError
from turingas.flow.graph import Graph

ROOT = Path(turingas.__file__).parents[1]
STEPS = sorted(path.stem for path in measure.FOLDER.glob("0[1-8]*.sass"))  # step 9 is for sm_90a: test_hgemm.py
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SOME = ("sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_120")  # sm_86, sm_89: sm_80's words but for FFMA's stall
SLOW_FFMA = ("sm_70", "sm_75", "sm_80")  # two cycles a scheduler
RANDOM = np.random.default_rng(5)


@functools.cache
def assembled(step, arch, names):
    return measure.built(step, arch, dict(names))


def built(step, arch, defines=()):
    """As measure.built, once."""
    return assembled(step, arch, tuple(sorted(dict(defines).items())))


def run(step, arch, grid, block, *args, checked=True, counters=False, **defines):
    """Launch a step; no hazard and no race. The counters, or None."""
    cubin = built(step, arch, defines)
    report = launch(cubin, None, grid, block, args, strict=checked, races=checked, counters=counters)
    assert not report.hazards and not report.races, [str(x) for x in report.hazards + report.races][:3]
    return report.counters


def floats(*shape):
    return RANDOM.standard_normal(shape, dtype=np.float32)


def empty(*shape):
    return np.full(shape, np.nan, np.float32)


def error(found, wanted):
    assert np.isfinite(found).all()
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def findings(cubin):
    """What the linter says, less the notes on occupancy, which every kernel gets, and on values that are loaded under a
    guard, but used where it does not matter what they are."""
    found = [finding for finding in turingas.lint(cubin) if finding.kind != "occupancy"]
    return [str(finding) for finding in found if (finding.severity, finding.kind) != ("note", "uninitialised")]


def wavefronts(cubin, counters, base):
    """Wavefronts of all instructions called so, as (all, those that conflicts added)."""
    texts = turingas.decode(cubin.kernels[0].words, cubin.arch, control=False)
    which = [n for n, text in enumerate(texts) if re.match(rf"(@!?P\d )?{base}\b", text)]
    return int(counters.wavefronts[which].sum()), int((counters.wavefronts - counters.ideal)[which].sum())


def loop(cubin):
    return loops.summary(Graph(cubin.kernels[0]))[0]


# ---- all of them -------------------------------------------------------------------------------------------------


def test_there_are_eight():
    assert [step[:2] for step in STEPS] == [f"0{n}" for n in range(1, 9)]


@pytest.mark.sample(24)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("step", STEPS)
def test_no_finding(step, arch):
    assert not findings(built(step, arch))


def commands():
    """The lines of the sources' heads and of the texts that run or lint one of them."""
    pages = [*measure.FOLDER.glob("*.sass"), measure.FOLDER / "README.md"]
    lines = [line.lstrip("# ") for page in pages for line in page.read_text().splitlines()]
    return sorted({line for line in lines if re.match("turingas (run|lint|validate) ", line)})


@pytest.mark.parametrize("line", commands())
def test_what_the_texts_say_to_run(line):
    words = [str(ROOT / word) if word.startswith("kernels_sass/") else word for word in shlex.split(line, True)]
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output


def test_without_a_wait():
    """What the tour says of step 1 when STG does not wait for LDG."""
    source = (measure.FOLDER / "01_copy.sass").read_text()
    cubin = turingas.assemble(source.replace("04:-:-:-:1   STG", "--:-:-:-:1   STG"), "sm_90")
    x, y = floats(128), empty(128)
    launch(cubin, None, 1, 128, [x, y])
    assert (x == y).all()
    (hazard, *_) = launch(cubin, None, 1, 128, [x, y], strict=True, stale=True).hazards
    assert "LDG" in str(hazard) and "STG" in str(hazard) and not (x == y).any()
    assert any("LDG" in text and "STG" in text for text in findings(cubin))


def test_without_a_barrier():
    """... and of step 3."""
    source = (measure.FOLDER / "03_sum.sass").read_text()
    assert source.count("BAR.SYNC 0x0;") == 1
    cubin = turingas.assemble(source.replace("BAR.SYNC 0x0;", "NOP;"), "sm_75")
    assert launch(cubin, None, 1, 256, [floats(512), empty(1), 512], races=True).races


# ---- steps 1 to 4 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", SOME)
def test_copy(arch):
    source, target = floats(384), empty(384)
    counters = run("01_copy", arch, 3, 128, source, target, counters=True)
    assert (source == target).all()
    assert counters.sectors.sum() == 2 * 384 // 8  # whole sectors, once in and once out


@pytest.mark.parametrize("arch", SOME)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 127, 128, 1001])
def test_scale(arch, n):
    x, y = floats(n), empty(n)
    run("02_scale", arch, -(-n // 128), 32, x, y, n, np.float32(2.5))
    assert (y == x * np.float32(2.5)).all()


@pytest.mark.parametrize("arch", SOME)
@pytest.mark.parametrize(("n", "grid", "block"), [(1, 2, 32), (1000, 3, 64), (5000, 2, 1024)])
def test_sum(arch, n, grid, block):
    x, sums = floats(n), empty(grid)
    run("03_sum", arch, grid, block, x, sums, n)
    of_block = np.arange(n) // block % grid
    exact = np.bincount(of_block, x.astype("f8"), grid)
    assert np.abs(sums - exact).max() < 1e-6 * np.sqrt(n) * 4


@pytest.mark.parametrize("arch", SOME)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (33, 95), (64, 32)])
def test_transpose(arch, rows, columns):
    source, target = floats(rows, columns), empty(columns, rows)
    grid = (-(-columns // 32), -(-rows // 32))
    counters = run("04_transpose", arch, grid, 256, source, target, rows, columns, counters=True)
    assert (target == source.T).all()
    assert (counters.wavefronts == counters.ideal).all()


def test_transpose_without_padding():
    """It is right, and each LDS takes 32 wavefronts; the linter says so too."""
    source, target = floats(32, 32), empty(32, 32)
    cubin = built("04_transpose", "sm_75", {"PAD": 0})
    counters = run("04_transpose", "sm_75", 1, 256, source, target, 32, 32, counters=True, PAD=0)
    assert (target == source.T).all()
    assert wavefronts(cubin, counters, "LDS") == (32 * 32, 31 * 32) and wavefronts(cubin, counters, "STS") == (32, 0)
    assert all("shared-conflict" in text for text in findings(cubin)) and findings(cubin)


# ---- steps 5 to 7 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "arch"),
    [("best", "sm_75"), *((p, "sm_90") for p in ("best", "b_only", "same_bank", "no_reuse", "one_bank"))],
)
def test_outer_product(pattern, arch):
    a, b, c, clocks = floats(8), floats(8), empty(64, 32), np.zeros((32, 2), np.uint32)
    run("05_outer_product", arch, 1, 32, c, a, b, clocks, 2, PATTERN=pattern)
    times = 8 if pattern == "one_bank" else 16
    exact = times * np.outer(a, b).astype("f8").reshape(64, 1)
    assert error(c, np.repeat(exact, 32, axis=1)) < 1e-6
    assert elapsed(clocks[None]) > 0


@pytest.mark.parametrize(
    ("pattern", "slow", "fast"),  # cycles lost in a loop, where FFMA take two cycles and where they take one
    [("best", 0, 0), ("b_only", 0, 30), ("same_bank", 1, 0), ("no_reuse", 0, 384), ("one_bank", 256, 510)],
)
def test_register_banks(pattern, slow, fast):
    for arch in ARCHS if pattern == "best" else ("sm_75", "sm_90"):
        cubin = built("05_outer_product", arch, {"PATTERN": pattern})
        assert loop(cubin).conflicts == (slow if arch in SLOW_FFMA else fast)
        assert loop(cubin).pipes["fma"] == (256 if pattern == "one_bank" else 512)


@pytest.mark.parametrize("n", [4, 7, 32])
def test_yields(n):
    cubin = built("05_outer_product", "sm_90", {"YIELD": f"every:{n}"})
    assert loop(cubin).yields == -(-512 // n) + 2  # and those of ISETP and BRA
    assert not findings(cubin) or all("bank-conflict" in text for text in findings(cubin))


OWN = {32: 1, 64: 2, 128: 4}


@pytest.mark.parametrize(
    ("op", "width", "pattern", "each"),
    [
        *((op, width, "own", OWN[width]) for op in ("LDS", "STS") for width in OWN),
        *((op, width, "half", min(OWN[width], 2)) for op in ("LDS", "STS") for width in OWN),
        ("LDS", 128, "yan2020", 2), ("LDS", 32, "broadcast", 1),
        ("LDS", 32, "stride:2", 2), ("LDS", 32, "stride:32", 32),
        ("STS", 32, "stride:4", 4), ("STS", 128, "stride:8", 8),
    ],
)  # fmt: skip
def test_shared_memory(op, width, pattern, each):
    """Wavefronts of an access, and that it reads and writes where the pattern says."""
    words, clocks = np.zeros(64, np.uint32), np.zeros((64, 2), np.uint32)
    names = {"OP": op, "WIDTH": width, "PATTERN": pattern}
    counters = run("06_smem", "sm_90", 1, 64, words, clocks, 1, counters=True, **names)
    timed = max(counters.wavefronts[n : n + 64].sum() for n in range(len(counters.wavefronts) - 64))
    assert timed == 64 * 2 * each
    tid = np.arange(64)
    lane, warp = tid % 32, tid // 32
    stride = 4 * int(pattern[7:]) if pattern.startswith("stride") else width // 8
    at = {"yan2020": lane // 2 % 8, "broadcast": 0 * lane}.get(pattern, lane) * stride + 4096 * warp
    part = (lane & 8 == 0) | (pattern != "half")
    assert (words == (np.where(part, at, tid) if op == "LDS" else np.where(part, tid, at))).all()


PAPER, FULL = {"LDS": 8, "LANES": "yan2020"}, {"LDS": 12, "STS": 4, "YIELD": "every:8"}


@pytest.mark.parametrize(("arch", "names"), [("sm_90", {}), ("sm_90", PAPER), ("sm_75", FULL), ("sm_90", FULL)])
def test_mix(arch, names):
    sums, clocks = empty(256), np.zeros((256, 2), np.uint32)
    cubin = built("07_mix", arch, names)
    counters = run("07_mix", arch, 1, 256, sums, clocks, 1, counters=True, **names)
    assert (sums == 8 * 36**2).all()
    lds, sts = names.get("LDS", 0), names.get("STS", 0)
    each = 2 if "LANES" in names else 4
    assert wavefronts(cubin, counters, "LDS") == (8 * 4 * lds * each, 0)
    assert wavefronts(cubin, counters, "STS") == (8 * 4 * (4 * sts + 1), 0)
    assert loop(cubin).pipes["lsu"] == 4 * (lds + sts) and loop(cubin).pipes["fma"] == 512


def test_what_a_load_costs():
    """It fits between FFMA of two cycles, and takes a slot where they take one."""
    without, loads = (
        {arch: loop(built("07_mix", arch, {"LDS": n})) for arch in ("sm_75", "sm_90")} for n in (0, 8)
    )
    assert loads["sm_75"].bound == "fma" and loads["sm_75"].least == without["sm_75"].least
    assert loads["sm_90"].bound == "issue slots" and loads["sm_90"].least == without["sm_90"].least + 32


@pytest.mark.parametrize(
    ("step", "names"),
    [
        ("05_outer_product", {"PATTERN": "worst"}), ("05_outer_product", {"YIELD": "every:0"}),
        ("05_outer_product", {"YIELD": "often"}), ("06_smem", {"OP": "LDG"}), ("06_smem", {"WIDTH": 16}),
        ("06_smem", {"OP": "STS", "PATTERN": "broadcast"}), ("06_smem", {"PATTERN": "stride:33"}),
        ("07_mix", {"LANES": "some"}), ("07_mix", {"STS": 9}),
    ],
)  # fmt: skip
def test_values_that_do_not_exist(step, names):
    with pytest.raises(AsmError, match="there are|strides of"):
        built(step, "sm_75", names)


# ---- step 8 ------------------------------------------------------------------------------------------------------


def product(arch, m, n, k, **options):
    a, b, c = floats(m, k), floats(k, n), empty(m, n)
    counters = run("08_sgemm", arch, (-(-n // 128), -(-m // 128)), 256, a, b, c, m, n, k, **options)
    assert error(c, a.astype("f8") @ b.astype("f8")) < 5e-7
    return counters


@pytest.mark.parametrize("arch", ARCHS)
def test_sgemm(arch):
    product(arch, 100, 36, 9, checked=arch in ("sm_75", "sm_90"))


def test_sgemm_that_yields():
    product("sm_75", 70, 40, 9, YIELD="every:7")
    with pytest.raises(AsmError, match="YIELD=never"):
        built("08_sgemm", "sm_75", {"YIELD": "never"})


SHAPES = [(1, 1, 1), (128, 128, 8), (128, 127, 16), (3, 130, 9), (130, 3, 33)]


@pytest.mark.parametrize("shape", SHAPES)
def test_sgemm_of_any_shape(shape):
    product("sm_90", *shape, checked=False)


def test_random_shapes_of_sgemm():
    for _ in range(2):
        m, n, k = (int(x) for x in RANDOM.integers(1, (128, 200, 40)))
        product("sm_90", m, n, k, checked=False)


def test_sgemm_touches_nothing_else():
    """Rows and columns beyond the edge keep what they hold: the matrices lie in larger arrays of NaN."""
    m, n, k = 5, 6, 11
    a, b = floats(m * k), floats(k * n)
    c = np.full(m * n + 4096, 7, np.float32)
    run("08_sgemm", "sm_80", 1, 256, a, b, c, m, n, k)
    assert error(c[: m * n], (a.reshape(m, k).astype("f8") @ b.reshape(k, n)).ravel()) < 5e-7
    assert (c[m * n :] == 7).all()


def test_sgemm_has_no_bank_conflict():
    counters = product("sm_90", 128, 128, 16, checked=False, counters=True)
    assert counters.wavefronts.sum() and (counters.wavefronts == counters.ideal).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_the_loop_of_sgemm(arch):
    """Two steps of 512 FFMA, no register-bank conflict, 90% of the issue slots; two blocks fit on an SM."""
    cubin = built("08_sgemm", arch)
    found = loop(cubin)
    assert found.math == "FFMA" and found.conflicts == 0
    assert found.share > 0.9 and found.instructions == 1136
    assert (found.bound, found.least) == (("fma", 2060) if arch in SLOW_FFMA else ("issue slots", 1136))
    assert cubin.kernels[0].registers <= 128 and cubin.kernels[0].shared_bytes <= 32768


# ---- measure -----------------------------------------------------------------------------------------------------


def test_without_a_gpu(monkeypatch, capsys):
    def none(name):
        raise LaunchError(f"there is no device {name!r}")

    monkeypatch.setattr(measure.cuda, "device_named", none)
    assert measure.main([]) == 1
    assert "nothing is measured: there is no device 'cuda:0'" in capsys.readouterr().err
    with pytest.raises(LaunchError, match="cpu has no time"):
        measure.measure_sgemm("cpu")


def test_the_table():
    line = measure.Product("08_sgemm", 1, 2, 3, 0.5, 1.25, 1e-7, None)
    assert "1.2" in "\n".join(measure.products([line]))
