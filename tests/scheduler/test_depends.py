"""Which instruction must stay behind which: each rule with a pair that must not change places, and one that may; and
random orders that keep all edges, run on the CPU device."""

from __future__ import annotations

import hashlib
import random

import pytest

import turingas
from tests.kernels.cases import ARCHS, CASES, Case, difference
from tests.tools import nvrtc
from turingas.assembler.schedule import again
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate import launch
from turingas.flow.graph import Graph
from turingas.scheduler.depends import ANTI, MEMORY, OUTPUT, TRUE, WALL, Edge, depends, named
from turingas.scheduler.order import put
from turingas.scheduler.ways import Ways


def edges(*lines: str, arch: str = "sm_90") -> list[Edge]:
    """The edges of the first block."""
    kernel = turingas.schedule("\n".join([*lines, "EXIT;"]), arch).texts[0]
    ways = Ways(Graph(kernel))
    walls = named(kernel, ways.graph)
    assert walls is not None
    return depends(ways, 0, walls)


def kind(first: str, second: str, arch: str = "sm_90") -> str:
    """The kind of the edge between two instructions; "" for none."""
    return next((e.kind for e in edges(first, second, arch=arch) if (e.first, e.second) == (0, 1)), "")


STAY = [
    # a volatile access to shared memory looks like any other
    ("STS [R2], R0", "LDS R1, [R2+0x4]", MEMORY), ("LDS R0, [R2]", "STS [R2+0x4], R1", MEMORY),
    # registers
    ("FADD R0, R1, R2", "FADD R3, R0, R0", TRUE), ("FADD R0, R1, R2", "MOV R1, RZ", ANTI),
    ("MOV R0, R1", "MOV R0, R2", OUTPUT), ("IMAD.WIDE R2, R0, R1, R4", "MOV R8, R3", TRUE),
    ("ULDC UR4, c[0x0][0x20]", "IADD3 R0, R1, UR4, RZ", TRUE),
    ("ISETP.EQ.AND P0, PT, R0, RZ, PT", "@P0 MOV R1, RZ", TRUE),
    ("@P0 MOV R1, RZ", "ISETP.EQ.AND P0, PT, R0, RZ, PT", ANTI), ("R2P PR, R0, 0x7f", "@P3 MOV R1, RZ", TRUE),
    ("@P1 MOV R0, R1", "@P2 MOV R0, R2", OUTPUT), ("@P1 MOV R0, R1", "MOV R2, R0", TRUE),
    ("UIADD3 UR4, UR5, UR6, URZ", "UMOV UR5, 0x1", ANTI), ("LDG.E R0, desc[UR4][R2.64]", "MOV R2, RZ", ANTI),
    ("LDG.E R0, desc[UR4][R2.64]", "FADD R1, R0, R0", TRUE),
    # memory
    ("LDS R0, [R2]", "STS [R3], R1", MEMORY), ("STS [R2], R0", "LDS R1, [R3]", MEMORY),
    ("STS [R2], R0", "STS [R3], R1", MEMORY), ("STS.64 [R2], R4", "LDS R1, [R2+0x4]", MEMORY),
    ("ST.E desc[UR4][R2.64], R0", "LDS R1, [R8]", MEMORY), ("STL [R1], R0", "LDL R2, [R3]", MEMORY),
    ("STG.E desc[UR4][R2.64], R0", "LDG.E R1, [R8.64+UR6+0x8]", MEMORY),
    ("ATOMS.ADD R0, [R2], R1", "LDS R4, [R2+0x10]", MEMORY),
    ("LDG.E.STRONG.SYS R0, desc[UR4][R2.64]", "LDG.E R1, desc[UR4][R8.64]", MEMORY),
    ("REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R0", "LDG.E R1, desc[UR4][R8.64]", MEMORY),
    ("LDG.E.CONSTANT R0, desc[UR4][R2.64]", "MEMBAR.SC.GPU", MEMORY),
    # barriers, fences, asynchronous copies
    ("LDS R0, [R2]", "BAR.SYNC 0x0", ""), ("BAR.SYNC 0x0", "LDS R0, [R2]", TRUE),
    ("BAR.SYNC 0x0", "VOTE.ANY R0, PT, P0", MEMORY), ("STG.E desc[UR4][R2.64], R0", "MEMBAR.SC.GPU", MEMORY),
    ("MEMBAR.SC.GPU", "LDG.E R0, desc[UR4][R2.64]", MEMORY), ("LDGSTS.E [R0], desc[UR4][R2.64]", "LDGDEPBAR", MEMORY),
    ("LDGDEPBAR", "LDGSTS.E [R0], desc[UR4][R2.64]", MEMORY), ("LDGDEPBAR", "DEPBAR.LE SB0, 0x0", MEMORY),
    ("DEPBAR.LE SB0, 0x0", "LDS R0, [R2]", TRUE), ("LDGSTS.E [R0], desc[UR4][R2.64]", "LDS R4, [R5]", MEMORY),
    ("STS [R5], R4", "UBLKCP.S.G [UR8], [UR4], UR6", MEMORY),
    ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "LDS R4, [R5]", MEMORY),
    ("FENCE.VIEW.ASYNC.S", "UBLKCP.S.G [UR8], [UR4], UR6", MEMORY), ("STS [R5], R4", "FENCE.VIEW.ASYNC.S", MEMORY),
    ("UTMASTG.2D [UR8], [UR4]", "UTMACMDFLUSH", MEMORY),
    ("STS [R5], R4", "HGMMA.64x8x16.F32 R24, gdesc[UR4], RZ, !UPT", MEMORY),
    # walls
    ("FADD R0, R1, R2", "NOP", WALL), ("CS2R R0, SR_CLOCKLO", "FADD R3, R4, R5", WALL),
    ("WARPSYNC R4", "MOV R0, R1", WALL), ("S2R R0, SR_CLOCKLO", "FADD R3, R1, R2", WALL),
    ("YIELD", "MOV R0, R1", WALL), ("NANOSLEEP 0x64", "MOV R0, R1", WALL), ("BSYNC B0", "MOV R0, R1", WALL),
    ("WARPGROUP.ARRIVE", "MOV R0, R1", WALL), ("MOV R0, R1", "EXIT", WALL),
]  # fmt: skip

MAY = [
    ("FADD R0, R1, R2", "FADD R3, R1, R2"), ("@P1 MOV R0, R1", "@!P1 MOV R0, R2"),
    ("@P1 MOV R0, R1", "@!P1 MOV R3, R0"), ("@P1 MOV R3, R0", "@!P1 MOV R0, R2"), ("LDS R0, [R2]", "LDS R1, [R3]"),
    ("STL [R2], R0", "LDL R1, [R2+0x4]"), ("STS.64 [R2], R4", "STS [R2+0x8], R1"),
    ("LDS R0, [R2]", "STG.E desc[UR4][R8.64], R1"), ("STL [R1], R0", "STS [R1], R0"),
    ("STG.E desc[UR4][R2.64], R0", "LDG.E.CONSTANT R1, desc[UR4][R8.64]"),
    ("STG.E desc[UR4][R2.64], R0", "LDC R1, c[0x3][R8]"), ("@P1 STS [R2], R0", "@!P1 LDS R1, [R3]"),
    ("STL.U8 [R2], R4", "LDL.U8 R5, [R2+0x1]"), ("STL.U16 [R2], R4", "STL.U16 [R2+0x2], R5"),
    ("BAR.SYNC 0x0", "FADD R0, R1, R2"), ("FADD R0, R1, R2", "BAR.SYNC 0x0"),
    ("MEMBAR.SC.GPU", "IADD3 R0, R1, R2, RZ"), ("LDGDEPBAR", "LDG.E R0, desc[UR4][R2.64]"),
    ("CS2R R0, SRZ", "FADD R3, R4, R5"), ("S2R R0, SR_TID.X", "FADD R3, R1, R2"),
    ("IADD3 R0, R1, UR4, RZ", "IADD3 R3, R1, UR4, RZ"), ("SHFL.DOWN PT, R0, R1, 0x10, 0x1f", "STS [R2], R4"),
]  # fmt: skip


@pytest.mark.parametrize("first, second, wanted", STAY)
def test_stay(first: str, second: str, wanted: str) -> None:
    found = kind(first + ";", second + ";")
    assert found and wanted in ("", found)


@pytest.mark.parametrize("first, second", MAY)
def test_may_change_places(first: str, second: str) -> None:
    assert not kind(first + ";", second + ";")


def test_a_generic_address_is_another_place_than_a_local_one() -> None:
    assert kind("STL [R2], R0;", "LD.SYS R4, [R2+0x4];", "sm_75") == MEMORY


@pytest.mark.parametrize("offset, wanted", [("0x1c", MEMORY), ("0x20", "")])
def test_an_access_of_256_bits(offset: str, wanted: str) -> None:
    load = f"LDG.E R16, desc[UR4][R2.64+{offset}];"
    assert kind("STG.E.ENL2.256 desc[UR4][R2.64], R8, R12;", load, "sm_100") == wanted


@pytest.mark.parametrize("first, second", [
    ("UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", "UTCBAR [UR12], URZ"),
    ("STTM.x4 tmem[UR6], R4", "UTCQMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT"),
    ("FENCE.VIEW.ASYNC.T", "UTCIMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT"),
    ("UMEMSETS.64 [UR4], URZ, UR6", "LDS R0, [R2]"),
])  # fmt: skip
def test_what_reaches_tensor_memory_stays(first: str, second: str) -> None:
    assert kind(first + ";", second + ";", "sm_100a") == MEMORY


def test_another_value_of_a_base() -> None:
    """Offsets tell accesses apart only where they count from the same value."""
    found = edges("STS [R2], R0;", "IADD3 R2, R2, 0x4, RZ;", "STS [R2-0x4], R1;")
    assert any(e.kind == MEMORY and (e.first, e.second) == (0, 2) for e in found)


def test_readers_of_a_uniform_register_are_not_ordered() -> None:
    """But each stays before whoever overwrites it."""
    found = edges("UIADD3 UR6, UR4, 0x1, URZ;", "UIADD3 UR7, UR4, 0x2, URZ;", "UMOV UR4, URZ;")
    assert {(e.first, e.second) for e in found if e.second < 3} == {(0, 2), (1, 2)}


def test_cycles() -> None:
    """Fixed latencies are those that the linter knows; others are to be expected."""
    found = {(e.first, e.second): e.cycles for e in edges("IADD3 R0, R1, R2, RZ;", "FFMA R3, R0, R0, R0;")}
    assert found[0, 1] == 5
    found = {(e.first, e.second): e.cycles for e in edges("LDS R0, [R2];", "FFMA R3, R0, R0, R0;")}
    assert found[0, 1] == 29


def test_what_is_named_is_a_wall() -> None:
    text = "BSSY B0, HERE;\nMOV R0, R1;\nMOV R4, R5;\nHERE:\nMOV R2, R3;\nBSYNC B0;"
    assert (1, 3, WALL) in {(e.first, e.second, e.kind) for e in edges(text)}
    assert not [e for e in edges(text.replace("BSSY B0, HERE;", "MOV R8, R9;")) if (e.first, e.second) == (1, 3)]


# -- any order that keeps the edges is right

FILES = ("groups.cu", "halves.cu", "carries.sass", "groups.cu", "parts.sass", "classics.cu")


def shuffle(kernel: Kernel, rng: random.Random) -> bool:
    """Bring each block into a random order that keeps all edges. Whether that is another one."""
    ways = Ways(Graph(kernel))
    walls = named(kernel, ways.graph)
    order: list[int] = []
    for number, block in enumerate(ways.graph.blocks):
        if walls is None:
            order += range(block.start, block.end)
            continue
        before: dict[int, int] = dict.fromkeys(range(block.start, block.end), 0)
        behind: dict[int, list[int]] = {n: [] for n in before}
        for edge in depends(ways, number, walls):
            before[edge.second] += 1
            behind[edge.first].append(edge.second)
        ready = [n for n, count in before.items() if not count]
        while ready:
            n = ready.pop(rng.randrange(len(ready)))
            order.append(n)
            for m in behind[n]:
                before[m] -= 1
                if not before[m]:
                    ready.append(m)
    assert sorted(order) == list(range(len(kernel.words)))
    put(kernel, order)
    return order != sorted(order)


_SHUFFLED: dict[bytes, bytes] = {}


def check(case: Case, arch: str) -> None:
    data = case.cubin(arch)
    if data not in _SHUFFLED:
        cubin = Cubin.from_bytes(data)
        changed, rng = 0, random.Random(hashlib.sha256(data).digest())
        for kernel in cubin.texts:
            changed += shuffle(kernel, rng)
        assert changed
        _SHUFFLED[data] = again(cubin)[0].to_bytes()
        wrong = [f for f in turingas.lint(_SHUFFLED[data]) if f.severity != "note"]
        assert not wrong, (case.name, arch, wrong[0])
    args, truth = case.build()
    report = launch(_SHUFFLED[data], case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
    assert not report.hazards, (case.name, arch, report.hazards[0])
    for arg, wanted in zip(args, truth):
        if wanted is not None:
            assert not difference(arg, wanted, case.near), (case.name, arch)


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch, source", list(zip(ARCHS, FILES)))
def test_random_orders_run_as_before(arch: str, source: str) -> None:
    """A file of test kernels on each architecture, in strict mode; the rest with ``make test-slow``."""
    chosen = [case for case in CASES if arch in case.archs and case.source == source]
    assert chosen
    for case in chosen:
        check(case, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_orders_of_every_kernel(case: Case) -> None:
    for arch in case.archs:
        check(case, arch)
