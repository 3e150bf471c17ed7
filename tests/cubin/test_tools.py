"""NVIDIA's own tools read what is written here: nvdisasm and cuobjdump, of CUDA 13 and (for sm_70) of CUDA 12."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cubin import cubins
from tests.tools import nvdisasm
from turingas.assembler import assemble
from turingas.cubin.cubin import Cubin
from turingas.disassembler import disassemble

# What nvdisasm 13 says of every cubin of CUDA 12, NVIDIA's own too; the second follows from the first.
USUAL = ("Disassembling Std Elf to Old format or Old Elf to Std format", "Dataflow analysis disabled due to previous")

SOURCE = """
.constant factor 8
.double 0.5
.kernel first
.param 8
.param 4
.shared 2048
.reloc R_CUDA_ABS32_LO_32 factor
--:-:-:Y:5  MOV R7, 0x0;
--:-:-:Y:5  BAR.SYNC 0x2;
here:
--:-:-:Y:5  @P0 BRA here;
--:-:-:Y:5  EXIT;
.bank 2
.long here 7
.kernel second
.info MAX_THREADS 64 1 1
--:-:-:Y:5  EXIT;
"""


def run(tool: str, arch: str, path: Path, *options: str) -> str:
    """What a tool prints about a cubin; it must have nothing to complain of."""
    nvdisasm_path = nvdisasm.program_path(arch)
    if nvdisasm_path is None:
        pytest.skip(f"needs NVIDIA's tools for {arch}")
    program = nvdisasm_path.with_name(tool)
    if not program.is_file():
        pytest.skip(f"needs {tool}")
    environment = {"PATH": str(nvdisasm_path.parent)}  # cuobjdump calls nvdisasm
    result = subprocess.run([str(program), *options, str(path)], capture_output=True, text=True, env=environment)
    complaints = [line for line in result.stderr.splitlines() if line and not any(text in line for text in USUAL)]
    assert result.returncode == 0 and complaints == [], (tool, options, complaints)
    return result.stdout


@pytest.mark.parametrize("arch", cubins.ARCHS)
def test_a_new_cubin(arch, tmp_path):
    path = tmp_path / "new.cubin"
    path.write_bytes(assemble(SOURCE, arch).to_bytes())
    listing = run("nvdisasm", arch, path)
    assert "MOV R7" in listing and ".text.second" in listing
    assert re.search(r"BRA `\(", listing)
    usage = run("cuobjdump", arch, path, "-res-usage")
    bank = 0x21C if arch.startswith("sm_90") else 0x16C
    assert re.search(rf"Function first:\s+REG:10 STACK:0 SHARED:2048 LOCAL:0 .*CONSTANT\[0\]:{bank} ", usage)
    assert "CONSTANT[3]:8" in usage and "CONSTANT[2]:8" in usage
    assert "Function : second" in run("cuobjdump", arch, path, "-sass")
    attributes = run("cuobjdump", arch, path, "-elf")
    assert "EIATTR_MAX_THREADS" in attributes and "R_CUDA_ABS32_LO_32" in attributes


@pytest.mark.parametrize("path", sorted(cubins.DATA.glob("flow_cuda12*.cubin")), ids=lambda path: path.stem)
def test_reassembled_cubins_look_the_same(path, tmp_path):
    """The listing of a cubin that went through source: the same lines (symbols of sections may stand elsewhere)."""
    data = path.read_bytes()
    arch = Cubin.from_bytes(data).arch
    again = tmp_path / "again.cubin"
    again.write_bytes(assemble(disassemble(data)).to_bytes())
    for tool, option in (("nvdisasm", "-c"), ("cuobjdump", "-res-usage"), ("cuobjdump", "-sass")):
        assert sorted(run(tool, arch, path, option).splitlines()) == sorted(run(tool, arch, again, option).splitlines())
