"""What can be known of addresses, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

import turingas
from tests.kernels import cases
from tests.tools import nvrtc
from turingas.check import addresses, values
from turingas.check.finding import Finding
from turingas.cubin.model import Code, Kernel
from turingas.emulate.counters import Counters
from turingas.emulate.device import Device
from turingas.flow.graph import Graph

EXIT = "--:-:-:Y:5 EXIT"
TID = "--:-:0:-:2 S2R R0, SR_TID.X"
LANE = np.arange(32)


def graph(lines: list[str], arch: str = "sm_75") -> Graph:
    words = turingas.encode("\n".join([*lines, EXIT]), arch)
    return Graph(Kernel("k", arch, Code(words=words)))


def check(lines: list[str], arch: str = "sm_75") -> list[Finding]:
    return list(addresses.check(graph(lines, arch)))


def value(lines: list[str], register: int) -> values.Value | None:
    """What is known of a register behind ``lines``."""
    one = graph(lines)
    *_, (_, _, state) = values.Values(one).instructions(len(one.blocks) - 1)
    return values.register(state, "R", register)


# -- values


@pytest.mark.parametrize(
    "line, step, offsets",
    [
        ("MOV R1, R0", 32, LANE),
        ("MOV R1, 0x7", 0, 7),
        ("MOV R1, c[0x0][0x160]", 1, 0),
        ("IMAD R1, R0, 0x4, RZ", 128, 4 * LANE),
        ("IMAD R1, R0, -0x4, RZ", 128, 128 - 4 * LANE),
        ("IMAD.SHL.U32 R1, R0, 0x8, RZ", 256, 8 * LANE),
        ("IMAD.WIDE R2, R0, 0x10, R4", None, None),  # R4 is not known
        ("LEA R1, R0, c[0x0][0x160], 0x2", 1, 4 * LANE),
        ("IMAD R1, R0, c[0x0][0x160], RZ", None, None),
        ("IADD3 R1, R0, 0x5, R0", 32, 5 + 2 * LANE),
        ("IADD3 R1, R0, -R0, RZ", 32, 0),
        ("LEA R1, R0, 0x40, 0x2", 128, 64 + 4 * LANE),
        ("SHF.L.U32 R1, R0, 0x3, RZ", 256, 8 * LANE),
        ("SHF.R.U32.HI R1, RZ, 0x5, R0", 1, 0),
        ("SHF.R.U32.HI R1, RZ, 0x2, R0", 8, LANE // 4),
        ("LOP3.LUT R1, R0, 0x1f, RZ, 0xc0, !PT", 0, LANE),
        ("LOP3.LUT R1, R0, 0x3, RZ, 0xc0, !PT", 0, LANE % 4),
        ("LOP3.LUT R1, R0, 0xffffffe0, RZ, 0xc0, !PT", 32, 0),
        ("LOP3.LUT R1, R0, 0x10, RZ, 0x3c, !PT", 32, LANE ^ 16),
        ("LOP3.LUT R1, R0, 0x30, RZ, 0xc0, !PT", 32, LANE & 16),
        ("POPC R1, R0", None, None),
        ("FADD R1, R0, R0", None, None),
    ],
)
def test_values(line, step, offsets):
    found = value([TID, f"01:-:-:-:6 {line}"], 1 if " R1," in line else 2)
    if step is None:
        assert found is None or found.uniform and found.step == 1
        assert not (found and line.startswith(("POPC", "FADD")))
        return
    assert found is not None and (found.step, found.lanes.tolist()) == (step, np.asarray(offsets).tolist())


def test_values_agree_with_arithmetic():
    """Chains of operations on a known index, against the numbers."""
    lines = [
        "--:-:0:-:2 S2R R0, SR_LANEID",
        "01:-:-:-:6 IMAD R1, R0, 0x14, RZ",
        "--:-:-:-:6 LOP3.LUT R2, R1, R0, RZ, 0x3c, !PT",
        "--:-:-:-:6 SHF.R.U32.HI R3, RZ, 0x1, R2",
        "--:-:-:-:6 LEA R4, R3, R1, 0x4",
        "--:-:-:-:6 LOP3.LUT R5, R4, 0xff, R0, 0xea, !PT",
    ]
    one = 20 * LANE
    four = ((one ^ LANE) >> 1 << 4) + one
    for register, expected in ((1, one), (2, one ^ LANE), (4, four), (5, four & 255 | LANE)):
        found = value(lines, register)
        assert found is not None and found.step == 0 and np.array_equal(found.offsets, expected)


def test_ways_that_meet():
    """A register written on one of two ways is known only if all lanes go the same way."""
    for index, known in (("SR_CTAID.X", True), ("SR_TID.X", False)):
        lines = [
            f"--:-:0:-:2 S2R R0, {index}",
            "--:-:-:-:4 MOV R1, 0x4",
            "01:-:-:Y:d ISETP.EQ.AND P0, PT, R0, 0x3, PT",
            "--:-:-:Y:5 @P0 BRA meet",
            "--:-:-:-:4 MOV R1, 0x8",
            "meet:",
            "--:-:-:-:4 MOV R2, R1",
        ]
        found = value(lines, 1)
        assert (found is not None) is known
        assert found is None or (found.step, found.uniform) == (4, True)


def test_loop_counter():
    lines = [
        TID,
        "--:-:-:-:4 MOV R1, RZ",
        "top:",
        "01:-:-:-:6 IADD3 R1, R1, 0x10, RZ",
        "--:-:-:-:6 IADD3 R2, R1, R0, RZ",
        "--:-:-:Y:d ISETP.LT.AND P0, PT, R1, {}, PT",
        "--:-:-:Y:5 @P0 BRA top",
        "--:-:-:-:4 MOV R3, RZ",
    ]
    uniform, own = ([line.replace("{}", limit) for line in lines] for limit in ("0x100", "R0"))
    found = value(uniform, 2)
    assert found is not None and found.step == 16 and np.array_equal(found.offsets, LANE)
    assert value(own, 1) is None and value(own, 2) is None  # each lane leaves in its own iteration


def test_guarded_write():
    lines = [TID, "--:-:-:-:4 MOV R1, 0x4", "01:-:-:Y:d ISETP.EQ.AND P0, PT, R0, 0x3, PT", "--:-:-:-:4 @P0 MOV R1, 0x8"]
    assert value(lines, 1) is None


# -- shared memory


def shared(scale: int, access: str, arch: str = "sm_75") -> list[Finding]:
    return check([TID, f"01:-:-:-:6 IMAD R1, R0, {scale:#x}, RZ", f"--:-:1:-:2 {access}"], arch)


@pytest.mark.parametrize(
    "scale, access, taken, needed",
    [
        (4, "LDS R4, [R1]", 1, 1),
        (8, "LDS R4, [R1]", 2, 1),
        (0x80, "LDS R4, [R1]", 32, 1),
        (0x84, "LDS R4, [R1+0x40]", 1, 1),  # padded
        (0x80, "STS [R1], R4", 32, 1),
        (8, "LDS.64 R4, [R1]", 2, 2),
        (16, "LDS.128 R4, [R1]", 4, 4),
        (32, "LDS.128 R4, [R1]", 8, 4),
        (4, "LDS.U8 R4, [R1]", 1, 1),
    ],
)
def test_shared(scale, access, taken, needed):
    found = shared(scale, access)
    if taken == needed:
        assert found == []
    else:
        assert [f.kind for f in found] == ["shared-conflict"] and found[0].severity == "note"
        assert f"{taken} wavefronts of shared memory instead of {needed}" in found[0].message
        assert f"{scale} bytes apart" in found[0].message


# -- global memory


def load(scale: int, access: str) -> list[Finding]:
    base = ["--:-:-:-:4 MOV R2, c[0x0][0x160]", "--:-:-:-:4 MOV R3, c[0x0][0x164]"]
    return check([TID, *base, f"01:-:-:-:6 IMAD.WIDE R2, R0, {scale:#x}, R2", f"--:-:1:-:2 {access}"])


@pytest.mark.parametrize(
    "scale, access, taken",
    [
        (4, "LDG.E.SYS R4, [R2]", 0),
        (8, "LDG.E.SYS R4, [R2]", 8),
        (0x80, "STG.E.SYS [R2], R4", 32),
        (16, "LDG.E.128.SYS R4, [R2]", 0),
        (8, "LDG.E.64.SYS R4, [R2+0x8]", 0),
        (1, "LDG.E.U8.SYS R4, [R2]", 0),
        (4, "LDG.E.U8.SYS R4, [R2]", 4),
    ],
)
def test_global(scale, access, taken):
    found = load(scale, access)
    if not taken:
        assert found == []
    else:
        assert [(f.kind, f.severity) for f in found] == [("uncoalesced", "note")]
        assert f"at least {taken} sectors" in found[0].message


def test_what_is_not_known():
    """A stride from memory, a guard and a branch that lanes decide differently: nothing is said."""
    stride = "01:-:-:-:6 IMAD R1, R0, c[0x0][0x160], RZ"
    assert check([TID, stride, "--:-:1:-:2 LDS R4, [R1]"]) == []
    far = "01:-:-:-:6 IMAD R1, R0, 0x80, RZ"
    decide = "--:-:-:Y:d ISETP.EQ.AND P0, PT, R0, 0x3, PT"
    assert check([TID, far, decide, "--:-:1:-:2 @P0 LDS R4, [R1]"]) == []
    branch = ["--:-:-:Y:5 @P0 BRA meet", "--:-:1:-:2 LDS R4, [R1]", "meet:", "--:-:-:-:4 MOV R0, RZ"]
    assert check([TID, far, decide, *branch]) == []
    assert len(check([TID, far, decide, "--:-:-:Y:5 @P0 EXIT", "--:-:1:-:2 LDS R4, [R1]"])) == 1


# -- against the CPU device


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_what_is_known_is_so(arch, monkeypatch):
    """Every address that is said to be known, of compiled kernels, is the one that the kernel uses when it runs."""
    used = []

    def memory(self, i, space, found, mask, nbytes):
        lanes = np.ones(found.shape, bool) if mask is None else np.broadcast_to(mask, found.shape)
        used.append((i.address // 16, found.astype(np.int64), lanes))

    monkeypatch.setattr(Counters, "memory", memory)
    compared = 0
    for case in cases.CASES:
        if case.source not in ("classics.cu", "memory.cu") or arch not in case.archs or case.block[0] % 32:
            continue
        used.clear()
        module = Device(arch).load(case.cubin(arch))
        module.launch(case.kernel, case.grid, case.block, case.build()[0], case.shared, counters=True)
        one = Graph(module.kernel(case.kernel))
        known = values.Values(one)
        claims = {}
        for block in one.reachable:
            for n, i, state in known.instructions(block):
                claims[n] = addresses.address(state, i) if i.base in values.accesses(one) else None
        for n, found, lanes in used:
            claim = claims.get(n)
            if claim is None:
                continue
            base = (found - claim.offsets) % values.WORD
            first = base[np.arange(len(base)), lanes.argmax(axis=1)][:, None]
            compared += len(base)
            assert (base == first)[lanes].all(), (case.name, one.text(n))
            assert not claim.step or (base[lanes] % claim.step == 0).all(), (case.name, one.text(n))
    assert compared > 500
