"""Tensor memory on the CPU device, in kernels that ptxas makes of PTX. No Blackwell card was at hand: what is expected
follows from the PTX ISA and from CUTLASS' traits of the same instructions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.tcgen05 import LOADS, compiled, fragment, registers, stored
from tests.tools import ptxas
from turingas.emulate import DeviceError, launch
from turingas.emulate.arrays import Array

pytestmark = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")

FORMS = [
    (shape, times, packed)
    for shape, (each, _) in LOADS.items() for times, packed in ((1, False), (2, True), (4, False), (64 // each, True))
]  # fmt: skip


def fill(columns: int) -> str:
    """Puts its lane and column into each word."""
    lines = ["shl.b32 %r250, %thread, 16;"]
    for first in range(0, columns, 128):
        lines += [f"add.u32 %r{n}, %r250, {n + first};" for n in range(128)]
        lines.append(f"add.u32 %r251, %mine, {first};")
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x128.b32 [%r251], {registers(0, 128)};")
    return "\n".join([*lines, "tcgen05.wait::st.sync.aligned;"])


def instruction(name: str, shape: str, times: int, packed: bool) -> tuple[str, int]:
    """Of a load or store of %r0 on at %r252; also how many registers."""
    count = LOADS[shape][0] * times
    how = "" if not packed else ".pack::16b" if name == "ld" else ".unpack::16b"
    second = ", 64" if shape == "16x32bx2" else ""
    operands = f"{registers(0, count)}, [%r252]{second}" if name == "ld" else f"[%r252]{second}, {registers(0, count)}"
    return f"tcgen05.{name}.sync.aligned.{shape}.x{times}{how}.b32 {operands};", count


def run(body: str, size: int) -> Array:
    """The (size, 128) words that the threads of a block store."""
    out = np.zeros((size, 128), np.uint32)
    launch(compiled(body), "k", 1, 128, [out, np.zeros(1, np.uint32)])
    return out


def test_loads() -> None:
    """Every shape, also packed, and the upper 16 lanes of a warp."""
    lines, wanted = [fill(256)], []
    for shape, times, packed in FORMS:
        first = 0 if shape == "32x32b" or times % 4 else 16
        begin = 3 if times < 8 else 0
        text, count = instruction("ld", shape, times, packed)
        lines += [f"add.u32 %r252, %mine, {(first << 16) + begin};", text, "tcgen05.wait::ld.sync.aligned;"]
        lines.append(stored(0, count, 128 * sum(len(w) for w in wanted)))
        lanes, columns = fragment(shape, times, 0)
        second = 64 * (np.arange(32)[:, None] >= 16) if shape == "16x32bx2" else 0
        base = (lanes[None] + first + 32 * np.arange(4)[:, None, None]) << 16
        if packed:
            low = begin + 2 * columns + second
            value = base * 0 + (low | low + 1 << 16)
        else:
            value = base | (begin + columns + second)
        wanted.append(value.transpose(2, 0, 1).reshape(-1, 128))
    found = run("\n".join(lines), sum(len(w) for w in wanted))
    assert (found == np.concatenate(wanted)).all()


def test_stores() -> None:
    """Likewise: what was not stored to is as before."""
    lines, wanted = [], []
    for n, (shape, times, packed) in enumerate(f for f in FORMS if f[1] < 8):
        text, count = instruction("st", shape, times, packed)
        lines += [fill(128), "add.u32 %r252, %mine, 5;"]
        lines += [f"shl.b32 %r{r}, %thread, 8; add.u32 %r{r}, %r{r}, {r + (7 << 16)};" for r in range(count)]
        lines += [text, "tcgen05.wait::st.sync.aligned;"]
        lines.append(f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {registers(0, 128)}, [%mine];")
        lines += ["tcgen05.wait::ld.sync.aligned;", stored(0, 128, 128 * 128 * n)]
        memory = (np.arange(128)[:, None] << 16) + np.arange(128)
        lanes, columns = fragment(shape, times, 0)
        second = 64 * (np.arange(32)[:, None] >= 16) if shape == "16x32bx2" else 0
        for warp in range(4):
            value = ((np.arange(32)[:, None] + 32 * warp) << 8) + np.arange(count) + (7 << 16)
            rows = lanes + 32 * warp
            if packed:
                memory[rows, 5 + 2 * columns + second] = value & 0xFFFF
                memory[rows, 6 + 2 * columns + second] = value >> 16
            else:
                memory[rows, 5 + columns + second] = value
        wanted.append(memory.T)
    found = run("\n".join(lines), sum(len(w) for w in wanted))
    assert (found == np.concatenate(wanted)).all()


def least(words: list[int], op: str, kind: str, nan: bool) -> int:
    """What tcgen05.ld.red says of the words of a thread: PTX ISA, "tcgen05.ld" and, of floats, "min" and "max"."""
    if kind != "f32":
        signed = [w - (1 << 32) if kind == "s32" and w >> 31 else w for w in words]
        return (min if op[:3] == "min" else max)(signed) & 0xFFFFFFFF
    if op.endswith("abs"):
        words = [w & 0x7FFFFFFF for w in words]
    numbers = [w for w in words if w & 0x7FFFFFFF <= 0x7F800000]
    if not numbers or nan and len(numbers) < len(words):
        return 0x7FFFFFFF
    # signs and sizes in order, -0 below +0
    return (min if op[:3] == "min" else max)(numbers, key=lambda w: -(w & 0x7FFFFFFF) - 1 if w >> 31 else w)


@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
@pytest.mark.parametrize(("kind", "op"), [
    (kind, op) for kind in ("u32", "s32", "f32", "f32.NaN") for op in ("min", "max", "min.abs", "max.abs")
    if kind[0] == "f" or "abs" not in op
])  # fmt: skip
def test_loads_that_reduce(kind: str, op: str, shape: str) -> None:
    """tcgen05.ld.red: the words, and the least or greatest of a thread's, of 2, 8 and 64 of them."""
    rng = np.random.default_rng(len(kind + op + shape))
    words = rng.integers(0, 1 << 32, (128, 80), np.uint32)
    words[:32, :8] = rng.choice([0, 1 << 31, 0x7FC00123, 0xFF800000], (32, 8))  # both zeros, a NaN, -infinity
    words[40:60] &= np.uint32(0x7FFFFFFF)
    words[62] = 0xFFC00000
    base, _, nan = kind.partition(".")
    lines = ["mul.wide.u32 %d1, %thread, 320; add.u64 %d1, %d1, %in;"]
    lines += [f"ld.global.b32 %r{n}, [%d1+{4 * n}];" for n in range(80)]
    lines.append(f"tcgen05.st.sync.aligned.32x32b.x64.b32 [%mine], {registers(0, 64)};")
    lines.append(f"add.u32 %r250, %mine, 64; tcgen05.st.sync.aligned.32x32b.x16.b32 [%r250], {registers(64, 16)};")
    lines.append("tcgen05.wait::st.sync.aligned;")
    wanted = []
    second = 7 if shape == "16x32bx2" else 0
    how = ".".join([op, *[nan] * bool(nan), base])
    for times in (2, 8, 64):
        lines.append(
            f"tcgen05.ld.red.sync.aligned.{shape}.x{times}.{how} {registers(0, times)}, %r{times}, [%mine]"
            f"{f', {second}' if second else ''}; tcgen05.wait::ld.sync.aligned;"
        )
        lines.append(stored(0, times + 1, 128 * sum(len(w) for w in wanted)))
        rows, columns = fragment(shape, times, second)
        loaded = np.stack([words[32 * warp + rows, columns] for warp in range(4)]).reshape(128, times)
        extremes = [least(row, op, base, bool(nan)) for row in loaded.tolist()]
        wanted.append(np.vstack([loaded.T, np.array(extremes, np.uint32)]))
    out = np.zeros((sum(len(w) for w in wanted), 128), np.uint32)
    report = launch(compiled("\n".join(lines), 128, "sm_103a"), "k", 1, 128, [out, words], strict=True, races="shared")
    assert (out == np.concatenate(wanted)).all()
    assert not report.hazards and not report.races


def test_allocation() -> None:
    """Columns that are free are found; those of one block are not another's."""
    lines = []
    for n, columns in enumerate((64, 32, 128, 32)):
        lines.append(f"@%first mov.u32 %r0, sm; @%first add.u32 %r0, %r0, {4 * n};")
        lines.append(f"@%first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], {columns};")
        if n == 1:
            lines.append("@%first ld.shared.b32 %r1, [sm];")
            lines.append("@%first tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;")
    lines.append("bar.sync 0; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [sm];")
    lines.append(stored(0, 4, 0))
    out = np.zeros((4, 128), np.uint32)
    launch(compiled("\n".join(lines), 32), "k", 1, 128, [out, np.zeros(1, np.uint32)])
    assert out[:, 0].tolist() == [64, 32, 128, 64]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%tm]; st.global.b32 [%out], %r0;", "the warp reaches lanes 32"),
        ("add.u32 %r1, %mine, 32; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%thread};", "nobody has taken it"),
        ("add.u32 %r1, %tm, 1048576; @%one tcgen05.shift.cta_group::1.down [%r1];", "from a multiple of 32"),
        ("add.u32 %r1, %mine, 510; tcgen05.st.sync.aligned.32x32b.x4.b32 [%r1], {%r0,%r0,%r0,%r0};", "512 columns"),
    ],
)
def test_wrong_places(body: str, why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        launch(compiled(body, 512 if "510" in body else 32), "k", 1, 128, [np.zeros(128, np.uint32)] * 2)


#: shape of tcgen05.cp: rows and bytes of each, the lanes that get row r, and the bits of an element that becomes a byte
COPIES = {
    "128x256b": (128, 32, lambda r: [r], 0),
    "4x256b": (4, 32, lambda r: [32 * r], 0),
    "128x128b": (128, 16, lambda r: [r], 0),
    "64x128b.warpx2::02_13": (64, 16, lambda r: [r, r + 64], 0),
    "64x128b.warpx2::01_23": (64, 16, lambda r: [r % 32 + r // 32 * 64, r % 32 + r // 32 * 64 + 32], 0),
    "32x128b.warpx4": (32, 16, lambda r: [r, r + 32, r + 64, r + 96], 0),
    "128x128b.b8x16.b4x16_p64": (128, 16, lambda r: [r], 4),
    "128x256b.b8x16.b6x16_p32": (128, 32, lambda r: [r], 6),
}
STRIDE, LEADING = 256, 4224  # of eight rows, and of 16 bytes


@pytest.mark.parametrize("early", [False, True], ids=["waits", "too early"])
def test_copies(early: bool) -> None:
    """Every shape, from rows in pieces of 16 bytes. Who reads before the mbarrier tells finds what was there before."""
    lines = [
        "mul.wide.u32 %d1, %thread, 4; add.u64 %d1, %d1, %in; mov.u32 %r200, sm; mov.u32 %r201, %r200;",
        "mad.lo.u32 %r200, %thread, 4, %r200; mov.u32 %r202, 0;",
        "COPY: ld.global.b32 %r203, [%d1]; st.shared.b32 [%r200], %r203; add.u64 %d1, %d1, 512;",
        "add.u32 %r200, %r200, 512; add.u32 %r202, %r202, 1; setp.lt.u32 %p1, %r202, 24; @%p1 bra COPY;",
        fill(128),
        "fence.proxy.async.shared::cta; tcgen05.fence::before_thread_sync; bar.sync 0;",
        "shr.u32 %r201, %r201, 4; cvt.u64.u32 %d2, %r201;",
        f"or.b64 %d2, %d2, {LEADING >> 4 << 16 | STRIDE >> 4 << 32 | 1 << 46}; mov.u32 %r204, bar; @!%one bra WAIT;",
    ]
    for n, shape in enumerate(COPIES):
        lines.append(f"add.u32 %r205, %tm, {8 * n}; tcgen05.cp.cta_group::1.{shape} [%r205], %d2;")
    lines.append("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r204];")
    wait = "LAST: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r204], 0; @!%p2 bra LAST;"
    lines += ["WAIT:", "" if early else wait, "bar.sync 0; tcgen05.fence::after_thread_sync;"]
    lines.append(
        f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {registers(0, 128)}, [%mine]; tcgen05.wait::ld.sync.aligned;"
    )
    lines += [stored(0, 128, 0), wait if early else ""]
    image = np.random.default_rng(5).integers(0, 256, 24 * 512, np.uint8)
    out = np.zeros((128, 128), np.uint32)
    launch(compiled("\n".join(lines), shared=image.size), "k", 1, 128, [out, image.view(np.uint32)], budget=50_000)
    memory = ((np.arange(128)[:, None] << 16) + np.arange(128)).astype(np.uint32)
    for n, (rows, width, lanes, bits) in enumerate(COPIES.values()):
        for row in range(0 if early else rows):
            raw = []
            for piece in range(width // 16):
                at = row % 8 * 16 + row // 8 * STRIDE + piece * LEADING
                source = int.from_bytes(image[at : at + 16].tobytes(), "little")
                if bits:  # four bits stand in the middle of a byte
                    codes = [source >> bits * e & (1 << bits) - 1 for e in range(16)]
                    source = sum(code << 8 * e + (2 if bits == 4 else 0) for e, code in enumerate(codes))
                raw += [source >> 32 * word & 0xFFFFFFFF for word in range(4)]
            for lane in lanes(row):
                memory[lane, 8 * n : 8 * n + len(raw)] = raw
    assert (out.T == memory).all()


@pytest.mark.parametrize("pair", [False, True], ids=["one", "pair"])
def test_shifts(pair: bool) -> None:
    """31 of 32 rows of 32 bytes go down, of the second warp's lanes, behind what was shifted before. No card of ours
    has shown which way down is."""
    group = 2 if pair else 1
    size = 16
    lines = [
        fill(128),
        "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;",
        "barrier.cluster.arrive; barrier.cluster.wait;" if pair else "",
        f"add.u32 %r205, %tm, {(32 << 16) + 4}; mov.u32 %r204, bar; setp.ne.u32 %p3, %rank, 0;",
        "@!%one bra WAIT; @%p3 bra WAIT;",
        *2 * [f"tcgen05.shift.cta_group::{group}.down [%r205];"],
        f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{'.multicast::cluster' * pair}.b64 "
        f"[%r204]{', %h0' * pair};",
        "WAIT:",
        "LAST: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r204], 0; @!%p2 bra LAST;",
        "tcgen05.fence::after_thread_sync;",
        f"tcgen05.ld.sync.aligned.32x32b.x{size}.b32 {registers(0, size)}, [%mine]; tcgen05.wait::ld.sync.aligned;",
        f"mul.lo.u32 %r210, %rank, {512 * size}; cvt.u64.u32 %d1, %r210; add.u64 %out, %out, %d1;",
        stored(0, size, 0),
        "barrier.cluster.arrive; barrier.cluster.wait;" if pair else "",
    ]
    out = np.zeros((group, size, 128), np.uint32)
    body = "mov.u16 %h0, 3;\n" + "\n".join(lines)
    launch(compiled(body, pair=pair), "k", group, 128, [out, np.zeros(1, np.uint32)], cluster=(group, 1, 1))
    memory = (np.arange(128)[:, None] << 16) + np.arange(size)
    memory[32:62, 4:12] = memory[34:64, 4:12]
    memory[62, 4:12] = memory[63, 4:12]
    assert (out.transpose(0, 2, 1) == memory).all()
