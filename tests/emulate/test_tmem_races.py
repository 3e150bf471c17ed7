"""What is asynchronous in tensor memory: a kernel that stores, multiplies, loads and multiplies again, with each thing
that orders these taken out in turn. ``--races`` tells of it, and the values come late. No Blackwell card was at hand:
what must be ordered is what the PTX ISA says ("Memory Consistency Model for 5th generation of TensorCore operations").
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import turingas
from tests.emulate.tcgen05 import compiled, registers, stored
from tests.tools import ptxas
from turingas.emulate import launch
from turingas.emulate.arrays import Array
from turingas.emulate.report import Report
from turingas.errors import AsmWarning

pytestmark = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")

WORDS = 32  # columns of D
ONES = 0x3C003C00  # two FP16
IDESC = 1 << 4 | WORDS >> 3 << 17 | 128 >> 4 << 24
MEET = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r204];"


def wait(name: str, parity: int) -> str:
    return f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r204], {parity}; @!%p2 bra {name};"


def load(first: int) -> str:
    return f"tcgen05.ld.sync.aligned.32x32b.x{WORDS}.b32 {registers(first, WORDS)}, [%mine];"


#: A in tensor memory and B in shared memory are ones: D is 16, and 32 when it is added to
KERNEL = {
    "begin": f"mov.u32 %r200, sm; shl.b32 %r201, %thread, 4; add.u32 %r201, %r201, %r200; mov.u32 %r204, bar;"
    f"mov.u32 %r202, {ONES}; st.shared.v4.b32 [%r201], {{%r202, %r202, %r202, %r202}}; mov.u32 %r203, {IDESC};"
    "fence.proxy.async.shared::cta; setp.ne.u32 %p1, %thread, %thread; add.u32 %r205, %mine, 128;"
    "add.u32 %r206, %tm, 128; shr.u32 %r207, %r200, 4; cvt.u64.u32 %d1, %r207;"
    f"or.b64 %d1, %d1, {128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46};",
    "store": f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r205], {{{', '.join(['%r202'] * 8)}}};",
    "wait::st": "tcgen05.wait::st.sync.aligned;",
    "barrier": MEET,
    "first": "@!%one bra FIRST;"
    "tcgen05.mma.cta_group::1.kind::f16 [%tm], [%r206], %d1, %r203, %p1;" + COMMIT + "FIRST:",
    "phase": wait("ONE", 0) + "tcgen05.fence::after_thread_sync;",
    "load": load(32),
    "wait::ld": "tcgen05.wait::ld.sync.aligned;",
    "barrier between": MEET,
    "second": "setp.eq.u32 %p1, %thread, %thread; @!%one bra SECOND;"
    "tcgen05.mma.cta_group::1.kind::f16 [%tm], [%r206], %d1, %r203, %p1;" + COMMIT + "SECOND:",
    "last phase": wait("TWO", 1) + "tcgen05.fence::after_thread_sync;",
    "end": load(64) + "tcgen05.wait::ld.sync.aligned;" + stored(32, 64, 0),
}


def run(changed: dict[str, str], **options: bool) -> tuple[Array, Report]:
    """The D of both loads, and the report of a kernel with some of its pieces changed."""
    text = "\n".join({**KERNEL, **changed}.values())
    out = np.zeros((2, WORDS, 128), np.float32)
    report = launch(compiled(text, shared=2048), "k", 1, 128, [out, np.zeros(1, np.uint32)], budget=50_000, **options)
    return out, report


def test_what_is_ordered() -> None:
    """Also with codes made anew; the linter has nothing to say of either."""
    for options in ({"races": True, "strict": True}, {"stale": True}):
        out, report = run({}, **options)
        assert (out[0] == 16).all() and (out[1] == 32).all() and not report.races and not report.hazards
    first = compiled("\n".join(KERNEL.values()), shared=2048)
    with pytest.warns(AsmWarning, match="capsule"):
        anew = turingas.schedule(first, keep=False).to_bytes()
    assert not [str(f) for cubin in (first, anew) for f in turingas.lint(cubin) if f.severity != "note"]
    out = np.zeros((2, WORDS, 128), np.float32)
    report = launch(anew, "k", 1, 128, [out, np.zeros(1, np.uint32)], strict=True)
    assert (out[0] == 16).all() and (out[1] == 32).all() and not report.hazards


#: what is changed, the races (kind, instructions), what both loads find, and what they find with --stale
NONE = np.float32(np.nan)
NAMES = re.compile(r"STTM|LDTM|UTC[A-Z]+|STS|SYNCS")
#: a wait for the first phase may come when the second one is over, whose arrival may come first
MISSED = {("MISSED", "SYNCS", "UTCBAR"), ("PHASE", "UTCBAR", "UTCBAR")}
FAULTS = {
    "no wait::st": ({"wait::st": ""}, {("RAW", "STTM", "UTCHMMA")}, (0, 0), (0, 0)),
    "no barrier": ({"barrier": ""}, {("RAW", "STTM", "UTCHMMA"), ("RAW", "STS", "UTCHMMA")}, None, None),
    "no phase": ({"phase": "", "last phase": wait("TWO", 0) + wait("THREE", 1)},
                 {("RAW", "UTCHMMA", "LDTM"), *MISSED}, (0, 32), (NONE, 32)),
    "no wait::ld": ({"wait::ld": ""}, {("WAR", "LDTM", "UTCHMMA")}, (16, 32), (16, 32)),
    "no barrier between": ({"barrier between": ""}, {("WAR", "LDTM", "UTCHMMA"), ("MISSED", "SYNCS", "UTCBAR")},
                           (16, 32), (16, 32)),
    "another warp goes on": (
        {"second": KERNEL["second"].replace("@!%one", "setp.ne.u32 %p3, %thread, 32; @%p3"), "phase": "",
         "last phase": wait("TWO", 0) + wait("THREE", 1), "load": "", "wait::ld": ""},
        {("WAW", "UTCHMMA", "UTCHMMA"), *MISSED}, None, None),
    "a copy is read": ({"load": "@!%one bra COPY; tcgen05.cp.cta_group::1.32x128b.warpx4 [%tm], %d1; COPY:" + load(32)},
                       {("RAW", "UTCCP", "LDTM")}, None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_not(name: str) -> None:
    changed, races, values, stale = FAULTS[name]
    out, report = run(changed, races=True)
    found = {(race.kind, *(NAMES.findall(str(at))[-1] for at in (race.first, race.second))) for race in report.races}
    assert found == races
    for options, wanted in (({}, values), ({"stale": True}, stale)):
        if wanted is not None:
            out, _ = run(changed, **options)
            np.testing.assert_array_equal(out, np.broadcast_to(np.float32(wanted)[:, None, None], out.shape))


def ring(empty: str) -> str:
    """Warp 1 copies B, twice to one place; warp 0 multiplies it, and tells the mbarrier behind it when that is over."""
    bulk = (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r204], 2048;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r200], [%in], 2048, [%r204];"
    )
    product = "tcgen05.mma.cta_group::1.kind::f16 [%tm], [%r206], %d1, %r203, %p1;"
    last = ("" if empty else wait("ONCE", 0)) + wait("TWICE", 1)
    begin = re.sub(r"st\.shared\.v4\.b32 [^;]*;", "", KERNEL["begin"])
    return "\n".join([
        begin, "add.u32 %r208, %r200, 2048; @%one mbarrier.init.shared::cta.b64 [%r208], 1; fence.proxy.async;",
        KERNEL["store"], KERNEL["wait::st"], MEET, "setp.eq.u32 %p3, %thread, 32; @!%p3 bra LOADED;",
        bulk, empty, "add.u64 %in, %in, 2048;", bulk, "LOADED: @!%one bra DONE;",
        wait("FULL", 0), product, COMMIT.replace("%r204", "%r208"), "setp.eq.u32 %p1, %thread, %thread;",
        wait("AGAIN", 1), product, COMMIT.replace("%r204", "%r208"), "DONE:",
        "@!%p3 bra MET;", last.replace("%r204", "%r208"), "MET:", MEET, load(64),
        "tcgen05.wait::ld.sync.aligned;", stored(64, WORDS, 0),
    ])  # fmt: skip


@pytest.mark.parametrize("waits", [True, False])
def test_a_commit_tells_of_what_came_before(waits: bool) -> None:
    """Who waits for it knows that the copy is over, too, which only the warp that multiplies has waited for."""
    cubin = compiled(ring(wait("EMPTY", 0).replace("%r204", "%r208") if waits else ""), shared=2064)
    b, out = np.repeat(np.array([1, 2], np.float16), 1024), np.zeros((WORDS, 128), np.float32)
    report = launch(cubin, "k", 1, 128, [out, b], races=True, budget=50_000)
    found = {race.kind for race in report.races if "UBLKCP" in str(race.first) and "UBLKCP" in str(race.second)}
    assert not report.races and (out == 16 + 32).all() if waits else "WAW" in found
