"""Cubins of this assembler on a real GPU (sm_90): the driver loads them, and the kernels do what they say."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cubin import cubins
from tests.gpu.cuda import Gpu
from turingas.assembler import assemble
from turingas.cubin.cubin import Cubin
from turingas.disassembler import disassemble

pytestmark = pytest.mark.gpu

RESERVED = 0x400  # compilers for sm_90 leave the first 1024 bytes of shared memory to the system


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


def pointer(value: Any) -> tuple[int, Any]:
    return int(value), ctypes.c_void_p


WIDE = """
.arch sm_90
# out[4 * i ...] = in[4 * i ...] + {1.5, 2.5, -3, 0.25}, all four at once
.constant addends 16
.float 1.5 2.5 -3 0.25
.param out 8
.param in_ 8
--:-:0:Y:2   S2R R0, SR_TID.X;
--:-:1:Y:2   LDC.64 R2, c[0x0][0x218];
--:-:2:Y:2   LDC.64 R4, c[0x0][0x210];
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
03:-:-:Y:6   IMAD.WIDE.U32 R2, R0, 0x10, R2;
04:-:-:Y:6   IMAD.WIDE.U32 R4, R0, 0x10, R4;
--:-:0:Y:2   LDG.E.128 R20, desc[UR4][R2.64];
01:-:-:Y:6   FADD R20, R20, c[0x3][0x0];
--:-:-:Y:6   FADD R21, R21, c[0x3][0x4];
--:-:-:Y:6   FADD R22, R22, c[0x3][0x8];
--:-:-:Y:6   FADD R23, R23, c[0x3][0xc];
--:0:-:Y:2   STG.E.128 desc[UR4][R4.64], R20;
--:-:-:Y:15  EXIT;
"""


def test_parameters_constants_and_wide_loads(gpu):
    cubin = assemble(WIDE)
    assert cubin.kernel("kern").registers == 26
    function = gpu.function(cubin)
    assert gpu.attribute(function, "CU_FUNC_ATTRIBUTE_NUM_REGS") >= 26
    values = [float(n) for n in range(128)]
    source, target = gpu.buffer(struct.pack("<128f", *values)), gpu.buffer(bytes(512))
    gpu.launch(function, 32, pointer(target), pointer(source))
    addends = (1.5, 2.5, -3.0, 0.25)
    assert struct.unpack("<128f", gpu.read(target, 512)) == tuple(v + addends[n % 4] for n, v in enumerate(values))


def test_the_host_finds_a_constant_and_changes_it(gpu):
    module = gpu.load(assemble(WIDE))
    address, size = gpu.call("cuModuleGetGlobal", module, b"addends")
    assert size == 16
    assert struct.unpack("<4f", gpu.read(address, 16)) == (1.5, 2.5, -3.0, 0.25)
    gpu.call("cuMemcpyHtoD", address, struct.pack("<4f", 10, 20, 30, 40), 16)
    source, target = gpu.buffer(bytes(512)), gpu.buffer(bytes(512))
    function = gpu.call("cuModuleGetFunction", module, b"kern")
    gpu.launch(function, 32, pointer(target), pointer(source))
    assert struct.unpack("<128f", gpu.read(target, 512)) == (10.0, 20.0, 30.0, 40.0) * 32


SHARED = """
.arch sm_90
# out[i] = in[threads - 1 - i], through shared memory from {at} on
{declare}
.param out 8
.param in_ 8
.param last 4
--:-:0:Y:2   S2R R0, SR_TID.X;
--:-:1:Y:2   LDC.64 R2, c[0x0][0x218];
--:-:2:Y:2   LDC.64 R4, c[0x0][0x210];
--:-:3:Y:2   LDC R6, c[0x0][0x220];
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
03:-:-:Y:6   IMAD.WIDE.U32 R2, R0, 0x4, R2;
04:-:-:Y:6   IMAD.WIDE.U32 R4, R0, 0x4, R4;
--:-:0:Y:2   LDG.E R8, desc[UR4][R2.64];
08:-:-:Y:6   IADD3 R7, R6, -R0, RZ;
--:-:-:Y:6   SHF.L.U32 R9, R0, 0x2, RZ;
--:-:-:Y:6   SHF.L.U32 R7, R7, 0x2, RZ;
01:0:-:Y:2   STS [R9+{at:#x}], R8;
01:-:-:Y:6   BAR.SYNC.DEFER_BLOCKING 0x0;
--:-:0:Y:2   LDS R8, [R7+{at:#x}];
01:0:-:Y:2   STG.E desc[UR4][R4.64], R8;
--:-:-:Y:15  EXIT;
"""


def reversed_through_shared(gpu: Gpu, cubin: Cubin, dynamic: int = 0) -> bool:
    function = gpu.function(cubin)
    if dynamic > 48 * 1024:
        kind = gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        gpu.call("cuFuncSetAttribute", function, kind, dynamic)
    values = list(range(1000, 1064))
    source, target = gpu.buffer(struct.pack("<64i", *values)), gpu.buffer(bytes(256))
    gpu.launch(function, 64, pointer(target), pointer(source), (63, ctypes.c_int), shared=dynamic)
    return list(struct.unpack("<64i", gpu.read(target, 256))) == values[::-1]


@pytest.mark.parametrize("size", [256, 48 * 1024])
def test_static_shared_memory(gpu, size):
    """As compilers declare it: the reserved bytes are counted in, the data comes behind them."""
    at = RESERVED + size - 256
    cubin = assemble(SHARED.format(at=at, declare=f".shared {RESERVED + size}"))
    assert cubin.kernel("kern").barriers == 1
    assert reversed_through_shared(gpu, cubin)


def test_static_shared_memory_from_address_0(gpu):
    assert reversed_through_shared(gpu, assemble(SHARED.format(at=0, declare=".shared 256")))


@pytest.mark.parametrize("size", [1024, 100 * 1024, 227 * 1024])
def test_dynamic_shared_memory(gpu, size):
    """As compilers declare it: the reserved bytes alone, what is asked for at launch comes behind them."""
    cubin = assemble(SHARED.format(at=RESERVED + size - 256, declare=f".shared {RESERVED}"))
    assert reversed_through_shared(gpu, cubin, size)


def run_flow(gpu: Gpu, module: Any) -> list[bytes]:
    """What the kernels of flow.cu leave in memory: recursion, a jump table, function pointers, stack frames."""
    results = []
    factorial = gpu.call("cuModuleGetFunction", module, b"recursion")
    memory = gpu.buffer(struct.pack("<2i", 0, 10))
    gpu.launch(factorial, 1, pointer(memory))
    results.append(gpu.read(memory, 8))
    jump = gpu.call("cuModuleGetFunction", module, b"jump")
    for case in range(12):
        memory = gpu.buffer(struct.pack("<12i", *range(100, 112)))
        gpu.launch(jump, 1, pointer(memory), (case, ctypes.c_int))
        results.append(gpu.read(memory, 48))
    for name, extra in (("call", ()), ("pointer", ((0, ctypes.c_int),)), ("pointer", ((1, ctypes.c_int),))):
        function = gpu.call("cuModuleGetFunction", module, name.encode())
        memory = gpu.buffer(struct.pack("<12f", *(n % 8 for n in range(12))))
        gpu.launch(function, 1, pointer(memory), *extra)
        results.append(gpu.read(memory, 48))
    return results


@pytest.mark.parametrize("name", ["flow_cuda12_sm90", "flow_cuda13_sm90"])
def test_a_disassembled_cubin_runs_as_before(gpu, name):
    """Calls, recursion, function tables and jump tables, constants and stack: through source and back."""
    before = cubins.named(name)
    after = assemble(disassemble(before)).to_bytes()
    expected = run_flow(gpu, gpu.load(before))
    assert struct.unpack("<2i", expected[0]) == (3628800, 10)
    assert run_flow(gpu, gpu.load(after)) == expected


@pytest.mark.parametrize("path", [p for p in cubins.STORED if "sm90" in p.stem], ids=lambda path: path.stem)
def test_every_stored_cubin_loads_after_reassembly(gpu, path):
    before, after = path.read_bytes(), assemble(disassemble(path.read_bytes())).to_bytes()
    for kernel in Cubin.from_bytes(before).kernels:
        one, two = (gpu.function(data, kernel.name) for data in (before, after))
        for kind in ("NUM_REGS", "SHARED_SIZE_BYTES", "CONST_SIZE_BYTES", "LOCAL_SIZE_BYTES", "MAX_THREADS_PER_BLOCK"):
            assert gpu.attribute(one, f"CU_FUNC_ATTRIBUTE_{kind}") == gpu.attribute(two, f"CU_FUNC_ATTRIBUTE_{kind}")


def test_a_changed_kernel_runs(gpu):
    """Read, changed in place, written anew: the addend of the first element comes from another constant."""
    cubin = Cubin.from_bytes(assemble(WIDE).to_bytes())
    kernel = cubin.kernel("kern")
    replacement = assemble(".arch sm_90\n01:-:-:Y:6  FADD R20, R20, c[0x3][0xc];\n").kernel("kern").words[0]
    place = next(n for n, word in enumerate(kernel.words) if word & ~(0x1FFFFF << 105) & ~(0xFFFF << 40) ==
                 replacement & ~(0x1FFFFF << 105) & ~(0xFFFF << 40))  # fmt: skip
    kernel.words[place] = replacement
    source, target = gpu.buffer(bytes(512)), gpu.buffer(bytes(512))
    gpu.launch(gpu.function(cubin), 32, pointer(target), pointer(source))
    assert struct.unpack("<128f", gpu.read(target, 512)) == (0.25, 2.5, -3.0, 0.25) * 32
