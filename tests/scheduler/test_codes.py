"""Control codes that nobody wrote: the linter finds nothing in them, and strict mode runs them right."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turingas
from tests.kernels.cases import ARCHS, CASES, Case, difference
from tests.tools import mine_yields, nvrtc, schedule_libraries
from turingas.assembler.schedule import again, listing
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.effects import VARIABLE
from turingas.isa.given import NOTHING, Given, given, whole
from turingas.scheduler.boards import QUICK, takes
from turingas.scheduler.codes import codes, yield_rule
from turingas.scheduler.ways import Ways

VECTORS = """
.kernel add
.param c, f32*
.param a, f32*
.param n, u32
    S2R R0, SR_TID.X;
    ISETP.GE.AND P0, PT, R0, c[0x0][0x170], PT;   # no more threads than elements
@P0 EXIT;
    MOV R9, 0x4;
    IMAD.WIDE R2, R0, R9, c[0x0][0x168];
    LDG.E.SYS R4, [R2];
    MUFU.RCP R5, R4;
    IMAD.WIDE R6, R0, R9, c[0x0][0x160];
    FFMA R8, R4, R5, R4;
    FFMA R8, R8, R5, R4;
    STG.E.SYS [R6], R8;
    EXIT;
"""


def errors(cubin: Cubin) -> list[Any]:
    """Without what is said of registers that parts of kernels do not write."""
    return [f for f in turingas.lint(cubin) if f.severity != "note" and f.kind != "uninitialised"]


def code(text: str, arch: str = "sm_75") -> list[str]:
    """The control codes of bare lines."""
    words = turingas.assemble(text, arch=arch).texts[0].words
    return [control.show(word) for word in words]


def run(cubin: Cubin | bytes, count: int = 40) -> np.ndarray:
    out, given = np.zeros(64, np.float32), np.linspace(1, 5, 64).astype(np.float32)
    report = launch(cubin, "add", 1, 64, [out, given, np.uint32(count)], strict=True, stale=True)
    assert not report.hazards
    return out


# -- sources


def test_plain_text_of_nvdisasm_assembles_and_runs() -> None:
    cubin = turingas.assemble(VECTORS)
    assert not errors(cubin)
    x = np.linspace(1, 5, 64).astype(np.float32)[:40]
    assert np.allclose(run(cubin)[:40], (1 + x) / x + x, rtol=1e-5)
    assert not run(cubin)[40:].any()


def test_what_is_given_stays() -> None:
    text = VECTORS.replace("    LDG", "?:-:3:Y:?  LDG").replace("    FFMA R8, R8", "?:-:-:Y:9  FFMA R8, R8")
    text = text.replace("    MOV", "--:-:-:-:7  MOV")
    words = turingas.assemble(text).texts[0].words
    load, move, sum_ = (whole(words[n]) for n in (5, 3, 9))
    assert (load.write, load.yields) == (3, True) and load.stall and load.stall >= 1
    assert move == (0, 7, 7, False, 7) and (sum_.yields, sum_.stall) == (True, 9)
    assert not errors(turingas.assemble(text))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("    LDG", "?:-:-:?:?  LDG", "must wait for the results of LDG, which sets no write scoreboard"),
        ("    MUFU", "--:-:?:?:?  MUFU", "must wait for scoreboard 1"),
        ("    MOV R9, 0x4;", "?:-:-:-:1  MOV R9, 0x4;", "R9 of MOV is there after"),
        ("    S2R R0, SR_TID.X;", "--:-:0:-:1  S2R R0, SR_TID.X;", "waits for a scoreboard that S2R sets"),
    ],
)
def test_what_cannot_be_right(old: str, new: str, message: str) -> None:
    with pytest.raises(AsmError, match=message) as caught:
        turingas.assemble(VECTORS.replace(old, new), filename="v.sass")
    assert caught.value.line and caught.value.hint


def test_a_wait_that_a_later_one_of_the_queue_tells() -> None:
    """LDS come in order: one without a scoreboard is there when the next one is."""
    lines = ["?:-:-:?:?  LDS R0, [R4];", "?:-:2:?:?  LDS R1, [R4+0x4];", "FADD R2, R0, R0;", "EXIT;"]
    words = turingas.assemble("\n".join(lines)).texts[0].words
    assert whole(words[2]).wait == 4
    with pytest.raises(AsmError, match="sets no write scoreboard"):
        turingas.assemble("\n".join(line.replace("LDS", "LDG.E.SYS").replace("[R4", "[R4") for line in lines))


def test_a_tensor_map_is_fetched_anew_before_it_is_used() -> None:
    """UTMACCTL.IV forgets what is cached of it; ptxas waits for its read scoreboard before the next UTMALDG."""
    lines = ["UTMACCTL.IV [UR6];", "UMOV UR10, URZ;", "UTMALDG.2D [UR8], [UR6];", "EXIT;"]
    found = [whole(word) for word in turingas.assemble("\n".join(lines), arch="sm_90a").texts[0].words]
    assert found[0].read in range(6) and found[1].wait == 1 << found[0].read


MAKE = "SYNCS.EXCH.64 URZ, [UR6], UR4;"
#: what ptxas 12.9 and 13.0 let wait for SYNCS.EXCH (docs/latency.md); ORDERS do not in code of ptxas 12.4
SHOWS = [
    "BAR.SYNC 0x0;", "BAR.ARV 0x1, 0x40;", "BAR.RED.AND 0x0, P0;", "UCGABAR_ARV;",
    "SYNCS.ARRIVE.TRANS64 RZ, [UR6], R2;", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR6], R2;",
    "ARRIVES.LDGSTSBAR.64.ARVCNT [UR6];", "UTMALDG.2D [UR8], [UR12];", "UBLKCP.S.G [UR8], [UR12], UR7;",
    "UTMASTG.2D [UR8], [UR12];",
]  # fmt: skip
ORDERS = ["MEMBAR.ALL.CTA;", "MEMBAR.SC.GPU;", "FENCE.VIEW.ASYNC.S;", "STAS [R2.64], R0;", "REDAS.ADD.S32 [R2.64], R0;"]


def hopper(*lines: str) -> list[Given]:
    """The control codes of bare lines."""
    words = turingas.assemble("\n".join([*lines, "EXIT;"]), arch="sm_90a").texts[0].words
    return [whole(word) for word in words[: sum(not line.endswith(":") for line in lines)]]


@pytest.mark.parametrize("who", SHOWS + ORDERS)
def test_who_shows_an_mbarrier_waits_until_it_is_made(who: str) -> None:
    """Each SYNCS.EXCH has a scoreboard, whatever comes behind: their order is not relied on."""
    first, second, there = hopper(MAKE, MAKE.replace("UR6", "UR6+0x8"), who)
    assert first.write in range(6) and second.write in range(6)
    assert there.wait is not None and there.wait & 1 << first.write and there.wait & 1 << second.write


def test_an_mbarrier_takes_no_longer_than_shared_memory() -> None:
    """The scoreboards of loads are not for it."""
    words = turingas.assemble("\n".join([MAKE, "LDG.E R0, desc[UR8][R2.64];", "EXIT;"]), arch="sm_90a").texts[0].words
    ways = Ways(Graph(Kernel("k", "sm_90a", Code(words=words))))
    assert takes(ways, 0, VARIABLE) < QUICK < takes(ways, 1, VARIABLE)


@pytest.mark.parametrize("who", [
    "STS [R0], R2;", "LDS R0, [R2];", "STG.E desc[UR8][R2.64], R0;", "BSYNC B0;", "UCGABAR_WAIT;", "UTMACMDFLUSH;",
    "ACQBULK;",
])  # fmt: skip
def test_nobody_else_waits_for_an_mbarrier(who: str) -> None:
    made, there = hopper(MAKE, who)
    assert made.write == 7 and not there.wait


def test_an_mbarrier_is_waited_for_once_on_each_way() -> None:
    found = hopper("@P0 BRA there;", MAKE, "FENCE.VIEW.ASYNC.S;", "NOP;", "there:", "BAR.SYNC 0x0;", "BAR.SYNC 0x0;")
    _, made, fence, behind, barrier, again = found
    assert fence.wait == 1 << (made.write or 0) and behind.wait == 1 << (fence.write or 0)
    assert not barrier.wait and not again.wait
    _, made, barrier, again = hopper("@P0 BRA there;", MAKE, "there:", "BAR.SYNC 0x0;", "BAR.SYNC 0x0;")
    assert barrier.wait == 1 << (made.write or 0) and not again.wait


def test_a_cluster_is_waited_for_when_its_warp_has_arrived() -> None:
    arrival, move, _ = hopper("UCGABAR_ARV;", "MOV R0, RZ;", "UCGABAR_WAIT;")
    assert (arrival.stall or 0) + (move.stall or 0) == 6
    assert hopper("UCGABAR_ARV;", "MOV R0, RZ;")[0].stall == 1  # who does not wait need not


def test_an_mbarrier_that_is_no_longer_one() -> None:
    """SYNCS.CCTL.IV takes its time, too, but reads its address at once (ptxas 12.4 to 13.0)."""
    gone, address, barrier = hopper("SYNCS.CCTL.IV [UR6];", "UMOV UR6, URZ;", "BAR.SYNC 0x0;")
    assert gone.write in range(6) and not address.wait and barrier.wait == 1 << (gone.write or 0)


@pytest.mark.parametrize("register", ["UR6", "UR4", "UR5"])
def test_what_an_mbarrier_is_made_from_is_read_late(register: str) -> None:
    """ptxas waits before it overwrites the address or the value; those of other SYNCS it overwrites at once."""
    made, over = hopper(MAKE, f"UMOV {register}, URZ;")
    assert made.read in range(6) and over.wait == 1 << (made.read or 0)
    _, over = hopper("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ;", f"UMOV {register}, URZ;")
    assert not over.wait


def test_the_author_may_know_better_than_to_wait_at_a_fence() -> None:
    """As ptxas 12.4, whose barrier waits; but a barrier that does not is an error."""
    lines = ["--:-:1:-:2 " + MAKE, "--:-:2:-:2 FENCE.VIEW.ASYNC.S;", "04:-:-:-:1 NOP;", "BAR.SYNC 0x0;"]
    assert hopper(*lines)[3].wait == 1 << 1
    assert hopper(lines[0], lines[1].replace("--:-:2", "02:-:2"), *lines[2:])[3].wait == 0
    with pytest.raises(AsmError, match="must wait for scoreboard 1"):
        hopper(*lines[:3], "--:-:-:-:6 BAR.SYNC 0x0;", "MOV R0, RZ;")


def test_scoreboards_of_others_stay_when_all_of_the_mbarriers_are_given() -> None:
    """Set up by hand, they leave the rest as it was."""
    rest = ["S2R R0, SR_TID.X;", "LDS R1, [R2];", "IADD3 R1, R0, R1, RZ;"]
    made = ["--:0:1:-:2 " + MAKE, "03:-:0:-:9 FENCE.VIEW.ASYNC.S;", "01:-:-:Y:d NOP;"]
    plain = [line.replace("SYNCS.EXCH.64 URZ, [UR6], UR4", "LDS R9, [R8]") for line in made]
    assert hopper(*made, "BAR.SYNC 0x0;", *rest)[4:] == hopper(*plain, "BAR.SYNC 0x0;", *rest)[4:]


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_behind_branches_it_stalls_as_ptxas_does(arch: str) -> None:
    lines = ["again:", "WARPSYNC R2;", "BSYNC B0;", "MEMBAR.SC.GPU;", "@P0 BRA again;", "EXIT;"]
    stalls = [whole(word).stall or 0 for word in turingas.assemble("\n".join(lines), arch=arch).texts[0].words]
    assert all(stall >= least for stall, least in zip(stalls, (1, 5, 5, 5, 5)))


def test_a_word_that_is_no_instruction_is_refused_in_its_line() -> None:
    with pytest.raises(AsmError, match="cannot be told") as caught:
        turingas.assemble("MOV R0, RZ;\n.word 0x1;\nEXIT;")
    assert caught.value.line == 2


def test_off_and_on() -> None:
    text = VECTORS.replace("    MOV R9", ".schedule off\n--:-:-:-:2  MOV R9").replace(
        "    LDG", ".schedule on\n    LDG"
    )
    with pytest.raises(AsmError, match="the control code is missing") as caught:
        turingas.assemble(text, filename="v.sass")
    assert "schedule on" in caught.value.hint
    text = text.replace("--:-:-:-:2  MOV", "--:-:-:-:6  MOV").replace("    IMAD.WIDE R2", "--:-:-:-:8  IMAD.WIDE R2")
    assert control.show(turingas.assemble(text).texts[0].words[3]) == "--:-:-:-:6"
    assert control.show(turingas.schedule(text, keep=False).texts[0].words[3]) == "--:-:-:-:6"
    with pytest.raises(AsmError, match="none of off, on"):
        turingas.assemble(".schedule maybe\n" + VECTORS)
    with pytest.raises(AsmError, match="the control code is missing"):
        turingas.assemble(".schedule off\n" + VECTORS)


def test_given() -> None:
    assert given("") == given("?:?:?:?:?") == NOTHING
    assert given("?:-:0:-:?") == Given(None, 7, 0, False, None) and given("0x12:?:?:?:f") == Given(18, stall=15)
    assert given("--:-:-:Y:4") == whole(control.parse("--:-:-:Y:4")) and given("--:-:-:Y:4").whole
    assert given("??:-:2:-:?") == given("?:-:2:-:?")
    with pytest.raises(control.ControlError, match=r"^'\?:\?\?:-:-:\?' is not a control code"):
        given("?:??:-:-:?")
    for wrong in ("?:-:-:Y", "?:9:-:Y:4", "?:-:-:-:c", "zz:?:?:?:?", "?:?:?:?:x"):
        with pytest.raises(control.ControlError):
            given(wrong)


def test_depbar_keeps_its_scoreboard() -> None:
    """DEPBAR counts how often a scoreboard is set: LDGDEPBAR sets it, and nobody else."""
    text = "LDGSTS.E [R0], desc[UR4][R2.64];\nLDGDEPBAR;\nLDG.E R6, desc[UR4][R4.64];\nDEPBAR.LE SB0, 0x0;\n"
    text += "FADD R7, R6, R6;\nEXIT;"
    words = turingas.assemble(text, arch="sm_90").texts[0].words
    assert whole(words[1]).write == 0
    assert all(whole(words[n]).write != 0 and whole(words[n]).read != 0 for n in (0, 2, 3, 4))


def test_products_of_a_warp_group_wait_at_its_arrival() -> None:
    """As ptxas's do: all warps of the group begin a product together, so each must have waited when it arrives."""
    text = """
        LDG.E R24, desc[UR6][R2.64];
        STG.E desc[UR6][R8.64], R40;
        WARPGROUP.ARRIVE;
        HGMMA.64x64x16.F32 R24, gdesc[UR8], R24;
        HGMMA.64x64x16.F32 R24, gdesc[UR12], R24, gsb0;
        WARPGROUP.DEPBAR.LE gsb0, 0x0;
        FADD R0, R24, R25;
        EXIT;
    """
    made = code(".kernel k\n.registers 64\n" + text, "sm_90a")
    load, store, arrive, first, last, wait, *_ = (one.split(":") for one in made)
    assert arrive[0] == f"{1 << int(load[2]) | 1 << int(store[1]):02x}" and first[0] == last[0] == "--"
    assert [int(one[4], 16) for one in (arrive, first, last, wait)] == [6, 4, 3, 2]


def test_what_comes_with_the_sources() -> None:
    """The predicate of ATOM is there with its read scoreboard, on sm_90."""
    text = "ATOM.E.ADD.BF16x2.RN.STRONG.GPU P5, RZ, desc[UR4][R24.64], R31;\n@P5 MOV R24, R0;\nMOV R31, R1;\nEXIT;"
    cubin = turingas.assemble(text, arch="sm_90")
    atom, move = (whole(word) for word in cubin.texts[0].words[:2])
    assert atom.read is not None and atom.read < 6 and move.wait == 1 << atom.read and not errors(cubin)


def test_endless_loop_keeps_no_cycles() -> None:
    assert code("EXIT;\nHERE:\nBRA HERE;")[1] == "--:-:-:Y:0"


# -- yields


def test_yields() -> None:
    text = "MOV R0, 0x1;\nFADD R1, R0, R0;\nFADD R2, R1, R1;\nISETP.EQ.AND P0, PT, R2, RZ, PT;\n@P0 MOV R3, RZ;\nEXIT;"
    ptxas = [whole(w).yields for w in turingas.schedule(text, "sm_80").texts[0].words[:5]]
    natural = [whole(w).yields for w in turingas.schedule(text, "sm_80", yields="natural").texts[0].words[:5]]
    every = [whole(w).yields for w in turingas.schedule(text, "sm_80", yields="every:2").texts[0].words[:5]]
    assert ptxas == [True, True, True, True, False] and natural == [False, False, False, True, False]
    assert every == [False, True, False, True, False]
    for wrong in ("", "every:0", "every:", "sometimes"):
        with pytest.raises(ValueError, match="there are ptxas, natural, every:N"):
            yield_rule(wrong)


def test_yields_after_twelve_cycles() -> None:
    """As ptxas has them: who has kept the issue slot for so long yields behind a stall of 2, but not behind one of 1; a
    yield, and a block, begin the count anew."""
    ones, two = "?:-:-:?:1 MOV R1, R2;\n", "?:-:-:?:2 MOV R3, R4;\n"

    def yielding(text: str) -> list[int]:
        words = turingas.schedule(text + "EXIT;", "sm_90").texts[0].words
        return [n for n, word in enumerate(words[: text.count(";")]) if whole(word).yields]

    assert yielding(9 * ones + two + two) == [10] and yielding(10 * ones + two) == [10]
    assert yielding(11 * ones + ones + ones) == [] and yielding(12 * two) == [5, 11]
    assert yielding(9 * ones + "HERE:\n" + two + two + "@P0 BRA HERE;\n") == []
    assert yielding(8 * ones + "?:-:-:?:4 MOV R5, R6;\n" + 5 * two) == [8]


def test_what_is_mined_of_yields() -> None:
    """Of the cubins of the tests, which ptxas made."""
    drawn = schedule_libraries.draw([Path(__file__).parents[1] / "cubin" / "data"], 20, 1000, {"sm_80", "sm_90"})
    for kernels in drawn.values():
        rows, count, right = mine_yields.told(kernels)
        assert count > 500 and right > 0.9 * count
        assert all(yields == 0 for (fixed, _, stall), (_, yields) in rows.items() if fixed and stall == 1)
        assert all(yields == there for (fixed, _, stall), (there, yields) in rows.items() if fixed and stall >= 3)
        there, yields = rows[True, True, 2]
        assert yields > 0.6 * there and 20 * rows[True, False, 2][1] < rows[True, False, 2][0]


def test_reuse_flags_save_reads() -> None:
    text = (
        "FFMA R0, R4, R8, R12;\nFFMA R1, R4, R9, R13;\nFFMA R2, R4, R8, R14;\nMOV R4, R0;\nFFMA R3, R4, R8, R15;\nEXIT;"
    )
    cubin = turingas.schedule(text, "sm_90")
    lines = turingas.decode(cubin.texts[0].words[:5], "sm_90")
    assert [line.count("R4.reuse") for line in lines] == [1, 1, 0, 0, 0]
    assert not [f for f in turingas.lint(cubin) if f.kind.startswith("reuse")]
    kept = turingas.assemble("FFMA R0, R4.reuse, R8, R12;\nFFMA R1, R4, R9, R13;\nEXIT;", arch="sm_90")
    assert "R4.reuse" in turingas.decode(kept.texts[0].words[:1], "sm_90")[0]


# -- cubins


@pytest.mark.sample(2)
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_run_as_before(arch: str) -> None:
    """A third of the test kernels, all their codes made anew, in strict mode: the same bits, and no hazard. The rest
    with ``make test-slow``."""
    chosen = [c for c in CASES if arch in c.archs and hashlib.sha256(f"{c.name}{arch}".encode()).digest()[0] < 40]
    assert chosen
    for case in chosen:
        check_case(case, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_runs_as_before(case: Case) -> None:
    for arch in case.archs:
        check_case(case, arch)


_AGAIN: dict[bytes, bytes] = {}


def check_case(case: Case, arch: str) -> None:
    data = case.cubin(arch)
    if data not in _AGAIN:
        made = again(Cubin.from_bytes(data))[0]
        _AGAIN[data] = made.to_bytes()
        assert not [f for f in errors(made) if f.function == case.kernel], (case.name, arch)
    args, truth = case.build()
    report = launch(_AGAIN[data], case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
    assert not report.hazards, (case.name, arch, report.hazards[0])
    for arg, wanted in zip(args, truth):
        if wanted is not None:
            assert not difference(arg, wanted, case.near), (case.name, arch)


def test_keep_leaves_a_cubin_alone() -> None:
    cubin = turingas.assemble(VECTORS)
    assert turingas.schedule(cubin) is cubin
    assert turingas.schedule(cubin.to_bytes()).to_bytes() == cubin.to_bytes()
    assert turingas.schedule(cubin, keep=False).texts[0].words == cubin.texts[0].words


def test_unknown_words_are_refused() -> None:
    cubin = turingas.assemble("--:-:-:-:5  EXIT;\n.word 0xfff")
    with pytest.raises(AsmError, match="no instruction that is known"):
        turingas.schedule(cubin, keep=False)
    with pytest.raises(AsmError, match="what this word needs") as caught:
        turingas.assemble("MOV R0, R1;\n.word 0xfff\nEXIT;")
    assert caught.value.hint
    turingas.assemble("--:-:-:Y:4  MOV R0, R1;\n.word 0xfff\n--:-:-:Y:5  EXIT;")


# -- the source with the codes in it


def test_the_listing_is_the_source_with_codes() -> None:
    text = VECTORS.replace("    FFMA R8, R8", "L:  FFMA R8, R8").replace("    EXIT;", "    EXIT  ;  // the end")
    shown, notes = listing(text)
    assert turingas.assemble(shown).texts[0].words == turingas.assemble(text).texts[0].words and not notes
    assert "# no more threads than elements" in shown and "EXIT  ;  // the end" in shown and "\nL:  " in shown
    bare = re.sub(r"(\S+:\S:\S:\S:\S)  ", "", shown).replace(".reuse", "")
    assert bare == text
    assert listing(shown)[0] == shown


def test_the_listing_of_inline_python_is_what_it_stands_for() -> None:
    text = "<regs>\n4-5 : sum, part\n</regs>\nMOV part, {7*2};\nFADD sum, part, part;\nEXIT;\n"
    shown, _ = listing(text)
    assert "{" not in shown and "MOV part, 14" in shown and re.search(r":\S:\S  FADD sum, part(\.reuse)?, part", shown)
    assert turingas.assemble(shown).texts[0].words == turingas.assemble(text).texts[0].words


def test_names_and_flags() -> None:
    text = "<regs>\n4-7 : a, b, c, d\n</regs>\nFFMA c, a, b, c;\nFFMA d, a, b, d;\nEXIT;\n"
    shown, _ = listing(text, "sm_90")
    assert "FFMA c, a.reuse, b.reuse, c" in shown
    assert turingas.assemble(shown, arch="sm_90").texts[0].words == turingas.assemble(text, arch="sm_90").texts[0].words


def test_command(tmp_path: Path) -> None:
    source, made = tmp_path / "v.sass", tmp_path / "w.sass"
    source.write_text(VECTORS)

    def call(*args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "turingas", "schedule", *map(str, args)], capture_output=True, text=True
        )

    assert call(source).stdout == listing(VECTORS)[0]
    assert call(source, "-o", made).returncode == 0 and made.read_text() == listing(VECTORS)[0]
    assert call(made).stdout == made.read_text()
    assert call(made, "--all", "--yield", "natural").stdout == listing(VECTORS, yields="natural")[0]
    cubin = tmp_path / "v.cubin"
    assert call(source, "-o", cubin).returncode == 0
    assert run(Cubin.from_file(cubin)).any()
    assert call(cubin, "--all", "-o", tmp_path / "x.cubin").returncode == 0
    assert ".kernel add" in call(cubin, "--all").stdout
    wrong = call(source, "--yield", "often")
    assert wrong.returncode == 2 and "no rule for yields" in wrong.stderr
    source.write_text(VECTORS.replace("    LDG", "?:-:-:?:?  LDG"))
    wrong = call(source, "-o", made)
    assert wrong.returncode == 1 and "v.sass:12:" in wrong.stderr and "hint:" in wrong.stderr


def test_speed() -> None:
    """5,000 instructions take less than 2 s on a quiet core; here only that nothing grows with the square."""
    lines = [
        f"LDG.E.SYS R{4 + n % 64 * 2}, [R2+{n * 16:#x}];\nFADD R{5 + n % 64 * 2}, R{4 + (n + 7) % 64 * 2}, R0;"
        for n in range(1000)
    ]
    kernel = turingas.assemble("\n".join(lines) + "\nEXIT;").texts[0]
    result = codes(kernel, [NOTHING] * len(kernel.words))
    assert not result.problems
