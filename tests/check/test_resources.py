"""Registers, shared memory and barriers against what is declared and what there is."""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from tests.tools import nvrtc
from turingas.check import resources
from turingas.check.finding import Finding
from turingas.cubin import nvinfo
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.info import resident_warps
from turingas.isa.isa import instruction_set

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
    one.shared_bytes = 49 * 1024  # sm_90: the reserved one is among them
    assert (wrong(one) == []) == (arch == "sm_90")
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


# Warps that branch to `more` ask for registers, until they get them; the others give some up. R<n> are used.
ROLES = """
.registers {declared}
    --:-:-:-:4   MOV R{first}, RZ;
    --:-:-:-:5   @P0 BRA more;
    --:-:0:Y:0   USETMAXREG.DEALLOC.CTAPOOL {less};
    01:-:-:-:4   MOV R{low}, RZ;
    --:-:-:-:5   BRA both;
more:
    --:-:0:-:2   USETMAXREG.TRY_ALLOC.CTAPOOL UP0, {more};
    01:-:-:Y:d   PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0;
    --:-:-:-:5   @!P0 BRA more;
    --:-:-:-:4   MOV R{high}, RZ;
both:
    --:-:-:-:4   MOV R{last}, RZ;
    --:-:-:Y:5   EXIT;
"""
FINE = {"declared": 128, "first": 125, "less": 40, "low": 37, "more": 232, "high": 229, "last": 37}


def roles(**changes: object) -> list[Finding]:
    return wrong(kernel("sm_90a", ROLES.format(**{**FINE, **changes})))


def test_registers_that_warps_pass_on():
    """USETMAXREG gives a warp more than the kernel declares, or less; the hardware keeps two of them."""
    assert roles() == []


@pytest.mark.parametrize("changes, text, before, takes", [
    ({"first": 126}, "R126 is used, and the warp has 128 registers", None, 136),
    ({"low": 38}, "R38 is used, and the warp has 40 registers", "DEALLOC", 48),
    ({"less": 32, "last": 2}, "R37 is used, and the warp has 32 registers", "DEALLOC", 40),
    ({"high": 230}, "R230 is used, and the warp has 232 registers", "TRY_ALLOC", 240),
    ({"more": 192}, "R229 is used, and the warp has 192 registers", "TRY_ALLOC", 232),
    ({"last": 41}, "R41 is used, and the warp has 40 registers", "DEALLOC", 48),  # the way with the fewest counts
])  # fmt: skip
def test_registers_that_a_warp_has_not(changes, text, before, takes):
    (found,) = roles(**changes)
    assert (found.kind, found.severity) == ("registers", "error") and text in found.message
    assert f"that takes {takes} registers" in found.hint
    assert found.text.startswith("MOV") and found.text.split()[1].strip(",") == text.split()[0]
    assert (before or "") in found.other_text and (found.other is None) == (before is None)


def test_a_warp_that_may_have_given_up_registers():
    """With a guard, both ways count; how many a register says is not known."""
    source = ".registers 64\n--:-:0:Y:0 {} USETMAXREG.DEALLOC.CTAPOOL {};\n01:-:-:-:4 MOV R40, RZ;\n--:-:-:Y:5 EXIT;"
    assert [f.kind for f in wrong(kernel("sm_90a", source.format("@UP1", "0x20")))] == ["registers"]
    assert wrong(kernel("sm_90a", source.format("@UP1", "0x30"))) == []
    assert wrong(kernel("sm_90a", source.format("", "UR4"))) == []


def test_registers_in_a_function():
    source = """
    --:-:0:Y:0   USETMAXREG.DEALLOC.CTAPOOL 0x28;
    01:-:-:-:5   CALL.REL.NOINC below;
    --:-:-:Y:5   EXIT;
below:
    --:-:-:-:4   MOV R{}, RZ;
    --:-:-:Y:5   RET.REL.NODEC R2 0x0;"""
    assert wrong(kernel("sm_90a", source.format(37))) == []
    assert ["R38 is used" in f.message for f in wrong(kernel("sm_90a", source.format(38)))] == [True]


SETMAXNREG = """
template<int N> __device__ __forceinline__ void work(const float* in, float* out, int steps) {
    float a[N];
    #pragma unroll
    for (int i = 0; i < N; i++) a[i] = in[i * 256 + threadIdx.x];
    for (int s = 0; s < steps; s++) {
        #pragma unroll
        for (int i = 0; i < N; i++) a[i] = a[i] * a[(i * 7 + 3) % N] + in[s];
    }
    #pragma unroll
    for (int i = 0; i < N; i++) out[i * 256 + threadIdx.x] = a[i];
}
extern "C" __global__ void __launch_bounds__(384, 1) roles(const float* in, float* out, int steps) {
    if (threadIdx.x < 256) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        work<230>(in, out, steps);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        work<20>(in + steps, out + 77, steps);
    }
    asm volatile("bar.sync 0;");
    out[blockIdx.x] = in[threadIdx.x];
}
"""


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
def test_compiled_with_setmaxnreg():
    """The compiler uses all that it may, which is what the linter says: R237 of 240 registers."""
    (one,) = Cubin.from_bytes(nvrtc.compile_source(SETMAXNREG, "sm_90a")).kernels
    assert one.registers == 168
    assert max(instruction_set("sm_90a").registers(word) for word in one.words) == 240 - 2
    assert wrong(one) == []


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_compiled(path):
    for text in Cubin.from_file(path).texts:
        assert wrong(text) == []
