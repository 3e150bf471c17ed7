"""The PTX and CUDA names of mnemonics (Op.ptx): ptxas and NVRTC make that instruction of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import turingas
from tests.tools import nvrtc, ptx_forms, ptxas
from turingas.isa import table

ROWS = [tuple(line.rstrip("\n").split("|", 3)) for line in Path(__file__).with_name("ptx_names.txt").open()
        if not line.startswith("#")]  # fmt: skip
HEAD = "#include <cuda_fp16.h>\n#include <cuda_pipeline.h>\n#include <cuda_device_runtime_api.h>\n"
KERNEL = """extern "C" __global__ void k{0}(float*f, int*i, unsigned*u, double*d, half2*h, long long*l)
{{ int t = threadIdx.x; {1} }}
"""
FLOW = """.version 8.0
.target sm_75
.address_size 64
.func (.reg .b32 %res) deep (.reg .b32 %arg)
{
.reg .pred %p; .reg .b32 %a, %b;
setp.eq.u32 %p, %arg, 0; mov.u32 %res, 1; @%p bra DONE;
sub.u32 %a, %arg, 1; call (%b), deep, (%a); mul.lo.u32 %res, %b, %arg;
DONE: ret;
}
.visible .entry k0(.param .u64 out, .param .u32 n)
{
.reg .b64 %o; .reg .b32 %n, %r; .reg .pred %p;
ld.param.u64 %o, [out]; ld.param.u32 %n, [n]; mov.u32 %r, %tid.x;
setp.gt.u32 %p, %r, 5; @%p bra AFTER; st.global.u32 [%o+64], %r; bar.sync 0;
AFTER:
TS: .branchtargets A, B, C, D;
brx.idx %n, TS;
A: add.u32 %r, %r, 17; bra E;
B: mul.lo.u32 %r, %r, 33; bra E;
C: call (%r), deep, (%r); bra E;
D: st.global.u32 [%o+4], %n; exit;
E: st.global.u32 [%o], %r;
ret;
}
"""
IN_FLOW = {"BRA": "bra", "BRX": "brx.idx", "CALL": "call", "EXIT": "exit", "RET": "ret"}
#: names that no short code shows, and why they are given all the same
ELSEWHERE = {
    ("USETMAXREG", "setmaxnreg"): "ptxas leaves it out where it does not know the registers of a warp; the H200 has it",
    ("UTMACCTL", "fence.proxy.tensormap::generic"): "only beside an acquire of the same fence",
    ("UBLKPF", "cp.async.bulk.prefetch.L2"): "the operand is an address in generic space",
    ("BRXU", "brx.idx"): "BRX from a uniform register",
    **dict.fromkeys([("CS2UR", "mov from %clock"), ("CS2UR", "%clock64")], "where a uniform register has to hold it"),
    ("QSPC", "__isGlobal"): "isspacep; NVRTC knows the answer in code as short as this",
    ("QSPC", "__isShared"): "the same",
    ("SYNCS", "cuda::barrier"): "mbarrier, in libcu++",
    ("UBLKCP", "cuda::memcpy_async"): "cp.async.bulk, in libcu++",
    **dict.fromkeys([("HMMA", "wmma::mma_sync"), ("IMMA", "wmma::mma_sync"), ("DMMA", "wmma::mma_sync"),
                     ("BMMA", "wmma::bmma_sync")], "wmma: mma.sync by another name"),  # fmt: skip
    **dict.fromkeys([("UCGABAR_ARV", "cluster.barrier_arrive"), ("UCGABAR_WAIT", "cluster.barrier_wait")],
                    "barrier.cluster, in cooperative groups"),  # fmt: skip
    ("EXIT", "ret of an entry"): "in FLOW, beside exit",
    ("TEX", "tex with FP32 coordinates"): "tex2D",
}


def names(op: str) -> list[str]:
    return [name.strip() for name in table.OPS[op].ptx.split(",") if name.strip()] if op in table.OPS else []


def count(words: list[int], arch: str) -> Counter[str]:
    """How often a kernel has each mnemonic, without modifiers."""
    lines = turingas.decode(words, arch=arch, control=False)
    return Counter(re.match(r"(?:@\S+ )?(\w+)", line)[1] for line in lines)


def test_every_name_is_shown():
    """In the table or above; those of the uniform datapath are names of the instruction that they repeat."""
    shown = {row[:2] for row in ROWS} | set(IN_FLOW.items()) | set(ELSEWHERE)
    for base in table.OPS:
        for name in names(base):
            assert (base, name) in shown or base[0] == "U" and name in names(base[1:]), (base, name)
    assert all(name in names(base) for base, name in shown)


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("arch", sorted({row[2] for row in ROWS if not row[2].startswith("cuda")}))
def test_ptx(arch):
    """Each kernel has more of the mnemonic than one that does nothing."""
    rows = [row for row in ROWS if row[2] == arch]
    text = ptx_forms.HEADER.format(version="8.8", arch=arch) + "\n".join(ptx_forms.kernel(len(rows), []))
    for number, row in enumerate(rows):
        form = ptx_forms.Form(row[3], arch, plain=True)
        block = ptx_forms.spell(form, next(ptx_forms.variants(form)))
        text += "\n" + "\n".join(ptx_forms.kernel(number, [block]))
    cubin = turingas.Cubin.from_bytes(ptxas.assemble_ptx(text + "\n", arch))
    nothing = count(cubin.kernel(f"form_{len(rows)}").words, arch)
    for number, (base, name, *_) in enumerate(rows):
        assert count(cubin.kernel(f"form_{number}").words, arch)[base] > nothing[base], (base, name)


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
def test_flow():
    [kernel] = turingas.Cubin.from_bytes(ptxas.assemble_ptx(FLOW, "sm_75")).kernels
    assert set(IN_FLOW) <= set(count(kernel.words, "sm_75"))


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", sorted({row[2][5:] for row in ROWS if row[2].startswith("cuda")}))
def test_cuda(arch):
    rows = [row for row in ROWS if row[2] == f"cuda {arch}"]
    head = HEAD if arch == "sm_90" else HEAD.replace("#include <cuda_device_runtime_api.h>\n", "")
    source = head + "".join(KERNEL.format(number, row[3]) for number, row in enumerate(rows))
    cubin = turingas.Cubin.from_bytes(nvrtc.compile_source(source, arch))
    for number, (base, name, *_) in enumerate(rows):
        assert count(cubin.kernel(f"k{number}").words, arch)[base], (base, name)
