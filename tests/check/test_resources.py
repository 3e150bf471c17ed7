"""Registers, shared memory and barriers against what is declared and what there is."""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from turingas.check import resources
from turingas.check.finding import Finding
from turingas.check.flow import Graph
from turingas.cubin import nvinfo
from turingas.info import resident_warps
from turingas.program import Cubin, Kernel

SOURCE = "--:-:-:-:4 MOV R37, RZ;\n--:-:-:Y:6 BAR.SYNC 0x3;\n--:-:-:Y:5 EXIT;"


def kernel(arch: str = "sm_75", source: str = SOURCE) -> Kernel:
    (found,) = turingas.assemble(source, arch).kernels
    return found


def check(one: Kernel) -> list[Finding]:
    return list(resources.check(Graph(one)))


def wrong(one: Kernel) -> list[Finding]:
    return [f for f in check(one) if f.severity != "note"]


def test_right():
    assert wrong(kernel()) == []


def test_too_few_registers():
    one = kernel()
    one.registers = 37
    (found,) = wrong(one)
    assert (found.kind, found.severity, found.address) == ("registers", "error", 0) and "R37" in found.message
    one.registers = 38
    assert wrong(one) == []


def test_wide_operands_count():
    one = kernel(source="--:-:0:-:4 LDG.E.128.SYS R40, [R2];\n01:-:-:Y:5 EXIT;")
    one.registers = 43
    assert [f.kind for f in wrong(one)] == ["registers"] and "R43" in wrong(one)[0].message


def test_more_than_a_thread_has():
    one = kernel()
    one.registers = 256
    assert [f.kind for f in wrong(one)] == ["registers"]


def test_block_that_does_not_fit():
    one = kernel()
    one.attributes.append(nvinfo.sval("MAX_THREADS", 1024, 1, 1))
    one.registers = 64
    assert wrong(one) == []
    one.registers = 72
    assert [f.kind for f in wrong(one)] == ["registers"] and "1024 threads" in wrong(one)[0].message


@pytest.mark.parametrize(
    "arch, most", [("sm_70", 96), ("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_89", 99), ("sm_90", 227)]
)
def test_shared_memory(arch, most):
    one = kernel(arch)
    one.shared_bytes = 48 * 1024
    assert wrong(one) == []
    one.shared_bytes = 50 * 1024
    (found,) = wrong(one)
    assert found.kind == "shared-memory" and "dynamic" in found.hint and f"{most} KB" in found.hint
    one.shared_bytes = (most + 2) * 1024
    assert [f.kind for f in wrong(one)] == ["shared-memory"] and "dynamic" not in wrong(one)[0].hint


def test_barriers():
    one = kernel()
    one.barriers = 3
    (found,) = wrong(one)
    assert (found.kind, found.address) == ("barriers", 16) and "barrier 3 is used" in found.message
    one.barriers = 17
    assert [f.kind for f in wrong(one)] == ["barriers"]
    any_barrier = kernel(source="--:-:-:Y:6 BAR.SYNC R2, R2;\n--:-:-:Y:5 EXIT;")
    any_barrier.barriers = 1
    assert wrong(any_barrier) == []  # its number is not known


def test_occupancy():
    one = kernel()
    (note,) = check(one)
    assert note.kind == "occupancy" and note.severity == "note"
    warps, limit = resident_warps(one.facts, one.registers, one.shared_bytes, 256)
    assert f"{warps} of 32 warps fit on an SM in blocks of 128, 256, 512, 1024 threads" in note.message
    assert f"limited by {limit}" in note.message
    one.registers = 80
    assert "16 of 32 warps fit on an SM in blocks of 512 threads (limited by registers)" in check(one)[0].message
    one.entry = False
    assert check(one) == []


def test_registers_that_warps_pass_on():
    """USETMAXREG gives a warp more than the kernel declares."""
    one = kernel("sm_90a", "--:-:-:Y:5 USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8;\n" + SOURCE)
    one.registers = 24
    assert wrong(one) == []


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_compiled(path):
    for text in Cubin.from_file(path).texts:
        assert wrong(text) == []
