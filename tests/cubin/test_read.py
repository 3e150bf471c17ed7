"""What a cubin says of its kernels, compared with what its CUDA source says."""

from __future__ import annotations

import pytest

from tests.cubin import cubins
from tests.tools import ptxas
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Param
from turingas.disassembler import check
from turingas.errors import CubinError

NAMES = {
    "plain": {"reverse", "fill", "empty"},
    "memory": {"scale", "swap", "barriers", "_Z5stepsILi3EEvPi", "_Z5stepsILi4EEvPi"},
    "flow": {"recursion", "call", "pointer", "print", "heap", "slow", "jump"},
}


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_every_stored_cubin(path):
    source, _, arch = path.stem.split("_")[:3]
    cubin = Cubin.from_file(path)
    assert cubin.arch == "sm_" + arch.removeprefix("sm")
    assert {kernel.name for kernel in cubin.kernels} == NAMES[source]
    assert cubin.to_bytes() == path.read_bytes()
    for kernel in cubin.texts:
        assert len(kernel.words) * 16 == len(kernel.code) and len(kernel.words) % 8 == 0
        assert 2 <= kernel.registers <= 255


@pytest.mark.parametrize("path", [p for p in cubins.STORED if p.stem.startswith("plain")], ids=lambda path: path.stem)
def test_resources(path):
    cubin = Cubin.from_file(path)
    reverse, fill, empty = (cubin.kernel(name) for name in ("reverse", "fill", "empty"))
    reserved = 1024 if "sm90" in path.stem else 0
    assert reverse.shared_bytes == 256 + reserved
    assert (reverse.barriers, fill.barriers) == (1, 0)
    assert reverse.params == [Param(0, 8)]
    assert fill.params == [Param(0, 8), Param(8, 4)]
    assert (empty.params, empty.shared_bytes, empty.frame_bytes) == ([], 0, 0)


def test_structures_frames_constants():
    scale = Cubin.from_bytes(cubins.named("memory_cuda12_sm75")).kernel("scale")
    assert scale.params == [Param(0, 8), Param(8, 24), Param(32, 1), Param(34, 2), Param(36, 4)]
    barriers = Cubin.from_bytes(cubins.named("memory_cuda12_sm75")).kernel("barriers")
    assert barriers.barriers == 6
    flow = Cubin.from_bytes(cubins.named("flow_cuda12_sm75"))
    assert flow.kernel("print").frame_bytes == 16
    assert 2 in flow.kernel("jump").constants
    relocatable = Cubin.from_bytes(cubins.named("flow_cuda12_sm80_rdc"))
    assert {f.name for f in relocatable.functions} >= {"_Z9factoriali", "_Z6helperfPf"}
    assert any(row.symbol == "vprintf" for row in relocatable.kernel("print").relocations)
    with pytest.raises(KeyError, match="no kernel 'x'"):
        flow.kernel("x")


def test_sections_that_have_only_a_size():
    """In relocatable files shared memory and globals have types of their own, and no contents either."""
    cubin = Cubin.from_bytes(cubins.named("memory_cuda12_sm80_rdc"))
    assert cubin.kernel("scale").shared_bytes == 512
    shared, variables = (cubin.elf.section(name) for name in (".nv.shared.scale", ".nv.global"))
    assert (shared.type, shared.size, shared.data) == (0x7000000A, 512, b"")
    assert (variables.type, variables.size, variables.data) == (0x70000007, 400, b"")


def test_old_architectures_are_refused():
    data = bytearray(cubins.named("plain_cuda12_sm75"))
    data[48:52] = (60 << 16 | 0x500 | 60).to_bytes(4, "little")
    with pytest.raises(CubinError, match="sm_60") as caught:
        Cubin.from_bytes(bytes(data))
    assert caught.value.offset == 48


def test_code_of_half_an_instruction_is_refused():
    from turingas.cubin.elf import Elf

    elf = Elf.from_bytes(cubins.named("plain_cuda12_sm75"))
    section = elf.section(".text.fill")
    section.size -= 8
    section.data = section.data[:-8]
    with pytest.raises(CubinError, match="whole number of instructions"):
        Cubin.from_bytes(elf.to_bytes())


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("what", ["", ".ptr", ".ptr .global .align 16", ".ptr .shared .align 4"])
def test_pointers_of_which_more_is_said(what):
    """In KPARAM_INFO_V2, too, there is beside the size which memory a pointer is for (Transformer Engine)."""
    ptx = f""".version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 {what} p, .param .align 8 .b8 much[8000], .param .u32 n) {{
    .reg .b64 %p; .reg .b32 %n; ld.param.u64 %p, [p]; ld.param.u32 %n, [n]; st.u32 [%p], %n; ret;
}}
"""
    cubin = Cubin.from_bytes(ptxas.assemble_ptx(ptx, "sm_90"))
    assert cubin.kernels[0].params == [Param(0, 8), Param(8, 8000), Param(8008, 4)]
    assert check(cubin) == []
