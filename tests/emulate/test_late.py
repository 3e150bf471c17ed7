"""Copies arrive when the program has proved that they have, and not before: kernels with and without their waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tools import nvrtc
from turingas import assemble
from turingas.emulate import launch
from turingas.emulate.late import Late
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set

ROOT = Path(__file__).parents[2]

#: the kernel of eleven lines: {wait} is what its author forgot
FORGOTTEN = """
.arch sm_80
.kernel k
<params>
g, 8
o, 8
</params>
<smem> 512 </smem>
--:-:0:-:2  S2R R0, SR_TID.X;
--:-:-:-:1  MOV R1, 0x4;
01:-:-:-:5  IMAD.SHL.U32 R2, R0, 0x4, RZ;
--:-:-:-:8  IMAD.WIDE R4, R0, R1, g;
--:0:-:-:2  LDGSTS.E [R2], [R4.64+URZ];
01:-:0:-:1  LDGDEPBAR;
{wait}
--:-:-:Y:6  BAR.SYNC 0x0;
--:-:1:-:2  LDS R6, [R2];
--:-:-:-:8  IMAD.WIDE R8, R0, R1, o;
02:-:-:-:1  STG.E [R8], R6;
--:-:-:Y:5  EXIT;
"""


def ran(wait: str, **options: bool) -> np.ndarray:
    out = np.zeros(128, np.float32)
    launch(assemble(FORGOTTEN.format(wait=wait)), "k", 1, 128, [np.arange(1, 129, dtype=np.float32), out], **options)
    return out


@pytest.mark.parametrize("wait", ["--:-:-:Y:4 DEPBAR.LE SB0, 0x0;", "01:-:-:-:1 NOP;", "--:-:-:-:4 DEPBAR {0};"])
def test_who_waits_finds_it(wait: str) -> None:
    assert (ran(wait) == np.arange(1, 129)).all() and (ran(wait, stale=True) == np.arange(1, 129)).all()


@pytest.mark.parametrize("wait", ["", "--:-:-:Y:4 DEPBAR.LE SB0, 0x1;", "--:-:-:Y:4 DEPBAR.LE SB1, 0x0;"])
def test_who_does_not_finds_what_was_there(wait: str) -> None:
    assert not ran(wait).any()
    assert np.isnan(ran(wait, stale=True)).all()


def test_the_guard_counts_when_it_begins() -> None:
    """Not what its predicate has become until the copy is done."""
    lines = "--:-:-:Y:d ISETP.NE.AND P0, PT, R0, RZ, PT;\n--:0:-:-:2  @P0 LDGSTS.E [R2], [R4.64+URZ];"
    text = FORGOTTEN.replace("--:0:-:-:2  LDGSTS.E [R2], [R4.64+URZ];", lines)
    wait, out = "--:-:-:Y:d ISETP.EQ.AND P0, PT, R0, RZ, PT;\n--:-:-:Y:4 DEPBAR.LE SB0, 0x0;", np.zeros(128, np.float32)
    launch(assemble(text.format(wait=wait)), "k", 1, 128, [np.arange(1, 129, dtype=np.float32), out])
    assert out.tolist() == [0, *range(2, 129)]


def test_groups_end_in_order_for_each_warp() -> None:
    late, done = Late(4, np.zeros(0, np.uint64)), []
    both, second = np.array([0, 1]), np.array([1])
    for n in range(3):
        late.begin(both, lambda rows, n=n: done.append((n, both[rows].tolist())), kind="copy")  # type: ignore[misc]
        late.close("copy", both, 2)
    late.settle(2, second, 1)
    assert done == [(0, [1]), (1, [1])]
    late.settle(2, np.array([0, 1, 3]), np.array([2, 0, 0]))
    assert done[2:] == [(0, [0]), (2, [1])]
    late.settle(1, both)
    late.finish()
    assert done[4:] == [(1, [0]), (2, [0])]


TWO_WAYS = """
.arch sm_80
.kernel k
<params>
g, 8
o, 8
</params>
<smem> 512 </smem>
--:-:0:-:2  S2R R0, SR_TID.X;
--:-:-:-:1  MOV R1, 0x4;
01:-:-:-:5  IMAD.SHL.U32 R2, R0, 0x4, RZ;
--:-:-:Y:d  ISETP.GE.AND P0, PT, R0, 0x20, PT;
--:-:-:-:8  IMAD.WIDE R4, R0, R1, g;
--:-:-:-:8  IMAD.WIDE R8, R0, R1, o;
--:0:-:-:2  LDGSTS.E [R2], [R4.64+URZ];
--:-:-:-:5  @P0 BRA second;
01:-:0:-:1  LDGDEPBAR;
--:0:-:-:2  LDGSTS.E [R2+0x100], [R4.64+URZ];
01:-:0:-:1  LDGDEPBAR;
--:-:-:Y:4  DEPBAR.LE SB0, 0x1;
--:-:1:-:2  LDS R6, [R2{early}];
02:-:-:-:1  STG.E [R8], R6;
--:-:-:Y:5  EXIT;
second:
01:-:0:-:1  LDGDEPBAR;
--:-:-:Y:4  DEPBAR.LE SB0, 0x0;
--:-:1:-:2  LDS R6, [R2];
02:-:-:-:1  STG.E [R8], R6;
--:-:-:Y:5  EXIT;
"""


def test_a_group_closes_what_its_warp_has_open() -> None:
    """Two warps begin a copy at once; the first closes two groups before the second one closes its own. The wait for
    the first of them tells of that copy, and of no more."""
    for early, races in (("", 0), ("+0x100", 1)):
        out = np.zeros(64, np.float32)
        args = [np.arange(1, 65, dtype=np.float32), out]
        report = launch(assemble(TWO_WAYS.format(early=early)), "k", 1, 64, args, races=True)
        assert len(report.races) == races and (out[32:] == np.arange(33, 65)).all()
        assert (out[:32] == (0 if early else np.arange(1, 33))).all()


def test_an_mbarrier_hears_of_no_more_than_ends_its_phase() -> None:
    cells = np.zeros(1, np.uint64)
    late, done = Late(1, cells), []
    cells[0] = 2  # of what counts down to the next phase
    i = instruction(instruction_set("sm_90"), assemble(".kernel k\n--:-:-:-:5 EXIT;", "sm_90").kernels[0].words[0], 0)

    def change(state: int) -> int:
        return state - 1 if state & 3 > 1 else state - 1 ^ 1 << 63

    for n in range(3):
        flight = late.begin(np.array([0]), lambda rows, n=n: done.append(n))  # type: ignore[misc]
        late.expect(0, flight, change, AssertionError, i, 0)
        assert late.poll(np.array([0])) == (n == 1) and done == [0, 1][: 2 * (n > 0)]
    late.finish()
    assert done == [0, 1, 2]


BULK = """
extern "C" __global__ void k(const int* in, int* out) {
    __shared__ __align__(128) int room[256];
    __shared__ unsigned long long bar;
    unsigned at = __cvta_generic_to_shared(&bar), where = __cvta_generic_to_shared(room), t = threadIdx.x;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.proxy.async;" ::"r"(at) : "memory");
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], " EXPECTED ";" ::"r"(at) : "memory");
        for (int n = 0; n < 2; ++n)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];"
                ::"r"(where + 512 * n), "l"(in + 128 * n), "r"(at) : "memory");
    }
    if (WAITS) {
        unsigned over = 0;
        while (!over) asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
            : "=r"(over) : "r"(at) : "memory");
    } else __syncthreads();
    int x = room[t] + 1;
    __syncthreads();
    room[t] = x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024; cp.async.bulk.commit_group;"
            ::"l"(out), "r"(where) : "memory");
        if (DONE) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        room[3] = -1;
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""


@pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
def test_bulk_copies_write_and_read_late() -> None:
    x = np.arange(256, dtype=np.int32)

    def run(waits: int = 1, expected: int = 1024, done: int = 1) -> np.ndarray:
        out = np.zeros(256, np.int32)
        given = [f"-DWAITS={waits}", f'-DEXPECTED="{expected}"', f"-DDONE={done}"]
        launch(nvrtc.compile_source(BULK, "sm_90", given), "k", 1, 256, [x, out])
        return out

    assert (run() == x + 1).all()
    assert (run(waits=0) == 1).all()
    half = run(expected=512)
    assert (half[:128] == x[:128] + 1).all() and (half[128:] == 1).all()
    assert np.flatnonzero(run(done=0) != x + 1).tolist() == [3]


def test_a_group_more_left() -> None:
    """The pipeline of examples/cp_async.sass reads a tile too early when it lets two groups be under way."""
    text, x = (ROOT / "examples" / "cp_async.sass").read_text(), np.ones((5, 128), np.float32)

    def run(left: int) -> np.ndarray:
        out = np.zeros(128, np.float32)
        launch(assemble(text.replace("SB0, 0x1;", f"SB0, {left};")), None, 1, 128, [out, x, np.int32(5)])
        return out

    assert (run(0) == 5).all() and (run(1) == 5).all() and (run(2) < 5).all()
