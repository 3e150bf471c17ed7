"""Control flow on the CPU device: divergence, convergence, barriers, what never ends. Kernels for sm_75, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import turingas
from turingas.emulate import DeviceError, launch

HEAD = """
.arch sm_75
.kernel k
.param out 8
.param n 4
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:1:-:2 S2R R1, SR_CTAID.X;
03:-:-:-:6 IMAD R1, R1, c[0x0][0x0], R0;
--:-:-:-:6 MOV R4, 0x4;
--:-:-:-:6 IMAD.WIDE R4, R1, R4, c[0x0][0x160];
--:-:-:-:6 MOV R3, RZ;
"""
STORE = """
--:0:-:-:1 STG.E.SYS [R4], R3;
--:-:-:-:5 EXIT;
"""


def run(body, grid=1, block=32, n=0, tail=STORE, **options):
    """R0 is the thread, R1 the thread in the grid, R3 (0 at first) what is stored; lines without a control code have
    a stall of 12. Returns out and the report."""
    lines = []
    for line in (HEAD + body + tail).splitlines():
        line = line.strip()
        plain = line and line[0] not in ".-0#" and not line.endswith(":")
        lines.append("--:-:-:Y:c " + line if plain else line)
    cubin = turingas.assemble("\n".join(lines), arch="sm_75", filename="test.sass")
    blocks = grid if isinstance(grid, int) else int(np.prod(grid))
    out = np.full(blocks * int(np.prod(block)), -1, np.int32)
    report = launch(cubin, "k", grid, block, [out, n], **options)
    return out, report


def code(text):
    """The lines of a source that are instructions."""
    return [s for line in text.splitlines() if (s := line.strip()) and s[0] not in ".#" and not s.endswith(":")]


LOOP = """
    LOP3.LUT R2, R0, 0x3, RZ, 0xc0, !PT;
    BSSY B0, done;
    ISETP.EQ.AND P0, PT, R2, RZ, PT;
    @P0 BRA end;
loop:
    IADD3 R3, R3, R1, RZ;
    IADD3 R2, R2, -0x1, RZ;
    ISETP.NE.AND P0, PT, R2, RZ, PT;
    @P0 BRA loop;
end:
    BSYNC B0;
done:
    MOV R6, R3;
"""


def test_a_loop_that_lanes_leave_at_different_times():
    out, _ = run(LOOP, 3, 100)
    thread = np.arange(300)
    assert (out == thread % 100 % 4 * thread).all()


def test_lanes_run_together_again_behind_bsync_and_not_without_it():
    _, report = run(LOOP, counters=True)
    behind = next(n for n, line in enumerate(code(HEAD + LOOP)) if "BSYNC" in line) + 1
    assert report.counters.warps[behind] == 1
    assert report.counters.lanes[behind] == 32
    parted = LOOP.replace("BSYNC B0;", "NOP;")
    _, report = run(parted, counters=True)
    assert report.counters.warps[behind] == 4  # four lengths of the loop, each on its own
    assert report.counters.lanes[behind] == 32


def test_break_leaves_a_region_so_that_nobody_waits():
    body = """
    BSSY B0, done;
    ISETP.GE.AND P0, PT, R0, 0x8, PT;
    @P0 BREAK B0;
    @P0 BRA away;
    MOV R3, 0x1;
    BSYNC B0;
done:
    STG.E.SYS [R4], R3;
    EXIT;
away:
    MOV R3, 0x2;
"""
    out, _ = run(body)
    assert (out == np.where(np.arange(32) < 8, 1, 2)).all()
    with pytest.raises(DeviceError) as caught:  # the others wait for lanes that stand at the block's barrier
        run(body.replace("@P0 BREAK B0;", "NOP;").replace("MOV R3, 0x2;", "BAR.SYNC 0x0;"))
    assert caught.value.kind == "deadlock"


@pytest.mark.parametrize(("leave", "back"), [("", "in"), ("@!P0 BREAK B0;", "inner")])
def test_a_barrier_that_a_part_of_the_warp_saves_and_uses_again(leave, back):
    """As a function does that some lanes call: the others wait at the same barrier, but for more lanes."""
    body = """
    BSSY B0, done;
    ISETP.GE.AND P0, PT, R0, 0x10, PT;
    @!P0 BRA call;
end:
    BSYNC B0;
done:
    IADD3 R3, R3, 0x1, RZ;
"""
    function = f"""
call:
    BMOV.32.CLEAR R6, B0;
    BSSY B0, inner;
    ISETP.GE.AND P0, PT, R0, 0x8, PT;
    {leave}
    @!P0 BRA more;
in:
    BSYNC B0;
inner:
    BMOV.32 B0, R6;
    BRA end;
more:
    IADD3 R3, R3, 0x1, RZ;
    BRA {back};
"""
    out, report = run(body, tail=STORE + function, counters=True)
    behind = next(n for n, line in enumerate(code(HEAD + body)) if "BSYNC" in line) + 1
    assert (out == np.where(np.arange(32) < 8, 2, 1)).all()
    assert report.counters.warps[behind] == 1


def test_break_out_of_a_barrier_that_others_have_saved():
    """Lanes 0 to 7 are in a function, with B0 in a register when the last eight leave it and wait for them."""
    body = """
    BRA main;
call:
    BMOV.32.CLEAR R6, B0;
    BRA inside;
main:
    BSSY B0, done;
    ISETP.LT.AND P0, PT, R0, 0x8, PT;
    ISETP.GE.AND P1, PT, R0, 0x18, PT;
    @P0 BRA call;
    @P1 BREAK B0;
    @P1 BRA away;
back:
    BSYNC B0;
done:
    IADD3 R3, R3, 0x1, RZ;
away:
    BAR.SYNC 0x0;
"""
    function = """
inside:
    BSSY B0, restore;
    BSYNC B0;
restore:
    BMOV.32 B0, R6;
    BRA back;
"""
    out, report = run(body, tail=STORE + function, counters=True)
    behind = next(n for n, line in enumerate(code(HEAD + body)) if "BSYNC" in line) + 1
    assert (out == (np.arange(32) < 24)).all()
    assert report.counters.warps[behind] == 1


def test_threads_that_end_are_not_waited_for():
    body = """
    BSSY B0, done;
    ISETP.LT.AND P0, PT, R0, 0x5, PT;
    @P0 EXIT;
    BSYNC B0;
done:
    BAR.SYNC 0x0;
    MOV R3, 0x7;
"""
    out, _ = run(body, block=64)
    assert (out == np.where(np.arange(64) < 5, -1, 7)).all()


def test_warpsync_waits_for_the_lanes_of_its_mask():
    # lane 0 takes the long way; the others wait for it and read what it has stored in shared memory
    body = """
    ISETP.EQ.AND P0, PT, R0, RZ, PT;
    @!P0 BRA wait;
    MOV R6, 0x2a;
    STS [RZ], R6;
wait:
    WARPSYNC 0xffff;
    LDS R3, [RZ];
"""
    out, _ = run(".shared 16\n" + body, block=16)
    assert (out == 42).all()
    with pytest.raises(DeviceError, match="waits for lanes 0x00000001 at"):
        run(".shared 16\n" + body.replace("MOV R6, 0x2a;", "BAR.SYNC 0x0;"), block=16)


def test_a_spinning_thread_does_not_starve_the_one_it_waits_for():
    body = """
    ISETP.EQ.AND P0, PT, R0, 0x1f, PT;
    @P0 BRA set;
spin:
    LDS R3, [RZ];
    ISETP.EQ.AND P1, PT, R3, RZ, PT;
    @P1 BRA spin;
    BRA out;
set:
    MOV R3, 0x9;
    STS [RZ], R3;
out:
    NOP;
"""
    out, _ = run(".shared 16\n" + body, budget=100_000)
    assert (out == 9).all()


def test_who_has_slept_before_is_waited_for():
    """At BSYNC only those count as spinning that yield while others wait there: here all have slept before."""
    body = """
    MOV R6, 0x28;
sleep:
    NANOSLEEP 0x10;
    IADD3 R6, R6, -0x1, RZ;
    ISETP.NE.AND P1, PT, R6, RZ, PT;
    @P1 BRA sleep;
    ISETP.NE.AND P0, PT, R0, RZ, PT;
    BSSY B0, meet;
    @P0 BRA meet;
    MOV R6, 0x1;
meet:
    BSYNC B0;
    VOTE.ANY R3, PT, PT;
"""
    out, _ = run(body)
    assert (out == -1).all()


def test_named_barriers_with_counts():
    # warp 0 produces and does not wait; warp 1 waits for 64 threads at barrier 3
    body = """
    SHF.R.U32.HI R7, RZ, 0x5, R0;
    ISETP.NE.AND P0, PT, R7, RZ, PT;
    SHF.L.U32 R8, R0, 0x2, RZ;
    LOP3.LUT R8, R8, 0x7c, RZ, 0xc0, !PT;
    @P0 BRA consume;
    IADD3 R6, R0, 0x64, RZ;
    STS [R8], R6;
    BAR.ARV 0x3, 0x40;
    BRA out;
consume:
    BAR.SYNC 0x3, 0x40;
    LDS R3, [R8];
out:
    NOP;
"""
    out, _ = run(".shared 128\n" + body, block=64)
    assert (out[32:] == np.arange(100, 132)).all()
    with pytest.raises(DeviceError, match="at barrier 3 for 64 threads"):
        run(".shared 128\n" + body.replace("BAR.ARV 0x3, 0x40;", "NOP;"), block=64)


def test_a_named_barrier_that_arrivals_alone_complete():
    """Two warps arrive at barrier 1 while nobody waits there: that phase is over, and others make the next one."""
    body = """
    ISETP.GE.U32.AND P0, PT, R0, 0x40, PT;
    @P0 BRA wait;
    BAR.ARV 0x1, 0x40;
    BAR.SYNC 0x2;
    BRA out;
wait:
    BAR.SYNC 0x2;
    BAR.SYNC 0x1, 0x40;
out:
    MOV R3, 0x1;
"""
    for arriving in ("0x20", "0x40", "0x60"):
        assert (run(body.replace("0x40, PT", f"{arriving}, PT"), block=128)[0] == 1).all()
    with pytest.raises(DeviceError, match="at barrier 1 for 64 threads"):
        run(body.replace("0x40, PT", "0x60, PT"), block=160)  # five warps make two phases and a half


@pytest.mark.parametrize(("kind", "expected"), [("POPC", 10), ("AND", 0), ("OR", 0xFFFFFFFF)])
def test_barrier_reductions(kind, expected):
    body = f"""
    ISETP.LT.AND P0, PT, R0, 0xa, PT;
    BAR.RED.{kind} 0x0, P0;
    B2R.RESULT R3, P1;
    @P1 IADD3 R3, R3, 0x0, RZ;
"""
    out, _ = run(body, block=48)
    assert (out.view(np.uint32) == expected).all()


def test_an_indexed_branch_sends_each_lane_its_own_way():
    body = """
    LOP3.LUT R6, R0, 0x1, RZ, 0xc0, !PT;
    SHF.L.U32 R6, R6, 0x5, RZ;
    MOV R7, RZ;
    BRX R6;
    MOV R3, 0xa;
    BRA out;
    MOV R3, 0xb;
out:
    NOP;
"""
    out, _ = run(body)
    assert (out == np.where(np.arange(32) % 2, 11, 10)).all()


@pytest.mark.parametrize("block", [(1, 1, 1), (33, 1, 1), (4, 5, 6), (7, 3, 1)])
def test_blocks_and_grids_of_any_shape(block):
    body = """
    S2R R6, SR_TID.Y;
    S2R R7, SR_TID.Z;
    IMAD R7, R7, c[0x0][0x4], R6;
    IMAD R0, R7, c[0x0][0x0], R0;
    S2R R8, SR_CTAID.Y;
    S2R R9, SR_CTAID.X;
    IMAD R8, R8, c[0x0][0xc], R9;
    MOV R6, c[0x0][0x0];
    IMAD R6, R6, c[0x0][0x4], RZ;
    IMAD R6, R6, c[0x0][0x8], RZ;
    IMAD R3, R8, R6, R0;
    MOV R4, 0x4;
    IMAD.WIDE R4, R3, R4, c[0x0][0x160];
"""
    body = "\n".join("--:-:0:-:2 " + line.strip() if "S2R" in line else line for line in body.splitlines())
    out, _ = run(body, (3, 2), block)
    assert (out == np.arange(len(out))).all()


def test_what_does_not_end():
    with pytest.raises(DeviceError, match="unconditional branch to itself") as caught:
        run("here:\n BRA here;\n")
    assert caught.value.kind == "endless"
    assert caught.value.place.line == 13
    with pytest.raises(DeviceError, match="ran 5,000 instructions, its budget") as caught:
        run("here:\n IADD3 R3, R3, 0x1, RZ;\n BRA here;\n", budget=5000)
    assert caught.value.kind == "budget"


def test_execution_that_leaves_the_code():
    with pytest.raises(DeviceError, match="execution left the code") as caught:
        run(".tail none", tail="")
    assert caught.value.thread == (0, 0, 0)


def test_a_trap():
    with pytest.raises(DeviceError, match="trapped") as caught:
        run("ISETP.EQ.AND P0, PT, R0, 0x3, PT;\n@P0 BPT.TRAP 0x1;\n")
    assert (caught.value.kind, caught.value.thread) == ("trap", (3, 0, 0))


def test_an_instruction_that_the_device_does_not_know_is_an_error_where_it_is_reached():
    body = "ISETP.EQ.AND P0, PT, R0, 0x63, PT;\n@P0 BRA odd;\nback:\n"
    odd = STORE + "odd:\nSETLMEMBASE R6;\nBRA back;\n"
    run(body, tail=odd)
    with pytest.raises(DeviceError, match="SETLMEMBASE.*cannot run it") as caught:
        run(body, tail=odd, block=128)
    assert caught.value.kind == "unsupported"
    assert "SETLMEMBASE" in caught.value.place.text
