"""`turingas bench smem`, `ffma`, `hmma`: every loop is right on the CPU device in strict mode, and the linter finds
nothing; the commands over the driver that stands for a GPU."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

import turingas
from kernels_sass.micro import ffma, hmma, loops, micro, shown
from loader.bench import measure, results
from tests.kernels_sass.card import Card
from turingas.cli import main
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.isa import arch as architectures

ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
SOME = ("sm_70", "sm_75", "sm_80", "sm_90")  # sm_86 and sm_89 have the words of sm_80, but for FFMA's stall


def cases(what, arch):
    """Those of a command whose words differ: with another number of warps they are the same."""
    found = {}
    for name, case in micro.KINDS[what](arch).items():
        found.setdefault((case.source.name, str(case.defines)), (name, case))
    return dict(found.values())


def findings(cubin):
    """What the linter says, less the note on occupancy, which every kernel gets."""
    return [str(finding) for finding in turingas.lint(cubin) if finding.kind != "occupancy"]


def play(case, cubin, rounds, threads=None, **options):
    """Launch two blocks on the CPU device; the arrays, the cycles of each block and the report."""
    given = [one.copy() if isinstance(one, np.ndarray) else one for one in case.given]
    clocks = np.zeros((2, case.threads, 2), np.uint32)
    report = launch(cubin, None, 2, case.threads, [*given, clocks, rounds], **options)
    return [one for one in given if isinstance(one, np.ndarray)], loops.elapsed(clocks), report


# ---- what is timed -----------------------------------------------------------------------------------------------


def far(case):
    """Of a latency, a distance that is enough for all."""
    return {"DISTANCE": 24} if isinstance(case, loops.Latency) else {}


@pytest.mark.sample(2)
@pytest.mark.parametrize("arch", SOME)
def test_tensor_cores(arch):
    """Each is right, with no hazard and no finding: many accumulators or a latency, by turns."""
    seen = set()
    every = [(name, case) for name, case in cases("hmma", arch).items() if not case.variant]
    turn = {op: SOME.index(arch) + n for n, op in enumerate(dict.fromkeys(case.defines["OP"] for _, case in every))}
    for name, case in every:
        if (case.defines["CHAINS"] == 1) != turn[case.defines["OP"]] % 2:
            continue
        cubin = case.cubin(arch, **far(case))
        assert not findings(cubin), name
        one = dataclasses.replace(case, threads=32, given=(case.given[0][:, :32], *case.given[1:]))
        arrays, cycles, report = play(one, cubin, 2, strict=True)
        assert not report.hazards, name
        assert one.right(arrays, 2) and not one.right(arrays, 3), name
        assert (cycles > 64).all()
        seen.add(one.defines["OP"])
    assert seen == {op for op, one in hmma.MMA.items() if architectures.arch(arch) in one.archs}


@pytest.mark.parametrize("arch", ["sm_86", "sm_89"])
def test_tensor_cores_of_ampere_and_ada(arch):
    """Words are those of sm_80; of each product one case."""
    every = {case.defines["OP"]: case for case in cases("hmma", arch).values()}
    for op, case in every.items():
        if architectures.arch("sm_80") in hmma.MMA[op].archs:
            found, wanted = (case.cubin(one, **far(case)).kernels[0].words for one in (arch, "sm_80"))
            assert found == wanted, op


def test_products_of_warp_groups():
    """A ninth of the cases, so that every type, size, A and wait occurs: a round has 64 products, what is stored are
    all words of all accumulators; the linter finds nothing. On the CPU device a warp group is right, without a hazard
    or a race."""
    groups = [case for case in hmma.cases("sm_90").values() if case.variant]
    assert {case.defines["OP"] for case in groups} == set(hmma.GROUP_MMA)
    assert not [case for case in hmma.cases("sm_80").values() if case.variant]
    for case in groups[::9]:
        cubin = case.cubin("sm_90")
        op, waits = case.defines["OP"], "WAIT" in case.defines
        assert cubin.arch == "sm_90a" and not findings(cubin), case.defines
        lines = turingas.decode(cubin.kernels[0].words, "sm_90a", control=False)
        products = [line for line in lines if line.startswith(f"{op} ")]
        assert len(products) == 64 and sum("gsb0" in line for line in products) == (64 if waits else 1), case.defines
        assert len({line.split()[1] for line in products}) == case.more["chains"]
        assert all(("R8, gdesc" in line) == ("A" in case.defines) for line in products)
        rows = sum(line.startswith("STG.E [") for line in lines)
        assert rows == len(case.given[0]) == case.more["chains"] * hmma.GROUP_MMA[op].registers
        one = dataclasses.replace(case, threads=128, given=(case.given[0][:, :128], *case.given[1:]))
        arrays, _, report = play(one, cubin, 1, strict=True, races=True)
        assert not report.hazards and not report.races, case.defines
        assert one.right(arrays, 1) and not one.right(arrays, 2), case.defines
    texts = " ".join(str(case.defines) for case in groups[::9])
    assert all(f"x{n}x" in texts for n in hmma.SIZES) and "'registers'" in texts and "'WAIT'" in texts
    assert all(name.partition("x{n}")[0] in texts for name in hmma.GROUPS)


def test_values_of_elements():
    """What a row is held to: products x k (half of it where A is sparse) x the product of two elements."""
    for op, each in (("HGMMA.64x64x16.F32", 2**-6), ("QGMMA.SP.64x64x64.F32.E4M3.E4M3", 0.5),
                     ("BGMMA.64x64x256.AND.POPC", 256)):  # fmt: skip
        one = hmma.GROUP_MMA[op]
        words = np.array(one.element(3), np.uint32)
        assert len(words) == 32 and (words.view(one.type.into) == 3 * each).all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("arch", ARCHS)
def test_what_an_architecture_has(arch):
    """What is left out is what the table of instructions does not have."""
    for op, one in hmma.MMA.items():
        if architectures.arch(arch) in one.archs:
            continue
        with pytest.raises(AsmError, match="has no"):
            hmma.product(op, arch, 32, 1).cubin(arch)


def test_latency_that_is_too_short():
    """A product too early takes the accumulator as it was: on the CPU device with `stale`, as on a GPU."""
    case = hmma.product("HMMA.16816.F32", "sm_90", 32, 1, loops.Latency)
    for distance, right in ((13, True), (12, False)):
        cubin = case.cubin("sm_90", DISTANCE=distance)
        arrays, _, report = play(case, cubin, 2, strict=True, stale=True)
        assert case.right(arrays, 2) == right and bool(report.hazards) != right and bool(findings(cubin)) != right


def test_products_of_a_round():
    """64, however many accumulators take turns; an instruction each but on Volta."""
    for op, arch, each in (("HMMA.16816.F32", "sm_80", 1), ("HMMA.884.F32.F32", "sm_70", 4), ("DMMA.884", "sm_86", 1)):
        for chains in (1, 5, 6):
            cubin = hmma.product(op, arch, 32, chains).cubin(arch)
            texts = turingas.decode(cubin.kernels[0].words, arch, control=False)
            assert sum(op in text for text in texts) == 64 * each


@pytest.mark.parametrize("names", [{"OP": "HMMA"}, {"CHAINS": 0}, {"CHAINS": 17}, {"REUSE": "c"}, {"DISTANCE": 65}])
def test_values_that_do_not_exist(names):
    with pytest.raises(AsmError, match="there are"):
        hmma.product("HMMA.16816.F32", "sm_90", 32, 1).cubin("sm_90", **names)
    with pytest.raises(AsmError, match="there are|no REUSE"):
        hmma.product("HMMA.1688.F32", "sm_75", 32, 1).cubin("sm_75", **{"REUSE": "a", **names})


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_shared_memory(arch):
    """All accesses are right; the wavefronts of a row are those that the CPU device counts."""
    for name, case in list(cases("smem", arch).items())[arch == "sm_90" :: 2]:  # the words are the same
        cubin = case.cubin(arch)
        assert all("[shared-conflict]" in one for one in findings(cubin)), name
        assert bool(findings(cubin)) == (case.more["wavefronts"] > case.more["fewest"]), name
        arrays, _, report = play(case, cubin, 1, strict=arch == "sm_90", counters=True)
        assert case.right(arrays, 1) and not report.hazards, name
        loop = max(report.counters.wavefronts[n : n + 64].sum() for n in range(len(report.counters.wavefronts) - 64))
        assert loop == 2 * case.threads // 32 * 64 * case.more["wavefronts"], name


def test_ffma():
    for name, case in cases("ffma", "sm_90").items():
        cubin = case.cubin("sm_90")
        arrays, _, report = play(case, cubin, 2, strict=name.startswith("best, 8 LDS"))
        assert case.right(arrays, 2) and not case.right(arrays, 1) and not report.hazards, name
        assert case.count == (256 if "PATTERN" in case.defines and case.defines["PATTERN"] == "one_bank" else 512)


def test_elapsed():
    """Of each block, with its own SM's clock, which may turn over."""
    clocks = np.array([[[2**32 - 10, 5], [2**32 - 12, 7], [3, 20]], [[100, 150], [90, 160], [95, 155]]], np.uint32)
    assert loops.elapsed(clocks).tolist() == [32, 70]


# ---- the commands ------------------------------------------------------------------------------------------------


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    """A GPU of two SMs, an sm_90; a few cases, one round."""
    install(Card(gpus=1, major=9, minor=0))
    monkeypatch.setattr(measure, "torch", lambda: None)
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: {"sm_mhz": 1000, "memory_mhz": 2000})
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(loops, "ROUNDS", 1)
    monkeypatch.setattr(loops, "LAUNCHES", 3)
    monkeypatch.setattr(loops, "FARTHEST", 3)
    few = {
        "smem": ["LDS.32", "LDS.32, 4 warps", "STS.128 half"],
        "ffma": [next(iter(ffma.FFMA)),
                 "best, 8 LDS.128 in 128 FFMA, lanes of Yan, Wang, Chu 2020, 1 warp a scheduler"],
        "hmma": ["HMMA.16816.F32, 2 a scheduler", "DMMA.8x8x4, 1 a scheduler", "HMMA.16816.F32, latency"],
    }
    for what, names in few.items():
        every = micro.KINDS[what]
        monkeypatch.setitem(
            micro.KINDS, what, lambda arch, every=every, names=names: {name: every(arch)[name] for name in names}
        )


def call(*words):
    return CliRunner().invoke(main, ["bench", *words])


@pytest.mark.parametrize("what", micro.KINDS)
def test_command(card, tmp_path, what):
    path = tmp_path / "found.json"
    done = call(what, "--json", str(path), "--figures", str(tmp_path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["complete"] and found["what"] == f"bench {what}" and found["commit"] == "abc" and found["sms"] == 2
    assert all(len(digest) == 16 for digest in found["sources"].values())
    for name, row in found["settings"].items():
        assert row["status"] == "ok" and row["state"] == {"sm_mhz": 1000, "memory_mhz": 2000}, name
        assert name in done.output.replace("…", "")
        if "latency" not in row:
            assert row["least"] <= row["low"] <= row["cycles"] <= row["high"] <= row["most"] and row["times"] == 4
            each = 1 if what == "smem" else 4
            assert row["cpi"] == pytest.approx(row["cycles"] * each / row["instructions"] / row["warps"], rel=1e-3)
    made = sorted(one.name for one in tmp_path.glob("*.*g"))
    assert made == [f"{what}_sm90_bars.svg"]
    shown = call(what, "--show", "--json", str(path))
    assert shown.exit_code == 0 and shown.output in done.output


def test_latency(card, monkeypatch, tmp_path):
    """The least distance that is right, found from above; the CPU device is right with all."""
    path = tmp_path / "found.json"
    assert call("hmma", "--json", str(path)).exit_code == 0
    assert json.loads(path.read_text())["settings"]["HMMA.16816.F32, latency"]["latency"] == 1
    case = hmma.product("HMMA.16816.F32", "sm_90", 32, 1, loops.Latency)
    seen = []

    def right(arrays, rounds):
        seen.append(1)
        return len(seen) < 2

    gpu = micro.gpu_at_hand("")
    assert dataclasses.replace(case, right=right).measure(gpu)["latency"] == 3
    assert dataclasses.replace(case, right=lambda *_: False).measure(gpu)["status"].startswith("wrong")


def test_what_is_wrong_has_no_time(card, monkeypatch, tmp_path):
    path = tmp_path / "found.json"
    every = micro.KINDS["smem"]

    def some(arch):
        found = every(arch)
        found["LDS.32"] = dataclasses.replace(found["LDS.32"], right=lambda arrays, rounds: False)
        return found

    monkeypatch.setitem(micro.KINDS, "smem", some)
    done = call("smem", "--json", str(path), "--figures", str(tmp_path))
    assert done.exit_code == 1 and "NOT OK LDS.32: wrong after 2 rounds" in done.output
    row = json.loads(path.read_text())["settings"]["LDS.32"]
    assert "cycles" not in row and "cpi" not in row


def test_goes_on(card, monkeypatch, tmp_path):
    """What an interrupted run measured is kept, and the same command measures the rest."""
    path = tmp_path / "found.json"
    real, seen = loops.Case.measure, []
    path.write_text(json.dumps({"settings": {}, "complete": True, "what": "another"}))

    def at_once(self, gpu):
        raise KeyboardInterrupt

    monkeypatch.setattr(loops.Case, "measure", at_once)
    assert "interrupted: 0 of 3" in call("smem", "--json", str(path)).output
    assert json.loads(path.read_text())["what"] == "another"  # nothing took its place

    def stops(self, gpu):
        if len(seen) == 1:
            raise KeyboardInterrupt
        seen.append(self)
        return real(self, gpu)

    monkeypatch.setattr(loops.Case, "measure", stops)
    done = call("smem", "--json", str(path))
    assert "interrupted: 1 of 3 are kept" in done.output
    first = json.loads(path.read_text())
    assert not first["complete"] and list(first["settings"]) == ["LDS.32"]
    monkeypatch.setattr(loops.Case, "measure", real)
    assert call("smem", "--json", str(path)).exit_code == 0
    found = json.loads(path.read_text())
    assert found["complete"] and len(found["settings"]) == 3
    assert found["settings"]["LDS.32"] == first["settings"]["LDS.32"]


def test_rates():
    """A wavefront of 32 words is 128 bytes a cycle; the operations of a product go by the clock that was read."""
    found = {"mhz": {"clock": 1980}, "sms": 132}
    row = {"cpi": 2.0, "bytes": 256, "flops": 4096, "state": {"sm_mhz": 1000}}
    rates = shown.speed(found, row)
    assert rates["bytes_per_cycle"] == 128 and rates["flops_per_cycle"] == 8192
    assert rates["tflops"] == pytest.approx(8192 * 132 * 1e9 / 1e12)
    assert shown.speed(found, {"latency": 13}) == {}
    one = {"cpi": 128.0, "flops": 131072, "chains": 1, "op": "HGMMA.64x256x16.F32", "defines": {}}  # not waited for
    assert shown.speed(found, one)["flops_per_cycle"] == 4096
    assert shown.speed(found, {**one, "defines": {"WAIT": 1}}) == {"latency": 128.0}
    assert shown.speed(found, {"cpi": 17.0, "flops": 4096, "chains": 1}) == {"latency": 17.0}
