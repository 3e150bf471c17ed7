"""The scheduler: its stalls are the least that content the linter; reuse flags stand where they save a read."""

import random

import pytest

import turingas
from turingas.isa.arch import arch as facts
from turingas.isa.latency import latencies
from turingas.scheduler import Line, Weave, parts, settle, stalls
from turingas.source.names import Names

ARCHS = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]


def stalled(arch, *lines):
    """The stall counts of straight code."""
    code = parts(lines, Names(facts(arch)))
    stalls(code, arch)
    return [line.stall for line in code]


def hazards(arch, code):
    """Kinds of errors that the linter finds."""
    cubin = turingas.assemble(code + "\n", arch)
    return [f.kind for f in turingas.lint(cubin.to_bytes()) if f.severity == "error"]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_result_is_waited_for_as_long_as_the_table_says(arch):
    writer, reader = parts(["FADD R2, R3, R4", "FMUL R5, R2, R6"], Names(facts(arch)))
    need = latencies(arch).raw(writer.i, writer.i.writes[0], reader.i, reader.i.reads[0])
    assert stalled(arch, "FADD R2, R3, R4", "FMUL R5, R2, R6")[0] == need > 2
    issue = latencies(arch).issue(writer.i)
    assert stalled(arch, "FADD R2, R3, R4", "FMUL R5, R7, R6")[0] == issue  # the pipe alone
    first, second, _ = stalled(arch, "FADD R2, R3, R4", "NOP", "FMUL R5, R2, R6")
    assert (first, second) == (1, need - 1)
    assert stalled(arch, "--:-:-:-:9 FADD R2, R3, R4", "NOP")[0] == 9  # the least that the line asks for


def test_arithmetic_follows_a_barrier_at_once():
    """And nothing else does; on sm_70 not even that."""
    add, load = "IADD3 R1, R2, R3, RZ", "LDS R5, [R6]"

    def stalls(arch, *lines):
        made = turingas.schedule("\n".join(f"{line};" for line in ("BAR.SYNC 0x0", *lines, "EXIT")), arch)
        return [word >> 105 & 15 for word in made.texts[0].words][: len(lines)]

    for arch, need in (("sm_75", 5), ("sm_80", 6), ("sm_90", 6), ("sm_120", 6)):
        assert stalls(arch, add, add, load)[0] == 1 and sum(stalls(arch, add, add, load)) == need, arch
        for line in (load, "MUFU.RCP R9, R9", "UMOV UR4, 0x1", "EXIT"):
            assert stalls(arch, line)[0] == need, (arch, line)
        assert sum(stalls(arch, add, "EXIT")) == need
    assert stalls("sm_70", add, add, load)[0] == 5


def test_what_only_waits_or_never_runs_is_not_paced():
    never = "@!PT LDS RZ, [RZ]"
    lines = ["LDS R2, [R3]", "LDGDEPBAR", "DEPBAR.LE SB0, 0x0", never, never, "LDS R5, [R6]", "EXIT"]
    made = turingas.schedule("\n".join(f"{line};" for line in lines), "sm_90")
    assert [word >> 105 & 15 for word in made.texts[0].words][:6] == [4, 1, 4, 1, 1, 1]


def test_slow_double_precision_is_not_paced():
    """What takes a pipe longer than some cycles is left to the hardware, on sm_103 and sm_110 unlike on sm_100."""
    kernel = ".kernel k\nDMUL R4, R2, R8;\nDMUL R6, R2, R8;\nDMUL R10, R2, R8;\nEXIT;\n"
    for arch, wanted in (("sm_100", 2), ("sm_103", 1), ("sm_103a", 1), ("sm_110", 1), ("sm_120", 1)):
        words = turingas.assemble(kernel, arch).texts[0].words
        assert [word >> 105 & 15 for word in words[:2]] == [wanted] * 2, arch


def test_simple_arithmetic_of_sm_120_has_a_unit_of_its_own():
    """As ptxas stalls: for 1 where one of two is simple, for 2 where none is; elsewhere they share one unit."""
    code = ["MOV R2, R3", "MOV R4, R5", "PRMT R6, R7, 0x5410, R8", "MOV R9, R10",
            "LOP3.LUT R11, R12, R13, RZ, 0xc0, !PT", "SHF.R.U32.HI R14, RZ, 0x1, R15", "EXIT"]  # fmt: skip
    for arch, wanted in (("sm_120", [1, 1, 1, 1, 2]), ("sm_100", [2, 2, 2, 2, 2])):
        made = turingas.schedule("\n".join(f"{line};" for line in code), arch)
        assert [word >> 105 & 15 for word in made.texts[0].words][:5] == wanted


def test_scoreboards_branches_and_barriers_take_their_time():
    assert stalled("sm_75", "--:-:3:-:* LDS R2, [R3]", "08:-:-:-:* NOP")[0] == 2  # a wait sees it two cycles later
    assert stalled("sm_75", "--:-:3:-:* LDS R2, [R3]", "04:-:-:-:* NOP")[0] == 1  # another scoreboard
    assert stalled("sm_75", "BAR.SYNC 0x0", "NOP", "EXIT") == [5, 1, 5]
    assert stalled("sm_80", "BAR.SYNC 0x0", "NOP", "EXIT") == [6, 1, 5]
    assert stalled("sm_75", "--:-:-:Y:* NOP", "NOP")[0] == 2  # a yield costs a cycle
    assert stalled("sm_75") == [] and settle([], Names(facts("sm_75"))) == ""


@pytest.mark.parametrize("arch", ARCHS)
def test_the_linter_finds_nothing_and_one_cycle_less_is_found(arch):
    """Straight code of instructions of fixed latency, which lean on each other."""
    rng = random.Random(arch)
    made = []
    for _ in range(120):
        d, a, b, c = (f"R{rng.randrange(8)}" for _ in range(4))
        p = f"P{rng.randrange(3)}"
        made.append(rng.choice((
            f"FFMA {d}, {a}, {b}, {c}", f"IADD3 {d}, {a}, {b}, {c}", f"IMAD {d}, {a}, {b}, {c}", f"MOV {d}, {a}",
            f"IMAD.WIDE.U32 R{2 * rng.randrange(4)}, {a}, {b}, RZ", f"ISETP.EQ.AND {p}, PT, {a}, {b}, PT",
            f"SEL {d}, {a}, {b}, {p}", f"@{p} FADD {d}, {a}, {b}",
        )))  # fmt: skip
    code = settle([*made, "EXIT"], Names(facts(arch))).splitlines()
    assert hazards(arch, "\n".join(code)) == []
    found = 0
    for n in rng.sample([n for n, line in enumerate(code[:-1]) if int(line.split()[0][-1], 16) > 2], 12):
        fields = code[n].split("  ", 1)
        less = fields[0][:-1] + f"{int(fields[0][-1], 16) - 1:x}"
        found += bool(hazards(arch, "\n".join([*code[:n], f"{less}  {fields[1]}", *code[n + 1 :]])))
    assert found == 12


def test_reuse_flags():
    names = Names(facts("sm_75"))

    def kept(*lines):
        return [line.count(".reuse") for line in settle(lines, names).splitlines()]

    first, second = "FFMA R0, R4, R6, R8", "FFMA R1, R4, R7, R9"
    assert kept(first, second) == [1, 0]
    assert "R4.reuse, R6, R8" in settle([first, second], names)
    assert kept(first, "FFMA R1, R7, R4, R9") == [0, 0]  # in another place
    assert kept(first, "FFMA R3, R10, R11, R12", second) == [0, 0, 0]  # that place of the bank is taken over
    assert kept(first, "MOV R4, R10", second) == [0, 0, 0]  # overwritten
    assert kept(first, "label:", second) == [0, 0, 0]
    assert kept("--:-:-:Y:* " + first, second) == [0, 0]  # another warp uses the cache
    assert kept(first, "IADD3 R1, R4, R7, R9") == [0, 0]  # flags are for FFMA


def test_long_stalls_yield_and_control_codes_stay():
    names = Names(facts("sm_75"))
    assert settle(["0a:-:2:-:* @P0 LDG.E.SYS R2, [R4];  # a comment"], names) == "0x0a:-:2:-:1  @P0 LDG.E.SYS R2, [R4];"
    assert settle(["--:-:-:-:d NOP", "top:", "BRA top"], names).splitlines() == [
        "--:-:-:Y:d  NOP;", "top:", "--:-:-:-:5  BRA top;",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no instruction: 12"):
        settle(["12"], names)
    with pytest.raises(turingas.errors.EncodeError):
        settle(["FNORD R1, R2"], names)


def test_weave():
    weave = Weave([[f"FFMA {n}"] for n in range(6)])
    assert weave.put(["a", "b"], 1, every=2) == 3
    assert weave.put(["c", "d"], 1) == 4
    woven = "FFMA 0|FFMA 1|a|FFMA 2|c|FFMA 3|b|FFMA 4|d|FFMA 5"
    assert "|".join(weave.lines()) == woven
    with pytest.raises(ValueError, match="no slot is left for f"):
        weave.put(["e", "f"], 5)


def test_a_line_knows_what_it_is():
    line = Line("01:-:2:Y:3 @!P1 LDG.E.SYS R2, [R4]", Names(facts("sm_75")))
    assert (line.i.base, line.wait, line.read, line.write, line.yields, line.least) == ("LDG", 1, None, 2, True, 3)
