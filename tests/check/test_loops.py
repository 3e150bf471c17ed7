"""The summary of loops, held against what was measured on an H200 (docs/linter.md has the table)."""

from __future__ import annotations

from pathlib import Path

import pytest

import turingas
from turingas.check import loops
from turingas.flow.graph import Graph

# One loop of 512 FFMA: an outer product of 8 by 8, eight times. C is in R0 to R63; A and B are double-buffered.
OUTER = """
<code>
def registers(i, j, k, odd):
    c = 8 * j + (i ^ odd)
    return c, 64 + 16 * (k % 2) + i, 96 + 16 * (k % 2) + j

sequence = []
for k in range(8):
    for j in range(8):
        rows = range(8) if j % 2 == 0 else range(7, -1, -1)
        sequence += [registers(i, j, k, OPPOSITE) for i in rows]
if ONE_BANK:
    sequence = [(4, 64, 96)] * 256

out_ = "--:-:-:-:4  MOV R200, RZ;\\ntop:\\n"
for n, (c, a, b) in enumerate(sequence):
    after = sequence[(n + 1) % len(sequence)]
    reuse_a = ".reuse" if REUSE_A and after[1] == a else ""
    reuse_b = ".reuse" if REUSE_B and after[2] == b else ""
    out_ += f"--:-:-:{'Y' if YIELD and n % YIELD == 0 else '-'}:{STALL}"
    if YIELD and n % YIELD == 0:
        reuse_a = reuse_b = ""
    out_ += f"  FFMA R{c}, R{a}{reuse_a}, R{b}{reuse_b}, R{c};\\n"
</code>
--:-:-:-:4   IADD3 R200, R200, 0x1, RZ;
--:-:-:Y:d   ISETP.LT.AND P0, PT, R200, 0x100, PT;
--:-:-:Y:5   @P0 BRA top;
--:-:-:Y:5   EXIT;
"""
#: pattern -> what is defined for it, and cycles of 8 warps (two a scheduler) on an H200
MEASURED = {
    "best": ({"REUSE_A": 1, "REUSE_B": 1, "OPPOSITE": 1}, 1061),
    "reuse of B": ({"REUSE_A": 0, "REUSE_B": 1, "OPPOSITE": 1}, 1110),
    "no reuse": ({"REUSE_A": 0, "REUSE_B": 0, "OPPOSITE": 1}, 1812),
    "one bank": ({"ONE_BANK": 1}, 1552),
    "yield every 32": ({"REUSE_A": 1, "REUSE_B": 1, "YIELD": 32}, 1094),
    "yield every 16": ({"REUSE_A": 1, "REUSE_B": 1, "YIELD": 16}, 1123),
    "yield every 8": ({"REUSE_A": 1, "REUSE_B": 1, "YIELD": 8}, 1126),
    "yield every 7": ({"REUSE_A": 1, "REUSE_B": 1, "YIELD": 7}, 1147),
    "yield every 4": ({"REUSE_A": 1, "REUSE_B": 1, "YIELD": 4}, 1187),
}
OVERHEAD = 35  # cycles of the loop itself, two warps


def outer(arch: str = "sm_90", **defines: int) -> loops.LoopSummary:
    stall = 1 if arch > "sm_80" else 2
    names = dict.fromkeys(("REUSE_A", "REUSE_B", "ONE_BANK", "YIELD"), 0)
    everything = {**names, "OPPOSITE": 1, "STALL": stall, **defines}
    cubin = turingas.assemble(OUTER, arch, everything, filename="outer.sass")
    (found,) = loops.summary(Graph(cubin.kernels[0]))
    return found


@pytest.mark.parametrize("name", MEASURED)
def test_cycles_of_hopper(name):
    """Stalls and conflicts of the FFMA come within 1.5% of the measured cycles."""
    defines, measured = MEASURED[name]
    found = outer(**defines)
    assert 2 * (found.pipes["fma"] + found.conflicts) + OVERHEAD == pytest.approx(measured, rel=0.015)


def test_order_of_the_patterns():
    best, reuse_of_b, none = (outer(**MEASURED[name][0]).conflicts for name in ("best", "reuse of B", "no reuse"))
    assert best < reuse_of_b < none


def test_all_three_sources_in_one_bank():
    assert outer(**MEASURED["one bank"][0]).conflicts == pytest.approx(2 * 256, abs=3)  # 3 cycles each on sm_90
    turing = outer("sm_75", ONE_BANK=1)
    assert turing.conflicts == 256 and turing.bounds["fma"] == 512  # one cycle more each: Yan, Wang, Chu 2020
    assert outer("sm_75", REUSE_B=1).conflicts == 0


def test_what_bounds_it():
    best = outer(**MEASURED["best"][0])
    assert best.math == "FFMA" and best.share == 512 / 515
    assert best.instructions == 515 and best.pipes == {"fma": 512, "alu": 2, "branch": 1}
    assert best.bound in ("register banks", "issue slots")
    assert best.least <= 530 and best.warps == 1 and best.stalls == 512 + 4 + 13 + 5
    none = outer(**MEASURED["no reuse"][0])
    assert none.bound == "register banks" and 768 <= none.least <= 772  # three reads in two banks
    assert outer("sm_75", REUSE_B=1).bound == "fma"
    slow = outer(STALL=4)
    assert slow.bound == "register banks" and slow.warps == 3  # 2048 cycles of stalls, 770 of reads


def test_yields():
    found = outer(REUSE_A=1, REUSE_B=1, YIELD=8)
    assert found.yields == 64 + 2 and found.conflicts > outer(REUSE_A=1, REUSE_B=1).conflicts


LOOPS = """
--:-:-:-:4   MOV R0, RZ;
outer:
--:-:-:-:4   MOV R1, RZ;
inner:
--:-:-:-:6   IADD3 R1, R1, 0x1, RZ;
--:-:0:-:2   LDS R4, [R1];
01:-:-:Y:d   ISETP.LT.AND P0, PT, R4, 0x10, PT;
--:-:-:Y:5   @P0 BRA inner;
--:-:-:-:6   IADD3 R0, R0, 0x1, RZ;
--:-:-:Y:d   ISETP.LT.AND P1, PT, R0, 0x10, PT;
--:-:-:Y:5   @P1 BRA outer;
--:-:-:Y:5   EXIT;
"""


def test_nested_loops():
    cubin = turingas.assemble(LOOPS, "sm_75", filename="loops.sass")
    outside, inside = loops.summary(Graph(cubin.kernels[0]))
    assert (outside.start, outside.end, outside.depth) == (0x10, 0x90, 1)
    assert (inside.start, inside.end, inside.depth) == (0x20, 0x60, 2)
    assert inside.instructions == 4 and outside.instructions == 4
    assert inside.pipes == {"alu": 2, "lsu": 1, "branch": 1} and inside.waits == 1 and inside.stalls == 26
    text = str(inside)
    assert "loop 0x0020 to 0x0050" in text and "26 of stalls" in text and "1 waits" in text


def test_no_loops():
    """The branch to itself behind the code is none."""
    cubin = turingas.assemble("--:-:-:Y:5 EXIT;", "sm_75")
    assert loops.summary(Graph(cubin.kernels[0])) == []


PRODUCTS = """
<code>
def line(code, text):
    return f"{code}  {text};\\n"
for n in range(6):
    out_ += line("--:-:0:-:2", f"LDSM.16.M88.4 R{64 + 4 * n}, [R2+{hex(512 * n)}]")
for n in range(16):
    wait = "01" if n == 0 else "--"
    out_ += line(f"{wait}:-:-:-:2", f"HMMA.16816.F32 R{4 * n}, R{64 + 4 * (n % 4)}, R{80 + 2 * (n % 4)}, R{4 * n}")
</code>
"""


def test_tensor_cores_bound_a_matrix_product():
    """16 products of which each keeps its tensor core busy for some cycles, beside the loads of what they multiply."""
    source = "next:\n" + PRODUCTS.replace("R2+", "R100+") + "--:-:-:Y:d  ISETP.LT.AND P0, PT, R101, R102, PT;\n"
    source += "--:-:-:Y:5  @P0 BRA next;\n--:-:-:Y:5  EXIT;\n"
    for arch, cycles in (("sm_80", 128), ("sm_86", 256), ("sm_90", 96)):
        (found,) = loops.summary(Graph(turingas.assemble(source, arch).kernels[0]))
        assert (found.bound, found.least, found.math) == ("tensor", cycles, "HMMA"), arch


def test_what_an_h200_measured():
    """64 products in a round: `turingas bench hmma` measured 772 cycles for two warps, and 16388 of a warp group's."""
    folder = Path(__file__).parents[2] / "kernels_sass" / "micro"
    for file, op, cycles in (("hmma", "HMMA.16816.F32", 384), ("hgmma", "HGMMA.64x256x16.F32", 8192)):
        cubin = turingas.assemble((folder / f"{file}.sass").read_text(), "sm_90a", {"OP": op}, filename=f"{file}.sass")
        found = loops.summary(Graph(cubin.kernels[0]))[-1]
        assert (found.bound, found.least) == ("tensor", cycles)
