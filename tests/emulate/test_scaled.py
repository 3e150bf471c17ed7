"""mma.sync of sm_120 on the CPU device, in kernels that ptxas makes of PTX: FP4, FP6 and FP8, and scales of blocks. All
operands are small, so that sums are exact in any order. No card was at hand: places are those of the PTX ISA."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import turingas
from tests.emulate.test_utcmma import small, value
from tests.tools import ptxas
from turingas.emulate import launch
from turingas.emulate.arrays import Array
from turingas.emulate.errors import DeviceError

pytestmark = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")


class Product(NamedTuple):
    """``ids``: byte and thread of A's scales, then of B's, as PTX counts them."""

    kinds: tuple[str, str]
    scales: int = 0  # of a row
    form: str = "ue8m0"
    ids: tuple[int, int, int, int] = (0, 0, 0, 0)
    sparse: bool = False

    @property
    def bits(self) -> int:
        return 4 if self.scales > 1 else 8

    def text(self) -> str:
        k = 256 // self.bits * (2 if self.sparse else 1)
        name = f"mma{'.sp::ordered_metadata' * self.sparse}.sync.aligned.m16n8k{k}.row.col"
        if self.scales:
            kind = {"ue4m3": "mxf4nvf4", "ue8m0": "mxf4" if self.bits == 4 else "mxf8f6f4"}[self.form]
            name += f".kind::{kind}.block_scale.scale_vec::{self.scales}X"
        else:
            name += ".kind::f8f6f4"
        a, b = (kind.lower() for kind in self.kinds)
        name += f".f32.{a}.{b}.f32" + f".{self.form}" * (self.scales > 0)
        second = "{%r4, %r5, %r6, %r7}" if self.sparse else "{%r4, %r5}"
        operands = ["{%f0, %f1, %f2, %f3}", "{%r0, %r1, %r2, %r3}", second, "{%f4, %f5, %f6, %f7}"]
        operands += ["%r14", "0"] * self.sparse
        if self.scales:
            one, two, three, four = self.ids
            operands += ["%r12", f"{{{one}, {two}}}", "%r13", f"{{{three}, {four}}}"]
        return f"{name} {', '.join(operands)};"

    def cubin(self) -> bytes:
        loads = "\n".join(f" ld.global.b32 %r{n}, [%d0+{128 * n}];" for n in range(15))
        return ptxas.assemble_ptx(
            f"""
.version 8.7
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %d<4>; .reg .b32 %lane;
 mov.u32 %lane, %laneid; mul.wide.u32 %d2, %lane, 4;
 ld.param.u64 %d0, [in]; cvta.to.global.u64 %d0, %d0; add.u64 %d0, %d0, %d2;
 ld.param.u64 %d1, [out]; cvta.to.global.u64 %d1, %d1; add.u64 %d1, %d1, %d2;
{loads}
 {" ".join(f"mov.b32 %f{4 + n}, %r{8 + n};" for n in range(4))}
 {self.text()}
 {" ".join(f"st.global.f32 [%d1+{128 * n}], %f{n};" for n in range(4))}
 ret;
}}
""",
            "sm_120a",
        )


def in_bytes(kind: str, codes: Array) -> Array:
    """A code of 4 bits stands in the middle of its byte, one of 6 bits in the lower ones."""
    return codes << 2 if kind == "E2M1" else codes


def lanes_of(codes: Array, bits: int, registers: int, column: bool) -> Array:
    """Codes (rows, k) as registers (registers, 32), the figures of mma.m16n8k32 and m16n8k64."""
    per = 32 // bits
    found = np.zeros((registers, 32), np.uint32)
    for n in range(registers):
        for lane in range(32):
            row, t = lane // 4 + (0 if column else 8 * (n % 2)), lane % 4
            first = per * t + 4 * per * (n if column else n // 2)
            found[n, lane] = sum(int(codes[row, first + j]) << bits * j for j in range(per))
    return found


PRODUCTS = [
    Product(("E2M1", "E3M2")),
    Product(("E2M3", "E4M3")),
    Product(("E4M3", "E5M2"), 1, ids=(3, 1, 2, 3)),
    Product(("E3M2", "E2M1"), 1, ids=(1, 0, 0, 2)),
    Product(("E2M1", "E2M1"), 2, ids=(2, 1, 0, 1)),
    Product(("E2M1", "E2M1"), 4, "ue4m3", ids=(0, 1, 0, 2)),
    Product(("E4M3", "E2M3"), 1, ids=(2, 1, 1, 0), sparse=True),
    Product(("E2M1", "E2M1"), 2, ids=(0, 1, 2, 3), sparse=True),
    Product(("E2M1", "E2M1"), 4, "ue4m3", ids=(0, 0, 0, 1), sparse=True),
]


@pytest.mark.parametrize("p", PRODUCTS, ids=lambda p: f"{p.kinds[0]}x{p.kinds[1]}-{p.scales}X" + "-sp" * p.sparse)
def test_products(p: Product) -> None:
    rng = np.random.default_rng(p.scales)
    kept = 256 // p.bits
    k = kept * (2 if p.sparse else 1)
    a, b, c = small(rng, p.kinds[0], (16, kept)), small(rng, p.kinds[1], (8, k)), small(rng, "F32", (16, 8))
    source = rng.integers(0, 1 << 32, (15, 32), np.uint32)
    in_memory = [x if p.bits == 4 else in_bytes(kind, x) for kind, x in zip(p.kinds, (a, b))]
    source[:4] = lanes_of(in_memory[0], p.bits, 4, False)
    count = 4 if p.sparse else 2
    source[4 : 4 + count] = lanes_of(in_memory[1], p.bits, count, True)
    row = np.arange(32) // 4 + 8 * (np.arange(4)[:, None] // 2)
    column = np.arange(32) % 4 * 2 + np.arange(4)[:, None] % 2
    source[8:12] = c[row, column]
    left, right = value(p.kinds[0], a), value(p.kinds[1], b)
    if p.sparse:
        each = 8 // p.bits  # elements that are kept together
        picks = np.sort(rng.random((16, k // 4 // each, 4)).argsort(axis=-1)[..., :2], axis=-1).reshape(16, -1)
        whole = np.zeros((16, k))
        place = np.arange(kept) // each // 2 * 4 + np.repeat(picks, each, axis=1)
        whole[np.arange(16)[:, None], place * each + np.arange(kept) % each] = left
        left = whole
        words = np.zeros(32, np.uint32)
        for r in range(16):  # lane 4 g + 2 h has half h of row g, the next one that of row g + 8
            for half in range(2):
                lane = r % 8 * 4 + 2 * half + r // 8
                words[lane] = sum(int(pick) << 2 * n for n, pick in enumerate(picks[r, 16 * half : 16 * half + 16]))
        source[14] = words
    if p.scales:
        byte_a, thread_a, byte_b, thread_b = p.ids
        pool = np.array([0x30, 0x34, 0x38, 0x3C] if p.form == "ue4m3" else [126, 127, 128, 129])
        scale_a, scale_b = pool[rng.integers(0, 4, (16, p.scales))], pool[rng.integers(0, 4, (8, p.scales))]
        raw = source[12:14].copy().view(np.uint8).reshape(2, 32, 4)
        for r in range(16):
            raw[0, r % 8 * 4 + 2 * thread_a + r // 8, byte_a : byte_a + p.scales] = scale_a[r]
        for r in range(8):
            raw[1, r * 4 + thread_b, byte_b : byte_b + p.scales] = scale_b[r]
        source[12:14] = raw.reshape(2, 128).view(np.uint32)
        worth_a, worth_b = (value("E4M3", x) if p.form == "ue4m3" else 2.0 ** (x - 127.0) for x in (scale_a, scale_b))
        left = left * np.repeat(worth_a, k // p.scales, axis=1)
        right = right * np.repeat(worth_b, k // p.scales, axis=1)
    out = np.zeros((4, 32), np.float32)
    launch(p.cubin(), "k", 1, 32, [out, source])
    wanted = left @ right.T + value("F32", c)
    assert (wanted.astype(np.float32) == wanted).all() and (out == wanted[row, column]).all()


def test_the_order_of_columns_is_not_guessed() -> None:
    """Elsewhere than in ptxas's functions for products of bits the order that MOVM.U4TO8 makes would show."""
    code = turingas.assemble("--:-:0:-:1 MOVM.U4TO8.M832 R4, R2;\n01:-:-:-:5 EXIT;", "sm_100")
    with pytest.raises(DeviceError, match="which lane gets which columns"):
        launch(code, None, 1, 32, [])


@pytest.mark.parametrize("arch", ["sm_100a", "sm_120a"])
def test_products_of_bits(arch: str) -> None:
    """Blackwell multiplies no bits: ptxas takes them apart, and makes bytes of them by MOVM.U4TO8."""
    lanes = np.arange(32)
    loads = "\n".join(f" ld.global.b32 %r{n}, [%d0+{128 * n}];" for n in range(10))
    code = ptxas.assemble_ptx(
        f"""
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %r<16>; .reg .b64 %d<4>; .reg .b32 %lane;
 mov.u32 %lane, %laneid; mul.wide.u32 %d2, %lane, 4;
 ld.param.u64 %d0, [in]; cvta.to.global.u64 %d0, %d0; add.u64 %d0, %d0, %d2;
 ld.param.u64 %d1, [out]; cvta.to.global.u64 %d1, %d1; add.u64 %d1, %d1, %d2;
{loads}
 mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc
  {{%r10, %r11, %r12, %r13}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r6, %r7, %r8, %r9}};
 {" ".join(f"st.global.b32 [%d1+{128 * n}], %r{10 + n};" for n in range(4))}
 ret;
}}
""",
        arch,
    )
    assert any("MOVM.U4TO8" in line for line in turingas.decode(turingas.Cubin.from_bytes(code).kernels[0].words, arch))
    source = np.random.default_rng(1).integers(0, 1 << 32, (10, 32), np.uint32)
    bits = np.unpackbits(source[:6].copy().view(np.uint8).reshape(6, 8, 16), axis=2, bitorder="little")  # 128 of a row
    a = np.concatenate([np.concatenate(bits[[0, 2]], axis=1), np.concatenate(bits[[1, 3]], axis=1)])
    b = np.concatenate(bits[[4, 5]], axis=1)
    differing = (a[:, None] != b[None]).sum(axis=2).astype(np.uint32)
    n = np.arange(4)[:, None]
    out = np.zeros((4, 32), np.uint32)
    launch(code, "k", 1, 32, [out, source])
    assert (out == differing[lanes // 4 + 8 * (n // 2), lanes % 4 * 2 + n % 2] + source[6:]).all()
