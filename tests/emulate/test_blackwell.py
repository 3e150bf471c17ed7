"""What only Blackwell has, on the CPU device: its instructions against numpy, and the test kernels that NVRTC compiles
for it, with ptxas's control codes and with the scheduler's. No card was at hand: what the instructions mean follows
from the PTX ISA and from what ptxas 12.9 and 13.0 make of PTX."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import turingas
from tests.emulate import step
from tests.kernels.cases import CASES, Case, difference
from tests.tools import ptxas
from turingas.emulate import launch
from turingas.emulate.errors import DeviceError

CHIPS = ("sm_100", "sm_120")
RNG = np.random.default_rng(21)
A, B, C, D, E, F = RNG.standard_normal((6, 64)).astype(np.float32)
WORDS = RNG.integers(0, 1 << 32, (4, 64), np.uint32)


def bits(*values: np.ndarray) -> dict[int, np.ndarray]:
    """Registers from R2 on."""
    return {2 + n: value.view(np.uint32) for n, value in enumerate(values)}


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[int]:
    """In FP64, rounded once more: the inputs leave no double rounding."""
    return (a.astype(np.float64) * b + c).astype(np.float32).view(np.uint32).tolist()


@pytest.mark.parametrize(
    ("a", "b", "c", "low", "high"),
    [
        ("R2.F32x2.HI_LO", "R4.F32x2.HI_LO", "R6.F32x2.HI_LO", (A, C, E), (B, D, F)),
        ("R2.F32x2.LO_HI", "R4.F32x2.HI_LO", "R6.F32x2.HI_LO", (B, C, E), (A, D, F)),
        ("-R2.F32x2.HI_LO", "R4.F32x2.HI_LO", "R6.F32x2.LO_HI", (-A, C, F), (-B, D, E)),
        ("R2.F32x2.HI_LO.NP", "R4.F32x2.HI_LO", "R6.F32x2.HI_LO", (A, C, E), (-B, D, F)),
        ("-R2.F32x2.LO_HI.NP", "R4.F32x2.HI_LO", "R6.F32x2.HI_LO.NP", (-B, C, E), (A, D, -F)),
        ("|R2|.F32x2.HI_LO", "R4.F32", "-R6.F32x2.HI_LO", (abs(A), C, -E), (abs(B), C, -F)),
    ],
)
def test_pairs(a, b, c, low, high):
    """Also where the first half overwrites what the second one reads."""
    for target in (8, 2, 4, 6):
        out = step.run(f"FFMA2 R{target}, {a}, {b}, {c}", "sm_100", regs=bits(A, B, C, D, E, F))
        assert out.r(target).tolist() == fma(*low) and out.r(target + 1).tolist() == fma(*high)


def test_sums_and_products_of_pairs():
    out = step.run("FADD2 R8, R2.F32x2.HI_LO, -R4.F32", "sm_100", regs=bits(A, B, C))
    assert (out.r(8).tolist(), out.r(9).tolist()) == (listed(A - C), listed(B - C))
    out = step.run("FMUL2 R8, R2.F32x2.LO_HI, R4.F32x2.HI_LO", "sm_100", regs=bits(A, B, C, D))
    assert (out.r(8).tolist(), out.r(9).tolist()) == (listed(B * C), listed(A * D))


def listed(value: np.ndarray) -> list[int]:
    return value.view(np.uint32).tolist()


def long(out: step.Result, n: int) -> list[int]:
    """A pair of registers."""
    return (out.r(n).astype(np.uint64) | out.r(n + 1).astype(np.uint64) << np.uint64(32)).tolist()


def test_integers_of_64_bits():
    low, high, other, above = WORDS
    x, y = (a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32) for a, b in ((low, high), (other, above)))
    regs = bits(low, high, other, above)
    out = step.run("IADD.64 R8, P0, R2, R4\nIADD.64 R10, R2, -R4\nIADD.64.X R12, R2, R4, P0", "sm_120", regs=regs)
    assert long(out, 8) == (x + y).tolist() and long(out, 10) == (x - y).tolist()
    assert out.p(0).tolist() == (x + y < x).tolist()
    assert long(out, 12) == (x + y + (x + y < x)).tolist()
    lines = "IMNMX.S64 PT, PT, R8, R2, R4, PT, !PT\nIMNMX.U64 PT, PT, R10, R2, R4, !PT, !PT"
    out = step.run(lines, "sm_120", regs=regs)
    assert long(out, 8) == np.minimum(x.view(np.int64), y.view(np.int64)).view(np.uint64).tolist()
    assert long(out, 10) == np.maximum(x, y).tolist()
    lines = "ISETP.LT.S64.AND P0, PT, R2, R4, PT\nSEL.64 R8, R2, R4, P0\nMOV.64 R10, R4"
    out = step.run(lines, "sm_120", regs=regs)
    assert out.p(0).tolist() == (x.view(np.int64) < y.view(np.int64)).tolist()
    assert long(out, 8) == np.minimum(x.view(np.int64), y.view(np.int64)).view(np.uint64).tolist()
    assert long(out, 10) == y.tolist()


def test_bytes_and_saturation():
    x, y = WORDS[:2]
    lines = "VIADD.U8x4 R8, R2, -R3\nVIADD.32 R9, R2, R3\nVIADD.S32.ISAT R10, R2, R3\nVIMNMX.U8x4 R11, R2, R3, PT"
    out = step.run(lines, "sm_120", regs=bits(x, y))
    assert out.r(8).tolist() == (x.view(np.uint8) - y.view(np.uint8)).view(np.uint32).tolist()
    assert out.r(9).tolist() == (x + y).tolist()
    total = x.view(np.int32).astype(np.int64) + y.view(np.int32)
    assert out.r(10).view(np.int32).tolist() == np.clip(total, -(1 << 31), (1 << 31) - 1).tolist()
    assert out.r(11).tolist() == np.minimum(x.view(np.uint8), y.view(np.uint8)).view(np.uint32).tolist()


PARTS = {
    "S32": np.int32, "32": np.uint32, "16x2": np.uint16, "S16x2": np.int16, "U8x4": np.uint8, "S8x4": np.int8
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), PARTS.items())
def test_sums_of_parts(name: str, dtype: type) -> None:
    """Of either sign; saturated where sm_120 does so. ptxas 13.5 makes this of add.sat, sub.sat and neg.u8x4."""
    x, y = WORDS[:2]
    x[:4], y[:4] = (0, 1 << 31, 0x80008000, 0xFFFFFFFF), (1 << 31, 1, 0xFFFF8000, 0x00010001)
    ends = np.iinfo(dtype)
    for saturates in ("", ".ISAT") if "8x4" not in name else ("",):
        for a, b in ((1, 1), (1, -1), (-1, 1)):
            text = f"VIADD.{name}{saturates} R8, {'-' * (a < 0)}R2, {'-' * (b < 0)}R3"
            found = step.run(text, "sm_120", regs=bits(x, y)).r(8)
            exact = a * x.view(dtype).astype(np.int64) + b * y.view(dtype).astype(np.int64)
            wanted = np.clip(exact, ends.min, ends.max) if saturates else exact
            assert found.view(dtype).tolist() == wanted.astype(dtype).tolist(), text


def test_least_and_greatest_of_a_warp():
    x = A.copy()
    x[5], x[40] = np.nan, -np.inf
    names = ("MIN.F32", "MAX.F32", "MAXABS.F32", "MIN.F32.NAN", "MIN.S32", "MAX")
    lines = "\n".join(f"CREDUX.{name} UR{4 + n}, R2" for n, name in enumerate(names))
    out = step.run(lines, "sm_100", regs=bits(x))
    warps = x.reshape(2, 32)
    wanted_floats = np.nanmin(warps, axis=1), np.nanmax(warps, axis=1), np.nanmax(abs(warps), axis=1)
    for n, wanted in enumerate(wanted_floats):
        assert out.ur(4 + n).view(np.float32).tolist() == wanted.tolist()
    assert out.ur(7).tolist() == [0x7FFFFFFF, 0xFF800000]  # a NaN in the first warp
    assert out.ur(8).view(np.int32).tolist() == warps.view(np.int32).min(axis=1).tolist()
    assert out.ur(9).tolist() == warps.view(np.uint32).max(axis=1).tolist()


COMPILED = [case for case in CASES if case.source.endswith(".cu") and "sm_90" in case.archs]
QUICK = ("votes",)  # the others compile, schedule and lint for minutes


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=[] if case.name in QUICK else pytest.mark.slow)
                                  for case in COMPILED])  # fmt: skip
def test_compiled_kernels(chip: str, case: Case) -> None:
    """Right, clean for the linter and for strict mode, with the codes of ptxas and with those of the scheduler."""
    for cubin, findings in compiled(case.source, chip):
        args, truth = case.build()
        report = launch(cubin, case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
        assert not report.hazards, report.hazards[:1]
        for found, expected in zip(args, truth):
            assert expected is None or not (problem := difference(found, expected, case.near)), problem
        assert findings.get(case.kernel, []) == []


@functools.cache
def compiled(source: str, chip: str) -> list[tuple[bytes, dict[str, list[str]]]]:
    """A source as compiled and with codes made anew, and the linter's findings by kernel."""
    first = next(case for case in COMPILED if case.source == source).cubin(chip)
    made = []
    for cubin in (first, turingas.schedule(first, keep=False).to_bytes()):
        findings: dict[str, list[str]] = {}
        for finding in turingas.lint(cubin):
            if finding.severity != "note":
                findings.setdefault(finding.kernel, []).append(str(finding))
        made.append((cubin, findings))
    return made


@pytest.mark.parametrize(
    "name", ["QMMA.16832.F32.E4M3.E4M3", "HMMA.16816.F32", "IMMA.16832.S8.S8", "OMMA.SF.16864.F32.E2M1.E2M1.E8"]
)
def test_products_that_begin_anew(name: str) -> None:
    """Where the uniform predicate is false, C counts as 0: so do cuBLASLt's FP8 products of sm_120 begin, after each
    part that they have added up elsewhere. The first of two warps has it, the other one has not."""
    regs = {n: RNG.integers(0, 1 << 32, 64, np.uint32) & np.uint32(0x37373737) for n in range(4, 16)}
    shapes = ".ROW", ".COL"
    a, b = [f"R{n}{shape * name.startswith('IMMA')}" for n, shape in zip((4, 8), shapes)]
    more = ", R16, R17, URZ" if "SF" in name else ""
    regs |= {16: np.full(64, 0x7F7F7F7F, np.uint32), 17: np.full(64, 0x7F7F7F7F, np.uint32)}

    def product(c: str, up: str) -> np.ndarray:
        up = up or (", UPT" if more else "")
        out = step.run(f"{name} R20, {a}, {b}, {c}{up}{more}", "sm_120", regs=regs, upreds={0: np.array([True, False])})
        return np.stack([out.r(n).reshape(2, 32) for n in range(20, 24)])

    added, fresh = product("R12", ""), product("RZ", "")
    assert (added != fresh).any(axis=(0, 2)).all()
    for up, wanted in ((", UP0", (added, fresh)), (", !UP0", (fresh, added)), (", !UPT", (fresh, fresh))):
        found = product("R12", up)
        assert (found[:, 0] == wanted[0][:, 0]).all() and (found[:, 1] == wanted[1][:, 1]).all()


def test_least_of_three() -> None:
    x = A.copy()
    x[3] = np.nan
    lines = "FMNMX3 R8, R2, -R4, |R6|, !PT\nFMNMX3 R9, R2, R4, R6, PT\nFMNMX3.NAN R10, R2, R4, R6, PT"
    out = step.run(lines, "sm_100", regs={2: x.view(np.uint32), 4: B.view(np.uint32), 6: C.view(np.uint32)})
    assert out.r(8, np.float32).tolist() == np.fmax(np.fmax(x, -B), abs(C)).tolist()
    assert out.r(9, np.float32).tolist() == np.fmin(np.fmin(x, B), C).tolist()
    least = np.minimum(np.minimum(x, B), C)
    assert np.array_equal(out.r(10, np.float32), least, equal_nan=True) and np.isnan(out.r(10, np.float32)[3])


def test_halves_and_floats() -> None:
    """FP32 sums with a half of a register."""
    half, brain = WORDS[0] & np.uint32(0xBBFFBBFF), WORDS[1] & np.uint32(0xBFFFBFFF)
    low, high = half.astype(np.uint16).view(np.float16), (half >> np.uint32(16)).astype(np.uint16).view(np.float16)
    upper = (brain & np.uint32(0xFFFF0000)).view(np.float32)
    lines = "FHADD R8, R2, -R4\nFHFMA R9, -R2.H1, R2, R4\nFHADD.BF16 R10, |R3|.H1, R4\nFHFMA.BF16 R11, R3.H1, R3.H1, R4"
    out = step.run(lines, "sm_120", regs={2: half, 3: brain, 4: A.view(np.uint32)})
    assert out.r(8, np.float32).tolist() == (low.astype(np.float32) - A).tolist()
    assert out.r(9).tolist() == fma(-high.astype(np.float32), low.astype(np.float32), A)
    assert out.r(10, np.float32).tolist() == (abs(upper) + A).tolist()
    assert out.r(11).tolist() == fma(upper, upper, A)


def test_floats_in_uniform_registers() -> None:
    a, b, c = (np.float32(v) for v in (1.7, -2.9, 3.3e7))
    uregs = {4 + n: int(v.view(np.uint32)) for n, v in enumerate((a, b, c))}
    lines = """UFADD UR8, UR4, -UR5
UFMUL UR9, UR4, |UR5|
UFFMA UR10, UR4, UR5, UR6
UFSETP.LT.AND UP0, UPT, UR5, UR4, UPT
UFSEL UR11, UR4, UR5, !UP0
UF2I.TRUNC.NTZ UR12, UR5
UI2F UR13, UR12
UI2FP.F32.U32 UR14, UR12"""
    out = step.run(lines, "sm_120", uregs=uregs)
    found = [np.uint32(out.ur(n)[0]).view(np.float32) for n in (8, 9, 10, 11, 13, 14)]
    assert found == [a - b, a * -b, np.float32(float(a) * float(b) + float(c)), b, -2.0, np.float32(2**32 - 2)]
    assert np.uint32(out.ur(12)[0]) == 2**32 - 2


@pytest.mark.parametrize("arch", ["sm_100a", "sm_120a"])
@pytest.mark.parametrize("wanted", [0xFF, 0x65, 0x01, 0x80, 0x0F, 0xF0, 0x7F, 0xAA])
def test_256_bits(wanted: int, arch: str) -> None:
    """Words that PTX does not want get no register: ptxas packs the others, in two groups. Nothing else is written."""
    names = [f"%r{n}" if wanted >> n & 1 else "_" for n in range(8)]
    text = f"""
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %r<12>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
 mov.u32 %r8, %tid.x; mul.wide.u32 %d2, %r8, 32; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
 {" ".join(f"mov.b32 %r{n}, {n + 1};" for n in range(8))}
 ld.global.v8.b32 {{{", ".join(names)}}}, [%d0];
 st.global.v8.b32 [%d1], {{{", ".join(f"%r{n}" for n in range(8))}}};
 ret;
}}
"""
    code = ptxas.assemble_ptx(text, arch)
    assert sum(".256" in line for line in turingas.disassemble(turingas.Cubin.from_bytes(code)).splitlines()) == 2
    source, out = RNG.integers(0, 1 << 32, (32, 8), np.uint32), np.zeros((32, 8), np.uint32)
    report = launch(code, "k", 1, 32, [out, source], strict=True, races="global", counters=True)
    kept = np.array([wanted >> n & 1 for n in range(8)], bool)
    assert (out == np.where(kept, source, np.arange(1, 9, dtype=np.uint32))).all()
    assert not report.hazards and not report.races and report.counters is not None
    assert report.counters.sectors.max() == 32  # a lane has one each
    with pytest.raises(DeviceError, match="0 bytes behind the end"):
        launch(code, "k", 1, 32, [out, source[:31]])


def test_256_bits_may_need_no_more_than_their_words() -> None:
    """Overwriting a register that a masked load leaves alone needs no wait; one that it loads does."""
    load = "--:-:0:-:2  LDG.E.ENL2.256 R12, R8, desc[UR4][R2.64], 0x31;"  # words 0, 4 and 5: R8, R12, R13
    for register, hazards in ((8, 1), (9, 0), (11, 0), (12, 1), (13, 1), (14, 0)):
        lines = [
            "--:-:1:-:1 LDC.64 R2, c[0x0][0x380];",
            "--:-:1:-:1 LDCU.64 UR4, c[0x0][0x358];",
            load.replace("--", "02", 1),
            f"--:-:-:-:1 MOV R{register}, 0x1;",
            "01:-:-:-:5 EXIT;",
        ]
        source = "\n".join(lines)
        found = turingas.lint(turingas.assemble(source, "sm_100").to_bytes())
        assert [f.kind for f in found if f.kind == "waw"] == ["waw"] * hazards, register


@pytest.mark.parametrize("kind, dtype", [("32", np.uint32), ("64", np.uint64)])
def test_stores_and_sums_of_a_warp(kind: str, dtype: type) -> None:
    """st.async.mmio and red.async.mmio: ptxas makes a loop of them, in which the warp does them lane by lane."""
    bits = f"b{kind}"
    text = f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in, .param .u64 sum)
{{
 .reg .b32 %t; .reg .{bits} %v; .reg .b64 %d<5>;
 ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; ld.param.u64 %d4, [sum]; mov.u32 %t, %tid.x;
 mul.wide.u32 %d2, %t, {int(kind) // 8}; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
 ld.global.{bits} %v, [%d1];
 st.async.mmio.release.sys.global.{bits} [%d0], %v;
 red.async.mmio.release.sys.global.add.u{kind} [%d4], %v;
 ret;
}}
"""
    code = ptxas.assemble_ptx(text, "sm_100a")
    lines = turingas.disassemble(turingas.Cubin.from_bytes(code))
    assert " USTGR." in lines and " UREDGR." in lines
    source = RNG.integers(0, np.iinfo(dtype).max, 64, dtype)
    out, total = np.zeros(64, dtype), np.zeros(1, dtype)
    report = launch(code, "k", 1, 64, [out, source, total], races="global")
    assert (out == source).all() and total[0] == source.sum(dtype=dtype) and not report.races


@pytest.mark.parametrize("mask", [0xFFFF, 0x0001, 0x8000, 0x5A3C, 0])
def test_bytes_of_a_bulk_copy(mask: int) -> None:
    """cp.async.bulk with .cp_mask: bit n says whether byte n of every 16 is written; nothing else is."""
    text = f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .b16 %h; .reg .pred %p;
 .shared .align 16 .b8 tile[512];
 ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4;
 add.u64 %d1, %d1, %d2; ld.global.b32 %r1, [%d1]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 4, %r2;
 st.shared.b32 [%r3], %r1; fence.proxy.async.shared::cta; bar.sync 0;
 setp.ne.u32 %p, %r0, 0; @%p bra END;
 mov.b16 %h, {mask};
 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d0], [%r2], 512, %h;
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
 ret;
}}
"""
    code = ptxas.assemble_ptx(text, "sm_100a")
    source, out = RNG.integers(0, 256, 512, np.uint8), RNG.integers(0, 256, 512, np.uint8)
    kept = np.array([mask >> n % 16 & 1 for n in range(512)], bool)
    wanted = np.where(kept, source, out)
    report = launch(code, "k", 1, 128, [out, source], strict=True, races="global", stale=True)
    assert (out == wanted).all() and not report.hazards and not report.races


#: of each size: the SASS that ptxas 13.5 makes of ld.proxy::readonly.global (PTX 9.4), which 12.9 does not know
READONLY = {"LDCU.U8": np.uint8, "LDCU.S16": np.int16, "LDCU": np.uint32, "LDCU.64": np.uint64}


@pytest.mark.parametrize("name", READONLY)
def test_reads_of_what_nobody_writes(name: str) -> None:
    """ld.proxy::readonly: uniform registers get words of global memory; who reads so what the kernel itself has
    written is told."""
    source = RNG.integers(0, 1 << 32, 8, np.uint32)
    lines = [
        ".kernel kern\n.param out 8\n.param in 8\nLDCU.64 UR4, c[0x0][0x380]\nLDCU.64 UR6, c[0x0][0x388]",
        "LDCU.64 UR8, c[0x0][0x358]\nMOV R0, UR4\nMOV R1, UR5",
        "@!PT STG.E desc[UR8][R0.64], R0",
        f"{name} UR10, [UR6+0x8], !UPT\nMOV R2, UR10\nMOV R3, UR11\nSTG.E.64 desc[UR8][R0.64], R2\nEXIT",
    ]
    out = np.zeros(2, np.uint32)
    launch(turingas.assemble("\n".join(lines), "sm_100"), "kern", 1, 32, [out, source])
    value = int(source[2:].view(READONLY[name])[0]) & 0xFFFFFFFFFFFFFFFF
    assert out[0] == value & 0xFFFFFFFF and (name != "LDCU.64" or out[1] == value >> 32)
    lines[2] = "MOV R4, UR6\nMOV R5, UR7\nSTG.E desc[UR8][R4.64+0x8], R0"
    report = launch(turingas.assemble("\n".join(lines), "sm_100"), "kern", 1, 1, [out, source], races="global")
    assert "read through the read-only path" in str(report.races[-1])
    with pytest.raises(DeviceError, match="out of bounds|behind the end"):
        launch(turingas.assemble("\n".join(lines), "sm_100"), "kern", 1, 1, [out, source[:2]])


@pytest.mark.parametrize(("arch", "text", "why"), [
    ("sm_90", "USETSHMSZ 0x400", "no compiler is known to make it"),
    ("sm_100a", "UTMALDG.4D.W [UR8], [UR4], UR6", "cuTensorMapEncodeIm2colWide"),
    ("sm_100a", "UTCBAR.A0TX [UR4], URZ, UR6", "no compiler makes it"),
    ("sm_100a", "UTCBAR.WAKEUP [UR4], URZ", "no compiler makes it"),
    ("sm_100a", "MOVM.U4TO8.M832 R2, R4", "nothing public says which lane gets which columns"),
])  # fmt: skip
def test_a_refusal_says_why(arch: str, text: str, why: str) -> None:
    cubin = turingas.assemble(f".kernel k\n--:-:-:-:5 {text};\n--:-:-:-:5 EXIT;\n", arch)
    with pytest.raises(DeviceError, match=why):
        launch(cubin, "k", 1, 32, [])
