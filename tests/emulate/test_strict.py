"""The scoreboard mode: each rule with a kernel that keeps it and one that breaks it."""

from __future__ import annotations

import numpy as np
import pytest

import turingas
from turingas.emulate import launch

GOOD = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:1:0:-:2 LDG.E.SYS R6, [R4];
02:-:-:-:6 MOV R4, 0x7;
01:-:-:-:6 IADD3 R6, R6, R4, RZ;
--:-:-:Y:d ISETP.GT.AND P0, PT, R0, 0x3, PT;
--:-:-:-:6 @P0 IADD3 R6, R6, 0x64, RZ;
--:0:-:-:2 STG.E.SYS [R8], R6;
01:-:-:-:2 MOV R6, 0x0;
--:-:-:-:5 EXIT;
"""


def run(source, stale=False, arch="sm_75"):
    cubin = turingas.assemble(source.format(arch=arch), arch=arch, filename="k.sass")
    values, out = np.arange(32, dtype=np.int32) * 10, np.zeros(32, np.int32)
    report = launch(cubin, "k", 1, 32, [out, values], strict=True, stale=stale)
    return out, report.hazards


RIGHT = np.arange(32) * 10 + 7 + 100 * (np.arange(32) > 3)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_a_kernel_that_keeps_the_rules(arch):
    out, hazards = run(GOOD, stale=True, arch=arch)
    assert hazards == []
    assert (out == RIGHT).all()


BROKEN = [
    # what is changed, kind, lines of the two instructions, what a GPU would compute (None: not looked at)
    ("02:-:-:-:6 MOV R4, 0x7", "02:-:-:-:1 MOV R4, 0x7", "raw-stall", (11, 12), None),
    ("ISETP.GT.AND P0", "ISETP.GT.AND P0", None, None, RIGHT),
    ("--:-:-:Y:d ISETP", "--:-:-:Y:4 ISETP", "raw-stall", (13, 14), np.arange(32) * 10 + 7),
    ("--:-:0:-:2 S2R", "--:-:-:-:2 S2R", "no-scoreboard", (6, 8), None),
    ("01:-:-:-:6 IADD3 R6", "--:-:-:-:6 IADD3 R6", "raw", (10, 12), 7 + 100 * (np.arange(32) > 3)),
    ("02:-:-:-:6 MOV R4", "--:-:-:-:6 MOV R4", "war", (10, 11), None),
    ("--:1:0:-:2 LDG", "--:-:0:-:2 LDG", "war", (10, 11), None),
    ("01:-:-:-:2 MOV R6", "--:-:-:-:2 MOV R6", "war", (15, 16), None),
    ("--:-:0:-:2 S2R", "--:-:0:-:1 S2R", None, None, RIGHT),  # MOV stands between
    ("--:1:0:-:2 LDG", "--:1:0:-:1 LDG", "wait-too-soon", (10, 11), None),
    ("--:-:-:-:6 IMAD.WIDE R8", "--:-:-:-:2 IMAD.WIDE R8", None, None, RIGHT),
    ("01:-:-:-:6 IADD3 R6, R6, R4, RZ;\n", "01:-:-:-:6 IADD3 R6, R6, R4, RZ;\n--:-:-:-:2 LDG.E.SYS R6, [R8];\n",
     "no-scoreboard", (13, 15), None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind", "lines", "computed"), BROKEN)
def test_each_rule_has_a_case_that_breaks_it(old, new, kind, lines, computed):
    assert old in GOOD
    out, hazards = run(GOOD.replace(old, new), stale=True)
    if kind is None:
        assert hazards == []
    else:
        found = [(h.kind, (h.first.line, h.second.line)) for h in hazards]
        assert (kind, lines) in found, "\n".join(map(str, hazards))
        text = str(next(h for h in hazards if h.kind == kind))
        assert f"k.sass:{lines[1]}: k+0x" in text and f"after k.sass:{lines[0]}: " in text
    if computed is not None:
        assert (out == computed).all()


def test_without_stale_the_new_value_is_used():
    broken = GOOD.replace("--:-:-:Y:d ISETP", "--:-:-:Y:4 ISETP")
    out, hazards = run(broken)
    assert [h.kind for h in hazards] == ["raw-stall"]
    assert (out == RIGHT).all()


def test_the_other_lanes_of_a_warp_do_not_matter():
    # lanes 0 to 15 read R6 late; the others overwrite their own
    source = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:8 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:-:-:-:8 MOV R6, 0x5;
--:-:-:Y:d ISETP.GT.AND P0, PT, R0, 0xf, PT;
--:-:-:-:5 @P0 BRA high;
--:-:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
high:
--:-:-:-:8 MOV R6, 0x6;
--:-:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
"""
    out, hazards = run(source)
    assert hazards == []
    assert out.tolist() == [5] * 16 + [6] * 16
    together = source.replace("--:-:-:-:5 @P0 BRA high;", "--:-:-:-:5 NOP;").replace(
        "[R8], R6;\n--:-:-:-:5 EXIT;\nhigh:", "[R8], R6;\nhigh:"
    )
    assert together != source
    _, hazards = run(together)
    assert [h.kind for h in hazards] == ["no-scoreboard"]


def test_depbar_counts():
    source = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:-:-:-:8 SHF.L.U32 R0, R0, 0x2, RZ;
--:0:-:-:2 STS [R0], R0;
--:-:1:-:2 LDS R6, [R0];
--:-:1:-:4 LDS R7, [R0];
--:-:-:-:4 DEPBAR.LE SB1, 0x1;
01:-:-:-:6 IADD3 R6, R6, 0x1, RZ;
02:-:-:-:8 IADD3 R6, R6, R7, RZ;
--:0:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
""".replace(".param in 8", ".param in 8\n.shared 128")
    out, hazards = run(source)
    assert hazards == []
    assert (out == 8 * np.arange(32) + 1).all()
    _, hazards = run(source.replace("0x1;\n01:-", "0x2;\n01:-"))
    assert {h.kind for h in hazards} == {"raw", "waw"}  # read, and overwritten, before it has come


def test_compiled_kernels_keep_the_rules():
    from tests.tools.nvrtc import compile_source

    source = """
    extern "C" __global__ void k(float* out, const float* in, int n) {
        __shared__ float tile[64];
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float sum = 0;
        for (int j = i; j < n; j += 64) {
            tile[threadIdx.x] = in[j] * 2.5f + sqrtf(in[j]);
            __syncthreads();
            sum += tile[threadIdx.x ^ 1] / (1 + j);
            __syncthreads();
        }
        for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
        out[i] = sum;
    }
    """
    for arch in ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"):
        data = compile_source(source, arch)
        values = np.arange(500, dtype=np.float32)
        first, second = np.zeros(64, np.float32), np.zeros(64, np.float32)
        launch(data, "k", 1, 64, [first, values, 448])
        report = launch(data, "k", 1, 64, [second, values, 448], strict=True, stale=True)
        assert report.hazards == [], "\n".join(map(str, report.hazards))
        assert (first == second).all() and first.any()
