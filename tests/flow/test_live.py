"""Register life ranges, against nvdisasm's."""

from __future__ import annotations

import re
import subprocess

import pytest

import turingas
from tests.cubin import cubins
from tests.tools.nvdisasm import program_path
from turingas.flow.graph import Graph
from turingas.flow.live import FILES, Lives
from turingas.isa.effects import FIRST

SOURCE = """.kernel k
--:-:0:-:2   S2R R0, SR_TID.X;
01:-:-:Y:d   ISETP.LT.AND P0, PT, R0, 0x40, PT;
--:-:-:-:4   MOV R2, RZ;
--:-:-:-:4   @P0 MOV R2, R0;
--:-:-:-:4   IADD3 R3, R2, R0, RZ;
--:-:-:-:1   STS [R0], R3;
--:-:-:Y:5   EXIT;
"""


def lives(source):
    return Lives(Graph(turingas.assemble(source).kernels[0]))


def test_marks():
    found = lives(SOURCE)
    columns = ["".join(found.mark(n, register) for register in (0, 2, 3, FIRST["P"])) for n in range(8)]
    assert columns[:7] == ["^   ", "v  ^", ":^ :", "v^ v", "vv^ ", "v v ", "    "]
    assert [found.held(n) for n in range(7)] == [1, 1, 2, 2, 3, 2, 0] and found.peak() == (3, 4)
    assert found.used() == [0, 2, 3] and found.peak("P") == (1, 1)


def test_calls_are_followed():
    found = lives(
        """
--:-:-:-:4   MOV R0, RZ;
--:-:-:-:4   MOV R5, RZ;
--:-:-:Y:6   MOV R20, 0x40;
--:-:-:-:5   CALL.REL.NOINC f;
--:-:-:-:1   STS [R5], R6;
--:-:-:Y:5   EXIT;
f:
--:-:-:-:4   MOV R6, R0;
--:-:-:-:5   RET.REL.NODEC R20 0x0;
"""
    )
    columns = ["".join(found.mark(n, register) for register in (0, 5, 6, 20)) for n in range(8)]
    assert columns == ["^   ", ":^  ", ":: ^", ":: :", " vv ", "    ", "v:^:", " ::v"]


@pytest.mark.parametrize("name", ["plain", "memory"])
def test_as_nvdisasm_has_them(name, tmp_path):
    """Where nothing is called. The stack pointer lives everywhere there; 13.5 refuses cubins of this toolkit."""
    program = program_path("sm_70")
    if program is None:
        pytest.skip("no nvdisasm 12")
    data = dict(cubins.compiled()).get(f"{name} sm_80 plain")
    if data is None:
        pytest.skip("no NVRTC")
    (tmp_path / "x.cubin").write_bytes(data)
    run = subprocess.run([program, "-lrm", "count", "-c", tmp_path / "x.cubin"], capture_output=True, text=True)
    parts = re.split(r"^\.text\.(\w+):", run.stdout, flags=re.M)
    theirs = {
        kernel: [int(n or 0) for n in re.findall(r"/\*[0-9a-f]{4,}\*/.*?// \|\s*(\d*)", text)]
        for kernel, text in zip(parts[1::2], parts[2::2])
    }
    assert theirs
    for kernel in turingas.Cubin.from_bytes(data).kernels:
        found = Lives(Graph(kernel))
        held = [found.before[n] | found.after[n] | found.written[n] | 2 for n in range(len(theirs[kernel.name]))]
        assert [(one & FILES["R"]).bit_count() for one in held] == theirs[kernel.name]
