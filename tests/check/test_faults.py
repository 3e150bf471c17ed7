"""No misses: of faults in correct kernels that change what the hardware may compute, lint reports at least 99%."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import turingas
from tests.check import faults
from tests.tools import nvrtc
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel

ROOT = Path(__file__).parents[2]
ENOUGH = 0.99
needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")

# A product of two tiles from shared memory: loads run ahead of their use, as a hand writes it.
TILES = """
    --:-:0:-:1   S2R R0, SR_TID.X
    --:-:-:-:1   MOV R20, c[0x0][0x160]
    --:-:-:-:5   MOV R21, c[0x0][0x164]
    01:-:-:Y:5   IMAD.WIDE R2, R0, 0x10, R20
    --:-:-:-:1   MOV R22, 0x10
    --:-:-:-:1   CS2R R16, SRZ
    --:-:-:-:1   CS2R R18, SRZ
    --:-:-:-:4   SHF.L.U32 R23, R0, 0x4, RZ
    --:-:1:-:4   LDG.E.128.SYS R4, [R2]
 L: 02:2:-:-:2   STS.128 [R23], R4
    04:-:-:Y:6   BAR.SYNC 0x0
    --:-:-:-:4   IADD3 R22, R22, -0x1, RZ
    --:-:-:Y:d   ISETP.NE.AND P0, PT, R22, RZ, PT
    --:-:-:-:4   @P0 IADD3 R2, P1, R2, 0x200, RZ
    --:-:-:Y:8   @P0 IADD3.X R3, RZ, R3, RZ, P1, !PT
    --:3:1:-:2   @P0 LDG.E.128.SYS R4, [R2]
    --:-:2:-:1   LDS.U.128 R8, [R23]
    --:-:4:-:2   LDS.U.128 R12, [R23+0x10]
    0x14:-:-:-:2 FFMA R16, R8, R12, R16
    --:-:-:-:2   FFMA R17, R9, R13, R17
    --:-:-:-:2   FFMA R18, R10, R14, R18
    08:-:-:-:4   FFMA R19, R11, R15, R19
    --:-:-:Y:5   BAR.SYNC 0x0
    --:-:-:Y:5   @P0 BRA L
    --:5:-:-:2   STG.E.128.SYS [R20], R16
    0x20:-:0:-:2 MUFU.RCP R16, R16
    01:-:-:-:6   FMUL R17, R17, R16
    --:0:-:-:2   STG.E.128.SYS [R20+0x10], R16
    01:1:-:-:2   STS.64 [R23+0x400], R16
    02:-:-:-:6   FADD R16, R18, R19
    --:0:-:-:2   STG.E.SYS [R20+0x20], R16
    01:-:-:Y:5   EXIT
"""


def written() -> list[Kernel]:
    copy = turingas.assemble((ROOT / "examples" / "copy.sass").read_text(), "sm_75").kernels
    return [*copy, Kernel("tiles", "sm_75", Code(words=turingas.encode(TILES)))]


@functools.cache
def compiled(arch: str) -> tuple[Kernel, ...]:
    names = ("blocks", "memory", "control")
    sources = [ROOT / "tests" / "corpus" / f"{name}.cu" for name in names]
    cubins = [nvrtc.compile_source(path.read_text(), arch, name=path.name) for path in sources]
    return tuple(kernel for data in cubins for kernel in Cubin.from_bytes(data).texts)


def check(kernels: list[Kernel], count: int, largest: int = 400) -> faults.Result:
    result = faults.run(kernels, count, seed=len(kernels), largest=largest)
    assert result.real.total() >= 0.75 * count and len(result.real) == len(faults.KINDS), str(result)
    assert result.seen.total() >= ENOUGH * result.real.total(), str(result)
    return result


def test_written_by_hand() -> None:
    check(written(), 30)


@pytest.mark.sample(3)
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_compiled(arch: str) -> None:
    result = check(list(compiled(arch)), 50)
    # a few are: a wait that comes too soon after what it waits for is an error also where others wait later
    assert result.harmless[1] <= 0.05 * result.harmless[0], str(result)


# -- the oracle itself


def uses(text: str, n: int = 0, line: str = "") -> set[faults.Use]:
    """What goes wrong in a kernel as it is, or when instruction ``n`` is ``line``."""
    words = turingas.encode(text.strip() + "\n--:-:-:-:5 EXIT")
    oracle = faults.Oracle(Kernel("kern", "sm_75", Code(words=words)))
    if line:
        return oracle.with_fault(n, turingas.encode(line)[0])
    return {use for found in oracle.uses.values() for use in found}


def test_oracle_of_stalls() -> None:
    right = "--:-:-:-:4 MOV R0, R1\n--:-:-:-:4 MOV R2, R0"
    assert uses(right) == set() and uses(right, 0, "--:-:-:-:3 MOV R0, R1") == {(0, 1, "raw")}
    loop = "L: --:-:-:-:4 MOV R0, R1\n--:-:-:-:1 MOV R1, R3\n--:-:-:-:5 @P0 BRA L"
    assert uses(loop) == set() and uses(loop, 2, "--:-:-:-:1 @P0 BRA 0x0") == {(1, 0, "raw")}


def test_oracle_of_scoreboards() -> None:
    right = "--:1:0:-:2 LDG.E.SYS R0, [R2]\n02:-:-:-:4 MOV R2, R1\n01:-:-:-:4 MOV R4, R0"
    assert uses(right) == set()
    assert uses(right, 0, "--:1:-:-:2 LDG.E.SYS R0, [R2]") == {(0, 2, "raw")}
    assert uses(right, 0, "--:-:0:-:2 LDG.E.SYS R0, [R2]") == {(0, 1, "war")}
    assert uses(right, 0, "--:1:0:-:1 LDG.E.SYS R0, [R2]") == {(0, 1, "war")}  # the wait comes too soon
    assert uses(right, 2, "--:-:-:-:4 MOV R4, R0") == {(0, 2, "raw")}
    assert uses(right, 2, "--:-:-:-:4 MOV R0, R4") == {(0, 2, "waw")}
    assert uses(right, 2, "--:-:-:-:4 MOV R5, R4") == set()


def test_a_wrong_kernel_is_refused() -> None:
    kernel = Kernel("kern", "sm_75", Code(words=turingas.encode("--:-:-:-:1 MOV R0, R1\n--:-:-:-:5 MOV R2, R0")))
    with pytest.raises(ValueError, match="not correct"):
        faults.run([kernel], 1, 0)
